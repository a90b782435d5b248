//! `published`: what was published of a scheduler beside what the simulator says.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use schedlab_report::export::published::render;
use schedlab_report::published::{self, Figure};
use schedlab_sim::{Scheduler, SimSpec};

use super::{Status, deliver, json_output, sim};
use crate::args::PublishedArgs;

pub fn run(args: &PublishedArgs) -> anyhow::Result<Status> {
    let figures = match &args.figures {
        None => published::read(published::BUILTIN_NAME, published::BUILTIN)?,
        Some(path) => {
            let name = path.display().to_string();
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
            published::read(&name, &text)?
        }
    };
    let scheduler = Scheduler::parse(&args.scheduler);
    let groups = groups(&figures, args, &scheduler)?;
    let mut specs = Vec::new();
    for group in &groups {
        for repetition in 0..u64::from(args.repeat) {
            for &cpus in &group.cpus {
                let seed = sim::seed_of(args.common.seed, repetition)?;
                let cpus = Some(cpus as usize);
                let spec = sim::spec(
                    &group.workload,
                    &scheduler,
                    &group.machine,
                    cpus,
                    seed,
                    &args.common,
                );
                specs.push(spec);
            }
        }
    }
    sim::check(&specs)?;
    let json = json_output(args.json.as_deref())?;
    let results = sim::simulate(&specs, &args.common)?;
    let mut text = String::new();
    for group in &groups {
        let mine =
            |spec: &SimSpec| spec.workload == group.workload && spec.machine == group.machine;
        let runs: Vec<_> = specs
            .iter()
            .zip(&results)
            .filter(|(spec, _)| mine(spec))
            .map(|(_, result)| result.clone())
            .collect();
        let of = match args.repeat {
            1 => "one seed".to_owned(),
            seeds => format!("medians of {seeds} seeds"),
        };
        let title = format!(
            "{} under {scheduler} on {}:\npublished ({}) and simulated, {of}",
            group.workload, group.machine, group.study
        );
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&render(&title, &published::compare(&group.figures, &runs)));
        for run in runs.iter().filter(|run| !run.is_done()) {
            let _ = writeln!(
                text,
                "! {} CPUs, seed {}: {}\n  replay: {}",
                run.cpus, run.seed, run.exit, run.replay
            );
        }
    }
    deliver(&results, &text, args.json.as_deref(), json)
}

/// Figures of the same workload on the same machine.
struct Group {
    study: String,
    workload: String,
    machine: String,
    cpus: Vec<u32>,
    figures: Vec<Figure>,
}

fn groups(
    figures: &[Figure],
    args: &PublishedArgs,
    scheduler: &Scheduler,
) -> anyhow::Result<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    let wanted = figures.iter().filter(|figure| {
        figure.scheduler.eq_ignore_ascii_case(&scheduler.name)
            && published::Metric::find(&figure.metric).is_some()
            && args
                .workload
                .as_ref()
                .is_none_or(|workload| *workload == figure.workload)
            && args
                .machine
                .as_ref()
                .is_none_or(|machine| *machine == figure.machine)
    });
    for figure in wanted {
        // Without a machine or a number of CPUs there is nothing to simulate.
        let (Some(cpus), false) = (figure.cpus, figure.machine.is_empty()) else {
            continue;
        };
        let same = |group: &&mut Group| {
            group.workload == figure.workload && group.machine == figure.machine
        };
        let group = match groups.iter_mut().find(same) {
            Some(group) => group,
            None => {
                groups.push(Group {
                    study: figure.study.clone(),
                    workload: figure.workload.clone(),
                    machine: figure.machine.clone(),
                    cpus: Vec::new(),
                    figures: Vec::new(),
                });
                groups.last_mut().expect("one was pushed")
            }
        };
        // Speed-ups are told in relation to 2 CPUs.
        let base = figure.metric.ends_with("vs_2way").then_some(2);
        for cpus in [Some(cpus), base].into_iter().flatten() {
            if !group.cpus.contains(&cpus) {
                group.cpus.push(cpus);
            }
        }
        group.cpus.sort_unstable();
        group.figures.push(figure.clone());
    }
    if args.workload.is_none() {
        // Studies of workloads that are not modelled yet.
        groups.retain(|group| {
            let name = group.workload.split(':').next().unwrap_or_default();
            schedlab_workload::list()
                .iter()
                .any(|model| model.name == name)
        });
    }
    if groups.is_empty() {
        bail!("{}", nothing(figures, scheduler));
    }
    Ok(groups)
}

/// What there would have been to ask for.
fn nothing(figures: &[Figure], scheduler: &Scheduler) -> String {
    let mine: Vec<_> = figures
        .iter()
        .filter(|figure| figure.scheduler.eq_ignore_ascii_case(&scheduler.name))
        .collect();
    let list = |mut known: Vec<String>| {
        known.sort();
        known.dedup();
        known.join(", ")
    };
    if mine.is_empty() {
        let schedulers = figures
            .iter()
            .map(|figure| figure.scheduler.clone())
            .collect();
        return format!(
            "nothing is published of scheduler `{}`; there is of {}",
            scheduler.name,
            list(schedulers)
        );
    }
    let usable = mine
        .iter()
        .filter(|figure| figure.cpus.is_some() && !figure.machine.is_empty())
        .map(|figure| format!("{} on {}", figure.workload, figure.machine))
        .collect();
    format!(
        "nothing is published of that workload and machine; there is of {}: {}",
        scheduler.name,
        list(usable)
    )
}
