//! Runs a workload under several schedulers of the running kernel, in interleaved order, and hands
//! over results in the common form.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use schedlab_report::{RunResult, Value};

use crate::error::{At as _, Error, Result};
use crate::measure::Want;
use crate::run::{self, Job, Outcome, Scheduler};
use crate::topology;
use crate::trace::RawEvent;
use crate::vm;

/// What is run under each scheduler.
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
pub struct Experiment {
    /// Schedulers, as they are asked for.
    pub schedulers: Vec<String>,
    /// What they schedule.
    pub load: Load,
    /// Runs of each.
    pub repeat: u32,
    /// Seed of the first run; the next ones count on.
    pub seed: u64,
    /// Bound on one run.
    pub time_limit: Duration,
    /// Whether events are kept.
    pub events: bool,
}

/// One run's result, with its events where they were wanted.
pub struct Run {
    /// In the common form.
    pub result: RunResult,
    /// In the order of time.
    pub events: Vec<RawEvent>,
    /// What the program wrote to standard output (a workload: nothing).
    pub stdout: Vec<u8>,
    /// What the program wrote to standard error.
    pub stderr: Vec<u8>,
}

impl Experiment {
    /// Runs everything: each scheduler once, then each a second time, and so on, so that what
    /// changes slowly on the machine changes for all of them.
    ///
    /// # Errors
    /// A scheduler cannot be loaded, or the workload cannot be started or understood.
    pub fn run(&self, on_run: &mut dyn FnMut(&Run)) -> Result<Vec<RunResult>> {
        let schedulers: Vec<Scheduler> = self
            .schedulers
            .iter()
            .map(|text| Scheduler::parse(text))
            .collect();
        // Compiled and found before the first run, not in the middle.
        for scheduler in &schedulers {
            scheduler.check()?;
        }
        let mut results = Vec::new();
        for round in 0..self.repeat {
            let seed = self.seed + u64::from(round);
            for (scheduler, text) in schedulers.iter().zip(&self.schedulers) {
                let outcome = run::run(scheduler, &self.job(seed))?;
                let run = self.result(text, seed, outcome)?;
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
                let limit = self.time_limit.as_secs().max(1).to_string();
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
            // The workload ends itself at the limit and tells which threads hang.
            timeout: self.time_limit + Duration::from_secs(20),
            want: Want {
                events: self.events,
                root_is_starter: matches!(self.load, Load::Workload { .. }),
            },
        }
    }

    fn result(&self, scheduler: &str, seed: u64, outcome: Outcome) -> Result<Run> {
        let cpus = u32::try_from(topology::online().len()).unwrap_or(u32::MAX);
        let mut result = RunResult {
            asked: self.load.to_string(),
            scheduler: scheduler.to_owned(),
            machine: if vm::inside() { "vm" } else { "host" }.to_owned(),
            cpus,
            seed,
            exit: outcome.exit,
            message: outcome.message,
            dump: outcome.dump,
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
                    result.measures.float("score", seconds);
                    result.measures.text("score_unit", "s");
                    result.measures.text("score_better", "lower");
                }
            }
            Load::Workload { text, .. } => {
                result.workload = text.split(':').next().unwrap_or(text).to_owned();
                let document = std::mem::take(&mut stdout);
                if !document.is_empty() {
                    take_over(&document, &mut result)?;
                } else if outcome.code == Some(2) {
                    // It did not understand what it should do: no scheduler is at fault.
                    let said = String::from_utf8_lossy(&outcome.stderr);
                    let line = said.lines().last().unwrap_or("the workload failed");
                    return Err(Error::Workload(
                        line.strip_prefix("schedlab: ").unwrap_or(line).to_owned(),
                    ));
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
        Ok(Run {
            result,
            events: outcome.events,
            stdout,
            stderr: outcome.stderr,
        })
    }

    fn replay(&self, scheduler: &str, seed: u64, cpus: u32) -> String {
        let mut words = vec!["schedlab".to_owned(), "run".to_owned()];
        if vm::inside() {
            words.extend(["--vm".to_owned(), format!("--cpus {cpus}")]);
        }
        words.push(format!("-s {}", vm::quote_if_needed(scheduler)));
        match &self.load {
            Load::Workload { text, .. } => {
                words.push(format!("--seed {seed}"));
                words.push(vm::quote_if_needed(text));
            }
            Load::Command(command) => {
                words.push("--".to_owned());
                words.extend(
                    command
                        .iter()
                        .map(|word| vm::quote_if_needed(&word.to_string_lossy())),
                );
            }
        }
        words.join(" ")
    }
}

/// A workload that was stopped could not say what it is; those of the other runs are the same, and
/// beside them its row belongs.
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

/// What `schedlab load --json -` wrote: one result with the workload's own measures.
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
    let exit = own["exit"].as_str().ok_or_else(|| wrong("exit"))?;
    // An ejection explains a workload that did not end, not the other way round.
    let explained = !result.is_done() && result.exit != "command_failed";
    if exit != RunResult::DONE && !explained {
        result.exit = exit.to_owned();
        result.message = own["message"].as_str().map(str::to_owned);
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
            exit: RunResult::DONE.to_owned(),
            ..RunResult::default()
        }
    }

    #[test]
    fn a_workloads_result_is_taken_over() {
        let mut result = result();
        let document = br#"{"schema":1,"results":[{"workload":"chat","params":{"rooms":"2"},
            "exit":"time_limit","message":"not finished","measures":{"score":1.5,"work":3,"score_unit":"1/s"}}]}"#;
        take_over(document, &mut result).unwrap();
        assert_eq!(result.workload, "chat");
        assert_eq!(result.params, [("rooms".to_owned(), "2".to_owned())]);
        assert_eq!(result.exit, "time_limit");
        assert_eq!(result.measures.number("score"), Some(1.5));
        assert_eq!(result.measures.get("work"), Some(&Value::Int(3)));
    }

    #[test]
    fn a_run_that_was_stopped_is_named_like_the_others() {
        let mut ejected = result();
        ejected.exit = "error_bpf".to_owned();
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
        result.exit = "error_stall".to_owned();
        let document = br#"{"results":[{"workload":"chat","exit":"time_limit","measures":{}}]}"#;
        take_over(document, &mut result).unwrap();
        assert_eq!(result.exit, "error_stall");
        assert!(take_over(b"{}", &mut result).is_err());
        assert!(take_over(b"no json", &mut result).is_err());
    }
}
