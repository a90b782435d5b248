//! Calls of a policy's ops.

use schedlab_trace::{CpuId, Instant, TaskId};
use schedlab_workload::{Bandwidth, CgroupId};

use crate::contract::ids::TimerId;
use crate::contract::outcome::ExitKind;

pub use crate::contract::op_kind::{OpKind, OpSet};

/// The class that takes a CPU away from sched_ext (`preempt_reason_from_class()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreemptReason {
    Rt,
    Deadline,
    Stop,
    /// The fair class, while `SCX_OPS_SWITCH_PARTIAL` leaves it tasks.
    Unknown,
}

/// `struct scx_dump_ctx`: what a dump is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DumpContext {
    /// Why the policy is ejected.
    pub kind: ExitKind,
    /// `exit_code`.
    pub code: i64,
    /// `at_ns`.
    pub at: Instant,
    /// `at_jiffies`.
    pub at_jiffies: u64,
}

/// One call of an op with its arguments.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(
    missing_docs,
    reason = "arguments are named as in struct sched_ext_ops"
)]
pub enum OpCall {
    SelectCpu {
        task: TaskId,
        prev_cpu: CpuId,
        wake_flags: u64,
    },
    Enqueue {
        task: TaskId,
        enq_flags: u64,
    },
    Dequeue {
        task: TaskId,
        deq_flags: u64,
    },
    Dispatch {
        cpu: CpuId,
        prev: Option<TaskId>,
    },
    Tick {
        task: TaskId,
    },
    Runnable {
        task: TaskId,
        enq_flags: u64,
    },
    Running {
        task: TaskId,
    },
    Stopping {
        task: TaskId,
        runnable: bool,
    },
    Quiescent {
        task: TaskId,
        deq_flags: u64,
    },
    Yield {
        from: TaskId,
        to: Option<TaskId>,
    },
    SetWeight {
        task: TaskId,
        weight: u32,
    },
    /// The mask is the task's current one (see [`Policy::sync_task`]).
    SetCpumask {
        task: TaskId,
    },
    UpdateIdle {
        cpu: CpuId,
        idle: bool,
    },
    CpuAcquire {
        cpu: CpuId,
    },
    CpuRelease {
        cpu: CpuId,
        reason: PreemptReason,
        /// The next task; `None` is the stopper.
        task: Option<TaskId>,
    },
    InitTask {
        task: TaskId,
        fork: bool,
    },
    ExitTask {
        task: TaskId,
        cancelled: bool,
    },
    Enable {
        task: TaskId,
    },
    Disable {
        task: TaskId,
    },
    CpuOnline {
        cpu: CpuId,
    },
    CpuOffline {
        cpu: CpuId,
    },
    /// Its settings are the defaults: a cgroup gets others after it was made.
    CgroupInit {
        cgroup: CgroupId,
    },
    CgroupExit {
        cgroup: CgroupId,
    },
    CgroupPrepMove {
        task: TaskId,
        from: CgroupId,
        to: CgroupId,
    },
    CgroupMove {
        task: TaskId,
        from: CgroupId,
        to: CgroupId,
    },
    CgroupSetWeight {
        cgroup: CgroupId,
        weight: u32,
    },
    CgroupSetBandwidth {
        cgroup: CgroupId,
        bandwidth: Bandwidth,
    },
    CgroupSetIdle {
        cgroup: CgroupId,
        idle: bool,
    },
    Dump {
        context: DumpContext,
    },
    DumpCpu {
        context: DumpContext,
        cpu: CpuId,
        idle: bool,
    },
    DumpTask {
        context: DumpContext,
        task: TaskId,
    },
    Init,
    /// With the message that was set before (see [`Policy::set_exit_message`]).
    Exit {
        kind: ExitKind,
        code: i64,
    },
    TimerCallback {
        timer: TimerId,
    },
}
