//! The advice: what was asked, what was found, and how sure it is.

use std::collections::BTreeMap;

use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use schedlab_report::stats::{Interval, difference_in_percent};
use serde::Serialize;

use crate::bounds::Bounds;
use crate::path::Decomposed;

/// The version of the document.
pub const SCHEMA: u32 = 1;
/// Times that the seeds are drawn anew.
const DRAWS: u32 = 2_000;
/// A gain below this is not worth a change of the scheduler, in percent.
pub const WORTH_PCT: f64 = 1.0;
/// If no scheduler can win more, none matters, in percent.
pub const MATTERS_PCT: f64 = 2.0;

/// A scheduler of the last round: all of them with the same seeds, which the search has not seen.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finalist {
    /// The scheduler with its options.
    pub scheduler: String,
    /// A score for each seed.
    pub scores: Vec<f64>,
    /// Their mean.
    pub mean: f64,
    /// How much better than the reference, in percent: the Hodges–Lehmann estimate over pairs of the same seed.
    pub better_pct: f64,
    /// 95 % interval of that; absent below six seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_pct: Option<[f64; 2]>,
    /// Seeds with which it is better than the reference.
    pub wins: usize,
    /// Share of draws of the seeds in which it is the best of the last round, in percent.
    pub best_in_pct: f64,
    /// Whether its difference from the best one may be chance.
    pub as_good: bool,
    /// Units of work of its first run.
    #[serde(skip)]
    pub work: Option<f64>,
    /// Where the time of its first run went; absent if that was cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Decomposed>,
}

/// A scheduler that did not come into the last round.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Tried {
    /// The scheduler.
    pub scheduler: String,
    /// Runs whose score counts.
    pub runs: usize,
    /// How much better than the reference with the same seeds, in percent; absent where it failed or has no whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub better_pct: Option<f64>,
    /// Why a run does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The result of a search through a scheduler's features.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Features {
    /// The scheduler whose options are the features.
    pub space: String,
    /// Runs of the search.
    pub runs: u64,
    /// Different schedulers of the space.
    pub of: usize,
    /// Alternatives that most of the good ones have, beyond chance.
    pub good: Vec<String>,
    /// Alternatives that hardly any of them has, beyond chance.
    pub bad: Vec<String>,
}

/// How far the recording can be believed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Recording {
    /// Events that the recorder lost.
    pub lost_events: u64,
    /// Share of waiting time without a known cause, in percent.
    pub not_inferred_pct: f64,
    /// Share of its CPUs' time that other tasks took, in percent.
    pub others_pct: f64,
    /// Replays under the recorded scheduler against the recording: (measure, error in percent).
    pub errors_pct: Vec<(String, f64)>,
}

/// The recommendation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Take the best one.
    Change,
    /// The reference is the best, or nothing is better beyond chance or by enough.
    Stay,
    /// Even the best possible scheduler would win next to nothing.
    NoMatter,
}

/// The advice for a program on a machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The program.
    pub workload: String,
    /// The machine profile.
    pub machine: String,
    /// Its CPUs.
    pub cpus: u32,
    /// The scheduler with which all are compared.
    pub reference: String,
    /// Unit of scores.
    pub unit: String,
    /// Whether of two scores the higher one is better.
    pub higher_is_better: bool,
    /// Runs that were asked for, or that the time had room for.
    pub budget_runs: u64,
    /// Runs that were made.
    pub runs: u64,
    /// It was stopped before its end.
    pub cut_off: bool,
    /// The recommendation.
    pub verdict: Verdict,
    /// The last round, the best first.
    pub finalists: Vec<Finalist>,
    /// The others, in the order of the contest.
    pub tried: Vec<Tried>,
    /// Features of the best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    /// Lower bounds of the makespan; absent where the score does not follow from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Bounds>,
    /// How much better than the reference any scheduler could be at most, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub possible_pct: Option<f64>,
    /// The worst whose runs all ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Tried>,
    /// Of a recorded program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<Recording>,
}

impl Advice {
    /// The best of the last round.
    pub fn best(&self) -> &Finalist {
        &self.finalists[0]
    }

    /// The reference in the last round.
    pub fn reference(&self) -> &Finalist {
        let mut all = self.finalists.iter();
        all.find(|one| one.scheduler == self.reference)
            .expect("the reference is in the last round")
    }
}

/// How much better scores are than others of the same seeds, in percent: more of a rate, less of a time.
pub fn better_pct(own: &[f64], others: &[f64], higher: bool) -> Option<(f64, Option<[f64; 2]>)> {
    // Of times the reference over the own one: half the time is 100 % better, as twice the rate is.
    let pairs = own.iter().zip(others);
    let pairs: Vec<(f64, f64)> = match higher {
        true => pairs.map(|(own, other)| (*own, *other)).collect(),
        false => pairs.map(|(own, other)| (*other, *own)).collect(),
    };
    let difference = difference_in_percent(&pairs)?;
    let interval = difference
        .interval
        .map(|Interval { low, high }| [low, high]);
    Some((difference.estimate, interval))
}

/// Judges the last round: schedulers with a score for each seed, the same seeds for all.
pub fn judge(last: Vec<(String, Vec<f64>)>, reference: &str, higher: bool) -> Vec<Finalist> {
    let best_in = best_in_pct(&last, higher);
    let of_reference = last
        .iter()
        .find(|(name, _)| name == reference)
        .map(|(_, scores)| scores.clone())
        .unwrap_or_default();
    let mut finalists: Vec<Finalist> = last
        .into_iter()
        .zip(best_in)
        .map(|((scheduler, scores), best_in_pct)| {
            let (better_pct, interval_pct) =
                better_pct(&scores, &of_reference, higher).unwrap_or((0.0, None));
            let pairs = scores.iter().zip(&of_reference);
            let is_better =
                |(own, other): &(&f64, &f64)| if higher { own > other } else { own < other };
            Finalist {
                mean: scores.iter().sum::<f64>() / scores.len().max(1) as f64,
                better_pct,
                interval_pct,
                wins: pairs.filter(is_better).count(),
                best_in_pct,
                as_good: false,
                work: None,
                time: None,
                scheduler,
                scores,
            }
        })
        .collect();
    finalists.sort_by(|a, b| {
        let order = a.mean.total_cmp(&b.mean);
        let order = if higher { order.reverse() } else { order };
        // Of equals the reference: nothing is to be done for it.
        let is_other = |one: &Finalist| one.scheduler != reference;
        order.then(is_other(a).cmp(&is_other(b)))
    });
    let best = finalists.first().map(|best| best.scores.clone());
    if let Some(best) = best {
        for one in &mut finalists {
            let difference = better_pct(&one.scores, &best, higher);
            one.as_good = match difference {
                Some((_, Some([low, high]))) => low <= 0.0 && high >= 0.0,
                _ => true,
            };
        }
    }
    finalists
}

/// In which share of draws of the seeds each has the best mean. Of equals each has its part.
fn best_in_pct(last: &[(String, Vec<f64>)], higher: bool) -> Vec<f64> {
    let seeds = last
        .iter()
        .map(|(_, scores)| scores.len())
        .min()
        .unwrap_or(0);
    let mut shares = vec![0.0; last.len()];
    if seeds == 0 {
        return shares;
    }
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for _ in 0..DRAWS {
        let mut counts: BTreeMap<usize, f64> = BTreeMap::new();
        for _ in 0..seeds {
            *counts
                .entry((random.next_u64() % seeds as u64) as usize)
                .or_default() += 1.0;
        }
        let sums: Vec<f64> = last
            .iter()
            .map(|(_, scores)| {
                counts
                    .iter()
                    .map(|(seed, count)| scores[*seed] * count)
                    .sum()
            })
            .collect();
        let best = sums
            .iter()
            .copied()
            .reduce(if higher { f64::max } else { f64::min })
            .expect("there are some");
        let equals = sums.iter().filter(|sum| **sum == best).count() as f64;
        for (share, sum) in shares.iter_mut().zip(&sums) {
            if *sum == best {
                *share += 1.0 / equals;
            }
        }
    }
    for share in &mut shares {
        *share *= 100.0 / f64::from(DRAWS);
    }
    shares
}

/// Returns the verdict of the last round and of the bound.
pub fn verdict(finalists: &[Finalist], reference: &str, possible_pct: Option<f64>) -> Verdict {
    let Some(best) = finalists.first() else {
        return Verdict::Stay;
    };
    let is_shown = best.interval_pct.is_some_and(|[low, _]| low > 0.0);
    if best.scheduler != reference && is_shown && best.better_pct >= WORTH_PCT {
        return Verdict::Change;
    }
    match possible_pct {
        Some(possible) if possible < MATTERS_PCT => Verdict::NoMatter,
        _ => Verdict::Stay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(all: &[(&str, &[f64])]) -> Vec<(String, Vec<f64>)> {
        all.iter()
            .map(|(name, scores)| (name.to_string(), scores.to_vec()))
            .collect()
    }

    #[test]
    fn a_clear_winner_is_the_best_in_every_draw() {
        let judged = judge(
            last(&[
                ("kernel", &[100.0, 102.0, 98.0, 101.0, 99.0, 100.0]),
                ("fast", &[80.0, 82.0, 79.0, 81.0, 80.0, 80.0]),
                ("slow", &[140.0, 139.0, 141.0, 140.0, 142.0, 138.0]),
            ]),
            "kernel",
            false,
        );
        let names: Vec<&str> = judged.iter().map(|one| one.scheduler.as_str()).collect();
        assert_eq!(names, ["fast", "kernel", "slow"]);
        assert_eq!((judged[0].wins, judged[0].best_in_pct), (6, 100.0));
        assert!(
            (judged[0].better_pct - 25.0).abs() < 1.0,
            "{}",
            judged[0].better_pct
        );
        assert!(judged[0].interval_pct.unwrap()[0] > 20.0);
        assert!(judged[0].as_good && !judged[1].as_good && !judged[2].as_good);
        assert_eq!(verdict(&judged, "kernel", Some(40.0)), Verdict::Change);
        // Of rates the same numbers say the opposite.
        let scores = |one: &Finalist| (one.scheduler.clone(), one.scores.clone());
        let rates = judge(judged.iter().map(scores).collect(), "kernel", true);
        assert_eq!(rates[0].scheduler, "slow");
        assert!((rates[0].better_pct - 40.0).abs() < 1.0);
    }

    #[test]
    fn what_chance_can_give_is_no_reason_to_change() {
        let judged = judge(
            last(&[
                ("kernel", &[100.0, 90.0, 110.0, 95.0, 105.0, 100.0]),
                ("other", &[99.0, 111.0, 89.0, 104.0, 94.0, 100.0]),
            ]),
            "kernel",
            false,
        );
        assert!(judged.iter().all(|one| one.as_good));
        assert_eq!(verdict(&judged, "kernel", Some(40.0)), Verdict::Stay);
        assert_eq!(verdict(&judged, "kernel", Some(1.0)), Verdict::NoMatter);
        assert_eq!(verdict(&judged, "kernel", None), Verdict::Stay);
        let sum: f64 = judged.iter().map(|one| one.best_in_pct).sum();
        assert!((sum - 100.0).abs() < 1e-9);
    }

    #[test]
    fn equals_share_the_draws_and_the_reference_is_first() {
        let judged = judge(
            last(&[("a", &[5.0; 6]), ("kernel", &[5.0; 6])]),
            "kernel",
            false,
        );
        assert_eq!(judged[0].scheduler, "kernel");
        assert!(
            judged
                .iter()
                .all(|one| (one.best_in_pct - 50.0).abs() < 1e-6)
        );
        assert_eq!(verdict(&judged, "kernel", None), Verdict::Stay);
    }

    #[test]
    fn a_gain_of_less_than_a_percent_or_of_few_seeds_is_none() {
        let small = judge(
            last(&[("kernel", &[100.0; 6]), ("a", &[99.5; 6])]),
            "kernel",
            false,
        );
        assert_eq!(small[0].scheduler, "a");
        assert_eq!(verdict(&small, "kernel", Some(9.0)), Verdict::Stay);
        let few = judge(
            last(&[("kernel", &[100.0; 3]), ("a", &[50.0; 3])]),
            "kernel",
            false,
        );
        assert_eq!(few[0].interval_pct, None);
        assert_eq!(verdict(&few, "kernel", Some(90.0)), Verdict::Stay);
    }
}
