//! PARSEC's canneal: places a netlist by simulated annealing.
//!
//! *Synchronisation:* threads swap random elements with lock-free atomics and never wait for each other but at the
//! barrier that ends a temperature step (native input: 6,000 steps of 15,000 swaps). *Memory:* random accesses
//! to a netlist far larger than any cache; what a thread has in its private cache is worth little more than
//! the top of it, but a move to the other socket leaves all of that behind. *Serial part:* reading 2.5 million
//! elements.

use schedlab_trace::Duration;

use super::parsec;
use super::phases::Phases;
use crate::measure::measure;
use crate::{Builder, Model, Options, Score, WorkloadError};

const NAME: &str = "canneal";

pub(super) const MODEL: Model = Model {
    name: NAME,
    summary: "PARSEC: independent lock-free work on a large netlist, rare barriers",
    params: &[
        parsec::threads("12", "worker threads (the feature study's number)"),
        parsec::count("iterations", "6000", "temperature steps, each ended by a barrier (native input: 6000)"),
        parsec::time(
            "phase",
            "7600us",
            "CPU time of a thread in a temperature step (fitted, see docs/calibration.md)",
        ),
        parsec::imbalance("10", "percent by which a phase is drawn shorter or longer (guess: cache misses of random accesses)"),
        parsec::time("serial", "10s", "CPU time of reading the netlist (guess)"),
        parsec::working_set("256K", "bytes of cache a thread needs to run at full speed (guess: all of the private cache)"),
    ],
    measures: &[
        measure("completion_ns", "ns", "time until the last task has ended"),
        measure("work", "", "temperature steps done"),
        measure("canneal.barrier_waits", "", "arrivals of threads at the barrier"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    Phases::build(NAME, options, builder, Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use crate::models::parsec::testing::check;

    #[test]
    fn every_thread_meets_every_barrier() {
        let end = check("canneal:threads=4,iterations=25", 25, 5);
        assert_eq!(end.counters.get("canneal.barrier_waits"), 100);
    }
}
