//! The cells of a table: the runs of one scheduler on one number of CPUs.

use crate::RunResult;
use crate::stats::{self, Difference};

/// Runs of one scheduler on one number of CPUs.
pub(super) struct Cell<'a> {
    pub(super) cpus: u32,
    /// The scheduler, and the other values that distinguish rows.
    pub(super) scheduler: String,
    /// In order of repetition.
    pub(super) runs: Vec<&'a RunResult>,
}

/// Returns whether the runs differ in the layout of the task structures.
pub(super) fn layouts_differ(group: &[&RunResult]) -> bool {
    group
        .iter()
        .any(|run| run.task_layout != group[0].task_layout)
}

/// Returns a result's name in its row: its scheduler, and if they differ the layout of the task structures.
pub(super) fn label(run: &RunResult, layouts_differ: bool) -> String {
    match &run.task_layout {
        Some(layout) if layouts_differ => format!("{}, {layout}", run.scheduler),
        _ => run.scheduler.clone(),
    }
}

/// Returns the cells of a group, in the order of their rows.
pub(super) fn cells<'a>(group: &[&'a RunResult]) -> Vec<Cell<'a>> {
    let layouts_differ = layouts_differ(group);
    let mut cells: Vec<Cell<'a>> = Vec::new();
    for &run in group {
        let scheduler = label(run, layouts_differ);
        let same = |cell: &&mut Cell<'_>| cell.cpus == run.cpus && cell.scheduler == scheduler;
        match cells.iter_mut().find(same) {
            Some(cell) => cell.runs.push(run),
            None => cells.push(Cell {
                cpus: run.cpus,
                scheduler,
                runs: vec![run],
            }),
        }
    }
    // By CPUs; within, schedulers keep the order in which they were asked for.
    cells.sort_by_key(|cell| cell.cpus);
    cells
}

impl Cell<'_> {
    /// Returns the runs that ended as they should, or all where none did.
    pub(super) fn counted(&self) -> impl Iterator<Item = &RunResult> {
        let any_done = self.runs.iter().any(|run| run.is_done());
        let runs = self.runs.iter().copied();
        runs.filter(move |run| run.is_done() || !any_done)
    }

    /// Returns a measure over these runs, as far as they have it.
    pub(super) fn values(&self, name: &str) -> Vec<f64> {
        let runs = self.counted();
        runs.filter_map(|run| run.measures.number(name)).collect()
    }

    /// Returns a measure's median over these runs.
    pub(super) fn median(&self, name: &str) -> Option<f64> {
        stats::median(&self.values(name))
    }

    /// Returns whether its runs are copies of one: nothing in them depends on the seed, so more runs add no
    /// information.
    pub(super) fn is_one_run(&self) -> bool {
        let first = self.runs[0];
        self.runs
            .iter()
            .all(|run| run.exit == first.exit && run.measures == first.measures)
    }

    /// Difference of the score from another cell's, in percent, over runs with the same seed and place.
    pub(super) fn difference(&self, first: &Cell<'_>) -> Option<Difference> {
        let pairs: Vec<(f64, f64)> = self
            .runs
            .iter()
            .zip(&first.runs)
            .filter(|(mine, theirs)| mine.is_done() && theirs.is_done() && mine.seed == theirs.seed)
            .filter_map(|(mine, theirs)| {
                let theirs = theirs.measures.number("score")?;
                Some((mine.measures.number("score")?, theirs))
            })
            .collect();
        if self.is_one_run() && first.is_one_run() {
            return stats::difference_in_percent(pairs.get(..1)?);
        }
        stats::difference_in_percent(&pairs)
    }
}

/// Returns the name of the scheduler that was requested first.
pub(super) fn first_of(group: &[&RunResult]) -> String {
    label(group[0], layouts_differ(group))
}

/// Returns the result with which a cell is compared: the first scheduler on as many CPUs.
pub(super) fn base<'a, 'b>(
    cell: &Cell<'_>,
    cells: &'a [Cell<'b>],
    first: &str,
) -> Option<&'a Cell<'b>> {
    cells
        .iter()
        .find(|other| other.cpus == cell.cpus && other.scheduler == first)
        .filter(|_| cell.scheduler != first)
}
