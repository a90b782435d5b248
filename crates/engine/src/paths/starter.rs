//! The main thread of the workload's program: it creates the first tasks one after another, then waits for them.
//!
//! It has at least the priority of each task that it creates: the most favourable nice level among them, and where some
//! are real-time tasks, the highest of their priorities. If a task that it has created takes its CPU all the same, for
//! more than [`PATIENCE`], it goes on as a real-time task (SCHED_FIFO). So none of them keeps it from creating the others.
//!
//! Model: in real programs a gate does this, where threads sleep until all exist. The simulation has no gate: the
//! scheduler would place sleepers, and then wake all of them at one instant. The end of a task does not wake the main
//! thread.

use std::iter::Peekable;
use std::vec;

use schedlab_trace::{Duration, Instant};
use schedlab_workload::{Action, Behaviour, Context, ObjectId, SchedClass, TaskSpec};

/// How long the main thread waits for its CPU as a task like the others. With 1 ms it takes the CPU from the first of as
/// many hogs as CPUs, and the numbers of CPUs decide where `o1` puts that one (`numbering.rs` of `schedlab-sim`).
const PATIENCE: Duration = Duration::from_us(12_000);

struct Starter {
    tasks: Peekable<vec::IntoIter<TaskSpec>>,
    /// When the last fork began, or when the last sleep was to end.
    began: Option<Instant>,
    is_real_time: bool,
    /// An object that is never notified.
    done: ObjectId,
}

impl Behaviour for Starter {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        let is_late = self
            .began
            .take()
            .is_some_and(|began| context.now > began + PATIENCE);
        if is_late && !self.is_real_time {
            self.is_real_time = true;
            return Action::SetClass(SchedClass::Fifo(1));
        }
        let next = self.tasks.peek();
        self.began = next.map(|spec| spec.start.max(context.now));
        match self.tasks.next_if(|spec| spec.start <= context.now) {
            Some(spec) => Action::Fork(Box::new(spec)),
            None => match self.tasks.peek() {
                Some(later) => Action::SleepUntil(later.start),
                None => Action::Suspend(self.done),
            },
        }
    }
}

/// The main thread that creates `tasks`, tasks of the same start time in their order.
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
            began: None,
            is_real_time: class != SchedClass::Normal,
            done,
        }),
    }
}
