//! Which kernel's sched_ext is simulated, and what the older one does otherwise. All differences are here.

use crate::contract::consts::ops;

/// A kernel version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum KernelVersion {
    /// Linux 6.18, as of 6.18.15.
    V6_18,
    /// Linux 7.2.
    #[default]
    V7_2,
}

/// A kernel that is not simulated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("kernel `{asked}` is not simulated; there are: {}", KernelVersion::ALL.map(KernelVersion::name).join(", "))]
pub struct UnknownKernel {
    asked: String,
}

impl std::str::FromStr for KernelVersion {
    type Err = UnknownKernel;

    fn from_str(text: &str) -> Result<KernelVersion, UnknownKernel> {
        KernelVersion::ALL
            .into_iter()
            .find(|version| version.name() == text)
            .ok_or_else(|| UnknownKernel {
                asked: text.to_owned(),
            })
    }
}

impl KernelVersion {
    /// All that are simulated, the newest first.
    pub const ALL: [KernelVersion; 2] = [KernelVersion::V7_2, KernelVersion::V6_18];

    /// As in `uname -r`.
    pub const fn name(self) -> &'static str {
        match self {
            KernelVersion::V6_18 => "6.18",
            KernelVersion::V7_2 => "7.2",
        }
    }

    /// From 7.1 on `ops.dequeue()` is called at every departure from the policy's custody, a dispatch to a terminal
    /// DSQ included. Before, it is only called where a task is dequeued while the policy owns it (`SCX_OPSS_QUEUED`).
    pub(crate) const fn dequeue_on_leaving_custody(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// Kfuncs in ops that may not call them are refused by the verifier (`scx_kfunc_context_filter()`). Before, by the
    /// kernel when they are called (`scx_kf_allowed()`).
    pub(crate) const fn has_context_filter(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// `SCX_DEQ_SCHED_CHANGE` marks dequeues by changes of attributes.
    pub(crate) const fn has_deq_sched_change(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// `DEQUEUE_SPECIAL` of `block_task()`: the task sleeps in a state without a wakeup condition, here the state of
    /// a task that has exited.
    pub(crate) const fn deq_special(self) -> u64 {
        match self {
            KernelVersion::V6_18 => 1 << 4,
            KernelVersion::V7_2 => 1 << 16,
        }
    }

    /// `SCX_ENQ_IMMED`, `SCX_OPS_ALWAYS_ENQ_IMMED` and deferred `scx_bpf_dsq_reenq()`.
    pub(crate) const fn has_immed(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// `SCX_OPS_ALL_FLAGS`.
    pub(crate) const fn ops_flags(self) -> u64 {
        /// `SCX_OPS_HAS_CGROUP_WEIGHT`, which means nothing any more.
        const HAS_CGROUP_WEIGHT: u64 = 1 << 16;
        let both = ops::KEEP_BUILTIN_IDLE
            | ops::ENQ_LAST
            | ops::ENQ_EXITING
            | ops::SWITCH_PARTIAL
            | ops::ENQ_MIGRATION_DISABLED
            | ops::ALLOW_QUEUED_WAKEUP
            | ops::BUILTIN_IDLE_PER_NODE;
        match self {
            KernelVersion::V6_18 => both | HAS_CGROUP_WEIGHT,
            KernelVersion::V7_2 => both | ops::ALWAYS_ENQ_IMMED | ops::TID_TO_TASK,
        }
    }

    /// `rq->next_class`: an insertion into a local DSQ marks the CPU when the class it is about to
    /// run is below sched_ext. Before, when its current class is. A choice starts anew where a task of a
    /// higher class came meanwhile. Before, all classes balance first and are asked from the highest on
    /// after that.
    pub(crate) const fn has_next_class(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// A task that `ops.enqueue()` puts on its own local DSQ under `SCX_ENQ_LAST` runs on, by a mark
    /// on the idle task. Before, the CPU stays idle until something marks it.
    pub(crate) const fn marks_idle_after_enq_last(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// Returns whether `ops.cgroup_move()` is called as an op that holds the lock of its task's run queue. Before, kfuncs take it for
    /// an op without any lock.
    pub const fn moves_task_under_lock(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// Returns whether `bpf_iter_css_new()` takes `BPF_CGROUP_ITER_CHILDREN`, which came with 7.0.
    pub const fn walks_children(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// Returns whether the ops table has `cgroup_set_idle`, which came later than 6.18.
    pub const fn has_cgroup_set_idle(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// `CONFIG_EXT_SUB_SCHED`: a task belongs to a scheduler, which alone may set its slice and vtime, from when
    /// `ops.init_task()` has returned (`scx_task_on_sched()`).
    pub(crate) const fn has_sub_schedulers(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// Where the previous CPU is not idle its core's other threads come next in the default choice of an idle CPU
    /// (from 7.1 on).
    pub(crate) const fn prefers_idle_siblings(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// For a task that may run on one CPU only, the `select_cpu` kfuncs look at that CPU (`select_cpu_restricted()`,
    /// from 7.1 on). Before, at the previous CPU that they are given.
    pub(crate) const fn restricted_tasks_have_one_cpu(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// `SCX_DSQ_LOCAL` belongs, for `scx_bpf_dsq_nr_queued()`, to the run queue whose lock the op holds
    /// (`scx_locked_rq()`). Before, to the CPU that asks.
    pub(crate) const fn counts_local_of_locked_rq(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// `select_cpu_from_kfunc()` refuses a task that the op under way is not about. Before, it chooses a CPU for any.
    pub(crate) const fn selects_for_own_task_only(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// A wakeup with `SCX_WAKE_SYNC` may end on the waker's CPU, by default, which is claimed. Before, it is not
    /// claimed, and also without `SCX_OPS_BUILTIN_IDLE_PER_NODE` the idle CPUs of the waker's node are examined, in
    /// which no CPU is ever noted.
    pub(crate) const fn wakes_on_wakers_cpu(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// The default choice takes the previous CPU only where the task may run. Before, where the given mask has it.
    pub(crate) const fn checks_affinity_of_previous_cpu(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// `p->scx.disallow` set in a fork ends the policy. Before, only for a task that asks for SCHED_EXT, as none does here.
    pub(crate) const fn refuses_disallow_in_fork(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// A missing queue is reported without the task that was to go there.
    pub(crate) const fn names_missing_queue_alone(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// `DEQUEUE_CLASS` marks changes of class, and `ops.disable()` comes before the change (`sched_change_begin()`).
    /// Before, the new weight comes first, and the old class is called last (`check_class_changed()`).
    pub(crate) const fn disables_before_class_change(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// Slices of fair tasks end by a timer (`HRTICK`). Before, by the tick.
    pub(crate) const fn has_hrtick(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// A deadline server for sched_ext tasks has bandwidth of its own (`rq->ext_server`).
    pub(crate) const fn has_ext_server(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// The most lag, of either sign, that a fair task keeps (`entity_lag()`, before `update_entity_lag()`), in ns of a
    /// task of nice level 0.
    pub(crate) fn fair_lag_bound(self, slice_ns: i64, tick_ns: i64) -> i64 {
        match self {
            KernelVersion::V6_18 => tick_ns.max(2 * slice_ns),
            KernelVersion::V7_2 => slice_ns + tick_ns,
        }
    }

    /// A policy that was made for other CPUs (`check_hotplug_seq()`) is not loaded. Before, it ends, but gets its tasks
    /// first.
    pub(crate) const fn stops_at_other_hotplug_seq(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }

    /// `p->scx.dsq_vtime` and `slice` are cleared when a task leaves sched_ext.
    pub(crate) const fn resets_fields_on_disable(self) -> bool {
        matches!(self, KernelVersion::V7_2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_known_by_their_names() {
        for version in KernelVersion::ALL {
            assert_eq!(version.name().parse(), Ok(version));
        }
        assert_eq!(KernelVersion::ALL[0], KernelVersion::default());
        let error = "6.12".parse::<KernelVersion>().unwrap_err();
        let told = "kernel `6.12` is not simulated; there are: 7.2, 6.18";
        assert_eq!(error.to_string(), told);
    }

    /// Of a slice of 2.8 ms: a tick more, before twice that or a tick.
    #[test]
    fn lag_is_bounded() {
        let bound_us = |version: KernelVersion, hz: i64| {
            version.fair_lag_bound(2_800_000, 1_000_000_000 / hz) / 1_000
        };
        assert_eq!(bound_us(KernelVersion::V7_2, 250), 6_800);
        assert_eq!(bound_us(KernelVersion::V6_18, 250), 5_600);
        assert_eq!(bound_us(KernelVersion::V6_18, 100), 10_000);
    }
}
