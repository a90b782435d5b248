//! CPUs that go offline and come back (`sched_cpu_deactivate()`, `sched_cpu_activate()`).

use schedlab_trace::{CpuId, CpuMode, Recorder};

use crate::contract::consts::ecode;
use crate::contract::mutation::Mutation;
use crate::contract::outcome::ExitKind;
use crate::contract::policy::{OpCall, OpKind, Policy};
use crate::paths::kernel::Kernel;
use crate::state::cpu::{Cpu, Wait, irq};
use crate::state::event_queue::{CpuEvent, Timer};

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// The scenario's next hotplug event is due: the CPU it concerns carries it out, at once if it can go on.
    #[cold]
    pub(crate) fn hotplug_due(&self, time: u64) -> Option<CpuId> {
        let event = self.online.take_change();
        if let Some(next) = self.online.next_change() {
            self.set_timer(Timer::Hotplug, CpuId(0), next.ns().max(time));
        }
        let event = event?;
        let known = event.cpu.index() < self.cpus.len() && event.cpu != CpuId(0);
        if !known {
            return None;
        }
        let c = self.cpu(event.cpu);
        if c.is_online() == event.online {
            return None;
        }
        c.raise(irq::HOTPLUG);
        if !matches!(c.wait(), Wait::Segment | Wait::Idle | Wait::Offline) {
            return None;
        }
        if c.wait() == Wait::Segment {
            self.cancel_event(event.cpu, CpuEvent::Main);
        }
        c.interrupt(time);
        Some(event.cpu)
    }

    /// `handle_hotplug()`: the policy hears of it, or is unloaded because it cannot.
    fn handle_hotplug(&self, c: &Cpu, online: bool) {
        if !self.life.scx_enabled() {
            return;
        }
        self.idle.borrow_mut().update_topology(&self.online_mask());
        let (op, call) = if online {
            (OpKind::CpuOnline, OpCall::CpuOnline { cpu: c.id })
        } else {
            (OpKind::CpuOffline, OpCall::CpuOffline { cpu: c.id })
        };
        if self.mutated(Mutation::CpuOnlineNotTold) && op == OpKind::CpuOnline {
            return;
        }
        if self.has_op(op) {
            self.call_rare_op(c, call);
        } else if !self.mutated(Mutation::HotplugIgnored) {
            self.exit_with(
                ExitKind::UnregKern,
                ecode::ACT_RESTART | ecode::RSN_HOTPLUG,
                format!(
                    "cpu {} going {}, exiting scheduler",
                    c.id,
                    if online { "online" } else { "offline" }
                ),
            );
        }
    }

    /// Takes `c` down: its tasks go elsewhere, then it runs nothing.
    pub(crate) fn cpu_down(&self, c: &Cpu) {
        self.set_mode(c, CpuMode::Kernel);
        self.sync(c);
        // EBUSY: the others could not serve the deadline tasks.
        if self.dl_needs_all_cpus() {
            return;
        }
        self.set_online(c.id, false);
        self.handle_hotplug(c, false);
        if self.life.is_bypassing() {
            return;
        }
        // From here nothing is placed or dispatched here.
        c.set_online(false);
        let mut idle = self.idle.borrow_mut();
        idle.forget(c.id);
        idle.update_siblings(&self.online_mask());
        drop(idle);
        loop {
            self.push_tasks_off(c);
            let Some(task) = c.curr() else { break };
            // The stopper takes the CPU from the current task, wherever it is.
            // This CPU is not where it may go: where that is, is chosen when it has stopped.
            self.task(task).stop.move_to(c.id);
            self.schedule(c, true);
            // Its last switch marks it idle.
            self.idle.borrow_mut().forget(c.id);
        }
        // Events from before it was gone are still its own: a task that sleeps here wakes, elsewhere.
        self.handle_interrupts(c);
        self.cancel_event(c.id, CpuEvent::Tick);
        self.cancel_event(c.id, CpuEvent::Ipi);
        c.set_need_resched(false);
    }

    /// `balance_push()`: the tasks that wait on `c` go where they may.
    fn push_tasks_off(&self, c: &Cpu) {
        self.rq_lock(c, c);
        self.unthrottle_offline(c);
        for task in self.queued_tasks(c) {
            let p = self.task(task);
            if self.is_queued_on(p, c) {
                self.push_task_off(c, p, None);
            }
        }
        self.rq_unlock(c, c);
    }

    /// Brings `c` back.
    pub(crate) fn cpu_up(&self, c: &Cpu) {
        self.set_mode(c, CpuMode::Kernel);
        self.sync(c);
        self.set_online(c.id, true);
        c.set_online(true);
        self.idle.borrow_mut().update_siblings(&self.online_mask());
        c.set_need_resched(true);
        self.handle_hotplug(c, true);
    }

    /// An offline CPU waits to come back.
    pub(crate) fn offline(&self, c: &Cpu) {
        // A new interrupt announces the next task.
        c.forget_irq(irq::RESCHED);
        c.set_need_resched(false);
        // sched_cpu_wait_empty(): others may have chosen it for a task before it was gone.
        if !self.queued_tasks(c).is_empty() {
            self.set_mode(c, CpuMode::Kernel);
            self.push_tasks_off(c);
            return;
        }
        self.set_mode(c, CpuMode::Idle);
        c.set_wait(Wait::Offline);
        self.pause();
    }
}
