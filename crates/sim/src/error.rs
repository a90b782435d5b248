//! Why a run could not be begun.

use schedlab_engine::{HostFailure, UnknownKernel};
use schedlab_machine::ProfileError;
use schedlab_policies::SelectError;
use schedlab_trace::CpuSet;
use schedlab_workload::WorkloadError;

use crate::scheduler::SchedulerError;

/// Why a run could not be begun. How a run ended is no error but part of its result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The workload cannot be used.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The machine cannot be used.
    #[error(transparent)]
    Machine(#[from] ProfileError),
    /// The scheduler cannot be used.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
    /// No such kernel is simulated.
    #[error(transparent)]
    Kernel(#[from] UnknownKernel),
    /// Tasks may run on CPUs that there are not.
    #[error("--taskset {taskset}: the machine has the CPUs 0 to {last}")]
    Taskset {
        /// The CPUs that were asked for.
        taskset: CpuSet,
        /// The machine's last CPU.
        last: usize,
    },
    /// The host does not give what the run needs beside others.
    #[error(
        "{0}; make fewer runs at the same time (--jobs), or raise vm.max_map_count and what `ulimit -v` shows"
    )]
    Host(HostFailure),
}

impl SimError {
    /// Returns whether it is what a compiler says of a scheduler's source: lines, each with its place.
    pub fn is_of_source(&self) -> bool {
        matches!(
            self,
            SimError::Scheduler(SchedulerError::Select(SelectError::Source(_)))
        )
    }
}
