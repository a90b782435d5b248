//! The ops of a policy, by kind.

/// The ops of `struct sched_ext_ops` that the virtual kernel calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(
    missing_docs,
    reason = "each is the op of the same name; kernel/sched/ext/internal.h documents them"
)]
pub enum OpKind {
    SelectCpu,
    Enqueue,
    Dequeue,
    Dispatch,
    Tick,
    Runnable,
    Running,
    Stopping,
    Quiescent,
    Yield,
    CoreSchedBefore,
    SetWeight,
    SetCpumask,
    UpdateIdle,
    CpuAcquire,
    CpuRelease,
    InitTask,
    ExitTask,
    Enable,
    Disable,
    CpuOnline,
    CpuOffline,
    CgroupInit,
    CgroupExit,
    CgroupPrepMove,
    CgroupMove,
    CgroupCancelMove,
    CgroupSetWeight,
    CgroupSetBandwidth,
    CgroupSetIdle,
    Dump,
    DumpCpu,
    DumpTask,
    Init,
    Exit,
    /// A `bpf_timer` callback (not an op of the table, but called like one).
    TimerCallback,
}

/// Which ops a policy has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpSet(u64);

impl OpSet {
    /// No op.
    pub const NONE: Self = OpSet(0);

    /// Adds an op.
    #[must_use]
    pub const fn with(self, op: OpKind) -> Self {
        OpSet(self.0 | 1 << op as u32)
    }

    /// Whether the policy has the op.
    pub const fn has(self, op: OpKind) -> bool {
        self.0 & 1 << op as u32 != 0
    }
}
