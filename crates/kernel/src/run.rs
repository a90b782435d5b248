//! Runs a program under a scheduler of the running kernel and measures both.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use schedlab_report::origin::Beside as _;
use schedlab_report::{Exit, Heard, Measures, MetricsRecorder, Sources};
use schedlab_trace::check::{Checkers, Start, Violations};
use schedlab_trace::options::OptionError;
use schedlab_trace::{Listener, Scheduler};

use crate::bpf_policy;
use crate::error::{At as _, Error, Result};
use crate::exit::PolicyExit;
use crate::group::Group;
use crate::load::{self, Loaded};
use crate::loader::{self, Started};
use crate::measure::{Counted, Measurement, Want};
use crate::probes::Reading;
use crate::topology;
use crate::vm;

/// How often the policy is looked at, and events are fetched. The end of the program is noticed at once.
const POLL: Duration = Duration::from_millis(50);

/// No task under a policy may wait longer: the greatest time-out of the kernel's watchdog
/// (`SCX_WATCHDOG_MAX_TIMEOUT`) and half of it, since that looks so often.
const STALL_BOUND: Duration = Duration::from_secs(45);

/// How long a runnable task may wait, in ns; `None`: under the kernel's own scheduler any time.
pub fn stall_bound_ns(has_policy: bool) -> Option<u64> {
    has_policy.then_some(STALL_BOUND.as_nanos() as u64)
}

/// Finds or compiles a scheduler and looks at its options, without loading anything.
///
/// # Errors
/// Unknown names, files that do not compile, wrong options.
pub fn check(scheduler: &Scheduler) -> Result<()> {
    let Scheduler { name, options } = scheduler;
    if let Some(command) = scheduler.exec() {
        let words: Vec<OsString> = loader::words(command)?
            .into_iter()
            .map(OsString::from)
            .collect();
        return find_program(&words);
    }
    if !scheduler.is_kernels_own() {
        return load::check_options(&bpf_policy::resolve(name)?, options);
    }
    match options.first() {
        Some((option, _)) => Err(Error::Options(OptionError::Unknown {
            policy: name.to_owned(),
            option: option.clone(),
            known: Vec::new(),
        })),
        None => Ok(()),
    }
}

/// A scheduler that is loaded for a run.
pub enum Policy {
    /// By schedlab.
    Loaded(Loaded),
    /// By its own loader.
    Started(Started),
}

impl Policy {
    fn seen(&self) -> Seen<'_> {
        match self {
            Policy::Loaded(policy) => Seen::Loaded(policy),
            Policy::Started(policy) => Seen::Started(policy),
        }
    }

    /// Returns whether the kernel still schedules with it.
    pub fn is_running(&self) -> bool {
        self.seen().is_running()
    }

    /// Takes it out; answers with why it ended.
    ///
    /// # Errors
    /// The kernel does not finish within 20 s.
    pub fn unload(self) -> Result<PolicyExit> {
        match self {
            Policy::Loaded(policy) => policy.unload(),
            Policy::Started(policy) => policy.stop(),
        }
    }
}

/// A scheduler as a run sees it.
#[derive(Clone, Copy)]
enum Seen<'p> {
    Loaded(&'p Loaded),
    Started(&'p Started),
}

impl<'p> Seen<'p> {
    fn name(self) -> &'p str {
        match self {
            Seen::Loaded(policy) => policy.name(),
            Seen::Started(policy) => policy.name(),
        }
    }

    fn is_running(self) -> bool {
        match self {
            Seen::Loaded(policy) => policy.is_running(),
            Seen::Started(policy) => policy.is_running(),
        }
    }

    /// One of schedlab's own, which counts.
    fn loaded(self) -> Option<&'p Loaded> {
        match self {
            Seen::Loaded(policy) => Some(policy),
            Seen::Started(_) => None,
        }
    }
}

/// Loads a scheduler; `None` for the kernel's own.
///
/// # Errors
/// As [`Loaded::load`] or [`Started::start`]; also where the kernel's own is asked for while another one is loaded.
pub fn load(scheduler: &Scheduler) -> Result<Option<Policy>> {
    if let Some(command) = scheduler.exec() {
        return Started::start(command).map(|policy| Some(Policy::Started(policy)));
    }
    if !scheduler.is_kernels_own() {
        let policy = Loaded::load(&bpf_policy::resolve(&scheduler.name)?, &scheduler.options)?;
        return Ok(Some(Policy::Loaded(policy)));
    }
    check(scheduler)?;
    match crate::scx::state() {
        crate::scx::State::Loaded { name, .. } => Err(Error::AlreadyLoaded { name }),
        _ => Ok(None),
    }
}

/// A program to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Bound on its running time.
    pub timeout: Duration,
    /// Measurements besides counting.
    pub want: Want,
}

/// How a run ended and what was measured.
#[derive(Debug)]
pub struct Outcome {
    /// How.
    pub exit: Exit,
    /// Why, where it is not `done`.
    pub message: Option<String>,
    /// The kernel's debug dump of an ejection; empty without an ejection.
    pub dump: String,
    /// The program's exit code; 128 + n for signal n; `None` where it had to be stopped.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// The measures of the kernel and the policy: of those that are counted and that the streamed events show, too, the
    /// events' values.
    pub measures: Measures,
    /// Those that were counted, …
    pub counted: Measures,
    /// … and the measures of the streamed events.
    pub told: Measures,
    /// The kinds of events that were streamed; `None` without events, or if some were lost.
    pub shown: Option<Sources>,
    /// Wakeup latencies: smallest value, largest value, count of each bucket.
    pub wakeup_latency: Vec<(u64, u64, u64)>,
    /// Of a scheduler by its own loader: the version, in the loader's words.
    pub loader: Option<String>,
}

impl Outcome {
    fn new(exit: Exit, message: Option<String>) -> Outcome {
        Outcome {
            exit,
            message,
            dump: String::new(),
            code: None,
            stdout: Vec::new(),
            stderr: Vec::new(),
            measures: Measures::default(),
            counted: Measures::default(),
            told: Measures::default(),
            shown: None,
            wakeup_latency: Vec::new(),
            loader: None,
        }
    }

    /// The scheduler of a loader was not there any more after the run, for a reason in words: the kernel tells it to the loader
    /// alone. An ejection that the loader has told of says more.
    fn of_ended(&mut self, why: String) {
        if matches!(self.exit, Exit::Done | Exit::Ejected) {
            self.exit = Exit::Ejected;
            self.message = Some(why);
        }
    }

    /// Of a run that there was none of, beside others that are kept.
    pub fn not_run(error: &Error) -> Outcome {
        Self::new(Exit::NotRun, Some(error.to_string()))
    }
}

/// Loads the scheduler, runs the program, measures, and takes the scheduler out again.
///
/// # Errors
/// Nothing ran: the scheduler cannot be loaded, the program cannot be started, or nothing can be
/// measured. What happens to a run under way is part of its outcome, and so is an ejection, however
/// early.
pub fn run(scheduler: &Scheduler, job: &Job) -> Result<Outcome> {
    run_told(scheduler, job, &mut ())
}

/// As [`run`]; `listener` hears the events while the program runs, where the job wants them.
///
/// # Errors
/// As [`run`].
pub fn run_told(scheduler: &Scheduler, job: &Job, listener: &mut dyn Listener) -> Result<Outcome> {
    find_program(&job.command)?;
    if !scheduler.is_kernels_own() {
        // Before the measurement needs what such a kernel may lack, too.
        load::ready()?;
    }
    let measurement = attach(job)?;
    let policy = match load(scheduler) {
        // The kernel took it and threw it out before the program began: a run like one that was
        // ended later, and what other runs have measured is kept.
        Err(Error::Ejected { exit, .. }) => return Ok(judge(End::Ejected, Some(*exit), &[], job)),
        loaded => loaded?,
    };
    let observed = observe(
        policy.as_ref().map(Policy::seen),
        job,
        measurement,
        listener,
    )?;
    let started = policy.as_ref().and_then(|policy| match policy {
        Policy::Started(policy) => Some((policy.version().map(str::to_owned), policy.why_ended())),
        Policy::Loaded(_) => None,
    });
    let exit = policy.map(Policy::unload).transpose()?;
    let mut outcome = observed.judge(exit, job);
    if let Some((version, why)) = started {
        outcome.loader = version;
        if let Some(why) = why {
            outcome.of_ended(why);
        }
    }
    Ok(outcome)
}

/// As [`run`], under a policy that is loaded and stays so.
///
/// # Errors
/// As [`run`].
pub fn run_under(policy: &Loaded, job: &Job) -> Result<Outcome> {
    find_program(&job.command)?;
    let measurement = attach(job)?;
    let observed = observe(Some(Seen::Loaded(policy)), job, measurement, &mut ())?;
    let exit = (!policy.is_running()).then(|| policy.exit());
    Ok(observed.judge(exit, job))
}

fn attach(job: &Job) -> Result<Measurement> {
    Measurement::attach(job.want).map_err(|error| Error::Measuring(Box::new(error)))
}

/// The facts by which a program that has ended is judged.
struct Observed {
    end: End,
    counted: Counted,
    told: Measures,
    shown: Option<Sources>,
    violations: Option<Violations>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

fn observe(
    policy: Option<Seen<'_>>,
    job: &Job,
    mut measurement: Measurement,
    listener: &mut dyn Listener,
) -> Result<Observed> {
    let mut stdout = tempfile::tempfile().at(std::env::temp_dir())?;
    let mut stderr = tempfile::tempfile().at(std::env::temp_dir())?;

    // The shell waits for the go, so that its process is known before the program begins.
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", "read -r go && exec \"$@\"", "sh"])
        .args(&job.command)
        .stdin(Stdio::piped())
        .stdout(stdout.try_clone().at("standard output")?)
        .stderr(stderr.try_clone().at("standard error")?);
    let words: Vec<_> = job.command.iter().map(|w| w.to_string_lossy()).collect();
    vm::doing(&format!(
        "running `{}` under {}",
        words.join(" "),
        policy.map_or("the kernel's own scheduler".to_owned(), |policy| format!(
            "the scheduler '{}'",
            policy.name()
        ))
    ));
    let mut group = Group::spawn(&mut command, None)?;
    let counts = policy.and_then(Seen::loaded);
    let before = match counts {
        Some(policy) => {
            Reading::clear_maxima(policy)?;
            Reading::take(policy)?
        }
        None => None,
    };
    let heard = job.want.hears().then(|| {
        let nr_cpus = topology::possible_cpus();
        let checkers = job.want.check.then(|| {
            let bound = stall_bound_ns(policy.is_some()).unwrap_or(u64::MAX);
            let bound = schedlab_trace::Duration::from_ns(bound);
            Checkers::new(nr_cpus, Start::Unknown, bound)
        });
        Heard::new(MetricsRecorder::new(nr_cpus, measurement.shown()), checkers)
    });
    let mut told = (heard, listener);
    measurement.begin(group.child().id())?;
    let started = Instant::now();
    if let Some(mut go) = group.child().stdin.take() {
        go.write_all(b"go\n").at("the program's standard input")?;
    }

    let waited = Wait {
        measurement: &mut measurement,
        policy,
        started,
        timeout: job.timeout,
    };
    let end = waited
        .until_ended(&mut group, &mut told)?
        .under(policy.is_none_or(Seen::is_running));
    let after = match counts {
        Some(policy) => Reading::take(policy)?,
        None => None,
    };
    let mut counted = measurement.end(&mut told)?;
    group.stop();
    if let (Some(after), Some(before)) = (after, before) {
        after.since(&before).measures(&mut counted.measures);
    }
    let (mut of_events, mut shown) = (Measures::default(), None);
    let mut violations = None;
    if let Some(heard) = told.0
        && counted.is_whole
    {
        let (recorder, found) = heard.finish();
        violations = found;
        of_events = recorder.measures(None);
        shown = Some(recorder.sources());
    }
    Ok(Observed {
        end,
        counted,
        told: of_events,
        shown,
        violations,
        stdout: contents(&mut stdout)?,
        stderr: contents(&mut stderr)?,
    })
}

impl Observed {
    fn judge(self, exit: Option<PolicyExit>, job: &Job) -> Outcome {
        let mut outcome = judge(self.end, exit, &self.stderr, job);
        outcome.stdout = self.stdout;
        outcome.stderr = self.stderr;
        outcome.measures = self.counted.measures.clone();
        // The same ones, but for what the counters round; and further ones.
        for (name, value) in self.told.iter() {
            outcome.measures.set(name, value.clone());
        }
        outcome.counted = self.counted.measures;
        outcome.told = self.told;
        outcome.shown = self.shown;
        outcome.wakeup_latency = self.counted.wakeup_latency;
        if let Some(found) = self.violations.filter(|found| found.count() > 0)
            && outcome.exit == Exit::Done
        {
            let first = found.first().first().map(ToString::to_string);
            outcome.exit = Exit::Violation;
            outcome.message = Some(format!(
                "{} in all: {}",
                found.count(),
                first.unwrap_or_default()
            ));
        }
        outcome
    }
}

/// Why waiting ended.
enum End {
    Exited(ExitStatus),
    TimedOut,
    Ejected,
}

impl End {
    /// A program may end between an ejection and the next look at the policy, and a policy that records no reason
    /// could not be distinguished from one that was taken out.
    fn under(self, policy_is_running: bool) -> End {
        if policy_is_running {
            self
        } else {
            End::Ejected
        }
    }
}

/// Waiting for the end of a run.
struct Wait<'a> {
    measurement: &'a mut Measurement,
    policy: Option<Seen<'a>>,
    started: Instant,
    timeout: Duration,
}

impl Wait<'_> {
    fn until_ended(self, group: &mut Group, listener: &mut dyn Listener) -> Result<End> {
        loop {
            if let Some(status) = group.ended() {
                return Ok(End::Exited(status));
            }
            // A program that runs on after an ejection is not the policy's any more: it is stopped, not measured.
            if self.policy.is_some_and(|p| !p.is_running()) {
                return Ok(End::Ejected);
            }
            if self.started.elapsed() > self.timeout {
                return Ok(End::TimedOut);
            }
            group.wait(POLL);
            self.measurement.tell_events(listener)?;
        }
    }
}

fn judge(end: End, exit: Option<PolicyExit>, stderr: &[u8], job: &Job) -> Outcome {
    let mut outcome = Outcome::new(Exit::Done, None);
    if let End::Exited(status) = &end {
        outcome.code = status.code().or_else(|| Some(128 + status.signal()?));
    }
    let ejected = exit.filter(|exit| !exit.is_normal());
    match (end, ejected) {
        // Ejected in the last moments counts too: the run may have been its doing.
        (_, Some(exit)) if exit.kind != 0 => {
            outcome.exit = Exit::of_scx(exit.kind as u64);
            outcome.message = Some(exit.told());
            outcome.dump = exit.dump;
        }
        (End::Ejected, _) => {
            outcome.exit = Exit::Ejected;
            outcome.message = Some(PolicyExit::default().told());
        }
        (End::TimedOut, _) => {
            outcome.exit = Exit::Timeout;
            outcome.message = Some(format!(
                "the program was still running after {} s and was stopped",
                job.timeout.as_secs()
            ));
        }
        (End::Exited(_), _) if outcome.code != Some(0) => {
            outcome.exit = Exit::CommandFailed;
            let said = String::from_utf8_lossy(stderr);
            let last = said.lines().rev().find(|l| !l.trim().is_empty());
            outcome.message = Some(format!(
                "the program ended with {}{}",
                outcome.code.map_or("?".to_owned(), |c| c.to_string()),
                last.map_or(String::new(), |l| format!(": {l}"))
            ));
        }
        (End::Exited(_), _) => {}
    }
    outcome
}

/// A clear message before anything is loaded.
fn find_program(command: &[OsString]) -> Result<()> {
    let not_found = |name: &str| Error::Command {
        command: name.to_owned(),
        cause: std::io::ErrorKind::NotFound.into(),
    };
    let Some(program) = command.first() else {
        return Err(not_found("(nothing)"));
    };
    match which::which(program) {
        Ok(_) => Ok(()),
        Err(_) => Err(not_found(&program.to_string_lossy())),
    }
}

fn contents(file: &mut File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).at("the program's output")?;
    file.read_to_end(&mut bytes).at("the program's output")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_has_no_options() {
        assert!(check(&Scheduler::plain(Scheduler::KERNELS_OWN)).is_ok());
        let error = check(&Scheduler::parse("kernel:a=1")).unwrap_err();
        assert_eq!(error.to_string(), "kernel has no option `a`: it has none");
        let error = check(&Scheduler::parse("/od:d/x.bpf.c:a=1")).unwrap_err();
        assert!(error.to_string().contains("/od:d/x.bpf.c"), "{error}");
    }

    /// A policy that the kernel ejects while it is attached, and one that it ejects later.
    #[test]
    fn an_ejection_is_told_alike_however_early() {
        let job = Job {
            command: vec!["true".into()],
            timeout: Duration::from_secs(1),
            want: Want::default(),
        };
        let exit = PolicyExit {
            kind: 1025,
            reason: "scx_bpf_error".to_owned(),
            message: "bad 0".to_owned(),
            dump: "CPU states".to_owned(),
            ..PolicyExit::default()
        };
        let outcome = judge(End::Ejected, Some(exit), &[], &job);
        assert_eq!(outcome.exit, Exit::ErrorBpf);
        assert_eq!(outcome.message.as_deref(), Some("scx_bpf_error (bad 0)"));
        assert_eq!(outcome.dump, "CPU states");
        assert_eq!(outcome.code, None);
        let silent = judge(End::Ejected, Some(PolicyExit::default()), &[], &job);
        assert_eq!(silent.exit, Exit::Ejected);
        assert!(silent.message.unwrap().contains("UEI_RECORD"));
    }

    #[test]
    fn who_ends_after_its_silent_policy_is_not_done() {
        let job = Job {
            command: vec!["true".into()],
            timeout: Duration::from_secs(1),
            want: Want::default(),
        };
        for (running, expected) in [(true, Exit::Done), (false, Exit::Ejected)] {
            let end = End::Exited(ExitStatus::from_raw(0)).under(running);
            let outcome = judge(end, Some(PolicyExit::default()), &[], &job);
            assert_eq!(outcome.exit, expected);
        }
    }

    /// The loader dies after the last look at its scheduler, and tells no reason.
    #[test]
    fn a_run_whose_loader_is_gone_at_its_end_does_not_count() {
        let why = || "the scheduler 'x' has ended: its loader has ended".to_owned();
        for (exit, expected) in [
            (Exit::Done, Exit::Ejected),
            (Exit::Ejected, Exit::Ejected),
            (Exit::ErrorBpf, Exit::ErrorBpf),
            (Exit::Timeout, Exit::Timeout),
            (Exit::CommandFailed, Exit::CommandFailed),
        ] {
            let mut outcome = Outcome::new(exit, None);
            outcome.of_ended(why());
            assert_eq!(outcome.exit, expected);
            let is_told = expected == Exit::Ejected;
            assert_eq!(outcome.message.is_some(), is_told);
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_told_before_anything_is_loaded() {
        let error = find_program(&[OsString::from("no-such-program-here")]).unwrap_err();
        assert!(error.to_string().contains("no-such-program-here"));
        assert!(find_program(&[OsString::from("sh")]).is_ok());
        assert!(find_program(&[]).is_err());
    }
}
