//! Tasks and their cgroup: there is the root, and every task is in it.

use std::ffi::c_long;
use std::ptr;

use crate::bpf::fields::{Cgroup, Css, ROOT_ID};
use crate::host::Context;
use crate::layout::{RunQueue, Task};
use crate::maps::EINVAL;

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

fn root(context: Context) -> *const Cgroup {
    context.with(|host| host.root.cgroup)
}

/// `scx_bpf_task_cgroup()`.
pub fn cgroup(context: Context, p: *const Task) -> *const Cgroup {
    context.charge_kfunc();
    context.task(p, "scx_bpf_task_cgroup");
    root(context)
}

/// `bpf_cgroup_from_id()`.
pub fn cgroup_from_id(context: Context, id: u64) -> *const Cgroup {
    context.charge_kfunc();
    match id {
        ROOT_ID => root(context),
        _ => ptr::null(),
    }
}

/// `bpf_cgroup_ancestor()`: the root's only ancestor is itself, at level 0.
pub fn cgroup_ancestor(context: Context, cgroup: *const Cgroup, level: i32) -> *const Cgroup {
    context.charge_kfunc();
    match level {
        0 => cgroup,
        _ => ptr::null(),
    }
}

/// `struct bpf_iter_css`.
#[repr(C)]
pub struct CssIter {
    next: *const Css,
}

/// `bpf_iter_css_new()`.
pub fn css_iter_new(context: Context, it: *mut CssIter, start: *const Css, flags: u32) -> c_long {
    context.charge_kfunc();
    // BPF_CGROUP_ITER_DESCENDANTS_PRE, _POST and _ANCESTORS_UP.
    let is_known = (2..=4).contains(&flags);
    // SAFETY: the policy's own variable; a wild pointer faults, and that is caught.
    unsafe { (*it).next = if is_known { start } else { ptr::null() } };
    if is_known { 0 } else { EINVAL }
}

/// `bpf_iter_css_next()`.
pub fn css_iter_next(context: Context, it: *mut CssIter) -> *const Css {
    crate::primitives::step(context);
    // SAFETY: as above.
    unsafe { ptr::replace(&raw mut (*it).next, ptr::null()) }
}
