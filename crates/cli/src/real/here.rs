//! Real programs under the kernel that this program runs on.

use std::path::Path;

use anyhow::Context as _;
use schedlab_kernel::comparison::{Comparison, Load, Run};
use schedlab_kernel::{stock, topology, vm};
use schedlab_report::RunResult;
use schedlab_sim::Scheduler;
use schedlab_sweep::Host;
use schedlab_trace::Duration as Limit;

use super::contract::Spoils;
use crate::output::tell;

/// Returns the machine that this program runs on, as results of real runs name it.
pub fn place() -> &'static str {
    vm::place()
}

/// Returns the machine that this program runs on, its kernel and its CPUs.
pub fn host() -> anyhow::Result<Host> {
    Ok(Host {
        machine: vm::place().to_owned(),
        kernel: release()?,
        cpus: topology::online().len(),
        cpu_model: topology::model(),
    })
}

/// Returns the findings that no ordinary kernel has, and which comparisons each spoils.
pub fn not_stock() -> anyhow::Result<Vec<(String, Spoils)>> {
    let found = stock::examine(Path::new("/"));
    let spoils = |kind| match kind {
        stock::Spoils::Nothing => Spoils::Nothing,
        stock::Spoils::Placement => Spoils::Placement,
        stock::Spoils::Everything => Spoils::Everything,
    };
    Ok(found
        .into_iter()
        .map(|one| (one.text, spoils(one.spoils)))
        .collect())
}

/// Returns the release of the kernel that runs.
pub fn release() -> anyhow::Result<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .context("cannot read the kernel's release")?;
    Ok(release.trim().to_owned())
}

/// One run of a workload under one scheduler of this kernel.
pub fn run_once(
    workload: &str,
    scheduler: &Scheduler,
    seed: u64,
    time_limit: Limit,
) -> anyhow::Result<RunResult> {
    let comparison = of_one_run(workload, scheduler, seed, time_limit)?;
    let mut results = comparison.run(&mut |run| complain(run))?;
    results.pop().context("a run has a result")
}

/// A run of a workload that is not counted, before those under `scheduler`.
pub fn warm_up(
    workload: &str,
    scheduler: &Scheduler,
    seed: u64,
    time_limit: Limit,
) -> anyhow::Result<()> {
    Ok(of_one_run(workload, scheduler, seed, time_limit)?.warm_up()?)
}

fn of_one_run(
    workload: &str,
    scheduler: &Scheduler,
    seed: u64,
    time_limit: Limit,
) -> anyhow::Result<Comparison> {
    Ok(Comparison {
        schedulers: vec![scheduler.clone()],
        load: Load::Workload {
            text: workload.to_owned(),
            program: std::env::current_exe().context("cannot find this program's file")?,
        },
        repeat: 1,
        seed,
        time_limit: time_limit.to_std(),
        check: false,
    })
}

/// Prints a program's output if it failed.
pub fn complain(run: &Run) {
    if run.result.is_done() {
        return;
    }
    let said = String::from_utf8_lossy(&run.stderr);
    for line in said.lines().rev().take(5).collect::<Vec<_>>().iter().rev() {
        tell(format_args!("{}: {line}", run.result.scheduler));
    }
}
