//! Priority inheritance: mutexes with their waiters, and the priority that a task inherits from its waiters.

use std::cell::{Cell, Ref, RefCell};

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
    waits_for: Cell<Option<ObjectId>>,
    /// Those that it holds, in the order in which it took them.
    holds: RefCell<Vec<ObjectId>>,
}

impl Holder {
    reads! { waits_for: Option<ObjectId> }

    sets! {
        wait_for(mutex: ObjectId): waits_for = Some(mutex);
    }

    pub fn acquire(&self, mutex: ObjectId) {
        self.waits_for.set(None);
        self.holds.borrow_mut().push(mutex);
    }

    pub fn release(&self, mutex: ObjectId) {
        self.holds.borrow_mut().retain(|&held| held != mutex);
    }

    pub fn holds(&self) -> Ref<'_, Vec<ObjectId>> {
        self.holds.borrow()
    }
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
    owner: Option<TaskId>,
    /// The most urgent first, equals in the order in which they came. The rank is the last reported one.
    waiters: Vec<(TaskId, Rank)>,
}

impl PiMutex {
    pub fn owner(&self) -> Option<TaskId> {
        self.owner
    }

    /// Makes `task` its owner, or no longer, by one atomic operation of user space: if no task has it, or `task` does, and
    /// none waits for it. Returns whether that is done.
    pub fn exchange(&mut self, task: TaskId, take: bool) -> bool {
        let (from, to) = match take {
            true => (None, Some(task)),
            false => (Some(task), None),
        };
        let done = self.owner == from && self.waiters.is_empty();
        if done {
            self.owner = to;
        }
        done
    }

    /// Releases it for `task`. Returns the task to be woken to take it; outer `None`: `task` does not have it (EPERM).
    pub fn release(&mut self, task: TaskId) -> Option<Option<TaskId>> {
        if self.owner != Some(task) {
            return None;
        }
        self.owner = None;
        Some(self.first().map(|(first, _)| first))
    }

    /// Changes the rank of a task, if it waits.
    pub fn rerank(&mut self, task: TaskId, rank: Rank) {
        let mut waiters = self.waiters.iter();
        let known = waiters.find(|&&(waiter, _)| waiter == task);
        if known.is_some_and(|&(_, known)| known != rank) {
            self.remove(task);
            self.insert(task, rank);
        }
    }

    pub fn first(&self) -> Option<(TaskId, Rank)> {
        self.waiters.first().copied()
    }

    pub fn insert(&mut self, task: TaskId, rank: Rank) {
        let at = self.waiters.partition_point(|&(_, other)| other <= rank);
        self.waiters.insert(at, (task, rank));
    }

    fn remove(&mut self, task: TaskId) {
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
