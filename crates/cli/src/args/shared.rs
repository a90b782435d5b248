//! Arguments that several commands share, and the parsers of their values.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, ValueHint};
use schedlab_sim::{KernelVersion, SimSpec};
use schedlab_trace::Duration;

/// How results are shown and where they go, besides the table
#[derive(Args, Debug, Default)]
pub struct ShowArgs {
    /// Measures to show instead of the usual columns, each with its interval; `wakeup.*` stands for all that begin so
    ///
    /// `schedlab list measures` shows all measures. Columns are in the order in which they are named here.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    pub measures: Vec<String>,
    /// Order the rows on each number of CPUs by a measure
    ///
    /// The better score comes first, and of other measures the lower value; `-MEASURE` is the opposite order. Scores
    /// are compared with the scheduler that is named first under -s, wherever its row is.
    #[arg(long, value_name = "MEASURE", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Write results as JSON; `-` for standard output instead of the table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Put measures over time into the JSON document, too
    #[arg(long, requires = "json")]
    pub series: bool,
    /// Write a row per run as CSV, with all measures or the ones of --measures; `-` for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,
}

/// Why runs differ
#[derive(Args, Debug, Default)]
pub struct WhyArgs {
    /// Write a page for a browser: the table, distributions, timelines, who waited for whom; `-` for standard output instead of the table
    ///
    /// The page needs no network (docs/why.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Say below the table why the runs differ: locks, choices, waits for a CPU, critical paths
    #[arg(long)]
    pub explain: bool,
}

impl WhyArgs {
    /// Returns whether runs are to be watched.
    pub fn is_asked(&self) -> bool {
        self.html.is_some() || self.explain
    }
}

/// Arguments that `sim` and `sweep` share
#[derive(Args, Debug)]
pub struct SimCommon {
    /// Seed for everything random
    #[arg(
        long,
        value_name = "SEED",
        default_value_t = 1,
        value_parser = seed,
        allow_negative_numbers = true
    )]
    pub seed: u64,
    /// Check the invariants during the run, and look for data races in a scheduler of your own (with clang)
    ///
    /// The invariants are checked over the run's events. For data races (docs/races.md), schedulers that are given by
    /// a path are compiled with clang (SCHEDLAB_CC overrides the one that is found), and each of their loads and
    /// stores is watched. Two accesses of the same memory race if one is a write, one is plain, and nothing orders
    /// them. Each race is reported with both lines. Results are the same; the run takes several times as long.
    #[arg(long)]
    pub check: bool,
    /// The scheduler of real-time tasks
    #[arg(long, value_enum, value_name = "WHO", default_value_t = Rt::Kernel)]
    pub rt: Rt,
    /// Which kernel's sched_ext is simulated
    #[arg(long, value_name = "VERSION", default_value = SimSpec::KERNEL, value_parser = PossibleValuesParser::new(KernelVersion::ALL.map(KernelVersion::name)))]
    pub kernel: String,
    /// Stop a run after so much simulated time: 90 (seconds), 500ms, 1.5min
    #[arg(long, value_name = "TIME", default_value_t = SimSpec::TIME_LIMIT, value_parser = limit, allow_negative_numbers = true)]
    pub time_limit: Duration,
    /// Runs at the same time [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), allow_negative_numbers = true)]
    pub jobs: Option<u16>,
}

/// The scheduler of real-time tasks in simulation
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rt {
    /// The real-time class, above the scheduler, as in a kernel
    Kernel,
    /// The scheduler itself
    Policy,
}

/// A number of runs, or a time
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BudgetArg {
    /// So many runs.
    Runs(u64),
    /// As many as this machine makes in that time.
    Time(Duration),
}

/// Reads a budget: a whole number alone is a number of runs.
pub fn budget(text: &str) -> Result<BudgetArg, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(runs) = text.parse()
    {
        return match runs {
            0 => Err("a budget is at least one run".to_owned()),
            runs => Ok(BudgetArg::Runs(runs)),
        };
    }
    match limit(text) {
        Ok(time) if !text.ends_with(|last: char| last.is_ascii_digit()) => {
            Ok(BudgetArg::Time(time))
        }
        _ => Err(
            "write a number of runs, as 300, or a time with its unit, as 90s or 10min".to_owned(),
        ),
    }
}

/// A workload as it was meant: without the space that keeps `-:duration=2` from being a flag.
pub fn workload(text: &str) -> Result<String, String> {
    Ok(text.trim().to_owned())
}

/// Reads a time of up to 11 days, in seconds where it names no unit.
pub fn time(text: &str) -> Result<Duration, String> {
    let time = Duration::parse(text, Duration::from_secs(1));
    let time = time.filter(|time| *time <= SimSpec::TIME_LIMIT_MAX);
    time.ok_or_else(|| {
        format!(
            "write a time up to {}, for example 90 (seconds), 500ms, 250us, 1.5min or 2h",
            SimSpec::TIME_LIMIT_MAX
        )
    })
}

/// Reads a bound on running time, which is not 0.
pub fn limit(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("write a time above 0, for example 500ms".to_owned()),
        limit => Ok(limit),
    }
}

/// Returns a seed, any whole number of 64 bits.
pub fn seed(text: &str) -> Result<u64, String> {
    let told = |_| format!("write a whole number from 0 to {}", u64::MAX);
    text.parse().map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_times_in_any_unit() {
        for (text, ns) in [
            ("90", 90_000_000_000),
            ("10s", 10_000_000_000),
            ("1.5s", 1_500_000_000),
            ("1.5m", 90_000_000_000),
            ("2min", 120_000_000_000),
            ("2h", 7_200_000_000_000),
            ("500ms", 500_000_000),
            ("250us", 250_000),
            ("7ns", 7),
        ] {
            assert_eq!(limit(text), Ok(Duration::from_ns(ns)), "{text}");
        }
        for wrong in ["0", "0ms", "-1", "10d", "1000001", "", "0.5ns"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
        assert_eq!(time("0"), Ok(Duration::ZERO));
    }
}
