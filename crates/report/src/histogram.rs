//! Histograms with a bounded relative error.

use hdrhistogram::Histogram as Hdr;

use crate::Measures;

/// `(smallest value, largest value, count)` of each bucket that is not empty, in ascending order.
pub type Buckets = Vec<(u64, u64, u64)>;

/// Counts of values with three significant digits; mean and maximum are exact.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Hdr<u64>,
    sum: u128,
    max: u64,
}

impl Histogram {
    /// For values up to `limit`. Greater ones are counted as `limit` in the percentiles; the mean and
    /// the maximum stay exact.
    pub fn new(limit: u64) -> Self {
        Histogram {
            buckets: Hdr::new_with_bounds(1, limit.max(2), 3).expect("constant bounds are valid"),
            sum: 0,
            max: 0,
        }
    }

    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.buckets.saturating_record(value);
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Number of values.
    pub fn len(&self) -> u64 {
        self.buckets.len()
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
        // The crate answers with the upper end of a bucket, which may lie above the greatest value.
        (!self.is_empty()).then(|| {
            self.buckets
                .value_at_quantile(f64::from(permille) / 1_000.0)
                .min(self.max)
        })
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
        for step in self.buckets.iter_recorded() {
            let (low, high) = bounds(step.value_iterated_to().min(self.max));
            match buckets.last_mut() {
                Some(last) if last.0 == low => last.2 += step.count_since_last_iteration(),
                _ => buckets.push((low, high, step.count_since_last_iteration())),
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
