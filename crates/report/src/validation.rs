//! Real runs beside simulations of the same workload: each measure that both have, and by how much the simulation errs.
//!
//! A cell holds medians over the runs that are done. The error of a simulation is its median divided by the real one.
//! The aims are the project's: they decide when a row counts as met, and nothing is tuned by them here.

use crate::stats::{self, Interval};
use crate::{RunResult, Value};

/// A measure that a real kernel and the simulator both have.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measure {
    /// Its name in results.
    pub name: &'static str,
    /// Its name for readers.
    pub heading: &'static str,
    /// The largest factor, in either direction, at which a simulation counts as right; `None` where none was set.
    pub aim: Option<f64>,
}

const fn measure(name: &'static str, heading: &'static str, aim: Option<f64>) -> Measure {
    Measure { name, heading, aim }
}

/// The measures that are compared, in the order in which they are shown.
pub const MEASURES: [Measure; 7] = [
    measure("score", "score", Some(1.1)),
    measure("switches.total", "switches", Some(1.15)),
    measure("switches.involuntary", "involuntary", None),
    measure("migrations.total", "migrations", None),
    measure("wakeup.latency_ns_p50", "wakeup p50", Some(1.3)),
    measure("wakeup.latency_ns_p99", "wakeup p99", Some(2.0)),
    measure("runqueue.len_mean", "queue, mean", None),
];

/// The median of one measure over the simulations under one scheduler.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Simulated {
    /// The median.
    pub value: f64,
    /// The median divided by the real one; `None` where that is 0.
    pub ratio: Option<f64>,
    /// Whether the ratio is within the measure's aim; `None` where there is no aim or no ratio.
    pub met: Option<bool>,
}

/// One measure of one workload in both worlds.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The measure.
    pub measure: Measure,
    /// The unit of its values: that of the score, `ns`, or nothing.
    pub unit: String,
    /// The median of the real runs.
    pub real: f64,
    /// Its 95 % interval; `None` below six runs.
    pub interval: Option<Interval>,
    /// The simulations, in the order of the schedulers; `None` where the measure is absent.
    pub simulated: Vec<Option<Simulated>>,
}

/// Compares real runs of one workload with its simulations, one list of runs for each scheduler. Runs that failed do not
/// count; a measure without a real value has no row.
pub fn compare(real: &[RunResult], simulated: &[Vec<RunResult>]) -> Vec<Row> {
    let rows = MEASURES.iter().filter_map(|&measure| {
        let values = values(real, measure.name);
        let real_median = stats::median(&values)?;
        let simulated = simulated.iter().map(|runs| {
            Some(judge(
                measure,
                stats::median(&self::values(runs, measure.name))?,
                real_median,
            ))
        });
        Some(Row {
            measure,
            unit: unit(real, measure.name),
            real: real_median,
            interval: stats::median_interval(&values),
            simulated: simulated.collect(),
        })
    });
    rows.collect()
}

fn judge(measure: Measure, value: f64, real: f64) -> Simulated {
    let ratio = match (value, real) {
        // Neither world has any: the simulation is right.
        (0.0, 0.0) => Some(1.0),
        (_, 0.0) => None,
        _ => Some(value / real),
    };
    let met = measure.aim.zip(ratio).map(|(aim, ratio)| {
        // Of a ratio of 0 the inverse is infinite.
        ratio.max(ratio.recip()) <= aim
    });
    Simulated { value, ratio, met }
}

fn values(runs: &[RunResult], name: &str) -> Vec<f64> {
    let done = runs.iter().filter(|run| run.is_done());
    done.filter_map(|run| run.measures.get(name)?.number())
        .collect()
}

fn unit(runs: &[RunResult], name: &str) -> String {
    let is_time = name.contains("_ns");
    let text = |run: &RunResult| match run.measures.get("score_unit") {
        Some(Value::Text(unit)) => Some(unit.clone()),
        _ => None,
    };
    match name {
        "score" => runs.iter().find_map(text).unwrap_or_default(),
        _ if is_time => "ns".to_owned(),
        _ => String::new(),
    }
}

/// How many workloads are within a measure's aim under one scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Within the aim.
    pub met: usize,
    /// That have a real value; those without a simulated one are among them.
    pub of: usize,
}

/// Counts, for the `scheduler`-th scheduler, how many of `tables` (one of each workload) meet the aim of `measure`.
pub fn tally(tables: &[Vec<Row>], measure: &Measure, scheduler: usize) -> Tally {
    let rows = tables
        .iter()
        .flatten()
        .filter(|row| row.measure == *measure);
    rows.fold(Tally::default(), |tally, row| {
        let simulated = row.simulated.get(scheduler).copied().flatten();
        let met = simulated.and_then(|one| one.met) == Some(true);
        Tally {
            met: tally.met + usize::from(met),
            of: tally.of + 1,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Exit;

    fn run(exit: Exit, measures: &[(&str, f64)]) -> RunResult {
        let mut run = RunResult {
            exit,
            ..RunResult::default()
        };
        for &(name, value) in measures {
            run.measures.float(name, value);
        }
        run.measures.text("score_unit", "ns");
        run
    }

    fn of(values: &[f64], name: &str) -> Vec<RunResult> {
        values
            .iter()
            .map(|&value| run(Exit::Done, &[(name, value)]))
            .collect()
    }

    /// By hand: medians 100 and 89, 111, 50; a ratio of 0.89 errs by 1/0.89 = 1.124.
    #[test]
    fn an_error_counts_in_either_direction() {
        let real = of(&[90.0, 100.0, 130.0], "score");
        let simulated = [
            of(&[89.0], "score"),
            of(&[109.0, 111.0, 400.0], "score"),
            of(&[109.0], "score"),
        ];
        let rows = compare(&real, &simulated);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].real, rows[0].unit.as_str()), (100.0, "ns"));
        let cells: Vec<_> = rows[0]
            .simulated
            .iter()
            .flatten()
            .map(|one| (one.value, one.ratio, one.met))
            .collect();
        assert_eq!(
            cells,
            [
                (89.0, Some(0.89), Some(false)),
                (111.0, Some(1.11), Some(false)),
                (109.0, Some(1.09), Some(true)),
            ]
        );
        assert_eq!(
            tally(std::slice::from_ref(&rows), &MEASURES[0], 0),
            Tally { met: 0, of: 1 }
        );
        assert_eq!(tally(&[rows], &MEASURES[0], 2), Tally { met: 1, of: 1 });
    }

    #[test]
    fn what_is_absent_or_failed_is_no_value() {
        let mut real = of(&[10.0], "switches.total");
        real.push(run(
            Exit::Timeout,
            &[("switches.total", 1e9), ("score", 1.0)],
        ));
        let rows = compare(&real, &[Vec::new(), of(&[10.0], "score")]);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0].real, 10.0);
        assert_eq!(rows[0].simulated, [None, None]);
        assert_eq!(tally(&[rows], &MEASURES[1], 0), Tally { met: 0, of: 1 });
    }

    #[test]
    fn nothing_is_a_multiple_of_nothing() {
        let zero = judge(MEASURES[1], 0.0, 0.0);
        assert_eq!((zero.ratio, zero.met), (Some(1.0), Some(true)));
        let some = judge(MEASURES[1], 5.0, 0.0);
        assert_eq!((some.ratio, some.met), (None, None));
        let none = judge(MEASURES[1], 0.0, 5.0);
        assert_eq!((none.ratio, none.met), (Some(0.0), Some(false)));
    }
}
