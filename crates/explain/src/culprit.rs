//! The kinds of faults.

use serde::{Deserialize, Serialize};

/// The cause of a scheduler's end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Culprit {
    // Stalls.
    /// A task of a higher class keeps the CPU on which the stalled task waits.
    HigherClass,
    /// A sched_ext task keeps the CPU on which the stalled task waits.
    CpuHog,
    /// The task is in a DSQ from which no CPU takes it.
    DsqNotConsumed,
    /// `ops.enqueue()` took the task, and the scheduler never gave it back.
    NeverDispatched,
    /// The task waits where an idle CPU could run it.
    MissingKick,
    /// `ops.enqueue()` has not returned, or the task is between two queues.
    InTransit,
    /// The watchdog itself did not get to run.
    WatchdogStarved,
    /// A stall of which the text has no more than the message.
    UnknownStall,

    // Rules of DSQs.
    NoSuchDsq,
    BuiltinDsq,
    VtimeInBuiltinDsq,
    MixedDsq,
    DestroyedDsq,
    DsqInUse,
    BadReenqueue,
    EndlessReenqueue,

    // Rules of insertions.
    CpuNotAllowed,
    MigrationDisabled,
    InvalidCpu,
    InsertedTwice,
    OtherTask,
    NullTask,
    EnqueueFlags,
    DispatchOverflow,
    DispatchUnderflow,

    // Rules of other functions.
    IdleTrackingOff,
    IdlePerNode,
    InvalidNode,
    KickFlags,
    CpuPerf,
    WrongContext,
    BadFormat,

    // Loading.
    OpsFlags,
    InitFailed,
    InitTaskFailed,
    CgroupFailed,
    InvalidErrno,
    Disallow,
    EnableFailed,
    SubScheduler,

    // The kernel's other watchdogs.
    Lockup,
    RcuStall,

    // Ends that are no errors of the interface.
    /// `scx_bpf_error()`.
    PolicyError,
    /// `scx_bpf_exit()`.
    PolicyExit,
    Hotplug,
    CgroupOffline,
    Unregistered,
    Sysrq,
    ParentExit,
    /// A requested dump; the scheduler goes on.
    NoEjection,

    // The simulator's, which the verifier would have refused.
    NullPointer,
    WildPointer,
    StackOverflow,
    EndlessLoop,
    LockHeld,
    /// A CPU did not get a lock in time that nobody had taken.
    LockNotGiven,
    MissingKfunc,
    PolicyFault,

    /// A message of no kernel that is known here.
    UnknownError,
}
