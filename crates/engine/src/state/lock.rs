//! Locks: who holds each and who spins for it.

use std::cell::{Cell, Ref, RefCell};

use elsa::vec::FrozenVec;
use rand_core::RngCore;
use schedlab_machine::LineRef;
use schedlab_trace::CpuId;
use schedlab_workload::Rng;

use crate::contract::policy::PolicyLock;

/// A lock by its place in [`Locks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockIx(pub u32);

/// One lock.
pub(crate) struct Lock {
    pub line: LineRef,
    pub name: Box<str>,
    /// No CPU holds it from this instant on, and none spins for it; [`NOT_FREE`] otherwise. Its last holder may have
    /// run ahead and released it in the future of others.
    free_from: Cell<u64>,
    /// The number of its holder, or [`NOBODY`]: comparing it takes one instruction.
    holder: Cell<u32>,
    /// Since when its holder has had it.
    acquired_at: Cell<u64>,
    /// In the order of arrival.
    spinners: RefCell<Vec<CpuId>>,
    has_spinners: Cell<bool>,
    /// The first spinner watches for the instant from which it is free.
    watched: Cell<bool>,
}

/// No instant: a lock is held, or others are first.
const NOT_FREE: u64 = u64::MAX;

/// No CPU.
const NOBODY: u32 = u32::MAX;

/// All locks of a run, in the order of first use.
pub(crate) struct Locks {
    locks: FrozenVec<Box<Lock>>,
    /// Of each lock of the policy, which one it is, once it has been taken.
    of_policy: RefCell<Vec<Option<LockIx>>>,
    /// The big lock, once it has been taken, if the profile has one.
    big_kernel_lock: Cell<Option<LockIx>>,
    /// Chooses among spinners.
    random: RefCell<Rng>,
}

impl Locks {
    reads! { big_kernel_lock: Option<LockIx> }

    sets! {
        set_big_kernel_lock(lock: LockIx): big_kernel_lock = Some(lock);
    }

    pub fn new(random: Rng) -> Locks {
        Locks {
            locks: FrozenVec::new(),
            of_policy: RefCell::default(),
            big_kernel_lock: Cell::new(None),
            random: RefCell::new(random),
        }
    }

    /// Returns a number below `nr`, each as likely.
    pub fn draw(&self, nr: u64) -> usize {
        let random = u64::from(self.random.borrow_mut().next_u32());
        ((random * nr) >> 32) as usize
    }

    /// Returns the policy's lock with this number, if it has been taken.
    pub fn of_policy(&self, lock: PolicyLock) -> Option<LockIx> {
        let known = self.of_policy.borrow();
        known.get(lock.0 as usize).copied().flatten()
    }

    /// Returns the number by which the policy knows a lock, if it is one of its own.
    pub fn number_of(&self, lock: LockIx) -> Option<PolicyLock> {
        let known = self.of_policy.borrow();
        let index = known.iter().position(|known| *known == Some(lock))?;
        Some(PolicyLock(index as u32))
    }

    pub fn set_of_policy(&self, number: PolicyLock, lock: LockIx) {
        let index = number.0 as usize;
        let mut known = self.of_policy.borrow_mut();
        if known.len() <= index {
            known.resize(index + 1, None);
        }
        known[index] = Some(lock);
    }

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
    reads! { acquired_at: u64, has_spinners: bool }

    sets! {
        acquire(now: u64): acquired_at = now;
        /// Leaves it free from `now` on, as nobody spins for it.
        leave(now: u64): free_from = now;
    }

    /// Returns the CPU that holds it.
    #[inline]
    pub fn holder(&self) -> Option<CpuId> {
        let holder = self.holder.get();
        (holder != NOBODY).then_some(CpuId(holder))
    }

    /// Returns whether no CPU holds it at `now` or spins for it.
    #[inline(always)]
    pub fn is_free(&self, now: u64) -> bool {
        self.free_from.get() <= now
    }

    pub fn spinners(&self) -> Ref<'_, Vec<CpuId>> {
        self.spinners.borrow()
    }

    /// Adds `cpu` to the spinners. Returns the instant of a release that is known already, if it is to watch for that.
    pub fn add_spinner(&self, cpu: CpuId) -> Option<u64> {
        self.spinners.borrow_mut().push(cpu);
        self.has_spinners.set(true);
        let free_from = self.free_from.replace(NOT_FREE);
        let watches = self.holder().is_none() && !self.watched.replace(true);
        watches.then_some(free_from)
    }

    /// Takes the spinner that gets the lock, by its place.
    pub fn take_spinner(&self, index: usize) -> CpuId {
        let mut spinners = self.spinners.borrow_mut();
        let cpu = spinners.remove(index);
        self.has_spinners.set(!spinners.is_empty());
        self.watched.set(false);
        cpu
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
    all: Cell<u32>,
    /// Locks of the policy, taken inside the current op.
    policy: Cell<u32>,
}

impl Held {
    reads! { all: u32, policy: u32 }

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

    /// Takes one of the policy's.
    #[inline(always)]
    pub fn take_policy(&self) {
        self.policy.set(self.policy.get() + 1);
    }

    /// Releases one of them.
    #[inline(always)]
    pub fn release_policy(&self) {
        self.policy.set(self.policy.get() - 1);
    }
}
