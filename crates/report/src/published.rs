//! Figures that were published of real machines, and simulated ones beside them.
//!
//! The figures are rows of a CSV file (`published/default-scheduler.csv`; its README names the studies). A
//! row is compared with the median over seeds of the measure that it is of. The aims are the project's: they
//! say when a miss is marked, and nothing is tuned by them here.

use serde::Deserialize;

use crate::{RunResult, stats};

/// The figures that come with schedlab.
pub const BUILTIN: &str = include_str!("../../../published/default-scheduler.csv");
/// Their file.
pub const BUILTIN_NAME: &str = "published/default-scheduler.csv";

const HEADER: &str = "study,machine,workload,parameters,scheduler,cpus,metric,value";

/// One published figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// The publisher.
    pub study: String,
    /// Machine profile; empty where the study names no machine.
    pub machine: String,
    /// The workload with its options, as it is asked for.
    pub workload: String,
    /// The study's name of the scheduler.
    pub scheduler: String,
    /// Number of CPUs.
    pub cpus: Option<u32>,
    /// The study's name of the measure.
    pub metric: String,
    /// In the unit that the metric has (times in µs unless named).
    pub value: f64,
}

/// A line that is no figure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FigureError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The fault and the remedy.
    pub message: String,
}

impl std::fmt::Display for FigureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for FigureError {}

/// Reads a file of figures.
///
/// # Errors
/// The first line that is no figure.
pub fn read(file: &str, text: &str) -> Result<Vec<Figure>, FigureError> {
    let error = |line: usize, message: String| FigureError {
        file: file.to_owned(),
        line,
        message,
    };
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let header = match reader.headers() {
        Ok(header) if header.iter().eq(HEADER.split(',')) => header.clone(),
        _ => return Err(error(1, format!("the first line must be `{HEADER}`"))),
    };
    let mut figures = Vec::new();
    let mut record = csv::StringRecord::new();
    loop {
        let (at, rest) = (reader.position().line(), reader.position().byte());
        // Empty lines before a record are read with it.
        let empty = text[rest as usize..]
            .bytes()
            .take_while(|&byte| byte == b'\n' || byte == b'\r');
        let line = at as usize + empty.filter(|&byte| byte == b'\n').count();
        match reader.read_record(&mut record) {
            Ok(false) => return Ok(figures),
            Ok(true) => {}
            Err(wrong) => return Err(error(line, said(&wrong))),
        }
        let row: Row<'_> = record
            .deserialize(Some(&header))
            .map_err(|wrong| error(line, said(&wrong)))?;
        figures.push(row.figure().map_err(|message| error(line, message))?);
    }
}

/// A line of a file of figures.
#[derive(Deserialize)]
struct Row<'a> {
    study: &'a str,
    machine: &'a str,
    workload: &'a str,
    parameters: &'a str,
    scheduler: &'a str,
    cpus: &'a str,
    metric: &'a str,
    value: &'a str,
}

impl Row<'_> {
    fn figure(&self) -> Result<Figure, String> {
        let cpus = match self.cpus {
            "" => None,
            cpus => Some(
                cpus.parse()
                    .map_err(|_| format!("`{cpus}` is not a number of CPUs"))?,
            ),
        };
        let value: f64 = self
            .value
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite())
            .ok_or_else(|| format!("`{}` is not a number", self.value))?;
        let options = self.parameters.replace(' ', ",");
        Ok(Figure {
            study: self.study.to_owned(),
            machine: self.machine.to_owned(),
            workload: if options.is_empty() {
                self.workload.to_owned()
            } else {
                format!("{}:{options}", self.workload)
            },
            scheduler: self.scheduler.to_owned(),
            cpus,
            metric: self.metric.to_owned(),
            value,
        })
    }
}

/// Returns the fault of a line, without the place, which the caller adds.
fn said(wrong: &csv::Error) -> String {
    match wrong.kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => format!("{len} fields instead of {expected_len}"),
        _ => wrong.to_string(),
    }
}

/// When a simulated figure is near enough.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Aim {
    /// At most so much more or less.
    Points(f64),
    /// At most so many times more or less.
    Factor(f64),
}

impl Aim {
    fn is_met(self, published: f64, simulated: f64) -> bool {
        match self {
            Aim::Points(points) => (simulated - published).abs() <= points,
            Aim::Factor(factor) => {
                simulated <= published * factor && simulated * factor >= published
            }
        }
    }
}

/// Where a metric's simulated figure comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Origin {
    /// A measure divided by this.
    Measure(&'static str, f64),
    /// How many times as good the score is as the one on 2 CPUs with the same seed.
    Speedup,
}

/// A metric that published and simulated figures share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Metric {
    /// For people, with the unit.
    pub heading: &'static str,
    names: &'static [&'static str],
    origin: Origin,
    /// `None`: shown without an aim.
    pub aim: Option<Aim>,
}

const fn metric(
    heading: &'static str,
    names: &'static [&'static str],
    origin: Origin,
    aim: Option<Aim>,
) -> Metric {
    Metric {
        heading,
        names,
        origin,
        aim,
    }
}

const MEAN: Option<Aim> = Some(Aim::Factor(1.5));
const MAX: Option<Aim> = Some(Aim::Factor(3.0));

/// All metrics that can be compared, in the order in which they are shown.
pub const METRICS: &[Metric] = &[
    metric(
        "speedup over 2 CPUs",
        &["speedup_vs_2way", "peak_speedup_vs_2way"],
        Origin::Speedup,
        None,
    ),
    metric(
        "lock contention, %",
        &["contention_pct"],
        Origin::Measure("lock.runqueue.contention_pct", 1.0),
        Some(Aim::Points(10.0)),
    ),
    metric(
        "mean hold, µs",
        &["hold_mean"],
        Origin::Measure("lock.runqueue.hold_ns_mean", 1e3),
        MEAN,
    ),
    metric(
        "longest hold, µs",
        &["hold_max"],
        Origin::Measure("lock.runqueue.hold_ns_max", 1e3),
        MAX,
    ),
    metric(
        "mean wait, µs",
        &["wait_mean"],
        Origin::Measure("lock.runqueue.wait_ns_mean", 1e3),
        MEAN,
    ),
    metric(
        "longest wait, µs",
        &["wait_max"],
        Origin::Measure("lock.runqueue.wait_ns_max", 1e3),
        MAX,
    ),
    metric(
        "mean run queue",
        &["runqueue_mean"],
        Origin::Measure("runqueue.len_mean", 1.0),
        None,
    ),
    metric(
        "longest run queue",
        &["runqueue_max"],
        Origin::Measure("runqueue.len_max", 1.0),
        None,
    ),
    metric(
        "calls of schedule()",
        &["schedule_calls"],
        Origin::Measure("schedule.calls", 1.0),
        None,
    ),
    metric(
        "completion, s",
        &["completion_s"],
        Origin::Measure("makespan_ns", 1e9),
        None,
    ),
    metric(
        "context switch, µs",
        &["switch_us"],
        Origin::Measure("switch_ns", 1e3),
        None,
    ),
    metric(
        "tasks examined per call",
        &[],
        Origin::Measure("schedule.examined_mean", 1.0),
        None,
    ),
    metric("score", &[], Origin::Measure("score", 1.0), None),
];

impl Metric {
    /// Returns the metric that a study names so.
    pub fn find(name: &str) -> Option<&'static Metric> {
        METRICS.iter().find(|metric| metric.names.contains(&name))
    }

    /// Returns the measure that it is of, and what that is divided by to have the metric's unit.
    pub fn measure(&self) -> (&'static str, f64) {
        match self.origin {
            Origin::Measure(name, scale) => (name, scale),
            Origin::Speedup => ("score", 1.0),
        }
    }

    /// Returns whether it is published in relation to 2 CPUs.
    pub fn is_speedup(&self) -> bool {
        self.origin == Origin::Speedup
    }

    /// Returns whether its unit is the workload's.
    pub fn is_score(&self) -> bool {
        matches!(self.origin, Origin::Measure("score", _))
    }

    /// Returns whether it says how fast the workload is, and not only in relation to another run.
    pub fn is_performance(&self) -> bool {
        let (name, _) = self.measure();
        !self.is_speedup() && ["score", "makespan_ns", "switch_ns"].contains(&name)
    }

    /// Returns the kind of figures that it belongs to, as [`accuracy`] counts them.
    pub fn family(&self) -> &'static str {
        match self.measure().0 {
            "lock.runqueue.contention_pct" => "lock contention",
            "lock.runqueue.hold_ns_mean" | "lock.runqueue.hold_ns_max" => "lock holds",
            "lock.runqueue.wait_ns_mean" | "lock.runqueue.wait_ns_max" => "lock waits",
            "runqueue.len_mean" | "runqueue.len_max" => "run queue",
            "schedule.calls" | "schedule.examined_mean" => "calls of schedule()",
            _ => "throughput",
        }
    }

    /// Returns its value of each run on so many CPUs that ended as it should and has one; not finite where a speedup
    /// is not.
    fn values(&self, runs: &[RunResult], cpus: u32) -> Vec<f64> {
        let on = |cpus: u32| {
            runs.iter()
                .filter(move |run| run.cpus == cpus && run.is_done())
        };
        match self.origin {
            Origin::Measure(name, scale) => on(cpus)
                .filter_map(|run| Some(run.measures.number(name)? / scale))
                .collect(),
            Origin::Speedup => on(cpus)
                .filter_map(|run| {
                    let base = on(2).find(|base| base.seed == run.seed)?;
                    speedup(run, base)
                })
                .collect(),
        }
    }
}

/// Returns how many times as good a run's score is as another run's: half the time is twice as good. `None` if one of
/// them has no score; infinite or NaN if the divisor is 0.
pub fn speedup(run: &RunResult, base: &RunResult) -> Option<f64> {
    let score = |run: &RunResult| run.measures.number("score");
    let (mine, base) = (score(run)?, score(base)?);
    Some(match run.less_is_better() {
        true => base / mine,
        false => mine / base,
    })
}

/// A metric on one number of CPUs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Compared {
    /// Number of CPUs.
    pub cpus: u32,
    /// The published value.
    pub published: Option<f64>,
    /// The median of the simulated runs.
    pub simulated: Option<f64>,
    /// Runs that ended as they should and are not in it: they have no such measure, though others have, or it would be in
    /// relation to a run that failed or did nothing.
    pub without: usize,
    /// The lowest and the highest of them, where there are several.
    pub spread: Option<(f64, f64)>,
    /// Whether the aim is met, where there is one and both figures are known.
    pub met: Option<bool>,
}

/// Compares the figures (of one workload, machine and scheduler) with simulated runs of it: each metric on
/// each number of CPUs that was simulated. Metrics without any figure on either side are left out.
pub fn compare(figures: &[Figure], runs: &[RunResult]) -> Vec<(&'static Metric, Vec<Compared>)> {
    let mut all_cpus: Vec<u32> = runs.iter().map(|run| run.cpus).collect();
    all_cpus.sort_unstable();
    all_cpus.dedup();
    let compare_one = |metric: &Metric, cpus: u32| {
        let published = figures
            .iter()
            .find(|figure| {
                figure.cpus == Some(cpus) && metric.names.contains(&figure.metric.as_str())
            })
            .map(|figure| figure.value);
        let mut values = metric.values(runs, cpus);
        let ended = || runs.iter().filter(|run| run.cpus == cpus && run.is_done());
        // In relation to runs that were asked for, even where all of those failed.
        let has_base = || {
            metric.is_speedup()
                && runs.iter().any(|run| run.cpus == 2)
                && ended().any(|run| run.measures.number("score").is_some())
        };
        let is_measured = !values.is_empty() || has_base();
        values.retain(|value| value.is_finite());
        let without = match is_measured {
            true => ended().count() - values.len(),
            false => 0,
        };
        let simulated = stats::median(&values);
        values.sort_by(f64::total_cmp);
        let spread = match values.as_slice() {
            [low, .., high] => Some((*low, *high)),
            _ => None,
        };
        let met = metric
            .aim
            .zip(published.zip(simulated))
            .map(|(aim, (published, simulated))| aim.is_met(published, simulated));
        Compared {
            cpus,
            published,
            simulated,
            without,
            spread,
            met,
        }
    };
    METRICS
        .iter()
        .map(|metric| {
            let row: Vec<_> = all_cpus
                .iter()
                .map(|&cpus| compare_one(metric, cpus))
                .collect();
            (metric, row)
        })
        .filter(|(metric, row)| {
            let published = row.iter().any(|cell| cell.published.is_some());
            let simulated = row.iter().any(|cell| cell.simulated.is_some());
            // A value of this workload without a published counterpart is shown only where it explains the rest.
            published
                || (simulated
                    && matches!(
                        metric.origin,
                        Origin::Measure(
                            "schedule.examined_mean" | "score" | "runqueue.len_mean",
                            _
                        )
                    ))
        })
        .collect()
}

/// Distances of simulated figures from the published ones of one kind.
#[derive(Clone, PartialEq, Debug)]
pub struct Accuracy {
    /// The kind of figures.
    pub of: String,
    /// The larger one divided by the smaller one, of each published figure.
    factors: Vec<f64>,
}

impl Accuracy {
    /// Returns the number of published figures.
    pub fn figures(&self) -> usize {
        self.factors.len()
    }

    /// Returns the share of figures that are at most `factor` times too large or too small, in percent.
    pub fn within_pct(&self, factor: f64) -> f64 {
        let near = self.factors.iter().filter(|&&one| one <= factor).count();
        near as f64 * 100.0 / self.factors.len() as f64
    }

    /// Returns the median of the factors; infinite if most figures have no simulated value.
    pub fn median(&self) -> f64 {
        stats::median(&self.factors).unwrap_or(f64::INFINITY)
    }
}

/// Counts how near simulated figures are to published ones: by kind of figure, by workload, and all together.
///
/// A figure without a simulated value, and a pair of which one is 0, is infinitely far away.
pub fn accuracy<'a>(
    compared: impl IntoIterator<Item = (&'a str, &'a Metric, &'a [Compared])>,
) -> Vec<Accuracy> {
    let (mut families, mut workloads) = (Vec::new(), Vec::new());
    let mut all = Accuracy {
        of: "all".to_owned(),
        factors: Vec::new(),
    };
    let add = |kinds: &mut Vec<Accuracy>, of: &str, factor: f64| match kinds
        .iter_mut()
        .find(|kind| kind.of == of)
    {
        Some(kind) => kind.factors.push(factor),
        None => kinds.push(Accuracy {
            of: of.to_owned(),
            factors: vec![factor],
        }),
    };
    for (workload, metric, cells) in compared {
        for cell in cells {
            let Some(published) = cell.published else {
                continue;
            };
            let factor = match cell.simulated {
                Some(simulated) if simulated == published => 1.0,
                Some(simulated) => {
                    let ratio = simulated / published;
                    // NaN, of a negative or no quotient, counts as far away.
                    ratio.max(1.0 / ratio)
                }
                None => f64::INFINITY,
            };
            add(&mut families, metric.family(), factor);
            add(&mut workloads, workload, factor);
            all.factors.push(factor);
        }
    }
    families.extend(workloads);
    families.push(all);
    families
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Measures;

    #[test]
    fn accuracy_counts_factors_by_kind_and_workload() {
        let cell = |published, simulated| Compared {
            cpus: 2,
            published,
            simulated,
            without: 0,
            spread: None,
            met: None,
        };
        let holds = [
            cell(Some(10.0), Some(13.0)),
            cell(Some(13.0), Some(10.0)),
            cell(Some(10.0), Some(25.0)),
            cell(None, Some(1.0)),
        ];
        let contention = [cell(Some(0.0), Some(1.0)), cell(Some(5.0), None)];
        let found = accuracy([
            ("chat", Metric::find("hold_mean").unwrap(), &holds[..]),
            (
                "tpch",
                Metric::find("contention_pct").unwrap(),
                &contention[..],
            ),
            ("tpch", Metric::find("hold_max").unwrap(), &holds[..1]),
        ]);
        let of = |name: &str| found.iter().find(|one| one.of == name).unwrap();
        assert_eq!(of("lock holds").figures(), 4);
        assert_eq!(of("lock holds").within_pct(1.3), 75.0);
        assert_eq!(of("lock holds").within_pct(2.5), 100.0);
        assert_eq!(of("lock holds").median(), 1.3);
        assert_eq!(of("lock contention").within_pct(1_000.0), 0.0);
        assert_eq!(of("chat").figures(), 3);
        assert_eq!(of("tpch").figures(), 3);
        assert_eq!((of("all").figures(), of("all").within_pct(2.0)), (6, 50.0));
    }

    #[test]
    fn the_built_in_figures_are_read() {
        let figures = read(BUILTIN_NAME, BUILTIN).unwrap();
        assert_eq!(figures.len() + 1, BUILTIN.lines().count());
        let figure = figures
            .iter()
            .find(|figure| figure.metric == "hold_mean" && figure.workload.starts_with("chat"))
            .unwrap();
        assert_eq!(figure.workload, "chat:rooms=20,messages=200");
        assert_eq!((figure.cpus, figure.value), (Some(2), 15.0));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let read = |lines: &str| {
            read("f.csv", &format!("{HEADER}\n{lines}"))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(read("a,b"), "f.csv:2: 2 fields instead of 8");
        assert_eq!(
            read("s,m,w,p,d,2,x,1\n\ns,m,w,p,d,two,x,1"),
            "f.csv:4: `two` is not a number of CPUs"
        );
        assert_eq!(read("s,m,w,p,d,2,x,NaN"), "f.csv:2: `NaN` is not a number");
        assert!(
            super::read("f.csv", "")
                .unwrap_err()
                .message
                .contains("first line")
        );
    }

    #[test]
    fn a_field_may_be_quoted() {
        let row = r#"s,m,w,"a=1,b=2","d ""old""",2,x,"1""#;
        let text = format!("{HEADER}\n\"of\ntwo lines\",m,w,,d,,x,1\n{row}\n");
        let figures = read("f.csv", &text).unwrap();
        assert_eq!(figures[0].study, "of\ntwo lines");
        assert_eq!(figures[1].workload, "w:a=1,b=2");
        assert_eq!(figures[1].scheduler, "d \"old\"");
        for text in [text.clone(), text.replace('\n', "\r\n")] {
            let wrong = read("f.csv", &format!("{text}s,m,w,,d,,x,one\n")).unwrap_err();
            assert_eq!(wrong.to_string(), "f.csv:5: `one` is not a number");
        }
    }

    #[test]
    fn aims() {
        assert!(Aim::Points(10.0).is_met(50.0, 60.0));
        assert!(!Aim::Points(10.0).is_met(50.0, 39.9));
        assert!(Aim::Factor(1.5).is_met(10.0, 15.0));
        assert!(Aim::Factor(1.5).is_met(15.0, 10.0));
        assert!(!Aim::Factor(1.5).is_met(10.0, 15.1));
        assert!(!Aim::Factor(1.5).is_met(15.1, 10.0));
    }

    fn run(cpus: u32, seed: u64, score: f64, hold_ns: f64) -> RunResult {
        let mut measures = Measures::default();
        measures.float("score", score);
        measures.float("lock.runqueue.hold_ns_mean", hold_ns);
        RunResult {
            workload: "chat".into(),
            asked: "chat".into(),
            scheduler: "a".into(),
            machine: "m".into(),
            cpus,
            seed,
            exit: crate::Exit::Done,
            measures,
            ..RunResult::default()
        }
    }

    #[test]
    fn runs_without_a_value_are_counted() {
        let runs = [
            run(2, 1, 0.0, 9_000.0),
            run(2, 2, 200.0, 9_000.0),
            run(2, 3, 300.0, 9_000.0),
            run(8, 1, 50.0, 9_000.0),
            run(8, 2, 0.0, 9_000.0),
            run(8, 3, 60.0, 9_000.0),
            // Its base is not there.
            run(8, 4, 60.0, 9_000.0),
        ];
        let figures = read("f", &format!("{HEADER}\ns,m,chat,,D,8,speedup_vs_2way,0.5")).unwrap();
        let speedup = |runs: &[RunResult]| {
            let compared = compare(&figures, runs);
            let mut found = compared.iter();
            let found = found.find(|(metric, _)| metric.is_speedup());
            let cell = |cell: &Compared| (cell.simulated, cell.spread, cell.without);
            found.unwrap().1.iter().map(cell).collect::<Vec<_>>()
        };
        // Nothing is 0 times as good as something, and nothing is in relation to it.
        assert_eq!(
            speedup(&runs),
            [
                (Some(1.0), Some((1.0, 1.0)), 1),
                (Some(0.1), Some((0.0, 0.2)), 2)
            ]
        );
        let times = runs.clone().map(|mut run| {
            run.measures.text("score_better", "lower");
            run
        });
        assert_eq!(speedup(&times)[1], (Some(2.5), Some((0.0, 5.0)), 2),);
        // Each has one of the score itself, and of a measure without published values nothing is missing.
        for (metric, cells) in compare(&figures, &runs) {
            let without = cells.iter().map(|cell| cell.without).sum::<usize>();
            assert_eq!(without, if metric.is_speedup() { 3 } else { 0 });
        }
        // That all bases failed is no reason to say nothing.
        let mut failed = runs.clone();
        for run in failed.iter_mut().filter(|run| run.cpus == 2) {
            run.exit = crate::Exit::ErrorStall;
        }
        assert_eq!(speedup(&failed), [(None, None, 0), (None, None, 4)]);
        assert_eq!(speedup(&runs[3..]), [(None, None, 0)]);
        let mut scoreless = runs;
        for run in &mut scoreless {
            run.measures = Measures::default();
        }
        assert_eq!(speedup(&scoreless), [(None, None, 0); 2]);
        scoreless[0].measures.float("score", 1.0);
        let compared = compare(&figures, &scoreless);
        let (_, score) = compared
            .iter()
            .find(|(metric, _)| metric.is_score())
            .unwrap();
        assert_eq!((score[0].without, score[1].without), (2, 0));
    }

    #[test]
    fn medians_over_seeds_stand_beside_what_was_published() {
        let text = format!(
            "{HEADER}\ns,m,chat,,D,2,hold_mean,10\ns,m,chat,,D,8,hold_mean,20\ns,m,chat,,D,8,speedup_vs_2way,0.5"
        );
        let figures = read("f", &text).unwrap();
        let runs = [
            run(2, 1, 100.0, 9_000.0),
            run(2, 2, 200.0, 11_000.0),
            run(2, 3, 300.0, 20_000.0),
            run(8, 1, 50.0, 60_000.0),
            run(8, 2, 120.0, 60_000.0),
            run(8, 3, 30.0, 60_000.0),
        ];
        let compared = compare(&figures, &runs);
        let row = |heading: &str| {
            let found = compared
                .iter()
                .find(|(metric, _)| metric.heading == heading);
            found.unwrap().1.clone()
        };
        let cell = |cpus, published, simulated, spread, met| Compared {
            cpus,
            published,
            simulated: Some(simulated),
            without: 0,
            spread: Some(spread),
            met,
        };
        assert_eq!(
            row("mean hold, µs"),
            [
                cell(2, Some(10.0), 11.0, (9.0, 20.0), Some(true)),
                cell(8, Some(20.0), 60.0, (60.0, 60.0), Some(false)),
            ]
        );
        // Per seed 0.5, 0.6 and 0.1.
        assert_eq!(
            row("speedup over 2 CPUs"),
            [
                cell(2, None, 1.0, (1.0, 1.0), None),
                cell(8, Some(0.5), 0.5, (0.1, 0.6), None)
            ]
        );
        assert_eq!(row("score")[1].simulated, Some(50.0));
        assert_eq!(compare(&figures, &runs[..1])[0].1[0].spread, None);
        let times = runs.map(|mut run| {
            run.measures.text("score_better", "lower");
            run
        });
        let compared = compare(&figures, &times);
        let (_, speedup) = compared
            .iter()
            .find(|(metric, _)| metric.is_speedup())
            .unwrap();
        // A time of 50 instead of 100 is twice as good; 2, 200 / 120 and 10.
        assert_eq!(speedup[0].simulated, Some(1.0));
        assert_eq!(speedup[1].simulated, Some(2.0));
        assert!(
            compared
                .iter()
                .all(|(metric, _)| metric.heading != "completion, s")
        );
    }
}
