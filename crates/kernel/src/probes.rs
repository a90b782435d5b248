//! Reads the counts that policies keep about themselves: the per-CPU map `lab_probes` of `include/lab/probe.h`.

use schedlab_report::origin::Beside;
use schedlab_report::{Measures, Origin};

use crate::error::{Error, Result};
use crate::load::Loaded;

const MAP: &str = "lab_probes";

/// The counters in the order of `enum lab_probe`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
enum Probe {
    Examined,
    Recalculations,
    PickedElsewhere,
    FailedLookups,
    PinnedLocal,
    Schedules,
    LateMasks,
    LockAcquisitions,
    LockContended,
    LockTryFailures,
    LockHoldNs,
    LockHoldNsMax,
    LockWaitNs,
    LockWaitNsMax,
}

const NR_PROBES: usize = Probe::LockWaitNsMax as usize + 1;
const MAXIMA: [Probe; 2] = [Probe::LockHoldNsMax, Probe::LockWaitNsMax];

/// A reading of all counters, over all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reading([u64; NR_PROBES]);

impl Reading {
    /// Reads the counters; `None` where the policy has none. Sums are sums, maxima are maxima.
    ///
    /// # Errors
    /// The map cannot be read, or it has another number of counters than this program knows.
    pub fn take(policy: &Loaded) -> Result<Option<Reading>> {
        let Some(entries) = policy.per_cpu(MAP)? else {
            return Ok(None);
        };
        if entries.len() != NR_PROBES {
            return Err(Error::Option {
                policy: policy.name().to_owned(),
                problem: format!(
                    "was compiled with {} probes, this program knows {NR_PROBES}: build it again",
                    entries.len()
                ),
            });
        }
        let mut reading = Reading::default();
        for (index, cpus) in entries.iter().enumerate() {
            let values = cpus
                .iter()
                .filter_map(|bytes| Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?)));
            reading.0[index] = if MAXIMA.iter().any(|m| *m as usize == index) {
                values.max().unwrap_or(0)
            } else {
                values.sum()
            };
        }
        Ok(Some(reading))
    }

    /// Starts the maxima again; a CPU that writes one at this moment may keep it.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn clear_maxima(policy: &Loaded) -> Result<()> {
        MAXIMA
            .iter()
            .try_for_each(|probe| policy.clear_per_cpu(MAP, *probe as u32))
    }

    /// Returns the counts since an earlier reading, whose maxima were cleared.
    #[must_use]
    pub fn since(&self, earlier: &Reading) -> Reading {
        let mut difference = *self;
        for (index, (now, then)) in difference.0.iter_mut().zip(earlier.0).enumerate() {
            if !MAXIMA.iter().any(|m| *m as usize == index) {
                *now = now.saturating_sub(then);
            }
        }
        difference
    }
}

/// They are of the whole machine: a policy schedules every task on it.
impl Beside for Reading {
    const ORIGIN: Origin = Origin::Policy;

    fn measures(&self, m: &mut Measures) {
        let get = |probe: Probe| self.0[probe as usize];
        let choices = get(Probe::Schedules);
        if choices > 0 {
            m.int("schedule.choices", choices);
            m.mean(
                "schedule.examined_mean",
                get(Probe::Examined).into(),
                choices,
            );
            m.int("schedule.recalculations", get(Probe::Recalculations));
        }
        m.int("policy.picked_elsewhere", get(Probe::PickedElsewhere));
        m.int("policy.failed_lookups", get(Probe::FailedLookups));
        m.int("policy.pinned_local", get(Probe::PinnedLocal));
        m.int("policy.late_masks", get(Probe::LateMasks));
        let (taken, waited) = (get(Probe::LockAcquisitions), get(Probe::LockContended));
        let tries_failed = get(Probe::LockTryFailures);
        if taken + tries_failed > 0 {
            m.int("lock.runqueue.acquisitions", taken);
            m.percent(
                "lock.runqueue.contention_pct",
                waited + tries_failed,
                taken + tries_failed,
            );
            if tries_failed > 0 {
                m.int("lock.runqueue.try_failed", tries_failed);
            }
            m.mean(
                "lock.runqueue.hold_ns_mean",
                get(Probe::LockHoldNs).into(),
                taken,
            );
            m.int("lock.runqueue.hold_ns_max", get(Probe::LockHoldNsMax));
            if waited > 0 {
                m.mean(
                    "lock.runqueue.wait_ns_mean",
                    get(Probe::LockWaitNs).into(),
                    waited,
                );
                m.int("lock.runqueue.wait_ns_max", get(Probe::LockWaitNsMax));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use schedlab_report::origin::origin;
    use schedlab_report::{World, catalogue};

    const COUNTERS: [&str; NR_PROBES] = [
        "LAB_EXAMINED",
        "LAB_RECALCULATIONS",
        "LAB_PICKED_ELSEWHERE",
        "LAB_FAILED_LOOKUPS",
        "LAB_PINNED_LOCAL",
        "LAB_SCHEDULES",
        "LAB_LATE_MASKS",
        "LAB_LOCK_ACQUISITIONS",
        "LAB_LOCK_CONTENDED",
        "LAB_LOCK_TRY_FAILURES",
        "LAB_LOCK_HOLD_NS",
        "LAB_LOCK_HOLD_NS_MAX",
        "LAB_LOCK_WAIT_NS",
        "LAB_LOCK_WAIT_NS_MAX",
    ];

    /// The order is written down in the header; here is the copy.
    #[test]
    fn the_order_is_that_of_the_header() {
        let header = include_str!("../../../include/lab/probe.h");
        let body = header
            .split("enum lab_probe {")
            .nth(1)
            .and_then(|rest| rest.split("};").next())
            .unwrap();
        let names: Vec<&str> = body
            .lines()
            .filter_map(|line| line.trim().split([',', ' ', '\t']).next())
            .filter(|name| name.starts_with("LAB_") && !name.starts_with("LAB_NR_"))
            .collect();
        assert_eq!(names, COUNTERS);
    }

    /// A macro with the name of a counter replaces it wherever it is counted, and the counter stays 0.
    #[test]
    fn no_macro_has_the_name_of_a_counter() {
        let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/lab");
        let mut seen = 0;
        for entry in std::fs::read_dir(headers).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.lines() {
                let Some(macros) = line.strip_prefix("#define ") else {
                    continue;
                };
                let end = macros.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let name = &macros[..end.unwrap_or(macros.len())];
                assert!(!COUNTERS.contains(&name), "{}: {name}", path.display());
                seen += 1;
            }
        }
        assert!(seen > 50, "{seen} macros");
    }

    #[test]
    fn sums_are_differences_and_maxima_are_not() {
        let mut before = Reading::default();
        let mut after = Reading::default();
        before.0[Probe::Schedules as usize] = 10;
        after.0[Probe::Schedules as usize] = 14;
        after.0[Probe::Examined as usize] = 8;
        after.0[Probe::LockAcquisitions as usize] = 4;
        after.0[Probe::LockContended as usize] = 1;
        after.0[Probe::LockWaitNs as usize] = 70;
        before.0[Probe::LockWaitNsMax as usize] = 90;
        after.0[Probe::LockWaitNsMax as usize] = 70;
        let mut m = Measures::default();
        after.since(&before).measures(&mut m);
        assert_eq!(m.number("schedule.choices"), Some(4.0));
        assert_eq!(m.number("schedule.examined_mean"), Some(2.0));
        assert_eq!(m.number("lock.runqueue.contention_pct"), Some(25.0));
        assert_eq!(m.number("lock.runqueue.wait_ns_max"), Some(70.0));
    }

    #[test]
    fn every_measure_is_documented() {
        let mut m = Measures::default();
        Reading([1; NR_PROBES]).measures(&mut m);
        assert!(m.iter().count() >= NR_PROBES - 1);
        for (name, _) in m.iter() {
            assert!(catalogue::find(name).is_some(), "{name}");
            assert_eq!(origin(name, World::Kernel), Some(Reading::ORIGIN), "{name}");
        }
    }
}
