//! The advice: what was asked, what was found, and how sure it is.

use std::collections::BTreeMap;

use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use schedlab_compare::{Decomposed, Differs};
use serde::Serialize;

use crate::estimate::Estimate;

/// The version of the document.
pub const SCHEMA: u32 = 2;
/// Times that the seeds are drawn anew.
const DRAWS: u32 = 2_000;
/// A gain below this is not worth a change of the scheduler, in percent.
pub const WORTH_PCT: f64 = 1.0;

/// A scheduler of the last round: all of them with the same seeds, which the search has not seen.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finalist {
    /// The scheduler with its options.
    pub scheduler: String,
    /// A score for each seed.
    pub scores: Vec<f64>,
    /// Their mean.
    pub mean: f64,
    /// How its score differs from the reference's.
    pub differs: Differs,
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
    /// By how many percent its score differs from the reference's with the same seeds; absent where it failed or has no
    /// whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs_pct: Option<f64>,
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
    /// Those that failed.
    pub failed: u64,
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
    /// Replays under the recorded scheduler that were made.
    pub replays: u64,
    /// Those that came to their end, against the recording: (measure, error in percent).
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
}

/// Where the results come from that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Round {
    /// The last round, with seeds that the search has not seen.
    Last,
    /// The contest, which was stopped: its best were chosen by the same seeds.
    Contest,
}

/// The best one again, beside the reference, with seeds by which nothing was chosen.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Confirmed {
    /// How its score differs from the reference's; absent where a run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<Differs>,
    /// Why a run does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Why nothing is known of how much could be won.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoEstimate {
    /// The score is neither a makespan nor work per time.
    ScoreIsNoTime,
    /// The runs do different amounts of work.
    WorkDiffers,
    /// It was stopped before a run was taken apart.
    Stopped,
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
    /// Where these results come from.
    pub round: Round,
    /// The last round, the best first.
    pub finalists: Vec<Finalist>,
    /// The best one with further seeds; absent if it is the reference, if no seed changes anything, or if it was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmed>,
    /// The others, in the order of the contest.
    pub tried: Vec<Tried>,
    /// Features of the best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    /// About the shortest makespan, by the runs of the last round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// Why it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_estimate: Option<NoEstimate>,
    /// By how many percent the score of another scheduler could then differ from the reference's.
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

    /// The number of schedulers that were tried, the reference included: a stop leaves some without a run.
    pub fn schedulers(&self) -> usize {
        let tried = self.tried.iter();
        let tried = tried.filter(|one| one.runs > 0 || one.failed.is_some());
        self.finalists.len() + tried.count()
    }

    /// How the best one's score differs from the reference's, and whether the seeds are others than those that chose it.
    pub fn gain(&self) -> (&Differs, bool) {
        let confirmed = self.confirmed.as_ref();
        match confirmed.and_then(|one| one.differs.as_ref()) {
            Some(differs) => (differs, true),
            None => (&self.best().differs, false),
        }
    }
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
        .map(|((scheduler, scores), best_in_pct)| Finalist {
            mean: scores.iter().sum::<f64>() / scores.len().max(1) as f64,
            differs: Differs::of(&scores, &of_reference, higher).unwrap_or_default(),
            best_in_pct,
            as_good: false,
            work: None,
            time: None,
            scheduler,
            scores,
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
            let difference = Differs::of(&one.scores, &best, higher);
            one.as_good = difference.is_none_or(|difference| !difference.is_shown());
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

/// Returns the verdict: another scheduler is recommended only for what seeds show that did not choose it. Where no seed
/// changes anything, there is nothing to choose by.
pub fn verdict(
    finalists: &[Finalist],
    confirmed: Option<&Confirmed>,
    reference: &str,
    higher: bool,
) -> Verdict {
    let is_worth = |differs: &Differs| differs.is_shown() && differs.gain_pct(higher) >= WORTH_PCT;
    let changes = finalists.first().is_some_and(|best| {
        let differs = match confirmed {
            Some(confirmed) => confirmed.differs.as_ref(),
            None => Some(&best.differs).filter(|differs| differs.seeds_same),
        };
        best.scheduler != reference && differs.is_some_and(is_worth)
    });
    match changes {
        true => Verdict::Change,
        false => Verdict::Stay,
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

    const KERNEL: [f64; 6] = [100.0, 102.0, 98.0, 101.0, 99.0, 100.0];
    const FAST: [f64; 6] = [80.0, 82.0, 79.0, 81.0, 80.0, 80.0];

    /// The best one with further seeds.
    fn confirmed(own: &[f64], reference: &[f64]) -> Confirmed {
        Confirmed {
            differs: Differs::of(own, reference, false),
            failed: None,
        }
    }

    #[test]
    fn a_clear_winner_is_the_best_in_every_draw() {
        let judged = judge(
            last(&[
                ("kernel", &KERNEL),
                ("fast", &FAST),
                ("slow", &[140.0, 139.0, 141.0, 140.0, 142.0, 138.0]),
            ]),
            "kernel",
            false,
        );
        let names: Vec<&str> = judged.iter().map(|one| one.scheduler.as_str()).collect();
        assert_eq!(names, ["fast", "kernel", "slow"]);
        let differs = &judged[0].differs;
        assert_eq!(
            (differs.wins, differs.seeds, judged[0].best_in_pct),
            (6, 6, 100.0)
        );
        assert!((differs.percent + 20.0).abs() < 1.0, "{differs:?}");
        assert!(differs.interval_pct.unwrap()[1] < -15.0);
        assert!(judged[0].as_good && !judged[1].as_good && !judged[2].as_good);
        // Of rates the same numbers say the opposite.
        let scores = |one: &Finalist| (one.scheduler.clone(), one.scores.clone());
        let rates = judge(judged.iter().map(scores).collect(), "kernel", true);
        assert_eq!(rates[0].scheduler, "slow");
        assert!((rates[0].differs.gain_pct(true) - 40.0).abs() < 1.0);
    }

    /// The seeds that chose the best one flatter it: only others recommend it.
    #[test]
    fn only_seeds_that_chose_nothing_recommend_a_change() {
        let judged = judge(
            last(&[("kernel", &KERNEL), ("fast", &FAST)]),
            "kernel",
            false,
        );
        let verdict = |confirmed: Option<&Confirmed>| verdict(&judged, confirmed, "kernel", false);
        assert_eq!(verdict(None), Verdict::Stay);
        assert_eq!(verdict(Some(&confirmed(&FAST, &KERNEL))), Verdict::Change);
        // With the further seeds it is no better, or not by enough, or by too few of them.
        assert_eq!(verdict(Some(&confirmed(&KERNEL, &KERNEL))), Verdict::Stay);
        let little = KERNEL.map(|score| score * 0.995);
        assert_eq!(verdict(Some(&confirmed(&little, &KERNEL))), Verdict::Stay);
        assert_eq!(
            verdict(Some(&confirmed(&FAST[..3], &KERNEL[..3]))),
            Verdict::Stay
        );
        let failed = Confirmed {
            differs: None,
            failed: Some("stalled".to_owned()),
        };
        assert_eq!(verdict(Some(&failed)), Verdict::Stay);
    }

    #[test]
    fn what_chance_can_give_is_no_reason_to_change() {
        let kernel = [100.0, 90.0, 110.0, 95.0, 105.0, 100.0];
        let other = [99.0, 111.0, 89.0, 104.0, 94.0, 100.0];
        let judged = judge(
            last(&[("kernel", &kernel), ("other", &other)]),
            "kernel",
            false,
        );
        assert!(judged.iter().all(|one| one.as_good));
        let again = confirmed(&other, &kernel);
        assert_eq!(
            verdict(&judged, Some(&again), "kernel", false),
            Verdict::Stay
        );
        let sum: f64 = judged.iter().map(|one| one.best_in_pct).sum();
        assert!((sum - 100.0).abs() < 1e-9);
    }

    /// Six copies of one run have no interval: they are no sample of anything.
    #[test]
    fn copies_of_one_run_are_no_sample() {
        let judged = judge(
            last(&[("kernel", &[100.0; 6]), ("a", &[90.0; 6])]),
            "kernel",
            false,
        );
        let differs = &judged[0].differs;
        assert_eq!((differs.interval_pct, differs.seeds_same), (None, true));
        assert!(differs.is_shown() && !judged[1].as_good);
        assert_eq!(verdict(&judged, None, "kernel", false), Verdict::Change);
        // The same of a score that is the reference's own.
        assert!(!judged[1].differs.is_shown());
        let close = judge(
            last(&[("kernel", &[100.0; 6]), ("a", &[99.5; 6])]),
            "kernel",
            false,
        );
        assert_eq!(verdict(&close, None, "kernel", false), Verdict::Stay);
        // One seed is no copy, and one of several that differs makes them a sample.
        let of = |own: &[f64]| Differs::of(own, &[100.0; 6], false).unwrap();
        assert!(!of(&[90.0]).seeds_same);
        let mixed = of(&[90.0, 90.0, 90.0, 90.0, 90.0, 91.0]);
        assert!(!mixed.seeds_same && mixed.interval_pct.is_some());
    }

    #[test]
    fn equals_share_the_draws_and_the_reference_is_first() {
        let judged = judge(
            last(&[("a", &KERNEL), ("kernel", &KERNEL)]),
            "kernel",
            false,
        );
        assert_eq!(judged[0].scheduler, "kernel");
        assert!(
            judged
                .iter()
                .all(|one| (one.best_in_pct - 50.0).abs() < 1e-6)
        );
        assert_eq!(verdict(&judged, None, "kernel", false), Verdict::Stay);
    }
}
