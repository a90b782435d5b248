//! Cgroups: the policy's cgroup ops, and tasks that move (kernel/sched/ext/ext.c, kernel/sched/core.c).
//!
//! The cgroups of the workload are made right after the policy is loaded, before the workload's first task runs, as a
//! program makes them that is started under the policy: with default settings, which are changed then.
//!
//! Model: making them takes no time, and none goes before the policy is unloaded. A cgroup takes single tasks, so that
//! `ops.cgroup_cancel_move()` is never called. Of the engine's own classes, the fair class
//! alone looks at cgroups (`fair_group.rs`, `bandwidth.rs`).

use schedlab_trace::Recorder;
use schedlab_workload::{Bandwidth, CgroupId, CgroupSettings};

use crate::contract::policy::{OpCall, OpKind, Policy};
use crate::contract::scenario::WorkloadFailure;
use crate::paths::kernel::Kernel;
use crate::paths::sched::Change;
use crate::state::cpu::Cpu;
use crate::state::life::LoadStage;
use crate::state::task::Task;

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `scx_cgroup_init()`, when there is the root alone. Returns whether loading goes on.
    pub(crate) fn scx_cgroup_init(&self, c: &Cpu) -> bool {
        if self.has_op(OpKind::CgroupInit) {
            let cgroup = CgroupId::ROOT;
            let ret = self.call_rare_op(c, OpCall::CgroupInit { cgroup }) as i32;
            if ret != 0 {
                self.scx_error(format!("ops.cgroup_init() failed ({ret})"));
                return false;
            }
        }
        self.cgroups.init(CgroupId::ROOT);
        true
    }

    /// `scx_cgroup_exit()`.
    pub(crate) fn scx_cgroup_exit(&self, c: &Cpu) {
        for cgroup in self.cgroups.descendants_post() {
            if self.cgroups.exit(cgroup) && self.has_op(OpKind::CgroupExit) {
                self.call_rare_op(c, OpCall::CgroupExit { cgroup });
            }
        }
    }

    /// Makes the workload's cgroups and gives them their settings.
    pub(crate) fn make_cgroups(&self) {
        let c = &self.cpus[0];
        let tree = self.cgroups.tree();
        for cgroup in tree.below_root() {
            self.cgroups.online(cgroup);
            let parent = tree.parent(cgroup).unwrap_or(CgroupId::ROOT);
            self.policy.add_cgroup(cgroup, parent, tree.name(cgroup));
            if !self.cgroup_scx_enabled() {
                continue;
            }
            if let Err(errno) = self.scx_tg_online(c, cgroup) {
                let why = format!(
                    "ops.cgroup_init() refused {} with {errno}; the policy must take every cgroup",
                    tree.path(cgroup)
                );
                self.cgroup_refused("the workload".to_owned(), "make a cgroup", why);
                return;
            }
            self.change_settings(c, cgroup);
        }
    }

    /// mkdir(2) or the move of a task fails, and so the workload. If the policy has ended by that, or before, its end says why.
    fn cgroup_refused(&self, task: String, what: &'static str, why: String) {
        if !self.has_exit() {
            self.fail(WorkloadFailure::Refused { task, what, why });
        }
    }

    /// `scx_cgroup_enabled`.
    fn cgroup_scx_enabled(&self) -> bool {
        self.life.has_loaded(LoadStage::Cgroups) && !self.life.is_policy_dead()
    }

    /// `scx_tg_online()`: mkdir(2) fails with the errno.
    fn scx_tg_online(&self, c: &Cpu, cgroup: CgroupId) -> Result<(), i64> {
        if self.has_op(OpKind::CgroupInit) {
            let ret = self.call_rare_op(c, OpCall::CgroupInit { cgroup });
            if ret != 0 {
                return Err(self.sanitize_err("cgroup_init", ret));
            }
        }
        self.cgroups.init(cgroup);
        Ok(())
    }

    /// Calls `scx_group_set_weight()`, `scx_group_set_bandwidth()` and `scx_group_set_idle()`, where a setting is not the default.
    fn change_settings(&self, c: &Cpu, cgroup: CgroupId) {
        let settings = self.cgroups.tree().settings(cgroup);
        let default = CgroupSettings::default();
        if settings.weight != default.weight && self.has_op(OpKind::CgroupSetWeight) {
            let weight = settings.weight;
            self.call_rare_op(c, OpCall::CgroupSetWeight { cgroup, weight });
        }
        // A program writes `cpu.max`, then `cpu.max.burst`; the kernel passes over a write that changes nothing.
        let without_burst = Bandwidth {
            burst: default.bandwidth.burst,
            ..settings.bandwidth
        };
        let mut told = default.bandwidth;
        for bandwidth in [without_burst, settings.bandwidth] {
            if bandwidth != told && self.has_op(OpKind::CgroupSetBandwidth) {
                self.call_rare_op(c, OpCall::CgroupSetBandwidth { cgroup, bandwidth });
            }
            told = bandwidth;
        }
        let has_idle = self.has_op(OpKind::CgroupSetIdle) && self.version.has_cgroup_set_idle();
        if settings.idle && has_idle {
            let idle = true;
            self.call_rare_op(c, OpCall::CgroupSetIdle { cgroup, idle });
        }
    }

    /// A task moves to another cgroup (`scx_cgroup_can_attach()`, `sched_move_task()`).
    pub(crate) fn join_cgroup(&self, c: &Cpu, p: &Task, to: CgroupId) {
        let from = p.cgroup();
        if from == to {
            return;
        }
        if self.cgroup_scx_enabled() && self.has_op(OpKind::CgroupPrepMove) {
            let task = p.id;
            let ret = self.call_rare_op(c, OpCall::CgroupPrepMove { task, from, to });
            if ret != 0 {
                let errno = self.sanitize_err("cgroup_prep_move", ret);
                let why = format!(
                    "ops.cgroup_prep_move() refused {} with {errno}; the policy must let every task move",
                    self.cgroups.tree().path(to)
                );
                self.cgroup_refused(p.label(), "join its cgroup", why);
                return;
            }
        }
        self.sched_change(c, p, Change::Cgroup(to));
    }

    /// `scx_cgroup_move_task()`, under the lock of `rq`.
    pub(crate) fn scx_cgroup_move_task(&self, c: &Cpu, rq: &Cpu, p: &Task, from: CgroupId) {
        if self.cgroup_scx_enabled() && self.has_op(OpKind::CgroupMove) {
            let (task, to) = (p.id, p.cgroup());
            self.call_rare_op_on(c, rq, OpCall::CgroupMove { task, from, to });
        }
    }
}
