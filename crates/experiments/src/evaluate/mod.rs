//! Evaluates the runs of an experiment beside the published figures.

mod figures;
mod panel;
mod runs;
mod spectra;

use schedlab_report::RunResult;
use schedlab_report::published::Figure;

use crate::{Experiment, Finding, Planned};
pub use figures::Standing;
use panel::panel;
pub use panel::{Cell, Panel, Row, Summary};
use runs::{Place, Run, groups};
pub use spectra::{Spectrum, Timeline};
use spectra::{spectra, timelines};

/// The runs of an experiment, in the order of its plan.
#[derive(Clone, Copy, Debug)]
pub struct Results<'a> {
    /// The planned runs.
    pub planned: &'a [Planned],
    /// Its simulations.
    pub simulated: &'a [RunResult],
    /// The same in a real kernel, as far as they were run; empty where none was.
    pub real: &'a [Option<RunResult>],
}

/// Returns the whole evaluation: a panel per measure, machine and workload. Failed runs count only as failed.
pub fn evaluate(experiment: &Experiment, results: Results<'_>, figures: &[Figure]) -> Vec<Panel> {
    let Results {
        planned,
        simulated,
        real,
    } = results;
    assert_eq!(planned.len(), simulated.len(), "a result for each run");
    let runs: Vec<Run<'_>> = planned
        .iter()
        .zip(simulated)
        .enumerate()
        .map(|(index, (planned, result))| Run {
            planned,
            result,
            real: real.get(index).and_then(Option::as_ref),
        })
        .collect();
    let mut panels = Vec::new();
    let mut drawn: Vec<Place> = Vec::new();
    for measured in &experiment.measures {
        for (place, group) in groups(&runs, measured) {
            let mut panel = panel(experiment, measured, &place, &group, &runs, figures);
            let cells = || panel.rows.iter().flat_map(|row| &row.cells);
            let is_published = || cells().any(|cell| cell.published.is_some());
            if panel.rows.iter().all(Row::is_empty) || measured.only_published && !is_published() {
                continue;
            }
            if !drawn.contains(&place) {
                panel.histograms = spectra(experiment, &group, &measured.over);
                // Those of a column together, in the order of the rows, whichever runs failed.
                for columns in panel.histograms.chunk_by_mut(|a, b| a.measure == b.measure) {
                    let row = |one: &Spectrum| {
                        panel
                            .rows
                            .iter()
                            .position(|row| row.scheduler == one.scheduler)
                    };
                    columns.sort_by(|a, b| a.column.total_cmp(&b.column).then(row(a).cmp(&row(b))));
                }
                panel.timelines = timelines(experiment, &group, &measured.over);
                drawn.push(place);
            }
            panels.push(panel);
        }
    }
    // Everything about one workload together.
    let titles: Vec<String> = panels.iter().map(Panel::title).collect();
    panels.sort_by_key(|panel| titles.iter().position(|title| *title == panel.title()));
    panels
}

/// Returns the simulations' verdict on each expectation.
pub fn findings(experiment: &Experiment, results: Results<'_>) -> Vec<Finding> {
    let runs = results.planned.iter().zip(results.simulated);
    let runs = runs.map(|(planned, result)| {
        let run = Run {
            planned,
            result,
            real: None,
        };
        (run.label(), result)
    });
    let expected = experiment.expected.iter();
    expected.map(|one| one.check(runs.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::over::Over;
    use crate::{Elsewhere, plan};
    use schedlab_report::{Measures, published};
    use schedlab_workload::Workload;

    pub(super) const CHAT: &str = r#"
title = "T"
source = "s"
about = []
histograms = ["runqueue.len"]
series = ["runqueue.deviation"]
[[runs]]
machine = "netfinity-8500r"
workloads = ["chat:rooms=10,messages=200", "chat:rooms=20,messages=200"]
schedulers = ["dss", "mq"]
cpus = [2, 3]
seeds = 3
[[measures]]
measure = "hold_mean"
[[measures]]
measure = "speedup_vs_2way"
[[measures]]
measure = "score"
over = "rooms"
relative_to = "rooms=10"
heading = "scaling"
"#;

    pub(super) fn planned(experiment: &Experiment) -> Vec<Planned> {
        plan(experiment, false, None, &Elsewhere::default())
    }

    /// hold = 1 µs × CPUs × seed; score = rooms × CPUs × 10 + seed.
    pub(super) fn results(planned: &[Planned]) -> Vec<RunResult> {
        let one = |planned: &Planned| {
            let spec = &planned.spec;
            let cpus = spec.cpus.unwrap();
            let workload = Workload::parse(&spec.workload, cpus).unwrap();
            let rooms: u64 = workload.params[0].1.parse().unwrap();
            let mut measures = Measures::default();
            let hold = 1_000 * cpus as u64 * spec.seed;
            measures.int("lock.runqueue.hold_ns_mean", hold);
            measures.int("score", rooms * cpus as u64 * 10 + spec.seed);
            RunResult {
                workload: workload.name.clone(),
                asked: spec.workload.clone(),
                params: workload.params.clone(),
                scheduler: spec.scheduler.to_string(),
                machine: spec.machine.clone(),
                cpus: cpus as u32,
                seed: spec.seed,
                exit: schedlab_report::Exit::Done,
                measures,
                histograms: vec![("runqueue.len".into(), vec![(1, 1, spec.seed), (2, 2, 5)])],
                series: vec![
                    (
                        "runqueue.deviation.cpu0".into(),
                        vec![(5, spec.seed as f64)],
                    ),
                    ("runqueue.deviations".into(), vec![(5, 0.0)]),
                ],
                ..RunResult::default()
            }
        };
        planned.iter().map(one).collect()
    }

    pub(super) fn evaluated(results_of: impl Fn(&[Planned]) -> Vec<RunResult>) -> Vec<Panel> {
        let experiment = Experiment::read("x.toml", CHAT).unwrap();
        let planned = planned(&experiment);
        let figures = published::read(published::BUILTIN_NAME, published::BUILTIN).unwrap();
        let results = Results {
            planned: &planned,
            simulated: &results_of(&planned),
            real: &[],
        };
        evaluate(&experiment, results, &figures)
    }

    pub(super) fn evaluated_with_failures(fails: impl Fn(&RunResult) -> bool) -> Vec<Panel> {
        evaluated(|planned| {
            let mut results = results(planned);
            for result in results.iter_mut().filter(|result| fails(result)) {
                result.exit = schedlab_report::Exit::ErrorStall;
            }
            results
        })
    }

    /// A run of which nothing but its end is known.
    pub(super) fn ended(planned: &Planned) -> RunResult {
        let spec = &planned.spec;
        let cpus = spec.cpus.unwrap_or(1);
        let workload = Workload::parse(&spec.workload, cpus).unwrap();
        RunResult {
            workload: workload.name,
            asked: spec.workload.clone(),
            params: workload.params,
            scheduler: spec.scheduler.to_string(),
            machine: spec.machine.clone(),
            cpus: cpus as u32,
            seed: spec.seed,
            exit: schedlab_report::Exit::Done,
            ..RunResult::default()
        }
    }

    /// An expectation that no run could meet would never be more than words.
    #[test]
    fn expectations_are_about_runs_of_their_experiment() {
        for name in crate::builtin_names() {
            let experiment = crate::builtin(name).unwrap().unwrap();
            let planned = plan(&experiment, false, Some(1), &Elsewhere::default());
            let mut results: Vec<RunResult> = planned.iter().map(ended).collect();
            for result in &mut results {
                for expected in &experiment.expected {
                    result.measures.int(&expected.measure, 1);
                }
            }
            let results = Results {
                planned: &planned,
                simulated: &results,
                real: &[],
            };
            for finding in findings(&experiment, results) {
                assert!(finding.holds.is_some(), "{name}: {}", finding.told());
            }
        }
    }

    /// Otherwise there would be a chart of one point each.
    #[test]
    fn measures_over_an_option_have_a_panel_with_all_its_values() {
        for name in crate::builtin_names() {
            let experiment = crate::builtin(name).unwrap().unwrap();
            let planned = plan(&experiment, false, Some(1), &Elsewhere::default());
            let results: Vec<RunResult> = planned.iter().map(ended).collect();
            let runs: Vec<Run<'_>> = planned
                .iter()
                .zip(&results)
                .map(|(planned, result)| Run {
                    planned,
                    result,
                    real: None,
                })
                .collect();
            for measured in experiment.measures.iter().filter(|m| m.over != Over::Cpus) {
                let columns = |runs: &[&Run<'_>]| {
                    let values = runs.iter().filter_map(|run| measured.over.of(run.result));
                    let mut values: Vec<f64> = values.collect();
                    values.sort_by(f64::total_cmp);
                    values.dedup();
                    values
                };
                let groups = groups(&runs, measured);
                for (place, group) in &groups {
                    let first = group[0].result;
                    let like = |run: &Run<'_>| {
                        let result = run.result;
                        (&result.machine, result.cpus, &result.workload)
                            == (&first.machine, first.cpus, &first.workload)
                    };
                    let all: Vec<&Run<'_>> = runs.iter().filter(|run| like(run)).collect();
                    // Beside it there may be one of other options on purpose.
                    let mut panels = groups.iter().filter(|(_, group)| like(group[0]));
                    let whole = panels.any(|(_, group)| columns(group) == columns(&all));
                    assert!(whole, "{name}: {place:?}");
                }
            }
        }
    }
}
