//! `reproduce`: the tables and figures of the studies, simulated.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use schedlab_experiments::{self as experiments, Experiment, Planned};
use schedlab_report::RunResult;
use schedlab_report::published;
use schedlab_sim::{SimSpec, batch};

use super::{Status, deliver, is_stdout, json_output, sim, width};
use crate::args::ReproduceArgs;
use crate::journal::Journal;
use crate::output::Output;
use crate::progress::Progress;

pub fn run(args: &ReproduceArgs) -> anyhow::Result<Status> {
    let chosen = chosen(&args.names)?;
    let plans: Vec<Vec<Planned>> = chosen
        .iter()
        .map(|experiment| experiments::plan(experiment, args.quick, args.seeds))
        .collect();
    // What several experiments need is run once.
    let mut specs: Vec<SimSpec> = Vec::new();
    let mut place: BTreeMap<String, usize> = BTreeMap::new();
    for planned in plans.iter().flatten() {
        place
            .entry(planned.spec.replay_command())
            .or_insert_with(|| {
                specs.push(planned.spec.clone());
                specs.len() - 1
            });
    }
    if specs.is_empty() {
        bail!("nothing of that is run with --quick");
    }
    sim::check(&specs)?;
    let html = Output::create(&args.html)?;
    let json = json_output(args.json.as_deref())?;
    let journal = Journal::open(&partial(&args.html))?;
    let results = simulate(&specs, &journal, args.jobs)?;

    let figures = published::read(published::BUILTIN_NAME, published::BUILTIN)?;
    let mut text = String::new();
    let mut told = Vec::new();
    for (experiment, planned) in chosen.into_iter().zip(&plans) {
        let mine: Vec<RunResult> = planned
            .iter()
            .map(|planned| results[place[&planned.spec.replay_command()]].clone())
            .collect();
        let panels = experiments::evaluate(&experiment, planned, &mine, &figures);
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&experiments::text(&experiment, &panels, width()));
        told.push((experiment, panels));
    }
    for run in results.iter().filter(|run| !run.is_done()) {
        let why = run.message.as_deref().unwrap_or_default();
        let _ = writeln!(text, "! {} {why}\n  replay: {}", run.exit, run.replay);
    }
    write_page(html, &told, args)?;
    let status = deliver(&results, &text, args.json.as_deref(), json)?;
    if !args.json.as_deref().is_some_and(is_stdout) {
        println!("\nfigures: {}", args.html.display());
    }
    journal.finish()?;
    Ok(status)
}

fn write_page(
    mut html: Output,
    told: &[(Experiment, Vec<experiments::Panel>)],
    args: &ReproduceArgs,
) -> anyhow::Result<()> {
    let mut lead = vec![
        "Medians of simulated runs; strokes reach from the lowest to the highest of all seeds. Hollow points were published. Whether a published value was used to calibrate the machine or is predicted stands in the tables.".to_owned(),
    ];
    if args.quick {
        lead.push("A first impression (--quick): smaller workloads and one seed. What was published of larger ones is not shown beside them.".to_owned());
    }
    let page = experiments::page(told, lead).html();
    html.write_all(page.as_bytes())
        .with_context(|| format!("cannot write {}", args.html.display()))?;
    html.commit()
}

/// Where finished runs are kept until the page is written.
fn partial(html: &Path) -> PathBuf {
    let mut name = html.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// The experiments that are asked for by name or path; all that come along where none is.
fn chosen(names: &[String]) -> anyhow::Result<Vec<Experiment>> {
    let known = experiments::builtin_names();
    let all: Vec<String> = known.iter().map(|&name| name.to_owned()).collect();
    let names = if names.is_empty() { &all } else { names };
    let mut chosen: Vec<Experiment> = Vec::new();
    for name in names {
        let experiment = if name.contains('/') || name.ends_with(".toml") {
            let text =
                std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
            Experiment::read(name, &text)?
        } else {
            match experiments::builtin(name) {
                Some(found) => found?,
                None => bail!(
                    "unknown experiment `{name}`; there are: {}, or the path of a .toml file",
                    known.join(", ")
                ),
            }
        };
        if chosen.iter().all(|other| other.name != experiment.name) {
            chosen.push(experiment);
        }
    }
    Ok(chosen)
}

/// Runs them all, as many at a time as there are cores; those that were finished before a kill are not run
/// again.
fn simulate(
    specs: &[SimSpec],
    journal: &Journal,
    jobs: Option<u16>,
) -> anyhow::Result<Vec<RunResult>> {
    let mut progress = Progress::new(specs.len());
    batch::run_all(
        specs,
        sim::threads(jobs),
        |spec| {
            if let Some(result) = journal.find(spec) {
                return Ok(result);
            }
            let result = schedlab_sim::run(spec, ())?;
            // What a path names may change between two calls.
            if !names_a_file(spec) {
                journal.keep(&result)?;
            }
            anyhow::Ok(result)
        },
        |done| progress.update(done),
    )
}

fn names_a_file(spec: &SimSpec) -> bool {
    [&spec.workload, &spec.scheduler.name, &spec.machine]
        .iter()
        .any(|name| {
            name.contains('/')
                || name.contains(".json")
                || name.ends_with(".toml")
                || name.ends_with(".c")
        })
}
