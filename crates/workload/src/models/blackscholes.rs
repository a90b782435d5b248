//! PARSEC's blackscholes: prices options with the Black-Scholes equation.
//!
//! *Synchronisation:* each thread has its fixed part of the options and walks through it 100 times (`NUM_RUNS`); the
//! parts are equal. The original has no barrier between the runs; the feature study counts it among the
//! applications with a barrier per iteration, so there is one here, and with equal parts it costs little.
//! *Memory:* it streams through 36 bytes an option; what a thread has in its cache helps it little, so a
//! migration is cheap. *Serial part:* the main thread reads ten million options from a text file.

use schedlab_trace::Duration;

use super::parsec;
use super::phases::Phases;
use crate::measure::measure;
use crate::{Builder, Model, Options, Score, WorkloadError};

const NAME: &str = "blackscholes";

pub(super) const MODEL: Model = Model {
    name: NAME,
    summary: "PARSEC: equal parts of independent work, a barrier per iteration",
    params: &[
        parsec::threads("24", "worker threads (the feature study's number)"),
        parsec::count("iterations", "100", "runs over all options (native input: 100)"),
        parsec::time(
            "phase",
            "205500us",
            "CPU time of a thread in one run over its part (fitted, see docs/calibration.md)",
        ),
        parsec::imbalance("2", "percent by which a phase is drawn shorter or longer (guess: parts are equal)"),
        parsec::time("serial", "5s", "CPU time of reading the input (guess: 10 million lines)"),
        parsec::working_set("32K", "bytes of cache a thread needs to run at full speed (guess: it streams)"),
    ],
    measures: &[
        measure("completion_ns", "ns", "time until the last task has ended"),
        measure("work", "", "iterations done"),
        measure("blackscholes.barrier_waits", "", "arrivals of threads at the barrier"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    Phases::build(NAME, options, builder, Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use crate::Workload;
    use crate::models::parsec::testing::check;
    use crate::testing::run;

    #[test]
    fn every_thread_meets_every_barrier() {
        let end = check("blackscholes:threads=5,iterations=7", 7, 6);
        assert_eq!(end.counters.get("blackscholes.barrier_waits"), 5 * 7);
        check("blackscholes:threads=1,iterations=1,serial=0", 1, 2);
    }

    #[test]
    fn the_work_is_serial_plus_threads_times_phases() {
        let text = "blackscholes:threads=3,iterations=4,phase=10ms,imbalance=0,serial=5ms";
        let end = run(Workload::parse(text, 1).unwrap());
        // On the reference executor's one CPU nothing overlaps.
        assert_eq!(end.now.ns(), 5_000_000 + 3 * 4 * 10_000_000);
    }
}
