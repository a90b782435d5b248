//! The columns of a table: headings, and a text per row.

use std::fmt::Write as _;

use super::cells::{Cell, base, first_of};
use crate::export::lines::width_of;
use crate::export::number::{digits, grouped, time_unit};
use crate::export::view;
use crate::stats::{self, Interval};
use crate::{RunResult, Value, catalogue};

/// The text of a value that does not exist.
const ABSENT: &str = "-";

/// A column: two lines of heading and a text per row.
pub(super) struct Column {
    pub(super) heading: [String; 2],
    /// The measures that it shows.
    pub(super) measures: Vec<String>,
    pub(super) left: bool,
    pub(super) texts: Vec<String>,
}

impl Column {
    fn new(first: &str, second: &str, texts: Vec<String>) -> Self {
        Column {
            heading: [first.to_owned(), second.to_owned()],
            measures: Vec::new(),
            left: false,
            texts,
        }
    }

    fn of<const N: usize>(self, measures: [&str; N]) -> Self {
        Column {
            measures: measures.map(str::to_owned).into(),
            ..self
        }
    }

    pub(super) fn width(&self) -> usize {
        let longest = self.heading.iter().chain(&self.texts);
        longest.map(|text| width_of(text)).max().unwrap_or(0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts.iter().all(|text| text == ABSENT)
    }

    /// Names it in a note: by its heading without the unit, or by the measure that the user chose.
    pub(super) fn name(&self) -> &str {
        match self.heading[0].split(' ').next() {
            Some(word) if !word.is_empty() && !word.contains('.') => word,
            _ => self.measures.first().map_or("", String::as_str),
        }
    }
}

/// Returns the usual columns, the most important first: on locks before those on wakeups, unless the workload itself
/// measures a latency.
pub(super) fn usual_columns(
    group: &[&RunResult],
    cells: &[Cell<'_>],
    compared: bool,
) -> Vec<Column> {
    let mut columns = row_names(cells);
    // The score of a composed workload is its first part's score.
    let parts = parts(cells);
    let scores: Vec<&str> = match parts.len() {
        0 => vec![""],
        _ => parts.iter().map(String::as_str).collect(),
    };
    for (number, part) in scores.into_iter().enumerate() {
        columns.push(score_column(cells, part));
        if number == 0 && compared {
            columns.push(difference_column(cells, &first_of(group)));
        }
    }
    let mut wakeups = vec![pair_column(
        cells,
        ["wakeup µs", "p50/p99"],
        ["wakeup.latency_ns_p50", "wakeup.latency_ns_p99"],
        us,
    )];
    if asks_for_latency(group) {
        columns.append(&mut wakeups);
    }
    columns.extend([
        one_column(
            cells,
            ["contention", "%"],
            "lock.runqueue.contention_pct",
            share,
        ),
        pair_column(
            cells,
            ["hold µs", "mean/max"],
            ["lock.runqueue.hold_ns_mean", "lock.runqueue.hold_ns_max"],
            us,
        ),
        pair_column(
            cells,
            ["wait µs", "mean/max"],
            ["lock.runqueue.wait_ns_mean", "lock.runqueue.wait_ns_max"],
            us,
        ),
        queue_column(cells),
        one_column(
            cells,
            ["examined", "per call"],
            "schedule.examined_mean",
            digits,
        ),
    ]);
    columns.append(&mut wakeups);
    columns.extend([
        one_column(cells, ["idle", "%"], "cpu.idle_pct", share),
        one_column(
            cells,
            ["sched", "% of all"],
            "sched.share_of_all_pct",
            share,
        ),
        one_column(cells, ["switches", ""], "switches.total", grouped),
        one_column(cells, ["migrations", ""], "migrations.total", grouped),
        one_column(cells, ["fairness", "Jain"], "fairness.jain", |x| {
            format!("{x:.3}")
        }),
    ]);
    columns
}

/// Returns whether the workload measures a latency of its own (`schbench.wakeup_ns_p99`,
/// `rtapp.thread0-0.wakeup_latency_ns_mean`).
fn asks_for_latency(group: &[&RunResult]) -> bool {
    const WORDS: [&str; 3] = ["wakeup", "latency", "response"];
    let own = |name: &str| catalogue::find(name).is_none();
    group.iter().any(|run| {
        let mut names = run.measures.iter().map(|(name, _)| name);
        names.any(|name| own(name) && WORDS.iter().any(|word| name.contains(word)))
    })
}

/// Returns the measures that the user chose, each with its interval.
pub(super) fn chosen_columns(
    group: &[&RunResult],
    cells: &[Cell<'_>],
    measures: &[String],
) -> Vec<Column> {
    let names = view::chosen(measures, group.iter().copied());
    let mut columns = row_names(cells);
    columns.extend(names.iter().map(|name| measure_column(group, cells, name)));
    columns
}

/// Returns a measure's medians in the unit that suits them. Its name stands in two lines: `wakeup.` above
/// `latency_p99 µs`.
fn measure_column(group: &[&RunResult], cells: &[Cell<'_>], name: &str) -> Column {
    let scale = Scale::of(cells, name, &view::unit_of(name, group));
    let texts = cells.iter().map(|cell| {
        let text = scale.text(cell, name);
        text.unwrap_or_else(|| ABSENT.to_owned())
    });
    let (above, last) = match name.rsplit_once('.') {
        Some((above, last)) => (format!("{above}."), last),
        None => (String::new(), name),
    };
    // The unit says it.
    let words = last.split('_').filter(|word| !["ns", "pct"].contains(word));
    let words: Vec<&str> = words.collect();
    let below = format!("{} {}", words.join("_"), scale.unit);
    Column::new(&above, below.trim_end(), texts.collect()).of([name])
}

/// Returns the columns that say which row is which.
fn row_names(cells: &[Cell<'_>]) -> Vec<Column> {
    let cpus = cells.iter().map(|cell| cell.cpus.to_string()).collect();
    let names = cells.iter().map(|cell| cell.scheduler.clone()).collect();
    let mut schedulers = Column::new("", "scheduler", names);
    schedulers.left = true;
    vec![Column::new("", "cpus", cpus), schedulers]
}

/// Returns the text of each row, or `None`.
fn each(cells: &[Cell<'_>], text: impl Fn(&Cell<'_>) -> Option<String>) -> Vec<String> {
    let texts = cells.iter().map(text);
    texts
        .map(|text| text.unwrap_or_else(|| ABSENT.to_owned()))
        .collect()
}

fn one_column(
    cells: &[Cell<'_>],
    heading: [&str; 2],
    measure: &str,
    show: fn(f64) -> String,
) -> Column {
    let texts = each(cells, |cell| cell.median(measure).map(show));
    Column::new(heading[0], heading[1], texts).of([measure])
}

fn pair_column(
    cells: &[Cell<'_>],
    heading: [&str; 2],
    measures: [&str; 2],
    show: fn(f64) -> String,
) -> Column {
    let texts = each(cells, |cell| {
        let [first, second] = measures.map(|name| cell.median(name).map(show));
        Some(format!("{}/{}", first?, second?))
    });
    Column::new(heading[0], heading[1], texts).of(measures)
}

fn queue_column(cells: &[Cell<'_>]) -> Column {
    let measures = ["runqueue.len_mean", "runqueue.len_max"];
    let texts = each(cells, |cell| {
        let [mean, max] = measures.map(|name| cell.median(name));
        Some(format!("{}/{}", digits(mean?), grouped(max?)))
    });
    Column::new("queue", "mean/max", texts).of(measures)
}

/// How the values of a measure are written: the least time has all its digits in the unit that suits it.
struct Scale {
    size: f64,
    unit: String,
    show: fn(f64) -> String,
}

impl Scale {
    fn of(cells: &[Cell<'_>], name: &str, unit: &str) -> Scale {
        let medians = cells.iter().filter_map(|cell| cell.median(name));
        let least = medians
            .filter(|&value| value > 0.0)
            .reduce(f64::min)
            .unwrap_or(0.0);
        match time_unit(least, unit) {
            Some((size, unit)) => Scale {
                size,
                unit,
                show: digits,
            },
            None => Scale {
                size: 1.0,
                unit: unit.to_owned(),
                show: grouped,
            },
        }
    }

    /// Returns a cell's median and its interval.
    fn text(&self, cell: &Cell<'_>, name: &str) -> Option<String> {
        let values = cell.values(name);
        let median = stats::median(&values)? / self.size;
        let mut text = (self.show)(median);
        let interval = stats::median_interval(&values).filter(|_| !cell.is_one_run());
        if let Some(Interval { low, high }) = interval {
            let (low, high) = (low / self.size, high / self.size);
            let (shown_low, shown_high) = ((self.show)(low), (self.show)(high));
            if low == high {
                text.push_str(" ±0");
            } else if shown_low == shown_high {
                // Too narrow for the digits of the median.
                let _ = write!(text, " ±{}", digits((high - median).max(median - low)));
            } else {
                let _ = write!(text, " [{shown_low}, {shown_high}]");
            }
        }
        Some(text)
    }
}

/// Returns the parts of a composed workload, which have a score each.
fn parts(cells: &[Cell<'_>]) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for (name, _) in cells
        .iter()
        .flat_map(|cell| &cell.runs)
        .flat_map(|run| run.measures.iter())
    {
        if let Some(part) = name.strip_suffix(".score")
            && !parts.iter().any(|known| known == part)
        {
            parts.push(part.to_owned());
        }
    }
    parts
}

/// Returns the score of the whole, or of a part of that name.
fn score_column(cells: &[Cell<'_>], part: &str) -> Column {
    let of_part = |name: &str| match part {
        "" => name.to_owned(),
        part => format!("{part}.{name}"),
    };
    let score = of_part("score");
    let runs = cells.iter().flat_map(|cell| &cell.runs);
    let word = |name: &str| {
        runs.clone()
            .find_map(|run| match run.measures.get(&of_part(name)) {
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
    let scale = Scale::of(cells, &score, &unit);
    let texts = cells.iter().map(|cell| {
        let text = scale.text(cell, &score);
        let mut text = text.unwrap_or_else(|| ABSENT.to_owned());
        if cell.runs.iter().any(|run| !run.is_done()) {
            text.push('!');
        }
        text
    });
    let heading = match part {
        "" => scale.unit.clone(),
        part => format!("{part} {}", scale.unit),
    };
    Column::new(&heading, better, texts.collect()).of([&score])
}

fn difference_column(cells: &[Cell<'_>], first: &str) -> Column {
    let texts = cells
        .iter()
        .map(|cell| {
            let Some(base) = base(cell, cells, first) else {
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
    // With many digits before the point, the digits behind it say nothing.
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

/// Formats a difference by which little is left, with the digits that distinguish this from nothing: a 20,000th is
/// `-99.995`, and what is too little for them `<-99.999`.
fn nearly_all(x: f64) -> String {
    let mut texts = (1..=DIGITS_MAX).map(|digits| format!("{x:.digits$}"));
    let shows = |text: &String| x == -100.0 || !text.starts_with("-100");
    texts.find(shows).unwrap_or_else(|| "<-99.999".to_owned())
}

/// Nanoseconds as microseconds.
fn us(ns: f64) -> String {
    digits(ns / 1_000.0)
}

/// Returns a percentage.
fn share(x: f64) -> String {
    format!("{x:.1}")
}
