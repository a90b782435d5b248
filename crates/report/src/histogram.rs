//! Histograms with a bounded relative error.

use std::cell::Cell;

use hdrhistogram::Histogram as Hdr;

use crate::Measures;
use crate::count::{count, raise};

/// `(smallest value, largest value, count)` of each bucket that is not empty, in ascending order.
pub type Buckets = Vec<(u64, u64, u64)>;

/// Bits of a value that select its bucket: so many that three digits stay.
const BITS: u32 = 11;
/// Values below this have a bucket each.
const SMALL: usize = 1 << BITS;
/// Buckets of each further octave.
const PER_OCTAVE: usize = SMALL / 2;

/// Counts of values with three significant digits; mean and maximum are exact.
///
/// Hot: while values come, each is only counted in its bucket, which is also one of the library's; what the counts mean, the
/// library says.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// How often each small value came.
    small: Box<[u64; SMALL]>,
    /// Counts of the greater ones, [`PER_OCTAVE`] for each octave up to the limit's; those above it are in the
    /// limit's bucket.
    great: Box<[u64]>,
    /// Of the greater ones.
    great_sum: u128,
    great_max: u64,
    limit: u64,
}

/// Returns the bucket, counted from the first that holds several values, of a value that is not small. Only that is
/// checked: all else is below 2^16 then.
#[inline]
fn great_bucket(value: u64) -> usize {
    let octave = u64::BITS - (BITS + 1) - value.leading_zeros();
    // The first of these bits is always set.
    let bits = value.wrapping_shr(octave.wrapping_add(1)) as usize;
    let place = bits.wrapping_sub(PER_OCTAVE);
    (octave as usize)
        .wrapping_mul(PER_OCTAVE)
        .wrapping_add(place)
}

/// Returns the smallest value in that bucket.
fn least_of(bucket: usize) -> u64 {
    let (octave, place) = (bucket / PER_OCTAVE, bucket % PER_OCTAVE);
    ((PER_OCTAVE + place) as u64) << (octave + 1)
}

impl Histogram {
    /// For values up to `limit`, or 2,048 if that is greater. Values of a higher octave are counted as `limit` in the
    /// percentiles; the mean and the maximum stay exact.
    pub fn new(limit: u64) -> Self {
        let limit = limit.max(SMALL as u64);
        Histogram {
            small: Box::new([0; SMALL]),
            great: vec![0; (great_bucket(limit) / PER_OCTAVE + 1) * PER_OCTAVE].into(),
            great_sum: 0,
            great_max: 0,
            limit,
        }
    }

    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        match self.small.get_mut(value as usize) {
            Some(counted) => count(counted),
            None => self.record_great(value),
        }
    }

    /// Counts a value that is not small.
    fn record_great(&mut self, value: u64) {
        match self.great.get_mut(great_bucket(value)) {
            Some(counted) => count(counted),
            None => count(&mut self.great[great_bucket(self.limit)]),
        }
        // 2^64 values would have to come before it is full.
        self.great_sum = self.great_sum.wrapping_add(u128::from(value));
        raise(Cell::from_mut(&mut self.great_max), value);
    }

    /// Returns the least value of each bucket that is not empty, and its count.
    fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let small = (0..).zip(self.small.iter().copied());
        let great = self.great.iter().enumerate();
        let great = great.map(|(bucket, &count)| (least_of(bucket), count));
        small.chain(great).filter(|&(_, count)| count > 0)
    }

    /// As the library counts.
    fn counts(&self) -> Hdr<u64> {
        let mut counts = Hdr::new_with_bounds(1, self.limit, 3).expect("valid bounds");
        for (value, count) in self.buckets() {
            counts.saturating_record_n(value, count);
        }
        counts
    }

    /// Number of values.
    pub fn len(&self) -> u64 {
        self.buckets().map(|(_, count)| count).sum()
    }

    /// Returns whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.buckets().next().is_none()
    }

    /// Returns the greatest value; 0 if the histogram is empty.
    pub fn max(&self) -> u64 {
        let small = self.small.iter().rposition(|&count| count > 0);
        self.great_max.max(small.unwrap_or(0) as u64)
    }

    /// Returns the sum of all values.
    fn sum(&self) -> u128 {
        let small = (0..).zip(&*self.small);
        let products = small.map(|(value, &count): (u128, _)| value * u128::from(count));
        products.sum::<u128>() + self.great_sum
    }

    /// Of each share (in thousandths), the smallest value that at least so many of all values do not exceed, to
    /// three significant digits; nothing if nothing was counted.
    pub fn permilles<const N: usize>(&self, shares: [u32; N]) -> Option<[u64; N]> {
        let counts = self.counts();
        // The library answers with the upper end of a bucket, which may lie above the greatest value.
        let value_at = |share| counts.value_at_quantile(f64::from(share) / 1_000.0);
        (!counts.is_empty()).then(|| shares.map(|share| value_at(share).min(self.max())))
    }

    /// Writes `PREFIX_mean` and `PREFIX_max`, or nothing if nothing was counted.
    pub fn mean_and_max(&self, prefix: &str, measures: &mut Measures) {
        if !self.is_empty() {
            measures.mean(format!("{prefix}_mean"), self.sum(), self.len());
            measures.int(format!("{prefix}_max"), self.max());
        }
    }

    /// Returns the counts in coarse buckets.
    pub fn coarse(&self) -> Buckets {
        let counts = self.counts();
        coarse(counts.iter_recorded().map(|step| {
            let value = step.value_iterated_to().min(self.max());
            (value, step.count_since_last_iteration())
        }))
    }
}

/// Counts of values, in ascending order, in coarse buckets: values below 16 have one each; above, eight share an
/// octave.
pub fn coarse(counts: impl IntoIterator<Item = (u64, u64)>) -> Buckets {
    let mut buckets = Buckets::new();
    for (value, count) in counts {
        let (low, high) = bounds(value);
        match buckets.last_mut() {
            Some(last) if last.0 == low => last.2 += count,
            _ => buckets.push((low, high, count)),
        }
    }
    buckets
}

/// Returns the coarse bucket a value is in.
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
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let mut histogram = Histogram::new(1_000_000_000);
        for value in 1..=100_000 {
            histogram.record(value);
        }
        for (permille, exact) in [(500, 50_000.0), (990, 99_000.0), (999, 99_900.0)] {
            let found = histogram.permilles([permille]).unwrap()[0] as f64;
            assert!((found / exact - 1.0).abs() < 1e-3, "{permille}: {found}");
        }
        assert_eq!(histogram.permilles([1_000]), Some([100_000]));
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

    proptest! {
        /// Counts that were put into buckets here mean what they mean if the library does it.
        #[test]
        fn buckets_are_the_librarys(
            limit in prop_oneof![Just(1 << 20), Just(1 << 40), 2_048_u64..1 << 41],
            values in vec((0_u32..64).prop_flat_map(|bits| 0..=u64::MAX >> bits), 1..50),
        ) {
            let mut histogram = Histogram::new(limit);
            let mut library = Hdr::<u64>::new_with_bounds(1, limit, 3).unwrap();
            for &value in &values {
                histogram.record(value);
                library.saturating_record(value);
            }
            let max = *values.iter().max().unwrap();
            prop_assert_eq!(histogram.max(), max);
            prop_assert_eq!(histogram.sum(), values.iter().map(|&value| u128::from(value)).sum());
            prop_assert_eq!(histogram.len(), values.len() as u64);
            let counts = histogram.counts();
            prop_assert_eq!(counts.distinct_values(), library.distinct_values());
            for step in library.iter_recorded() {
                let value = step.value_iterated_to();
                prop_assert_eq!(counts.count_at(value), step.count_at_value());
            }
            for share in [1, 500, 900, 990, 999, 1_000] {
                let expected = library.value_at_quantile(f64::from(share) / 1_000.0).min(max);
                prop_assert_eq!(histogram.permilles([share]), Some([expected]));
            }
        }
    }

    #[test]
    fn an_empty_histogram_says_nothing() {
        let histogram = Histogram::new(1_000);
        let mut measures = Measures::default();
        histogram.mean_and_max("x", &mut measures);
        assert_eq!(measures.iter().count(), 0);
        assert_eq!(histogram.permilles([500]), None);
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
