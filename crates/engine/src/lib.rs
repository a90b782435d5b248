//! The virtual kernel: a deterministic discrete-event simulation of Linux's scheduler core with
//! sched_ext, on any machine.
//!
//! It does no I/O and reads no clock, environment or hash order. What a policy is made of it does
//! not know: it meets one through the trait [`policy::Policy`].
#![forbid(unsafe_code)]

pub mod outcome;
pub mod policy;

pub use outcome::{ExitInfo, ExitKind};
