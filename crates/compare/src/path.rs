//! Where the time of a run goes: what each task waits for, and the critical path, from the events alone.
//!
//! The critical path is walked from the end of the last task back to the begin: through its time on a CPU and its
//! waits for one; where it slept until another task woke it, the path goes on in that task (Yang & Miller, *Critical
//! path analysis for the execution of parallel and distributed programs*, 1988). So its parts add up to the makespan.

use std::collections::{BTreeMap, BTreeSet};

use schedlab_trace::{
    CpuId, CpuMode, Event, Instant, Listener, LockClass, LockId, PrevState, TaskId, TaskMeta,
};
use schedlab_workload::recorded::OTHER;
use serde::Serialize;

/// More stretches are not kept: there is no path then, and sums go on.
const STRETCHES_MAX: usize = 8_000_000;
/// Nor are more spins.
const SPINS_MAX: usize = 2_000_000;
/// An exit in the last part of a run that is so small, in percent, is its end: what lives on is of no interest.
const END_PCT: u64 = 1;
/// Steps at one instant after which the walk leaves a circle of wakeups.
const IDLE_STEPS_MAX: usize = 64;

/// Times by what they went into. Times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Times {
    /// On a CPU.
    pub running_ns: u64,
    /// Waits for a CPU that a wakeup or the creation of the task began.
    pub woken_ns: u64,
    /// Waits for a CPU that the task had: another task took it, or it yielded it.
    pub preempted_ns: u64,
    /// Sleeps that another task ended: locks, pipes, barriers, queues. On a path the other task's time stands for them.
    pub tasks_ns: u64,
    /// Sleeps that a timer or a device ended.
    pub timer_ns: u64,
    /// Sleeps that had not ended when the run did; on a path, also the time before the first event of its first task.
    pub other_ns: u64,
}

impl Times {
    /// All of them.
    pub fn total_ns(&self) -> u64 {
        let Times {
            running_ns,
            woken_ns,
            preempted_ns,
            tasks_ns,
            timer_ns,
            other_ns,
        } = self;
        running_ns + woken_ns + preempted_ns + tasks_ns + timer_ns + other_ns
    }

    /// Waits for a CPU.
    pub fn waits_ns(&self) -> u64 {
        self.woken_ns + self.preempted_ns
    }

    fn add(&mut self, kind: Kind, ns: u64) {
        match kind {
            Kind::Runs(_) => self.running_ns += ns,
            Kind::Waits(Why::Woken) => self.woken_ns += ns,
            Kind::Waits(Why::Left) => self.preempted_ns += ns,
            Kind::Sleeps(Waker::Task(_)) => self.tasks_ns += ns,
            Kind::Sleeps(Waker::Timer) => self.timer_ns += ns,
            Kind::Sleeps(Waker::Nobody) => self.other_ns += ns,
        }
    }
}

/// The tasks of one name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct OfName {
    /// How many.
    pub tasks: u32,
    /// Their time, together.
    pub times: Times,
    /// How often they began to run on another CPU than before.
    pub migrations: u64,
}

/// The parts of a run's time.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Decomposed {
    /// From the begin of the part that counts until the last task of the program ended.
    pub makespan_ns: u64,
    /// When that part began.
    #[serde(skip)]
    pub begun_ns: u64,
    /// The program's tasks by name, with the longest waits for a CPU first.
    pub names: Vec<(String, OfName)>,
    /// Parts of the critical path; absent if the run was too long to keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Times>,
    /// The path's tasks by name, with the longest times first.
    pub path_names: Vec<(String, Times)>,
    /// The path's time on a CPU, by CPU.
    pub path_cpus_ns: Vec<u64>,
    /// Time of the program's tasks in their own code, by CPU.
    pub user_ns: Vec<u64>,
    /// And in the kernel, without the scheduler.
    pub kernel_ns: Vec<u64>,
    /// How many of the program's tasks wait for a CPU, in the mean of each of [`SLOTS`] equal parts of the makespan.
    #[serde(skip)]
    pub waiting: Vec<f64>,
}

/// Parts of the makespan for pictures.
pub const SLOTS: usize = 160;

/// Why a task waits for a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Woken,
    /// It was on a CPU: another task took that, or it yielded it.
    Left,
}

/// The cause that ended a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waker {
    Task(u32),
    Timer,
    /// It had not ended when the run did.
    Nobody,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Runs(CpuId),
    Waits(Why),
    Sleeps(Waker),
}

/// A time in which a task did one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stretch {
    from: u64,
    to: u64,
    kind: Kind,
}

/// The present state of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// Not yet, or not any more.
    #[default]
    None,
    Runs,
    Waits(Why),
    Sleeps,
}

#[derive(Clone, Debug, Default)]
struct Task {
    comm: String,
    counts: bool,
    state: State,
    since: u64,
    /// It was woken before it had left its CPU.
    woken_early: bool,
    /// The creator, and when it became runnable first.
    begun: Option<(Option<u32>, u64)>,
    cpu: Option<CpuId>,
    migrations: u64,
    times: Times,
    stretches: Vec<Stretch>,
}

#[derive(Clone, Debug)]
struct Cpu {
    current: Option<u32>,
    mode: CpuMode,
    since: u64,
    /// Sleeps that a call of the current task, or an interrupt, has ended here: the CPU's next step shows which. By task and stretch.
    ended: Vec<(u32, usize, u64)>,
    user_ns: u64,
    kernel_ns: u64,
    /// The lock that it found held last.
    contends: Option<u32>,
}

/// A lock and what it cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lock {
    /// Its name.
    pub name: String,
    /// The data that it protects.
    pub class: LockClass,
    /// Attempts that got it.
    pub acquisitions: u64,
    /// Attempts that found it held, failed ones of those that try included.
    pub contended: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Waits of those that waited, together.
    pub waited_ns: u64,
    /// How long it was held.
    pub held_ns: u64,
}

/// A time in which a CPU spun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spin {
    pub(crate) cpu: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The lock's number, if it was for a lock.
    pub(crate) lock: Option<u32>,
}

/// The action of a task in a stretch, for pictures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    /// It ran on this CPU.
    Runs(u32),
    Waits,
    /// It waited until the end of the run.
    WaitsOn,
    /// It slept until this task woke it.
    Woken(u32),
    /// It slept until a timer or a device woke it.
    Sleeps,
    /// It slept until the end of the run.
    SleepsOn,
}

/// Listens to a run and takes its time apart.
#[derive(Clone, Debug, Default)]
pub struct Decomposer {
    tasks: Vec<Task>,
    cpus: Vec<Cpu>,
    /// Tasks outside the program.
    starters: BTreeSet<TaskId>,
    kept: usize,
    /// The last end of a task of the program.
    last: Option<(u32, u64)>,
    /// Since when the run counts.
    begun: u64,
    /// When it is to count, of events that do not say so.
    begins_at: Option<u64>,
    now: u64,
    /// The events have modes of CPUs, so that wakeups by interrupts and by calls differ.
    has_modes: bool,
    /// Locks and spins are kept, too.
    watches: bool,
    locks: Vec<Option<Lock>>,
    spins: Vec<Spin>,
}

impl Decomposer {
    /// Listens for [`Decomposer::watched`], too: keeps locks and spins.
    pub fn watching() -> Decomposer {
        Decomposer {
            watches: true,
            ..Decomposer::default()
        }
    }

    /// Listens to a run that counts from `at` on, of which the events do not say that.
    pub fn counting_from(at: Instant) -> Decomposer {
        Decomposer {
            begins_at: Some(at.ns()).filter(|at| *at > 0),
            ..Decomposer::default()
        }
    }

    fn task(&mut self, task: TaskId) -> &mut Task {
        if task.index() >= self.tasks.len() {
            self.tasks.resize_with(task.index() + 1, Task::default);
        }
        &mut self.tasks[task.index()]
    }

    fn cpu(&mut self, cpu: CpuId) -> &mut Cpu {
        if cpu.index() >= self.cpus.len() {
            let idle = Cpu {
                current: None,
                mode: CpuMode::Idle,
                since: 0,
                ended: Vec::new(),
                user_ns: 0,
                kernel_ns: 0,
                contends: None,
            };
            self.cpus.resize(cpu.index() + 1, idle);
        }
        &mut self.cpus[cpu.index()]
    }

    /// Ends what a task did until `at`; returns the place of the stretch, if it is kept.
    fn end(&mut self, task: TaskId, at: u64, kind: Kind) -> Option<usize> {
        let room = self.kept < STRETCHES_MAX;
        let known = self.task(task);
        let from = known.since;
        let to = at.max(from);
        known.times.add(kind, to - from);
        known.since = to;
        if to == from || !room {
            return None;
        }
        known.stretches.push(Stretch { from, to, kind });
        let place = known.stretches.len() - 1;
        self.kept += 1;
        Some(place)
    }

    /// Says whether the CPU's last wakeups came from an interrupt or from a call of its task.
    fn resolve(&mut self, cpu: CpuId, is_call: bool) {
        let waker = match (is_call, self.cpu(cpu).current) {
            (true, Some(task)) => Waker::Task(task),
            _ => Waker::Timer,
        };
        let ended = std::mem::take(&mut self.cpu(cpu).ended);
        for (task, place, slept) in ended {
            let known = &mut self.tasks[task as usize];
            if let Waker::Task(_) = waker {
                known.times.timer_ns -= slept;
                known.times.tasks_ns += slept;
                if let Some(stretch) = known.stretches.get_mut(place) {
                    stretch.kind = Kind::Sleeps(waker);
                }
            }
        }
    }

    /// Adds the time since the last change to the mode that was.
    fn account(&mut self, cpu: CpuId, at: u64) {
        let counts = self.cpu(cpu).current;
        let counts = counts.is_some_and(|task| self.tasks[task as usize].counts);
        let keeps = self.watches && self.spins.len() < SPINS_MAX;
        let known = self.cpu(cpu);
        let ns = at.saturating_sub(known.since);
        known.since = at;
        match known.mode {
            CpuMode::User if counts => known.user_ns += ns,
            CpuMode::Kernel if counts => known.kernel_ns += ns,
            CpuMode::Spin if keeps && ns > 0 => {
                let spin = Spin {
                    cpu: cpu.0,
                    from: at - ns,
                    to: at,
                    lock: known.contends,
                };
                self.spins.push(spin);
            }
            _ => {}
        }
    }

    fn lock(&mut self, lock: LockId) -> Option<&mut Lock> {
        self.locks.get_mut(lock.index())?.as_mut()
    }

    fn woken(&mut self, task: TaskId, cpu: CpuId, decided: u64) {
        let waker = self.cpu(cpu).current;
        let known = self.task(task);
        match known.state {
            State::None => {
                known.begun.get_or_insert((waker, decided));
                known.state = State::Waits(Why::Woken);
                known.since = decided;
            }
            State::Runs => known.woken_early = true,
            State::Waits(_) => {}
            State::Sleeps => {
                let slept = decided.saturating_sub(known.since);
                let place = self.end(task, decided, Kind::Sleeps(Waker::Timer));
                self.task(task).state = State::Waits(Why::Woken);
                let place = place.unwrap_or(usize::MAX);
                self.cpu(cpu).ended.push((task.0, place, slept));
                if !self.has_modes {
                    // No event separates interrupts from calls: the task that runs there stands for both.
                    self.resolve(cpu, true);
                }
            }
        }
    }

    fn off(&mut self, task: TaskId, cpu: CpuId, at: u64, how: PrevState) {
        self.end(task, at, Kind::Runs(cpu));
        let known = self.task(task);
        let early = std::mem::take(&mut known.woken_early);
        known.state = match how {
            PrevState::Preempted | PrevState::Yielded => State::Waits(Why::Left),
            PrevState::Blocked if early => State::Waits(Why::Woken),
            PrevState::Blocked => State::Sleeps,
            PrevState::Exited => State::None,
        };
        let is_end = how == PrevState::Exited && known.counts;
        if is_end && self.last.is_none_or(|(_, last)| at >= last) {
            self.last = Some((task.0, at));
        }
    }

    fn on(&mut self, task: TaskId, cpu: CpuId, at: u64) {
        if let State::Waits(why) = self.task(task).state {
            self.end(task, at, Kind::Waits(why));
        }
        let known = self.task(task);
        known.migrations += u64::from(known.cpu.is_some_and(|before| before != cpu));
        known.cpu = Some(cpu);
        known.state = State::Runs;
        known.since = at.max(known.since);
    }

    /// Forgets all times before the begin.
    fn begin(&mut self, at: u64) {
        self.begun = at;
        for task in &mut self.tasks {
            task.times = Times::default();
            task.migrations = 0;
            task.since = task.since.max(at);
        }
        for cpu in &mut self.cpus {
            (cpu.user_ns, cpu.kernel_ns) = (0, 0);
            cpu.since = cpu.since.max(at);
            // Sleeps that it has just ended have no sum to be taken out of.
            for (_, _, slept) in &mut cpu.ended {
                *slept = 0;
            }
        }
        self.spins.clear();
        for lock in self.locks.iter_mut().flatten() {
            (lock.acquisitions, lock.contended, lock.failed) = (0, 0, 0);
            (lock.waited_ns, lock.held_ns) = (0, 0);
        }
    }

    /// Takes apart what was heard of a run that came to its end.
    pub fn finish(mut self) -> Decomposed {
        self.close(true);
        self.decomposed()
    }

    /// Ends what goes on at the end of the run, which was cut off or has come to its own end.
    pub(crate) fn close(&mut self, is_done: bool) {
        for cpu in 0..self.cpus.len() as u32 {
            self.resolve(CpuId(cpu), false);
        }
        let now = self.now;
        // The last task of a run that was cut off runs at its end, or else waits, or else was the last to go to sleep.
        let (mut runs, mut waits, mut sleeps) = (None, None, None::<(u64, u32)>);
        for task in 0..self.tasks.len() as u32 {
            let known = &self.tasks[task as usize];
            let (kind, place) = match known.state {
                State::None => continue,
                State::Runs => (Kind::Runs(known.cpu.unwrap_or(CpuId(0))), Some(&mut runs)),
                State::Waits(why) => (Kind::Waits(why), Some(&mut waits)),
                State::Sleeps => (Kind::Sleeps(Waker::Nobody), None),
            };
            match place.filter(|_| known.counts) {
                Some(place) => {
                    place.get_or_insert(task);
                }
                None if known.counts => sleeps = sleeps.max(Some((known.since, task))),
                None => {}
            }
            self.end(TaskId(task), now, kind);
        }
        let open = runs.or(waits).or(sleeps.map(|(_, task)| task));
        let span = now.saturating_sub(self.begun);
        let is_end = |at: u64| is_done && 100 * (now - at) <= END_PCT * span;
        if self.last.is_none_or(|(_, at)| !is_end(at)) {
            self.last = open.map(|task| (task, now)).or(self.last);
        }
    }

    /// The part of the run that counts, until the last event: sums of locks are of that.
    pub(crate) fn span_ns(&self) -> u64 {
        self.now.saturating_sub(self.begun)
    }

    /// Number of tasks that were ever named.
    pub(crate) fn nr_tasks(&self) -> u32 {
        self.tasks.len() as u32
    }

    /// Tasks of the program.
    pub(crate) fn counted(&self) -> impl Iterator<Item = u32> {
        let tasks = (0..).zip(&self.tasks);
        tasks.filter(|(_, task)| task.counts).map(|(task, _)| task)
    }

    pub(crate) fn comm(&self, task: u32) -> &str {
        &self.tasks[task as usize].comm
    }

    /// Its name, with a number for others of the same name.
    pub(crate) fn name(&self, task: u32) -> String {
        format!("{} {task}", self.comm(task))
    }

    pub(crate) fn times(&self, task: u32) -> Times {
        self.tasks[task as usize].times
    }

    pub(crate) fn migrations(&self, task: u32) -> u64 {
        self.tasks[task as usize].migrations
    }

    /// The actions of a task, in the order of time.
    pub(crate) fn pieces(&self, task: u32) -> Vec<(u64, u64, Piece)> {
        let of = |one: &Stretch| {
            let piece = match one.kind {
                Kind::Runs(cpu) => Piece::Runs(cpu.0),
                Kind::Waits(_) => Piece::Waits,
                Kind::Sleeps(Waker::Task(waker)) => Piece::Woken(waker),
                Kind::Sleeps(Waker::Timer) => Piece::Sleeps,
                Kind::Sleeps(Waker::Nobody) => Piece::SleepsOn,
            };
            (one.from, one.to, piece)
        };
        let known = &self.tasks[task as usize];
        let mut pieces: Vec<(u64, u64, Piece)> = known.stretches.iter().map(of).collect();
        if let Some((_, to, piece @ Piece::Waits)) = pieces.last_mut()
            && *to == self.now
            && matches!(known.state, State::Waits(_))
        {
            *piece = Piece::WaitsOn;
        }
        pieces
    }

    pub(crate) fn spins(&self) -> &[Spin] {
        &self.spins
    }

    /// Returns whether the events have modes of CPUs, as in a simulation.
    pub(crate) fn has_modes(&self) -> bool {
        self.has_modes
    }

    /// Whether the end of the run was not kept.
    pub(crate) fn is_cut(&self) -> bool {
        self.kept >= STRETCHES_MAX || self.spins.len() >= SPINS_MAX
    }

    /// Names of locks, by number.
    pub(crate) fn lock_names(&self) -> impl Iterator<Item = String> {
        let names = self.locks.iter();
        names.map(|lock| {
            lock.as_ref()
                .map_or(String::new(), |lock| lock.name.clone())
        })
    }

    /// Locks that were taken or tried, with the longest held first.
    pub(crate) fn locks(&self) -> Vec<Lock> {
        let used = |lock: &&Lock| lock.acquisitions + lock.failed > 0;
        let mut locks: Vec<Lock> = self.locks.iter().flatten().filter(used).cloned().collect();
        locks.sort_by_key(|lock| std::cmp::Reverse(lock.held_ns));
        locks
    }

    pub(crate) fn decomposed(&self) -> Decomposed {
        let last = self.last;
        let mut names: BTreeMap<&str, OfName> = BTreeMap::new();
        for task in self.tasks.iter().filter(|task| task.counts) {
            let of = names.entry(&task.comm).or_default();
            of.tasks += 1;
            of.migrations += task.migrations;
            of.times = sum(of.times, task.times);
        }
        let mut names: Vec<(String, OfName)> = names
            .into_iter()
            .map(|(name, of)| (name.to_owned(), of))
            .collect();
        names.sort_by_key(|(_, of)| std::cmp::Reverse(of.times.waits_ns()));
        let path = last.filter(|_| self.kept < STRETCHES_MAX);
        let walked = path.map(|(task, at)| self.walk(task, at));
        let path = walked.as_ref().map(|walk| walk.times);
        let Walk {
            names: path_names,
            cpus_ns: path_cpus_ns,
            ..
        } = walked.unwrap_or_default();
        let end = last.map_or(self.now, |(_, at)| at);
        let makespan_ns = end.saturating_sub(self.begun);
        Decomposed {
            makespan_ns,
            begun_ns: self.begun,
            waiting: self.waiting(makespan_ns),
            names,
            path,
            path_names,
            path_cpus_ns,
            user_ns: self.cpus.iter().map(|cpu| cpu.user_ns).collect(),
            kernel_ns: self.cpus.iter().map(|cpu| cpu.kernel_ns).collect(),
        }
    }

    /// How many tasks wait, over time.
    fn waiting(&self, makespan_ns: u64) -> Vec<f64> {
        let mut slots = vec![0.0; SLOTS];
        let size = makespan_ns as f64 / SLOTS as f64;
        if size <= 0.0 {
            return slots;
        }
        let counted = self.tasks.iter().filter(|task| task.counts);
        let waits = counted
            .flat_map(|task| &task.stretches)
            .filter(|stretch| matches!(stretch.kind, Kind::Waits(_)));
        for stretch in waits {
            let place = |at: u64| at.saturating_sub(self.begun) as f64 / size;
            let (from, to) = (place(stretch.from), place(stretch.to));
            let last = (to.ceil() as usize).min(SLOTS);
            for (slot, sum) in slots.iter_mut().enumerate().take(last).skip(from as usize) {
                let part = to.min(slot as f64 + 1.0) - from.max(slot as f64);
                *sum += part.max(0.0);
            }
        }
        slots
    }

    /// Walks back from a task at a time.
    fn walk(&self, task: u32, at: u64) -> Walk {
        let (mut task, mut at) = (task as usize, at);
        let mut cpus_ns = vec![0; self.cpus.len()];
        let mut path = Times::default();
        let mut names: BTreeMap<&str, Times> = BTreeMap::new();
        let mut idle_steps = 0;
        while at > self.begun {
            let known = &self.tasks[task];
            let before = known.stretches.partition_point(|one| one.from < at);
            let found = before.checked_sub(1).map(|place| known.stretches[place]);
            let name = names.entry(&known.comm).or_default();
            let Some(stretch) = found else {
                // It has just come into being.
                match known.begun {
                    Some((Some(creator), _)) if idle_steps < IDLE_STEPS_MAX => {
                        task = creator as usize;
                        idle_steps += 1;
                        continue;
                    }
                    _ => {
                        path.other_ns += at - self.begun;
                        name.other_ns += at - self.begun;
                        break;
                    }
                }
            };
            let to = stretch.to.max(self.begun);
            if to < at {
                // A gap: the time from the decision to wake it until it left its CPU.
                path.running_ns += at - to;
                name.running_ns += at - to;
                at = to;
            }
            if let Kind::Sleeps(Waker::Task(waker)) = stretch.kind
                && idle_steps < IDLE_STEPS_MAX
            {
                task = waker as usize;
                idle_steps += 1;
                continue;
            }
            let ns = at.saturating_sub(stretch.from.max(self.begun));
            if let Kind::Runs(cpu) = stretch.kind {
                cpus_ns[cpu.index()] += ns;
            }
            path.add(stretch.kind, ns);
            name.add(stretch.kind, ns);
            at = stretch.from;
            idle_steps = 0;
        }
        let mut names: Vec<(String, Times)> = names
            .into_iter()
            .map(|(name, times)| (name.to_owned(), times))
            .collect();
        names.sort_by_key(|(_, times)| std::cmp::Reverse(times.total_ns()));
        Walk {
            times: path,
            names,
            cpus_ns,
        }
    }
}

/// The critical path of a run.
#[derive(Clone, Debug, Default)]
struct Walk {
    times: Times,
    names: Vec<(String, Times)>,
    /// Time on each CPU.
    cpus_ns: Vec<u64>,
}

fn sum(a: Times, b: Times) -> Times {
    Times {
        running_ns: a.running_ns + b.running_ns,
        woken_ns: a.woken_ns + b.woken_ns,
        preempted_ns: a.preempted_ns + b.preempted_ns,
        tasks_ns: a.tasks_ns + b.tasks_ns,
        timer_ns: a.timer_ns + b.timer_ns,
        other_ns: a.other_ns + b.other_ns,
    }
}

impl Listener for Decomposer {
    fn define_lock(&mut self, lock: LockId, name: &str, class: LockClass) {
        if !self.watches {
            return;
        }
        if lock.index() >= self.locks.len() {
            self.locks.resize(lock.index() + 1, None);
        }
        self.locks[lock.index()].get_or_insert(Lock {
            name: name.to_owned(),
            class,
            acquisitions: 0,
            contended: 0,
            failed: 0,
            waited_ns: 0,
            held_ns: 0,
        });
    }

    fn define_starter(&mut self, task: TaskId) {
        self.starters.insert(task);
        self.task(task).counts = false;
    }

    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        let is_starter = self.starters.contains(&task);
        let known = self.task(task);
        known.counts = !is_starter && !meta.comm.starts_with(OTHER);
        known.comm.clone_from(&meta.comm);
    }

    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        let at = at.ns();
        self.now = self.now.max(at);
        if let Some(begin) = self.begins_at.take_if(|begin| *begin <= at) {
            self.begin(begin);
        }
        match event {
            Event::Mode(mode) => {
                self.has_modes = true;
                self.account(cpu, at);
                self.cpu(cpu).mode = mode;
                match mode {
                    // A call goes on behind a wakeup; an interrupt does not.
                    CpuMode::Kernel => self.resolve(cpu, true),
                    CpuMode::User | CpuMode::Idle => self.resolve(cpu, false),
                    CpuMode::Sched | CpuMode::Spin => {}
                }
            }
            Event::Begin => self.begin(at),
            Event::LockContended { lock, .. } if self.watches => {
                self.cpu(cpu).contends = Some(lock.0);
            }
            Event::LockAcquired {
                lock,
                waited,
                contended,
                ..
            } if self.watches => {
                // It may spin on for the lock until the next mode.
                self.account(cpu, at);
                self.cpu(cpu).contends = None;
                if let Some(known) = self.lock(lock) {
                    known.acquisitions += 1;
                    known.contended += u64::from(contended);
                    known.waited_ns += waited.ns();
                }
            }
            Event::LockTryFailed { lock, .. } if self.watches => {
                if let Some(known) = self.lock(lock) {
                    known.contended += 1;
                    known.failed += 1;
                }
            }
            Event::LockReleased { lock, held } if self.watches => {
                if let Some(known) = self.lock(lock) {
                    known.held_ns += held.ns();
                }
            }
            Event::Wakeup { task, since, .. } => {
                self.woken(task, cpu, at.saturating_sub(since.ns()));
            }
            Event::Switch {
                prev,
                prev_state,
                next,
            } => {
                self.account(cpu, at);
                self.resolve(cpu, false);
                if let Some(prev) = prev {
                    self.off(prev, cpu, at, prev_state);
                }
                if let Some(next) = next {
                    self.on(next, cpu, at);
                }
                self.cpu(cpu).current = next.map(|task| task.0);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::Story;

    /// By hand, on one CPU: a runs 0–10 and sleeps until b wakes it at 30; b runs 10–40, is preempted by a at 40
    /// although a could run since 30; a runs 40–60 and ends; b runs 60–70 and ends.
    #[test]
    fn a_path_goes_through_the_task_that_woke() {
        let mut story = Story::new(&["a", "b"]);
        story
            .wakes(0, 0, 0)
            .wakes(0, 0, 1)
            .switch(0, 0, None, Some(0))
            .switch(10, 0, Some((0, PrevState::Blocked)), Some(1))
            .mode(10, 0, CpuMode::User)
            .mode(29, 0, CpuMode::Kernel)
            .mode(29, 0, CpuMode::Sched)
            .wakes(30, 0, 0)
            .mode(30, 0, CpuMode::Kernel)
            .mode(31, 0, CpuMode::User)
            .switch(40, 0, Some((1, PrevState::Preempted)), Some(0))
            .switch(60, 0, Some((0, PrevState::Exited)), Some(1))
            .switch(70, 0, Some((1, PrevState::Exited)), None);
        let of = story.0.finish();
        assert_eq!(of.makespan_ns, 70);
        let by_name = |name: &str| {
            of.names
                .iter()
                .find(|(known, _)| known == name)
                .unwrap()
                .1
                .times
        };
        let a = by_name("a");
        assert_eq!((a.running_ns, a.woken_ns, a.tasks_ns), (30, 10, 20));
        let b = by_name("b");
        assert_eq!((b.running_ns, b.woken_ns, b.preempted_ns), (40, 10, 20));
        // b ran last: 60–70, waited 40–60 behind a, ran 10–40 and waited 0–10.
        let path = of.path.unwrap();
        assert_eq!(
            (path.running_ns, path.preempted_ns, path.woken_ns),
            (40, 20, 10)
        );
        assert_eq!(path.total_ns(), 70);
        // 10 ns of a's and 30 of b's.
        let waiting: f64 = of.waiting.iter().sum();
        assert!(
            (waiting * 70.0 / SLOTS as f64 - 40.0).abs() < 1e-6,
            "{waiting}"
        );
        // All of 10–70 but for the call.
        assert_eq!((of.user_ns, of.kernel_ns), (vec![58], vec![1]));
    }

    /// The same wakeup from an interrupt: the CPU goes back to its task's own code.
    #[test]
    fn an_interrupt_is_no_waker() {
        let mut story = Story::new(&["a", "b"]);
        story
            .wakes(0, 0, 0)
            .switch(0, 0, None, Some(0))
            .switch(10, 0, Some((0, PrevState::Blocked)), None)
            .wakes(5, 1, 1)
            .switch(5, 1, None, Some(1))
            .mode(5, 1, CpuMode::User)
            .mode(48, 1, CpuMode::Kernel)
            .mode(49, 1, CpuMode::Sched)
            .wakes(50, 1, 0)
            .mode(51, 1, CpuMode::User)
            .switch(52, 0, None, Some(0))
            .switch(55, 1, Some((1, PrevState::Exited)), None)
            .switch(60, 0, Some((0, PrevState::Exited)), None);
        let path = story.0.finish().path.unwrap();
        let parts = (path.running_ns, path.timer_ns, path.woken_ns);
        assert_eq!(parts, (10 + 8, 40, 2));
        assert_eq!(path.total_ns(), 60);
    }

    /// A wakes B on another CPU and sleeps; B runs on and is the last: the path is A's time, then B's.
    #[test]
    fn a_wait_for_another_task_is_that_tasks_time() {
        let mut story = Story::new(&["a", "b", "~other"]);
        story
            .wakes(0, 0, 1)
            .wakes(0, 0, 0)
            .switch(0, 0, None, Some(0))
            .switch(0, 1, None, Some(1))
            .switch(5, 1, Some((1, PrevState::Blocked)), None)
            .mode(90, 0, CpuMode::Sched)
            .wakes(100, 0, 1)
            .mode(100, 0, CpuMode::Kernel)
            .switch(103, 1, None, Some(1))
            .switch(110, 0, Some((0, PrevState::Exited)), Some(2))
            .switch(150, 1, Some((1, PrevState::Exited)), None)
            .switch(200, 0, Some((2, PrevState::Exited)), None);
        let of = story.0.finish();
        // The task beside the program is no part of it.
        assert_eq!(of.makespan_ns, 150);
        let path = of.path.unwrap();
        assert_eq!((path.running_ns, path.woken_ns), (100 + 47, 3));
        assert_eq!(of.path_names[0].0, "a");
        assert_eq!(of.path_cpus_ns, [100, 47]);
        assert_eq!(path.tasks_ns, 0);
        assert!(of.names.iter().all(|(name, _)| name != "~other"));
    }

    /// a runs from 0 and is preempted from 30 to 50; the part that counts begins at 40.
    #[test]
    fn what_was_before_the_begin_does_not_count() {
        let mut story = Story::new(&["a", "b"]);
        story
            .wakes(0, 0, 0)
            .switch(0, 0, None, Some(0))
            .wakes(20, 0, 1)
            .switch(30, 0, Some((0, PrevState::Preempted)), Some(1))
            .at(40, 0, Event::Begin)
            .switch(50, 0, Some((1, PrevState::Exited)), Some(0))
            .switch(75, 0, Some((0, PrevState::Exited)), None);
        let of = story.0.finish();
        assert_eq!((of.makespan_ns, of.begun_ns), (35, 40));
        let path = of.path.unwrap();
        assert_eq!((path.running_ns, path.preempted_ns), (25, 10));
        let (_, a) = of.names.iter().find(|(name, _)| name == "a").unwrap();
        assert_eq!((a.times.running_ns, a.times.preempted_ns), (25, 10));
    }

    #[test]
    fn a_run_that_was_cut_off_has_a_path_until_then() {
        let mut story = Story::new(&["a"]);
        story.wakes(0, 0, 0).switch(0, 0, None, Some(0));
        story.mode(80, 0, CpuMode::Kernel);
        let of = story.0.finish();
        assert_eq!(of.path.unwrap().running_ns, 80);
    }

    /// As [`what_was_before_the_begin_does_not_count`], without an event that says so.
    #[test]
    fn a_begin_that_is_told_is_as_one_among_the_events() {
        let told = |mut decomposer: Story, has_event: bool| {
            let story = &mut decomposer;
            story
                .mode(0, 0, CpuMode::User)
                .wakes(0, 0, 0)
                .switch(0, 0, None, Some(0))
                .wakes(20, 0, 1)
                .switch(30, 0, Some((0, PrevState::Preempted)), Some(1));
            if has_event {
                story.at(40, 0, Event::Begin);
            }
            story
                .switch(50, 0, Some((1, PrevState::Exited)), Some(0))
                .switch(75, 0, Some((0, PrevState::Exited)), None);
            decomposer.0.finish()
        };
        let names = ["a", "b"];
        let with_event = told(Story::new(&names), true);
        let of_time = Decomposer::counting_from(Instant::from_ns(40));
        let of_time = told(Story::of(of_time, &names), false);
        assert_eq!(of_time, with_event);
        assert_eq!((of_time.makespan_ns, of_time.user_ns[0]), (35, 35));
        let whole = Decomposer::counting_from(Instant::ZERO);
        assert_eq!(told(Story::of(whole, &names), false).makespan_ns, 75);
    }

    /// a ends at 10; b sleeps since 60 and c since 50 when the run is cut off at 100.
    #[test]
    fn the_last_to_go_to_sleep_stands_for_the_last_one() {
        let mut story = Story::new(&["a", "b", "c"]);
        story
            .wakes(0, 0, 0)
            .wakes(0, 1, 1)
            .wakes(0, 2, 2)
            .switch(0, 0, None, Some(0))
            .switch(0, 1, None, Some(1))
            .switch(0, 2, None, Some(2))
            .switch(10, 0, Some((0, PrevState::Exited)), None)
            .switch(50, 2, Some((2, PrevState::Blocked)), None)
            .switch(60, 1, Some((1, PrevState::Blocked)), None)
            .mode(100, 0, CpuMode::Idle);
        let of = story.0.finish();
        assert_eq!(of.makespan_ns, 100);
        let path = of.path.unwrap();
        assert_eq!((path.running_ns, path.other_ns), (60, 40));
    }

    /// The run ends with a; b, which serves it, would run for ever.
    #[test]
    fn a_task_that_outlives_the_program_is_not_its_end() {
        let mut story = Story::new(&["a", "b"]);
        story
            .wakes(0, 0, 0)
            .switch(0, 0, None, Some(0))
            .wakes(900, 1, 1)
            .switch(950, 1, None, Some(1))
            .switch(1_000, 0, Some((0, PrevState::Exited)), None)
            .mode(1_005, 1, CpuMode::Kernel);
        let of = story.0.finish();
        assert_eq!(of.makespan_ns, 1_000);
        assert_eq!(of.path.unwrap().running_ns, 1_000);
    }

    /// Of a run that was cut off, the task that runs at its end stands for the last one.
    #[test]
    fn a_run_that_was_cut_off_ends_with_who_runs() {
        let mut story = Story::new(&["a", "b"]);
        story
            .wakes(0, 0, 0)
            .switch(0, 0, None, Some(0))
            .wakes(0, 1, 1)
            .switch(0, 1, None, Some(1))
            .switch(995, 0, Some((0, PrevState::Exited)), None)
            .mode(1_000, 1, CpuMode::Kernel);
        story.0.close(false);
        assert_eq!(story.0.decomposed().makespan_ns, 1_000);
    }

    /// In a real kernel's events a task is defined before it turns out to start others only, and again later.
    #[test]
    fn starters_are_no_tasks_in_any_order_of_events() {
        let mut story = Story::new(&["load", "load", "worker"]);
        for starter in [0, 1] {
            story.0.define_starter(TaskId(starter));
        }
        let meta = TaskMeta {
            comm: "load".to_owned(),
            nice: 5,
            affinity: Default::default(),
            rt_priority: 0,
            idle: false,
        };
        story.0.define_task(TaskId(0), &meta);
        story
            .wakes(0, 0, 0)
            .switch(0, 0, None, Some(0))
            .wakes(10, 0, 2)
            .wakes(10, 0, 1)
            .switch(30, 0, Some((0, PrevState::Blocked)), Some(2))
            .switch(70, 0, Some((2, PrevState::Exited)), Some(1))
            .switch(90, 0, Some((1, PrevState::Exited)), None);
        let of = story.0.finish();
        assert_eq!(of.makespan_ns, 70);
        let names: Vec<&str> = of.names.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["worker"]);
    }

    /// On one CPU a runs 0–20 and ends; b has waited since 5, c sleeps since 3, and the run ends at 100.
    #[test]
    fn a_wait_and_a_sleep_last_until_the_end_of_the_run() {
        let mut story = Story::new(&["a", "b", "c"]);
        story
            .wakes(0, 0, 0)
            .wakes(0, 1, 2)
            .switch(0, 0, None, Some(0))
            .switch(1, 1, None, Some(2))
            .switch(3, 1, Some((2, PrevState::Blocked)), None)
            .wakes(5, 0, 1)
            .switch(20, 0, Some((0, PrevState::Exited)), None)
            .mode(100, 0, CpuMode::Idle);
        let of = story.0.finish();
        assert_eq!(of.makespan_ns, 100);
        let times = |name: &str| of.names.iter().find(|(known, _)| known == name);
        let times = |name: &str| times(name).unwrap().1.times;
        assert_eq!(times("b").woken_ns, 95);
        assert_eq!((times("c").other_ns, times("c").total_ns()), (97, 100));
        // The task that waits stands for the last one.
        let path = of.path.unwrap();
        assert_eq!((path.woken_ns, path.running_ns), (95, 5));
    }
}
