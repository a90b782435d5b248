//! Figures that were published of real machines, and simulated ones beside them.
//!
//! The figures are rows of a CSV file (`published/default-scheduler.csv`; its README names the studies). A
//! row is compared with the median over seeds of the measure that it is of. The aims are the project's: they
//! are counted, and nothing is tuned by them here.

use serde::Deserialize;

use crate::RunResult;

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
    /// Returns whether a simulated figure is near enough to a published one.
    pub fn is_met(self, published: f64, simulated: f64) -> bool {
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

    /// Returns the kind of figures that it belongs to, as they are counted.
    pub fn family(&self) -> &'static str {
        match self.measure().0 {
            "lock.runqueue.contention_pct" => "lock contention",
            "lock.runqueue.hold_ns_mean" | "lock.runqueue.hold_ns_max" => "lock holds",
            "lock.runqueue.wait_ns_mean" | "lock.runqueue.wait_ns_max" => "lock waits",
            "runqueue.len_mean" | "runqueue.len_max" => "run queue",
            "schedule.calls" => "calls of schedule()",
            _ => "throughput",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Measures;

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

    #[test]
    fn a_speedup_is_how_many_times_as_good_a_score_is() {
        let run = |score: Option<f64>, better: &str| {
            let mut measures = Measures::default();
            if let Some(score) = score {
                measures.float("score", score);
            }
            measures.text("score_better", better);
            RunResult {
                measures,
                ..RunResult::default()
            }
        };
        let of = |mine, base, better| speedup(&run(mine, better), &run(base, better));
        assert_eq!(of(Some(50.0), Some(100.0), "higher"), Some(0.5));
        // Half the time is twice as good.
        assert_eq!(of(Some(50.0), Some(100.0), "lower"), Some(2.0));
        assert_eq!(of(Some(0.0), Some(100.0), "higher"), Some(0.0));
        assert_eq!(of(Some(1.0), Some(0.0), "higher"), Some(f64::INFINITY));
        assert_eq!(of(None, Some(1.0), "higher"), None);
        assert_eq!(of(Some(1.0), None, "higher"), None);
    }
}
