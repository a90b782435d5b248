//! Reads a policy's table of ops.

use std::ffi::CStr;

use schedlab_engine::KernelVersion;
use schedlab_engine::policy::{OpKind, OpSet, OpsInfo};

use crate::image::Image;
use crate::layout::Ops;

/// Ops that may be sleepable (`bpf_scx_check_member()`), of those that are called.
pub const MAY_SLEEP: OpSet = OpSet::NONE
    .with(OpKind::InitTask)
    .with(OpKind::CgroupInit)
    .with(OpKind::CgroupExit)
    .with(OpKind::CgroupPrepMove)
    .with(OpKind::CpuOnline)
    .with(OpKind::CpuOffline)
    .with(OpKind::Init)
    .with(OpKind::Exit);

/// Code that runs with interrupts on: the ops that may sleep, and timers' callbacks.
pub const INTERRUPTIBLE: OpSet = MAY_SLEEP.with(OpKind::TimerCallback);

/// Ops that are called with a task whose run queue is locked, first among their arguments (`SCX_CALL_OP_TASK()`), of those that are
/// called. `ops.yield()` has two such tasks.
const OF_TASK: OpSet = OpSet::NONE
    .with(OpKind::SelectCpu)
    .with(OpKind::Enqueue)
    .with(OpKind::Dequeue)
    .with(OpKind::Tick)
    .with(OpKind::Runnable)
    .with(OpKind::Running)
    .with(OpKind::Stopping)
    .with(OpKind::Quiescent)
    .with(OpKind::Yield)
    .with(OpKind::SetWeight)
    .with(OpKind::SetCpumask)
    .with(OpKind::Enable)
    .with(OpKind::Disable)
    .with(OpKind::ExitTask)
    .with(OpKind::CgroupMove);

/// Returns how many of the first arguments of an op are tasks that it operates on (`current->scx.kf_tasks`).
pub fn nr_tasks_of(op: OpKind, version: KernelVersion) -> usize {
    match op {
        OpKind::CgroupMove if !version.moves_task_under_lock() => 0,
        OpKind::Yield => 2,
        op => OF_TASK.has(op).into(),
    }
}

/// Where the code of each op lies; 0 of one that is not there.
fn addresses(ops: &Ops) -> [(OpKind, usize); 35] {
    [
        (
            OpKind::SelectCpu,
            ops.select_cpu.map_or(0, |op| op as usize),
        ),
        (OpKind::Enqueue, ops.enqueue.map_or(0, |op| op as usize)),
        (OpKind::Dequeue, ops.dequeue.map_or(0, |op| op as usize)),
        (OpKind::Dispatch, ops.dispatch.map_or(0, |op| op as usize)),
        (OpKind::Tick, ops.tick.map_or(0, |op| op as usize)),
        (OpKind::Runnable, ops.runnable.map_or(0, |op| op as usize)),
        (OpKind::Running, ops.running.map_or(0, |op| op as usize)),
        (OpKind::Stopping, ops.stopping.map_or(0, |op| op as usize)),
        (OpKind::Quiescent, ops.quiescent.map_or(0, |op| op as usize)),
        (OpKind::Yield, ops.yield_.map_or(0, |op| op as usize)),
        (OpKind::CoreSchedBefore, ops.core_sched_before as usize),
        (
            OpKind::SetWeight,
            ops.set_weight.map_or(0, |op| op as usize),
        ),
        (
            OpKind::SetCpumask,
            ops.set_cpumask.map_or(0, |op| op as usize),
        ),
        (
            OpKind::UpdateIdle,
            ops.update_idle.map_or(0, |op| op as usize),
        ),
        (
            OpKind::CpuAcquire,
            ops.cpu_acquire.map_or(0, |op| op as usize),
        ),
        (
            OpKind::CpuRelease,
            ops.cpu_release.map_or(0, |op| op as usize),
        ),
        (OpKind::InitTask, ops.init_task.map_or(0, |op| op as usize)),
        (OpKind::ExitTask, ops.exit_task.map_or(0, |op| op as usize)),
        (OpKind::Enable, ops.enable.map_or(0, |op| op as usize)),
        (OpKind::Disable, ops.disable.map_or(0, |op| op as usize)),
        (
            OpKind::CpuOnline,
            ops.cpu_online.map_or(0, |op| op as usize),
        ),
        (
            OpKind::CpuOffline,
            ops.cpu_offline.map_or(0, |op| op as usize),
        ),
        (
            OpKind::CgroupInit,
            ops.cgroup_init.map_or(0, |op| op as usize),
        ),
        (
            OpKind::CgroupExit,
            ops.cgroup_exit.map_or(0, |op| op as usize),
        ),
        (
            OpKind::CgroupPrepMove,
            ops.cgroup_prep_move.map_or(0, |op| op as usize),
        ),
        (
            OpKind::CgroupMove,
            ops.cgroup_move.map_or(0, |op| op as usize),
        ),
        (OpKind::CgroupCancelMove, ops.cgroup_cancel_move as usize),
        (
            OpKind::CgroupSetWeight,
            ops.cgroup_set_weight.map_or(0, |op| op as usize),
        ),
        (
            OpKind::CgroupSetBandwidth,
            ops.cgroup_set_bandwidth.map_or(0, |op| op as usize),
        ),
        (
            OpKind::CgroupSetIdle,
            ops.cgroup_set_idle.map_or(0, |op| op as usize),
        ),
        (OpKind::Dump, ops.dump.map_or(0, |op| op as usize)),
        (OpKind::DumpCpu, ops.dump_cpu.map_or(0, |op| op as usize)),
        (OpKind::DumpTask, ops.dump_task.map_or(0, |op| op as usize)),
        (OpKind::Init, ops.init.map_or(0, |op| op as usize)),
        (OpKind::Exit, ops.exit.map_or(0, |op| op as usize)),
    ]
}

/// Where the code of an op lies.
pub fn address(ops: &Ops, op: OpKind) -> Option<usize> {
    let mut all = addresses(ops).into_iter();
    let (_, address) = all.find(|&(other, address)| other == op && address != 0)?;
    Some(address)
}

/// The ops of a table that are sleepable programs.
pub fn sleepable(ops: &Ops, image: &Image) -> OpSet {
    let is_sleepable = |address| {
        let offset = image.offset(address);
        offset.is_some_and(|offset| image.object().is_sleepable(offset))
    };
    addresses(ops)
        .into_iter()
        .filter(|&(_, address)| is_sleepable(address))
        .fold(OpSet::default(), |set, (op, _)| set.with(op))
}

/// An op that is a sleepable program and must not be.
pub fn must_not_sleep(ops: &Ops, sleepable: OpSet) -> Option<OpKind> {
    let mut all = addresses(ops).into_iter().map(|(op, _)| op);
    all.find(|&op| sleepable.has(op) && !MAY_SLEEP.has(op))
}

/// The name in an ops table, if it has an end.
pub fn name(ops: &Ops) -> Option<String> {
    let name = ops.name.map(|byte| byte as u8);
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// The constant part of an ops table.
pub fn info(ops: &Ops, is_cid: bool) -> OpsInfo {
    let present = addresses(ops)
        .into_iter()
        .filter(|&(_, address)| address != 0)
        .fold(OpSet::default(), |set, (op, _)| set.with(op));
    OpsInfo {
        name: name(ops).unwrap_or_default(),
        flags: ops.flags,
        timeout_ms: ops.timeout_ms,
        dispatch_max_batch: ops.dispatch_max_batch,
        hotplug_seq: ops.hotplug_seq,
        // In the cid form they are allowed, and never called: no scheduler comes below this one.
        sub_schedulers: !is_cid && (!ops.sub_attach.is_null() || !ops.sub_detach.is_null()),
        present,
    }
}

/// The name of an op in a table.
pub fn name_of(op: OpKind, is_cid: bool) -> &'static str {
    match op {
        OpKind::SelectCpu if is_cid => "select_cid",
        OpKind::SetCpumask if is_cid => "set_cmask",
        OpKind::CpuOnline if is_cid => "cid_online",
        OpKind::CpuOffline if is_cid => "cid_offline",
        OpKind::DumpCpu if is_cid => "dump_cid",
        _ => op.name(),
    }
}

/// The ops of a table that nothing in the virtual kernel leads to.
pub fn never_called(ops: &Ops) -> Vec<&'static str> {
    let uncalled = [
        ("core_sched_before", ops.core_sched_before),
        ("cgroup_cancel_move", ops.cgroup_cancel_move),
        ("sub_attach", ops.sub_attach),
        ("sub_detach", ops.sub_detach),
    ];
    let there = uncalled.into_iter().filter(|(_, op)| !op.is_null());
    there.map(|(name, _)| name).collect()
}
