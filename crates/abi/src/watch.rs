//! The reports of a policy that is compiled for an audit or the checker of races, and the order that the checker must
//! know: the functions that replace the plain ones in its table ([`crate::functions::WATCHED`]).
//!
//! Nothing here lets time pass or touches the cache model: a policy that is watched has the results that it has
//! otherwise.

use std::ffi::{c_int, c_long, c_void};

use schedlab_trace::TaskId;

use crate::host::{Context, Host};
use crate::kfuncs::{self, map};
use crate::layout::{DsqIter, Task, Timer};
use crate::names;
use crate::primitives;
use crate::races::{Atomic, By, Order, Place, Race, Races};
use crate::{audit, kfuncs::dsq};

/// `LAB_ACCESS_*` in include/native/scx/audit.h.
const WRITE: u32 = 1;
const MARKED: u32 = 2;
const READ_TOO: u32 = 4;

/// Tells the checker of races, if there is one, with the CPU that runs.
fn with(context: Context, f: impl FnOnce(&mut Races, usize)) {
    context.with(|host| {
        let cpu = host.cpu();
        if let Some(races) = &mut host.races {
            f(races, cpu);
        }
    });
}

/// Whether a place is memory of the policy that CPUs may share.
fn is_policys(host: &Host, place: usize) -> bool {
    host.image.offset(place).is_some()
        || host.maps.arena_offset(place).is_some()
        || host.maps.value_of(place).is_some()
}

/// Hands an access to the checker of races.
fn note(
    context: Context,
    address: *const c_void,
    bytes: usize,
    write: bool,
    code: *const c_void,
    f: impl FnOnce(&mut Races, usize, &Place, &Host) -> Option<Race>,
) {
    context.with(|host| {
        // The pointer through which the policy calls us, which it reads before each call.
        let pointer = host.image.pointer(host.image.object().host_pointer);
        if address == pointer.cast_const().cast() {
            return;
        }
        let Some(mut races) = host.races.take() else {
            return;
        };
        let place = Place {
            address: address as usize,
            bytes,
            write,
            code: host
                .image
                .offset((code as usize).wrapping_sub(1))
                .unwrap_or_default() as u32,
        };
        let cpu = host.cpu();
        if let Some(race) = f(&mut races, cpu, &place, host)
            && !races.has_told_enough()
        {
            let what = names::name(host, race.address);
            races.tell(race.describe(host.image.object(), &what));
        }
        host.races = Some(races);
    });
}

/// The policy is about to access memory; the code that does so is right before `code`.
pub extern "C" fn access(
    context: Context,
    address: *const c_void,
    bytes: u64,
    kind: u32,
    code: *const c_void,
) {
    let write = kind & WRITE != 0;
    audit::access(context, address, write, code);
    note(
        context,
        address,
        bytes as usize,
        write,
        code,
        |races, cpu, place, host| {
            races.access(cpu, place, kind & MARKED != 0, |at| is_policys(host, at))
        },
    );
}

/// The policy is about to carry out an atomic operation.
pub extern "C" fn atomic_access(
    context: Context,
    address: *const c_void,
    bytes: u32,
    kind: u32,
    order: u32,
    code: *const c_void,
) {
    let write = kind & WRITE != 0;
    note(
        context,
        address,
        bytes as usize,
        write,
        code,
        |races, cpu, place, host| {
            let kind = match (write, kind & READ_TOO != 0) {
                (false, _) => Atomic::Load,
                (true, false) => Atomic::Store,
                (true, true) => Atomic::Update,
            };
            races.atomic(cpu, place, kind, Order::of(order), |at| {
                is_policys(host, at)
            })
        },
    );
}

/// A barrier.
pub extern "C" fn fence(context: Context, order: u32) {
    with(context, |races, cpu| races.fence(cpu, Order::of(order)));
}

/// A lock that only the kernel takes.
pub extern "C" fn guard(context: Context, lock: *const c_void, begins: bool) {
    let by = By::Word(lock as usize);
    with(context, |races, cpu| match begins {
        true => races.acquire(cpu, by),
        false => races.release(cpu, by),
    });
}

/// A stretch of intended races begins or ends.
pub extern "C" fn racy(context: Context, begins: bool) {
    with(context, |races, cpu| races.racy(cpu, begins));
}

/// The number of the lock of a word that is held.
fn lock_of(context: Context, word: *mut u32) -> Option<By> {
    let lock = context.with(|host| host.lock(word))?;
    Some(By::Lock(lock.0 as usize))
}

fn taken(context: Context, word: *mut u32) {
    if let Some(lock) = lock_of(context, word) {
        with(context, |races, cpu| races.acquire(cpu, lock));
    }
}

/// [`primitives::lock`].
pub extern "C" fn lock(context: Context, word: *mut u32, number: u32, code: *const c_void) {
    primitives::lock(context, word, number, code);
    taken(context, word);
}

/// [`primitives::trylock`].
pub extern "C" fn trylock(
    context: Context,
    word: *mut u32,
    number: u32,
    code: *const c_void,
) -> bool {
    let got = primitives::trylock(context, word, number, code);
    if got {
        taken(context, word);
    }
    got
}

/// [`primitives::res_lock`].
pub extern "C" fn res_lock(
    context: Context,
    word: *mut u32,
    number: u32,
    code: *const c_void,
) -> c_int {
    let error = primitives::res_lock(context, word, number, code);
    if error == 0 {
        taken(context, word);
    }
    error
}

/// [`primitives::unlock`].
pub extern "C" fn unlock(context: Context, word: *mut u32) {
    if let Some(lock) = lock_of(context, word) {
        with(context, |races, cpu| races.release(cpu, lock));
    }
    primitives::unlock(context, word);
}

/// The task that a pointer means, if it means one.
fn task(context: Context, p: *const Task) -> Option<TaskId> {
    // SAFETY: it is null or one of our shadows, which live as long as the host.
    let index = unsafe { p.as_ref() }.map(|task| task.lab_index)?;
    context.with(|host| host.tasks.find(p, index))
}

fn inserts(context: Context, p: *const Task) {
    if let Some(task) = task(context, p) {
        with(context, |races, cpu| races.inserts(cpu, task));
    }
}

/// [`dsq::insert`].
pub extern "C" fn insert(
    context: Context,
    p: *mut Task,
    dsq: u64,
    slice: u64,
    enq_flags: u64,
    code: *const c_void,
) -> bool {
    let inserted = dsq::insert(context, p, dsq, slice, enq_flags, code);
    inserts(context, p);
    inserted
}

/// [`dsq::insert_vtime`].
pub extern "C" fn insert_vtime(
    context: Context,
    p: *mut Task,
    dsq: u64,
    slice: u64,
    vtime: u64,
    enq_flags: u64,
    code: *const c_void,
) -> bool {
    let inserted = dsq::insert_vtime(context, p, dsq, slice, vtime, enq_flags, code);
    inserts(context, p);
    inserted
}

/// [`dsq::move_to_local`], before which the kernel carries out insertions.
pub extern "C" fn move_to_local(context: Context, dsq: u64, enq_flags: u64) -> bool {
    with(context, Races::insertions_are_carried_out);
    dsq::move_to_local(context, dsq, enq_flags)
}

/// [`dsq::move_task`].
pub extern "C" fn move_task(
    context: Context,
    it: *mut DsqIter,
    p: *mut Task,
    dsq: u64,
    enq_flags: u64,
    priq: bool,
) -> bool {
    if let Some(task) = task(context, p) {
        with(context, |races, cpu| {
            races.release(cpu, By::Task(task));
            races.release(cpu, By::Queue(task));
        });
    }
    dsq::move_task(context, it, p, dsq, enq_flags, priq)
}

/// A task that is found in a queue: the finder comes after the inserter.
fn found(context: Context, p: *mut Task) -> *mut Task {
    if let Some(task) = task(context, p) {
        with(context, |races, cpu| races.acquire(cpu, By::Queue(task)));
    }
    p
}

/// [`audit::peek`].
pub extern "C" fn peek(context: Context, dsq: u64) -> *mut Task {
    found(context, audit::peek(context, dsq))
}

/// [`audit::iter_next`].
pub extern "C" fn iter_next(context: Context, it: *mut DsqIter) -> *mut Task {
    found(context, audit::iter_next(context, it))
}

/// An element of a map that others make: the finder comes after the maker.
fn found_value(context: Context, map: *const u64, value: *mut u8) -> *mut u8 {
    if !value.is_null() && map::with(context, map, |map, _| map.is_hash() || map.is_storage()) {
        with(context, |races, cpu| {
            races.acquire(cpu, By::Element(value as usize))
        });
    }
    value
}

/// An element has been put into a map; `is_new`: where none was.
fn put_value(context: Context, map: *const u64, value: *mut u8, is_new: bool) {
    let bytes = map::with(context, map, |map, _| map.value_size());
    with(context, |races, cpu| {
        if is_new {
            races.forget(value as usize, bytes);
        }
        races.release(cpu, By::Element(value as usize));
    });
}

/// [`map::lookup`].
pub extern "C" fn map_lookup(context: Context, map: *const u64, key: *const u8) -> *mut u8 {
    found_value(context, map, map::lookup(context, map, key))
}

/// [`map::lookup_percpu`].
pub extern "C" fn map_lookup_percpu(
    context: Context,
    map: *const u64,
    key: *const u8,
    cpu: u32,
) -> *mut u8 {
    found_value(context, map, map::lookup_percpu(context, map, key, cpu))
}

/// [`map::update`].
pub extern "C" fn map_update(
    context: Context,
    map: *const u64,
    key: *const u8,
    value: *const u8,
    flags: u64,
) -> c_long {
    let there = || {
        map::with(context, map, |map, cpu| match map.is_hash() {
            true => map.lookup(map::key(map, key), cpu),
            false => std::ptr::null_mut(),
        })
    };
    let before = there();
    let result = map::update(context, map, key, value, flags);
    let after = there();
    if result == 0 && !after.is_null() {
        put_value(context, map, after, before.is_null());
    }
    result
}

/// A map that is a queue has a lock.
fn locks_map(context: Context, map: *const u64) {
    with(context, |races, cpu| {
        races.acquire(cpu, By::Element(map as usize));
        races.release(cpu, By::Element(map as usize));
    });
}

/// [`map::push`].
pub extern "C" fn map_push(
    context: Context,
    map: *const u64,
    value: *const u8,
    flags: u64,
) -> c_long {
    let result = map::push(context, map, value, flags);
    locks_map(context, map);
    result
}

/// [`map::pop`].
pub extern "C" fn map_pop(context: Context, map: *const u64, value: *mut u8, keep: bool) -> c_long {
    let result = map::pop(context, map, value, keep);
    locks_map(context, map);
    result
}

/// [`map::next`].
pub extern "C" fn map_next(
    context: Context,
    map: *const u64,
    cursor: *mut u64,
    key: *mut *const u8,
    value: *mut *mut u8,
) -> bool {
    let is_there = map::next(context, map, cursor, key, value);
    if is_there {
        // SAFETY: it is a variable of our own header, which has been written.
        found_value(context, map, unsafe { *value });
    }
    is_there
}

/// [`map::storage_get`].
pub extern "C" fn storage_get(
    context: Context,
    map: *const u64,
    p: *mut Task,
    init: *const u8,
    flags: u64,
) -> *mut u8 {
    let before = task(context, p).map(|task| {
        map::with(context, map, |map, _| match map.is_storage() {
            true => map.storage(task.index()),
            false => std::ptr::null_mut(),
        })
    });
    let value = map::storage_get(context, map, p, init, flags);
    match before {
        Some(before) if before.is_null() && !value.is_null() => {
            put_value(context, map, value, true);
            value
        }
        _ => found_value(context, map, value),
    }
}

/// [`map::arena_alloc`].
pub extern "C" fn arena_alloc(
    context: Context,
    map: *const u64,
    at: *mut u8,
    pages: u32,
) -> *mut u8 {
    const PAGE_BYTES: usize = 4096;
    let place = map::arena_alloc(context, map, at, pages);
    if !place.is_null() {
        with(context, |races, _| {
            races.forget(place as usize, pages as usize * PAGE_BYTES);
        });
    }
    place
}

/// [`kfuncs::time::timer_start`]: its callback comes after that.
pub extern "C" fn timer_start(
    context: Context,
    timer: *mut Timer,
    nsecs: u64,
    flags: u64,
) -> c_long {
    if let Some(timer) = context.with(|host| host.timers.at(timer)) {
        with(context, |races, cpu| races.release(cpu, By::Timer(timer)));
    }
    kfuncs::time::timer_start(context, timer, nsecs, flags)
}
