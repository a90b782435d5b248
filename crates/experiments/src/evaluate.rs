//! What the runs of an experiment say, beside what was published.

use schedlab_machine::{Calibration, Machine};
use schedlab_report::export::number::grouped;
use schedlab_report::histogram::Buckets;
use schedlab_report::published::{Figure, Metric};
use schedlab_report::{Points, RunResult, Value, stats};
use schedlab_trace::counted;
use schedlab_workload::Workload;

use crate::file::{Measured, PublishedAs};
use crate::{Experiment, Planned};

/// One measure of one workload on one machine: a row per scheduler, a column per number of CPUs or value of
/// an option.
#[derive(Clone, PartialEq, Debug)]
pub struct Panel {
    /// What was run, without what differs between its columns, …
    pub workload: String,
    /// … where …
    pub machine: String,
    /// … and on how many CPUs, unless these are its columns.
    pub cpus: Option<u32>,
    /// The measure, for people, with the unit.
    pub heading: String,
    /// What the columns are: `CPUs` or an option.
    pub over: String,
    /// Their unit, of an option that is a time or a number of bytes.
    pub unit: Option<&'static str>,
    /// Whether they are best drawn in equal factors.
    pub log: bool,
    /// Whether no published row has calibrated the machine.
    pub data_sheet_only: bool,
    /// Values of `over`, in ascending order.
    pub columns: Vec<f64>,
    pub rows: Vec<Row>,
    /// Histograms of the runs, by the row's scheduler and column; only with the first measure of a workload.
    pub histograms: Vec<Spectrum>,
    /// Measures over time of the first seed; as the histograms only once.
    pub timelines: Vec<Timeline>,
}

/// A scheduler's values.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// With the layout of the task structures where the experiment names one.
    pub scheduler: String,
    /// One for each of the panel's columns.
    pub cells: Vec<Cell>,
}

/// One value.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cell {
    pub simulated: Option<Summary>,
    /// The real program in a real kernel, in a virtual machine.
    pub real: Option<Summary>,
    pub published: Option<f64>,
    /// What the published value was used for, where there is one.
    pub standing: Option<Standing>,
    /// A simulated run of it failed: the value is of the others.
    pub failed: bool,
}

/// What a published value was used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The machine profile was fitted to it.
    Calibration,
    /// Nothing was fitted to it: a prediction.
    Predicted,
}

/// A value over seeds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    /// How many seeds.
    pub seeds: usize,
}

/// A histogram of all seeds together.
#[derive(Clone, PartialEq, Debug)]
pub struct Spectrum {
    /// The measure.
    pub measure: String,
    pub scheduler: String,
    /// Value of the panel's `over`.
    pub column: f64,
    pub buckets: Buckets,
}

/// Measures over time of one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Timeline {
    /// What they have in common.
    pub measure: String,
    pub scheduler: String,
    /// Value of the panel's `over`.
    pub column: f64,
    /// The rest of each name (`cpu0`) and its points.
    pub lines: Vec<(String, Points)>,
}

impl Panel {
    /// What was run where.
    pub fn title(&self) -> String {
        let Panel {
            workload, machine, ..
        } = self;
        match self.cpus {
            Some(cpus) => format!("{workload} on {machine}, {}", counted(cpus, "CPU")),
            None => format!("{workload} on {machine}"),
        }
    }

    /// What the columns are, with the unit.
    pub fn axis(&self) -> String {
        match self.unit {
            Some(unit) => format!("{}, {unit}", self.over),
            None => self.over.clone(),
        }
    }

    /// A column, in words.
    pub fn column(&self, value: f64) -> String {
        if self.over == CPUS {
            return counted(value as u64, "CPU");
        }
        let unit = self.unit.map_or(String::new(), |unit| format!(" {unit}"));
        format!("{}={value}{unit}", self.over)
    }
}

/// Columns that are numbers of CPUs.
const CPUS: &str = "CPUs";

impl Cell {
    /// The simulated value, with `!` where runs failed, as in tables of runs.
    pub fn told(&self) -> Option<String> {
        let value = self.simulated.map(|one| grouped(one.median));
        match self.failed {
            true => Some(value.unwrap_or_default() + "!"),
            false => value,
        }
    }

    /// Simulated over published.
    pub fn ratio(&self) -> Option<f64> {
        let (published, simulated) = self.published.zip(self.simulated)?;
        (published != 0.0).then(|| simulated.median / published)
    }
}

impl Summary {
    fn of(values: &[f64]) -> Option<Summary> {
        let fold = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of);
        Some(Summary {
            median: stats::median(values)?,
            low: fold(f64::min)?,
            high: fold(f64::max)?,
            seeds: values.len(),
        })
    }
}

/// One run with what it was planned for.
struct Run<'a> {
    planned: &'a Planned,
    result: &'a RunResult,
    /// The same in a real kernel, where that was run.
    real: Option<&'a RunResult>,
}

impl Run<'_> {
    /// What it is called in its row.
    fn label(&self) -> String {
        match self.planned.spec.task_layout {
            Some(layout) => format!("{}, {layout}", self.result.scheduler),
            None => self.result.scheduler.clone(),
        }
    }
}

/// What was run for an experiment, in the order of its plan.
#[derive(Clone, Copy, Debug)]
pub struct Results<'a> {
    /// What was planned.
    pub planned: &'a [Planned],
    /// Its simulations.
    pub simulated: &'a [RunResult],
    /// The same in a real kernel, as far as they were run; empty where none was.
    pub real: &'a [Option<RunResult>],
}

/// Everything the experiment tells: a panel per measure, machine and workload. Of runs that failed only that they did.
pub fn evaluate(experiment: &Experiment, results: Results<'_>, figures: &[Figure]) -> Vec<Panel> {
    let Results {
        planned,
        simulated,
        real,
    } = results;
    assert_eq!(planned.len(), simulated.len(), "a result for each run");
    let runs: Vec<Run<'_>> = planned
        .iter()
        .zip(simulated)
        .enumerate()
        .map(|(index, (planned, result))| Run {
            planned,
            result,
            real: real.get(index).and_then(Option::as_ref),
        })
        .collect();
    let mut panels = Vec::new();
    let mut drawn: Vec<Place> = Vec::new();
    for measured in &experiment.measures {
        for (place, group) in groups(&runs, measured) {
            let mut panel = panel(experiment, measured, &place, &group, &runs, figures);
            if panel.rows.iter().all(Row::is_empty) {
                continue;
            }
            if !drawn.contains(&place) {
                panel.histograms = spectra(experiment, &group, &measured.over());
                // Those of a column together, in the order of the rows, whichever runs failed.
                for columns in panel.histograms.chunk_by_mut(|a, b| a.measure == b.measure) {
                    let row = |one: &Spectrum| {
                        panel
                            .rows
                            .iter()
                            .position(|row| row.scheduler == one.scheduler)
                    };
                    columns.sort_by(|a, b| a.column.total_cmp(&b.column).then(row(a).cmp(&row(b))));
                }
                panel.timelines = timelines(experiment, &group, &measured.over());
                drawn.push(place);
            }
            panels.push(panel);
        }
    }
    // Everything about one workload together.
    let titles: Vec<String> = panels.iter().map(Panel::title).collect();
    panels.sort_by_key(|panel| titles.iter().position(|title| *title == panel.title()));
    panels
}

impl Row {
    fn is_empty(&self) -> bool {
        let has = |cell: &Cell| {
            cell.simulated.is_some() || cell.real.is_some() || cell.published.is_some()
        };
        !self.cells.iter().any(has)
    }
}

impl Measured {
    fn over(&self) -> String {
        self.over.clone().unwrap_or_else(|| "cpus".to_owned())
    }

    fn relative_to(&self) -> Option<(&str, &str)> {
        let speedup = self.metric().is_some_and(Metric::is_speedup);
        match &self.relative_to {
            Some(base) => base.split_once('='),
            None => speedup.then_some(("cpus", "2")),
        }
    }

    /// An option and those that change along with it.
    fn along<'a>(&'a self, option: &'a str) -> Vec<&'a str> {
        let others = self.ignore.iter().map(String::as_str);
        others.chain([option]).collect()
    }

    /// The measure's name in results, and what it is divided by.
    fn origin(&self) -> (&str, f64) {
        let (name, scale) = match self.metric() {
            Some(metric) => metric.measure(),
            None => (self.measure.as_str(), 1.0),
        };
        (name, self.unit.unwrap_or(scale))
    }
}

/// Workload, machine and, where these are not the columns, number of CPUs of a panel.
type Place = (String, String, Option<u32>);

/// Runs that are told together, which differ in scheduler, seed and `over`, and in what changes along with that.
fn groups<'a, 'b>(runs: &'b [Run<'a>], measured: &Measured) -> Vec<(Place, Vec<&'b Run<'a>>)> {
    let over = measured.over();
    let mut groups: Vec<(Place, Vec<&Run<'_>>)> = Vec::new();
    for run in runs {
        let place = (
            without(&run.result.asked, &measured.along(&over)),
            run.result.machine.clone(),
            (over != "cpus").then_some(run.result.cpus),
        );
        match groups.iter_mut().find(|(known, _)| *known == place) {
            Some((_, group)) => group.push(run),
            None => groups.push((place, vec![run])),
        }
    }
    groups
}

/// A workload as it was asked for, without some of its options.
fn without(asked: &str, but: &[&str]) -> String {
    let Some((name, options)) = asked.split_once(':') else {
        return asked.to_owned();
    };
    let others: Vec<&str> = options
        .split(',')
        .filter(|part| {
            part.split('=')
                .next()
                .is_none_or(|name| !but.contains(&name))
        })
        .collect();
    if others.is_empty() {
        name.to_owned()
    } else {
        format!("{name}:{}", others.join(","))
    }
}

/// Where a run stands along an axis.
fn place(result: &RunResult, over: &str) -> Option<f64> {
    if over == "cpus" {
        return Some(f64::from(result.cpus));
    }
    let (_, value) = result.params.iter().find(|(name, _)| name == over)?;
    number(value)
}

/// The unit of what [`number`] makes of a value.
fn unit(value: &str) -> Option<&'static str> {
    match value.trim_start_matches(|c: char| !c.is_ascii_alphabetic()) {
        "ns" | "us" | "ms" | "s" => Some("ns"),
        "K" | "M" => Some("bytes"),
        _ => None,
    }
}

/// The value of an option that is a number, a time (in ns) or a number of bytes, or below 0, as a nice level.
pub(crate) fn number(value: &str) -> Option<f64> {
    let size = value.strip_prefix('-').unwrap_or(value);
    let unit = size.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let factor = match unit {
        "" | "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "K" => 1024.0,
        "M" => 1_048_576.0,
        _ => return None,
    };
    let digits: f64 = value.strip_suffix(unit)?.parse().ok()?;
    Some(digits * factor)
}

fn panel(
    experiment: &Experiment,
    measured: &Measured,
    place_of: &Place,
    group: &[&Run<'_>],
    all: &[Run<'_>],
    figures: &[Figure],
) -> Panel {
    let over = measured.over();
    let mut columns: Vec<f64> = group
        .iter()
        .filter_map(|run| place(run.result, &over))
        .collect();
    columns.sort_by(f64::total_cmp);
    columns.dedup();
    let mut schedulers: Vec<String> = Vec::new();
    for run in group {
        if !schedulers.contains(&run.label()) {
            schedulers.push(run.label());
        }
    }
    let (workload, machine_name, cpus) = place_of.clone();
    let machine = Machine::find(&machine_name).ok();
    let rows = schedulers.iter().map(|scheduler| {
        let cells = columns.iter().map(|&column| {
            let mine: Vec<&&Run<'_>> = group
                .iter()
                .filter(|run| run.label() == *scheduler && place(run.result, &over) == Some(column))
                .collect();
            let summary = |side: Side| {
                let values = mine
                    .iter()
                    .filter_map(|run| value(measured, run, all, side));
                Summary::of(&values.collect::<Vec<f64>>())
            };
            let published = mine
                .first()
                .and_then(|run| published(experiment, measured, run, figures));
            Cell {
                simulated: summary(|run| Some(run.result)),
                real: summary(|run| run.real),
                published: published.map(|figure| figure.value),
                standing: published.zip(mine.first()).map(|(figure, run)| {
                    let rows = machine.as_ref().map_or(&[][..], |m| &m.calibrated_on);
                    standing(figure, run.result, rows)
                }),
                failed: mine.iter().any(|run| !run.result.is_done()),
            }
        });
        Row {
            scheduler: scheduler.clone(),
            cells: cells.collect(),
        }
    });
    Panel {
        workload,
        machine: machine_name,
        cpus,
        heading: heading(measured, group),
        log: measured.log,
        data_sheet_only: !machine.as_ref().is_some_and(Machine::is_calibrated),
        rows: rows.collect(),
        columns,
        unit: group.iter().find_map(|run| {
            let (_, value) = run.result.params.iter().find(|(name, _)| *name == over)?;
            unit(value)
        }),
        over: if over == "cpus" {
            CPUS.to_owned()
        } else {
            over
        },
        histograms: Vec::new(),
        timelines: Vec::new(),
    }
}

/// A score has the unit that the workload gives it.
fn heading(measured: &Measured, group: &[&Run<'_>]) -> String {
    let units = group
        .iter()
        .map(|run| run.result.measures.get("score_unit"));
    let unit = units.flatten().next();
    match (measured.measure.as_str(), &measured.heading, unit) {
        ("score", None, Some(Value::Text(unit))) => format!("score, {unit}"),
        _ => measured.heading(),
    }
}

/// Which of a run's results is meant.
type Side = for<'a> fn(&Run<'a>) -> Option<&'a RunResult>;

/// A measure of a run, in relation to its base where it has one.
fn value(measured: &Measured, run: &Run<'_>, all: &[Run<'_>], side: Side) -> Option<f64> {
    let result = run.result;
    let (name, unit) = measured.origin();
    let of = |run: &Run<'_>| {
        let ended = side(run).filter(|result| result.is_done())?;
        Some(ended.measures.number(name)? / unit)
    };
    let value = of(run)?;
    let Some((option, wanted)) = measured.relative_to() else {
        return Some(value);
    };
    let wanted = number(wanted)?;
    let but = measured.along(option);
    let base = all.iter().find(|base| {
        let other = base.result;
        place(other, option) == Some(wanted)
            && base.label() == run.label()
            && other.seed == result.seed
            && other.machine == result.machine
            && (option == "cpus" || other.cpus == result.cpus)
            && without(&other.asked, &but) == without(&result.asked, &but)
    })?;
    let base = of(base)?;
    (base != 0.0).then(|| value / base)
}

/// What was published of just this measure, machine, workload, scheduler and number of CPUs.
fn published<'a>(
    experiment: &Experiment,
    measured: &Measured,
    run: &Run<'_>,
    figures: &'a [Figure],
) -> Option<&'a Figure> {
    let result = run.result;
    let named = &experiment.runs[run.planned.runs].published_as;
    let known_as = known_as(named, result)?;
    // What tells the study's names apart is no option of its workloads.
    let but: Vec<&str> = named
        .iter()
        .filter_map(|one| one.only.as_ref()?.split('=').next())
        .collect();
    figures.iter().find(|figure| {
        let same_metric = match (measured.metric(), Metric::find(&figure.metric)) {
            (Some(mine), Some(theirs)) => mine.heading == theirs.heading,
            _ => figure.metric == measured.measure,
        };
        same_metric
            && figure.machine == result.machine
            && figure.cpus == Some(result.cpus)
            && figure.scheduler == known_as
            && is_of(&figure.workload, result, &but)
    })
}

/// The study's name of a run's scheduler; `None` where the file says that it has none.
fn known_as(named: &[PublishedAs], result: &RunResult) -> Option<String> {
    let mine = || named.iter().filter(|one| one.scheduler == result.scheduler);
    if mine().next().is_none() {
        return Some(result.scheduler.to_uppercase());
    }
    let fits = |only: &String| {
        let (option, value) = only.split_once('=').unwrap_or((only, "true"));
        if option == "cpus" {
            return value.parse() == Ok(result.cpus);
        }
        result.params.iter().any(|(n, v)| n == option && v == value)
    };
    mine()
        .find(|one| one.only.as_ref().is_none_or(fits))
        .map(|one| one.name.clone())
}

/// Whether a run is of a published workload: every option has the same value, those in `but` apart.
fn is_of(workload: &str, result: &RunResult, but: &[&str]) -> bool {
    // Parsed, so that 0 and 0us are the same, and an option at its default need not be named.
    let Ok(theirs) = Workload::parse(workload, result.cpus as usize) else {
        return false;
    };
    let count = |(name, _): &&(String, String)| !but.contains(&name.as_str());
    theirs.name == result.workload
        && theirs
            .params
            .iter()
            .filter(count)
            .eq(result.params.iter().filter(count))
}

fn standing(figure: &Figure, result: &RunResult, rows: &[Calibration]) -> Standing {
    let fitted = rows.iter().any(|row| {
        row.scheduler == figure.scheduler
            && row.metrics.contains(&figure.metric)
            && row.cpus.contains(&result.cpus)
            // Not the run's own text: what was published of pinned threads is a run with `pin=true`.
            && row.workload == figure.workload
    });
    if fitted {
        Standing::Calibration
    } else {
        Standing::Predicted
    }
}

fn spectra(experiment: &Experiment, group: &[&Run<'_>], over: &str) -> Vec<Spectrum> {
    let mut spectra: Vec<Spectrum> = Vec::new();
    for measure in &experiment.histograms {
        for run in group.iter().filter(|run| run.result.is_done()) {
            let found = run
                .result
                .histograms
                .iter()
                .find(|(name, _)| name == measure);
            let (Some((_, buckets)), Some(column)) = (found, place(run.result, over)) else {
                continue;
            };
            let same = |one: &&mut Spectrum| {
                one.measure == *measure && one.scheduler == run.label() && one.column == column
            };
            match spectra.iter_mut().find(same) {
                Some(spectrum) => add(&mut spectrum.buckets, buckets),
                None => spectra.push(Spectrum {
                    measure: measure.clone(),
                    scheduler: run.label(),
                    column,
                    buckets: buckets.clone(),
                }),
            }
        }
    }
    spectra
}

/// The series that the experiment names, of the first seed of each scheduler and column.
fn timelines(experiment: &Experiment, group: &[&Run<'_>], over: &str) -> Vec<Timeline> {
    let mut timelines: Vec<Timeline> = Vec::new();
    for measure in &experiment.series {
        for run in group.iter().filter(|run| run.result.is_done()) {
            let Some(column) = place(run.result, over) else {
                continue;
            };
            let drawn = |one: &Timeline| {
                one.measure == *measure && one.scheduler == run.label() && one.column == column
            };
            if timelines.iter().any(drawn) {
                continue;
            }
            let lines: Vec<_> = run
                .result
                .series
                .iter()
                .filter_map(|(name, points)| {
                    let rest = name.strip_prefix(measure)?.strip_prefix('.')?;
                    Some((rest.to_owned(), points.clone()))
                })
                .collect();
            if !lines.is_empty() {
                timelines.push(Timeline {
                    measure: measure.clone(),
                    scheduler: run.label(),
                    column,
                    lines,
                });
            }
        }
    }
    timelines
}

/// Adds counts bucket by bucket. The limits of buckets depend on nothing but the value, except that the last
/// of a histogram ends at its greatest value.
fn add(to: &mut Buckets, from: &Buckets) {
    for &(low, high, count) in from {
        match to.binary_search_by_key(&low, |bucket| bucket.0) {
            Ok(at) => {
                to[at].1 = to[at].1.max(high);
                to[at].2 += count;
            }
            Err(at) => to.insert(at, (low, high, count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;
    use schedlab_report::Measures;
    use schedlab_report::published;

    #[test]
    fn options_with_units_are_numbers_of_one_unit() {
        let values = [
            "16", "500us", "1ms", "2s", "7ns", "24K", "1M", "true", "-3", "", "0.25", "1.2.3",
        ];
        let numbers = values.map(number);
        let expected = [
            Some(16.0),
            Some(500_000.0),
            Some(1_000_000.0),
            Some(2e9),
            Some(7.0),
            Some(24_576.0),
            Some(1_048_576.0),
            None,
            Some(-3.0),
            None,
            Some(0.25),
            None,
        ];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn columns_are_told_with_their_units() {
        let mut panel = evaluated(results).remove(0);
        assert_eq!(panel.axis(), "CPUs");
        assert_eq!(
            (panel.column(1.0), panel.column(2.0)),
            ("1 CPU".into(), "2 CPUs".into())
        );
        panel.over = "computation".into();
        panel.unit = unit("1500us");
        assert_eq!(panel.axis(), "computation, ns");
        assert_eq!(panel.column(1_500.0), "computation=1500 ns");
        assert_eq!(
            [unit("24K"), unit("16"), unit("true")],
            [Some("bytes"), None, None]
        );
    }

    const CHAT: &str = r#"
title = "T"
source = "s"
about = []
histograms = ["runqueue.len"]
series = ["runqueue.deviation"]
[[runs]]
machine = "netfinity-8500r"
workloads = ["chat:rooms=10,messages=200", "chat:rooms=20,messages=200"]
schedulers = ["dss", "mq"]
cpus = [2, 3]
seeds = 3
[[measures]]
measure = "hold_mean"
[[measures]]
measure = "speedup_vs_2way"
[[measures]]
measure = "score"
over = "rooms"
relative_to = "rooms=10"
heading = "scaling"
"#;

    /// hold = 1 µs × CPUs × seed; score = rooms × CPUs × 10 + seed.
    fn results(planned: &[Planned]) -> Vec<RunResult> {
        let one = |planned: &Planned| {
            let spec = &planned.spec;
            let cpus = spec.cpus.unwrap();
            let workload = Workload::parse(&spec.workload, cpus).unwrap();
            let rooms: u64 = workload.params[0].1.parse().unwrap();
            let mut measures = Measures::default();
            let hold = 1_000 * cpus as u64 * spec.seed;
            measures.int("lock.runqueue.hold_ns_mean", hold);
            measures.int("score", rooms * cpus as u64 * 10 + spec.seed);
            RunResult {
                workload: workload.name.clone(),
                asked: spec.workload.clone(),
                params: workload.params.clone(),
                scheduler: spec.scheduler.to_string(),
                machine: spec.machine.clone(),
                cpus: cpus as u32,
                seed: spec.seed,
                exit: schedlab_report::Exit::Done,
                measures,
                histograms: vec![("runqueue.len".into(), vec![(1, 1, spec.seed), (2, 2, 5)])],
                series: vec![
                    (
                        "runqueue.deviation.cpu0".into(),
                        vec![(5, spec.seed as f64)],
                    ),
                    ("runqueue.deviations".into(), vec![(5, 0.0)]),
                ],
                ..RunResult::default()
            }
        };
        planned.iter().map(one).collect()
    }

    fn evaluated(results_of: impl Fn(&[Planned]) -> Vec<RunResult>) -> Vec<Panel> {
        let experiment = Experiment::read("x.toml", CHAT).unwrap();
        let planned = plan(&experiment, false, None);
        let figures = published::read(published::BUILTIN_NAME, published::BUILTIN).unwrap();
        let results = Results {
            planned: &planned,
            simulated: &results_of(&planned),
            real: &[],
        };
        evaluate(&experiment, results, &figures)
    }

    #[test]
    fn medians_and_spreads_stand_beside_what_was_published() {
        let panels = evaluated(results);
        let panel = panels
            .iter()
            .find(|p| p.heading == "mean hold, µs" && p.title().starts_with("chat:rooms=20"))
            .unwrap();
        assert_eq!(
            panel.title(),
            "chat:rooms=20,messages=200 on netfinity-8500r"
        );
        assert_eq!(
            (panel.over.as_str(), panel.columns.as_slice()),
            ("CPUs", &[2.0, 3.0][..])
        );
        assert!(!panel.data_sheet_only);
        let summary = |median, low, high| {
            Some(Summary {
                median,
                low,
                high,
                seeds: 3,
            })
        };
        // Published: 15 µs on 2 CPUs and 13 on 3; the profile was fitted to both.
        let dss = &panel.rows[0];
        assert_eq!(dss.scheduler, "dss");
        assert_eq!(dss.cells[0].simulated, summary(4.0, 2.0, 6.0));
        assert_eq!(dss.cells[0].published, Some(15.0));
        assert_eq!(dss.cells[0].standing, Some(Standing::Calibration));
        assert_eq!(dss.cells[0].ratio(), Some(4.0 / 15.0));
        assert_eq!(dss.cells[1].published, Some(13.0));
        assert_eq!(dss.cells[1].standing, Some(Standing::Calibration));
        // Nobody published that of 10 rooms, or of MQ.
        assert_eq!(panel.rows[1].cells[0].published, None);
        assert_eq!(panel.rows[1].cells[0].simulated, summary(4.0, 2.0, 6.0));
        let ten = panels
            .iter()
            .find(|p| p.title().starts_with("chat:rooms=10"))
            .unwrap();
        assert!(
            ten.rows
                .iter()
                .flat_map(|row| &row.cells)
                .all(|c| c.published.is_none())
        );
    }

    #[test]
    fn a_value_is_divided_by_that_of_its_base_with_the_same_seed() {
        let panels = evaluated(results);
        let speedup = panels
            .iter()
            .find(|p| p.heading.starts_with("speedup") && p.title().starts_with("chat:rooms=10"))
            .unwrap();
        // (10·3·10 + seed) / (10·2·10 + seed) of seeds 1 to 3.
        let of = |seed: f64| (300.0 + seed) / (200.0 + seed);
        let cell = speedup.rows[0].cells[1].simulated.unwrap();
        assert_eq!(
            (cell.median, cell.low, cell.high),
            (of(2.0), of(3.0), of(1.0))
        );
        let scaling = panels.iter().find(|p| p.heading == "scaling").unwrap();
        assert_eq!(
            scaling.title(),
            "chat:messages=200 on netfinity-8500r, 2 CPUs"
        );
        assert_eq!(
            (scaling.over.as_str(), scaling.columns.as_slice()),
            ("rooms", &[10.0, 20.0][..])
        );
        let cell = scaling.rows[0].cells[1].simulated.unwrap();
        assert_eq!(cell.median, 402.0 / 202.0);
    }

    #[test]
    fn real_runs_stand_beside_the_simulated_ones() {
        let experiment = Experiment::read("x.toml", CHAT).unwrap();
        let planned = plan(&experiment, false, None);
        let simulated = results(&planned);
        // Only on 2 CPUs and under DSS: twice the hold. One run failed.
        let real: Vec<Option<RunResult>> = simulated
            .iter()
            .map(|result| {
                let mut real = result.clone();
                real.machine = "vm".into();
                let hold = real.measures.number("lock.runqueue.hold_ns_mean").unwrap();
                real.measures
                    .int("lock.runqueue.hold_ns_mean", 2 * hold as u64);
                if real.seed == 3 {
                    real.exit = schedlab_report::Exit::ErrorStall;
                }
                (real.cpus == 2 && real.scheduler == "dss").then_some(real)
            })
            .collect();
        let results = Results {
            planned: &planned,
            simulated: &simulated,
            real: &real,
        };
        let panels = evaluate(&experiment, results, &[]);
        let hold = &panels[0].rows;
        let cell = hold[0].cells[0];
        assert_eq!(cell.simulated.unwrap().median, 4.0);
        // 2 CPUs, seeds 1 and 2: 4 and 8 µs.
        let real = cell.real.unwrap();
        assert_eq!((real.median, real.seeds), (6.0, 2));
        assert_eq!(hold[0].cells[1].real, None);
        assert_eq!(hold[1].cells[0].real, None);
        // A speedup needs its base in the same world.
        let speedup = panels.iter().find(|p| p.heading.starts_with("speedup"));
        let cells = &speedup.unwrap().rows[0].cells;
        assert_eq!(cells[0].real.unwrap().median, 1.0);
        assert_eq!(cells[1].real, None);
    }

    /// A smaller workload is not what was published, but a pinned one may be.
    #[test]
    fn a_published_workload_has_the_same_options() {
        let experiment = Experiment::read("x.toml", CHAT).unwrap();
        let planned = plan(&experiment, false, None);
        let mut result = results(&planned).remove(0);
        assert!(is_of("chat:messages=200", &result, &[]));
        assert!(is_of(
            "chat:messages=200,client_send_cpu=1000ns",
            &result,
            &[]
        ));
        assert!(!is_of("chat", &result, &[]));
        assert!(!is_of("reflex", &result, &[]));
        assert!(!is_of("chat:no=1", &result, &[]));
        let pin = result
            .params
            .iter_mut()
            .find(|(name, _)| name == "pin")
            .unwrap();
        pin.1 = "true".into();
        assert!(!is_of("chat:messages=200", &result, &[]));
        assert!(is_of("chat:messages=200", &result, &["pin"]));
    }

    #[test]
    fn a_study_may_have_several_names_for_a_scheduler() {
        let experiment = Experiment::read("x.toml", CHAT).unwrap();
        let mut result = results(&plan(&experiment, false, None)).remove(0);
        let name = |name: &str, only: Option<&str>| PublishedAs {
            scheduler: "dss".into(),
            name: name.into(),
            only: only.map(Into::into),
        };
        let named = [
            name("UP", Some("cpus=1")),
            name("PIN", Some("pin=true")),
            name("SMP", None),
        ];
        assert_eq!(known_as(&named, &result).as_deref(), Some("SMP"));
        result.cpus = 1;
        assert_eq!(known_as(&named, &result).as_deref(), Some("UP"));
        assert_eq!(known_as(&named[1..2], &result), None);
        assert_eq!(known_as(&[], &result).as_deref(), Some("DSS"));
    }

    #[test]
    fn series_are_those_of_the_first_seed() {
        let panels = evaluated(results);
        let with: Vec<_> = panels.iter().filter(|p| !p.timelines.is_empty()).collect();
        // As for histograms; in each of the first two a chart for either scheduler on either number of CPUs.
        assert_eq!(with.len(), 4);
        assert_eq!(with[0].timelines.len(), 4);
        let one = &with[0].timelines[0];
        assert_eq!((one.scheduler.as_str(), one.column), ("dss", 2.0));
        assert_eq!(one.lines, [("cpu0".to_owned(), vec![(5, 1.0)])]);
    }

    #[test]
    fn histograms_are_added_over_seeds_and_told_once() {
        let panels = evaluated(results);
        let with: Vec<_> = panels.iter().filter(|p| !p.histograms.is_empty()).collect();
        // Two workloads over CPUs, and over rooms two numbers of CPUs.
        assert_eq!(with.len(), 4);
        let one = &with[0].histograms[0];
        assert_eq!(one.buckets, [(1, 1, 1 + 2 + 3), (2, 2, 15)]);
        assert_eq!((one.scheduler.as_str(), one.column), ("dss", 2.0));
    }

    fn evaluated_with_failures(fails: impl Fn(&RunResult) -> bool) -> Vec<Panel> {
        evaluated(|planned| {
            let mut results = results(planned);
            for result in results.iter_mut().filter(|result| fails(result)) {
                result.exit = schedlab_report::Exit::ErrorStall;
            }
            results
        })
    }

    #[test]
    fn values_are_of_runs_that_ended_and_marked_where_others_failed() {
        let panels = evaluated_with_failures(|run| run.seed == 1);
        let cell = panels[0].rows[0].cells[0];
        let simulated = cell.simulated.unwrap();
        assert_eq!((simulated.seeds, simulated.low), (2, 4.0));
        assert_eq!(cell.told().as_deref(), Some("5!"));
        let cell = evaluated(results)[0].rows[0].cells[0];
        assert_eq!(cell.told().as_deref(), Some("4"));
    }

    /// Whoever fails keeps its place, and so its colour.
    #[test]
    fn rows_and_histograms_have_the_order_of_the_file_whatever_fails() {
        let schedulers = |panel: &Panel| -> Vec<String> {
            let rows = panel.rows.iter();
            rows.map(|row| row.scheduler.clone()).collect()
        };
        let panels = evaluated_with_failures(|run| run.scheduler == "dss" && run.seed == 1);
        assert_eq!(schedulers(&panels[0]), ["dss", "mq"]);
        let panels = evaluated_with_failures(|run| run.scheduler == "dss");
        assert_eq!(schedulers(&panels[0]), ["dss", "mq"]);
        let cell = panels[0].rows[0].cells[0];
        assert_eq!((cell.simulated, cell.told()), (None, Some("!".to_owned())));
        // One chart of each column, though one of its runs came with a later seed.
        let panels =
            evaluated_with_failures(|run| run.scheduler == "dss" && run.seed == 1 && run.cpus == 2);
        let places: Vec<_> = panels[0]
            .histograms
            .iter()
            .map(|one| (one.column, one.scheduler.as_str()))
            .collect();
        let expected = [(2.0, "dss"), (2.0, "mq"), (3.0, "dss"), (3.0, "mq")];
        assert_eq!(places, expected);
    }

    #[test]
    fn options_are_compared_by_value() {
        assert_eq!(without("a:x=1,y=2", &["x"]), "a:y=2");
        assert_eq!(without("a:x=1", &["x"]), "a");
        assert_eq!(without("a", &["x"]), "a");
        assert_eq!(without("a:x=1,y=2,z", &["x", "z"]), "a:y=2");
    }

    #[test]
    fn what_was_calibrated_is_no_prediction_under_whatever_name_it_runs() {
        let figures = published::read(published::BUILTIN_NAME, published::BUILTIN).unwrap();
        let rows = Machine::builtin("xeon-e5645-2x6x2").unwrap().calibrated_on;
        let standing_of = |scheduler: &str| {
            let figure = figures
                .iter()
                .find(|figure| figure.workload == "canneal" && figure.scheduler == scheduler)
                .unwrap();
            let result = RunResult {
                workload: "canneal".into(),
                params: vec![("pin".into(), "true".into())],
                cpus: 24,
                ..RunResult::default()
            };
            standing(figure, &result, &rows)
        };
        assert_eq!(standing_of("CFS+pin"), Standing::Calibration);
        assert_eq!(standing_of("CFS"), Standing::Predicted);
    }

    #[test]
    fn what_was_published_of_another_row_is_a_prediction() {
        let figures = published::read(published::BUILTIN_NAME, published::BUILTIN).unwrap();
        let mut rows = Machine::builtin("netfinity-8500r").unwrap().calibrated_on;
        for row in &mut rows {
            row.cpus = vec![2];
            row.metrics.retain(|metric| metric == "hold_mean");
        }
        let standing_of = |metric: &str, cpus: u32, other: fn(&mut Figure)| {
            let figure = figures.iter().find(|figure| {
                figure.workload.starts_with("chat:rooms=20,messages=200")
                    && (figure.metric.as_str(), figure.cpus) == (metric, Some(cpus))
            });
            let mut figure = figure.unwrap().clone();
            other(&mut figure);
            let result = RunResult {
                cpus,
                ..RunResult::default()
            };
            standing(&figure, &result, &rows)
        };
        assert_eq!(standing_of("hold_mean", 2, |_| ()), Standing::Calibration);
        assert_eq!(standing_of("hold_mean", 3, |_| ()), Standing::Predicted);
        assert_eq!(standing_of("hold_max", 2, |_| ()), Standing::Predicted);
        let another_workload = |figure: &mut Figure| figure.workload.push_str(",users=1");
        let of_another = standing_of("hold_mean", 2, another_workload);
        assert_eq!(of_another, Standing::Predicted);
        let another_scheduler = |figure: &mut Figure| figure.scheduler.push('x');
        let of_another = standing_of("hold_mean", 2, another_scheduler);
        assert_eq!(of_another, Standing::Predicted);
    }

    /// Otherwise there would be a chart of one point each.
    #[test]
    fn measures_over_an_option_have_a_panel_with_all_its_values() {
        for name in crate::builtin_names() {
            let experiment = crate::builtin(name).unwrap().unwrap();
            let planned = plan(&experiment, false, Some(1));
            let results: Vec<RunResult> = planned.iter().map(ended).collect();
            let runs: Vec<Run<'_>> = planned
                .iter()
                .zip(&results)
                .map(|(planned, result)| Run {
                    planned,
                    result,
                    real: None,
                })
                .collect();
            for measured in experiment.measures.iter().filter(|m| m.over.is_some()) {
                let over = measured.over();
                let columns = |runs: &[&Run<'_>]| {
                    let values = runs.iter().filter_map(|run| place(run.result, &over));
                    let mut values: Vec<f64> = values.collect();
                    values.sort_by(f64::total_cmp);
                    values.dedup();
                    values
                };
                let groups = groups(&runs, measured);
                for (place, group) in &groups {
                    let first = group[0].result;
                    let like = |run: &Run<'_>| {
                        let result = run.result;
                        (&result.machine, result.cpus, &result.workload)
                            == (&first.machine, first.cpus, &first.workload)
                    };
                    let all: Vec<&Run<'_>> = runs.iter().filter(|run| like(run)).collect();
                    // Beside it there may be one of other options on purpose.
                    let mut panels = groups.iter().filter(|(_, group)| like(group[0]));
                    let whole = panels.any(|(_, group)| columns(group) == columns(&all));
                    assert!(whole, "{name}: {place:?}");
                }
            }
        }
    }

    /// A run of which nothing but its end is known.
    fn ended(planned: &Planned) -> RunResult {
        let spec = &planned.spec;
        let cpus = spec.cpus.unwrap_or(1);
        let workload = Workload::parse(&spec.workload, cpus).unwrap();
        RunResult {
            workload: workload.name,
            asked: spec.workload.clone(),
            params: workload.params,
            scheduler: spec.scheduler.to_string(),
            machine: spec.machine.clone(),
            cpus: cpus as u32,
            seed: spec.seed,
            exit: schedlab_report::Exit::Done,
            ..RunResult::default()
        }
    }

    /// A calibrated row that is not in the published file, or misspelt, would never be recognised.
    #[test]
    fn what_a_profile_was_calibrated_on_was_published() {
        let figures = published::read(published::BUILTIN_NAME, published::BUILTIN).unwrap();
        for name in Machine::builtin_names() {
            for row in Machine::builtin(name).unwrap().calibrated_on {
                for metric in &row.metrics {
                    assert!(
                        figures.iter().any(|figure| figure.machine == name
                            && figure.workload == row.workload
                            && figure.scheduler == row.scheduler
                            && figure.metric == *metric
                            && figure.cpus.is_some_and(|cpus| row.cpus.contains(&cpus))),
                        "{name}: {metric} of {row}"
                    );
                }
            }
        }
    }
}
