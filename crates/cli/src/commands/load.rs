//! `load`: a workload's real program, here and now, under whatever schedules.

use std::io::IsTerminal as _;
use std::num::NonZeroUsize;

use schedlab_programs::{End, Options, ProgramError, Report, original};
use schedlab_report::{Exit, Measures, RunResult};
use schedlab_sim::{batch, parts};
use schedlab_trace::{Duration, Instant};
use schedlab_workload::{Workload, note, rtapp};

use crate::args::LoadArgs;
use crate::output::{one_file_each, tell};
use crate::progress::{self, Progress};
use crate::real;
use crate::results::{self, Files, deliver};
use crate::status::Status;

pub fn run(args: &LoadArgs) -> anyhow::Result<Status> {
    let view = results::view(&args.show, Some(&args.workload))?;
    one_file_each(
        &results::outputs(&args.show),
        Workload::files(&args.workload),
    )?;
    let outputs = Files::begin(&args.show)?;
    let results = [match args.original {
        true => original(args)?,
        false => real(args)?,
    }];
    deliver(&results, &view, outputs)
}

/// Returns the workload's own real program.
fn real(args: &LoadArgs) -> anyhow::Result<RunResult> {
    let options = Options {
        seed: args.seed,
        limit: args.time_limit.to_std(),
    };
    let workload = progress::reading(|| schedlab_programs::parse(&args.workload))?;
    for note in &workload.notes {
        tell(note);
    }
    let (name, params) = (workload.name.clone(), workload.params.clone());
    let mut progress = Progress::new(1);
    let mut tick = || progress.update(0);
    let waiting = is_watched().then_some(&mut tick as &mut dyn FnMut());
    // Nothing else runs in this process yet: it is forked.
    let report = schedlab_programs::run_workload(workload, &options, waiting);
    drop(progress);
    match report {
        Ok(report) => Ok(result(&report, args)),
        Err(error) => failed(error, name, params, args),
    }
}

/// Returns whether anybody sees a progress bar: otherwise it would take time of the workload's CPUs for nothing.
fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// A failed run has a result, too: a comparison must not lose the results of the other schedulers for it.
fn failed(
    error: ProgramError,
    workload: String,
    params: Vec<(String, String)>,
    args: &LoadArgs,
) -> anyhow::Result<RunResult> {
    if error.is_usage() {
        return Err(error.into());
    }
    Ok(RunResult {
        workload,
        params,
        exit: Exit::CommandFailed,
        message: Some(error.to_string()),
        ..here(args)
    })
}

/// Returns the fields that results of this machine share.
fn here(args: &LoadArgs) -> RunResult {
    RunResult {
        asked: args.workload.clone(),
        scheduler: "current".to_owned(),
        machine: real::place().to_owned(),
        cpus: u32::try_from(schedlab_programs::nr_allowed_cpus()).unwrap_or(u32::MAX),
        seed: args.seed,
        replay: replay(args),
        ..RunResult::default()
    }
}

fn replay(args: &LoadArgs) -> String {
    let mut replay = format!(
        "schedlab load {}",
        schedlab_trace::shell_word(&args.workload)
    );
    if args.original {
        replay += " --original";
    }
    if let Some(source) = &args.source {
        replay += &format!(
            " --source {}",
            schedlab_trace::shell_word(&source.to_string_lossy())
        );
    }
    if let Some(scale) = args.scale {
        replay += &format!(" --scale {scale}");
    }
    replay + &format!(" --seed {} --time-limit {}", args.seed, args.time_limit)
}

/// Returns the program that the workload is a model of.
fn original(args: &LoadArgs) -> anyhow::Result<RunResult> {
    let limit = args.time_limit.to_std();
    let extra = original::Extra {
        source: args.source.as_deref(),
        scale: args.scale,
    };
    let run = || original::run(&args.workload, extra, limit);
    let figure = match is_watched() {
        true => {
            let mut progress = Progress::new(1);
            batch::run_all(
                &[()],
                NonZeroUsize::MIN,
                |()| run(),
                |done| progress.update(done),
            )
            .map(|figures| figures.into_iter().next().expect("a run has a result"))
        }
        false => run(),
    };
    let figure = match figure {
        Ok(figure) => figure,
        Err(error) => {
            let workload = schedlab_programs::parse(&args.workload)?;
            return failed(error, workload.name, workload.params, args);
        }
    };
    let mut measures = Measures::default();
    let score = &figure.score;
    measures.score(figure.value, score.unit, score.higher_is_better);
    measures.float(score.name, figure.value);
    measures.int("makespan_ns", figure.makespan_ns);
    Ok(RunResult {
        workload: figure.workload,
        params: figure.params,
        exit: Exit::Done,
        measures,
        ..here(args)
    })
}

/// Returns the first few of a list, and how many more there are.
fn some_of(list: &[String]) -> String {
    const SHOWN: usize = 8;
    match list.len().saturating_sub(SHOWN) {
        0 => list.join(", "),
        more => format!("{} and {more} more", list[..SHOWN].join(", ")),
    }
}

/// Returns the result of a run that ended so, and the message about it.
fn ending(end: &End, failure: Option<String>, limit: Duration) -> (Exit, Option<String>) {
    let stuck = |left: &[String]| {
        format!(
            "nothing was left that could wake {}; check the workload's locks, pipes and barriers",
            some_of(left)
        )
    };
    match end {
        // As in a simulation.
        End::Stuck {
            left,
            at_mutex: true,
        } => (Exit::Deadlock, Some(stuck(left))),
        End::TimedOut(left) => {
            let text = format!(
                "not finished after {}: {}; give it more with --time-limit",
                limit.words(),
                some_of(left)
            );
            (Exit::TimeLimit, Some(text))
        }
        _ if failure.is_some() => (Exit::CommandFailed, failure),
        End::Done => (Exit::Done, None),
        End::Stuck { left, .. } => {
            let text = format!(
                "what was left of the threads waited until the workload's duration was over: {}",
                stuck(left)
            );
            (Exit::Done, Some(text))
        }
    }
}

fn result(report: &Report, args: &LoadArgs) -> RunResult {
    let mut measures = Measures::default();
    let failure = rtapp::failure(&report.counters);
    let (exit, message) = ending(&report.end, failure, args.time_limit);
    let is_done = exit == Exit::Done;
    let mut notes = Vec::new();
    if is_done {
        let score = &report.score;
        if report.parts.is_empty() {
            let name = &report.workload;
            notes.extend(note(name, name, &report.counters, report.score_value()));
        }
        if let (Some(value), true) = (report.score_value(), report.parts.is_empty()) {
            measures.score(value, score.unit, score.higher_is_better);
            measures.float(score.name, value);
        }
        measures.int("makespan_ns", report.makespan_ns);
    }
    let mut counters = report.counters.clone();
    let end = Instant::from_ns(report.makespan_ns);
    notes.extend(parts::measure(
        &report.parts,
        &mut counters,
        end,
        is_done,
        &mut measures,
    ));
    let message = parts::with_notes(message, notes);
    measures.int("work", report.work);
    measures.int("tasks", report.tasks);
    measures.counters(counters.values(), counters.measures());
    RunResult {
        workload: report.workload.clone(),
        params: report.params.clone(),
        exit,
        message,
        measures,
        ..here(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_words() {
        let left = || vec!["a-0".to_owned(), "b-1".to_owned()];
        let of = |end: &End, failure: Option<&str>| {
            let failure = failure.map(str::to_owned);
            ending(end, failure, Duration::from_secs(60))
        };
        let stuck = "nothing was left that could wake a-0, b-1; check the workload's locks, pipes and barriers";
        let idle = format!(
            "what was left of the threads waited until the workload's duration was over: {stuck}"
        );
        let late = "not finished after 60 s: a-0, b-1; give it more with --time-limit";
        let at = |at_mutex| End::Stuck {
            left: left(),
            at_mutex,
        };
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(of(&End::Done, None), (Exit::Done, None));
        assert_eq!(of(&at(false), None), (Exit::Done, told(&idle)));
        assert_eq!(of(&at(true), None), (Exit::Deadlock, told(stuck)));
        assert_eq!(
            of(&End::TimedOut(left()), None),
            (Exit::TimeLimit, told(late))
        );
        // A failure of rt-app's is the news, unless the run did not come to its end.
        let failed = (Exit::CommandFailed, told("mem"));
        assert_eq!(of(&End::Done, Some("mem")), failed);
        assert_eq!(of(&at(false), Some("mem")), failed);
        assert_eq!(of(&at(true), Some("mem")).0, Exit::Deadlock);
        assert_eq!(of(&End::TimedOut(left()), Some("mem")).0, Exit::TimeLimit);
    }

    #[test]
    fn of_a_long_list_some_are_named() {
        let list = |nr: u32| (0..nr).map(|i| i.to_string()).collect::<Vec<_>>();
        assert_eq!(some_of(&list(2)), "0, 1");
        assert_eq!(some_of(&list(8)), "0, 1, 2, 3, 4, 5, 6, 7");
        assert_eq!(some_of(&list(509)), "0, 1, 2, 3, 4, 5, 6, 7 and 501 more");
    }
}
