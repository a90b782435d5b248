//! A virtual CPU: its state, and what it does all day ([`Kernel::cpu_main`]).

use schedlab_trace::{CpuMode, Event, LockPath, Recorder};

use crate::contract::mutation::Mutation;
use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::costs::wall_ns;
use crate::state::cpu::{Cpu, Wait, irq};
use crate::state::event_queue::CpuEvent;
use crate::state::program::Exec;
use crate::state::task::{Class, Task, TaskState};

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// The life of a CPU. Interrupts first, then the scheduler, then the current task.
    pub(crate) fn cpu_main(&self, c: &Cpu) {
        loop {
            if c.wanted() != 0 {
                self.attend(c);
            } else if let Some(task) = c.curr() {
                let p = self.task(task);
                if c.has_work() && self.is_to_leave(c, p) {
                    self.schedule(c, true);
                } else {
                    self.run_task(c, p);
                }
            } else if c.need_resched() {
                self.leave_idle(c);
                self.schedule(c, true);
            } else {
                self.idle_wait(c);
            }
        }
    }

    /// Whether the running task leaves the CPU now.
    #[inline(always)]
    fn is_to_leave(&self, c: &Cpu, p: &Task) -> bool {
        c.need_resched() && self.may_preempt(p) || self.stops_now(c, p)
    }

    /// The work before the CPU's own: going off and online, and interrupts.
    #[inline(always)]
    fn attend(&self, c: &Cpu) {
        if c.wanted() == irq::TIMER {
            // The commonest alone, on a short way.
            self.timer_interrupt(c);
            if !c.has_irq() {
                return;
            }
            self.handle_interrupts(c);
        } else {
            self.attend_to_others(c);
        }
    }

    #[inline(never)]
    fn attend_to_others(&self, c: &Cpu) {
        if c.forget_irq(irq::HOTPLUG) {
            if c.is_online() {
                self.cpu_down(c);
            } else {
                self.cpu_up(c);
            }
        } else if !c.is_online() {
            self.offline(c);
        } else {
            self.handle_interrupts(c);
        }
    }

    /// Whether a resched mark is honoured where the task is now.
    fn may_preempt(&self, p: &Task) -> bool {
        self.machine.preemptible_kernel || matches!(p.program.exec(), Exec::Next | Exec::User)
    }

    fn idle_wait(&self, c: &Cpu) {
        self.set_mode(c, CpuMode::Idle);
        c.begin_idle();
        c.set_wait(Wait::Idle);
        self.pause();
    }

    /// The way from the interrupt that ends idle to schedule().
    fn leave_idle(&self, c: &Cpu) {
        if c.end_idle() {
            self.set_mode(c, CpuMode::Kernel);
            self.charge(c, self.machine.paths.idle_exit_ns);
        }
    }

    /// Runs the current task until something else is to be done on its CPU. This and what it does each time is a part
    /// of [`Kernel::cpu_main`], which saves no registers.
    #[inline(always)]
    fn run_task(&self, c: &Cpu, p: &Task) {
        if c.is_closed() {
            c.set_wait(Wait::Idle);
            return self.pause();
        }
        loop {
            match p.program.exec() {
                Exec::Next => self.next_action(c, p),
                Exec::User | Exec::Kernel => self.segment(c, p),
                // Another task may run when this one has blocked.
                Exec::Effect => return self.take_effect(c, p),
            }
            if c.is_called_off() {
                return;
            }
        }
    }

    /// Spends the task's `left_ns`, or the part that an interrupt leaves.
    #[inline(always)]
    fn segment(&self, c: &Cpu, p: &Task) {
        let is_user = p.program.exec() == Exec::User;
        self.set_mode(
            c,
            if is_user {
                CpuMode::User
            } else {
                CpuMode::Kernel
            },
        );
        let left = p.program.left_ns();
        if left > 0 {
            let asks = is_user && p.program.traffic() > 0;
            if asks && !self.asks_bus(c, p) {
                return;
            }
            let start = c.this.now.get();
            let speed = match asks {
                false => self.speed(c, p, is_user),
                true => self.user_speed(c, p),
            };
            c.segment.begin(start, speed);
            let end = start + wall_ns(left, speed);
            let undisturbed = self.is_before_all(c, end);
            if undisturbed {
                // Nothing happens anywhere meanwhile, so nothing can come in between.
                c.this.now.set(end);
                self.progress.pass(end);
            } else {
                c.set_wait(Wait::Segment);
                self.set_event(c.id, CpuEvent::Main, end);
                self.pause();
                c.set_wait(Wait::Resume);
            }
            let elapsed = c.segment.elapsed(c.this.now.get());
            if undisturbed || c.went_on() {
                p.program.finish_stretch();
            } else {
                shorten_segment(c, p, elapsed);
            }
            if is_user {
                self.evict(c, elapsed);
            }
            if asks {
                self.ask_bus(c, p, false);
            }
        }
        p.program.leave_stretch(is_user);
    }

    /// The application begins to use the bus, unless something else is to be done first. Returns whether it does.
    #[inline(never)]
    fn asks_bus(&self, c: &Cpu, p: &Task) -> bool {
        // The others on the bus ran until now at their former speed.
        self.sync(c);
        if c.is_called_off() {
            return false;
        }
        self.ask_bus(c, p, true);
        true
    }

    /// Takes what has been done since the segment began off the task's `left_ns`.
    pub(crate) fn account_segment(&self, c: &Cpu, p: &Task) {
        let elapsed = c.segment.elapsed(c.this.now.get());
        shorten_segment(c, p, elapsed);
        if c.mode() == CpuMode::User {
            self.evict(c, elapsed);
        }
    }

    /// The application's own lines push others out of the cache.
    fn evict(&self, c: &Cpu, user_ns: u64) {
        self.shared.cache.borrow_mut().evict(c.cache, user_ns);
    }

    /// Handles the pending interrupts, those that come meanwhile included.
    pub(crate) fn handle_interrupts(&self, c: &Cpu) {
        loop {
            let pending = c.pending_irqs();
            if pending == 0 {
                return;
            }
            let irq = pending & pending.wrapping_neg();
            c.forget_irq(irq);
            if self.life.is_bypassing() && irq == irq::POLICY_TIMER {
                c.expired.forget_policy();
                continue;
            }
            self.set_mode(c, CpuMode::Kernel);
            self.charge(c, self.machine.paths.irq_ns);
            match irq {
                irq::RESCHED => self.charge(c, self.machine.paths.ipi_handle_ns),
                irq::TICK => {
                    self.scheduler_tick(c);
                    self.sleeps_end(c);
                }
                irq::TIMER => self.timers_expired(c),
                irq::HRTICK => {
                    self.hrtick(c);
                    self.sleeps_end(c);
                }
                irq::REPLENISH => {
                    self.replenishments_due(c);
                    self.sleeps_end(c);
                }
                irq::POLICY_TIMER => {
                    // bpf_timers expire in the softirq that follows.
                    self.sleeps_end(c);
                    self.policy_timers_expired(c);
                }
                irq::ACK => self.delayed_acks(c),
                irq::KICK => self.kick_cpus(c),
                irq::DEFERRED => {
                    self.set_mode(c, CpuMode::Sched);
                    self.rq_lock(c, c);
                    self.run_deferred(c, c);
                    self.rq_unlock(c, c);
                }
                _ => unreachable!("an interrupt is one bit of `irq`"),
            }
        }
    }

    /// The part of [`Kernel::handle_interrupts`] for a single pending one.
    fn timer_interrupt(&self, c: &Cpu) {
        c.forget_irq(irq::TIMER);
        self.set_mode(c, CpuMode::Kernel);
        self.charge(c, self.machine.paths.irq_ns);
        self.timers_expired(c);
    }

    /// Sleeps end and new tasks' lives begin.
    fn timers_expired(&self, c: &Cpu) {
        let now = c.this.now.get();
        while let Some(task) = c.expired.tasks.pop() {
            let p = self.task(task);
            if p.state() == TaskState::New {
                self.start_task(c, p);
            } else {
                self.try_to_wake_up(c, p, 0);
            }
        }
        self.sleeps_end_at(c, now);
    }

    /// `hrtimer_interrupt()` for another timer: sleeps that may end by now do.
    fn sleeps_end(&self, c: &Cpu) {
        self.sleeps_end_at(c, c.this.now.get());
    }

    #[inline(always)]
    fn sleeps_end_at(&self, c: &Cpu, now: u64) {
        while let Some(task) = self.pop_sleep(c.id, now) {
            self.try_to_wake_up(c, self.task(task), 0);
        }
    }

    /// The periodic tick (`sched_tick()`).
    fn scheduler_tick(&self, c: &Cpu) {
        self.set_mode(c, CpuMode::Sched);
        self.record(c, Event::Tick);
        self.charge(c, self.machine.paths.tick_ns);
        let path = self.set_lock_path(c, LockPath::Other);
        self.rq_lock(c, c);
        if let Some(task) = c.curr() {
            let p = self.task(task);
            if self.ops.reads_facts {
                p.account.tick(p.program.exec() == Exec::User);
            }
            match p.class() {
                Class::Ext => self.task_tick_scx(c, p),
                Class::Fair => self.task_tick_fair(c, p),
                Class::Rt => self.task_tick_rt(c, p),
                Class::Deadline => self.task_tick_dl(c, p, false),
                Class::Idle | Class::Stop => {}
            }
        }
        self.rq_unlock(c, c);
        self.fair_balance_tick(c);
        self.set_lock_path(c, path);
    }

    /// Starts the tick when a CPU leaves idle, at the machine's common beat.
    pub(crate) fn start_tick(&self, c: &Cpu) {
        if self.mutated(Mutation::TickStaysStopped) {
            return;
        }
        if self.queue.due(c.id, CpuEvent::Tick).is_none() {
            let next = self.next_tick(c, c.this.now.get());
            self.set_event(c.id, CpuEvent::Tick, next);
        }
    }

    /// When a busy CPU is interrupted next after `now`: by the tick or at the end of a slice.
    pub(crate) fn next_tick(&self, c: &Cpu, now: u64) -> u64 {
        let period = self.costs.tick_period_ns;
        let tick = (now / period + 1) * period;
        c.fair
            .slice_end_after(now)
            .map_or(tick, |end| tick.min(end))
    }

    /// The CPU, where it has a tick, is interrupted at `time` at the latest.
    pub(crate) fn tick_no_later_than(&self, rq: &Cpu, time: u64) {
        let due = self.queue.due(rq.id, CpuEvent::Tick);
        if due.is_some_and(|due| due > time) {
            self.set_event(rq.id, CpuEvent::Tick, time);
        }
    }
}

/// Takes `elapsed` ns of the segment under way off the task's `left_ns`. The segment begins anew.
#[inline(always)]
fn shorten_segment(c: &Cpu, p: &Task, elapsed: u64) {
    let done = c.segment.cut(c.this.now.get(), elapsed);
    p.program.shorten(done);
}
