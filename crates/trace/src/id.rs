//! Identities. Each is an index handed out in a deterministic order.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// As an index into a table with one entry each.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A logical CPU (a hardware thread), numbered from 0 as the kernel does.
    CpuId, "cpu"
);
id!(
    /// A task. In the simulator its pid is this number plus [`TaskId::FIRST_PID`].
    TaskId, "task"
);
id!(
    /// A lock that the run has seen, in the order of first use.
    LockId, "lock"
);

impl TaskId {
    /// The pid of task 0. Small pids belong to a real system's own threads.
    pub const FIRST_PID: u32 = 1000;

    /// Returns the pid that policies and reports see.
    pub const fn pid(self) -> u32 {
        self.0 + Self::FIRST_PID
    }

    /// Returns the task with this pid, if any task can have it.
    pub fn from_pid(pid: u32) -> Option<TaskId> {
        pid.checked_sub(Self::FIRST_PID).map(TaskId)
    }
}
