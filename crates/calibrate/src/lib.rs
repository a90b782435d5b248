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
mod rings;
mod sample;
pub mod sysfs;

use std::path::Path;
use std::time::Duration;

use schedlab_machine::Machine;

/// The findings about this machine.
#[derive(Clone, Debug)]
pub struct Report {
    /// The profile, named `this-machine` if it was measured.
    pub machine: Machine,
    /// Costs that could not be measured or look strange, in words for people.
    pub notes: Vec<String>,
}

impl Report {
    /// Returns the profile as a file, the notes as comments at its head.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("# Written by `schedlab calibrate`.\n");
        for note in &self.notes {
            text.push_str("# - ");
            text.push_str(&note.replace('\n', " "));
            text.push('\n');
        }
        text.push('\n');
        text + &self.machine.to_toml()
    }
}

/// Measures this machine, and before that watches it for so long while it is `idle`. Calls `progress` with a few words before
/// each measurement.
pub fn calibrate(idle: Duration, mut progress: impl FnMut(&str)) -> Report {
    progress("topology and caches");
    assemble::assemble(sysfs::describe(Path::new("/")), idle, &mut progress)
}
