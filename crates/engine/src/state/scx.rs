//! State of sched_ext: of a CPU.

use std::cell::Cell;
use std::mem::offset_of;

/// A CPU's part (`struct scx_rq`), besides its [deferred work](crate::state::deferred) and its
/// [kicks](crate::state::kick). The order is that in memory.
#[derive(Default)]
#[repr(C)]
pub(crate) struct ScxRq {
    /// A task is being enqueued because it wakes (`SCX_RQ_IN_WAKEUP`).
    in_wakeup: Cell<bool>,
    /// It is about to choose (`SCX_RQ_IN_BALANCE`).
    in_balance: Cell<bool>,
    /// A higher class has it (`cpu_released`).
    released: Cell<bool>,
    /// Its tasks of the class, the running one included.
    nr_running: Cell<u32>,
    /// Flags of every enqueue here until they are taken back.
    extra_enq_flags: Cell<u64>,
    /// Tasks on its local DSQ that were promised the CPU at once (`SCX_ENQ_IMMED`).
    nr_immed: Cell<u32>,
}

impl ScxRq {
    /// The part before this is looked at by nearly every switch.
    pub const HOT_BYTES: usize = offset_of!(ScxRq, nr_immed);

    #[inline(always)]
    pub fn begin_wakeup(&self) {
        self.in_wakeup.set(true);
    }

    /// An enqueue ends, whatever it was for.
    #[inline(always)]
    pub fn end_wakeup(&self) {
        self.in_wakeup.set(false);
    }

    #[inline(always)]
    pub fn in_wakeup(&self) -> bool {
        self.in_wakeup.get()
    }

    #[inline(always)]
    pub fn begin_balance(&self) {
        self.in_balance.set(true);
    }

    #[inline(always)]
    pub fn end_balance(&self) {
        self.in_balance.set(false);
    }

    #[inline(always)]
    pub fn in_balance(&self) -> bool {
        self.in_balance.get()
    }

    /// A higher class takes the CPU. Returns whether one had it already.
    #[inline(always)]
    pub fn release(&self) -> bool {
        self.released.replace(true)
    }

    /// The class gets the CPU. Returns whether a higher one had it.
    #[inline(always)]
    pub fn acquire(&self) -> bool {
        self.released.replace(false)
    }

    pub fn is_released(&self) -> bool {
        self.released.get()
    }

    /// A task joins the run queue.
    #[inline(always)]
    pub fn add(&self) {
        self.nr_running.set(self.nr_running.get() + 1);
    }

    /// A task leaves the run queue.
    #[inline(always)]
    pub fn sub(&self) {
        self.nr_running.set(self.nr_running.get() - 1);
    }

    pub fn nr_running(&self) -> u32 {
        self.nr_running.get()
    }

    /// From now on, tasks are enqueued with these flags, too.
    #[inline(always)]
    pub fn enqueue_with(&self, flags: u64) {
        self.extra_enq_flags.set(flags);
    }

    #[inline(always)]
    pub fn extra_enq_flags(&self) -> u64 {
        self.extra_enq_flags.get()
    }

    pub fn add_immed(&self) {
        self.nr_immed.set(self.nr_immed.get() + 1);
    }

    pub fn sub_immed(&self) {
        self.nr_immed.set(self.nr_immed.get() - 1);
    }

    #[inline(always)]
    pub fn has_immed(&self) -> bool {
        self.nr_immed.get() > 0
    }
}
