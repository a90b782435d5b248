//! `sweep`: every combination of a scheduler's options.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use schedlab_report::export::lines::fill;
use schedlab_report::export::number::amount;
use schedlab_search::{Plan, RUNS_MIN};
use schedlab_sim::Scheduler;
use schedlab_sweep::{
    Asked, Budget, Definition, Options, Progress, Row, Shard, Space, Summary, Timed,
};
use schedlab_trace::counted;
use schedlab_workload::{Workload, rtapp};

use crate::args::{BudgetArg, SweepArgs};
use crate::output::{print, tell, width};
use crate::status::Status;
use crate::{progress, real, results, signals, simulation};

pub fn run(args: &SweepArgs) -> anyhow::Result<Status> {
    let goes_into_vm = args.vm && real::place() == "host";
    let ears = match goes_into_vm {
        true => None,
        false => Some(signals::listen().context("cannot listen to signals")?),
    };
    if args.live {
        refuse_read_once(&args.workloads)?;
    }
    let fixed: Vec<(String, String)> = args
        .fix
        .iter()
        .flat_map(|text| text.split(','))
        .map(|text| {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| anyhow!("--fix {text}: write OPTION=VALUE"))?;
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect::<anyhow::Result<_>>()?;
    let space = Space::of(&args.space, &fixed)?;
    let shard = match &args.shard {
        Some(text) => Shard::parse(text)?,
        None => Shard::WHOLE,
    };
    let anybody = Scheduler::parse(&args.space);
    let cpus = args.cpus.map(|cpus| cpus as usize);
    let like = simulation::spec(
        &args.workloads[0],
        &anybody,
        &args.machine,
        cpus,
        args.common.seed,
        &args.common,
    );
    let asked = Asked {
        workloads: args.workloads.clone(),
        space,
        sample: args.sample,
        repeat: args.repeat,
        run: like,
        seed: args.common.seed,
        live: args.live.then(real::host).transpose()?,
        each: args.each,
        budget: None,
    };
    let mut definition = progress::reading(|| Definition::new(asked))?;
    if let Some(asked) = args.budget {
        definition.budget = Some(budget(&definition, asked, args)?);
    }
    let definition = definition;
    // In the virtual machine the process outside has reported it.
    if real::place() == "host" {
        let workloads = 0..definition.workloads.len();
        let specs: Vec<_> = workloads
            .map(|workload| definition.spec(definition.job(0, workload, 0)))
            .collect();
        progress::reading(|| simulation::check(&specs))?;
    }
    if goes_into_vm {
        return real::sweep_in_vm(
            &args.out,
            args.cpus,
            definition.jobs() + args.workloads.len() as u64,
            args.common.time_limit,
        );
    }
    if args.live && !args.vm && args.cpus.is_some() {
        bail!("-c sets the CPUs of a simulated or virtual machine: add --vm");
    }
    let options = Options {
        threads: simulation::threads(args.common.jobs),
        keep_after: args.keep.to_std(),
    };
    let stop = ears.map(signals::Ears::stop_softly).unwrap_or_default();
    let mut bar = Bar::new();
    let summary = if args.live {
        live(&definition, args, shard, options, &stop, &mut bar)?
    } else if let Some(mut plan) = Plan::new(&definition) {
        let mut choose = |rows: &BTreeMap<u64, Row>| plan.stage(rows);
        let show = |progress: &Progress| bar.update(progress);
        schedlab_sweep::run_chosen(
            &definition,
            &args.out,
            shard,
            options,
            &stop,
            &mut choose,
            show,
        )?
    } else {
        schedlab_sweep::run(&definition, &args.out, shard, options, &stop, |progress| {
            bar.update(progress);
        })?
    };
    drop(bar);
    let mut text = report(
        &summary,
        shard,
        definition.budget.is_none().then(|| definition.jobs()),
        &args.out.display().to_string(),
    );
    if summary.progress.failed > 0 {
        text.push_str(&first_failure(&definition, &args.out)?);
    }
    print(text)?;
    Ok(if summary.stopped || summary.progress.failed > 0 {
        Status::Failed
    } else {
        Status::Done
    })
}

/// Part of a budget of time that goes into measuring how many runs it has room for.
const MEASURING_PART: f64 = 0.05;

/// Returns the budget in runs. A folder that has one of the same time keeps it: the speed may be another one now.
fn budget(definition: &Definition, asked: BudgetArg, args: &SweepArgs) -> anyhow::Result<Budget> {
    let least = RUNS_MIN * definition.workloads.len() as u64;
    let (budget, told) = match asked {
        BudgetArg::Runs(runs) => (Budget { runs, timed: None }, String::new()),
        BudgetArg::Time(time) => {
            let seconds = time.to_std().as_secs_f64();
            let begun = schedlab_sweep::begun(&args.out)?;
            let kept = begun.and_then(|begun| begun.budget);
            let is_same =
                |budget: &Budget| budget.timed.is_some_and(|timed| timed.seconds == seconds);
            if let Some(kept) = kept.filter(is_same) {
                return Ok(kept);
            }
            let measuring = time.to_std().mul_f64(MEASURING_PART);
            let runs_per_second = progress::reading(|| {
                schedlab_sweep::rate(definition, simulation::threads(args.common.jobs), measuring)
            })?;
            let runs = (runs_per_second * seconds * (1.0 - MEASURING_PART)) as u64;
            let timed = Some(Timed {
                seconds,
                runs_per_second,
            });
            (
                Budget { runs, timed },
                format!(" is {runs} runs here, which"),
            )
        }
    };
    if budget.runs < least {
        bail!(
            "--budget{told} is too few for a search: {} take at least {least} runs",
            counted(definition.workloads.len() as u64, "workload")
        );
    }
    if let Some(timed) = budget.timed {
        tell(format_args!(
            "{} runs a second: the budget is {} runs; --budget {} makes the same ones anywhere",
            number(timed.runs_per_second),
            budget.runs,
            budget.runs
        ));
    }
    Ok(budget)
}

/// Two digits behind the point below ten.
fn number(rate: f64) -> String {
    match rate < 10.0 {
        true => format!("{rate:.2}"),
        false => format!("{rate:.0}"),
    }
}

/// Every run in the kernel that is running, one at a time.
fn live(
    definition: &Definition,
    args: &SweepArgs,
    shard: Shard,
    options: Options,
    stop: &AtomicBool,
    bar: &mut Bar,
) -> anyhow::Result<Summary> {
    let one = |run: u64| -> anyhow::Result<Vec<Row>> {
        let rows = definition.jobs_of(run).map(|job| {
            let spec = definition.spec(job);
            let result =
                real::run_once(&spec.workload, &spec.scheduler, spec.seed, spec.time_limit)?;
            Ok(Row::new(definition, job, &result))
        });
        rows.collect()
    };
    // The program and its files come into the caches before anything is measured.
    for workload in 0..definition.workloads.len() {
        let spec = definition.spec(definition.job(0, workload, 0));
        real::warm_up(&spec.workload, &spec.scheduler, spec.seed, spec.time_limit)?;
    }
    let options = Options {
        threads: NonZeroUsize::MIN,
        ..options
    };
    schedlab_sweep::run_by(
        definition,
        &args.out,
        shard,
        options,
        stop,
        &one,
        |progress| {
            bar.update(progress);
        },
    )
}

/// Refuses workloads that each run would read anew and that can be read only once.
fn refuse_read_once(workloads: &[String]) -> anyhow::Result<()> {
    let mut files = workloads.iter().flat_map(|text| Workload::files(text));
    match files.find(|path| rtapp::is_read_once(path)) {
        Some(path) => bail!(
            "{path}: can be read only once, and --live reads it for each run: put it into a file"
        ),
        None => Ok(()),
    }
}

/// Progress on a terminal: done, time left, the best so far.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Bar {
        let style = ProgressStyle::with_template("{bar:20} {pos}/{len} runs, {msg}")
            .expect("a constant template is valid");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style);
        Bar(bar)
    }

    fn update(&mut self, progress: &Progress) {
        self.0.set_length(progress.runs);
        self.0.set_position(progress.made);
        let mut message = match progress.left {
            Some(left) => format!(
                "{} left",
                HumanDuration(Duration::from_secs(left.as_secs()))
            ),
            None => "…".to_owned(),
        };
        if progress.failed > 0 {
            let _ = write!(message, ", {} failed", progress.failed);
        }
        if let Some(best) = progress.best.get(&progress.workload) {
            let _ = write!(
                message,
                "; best run {}: {}",
                amount(best.score, &best.unit),
                best.scheduler
            );
        }
        self.0.set_message(message);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Returns the first run that failed, and the command that replays it.
fn first_failure(definition: &Definition, folder: &Path) -> anyhow::Result<String> {
    let (_, rows) = schedlab_sweep::read(folder)?;
    let Some(row) = rows.iter().find(|row| !row.is_done()) else {
        return Ok(String::new());
    };
    let told = format!("the first that failed: {}", results::failure(row));
    let mut text = String::new();
    fill(&mut text, "", &told, 2, width());
    if !definition.live {
        let _ = writeln!(
            text,
            "  replay: {}",
            definition.spec(row.job).replay_command()
        );
    }
    Ok(text)
}

/// `jobs` counts the whole sweep; `None`: it is a search, which chooses its runs.
fn report(summary: &Summary, shard: Shard, jobs: Option<u64>, folder: &str) -> String {
    let Summary {
        progress,
        new,
        runs,
        stopped,
        waits,
    } = summary;
    if progress.jobs == 0 {
        let (index, count) = (shard.index, shard.count);
        let runs = counted(jobs.unwrap_or_default(), "run");
        return format!("shard {index}/{count} has none of the sweep's {runs}: nothing to do\n");
    }
    let searched = jobs.is_none();
    let mut text = match searched {
        true => format!(
            "{} of {} runs of the budget done",
            progress.made, progress.runs
        ),
        false => format!("{} of {} runs done", progress.done, progress.jobs),
    };
    if shard != Shard::WHOLE {
        let _ = write!(text, " of shard {}/{}", shard.index, shard.count);
    }
    let now = if searched { runs } else { new };
    let _ = write!(text, ", {now} of them now");
    if runs < new && !searched {
        let _ = write!(text, " by {}", counted(*runs, "simulation"));
    }
    let _ = writeln!(text, "; {} failed", progress.failed);
    for (workload, best) in &progress.best {
        let score = amount(best.score, &best.unit);
        let told = format!("best run on {workload}: {score}: {}", best.scheduler);
        fill(&mut text, "", &told, 2, width());
    }
    if *waits {
        text.push_str(
            "the next stage needs the results of all shards of this one: start the same command again when they are done\n",
        );
    } else if *stopped {
        text.push_str("stopped: the same command goes on where it was\n");
    } else {
        let _ = writeln!(text, "results in {folder}; next: schedlab analyze {folder}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schedlab_sweep::Best;

    use super::*;

    fn summary() -> Summary {
        Summary {
            progress: Progress {
                done: 12,
                jobs: 12,
                made: 9,
                runs: 10,
                failed: 0,
                left: None,
                workload: String::new(),
                best: BTreeMap::new(),
            },
            new: 5,
            runs: 5,
            stopped: false,
            waits: false,
        }
    }

    #[test]
    fn the_report_has_each_case() {
        let of = |summary: &Summary, shard: Shard| report(summary, shard, Some(24), "out");
        let next = "results in out; next: schedlab analyze out\n";
        let mut one = summary();
        let whole = format!("12 of 12 runs done, 5 of them now; 0 failed\n{next}");
        assert_eq!(of(&one, Shard::WHOLE), whole);
        let second = Shard::parse("2/2").unwrap();
        let part = format!("12 of 12 runs done of shard 2/2, 5 of them now; 0 failed\n{next}");
        assert_eq!(of(&one, second), part);
        // Schedulers that are one share a run.
        one.runs = 3;
        let shared =
            format!("12 of 12 runs done, 5 of them now by 3 simulations; 0 failed\n{next}");
        assert_eq!(of(&one, Shard::WHOLE), shared);
        one.runs = 1;
        one.progress.failed = 1;
        let best = Best {
            job: 0,
            scheduler: "fifo".into(),
            score: 2e9,
            unit: "ns".into(),
        };
        one.progress.best.insert("cpu".into(), best);
        one.progress.done = 11;
        one.stopped = true;
        assert_eq!(
            of(&one, Shard::WHOLE),
            "11 of 12 runs done, 5 of them now by 1 simulation; 1 failed\nbest run on cpu: 2.00 s: fifo\n\
             stopped: the same command goes on where it was\n"
        );
        one.progress.jobs = 0;
        assert_eq!(
            of(&one, second),
            "shard 2/2 has none of the sweep's 24 runs: nothing to do\n"
        );
    }

    #[test]
    fn the_report_of_a_search_counts_runs_and_says_whom_it_waits_for() {
        let of = |summary: &Summary| report(summary, Shard::WHOLE, None, "out");
        let mut one = summary();
        let done = "9 of 10 runs of the budget done, 5 of them now; 0 failed\n";
        let next = "results in out; next: schedlab analyze out\n";
        assert_eq!(of(&one), format!("{done}{next}"));
        (one.stopped, one.waits) = (true, true);
        let waits = "the next stage needs the results of all shards of this one: start the same command again when they \
                     are done\n";
        assert_eq!(of(&one), format!("{done}{waits}"));
    }
}
