//! Code that the models of the PARSEC applications share: a main thread, workers that end, barriers and jitter.
//!
//! The applications are described by Bienia, Kumar, Singh and Li (The PARSEC Benchmark Suite, PACT 2008), with the
//! *native* inputs and the thread counts of the feature study (Gouicem et al., Compas 2019). A model takes from an
//! application when its threads wait for each other, how uneven their work is and how much
//! cache they lose when they move. How long a stretch of work takes is fitted to the study's published CFS
//! row on the profile `xeon-e5645-2x6x2` (docs/calibration.md).
//!
//! Model: the threads' memory traffic does not slow each other down, and memory has no home node: a thread that
//! moved to the other socket pays once for its working set and is then as fast as before.

use schedlab_trace::Duration;

use super::plan::{Plan, Planned, Steps};
use crate::{
    Action, Builder, Context, Counters, Kind, ObjectId, ObjectSpec, Options, Param, Score,
    ScoreRule, TimeUnit,
};

/// Most threads: a stack each for real programs, a task each in the simulator.
const THREADS: Kind = Kind::Count {
    min: 1,
    max: 10_000,
};
const TIME: Kind = Kind::Time {
    bare: TimeUnit::Ms,
    max: Duration::from_secs(10_000),
};

/// Number of worker threads.
pub(super) const fn threads(default: &'static str, doc: &'static str) -> Param {
    Param {
        name: "threads",
        kind: THREADS,
        default,
        doc,
    }
}

/// Returns a count of anything.
pub(super) const fn count(name: &'static str, default: &'static str, doc: &'static str) -> Param {
    Param {
        name,
        kind: Kind::Count {
            min: 1,
            max: 100_000_000,
        },
        default,
        doc,
    }
}

/// Returns a CPU time.
pub(super) const fn time(name: &'static str, default: &'static str, doc: &'static str) -> Param {
    Param {
        name,
        kind: TIME,
        default,
        doc,
    }
}

/// Percent by which stretches of work differ.
pub(super) const fn imbalance(default: &'static str, doc: &'static str) -> Param {
    Param {
        name: "imbalance",
        kind: Kind::Count { min: 0, max: 100 },
        default,
        doc,
    }
}

/// Bytes of cache.
pub(super) const fn working_set(default: &'static str, doc: &'static str) -> Param {
    Param {
        name: "working_set",
        kind: Kind::Bytes {
            min: 0,
            max: 1 << 30,
        },
        default,
        doc,
    }
}

/// Completion time of the whole program.
pub(super) const SCORE: Score = Score {
    name: "completion_ns",
    unit: "ns",
    higher_is_better: false,
    rule: ScoreRule::Makespan,
};

/// A program whose main thread does serial work, creates the workers and waits for their end.
pub(super) struct Program<'a> {
    name: &'static str,
    options: &'a Options,
    builder: &'a mut Builder,
    /// Posted once by each worker that ends.
    done: ObjectId,
    workers: Vec<crate::TaskSpec>,
}

impl<'a> Program<'a> {
    pub fn new(name: &'static str, options: &'a Options, builder: &'a mut Builder) -> Self {
        let done = builder.object(ObjectSpec::Semaphore { initial: 0 });
        Program {
            name,
            options,
            builder,
            done,
            workers: Vec::new(),
        }
    }

    pub fn object(&mut self, spec: ObjectSpec) -> ObjectId {
        self.builder.object(spec)
    }

    /// Adds a worker. The first one is number 0 of the common options, as the main thread is too: while workers
    /// work, the main thread waits.
    pub fn worker(&mut self, worker: impl Plan + 'static) {
        let number = self.workers.len();
        let behaviour = Worker {
            plan: worker,
            done: self.done,
            over: false,
        };
        self.workers.push(self.builder.spec(
            number,
            format!("{}-{number}", self.name),
            0,
            self.options.bytes("working_set"),
            Planned::new(behaviour),
        ));
    }

    /// Adds the main thread. `serial` is its CPU time before the workers start; `drive` is what it does while they
    /// run.
    pub fn finish(self, serial: Duration, drive: impl Plan + 'static) -> Score {
        let nr_workers = self.workers.len();
        let mut workers = self.workers;
        workers.reverse();
        let main = Main {
            serial,
            workers,
            drive,
            driving: false,
            join: nr_workers,
            done: self.done,
        };
        let working_set = self.options.bytes("working_set");
        self.builder
            .task(self.name, 0, working_set, Planned::new(main));
        SCORE
    }
}

/// A worker's plan, and the news of its end.
struct Worker<P> {
    plan: P,
    done: ObjectId,
    over: bool,
}

impl<P: Plan> Plan for Worker<P> {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        if self.over {
            return;
        }
        self.plan.plan(context, steps);
        if steps.is_empty() {
            self.over = true;
            steps.push(Action::Post(self.done));
        }
    }

    fn report(&self, counters: &mut Counters) {
        self.plan.report(counters);
    }
}

/// The main thread.
struct Main<P> {
    serial: Duration,
    /// Still to be created, the next one last.
    workers: Vec<crate::TaskSpec>,
    drive: P,
    driving: bool,
    /// Workers whose end is to be waited for.
    join: usize,
    done: ObjectId,
}

impl<P: Plan> Plan for Main<P> {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        if !self.driving {
            self.driving = true;
            steps.compute(self.serial);
            while let Some(worker) = self.workers.pop() {
                steps.push(Action::Fork(Box::new(worker)));
            }
            return;
        }
        self.drive.plan(context, steps);
        if steps.is_empty() && self.join > 0 {
            self.join -= 1;
            steps.push(Action::Acquire(self.done));
        }
    }

    fn report(&self, counters: &mut Counters) {
        self.drive.report(counters);
    }
}

/// A main thread that only waits for the workers.
pub(super) struct Idle;

impl Plan for Idle {
    fn plan(&mut self, _: &mut Context<'_>, _: &mut Steps) {}
}

/// The counter of iterations for the whole program.
pub(super) const COUNTS: usize = 0;

/// Checks what [`Program`] promises of any application.
#[cfg(test)]
pub(super) mod testing {
    use crate::Workload;
    use crate::testing::{End, Order, run_in};

    /// Runs it in several orders and returns the last run's counts. Iterations are the same in all.
    pub fn check(text: &str, iterations: u64, tasks: usize) -> End {
        let mut last = None;
        for order in [
            Order::RoundRobin,
            Order::UntilBlocked,
            Order::Random(1),
            Order::Random(2),
        ] {
            let end = run_in(Workload::parse(text, 4).unwrap(), order);
            assert_eq!(end.work, iterations, "{text} {order:?}");
            assert_eq!(end.tasks, tasks, "{text}");
            last = Some(end);
        }
        last.unwrap()
    }
}
