//! How a run ends.

use std::fmt;

use crate::contract::op_kind::OpKind;

/// The reason for which a policy was unloaded. The numbers and texts are in `enum scx_exit_kind` and
/// `scx_exit_reason()` (kernel/sched/ext/internal.h, ext.c, Linux 7.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u64)]
pub enum ExitKind {
    /// Not exited.
    None = 0,
    /// The workload ended; the policy behaved.
    Done = 1,
    /// Unregistered from user space.
    Unreg = 64,
    /// `scx_bpf_exit()`.
    UnregBpf = 65,
    /// Unregistered from the kernel.
    UnregKern = 66,
    /// SysRq-S.
    SysRq = 67,
    /// A rule of the interface was broken.
    Error = 1024,
    /// `scx_bpf_error()`.
    ErrorBpf = 1025,
    /// A runnable task was not run within the watchdog's bound.
    ErrorStall = 1026,
    /// Policy code did what no kernel would let it survive (see [`crate::contract::policy::Step::Fault`]). Not a
    /// kind of the kernel's, where the verifier refuses such code or the machine goes down.
    Fault = 4096,
}

/// The exit of a policy, as `struct scx_exit_info` describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExitInfo {
    /// Kind.
    pub kind: ExitKind,
    /// Code given to `scx_bpf_exit()`.
    pub code: i64,
    /// Short text of the kind.
    pub reason: String,
    /// Details, in the kernel's words.
    pub message: String,
    /// Where the policy did it, if it did it by a call of its own.
    pub place: Option<Place>,
}

/// A call that policy code makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The op that makes it.
    pub op: OpKind,
    /// `file:line` of the policy, if it is known.
    pub line: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            OpKind::TimerCallback => f.write_str("in a timer callback")?,
            op => write!(f, "in ops.{}", op.name())?,
        }
        match &self.line {
            Some(line) => write!(f, " at {line}"),
            None => Ok(()),
        }
    }
}

impl ExitInfo {
    pub(crate) fn new(kind: ExitKind, code: i64, message: String) -> Self {
        ExitInfo {
            kind,
            code,
            reason: kind.reason().to_owned(),
            message,
            place: None,
        }
    }
}

impl ExitKind {
    /// The kernel's short text (`scx_exit_reason()`).
    pub const fn reason(self) -> &'static str {
        match self {
            ExitKind::None => "none",
            ExitKind::Done => "done",
            ExitKind::Unreg => "unregistered from user space",
            ExitKind::UnregBpf => "unregistered from BPF",
            ExitKind::UnregKern => "unregistered from the main kernel",
            ExitKind::SysRq => "disabled by sysrq-S",
            ExitKind::Error => "runtime error",
            ExitKind::ErrorBpf => "scx_bpf_error",
            ExitKind::ErrorStall => "runnable task stall",
            ExitKind::Fault => "fault in policy code",
        }
    }
}
