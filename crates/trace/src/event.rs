//! The event stream of a run and those who listen to it.
//!
//! Measures and invariants are computed from these events. The simulator emits
//! nearly all of them; the real kernel emits those that its tracepoints show
//! (`docs/events.md` lists both).

use std::any::Any;
use std::cell::RefCell;

use crate::{CpuId, CpuSet, Duration, Instant, LockId, TaskId};

/// The mode of a CPU. At every moment it is exactly one of these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum CpuMode {
    /// Nothing to run.
    Idle,
    /// The current task runs its own code.
    User,
    /// System calls and interrupts, without what belongs to the scheduler.
    Kernel,
    /// The scheduler: schedule(), wakeups, ticks, context switches.
    Sched,
    /// Spinning: on a lock of the scheduler, or for what another CPU is about to finish: a switch from the task to be
    /// woken, a kicked CPU's schedule(), an enqueue.
    Spin,
}

impl CpuMode {
    /// All modes, in the order of their discriminants.
    pub const ALL: [CpuMode; 5] = [
        CpuMode::Idle,
        CpuMode::User,
        CpuMode::Kernel,
        CpuMode::Sched,
        CpuMode::Spin,
    ];
}

/// In which state the previous task left the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PrevState {
    /// Still runnable: its slice ended or it was preempted.
    Preempted,
    /// Still runnable: it gave the CPU up by itself.
    Yielded,
    /// Waits for something.
    Blocked,
    /// Gone.
    Exited,
}

/// The data that a lock protects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockClass {
    /// A policy's own run queue.
    RunQueue,
    /// A dispatch queue (DSQ) of sched_ext.
    Dsq,
    /// The kernel's per-CPU `rq->lock`.
    KernelRq,
    /// Any other lock of a policy.
    Other,
    /// An object of the kernel that calls of tasks share: a socket, a device, a table of files.
    Shared,
}

/// On whose behalf a lock was taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockPath {
    /// schedule(): the choice of the next task.
    Schedule,
    /// A wakeup, a fork included.
    Wakeup,
    /// Ticks, timers, changes of attributes.
    Other,
}

/// How far a migration went.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MigrationReach {
    /// To an SMT sibling of the same core.
    Smt,
    /// Within the last-level cache.
    Llc,
    /// Within the NUMA node, to another last-level cache.
    Node,
    /// To another NUMA node.
    Remote,
}

/// One event; each happens on a CPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    /// The CPU changes what it spends its time on; every CPU starts in [`CpuMode::Idle`] at time 0.
    Mode(CpuMode),
    /// A task came into being.
    TaskNew {
        task: TaskId,
        parent: Option<TaskId>,
    },
    /// A task ended.
    TaskExit { task: TaskId },
    /// A sleeping (or new) task becomes runnable; `to` is the CPU it was placed on. It was decided `since`
    /// before (`sched_waking`): a CPU was chosen meanwhile, its run queue locked. Zero for a new task.
    Wakeup {
        task: TaskId,
        to: CpuId,
        since: Duration,
    },
    /// A runnable task's CPU changed.
    Migrate {
        task: TaskId,
        from: CpuId,
        to: CpuId,
        reach: MigrationReach,
    },
    /// The allowed CPUs of a task changed (see [`Listener::define_affinity`]).
    Affinity { task: TaskId },
    /// The nice level, the priority or the class of a task is about to change (see [`Listener::define_task`], which follows).
    Priority { task: TaskId },
    /// A task runs on this CPU already when the recording begins.
    Running { task: TaskId },
    /// The part of the run that counts begins: measures leave out what happened before. A stream without it counts from
    /// its start.
    Begin,
    /// schedule() was entered. `runnable` counts the runnable tasks of the machine, running ones
    /// included and idle tasks not, before the previous task is removed; `queue` the same for this CPU.
    ScheduleEnter { runnable: u32, queue: u32 },
    /// schedule() chose. Holds the cost of the choice: tasks examined, counter recalculations, and the wait for
    /// memory (the picoseconds since the entry by which accesses to the scheduler's lines exceeded hits).
    ScheduleExit {
        examined: u32,
        recalculations: u32,
        memory_wait_ps: u64,
    },
    /// The CPU changes tasks; `None` is the idle task. Not emitted where a task continues.
    Switch {
        prev: Option<TaskId>,
        prev_state: PrevState,
        next: Option<TaskId>,
    },
    /// A lock was found held and the CPU starts to spin for it.
    LockContended { lock: LockId, path: LockPath },
    /// A lock was taken after `waited` (zero if it was free).
    LockAcquired {
        lock: LockId,
        path: LockPath,
        waited: Duration,
        contended: bool,
        trylock: bool,
    },
    /// A try-lock found the lock held and gave up.
    LockTryFailed { lock: LockId, path: LockPath },
    /// A lock was released after `held`.
    LockReleased { lock: LockId, held: Duration },
    /// A reschedule interrupt was sent to another CPU.
    Ipi { to: CpuId },
    /// The periodic timer interrupt.
    Tick,
    /// A deadline task has used up its runtime, or given the rest of it away, or a task is stopped because its cgroup has no
    /// CPU time left (`cpu.max`): until [`Event::Replenished`] it waits for that, not for a CPU.
    Throttled { task: TaskId },
    /// A throttled task has runtime again.
    Replenished { task: TaskId },
    /// The deadline of a task that still had runtime left passed before it had got that.
    DeadlineMissed { task: TaskId },
    /// `n` units of the workload's own measure of work are done (messages delivered, rounds …).
    Work { task: TaskId, n: u32 },
    /// The run ended, normally or by ejection of the policy. Told for each CPU, at its own time; the run
    /// ended at the earliest.
    End,
}

/// The priority of tasks of the deadline class, above all real-time ones.
pub const DEADLINE_PRIORITY: u8 = 100;

/// The identity of a task. Emitted before its first event and when it changes.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskMeta {
    /// Name as in `/proc/PID/comm`.
    pub comm: String,
    /// Nice level, −20 to 19.
    pub nice: i8,
    /// CPUs the task may run on.
    pub affinity: CpuSet,
    /// Effective real-time priority, 1 (lowest) to 99; 0: not a real-time task; [`DEADLINE_PRIORITY`]: a deadline task.
    pub rt_priority: u8,
    /// Whether it is in `SCHED_IDLE`, which has less weight than any nice level.
    pub idle: bool,
}

impl TaskMeta {
    /// Returns whether it is a real-time or deadline task.
    pub fn is_realtime(&self) -> bool {
        self.rt_priority > 0
    }
}

/// Listens to a run. Listening never influences the run.
pub trait Listener {
    /// A task outside the workload, before it is defined: the main thread, which only creates others and waits
    /// for them, or one of the machine's background. No measure of tasks counts it.
    fn define_starter(&mut self, _task: TaskId) {}
    /// A task that events will name, and each time its nice level or real-time priority has changed.
    fn define_task(&mut self, _task: TaskId, _meta: &TaskMeta) {}
    /// A task's new set of allowed CPUs, before [`Event::Affinity`].
    fn define_affinity(&mut self, _task: TaskId, _allowed: &CpuSet) {}
    /// A lock that events will name.
    fn define_lock(&mut self, _lock: LockId, _name: &str, _class: LockClass) {}
    /// Something happened on `cpu` at `at`. Per CPU, times never decrease; between CPUs events may
    /// arrive up to one uninterrupted path out of order (a CPU runs ahead until it synchronises).
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event);
}

/// Receives the events of a simulation through a shared reference, since its CPUs take turns. A [`Listener`] in a
/// [`RefCell`] is one; a recorder of most events of most runs avoids the cell's check.
pub trait Recorder {
    /// As [`Listener::define_starter`].
    fn define_starter(&self, task: TaskId);
    /// As [`Listener::define_task`].
    fn define_task(&self, task: TaskId, meta: &TaskMeta);
    /// As [`Listener::define_affinity`].
    fn define_affinity(&self, task: TaskId, allowed: &CpuSet);
    /// As [`Listener::define_lock`].
    fn define_lock(&self, lock: LockId, name: &str, class: LockClass);
    /// As [`Listener::record`].
    fn record(&self, at: Instant, cpu: CpuId, event: Event);
    /// Shows what is kept of a task that events will soon name, for prefetching.
    fn show_kept(&self, _task: TaskId, _see: fn(&dyn Any)) {}
}

impl<L: Listener + ?Sized> Recorder for RefCell<L> {
    fn define_starter(&self, task: TaskId) {
        self.borrow_mut().define_starter(task);
    }
    fn define_task(&self, task: TaskId, meta: &TaskMeta) {
        self.borrow_mut().define_task(task, meta);
    }
    fn define_affinity(&self, task: TaskId, allowed: &CpuSet) {
        self.borrow_mut().define_affinity(task, allowed);
    }
    fn define_lock(&self, lock: LockId, name: &str, class: LockClass) {
        self.borrow_mut().define_lock(lock, name, class);
    }
    #[inline(always)]
    fn record(&self, at: Instant, cpu: CpuId, event: Event) {
        self.borrow_mut().record(at, cpu, event);
    }
}

/// Two recorders that hear the same run.
impl<A: Recorder, B: Recorder> Recorder for (A, B) {
    fn define_starter(&self, task: TaskId) {
        self.0.define_starter(task);
        self.1.define_starter(task);
    }
    fn define_task(&self, task: TaskId, meta: &TaskMeta) {
        self.0.define_task(task, meta);
        self.1.define_task(task, meta);
    }
    fn define_affinity(&self, task: TaskId, allowed: &CpuSet) {
        self.0.define_affinity(task, allowed);
        self.1.define_affinity(task, allowed);
    }
    fn define_lock(&self, lock: LockId, name: &str, class: LockClass) {
        self.0.define_lock(lock, name, class);
        self.1.define_lock(lock, name, class);
    }
    #[inline(always)]
    fn record(&self, at: Instant, cpu: CpuId, event: Event) {
        self.0.record(at, cpu, event);
        self.1.record(at, cpu, event);
    }
    fn show_kept(&self, task: TaskId, see: fn(&dyn Any)) {
        self.0.show_kept(task, see);
        self.1.show_kept(task, see);
    }
}

/// Listens to nothing.
impl Listener for () {
    #[inline(always)]
    fn record(&mut self, _: Instant, _: CpuId, _: Event) {}
}

/// Two listeners that hear the same run.
impl<A: Listener, B: Listener> Listener for (A, B) {
    fn define_starter(&mut self, task: TaskId) {
        self.0.define_starter(task);
        self.1.define_starter(task);
    }
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        self.0.define_task(task, meta);
        self.1.define_task(task, meta);
    }
    fn define_affinity(&mut self, task: TaskId, allowed: &CpuSet) {
        self.0.define_affinity(task, allowed);
        self.1.define_affinity(task, allowed);
    }
    fn define_lock(&mut self, lock: LockId, name: &str, class: LockClass) {
        self.0.define_lock(lock, name, class);
        self.1.define_lock(lock, name, class);
    }
    #[inline(always)]
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        self.0.record(at, cpu, event);
        self.1.record(at, cpu, event);
    }
}

impl<L: Listener + ?Sized> Listener for &mut L {
    fn define_starter(&mut self, task: TaskId) {
        (**self).define_starter(task);
    }
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        (**self).define_task(task, meta);
    }
    fn define_affinity(&mut self, task: TaskId, allowed: &CpuSet) {
        (**self).define_affinity(task, allowed);
    }
    fn define_lock(&mut self, lock: LockId, name: &str, class: LockClass) {
        (**self).define_lock(lock, name, class);
    }
    #[inline(always)]
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        (**self).record(at, cpu, event);
    }
}

/// A listener that may be absent.
impl<L: Listener> Listener for Option<L> {
    fn define_starter(&mut self, task: TaskId) {
        if let Some(listener) = self {
            listener.define_starter(task);
        }
    }
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        if let Some(listener) = self {
            listener.define_task(task, meta);
        }
    }
    fn define_affinity(&mut self, task: TaskId, allowed: &CpuSet) {
        if let Some(listener) = self {
            listener.define_affinity(task, allowed);
        }
    }
    fn define_lock(&mut self, lock: LockId, name: &str, class: LockClass) {
        if let Some(listener) = self {
            listener.define_lock(lock, name, class);
        }
    }
    #[inline(always)]
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        if let Some(listener) = self {
            listener.record(at, cpu, event);
        }
    }
}
