//! Who schedules: a policy by name or path, or the virtual kernel's own baseline.

use schedlab_engine::policy::{Policy, Probes};
use schedlab_engine::{ExitInfo, RunEnd, Scenario, WorkloadFailure};
use schedlab_machine::CacheModel;
use schedlab_trace::{Instant, Recorder, TaskId};
use schedlab_workload::Counters;

use crate::Scheduler;
use crate::baseline::NoPolicy;

/// The virtual kernel's own scheduler.
const BASELINE: &str = "eevdf";

/// A scheduler that can be asked for by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchedulerInfo {
    /// Name.
    pub name: String,
    /// One line for people.
    pub summary: String,
    /// What it takes.
    pub options: Vec<OptionInfo>,
}

/// An option of a scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionInfo {
    /// Name.
    pub name: String,
    /// Its value when it is not given.
    pub default: String,
    /// What values it takes.
    pub values: String,
    /// What it does.
    pub doc: Option<String>,
}

/// Every scheduler that has a name, in alphabetical order.
pub fn schedulers() -> Vec<SchedulerInfo> {
    vec![SchedulerInfo {
        name: BASELINE.to_owned(),
        summary: "EEVDF, the baseline: Linux's own algorithm in its simplest honest form"
            .to_owned(),
        options: Vec::new(),
    }]
}

/// Why a scheduler cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// There is none of this name.
    #[error("unknown scheduler `{name}`; there are: {known}, or the path of a .bpf.c file")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// It takes no options.
    #[error("scheduler `{name}` takes no options")]
    NoOptions {
        /// Its name.
        name: String,
    },
}

/// A scheduler that is ready to run.
pub(crate) enum Loaded {
    Baseline,
}

/// What a run left behind, whatever the policy was.
pub(crate) struct Ended<R> {
    pub(crate) exit: ExitInfo,
    pub(crate) failure: Option<WorkloadFailure>,
    pub(crate) end: Instant,
    pub(crate) begun: Instant,
    pub(crate) makespan: Option<Instant>,
    pub(crate) work: u64,
    pub(crate) counters: Counters,
    pub(crate) probes: Vec<Probes>,
    pub(crate) cache: CacheModel,
    pub(crate) unfinished: Vec<TaskId>,
    pub(crate) recorder: R,
}

/// Finds and prepares a scheduler for a machine with `nr_cpus` CPUs.
pub(crate) fn load(scheduler: &Scheduler, _nr_cpus: usize) -> Result<Loaded, SchedulerError> {
    let Scheduler { name, options } = scheduler;
    if name == BASELINE {
        return if options.is_empty() {
            Ok(Loaded::Baseline)
        } else {
            Err(SchedulerError::NoOptions { name: name.clone() })
        };
    }
    let known: Vec<_> = schedulers().into_iter().map(|known| known.name).collect();
    Err(SchedulerError::Unknown {
        name: name.clone(),
        known: known.join(", "),
    })
}

impl Loaded {
    pub(crate) fn is_baseline(&self) -> bool {
        matches!(self, Loaded::Baseline)
    }

    /// The watchdog's time-out in ms; 0 for the kernel's default.
    pub(crate) fn timeout_ms(&self) -> u32 {
        match self {
            Loaded::Baseline => 0,
        }
    }

    pub(crate) fn run<R: Recorder>(self, scenario: Scenario, recorder: R) -> Ended<R> {
        match self {
            Loaded::Baseline => run(scenario, NoPolicy::new(), recorder),
        }
    }
}

fn run<P: Policy, R: Recorder>(scenario: Scenario, policy: P, recorder: R) -> Ended<R> {
    let RunEnd {
        exit,
        failure,
        end,
        begun,
        makespan,
        work,
        counters,
        probes,
        cache,
        unfinished,
        recorder,
        ..
    } = schedlab_engine::run(scenario, policy, recorder);
    Ended {
        exit,
        failure,
        end,
        begun,
        makespan,
        work,
        counters,
        probes,
        cache,
        unfinished,
        recorder,
    }
}
