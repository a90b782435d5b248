//! The vocabulary between a workload and what carries it out.

use schedlab_trace::{CpuId, CpuSet, Duration, Instant};

use crate::{CgroupId, Counters};

/// Each task's own generator, split from the scenario's seed.
pub type Rng = rand_pcg::Pcg64Mcg;

/// An object that tasks share, by its place in [`crate::Workload::objects`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ObjectId(pub u32);

/// A shared object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectSpec {
    /// A pipe (or message queue) that holds `capacity` bytes.
    Pipe { capacity: u32 },
    /// One direction of a stream socket on loopback with a buffer of `capacity` bytes.
    Socket { capacity: u32 },
    /// One direction of a TCP connection on loopback whose users did not set `TCP_NODELAY`, with buffers of `capacity`
    /// bytes. The other direction is the next object after the first one, and the one before after the second.
    ///
    /// On a machine without a section `[tcp]`, and in a real program, it is a [`ObjectSpec::Socket`].
    Tcp { capacity: u32, is_first: bool },
    /// A listening socket, with messages of `capacity` bytes in all for the connections that nobody has accepted yet.
    /// Any number of tasks waits for one; each connection wakes one of them.
    Listener { capacity: u32 },
    /// A mutex that sleeps (futex).
    Mutex,
    /// A mutex whose owner inherits the priority of those who wait for it (`PTHREAD_PRIO_INHERIT`).
    PiMutex,
    /// A condition variable.
    Condition,
    /// A barrier for `parties` tasks.
    Barrier { parties: u32 },
    /// A counting semaphore.
    Semaphore { initial: u32 },
    /// A user-level word taken by test-and-set; taking it never enters the kernel.
    UserLock,
    /// Something one task waits on and others wake (a futex word).
    Event,
}

/// The next thing a task does. Costs of the system calls come from the machine profile.
pub enum Action {
    /// Runs for this much CPU time (on an otherwise unloaded core of the machine).
    Compute(Duration),
    /// `sched_yield()`.
    Yield,
    /// Sleeps for this long at least, as `nanosleep()` does: the kernel's timers may be late.
    Sleep(Duration),
    /// Sleeps until this instant at least (returns at once if it is past).
    SleepUntil(Instant),
    /// Waits this long for a device, whose interrupt ends the wait in time.
    Io(Duration),
    /// Writes one message of `bytes` to a pipe or socket; blocks while it does not fit.
    Write { to: ObjectId, bytes: u32 },
    /// Reads every complete message that is queued, at most `limit`; blocks while the queue is empty.
    /// Answered by [`Outcome::Messages`].
    Read { from: ObjectId, limit: u32 },
    /// Takes a mutex; blocks while it is held.
    Lock(ObjectId),
    /// Releases a mutex.
    Unlock(ObjectId),
    /// Tries to take a user-level lock; answered by [`Outcome::Taken`] or [`Outcome::Busy`].
    TryUserLock(ObjectId),
    /// Releases a user-level lock.
    UserUnlock(ObjectId),
    /// Releases `mutex`, waits for `condition`, takes `mutex` again.
    Wait {
        condition: ObjectId,
        mutex: ObjectId,
    },
    /// Wakes one waiter of a condition.
    Signal(ObjectId),
    /// Wakes all waiters of a condition.
    Broadcast(ObjectId),
    /// Waits at a barrier.
    Barrier(ObjectId),
    /// Increments a semaphore.
    Post(ObjectId),
    /// Decrements a semaphore; blocks while it is zero.
    Acquire(ObjectId),
    /// Blocks until a task does [`Action::Notify`] (an earlier one is not kept).
    Suspend(ObjectId),
    /// Wakes every task suspended on the object.
    Notify(ObjectId),
    /// Creates a task (fork or clone).
    Fork(Box<TaskSpec>),
    /// Replaces the task's program (`execve()`); it goes on as before.
    Exec,
    /// Changes the task's own nice level.
    SetNice(i8),
    /// Changes the task's own allowed CPUs.
    SetAffinity(CpuSet),
    /// Changes the task's own scheduling class.
    SetClass(SchedClass),
    /// Moves the task to a cgroup of [`crate::Workload::cgroups`] (a write to `cgroup.threads`). Tasks that it creates later begin there.
    JoinCgroup(CgroupId),
    /// Goes over memory of the task's own.
    Touch(Touch),
    /// Accesses so many pages for the first time, one after another: page faults that need no device.
    Fault(u32),
    /// A system call that returns at once and concerns no other task (a write to /dev/null).
    Syscall,
    /// `n` units of the workload's measure of work are done; takes no time.
    Work(u32),
    /// The measured part of the run begins (set-up is over): the score's time counts from here instead of
    /// from the start of the run; takes no time.
    Begin,
    /// The task ends.
    Exit,
}

/// How a task goes over a buffer of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// Which of its buffers, from 0; the same one has the same size each time.
    pub buffer: u32,
    /// The buffer's size.
    pub size_bytes: u64,
    /// Bytes that are gone over, from the beginning and again and again; of a chase the pointers that are followed.
    pub count: u64,
    /// The operation on the object.
    pub access: Access,
}

/// Accesses to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// One for each line.
    Lines,
    /// Whole words are stored, as `memset()` does.
    Fill,
    /// Each byte is read.
    Read,
    /// Each byte is written.
    Write,
    /// Pointers are followed, on from where the last chase ended; they lie `stride_bytes` apart and lead through the
    /// whole buffer, in order or in bit-reversed order (`random`).
    Chase {
        /// From one pointer to the next.
        stride_bytes: u64,
        /// Whether in bit-reversed order.
        random: bool,
    },
}

impl Touch {
    /// Pointers of a chase: as many as fit, rounded down to a power of two, as rt-app has them.
    pub fn pointers(size_bytes: u64, stride_bytes: u64) -> u64 {
        let fit = (size_bytes / stride_bytes.max(1)).max(1);
        1 << fit.ilog2()
    }
}

/// How the last action ended, for those that have a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// No information (also: the first call).
    Done,
    /// So many messages were read.
    Messages(u32),
    /// The user-level lock was free and is now held.
    Taken,
    /// Another task holds the user-level lock.
    Busy,
    /// The end of file: every writer of the pipe or socket has exited.
    Closed,
}

/// The state of the run that a behaviour may read.
pub struct Context<'a> {
    /// The time at which the last action ended.
    pub now: Instant,
    /// How it ended.
    pub outcome: Outcome,
    /// The CPU that the task runs on; it may be another one when the next action begins (`sched_getcpu()`).
    pub cpu: CpuId,
    /// The task's generator.
    pub rng: &'a mut Rng,
}

/// The behaviour of a task: one action after another.
pub trait Behaviour: Send {
    /// Returns the next action. After [`Action::Exit`] it is not asked again.
    fn next(&mut self, context: &mut Context<'_>) -> Action;

    /// Returns whether it creates tasks with an address space of their own, which real threads cannot.
    fn forks_processes(&self) -> bool {
        false
    }

    /// Returns whether the run does not wait for its end.
    fn is_background(&self) -> bool {
        false
    }

    /// Adds what it counted to the run's counters; asked once, when the task has ended or the run has.
    fn report(&self, counters: &mut Counters) {
        let _ = counters;
    }
}

/// Scheduling class and priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SchedClass {
    /// SCHED_OTHER.
    #[default]
    Normal,
    /// SCHED_BATCH.
    Batch,
    /// SCHED_IDLE.
    Idle,
    /// SCHED_FIFO, priority 1 to 99.
    Fifo(u8),
    /// SCHED_RR, priority 1 to 99.
    RoundRobin(u8),
    /// SCHED_DEADLINE.
    Deadline(Reservation),
}

/// The parameters of SCHED_DEADLINE: a task gets `runtime` within `deadline` of the start of each `period`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// CPU time in each period.
    pub runtime: Duration,
    /// Relative deadline.
    pub deadline: Duration,
    /// Period.
    pub period: Duration,
}

impl Reservation {
    /// Checks the parameters as `__checkparam_dl()` does (kernel/sched/deadline.c), with the default limits of periods
    /// (`sched_deadline_period_min_us`, `sched_deadline_period_max_us`); says in words what is wrong.
    ///
    /// # Errors
    /// Those for which sched_setattr(2) fails with EINVAL.
    pub fn check(&self) -> Result<(), &'static str> {
        let (min, max) = (Duration::from_us(100), Duration::from_us(1 << 22));
        if self.runtime.ns() < 1 << 10 {
            Err("the runtime must be at least 1024 ns")
        } else if self.deadline < self.runtime {
            Err("the deadline must not be shorter than the runtime")
        } else if self.period < self.deadline {
            Err("the period must not be shorter than the deadline")
        } else if self.period < min || self.period > max {
            Err("the period must be from 100 us to 4194304 us")
        } else {
            Ok(())
        }
    }

    /// Returns the share of a CPU that it reserves, in units of 1/2^20 (`to_ratio()`).
    pub fn bandwidth(&self) -> u64 {
        (self.runtime.ns() << 20) / self.period.ns().max(1)
    }
}

/// A task to be created.
pub struct TaskSpec {
    /// Name as in `/proc/PID/comm`, at most 15 bytes are shown.
    pub comm: String,
    /// Nice level, −20 to 19.
    pub nice: i8,
    /// Scheduling class.
    pub class: SchedClass,
    /// Allowed CPUs; all if `None`.
    pub affinity: Option<CpuSet>,
    /// Tasks with the same number are threads of one process and share a memory map; `None` = a kernel thread.
    pub address_space: Option<u32>,
    /// When it is created, for the tasks of [`crate::Workload::tasks`]; where a main thread creates them, no earlier than this.
    pub start: Instant,
    /// Bytes that must be in the cache for it to compute at full speed; what it goes over by [`Action::Touch`] is not
    /// among them.
    pub working_set_bytes: u64,
    /// The behaviour.
    pub behaviour: Box<dyn Behaviour>,
}

/// How a run of a workload is scored.
#[derive(Clone, PartialEq, Debug)]
pub struct Score {
    /// Name of the measure (`throughput_per_s`, `round_ns_mean` …).
    pub name: &'static str,
    /// Unit for people.
    pub unit: &'static str,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// How the number comes from the run.
    pub rule: ScoreRule,
}

impl Score {
    /// Returns the score of a run that did `work` units in `elapsed` ([`Action::Begin`], or the start, to the end of
    /// the last task); `None` where it would divide by zero.
    pub fn value(&self, work: u64, elapsed: Duration, counters: &Counters) -> Option<f64> {
        let (work, elapsed_ns) = (work as f64, elapsed.ns() as f64);
        match self.rule {
            ScoreRule::WorkPerHour => (elapsed_ns > 0.0).then(|| work * 3_600e9 / elapsed_ns),
            ScoreRule::Counter(name) => counters.number(name),
            ScoreRule::WorkPerSecond => (elapsed_ns > 0.0).then(|| work * 1e9 / elapsed_ns),
            ScoreRule::NsPerWork => (work > 0.0).then(|| elapsed_ns / work),
            ScoreRule::Makespan => Some(elapsed_ns),
        }
    }
}

/// How a score is computed. Time counts from [`Action::Begin`] where a workload has one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ScoreRule {
    /// Units of work ([`Action::Work`]) per second of the makespan.
    WorkPerSecond,
    /// … per hour.
    WorkPerHour,
    /// Makespan in ns divided by units of work.
    NsPerWork,
    /// Makespan in ns.
    Makespan,
    /// A ratio or a count that behaviours reported under this name; absent if they did not.
    Counter(&'static str),
}
