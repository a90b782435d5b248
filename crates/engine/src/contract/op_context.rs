//! Describes an op's call: its kind, its name, and the kfuncs that it may call.

use schedlab_trace::TaskId;

use crate::contract::op::{OpCall, OpKind, OpSet};

impl OpCall {
    /// The task that it is about.
    pub fn task(&self) -> Option<TaskId> {
        match *self {
            OpCall::SelectCpu { task, .. }
            | OpCall::Enqueue { task, .. }
            | OpCall::Dequeue { task, .. }
            | OpCall::Tick { task }
            | OpCall::Runnable { task, .. }
            | OpCall::Running { task }
            | OpCall::Stopping { task, .. }
            | OpCall::Quiescent { task, .. }
            | OpCall::Yield { from: task, .. }
            | OpCall::SetWeight { task, .. }
            | OpCall::SetCpumask { task }
            | OpCall::InitTask { task, .. }
            | OpCall::ExitTask { task, .. }
            | OpCall::Enable { task }
            | OpCall::Disable { task }
            | OpCall::CgroupPrepMove { task, .. }
            | OpCall::CgroupMove { task, .. }
            | OpCall::DumpTask { task, .. } => Some(task),
            OpCall::CpuRelease { task, .. } => task,
            OpCall::Dispatch { .. }
            | OpCall::UpdateIdle { .. }
            | OpCall::CpuAcquire { .. }
            | OpCall::CpuOnline { .. }
            | OpCall::CpuOffline { .. }
            | OpCall::CgroupInit { .. }
            | OpCall::CgroupExit { .. }
            | OpCall::CgroupSetWeight { .. }
            | OpCall::CgroupSetBandwidth { .. }
            | OpCall::CgroupSetIdle { .. }
            | OpCall::Dump { .. }
            | OpCall::DumpCpu { .. }
            | OpCall::Init
            | OpCall::Exit { .. }
            | OpCall::TimerCallback { .. } => None,
        }
    }

    /// Which op it calls.
    pub fn kind(&self) -> OpKind {
        match self {
            OpCall::SelectCpu { .. } => OpKind::SelectCpu,
            OpCall::Enqueue { .. } => OpKind::Enqueue,
            OpCall::Dequeue { .. } => OpKind::Dequeue,
            OpCall::Dispatch { .. } => OpKind::Dispatch,
            OpCall::Tick { .. } => OpKind::Tick,
            OpCall::Runnable { .. } => OpKind::Runnable,
            OpCall::Running { .. } => OpKind::Running,
            OpCall::Stopping { .. } => OpKind::Stopping,
            OpCall::Quiescent { .. } => OpKind::Quiescent,
            OpCall::Yield { .. } => OpKind::Yield,
            OpCall::SetWeight { .. } => OpKind::SetWeight,
            OpCall::SetCpumask { .. } => OpKind::SetCpumask,
            OpCall::UpdateIdle { .. } => OpKind::UpdateIdle,
            OpCall::CpuAcquire { .. } => OpKind::CpuAcquire,
            OpCall::CpuRelease { .. } => OpKind::CpuRelease,
            OpCall::InitTask { .. } => OpKind::InitTask,
            OpCall::ExitTask { .. } => OpKind::ExitTask,
            OpCall::Enable { .. } => OpKind::Enable,
            OpCall::Disable { .. } => OpKind::Disable,
            OpCall::CpuOnline { .. } => OpKind::CpuOnline,
            OpCall::CpuOffline { .. } => OpKind::CpuOffline,
            OpCall::CgroupInit { .. } => OpKind::CgroupInit,
            OpCall::CgroupExit { .. } => OpKind::CgroupExit,
            OpCall::CgroupPrepMove { .. } => OpKind::CgroupPrepMove,
            OpCall::CgroupMove { .. } => OpKind::CgroupMove,
            OpCall::CgroupSetWeight { .. } => OpKind::CgroupSetWeight,
            OpCall::CgroupSetBandwidth { .. } => OpKind::CgroupSetBandwidth,
            OpCall::CgroupSetIdle { .. } => OpKind::CgroupSetIdle,
            OpCall::Dump { .. } => OpKind::Dump,
            OpCall::DumpCpu { .. } => OpKind::DumpCpu,
            OpCall::DumpTask { .. } => OpKind::DumpTask,
            OpCall::Init => OpKind::Init,
            OpCall::Exit { .. } => OpKind::Exit,
            OpCall::TimerCallback { .. } => OpKind::TimerCallback,
        }
    }
}

/// A kfunc that only some ops may call: the kernel's verifier refuses others
/// (`scx_kfunc_context_filter()`).
pub(crate) struct Restricted {
    pub name: &'static str,
    pub ops: OpSet,
}

impl Restricted {
    const fn new(name: &'static str, ops: OpSet) -> Self {
        Restricted { name, ops }
    }

    /// The ops that may call it, for people.
    pub fn allowed_in(&self) -> String {
        let callers = CALLERS.iter().filter(|&&op| self.ops.has(op));
        let names: Vec<&str> = callers.map(|op| op.name()).collect();
        names.join(", ")
    }
}

/// The ops that may call any restricted kfunc.
const CALLERS: [OpKind; 18] = [
    OpKind::SelectCpu,
    OpKind::Enqueue,
    OpKind::Dispatch,
    OpKind::CpuRelease,
    OpKind::Init,
    OpKind::Exit,
    OpKind::InitTask,
    OpKind::CpuOnline,
    OpKind::CpuOffline,
    OpKind::CgroupInit,
    OpKind::CgroupExit,
    OpKind::CgroupPrepMove,
    OpKind::CgroupCancelMove,
    OpKind::CgroupSetWeight,
    OpKind::CgroupSetBandwidth,
    OpKind::CgroupSetIdle,
    OpKind::Dump,
    OpKind::TimerCallback,
];

/// Ops that hold no run queue's lock.
const UNLOCKED: OpSet = OpSet::NONE
    .with(OpKind::Init)
    .with(OpKind::Exit)
    .with(OpKind::InitTask)
    .with(OpKind::CpuOnline)
    .with(OpKind::CpuOffline)
    .with(OpKind::CgroupInit)
    .with(OpKind::CgroupExit)
    .with(OpKind::CgroupPrepMove)
    .with(OpKind::CgroupCancelMove)
    .with(OpKind::CgroupSetWeight)
    .with(OpKind::CgroupSetBandwidth)
    .with(OpKind::CgroupSetIdle)
    .with(OpKind::Dump)
    .with(OpKind::TimerCallback);
const DISPATCH: OpSet = OpSet::NONE.with(OpKind::Dispatch);
const SELECT: OpSet = UNLOCKED.with(OpKind::SelectCpu).with(OpKind::Enqueue);
const MOVE: OpSet = UNLOCKED.with(OpKind::Dispatch);

pub(crate) const DSQ_INSERT: Restricted = Restricted::new(
    "scx_bpf_dsq_insert",
    DISPATCH.with(OpKind::SelectCpu).with(OpKind::Enqueue),
);
pub(crate) const DSQ_MOVE_TO_LOCAL: Restricted =
    Restricted::new("scx_bpf_dsq_move_to_local", DISPATCH);
pub(crate) const DISPATCH_NR_SLOTS: Restricted =
    Restricted::new("scx_bpf_dispatch_nr_slots", DISPATCH);
pub(crate) const DISPATCH_CANCEL: Restricted = Restricted::new("scx_bpf_dispatch_cancel", DISPATCH);
pub(crate) const DSQ_MOVE: Restricted = Restricted::new("scx_bpf_dsq_move", MOVE);
pub(crate) const MOVE_SET_SLICE: Restricted = Restricted::new("scx_bpf_dsq_move_set_slice", MOVE);
pub(crate) const MOVE_SET_VTIME: Restricted = Restricted::new("scx_bpf_dsq_move_set_vtime", MOVE);
pub(crate) const SELECT_CPU_DFL: Restricted = Restricted::new("scx_bpf_select_cpu_dfl", SELECT);
pub(crate) const SELECT_CPU_AND: Restricted = Restricted::new("scx_bpf_select_cpu_and", SELECT);
/// Of 6.18 (`scx_kf_allowed()`); 7.2 has it everywhere.
pub(crate) const REENQUEUE_LOCAL: Restricted = Restricted::new(
    "scx_bpf_reenqueue_local",
    OpSet::NONE.with(OpKind::CpuRelease),
);
pub(crate) const CREATE_DSQ: Restricted = Restricted::new(
    "scx_bpf_create_dsq",
    OpSet::NONE
        .with(OpKind::Init)
        .with(OpKind::InitTask)
        .with(OpKind::CpuOnline)
        .with(OpKind::CpuOffline)
        .with(OpKind::CgroupInit)
        .with(OpKind::CgroupExit)
        .with(OpKind::CgroupPrepMove)
        .with(OpKind::Exit),
);

impl OpKind {
    /// The member of `struct sched_ext_ops`.
    pub fn name(self) -> &'static str {
        match self {
            OpKind::SelectCpu => "select_cpu",
            OpKind::Enqueue => "enqueue",
            OpKind::Dequeue => "dequeue",
            OpKind::Dispatch => "dispatch",
            OpKind::Tick => "tick",
            OpKind::Runnable => "runnable",
            OpKind::Running => "running",
            OpKind::Stopping => "stopping",
            OpKind::Quiescent => "quiescent",
            OpKind::Yield => "yield",
            OpKind::CoreSchedBefore => "core_sched_before",
            OpKind::SetWeight => "set_weight",
            OpKind::SetCpumask => "set_cpumask",
            OpKind::UpdateIdle => "update_idle",
            OpKind::CpuAcquire => "cpu_acquire",
            OpKind::CpuRelease => "cpu_release",
            OpKind::InitTask => "init_task",
            OpKind::ExitTask => "exit_task",
            OpKind::Enable => "enable",
            OpKind::Disable => "disable",
            OpKind::CpuOnline => "cpu_online",
            OpKind::CpuOffline => "cpu_offline",
            OpKind::CgroupInit => "cgroup_init",
            OpKind::CgroupExit => "cgroup_exit",
            OpKind::CgroupPrepMove => "cgroup_prep_move",
            OpKind::CgroupMove => "cgroup_move",
            OpKind::CgroupCancelMove => "cgroup_cancel_move",
            OpKind::CgroupSetWeight => "cgroup_set_weight",
            OpKind::CgroupSetBandwidth => "cgroup_set_bandwidth",
            OpKind::CgroupSetIdle => "cgroup_set_idle",
            OpKind::Dump => "dump",
            OpKind::DumpCpu => "dump_cpu",
            OpKind::DumpTask => "dump_task",
            OpKind::Init => "init",
            OpKind::Exit => "exit",
            OpKind::TimerCallback => "timer callback",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_that_may_call_is_told() {
        let told = |kfunc: &Restricted| {
            let callers = CALLERS.iter().filter(|&&op| kfunc.ops.has(op));
            callers.fold(OpSet::NONE, |set, &op| set.with(op))
        };
        for kfunc in [
            &DSQ_INSERT,
            &DSQ_MOVE_TO_LOCAL,
            &DSQ_MOVE,
            &SELECT_CPU_DFL,
            &REENQUEUE_LOCAL,
            &CREATE_DSQ,
        ] {
            assert_eq!(told(kfunc), kfunc.ops, "{}", kfunc.name);
        }
        assert_eq!(DSQ_INSERT.allowed_in(), "select_cpu, enqueue, dispatch");
    }
}
