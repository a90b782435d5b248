//! The contest of schedulers: of many with few runs, of few with many.

use std::collections::BTreeMap;

use schedlab_report::{Exit, RunResult};
use schedlab_sim::{Scheduler, SimSpec};
use schedlab_trace::Duration;

use crate::runs::Runs;

/// A run that takes so many times as long as the reference is given up.
pub const LIMIT_FACTOR: u64 = 3;
/// The part of the reference's makespan that a first round over few runs is cut to.
const CUT: u64 = 4;
/// So many are left for the last round.
pub const LEFT: usize = 3;

/// A scheduler in the contest.
#[derive(Clone, PartialEq, Debug)]
pub struct Contestant {
    /// Which.
    pub scheduler: Scheduler,
    /// Scores by seed.
    pub scores: BTreeMap<u64, f64>,
    /// The rounds that it was in.
    pub rounds: u32,
    /// Why a run of it does not count.
    pub failed: Option<String>,
}

impl Contestant {
    /// Begins.
    pub fn new(scheduler: Scheduler) -> Contestant {
        Contestant {
            scheduler,
            scores: BTreeMap::new(),
            rounds: 0,
            failed: None,
        }
    }

    /// Returns the mean of its scores; `None` without any.
    pub fn mean(&self) -> Option<f64> {
        let sum: f64 = self.scores.values().sum();
        (!self.scores.is_empty()).then(|| sum / self.scores.len() as f64)
    }

    /// Takes a result in.
    pub fn take(&mut self, seed: u64, result: &RunResult) {
        match (result.is_done(), result.measures.number("score")) {
            (true, Some(score)) => {
                self.scores.insert(seed, score);
            }
            (true, None) => self.failed = Some("its run has no score".to_owned()),
            (false, _) => self.failed = Some(why(result)),
        }
    }
}

/// Why a run does not count.
pub fn why(result: &RunResult) -> String {
    match (result.exit, &result.message) {
        (Exit::TimeLimit, _) => format!("takes more than {LIMIT_FACTOR} times as long"),
        (exit, Some(message)) => format!("{exit}: {message}"),
        (exit, None) => exit.to_string(),
    }
}

/// Sorts the better ones to the front; those that failed are last.
pub fn rank(contestants: &mut [Contestant], higher: bool) {
    contestants.sort_by(|a, b| {
        let key = |one: &Contestant| match (&one.failed, one.mean()) {
            (None, Some(mean)) => (false, if higher { -mean } else { mean }),
            _ => (true, 0.0),
        };
        let ((a_out, a_mean), (b_out, b_mean)) = (key(a), key(b));
        a_out
            .cmp(&b_out)
            .then(b.rounds.cmp(&a.rounds))
            .then(a_mean.total_cmp(&b_mean))
            .then_with(|| a.scheduler.to_string().cmp(&b.scheduler.to_string()))
    });
}

/// The common part of all runs of the contest.
pub struct Field {
    /// The run but for its scheduler and seed.
    pub spec: SimSpec,
    /// Whether of two scores the higher one is better.
    pub higher: bool,
    /// Simulated time of the reference.
    pub makespan_ns: u64,
    /// Whether the score follows from the makespan: then work per time shows early which scheduler is slow.
    pub by_makespan: bool,
}

impl Field {
    /// Returns the run of a scheduler with a seed.
    pub fn run(&self, scheduler: &Scheduler, seed: u64) -> SimSpec {
        SimSpec {
            scheduler: scheduler.clone(),
            seed,
            ..self.spec.clone()
        }
    }
}

/// Lets contestants compete with about `budget` runs: all with one seed, the better half with two, a quarter with four.
/// All of a round have the same seeds. If there are fewer runs than contestants twice over, the first round ends after
/// a quarter of the reference's time and counts the work done until then. Returns the contestants, the best first.
pub fn halve(
    field: &Field,
    runs: &mut Runs<'_>,
    contestants: Vec<Contestant>,
    budget: u64,
) -> Vec<Contestant> {
    let mut all = contestants;
    let seed = field.spec.seed;
    let mut left = budget;
    let is_cut = field.by_makespan && budget < 2 * all.len() as u64;
    if is_cut {
        cut_short(field, runs, &mut all);
        left = left.saturating_sub((all.len() as u64).div_ceil(CUT));
    }
    let mut seeds = 0;
    let mut size = all.iter().filter(|one| one.failed.is_none()).count();
    if is_cut {
        size = size.div_ceil(2);
    }
    while size > 0 && !runs.is_stopped() {
        let more = u64::max(seeds, 1).min(left / size as u64);
        if more == 0 {
            break;
        }
        round(field, runs, &mut all[..size], seed + seeds, more);
        left -= more * size as u64;
        seeds += more;
        rank(&mut all, field.higher);
        let good = all[..size].iter().filter(|one| one.failed.is_none());
        let good = good.count();
        if good <= LEFT {
            size = good;
            if seeds >= 4 {
                break;
            }
        } else {
            size = good.div_ceil(2).max(LEFT);
        }
    }
    all
}

fn round(
    field: &Field,
    runs: &mut Runs<'_>,
    contestants: &mut [Contestant],
    first: u64,
    seeds: u64,
) {
    let pairs: Vec<(usize, u64)> = (first..first + seeds)
        .flat_map(|seed| (0..contestants.len()).map(move |place| (place, seed)))
        .collect();
    let specs: Vec<SimSpec> = pairs
        .iter()
        .map(|&(place, seed)| field.run(&contestants[place].scheduler, seed))
        .collect();
    let results = runs.make("built-in schedulers", &specs);
    for (&(place, seed), result) in pairs.iter().zip(&results) {
        if let Some(result) = result {
            contestants[place].take(seed, result);
        }
    }
    for contestant in contestants {
        contestant.rounds += 1;
    }
}

/// Ranks all by the work that they have done after a part of the reference's time.
fn cut_short(field: &Field, runs: &mut Runs<'_>, all: &mut Vec<Contestant>) {
    let limit = Duration::from_ns((field.makespan_ns / CUT).max(1));
    let specs: Vec<SimSpec> = all
        .iter()
        .map(|one| SimSpec {
            time_limit: limit,
            ..field.run(&one.scheduler, field.spec.seed)
        })
        .collect();
    let results = runs.make("built-in schedulers, a part of the time", &specs);
    let mut ranked: Vec<(f64, Contestant)> = all
        .drain(..)
        .zip(results)
        .map(|(mut one, result)| {
            let rate = result.map_or(0.0, |result| match result.exit {
                Exit::Done | Exit::TimeLimit => rate(&result, limit),
                _ => {
                    one.failed = Some(why(&result));
                    0.0
                }
            });
            (rate, one)
        })
        .collect();
    ranked.sort_by(|(a, one), (b, other)| {
        b.total_cmp(a)
            .then_with(|| one.scheduler.to_string().cmp(&other.scheduler.to_string()))
    });
    all.extend(ranked.into_iter().map(|(_, one)| one));
}

/// Work per time.
fn rate(result: &RunResult, limit: Duration) -> f64 {
    let work = result.measures.number("work").unwrap_or(0.0);
    let time = match result.exit {
        Exit::TimeLimit => limit.ns() as f64,
        _ => result
            .measures
            .number("makespan_ns")
            .unwrap_or(limit.ns() as f64),
    };
    work / time.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contestant(name: &str, scores: &[f64], failed: bool) -> Contestant {
        Contestant {
            scores: (1..).zip(scores.iter().copied()).collect(),
            failed: failed.then(|| "stalled".to_owned()),
            rounds: scores.len() as u32,
            ..Contestant::new(Scheduler::parse(name))
        }
    }

    #[test]
    fn who_came_further_is_before_who_did_not_and_failures_are_last() {
        let mut all = vec![
            contestant("a", &[1.0], false),
            contestant("b", &[5.0, 5.0], false),
            contestant("c", &[4.0, 4.0], false),
            contestant("d", &[0.5], true),
            contestant("e", &[], false),
        ];
        let names = |all: &[Contestant]| -> Vec<String> {
            all.iter().map(|one| one.scheduler.to_string()).collect()
        };
        rank(&mut all, false);
        assert_eq!(names(&all), ["c", "b", "a", "d", "e"]);
        rank(&mut all, true);
        assert_eq!(names(&all), ["b", "c", "a", "d", "e"]);
    }

    #[test]
    fn a_run_that_was_given_up_says_so() {
        let mut one = contestant("a", &[], false);
        let mut result = RunResult {
            exit: Exit::TimeLimit,
            ..RunResult::default()
        };
        one.take(1, &result);
        assert_eq!(
            one.failed.as_deref(),
            Some("takes more than 3 times as long")
        );
        result.exit = Exit::ErrorStall;
        result.message = Some("no CPU for 30 s".to_owned());
        assert!(why(&result).ends_with(": no CPU for 30 s"));
        assert_eq!(one.mean(), None);
    }
}
