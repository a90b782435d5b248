//! Makes a machine profile of the machine that it runs on.
//!
//! Topology and cache sizes are what the kernel tells ([`sysfs`]). Costs are measured, with their spread
//! in the source text of each number. What cannot be measured from user space keeps the value of the
//! nearest built-in profile and stays a guess. It takes some seconds, needs no privilege, and runs on
//! one CPU as well, where it then measures nothing that takes two. A machine that is somewhere else is described by what it
//! tells of itself ([`from`]).

mod assemble;
mod caches;
mod draft;
pub mod from;
mod memory;
mod paths;
mod pin;
mod sample;
pub mod sysfs;

use std::path::Path;

use schedlab_machine::Machine;

/// What was found out about this machine.
#[derive(Clone, Debug)]
pub struct Report {
    /// The profile, named `this-machine` if it was measured.
    pub machine: Machine,
    /// What could not be measured or looks strange, in words for people.
    pub notes: Vec<String>,
}

impl Report {
    /// The profile as a file, the notes as comments at its head.
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

/// Measures this machine. `progress` is told in a few words what is being measured.
pub fn calibrate(mut progress: impl FnMut(&str)) -> Report {
    progress("topology and caches");
    assemble::assemble(sysfs::describe(Path::new("/")), &mut progress)
}
