//! One file per command. None needs another one: what they share lies beneath them, in the modules beside this one.

mod advise;
mod analyze;
mod calibrate;
mod check;
mod doctor;
mod emulate;
mod explain;
mod import;
mod list;
mod load;
mod record;
mod replay;
mod reproduce;
mod run;
mod shell;
mod show;
mod sim;
mod sweep;
mod validate;
mod vm;

use crate::args::Command;
use crate::status::Status;

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
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Vm(args) => vm::run(&args),
        Command::Emulate(args) => emulate::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Advise(args) => advise::run(&args, run::run),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Doctor => doctor::run(),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man { folder } => shell::man(&folder),
    }
}
