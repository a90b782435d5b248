//! Functions of the virtual kernel for the policy library (`include/lab`) and the shadow headers, besides the
//! kernel's own functions: locks, order, the cost model.

use std::ffi::{CStr, c_char, c_int, c_void};

use schedlab_engine::policy::PolicyLock;
use schedlab_trace::{LockClass, TaskId};

use crate::bpf::ObjectLine;
use crate::fields::Place;
use crate::host::Context;
use crate::host::context::Loaded;
use crate::version;

/// Steps of `can_loop` and of bounded loops in one op: the kernel's bound on both.
pub const STEPS_MAX: u32 = 8 << 20;

/// Order only: no CPU may read a word that was written in its future.
pub extern "C" fn sync(context: Context) {
    if context.env(|env| env.cpu.now.get() >= env.horizon.get()) {
        ask_sync(context);
    }
}

// Not of Rust's own convention: such a function might unwind, and `sync()` would need a frame to stop that.
#[inline(never)]
extern "C" fn ask_sync(context: Context) {
    context.ask(|kernel| kernel.sync());
    context.refresh_idle_masks();
}

fn class(number: u32) -> LockClass {
    match number {
        0 => LockClass::RunQueue,
        1 => LockClass::Dsq,
        2 => LockClass::KernelRq,
        _ => LockClass::Other,
    }
}

/// Returns the lock of a word and its modelled address, after the checks that the verifier or lockdep would make.
/// `None` if the CPU holds it already, which only an attempt that does not `wait` may find. `code` is the place of
/// the call.
fn prepare(
    context: Context,
    word: *mut u32,
    code: *const c_void,
    wait: bool,
) -> Option<(PolicyLock, u64)> {
    let Some(lock) = context.with(|host| host.lock(word)) else {
        context.fault("a lock lies neither in the arena nor in a global or map".to_owned())
    };
    let (owner, address, cpu) = context.with(|host| {
        let cpu = host.cpu();
        host.current().lock_asked_at = code as usize;
        let state = &host.locks[lock.0 as usize];
        (state.owner, state.address, cpu)
    });
    if owner == Some(cpu) {
        if wait {
            let (name, taken) = context.with(|host| {
                let lock = lock.0 as usize;
                (host.name_lock(lock), host.lock_taken_at(lock))
            });
            context.fault_before(
                code as usize,
                &format!("it takes {name}, which it holds already{taken}"),
            );
        }
        return None;
    }
    Some((lock, address))
}

fn taken(context: Context, lock: PolicyLock) {
    context.with(|host| {
        let cpu = host.cpu();
        let current = host.current();
        current.prefetch = None;
        let taken_at = current.lock_asked_at;
        let state = &mut host.locks[lock.0 as usize];
        state.owner = Some(cpu);
        state.taken_at = taken_at;
    });
}

/// Takes a lock.
pub extern "C" fn lock(context: Context, word: *mut u32, number: u32, code: *const c_void) {
    if let Some((lock, address)) = prepare(context, word, code, true) {
        context.ask(|kernel| kernel.lock(lock, address, class(number)));
        taken(context, lock);
    }
}

/// `bpf_res_spin_lock()`: 0, or an error where CPUs would wait for each other for ever.
// Model: the kernel finds circles of two CPUs, and gives up after a quarter of a second in longer ones (-ETIMEDOUT).
pub extern "C" fn res_lock(
    context: Context,
    word: *mut u32,
    number: u32,
    code: *const c_void,
) -> c_int {
    const EDEADLK: c_int = 35;
    let Some((lock, address)) = prepare(context, word, code, false) else {
        return -EDEADLK;
    };
    if !context.ask(|kernel| kernel.lock_unless_deadlock(lock, address, class(number))) {
        return -EDEADLK;
    }
    taken(context, lock);
    0
}

/// Tries to take a lock.
pub extern "C" fn trylock(
    context: Context,
    word: *mut u32,
    number: u32,
    code: *const c_void,
) -> bool {
    let Some((lock, address)) = prepare(context, word, code, false) else {
        return false;
    };
    let got = context.ask(|kernel| kernel.trylock(lock, address, class(number)));
    if got {
        taken(context, lock);
    }
    got
}

/// Releases a lock.
pub extern "C" fn unlock(context: Context, word: *mut u32) {
    let lock = context.with(|host| {
        let lock = host.lock(word)?;
        let cpu = host.cpu();
        let state = &mut host.locks[lock.0 as usize];
        if state.owner != Some(cpu) {
            return None;
        }
        state.owner = None;
        host.current().prefetch = None;
        Some(lock)
    });
    match lock {
        Some(lock) => {
            context.ask(|kernel| kernel.unlock(lock));
        }
        None => context.fault("it releases a lock that it does not hold".to_owned()),
    }
}

/// An access of memory for the cache model; a place on the stack costs nothing.
pub extern "C" fn touch(context: Context, place: *const c_void, bytes: u32, write: bool) {
    if let Some(address) = context.with(|host| host.modelled(place as usize)) {
        access(context, address, bytes, write);
    }
}

/// A load by an instruction of an object. What it calls it calls last, so that a hit saves no registers.
#[inline(always)]
pub fn load_by_instruction(context: Context, place: usize, bytes: u32) {
    match context.loads(place) {
        Loaded::Hit => {}
        Loaded::Miss(line) => read_line_of_others(context, line),
        Loaded::Unknown => access_unknown(context, place, bytes, false),
    }
}

/// A store by an instruction of an object.
#[inline(always)]
pub fn store_by_instruction(context: Context, place: usize, bytes: u32) {
    match context.read_line_of(place) {
        Some(Some(line)) => access_line(context, line, true),
        // It is outside of the model.
        Some(None) => {}
        None => access_unknown(context, place, bytes, true),
    }
}

/// An access of a place whose line is not kept: as a rule the first one.
#[inline(never)]
fn access_unknown(context: Context, place: usize, bytes: u32, writes: bool) {
    let Some(address) = context.with(|host| host.modelled_of_object(place)) else {
        context.with(|host| host.keep_unmodelled(place));
        return;
    };
    // A later instruction may access more than this one, but no more than a word.
    let word = size_of::<u64>() as u32;
    let lines_of = |bytes| context.env(|env| env.shared.cache.borrow().lines_of(address, bytes));
    let is_one_line = lines_of(word).count() == 1;
    for number in lines_of(bytes) {
        let line = context.env(|env| env.shared.cache.borrow_mut().line_numbered(number));
        let line = ObjectLine { number, line };
        if is_one_line {
            context.with(|host| host.bpf.lines().keep(place, Some(line)));
        }
        access_line(context, line, writes);
    }
}

/// An access of one line.
#[inline(always)]
fn access_line(context: Context, line: ObjectLine, writes: bool) {
    context.env(|env| {
        let mut cache = env.shared.cache.borrow_mut();
        let now = || context.now_after_accesses();
        let cost_ps = cache.touch_line(env.cpu.id, now, line.line, writes);
        pay(context, line, cost_ps, cache.hit_ps());
    });
}

/// A load from a line that the CPU's cache has not.
#[inline(never)]
fn read_line_of_others(context: Context, line: ObjectLine) {
    context.env(|env| {
        let now = context.now_after_accesses();
        let mut cache = env.shared.cache.borrow_mut();
        let cost_ps = cache.read_others(env.cpu.id, now, line.line);
        pay(context, line, cost_ps, cache.hit_ps());
    });
}

/// Charges an access of one line by an instruction of an object.
///
/// Model: the nearest cache, which is not modelled, keeps the lines of an op. So the first access of a line in an op costs
/// what the cache model says, and a later one, to a line that is near, only what a miss adds to a hit: the time of the load is
/// the instruction's.
#[inline(always)]
fn pay(context: Context, line: ObjectLine, cost_ps: u64, hit_ps: u64) {
    let is_near = context.with(|host| host.current().lines().notes_line_again(line.number));
    context.owe(paid_ps(cost_ps, hit_ps, is_near));
}

/// The part of an access's cost that its instruction does not contain.
fn paid_ps(cost_ps: u64, hit_ps: u64, is_near: bool) -> u64 {
    match is_near {
        true => cost_ps.saturating_sub(hit_ps),
        false => cost_ps,
    }
}

// Not inlined, as its callers are many and what they have of their own is short.
#[inline(never)]
fn access(context: Context, address: u64, bytes: u32, write: bool) {
    context.env(|env| {
        let mut cache = env.shared.cache.borrow_mut();
        let cost_ps = cache.touch_range(env.cpu.id, env.cpu.now(), address, bytes, write);
        env.cpu.charge_ps(cost_ps);
    });
}

/// An access of the scheduling fields of a task.
#[inline(always)]
fn access_fields(context: Context, task: TaskId, write: bool) {
    match context.with(|host| host.fields.place(task)) {
        Place::Line(line) => context.env(|env| {
            let mut cache = env.shared.cache.borrow_mut();
            let cost_ps = cache.touch_line(env.cpu.id, || env.cpu.now(), line, write);
            env.cpu.charge_ps(cost_ps);
        }),
        Place::Lines => {
            let (address, bytes) = context.with(|host| host.fields.range(task));
            access(context, address, bytes, write);
        }
        Place::Unknown => access_first(context, task, write),
    }
}

/// The first access of a task's fields.
#[inline(never)]
fn access_first(context: Context, task: TaskId, write: bool) {
    let (address, bytes) = fields_of(context, task);
    let line = context.env(|env| env.shared.cache.borrow_mut().only_line(address, bytes));
    context.with(|host| host.fields.remember(task, line));
    access(context, address, bytes, write);
}

/// The address of a task's fields, and how many bytes they have, of whatever a policy takes for a task.
fn fields_of(context: Context, task: TaskId) -> (u64, u32) {
    if context.with(|host| task.index() >= host.tasks.bound()) {
        context.fault(format!("it looks at task {}, which is not there", task.0));
    }
    context.with(|host| host.fields.range(task))
}

/// Reads or writes the scheduling fields of a task.
pub extern "C" fn look(context: Context, _: *const c_void, index: u32, write: bool) {
    access_fields(context, TaskId(index), write);
}

/// A choice looks at a candidate.
pub extern "C" fn examine(context: Context, _: *const c_void, index: u32) {
    let task = TaskId(index);
    let examine_ps = context.read(|host| host.costs.examine_ps);
    context.env(|env| {
        env.cpu.probes.borrow_mut().examined += 1;
        env.cpu.charge_ps(examine_ps);
    });
    if context.read(|host| host.prefetch) {
        examine_ahead(context, task);
    } else {
        access_fields(context, task, false);
    }
}

/// Accesses the fields of a candidate as a list walk that prefetches does: as soon as the fields of the one before
/// had arrived. The first candidate of an op, and the first after a lock was taken or released, comes unannounced.
///
/// Model: what a walk prefetches beyond its last candidate is not fetched.
#[inline(never)]
fn examine_ahead(context: Context, task: TaskId) {
    let (address, bytes) = fields_of(context, task);
    let asked = context.with(|host| host.current().prefetch);
    let arrived = context.env(|env| {
        let now = env.cpu.now();
        let cost_ps = env.shared.cache.borrow_mut().touch_prefetched(
            env.cpu.id,
            asked.unwrap_or(now),
            now,
            address,
            bytes,
        );
        env.cpu.charge_ps(cost_ps);
        env.cpu.now()
    });
    context.with(|host| host.current().prefetch = Some(arrived));
}

/// A sweep over all tasks rewrites a task's counter.
pub extern "C" fn recalculate(context: Context, place: *const c_void, index: u32) {
    pass(context, context.read(|host| host.costs.recalculate_ps));
    look(context, place, index, true);
}

/// Adds to a probe, in the order of [`schedlab_engine::policy::Probes`].
pub extern "C" fn count(context: Context, probe: u32, n: u64) {
    let counted = context.env(|env| {
        let probes = &mut *env.cpu.probes.borrow_mut();
        let counter = match probe {
            0 => &mut probes.examined,
            1 => &mut probes.recalculations,
            2 => &mut probes.picked_elsewhere,
            3 => &mut probes.failed_lookups,
            4 => &mut probes.pinned_local,
            _ => return Err(format!("there is no probe {probe}")),
        };
        *counter = counter
            .checked_add(n)
            .ok_or_else(|| format!("it counts {n} more at probe {probe}, which has {counter}"))?;
        Ok(())
    });
    if let Err(message) = counted {
        context.fault(message);
    }
}

/// The most that a policy lets pass at once. No step of an op takes a second, and no clock overflows by as many as an
/// op can have.
const CHARGE_MAX_PS: u64 = 1_000_000_000_000;

/// Lets time pass.
pub extern "C" fn charge_ps(context: Context, ps: u64) {
    if ps > CHARGE_MAX_PS {
        context.fault(format!(
            "it lets {ps} ps pass at once; no more than a second is allowed"
        ));
    }
    pass(context, ps);
}

#[inline(always)]
fn pass(context: Context, ps: u64) {
    context.env(|env| env.cpu.charge_ps(ps));
}

/// A step of a bounded loop.
pub extern "C" fn step(context: Context) -> bool {
    pass(context, context.read(|host| host.costs.loop_ps));
    let steps = context.with(|host| {
        let cpu = host.current();
        cpu.steps += 1;
        cpu.steps
    });
    if steps > STEPS_MAX {
        too_many_steps(context);
    }
    true
}

#[cold]
fn too_many_steps(context: Context) -> ! {
    context.fault(format!("its loops took more than {STEPS_MAX} steps"))
}

/// An atomic operation on a word: waits for the CPU's turn, pays for the line.
pub extern "C" fn atomic(context: Context, place: *const c_void) {
    sync(context);
    pass(context, context.read(|host| host.atomic_ps));
    touch(context, place, 1, true);
}

/// The time of a kfunc that is carried out in C.
pub extern "C" fn kfunc(context: Context) {
    context.charge_kfunc();
}

fn text(name: *const c_char) -> String {
    // SAFETY: the shadow headers hand over string literals.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

/// A function that is not there was called.
pub extern "C" fn missing(context: Context, name: *const c_char) {
    context.lacks(&text(name));
}

/// Whether the simulated kernel has a function, type, enumerator or member.
pub extern "C" fn ksym_exists(context: Context, name: *const c_char) -> bool {
    let name = text(name);
    context.with(|host| version::exists(host.version, &name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_line_costs_what_a_miss_adds_to_a_hit() {
        let (hit_ps, miss_ps) = (3_000, 18_000);
        assert_eq!(paid_ps(hit_ps, hit_ps, false), 3_000);
        assert_eq!(paid_ps(hit_ps, hit_ps, true), 0);
        assert_eq!(paid_ps(miss_ps, hit_ps, true), 15_000);
        // A line that another CPU's cache hands over faster than this one has its own.
        assert_eq!(paid_ps(2_000, hit_ps, true), 0);
    }
}
