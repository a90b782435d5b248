//! PARSEC's bodytrack: follows a person through the frames of four cameras.
//!
//! *Synchronisation:* a main thread and a pool of workers with condition variables. Each frame has a serial part
//! (reading images, resampling particles) and some parallel kernels: edge maps, and the particle weights of five
//! annealing layers; workers take tickets until a kernel is done, and the main thread waits for it. *Memory:*
//! a few images and a body model: what a thread loses by a move is small.

use super::parsec::{self, Program};
use super::pool::{Pool, PoolMain, PoolWorker};
use crate::measure::measure;
use crate::{Builder, Model, Options, Score, WorkloadError};

const NAME: &str = "bodytrack";

pub(super) const MODEL: Model = Model {
    name: NAME,
    summary: "PARSEC: a worker pool with condition variables, serial work between its jobs",
    params: &[
        parsec::threads("16", "worker threads beside the main thread (the feature study's number)"),
        parsec::count("iterations", "261", "frames (native input: 261)"),
        parsec::count("kernels", "7", "parallel kernels of a frame (guess: two of image processing, five annealing layers)"),
        parsec::count("tickets", "64", "tasks of a kernel (guess: four a thread)"),
        parsec::time(
            "task",
            "3350us",
            "CPU time of a task (fitted, see docs/calibration.md)",
        ),
        parsec::imbalance("40", "percent by which a task is drawn shorter or longer (guess: particles differ)"),
        parsec::time("frame", "30ms", "CPU time of the main thread alone in each frame (guess)"),
        parsec::time("serial", "200ms", "CPU time before the threads start (guess)"),
        parsec::working_set("128K", "bytes of cache a thread needs to run at full speed (guess)"),
    ],
    measures: &[
        measure("completion_ns", "ns", "time until the last task has ended"),
        measure("work", "", "frames done"),
        measure("bodytrack.tasks", "", "tasks (tickets) that the workers took"),
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
        options.count("kernels"),
        options.count("tickets"),
    );
    Ok(program.finish(options.time("serial"), main))
}

#[cfg(test)]
mod tests {
    use crate::models::parsec::testing::check;

    #[test]
    fn every_ticket_is_taken_once() {
        for (threads, kernels, tickets) in [(1, 1, 1), (3, 2, 10), (8, 5, 3)] {
            let text = format!(
                "bodytrack:threads={threads},iterations=9,kernels={kernels},tickets={tickets}"
            );
            let end = check(&text, 9, threads + 1);
            let tasks = 9 * kernels * tickets;
            assert_eq!(end.counters.get("bodytrack.tasks"), tasks);
        }
    }
}
