//! `replay`: how well the replay of a recorded program agrees with it.

use std::num::NonZeroUsize;

use anyhow::{Context as _, bail};
use schedlab_recording::{Replayed, page};
use schedlab_sim::{Prepared, batch};
use schedlab_workload::Workload;

use crate::args::ReplayArgs;
use crate::output::{Output, one_file_each, print, tell};
use crate::progress::{self, Progress};
use crate::recording::workload_file;
use crate::signals;
use crate::simulation;
use crate::status::Status;

pub fn run(args: &ReplayArgs) -> anyhow::Result<Status> {
    let schedulers = schedlab_sim::parse_schedulers(&args.schedulers)
        .map_err(|error| anyhow::anyhow!("-s: {error}"))?;
    let paths = Workload::files(&args.workload);
    let [path] = &paths[..] else {
        bail!(
            "`{}` is no workload file: write the path of one, as `schedlab record` makes them",
            args.workload
        );
    };
    one_file_each(&[("--json", args.json.as_deref())], [path])?;
    let file = workload_file(path)?;
    let Some(recorded) = file.head.recorded.clone() else {
        bail!("{path} has no [recorded] part to compare with: `schedlab sim` runs it");
    };
    let last = args.taskset.as_ref().and_then(|set| set.iter().last());
    let least = last.map_or(1, |cpu| cpu.0 + 1);
    let cpus = args.cpus.unwrap_or(recorded.cpus.max(least)) as usize;
    signals::listen().context("cannot listen to signals")?;
    let mut specs = Vec::new();
    for scheduler in &schedulers {
        for repetition in 0..u64::from(args.repeat) {
            let seed = simulation::seed_of(args.common.seed, repetition)?;
            let mut spec = simulation::spec(
                &args.workload,
                scheduler,
                &args.machine,
                Some(cpus),
                seed,
                &args.common,
            );
            spec.taskset.clone_from(&args.taskset);
            specs.push(spec);
        }
    }
    let runs = progress::reading(|| simulation::check(&specs))?;
    let mut progress = Progress::new(runs.len());
    let threads: NonZeroUsize = simulation::threads(args.common.jobs);
    let replays = batch::run_all(&runs, threads, one, |done| {
        progress.update_with(done, || simulation::share_passed(&runs));
    })?;
    drop(progress);
    let confined = match &args.taskset {
        Some(set) => format!(" (tasks on {set})"),
        None => String::new(),
    };
    let mut text = String::new();
    let mut status = Status::Done;
    let mut documents = Vec::new();
    for (scheduler, replays) in schedulers.iter().zip(replays.chunks(args.repeat as usize)) {
        let mut good = Vec::new();
        for (replayed, failure) in replays {
            match failure {
                None => good.push(replayed.clone()),
                Some(failure) => {
                    status = Status::Failed;
                    tell(format_args!("{scheduler}: {failure}"));
                }
            }
        }
        if good.is_empty() {
            continue;
        }
        let seeds = schedlab_trace::counted(good.len() as u64, "replay");
        text += &format!(
            "{path} under {scheduler} on {}{confined}, {seeds}\n\n{}\n",
            schedlab_trace::counted(cpus as u64, "CPU"),
            page::comparison(&file, &recorded.measured, &good)
        );
        let measured: Vec<_> = good.iter().map(Replayed::measured).collect();
        let rows = page::compare(&recorded.measured, &measured)
            .into_iter()
            .map(|row| {
                let both = serde_json::json!({"recorded": row.recorded, "replayed": row.replayed});
                (row.key.to_owned(), both)
            });
        documents.push(serde_json::json!({
            "workload": path, "scheduler": scheduler.to_string(), "machine": args.machine, "cpus": cpus,
            "replays": good.len(), "lost_events": recorded.lost_events,
            "measures": rows.collect::<serde_json::Map<_, _>>(),
        }));
    }
    if let Some(json) = &args.json {
        let document = serde_json::to_string_pretty(&documents)? + "\n";
        match crate::output::is_stdout(json) {
            true => {
                print(document)?;
                return Ok(status);
            }
            false => {
                use std::io::Write as _;
                let mut output = Output::create(json)?;
                output
                    .write_all(document.as_bytes())
                    .with_context(|| crate::output::cannot_write(json))?;
                output.commit()?;
            }
        }
    }
    print(text.trim_end().to_owned() + "\n")?;
    Ok(status)
}

/// One replay, and why it does not count.
type One = (Replayed, Option<String>);

fn one(run: &Prepared) -> Result<One, schedlab_sim::SimError> {
    let mut replayed = Replayed::default();
    let result = run.run(Some(&mut replayed))?;
    let failure = (result.exit != schedlab_report::Exit::Done).then(|| {
        result
            .message
            .unwrap_or_else(|| "the replay did not come to its end".to_owned())
    });
    Ok((replayed, failure))
}
