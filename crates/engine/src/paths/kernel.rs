//! The state of a run and its executor.
//!
//! Every virtual CPU is one fiber ([`Kernel::cpu_main`]) that runs the kernel's paths as straight-line
//! code on its own local clock. It suspends where CPUs meet ([`Kernel::sync`], locks)
//! and where it runs a task or idles. [`Kernel::execute`] takes the earliest event, ties by CPU number,
//! and resumes whom it concerns. So what a CPU reads at its local time was written before it.

use std::cell::{Cell, OnceCell, RefCell};

use schedlab_fiber::{Fibers, NoStack, State, Switch, trap};
use schedlab_machine::{CacheModel, LineRef, Machine, TaskAddresses, address};
use schedlab_trace::{
    CpuId, CpuMode, CpuSet, Event as TraceEvent, Instant, Listener, Recorder, TaskId,
};
use schedlab_workload::{ObjectId, ObjectSpec, Start, TaskSpec, Workload, stream};

use crate::contract::consts;
use crate::contract::mutation::{self, Mutation};
use crate::contract::outcome::{ExitInfo, ExitKind, Place};
use crate::contract::policy::{OpKind, OpSet, Policy, Shared};
use crate::contract::scenario::{
    HostFailure, Limits, NormalClass, RtMode, RunEnd, Scenario, WorkloadFailure,
};
use crate::contract::version::KernelVersion;
use crate::paths::{background, starter};
use crate::state::cgroup::CgroupTable;
use crate::state::classes::Classes;
use crate::state::costs::Costs;
use crate::state::cpu::{Cpu, Wait};
use crate::state::deadline::Bandwidth;
use crate::state::domains::Domains;
use crate::state::dsq::Dsqs;
use crate::state::event_queue::{CpuEvent, Event, EventQueue, Timer};
use crate::state::fair_group::Groups;
use crate::state::idle::IdleMasks;
use crate::state::life::Life;
use crate::state::lock::Locks;
use crate::state::object::Object;
use crate::state::online::Online;
use crate::state::population::Population;
use crate::state::progress::{Progress, Tally};
use crate::state::scx::RunnableOrder;
use crate::state::shared::SharedObjects;
use crate::state::task::{Identity, Task, TaskState, TaskTable};
use crate::state::traffic::Traffic;

/// Streams of randomness of a run besides the tasks' streams, which are numbered from 0.
const STREAM_LOCKS: u32 = u32::MAX;
const STREAM_POLICY: u32 = u32::MAX - 1;
const STREAM_STARTER: u32 = u32::MAX - 2;
const STREAM_LIMITS: u32 = 1 << 31;
/// The first one of the machine's background; others have the numbers below it.
const STREAM_BACKGROUND: u32 = u32::MAX - 3;

/// How long after the end of a run ops that are under way may take to return. An op of this length
/// would have had the kernel complain about a CPU that does not schedule.
const GRACE_NS: u64 = 1_000_000_000;

/// The counts until the run's end, without the time when the last ops return and the policy is unloaded.
struct Summary {
    end: Instant,
    makespan: Option<Instant>,
    begun: Instant,
    work: u64,
    switches: u64,
    events: u64,
    tasks: u32,
    unfinished: Vec<TaskId>,
    to_come: u32,
    probes: Vec<crate::contract::policy::Probes>,
    cache: CacheModel,
}

/// The policy's ops table as the kernel uses it.
pub(crate) struct Ops {
    pub present: OpSet,
    pub flags: u64,
    pub max_batch: u32,
    pub timeout_ns: u64,
    /// The policy reads counts of tasks, which are kept for it.
    pub reads_facts: bool,
}

/// A scenario besides the machine and the workload.
pub(crate) struct Setup {
    pub rt_mode: RtMode,
    pub normal_class: NormalClass,
    pub timer_slack_ns: u64,
    pub limits: Limits,
    pub seed: u64,
    /// CPUs of the tasks that choose none themselves; all if `None`.
    pub allowed: Option<CpuSet>,
    /// The workload names no end.
    pub is_endless: bool,
    pub mutation: Option<Mutation>,
}

/// The state of one run.
pub(crate) struct Kernel<P, R> {
    pub machine: Machine,
    pub costs: Costs,
    addresses: TaskAddresses,
    pub version: KernelVersion,
    pub setup: Setup,
    pub ops: Ops,
    pub policy: P,
    /// The way from a CPU's fiber to the executor.
    switch: Switch,
    pub recorder: R,
    /// The caches, and the policy's source of chance.
    pub shared: Shared,
    pub traffic: Traffic,
    pub queue: EventQueue,
    pub cpus: Vec<Cpu>,
    pub online: Online,
    pub nr_nodes: u32,
    pub domains: Domains,
    pub tasks: TaskTable,
    pub population: Population,
    pub cgroups: CgroupTable,
    /// Groups of the fair class, where there are cgroups below the root.
    pub groups: Option<Groups>,
    pub dsqs: Dsqs,
    pub locks: Locks,
    /// Objects that calls of tasks share.
    pub shared_objects: SharedObjects,
    pub idle: RefCell<IdleMasks>,
    pub objects: RefCell<Vec<Object>>,

    pub life: Life,
    exit: RefCell<Option<ExitInfo>>,
    failure: OnceCell<WorkloadFailure>,
    host_failure: OnceCell<HostFailure>,
    /// A failure that the workload's duration made none.
    stuck: OnceCell<WorkloadFailure>,
    summary: OnceCell<Summary>,
    pub classes: Classes,
    pub dl_bw: Bandwidth,
    pub runnable_order: RunnableOrder,
    pub progress: Progress,
    pub tally: Tally,
}

/// Runs `scenario` under `policy` to its end.
///
/// A policy's misbehaviour is an outcome ([`RunEnd::exit`]), never a panic.
pub fn run<P: Policy, L: Listener>(scenario: Scenario, policy: P, listener: L) -> RunEnd<P, L> {
    let kernel = Kernel::new(scenario, policy, RefCell::new(listener));
    trap::nested(|| kernel.execute());
    kernel.finish(RefCell::into_inner)
}

/// The same for a recorder that needs no cell around it.
pub fn run_recorded<P: Policy, R: Recorder>(
    scenario: Scenario,
    policy: P,
    recorder: R,
) -> RunEnd<P, R> {
    let kernel = Kernel::new(scenario, policy, recorder);
    trap::nested(|| kernel.execute());
    kernel.finish(std::convert::identity)
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    pub(crate) fn new(scenario: Scenario, policy: P, recorder: R) -> Self {
        let Scenario {
            machine,
            workload,
            allowed,
            seed,
            version,
            normal_class,
            rt_mode,
            timer_slack_ns,
            limits,
            mut hotplug,
            count_by_offset,
            #[cfg(feature = "mutations")]
            mutation,
        } = scenario;
        #[cfg(not(feature = "mutations"))]
        let mutation = None;
        let nr_cpus = machine.topology.nr_cpus();
        let objects = workload.objects.iter();
        let objects = objects.map(|spec| Object::new(spec, machine.tcp.as_ref()));
        let objects = objects.collect();
        let nr_nodes = machine.topology.nr_nodes();
        let info = policy.info();
        let ops = Ops {
            present: info.present,
            flags: info.flags,
            max_batch: match info.dispatch_max_batch {
                0 => consts::DSP_DFL_MAX_BATCH,
                n => n,
            },
            timeout_ns: match info.timeout_ms {
                0 => u64::from(consts::WATCHDOG_MAX_TIMEOUT_MS) * 1_000_000,
                ms => u64::from(ms) * 1_000_000,
            },
            reads_facts: policy.reads_facts(),
        };
        hotplug.sort_by_key(|event| (event.at, event.cpu));
        let mut cache = CacheModel::new(&machine);
        if count_by_offset {
            cache.count_by_offset();
        }
        let costs = Costs::new(&machine);
        let kernel = Kernel {
            addresses: TaskAddresses::new(&machine),
            version,
            setup: Setup {
                rt_mode,
                normal_class,
                timer_slack_ns,
                limits,
                seed,
                allowed,
                is_endless: workload.duration.is_none(),
                mutation,
            },
            ops,
            policy,
            switch: Switch::default(),
            recorder,
            shared: Shared {
                cache: RefCell::new(cache),
                random: RefCell::new(stream(seed, STREAM_POLICY)),
            },
            traffic: Traffic::new(&machine),
            queue: EventQueue::new(nr_cpus),
            cpus: (0..nr_cpus)
                .map(|cpu| Cpu::new(CpuId(cpu as u32), &machine, &costs))
                .collect(),
            costs,
            online: Online::new(nr_cpus, hotplug),
            nr_nodes,
            domains: Domains::new(&machine.topology),
            tasks: TaskTable::default(),
            population: Population::default(),
            groups: Groups::new(&workload.cgroups, nr_cpus, stream(seed, STREAM_LIMITS)),
            cgroups: CgroupTable::new(workload.cgroups.clone()),
            dsqs: Dsqs::new(nr_cpus, nr_nodes as usize),
            locks: Locks::new(stream(seed, STREAM_LOCKS)),
            shared_objects: SharedObjects::new(&machine),
            idle: RefCell::new(IdleMasks::new(&machine)),
            objects: RefCell::new(objects),
            life: Life::default(),
            exit: RefCell::new(None),
            failure: OnceCell::new(),
            host_failure: OnceCell::new(),
            stuck: OnceCell::new(),
            summary: OnceCell::new(),
            classes: Classes::default(),
            dl_bw: Bandwidth::default(),
            runnable_order: RunnableOrder::default(),
            progress: Progress::default(),
            tally: Tally::default(),
            machine,
        };
        let duration = workload.duration;
        kernel.admit(workload);
        kernel.admit_background();
        let end = duration.unwrap_or(kernel.setup.limits.simulated);
        kernel.set_timer(Timer::End, CpuId(0), end.ns());
        if let Some(first) = kernel.online.next_change() {
            kernel.set_timer(Timer::Hotplug, CpuId(0), first.ns());
        }
        kernel
    }

    /// Takes in the workload's tasks: they are forked by a main thread, or start together, each on the CPU of its turn.
    fn admit(&self, workload: Workload) {
        let nr_cpus = self.cpus.len();
        let Workload { tasks, start, .. } = workload;
        let affinity_of = |spec: &TaskSpec| {
            let set = spec.affinity.as_ref().or(self.setup.allowed.as_ref())?;
            Some(set.resized(nr_cpus))
        };
        let nowhere = |spec: &TaskSpec| affinity_of(spec).is_some_and(|set| set.is_empty());
        if let Some(number) = tasks.iter().position(nowhere) {
            let TaskSpec { comm, affinity, .. } = &tasks[number];
            self.fail(WorkloadFailure::NoCpu {
                task: format!("{comm}[{}]", TaskId(number as u32).pid()),
                allowed: affinity.as_ref().map_or(String::new(), CpuSet::to_string),
                last_cpu: nr_cpus as u32 - 1,
            });
            return;
        }
        let has_pi = |object: &Object| matches!(object, Object::PiMutex(_));
        if !self.machine.sched_ext.rq_locks && self.objects.borrow().iter().any(has_pi) {
            self.fail(WorkloadFailure::Refused {
                task: "the workload".to_owned(),
                what: "use mutexes with priority inheritance",
                why: "the machine's kernel has no run queue locks, as Linux 2.4, which had no such mutexes either: set \
                      pi_enabled to false, or choose a later machine"
                    .to_owned(),
            });
            return;
        }
        let counted = tasks.iter().filter(|spec| !spec.behaviour.is_background());
        let nr_alive = counted.count() as u32;
        self.population.announce(tasks.len() as u32, nr_alive);
        if start == Start::Fork && !tasks.is_empty() {
            return self.admit_starter(tasks);
        }
        for (index, spec) in tasks.into_iter().enumerate() {
            let turn = CpuId((index % nr_cpus) as u32);
            let elsewhere = affinity_of(&spec).filter(|set| !set.contains(turn));
            let cpu = elsewhere.and_then(|set| set.first()).unwrap_or(turn);
            let start = spec.start.ns();
            let task = self.new_task(spec, None, cpu, self.population.start_first());
            self.set_task_timer(Timer::Task(task.id), cpu, start);
        }
    }

    /// Makes the tasks that run on the machine beside any workload. Each wakes for the first time within its period.
    fn admit_background(&self) {
        let specs = background::specs(&self.machine);
        for (number, (spec, cpu)) in (0..).zip(specs) {
            let start = spec.start.ns();
            let task = self.new_task(spec, None, cpu, STREAM_BACKGROUND - number);
            self.population.add_daemon(task.id);
            self.set_task_timer(Timer::Task(task.id), cpu, start);
        }
    }

    /// Makes the main thread, which is there when the policy is loaded, and forks `tasks`.
    fn admit_starter(&self, tasks: Vec<TaskSpec>) {
        let mut objects = self.objects.borrow_mut();
        let done = ObjectId(objects.len() as u32);
        objects.push(Object::new(&ObjectSpec::Event, None));
        drop(objects);
        let spec = starter::spec(tasks, done);
        let cpu = self.setup.allowed.as_ref().and_then(CpuSet::first);
        let cpu = cpu.unwrap_or(CpuId(0));
        let task = self.new_task(spec, None, cpu, STREAM_STARTER);
        self.population.set_starter(task.id);
        self.set_task_timer(Timer::Task(task.id), cpu, 0);
    }

    pub(crate) fn is_starter(&self, p: &Task) -> bool {
        self.population.starter() == Some(p.id)
    }

    /// How many tasks the workload has had so far.
    pub(crate) fn nr_tasks(&self) -> u32 {
        self.population.of_workload(self.tasks.len())
    }

    /// The number that a task takes its stream of randomness by: its place among the first ones, or after them.
    pub(crate) fn next_number(&self, is_first: bool) -> u32 {
        if is_first {
            self.population.start_first()
        } else {
            self.population.next_later(self.nr_tasks())
        }
    }

    /// Makes a task; it is not known to anybody yet.
    pub(crate) fn new_task(
        &self,
        mut spec: TaskSpec,
        parent: Option<TaskId>,
        cpu: CpuId,
        number: u32,
    ) -> &Task {
        if spec.affinity.is_none() {
            spec.affinity.clone_from(&self.setup.allowed);
        }
        self.tasks.push(|id| {
            let tgid = self.tasks.tgid(id, spec.address_space);
            let rng = stream(self.setup.seed, number);
            let line = self.line_at(self.task_address(id));
            let identity = Identity { id, parent, tgid };
            Task::new(identity, spec, cpu, self.cpus.len(), line, rng)
        })
    }

    fn execute(&self) {
        if self.failure.get().is_some() {
            return;
        }
        {
            let mut fibers = self.fibers();
            for cpu in &self.cpus {
                if let Err(why) = fibers.spawn(|| self.cpu_main(cpu)) {
                    self.host_failed(why);
                    return;
                }
            }
            self.load();
            if self.host_failure.get().is_some() {
                return;
            }
            // The policy has refused a cgroup of the workload, which cannot begin without it.
            if self.failure.get().is_some() {
                self.life.stop();
            }
            for cpu in &self.cpus {
                self.resume(&mut fibers, cpu.id);
            }
            while !self.is_over() {
                if cfg!(debug_assertions) {
                    self.check_state_at_times();
                }
                let cpu = if let Some(head) = self.queue.pop_turn() {
                    self.progress.happens(head.time());
                    Some(CpuId(head.cpu()))
                } else if let Some(head) = self.queue.pop_main() {
                    self.progress.happens(head.time());
                    self.goes_on(CpuId(head.cpu()), head.time())
                } else if let Some((head, task)) = self.queue.pop_task_timer() {
                    self.progress.happens(head.time());
                    self.task_timer_expires(task, CpuId(head.cpu()), head.time())
                } else if let Some((time, event)) = self.queue.pop() {
                    self.progress.happens(time);
                    self.take_place(time, event)
                } else {
                    break;
                };
                if let Some(cpu) = cpu {
                    self.resume(&mut fibers, cpu);
                }
                if self.population.is_at_rest() {
                    self.check_deadlock();
                }
            }
        }
        if !self.life.is_closed() {
            self.close();
        }
        self.unload();
    }

    /// Checks the whole state after each 127th event; the number is prime, so that no beat of the workload hides anything.
    fn check_state_at_times(&self) {
        if self.progress.events().is_multiple_of(127) && !self.life.is_closed() {
            self.check_state();
        }
    }

    /// Lets `cpu` go on until it suspends itself.
    #[inline(always)]
    fn resume(&self, fibers: &mut Fibers<'_>, cpu: CpuId) {
        self.progress.resume(cpu);
        match fibers.resume(cpu.index()) {
            State::Suspended => {}
            ended => self.cpu_ended(cpu, ended),
        }
    }

    #[cold]
    fn cpu_ended(&self, cpu: CpuId, how: State) {
        match how {
            State::Trapped(trap) => {
                self.policy_fault(self.policy.describe(&self.cpu(cpu).this, &trap))
            }
            State::Suspended | State::Done => unreachable!("a CPU never ends"),
        }
    }

    /// The stretch of time that `cpu` spends is over.
    #[inline(always)]
    fn goes_on(&self, cpu: CpuId, time: u64) -> Option<CpuId> {
        let c = &self.cpus[cpu.index()];
        c.go_on(time);
        Some(cpu)
    }

    /// A task's sleep ends or its life begins, on `cpu`.
    #[inline(always)]
    fn task_timer_expires(&self, task: TaskId, cpu: CpuId, time: u64) -> Option<CpuId> {
        self.population.remove_timer();
        self.prefetch_wakeups();
        let cpu = self.online_or_other(cpu);
        let c = &self.cpus[cpu.index()];
        c.expired.tasks.push(task);
        self.raise_on(c, crate::state::cpu::irq::TIMER, time)
    }

    /// Carries out an event, up to the CPU that goes on because of it.
    #[inline(never)]
    fn take_place(&self, time: u64, event: Event) -> Option<CpuId> {
        match event {
            Event::Cpu(cpu, CpuEvent::Main) => self.goes_on(cpu, time),
            Event::Cpu(cpu, CpuEvent::Ipi) => {
                self.raise(cpu, crate::state::cpu::irq::RESCHED, time)
            }
            Event::Cpu(cpu, CpuEvent::Tick) => self.tick_due(cpu, time),
            Event::Cpu(cpu, CpuEvent::Work) => {
                self.raise(cpu, crate::state::cpu::irq::DEFERRED, time)
            }
            Event::Timer(cpu, Timer::Task(task) | Timer::Sleep(task)) => {
                self.task_timer_expires(task, cpu, time)
            }
            Event::Timer(cpu, Timer::Policy(timer)) => {
                let cpu = self.online_or_other(cpu);
                self.cpu(cpu).expired.push_policy(timer);
                self.raise(cpu, crate::state::cpu::irq::POLICY_TIMER, time)
            }
            Event::Timer(cpu, Timer::Replenish(task)) => {
                let cpu = self.online_or_other(cpu);
                self.cpu(cpu).expired.push_period(task);
                self.raise(cpu, crate::state::cpu::irq::REPLENISH, time)
            }
            Event::Timer(cpu, timer @ (Timer::Quota(_) | Timer::Slack(_))) => {
                let cpu = self.online_or_other(cpu);
                self.cpu(cpu).expired.push_limit(timer);
                self.raise(cpu, crate::state::cpu::irq::REPLENISH, time)
            }
            Event::Timer(cpu, Timer::Ack(object)) => self.ack_timer_expires(object, cpu, time),
            Event::Timer(_, Timer::Watchdog) => {
                self.watchdog(time);
                None
            }
            Event::Timer(_, Timer::Hotplug) => self.hotplug_due(time),
            Event::Timer(_, Timer::End) => {
                self.time_is_up();
                None
            }
        }
    }

    /// The workload's duration is over, or the bound of one that names none.
    fn time_is_up(&self) {
        // A run that stops already, and waits for its last ops only, is not given up.
        if self.setup.is_endless && !self.life.is_stopping() {
            self.fail(WorkloadFailure::Endless {
                simulated: self.setup.limits.simulated,
                alive: self.population.nr_alive(),
            });
        }
        self.life.stop();
    }

    /// Whether the run is over: asked to stop, and no op of the policy under way.
    fn is_over(&self) -> bool {
        self.life.is_stopping() && self.has_wound_down()
    }

    /// Closes the books of a run that stops. Returns whether the policy's ops have returned.
    fn has_wound_down(&self) -> bool {
        if !self.life.is_closed() {
            self.close();
        }
        let op_under_way = self.cpus.iter().any(|c| c.this.op.get().is_some());
        if !op_under_way || self.life.is_policy_dead() {
            return true;
        }
        let end = self.summary.get().map(|summary| summary.end);
        if end.is_some_and(|end| self.progress.clock() > end.ns() + GRACE_NS) {
            let op_of = |c: &Cpu| c.op.outer().or(c.this.op.get());
            let late = self.cpus.iter().find_map(|c| Some((c.id, op_of(c)?)));
            if let Some((cpu, op)) = late {
                self.policy_fault(format!(
                    "ops.{} has not returned {} ms after the run's end (CPU {cpu})",
                    op.name(),
                    GRACE_NS / 1_000_000,
                ));
            }
        }
        false
    }

    /// Ends what is recorded and counted.
    fn close(&self) {
        let makespan = (self.population.nr_alive() == 0 && self.nr_tasks() > 0)
            .then(|| Instant::from_ns(self.tally.last_exit()));
        // The CPU on which the last task exits has run ahead of the executor's clock: the run ends there.
        let clock = Instant::from_ns(self.progress.clock());
        let end = makespan.map_or(clock, |last| last.max(clock));
        for cpu in &self.cpus {
            // A CPU that ran ahead to its next synchronisation point has recorded up to there.
            let at = Instant::from_ns(cpu.this.now.get().max(end.ns()));
            self.recorder.record(at, cpu.id, TraceEvent::End);
        }
        let alive = |task: &&Task| {
            task.state() != TaskState::Dead && !task.origin.is_background && !self.is_starter(task)
        };
        let unfinished = self.tasks.iter().filter(alive).map(|task| task.id);
        // Those that the main thread has not come to would have had the next ids.
        let (next, to_come) = (self.tasks.len(), self.population.nr_to_come());
        let unfinished = unfinished
            .chain((next..next + to_come).map(TaskId))
            .collect();
        let summary = Summary {
            end,
            makespan,
            begun: Instant::from_ns(self.tally.begun()),
            work: self.tally.work(),
            switches: self.tally.switches(),
            events: self.progress.events(),
            tasks: self.nr_tasks(),
            unfinished,
            to_come,
            probes: self.cpus.iter().map(|c| *c.this.probes.borrow()).collect(),
            cache: self.shared.cache.borrow().clone(),
        };
        assert!(self.summary.set(summary).is_ok(), "a run is closed once");
        self.life.close();
        for cpu in &self.cpus {
            cpu.close();
        }
    }

    /// Marks an interrupt pending on `cpu`, which goes on if it can take interrupts now.
    pub(crate) fn raise(&self, cpu: CpuId, irq: u32, time: u64) -> Option<CpuId> {
        self.raise_on(&self.cpus[cpu.index()], irq, time)
    }

    #[inline(always)]
    fn raise_on(&self, c: &Cpu, irq: u32, time: u64) -> Option<CpuId> {
        c.raise(irq);
        match c.wait() {
            Wait::Segment => self.queue.cancel_main(c.id),
            Wait::Idle => {}
            // A task has come that is to go elsewhere.
            Wait::Offline if irq == crate::state::cpu::irq::RESCHED => {}
            Wait::Resume | Wait::Offline => return None,
        }
        c.interrupt(time);
        Some(c.id)
    }

    fn tick_due(&self, cpu: CpuId, time: u64) -> Option<CpuId> {
        let c = &self.cpus[cpu.index()];
        // An idle CPU has no tick: leaving idle starts it again.
        if c.curr().is_none() && c.wait() == Wait::Idle {
            return None;
        }
        let mut irqs = 0;
        if c.fair.slice_ends(time) {
            irqs |= crate::state::cpu::irq::HRTICK;
        }
        if time.is_multiple_of(self.costs.tick_period_ns) {
            irqs |= crate::state::cpu::irq::TICK;
        }
        self.set_event(cpu, CpuEvent::Tick, self.next_tick(c, time));
        // Neither: the slice that was to end has been replaced by another one.
        (irqs != 0).then(|| self.raise_on(c, irqs, time)).flatten()
    }

    /// No task is runnable and none sleeps: if no task is about to be woken, they wait for each other.
    fn check_deadlock(&self) {
        let all_idle = self
            .cpus
            .iter()
            .all(|c| matches!(c.wait(), Wait::Idle | Wait::Offline) && !c.has_irq());
        if all_idle
            && self.stuck.get().is_none()
            && !self.life.is_stopping()
            && self.population.nr_alive() > 0
        {
            self.deadlocked();
        }
    }

    /// The time of the earliest event.
    #[inline]
    pub(crate) fn horizon(&self) -> &Cell<u64> {
        self.queue.horizon()
    }

    pub(crate) fn set_event(&self, cpu: CpuId, event: CpuEvent, time: u64) {
        self.queue.set(cpu, event, time);
    }

    pub(crate) fn cancel_event(&self, cpu: CpuId, event: CpuEvent) {
        self.queue.cancel(cpu, event);
    }

    pub(crate) fn set_timer(&self, timer: Timer, cpu: CpuId, time: u64) {
        self.queue.set_timer(timer, cpu, time);
    }

    /// Sets the timer that ends a task's wait or begins its life.
    pub(crate) fn set_task_timer(&self, timer: Timer, cpu: CpuId, time: u64) {
        self.population.add_timer();
        self.queue.add_task_timer(timer, cpu, time);
    }

    /// A timer interrupt of `cpu` at `now`, whatever it was for, ends a sleep there that may end by now.
    #[inline]
    pub(crate) fn pop_sleep(&self, cpu: CpuId, now: u64) -> Option<TaskId> {
        let task = self.queue.pop_sleep(cpu, now + self.setup.timer_slack_ns)?;
        self.population.remove_timer();
        Some(task)
    }

    pub(crate) fn cancel_timer(&self, timer: Timer) -> bool {
        self.queue.cancel_timer(timer)
    }

    /// Whether something is pending that comes before what `c` does now.
    #[inline(always)]
    pub(crate) fn must_wait(&self, c: &Cpu) -> bool {
        self.horizon().get() <= c.this.now.get() && self.is_late(c)
    }

    /// As [`Kernel::must_wait`], of a CPU that is not earlier than the earliest event.
    #[inline(always)]
    fn is_late(&self, c: &Cpu) -> bool {
        let (horizon, now) = (self.horizon().get(), c.this.now.get());
        (horizon < now || self.queue.head().cpu() < c.id.0) && !self.life.is_alone()
    }

    /// Whether `c` may go on to `time` at once: no event comes before it there.
    #[inline]
    pub(crate) fn is_before_all(&self, c: &Cpu, time: u64) -> bool {
        let horizon = self.horizon().get();
        (time < horizon || (time == horizon && c.id.0 <= self.queue.head().cpu()))
            && !self.life.is_stopping()
    }

    /// Makes fibers that can be suspended by [`Kernel::pause`].
    pub(crate) fn fibers(&self) -> Fibers<'_> {
        Fibers::new(&self.switch)
    }

    /// Suspends the CPU that runs, until the executor resumes it.
    #[inline]
    pub(crate) fn pause(&self) {
        self.switch.suspend();
    }

    /// Lets everything earlier happen first. Not inlined, so that who need not wait saves no registers.
    #[inline(never)]
    fn wait_if_late(&self, c: &Cpu) {
        if self.is_late(c) {
            self.wait_for_turn(c);
        }
    }

    /// Lets everything earlier happen first: something is.
    #[inline(always)]
    pub(crate) fn wait_for_turn(&self, c: &Cpu) {
        c.set_wait(Wait::Resume);
        self.queue.wait_for_turn(c.id, c.this.now.get());
        self.pause();
    }

    /// A synchronisation point: on return nothing is pending that is earlier than this CPU.
    #[inline(always)]
    pub(crate) fn sync(&self, c: &Cpu) {
        if self.horizon().get() <= c.this.now.get() {
            self.wait_if_late(c);
        }
    }

    /// Lets `ns` pass on `c`.
    #[inline]
    pub(crate) fn charge(&self, c: &Cpu, ns: u64) {
        c.this.charge_ns(ns);
    }

    /// Lets `ps` picoseconds pass on `c`.
    #[inline]
    pub(crate) fn charge_ps(&self, c: &Cpu, ps: u64) {
        c.this.charge_ps(ps);
    }

    /// The line at `address`.
    pub(crate) fn line_at(&self, address: u64) -> LineRef {
        self.shared.cache.borrow_mut().line_at(address)
    }

    /// `c` reads `line`. As in [`Kernel::write_line`], what is not a hit is a function that is called last.
    #[inline(never)]
    pub(crate) fn read_line(&self, c: &Cpu, line: LineRef) {
        let own = self.shared.cache.borrow_mut().read_own(c.cache, line);
        match own {
            Some(cost_ps) => self.charge_ps(c, cost_ps),
            None => self.read_line_of_others(c, line),
        }
    }

    #[inline(never)]
    fn read_line_of_others(&self, c: &Cpu, line: LineRef) {
        let mut cache = self.shared.cache.borrow_mut();
        let cost_ps = cache.read_others(c.id, self.now(c), line);
        self.charge_ps(c, cost_ps);
    }

    /// `c` writes `line`, doing something that itself takes `work_ps`. All that is not a hit of the CPU's own line is
    /// a function that is called last, so that a hit saves no registers.
    #[inline(never)]
    pub(crate) fn write_line(&self, c: &Cpu, line: LineRef, work_ps: u64) {
        let own = self.shared.cache.borrow_mut().write_own(c.cache, line);
        match own {
            Some(cost_ps) => self.charge_ps(c, cost_ps + work_ps),
            None => self.write_line_of_others(c, line, work_ps),
        }
    }

    #[inline(never)]
    fn write_line_of_others(&self, c: &Cpu, line: LineRef, work_ps: u64) {
        let mut cache = self.shared.cache.borrow_mut();
        let cost_ps = cache.write_others(c.id, c.cache, || self.now(c), line);
        self.charge_ps(c, cost_ps + work_ps);
    }

    /// Returns the cost of the accesses of `c` so far beyond hits, in picoseconds.
    pub(crate) fn memory_wait_ps(&self, c: &Cpu) -> u64 {
        self.shared.cache.borrow().wait_ps(c.id)
    }

    pub(crate) fn task_address(&self, task: TaskId) -> u64 {
        self.addresses.of(task)
    }

    pub(crate) fn rq_address(&self, cpu: CpuId) -> u64 {
        address::runqueue(cpu)
    }

    /// Records an event of `c` at its local time. Inlined, so that the recorder's choice by kind of
    /// event is made by the compiler.
    #[inline(always)]
    pub(crate) fn record(&self, c: &Cpu, event: TraceEvent) {
        if !self.life.is_mute() {
            self.recorder
                .record(Instant::from_ns(c.this.now.get()), c.id, event);
        }
    }

    /// From now on `c` spends its time on `mode`; returns what it was.
    #[inline]
    pub(crate) fn set_mode(&self, c: &Cpu, mode: CpuMode) -> CpuMode {
        let before = c.enter_mode(mode);
        if before != mode {
            self.record(c, TraceEvent::Mode(mode));
        }
        before
    }

    #[inline]
    pub(crate) fn task(&self, id: TaskId) -> &Task {
        self.tasks
            .get(id)
            .expect("task ids are handed out by the task table")
    }

    #[inline]
    pub(crate) fn cpu(&self, id: CpuId) -> &Cpu {
        &self.cpus[id.index()]
    }

    #[inline]
    pub(crate) fn has_op(&self, op: OpKind) -> bool {
        self.ops.present.has(op)
    }

    /// Whether the scenario asks for this fault of the virtual kernel.
    #[inline(always)]
    pub(crate) fn mutated(&self, mutation: Mutation) -> bool {
        mutation::active(self.setup.mutation, mutation)
    }

    pub(crate) fn has_flag(&self, flag: u64) -> bool {
        self.ops.flags & flag != 0
    }

    /// `jiffies` at the local time of `c`.
    pub(crate) fn jiffies(&self, now: u64) -> u64 {
        now / self.costs.tick_period_ns
    }

    /// Whether there is such a CPU, and it is online.
    #[inline]
    pub(crate) fn is_online(&self, cpu: CpuId) -> bool {
        self.online.contains(cpu)
    }

    /// `cpu_online_mask`. A CPU that goes is in it until its ops.cpu_offline() has returned, though no task is put
    /// there any more (`cpu_active_mask`).
    pub(crate) fn online_mask(&self) -> CpuSet {
        let mut mask = self.online.borrow().clone();
        if !self.online.is_all() {
            let going = self.cpus.iter().filter(|c| c.is_online());
            going.for_each(|c| mask.insert(c.id));
        }
        mask
    }

    /// `set_cpu_active()`.
    pub(crate) fn set_online(&self, cpu: CpuId, online: bool) {
        self.online.set(cpu, online);
    }

    /// `cpu`, or another one if it is offline.
    #[inline]
    pub(crate) fn online_or_other(&self, cpu: CpuId) -> CpuId {
        if self.is_online(cpu) {
            cpu
        } else {
            self.online.borrow().first().unwrap_or(CpuId(0))
        }
    }

    /// The policy broke a rule: it is unloaded and the run ends. The first reason counts.
    pub(crate) fn scx_error(&self, message: String) {
        self.exit_with(ExitKind::Error, 0, message);
    }

    pub(crate) fn exit_with(&self, kind: ExitKind, code: i64, message: String) {
        let is_first = match &*self.exit.borrow() {
            None => true,
            // Breaking a rule while it is unloaded changes nothing. A policy that no kernel would have loaded is
            // reported.
            Some(first) => first.kind == ExitKind::Unreg && kind == ExitKind::Fault,
        };
        if is_first {
            *self.exit.borrow_mut() = Some(ExitInfo {
                place: self.place_of_exit(kind),
                ..ExitInfo::new(kind, code, message)
            });
            self.life.end_policy();
        }
    }

    /// Why the policy ended, which is because it was `unregistered` if it has not.
    pub(crate) fn exit_or_else(&self, unregistered: impl FnOnce() -> ExitInfo) -> ExitInfo {
        let mut exit = self.exit.borrow_mut();
        exit.get_or_insert_with(unregistered).clone()
    }

    pub(crate) fn has_exit(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Where the policy did what ends it. What it has inserted is carried out after the op.
    #[cold]
    fn place_of_exit(&self, kind: ExitKind) -> Option<Place> {
        if !matches!(
            kind,
            ExitKind::Error | ExitKind::ErrorBpf | ExitKind::UnregBpf
        ) {
            return None;
        }
        let c = self.cpu(self.progress.running());
        // Carrying out an insertion may call another op.
        let by_op = !matches!(c.this.op.get(), None | Some(OpKind::Dispatch));
        match c.dispatch.inserting() {
            Some(task) if !by_op => self.policy.place_of_insertion(task),
            _ => self.policy.place_of_call(&c.this),
        }
    }

    pub(crate) fn fail(&self, failure: WorkloadFailure) {
        let _ = self.failure.set(failure);
        self.life.stop();
    }

    /// The workload would fail, but its duration ends that.
    pub(crate) fn set_stuck(&self, failure: WorkloadFailure) {
        let _ = self.stuck.set(failure);
    }

    /// A missing resource of the host ends the run, and no part of it counts.
    pub(crate) fn host_failed(&self, why: NoStack) {
        let cpus = self.cpus.len() as u32;
        let _ = self.host_failure.set(HostFailure::Stacks { cpus, why });
    }

    fn finish<L>(self, give_back: impl FnOnce(R) -> L) -> RunEnd<P, L> {
        if !self.life.is_closed() {
            // Nothing ran at all, or nothing was left to happen.
            self.close();
        }
        let cpuperf_requests = self.tally.cpuperf_requests();
        let mut counters = self.tally.into_counters();
        for task in self.tasks.iter() {
            task.program.end(&mut counters);
        }
        // The workload ended: the loader of the policy has unloaded it.
        let summary = self.summary.into_inner().expect("made by close()");
        let exit = self.exit.into_inner();
        let exit = exit.filter(|exit| exit.kind != ExitKind::Unreg);
        RunEnd {
            exit: exit.unwrap_or_else(|| ExitInfo::new(ExitKind::Done, 0, String::new())),
            failure: self.failure.into_inner(),
            host_failure: self.host_failure.into_inner(),
            stuck: self.stuck.into_inner(),
            end: summary.end,
            begun: summary.begun,
            makespan: summary.makespan,
            work: summary.work,
            counters,
            probes: summary.probes,
            cache: summary.cache,
            switches: summary.switches,
            events: summary.events,
            tasks: summary.tasks,
            unfinished: summary.unfinished,
            to_come: summary.to_come,
            cpuperf_requests,
            policy: self.policy,
            recorder: give_back(self.recorder),
        }
    }
}
