//! Repeated measurements of one quantity, and their spread.

use std::time::{Duration, Instant};

/// Sorted measurements in picoseconds.
#[derive(Clone, Debug)]
pub struct Sample {
    ps: Vec<u64>,
}

impl Sample {
    /// Calls `measure` up to `times` times, but stops after `budget` once it has some results.
    /// `measure` answers with picoseconds, or `None` where a repetition did not measure what it should.
    /// `None` if no repetition did.
    pub fn collect(
        times: usize,
        budget: Duration,
        mut measure: impl FnMut() -> Option<u64>,
    ) -> Option<Sample> {
        let start = Instant::now();
        let mut ps = Vec::with_capacity(times);
        for _ in 0..times {
            ps.extend(measure());
            if start.elapsed() > budget {
                break;
            }
        }
        Sample::of(ps)
    }

    /// Makes a sample of measurements in any order; `None` of no measurements.
    pub fn of(mut ps: Vec<u64>) -> Option<Sample> {
        ps.sort_unstable();
        (!ps.is_empty()).then_some(Sample { ps })
    }

    /// The measurement below which `percent` of all lie.
    fn percentile(&self, percent: usize) -> u64 {
        self.ps[(self.ps.len() - 1) * percent / 100]
    }

    /// The median, in picoseconds.
    pub fn median(&self) -> u64 {
        self.percentile(50)
    }

    /// Each measurement less something that it contained; never below zero.
    #[must_use]
    pub fn less(&self, ps: u64) -> Sample {
        let less = self.ps.iter().map(|one| one.saturating_sub(ps));
        Sample { ps: less.collect() }
    }

    /// Each measurement divided among `parts`.
    #[must_use]
    pub fn divided(&self, parts: u64) -> Sample {
        let divided = self.ps.iter().map(|one| one / parts);
        Sample {
            ps: divided.collect(),
        }
    }

    /// Whether the measurements lie so far apart that their median says little.
    pub fn is_noisy(&self) -> bool {
        self.percentile(90) > 2 * self.median()
    }

    /// The source text of a number that is this sample's median.
    pub fn source(&self, what: &str) -> String {
        let ns = |ps: u64| match ps {
            // Below 100 ns the fraction matters; integers keep out floating-point noise.
            0..100_000 => format!("{}.{}", ps / 1_000, ps % 1_000 / 100),
            _ => (ps / 1_000).to_string(),
        };
        format!(
            "measured: median of {}, min {}, p10–p90 {}–{} ns: {what}",
            self.ps.len(),
            ns(self.ps[0]),
            ns(self.percentile(10)),
            ns(self.percentile(90)),
        )
    }
}

/// Picoseconds that one of `operations` took, which all together took as long as since `start`.
pub fn ps_each(start: Instant, operations: u64) -> u64 {
    let ps = start.elapsed().as_nanos() * 1_000 / u128::from(operations.max(1));
    u64::try_from(ps).unwrap_or(u64::MAX)
}

/// What `measure` answers, unless another thread took the CPU away meanwhile.
pub fn undisturbed(measure: impl FnOnce() -> Option<u64>) -> Option<u64> {
    let before = preemptions();
    let measured = measure();
    measured.filter(|_| preemptions() == before)
}

/// How often the calling thread was preempted so far.
pub fn preemptions() -> i64 {
    // SAFETY: the structure is plain data for which all zeroes are a value, and getrusage() gets a
    // pointer to one that lives.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_told() {
        let sample = Sample::of((1..=101).rev().map(|n| n * 1_000).collect()).unwrap();
        assert_eq!(sample.median(), 51_000);
        let text = sample.source("x");
        assert_eq!(
            text,
            "measured: median of 101, min 1.0, p10–p90 11.0–91.0 ns: x"
        );
        assert!(!sample.is_noisy());
        assert!(sample.less(30_000).is_noisy());
        assert_eq!(sample.less(50_500).median(), 500);
        assert_eq!(sample.less(u64::MAX).median(), 0);
        assert_eq!(sample.divided(2).median(), 25_500);
    }

    #[test]
    fn nothing_measured_is_no_sample() {
        assert!(Sample::collect(5, Duration::from_secs(1), || None).is_none());
        let one = Sample::collect(1_000_000, Duration::ZERO, || Some(7)).unwrap();
        assert_eq!((one.ps.len(), one.median()), (1, 7));
    }
}
