//! Workloads as real programs: real threads, pipes, sockets, locks and yields in the running kernel.
//!
//! There is one program, and it runs every workload: an interpreter that carries out the [`Action`]s of
//! `schedlab-workload` with system calls. The simulator and the kernel thus execute the same behaviours with
//! the same parameters, and report the same score.
//!
//! The counterparts:
//! - a task is a thread; tasks of one address space are threads of one process, and each address space is a
//!   process of its own, forked from the caller;
//! - a pipe is a pipe, a socket one direction of a TCP connection over loopback without Nagle's delay;
//! - a pipe of another size than the usual one stands for a bounded queue, and a semaphore bounds it, since the kernel
//!   rounds sizes up to pages; so it is with a socket's buffer below 4 KB;
//! - a listening socket is a pair of datagram sockets, which wake one of those who wait, as `accept()` does;
//! - mutexes, condition variables, barriers and semaphores are glibc's, process-shared; a user-level lock is
//!   a test-and-set word; suspend and notify are a condition variable with a count;
//! - `Compute` burns CPU time of its thread ([`load`]); what the simulator charges for system calls is
//!   charged here by the kernel itself.
//!
//! Every run ends: when all tasks have exited, when the workload's duration is over, or at the time limit.
//! An action that has not ended by then does not count, as in the simulator, however late its thread notices.
//! Then the processes exit, whatever their threads wait for; should the caller die, the kernel kills them.
//!
//! [`Action`]: schedlab_workload::Action

pub mod load;
mod objects;
pub mod original;
mod process;
mod sys;
mod thread;

use std::time::Duration;

use schedlab_workload::{Counters, Part, Score, Workload, WorkloadError};

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
    /// Notes for the user ([`Workload::notes`]).
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

/// Returns the number of CPUs of this machine, as workloads count them.
pub fn nr_cpus() -> usize {
    sys::nr_cpus()
}

/// Returns the number of CPUs on which a run's tasks are, unless a file's CPU lists name others: `taskset` and
/// containers limit them.
pub fn nr_allowed_cpus() -> usize {
    sys::allowed_cpus().len()
}

/// Returns the workload that `text` asks for, as large as the CPUs on which its tasks will be.
///
/// # Errors
/// As [`Workload::parse`].
pub fn parse(text: &str) -> Result<Workload, WorkloadError> {
    Workload::parse_on(text, &sys::allowed_cpus())
}

/// Runs the workload that `text` asks for (`chat:rooms=1`, `file.json` …) with real threads.
///
/// The caller's process is forked, so call it where no other thread holds a lock that the children could
/// need (they allocate memory and start threads, nothing else of the caller's).
///
/// # Errors
/// If there is no such workload, or the system refuses what it needs (threads, files, priorities).
pub fn run(text: &str, options: &Options) -> Result<Report, ProgramError> {
    let workload = parse(text)?;
    run_workload(workload, options, None)
}

/// Returns whether a workload has a real program, without running it.
///
/// # Errors
/// It has none.
pub fn check(workload: &Workload) -> Result<(), ProgramError> {
    process::check(workload)
}

/// Runs a workload that was built already; see [`run`]. `waiting` is called now and then while it runs; without it
/// the caller sleeps until there is something to do.
///
/// # Errors
/// If the system refuses what the workload needs.
pub fn run_workload(
    workload: Workload,
    options: &Options,
    waiting: Option<&mut dyn FnMut()>,
) -> Result<Report, ProgramError> {
    process::run(workload, options, waiting)
}
