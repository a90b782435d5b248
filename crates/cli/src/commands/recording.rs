//! `import`, `show` and `replay`: recordings, workload files, and how well a replay agrees.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context as _, bail};
use schedlab_machine::Machine;
use schedlab_recording::{Costs, Kind, Options, Replayed, Select, import, kind, page};
use schedlab_sim::{Prepared, batch};
use schedlab_trace::Duration;
use schedlab_workload::Workload;
use schedlab_workload::recorded::{File, is_recorded};

use crate::args::{CutArgs, ImportArgs, ReadingArgs, ReplayArgs, ShowRecordingArgs};
use crate::output::{Output, one_file_each, print, tell};
use crate::progress::{self, Progress};
use crate::signals;
use crate::simulation;
use crate::status::Status;

/// The kernel paths of a machine profile.
pub fn costs(reading: &ReadingArgs) -> anyhow::Result<Costs> {
    Ok(Costs::of(&Machine::find(&reading.machine)?))
}

fn cut(args: &CutArgs, costs: Costs) -> anyhow::Result<Options> {
    let time = |flag: &str, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => match Duration::parse(text, Duration::from_secs(1)) {
            Some(time) => Ok(Some(time.ns())),
            None => bail!("{flag} {text}: write a time such as 500ms, 2s or 1.5"),
        },
    };
    let (from_ns, to_ns) = (time("--from", &args.from)?, time("--to", &args.to)?);
    let options = Options {
        select: match args.all {
            true => Select::All,
            false => Select::Command,
        },
        costs,
        autogroup: false,
        from_ns: from_ns.unwrap_or(0),
        to_ns: to_ns.unwrap_or(u64::MAX),
    };
    if options.from_ns >= options.to_ns {
        bail!("--from is not before --to: nothing would be left");
    }
    Ok(options)
}

/// Reads a recording, prints its notes, and returns its workload file.
pub fn inferred(path: &Path, options: &Options) -> anyhow::Result<File> {
    let name = path.display().to_string();
    let (inferred, about) = progress::reading(|| import(&name, options))?;
    for warning in &inferred.warnings {
        tell(format_args!("{name}: {warning}"));
    }
    if let Some(warning) = page::lost(about.lost, about.events) {
        tell(format_args!("{name}: {warning}"));
    }
    if let Some(warning) = page::not_inferred(&inferred.file) {
        tell(format_args!("{name}: {warning}"));
    }
    Ok(inferred.file)
}

/// Writes a workload file.
pub fn write(file: &File, path: &Path) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut output = Output::create(path)?;
    let written = output.write_all(file.to_text().as_bytes());
    written.with_context(|| format!("cannot write {}", path.display()))?;
    output.commit()
}

pub fn import_one(args: &ImportArgs) -> anyhow::Result<Status> {
    one_file_each(&[("-o", Some(args.out.as_path()))], [&args.recording])?;
    let options = cut(&args.cut, costs(&args.reading)?)?;
    let file = inferred(&args.recording, &options)?;
    write(&file, &args.out)?;
    print(page::show(&args.out.display().to_string(), &file, None))?;
    Ok(Status::Done)
}

/// Reads a workload file.
pub fn workload_file(path: &str) -> anyhow::Result<File> {
    let text = schedlab_workload::rtapp::read_file(path)?;
    if !is_recorded(&text) {
        bail!("{path} is no workload file of `schedlab record` or `schedlab import`");
    }
    Ok(File::parse(path, &text)?)
}

pub fn show(args: &ShowRecordingArgs) -> anyhow::Result<Status> {
    let name = args.file.display().to_string();
    let options = cut(&args.cut, Costs::default())?;
    let file = match kind(&name)? {
        Kind::Workload if options != Options::default() => {
            bail!(
                "{name} is a workload file: --from, --to and --all are for recordings, before they are imported"
            );
        }
        Kind::Workload => workload_file(&name)?,
        _ => inferred(&args.file, &options)?,
    };
    let only = args.task.as_deref();
    if let Some(only) = only
        && !file.head.tasks.iter().any(|task| task.comm.contains(only))
    {
        bail!(
            "--task {only}: no task of {name} has a name that contains this; `schedlab show` without it lists the names"
        );
    }
    print(page::show(&name, &file, only))?;
    Ok(Status::Done)
}

pub fn replay(args: &ReplayArgs) -> anyhow::Result<Status> {
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
