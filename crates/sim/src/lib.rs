//! One simulated run from names to measures: puts workload, machine, policy, virtual kernel and report
//! together. It parses no arguments and writes no files.

mod baseline;
pub mod batch;
mod policy;
mod run;
mod scheduler;
mod spec;

/// No machine that is modelled has more CPUs.
pub use schedlab_abi::NR_CPUS_MAX;
pub use schedlab_engine::KernelVersion;

pub use policy::{OptionInfo, SchedulerError, SchedulerInfo, mute, options, schedulers};
pub use run::{SimError, check, nr_cpus, run};
pub use scheduler::Scheduler;
pub use spec::{SimSpec, quote};
