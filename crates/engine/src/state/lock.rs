//! Locks: who holds each and who spins for it.

use std::cell::{Cell, RefCell};

use elsa::vec::FrozenVec;
use schedlab_machine::LineRef;
use schedlab_trace::CpuId;

/// A lock by its place in [`Locks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockIx(pub u32);

/// One lock.
pub(crate) struct Lock {
    pub line: LineRef,
    pub name: Box<str>,
    /// No CPU holds it from this instant on, and none spins for it; [`NOT_FREE`] otherwise. Its last holder may have
    /// run ahead and released it in the future of others.
    pub free_from: Cell<u64>,
    pub holder: Cell<Option<CpuId>>,
    pub acquired_at: Cell<u64>,
    /// In the order of arrival.
    pub spinners: RefCell<Vec<CpuId>>,
    pub has_spinners: Cell<bool>,
    /// The first spinner watches for the instant from which it is free.
    pub watched: Cell<bool>,
}

/// No instant: a lock is held, or others are first.
pub(crate) const NOT_FREE: u64 = u64::MAX;

/// All locks of a run, in the order of first use.
#[derive(Default)]
pub(crate) struct Locks {
    pub locks: FrozenVec<Box<Lock>>,
}

impl Locks {
    pub fn add(&self, line: LineRef, name: &str) -> LockIx {
        self.locks.push(Box::new(Lock {
            line,
            name: name.into(),
            free_from: Cell::new(0),
            holder: Cell::new(None),
            acquired_at: Cell::new(0),
            spinners: RefCell::default(),
            has_spinners: Cell::new(false),
            watched: Cell::new(false),
        }));
        LockIx(self.locks.len() as u32 - 1)
    }

    #[inline]
    pub fn get(&self, lock: LockIx) -> &Lock {
        let known = self.locks.get(lock.0 as usize);
        known.expect("a lock has its place from here")
    }

    pub fn iter(&self) -> impl Iterator<Item = (LockIx, &Lock)> {
        (0..).map(LockIx).zip(self.locks.iter())
    }

    pub fn holder(&self, lock: LockIx) -> Option<CpuId> {
        self.get(lock).holder.get()
    }
}

impl Lock {
    /// Gives the free lock to `cpu`, which holds `held`.
    ///
    /// # Panics
    /// If another CPU holds it.
    #[inline(always)]
    pub fn give_to(&self, cpu: CpuId, held: &Held) {
        let holder = self.holder.replace(Some(cpu));
        assert!(holder.is_none(), "{cpu} gets a lock that {holder:?} holds");
        self.free_from.set(NOT_FREE);
        held.all.set(held.all.get() + 1);
    }

    /// Takes the lock from `cpu`, which holds `held`. It is not free before [`Lock::leave`], or goes to a spinner.
    ///
    /// # Panics
    /// If `cpu` does not hold it.
    #[inline(always)]
    pub fn take_from(&self, cpu: CpuId, held: &Held) {
        let holder = self.holder.replace(None);
        assert!(
            holder == Some(cpu),
            "{cpu} releases a lock that {holder:?} holds"
        );
        held.all.set(held.all.get() - 1);
    }

    /// It is free from `now` on, as nobody spins for it.
    #[inline(always)]
    pub fn leave(&self, now: u64) {
        self.free_from.set(now);
    }

    /// Nobody else can hold it: a policy is loaded or unloaded, and who was interrupted by the run's end does not go on.
    #[cold]
    pub fn give_alone(&self, cpu: CpuId) {
        self.holder.set(Some(cpu));
        self.free_from.set(NOT_FREE);
    }

    /// [`Lock::give_alone`] ends.
    #[cold]
    pub fn leave_alone(&self) {
        self.holder.set(None);
        self.free_from.set(0);
    }
}

/// Counts the locks that a CPU holds.
#[derive(Default)]
pub(crate) struct Held {
    /// Of any kind.
    pub all: Cell<u32>,
    /// Locks of the policy, taken inside the current op.
    pub policy: Cell<u32>,
}
