//! The virtual machine around this program, if there is one.

use std::path::PathBuf;

/// Set in every guest: the directory that it shares with its caller.
pub const INSIDE: &str = "SCHEDLAB_IN_VM";

/// Returns the folder that the machine shares with its caller; `None` outside of virtual machines.
pub fn share() -> Option<PathBuf> {
    std::env::var_os(INSIDE).map(PathBuf::from)
}
