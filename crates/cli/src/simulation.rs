//! Simulated runs, as every command that simulates lists, checks and runs them.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::thread;

use schedlab_report::RunResult;
use schedlab_sim::{Inputs, Prepared, Scheduler, SimError, SimSpec, batch, is_baseline};

use crate::args::{Rt, SimCommon};
use crate::output::tell;
use crate::progress::Progress;

/// Returns the seed of a repetition.
pub fn seed_of(first: u64, repetition: u64) -> anyhow::Result<u64> {
    first
        .checked_add(repetition)
        .ok_or_else(|| anyhow::anyhow!("--seed {first}: with --repeat, seeds go beyond 2^64"))
}

/// Returns the specification of one run.
pub fn spec(
    workload: &str,
    scheduler: &Scheduler,
    machine: &str,
    cpus: Option<usize>,
    seed: u64,
    common: &SimCommon,
) -> SimSpec {
    SimSpec {
        workload: workload.to_owned(),
        scheduler: scheduler.clone(),
        machine: machine.to_owned(),
        cpus,
        taskset: None,
        task_layout: None,
        seed,
        rt_policy: common.rt == Rt::Policy,
        kernel: common.kernel.clone(),
        time_limit: common.time_limit,
        check: common.check,
        audit: false,
    }
}

/// Refuses what cannot be run before anything is run, and says what users should know of what can. The answer is what
/// is run: a file that is edited later changes none of it.
pub fn check(specs: &[SimSpec]) -> Result<Vec<Prepared>, SimError> {
    let mut inputs = Inputs::default();
    let mut runs = Vec::with_capacity(specs.len());
    let mut told: Vec<String> = Vec::new();
    for spec in specs {
        let run = inputs.read(spec)?;
        if spec.seed == specs[0].seed {
            for note in run.check()? {
                if !told.contains(&note) {
                    tell(&note);
                    told.push(note);
                }
            }
        }
        runs.push(run);
    }
    let baselines = specs
        .iter()
        .filter(|spec| is_baseline(&spec.scheduler))
        .count();
    if (1..specs.len()).contains(&baselines) {
        tell("the queues of the kernel's own scheduler cost nothing here: compare what it decides");
    }
    Ok(runs)
}

/// Returns the files that were read for runs.
pub fn files(runs: &[Prepared]) -> BTreeSet<&str> {
    let files = runs.iter().flat_map(Prepared::files);
    files.map(|(path, _)| path.as_str()).collect()
}

/// Returns how many runs are under way at a time: as many as asked for, or one a core.
pub fn threads(jobs: Option<u16>) -> NonZeroUsize {
    match jobs {
        Some(jobs) => NonZeroUsize::new(usize::from(jobs)),
        None => thread::available_parallelism().ok(),
    }
    .unwrap_or(NonZeroUsize::MIN)
}

/// Runs them all, as many at a time as there are cores.
pub fn run(runs: &[Prepared], common: &SimCommon) -> Result<Vec<RunResult>, SimError> {
    let mut progress = Progress::new(runs.len());
    batch::simulate(
        runs,
        threads(common.jobs),
        |run| run.run(None),
        |done| progress.update_with(done, || share_passed(runs)),
    )
}

/// Returns how much of the runs under way has passed, together; `None` if nothing is known of any.
pub fn share_passed(runs: &[Prepared]) -> Option<f64> {
    let shares = runs.iter().filter_map(Prepared::share_passed);
    shares.reduce(|all, one| all + one)
}
