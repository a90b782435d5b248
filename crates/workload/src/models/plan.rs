//! Behaviours that decide on several actions at a time.
//!
//! Most workloads are short fixed sequences (lock, take, unlock, compute) between two decisions. A [`Plan`] is
//! asked only at the decisions; [`Planned`] hands its actions out one by one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use schedlab_trace::Duration;

pub(super) use crate::seed::drawn;
use crate::{Action, Behaviour, Context, Counters};

/// Takes a lock of data that tasks share. The lock is for real threads: no thread waits for anything else while it
/// holds one.
pub(super) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The plan of a task, a few actions at a time.
pub(super) trait Plan: Send {
    /// Appends the next actions, of which only the last one's outcome is seen (by the next call). A task whose
    /// plan appends nothing exits.
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps);

    /// As [`Behaviour::forks_processes`].
    fn forks_processes(&self) -> bool {
        false
    }

    /// As [`Behaviour::report`].
    fn report(&self, counters: &mut Counters) {
        let _ = counters;
    }
}

/// Actions still to be carried out.
#[derive(Default)]
pub(super) struct Steps(VecDeque<Action>);

impl Steps {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn push(&mut self, action: Action) {
        self.0.push_back(action);
    }

    /// CPU time; no action if it is 0.
    pub fn compute(&mut self, time: Duration) {
        if time > Duration::ZERO {
            self.0.push_back(Action::Compute(time));
        }
    }
}

/// A plan as a behaviour.
pub(super) struct Planned<P> {
    plan: P,
    steps: Steps,
}

impl<P: Plan> Planned<P> {
    pub fn new(plan: P) -> Self {
        Planned {
            plan,
            steps: Steps::default(),
        }
    }
}

impl<P: Plan> Behaviour for Planned<P> {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        if let Some(action) = self.steps.0.pop_front() {
            return action;
        }
        self.plan.plan(context, &mut self.steps);
        self.steps.0.pop_front().unwrap_or(Action::Exit)
    }

    fn forks_processes(&self) -> bool {
        self.plan.forks_processes()
    }

    fn report(&self, counters: &mut Counters) {
        self.plan.report(counters);
    }
}
