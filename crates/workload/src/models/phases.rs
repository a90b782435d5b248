//! Threads that work in phases and meet at a barrier after each: the shape of three PARSEC applications.

use schedlab_trace::Duration;

use super::parsec::COUNTS;
use super::plan::{Plan, Steps, drawn};
use crate::{Action, Context, Counters, ObjectId};

/// A thread that computes and meets the others at a barrier, again and again.
pub(super) struct Phases {
    /// Prefix of its counters.
    pub name: &'static str,
    pub thread: usize,
    pub iterations: u64,
    /// CPU time of a phase, the mean.
    pub phase: Duration,
    pub imbalance_pct: u64,
    /// What the first thread does alone after each phase, while the others wait at a second barrier.
    pub serial: Duration,
    pub barrier: ObjectId,
    pub met: u64,
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
        if self.serial > Duration::ZERO {
            if self.thread == COUNTS {
                steps.compute(self.serial);
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
