//! Interprets a sweep with a budget: the best of its last runs, and estimates of the points without a run.

use std::collections::BTreeMap;

use schedlab_report::export::number::amount;
use schedlab_report::stats::{Interval, difference_in_percent};
use schedlab_search::{Estimated, Finalist, estimated, finalists};
use schedlab_sweep::{Definition, Row};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, StudentsT};

use crate::Data;
use crate::data::{deviation, mean};

/// The runs of a search and its winner.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Search {
    /// Runs that were made, of all seeds.
    pub runs: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Different schedulers that were run.
    pub schedulers: usize,
    /// Different schedulers of the space.
    pub of: usize,
    /// The best of those with the most seeds.
    pub best_scheduler: String,
    /// Its mean score.
    pub best: f64,
    /// Seeds that it was run with.
    pub seeds: usize,
    /// All seeds give it the same score, and the second best, too: copies of one run are no sample.
    pub seeds_same: bool,
    /// 95 % interval of its score over seeds; absent with one seed, and where no seed changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// The second best with as many seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<Second>,
}

/// The second best scheduler.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Second {
    /// Its name.
    pub scheduler: String,
    /// By how much its score differs from the best one's in percent, seed by seed.
    pub differs_pct: f64,
    /// 95 % interval of that; absent below six seeds, and where no seed changes any score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_pct: Option<[f64; 2]>,
}

impl Search {
    /// The winner and the runs in words; `failed_with` are the alternatives that all failed schedulers have.
    pub(crate) fn words(&self, unit: &str, failed_with: &[String]) -> Vec<String> {
        let mut sentences = vec![format!(
            "A search of {} runs: {} of {} different schedulers were run, chosen as results came, and the others are \
             estimated from them.",
            self.runs, self.schedulers, self.of
        )];
        let with = match failed_with {
            [] => String::new(),
            with => format!(" ({})", with.join(", ")),
        };
        match self.failed {
            0 => {}
            1 => sentences.push(format!(
                "1 of the runs failed{with}; it counts as the worst."
            )),
            failed => {
                let with = match failed_with {
                    [] => String::new(),
                    with => format!(", all with {}", with.join(" and ")),
                };
                sentences.push(format!(
                    "{failed} of the runs failed{with}; they count as the worst."
                ));
            }
        }
        if self.seeds_same {
            let second = self.second.as_ref().map_or(String::new(), |second| {
                format!(
                    ", and the second best differs by {:.1} %",
                    second.differs_pct
                )
            });
            sentences.push(format!(
                "The seed changes nothing here: with each of {} seeds the best has {}{second}.",
                self.seeds,
                amount(self.best, unit)
            ));
        }
        if let (false, Some(second)) = (self.seeds_same, &self.second) {
            let shown = second
                .interval_pct
                .map(|[low, high]| low > 0.0 || high < 0.0);
            let than = match shown {
                Some(true) => "beyond chance",
                Some(false) => "which may be chance",
                None => "of too few seeds to tell from chance",
            };
            let best = amount(self.best, unit);
            let best = match self.interval {
                Some([low, high]) => {
                    format!(
                        "the best has {best} ({} to {})",
                        amount(low, unit),
                        amount(high, unit)
                    )
                }
                // No seed changes it, but some change the second best.
                None => format!("the best has {best} each time"),
            };
            sentences.push(format!(
                "With {} seeds {best}, and the second best differs by {:.1} %, {than}.",
                self.seeds, second.differs_pct
            ));
        }
        sentences
    }
}

/// Results of a search as an analysis takes them.
pub(crate) struct Found {
    /// The winner.
    pub search: Search,
    /// The balanced sample alone: what was chosen for its results is no sample.
    pub sample: Data,
    /// All points: those that were not run are estimated.
    pub completed: Data,
}

/// Takes the results of a search apart; `None` if the sweep has no budget.
pub(crate) fn found(
    definition: &Definition,
    rows: &[Row],
    workload: &str,
    data: &Data,
) -> Option<Found> {
    definition.budget?;
    let index = definition
        .workloads
        .iter()
        .position(|one| one == workload)?;
    let rows: BTreeMap<u64, Row> = rows
        .iter()
        .filter(|row| row.workload == workload)
        .map(|row| (row.job, row.clone()))
        .collect();
    let known = estimated(definition, index, &rows)?;
    Some(Found {
        search: search(definition, index, &rows, data)?,
        sample: sample(data, &known),
        completed: completed(data, &known),
    })
}

fn sample(data: &Data, known: &Estimated) -> Data {
    let mut sample = data.clone();
    for (point, values) in (0..).zip(&mut sample.values) {
        if known.sample.binary_search(&point).is_err() {
            values.clear();
        }
    }
    sample
}

/// Estimates are of points that nobody has run, and none is better than what was measured.
fn completed(data: &Data, known: &Estimated) -> Data {
    let mut completed = data.clone();
    let Some(best) = data
        .points()
        .map(|point| data.mean(point))
        .reduce(|a, b| if data.better(a, b) { a } else { b })
    else {
        return completed;
    };
    // So that no estimate is named as the best.
    let margin = best.abs() * 1e-9;
    let next = if data.metric.higher {
        best - margin
    } else {
        best + margin
    };
    let seeds = data.seeds();
    completed.estimated = vec![false; data.values.len()];
    for (point, values) in completed.values.iter_mut().enumerate() {
        if values.is_empty() && !data.is_left_out(point) {
            let score = known.scores[point];
            let score = if data.better(score, next) {
                next
            } else {
                score
            };
            *values = vec![score; seeds];
            completed.estimated[point] = true;
        }
    }
    completed
}

fn search(
    definition: &Definition,
    workload: usize,
    rows: &BTreeMap<u64, Row>,
    data: &Data,
) -> Option<Search> {
    let finalists = finalists(definition, workload, rows);
    let seeds = finalists.iter().map(|one| one.scores.len()).max()?;
    let mut last: Vec<&Finalist> = finalists
        .iter()
        .filter(|one| one.scores.len() == seeds)
        .collect();
    last.sort_by(|a, b| {
        let order = a.mean().total_cmp(&b.mean());
        let order = if data.metric.higher {
            order.reverse()
        } else {
            order
        };
        order.then(a.scheduler.cmp(&b.scheduler))
    });
    let firsts: Vec<u64> = definition.schedulers().collect();
    let name = |one: &Finalist| {
        definition
            .space
            .scheduler(firsts[one.scheduler])
            .to_string()
    };
    let best = last.first()?;
    let second = last.get(1).filter(|_| seeds > 1).and_then(|second| {
        let pairs: Vec<(f64, f64)> = second
            .scores
            .iter()
            .copied()
            .zip(best.scores.iter().copied())
            .collect();
        let difference = difference_in_percent(&pairs)?;
        let sample = difference.interval.filter(|_| !are_same(&pairs));
        Some(Second {
            scheduler: name(second),
            differs_pct: difference.estimate,
            interval_pct: sample.map(|Interval { low, high }| [low, high]),
        })
    });
    let made = (0..definition.runs()).filter_map(|run| {
        let mut jobs = definition.jobs_of(run);
        jobs.next().and_then(|job| rows.get(&job))
    });
    let made: Vec<&Row> = made.collect();
    let mut compared = last.iter().take(2);
    let seeds_same = seeds > 1 && compared.all(|one| are_same(&one.scores));
    let first_seed = (0..firsts.len()).filter(|&one| {
        let run = definition.run_of(one, workload, 0);
        let mut jobs = definition.jobs_of(run);
        jobs.next().is_some_and(|job| rows.contains_key(&job))
    });
    Some(Search {
        failed: made.iter().filter(|row| !row.is_done()).count() as u64,
        runs: made.len() as u64,
        schedulers: first_seed.count(),
        of: firsts.len(),
        best_scheduler: name(best),
        best: best.mean(),
        seeds,
        seeds_same,
        interval: interval(&best.scores).filter(|_| !are_same(&best.scores)),
        second,
    })
}

/// Whether all are copies of the first.
fn are_same<T: PartialEq>(all: &[T]) -> bool {
    all.iter().all(|one| *one == all[0])
}

/// Student's 95 % interval of a mean.
fn interval(scores: &[f64]) -> Option<[f64; 2]> {
    let deviation = deviation(scores)?;
    let freedom = (scores.len() - 1) as f64;
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975);
    let half = t * deviation / (scores.len() as f64).sqrt();
    let mean = mean(scores);
    Some([mean - half, mean + half])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> Search {
        Search {
            runs: 60,
            failed: 0,
            schedulers: 40,
            of: 2_916,
            best_scheduler: "tree:a=on".to_owned(),
            best: 100.0,
            seeds: 1,
            seeds_same: false,
            interval: None,
            second: None,
        }
    }

    const RUNS: &str = "A search of 60 runs: 40 of 2916 different schedulers were run, chosen as results came, and the others \
                        are estimated from them.";

    #[test]
    fn runs_that_failed_are_told() {
        let mut search = search();
        assert_eq!(search.words("ns", &[]), [RUNS]);
        search.failed = 1;
        assert_eq!(
            search.words("ns", &[])[1..],
            ["1 of the runs failed; it counts as the worst."]
        );
        let with = ["a=on".to_owned(), "b=off".to_owned()];
        assert_eq!(
            search.words("ns", &with)[1..],
            ["1 of the runs failed (a=on, b=off); it counts as the worst."]
        );
        search.failed = 7;
        assert_eq!(
            search.words("ns", &with)[1..],
            ["7 of the runs failed, all with a=on and b=off; they count as the worst."]
        );
        assert_eq!(
            search.words("ns", &[])[1..],
            ["7 of the runs failed; they count as the worst."]
        );
    }

    #[test]
    fn the_winner_is_told_with_what_seeds_say() {
        let mut search = search();
        search.seeds = 8;
        search.interval = Some([99.0, 101.0]);
        let second = |interval_pct| Second {
            scheduler: "tree:a=off".to_owned(),
            differs_pct: 2.0,
            interval_pct,
        };
        for (interval_pct, told) in [
            (Some([1.0, 3.0]), "beyond chance"),
            (Some([-1.0, 3.0]), "which may be chance"),
            (None, "of too few seeds to tell from chance"),
        ] {
            search.second = Some(second(interval_pct));
            assert_eq!(
                search.words("ns", &[])[1],
                format!(
                    "With 8 seeds the best has 100 ns (99.0 ns to 101 ns), and the second best differs by 2.0 %, {told}."
                )
            );
        }
        // The best has one score, and the second best varies.
        search.interval = None;
        search.second = Some(second(Some([1.0, 3.0])));
        assert_eq!(
            search.words("ns", &[])[1..],
            [
                "With 8 seeds the best has 100 ns each time, and the second best differs by 2.0 %, beyond chance."
            ]
        );
        search.seeds_same = true;
        search.second = Some(second(None));
        assert_eq!(
            search.words("ns", &[])[1..],
            [
                "The seed changes nothing here: with each of 8 seeds the best has 100 ns, and the second best differs by 2.0 %."
            ]
        );
        search.second = None;
        assert_eq!(
            search.words("ns", &[])[1..],
            ["The seed changes nothing here: with each of 8 seeds the best has 100 ns."]
        );
    }
}
