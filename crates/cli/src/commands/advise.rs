//! `advise`: which scheduler suits a program, how sure that is, and why.

use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use schedlab_advise::{Advice, Ask, Limit, Progress, Verdict, advise, page, text};
use schedlab_sim::{Scheduler, SimSpec};
use schedlab_trace::shell_word;
use schedlab_workload::recorded::{File, is_recorded};
use schedlab_workload::{Workload, rtapp};

use crate::args::{AdviseArgs, BudgetArg, Cli, Command, ReadingArgs, RecordArgs, RunArgs};
use crate::output::{is_stdout, one_file_each, print, tell};
use crate::progress::{self, Stages};
use crate::recording;
use crate::results::Target;
use crate::signals;
use crate::simulation;
use crate::status::Status;

/// Schedulers that `--verify` runs in the kernel, the current one among them.
const VERIFIED: usize = 4;

/// Carries out `schedlab run`, for `--verify`.
type Run = fn(&RunArgs) -> anyhow::Result<Status>;

pub fn run(args: &AdviseArgs, run: Run) -> anyhow::Result<Status> {
    let json = args.json.as_deref();
    let html = args.html.as_deref();
    if json.is_some_and(is_stdout) && html.is_some_and(is_stdout) {
        bail!("--html - and --json -: only one of them can be written to standard output");
    }
    for (flag, path) in [("--json", json), ("--html", html)] {
        if args.verify.is_some() && path.is_some_and(is_stdout) {
            bail!("{flag} -: --verify prints its table to standard output, too: write into a file");
        }
    }
    let schedulers = schedlab_sim::parse_schedulers(&args.schedulers)
        .map_err(|error| anyhow::anyhow!("-s: {error}"))?;
    let current = Scheduler::parse(&args.current);
    let inputs = args.workload.iter().flat_map(|text| Workload::files(text));
    one_file_each(
        &[
            ("--json", json),
            ("--html", html),
            ("-o", args.out.as_deref()),
        ],
        inputs,
    )?;
    // A file that cannot be written is reported before the search, which may take long.
    let begin = |path: Option<&Path>| path.map(Target::begin).transpose();
    let files = Files {
        html: begin(html)?,
        json: begin(json)?,
    };
    let stop = signals::listen().context("cannot listen to signals")?;
    let (workload, stop) = match &args.workload {
        Some(workload) => (workload.clone(), stop.stop_softly()),
        None => {
            let stop = stop.stop_softly();
            let recorded = recording::record(&recorded_by(args), &stop)?;
            // A signal that ended the recording is no wish to have no advice.
            stop.store(false, Ordering::SeqCst);
            recorded.failed.iter().for_each(tell);
            let path = recorded.path;
            tell(format_args!("the recording is kept in {}", path.display()));
            (in_utf8(&path)?, stop)
        }
    };
    let file = file_of(&workload)?;
    let recorded = file.as_ref().and_then(|file| file.head.recorded.as_ref());
    let cpus = match args.cpus {
        Some(cpus) => Some(cpus as usize),
        None => recorded.map(|recorded| recorded.cpus as usize),
    };
    let spec = simulation::spec(
        &workload,
        &current,
        &args.machine,
        cpus,
        args.common.seed,
        &args.common,
    );
    // Notes on the workload come before the advice; a wrong one is refused with its line.
    progress::reading(|| simulation::check(std::slice::from_ref(&spec)))?;
    let ask = Ask {
        spec,
        file: file.as_ref(),
        schedulers,
        limit: match args.budget {
            BudgetArg::Runs(runs) => Limit::Runs(runs),
            BudgetArg::Time(time) => Limit::Time(time.to_std()),
        },
        threads: simulation::threads(args.common.jobs),
    };
    let mut stages = Stages::new();
    let advice = advise(&ask, &stop, &mut |progress: Progress| {
        stages.update(progress.what, progress.done, progress.of);
    });
    drop(stages);
    let advice = advice?;
    deliver(&advice, args, files, &again(args, &ask.spec, &advice))?;
    if let Some(repeat) = args.verify {
        verify(args, &workload, &advice, repeat, run);
    }
    Ok(Status::Done)
}

/// The workload that a path names.
fn in_utf8(path: &Path) -> anyhow::Result<String> {
    match path.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => bail!("{}: name a file in UTF-8 by -o", path.display()),
    }
}

fn recorded_by(args: &AdviseArgs) -> RecordArgs {
    RecordArgs {
        out: args.out.clone(),
        duration: None,
        perf_data: None,
        max_size: 4 << 30,
        no_calls: false,
        reading: ReadingArgs {
            machine: args.machine.clone(),
        },
        command: args.command.clone(),
    }
}

/// The recording of a workload, if it is one.
fn file_of(workload: &str) -> anyhow::Result<Option<File>> {
    let paths = Workload::files(workload);
    let [path] = &paths[..] else {
        return Ok(None);
    };
    if rtapp::is_read_once(path) {
        bail!(
            "{path}: can be read only once, and advice needs it for many runs: put it into a file"
        );
    }
    let text = rtapp::read_file(path)?;
    match is_recorded(&text) {
        true => Ok(Some(recording::workload_file(path)?)),
        false => Ok(None),
    }
}

/// The command that gives the same advice anywhere.
fn again(args: &AdviseArgs, spec: &SimSpec, advice: &Advice) -> String {
    let mut command = format!("schedlab advise {}", shell_word(&spec.workload));
    for (flag, value, default) in [
        ("-s", &args.schedulers, "all"),
        ("--current", &args.current, "kernel"),
        ("-m", &args.machine, "laptop"),
    ] {
        if value != default {
            command += &format!(" {flag} {}", shell_word(value));
        }
    }
    if let Some(cpus) = args.cpus {
        command += &format!(" -c {cpus}");
    }
    if spec.seed != 1 {
        command += &format!(" --seed {}", spec.seed);
    }
    command += &spec.switches();
    command + &format!(" --budget {}", advice.budget_runs)
}

/// The files of an advice.
struct Files {
    html: Option<Target>,
    json: Option<Target>,
}

fn deliver(advice: &Advice, args: &AdviseArgs, files: Files, again: &str) -> anyhow::Result<()> {
    let targets = [&files.html, &files.json];
    let taken = targets.into_iter().flatten().any(Target::is_stdout);
    if let Some(target) = files.html {
        target.write(page(advice).html().as_bytes())?;
    }
    if let Some(target) = files.json {
        target.write((serde_json::to_string_pretty(advice)? + "\n").as_bytes())?;
    }
    if !taken {
        let mut told = text(advice);
        let next = match advice.verdict {
            Verdict::Change => next(args, advice),
            Verdict::Stay => None,
        };
        told += &format!("\nthe same again: {again}\n");
        if let Some(next) = next {
            told += &format!("try it: {next}\n");
        }
        print(told)?;
    }
    Ok(())
}

/// How to measure the best one in a real kernel.
fn next(args: &AdviseArgs, advice: &Advice) -> Option<String> {
    let best = shell_word(&advice.best().scheduler);
    let words: Option<Vec<&str>> = args.command.iter().map(|word| word.to_str()).collect();
    let words: Vec<String> = words?.into_iter().map(shell_word).collect();
    let what = match words.is_empty() {
        true => shell_word(&advice.workload),
        false => format!("-- {}", words.join(" ")),
    };
    Some(format!(
        "schedlab run -s {},{best} --repeat 10 {what}",
        advice.reference
    ))
}

/// Runs the best few in this kernel. Where that is impossible, one line says why; the advice stands without it.
fn verify(args: &AdviseArgs, workload: &str, advice: &Advice, repeat: u32, run: Run) {
    let mut schedulers = vec![advice.reference.clone()];
    let best = advice.finalists.iter().map(|one| one.scheduler.clone());
    schedulers.extend(best.filter(|one| *one != advice.reference));
    schedulers.truncate(VERIFIED);
    let mut words: Vec<std::ffi::OsString> = ["schedlab", "run", "-s"].map(Into::into).into();
    words.push(schedulers.join(",").into());
    words.extend(["--repeat".into(), repeat.to_string().into()]);
    match args.command.is_empty() {
        true => words.push(workload.into()),
        false => {
            words.push("--".into());
            words.extend(args.command.iter().cloned());
        }
    }
    let ran = Cli::try_parse_from(words).map_err(anyhow::Error::from);
    let ran = ran.and_then(|cli| match cli.command {
        Command::Run(args) => run(&args),
        _ => unreachable!("the words say `run`"),
    });
    match ran {
        Ok(Status::Done) => {}
        Ok(_) => tell("--verify: a run failed; the table says which"),
        Err(error) => tell(format_args!("--verify: not run in this kernel: {error:#}")),
    }
}
