//! The fields of a task that change while it lives.

/// Fields of `struct task_struct` (include/linux/sched.h) that the virtual kernel keeps for itself, as they are at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TaskFacts {
    /// `se.sum_exec_runtime`, as of the last `update_curr()`.
    pub sum_exec_ns: u64,
    /// `utime`: a tick is accounted to the mode that it meets (`account_process_tick()`, kernel/sched/cputime.c).
    pub utime_ns: u64,
    /// `stime`, likewise.
    pub stime_ns: u64,
    /// `nvcsw` and `nivcsw` (`__schedule()`, kernel/sched/core.c).
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// `sched_info` (kernel/sched/stats.h): since when it waits for a CPU, 0 if it does not; how long it has waited; how often it was
    /// switched in, and when last.
    pub last_queued_ns: u64,
    pub run_delay_ns: u64,
    pub arrivals: u64,
    pub last_arrival_ns: u64,
    /// `start_time`, when it was forked.
    pub start_ns: u64,
    /// `__state`: `TASK_RUNNING`, `TASK_INTERRUPTIBLE`, `TASK_DEAD`, `TASK_WAKING` or `TASK_NEW`.
    pub state: u32,
    /// `on_cpu`.
    pub on_cpu: bool,
    /// `on_rq`.
    pub on_rq: u32,
    /// The id of `scx.dsq` and how many tasks are in it; `None` where it is NULL.
    pub dsq: Option<(u64, u32)>,
    /// `scx.ddsp_dsq_id` and `scx.ddsp_enq_flags`.
    pub ddsp_dsq_id: u64,
    pub ddsp_enq_flags: u64,
    /// `scx.runnable_at`, in jiffies.
    pub runnable_at: u64,
    /// `scx.selected_cpu`: what `ops.select_cpu()` returned last.
    pub selected_cpu: i32,
}
