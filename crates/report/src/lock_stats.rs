//! What is kept of a lock: the terms of Lockmeter, in integers.

use crate::Measures;
use crate::count::count;

/// Statistics of one lock, or of several added up.
///
/// An *attempt* is a completed one: a CPU that still spins when the run ends is not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockStats {
    /// Attempts that got the lock, try-locks included.
    pub acquisitions: u64,
    /// Blocking attempts that found the lock held and waited for it.
    pub contended: u64,
    /// Try-locks that got the lock (part of `acquisitions`).
    pub try_acquired: u64,
    /// Try-locks that found the lock held and gave up.
    pub try_failed: u64,
    /// Summed waits of the `contended` attempts.
    pub wait_ns: u64,
    /// Longest wait.
    pub wait_ns_max: u64,
    /// Releases seen.
    pub holds: u64,
    /// Summed hold times.
    pub hold_ns: u64,
    /// Longest hold time.
    pub hold_ns_max: u64,
    /// Summed squares of the hold times.
    pub hold_ns_squared: u128,
}

impl LockStats {
    /// A lock was taken by a blocking attempt that `waited`, if it found it held.
    #[inline]
    pub fn acquired(&mut self, waited_ns: Option<u64>) {
        count(&mut self.acquisitions);
        if let Some(waited_ns) = waited_ns {
            count(&mut self.contended);
            self.wait_ns += waited_ns;
            self.wait_ns_max = self.wait_ns_max.max(waited_ns);
        }
    }

    /// A try-lock succeeded, or not.
    pub fn tried(&mut self, success: bool) {
        if success {
            count(&mut self.acquisitions);
            count(&mut self.try_acquired);
        } else {
            count(&mut self.try_failed);
        }
    }

    /// The lock was released after `held_ns`.
    #[inline]
    pub fn released(&mut self, held_ns: u64) {
        count(&mut self.holds);
        self.hold_ns += held_ns;
        self.hold_ns_max = self.hold_ns_max.max(held_ns);
        self.hold_ns_squared += u128::from(held_ns) * u128::from(held_ns);
    }

    /// Adds another lock's statistics.
    pub fn add(&mut self, other: &LockStats) {
        self.acquisitions += other.acquisitions;
        self.contended += other.contended;
        self.try_acquired += other.try_acquired;
        self.try_failed += other.try_failed;
        self.wait_ns += other.wait_ns;
        self.wait_ns_max = self.wait_ns_max.max(other.wait_ns_max);
        self.holds += other.holds;
        self.hold_ns += other.hold_ns;
        self.hold_ns_max = self.hold_ns_max.max(other.hold_ns_max);
        self.hold_ns_squared += other.hold_ns_squared;
    }

    /// Writes the measures `PREFIX.acquisitions` … `PREFIX.wait_ns_max`.
    pub fn measures(&self, prefix: &str, measures: &mut Measures) {
        let name = |measure: &str| format!("{prefix}.{measure}");
        measures.int(name("acquisitions"), self.acquisitions);
        measures.percent(
            name("contention_pct"),
            self.contended + self.try_failed,
            self.acquisitions + self.try_failed,
        );
        measures.percent(
            name("nf_contention_pct"),
            self.contended,
            self.acquisitions - self.try_acquired,
        );
        if self.try_acquired + self.try_failed > 0 {
            measures.int(name("try_failed"), self.try_failed);
        }
        if self.holds > 0 {
            measures.mean(name("hold_ns_mean"), u128::from(self.hold_ns), self.holds);
            measures.int(name("hold_ns_max"), self.hold_ns_max);
            if let Some(cv) = self.hold_cv() {
                measures.float(name("hold_cv"), cv);
            }
        }
        if self.contended > 0 {
            measures.mean(
                name("wait_ns_mean"),
                u128::from(self.wait_ns),
                self.contended,
            );
            measures.int(name("wait_ns_max"), self.wait_ns_max);
        }
    }

    /// Standard deviation of the hold times (of all of them, no sample) divided by their mean.
    fn hold_cv(&self) -> Option<f64> {
        // n·Σx² − (Σx)² is exact in integers, so equal hold times give exactly 0.
        let n = u128::from(self.holds);
        let sum = u128::from(self.hold_ns);
        let spread = n
            .checked_mul(self.hold_ns_squared)?
            .checked_sub(sum * sum)?;
        (sum > 0).then(|| (spread as f64).sqrt() / sum as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_measures_by_hand() {
        let mut lock = LockStats::default();
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
        let (mut a, mut b, mut both) = Default::default();
        let fill = |lock: &mut LockStats, n: u64| {
            lock.acquired(Some(n));
            lock.tried(n.is_multiple_of(2));
            lock.released(3 * n);
        };
        fill(&mut a, 5);
        fill(&mut b, 4);
        fill(&mut both, 5);
        fill(&mut both, 4);
        a.add(&b);
        assert_eq!(a, both);
    }
}
