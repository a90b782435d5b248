//! Experiments as a page: charts with the spread over seeds, and every figure in a table.

use std::collections::BTreeSet;

use schedlab_figures::{Axis, Chart, Mark, Page, Point, Section, Series, Table};
use schedlab_report::RunResult;
use schedlab_report::export::number::{digits, grouped};
use schedlab_trace::counted;

use crate::evaluate::{Cell, Panel, Spectrum, Standing, Timeline};
use crate::over::Over;
use crate::{Experiment, Finding};

/// An experiment with what its runs said.
pub struct Told {
    pub experiment: Experiment,
    pub findings: Vec<Finding>,
    pub panels: Vec<Panel>,
}

/// The page of these experiments, what their runs said, and the runs that failed.
pub fn page(experiments: &[Told], lead: Vec<String>, failed: &[&RunResult]) -> Page {
    let title = match experiments {
        [only] => only.experiment.title.clone(),
        _ => "Published and simulated".to_owned(),
    };
    Page {
        title,
        lead: std::iter::once(legend(experiments)).chain(lead).collect(),
        sections: experiments
            .iter()
            .map(section)
            .chain(failures(failed))
            .collect(),
    }
}

/// Returns the meaning of the marks in the charts: those that are there.
fn legend(experiments: &[Told]) -> String {
    let panels = || experiments.iter().flat_map(|told| &told.panels);
    let cells = || {
        panels()
            .flat_map(|panel| &panel.rows)
            .flat_map(|row| &row.cells)
    };
    let is_repeated = |cell: &Cell| cell.simulated.is_some_and(|one| one.seeds > 1);
    let mut text = match cells().any(is_repeated) {
        true => {
            "Medians of simulated runs; strokes reach from the lowest to the highest of all seeds."
        }
        false => "Simulated runs, each with one seed.",
    }
    .to_owned();
    if cells().any(|cell| cell.published.is_some()) {
        text += " Hollow points were published. Whether a published value was used to calibrate the machine or is \
                 predicted stands in the tables.";
    }
    text
}

/// A row for each run that failed.
fn failures(failed: &[&RunResult]) -> Option<Section> {
    let row = |run: &&RunResult| {
        vec![
            run.what(),
            run.exit.to_string(),
            run.message.clone().unwrap_or_default(),
            run.replay.clone(),
        ]
    };
    (!failed.is_empty()).then(|| Section {
        heading: "Runs that failed".to_owned(),
        text: vec![
            "Values marked “!” are of the other runs; there is none where all failed.".to_owned(),
        ],
        tables: vec![Table {
            caption: counted(failed.len() as u64, "run"),
            head: ["run", "exit", "message", "replay"]
                .map(str::to_owned)
                .into(),
            rows: failed.iter().map(row).collect(),
        }],
        ..Section::default()
    })
}

fn section(told: &Told) -> Section {
    let Told {
        experiment,
        findings,
        panels,
    } = told;
    // First the answer, then what was run for it.
    let mut text: Vec<String> = findings.iter().map(Finding::told).collect();
    let cpus = cpus_in_words(&cpus_of(panels));
    let about = experiment.about.iter();
    text.extend(about.map(|paragraph| paragraph.replace(CPUS, &cpus)));
    text.push(format!("Source: {}.", experiment.source));
    let mut cells = panels
        .iter()
        .flat_map(|panel| &panel.rows)
        .flat_map(|row| &row.cells);
    if cells.any(Cell::is_marked) {
        text.push(
            "Values marked “!” are without runs that failed, and ratios to runs that failed and to 0."
                .to_owned(),
        );
    }
    text.extend(data_sheet_only(panels));
    let mut charts = Vec::new();
    for panel in panels {
        if panel.columns.len() > 1 {
            charts.push(chart(panel));
            charts.extend(emulated(panel));
        }
        charts.extend(
            panel
                .histograms
                .chunk_by(same_place)
                .map(|group| histogram(panel, group)),
        );
        charts.extend(panel.timelines.iter().map(|one| timeline(panel, one)));
    }
    Section {
        heading: experiment.title.clone(),
        text,
        charts,
        tables: panels.iter().map(table).collect(),
        ..Section::default()
    }
}

/// Returns the caveat about the machines that no published row has calibrated.
fn data_sheet_only(panels: &[Panel]) -> Option<String> {
    let sheets = panels.iter().filter(|panel| panel.data_sheet_only);
    let machines: BTreeSet<&str> = sheets.map(|panel| &*panel.machine).collect();
    let machines: Vec<&str> = machines.into_iter().collect();
    (!machines.is_empty()).then(|| {
        format!(
            "Data sheet only: no published row has calibrated {}; absolute figures there are worth less than their relations.",
            machines.join(" or ")
        )
    })
}

/// Stands in an experiment's text for the numbers of CPUs that were run.
const CPUS: &str = "{cpus}";

/// The numbers of CPUs of what was run.
fn cpus_of(panels: &[Panel]) -> Vec<u64> {
    let mut found = BTreeSet::new();
    for panel in panels {
        match (&panel.over, panel.cpus) {
            (Over::Cpus, _) => found.extend(panel.columns.iter().map(|&column| column as u64)),
            (Over::Option(_), cpus) => found.extend(cpus.map(u64::from)),
        }
    }
    found.into_iter().collect()
}

/// Numbers of CPUs in words: `8 CPUs`, `2 and 8 CPUs`, `1 to 8 CPUs`.
pub(crate) fn cpus_in_words(cpus: &[u64]) -> String {
    let Some((last, others)) = cpus.split_last() else {
        return "the machine's CPUs".to_owned();
    };
    let others: Vec<String> = others.iter().map(u64::to_string).collect();
    match others.len() {
        0 => counted(*last, "CPU"),
        1 | 2 => format!("{} and {last} CPUs", others.join(", ")),
        _ => format!("{} to {last} CPUs", others[0]),
    }
}

/// A heading without a unit that the axis shows as another one.
fn quantity(heading: &str) -> &str {
    let unit = |unit| heading.strip_suffix(unit);
    unit(", ns").or_else(|| unit(", bytes")).unwrap_or(heading)
}

fn chart(panel: &Panel) -> Chart {
    let mut series = Vec::new();
    for row in &panel.rows {
        let at = || panel.columns.iter().zip(&row.cells);
        let simulated = at().filter_map(|(&x, cell)| {
            let summary = cell.simulated?;
            Some(Point {
                x,
                y: summary.median,
                spread: (summary.seeds > 1).then_some((summary.low, summary.high)),
            })
        });
        series.push(Series {
            name: row.scheduler.clone(),
            mark: Mark::Line,
            points: simulated.collect(),
        });
    }
    for row in &panel.rows {
        let at = || panel.columns.iter().zip(&row.cells);
        let published: Vec<Point> = at()
            .filter_map(|(&x, cell)| Some(Point::from((x, cell.published?))))
            .collect();
        if !published.is_empty() {
            series.push(Series {
                name: format!("{}, published", row.scheduler),
                mark: Mark::Hollow,
                points: published,
            });
        }
    }
    Chart {
        title: format!("{} — {}", quantity(&panel.heading), panel.title()),
        x: axis(panel),
        y: Axis::linear(&panel.heading),
        series,
    }
}

fn axis(panel: &Panel) -> Axis {
    let axis = match panel.log {
        true => Axis::log(panel.axis()),
        false => Axis::linear(panel.axis()),
    };
    match panel.columns.iter().all(|column| column.fract() == 0.0) {
        true => axis.of_counts(),
        false => axis,
    }
}

/// The real runs in a chart of their own: emulated CPUs are of another order of magnitude.
fn emulated(panel: &Panel) -> Option<Chart> {
    let series: Vec<Series> = panel
        .rows
        .iter()
        .map(|row| Series {
            name: row.scheduler.clone(),
            mark: Mark::Line,
            points: panel
                .columns
                .iter()
                .zip(&row.cells)
                .filter_map(|(&x, cell)| {
                    let real = cell.real?;
                    Some(Point {
                        x,
                        y: real.median,
                        spread: (real.seeds > 1).then_some((real.low, real.high)),
                    })
                })
                .collect(),
        })
        .collect();
    let several = series.iter().any(|series| series.points.len() > 1);
    several.then(|| Chart {
        title: format!("emulated: {} — {}", quantity(&panel.heading), panel.title()),
        series,
        ..chart(panel)
    })
}

fn same_place(a: &Spectrum, b: &Spectrum) -> bool {
    a.measure == b.measure && a.column == b.column
}

/// The share of each value, so that schedulers with more or fewer calls can be compared.
fn histogram(panel: &Panel, group: &[Spectrum]) -> Chart {
    let first = &group[0];
    let lows = group.iter().filter_map(|one| one.buckets.first());
    let first_low = lows.map(|bucket| bucket.0).min().unwrap_or(0);
    // Where buckets are of different width, they are compared by what each of their values has.
    let mut widths = group.iter().flat_map(|one| &one.buckets).map(width);
    let common = widths
        .next()
        .filter(|&width| widths.all(|other| other == width));
    let series = group.iter().map(|spectrum| {
        let all: u64 = spectrum.buckets.iter().map(|bucket| bucket.2).sum();
        let mut points: Vec<Point> = Vec::new();
        let mut after = first_low;
        for &(low, high, count) in &spectrum.buckets {
            // A missing value was not seen: the line goes down to 0 between.
            if low > after {
                points.push(Point::from((after as f64, 0.0)));
                points.push(Point::from((low as f64 - 1.0, 0.0)));
            }
            let parts = if common.is_some() { 1 } else { high - low + 1 };
            let share = 100.0 * count as f64 / all.max(1) as f64 / parts as f64;
            points.push(Point::from(((low + high) as f64 / 2.0, share)));
            after = high + 1;
        }
        Series {
            name: spectrum.scheduler.clone(),
            mark: Mark::Line,
            points,
        }
    });
    Chart {
        title: format!("{}, {}", panel.title(), panel.column(first.column)),
        x: Axis::linear(&first.measure),
        y: Axis::linear(match common {
            Some(1) | None => "share of each value, %".to_owned(),
            Some(width) => format!("share of each {width}, %"),
        }),
        series: series.collect(),
    }
}

/// How many values a bucket counts.
fn width(&(low, high, _): &(u64, u64, u64)) -> u64 {
    high - low + 1
}

/// Lines over time of one run.
fn timeline(panel: &Panel, timeline: &Timeline) -> Chart {
    let series = timeline.lines.iter().map(|(name, points)| Series {
        name: name.clone(),
        mark: Mark::Line,
        points: points
            .iter()
            .map(|&(ns, value)| Point::from((ns as f64 / 1e9, value)))
            .collect(),
    });
    Chart {
        title: format!(
            "{} — {}, {}",
            timeline.scheduler,
            panel.title(),
            panel.column(timeline.column)
        ),
        x: Axis::linear("time, s"),
        y: Axis::linear(&timeline.measure),
        series: series.collect(),
    }
}

fn table(panel: &Panel) -> Table {
    let cells = || panel.rows.iter().flat_map(|row| &row.cells);
    let emulated = cells().any(|cell| cell.real.is_some());
    let over = panel.axis();
    let mut head = vec![
        "scheduler",
        &over,
        "published",
        "simulated",
        "lowest",
        "highest",
        "seeds",
        "ratio",
        "published value",
    ];
    if emulated {
        head.insert(7, "emulated");
    }
    let mut rows = Vec::new();
    for row in &panel.rows {
        for (&column, cell) in panel.columns.iter().zip(&row.cells) {
            let mut words = table_row(&row.scheduler, column, cell);
            if emulated {
                let median = cell.real.map(|real| grouped(real.median));
                words.insert(7, median.unwrap_or_default());
            }
            rows.push(words);
        }
    }
    Table {
        caption: format!("{}: {}", panel.title(), panel.heading),
        head: head.into_iter().map(str::to_owned).collect(),
        rows,
    }
}

fn table_row(scheduler: &str, column: f64, cell: &Cell) -> Vec<String> {
    let number = |value: Option<f64>| value.map(grouped).unwrap_or_default();
    let standing = match cell.standing {
        Some(Standing::Calibration) => "used for calibration",
        Some(Standing::Predicted) => "predicted",
        None => "",
    };
    let simulated = cell.simulated;
    vec![
        scheduler.to_owned(),
        grouped(column),
        number(cell.published),
        cell.told().unwrap_or_default(),
        number(simulated.map(|s| s.low)),
        number(simulated.map(|s| s.high)),
        simulated.map(|s| s.seeds.to_string()).unwrap_or_default(),
        cell.ratio().map(digits).unwrap_or_default(),
        standing.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::{Row, Summary};

    fn panel() -> Panel {
        Panel {
            workload: "pipe".into(),
            machine: "laptop".into(),
            heading: "score".into(),
            ..Panel::default()
        }
    }

    /// Each experiment names the CPUs of the panels, whatever its study had.
    #[test]
    fn texts_name_the_cpus_that_ran() {
        let mut of_cpus = panel();
        of_cpus.columns = vec![2.0, 8.0];
        let mut of_option = panel();
        of_option.over = Over::Option("rooms".into());
        of_option.cpus = Some(4);
        let mut named = 0;
        for name in crate::builtin_names() {
            let experiment = crate::builtin(name)
                .expect("it is there")
                .expect("it is right");
            let text = |panels: Vec<Panel>| {
                let told = Told {
                    experiment: experiment.clone(),
                    findings: Vec::new(),
                    panels,
                };
                section(&told).text.join("\n")
            };
            let one = text(vec![of_option.clone()]);
            let both = text(vec![of_cpus.clone(), of_option.clone()]);
            assert!(!both.contains('{'), "{name}: {both}");
            if one != both {
                named += 1;
                assert!(one.contains("4 CPUs"), "{name}: {one}");
                assert!(both.contains("2, 4 and 8 CPUs"), "{name}: {both}");
            }
        }
        assert!(named >= 8, "{named}");
    }

    #[test]
    fn the_legend_has_the_marks_that_are_there() {
        let of = |seeds: Option<usize>, published| {
            let cell = Cell {
                simulated: seeds.map(|seeds| Summary {
                    median: 1.0,
                    low: 1.0,
                    high: 1.0,
                    seeds,
                }),
                published,
                ..Cell::default()
            };
            let panel = Panel {
                rows: vec![Row {
                    scheduler: "mq".into(),
                    cells: vec![cell],
                }],
                ..panel()
            };
            legend(&[Told {
                experiment: crate::builtin("chat-locks").unwrap().unwrap(),
                findings: Vec::new(),
                panels: vec![panel],
            }])
        };
        let one = "Simulated runs, each with one seed.";
        let several =
            "Medians of simulated runs; strokes reach from the lowest to the highest of all seeds.";
        let hollow = "Hollow points were published. Whether a published value was used to calibrate the machine or is \
                      predicted stands in the tables.";
        assert_eq!(of(None, None), one);
        assert_eq!(of(Some(1), None), one);
        assert_eq!(of(Some(2), None), several);
        assert_eq!(of(Some(1), Some(2.0)), format!("{one} {hollow}"));
        assert_eq!(of(Some(2), Some(2.0)), format!("{several} {hollow}"));
    }

    #[test]
    fn each_machine_without_a_calibration_is_named_once() {
        let of = |machine: &str, data_sheet_only| Panel {
            machine: machine.to_owned(),
            data_sheet_only,
            ..panel()
        };
        let told = |machines: &str| {
            format!(
                "Data sheet only: no published row has calibrated {machines}; absolute figures there are worth less than their relations."
            )
        };
        assert_eq!(data_sheet_only(&[of("a", false)]), None);
        let two = [of("b", true), of("c", false), of("b", true)];
        assert_eq!(data_sheet_only(&two), Some(told("b")));
        let all = [of("b", true), of("a", true), of("c", false)];
        assert_eq!(data_sheet_only(&all), Some(told("a or b")));
    }

    #[test]
    fn series_are_called_by_their_columns_in_words() {
        let mut panel = panel();
        let title = |panel: &Panel, column: f64| {
            let one = Timeline {
                measure: "runqueue.len".into(),
                scheduler: "mq".into(),
                column,
                lines: Vec::new(),
            };
            timeline(panel, &one).title
        };
        assert_eq!(title(&panel, 1.0), "mq — pipe on laptop, 1 CPU");
        assert_eq!(title(&panel, 2.0), "mq — pipe on laptop, 2 CPUs");
        panel.over = Over::Option("computation".into());
        panel.unit = Some("ns");
        panel.cpus = Some(2);
        assert_eq!(
            title(&panel, 1_500.0),
            "mq — pipe on laptop, 2 CPUs, computation=1500 ns"
        );
    }

    #[test]
    fn failed_runs_are_on_the_page() {
        let failed = RunResult {
            asked: "chat:rooms=2".into(),
            machine: "laptop".into(),
            scheduler: "mq".into(),
            cpus: 1,
            seed: 3,
            exit: schedlab_report::Exit::ErrorStall,
            message: Some("runnable task stall".into()),
            replay: "schedlab sim chat".into(),
            ..RunResult::default()
        };
        let html = page(&[], Vec::new(), &[&failed]).html();
        let run = "chat:rooms=2 on laptop: mq on 1 CPU, seed 3";
        for told in [
            run,
            "error_stall",
            "runnable task stall",
            "schedlab sim chat",
        ] {
            assert!(html.contains(told), "{told}: {html}");
        }
        let html = page(&[], Vec::new(), &[]).html();
        assert!(!html.contains("failed"), "{html}");
    }

    #[test]
    fn what_a_mark_without_a_failed_run_means_is_on_the_page() {
        let told = |failed, undefined| {
            let cell = Cell {
                failed,
                undefined,
                ..Cell::default()
            };
            let panel = Panel {
                workload: "pipe".into(),
                machine: "laptop".into(),
                heading: "scaling".into(),
                columns: vec![1.0],
                rows: vec![Row {
                    scheduler: "mq".into(),
                    cells: vec![cell],
                }],
                ..Panel::default()
            };
            let experiment = crate::builtin("chat-locks").unwrap().unwrap();
            let told = Told {
                experiment,
                findings: Vec::new(),
                panels: vec![panel],
            };
            let html = page(&[told], Vec::new(), &[]).html();
            (
                html.contains(">!<"),
                html.contains("ratios to runs that failed"),
            )
        };
        assert_eq!(told(false, true), (true, true));
        assert_eq!(told(true, false), (true, true));
        assert_eq!(told(false, false), (false, false));
    }

    #[test]
    fn numbers_of_cpus_are_those_that_ran() {
        assert_eq!(cpus_in_words(&[]), "the machine's CPUs");
        assert_eq!(cpus_in_words(&[1]), "1 CPU");
        assert_eq!(cpus_in_words(&[8]), "8 CPUs");
        assert_eq!(cpus_in_words(&[2, 8]), "2 and 8 CPUs");
        assert_eq!(cpus_in_words(&[2, 4, 8]), "2, 4 and 8 CPUs");
        assert_eq!(cpus_in_words(&[1, 2, 4, 8]), "1 to 8 CPUs");
    }

    /// The axis shows µs where the values are in ns: its label says which, and the title does not.
    #[test]
    fn titles_have_no_unit_of_time() {
        assert_eq!(quantity("time of a round, ns"), "time of a round");
        assert_eq!(quantity("size, bytes"), "size");
        assert_eq!(quantity("contention, %"), "contention, %");
        assert_eq!(quantity("messages"), "messages");
    }
}
