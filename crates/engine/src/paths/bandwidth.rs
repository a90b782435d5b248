//! Limits of CPU time of groups in the fair class (kernel/sched/fair.c, `CONFIG_CFS_BANDWIDTH`): `cpu.max` and
//! `cpu.max.burst`.
//!
//! A CPU takes slices of the group's quota while tasks of the group run there. Where nothing is left, the group is throttled on
//! that CPU: each of its tasks stops as soon as it is in user space, so that it holds nothing of the kernel's, until a timer
//! fills the quota at the beginning of a period, or other CPUs give back what they do not need.
//!
//! Model: the CPU of the timer enqueues the tasks of all CPUs, where the kernel asks each by an interrupt, and the lock of the
//! quota costs nothing. The load of a throttled group fades, as if its tasks slept; the kernel stops its clock. Every task of
//! a throttled group that runs is stopped; the kernel passes over some that run right after another one of their group.

use schedlab_trace::{Event, Recorder};
use schedlab_workload::CgroupId;

use crate::contract::consts::{deq, enq};
use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::event_queue::Timer;
use crate::state::fair::Leave;
use crate::state::fair_group::{EXPIRATION_NS, GroupRq, Groups, Pool, SLACK_NS, SLICE_NS};
use crate::state::program::Exec;
use crate::state::task::{Class, OnRq, Task};

/// Whether a task is in user space.
fn is_in_user(p: &Task) -> bool {
    matches!(p.program.exec(), Exec::Next | Exec::User)
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `account_cfs_rq_runtime()`: a group has run for so long on `rq`. An offline CPU has no limit.
    pub(crate) fn account_cfs_rq_runtime(
        &self,
        c: &Cpu,
        groups: &Groups,
        rq: &Cpu,
        id: CgroupId,
        ran: i64,
    ) {
        let Some(pool) = groups.pool(id).filter(|_| rq.is_online()) else {
            return;
        };
        let group = groups.rq(id, rq.id);
        group.set_runtime(group.runtime() - ran);
        if group.runtime() <= 0 && !group.is_throttled() {
            self.throttle_cfs_rq(c, groups, rq, group, pool);
        }
    }

    /// `throttle_cfs_rq()`, unless there is CPU time left.
    #[inline(never)]
    fn throttle_cfs_rq(&self, c: &Cpu, groups: &Groups, rq: &Cpu, group: &GroupRq, pool: &Pool) {
        let running = self.running_fair(rq);
        let running = running.filter(|p| groups.path(p.cgroup()).any(|id| id == group.id));
        // __assign_cfs_rq_runtime(): a running task goes on for a slice, others need a beginning.
        let target = if running.is_some() { SLICE_NS } else { 1 };
        let now = c.this.now.get();
        if let Some(expires) = pool.start(now) {
            self.set_timer(Timer::Quota(group.id), c.id, expires);
        }
        let amount = pool.take(target - group.runtime());
        group.set_runtime(group.runtime() + amount);
        if group.runtime() > 0 {
            return;
        }
        pool.wait(rq.id);
        // tg_throttle_down()
        for id in groups.subtree(group.id) {
            groups.rq(id, rq.id).add_throttled();
        }
        group.throttle();
        if running.is_some() {
            // task_throttle_setup_work()
            rq.set_stops_in_user(true);
        }
    }

    /// Whether the task that runs on `c` is to leave it, as its group has no CPU time left, and can.
    #[inline(always)]
    pub(crate) fn stops_now(&self, c: &Cpu, p: &Task) -> bool {
        c.stops_in_user() && is_in_user(p)
    }

    /// `throttle_cfs_rq_work()`: the running task is stopped if its group still has no CPU time. The run queue is locked.
    #[cold]
    pub(crate) fn throttle_task(&self, c: &Cpu, p: &Task) {
        c.set_stops_in_user(false);
        let is_here = p.class() == Class::Fair && p.on_rq() == OnRq::Queued && !p.is_exiting();
        if !is_here || !self.is_throttled_on(p, c.id) {
            return;
        }
        self.dequeue_entities(c, c, p, Leave::Throttle);
        self.stop_in_group(c, c, p);
    }

    /// `p`, which is in no queue, waits until its group has CPU time on `rq`.
    fn stop_in_group(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        let Some(groups) = &self.groups else { return };
        groups.rq(p.cgroup(), rq.id).stop(p.id);
        p.fair.throttle();
        self.record(c, Event::Throttled { task: p.id });
    }

    /// `dequeue_throttled_task()`: a stopped task goes elsewhere, or changes.
    #[cold]
    pub(crate) fn dequeue_throttled_task(&self, c: &Cpu, p: &Task, flags: u64) {
        let Some(groups) = &self.groups else { return };
        groups.rq(p.cgroup(), p.cpu()).release(p.id);
        self.record(c, Event::Replenished { task: p.id });
        if flags & deq::SLEEP != 0 {
            p.fair.unthrottle();
        } else if p.on_rq() == OnRq::Migrating {
            self.detach_load(c, p);
        }
    }

    /// `enqueue_throttled_task()`: whether a task that was stopped when it left stays so on `rq`.
    #[cold]
    pub(crate) fn stays_throttled(&self, c: &Cpu, rq: &Cpu, p: &Task) -> bool {
        let stays = self.is_throttled_on(p, rq.id) && rq.curr() != Some(p.id);
        match stays {
            true => self.stop_in_group(c, rq, p),
            false => p.fair.unthrottle(),
        }
        stays
    }

    /// `unthrottle_cfs_rq()`, unless the CPU time of the group is used up again. `rq` is locked.
    fn unthrottle_cfs_rq(&self, c: &Cpu, groups: &Groups, rq: &Cpu, group: &GroupRq) {
        let Some(pool) = groups.pool(group.id) else {
            return;
        };
        if rq.is_online() && group.runtime() <= 0 {
            return;
        }
        group.unthrottle();
        pool.end_wait(rq.id);
        for id in groups.subtree(group.id) {
            self.tg_unthrottle_up(c, rq, groups.rq(id, rq.id));
        }
        if rq.curr().is_none() && self.fair_task_waits(rq) {
            self.resched_curr(c, rq);
        }
    }

    /// `tg_unthrottle_up()`: the tasks of a group go back to their queues, the last one first, unless it is throttled again.
    fn tg_unthrottle_up(&self, c: &Cpu, rq: &Cpu, group: &GroupRq) {
        group.sub_throttled();
        while !group.is_in_throttled()
            && let Some(task) = group.last_stopped()
        {
            let p = self.task(task);
            group.release(task);
            p.fair.unthrottle();
            self.record(c, Event::Replenished { task });
            self.enqueue_task_fair(c, rq, p, enq::WAKEUP);
        }
    }

    /// `unthrottle_offline_cfs_rqs()`: tasks may leave a CPU that has gone offline. The run queue is locked.
    pub(crate) fn unthrottle_offline(&self, c: &Cpu) {
        let Some(groups) = &self.groups else { return };
        for (id, _) in groups.limited() {
            let group = groups.rq(id, c.id);
            if group.is_throttled() {
                group.set_runtime(1);
                self.unthrottle_cfs_rq(c, groups, c, group);
            }
        }
    }

    /// Timers of limits have expired on `c`.
    pub(crate) fn limits_due(&self, c: &Cpu) {
        let Some(groups) = &self.groups else { return };
        while let Some(timer) = c.expired.pop_limit() {
            match timer {
                Timer::Quota(id) => self.sched_cfs_period_timer(c, groups, id),
                Timer::Slack(id) => self.do_sched_cfs_slack_timer(c, groups, id),
                _ => unreachable!("another timer is not one of a limit"),
            }
        }
    }

    /// `sched_cfs_period_timer()`. The timer stops when nothing has been taken for a period.
    fn sched_cfs_period_timer(&self, c: &Cpu, groups: &Groups, id: CgroupId) {
        let Some(pool) = groups.pool(id) else { return };
        pool.refill();
        let throttled = pool.has_waiting();
        if !throttled && pool.set_idle(true) {
            pool.stop_timer();
            return;
        }
        let expires = pool.forward(c.this.now.get());
        self.set_timer(Timer::Quota(id), c.id, expires);
        if throttled {
            while pool.runtime() > 0 && self.distribute_cfs_runtime(c, groups, id, pool) {}
            pool.set_idle(false);
        }
    }

    /// `do_sched_cfs_slack_timer()`.
    fn do_sched_cfs_slack_timer(&self, c: &Cpu, groups: &Groups, id: CgroupId) {
        let Some(pool) = groups.pool(id) else { return };
        pool.end_slack();
        if !pool.is_refilled_within(c.this.now.get(), EXPIRATION_NS) && pool.has_slack() {
            self.distribute_cfs_runtime(c, groups, id, pool);
        }
    }

    /// `distribute_cfs_runtime()`: each CPU that waits gets what it owes and 1 ns more, so that it can go on. Returns whether
    /// some still wait.
    fn distribute_cfs_runtime(&self, c: &Cpu, groups: &Groups, id: CgroupId, pool: &Pool) -> bool {
        for cpu in pool.waiting() {
            if pool.runtime() <= 0 {
                return true;
            }
            let (rq, group) = (self.cpu(cpu), groups.rq(id, cpu));
            self.rq_lock(c, rq);
            if group.is_throttled() {
                let running = self.running_fair(rq);
                if let Some(p) = running.filter(|p| groups.path(p.cgroup()).any(|it| it == id)) {
                    self.update_curr_fair_of(c, p);
                }
                let amount = pool.take(1 - group.runtime());
                group.set_runtime(group.runtime() + amount);
                self.unthrottle_cfs_rq(c, groups, rq, group);
            }
            self.rq_unlock(c, rq);
        }
        false
    }

    /// `return_cfs_rq_runtime()`: a group has no task on `rq` any more. An offline CPU keeps what it has.
    pub(crate) fn return_cfs_rq_runtime(
        &self,
        c: &Cpu,
        groups: &Groups,
        rq: &Cpu,
        group: &GroupRq,
    ) {
        let Some(pool) = groups.pool(group.id).filter(|_| rq.is_online()) else {
            return;
        };
        let slack = group.take_slack();
        // start_cfs_slack_bandwidth()
        let now = c.this.now.get();
        if slack > 0
            && pool.give_back(slack)
            && !pool.is_refilled_within(now, SLACK_NS + EXPIRATION_NS)
            && pool.start_slack()
        {
            self.set_timer(Timer::Slack(group.id), c.id, now + SLACK_NS);
        }
    }
}
