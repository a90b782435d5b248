//! The deadline class: above the real-time class, earliest deadline first, each task within its reservation
//! (constant bandwidth server, kernel/sched/deadline.c).
//!
//! Model: per-CPU queues; placement, pushing and pulling look at all CPUs at once instead of the kernel's
//! `cpudl` heap, and a CPU takes what it pulls itself. A reservation is wall time: the kernel scales it by the
//! CPU's frequency and capacity. Bandwidth is given back when a task leaves the class, not at its 0-lag time.
//! There is no reclaiming (`SCHED_FLAG_RECLAIM`), no overrun signal and no deadline server; what the servers
//! reserve is not for tasks.

use schedlab_trace::{CpuId, CpuMode, Event, LockPath, Recorder, TaskId};
use schedlab_workload::{Reservation, SchedClass};

use crate::contract::consts::{enq, ops};
use crate::contract::policy::Policy;
use crate::contract::scenario::WorkloadFailure;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::deadline::BW_SHIFT;
use crate::state::event_queue::Timer;
use crate::state::pi::Inherited;
use crate::state::task::{Class, OnRq, Task};

/// `DL_MAX_TRIES`: how often a CPU to push to is looked for.
const MAX_TRIES: u32 = 3;

/// The part of a CPU that deadline tasks may reserve: `sched_rt_runtime_us` of `sched_rt_period_us`, 95 %.
const LIMIT_BW: u64 = (950_000 << BW_SHIFT) / 1_000_000;

/// The part of that which a deadline server holds on each CPU: 50 ms in 1 s (`sched_init_dl_servers()`).
const SERVER_BW: u64 = (50 << BW_SHIFT) / 1_000;

/// The timer is not set for less (`hrtick_start()`).
const SHORTEST_NS: u64 = 10_000;

/// Per cent with one digit after the point, of a bandwidth.
fn percent(bandwidth: u64) -> String {
    let permille = (bandwidth * 1_000) >> BW_SHIFT;
    format!("{}.{} %", permille / 10, permille % 10)
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `pi_of()`: the parameters that count, its own or a waiter's.
    fn reservation_of(&self, p: &Task) -> Reservation {
        let inherited = match p.attributes().inherited {
            Inherited::Deadline(reservation) => Some(reservation),
            _ => None,
        };
        let reservation = inherited.or(p.reservation());
        reservation.expect("a task of the deadline class has a reservation")
    }

    /// The deadline of what `rq` runs, if that is of the class.
    fn dl_curr(&self, rq: &Cpu) -> Option<u64> {
        let p = self.task(rq.curr()?);
        (p.class() == Class::Deadline).then(|| p.dl.deadline())
    }

    /// The deadline of the first that waits on `rq`.
    fn dl_first(&self, rq: &Cpu) -> Option<u64> {
        rq.dl.first().map(|task| self.task(task).dl.deadline())
    }

    /// `earliest_dl.curr`: the earliest deadline on `rq`. Who blocks or is throttled does not count any more.
    pub(crate) fn dl_earliest(&self, rq: &Cpu) -> Option<u64> {
        let curr = rq.curr().map(|task| self.task(task));
        let curr = curr.filter(|p| p.class() == Class::Deadline && p.dl.is_queued());
        let runs = curr.map(|p| p.dl.deadline());
        runs.into_iter().chain(self.dl_first(rq)).min()
    }

    /// `dl_task_is_earliest_deadline()`.
    fn would_be_earliest(&self, p: &Task, rq: &Cpu) -> bool {
        let earliest = self.dl_earliest(rq);
        earliest.is_none_or(|earliest| p.dl.deadline() < earliest)
    }

    /// `is_leftmost()` of a task that runs on `rq`.
    fn dl_is_first(&self, rq: &Cpu, p: &Task) -> bool {
        let first = self.dl_first(rq);
        p.dl.is_queued() && first.is_none_or(|first| first >= p.dl.deadline())
    }

    /// Inserts by deadline, behind its equals.
    fn dl_insert(&self, rq: &Cpu, p: &Task) {
        rq.dl.insert(p.id, |task| self.task(task).dl.deadline());
    }

    /// `replenish_dl_new_period()`.
    fn replenish_new_period(&self, now: u64, p: &Task) {
        p.dl.begin_period(now, self.reservation_of(p));
    }

    /// It has runtime again, or is not bound to it any more.
    fn unthrottle(&self, c: &Cpu, p: &Task) {
        if p.dl.unthrottle() {
            self.record(c, Event::Replenished { task: p.id });
        }
    }

    fn throttle(&self, c: &Cpu, p: &Task) {
        p.dl.throttle();
        self.record(c, Event::Throttled { task: p.id });
    }

    /// `replenish_dl_entity()`.
    fn replenish(&self, c: &Cpu, p: &Task) {
        let now = c.this.now.get();
        // A boosted task of another class has no deadline of its own.
        if p.reservation().is_none() {
            self.replenish_new_period(now, p);
        }
        p.dl.replenish(now, self.reservation_of(p));
        self.unthrottle(c, p);
    }

    /// `update_dl_entity()`: whether a task that wakes goes on with its deadline and runtime.
    fn update_dl_entity(&self, now: u64, p: &Task) {
        let passed = p.dl.has_passed(now);
        if !passed && !p.dl.overflows(now, self.reservation_of(p)) {
            return;
        }
        let constrained = p.reservation().filter(|own| own.deadline != own.period);
        match constrained {
            Some(own) if !passed && !p.is_boosted_by_deadline() => {
                p.dl.revise(now, own);
            }
            _ => self.replenish_new_period(now, p),
        }
    }

    /// `dl_next_period()`.
    fn dl_next_period(&self, p: &Task) -> u64 {
        p.dl.next_period(self.reservation_of(p))
    }

    /// `start_dl_timer()`. Returns whether the next period lies ahead.
    fn start_dl_timer(&self, c: &Cpu, rq: &Cpu, p: &Task) -> bool {
        let (at, now) = (self.dl_next_period(p), c.this.now.get());
        if at + 1_000 <= now {
            return false;
        }
        self.set_timer(Timer::Replenish(p.id), rq.id, at.max(now));
        true
    }

    /// `dl_check_constrained_dl()`: who wakes between its deadline and its next period waits for that.
    fn check_constrained(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        let now = c.this.now.get();
        let deadline = p.dl.deadline();
        let is_between = (1..now).contains(&deadline) && now < self.dl_next_period(p);
        if is_between && !p.is_boosted_by_deadline() && self.start_dl_timer(c, rq, p) {
            self.throttle(c, p);
            p.dl.forfeit();
        }
    }

    /// `enqueue_task_dl()`. `rq` is locked.
    pub(crate) fn enqueue_task_dl(&self, c: &Cpu, rq: &Cpu, p: &Task, flags: u64) {
        self.classes.use_dl();
        let now = c.this.now.get();
        let boosted = p.is_boosted_by_deadline();
        if boosted && p.dl.is_throttled() {
            self.cancel_timer(Timer::Replenish(p.id));
            self.unthrottle(c, p);
        }
        let constrained = p
            .reservation()
            .is_some_and(|own| own.deadline != own.period);
        if constrained && !p.dl.is_throttled() {
            self.check_constrained(c, rq, p);
        }
        // The timer will enqueue it.
        if p.dl.is_throttled() && flags & enq::REPLENISH == 0 {
            return;
        }
        if flags & enq::WAKEUP != 0 {
            self.update_dl_entity(now, p);
        } else if flags & enq::REPLENISH != 0 {
            self.replenish(c, p);
        } else if flags & (enq::MOVE | enq::INITIAL) != 0 && !boosted && p.dl.has_passed(now) {
            self.replenish_new_period(now, p);
        }
        p.dl.enqueue();
        rq.add_nr_running();
        if !p.dl.runs() {
            self.dl_insert(rq, p);
        }
    }

    /// `dequeue_task_dl()`.
    pub(crate) fn dequeue_task_dl(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        if p.dl.runs() {
            self.update_curr_dl(c, p);
        }
        self.dequeue_dl_entity(rq, p);
    }

    fn dequeue_dl_entity(&self, rq: &Cpu, p: &Task) {
        if p.dl.dequeue() {
            rq.sub_nr_running();
            rq.dl.remove(p.id);
        }
    }

    /// `update_curr_dl()`: charges the running time of `p` to its runtime. A task that has used it up is throttled.
    fn update_curr_dl(&self, c: &Cpu, p: &Task) {
        if !p.dl.is_queued() {
            return;
        }
        let ran = self.update_curr_common(c, p);
        self.tell_missed(c, p);
        if !p.dl.charge(ran) {
            return;
        }
        let rq = self.cpu(p.cpu());
        self.dequeue_dl_entity(rq, p);
        if p.is_boosted_by_deadline() || !self.start_dl_timer(c, rq, p) {
            self.enqueue_task_dl(c, rq, p, enq::REPLENISH);
        } else {
            self.throttle(c, p);
        }
        if !self.dl_is_first(rq, p) {
            self.resched_curr(c, rq);
        }
    }

    /// Records that the deadline of a task that still has runtime has passed, once.
    fn tell_missed(&self, c: &Cpu, p: &Task) {
        let late = c.this.now.get().saturating_sub(p.dl.deadline());
        if late > 0 && p.reservation().is_some() && p.dl.miss() {
            self.record(c, Event::DeadlineMissed { task: p.id });
        }
    }

    /// `pick_task_dl()`, after a pull where a task of the class leaves this CPU (`balance_dl()`).
    pub(crate) fn pick_task_dl(&self, c: &Cpu, prev: Option<&Task>) -> Option<TaskId> {
        let left = prev.filter(|p| p.class() == Class::Deadline);
        let prev = left.filter(|p| p.dl.is_queued());
        if left.is_some() && prev.is_none() && c.is_online() {
            self.pull_dl_task(c);
        }
        let first = c.dl.first();
        match prev {
            Some(p) if self.dl_is_first(c, p) => Some(p.id),
            _ => first,
        }
    }

    /// Whether `p` waits on `rq` behind one that goes before it, and has left the CPU that it ran on.
    fn dl_waits_behind(&self, p: &Task, rq: &Cpu) -> bool {
        let runs = self.dl_curr(rq);
        self.is_queued_on(p, rq)
            && p.dl.is_queued()
            && !p.on_cpu()
            && runs.is_some_and(|deadline| deadline <= p.dl.deadline())
    }

    /// `pull_dl_task()`: takes the task with the earliest deadline that waits elsewhere, if it would be the first here.
    fn pull_dl_task(&self, c: &Cpu) {
        loop {
            let waiting = self.cpus.iter().filter(|rq| rq.id != c.id);
            let waiting = waiting.flat_map(|rq| rq.dl.waiting().clone());
            let found = waiting
                .map(|task| self.task(task))
                .filter(|p| p.allows(c.id) && self.would_be_earliest(p, c))
                .filter(|p| self.dl_waits_behind(p, self.cpu(p.cpu())))
                .min_by_key(|p| (p.dl.deadline(), p.cpu()));
            let Some(p) = found else { return };
            let src = self.cpu(p.cpu());
            self.rq_unlock(c, c);
            self.rq_lock(c, src);
            // Either may have changed meanwhile.
            if self.dl_waits_behind(p, src) && self.would_be_earliest(p, c) {
                p.set_on_rq(OnRq::Migrating);
                self.dequeue_dl_entity(src, p);
                self.set_task_cpu(c, p, c.id);
                self.rq_unlock(c, src);
                self.rq_lock(c, c);
                self.enqueue_task_dl(c, c, p, 0);
                p.set_on_rq(OnRq::Queued);
                return;
            }
            self.rq_unlock(c, src);
            self.rq_lock(c, c);
        }
    }

    /// `select_task_rq_dl()`: where it was, unless a task of the class runs there that goes before it or could not go
    /// elsewhere.
    pub(crate) fn select_task_rq_dl(&self, c: &Cpu, p: &Task, prev: CpuId) -> CpuId {
        let curr = self.cpu(prev).curr().map(|task| self.task(task));
        let stays = |curr: &Task| {
            let is_later = p.dl.deadline() < curr.dl.deadline();
            curr.class() == Class::Deadline && (curr.affinity.nr() < 2 || !is_later)
        };
        if p.allows(prev) && !curr.is_some_and(stays) {
            return prev;
        }
        let found = self.find_later_rq(c, p);
        let found = found.filter(|&cpu| self.would_be_earliest(p, self.cpu(cpu)));
        found.unwrap_or(prev)
    }

    /// `find_later_rq()` and `cpudl_find()`: a CPU without tasks of the class, its own or this one or else the nearest;
    /// where all have some, that with the latest deadline, if that is later.
    fn find_later_rq(&self, c: &Cpu, p: &Task) -> Option<CpuId> {
        let own = p.cpu();
        let usable = |rq: &&Cpu| rq.is_online() && p.allows(rq.id);
        let free = self.cpus.iter().filter(usable);
        let free = free.filter(|rq| self.dl_earliest(rq).is_none());
        let nearest = free.min_by_key(|rq| {
            let reach = (rq.id != own).then(|| self.machine.topology.reach(own, rq.id) as u8);
            (rq.id != own, rq.id != c.id, reach, rq.id)
        });
        let latest = || {
            let busy = self.cpus.iter().filter(usable);
            let latest = busy.max_by_key(|rq| (self.dl_earliest(rq), std::cmp::Reverse(rq.id)));
            latest.filter(|rq| self.would_be_earliest(p, rq))
        };
        nearest.or_else(latest).map(|rq| rq.id)
    }

    /// `task_woken_dl()`.
    pub(crate) fn task_woken_dl(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        let curr = rq.curr().map(|task| self.task(task));
        let waits = curr.is_some_and(|curr| {
            let goes_first = p.dl.deadline() < curr.dl.deadline();
            curr.class() == Class::Deadline && (curr.affinity.nr() < 2 || !goes_first)
        });
        if waits && !rq.need_resched() && p.affinity.nr() > 1 {
            self.push_dl_tasks(c, rq);
        }
    }

    /// `push_dl_tasks()`. `rq` is locked on entry and on return.
    pub(crate) fn push_dl_tasks(&self, c: &Cpu, rq: &Cpu) {
        while self.push_dl_task(c, rq) {}
    }

    /// `pick_next_pushable_dl_task()`.
    fn pushable_dl_task(&self, rq: &Cpu) -> Option<&Task> {
        let queue = rq.dl.waiting();
        let mut waiting = queue.iter().map(|&task| self.task(task));
        waiting.find(|p| p.affinity.nr() > 1)
    }

    /// `push_dl_task()` and `find_lock_later_rq()`. Returns whether a task went.
    fn push_dl_task(&self, c: &Cpu, rq: &Cpu) -> bool {
        for _ in 0..MAX_TRIES {
            let Some(p) = self.pushable_dl_task(rq) else {
                return false;
            };
            self.sync(c);
            let curr = rq.curr().map(|task| self.task(task));
            let gives_way = |curr: &Task| curr.class() == Class::Deadline && curr.affinity.nr() > 1;
            let runs = self.dl_curr(rq);
            if curr.is_some_and(gives_way) && runs.is_some_and(|at| p.dl.deadline() < at) {
                self.resched_curr(c, rq);
                return false;
            }
            let Some(cpu) = self.find_later_rq(c, p).filter(|&cpu| cpu != rq.id) else {
                return false;
            };
            let dst = self.cpu(cpu);
            self.double_rq_lock(c, rq, dst);
            // Either may have changed meanwhile.
            let waits = self.is_queued_on(p, rq) && p.dl.is_queued() && !p.on_cpu();
            let goes =
                waits && dst.is_online() && p.allows(dst.id) && self.would_be_earliest(p, dst);
            if goes {
                p.set_on_rq(OnRq::Migrating);
                self.dequeue_dl_entity(rq, p);
                self.set_task_cpu(c, p, dst.id);
                self.enqueue_task_dl(c, dst, p, 0);
                p.set_on_rq(OnRq::Queued);
                self.wakeup_preempt(c, dst, p);
            }
            self.rq_unlock(c, dst);
            if goes {
                return true;
            }
        }
        false
    }

    /// `wakeup_preempt_dl()`.
    pub(crate) fn wakeup_preempt_dl(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        let Some(runs) = self.dl_curr(rq) else { return };
        let deadline = p.dl.deadline();
        if deadline < runs {
            self.resched_curr(c, rq);
        } else if deadline == runs && !rq.need_resched() {
            // check_preempt_equal_dl(): where only the current task could run elsewhere, it goes.
            let may_go = |p: &Task| p.affinity.nr() > 1 && self.find_later_rq(c, p).is_some();
            let curr = rq.curr().map(|task| self.task(task));
            if curr.is_some_and(may_go) && !may_go(p) {
                self.resched_curr(c, rq);
            }
        }
    }

    pub(crate) fn put_prev_task_dl(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        self.update_curr_dl(c, p);
        self.hrtick_cancel(rq);
        p.dl.set_runs(false);
        if p.dl.is_queued() {
            self.dl_insert(rq, p);
        }
    }

    pub(crate) fn set_next_task_dl(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        rq.dl.remove(p.id);
        p.dl.set_runs(true);
        p.start_exec(c.this.now.get());
        self.start_hrtick_dl(c, rq, p);
    }

    /// `start_hrtick_dl()`: the end of the runtime is noticed by a timer. Before Linux 7.2, by the tick.
    fn start_hrtick_dl(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        if !self.version.has_hrtick() {
            return;
        }
        self.hrtick_start(rq, c.this.now.get() + p.dl.left().max(SHORTEST_NS));
    }

    /// `task_tick_dl()`. `queued`: it is the timer of the runtime's end, not the tick.
    pub(crate) fn task_tick_dl(&self, c: &Cpu, p: &Task, queued: bool) {
        self.update_curr_dl(c, p);
        if queued && p.dl.left() > 0 && self.dl_is_first(c, p) {
            self.start_hrtick_dl(c, c, p);
        }
    }

    /// `yield_task_dl()`: gives the rest of the runtime away.
    pub(crate) fn yield_task_dl(&self, c: &Cpu, p: &Task) {
        p.dl.set_yielded();
        self.update_curr_dl(c, p);
    }

    /// Replenishment timers of tasks and cgroups have expired on `c`.
    pub(crate) fn replenishments_due(&self, c: &Cpu) {
        self.set_mode(c, CpuMode::Sched);
        let path = self.set_lock_path(c, LockPath::Other);
        while let Some(task) = c.expired.pop_period() {
            self.dl_task_timer(c, self.task(task));
        }
        self.limits_due(c);
        self.set_lock_path(c, path);
    }

    /// `dl_task_timer()`.
    fn dl_task_timer(&self, c: &Cpu, p: &Task) {
        let rq = self.task_rq_lock(c, p);
        let is_due =
            p.class() == Class::Deadline && !p.is_boosted_by_deadline() && p.dl.is_throttled();
        if is_due && p.on_rq() == OnRq::Queued {
            self.enqueue_task_dl(c, rq, p, enq::REPLENISH);
            self.wakeup_preempt(c, rq, p);
            self.push_dl_task(c, rq);
        } else if is_due {
            // It blocked with its last: it will be enqueued when it wakes.
            self.replenish(c, p);
        }
        self.rq_unlock(c, rq);
    }

    /// `prio_changed_dl()`, and what `rt_mutex_setprio()` leaves to it: `p` is on `rq` with another deadline.
    pub(crate) fn prio_changed_dl(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        if rq.curr() == Some(p.id) {
            if rq.id == c.id && c.is_online() {
                self.pull_dl_task(c);
            }
            if !self.dl_is_first(rq, p) {
                self.resched_curr(c, rq);
            }
        } else if p.dl.is_queued() && self.dl_curr(rq).is_none_or(|runs| p.dl.deadline() < runs) {
            self.resched_curr(c, rq);
        }
    }

    /// `switched_from_dl()` of a task that runs on `c`: another one may run here now.
    pub(crate) fn switched_from_dl(&self, c: &Cpu) {
        if c.is_online() && self.dl_earliest(c).is_none() {
            self.pull_dl_task(c);
        }
    }

    /// Whether reservations of `bandwidth` in all do not fit on so many CPUs (`__dl_overflow()`).
    fn dl_overflow(&self, nr_cpus: usize, bandwidth: u64) -> bool {
        bandwidth > self.dl_limit(nr_cpus)
    }

    /// Returns the bandwidth of so many CPUs for the reservations of tasks. A server is for fair tasks or a policy's
    /// tasks; both servers exist if a policy leaves some tasks to the fair class.
    fn dl_limit(&self, nr_cpus: usize) -> u64 {
        let both = self.version.has_ext_server() && self.has_flag(ops::SWITCH_PARTIAL);
        let servers = if both { 2 } else { 1 };
        nr_cpus as u64 * (LIMIT_BW - servers * SERVER_BW)
    }

    /// `dl_bw_deactivate()`: whether the reservations would not fit on one CPU less.
    pub(crate) fn dl_needs_all_cpus(&self) -> bool {
        let reserved = self.dl_bw.reserved();
        reserved > 0 && self.dl_overflow(self.online.borrow().len() - 1, reserved)
    }

    /// `sched_dl_overflow()` and the checks before it in `__sched_setscheduler()`: `p` is to be of the policy `class`, which
    /// is refused where its reservation does not fit. Tells whether it is granted; the run ends where it is not.
    pub(crate) fn dl_admit(&self, p: &Task, class: SchedClass) -> bool {
        let held = p.dl.bandwidth();
        let asked = match class {
            SchedClass::Deadline(reservation) => reservation.bandwidth(),
            _ => 0,
        };
        if (held, asked) == (0, 0) {
            return true;
        }
        let refused = match class {
            SchedClass::Deadline(reservation) => self.dl_refusal(p, reservation),
            _ => None,
        };
        if let Some(why) = refused {
            self.fail(WorkloadFailure::Refused {
                task: p.label(),
                what: "run under SCHED_DEADLINE",
                why,
            });
            return false;
        }
        self.dl_bw.reserve(&p.dl, asked);
        true
    }

    /// Why `p` does not get `reservation`.
    fn dl_refusal(&self, p: &Task, reservation: Reservation) -> Option<String> {
        if let Err(why) = reservation.check() {
            return Some(format!("{why} (EINVAL)"));
        }
        if !self.may_run_everywhere(p.affinity.borrow().as_ref()) {
            return Some(
                "it may not run on all CPUs (EPERM); leave out its list of CPUs".to_owned(),
            );
        }
        let (held, asked) = (p.dl.bandwidth(), reservation.bandwidth());
        let all = self.dl_bw.with(&p.dl, asked);
        let nr_cpus = self.online.borrow().len();
        let overflows = held != asked && self.dl_overflow(nr_cpus, all);
        overflows.then(|| {
            format!(
                "with its {} of a CPU {} would be reserved, and {} {} {} for that (EBUSY); reserve less, or add CPUs",
                percent(asked),
                percent(all),
                schedlab_trace::counted(nr_cpus as u64, "CPU"),
                if nr_cpus == 1 { "has" } else { "have" },
                percent(self.dl_limit(nr_cpus))
            )
        })
    }

    /// Whether `set` has all CPUs of the root domain, as a deadline task's mask must.
    pub(crate) fn may_run_everywhere(&self, set: Option<&schedlab_trace::CpuSet>) -> bool {
        set.is_none_or(|set| self.online.borrow().is_subset(set))
    }

    /// A task that has left the class is not throttled any more.
    pub(crate) fn leave_dl(&self, c: &Cpu, p: &Task) {
        p.dl.forget_yield();
        self.cancel_timer(Timer::Replenish(p.id));
        self.unthrottle(c, p);
    }

    /// A task that ends gives back what it holds.
    pub(crate) fn dl_release(&self, c: &Cpu, p: &Task) {
        if p.dl.bandwidth() > 0 {
            self.dl_admit(p, SchedClass::Normal);
            self.leave_dl(c, p);
        }
    }
}
