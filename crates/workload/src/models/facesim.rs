//! PARSEC's facesim: a human face moved by muscles, by an implicit finite-element method.
//!
//! *Synchronisation:* per frame a Newton iteration around a conjugate-gradient solver: many short parallel phases,
//! each a set of uneven tasks (the mesh's partitions) that threads take from a queue, with a join after each phase
//! and a little serial work between frames. *Memory:* the mesh's vectors are walked in every phase.

use super::parsec::{self, Program};
use super::pool::{Pool, PoolMain, PoolWorker};
use crate::measure::measure;
use crate::{Builder, Model, Options, Score, WorkloadError};

const NAME: &str = "facesim";

pub(super) const MODEL: Model = Model {
    name: NAME,
    summary: "PARSEC: phases of uneven tasks from a queue, a join after each phase",
    params: &[
        parsec::threads("16", "worker threads beside the main thread (the feature study's number)"),
        parsec::count("iterations", "100", "frames (native input: 100)"),
        parsec::count("phases", "60", "parallel phases of a frame (guess: a few Newton steps of some ten solver steps each)"),
        parsec::count("tasks", "16", "tasks of a phase (one per thread, like the partitions of the mesh)"),
        parsec::time(
            "task",
            "12ms",
            "CPU time of a task (fitted, see docs/calibration.md)",
        ),
        parsec::imbalance("50", "percent by which a task is drawn shorter or longer (guess: partitions differ)"),
        parsec::time("frame", "150ms", "CPU time of the main thread alone in each frame (guess)"),
        parsec::time("serial", "5s", "CPU time of reading the mesh (guess)"),
        parsec::working_set("256K", "bytes of cache a thread needs to run at full speed (guess: all of the private cache)"),
    ],
    measures: &[
        measure("completion_ns", "ns", "time until the last task has ended"),
        measure("work", "", "frames done"),
        measure("facesim.tasks", "", "tasks that the workers took"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let mut program = Program::new(NAME, options, builder);
    let pool = Pool::new(&mut program);
    for _ in 0..options.count("threads") {
        program.worker(PoolWorker::new(
            NAME,
            &pool,
            options.time("task"),
            options.count("imbalance"),
        ));
    }
    let main = PoolMain::new(
        &pool,
        options.count("iterations"),
        options.time("frame"),
        options.count("phases"),
        options.count("tasks"),
    );
    Ok(program.finish(options.time("serial"), main))
}

#[cfg(test)]
mod tests {
    use crate::models::parsec::testing::check;

    #[test]
    fn every_task_of_every_phase_is_done() {
        let end = check("facesim:threads=4,iterations=5,phases=6,tasks=7", 5, 5);
        assert_eq!(end.counters.get("facesim.tasks"), 5 * 6 * 7);
    }
}
