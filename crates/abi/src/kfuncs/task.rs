//! Tasks and their cgroups.

use std::ffi::c_long;
use std::ptr;

use schedlab_trace::TaskId;
use schedlab_workload::CgroupId;

use crate::bpf::fields::{Cgroup, Css};
use crate::cgroups::Order;
use crate::host::Context;
use crate::layout::{RunQueue, Task};
use crate::maps::EINVAL;
use crate::ops_table;

/// `scx_bpf_task_running()`.
pub extern "C" fn running(context: Context, p: *const Task) -> bool {
    context.charge_kfunc();
    let task = context.task(p, "scx_bpf_task_running");
    context.ask(|kernel| kernel.task_running(task))
}

/// The task that a CPU runs, its idle task if none; null for a CPU that is not there.
fn on_cpu(context: Context, cpu: i32) -> *mut Task {
    let task = context.ask(|kernel| kernel.cpu_curr(cpu));
    let nr_cpus = context.with(|host| host.nr_cpus);
    match (task, usize::try_from(cpu)) {
        (Some(task), _) => context.pointer(Some(task)),
        (None, Ok(cpu)) if cpu < nr_cpus => context.with(|host| host.tasks.idle(cpu)),
        _ => std::ptr::null_mut(),
    }
}

/// `scx_bpf_cpu_curr()`.
pub extern "C" fn cpu_curr(context: Context, cpu: i32) -> *mut Task {
    context.charge_kfunc();
    on_cpu(context, cpu)
}

/// `scx_bpf_cpu_rq()`; `curr` is the task of the moment when this CPU's was asked for last.
pub extern "C" fn cpu_rq(context: Context, cpu: i32) -> *mut RunQueue {
    context.charge_kfunc();
    let curr = on_cpu(context, cpu);
    if curr.is_null() {
        return std::ptr::null_mut();
    }
    context.with(|host| {
        let run_queue = host.cpus[cpu as usize].get_mut().run_queue;
        // SAFETY: it lives as long as the host.
        unsafe { (*run_queue).curr = curr };
        run_queue
    })
}

/// `bpf_get_current_task_btf()`.
pub extern "C" fn current(context: Context) -> *mut Task {
    let cpu = context.with(|host| host.cpu() as i32);
    on_cpu(context, cpu)
}

/// `bpf_task_from_pid()`.
pub extern "C" fn from_pid(context: Context, pid: i32) -> *mut Task {
    context.charge_kfunc();
    let task = context.ask(|kernel| kernel.task_from_pid(pid));
    context.pointer(task)
}

/// `scx_bpf_tid_to_task()`.
pub extern "C" fn from_tid(context: Context, tid: u64) -> *mut Task {
    context.require("scx_bpf_tid_to_task");
    context.charge_kfunc();
    crate::primitives::sync(context);
    const SCX_OPS_TID_TO_TASK: u64 = 1 << 8;
    if context.with(|host| host.info.flags & SCX_OPS_TID_TO_TASK == 0) {
        context.ask(|kernel| {
            kernel.violation("scx_bpf_tid_to_task() called without SCX_OPS_TID_TO_TASK".to_owned())
        });
        return std::ptr::null_mut();
    }
    let task = context.with(|host| host.tasks.by_tid(tid));
    context.pointer(task)
}

/// `scx_bpf_task_set_slice()`.
pub extern "C" fn set_slice(context: Context, p: *mut Task, slice: u64) -> bool {
    context.charge_kfunc();
    let task = context.task(p, "scx_bpf_task_set_slice");
    context.ask(|kernel| kernel.task_set_slice(task, slice))
}

/// `scx_bpf_task_set_dsq_vtime()`.
pub extern "C" fn set_dsq_vtime(context: Context, p: *mut Task, vtime: u64) -> bool {
    context.charge_kfunc();
    let task = context.task(p, "scx_bpf_task_set_dsq_vtime");
    context.ask(|kernel| kernel.task_set_vtime(task, vtime))
}

/// The pointer of a cgroup; null for no cgroup.
fn pointer(context: Context, cgroup: Option<CgroupId>) -> *const Cgroup {
    cgroup.map_or(ptr::null(), |cgroup| {
        context.with(|host| host.cgroups.place(cgroup).cgroup)
    })
}

/// `scx_kf_arg_task_ok()`: returns whether the op of an object that runs operates on a task. If not, the policy ends.
fn is_operated_on(context: Context, task: TaskId) -> bool {
    let op = context.op();
    let p = context.pointer(Some(task)) as u64;
    let is = context.with(|host| {
        let nr = op.map_or(0, |op| ops_table::nr_tasks_of(op, host.version));
        host.current().arguments[..nr].contains(&p)
    });
    if !is {
        let message = "called on a task not being operated on".to_owned();
        context.ask(|kernel| kernel.violation(message));
    }
    is
}

/// `scx_bpf_task_cgroup()`.
pub fn cgroup(context: Context, p: *const Task) -> *const Cgroup {
    context.charge_kfunc();
    let task = context.task(p, "scx_bpf_task_cgroup");
    let cgroup = match is_operated_on(context, task) {
        true => context.with(|host| host.tasks.cgroup(task)),
        false => CgroupId::ROOT,
    };
    pointer(context, Some(cgroup))
}

/// `bpf_cgroup_from_id()`.
pub fn cgroup_from_id(context: Context, id: u64) -> *const Cgroup {
    context.charge_kfunc();
    let found = context.with(|host| host.cgroups.by_inode(id));
    pointer(context, found)
}

/// `bpf_cgroup_ancestor()`.
pub fn cgroup_ancestor(context: Context, of: *const Cgroup, level: i32) -> *const Cgroup {
    context.charge_kfunc();
    let found = context.with(|host| {
        let cgroup = host.cgroups.at(of)?;
        host.cgroups.ancestor(cgroup, level)
    });
    pointer(context, found)
}

/// `bpf_task_under_cgroup()`: 1 if the task's cgroup is `ancestor` or below it.
pub fn is_under_cgroup(context: Context, p: *const Task, ancestor: *const Cgroup) -> c_long {
    context.charge_kfunc();
    let task = context.task(p, "bpf_task_under_cgroup");
    let is_under = context.with(|host| {
        let above = host.cgroups.at(ancestor)?;
        let mut line = host.cgroups.line(host.tasks.cgroup(task));
        Some(line.any(|cgroup| cgroup == above))
    });
    is_under.unwrap_or(false).into()
}

/// `struct bpf_iter_css`.
#[repr(C)]
pub struct CssIter {
    /// Null where the walk is over, or never was one.
    start: *const Css,
    order: u32,
    /// The number of the cgroup that was given last, and one more; 0 before the first.
    after: u32,
    unused: u64,
}

/// `bpf_iter_css_new()`.
pub fn css_iter_new(context: Context, it: *mut CssIter, start: *const Css, flags: u32) -> c_long {
    context.charge_kfunc();
    let order = context.with(|host| Order::of(flags, host.version));
    let new = CssIter {
        start: order.map_or(ptr::null(), |_| start),
        order: flags,
        after: 0,
        unused: 0,
    };
    // SAFETY: the policy's own variable; a wild pointer faults, and that is caught.
    unsafe { it.write(new) };
    if order.is_some() { 0 } else { EINVAL }
}

/// `bpf_iter_css_next()`.
pub fn css_iter_next(context: Context, it: *mut CssIter) -> *const Css {
    crate::primitives::step(context);
    // SAFETY: as above.
    let it = unsafe { &mut *it };
    if it.start.is_null() {
        return ptr::null();
    }
    let last = it.after.checked_sub(1).map(CgroupId);
    let next = context.with(|host| {
        let order = Order::of(it.order, host.version)?;
        host.cgroups.next_of_walk(it.start, order, last)
    });
    let Some((cgroup, css)) = next else {
        it.start = ptr::null();
        return ptr::null();
    };
    it.after = cgroup.0 + 1;
    css
}
