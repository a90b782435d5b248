//! Priority inheritance: the owner of a mutex is as urgent as the most urgent task that waits for it
//! (kernel/locking/rtmutex.c, and kernel/futex/pi.c for what user space sees of it).
//!
//! Model: a walk along a chain takes no time of its own beyond the locks of run queues.

use std::cell::{Cell, RefCell};

use schedlab_trace::{CpuMode, LockPath, Recorder, TaskId};
use schedlab_workload::{ObjectId, Reservation};

use crate::contract::policy::Policy;
use crate::paths::cpu::Cpu;
use crate::paths::kernel::Kernel;
use crate::paths::sched::Change;
use crate::state::object::Object;
use crate::state::task::{Class, Task, TaskState};

/// What a task has from who waits for its mutexes, where that is more than its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Inherited {
    #[default]
    Nothing,
    RealTime(u8),
    /// The reservation of a waiting deadline task (`pi_se`).
    Deadline(Reservation),
}

/// A task's part.
#[derive(Default)]
pub(crate) struct Holder {
    /// The mutex that it waits for (`pi_blocked_on`).
    waits_for: Cell<Option<ObjectId>>,
    /// Those that it holds, in the order in which it took them.
    holds: RefCell<Vec<ObjectId>>,
}

/// How urgent a waiter is (`struct rt_waiter_node`): the priority, and among deadline tasks the deadline; less goes
/// first. Normal tasks are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank(i32, u64);

impl Rank {
    const NORMAL: i32 = 120;

    /// `waiter_update_prio()`.
    fn of(p: &Task) -> Rank {
        match p.prio() {
            -1 => Rank(-1, p.dl.deadline.get()),
            prio if prio < 100 => Rank(prio, 0),
            _ => Rank(Rank::NORMAL, 0),
        }
    }
}

/// A mutex with priority inheritance.
#[derive(Default)]
pub(crate) struct PiMutex {
    /// `None` with waiters: it was released, and the first of them has been woken to take it.
    owner: Option<TaskId>,
    /// The most urgent first, equals in the order in which they came. The rank is that of when it was told last.
    waiters: Vec<(TaskId, Rank)>,
}

impl PiMutex {
    fn first(&self) -> Option<(TaskId, Rank)> {
        self.waiters.first().copied()
    }

    fn insert(&mut self, task: TaskId, rank: Rank) {
        let at = self.waiters.partition_point(|&(_, other)| other <= rank);
        self.waiters.insert(at, (task, rank));
    }

    fn remove(&mut self, task: TaskId) {
        self.waiters.retain(|&(waiter, _)| waiter != task);
    }

    /// `try_to_take_rt_mutex()`: it is free, and nobody as urgent waits for it.
    fn try_take(&mut self, task: TaskId, rank: Rank) -> bool {
        let goes_first = |(waiter, other): (TaskId, Rank)| waiter == task || rank < other;
        let takes = self.owner.is_none() && self.first().is_none_or(goes_first);
        if takes {
            self.owner = Some(task);
            self.remove(task);
        }
        takes
    }
}

/// What became of a wish to take a mutex.
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

    /// Takes or releases a mutex by one atomic operation of user space, if nobody has it or waits for it. Tells whether
    /// that is done.
    pub(crate) fn pi_fast_path(&self, p: &Task, mutex: ObjectId, take: bool) -> bool {
        let act = |mutex: &mut PiMutex| {
            let from = if take { None } else { Some(p.id) };
            let done = mutex.owner == from && mutex.waiters.is_empty();
            if done {
                mutex.owner = if take { Some(p.id) } else { None };
            }
            done
        };
        let done = self.with_pi_mutex(mutex, act) == Some(true);
        if done && take {
            p.pi.holds.borrow_mut().push(mutex);
        } else if done {
            p.pi.holds.borrow_mut().retain(|&held| held != mutex);
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
        if p.pi.waits_for.get().is_none() {
            if self.would_wait_for_itself(p, owner) {
                return Taking::Deadlock;
            }
            // task_blocks_on_rt_mutex()
            let rank = Rank::of(p);
            let is_first = self.with_pi_mutex(mutex, |mutex| {
                mutex.insert(p.id, rank);
                mutex.first().is_some_and(|(first, _)| first == p.id)
            });
            p.pi.waits_for.set(Some(mutex));
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

    /// The owner of such a mutex; outer `None`: it is none.
    fn pi_owner(&self, mutex: ObjectId) -> Option<Option<TaskId>> {
        self.with_pi_mutex(mutex, |mutex| mutex.owner)
    }

    /// Whether a chain of owners that wait for each other leads from `owner` to `p` (`RT_MUTEX_FULL_CHAINWALK`). It has an
    /// end, since nobody is let into a circle.
    fn would_wait_for_itself(&self, p: &Task, owner: Option<TaskId>) -> bool {
        let next = |&task: &TaskId| {
            let mutex = self.task(task).pi.waits_for.get()?;
            self.pi_owner(mutex).flatten()
        };
        std::iter::successors(owner, next).any(|task| task == p.id)
    }

    fn pi_try_take(&self, p: &Task, mutex: ObjectId) -> bool {
        let rank = Rank::of(p);
        let takes = self.with_pi_mutex(mutex, |mutex| mutex.try_take(p.id, rank)) == Some(true);
        if takes {
            p.pi.waits_for.set(None);
            p.pi.holds.borrow_mut().push(mutex);
        }
        takes
    }

    /// `futex_unlock_pi()`: the priority that came with the mutex goes, and the most urgent waiter is woken to take it. Tells
    /// whether it is such a mutex, and who is to be woken.
    pub(crate) fn pi_unlock(&self, c: &Cpu, p: &Task, mutex: ObjectId) -> Option<Option<TaskId>> {
        let next = self.with_pi_mutex(mutex, |mutex| {
            // EPERM for whoever does not have it.
            let held = mutex.owner == Some(p.id);
            held.then(|| {
                mutex.owner = None;
                mutex.first().map(|(first, _)| first)
            })
        })?;
        let Some(next) = next else { return Some(None) };
        p.pi.holds.borrow_mut().retain(|&held| held != mutex);
        if next.is_some() {
            self.adjust_prio(c, p);
        }
        Some(next)
    }

    /// `exit_pi_state_list()`: what a task holds when it ends.
    pub(crate) fn pi_held(&self, p: &Task) -> Option<ObjectId> {
        p.pi.holds.borrow().last().copied()
    }

    /// What `p` inherits, from the most urgent of all who wait for what it holds (`__rt_effective_prio()`).
    pub(crate) fn inherited_by(&self, p: &Task) -> Inherited {
        let holds = p.pi.holds.borrow();
        let first = |&mutex: &ObjectId| self.with_pi_mutex(mutex, |mutex| mutex.first()).flatten();
        let top = holds.iter().filter_map(first).min_by_key(|&(_, rank)| rank);
        let Some((waiter, Rank(prio, deadline))) = top else {
            return Inherited::Nothing;
        };
        let own = p.reservation();
        match prio {
            -1 if own.is_none() || deadline < p.dl.deadline.get() => {
                let waiter = self.task(waiter);
                match waiter.inherited.get() {
                    Inherited::Deadline(reservation) => Inherited::Deadline(reservation),
                    _ => waiter
                        .reservation()
                        .map_or(Inherited::Nothing, Inherited::Deadline),
                }
            }
            -1 | Rank::NORMAL => Inherited::Nothing,
            _ if own.is_some() => Inherited::Nothing,
            prio => match (99 - prio) as u8 {
                priority if priority > p.own_rt_priority() => Inherited::RealTime(priority),
                _ => Inherited::Nothing,
            },
        }
    }

    /// `rt_mutex_adjust_prio_chain()`: the first of who waits for `mutex` is another one, or has another rank. Its owner
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
            let Some(mutex) = holder.pi.waits_for.get() else {
                return;
            };
            let rank = Rank::of(holder);
            let found = self.with_pi_mutex(mutex, |mutex| {
                let before = mutex.first();
                let mut waiters = mutex.waiters.iter();
                let known = waiters.find(|&&(waiter, _)| waiter == owner).copied();
                if known.is_some_and(|(_, known)| known != rank) {
                    mutex.remove(owner);
                    mutex.insert(owner, rank);
                }
                (mutex.owner, before, mutex.first())
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
        let is_same = || self.inherited_by(p) == p.inherited.get() && !p.is_boosted_by_deadline();
        if is_same() {
            return;
        }
        let path = self.set_lock_path(c, LockPath::Other);
        let mut rq = self.task_rq_lock(c, p);
        // Whoever wakes it holds its `pi_lock` until it is on a queue.
        while p.state.get() == TaskState::Waking {
            self.rq_unlock(c, rq);
            self.charge(c, RELAX_NS);
            self.sync(c);
            rq = self.task_rq_lock(c, p);
        }
        if !is_same() && p.state.get() != TaskState::Dead {
            self.set_inherited(c, rq, p, self.inherited_by(p));
        }
        self.rq_unlock(c, rq);
        self.set_lock_path(c, path);
    }

    /// `p`, on `rq`, inherits something else.
    fn set_inherited(&self, c: &Cpu, rq: &Cpu, p: &Task, inherits: Inherited) {
        let (old_prio, old) = (p.prio(), p.inherited.replace(inherits));
        let (prio, class) = (p.prio(), self.class_of(p));
        if rq.id != c.id && rq.curr.get() == Some(p.id) && prio > old_prio {
            // It runs, has released something and is about to lower itself.
            p.inherited.set(old);
        } else if class == p.class.get() && class < Class::Rt {
            // A policy that schedules real-time tasks itself sees the priority.
            self.define_task(p);
            self.sync_task(p);
        } else {
            p.inherited.set(old);
            self.change_on(c, rq, p, Change::Inherit(inherits));
        }
    }
}

/// How long a CPU waits before it looks again at a task that is being woken.
const RELAX_NS: u64 = 50;
