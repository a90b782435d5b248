//! One file per command, and what they share.

mod analyze;
mod calibrate;
mod list;
mod load;
mod published;
mod real;
mod reproduce;
mod shell;
mod sim;
mod sweep;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use schedlab_report::RunResult;
use schedlab_report::export::{json, table};
use schedlab_trace::counted;
use serde::{Deserialize, Serialize};

use crate::args::Command;
use crate::output::{Output, followed, harmless, tell};

/// How a command ended that could do its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// As it should.
    Done,
    /// A run failed or its scheduler was ejected; the results say so.
    Failed,
    /// With the exit code of a command that was run.
    #[cfg(feature = "kernel")]
    Code(u8),
}

/// A run of a workload's real program.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct Job {
    workload: String,
    scheduler: String,
    seed: u64,
}

/// What became of it in a virtual machine.
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
/// What is wrong with the command line, an input or a file.
pub fn run(command: Command) -> anyhow::Result<Status> {
    match command {
        Command::List(args) => list::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Analyze(args) => analyze::run(&args),
        Command::Published(args) => published::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Run(args) => real::run(&args),
        Command::Vm(args) => real::vm(&args),
        Command::Emulate(args) => real::inside(&args),
        Command::Load(args) => load::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Doctor => real::doctor(),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man { folder } => shell::man(&folder),
    }
}

/// Whether a path stands for standard output.
fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Refuses standard output, which is for text: a trace is for a file.
fn trace_in_file(path: Option<&Path>) -> anyhow::Result<()> {
    const STDOUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    if let Some(path) = path.filter(|path| STDOUT.iter().any(|known| *path == Path::new(known))) {
        bail!(
            "--trace {}: a trace is binary, and the table is written there; name a file",
            path.display()
        );
    }
    if path.is_some_and(is_stdout) {
        bail!("--trace -: a trace is binary; name a file, or write ./- for one of that name");
    }
    Ok(())
}

/// Refuses an output to a file that the command reads, which would be lost, and two outputs to one file, of which only
/// the later would be left. Devices and pipes take what comes.
fn one_file_each<P: AsRef<Path>>(
    outputs: &[(&str, Option<&Path>)],
    inputs: impl IntoIterator<Item = P>,
) -> anyhow::Result<()> {
    let inputs = inputs.into_iter().map(|input| place(input.as_ref()));
    let inputs: BTreeSet<PathBuf> = inputs.collect();
    let mut taken: Vec<(&str, PathBuf)> = Vec::new();
    for &(flag, path) in outputs {
        let Some(path) = path.filter(|path| !is_stdout(path)) else {
            continue;
        };
        if path.metadata().is_ok_and(|there| !there.is_file()) {
            continue;
        }
        let place = place(path);
        if inputs.contains(&place) {
            bail!(
                "{flag} {}: that file is read here, and would be lost; name another one",
                path.display()
            );
        }
        if let Some((other, _)) = taken.iter().find(|(_, known)| *known == place) {
            bail!(
                "{other} and {flag} both write {}: give each a file of its own",
                path.display()
            );
        }
        taken.push((flag, place));
    }
    Ok(())
}

/// Where a file is or will be, however its path is written.
fn place(path: &Path) -> PathBuf {
    let path = &followed(path);
    if let Ok(there) = path.canonicalize() {
        return there;
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        // Whoever writes there tells that there is no such folder.
        _ => path.to_owned(),
    }
}

/// Begins the JSON file before the work, so that a wrong path is told at once.
fn json_output(path: Option<&Path>) -> anyhow::Result<Option<Output>> {
    path.filter(|path| !is_stdout(path))
        .map(Output::create)
        .transpose()
}

/// An output that cannot be written is named: there may be several.
fn cannot_write(path: &Path) -> String {
    if is_stdout(path) {
        "cannot write standard output".to_owned()
    } else {
        format!("cannot write {}", path.display())
    }
}

/// Writes to standard output, to the last byte: what is flushed at the end of a program fails unheard.
/// A reader that has seen enough (`| head`) is no error, and changes nothing of what the program did.
fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(text.as_ref())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.with_context(|| cannot_write(Path::new("-"))),
    }
}

/// Prints `text`, the results as a table or otherwise, and writes them as JSON where that was asked for:
/// with `--json -` instead of the text.
fn deliver(
    results: &[RunResult],
    text: &str,
    json_path: Option<&Path>,
    json_file: Option<Output>,
) -> anyhow::Result<Status> {
    // First the file: it is asked for whether or not anybody still reads standard output (`| head`). Where it cannot
    // be written, nothing but the text is left of runs that may have taken hours.
    let written = match (json_path, json_file) {
        (Some(path), Some(file)) => write_json(results, path, file),
        _ => Ok(()),
    };
    if let Some(path) = json_path.filter(|path| is_stdout(path)) {
        let mut document = Vec::new();
        json::write(results, &mut document).with_context(|| cannot_write(path))?;
        print(document)?;
    } else {
        print(harmless(text))?;
    }
    written?;
    let failed: Vec<_> = results.iter().filter(|result| !result.is_done()).collect();
    if json_path.is_some_and(is_stdout) {
        // The table would have told; here only the document does, which nobody reads by eye.
        for result in &failed {
            tell(format_args!(
                "{} on {}, seed {}: {}: {}; replay: {}",
                result.scheduler,
                counted(result.cpus, "CPU"),
                result.seed,
                result.exit,
                result.message.as_deref().unwrap_or("no message"),
                result.replay
            ));
        }
    }
    Ok(if failed.is_empty() {
        Status::Done
    } else {
        Status::Failed
    })
}

fn write_json(results: &[RunResult], path: &Path, mut file: Output) -> anyhow::Result<()> {
    json::write(results, &mut file).with_context(|| cannot_write(path))?;
    file.commit()
}

/// Columns of the terminal, as the shell tells them; a pipe has as many as `COLUMNS` says, or the default.
fn width() -> usize {
    use std::io::IsTerminal as _;
    let columns = if std::io::stdout().is_terminal() {
        let size = console::Term::stdout().size_checked();
        size.map(|(_, columns)| columns)
    } else {
        let columns = std::env::var("COLUMNS").ok();
        columns.and_then(|columns| columns.parse().ok())
    };
    columns.map_or(table::WIDTH, |columns: u16| usize::from(columns).max(40))
}
