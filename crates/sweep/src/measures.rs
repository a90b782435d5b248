//! The measures that a sweep keeps of each run.

/// The measures that rows keep, by their names in results. What a run did not measure is absent; so are all of a
/// measure that the program did not keep yet when it wrote a file.
pub const MEASURES: &[&str] = &[
    "score",
    "makespan_ns",
    "work",
    "wakeup.latency_ns_mean",
    "wakeup.latency_ns_p50",
    "wakeup.latency_ns_p99",
    "wakeup.latency_ns_p99_9",
    "wakeup.latency_ns_max",
    "switches.total",
    "switches.involuntary",
    "migrations.total",
    "migrations.smt",
    "migrations.llc",
    "migrations.node",
    "migrations.remote",
    "schedule.calls",
    "schedule.time_ns_mean",
    "schedule.memory_wait_pct",
    "runqueue.cpu_deviation_mean",
    "lock.runqueue.contention_pct",
    "lock.runqueue.wait_ns_mean",
    "cpu.idle_pct",
    "cpu.user_pct",
    "sched.share_of_all_pct",
    "fairness.jain",
];

/// The measures that rows keep of each part of a workload that is composed of several, behind the part's name.
pub const PART_MEASURES: &[&str] = &[
    "score",
    "makespan_ns",
    "work",
    "cpu_ns",
    "wakeup.latency_ns_mean",
    "wakeup.latency_ns_p50",
    "wakeup.latency_ns_p99",
    "wakeup.latency_ns_p99_9",
    "wakeup.latency_ns_max",
];
