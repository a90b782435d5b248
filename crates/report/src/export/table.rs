//! Results as a table for people: a row per number of CPUs and scheduler, 80 columns wide by default.
//!
//! Repeated runs are shown by their median, with its 95 % interval (of the score, or of each measure that the user
//! chose) and the paired difference to the first scheduler. Columns for which there is no room are named below.

mod cells;
mod columns;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use schedlab_trace::counted;

use crate::RunResult;
use crate::export::lines::{fill, width_of};
use crate::export::names::shorten;
use crate::export::number::amount;
use crate::export::view::{Sort, View, chosen};
use crate::stats;
use cells::{Cell, base, cells, first_of, label, layouts_differ};
use columns::{Column, chosen_columns, usual_columns};

/// Width of a terminal that does not report its width.
pub const WIDTH: usize = 80;

/// The layout that goes without saying.
const PLAIN: &str = "plain";
const GAP: usize = 2;
/// The column of names.
const SCHEDULER: usize = 1;

/// Returns the table of all results.
pub fn render(results: &[RunResult], view: &View) -> String {
    let width = view.width;
    let mut text = String::new();
    for group in groups(results) {
        if !text.is_empty() {
            text.push('\n');
        }
        fill(&mut text, "", &title(&group), 2, width);
        text.push('\n');
        let mut cells = cells(&group);
        if let Some(order) = &view.sort {
            sort(&mut cells, order, &group);
        }
        let (body, left_out, partial) = body(&group, &cells, view);
        text.push_str(&body);
        let notes = [
            left_out,
            unmatched(&group, view),
            survivors(&cells),
            partial,
            copies(&cells),
            withheld(&group, &cells, view),
            compares_scores(&group, &cells, view)
                .then(|| caution(&cells, &first_of(&group)))
                .flatten(),
            starvation(&cells),
        ];
        for note in notes.into_iter().flatten() {
            fill(&mut text, "", &note, 2, width);
        }
        text.push_str(&failures(&group, width));
    }
    text
}

/// A table as cells, of one workload and machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sheet {
    /// The workload and the machine.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// A row for each number of CPUs and scheduler.
    pub rows: Vec<Vec<String>>,
    /// Sentences about them.
    pub notes: Vec<String>,
}

/// Returns the table of all results for pages, where all columns have room.
pub fn sheets(results: &[RunResult], view: &View) -> Vec<Sheet> {
    let sheet = |group: &Vec<&RunResult>| {
        let mut cells = cells(group);
        if let Some(order) = &view.sort {
            sort(&mut cells, order, group);
        }
        let compared = compares_scores(group, &cells, view);
        let mut columns = match view.measures.as_slice() {
            [] => usual_columns(group, &cells, compared),
            measures => chosen_columns(group, &cells, measures),
        };
        if view.measures.is_empty() {
            columns.retain(|column| !column.is_empty());
        }
        let caution = compared
            .then(|| caution(&cells, &first_of(group)))
            .flatten();
        let notes = [
            unmatched(group, view),
            survivors(&cells),
            partial(&cells, &columns),
            copies(&cells),
            withheld(group, &cells, view),
            caution,
            starvation(&cells),
        ];
        Sheet {
            title: title(group),
            head: columns
                .iter()
                .map(|column| column.heading.join(" ").trim().to_owned())
                .collect(),
            rows: (0..cells.len())
                .map(|row| {
                    let texts = columns.iter().map(|column| column.texts[row].clone());
                    texts.collect()
                })
                .collect(),
            notes: notes.into_iter().flatten().collect(),
        }
    };
    groups(results).iter().map(sheet).collect()
}

/// Returns the patterns that name no measure of these runs, which have no column.
fn unmatched(group: &[&RunResult], view: &View) -> Option<String> {
    let names_none = |pattern: &&String| {
        pattern.ends_with('*') && chosen(&[(*pattern).clone()], group.iter().copied()).is_empty()
    };
    let none: Vec<String> = view
        .measures
        .iter()
        .filter(names_none)
        .map(|pattern| format!("`{pattern}`"))
        .collect();
    (!none.is_empty()).then(|| {
        format!(
            "no measure of these runs is called {}: --json writes all",
            none.join(" or ")
        )
    })
}

/// Results that share workload, parameters and machine, in order of appearance.
fn groups(results: &[RunResult]) -> Vec<Vec<&RunResult>> {
    let mut groups: Vec<Vec<&RunResult>> = Vec::new();
    for result in results {
        let same = |group: &&mut Vec<&RunResult>| {
            let first = group[0];
            first.workload == result.workload
                && first.params == result.params
                && first.machine == result.machine
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(result),
            None => groups.push(vec![result]),
        }
    }
    groups
}

fn title(group: &[&RunResult]) -> String {
    let first = group[0];
    let layout = match &first.task_layout {
        // The usual one, or in the rows.
        Some(layout) if layout != PLAIN && !layouts_differ(group) => {
            format!(", task structures {layout}")
        }
        _ => String::new(),
    };
    let emulated = match first.is_emulated() {
        true => " (emulated CPUs: compare counts and orders, not times)",
        false => "",
    };
    format!("{} on {}{emulated}{layout}", first.asked, first.machine)
}

/// Orders rows by a measure within each number of CPUs; those without it come last.
fn sort(cells: &mut [Cell<'_>], order: &Sort, group: &[&RunResult]) {
    let descending = order.is_descending(group);
    let key = |cell: &Cell<'_>| {
        let median = cell.median(&order.measure)?;
        Some(if descending { -median } else { median })
    };
    cells.sort_by(|a, b| {
        let by_value = match (key(a), key(b)) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        a.cpus.cmp(&b.cpus).then(by_value)
    });
}

/// Returns the table itself, the columns for which there was no room, and the rows whose figures are of some runs
/// only.
fn body(
    group: &[&RunResult],
    cells: &[Cell<'_>],
    view: &View,
) -> (String, Option<String>, Option<String>) {
    let width = view.width;
    let compared = compares_scores(group, cells, view);
    let (all, needed) = match view.measures.as_slice() {
        // The table is for the score; the others are shown as far as there is room.
        [] => (
            usual_columns(group, cells, compared),
            3 + usize::from(compared),
        ),
        measures => {
            let columns = chosen_columns(group, cells, measures);
            // Two say which row is which; patterns may name no measure of these runs.
            let needed = columns.len().min(3);
            (columns, needed)
        }
    };
    // A measure that was asked for and that no run has is an answer, too.
    let keep_empty = !view.measures.is_empty();
    let columns = all.into_iter().enumerate();
    let mut columns: Vec<Column> = columns
        .filter(|(index, column)| *index < needed || keep_empty || !column.is_empty())
        .map(|(_, column)| column)
        .collect();
    let names = std::mem::take(&mut columns[SCHEDULER].texts);
    let beside = columns_taken(&columns[..needed]) - columns[SCHEDULER].width();
    let shortened = |width: usize| {
        let mut names = names.clone();
        // Nor do long paths take all of that.
        shorten(&mut names, width.saturating_sub(beside).min(width * 2 / 5));
        names
    };
    columns[SCHEDULER].texts = shortened(width);
    // Nothing takes the place of what matters more because it is narrower.
    let fitting = (needed..=columns.len())
        .rev()
        .find(|&nr| columns_taken(&columns[..nr]) <= width)
        .unwrap_or(needed);
    let mut text = String::new();
    for line in 0..2 {
        push_line(&mut text, &columns[..fitting], |column| {
            &column.heading[line]
        });
    }
    for row in 0..cells.len() {
        if row > 0 && cells[row].cpus != cells[row - 1].cpus && several_per_cpus(cells) {
            text.push('\n');
        }
        push_line(&mut text, &columns[..fitting], |column| &column.texts[row]);
    }
    let partial = partial(cells, &columns[..fitting]);
    let left_out: Vec<&str> = columns[fitting..].iter().map(Column::name).collect();
    if left_out.is_empty() {
        return (text, None, partial);
    }
    let left_out = left_out.join(", ");
    // In a wider table long names take more, too.
    let mut wide = width;
    loop {
        columns[SCHEDULER].texts = shortened(wide);
        match columns_taken(&columns) {
            taken if taken <= wide => break,
            taken => wide = taken,
        }
    }
    let note = format!(
        "no room for {left_out}: {wide} columns show all (in a pipe, set COLUMNS={wide}), as does --json"
    );
    (text, Some(note), partial)
}

/// How wide a table of these columns is.
fn columns_taken(columns: &[Column]) -> usize {
    let widths: usize = columns.iter().map(Column::width).sum();
    widths + GAP * columns.len().saturating_sub(1)
}

/// Returns whether blocks of rows with the same number of CPUs want a blank line between them.
fn several_per_cpus(cells: &[Cell<'_>]) -> bool {
    cells.windows(2).any(|pair| pair[0].cpus == pair[1].cpus)
}

fn push_line<'a>(text: &mut String, columns: &'a [Column], of: impl Fn(&'a Column) -> &'a str) {
    let mut line = String::new();
    for (index, column) in columns.iter().enumerate() {
        let gap = if index == 0 { 0 } else { GAP };
        let word = of(column);
        let padding = column.width() - width_of(word);
        let (before, after) = if column.left {
            (0, padding)
        } else {
            (padding, 0)
        };
        let _ = write!(
            line,
            "{}{word}{}",
            " ".repeat(gap + before),
            " ".repeat(after)
        );
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Returns whether there is more than one scheduler.
fn are_compared(cells: &[Cell<'_>]) -> bool {
    cells
        .iter()
        .any(|cell| cell.scheduler != cells[0].scheduler)
}

/// Returns whether the table says how scores differ.
fn compares_scores(group: &[&RunResult], cells: &[Cell<'_>], view: &View) -> bool {
    view.measures.is_empty()
        && are_compared(cells)
        && (view.emulated_ratios || !group[0].is_emulated())
}

/// Why scores of an emulated machine are not compared.
fn withheld(group: &[&RunResult], cells: &[Cell<'_>], view: &View) -> Option<String> {
    let usual = view.measures.is_empty() && are_compared(cells);
    let is_withheld = usual && !compares_scores(group, cells, view);
    is_withheld.then(|| {
        "ratios of scores are withheld: emulated CPUs do not keep the proportions of real ones \
         (--emulated-ratios shows them)"
            .to_owned()
    })
}

/// Of how many runs the figures are of rows in which some failed.
fn survivors(cells: &[Cell<'_>]) -> Option<String> {
    let left: Vec<String> = cells
        .iter()
        .filter_map(|cell| {
            let all = cell.runs.len();
            let done = cell.runs.iter().filter(|run| run.is_done()).count();
            let cpus = counted(cell.cpus, "CPU");
            (1..all)
                .contains(&done)
                .then(|| format!("{done} of {all} runs of {} on {cpus}", cell.scheduler))
        })
        .collect();
    (!left.is_empty()).then(|| {
        let left = left.join(", ");
        format!("failed runs are not in the figures, which are of {left}")
    })
}

/// Returns the number of runs behind a figure that some of the runs do not have, as a wait where no task waited.
fn partial(cells: &[Cell<'_>], columns: &[Column]) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    for name in columns.iter().flat_map(|column| &column.measures) {
        for cell in cells {
            let (all, with) = (cell.counted().count(), cell.values(name).len());
            if (1..all).contains(&with) {
                let cpus = counted(cell.cpus, "CPU");
                parts.push(format!(
                    "{name} of {} on {cpus} ({with} of {all} runs)",
                    cell.scheduler
                ));
            }
        }
    }
    const NAMED_MAX: usize = 3;
    let more = parts.len().saturating_sub(NAMED_MAX);
    parts.truncate(NAMED_MAX);
    let mut named = parts.join(", ");
    if more > 0 {
        let _ = write!(named, " and {more} more");
    }
    (!parts.is_empty())
        .then(|| format!("some runs lack a figure, and medians leave them out: {named}"))
}

/// Repeated, but with the same outcome throughout, which is no sample. `failures` reports the runs that failed.
fn copies(cells: &[Cell<'_>]) -> Option<String> {
    let copies: Vec<_> = cells
        .iter()
        .filter(|cell| cell.runs.len() > 1 && cell.runs[0].is_done() && cell.is_one_run())
        .collect();
    let first = copies.first()?;
    let rows = match copies.len() == cells.len() {
        true => "here".to_owned(),
        false => format!("in {} of {} rows", copies.len(), cells.len()),
    };
    let runs = first.runs.len();
    Some(format!(
        "the seed changes nothing {rows}: {runs} runs are one"
    ))
}

/// Run too seldom: a difference without an interval looks like one that the runs show.
fn caution(cells: &[Cell<'_>], first: &str) -> Option<String> {
    let bare = |cell: &Cell<'_>| {
        base(cell, cells, first).is_some_and(|base| {
            let are_copies = cell.runs.len() > 1 && cell.is_one_run() && base.is_one_run();
            let difference = cell.difference(base);
            !are_copies && difference.is_some_and(|shown| shown.interval.is_none())
        })
    };
    let runs = cells
        .iter()
        .filter(|cell| bare(cell))
        .map(|cell| cell.runs.len());
    let most = runs.max()?;
    let least = stats::RUNS_MIN;
    let needed = if most < least {
        format!("{least} runs (--repeat {least})")
    } else {
        // A run that ends may have nothing to score.
        format!("{least} seeds with which both runs end with a score")
    };
    Some(format!(
        "differences may be chance: intervals need {needed}"
    ))
}

/// No other measure reports a wait that did not end. `failures` reports the runs that failed.
fn starvation(cells: &[Cell<'_>]) -> Option<String> {
    let is_done = |cell: &&Cell<'_>| cell.runs.iter().any(|run| run.is_done());
    let waits = cells.iter().filter(is_done).filter_map(|cell| {
        let longest = |name| cell.values(name).into_iter().reduce(f64::max);
        let unfinished = longest("wait.unfinished_ns_max")?;
        (unfinished > longest("wait.ns_max").unwrap_or(0.0)).then_some((cell, unfinished))
    });
    let (cell, ns) = waits.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    Some(format!(
        "a task had waited for a CPU for {} when the run ended: {} on {}",
        amount(ns, "ns"),
        cell.scheduler,
        counted(cell.cpus, "CPU")
    ))
}

/// Returns one block per run that did not end as it should (the outcome, the reason, and the command that repeats
/// it), and a line per run with a note.
fn failures(group: &[&RunResult], width: usize) -> String {
    let layouts_differ = layouts_differ(group);
    let mut text = String::new();
    for run in group {
        let which = || {
            format!(
                "{} on {}, seed {}",
                label(run, layouts_differ),
                counted(run.cpus, "CPU"),
                run.seed
            )
        };
        if !run.is_done() {
            let message = run.message.as_deref().unwrap_or("no message");
            let told = format!("{}: {}: {message}", which(), run.exit);
            fill(&mut text, "! ", &told, 2, width);
            if let Some(why) = &run.explanation {
                fill(&mut text, "  why: ", why, 2, width);
            }
            if let Some(found) = &run.violations {
                fill(&mut text, "  before that, violations: ", found, 2, width);
            }
            // Whole, so that it can be copied.
            let _ = writeln!(text, "  replay: {}", run.replay);
        } else if let Some(note) = &run.message {
            fill(&mut text, "- ", &format!("{}: {note}", which()), 2, width);
        }
    }
    text
}
