//! A reference executor for tests: one CPU, no costs, no scheduler worth the name.
//!
//! It shows whether a workload ends, and with what counts, under a plain round robin or under random
//! choices of the next task. It is no model of any machine.

use std::collections::{BTreeMap, VecDeque};

use schedlab_trace::{CpuId, Duration, Instant};

use crate::{
    Action, Behaviour, Context, Counters, ObjectId, ObjectSpec, Outcome, Rng, TaskSpec, Workload,
    below, stream,
};

/// How the executor picks the next task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// First come, first served; a task goes to the tail before its next computation.
    RoundRobin,
    /// First come, first served; a task goes on until it blocks, sleeps or yields (a quantum without end).
    UntilBlocked,
    /// Any runnable task, after each action, drawn with this seed.
    Random(u64),
}

/// The outcome of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct End {
    /// When the last task ended, or the workload's duration.
    pub now: Instant,
    /// When the measured part began.
    pub begun: Instant,
    /// Units of work.
    pub work: u64,
    /// Messages that were written.
    pub writes: u64,
    /// Reads that returned.
    pub reads: u64,
    /// Messages that were read.
    pub messages_read: u64,
    /// Calls of sched_yield.
    pub yields: u64,
    /// Tasks that were ever there.
    pub tasks: usize,
    /// The counts that the behaviours reported.
    pub counters: Counters,
    /// Names of the tasks that wait for ever; empty if all is well.
    pub stuck: Vec<String>,
}

/// Runs a workload round robin.
///
/// # Panics
/// If tasks wait for ever, or break a rule (unlock what they do not hold …).
pub fn run(workload: Workload) -> End {
    run_in(workload, Order::RoundRobin)
}

/// Runs a workload in the given order.
///
/// # Panics
/// As [`run`].
pub fn run_in(workload: Workload, order: Order) -> End {
    let end = try_run(workload, order);
    assert!(end.stuck.is_empty(), "deadlock: {:?}", end.stuck);
    end
}

/// Runs a workload until nothing can go on.
///
/// # Panics
/// If a task breaks a rule (unlocks what it does not hold …).
pub fn try_run(workload: Workload, order: Order) -> End {
    let mut executor = Executor {
        order,
        picks: stream(
            match order {
                Order::RoundRobin | Order::UntilBlocked => 0,
                Order::Random(seed) => seed,
            },
            u32::MAX,
        ),
        objects: workload.objects.iter().map(Waitable::new).collect(),
        tasks: Vec::new(),
        runnable: VecDeque::new(),
        sleeping: BTreeMap::new(),
        sequence: 0,
        end: End::default(),
        background: workload
            .tasks
            .iter()
            .any(|task| task.behaviour.is_background()),
    };
    for task in workload.tasks {
        executor.create(task);
    }
    executor.run(workload.duration)
}

struct Waitable {
    spec: ObjectSpec,
    /// Sizes of the queued messages.
    queue: VecDeque<u32>,
    used_bytes: u64,
    /// The holder of the mutex or user-level lock.
    holder: Option<usize>,
    /// The semaphore's value, or the waiters at the barrier.
    value: u32,
    /// Tasks that try again when the object changes, in the order of their coming.
    waiters: VecDeque<usize>,
    /// Tasks in a condition's wait or in a suspend.
    sleepers: VecDeque<usize>,
}

impl Waitable {
    fn new(spec: &ObjectSpec) -> Waitable {
        let value = match spec {
            ObjectSpec::Semaphore { initial } => *initial,
            _ => 0,
        };
        Waitable {
            spec: *spec,
            queue: VecDeque::new(),
            used_bytes: 0,
            holder: None,
            value,
            waiters: VecDeque::new(),
            sleepers: VecDeque::new(),
        }
    }
}

struct Task {
    comm: String,
    behaviour: Box<dyn Behaviour>,
    rng: Rng,
    outcome: Outcome,
    /// The action that could not be finished yet.
    pending: Option<Action>,
    exited: bool,
}

/// The outcome of an action.
enum Step {
    /// Done; the task may go on.
    Done(Outcome),
    /// Done; the task leaves the CPU but stays runnable.
    Rotate,
    /// Done; the task sleeps until then.
    Sleeps(Instant),
    /// To be tried again when the object changes.
    Blocks(ObjectId, Action),
    /// Waits to be woken; then this is what it does first.
    Waits(Option<Action>),
    Exits,
}

struct Executor {
    order: Order,
    picks: Rng,
    objects: Vec<Waitable>,
    tasks: Vec<Task>,
    runnable: VecDeque<usize>,
    sleeping: BTreeMap<(Instant, u64), usize>,
    sequence: u64,
    end: End,
    /// There are tasks that the run does not wait for.
    background: bool,
}

impl Executor {
    fn create(&mut self, spec: TaskSpec) {
        let id = self.tasks.len();
        self.tasks.push(Task {
            comm: spec.comm,
            behaviour: spec.behaviour,
            rng: stream(1, id as u32),
            outcome: Outcome::Done,
            pending: None,
            exited: false,
        });
        self.end.tasks += 1;
        if spec.start > self.end.now {
            self.sleep(id, spec.start);
        } else {
            self.runnable.push_back(id);
        }
    }

    fn sleep(&mut self, id: usize, until: Instant) {
        self.sequence += 1;
        self.sleeping.insert((until, self.sequence), id);
    }

    fn run(mut self, duration: Option<Duration>) -> End {
        let limit = duration.map_or(Instant::NEVER, |span| Instant::ZERO + span);
        loop {
            while let Some((&key, &id)) = self.sleeping.first_key_value() {
                if key.0 > self.end.now {
                    break;
                }
                self.sleeping.remove(&key);
                self.runnable.push_back(id);
            }
            if self.end.now >= limit {
                self.end.now = limit;
                break;
            }
            let mut waited = self
                .tasks
                .iter()
                .filter(|task| !task.behaviour.is_background());
            if self.background && waited.all(|task| task.exited) {
                break;
            }
            let pick = match self.order {
                Order::RoundRobin | Order::UntilBlocked => 0,
                Order::Random(_) => below(&mut self.picks, self.runnable.len() as u64) as usize,
            };
            if let Some(id) = self.runnable.remove(pick) {
                self.turn(id, limit);
            } else if let Some((key, _)) = self.sleeping.first_key_value() {
                self.end.now = key.0;
            } else {
                // The tasks that are left wait until the run's time is over.
                if limit < Instant::NEVER && self.tasks.iter().any(|task| !task.exited) {
                    self.end.now = limit;
                }
                break;
            }
        }
        for task in &self.tasks {
            task.behaviour.report(&mut self.end.counters);
            if !task.exited && !task.behaviour.is_background() && self.end.now < limit {
                self.end.stuck.push(task.comm.clone());
            }
        }
        self.end
    }

    /// Lets a task act until it leaves the CPU.
    fn turn(&mut self, id: usize, limit: Instant) {
        let mut computed = false;
        loop {
            let task = &mut self.tasks[id];
            let action = task.pending.take().unwrap_or_else(|| {
                task.behaviour.next(&mut Context {
                    now: self.end.now,
                    outcome: task.outcome,
                    cpu: CpuId(0),
                    rng: &mut task.rng,
                })
            });
            self.tasks[id].outcome = Outcome::Done;
            if let Action::Compute(_) = action
                && self.order != Order::UntilBlocked
                && std::mem::replace(&mut computed, true)
            {
                self.tasks[id].pending = Some(action);
                return self.runnable.push_back(id);
            }
            match self.act(id, action) {
                Step::Done(outcome) => {
                    self.tasks[id].outcome = outcome;
                    if matches!(self.order, Order::Random(_)) {
                        return self.runnable.push_back(id);
                    }
                }
                Step::Rotate => return self.runnable.push_back(id),
                Step::Sleeps(until) => return self.sleep(id, until),
                Step::Blocks(object, action) => {
                    self.tasks[id].pending = Some(action);
                    return self.objects[object.0 as usize].waiters.push_back(id);
                }
                Step::Waits(pending) => return self.tasks[id].pending = pending,
                Step::Exits => return self.tasks[id].exited = true,
            }
            if self.end.now >= limit {
                return;
            }
        }
    }

    fn object(&mut self, id: ObjectId) -> &mut Waitable {
        &mut self.objects[id.0 as usize]
    }

    /// Everybody who waited for the object to change tries again.
    fn changed(&mut self, id: ObjectId) {
        let waiters = std::mem::take(&mut self.object(id).waiters);
        self.runnable.extend(waiters);
    }

    fn act(&mut self, id: usize, action: Action) -> Step {
        match action {
            Action::Compute(time) => {
                self.end.now += time;
                Step::Done(Outcome::Done)
            }
            Action::Yield => {
                self.end.yields += 1;
                Step::Rotate
            }
            Action::Sleep(time) | Action::Io(time) => Step::Sleeps(self.end.now + time),
            Action::SleepUntil(until) if until > self.end.now => Step::Sleeps(until),
            Action::SleepUntil(_) => Step::Done(Outcome::Done),
            Action::Write { to, bytes } => self.write(to, bytes),
            Action::Read { from, limit } => self.read(from, limit),
            Action::Lock(mutex) => {
                let object = self.object(mutex);
                assert!(matches!(
                    object.spec,
                    ObjectSpec::Mutex | ObjectSpec::PiMutex
                ));
                assert_ne!(object.holder, Some(id), "locked twice");
                if object.holder.is_some() {
                    return Step::Blocks(mutex, action);
                }
                object.holder = Some(id);
                Step::Done(Outcome::Done)
            }
            Action::Unlock(lock) | Action::UserUnlock(lock) => {
                let object = self.object(lock);
                assert_eq!(object.holder, Some(id), "unlocked by another");
                object.holder = None;
                self.changed(lock);
                Step::Done(Outcome::Done)
            }
            Action::TryUserLock(lock) => {
                let object = self.object(lock);
                assert_eq!(object.spec, ObjectSpec::UserLock);
                assert_ne!(object.holder, Some(id), "locked twice");
                if object.holder.is_some() {
                    return Step::Done(Outcome::Busy);
                }
                object.holder = Some(id);
                Step::Done(Outcome::Taken)
            }
            Action::Wait { condition, mutex } => {
                let object = self.object(mutex);
                assert_eq!(object.holder, Some(id), "waits without its mutex");
                object.holder = None;
                self.changed(mutex);
                let object = self.object(condition);
                assert_eq!(object.spec, ObjectSpec::Condition);
                object.sleepers.push_back(id);
                Step::Waits(Some(Action::Lock(mutex)))
            }
            Action::Signal(condition) => {
                let woken = self.object(condition).sleepers.pop_front();
                self.runnable.extend(woken);
                Step::Done(Outcome::Done)
            }
            Action::Broadcast(object) | Action::Notify(object) => {
                let woken = std::mem::take(&mut self.object(object).sleepers);
                self.runnable.extend(woken);
                Step::Done(Outcome::Done)
            }
            Action::Barrier(barrier) => {
                let object = self.object(barrier);
                let ObjectSpec::Barrier { parties } = object.spec else {
                    panic!("not a barrier");
                };
                object.value += 1;
                if object.value < parties {
                    object.sleepers.push_back(id);
                    return Step::Waits(None);
                }
                object.value = 0;
                let woken = std::mem::take(&mut object.sleepers);
                self.runnable.extend(woken);
                Step::Done(Outcome::Done)
            }
            Action::Post(semaphore) => {
                self.object(semaphore).value += 1;
                self.changed(semaphore);
                Step::Done(Outcome::Done)
            }
            Action::Acquire(semaphore) => {
                let object = self.object(semaphore);
                if object.value == 0 {
                    return Step::Blocks(semaphore, action);
                }
                object.value -= 1;
                Step::Done(Outcome::Done)
            }
            Action::Suspend(event) => {
                self.object(event).sleepers.push_back(id);
                Step::Waits(None)
            }
            Action::Fork(spec) => {
                self.create(*spec);
                Step::Done(Outcome::Done)
            }
            Action::SetNice(_)
            | Action::SetAffinity(_)
            | Action::SetClass(_)
            | Action::JoinCgroup(_)
            | Action::Touch(_)
            | Action::Exec
            | Action::Fault(_)
            | Action::Syscall => Step::Done(Outcome::Done),
            Action::Work(n) => {
                self.end.work += u64::from(n);
                Step::Done(Outcome::Done)
            }
            Action::Begin => {
                self.end.begun = self.end.now;
                Step::Done(Outcome::Done)
            }
            Action::Exit => Step::Exits,
        }
    }

    fn write(&mut self, to: ObjectId, bytes: u32) -> Step {
        let object = self.object(to);
        let (ObjectSpec::Pipe { capacity }
        | ObjectSpec::Socket { capacity }
        | ObjectSpec::Tcp { capacity, .. }
        | ObjectSpec::Listener { capacity }) = object.spec
        else {
            panic!("writes to {:?}", object.spec);
        };
        assert!(bytes <= capacity, "{bytes} bytes never fit into {capacity}");
        if object.used_bytes + u64::from(bytes) > u64::from(capacity) {
            return Step::Blocks(to, Action::Write { to, bytes });
        }
        object.used_bytes += u64::from(bytes);
        object.queue.push_back(bytes);
        self.end.writes += 1;
        self.changed(to);
        Step::Done(Outcome::Done)
    }

    fn read(&mut self, from: ObjectId, limit: u32) -> Step {
        assert!(limit > 0, "reads nothing");
        let object = self.object(from);
        if object.queue.is_empty() {
            return Step::Blocks(from, Action::Read { from, limit });
        }
        let n = object.queue.len().min(limit as usize);
        let bytes: u64 = object.queue.drain(..n).map(u64::from).sum();
        object.used_bytes -= bytes;
        self.end.reads += 1;
        self.end.messages_read += n as u64;
        self.changed(from);
        Step::Done(Outcome::Messages(n as u32))
    }
}
