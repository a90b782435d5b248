//! Calling the policy's ops and carrying out what they ask for.
//!
//! An op runs on its CPU's fiber; what it asks for comes back here ([`Caller`]). Requests of others
//! take effect in the order of virtual time: the CPU waits for its turn first. A request of
//! `ops.dispatch()` can itself call an op (`ops.dequeue()` where a task leaves the policy's custody):
//! that one is nested, and may ask only for what calls no further op.
//!
//! Costs: what a call costs, of an op and of a kfunc or helper, the policy's side charges, who knows which of
//! them ask nothing here; what is done for it here costs what it costs wherever the kernel does it.

use schedlab_trace::{CpuId, CpuMode, CpuSet, LockClass, Recorder, TaskId};

use crate::contract::consts::{
    BPF_F_TIMER_ABS, BPF_MAX_LOOPS, dsq_id, enq, errno, iter, kick, ops, reenq,
};
use crate::contract::facts::TaskFacts;
use crate::contract::mutation::Mutation;
use crate::contract::op_context::{
    CREATE_DSQ, DISPATCH_CANCEL, DISPATCH_NR_SLOTS, DSQ_INSERT, DSQ_MOVE, DSQ_MOVE_TO_LOCAL,
    MOVE_SET_SLICE, MOVE_SET_VTIME, REENQUEUE_LOCAL, Restricted, SELECT_CPU_AND, SELECT_CPU_DFL,
};
use crate::contract::outcome::ExitKind;
use crate::contract::policy::{
    DsqId, Env, IterId, OpCall, OpKind, Policy, PolicyLock, Service, TaskView, TimerId,
};
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::dispatch::Entry;
use crate::state::event_queue::Timer;
use crate::state::lock::LockIx;
use crate::state::op::Insertion;
use crate::state::scx::{OpsState, ScxState};
use crate::state::sorted::NIL;
use crate::state::task::{OnRq, Task, TaskState};

/// An op's way back into the virtual kernel.
struct Caller<'k, P, R> {
    kernel: &'k Kernel<P, R>,
    cpu: &'k Cpu,
}

impl<P: Policy, R: Recorder> Caller<'_, P, R> {
    /// Carries out a request.
    #[inline(always)]
    fn ask<A>(&self, carry_out: impl FnOnce(&Kernel<P, R>, &Cpu) -> A) -> A {
        let (kernel, c) = (self.kernel, self.cpu);
        kernel.bound_op(c);
        let answer = carry_out(kernel, c);
        if kernel.life.is_policy_dead() {
            kernel.give_up();
        }
        answer
    }

    /// Carries out a kfunc that only some ops may call.
    #[inline(always)]
    fn restricted<A>(
        &self,
        kfunc: &Restricted,
        carry_out: impl FnOnce(&Kernel<P, R>, &Cpu) -> A,
    ) -> A {
        self.ask(|kernel, c| match c.this.op.get() {
            Some(op) if kfunc.ops.has(op) => carry_out(kernel, c),
            _ => kernel.refuse(c, kfunc),
        })
    }

    /// Carries out a kfunc that looks at or changes what CPUs share: when it is this CPU's turn.
    #[inline(always)]
    fn shared<A>(&self, carry_out: impl FnOnce(&Kernel<P, R>, &Cpu) -> A) -> A {
        self.ask(|kernel, c| {
            kernel.sync(c);
            carry_out(kernel, c)
        })
    }

    /// Both of the latter.
    #[inline(always)]
    fn restricted_shared<A>(
        &self,
        kfunc: &Restricted,
        carry_out: impl FnOnce(&Kernel<P, R>, &Cpu) -> A,
    ) -> A {
        self.restricted(kfunc, |kernel, c| {
            kernel.sync(c);
            carry_out(kernel, c)
        })
    }
}

impl<P: Policy, R: Recorder> Service for Caller<'_, P, R> {
    fn sync(&self) {
        self.ask(|kernel, c| kernel.sync(c));
    }

    fn lock(&self, lock: PolicyLock, address: u64, class: LockClass) {
        self.ask(|kernel, c| {
            let lock = kernel.policy_lock(lock, address, class);
            if kernel.locks.holder(lock) == Some(c.id) {
                kernel.fault_of_call(
                    c,
                    format!(
                        "CPU {} takes a lock that it holds already (AA deadlock) in ops.{}",
                        c.id,
                        kernel.asking_op(c).name()
                    ),
                );
                return;
            }
            kernel.spin_lock(c, lock);
            c.held.take_policy();
        });
    }

    fn lock_unless_deadlock(&self, lock: PolicyLock, address: u64, class: LockClass) -> bool {
        self.shared(|kernel, c| {
            let lock = kernel.policy_lock(lock, address, class);
            if kernel.find_deadlock(c, lock).is_some() {
                return false;
            }
            kernel.spin_lock(c, lock);
            c.held.take_policy();
            true
        })
    }

    fn unlock(&self, lock: PolicyLock) {
        self.ask(|kernel, c| match kernel.locks.of_policy(lock) {
            Some(lock) if kernel.locks.holder(lock) == Some(c.id) => {
                c.held.release_policy();
                kernel.spin_unlock(c, lock);
            }
            _ => kernel.fault_of_call(
                c,
                format!(
                    "CPU {} releases a lock that it does not hold in ops.{}",
                    c.id,
                    kernel.asking_op(c).name()
                ),
            ),
        });
    }

    fn trylock(&self, lock: PolicyLock, address: u64, class: LockClass) -> bool {
        self.ask(|kernel, c| {
            let lock = kernel.policy_lock(lock, address, class);
            let taken = kernel.spin_trylock(c, lock);
            if taken {
                c.held.take_policy();
            }
            taken
        })
    }

    fn create_dsq(&self, dsq: DsqId, node: i32) -> i64 {
        self.restricted_shared(&CREATE_DSQ, |kernel, _| kernel.create_dsq(dsq, node))
    }

    fn destroy_dsq(&self, dsq: DsqId) {
        self.shared(|kernel, _| {
            if kernel.mutated(Mutation::DestroyedDsqKeepsId) {
                return;
            }
            if let Err(nr) = kernel.dsqs.destroy(dsq) {
                kernel.scx_error(format!(
                    "attempting to destroy in-use dsq {dsq:#018x} (nr={nr})"
                ));
            }
        });
    }

    // An insertion is recorded for this CPU alone until the op returns: no other CPU is concerned.

    fn dsq_insert(&self, task: TaskId, dsq: DsqId, slice: u64, enq_flags: u64) -> bool {
        self.restricted(&DSQ_INSERT, |kernel, c| {
            kernel.dsq_insert(c, kernel.task(task), dsq, slice, None, enq_flags)
        })
    }

    fn dsq_insert_vtime(
        &self,
        task: TaskId,
        dsq: DsqId,
        slice: u64,
        vtime: u64,
        enq_flags: u64,
    ) -> bool {
        self.restricted(&DSQ_INSERT, |kernel, c| {
            kernel.dsq_insert(c, kernel.task(task), dsq, slice, Some(vtime), enq_flags)
        })
    }

    fn dsq_move_to_local(&self, dsq: DsqId, enq_flags: u64) -> bool {
        self.restricted(&DSQ_MOVE_TO_LOCAL, |kernel, c| {
            kernel.dsq_move_to_local(c, dsq, enq_flags)
        })
    }

    fn dsq_nr_queued(&self, dsq: DsqId) -> i64 {
        self.shared(|kernel, c| kernel.dsq_nr_queued(c, dsq))
    }

    fn dsq_peek(&self, dsq: DsqId) -> Option<TaskId> {
        self.shared(|kernel, _| kernel.dsq_peek(dsq))
    }

    fn iter_new(&self, dsq: DsqId, flags: u64) -> Result<IterId, i64> {
        self.shared(|kernel, _| {
            if flags & !iter::USER_FLAGS != 0 {
                return Err(-errno::EINVAL);
            }
            match kernel.dsqs.find_user(dsq) {
                Some(index) => Ok(kernel.dsqs.iter_new(index, flags)),
                None => Err(-errno::ENOENT),
            }
        })
    }

    fn iter_next(&self, iter: IterId) -> Option<TaskId> {
        self.shared(|kernel, c| {
            let dsq = kernel.dsqs.iter_dsq(iter)?;
            let lock = kernel.dsq_lock(kernel.dsqs.get(dsq));
            kernel.spin_lock(c, lock);
            let task = kernel.dsqs.iter_next(&kernel.tasks, iter);
            if let Some(task) = task {
                kernel.read_line(c, kernel.task(task).line);
            }
            kernel.spin_unlock(c, lock);
            task
        })
    }

    fn iter_destroy(&self, iter: IterId) {
        self.shared(|kernel, _| kernel.dsqs.iter_destroy(iter));
    }

    fn move_set_slice(&self, iter: IterId, slice: u64) {
        self.restricted_shared(&MOVE_SET_SLICE, |kernel, _| {
            kernel.dsqs.iter_set_slice(iter, slice);
        });
    }

    fn move_set_vtime(&self, iter: IterId, vtime: u64) {
        self.restricted_shared(&MOVE_SET_VTIME, |kernel, _| {
            kernel.dsqs.iter_set_vtime(iter, vtime);
        });
    }

    fn dsq_move(&self, iter: IterId, task: TaskId, dsq: DsqId, enq_flags: u64, priq: bool) -> bool {
        self.restricted(&DSQ_MOVE, |kernel, c| {
            let priq = if priq { enq::DSQ_PRIQ } else { 0 };
            kernel.scx_dsq_move(c, iter, kernel.task(task), dsq, enq_flags | priq)
        })
    }

    fn dispatch_nr_slots(&self) -> i64 {
        self.restricted(&DISPATCH_NR_SLOTS, |kernel, c| {
            let used = c.dispatch.len() as i64;
            i64::from(kernel.ops.max_batch) - used
        })
    }

    fn dispatch_cancel(&self) {
        self.restricted(&DISPATCH_CANCEL, |kernel, c| {
            if !c.dispatch.cancel() {
                kernel.scx_error("dispatch buffer underflow".to_owned());
            }
        });
    }

    fn reenqueue(&self, dsq: DsqId, flags: u64) -> i64 {
        if self.kernel.version.has_immed() {
            return self.shared(|kernel, c| {
                kernel.dsq_reenq(c, dsq, flags);
                0
            });
        }
        // 6.18: scx_bpf_reenqueue_local(), at once.
        self.restricted_shared(&REENQUEUE_LOCAL, |kernel, c| {
            i64::from(kernel.reenq_local(c, c, reenq::ANY))
        })
    }

    fn kick(&self, cpu: i32, flags: u64) {
        self.shared(|kernel, c| {
            if kernel.cpu_valid(cpu, "") {
                kernel.scx_kick_cpu(c, CpuId(cpu as u32), flags);
            }
        });
    }

    fn cpuperf_set(&self, cpu: i32, perf: u32) {
        self.shared(|kernel, c| kernel.scx_cpuperf_set(c, cpu, perf));
    }

    fn select_cpu_dfl(&self, task: TaskId, prev_cpu: i32, wake_flags: u64) -> (i32, bool) {
        self.restricted_shared(&SELECT_CPU_DFL, |kernel, c| {
            let p = kernel.task(task);
            match kernel.select_cpu_from_kfunc(c, p, prev_cpu, wake_flags, None, 0) {
                cpu if cpu >= 0 => {
                    if kernel.mutated(Mutation::SelectKfuncInserts) {
                        p.scx.dispatch_to_local();
                    }
                    (cpu as i32, true)
                }
                _ => (prev_cpu, false),
            }
        })
    }

    fn select_cpu_and(
        &self,
        task: TaskId,
        prev_cpu: i32,
        wake_flags: u64,
        allowed: CpuSet,
        flags: u64,
    ) -> i64 {
        self.restricted_shared(&SELECT_CPU_AND, |kernel, c| {
            let p = kernel.task(task);
            let allowed =
                Some(&allowed).filter(|_| !kernel.mutated(Mutation::SelectAndIgnoresMask));
            kernel.select_cpu_from_kfunc(c, p, prev_cpu, wake_flags, allowed, flags)
        })
    }

    fn test_and_clear_idle(&self, cpu: i32) -> bool {
        self.shared(|kernel, _| {
            kernel.check_builtin_idle_enabled()
                && kernel.cpu_valid(cpu, "")
                && kernel.idle.borrow_mut().test_and_clear(CpuId(cpu as u32))
        })
    }

    fn pick_cpu(&self, allowed: CpuSet, node: Option<i32>, flags: u64, any: bool) -> i64 {
        self.shared(|kernel, c| kernel.pick_cpu(c, &allowed, node, flags, any))
    }

    fn idle_mask(&self, node: Option<i32>, smt: bool) -> CpuSet {
        self.shared(|kernel, _| kernel.idle_mask(node, smt))
    }

    fn online_mask(&self) -> CpuSet {
        self.shared(|kernel, _| kernel.online_mask())
    }

    fn task_facts(&self, task: TaskId) -> TaskFacts {
        self.kernel.task_facts(task)
    }

    fn nr_running(&self, cpu: CpuId, of_scx: bool) -> i64 {
        let rq = self.kernel.cpu(cpu);
        i64::from(match of_scx {
            true => rq.scx.nr_running(),
            false => rq.nr_running(),
        })
    }

    fn task_running(&self, task: TaskId) -> bool {
        self.shared(|kernel, _| {
            let cpu = kernel.task(task).cpu();
            kernel.cpu(cpu).curr() == Some(task)
        })
    }

    fn task_cpu(&self, task: TaskId) -> i64 {
        self.shared(|kernel, _| i64::from(kernel.task(task).cpu().0))
    }

    fn cpu_curr(&self, cpu: i32) -> Option<TaskId> {
        self.shared(|kernel, _| {
            if kernel.cpu_valid(cpu, "") {
                kernel.cpu(CpuId(cpu as u32)).curr()
            } else {
                None
            }
        })
    }

    fn own_task(&self) -> Option<TaskId> {
        self.cpu.curr()
    }

    fn locked_rq(&self) -> i64 {
        self.cpu.op.locked_rq().map_or(-1, |cpu| i64::from(cpu.0))
    }

    fn task_from_pid(&self, pid: i32) -> Option<TaskId> {
        self.shared(|kernel, _| kernel.task_from_pid(pid))
    }

    fn task_set_slice(&self, task: TaskId, slice: u64) -> bool {
        self.shared(|kernel, _| {
            let on_sched = kernel.task_on_sched(kernel.task(task));
            if on_sched {
                kernel.policy.set_slice(task, slice);
            }
            on_sched
        })
    }

    fn task_set_vtime(&self, task: TaskId, vtime: u64) -> bool {
        self.shared(|kernel, _| {
            let on_sched = kernel.task_on_sched(kernel.task(task));
            if on_sched {
                kernel.policy.set_vtime(task, vtime);
            }
            on_sched
        })
    }

    fn timer_start(&self, timer: TimerId, ns: u64, flags: u64) -> i64 {
        self.shared(|kernel, c| kernel.timer_start(c, timer, ns, flags))
    }

    fn timer_cancel(&self, timer: TimerId) -> i64 {
        self.shared(|kernel, _| i64::from(kernel.cancel_timer(Timer::Policy(timer))))
    }

    fn error(&self, message: String) {
        self.shared(|kernel, _| kernel.exit_with(ExitKind::ErrorBpf, 0, message));
    }

    fn violation(&self, message: String) {
        self.shared(|kernel, _| kernel.scx_error(message));
    }

    fn exit_policy(&self, code: i64, message: String) {
        self.shared(|kernel, _| {
            let code = if kernel.mutated(Mutation::ExitCodeLost) {
                0
            } else {
                code
            };
            kernel.exit_with(ExitKind::UnregBpf, code, message);
        });
    }

    fn fault(&self, message: String) -> ! {
        self.kernel.policy_fault(message);
        self.kernel.give_up()
    }
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// Whether ops are called while the run stops: those that unload the policy are.
    #[inline(never)]
    fn still_calls_ops(&self) -> bool {
        self.life.is_alone() && !self.life.is_policy_dead()
    }

    /// Ends the run if the op under way on `c` goes on for longer than any task may wait, or asks for
    /// more than a program can: it would never return.
    #[inline(always)]
    fn bound_op(&self, c: &Cpu) {
        if c.op.asks_too_much(c.this.now.get()) {
            self.end_unbounded_op(c);
        }
    }

    #[cold]
    fn end_unbounded_op(&self, c: &Cpu) -> ! {
        let how = if c.op.is_late(c.this.now.get()) {
            let bound_ms = self.ops.timeout_ns / 1_000_000;
            format!("has not returned after {bound_ms} ms, the watchdog's bound")
        } else {
            format!(
                "called kfuncs, took locks or accessed shared words (atomics, READ_ONCE()) more than {BPF_MAX_LOOPS} times, more than any loop may go round"
            )
        };
        let kind = self.asking_op(c);
        self.fault_of_call(c, format!("ops.{} {how} (CPU {})", kind.name(), c.id));
        self.give_up()
    }

    /// Policy code broke in a way that leaves it unusable: the run stops.
    pub(crate) fn policy_fault(&self, message: String) {
        self.exit_with(ExitKind::Fault, 0, message);
        self.life.policy_dies();
    }

    /// The same, by the call that is under way on `c`: its line comes first.
    #[cold]
    fn fault_of_call(&self, c: &Cpu, message: String) {
        let place = self.policy.place_of_call(&c.this);
        self.policy_fault(match place.and_then(|place| place.line) {
            Some(line) => format!("{line}: {message}"),
            None => message,
        });
    }

    /// Calls an op that is not called at every switch.
    #[inline(never)]
    pub(crate) fn call_rare_op(&self, c: &Cpu, op: OpCall) -> i64 {
        self.call_op(c, op)
    }

    /// Calls one under the lock of `rq`.
    #[inline(never)]
    pub(crate) fn call_rare_op_on(&self, c: &Cpu, rq: &Cpu, op: OpCall) -> i64 {
        self.call_op_on(c, rq, op)
    }

    /// Calls an op under the lock of `rq` (`SCX_CALL_OP()`). Returns what it returns.
    #[inline(always)]
    pub(crate) fn call_op_on(&self, c: &Cpu, rq: &Cpu, op: OpCall) -> i64 {
        self.call_op_under(c, Some(rq.id), op)
    }

    /// Calls an op. Returns what it returns.
    #[inline(always)]
    pub(crate) fn call_op(&self, c: &Cpu, op: OpCall) -> i64 {
        self.call_op_under(c, None, op)
    }

    /// Calls an op, under the lock of a run queue if one is given. Inlined, so that the policy's side need
    /// not find out which op it is.
    #[inline(always)]
    fn call_op_under(&self, c: &Cpu, rq: Option<CpuId>, op: OpCall) -> i64 {
        if c.this.op.get().is_some() {
            return self.call_nested_op(c, rq, op);
        }
        if self.life.restrains_ops() && !self.still_calls_ops() {
            return 0;
        }
        self.call_outer_op(c, rq, op)
    }

    /// Calls an op of a task's coming or going, even while the run stops: the policy gets both calls or neither.
    #[inline(never)]
    pub(crate) fn call_life_op(&self, c: &Cpu, rq: Option<CpuId>, op: OpCall) -> i64 {
        if self.life.is_policy_dead() {
            0
        } else if c.this.op.get().is_some() {
            self.call_nested_op(c, rq, op)
        } else {
            self.call_outer_op(c, rq, op)
        }
    }

    /// Calls an op while no other one is under way on `c`.
    #[inline(always)]
    fn call_outer_op(&self, c: &Cpu, rq: Option<CpuId>, op: OpCall) -> i64 {
        self.enter_sched_mode(c);
        // An instant and at most 50 days: that does not wrap.
        let deadline = c.this.now.get().wrapping_add(self.ops.timeout_ns);
        c.op.begin(deadline, rq);
        c.this.op.set(Some(op.kind()));
        let result = self.with_env(c, |env| self.policy.call(env, &op));
        if c.held.policy() != 0 {
            self.end_op_with_locks(c, 0);
        }
        c.op.end(rq);
        c.this.op.set(None);
        result
    }

    /// Calls an op while the one under way on `c` waits for what it has asked for.
    #[inline(never)]
    fn call_nested_op(&self, c: &Cpu, rq: Option<CpuId>, op: OpCall) -> i64 {
        if self.life.is_policy_dead() {
            return 0;
        }
        self.enter_sched_mode(c);
        let held = c.held.policy();
        let outer = c.this.op.replace(Some(op.kind()));
        let locked = c.op.begin_nested(outer, rq);
        let result = self.with_env(c, |env| self.policy.call_nested(env, &op));
        if c.held.policy() != held {
            self.end_op_with_locks(c, held);
        }
        c.op.end_nested(locked);
        c.this.op.set(outer);
        result
    }

    /// The part that policy code on `c` reaches.
    #[inline(always)]
    fn with_env<A>(&self, c: &Cpu, call: impl FnOnce(&Env<'_>) -> A) -> A {
        let caller = Caller {
            kernel: self,
            cpu: c,
        };
        call(&Env {
            cpu: &c.this,
            shared: &self.shared,
            horizon: self.horizon(),
            kernel: &caller,
        })
    }

    #[inline(always)]
    fn enter_sched_mode(&self, c: &Cpu) {
        if c.mode() != CpuMode::Sched {
            self.change_to_sched_mode(c);
        }
    }

    #[inline(never)]
    fn change_to_sched_mode(&self, c: &Cpu) {
        self.set_mode(c, CpuMode::Sched);
    }

    /// The op under way on `c` does not return with as many locks as it began with.
    #[cold]
    fn end_op_with_locks(&self, c: &Cpu, began_with: u32) -> ! {
        self.policy_fault(match c.held.policy().checked_sub(began_with) {
            Some(nr) => self.policy.describe_held_locks(&c.this, nr),
            None => self.policy.describe_released_lock(&c.this),
        });
        self.give_up()
    }

    /// The op under way ends where it is: its CPU is never resumed.
    #[cold]
    fn give_up(&self) -> ! {
        loop {
            self.pause();
        }
    }

    /// The op that asks now.
    #[inline]
    fn asking_op(&self, c: &Cpu) -> OpKind {
        c.this.op.get().expect("requests come from ops")
    }

    /// Ends the run: the op may not call this kfunc.
    #[cold]
    fn refuse(&self, c: &Cpu, kfunc: &Restricted) -> ! {
        let op = self.asking_op(c);
        let who = match self.version.has_context_filter() {
            true => "the kernel's verifier",
            false => "the kernel",
        };
        self.fault_of_call(
            c,
            format!(
                "ops.{} called {}(), which {who} refuses there; allowed in: {}",
                op.name(),
                kfunc.name,
                kfunc.allowed_in()
            ),
        );
        self.give_up()
    }

    fn policy_lock(&self, lock: PolicyLock, address: u64, class: LockClass) -> LockIx {
        self.locks.of_policy(lock).unwrap_or_else(|| {
            let new = self.new_lock(address, &format!("policy lock {}", lock.0), class);
            self.locks.set_of_policy(lock, new);
            new
        })
    }

    /// `scx_task_on_sched()`: from when ops.init_task() has returned until ops.exit_task() has.
    #[inline]
    fn task_on_sched(&self, p: &Task) -> bool {
        let is_nobodys = matches!(p.scx.state(), ScxState::None | ScxState::Dead);
        !(is_nobodys && self.version.has_sub_schedulers())
    }

    /// `scx_cpu_valid()`; `place` says where the number came from.
    #[inline]
    pub(crate) fn cpu_valid(&self, cpu: i32, place: &str) -> bool {
        let valid = usize::try_from(cpu).is_ok_and(|cpu| cpu < self.cpus.len());
        if !valid {
            self.cpu_invalid(cpu, place);
        }
        valid
    }

    #[cold]
    fn cpu_invalid(&self, cpu: i32, place: &str) {
        let space = if place.is_empty() { "" } else { " " };
        self.scx_error(format!("invalid CPU {cpu}{space}{place}"));
    }

    fn create_dsq(&self, dsq: u64, node: i32) -> i64 {
        if node < crate::contract::consts::NUMA_NO_NODE || node >= self.nr_nodes as i32 {
            return -errno::EINVAL;
        }
        match self.dsqs.create(dsq) {
            Ok(_) => 0,
            Err(errno) => errno,
        }
    }

    /// The fields of a task that policies may read.
    fn task_facts(&self, task: TaskId) -> TaskFacts {
        let p = self.task(task);
        // include/linux/sched.h
        let state = match p.state() {
            TaskState::Running => 0,
            TaskState::Blocked => 1,
            TaskState::Dead => 0x80,
            TaskState::Waking => 0x200,
            TaskState::New => 0x800,
        };
        TaskFacts {
            sum_exec_ns: p.sum_exec_ns(),
            state,
            on_cpu: p.on_cpu(),
            on_rq: match p.on_rq() {
                OnRq::No => 0,
                OnRq::Queued => 1,
                OnRq::Migrating => 2,
            },
            dsq: match p.dsq() {
                NIL => None,
                index if self.is_local(index) => {
                    let local = &self.cpu(CpuId(index)).local;
                    Some((local.id(), local.nr()))
                }
                index => {
                    let dsq = self.dsqs.get(index);
                    Some((dsq.id(), dsq.nr()))
                }
            },
            ddsp_dsq_id: p.scx.ddsp_dsq_id(),
            ddsp_enq_flags: p.scx.ddsp_enq_flags(),
            runnable_at: p.scx.runnable_at(),
            ..p.account.facts(self.costs.tick_period_ns)
        }
    }

    /// `scx_bpf_dsq_peek()`.
    fn dsq_peek(&self, dsq: u64) -> Option<TaskId> {
        if dsq & dsq_id::FLAG_BUILTIN != 0 {
            self.scx_error(format!("peek disallowed on builtin DSQ {dsq:#x}"));
            return None;
        }
        let dsqs = &self.dsqs;
        match dsqs.find_user(dsq) {
            Some(index) if self.mutated(Mutation::PeekShowsTail) => {
                let queue = dsqs.get(index);
                let next = |&task: &TaskId| queue.next(&self.task(task).node);
                std::iter::successors(queue.first(), next).last()
            }
            Some(index) => dsqs.get(index).first(),
            None => {
                self.scx_error(format!("peek on non-existent DSQ {dsq:#x}"));
                None
            }
        }
    }

    /// `scx_bpf_dsq_nr_queued()`.
    fn dsq_nr_queued(&self, c: &Cpu, id: u64) -> i64 {
        if id == dsq_id::LOCAL {
            let locked = c.op.locked_rq();
            let rq = locked.filter(|_| self.version.counts_local_of_locked_rq());
            i64::from(self.cpu(rq.unwrap_or(c.id)).local.nr())
        } else if dsq_id::is_local_on(id) {
            let cpu = (id & dsq_id::LOCAL_CPU_MASK) as i32;
            if self.cpu_valid(cpu, "") {
                i64::from(self.cpu(CpuId(cpu as u32)).local.nr())
            } else {
                -errno::ENOENT
            }
        } else {
            match self.dsqs.find_user(id) {
                Some(index) => i64::from(self.dsqs.get(index).nr()),
                None => -errno::ENOENT,
            }
        }
    }

    /// `scx_vet_enq_flags()`: adds what the ops flags imply, or refuses.
    #[inline]
    pub(crate) fn vet_enq_flags(&self, dsq: u64, enq_flags: u64) -> Option<u64> {
        if enq_flags & enq::IMMED == 0 && !self.has_flag(ops::ALWAYS_ENQ_IMMED) {
            return Some(enq_flags);
        }
        self.vet_immed(dsq, enq_flags)
    }

    #[inline(never)]
    fn vet_immed(&self, dsq: u64, enq_flags: u64) -> Option<u64> {
        let is_local = dsq == dsq_id::LOCAL || dsq_id::is_local_on(dsq);
        if enq_flags & enq::IMMED != 0 {
            if !self.version.has_immed() {
                // A bit without a meaning there.
                return Some(enq_flags & !enq::IMMED);
            }
            if !is_local {
                self.scx_error(format!("SCX_ENQ_IMMED on a non-local DSQ {dsq:#x}"));
                return None;
            }
        } else if is_local {
            return Some(enq_flags | enq::IMMED);
        }
        Some(enq_flags)
    }

    /// `scx_bpf_dsq_insert()` and, with `vtime`, `scx_bpf_dsq_insert_vtime()`.
    #[inline(always)]
    fn dsq_insert(
        &self,
        c: &Cpu,
        p: &Task,
        dsq: u64,
        slice: u64,
        vtime: Option<u64>,
        enq_flags: u64,
    ) -> bool {
        let unusual = enq_flags & (enq::INTERNAL_MASK | enq::IMMED) != 0;
        if unusual || self.has_flag(ops::ALWAYS_ENQ_IMMED) {
            return self.vet_and_insert(c, p, dsq, slice, vtime, enq_flags);
        }
        let on_sched = self.task_on_sched(p);
        if on_sched {
            self.insert_vetted(c, p, dsq, slice, vtime, enq_flags);
        }
        on_sched
    }

    /// `scx_dsq_insert_preamble()` of flags that may be refused or not be all, and what follows it.
    #[inline(never)]
    fn vet_and_insert(
        &self,
        c: &Cpu,
        p: &Task,
        dsq: u64,
        slice: u64,
        vtime: Option<u64>,
        enq_flags: u64,
    ) -> bool {
        if enq_flags & enq::INTERNAL_MASK != 0 {
            self.scx_error(format!("invalid enq_flags {enq_flags:#x}"));
            return false;
        }
        if !self.task_on_sched(p) {
            return false;
        }
        let Some(enq_flags) = self.vet_enq_flags(dsq, enq_flags) else {
            return false;
        };
        self.insert_vetted(c, p, dsq, slice, vtime, enq_flags);
        true
    }

    #[inline(always)]
    fn insert_vetted(
        &self,
        c: &Cpu,
        p: &Task,
        dsq: u64,
        slice: u64,
        vtime: Option<u64>,
        enq_flags: u64,
    ) {
        let slice = match slice {
            0 => self.slice(p).max(1),
            slice => slice,
        };
        match vtime {
            Some(vtime) => {
                self.policy.set_slice_and_vtime(p.id, slice, vtime);
                self.commit_insertion(c, p, dsq, enq_flags | enq::DSQ_PRIQ);
            }
            None => {
                self.set_slice(p, slice);
                self.commit_insertion(c, p, dsq, enq_flags);
            }
        }
    }

    /// `scx_dsq_insert_commit()`.
    #[inline(always)]
    fn commit_insertion(&self, c: &Cpu, p: &Task, dsq: u64, enq_flags: u64) {
        match c.op.mark_direct_dispatch(p.id) {
            Insertion::Direct => {
                let prev_local = self.mutated(Mutation::LocalIsThatOfPrevCpu)
                    && dsq == dsq_id::LOCAL
                    && c.op.is_select();
                let dsq = if prev_local {
                    dsq_id::LOCAL_ON | u64::from(p.cpu().0)
                } else {
                    dsq
                };
                p.scx.dispatch_directly(dsq, enq_flags);
            }
            Insertion::Buffered => self.buffer_insertion(c, p, dsq, enq_flags),
            Insertion::Again if self.mutated(Mutation::SecondInsertIgnored) => {}
            Insertion::Again => self.refuse_direct_dispatch(p, None),
            Insertion::Other(task) => self.refuse_direct_dispatch(p, Some(task)),
        }
    }

    /// An insertion is carried out when the op returns.
    #[inline(never)]
    fn buffer_insertion(&self, c: &Cpu, p: &Task, dsq: u64, enq_flags: u64) {
        let entry = Entry {
            task: p.id,
            // 0 for a task that the policy does not own: matches nothing.
            qseq: match p.scx.ops_state() {
                OpsState::Queueing | OpsState::Queued => p.scx.qseq(),
                OpsState::None | OpsState::Dispatching => 0,
            },
            dsq,
            enq_flags,
        };
        if !c.dispatch.push(self.ops.max_batch, entry) {
            self.scx_error("dispatch buffer overflow".to_owned());
        }
    }

    /// `p` is not dispatched directly: the op is about the task `about`, or one has been dispatched already.
    #[cold]
    fn refuse_direct_dispatch(&self, p: &Task, about: Option<TaskId>) {
        let label = p.label();
        self.scx_error(match about {
            Some(task) => format!(
                "scheduling for {} but trying to direct-dispatch {label}",
                self.task(task).label()
            ),
            None => format!("{label} already direct-dispatched"),
        });
    }

    fn task_from_pid(&self, pid: i32) -> Option<TaskId> {
        let id = TaskId::from_pid(u32::try_from(pid).ok()?)?;
        let p = self.tasks.get(id)?;
        // An exiting task is unhashed; see SCX_OPS_ENQ_EXITING.
        let known = p.state() != crate::state::task::TaskState::New && !p.is_exiting();
        known.then_some(id)
    }

    /// `bpf_timer_start()`: expires on the CPU that starts it.
    fn timer_start(&self, c: &Cpu, timer: TimerId, ns: u64, flags: u64) -> i64 {
        let now = c.this.now.get();
        let at = if flags & BPF_F_TIMER_ABS != 0 {
            ns.max(now)
        } else {
            now.saturating_add(ns)
        };
        self.set_timer(Timer::Policy(timer), c.id, at);
        0
    }

    /// Calls back the policy's timers that have expired on `c`.
    pub(crate) fn policy_timers_expired(&self, c: &Cpu) {
        while let Some(timer) = c.expired.pop_policy() {
            let mode = self.set_mode(c, CpuMode::Sched);
            self.call_rare_op(c, OpCall::TimerCallback { timer });
            self.set_mode(c, mode);
        }
    }

    /// Tells the policy's side what it must know of a task.
    pub(crate) fn sync_task(&self, p: &Task) {
        let affinity = p.affinity.borrow();
        let flags = if p.is_exiting() {
            crate::contract::consts::pf::EXITING
        } else {
            0
        } | if p.address_space.is_none() {
            crate::contract::consts::pf::KTHREAD
        } else {
            0
        };
        let view = TaskView {
            comm: &p.origin.comm,
            tgid: p.origin.tgid,
            parent: p.origin.parent,
            nice: p.attributes().nice,
            class: p.attributes().policy,
            prio: p.prio(),
            weight: p.scx.weight(),
            allowed: affinity.as_ref().unwrap_or(self.online.possible()),
            address_space: p.address_space,
            flags,
            migration_disabled: false,
            cgroup: p.cgroup(),
        };
        self.policy.sync_task(p.id, &view);
    }

    /// `p->scx.slice`.
    pub(crate) fn slice(&self, p: &Task) -> u64 {
        self.policy.slice(p.id)
    }

    pub(crate) fn set_slice(&self, p: &Task, slice: u64) {
        self.policy.set_slice(p.id, slice);
    }

    /// `refill_task_slice_dfl()`.
    pub(crate) fn refill_slice(&self, p: &Task) {
        self.set_slice(p, crate::contract::consts::SLICE_DFL);
    }
}

/// `SCX_KICK_*` flags that go together.
pub(crate) fn kick_flags_conflict(flags: u64) -> bool {
    flags & kick::IDLE != 0 && flags & (kick::PREEMPT | kick::WAIT) != 0
}
