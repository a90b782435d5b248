//! State of the real-time class: of a task and of a CPU.

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;

use schedlab_trace::TaskId;

/// Where a task is inserted among its equals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Place {
    #[default]
    First,
    /// Behind one that goes before it.
    Second,
    Last,
}

/// A task's part (`struct sched_rt_entity`).
#[derive(Default)]
pub(crate) struct Entity {
    /// The rest of its slice under SCHED_RR, in ticks; 0 before the first one.
    slice_left: Cell<u32>,
}

impl Entity {
    /// Begins a slice of `slice` ticks if it has none.
    pub fn begin_slice(&self, slice: u32) {
        if self.slice_left.get() == 0 {
            self.slice_left.set(slice);
        }
    }

    /// Counts a tick of its slice. Returns whether that was the last one; then it has another slice.
    pub fn tick(&self, slice: u32) -> bool {
        let left = self.slice_left.get() - 1;
        self.slice_left.set(if left == 0 { slice } else { left });
        left == 0
    }
}

/// A CPU's part (`struct rt_rq`).
#[derive(Default)]
pub(crate) struct RtRq {
    /// Waiting tasks, highest first.
    queue: RefCell<VecDeque<TaskId>>,
    /// Where the running task is put back.
    place: Cell<Place>,
}

impl RtRq {
    reads! { place: Place }

    sets! {
        put_back(place: Place): place = place;
    }

    pub fn waits(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    pub fn first(&self) -> Option<TaskId> {
        self.queue.borrow().front().copied()
    }

    pub fn waiting(&self) -> Ref<'_, VecDeque<TaskId>> {
        self.queue.borrow()
    }

    /// Inserts by priority.
    pub fn insert(&self, task: TaskId, place: Place, priority_of: impl Fn(TaskId) -> u8) {
        let mut queue = self.queue.borrow_mut();
        let priority = priority_of(task);
        let first = queue.partition_point(|&other| priority_of(other) > priority);
        let end = queue.partition_point(|&other| priority_of(other) >= priority);
        let index = match place {
            Place::First => first,
            Place::Second => end.min(first + 1),
            Place::Last => end,
        };
        queue.insert(index, task);
    }

    pub fn remove(&self, task: TaskId) {
        self.queue.borrow_mut().retain(|&other| other != task);
    }
}
