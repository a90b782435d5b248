//! How fast this machine makes the runs of a sweep.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use schedlab_sim::batch;

use crate::{Definition, SweepError};

/// So many different schedulers are tried on each workload, if there is time.
const TRIED: u64 = 64;

/// Makes runs of a balanced sample for about `time`, and returns how many it makes in a second. Their results are not kept.
///
/// # Errors
/// If a run cannot be begun.
pub fn rate(
    definition: &Definition,
    threads: NonZeroUsize,
    time: Duration,
) -> Result<f64, SweepError> {
    let points = definition.points();
    let step = points.len().div_ceil(TRIED as usize).max(1);
    // Neighbours differ in the last features alone; a step that shares no factor with the sizes meets all alternatives.
    let jobs: Vec<u64> = (0..points.len())
        .step_by(step | 1)
        .flat_map(|place| {
            let workloads = 0..definition.workloads.len();
            workloads.map(move |workload| definition.job(place, workload, 0))
        })
        .collect();
    let begun = Instant::now();
    let mut outcome = Ok(0.0);
    let mut last = Duration::ZERO;
    batch::each(
        &jobs,
        threads,
        || begun.elapsed() >= time,
        |&job| definition.row(job),
        |heard| match heard {
            Some((_, Ok(_))) => {
                if let Ok(done) = &mut outcome {
                    *done += 1.0;
                }
                last = begun.elapsed();
            }
            Some((_, Err(error))) => outcome = Err(error),
            None => {}
        },
    );
    Ok(outcome? / last.as_secs_f64().max(1e-9))
}
