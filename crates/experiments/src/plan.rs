//! Which simulations an experiment needs.

use schedlab_sim::{Scheduler, SimSpec};

use crate::Experiment;

/// One simulation, and the part of its file that it is for.
#[derive(Clone, PartialEq, Debug)]
pub struct Planned {
    pub spec: SimSpec,
    /// Index of the file's `[[runs]]`.
    pub runs: usize,
}

/// The settings that replace the file's.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Elsewhere {
    /// The machine.
    pub machine: Option<String>,
    /// Numbers of CPUs; the file's where it is empty.
    pub cpus: Vec<usize>,
}

/// All simulations of an experiment, the seeds interleaved, so that an end before the last leaves whole
/// repetitions. `quick`: what the file has for a first impression. `seeds` replaces the file's number. Experiments that
/// compare layouts of task structures keep them elsewhere, too.
pub fn plan(
    experiment: &Experiment,
    quick: bool,
    seeds: Option<u64>,
    elsewhere: &Elsewhere,
) -> Vec<Planned> {
    let mut planned = Vec::new();
    for (index, runs) in experiment.runs.iter().enumerate() {
        let mut runs = if quick {
            match runs.quick() {
                Some(runs) => runs,
                None => continue,
            }
        } else {
            runs.clone()
        };
        if !elsewhere.cpus.is_empty() {
            runs.cpus.clone_from(&elsewhere.cpus);
        }
        if let Some(machine) = &elsewhere.machine {
            runs.machine.clone_from(machine);
        }
        let cpus: Vec<Option<usize>> = match runs.cpus.as_slice() {
            [] => vec![None],
            cpus => cpus.iter().copied().map(Some).collect(),
        };
        let layouts: Vec<_> = match runs.task_layouts.as_slice() {
            [] => vec![None],
            layouts => layouts.iter().copied().map(Some).collect(),
        };
        for seed in 1..=seeds.unwrap_or(runs.seeds) {
            for workload in &runs.workloads {
                for &cpus in &cpus {
                    let pairs = layouts
                        .iter()
                        .flat_map(|layout| runs.schedulers.iter().map(move |one| (layout, one)));
                    for (&task_layout, scheduler) in pairs {
                        let spec = SimSpec {
                            cpus,
                            task_layout,
                            seed,
                            ..SimSpec::new(workload, Scheduler::parse(scheduler), &runs.machine)
                        };
                        planned.push(Planned { spec, runs: index });
                    }
                }
            }
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_run_with_everything() {
        let text = r#"
title = "T"
source = "s"
about = []
[[runs]]
machine = "laptop"
workloads = ["cpu", "pipe"]
schedulers = ["a", "b"]
cpus = [1, 2]
seeds = 3
[[runs]]
machine = "uniprocessor"
workloads = ["cpu"]
schedulers = ["a"]
quick = {}
[[measures]]
measure = "score"
"#;
        let experiment = Experiment::read("x.toml", text).unwrap();
        let here = Elsewhere::default();
        let whole = plan(&experiment, false, None, &here);
        assert_eq!(whole.len(), 3 * 2 * 2 * 2 + 5);
        let names: Vec<String> = whole[..8]
            .iter()
            .map(|p| format!("{} {} {:?}", p.spec.workload, p.spec.scheduler, p.spec.cpus))
            .collect();
        let mut distinct = names.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 8, "{names:?}");
        assert!(whole[..8].iter().all(|p| p.spec.seed == 1));
        assert_eq!(plan(&experiment, true, None, &here).len(), 1);
        let elsewhere = Elsewhere {
            machine: Some("server-2x96x2".into()),
            cpus: vec![384],
        };
        let other = plan(&experiment, true, None, &elsewhere);
        let spec = &other[0].spec;
        assert_eq!(
            (spec.machine.as_str(), spec.cpus, other.len()),
            ("server-2x96x2", Some(384), 1)
        );
        assert_eq!(plan(&experiment, false, Some(1), &here).len(), 8 + 1);
    }
}
