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
    /// The number of its holder, or [`NOBODY`]: comparing it takes one instruction.
    holder: Cell<u32>,
    pub acquired_at: Cell<u64>,
    /// In the order of arrival.
    pub spinners: RefCell<Vec<CpuId>>,
    pub has_spinners: Cell<bool>,
    /// The first spinner watches for the instant from which it is free.
    pub watched: Cell<bool>,
}

/// No instant: a lock is held, or others are first.
pub(crate) const NOT_FREE: u64 = u64::MAX;

/// No CPU.
const NOBODY: u32 = u32::MAX;

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
            holder: Cell::new(NOBODY),
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
        self.get(lock).holder()
    }
}

impl Lock {
    /// Returns the CPU that holds it.
    #[inline]
    pub fn holder(&self) -> Option<CpuId> {
        let holder = self.holder.get();
        (holder != NOBODY).then_some(CpuId(holder))
    }

    /// Gives the free lock to `cpu`, which holds `held`.
    ///
    /// # Panics
    /// If another CPU holds it.
    #[inline(always)]
    pub fn give_to(&self, cpu: CpuId, held: &Held) {
        let holder = self.holder.replace(cpu.0);
        if holder != NOBODY {
            wrong_holder(self, cpu, "gets", holder);
        }
        self.free_from.set(NOT_FREE);
        held.one_more();
    }

    /// Takes the lock from `cpu`, which holds `held`. It is not free before [`Lock::leave`], or goes to a spinner.
    ///
    /// # Panics
    /// If `cpu` does not hold it.
    #[inline(always)]
    pub fn take_from(&self, cpu: CpuId, held: &Held) {
        let holder = self.holder.replace(NOBODY);
        if holder != cpu.0 {
            wrong_holder(self, cpu, "releases", holder);
        }
        held.one_less();
    }

    /// It is free from `now` on, as nobody spins for it.
    #[inline(always)]
    pub fn leave(&self, now: u64) {
        self.free_from.set(now);
    }

    /// Nobody else can hold it: a policy is loaded or unloaded, and who was interrupted by the run's end does not go on.
    #[cold]
    pub fn give_alone(&self, cpu: CpuId) {
        self.holder.set(cpu.0);
        self.free_from.set(NOT_FREE);
    }

    /// [`Lock::give_alone`] ends.
    #[cold]
    pub fn leave_alone(&self) {
        self.holder.set(NOBODY);
        self.free_from.set(0);
    }
}

/// Fails the run. Out of line, so that the check of the holder is one comparison.
#[cold]
#[inline(never)]
fn wrong_holder(lock: &Lock, cpu: CpuId, does: &str, holder: u32) -> ! {
    let holder = (holder != NOBODY).then_some(CpuId(holder));
    panic!("{cpu} {does} {}, held by {holder:?}", lock.name);
}

/// Counts the locks that a CPU holds.
#[derive(Default)]
pub(crate) struct Held {
    /// Of any kind; only the full check compares it, so only builds with debug assertions count it.
    pub all: Cell<u32>,
    /// Locks of the policy, taken inside the current op.
    pub policy: Cell<u32>,
}

impl Held {
    #[inline(always)]
    fn one_more(&self) {
        if cfg!(debug_assertions) {
            self.all.set(self.all.get() + 1);
        }
    }

    #[inline(always)]
    fn one_less(&self) {
        if cfg!(debug_assertions) {
            self.all.set(self.all.get() - 1);
        }
    }
}
