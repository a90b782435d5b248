//! `run`, `vm` and `doctor`: the real kernel's side, where this program was built with it.

#[cfg(feature = "kernel")]
mod jobs;
#[cfg(feature = "kernel")]
mod with;
#[cfg(feature = "kernel")]
pub use jobs::{emulate, inside};
#[cfg(feature = "kernel")]
pub use with::{doctor, host, not_stock, place, run, run_once, sweep_in_vm, vm, warm_up};

#[cfg(not(feature = "kernel"))]
pub use without::{
    doctor, emulate, host, inside, not_stock, place, run, run_once, sweep_in_vm, vm, warm_up,
};

#[cfg(not(feature = "kernel"))]
mod without {
    use std::path::Path;

    use anyhow::bail;
    use schedlab_report::RunResult;
    use schedlab_report::export::lines::fill;
    use schedlab_sim::Scheduler;
    use schedlab_sweep::Host;
    use schedlab_trace::Duration;

    use crate::args::{EmulateArgs, RunArgs, VmArgs};
    use crate::commands::{Emulated, RealRun, Spoils};
    use crate::output::{print, width};
    use crate::status::Status;

    /// How to get what is missing.
    const REMEDY: &str = "this schedlab was built without the real kernel's side: install clang-22, libelf-dev and zlib1g-dev, then `cargo build --release -p schedlab --features kernel` (`make demo` does both)";

    pub fn run(_: &RunArgs) -> anyhow::Result<Status> {
        bail!("{REMEDY}")
    }

    pub fn vm(_: &VmArgs) -> anyhow::Result<Status> {
        bail!("{REMEDY}")
    }

    pub fn emulate(_: u32, _: &[RealRun], _: Duration) -> anyhow::Result<Vec<Emulated>> {
        bail!("{REMEDY}")
    }

    pub fn inside(_: &EmulateArgs) -> anyhow::Result<Status> {
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

    /// Simulation needs nothing of the kernel, so its absence is a note, not an error.
    pub fn doctor() -> anyhow::Result<Status> {
        let mut text = "simulation    ready\n".to_owned();
        fill(&mut text, "real kernel   ", REMEDY, 14, width());
        for (program, remedy) in schedlab_programs::original::missing() {
            let told = format!("{program}, for `load --original`: {remedy}");
            fill(&mut text, "not there     ", &told, 14, width());
        }
        print(text)?;
        Ok(Status::Done)
    }
}
