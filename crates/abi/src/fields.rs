//! Where the scheduling fields of tasks lie for the cache model.

use schedlab_machine::{LineRef, Machine, TaskAddresses};
use schedlab_trace::TaskId;

/// Where the fields of one task lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// They have not been accessed yet.
    Unknown,
    /// In one line.
    Line(LineRef),
    /// In several lines.
    Lines,
}

/// The scheduling fields of all tasks.
pub struct Fields {
    addresses: TaskAddresses,
    bytes: u32,
    /// By task: a choice looks at hundreds of them, and should not search for their lines each time.
    places: Vec<Place>,
}

impl Fields {
    /// Those on `machine`.
    pub fn new(machine: &Machine) -> Fields {
        Fields {
            addresses: TaskAddresses::new(machine),
            bytes: machine.task_layout.examine_bytes,
            places: Vec::new(),
        }
    }

    /// Where a task's fields lie.
    #[inline(always)]
    pub fn place(&self, task: TaskId) -> Place {
        let known = self.places.get(task.index());
        known.copied().unwrap_or(Place::Unknown)
    }

    /// The address of a task's fields, and how many bytes they have.
    #[inline]
    pub fn range(&self, task: TaskId) -> (u64, u32) {
        (self.addresses.of(task), self.bytes)
    }

    /// Remembers where the fields of `task` lie: in `line`, or in several.
    pub fn remember(&mut self, task: TaskId, line: Option<LineRef>) {
        if self.places.len() <= task.index() {
            self.places.resize(task.index() + 1, Place::Unknown);
        }
        self.places[task.index()] = line.map_or(Place::Lines, Place::Line);
    }
}

#[cfg(test)]
mod tests {
    use schedlab_machine::CacheModel;

    use super::*;

    #[test]
    fn a_line_is_known_of_the_task_that_it_is_of() {
        let machine = Machine::builtin("netfinity-8500r").unwrap();
        let mut cache = CacheModel::new(&machine);
        let mut fields = Fields::new(&machine);
        assert_eq!(fields.place(TaskId(3)), Place::Unknown);
        for task in [3, 7].map(TaskId) {
            let (address, bytes) = fields.range(task);
            let line = cache.only_line(address, bytes);
            fields.remember(task, line);
            assert_eq!(Some(fields.place(task)), line.map(Place::Line));
        }
        assert_ne!(fields.place(TaskId(3)), fields.place(TaskId(7)));
        assert_eq!(fields.place(TaskId(4)), Place::Unknown);
        fields.remember(TaskId(4), None);
        assert_eq!(fields.place(TaskId(4)), Place::Lines);
    }
}
