//! State of the real-time class: of a CPU.

use std::cell::{Cell, RefCell};
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

/// A CPU's part (`struct rt_rq`).
#[derive(Default)]
pub(crate) struct RtRq {
    /// Waiting tasks, highest first.
    pub queue: RefCell<VecDeque<TaskId>>,
    /// Where the running task is put back.
    pub place: Cell<Place>,
}
