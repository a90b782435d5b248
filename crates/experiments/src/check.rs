//! Checks that the names in a file exist: a measure, option or base that no run has would be an empty page.

use schedlab_machine::Machine;
use schedlab_report::catalogue;
use schedlab_workload::Workload;
use schedlab_workload::catalogue::lists as measure_lists;

use crate::experiment::{Experiment, Measured, Runs};
use crate::over::{Over, number};

/// Checks a file's measures.
pub(crate) fn check(experiment: &Experiment) -> Result<(), String> {
    for (index, measured) in experiment.measures.iter().enumerate() {
        let place = format!("[[measures]] {} (`{}`)", index + 1, measured.measure);
        one(experiment, measured).map_err(|problem| format!("{place}: {problem}"))?;
    }
    for (index, expected) in experiment.expected.iter().enumerate() {
        if !is_measure(&expected.measure) {
            return Err(format!(
                "expected {} (`{}`): there is no measure `{}`; `schedlab list measures` names them",
                index + 1,
                expected.text,
                expected.measure
            ));
        }
    }
    Ok(())
}

/// Returns whether results may have a measure of this name.
pub fn is_measure(name: &str) -> bool {
    let lists = measure_lists();
    let is_own = |name: &str| {
        let mut all = lists.iter().flat_map(|(_, measures)| *measures);
        catalogue::find(name).is_some() || all.any(|own| own.is_called(name))
    };
    // Of a part of a composed workload: `service2.wakeup.latency_ns_p99`.
    let is_of_part = |(_, rest): (&str, &str)| rest == "cpu_ns" || is_own(rest);
    is_own(name) || name.split_once('.').is_some_and(is_of_part)
}

fn one(experiment: &Experiment, measured: &Measured) -> Result<(), String> {
    let name = measured.measure.as_str();
    if measured.metric().is_none() && !is_measure(name) {
        return Err("there is no such measure; `schedlab list measures` names them".to_owned());
    }
    let over = &measured.over;
    values(experiment, over).map_err(|problem| format!("`over = \"{over}\"`: {problem}"))?;
    if let Some(base) = &measured.relative_to {
        let problem = |problem: &str| format!("`relative_to = \"{base}\"`: {problem}");
        let known = values(experiment, &base.over).map_err(|found| problem(&found))?;
        let wanted = base.number();
        let wanted = wanted.ok_or_else(|| problem("its value is not a number"))?;
        if known.is_some_and(|known| !known.contains(&wanted)) {
            return Err(problem("nothing is run with that"));
        }
    }
    Ok(())
}

/// Its values in all runs; `None` where they are unknown, as for a workload that is wrong itself.
fn values(experiment: &Experiment, over: &Over) -> Result<Option<Vec<f64>>, String> {
    let mut all = Vec::new();
    for runs in &experiment.runs {
        let Over::Option(option) = over else {
            let Some(cpus) = cpus(runs) else {
                return Ok(None);
            };
            all.extend(cpus);
            continue;
        };
        for workload in &runs.workloads {
            let Ok(workload) = Workload::parse(workload, 1) else {
                return Ok(None);
            };
            let mut params = workload.params.into_iter();
            let Some((_, value)) = params.find(|(name, _)| name == option) else {
                continue;
            };
            let value =
                number(&value).ok_or_else(|| format!("its value `{value}` is not a number"))?;
            all.push(value);
        }
    }
    if all.is_empty() {
        return Err("no workload has such an option".to_owned());
    }
    Ok(Some(all))
}

fn cpus(runs: &Runs) -> Option<Vec<f64>> {
    if runs.cpus.is_empty() {
        let machine = Machine::find(&runs.machine).ok()?;
        return Some(vec![machine.topology.nr_cpus() as f64]);
    }
    Some(runs.cpus.iter().map(|&cpus| cpus as f64).collect())
}
