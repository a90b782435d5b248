//! The scheduling class of sched_ext (`ext_sched_class`, kernel/sched/ext/ext.c).

use schedlab_trace::{CpuId, Recorder, TaskId};

use crate::contract::consts::{deq, dsq_id, enq, ops, wake};
use crate::contract::mutation::Mutation;
use crate::contract::policy::{OpCall, OpKind, Policy, PreemptReason};
use crate::paths::dispatch::Verdict;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::scx::OpsState;
use crate::state::task::{Class, OnRq, Task};

/// The result of a pick.
pub(crate) enum Pick<'k> {
    Task(&'k Task),
    Nothing,
    /// A task of a higher class has come meanwhile: start anew.
    Retry,
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `update_curr_scx()`: charges what `p` has run to its slice.
    pub(crate) fn update_curr_scx(&self, c: &Cpu, p: &Task) {
        let ran = self.update_curr_common(c, p);
        if ran > 0 {
            self.policy.charge_slice(p.id, ran);
        }
    }

    /// `select_task_rq_scx()`.
    pub(crate) fn select_task_rq_scx(
        &self,
        c: &Cpu,
        p: &Task,
        prev_cpu: CpuId,
        wake_flags: u64,
    ) -> CpuId {
        if wake_flags & wake::EXEC != 0 {
            return prev_cpu;
        }
        if self.has_op(OpKind::SelectCpu) && !self.life.is_bypassing() {
            c.op.begin_for(p.id, true);
            let op = OpCall::SelectCpu {
                task: p.id,
                prev_cpu,
                wake_flags,
            };
            let cpu = self.call_op(c, op) as i32;
            c.op.end_for();
            if self.life.is_bypassing() {
                return prev_cpu;
            }
            if self.ops.reads_facts {
                p.account.select(cpu);
            }
            return if self.cpu_valid(cpu, "from ops.select_cpu()") {
                CpuId(cpu as u32)
            } else {
                prev_cpu
            };
        }
        self.sync(c);
        let found = self.select_cpu_dfl(c, p, prev_cpu, wake_flags, None, 0);
        if self.ops.reads_facts {
            let cpu = found.unwrap_or(prev_cpu);
            p.account.select(cpu.0 as i32);
        }
        match found {
            Some(cpu) => {
                self.refill_slice(p);
                if !self.mutated(Mutation::DefaultSelectDoesNotInsert) {
                    p.scx.dispatch_to_local();
                }
                cpu
            }
            None => prev_cpu,
        }
    }

    /// `do_enqueue_task()`.
    pub(crate) fn do_enqueue_task(
        &self,
        c: &Cpu,
        rq: &Cpu,
        p: &Task,
        enq_flags: u64,
        sticky_cpu: Option<CpuId>,
    ) {
        if sticky_cpu == Some(rq.id) {
            self.dispatch_enqueue_local(c, rq, p, enq_flags);
            return;
        }
        p.scx.set_immed(false);
        let terminal = if !rq.is_online() || self.life.is_bypassing() {
            Some(rq.local_dsq())
        } else if p.scx.has_direct_dispatch() {
            self.direct_dispatch(c, rq, p, enq_flags);
            return;
        } else if p.is_exiting() && !self.has_flag(ops::ENQ_EXITING) {
            Some(rq.local_dsq())
        } else if !self.has_op(OpKind::Enqueue) {
            Some(self.find_dsq_for_dispatch(rq, dsq_id::GLOBAL, p))
        } else {
            None
        };
        if self.mutated(Mutation::NoFallbackToGlobal) && !self.has_op(OpKind::Enqueue) {
            p.scx.give_to_policy();
            return;
        }
        if let Some(dsq) = terminal {
            self.refill_slice(p);
            p.scx.clear_direct_dispatch();
            self.dispatch_enqueue(c, dsq, p, enq_flags);
            return;
        }
        p.scx.begin_enqueue();
        c.op.begin_for(p.id, false);
        let op = OpCall::Enqueue {
            task: p.id,
            enq_flags,
        };
        self.call_op_on(c, rq, op);
        c.op.end_for();
        if p.scx.has_direct_dispatch() {
            self.direct_dispatch(c, rq, p, enq_flags);
            return;
        }
        p.scx.give_to_policy();
    }

    /// `set_task_runnable()`.
    fn set_task_runnable(&self, c: &Cpu, p: &Task) {
        let place = self.runnable_order.next();
        p.scx.set_runnable(place, || self.jiffies(c.this.now.get()));
    }

    /// `enqueue_task_scx()`.
    pub(crate) fn enqueue_task_scx(&self, c: &Cpu, rq: &Cpu, p: &Task, core_flags: u64) {
        let mut sticky_cpu = p.scx.unstick();
        let enq_flags = core_flags | rq.scx.extra_enq_flags();
        if core_flags & enq::WAKEUP != 0 {
            rq.scx.begin_wakeup();
        }
        if enq_flags & enq::RESTORE != 0 && rq.curr() == Some(p.id) {
            sticky_cpu = Some(rq.id);
        }
        if !p.scx.is_queued() {
            self.join_rq(c, rq, p);
            if self.has_op(OpKind::Runnable) && p.on_rq() != OnRq::Migrating {
                let op = OpCall::Runnable {
                    task: p.id,
                    enq_flags,
                };
                self.call_op_on(c, rq, op);
            }
            // Another CPU may run it as soon as it is on a queue: from here it belongs to no CPU.
            p.set_on_rq(OnRq::Queued);
            self.do_enqueue_task(c, rq, p, enq_flags, sticky_cpu);
        }
        rq.scx.end_wakeup();
    }

    /// `p` is one of the runnable tasks of `rq`.
    #[inline]
    fn join_rq(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        self.set_task_runnable(c, p);
        p.scx.join();
        self.policy.set_queued(p.id, true);
        rq.scx.add();
        rq.add_nr_running();
    }

    /// Removes `p` from the runnable tasks of `rq`.
    #[inline]
    fn leave_rq(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        p.scx.leave();
        self.policy.set_queued(p.id, false);
        rq.scx.sub();
        rq.sub_nr_running();
        self.dispatch_dequeue(c, rq, p);
        p.scx.clear_direct_dispatch();
    }

    /// `dequeue_task_scx()` of a task that is taken from a queue to another run queue, and so as a rule neither
    /// runs nor is in the policy's hands.
    pub(crate) fn dequeue_migrating_scx(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        let waits = p.scx.is_queued() && !p.scx.runs() && p.scx.ops_state() == OpsState::None;
        if !waits {
            return self.dequeue_task_scx(c, rq, p, 0);
        }
        // It does not leave custody here: the kernel moves it by itself.
        p.scx.clear_runnable(false);
        self.leave_rq(c, rq, p);
    }

    /// `enqueue_task_scx()` of a task that comes to the local DSQ of `rq` from another run queue.
    pub(crate) fn enqueue_migrating_scx(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        let comes =
            !p.scx.is_queued() && p.on_rq() == OnRq::Migrating && p.scx.sticky_cpu() == Some(rq.id);
        if !comes {
            return self.enqueue_task_scx(c, rq, p, enq::MIGRATED);
        }
        p.scx.unstick();
        self.join_rq(c, rq, p);
        p.set_on_rq(OnRq::Queued);
        let enq_flags = enq::MIGRATED | rq.scx.extra_enq_flags();
        self.dispatch_enqueue_local(c, rq, p, enq_flags);
        rq.scx.end_wakeup();
    }

    /// `ops_dequeue()`.
    #[inline]
    fn ops_dequeue(&self, c: &Cpu, rq: &Cpu, p: &Task, deq_flags: u64) {
        p.scx.clear_runnable(false);
        if p.scx.ops_state() != OpsState::None || p.scx.in_custody() {
            self.leave_policy(c, rq, p, deq_flags);
        }
    }

    /// `ops_dequeue()` of a task that the policy may have.
    #[inline(never)]
    fn leave_policy(&self, c: &Cpu, rq: &Cpu, p: &Task, deq_flags: u64) {
        loop {
            match p.scx.ops_state() {
                OpsState::None => break,
                // Without run queue locks an enqueue on another CPU may still be under way.
                OpsState::Queueing => self.wait_ops_state(c, p, OpsState::Queueing),
                OpsState::Queued => {
                    if !self.version.dequeue_on_leaving_custody() {
                        self.call_dequeue_op(c, rq, p, deq_flags);
                    }
                    // Without run queue locks another CPU may have begun to dispatch it meanwhile.
                    if p.scx.ops_state() == OpsState::Queued {
                        p.scx.release_to_kernel();
                        break;
                    }
                }
                OpsState::Dispatching => self.wait_ops_state(c, p, OpsState::Dispatching),
            }
            if self.life.is_policy_dead() {
                p.scx.release_to_kernel();
            }
        }
        if p.scx.leave_custody() && self.version.dequeue_on_leaving_custody() {
            self.call_dequeue_op(c, rq, p, deq_flags);
        }
    }

    fn call_dequeue_op(&self, c: &Cpu, rq: &Cpu, p: &Task, deq_flags: u64) {
        if self.has_op(OpKind::Dequeue) {
            let op = OpCall::Dequeue {
                task: p.id,
                deq_flags,
            };
            self.call_op_on(c, rq, op);
        }
    }

    /// `dequeue_task_scx()`.
    pub(crate) fn dequeue_task_scx(&self, c: &Cpu, rq: &Cpu, p: &Task, core_flags: u64) {
        let mut deq_flags = core_flags;
        if core_flags & deq::SLEEP == 0 && self.version.has_deq_sched_change() {
            deq_flags |= deq::SCHED_CHANGE;
        }
        if !p.scx.is_queued() {
            return;
        }
        self.ops_dequeue(c, rq, p, deq_flags);
        if p.scx.runs() {
            // A running task that leaves stops running first. Without ops.stopping() it is not charged for that.
            if self.has_op(OpKind::Stopping) {
                self.update_curr_scx(c, p);
            }
            self.call_stopping(c, rq, p, false);
        }
        if self.has_op(OpKind::Quiescent) && p.on_rq() != OnRq::Migrating {
            let op = OpCall::Quiescent {
                task: p.id,
                deq_flags,
            };
            self.call_op_on(c, rq, op);
        }
        self.leave_rq(c, rq, p);
    }

    #[inline(always)]
    fn call_stopping(&self, c: &Cpu, rq: &Cpu, p: &Task, runnable: bool) {
        p.scx.stop_running();
        if self.has_op(OpKind::Stopping) {
            let op = OpCall::Stopping {
                task: p.id,
                runnable,
            };
            self.call_op_on(c, rq, op);
        }
    }

    /// `yield_task_scx()`.
    pub(crate) fn yield_task_scx(&self, c: &Cpu, p: &Task) {
        if self.has_op(OpKind::Yield) {
            let op = OpCall::Yield {
                from: p.id,
                to: None,
            };
            self.call_rare_op_on(c, c, op);
        } else {
            self.set_slice(p, 0);
        }
    }

    /// `task_tick_scx()`.
    pub(crate) fn task_tick_scx(&self, c: &Cpu, p: &Task) {
        self.update_curr_scx(c, p);
        if self.life.is_bypassing() {
            self.set_slice(p, 0);
        } else if self.has_op(OpKind::Tick) {
            self.call_op_on(c, c, OpCall::Tick { task: p.id });
        }
        if self.slice(p) == 0 {
            self.resched_curr(c, c);
        }
    }

    /// `put_prev_task_scx()` while an attribute of the task changes, which has been dequeued.
    pub(crate) fn put_changing_task_scx(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        debug_assert!(!p.scx.is_queued(), "{} is dequeued", p.label());
        rq.kicks.count_sync();
        self.update_curr_scx(c, p);
    }

    /// `put_prev_task_scx()`. `next` is the class of what runs next.
    pub(crate) fn put_prev_task_scx(&self, c: &Cpu, p: &Task, next: NextTask) {
        c.kicks.count_sync();
        self.update_curr_scx(c, p);
        if p.scx.is_queued() {
            self.call_stopping(c, c, p, true);
        }
        if p.scx.is_queued() {
            self.set_task_runnable(c, p);
            if self.slice(p) > 0 && !self.life.is_bypassing() {
                // Preempted by a higher class: it stays the first here, unless it may not linger.
                if p.scx.is_immed() {
                    self.do_enqueue_task(c, c, p, enq::REENQ, None);
                } else {
                    self.dispatch_enqueue_local(c, c, p, enq::HEAD);
                }
            } else if next.class < Class::Ext {
                self.do_enqueue_task(c, c, p, enq::LAST, None);
                if self.version.marks_idle_after_enq_last() && p.dsq() == c.local_dsq() {
                    c.mark_when_chosen();
                }
            } else {
                self.do_enqueue_task(c, c, p, 0, None);
            }
        }
        if next.class != Class::Ext {
            self.switch_class(c, next);
        }
    }

    /// `switch_class()`: a higher class takes the CPU from sched_ext.
    fn switch_class(&self, c: &Cpu, next: NextTask) {
        let preemptible = self.has_op(OpKind::CpuAcquire) || self.has_op(OpKind::CpuRelease);
        if !preemptible || next.class < Class::Ext {
            return;
        }
        if !c.scx.release() && self.has_op(OpKind::CpuRelease) {
            let op = OpCall::CpuRelease {
                cpu: c.id,
                reason: match next.class {
                    Class::Stop => PreemptReason::Stop,
                    Class::Rt => PreemptReason::Rt,
                    Class::Deadline => PreemptReason::Deadline,
                    Class::Fair | Class::Ext | Class::Idle => PreemptReason::Unknown,
                },
                task: next.task,
            };
            self.call_rare_op_on(c, c, op);
        }
    }

    /// `set_next_task_scx()`.
    pub(crate) fn set_next_task_scx(&self, c: &Cpu, p: &Task) {
        if p.scx.is_queued() {
            self.ops_dequeue(c, c, p, deq::CORE_SCHED_EXEC);
            self.dispatch_dequeue(c, c, p);
        }
        p.start_exec(c.this.now.get());
        if p.scx.start_running() && self.has_op(OpKind::Running) {
            self.call_op_on(c, c, OpCall::Running { task: p.id });
        }
        p.scx.clear_runnable(true);
    }

    /// Whether a task of a class above sched_ext waits on `c`.
    fn higher_class_waits(&self, c: &Cpu) -> bool {
        self.classes.has_rt() && self.waits_above_fair(c)
            || self.classes.has_fair() && self.fair_task_waits(c)
    }

    /// `do_pick_task_scx()`.
    pub(crate) fn pick_task_scx<'k>(&'k self, c: &Cpu, prev: Option<&'k Task>) -> Pick<'k> {
        c.kicks.count_sync();
        c.rq_modified_begin(Class::Ext);
        let mut verdict = self.balance_one(c, prev);
        c.kicks.make_due();
        if verdict == Verdict::Prev && prev.is_none_or(|p| p.class() != Class::Ext) {
            verdict = Verdict::Local;
        }
        if c.rq_modified_above(Class::Ext) {
            return Pick::Retry;
        }
        // Linux 6.18: that was prev_balance(), and all classes are asked from the highest on after it.
        if !self.version.has_next_class() && self.higher_class_waits(c) {
            return Pick::Retry;
        }
        let p = match (verdict, prev) {
            (Verdict::Prev, Some(p)) => p,
            _ => match c.local.first() {
                Some(task) => self.task(task),
                None => return Pick::Nothing,
            },
        };
        if self.slice(p) == 0 {
            self.refill_slice(p);
        }
        Pick::Task(p)
    }
}

/// The task that a CPU is about to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NextTask {
    pub class: Class,
    pub task: Option<TaskId>,
}
