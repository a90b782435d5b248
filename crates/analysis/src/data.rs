//! The results of one workload, by point of the space.

use schedlab_sweep::{Definition, Feature, MEASURES, Row, Space};

use crate::AnalysisError;

/// What is looked at.
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
    /// The values of a point, one a seed; empty: it was not run, or did not end well.
    pub values: Vec<Vec<f64>>,
    /// Points that were run and have no value.
    pub failed: u64,
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
        if !MEASURES.contains(&measure) {
            return Err(AnalysisError::Measure {
                asked: measure.to_owned(),
                known: MEASURES.join(", "),
            });
        }
        let space = definition.space.clone();
        let size = usize::try_from(space.len()).expect("a space that was run fits into memory");
        let mut values: Vec<Vec<f64>> = vec![Vec::new(); size];
        let mut bad = vec![false; size];
        let mut metric = None;
        for row in rows.iter().filter(|row| row.workload == workload) {
            let (place, ..) = definition.parts(row.job);
            let point = definition.points()[place] as usize;
            match row.value(measure) {
                Some(value) if row.is_done() => {
                    values[point].push(value);
                    metric.get_or_insert_with(|| metric_of(measure, row));
                }
                _ => bad[point] = true,
            }
        }
        // A mean over the seeds that went well would flatter a scheduler that fails on others.
        let mut failed = 0;
        for (values, bad) in values.iter_mut().zip(bad) {
            if bad {
                values.clear();
                failed += 1;
            }
        }
        let metric = metric.ok_or_else(|| AnalysisError::Empty {
            workload: workload.to_owned(),
            measure: measure.to_owned(),
        })?;
        Ok(Data {
            space,
            metric,
            values,
            failed,
        })
    }

    /// The features.
    pub fn features(&self) -> &[Feature] {
        &self.space.features
    }

    /// Points with values.
    pub fn points(&self) -> impl Iterator<Item = usize> {
        (0..self.values.len()).filter(|&point| !self.values[point].is_empty())
    }

    /// Whether every point of the space has values.
    pub fn is_complete(&self) -> bool {
        self.values.iter().all(|values| !values.is_empty())
    }

    /// The mean of a point over its seeds.
    ///
    /// # Panics
    /// If it has no values.
    pub fn mean(&self, point: usize) -> f64 {
        mean(&self.values[point])
    }

    /// Seeds of a point that has the most.
    pub fn seeds(&self) -> usize {
        self.values.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// How much worse a value is than the best, as a part of the best; infinite for any value worse than a
    /// best of zero.
    pub fn loss(&self, value: f64, best: f64) -> f64 {
        if self.metric.higher {
            part(best - value, best)
        } else {
            part(value - best, best)
        }
    }

    /// A value relative to the best one, which is 1; worse ones are below.
    pub fn relative(&self, value: f64, best: f64) -> f64 {
        if value == best {
            1.0
        } else if self.metric.higher {
            value / best
        } else {
            best / value
        }
    }

    /// Whether one value is better than another.
    pub fn better(&self, a: f64, b: f64) -> bool {
        if self.metric.higher { a > b } else { a < b }
    }

    /// The alternatives of every point.
    pub fn choices(&self) -> Vec<Vec<usize>> {
        let points = 0..self.values.len();
        points
            .map(|point| self.space.choices(point as u64))
            .collect()
    }
}

fn metric_of(measure: &str, row: &Row) -> Metric {
    if measure == "score" {
        return Metric {
            name: measure.to_owned(),
            unit: row.score_unit.clone().unwrap_or_default(),
            higher: row.score_better.as_deref() != Some("lower"),
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
        higher: matches!(measure, "work" | "fairness.jain" | "cpu.user_pct"),
    }
}

/// A difference as a part of the size of something. No difference is no part, even of zero: a sweep in which
/// nobody migrates has 0 everywhere.
pub fn part(difference: f64, of: f64) -> f64 {
    if difference == 0.0 {
        0.0
    } else {
        difference / of.abs()
    }
}

/// The arithmetic mean.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard deviation of a sample; `None` of fewer than two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mean = mean(values);
    let sum: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((sum / (values.len() - 1) as f64).sqrt())
}
