//! Measures from a run's events while it is under way. No event is kept.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elsa::FrozenVec;
use schedlab_trace::{
    CpuId, CpuMode, CpuSet, DEADLINE_PRIORITY, Duration, Event, Instant, LockClass, LockId,
    LockPath, MigrationReach, PrevState, Recorder, TaskId, TaskMeta,
};
use serde::{Deserialize, Serialize};

use crate::count::{add, count, raise};
use crate::histogram::Buckets;
use crate::inversions::Inversions;
use crate::task_stats::{Task, jain};
use crate::{Histogram, LockStats, Measures, Points, Timeline};

/// Which events the world behind a run can show. A measure whose events it cannot show is absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sources {
    /// [`Event::ScheduleEnter`] and [`Event::ScheduleExit`]. Where they are not shown, runnable tasks are counted at each
    /// [`Event::Switch`] from or to a task.
    pub schedule: bool,
    /// The tasks that a choice examined and recalculated, in [`Event::ScheduleExit`].
    pub examined: bool,
    /// The time that schedule() waited for memory, in [`Event::ScheduleExit`].
    pub memory: bool,
    /// Locks of the classes [`LockClass::RunQueue`] and [`LockClass::Dsq`].
    pub policy_locks: bool,
    /// Locks of the class [`LockClass::KernelRq`].
    pub kernel_locks: bool,
    /// [`Event::Mode`], all modes.
    pub modes: bool,
    /// [`Event::Switch`] distinguishes a yield from a preemption.
    pub yields: bool,
    /// Nice levels, real-time priorities and allowed CPUs.
    pub priorities: bool,
    /// [`Event::Throttled`], [`Event::Replenished`] and [`Event::DeadlineMissed`].
    pub deadlines: bool,
    /// [`Event::Migrate`].
    pub migrations: bool,
    /// [`Event::Ipi`].
    pub ipis: bool,
    /// [`Event::Work`].
    pub work: bool,
}

impl Sources {
    /// Everything, as the simulator shows it.
    pub const ALL: Sources = Sources {
        schedule: true,
        examined: true,
        memory: true,
        policy_locks: true,
        kernel_locks: true,
        modes: true,
        yields: true,
        priorities: true,
        deadlines: true,
        migrations: true,
        ipis: true,
        work: true,
    };
}

/// One CPU, in 64 bytes, so that its place follows from its number by a shift.
#[derive(Clone, Debug)]
struct Cpu {
    /// Until `since`.
    mode_ns: [Cell<u64>; CpuMode::ALL.len()],
    mode: Cell<CpuMode>,
    /// It has reported its own last moment, which may be after the run's end. That is `since` now.
    has_ended: Cell<bool>,
    since: Cell<Instant>,
    /// When it entered the schedule() that it is in, or [`Instant::NEVER`].
    schedule_entered: Cell<Instant>,
}

impl Cpu {
    fn new() -> Self {
        Cpu {
            mode_ns: Default::default(),
            mode: Cell::new(CpuMode::Idle),
            since: Cell::new(Instant::ZERO),
            schedule_entered: Cell::new(Instant::NEVER),
            has_ended: Cell::new(false),
        }
    }

    /// It spends its time on `mode` from `at` on.
    #[inline]
    fn change_mode(&self, at: Instant, mode: CpuMode) {
        let until_now = &self.mode_ns[self.mode.replace(mode) as usize];
        // All modes together come to no more than its latest time.
        add(until_now, at.since(self.since.replace(at)).ns());
    }
}

/// One lock, by the path that took it.
#[derive(Clone, Debug)]
struct Lock {
    class: Cell<LockClass>,
    /// On whose behalf it is held.
    holder: Cell<LockPath>,
    by_path: [LockStats; PATHS.len()],
}

impl Lock {
    /// Of the path that took it last.
    #[inline]
    fn held(&self) -> &LockStats {
        &self.by_path[self.holder.get() as usize]
    }
}

const PATHS: [(LockPath, &str); 3] = [
    (LockPath::Schedule, "schedule"),
    (LockPath::Wakeup, "wakeup"),
    (LockPath::Other, "other"),
];

/// Counts of schedule() calls and their costs.
#[derive(Clone, Debug, Default)]
struct Schedule {
    calls: u64,
    completed: u64,
    ns: u64,
    ns_max: u64,
    examined: u64,
    examined_max: u64,
    recalculations: u64,
    memory_wait_ps: u64,
    /// Σ |length of this CPU's queue · number of CPUs − machine-wide length|.
    deviation: u64,
}

#[derive(Clone, Debug, Default)]
struct Switches {
    /// A task starts on a CPU.
    starts: u64,
    voluntary: u64,
    involuntary: u64,
    yielded: u64,
    elsewhere: u64,
}

/// Computes every measure of a run from its events.
///
/// Hot: it hears each event of the simulation. Counters and sums are integers; floats appear only in
/// [`MetricsRecorder::measures`]. Of some twenty-five events of a switch all but four are changes of a CPU's mode, or of locks:
/// what is kept of those is in cells by itself.
#[derive(Clone)]
pub struct MetricsRecorder {
    sources: Sources,
    cpus: Vec<Cpu>,
    locks: FrozenVec<Box<Lock>>,
    choices: RefCell<Choices>,
    migrations: [Cell<u64>; REACHES.len()],
    ipis: Cell<u64>,
    ticks: Cell<u64>,
    work: Cell<u64>,
    /// The first thread that only creates tasks: it is in no count of tasks.
    starter: Cell<Option<TaskId>>,
    /// Further ones, of a real workload of several processes or of the machine's background, and whether there are any.
    has_other_starters: Cell<bool>,
    other_starters: RefCell<BTreeSet<TaskId>>,
    /// On whose queue each of these is while it is runnable, and how many are.
    starters_on: RefCell<BTreeMap<TaskId, CpuId>>,
    nr_starters_on: Cell<u32>,
    /// Since when things count.
    begin: Cell<Instant>,
    end: Cell<Option<Instant>>,
    /// When the event was that it heard last.
    heard: Cell<Instant>,
    /// Where others see how far the run is, in ns.
    passed: Option<Arc<AtomicU64>>,
}

/// The choices of schedule(), and the tasks that it chose from.
#[derive(Clone, Debug)]
struct Choices {
    nr_cpus: usize,
    tasks: Vec<Task>,
    /// Runnable tasks, running ones included; `None` where [`Event::ScheduleEnter`] tells it.
    runnable: Option<u64>,
    schedule: Schedule,
    switches: Switches,
    machine_queue: Histogram,
    cpu_queue: Histogram,
    /// For the first CPUs: the length of its queue · number of CPUs − machine-wide length.
    deviations: Vec<Timeline>,
    wakeup_latency: Histogram,
    wait_ns_max: u64,
    inversions: Inversions,
    deadlines: Deadlines,
}

/// The outcomes of deadline tasks.
#[derive(Clone, Debug, Default)]
struct Deadlines {
    /// There are some.
    any: bool,
    throttled: u64,
    missed: u64,
}

const REACHES: [(MigrationReach, &str); 4] = [
    (MigrationReach::Smt, "smt"),
    (MigrationReach::Llc, "llc"),
    (MigrationReach::Node, "node"),
    (MigrationReach::Remote, "remote"),
];

/// Latencies above this (17 minutes) fall into one bucket.
const LATENCY_NS_MAX: u64 = 1 << 40;
/// Number of CPUs whose queues are followed over time: more lines are not readable.
const TIMELINES_MAX: usize = 16;
/// Queues longer than this fall into one bucket.
const LENGTH_MAX: u64 = 1 << 20;

impl MetricsRecorder {
    /// For a run on `nr_cpus` CPUs in a world that shows `sources`.
    pub fn new(nr_cpus: usize, sources: Sources) -> Self {
        MetricsRecorder {
            sources,
            cpus: vec![Cpu::new(); nr_cpus],
            locks: FrozenVec::new(),
            choices: RefCell::new(Choices::new(nr_cpus, !sources.schedule)),
            migrations: Default::default(),
            ipis: Cell::new(0),
            ticks: Cell::new(0),
            work: Cell::new(0),
            starter: Cell::new(None),
            has_other_starters: Cell::new(false),
            other_starters: RefCell::default(),
            starters_on: RefCell::default(),
            nr_starters_on: Cell::new(0),
            begin: Cell::new(Instant::ZERO),
            end: Cell::new(None),
            heard: Cell::new(Instant::ZERO),
            passed: None,
        }
    }

    /// Returns the same; it also publishes now and then, to other threads, how much time of the run has passed, in
    /// ns: with each of the few timer ticks.
    pub fn telling(self, passed: Arc<AtomicU64>) -> Self {
        MetricsRecorder {
            passed: Some(passed),
            ..self
        }
    }

    #[inline]
    fn lock(&self, lock: LockId) -> &Lock {
        let defined = self.locks.get(lock.index());
        defined.expect("a lock is defined before its first event")
    }

    #[inline]
    fn is_starter(&self, task: TaskId) -> bool {
        self.starter.get() == Some(task)
            || (self.has_other_starters.get() && self.is_other_starter(task))
    }

    #[cold]
    fn is_other_starter(&self, task: TaskId) -> bool {
        self.other_starters.borrow().contains(&task)
    }

    /// Events before `at` do not count; the places of the tasks stay known.
    #[cold]
    fn begins(&self, at: Instant) {
        self.begin.set(at);
        for cpu in &self.cpus {
            cpu.mode_ns.iter().for_each(|ns| ns.set(0));
            cpu.since.set(cpu.since.get().max(at));
        }
        for lock in self.locks.iter() {
            lock.by_path.iter().for_each(LockStats::clear);
        }
        self.migrations.iter().for_each(|n| n.set(0));
        self.ipis.set(0);
        self.ticks.set(0);
        self.work.set(0);
        self.choices.borrow_mut().begins(at);
    }

    /// A starter is on the queue of a CPU, or can no longer run.
    #[cold]
    fn starter_is_on(&self, task: TaskId, cpu: Option<CpuId>) {
        let mut on = self.starters_on.borrow_mut();
        match cpu {
            Some(cpu) => on.insert(task, cpu),
            None => on.remove(&task),
        };
        self.nr_starters_on.set(on.len() as u32);
    }

    /// A switch from or to a starter, which is runnable, counts as one from or to no task.
    #[cold]
    fn starter_switches(
        &self,
        cpu: CpuId,
        prev: &mut Option<(TaskId, PrevState)>,
        next: &mut Option<TaskId>,
    ) {
        if let Some((task, state)) = prev.take_if(|(task, _)| self.is_starter(*task)) {
            let runnable = matches!(state, PrevState::Preempted | PrevState::Yielded);
            self.starter_is_on(task, runnable.then_some(cpu));
        }
        if let Some(task) = next.take_if(|task| self.is_starter(*task)) {
            self.starter_is_on(task, Some(cpu));
        }
    }

    /// Takes the starters out of the numbers of runnable tasks of the machine and of a CPU.
    #[cold]
    fn without_starters(&self, cpu: CpuId, runnable: u32, queue: u32) -> (u32, u32) {
        let on = self.starters_on.borrow();
        let here = on.values().filter(|on| **on == cpu).count() as u32;
        (
            runnable.saturating_sub(on.len() as u32),
            queue.saturating_sub(here),
        )
    }

    /// Which events the world shows.
    pub fn sources(&self) -> Sources {
        self.sources
    }

    /// Units of work done.
    pub fn work(&self) -> u64 {
        self.work.get()
    }

    /// Returns the end of the run: the time given to [`ended`](MetricsRecorder::ended), or of the earliest
    /// [`Event::End`]. Before the end: the time of the last event.
    pub fn end(&self) -> Instant {
        self.end.get().unwrap_or(self.heard.get())
    }

    /// Ends the run at `at`, though all of its CPUs may have reported events up to a little later.
    pub fn ended(&self, at: Instant) {
        self.end.set(Some(at));
    }

    /// Returns the machine-wide run-queue length at each schedule(), as [`Histogram::coarse`]; empty where the
    /// world does not show it.
    pub fn queue_histogram(&self) -> Buckets {
        self.choices.borrow().machine_queue.coarse()
    }

    /// Measures over time: by how much the queue of each of the first CPUs is longer than the mean of all queues.
    /// Empty where the world does not show it.
    pub fn series(&self) -> Vec<(String, Points)> {
        let nr_cpus = self.cpus.len() as f64;
        let choices = self.choices.borrow();
        let deviations = choices.deviations.iter();
        deviations
            .enumerate()
            .map(|(cpu, timeline)| {
                (
                    format!("runqueue.deviation.cpu{cpu}"),
                    timeline.points(nr_cpus),
                )
            })
            .filter(|(_, points)| !points.is_empty())
            .collect()
    }

    /// Returns all measures that follow from the events. `clock_mhz` turns times into cycles where it is known.
    pub fn measures(&self, clock_mhz: Option<u32>) -> Measures {
        let choices = self.choices.borrow();
        let mut measures = Measures::default();
        measures.int("end_ns", self.end().since(self.begin.get()).ns());
        if self.sources.work {
            measures.int("work", self.work());
        }
        if self.sources.schedule {
            choices.schedule_measures(&self.sources, clock_mhz, &mut measures);
        } else {
            let lengths = &choices.machine_queue;
            lengths.mean_and_max("runqueue.len", &mut measures);
        }
        measures.int("schedule.picked_elsewhere", choices.switches.elsewhere);
        if self.sources.priorities {
            measures.int("schedule.priority_inversions", choices.inversions.count());
        }
        if choices.deadlines.any && self.sources.deadlines {
            measures.int("deadline.throttled", choices.deadlines.throttled);
            measures.int("deadline.missed", choices.deadlines.missed);
        }
        self.lock_measures(&mut measures);
        self.switch_measures(&choices.switches, &mut measures);
        choices.wait_measures(self.end(), &mut measures);
        self.time_measures(&mut measures);
        measures
    }

    fn lock_measures(&self, measures: &mut Measures) {
        let shares = |lock: &Lock| lock.class.get() == LockClass::Shared;
        let groups: [(&str, bool, &[LockClass]); 3] = [
            (
                "lock.runqueue",
                self.sources.policy_locks,
                &[LockClass::RunQueue, LockClass::Dsq],
            ),
            ("lock.rq", self.sources.kernel_locks, &[LockClass::KernelRq]),
            (
                "lock.shared",
                self.locks.iter().any(shares),
                &[LockClass::Shared],
            ),
        ];
        for (name, shown, classes) in groups {
            if !shown {
                continue;
            }
            let by_path: [LockStats; PATHS.len()] = Default::default();
            let all = LockStats::default();
            for lock in self
                .locks
                .iter()
                .filter(|lock| classes.contains(&lock.class.get()))
            {
                for (sum, stats) in by_path.iter().zip(&lock.by_path) {
                    sum.add(stats);
                    all.add(stats);
                }
            }
            all.measures(name, measures);
            for (stats, (_, path)) in by_path.iter().zip(PATHS) {
                // Calls of tasks alone take what they share.
                if name != "lock.shared" && stats.acquisitions.get() + stats.try_failed.get() > 0 {
                    stats.measures(&format!("{name}.{path}"), measures);
                }
            }
        }
    }

    fn switch_measures(&self, switches: &Switches, measures: &mut Measures) {
        measures.int("switches.total", switches.starts);
        measures.int("switches.voluntary", switches.voluntary);
        measures.int("switches.involuntary", switches.involuntary);
        if self.sources.yields {
            measures.int("switches.yielded", switches.yielded);
        }
        if self.sources.migrations {
            measures.int(
                "migrations.total",
                self.migrations.iter().map(Cell::get).sum(),
            );
            for (n, (_, name)) in self.migrations.iter().zip(REACHES) {
                measures.int(format!("migrations.{name}"), n.get());
            }
        }
        if self.sources.ipis {
            measures.int("ipis", self.ipis.get());
        }
    }

    fn time_measures(&self, measures: &mut Measures) {
        if self.sources.modes {
            let mut ns = [0u64; CpuMode::ALL.len()];
            for cpu in &self.cpus {
                for (sum, part) in ns.iter_mut().zip(&cpu.mode_ns) {
                    *sum += part.get();
                }
                if !cpu.has_ended.get() {
                    ns[cpu.mode.get() as usize] += self.end().since(cpu.since.get()).ns();
                }
            }
            let all = ns.iter().sum();
            let of = |mode: CpuMode| ns[mode as usize];
            let sched = of(CpuMode::Sched) + of(CpuMode::Spin);
            measures.percent("cpu.idle_pct", of(CpuMode::Idle), all);
            measures.percent("cpu.user_pct", of(CpuMode::User), all);
            measures.percent("cpu.kernel_pct", of(CpuMode::Kernel), all);
            measures.percent("cpu.spin_pct", of(CpuMode::Spin), all);
            measures.percent(
                "sched.share_of_kernel_pct",
                sched,
                sched + of(CpuMode::Kernel),
            );
            measures.percent("sched.share_of_all_pct", sched, all);
            measures.int("ticks", self.ticks.get());
        }
        let end = self.end();
        let choices = self.choices.borrow();
        let services = choices.tasks.iter().filter_map(|task| {
            let mut task = *task;
            task.finish(end);
            task.service()
        });
        if let Some(index) = jain(services) {
            measures.float("fairness.jain", index);
        }
    }
}

impl Choices {
    fn new(nr_cpus: usize, counts_runnable: bool) -> Self {
        Choices {
            nr_cpus,
            tasks: Vec::new(),
            runnable: counts_runnable.then_some(0),
            schedule: Schedule::default(),
            switches: Switches::default(),
            machine_queue: Histogram::new(LENGTH_MAX),
            cpu_queue: Histogram::new(LENGTH_MAX),
            deviations: vec![Timeline::default(); nr_cpus.min(TIMELINES_MAX)],
            wakeup_latency: Histogram::new(LATENCY_NS_MAX),
            wait_ns_max: 0,
            inversions: Inversions::default(),
            deadlines: Deadlines::default(),
        }
    }

    #[inline]
    fn task(&mut self, task: TaskId) -> &mut Task {
        if task.index() >= self.tasks.len() {
            return self.new_task(task);
        }
        &mut self.tasks[task.index()]
    }

    #[cold]
    fn new_task(&mut self, task: TaskId) -> &mut Task {
        self.tasks.resize(task.index() + 1, Task::default());
        &mut self.tasks[task.index()]
    }

    /// As [`MetricsRecorder::begins`].
    fn begins(&mut self, at: Instant) {
        self.schedule = Schedule::default();
        self.switches = Switches::default();
        self.machine_queue = Histogram::new(LENGTH_MAX);
        self.cpu_queue = Histogram::new(LENGTH_MAX);
        self.wakeup_latency = Histogram::new(LATENCY_NS_MAX);
        self.wait_ns_max = 0;
        self.inversions.begins();
        self.deadlines.throttled = 0;
        self.deadlines.missed = 0;
        self.deviations.fill_with(Timeline::default);
        for task in &mut self.tasks {
            task.begin(at);
        }
    }

    /// A task is none any more that counts: it only creates others. Answers with the CPU that it ran on last, if it is
    /// runnable.
    #[cold]
    fn forget(&mut self, task: TaskId) -> Option<CpuId> {
        let known = std::mem::take(self.tasks.get_mut(task.index())?);
        if !known.is_runnable() {
            return None;
        }
        self.runnable = self.runnable.map(|n| n - 1);
        Some(known.last_cpu())
    }

    /// How many are runnable changes with the state of `task`, which `change` brings.
    #[inline]
    fn counting<T>(&mut self, task: TaskId, change: impl FnOnce(&mut Task) -> T) -> T {
        if self.runnable.is_none() {
            return change(self.task(task));
        }
        self.counting_runnable(task, change)
    }

    #[cold]
    fn counting_runnable<T>(&mut self, task: TaskId, change: impl FnOnce(&mut Task) -> T) -> T {
        let before = self.task(task).is_runnable();
        let answer = change(self.task(task));
        let after = self.task(task).is_runnable();
        if let Some(n) = &mut self.runnable {
            *n = *n + u64::from(after) - u64::from(before);
        }
        answer
    }

    fn switch(
        &mut self,
        at: Instant,
        cpu: CpuId,
        prev: Option<(TaskId, PrevState)>,
        next: Option<TaskId>,
    ) {
        if let Some(n) = self.runnable
            && (prev.is_some() || next.is_some())
        {
            self.machine_queue.record(n);
        }
        if let Some((prev, state)) = prev {
            let runnable = matches!(state, PrevState::Preempted | PrevState::Yielded);
            if runnable {
                count(&mut self.switches.involuntary);
                self.switches.yielded += u64::from(state == PrevState::Yielded);
            } else {
                count(&mut self.switches.voluntary);
            }
            self.counting(prev, |task| task.stop(at, runnable));
            if runnable && self.inversions.is_mixed() {
                self.inversions.waits(at, prev);
            }
        }
        if let Some(next) = next {
            if self.inversions.is_mixed() {
                self.inversions.starts(at, next, cpu);
            }
            count(&mut self.switches.starts);
            let start = self.counting(next, |task| task.start(at, cpu));
            self.switches.elsewhere += u64::from(start.elsewhere);
            raise(Cell::from_mut(&mut self.wait_ns_max), start.waited_ns);
            if let Some(ns) = start.wakeup_latency_ns {
                self.wakeup_latency.record(ns);
            }
        }
    }

    fn schedule_enter(&mut self, at: Instant, cpu: CpuId, runnable: u32, queue: u32) {
        count(&mut self.schedule.calls);
        self.machine_queue.record(u64::from(runnable));
        self.cpu_queue.record(u64::from(queue));
        let spread = u64::from(queue) * self.nr_cpus as u64;
        self.schedule.deviation += spread.abs_diff(u64::from(runnable));
        if let Some(timeline) = self.deviations.get_mut(cpu.index()) {
            timeline.record(at, spread as i64 - i64::from(runnable));
        }
    }

    /// It chose, `ns` after it was entered.
    fn schedule_exit(&mut self, ns: u64, examined: u32, recalculations: u32, memory_wait_ps: u64) {
        let schedule = &mut self.schedule;
        count(&mut schedule.completed);
        schedule.ns += ns;
        raise(Cell::from_mut(&mut schedule.ns_max), ns);
        schedule.examined += u64::from(examined);
        raise(
            Cell::from_mut(&mut schedule.examined_max),
            u64::from(examined),
        );
        schedule.recalculations += u64::from(recalculations);
        schedule.memory_wait_ps += memory_wait_ps;
    }

    fn wakeup(&mut self, at: Instant, task: TaskId, since: Duration) {
        self.counting(task, |task| task.wake(at, since));
        if self.inversions.is_mixed() && self.task(task).waits() {
            self.inversions.waits(at, task);
        }
    }

    fn throttled(&mut self, at: Instant, task: TaskId) {
        self.deadlines.throttled += u64::from(self.task(task).deadline);
        self.inversions.throttled(at, task, true);
    }

    fn replenished(&mut self, at: Instant, task: TaskId) {
        self.inversions.throttled(at, task, false);
    }

    // A change of a task that it has just reported: `now` is the time of its last event.
    fn define_task(&mut self, now: Instant, task: TaskId, meta: &TaskMeta) {
        self.task(task).define(meta, now);
        self.deadlines.any |= meta.rt_priority == DEADLINE_PRIORITY;
        if self.inversions.define(now, task, meta, self.nr_cpus) {
            for (index, task) in self.tasks.iter().enumerate() {
                if task.waits() {
                    self.inversions.waits(now, TaskId(index as u32));
                }
            }
        }
    }

    fn schedule_measures(
        &self,
        sources: &Sources,
        clock_mhz: Option<u32>,
        measures: &mut Measures,
    ) {
        let schedule = &self.schedule;
        measures.int("schedule.calls", schedule.calls);
        if schedule.completed > 0 {
            let ns = u128::from(schedule.ns);
            measures.mean("schedule.time_ns_mean", ns, schedule.completed);
            measures.int("schedule.time_ns_max", schedule.ns_max);
            if let Some(mhz) = clock_mhz {
                let cycles_1000 = ns * u128::from(mhz);
                measures.float(
                    "schedule.cycles_mean",
                    cycles_1000 as f64 / (1_000.0 * schedule.completed as f64),
                );
            }
        }
        if sources.memory && schedule.ns > 0 {
            let ps = schedule.memory_wait_ps as f64;
            measures.float(
                "schedule.memory_wait_ns_mean",
                ps / (1_000.0 * schedule.completed as f64),
            );
            measures.float("schedule.memory_wait_pct", ps / (10.0 * schedule.ns as f64));
        }
        if sources.examined {
            measures.mean(
                "schedule.examined_mean",
                u128::from(schedule.examined),
                schedule.completed,
            );
            measures.int("schedule.examined_max", schedule.examined_max);
            measures.int("schedule.recalculations", schedule.recalculations);
        }
        self.machine_queue.mean_and_max("runqueue.len", measures);
        self.cpu_queue.mean_and_max("runqueue.cpu_len", measures);
        if schedule.calls > 0 {
            let observed = schedule.calls as f64 * self.nr_cpus as f64;
            measures.float(
                "runqueue.cpu_deviation_mean",
                schedule.deviation as f64 / observed,
            );
        }
    }

    /// Of wakeups and waits, up to the run's `end`.
    fn wait_measures(&self, end: Instant, measures: &mut Measures) {
        if let Some(ns) = self.wakeup_latency.permilles([500, 900, 990, 999]) {
            for (ns, name) in ns.into_iter().zip(["p50", "p90", "p99", "p99_9"]) {
                measures.int(format!("wakeup.latency_ns_{name}"), ns);
            }
        }
        self.wakeup_latency
            .mean_and_max("wakeup.latency_ns", measures);
        let unfinished = |of: fn(&Task, Instant) -> Option<u64>| {
            let waits = self.tasks.iter().filter_map(move |task| of(task, end));
            waits.fold((0, 0), |(nr, max), ns| (nr + 1, ns.max(max)))
        };
        let (nr, ns_max) = unfinished(Task::unfinished_wakeup_ns);
        measures.int("wakeup.unfinished", nr);
        measures.int("wakeup.unfinished_ns_max", ns_max);
        measures.int("wait.ns_max", self.wait_ns_max);
        measures.int(
            "wait.unfinished_ns_max",
            unfinished(Task::unfinished_wait_ns).1,
        );
    }
}

impl Recorder for MetricsRecorder {
    fn define_starter(&self, task: TaskId) {
        if self.starter.get().is_some_and(|first| first != task) {
            self.has_other_starters.set(true);
            self.other_starters.borrow_mut().insert(task);
        } else {
            self.starter.set(Some(task));
        }
        let on = self.choices.borrow_mut().forget(task);
        if on.is_some() {
            self.starter_is_on(task, on);
        }
    }

    fn show_kept(&self, task: TaskId, see: fn(&dyn Any)) {
        if let Some(task) = self.choices.borrow().tasks.get(task.index()) {
            see(task);
        }
    }

    fn define_task(&self, task: TaskId, meta: &TaskMeta) {
        if self.is_starter(task) {
            return;
        }
        let now = self.heard.get();
        self.choices.borrow_mut().define_task(now, task, meta);
    }

    fn define_affinity(&self, task: TaskId, allowed: &CpuSet) {
        let now = self.heard.get();
        let inversions = &mut self.choices.borrow_mut().inversions;
        inversions.allow(now, task, allowed, self.cpus.len());
    }

    fn define_lock(&self, lock: LockId, _name: &str, class: LockClass) {
        while self.locks.len() <= lock.index() {
            self.locks.push(Box::new(Lock {
                class: Cell::new(LockClass::Other),
                holder: Cell::new(LockPath::Other),
                by_path: Default::default(),
            }));
        }
        self.lock(lock).class.set(class);
    }

    // Inlined, the match disappears: every caller knows its event.
    #[inline(always)]
    fn record(&self, at: Instant, cpu: CpuId, event: Event) {
        self.heard.set(at);
        match event {
            Event::Mode(mode) => self.cpus[cpu.index()].change_mode(at, mode),
            Event::ScheduleEnter {
                mut runnable,
                mut queue,
            } => {
                if self.nr_starters_on.get() > 0 {
                    (runnable, queue) = self.without_starters(cpu, runnable, queue);
                }
                self.cpus[cpu.index()].schedule_entered.set(at);
                let mut choices = self.choices.borrow_mut();
                choices.schedule_enter(at, cpu, runnable, queue);
            }
            Event::ScheduleExit {
                examined,
                recalculations,
                memory_wait_ps,
            } => {
                let cpu = &self.cpus[cpu.index()];
                let entered = cpu.schedule_entered.replace(Instant::NEVER);
                if entered != Instant::NEVER {
                    let ns = at.since(entered).ns();
                    let mut choices = self.choices.borrow_mut();
                    choices.schedule_exit(ns, examined, recalculations, memory_wait_ps);
                }
            }
            Event::Switch {
                prev,
                prev_state,
                next,
            } => {
                let mut next = next;
                let mut prev = prev.map(|prev| (prev, prev_state));
                if self.nr_starters_on.get() > 0 || self.has_other_starters.get() {
                    self.starter_switches(cpu, &mut prev, &mut next);
                }
                self.choices.borrow_mut().switch(at, cpu, prev, next);
            }
            Event::Wakeup { task, to, .. } if self.is_starter(task) => {
                self.starter_is_on(task, Some(to));
            }
            Event::Wakeup { task, since, .. } => {
                self.choices.borrow_mut().wakeup(at, task, since);
            }
            Event::LockAcquired {
                lock,
                path,
                waited,
                contended,
                trylock,
            } => {
                let lock = self.lock(lock);
                lock.holder.set(path);
                let stats = lock.held();
                if trylock {
                    stats.tried(true);
                } else {
                    stats.acquired(contended.then_some(waited.ns()));
                }
            }
            Event::LockTryFailed { lock, path } => {
                self.lock(lock).by_path[path as usize].tried(false);
            }
            Event::LockReleased { lock, held } => {
                self.lock(lock).held().released(held.ns());
            }
            Event::Migrate { task, to, .. } if self.is_starter(task) => {
                if let Some(on) = self.starters_on.borrow_mut().get_mut(&task) {
                    *on = to;
                }
            }
            // Where a task is put before it begins is no migration.
            Event::Migrate { task, reach, .. } => {
                if !self.choices.borrow_mut().task(task).is_fresh() {
                    add(&self.migrations[reach as usize], 1);
                }
            }
            Event::Begin => self.begins(at),
            Event::Running { task } => {
                if self.is_starter(task) {
                    self.starter_is_on(task, Some(cpu));
                } else {
                    let mut choices = self.choices.borrow_mut();
                    choices.counting(task, |task| task.found_running(at, cpu));
                }
            }
            Event::TaskExit { task } => {
                if !self.is_starter(task) {
                    self.choices.borrow_mut().task(task).exit(at);
                }
            }
            Event::Ipi { .. } => add(&self.ipis, 1),
            Event::Tick => {
                add(&self.ticks, 1);
                if let Some(passed) = &self.passed {
                    passed.store(at.ns(), Ordering::Relaxed);
                }
            }
            Event::Throttled { task } => self.choices.borrow_mut().throttled(at, task),
            Event::Replenished { task } => self.choices.borrow_mut().replenished(at, task),
            Event::DeadlineMissed { .. } => self.choices.borrow_mut().deadlines.missed += 1,
            Event::Work { n, .. } => self.work.set(self.work.get() + u64::from(n)),
            Event::End => {
                let cpu = &self.cpus[cpu.index()];
                cpu.change_mode(at, cpu.mode.get());
                cpu.has_ended.set(true);
                let end = self.end.get().map_or(at, |end| end.min(at));
                self.end.set(Some(end));
            }
            Event::TaskNew { .. }
            | Event::Affinity { .. }
            | Event::Priority { .. }
            | Event::LockContended { .. } => {}
        }
    }
}
