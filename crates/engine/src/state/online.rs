//! Which CPUs are online.

use std::cell::{Cell, Ref, RefCell};

use schedlab_trace::{CpuId, CpuSet};

/// The CPUs on which tasks may be put (`cpu_active_mask`).
pub(crate) struct Online {
    set: RefCell<CpuSet>,
    /// They are all of the machine's.
    all: Cell<bool>,
    nr_cpus: usize,
}

impl Online {
    /// All of `nr_cpus`.
    pub fn new(nr_cpus: usize) -> Online {
        Online {
            set: RefCell::new(CpuSet::all(nr_cpus)),
            all: Cell::new(true),
            nr_cpus,
        }
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
