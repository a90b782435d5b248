//! A pool of worker threads behind one mutex and two condition variables.
//!
//! The main thread hands out a job of so many tasks and waits until all are done; workers take one task after
//! another. Everything but the objects belongs to the mutex's holder.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use schedlab_trace::Duration;

use super::parsec::Program;
use super::plan::{Plan, Steps, drawn};
use crate::{Action, Context, Counters, ObjectId, ObjectSpec};

pub(super) struct Pool {
    mutex: ObjectId,
    work: ObjectId,
    finished: ObjectId,
    /// Tasks of the job that nobody has taken.
    left: AtomicU64,
    /// Tasks of the job that are not done.
    open: AtomicU64,
    over: AtomicBool,
}

impl Pool {
    pub fn new(program: &mut Program<'_>) -> Arc<Pool> {
        Arc::new(Pool {
            mutex: program.object(ObjectSpec::Mutex),
            work: program.object(ObjectSpec::Condition),
            finished: program.object(ObjectSpec::Condition),
            left: AtomicU64::new(0),
            open: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
    }
}

/// A worker of the pool.
pub(super) struct PoolWorker {
    name: &'static str,
    pool: Arc<Pool>,
    task: Duration,
    imbalance_pct: u64,
    step: WorkerStep,
    tasks: u64,
}

enum WorkerStep {
    Start,
    /// The mutex is held: take a task, or wait for one.
    Take,
    /// The mutex is held again: the task is done.
    Done,
    End,
}

impl PoolWorker {
    /// `task`: CPU time of a task, drawn up to `imbalance_pct` shorter or longer.
    pub fn new(name: &'static str, pool: &Arc<Pool>, task: Duration, imbalance_pct: u64) -> Self {
        PoolWorker {
            name,
            pool: Arc::clone(pool),
            task,
            imbalance_pct,
            step: WorkerStep::Start,
            tasks: 0,
        }
    }
}

impl Plan for PoolWorker {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        let pool = &self.pool;
        loop {
            match self.step {
                WorkerStep::Start => {
                    self.step = WorkerStep::Take;
                    return steps.push(Action::Lock(pool.mutex));
                }
                WorkerStep::Take => {
                    let left = pool.left.load(Relaxed);
                    if left > 0 {
                        pool.left.store(left - 1, Relaxed);
                        self.step = WorkerStep::Done;
                        self.tasks += 1;
                        steps.push(Action::Unlock(pool.mutex));
                        steps.compute(drawn(self.task, self.imbalance_pct, context.rng));
                        return steps.push(Action::Lock(pool.mutex));
                    }
                    if pool.over.load(Relaxed) {
                        self.step = WorkerStep::End;
                        return steps.push(Action::Unlock(pool.mutex));
                    }
                    return steps.push(Action::Wait {
                        condition: pool.work,
                        mutex: pool.mutex,
                    });
                }
                WorkerStep::Done => {
                    self.step = WorkerStep::Take;
                    let open = pool.open.load(Relaxed) - 1;
                    pool.open.store(open, Relaxed);
                    if open == 0 {
                        return steps.push(Action::Signal(pool.finished));
                    }
                }
                WorkerStep::End => return,
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        counters.add(format!("{}.tasks", self.name), self.tasks);
    }
}

/// The main thread: `iterations` times some serial work and then `jobs` jobs, one after another.
pub(super) struct PoolMain {
    pool: Arc<Pool>,
    iterations: u64,
    serial: Duration,
    jobs: u64,
    /// Tasks of a job.
    tasks: u64,
    /// Jobs of this iteration that are still to come.
    jobs_left: u64,
    step: MainStep,
}

enum MainStep {
    Iteration,
    /// The mutex is held: hand out the next job.
    Hand,
    /// The mutex is held: wait until the job is done.
    Await,
    End,
}

impl PoolMain {
    pub fn new(pool: &Arc<Pool>, iterations: u64, serial: Duration, jobs: u64, tasks: u64) -> Self {
        PoolMain {
            pool: Arc::clone(pool),
            iterations,
            serial,
            jobs,
            tasks,
            jobs_left: 0,
            step: MainStep::Iteration,
        }
    }
}

impl Plan for PoolMain {
    fn plan(&mut self, _: &mut Context<'_>, steps: &mut Steps) {
        let pool = &self.pool;
        loop {
            match self.step {
                MainStep::Iteration => {
                    if self.iterations > 0 {
                        self.iterations -= 1;
                        self.jobs_left = self.jobs;
                        steps.compute(self.serial);
                    }
                    self.step = MainStep::Hand;
                    return steps.push(Action::Lock(pool.mutex));
                }
                MainStep::Hand if self.jobs_left > 0 => {
                    self.jobs_left -= 1;
                    pool.left.store(self.tasks, Relaxed);
                    pool.open.store(self.tasks, Relaxed);
                    self.step = MainStep::Await;
                    steps.push(Action::Broadcast(pool.work));
                    return steps.push(Action::Wait {
                        condition: pool.finished,
                        mutex: pool.mutex,
                    });
                }
                MainStep::Hand => {
                    // No iteration is left.
                    pool.over.store(true, Relaxed);
                    self.step = MainStep::End;
                    steps.push(Action::Broadcast(pool.work));
                    return steps.push(Action::Unlock(pool.mutex));
                }
                MainStep::Await if pool.open.load(Relaxed) > 0 => {
                    return steps.push(Action::Wait {
                        condition: pool.finished,
                        mutex: pool.mutex,
                    });
                }
                MainStep::Await if self.jobs_left > 0 => self.step = MainStep::Hand,
                MainStep::Await => {
                    self.step = MainStep::Iteration;
                    steps.push(Action::Unlock(pool.mutex));
                    return steps.push(Action::Work(1));
                }
                MainStep::End => return,
            }
        }
    }
}
