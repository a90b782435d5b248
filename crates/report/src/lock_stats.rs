//! Holds the statistics of a lock: the terms of Lockmeter, in integers.

use std::cell::Cell;

use crate::Measures;
use crate::count::{add, raise};

/// Statistics of one lock, or of several added up.
///
/// An *attempt* is a completed one: a CPU that still spins when the run ends is not counted.
///
/// The two sums of a release do not lie side by side: the compiler would load and store both at once, which takes six
/// instructions instead of two.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LockStats {
    /// Attempts that got the lock, try-locks included.
    pub acquisitions: Cell<u64>,
    /// Releases seen.
    pub holds: Cell<u64>,
    /// Longest hold time.
    pub hold_ns_max: Cell<u64>,
    /// Summed hold times.
    pub hold_ns: Cell<u64>,
    /// Summed squares of the hold times.
    pub hold_ns_squared: Cell<u128>,
    /// Blocking attempts that found the lock held and waited for it.
    pub contended: Cell<u64>,
    /// Summed waits of the `contended` attempts.
    pub wait_ns: Cell<u64>,
    /// Longest wait.
    pub wait_ns_max: Cell<u64>,
    /// Try-locks that got the lock (part of `acquisitions`).
    pub try_acquired: Cell<u64>,
    /// Try-locks that found the lock held and gave up.
    pub try_failed: Cell<u64>,
}

impl LockStats {
    /// Forgets what was counted.
    pub fn clear(&self) {
        let counts = [
            &self.acquisitions,
            &self.holds,
            &self.hold_ns_max,
            &self.hold_ns,
            &self.contended,
            &self.wait_ns,
            &self.wait_ns_max,
            &self.try_acquired,
            &self.try_failed,
        ];
        counts.iter().for_each(|count| count.set(0));
        self.hold_ns_squared.set(0);
    }

    /// A lock was taken by a blocking attempt that `waited`, if it found it held.
    #[inline]
    pub fn acquired(&self, waited_ns: Option<u64>) {
        add(&self.acquisitions, 1);
        if let Some(waited_ns) = waited_ns {
            add(&self.contended, 1);
            self.wait_ns.set(self.wait_ns.get() + waited_ns);
            raise(&self.wait_ns_max, waited_ns);
        }
    }

    /// A try-lock succeeded, or not.
    pub fn tried(&self, success: bool) {
        if success {
            add(&self.acquisitions, 1);
            add(&self.try_acquired, 1);
        } else {
            add(&self.try_failed, 1);
        }
    }

    /// The lock was released after `held_ns`.
    #[inline]
    pub fn released(&self, held_ns: u64) {
        add(&self.holds, 1);
        // No other holder exists meanwhile: all together this is no more than the run's time.
        add(&self.hold_ns, held_ns);
        raise(&self.hold_ns_max, held_ns);
        // Each square is below 2^128, and the square of their sum is, too.
        let square = u128::from(held_ns) * u128::from(held_ns);
        self.hold_ns_squared
            .set(self.hold_ns_squared.get().wrapping_add(square));
    }

    /// Adds another lock's statistics.
    pub fn add(&self, other: &LockStats) {
        let sums =
            |of: fn(&LockStats) -> &Cell<u64>| of(self).set(of(self).get() + of(other).get());
        sums(|stats| &stats.acquisitions);
        sums(|stats| &stats.contended);
        sums(|stats| &stats.try_acquired);
        sums(|stats| &stats.try_failed);
        sums(|stats| &stats.wait_ns);
        sums(|stats| &stats.holds);
        sums(|stats| &stats.hold_ns);
        raise(&self.wait_ns_max, other.wait_ns_max.get());
        raise(&self.hold_ns_max, other.hold_ns_max.get());
        self.hold_ns_squared
            .set(self.hold_ns_squared.get() + other.hold_ns_squared.get());
    }

    /// Writes the measures `PREFIX.acquisitions` … `PREFIX.wait_ns_max`.
    pub fn measures(&self, prefix: &str, measures: &mut Measures) {
        let name = |measure: &str| format!("{prefix}.{measure}");
        measures.int(name("acquisitions"), self.acquisitions.get());
        measures.percent(
            name("contention_pct"),
            self.contended.get() + self.try_failed.get(),
            self.acquisitions.get() + self.try_failed.get(),
        );
        measures.percent(
            name("nf_contention_pct"),
            self.contended.get(),
            self.acquisitions.get() - self.try_acquired.get(),
        );
        if self.try_acquired.get() + self.try_failed.get() > 0 {
            measures.int(name("try_failed"), self.try_failed.get());
        }
        if self.holds.get() > 0 {
            measures.mean(
                name("hold_ns_mean"),
                u128::from(self.hold_ns.get()),
                self.holds.get(),
            );
            measures.int(name("hold_ns_max"), self.hold_ns_max.get());
            if let Some(cv) = self.hold_cv() {
                measures.float(name("hold_cv"), cv);
            }
        }
        if self.contended.get() > 0 {
            measures.mean(
                name("wait_ns_mean"),
                u128::from(self.wait_ns.get()),
                self.contended.get(),
            );
            measures.int(name("wait_ns_max"), self.wait_ns_max.get());
        }
    }

    /// Standard deviation of the hold times (of all of them, no sample) divided by their mean.
    fn hold_cv(&self) -> Option<f64> {
        // n·Σx² − (Σx)² is exact in integers, so equal hold times give exactly 0.
        let n = u128::from(self.holds.get());
        let sum = u128::from(self.hold_ns.get());
        let spread = n
            .checked_mul(self.hold_ns_squared.get())?
            .checked_sub(sum * sum)?;
        (sum > 0).then(|| (spread as f64).sqrt() / sum as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_measures_by_hand() {
        let lock = LockStats::default();
        lock.acquired(None);
        lock.acquired(Some(30));
        lock.acquired(Some(10));
        lock.tried(true);
        lock.tried(false);
        for held in [2, 4, 4, 6] {
            lock.released(held);
        }
        let mut measures = Measures::default();
        lock.measures("l", &mut measures);
        // 5 attempts, 2 waited, 1 try failed; variance of the holds (4+0+0+4)/4 = 2, mean 4.
        let expected = [
            ("l.acquisitions", 4.0),
            ("l.contention_pct", 60.0),
            ("l.nf_contention_pct", 200.0 / 3.0),
            ("l.try_failed", 1.0),
            ("l.hold_ns_mean", 4.0),
            ("l.hold_ns_max", 6.0),
            ("l.hold_cv", 2f64.sqrt() / 4.0),
            ("l.wait_ns_mean", 20.0),
            ("l.wait_ns_max", 30.0),
        ];
        let found: Vec<_> = measures
            .iter()
            .map(|(name, value)| (name, value.number().unwrap()))
            .collect();
        assert_eq!(found.len(), expected.len());
        for ((name, value), (expected_name, expected)) in found.iter().zip(expected) {
            assert_eq!(*name, expected_name);
            assert!(
                (value - expected).abs() < 1e-12,
                "{name}: {value}, not {expected}"
            );
        }
    }

    #[test]
    fn a_lock_nobody_took_has_no_shares_and_no_means() {
        let mut measures = Measures::default();
        LockStats::default().measures("l", &mut measures);
        assert_eq!(measures.iter().count(), 1);
        assert_eq!(measures.number("l.acquisitions"), Some(0.0));
    }

    #[test]
    fn adding_up_is_recording_both() {
        let (a, b, both) = Default::default();
        let fill = |lock: &LockStats, n: u64| {
            lock.acquired(Some(n));
            lock.tried(n.is_multiple_of(2));
            lock.released(3 * n);
        };
        fill(&a, 5);
        fill(&b, 4);
        fill(&both, 5);
        fill(&both, 4);
        a.add(&b);
        assert_eq!(a, both);
    }
}
