//! The facts about a run that its file of events holds besides the events.

use schedlab_report::{Measures, RunResult, Sources};
use schedlab_trace::Duration;
use schedlab_trace::check::Start;
use serde::{Deserialize, Serialize};

/// Version of the format. It grows when a column or a kind of row changes its meaning or goes away.
pub const FORMAT: u32 = 1;

/// The run that the events are of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct About {
    /// Version of the format.
    pub format: u32,
    /// Number of CPUs that events may name.
    pub nr_cpus: u32,
    /// Frequency of the machine's clock, in MHz, where it is known.
    pub clock_mhz: Option<u32>,
    /// Which events the world shows.
    pub shows: Sources,
    /// Whether every CPU idled and no task existed when the events begin.
    pub starts_idle: bool,
    /// How long a runnable task may wait for a CPU, in ns; `None`: any time.
    pub stall_bound_ns: Option<u64>,
    /// Events that were lost; measures of such a stream are not the run's.
    pub lost: u64,
    /// The run and how it ended, without measures.
    pub result: RunResult,
    /// Measures that come from other sources than the events.
    pub beside: Measures,
}

impl About {
    /// The start of the checks.
    pub fn start(&self) -> Start {
        match self.starts_idle {
            true => Start::Idle,
            false => Start::Unknown,
        }
    }

    /// The bound of waits, for the checks.
    pub fn stall_bound(&self) -> Duration {
        Duration::from_ns(self.stall_bound_ns.unwrap_or(u64::MAX))
    }

    /// Takes over a result; `of_events` has its measures computed from the events alone.
    #[must_use]
    pub fn of(self, result: &RunResult, of_events: &Measures) -> About {
        let mut beside = Measures::default();
        for (name, value) in result.measures.iter() {
            if of_events.get(name) != Some(value) {
                beside.set(name, value.clone());
            }
        }
        let mut result = result.clone();
        result.measures = Measures::default();
        result.histograms.clear();
        result.series.clear();
        About {
            result,
            beside,
            ..self
        }
    }
}
