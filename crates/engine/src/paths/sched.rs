//! The core scheduler: schedule(), run queues, changes of a task's attributes (kernel/sched/core.c).

use std::ptr;

use schedlab_trace::{CpuId, CpuMode, CpuSet, Event, LockPath, PrevState, Recorder, TaskId};

use crate::contract::consts::{deq, enq};
use crate::contract::mutation::Mutation;
use crate::contract::policy::{OpCall, OpKind, Policy};
use crate::paths::ext::{NextTask, Pick};
use crate::paths::kernel::Kernel;
use crate::state::attributes::Attributes;
use crate::state::cpu::Cpu;
use crate::state::pi::Inherited;
use crate::state::scx::ScxState;
use crate::state::stop::Push;
use crate::state::task::{Class, OnRq, Task, TaskState};

/// How long a CPU waits before it looks again at what another one is doing with a task.
const RELAX_NS: u64 = 50;

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `update_curr_common()`: what `p` has run since it was last asked.
    pub(crate) fn update_curr_common(&self, c: &Cpu, p: &Task) -> u64 {
        p.update_curr(c.this.now.get())
    }

    /// The class that schedules `p` (`__setscheduler_class()`).
    pub(crate) fn class_of(&self, p: &Task) -> Class {
        self.class_by(&p.attributes())
    }

    /// The class that schedules a task with these attributes.
    pub(crate) fn class_by(&self, attributes: &Attributes) -> Class {
        use crate::contract::scenario::{NormalClass, RtMode};
        if attributes.is_deadline() {
            return Class::Deadline;
        }
        if attributes.is_realtime()
            && (self.setup.rt_mode == RtMode::Kernel
                || self.setup.normal_class == NormalClass::Fair)
        {
            return Class::Rt;
        }
        let partial = self.has_flag(crate::contract::consts::ops::SWITCH_PARTIAL);
        if self.setup.normal_class == NormalClass::Fair || partial {
            // No task of a workload asks for SCHED_EXT by itself, so none is disallowed it, either.
            Class::Fair
        } else {
            Class::Ext
        }
    }

    /// `enqueue_task()` of the task's class.
    pub(crate) fn enqueue_task(&self, c: &Cpu, rq: &Cpu, p: &Task, flags: u64) {
        if self.ops.reads_facts && flags & enq::RESTORE == 0 {
            p.account.enqueue(c.this.now.get());
        }
        match p.class() {
            Class::Ext => self.enqueue_task_scx(c, rq, p, flags),
            Class::Fair => {
                p.set_on_rq(OnRq::Queued);
                self.enqueue_task_fair(c, rq, p, flags);
            }
            Class::Rt => {
                p.set_on_rq(OnRq::Queued);
                self.enqueue_task_rt(rq, p, flags);
            }
            Class::Deadline => {
                p.set_on_rq(OnRq::Queued);
                self.enqueue_task_dl(c, rq, p, flags);
            }
            Class::Idle | Class::Stop => unreachable!("idle tasks are not enqueued"),
        }
    }

    pub(crate) fn dequeue_task(&self, c: &Cpu, rq: &Cpu, p: &Task, flags: u64) {
        if self.ops.reads_facts && flags & deq::SAVE == 0 {
            p.account.dequeue(c.this.now.get());
        }
        match p.class() {
            Class::Ext => self.dequeue_task_scx(c, rq, p, flags),
            Class::Fair => self.dequeue_task_fair(c, rq, p, flags),
            Class::Rt => self.dequeue_task_rt(rq, p),
            Class::Deadline => self.dequeue_task_dl(c, rq, p),
            Class::Idle | Class::Stop => unreachable!("idle tasks are not dequeued"),
        }
    }

    /// `activate_task()` of a task that was not runnable.
    pub(crate) fn activate_task(&self, c: &Cpu, rq: &Cpu, p: &Task, flags: u64) {
        self.population.add_runnable();
        p.set_on_rq(OnRq::Queued);
        self.enqueue_task(c, rq, p, flags);
    }

    /// `move_queued_task()`: takes a queued task that does not run from `src` to `dst`. `src` is
    /// locked on entry, `dst` on return.
    pub(crate) fn move_queued_task(&self, c: &Cpu, p: &Task, src: &Cpu, dst: &Cpu) {
        p.set_on_rq(OnRq::Migrating);
        // Without run queue locks a CPU that has taken it from a queue may wait until it is off its CPU,
        // and would go on while the ops of the dequeue run: it finds at once that it came too late.
        if !self.machine.sched_ext.rq_locks && p.scx.let_go() {
            p.leave_dsq();
        }
        self.dequeue_task(c, src, p, deq::NOCLOCK);
        self.set_task_cpu(c, p, dst.id);
        self.rq_unlock(c, src);
        self.rq_lock(c, dst);
        self.enqueue_task(c, dst, p, enq::MIGRATED);
        self.wakeup_preempt(c, dst, p);
    }

    /// `__set_task_cpu()`: where a task is put that has not been anywhere yet, which is no migration.
    pub(crate) fn place_task(&self, p: &Task, to: CpuId) {
        if p.place_on(to) {
            self.policy.set_task_cpu(p.id, to);
        }
    }

    /// `set_task_cpu()`.
    pub(crate) fn set_task_cpu(&self, c: &Cpu, p: &Task, to: CpuId) {
        let from = p.cpu();
        if from == to {
            return;
        }
        self.record(
            c,
            Event::Migrate {
                task: p.id,
                from,
                to,
                reach: self.machine.topology.reach(from, to),
            },
        );
        self.place_task(p, to);
    }

    /// schedule(). `preempt`: the task is interrupted, it does not give up the CPU by itself.
    pub(crate) fn schedule(&self, c: &Cpu, preempt: bool) {
        self.set_mode(c, CpuMode::Sched);
        let path = self.set_lock_path(c, LockPath::Schedule);
        self.sync(c);
        let mut entry = self.schedule_entered(c);
        self.charge(c, self.machine.paths.schedule_ns);
        c.end_idle();
        self.rq_lock(c, c);
        // Without run queue locks marks can come during the choice: only those before it are
        // answered by it (Linux 2.4 cleared its mark there, too).
        if !self.machine.sched_ext.rq_locks {
            c.set_need_resched(false);
        }
        let prev = c.curr().map(|task| self.task(task));
        // A task that blocks is not on the way to user space.
        if let Some(p) = prev
            && preempt
            && self.stops_now(c, p)
        {
            self.throttle_task(c, p);
        }
        let mut prev_state = PrevState::Preempted;
        if let Some(p) = prev {
            if p.take_yield() {
                prev_state = PrevState::Yielded;
            }
            if !preempt && p.state() != TaskState::Running {
                prev_state = if p.state() == TaskState::Dead {
                    PrevState::Exited
                } else {
                    PrevState::Blocked
                };
                // try_to_block_task(). Without run queue locks the ops that are called on the way, which may
                // take a policy's locks, do not keep wakers off: these wait until it is off the CPU.
                // The other classes call none, and count who leaves among the runnable.
                if !self.machine.sched_ext.rq_locks && p.class() == Class::Ext {
                    p.set_on_rq(OnRq::No);
                }
                let special = match prev_state {
                    PrevState::Exited => self.version.deq_special(),
                    _ => 0,
                };
                self.dequeue_task(c, c, p, deq::SLEEP | deq::NOCLOCK | special);
                p.set_on_rq(OnRq::No);
                self.population.remove_runnable();
            }
        }
        let mut prev = prev;
        let stopper = prev.filter(|p| p.stop.is_due() && p.on_rq() == OnRq::Queued);
        if let Some(p) = stopper {
            // The stopper is what was chosen. When it has done its work, it schedules.
            self.schedule_chose(c, &entry);
            self.migration_cpu_stop(c, p, prev_state);
            entry = self.schedule_entered(c);
            self.charge(c, self.machine.paths.schedule_ns);
            prev = None;
        }
        let next = self.pick_next_task(c, prev, stopper.is_some());
        c.set_next_class(next.map_or(Class::Idle, |p| p.class()));
        if self.machine.sched_ext.rq_locks {
            c.set_need_resched(false);
        }
        c.mark_if_told();
        self.schedule_chose(c, &entry);
        let switched = !is_same(prev, next);
        if switched {
            self.context_switch(c, prev, prev_state, next);
            if let Some(p) = prev {
                self.finish_task(c, p);
            }
        }
        if self.classes.has_rt() || c.kicks.wait_is_due() || c.deferred.waits_for_balance() {
            self.balance_callbacks(c, switched);
        }
        self.rq_unlock(c, c);
        if switched
            && let Some(p) = prev
            && prev_state == PrevState::Exited
        {
            self.sched_ext_dead(c, p);
        }
        self.set_lock_path(c, path);
    }

    /// An entry into schedule().
    #[inline(always)]
    fn schedule_entered(&self, c: &Cpu) -> Entry {
        self.record(
            c,
            Event::ScheduleEnter {
                runnable: self.population.nr_runnable(),
                queue: c.nr_running(),
            },
        );
        Entry {
            examined: examined(c),
            memory_wait_ps: self.memory_wait_ps(c),
        }
    }

    /// The choice is made.
    #[inline(always)]
    fn schedule_chose(&self, c: &Cpu, entry: &Entry) {
        let (before, after) = (entry.examined, examined(c));
        self.record(
            c,
            Event::ScheduleExit {
                examined: (after.0 - before.0) as u32,
                recalculations: (after.1 - before.1) as u32,
                memory_wait_ps: self.memory_wait_ps(c) - entry.memory_wait_ps,
            },
        );
    }

    /// `balance_callbacks()`: what came last is first. The run queue is locked on entry and on return.
    #[inline(never)]
    fn balance_callbacks(&self, c: &Cpu, switched: bool) {
        // set_next_task_rt(), set_next_task_dl()
        match self.curr_class(c) {
            Class::Rt if switched => self.push_rt_tasks(c, c),
            Class::Deadline if switched => {
                self.push_dl_tasks(c, c);
                self.push_rt_tasks(c, c);
            }
            _ => {}
        }
        if c.kicks.begin_wait() {
            self.rq_unlock(c, c);
            self.kick_sync_wait(c);
            self.rq_lock(c, c);
        }
        if c.deferred.take_balance() {
            self.run_deferred(c, c);
        }
    }

    /// `pick_next_task()` and `put_prev_set_next_task()`. `None` is the idle task.
    /// `stopper`: the CPU comes from the stopper, not from a task and not from idle.
    fn pick_next_task<'k>(
        &'k self,
        c: &Cpu,
        prev: Option<&'k Task>,
        stopper: bool,
    ) -> Option<&'k Task> {
        let next = loop {
            if self.classes.has_rt()
                && let Some(task) = self.pick_above_fair(c, prev)
            {
                break Some(self.task(task));
            }
            if self.classes.has_fair() {
                let task = self.pick_task_fair(c, prev);
                // A task that came while the run queue was not locked goes first (`RETRY_TASK`).
                if self.waits_above_fair(c) {
                    continue;
                }
                if let Some(task) = task {
                    break Some(self.task(task));
                }
            }
            if !self.life.scx_enabled() {
                break None;
            }
            match self.pick_task_scx(c, prev) {
                Pick::Task(task) => break Some(task),
                Pick::Nothing => break None,
                Pick::Retry => {}
            }
        };
        if next.is_none() {
            // pick_task_idle()
            self.scx_update_idle(c, true, false);
        }
        if is_same(prev, next) && !stopper {
            return next;
        }
        c.choose(next.map(|p| p.id));
        let target = NextTask {
            class: next.map_or(Class::Idle, |p| p.class()),
            task: next.map(|p| p.id),
        };
        match prev {
            None if stopper => {}
            None => self.scx_update_idle(c, false, true),
            Some(p) => self.put_prev_task(c, p, target),
        }
        match next {
            None => {
                self.scx_update_idle(c, true, true);
                // Without run queue locks a task may have come after the choice.
                if !self.machine.sched_ext.rq_locks && c.local.nr() > 0 {
                    c.set_need_resched(true);
                }
            }
            Some(p) => self.set_next_task(c, p),
        }
        c.choose(None);
        next
    }

    /// Whether a task of the real-time or deadline class waits on `c`.
    pub(crate) fn waits_above_fair(&self, c: &Cpu) -> bool {
        c.rt.waits() || c.dl.waits()
    }

    /// The next task of the deadline and real-time classes.
    fn pick_above_fair(&self, c: &Cpu, prev: Option<&Task>) -> Option<TaskId> {
        loop {
            if self.classes.has_dl()
                && let Some(task) = self.pick_task_dl(c, prev)
            {
                return Some(task);
            }
            let task = self.pick_task_rt(c, prev);
            // A deadline task that came while the run queue was not locked goes first (`RETRY_TASK`).
            if !c.dl.waits() {
                return task;
            }
        }
    }

    fn put_prev_task(&self, c: &Cpu, p: &Task, next: NextTask) {
        match p.class() {
            Class::Ext => self.put_prev_task_scx(c, p, next),
            Class::Fair if next.class == Class::Fair => self.put_prev_task_fair(c, c, p),
            _ => self.put_changing_task(c, c, p),
        }
    }

    /// `put_prev_task()` of a task that is dequeued, or of another class than sched_ext, whatever runs next.
    fn put_changing_task(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        match p.class() {
            Class::Ext => self.put_changing_task_scx(c, rq, p),
            Class::Fair => {
                self.put_prev_task_fair(c, rq, p);
                rq.fair.choose(None);
            }
            Class::Rt => self.put_prev_task_rt(c, rq, p),
            Class::Deadline => self.put_prev_task_dl(c, rq, p),
            Class::Idle | Class::Stop => {}
        }
    }

    fn set_next_task(&self, c: &Cpu, p: &Task) {
        match p.class() {
            Class::Ext => self.set_next_task_scx(c, p),
            Class::Fair => self.set_next_task_fair(c, p),
            _ => self.set_next_above_fair(c, c, p),
        }
    }

    /// The same of a task of the real-time or deadline class, which may run on another CPU.
    fn set_next_above_fair(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        match p.class() {
            Class::Deadline => self.set_next_task_dl(c, rq, p),
            Class::Rt => self.set_next_task_rt(c, rq, p),
            Class::Ext | Class::Fair => unreachable!("a task that runs elsewhere only rises"),
            Class::Idle | Class::Stop => {}
        }
    }

    /// `context_switch()`.
    #[inline(always)]
    fn context_switch(
        &self,
        c: &Cpu,
        prev: Option<&Task>,
        prev_state: PrevState,
        next: Option<&Task>,
    ) {
        self.record(
            c,
            Event::Switch {
                prev: prev.map(|p| p.id),
                prev_state,
                next: next.map(|p| p.id),
            },
        );
        if self.ops.reads_facts {
            let now = c.this.now.get();
            if let Some(p) = prev {
                let is_runnable = !matches!(prev_state, PrevState::Blocked | PrevState::Exited);
                p.account.depart(now, is_runnable);
            }
            if let Some(p) = next {
                p.account.arrive(now);
            }
        }
        c.switch_to(next.map(|p| p.id));
        let paths = &self.machine.paths;
        self.charge(c, paths.switch_ns);
        if let Some(p) = next {
            let elsewhere = p.switch_in();
            assert!(
                !elsewhere && p.is_runnable_on(c.id),
                "{} is switched in on CPU {}, and is not there alone",
                p.label(),
                c.id
            );
            self.tally.add_switch();
            self.write_line(c, p.line, 0);
            if let Some(mm) = p.address_space
                && c.switch_mm(mm)
            {
                self.charge(c, paths.switch_mm_ns);
            }
            if let Some(from) = p.run_on(c.id)
                && from != c.id
                && p.program.exec() == crate::state::program::Exec::User
            {
                p.memory.come_to(c.id);
                p.program.extend(self.refill_ns(p, from, c.id));
            }
        }
        if prev.is_none() {
            self.start_tick(c);
        }
        if prev.is_none() != next.is_none() && !c.slowed_by.is_empty() {
            // The siblings ran until now at their former speed.
            self.sync(c);
            self.sibling_speed_changed(c);
        }
    }

    /// `finish_task()`: the previous task is off its CPU now.
    #[inline]
    fn finish_task(&self, c: &Cpu, p: &Task) {
        // Without run queue locks others look at it any time: not before it is so.
        if p.is_awaited() || !self.machine.sched_ext.rq_locks {
            self.finish_watched_task(c, p);
        } else {
            p.switch_out();
        }
    }

    #[inline(never)]
    fn finish_watched_task(&self, c: &Cpu, p: &Task) {
        self.sync(c);
        p.switch_out();
        if p.take_awaited() {
            self.wake_on_cpu_waiters(c, p);
        }
    }

    /// `migration_cpu_stop()`: the current task may not be here any more. The stopper, above all
    /// classes, takes its place and moves it. The run queue is locked on entry and on return.
    #[cold]
    fn migration_cpu_stop(&self, c: &Cpu, p: &Task, prev_state: PrevState) {
        let stopper = NextTask {
            class: Class::Stop,
            task: None,
        };
        self.put_prev_task(c, p, stopper);
        self.context_switch(c, Some(p), prev_state, None);
        self.finish_task(c, p);
        let (dest, push) = p.stop.take();
        // __migrate_task(): without run queue locks another CPU may have taken it from a queue.
        let is_here = p.on_rq() == OnRq::Queued && p.cpu() == c.id;
        let dest = dest.filter(|&cpu| p.allows(cpu) && self.online.borrow().contains(cpu));
        let is_pushed = match push {
            // detach_one_task()
            Some(Push::IdleCpu) => {
                dest.is_some_and(|cpu| self.is_idle_for_fair(cpu) && !self.is_throttled_on(p, cpu))
            }
            Some(Push::Exec) => dest.is_some(),
            None => false,
        };
        if is_here && (is_pushed || !(p.allows(c.id) && c.is_online())) {
            self.push_task_off(c, p, dest);
        }
    }

    /// Moves `p`, which waits on the run queue of `c`, to `dest` or where else it may run. The run queue of `c` is
    /// locked on entry and on return.
    pub(crate) fn push_task_off(&self, c: &Cpu, p: &Task, dest: Option<CpuId>) {
        let dst = self.cpu(dest.unwrap_or_else(|| self.select_fallback_rq(c, p)));
        // Without run queue locks others may have taken it meanwhile, or be about to put it on a queue.
        self.wait_until_placed(c, p);
        if self.is_queued_on(p, c) {
            self.move_queued_task(c, p, c, dst);
            self.rq_unlock(c, dst);
            self.rq_lock(c, c);
        }
    }

    /// `select_fallback_rq()`: a CPU that is online and allowed. A task whose CPUs are all offline may
    /// use every CPU from now on, as in the kernel.
    pub(crate) fn select_fallback_rq(&self, c: &Cpu, p: &Task) -> CpuId {
        let node = self.cpu(p.cpu()).node;
        let allowed = |cpu: &&Cpu| self.online.borrow().contains(cpu.id) && p.allows(cpu.id);
        let mut near = self.cpus.iter().filter(|cpu| cpu.node == node);
        let found = near
            .find(allowed)
            .or_else(|| self.cpus.iter().find(allowed));
        if let Some(cpu) = found {
            return cpu.id;
        }
        p.affinity.allow_all(self.cpus.len());
        self.affinity_changed(c, p, self.online.possible());
        self.online_or_other(p.cpu())
    }

    /// Tells everybody of the CPUs that `p` may use now.
    fn affinity_changed(&self, c: &Cpu, p: &Task, set: &CpuSet) {
        self.recorder.define_affinity(p.id, set);
        self.record(c, Event::Affinity { task: p.id });
        self.sync_task(p);
        if p.class() == Class::Ext && self.has_op(OpKind::SetCpumask) {
            self.call_task_op(c, p, OpCall::SetCpumask { task: p.id });
        }
    }

    /// The change of an attribute of the current task.
    pub(crate) fn sched_change(&self, c: &Cpu, p: &Task, change: Change) {
        self.set_mode(c, CpuMode::Sched);
        let path = self.set_lock_path(c, LockPath::Other);
        self.rq_lock(c, c);
        self.change_on(c, c, p, change);
        self.rq_unlock(c, c);
        self.set_lock_path(c, path);
    }

    /// The change of an attribute (`sched_change_begin()` to `_end()`): a task that is on `rq`, which is locked, leaves its
    /// queue, `change` is made, it comes back.
    pub(crate) fn change_on(&self, c: &Cpu, rq: &Cpu, p: &Task, change: Change) {
        let is_queued = p.on_rq() == OnRq::Queued;
        let runs = rq.curr() == Some(p.id) && is_queued;
        let (old_class, old) = (p.class(), p.attributes());
        let is_inheritance = matches!(change, Change::Inherit(_));
        let is_move = matches!(change, Change::Cgroup(_));
        let new = match change {
            Change::Class(policy) => {
                let own = Attributes { policy, ..old };
                let inherited = self.inherited_by(p, &own);
                Attributes { inherited, ..own }
            }
            Change::Inherit(inherited) => Attributes { inherited, ..old },
            Change::Nice(nice) => Attributes { nice, ..old },
            Change::Affinity(_) | Change::Cgroup(_) => old,
        };
        let changes_class = matches!(change, Change::Class(_) | Change::Inherit(_));
        let new_class = match changes_class {
            true => self.class_by(&new),
            false => old_class,
        };
        let (old_level, new_level) = (old.level(), new.level());
        // __sched_setscheduler(): NORMAL, BATCH and IDLE have the same priorities. Whose falls comes before its equals.
        let mut flags = deq::SAVE | deq::NOCLOCK;
        if is_move || new_level != old_level || changes_class && new_class == Class::Deadline {
            flags |= deq::MOVE;
        }
        let disables_first = self.version.disables_before_class_change();
        if new_class != old_class && disables_first {
            flags |= deq::CLASS;
        }
        // An inherited priority that falls to a normal one leaves no head of a queue to go to.
        let mut head = 0;
        if new_level > old_level && !(is_inheritance && new_class < Class::Rt) {
            head |= enq::HEAD;
        }
        if is_queued {
            self.dequeue_task(c, rq, p, flags);
            p.set_on_rq(OnRq::No);
        }
        if runs {
            self.put_changing_task(c, rq, p);
        }
        let leaves = old_class == Class::Ext && new_class != Class::Ext;
        if leaves && disables_first {
            self.scx_disable_task(c, p);
        }
        p.set_attributes(new);
        match change {
            Change::Nice(_) => {
                self.define_task(p);
                self.reweight_task(c, p);
            }
            Change::Affinity(set) => {
                p.affinity.allow(set.clone());
                self.affinity_changed(c, p, &set);
            }
            Change::Cgroup(to) => {
                let from = p.cgroup();
                // task_change_group_fair()
                if old_class == Class::Fair {
                    self.detach_load(c, p);
                }
                p.set_cgroup(to);
                self.sync_task(p);
                self.scx_cgroup_move_task(c, rq, p, from);
            }
            Change::Class(_) => {
                p.set_class(new_class);
                self.define_task(p);
                if new_class == Class::Ext && old_class != Class::Ext {
                    self.switching_to_scx(c, p);
                } else {
                    self.reweight_task(c, p);
                }
            }
            Change::Inherit(_) => {
                p.set_class(new_class);
                self.define_task(p);
                self.sync_task(p);
                if new_class == Class::Ext && old_class != Class::Ext {
                    self.switching_to_scx(c, p);
                }
                if p.is_boosted_by_deadline() {
                    head |= enq::REPLENISH;
                }
            }
        }
        if old_class == Class::Fair && new_class != Class::Fair {
            self.detach_load(c, p);
        }
        if old_class == Class::Fair {
            let (old, new) = (old.load_weight(), p.load_weight());
            p.fair.reweight(i64::from(old), i64::from(new));
        } else if old_class == Class::Deadline && new_class != Class::Deadline {
            self.leave_dl(c, p);
        }
        if is_queued {
            p.set_on_rq(OnRq::Queued);
            self.enqueue_task(c, rq, p, flags | head);
        }
        if runs && rq.id == c.id {
            self.set_next_task(c, p);
        } else if runs {
            self.set_next_above_fair(c, rq, p);
        }
        if leaves && !disables_first {
            self.scx_disable_task(c, p);
        }
        if !is_queued {
            return;
        }
        // sched_move_task()
        if is_move && runs {
            self.resched_curr(c, rq);
        }
        if new_class > old_class {
            if runs {
                self.taken_by_class(c, rq, new_class);
            } else {
                self.wakeup_preempt(c, rq, p);
                self.push_from(c, rq, new_class);
            }
        } else if new_class < old_class {
            if runs {
                self.resched_curr(c, rq);
            }
            if old_class == Class::Deadline && runs && rq.id == c.id {
                self.switched_from_dl(c);
            }
        } else if new_class == Class::Deadline && changes_class {
            self.prio_changed_dl(c, rq, p);
        } else if new_class == Class::Rt {
            self.prio_changed_rt(c, rq, p, old.rt_priority());
        } else if new_class == Class::Fair && new.nice > old.nice && self.fair_task_waits(rq) {
            // prio_changed_fair()
            self.resched_curr(c, rq);
        }
    }

    /// `switched_to_rt()`, `switched_to_dl()`: a task that waits on `rq` may run elsewhere now.
    fn push_from(&self, c: &Cpu, rq: &Cpu, class: Class) {
        match class {
            Class::Deadline => self.push_dl_tasks(c, rq),
            Class::Rt => self.push_rt_tasks(c, rq),
            _ => {}
        }
    }

    /// `task_rq_lock()`: locks the run queue of `p`, which no CPU moves or is about to run from then on.
    pub(crate) fn task_rq_lock(&self, c: &Cpu, p: &Task) -> &Cpu {
        loop {
            let rq = self.cpu(p.cpu());
            self.rq_lock(c, rq);
            let is_here = p.cpu() == rq.id && p.on_rq() != OnRq::Migrating;
            if is_here && !self.is_chosen(p, rq) {
                return rq;
            }
            self.rq_unlock(c, rq);
            self.charge(c, RELAX_NS);
            self.sync(c);
        }
    }

    /// `reweight_task_scx()`, and for all classes what the policy's side knows of the task.
    fn reweight_task(&self, c: &Cpu, p: &Task) {
        if p.scx.state() == ScxState::Enabled {
            p.scx
                .set_weight(crate::contract::consts::cgroup_weight(p.load_weight()));
        }
        self.sync_task(p);
        if p.scx.state() == ScxState::Enabled
            && self.has_op(OpKind::SetWeight)
            && !self.mutated(Mutation::SetWeightNotTold)
        {
            let op = OpCall::SetWeight {
                task: p.id,
                weight: p.scx.weight(),
            };
            self.call_rare_op_on(c, c, op);
        }
    }

    /// The tasks that are runnable on `rq` but do not run, for balancing and hotplug.
    pub(crate) fn is_queued_on(&self, p: &Task, rq: &Cpu) -> bool {
        p.on_rq() == OnRq::Queued
            && p.cpu() == rq.id
            && rq.curr() != Some(p.id)
            && !self.is_chosen(p, rq)
    }

    /// Whether `rq` has chosen `p` without the lock that keeps others off until it runs.
    pub(crate) fn is_chosen(&self, p: &Task, rq: &Cpu) -> bool {
        !self.machine.sched_ext.rq_locks && rq.has_chosen(p.id)
    }

    /// All runnable tasks of `rq` but the running one, in the order of their numbers.
    pub(crate) fn queued_tasks(&self, rq: &Cpu) -> Vec<TaskId> {
        self.tasks
            .iter()
            .filter(|p| self.is_queued_on(p, rq))
            .map(|p| p.id)
            .collect()
    }
}

/// The counts of a CPU when it entered schedule().
struct Entry {
    examined: (u64, u64),
    memory_wait_ps: u64,
}

/// Whether both are the same task, or none.
fn is_same(a: Option<&Task>, b: Option<&Task>) -> bool {
    let address = |p: Option<&Task>| p.map_or(ptr::null(), ptr::from_ref);
    ptr::eq(address(a), address(b))
}

/// Candidates that policies have looked at on `c`, and recalculations of all counters.
fn examined(c: &Cpu) -> (u64, u64) {
    let probes = c.this.probes.borrow();
    (probes.examined, probes.recalculations)
}

/// A change of an attribute.
pub(crate) enum Change {
    Nice(i8),
    Affinity(CpuSet),
    Class(schedlab_workload::SchedClass),
    Cgroup(schedlab_workload::CgroupId),
    /// The attributes that it has from the waiters for its mutexes.
    Inherit(Inherited),
}
