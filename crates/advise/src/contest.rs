//! The contest of schedulers: of many with few runs, of few with many.

use std::collections::BTreeMap;

use schedlab_report::export::number::amount;
use schedlab_report::{Exit, RunResult};
use schedlab_sim::{Scheduler, SimSpec};
use schedlab_trace::Duration;
use schedlab_workload::ScoreRule;

use crate::runs::Runs;

/// A run that takes so many times as long as the reference is given up.
pub const LIMIT_FACTOR: u64 = 3;
/// The part of the reference's makespan that a first round over few runs is cut to.
const CUT: u64 = 4;
/// So many are left for the last round.
pub const LEFT: usize = 3;

/// When a run is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// After [`LIMIT_FACTOR`] times the reference's time.
    Slow,
    /// At the limit that was asked for, which comes earlier.
    AtLimit(Duration),
}

impl GivenUp {
    /// Returns when a run is given up whose reference takes `makespan_ns` (0: unknown), with the limit that was asked for.
    pub fn of(makespan_ns: u64, asked: Duration) -> GivenUp {
        let slow = Duration::from_ns(makespan_ns.saturating_mul(LIMIT_FACTOR));
        match makespan_ns > 0 && slow < asked {
            true => GivenUp::Slow,
            false => GivenUp::AtLimit(asked),
        }
    }
}

/// A scheduler in the contest.
#[derive(Clone, PartialEq, Debug)]
pub struct Contestant {
    /// Which.
    pub scheduler: Scheduler,
    /// Scores by seed.
    pub scores: BTreeMap<u64, f64>,
    /// The rounds that it was in to their end.
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

    /// Takes a result in, of a run with this limit.
    pub fn take(&mut self, seed: u64, result: &RunResult, limit: GivenUp) {
        match (result.is_done(), result.measures.number("score")) {
            (true, Some(score)) => {
                self.scores.insert(seed, score);
            }
            (true, None) => self.failed = Some("its run has no score".to_owned()),
            (false, _) => self.failed = Some(why(result, limit)),
        }
    }
}

/// Why a run does not count that was given up at a limit.
pub fn why(result: &RunResult, limit: GivenUp) -> String {
    match (result.exit, &result.message) {
        (Exit::TimeLimit, _) => match limit {
            GivenUp::Slow => format!(
                "takes more than {LIMIT_FACTOR} times as long as the first run of the current scheduler"
            ),
            GivenUp::AtLimit(limit) => format!(
                "had not ended at the time limit of {}",
                amount(limit.ns() as f64, "ns")
            ),
        },
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
    /// When a run is given up.
    pub limit: GivenUp,
    /// How the score follows from the time of a run, if it does.
    pub rule: Option<ScoreRule>,
    /// The score counts the whole run, so that work per time shows early which scheduler is slow.
    pub shows_early: bool,
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
/// All of a round have the same seeds, and the reference has them, too, so that an interrupted contest can be compared with it.
/// If there are fewer runs than contestants twice over, the first round ends after
/// a quarter of the reference's time and counts the work done until then. Returns the contestants, the best first.
pub fn halve(
    field: &Field,
    runs: &mut Runs<'_>,
    reference: &mut Contestant,
    contestants: Vec<Contestant>,
    budget: u64,
) -> Vec<Contestant> {
    let mut all = contestants;
    let seed = field.spec.seed;
    let mut left = budget;
    let mut is_cut = field.shows_early && budget < 2 * all.len() as u64;
    if is_cut {
        is_cut = cut_short(field, runs, &mut all);
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
        let fresh = seed.wrapping_add(seeds);
        round(field, runs, reference, &mut all[..size], (fresh, more));
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
    reference: &mut Contestant,
    contestants: &mut [Contestant],
    (first, seeds): (u64, u64),
) {
    // Nobody's place: the reference, which has the first seed already.
    let all = contestants.len();
    let pairs: Vec<(usize, u64)> = (0..seeds)
        .map(|seed| first.wrapping_add(seed))
        .flat_map(|seed| {
            let own = (!reference.scores.contains_key(&seed)).then_some((all, seed));
            own.into_iter()
                .chain((0..all).map(move |place| (place, seed)))
        })
        .collect();
    let scheduler = |place: usize| match contestants.get(place) {
        Some(contestant) => &contestant.scheduler,
        None => &reference.scheduler,
    };
    let specs: Vec<SimSpec> = pairs
        .iter()
        .map(|&(place, seed)| field.run(scheduler(place), seed))
        .collect();
    let results = runs.make("built-in schedulers", &specs);
    for (&(place, seed), result) in pairs.iter().zip(&results) {
        if let Some(result) = result {
            let contestant = contestants.get_mut(place).unwrap_or(reference);
            contestant.take(seed, result, field.limit);
        }
    }
    // Of a round that was stopped some have seeds that others lack.
    if results.iter().all(Option::is_some) {
        for contestant in contestants {
            contestant.rounds += 1;
        }
    }
}

/// Compares the best of a contest that was stopped with the reference, by the seeds that all of them had: the scores of
/// the reference first. Empty if nobody but the reference came to an end.
pub fn so_far(
    reference: &Contestant,
    contestants: &[Contestant],
    higher: bool,
) -> Vec<(String, Vec<f64>)> {
    let good = |one: &&Contestant| one.failed.is_none() && !one.scores.is_empty();
    let rounds = contestants.iter().filter(good).map(|one| one.rounds).max();
    let last: Vec<&Contestant> = contestants
        .iter()
        .filter(good)
        .filter(|one| Some(one.rounds) == rounds)
        .collect();
    let mut seeds: Vec<u64> = reference.scores.keys().copied().collect();
    seeds.retain(|seed| last.iter().all(|one| one.scores.contains_key(seed)));
    if last.is_empty() || seeds.is_empty() {
        return Vec::new();
    }
    let scores = |one: &Contestant| -> (String, Vec<f64>) {
        let scores = seeds.iter().map(|seed| one.scores[seed]);
        (one.scheduler.to_string(), scores.collect())
    };
    let mut others: Vec<(String, Vec<f64>)> = last.into_iter().map(scores).collect();
    others.sort_by(|(one, a), (other, b)| {
        let order = a.iter().sum::<f64>().total_cmp(&b.iter().sum());
        let order = if higher { order.reverse() } else { order };
        order.then_with(|| one.cmp(other))
    });
    others.truncate(LEFT);
    others.insert(0, scores(reference));
    others
}

/// Ranks all by the work that they have done after a part of the reference's time. Returns whether that shows the better half
/// from the others: work may be counted in few large pieces.
fn cut_short(field: &Field, runs: &mut Runs<'_>, all: &mut Vec<Contestant>) -> bool {
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
                    one.failed = Some(why(&result, field.limit));
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
    let half = ranked.len().div_ceil(2);
    let shows = ranked
        .get(half)
        .is_none_or(|(rate, _)| *rate < ranked[half - 1].0);
    all.extend(ranked.into_iter().map(|(_, one)| one));
    shows
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

    /// Of a contest that was stopped, the best of the last whole round are compared by the seeds that all have.
    #[test]
    fn a_contest_that_was_stopped_has_its_best() {
        let reference = contestant("kernel", &[9.0, 9.5, 9.7], false);
        let mut all = vec![
            contestant("a", &[6.0], false),
            contestant("b", &[5.0, 5.5], false),
            contestant("c", &[4.0, 4.5], false),
            contestant("d", &[1.0, 1.0], true),
        ];
        // One of the next round had its turn before the stop.
        all[1].scores.insert(3, 1.0);
        let told = so_far(&reference, &all, false);
        let expected = [
            ("kernel", vec![9.0, 9.5]),
            ("c", vec![4.0, 4.5]),
            ("b", vec![5.0, 5.5]),
        ];
        let expected = expected.map(|(name, scores)| (name.to_owned(), scores));
        assert_eq!(told, expected);
        let best = |higher| so_far(&reference, &all, higher)[1].0.clone();
        assert_eq!((best(false), best(true)), ("c".to_owned(), "b".to_owned()));
        // In the first round all that came to an end.
        for one in &mut all {
            one.rounds = 0;
        }
        assert_eq!(so_far(&reference, &all, false)[1].0, "c");
        assert!(so_far(&reference, &[contestant("e", &[], false)], false).is_empty());
    }

    #[test]
    fn a_run_that_was_given_up_says_so() {
        let mut one = contestant("a", &[], false);
        let mut result = RunResult {
            exit: Exit::TimeLimit,
            ..RunResult::default()
        };
        // The reference takes a second.
        let second = 1_000_000_000;
        for (asked, told) in [
            (
                90 * second,
                "takes more than 3 times as long as the first run of the current scheduler",
            ),
            (2 * second, "had not ended at the time limit of 2.00 s"),
        ] {
            one.take(1, &result, GivenUp::of(second, Duration::from_ns(asked)));
            assert_eq!(one.failed.as_deref(), Some(told));
        }
        let unknown = GivenUp::of(0, Duration::from_ns(second));
        assert_eq!(unknown, GivenUp::AtLimit(Duration::from_ns(second)));
        result.exit = Exit::ErrorStall;
        result.message = Some("no CPU for 30 s".to_owned());
        assert!(why(&result, unknown).ends_with(": no CPU for 30 s"));
        assert_eq!(one.mean(), None);
    }
}
