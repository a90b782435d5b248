//! The jobs and answers that are the same with and without the real kernel's side.

use schedlab_report::RunResult;
use serde::{Deserialize, Serialize};

/// A run of a workload's real program.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct RealRun {
    pub workload: String,
    pub scheduler: String,
    pub seed: u64,
}

/// Which comparisons of a simulation with this machine's kernel something spoils.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(
        dead_code,
        reason = "without the kernel's side nothing is compared with this kernel"
    )
)]
pub enum Spoils {
    Nothing,
    Placement,
    Everything,
}

/// The outcome in a virtual machine.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(
        dead_code,
        reason = "without the kernel's side there is no virtual machine"
    )
)]
pub enum Emulated {
    Done(Box<RunResult>),
    /// It could not be run at all, and why.
    Refused(String),
    /// The machine ended before it did.
    Missing,
}
