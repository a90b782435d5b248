//! Makes a machine profile of the machine that it runs on.
//!
//! Topology and cache sizes are the kernel's description ([`sysfs`]). Costs are measured, with their spread in the
//! source text of each number. A cost that cannot be measured from user space keeps the value of the nearest built-in
//! profile and stays a guess. It takes some seconds, needs no privilege, and runs on
//! one CPU as well, where it then measures nothing that takes two. The tasks that wake on the idle machine become the
//! profile's background ([`idle`]). The profile of a machine elsewhere is made from that
//! machine's own description ([`from`]).

mod assemble;
mod caches;
mod draft;
pub mod from;
pub mod idle;
mod memory;
mod paths;
pub mod pin;
mod report;
mod rings;
mod sample;
pub mod sysfs;

use std::path::Path;
use std::time::Duration;

pub use report::Report;

/// Measures this machine, and before that watches it for so long while it is `idle`. Calls `progress` with a few words before
/// each measurement.
pub fn calibrate(idle: Duration, mut progress: impl FnMut(&str)) -> Report {
    progress("topology and caches");
    assemble::assemble(sysfs::describe(Path::new("/")), idle, &mut progress)
}
