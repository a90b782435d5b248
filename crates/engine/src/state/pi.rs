//! Priority inheritance: mutexes with their waiters, and the priority that a task inherits from its waiters.

use std::cell::{Cell, RefCell};

use schedlab_trace::TaskId;
use schedlab_workload::{ObjectId, Reservation};

/// The attributes that a task has from the waiters for its mutexes, if these are more than its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Inherited {
    #[default]
    Nothing,
    RealTime(u8),
    /// The reservation of a waiting deadline task (`pi_se`).
    Deadline(Reservation),
}

/// A task's part.
#[derive(Default)]
pub(crate) struct Holder {
    /// The mutex that it waits for (`pi_blocked_on`).
    pub waits_for: Cell<Option<ObjectId>>,
    /// Those that it holds, in the order in which it took them.
    pub holds: RefCell<Vec<ObjectId>>,
}

/// How urgent a waiter is (`struct rt_waiter_node`): the priority, and among deadline tasks the deadline; less goes
/// first. Normal tasks are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank(pub i32, pub u64);

impl Rank {
    pub const NORMAL: i32 = 120;

    /// `waiter_update_prio()`: of a task with this effective priority and deadline.
    pub fn of(prio: i32, deadline: u64) -> Rank {
        match prio {
            -1 => Rank(-1, deadline),
            prio if prio < 100 => Rank(prio, 0),
            _ => Rank(Rank::NORMAL, 0),
        }
    }
}

/// A mutex with priority inheritance.
#[derive(Default)]
pub(crate) struct PiMutex {
    /// `None` with waiters: it was released, and the first of them has been woken to take it.
    pub owner: Option<TaskId>,
    /// The most urgent first, equals in the order in which they came. The rank is the last reported one.
    pub waiters: Vec<(TaskId, Rank)>,
}

impl PiMutex {
    pub fn first(&self) -> Option<(TaskId, Rank)> {
        self.waiters.first().copied()
    }

    pub fn insert(&mut self, task: TaskId, rank: Rank) {
        let at = self.waiters.partition_point(|&(_, other)| other <= rank);
        self.waiters.insert(at, (task, rank));
    }

    pub fn remove(&mut self, task: TaskId) {
        self.waiters.retain(|&(waiter, _)| waiter != task);
    }

    /// `try_to_take_rt_mutex()`: it is free, and no task as urgent waits for it.
    pub fn try_take(&mut self, task: TaskId, rank: Rank) -> bool {
        let goes_first = |(waiter, other): (TaskId, Rank)| waiter == task || rank < other;
        let takes = self.owner.is_none() && self.first().is_none_or(goes_first);
        if takes {
            self.owner = Some(task);
            self.remove(task);
        }
        takes
    }
}
