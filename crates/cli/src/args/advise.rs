//! Arguments of `advise`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::shared::{BudgetArg, SimCommon, budget, workload};

/// Arguments of `advise`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab advise -- make -j2
  schedlab advise make.workload -c 4 --html make.html
  schedlab advise chat:rooms=2 --budget 2min
  schedlab advise make.workload --budget 200 --json make.json

A command is recorded first (`schedlab record`). Then the program is simulated
under all schedulers, and the best ones under further seeds. Ctrl-C ends the
search, and the advice is made of what is known then (docs/advise.md).")]
pub struct AdviseArgs {
    /// A workload file of `schedlab record`, or WORKLOAD[:option=value,…]
    #[arg(value_name = "FILE|WORKLOAD", value_hint = ValueHint::FilePath, value_parser = workload, required_unless_present = "command", conflicts_with = "command")]
    pub workload: Option<String>,
    /// How much to simulate: a time, as 60s or 5min, or a number of runs, as 200
    #[arg(long, value_name = "TIME|RUNS", value_parser = budget, default_value = "60s", allow_negative_numbers = true)]
    pub budget: BudgetArg,
    /// Schedulers to compare with the current one [default: all that have a name]
    #[arg(short, long, value_name = "A,B,…", default_value = "all", hide_default_value = true, value_hint = ValueHint::FilePath)]
    pub schedulers: String,
    /// The current scheduler: the one that all are compared with
    #[arg(long, value_name = "SCHEDULER", default_value = "kernel", value_hint = ValueHint::FilePath)]
    pub current: String,
    /// Machine profile: a name, or the path of a .toml file
    #[arg(short, long, value_name = "MACHINE", default_value = "laptop", value_hint = ValueHint::FilePath)]
    pub machine: String,
    /// Number of CPUs [default: as many as the recorded program used, or all]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub cpus: Option<u32>,
    /// Keep the recording of COMMAND in this file [default: COMMAND.workload]
    #[arg(short, long, value_name = "FILE", requires = "command", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Afterwards run the program under the best few in this kernel, N times each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    pub verify: Option<u32>,
    /// Write the advice as JSON; `-` for standard output instead of the text
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write a page for a browser; `-` for standard output instead of the text
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub common: SimCommon,
    /// The command to record, after `--`
    #[arg(last = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<std::ffi::OsString>,
}
