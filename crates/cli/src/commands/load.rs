//! `load`: a workload's real program, here and now, under whatever schedules.

use std::time::Duration;

use schedlab_programs::{End, Options, Report, original};
use schedlab_report::export::table;
use schedlab_report::{Measures, RunResult};

use super::{Status, deliver, json_output, width};
use crate::args::LoadArgs;

pub fn run(args: &LoadArgs) -> anyhow::Result<Status> {
    let json = json_output(args.json.as_deref())?;
    if args.original {
        let results = [original(args)?];
        return deliver(
            &results,
            &table::render(&results, width()),
            args.json.as_deref(),
            json,
        );
    }
    let options = Options {
        seed: args.seed,
        limit: Duration::from_secs(args.time_limit),
    };
    // Nothing else runs in this process yet: it is forked.
    let report = schedlab_programs::run(&args.workload, &options)?;
    for note in &report.notes {
        eprintln!("schedlab: {note}");
    }
    let results = [result(&report, args)];
    deliver(
        &results,
        &table::render(&results, width()),
        args.json.as_deref(),
        json,
    )
}

/// The program that the workload is a model of.
fn original(args: &LoadArgs) -> anyhow::Result<RunResult> {
    let limit = Duration::from_secs(args.time_limit);
    let extra = original::Extra {
        source: args.source.as_deref(),
        scale: args.scale,
    };
    let figure = original::run(&args.workload, extra, limit)?;
    let mut measures = Measures::default();
    measures.float("score", figure.value);
    measures.text("score_unit", figure.score.unit);
    measures.text("score_better", figure.score.better());
    measures.float(figure.score.name, figure.value);
    measures.int("makespan_ns", figure.makespan_ns);
    let mut replay = format!(
        "schedlab load {} --original",
        schedlab_sim::quote(&args.workload)
    );
    if let Some(source) = &args.source {
        replay += &format!(
            " --source {}",
            schedlab_sim::quote(&source.to_string_lossy())
        );
    }
    if let Some(scale) = args.scale {
        replay += &format!(" --scale {scale}");
    }
    Ok(RunResult {
        workload: figure.workload,
        asked: args.workload.clone(),
        params: figure.params,
        scheduler: "current".to_owned(),
        machine: "host".to_owned(),
        cpus: u32::try_from(schedlab_programs::nr_cpus()).unwrap_or(u32::MAX),
        seed: args.seed,
        exit: RunResult::DONE.to_owned(),
        replay,
        measures,
        ..RunResult::default()
    })
}

/// The first few of a list, and how many more there are.
fn some_of(list: &[String]) -> String {
    const SHOWN: usize = 8;
    match list.len().saturating_sub(SHOWN) {
        0 => list.join(", "),
        more => format!("{} and {more} more", list[..SHOWN].join(", ")),
    }
}

fn result(report: &Report, args: &LoadArgs) -> RunResult {
    let mut measures = Measures::default();
    let message = match &report.end {
        End::Done => None,
        End::TimedOut(left) => Some(format!(
            "not finished after {} s: {}; give it more with --time-limit",
            args.time_limit,
            some_of(left)
        )),
    };
    if message.is_none() {
        let score = &report.score;
        if let Some(value) = report.score_value() {
            measures.float("score", value);
            measures.text("score_unit", score.unit);
            measures.text("score_better", score.better());
            measures.float(score.name, value);
        }
        measures.int("makespan_ns", report.makespan_ns);
    }
    measures.int("work", report.work);
    measures.int("tasks", report.tasks);
    measures.counters(report.counters.values(), report.counters.measures());
    RunResult {
        workload: report.workload.clone(),
        asked: args.workload.clone(),
        params: report.params.clone(),
        scheduler: "current".to_owned(),
        machine: "host".to_owned(),
        cpus: u32::try_from(schedlab_programs::nr_cpus()).unwrap_or(u32::MAX),
        seed: args.seed,
        exit: match message {
            None => RunResult::DONE.to_owned(),
            Some(_) => "time_limit".to_owned(),
        },
        message,
        replay: format!(
            "schedlab load {} --seed {} --time-limit {}",
            schedlab_sim::quote(&args.workload),
            args.seed,
            args.time_limit
        ),
        measures,
        ..RunResult::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_list_some_are_named() {
        let list = |nr: u32| (0..nr).map(|i| i.to_string()).collect::<Vec<_>>();
        assert_eq!(some_of(&list(2)), "0, 1");
        assert_eq!(some_of(&list(8)), "0, 1, 2, 3, 4, 5, 6, 7");
        assert_eq!(some_of(&list(509)), "0, 1, 2, 3, 4, 5, 6, 7 and 501 more");
    }
}
