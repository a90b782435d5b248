//! Built-in idle tracking and the default choice of a CPU (kernel/sched/ext/idle.c).

use schedlab_trace::{CpuId, CpuSet, Recorder};

use crate::contract::consts::{NUMA_NO_NODE, errno, pick_idle};
use crate::contract::mutation::Mutation;
use crate::contract::policy::{OpCall, OpKind, Policy};
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::task::Task;

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `scx_select_cpu_dfl()`: an idle CPU for `p`, claimed.
    pub(crate) fn select_cpu_dfl(
        &self,
        c: &Cpu,
        p: &Task,
        prev: CpuId,
        wake_flags: u64,
        cpus_allowed: Option<&CpuSet>,
        flags: u64,
    ) -> Option<CpuId> {
        let affinity = p.affinity.borrow();
        let all = p.affinity.nr() as usize >= self.cpus.len();
        let both;
        let (allowed, all) = match cpus_allowed {
            None => (affinity.as_ref().unwrap_or(self.online.possible()), all),
            Some(set) if all => (set, false),
            Some(set) => {
                both = set.and(affinity.as_ref().unwrap_or(self.online.possible()));
                if both.is_empty() {
                    return None;
                }
                (&both, false)
            }
        };
        let exiting = c.curr().is_some_and(|curr| self.task(curr).is_exiting());
        let local_nr = c.local.nr();
        let prev_allowed = match cpus_allowed {
            Some(set) if !self.version.checks_affinity_of_previous_cpu() => set.contains(prev),
            _ => allowed.contains(prev),
        };
        let mut idle = self.idle.borrow_mut();
        let found = idle.select(
            c,
            prev,
            prev_allowed,
            wake_flags,
            allowed,
            all,
            flags,
            exiting,
            local_nr,
        );
        if let Some(cpu) = found
            && self.mutated(Mutation::PickedCpuStaysIdle)
        {
            idle.update(cpu, true);
        }
        found
    }

    /// `check_builtin_idle_enabled()`.
    pub(crate) fn check_builtin_idle_enabled(&self) -> bool {
        let enabled = self.idle.borrow().is_enabled();
        if !enabled {
            self.refuse_builtin_idle();
        }
        enabled
    }

    #[cold]
    fn refuse_builtin_idle(&self) {
        self.scx_error("built-in idle tracking is disabled".to_owned());
    }

    /// `select_cpu_from_kfunc()`: a CPU or a negative errno.
    #[inline(always)]
    pub(crate) fn select_cpu_from_kfunc(
        &self,
        c: &Cpu,
        p: &Task,
        prev_cpu: i32,
        wake_flags: u64,
        allowed: Option<&CpuSet>,
        flags: u64,
    ) -> i64 {
        if !self.cpu_valid(prev_cpu, "") {
            return -errno::EINVAL;
        }
        if !self.check_builtin_idle_enabled() {
            return -errno::EBUSY;
        }
        let cross_task = if !self.version.selects_for_own_task_only() {
            false
        } else if c.op.is_select() {
            !c.op.is_about(p.id)
        } else {
            c.op.locked_rq().is_some_and(|rq| rq != p.cpu())
        };
        if cross_task {
            self.refuse_cross_task(c, p);
            return -errno::EINVAL;
        }
        if self.idle.borrow().has_none() {
            return -errno::EBUSY;
        }
        let prev = CpuId(prev_cpu as u32);
        self.select_one_of_idle(c, p, prev, wake_flags, allowed, flags)
    }

    /// The rest of `select_cpu_from_kfunc()` if some CPU idles.
    #[inline(never)]
    fn select_one_of_idle(
        &self,
        c: &Cpu,
        p: &Task,
        prev: CpuId,
        wake_flags: u64,
        allowed: Option<&CpuSet>,
        flags: u64,
    ) -> i64 {
        let found = if p.affinity.nr() == 1 {
            self.select_cpu_restricted(p, prev, allowed, flags)
        } else {
            self.select_cpu_dfl(c, p, prev, wake_flags, allowed, flags)
        };
        found.map_or(-errno::EBUSY, |cpu| i64::from(cpu.0))
    }

    #[cold]
    fn refuse_cross_task(&self, c: &Cpu, p: &Task) {
        self.scx_error(if c.op.is_select() {
            "called on a task not being operated on".to_owned()
        } else {
            format!("select_cpu kfunc called cross-task on {}", p.label())
        });
    }

    /// `select_cpu_restricted()`: a task that may run on one CPU only.
    fn select_cpu_restricted(
        &self,
        p: &Task,
        prev: CpuId,
        allowed: Option<&CpuSet>,
        flags: u64,
    ) -> Option<CpuId> {
        let cpu = if self.version.restricted_tasks_have_one_cpu() {
            let affinity = p.affinity.borrow();
            affinity
                .as_ref()
                .unwrap_or(self.online.possible())
                .first()?
        } else {
            prev
        };
        if !allowed.map_or_else(|| p.allows(cpu), |set| set.contains(cpu)) {
            return None;
        }
        let mut idle = self.idle.borrow_mut();
        if flags & pick_idle::IN_NODE != 0 && idle.mask_of(prev) != idle.mask_of(cpu) {
            return None;
        }
        idle.test_and_clear(cpu).then_some(cpu)
    }

    /// `scx_bpf_pick_idle_cpu()`, `scx_bpf_pick_any_cpu()` and their `_node` forms.
    pub(crate) fn pick_cpu(
        &self,
        c: &Cpu,
        allowed: &CpuSet,
        node: Option<i32>,
        flags: u64,
        any: bool,
    ) -> i64 {
        let mut idle = self.idle.borrow_mut();
        let mask = match node {
            None if idle.is_per_node() => {
                drop(idle);
                self.scx_error("per-node idle tracking is enabled".to_owned());
                return -errno::EBUSY;
            }
            None => 0,
            Some(node) => {
                drop(idle);
                match self.validate_node(node) {
                    Ok(node) => {
                        idle = self.idle.borrow_mut();
                        node
                    }
                    Err(errno) => return errno,
                }
            }
        };
        if idle.is_enabled() {
            let (mask, flags) = if self.mutated(Mutation::NodeOfPickIgnored) {
                ((mask + 1) % idle.nr_masks(), flags & !pick_idle::IN_NODE)
            } else {
                (mask, flags)
            };
            let found = idle.pick(allowed, mask, flags, c);
            if let Some(cpu) = found {
                return i64::from(cpu.0);
            }
        } else if !any {
            drop(idle);
            self.check_builtin_idle_enabled();
            return -errno::EBUSY;
        }
        if !any {
            return -errno::EBUSY;
        }
        let found = if node.is_some() && flags & pick_idle::IN_NODE != 0 {
            let of_node = idle.cpus_of_node(mask).and(&self.online.borrow());
            c.any_and_distribute(&of_node, allowed)
        } else {
            c.any_and_distribute(allowed, self.online.possible())
        };
        match found {
            Some(cpu) => i64::from(cpu.0),
            None => -errno::EBUSY,
        }
    }

    /// `validate_node()`.
    fn validate_node(&self, node: i32) -> Result<usize, i64> {
        if !self.idle.borrow().is_per_node() {
            self.scx_error("per-node idle tracking is disabled".to_owned());
            return Err(-errno::EOPNOTSUPP);
        }
        if node == NUMA_NO_NODE {
            return Err(-errno::ENOENT);
        }
        match usize::try_from(node) {
            Ok(index) if index < self.nr_nodes as usize => Ok(index),
            _ => {
                self.scx_error(format!("invalid node {node}"));
                Err(-errno::EINVAL)
            }
        }
    }

    /// `scx_bpf_get_idle_cpumask()` and `_smtmask()`, with their `_node` forms.
    pub(crate) fn idle_mask(&self, node: Option<i32>, smt: bool) -> CpuSet {
        let empty = || CpuSet::empty(self.cpus.len());
        let mask = match node {
            None if self.idle.borrow().is_per_node() => {
                self.scx_error("SCX_OPS_BUILTIN_IDLE_PER_NODE enabled".to_owned());
                return empty();
            }
            None => 0,
            Some(node) => match self.validate_node(node) {
                Ok(node) => node,
                Err(_) => return empty(),
            },
        };
        if !self.check_builtin_idle_enabled() {
            return empty();
        }
        let idle = self.idle.borrow();
        idle.mask(mask, smt).clone()
    }

    /// `__scx_update_idle()`. `notify`: the CPU really changes between a task and idle.
    pub(crate) fn scx_update_idle(&self, c: &Cpu, idle: bool, notify: bool) {
        if !self.life.scx_enabled() {
            return;
        }
        if notify || c.curr().is_none() {
            self.sync(c);
            let mut masks = self.idle.borrow_mut();
            if masks.is_enabled() {
                masks.update(c.id, idle);
            }
        }
        if notify && self.has_op(OpKind::UpdateIdle) && !self.life.is_bypassing() {
            self.call_op_on(c, c, OpCall::UpdateIdle { cpu: c.id, idle });
        }
    }
}
