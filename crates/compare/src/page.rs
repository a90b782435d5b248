//! The comparison as a page for a browser.

use schedlab_figures::{Axis, Chart, Mark, Page, Point, Section, Series, Table};
use schedlab_report::RunResult;
use schedlab_report::export::table::sheets;
use schedlab_report::export::view::View;
use schedlab_trace::{counted, time_unit};

use crate::path::{Decomposed, SLOTS, Times};
use crate::watched::{Runner, Watched};
use crate::words::{
    Shown, WITHHELD, against, changes, did_not_end, moves, parts_beside, percent, sentences, time,
};

/// A page takes no more bytes.
pub const BYTES_MAX: usize = 5_000_000;
/// Room for all but the timelines.
const TEXT_BYTES: usize = 500_000;
/// Pairs of names in the table of who waited behind whom, and locks in theirs.
const ROWS_MAX: usize = 12;
/// In the place of the task behind which another one waited to the end of the run.
const NOT_ENDED: &str = "(not ended)";

/// Returns the page of a comparison. `watched` has the results that were watched, by their places.
pub fn page(results: &[RunResult], watched: &[(usize, Watched)], view: &View) -> Page {
    let room = (BYTES_MAX - TEXT_BYTES) / watched.len().max(1);
    let mut sections = vec![overview(results, view), distributions(results, watched)];
    sections.extend(over_time(results, watched));
    sections.extend(paths(results, watched));
    for (place, one) in watched {
        let first = (&results[watched[0].0], &watched[0].1);
        sections.push(of_run((&results[*place], one), first, view, room));
    }
    sections.retain(|section| !section.is_empty());
    Page {
        title: title(results),
        lead: lead(results, watched, view),
        sections,
    }
}

fn title(results: &[RunResult]) -> String {
    let mut schedulers: Vec<String> = Vec::new();
    for result in results {
        let name = format!("`{}`", result.scheduler);
        if !schedulers.contains(&name) {
            schedulers.push(name);
        }
    }
    let workload = results.first().map_or("", |first| first.asked.as_str());
    match schedulers.as_slice() {
        few @ [_, ..] if few.len() <= 4 => format!("{workload} under {}", few.join(", ")),
        many => format!(
            "{workload} under {}",
            counted(many.len() as u64, "scheduler")
        ),
    }
}

/// Rows of results: same scheduler, CPUs and layout, in the order in which they were asked for.
pub(crate) fn rows(results: &[RunResult]) -> Vec<Vec<&RunResult>> {
    let mut rows: Vec<Vec<&RunResult>> = Vec::new();
    for result in results {
        let key = |one: &RunResult| (one.cpus, one.scheduler.clone(), one.task_layout.clone());
        match rows.iter_mut().find(|row| key(row[0]) == key(result)) {
            Some(row) => row.push(result),
            None => rows.push(vec![result]),
        }
    }
    rows
}

/// The name of a run among the others: its scheduler, and the rest in which it differs from other runs.
pub(crate) fn label(result: &RunResult, results: &[RunResult]) -> String {
    let mut label = result.scheduler.clone();
    if results.iter().any(|other| other.cpus != result.cpus) {
        label += &format!(" on {}", counted(result.cpus, "CPU"));
    }
    let differs = |other: &RunResult| other.task_layout != result.task_layout;
    if let Some(layout) = &result.task_layout
        && results.iter().any(differs)
    {
        label += &format!(", {layout}");
    }
    label
}

/// The name of a watched run in tables and charts of several.
fn label_of_watched(result: &RunResult, results: &[RunResult]) -> String {
    let cut = match result.is_done() {
        true => "",
        false => " (failed)",
    };
    label(result, results) + cut
}

/// Whether times and scores of a machine are not compared, here as in the table.
fn is_withheld(result: &RunResult, view: &View) -> bool {
    result.is_emulated() && !view.emulated_ratios
}

/// How the scores differ from the first scheduler's, on each number of CPUs.
pub(crate) fn scores(results: &[RunResult], view: &View) -> Vec<String> {
    let rows = rows(results);
    let mut said = Vec::new();
    if rows.len() > 1 && results.iter().any(|result| is_withheld(result, view)) {
        return vec![WITHHELD.to_owned()];
    }
    for row in &rows {
        let first = rows.iter().find(|first| first[0].cpus == row[0].cpus);
        let Some(first) = first.filter(|first| !std::ptr::eq(*first, row)) else {
            continue;
        };
        let (name, other) = (label(row[0], results), label(first[0], results));
        said.extend(against(&name, &other, row, first));
    }
    said
}

/// Which runs are looked into.
pub(crate) fn looked_into(results: &[RunResult], watched: &[(usize, Watched)]) -> String {
    let Some((first, _)) = watched.first() else {
        return "No run was watched: there is no timeline.".to_owned();
    };
    let all = rows(results).len();
    let seed = results[*first].seed;
    match results.len() {
        1 => "The timeline and the sentences are of this run.".to_owned(),
        runs if runs == watched.len() => {
            "Each run has a timeline and sentences of its own.".to_owned()
        }
        _ if watched.len() == all => {
            format!("Timelines and sentences are of the runs with seed {seed}, the table of all.")
        }
        _ => format!(
            "Timelines and sentences are of {} of the {all} schedulers and numbers of CPUs as they were asked for, with seed {seed}: one page has no room for more.",
            match watched.len() {
                1 => "the first".to_owned(),
                some => format!("the first {some}"),
            }
        ),
    }
}

fn lead(results: &[RunResult], watched: &[(usize, Watched)], view: &View) -> Vec<String> {
    let mut lead = scores(results, view);
    lead.push(looked_into(results, watched));
    lead
}

fn overview(results: &[RunResult], view: &View) -> Section {
    let sheets = sheets(results, view);
    let endings = results.iter().filter_map(|result| ending(result, results));
    Section {
        heading: "Results".to_owned(),
        text: sheets
            .iter()
            .flat_map(|sheet| sheet.notes.clone())
            .chain(endings)
            .collect(),
        tables: sheets
            .into_iter()
            .map(|sheet| Table {
                caption: sheet.title,
                head: sheet.head,
                rows: sheet.rows,
            })
            .collect(),
        ..Section::default()
    }
}

/// How a run failed, with all that is known of it, or the note on a run that did not.
fn ending(result: &RunResult, results: &[RunResult]) -> Option<String> {
    let name = label(result, results);
    if result.is_done() {
        let note = result.message.as_ref()?;
        let note = note.trim_end_matches('.');
        return Some(format!("`{name}`, seed {}: {note}.", result.seed));
    }
    let mut told = format!("With seed {} {}.", result.seed, did_not_end(&name, result));
    for (what, text) in [
        ("Why", result.explanation.as_ref()),
        ("Violations before that", result.violations.as_ref()),
        (
            "Replay",
            Some(&result.replay).filter(|line| !line.is_empty()),
        ),
    ] {
        let text = text.map(|text| match what {
            "Replay" => format!("`{text}`"),
            _ => format!("{}.", text.trim_end_matches('.')),
        });
        told.extend(text.map(|text| format!(" {what}: {text}")));
    }
    Some(told)
}

/// Neighbours differ without colours, too.
fn mark(nr: usize) -> Mark {
    match nr % 2 {
        0 => Mark::Line,
        _ => Mark::Dashed,
    }
}

fn distributions(results: &[RunResult], watched: &[(usize, Watched)]) -> Section {
    let of_waits = (0..).zip(watched).map(|(nr, (place, one))| Series {
        name: label_of_watched(&results[*place], results),
        mark: mark(nr),
        points: one
            .waits
            .iter()
            .map(|&(ns, longer)| Point::from((ns as f64, longer)))
            .collect(),
    });
    let by_seed = (0..).zip(rows(results)).map(|(nr, row)| Series {
        name: label(row[0], results),
        mark: mark(nr),
        points: row
            .iter()
            .filter(|run| run.is_done())
            .filter_map(|run| {
                let score = run.measures.number("score")?;
                Some(Point::from((run.seed as f64, score)))
            })
            .collect(),
    });
    let by_seed: Vec<Series> = by_seed.collect();
    let unit = results
        .iter()
        .find_map(|run| match run.measures.get("score_unit") {
            Some(schedlab_report::Value::Text(unit)) => Some(unit.clone()),
            _ => None,
        });
    let mut charts = vec![Chart {
        title: "Waits for a CPU".to_owned(),
        x: Axis::log("wait, ns"),
        y: Axis::linear("longer waits, %"),
        series: of_waits.collect(),
    }];
    if by_seed.iter().any(|series| series.points.len() > 1) {
        charts.push(Chart {
            title: "Score by seed".to_owned(),
            x: Axis::linear("seed").of_counts(),
            y: Axis::linear(format!("score, {}", unit.unwrap_or_default())),
            series: by_seed,
        });
    }
    charts.retain(|chart| chart.series.iter().any(|series| !series.points.is_empty()));
    let text = match charts.is_empty() {
        true => Vec::new(),
        false => vec![
            "A point of a line of waits is the share of waits that are longer. The lower the line, the shorter the waits."
                .to_owned(),
        ],
    };
    Section {
        heading: "Distributions".to_owned(),
        text,
        charts,
        ..Section::default()
    }
}

fn over_time(results: &[RunResult], watched: &[(usize, Watched)]) -> Option<Section> {
    if watched.is_empty() {
        return None;
    }
    let named = watched.iter().map(|(place, one)| {
        let name = label_of_watched(&results[*place], results);
        (name, &one.time)
    });
    Some(Section {
        heading: "Run queues over time".to_owned(),
        text: vec![format!(
            "Tasks that can run and wait for a CPU, in the mean of each of {SLOTS} parts of a run."
        )],
        charts: vec![waiting_over_time(&named.collect::<Vec<_>>())],
        ..Section::default()
    })
}

/// The chart of the tasks that wait, of named runs.
pub fn waiting_over_time(runs: &[(String, &Decomposed)]) -> Chart {
    let longest = runs.iter().map(|(_, run)| run.makespan_ns).max();
    let unit = time_unit(longest.unwrap_or(0) as f64, "ns");
    let (size, unit) = unit.unwrap_or((1.0, "ns".to_owned()));
    let series = (0..).zip(runs).map(|(nr, (name, run))| Series {
        name: name.clone(),
        mark: mark(nr),
        points: (0..)
            .zip(&run.waiting)
            .map(|(slot, waiting)| {
                let middle = (f64::from(slot) + 0.5) / SLOTS as f64;
                Point::from((middle * run.makespan_ns as f64 / size, *waiting))
            })
            .collect(),
    });
    Chart {
        title: "Tasks that wait for a CPU, over time".to_owned(),
        x: Axis::linear(unit),
        y: Axis::linear("tasks"),
        series: series.collect(),
    }
}

/// The critical paths of all beside each other.
fn paths(results: &[RunResult], watched: &[(usize, Watched)]) -> Option<Section> {
    let with: Vec<_> = watched
        .iter()
        .filter_map(|(place, one)| Some((&results[*place], one.time.path.as_ref()?)))
        .collect();
    with.first()?;
    let head = std::iter::once(String::new());
    let head = head.chain(
        with.iter()
            .map(|(result, _)| label_of_watched(result, results)),
    );
    let paths: Vec<&Times> = with.iter().map(|(_, path)| *path).collect();
    let mut rows: Vec<Vec<String>> = parts_beside(&paths)
        .into_iter()
        .map(|(what, times)| {
            let cells = times.into_iter().map(time);
            std::iter::once(what.to_owned()).chain(cells).collect()
        })
        .collect();
    let sums = with.iter().map(|(_, path)| time(path.total_ns()));
    rows.push(std::iter::once("all".to_owned()).chain(sums).collect());
    Some(Section {
        heading: "Critical paths".to_owned(),
        text: vec![
            "The critical path is walked back from the end of the last task. Where a task slept until another one woke it, the path \
             goes on in that one; so the parts add up to the time of the run."
                .to_owned(),
        ],
        tables: vec![Table {
            caption: String::new(),
            head: head.collect(),
            rows,
        }],
        ..Section::default()
    })
}

/// Returns what is said of a run: by itself, and beside the first one.
pub(crate) fn said(
    (result, watched): (&RunResult, &Watched),
    (first, of_first): (&RunResult, &Watched),
    view: &View,
) -> Vec<String> {
    let mut said = sentences(&Shown {
        result,
        watched: Some(watched),
    });
    if std::ptr::eq(result, first) {
        return said;
    }
    // Of a run that failed a part is known: no difference from a whole run means anything.
    if !result.is_done() {
        said.push(format!("It is not compared with `{}`.", first.scheduler));
        return said;
    }
    if !first.is_done() {
        let why = did_not_end(&first.scheduler, first);
        said.push(format!(
            "`{}` is not compared with `{}`: {why}.",
            result.scheduler, first.scheduler
        ));
        return said;
    }
    let beside = match is_withheld(result, view) {
        true => moves(&of_first.time, &watched.time, &result.scheduler)
            .into_iter()
            .collect(),
        false => changes(&of_first.time, &watched.time, &result.scheduler),
    };
    if !beside.is_empty() {
        said.push(format!("Beside `{}`:", first.scheduler));
        said.extend(beside);
    }
    said
}

fn of_run(
    (result, watched): (&RunResult, &Watched),
    first: (&RunResult, &Watched),
    view: &View,
    room: usize,
) -> Section {
    let mut timeline = watched.timeline.clone();
    let below = timeline.fit(room).max(watched.merged_below_ns);
    let mut text = vec![said((result, watched), first, view).join(" ")];
    text.push(how_to_read(watched, below));
    let slowest = watched.slowest.iter().map(|one| {
        let times = &one.times;
        let longest = one.longest.as_ref();
        vec![
            one.name.clone(),
            time(times.running_ns),
            time(times.woken_ns),
            time(times.preempted_ns),
            time(times.tasks_ns),
            time(times.timer_ns),
            match times.other_ns {
                0 => String::new(),
                ns => time(ns),
            },
            one.migrations.to_string(),
            longest.map_or(String::new(), |one| time(one.ns)),
            longest.map_or(String::new(), |one| time(one.at_ns)),
            longest
                .and_then(|one| match one.cpu {
                    Some(_) => one.behind.clone(),
                    None => Some(NOT_ENDED.to_owned()),
                })
                .unwrap_or_default(),
        ]
    });
    let behind = watched.behind.iter().take(ROWS_MAX).map(|one| {
        let runner = match &one.runner {
            Runner::Task(runner) => runner,
            Runner::Nobody => "no other task",
            Runner::NotEnded => NOT_ENDED,
        };
        vec![
            one.waiter.clone(),
            runner.to_owned(),
            time(one.ns),
            percent(100.0 * one.ns as f64 / watched.waits_ns.max(1) as f64),
        ]
    });
    let span = watched.span_ns.max(1) as f64;
    let locks = watched.locks.iter().take(ROWS_MAX).map(|lock| {
        let attempts = lock.acquisitions + lock.failed;
        vec![
            lock.name.clone(),
            lock.acquisitions.to_string(),
            percent(100.0 * lock.contended as f64 / attempts.max(1) as f64),
            time(lock.waited_ns),
            time(lock.held_ns),
            percent(100.0 * lock.held_ns as f64 / span),
        ]
    });
    Section {
        heading: format!(
            "`{}` on {}, seed {}{}",
            result.scheduler,
            counted(result.cpus, "CPU"),
            result.seed,
            match &result.task_layout {
                Some(layout) if layout != "plain" => format!(", {layout}"),
                _ => String::new(),
            }
        ),
        text,
        timelines: vec![timeline],
        tables: vec![
            Table {
                caption: "Tasks that wait most for a CPU, and where their time goes".to_owned(),
                head: Table::head([
                    "task",
                    "on a CPU",
                    "waits after a wakeup",
                    "waits after loss or yield",
                    "sleeps for tasks",
                    "sleeps for timers, devices",
                    "sleeps, not ended",
                    "migrations",
                    "longest wait",
                    "at",
                    "behind",
                ]),
                rows: slowest.collect(),
            },
            Table {
                caption: "Who waited for a CPU behind whom".to_owned(),
                head: Table::head(["tasks", "behind", "time", "of all waits"]),
                rows: behind.collect(),
            },
            Table {
                caption: "Locks, the longest held first".to_owned(),
                head: Table::head([
                    "lock",
                    "taken",
                    "found taken",
                    "waits",
                    "held",
                    "of the time",
                ]),
                rows: locks.collect(),
            },
        ],
        ..Section::default()
    }
}

/// How a timeline is read, and what is merged in it.
fn how_to_read(watched: &Watched, below: u64) -> String {
    let cpus = watched.timeline.lanes.len() - watched.slowest.len();
    let shown = match cpus < watched.cpus {
        true => format!(
            " The timeline has the first {cpus} of {} CPUs.",
            watched.cpus
        ),
        false => String::new(),
    };
    let merged = match below {
        0 => " All stretches are there.".to_owned(),
        below => format!(
            " Stretches below {} are merged with those that follow within that time, so that the page has room: a merged one \
             is as long as they are together and has the name that takes most of it.",
            time(below)
        ),
    };
    format!(
        "A full box is a task that runs, a hatched one a task that waits for a CPU, a crossed one a CPU that spins, a line a \
         task that sleeps. A wait is put down to the tasks that ran meanwhile on the CPU that ended it.{shown}{merged}"
    )
}

#[cfg(test)]
mod tests {
    use schedlab_figures::{Kind, Lane, LaneMark, Stretch, Timeline};

    use super::*;
    use crate::path::OfName;

    fn results(all: &[(&str, u32, u64)]) -> Vec<RunResult> {
        let result = |(scheduler, cpus, seed): &(&str, u32, u64)| {
            let mut result = RunResult {
                asked: "chat".to_owned(),
                workload: "chat".to_owned(),
                scheduler: (*scheduler).to_owned(),
                cpus: *cpus,
                seed: *seed,
                exit: schedlab_report::Exit::Done,
                ..RunResult::default()
            };
            result
                .measures
                .score(100.0 + *seed as f64, "messages/s", true);
            result
        };
        all.iter().map(result).collect()
    }

    #[test]
    fn it_is_said_which_runs_are_looked_into() {
        let seen = |places: &[usize]| -> Vec<(usize, Watched)> {
            places
                .iter()
                .map(|place| (*place, Watched::default()))
                .collect()
        };
        let all = results(&[
            ("one", 8, 1),
            ("other", 8, 1),
            ("one", 8, 2),
            ("other", 8, 2),
        ]);
        for (runs, watched, told) in [
            (
                &all[..1],
                &[0][..],
                "The timeline and the sentences are of this run.",
            ),
            (
                &all[..2],
                &[0, 1],
                "Each run has a timeline and sentences of its own.",
            ),
            (
                &all,
                &[0, 1],
                "Timelines and sentences are of the runs with seed 1, the table of all.",
            ),
            (
                &all,
                &[0],
                "Timelines and sentences are of the first of the 2 schedulers and numbers of CPUs as they were asked for, with seed 1: one page has no room for more.",
            ),
            (&all, &[], "No run was watched: there is no timeline."),
        ] {
            assert_eq!(looked_into(runs, &seen(watched)), told);
        }
    }

    #[test]
    fn rows_are_named_by_what_tells_them_apart() {
        let all = results(&[("one", 4, 1), ("other", 4, 1), ("one", 8, 1)]);
        assert_eq!(label(&all[0], &all), "one on 4 CPUs");
        assert_eq!(label(&all[0], &all[..2]), "one");
        assert_eq!(title(&all), "chat under `one`, `other`");
        let mut layouts = results(&[("one", 4, 1), ("one", 4, 1)]);
        layouts[1].task_layout = Some("separate".to_owned());
        assert_eq!(label(&layouts[1], &layouts), "one, separate");
        let many = results(&[
            ("a", 1, 1),
            ("b", 1, 1),
            ("c", 1, 1),
            ("d", 1, 1),
            ("e", 1, 1),
        ]);
        assert_eq!(title(&many), "chat under 5 schedulers");
        // Each row is compared with the first scheduler on as many CPUs.
        let said = scores(&all, &View::of_width(80));
        assert_eq!(
            said,
            ["`other on 4 CPUs` beside `one on 4 CPUs`: its score is about the same, by one seed."]
        );
    }

    #[test]
    fn a_run_that_failed_is_named_with_its_end() {
        let mut all = results(&[("one", 8, 1), ("other", 8, 1)]);
        all[1].exit = schedlab_report::Exit::ErrorStall;
        let told = |all: &[RunResult]| overview(all, &View::of_width(80)).text.pop().unwrap();
        let end = schedlab_report::Exit::ErrorStall;
        assert_eq!(
            told(&all),
            format!("With seed 1 `other` did not come to its end ({end}: no message).")
        );
        // All that the table of text has is here, too.
        all[1].message = Some("cc1 for 30 s".to_owned());
        all[1].explanation = Some("it lost the task.".to_owned());
        all[1].violations = Some("1 in all: a race".to_owned());
        all[1].replay = "schedlab sim chat".to_owned();
        assert_eq!(
            told(&all),
            format!(
                "With seed 1 `other` did not come to its end ({end}: cc1 for 30 s). Why: it lost the task. Violations before \
                 that: 1 in all: a race. Replay: `schedlab sim chat`"
            )
        );
        all[1] = RunResult {
            message: Some("no client waited".to_owned()),
            ..all[0].clone()
        };
        assert_eq!(told(&all), "`one`, seed 1: no client waited.");
    }

    /// A whole run of 1 ms, and one under the other scheduler that takes half of it.
    fn two() -> (Vec<RunResult>, [Watched; 2]) {
        let run = |running_ns: u64, migrations: u64| {
            let path = Times {
                running_ns,
                ..Times::default()
            };
            let of = OfName {
                tasks: 1,
                times: path,
                migrations,
            };
            Watched {
                time: Decomposed {
                    makespan_ns: running_ns,
                    names: vec![("a".to_owned(), of)],
                    path: Some(path),
                    ..Decomposed::default()
                },
                ..Watched::default()
            }
        };
        let all = results(&[("one", 8, 1), ("other", 8, 1)]);
        (all, [run(1_000_000, 100), run(500_000, 20)])
    }

    #[test]
    fn a_run_that_failed_is_not_compared() {
        let view = View::of_width(80);
        let told = |all: &[RunResult], watched: &[Watched; 2]| {
            let both = said((&all[1], &watched[1]), (&all[0], &watched[0]), &view);
            both.join(" ")
        };
        let less = "on a CPU: 500 µs less";
        let (mut all, watched) = two();
        assert!(told(&all, &watched).contains(less));
        let stalled = schedlab_report::Exit::ErrorStall;
        all[1].exit = stalled;
        let own = told(&all, &watched);
        assert!(own.ends_with("It is not compared with `one`."), "{own}");
        assert!(!own.contains("less"), "{own}");
        let failed = format!("did not come to its end ({stalled}: no message)");
        assert_eq!(
            scores(&all, &view),
            [format!(
                "`other` is not compared with `one`: `other` {failed}."
            )]
        );
        let seen: Vec<(usize, Watched)> = (0..).zip(watched.clone()).collect();
        let paths = paths(&all, &seen).unwrap();
        assert_eq!(paths.tables[0].head, ["", "one", "other (failed)"]);
        // Nor is a whole run compared with one that failed.
        let (mut all, watched) = two();
        all[0].exit = stalled;
        let own = told(&all, &watched);
        let expected = format!("`other` is not compared with `one`: `one` {failed}.");
        assert!(own.ends_with(&expected), "{own}");
        assert!(!own.contains("less"), "{own}");
    }

    /// The same as in the table.
    #[test]
    fn times_of_emulated_cpus_are_not_compared() {
        let (mut all, watched) = two();
        for one in &mut all {
            one.machine = RunResult::EMULATED.to_owned();
        }
        let mut view = View::of_width(80);
        let told = |view: &View| {
            let both = said((&all[1], &watched[1]), (&all[0], &watched[0]), view);
            (scores(&all, view), both.join(" "))
        };
        let (lead, own) = told(&view);
        assert_eq!(lead, [WITHHELD]);
        assert!(!own.contains("less"), "{own}");
        // Counts are compared.
        assert!(
            own.ends_with("Under `other` tasks change their CPU 20 times instead of 100."),
            "{own}"
        );
        let notes = overview(&all, &view).text.join(" ");
        assert!(notes.contains("ratios of scores are withheld"), "{notes}");
        view.emulated_ratios = true;
        let (lead, own) = told(&view);
        assert!(lead[0].contains("its score is about the same"), "{lead:?}");
        assert!(own.contains("on a CPU: 500 µs less"), "{own}");
        assert!(scores(&all[..1], &View::of_width(80)).is_empty());
    }

    /// A run with 200,000 stretches.
    fn long() -> Watched {
        let stretches = (0..200_000).map(|n| Stretch {
            from_ns: n * 1_000_000 + n % 977,
            to_ns: n * 1_000_000 + 500_000 + n % 977,
            kind: 0,
            name: (n % 5_000) as u32,
            more: 0,
        });
        let lane = Lane {
            label: "CPU 0".to_owned(),
            stretches: stretches.collect(),
        };
        Watched {
            cpus: 70,
            timeline: Timeline {
                title: "CPUs".to_owned(),
                to_ns: 200_000_000_000,
                kinds: vec![Kind {
                    mark: LaneMark::Box,
                    words: "runs".to_owned(),
                }],
                names: (0..5_000)
                    .map(|task| format!("worker thread {task}"))
                    .collect(),
                lanes: vec![lane],
                ..Timeline::default()
            },
            ..Watched::default()
        }
    }

    #[test]
    fn a_page_keeps_its_size_and_says_what_is_merged() {
        let all = results(&[("one", 8, 1), ("other", 8, 1)]);
        let watched = vec![(0, long()), (1, long())];
        let page = page(&all, &watched, &View::of_width(80)).html();
        assert!(page.len() <= BYTES_MAX, "{}", page.len());
        assert!(page.len() > BYTES_MAX / 4, "{}", page.len());
        assert!(
            page.contains("are merged with those that follow"),
            "{page:.2000}"
        );
        assert!(page.contains("The timeline has the first 1 of 70 CPUs."));
        assert_eq!(page.matches("class=\"timeline\"").count(), 2);
        let short = how_to_read(&Watched::default(), 0);
        assert!(short.ends_with("All stretches are there."), "{short}");
    }
}
