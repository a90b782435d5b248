//! Schedulers by their own loaders, `exec:PROGRAM ARGUMENTS…`, in the running kernel: starts the loader, waits until its scheduler
//! schedules, and ends it.
//!
//! The loader is somebody else's program, and runs with our rights. What it does beside loading is its own matter.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::ProgramType;
use libbpf_rs::query::ProgInfoIter;
use rustix::process::Signal;

use crate::error::{At as _, Error, Result};
use crate::exit::{EXIT_UNREG, PolicyExit};
use crate::group::Group;
use crate::load;
use crate::scx::{self, State};
use crate::vm;

/// How long a loader may take until the kernel has enabled its scheduler. The verifier takes seconds for a large one.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(120);

/// How long the kernel may call none of its ops.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a loader may take to end when it is asked to.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// How long it may take to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the kernel may take to go back to its own scheduler.
const UNLOAD_TIMEOUT: Duration = Duration::from_secs(20);

/// How often state is looked at.
const POLL: Duration = Duration::from_millis(10);

/// A scheduler that its own loader has loaded.
pub struct Started {
    command: String,
    /// Its version, in the loader's own words.
    version: Option<String>,
    ops_name: String,
    /// The number of its enabling.
    seq: Option<u64>,
    group: RefCell<Group>,
    output: RefCell<File>,
}

/// The words of a command, quoted as in a shell.
///
/// # Errors
/// There is none, or a quote does not end.
pub fn words(command: &str) -> Result<Vec<String>> {
    let words = shlex::split(command).filter(|words| !words.is_empty());
    words.ok_or_else(|| Error::Loader {
        command: command.to_owned(),
        problem: "write exec: and a program with its arguments, quoted as in a shell".to_owned(),
    })
}

impl Started {
    /// Starts a loader and waits until the kernel has enabled its scheduler and calls its ops.
    ///
    /// # Errors
    /// No sched_ext here, no permission, another scheduler is loaded; or the loader does not come that far.
    pub fn start(command: &str) -> Result<Started> {
        load::ready()?;
        let words = words(command)?;
        let version = version(&words[0]);
        vm::doing(&format!("starting the loader `{command}`"));
        let (before, seq) = (programs(), scx::enable_seq());
        let output = tempfile::tempfile().at(std::env::temp_dir())?;
        let both = [output.try_clone(), output.try_clone()];
        let [out, err] = both.map(|file| file.at("the loader's output"));
        let mut process = Command::new(&words[0]);
        process
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(out?)
            .stderr(err?);
        let group = Group::spawn(&mut process, None).map_err(|error| match error {
            Error::Io { cause, .. } => Error::Command {
                command: words[0].clone(),
                cause,
            },
            other => other,
        })?;
        let mut started = Started {
            command: command.to_owned(),
            version,
            ops_name: String::new(),
            seq: None,
            group: RefCell::new(group),
            output: RefCell::new(output),
        };
        // An error from here on ends the loader, as it is dropped.
        started.wait_until_enabled(seq)?;
        started.wait_until_called(&before)?;
        Ok(started)
    }

    fn wait_until_enabled(&mut self, before: Option<u64>) -> Result<()> {
        let deadline = Instant::now() + ATTACH_TIMEOUT;
        loop {
            let seq = scx::enable_seq();
            if let State::Loaded { state, name } = scx::state()
                && state == "enabled"
                && (seq.is_none() || seq != before)
            {
                (self.ops_name, self.seq) = (name, seq);
                return Ok(());
            }
            if let Some(status) = self.ended() {
                return Err(
                    self.problem(&format!("ended ({status}) before it attached a scheduler"))
                );
            }
            if Instant::now() > deadline {
                return Err(self.problem(&format!(
                    "has attached no scheduler for {} s",
                    ATTACH_TIMEOUT.as_secs()
                )));
            }
            self.group.borrow().wait(POLL);
        }
    }

    /// A scheduler that the kernel has enabled may still see no task: for example if it takes only those that ask for it.
    fn wait_until_called(&self, before: &BTreeSet<u32>) -> Result<()> {
        let _statistics = Statistics::begin()?;
        let calls = || -> u64 {
            let new = ProgInfoIter::default()
                .filter(|it| it.ty == ProgramType::StructOps && !before.contains(&it.id));
            new.map(|it| it.run_cnt).sum()
        };
        let (start, deadline) = (calls(), Instant::now() + CALL_TIMEOUT);
        while calls() <= start {
            if !self.is_running() {
                return Err(self.ended_early());
            }
            if Instant::now() > deadline {
                return Err(self.problem(&format!(
                    "has attached the scheduler '{}', and the kernel has called none of its ops for {} s: run it so that it schedules all tasks",
                    self.ops_name,
                    CALL_TIMEOUT.as_secs()
                )));
            }
            // This process is a task that it schedules.
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// The error of a scheduler that has ended before the kernel has called it: its ejection, if the loader tells one.
    fn ended_early(&self) -> Error {
        let why = self.why();
        let exit = self.exit();
        if exit.is_ejection() {
            return Error::Ejected {
                policy: self.ops_name.clone(),
                exit: Box::new(exit),
            };
        }
        self.problem(&format!(
            "has attached the scheduler '{}', which has ended: {why}",
            self.ops_name
        ))
    }

    fn problem(&self, problem: &str) -> Error {
        Error::Loader {
            command: self.command.clone(),
            problem: format!("{problem}{}", self.last_words()),
        }
    }

    /// Its `ops.name`, under which the kernel knows it.
    pub fn name(&self) -> &str {
        &self.ops_name
    }

    /// Returns its version in the loader's own words: the first line that it prints with `--version`.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    fn ended(&self) -> Option<ExitStatus> {
        self.group.borrow_mut().ended()
    }

    /// Whether the kernel still schedules with it: the same enabling of the same scheduler, whose loader lives.
    pub fn is_running(&self) -> bool {
        let is_it = matches!(scx::state(), State::Loaded { state, name } if state == "enabled" && name == self.ops_name);
        is_it && scx::enable_seq() == self.seq && self.ended().is_none()
    }

    /// Why it does not run any more, for people; `None` while it does.
    pub fn why_ended(&self) -> Option<String> {
        (!self.is_running()).then(|| {
            format!(
                "the scheduler '{}' has ended: {}",
                self.ops_name,
                self.why()
            )
        })
    }

    fn why(&self) -> String {
        let exit = self.exit();
        if exit.kind != 0 {
            return exit.told();
        }
        // A loader may end a moment after its scheduler, and tell why by then.
        self.group.borrow().wait(END_TIMEOUT);
        let exit = self.exit();
        match (exit.kind, self.ended()) {
            (0, Some(status)) => format!("its loader has ended ({status}){}", self.last_words()),
            (0, None) => format!(
                "its loader goes on and tells no reason{}",
                self.last_words()
            ),
            _ => exit.told(),
        }
    }

    /// Why the kernel has ended it, as far as the loader says so; kind 0 if it does not.
    fn exit(&self) -> PolicyExit {
        self.printed()
            .lines()
            .rev()
            .find_map(exit_line)
            .unwrap_or_default()
    }

    fn printed(&self) -> String {
        let mut bytes = Vec::new();
        let mut file = self.output.borrow_mut();
        let read = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.read_to_end(&mut bytes));
        match read {
            Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => String::new(),
        }
    }

    /// The addition to an error: the line that seems to say why.
    fn last_words(&self) -> String {
        let printed = self.printed();
        let lines = || {
            printed
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
        };
        let tells = |line: &&str| {
            let line = line.to_lowercase();
            // libbpf leaves out without harm what a kernel does not have.
            !line.contains("skipping it as")
                && ["error", "fail", "not found", "cannot", "panicked", "unable"]
                    .iter()
                    .any(|word| line.contains(word))
        };
        match lines().find(tells).or_else(|| lines().next_back()) {
            Some(line) => format!("; it printed: {line}"),
            None => String::new(),
        }
    }

    /// Ends the loader, waits until the kernel is back at its own scheduler, and returns why the scheduler ended: by this call, or
    /// earlier.
    ///
    /// # Errors
    /// The kernel does not finish within 20 s.
    pub fn stop(self) -> Result<PolicyExit> {
        vm::doing(&format!("ending the loader `{}`", self.command));
        let was_running = self.is_running();
        {
            let mut group = self.group.borrow_mut();
            // A loader takes its scheduler out and reports that. If it does not, it is ended all the same.
            if group.ended().is_none() {
                group.signal(Signal::INT);
                group.wait(END_TIMEOUT);
            }
            group.stop();
        }
        let deadline = Instant::now() + UNLOAD_TIMEOUT;
        while let State::Loaded { name, .. } = scx::state() {
            if Instant::now() > deadline {
                return Err(self.problem(&format!(
                    "was ended, and the kernel has not taken its scheduler '{name}' out within {} s",
                    UNLOAD_TIMEOUT.as_secs()
                )));
            }
            thread::sleep(POLL);
        }
        Ok(match was_running {
            true => PolicyExit {
                kind: EXIT_UNREG,
                ..PolicyExit::default()
            },
            false => self.exit(),
        })
    }
}

/// The texts of `scx_exit_reason()` (kernel/sched/ext/ext.c) with their kinds.
const REASONS: [(&str, i32); 7] = [
    ("unregistered from user space", EXIT_UNREG),
    ("unregistered from BPF", 65),
    ("unregistered from the main kernel", 66),
    ("disabled by sysrq-S", 67),
    ("runtime error", 1024),
    ("scx_bpf_error", 1025),
    ("runnable task stall", 1026),
];

/// Reads the line by which loaders tell why their scheduler has ended (`UEI_REPORT()` of the scx headers, and `scx_utils`).
fn exit_line(line: &str) -> Option<PolicyExit> {
    let (_, text) = line.split_once("EXIT: ")?;
    let (reason, kind) = REASONS
        .iter()
        .find(|(reason, _)| text.starts_with(reason))?;
    let rest = text[reason.len()..].trim();
    let message = rest.strip_prefix('(').unwrap_or_default();
    Some(PolicyExit {
        kind: *kind,
        reason: (*reason).to_owned(),
        // The line of a message with line breaks has no end.
        message: message.strip_suffix(')').unwrap_or(message).to_owned(),
        ..PolicyExit::default()
    })
}

/// The BPF programs that are loaded, by their numbers.
fn programs() -> BTreeSet<u32> {
    ProgInfoIter::default().map(|it| it.id).collect()
}

/// The first line that a program prints about its version.
fn version(program: &str) -> Option<String> {
    let output = tempfile::tempfile().ok()?;
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(output.try_clone().ok()?)
        .stderr(Stdio::null());
    let mut group = Group::spawn(&mut command, None).ok()?;
    group.wait(VERSION_TIMEOUT);
    let status = group.ended();
    group.stop();
    if !status?.success() {
        return None;
    }
    let (mut file, mut text) = (output, String::new());
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_to_string(&mut text).ok()?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.map(str::to_owned)
}

/// The kernel counts calls of BPF programs as long as this lives (`kernel.bpf_stats_enabled`).
struct Statistics {
    before: String,
}

impl Statistics {
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

    fn begin() -> Result<Statistics> {
        let before = fs::read_to_string(Self::SWITCH).at(Self::SWITCH)?;
        fs::write(Self::SWITCH, "1").at(Self::SWITCH)?;
        Ok(Statistics { before })
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        // It only costs time where it stays on.
        let _ = fs::write(Self::SWITCH, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_s_word_for_the_end_is_read() {
        let exit =
            exit_line("12:00 [INFO] EXIT: runnable task stall (x[12] failed to run for 5.001s)");
        let exit = exit.unwrap();
        assert_eq!(exit.kind, 1026);
        assert_eq!(exit.message, "x[12] failed to run for 5.001s");
        let exit = exit_line("EXIT: unregistered from user space").unwrap();
        assert!(exit.is_normal() && exit.message.is_empty());
        // A message with a line break.
        let exit = exit_line("EXIT: scx_bpf_error (bad state:").unwrap();
        assert_eq!((exit.kind, exit.message.as_str()), (1025, "bad state:"));
        assert!(exit_line("EXIT: who knows").is_none());
        assert!(exit_line("no word").is_none());
    }

    #[test]
    fn a_program_says_its_version_or_does_not() {
        let _alone = crate::group::alone();
        assert!(version("no-such-program-here").is_none());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loader");
        fs::write(&path, "#!/bin/sh\necho; echo \"loader 1.2 $1\"\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).unwrap();
        let said = version(path.to_str().unwrap());
        assert_eq!(said.as_deref(), Some("loader 1.2 --version"));
    }

    #[test]
    fn a_command_that_is_none_is_refused() {
        assert_eq!(words("a 'b c'").unwrap(), ["a", "b c"]);
        for command in ["", "  ", "a 'b"] {
            let error = words(command).unwrap_err().to_string();
            assert!(error.contains("write exec: and a program"), "{error}");
        }
    }
}
