//! A measure over time in a bounded number of points.

use schedlab_trace::Instant;

use crate::Points;
use crate::count::count;

/// Most points. Reached, each two become one.
const POINTS_MAX: usize = 512;
/// Width of a point at first.
const WIDTH_NS: u64 = 1_000_000;

/// Means over equal stretches of time.
#[derive(Clone, Debug)]
pub struct Timeline {
    width_ns: u64,
    /// Sum and number of values of each stretch, from the start of the run.
    stretches: Vec<(i64, u64)>,
    /// When the last stretch begins.
    last_ns: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline {
            width_ns: WIDTH_NS,
            stretches: Vec::new(),
            last_ns: 0,
        }
    }
}

impl Timeline {
    /// Counts a value.
    #[inline]
    pub fn record(&mut self, at: Instant, value: i64) {
        // Most values are in the same stretch as the one before.
        if let Some(last) = self.stretches.last_mut()
            && at.ns().wrapping_sub(self.last_ns) < self.width_ns
        {
            last.0 += value;
            count(&mut last.1);
            return;
        }
        self.record_elsewhere(at, value);
    }

    #[cold]
    fn record_elsewhere(&mut self, at: Instant, value: i64) {
        let mut index = (at.ns() / self.width_ns) as usize;
        while index >= POINTS_MAX {
            self.halve();
            index = (at.ns() / self.width_ns) as usize;
        }
        if index >= self.stretches.len() {
            self.stretches.resize(index + 1, (0, 0));
        }
        self.last_ns = (self.stretches.len() - 1) as u64 * self.width_ns;
        let stretch = &mut self.stretches[index];
        stretch.0 += value;
        stretch.1 += 1;
    }

    fn halve(&mut self) {
        self.width_ns *= 2;
        self.stretches = self
            .stretches
            .chunks(2)
            .map(|pair| {
                let add = |a: (i64, u64), b: &(i64, u64)| (a.0 + b.0, a.1 + b.1);
                pair.iter().fold((0, 0), add)
            })
            .collect();
    }

    /// Returns the mean of each stretch that has values, divided by `divisor`, at its middle.
    pub fn points(&self, divisor: f64) -> Points {
        let at = |index: usize| index as u64 * self.width_ns + self.width_ns / 2;
        self.stretches
            .iter()
            .enumerate()
            .filter(|(_, (_, count))| *count > 0)
            .map(|(index, &(sum, count))| (at(index), sum as f64 / count as f64 / divisor))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_stretches_keep_all_values() {
        let mut timeline = Timeline::default();
        timeline.record(Instant::from_ns(0), 4);
        timeline.record(Instant::from_ns(999_999), -2);
        timeline.record(Instant::from_ns(2_000_000), 10);
        assert_eq!(timeline.points(2.0), [(500_000, 0.5), (2_500_000, 5.0)]);
        // Stretches become 1,024 ms: the three values above are one.
        timeline.record(Instant::from_ns(300_000_000_000), -1);
        let points = timeline.points(1.0);
        assert_eq!(points, [(512_000_000, 4.0), (299_520_000_000, -1.0)]);
    }

    #[test]
    fn values_may_come_late() {
        let mut timeline = Timeline::default();
        for (us, value) in [(5_000, 1), (1_000, 2), (1_200, 4), (5_900, 3)] {
            timeline.record(Instant::from_ns(us * 1_000), value);
        }
        let expected = [(1_500_000, 3.0), (5_500_000, 2.0)];
        assert_eq!(timeline.points(1.0), expected);
    }

    #[test]
    fn there_are_never_too_many() {
        let mut timeline = Timeline::default();
        for ms in 0..100_000 {
            timeline.record(Instant::from_ns(ms * 1_000_000), 1);
        }
        let points = timeline.points(1.0);
        assert!((POINTS_MAX / 4..=POINTS_MAX).contains(&points.len()));
        assert!(points.iter().all(|&(_, mean)| (mean - 1.0).abs() < 1e-12));
    }
}
