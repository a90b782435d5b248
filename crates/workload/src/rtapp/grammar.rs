//! rt-app's grammar: what a file says, and the words it says it with.
//!
//! Follows rt-app's doc/tutorial.txt and, where that is silent, src/rt-app_parse_config.c (both as of May
//! 2026). [`super::read`] gets it from the JSON tree.

use super::values::Place;
use crate::{CgroupSettings, SchedClass};

/// A file that was understood.
#[derive(Debug)]
pub(super) struct File {
    pub tasks: Vec<Task>,
    pub global: Global,
    /// Cgroups that the file gives settings.
    pub cgroups: Vec<(Cgroup, CgroupSettings)>,
    pub notes: Vec<String>,
}

/// The `global` object, as far as it concerns the run.
#[derive(Debug)]
pub(super) struct Global {
    /// Seconds; `None` = until all threads have ended.
    pub duration_s: Option<u64>,
    /// Below zero, rt-app has no buffer.
    pub mem_buffer_bytes: i32,
    pub cumulative_slack: bool,
    /// Mutexes have priority inheritance.
    pub pi_enabled: bool,
    pub default_class: Policy,
    /// Where `iorun` writes, if that is not /dev/null.
    pub io_device: Option<(String, Place)>,
}

#[derive(Debug)]
pub(super) struct Task {
    pub name: String,
    pub instances: u32,
    /// `None` = it never begins.
    pub delay_us: Option<u64>,
    /// Runs of all phases; `None` = for ever.
    pub loops: Option<u64>,
    pub class: SchedClass,
    pub nice: i8,
    pub cpus: Option<Cpus>,
    /// The cgroup that it joins after its delay.
    pub cgroup: Option<Cgroup>,
    pub phases: Vec<Phase>,
    /// Where it is defined.
    pub place: Place,
}

#[derive(Debug)]
pub(super) struct Phase {
    /// Runs of this phase; `None` = for ever.
    pub loops: Option<u64>,
    /// Class and nice level that it begins with; `None` = as they are.
    pub sched: Option<(SchedClass, i8)>,
    pub cpus: Option<Cpus>,
    /// The cgroup that it joins; `None` = it stays where it is.
    pub cgroup: Option<Cgroup>,
    pub events: Vec<(Event, Place)>,
}

/// The path of a cgroup and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Cgroup {
    pub path: String,
    pub place: Place,
}

/// A list of CPUs and where it stands.
#[derive(Debug)]
pub(super) struct Cpus {
    pub list: Vec<u32>,
    pub place: Place,
}

/// A scheduling policy without its priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    Other,
    Batch,
    Idle,
    Fifo,
    RoundRobin,
    Deadline,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Event {
    /// `None` = for ever, here and below.
    Run {
        us: Option<u64>,
    },
    Runtime {
        us: u64,
    },
    Sleep {
        us: Option<u64>,
    },
    Timer(Timer),
    /// The name it waits for, if the file gives one.
    Suspend(Option<String>),
    Resume(String),
    Lock(String),
    Unlock(String),
    Wait {
        condition: String,
        mutex: String,
    },
    Sync {
        condition: String,
        mutex: String,
    },
    Signal(String),
    Broadcast(String),
    Barrier(String),
    SemPost(String),
    SemWait(String),
    Mem {
        bytes: Option<u64>,
    },
    MemRun(MemRun),
    IoRun {
        bytes: Option<u64>,
    },
    Yield,
    Fork(String),
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Timer {
    pub name: String,
    /// `None` = it never fires.
    pub period_us: Option<u64>,
    pub absolute: bool,
}

impl Timer {
    /// One timer a thread instead of one for all.
    pub fn is_unique(&self) -> bool {
        self.name.starts_with("unique")
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct MemRun {
    pub kind: MemKind,
    pub size_bytes: u64,
    /// Bytes, or pointers to follow; `None` = for ever.
    pub count: Option<u64>,
    pub shared: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum MemKind {
    Read,
    Write,
    Chase { stride_bytes: u64, random: bool },
}

/// Every event, with longer names before those they begin with.
pub(super) const EVENTS: &[&str] = &[
    "runtime",
    "run",
    "sleep",
    "timer",
    "suspend",
    "resume",
    "lock",
    "unlock",
    "wait",
    "signal",
    "broadcast",
    "broad",
    "sync",
    "barrier",
    "memrun",
    "mem",
    "iorun",
    "yield",
    "fork",
    "sem_post",
    "sem_wait",
];
pub(super) const PHASE_PROPERTIES: &[&str] = &[
    "loop",
    "policy",
    "priority",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
    "cpus",
    "nodes_membind",
    "util_min",
    "util_max",
    "taskgroup",
];
pub(super) const TASK_PROPERTIES: &[&str] = &["instance", "delay", "phases", "period", "deadline"];
/// Of rt-app's own logs and calibration: known, checked, and without meaning for a model.
pub(super) const GLOBAL_OWN: &[&str] = &[
    "calibration",
    "logdir",
    "log_basename",
    "log_size",
    "ftrace",
    "gnuplot",
    "lock_pages",
];
pub(super) const GLOBAL_USED: &[&str] = &[
    "duration",
    "default_policy",
    "pi_enabled",
    "io_device",
    "mem_buffer_size",
    "cumulative_slack",
];
/// Keys of the file itself.
pub(super) const SECTIONS: &[&str] = &["tasks", "resources", "global", "cgroups"];
/// The words of `string_to_resource()`.
pub(super) const RESOURCE_TYPES: &[&str] = &[
    "mutex",
    "timer",
    "wait",
    "signal",
    "broadcast",
    "sync",
    "sleep",
    "run",
];
/// The words of `ftrace_setup()`.
pub(super) const FTRACE_CATEGORIES: &[&str] = &["main", "task", "loop", "event", "stats", "none"];

/// Returns the event that a key names: rt-app takes any key that begins with an event's name, so that keys can be
/// made unique (`run0`, `timerA`, `memrun_b`).
pub(super) fn event_of(key: &str) -> Option<&'static str> {
    EVENTS.iter().copied().find(|event| key.starts_with(event))
}

/// Returns whether a key names an event only because of how it begins: a small letter after the event's name is more
/// likely a typing error than what makes the key unique.
pub(super) fn is_doubtful(key: &str, event: &str) -> bool {
    let rest = key.strip_prefix(event).unwrap_or_default();
    rest.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Class and nice level that `policy` with `priority` means.
pub(super) fn class(
    policy: Policy,
    priority: Option<i32>,
) -> std::result::Result<(SchedClass, i8), String> {
    let nice = |priority: i32| {
        i8::try_from(priority)
            .ok()
            .filter(|nice| (-20..20).contains(nice))
            .ok_or_else(|| {
                format!("must be a nice level from -20 to 19 for this policy, not {priority}")
            })
    };
    let fixed = |priority: i32| {
        u8::try_from(priority)
            .ok()
            .filter(|n| (1..=99).contains(n))
            .ok_or_else(|| format!("must be from 1 to 99 for this policy, not {priority}"))
    };
    // Defaults: rt-app_types.h.
    Ok(match policy {
        Policy::Other => (SchedClass::Normal, nice(priority.unwrap_or(0))?),
        Policy::Batch => (SchedClass::Batch, nice(priority.unwrap_or(0))?),
        // rt-app sets no nice level, whatever the file says (`_set_thread_cfs()`).
        Policy::Idle => (SchedClass::Idle, 0),
        Policy::Fifo => (SchedClass::Fifo(fixed(priority.unwrap_or(10))?), 0),
        Policy::RoundRobin => (SchedClass::RoundRobin(fixed(priority.unwrap_or(10))?), 0),
        Policy::Deadline => unreachable!("SCHED_DEADLINE has a reservation, and no priority"),
    })
}
