//! Which CPUs there are and which are online.

use std::cell::{Cell, Ref, RefCell};
use std::vec::IntoIter;

use schedlab_trace::{CpuId, CpuSet, Instant};

use crate::contract::scenario::Hotplug;

/// The CPUs of the machine, and the changes of what is online that are to come.
pub(crate) struct Online {
    /// Those on which tasks may be put (`cpu_active_mask`).
    set: RefCell<CpuSet>,
    /// They are all of the machine's.
    all: Cell<bool>,
    nr_cpus: usize,
    possible: CpuSet,
    changes: RefCell<IntoIter<Hotplug>>,
}

impl Online {
    /// All of `nr_cpus`, at first.
    pub fn new(nr_cpus: usize, changes: Vec<Hotplug>) -> Online {
        Online {
            set: RefCell::new(CpuSet::all(nr_cpus)),
            all: Cell::new(true),
            nr_cpus,
            possible: CpuSet::all(nr_cpus),
            changes: RefCell::new(changes.into_iter()),
        }
    }

    /// `cpu_possible_mask`: all of the machine's.
    #[inline]
    pub fn possible(&self) -> &CpuSet {
        &self.possible
    }

    /// Takes the next change that is to come.
    pub fn take_change(&self) -> Option<Hotplug> {
        self.changes.borrow_mut().next()
    }

    /// Returns when the next change comes.
    pub fn next_change(&self) -> Option<Instant> {
        let changes = self.changes.borrow();
        changes.as_slice().first().map(|change| change.at)
    }

    #[inline]
    pub fn is_all(&self) -> bool {
        self.all.get()
    }

    /// The set, which is not to be changed while the answer is kept.
    #[inline]
    pub fn borrow(&self) -> Ref<'_, CpuSet> {
        self.set.borrow()
    }

    /// Whether there is such a CPU, and it is online.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        if self.all.get() {
            cpu.index() < self.nr_cpus
        } else {
            self.set.borrow().contains(cpu)
        }
    }

    /// `set_cpu_active()`.
    pub fn set(&self, cpu: CpuId, online: bool) {
        let mut set = self.set.borrow_mut();
        if online {
            set.insert(cpu);
        } else {
            set.remove(cpu);
        }
        self.all.set(set.len() == self.nr_cpus);
    }
}
