//! The programs of a soak. Each runs for its time and fails if one of its commands does.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::small_programs;

/// First argument of this program as one of the programs.
pub const MARK: &str = "as-a-soak-program";

/// All of them, in the order in which they run; the last is the others at once.
pub const NAMES: [&str; 11] = [
    "chat",
    "messaging",
    "fork",
    "switch",
    "affinity",
    "yield",
    "nice",
    "renice",
    "shuffle",
    "storm",
    MIX,
];

/// All others at once.
pub const MIX: &str = "mix";

/// The steps of a program.
enum Kind {
    /// A command that ends soon, again and again.
    Again(Command),
    /// A command that runs for the given time.
    For(Command),
}

/// NAME MILLISECONDS SCHEDLAB
pub fn run(arguments: &[String]) -> Result<(), String> {
    let [name, ms, schedlab] = arguments else {
        return Err("the program's arguments are missing".to_owned());
    };
    let time = Duration::from_millis(ms.parse().map_err(|_| format!("{ms} is not a number"))?);
    if name == MIX {
        return mix(time, schedlab);
    }
    match kind(name, time, schedlab)? {
        Kind::For(mut command) => finished(&mut command),
        Kind::Again(mut command) => {
            let end = Instant::now() + time;
            while Instant::now() < end {
                finished(&mut command)?;
            }
            Ok(())
        }
    }
}

/// The command that runs one of the programs.
pub fn command(name: &str, time: Duration, schedlab: &str) -> Command {
    let mut command = own();
    command.args([MARK, name, &time.as_millis().to_string(), schedlab]);
    command
}

fn own() -> Command {
    Command::new(std::env::current_exe().expect("a running program has a path"))
}

fn kind(name: &str, time: Duration, schedlab: &str) -> Result<Kind, String> {
    let again = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        Kind::Again(command)
    };
    // Two workers each; what they keep goes into memory.
    let stress = |words: &[&str]| {
        let mut command = Command::new("stress-ng");
        let seconds = time.as_secs().max(1).to_string();
        command.args(words).args(["--timeout", &seconds]);
        command.args(["--quiet", "--temp-path", "/tmp"]);
        Kind::For(command)
    };
    let small = || {
        let mut command = own();
        command.args([small_programs::MARK, name, &time.as_millis().to_string()]);
        Kind::For(command)
    };
    Ok(match name {
        "chat" => again(&[schedlab, "load", "chat:rooms=1,messages=10"]),
        "messaging" => again(&["perf", "bench", "sched", "messaging", "-g", "1", "-l", "50"]),
        "fork" => stress(&["--fork", "2"]),
        "switch" => stress(&["--switch", "2"]),
        "affinity" => stress(&["--affinity", "2"]),
        "yield" => stress(&["--yield", "2"]),
        // Both mix priorities: one changes its own, one has children of every nice level.
        "nice" => stress(&["--nice", "2"]),
        "renice" => stress(&["--resched", "1"]),
        "shuffle" | "storm" => small(),
        _ => return Err(format!("there is no program {name}")),
    })
}

fn finished(command: &mut Command) -> Result<(), String> {
    ended(start(command)?, command)
}

fn start(command: &mut Command) -> Result<Child, String> {
    command
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("{:?}: {error}", command.get_program()))
}

fn ended(mut child: Child, command: &Command) -> Result<(), String> {
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}")),
        Err(error) => Err(error.to_string()),
    }
}

fn mix(time: Duration, schedlab: &str) -> Result<(), String> {
    let mut running = Vec::new();
    for name in NAMES.into_iter().filter(|&name| name != MIX) {
        let mut command = command(name, time, schedlab);
        running.push((start(&mut command)?, command));
    }
    // All are waited for, whatever becomes of one.
    let mut results: Vec<_> = running
        .into_iter()
        .map(|(child, command)| ended(child, &command))
        .collect();
    results.retain(Result::is_err);
    results.pop().unwrap_or(Ok(()))
}
