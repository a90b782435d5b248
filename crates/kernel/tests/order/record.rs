//! The report of a case in both worlds: the turns of the yielders, in their order.

use serde::{Deserialize, Serialize};

/// Numbers of yielders.
pub const SIZES: [u32; 8] = [2, 3, 5, 10, 20, 50, 100, 200];

/// How often each yielder yields: enough turns where there are few of them, bounded time where many.
pub const fn yields(yielders: u32) -> u32 {
    if yielders < 20 { 400 / yielders } else { 20 }
}

/// Policies, with options that keep the end of a slice out of the comparison: when it comes depends on
/// the timer's phase. (Those that count ticks have slices of an hour.)
///
/// `o1` is not among them: its priorities come from a history of sleep by whole seconds of the clock,
/// which is not the same one in both worlds. Its orders agree for up to 20 yielders.
pub const POLICIES: [(&str, &[(&str, &str)]); 10] = [
    ("fifo", &[("slice_us", "100000000")]),
    ("vtime", &[("slice_us", "100000000")]),
    ("dss", &[]),
    ("elsc", &[]),
    ("elsc-heap", &[]),
    ("pls", &[]),
    ("mq", &[]),
    ("mq-local", &[]),
    ("mq-pool", &[]),
    ("o1-26", &[]),
];

/// How a turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum End {
    /// By sched_yield().
    Yield,
    /// The yielder waits.
    Block,
    /// It was neither: another task was put in its place.
    Preempted,
}

/// A yielder has the CPU, until it leaves it to another yielder or to none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Turn {
    /// Which yielder; they are woken in the order of their numbers.
    pub task: u32,
    /// How long it ran by the clock of `scx_bpf_now()`, without interruptions by others.
    pub ran_ns: u64,
    /// How often it called sched_yield(); only the last time can have ended the turn.
    pub yields: u32,
    /// How it ended.
    pub end: End,
    /// Tasks examined (`examine()` of include/lab/probe.h) since the end of the turn before, hence by
    /// the choice of this one.
    pub examined: u64,
}

/// The kernel's choices.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// The policy.
    pub policy: String,
    /// Number of yielders.
    pub yielders: u32,
    /// Number of attempts until no task cut in on a yield.
    pub attempts: u32,
    /// How often others took the CPU for a while.
    pub interruptions: u32,
    /// The turns of the yielders.
    pub turns: Vec<Turn>,
}
