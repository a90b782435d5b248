//! Work that waits until a run queue's lock is free (kernel/sched/ext/ext.c, `run_deferred()`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use schedlab_trace::TaskId;

/// A run queue's part. The order is that in memory, what a switch looks at last: [`crate::state::kick::Kicks`] follows.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Deferred {
    /// Tasks for the local DSQs of other CPUs (`ddsp_deferred_locals`).
    locals: RefCell<VecDeque<TaskId>>,
    /// DSQs whose tasks go back to the policy, with the flags (`deferred_reenq_users`).
    reenq_users: RefCell<VecDeque<(u32, u64)>>,
    /// The same of its local DSQ (`deferred_reenq_local`).
    reenq_local: Cell<Option<u64>>,
    /// There may be something in one of them.
    any: Cell<bool>,
    /// It is done at the end of this schedule() (`SCX_RQ_BAL_CB_PENDING`).
    at_balance: Cell<bool>,
}

impl Deferred {
    reads! { any: bool, waits_for_balance of at_balance: bool }

    sets! {
        /// Leaves it to the end of this schedule().
        wait_for_balance(): at_balance = true;
        next_reenq_local() -> Option<u64>: reenq_local = None;
        /// Returns whether it was left to that end, which has come.
        take_balance() -> bool: at_balance = false;
    }

    /// Returns whether [`Deferred::any`] is right.
    pub fn marks_are_right(&self) -> bool {
        self.any.get() || self.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.locals.borrow().is_empty()
            && self.reenq_local.get().is_none()
            && self.reenq_users.borrow().is_empty()
    }

    /// Forgets the work that has been done; more may have come since.
    pub fn done(&self) {
        self.any.set(!self.is_empty());
    }

    /// Leaves the insertion of `task` into the local DSQ of another CPU.
    pub fn add_local(&self, task: TaskId) {
        self.any.set(true);
        self.locals.borrow_mut().push_back(task);
    }

    /// Forgets `task`.
    pub fn forget_local(&self, task: TaskId) {
        self.locals.borrow_mut().retain(|&other| other != task);
    }

    pub fn next_local(&self) -> Option<TaskId> {
        self.locals.borrow_mut().pop_front()
    }

    /// Gives the tasks of the local DSQ back to the policy later.
    pub fn add_reenq_local(&self, flags: u64) {
        self.any.set(true);
        let before = self.reenq_local.get().unwrap_or(0);
        self.reenq_local.set(Some(before | flags));
    }

    /// The same of another DSQ. One entry for each (`scx_dsq_pcpu::deferred_reenq_user`).
    pub fn add_reenq_user(&self, dsq: u32, flags: u64) {
        self.any.set(true);
        let mut users = self.reenq_users.borrow_mut();
        match users.iter_mut().find(|(noted, _)| *noted == dsq) {
            Some((_, noted)) => *noted |= flags,
            None => users.push_back((dsq, flags)),
        }
    }

    pub fn next_reenq_user(&self) -> Option<(u32, u64)> {
        self.reenq_users.borrow_mut().pop_front()
    }
}
