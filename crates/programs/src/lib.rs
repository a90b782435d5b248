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
//! - a cgroup is one of cgroup v2, that threads join one by one;
//! - `Compute` burns CPU time of its thread ([`load`]); what the simulator charges for system calls is
//!   charged here by the kernel itself.
//!
//! Every run ends: when all tasks have exited, when the workload's duration is over, or at the time limit.
//! An action that has not ended by then does not count, as in the simulator, however late its thread notices.
//! Then the processes exit, whatever their threads wait for; should the caller die, the kernel kills them.
//!
//! [`Action`]: schedlab_workload::Action

mod cgroups;
pub mod load;
mod objects;
pub mod original;
mod process;
mod report;
mod sys;
mod thread;

pub use report::{End, Options, ProgramError, Report};
use schedlab_workload::{Workload, WorkloadError};

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
