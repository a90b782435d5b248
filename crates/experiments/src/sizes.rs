//! Workloads that are too small for a machine.

use crate::page::cpus_in_words;
use std::collections::BTreeMap;

use schedlab_report::RunResult;
use schedlab_trace::counted;

/// Returns the workloads that never had as many runnable tasks as there were CPUs, under any scheduler: a sentence
/// each.
///
/// An experiment has the sizes of its study. On a machine with many more CPUs most of them have nothing to do, and
/// schedulers differ in where they put the few tasks.
pub fn too_small(results: &[RunResult]) -> Vec<String> {
    // Runnable tasks at most, by workload and number of CPUs.
    let mut most: BTreeMap<&str, BTreeMap<u32, u64>> = BTreeMap::new();
    for run in results.iter().filter(|run| run.is_done()) {
        if let Some(length) = run.measures.number("runqueue.len_max") {
            let by_cpus = most.entry(&run.asked).or_default();
            let known = by_cpus.entry(run.cpus).or_default();
            *known = (*known).max(length as u64);
        }
    }
    most.into_iter()
        .filter_map(|(workload, by_cpus)| {
            let idle: Vec<(u32, u64)> = by_cpus
                .into_iter()
                .filter(|&(cpus, tasks)| tasks < u64::from(cpus))
                .collect();
            let tasks = idle.iter().map(|&(_, tasks)| tasks).max()?;
            let cpus: Vec<u64> = idle.iter().map(|&(cpus, _)| cpus.into()).collect();
            Some(format!(
                "{workload} never had more than {} on {}: it is too small for so many, and the others had nothing to do",
                counted(tasks, "runnable task"),
                cpus_in_words(&cpus)
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_report::Measures;

    fn run(workload: &str, cpus: u32, most: u64) -> RunResult {
        let mut measures = Measures::default();
        measures.int("runqueue.len_max", most);
        RunResult {
            workload: "w".into(),
            asked: workload.into(),
            scheduler: "s".into(),
            machine: "m".into(),
            cpus,
            seed: 1,
            exit: schedlab_report::Exit::Done,
            measures,
            ..RunResult::default()
        }
    }

    #[test]
    fn a_workload_is_too_small_where_no_scheduler_ever_had_a_task_for_each_cpu() {
        let results = [
            run("a", 2, 2),
            run("a", 8, 3),
            run("a", 8, 5),
            run("a", 96, 4),
            run("b", 96, 96),
            run("c", 8, 7),
            run("c", 8, 8),
            run("d", 2, 1),
        ];
        assert_eq!(
            too_small(&results),
            [
                "a never had more than 5 runnable tasks on 8 and 96 CPUs: it is too small for so many, and the others had nothing to do",
                "d never had more than 1 runnable task on 2 CPUs: it is too small for so many, and the others had nothing to do"
            ]
        );
    }
}
