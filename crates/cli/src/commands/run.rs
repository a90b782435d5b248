//! `run`: a workload or a command under schedulers in a real kernel.

#[cfg(feature = "kernel")]
mod with;
#[cfg(feature = "kernel")]
pub use with::run;

#[cfg(not(feature = "kernel"))]
pub fn run(_: &crate::args::RunArgs) -> anyhow::Result<crate::status::Status> {
    anyhow::bail!("{}", crate::real::REMEDY)
}
