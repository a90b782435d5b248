//! Moving tasks through dispatch queues, as kernel/sched/ext/ext.c does it.

mod enqueue;

use schedlab_trace::{CpuId, CpuMode, LockClass, Recorder};

use crate::contract::consts::{self, dsq_id, enq, ops};
use crate::contract::mutation::Mutation;
use crate::contract::policy::{IterId, OpCall, OpKind, Policy};
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::dispatch::Entry;
use crate::state::dsq::Dsq;
use crate::state::lock::LockIx;
use crate::state::scx::OpsState;
use crate::state::sorted::NIL;
use crate::state::task::{Class, OnRq, Task};

/// How long a CPU waits before it looks again at a state that another one is about to change.
const RELAX_NS: u64 = 20;

/// The conclusion of dispatch (`enum scx_dsp_verdict`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing to run.
    None,
    /// The local DSQ has tasks.
    Local,
    /// The previous task goes on.
    Prev,
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// Index of the global DSQ of the node of `cpu` (`find_global_dsq()`).
    fn global_dsq(&self, cpu: CpuId) -> u32 {
        self.cpus.len() as u32 + self.cpu(cpu).node
    }

    pub(crate) fn is_local(&self, dsq: u32) -> bool {
        (dsq as usize) < self.cpus.len()
    }

    #[inline]
    pub(crate) fn dsq_lock(&self, dsq: &Dsq) -> LockIx {
        dsq.lock().unwrap_or_else(|| self.new_dsq_lock(dsq))
    }

    #[cold]
    fn new_dsq_lock(&self, dsq: &Dsq) -> LockIx {
        let name = if dsq.id() == dsq_id::GLOBAL {
            format!("global dsq {}", dsq.index - self.cpus.len() as u32)
        } else {
            format!("dsq {:#x}", dsq.id())
        };
        let address = schedlab_machine::address::dsq(dsq.index);
        let lock = self.new_lock(address, &name, LockClass::Dsq);
        dsq.make_lock(lock);
        lock
    }

    /// Waits until another CPU has brought `p` out of `state` (`wait_ops_state()`).
    pub(crate) fn wait_ops_state(&self, c: &Cpu, p: &Task, state: OpsState) {
        let mode = self.set_mode(c, CpuMode::Spin);
        while p.scx.ops_state() == state && !self.life.is_policy_dead() {
            self.charge(c, RELAX_NS);
            self.sync(c);
        }
        self.set_mode(c, mode);
    }

    /// Waits until `p`, which is on the run queue of `c`, is in a place where it can be found: on a dispatch queue,
    /// with the policy, or in the hands of its mover. Only run queue locks ensure that it always is.
    pub(crate) fn wait_until_placed(&self, c: &Cpu, p: &Task) {
        let is_nowhere = || {
            p.on_rq() == OnRq::Queued
                && p.cpu() == c.id
                && p.class() == Class::Ext
                && p.scx.ops_state() != OpsState::Queued
                && p.dsq() == NIL
                && p.scx.holding_cpu().is_none()
                && !p.scx.is_deferred()
        };
        while !self.machine.sched_ext.rq_locks && is_nowhere() && !self.life.is_policy_dead() {
            self.charge(c, RELAX_NS);
            self.sync(c);
        }
    }

    /// `find_dsq_for_dispatch()`.
    #[inline]
    pub(crate) fn find_dsq_for_dispatch(&self, rq: &Cpu, id: u64, p: &Task) -> u32 {
        let found = self.dsqs.find_user(id);
        found.unwrap_or_else(|| self.find_other_dsq(rq, id, p.cpu(), Some(p)))
    }

    /// The same for no CPU in particular.
    pub(crate) fn find_dsq(&self, rq: &Cpu, id: u64, near: CpuId) -> u32 {
        let found = self.dsqs.find_user(id);
        found.unwrap_or_else(|| self.find_other_dsq(rq, id, near, None))
    }

    /// `find_dsq_for_dispatch()` for a DSQ that is not the policy's.
    #[inline(never)]
    fn find_other_dsq(&self, rq: &Cpu, id: u64, task_cpu: CpuId, p: Option<&Task>) -> u32 {
        if id == dsq_id::LOCAL {
            return rq.local_dsq();
        }
        if dsq_id::is_local_on(id) {
            let cpu = (id & dsq_id::LOCAL_CPU_MASK) as i32;
            if !self.cpu_valid(cpu, "in SCX_DSQ_LOCAL_ON dispatch verdict") {
                return self.global_dsq(task_cpu);
            }
            return cpu as u32;
        }
        if id == dsq_id::GLOBAL {
            return self.global_dsq(task_cpu);
        }
        if !self.mutated(Mutation::MissingDsqIsGlobal) {
            let told = p.filter(|_| !self.version.names_missing_queue_alone());
            let whose = told.map_or(String::new(), |p| format!(" for {}", p.label()));
            self.scx_error(format!("non-existent DSQ {id:#x}{whose}"));
        }
        self.global_dsq(task_cpu)
    }

    /// `task_unlink_from_dsq()`.
    fn task_unlink_from_dsq(&self, c: &Cpu, p: &Task, queue: &Dsq) {
        self.charge(c, self.machine.sched_ext.dsq_fifo_ns);
        queue.take_at(c.this.now.get());
        if p.scx.is_immed() {
            return self.unlink_immed(p, queue);
        }
        self.dsqs.unlink(&self.tasks, queue, &p.node);
    }

    /// Unlinks a task that is counted (`dsq_dec_nr()`).
    #[inline(never)]
    fn unlink_immed(&self, p: &Task, queue: &Dsq) {
        if self.is_local(queue.index) {
            let rq = self.cpu(CpuId(queue.index));
            rq.scx.sub_immed();
        }
        self.dsqs.unlink(&self.tasks, queue, &p.node);
    }

    /// `dispatch_dequeue()`: takes `p` off the queue it is on, or out of the hands of who moves it.
    #[inline(always)]
    pub(crate) fn dispatch_dequeue(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        if p.dsq() != NIL {
            return self.dispatch_dequeue_queued(c, p);
        }
        if p.scx.is_deferred() {
            self.forget_deferred(rq, p);
        }
        p.scx.let_go();
    }

    #[inline(never)]
    fn dispatch_dequeue_queued(&self, c: &Cpu, p: &Task) {
        let dsq = p.dsq();
        if self.is_local(dsq) {
            p.leave_dsq();
            if !p.scx.let_go() {
                self.task_unlink_from_dsq(c, p, &self.cpu(CpuId(dsq)).local);
            }
        } else {
            self.dispatch_dequeue_shared(c, p, self.dsqs.get(dsq));
        }
    }

    #[inline(never)]
    fn forget_deferred(&self, rq: &Cpu, p: &Task) {
        p.scx.forget_deferred();
        rq.deferred.forget_local(p.id);
    }

    /// `dispatch_dequeue()` from a global DSQ or one of the policy's.
    #[inline(never)]
    fn dispatch_dequeue_shared(&self, c: &Cpu, p: &Task, queue: &Dsq) {
        let lock = self.dsq_lock(queue);
        self.spin_lock(c, lock);
        if !p.scx.let_go() {
            self.task_unlink_from_dsq(c, p, queue);
        }
        p.leave_dsq();
        self.spin_unlock(c, lock);
    }

    /// `direct_dispatch()`.
    #[inline]
    pub(crate) fn direct_dispatch(&self, c: &Cpu, rq: &Cpu, p: &Task, enq_flags: u64) {
        let Some(dsq) = self.dsqs.again(p.scx.ddsp_dsq_id()) else {
            return self.direct_dispatch_elsewhere(c, rq, p, enq_flags);
        };
        let flags = p.scx.ddsp_enq_flags() | enq_flags;
        p.scx.clear_direct_dispatch();
        c.dispatch.begin_insertion(p.id);
        self.dispatch_enqueue_shared(c, dsq, p, flags | enq::CLEAR_OPSS);
        c.dispatch.end_insertion();
    }

    /// `direct_dispatch()` into another queue than the one that was last asked for.
    #[inline(never)]
    fn direct_dispatch_elsewhere(&self, c: &Cpu, rq: &Cpu, p: &Task, enq_flags: u64) {
        c.dispatch.begin_insertion(p.id);
        let dsq = self.find_dsq_for_dispatch(rq, p.scx.ddsp_dsq_id(), p);
        let flags = p.scx.ddsp_enq_flags() | enq_flags;
        if !self.is_local(dsq) {
            p.scx.clear_direct_dispatch();
            self.dispatch_enqueue_shared(c, dsq, p, flags | enq::CLEAR_OPSS);
        } else if dsq == rq.local_dsq() {
            p.scx.clear_direct_dispatch();
            self.dispatch_enqueue_local(c, rq, p, flags | enq::CLEAR_OPSS);
        } else {
            // The run queue of another CPU cannot be locked here: that is done when this one is free.
            p.scx.defer_local(flags);
            rq.deferred.add_local(p.id);
            self.schedule_deferred_locked(c, rq);
        }
        c.dispatch.end_insertion();
    }

    /// `move_local_task_to_local_dsq()`.
    fn move_local_task_to_local_dsq(&self, c: &Cpu, rq: &Cpu, p: &Task, enq_flags: u64) {
        // A dequeuer finds it on no queue.
        p.leave_dsq();
        self.leave_custody_before(c, rq.local_dsq(), p);
        self.link_local(c, rq, p, enq_flags);
    }

    /// `move_remote_task_to_local_dsq()`: `src` is locked on entry, `dst` on return.
    fn move_remote_task_to_local_dsq(
        &self,
        c: &Cpu,
        p: &Task,
        enq_flags: u64,
        src: &Cpu,
        dst: &Cpu,
    ) {
        p.scx.stick_to(dst.id);
        p.set_on_rq(OnRq::Migrating);
        self.dequeue_migrating_scx(c, src, p);
        self.set_task_cpu(c, p, dst.id);
        self.rq_unlock(c, src);
        self.rq_lock(c, dst);
        dst.scx.enqueue_with(enq_flags);
        self.enqueue_migrating_scx(c, dst, p);
        dst.scx.enqueue_with(0);
    }

    /// `task_can_run_on_remote_rq()`.
    fn task_can_run_on_remote_rq(&self, p: &Task, rq: &Cpu, enforce: bool) -> bool {
        if !p.allows(rq.id) && !self.mutated(Mutation::ForbiddenCpuTaken) {
            if enforce {
                self.scx_error(format!(
                    "SCX_DSQ_LOCAL[_ON] target CPU {} not allowed for {}",
                    rq.id,
                    p.label()
                ));
            }
            return false;
        }
        rq.is_online()
    }

    /// `consume_remote_task()`: `rq` and the queue are locked on entry, only `rq` on return.
    fn consume_remote_task(
        &self,
        c: &Cpu,
        rq: &Cpu,
        p: &Task,
        enq_flags: u64,
        queue: &Dsq,
        src: &Cpu,
    ) -> bool {
        self.rq_unlock(c, rq);
        // unlink_dsq_and_lock_src_rq()
        self.task_unlink_from_dsq(c, p, queue);
        p.scx.hold(c.id);
        let lock = self.dsq_lock(queue);
        self.spin_unlock(c, lock);
        self.rq_lock(c, src);
        self.wait_for_switch(c, p);
        if self.still_holds(c, p, src.id) {
            self.move_remote_task_to_local_dsq(c, p, enq_flags, src, rq);
            true
        } else {
            self.rq_unlock(c, src);
            self.rq_lock(c, rq);
            false
        }
    }

    /// `consume_dispatch_q()`: moves the first task that may run here to the local DSQ of `rq`.
    #[inline]
    pub(crate) fn consume_dispatch_q(
        &self,
        c: &Cpu,
        rq: &Cpu,
        queue: &Dsq,
        enq_flags: u64,
    ) -> bool {
        // Looked at without the lock, as in the kernel.
        self.sync(c);
        queue.first().is_some() && self.consume_tasks(c, rq, queue, enq_flags)
    }

    #[inline(never)]
    fn consume_tasks(&self, c: &Cpu, rq: &Cpu, queue: &Dsq, enq_flags: u64) -> bool {
        loop {
            if let Some(consumed) = self.try_consume(c, rq, queue, enq_flags) {
                return consumed;
            }
            self.sync(c);
            if queue.first().is_none() {
                return false;
            }
        }
    }

    /// One look at the queue; `None`: another CPU has got hold of what was found.
    #[inline(always)]
    fn try_consume(&self, c: &Cpu, rq: &Cpu, queue: &Dsq, enq_flags: u64) -> Option<bool> {
        let lock = self.dsq_lock(queue);
        self.spin_lock(c, lock);
        let mut next = queue.first();
        while let Some(task) = next {
            if self.life.is_bypassing() {
                break;
            }
            let p = self.task(task);
            self.prefetch_dispatches(c, queue, p);
            self.read_line(c, p.line);
            if p.cpu() == rq.id {
                // Without run queue locks another CPU may take it as soon as the queue is free.
                self.task_unlink_from_dsq(c, p, queue);
                p.scx.hold(c.id);
                self.spin_unlock(c, lock);
                if !self.still_holds(c, p, rq.id) {
                    return None;
                }
                p.scx.let_go();
                self.move_local_task_to_local_dsq(c, rq, p, enq_flags);
                return Some(true);
            }
            if self.task_can_run_on_remote_rq(p, rq, false) {
                let src = self.cpu(p.cpu());
                let consumed = self.consume_remote_task(c, rq, p, enq_flags, queue, src);
                return consumed.then_some(true);
            }
            next = queue.next(&p.node);
        }
        self.spin_unlock(c, lock);
        Some(false)
    }

    /// `dispatch_to_local_dsq()`: `rq` is locked on entry and on return.
    pub(crate) fn dispatch_to_local_dsq(
        &self,
        c: &Cpu,
        rq: &Cpu,
        dst: &Cpu,
        p: &Task,
        enq_flags: u64,
    ) {
        let src = self.cpu(p.cpu());
        if rq.id == src.id && rq.id == dst.id {
            self.dispatch_enqueue_local(c, dst, p, enq_flags | enq::CLEAR_OPSS);
            return;
        }
        p.scx.hold(c.id);
        p.scx.release_to_kernel();
        let mut locked = rq;
        if locked.id != src.id {
            self.rq_unlock(c, locked);
            self.rq_lock(c, src);
            locked = src;
        }
        self.wait_for_switch(c, p);
        if self.still_holds(c, p, src.id) {
            let mut fallback = false;
            if src.id == dst.id {
                p.scx.let_go();
                self.dispatch_enqueue_local(c, dst, p, enq_flags);
            } else if !self.task_can_run_on_remote_rq(p, dst, true) {
                p.scx.let_go();
                fallback = true;
                let global = self.global_dsq(p.cpu());
                self.dispatch_enqueue(c, global, p, enq_flags | enq::GDSQ_FALLBACK);
            } else {
                self.move_remote_task_to_local_dsq(c, p, enq_flags, src, dst);
                locked = dst;
            }
            if !fallback && p.class() > self.curr_class(dst) {
                self.resched_curr(c, dst);
            }
        }
        if locked.id != rq.id {
            self.rq_unlock(c, locked);
            self.rq_lock(c, rq);
        }
    }

    /// `finish_dispatch()`.
    fn finish_dispatch(&self, c: &Cpu, rq: &Cpu, entry: Entry) {
        let p = self.task(entry.task);
        loop {
            match p.scx.ops_state() {
                OpsState::Dispatching | OpsState::None => return,
                OpsState::Queued => {
                    if p.scx.qseq() != entry.qseq {
                        return;
                    }
                    p.scx.begin_dispatch();
                    break;
                }
                OpsState::Queueing => self.wait_ops_state(c, p, OpsState::Queueing),
            }
            if self.life.is_policy_dead() {
                return;
            }
        }
        // The CPU that woke or ran the task has its line; the policy may have chosen one from elsewhere.
        self.write_line(c, p.line, 0);
        let id = if self.mutated(Mutation::LocalOnIsHere) && dsq_id::is_local_on(entry.dsq) {
            dsq_id::LOCAL
        } else {
            entry.dsq
        };
        let dsq = self.find_dsq_for_dispatch(rq, id, p);
        if self.is_local(dsq) {
            let dst = self.cpu(CpuId(dsq));
            self.dispatch_to_local_dsq(c, rq, dst, p, entry.enq_flags);
        } else {
            self.dispatch_enqueue(c, dsq, p, entry.enq_flags | enq::CLEAR_OPSS);
        }
    }

    /// `flush_dispatch_buf()`.
    #[inline]
    fn flush_dispatch_buf(&self, c: &Cpu, rq: &Cpu) {
        if c.dispatch.len() > 0 {
            self.flush_entries(c, rq);
        }
    }

    #[inline(never)]
    fn flush_entries(&self, c: &Cpu, rq: &Cpu) {
        self.sync(c);
        let mut index = 0;
        while let Some(entry) = c.dispatch.get(index) {
            c.dispatch.begin_insertion(entry.task);
            self.finish_dispatch(c, rq, entry);
            c.dispatch.end_insertion();
            index += 1;
        }
        c.dispatch.flushed(index as u32);
    }

    /// `scx_bpf_dsq_move_to_local()`.
    pub(crate) fn dsq_move_to_local(&self, c: &Cpu, id: u64, enq_flags: u64) -> bool {
        let Some(enq_flags) = self.vet_enq_flags(dsq_id::LOCAL, enq_flags) else {
            return false;
        };
        self.flush_dispatch_buf(c, c);
        self.sync(c);
        let dsq = self.dsqs.find_user(id);
        let Some(dsq) = dsq else {
            self.scx_error(format!("invalid DSQ ID {id:#018x}"));
            return false;
        };
        let consumed = self.consume_dispatch_q(c, c, self.dsqs.get(dsq), enq_flags);
        if consumed {
            c.dispatch.count(1);
        }
        consumed
    }

    /// `scx_dsq_move()`.
    pub(crate) fn scx_dsq_move(
        &self,
        c: &Cpu,
        iter: IterId,
        p: &Task,
        id: u64,
        enq_flags: u64,
    ) -> bool {
        self.sync(c);
        let Some(src_dsq) = self.dsqs.iter_dsq(iter) else {
            return false;
        };
        let Some(enq_flags) = self.vet_enq_flags(id, enq_flags) else {
            return false;
        };
        if self.life.is_bypassing() {
            return false;
        }
        let src = self.cpu(p.cpu());
        let locked = c.op.locked_rq().map(|cpu| self.cpu(cpu));
        match locked {
            Some(locked) if locked.id != src.id => {
                self.rq_unlock(c, locked);
                self.rq_lock(c, src);
            }
            Some(_) => {}
            None => self.rq_lock(c, src),
        }
        let src_queue = self.dsqs.get(src_dsq);
        let lock = self.dsq_lock(src_queue);
        self.spin_lock(c, lock);
        // nldsq_cursor_lost_task()
        let lost = p.dsq() != src_dsq
            || p.scx.holding_cpu().is_some()
            || p.cpu() != src.id
            || self.dsqs.inserted_after(iter, &p.node);
        let (slice, vtime) = self.dsqs.iter_take_overrides(iter);
        let mut p_rq = src;
        let mut moved = false;
        if lost {
            self.spin_unlock(c, lock);
        } else {
            let here = locked.unwrap_or(c);
            let dst = self.find_dsq_for_dispatch(here, id, p);
            if let Some(vtime) = vtime {
                self.policy.set_vtime(p.id, vtime);
            }
            if let Some(slice) = slice {
                self.set_slice(p, slice);
            }
            (p_rq, moved) = self.move_task_between_dsqs(c, p, enq_flags, src_queue, dst, lock);
        }
        match locked {
            Some(locked) if locked.id != p_rq.id => {
                self.rq_unlock(c, p_rq);
                self.rq_lock(c, locked);
            }
            Some(_) => {}
            None => self.rq_unlock(c, p_rq),
        }
        moved
    }

    /// `move_task_between_dsqs()`: the task's run queue and the source are locked; returns the run
    /// queue that is locked afterwards, and whether the task was moved.
    fn move_task_between_dsqs<'k>(
        &'k self,
        c: &Cpu,
        p: &Task,
        enq_flags: u64,
        src_queue: &Dsq,
        dst_dsq: u32,
        src_lock: LockIx,
    ) -> (&'k Cpu, bool) {
        let src = self.cpu(p.cpu());
        let mut dst_dsq = dst_dsq;
        let mut enq_flags = enq_flags;
        let mut dst = src;
        if self.is_local(dst_dsq) {
            dst = self.cpu(CpuId(dst_dsq));
            if src.id != dst.id && !self.task_can_run_on_remote_rq(p, dst, true) {
                dst_dsq = self.global_dsq(p.cpu());
                dst = src;
                enq_flags |= enq::GDSQ_FALLBACK;
            }
        }
        if !self.hold_unlinked(c, p, src_queue, src_lock) {
            return (src, false);
        }
        if !self.is_local(dst_dsq) {
            // dispatch_dequeue_locked()
            p.scx.let_go();
            p.leave_dsq();
            self.dispatch_enqueue(c, dst_dsq, p, enq_flags);
        } else if src.id == dst.id {
            p.scx.let_go();
            self.move_local_task_to_local_dsq(c, dst, p, enq_flags);
        } else {
            self.move_remote_task_to_local_dsq(c, p, enq_flags, src, dst);
        }
        (dst, true)
    }

    /// Takes `p` off a queue, whose lock it releases, and holds it. Returns whether no other CPU took it meanwhile,
    /// which only run queue locks rule out.
    fn hold_unlinked(&self, c: &Cpu, p: &Task, queue: &Dsq, lock: LockIx) -> bool {
        let src = p.cpu();
        self.task_unlink_from_dsq(c, p, queue);
        p.scx.hold(c.id);
        self.spin_unlock(c, lock);
        self.wait_for_switch(c, p);
        self.still_holds(c, p, src)
    }

    /// Whether the task that `c` has taken off a queue of `src` is still its to move. A CPU that has begun to move it
    /// to another run queue meanwhile, which only run queue locks rule out, finds it held and goes on.
    pub(crate) fn still_holds(&self, c: &Cpu, p: &Task, src: CpuId) -> bool {
        p.scx.holding_cpu() == Some(c.id) && p.cpu() == src && p.on_rq() == OnRq::Queued
    }

    /// Without run queue locks a task is on a queue before its CPU has switched to another one: who
    /// takes it waits for that.
    fn wait_for_switch(&self, c: &Cpu, p: &Task) {
        if !self.machine.sched_ext.rq_locks && self.cpu(p.cpu()).id != c.id {
            self.wait_until_off_cpu(c, p);
        }
    }

    /// `scx_dispatch_sched()`.
    fn scx_dispatch_sched(&self, c: &Cpu, prev: Option<&Task>) -> Verdict {
        let global = self.dsqs.get(self.global_dsq(c.id));
        if self.consume_dispatch_q(c, c, global, 0) {
            return Verdict::Local;
        }
        if self.life.is_bypassing() || !self.has_op(OpKind::Dispatch) || !c.is_online() {
            return Verdict::None;
        }
        let prev_ext = prev.filter(|p| p.class() == Class::Ext);
        let mut loops = consts::DSP_MAX_LOOPS;
        loop {
            c.dispatch.begin();
            let op = OpCall::Dispatch {
                cpu: c.id,
                prev: prev_ext
                    .map(|p| p.id)
                    .filter(|_| !self.mutated(Mutation::DispatchWithoutPrev)),
            };
            self.call_op_on(c, c, op);
            self.flush_dispatch_buf(c, c);
            // Others may have come meanwhile, however long the op took without asking for anything.
            self.sync(c);
            if let Some(p) = prev
                && p.scx.is_queued()
                && self.slice(p) > 0
            {
                return Verdict::Prev;
            }
            if c.local.nr() > 0 {
                return Verdict::Local;
            }
            if self.consume_dispatch_q(c, c, global, 0) {
                return Verdict::Local;
            }
            loops -= 1;
            if loops == 0 {
                // Lets the watchdog and everybody else have a turn before it starts anew.
                self.scx_kick_cpu(c, c.id, 0);
                return Verdict::None;
            }
            if !c.dispatch.has_any() {
                return Verdict::None;
            }
        }
    }

    /// `balance_one()`: the only place from which `ops.dispatch()` is called.
    pub(crate) fn balance_one(&self, c: &Cpu, prev: Option<&Task>) -> Verdict {
        c.scx.begin_balance();
        if c.scx.acquire() && self.has_op(OpKind::CpuAcquire) {
            self.call_rare_op_on(c, c, OpCall::CpuAcquire { cpu: c.id });
        }
        let verdict = self.balance_verdict(c, prev);
        if verdict != Verdict::None && c.scx.has_immed() && c.local.nr() > 1 {
            self.schedule_reenq_local(c, c, 0);
        }
        c.scx.end_balance();
        verdict
    }

    fn balance_verdict(&self, c: &Cpu, prev: Option<&Task>) -> Verdict {
        if let Some(p) = prev
            && p.class() == Class::Ext
        {
            self.update_curr_scx(c, p);
            // A runnable previous task with slice left goes on, without asking the policy.
            if p.scx.is_queued() && self.slice(p) > 0 && !self.life.is_bypassing() {
                return Verdict::Prev;
            }
        }
        if c.local.nr() > 0 {
            return Verdict::Local;
        }
        match self.scx_dispatch_sched(c, prev) {
            Verdict::None => {}
            verdict => return verdict,
        }
        if let Some(p) = prev
            && p.scx.is_queued()
            && (!self.has_flag(ops::ENQ_LAST) || self.life.is_bypassing())
        {
            return Verdict::Prev;
        }
        Verdict::None
    }
}
