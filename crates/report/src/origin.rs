//! Where a measure comes from, in each world.

use crate::Measures;
use crate::catalogue::{ENTRIES, REAL_ENTRIES, find};

/// The two worlds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum World {
    Simulator,
    Kernel,
}

/// Where a measure comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The event stream.
    Events,
    /// The event stream; where it is not told, programs at the same tracepoints count the same.
    EventsOrCounters,
    /// Programs at tracepoints of the kernel, of which no event is told: it would cost too much.
    Counters,
    /// The policy's own counters.
    Policy,
    /// The model of the caches.
    Caches,
    /// The workload's own report.
    Workload,
}

impl Origin {
    /// As the documentation names it.
    pub fn words(self) -> &'static str {
        match self {
            Origin::Events => "events",
            Origin::EventsOrCounters => "events or counters",
            Origin::Counters => "counters",
            Origin::Policy => "policy",
            Origin::Caches => "caches",
            Origin::Workload => "workload",
        }
    }

    /// Whether a file of events is enough to compute it.
    pub fn is_of_events(self) -> bool {
        matches!(self, Origin::Events | Origin::EventsOrCounters)
    }
}

/// A source of measures beside the events.
pub trait Beside {
    /// Where all of them come from.
    const ORIGIN: Origin;
    /// Adds its measures.
    fn measures(&self, measures: &mut Measures);
}

/// Measures that the kernel's counters have, too.
const COUNTED: [&str; 21] = [
    "schedule.picked_elsewhere",
    "schedule.priority_inversions",
    "runqueue.len_mean",
    "runqueue.len_max",
    "switches.total",
    "switches.voluntary",
    "switches.involuntary",
    "switches.yielded",
    "migrations.total",
    "migrations.smt",
    "migrations.llc",
    "migrations.node",
    "migrations.remote",
    "ipis",
    "wakeup.latency_ns_p50",
    "wakeup.latency_ns_p90",
    "wakeup.latency_ns_p99",
    "wakeup.latency_ns_p99_9",
    "wakeup.latency_ns_mean",
    "wakeup.latency_ns_max",
    "fairness.jain",
];

/// The own counters of a policy in a real kernel, besides `policy.…`.
const COUNTED_BY_POLICIES: [&str; 10] = [
    "schedule.choices",
    "schedule.examined_mean",
    "schedule.recalculations",
    "lock.runqueue.acquisitions",
    "lock.runqueue.contention_pct",
    "lock.runqueue.try_failed",
    "lock.runqueue.hold_ns_mean",
    "lock.runqueue.hold_ns_max",
    "lock.runqueue.wait_ns_mean",
    "lock.runqueue.wait_ns_max",
];

/// Where a measure that every workload may have comes from; `None` if that world does not have it, or nothing tells of
/// such a measure.
pub fn origin(name: &str, world: World) -> Option<Origin> {
    find(name)?;
    let is_real_only = REAL_ENTRIES.iter().any(|entry| entry.name == name);
    match name {
        "score" | "score_unit" | "score_better" | "makespan_ns" => return Some(Origin::Workload),
        _ if name.starts_with("policy.") => {
            return (world == World::Kernel || !is_real_only).then_some(Origin::Policy);
        }
        _ => {}
    }
    match world {
        World::Simulator if is_real_only => None,
        World::Simulator if name.starts_with("cache.") => Some(Origin::Caches),
        World::Simulator => Some(Origin::Events),
        World::Kernel => match name {
            "work" | "tasks" => Some(Origin::Workload),
            "lost_records" | "cpu.idle_pct" => Some(Origin::Counters),
            _ if COUNTED_BY_POLICIES.contains(&name) => Some(Origin::Policy),
            _ if is_real_only => Some(Origin::Counters),
            _ if COUNTED.contains(&name) => Some(Origin::EventsOrCounters),
            "end_ns" => Some(Origin::Events),
            _ if name.starts_with("wakeup.") || name.starts_with("wait.") => Some(Origin::Events),
            _ => None,
        },
    }
}

/// The origins of all measures that every workload may have, as a Markdown table.
pub fn markdown() -> String {
    let mut text = "| measure from | simulator | real kernel |\n|---|---|---|\n".to_owned();
    for entry in ENTRIES.iter().chain(REAL_ENTRIES) {
        let [simulator, kernel] = [World::Simulator, World::Kernel]
            .map(|world| origin(entry.name, world).map_or("", Origin::words));
        text.push_str(&format!("| `{}` | {simulator} | {kernel} |\n", entry.name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measure_comes_from_somewhere() {
        for entry in ENTRIES.iter().chain(REAL_ENTRIES) {
            let origins = [World::Simulator, World::Kernel].map(|w| origin(entry.name, w));
            assert!(origins.iter().any(Option::is_some), "{}", entry.name);
        }
        for name in COUNTED.iter().chain(&COUNTED_BY_POLICIES) {
            assert!(find(name).is_some(), "{name}");
        }
    }

    /// `docs/measures.md` has the table. To renew it: `SCHEDLAB_BLESS=1 cargo test -p schedlab-report`.
    #[test]
    fn the_document_tells_where_measures_come_from() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/measures.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (before, rest) = text.split_once("\n| measure from |").expect("a table");
        let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
        let expected = format!("{before}\n{}\n{after}", markdown());
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
