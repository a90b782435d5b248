//! Histograms and measures over time.

use schedlab_report::Points;
use schedlab_report::histogram::Buckets;

use super::runs::Run;
use crate::Experiment;
use crate::over::Over;

/// A histogram of all seeds together.
#[derive(Clone, PartialEq, Debug)]
pub struct Spectrum {
    /// The measure.
    pub measure: String,
    pub scheduler: String,
    /// Value of the panel's `over`.
    pub column: f64,
    pub buckets: Buckets,
}

/// Measures over time of one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Timeline {
    /// The measure of all values.
    pub measure: String,
    pub scheduler: String,
    /// Value of the panel's `over`.
    pub column: f64,
    /// The rest of each name (`cpu0`) and its points.
    pub lines: Vec<(String, Points)>,
}

pub(super) fn spectra(experiment: &Experiment, group: &[&Run<'_>], over: &Over) -> Vec<Spectrum> {
    let mut spectra: Vec<Spectrum> = Vec::new();
    for measure in &experiment.histograms {
        for run in group.iter().filter(|run| run.result.is_done()) {
            let found = run
                .result
                .histograms
                .iter()
                .find(|(name, _)| name == measure);
            let (Some((_, buckets)), Some(column)) = (found, over.of(run.result)) else {
                continue;
            };
            let same = |one: &&mut Spectrum| {
                one.measure == *measure && one.scheduler == run.label() && one.column == column
            };
            match spectra.iter_mut().find(same) {
                Some(spectrum) => add(&mut spectrum.buckets, buckets),
                None => spectra.push(Spectrum {
                    measure: measure.clone(),
                    scheduler: run.label(),
                    column,
                    buckets: buckets.clone(),
                }),
            }
        }
    }
    spectra
}

/// The series that the experiment names, of the first seed of each scheduler and column.
pub(super) fn timelines(experiment: &Experiment, group: &[&Run<'_>], over: &Over) -> Vec<Timeline> {
    let mut timelines: Vec<Timeline> = Vec::new();
    for measure in &experiment.series {
        for run in group.iter().filter(|run| run.result.is_done()) {
            let Some(column) = over.of(run.result) else {
                continue;
            };
            let drawn = |one: &Timeline| {
                one.measure == *measure && one.scheduler == run.label() && one.column == column
            };
            if timelines.iter().any(drawn) {
                continue;
            }
            let lines: Vec<_> = run
                .result
                .series
                .iter()
                .filter_map(|(name, points)| {
                    let rest = name.strip_prefix(measure)?.strip_prefix('.')?;
                    Some((rest.to_owned(), points.clone()))
                })
                .collect();
            if !lines.is_empty() {
                timelines.push(Timeline {
                    measure: measure.clone(),
                    scheduler: run.label(),
                    column,
                    lines,
                });
            }
        }
    }
    timelines
}

/// Adds counts bucket by bucket. The limits of buckets depend on nothing but the value, except that the last
/// of a histogram ends at its greatest value.
fn add(to: &mut Buckets, from: &Buckets) {
    for &(low, high, count) in from {
        match to.binary_search_by_key(&low, |bucket| bucket.0) {
            Ok(at) => {
                to[at].1 = to[at].1.max(high);
                to[at].2 += count;
            }
            Err(at) => to.insert(at, (low, high, count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{evaluated, results};

    #[test]
    fn series_are_those_of_the_first_seed() {
        let panels = evaluated(results);
        let with: Vec<_> = panels.iter().filter(|p| !p.timelines.is_empty()).collect();
        // As for histograms; in each of the first two a chart for either scheduler on either number of CPUs.
        assert_eq!(with.len(), 4);
        assert_eq!(with[0].timelines.len(), 4);
        let one = &with[0].timelines[0];
        assert_eq!((one.scheduler.as_str(), one.column), ("dss", 2.0));
        assert_eq!(one.lines, [("cpu0".to_owned(), vec![(5, 1.0)])]);
    }

    #[test]
    fn histograms_are_added_over_seeds_and_told_once() {
        let panels = evaluated(results);
        let with: Vec<_> = panels.iter().filter(|p| !p.histograms.is_empty()).collect();
        // Two workloads over CPUs, and over rooms two numbers of CPUs.
        assert_eq!(with.len(), 4);
        let one = &with[0].histograms[0];
        assert_eq!(one.buckets, [(1, 1, 1 + 2 + 3), (2, 2, 15)]);
        assert_eq!((one.scheduler.as_str(), one.column), ("dss", 2.0));
    }
}
