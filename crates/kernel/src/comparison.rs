//! Runs a workload under several schedulers of the running kernel, in interleaved order, and hands
//! over results in the common form.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use schedlab_report::{Exit, Measures, RunResult, Sources, Value};
use schedlab_trace::{Listener, Scheduler, shell_word};
use serde::Deserialize as _;

use crate::error::{At as _, Error, Result};
use crate::load;
use crate::measure::Want;
use crate::run::{self, Job, Outcome};
use crate::topology;
use crate::vm;

/// Time beyond its limit that a workload's program gets to report its result.
const GRACE: Duration = Duration::from_secs(20);

/// Exit code of schedlab where the command line or an input is wrong.
const USAGE: i32 = 2;

/// Writes a time limit as an option: in the largest unit in which it is whole.
fn option_text(limit: Duration) -> String {
    let ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    schedlab_trace::Duration::from_ns(ns).to_string()
}

/// The workload or command that runs under each scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Load {
    /// A workload of schedlab: its real program.
    Workload {
        /// `NAME[:option=value,…]` or the path of an rt-app file.
        text: String,
        /// The program that has the subcommand `load`; usually this one.
        program: PathBuf,
    },
    /// Any command. Its score is its running time.
    Command(Vec<OsString>),
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Load::Workload { text, .. } => write!(f, "{text}"),
            Load::Command(command) => {
                let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
                write!(f, "{}", words.join(" "))
            }
        }
    }
}

/// A comparison to be run.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The schedulers.
    pub schedulers: Vec<Scheduler>,
    /// The workload or command.
    pub load: Load,
    /// Runs of each.
    pub repeat: u32,
    /// Seed of the first run; the next ones count on.
    pub seed: u64,
    /// Bound on one run.
    pub time_limit: Duration,
    /// Whether the invariants are checked over the kernel's events.
    pub check: bool,
}

/// One run's result.
pub struct Run {
    /// In the common form.
    pub result: RunResult,
    /// The measures of the streamed events alone, and which events were streamed.
    pub of_events: Measures,
    pub shown: Option<Sources>,
    /// The program's standard output (a workload: empty).
    pub stdout: Vec<u8>,
    /// The program's standard error.
    pub stderr: Vec<u8>,
}

/// Carries out one run.
type Runner<'a> = &'a mut dyn FnMut(&Scheduler, &Job) -> Result<Outcome>;

impl Comparison {
    /// Runs once under the kernel's own scheduler, without a result. This run brings the program and its files into
    /// the caches, for which the first scheduler would pay otherwise, and finds faults for which no scheduler is to
    /// blame.
    ///
    /// # Errors
    /// Nothing can be run or measured here, or the workload cannot be understood.
    pub fn warm_up(&self) -> Result<()> {
        // Before anybody waits for it.
        if !self.schedulers.iter().all(Scheduler::is_kernels_own) {
            load::ready()?;
        }
        self.warm_up_by(&mut run::run)
    }

    fn warm_up_by(&self, run: Runner<'_>) -> Result<()> {
        let mut job = self.job(self.seed);
        job.want.check = false;
        let outcome = run(&Scheduler::plain(Scheduler::KERNELS_OWN), &job)?;
        match self.load {
            Load::Workload { .. } if outcome.code == Some(USAGE) => {
                let said = String::from_utf8_lossy(&outcome.stderr);
                let line = said.lines().last().unwrap_or("the workload failed");
                Err(Error::Workload(
                    line.strip_prefix("schedlab: ").unwrap_or(line).to_owned(),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Runs everything: each scheduler once, then each a second time, and so on, so that what
    /// changes slowly on the machine changes for all of them. Each round another one begins. A
    /// scheduler that cannot be run is a failed run among the others, which are kept.
    ///
    /// # Errors
    /// A scheduler is unknown or does not compile; or nothing can be run here, whatever the scheduler.
    pub fn run(&self, on_run: &mut dyn FnMut(&Run)) -> Result<Vec<RunResult>> {
        // Compiled and found before the first run, not in the middle.
        for scheduler in &self.schedulers {
            run::check(scheduler)?;
        }
        self.run_by(&mut run::run, on_run)
    }

    /// As [`Comparison::run`]; `listener` hears the events of each run.
    ///
    /// # Errors
    /// As [`Comparison::run`].
    pub fn run_told(
        &self,
        listener: &mut dyn Listener,
        on_run: &mut dyn FnMut(&Run),
    ) -> Result<Vec<RunResult>> {
        for scheduler in &self.schedulers {
            run::check(scheduler)?;
        }
        let mut told = |scheduler: &Scheduler, job: &Job| {
            let mut job = job.clone();
            job.want.events = true;
            run::run_told(scheduler, &job, listener)
        };
        self.run_by(&mut told, on_run)
    }

    fn run_by(&self, run: Runner<'_>, on_run: &mut dyn FnMut(&Run)) -> Result<Vec<RunResult>> {
        let mut results = Vec::new();
        for round in 0..self.repeat {
            let seed = self.seed.wrapping_add(round.into());
            for turn in 0..self.schedulers.len() {
                let scheduler = &self.schedulers[(turn + round as usize) % self.schedulers.len()];
                let outcome = match run(scheduler, &self.job(seed)) {
                    // Nothing is lost, and the next one would fare no better.
                    Err(error) if results.is_empty() && !error.is_of_policy() => return Err(error),
                    outcome => outcome.unwrap_or_else(|error| Outcome::not_run(&error)),
                };
                let run = self.result(&scheduler.to_string(), seed, outcome);
                on_run(&run);
                results.push(run.result);
            }
        }
        name_alike(&mut results);
        Ok(results)
    }

    fn job(&self, seed: u64) -> Job {
        let command = match &self.load {
            Load::Command(command) => command.clone(),
            Load::Workload { text, program } => {
                let limit = option_text(self.time_limit);
                let mut command = vec![program.clone().into_os_string()];
                for word in [
                    "load",
                    text,
                    "--seed",
                    &seed.to_string(),
                    "--time-limit",
                    &limit,
                    "--json",
                    "-",
                ] {
                    command.push(word.into());
                }
                command
            }
        };
        Job {
            command,
            timeout: match self.load {
                Load::Command(_) => self.time_limit,
                // It ends itself at the limit and reports which threads hang.
                Load::Workload { .. } => self.time_limit + GRACE,
            },
            want: Want {
                events: false,
                check: self.check,
                root_is_starter: matches!(self.load, Load::Workload { .. }),
            },
        }
    }

    fn result(&self, scheduler: &str, seed: u64, outcome: Outcome) -> Run {
        let cpus = u32::try_from(topology::online().len()).unwrap_or(u32::MAX);
        let mut result = RunResult {
            asked: self.load.to_string(),
            scheduler: scheduler.to_owned(),
            machine: vm::place().to_owned(),
            cpus,
            seed,
            exit: outcome.exit,
            message: outcome.message,
            dump: outcome.dump,
            loader: outcome.loader,
            replay: self.replay(scheduler, seed, cpus),
            histograms: vec![("wakeup.latency_ns".to_owned(), outcome.wakeup_latency)],
            ..RunResult::default()
        };
        let mut stdout = outcome.stdout;
        match &self.load {
            Load::Command(_) => {
                result.workload = self.load.to_string();
                if let (true, Some(Value::Int(ns))) =
                    (result.is_done(), outcome.measures.get("makespan_ns"))
                {
                    let seconds = *ns as f64 / 1e9;
                    result.measures.score(seconds, "s", false);
                }
            }
            Load::Workload { text, .. } => {
                result.workload = text.split(':').next().unwrap_or(text).to_owned();
                let document = std::mem::take(&mut stdout);
                let taken = match document.is_empty() {
                    true => Ok(()),
                    false => take_over(&document, &mut result),
                };
                if let (Err(error), true) = (taken, result.is_done()) {
                    result.exit = Exit::CommandFailed;
                    result.message = Some(error.to_string());
                }
            }
        }
        for (name, value) in outcome.measures.iter() {
            // The workload's own time excludes the start of the program; it is the better one.
            let failed = name == "makespan_ns" && !result.is_done();
            if !failed && result.measures.get(name).is_none() {
                result.measures.set(name, value.clone());
            }
        }
        Run {
            result,
            of_events: outcome.told,
            shown: outcome.shown,
            stdout,
            stderr: outcome.stderr,
        }
    }

    fn replay(&self, scheduler: &str, seed: u64, cpus: u32) -> String {
        let mut words = vec!["schedlab".to_owned(), "run".to_owned()];
        if vm::inside() {
            words.extend(["--vm".to_owned(), format!("--cpus {cpus}")]);
        }
        words.push(format!("-s {}", shell_word(scheduler)));
        words.push(format!("--time-limit {}", option_text(self.time_limit)));
        match &self.load {
            Load::Workload { text, .. } => {
                words.push(format!("--seed {seed}"));
                words.push(shell_word(text));
            }
            Load::Command(command) => {
                words.push("--".to_owned());
                words.extend(
                    command
                        .iter()
                        .map(|word| shell_word(&word.to_string_lossy())),
                );
            }
        }
        words.join(" ")
    }
}

/// A workload that was stopped could not report its identity. The other runs have the same, and its row belongs
/// beside them.
fn name_alike(results: &mut [RunResult]) {
    let known = results.iter().find(|run| !run.params.is_empty());
    let Some((workload, params)) = known.map(|run| (run.workload.clone(), run.params.clone()))
    else {
        return;
    };
    for run in results.iter_mut().filter(|run| run.params.is_empty()) {
        run.workload.clone_from(&workload);
        run.params.clone_from(&params);
    }
}

/// Returns the output of `schedlab load --json -`: one result with the workload's own measures.
fn take_over(document: &[u8], result: &mut RunResult) -> Result<()> {
    let wrong = |what: &str| Error::Workload(format!("its result has no {what}"));
    let document: serde_json::Value = serde_json::from_slice(document)
        .map_err(std::io::Error::from)
        .at("the workload's result")?;
    let own = &document["results"][0];
    let name = own["workload"].as_str().ok_or_else(|| wrong("name"))?;
    result.workload = name.to_owned();
    if let Some(params) = own["params"].as_object() {
        result.params = params
            .iter()
            .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
            .collect();
    }
    let exit = Exit::deserialize(&own["exit"]).map_err(|_| wrong("exit"))?;
    // An ejection explains a workload that did not end, not the other way round.
    let explained = !result.is_done() && result.exit != Exit::CommandFailed;
    let message = || own["message"].as_str().map(str::to_owned);
    if exit != Exit::Done && !explained {
        result.exit = exit;
        result.message = message();
    } else if exit == Exit::Done && result.is_done() && result.message.is_none() {
        // The notes of one that was done.
        result.message = message();
    }
    let measures = own["measures"]
        .as_object()
        .ok_or_else(|| wrong("measures"))?;
    for (name, value) in measures {
        if let Some(n) = value.as_u64() {
            result.measures.int(name, n);
        } else if let Some(x) = value.as_f64() {
            result.measures.float(name, x);
        } else if let Some(text) = value.as_str() {
            result.measures.text(name, text);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> RunResult {
        RunResult {
            scheduler: "x".to_owned(),
            machine: "host".to_owned(),
            cpus: 1,
            seed: 1,
            exit: Exit::Done,
            ..RunResult::default()
        }
    }

    fn comparison(schedulers: &[&str], repeat: u32, load: Load) -> Comparison {
        Comparison {
            schedulers: schedulers
                .iter()
                .map(|text| Scheduler::parse(text))
                .collect(),
            load,
            repeat,
            seed: 7,
            time_limit: Duration::from_secs(5),
            check: false,
        }
    }

    fn workload() -> Load {
        Load::Workload {
            text: "chat".to_owned(),
            program: "/bin/schedlab".into(),
        }
    }

    fn command() -> Load {
        Load::Command(vec!["sleep".into(), "100".into()])
    }

    fn outcome(exit: Exit, code: i32, stdout: &[u8]) -> Outcome {
        let mut outcome = Outcome::not_run(&Error::Workload(String::new()));
        outcome.exit = exit;
        outcome.message = None;
        outcome.code = Some(code);
        outcome.stdout = stdout.to_owned();
        outcome
    }

    /// Runs of `comparison`, each as `(scheduler, seed, exit)`.
    fn carried_out(comparison: &Comparison, run: Runner<'_>) -> Result<Vec<(String, u64, Exit)>> {
        let mut told = Vec::new();
        let results = comparison.run_by(run, &mut |run| {
            let result = &run.result;
            told.push((result.scheduler.clone(), result.seed, result.exit));
        })?;
        assert_eq!(results.len(), told.len());
        Ok(told)
    }

    #[test]
    fn each_round_another_scheduler_begins() {
        let comparison = comparison(&["a", "b", "c"], 4, command());
        let told = carried_out(&comparison, &mut |_, _| Ok(outcome(Exit::Done, 0, b""))).unwrap();
        let order: Vec<String> = told
            .iter()
            .map(|(name, seed, _)| format!("{name}{seed}"))
            .collect();
        let expected = "a7 b7 c7 b8 c8 a8 c9 a9 b9 a10 b10 c10";
        assert_eq!(order.join(" "), expected);
    }

    #[test]
    fn a_scheduler_that_cannot_be_run_costs_no_other_its_run() {
        let comparison = comparison(&["kernel", "refused", "busy"], 2, command());
        let mut run = |scheduler: &Scheduler, _: &Job| match scheduler.name.as_str() {
            "refused" => Err(Error::Rejected {
                policy: "refused".to_owned(),
                reason: "invalid mem access".to_owned(),
                log: "x.log".into(),
            }),
            "busy" => Err(Error::AlreadyLoaded {
                name: "theirs".to_owned(),
            }),
            _ => Ok(outcome(Exit::Done, 0, b"")),
        };
        let told = carried_out(&comparison, &mut run).unwrap();
        let exits: Vec<_> = told
            .iter()
            .map(|(name, _, exit)| (name.as_str(), *exit))
            .collect();
        let (done, no, busy) = (
            ("kernel", Exit::Done),
            ("refused", Exit::NotRun),
            ("busy", Exit::NotRun),
        );
        assert_eq!(exits, [done, no, busy, no, busy, done]);
    }

    /// Where nothing has been measured yet, one message says it better than a table of failures.
    #[test]
    fn what_no_policy_is_to_blame_for_is_told_at_once() {
        let comparison = comparison(&["a", "b"], 3, command());
        let mut run = |_: &Scheduler, _: &Job| {
            Err(Error::Measuring(Box::new(Error::Rejected {
                policy: "the measuring programs".to_owned(),
                reason: "-EPERM".to_owned(),
                log: "x.log".into(),
            })))
        };
        assert!(carried_out(&comparison, &mut run).is_err());
        assert!(comparison.warm_up_by(&mut run).is_err());
    }

    /// A workload that starves under a policy fails at run time: no error of the command line.
    #[test]
    fn a_starved_workload_is_a_failed_run() {
        let comparison = comparison(&["kernel", "starver"], 1, workload());
        let document = br#"{"results":[{"workload":"chat","exit":"command_failed",
            "message":"only 1 of 9 tasks started within 20 s","measures":{}}]}"#;
        let mut told = Vec::new();
        let mut run = |scheduler: &Scheduler, _: &Job| match scheduler.name.as_str() {
            Scheduler::KERNELS_OWN => Ok(outcome(Exit::CommandFailed, 2, b"")),
            _ => Ok(outcome(Exit::CommandFailed, 1, document)),
        };
        let results = comparison.run_by(&mut run, &mut |run| {
            told.push(run.result.exit);
        });
        assert_eq!(told, [Exit::CommandFailed; 2]);
        let message = results.unwrap()[1].message.clone().unwrap();
        assert!(message.contains("1 of 9 tasks"), "{message}");
        // But before anything is measured, what it does not understand is said.
        assert!(comparison.warm_up_by(&mut run).is_err());
    }

    #[test]
    fn an_ejection_is_kept_whatever_the_workload_says() {
        let comparison = comparison(&["x"], 1, workload());
        for stdout in [&b""[..], b"no json", b"{}"] {
            let mut run = |_: &Scheduler, _: &Job| Ok(outcome(Exit::ErrorStall, 2, stdout));
            let told = carried_out(&comparison, &mut run).unwrap();
            assert_eq!(told[0].2, Exit::ErrorStall);
        }
        let mut run = |_: &Scheduler, _: &Job| Ok(outcome(Exit::Done, 0, b"no json"));
        let told = carried_out(&comparison, &mut run).unwrap();
        assert_eq!(told[0].2, Exit::CommandFailed);
    }

    #[test]
    fn only_what_ends_itself_gets_more_than_its_time() {
        let job = comparison(&["a"], 1, command()).job(1);
        assert_eq!(job.timeout, Duration::from_secs(5));
        let job = comparison(&["a"], 1, workload()).job(1);
        assert!(job.timeout > Duration::from_secs(5));
    }

    #[test]
    fn a_replay_has_the_time_limit() {
        let replay = comparison(&["a"], 1, workload()).replay("a", 7, 2);
        assert!(
            replay.ends_with("-s a --time-limit 5s --seed 7 chat"),
            "{replay}"
        );
        let replay = comparison(&["a"], 1, command()).replay("a", 7, 2);
        assert!(
            replay.ends_with("-s a --time-limit 5s -- sleep 100"),
            "{replay}"
        );
    }

    #[test]
    fn a_workloads_result_is_taken_over() {
        let mut result = result();
        let document = br#"{"schema":1,"results":[{"workload":"chat","params":{"rooms":"2"},
            "exit":"time_limit","message":"not finished","measures":{"score":1.5,"work":3,"score_unit":"1/s"}}]}"#;
        take_over(document, &mut result).unwrap();
        assert_eq!(result.workload, "chat");
        assert_eq!(result.params, [("rooms".to_owned(), "2".to_owned())]);
        assert_eq!(result.exit, Exit::TimeLimit);
        assert_eq!(result.measures.number("score"), Some(1.5));
        assert_eq!(result.measures.get("work"), Some(&Value::Int(3)));
        assert_eq!(result.message.as_deref(), Some("not finished"));
    }

    #[test]
    fn what_is_said_of_a_run_that_was_done_is_kept() {
        let document =
            br#"{"results":[{"workload":"x","exit":"done","message":"two waited","measures":{}}]}"#;
        let mut done = result();
        take_over(document, &mut done).unwrap();
        assert_eq!(
            (done.exit, done.message.as_deref()),
            (Exit::Done, Some("two waited"))
        );
        let mut ejected = result();
        ejected.exit = Exit::ErrorStall;
        take_over(document, &mut ejected).unwrap();
        assert_eq!((ejected.exit, ejected.message), (Exit::ErrorStall, None));
    }

    #[test]
    fn a_run_that_was_stopped_is_named_like_the_others() {
        let mut ejected = result();
        ejected.exit = Exit::ErrorBpf;
        let mut results = [ejected.clone(), result(), ejected.clone()];
        results[1].workload = "chat".to_owned();
        results[1].params = vec![("rooms".to_owned(), "2".to_owned())];
        name_alike(&mut results);
        for run in &results {
            assert_eq!(run.workload, "chat");
            assert_eq!(run.params, results[1].params);
        }
        let mut alone = [ejected];
        name_alike(&mut alone);
        assert!(alone[0].params.is_empty());
    }

    #[test]
    fn an_ejection_is_not_hidden_by_the_workloads_own_exit() {
        let mut result = result();
        result.exit = Exit::ErrorStall;
        let document = br#"{"results":[{"workload":"chat","exit":"time_limit","measures":{}}]}"#;
        take_over(document, &mut result).unwrap();
        assert_eq!(result.exit, Exit::ErrorStall);
        assert!(take_over(b"{}", &mut result).is_err());
        assert!(take_over(b"no json", &mut result).is_err());
    }
}
