//! Files of events: written by `sim` and `run`, read by `check`.

use std::path::Path;

use anyhow::Context as _;
use schedlab_events::{About, EventWriter, FORMAT};
use schedlab_report::{Measures, RunResult};
use schedlab_sim::StreamOf;

use crate::output::{Output, cannot_write};

/// A file that is being written.
pub type Writing<'a> = (&'a Path, EventWriter<Output>);

/// Begins a file.
///
/// # Errors
/// It cannot be written.
pub fn begin(path: &Path) -> anyhow::Result<Writing<'_>> {
    let output = Output::create(path)?;
    let writer = EventWriter::new(output).with_context(|| cannot_write(path))?;
    Ok((path, writer))
}

/// Writes the rest of a file.
///
/// # Errors
/// It cannot be written, now or before.
pub fn finish((path, writer): Writing<'_>, about: &About) -> anyhow::Result<()> {
    let output = writer.finish(about).with_context(|| cannot_write(path))?;
    output.commit()
}

/// Of a simulated run, but for its result.
pub fn of_simulation(stream: &StreamOf) -> About {
    let bound = stream.stall_bound.ns();
    About {
        format: FORMAT,
        nr_cpus: stream.nr_cpus as u32,
        clock_mhz: Some(stream.clock_mhz),
        shows: stream.shows,
        starts_idle: true,
        stall_bound_ns: (bound != u64::MAX).then_some(bound),
        lost: 0,
        result: RunResult::default(),
        beside: Measures::default(),
    }
}
