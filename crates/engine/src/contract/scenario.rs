//! Holds the input of one run, and its results.

use schedlab_fiber::NoStack;
use schedlab_machine::{CacheModel, Machine};
use schedlab_trace::{CpuId, CpuSet, Duration, Instant, TaskId};
use schedlab_workload::{Counters, Workload};

use crate::contract::outcome::ExitInfo;
use crate::contract::this_cpu::Probes;
use crate::contract::version::KernelVersion;

/// Timer slack of a task that has not asked for another one (init/init_task.c).
const TIMER_SLACK_NS: u64 = 50_000;

/// The scheduler of the tasks that are not real-time tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NormalClass {
    /// The policy, through sched_ext.
    #[default]
    Ext,
    /// The engine's own baseline, a plain EEVDF ([`crate::paths::fair`]); the policy is not loaded.
    Fair,
}

/// The scheduler of real-time tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RtMode {
    /// The real-time class above sched_ext, as in a kernel.
    #[default]
    Kernel,
    /// The policy.
    Policy,
}

/// A CPU goes offline or comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hotplug {
    /// When.
    pub at: Instant,
    /// Which CPU; CPU 0 stays online.
    pub cpu: CpuId,
    /// Whether it comes online.
    pub online: bool,
}

/// Bounds that end a run which would never end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Actions a task may do in a row without any time passing.
    pub zero_time_actions: u32,
    /// Simulated time after which a workload that names no duration is given up.
    pub simulated: Duration,
    /// Tasks a workload may make.
    pub tasks: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            zero_time_actions: 100_000,
            // An hour, far beyond what any built-in workload takes.
            simulated: Duration::from_secs(3_600),
            // A quarter of the kernel's own bound (`PID_MAX_LIMIT`): all of them stay in memory.
            tasks: 1 << 20,
        }
    }
}

/// Everything that determines a run besides the policy's code.
pub struct Scenario {
    /// The machine.
    pub machine: Machine,
    /// The tasks.
    pub workload: Workload,
    /// CPUs of the tasks that choose none themselves, as under `taskset`; all if `None`.
    pub allowed: Option<CpuSet>,
    /// Seed of all randomness; each entity has its own stream.
    pub seed: u64,
    /// Which kernel's sched_ext.
    pub version: KernelVersion,
    /// Scheduler of normal tasks.
    pub normal_class: NormalClass,
    /// Scheduler of real-time tasks.
    pub rt_mode: RtMode,
    /// By how much timers may end the sleeps of normal tasks later, to end several by one interrupt
    /// (`task_struct::timer_slack_ns`). Real-time tasks have none, nor do timers of jiffies.
    pub timer_slack_ns: u64,
    /// Bounds.
    pub limits: Limits,
    /// CPUs that go and come, in any order.
    pub hotplug: Vec<Hotplug>,
    /// Whether the cache model counts by offset in the page, too ([`CacheModel::by_offset`]).
    pub count_by_offset: bool,
    /// A rule that the virtual kernel breaks on purpose.
    #[cfg(feature = "mutations")]
    pub mutation: Option<crate::Mutation>,
}

impl Scenario {
    /// A scenario with the defaults: Linux 7.2, the policy for normal tasks, real-time tasks above it.
    pub fn new(machine: Machine, workload: Workload, seed: u64) -> Self {
        Scenario {
            machine,
            workload,
            allowed: None,
            seed,
            version: KernelVersion::default(),
            normal_class: NormalClass::default(),
            rt_mode: RtMode::default(),
            timer_slack_ns: TIMER_SLACK_NS,
            limits: Limits::default(),
            hotplug: Vec::new(),
            count_by_offset: false,
            #[cfg(feature = "mutations")]
            mutation: None,
        }
    }
}

/// Why a workload could not be carried out. The fault is the workload's, not the policy's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkloadFailure {
    /// Every task waits for another one, and no duration ends that: the workload has none, or one of them waits for a
    /// mutex.
    #[error(
        "at {} ns nothing is left that could wake {}; check the workload's locks, pipes and barriers",
        .at.ns(),
        .blocked.join(", ")
    )]
    Deadlock {
        /// When the last event had been carried out.
        at: Instant,
        /// The blocked tasks (`name[pid] waits for …`), at most ten.
        blocked: Vec<String>,
    },
    /// A task does actions for ever without time passing.
    #[error(
        "{task} did {actions} actions in a row without any time passing (the last one: {last}); let it compute, sleep or block in its loop"
    )]
    ZeroTimeLoop {
        /// `name[pid]`.
        task: String,
        /// How many actions.
        actions: u32,
        /// The last action.
        last: String,
    },
    /// The workload names no duration and does not end by itself.
    #[error(
        "after {} s of simulated time {} left; give the workload a duration, let its tasks exit, or raise the limit on simulated time",
        .simulated.ns() / 1_000_000_000,
        schedlab_trace::counted(*.alive, "task")
    )]
    Endless {
        /// The limit ([`Limits::simulated`]).
        simulated: Duration,
        /// Tasks that have not exited.
        alive: u32,
    },
    /// The workload makes ever more tasks.
    #[error(
        "{task} forks more tasks than the {limit} that a run may have; bound the workload's forks, or raise the limit on tasks"
    )]
    TooManyTasks {
        /// `name[pid]` of the parent.
        task: String,
        /// The limit ([`Limits::tasks`]).
        limit: u32,
    },
    /// The policy does not take a task that the workload forks.
    #[error(
        "{task} could not be forked: ops.init_task() refused it with {errno}; the policy must take every task of the workload"
    )]
    ForkRefused {
        /// `name[pid]`.
        task: String,
        /// The negative errno.
        errno: i64,
    },
    /// An action does not fit the object it names.
    #[error("{task}: {action} on object {object}, which is {is}")]
    WrongObject {
        /// `name[pid]`.
        task: String,
        /// The action.
        action: &'static str,
        /// Index of the object.
        object: u32,
        /// The kind of object.
        is: String,
    },
    /// The kernel refuses a system call that the workload needs.
    #[error("{task} cannot {what}: {why}")]
    Refused {
        /// `name[pid]`.
        task: String,
        /// For what it asks.
        what: &'static str,
        /// Why not, and the remedy.
        why: String,
    },
    /// A task may run on no CPU.
    #[error("{task} may run on no CPU that is there (allowed: {allowed}; CPUs: 0-{last_cpu})")]
    NoCpu {
        /// `name[pid]`.
        task: String,
        /// Its CPU list.
        allowed: String,
        /// The machine's last CPU.
        last_cpu: u32,
    },
}

/// A resource that the host did not give. The fault is neither the policy's nor the workload's, and the same run may
/// succeed elsewhere or later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostFailure {
    /// Every virtual CPU needs a stack, and so does the path that loads and unloads the policy.
    #[error("no room for the stacks of {cpus} virtual CPUs: {why}")]
    Stacks {
        /// The run's CPUs.
        cpus: u32,
        /// The refused request. The message includes it, so it is no `source()`, which would be printed once more.
        why: NoStack,
    },
}

/// The results of a run.
#[derive(Debug)]
pub struct RunEnd<P, R> {
    /// How the policy ended; [`crate::ExitKind::Done`] where it behaved.
    pub exit: ExitInfo,
    /// The fault of the workload.
    pub failure: Option<WorkloadFailure>,
    /// The fault of the host; then nothing else here means anything.
    pub host_failure: Option<HostFailure>,
    /// The reason for which nothing more could happen before the workload's duration was over: no failure, but worth
    /// a note.
    pub stuck: Option<WorkloadFailure>,
    /// The last instant of the run.
    pub end: Instant,
    /// When the measured part began ([`schedlab_workload::Action::Begin`]), or the start.
    pub begun: Instant,
    /// When the last task exited, if all did.
    pub makespan: Option<Instant>,
    /// Units of work done.
    pub work: u64,
    /// The counts of the tasks' behaviours.
    pub counters: Counters,
    /// The counts of the policy's probes, per CPU.
    pub probes: Vec<Probes>,
    /// The caches with what they counted.
    pub cache: CacheModel,
    /// Context switches (another task, idle excluded, starts on a CPU).
    pub switches: u64,
    /// Events carried out.
    pub events: u64,
    /// Tasks that existed.
    pub tasks: u32,
    /// Tasks that did not exit, those to come included.
    pub unfinished: Vec<TaskId>,
    /// First tasks of the workload that its main thread had not created yet.
    pub to_come: u32,
    /// Performance levels that the policy has asked for (`scx_bpf_cpuperf_set()`), without effect.
    pub cpuperf_requests: u64,
    /// The policy.
    pub policy: P,
    /// The recorder.
    pub recorder: R,
}
