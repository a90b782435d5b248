//! Defines every measure: one list for `schedlab list measures`, `docs/measures.md` and the tests.

/// A measure that every workload has. The workload's own come with its description.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name in results.
    pub name: &'static str,
    /// Unit; empty for a plain count.
    pub unit: &'static str,
    /// Definition.
    pub meaning: &'static str,
}

const fn entry(name: &'static str, unit: &'static str, meaning: &'static str) -> Entry {
    Entry {
        name,
        unit,
        meaning,
    }
}

/// Every measure of a simulation, in the order of results; most exist in a real kernel, too. Those of `lock.runqueue` exist also as `lock.rq.…` (the
/// kernel's per-CPU runqueue locks) and split by the path that took the lock, for example
/// `lock.runqueue.schedule.hold_ns_mean`, and as `lock.shared.…` (objects of the kernel that calls share) ([`LOCK_PREFIXES`]).
pub const ENTRIES: &[Entry] = &[
    entry(
        "score",
        "score_unit",
        "the workload's own result, also under its own name",
    ),
    entry("score_unit", "", "unit of the score, a word"),
    entry(
        "score_better",
        "",
        "which score is better: `higher` or `lower`",
    ),
    entry(
        "makespan_ns",
        "ns",
        "time from the start of the run until the last task ended, or until the workload's own end; absent where the run failed",
    ),
    entry(
        "end_ns",
        "ns",
        "time from the start of the run until it ended, for whatever reason",
    ),
    entry(
        "work",
        "",
        "units of work that the tasks reported done (messages, rounds …)",
    ),
    entry("schedule.calls", "", "entries into schedule()"),
    entry(
        "schedule.time_ns_mean",
        "ns",
        "time from the entry until the next task is chosen: lock waits included, the context switch not",
    ),
    entry("schedule.time_ns_max", "ns", "the longest of these"),
    entry(
        "schedule.cycles_mean",
        "cycles",
        "the mean in cycles of the machine's clock",
    ),
    entry(
        "schedule.memory_wait_ns_mean",
        "ns",
        "the part of schedule.time_ns_mean by which accesses to the scheduler's lines exceeded cache hits: waits for memory, another cache or the bus. The hand-over of a lock is a wait for the lock and not included",
    ),
    entry(
        "schedule.memory_wait_pct",
        "%",
        "the same, as a share of the time in schedule()",
    ),
    entry(
        "schedule.examined_mean",
        "",
        "tasks looked at as candidates, per call",
    ),
    entry(
        "schedule.examined_max",
        "",
        "the most tasks looked at in one call",
    ),
    entry(
        "schedule.recalculations",
        "",
        "entries into the loop that recalculates all counters",
    ),
    entry(
        "schedule.picked_elsewhere",
        "",
        "starts of a task that last ran on another CPU",
    ),
    entry(
        "schedule.priority_inversions",
        "",
        "starts of a task while another one of higher priority (deadline, real-time, then by nice level, then `SCHED_IDLE`; inherited priorities count) that may run on that CPU waited anywhere on the machine",
    ),
    entry(
        "deadline.throttled",
        "",
        "how often a deadline task had used up its runtime, or given the rest away, before its period ended; only where there are deadline tasks",
    ),
    entry(
        "deadline.missed",
        "",
        "how often the absolute deadline of a deadline task passed before it had got its runtime; only where there are deadline tasks",
    ),
    entry(
        "runqueue.len_mean",
        "",
        "runnable tasks of the machine at an entry into schedule(): running ones count, idle tasks do not, and the previous task is not yet removed",
    ),
    entry("runqueue.len_max", "", "the most of them"),
    entry(
        "runqueue.cpu_len_mean",
        "",
        "the same for the queue of the CPU that schedules",
    ),
    entry("runqueue.cpu_len_max", "", "the most of them"),
    entry(
        "runqueue.cpu_deviation_mean",
        "",
        "mean distance of that CPU's queue from the machine-wide length divided by the number of CPUs",
    ),
    entry(
        "lock.runqueue.acquisitions",
        "",
        "successful attempts to take a run-queue lock: the policy's own run queues and its dispatch queues (DSQs)",
    ),
    entry(
        "lock.runqueue.contention_pct",
        "%",
        "share of attempts that found the lock held, failed try-locks included",
    ),
    entry(
        "lock.runqueue.nf_contention_pct",
        "%",
        "the same without try-locks",
    ),
    entry(
        "lock.runqueue.try_failed",
        "",
        "try-locks that found the lock held; absent where nothing tries",
    ),
    entry(
        "lock.runqueue.hold_ns_mean",
        "ns",
        "time from taking a lock to releasing it",
    ),
    entry("lock.runqueue.hold_ns_max", "ns", "the longest"),
    entry(
        "lock.runqueue.hold_cv",
        "",
        "standard deviation of the hold times divided by their mean",
    ),
    entry(
        "lock.runqueue.wait_ns_mean",
        "ns",
        "wait of the attempts that waited; hand-over included",
    ),
    entry("lock.runqueue.wait_ns_max", "ns", "the longest"),
    entry(
        "switches.total",
        "",
        "starts of a task on a CPU that ran another task or idled",
    ),
    entry(
        "switches.voluntary",
        "",
        "a task left its CPU because it blocked or ended",
    ),
    entry(
        "switches.involuntary",
        "",
        "a task left its CPU while runnable: preempted, slice over or yielded (as the kernel counts)",
    ),
    entry(
        "switches.yielded",
        "",
        "involuntary switches that the task requested by sched_yield()",
    ),
    entry("migrations.total", "", "changes of a task's CPU"),
    entry("migrations.smt", "", "… within a core"),
    entry(
        "migrations.llc",
        "",
        "… to another core with the same last-level cache",
    ),
    entry(
        "migrations.node",
        "",
        "… to another last-level cache of the same node",
    ),
    entry("migrations.remote", "", "… to another NUMA node"),
    entry("ipis", "", "reschedule interrupts sent"),
    entry(
        "wakeup.latency_ns_p50",
        "ns",
        "time from the decision to wake a sleeping task (sched_waking; not for new tasks) until it runs: median. None of these includes waits that the end of the run cuts off; see wakeup.unfinished_ns_max",
    ),
    entry(
        "wakeup.latency_ns_p90",
        "ns",
        "90th percentile; percentiles have three significant digits",
    ),
    entry("wakeup.latency_ns_p99", "ns", "99th percentile"),
    entry("wakeup.latency_ns_p99_9", "ns", "99.9th percentile"),
    entry("wakeup.latency_ns_mean", "ns", "mean, exact"),
    entry("wakeup.latency_ns_max", "ns", "maximum, exact"),
    entry(
        "wakeup.unfinished",
        "",
        "tasks that were woken (not new ones) and had not yet run when the run ended",
    ),
    entry(
        "wakeup.unfinished_ns_max",
        "ns",
        "the longest wait of these tasks until then; 0 without such tasks",
    ),
    entry(
        "wait.ns_max",
        "ns",
        "the longest that a runnable task waited until it got a CPU, be it new, woken or preempted",
    ),
    entry(
        "wait.unfinished_ns_max",
        "ns",
        "the longest wait, at the end of the run, of a runnable task that did not get a CPU any more; 0 without such a task. A task that starves to the end shows here",
    ),
    entry(
        "cpu.idle_pct",
        "%",
        "CPU time without anything to run, as a share of the time of all CPUs",
    ),
    entry("cpu.user_pct", "%", "CPU time in the tasks' own code"),
    entry(
        "cpu.kernel_pct",
        "%",
        "CPU time in system calls and interrupts, without the scheduler",
    ),
    entry(
        "cpu.spin_pct",
        "%",
        "CPU time spent spinning: on locks of the scheduler, in wakeups for a task that is still leaving its CPU, for a kicked CPU to schedule (SCX_KICK_WAIT) and for another CPU that is just enqueueing or dispatching the task",
    ),
    entry(
        "sched.share_of_kernel_pct",
        "%",
        "time in the scheduler, spinning included, as a share of the time in the kernel (scheduler included)",
    ),
    entry(
        "sched.share_of_all_pct",
        "%",
        "time in the scheduler, spinning included, as a share of the time of all CPUs",
    ),
    entry("ticks", "", "periodic timer interrupts"),
    entry(
        "fairness.jain",
        "",
        "Jain's index of x over all tasks that ever wanted a CPU otherwise than as real-time tasks, x = CPU time · 1024 / weight / time runnable or running; 1 = equal. It is meaningful only where CPUs are contended",
    ),
    entry(
        "policy.failed_lookups",
        "",
        "look-ups of a task by the policy that found none",
    ),
    entry(
        "policy.cpuperf_requests",
        "",
        "calls of scx_bpf_cpuperf_set(), without effect: the simulator's frequencies are fixed. Only of policies that call it",
    ),
    entry(
        "policy.pinned_local",
        "",
        "tasks that the kernel put into their CPU's local queue past the policy: migration-disabled or exiting",
    ),
    entry(
        "cache.accesses",
        "",
        "accesses of the scheduler to modelled cache lines",
    ),
    entry("cache.misses", "", "those that missed the CPU's cache"),
    entry(
        "cache.misses_first",
        "",
        "misses by cause: of lines that no CPU had accessed before",
    ),
    entry(
        "cache.misses_coherence",
        "",
        "… of lines that this cache still held, but that another core had written since",
    ),
    entry(
        "cache.misses_absent",
        "",
        "… of all other lines: the application's or other lines had replaced them in this cache, or it never had them",
    ),
    entry("cache.from_memory", "", "misses that memory served"),
    entry(
        "cache.from_llc",
        "",
        "misses that the shared last-level cache served",
    ),
    entry(
        "cache.transfers",
        "",
        "misses that another CPU's cache served, because it held the line modified",
    ),
    entry(
        "cache.invalidations",
        "",
        "writes that made other CPUs' copies invalid",
    ),
    entry(
        "cache.bus_transactions",
        "",
        "accesses that had to leave the last-level cache",
    ),
    entry(
        "cache.bus_memory",
        "",
        "bus transactions by cause: to read a line from memory",
    ),
    entry(
        "cache.bus_transfers",
        "",
        "… to read a line that a cache below another last-level cache held modified",
    ),
    entry(
        "cache.bus_invalidations",
        "",
        "… to invalidate copies below other last-level caches, the data being there already",
    ),
    entry(
        "cache.task.misses",
        "",
        "misses of the kernel's task structures",
    ),
    entry(
        "cache.task.bus_transactions",
        "",
        "bus transactions for the kernel's task structures",
    ),
    entry(
        "cache.bus_transactions_per_work",
        "",
        "… per unit of the workload's work (request, message …)",
    ),
    entry(
        "cache.bus_wait_ns",
        "ns",
        "time that accesses waited for the bus, in total",
    ),
];

/// Measures that only a real kernel or real threads have.
pub const REAL_ENTRIES: &[Entry] = &[
    entry("tasks", "", "threads that ever existed"),
    entry(
        "schedule.choices",
        "",
        "choices that the policy made; schedule.examined_mean is per choice here",
    ),
    entry(
        "policy.picked_elsewhere",
        "",
        "tasks that the policy chose for another CPU than their last",
    ),
    entry(
        "policy.late_masks",
        "",
        "tasks that were no longer allowed on the CPU when the policy looked at their real mask",
    ),
    entry(
        "lock.rq.queued_waits",
        "",
        "waits for a run-queue lock of the kernel behind another waiter",
    ),
    entry("lock.rq.queued_wait_ns_mean", "ns", "their mean"),
    entry("lock.rq.queued_wait_ns_max", "ns", "the longest"),
    entry(
        "lock.spin.queued_waits",
        "",
        "the same for every other spin lock of the kernel",
    ),
    entry("lock.spin.queued_wait_ns_mean", "ns", "their mean"),
    entry("lock.spin.queued_wait_ns_max", "ns", "the longest"),
    entry(
        "switches.system",
        "",
        "context switches of the whole machine, not of the workload's tasks alone",
    ),
    entry(
        "lost_records",
        "",
        "events that could not be recorded: every measure that counts events is then absent",
    ),
];

/// Prefixes of lock measures.
pub const LOCK_PREFIXES: [&str; 9] = [
    "lock.runqueue",
    "lock.runqueue.schedule",
    "lock.runqueue.wakeup",
    "lock.runqueue.other",
    "lock.rq",
    "lock.rq.schedule",
    "lock.rq.wakeup",
    "lock.rq.other",
    "lock.shared",
];

/// Prefixes of the cache measures by the contents of the line: the measures of `cache.task` exist for each.
pub const CACHE_PREFIXES: [&str; 6] = [
    "cache.globals",
    "cache.rq",
    "cache.dsq",
    "cache.lock",
    "cache.arena",
    "cache.task",
];

/// Returns the entry that defines a measure, be it of the simulator or of the real kernel; `None` for the workload's
/// own ones.
pub fn find(name: &str) -> Option<&'static Entry> {
    let all = || ENTRIES.iter().chain(REAL_ENTRIES);
    let exact = |name: &str| all().find(|entry| entry.name == name);
    exact(name).or_else(|| {
        let (prefix, measure) = name.rsplit_once('.')?;
        let family = if LOCK_PREFIXES.contains(&prefix) {
            "lock.runqueue"
        } else if CACHE_PREFIXES.contains(&prefix) {
            "cache.task"
        } else {
            return None;
        };
        exact(&format!("{family}.{measure}"))
    })
}

/// Returns a list as a Markdown table, its first column headed by `title`.
pub fn markdown(title: &str, entries: &[Entry]) -> String {
    let mut text = format!("| {title} | unit | meaning |\n|---|---|---|\n");
    for entry in entries {
        let Entry {
            name,
            unit,
            meaning,
        } = entry;
        text.push_str(&format!("| `{name}` | {unit} | {meaning} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_measures_are_found_under_every_prefix() {
        for prefix in LOCK_PREFIXES {
            assert!(find(&format!("{prefix}.hold_cv")).is_some(), "{prefix}");
        }
        for prefix in CACHE_PREFIXES {
            assert!(find(&format!("{prefix}.misses")).is_some(), "{prefix}");
        }
        assert!(find("lock.nothing.hold_cv").is_none());
        assert!(find("cache.nothing.misses").is_none());
        assert!(find("cache.dsq.hold_cv").is_none());
        assert!(find("messages_per_read").is_none());
    }

    #[test]
    fn names_are_unique() {
        let all: Vec<_> = ENTRIES.iter().chain(REAL_ENTRIES).collect();
        for (i, entry) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other.name != entry.name));
        }
    }

    /// `docs/measures.md` holds these lists. To renew it: `SCHEDLAB_BLESS=1 cargo test -p schedlab-report`.
    #[test]
    fn the_document_lists_every_measure() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/measures.md");
        let text = std::fs::read_to_string(path).unwrap();
        let mut expected = text.clone();
        for (title, entries) in [
            ("measure", ENTRIES),
            ("measure of a real kernel", REAL_ENTRIES),
        ] {
            let (before, rest) = expected
                .split_once(&format!("\n| {title} |"))
                .unwrap_or_else(|| panic!("no table of {title}"));
            let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
            expected = format!("{before}\n{}\n{after}", markdown(title, entries));
        }
        if std::env::var_os("SCHEDLAB_BLESS").is_some() {
            std::fs::write(path, &expected).unwrap();
        } else {
            assert!(
                text == expected,
                "docs/measures.md is out of date: SCHEDLAB_BLESS=1 cargo test -p schedlab-report"
            );
        }
    }
}
