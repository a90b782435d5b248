//! `schedlab`: which CPU scheduler runs a workload best, and why.
//!
//! This crate reads arguments, reads and writes files and chooses exit codes. It computes no measure.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod cpus;
mod events;
mod journal;
mod output;
mod progress;
mod real;
mod recording;
mod results;
mod signals;
mod simulation;
mod status;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use schedlab_sim::SimError;
use schedlab_sweep::SweepError;
use schedlab_trace::nearest;

use output::tell;
use status::Status;

/// A run failed or its scheduler was ejected.
const FAILED: u8 = 1;
/// The command line or an input is wrong.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match args::Cli::try_parse_from(workloads_of_stdin(std::env::args_os())) {
        Ok(cli) => cli,
        // Nothing asked for: what there is, rather than that something is missing.
        Err(help)
            if help.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            let _ = help.print();
            return ExitCode::from(USAGE);
        }
        Err(error) if error.use_stderr() => {
            let told = match error.kind() {
                clap::error::ErrorKind::InvalidUtf8 => not_utf8(std::env::args_os()),
                clap::error::ErrorKind::InvalidSubcommand => {
                    let words = std::env::args_os().skip(1);
                    let words = words.map(|word| word.to_string_lossy().into_owned());
                    no_command(words).unwrap_or_else(|| usage_line(&error.to_string(), "schedlab"))
                }
                _ => usage_line(
                    &error.to_string(),
                    &command_of(
                        std::env::args_os().map(|word| word.to_string_lossy().into_owned()),
                    ),
                ),
            };
            tell(told);
            return ExitCode::from(USAGE);
        }
        // Help and version are errors only to clap.
        Err(help) => {
            return match help.print() {
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    tell(format_args!("cannot write standard output: {error}"));
                    ExitCode::from(USAGE)
                }
                _ => ExitCode::SUCCESS,
            };
        }
    };
    #[cfg(feature = "kernel")]
    schedlab_sim::use_bpf_headers(|| {
        schedlab_kernel::bpf_policy::headers().map_err(|error| error.to_string())
    });
    match commands::run(cli.command) {
        Ok(Status::Done) => ExitCode::SUCCESS,
        Ok(Status::Failed) => ExitCode::from(FAILED),
        #[cfg(feature = "kernel")]
        Ok(Status::Code(code)) => ExitCode::from(code),
        Err(error) => {
            let text = chain(&error);
            if is_of_source(&error) {
                text.lines().for_each(tell);
            } else {
                tell(one_line(&text));
            }
            ExitCode::from(USAGE)
        }
    }
}

/// Marks workloads of standard input that are more than `-` (`-:duration=2`, `- + cpu`) by a space before them, so that
/// they are not taken for flags. What reads a workload takes the space away ([`args::workload`]).
fn workloads_of_stdin(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut before_command = true;
    let marked = words.map(|word| {
        before_command &= word != "--";
        let bytes = word.as_encoded_bytes();
        match bytes.starts_with(b"-:") || bytes.starts_with(b"- ") {
            true if before_command => {
                let mut marked = OsString::from(" ");
                marked.push(word);
                marked
            }
            _ => word,
        }
    });
    marked.collect()
}

/// Formats an error with its causes, without those that the one before includes already.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Returns whether it is what a compiler says, whose lines have places that editors jump to.
fn is_of_source(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let of_sweep = match cause.downcast_ref() {
            Some(SweepError::Sim(error)) => Some(error),
            _ => None,
        };
        of_sweep
            .or(cause.downcast_ref())
            .is_some_and(SimError::is_of_source)
    })
}

/// Returns an error as one line: what is wrong is worth more than where lines were broken.
fn one_line(text: &str) -> String {
    let lines: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join(" ")
}

/// Which argument is no text.
fn not_utf8(mut arguments: impl Iterator<Item = OsString>) -> String {
    let strange = arguments.find(|one| one.to_str().is_none());
    format!(
        "the argument {:?} is not UTF-8: rename what it names",
        strange.unwrap_or_default()
    )
}

/// Returns the command to write if the first word names a workload instead of a command, or a command of before.
fn no_command(mut words: impl Iterator<Item = String>) -> Option<String> {
    let word = words.find(|word| !word.starts_with('-'))?;
    if word == "published" {
        let now =
            "`published` is `schedlab reproduce --rows` now, with --seeds instead of --repeat";
        return Some(now.to_owned());
    }
    let name = word.split(':').next().unwrap_or_default();
    let is_model = schedlab_workload::list()
        .iter()
        .any(|model| model.name == name);
    let is_workload = is_model || !schedlab_workload::Workload::files(&word).is_empty();
    let shown = schedlab_trace::shell_word(&word);
    is_workload.then(|| {
        format!(
            "`{word}` is a workload, not a command: write `schedlab sim {shown} -s SCHEDULER` to simulate it, or `schedlab load {shown}` to run it here"
        )
    })
}

/// Returns the command whose help shows how, by the words of the command line.
fn command_of(mut words: impl Iterator<Item = String>) -> String {
    let known = args::Cli::command();
    match words.nth(1) {
        Some(word) if known.find_subcommand(&word).is_some() => format!("schedlab {word}"),
        _ => "schedlab".to_owned(),
    }
}

/// Flags of other tools, and what they are called here.
const ELSEWHERE: [(&str, &str); 6] = [
    ("--export-json", "--json"),
    ("--export-csv", "--csv"),
    ("--runs", "--repeat"),
    ("--min-runs", "--repeat"),
    ("-r", "--repeat"),
    ("-n", "--repeat"),
];

/// Returns whether a line of clap's helps: its message does, and a tip only where what it proposes is near.
fn is_useful(line: &str, text: &str) -> bool {
    let Some(tip) = line.strip_prefix("tip: ") else {
        return true;
    };
    if tip.starts_with("to pass ") {
        // No flag was ever meant as a value here.
        return false;
    }
    let quoted = |text: &str| text.split('\'').nth(1).map(str::to_owned);
    match (quoted(text), quoted(tip)) {
        (Some(wrong), Some(proposed)) => !nearest(&wrong, &[proposed]).is_empty(),
        _ => true,
    }
}

/// Returns clap's message about a wrong command line, in one line: the message and its tips without the usage.
fn usage_line(text: &str, command: &str) -> String {
    let lines: Vec<_> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .map(|line| line.strip_prefix("error: ").unwrap_or(line))
        .collect();
    let lines = lines.into_iter().filter(|line| is_useful(line, text));
    let line = lines.collect::<Vec<_>>().join("; ").replace(":; ", ": ");
    // The parsers of numbers say what they stumbled over, not what is wanted.
    let line = line.replace("invalid digit found in string", "write a whole number");
    let mut words = line.split(['\'', ' ', '=']);
    let known = words.find_map(|word| ELSEWHERE.iter().find(|(flag, _)| *flag == word));
    let here = known.map_or(String::new(), |(_, here)| format!("; here it is {here}"));
    format!("{line}{here}; `{command} --help` shows how")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_of_standard_input_is_no_flag() {
        let parsed = |words: &[&str]| {
            let words = ["schedlab", "sim"].iter().chain(words).map(OsString::from);
            args::Cli::try_parse_from(workloads_of_stdin(words))
        };
        for text in [
            "-",
            "-:duration=2",
            "- + cpu",
            "-:duration=2 + cpu",
            "cpu + -",
        ] {
            let cli = parsed(&[text, "-s", "fifo", "-c", "2"]).unwrap();
            let args::Command::Sim(args) = cli.command else {
                panic!("{cli:?}");
            };
            assert_eq!(args.workload, text);
        }
        assert!(parsed(&["-x", "-s", "fifo"]).is_err());
        let command = ["x", "--", "-:a"].map(OsString::from);
        assert_eq!(workloads_of_stdin(command.clone().into_iter()), command);
    }

    #[test]
    fn a_cause_is_told_once() {
        let cause = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = anyhow::Error::new(cause).context("x.json: entity not found");
        assert_eq!(chain(&error), "x.json: entity not found");
        assert_eq!(chain(&error.context("y")), "y: x.json: entity not found");
    }

    #[test]
    fn an_argument_that_is_no_text_is_named() {
        use std::os::unix::ffi::OsStringExt as _;
        let arguments = ["schedlab".into(), OsString::from_vec(b"x\xff".to_vec())];
        let told = not_utf8(arguments.into_iter());
        assert_eq!(
            told,
            "the argument \"x\\xFF\" is not UTF-8: rename what it names"
        );
    }

    #[test]
    fn clap_errors_say_what_is_expected() {
        let line = |words: &[&str]| {
            let words = ["schedlab"].iter().chain(words).map(ToString::to_string);
            let error = args::Cli::try_parse_from(words.clone()).unwrap_err();
            usage_line(&error.to_string(), &command_of(words))
        };
        assert_eq!(
            line(&["sim", "cpu", "-s", "a", "--repeat", "x"]),
            "invalid value 'x' for '--repeat <N>': write a whole number; `schedlab sim --help` shows how"
        );
        assert_eq!(
            line(&["run", "--vm", "cpu", "-s", "a", "-c", "2..8"]),
            "invalid value '2..8' for '--cpus <N>': write a whole number; `schedlab run --help` shows how"
        );
        assert_eq!(
            line(&["vm", "-c", "256", "--", "true"]),
            "invalid value '256' for '--cpus <N>': 256 is not in 1..=255; `schedlab vm --help` shows how"
        );
        assert_eq!(
            line(&["sim", "cpu"]),
            "the following required arguments were not provided: --schedulers <A,B,…>; `schedlab sim --help` shows how"
        );
    }

    #[test]
    fn tips_propose_what_is_near_and_what_other_tools_call_so() {
        let line = |words: &[&str]| {
            let words = ["schedlab"].iter().chain(words).map(ToString::to_string);
            let error = args::Cli::try_parse_from(words.clone()).unwrap_err();
            usage_line(&error.to_string(), &command_of(words))
        };
        let sim = |flag: &str| line(&["sim", "cpu", "-s", "fifo", flag, "3"]);
        let shows = "`schedlab sim --help` shows how";
        assert_eq!(
            sim("--export-json"),
            format!("unexpected argument '--export-json' found; here it is --json; {shows}")
        );
        assert_eq!(
            sim("--runs"),
            format!("unexpected argument '--runs' found; here it is --repeat; {shows}")
        );
        assert_eq!(
            sim("-w"),
            format!("unexpected argument '-w' found; {shows}")
        );
        assert_eq!(
            line(&["profile"]),
            "unrecognized subcommand 'profile'; `schedlab --help` shows how"
        );
        assert!(line(&["swep"]).contains("'sweep'"), "{}", line(&["swep"]));
    }

    #[test]
    fn a_workload_in_place_of_a_command_is_known() {
        let told = |words: &[&str]| no_command(words.iter().map(ToString::to_string));
        assert_eq!(
            told(&["t 1.json", "-s", "fifo"]).unwrap(),
            "`t 1.json` is a workload, not a command: write `schedlab sim 't 1.json' -s SCHEDULER` to simulate it, or `schedlab load 't 1.json'` to run it here"
        );
        assert!(
            told(&["chat:rooms=1"])
                .unwrap()
                .contains("schedlab sim chat:rooms=1 -s")
        );
        assert_eq!(told(&["simm", "chat"]), None);
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn clap_errors_become_one_line() {
        let words = ["schedlab", "sim", "cpu", "--sed", "3", "-s", "a"];
        let error = args::Cli::try_parse_from(words).unwrap_err().to_string();
        assert_eq!(
            usage_line(&error, &command_of(words.map(str::to_owned).into_iter())),
            "unexpected argument '--sed' found; tip: a similar argument exists: '--seed'; `schedlab sim --help` shows how"
        );
    }
}
