//! The real-time class: above sched_ext, strict priorities, SCHED_RR with 100 ms slices.
//!
//! Model: per-CPU queues; placement, pushing and pulling look at all CPUs at once instead of the
//! kernel's `cpupri` index, take the lowest one, an idle one first, however far away, and a CPU takes the task that
//! it pulls itself instead of interrupting the task's CPU (`RT_PUSH_IPI`). There is no throttling and no deadline
//! server. A priority is the effective one, inheritance included. The policy learns of it only by `ops.cpu_release()`
//! and `ops.cpu_acquire()`.

use schedlab_trace::{CpuId, Recorder, TaskId};
use schedlab_workload::SchedClass;

use crate::contract::consts::enq;
use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::rt::Place;
use crate::state::task::{Class, OnRq, Task};

/// `RR_TIMESLICE`, 100 ms; it is counted in ticks.
const RR_SLICE_MS: u32 = 100;

/// Above the priorities of the class: the priorities of deadline tasks.
const ABOVE: u8 = 100;

/// `RT_MAX_TRIES`: how often a CPU to push to is looked for.
const MAX_TRIES: u32 = 3;

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// Priority of what `rq` runs: 0 below the real-time class, [`ABOVE`] for a deadline task.
    fn rt_curr_priority(&self, rq: &Cpu) -> u8 {
        rq.curr().map_or(0, |task| {
            let p = self.task(task);
            match p.class() {
                Class::Rt => p.rt_priority(),
                Class::Deadline => ABOVE,
                _ => 0,
            }
        })
    }

    /// Highest priority of what waits on `rq`: 0 if nothing does.
    fn rt_waiting_priority(&self, rq: &Cpu) -> u8 {
        let first = rq.rt.first();
        first.map_or(0, |task| self.task(task).rt_priority())
    }

    /// `rq->rt.highest_prio.curr`: of what runs and what waits; who blocks does not count any more.
    fn rt_highest_priority(&self, rq: &Cpu) -> u8 {
        // `CPUPRI_HIGHER`
        if self.classes.has_dl() && self.dl_earliest(rq).is_some() {
            return ABOVE;
        }
        let stays = |task| self.task(task).on_rq() == OnRq::Queued;
        let runs = if rq.curr().is_some_and(stays) {
            self.rt_curr_priority(rq)
        } else {
            0
        };
        runs.max(self.rt_waiting_priority(rq))
    }

    /// Whether `p` waits on `rq` behind something as high, and has left the CPU that it ran on.
    fn rt_waits_behind(&self, p: &Task, rq: &Cpu) -> bool {
        self.is_queued_on(p, rq) && !p.on_cpu() && p.rt_priority() <= self.rt_curr_priority(rq)
    }

    /// Inserts by priority.
    fn rt_insert(&self, rq: &Cpu, p: &Task, place: Place) {
        rq.rt
            .insert(p.id, place, |task| self.task(task).rt_priority());
    }

    fn rr_slice_ticks(&self) -> u32 {
        (RR_SLICE_MS * self.machine.hz / 1_000).max(1)
    }

    pub(crate) fn enqueue_task_rt(&self, rq: &Cpu, p: &Task, flags: u64) {
        self.classes.use_rt();
        rq.add_nr_running();
        p.rt.begin_slice(self.rr_slice_ticks());
        if rq.curr() != Some(p.id) {
            let head = flags & enq::HEAD != 0;
            let place = if head { Place::First } else { Place::Last };
            self.rt_insert(rq, p, place);
        }
    }

    pub(crate) fn dequeue_task_rt(&self, rq: &Cpu, p: &Task) {
        rq.sub_nr_running();
        rq.rt.remove(p.id);
    }

    /// `pick_task_rt()`, after a pull where this CPU would run something lower than before.
    pub(crate) fn pick_task_rt(&self, c: &Cpu, prev: Option<&Task>) -> Option<TaskId> {
        let left = prev.filter(|p| p.class() == Class::Rt);
        let prev = left.filter(|p| p.on_rq() == OnRq::Queued);
        if prev.is_none() && self.need_pull_rt_task(c, left) {
            self.pull_rt_task(c);
        }
        let first = c.rt.first();
        match (prev, first) {
            (None, first) => first,
            (Some(p), None) => Some(p.id),
            (Some(p), Some(first)) => {
                let waiting = self.task(first).rt_priority();
                let keeps = match waiting.cmp(&p.rt_priority()) {
                    std::cmp::Ordering::Less => true,
                    std::cmp::Ordering::Greater => false,
                    std::cmp::Ordering::Equal => c.rt.place() == Place::First,
                };
                Some(if keeps { p.id } else { first })
            }
        }
    }

    /// `need_pull_rt_task()`: nothing of the class waits here, or what does is lower than who leaves.
    fn need_pull_rt_task(&self, c: &Cpu, left: Option<&Task>) -> bool {
        let waits = self.rt_waiting_priority(c);
        c.is_online() && (waits == 0 || left.is_some_and(|p| p.rt_priority() > waits))
    }

    /// `pull_rt_task()`: takes the highest task that waits elsewhere, if it is higher than all here.
    fn pull_rt_task(&self, c: &Cpu) {
        loop {
            let here = self.rt_highest_priority(c);
            let found = self
                .cpus
                .iter()
                .filter(|rq| rq.id != c.id)
                .flat_map(|rq| rq.rt.waiting().iter().copied().collect::<Vec<_>>())
                .map(|task| self.task(task))
                .filter(|p| p.allows(c.id) && p.rt_priority() > here)
                .filter(|p| self.rt_waits_behind(p, self.cpu(p.cpu())))
                .max_by_key(|p| (p.rt_priority(), std::cmp::Reverse(p.cpu())));
            let Some(p) = found else { return };
            let src = self.cpu(p.cpu());
            self.rq_unlock(c, c);
            self.rq_lock(c, src);
            if self.rt_waits_behind(p, src) && p.rt_priority() > self.rt_highest_priority(c) {
                p.set_on_rq(OnRq::Migrating);
                self.dequeue_task_rt(src, p);
                self.set_task_cpu(c, p, c.id);
                self.rq_unlock(c, src);
                self.rq_lock(c, c);
                self.enqueue_task_rt(c, p, 0);
                p.set_on_rq(OnRq::Queued);
                return;
            }
            self.rq_unlock(c, src);
            self.rq_lock(c, c);
        }
    }

    /// `select_task_rq_rt()`: where it was unless something runs there that is as high or could not go
    /// elsewhere; then the CPU that runs the lowest.
    pub(crate) fn select_task_rq_rt(&self, _c: &Cpu, p: &Task, prev: CpuId) -> CpuId {
        let curr = self.cpu(prev).curr().map(|task| self.task(task));
        let stays = |curr: &Task| {
            let bound = curr.affinity.nr() < 2;
            curr.class() == Class::Rt && (bound || curr.rt_priority() >= p.rt_priority())
        };
        if p.allows(prev) && !curr.is_some_and(stays) {
            return prev;
        }
        self.find_lowest_rq(p).unwrap_or(prev)
    }

    /// `find_lowest_rq()`: of the CPUs where `p` would be the highest, the one that runs the lowest; its
    /// own among equals.
    fn find_lowest_rq(&self, p: &Task) -> Option<CpuId> {
        let own = p.cpu();
        self.cpus
            .iter()
            .filter(|rq| rq.is_online() && p.allows(rq.id))
            .map(|rq| {
                let runs = (self.rt_highest_priority(rq), self.curr_class(rq));
                (runs, rq.id != own, rq.id)
            })
            .filter(|((priority, _), ..)| *priority < p.rt_priority())
            .min()
            .map(|(_, _, cpu)| cpu)
    }

    /// `task_woken_rt()`: who must wait behind something as high may run elsewhere by now.
    pub(crate) fn task_woken_rt(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        let waits = !rq.need_resched() && self.rt_curr_priority(rq) >= p.rt_priority();
        if waits && p.affinity.nr() > 1 {
            self.push_rt_tasks(c, rq);
        }
    }

    /// `push_rt_tasks()`: a task that waits on `rq` goes where something lower runs. `rq` is locked on entry and on
    /// return.
    pub(crate) fn push_rt_tasks(&self, c: &Cpu, rq: &Cpu) {
        while let Some(p) = self.pushable_rt_task(rq) {
            self.sync(c);
            if p.rt_priority() > self.rt_curr_priority(rq) {
                self.resched_curr(c, rq);
                return;
            }
            // As in the kernel, a task behind one that cannot go is not tried.
            let went = self.push_rt_task(c, rq, p);
            if !went && self.pushable_rt_task(rq).is_none_or(|next| next.id == p.id) {
                return;
            }
        }
    }

    /// `pick_next_pushable_task()`.
    fn pushable_rt_task(&self, rq: &Cpu) -> Option<&Task> {
        let queue = rq.rt.waiting();
        let mut waiting = queue.iter().map(|&task| self.task(task));
        waiting.find(|p| p.affinity.nr() > 1)
    }

    /// `push_rt_task()` and `find_lock_lowest_rq()`. Returns whether `p` went.
    fn push_rt_task(&self, c: &Cpu, rq: &Cpu, p: &Task) -> bool {
        for _ in 0..MAX_TRIES {
            let Some(cpu) = self.find_lowest_rq(p) else {
                return false;
            };
            let dst = self.cpu(cpu);
            self.double_rq_lock(c, rq, dst);
            // Either may have changed meanwhile.
            let waits = self.rt_waits_behind(p, rq);
            let goes = waits && dst.is_online() && self.rt_highest_priority(dst) < p.rt_priority();
            if goes {
                p.set_on_rq(OnRq::Migrating);
                self.dequeue_task_rt(rq, p);
                self.set_task_cpu(c, p, dst.id);
                self.enqueue_task_rt(dst, p, 0);
                p.set_on_rq(OnRq::Queued);
                self.wakeup_preempt(c, dst, p);
            }
            self.rq_unlock(c, dst);
            if goes || !waits {
                return goes;
            }
        }
        false
    }

    /// `double_lock_balance()`: takes the lock of `other` while the lock of `rq` is held, the lower CPU's first.
    pub(crate) fn double_rq_lock(&self, c: &Cpu, rq: &Cpu, other: &Cpu) {
        if other.id < rq.id {
            self.rq_unlock(c, rq);
            self.rq_lock(c, other);
            self.rq_lock(c, rq);
        } else {
            self.rq_lock(c, other);
        }
    }

    /// `prio_changed_rt()`: `p` had the priority `old` before. A waiting task preempts; a running one makes way.
    pub(crate) fn prio_changed_rt(&self, c: &Cpu, rq: &Cpu, p: &Task, old: u8) {
        if rq.curr() != Some(p.id) {
            if p.rt_priority() > self.rt_curr_priority(rq) {
                self.resched_curr(c, rq);
            }
            return;
        }
        if p.rt_priority() >= old || rq.id != c.id {
            return;
        }
        self.pull_rt_task(c);
        if self.rt_waiting_priority(c) > p.rt_priority() {
            self.resched_curr(c, c);
        }
    }

    pub(crate) fn wakeup_preempt_rt(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        match p.rt_priority().cmp(&self.rt_curr_priority(rq)) {
            std::cmp::Ordering::Greater => self.resched_curr(c, rq),
            std::cmp::Ordering::Equal if !rq.need_resched() => {
                self.check_preempt_equal_prio(c, rq, p);
            }
            _ => {}
        }
    }

    /// `check_preempt_equal_prio()`: where only the current task could run elsewhere, `p` goes before it
    /// and it is pushed away.
    fn check_preempt_equal_prio(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        let may_go = |p: &Task| self.find_lowest_rq(p).is_some();
        let curr = rq.curr().map(|task| self.task(task));
        if curr.is_some_and(may_go) && !may_go(p) {
            rq.rt.remove(p.id);
            self.rt_insert(rq, p, Place::First);
            rq.rt.put_back(Place::Second);
            self.resched_curr(c, rq);
        }
    }

    pub(crate) fn put_prev_task_rt(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        self.update_curr_common(c, p);
        if p.on_rq() == OnRq::Queued {
            self.rt_insert(rq, p, rq.rt.place());
        }
        rq.rt.put_back(Place::First);
    }

    pub(crate) fn set_next_task_rt(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        rq.rt.remove(p.id);
        p.start_exec(c.this.now.get());
        rq.rt.put_back(Place::First);
    }

    pub(crate) fn task_tick_rt(&self, c: &Cpu, p: &Task) {
        self.update_curr_common(c, p);
        if !matches!(p.attributes().policy, SchedClass::RoundRobin(_)) {
            return;
        }
        if p.rt.tick(self.rr_slice_ticks()) && self.rt_equal_waits(c, p) {
            c.rt.put_back(Place::Last);
            self.resched_curr(c, c);
        }
    }

    /// `yield_task_rt()`: behind its equals.
    pub(crate) fn yield_task_rt(&self, c: &Cpu, p: &Task) {
        let waits = self.rt_equal_waits(c, p);
        let place = if waits { Place::Last } else { Place::First };
        c.rt.put_back(place);
    }

    /// Whether another task of the current one's priority waits here.
    fn rt_equal_waits(&self, c: &Cpu, p: &Task) -> bool {
        let queue = c.rt.waiting();
        let mut waiting = queue.iter().map(|&task| self.task(task).rt_priority());
        waiting.any(|priority| priority == p.rt_priority())
    }
}
