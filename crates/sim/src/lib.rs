//! One simulated run from names to measures: puts workload, machine, policy, virtual kernel and report
//! together. It parses no arguments and writes no files.
#![forbid(unsafe_code)]

mod baseline;
pub mod batch;
mod error;
mod inputs;
pub mod parts;
mod run;
mod scheduler;
mod spec;

/// No machine that is modelled has more CPUs.
pub use schedlab_abi::NR_CPUS_MAX;
pub use schedlab_engine::KernelVersion;

pub use error::SimError;
pub use inputs::{Inputs, Prepared};
pub use run::{StreamOf, check, run};
pub use schedlab_policies::compile::finish as finish_compiling;
pub use schedlab_policies::{spelled_out, use_bpf_headers};
pub use schedlab_trace::Scheduler;
pub use scheduler::{
    OptionInfo, SchedulerError, SchedulerInfo, is_baseline, mute, options, parse_schedulers,
    scheduler_at, schedulers,
};
pub use spec::SimSpec;
