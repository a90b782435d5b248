//! The virtual kernel: a deterministic discrete-event simulation of Linux's scheduler core with
//! sched_ext, on any machine.
//!
//! It does no I/O and reads no clock, environment or hash order. What a policy is made of it does
//! not know: it meets one through the trait [`policy::Policy`].
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod contract;
mod paths;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use contract::mutation::Mutation;
pub use contract::outcome::{ExitInfo, ExitKind, Place};
pub use contract::scenario::{
    HostFailure, Hotplug, Limits, NormalClass, RtMode, RunEnd, Scenario, WorkloadFailure,
};
pub use contract::version::{KernelVersion, UnknownKernel};
pub use contract::{consts, mutation, outcome, policy, scenario, version};
pub use paths::kernel::{run, run_recorded};
