//! Marks for rescheduling, reschedule interrupts and `scx_bpf_kick_cpu()`.

use schedlab_machine::CAPACITY_SCALE;
use schedlab_trace::{CpuId, CpuMode, Event, Recorder};

use crate::contract::consts::kick;
use crate::contract::mutation::Mutation;
use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::paths::ops::kick_flags_conflict;
use crate::state::cpu::{Cpu, irq};
use crate::state::event_queue::CpuEvent;
use crate::state::task::Class;

/// How long `SCX_KICK_WAIT` spins before it looks again.
const RELAX_NS: u64 = 50;

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `scx_bpf_cpuperf_set()`.
    ///
    /// Model: there is no governor, frequencies are fixed. The request is checked as the kernel does, and counted.
    pub(crate) fn scx_cpuperf_set(&self, c: &Cpu, cpu: i32, perf: u32) {
        if perf > CAPACITY_SCALE {
            self.scx_error(format!("Invalid cpuperf target {perf} for CPU {cpu}"));
            return;
        }
        if !self.cpu_valid(cpu, "") {
            return;
        }
        if c.op.locked_rq().is_some_and(|rq| rq.0 != cpu as u32) {
            self.scx_error(format!("Invalid target CPU {cpu}"));
            return;
        }
        self.tally.add_cpuperf_request();
    }

    /// The class of what `rq` runs now.
    pub(crate) fn curr_class(&self, rq: &Cpu) -> Class {
        rq.curr()
            .map_or(Class::Idle, |task| self.task(task).class())
    }

    /// `resched_curr()`: marks `rq`, and interrupts it if it is another CPU and was not marked.
    pub(crate) fn resched_curr(&self, c: &Cpu, rq: &Cpu) {
        if rq.set_need_resched(true) || rq.id == c.id {
            return;
        }
        self.record(c, Event::Ipi { to: rq.id });
        self.charge(c, self.machine.paths.ipi_send_ns);
        let at = c.this.now.get() + self.machine.paths.ipi_delay_ns;
        let due = self.queue.due(rq.id, CpuEvent::Ipi);
        if due.is_none_or(|due| due > at) {
            self.set_event(rq.id, CpuEvent::Ipi, at);
        }
    }

    /// `wakeup_preempt()`: `p` has become runnable on `rq`.
    #[inline]
    pub(crate) fn wakeup_preempt(&self, c: &Cpu, rq: &Cpu, p: &crate::state::task::Task) {
        // Tasks of sched_ext do not preempt each other by waking up.
        let all_ext = p.class() == Class::Ext && rq.next_class() == Class::Ext;
        if !(all_ext && self.version.has_next_class()) {
            self.wakeup_preempt_by_class(c, rq, p);
        }
    }

    #[inline(never)]
    fn wakeup_preempt_by_class(&self, c: &Cpu, rq: &Cpu, p: &crate::state::task::Task) {
        let class = p.class();
        if !self.version.has_next_class() {
            let curr = self.curr_class(rq);
            if class == curr {
                self.wakeup_preempt_class(c, rq, p);
            } else if class > curr {
                self.resched_curr(c, rq);
            }
            return;
        }
        let next = rq.next_class();
        if class == next {
            self.wakeup_preempt_class(c, rq, p);
        } else if class > next {
            self.taken_by_class(c, rq, class);
            self.resched_curr(c, rq);
        }
    }

    /// A higher class than the one that was to run takes `rq`.
    pub(crate) fn taken_by_class(&self, c: &Cpu, rq: &Cpu, class: Class) {
        // wakeup_preempt_scx(): tasks were promised the CPU at once.
        if rq.next_class() == Class::Ext && rq.scx.has_immed() {
            self.schedule_reenq_local(c, rq, 0);
        }
        rq.set_next_class(class);
    }

    fn wakeup_preempt_class(&self, c: &Cpu, rq: &Cpu, p: &crate::state::task::Task) {
        match p.class() {
            Class::Rt => self.wakeup_preempt_rt(c, rq, p),
            Class::Deadline => self.wakeup_preempt_dl(c, rq, p),
            Class::Fair => self.wakeup_preempt_fair(c, rq, p),
            Class::Ext | Class::Idle | Class::Stop => {}
        }
    }

    /// `can_skip_idle_kick()`.
    fn can_skip_idle_kick(&self, rq: &Cpu) -> bool {
        rq.curr().is_some() && !rq.scx.in_balance()
    }

    /// `scx_kick_cpu()`: notes the kick; an interrupt of this CPU carries it out.
    pub(crate) fn scx_kick_cpu(&self, c: &Cpu, cpu: CpuId, flags: u64) {
        if self.life.is_bypassing() {
            return;
        }
        if flags & kick::IDLE != 0 {
            if kick_flags_conflict(flags) {
                self.scx_error("PREEMPT/WAIT cannot be used with SCX_KICK_IDLE".to_owned());
            }
            let rq = self.cpu(cpu);
            // The op under way may hold that very lock: then the try fails, as in the kernel.
            let own = c.op.locked_rq() == Some(cpu) && self.machine.sched_ext.rq_locks;
            if !own && self.rq_trylock(c, rq) {
                let skip = self.can_skip_idle_kick(rq);
                self.rq_unlock(c, rq);
                if skip {
                    return;
                }
            }
        }
        c.kicks.note(cpu, flags);
        c.raise(irq::KICK);
    }

    /// `kick_cpus_irq_workfn()`.
    pub(crate) fn kick_cpus(&self, c: &Cpu) {
        self.set_mode(c, CpuMode::Sched);
        c.kicks.sort();
        let mut wait = false;
        while let Some((cpu, flags)) = c.kicks.next() {
            let rq = self.cpu(cpu);
            self.rq_lock(c, rq);
            if flags & kick::IDLE != 0 {
                if !self.can_skip_idle_kick(rq) && (rq.is_online() || rq.id == c.id) {
                    self.resched_curr(c, rq);
                }
            } else {
                wait |= self.kick_one_cpu(c, rq, flags);
            }
            self.rq_unlock(c, rq);
        }
        if wait && self.mutated(Mutation::KickWaitInInterrupt) {
            self.kick_sync_wait(c);
        } else if wait {
            c.kicks.ask_to_wait();
            self.resched_curr(c, c);
        }
    }

    /// `kick_one_cpu()`. Returns whether the kicker is to wait for it.
    fn kick_one_cpu(&self, c: &Cpu, rq: &Cpu, flags: u64) -> bool {
        let class = self.curr_class(rq);
        if !(rq.is_online() || rq.id == c.id) || class > Class::Ext {
            return false;
        }
        if flags & kick::PREEMPT != 0
            && class == Class::Ext
            && let Some(curr) = rq.curr()
        {
            self.set_slice(self.task(curr), 0);
        }
        let wait = flags & kick::WAIT != 0 && class == Class::Ext;
        if wait {
            c.kicks.wait_for(rq.id, rq.kicks.sync());
        }
        self.resched_curr(c, rq);
        wait
    }

    /// `kick_sync_wait_bal_cb()`: waits until each kicked CPU has been through schedule().
    pub(crate) fn kick_sync_wait(&self, c: &Cpu) {
        let mode = self.set_mode(c, CpuMode::Spin);
        loop {
            let waits = |cpu, sync| cpu != c.id && self.cpu(cpu).kicks.sync() == sync;
            if !c.kicks.still_waits(waits) || self.life.is_stopping() {
                break;
            }
            // Its own counter goes on, so that CPUs that wait for each other get free.
            if !self.mutated(Mutation::KickWaitInInterrupt) {
                c.kicks.count_sync();
            }
            self.charge(c, RELAX_NS);
            self.sync(c);
            if c.has_irq() {
                self.set_mode(c, mode);
                self.handle_interrupts(c);
                self.set_mode(c, mode);
                self.set_mode(c, CpuMode::Spin);
            }
        }
        self.set_mode(c, mode);
    }
}
