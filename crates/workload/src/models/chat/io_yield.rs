//! Adds a yield to each read and write of a socket, as Java machines for Linux 2.2 to 2.4 did.

use crate::{Action, Behaviour, Context, Counters, Options, Outcome, TaskSpec};

/// On which side of a read or write the yield is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

/// Lets a task yield once for each of its reads and writes, if `options` say so.
pub(super) fn add(options: &Options, mut task: TaskSpec) -> TaskSpec {
    let side = match options.choice("io_yield") {
        "before" => Side::Before,
        "after" => Side::After,
        _ => return task,
    };
    task.behaviour = Box::new(Yields {
        inner: task.behaviour,
        side,
        step: Step::Inner,
        yields: 0,
    });
    task
}

struct Yields {
    inner: Box<dyn Behaviour>,
    side: Side,
    step: Step,
    yields: u64,
}

enum Step {
    /// The inner behaviour is to be asked.
    Inner,
    /// The yield is over; this action comes next.
    Yielded(Action),
    /// A read or write is over; the yield comes next.
    Done,
    /// The yield after an action that ended so is over.
    Ended(Outcome),
}

impl Behaviour for Yields {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        match std::mem::replace(&mut self.step, Step::Inner) {
            Step::Inner => {}
            Step::Yielded(action) => return action,
            Step::Done => {
                self.step = Step::Ended(context.outcome);
                self.yields += 1;
                return Action::Yield;
            }
            Step::Ended(outcome) => context.outcome = outcome,
        }
        let action = self.inner.next(context);
        if !matches!(action, Action::Read { .. } | Action::Write { .. }) {
            return action;
        }
        match self.side {
            Side::Before => {
                self.step = Step::Yielded(action);
                self.yields += 1;
                Action::Yield
            }
            Side::After => {
                self.step = Step::Done;
                action
            }
        }
    }

    fn forks_processes(&self) -> bool {
        self.inner.forks_processes()
    }

    fn is_background(&self) -> bool {
        self.inner.is_background()
    }

    fn report(&self, counters: &mut Counters) {
        self.inner.report(counters);
        counters.add("chat.io_yields", self.yields);
    }
}
