//! The main thread of the workload's program: it creates the first tasks one after another, then waits for them.
//!
//! It has at least the priority of each task that it creates, so that none of them keeps it from creating the others:
//! the most favourable nice level among them, and where some are real-time tasks, the highest of their priorities.
//!
//! Model: the end of a task does not wake it.

use std::iter::Peekable;
use std::vec;

use schedlab_trace::Instant;
use schedlab_workload::{Action, Behaviour, Context, ObjectId, SchedClass, TaskSpec};

struct Starter {
    tasks: Peekable<vec::IntoIter<TaskSpec>>,
    /// What nobody ever notifies.
    done: ObjectId,
}

impl Behaviour for Starter {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        match self.tasks.next_if(|spec| spec.start <= context.now) {
            Some(spec) => Action::Fork(Box::new(spec)),
            None => match self.tasks.peek() {
                Some(later) => Action::SleepUntil(later.start),
                None => Action::Suspend(self.done),
            },
        }
    }
}

/// The main thread that creates `tasks`, those of the same start time in their order.
pub(crate) fn spec(mut tasks: Vec<TaskSpec>, done: ObjectId) -> TaskSpec {
    tasks.sort_by_key(|spec| spec.start);
    let nice = tasks.iter().map(|spec| spec.nice).min();
    let priorities = tasks.iter().filter_map(|spec| match spec.class {
        SchedClass::Fifo(priority) | SchedClass::RoundRobin(priority) => Some(priority),
        _ => None,
    });
    let class = priorities
        .max()
        .map_or(SchedClass::Normal, SchedClass::Fifo);
    // Threads of one process are threads of the main thread's.
    let mut spaces = tasks.iter().map(|spec| spec.address_space);
    let first = spaces.next().flatten();
    let address_space = if spaces.all(|space| space == first) {
        first
    } else {
        let spaces = tasks.iter().filter_map(|spec| spec.address_space);
        spaces.max().and_then(|last| last.checked_add(1))
    };
    TaskSpec {
        comm: "main".to_owned(),
        nice: nice.unwrap_or(0),
        class,
        affinity: None,
        address_space,
        start: Instant::ZERO,
        working_set_bytes: 0,
        behaviour: Box::new(Starter {
            tasks: tasks.into_iter().peekable(),
            done,
        }),
    }
}
