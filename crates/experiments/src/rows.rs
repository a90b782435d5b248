//! Published figures as an experiment: what has to be run for them, and how near the simulated figures are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use schedlab_machine::Machine;
use schedlab_report::export::lines::{fill, pad, width_of};
use schedlab_report::published::{Figure, METRICS, Metric};
use schedlab_report::stats;
use schedlab_sim::Scheduler;
use schedlab_trace::counted;
use schedlab_workload::Workload;

use crate::experiment::{Measured, PublishedAs};
use crate::studies::{Meant, Studies};
use crate::{Experiment, Panel, Runs};

/// The rows that are asked for. Nothing is asked of what is absent or empty.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// A workload without options means all its configurations.
    pub workloads: Vec<String>,
    /// By the study's name or ours; its options replace those that the study's has here.
    pub scheduler: Option<Scheduler>,
    /// The machine that is simulated; figures of the name in its profile are wanted.
    pub machine: Option<String>,
    pub cpus: Vec<usize>,
}

impl Wanted {
    fn has(&self, figure: &Figure, meant: &Meant, machine: Option<&Machine>) -> bool {
        (self.workloads.is_empty() || self.workloads.iter().any(|one| is_of(one, figure, meant)))
            && self.is_by(figure, meant)
            && machine.is_none_or(|machine| machine.name == figure.machine)
            && self.is_on(figure)
    }

    fn is_by(&self, figure: &Figure, meant: &Meant) -> bool {
        self.scheduler.as_ref().is_none_or(|one| {
            figure.scheduler.eq_ignore_ascii_case(&one.name)
                || Scheduler::parse(&meant.scheduler).name == one.name
        })
    }

    fn is_on(&self, figure: &Figure) -> bool {
        let on = |cpus: u32| self.cpus.contains(&(cpus as usize));
        self.cpus.is_empty() || figure.cpus.is_some_and(on)
    }
}

/// Whether a figure is of a workload that is asked for, by the study's name or by ours.
fn is_of(asked: &str, figure: &Figure, meant: &Meant) -> bool {
    is_workload(asked, &figure.workload) || is_workload(asked, &meant.workload)
}

/// Whether a workload is the one that is asked for, in whatever order its options are and whether or not defaults are named.
fn is_workload(asked: &str, known: &str) -> bool {
    if !asked.contains(':') {
        return asked == name(known);
    }
    let parse = |text| Workload::parse(text, 1).ok();
    match (parse(asked), parse(known)) {
        (Some(asked), Some(known)) => asked.name == known.name && asked.params == known.params,
        _ => asked == known,
    }
}

fn name(workload: &str) -> &str {
    workload.split(':').next().unwrap_or_default()
}

/// A published figure and the place of the simulated one.
#[derive(Clone, Debug)]
struct Row {
    figure: Figure,
    metric: &'static Metric,
    workload: String,
    scheduler: String,
    machine: String,
}

/// Published figures that can be simulated.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The simulations of them.
    pub experiment: Experiment,
    rows: Vec<Row>,
    /// The others that were asked for, by the reason.
    left_out: BTreeMap<String, Vec<String>>,
}

impl Rows {
    /// Returns those that are wanted.
    ///
    /// # Errors
    /// If no row matches, or the machine is unknown.
    pub fn of(figures: &[Figure], wanted: &Wanted) -> Result<Rows, String> {
        let machine = wanted.machine.as_deref().map(Machine::find).transpose();
        let machine = machine.map_err(|error| error.to_string())?;
        let studies = Studies::builtin();
        let mut rows = Vec::new();
        let mut runs: Vec<Runs> = Vec::new();
        let mut left_out: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let all = || figures.iter().map(|figure| (figure, studies.meant(figure)));
        let is_unknown =
            |asked: &&String| !all().any(|(figure, meant)| is_of(asked, figure, &meant));
        if let Some(unknown) = wanted.workloads.iter().find(is_unknown) {
            let names = all().map(|(figure, _)| name(&figure.workload).to_owned());
            return Err(nothing_of(&format!("of the workload {unknown}"), names));
        }
        for figure in figures {
            let meant = studies.meant(figure);
            if !wanted.has(figure, &meant, machine.as_ref()) {
                continue;
            }
            let (metric, cpus) = match simulable(figure) {
                Ok(both) => both,
                Err(why) => {
                    left_out.entry(why).or_default().push(told(figure));
                    continue;
                }
            };
            let scheduler = match &wanted.scheduler {
                Some(own) if !own.options.is_empty() => own.to_string(),
                _ => Scheduler::parse(&meant.scheduler).to_string(),
            };
            let is_same = |runs: &&mut Runs| {
                runs.machine == figure.machine
                    && runs.workloads[0] == meant.workload
                    && runs.schedulers[0] == scheduler
            };
            let place = match runs.iter_mut().find(is_same) {
                Some(runs) => runs,
                None => {
                    runs.push(Runs {
                        machine: figure.machine.clone(),
                        workloads: vec![meant.workload.clone()],
                        schedulers: vec![scheduler.clone()],
                        seeds: 5,
                        ..Runs::default()
                    });
                    runs.last_mut().expect("one was pushed")
                }
            };
            // Speed-ups are given in relation to 2 CPUs.
            place.cpus.push(cpus);
            place.cpus.extend(metric.is_speedup().then_some(2));
            place.cpus.sort_unstable();
            place.cpus.dedup();
            let known_as = PublishedAs {
                scheduler: scheduler.clone(),
                name: figure.scheduler.clone(),
                only: meant.only,
            };
            if !place.published_as.contains(&known_as) {
                place.published_as.push(known_as);
            }
            rows.push(Row {
                figure: figure.clone(),
                metric,
                workload: meant.workload,
                scheduler,
                machine: wanted.machine.as_ref().unwrap_or(&figure.machine).clone(),
            });
        }
        if rows.is_empty() {
            return Err(nothing(
                all().collect(),
                &left_out,
                wanted,
                machine.as_ref(),
            ));
        }
        Ok(Rows {
            experiment: experiment(&rows, runs),
            rows,
            left_out,
        })
    }

    /// Returns how near the simulated figures are: by kind of figure, by workload and configuration, and together.
    fn near(&self, panels: &[Panel]) -> Vec<Near> {
        let mut kinds = Groups::default();
        let mut workloads = Groups::default();
        let mut all = Near::new("all".to_owned());
        for row in &self.rows {
            let factor = factor(row.figure.value, row.simulated(panels));
            kinds.add(row.metric.family(), factor);
            let parent = workloads.add(name(&row.workload), factor);
            let options = row.workload.split_once(':').map_or("defaults", |two| two.1);
            parent.add(options, factor);
            all.factors.push(factor);
        }
        let mut found: Vec<Near> = kinds.0.into_iter().map(|(near, _)| near).collect();
        for (near, Groups(parts)) in workloads.0 {
            found.push(near);
            if parts.len() > 1 {
                found.extend(parts.into_iter().map(|(part, _)| Near {
                    of: format!("  {}", part.of),
                    ..part
                }));
            }
        }
        found.push(all);
        found
    }

    /// Returns the same as text of at most `width` columns, with the aims that are met and what has no distance.
    pub fn text(&self, panels: &[Panel], width: usize) -> String {
        let mut out = table(&self.near(panels));
        out.push('\n');
        let distance = "distance: the sum of |ln(simulated / published)| over the figures, 0.69 for each that is twice or half as large";
        fill(&mut out, "", distance, 2, width);
        let aims = self.rows.iter().filter_map(|row| {
            let aim = row.metric.aim?;
            let simulated = row.simulated(panels);
            Some(simulated.is_some_and(|value| aim.is_met(row.figure.value, value)))
        });
        let aims: Vec<bool> = aims.collect();
        if !aims.is_empty() {
            let met = aims.iter().filter(|&&met| met).count();
            let all = aims.len();
            let told = format!(
                "{met} of {all} aims met (contention within 10 points, means within a factor of 1.5, maxima within one of 3)"
            );
            fill(&mut out, "", &told, 2, width);
        }
        let is_far = |row: &&Row| factor(row.figure.value, row.simulated(panels)).is_infinite();
        let far: Vec<String> = self
            .rows
            .iter()
            .filter(is_far)
            .map(|row| told(&row.figure))
            .collect();
        let without =
            "without a distance, since the simulated or the published one is missing, 0 or below";
        for (why, rows) in [(without, &far)]
            .into_iter()
            .chain(self.left_out.iter().map(|(why, rows)| (why.as_str(), rows)))
        {
            if !rows.is_empty() {
                let figures = counted(rows.len() as u64, "published figure");
                let told = format!("{figures} {why}: {}", rows.join("; "));
                fill(&mut out, "! ", &told, 2, width);
            }
        }
        out
    }
}

impl Row {
    fn simulated(&self, panels: &[Panel]) -> Option<f64> {
        let cpus = f64::from(self.figure.cpus?);
        let panel = panels.iter().find(|panel| {
            panel.workload == self.workload
                && panel.machine == self.machine
                && panel.heading == self.metric.heading
        })?;
        let column = panel.columns.iter().position(|&column| column == cpus)?;
        let mut rows = panel.rows.iter();
        let row = rows.find(|row| row.scheduler == self.scheduler)?;
        Some(row.cells[column].simulated?.median)
    }
}

/// How near simulated figures are to published ones of a kind.
#[derive(Clone, PartialEq, Debug)]
struct Near {
    /// The kind of figures.
    of: String,
    /// The larger one divided by the smaller one, of each published figure; infinite where there is no such number.
    factors: Vec<f64>,
}

impl Near {
    fn new(of: String) -> Near {
        Near {
            of,
            factors: Vec::new(),
        }
    }

    /// Returns the share of figures that are at most `factor` times too large or too small, in percent.
    fn within_pct(&self, factor: f64) -> f64 {
        let near = self.factors.iter().filter(|&&one| one <= factor).count();
        near as f64 * 100.0 / self.factors.len() as f64
    }

    /// Returns the median of the factors; infinite if most figures have no simulated value.
    fn median(&self) -> f64 {
        stats::median(&self.factors).unwrap_or(f64::INFINITY)
    }

    /// Returns the sum of the logarithms of the factors, without infinite ones.
    fn distance(&self) -> f64 {
        let finite = self.factors.iter().filter(|factor| factor.is_finite());
        finite.fold(0.0, |sum, factor| sum + factor.ln())
    }
}

/// Kinds in the order of their first figure, each with its parts.
#[derive(Default)]
struct Groups(Vec<(Near, Groups)>);

impl Groups {
    fn add(&mut self, of: &str, factor: f64) -> &mut Groups {
        let known = self.0.iter().position(|(near, _)| near.of == of);
        let place = known.unwrap_or_else(|| {
            self.0.push((Near::new(of.to_owned()), Groups::default()));
            self.0.len() - 1
        });
        let (near, parts) = &mut self.0[place];
        near.factors.push(factor);
        parts
    }
}

/// How many times too large or too small a figure is; infinite where one is missing, or 0 or below beside another value.
fn factor(published: f64, simulated: Option<f64>) -> f64 {
    match simulated.map(|simulated| (simulated == published, simulated / published)) {
        Some((true, _)) => 1.0,
        Some((_, ratio)) if ratio > 0.0 && ratio.is_finite() => ratio.max(1.0 / ratio),
        _ => f64::INFINITY,
    }
}

/// Factors of which the share within them is shown.
const FACTORS: [f64; 3] = [1.3, 1.5, 2.0];

fn table(kinds: &[Near]) -> String {
    let label = kinds.iter().map(|kind| width_of(&kind.of)).max();
    let label = label.unwrap_or_default();
    let mut text =
        "Share of the published figures that the simulated ones are near to, and the\nmedian factor\n\n"
            .to_owned();
    let _ = write!(text, "{:label$}  figures", "");
    for factor in FACTORS {
        let _ = write!(text, "  {:>5}", format!("{factor}x"));
    }
    text.push_str("  median  distance\n");
    for kind in kinds {
        pad(&mut text, &kind.of, label);
        let _ = write!(text, "  {:>7}", kind.factors.len());
        for factor in FACTORS {
            let _ = write!(text, "  {:>3.0} %", kind.within_pct(factor));
        }
        let _ = writeln!(text, "  {:>6.2}  {:>8.2}", kind.median(), kind.distance());
    }
    text
}

/// Returns what a figure's simulation needs, or the reason why it has none.
fn simulable(figure: &Figure) -> Result<(&'static Metric, usize), String> {
    let (Some(cpus), false) = (figure.cpus, figure.machine.is_empty()) else {
        return Err("not simulated, without a machine or a number of CPUs".to_owned());
    };
    let models = schedlab_workload::list();
    if !models
        .iter()
        .any(|model| model.name == name(&figure.workload))
    {
        return Err("not simulated, of a workload that is not modelled".to_owned());
    }
    let metric = Metric::find(&figure.metric);
    let metric = metric.ok_or("not simulated, of a metric that is no measure here")?;
    Ok((metric, cpus as usize))
}

fn told(figure: &Figure) -> String {
    let mut told = format!("{} {}", figure.workload, figure.metric);
    if let Some(cpus) = figure.cpus {
        let _ = write!(told, " on {}", counted(cpus, "CPU"));
    }
    told
}

/// Panels for all metrics that are published, and what explains them.
fn experiment(rows: &[Row], runs: Vec<Runs>) -> Experiment {
    let measured = |measure: &str, heading: Option<&str>, only_published| Measured {
        measure: measure.to_owned(),
        heading: heading.map(str::to_owned),
        only_published,
        ..Measured::default()
    };
    let of = |metric: &Metric| rows.iter().find(|row| row.metric == metric);
    let published = METRICS.iter().filter_map(of);
    let mut measures: Vec<Measured> = published
        .map(|row| measured(&row.figure.metric, None, true))
        .collect();
    let examined = Some("tasks examined per call");
    measures.push(measured("schedule.examined_mean", examined, false));
    measures.push(measured("score", None, false));
    let mut sources: Vec<&str> = rows.iter().map(|row| &*row.figure.study).collect();
    sources.sort_unstable();
    sources.dedup();
    Experiment {
        name: "rows".to_owned(),
        title: "published figures and simulated ones".to_owned(),
        source: sources.join(", "),
        runs,
        measures,
        ..Experiment::default()
    }
}

/// Says which wish no published figure fulfils, and which ones could be fulfilled.
fn nothing(
    mut left: Vec<(&Figure, Meant)>,
    left_out: &BTreeMap<String, Vec<String>>,
    wanted: &Wanted,
    machine: Option<&Machine>,
) -> String {
    if let Some((why, rows)) = left_out.first_key_value() {
        return format!("what is published of that is {why}: {}", rows.join("; "));
    }
    let workloads = &wanted.workloads;
    left.retain(|(figure, meant)| {
        workloads.is_empty() || workloads.iter().any(|one| is_of(one, figure, meant))
    });
    let machines: BTreeSet<String> = left.iter().map(|(one, _)| one.machine.clone()).collect();
    if let Some(machine) = machine {
        left.retain(|(figure, _)| figure.machine == machine.name);
        if left.is_empty() {
            let asked = format!("of a machine with the name {}", machine.name);
            return nothing_of(&asked, machines.into_iter());
        }
    }
    let schedulers: Vec<String> = left.iter().map(|(one, _)| one.scheduler.clone()).collect();
    left.retain(|(figure, meant)| wanted.is_by(figure, meant));
    if left.is_empty() {
        let asked = wanted
            .scheduler
            .as_ref()
            .map_or(String::new(), ToString::to_string);
        return nothing_of(&format!("of {asked} there"), schedulers.into_iter());
    }
    let cpus: BTreeSet<u32> = left.iter().filter_map(|(figure, _)| figure.cpus).collect();
    let asked: Vec<String> = wanted.cpus.iter().map(ToString::to_string).collect();
    let of = format!("of {} CPUs there", asked.join(", "));
    nothing_of(&of, cpus.iter().map(ToString::to_string))
}

/// Says that nothing is published of something, and of what else there is something.
fn nothing_of(asked: &str, known: impl Iterator<Item = String>) -> String {
    let known: Vec<String> = known.filter(|one| !one.is_empty()).collect();
    let mut each = Vec::new();
    for one in known {
        if !each.contains(&one) {
            each.push(one);
        }
    }
    format!("nothing is published {asked}; there is {}", each.join(", "))
}

#[cfg(test)]
mod tests {
    use schedlab_report::published;

    use super::*;
    use crate::evaluate::{Cell, Row as Line, Summary};

    fn figures() -> Vec<Figure> {
        published::read(published::BUILTIN_NAME, published::BUILTIN).unwrap()
    }

    fn asked(workload: &str, scheduler: Option<&str>, machine: Option<&str>) -> Rows {
        let wanted = Wanted {
            workloads: workload.split_whitespace().map(str::to_owned).collect(),
            scheduler: scheduler.map(Scheduler::parse),
            machine: machine.map(str::to_owned),
            cpus: Vec::new(),
        };
        Rows::of(&figures(), &wanted).unwrap()
    }

    fn refused(workload: &str) -> String {
        let wanted = Wanted {
            workloads: vec![workload.to_owned()],
            ..Wanted::default()
        };
        Rows::of(&figures(), &wanted).unwrap_err()
    }

    /// By the study's name of the scheduler and by ours.
    #[test]
    fn what_a_profile_is_calibrated_on_can_be_shown() {
        for name in Machine::builtin_names() {
            for row in Machine::builtin(name).unwrap().calibrated_on {
                let found = asked(&row.workload, Some(&row.scheduler), Some(name));
                let [runs] = &found.experiment.runs[..] else {
                    panic!("{row}");
                };
                for &cpus in &row.cpus {
                    assert!(runs.cpus.contains(&(cpus as usize)), "{row}: {cpus}");
                }
                for metric in &row.metrics {
                    let mut rows = found.rows.iter();
                    assert!(rows.any(|row| row.figure.metric == *metric), "{row}");
                }
                let ours = Scheduler::parse(&runs.schedulers[0]).name;
                let again = asked(&row.workload, Some(&ours), Some(name));
                let same = |again: &Runs| again.workloads == runs.workloads;
                assert!(again.experiment.runs.iter().any(same), "{row}");
            }
        }
    }

    #[test]
    fn what_is_asked_for_is_found_and_the_rest_is_named() {
        let all = asked("", None, None);
        let left_out: usize = all.left_out.values().map(Vec::len).sum();
        assert_eq!(all.rows.len() + left_out, figures().len());
        let text = all.text(&[], 80);
        let volano = "! 3 published figures not simulated, without a machine or a number of CPUs:";
        assert!(text.contains(volano), "{text}");

        let workloads = |rows: Rows| -> Vec<String> {
            let runs = rows.experiment.runs.into_iter();
            runs.flat_map(|runs| runs.workloads).collect()
        };
        let found = asked("chat:messages=200,rooms=20", None, None);
        assert_eq!(workloads(found), ["chat:rooms=20,messages=200"]);
        let found = asked("canneal:pin=true", Some("cfs"), None);
        assert_eq!(workloads(found), ["canneal:pin=true"]);
        assert_eq!(workloads(asked("chat", None, None)).len(), 9);
        let own = asked("tpch", Some("dss:ties=list"), None).experiment.runs;
        assert_eq!(own[0].schedulers, ["dss:ties=list"]);
        assert_eq!(own[0].published_as[0].scheduler, "dss:ties=list");
        // A profile in a file has the rows of the machine that it names.
        let file = "../../docs/experiments/model/2026-11-28-netfinity-8500r.toml";
        let found = asked("", None, Some(file));
        assert_eq!(found.rows.len(), 97);
        assert!(found.rows.iter().all(|row| row.machine == file));

        let names = refused("chaat");
        assert!(names.starts_with("nothing is published of the workload chaat; there is "));
        assert!(names.contains("blackscholes"), "{names}");
        assert!(refused("volano").contains("without a machine"));
    }

    #[test]
    fn distances_are_sums_of_logarithms() {
        let text = "study,machine,workload,parameters,scheduler,cpus,metric,value
s,m,chat,rooms=1,D,1,hold_mean,10
s,m,chat,rooms=1,D,2,hold_mean,10
s,m,chat,rooms=2,D,1,hold_mean,8
s,m,chat,rooms=2,D,1,contention_pct,0
s,m,tpch,,D,1,contention_pct,0
s,m,tpch,,D,2,contention_pct,5
s,m,tpch,,D,3,contention_pct,5
s,m,tpch,,D,1,hold_mean,5";
        let rows = published::read("f", text).unwrap();
        let rows = Rows::of(&rows, &Wanted::default()).unwrap();
        let cell = |median: &Option<f64>| Cell {
            simulated: median.map(|median| Summary {
                median,
                low: 0.0,
                high: 1e9,
                seeds: 3,
            }),
            ..Cell::default()
        };
        let panel = |workload: &str, metric: &str, medians: &[Option<f64>]| Panel {
            workload: workload.into(),
            machine: "m".into(),
            heading: Metric::find(metric).unwrap().heading.into(),
            columns: (1..=medians.len()).map(|cpus| cpus as f64).collect(),
            rows: vec![Line {
                scheduler: "d".into(),
                cells: medians.iter().map(cell).collect(),
            }],
            ..Panel::default()
        };
        let panels = [
            panel("chat:rooms=1", "hold_mean", &[Some(20.0), Some(13.0)]),
            panel("chat:rooms=2", "hold_mean", &[Some(2.0)]),
            panel("chat:rooms=2", "contention_pct", &[Some(0.0)]),
            // Infinite, negative, and not there at all.
            panel("tpch", "contention_pct", &[Some(3.0), Some(-5.0), None]),
        ];
        // ln 2 = 0.69, ln 1.3 = 0.26, ln 4 = 1.39; 0 beside 0 is equal.
        let expected = "\
Share of the published figures that the simulated ones are near to, and the
median factor

                 figures   1.3x   1.5x     2x  median  distance
lock holds             4   25 %   25 %   50 %    3.00      2.34
lock contention        4   25 %   25 %   25 %     inf      0.00
chat                   4   50 %   50 %   75 %    1.65      2.34
  rooms=1              2   50 %   50 %  100 %    1.65      0.96
  rooms=2              2   50 %   50 %   50 %    2.50      1.39
tpch                   4    0 %    0 %    0 %     inf      0.00
all                    8   25 %   25 %   38 %     inf      2.34

distance: the sum of |ln(simulated / published)| over the figures, 0.69 for each
  that is twice or half as large
4 of 8 aims met (contention within 10 points, means within a factor of 1.5,
  maxima within one of 3)
! 4 published figures without a distance, since the simulated or the published
  one is missing, 0 or below: tpch contention_pct on 1 CPU; tpch contention_pct
  on 2 CPUs; tpch contention_pct on 3 CPUs; tpch hold_mean on 1 CPU
";
        let text = rows.text(&panels, 80);
        assert_eq!(text, expected, "\n{text}");
    }
}
