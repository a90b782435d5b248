//! State of the deadline class: of a task and of a CPU.

use std::cell::{Cell, RefCell};

use schedlab_trace::TaskId;

/// A task's part (`struct sched_dl_entity`). Its parameters are in [`Task::reservation`].
#[derive(Default)]
pub(crate) struct Entity {
    /// The absolute deadline; 0 before the first one.
    pub deadline: Cell<u64>,
    /// The rest of its runtime; below zero if an overrun was noticed late.
    pub runtime: Cell<i64>,
    /// It has used up its runtime, or given the rest away, and waits for the next period.
    pub throttled: Cell<bool>,
    pub yielded: Cell<bool>,
    /// It is on the queue or runs (`on_dl_rq()`).
    pub queued: Cell<bool>,
    /// It runs, and so is not in the list of waiting tasks (`dl_rq::curr`).
    pub runs: Cell<bool>,
    /// Its share of the machine's bandwidth.
    bandwidth: Cell<u64>,
    /// The miss of its present deadline has been reported.
    pub missed: Cell<bool>,
}

impl Entity {
    /// Its share of the machine's bandwidth.
    pub fn bandwidth(&self) -> u64 {
        self.bandwidth.get()
    }

    /// Whether its deadline has passed, or there was none yet.
    pub fn has_passed(&self, now: u64) -> bool {
        self.deadline.get() == 0 || self.deadline.get() < now
    }
}

/// A CPU's part (`struct dl_rq`).
#[derive(Default)]
pub(crate) struct DlRq {
    /// Waiting tasks, the earliest deadline first.
    pub queue: RefCell<Vec<TaskId>>,
}

impl DlRq {
    /// Whether a task waits here that is not throttled.
    pub fn waits(&self) -> bool {
        !self.queue.borrow().is_empty()
    }
}

/// Bandwidth that deadline tasks have reserved (`dl_bw::total_bw`).
#[derive(Default)]
pub(crate) struct Bandwidth {
    reserved: Cell<u64>,
}

impl Bandwidth {
    pub fn reserved(&self) -> u64 {
        self.reserved.get()
    }

    /// Returns how much would be reserved if the task had `asked` instead of what it has.
    pub fn with(&self, task: &Entity, asked: u64) -> u64 {
        self.reserved.get() - task.bandwidth.get() + asked
    }

    /// The task has `asked` from now on.
    pub fn reserve(&self, task: &Entity, asked: u64) {
        self.reserved.set(self.with(task, asked));
        task.bandwidth.set(asked);
    }
}
