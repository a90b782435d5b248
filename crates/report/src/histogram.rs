//! Histograms with a bounded relative error.

use crate::Measures;
use crate::count::count;

/// `(smallest value, largest value, count)` of each bucket that is not empty, in ascending order.
pub type Buckets = Vec<(u64, u64, u64)>;

/// Values below 2^11 have a bucket each; above, each octave is divided into 2^10, so that three digits
/// are significant.
const OCTAVE_BITS: u32 = 10;

/// The bucket of a value.
#[inline]
fn bucket_of(value: u64) -> usize {
    let shift = (value | 1 << OCTAVE_BITS).ilog2() - OCTAVE_BITS;
    ((u64::from(shift) << OCTAVE_BITS) + (value >> shift)) as usize
}

/// The greatest value of a bucket.
fn greatest_in(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket >> OCTAVE_BITS).saturating_sub(1);
    let top = bucket - (shift << OCTAVE_BITS);
    (top << shift) + ((1 << shift) - 1)
}

/// Counts of values with three significant digits; mean and maximum are exact.
#[derive(Clone, Debug)]
pub struct Histogram {
    limit: u64,
    /// How many values there are in each bucket.
    counts: Vec<u64>,
    sum: u128,
    max: u64,
}

impl Histogram {
    /// For values up to `limit`. Those beyond its octave are counted as `limit` in the percentiles; the mean
    /// and the maximum stay exact.
    pub fn new(limit: u64) -> Self {
        let beyond = (limit + 1).next_power_of_two().max(2 << OCTAVE_BITS);
        Histogram {
            limit,
            counts: vec![0; bucket_of(beyond)],
            sum: 0,
            max: 0,
        }
    }

    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        match self.counts.get_mut(bucket_of(value)) {
            Some(n) => count(n),
            None => count(&mut self.counts[bucket_of(self.limit)]),
        }
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Number of values.
    pub fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The greatest value; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The smallest value that at least this share (in thousandths) of all values do not exceed, to
    /// three significant digits; `None` if nothing was counted.
    pub fn permille(&self, permille: u32) -> Option<u64> {
        let share = f64::from(permille) / 1_000.0 * self.len() as f64;
        let wanted = (share.ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|n| {
            seen += n;
            seen >= wanted
        })?;
        // The bucket may end above the greatest value.
        Some(greatest_in(bucket).min(self.max))
    }

    /// Writes `PREFIX_mean` and `PREFIX_max`, or nothing if nothing was counted.
    pub fn mean_and_max(&self, prefix: &str, measures: &mut Measures) {
        if !self.is_empty() {
            measures.mean(format!("{prefix}_mean"), self.sum, self.len());
            measures.int(format!("{prefix}_max"), self.max);
        }
    }

    /// The counts in coarse buckets: values below 16 have one each; above, eight share an octave.
    pub fn coarse(&self) -> Buckets {
        let mut buckets = Buckets::new();
        for (bucket, &n) in self.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            let (low, high) = bounds(greatest_in(bucket).min(self.max));
            match buckets.last_mut() {
                Some(last) if last.0 == low => last.2 += n,
                _ => buckets.push((low, high, n)),
            }
        }
        buckets
    }
}

/// The coarse bucket a value is in.
fn bounds(value: u64) -> (u64, u64) {
    if value < 16 {
        return (value, value);
    }
    let width = 1 << (value.ilog2() - 3);
    let low = value / width * width;
    (low, low + (width - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_join_without_gaps_and_are_narrow() {
        for bucket in 0..50_000 {
            let (before, last) = (greatest_in(bucket), greatest_in(bucket + 1));
            assert_eq!(bucket_of(before), bucket);
            assert_eq!(bucket_of(before + 1), bucket + 1);
            assert!((last - before) * 1_000 <= last || last - before == 1);
        }
        assert_eq!(greatest_in(bucket_of(u64::MAX)), u64::MAX);
    }

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let mut histogram = Histogram::new(1_000_000_000);
        for value in 1..=100_000 {
            histogram.record(value);
        }
        for (permille, exact) in [(500, 50_000.0), (990, 99_000.0), (999, 99_900.0)] {
            let found = histogram.permille(permille).unwrap() as f64;
            assert!((found / exact - 1.0).abs() < 1e-3, "{permille}: {found}");
        }
        assert_eq!(histogram.permille(1_000), Some(100_000));
    }

    #[test]
    fn beyond_the_limit_mean_and_maximum_stay_exact() {
        let mut histogram = Histogram::new(1_000);
        histogram.record(4);
        histogram.record(1_000_000);
        let mut measures = Measures::default();
        histogram.mean_and_max("x", &mut measures);
        assert_eq!(measures.number("x_mean"), Some(500_002.0));
        assert_eq!(measures.number("x_max"), Some(1_000_000.0));
    }

    #[test]
    fn an_empty_histogram_says_nothing() {
        let histogram = Histogram::new(1_000);
        let mut measures = Measures::default();
        histogram.mean_and_max("x", &mut measures);
        assert_eq!(measures.iter().count(), 0);
        assert_eq!(histogram.permille(500), None);
        assert!(histogram.coarse().is_empty());
    }

    #[test]
    fn coarse_buckets_hold_every_value_once() {
        let mut histogram = Histogram::new(1 << 20);
        for value in [0, 0, 3, 16, 17, 18, 19, 20, 500] {
            histogram.record(value);
        }
        assert_eq!(
            histogram.coarse(),
            [
                (0, 0, 2),
                (3, 3, 1),
                (16, 17, 2),
                (18, 19, 2),
                (20, 21, 1),
                (480, 511, 1)
            ]
        );
    }
}
