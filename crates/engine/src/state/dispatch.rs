//! The insertions of `ops.dispatch()` of a CPU, until they are carried out.

use std::cell::{Cell, RefCell};

use schedlab_trace::TaskId;

/// An entry of the dispatch buffer (`struct scx_dsp_buf_ent`).
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub task: TaskId,
    pub qseq: u64,
    pub dsq: u64,
    pub enq_flags: u64,
}

/// A CPU's part (`struct scx_dsp_ctx`).
#[derive(Default)]
pub(crate) struct Dispatch {
    buf: RefCell<Vec<Entry>>,
    /// Tasks that a call of the op has dispatched.
    nr_tasks: Cell<u32>,
    /// The task whose insertion is carried out now.
    inserting: Cell<Option<TaskId>>,
}

impl Dispatch {
    reads! { inserting: Option<TaskId> }

    sets! {
        /// Begins a call of the op.
        begin(): nr_tasks = 0;
        /// Begins to carry out an insertion of `task`, the op's or another one.
        begin_insertion(task: TaskId): inserting = Some(task);
        end_insertion(): inserting = None;
    }

    /// Counts tasks that it has dispatched.
    #[inline]
    pub fn count(&self, nr_tasks: u32) {
        self.nr_tasks.set(self.nr_tasks.get() + nr_tasks);
    }

    /// Returns whether it has dispatched any.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.nr_tasks.get() > 0
    }

    /// Adds an insertion. Returns false, without it, if `max` insertions wait already.
    #[inline]
    pub fn push(&self, max: u32, entry: Entry) -> bool {
        let mut buf = self.buf.borrow_mut();
        let fits = buf.len() < max as usize;
        if fits {
            buf.push(entry);
        }
        fits
    }

    /// Takes the last insertion back. Returns whether there was one.
    pub fn cancel(&self) -> bool {
        self.buf.borrow_mut().pop().is_some()
    }

    /// Returns how many insertions wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.buf.borrow().len()
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<Entry> {
        self.buf.borrow().get(index).copied()
    }

    /// Forgets the insertions; so many have been carried out.
    #[inline]
    pub fn flushed(&self, nr_tasks: u32) {
        self.count(nr_tasks);
        self.buf.borrow_mut().clear();
    }
}
