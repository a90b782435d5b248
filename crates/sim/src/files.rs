//! What a run reads besides the program itself.

use std::fs;

use schedlab_machine::Machine;
use schedlab_workload::{Workload, WorkloadError};

use crate::policy::SchedulerError;
use crate::{SimError, SimSpec};

/// The files that a run reads, by their paths as they were asked for, with check sums of their contents; a policy's
/// includes the headers. Runs of one specification are the same as long as these are.
///
/// # Errors
/// If one cannot be read, or a policy does not compile.
pub fn files(spec: &SimSpec) -> Result<Vec<(String, String)>, SimError> {
    let mut files = Vec::new();
    let mut add = |path: &str, sum: u32| files.push((path.to_owned(), format!("crc32 {sum:08x}")));
    if let Some(path) = Workload::file(&spec.workload) {
        let contents = fs::read(path).map_err(|cause| WorkloadError::Unreadable {
            path: path.to_owned(),
            cause,
        })?;
        add(path, crc32fast::hash(&contents));
    }
    if let Some(text) = Machine::file(&spec.machine)? {
        add(&spec.machine, crc32fast::hash(text.as_bytes()));
    }
    if let Some(sum) = schedlab_policies::sum(&spec.scheduler).map_err(SchedulerError::from)? {
        add(&spec.scheduler.name, sum);
    }
    Ok(files)
}
