//! Where the scheduling fields of tasks lie for the cache model.

use schedlab_machine::{LineRef, Machine, TaskAddresses};
use schedlab_trace::TaskId;

/// The scheduling fields of all tasks.
pub struct Fields {
    addresses: TaskAddresses,
    bytes: u32,
    /// The line of each task that was looked at, if its fields lie in one: a choice looks at hundreds of tasks, and
    /// should not search for their lines each time.
    lines: Vec<Option<LineRef>>,
}

impl Fields {
    /// Those on `machine`.
    pub fn new(machine: &Machine) -> Fields {
        Fields {
            addresses: TaskAddresses::new(machine),
            bytes: machine.task_layout.examine_bytes,
            lines: Vec::new(),
        }
    }

    /// The line of a task's fields, if that is known.
    #[inline(always)]
    pub fn line(&self, task: TaskId) -> Option<LineRef> {
        self.lines.get(task.index()).copied().flatten()
    }

    /// The address of a task's fields, and how many bytes they have.
    #[inline]
    pub fn range(&self, task: TaskId) -> (u64, u32) {
        (self.addresses.of(task), self.bytes)
    }

    /// Remembers the line of the fields of `task`, one of `nr_tasks`, if they lie in one.
    pub fn remember(&mut self, task: TaskId, line: Option<LineRef>, nr_tasks: usize) {
        if self.lines.len() < nr_tasks {
            self.lines.resize(nr_tasks, None);
        }
        // What a policy takes for a task's number may be anything.
        if let Some(known) = self.lines.get_mut(task.index()) {
            *known = line;
        }
    }
}
