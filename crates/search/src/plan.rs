//! Which runs come next.

use std::collections::{BTreeMap, BTreeSet};

use schedlab_sweep::{Definition, Row};

use crate::surrogate::{Surrogate, Weights};

/// The part of the runs for one seed that the balanced sample takes.
const DESIGN_PART: f64 = 0.4;
/// Stages behind the sample, each of which knows the results of those before.
const STAGES: u64 = 6;
/// The part of all runs that further seeds of the best take, if there are any.
const RACE_PART: f64 = 0.3;
/// Schedulers that are at most so much worse than the best are good ones: as of the study.
const WITHIN: f64 = 0.1;
/// One run of so many of a stage is of a scheduler that may be the best.
const BEST_EVERY: usize = 4;
/// Standard deviations within which the model may be wrong.
const CONFIDENCE: f64 = 1.96;
/// More candidates than this are not compared with each other; of a larger space a sample is.
const CANDIDATES_MAX: u64 = 10_000;
/// The fewest runs of a workload for which a model is worth its name.
pub const RUNS_MIN: u64 = 16;

/// The runs of a workload.
struct Share {
    workload: usize,
    /// Runs with the first seed.
    search: u64,
    /// Runs with further ones.
    race: u64,
    /// Those of the model of the last stage.
    weights: Option<Weights>,
}

/// A search: its stages are computed from the rows that are there, and again from the same rows.
pub struct Plan {
    definition: Definition,
    /// The alternatives of each different scheduler.
    choices: Vec<Vec<usize>>,
    shares: Vec<Share>,
    /// The schedulers of the sample, the same for all workloads.
    design: Vec<usize>,
    /// The runs of each stage so far.
    stages: Vec<Vec<u64>>,
    /// All of them. Rows of later stages may be there, and say nothing about earlier ones.
    known: BTreeSet<u64>,
}

/// The result of a run with the first seed.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Outcome {
    Score(f64),
    Failed,
}

/// The results of a workload by scheduler, in the order of schedulers.
type Results = BTreeMap<usize, Outcome>;

impl Plan {
    /// Begins the search of a sweep; `None` if the sweep has no budget.
    pub fn new(definition: &Definition) -> Option<Plan> {
        let budget = definition.budget?;
        let firsts: Vec<u64> = definition.schedulers().collect();
        let nr_workloads = definition.workloads.len() as u64;
        let shares = (0..definition.workloads.len()).map(|workload| {
            let extra = u64::from((workload as u64) < budget.runs % nr_workloads);
            let runs = budget.runs / nr_workloads + extra;
            let race = match definition.repeat {
                0 | 1 => 0,
                _ => (runs as f64 * RACE_PART) as u64,
            };
            Share {
                workload,
                search: runs - race,
                race,
                weights: None,
            }
        });
        let shares: Vec<Share> = shares.collect();
        let search = shares.iter().map(|share| share.search).min().unwrap_or(0);
        Some(Plan {
            choices: firsts
                .iter()
                .map(|first| definition.space.choices(*first))
                .collect(),
            design: design(definition, &firsts, search),
            definition: definition.clone(),
            shares,
            stages: Vec::new(),
            known: BTreeSet::new(),
        })
    }

    /// Returns the runs of the stage that is under way, done or not; `None` if the search is over.
    pub fn stage(&mut self, rows: &BTreeMap<u64, Row>) -> Option<Vec<u64>> {
        loop {
            if let Some(stage) = self.stages.last()
                && stage.iter().any(|run| !self.is_done(*run, rows))
            {
                return Some(stage.clone());
            }
            let next = self.next(rows);
            if next.is_empty() {
                return None;
            }
            self.known.extend(&next);
            self.stages.push(next);
        }
    }

    /// The number of runs that are left to choose.
    pub fn runs(&self) -> u64 {
        let shares = self.shares.iter();
        shares.map(|share| share.search + share.race).sum()
    }

    fn is_done(&self, run: u64, rows: &BTreeMap<u64, Row>) -> bool {
        let mut jobs = self.definition.jobs_of(run);
        jobs.all(|job| rows.contains_key(&job))
    }

    /// The runs of the stage behind those that are known.
    fn next(&mut self, rows: &BTreeMap<u64, Row>) -> Vec<u64> {
        let stage = self.stages.len() as u64;
        let mut runs = Vec::new();
        for place in 0..self.shares.len() {
            match stage {
                0 => {
                    let design = self.design.iter().copied();
                    runs.extend(self.first_seed(self.shares[place].workload, design));
                }
                1..=STAGES => runs.extend(self.search(place, stage, rows)),
                _ => runs.extend(self.race(&self.shares[place], rows)),
            }
        }
        // A stage without runs of its own, as of a space that is done, makes way for the race.
        if runs.is_empty() && stage <= STAGES {
            let races = self.shares.iter().flat_map(|share| self.race(share, rows));
            runs = races.collect();
        }
        runs
    }

    /// The schedulers of a workload that are run with the first seed next.
    fn search(&mut self, place: usize, stage: u64, rows: &BTreeMap<u64, Row>) -> Vec<u64> {
        let Share {
            workload, search, ..
        } = self.shares[place];
        let results = self.results(workload, 0, rows);
        let size = search
            .saturating_sub(results.len() as u64)
            .div_ceil(STAGES + 1 - stage);
        let open: Vec<usize> = (0..self.choices.len())
            .filter(|scheduler| !results.contains_key(scheduler))
            .collect();
        if open.len() as u64 <= size {
            return self.first_seed(workload, open.into_iter());
        }
        let higher = higher_is_better(&self.definition, workload, rows);
        let before = self.shares[place].weights.as_ref();
        let Some(model) = model(&self.choices, &results, higher, before) else {
            // Nothing has ended yet: one is as good as another.
            return self.first_seed(workload, open.into_iter().take(size as usize));
        };
        let chosen = choose(&self.choices, open, &model, size, stage == STAGES);
        self.shares[place].weights = Some(model.weights().clone());
        self.first_seed(workload, chosen.into_iter())
    }

    fn first_seed(&self, workload: usize, schedulers: impl Iterator<Item = usize>) -> Vec<u64> {
        schedulers
            .map(|scheduler| self.definition.run_of(scheduler, workload, 0))
            .collect()
    }

    /// The results with a seed.
    fn results(&self, workload: usize, repetition: u32, rows: &BTreeMap<u64, Row>) -> Results {
        let known = |run: u64| self.known.contains(&run);
        results(&self.definition, workload, repetition, rows, known)
    }

    /// The next round of the race: half as many of the best, with twice as many seeds.
    fn race(&self, share: &Share, rows: &BTreeMap<u64, Row>) -> Vec<u64> {
        let repeat = self.definition.repeat;
        let higher = higher_is_better(&self.definition, share.workload, rows);
        let racers = racers(&self.definition, |seed| {
            self.results(share.workload, seed, rows)
        });
        // All of the last round have the same seeds.
        let Some(seeds) = racers.iter().map(|racer| racer.scores.len() as u32).max() else {
            return Vec::new();
        };
        let spent: u64 = (1..seeds)
            .map(|seed| self.results(share.workload, seed, rows).len() as u64)
            .sum();
        let left = share.race.saturating_sub(spent);
        if seeds >= repeat || left == 0 {
            return Vec::new();
        }
        let more = seeds.min(repeat - seeds);
        // Rounds that are left, this one included: each doubles the seeds.
        let rounds = u64::from(
            (repeat.div_ceil(seeds))
                .next_power_of_two()
                .trailing_zeros(),
        );
        let size = (left / rounds.max(1) / u64::from(more)).max(2);
        let mut racers: Vec<&Finalist> = racers
            .iter()
            .filter(|racer| racer.scores.len() as u32 == seeds)
            .collect();
        racers.sort_by(|a, b| {
            let order = a.mean().total_cmp(&b.mean());
            let order = if higher { order.reverse() } else { order };
            order.then(a.scheduler.cmp(&b.scheduler))
        });
        let kept = if seeds == 1 {
            size as usize
        } else {
            (size as usize).min(racers.len().div_ceil(2)).max(2)
        };
        racers.truncate(kept);
        let more = u64::from(more).min(left / racers.len().max(1) as u64) as u32;
        let schedulers: Vec<usize> = racers.iter().map(|racer| racer.scheduler).collect();
        let mut runs = Vec::new();
        for seed in seeds..seeds + more {
            for &scheduler in &schedulers {
                runs.push(self.definition.run_of(scheduler, share.workload, seed));
            }
        }
        runs
    }
}

/// A balanced sample of different schedulers, or all of them.
fn design(definition: &Definition, firsts: &[u64], search: u64) -> Vec<usize> {
    if search >= firsts.len() as u64 {
        return (0..firsts.len()).collect();
    }
    let size = (search as f64 * DESIGN_PART).ceil() as u64;
    let sample = definition.space.sample(size, definition.seed);
    let mut places: Vec<usize> = sample
        .into_iter()
        .filter_map(|point| firsts.binary_search(&definition.space.same_as(point)).ok())
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn results(
    definition: &Definition,
    workload: usize,
    repetition: u32,
    rows: &BTreeMap<u64, Row>,
    counts: impl Fn(u64) -> bool,
) -> Results {
    let schedulers = definition.schedulers().count();
    let of = |scheduler: usize| {
        let run = definition.run_of(scheduler, workload, repetition);
        if !counts(run) {
            return None;
        }
        let job = definition.jobs_of(run).next()?;
        let row = rows.get(&job)?;
        let outcome = match row.value("score") {
            Some(score) if row.is_done() => Outcome::Score(score),
            _ => Outcome::Failed,
        };
        Some((scheduler, outcome))
    };
    (0..schedulers).filter_map(of).collect()
}

fn higher_is_better(definition: &Definition, workload: usize, rows: &BTreeMap<u64, Row>) -> bool {
    let name = &definition.workloads[workload];
    let of = |row: &&Row| row.workload == *name && row.score_better.is_some();
    rows.values().find(of).is_none_or(Row::higher_is_better)
}

/// How much worse each result is than the best, on a scale that is linear near the best and logarithmic far from it: there the
/// decisions are made. A failed run counts as the worst one, and as one that is twice as bad as the best at least: where all
/// others are alike, it is no good one.
fn losses(results: &Results, higher: bool) -> Option<Losses> {
    let scores = results.values().filter_map(|outcome| match outcome {
        Outcome::Score(score) => Some(*score),
        Outcome::Failed => None,
    });
    let best = scores
        .clone()
        .reduce(if higher { f64::max } else { f64::min })?;
    let size = match best == 0.0 {
        true => scores
            .clone()
            .map(f64::abs)
            .fold(f64::MIN_POSITIVE, f64::max),
        false => best.abs(),
    };
    let loss = |score: f64| bent((score - best).abs() / size);
    let worst = scores.map(loss).fold(bent(1.0), f64::max);
    let of = |outcome: &Outcome| match outcome {
        Outcome::Score(score) => loss(*score),
        Outcome::Failed => worst,
    };
    Some(Losses {
        best,
        size,
        bent: results.values().map(of).collect(),
    })
}

/// How much worse results are than the best.
struct Losses {
    best: f64,
    /// The loss of 1.
    size: f64,
    /// Of each result in order, bent.
    bent: Vec<f64>,
}

fn bent(loss: f64) -> f64 {
    libm::asinh(loss / WITHIN)
}

fn straight(bent: f64) -> f64 {
    WITHIN * libm::sinh(bent)
}

/// The schedulers whose runs decide most: one that may be better than all, then some of which it is open whether they are
/// good ones, and so on. The last stage takes the first kind alone.
fn choose(
    choices: &[Vec<usize>],
    open: Vec<usize>,
    model: &Surrogate,
    size: u64,
    is_last: bool,
) -> Vec<usize> {
    // Of a large space a part, evenly spread.
    let step = (open.len() as u64).div_ceil(CANDIDATES_MAX) as usize;
    let open: Vec<usize> = open.into_iter().step_by(step).collect();
    let points: Vec<Vec<usize>> = open.iter().map(|&one| choices[one].clone()).collect();
    let means: Vec<f64> = points.iter().map(|point| model.mean(point)).collect();
    let mut doubts = model.doubts(&points);
    let border = bent(WITHIN);
    let mut left: Vec<usize> = (0..points.len()).collect();
    let mut chosen = Vec::new();
    while (chosen.len() as u64) < size && !left.is_empty() {
        let best_first = is_last || chosen.len() % BEST_EVERY == 0;
        let worth = |place: usize| match best_first {
            true => doubts.of(place) - means[place],
            false => CONFIDENCE * doubts.of(place) - (means[place] - border).abs(),
        };
        let most = (0..left.len()).max_by(|&a, &b| {
            let order = worth(left[a]).total_cmp(&worth(left[b]));
            // Of equals the first.
            order.then(b.cmp(&a))
        });
        let place = left.remove(most.expect("some are left"));
        doubts.resolve(place);
        chosen.push(open[place]);
    }
    chosen.sort_unstable();
    chosen
}

fn model(
    choices: &[Vec<usize>],
    results: &Results,
    higher: bool,
    before: Option<&Weights>,
) -> Option<Surrogate> {
    let losses = losses(results, higher)?.bent;
    let points = results.keys().map(|&one| choices[one].clone()).collect();
    Surrogate::fit(points, &losses, before)
}

/// A scheduler with the scores of its seeds, from the first seed on.
#[derive(Clone, PartialEq, Debug)]
pub struct Finalist {
    /// Its place among [`Definition::schedulers`].
    pub scheduler: usize,
    /// A score for each seed, the same seeds for all that have as many.
    pub scores: Vec<f64>,
}

impl Finalist {
    /// Returns the mean score.
    pub fn mean(&self) -> f64 {
        self.scores.iter().sum::<f64>() / self.scores.len() as f64
    }
}

/// Returns the schedulers whose runs with all their seeds ended well, with the scores of a workload.
pub fn finalists(
    definition: &Definition,
    workload: usize,
    rows: &BTreeMap<u64, Row>,
) -> Vec<Finalist> {
    racers(definition, |seed| {
        results(definition, workload, seed, rows, |_| true)
    })
}

fn racers(definition: &Definition, results: impl Fn(u32) -> Results) -> Vec<Finalist> {
    let mut racers: Vec<Finalist> = Vec::new();
    for (scheduler, outcome) in results(0) {
        if let Outcome::Score(score) = outcome {
            racers.push(Finalist {
                scheduler,
                scores: vec![score],
            });
        }
    }
    for seed in 1..definition.repeat {
        let more = results(seed);
        if more.is_empty() {
            break;
        }
        racers.retain_mut(|racer| match more.get(&racer.scheduler) {
            Some(Outcome::Score(score)) if racer.scores.len() as u32 == seed => {
                racer.scores.push(*score);
                true
            }
            Some(_) => false,
            None => true,
        });
    }
    racers
}

/// The knowledge of a search about every point of the space.
#[derive(Clone, PartialEq, Debug)]
pub struct Estimated {
    /// The points of the balanced sample; only their results are as if drawn by lot.
    pub sample: Vec<u64>,
    /// The score of each point of the space, by the model.
    pub scores: Vec<f64>,
}

/// The expected losses of all schedulers, bent. Expectations lie closer together than results, so too few of them would be
/// within reach of the best. As many of those that were not run are put within it as are expected there, the most
/// probable ones.
fn expected(choices: &[Vec<usize>], results: &Results, model: &Surrogate) -> Vec<f64> {
    let border = bent(WITHIN);
    let doubts = model.doubts(choices);
    let mut losses: Vec<f64> = choices.iter().map(|point| model.mean(point)).collect();
    let open = (0..choices.len()).filter(|scheduler| !results.contains_key(scheduler));
    let mut open: Vec<(f64, usize)> = open
        .map(|scheduler| {
            let away = (losses[scheduler] - border) / doubts.of(scheduler).max(1e-9);
            (
                libm::erfc(away / core::f64::consts::SQRT_2) / 2.0,
                scheduler,
            )
        })
        .collect();
    let within: f64 = open.iter().map(|(probability, _)| probability).sum();
    open.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.cmp(other)));
    for (place, (_, scheduler)) in open.into_iter().enumerate() {
        let loss = &mut losses[scheduler];
        *loss = match (place as f64) + 0.5 < within {
            true => loss.min(border * (1.0 - 1e-9)),
            false => loss.max(border * (1.0 + 1e-6)),
        };
    }
    losses
}

/// Estimates all points of a workload from the runs with the first seed; `None` if the sweep has no budget or no run ended.
pub fn estimated(
    definition: &Definition,
    workload: usize,
    rows: &BTreeMap<u64, Row>,
) -> Option<Estimated> {
    let plan = Plan::new(definition)?;
    let results = results(definition, workload, 0, rows, |_| true);
    let higher = higher_is_better(definition, workload, rows);
    let Losses { best, size, .. } = losses(&results, higher)?;
    let model = model(&plan.choices, &results, higher, None)?;
    let firsts: Vec<u64> = definition.schedulers().collect();
    let of_scheduler: Vec<f64> = expected(&plan.choices, &results, &model)
        .into_iter()
        .map(|loss| {
            let loss = straight(loss.max(0.0)) * size;
            if higher { best - loss } else { best + loss }
        })
        .collect();
    let same: Vec<usize> = (0..definition.space.len())
        .map(|point| {
            let first = definition.space.same_as(point);
            firsts.binary_search(&first).expect("it is a scheduler")
        })
        .collect();
    let is_sampled = |scheduler: &usize| plan.design.binary_search(scheduler).is_ok();
    Some(Estimated {
        sample: (0..definition.space.len())
            .zip(&same)
            .filter(|(_, scheduler)| is_sampled(scheduler))
            .map(|(point, _)| point)
            .collect(),
        scores: same
            .iter()
            .map(|&scheduler| of_scheduler[scheduler])
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(all: &[Outcome]) -> Results {
        all.iter().copied().enumerate().collect()
    }

    /// Where all scores are alike, a run that failed is no good one, and never better than the worst.
    #[test]
    fn a_failed_run_is_worse_than_any_good_one() {
        use Outcome::{Failed, Score};
        for higher in [true, false] {
            let alike = results(&[Score(100.0), Failed, Score(101.0)]);
            let losses = losses(&alike, higher).unwrap().bent;
            assert!(losses[1] > bent(WITHIN) && losses[1] > losses[0].max(losses[2]));
        }
        let apart = results(&[Score(100.0), Failed, Score(900.0)]);
        let losses = losses(&apart, false).unwrap().bent;
        assert_eq!(losses[1], losses[2]);
    }

    /// Losses from a best of 0 are parts of the largest score, and estimates are put back on that scale.
    #[test]
    fn a_best_of_zero_has_a_scale() {
        let some = results(&[Outcome::Score(0.0), Outcome::Score(40.0)]);
        let losses = losses(&some, false).unwrap();
        assert_eq!((losses.best, losses.size), (0.0, 40.0));
        assert!((straight(losses.bent[1]) * losses.size - 40.0).abs() < 1e-9);
    }
}
