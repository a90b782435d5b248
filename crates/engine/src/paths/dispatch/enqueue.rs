//! Putting a task on a dispatch queue, and what leaves the policy's custody by that.

use schedlab_trace::{CpuId, Recorder};

use crate::contract::consts::{dsq_id, enq};
use crate::contract::mutation::Mutation;
use crate::contract::policy::{OpCall, OpKind, Policy};
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::dsq::{MixedOrder, Place};
use crate::state::scx::OpsState;
use crate::state::task::{Class, Task};

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `dispatch_enqueue()`.
    pub(crate) fn dispatch_enqueue(&self, c: &Cpu, dsq: u32, p: &Task, enq_flags: u64) {
        if self.is_local(dsq) {
            self.dispatch_enqueue_local(c, self.cpu(CpuId(dsq)), p, enq_flags);
        } else {
            self.dispatch_enqueue_shared(c, dsq, p, enq_flags);
        }
    }

    /// `dispatch_enqueue()` into the local DSQ of `rq`.
    pub(crate) fn dispatch_enqueue_local(&self, c: &Cpu, rq: &Cpu, p: &Task, enq_flags: u64) {
        self.leave_custody_before(c, rq.local_dsq(), p);
        if enq_flags & enq::DSQ_PRIQ != 0 {
            self.refuse_vtime_order();
        }
        self.link_local(c, rq, p, enq_flags);
        if enq_flags & enq::CLEAR_OPSS != 0 {
            p.scx.release_to_kernel();
        }
    }

    /// Links `p` into the local DSQ of `rq`, and what that entails.
    pub(super) fn link_local(&self, c: &Cpu, rq: &Cpu, p: &Task, enq_flags: u64) {
        let place = if enq_flags & (enq::HEAD | enq::PREEMPT) != 0 {
            Place::Head
        } else {
            Place::Tail
        };
        rq.local
            .insert(&self.tasks, &p.node, place)
            .expect("local DSQs are FIFO");
        self.charge(c, self.machine.sched_ext.dsq_fifo_ns);
        if enq_flags & enq::IMMED != 0 {
            p.scx.set_immed(true);
        }
        if p.scx.is_immed() {
            self.count_immed(c, rq, enq_flags);
        }
        p.enter_dsq(rq.local_dsq());
        self.local_dsq_post_enq(c, rq, p, enq_flags);
    }

    /// `dispatch_enqueue()` into a global DSQ or one of the policy's.
    pub(super) fn dispatch_enqueue_shared(&self, c: &Cpu, dsq: u32, p: &Task, enq_flags: u64) {
        self.leave_custody_before(c, dsq, p);
        let mut queue = self.dsqs.get(dsq);
        let mut lock = self.dsq_lock(queue);
        self.spin_lock(c, lock);
        if queue.id() == dsq_id::INVALID {
            self.scx_error("attempting to dispatch to a destroyed dsq".to_owned());
            self.spin_unlock(c, lock);
            queue = self.dsqs.get(self.global_dsq(p.cpu()));
            self.leave_custody_before(c, queue.index, p);
            lock = self.dsq_lock(queue);
            self.spin_lock(c, lock);
        }
        let mut by_vtime = enq_flags & enq::DSQ_PRIQ != 0;
        if by_vtime && queue.is_builtin() {
            self.refuse_vtime_order();
            by_vtime = false;
        }
        if self.mutated(Mutation::VtimeOrderIgnored) {
            by_vtime = false;
        }
        let place = if by_vtime {
            Place::Vtime(self.policy.vtime(p.id))
        } else if enq_flags & (enq::HEAD | enq::PREEMPT) != 0 {
            Place::Head
        } else {
            Place::Tail
        };
        if let Err(mixed) = queue.insert(&self.tasks, &p.node, place) {
            self.refuse_mixed_order(queue.id(), mixed);
        }
        // Cost of linking into a queue that holds so many tasks.
        let costs = &self.machine.sched_ext;
        let cost_ns = if by_vtime {
            costs.dsq_vtime_ns * crate::state::costs::tree_levels(queue.nr())
        } else {
            costs.dsq_fifo_ns
        };
        self.charge(c, cost_ns);
        p.enter_dsq(queue.index);
        // A task on a global DSQ is out of the policy's hands, on a user DSQ it is not.
        let call_dequeue = if queue.id() == dsq_id::GLOBAL {
            self.task_leave_custody(p)
        } else {
            p.scx.enter_custody();
            false
        };
        self.spin_unlock(c, lock);
        if call_dequeue {
            self.call_dequeue(c, self.rq_of_dispatch(c, p), p);
        }
        if enq_flags & enq::CLEAR_OPSS != 0 {
            p.scx.release_to_kernel();
        }
    }

    #[cold]
    fn refuse_vtime_order(&self) {
        if !self.mutated(Mutation::VtimeInBuiltinDsq) {
            self.scx_error("cannot use vtime ordering for built-in DSQs".to_owned());
        }
    }

    #[cold]
    fn refuse_mixed_order(&self, id: u64, mixed: MixedOrder) {
        let others = match mixed {
            MixedOrder::AlreadyFifo => "FIFO",
            MixedOrder::AlreadyVtime => "PRIQ",
        };
        self.scx_error(format!(
            "DSQ ID {id:#018x} already had {others}-enqueued tasks"
        ));
    }

    /// Whether `ops.dequeue()` is called where a task leaves the policy's custody.
    #[inline]
    fn tells_departure(&self) -> bool {
        self.has_op(OpKind::Dequeue) && self.version.dequeue_on_leaving_custody()
    }

    /// Returns the run queue under whose lock `p` is put on a global DSQ: after `ops.dispatch()` the queue of the CPU
    /// that asked for it (`finish_dispatch()`), else its own.
    fn rq_of_dispatch<'k>(&'k self, c: &'k Cpu, p: &Task) -> &'k Cpu {
        match p.scx.ops_state() {
            OpsState::Dispatching => c,
            _ => self.cpu(p.cpu()),
        }
    }

    /// Calls `ops.dequeue()` under the lock of `rq` if the version reports departures from custody.
    fn call_dequeue(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        if self.tells_departure() {
            let op = OpCall::Dequeue {
                task: p.id,
                deq_flags: 0,
            };
            self.call_op_on(c, rq, op);
        }
    }

    /// `task_leave_custody()`.
    fn task_leave_custody(&self, p: &Task) -> bool {
        p.scx.leave_custody() || self.mutated(Mutation::DequeueWithoutCustody)
    }

    /// Without run queue locks who finds a task on a local or global DSQ runs it at once, and it may be back with the
    /// policy before an `ops.dequeue()` that comes later has returned: there it leaves custody before it is linked.
    /// No other CPU takes a task that is linked here, or one that is being dispatched: it may leave when the kernel
    /// lets it.
    #[inline]
    pub(super) fn leave_custody_before(&self, c: &Cpu, dsq: u32, p: &Task) {
        if !self.machine.sched_ext.rq_locks {
            self.leave_custody_early(c, dsq, p);
        }
    }

    #[inline(never)]
    fn leave_custody_early(&self, c: &Cpu, dsq: u32, p: &Task) {
        if dsq == c.local_dsq() || p.scx.ops_state() == OpsState::Dispatching {
            return;
        }
        if self.is_local(dsq) {
            self.leave_custody_to_local(c, self.cpu(CpuId(dsq)), p);
        } else if self.dsqs.get(dsq).id() == dsq_id::GLOBAL && self.task_leave_custody(p) {
            self.call_dequeue_held(c, self.rq_of_dispatch(c, p), p);
        }
    }

    /// A task on a local DSQ is out of the policy's hands.
    #[inline]
    fn leave_custody_to_local(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        if self.task_leave_custody(p) {
            self.call_dequeue_held(c, rq, p);
        }
    }

    /// Calls `ops.dequeue()`. No other CPU takes the task meanwhile: a run queue's lock prevents it, or without such locks
    /// the task's state, for which the other CPU waits (`ops_dequeue()`).
    #[inline(never)]
    fn call_dequeue_held(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        if self.machine.sched_ext.rq_locks {
            self.call_dequeue(c, rq, p);
            return;
        }
        let state = p.scx.begin_dispatch();
        self.call_dequeue(c, rq, p);
        p.scx.end_dispatch(state);
    }

    /// `dsq_inc_nr()`, the part about `SCX_ENQ_IMMED`.
    #[inline(never)]
    fn count_immed(&self, c: &Cpu, rq: &Cpu, enq_flags: u64) {
        rq.scx.add_immed();
        if rq.local.nr() > 1 || !self.rq_is_open(rq, enq_flags) {
            self.schedule_reenq_local(c, rq, 0);
        }
    }

    /// `rq_is_open()`: whether an SCX task would run on `rq` at once.
    pub(crate) fn rq_is_open(&self, rq: &Cpu, enq_flags: u64) -> bool {
        if rq.next_class() > Class::Ext {
            return false;
        }
        if rq.next_class() < Class::Ext {
            return true;
        }
        rq.scx.in_balance() || enq_flags & enq::PREEMPT != 0
    }

    /// `local_dsq_post_enq()`.
    fn local_dsq_post_enq(&self, c: &Cpu, rq: &Cpu, p: &Task, enq_flags: u64) {
        self.leave_custody_to_local(c, rq, p);
        if self.version.has_next_class() {
            if p.class() > rq.next_class() {
                self.wakeup_preempt(c, rq, p);
            }
            if rq.scx.in_balance() {
                return;
            }
            if enq_flags & enq::PREEMPT != 0 {
                self.preempt_ext_curr(c, rq, p);
            }
        } else {
            if rq.scx.in_balance() {
                return;
            }
            if enq_flags & enq::PREEMPT != 0 {
                self.preempt_ext_curr(c, rq, p);
            }
            if self.curr_class(rq) < Class::Ext {
                self.resched_curr(c, rq);
            }
        }
    }

    /// Ends the slice of the current task of `rq` in favour of `p`.
    fn preempt_ext_curr(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        if let Some(curr) = rq.curr()
            && curr != p.id
            && self.task(curr).class() == Class::Ext
        {
            self.set_slice(self.task(curr), 0);
            self.resched_curr(c, rq);
        }
    }
}
