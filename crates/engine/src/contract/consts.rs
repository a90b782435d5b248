//! Numbers of the sched_ext interface (Linux 7.2: `include/linux/sched/ext.h`,
//! `kernel/sched/ext/internal.h`, `kernel/sched/sched.h`). Names are the kernel's without `SCX_`.

#![allow(
    missing_docs,
    reason = "the kernel documents them where it defines them"
)]

/// Special DSQ ids (`enum scx_dsq_id_flags`).
pub mod dsq_id {
    pub const FLAG_BUILTIN: u64 = 1 << 63;
    pub const FLAG_LOCAL_ON: u64 = 1 << 62;
    pub const INVALID: u64 = FLAG_BUILTIN;
    pub const GLOBAL: u64 = FLAG_BUILTIN | 1;
    pub const LOCAL: u64 = FLAG_BUILTIN | 2;
    pub const LOCAL_ON: u64 = FLAG_BUILTIN | FLAG_LOCAL_ON;
    pub const LOCAL_CPU_MASK: u64 = 0xffff_ffff;

    /// Whether `id` names some CPU's local DSQ (`SCX_DSQ_LOCAL_ON | cpu`).
    pub const fn is_local_on(id: u64) -> bool {
        id & LOCAL_ON == LOCAL_ON
    }
}

/// `enum scx_ops_flags`.
pub mod ops {
    pub const KEEP_BUILTIN_IDLE: u64 = 1 << 0;
    pub const ENQ_LAST: u64 = 1 << 1;
    pub const ENQ_EXITING: u64 = 1 << 2;
    pub const SWITCH_PARTIAL: u64 = 1 << 3;
    pub const ENQ_MIGRATION_DISABLED: u64 = 1 << 4;
    pub const ALLOW_QUEUED_WAKEUP: u64 = 1 << 5;
    pub const BUILTIN_IDLE_PER_NODE: u64 = 1 << 6;
    pub const ALWAYS_ENQ_IMMED: u64 = 1 << 7;
    pub const TID_TO_TASK: u64 = 1 << 8;
}

/// `enum scx_enq_flags` and the `ENQUEUE_*` flags below them.
pub mod enq {
    pub const WAKEUP: u64 = 0x01;
    pub const RESTORE: u64 = 0x02;
    pub const MOVE: u64 = 0x04;
    pub const NOCLOCK: u64 = 0x08;
    pub const MIGRATING: u64 = 0x10;
    pub const CLASS: u64 = 0x40;
    pub const HEAD: u64 = 0x0001_0000;
    pub const REPLENISH: u64 = 0x0002_0000;
    pub const MIGRATED: u64 = 0x0004_0000;
    pub const INITIAL: u64 = 0x0008_0000;
    pub const CPU_SELECTED: u64 = 0x0010_0000;
    pub const PREEMPT: u64 = 1 << 32;
    pub const IMMED: u64 = 1 << 33;
    pub const REENQ: u64 = 1 << 40;
    pub const LAST: u64 = 1 << 41;
    pub const INTERNAL_MASK: u64 = 0xff << 56;
    pub const CLEAR_OPSS: u64 = 1 << 56;
    pub const DSQ_PRIQ: u64 = 1 << 57;
    pub const GDSQ_FALLBACK: u64 = 1 << 59;
}

/// `enum scx_deq_flags` and the `DEQUEUE_*` flags below them.
pub mod deq {
    pub const SLEEP: u64 = 0x01;
    pub const SAVE: u64 = 0x02;
    pub const MOVE: u64 = 0x04;
    pub const NOCLOCK: u64 = 0x08;
    pub const CLASS: u64 = 0x40;
    pub const CORE_SCHED_EXEC: u64 = 1 << 32;
    pub const SCHED_CHANGE: u64 = 1 << 33;
}

/// `enum scx_reenq_flags`.
pub mod reenq {
    pub const ANY: u64 = 1 << 0;
    pub const FILTER_MASK: u64 = 0xffff;
    pub const USER_MASK: u64 = ANY;
}

/// `enum scx_kick_flags`.
pub mod kick {
    pub const IDLE: u64 = 1 << 0;
    pub const PREEMPT: u64 = 1 << 1;
    pub const WAIT: u64 = 1 << 2;
}

/// `enum scx_wake_flags`: the `WF_*` flags that ops.select_cpu() sees.
pub mod wake {
    pub const EXEC: u64 = 0x02;
    pub const FORK: u64 = 0x04;
    pub const TTWU: u64 = 0x08;
    pub const SYNC: u64 = 0x10;
    pub const MIGRATED: u64 = 0x20;
    pub const RQ_SELECTED: u64 = 0x80;
}

/// `enum scx_pick_idle_cpu_flags`.
pub mod pick_idle {
    pub const CORE: u64 = 1 << 0;
    pub const IN_NODE: u64 = 1 << 1;
}

/// `enum scx_dsq_iter_flags`.
pub mod iter {
    pub const REV: u64 = 1 << 16;
    pub const USER_FLAGS: u64 = REV;
}

/// `enum scx_exit_code`.
pub mod ecode {
    pub const RSN_HOTPLUG: i64 = 1 << 32;
    pub const ACT_RESTART: i64 = 1 << 48;
}

/// `PF_*` bits of `task_struct::flags` that the virtual kernel sets.
pub mod pf {
    pub const EXITING: u32 = 0x0000_0004;
    pub const KTHREAD: u32 = 0x0020_0000;
}

/// `errno` values that kfuncs return.
pub mod errno {
    pub const ENOENT: i64 = 2;
    pub const EBUSY: i64 = 16;
    pub const EEXIST: i64 = 17;
    pub const EINVAL: i64 = 22;
    pub const EPROTO: i64 = 71;
    pub const EOPNOTSUPP: i64 = 95;
    /// The largest errno (`MAX_ERRNO`).
    pub const MAX: i64 = 4095;
}

/// `SCX_SLICE_DFL`, 20 ms in nanoseconds.
pub const SLICE_DFL: u64 = 20_000_000;
/// `SCX_SLICE_INF`: never expires.
pub const SLICE_INF: u64 = u64::MAX;
/// `SCX_DSP_DFL_MAX_BATCH`.
pub const DSP_DFL_MAX_BATCH: u32 = 32;
/// `SCX_DSP_MAX_LOOPS`.
pub const DSP_MAX_LOOPS: u32 = 32;
/// `BPF_F_TIMER_ABS`: a timer's time is absolute, not relative to now.
pub const BPF_F_TIMER_ABS: u64 = 1;
/// `BPF_MAX_LOOPS`: how often a loop of a program may go round.
pub const BPF_MAX_LOOPS: u32 = 8 << 20;
/// `SCX_REENQ_LOCAL_MAX_REPEAT`.
pub const REENQ_LOCAL_MAX_REPEAT: u32 = 256;
/// `SCX_WATCHDOG_MAX_TIMEOUT` in milliseconds.
pub const WATCHDOG_MAX_TIMEOUT_MS: u32 = 30_000;
/// `NUMA_NO_NODE`.
pub const NUMA_NO_NODE: i32 = -1;

/// `sched_prio_to_weight[]`: weight of nice −20 … 19.
pub const PRIO_TO_WEIGHT: [u32; 40] = [
    88_761, 71_755, 56_483, 46_273, 36_291, 29_154, 23_254, 18_705, 14_949, 11_916, 9_548, 7_620,
    6_100, 4_904, 3_906, 3_121, 2_501, 1_991, 1_586, 1_277, 1_024, 820, 655, 526, 423, 335, 272,
    215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];
/// `WEIGHT_IDLEPRIO`.
pub const WEIGHT_IDLEPRIO: u32 = 3;

/// The load weight of a nice level (`sched_prio_to_weight`).
pub fn load_weight(nice: i8) -> u32 {
    PRIO_TO_WEIGHT[usize::from((nice.clamp(-20, 19) + 20) as u8)]
}

/// `sched_weight_to_cgroup()`: 1,024 becomes 100.
pub fn cgroup_weight(weight: u32) -> u32 {
    // DIV_ROUND_CLOSEST_ULL(weight * CGROUP_WEIGHT_DFL, 1024), within CGROUP_WEIGHT_MIN and _MAX.
    ((weight * 100 + 512) / 1_024).clamp(1, 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_kernels() {
        for (nice, load, cgroup) in [
            (0, 1_024, 100),
            (-20, 88_761, 8_668),
            (19, 15, 1),
            (5, 335, 33),
        ] {
            assert_eq!(load_weight(nice), load, "nice {nice}");
            assert_eq!(cgroup_weight(load), cgroup, "nice {nice}");
        }
    }

    #[test]
    fn local_on_is_told_from_the_other_built_in_queues() {
        assert!(dsq_id::is_local_on(dsq_id::LOCAL_ON | 7));
        assert!(!dsq_id::is_local_on(dsq_id::LOCAL));
        assert!(!dsq_id::is_local_on(dsq_id::GLOBAL));
        assert!(!dsq_id::is_local_on(7));
    }
}
