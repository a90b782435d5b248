//! Results as a table for people: a row per number of CPUs and scheduler, 80 columns unless told otherwise.
//!
//! Repeated runs are shown by their median, with the 95 % interval of the score and the paired difference
//! to the first scheduler. Columns for which there is no room are named below.

use std::fmt::Write as _;

use schedlab_trace::counted;

use crate::export::lines::fill;
use crate::export::number::{amount, digits, grouped, time_unit};
use crate::stats::{self, Difference, Interval};
use crate::{RunResult, Value};

/// Width of a terminal that tells nothing about itself.
pub const WIDTH: usize = 80;

/// Runs of one scheduler on one number of CPUs.
struct Cell<'a> {
    cpus: u32,
    /// The scheduler, and what else tells rows apart.
    scheduler: String,
    /// In order of repetition.
    runs: Vec<&'a RunResult>,
}

/// A column: two lines of heading and a text per row.
struct Column {
    heading: [String; 2],
    left: bool,
    texts: Vec<String>,
}

impl Column {
    fn new(first: &str, second: &str, texts: Vec<String>) -> Self {
        Column {
            heading: [first.to_owned(), second.to_owned()],
            left: false,
            texts,
        }
    }

    fn width(&self) -> usize {
        let longest = self.heading.iter().chain(&self.texts);
        longest.map(|text| text.chars().count()).max().unwrap_or(0)
    }

    fn is_empty(&self) -> bool {
        self.texts.iter().all(|text| text == ABSENT)
    }

    /// Without the unit.
    fn name(&self) -> &str {
        self.heading[0].split(' ').next().unwrap_or_default()
    }
}

const ABSENT: &str = "-";
/// The layout that goes without saying.
const PLAIN: &str = "plain";
const GAP: usize = 2;
/// The column of names.
const SCHEDULER: usize = 1;
/// Names keep so many characters on however narrow a terminal.
const NAME_MIN: usize = 12;

/// The table of all results, for a terminal of `width` columns.
pub fn render(results: &[RunResult], width: usize) -> String {
    let mut text = String::new();
    for group in groups(results) {
        if !text.is_empty() {
            text.push('\n');
        }
        fill(&mut text, "", &title(&group), 2, width);
        text.push('\n');
        let (body, left_out) = body(&group, width);
        text.push_str(&body);
        let notes = [
            left_out,
            survivors(&group),
            copies(&group),
            caution(&group),
            starvation(&group),
        ];
        for note in notes.into_iter().flatten() {
            fill(&mut text, "", &note, 2, width);
        }
        text.push_str(&failures(&group, width));
    }
    text
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
    format!("{} on {}{layout}", first.asked, first.machine)
}

fn layouts_differ(group: &[&RunResult]) -> bool {
    group
        .iter()
        .any(|run| run.task_layout != group[0].task_layout)
}

/// What a result is called in its row: its scheduler, and where they differ the layout of the task structures.
fn label(run: &RunResult, layouts_differ: bool) -> String {
    match &run.task_layout {
        Some(layout) if layouts_differ => format!("{}, {layout}", run.scheduler),
        _ => run.scheduler.clone(),
    }
}

fn cells<'a>(group: &[&'a RunResult]) -> Vec<Cell<'a>> {
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
    /// A measure over the runs that ended as they should, or over all where none did.
    fn values(&self, name: &str) -> Vec<f64> {
        let any_done = self.runs.iter().any(|run| run.is_done());
        self.runs
            .iter()
            .filter(|run| run.is_done() || !any_done)
            .filter_map(|run| run.measures.number(name))
            .collect()
    }

    fn median(&self, name: &str) -> Option<f64> {
        stats::median(&self.values(name))
    }

    /// Whether its runs are copies of one: nothing in them depends on the seed, and no number of them tells more.
    fn is_one_run(&self) -> bool {
        let first = self.runs[0];
        self.runs
            .iter()
            .all(|run| run.exit == first.exit && run.measures == first.measures)
    }

    /// Difference of the score from another cell's, in percent, over runs with the same seed and place.
    fn difference(&self, first: &Cell<'_>) -> Option<Difference> {
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

/// The table itself, and what there was no room for.
fn body(group: &[&RunResult], width: usize) -> (String, Option<String>) {
    let cells = cells(group);
    // What the table is for; the others as far as there is room.
    let needed = 3 + usize::from(are_compared(&cells));
    let columns = columns_of(&cells).into_iter().enumerate();
    let mut columns: Vec<Column> = columns
        .filter(|(index, column)| *index < needed || !column.is_empty())
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
        if row > 0 && cells[row].cpus != cells[row - 1].cpus && several_per_cpus(&cells) {
            text.push('\n');
        }
        push_line(&mut text, &columns[..fitting], |column| &column.texts[row]);
    }
    let left_out: Vec<&str> = columns[fitting..].iter().map(Column::name).collect();
    if left_out.is_empty() {
        return (text, None);
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
    (text, Some(note))
}

/// How wide a table of these columns is.
fn columns_taken(columns: &[Column]) -> usize {
    let widths: usize = columns.iter().map(Column::width).sum();
    widths + GAP * columns.len().saturating_sub(1)
}

/// Takes what is too long for `room` out of the middle of names: a path's end tells most, options' beginning.
/// Names that cannot be told apart any more are numbered in the order in which they were asked for.
fn shorten(names: &mut [String], room: usize) {
    let room = room.max(NAME_MIN);
    let cut = |name: &str, room: usize| {
        let chars: Vec<char> = name.chars().collect();
        if chars.len() <= room {
            return name.to_owned();
        }
        let kept = room - 1;
        let end = chars.len() - kept.div_ceil(2);
        let (head, tail) = (&chars[..kept / 2], &chars[end..]);
        head.iter().chain(&['…']).chain(tail).collect()
    };
    let mut different: Vec<&String> = Vec::new();
    for name in names.iter() {
        if !different.contains(&name) {
            different.push(name);
        }
    }
    let mut short: Vec<String> = different.iter().map(|name| cut(name, room)).collect();
    let is_twin = |name: &String| short.iter().filter(|other| *other == name).count() > 1;
    if short.iter().any(is_twin) {
        let numbered = different.iter().zip(1..);
        short = numbered
            .map(|(name, number)| {
                let number = format!("{number} ");
                number.clone() + &cut(name, room - number.len())
            })
            .collect();
    }
    let places: Vec<usize> = names
        .iter()
        .map(|name| {
            different
                .iter()
                .position(|other| *other == name)
                .expect("each is there")
        })
        .collect();
    for (name, place) in names.iter_mut().zip(places) {
        name.clone_from(&short[place]);
    }
}

/// Whether blocks of rows with the same number of CPUs want a blank line between them.
fn several_per_cpus(cells: &[Cell<'_>]) -> bool {
    cells.windows(2).any(|pair| pair[0].cpus == pair[1].cpus)
}

fn push_line<'a>(text: &mut String, columns: &'a [Column], of: impl Fn(&'a Column) -> &'a str) {
    let mut line = String::new();
    for (index, column) in columns.iter().enumerate() {
        let gap = if index == 0 { 0 } else { GAP };
        let word = of(column);
        let padding = column.width() - word.chars().count();
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

/// All columns, the most important first.
fn columns_of(cells: &[Cell<'_>]) -> Vec<Column> {
    let each = |text: &dyn Fn(&Cell<'_>) -> Option<String>| -> Vec<String> {
        cells
            .iter()
            .map(|cell| text(cell).unwrap_or_else(|| ABSENT.to_owned()))
            .collect()
    };
    let one = |name: &'static str, show: fn(f64) -> String| {
        each(&move |cell| cell.median(name).map(show))
    };
    let pair = |first: &'static str, second: &'static str, show: fn(f64) -> String| {
        each(&move |cell| {
            Some(format!(
                "{}/{}",
                show(cell.median(first)?),
                show(cell.median(second)?)
            ))
        })
    };
    let queue = each(&|cell| {
        let mean = cell.median("runqueue.len_mean")?;
        let max = cell.median("runqueue.len_max")?;
        Some(format!("{}/{}", digits(mean), grouped(max)))
    });
    let mut schedulers = Column::new("", "scheduler", each(&|cell| Some(cell.scheduler.clone())));
    schedulers.left = true;
    let mut columns = vec![
        Column::new("", "cpus", each(&|cell| Some(cell.cpus.to_string()))),
        schedulers,
        score_column(cells),
    ];
    if are_compared(cells) {
        columns.push(difference_column(cells));
    }
    columns.extend([
        Column::new(
            "contention",
            "%",
            one("lock.runqueue.contention_pct", share),
        ),
        Column::new(
            "hold µs",
            "mean/max",
            pair(
                "lock.runqueue.hold_ns_mean",
                "lock.runqueue.hold_ns_max",
                us,
            ),
        ),
        Column::new(
            "wait µs",
            "mean/max",
            pair(
                "lock.runqueue.wait_ns_mean",
                "lock.runqueue.wait_ns_max",
                us,
            ),
        ),
        Column::new("queue", "mean/max", queue),
        Column::new(
            "examined",
            "per call",
            one("schedule.examined_mean", digits),
        ),
        Column::new(
            "wakeup µs",
            "p50/p99",
            pair("wakeup.latency_ns_p50", "wakeup.latency_ns_p99", us),
        ),
        Column::new("idle", "%", one("cpu.idle_pct", share)),
        Column::new("sched", "% of all", one("sched.share_of_all_pct", share)),
        Column::new("switches", "", one("switches.total", grouped)),
        Column::new("migrations", "", one("migrations.total", grouped)),
        Column::new(
            "fairness",
            "Jain",
            one("fairness.jain", |x| format!("{x:.3}")),
        ),
    ]);
    columns
}

/// Whether there is more than one scheduler.
fn are_compared(cells: &[Cell<'_>]) -> bool {
    cells
        .iter()
        .any(|cell| cell.scheduler != cells[0].scheduler)
}

fn score_column(cells: &[Cell<'_>]) -> Column {
    let runs = cells.iter().flat_map(|cell| &cell.runs);
    let word = |name: &str| {
        runs.clone().find_map(|run| match run.measures.get(name) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        })
    };
    let better = match word("score_better").as_deref() {
        Some("higher") => "more is better",
        Some("lower") => "less is better",
        _ => "",
    };
    // Where no run came to a score its unit is unknown.
    let unit = word("score_unit").unwrap_or_else(|| "score".to_owned());
    // The least time has all its digits in the unit that suits it.
    let medians = cells.iter().filter_map(|cell| cell.median("score"));
    let least = medians
        .filter(|&score| score > 0.0)
        .reduce(f64::min)
        .unwrap_or(0.0);
    let (size, unit, show): (f64, String, fn(f64) -> String) = match time_unit(least, &unit) {
        Some((size, unit)) => (size, unit, digits),
        None => (1.0, unit, grouped),
    };
    let texts = cells
        .iter()
        .map(|cell| {
            let values = cell.values("score");
            let median = stats::median(&values);
            let mut text = median.map_or(ABSENT.to_owned(), |median| show(median / size));
            let interval = stats::median_interval(&values).filter(|_| !cell.is_one_run());
            if let Some(Interval { low, high }) = interval {
                if low == high {
                    text.push_str(" ±0");
                } else {
                    let _ = write!(text, " [{}, {}]", show(low / size), show(high / size));
                }
            }
            if cell.runs.iter().any(|run| !run.is_done()) {
                text.push('!');
            }
            text
        })
        .collect();
    Column::new(&unit, better, texts)
}

/// What a cell is compared with: the first scheduler on as many CPUs.
fn base<'a, 'b>(cell: &Cell<'_>, cells: &'a [Cell<'b>]) -> Option<&'a Cell<'b>> {
    let first = &cells[0].scheduler;
    cells
        .iter()
        .find(|other| other.cpus == cell.cpus && other.scheduler == *first)
        .filter(|_| cell.scheduler != *first)
}

fn difference_column(cells: &[Cell<'_>]) -> Column {
    let texts = cells
        .iter()
        .map(|cell| {
            let Some(base) = base(cell, cells) else {
                return String::new();
            };
            let Some(difference) = cell.difference(base) else {
                return ABSENT.to_owned();
            };
            match difference.interval {
                // Too few runs, or copies of one: the difference itself is all there is to say; `copies` and
                // `caution` say so of several.
                None => signed(difference.estimate, digits_of(difference.estimate)),
                Some(_) if !difference.is_shown() => "~".to_owned(),
                Some(Interval { low, high }) => {
                    // One that is shown does not look as if the interval held zero.
                    let nearest = if low > 0.0 { low } else { high };
                    let show = |x| signed(x, digits_of(nearest));
                    let (estimate, low, high) = (show(difference.estimate), show(low), show(high));
                    match low == high && low.contains('<') {
                        true => low,
                        false => format!("{estimate} [{low}, {high}]"),
                    }
                }
            }
        })
        .collect();
    Column::new("vs first", "%", texts)
}

/// Of how many runs the figures are of rows in which some failed.
fn survivors(group: &[&RunResult]) -> Option<String> {
    let cells = cells(group);
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

/// Repeated, but with the same outcome throughout: that is no sample. Of runs that failed `failures` tells.
fn copies(group: &[&RunResult]) -> Option<String> {
    let cells = cells(group);
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
fn caution(group: &[&RunResult]) -> Option<String> {
    let cells = cells(group);
    let bare = |cell: &Cell<'_>| {
        base(cell, &cells).is_some_and(|base| {
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

/// No other measure tells of a wait that did not end. Of runs that failed `failures` tells.
fn starvation(group: &[&RunResult]) -> Option<String> {
    let cells = cells(group);
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

/// One block per run that did not end as it should: what, why, and the command that repeats it; and a line per
/// run of which there is something to know.
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
            // Whole, so that it can be copied.
            let _ = writeln!(text, "  replay: {}", run.replay);
        } else if let Some(note) = &run.message {
            fill(&mut text, "- ", &format!("{}: {note}", which()), 2, width);
        }
    }
    text
}

/// Most digits after the point of a difference in percent.
const DIGITS_MAX: usize = 3;

/// Digits after the point with which a difference that is not zero does not look like it.
fn digits_of(x: f64) -> usize {
    let shows = |digits: &usize| x.abs() >= 0.5 * 10f64.powi(-(*digits as i32));
    match x == 0.0 {
        true => 1,
        false => (1..DIGITS_MAX).find(shows).unwrap_or(DIGITS_MAX),
    }
}

/// With its sign; what is too small for so many digits as less than the least that has them: `-<0.001`.
fn signed(x: f64, digits: usize) -> String {
    if (-100.0..-99.0).contains(&x) {
        return nearly_all(x);
    }
    // Where there are many before the point, those behind it tell nothing.
    let digits = if x.abs() < 10.0 { digits } else { 1 };
    let least = 10f64.powi(-(digits as i32));
    if x == 0.0 {
        format!("{:.digits$}", 0.0)
    } else if x.abs() < least / 2.0 {
        format!("{}<{least:.digits$}", if x < 0.0 { '-' } else { '+' })
    } else {
        format!("{x:+.digits$}")
    }
}

/// A difference by which little is left, with the digits that tell this from nothing: a 20,000th is `-99.995`, and
/// what is too little for them `<-99.999`.
fn nearly_all(x: f64) -> String {
    let mut texts = (1..=DIGITS_MAX).map(|digits| format!("{x:.digits$}"));
    let shows = |text: &String| x == -100.0 || !text.starts_with("-100");
    texts.find(shows).unwrap_or_else(|| "<-99.999".to_owned())
}

/// Nanoseconds as microseconds.
fn us(ns: f64) -> String {
    digits(ns / 1_000.0)
}

/// A percentage.
fn share(x: f64) -> String {
    format!("{x:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Measures;

    fn run(scheduler: &str, cpus: u32, seed: u64, score: f64) -> RunResult {
        let mut measures = Measures::default();
        measures.float("score", score);
        measures.text("score_unit", "messages/s");
        measures.text("score_better", "higher");
        measures.float("lock.runqueue.contention_pct", 18.34);
        measures.float("lock.runqueue.hold_ns_mean", 15_200.0);
        measures.int("lock.runqueue.hold_ns_max", 118_000);
        measures.float("runqueue.len_mean", 217.6);
        measures.int("runqueue.len_max", 571);
        measures.int("switches.total", 1_234_567);
        RunResult {
            workload: "chat".into(),
            asked: "chat:rooms=20".into(),
            params: vec![
                ("rooms".into(), "20".into()),
                ("messages".into(), "200".into()),
            ],
            scheduler: scheduler.into(),
            machine: "old".into(),
            cpus,
            seed,
            exit: crate::Exit::Done,
            replay: "schedlab sim chat -s b -c 8".into(),
            measures,
            ..RunResult::default()
        }
    }

    #[test]
    fn a_row_per_scheduler_and_cpus() {
        let mut ejected = run("b", 8, 1, 900.0);
        ejected.exit = crate::Exit::ErrorStall;
        ejected.message = Some("runnable task stall".into());
        let results = [
            run("a", 2, 1, 12_345.6),
            run("b", 2, 1, 13_580.2),
            run("a", 8, 1, 1_000.0),
            ejected,
        ];
        let found = render(&results, 90);
        assert_lines(
            &found,
            &[
                "chat:rooms=20 on old",
                "",
                "                     messages/s  vs first  contention   hold µs     queue   switches",
                "cpus  scheduler  more is better         %           %  mean/max  mean/max",
                "   2  a                  12,346                  18.3  15.2/118   218/571  1,234,567",
                "   2  b                  13,580     +10.0        18.3  15.2/118   218/571  1,234,567",
                "",
                "   8  a                   1,000                  18.3  15.2/118   218/571  1,234,567",
                "   8  b                    900!         -        18.3  15.2/118   218/571  1,234,567",
                "differences may be chance: intervals need 6 runs (--repeat 6)",
                "! b on 8 CPUs, seed 1: error_stall: runnable task stall",
                "  replay: schedlab sim chat -s b -c 8",
            ],
        );
        let mut noted = run("a", 2, 1, 12_345.6);
        noted.message = Some("two tasks were left".into());
        let found = render(&[noted], 90);
        assert!(
            found.ends_with("\n- a on 2 CPUs, seed 1: two tasks were left\n"),
            "{found}"
        );
    }

    fn assert_lines(found: &str, expected: &[&str]) {
        let found_lines: Vec<_> = found.lines().collect();
        assert_eq!(found_lines, expected, "\n{found}");
    }

    #[test]
    fn layouts_that_differ_have_rows_of_their_own() {
        let with = |layout: &str, score| {
            let mut run = run("a", 2, 1, score);
            run.task_layout = Some(layout.into());
            run
        };
        let found = render(&[with("plain", 1_000.0), with("separate", 1_100.0)], 60);
        assert!(found.starts_with("chat:rooms=20 on old\n\n"), "{found}");
        assert!(found.contains("   2  a, plain"), "{found}");
        let row = found.lines().find(|line| line.contains("a, separate"));
        assert!(row.unwrap().contains("+10.0"), "{found}");
        let found = render(&[with("plain", 1_000.0)], 60);
        assert!(!found.contains("plain"), "{found}");
        let found = render(&[with("coloured:4", 1_000.0)], 60);
        let title = "chat:rooms=20 on old, task structures coloured:4\n\n";
        assert!(found.starts_with(title), "{found}");
        assert!(found.contains("   2  a  "), "{found}");
    }

    #[test]
    fn repeated_runs_have_intervals_and_differences() {
        let mut results = Vec::new();
        for seed in 0..7 {
            let noise = f64::from(seed as u32 * 37 % 7);
            results.push(run("a", 2, seed, 1_000.0 + noise));
            results.push(run("b", 2, seed, 1_200.0 + noise));
            results.push(run("c", 2, seed, 1_000.0 + f64::from(6 - seed as u32)));
        }
        let text = render(&results, WIDTH);
        assert!(text.contains("1,003 [1,000, 1,006]"), "{text}");
        assert!(text.contains("+19.9 [+19.9, +20.0]"), "{text}");
        assert!(text.contains(" ~ "), "{text}");
    }

    /// One to five runs give no interval, and the table says what that means.
    #[test]
    fn differences_of_few_runs_come_with_a_caution() {
        let table = |runs: u64, schedulers: &[&str]| {
            let results: Vec<_> = (0..runs)
                .flat_map(|seed| {
                    schedulers
                        .iter()
                        .map(move |name| run(name, 2, seed, 1_000.0 + seed as f64))
                })
                .collect();
            render(&results, WIDTH)
        };
        let caution = "differences may be chance: intervals need 6 runs (--repeat 6)";
        for (runs, told) in [(1, true), (2, true), (5, true), (6, false)] {
            let found = table(runs, &["a", "b"]);
            assert_eq!(found.lines().any(|l| l == caution), told, "{runs}: {found}");
        }
        assert!(!table(5, &["a"]).contains(caution), "nothing is compared");
    }

    /// Also a row without any score says that its runs failed.
    #[test]
    fn failures_are_marked_where_there_is_no_score() {
        let scoreless = |scheduler, exit| {
            let mut run = run(scheduler, 2, 1, 0.0);
            run.measures = Measures::default();
            run.exit = exit;
            run
        };
        let results = [
            scoreless("a", crate::Exit::Done),
            scoreless("b", crate::Exit::ErrorStall),
        ];
        let found = render(&results, WIDTH);
        let row = |name: &str| found.lines().find(|line| line.contains(name)).unwrap();
        assert!(row("   2  a ").trim_end().ends_with(" -"), "{found}");
        assert!(row("   2  b ").contains(" -!  "), "{found}");
        // Without any unit the column has a heading all the same.
        assert_eq!(
            found.lines().nth(2).unwrap().trim(),
            "score  vs first",
            "{found}"
        );
    }

    /// Four of nine runs are not nine.
    #[test]
    fn it_is_said_of_how_many_runs_figures_are() {
        let table = |failed: u64| {
            let results: Vec<_> = (0..9)
                .flat_map(|seed| {
                    let mut other = run("b", 2, seed, 1_100.0 + seed as f64);
                    if seed < failed {
                        other.exit = crate::Exit::ErrorStall;
                        other.measures.float("score", 1.0);
                    }
                    [run("a", 2, seed, 1_000.0 + seed as f64), other]
                })
                .collect();
            render(&results, WIDTH)
        };
        let told = "failed runs are not in the figures, which are of 4 of 9 runs of b on 2 CPUs";
        let found = table(5);
        assert!(found.lines().any(|line| line == told), "{found}");
        assert!(found.contains("1,106!"), "{found}");
        // Where none or all failed there is nothing to leave out.
        for failed in [0, 9] {
            let found = table(failed);
            assert!(!found.contains("not in the figures"), "{found}");
        }
    }

    /// The most important come first, and none vanishes unsaid.
    #[test]
    fn columns_without_room_are_named() {
        let mut one = run("a", 2, 1, 1_000.0);
        for name in ["lock.runqueue.wait_ns_mean", "lock.runqueue.wait_ns_max"] {
            one.measures.float(name, 123_456.0);
        }
        for name in ["wakeup.latency_ns_p50", "wakeup.latency_ns_p99"] {
            one.measures.float(name, 123_456.0);
        }
        one.measures.float("cpu.idle_pct", 1.0);
        one.measures.float("schedule.examined_mean", 7.0);
        let results = [
            one.clone(),
            RunResult {
                scheduler: "b".into(),
                ..one
            },
        ];
        let found = render(&results, 74);
        let headings = found.lines().nth(2).unwrap();
        let shown: Vec<&str> = headings.split_whitespace().collect();
        let expected = [
            "messages/s",
            "vs",
            "first",
            "contention",
            "hold",
            "µs",
            "wait",
            "µs",
        ];
        assert_eq!(shown, expected, "{found}");
        // Though there is room for `idle`.
        let note = "no room for queue, examined, wakeup, idle, switches: 121 columns show all\n  (in a pipe, set COLUMNS=121), as does --json\n";
        assert!(found.contains(note), "{found}");
        let found = render(&results, 121);
        assert!(!found.contains("no room"), "{found}");
        let long = results.clone().map(|result| RunResult {
            scheduler: format!("{}:{}", result.scheduler, "option=value,".repeat(9)),
            ..result
        });
        // Long names take more where there is more.
        let told = |width| {
            let found = render(&long, width);
            let (_, behind) = found.split_once("COLUMNS=")?;
            behind.split(')').next()?.parse::<usize>().ok()
        };
        let wide = told(80).unwrap();
        assert_eq!(told(wide), None);
        assert!(told(wide - 1).is_some());
        let order = [
            "contention",
            "hold",
            "wait",
            "queue",
            "examined",
            "wakeup",
            "idle",
            "switches",
        ];
        let places = order.map(|name| found.find(name).unwrap());
        assert!(places.is_sorted(), "{found}");
    }

    /// Where runs fail, more of them may not be what is missing.
    #[test]
    fn advice_after_failures_is_about_runs_that_ended() {
        let table = |failed: u64, score: fn(u64) -> f64| {
            let results: Vec<_> = (0..7)
                .flat_map(|seed| {
                    let mut other = run("b", 2, seed, 1_000.0);
                    if seed < failed {
                        other.exit = crate::Exit::ErrorStall;
                    }
                    [run("a", 2, seed, score(seed)), other]
                })
                .collect();
            render(&results, WIDTH)
        };
        let found = table(2, |seed| 1_000.0 + seed as f64);
        let told = "intervals need 6 seeds with which both runs end with\n  a score\n";
        assert!(found.contains(told), "{found}");
        assert!(!found.contains("--repeat"), "{found}");
        let found = table(7, |seed| 1_000.0 + seed as f64);
        assert!(!found.contains("the seed changes nothing"), "{found}");
        let found = table(7, |_| 1_000.0);
        assert!(found.contains("nothing in 1 of 2 rows: 7 runs"), "{found}");
    }

    #[test]
    fn more_of_a_score_below_zero_is_more() {
        let text = render(&[run("a", 2, 1, -100.0), run("b", 2, 1, -50.0)], WIDTH);
        assert!(text.contains("+50.0"), "{text}");
    }

    /// Scores of 0 are scores: none of the pairs is left out, and more runs are not asked for.
    #[test]
    fn scores_of_zero_are_compared_like_others() {
        let row = |b: f64| {
            let results: Vec<_> = [0.0, 125.0, 0.0, 0.0, 125.0, 0.0]
                .into_iter()
                .zip(1..)
                .flat_map(|(a, seed)| [run("a", 2, seed, a), run("b", 2, seed, b)])
                .collect();
            let found = render(&results, WIDTH);
            assert!(!found.contains("chance"), "{found}");
            let row = found.lines().find(|line| line.starts_with("   2  b "));
            row.unwrap().to_owned()
        };
        assert!(row(0.0).contains(" ~ "), "{}", row(0.0));
        // Twice 125 and four times 250 more, of 41.7: of the averages of any two 3 are 125, 8 are 187.5 and 10 are 250.
        assert!(
            row(250.0).contains(" +450.0 [+300.0, +600.0] "),
            "{}",
            row(250.0)
        );
    }

    #[test]
    fn half_as_much_is_the_opposite_of_double() {
        let results: Vec<_> = [(1.0, 2.0), (2.0, 1.0)]
            .into_iter()
            .zip(1..)
            .flat_map(|((a, b), seed)| [run("a", 2, seed, a), run("b", 2, seed, b)])
            .collect();
        let found = render(&results, 50);
        let row = found.lines().find(|line| line.starts_with("   2  b "));
        assert!(row.unwrap().ends_with("  0.0"), "{found}");
    }

    /// What is shown is not zero, however little it is.
    #[test]
    fn differences_that_are_shown_do_not_look_like_none() {
        let column = |differences: &[f64]| {
            let results: Vec<_> = differences
                .iter()
                .zip(0..)
                .flat_map(|(percent, seed)| {
                    let score = 1e7 + 1e5 * seed as f64;
                    let other = score * (1.0 + percent / 100.0);
                    [run("a", 2, seed, score), run("b", 2, seed, other)]
                })
                .collect();
            let found = render(&results, WIDTH);
            assert!(found.lines().all(|line| line.chars().count() <= WIDTH));
            let row = found.lines().find(|line| line.starts_with("   2  b "));
            let (_, end) = row
                .unwrap()
                .split_once("]  ")
                .expect("the score's interval");
            end.trim().split("  ").next().unwrap().to_owned()
        };
        let around =
            |middle: f64, step: f64| [-2.0, -1.0, 0.0, 0.0, 1.0, 2.0].map(|x| middle + x * step);
        assert_eq!(column(&around(20.0, 1.0)), "+20.0 [+18.0, +22.0]");
        assert_eq!(column(&around(0.06, 0.01)), "+0.06 [+0.04, +0.08]");
        assert_eq!(column(&around(-0.06, 0.01)), "-0.06 [-0.08, -0.04]");
        assert_eq!(column(&around(-1.0, 0.498)), "-1.000 [-1.996, -0.004]");
        assert_eq!(column(&around(60.0, 29.998)), "+60.0 [+0.004, +120.0]");
        assert_eq!(column(&around(-1.0, 0.499_99)), "-1.000 [-2.000, -<0.001]");
        assert_eq!(column(&around(-0.000_02, 0.000_002)), "-<0.001");
        assert_eq!(column(&around(-0.000_02, 1.0)), "~");
        let one = |percent: f64| {
            let text = render(
                &[run("a", 2, 1, 1e6), run("b", 2, 1, 1e6 + 1e4 * percent)],
                50,
            );
            text.lines()
                .nth(5)
                .unwrap()
                .split_whitespace()
                .last()
                .unwrap()
                .to_owned()
        };
        let found = [12.0, -0.06, -0.04, 0.004, 0.0001, 0.0].map(one);
        assert_eq!(
            found,
            ["+12.0", "-0.1", "-0.04", "+0.004", "+<0.001", "0.0"]
        );
        // Nor do those look like all of which something is left.
        let left = [1.0, 0.06, 0.04, 0.00667, 0.005, 0.0006, 0.0004, 1e-9].map(|x| one(x - 100.0));
        assert_eq!(
            left,
            [
                "-99.0", "-99.9", "-99.96", "-99.99", "-99.995", "-99.999", "<-99.999", "<-99.999"
            ]
        );
        assert_eq!([-100.0, -150.0].map(one), ["-100.0", "-150.0"]);
        assert_eq!(column(&around(-99.98, 0.009)), "-99.98 [-99.998, -99.96]");
    }

    #[test]
    fn copies_of_one_run_are_no_sample() {
        let table = |runs: u64, of_b: fn(u64) -> f64| {
            let results: Vec<_> = (0..runs)
                .flat_map(|seed| [run("a", 2, seed, 1_000.0), run("b", 2, seed, of_b(seed))])
                .collect();
            render(&results, 110)
        };
        let found = table(6, |_| 920.0);
        let rows: Vec<_> = found.lines().skip(4).collect();
        assert!(rows[0].contains(" a       "), "{found}");
        assert!(!found.contains('±') && !found.contains('['), "{found}");
        assert!(rows[1].contains("  -8.0  "), "{found}");
        assert_eq!(rows[2], "the seed changes nothing here: 6 runs are one");
        let found = table(6, |seed| 920.0 + seed as f64);
        assert!(found.contains("-7.8 [-8.0, -7.5]"), "{found}");
        let told = "the seed changes nothing in 1 of 2 rows: 6 runs are one";
        assert!(found.lines().any(|line| line == told), "{found}");
        let found = table(3, |_| 920.0);
        assert!(!found.contains("chance"), "{found}");
        assert!(!table(1, |_| 920.0).contains("seed"));
    }

    #[test]
    fn a_wait_that_did_not_end_is_told_if_none_that_ended_was_as_long() {
        let table = |waits: &[(&str, u64)]| {
            let results = waits.iter().map(|&(scheduler, unfinished)| {
                let mut run = run(scheduler, 1, 1, 1_000.0);
                run.measures.int("wait.ns_max", 500);
                run.measures.int("wait.unfinished_ns_max", unfinished);
                run
            });
            render(&results.collect::<Vec<_>>(), WIDTH)
        };
        let line = "a task had waited for a CPU for 998 ms when the run ended: b on 1 CPU";
        let told = table(&[("a", 600), ("b", 997_934_000), ("c", 700)]);
        assert!(told.lines().any(|l| l == line), "{told}");
        assert!(!table(&[("a", 500), ("b", 0)]).contains("had waited"));
        // In a run that ended early every task waits for something.
        let mut ejected = run("a", 1, 1, 1_000.0);
        ejected.exit = crate::Exit::Error;
        ejected.measures.int("wait.unfinished_ns_max", 435);
        assert!(!render(&[ejected], WIDTH).contains("had waited"));
    }

    #[test]
    fn long_names_leave_room_for_what_the_table_is_for() {
        let long = "./a-folder/with-a-long-name/my-own-scheduler.bpf.c";
        let results = [run("dss", 2, 1, 1_000.0), run(long, 2, 1, 1_100.0)];
        let found = render(&results, 60);
        let row = "   2  ./a-folder/…eduler.bpf.c           1,100     +10.0";
        assert!(found.lines().any(|line| line == row), "{found}");
        assert!(render(&results, 160).contains(long));
        assert!(render(&results, 90).contains("contention"));
        // Alike at both ends.
        let twins = [
            "x".repeat(40) + "1" + &"y".repeat(40),
            "x".repeat(40) + "2" + &"y".repeat(40),
        ];
        let results = twins.map(|name| run(&name, 2, 1, 1_000.0));
        let found = render(&results, 60);
        assert!(
            found.contains("   2  1 xxx") && found.contains("   2  2 xxx"),
            "{found}"
        );
    }

    /// A run whose score is a time.
    fn timed(scheduler: &str, seed: u64, ns: f64) -> RunResult {
        let mut run = run(scheduler, 4, seed, ns);
        run.measures.text("score_unit", "ns");
        run.measures.text("score_better", "lower");
        run
    }

    #[test]
    fn times_have_one_unit_that_suits_the_least() {
        let results = [
            timed("a", 1, 40_111_367_874.0),
            timed("b", 1, 812_345_678.0),
        ];
        let found = render(&results, 50);
        let lines: Vec<_> = found.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "                             ms  vs first",
                "cpus  scheduler  less is better         %",
                "   4  a                  40,111",
                "   4  b                     812     -98.0",
                "no room for contention, hold, queue, switches: 84",
                "  columns show all (in a pipe, set COLUMNS=84), as",
                "  does --json",
                "differences may be chance: intervals need 6 runs",
                "  (--repeat 6)",
            ]
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let results = [
            run("dss:threshold=0,ties=list", 64, 1, 1e9),
            run(&"b".repeat(90), 64, 1, 1.0),
        ];
        let fits = |results: &[RunResult], width: usize| {
            for line in render(results, width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        };
        for width in [60, 80, 100] {
            fits(&results, width);
        }
        // With a long title, failures and notes; commands stay whole.
        let long = format!("./{}.bpf.c", "c".repeat(90));
        let mut failed = run(&long, 2, 1, 1.0);
        failed.asked = format!("chat:{}", "rooms=20,".repeat(20));
        failed.exit = crate::Exit::Error;
        failed.message = Some("a message of many words ".repeat(10));
        let mut noted = failed.clone();
        noted.exit = crate::Exit::Done;
        noted.measures.int("wait.unfinished_ns_max", 1_000);
        fits(&[failed.clone(), noted], 60);
        failed.replay = "schedlab ".repeat(20);
        let found = render(&[failed.clone()], 60);
        assert!(found.contains(&format!("\n  replay: {}\n", failed.replay)));
        // With intervals.
        let mut times = Vec::new();
        let mut rates = Vec::new();
        for seed in 0..6 {
            let noise = 1.0 + 0.002 * seed as f64;
            for (scheduler, factor) in [("eevdf", 1.0), ("mq-local", 1.3 * noise), ("dss", 0.7)] {
                times.push(timed(scheduler, seed, 40_111_367_874.0 * factor * noise));
                rates.push(run(scheduler, 4, seed, 98_765_432.1 * factor * noise));
            }
        }
        fits(&times, 60);
        fits(&rates, WIDTH);
    }
}
