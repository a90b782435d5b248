//! Priority inheritance: the owner of a mutex is as urgent as the most urgent task that waits for it
//! (kernel/locking/rtmutex.c, and kernel/futex/pi.c for what user space sees of it).
//!
//! Model: a walk along a chain takes no time of its own beyond the locks of run queues.

use schedlab_trace::{CpuMode, LockPath, Recorder, TaskId};
use schedlab_workload::ObjectId;

use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::paths::sched::Change;
use crate::state::attributes::Attributes;
use crate::state::cpu::Cpu;
use crate::state::object::Object;
use crate::state::pi::{Inherited, PiMutex, Rank};
use crate::state::task::{Class, Task, TaskState};

/// The outcome of a request to take a mutex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taking {
    Taken,
    Waits,
    /// It would wait for itself (EDEADLK).
    Deadlock,
    /// It is no such mutex.
    Wrong,
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    fn with_pi_mutex<T>(&self, mutex: ObjectId, act: impl FnOnce(&mut PiMutex) -> T) -> Option<T> {
        match self.objects.borrow_mut().get_mut(mutex.0 as usize) {
            Some(Object::PiMutex(mutex)) => Some(act(mutex)),
            _ => None,
        }
    }

    /// Takes or releases a mutex by one atomic operation of user space, if no task has it or waits for it. Returns
    /// whether that is done.
    pub(crate) fn pi_fast_path(&self, p: &Task, mutex: ObjectId, take: bool) -> bool {
        let done = self.with_pi_mutex(mutex, |mutex| mutex.exchange(p.id, take)) == Some(true);
        if done && take {
            p.pi.acquire(mutex);
        } else if done {
            p.pi.release(mutex);
        }
        done
    }

    /// `futex_lock_pi()`, `rt_mutex_slowlock()`: of a task that waits already, tries again.
    pub(crate) fn pi_lock(&self, c: &Cpu, p: &Task, mutex: ObjectId) -> Taking {
        if self.pi_try_take(p, mutex) {
            return Taking::Taken;
        }
        let Some(owner) = self.pi_owner(mutex) else {
            return Taking::Wrong;
        };
        if p.pi.waits_for().is_none() {
            if self.would_wait_for_itself(p, owner) {
                return Taking::Deadlock;
            }
            // task_blocks_on_rt_mutex()
            let rank = p.rank();
            let is_first = self.with_pi_mutex(mutex, |mutex| {
                mutex.insert(p.id, rank);
                mutex.first().is_some_and(|(first, _)| first == p.id)
            });
            p.pi.wait_for(mutex);
            if is_first == Some(true) {
                self.adjust_prio_chain(c, mutex);
            }
            // It may have become free meanwhile.
            if self.pi_try_take(p, mutex) {
                return Taking::Taken;
            }
        }
        Taking::Waits
    }

    /// The owner of such a mutex; outer `None`: it is not such a mutex.
    fn pi_owner(&self, mutex: ObjectId) -> Option<Option<TaskId>> {
        self.with_pi_mutex(mutex, |mutex| mutex.owner())
    }

    /// Whether a chain of owners that wait for each other leads from `owner` to `p` (`RT_MUTEX_FULL_CHAINWALK`). It
    /// has an end, since no task is let into a circle.
    fn would_wait_for_itself(&self, p: &Task, owner: Option<TaskId>) -> bool {
        let next = |&task: &TaskId| {
            let mutex = self.task(task).pi.waits_for()?;
            self.pi_owner(mutex).flatten()
        };
        std::iter::successors(owner, next).any(|task| task == p.id)
    }

    fn pi_try_take(&self, p: &Task, mutex: ObjectId) -> bool {
        let rank = p.rank();
        let takes = self.with_pi_mutex(mutex, |mutex| mutex.try_take(p.id, rank)) == Some(true);
        if takes {
            p.pi.acquire(mutex);
        }
        takes
    }

    /// `futex_unlock_pi()`: the priority that came with the mutex goes, and the most urgent waiter is woken to take
    /// it. Returns whether it is such a mutex, and the task to wake.
    pub(crate) fn pi_unlock(&self, c: &Cpu, p: &Task, mutex: ObjectId) -> Option<Option<TaskId>> {
        let next = self.with_pi_mutex(mutex, |mutex| mutex.release(p.id))?;
        let Some(next) = next else { return Some(None) };
        p.pi.release(mutex);
        if next.is_some() {
            self.adjust_prio(c, p);
        }
        Some(next)
    }

    /// `exit_pi_state_list()`: what a task holds when it ends.
    pub(crate) fn pi_held(&self, p: &Task) -> Option<ObjectId> {
        p.pi.holds().last().copied()
    }

    /// Returns the priority that `p` inherits if its `own` attributes are these, from the most urgent waiter for its
    /// mutexes (`__rt_effective_prio()`).
    pub(crate) fn inherited_by(&self, p: &Task, own: &Attributes) -> Inherited {
        let holds = p.pi.holds();
        let first = |&mutex: &ObjectId| self.with_pi_mutex(mutex, |mutex| mutex.first()).flatten();
        let top = holds.iter().filter_map(first).min_by_key(|&(_, rank)| rank);
        let Some((waiter, Rank(prio, deadline))) = top else {
            return Inherited::Nothing;
        };
        let reservation = own.reservation();
        match prio {
            -1 if reservation.is_none() || deadline < p.dl.deadline() => {
                let waiter = self.task(waiter);
                match waiter.attributes().inherited {
                    Inherited::Deadline(reservation) => Inherited::Deadline(reservation),
                    _ => waiter
                        .reservation()
                        .map_or(Inherited::Nothing, Inherited::Deadline),
                }
            }
            -1 | Rank::NORMAL => Inherited::Nothing,
            _ if reservation.is_some() => Inherited::Nothing,
            prio => match (99 - prio) as u8 {
                priority if priority > own.own_rt_priority() => Inherited::RealTime(priority),
                _ => Inherited::Nothing,
            },
        }
    }

    /// `rt_mutex_adjust_prio_chain()`: the first waiter for `mutex` is another one, or has another rank. Its owner
    /// inherits that, which may make it another waiter where it waits itself, and so on.
    fn adjust_prio_chain(&self, c: &Cpu, mutex: ObjectId) {
        let mut next = Some(mutex);
        while let Some(mutex) = next.take() {
            let Some(owner) = self.pi_owner(mutex).flatten() else {
                return;
            };
            let holder = self.task(owner);
            self.adjust_prio(c, holder);
            // It may have gone on meanwhile, and waits for something else, or for nothing.
            let Some(mutex) = holder.pi.waits_for() else {
                return;
            };
            let rank = holder.rank();
            let found = self.with_pi_mutex(mutex, |mutex| {
                let before = mutex.first();
                mutex.rerank(owner, rank);
                (mutex.owner(), before, mutex.first())
            });
            let Some((holder, before, first)) = found else {
                return;
            };
            if before == first {
                return;
            }
            match (holder, first) {
                (Some(_), _) => next = Some(mutex),
                // Another one comes next than who was woken to take it.
                (None, Some((first, _))) => {
                    self.try_to_wake_up(c, self.task(first), 0);
                }
                (None, None) => {}
            }
        }
    }

    /// `rt_mutex_adjust_prio()` and `rt_mutex_setprio()`.
    fn adjust_prio(&self, c: &Cpu, p: &Task) {
        self.set_mode(c, CpuMode::Sched);
        let inherits = || self.inherited_by(p, &p.attributes());
        let is_same = || inherits() == p.attributes().inherited && !p.is_boosted_by_deadline();
        if is_same() {
            return;
        }
        let path = self.set_lock_path(c, LockPath::Other);
        let mut rq = self.task_rq_lock(c, p);
        // The waker holds its `pi_lock` until it is on a queue.
        while p.state() == TaskState::Waking {
            self.rq_unlock(c, rq);
            self.charge(c, RELAX_NS);
            self.sync(c);
            rq = self.task_rq_lock(c, p);
        }
        if !is_same() && p.state() != TaskState::Dead {
            self.set_inherited(c, rq, p, inherits());
        }
        self.rq_unlock(c, rq);
        self.set_lock_path(c, path);
    }

    /// `p`, on `rq`, inherits something else.
    fn set_inherited(&self, c: &Cpu, rq: &Cpu, p: &Task, inherits: Inherited) {
        let old = p.attributes();
        let new = Attributes {
            inherited: inherits,
            ..old
        };
        let class = self.class_by(&new);
        if rq.id != c.id && rq.curr() == Some(p.id) && new.prio() > old.prio() {
            // It runs, has released something and is about to lower itself.
        } else if class == p.class() && class < Class::Rt {
            p.set_attributes(new);
            // A policy that schedules real-time tasks itself sees the priority.
            self.define_task(p);
            self.sync_task(p);
        } else {
            self.change_on(c, rq, p, Change::Inherit(inherits));
        }
    }
}

/// How long a CPU waits before it looks again at a task that is being woken.
const RELAX_NS: u64 = 50;
