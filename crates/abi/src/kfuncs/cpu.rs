//! CPUs, idle tracking (kernel/sched/ext/idle.c), CPU masks (kernel/bpf/cpumask.c) and CPUs by cid (kernel/sched/ext/cid.c).

use schedlab_engine::policy::OpKind;
use schedlab_machine::CAPACITY_SCALE;
use schedlab_trace::CpuId;

use super::task;
use crate::cids::{Topo, invalid};
use crate::host::{Context, IdleMask};
use crate::layout::{CpuMask, Task};
use crate::maps::EINVAL;

/// `scx_bpf_kick_cpu()`.
pub extern "C" fn kick(context: Context, cpu: i32, flags: u64) {
    context.charge_kfunc();
    context.ask(|kernel| kernel.kick(cpu, flags));
}

/// `scx_bpf_select_cpu_dfl()`.
pub extern "C" fn select_dfl(
    context: Context,
    p: *mut Task,
    prev_cpu: i32,
    wake_flags: u64,
    is_idle: *mut bool,
) -> i32 {
    context.charge_kfunc();
    let task = context.task(p, "scx_bpf_select_cpu_dfl");
    let (cpu, idle) = context.ask(|kernel| kernel.select_cpu_dfl(task, prev_cpu, wake_flags));
    // SAFETY: the policy's own variable; a wild pointer faults, and that is caught.
    unsafe { *is_idle = idle };
    context.refresh_idle_masks();
    cpu
}

/// `scx_bpf_select_cpu_and()`.
pub extern "C" fn select_and(
    context: Context,
    p: *mut Task,
    prev_cpu: i32,
    wake_flags: u64,
    allowed: *const CpuMask,
    flags: u64,
) -> i32 {
    context.charge_kfunc();
    let task = context.task(p, "scx_bpf_select_cpu_and");
    let allowed = context.set(allowed, "scx_bpf_select_cpu_and");
    let cpu =
        context.ask(|kernel| kernel.select_cpu_and(task, prev_cpu, wake_flags, allowed, flags));
    context.refresh_idle_masks();
    cpu as i32
}

/// `scx_bpf_test_and_clear_cpu_idle()`.
pub extern "C" fn test_and_clear_idle(context: Context, cpu: i32) -> bool {
    context.charge_kfunc();
    let was_idle = context.ask(|kernel| kernel.test_and_clear_idle(cpu));
    context.refresh_idle_masks();
    was_idle
}

/// `scx_bpf_pick_idle_cpu[_node]()` and `scx_bpf_pick_any_cpu[_node]()`.
pub extern "C" fn pick(
    context: Context,
    allowed: *const CpuMask,
    on_node: bool,
    node: i32,
    flags: u64,
    any: bool,
) -> i32 {
    context.charge_kfunc();
    let allowed = context.set(allowed, "scx_bpf_pick_idle_cpu");
    let node = on_node.then_some(node);
    let cpu = context.ask(|kernel| kernel.pick_cpu(allowed, node, flags, any));
    context.refresh_idle_masks();
    cpu as i32
}

/// `scx_bpf_get_idle_cpumask[_node]()` and the `_smtmask` ones.
pub extern "C" fn idle_mask(
    context: Context,
    on_node: bool,
    node: i32,
    smt: bool,
) -> *const CpuMask {
    context.charge_kfunc();
    let node = on_node.then_some(node);
    let now = context.ask(|kernel| kernel.idle_mask(node, smt));
    context.with(|host| {
        let mask = host.masks.take(now.words());
        let held = IdleMask { mask, node, smt };
        host.current().idle_masks.push(held);
        mask.cast_const()
    })
}

/// `scx_bpf_get_online_cpumask()`.
pub extern "C" fn online_mask(context: Context) -> *const CpuMask {
    context.charge_kfunc();
    let mask = context.ask(|kernel| kernel.online_mask());
    context.with(|host| host.masks.take(mask.words()))
}

/// `scx_bpf_get_possible_cpumask()`.
pub extern "C" fn possible_mask(context: Context) -> *const CpuMask {
    context.charge_kfunc();
    context.with(|host| host.masks.possible())
}

/// `scx_bpf_put_cpumask()` and `scx_bpf_put_idle_cpumask()`.
pub extern "C" fn put_mask(context: Context, mask: *const CpuMask) {
    context.charge_kfunc();
    let released = context.with(|host| {
        let held = &mut host.current().idle_masks;
        held.retain(|held| !std::ptr::eq(held.mask, mask));
        host.masks.release(mask)
    });
    if !released {
        context.fault("scx_bpf_put_cpumask() was called with a mask that is not held".to_owned());
    }
}

/// `scx_bpf_nr_cpu_ids()`; costs nothing, since our headers use it a lot.
pub extern "C" fn nr_cpu_ids(context: Context) -> u32 {
    context.read(|host| host.nr_cpus as u32)
}

/// `scx_bpf_nr_node_ids()`.
pub extern "C" fn nr_node_ids(context: Context) -> u32 {
    context.charge_kfunc();
    context.read(|host| host.nr_nodes)
}

/// `scx_bpf_cpu_node()`.
pub extern "C" fn node(context: Context, cpu: i32) -> i32 {
    context.charge_kfunc();
    let nr_cpus = context.read(|host| host.nr_cpus);
    if usize::try_from(cpu).is_ok_and(|cpu| cpu < nr_cpus) {
        return context.with(|host| host.topology.cpu(CpuId(cpu as u32)).node) as i32;
    }
    // As the kernel: ext.c, ops_cpu_valid().
    context.ask(|kernel| kernel.violation(format!("invalid CPU {cpu}")));
    -1
}

/// `scx_bpf_cpuperf_cap()`: the capacity of the CPU, of 1,024 for the fastest of the machine.
pub extern "C" fn cpuperf_cap(context: Context, cpu: i32) -> u32 {
    context.charge_kfunc();
    let capacity = context.with(|host| {
        let cpu = usize::try_from(cpu).ok()?;
        host.capacities.get(cpu).copied()
    });
    capacity.unwrap_or_else(|| no_such_cpu(context, cpu))
}

/// `scx_bpf_cpuperf_cur()`: the frequency of the CPU, of 1,024 for its highest. It is fixed there.
pub extern "C" fn cpuperf_cur(context: Context, cpu: i32) -> u32 {
    context.charge_kfunc();
    let nr_cpus = context.read(|host| host.nr_cpus);
    if !usize::try_from(cpu).is_ok_and(|cpu| cpu < nr_cpus) {
        return no_such_cpu(context, cpu);
    }
    CAPACITY_SCALE
}

/// As the kernel answers for a CPU that there is not: ext.c, scx_cpu_valid() and SCX_CPUPERF_ONE.
#[cold]
fn no_such_cpu(context: Context, cpu: i32) -> u32 {
    context.ask(|kernel| kernel.violation(format!("invalid CPU {cpu}")));
    CAPACITY_SCALE
}

/// `scx_bpf_cpuperf_set()`. Model: the frequency stays as it is; the call is checked and counted.
pub extern "C" fn cpuperf_set(context: Context, cpu: i32, perf: u32) {
    context.charge_kfunc();
    context.ask(|kernel| kernel.cpuperf_set(cpu, perf));
}

/// Which core (0), last-level cache (1) or node (2) a CPU is in; of `include/lab/topology.h`, which
/// reads the kernel's variables where there is a kernel. Costs nothing: policies ask once, at the start.
pub extern "C" fn place(context: Context, cpu: i32, level: u32) -> u32 {
    let nr_cpus = context.read(|host| host.nr_cpus);
    if !usize::try_from(cpu).is_ok_and(|cpu| cpu < nr_cpus) {
        context.fault(format!("the place of CPU {cpu} of {nr_cpus} was asked for"));
    }
    let place = context.with(|host| host.topology.cpu(CpuId(cpu as u32)));
    match level {
        0 => place.core,
        1 => place.llc,
        _ => place.node,
    }
}

/// `bpf_get_smp_processor_id()`; inlined by the JIT, so it costs nothing.
pub extern "C" fn smp_processor_id(context: Context) -> u32 {
    context.with(|host| host.cpu() as u32)
}

/// `bpf_cpumask_create()`.
pub extern "C" fn mask_create(context: Context) -> *mut CpuMask {
    context.charge_kfunc();
    context.with(|host| host.masks.take(&[]))
}

/// `bpf_cpumask_acquire()`.
pub extern "C" fn mask_acquire(context: Context, mask: *mut CpuMask) {
    context.charge_kfunc();
    if !context.with(|host| host.masks.acquire(mask)) {
        context.fault("bpf_cpumask_acquire() was called with no mask of its own".to_owned());
    }
}

/// `bpf_cpumask_release()`.
pub extern "C" fn mask_release(context: Context, mask: *mut CpuMask) {
    context.charge_kfunc();
    if !context.with(|host| host.masks.release(mask)) {
        context.fault("bpf_cpumask_release() was called with a mask that is not held".to_owned());
    }
}

/// `bpf_cpumask_any_distribute()` and `_any_and_distribute()`: each call of a CPU goes on behind the
/// one before (lib/cpumask.c).
pub extern "C" fn any_distribute(context: Context, a: *const CpuMask, b: *const CpuMask) -> u32 {
    context.charge_kfunc();
    let both = context.set(a, "bpf_cpumask_any_distribute");
    let both = both.and(&context.set(b, "bpf_cpumask_any_and_distribute"));
    let (previous, nr_cpus) = context.with(|host| (host.current().distributed, host.nr_cpus));
    let next = both.iter().find(|cpu| cpu.0 > previous);
    match next.or_else(|| both.first()) {
        Some(cpu) => {
            context.with(|host| host.current().distributed = cpu.0);
            cpu.0
        }
        None => nr_cpus as u32,
    }
}

/// Returns the CPU of a cid; a cid that is not there ends the scheduler (`scx_cid_to_cpu()`).
fn cpu_of_cid(context: Context, cid: i32) -> Option<i32> {
    let cpu = context.with(|host| host.cids.cpu(cid));
    if cpu.is_none() {
        context.ask(|kernel| kernel.violation(invalid(cid)));
    }
    cpu
}

/// The DSQ that a scheduler means.
pub fn dsq_of_cid(context: Context, id: u64) -> u64 {
    match context.with(|host| host.cids.dsq(id)) {
        Ok(id) => id,
        Err((id, what)) => {
            context.ask(|kernel| kernel.violation(what));
            id
        }
    }
}

/// `scx_bpf_cid_to_cpu()`.
pub fn cid_to_cpu(context: Context, cid: i32) -> i32 {
    context.charge_kfunc();
    cpu_of_cid(context, cid).unwrap_or(EINVAL as i32)
}

/// `scx_bpf_cpu_to_cid()`.
pub fn cpu_to_cid(context: Context, cpu: i32) -> i32 {
    context.charge_kfunc();
    match context.with(|host| host.cids.cid(cpu)) {
        Some(cid) => cid,
        None => {
            context.ask(|kernel| kernel.violation(format!("invalid CPU {cpu}")));
            EINVAL as i32
        }
    }
}

/// `scx_bpf_cid_topo()`.
pub fn cid_topo(context: Context, cid: i32, out: *mut Topo) {
    context.charge_kfunc();
    let found = context.with(|host| host.cids.topo(cid));
    if found.is_none() {
        cpu_of_cid(context, cid);
    }
    // SAFETY: the policy's own variable; a wild pointer faults, and that is caught.
    unsafe { out.write_unaligned(found.unwrap_or(Topo::NONE)) };
}

/// `scx_bpf_cid_override()`: `bytes` is the size of a word for each CPU.
pub fn cid_override(context: Context, of_cpu: *const i32, bytes: u32) {
    context.charge_kfunc();
    context.may_sleep("scx_bpf_cid_override");
    if context.op() != Some(OpKind::Init) {
        context.fault(
            "scx_bpf_cid_override() was called elsewhere than in ops.init(), which the kernel's verifier refuses"
                .to_owned(),
        );
    }
    let nr_cpus = context.read(|host| host.nr_cpus);
    let expected = nr_cpus * size_of::<i32>();
    let set = match bytes as usize == expected {
        // SAFETY: the policy says how many there are; a wild pointer faults, and that is caught.
        true => unsafe {
            let of_cpu: Vec<i32> = (0..nr_cpus)
                .map(|cpu| of_cpu.add(cpu).read_unaligned())
                .collect();
            context.with(|host| host.cids.set(&of_cpu))
        },
        false => Err(format!(
            "scx_bpf_cid_override: expected {expected} bytes, got {bytes}"
        )),
    };
    if let Err(what) = set {
        context.ask(|kernel| kernel.violation(what));
    }
}

/// `scx_bpf_nr_cids()`: as many as CPUs that could be there.
pub fn nr_cids(context: Context) -> u32 {
    context.charge_kfunc();
    context.read(|host| host.nr_cpus as u32)
}

/// `scx_bpf_nr_online_cids()`.
pub fn nr_online_cids(context: Context) -> u32 {
    context.charge_kfunc();
    context.ask(|kernel| kernel.online_mask()).len() as u32
}

/// `scx_bpf_this_cid()`.
pub fn this_cid(context: Context) -> i32 {
    context.charge_kfunc();
    context.with(|host| {
        let cpu = host.cpu() as i32;
        host.cids.cid(cpu).unwrap_or(EINVAL as i32)
    })
}

/// `scx_bpf_task_cid()`.
pub fn task_cid(context: Context, p: *const Task) -> i32 {
    context.charge_kfunc();
    // SAFETY: a policy has task pointers only from us; a wild one faults, and that is caught.
    let cpu = unsafe { (&raw const (*p).lab_cpu).read() };
    context.with(|host| host.cids.cid(cpu).unwrap_or(EINVAL as i32))
}

/// `scx_bpf_cid_curr()`.
pub fn cid_curr(context: Context, cid: i32) -> *mut Task {
    match cpu_of_cid(context, cid) {
        Some(cpu) => task::cpu_curr(context, cpu),
        None => std::ptr::null_mut(),
    }
}

/// `scx_bpf_kick_cid()`.
pub fn kick_cid(context: Context, cid: i32, flags: u64) {
    if let Some(cpu) = cpu_of_cid(context, cid) {
        kick(context, cpu, flags);
    }
}

/// `scx_bpf_cidperf_cap()`.
pub fn cidperf_cap(context: Context, cid: i32) -> u32 {
    match cpu_of_cid(context, cid) {
        Some(cpu) => cpuperf_cap(context, cpu),
        None => CAPACITY_SCALE,
    }
}

/// `scx_bpf_cidperf_cur()`.
pub fn cidperf_cur(context: Context, cid: i32) -> u32 {
    match cpu_of_cid(context, cid) {
        Some(cpu) => cpuperf_cur(context, cpu),
        None => CAPACITY_SCALE,
    }
}

/// `scx_bpf_cidperf_set()`.
pub fn cidperf_set(context: Context, cid: i32, perf: u32) {
    if let Some(cpu) = cpu_of_cid(context, cid) {
        cpuperf_set(context, cpu, perf);
    }
}
