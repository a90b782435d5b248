//! The part of a CPU that the virtual kernel and policy code both reach: above all its time, which passes in both.

use std::cell::{Cell, RefCell};

use schedlab_trace::{CpuId, Instant};

use crate::contract::op::OpKind;

/// The counts of a policy's probes, per CPU. Both worlds have the same counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Probes {
    /// Candidates looked at.
    pub examined: u64,
    /// Entries into a recalculation of all counters.
    pub recalculations: u64,
    /// Chosen task last ran on another CPU.
    pub picked_elsewhere: u64,
    /// Look-ups of a task that failed.
    pub failed_lookups: u64,
    /// Single-CPU and migration-disabled tasks sent to their local queue.
    pub pinned_local: u64,
}

/// The part of a CPU that its policy code reaches. The order is the order in memory, the most used field first.
#[derive(Debug)]
#[repr(C)]
pub struct ThisCpu {
    /// Its local time in nanoseconds.
    pub now: Cell<u64>,
    /// Picoseconds below a nanosecond that have not been added to `now` yet.
    pub carry_ps: Cell<u32>,
    /// Which CPU it is.
    pub id: CpuId,
    /// The op under way; where it is nested, the inner one.
    pub op: Cell<Option<OpKind>>,
    /// Its probe counters.
    pub probes: RefCell<Probes>,
}

impl ThisCpu {
    /// A CPU at the beginning of time.
    pub fn new(id: CpuId) -> Self {
        ThisCpu {
            now: Cell::new(0),
            carry_ps: Cell::new(0),
            id,
            op: Cell::new(None),
            probes: RefCell::default(),
        }
    }

    /// The local time.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant::from_ns(self.now.get())
    }

    /// Lets `ns` nanoseconds pass.
    #[inline]
    pub fn charge_ns(&self, ns: u64) {
        self.now.set(self.now.get() + ns);
    }

    /// Lets `ps` picoseconds pass, without a look whether 2^64 ns are over, which are 584 years.
    #[inline]
    pub fn charge_ps(&self, ps: u64) {
        let total = u64::from(self.carry_ps.get()).wrapping_add(ps);
        self.now.set(self.now.get().wrapping_add(total / 1_000));
        self.carry_ps.set((total % 1_000) as u32);
    }
}
