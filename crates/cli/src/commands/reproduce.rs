//! `reproduce`: the tables and figures of the studies, simulated.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use schedlab_experiments::{
    self as experiments, Elsewhere, Experiment, Planned, Rows, Told, Wanted,
};
use schedlab_report::RunResult;
use schedlab_report::export::lines::fill;
use schedlab_report::export::view::View;
use schedlab_report::published::{self, Figure};
use schedlab_sim::{Prepared, Scheduler, SimError, SimSpec, batch};
use schedlab_trace::{Duration, counted, nearest, shell_word};

use crate::args::ReproduceArgs;
use crate::cpus;
use crate::journal::Journal;
use crate::output::{Output, one_file_each, print, width};
use crate::progress::Progress;
use crate::real::{self, Emulated, RealRun};
use crate::results::{Files, deliver_text};
use crate::simulation;
use crate::status::Status;

pub fn run(args: &ReproduceArgs) -> anyhow::Result<Status> {
    let figures = figures(args.figures.as_deref())?;
    let mut elsewhere = Elsewhere {
        machine: args.machine.clone(),
        cpus: match &args.cpus {
            Some(text) => cpus::parse(text).map_err(|error| anyhow!("-c: {error}"))?,
            None => Vec::new(),
        },
    };
    let rows = match args.rows {
        true => Some(rows(args, &figures, std::mem::take(&mut elsewhere.cpus))?),
        false => None,
    };
    let chosen = match &rows {
        Some(rows) => vec![rows.experiment.clone()],
        None => chosen(&args.names)?,
    };
    let plans: Vec<Vec<Planned>> = chosen
        .iter()
        .map(|one| experiments::plan(one, args.quick, args.seeds, &elsewhere))
        .collect();
    // Runs that several experiments need are run once.
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
    let runs = simulation::check(&specs)?;
    let experiments = args
        .names
        .iter()
        .filter(|name| rows.is_none() && is_file(name));
    let figures_file = args.figures.as_deref();
    one_file_each(
        &[
            ("--html", Some(&args.html)),
            ("--json", args.json.as_deref()),
        ],
        experiments
            .map(String::as_str)
            .chain(simulation::files(&runs))
            .map(Path::new)
            .chain(figures_file),
    )?;
    let html = Output::create(&args.html)?;
    let outputs = Files::json(args.json.as_deref())?;
    let silent = outputs.take_stdout();
    let journal = Journal::open(&partial(&args.html))?;
    let results = simulate(&runs, &journal, args.jobs)?;
    let mut real = Real {
        time_limit: args.time_limit,
        ..Real::default()
    };
    if args.vm {
        real.run(&specs, &results, &journal)?;
    }

    let mut text = String::new();
    let mut told = Vec::new();
    for (experiment, planned) in chosen.into_iter().zip(&plans) {
        let mine: Vec<RunResult> = planned
            .iter()
            .map(|planned| results[place[&planned.spec.replay_command()]].clone())
            .collect();
        let emulated: Vec<Option<RunResult>> = planned
            .iter()
            .zip(&mine)
            .map(|(planned, simulated)| real.of(&planned.spec, simulated).cloned())
            .collect();
        let results = experiments::Results {
            planned,
            simulated: &mine,
            real: &emulated,
        };
        let panels = experiments::evaluate(&experiment, results, &figures);
        let findings = experiments::findings(&experiment, results);
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&experiments::text(&experiment, &findings, &panels, width()));
        told.push(Told {
            experiment,
            findings,
            panels,
        });
    }
    if let Some(rows) = &rows {
        text.push('\n');
        text.push_str(&rows.text(&told[0].panels, width()));
    }
    // The sizes are the studies'.
    let mut notes = match !args.rows && (args.machine.is_some() || args.cpus.is_some()) {
        true => experiments::too_small(&results),
        false => Vec::new(),
    };
    notes.append(&mut real.notes);
    notes.extend(real.told_missing());
    for note in &notes {
        fill(&mut text, "! ", note, 2, width());
    }
    let mut all = results;
    all.extend(real.done.into_values());
    let failed: Vec<&RunResult> = all.iter().filter(|run| !run.is_done()).collect();
    for run in &failed {
        let why = run.message.as_deref().unwrap_or("no message");
        let told = format!("{}: {}: {why}", run.what(), run.exit);
        fill(&mut text, "! ", &told, 2, width());
        let _ = writeln!(text, "  replay: {}", run.replay);
    }
    let page = write_page(html, &told, args, notes, &failed);
    let status = deliver_text(&all, &text, &View::of_width(width()), outputs)?;
    page?;
    if !silent {
        print(format!("\nfigures: {}\n", args.html.display()))?;
    }
    end(status, real.missing, journal)
}

/// Keeps what was done for the next call if runs are missing.
fn end(status: Status, missing: u32, journal: Journal) -> anyhow::Result<Status> {
    if missing > 0 {
        return Ok(Status::Failed);
    }
    journal.finish()?;
    Ok(status)
}

fn write_page(
    mut html: Output,
    told: &[Told],
    args: &ReproduceArgs,
    notes: Vec<String>,
    failed: &[&RunResult],
) -> anyhow::Result<()> {
    let mut lead = Vec::new();
    if args.vm {
        lead.push("Emulated: the workload's real program under the same scheduler in a real kernel, in a virtual machine. Its CPUs are emulated, slower than any that was studied and more than the host's cores: counts and orders can be compared, times and rates cannot.".to_owned());
    }
    if let Some(machine) = args.machine.as_ref().filter(|_| !args.rows) {
        lead.push(format!("Simulated on {machine}, not on the machines of the studies: nothing that was published can stand beside it, and the workloads take the CPU time that they took there."));
    }
    if args.quick {
        lead.push("A first impression (--quick): smaller workloads and fewer seeds. What was published of larger ones is not shown beside them.".to_owned());
    }
    lead.extend(notes);
    let page = experiments::page(told, lead, failed).html();
    html.write_all(page.as_bytes())
        .with_context(|| format!("cannot write {}", args.html.display()))?;
    html.commit()
}

/// CPUs of the largest virtual machine: more of them than cores, and emulated, show little.
const EMULATED_CPUS_MAX: u32 = 8;

/// Real programs in virtual machines.
#[derive(Default)]
struct Real {
    time_limit: Duration,
    /// By the command that repeats it.
    done: BTreeMap<String, RunResult>,
    /// The runs that failed, and why.
    notes: Vec<String>,
    /// Runs that their virtual machine did not come to, or not to the end of.
    missing: u32,
}

impl Real {
    /// The command that repeats the real side of a simulation, or the reason why it has none.
    fn command(&self, spec: &SimSpec, simulated: &RunResult) -> Result<String, String> {
        if spec.task_layout.is_some() {
            return Err(
                "with a layout of task structures, which is the modelled caches' alone".to_owned(),
            );
        }
        if simulated.cpus > EMULATED_CPUS_MAX {
            return Err(format!("on more than {EMULATED_CPUS_MAX} CPUs"));
        }
        Ok(format!(
            "schedlab run --vm -c {} -s {} --seed {} --time-limit {} {}",
            simulated.cpus,
            shell_word(&spec.scheduler.to_string()),
            spec.seed,
            self.time_limit,
            shell_word(&spec.workload)
        ))
    }

    fn of(&self, spec: &SimSpec, simulated: &RunResult) -> Option<&RunResult> {
        self.done.get(&self.command(spec, simulated).ok()?)
    }

    /// Runs the real side of all these simulations: a machine for each number of CPUs.
    fn run(
        &mut self,
        specs: &[SimSpec],
        simulated: &[RunResult],
        journal: &Journal,
    ) -> anyhow::Result<()> {
        let mut machines: BTreeMap<u32, Vec<(String, RealRun)>> = BTreeMap::new();
        let mut without: BTreeMap<String, u32> = BTreeMap::new();
        for (spec, simulated) in specs.iter().zip(simulated) {
            let command = match self.command(spec, simulated) {
                Ok(command) => command,
                Err(why) => {
                    *without.entry(why).or_default() += 1;
                    continue;
                }
            };
            if let Some(known) = journal.find_real(&command, &spec.workload) {
                self.done.insert(command, known);
                continue;
            }
            let jobs = machines.entry(simulated.cpus).or_default();
            // Two machines' simulations may have the same real side.
            if jobs.iter().all(|(known, _)| *known != command) {
                let job = RealRun {
                    workload: spec.workload.clone(),
                    scheduler: spec.scheduler.to_string(),
                    seed: spec.seed,
                };
                jobs.push((command, job));
            }
        }
        for (why, nr) in without {
            self.notes
                .push(format!("not emulated: {} {why}", counted(nr, "run")));
        }
        for (cpus, jobs) in machines {
            let (commands, jobs): (Vec<String>, Vec<RealRun>) = jobs.into_iter().unzip();
            let outcomes = real::emulate(cpus, &jobs, self.time_limit)?;
            for ((command, job), outcome) in commands.into_iter().zip(&jobs).zip(outcomes) {
                self.keep(command, job, outcome, journal);
            }
        }
        Ok(())
    }

    fn keep(&mut self, command: String, job: &RealRun, outcome: Emulated, journal: &Journal) {
        let why = match outcome {
            Emulated::Done(result) => {
                let mut result = *result;
                result.replay.clone_from(&command);
                result.scheduler.clone_from(&job.scheduler);
                journal.keep(&result);
                self.done.insert(command, result);
                return;
            }
            Emulated::Refused(why) => why,
            Emulated::Missing => {
                self.missing += 1;
                "the virtual machine ended before it did".to_owned()
            }
        };
        let note = format!("not emulated: {}: {why}", job.workload);
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The remedy for missing runs.
    fn told_missing(&self) -> Option<String> {
        (self.missing > 0).then(|| {
            format!(
                "missing, since the virtual machine ended: {}; the same command goes on where it was",
                counted(self.missing, "run")
            )
        })
    }
}

/// Where finished runs are kept until the page is written.
fn partial(html: &Path) -> PathBuf {
    let mut name = html.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// The published figures of a file, or those that come along.
fn figures(path: Option<&Path>) -> anyhow::Result<Vec<Figure>> {
    let Some(path) = path else {
        return Ok(published::read(
            published::BUILTIN_NAME,
            published::BUILTIN,
        )?);
    };
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    Ok(published::read(&name, &text)?)
}

/// The published figures that are asked for, on these numbers of CPUs where any is named.
fn rows(args: &ReproduceArgs, figures: &[Figure], cpus: Vec<usize>) -> anyhow::Result<Rows> {
    let wanted = Wanted {
        workloads: args.names.clone(),
        scheduler: args.scheduler.as_deref().map(Scheduler::parse),
        machine: args.machine.clone(),
        cpus,
    };
    Rows::of(figures, &wanted).map_err(|error| anyhow!(error))
}

/// Whether an experiment is asked for by the path of its file.
fn is_file(name: &str) -> bool {
    name.contains('/') || name.ends_with(".toml")
}

/// The experiments that are asked for by name or path; all that come along where none is.
fn chosen(names: &[String]) -> anyhow::Result<Vec<Experiment>> {
    let known = experiments::builtin_names();
    let all: Vec<String> = known.iter().map(|&name| name.to_owned()).collect();
    let names = if names.is_empty() { &all } else { names };
    let mut chosen: Vec<Experiment> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            continue;
        }
        let experiment = if is_file(name) {
            let text =
                std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
            Experiment::read(name, &text)?
        } else {
            match experiments::builtin(name) {
                Some(found) => found?,
                None => bail!(
                    "unknown experiment `{name}`{}; there are: {}, or the path of a .toml file",
                    nearest(name, &known),
                    known.join(", ")
                ),
            }
        };
        if chosen.iter().any(|other| other.name == experiment.name) {
            bail!(
                "two experiments are called `{}`: rename a file",
                experiment.name
            );
        }
        chosen.push(experiment);
    }
    Ok(chosen)
}

/// Runs them all, as many at a time as there are cores; those that were finished before a kill are not run
/// again.
fn simulate(
    runs: &[Prepared],
    journal: &Journal,
    jobs: Option<u16>,
) -> Result<Vec<RunResult>, SimError> {
    let mut progress = Progress::new(runs.len());
    batch::simulate(
        runs,
        simulation::threads(jobs),
        |run| {
            if let Some(result) = journal.find(run.spec()) {
                return Ok(result);
            }
            let result = run.run(None)?;
            // The file at a path may change between two calls.
            if run.files().is_empty() {
                journal.keep(&result);
            }
            Ok(result)
        },
        |done| progress.update_with(done, || simulation::share_passed(runs)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that broke down is neither success nor a reason to begin anew.
    #[test]
    fn runs_that_are_missing_keep_what_was_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let job = RealRun {
            workload: "cpu:tasks=2".into(),
            scheduler: "fifo".into(),
            seed: 1,
        };
        let done = || Emulated::Done(Box::default());
        let mut real = Real::default();
        let journal = Journal::open(&path).unwrap();
        real.keep("one".into(), &job, done(), &journal);
        real.keep("other".into(), &job, Emulated::Missing, &journal);
        let told = "missing, since the virtual machine ended: 1 run; the same command goes on where it was";
        assert_eq!(real.told_missing().as_deref(), Some(told));
        assert_eq!(
            end(Status::Done, real.missing, journal).unwrap(),
            Status::Failed
        );

        let journal = Journal::open(&path).unwrap();
        assert!(journal.find_real("one", &job.workload).is_some());
        assert!(journal.find_real("other", &job.workload).is_none());
        let mut real = Real::default();
        real.keep("other".into(), &job, done(), &journal);
        assert_eq!(real.told_missing(), None);
        assert_eq!(
            end(Status::Done, real.missing, journal).unwrap(),
            Status::Done
        );
        assert!(!path.exists());
    }
}
