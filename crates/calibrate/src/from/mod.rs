//! A profile of a machine that is somewhere else: from what `lstopo` or `lscpu` printed there, or a copy of its sysfs.
//!
//! The file gives topology, caches, distances and capacities. Costs need a measurement on the machine: here they are copied
//! from the nearest built-in profile, and each says so.

mod cpuset;
mod error;
mod found;
mod lscpu;
mod lstopo;
mod nearest;
mod profile;
mod sysfs;

pub use error::FromError;

use std::path::Path;

use crate::Report;
use error::KINDS;

/// Makes a profile of the machine that `path` describes: the XML of `lstopo`, the output of `lscpu -p`, or a folder with a copy
/// of `/sys/devices/system/cpu` and `node`. Which of them it is shows in the content.
///
/// # Errors
/// In one line each: what cannot be read, is something else or contradicts itself, and where.
pub fn from(path: &Path) -> Result<Report, FromError> {
    let name = path.display().to_string();
    let read_error = |error| FromError::Read {
        file: name.clone(),
        error,
    };
    let metadata = std::fs::metadata(path).map_err(read_error)?;
    let found = if metadata.is_dir() {
        sysfs::read(path)?
    } else {
        let bytes = std::fs::read(path).map_err(read_error)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| FromError::foreign(&name, format!("is no text: {KINDS}")))?;
        // A byte-order mark, which editors leave.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        match text.trim_start().chars().next() {
            None => return Err(FromError::foreign(&name, format!("is empty: {KINDS}"))),
            Some('<') => lstopo::read(&name, text)?,
            Some(_) => lscpu::read(&name, text)?,
        }
    };
    profile::of(&name, &found)
}
