//! `sim`: a workload under schedulers in simulation.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context as _, bail};
use schedlab_compare::{Decomposer, Watched};
use schedlab_report::RunResult;
use schedlab_report::export::perfetto::PerfettoWriter;
use schedlab_sim::{Prepared, SimError, SimSpec, batch};
use schedlab_trace::{Listener, counted};

use crate::args::{SimArgs, SimCommon};
use crate::cpus;
use crate::events;
use crate::output::{Output, binary_in_file, cannot_write, one_file_each, tell};
use crate::progress::{self, Progress};
use crate::results::{self, Files, WATCHED_MAX, deliver};
use crate::signals;
use crate::simulation::{self, seed_of, share_passed, spec, threads};
use crate::status::Status;

pub fn run(args: &SimArgs) -> anyhow::Result<Status> {
    let schedulers = schedlab_sim::parse_schedulers(&args.schedulers)
        .map_err(|error| anyhow::anyhow!("-s: {error}"))?;
    let cpus = match &args.cpus {
        None => vec![None],
        Some(text) => cpus::parse(text)
            .map_err(|error| anyhow::anyhow!("-c: {error}"))?
            .into_iter()
            .map(Some)
            .collect(),
    };
    for (index, layout) in args.task_layout.iter().enumerate() {
        if args.task_layout[..index].contains(layout) {
            bail!("--task-layout: `{layout}` is named twice; --repeat runs each several times");
        }
    }
    let layouts: Vec<_> = match args.task_layout.as_slice() {
        [] => vec![None],
        some => some.iter().copied().map(Some).collect(),
    };
    let view = results::view(&args.show, Some(&args.workload))?;
    results::check_why(&args.why, &args.show)?;
    let mut specs = Vec::new();
    for repetition in 0..u64::from(args.repeat) {
        for &cpus in &cpus {
            for scheduler in &schedulers {
                for &task_layout in &layouts {
                    let seed = seed_of(args.common.seed, repetition)?;
                    specs.push(SimSpec {
                        taskset: args.taskset.clone(),
                        task_layout,
                        audit: args.audit,
                        ..spec(
                            &args.workload,
                            scheduler,
                            &args.machine,
                            cpus,
                            seed,
                            &args.common,
                        )
                    });
                }
            }
        }
    }
    signals::listen().context("cannot listen to signals")?;
    let runs = progress::reading(|| simulation::check(&specs))?;
    let (trace, events) = (args.trace.as_deref(), args.events.as_deref());
    for (flag, path) in [("--trace", trace), ("--events", events)] {
        if path.is_some() && runs.len() != 1 {
            bail!(
                "{flag} records one run, and these are {}: choose one scheduler, one -c, one --task-layout and no --repeat",
                runs.len()
            );
        }
        binary_in_file(flag, path)?;
    }
    let [json, csv] = results::outputs(&args.show);
    one_file_each(
        &[
            json,
            csv,
            ("--trace", trace),
            ("--events", events),
            results::page_of(&args.why),
        ],
        simulation::files(&runs),
    )?;
    let outputs = Files::begin(&args.show)?.with_page(&args.why)?;
    let (all, written) = if trace.is_some() || events.is_some() {
        let (result, written) = recorded(&runs[0], trace, events, args.why.is_asked())?;
        (vec![result], written)
    } else if args.why.is_asked() {
        (watched(&runs, &args.common)?, Ok(()))
    } else {
        let results = simulation::run(&runs, &args.common)?.into_iter();
        (results.map(|result| (result, None)).collect(), Ok(()))
    };
    let mut results = Vec::with_capacity(all.len());
    let mut seen = Vec::new();
    for (place, (result, watched)) in all.into_iter().enumerate() {
        results.push(result);
        seen.extend(watched.map(|watched| (place, watched)));
    }
    tell_printed(&results);
    results::explain(&mut results);
    let status = match args.why.is_asked() {
        true => results::deliver_with_why(&results, &seen, (&args.why, None), &view, outputs)?,
        false => deliver(&results, &view, outputs)?,
    };
    written?;
    Ok(status)
}

/// A result, and what was seen of the run if it was watched.
type Seen = (RunResult, Option<Watched>);

/// Runs them all as [`simulation::run`] does, and watches the first ones with the first seed.
fn watched(runs: &[Prepared], common: &SimCommon) -> Result<Vec<Seen>, SimError> {
    let seed = runs[0].spec().seed;
    let numbered: Vec<(usize, &Prepared)> = runs.iter().enumerate().collect();
    let mut progress = Progress::new(runs.len());
    batch::run_all(
        &numbered,
        threads(common.jobs),
        |&(place, run)| {
            let mut watch =
                (place < WATCHED_MAX && run.spec().seed == seed).then(Decomposer::watching);
            let heard = watch.as_mut().map(|watch| watch as &mut dyn Listener);
            let result = run.run(heard)?;
            let cpus = result.cpus as usize;
            let watched = watch.map(|watch| watch.watched(cpus, result.is_done()));
            Ok((result, watched))
        },
        |done| progress.update_with(done, || share_passed(runs)),
    )
}

/// Prints the policies' messages to standard error: the last lines of each run.
fn tell_printed(results: &[RunResult]) {
    const LINES_MAX: usize = 20;
    for result in results {
        let name = format!(
            "{} on {}, seed {}",
            result.scheduler,
            counted(result.cpus, "CPU"),
            result.seed
        );
        let before = result.printed.len().saturating_sub(LINES_MAX);
        if before > 0 {
            let lines = counted(before as u64, "line");
            tell(format_args!(
                "{name}: {lines} before these are in the document of --json"
            ));
        }
        for line in &result.printed[before..] {
            tell(format_args!("{name}: {line}"));
        }
    }
}

/// A run whose events are written, and whether they could be: the run is worth showing without them.
type Recorded = (Seen, anyhow::Result<()>);

fn recorded(
    run: &Prepared,
    trace: Option<&Path>,
    events: Option<&Path>,
    is_watched: bool,
) -> anyhow::Result<Recorded> {
    let mut progress = Progress::new(1);
    let runs = batch::run_all(
        std::slice::from_ref(run),
        NonZeroUsize::MIN,
        |run| record(run, trace, events, is_watched),
        |done| progress.update_with(done, || run.share_passed()),
    )?;
    Ok(runs.into_iter().next().expect("a run has a result"))
}

fn record(
    run: &Prepared,
    trace: Option<&Path>,
    events: Option<&Path>,
    is_watched: bool,
) -> anyhow::Result<Recorded> {
    let begin_trace = |path| {
        let release = format!("{}.0", run.spec().kernel);
        let output = Output::create(path)?;
        anyhow::Ok((path, PerfettoWriter::new(output, run.nr_cpus()?, &release)))
    };
    let mut trace = trace.map(begin_trace).transpose()?;
    let mut events = events.map(events::begin).transpose()?;
    let mut watch = is_watched.then(Decomposer::watching);
    let mut listeners = (
        trace.as_mut().map(|(_, writer)| writer),
        (events.as_mut().map(|(_, writer)| writer), watch.as_mut()),
    );
    let (result, stream) = run.run_with_stream(Some(&mut listeners))?;
    let traced = trace.map_or(Ok(()), |(path, writer)| {
        let finished = writer.finish().with_context(|| cannot_write(path));
        finished.and_then(Output::commit)
    });
    let about = events::of_simulation(&stream).of(&result, &stream.measures);
    let kept = events.map_or(Ok(()), |events| events::finish(events, &about));
    let cpus = result.cpus as usize;
    let watched = watch.map(|watch| watch.watched(cpus, result.is_done()));
    Ok(((result, watched), traced.and(kept)))
}
