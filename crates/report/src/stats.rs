//! Statistics over repeated runs, without assuming a family of distributions and without drawing random
//! numbers, so that the same results always give the same intervals.
//!
//! - The centre of a measure is its **median**; the 95 % interval of the median is bounded by two order
//!   statistics, chosen from the binomial distribution (Conover, *Practical Nonparametric Statistics*).
//!   It covers at least 95 % whatever the distribution, and does not exist below six runs.
//! - The **difference** of a scheduler from the first one is taken in pairs, run by run (same seed, or
//!   same round of an interleaved sequence): the Hodges–Lehmann estimate (median of the Walsh averages)
//!   with the interval that inverts Wilcoxon's signed-rank test (Hollander & Wolfe, ch. 3). It assumes
//!   that differences are symmetric about their median, and does not exist below six pairs either.
//!
//! A bootstrap was not taken: with the five to twenty runs that people make its intervals are too short,
//! and two orders of the same results would need the same random numbers to agree.

/// An interval that covers the true value with at least 95 % probability.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The fewest runs for which a 95 % interval exists.
pub const RUNS_MIN: usize = 6;

/// Probability left outside an interval on each side.
const TAIL: f64 = 0.025;

/// Up to so many values distributions are counted out; above, the normal approximation is used, which is
/// then better than one rank.
const EXACT_MAX: usize = 200;

/// 97.5 % quantile of the standard normal distribution.
const NORMAL_QUANTILE: f64 = 1.959_963_984_540_054;

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

fn median_of_sorted(values: &[f64]) -> Option<f64> {
    let n = values.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(values[n / 2]),
        _ => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

/// The median; `None` of no values.
pub fn median(values: &[f64]) -> Option<f64> {
    median_of_sorted(&sorted(values))
}

/// The 95 % interval of the median; `None` below [`RUNS_MIN`] values.
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    rank_interval(&sorted(values), median_rank(values.len()))
}

/// The interval from the `rank`-th smallest to the `rank`-th greatest value; `None` for rank 0.
fn rank_interval(sorted: &[f64], rank: usize) -> Option<Interval> {
    (rank > 0).then(|| Interval {
        low: sorted[rank - 1],
        high: sorted[sorted.len() - rank],
    })
}

/// The greatest number of outcomes of `probabilities` (of 0, 1, 2 …) that together stay within [`TAIL`].
fn outcomes_in_tail(probabilities: impl Iterator<Item = f64>) -> usize {
    let mut sum = 0.0;
    probabilities
        .take_while(|p| {
            sum += p;
            sum <= TAIL
        })
        .count()
}

/// Rank of the order statistics that bound the median of `n` values: the number of values below the
/// median is binomial with p = ½.
fn median_rank(n: usize) -> usize {
    if n > EXACT_MAX {
        let n = n as f64;
        return ((n - NORMAL_QUANTILE * n.sqrt()) / 2.0).floor() as usize;
    }
    let mut probability = 0.5f64.powi(n as i32);
    outcomes_in_tail((0..=n).map(|k| {
        let this = probability;
        probability = probability * (n - k) as f64 / (k + 1) as f64;
        this
    }))
}

/// Rank of the Walsh averages that bound the Hodges–Lehmann estimate of `n` differences.
fn signed_rank(n: usize) -> usize {
    if n > EXACT_MAX {
        let n = n as f64;
        let mean = n * (n + 1.0) / 4.0;
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        return (mean - NORMAL_QUANTILE * deviation).floor() as usize;
    }
    // Distribution of the signed-rank sum: each rank counts or does not with probability ½.
    let ranks = n * (n + 1) / 2;
    let mut probability = vec![0.0; ranks + 1];
    probability[0] = 1.0;
    for rank in 1..=n {
        for sum in (0..=ranks).rev() {
            let with = if sum >= rank {
                probability[sum - rank]
            } else {
                0.0
            };
            probability[sum] = (probability[sum] + with) / 2.0;
        }
    }
    outcomes_in_tail(probability.into_iter())
}

/// How one scheduler differs from another over paired runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Difference {
    /// Hodges–Lehmann estimate of the difference.
    pub estimate: f64,
    /// Its 95 % interval; `None` below [`RUNS_MIN`] pairs.
    pub interval: Option<Interval>,
}

impl Difference {
    /// Whether the runs show a difference: the interval leaves zero out.
    pub fn is_shown(&self) -> bool {
        self.interval
            .is_some_and(|interval| interval.low > 0.0 || interval.high < 0.0)
    }
}

/// The difference over `differences` of paired runs; `None` without a pair.
pub fn paired_difference(differences: &[f64]) -> Option<Difference> {
    let mut averages = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (i, a) in differences.iter().enumerate() {
        averages.extend(differences[i..].iter().map(|b| (a + b) / 2.0));
    }
    averages.sort_by(f64::total_cmp);
    Some(Difference {
        estimate: median_of_sorted(&averages)?,
        interval: rank_interval(&averages, signed_rank(differences.len())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{RngCore, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    /// Tabulated ranks of the 95 % interval of a median (sign test), and critical values of the
    /// signed-rank test at 2.5 % a side, plus one.
    #[test]
    fn ranks_are_those_of_the_tables() {
        for (n, rank) in [
            (5, 0),
            (6, 1),
            (8, 1),
            (9, 2),
            (10, 2),
            (15, 4),
            (20, 6),
            (30, 10),
            (50, 18),
        ] {
            assert_eq!(median_rank(n), rank, "sign test, n = {n}");
        }
        for (n, critical) in [
            (6, 0),
            (7, 2),
            (8, 3),
            (9, 5),
            (10, 8),
            (15, 25),
            (20, 52),
            (25, 89),
        ] {
            assert_eq!(signed_rank(n), critical + 1, "signed rank, n = {n}");
        }
        assert_eq!(signed_rank(5), 0);
    }

    #[test]
    fn the_approximation_continues_the_exact_ranks() {
        let approximate = (200.0 - NORMAL_QUANTILE * 200f64.sqrt()) / 2.0;
        assert!((median_rank(200) as f64 - approximate).abs() <= 1.0);
        let mean = 200.0 * 201.0 / 4.0;
        let deviation = (200.0 * 201.0 * 401.0 / 24.0f64).sqrt();
        let approximate = mean - NORMAL_QUANTILE * deviation;
        assert!((signed_rank(200) as f64 - approximate).abs() <= 2.0);
    }

    #[test]
    fn hodges_lehmann_by_hand() {
        // Walsh averages of 1, 2, 6: 1, 1.5, 3.5, 2, 4, 6; sorted median (2 + 3.5) / 2.
        let found = paired_difference(&[1.0, 2.0, 6.0]).unwrap();
        assert_eq!(found.estimate, 2.75);
        assert_eq!(found.interval, None);
        assert!(!found.is_shown());
    }

    #[test]
    fn six_pairs_on_one_side_of_zero_show_a_difference() {
        let shown = paired_difference(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!(
            shown.interval,
            Some(Interval {
                low: 1.0,
                high: 6.0
            })
        );
        assert!(shown.is_shown());
        let not = paired_difference(&[-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert!(!not.is_shown());
        let equal = paired_difference(&[0.0; 20]).unwrap();
        assert!(!equal.is_shown());
    }

    /// Uniform from 0 to 1: its true median is 0.5.
    fn draw(rng: &mut Pcg64Mcg) -> f64 {
        (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Intervals must cover the true value in 95 % of samples: at least (they are conservative), and not
    /// in all of them. 4,000 samples give a standard error of 0.35 points.
    #[test]
    fn coverage_by_simulation() {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        for n in [6, 10, 25] {
            let (mut median_covered, mut difference_covered) = (0, 0);
            let samples = 4_000;
            for _ in 0..samples {
                // Skewed for the median (square of a uniform, median ¼), symmetric for the difference.
                let skewed: Vec<f64> = (0..n).map(|_| draw(&mut rng).powi(2)).collect();
                let interval = median_interval(&skewed).unwrap();
                median_covered += u32::from(interval.low <= 0.25 && 0.25 <= interval.high);
                let symmetric: Vec<f64> = (0..n).map(|_| draw(&mut rng) - draw(&mut rng)).collect();
                let interval = paired_difference(&symmetric).unwrap().interval.unwrap();
                difference_covered += u32::from(interval.low <= 0.0 && 0.0 <= interval.high);
            }
            for covered in [median_covered, difference_covered] {
                let share = f64::from(covered) / f64::from(samples);
                assert!((0.94..0.99).contains(&share), "n = {n}: {share}");
            }
        }
    }
}
