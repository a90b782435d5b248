//! Runs an rt-app thread: `thread_body()`, `run()` and `run_event()` of src/rt-app.c as a state machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use schedlab_trace::{CpuSet, Duration, Instant};

use crate::builder::Placement;
use crate::seed::{drawn, drawn_below};
use crate::{
    Action, Behaviour, CgroupId, Context, Counters, ObjectId, SchedClass, TaskSpec, Touch,
};

/// A timer that has not been used yet.
pub(super) const UNSET: u64 = u64::MAX;
/// Longer than any run, and so short that sums of two of them are still times: 73 years.
pub(super) const FOREVER: Duration = Duration::from_ns(1 << 61);
/// An endless `run` computes a second at a time (loadwait()).
const SPIN_STEP: Duration = Duration::from_secs(1);
/// The loads that `runtime` strings together until its time is over.
const RUNTIME_STEP: Duration = Duration::from_us(32);
/// Forks of one task after which rt-app gives up (FORKS_LIMIT).
pub(super) const FORKS_MAX: u32 = 1_024;
/// Counts threads that came to it.
pub(super) const FORK_LIMIT_REACHED: &str = "rtapp.fork_limit_reached";
/// rt-app is one process.
const ADDRESS_SPACE: u32 = 0;

/// The data that all threads of a file share.
pub(super) struct Shared {
    pub programs: Vec<Program>,
    /// When the timers without "unique" in their name fire next, in ns; [`UNSET`] before their first use.
    pub timers: Vec<AtomicU64>,
    /// How often each task was forked.
    pub forks: Vec<AtomicU32>,
    /// Threads created so far.
    pub created: AtomicU32,
    pub cumulative_slack: bool,
    /// By how much run times vary.
    pub jitter_pct: u64,
    /// Whether a task or a phase names a cgroup: then each thread goes back to the root before it ends.
    pub has_cgroups: bool,
    pub placement: Placement,
    /// Whether the command line overrides the file.
    pub pin_given: bool,
    pub nice_given: bool,
    pub class_given: bool,
}

/// A task of the file, ready to run.
pub(super) struct Program {
    pub name: String,
    pub delay: Duration,
    /// Longest that a thread begins later than that.
    pub offset: Duration,
    /// `None` = for ever.
    pub loops: Option<u64>,
    pub class: SchedClass,
    pub nice: i8,
    /// The cgroup that a thread joins after its delay.
    pub cgroup: Option<CgroupId>,
    /// Number of timers of each thread's own.
    pub timers: usize,
    pub phases: Vec<ProgramPhase>,
}

pub(super) struct ProgramPhase {
    /// `None` = for ever.
    pub loops: Option<u64>,
    /// Class and nice level that the phase begins with; `None` = as they are.
    pub sched: Option<(SchedClass, i8)>,
    /// `None` = those that the thread began with.
    pub cpus: Option<CpuSet>,
    /// The cgroup that it joins; `None` = it stays where it is.
    pub cgroup: Option<CgroupId>,
    pub ops: Vec<Op>,
}

/// An event with its objects.
#[derive(Clone, Copy)]
pub(super) enum Op {
    Run(Duration),
    /// Computes for ever.
    Spin,
    Runtime(Duration),
    Sleep(Duration),
    Timer {
        slot: TimerSlot,
        period: Duration,
        absolute: bool,
    },
    Suspend {
        condition: ObjectId,
        mutex: ObjectId,
    },
    Resume {
        condition: ObjectId,
        mutex: ObjectId,
    },
    Lock(ObjectId),
    Unlock(ObjectId),
    Wait {
        condition: ObjectId,
        mutex: ObjectId,
    },
    /// Signals, then waits: the mutex is held already.
    Sync {
        condition: ObjectId,
        mutex: ObjectId,
    },
    Signal(ObjectId),
    Broadcast(ObjectId),
    Barrier(ObjectId),
    Post(ObjectId),
    Acquire(ObjectId),
    Touch(Touch),
    /// Again and again.
    TouchForEver(Touch),
    /// `None` = for ever.
    Syscalls(Option<u32>),
    Yield,
    Fork(usize),
}

#[derive(Clone, Copy)]
pub(super) enum TimerSlot {
    Own(usize),
    Shared(usize),
}

/// The data of a forked thread.
pub(super) struct Fork {
    /// How often its task had been forked before.
    number: u32,
    /// Where the thread that forks it may run; `None` = anywhere.
    cpus: Option<CpuSet>,
}

impl Shared {
    /// Returns a new thread of `program`.
    pub fn spawn(shared: &Arc<Shared>, program: usize, fork: Option<Fork>) -> TaskSpec {
        let number = shared.created.fetch_add(1, Relaxed) as usize;
        let task = &shared.programs[program];
        let comm = match &fork {
            None => format!("{}-{number}", task.name),
            Some(fork) => format!("{}-{number}-{:04}", task.name, fork.number),
        };
        let is_forked = fork.is_some();
        // Every thread inherits the CPUs of the one that creates it (create_thread() sets none).
        let inherited = fork.and_then(|fork| fork.cpus);
        // Model: what the first phase changes at once holds from the start.
        let first = task.phases[0].sched;
        let (class, nice) = match first {
            Some((class, nice)) if has_nice(class) => (class, nice),
            Some((class, _)) => (class, task.nice),
            None => (task.class, task.nice),
        };
        let mut thread = Thread {
            shared: Arc::clone(shared),
            program,
            is_forked,
            first: Instant::ZERO,
            comm: comm.clone(),
            phase: 0,
            op: 0,
            sub: 0,
            phase_loops: 0,
            thread_loops: 0,
            step: Step::Delay,
            timers: vec![UNSET; task.timers],
            began: Instant::ZERO,
            fires: Instant::ZERO,
            iteration: Iteration::default(),
            stats: Stats::default(),
            class,
            nice,
            cgroup: None,
            cpus: task.phases[0].cpus.as_ref().or(inherited.as_ref()).cloned(),
            inherited,
            fork_limit_reached: false,
        };
        if shared.class_given {
            thread.class = shared.placement.class;
        }
        if shared.nice_given {
            thread.nice = shared.placement.nice(number);
        }
        TaskSpec {
            comm,
            nice: thread.nice,
            class: thread.class,
            affinity: match shared.pin_given {
                true => shared.placement.cpus(number),
                false => thread.cpus.clone(),
            },
            address_space: Some(ADDRESS_SPACE),
            start: Instant::ZERO,
            // Its loads need no memory, and what it goes over is touched where its events say so.
            working_set_bytes: 0,
            behaviour: Box::new(thread),
        }
    }

    fn timer(&self, own: &[u64], slot: TimerSlot) -> u64 {
        match slot {
            TimerSlot::Own(at) => own[at],
            TimerSlot::Shared(at) => self.timers[at].load(Relaxed),
        }
    }
}

/// Returns whether a nice level means anything to a class (`__set_thread_sched_other_attrs()` is called).
fn has_nice(class: SchedClass) -> bool {
    matches!(class, SchedClass::Normal | SchedClass::Batch)
}

struct Thread {
    shared: Arc<Shared>,
    program: usize,
    is_forked: bool,
    /// When it begins; its timers count from then on.
    first: Instant,
    comm: String,
    phase: usize,
    op: usize,
    /// How far the current event has come.
    sub: u32,
    phase_loops: u64,
    thread_loops: u64,
    step: Step,
    /// When the thread's own timers fire next, in ns.
    timers: Vec<u64>,
    /// When the current run event began.
    began: Instant,
    /// When the timer fires that the thread sleeps for.
    fires: Instant,
    iteration: Iteration,
    stats: Stats,
    class: SchedClass,
    nice: i8,
    /// The cgroup that it has joined last.
    cgroup: Option<CgroupId>,
    /// Where it may run; `None` = anywhere.
    cpus: Option<CpuSet>,
    /// Where it may run in phases that do not say so (set_thread_affinity()).
    inherited: Option<CpuSet>,
    fork_limit_reached: bool,
}

enum Step {
    Delay,
    /// It joins its task's cgroup.
    Join,
    /// A phase iteration begins, if any is left.
    Iterate,
    Cgroup,
    Class,
    Nice,
    Cpus,
    Event,
    Done,
    /// It goes back to the root of the cgroups (`reset_thread_taskgroup()`).
    Leave,
    Exit,
}

/// The measurements of one iteration of a phase.
#[derive(Default)]
struct Iteration {
    start: Instant,
    run_ns: u64,
    slack_ns: Option<i64>,
    wakeup_latency_ns: u64,
}

/// Sums over all iterations.
#[derive(Default)]
struct Stats {
    iterations: u64,
    run_ns: u64,
    period_ns: u64,
    slack_ns: i64,
    slack_ns_min: i64,
    with_slack: u64,
    wakeup_latency_ns: u64,
}

impl Behaviour for Thread {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        let shared = Arc::clone(&self.shared);
        let program = &shared.programs[self.program];
        loop {
            let phase = &program.phases[self.phase];
            match self.step {
                Step::Delay => {
                    self.step = Step::Join;
                    self.first = Instant::ZERO + program.delay;
                    if !self.is_forked {
                        self.first += drawn_below(program.offset, context.rng);
                    }
                    if self.first > Instant::ZERO {
                        return Action::SleepUntil(self.first);
                    }
                }
                Step::Join => {
                    self.step = Step::Iterate;
                    if let Some(cgroup) = program.cgroup {
                        self.cgroup = Some(cgroup);
                        return Action::JoinCgroup(cgroup);
                    }
                }
                Step::Iterate if Some(self.thread_loops) == program.loops => {
                    self.step = Step::Leave;
                }
                Step::Iterate => self.step = Step::Cgroup,
                // Model: rt-app sets the class first. What a group rules out with a class is refused before.
                Step::Cgroup => {
                    self.step = Step::Class;
                    if let Some(cgroup) = phase.cgroup.filter(|_| phase.cgroup != self.cgroup) {
                        self.cgroup = Some(cgroup);
                        return Action::JoinCgroup(cgroup);
                    }
                }
                Step::Class => {
                    self.step = Step::Nice;
                    let class = phase.sched.map(|(class, _)| class);
                    if let Some(class) = class.filter(|&class| class != self.class)
                        && !shared.class_given
                    {
                        self.class = class;
                        return Action::SetClass(class);
                    }
                }
                Step::Nice => {
                    self.step = Step::Cpus;
                    let sched = phase.sched.filter(|&(class, _)| has_nice(class));
                    if let Some((_, nice)) = sched
                        && nice != self.nice
                        && !shared.nice_given
                    {
                        self.nice = nice;
                        return Action::SetNice(nice);
                    }
                }
                Step::Cpus => {
                    self.step = Step::Event;
                    self.op = 0;
                    self.sub = 0;
                    let cpus = phase.cpus.as_ref().or(self.inherited.as_ref());
                    if cpus != self.cpus.as_ref() && !shared.pin_given {
                        self.cpus = cpus.cloned();
                        let all = || CpuSet::all(shared.placement.nr_cpus());
                        return Action::SetAffinity(self.cpus.clone().unwrap_or_else(all));
                    }
                }
                Step::Event => {
                    let Some(&op) = phase.ops.get(self.op) else {
                        self.step = Step::Done;
                        return Action::Work(1);
                    };
                    let sub = self.sub;
                    // An endless loop comes to the end of any counter.
                    self.sub = self.sub.saturating_add(1);
                    if (self.op, sub) == (0, 0) {
                        // Where it may run is set by now, and it runs there.
                        self.iteration = Iteration {
                            start: context.now,
                            ..Iteration::default()
                        };
                    }
                    if let Some(action) = self.event(op, sub, context, &shared) {
                        return action;
                    }
                    // rt-app ends with all its threads (exit()).
                    if self.fork_limit_reached {
                        self.step = Step::Exit;
                    }
                    self.op += 1;
                    self.sub = 0;
                }
                Step::Done => {
                    self.stats.add(&self.iteration, context.now);
                    self.step = Step::Iterate;
                    self.phase_loops += 1;
                    if Some(self.phase_loops) == phase.loops {
                        self.phase_loops = 0;
                        self.phase += 1;
                        if self.phase == program.phases.len() {
                            self.phase = 0;
                            self.thread_loops += 1;
                        }
                    }
                }
                Step::Leave => {
                    self.step = Step::Exit;
                    if shared.has_cgroups {
                        return Action::JoinCgroup(CgroupId::ROOT);
                    }
                }
                Step::Exit => return Action::Exit,
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        let name = |what: &str| format!("rtapp.{}.{what}", self.comm);
        let stats = &self.stats;
        counters.add(name("iterations"), stats.iterations);
        if self.fork_limit_reached {
            counters.add(FORK_LIMIT_REACHED, 1);
        }
        if stats.iterations == 0 {
            return;
        }
        counters.add(name("run_ns_sum"), stats.run_ns);
        counters.add(name("period_ns_sum"), stats.period_ns);
        for (mean, sum) in [
            ("run_ns_mean", "run_ns_sum"),
            ("period_ns_mean", "period_ns_sum"),
        ] {
            counters.ratio(name(mean), name(sum), name("iterations"));
        }
        if stats.with_slack > 0 {
            counters.add(name("timed_iterations"), stats.with_slack);
            counters.add_signed(name("slack_ns_sum"), stats.slack_ns);
            counters.min(name("slack_ns_min"), stats.slack_ns_min);
            counters.add(name("wakeup_latency_ns_sum"), stats.wakeup_latency_ns);
            for (mean, sum) in [
                ("slack_ns_mean", "slack_ns_sum"),
                ("wakeup_latency_ns_mean", "wakeup_latency_ns_sum"),
            ] {
                counters.ratio(name(mean), name(sum), name("timed_iterations"));
            }
        }
    }
}

impl Thread {
    /// Returns the `sub`-th action of an event; `None` when it is over.
    fn event(
        &mut self,
        op: Op,
        sub: u32,
        context: &mut Context<'_>,
        shared: &Arc<Shared>,
    ) -> Option<Action> {
        let now = context.now;
        match op {
            Op::Run(time) => {
                if sub == 0 && time > Duration::ZERO {
                    self.began = now;
                    return Some(Action::Compute(drawn(time, shared.jitter_pct, context.rng)));
                }
                if sub > 0 {
                    self.iteration.run_ns += now.since(self.began).ns();
                }
                None
            }
            Op::Runtime(time) => {
                if sub == 0 {
                    self.began = now;
                }
                // Wall-clock time, preemption included, as rt-app measures it.
                let passed = now.since(self.began);
                if sub == 0 || passed < time {
                    self.sub = 1;
                    return Some(Action::Compute(RUNTIME_STEP));
                }
                self.iteration.run_ns += passed.ns();
                None
            }
            Op::Timer {
                slot,
                period,
                absolute,
            } => self.timer(sub, now, shared, (slot, period, absolute)),
            Op::Sync { condition, mutex } => match sub {
                0 => Some(Action::Signal(condition)),
                1 => Some(Action::Wait { condition, mutex }),
                _ => None,
            },
            Op::Suspend { condition, mutex } => match sub {
                0 => Some(Action::Lock(mutex)),
                1 => Some(Action::Wait { condition, mutex }),
                2 => Some(Action::Unlock(mutex)),
                _ => None,
            },
            Op::Resume { condition, mutex } => match sub {
                0 => Some(Action::Lock(mutex)),
                1 => Some(Action::Broadcast(condition)),
                2 => Some(Action::Unlock(mutex)),
                _ => None,
            },
            Op::Spin => Some(Action::Compute(SPIN_STEP)),
            Op::TouchForEver(touch) => Some(Action::Touch(touch)),
            Op::Syscalls(calls) => calls
                .is_none_or(|calls| sub < calls)
                .then_some(Action::Syscall),
            Op::Fork(program) if sub == 0 => {
                let number = shared.forks[program].fetch_add(1, Relaxed);
                if number >= FORKS_MAX {
                    self.fork_limit_reached = true;
                    return None;
                }
                let cpus = self.cpus.clone();
                let forked = Shared::spawn(shared, program, Some(Fork { number, cpus }));
                Some(Action::Fork(Box::new(forked)))
            }
            _ if sub > 0 => None,
            Op::Sleep(time) => Some(Action::Sleep(time)),
            Op::Lock(mutex) => Some(Action::Lock(mutex)),
            Op::Unlock(mutex) => Some(Action::Unlock(mutex)),
            Op::Wait { condition, mutex } => Some(Action::Wait { condition, mutex }),
            Op::Signal(condition) => Some(Action::Signal(condition)),
            Op::Broadcast(condition) => Some(Action::Broadcast(condition)),
            Op::Barrier(barrier) => Some(Action::Barrier(barrier)),
            Op::Post(semaphore) => Some(Action::Post(semaphore)),
            Op::Acquire(semaphore) => Some(Action::Acquire(semaphore)),
            Op::Touch(touch) => (touch.count > 0).then_some(Action::Touch(touch)),
            Op::Yield => Some(Action::Yield),
            Op::Fork(_) => None,
        }
    }

    /// A timer's period begins where its last one ended; a relative timer that is late begins anew.
    fn timer(
        &mut self,
        sub: u32,
        now: Instant,
        shared: &Shared,
        (slot, period, absolute): (TimerSlot, Duration, bool),
    ) -> Option<Action> {
        if sub > 0 {
            // Not what the timer says now: others may have moved it on.
            self.iteration.wakeup_latency_ns += now.since(self.fires).ns();
            return None;
        }
        // Before its first use a timer stands at the thread's first instant.
        let last = match shared.timer(&self.timers, slot) {
            UNSET => self.first.ns(),
            last => last,
        };
        let next = Instant::from_ns(last.saturating_add(period.ns()).min(FOREVER.ns()));
        let slack_ns = next.since(now).ns() as i64 - now.since(next).ns() as i64;
        let earlier = match self.iteration.slack_ns {
            Some(earlier) if shared.cumulative_slack => earlier,
            _ => 0,
        };
        self.iteration.slack_ns = Some(earlier + slack_ns);
        let fires = now < next;
        let stands = if fires || absolute { next } else { now };
        match slot {
            TimerSlot::Own(at) => self.timers[at] = stands.ns(),
            TimerSlot::Shared(at) => shared.timers[at].store(stands.ns(), Relaxed),
        }
        if !fires {
            self.iteration.wakeup_latency_ns = 0;
            return None;
        }
        self.fires = next;
        Some(Action::SleepUntil(next))
    }
}

impl Stats {
    fn add(&mut self, iteration: &Iteration, now: Instant) {
        self.iterations += 1;
        self.run_ns += iteration.run_ns;
        self.period_ns += now.since(iteration.start).ns();
        self.wakeup_latency_ns += iteration.wakeup_latency_ns;
        if let Some(slack_ns) = iteration.slack_ns {
            self.slack_ns_min = match self.with_slack {
                0 => slack_ns,
                _ => self.slack_ns_min.min(slack_ns),
            };
            self.slack_ns += slack_ns;
            self.with_slack += 1;
        }
    }
}
