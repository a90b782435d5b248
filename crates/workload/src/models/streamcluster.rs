//! PARSEC's streamcluster: clusters a stream of points.
//!
//! *Synchronisation:* very frequent barriers: whether a point becomes a centre (`pgain`) is computed by all threads,
//! added up by the first one while the others wait, and applied by all, with a barrier after each part.
//! *Memory:* a chunk of points is read again and again, each thread its own part of it; it is the application
//! that a migration and an SMT sibling hurt most.

use super::parsec;
use super::phases::Phases;
use crate::measure::measure;
use crate::{Builder, Model, Options, Score, WorkloadError};

const NAME: &str = "streamcluster";

pub(super) const MODEL: Model = Model {
    name: NAME,
    summary: "PARSEC: very frequent barriers, with a short serial part after each phase",
    params: &[
        parsec::threads("12", "worker threads (the feature study's number)"),
        parsec::count(
            "iterations",
            "32000",
            "parallel phases, each followed by a serial part, two barriers each (guess: the native input makes tens of thousands)",
        ),
        parsec::time(
            "phase",
            "2830us",
            "CPU time of a thread in a phase (fitted, see docs/calibration.md)",
        ),
        parsec::imbalance("5", "percent by which a phase is drawn shorter or longer (guess)"),
        parsec::time("step", "40us", "CPU time of the first thread between two phases (guess)"),
        parsec::time("serial", "200ms", "CPU time before the threads start (guess: points are generated chunk by chunk)"),
        parsec::working_set("256K", "bytes of cache a thread needs to run at full speed (guess: all of the private cache)"),
    ],
    measures: &[
        measure("completion_ns", "ns", "time until the last task has ended"),
        measure("work", "", "phases done"),
        measure("streamcluster.barrier_waits", "", "arrivals of threads at the barrier"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    Phases::build(NAME, options, builder, options.time("step"))
}

#[cfg(test)]
mod tests {
    use crate::models::parsec::testing::check;

    #[test]
    fn every_phase_has_two_barriers() {
        let end = check("streamcluster:threads=3,iterations=50", 50, 4);
        assert_eq!(end.counters.get("streamcluster.barrier_waits"), 2 * 3 * 50);
        let end = check("streamcluster:threads=3,iterations=50,step=0", 50, 4);
        assert_eq!(end.counters.get("streamcluster.barrier_waits"), 3 * 50);
    }
}
