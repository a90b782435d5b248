//! The comparison as a page for a browser.

use schedlab_figures::{Axis, Chart, Mark, Page, Point, Section, Series, Table};
use schedlab_report::RunResult;
use schedlab_report::export::table::sheets;
use schedlab_report::export::view::View;
use schedlab_trace::{counted, time_unit};

use crate::path::SLOTS;
use crate::watched::Watched;
use crate::words::{Shown, against, changes, parts, percent, sentences, time};

/// A page takes no more bytes.
pub const BYTES_MAX: usize = 5_000_000;
/// Room for all but the timelines.
const TEXT_BYTES: usize = 500_000;
/// Pairs of names in the table of who waited behind whom, and locks in theirs.
const ROWS_MAX: usize = 12;

/// Returns the page of a comparison. `watched` has the results that were watched, by their places.
pub fn page(results: &[RunResult], watched: &[(usize, Watched)], view: &View) -> Page {
    let room = (BYTES_MAX - TEXT_BYTES) / watched.len().max(1);
    let mut sections = vec![overview(results, view), distributions(results, watched)];
    sections.extend(over_time(results, watched));
    sections.extend(paths(results, watched));
    for (place, one) in watched {
        sections.push(of_run(
            &results[*place],
            one,
            &results[watched[0].0],
            &watched[0].1,
            room,
        ));
    }
    let is_there = |section: &Section| {
        !section.text.is_empty() || !section.tables.is_empty() || !section.charts.is_empty()
    };
    Page {
        title: title(results),
        lead: lead(results, watched),
        sections: sections.into_iter().filter(is_there).collect(),
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

/// How the scores differ from the first scheduler's, on each number of CPUs.
pub(crate) fn scores(results: &[RunResult]) -> Vec<String> {
    let rows = rows(results);
    let mut said = Vec::new();
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
            "Timelines and sentences are of the first {} of {all} rows, with seed {seed}; the table is of all runs.",
            watched.len()
        ),
    }
}

fn lead(results: &[RunResult], watched: &[(usize, Watched)]) -> Vec<String> {
    let mut lead = scores(results);
    lead.push(looked_into(results, watched));
    lead
}

fn overview(results: &[RunResult], view: &View) -> Section {
    let sheets = sheets(results, view);
    let failed = results.iter().filter(|result| !result.is_done());
    let failed = failed.map(|result| {
        let why = result.message.as_deref().unwrap_or("no message");
        format!(
            "`{}`, seed {}, did not come to its end ({}: {why}).",
            label(result, results),
            result.seed,
            result.exit
        )
    });
    Section {
        heading: "Results".to_owned(),
        text: sheets
            .iter()
            .flat_map(|sheet| sheet.notes.clone())
            .chain(failed)
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

/// Neighbours differ without colours, too.
fn mark(nr: usize) -> Mark {
    match nr % 2 {
        0 => Mark::Line,
        _ => Mark::Dashed,
    }
}

fn distributions(results: &[RunResult], watched: &[(usize, Watched)]) -> Section {
    let of_waits = (0..).zip(watched).map(|(nr, (place, one))| Series {
        name: label(&results[*place], results),
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
    let longest = watched.iter().map(|(_, one)| one.time.makespan_ns).max()?;
    let (size, unit) = time_unit(longest as f64, "ns").unwrap_or((1.0, "ns".to_owned()));
    let series = (0..).zip(watched).map(|(nr, (place, one))| Series {
        name: label(&results[*place], results),
        mark: mark(nr),
        points: (0..)
            .zip(&one.time.waiting)
            .map(|(slot, waiting)| {
                let middle = (f64::from(slot) + 0.5) / SLOTS as f64;
                Point::from((middle * one.time.makespan_ns as f64 / size, *waiting))
            })
            .collect(),
    });
    Some(Section {
        heading: "Run queues over time".to_owned(),
        text: vec![format!(
            "Tasks that can run and wait for a CPU, in the mean of each of {SLOTS} parts of a run."
        )],
        charts: vec![Chart {
            title: "Tasks that wait for a CPU".to_owned(),
            x: Axis::linear(unit),
            y: Axis::linear("tasks"),
            series: series.collect(),
        }],
        ..Section::default()
    })
}

/// The critical paths of all beside each other.
fn paths(results: &[RunResult], watched: &[(usize, Watched)]) -> Option<Section> {
    let with: Vec<_> = watched
        .iter()
        .filter_map(|(place, one)| Some((&results[*place], one.time.path.as_ref()?)))
        .collect();
    let (_, first) = with.first()?;
    let head = std::iter::once(String::new());
    let head = head.chain(with.iter().map(|(result, _)| label(result, results)));
    let mut rows: Vec<Vec<String>> = parts(first)
        .iter()
        .enumerate()
        .map(|(row, (what, _))| {
            let cells = with.iter().map(|(_, path)| time(parts(path)[row].1));
            std::iter::once((*what).to_owned()).chain(cells).collect()
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
) -> Vec<String> {
    let mut said = sentences(&Shown {
        result,
        watched: Some(watched),
    });
    if !std::ptr::eq(result, first) {
        let beside = changes(&of_first.time, &watched.time, &result.scheduler);
        if !beside.is_empty() {
            said.push(format!("Beside `{}`:", first.scheduler));
            said.extend(beside);
        }
    }
    said
}

fn of_run(
    result: &RunResult,
    watched: &Watched,
    first: &RunResult,
    of_first: &Watched,
    room: usize,
) -> Section {
    let mut timeline = watched.timeline.clone();
    let below = timeline.fit(room).max(watched.merged_below_ns);
    let mut text = vec![said((result, watched), (first, of_first)).join(" ")];
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
            one.migrations.to_string(),
            longest.map_or(String::new(), |one| time(one.ns)),
            longest.map_or(String::new(), |one| time(one.at_ns)),
            longest
                .and_then(|one| one.behind.clone())
                .unwrap_or_default(),
        ]
    });
    let all: u64 = watched.behind.iter().map(|one| one.ns).sum();
    let behind = watched.behind.iter().take(ROWS_MAX).map(|one| {
        let runner = one.runner.clone();
        vec![
            one.waiter.clone(),
            runner.unwrap_or_else(|| "no other task".to_owned()),
            time(one.ns),
            percent(100.0 * one.ns as f64 / all.max(1) as f64),
        ]
    });
    let span = watched.time.makespan_ns.max(1) as f64;
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
                    "waits behind others",
                    "sleeps for tasks",
                    "sleeps for timers, devices",
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
             has the name that takes most of it.",
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
                "Timelines and sentences are of the first 1 of 2 rows, with seed 1; the table is of all runs.",
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
        let said = scores(&all);
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
            format!("`other`, seed 1, did not come to its end ({end}: no message).")
        );
        all[1].message = Some("cc1 for 30 s".to_owned());
        assert!(told(&all).ends_with(": cc1 for 30 s)."));
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
