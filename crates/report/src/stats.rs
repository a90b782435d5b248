//! Statistics over repeated runs, without assuming a family of distributions and without drawing random
//! numbers, so that the same results always give the same intervals.
//!
//! - The centre of a measure is its **median**; the 95 % interval of the median is bounded by two order
//!   statistics, chosen from the binomial distribution (Conover, *Practical Nonparametric Statistics*).
//!   It covers at least 95 % whatever the distribution, and does not exist below six runs.
//! - The **difference** of a scheduler from the first one is taken in pairs, run by run (same seed, or
//!   same round of an interleaved sequence): the Hodges–Lehmann estimate (median of the Walsh averages)
//!   with the interval that inverts Wilcoxon's signed-rank test (Hollander & Wolfe, ch. 3), both over
//!   logarithms of the ratio (see [`difference_in_percent`]). It assumes that these are symmetric about
//!   their median, and does not exist below six pairs either.
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

/// The largest sum that rounding may leave of logarithms that add up to 0; scores differ by more or not at all.
const ROUNDING: f64 = 1e-13;

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

/// Returns the median; `None` of no values.
pub fn median(values: &[f64]) -> Option<f64> {
    median_of_sorted(&sorted(values))
}

/// Returns the 95 % interval of the median; `None` below [`RUNS_MIN`] values.
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    rank_interval(&sorted(values), median_rank(values.len()))
}

/// Returns the interval from the `rank`-th smallest to the `rank`-th greatest value; `None` for rank 0.
fn rank_interval(sorted: &[f64], rank: usize) -> Option<Interval> {
    (rank > 0).then(|| Interval {
        low: sorted[rank - 1],
        high: sorted[sorted.len() - rank],
    })
}

/// Returns the greatest number of outcomes of `probabilities` (of 0, 1, 2 …) that together stay within [`TAIL`].
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
    /// Returns whether the runs show a difference: the interval leaves zero out.
    pub fn is_shown(&self) -> bool {
        self.interval
            .is_some_and(|interval| interval.low > 0.0 || interval.high < 0.0)
    }

    /// Returns the same on a scale on which `onto` does not change the order.
    fn map(self, onto: impl Fn(f64) -> f64) -> Difference {
        Difference {
            estimate: onto(self.estimate),
            interval: self.interval.map(|Interval { low, high }| Interval {
                low: onto(low),
                high: onto(high),
            }),
        }
    }
}

/// Returns how much more the first of each pair is than the second, in percent of the second; `None` without a pair,
/// or where all that could be compared with is 0.
///
/// Over logarithms of the ratios: of two schedulers of the same distribution any ratio is as probable as its
/// inverse, so that these are symmetric about 0 however skewed the scores are. Percentages of single pairs are not:
/// half is -50 %, double +100 %, and noise alone would look like more. Where a value is not above 0 there is no
/// ratio; then plain differences are taken, which are symmetric as well, and shown in percent of one [`amount`].
pub fn difference_in_percent(pairs: &[(f64, f64)]) -> Option<Difference> {
    if pairs.iter().all(|&(mine, first)| mine > 0.0 && first > 0.0) {
        let ratios: Vec<f64> = pairs
            .iter()
            .map(|(mine, first)| (mine / first).ln())
            .collect();
        let percent = |ratio: f64| match ratio.abs() > ROUNDING {
            true => 100.0 * ratio.exp_m1(),
            false => 0.0,
        };
        return Some(hodges_lehmann(&ratios)?.map(percent));
    }
    let whole = amount(pairs.iter().map(|&(_, first)| first).collect())?;
    let differences: Vec<f64> = pairs.iter().map(|(mine, first)| mine - first).collect();
    // Of a score below 0, too, more is more.
    Some(hodges_lehmann(&differences)?.map(|difference| 100.0 * difference / whole))
}

/// Returns the base of the percentages of scores that are not all above 0: the amount of their median; if it is 0,
/// the mean of their amounts. All differences have one base. With a base for each pair, the pairs whose base is 0
/// would be left out, and the others would be the pairs in which the first did well.
fn amount(scores: Vec<f64>) -> Option<f64> {
    let sum: f64 = scores.iter().map(|score| score.abs()).sum();
    let of_median = median(&scores)?.abs();
    let whole = if of_median > 0.0 {
        of_median
    } else {
        sum / scores.len() as f64
    };
    (whole > 0.0).then_some(whole)
}

/// Returns the estimate of the middle of `differences` and its interval; `None` of none.
fn hodges_lehmann(differences: &[f64]) -> Option<Difference> {
    if differences.is_empty() {
        return None;
    }
    let averages = WalshAverages::of(differences);
    let nr = averages.len();
    let rank = signed_rank(differences.len());
    Some(Difference {
        // The same one twice where one is in the middle.
        estimate: (averages.smallest(nr.div_ceil(2)) + averages.smallest(nr / 2 + 1)) / 2.0,
        interval: (rank > 0).then(|| Interval {
            low: averages.smallest(rank),
            high: averages.smallest(nr - rank + 1),
        }),
    })
}

/// The averages of each pair of some values, and each value itself. They are not listed: of 100,000 values they would
/// take 40 GB.
struct WalshAverages {
    values: Vec<f64>,
}

impl WalshAverages {
    fn of(values: &[f64]) -> Self {
        WalshAverages {
            values: sorted(values),
        }
    }

    fn len(&self) -> usize {
        self.values.len() * (self.values.len() + 1) / 2
    }

    /// Returns the `rank`-th smallest, from 1: the least number that so many of them do not exceed.
    fn smallest(&self, rank: usize) -> f64 {
        let (mut low, mut high) = (0, u64::MAX);
        while low < high {
            let middle = low.midpoint(high);
            if self.nr_up_to(in_order(middle)) >= rank {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        in_order(low)
    }

    /// Returns how many do not exceed `bound`.
    fn nr_up_to(&self, bound: f64) -> usize {
        let mut nr = 0;
        // Partners of the value at hand, from itself on, end before this one: the greater it is, the fewer they are.
        let mut end = self.values.len();
        for (begin, value) in self.values.iter().enumerate() {
            while end > begin
                && ((value + self.values[end - 1]) / 2.0)
                    .total_cmp(&bound)
                    .is_gt()
            {
                end -= 1;
            }
            if end == begin {
                break;
            }
            nr += end - begin;
        }
        nr
    }
}

/// Returns all numbers in the order of [`f64::total_cmp`], so that they can be bisected.
fn in_order(place: u64) -> f64 {
    const SIGN: u64 = 1 << 63;
    // Negative ones come first, and their bits count down.
    f64::from_bits(if place < SIGN { !place } else { place ^ SIGN })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::strategy::Strategy as _;
    use rand_core::{RngCore, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use std::f64::consts::{LN_2, TAU};

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
        let found = hodges_lehmann(&[1.0, 2.0, 6.0]).unwrap();
        assert_eq!(found.estimate, 2.75);
        assert_eq!(found.interval, None);
        assert!(!found.is_shown());
    }

    proptest::proptest! {
        #[test]
        fn walsh_averages_are_those_of_the_list(
            values in proptest::collection::vec(
                proptest::prop_oneof![-1e9..1e9f64, (-3..3i32).prop_map(f64::from), proptest::strategy::Just(-0.0)],
                1..40,
            ),
        ) {
            let mut listed = Vec::new();
            for (i, a) in values.iter().enumerate() {
                listed.extend(values[i..].iter().map(|b| (a + b) / 2.0));
            }
            listed.sort_by(f64::total_cmp);
            let averages = WalshAverages::of(&values);
            proptest::prop_assert_eq!(averages.len(), listed.len());
            for (before, average) in listed.iter().enumerate() {
                proptest::prop_assert_eq!(averages.smallest(before + 1).to_bits(), average.to_bits());
            }
        }
    }

    /// As many as `--repeat` takes, of which all pairs would not fit into memory.
    #[test]
    fn a_hundred_thousand_differences() {
        let differences: Vec<f64> = (0..100_000).map(|n| f64::from(n) / 1_000.0).collect();
        let found = hodges_lehmann(&differences).unwrap();
        assert_close(found.estimate, 49.9995);
        let interval = found.interval.unwrap();
        assert!((49.8..49.83).contains(&interval.low), "{interval:?}");
        assert!((50.17..50.2).contains(&interval.high), "{interval:?}");
    }

    #[test]
    fn differences_are_ratios_by_hand() {
        // Ratios of 2, 4 and 16 are 1, 2 and 4 powers of two; the Walsh averages of these are 1, 1.5, 2, 2.5, 3, 4.
        let found = difference_in_percent(&[(2.0, 1.0), (12.0, 3.0), (8.0, 0.5)]).unwrap();
        assert_close(found.estimate, 100.0 * (2f64.powf(2.25) - 1.0));
        assert_eq!(found.interval, None);
        // As often a factor as its inverse: no difference, nor what rounding leaves of one.
        for (a, b) in (1..100).flat_map(|a| (1..100).map(move |b| (f64::from(a), f64::from(b)))) {
            let even = difference_in_percent(&[(a, b), (3.0 * b, 3.0 * a)]).unwrap();
            assert_eq!(even.estimate, 0.0, "{a} and {b}");
        }
        let one = difference_in_percent(&[(920.0, 1_000.0)]).unwrap();
        assert_close(one.estimate, -8.0);
        assert_eq!(difference_in_percent(&[]), None);
        // Of six pairs the interval has the least and the greatest ratio as its ends.
        let ratios = [1.1, 1.2, 1.3, 1.4, 1.5, 4.0].map(|ratio| (3.0 * ratio, 3.0));
        let interval = difference_in_percent(&ratios).unwrap().interval.unwrap();
        assert_close(interval.low, 10.0);
        assert_close(interval.high, 300.0);
    }

    #[test]
    fn scores_that_are_not_above_zero_have_no_ratio() {
        // More is more of a score below 0, too.
        let found = difference_in_percent(&[(-50.0, -100.0)]).unwrap();
        assert_eq!(found.estimate, 50.0);
        // Differences -3, 0 and 4: the Walsh averages are -3, -1.5, 0, 0.5, 2, 4. The median of 2, 5 and 2 is 2.
        let found = difference_in_percent(&[(-1.0, 2.0), (5.0, 5.0), (6.0, 2.0)]).unwrap();
        assert_eq!(found.estimate, 12.5);
        // Differences -1, 1 and 3: 1 in the middle. The median of 0, -1 and 0 is 0, the mean of their amounts a third.
        let found = difference_in_percent(&[(-1.0, 0.0), (0.0, -1.0), (3.0, 0.0)]).unwrap();
        assert_close(found.estimate, 300.0);
        // A percentage of 0 does not exist, so the result must not claim that all is lost because the other pair has
        // none.
        let found = difference_in_percent(&[(0.0, 2.0), (3.0, 0.0)]).unwrap();
        assert_eq!(found.estimate, 50.0);
        assert_eq!(difference_in_percent(&[(3.0, 0.0), (0.0, 0.0)]), None);
        // Six on one side of 0 are a difference, with the same ends in percent.
        let pairs = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(|x| (x - 4.0, -4.0));
        let interval = difference_in_percent(&pairs).unwrap().interval.unwrap();
        assert_eq!((interval.low, interval.high), (25.0, 150.0));
    }

    /// The order of the names does not matter: the same pairs never say that each is better, nor `no difference` of
    /// one only.
    #[test]
    fn swapped_scores_of_any_sign_differ_the_other_way() {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let mut shown = 0;
        for sample in 0..500 {
            let shift = f64::from(sample % 5) / 4.0;
            let pairs: Vec<_> = (0..12)
                .map(|_| ((3.0 * draw(&mut rng)).floor() - shift, draw(&mut rng)))
                .collect();
            let swapped: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
            let there = difference_in_percent(&pairs).unwrap();
            let Some(back) = difference_in_percent(&swapped) else {
                continue;
            };
            assert_eq!(there.is_shown(), back.is_shown(), "{pairs:?}");
            assert!(there.estimate * back.estimate <= 0.0, "{pairs:?}");
            shown += u32::from(there.is_shown());
        }
        assert!((50..450).contains(&shown), "{shown}");
    }

    /// Two schedulers that score nothing half of the time, and differ in nothing.
    #[test]
    fn many_zeros_are_no_difference() {
        let mut rng = Pcg64Mcg::seed_from_u64(17);
        let mut score = || match draw(&mut rng) {
            x if x < 0.5 => 0.0,
            x => 100.0 + 50.0 * x,
        };
        let (mut more, mut less) = (0, 0);
        for _ in 0..2_000 {
            let pairs: Vec<_> = (0..40).map(|_| (score(), score())).collect();
            let found = difference_in_percent(&pairs).unwrap();
            if found.is_shown() {
                match found.estimate > 0.0 {
                    true => more += 1,
                    false => less += 1,
                }
            }
        }
        // At most 2.5 % of 2,000, and ties make it fewer.
        for told in [more, less] {
            assert!((10..=65).contains(&told), "more {more}, less {less}");
        }
    }

    /// Two schedulers without a difference, however noisy, are declared different at most as seldom as promised, and
    /// as often one way as the other. (Percentages of the first say `more` of 16 % of such samples, and hardly ever
    /// `less`.)
    #[test]
    fn chance_goes_either_way() {
        let mut rng = Pcg64Mcg::seed_from_u64(11);
        let mut normal = || {
            let (a, b) = (1.0 - draw(&mut rng), draw(&mut rng));
            (-2.0 * a.ln()).sqrt() * (TAU * b).cos()
        };
        let (mut more, mut less) = (0, 0);
        for _ in 0..2_000 {
            let pairs: Vec<_> = (0..50)
                .map(|_| ((0.5 * normal()).exp(), (0.5 * normal()).exp()))
                .collect();
            let found = difference_in_percent(&pairs).unwrap();
            let swapped: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
            let back = difference_in_percent(&swapped).unwrap();
            assert_eq!(found.is_shown(), back.is_shown());
            assert_close(
                (1.0 + found.estimate / 100.0) * (1.0 + back.estimate / 100.0),
                1.0,
            );
            if found.is_shown() {
                match found.estimate > 0.0 {
                    true => more += 1,
                    false => less += 1,
                }
            }
        }
        // 2.5 % of 2,000 are 50, give or take 7.
        for told in [more, less] {
            assert!((30..=70).contains(&told), "more {more}, less {less}");
        }
    }

    /// The bias of skewed differences that docs/measures.md gives: the median of an exponential distribution is ln 2.
    #[test]
    fn skewed_differences_are_covered_less() {
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        for (n, told) in [(9, 0.95), (20, 0.90), (50, 0.78)] {
            let (mut covered, samples) = (0, 3_000);
            for _ in 0..samples {
                let skewed: Vec<f64> = (0..n).map(|_| -(1.0 - draw(&mut rng)).ln()).collect();
                let interval = hodges_lehmann(&skewed).unwrap().interval.unwrap();
                covered += u32::from((interval.low..=interval.high).contains(&LN_2));
            }
            let share = f64::from(covered) / f64::from(samples);
            assert!((share - told).abs() < 0.02, "n = {n}: {share}");
        }
    }

    fn assert_close(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() <= 1e-9 * expected.abs(),
            "{found} is not {expected}"
        );
    }

    #[test]
    fn six_pairs_on_one_side_of_zero_show_a_difference() {
        let shown = hodges_lehmann(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!(
            shown.interval,
            Some(Interval {
                low: 1.0,
                high: 6.0
            })
        );
        assert!(shown.is_shown());
        let not = hodges_lehmann(&[-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert!(!not.is_shown());
        let equal = hodges_lehmann(&[0.0; 20]).unwrap();
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
                let interval = hodges_lehmann(&symmetric).unwrap().interval.unwrap();
                difference_covered += u32::from(interval.low <= 0.0 && 0.0 <= interval.high);
            }
            for covered in [median_covered, difference_covered] {
                let share = f64::from(covered) / f64::from(samples);
                assert!((0.94..0.99).contains(&share), "n = {n}: {share}");
            }
        }
    }
}
