//! Kicks of CPUs (`scx_bpf_kick_cpu()`): those that an interrupt is to carry out, and the wait for their effect.

use std::cell::{Cell, RefCell};

use schedlab_trace::CpuId;

use crate::contract::consts::kick;

/// How far a CPU is that has kicked others and is to wait for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SyncWait {
    /// It waits for nobody. → `Asked`
    None,
    /// It waits as soon as sched_ext has chosen (`rq->scx.kick_sync_pending`). → `Due`
    Asked,
    /// It waits at the end of this schedule() (`kick_sync_bal_cb`). → `None`
    Due,
}

/// A CPU's part. The order is that in memory, what a switch looks at first.
#[repr(C)]
pub(crate) struct Kicks {
    /// How often it has been through a choice (`rq->scx.kick_sync`).
    sync: Cell<u64>,
    wait: Cell<SyncWait>,
    /// The CPUs that its interrupt is to kick, with the flags.
    noted: RefCell<Vec<(CpuId, u64)>>,
    /// CPUs to wait for, with their `sync` when they were kicked.
    waits: RefCell<Vec<(CpuId, u64)>>,
}

impl Default for Kicks {
    fn default() -> Self {
        Kicks {
            sync: Cell::new(0),
            wait: Cell::new(SyncWait::None),
            noted: RefCell::default(),
            waits: RefCell::default(),
        }
    }
}

impl Kicks {
    /// Counts a choice. One by one, so it never overflows.
    #[inline]
    pub fn count_sync(&self) {
        self.sync.set(self.sync.get().wrapping_add(1));
    }

    pub fn sync(&self) -> u64 {
        self.sync.get()
    }

    /// Notes that `cpu` is to be kicked.
    pub fn note(&self, cpu: CpuId, flags: u64) {
        let mut kicks = self.noted.borrow_mut();
        match kicks.iter_mut().find(|(kicked, _)| *kicked == cpu) {
            // A kick regardless of idleness contains one that is for idle CPUs only.
            Some((_, noted)) => {
                *noted = (*noted & flags & kick::IDLE) | ((*noted | flags) & !kick::IDLE);
            }
            None => kicks.push((cpu, flags)),
        }
    }

    /// Puts the kicks into the order of CPU numbers, those for idle CPUs last.
    pub fn sort(&self) {
        let mut noted = self.noted.borrow_mut();
        noted.sort_unstable_by_key(|&(cpu, flags)| std::cmp::Reverse((flags & kick::IDLE, cpu)));
    }

    /// Takes the next kick in that order.
    pub fn next(&self) -> Option<(CpuId, u64)> {
        self.noted.borrow_mut().pop()
    }

    /// Adds `cpu`, whose count is `sync`, to those to wait for.
    pub fn wait_for(&self, cpu: CpuId, sync: u64) {
        let mut waits = self.waits.borrow_mut();
        waits.retain(|&(kicked, _)| kicked != cpu);
        waits.push((cpu, sync));
    }

    /// Forgets the CPUs that have been through a choice, by `waits` of each and the count that it had. Returns
    /// whether any is left.
    pub fn still_waits(&self, waits: impl Fn(CpuId, u64) -> bool) -> bool {
        let mut left = self.waits.borrow_mut();
        left.retain(|&(cpu, sync)| waits(cpu, sync));
        !left.is_empty()
    }

    /// Makes it wait for those that it has kicked, after its next choice.
    pub fn ask_to_wait(&self) {
        assert_ne!(
            self.wait.get(),
            SyncWait::Due,
            "a kicked CPU is waited for already"
        );
        self.wait.set(SyncWait::Asked);
    }

    /// Makes a wait that was asked for due, as sched_ext has chosen.
    #[inline]
    pub fn make_due(&self) {
        if self.wait.get() == SyncWait::Asked {
            self.wait.set(SyncWait::Due);
        }
    }

    #[inline(always)]
    pub fn wait_is_due(&self) -> bool {
        self.wait.get() == SyncWait::Due
    }

    /// Begins the wait if it is due. Returns whether it is.
    pub fn begin_wait(&self) -> bool {
        let is_due = self.wait_is_due();
        if is_due {
            self.wait.set(SyncWait::None);
        }
        is_due
    }
}
