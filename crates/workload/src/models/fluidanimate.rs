//! PARSEC's fluidanimate: a fluid of particles in a grid of cells.
//!
//! *Synchronisation:* the grid is cut into one block a thread; a frame has nine phases (rebuild, densities, forces …)
//! with a barrier after each, and where a phase changes cells on a block's border it takes the mutex of that
//! border for a moment. *Memory:* each thread walks its own cells in every phase and meets its neighbours' cells at
//! the border.
//!
//! Model: the original takes a mutex per cell, millions of times a second; here one mutex a border is taken `locks`
//! times a phase, which keeps the order of waits but not the cost of uncontended atomics.

use schedlab_trace::Duration;

use super::parsec::{self, COUNTS, Idle, Program};
use super::plan::{Plan, Steps, drawn};
use crate::measure::measure;
use crate::{
    Action, Builder, Context, Counters, Kind, Model, ObjectId, ObjectSpec, Options, Param, Score, WorkloadError,
};

const NAME: &str = "fluidanimate";

pub(super) const MODEL: Model = Model {
    name: NAME,
    summary: "PARSEC: nine barriers a frame, fine-grained locks on the borders between threads",
    params: &[
        parsec::threads("16", "worker threads (the feature study's number)"),
        parsec::count("iterations", "500", "frames (native input: 500)"),
        parsec::count("phases", "9", "phases of a frame, each ended by a barrier (the original's number)"),
        parsec::time(
            "phase",
            "10200us",
            "CPU time of a thread in a phase (fitted, see docs/calibration.md)",
        ),
        parsec::imbalance("15", "percent by which a phase is drawn shorter or longer (guess: cells hold different numbers of particles)"),
        Param { name: "locks", kind: Kind::Count { min: 1, max: 10_000 }, default: "8", doc: "times a thread takes a border's mutex in a phase (guess, see the model's limits)" },
        parsec::time("hold", "5us", "CPU time in a border's mutex (guess)"),
        parsec::time("serial", "1s", "CPU time of reading the particles (guess)"),
        parsec::working_set("256K", "bytes of cache a thread needs to run at full speed (guess: all of the private cache)"),
    ],
    measures: &[
        measure("completion_ns", "ns", "time until the last task has ended"),
        measure("work", "", "frames done"),
        measure("fluidanimate.barrier_waits", "", "arrivals of threads at the barrier"),
        measure("fluidanimate.locks", "", "locks of borders taken"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let threads = options.count("threads") as usize;
    let mut program = Program::new(NAME, options, builder);
    let barrier = program.object(ObjectSpec::Barrier {
        parties: threads as u32,
    });
    let borders: Vec<ObjectId> = (0..threads)
        .map(|_| program.object(ObjectSpec::Mutex))
        .collect();
    for thread in 0..threads {
        program.worker(Block {
            thread,
            // Blocks lie in a ring: a thread shares a border with either neighbour.
            borders: [borders[thread], borders[(thread + 1) % threads]],
            barrier,
            phases: options.count("iterations") * options.count("phases"),
            phases_a_frame: options.count("phases"),
            phase: options.time("phase"),
            imbalance_pct: options.count("imbalance"),
            locks: options.count("locks"),
            hold: options.time("hold"),
            taken: 0,
            met: 0,
        });
    }
    Ok(program.finish(options.time("serial"), Idle))
}

/// A thread and its block of the grid.
struct Block {
    thread: usize,
    borders: [ObjectId; 2],
    barrier: ObjectId,
    /// Phases left.
    phases: u64,
    phases_a_frame: u64,
    phase: Duration,
    imbalance_pct: u64,
    locks: u64,
    hold: Duration,
    taken: u64,
    met: u64,
}

impl Plan for Block {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        if self.phases == 0 {
            return;
        }
        self.phases -= 1;
        let time = drawn(self.phase, self.imbalance_pct, context.rng);
        let stretch = Duration::from_ns(time.ns() / self.locks);
        for i in 0..self.locks {
            steps.compute(stretch);
            let border = self.borders[(i % 2) as usize];
            steps.push(Action::Lock(border));
            steps.compute(self.hold);
            steps.push(Action::Unlock(border));
        }
        self.taken += self.locks;
        self.met += 1;
        steps.push(Action::Barrier(self.barrier));
        if self.thread == COUNTS && self.phases.is_multiple_of(self.phases_a_frame) {
            steps.push(Action::Work(1));
        }
    }

    fn report(&self, counters: &mut Counters) {
        counters.add("fluidanimate.barrier_waits", self.met);
        counters.add("fluidanimate.locks", self.taken);
    }
}

#[cfg(test)]
mod tests {
    use crate::models::parsec::testing::check;

    #[test]
    fn barriers_and_locks_are_as_many_as_asked_for() {
        let end = check("fluidanimate:threads=4,iterations=10,phases=3,locks=5", 10, 5);
        assert_eq!(end.counters.get("fluidanimate.barrier_waits"), 4 * 10 * 3);
        assert_eq!(end.counters.get("fluidanimate.locks"), 4 * 10 * 3 * 5);
        check("fluidanimate:threads=1,iterations=2", 2, 2);
    }
}
