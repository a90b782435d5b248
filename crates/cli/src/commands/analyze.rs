//! `analyze`: what a sweep means.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::bail;
use schedlab_analysis::{
    Across, Alternative, Analysis, AnalysisError, Bounds, Study, Verdict, analyse, page,
};
use schedlab_report::RunResult;
use schedlab_report::export::lines::fill;
use schedlab_search::Plan;
use schedlab_sweep::{Definition, Row};
use schedlab_trace::counted;
use serde_json::json;

use crate::args::AnalyzeArgs;
use crate::output::{is_stdout, one_file_each, print, tell, width, write};
use crate::results;
use crate::status::Status;

pub fn run(args: &AnalyzeArgs) -> anyhow::Result<Status> {
    let bounds = Bounds {
        within_pct: args.within,
        good_pct: args.good,
        bad_pct: args.bad,
        deviation_pct: args.deviation,
        points: args.points,
        ..Bounds::default()
    };
    for (flag, value) in [
        ("--within", args.within),
        ("--good", args.good),
        ("--bad", args.bad),
        ("--deviation", args.deviation),
        ("--points", args.points),
    ] {
        if !value.is_finite() || value < 0.0 {
            bail!("{flag} {value}: it is a part in percent, 0 or more");
        }
    }
    for (flag, value) in [
        ("--good", args.good),
        ("--bad", args.bad),
        ("--points", args.points),
    ] {
        if value > 100.0 {
            bail!("{flag} {value}: no part of the schedulers is more than 100 percent");
        }
    }
    if args.bad > args.good {
        bail!(
            "--bad {} is above --good {}: an alternative could be both",
            args.bad,
            args.good
        );
    }
    if args.html.as_deref().is_some_and(is_stdout) && args.json.as_deref().is_some_and(is_stdout) {
        bail!("--html - and --json -: only one of them can be written to standard output");
    }
    one_file_each(
        &[
            ("--html", args.html.as_deref()),
            ("--json", args.json.as_deref()),
        ],
        schedlab_sweep::paths(&args.folder)?,
    )?;
    let (definition, rows) = schedlab_sweep::read(&args.folder)?;
    if rows.is_empty() {
        bail!("{}: the sweep has no results yet", args.folder.display());
    }
    let (missing, unfinished) = match definition.budget {
        Some(budget) => match unmade(&definition, &rows, budget.runs) {
            0 => (0, None),
            missing => (missing, Some(not_over(missing, budget.runs))),
        },
        None => {
            let (missing, all) = (definition.jobs() - rows.len() as u64, definition.jobs());
            let are = if missing == 1 { "is" } else { "are" };
            let told = format!("{missing} of {all} runs {are} still missing");
            (missing, (missing > 0).then_some(told))
        }
    };
    let mut analyses: Vec<Analysis> = Vec::new();
    let mut without: Vec<&str> = Vec::new();
    for workload in &definition.workloads {
        if !rows.iter().any(|row| row.workload == *workload) {
            continue;
        }
        match analyse(&definition, &rows, workload, &args.measure, &bounds) {
            Ok(analysis) => analyses.push(analysis),
            // One without wakeups, say, has no wakeup latency.
            Err(AnalysisError::Empty { .. }) => without.push(workload),
            Err(error) => return Err(error.into()),
        }
    }
    if analyses.is_empty() {
        if let Some(told) = all_failed(rows.iter()) {
            bail!("{}: {told}", args.folder.display());
        }
        bail!("no run has the measure `{}`", args.measure);
    }
    without.retain(|workload| {
        let told = all_failed(rows.iter().filter(|row| row.workload == *workload));
        if let Some(told) = &told {
            tell(told);
        }
        told.is_none()
    });
    if !without.is_empty() {
        tell(format_args!(
            "no run of {} has the measure `{}`",
            without.join(", "),
            args.measure
        ));
    }
    let scheduler = |point: usize| definition.space.scheduler(point as u64).to_string();
    let across = Across::new(&analyses, scheduler);
    if let Some(told) = &unfinished {
        tell(told);
    }
    let emulated = definition
        .host
        .as_ref()
        .is_some_and(|host| host.machine == RunResult::EMULATED);
    let mut taken = false;
    if let Some(path) = &args.html {
        let title = format!(
            "{} schedulers: {}",
            definition.space.scheduler,
            definition.workloads.join(", ")
        );
        taken |= is_stdout(path);
        let mut page = page(&title, &analyses, across.as_ref());
        page.lead.extend(unfinished.as_deref().map(sentence));
        if emulated {
            page.lead.push(ON_EMULATED_CPUS.to_owned());
        }
        write(path, &page.html())?;
    }
    if let Some(path) = &args.json {
        let document = json!({
            "schema": 1,
            "sweep": definition,
            "missing": missing,
            "bounds": bounds,
            "workloads": analyses,
            "across": across,
        });
        taken |= is_stdout(path);
        write(path, &(serde_json::to_string_pretty(&document)? + "\n"))?;
    }
    if !taken {
        let mut told = String::new();
        if emulated {
            fill(&mut told, "", ON_EMULATED_CPUS, 2, width());
            told.push('\n');
        }
        told.push_str(&text(&analyses, across.as_ref(), width()));
        print(told)?;
    }
    Ok(Status::Done)
}

/// The runs that a search has still to make, of its budget or of the whole space; 0 if it is over.
fn unmade(definition: &Definition, rows: &[Row], budget: u64) -> u64 {
    let rows: BTreeMap<u64, Row> = rows.iter().map(|row| (row.job, row.clone())).collect();
    let Some(mut plan) = Plan::new(definition) else {
        return 0;
    };
    if plan.stage(&rows).is_none() {
        return 0;
    }
    let is_made = |run: &u64| {
        let mut jobs = definition.jobs_of(*run);
        jobs.all(|job| rows.contains_key(&job))
    };
    let made = (0..definition.runs()).filter(is_made).count() as u64;
    // The stage that is under way has a run at least.
    budget.min(definition.runs()).saturating_sub(made).max(1)
}

fn not_over(missing: u64, budget: u64) -> String {
    let are = if missing == 1 { "is" } else { "are" };
    format!(
        "the search is not over: {missing} of {} {are} still missing, and the best may be among them",
        counted(budget, "run")
    )
}

/// A line as a sentence of a page.
fn sentence(line: &str) -> String {
    let mut letters = line.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

/// The caveat of a sweep in a virtual machine without KVM.
const ON_EMULATED_CPUS: &str = "These runs are of a virtual machine with emulated CPUs, which do not keep the proportions of real ones: compare \
     counts and orders, not times and not the sizes of differences.";

/// That none of these runs ended as it should, and why the first one did not.
fn all_failed<'a>(mut rows: impl Iterator<Item = &'a Row> + Clone) -> Option<String> {
    let first = rows.clone().next()?;
    let runs = rows.clone().count() as u64;
    rows.all(|row| !row.is_done()).then(|| {
        format!(
            "of {} none ended as it should; the first: {}",
            counted(runs, "run"),
            results::failure(first)
        )
    })
}

fn text(analyses: &[Analysis], across: Option<&Across>, width: usize) -> String {
    let mut text = String::new();
    for analysis in analyses {
        let study = &analysis.study;
        fill(&mut text, "", &analysis.workload, 2, width);
        text.push('\n');
        fill(&mut text, "", &analysis.words, 0, width);
        text.push('\n');
        // The last round of a search has more seeds than the others that are compared.
        let best = match &analysis.search {
            Some(search) => &search.best_scheduler,
            None => &study.best_scheduler,
        };
        fill(&mut text, "best: ", best, 2, width);
        for (name, [b, f, fb]) in [("first", study.first), ("second", study.second)] {
            let _ = writeln!(text, "{name} round: |B| {b}, |F| {f}, |FB| {fb}");
        }
        for line in verdicts(study) {
            fill(&mut text, "", &line, 2, width);
        }
        for line in analysis.tree.lines() {
            let _ = writeln!(text, "  {line}");
        }
        text.push('\n');
    }
    if let Some(across) = across {
        text.push_str("All together\n\n");
        fill(&mut text, "", &across.words, 0, width);
    }
    text
}

/// Which alternatives are what. A verdict goes by shares alone; chance may give it.
fn verdicts(study: &Study) -> Vec<String> {
    let by_chance = |one: &Alternative| one.verdict.is_judgement() && !one.significant;
    let name = |one: &Alternative| {
        let mark = if by_chance(one) { "?" } else { "" };
        format!("{}={}{mark}", one.feature, one.alternative)
    };
    let mut lines = Vec::new();
    for (word, verdict) in [
        ("good", Verdict::Good),
        ("bad", Verdict::Bad),
        ("bad in the second round", Verdict::BadInSecondRound),
        ("not compared", Verdict::NotCompared),
    ] {
        let chosen = study.alternatives.iter();
        let chosen = chosen.filter(|one| one.verdict == verdict);
        let names: Vec<String> = chosen.map(name).collect();
        if !names.is_empty() {
            lines.push(format!("{word}: {}", names.join(", ")));
        }
    }
    if study.alternatives.iter().any(by_chance) {
        lines.push("A ? marks what chance could give, too.".to_owned());
    }
    lines
}
