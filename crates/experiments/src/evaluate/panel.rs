//! Panels: the values of one measure by scheduler and column.

use schedlab_machine::Machine;
use schedlab_report::export::number::grouped;
use schedlab_report::published::{Figure, Metric, speedup};
use schedlab_report::{RunResult, Value, stats};
use schedlab_trace::counted;

use super::figures::{Standing, published, standing};
use super::runs::{Place, Run, without};
use super::spectra::{Spectrum, Timeline};
use crate::Experiment;
use crate::experiment::Measured;
use crate::over::Over;

/// One measure of one workload on one machine: a row per scheduler, a column per number of CPUs or value of
/// an option.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Panel {
    /// The workload, without the options that differ between the columns, …
    pub workload: String,
    /// … where …
    pub machine: String,
    /// … and on how many CPUs, unless these are its columns.
    pub cpus: Option<u32>,
    /// The measure, for people, with the unit.
    pub heading: String,
    /// The quantity of the columns.
    pub over: Over,
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
    /// The use of the published value, if there is one.
    pub standing: Option<Standing>,
    /// A simulated run of it failed, or the one that it is in relation to: the value is of the others.
    pub failed: bool,
    /// A simulated run of it is in relation to 0, or 0 in relation to it: the value is of the others.
    pub undefined: bool,
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

impl Panel {
    /// Returns the title: the workload, the machine and the number of CPUs.
    pub fn title(&self) -> String {
        let Panel {
            workload, machine, ..
        } = self;
        match self.cpus {
            Some(cpus) => format!("{workload} on {machine}, {}", counted(cpus, "CPU")),
            None => format!("{workload} on {machine}"),
        }
    }

    /// Returns the quantity of the columns, with the unit.
    pub fn axis(&self) -> String {
        match (&self.over, self.unit) {
            (Over::Cpus, _) => "CPUs".to_owned(),
            (Over::Option(name), Some(unit)) => format!("{name}, {unit}"),
            (Over::Option(name), None) => name.clone(),
        }
    }

    /// A column, in words.
    pub fn column(&self, value: f64) -> String {
        match (&self.over, self.unit) {
            (Over::Cpus, _) => counted(value as u64, "CPU"),
            (Over::Option(name), Some(unit)) => format!("{name}={value} {unit}"),
            (Over::Option(name), None) => format!("{name}={value}"),
        }
    }
}

impl Row {
    pub(super) fn is_empty(&self) -> bool {
        let has = |cell: &Cell| {
            let known = [
                cell.simulated.is_some(),
                cell.real.is_some(),
                cell.published.is_some(),
            ];
            known.contains(&true) || cell.undefined
        };
        !self.cells.iter().any(has)
    }
}

impl Cell {
    /// The simulated value, with `!` where it is not of all runs, as in tables of runs.
    pub fn told(&self) -> Option<String> {
        let value = self.simulated.map(|one| grouped(one.median));
        match self.is_marked() {
            true => Some(value.unwrap_or_default() + "!"),
            false => value,
        }
    }

    /// Whether the value is not of all runs.
    pub fn is_marked(&self) -> bool {
        self.failed || self.undefined
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

pub(super) fn panel(
    experiment: &Experiment,
    measured: &Measured,
    place: &Place,
    group: &[&Run<'_>],
    all: &[Run<'_>],
    figures: &[Figure],
) -> Panel {
    let over = &measured.over;
    let mut columns: Vec<f64> = group.iter().filter_map(|run| over.of(run.result)).collect();
    columns.sort_by(f64::total_cmp);
    columns.dedup();
    let mut schedulers: Vec<String> = Vec::new();
    for run in group {
        if !schedulers.contains(&run.label()) {
            schedulers.push(run.label());
        }
    }
    let (workload, machine_name, cpus) = place.clone();
    let machine = Machine::find(&machine_name).ok();
    let profile = machine.as_ref().map_or(&machine_name, |one| &one.name);
    let rows = schedulers.iter().map(|scheduler| {
        let cells = columns.iter().map(|&column| {
            let mine: Vec<&&Run<'_>> = group
                .iter()
                .filter(|run| run.label() == *scheduler && over.of(run.result) == Some(column))
                .collect();
            let values = |side: Side| -> Vec<f64> {
                let runs = mine.iter();
                runs.filter_map(|run| value(measured, run, all, side))
                    .collect()
            };
            let summary = |side: Side| {
                let mut values = values(side);
                values.retain(|value| value.is_finite());
                Summary::of(&values)
            };
            let published = mine
                .first()
                .and_then(|run| published(experiment, measured, profile, run, figures));
            Cell {
                simulated: summary(|run| Some(run.result)),
                real: summary(|run| run.real),
                published: published.map(|figure| figure.value),
                standing: published.zip(mine.first()).map(|(figure, run)| {
                    let rows = machine.as_ref().map_or(&[][..], |m| &m.calibrated_on);
                    standing(figure, run.result, rows)
                }),
                failed: mine.iter().any(|run| {
                    let base = base_of(measured, run, all);
                    !run.result.is_done() || base.is_some_and(|base| !base.result.is_done())
                }),
                undefined: values(|run| Some(run.result))
                    .iter()
                    .any(|value| !value.is_finite()),
            }
        });
        Row {
            scheduler: scheduler.clone(),
            cells: cells.collect(),
        }
    });
    Panel {
        workload,
        machine: machine_name.clone(),
        cpus,
        heading: heading(measured, group),
        log: measured.log,
        data_sheet_only: !machine.as_ref().is_some_and(Machine::is_calibrated),
        rows: rows.collect(),
        columns,
        unit: group.iter().find_map(|run| over.unit(run.result)),
        over: over.clone(),
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

/// That result if it ended as it should.
fn ended<'a>(run: &Run<'a>, side: Side) -> Option<&'a RunResult> {
    side(run).filter(|result| result.is_done())
}

/// A measure of a run, in relation to its base where it has one: infinite or no number where that divides by 0.
fn value(measured: &Measured, run: &Run<'_>, all: &[Run<'_>], side: Side) -> Option<f64> {
    let (name, unit) = measured.origin();
    let of = |run: &Run<'_>| Some(ended(run, side)?.measures.number(name)? / unit);
    let value = of(run)?;
    if measured.base().is_none() {
        return Some(value);
    }
    let base = base_of(measured, run, all)?;
    if measured.metric().is_some_and(Metric::is_speedup) {
        return speedup(ended(run, side)?, ended(base, side)?);
    }
    Some(value / of(base)?)
}

/// The run that a run's measure is in relation to, where it is in relation to one.
fn base_of<'a, 'r>(measured: &Measured, run: &Run<'_>, all: &'a [Run<'r>]) -> Option<&'a Run<'r>> {
    let base = measured.base()?;
    let (over, wanted, result) = (&base.over, base.number()?, run.result);
    let but = measured.along(over);
    all.iter().find(|base| {
        let other = base.result;
        over.of(other) == Some(wanted)
            && base.label() == run.label()
            && other.seed == result.seed
            && other.machine == result.machine
            && (*over == Over::Cpus || other.cpus == result.cpus)
            && without(&other.asked, &but) == without(&result.asked, &but)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CHAT, evaluated, evaluated_with_failures, planned, results};
    use super::super::{Results, evaluate};
    use super::*;

    #[test]
    fn columns_are_told_with_their_units() {
        let mut panel = evaluated(results).remove(0);
        assert_eq!(panel.axis(), "CPUs");
        assert_eq!(
            (panel.column(1.0), panel.column(2.0)),
            ("1 CPU".into(), "2 CPUs".into())
        );
        panel.over = Over::Option("computation".into());
        panel.unit = Some("ns");
        assert_eq!(panel.axis(), "computation, ns");
        assert_eq!(panel.column(1_500.0), "computation=1500 ns");
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
            (&panel.over, panel.columns.as_slice()),
            (&Over::Cpus, &[2.0, 3.0][..])
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
        // No figure is published for 10 rooms, or for MQ.
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
            (&scaling.over, scaling.columns.as_slice()),
            (&Over::Option("rooms".into()), &[10.0, 20.0][..])
        );
        let cell = scaling.rows[0].cells[1].simulated.unwrap();
        assert_eq!(cell.median, 402.0 / 202.0);
    }

    /// Half the time is a speedup of two, but a ratio of a half.
    #[test]
    fn of_times_the_shorter_one_is_the_speedup() {
        let panels = evaluated(|planned| {
            let mut results = results(planned);
            for result in &mut results {
                result.measures.text("score_better", "lower");
            }
            results
        });
        let median = |heading: &str, title: &str| {
            let mut panels = panels.iter();
            let panel = panels
                .find(|p| p.heading.starts_with(heading) && p.title().starts_with(title))
                .unwrap();
            panel.rows[0].cells[1].simulated.unwrap().median
        };
        assert_eq!(median("speedup", "chat:rooms=10"), 202.0 / 302.0);
        assert_eq!(median("scaling", "chat"), 402.0 / 202.0);
    }

    #[test]
    fn real_runs_stand_beside_the_simulated_ones() {
        let experiment = Experiment::read("x.toml", CHAT).unwrap();
        let planned = planned(&experiment);
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

    #[test]
    fn ratios_to_runs_that_failed_are_left_out_and_that_is_told() {
        let panels = evaluated_with_failures(|run| run.cpus == 2 && run.seed == 1);
        let cells = |heading: &str| {
            let mut panels = panels.iter();
            let panel = panels
                .find(|p| p.heading.starts_with(heading) && p.title().starts_with("chat:rooms=10"));
            let cells = panel.unwrap().rows[0].cells.iter();
            cells
                .map(|c| (c.simulated.unwrap().seeds, c.failed))
                .collect::<Vec<_>>()
        };
        assert_eq!(cells("speedup"), [(2, true), (2, true)]);
        assert_eq!(cells("mean hold"), [(2, true), (3, false)]);
    }

    /// In relation to it nothing has a value, and a note beside the others' values says so.
    #[test]
    fn a_run_that_did_nothing_counts_and_is_no_base() {
        let panels = evaluated(|planned| {
            let mut results = results(planned);
            let nothing = |run: &&mut RunResult| run.cpus == 2 && run.seed == 1;
            for run in results.iter_mut().filter(nothing) {
                run.measures.int("score", 0);
            }
            let nothing = |run: &&mut RunResult| run.cpus == 3 && run.seed == 2;
            for run in results.iter_mut().filter(nothing) {
                run.measures.int("score", 0);
            }
            results
        });
        let cells = |heading: &str, title: &str| {
            let mut panels = panels.iter();
            let panel = panels
                .find(|p| p.heading.starts_with(heading) && p.title().starts_with(title))
                .unwrap();
            panel.rows[0].cells.clone()
        };
        let told = |cell: &Cell| {
            let one = cell.simulated.unwrap();
            (one.low, one.seeds, cell.told().unwrap().ends_with('!'))
        };
        let speedup = cells("speedup", "chat:rooms=10");
        assert_eq!(told(&speedup[0]), (1.0, 2, true));
        assert_eq!(told(&speedup[1]), (0.0, 2, true));
        let scaling = cells("scaling", "chat:messages=200 on netfinity-8500r, 2 CPUs");
        assert_eq!(told(&scaling[1]).1, 2);
        assert!(scaling.iter().all(|cell| cell.undefined));
        assert!(
            cells("mean hold", "chat")
                .iter()
                .all(|cell| !cell.undefined)
        );
        // If there is nothing else, a note says so.
        let panels = evaluated(|planned| {
            let mut results = results(planned);
            for run in &mut results {
                run.measures.int("score", 0);
            }
            results
        });
        let scaling = panels.iter().find(|p| p.heading == "scaling").unwrap();
        assert_eq!(scaling.rows[0].cells[1].told().as_deref(), Some("!"));
    }

    /// A failed scheduler keeps its place, and so its colour.
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
}
