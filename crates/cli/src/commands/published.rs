//! `published`: what was published of a scheduler beside what the simulator says.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use schedlab_experiments::{Meant, Studies};
use schedlab_report::Value;
use schedlab_report::export::published::{render, render_accuracy};
use schedlab_report::export::view::View;
use schedlab_report::published::{self, Figure};
use schedlab_sim::{Scheduler, SimSpec};
use schedlab_trace::counted;
use schedlab_workload::Workload;

use super::{Status, sim};
use crate::args::PublishedArgs;
use crate::output::{one_file_each, width};
use crate::results::{Files, deliver_text};

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
    let scheduler = args.scheduler.as_deref().map(Scheduler::parse);
    let groups = groups(&figures, args, scheduler.as_ref())?;
    let mut specs = Vec::new();
    for group in &groups {
        for repetition in 0..u64::from(args.repeat) {
            for &cpus in &group.cpus {
                let seed = sim::seed_of(args.common.seed, repetition)?;
                let cpus = Some(cpus as usize);
                let spec = sim::spec(
                    &group.workload,
                    &group.scheduler,
                    &group.machine,
                    cpus,
                    seed,
                    &args.common,
                );
                specs.push(spec);
            }
        }
    }
    let runs = sim::check(&specs)?;
    let inputs = sim::files(&runs).into_iter().map(Path::new);
    one_file_each(
        &[("--json", args.json.as_deref())],
        inputs.chain(args.figures.as_deref()),
    )?;
    let outputs = Files::json(args.json.as_deref())?;
    let results = sim::simulate(&runs, &args.common)?;
    let mut text = String::new();
    let mut all = Vec::new();
    for group in &groups {
        let mine = |spec: &SimSpec| {
            spec.workload == group.workload
                && spec.machine == group.machine
                && spec.scheduler == group.scheduler
        };
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
            "{} under {} on {}:\npublished ({}) and simulated, {of}",
            group.workload, group.scheduler, group.machine, group.study
        );
        if !text.is_empty() {
            text.push('\n');
        }
        let unit = runs
            .iter()
            .find_map(|run| match run.measures.get("score_unit") {
                Some(Value::Text(unit)) => Some(unit.as_str()),
                _ => None,
            });
        let compared = published::compare(&group.figures, &runs);
        text.push_str(&render(&title, unit, &compared));
        all.push((group.workload.as_str(), compared));
        for run in runs.iter().filter(|run| !run.is_done()) {
            let _ = writeln!(
                text,
                "! {}, seed {}: {}\n  replay: {}",
                counted(run.cpus, "CPU"),
                run.seed,
                run.exit,
                run.replay
            );
        }
    }
    if groups.len() > 1 {
        let rows = all.iter().flat_map(|(workload, compared)| {
            let name = workload.split(':').next().unwrap_or_default();
            compared
                .iter()
                .map(move |(metric, cells)| (name, *metric, cells.as_slice()))
        });
        let _ = write!(text, "\n{}", render_accuracy(&published::accuracy(rows)));
    }
    deliver_text(&results, &text, &View::of_width(width()), outputs)
}

/// Figures of the same workload on the same machine.
struct Group {
    study: String,
    /// With the options that distinguish the study's names.
    workload: String,
    scheduler: Scheduler,
    machine: String,
    cpus: Vec<u32>,
    figures: Vec<Figure>,
}

fn groups(
    figures: &[Figure],
    args: &PublishedArgs,
    scheduler: Option<&Scheduler>,
) -> anyhow::Result<Vec<Group>> {
    let studies = Studies::builtin();
    let mut groups: Vec<Group> = Vec::new();
    for figure in figures {
        // Without a machine or a number of CPUs there is nothing to simulate.
        let (Some(cpus), false) = (figure.cpus, figure.machine.is_empty()) else {
            continue;
        };
        let meant = studies.meant(figure);
        let is_wanted = scheduler.is_none_or(|scheduler| is_of(figure, &meant, scheduler))
            && published::Metric::find(&figure.metric).is_some()
            && args.workload.as_ref().is_none_or(|asked| {
                [&figure.workload, &meant.workload]
                    .iter()
                    .any(|known| same_workload(asked, known, cpus))
            })
            && args
                .machine
                .as_ref()
                .is_none_or(|machine| *machine == figure.machine);
        if !is_wanted {
            continue;
        }
        // Options of one's own are what is to be simulated; otherwise it is what the study had.
        let simulated = match scheduler {
            Some(own) if !own.options.is_empty() => own.clone(),
            _ => Scheduler::parse(&meant.scheduler),
        };
        let same = |group: &&mut Group| {
            group.workload == meant.workload
                && group.machine == figure.machine
                && group.scheduler == simulated
        };
        let group = match groups.iter_mut().find(same) {
            Some(group) => group,
            None => {
                groups.push(Group {
                    study: figure.study.clone(),
                    workload: meant.workload.clone(),
                    scheduler: simulated,
                    machine: figure.machine.clone(),
                    cpus: Vec::new(),
                    figures: Vec::new(),
                });
                groups.last_mut().expect("one was pushed")
            }
        };
        // Speed-ups are given in relation to 2 CPUs.
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
        bail!("{}", nothing(figures, &studies, scheduler));
    }
    Ok(groups)
}

/// Whether a figure is of the scheduler that is asked for, by its own name or by the study's.
fn is_of(figure: &Figure, meant: &Meant, scheduler: &Scheduler) -> bool {
    figure.scheduler.eq_ignore_ascii_case(&scheduler.name)
        || Scheduler::parse(&meant.scheduler).name == scheduler.name
}

/// Whether two texts are one workload, in whatever order its options are and whether or not defaults are named.
fn same_workload(one: &str, other: &str, cpus: u32) -> bool {
    let parse = |text| Workload::parse(text, cpus.max(1) as usize).ok();
    match (parse(one), parse(other)) {
        (Some(one), Some(other)) => one.name == other.name && one.params == other.params,
        _ => one == other,
    }
}

/// Returns the choices for a request that matches no published figure.
fn nothing(figures: &[Figure], studies: &Studies, scheduler: Option<&Scheduler>) -> String {
    let figures = || {
        let usable = |figure: &&Figure| figure.cpus.is_some() && !figure.machine.is_empty();
        figures.iter().filter(usable)
    };
    let mine: Vec<_> = figures()
        .filter(|figure| {
            scheduler.is_none_or(|scheduler| is_of(figure, &studies.meant(figure), scheduler))
        })
        .collect();
    let list = |mut known: Vec<String>| {
        known.sort();
        known.dedup();
        known.join(", ")
    };
    let name = scheduler.map_or("any scheduler", |scheduler| &scheduler.name);
    if mine.is_empty() {
        let schedulers = figures().map(|figure| figure.scheduler.clone()).collect();
        return format!(
            "nothing is published of scheduler `{name}`; there is of {}",
            list(schedulers)
        );
    }
    let usable = mine
        .iter()
        .map(|figure| format!("{} on {}", figure.workload, figure.machine))
        .collect();
    format!(
        "nothing is published of that workload and machine; there is of {name}: {}",
        list(usable)
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use schedlab_machine::Machine;

    use super::*;
    use crate::args::{Cli, Command};

    fn asked(words: &[&str]) -> anyhow::Result<Vec<Group>> {
        let cli = Cli::try_parse_from(["schedlab", "published"].iter().chain(words))?;
        let Command::Published(args) = cli.command else {
            unreachable!("that is what was asked for");
        };
        let figures = published::read(published::BUILTIN_NAME, published::BUILTIN)?;
        groups(
            &figures,
            &args,
            args.scheduler.as_deref().map(Scheduler::parse).as_ref(),
        )
    }

    /// By the study's name of the scheduler and by ours.
    #[test]
    fn what_a_profile_is_calibrated_on_can_be_shown() {
        for name in Machine::builtin_names() {
            for row in Machine::builtin(name).unwrap().calibrated_on {
                let found = asked(&[&row.workload, "-m", name, "-s", &row.scheduler]).unwrap();
                assert_eq!(found.len(), 1, "{row}");
                for cpus in &row.cpus {
                    assert!(found[0].cpus.contains(cpus), "{row}: {cpus}");
                }
                for metric in &row.metrics {
                    let mut figures = found[0].figures.iter();
                    assert!(
                        figures.any(|figure| figure.metric == *metric),
                        "{row}: {metric}"
                    );
                }
                let scheduler = found[0].scheduler.name.clone();
                let mut ours = schedlab_sim::schedulers().into_iter();
                assert!(ours.any(|one| one.name == scheduler), "{row}: {scheduler}");
                let again = asked(&[&row.workload, "-m", name, "-s", &scheduler]).unwrap();
                let same = |group: &&Group| group.workload == found[0].workload;
                assert!(again.iter().any(|group| same(&group)), "{row}");
            }
        }
    }

    #[test]
    fn workloads_are_the_same_in_any_order_of_their_options() {
        let found = asked(&["chat:messages=200,rooms=20", "-s", "dss"]).unwrap();
        assert_eq!(found[0].workload, "chat:rooms=20,messages=200");
        let found = asked(&["canneal:pin=true", "-s", "cfs"]).unwrap();
        assert_eq!(
            (found.len(), found[0].workload.as_str()),
            (1, "canneal:pin=true")
        );
        let own = asked(&["tpch", "-s", "dss:ties=list"]).unwrap();
        assert_eq!(own[0].scheduler.to_string(), "dss:ties=list");
    }

    #[test]
    fn every_name_that_is_proposed_is_known() {
        let error = asked(&["-s", "nosuch"]).err().unwrap().to_string();
        let (_, names) = error.split_once("there is of ").unwrap();
        for name in names.split(", ") {
            assert!(asked(&["-s", name]).is_ok(), "{name}");
        }
    }
}
