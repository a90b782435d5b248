//! Percentiles of times, exact to two significant digits.

use crate::Counters;

/// Counts of times by size, in buckets of 1/64 of a power of two.
#[derive(Default)]
pub(super) struct Buckets {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

const BITS: u32 = 6;

fn bucket(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(BITS + 1);
    ((u64::from(shift) << BITS) + (ns >> shift)) as usize
}

/// Returns the largest time of a bucket.
fn largest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket >> BITS).saturating_sub(1);
    let ns = bucket - (shift << BITS);
    ((ns + 1) << shift) - 1
}

impl Buckets {
    pub fn add(&mut self, ns: u64) {
        let bucket = bucket(ns);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.max = self.max.max(ns);
    }

    /// Adds up the percentiles and the maximum as `NAME_ns_…`, and the number of times as `NAMEs`.
    pub fn report(&self, name: &str, counters: &mut Counters) {
        counters.add(format!("{name}s"), self.count);
        for (suffix, per_mille) in [("p50", 500), ("p90", 900), ("p99", 990), ("p99_9", 999)] {
            if let Some(ns) = self.percentile(per_mille) {
                counters.add(format!("{name}_ns_{suffix}"), ns);
            }
        }
        if self.count > 0 {
            counters.max(format!("{name}_ns_max"), self.max as i64);
        }
    }

    /// Returns the least time that so many thousandths of all do not exceed.
    fn percentile(&self, per_mille: u64) -> Option<u64> {
        let wanted = (self.count * per_mille).div_ceil(1_000);
        let mut seen = 0;
        let found = self.counts.iter().position(|&n| {
            seen += n;
            n > 0 && seen >= wanted
        })?;
        Some(largest(found).min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_falls_into_them() {
        for ns in (0..5_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX >> 1]) {
            let top = largest(bucket(ns));
            assert!(top >= ns && top - ns <= ns >> BITS, "{ns} {top}");
        }
        let mut buckets = Buckets::default();
        assert_eq!(buckets.percentile(500), None);
        for ns in 1..=100 {
            buckets.add(ns);
        }
        assert_eq!(buckets.percentile(500), Some(50));
        assert_eq!(buckets.percentile(990), Some(99));
        assert_eq!(buckets.percentile(999), Some(100));
    }
}
