//! The virtual kernel: a deterministic discrete-event simulation of Linux's scheduler core with
//! sched_ext, on any machine.
//!
//! It does no I/O and reads no clock, environment or hash order. What a policy is made of it does
//! not know: it meets one through the trait [`policy::Policy`].
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod balance;
pub mod consts;
mod cost;
mod cpu;
mod deadline;
mod deferred;
mod dispatch;
mod dsq;
mod dump;
mod event_queue;
mod ext;
mod fair;
mod hotplug;
mod idle;
mod kernel;
mod kick;
mod lifecycle;
mod lock;
mod memory;
pub mod mutation;
mod object;
mod op_context;
mod ops;
pub mod outcome;
mod pi;
pub mod policy;
mod prefetch;
mod request;
mod rt;
pub mod scenario;
mod sched;
mod sorted;
mod starter;
mod syscall;
mod task;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod this_cpu;
pub mod version;
mod wake;
mod watchdog;

pub use kernel::{run, run_recorded};
pub use mutation::Mutation;
pub use outcome::{ExitInfo, ExitKind, Place};
pub use scenario::{
    HostFailure, Hotplug, Limits, NormalClass, RtMode, RunEnd, Scenario, WorkloadFailure,
};
pub use version::{KernelVersion, UnknownKernel};
