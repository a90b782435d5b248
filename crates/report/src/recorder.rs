//! Measures from a run's events while it is under way. No event is kept.

use std::any::Any;

use schedlab_trace::{
    CpuId, CpuMode, CpuSet, Event, Instant, LockClass, LockId, LockPath, MigrationReach, PrevState,
    Recorder, TaskId, TaskMeta,
};

use crate::count::count;
use crate::histogram::Buckets;
use crate::inversions::Inversions;
use crate::task_stats::{Task, jain};
use crate::{Histogram, LockStats, Measures, Points, Timeline};

/// Which events the world behind a run can show. A measure whose events it cannot show is absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sources {
    /// [`Event::ScheduleEnter`] and [`Event::ScheduleExit`].
    pub schedule: bool,
    /// What a choice examined and recalculated, in [`Event::ScheduleExit`].
    pub examined: bool,
    /// What schedule() waited for memory, in [`Event::ScheduleExit`].
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
        migrations: true,
        ipis: true,
        work: true,
    };
}

/// One CPU.
#[derive(Clone, Copy, Debug)]
struct Cpu {
    mode: CpuMode,
    since: Instant,
    mode_ns: [u64; CpuMode::ALL.len()],
    schedule_entered: Option<Instant>,
    /// Its own last moment, if it has told: it may be ahead of the run's.
    ended: Option<Instant>,
}

/// One lock, by the path that took it.
#[derive(Clone, Debug)]
struct Lock {
    class: LockClass,
    /// On whose behalf it is held.
    holder: LockPath,
    by_path: [LockStats; PATHS.len()],
}

const PATHS: [(LockPath, &str); 3] = [
    (LockPath::Schedule, "schedule"),
    (LockPath::Wakeup, "wakeup"),
    (LockPath::Other, "other"),
];

/// What schedule() did.
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
/// [`MetricsRecorder::measures`].
#[derive(Clone, Debug)]
pub struct MetricsRecorder {
    sources: Sources,
    cpus: Vec<Cpu>,
    tasks: Vec<Task>,
    locks: Vec<Lock>,
    schedule: Schedule,
    switches: Switches,
    machine_queue: Histogram,
    cpu_queue: Histogram,
    /// For the first CPUs: the length of its queue · number of CPUs − machine-wide length.
    deviations: Vec<Timeline>,
    wakeup_latency: Histogram,
    wait_ns_max: u64,
    inversions: Inversions,
    migrations: [u64; REACHES.len()],
    ipis: u64,
    ticks: u64,
    work: u64,
    end: Option<Instant>,
    /// When the event was that it heard last.
    heard: Instant,
}

const REACHES: [(MigrationReach, &str); 4] = [
    (MigrationReach::Smt, "smt"),
    (MigrationReach::Llc, "llc"),
    (MigrationReach::Node, "node"),
    (MigrationReach::Remote, "remote"),
];

/// Latencies above this (17 minutes) fall into one bucket.
const LATENCY_NS_MAX: u64 = 1 << 40;
/// CPUs whose queues are followed over time: more lines nobody can read.
const TIMELINES_MAX: usize = 16;
/// Queues longer than this fall into one bucket.
const LENGTH_MAX: u64 = 1 << 20;

impl MetricsRecorder {
    /// For a run on `nr_cpus` CPUs in a world that shows `sources`.
    pub fn new(nr_cpus: usize, sources: Sources) -> Self {
        let cpu = Cpu {
            mode: CpuMode::Idle,
            since: Instant::ZERO,
            mode_ns: [0; CpuMode::ALL.len()],
            schedule_entered: None,
            ended: None,
        };
        MetricsRecorder {
            sources,
            cpus: vec![cpu; nr_cpus],
            tasks: Vec::new(),
            locks: Vec::new(),
            schedule: Schedule::default(),
            switches: Switches::default(),
            machine_queue: Histogram::new(LENGTH_MAX),
            cpu_queue: Histogram::new(LENGTH_MAX),
            deviations: vec![Timeline::default(); nr_cpus.min(TIMELINES_MAX)],
            wakeup_latency: Histogram::new(LATENCY_NS_MAX),
            wait_ns_max: 0,
            inversions: Inversions::default(),
            migrations: [0; REACHES.len()],
            ipis: 0,
            ticks: 0,
            work: 0,
            end: None,
            heard: Instant::ZERO,
        }
    }

    /// Units of work done.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// When the run ended: as [told](MetricsRecorder::ended), or the earliest [`Event::End`]. While it is under way: the event heard last.
    pub fn end(&self) -> Instant {
        self.end.unwrap_or(self.heard)
    }

    /// The run ended at `at`, though all of its CPUs may have told of what they did up to a little later.
    pub fn ended(&mut self, at: Instant) {
        self.end = Some(at);
    }

    /// The machine-wide run-queue length at each schedule(), as [`Histogram::coarse`]; empty where the
    /// world does not show it.
    pub fn queue_histogram(&self) -> Buckets {
        self.machine_queue.coarse()
    }

    /// Measures over time: by how much the queue of each of the first CPUs is longer than the mean of all queues.
    /// Empty where the world does not show it.
    pub fn series(&self) -> Vec<(String, Points)> {
        let nr_cpus = self.cpus.len() as f64;
        self.deviations
            .iter()
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

    fn task(&mut self, task: TaskId) -> &mut Task {
        if task.index() >= self.tasks.len() {
            self.tasks.resize(task.index() + 1, Task::default());
        }
        &mut self.tasks[task.index()]
    }

    fn switch(
        &mut self,
        at: Instant,
        cpu: CpuId,
        prev: Option<(TaskId, PrevState)>,
        next: Option<TaskId>,
    ) {
        if let Some((prev, state)) = prev {
            let runnable = matches!(state, PrevState::Preempted | PrevState::Yielded);
            if runnable {
                count(&mut self.switches.involuntary);
                self.switches.yielded += u64::from(state == PrevState::Yielded);
            } else {
                count(&mut self.switches.voluntary);
            }
            self.task(prev).stop(at, runnable);
            if runnable && self.inversions.is_mixed() {
                self.inversions.waits(at, prev);
            }
        }
        if let Some(next) = next {
            if self.inversions.is_mixed() {
                self.inversions.starts(at, next, cpu);
            }
            count(&mut self.switches.starts);
            let start = self.task(next).start(at, cpu);
            self.switches.elsewhere += u64::from(start.elsewhere);
            self.wait_ns_max = self.wait_ns_max.max(start.waited_ns);
            if let Some(ns) = start.wakeup_latency_ns {
                self.wakeup_latency.record(ns);
            }
        }
    }

    fn schedule_enter(&mut self, at: Instant, cpu: CpuId, runnable: u32, queue: u32) {
        count(&mut self.schedule.calls);
        self.cpus[cpu.index()].schedule_entered = Some(at);
        self.machine_queue.record(u64::from(runnable));
        self.cpu_queue.record(u64::from(queue));
        let spread = u64::from(queue) * self.cpus.len() as u64;
        self.schedule.deviation += spread.abs_diff(u64::from(runnable));
        if let Some(timeline) = self.deviations.get_mut(cpu.index()) {
            timeline.record(at, spread as i64 - i64::from(runnable));
        }
    }

    fn schedule_exit(
        &mut self,
        at: Instant,
        cpu: CpuId,
        examined: u32,
        recalculations: u32,
        memory_wait_ps: u64,
    ) {
        if let Some(entered) = self.cpus[cpu.index()].schedule_entered.take() {
            let ns = at.since(entered).ns();
            let schedule = &mut self.schedule;
            count(&mut schedule.completed);
            schedule.ns += ns;
            schedule.ns_max = schedule.ns_max.max(ns);
            schedule.examined += u64::from(examined);
            schedule.examined_max = schedule.examined_max.max(u64::from(examined));
            schedule.recalculations += u64::from(recalculations);
            schedule.memory_wait_ps += memory_wait_ps;
        }
    }

    #[inline]
    fn mode(&mut self, at: Instant, cpu: CpuId, mode: CpuMode) {
        let cpu = &mut self.cpus[cpu.index()];
        cpu.mode_ns[cpu.mode as usize] += at.since(cpu.since).ns();
        cpu.mode = mode;
        cpu.since = at;
    }

    /// All measures that follow from the events. `clock_mhz` turns times into cycles where it is known.
    pub fn measures(&self, clock_mhz: Option<u32>) -> Measures {
        let mut measures = Measures::default();
        measures.int("end_ns", self.end().ns());
        if self.sources.work {
            measures.int("work", self.work);
        }
        if self.sources.schedule {
            self.schedule_measures(clock_mhz, &mut measures);
        }
        measures.int("schedule.picked_elsewhere", self.switches.elsewhere);
        if self.sources.priorities {
            measures.int("schedule.priority_inversions", self.inversions.count());
        }
        self.lock_measures(&mut measures);
        self.switch_measures(&mut measures);
        self.time_measures(&mut measures);
        measures
    }

    fn schedule_measures(&self, clock_mhz: Option<u32>, measures: &mut Measures) {
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
        if self.sources.memory && schedule.ns > 0 {
            let ps = schedule.memory_wait_ps as f64;
            measures.float(
                "schedule.memory_wait_ns_mean",
                ps / (1_000.0 * schedule.completed as f64),
            );
            measures.float("schedule.memory_wait_pct", ps / (10.0 * schedule.ns as f64));
        }
        if self.sources.examined {
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
            let observed = schedule.calls as f64 * self.cpus.len() as f64;
            measures.float(
                "runqueue.cpu_deviation_mean",
                schedule.deviation as f64 / observed,
            );
        }
    }

    fn lock_measures(&self, measures: &mut Measures) {
        let groups: [(&str, bool, &[LockClass]); 2] = [
            (
                "lock.runqueue",
                self.sources.policy_locks,
                &[LockClass::RunQueue, LockClass::Dsq],
            ),
            ("lock.rq", self.sources.kernel_locks, &[LockClass::KernelRq]),
        ];
        for (name, shown, classes) in groups {
            if !shown {
                continue;
            }
            let mut by_path = [LockStats::default(); PATHS.len()];
            let mut all = LockStats::default();
            for lock in self
                .locks
                .iter()
                .filter(|lock| classes.contains(&lock.class))
            {
                for (sum, stats) in by_path.iter_mut().zip(&lock.by_path) {
                    sum.add(stats);
                    all.add(stats);
                }
            }
            all.measures(name, measures);
            for (stats, (_, path)) in by_path.iter().zip(PATHS) {
                if stats.acquisitions + stats.try_failed > 0 {
                    stats.measures(&format!("{name}.{path}"), measures);
                }
            }
        }
    }

    fn switch_measures(&self, measures: &mut Measures) {
        measures.int("switches.total", self.switches.starts);
        measures.int("switches.voluntary", self.switches.voluntary);
        measures.int("switches.involuntary", self.switches.involuntary);
        if self.sources.yields {
            measures.int("switches.yielded", self.switches.yielded);
        }
        if self.sources.migrations {
            measures.int("migrations.total", self.migrations.iter().sum());
            for (n, (_, name)) in self.migrations.iter().zip(REACHES) {
                measures.int(format!("migrations.{name}"), *n);
            }
        }
        if self.sources.ipis {
            measures.int("ipis", self.ipis);
        }
        if let Some(ns) = self.wakeup_latency.permilles([500, 900, 990, 999]) {
            for (ns, name) in ns.into_iter().zip(["p50", "p90", "p99", "p99_9"]) {
                measures.int(format!("wakeup.latency_ns_{name}"), ns);
            }
        }
        self.wakeup_latency
            .mean_and_max("wakeup.latency_ns", measures);
        let end = self.end();
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

    fn time_measures(&self, measures: &mut Measures) {
        if self.sources.modes {
            let mut ns = [0u64; CpuMode::ALL.len()];
            for cpu in &self.cpus {
                for (sum, part) in ns.iter_mut().zip(cpu.mode_ns) {
                    *sum += part;
                }
                let until = cpu.ended.unwrap_or(self.end());
                ns[cpu.mode as usize] += until.since(cpu.since).ns();
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
            measures.int("ticks", self.ticks);
        }
        let end = self.end();
        let services = self.tasks.iter().filter_map(|task| {
            let mut task = *task;
            task.finish(end);
            task.service()
        });
        if let Some(index) = jain(services) {
            measures.float("fairness.jain", index);
        }
    }
}

impl Recorder for MetricsRecorder {
    fn kept_of(&self, task: TaskId) -> Option<&dyn Any> {
        self.tasks.get(task.index()).map(|task| task as &dyn Any)
    }

    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        // What changes a task has just told what it does: the last event is of now.
        let now = self.heard;
        self.task(task).define(meta, now);
        if self.inversions.define(now, task, meta, self.cpus.len()) {
            for (index, task) in self.tasks.iter().enumerate() {
                if task.waits() {
                    self.inversions.waits(now, TaskId(index as u32));
                }
            }
        }
    }

    fn define_affinity(&mut self, task: TaskId, allowed: &CpuSet) {
        self.inversions
            .allow(self.heard, task, allowed, self.cpus.len());
    }

    fn define_lock(&mut self, lock: LockId, _name: &str, class: LockClass) {
        while self.locks.len() <= lock.index() {
            self.locks.push(Lock {
                class: LockClass::Other,
                holder: LockPath::Other,
                by_path: Default::default(),
            });
        }
        self.locks[lock.index()].class = class;
    }

    // Inlined, the match disappears: every caller knows its event.
    #[inline(always)]
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        self.heard = at;
        match event {
            Event::Mode(mode) => self.mode(at, cpu, mode),
            Event::ScheduleEnter { runnable, queue } => {
                self.schedule_enter(at, cpu, runnable, queue);
            }
            Event::ScheduleExit {
                examined,
                recalculations,
                memory_wait_ps,
            } => self.schedule_exit(at, cpu, examined, recalculations, memory_wait_ps),
            Event::Switch {
                prev,
                prev_state,
                next,
            } => self.switch(at, cpu, prev.map(|prev| (prev, prev_state)), next),
            Event::Wakeup { task, since, .. } => {
                self.task(task).wake(at, since);
                if self.inversions.is_mixed() && self.task(task).waits() {
                    self.inversions.waits(at, task);
                }
            }
            Event::LockAcquired {
                lock,
                path,
                waited,
                contended,
                trylock,
            } => {
                let lock = &mut self.locks[lock.index()];
                lock.holder = path;
                let stats = &mut lock.by_path[path as usize];
                if trylock {
                    stats.tried(true);
                } else {
                    stats.acquired(contended.then_some(waited.ns()));
                }
            }
            Event::LockTryFailed { lock, path } => {
                self.locks[lock.index()].by_path[path as usize].tried(false);
            }
            Event::LockReleased { lock, held } => {
                let lock = &mut self.locks[lock.index()];
                lock.by_path[lock.holder as usize].released(held.ns());
            }
            Event::Migrate { reach, .. } => count(&mut self.migrations[reach as usize]),
            Event::Ipi { .. } => count(&mut self.ipis),
            Event::Tick => count(&mut self.ticks),
            Event::Work { n, .. } => self.work += u64::from(n),
            Event::End => {
                self.cpus[cpu.index()].ended = Some(at);
                self.end = Some(self.end.map_or(at, |end| end.min(at)));
            }
            Event::TaskNew { .. }
            | Event::TaskExit { .. }
            | Event::Affinity { .. }
            | Event::LockContended { .. } => {}
        }
    }
}
