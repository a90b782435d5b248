//! Work that waits until a run queue's lock is free: insertions into other CPUs' local DSQs and
//! re-enqueues (kernel/sched/ext/ext.c, `run_deferred()`).

use schedlab_trace::Recorder;

use crate::contract::consts::{self, dsq_id, enq, reenq};
use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::{Cpu, irq};
use crate::state::event_queue::CpuEvent;
use crate::state::scx::OpsState;
use crate::state::task::{OnRq, Task};

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `schedule_deferred_locked()`.
    pub(crate) fn schedule_deferred_locked(&self, c: &Cpu, rq: &Cpu) {
        // task_woken_scx() will do it.
        if rq.scx.in_wakeup() || rq.deferred.waits_for_balance() {
            return;
        }
        if rq.scx.in_balance() {
            rq.deferred.wait_for_balance();
            return;
        }
        self.schedule_deferred(c, rq);
    }

    /// `schedule_deferred()`: an interrupt on the run queue's own CPU.
    fn schedule_deferred(&self, c: &Cpu, rq: &Cpu) {
        if rq.id == c.id {
            c.raise(irq::DEFERRED);
        } else if self.queue.due(rq.id, CpuEvent::Work).is_none() {
            self.charge(c, self.machine.paths.ipi_send_ns);
            let at = c.this.now.get() + self.machine.paths.ipi_delay_ns;
            self.set_event(rq.id, CpuEvent::Work, at);
        }
    }

    /// `schedule_reenq_local()`.
    pub(crate) fn schedule_reenq_local(&self, c: &Cpu, rq: &Cpu, flags: u64) {
        if self.life.is_bypassing() {
            return;
        }
        rq.deferred.add_reenq_local(flags);
        self.schedule_deferred_locked(c, rq);
    }

    /// `scx_bpf_dsq_reenq()`, and `scx_bpf_reenqueue_local()` as its special case.
    pub(crate) fn dsq_reenq(&self, c: &Cpu, id: u64, flags: u64) {
        if flags & !reenq::USER_MASK != 0 {
            self.scx_error(format!("invalid SCX_REENQ flags {flags:#x}"));
            return;
        }
        let flags = if flags & reenq::FILTER_MASK == 0 {
            flags | reenq::ANY
        } else {
            flags
        };
        let here = c.op.locked_rq().map_or(c, |cpu| self.cpu(cpu));
        let dsq = self.find_dsq(here, id, c.id);
        if self.life.is_bypassing() {
            return;
        }
        if (dsq as usize) < self.cpus.len() {
            let rq = &self.cpus[dsq as usize];
            rq.deferred.add_reenq_local(flags);
            if c.op.locked_rq() == Some(rq.id) {
                self.schedule_deferred_locked(c, rq);
            } else {
                self.schedule_deferred(c, rq);
            }
        } else if !self.dsqs.get(dsq).is_builtin() {
            c.deferred.add_reenq_user(dsq, flags);
            if c.op.locked_rq() == Some(c.id) {
                self.schedule_deferred_locked(c, c);
            } else {
                self.schedule_deferred(c, c);
            }
        } else {
            self.scx_error(format!("DSQ {:#x} not allowed for reenq", dsq_id::GLOBAL));
        }
    }

    /// `run_deferred()`: `rq` is locked on entry and on return. Nearly always there is nothing.
    #[inline]
    pub(crate) fn run_deferred(&self, c: &Cpu, rq: &Cpu) {
        debug_assert!(
            rq.deferred.marks_are_right(),
            "deferred work of CPU {} is forgotten",
            rq.id
        );
        if rq.deferred.any() {
            self.run_all_deferred(c, rq);
        }
    }

    #[inline(never)]
    fn run_all_deferred(&self, c: &Cpu, rq: &Cpu) {
        while let Some(task) = rq.deferred.next_local() {
            let p = self.task(task);
            let (id, enq_flags) = p.scx.take_deferred();
            c.dispatch.begin_insertion(task);
            let dsq = self.find_dsq_for_dispatch(rq, id, p);
            if (dsq as usize) < self.cpus.len() {
                let dst = &self.cpus[dsq as usize];
                self.dispatch_to_local_dsq(c, rq, dst, p, enq_flags);
            } else {
                // The CPU was invalid, which has ended the policy: the task must not be lost.
                self.dispatch_enqueue(c, dsq, p, enq_flags);
            }
            c.dispatch.end_insertion();
        }
        let mut repeats = 0;
        while let Some(flags) = rq.deferred.next_reenq_local() {
            repeats += 1;
            if repeats > consts::REENQ_LOCAL_MAX_REPEAT + 1 {
                self.scx_error(format!(
                    "SCX_ENQ_REENQ on SCX_DSQ_LOCAL repeated {} times",
                    repeats - 1
                ));
                break;
            }
            self.reenq_local(c, rq, flags);
        }
        while let Some((dsq, flags)) = rq.deferred.next_reenq_user() {
            self.reenq_user(c, rq, dsq, flags);
        }
        // Not before: it was unlocked meanwhile, and the CPU that had it then takes the rest.
        rq.deferred.done();
    }

    /// `reenq_local()`: passes tasks of the local DSQ of `rq` to the policy again.
    pub(crate) fn reenq_local(&self, c: &Cpu, rq: &Cpu, flags: u64) -> u32 {
        let open = self.rq_is_open(rq, 0);
        let mut tasks = Vec::new();
        let mut first = true;
        let queue = &rq.local;
        let mut next = queue.first();
        while let Some(task) = next {
            let p = self.task(task);
            next = queue.next(&p.node);
            let stays = p.scx.is_immed() && first && open;
            let unwanted = p.scx.is_immed() && !stays;
            first = false;
            if p.stop.is_due() || !(unwanted || flags & reenq::ANY != 0) {
                continue;
            }
            tasks.push(task);
        }
        tasks.retain(|&task| {
            let p = self.task(task);
            self.wait_until_dispatched(c, p);
            // Without run queue locks its CPU may run it meanwhile, or have chosen to.
            let here =
                p.dsq() == rq.local_dsq() && p.on_rq() == OnRq::Queued && !self.is_chosen(p, rq);
            if here {
                self.dispatch_dequeue(c, rq, p);
                p.scx.hold(c.id);
            }
            here
        });
        // Nor need each be here any more when the ops of those before it have returned.
        tasks.retain(|&task| {
            let p = self.task(task);
            let here = self.still_holds(c, p, rq.id);
            if here {
                p.scx.let_go();
                self.do_enqueue_task(c, rq, p, enq::REENQ, None);
            }
            here
        });
        tasks.len() as u32
    }

    /// Waits until the CPU that has put `p` on a queue has finished. Under run queue locks only the dispatching CPU
    /// may not have.
    fn wait_until_dispatched(&self, c: &Cpu, p: &Task) {
        for state in [OpsState::Queueing, OpsState::Dispatching] {
            if p.scx.ops_state() == state {
                self.wait_ops_state(c, p, state);
            }
        }
    }

    /// `reenq_user()`.
    fn reenq_user(&self, c: &Cpu, rq: &Cpu, dsq: u32, flags: u64) {
        if self.dsqs.get(dsq).is_builtin() || flags & reenq::ANY == 0 {
            return;
        }
        let cursor = self.dsqs.iter_new(dsq, 0);
        let queue = self.dsqs.get(dsq);
        let lock = self.dsq_lock(queue);
        let mut locked = rq;
        self.spin_lock(c, lock);
        loop {
            let task = self.dsqs.iter_next(&self.tasks, cursor);
            let Some(task) = task else { break };
            if self.life.is_bypassing() {
                break;
            }
            let p = self.task(task);
            let task_rq = self.cpu(p.cpu());
            self.spin_unlock(c, lock);
            if task_rq.id != locked.id {
                self.rq_unlock(c, locked);
                self.rq_lock(c, task_rq);
                locked = task_rq;
            }
            self.spin_lock(c, lock);
            let lost = p.dsq() != dsq
                || p.scx.holding_cpu().is_some()
                || p.cpu() != task_rq.id
                || p.on_rq() != OnRq::Queued
                || self.dsqs.inserted_after(cursor, &p.node);
            if lost {
                continue;
            }
            self.wait_until_dispatched(c, p);
            if p.on_rq() != OnRq::Queued {
                continue;
            }
            self.dsqs.unlink(&self.tasks, queue, &p.node);
            p.leave_dsq();
            p.scx.hold(c.id);
            self.spin_unlock(c, lock);
            if self.still_holds(c, p, task_rq.id) {
                p.scx.let_go();
                self.do_enqueue_task(c, task_rq, p, enq::REENQ, None);
            }
            self.spin_lock(c, lock);
        }
        self.dsqs.iter_destroy(cursor);
        self.spin_unlock(c, lock);
        if locked.id != rq.id {
            self.rq_unlock(c, locked);
            self.rq_lock(c, rq);
        }
    }
}
