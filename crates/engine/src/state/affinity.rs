//! The CPUs that a task may use.

use std::cell::{Cell, Ref, RefCell};

use schedlab_trace::CpuSet;

/// `task_struct::cpus_mask`, with the number of its CPUs.
pub(crate) struct Affinity {
    /// `nr_cpus_allowed`.
    nr: Cell<u32>,
    /// `None`: all CPUs.
    set: RefCell<Option<CpuSet>>,
}

impl Affinity {
    /// The CPUs of `set`, or all of `nr_cpus`.
    pub fn new(set: Option<CpuSet>, nr_cpus: usize) -> Affinity {
        let set = set.map(|set| set.resized(nr_cpus));
        Affinity {
            nr: Cell::new(set.as_ref().map_or(nr_cpus, CpuSet::len) as u32),
            set: RefCell::new(set),
        }
    }

    /// Allows the CPUs of `set`.
    pub fn allow(&self, set: CpuSet) {
        self.nr.set(set.len() as u32);
        *self.set.borrow_mut() = Some(set);
    }

    /// Allows all of `nr_cpus`.
    pub fn allow_all(&self, nr_cpus: usize) {
        self.nr.set(nr_cpus as u32);
        *self.set.borrow_mut() = None;
    }

    #[inline(always)]
    pub fn nr(&self) -> u32 {
        self.nr.get()
    }

    /// Returns the set, `None` for all CPUs, which is not to be changed while the answer is kept.
    #[inline]
    pub fn borrow(&self) -> Ref<'_, Option<CpuSet>> {
        self.set.borrow()
    }
}
