//! Threads that work in phases and meet at a barrier after each: the shape of three PARSEC applications.

use schedlab_trace::Duration;

use super::parsec::{COUNTS, Idle, Program};
use super::plan::{Plan, Steps, drawn};
use crate::{
    Action, Builder, Context, Counters, ObjectId, ObjectSpec, Options, Score, WorkloadError,
};

/// A thread that computes and meets the others at a barrier, again and again.
pub(super) struct Phases {
    /// Prefix of its counters.
    name: &'static str,
    thread: usize,
    iterations: u64,
    /// CPU time of a phase, the mean.
    phase: Duration,
    imbalance_pct: u64,
    /// The work of the first thread alone after each phase, while the others wait at a second barrier.
    step: Duration,
    barrier: ObjectId,
    met: u64,
}

impl Phases {
    /// Returns a program of such threads. After each phase the first one computes for `step`.
    pub fn build(
        name: &'static str,
        options: &Options,
        builder: &mut Builder,
        step: Duration,
    ) -> Result<Score, WorkloadError> {
        let threads = options.count("threads");
        let mut program = Program::new(name, options, builder);
        let barrier = program.object(ObjectSpec::Barrier {
            parties: threads as u32,
        });
        for thread in 0..threads as usize {
            program.worker(Phases {
                name,
                thread,
                iterations: options.count("iterations"),
                phase: options.time("phase"),
                imbalance_pct: options.count("imbalance"),
                step,
                barrier,
                met: 0,
            });
        }
        Ok(program.finish(options.time("serial"), Idle))
    }
}

impl Plan for Phases {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        if self.iterations == 0 {
            return;
        }
        self.iterations -= 1;
        steps.compute(drawn(self.phase, self.imbalance_pct, context.rng));
        steps.push(Action::Barrier(self.barrier));
        self.met += 1;
        if self.step > Duration::ZERO {
            if self.thread == COUNTS {
                steps.compute(self.step);
            }
            steps.push(Action::Barrier(self.barrier));
            self.met += 1;
        }
        if self.thread == COUNTS {
            steps.push(Action::Work(1));
        }
    }

    fn report(&self, counters: &mut Counters) {
        counters.add(format!("{}.barrier_waits", self.name), self.met);
    }
}
