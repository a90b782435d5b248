//! Finds the published figures of a run.

use schedlab_machine::Calibration;
use schedlab_report::RunResult;
use schedlab_report::published::{Figure, Metric};
use schedlab_workload::Workload;

use super::runs::Run;
use crate::Experiment;
use crate::experiment::{Measured, PublishedAs};

/// The use of a published value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The machine profile was fitted to it.
    Calibration,
    /// Nothing was fitted to it: a prediction.
    Predicted,
}

/// The figure published for exactly this measure, machine (by the name in its profile), workload, scheduler and number
/// of CPUs.
pub(super) fn published<'a>(
    experiment: &Experiment,
    measured: &Measured,
    machine: &str,
    run: &Run<'_>,
    figures: &'a [Figure],
) -> Option<&'a Figure> {
    let result = run.result;
    let named = &experiment.runs[run.planned.runs].published_as;
    let known_as = known_as(named, result)?;
    // The options that distinguish the study's names are no options of its workloads.
    let but: Vec<&str> = named
        .iter()
        .filter_map(|one| one.only.as_ref()?.over.option())
        .collect();
    figures.iter().find(|figure| {
        let same_metric = match (measured.metric(), Metric::find(&figure.metric)) {
            (Some(mine), Some(theirs)) => mine.heading == theirs.heading,
            _ => figure.metric == measured.measure,
        };
        same_metric
            && figure.machine == machine
            && figure.cpus == Some(result.cpus)
            && figure.scheduler == known_as
            && is_of(&figure.workload, result, &but)
    })
}

/// The study's name of a run's scheduler; `None` where the file says that it has none.
fn known_as(named: &[PublishedAs], result: &RunResult) -> Option<String> {
    let mine = || named.iter().filter(|one| one.scheduler == result.scheduler);
    if mine().next().is_none() {
        return Some(result.scheduler.to_uppercase());
    }
    mine()
        .find(|one| one.only.as_ref().is_none_or(|only| only.is_of(result)))
        .map(|one| one.name.clone())
}

/// Whether a run is of a published workload: every option has the same value, those in `but` apart.
fn is_of(workload: &str, result: &RunResult, but: &[&str]) -> bool {
    // Parsed, so that 0 and 0us are the same, and an option at its default need not be named.
    let Ok(theirs) = Workload::parse(workload, result.cpus as usize) else {
        return false;
    };
    let count = |(name, _): &&(String, String)| !but.contains(&name.as_str());
    theirs.name == result.workload
        && theirs
            .params
            .iter()
            .filter(count)
            .eq(result.params.iter().filter(count))
}

pub(super) fn standing(figure: &Figure, result: &RunResult, rows: &[Calibration]) -> Standing {
    let fitted = rows.iter().any(|row| {
        row.scheduler == figure.scheduler
            && row.metrics.contains(&figure.metric)
            && row.cpus.contains(&result.cpus)
            // Not the run's own text: what was published of pinned threads is a run with `pin=true`.
            && row.workload == figure.workload
    });
    if fitted {
        Standing::Calibration
    } else {
        Standing::Predicted
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CHAT, planned, results};
    use super::*;
    use schedlab_machine::Machine;
    use schedlab_report::published;

    /// A smaller workload is not what was published, but a pinned one may be.
    #[test]
    fn a_published_workload_has_the_same_options() {
        let experiment = Experiment::read("x.toml", CHAT).unwrap();
        let planned = planned(&experiment);
        let mut result = results(&planned).remove(0);
        assert!(is_of("chat:messages=200", &result, &[]));
        assert!(is_of(
            "chat:messages=200,client_send_cpu=1000ns",
            &result,
            &[]
        ));
        assert!(!is_of("chat", &result, &[]));
        assert!(!is_of("reflex", &result, &[]));
        assert!(!is_of("chat:no=1", &result, &[]));
        let pin = result
            .params
            .iter_mut()
            .find(|(name, _)| name == "pin")
            .unwrap();
        pin.1 = "true".into();
        assert!(!is_of("chat:messages=200", &result, &[]));
        assert!(is_of("chat:messages=200", &result, &["pin"]));
    }

    #[test]
    fn a_study_may_have_several_names_for_a_scheduler() {
        let experiment = Experiment::read("x.toml", CHAT).unwrap();
        let mut result = results(&planned(&experiment)).remove(0);
        let name = |name: &str, only: Option<&str>| PublishedAs {
            scheduler: "dss".into(),
            name: name.into(),
            only: only.map(|only| only.to_owned().try_into().unwrap()),
        };
        let named = [
            name("UP", Some("cpus=1")),
            name("PIN", Some("pin=true")),
            name("SMP", None),
        ];
        assert_eq!(known_as(&named, &result).as_deref(), Some("SMP"));
        result.cpus = 1;
        assert_eq!(known_as(&named, &result).as_deref(), Some("UP"));
        assert_eq!(known_as(&named[1..2], &result), None);
        assert_eq!(known_as(&[], &result).as_deref(), Some("DSS"));
    }

    #[test]
    fn what_was_calibrated_is_no_prediction_under_whatever_name_it_runs() {
        let figures = published::read(published::BUILTIN_NAME, published::BUILTIN).unwrap();
        let rows = Machine::builtin("xeon-e5645-2x6x2").unwrap().calibrated_on;
        let standing_of = |scheduler: &str| {
            let figure = figures
                .iter()
                .find(|figure| figure.workload == "canneal" && figure.scheduler == scheduler)
                .unwrap();
            let result = RunResult {
                workload: "canneal".into(),
                params: vec![("pin".into(), "true".into())],
                cpus: 24,
                ..RunResult::default()
            };
            standing(figure, &result, &rows)
        };
        assert_eq!(standing_of("CFS+pin"), Standing::Calibration);
        assert_eq!(standing_of("CFS"), Standing::Predicted);
    }

    #[test]
    fn what_was_published_of_another_row_is_a_prediction() {
        let figures = published::read(published::BUILTIN_NAME, published::BUILTIN).unwrap();
        let mut rows = Machine::builtin("netfinity-8500r").unwrap().calibrated_on;
        for row in &mut rows {
            row.cpus = vec![2];
            row.metrics.retain(|metric| metric == "hold_mean");
        }
        let standing_of = |metric: &str, cpus: u32, other: fn(&mut Figure)| {
            let figure = figures.iter().find(|figure| {
                figure.workload.starts_with("chat:rooms=20,messages=200")
                    && (figure.metric.as_str(), figure.cpus) == (metric, Some(cpus))
            });
            let mut figure = figure.unwrap().clone();
            other(&mut figure);
            let result = RunResult {
                cpus,
                ..RunResult::default()
            };
            standing(&figure, &result, &rows)
        };
        assert_eq!(standing_of("hold_mean", 2, |_| ()), Standing::Calibration);
        assert_eq!(standing_of("hold_mean", 3, |_| ()), Standing::Predicted);
        assert_eq!(standing_of("hold_max", 2, |_| ()), Standing::Predicted);
        let another_workload = |figure: &mut Figure| figure.workload.push_str(",users=1");
        let of_another = standing_of("hold_mean", 2, another_workload);
        assert_eq!(of_another, Standing::Predicted);
        let another_scheduler = |figure: &mut Figure| figure.scheduler.push('x');
        let of_another = standing_of("hold_mean", 2, another_scheduler);
        assert_eq!(of_another, Standing::Predicted);
    }

    /// A calibrated row that is not in the published file, or misspelt, would never be recognised.
    #[test]
    fn what_a_profile_was_calibrated_on_was_published() {
        let figures = published::read(published::BUILTIN_NAME, published::BUILTIN).unwrap();
        for name in Machine::builtin_names() {
            for row in Machine::builtin(name).unwrap().calibrated_on {
                for metric in &row.metrics {
                    assert!(
                        figures.iter().any(|figure| figure.machine == name
                            && figure.workload == row.workload
                            && figure.scheduler == row.scheduler
                            && figure.metric == *metric
                            && figure.cpus.is_some_and(|cpus| row.cpus.contains(&cpus))),
                        "{name}: {metric} of {row}"
                    );
                }
            }
        }
    }
}
