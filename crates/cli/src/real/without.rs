//! The answers of a program that was built without the real kernel's side.

use std::path::Path;

use anyhow::bail;
use schedlab_report::RunResult;
use schedlab_sim::Scheduler;
use schedlab_sweep::Host;
use schedlab_trace::Duration;

use super::contract::{Emulated, RealRun, Spoils};
use crate::status::Status;

/// How to get what is missing.
pub const REMEDY: &str = "this schedlab was built without the real kernel's side: install clang-22, libelf-dev and zlib1g-dev, then `cargo build --release -p schedlab --features kernel` (`make demo` does both)";

pub fn in_vm(_: u32, _: Duration, _: &[String]) -> anyhow::Result<Status> {
    bail!("{REMEDY}")
}

pub fn emulate(_: u32, _: &[RealRun], _: Duration) -> anyhow::Result<Vec<Emulated>> {
    bail!("{REMEDY}")
}

pub fn inside(_: &Path, _: Duration) -> anyhow::Result<Status> {
    bail!("{REMEDY}")
}

pub fn place() -> &'static str {
    "host"
}

pub fn host() -> anyhow::Result<Host> {
    bail!("{REMEDY}")
}

pub fn not_stock() -> anyhow::Result<Vec<(String, Spoils)>> {
    bail!("{REMEDY}")
}

pub fn sweep_in_vm(_: &Path, _: Option<u32>, _: u64, _: Duration) -> anyhow::Result<Status> {
    bail!("{REMEDY}")
}

pub fn run_once(_: &str, _: &Scheduler, _: u64, _: Duration) -> anyhow::Result<RunResult> {
    bail!("{REMEDY}")
}

pub fn warm_up(_: &str, _: &Scheduler, _: u64, _: Duration) -> anyhow::Result<()> {
    bail!("{REMEDY}")
}
