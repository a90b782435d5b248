//! What kind of op a call is, what it is called, and which kfuncs it may call.

use crate::policy::{OpCall, OpKind, Request};

impl OpCall {
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
            OpCall::Init => OpKind::Init,
            OpCall::Exit { .. } => OpKind::Exit,
            OpCall::TimerCallback { .. } => OpKind::TimerCallback,
        }
    }
}

/// The kfuncs that only some ops may call: the kernel's verifier refuses others
/// (`scx_kfunc_context_filter()`).
pub(crate) fn refused_in(op: OpKind, request: &Request) -> Option<&'static str> {
    use OpKind::*;
    let unlocked = matches!(
        op,
        Init | Exit | InitTask | CpuOnline | CpuOffline | TimerCallback
    );
    let (name, allowed) = match request {
        Request::DsqInsert { .. } => (
            "scx_bpf_dsq_insert",
            matches!(op, SelectCpu | Enqueue | Dispatch),
        ),
        Request::DsqMoveToLocal { .. } => ("scx_bpf_dsq_move_to_local", op == Dispatch),
        Request::DispatchNrSlots => ("scx_bpf_dispatch_nr_slots", op == Dispatch),
        Request::DispatchCancel => ("scx_bpf_dispatch_cancel", op == Dispatch),
        Request::DsqMove { .. } => ("scx_bpf_dsq_move", op == Dispatch || unlocked),
        Request::MoveSetSlice { .. } => ("scx_bpf_dsq_move_set_slice", op == Dispatch || unlocked),
        Request::MoveSetVtime { .. } => ("scx_bpf_dsq_move_set_vtime", op == Dispatch || unlocked),
        Request::SelectCpuDfl { .. } => (
            "scx_bpf_select_cpu_dfl",
            matches!(op, SelectCpu | Enqueue) || unlocked,
        ),
        Request::SelectCpuAnd { .. } => (
            "scx_bpf_select_cpu_and",
            matches!(op, SelectCpu | Enqueue) || unlocked,
        ),
        Request::CreateDsq { .. } => (
            "scx_bpf_create_dsq",
            matches!(op, Init | InitTask | CpuOnline | CpuOffline | Exit),
        ),
        _ => return None,
    };
    (!allowed).then_some(name)
}

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
            OpKind::Init => "init",
            OpKind::Exit => "exit",
            OpKind::TimerCallback => "timer callback",
        }
    }
}
