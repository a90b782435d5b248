//! Dispatch queues (kernel/sched/ext/ext.c).

use std::ffi::{c_int, c_void};

use schedlab_engine::KernelVersion;
use schedlab_engine::policy::IterId;

use crate::host::Context;
use crate::layout::{DsqIter, Task};

/// `scx_bpf_create_dsq()`.
pub extern "C" fn create(context: Context, dsq: u64, node: i32) -> i32 {
    context.charge_kfunc();
    context.may_sleep("scx_bpf_create_dsq");
    context.ask(|kernel| kernel.create_dsq(dsq, node)) as i32
}

/// `scx_bpf_destroy_dsq()`.
pub extern "C" fn destroy(context: Context, dsq: u64) {
    context.charge_kfunc();
    context.ask(|kernel| kernel.destroy_dsq(dsq));
}

/// Notes where a task is inserted: that is carried out when the op has returned.
#[inline]
fn note_insertion(context: Context, p: *mut Task, code: *const c_void) {
    let op = context.op();
    context.with(|host| host.inserts(p, op, code));
}

/// `scx_bpf_dsq_insert()`. `code` is right behind the call.
pub extern "C" fn insert(
    context: Context,
    p: *mut Task,
    dsq: u64,
    slice: u64,
    enq_flags: u64,
    code: *const c_void,
) -> bool {
    context.charge_kfunc();
    let task = context.task(p, "scx_bpf_dsq_insert");
    note_insertion(context, p, code);
    context.ask(|kernel| kernel.dsq_insert(task, dsq, slice, enq_flags))
}

/// `scx_bpf_dsq_insert_vtime()`.
pub extern "C" fn insert_vtime(
    context: Context,
    p: *mut Task,
    dsq: u64,
    slice: u64,
    vtime: u64,
    enq_flags: u64,
    code: *const c_void,
) -> bool {
    context.charge_kfunc();
    let task = context.task(p, "scx_bpf_dsq_insert_vtime");
    note_insertion(context, p, code);
    context.ask(|kernel| kernel.dsq_insert_vtime(task, dsq, slice, vtime, enq_flags))
}

/// `scx_bpf_dsq_move_to_local()`.
pub extern "C" fn move_to_local(context: Context, dsq: u64, enq_flags: u64) -> bool {
    context.charge_kfunc();
    context.ask(|kernel| kernel.dsq_move_to_local(dsq, enq_flags))
}

/// `scx_bpf_dsq_nr_queued()`.
pub extern "C" fn nr_queued(context: Context, dsq: u64) -> i32 {
    context.charge_kfunc();
    context.ask(|kernel| kernel.dsq_nr_queued(dsq)) as i32
}

/// `scx_bpf_dsq_peek()`.
pub extern "C" fn peek(context: Context, dsq: u64) -> *mut Task {
    context.require("scx_bpf_dsq_peek");
    context.charge_kfunc();
    let task = context.ask(|kernel| kernel.dsq_peek(dsq));
    context.pointer(task)
}

/// An iterator's number is kept in its first word, one higher, so that a failed one is 0.
fn id(context: Context, it: *mut DsqIter) -> Option<IterId> {
    let _ = context;
    // SAFETY: the iterator lies on the policy's stack.
    let number = unsafe { (*it).opaque[0] };
    number.checked_sub(1).map(|number| IterId(number as u32))
}

/// `bpf_iter_scx_dsq_new()`.
pub extern "C" fn iter_new(context: Context, it: *mut DsqIter, dsq: u64, flags: u64) -> c_int {
    context.charge_kfunc();
    let (number, result) = match context.ask(|kernel| kernel.iter_new(dsq, flags)) {
        Ok(iter) => (u64::from(iter.0) + 1, 0),
        Err(error) => (0, error as c_int),
    };
    // SAFETY: as in `id`.
    unsafe { (*it).opaque[0] = number };
    result
}

/// `bpf_iter_scx_dsq_next()`.
pub extern "C" fn iter_next(context: Context, it: *mut DsqIter) -> *mut Task {
    context.charge_kfunc();
    let Some(iter) = id(context, it) else {
        return std::ptr::null_mut();
    };
    let task = context.ask(|kernel| kernel.iter_next(iter));
    context.pointer(task)
}

/// `bpf_iter_scx_dsq_destroy()`.
pub extern "C" fn iter_destroy(context: Context, it: *mut DsqIter) {
    context.charge_kfunc();
    if let Some(iter) = id(context, it) {
        context.ask(|kernel| kernel.iter_destroy(iter));
        // SAFETY: as in `id`.
        unsafe { (*it).opaque[0] = 0 };
    }
}

/// `scx_bpf_dsq_move_set_slice()`.
pub extern "C" fn move_set_slice(context: Context, it: *mut DsqIter, slice: u64) {
    context.charge_kfunc();
    if let Some(iter) = id(context, it) {
        context.ask(|kernel| kernel.move_set_slice(iter, slice));
    }
}

/// `scx_bpf_dsq_move_set_vtime()`.
pub extern "C" fn move_set_vtime(context: Context, it: *mut DsqIter, vtime: u64) {
    context.charge_kfunc();
    if let Some(iter) = id(context, it) {
        context.ask(|kernel| kernel.move_set_vtime(iter, vtime));
    }
}

/// `scx_bpf_dsq_move()` and, with `priq`, `scx_bpf_dsq_move_vtime()`.
pub extern "C" fn move_task(
    context: Context,
    it: *mut DsqIter,
    p: *mut Task,
    dsq: u64,
    enq_flags: u64,
    priq: bool,
) -> bool {
    context.charge_kfunc();
    let task = context.task(p, "scx_bpf_dsq_move");
    let Some(iter) = id(context, it) else {
        return false;
    };
    context.ask(|kernel| kernel.dsq_move(iter, task, dsq, enq_flags, priq))
}

/// `scx_bpf_dispatch_nr_slots()`.
pub extern "C" fn dispatch_nr_slots(context: Context) -> u32 {
    context.charge_kfunc();
    context.ask(|kernel| kernel.dispatch_nr_slots()) as u32
}

/// `scx_bpf_dispatch_cancel()`.
pub extern "C" fn dispatch_cancel(context: Context) {
    context.charge_kfunc();
    context.ask(|kernel| kernel.dispatch_cancel());
}

/// `scx_bpf_reenqueue_local()` and `scx_bpf_dsq_reenq()`. To a kernel that has the first alone the kernel tree's
/// header reduces the second, where it can (tools/sched_ext/include/scx/compat.bpf.h).
pub extern "C" fn reenqueue(context: Context, dsq: u64, flags: u64) -> u32 {
    const SCX_DSQ_LOCAL: u64 = 1 << 63 | 2;
    context.charge_kfunc();
    let is_old = context.read(|host| host.version < KernelVersion::V7_2);
    if is_old && (dsq, flags) != (SCX_DSQ_LOCAL, 0) {
        context.lacks("scx_bpf_dsq_reenq");
    }
    context.ask(|kernel| kernel.reenqueue(dsq, flags)) as u32
}
