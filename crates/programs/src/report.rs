//! Defines a run's options, its report and its errors.

use std::time::Duration;

use schedlab_workload::{Counters, Part, Score, WorkloadError};

/// How a workload is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The scenario's seed: tasks draw from the same streams as in the simulator.
    pub seed: u64,
    /// The run is given up after this long.
    pub limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 1,
            limit: Duration::from_secs(600),
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name with which the workload was asked for.
    pub workload: String,
    /// Parameters in effect.
    pub params: Vec<(String, String)>,
    /// The meaning of the score.
    pub score: Score,
    /// The parts of a composed workload; empty for a single one.
    pub parts: Vec<Part>,
    /// Units of work that were done.
    pub work: u64,
    /// From the start to the end of the last task, set-up included, in ns of wall-clock time.
    pub makespan_ns: u64,
    /// The part that the score is about, in ns.
    pub measured_ns: u64,
    /// Threads that were ever there.
    pub tasks: u64,
    /// The counts of the behaviours.
    pub counters: Counters,
    /// Why it ended.
    pub end: End,
    /// Notes for the user ([`schedlab_workload::Workload::notes`]).
    pub notes: Vec<String>,
}

/// Why a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// Every task exited, or the workload's duration was over.
    Done,
    /// The limit was reached; these threads were still there, each with what it was doing.
    TimedOut(Vec<String>),
    /// The duration was over, and these threads had waited for what none of them would bring.
    Stuck {
        /// The threads, each with what it was doing.
        left: Vec<String>,
        /// Whether one of them waits for a mutex: no process could end it.
        at_mutex: bool,
    },
}

impl Report {
    /// Returns the score, where the run has one.
    pub fn score_value(&self) -> Option<f64> {
        let measured = schedlab_trace::Duration::from_ns(self.measured_ns);
        match self.parts.first() {
            // The score of the whole is its first part's.
            Some(part) => {
                let end = schedlab_trace::Instant::from_ns(self.makespan_ns);
                part.end(&mut self.counters.clone(), end).score
            }
            None => self.score.value(self.work, measured, &self.counters),
        }
    }

    /// Flat measures: the score under its own name and as `score`, times, work and counters.
    pub fn measures(&self) -> Vec<(String, f64)> {
        let mut measures = Vec::new();
        if let Some(value) = self.score_value() {
            measures.push((self.score.name.to_owned(), value));
            measures.push(("score".to_owned(), value));
        }
        measures.push(("makespan_ns".to_owned(), self.makespan_ns as f64));
        measures.push(("work".to_owned(), self.work as f64));
        measures.push(("tasks".to_owned(), self.tasks as f64));
        measures.extend(self.counters.measures());
        measures
    }
}

/// Why a workload could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The workload was not understood.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The system refused something.
    #[error("{doing}: {cause}{remedy}")]
    System {
        /// The failed operation.
        doing: String,
        /// The system's message. The error's text includes it, so it is no `source()`, which would be printed once
        /// more.
        cause: std::io::Error,
        /// The remedy, with a leading separator; may be empty.
        remedy: &'static str,
    },
    /// The requested run cannot be carried out as requested.
    #[error("{0}")]
    Refused(String),
    /// The run failed: a task could not do what its behaviour asked for, did not start or did not end.
    #[error("{0}")]
    Task(String),
}

impl ProgramError {
    /// Returns whether what was asked for is wrong, however often it is tried; otherwise a run failed.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Workload(_) | Self::Refused(_))
    }
}
