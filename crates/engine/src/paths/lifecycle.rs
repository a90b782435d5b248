//! Loading and unloading the policy, and tasks coming to it and leaving it (kernel/sched/ext/ext.c).

use schedlab_fiber::State;
use schedlab_trace::{CpuId, Event, Recorder};

use crate::contract::consts::{self, WATCHDOG_MAX_TIMEOUT_MS, deq, ecode, errno, ops};
use crate::contract::mutation::Mutation;
use crate::contract::outcome::{ExitInfo, ExitKind};
use crate::contract::policy::{OpCall, OpKind, OpsInfo, Policy};
use crate::contract::scenario::{NormalClass, WorkloadFailure};
use crate::contract::version::KernelVersion;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::event_queue::Timer;
use crate::state::life::LoadStage;
use crate::state::scx::{OpsState, ScxState};
use crate::state::task::{Class, OnRq, Task, TaskState};

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// Runs `path` to its end while nothing else happens and no time passes.
    fn run_alone(&self, path: impl FnOnce()) {
        let mut fiber = self.fibers();
        if let Err(why) = fiber.spawn(path) {
            self.host_failed(why);
            return;
        }
        let c = &self.cpus[0];
        let (now, carry, mode) = (c.this.now.get(), c.this.carry_ps.get(), c.mode());
        self.life.begin_alone();
        self.progress.resume(c.id);
        match fiber.resume(0) {
            State::Done => {}
            State::Trapped(trap) => self.policy_fault(self.policy.describe(&c.this, &trap)),
            State::Suspended => assert!(
                self.life.is_policy_dead(),
                "no CPU can be waited for while a policy is loaded"
            ),
        }
        drop(fiber);
        self.life.end_alone();
        c.this.now.set(now);
        c.this.carry_ps.set(carry);
        c.enter_mode(mode);
    }

    /// Introduces the tasks that exist from the start, and loads the policy
    /// (`scx_root_enable_workfn()`). Loading takes no time.
    pub(crate) fn load(&self) {
        if self.setup.normal_class == NormalClass::Fair {
            for p in self.tasks.iter().filter(|p| self.starts_at_once(p)) {
                self.introduce_task(&self.cpus[0], p);
                p.scx.set_state(ScxState::Dead);
                p.set_class(self.class_of(p));
            }
            self.make_cgroups();
            self.life.begin_without_policy();
            return;
        }
        for p in self.tasks.iter().filter(|p| self.starts_at_once(p)) {
            self.introduce_task(&self.cpus[0], p);
        }
        self.run_alone(|| {
            self.scx_enable();
            // Otherwise it is unloaded before a program could be started.
            if !self.life.is_bypassing() {
                self.make_cgroups();
            }
        });
    }

    /// Whether a task is there when the policy is loaded.
    fn starts_at_once(&self, p: &Task) -> bool {
        p.state() == TaskState::New && p.origin.starts_at_once
    }

    fn scx_enable(&self) {
        let c = &self.cpus[0];
        if let Some(reason) = refused_member(self.policy.info(), self.version) {
            self.scx_error(reason);
            return;
        }
        self.life.load_to(LoadStage::Scheduler);
        let has_update_idle = self.has_op(OpKind::UpdateIdle);
        self.idle.borrow_mut().enable(
            self.version,
            has_update_idle,
            self.ops.flags,
            &self.online.borrow(),
        );
        if self.has_op(OpKind::Init) {
            let ret = self.call_rare_op(c, OpCall::Init);
            if ret != 0 {
                let ret = self.sanitize_err("init", ret);
                self.scx_error(format!("ops.init() failed ({ret})"));
                return;
            }
        }
        if !self.validate_ops(has_update_idle) || self.life.is_policy_dead() {
            return;
        }
        // A policy that has ended itself meanwhile gets its tasks all the same: that is looked at when it has them all.
        self.life.load_to(LoadStage::Ops);
        if !self.scx_cgroup_init(c) {
            return;
        }
        self.life.load_to(LoadStage::Cgroups);
        for p in self.tasks.iter().filter(|p| self.starts_at_once(p)) {
            let ret = self.scx_init_task(c, p, false);
            if ret != 0 {
                self.scx_error(format!("ops.init_task() failed ({ret}) for {}", p.label()));
                return;
            }
        }
        for p in self
            .tasks
            .iter()
            .filter(|p| p.scx.state() == ScxState::Ready)
        {
            p.set_class(self.class_of(p));
            if p.class() == Class::Ext {
                self.set_slice(p, consts::SLICE_DFL);
                self.switching_to_scx(c, p);
            }
        }
        if self.life.is_bypassing() {
            return;
        }
        self.life.load_to(LoadStage::Enabled);
        if self.machine.sched_ext.watchdog {
            let interval = self.watchdog_interval_ns();
            self.set_timer(Timer::Watchdog, CpuId(0), interval);
        }
    }

    /// `check_hotplug_seq()` and `validate_ops()`: whether loading goes on. The first reason is reported.
    fn validate_ops(&self, has_update_idle: bool) -> bool {
        // No CPU has come or gone before.
        let hotplug_seq = self.policy.info().hotplug_seq;
        if hotplug_seq != 0 {
            self.exit_with(
                ExitKind::UnregKern,
                ecode::ACT_RESTART | ecode::RSN_HOTPLUG,
                format!("expected hotplug seq {hotplug_seq} did not match actual 0"),
            );
            if self.version.stops_at_other_hotplug_seq() {
                return false;
            }
        }
        let reason = if self.has_flag(ops::ENQ_LAST)
            && !self.has_op(OpKind::Enqueue)
            && !self.mutated(Mutation::EnqLastUnchecked)
        {
            "SCX_OPS_ENQ_LAST requires ops.enqueue() to be implemented"
        } else if self.has_flag(ops::BUILTIN_IDLE_PER_NODE)
            && has_update_idle
            && !self.has_flag(ops::KEEP_BUILTIN_IDLE)
        {
            "SCX_OPS_BUILTIN_IDLE_PER_NODE requires CPU idle selection enabled"
        } else if self.policy.info().sub_schedulers {
            "sub_attach/sub_detach requires cid-form struct_ops"
        } else {
            return true;
        };
        self.scx_error(reason.to_owned());
        false
    }

    /// `ops_sanitize_err()`.
    pub(crate) fn sanitize_err(&self, op: &str, err: i64) -> i64 {
        let err = i64::from(err as i32);
        if (-errno::MAX..0).contains(&err) {
            return err;
        }
        self.scx_error(format!("ops.{op}() returned an invalid errno {err}"));
        -errno::EPROTO
    }

    /// `__scx_init_task()`: 0 or a negative errno.
    fn scx_init_task(&self, c: &Cpu, p: &Task, fork: bool) -> i64 {
        if self.has_op(OpKind::InitTask) {
            let ret = self.call_life_op(c, None, OpCall::InitTask { task: p.id, fork });
            if ret != 0 {
                return self.sanitize_err("init_task", ret);
            }
        }
        if fork && self.version.refuses_disallow_in_fork() && self.policy.disallowed(p.id) {
            self.scx_error(format!(
                "ops.init_task() set task->scx.disallow for {} during fork",
                p.label()
            ));
        }
        p.scx.set_state(ScxState::Ready);
        0
    }

    /// `scx_fork()` and `scx_post_fork()`: 0 or a negative errno, with which fork() fails.
    pub(crate) fn scx_fork(&self, c: &Cpu, p: &Task) -> i64 {
        if !self.life.scx_enabled() {
            p.scx.set_state(ScxState::Dead);
            p.set_class(self.class_of(p));
            return 0;
        }
        let ret = self.scx_init_task(c, p, true);
        if ret != 0 {
            return ret;
        }
        p.set_class(self.class_of(p));
        if p.class() == Class::Ext {
            self.scx_enable_task(c, p);
        }
        0
    }

    /// fork() fails; the task never was. Without one of its tasks the workload is another one, so the
    /// run ends here.
    pub(crate) fn fork_refused(&self, c: &Cpu, p: &Task, errno: i64) {
        p.set_state(TaskState::Dead);
        self.is_gone(p);
        self.record(c, Event::TaskExit { task: p.id });
        if !self.life.is_policy_dead() {
            self.policy.drop_task(p.id);
        }
        if !self.has_exit() {
            self.fail(WorkloadFailure::ForkRefused {
                task: p.label(),
                errno,
            });
        }
    }

    /// `scx_enable_task()`.
    fn scx_enable_task(&self, c: &Cpu, p: &Task) {
        p.scx.set_weight(consts::cgroup_weight(p.load_weight()));
        self.sync_task(p);
        if self.has_op(OpKind::Enable) {
            self.call_task_op(c, p, OpCall::Enable { task: p.id });
        }
        if self.has_op(OpKind::SetWeight) && !self.mutated(Mutation::SetWeightNotTold) {
            let op = OpCall::SetWeight {
                task: p.id,
                weight: p.scx.weight(),
            };
            self.call_task_op(c, p, op);
        }
        p.scx.set_state(ScxState::Enabled);
    }

    /// `switching_to_scx()`.
    pub(crate) fn switching_to_scx(&self, c: &Cpu, p: &Task) {
        self.scx_enable_task(c, p);
        if self.has_op(OpKind::SetCpumask) {
            self.call_task_op(c, p, OpCall::SetCpumask { task: p.id });
        }
    }

    /// `scx_disable_task()`.
    pub(crate) fn scx_disable_task(&self, c: &Cpu, p: &Task) {
        p.scx.clear_direct_dispatch();
        if self.has_op(OpKind::Disable) && !self.mutated(Mutation::ExitWithoutDisable) {
            self.call_task_op(c, p, OpCall::Disable { task: p.id });
        }
        p.scx.set_state(ScxState::Ready);
        if self.version.resets_fields_on_disable() {
            let policy = &self.policy;
            policy.set_vtime(p.id, 0);
            policy.set_slice(p.id, 0);
        }
    }

    /// `scx_disable_and_exit_task()`.
    fn scx_disable_and_exit_task(&self, c: &Cpu, p: &Task) {
        match p.scx.state() {
            ScxState::None | ScxState::Dead => return,
            ScxState::Ready => {}
            ScxState::Enabled => self.scx_disable_task(c, p),
        }
        if self.has_op(OpKind::ExitTask) {
            let op = OpCall::ExitTask {
                task: p.id,
                cancelled: false,
            };
            self.call_task_op(c, p, op);
        }
        p.scx.set_state(ScxState::Dead);
    }

    /// Calls an op about `p` under the lock of its run queue.
    pub(crate) fn call_task_op(&self, c: &Cpu, p: &Task, op: OpCall) {
        self.call_life_op(c, Some(p.cpu()), op);
    }

    /// A runnable task leaves its queue before it leaves the policy (`sched_change_begin()`).
    fn leave_queue(&self, c: &Cpu, p: &Task) {
        if p.class() != Class::Ext || p.scx.state() != ScxState::Enabled {
            return;
        }
        // A CPU that was moving it does not go on.
        if matches!(
            p.scx.ops_state(),
            OpsState::Queueing | OpsState::Dispatching
        ) {
            p.scx.release_to_kernel();
        }
        let flags = deq::SAVE | deq::MOVE | deq::NOCLOCK | deq::CLASS;
        self.dequeue_task_scx(c, self.cpu(p.cpu()), p, flags);
        p.set_on_rq(OnRq::No);
    }

    /// `sched_ext_dead()`: the last that happens to a task.
    pub(crate) fn sched_ext_dead(&self, c: &Cpu, p: &Task) {
        self.scx_disable_and_exit_task(c, p);
        self.dl_release(c, p);
        self.detach_load(c, p);
        self.record(c, Event::TaskExit { task: p.id });
        if !self.life.is_policy_dead() {
            self.policy.drop_task(p.id);
        }
        p.program.end(&mut self.tally.counters());
        self.tally.exit(c.this.now.get());
        self.is_gone(p);
        if self.population.nr_alive() == 0 {
            self.life.stop();
        }
    }

    /// The run no longer waits for `p`.
    fn is_gone(&self, p: &Task) {
        if !p.origin.is_background {
            self.population.remove_alive();
        }
    }

    /// Unloads the policy (`scx_root_disable()`): every task leaves it, then `ops.exit()`.
    pub(crate) fn unload(&self) {
        let refused = !self.life.has_loaded(LoadStage::Scheduler);
        if self.setup.normal_class == NormalClass::Fair || self.life.is_policy_dead() || refused {
            return;
        }
        self.run_alone(|| self.scx_disable());
    }

    fn scx_disable(&self) {
        let c = &self.cpus[0];
        // The first who ends the policy says why (scx_claim_exit()). If the workload ended, that is who loaded it.
        let exit = self.exit_or_else(unregistered);
        if self.life.dumps() && exit.kind >= ExitKind::Error {
            self.scx_dump_state(c, &exit);
        }
        self.scx_cgroup_exit(c);
        for p in self.tasks.iter() {
            if !self.mutated(Mutation::UnloadForgetsTasks) {
                self.leave_queue(c, p);
                self.scx_disable_and_exit_task(c, p);
            }
        }
        if self.has_op(OpKind::Exit) {
            self.policy.set_exit_message(&exit.message);
            let (kind, code) = (exit.kind, exit.code);
            self.call_rare_op(c, OpCall::Exit { kind, code });
        }
    }
}

/// The member of an ops table that `bpf_scx_init_member()` refuses, for people.
fn refused_member(info: &OpsInfo, version: KernelVersion) -> Option<String> {
    let unknown = info.flags & !version.ops_flags();
    // bpf_obj_name_cpy()
    let in_names = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if info.timeout_ms > WATCHDOG_MAX_TIMEOUT_MS {
        Some(format!(
            "timeout_ms {} is longer than the kernel allows ({WATCHDOG_MAX_TIMEOUT_MS})",
            info.timeout_ms
        ))
    } else if i32::try_from(info.dispatch_max_batch).is_err() {
        Some(format!(
            "dispatch_max_batch {} is more than the kernel allows ({})",
            info.dispatch_max_batch,
            i32::MAX
        ))
    } else if unknown != 0 {
        Some(format!(
            "flags {unknown:#x} are unknown to Linux {}",
            version.name()
        ))
    } else if info.name.is_empty() {
        Some("it has no name, and the kernel demands one".to_owned())
    } else if !info.name.chars().all(in_names) {
        Some(format!(
            "the name `{}` has other characters than letters, digits, `_` and `.`",
            info.name
        ))
    } else {
        None
    }
}

fn unregistered() -> ExitInfo {
    ExitInfo::new(ExitKind::Unreg, 0, String::new())
}
