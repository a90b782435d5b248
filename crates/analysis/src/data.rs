//! The results of one workload, by point of the space.

use std::collections::{BTreeMap, BTreeSet};

use schedlab_sweep::{Definition, Feature, Row, Space};
use serde::Serialize;

use crate::AnalysisError;

/// The measure and the workload of an analysis.
#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    /// Name of the measure.
    pub name: String,
    /// Its unit, where it is known.
    pub unit: String,
    /// Whether more is better.
    pub higher: bool,
}

/// Values of one measure over a space.
#[derive(Clone, Debug)]
pub struct Data {
    /// The space.
    pub space: Space,
    /// The measure.
    pub metric: Metric,
    /// The values of a point, one a seed, the same seeds for all; empty: it is left out.
    pub values: Vec<Vec<f64>>,
    /// Why points are left out.
    pub left_out: LeftOut,
    /// Points whose values a model estimates; empty: none.
    pub estimated: Vec<bool>,
    /// Points of which a run was made that does not count.
    spoiled: Vec<bool>,
}

/// Points of the space that are not compared.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LeftOut {
    /// Those of which a run did not end as it should.
    pub failed: u64,
    /// Alternatives that all of them have: `feature=alternative`.
    pub failed_with: Vec<String>,
    /// Those whose runs ended and did not measure it, as the wait for a lock of runs that never waited.
    pub absent: u64,
    /// Alternatives that all of these have.
    pub absent_with: Vec<String>,
    /// Those of which some runs are still missing.
    pub unfinished: u64,
    /// Those without any run: of a sample, or of a sweep under way.
    pub not_run: u64,
    /// Seeds that not all of the others have, so that they are not looked at.
    pub seeds: u64,
}

/// The results of a point.
#[derive(Clone, Default)]
struct Point {
    /// Its values by repetition, which is to say by seed.
    values: BTreeMap<u32, f64>,
    failed: bool,
    absent: bool,
}

impl Data {
    /// Takes the measure of a workload out of rows.
    ///
    /// # Errors
    /// If no row has it.
    pub fn new(
        definition: &Definition,
        rows: &[Row],
        workload: &str,
        measure: &str,
    ) -> Result<Data, AnalysisError> {
        let kept = definition.measures();
        let Some(index) = kept.iter().position(|known| known == measure) else {
            return Err(AnalysisError::Measure {
                asked: measure.to_owned(),
                known: kept.join(", "),
            });
        };
        let space = definition.space.clone();
        let size = usize::try_from(space.len()).expect("a space that was run fits into memory");
        let mut points = vec![Point::default(); size];
        let mut metric = None;
        for row in rows.iter().filter(|row| row.workload == workload) {
            let (place, _, repetition) = definition.parts(row.job);
            let point = &mut points[definition.points()[place] as usize];
            match row.values[index] {
                Some(value) if row.is_done() => {
                    point.values.insert(repetition, value);
                    metric.get_or_insert_with(|| metric_of(definition, measure, row));
                }
                _ if row.is_done() => point.absent = true,
                _ => point.failed = true,
            }
        }
        let (values, left_out) = comparable(&space, &points);
        let spoiled = points.iter().map(|point| point.failed || point.absent);
        let spoiled = spoiled.collect();
        // A scheduler with a good run and a failed one is left out, too.
        let metric = metric
            .filter(|_| values.iter().any(|values| !values.is_empty()))
            .ok_or_else(|| AnalysisError::Empty {
                workload: workload.to_owned(),
                measure: measure.to_owned(),
            })?;
        Ok(Data {
            space,
            metric,
            values,
            left_out,
            estimated: Vec::new(),
            spoiled,
        })
    }

    /// Returns the features.
    pub fn features(&self) -> &[Feature] {
        &self.space.features
    }

    /// Points with values.
    pub fn points(&self) -> impl Iterator<Item = usize> {
        (0..self.values.len()).filter(|&point| !self.values[point].is_empty())
    }

    /// Returns whether every point of the space has values.
    pub fn is_complete(&self) -> bool {
        self.values.iter().all(|values| !values.is_empty())
    }

    /// Returns the mean of a point over its seeds.
    ///
    /// # Panics
    /// If it has no values.
    pub fn mean(&self, point: usize) -> f64 {
        mean(&self.values[point])
    }

    /// Returns whether a point has no values although it was run.
    pub fn is_left_out(&self, point: usize) -> bool {
        self.spoiled[point]
    }

    /// Returns whether a point has values of runs.
    pub fn is_measured(&self, point: usize) -> bool {
        !self.values[point].is_empty() && !self.estimated.get(point).is_some_and(|one| *one)
    }

    /// Seeds of each point.
    pub fn seeds(&self) -> usize {
        self.values.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Returns how much worse a value is than the best, as a part of the best; infinite for any value worse than a
    /// best of zero.
    pub fn loss(&self, value: f64, best: f64) -> f64 {
        if self.metric.higher {
            part(best - value, best)
        } else {
            part(value - best, best)
        }
    }

    /// Returns a value relative to the best one, which is 1; worse ones are below.
    pub fn relative(&self, value: f64, best: f64) -> f64 {
        if value == best {
            1.0
        } else if best < 0.0 {
            // A part of a negative one would be the greater the worse.
            1.0 - self.loss(value, best)
        } else if self.metric.higher {
            value / best
        } else {
            best / value
        }
    }

    /// Returns whether one value is better than another.
    pub fn better(&self, a: f64, b: f64) -> bool {
        if self.metric.higher { a > b } else { a < b }
    }

    /// Returns the alternatives of every point.
    pub fn choices(&self) -> Vec<Vec<usize>> {
        let points = 0..self.values.len();
        points
            .map(|point| self.space.choices(point as u64))
            .collect()
    }
}

/// Returns the values of points that can be compared, and why the others cannot.
fn comparable(space: &Space, points: &[Point]) -> (Vec<Vec<f64>>, LeftOut) {
    // A mean over the seeds that went well would flatter a scheduler that fails on others.
    let ended = |point: &&Point| !point.failed && !point.absent && !point.values.is_empty();
    let seeds = seeds(points.iter().filter(ended));
    let value = |point: &Point| -> Option<Vec<f64>> {
        let own = seeds.iter().map(|seed| point.values.get(seed).copied());
        own.collect()
    };
    let values: Vec<Vec<f64>> = points
        .iter()
        .map(|point| {
            Some(point)
                .filter(ended)
                .and_then(value)
                .unwrap_or_default()
        })
        .collect();
    let those = |which: &dyn Fn(&Point) -> bool| -> Vec<usize> {
        (0..points.len())
            .filter(|&point| which(&points[point]))
            .collect()
    };
    let failed = those(&|point| point.failed);
    let absent = those(&|point| point.absent && !point.failed);
    let compared = values.iter().filter(|values| !values.is_empty()).count();
    let not_run = those(&|point| !point.failed && !point.absent && point.values.is_empty()).len();
    let of_them = points
        .iter()
        .zip(&values)
        .filter(|(_, used)| !used.is_empty());
    let known: BTreeSet<u32> = of_them
        .flat_map(|(point, _)| point.values.keys().copied())
        .collect();
    let left_out = LeftOut {
        failed: failed.len() as u64,
        failed_with: common(space, &failed),
        absent: absent.len() as u64,
        absent_with: common(space, &absent),
        unfinished: (points.len() - failed.len() - absent.len() - compared - not_run) as u64,
        not_run: not_run as u64,
        seeds: (known.len() - seeds.len()) as u64,
    };
    (values, left_out)
}

/// Returns the seeds over which most points can be compared, and of these as many as possible: means over different
/// seeds are no comparison.
fn seeds<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Vec<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for seed in points.clone().flat_map(|point| point.values.keys()) {
        *counts.entry(*seed).or_default() += 1;
    }
    let mut frequent: Vec<u32> = counts.keys().copied().collect();
    frequent.sort_by_key(|seed| std::cmp::Reverse(counts[seed]));
    let with = |seeds: &[u32]| {
        let all = |point: &&Point| seeds.iter().all(|seed| point.values.contains_key(seed));
        points.clone().filter(all).count()
    };
    let most = (1..=frequent.len()).max_by_key(|&count| (with(&frequent[..count]), count));
    frequent.truncate(most.unwrap_or(0));
    frequent.sort_unstable();
    frequent
}

/// Returns the alternatives that all of these points have.
fn common(space: &Space, points: &[usize]) -> Vec<String> {
    let choices: Vec<Vec<usize>> = points
        .iter()
        .map(|&point| space.choices(point as u64))
        .collect();
    let Some(first) = choices.first() else {
        return Vec::new();
    };
    let shared = |feature: &usize| choices.iter().all(|own| own[*feature] == first[*feature]);
    let shared = (0..space.features.len()).filter(shared);
    shared
        .filter(|&feature| space.features[feature].alternatives.len() > 1)
        .map(|feature| {
            let info = &space.features[feature];
            format!("{}={}", info.name, info.alternatives[first[feature]])
        })
        .collect()
}

fn metric_of(definition: &Definition, measure: &str, row: &Row) -> Metric {
    if let Some(part) = definition.part_score(&row.workload, measure) {
        return Metric {
            name: measure.to_owned(),
            unit: part.unit.clone(),
            higher: part.higher_is_better,
        };
    }
    if measure == "score" {
        return Metric {
            name: measure.to_owned(),
            unit: row.score_unit.clone().unwrap_or_default(),
            higher: row.higher_is_better(),
        };
    }
    let unit = if measure.contains("_ns") {
        "ns"
    } else if measure.ends_with("_pct") {
        "%"
    } else {
        ""
    };
    Metric {
        name: measure.to_owned(),
        unit: unit.to_owned(),
        higher: matches!(measure, "work" | "fairness.jain" | "cpu.user_pct")
            || measure.ends_with(".work"),
    }
}

/// Returns a difference as a part of the size of a value. No difference is no part, even of zero: in a sweep without
/// migrations every value is 0.
pub fn part(difference: f64, of: f64) -> f64 {
    if difference == 0.0 {
        0.0
    } else {
        difference / of.abs()
    }
}

/// Returns the arithmetic mean.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the standard deviation of a sample; `None` of fewer than two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mean = mean(values);
    let sum: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((sum / (values.len() - 1) as f64).sqrt())
}
