//! Calling the policy's ops and carrying out what they ask for.
//!
//! An op runs on its CPU's fiber; what it asks for comes back here ([`Caller`]). Requests of others
//! take effect in the order of virtual time: the CPU waits for its turn first. A request of
//! `ops.dispatch()` can itself call an op (`ops.dequeue()` where a task leaves the policy's custody):
//! that one is nested, and may ask only for what calls no further op.
//!
//! Costs: the virtual kernel charges `op_ns` for each op and `kfunc_ns` for each request that is a
//! kfunc or helper. What the policy's side answers by itself it charges itself.

use schedlab_fiber::Switch;
use schedlab_trace::{CpuId, CpuMode, Recorder, TaskId};

use crate::consts::{BPF_MAX_LOOPS, dsq_id, enq, errno, iter, kick, ops, reenq};
use crate::cpu::{Cpu, DirectDispatch, DispatchEntry};
use crate::event_queue::Timer;
use crate::kernel::Kernel;
use crate::mutation::Mutation;
use crate::op_context::{op_name, refused_in};
use crate::outcome::ExitKind;
use crate::policy::{
    Env, OpCall, OpKind, Policy, PolicyLock, Reply, Request, Service, TaskView, TimerId,
};
use crate::task::{OpsState, Task};

/// An op's way back into the virtual kernel.
struct Caller<'k, P, R> {
    kernel: &'k Kernel<P, R>,
    cpu: &'k Cpu,
}

impl<P: Policy, R: Recorder> Service for Caller<'_, P, R> {
    fn ask(&self, request: Request) -> Reply {
        let (kernel, c) = (self.kernel, self.cpu);
        kernel.bound_op(c);
        if kernel.policy_dead.get() {
            kernel.give_up();
        }
        let reply = kernel.carry_out(c, request);
        if kernel.policy_dead.get() {
            kernel.give_up();
        }
        reply
    }

    fn fault(&self, message: String) -> ! {
        self.kernel.policy_fault(message);
        self.kernel.give_up()
    }

    fn switch(&self) -> &Switch {
        &self.kernel.switch
    }
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// Whether ops are called at all.
    fn ops_callable(&self, c: &Cpu) -> bool {
        !self.policy_dead.get()
            && (!self.stopping.get() || self.alone.get() || c.op.get().is_some())
    }

    fn end_op(&self, c: &Cpu) {
        if c.nested_op.take().is_none() {
            let kind = c.op.take();
            self.ops_under_way.set(self.ops_under_way.get() - 1);
            if c.held.policy.get() > 0 && !self.policy_dead.get() {
                self.policy_fault(format!(
                    "ops.{} returned on CPU {} with {} of the policy's locks held",
                    kind.map_or("?", op_name),
                    c.id,
                    c.held.policy.get()
                ));
            }
        }
    }

    /// Ends the run if the op under way on `c` goes on for longer than any task may wait, or asks for
    /// more than a program can: it would never return.
    fn bound_op(&self, c: &Cpu) {
        c.op_requests.set(c.op_requests.get() + 1);
        let ran_ns = c.now.get() - c.op_began.get();
        let bound_ms = u64::from(self.ops.timeout_ms);
        let how = if ran_ns > bound_ms * 1_000_000 {
            format!("has not returned after {bound_ms} ms, the watchdog's bound")
        } else if c.op_requests.get() > BPF_MAX_LOOPS {
            format!(
                "called the kernel more than {BPF_MAX_LOOPS} times, more than any loop may go round"
            )
        } else {
            return;
        };
        let kind = self.asking_op(c);
        self.policy_fault(format!("ops.{} {how} (CPU {})", op_name(kind), c.id));
    }

    /// Policy code broke in a way that leaves it unusable.
    pub(crate) fn policy_fault(&self, message: String) {
        self.exit_with(ExitKind::Fault, 0, message);
        self.policy_dead.set(true);
    }

    /// Calls an op. Returns what it returns.
    pub(crate) fn call_op(&self, c: &Cpu, op: OpCall) -> i64 {
        if !self.ops_callable(c) {
            return 0;
        }
        let kind = op.kind();
        self.set_mode(c, CpuMode::Sched);
        self.charge(c, self.machine.sched_ext.op_ns);
        if c.op.get().is_none() {
            c.op.set(Some(kind));
            c.op_began.set(c.now.get());
            c.op_requests.set(0);
            self.ops_under_way.set(self.ops_under_way.get() + 1);
        } else {
            debug_assert!(c.nested_op.get().is_none(), "ops nest once");
            c.nested_op.set(Some(kind));
        }
        let caller = Caller {
            kernel: self,
            cpu: c,
        };
        let env = Env {
            cpu: c.id,
            now: &c.now,
            carry_ps: &c.carry_ps,
            horizon: &self.horizon,
            path: c.lock_path.get(),
            machine: &self.machine,
            cache: &self.cache,
            probes: &c.probes,
            random: &self.policy_random,
            kernel: &caller,
        };
        let result = self.policy.call(&env, &op);
        self.end_op(c);
        if self.policy_dead.get() {
            // A lock held on return.
            self.give_up();
        }
        result
    }

    /// The op under way ends where it is: its CPU is never resumed.
    fn give_up(&self) -> ! {
        loop {
            self.switch.suspend();
        }
    }

    /// The op that asks now.
    fn asking_op(&self, c: &Cpu) -> OpKind {
        c.nested_op
            .get()
            .or(c.op.get())
            .expect("requests come from ops")
    }

    /// Ends the run if the op under way may not call this kfunc.
    fn refuse(&self, c: &Cpu, request: &Request) -> bool {
        let op = self.asking_op(c);
        match refused_in(op, request) {
            None => false,
            Some(kfunc) => {
                self.policy_fault(format!(
                    "ops.{} called {kfunc}(), which the kernel's verifier refuses there",
                    op_name(op)
                ));
                true
            }
        }
    }

    /// Carries out a request.
    fn carry_out(&self, c: &Cpu, request: Request) -> Reply {
        match request {
            Request::Sync => {
                self.sync(c);
                return Reply::Done;
            }
            Request::Lock {
                lock,
                address,
                class,
            } => {
                let lock = self.policy_lock(lock, address, class);
                if self.locks.borrow().holder(lock) == Some(c.id) {
                    self.policy_fault(format!(
                        "CPU {} takes a lock that it holds already (AA deadlock) in ops.{}",
                        c.id,
                        op_name(self.asking_op(c))
                    ));
                    return Reply::Done;
                }
                self.spin_lock(c, lock);
                c.held.policy.set(c.held.policy.get() + 1);
                return Reply::Done;
            }
            Request::TryLock {
                lock,
                address,
                class,
            } => {
                let lock = self.policy_lock(lock, address, class);
                let taken = self.spin_trylock(c, lock);
                if taken {
                    c.held.policy.set(c.held.policy.get() + 1);
                }
                return Reply::Bool(taken);
            }
            Request::Unlock { lock } => {
                let known = self
                    .policy_locks
                    .borrow()
                    .get(lock.0 as usize)
                    .copied()
                    .flatten();
                match known {
                    Some(lock) if self.locks.borrow().holder(lock) == Some(c.id) => {
                        c.held.policy.set(c.held.policy.get() - 1);
                        self.spin_unlock(c, lock);
                    }
                    _ => self.policy_fault(format!(
                        "CPU {} releases a lock that it does not hold in ops.{}",
                        c.id,
                        op_name(self.asking_op(c))
                    )),
                }
                return Reply::Done;
            }
            _ => {}
        }
        if self.refuse(c, &request) {
            return Reply::Done;
        }
        self.charge(c, self.machine.sched_ext.kfunc_ns);
        match request {
            Request::DsqInsert {
                task,
                dsq,
                slice,
                vtime,
                enq_flags,
            } => {
                // Recorded for this CPU alone until the op returns: no other CPU is concerned.
                let inserted = self.dsq_insert(c, self.task(task), dsq, slice, vtime, enq_flags);
                Reply::Bool(inserted)
            }
            Request::DispatchNrSlots => {
                let used = c.dispatch_buf.borrow().len() as i64;
                Reply::Int(i64::from(self.ops.max_batch) - used)
            }
            Request::DispatchCancel => {
                if c.dispatch_buf.borrow_mut().pop().is_none() {
                    self.scx_error("dispatch buffer underflow".to_owned());
                }
                Reply::Done
            }
            Request::DsqMoveToLocal { dsq, enq_flags } => {
                Reply::Bool(self.dsq_move_to_local(c, dsq, enq_flags))
            }
            Request::DsqMove {
                iter,
                task,
                dsq,
                enq_flags,
                priq,
            } => {
                let enq_flags = if priq {
                    enq_flags | enq::DSQ_PRIQ
                } else {
                    enq_flags
                };
                Reply::Bool(self.scx_dsq_move(c, iter, self.task(task), dsq, enq_flags))
            }
            request => {
                self.sync(c);
                self.carry_out_shared(c, request)
            }
        }
    }

    /// Requests that look at or change what CPUs share. It is this CPU's turn.
    fn carry_out_shared(&self, c: &Cpu, request: Request) -> Reply {
        match request {
            Request::CreateDsq { dsq, node } => Reply::Int(self.create_dsq(dsq, node)),
            Request::DestroyDsq { .. } if self.mutated(Mutation::DestroyedDsqKeepsId) => {
                Reply::Done
            }
            Request::DestroyDsq { dsq } => {
                if let Err(nr) = self.dsqs.borrow_mut().destroy(dsq) {
                    self.scx_error(format!(
                        "attempting to destroy in-use dsq {dsq:#018x} (nr={nr})"
                    ));
                }
                Reply::Done
            }
            Request::DsqNrQueued { dsq } => Reply::Int(self.dsq_nr_queued(c, dsq)),
            Request::DsqPeek { dsq } => {
                if dsq & dsq_id::FLAG_BUILTIN != 0 {
                    self.scx_error(format!("peek disallowed on builtin DSQ {dsq:#x}"));
                    return Reply::Task(None);
                }
                let dsqs = self.dsqs.borrow();
                match dsqs.find_user(dsq) {
                    Some(index) if self.mutated(Mutation::PeekShowsTail) => {
                        let first = dsqs.get(index).first();
                        Reply::Task(
                            std::iter::successors(first, |&task| dsqs.next(index, task)).last(),
                        )
                    }
                    Some(index) => Reply::Task(dsqs.get(index).first()),
                    None => {
                        self.scx_error(format!("peek on non-existent DSQ {dsq:#x}"));
                        Reply::Task(None)
                    }
                }
            }
            Request::IterNew { dsq, flags } => {
                if flags & !iter::USER_FLAGS != 0 {
                    return Reply::Int(-errno::EINVAL);
                }
                let mut dsqs = self.dsqs.borrow_mut();
                match dsqs.find_user(dsq) {
                    Some(index) => Reply::Iter(dsqs.iter_new(index, flags)),
                    None => Reply::Int(-errno::ENOENT),
                }
            }
            Request::IterNext { iter } => {
                let Some(dsq) = self.dsqs.borrow().iter_dsq(iter) else {
                    return Reply::Task(None);
                };
                let lock = self.dsq_lock(dsq);
                self.spin_lock(c, lock);
                let task = self.dsqs.borrow_mut().iter_next(iter);
                if let Some(task) = task {
                    self.read_line(c, self.task(task).line);
                }
                self.spin_unlock(c, lock);
                Reply::Task(task)
            }
            Request::IterDestroy { iter } => {
                self.dsqs.borrow_mut().iter_destroy(iter);
                Reply::Done
            }
            Request::MoveSetSlice { iter, slice } => {
                self.dsqs.borrow_mut().iter_set_slice(iter, slice);
                Reply::Done
            }
            Request::MoveSetVtime { iter, vtime } => {
                self.dsqs.borrow_mut().iter_set_vtime(iter, vtime);
                Reply::Done
            }
            // 6.18: scx_bpf_reenqueue_local(), at once, only in ops.cpu_release().
            Request::Reenqueue { .. } if !self.version.has_immed() => {
                Reply::Int(i64::from(self.reenq_local(c, c, reenq::ANY)))
            }
            Request::Reenqueue { dsq, flags } => self.dsq_reenq(c, dsq, flags),
            Request::Kick { cpu, flags } => {
                if self.cpu_valid(cpu, "") {
                    self.scx_kick_cpu(c, CpuId(cpu as u32), flags);
                }
                Reply::Done
            }
            Request::SelectCpuDfl {
                task,
                prev_cpu,
                wake_flags,
            } => {
                let p = self.task(task);
                match self.select_cpu_from_kfunc(c, p, prev_cpu, wake_flags, None, 0) {
                    cpu if cpu >= 0 => {
                        if self.mutated(Mutation::SelectKfuncInserts) {
                            p.ddsp_dsq_id.set(dsq_id::LOCAL);
                        }
                        Reply::Cpu(cpu as i32, true)
                    }
                    _ => Reply::Cpu(prev_cpu, false),
                }
            }
            Request::SelectCpuAnd {
                task,
                prev_cpu,
                wake_flags,
                allowed,
                flags,
            } => {
                let p = self.task(task);
                let allowed =
                    Some(&allowed).filter(|_| !self.mutated(Mutation::SelectAndIgnoresMask));
                Reply::Int(self.select_cpu_from_kfunc(c, p, prev_cpu, wake_flags, allowed, flags))
            }
            Request::TestAndClearIdle { cpu } => {
                if !self.check_builtin_idle_enabled() || !self.cpu_valid(cpu, "") {
                    return Reply::Bool(false);
                }
                let cpu = CpuId(cpu as u32);
                Reply::Bool(self.idle.borrow_mut().test_and_clear(cpu))
            }
            Request::PickCpu {
                allowed,
                node,
                flags,
                any,
            } => Reply::Int(self.pick_cpu(c, &allowed, node, flags, any)),
            Request::IdleMask { node, smt } => Reply::Mask(self.idle_mask(node, smt)),
            Request::OnlineMask => Reply::Mask(self.online.borrow().clone()),
            Request::TaskRunning { task } => {
                let p = self.task(task);
                Reply::Bool(self.cpu(p.cpu.get()).curr.get() == Some(task))
            }
            Request::TaskCpu { task } => Reply::Int(i64::from(self.task(task).cpu.get().0)),
            Request::CpuCurr { cpu } => {
                if !self.cpu_valid(cpu, "") {
                    return Reply::Task(None);
                }
                Reply::Task(self.cpu(CpuId(cpu as u32)).curr.get())
            }
            Request::TaskFromPid { pid } => Reply::Task(self.task_from_pid(pid)),
            Request::TaskSet { task, slice, vtime } => {
                let policy = &self.policy;
                if let Some(slice) = slice {
                    policy.set_slice(task, slice);
                }
                if let Some(vtime) = vtime {
                    policy.set_vtime(task, vtime);
                }
                Reply::Bool(true)
            }
            Request::TimerStart {
                timer, delay_ns, ..
            } => Reply::Int(self.timer_start(c, timer, delay_ns)),
            Request::TimerCancel { timer } => {
                let was_set = self.cancel_timer(Timer::Policy(timer));
                Reply::Int(i64::from(was_set))
            }
            Request::Error { message } => {
                self.exit_with(ExitKind::ErrorBpf, 0, message);
                Reply::Done
            }
            Request::ExitPolicy { code, message } => {
                let code = if self.mutated(Mutation::ExitCodeLost) {
                    0
                } else {
                    code
                };
                self.exit_with(ExitKind::UnregBpf, code, message);
                Reply::Done
            }
            Request::Sync
            | Request::Lock { .. }
            | Request::Unlock { .. }
            | Request::TryLock { .. }
            | Request::DsqInsert { .. }
            | Request::DsqMoveToLocal { .. }
            | Request::DsqMove { .. }
            | Request::DispatchNrSlots
            | Request::DispatchCancel => unreachable!("carried out before"),
        }
    }

    fn policy_lock(
        &self,
        lock: PolicyLock,
        address: u64,
        class: schedlab_trace::LockClass,
    ) -> crate::lock::LockIx {
        let index = lock.0 as usize;
        let known = self.policy_locks.borrow().get(index).copied().flatten();
        known.unwrap_or_else(|| {
            let new = self.new_lock(address, &format!("policy lock {}", lock.0), class);
            let mut locks = self.policy_locks.borrow_mut();
            if locks.len() <= index {
                locks.resize(index + 1, None);
            }
            locks[index] = Some(new);
            new
        })
    }

    /// `scx_cpu_valid()`; `place` says where the number came from.
    pub(crate) fn cpu_valid(&self, cpu: i32, place: &str) -> bool {
        let valid = usize::try_from(cpu).is_ok_and(|cpu| cpu < self.cpus.len());
        if !valid {
            let space = if place.is_empty() { "" } else { " " };
            self.scx_error(format!("invalid CPU {cpu}{space}{place}"));
        }
        valid
    }

    fn create_dsq(&self, dsq: u64, node: i32) -> i64 {
        if node < crate::consts::NUMA_NO_NODE || node >= self.nr_nodes as i32 {
            return -errno::EINVAL;
        }
        match self.dsqs.borrow_mut().create(dsq) {
            Ok(_) => 0,
            Err(errno) => errno,
        }
    }

    /// `scx_bpf_dsq_nr_queued()`.
    fn dsq_nr_queued(&self, c: &Cpu, id: u64) -> i64 {
        let dsqs = self.dsqs.borrow();
        if id == dsq_id::LOCAL {
            let rq = c.locked_rq.get().unwrap_or(c.id);
            i64::from(dsqs.get(rq.0).nr)
        } else if dsq_id::is_local_on(id) {
            let cpu = (id & dsq_id::LOCAL_CPU_MASK) as i32;
            if self.cpu_valid(cpu, "") {
                i64::from(dsqs.get(cpu as u32).nr)
            } else {
                -errno::ENOENT
            }
        } else {
            match dsqs.find_user(id) {
                Some(index) => i64::from(dsqs.get(index).nr),
                None => -errno::ENOENT,
            }
        }
    }

    /// `scx_vet_enq_flags()`: adds what the ops flags imply, or refuses.
    pub(crate) fn vet_enq_flags(&self, dsq: u64, enq_flags: u64) -> Option<u64> {
        let is_local = dsq == dsq_id::LOCAL || dsq_id::is_local_on(dsq);
        if enq_flags & enq::IMMED != 0 {
            if !self.version.has_immed() {
                self.scx_error(format!("invalid enq_flags {enq_flags:#x}"));
                return None;
            }
            if !is_local {
                self.scx_error(format!("SCX_ENQ_IMMED on a non-local DSQ {dsq:#x}"));
                return None;
            }
        } else if self.has_flag(ops::ALWAYS_ENQ_IMMED) && is_local {
            return Some(enq_flags | enq::IMMED);
        }
        Some(enq_flags)
    }

    /// `scx_bpf_dsq_insert()` and `scx_bpf_dsq_insert_vtime()`.
    fn dsq_insert(
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
        let Some(mut enq_flags) = self.vet_enq_flags(dsq, enq_flags) else {
            return false;
        };
        {
            let policy = &self.policy;
            let slice = match slice {
                0 => policy.slice(p.id).max(1),
                slice => slice,
            };
            policy.set_slice(p.id, slice);
            if let Some(vtime) = vtime {
                policy.set_vtime(p.id, vtime);
                enq_flags |= enq::DSQ_PRIQ;
            }
        }
        // scx_dsq_insert_commit()
        match c.direct_dispatch.get() {
            DirectDispatch::Off => {
                let mut buf = c.dispatch_buf.borrow_mut();
                if buf.len() >= self.ops.max_batch as usize {
                    drop(buf);
                    self.scx_error("dispatch buffer overflow".to_owned());
                } else {
                    buf.push(DispatchEntry {
                        task: p.id,
                        // 0 for a task that the policy does not own: matches nothing.
                        qseq: match p.ops_state.get() {
                            OpsState::Queueing | OpsState::Queued => p.qseq.get(),
                            OpsState::None | OpsState::Dispatching => 0,
                        },
                        dsq,
                        enq_flags,
                    });
                }
            }
            DirectDispatch::Spoiled if self.mutated(Mutation::SecondInsertIgnored) => {}
            DirectDispatch::Spoiled => {
                self.scx_error(format!("{} already direct-dispatched", p.label()));
            }
            DirectDispatch::Of(task) if task != p.id => {
                c.direct_dispatch.set(DirectDispatch::Spoiled);
                self.scx_error(format!(
                    "scheduling for {} but trying to direct-dispatch {}",
                    self.task(task).label(),
                    p.label()
                ));
            }
            DirectDispatch::Of(_) => {
                c.direct_dispatch.set(DirectDispatch::Spoiled);
                let prev_local = self.mutated(Mutation::LocalIsThatOfPrevCpu)
                    && dsq == dsq_id::LOCAL
                    && c.in_select_cpu.get();
                p.ddsp_dsq_id.set(if prev_local {
                    dsq_id::LOCAL_ON | u64::from(p.cpu.get().0)
                } else {
                    dsq
                });
                p.ddsp_enq_flags.set(enq_flags);
            }
        }
        true
    }

    fn task_from_pid(&self, pid: i32) -> Option<TaskId> {
        let id = TaskId::from_pid(u32::try_from(pid).ok()?)?;
        let p = self.tasks.get(id)?;
        // An exiting task is unhashed; see SCX_OPS_ENQ_EXITING.
        let known = p.state.get() != crate::task::TaskState::New && !p.exiting.get();
        known.then_some(id)
    }

    /// `bpf_timer_start()`: expires on the CPU that starts it.
    fn timer_start(&self, c: &Cpu, timer: TimerId, delay_ns: u64) -> i64 {
        self.set_timer(
            Timer::Policy(timer),
            c.id,
            c.now.get().saturating_add(delay_ns),
        );
        0
    }

    /// Calls back the policy's timers that have expired on `c`.
    pub(crate) fn policy_timers_expired(&self, c: &Cpu) {
        loop {
            let Some(timer) = c.expired_policy.borrow_mut().pop_front() else {
                return;
            };
            let mode = self.set_mode(c, CpuMode::Sched);
            self.call_op(c, OpCall::TimerCallback { timer });
            self.set_mode(c, mode);
        }
    }

    /// Tells the policy's side what it must know of a task.
    pub(crate) fn sync_task(&self, p: &Task) {
        let affinity = p.affinity.borrow();
        let flags = if p.exiting.get() {
            crate::consts::pf::EXITING
        } else {
            0
        } | if p.address_space.is_none() {
            crate::consts::pf::KTHREAD
        } else {
            0
        };
        let view = TaskView {
            comm: &p.comm,
            tgid: p.tgid,
            parent: p.parent,
            nice: p.nice.get(),
            class: p.policy.get(),
            weight: p.weight.get(),
            allowed: affinity.as_ref().unwrap_or(&self.all_cpus),
            address_space: p.address_space,
            flags,
            migration_disabled: false,
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
        self.set_slice(p, crate::consts::SLICE_DFL);
    }
}

/// `SCX_KICK_*` flags that go together.
pub(crate) fn kick_flags_conflict(flags: u64) -> bool {
    flags & kick::IDLE != 0 && flags & (kick::PREEMPT | kick::WAIT) != 0
}
