//! Repeated measurements of one quantity, and their spread.

use std::fmt;
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

    /// Returns the measurement below which `percent` of all lie.
    fn percentile(&self, percent: usize) -> u64 {
        self.ps[(self.ps.len() - 1) * percent / 100]
    }

    /// Returns the median, in picoseconds.
    pub fn median(&self) -> u64 {
        self.percentile(50)
    }

    /// Returns whether the measurements lie so far apart that their median says little.
    pub fn is_noisy(&self) -> bool {
        self.percentile(90) > 2 * self.median()
    }

    /// Returns the source text of a number that is this sample's median.
    pub fn source(&self, what: &str) -> String {
        format!(
            "measured: median of {}, min {}, p10–p90 {}–{} ns: {what}",
            self.ps.len(),
            ns(self.ps[0] as f64),
            ns(self.percentile(10) as f64),
            ns(self.percentile(90) as f64),
        )
    }
}

/// Below 100 ns the fraction matters; integers keep out floating-point noise.
fn ns(ps: f64) -> String {
    match ps < 99_950.0 {
        true => format!("{:.1}", ps / 1e3),
        false => format!("{:.0}", ps / 1e3),
    }
}

/// A value computed from measured quantities, each of which may be in it once: then their spreads are independent,
/// and the spread of the result is the root of the sum of their squares.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    ps: f64,
    /// From the 10th percentile to the median …
    below: f64,
    /// … and from there to the 90th.
    above: f64,
}

impl Figure {
    /// Returns the median of values in any order, which may be negative; `None` of no values.
    pub fn of(mut ps: Vec<f64>) -> Option<Figure> {
        ps.sort_unstable_by(f64::total_cmp);
        let last = ps.len().checked_sub(1)?;
        let [low, median, high] = [10, 50, 90].map(|percent| ps[last * percent / 100]);
        Some(Figure {
            ps: median,
            below: median - low,
            above: high - median,
        })
    }

    /// This, and `other` so many times in addition.
    #[must_use]
    pub fn plus(self, times: f64, other: impl Into<Figure>) -> Figure {
        let other = other.into();
        let (below, above) = match times < 0.0 {
            true => (other.above, other.below),
            false => (other.below, other.above),
        };
        Figure {
            ps: self.ps + times * other.ps,
            below: self.below.hypot(times * below),
            above: self.above.hypot(times * above),
        }
    }

    /// This without `other`, which it contains.
    #[must_use]
    pub fn less(self, other: impl Into<Figure>) -> Figure {
        self.plus(-1.0, other)
    }

    /// This many times over, or a part of it.
    #[must_use]
    pub fn times(self, factor: f64) -> Figure {
        let nothing = Figure::exactly(0);
        nothing.plus(factor, self)
    }

    /// Returns a value that was not measured and has no spread.
    pub fn exactly(ps: u64) -> Figure {
        Figure {
            ps: ps as f64,
            below: 0.0,
            above: 0.0,
        }
    }

    /// Picoseconds, if the spread leaves no doubt that there are any.
    pub fn ps(self) -> Option<u64> {
        (self.ps - self.below > 0.0).then_some(self.ps.round() as u64)
    }

    /// Nanoseconds with their sign, without the spread.
    pub fn signed_ns(self) -> String {
        match self.ps < 0.0 {
            true => format!("−{}", ns(-self.ps)),
            false => format!("+{}", ns(self.ps)),
        }
    }

    /// Returns whether the spread is as large as half of it.
    pub fn is_noisy(self) -> bool {
        self.below.max(self.above) > self.ps / 2.0
    }
}

impl From<&Sample> for Figure {
    fn from(sample: &Sample) -> Figure {
        let ps = sample.ps.iter().map(|&ps| ps as f64).collect();
        Figure::of(ps).expect("a sample has measurements")
    }
}

/// In nanoseconds, with the spread.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signed = |ps: f64| match ps < 0.0 {
            true => format!("−{}", ns(-ps)),
            false => ns(ps),
        };
        let [low, high] = [self.ps - self.below, self.ps + self.above].map(signed);
        write!(f, "{} ns, p10–p90 {low} to {high} ns", signed(self.ps))
    }
}

/// Picoseconds that one of `operations` took, which all together took as long as since `start`.
pub fn ps_each(start: Instant, operations: u64) -> u64 {
    let ps = start.elapsed().as_nanos() * 1_000 / u128::from(operations.max(1));
    u64::try_from(ps).unwrap_or(u64::MAX)
}

/// Returns the result of `measure`, unless another thread took the CPU away meanwhile.
pub fn undisturbed(measure: impl FnOnce() -> Option<u64>) -> Option<u64> {
    let before = preemptions();
    let measured = measure();
    measured.filter(|_| preemptions() == before)
}

/// Returns how often the calling thread was preempted so far.
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
    }

    #[test]
    fn a_difference_has_the_spread_of_both() {
        let of =
            |low, median, high| Figure::from(&Sample::of([low, median, high].repeat(10)).unwrap());
        let whole = of(100_000, 104_000, 110_000);
        let part = of(60_000, 68_000, 71_000);
        let rest = whole.less(part);
        assert_eq!(rest.to_string(), "36.0 ns, p10–p90 31.0 to 46.0 ns");
        assert_eq!(rest.ps(), Some(36_000));
        assert!(!rest.is_noisy());
        // A value so near to zero may be zero.
        let little = whole.less(of(90_000, 98_000, 110_000));
        assert_eq!(little.to_string(), "6.0 ns, p10–p90 −6.6 to 16.0 ns");
        assert_eq!(little.ps(), None);
        assert!(little.is_noisy());
        let negative = whole.less(Figure::exactly(150_000));
        assert_eq!(negative.ps(), None);
        assert_eq!(negative.to_string(), "−46.0 ns, p10–p90 −50.0 to −40.0 ns");
        assert_eq!(whole.times(0.5).ps(), Some(52_000));
        assert_eq!(whole.less(whole).ps(), None);
    }

    #[test]
    fn nothing_measured_is_no_sample() {
        assert!(Sample::collect(5, Duration::from_secs(1), || None).is_none());
        let one = Sample::collect(1_000_000, Duration::ZERO, || Some(7)).unwrap();
        assert_eq!((one.ps.len(), one.median()), (1, 7));
    }
}
