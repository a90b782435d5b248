//! One file per command.

mod advise;
mod analyze;
mod calibrate;
mod check;
mod explain;
mod import;
mod list;
mod load;
mod real;
mod record;
mod replay;
mod reproduce;
mod shell;
mod show;
mod sim;
mod sweep;
mod validate;

use schedlab_report::RunResult;
use serde::{Deserialize, Serialize};

use crate::args::Command;
use crate::status::Status;

/// A run of a workload's real program.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct RealRun {
    workload: String,
    scheduler: String,
    seed: u64,
}

/// Which comparisons of a simulation with this machine's kernel something spoils.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(
        dead_code,
        reason = "without the kernel's side nothing is compared with this kernel"
    )
)]
enum Spoils {
    Nothing,
    Placement,
    Everything,
}

/// The outcome in a virtual machine.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(
        dead_code,
        reason = "without the kernel's side there is no virtual machine"
    )
)]
enum Emulated {
    Done(Box<RunResult>),
    /// It could not be run at all, and why.
    Refused(String),
    /// The machine ended before it did.
    Missing,
}

/// Carries a command out.
///
/// # Errors
/// The fault of the command line, an input or a file.
pub fn run(command: Command) -> anyhow::Result<Status> {
    match command {
        Command::List(args) => list::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Analyze(args) => analyze::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Run(args) => real::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Vm(args) => real::vm(&args),
        Command::Emulate(args) => real::inside(&args),
        Command::Load(args) => load::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Doctor => real::doctor(),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man { folder } => shell::man(&folder),
    }
}
