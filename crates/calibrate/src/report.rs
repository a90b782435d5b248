//! The result of a calibration: a profile, with notes for people.

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
