//! Timers that have expired on a CPU and that its interrupts have not come to yet.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use schedlab_trace::TaskId;
use schedlab_workload::ObjectId;

use crate::contract::policy::TimerId;
use crate::state::event_queue::Timer;

/// A CPU's part, each kind in the order in which they expired.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Expired {
    /// Tasks whose sleeps end or whose lives begin.
    pub tasks: Tasks,
    policy: RefCell<VecDeque<TimerId>>,
    /// Directions of TCP connections whose acknowledgement is due.
    acks: RefCell<VecDeque<ObjectId>>,
    /// Tasks whose next period begins.
    periods: RefCell<VecDeque<TaskId>>,
    /// Timers of groups with a limit.
    limits: RefCell<VecDeque<Timer>>,
}

impl Expired {
    pub fn push_policy(&self, timer: TimerId) {
        self.policy.borrow_mut().push_back(timer);
    }

    pub fn pop_policy(&self) -> Option<TimerId> {
        self.policy.borrow_mut().pop_front()
    }

    pub fn forget_policy(&self) {
        self.policy.borrow_mut().clear();
    }

    pub fn push_ack(&self, object: ObjectId) {
        self.acks.borrow_mut().push_back(object);
    }

    pub fn pop_ack(&self) -> Option<ObjectId> {
        self.acks.borrow_mut().pop_front()
    }

    pub fn push_period(&self, task: TaskId) {
        self.periods.borrow_mut().push_back(task);
    }

    pub fn pop_period(&self) -> Option<TaskId> {
        self.periods.borrow_mut().pop_front()
    }

    pub fn push_limit(&self, timer: Timer) {
        self.limits.borrow_mut().push_back(timer);
    }

    pub fn pop_limit(&self) -> Option<Timer> {
        self.limits.borrow_mut().pop_front()
    }
}

/// Tasks in order. There is rarely more than one.
#[derive(Default)]
pub(crate) struct Tasks {
    first: Cell<Option<TaskId>>,
    others: RefCell<VecDeque<TaskId>>,
    nr_others: Cell<usize>,
}

impl Tasks {
    #[inline]
    pub fn push(&self, task: TaskId) {
        if self.first.get().is_none() {
            self.first.set(Some(task));
        } else {
            let mut others = self.others.borrow_mut();
            others.push_back(task);
            self.nr_others.set(others.len());
        }
    }

    #[inline]
    pub fn pop(&self) -> Option<TaskId> {
        let first = self.first.take();
        if self.nr_others.get() > 0 {
            let mut others = self.others.borrow_mut();
            self.first.set(others.pop_front());
            self.nr_others.set(others.len());
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_in_order() {
        let (expired, mut model) = (Tasks::default(), VecDeque::new());
        for step in 0..200 {
            // More and more of them wait, then fewer.
            if step % 3 == 0 || (step % 3 == 1) == (step < 100) {
                expired.push(TaskId(step));
                model.push_back(TaskId(step));
            } else {
                assert_eq!(expired.pop(), model.pop_front());
            }
        }
        let rest: Vec<_> = std::iter::from_fn(|| expired.pop()).collect();
        assert!(rest.len() > 10);
        assert_eq!(rest, Vec::from(model));
    }
}
