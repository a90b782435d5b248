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

/// The address in a field of an ops table, 0 of an empty one. A field has a function or, where nobody calls it, a pointer.
macro_rules! address {
    ($ops:ident.core_sched_before) => {
        $ops.core_sched_before as usize
    };
    ($ops:ident.cgroup_cancel_move) => {
        $ops.cgroup_cancel_move as usize
    };
    ($ops:ident.$field:ident) => {
        $ops.$field.map_or(0, |op| op as usize)
    };
}

macro_rules! addresses {
    ($ops:ident { $($kind:ident: $field:ident,)* }) => {
        [$((OpKind::$kind, address!($ops.$field)),)*]
    };
}

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
    addresses!(ops {
        SelectCpu: select_cpu,
        Enqueue: enqueue,
        Dequeue: dequeue,
        Dispatch: dispatch,
        Tick: tick,
        Runnable: runnable,
        Running: running,
        Stopping: stopping,
        Quiescent: quiescent,
        Yield: yield_,
        CoreSchedBefore: core_sched_before,
        SetWeight: set_weight,
        SetCpumask: set_cpumask,
        UpdateIdle: update_idle,
        CpuAcquire: cpu_acquire,
        CpuRelease: cpu_release,
        InitTask: init_task,
        ExitTask: exit_task,
        Enable: enable,
        Disable: disable,
        CpuOnline: cpu_online,
        CpuOffline: cpu_offline,
        CgroupInit: cgroup_init,
        CgroupExit: cgroup_exit,
        CgroupPrepMove: cgroup_prep_move,
        CgroupMove: cgroup_move,
        CgroupCancelMove: cgroup_cancel_move,
        CgroupSetWeight: cgroup_set_weight,
        CgroupSetBandwidth: cgroup_set_bandwidth,
        CgroupSetIdle: cgroup_set_idle,
        Dump: dump,
        DumpCpu: dump_cpu,
        DumpTask: dump_task,
        Init: init,
        Exit: exit,
    })
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
