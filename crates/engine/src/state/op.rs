//! The op of the policy that is under way on a CPU.

use std::cell::Cell;

use schedlab_trace::{CpuId, TaskId};

use crate::contract::consts::BPF_MAX_LOOPS;
use crate::contract::op_kind::OpKind;

/// The task that `ops.select_cpu()` or `ops.enqueue()` is about. No other one may be dispatched directly, and it only once
/// (`direct_dispatch_task`).
#[derive(Clone, Copy)]
struct Subject {
    task: TaskId,
    /// It may still be dispatched.
    is_free: bool,
    /// The op is ops.select_cpu().
    is_select: bool,
}

/// Where a task that is inserted by an op goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Insertion {
    /// Straight into its queue.
    Direct,
    /// Into the dispatch buffer.
    Buffered,
    /// Nowhere: it, or another one, has been dispatched directly.
    Again,
    /// Nowhere: the op is about another task.
    Other(TaskId),
}

/// The op under way, besides its kind. The order is that in memory, the most frequent first.
#[derive(Default)]
#[repr(C)]
pub(crate) struct OpUnderWay {
    /// When it must have returned, and how often it may still ask for something.
    deadline: Cell<u64>,
    requests_left: Cell<u32>,
    /// The run queue whose lock it holds (`scx_locked_rq()`).
    locked_rq: Cell<Option<CpuId>>,
    subject: Cell<Option<Subject>>,
    /// The op in which it is nested.
    outer: Cell<Option<OpKind>>,
}

impl OpUnderWay {
    reads! { outer: Option<OpKind>, locked_rq: Option<CpuId> }

    sets! {
        /// Ends that op.
        end_for(): subject = None;
    }

    /// Begins an op that must return by `deadline`, under the lock of a run queue if one is given.
    #[inline(always)]
    pub fn begin(&self, deadline: u64, rq: Option<CpuId>) {
        self.deadline.set(deadline);
        // It ends at BPF_MAX_LOOPS.
        self.requests_left.set(BPF_MAX_LOOPS);
        if rq.is_some() {
            self.locked_rq.set(rq);
        }
    }

    #[inline(always)]
    pub fn end(&self, rq: Option<CpuId>) {
        if rq.is_some() {
            self.locked_rq.set(None);
        }
    }

    /// Begins an op within `outer`. Returns the run queue whose lock that one holds, for [`OpUnderWay::end_nested`].
    pub fn begin_nested(&self, outer: Option<OpKind>, rq: Option<CpuId>) -> Option<CpuId> {
        debug_assert_eq!(self.outer.get(), None, "ops nest once");
        self.outer.set(outer);
        let locked = self.locked_rq.get();
        self.locked_rq.set(rq.or(locked));
        locked
    }

    pub fn end_nested(&self, locked: Option<CpuId>) {
        self.outer.set(None);
        self.locked_rq.set(locked);
    }

    /// Counts a request at `now`. Returns whether the op goes on for too long, or has asked too often.
    #[inline(always)]
    pub fn asks_too_much(&self, now: u64) -> bool {
        let (left, was_last) = self.requests_left.get().overflowing_sub(1);
        self.requests_left.set(left);
        was_last || self.is_late(now)
    }

    /// Returns whether it goes on for too long.
    #[inline(always)]
    pub fn is_late(&self, now: u64) -> bool {
        now > self.deadline.get()
    }

    /// Begins `ops.select_cpu()` or `ops.enqueue()` for `task`.
    #[inline(always)]
    pub fn begin_for(&self, task: TaskId, is_select: bool) {
        self.subject.set(Some(Subject {
            task,
            is_free: true,
            is_select,
        }));
    }

    /// Returns whether it is ops.select_cpu().
    pub fn is_select(&self) -> bool {
        self.subject.get().is_some_and(|subject| subject.is_select)
    }

    /// Returns whether it is about `task`.
    pub fn is_about(&self, task: TaskId) -> bool {
        self.subject
            .get()
            .is_some_and(|subject| subject.task == task)
    }

    /// `mark_direct_dispatch()`: it inserts `task`.
    #[inline(always)]
    pub fn mark_direct_dispatch(&self, task: TaskId) -> Insertion {
        let Some(subject) = self.subject.get() else {
            return Insertion::Buffered;
        };
        self.subject.set(Some(Subject {
            is_free: false,
            ..subject
        }));
        if !subject.is_free {
            Insertion::Again
        } else if subject.task == task {
            Insertion::Direct
        } else {
            Insertion::Other(subject.task)
        }
    }
}
