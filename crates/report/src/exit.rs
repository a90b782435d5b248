//! How a run ends, by one list of names for both worlds.

use std::fmt;
use std::str::FromStr;

use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Serialize};

/// How a run ended. Results have the name in lower case (`error_stall`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// As it should.
    Done,
    /// Nothing ran: the kernel refused the scheduler, the program could not be started, or there was no room for a
    /// simulation.
    #[default]
    NotRun,
    /// The program failed.
    CommandFailed,
    /// The program was stopped at the time limit.
    Timeout,
    /// The workload had not ended at the time limit.
    TimeLimit,
    /// An invariant of the simulation did not hold.
    Violation,
    /// The scheduler was ejected and recorded no reason.
    Ejected,
    /// `SCX_EXIT_UNREG`: unregistered from user space.
    Unreg,
    /// `SCX_EXIT_UNREG_BPF`: `scx_bpf_exit()`.
    UnregBpf,
    /// `SCX_EXIT_UNREG_KERN`: unregistered from the kernel.
    UnregKern,
    /// `SCX_EXIT_SYSRQ`: SysRq-S.
    Sysrq,
    /// `SCX_EXIT_ERROR`: a rule of the interface was broken.
    Error,
    /// `SCX_EXIT_ERROR_BPF`: `scx_bpf_error()`.
    ErrorBpf,
    /// `SCX_EXIT_ERROR_STALL`: a runnable task was not run within the watchdog's bound.
    ErrorStall,
    /// Simulated policy code did what the verifier would refuse.
    Fault,
    /// An exit kind of the kernel that has no name here.
    Unknown,
    /// Every task of the workload waits for another one.
    Deadlock,
    /// A task of the workload loops without taking time.
    EndlessLoop,
    /// The workload neither has a duration nor ends by itself.
    Endless,
    /// The workload makes ever more tasks.
    TooManyTasks,
    /// The policy did not take a task that the workload forked.
    ForkRefused,
    /// An action of the workload does not fit its object.
    WrongObject,
    /// The kernel refuses a system call that the workload needs, as a reservation that does not fit.
    Refused,
    /// A task of the workload may run on no CPU.
    NoCpu,
}

impl Exit {
    /// Returns the exit of a policy by `enum scx_exit_kind`, and the engine's `ExitKind::Fault`, which the kernel has
    /// not.
    pub const fn of_scx(kind: u64) -> Exit {
        match kind {
            1 => Exit::Done,
            64 => Exit::Unreg,
            65 => Exit::UnregBpf,
            66 => Exit::UnregKern,
            67 => Exit::Sysrq,
            1024 => Exit::Error,
            1025 => Exit::ErrorBpf,
            1026 => Exit::ErrorStall,
            4096 => Exit::Fault,
            _ => Exit::Unknown,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Exit {
    type Err = serde::de::value::Error;

    fn from_str(name: &str) -> Result<Exit, Self::Err> {
        Exit::deserialize(name.into_deserializer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_kernel_in_lower_case() {
        assert_eq!(Exit::of_scx(65).to_string(), "unreg_bpf");
        assert_eq!(Exit::of_scx(67).to_string(), "sysrq");
        assert_eq!(Exit::of_scx(1026).to_string(), "error_stall");
        assert_eq!(Exit::of_scx(7).to_string(), "unknown");
        let read: Exit = serde_json::from_str(r#""error_stall""#).unwrap();
        assert_eq!(read, Exit::ErrorStall);
        assert!(serde_json::from_str::<Exit>(r#""stalled""#).is_err());
        assert_eq!("error_stall".parse(), Ok(Exit::ErrorStall));
        assert!("stalled".parse::<Exit>().is_err());
    }
}
