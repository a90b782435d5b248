//! The one model of spin locks: policy locks, dispatch queues' locks and the run queues' locks.
//!
//! A contended lock goes on to a spinner when it is released: with `tas` to a random one (seeded), the
//! hand-over growing with the number of spinners; with `queued` to the first. The hand-over counts
//! as the winner's wait. Interrupts stay off from the first attempt until the release.

use schedlab_machine::LockKind;
use schedlab_trace::{CpuMode, Duration, Event, Instant, LockClass, LockId, LockPath, Recorder};

use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::{Cpu, Wait};
use crate::state::lock::LockIx;

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// Gives a lock its identity for the recorder.
    pub(crate) fn new_lock(&self, address: u64, name: &str, class: LockClass) -> LockIx {
        let line = self.line_at(address);
        let lock = self.locks.add(line, name);
        self.recorder.define_lock(LockId(lock.0), name, class);
        lock
    }

    /// Takes `lock` on `c`, spinning while it is held.
    ///
    /// Not inlined, and so are [`Kernel::spin_unlock`] and what both call last: many take locks.
    #[inline(never)]
    pub(crate) fn spin_lock(&self, c: &Cpu, lock: LockIx) {
        if !self.lock_at_once(c, lock, false) {
            self.spin_lock_slow(c, lock);
        }
    }

    /// Takes `lock` if it is this CPU's turn and the lock is free.
    #[inline(always)]
    fn lock_at_once(&self, c: &Cpu, lock: LockIx, trylock: bool) -> bool {
        if self.must_wait(c) {
            return false;
        }
        let state = self.locks.get(lock);
        if self.life.is_alone() {
            state.give_alone(c.id);
            return true;
        }
        if !state.is_free(c.this.now.get()) {
            return false;
        }
        state.give_to(c.id, &c.held);
        self.write_line(c, state.line, self.costs.lock_ps);
        state.acquire(c.this.now.get());
        self.record(
            c,
            Event::LockAcquired {
                lock: LockId(lock.0),
                path: c.lock_path(),
                waited: Duration::ZERO,
                contended: false,
                trylock,
            },
        );
        true
    }

    /// The lock is held, or it is not this CPU's turn.
    #[inline(never)]
    fn spin_lock_slow(&self, c: &Cpu, lock: LockIx) {
        if self.must_wait(c) {
            self.sync(c);
            return self.spin_lock(c, lock);
        }
        let since = c.this.now.get();
        let path = c.lock_path();
        self.record(
            c,
            Event::LockContended {
                lock: LockId(lock.0),
                path,
            },
        );
        // A CPU that spins outside of the scheduler, for the big kernel lock, spends no time of the scheduler's.
        let spinning = match c.mode() {
            CpuMode::Kernel => CpuMode::Kernel,
            _ => CpuMode::Spin,
        };
        let mode = self.set_mode(c, spinning);
        let line = self.locks.get(lock).line;
        self.read_line(c, line);
        self.begin_spin(c, lock);
        loop {
            c.set_wait(Wait::Resume);
            self.pause();
            // Either the lock was handed over, or it is this CPU's turn to see that it is free.
            if self.locks.holder(lock) == Some(c.id) {
                break;
            }
            self.release_to_spinner(lock, c.this.now.get());
        }
        // The hand-over includes the way of the line: the access costs nothing more.
        let now = self.now(c);
        self.shared.cache.borrow_mut().take_over(c.id, now, line);
        self.locks.get(lock).acquire(c.this.now.get());
        self.record(
            c,
            Event::LockAcquired {
                lock: LockId(lock.0),
                path,
                waited: now.since(Instant::from_ns(since)),
                contended: true,
                trylock: false,
            },
        );
        self.set_mode(c, mode);
        self.charge(c, self.machine.locks.meter_ns);
    }

    /// Tries to take `lock`. Returns whether it did.
    pub(crate) fn spin_trylock(&self, c: &Cpu, lock: LockIx) -> bool {
        if self.life.is_alone() {
            let state = self.locks.get(lock);
            let free = state.holder().is_none();
            if free {
                state.give_alone(c.id);
            }
            return free;
        }
        self.sync(c);
        if self.lock_at_once(c, lock, true) {
            return true;
        }
        let line = self.locks.get(lock).line;
        self.write_line(c, line, self.machine.memory.atomic_ps);
        self.record(
            c,
            Event::LockTryFailed {
                lock: LockId(lock.0),
                path: c.lock_path(),
            },
        );
        false
    }

    /// Follows the chain of waiters and holders from `lock`. If that leads back to `c`, no CPU of the circle ever
    /// goes on: each link of it is reported.
    pub(crate) fn find_deadlock(&self, c: &Cpu, lock: LockIx) -> Option<String> {
        let locks = &self.locks;
        let next = |wanted: LockIx| {
            let holder = locks.holder(wanted)?;
            (holder != c.id).then(|| self.cpu(holder).spins_for())?
        };
        // A circle without `c` has been found by who closed it.
        let chain = || std::iter::successors(Some(lock), |&at| next(at)).take(self.cpus.len());
        let last = chain().last()?;
        if locks.holder(last) != Some(c.id) {
            return None;
        }
        let mut waiter = c.id;
        let links: Vec<String> = chain()
            .filter_map(|wanted| {
                let holder = locks.holder(wanted)?;
                let link = match self.locks.number_of(wanted) {
                    Some(lock) => self.policy.describe_lock_wait(lock, waiter, holder),
                    None => {
                        let name = &locks.get(wanted).name;
                        format!("CPU {waiter} waits for {name}, held by CPU {holder}")
                    }
                };
                waiter = holder;
                Some(link)
            })
            .collect();
        Some(links.join("; "))
    }

    /// Joins the spinners. Where the release is already known, the first one watches for it.
    fn begin_spin(&self, c: &Cpu, lock: LockIx) {
        c.spin_for(lock);
        if let Some(links) = self.find_deadlock(c, lock) {
            self.policy_fault(format!("deadlock of locks: {links}"));
        }
        if let Some(free_from) = self.locks.get(lock).add_spinner(c.id) {
            let at = free_from.max(c.this.now.get());
            c.this.now.set(at);
            self.queue.add_turn(c.id, at);
        }
    }

    /// Releases `lock`. The holder need not wait for its turn if no CPU spins: one that comes before this instant
    /// finds the lock held until it.
    #[inline(never)]
    pub(crate) fn spin_unlock(&self, c: &Cpu, lock: LockIx) {
        if !self.unlock_at_once(c, lock) {
            self.spin_unlock_slow(c, lock);
        }
    }

    /// Releases `lock` if no CPU spins for it.
    #[inline(always)]
    fn unlock_at_once(&self, c: &Cpu, lock: LockIx) -> bool {
        let state = self.locks.get(lock);
        if self.life.is_alone() {
            state.leave_alone();
            return true;
        }
        if state.has_spinners() {
            return false;
        }
        // No CPU has looked at the line since it was taken: it is still this CPU's own.
        self.charge_ps(c, self.machine.memory.hit_ps);
        let now = c.this.now.get();
        state.take_from(c.id, &c.held);
        state.leave(now);
        self.record(
            c,
            Event::LockReleased {
                lock: LockId(lock.0),
                held: Duration::from_ns(now - state.acquired_at()),
            },
        );
        true
    }

    /// Releases a lock that others spin for.
    #[cold]
    fn spin_unlock_slow(&self, c: &Cpu, lock: LockIx) {
        let state = self.locks.get(lock);
        self.write_line(c, state.line, 0);
        self.sync(c);
        let now = c.this.now.get();
        self.record(
            c,
            Event::LockReleased {
                lock: LockId(lock.0),
                held: Duration::from_ns(now - state.acquired_at()),
            },
        );
        state.take_from(c.id, &c.held);
        self.release_to_spinner(lock, now);
    }

    /// Hands a lock that is free at `now` to one of its spinners.
    fn release_to_spinner(&self, lock: LockIx, now: u64) {
        let costs = &self.machine.locks;
        let state = self.locks.get(lock);
        let others = state.spinners().len() as u64 - 1;
        let (chosen, spread) = match costs.kind {
            LockKind::Queued => (0, 0),
            LockKind::Tas if others == 0 => (0, 0),
            LockKind::Tas => {
                let chosen = self.locks.draw(others + 1);
                (chosen, costs.handover_per_spinner_ns * others)
            }
        };
        let winner = state.take_spinner(chosen);
        state.give_to(winner, &self.cpu(winner).held);
        let at = now + costs.handover_ns + spread;
        let at = at.max(self.cpus[winner.index()].this.now.get());
        self.cpus[winner.index()].this.now.set(at);
        self.cpus[winner.index()].end_spin();
        self.queue.add_turn(winner, at);
    }

    /// Takes the run queue lock of `rq`, where the machine's kernel has one.
    #[inline]
    pub(crate) fn rq_lock(&self, c: &Cpu, rq: &Cpu) {
        match rq.rq_lock() {
            Some(lock) => self.spin_lock(c, lock),
            None => self.rq_lock_other(c, rq),
        }
    }

    /// There is no such lock, or it was never taken.
    #[inline(never)]
    fn rq_lock_other(&self, c: &Cpu, rq: &Cpu) {
        if self.machine.sched_ext.rq_locks {
            self.spin_lock(c, self.new_rq_lock(rq));
        } else {
            self.sync(c);
        }
    }

    /// Tries to take the run queue lock of `rq`.
    pub(crate) fn rq_trylock(&self, c: &Cpu, rq: &Cpu) -> bool {
        if self.machine.sched_ext.rq_locks {
            let lock = rq.rq_lock().unwrap_or_else(|| self.new_rq_lock(rq));
            return self.spin_trylock(c, lock);
        }
        self.sync(c);
        true
    }

    /// Releases the run queue lock of `rq`.
    #[inline]
    pub(crate) fn rq_unlock(&self, c: &Cpu, rq: &Cpu) {
        if let Some(lock) = rq.rq_lock() {
            self.spin_unlock(c, lock);
        }
    }

    #[cold]
    fn new_rq_lock(&self, rq: &Cpu) -> LockIx {
        let name = format!("rq{}", rq.id);
        let address = self.rq_address(rq.id);
        let lock = self.new_lock(address, &name, LockClass::KernelRq);
        rq.make_rq_lock(lock);
        lock
    }

    /// Sets on whose behalf locks are taken from now on and returns the former value.
    pub(crate) fn set_lock_path(&self, c: &Cpu, path: LockPath) -> LockPath {
        c.enter_lock_path(path)
    }

    /// The instant at which `c` is.
    pub(crate) fn now(&self, c: &Cpu) -> Instant {
        Instant::from_ns(c.this.now.get())
    }
}
