//! Data races of a policy: two accesses of the same memory by two threads of control, at least one a write and at least
//! one plain, that nothing orders.
//!
//! Each CPU has three threads of control: ops with interrupts off, timers' callbacks, and ops that may sleep, which the
//! other two interrupt. What orders them, beside each thread's own order, is what orders them in Linux, whatever the
//! order of the run is (docs/races.md):
//! - locks of the policy, its atomic operations and barriers;
//! - the kernel's handling of a task: the ops of a task follow each other, and what an op has done before it inserts a
//!   task comes before what is done with the task afterwards;
//! - the beginning: `ops.init()` and the tasks that are there when the policy is loaded;
//! - elements of maps: a finder comes after the inserter. So do a timer's callback and its starter.
//!
//! Ops under the lock of one run queue exclude each other, but that lock orders nothing else: which CPUs take it when
//! is chance, and would hide races behind it.
// Model: two ops that may sleep are one thread of control, on one CPU.

mod clock;
mod shadow;

use std::collections::{BTreeMap, BTreeSet};

use schedlab_engine::policy::{OpCall, OpKind, TimerId};
use schedlab_trace::{CpuId, TaskId};

use crate::audit::state::arguments;
use crate::object::NativeObject;

use self::clock::Clock;
use self::shadow::{Access, Shadow};

/// The order of an atomic operation or a barrier (`enum lab_order` in include/native/scx/audit.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    None,
    Acquire,
    Release,
    Full,
}

impl Order {
    pub fn of(number: u32) -> Order {
        match number {
            0 => Order::None,
            1 => Order::Acquire,
            2 => Order::Release,
            _ => Order::Full,
        }
    }

    fn acquires(self) -> bool {
        matches!(self, Order::Acquire | Order::Full)
    }

    fn releases(self) -> bool {
        matches!(self, Order::Release | Order::Full)
    }
}

/// The effect of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    Load,
    Store,
    /// Both in one.
    Update,
}

/// Memory that code accesses.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub address: usize,
    pub bytes: usize,
    pub write: bool,
    /// The offset in the policy of the code that follows.
    pub code: u32,
}

/// Threads of control of a CPU; those with lower numbers interrupt others.
const LEVELS: usize = 3;

fn level(op: OpKind) -> usize {
    match op {
        OpKind::Init
        | OpKind::Exit
        | OpKind::InitTask
        | OpKind::CpuOnline
        | OpKind::CpuOffline
        | OpKind::CgroupInit
        | OpKind::CgroupExit
        | OpKind::CgroupPrepMove
        | OpKind::CgroupSetWeight
        | OpKind::CgroupSetBandwidth
        | OpKind::CgroupSetIdle => 2,
        OpKind::TimerCallback => 1,
        _ => 0,
    }
}

/// Ops that print the state for people, of a policy that is gone.
fn is_dump(op: OpKind) -> bool {
    matches!(op, OpKind::Dump | OpKind::DumpCpu | OpKind::DumpTask)
}

struct Thread {
    cpu: usize,
    clock: Clock,
    /// Which version of what all know it knows.
    base: u32,
    /// Its knowledge at its last barrier for stores.
    released: Clock,
    /// Its knowledge after a future barrier for loads.
    seen: Clock,
}

/// An op that is under way.
struct Running {
    thread: u16,
    rq: u16,
    op: OpKind,
    tasks: [Option<TaskId>; 3],
    /// Tasks that it has inserted into dispatch queues and that are not there yet.
    inserted: Vec<TaskId>,
    /// So many `lab_racy()` are around what runs, and one more in a dump.
    quiet: u32,
}

/// By what one thread learns of another.
#[derive(Clone, Copy, Debug)]
pub enum By {
    /// A lock of the policy.
    Lock(usize),
    /// The kernel's handling of a task.
    Task(TaskId),
    /// Finding a task in a dispatch queue.
    Queue(TaskId),
    Timer(TimerId),
    /// By its address: an atomic word or a guard.
    Word(usize),
    /// By its address: an element of a map, or a map that is a queue.
    Element(usize),
}

/// The knowledge that each of these passes on.
#[derive(Default)]
struct Known {
    locks: Vec<Clock>,
    tasks: Vec<Clock>,
    queues: Vec<Clock>,
    timers: Vec<Clock>,
    words: BTreeMap<usize, Clock>,
    elements: BTreeMap<usize, Clock>,
}

impl Known {
    fn by(&mut self, by: By) -> &mut Clock {
        let (list, index) = match by {
            By::Lock(lock) => (&mut self.locks, lock),
            By::Task(task) => (&mut self.tasks, task.index()),
            By::Queue(task) => (&mut self.queues, task.index()),
            By::Timer(timer) => (&mut self.timers, timer.0 as usize),
            By::Word(address) => return self.words.entry(address).or_default(),
            By::Element(address) => return self.elements.entry(address).or_default(),
        };
        if list.len() <= index {
            list.resize_with(index + 1, Clock::default);
        }
        &mut list[index]
    }
}

/// The checker of a run.
pub struct Races {
    threads: Vec<Thread>,
    by_cpu: Vec<[Option<u16>; LEVELS]>,
    running: Vec<Vec<Running>>,
    /// The common knowledge, and how often it has changed.
    base: (Clock, u32),
    known: Known,
    shadow: Shadow,
    /// The pairs of code that are known to race.
    pairs: BTreeSet<(u32, u32)>,
    told: Vec<String>,
}

impl Races {
    /// Of a run with so many CPUs.
    pub fn new(nr_cpus: usize) -> Races {
        Races {
            threads: Vec::new(),
            by_cpu: vec![[None; LEVELS]; nr_cpus],
            running: (0..nr_cpus).map(|_| Vec::new()).collect(),
            base: (Clock::default(), 0),
            known: Known::default(),
            shadow: Shadow::default(),
            pairs: BTreeSet::new(),
            told: Vec::new(),
        }
    }

    /// An op begins on `cpu`, whose task is `own`, under the lock of the run queue of `rq`.
    pub fn begin(&mut self, cpu: usize, own: Option<TaskId>, rq: Option<CpuId>, op: &OpCall) {
        let kind = op.kind();
        let thread = self.thread(cpu, level(kind));
        let [task, other] = arguments(op);
        // A task forks between its own ops.
        let parent = own.filter(|_| matches!(op, OpCall::InitTask { fork: true, .. }));
        let running = Running {
            thread,
            rq: rq.map_or(Access::NO_RQ, |rq| rq.0 as u16),
            op: kind,
            tasks: [task, other, parent],
            inserted: Vec::new(),
            quiet: u32::from(is_dump(kind)),
        };
        let clock = &mut self.threads[usize::from(thread)].clock;
        for task in running.tasks.iter().flatten() {
            clock.join(self.known.by(By::Task(*task)));
        }
        if let OpCall::TimerCallback { timer } = op {
            clock.join(self.known.by(By::Timer(*timer)));
        }
        // The policy is gone: none of its other ops is called any more.
        if kind == OpKind::Exit {
            let mut all = Clock::default();
            self.threads.iter().for_each(|other| all.join(&other.clock));
            self.threads[usize::from(thread)].clock.join(&all);
        }
        self.running[cpu].push(running);
    }

    /// The op that began last on `cpu` ends.
    pub fn end(&mut self, cpu: usize, op: &OpCall) {
        self.insertions_are_carried_out(cpu);
        let Some(ended) = self.running[cpu].pop() else {
            return;
        };
        let thread = &mut self.threads[usize::from(ended.thread)];
        for task in ended.tasks.iter().flatten() {
            self.known.by(By::Task(*task)).join(&thread.clock);
        }
        // Nothing is done for that task any more.
        if let OpCall::ExitTask { task, .. } = op {
            self.known.by(By::Task(*task)).clear();
            self.known.by(By::Queue(*task)).clear();
        }
        // Before the policy is asked for anything.
        if matches!(
            op,
            OpCall::Init | OpCall::CgroupInit { .. } | OpCall::InitTask { fork: false, .. }
        ) {
            self.base.0.join(&thread.clock);
            self.base.1 += 1;
        }
        thread.clock.tick(ended.thread);
    }

    /// The number of a CPU's thread, which knows what everybody knows.
    fn thread(&mut self, cpu: usize, level: usize) -> u16 {
        let number = *self.by_cpu[cpu][level].get_or_insert_with(|| {
            let number = self.threads.len() as u16;
            self.threads.push(Thread {
                cpu,
                clock: Clock::default(),
                base: 0,
                released: Clock::default(),
                seen: Clock::default(),
            });
            self.threads[usize::from(number)].clock.tick(number);
            number
        });
        let thread = &mut self.threads[usize::from(number)];
        if thread.base != self.base.1 {
            thread.clock.join(&self.base.0);
            thread.base = self.base.1;
        }
        number
    }

    /// The past actions of the op on `cpu` come before the actions of others that learn of it.
    pub fn release(&mut self, cpu: usize, by: By) {
        let Some(running) = self.running[cpu].last() else {
            return;
        };
        let thread = &mut self.threads[usize::from(running.thread)];
        self.known.by(by).join(&thread.clock);
        thread.clock.tick(running.thread);
    }

    /// The future actions of the op on `cpu` come after the known ones.
    pub fn acquire(&mut self, cpu: usize, by: By) {
        if let Some(running) = self.running[cpu].last() {
            let thread = &mut self.threads[usize::from(running.thread)];
            thread.clock.join(self.known.by(by));
        }
    }

    /// The op on `cpu` inserts a task into a dispatch queue; the kernel puts it there later.
    pub fn inserts(&mut self, cpu: usize, task: TaskId) {
        if let Some(running) = self.running[cpu].last_mut() {
            running.inserted.push(task);
        }
    }

    /// The kernel puts the tasks that the op on `cpu` has inserted where they go.
    pub fn insertions_are_carried_out(&mut self, cpu: usize) {
        let Some(running) = self.running[cpu].last_mut() else {
            return;
        };
        for task in std::mem::take(&mut running.inserted) {
            self.release(cpu, By::Task(task));
            self.release(cpu, By::Queue(task));
        }
    }

    /// A barrier of the op on `cpu`.
    pub fn fence(&mut self, cpu: usize, order: Order) {
        let Some(running) = self.running[cpu].last() else {
            return;
        };
        let thread = &mut self.threads[usize::from(running.thread)];
        if order.acquires() {
            thread.clock.join(&thread.seen);
            thread.seen.clear();
        }
        if order.releases() {
            thread.released.set(&thread.clock);
            thread.clock.tick(running.thread);
        }
    }

    /// The op on `cpu` reads a shared word: it learns what there is to learn, or would by a barrier.
    fn reads_word(&mut self, cpu: usize, address: usize, order: Order) {
        if let Some(running) = self.running[cpu].last()
            && let Some(known) = self.known.words.get(&address)
        {
            let thread = &mut self.threads[usize::from(running.thread)];
            match order.acquires() {
                true => thread.clock.join(known),
                false => thread.seen.join(known),
            }
        }
    }

    /// The op on `cpu` has written a shared word; `is_update`: what was there before is part of it.
    fn has_written_word(&mut self, cpu: usize, address: usize, order: Order, is_update: bool) {
        let Some(running) = self.running[cpu].last() else {
            return;
        };
        let thread = &mut self.threads[usize::from(running.thread)];
        let told = match order.releases() {
            true => &thread.clock,
            false => &thread.released,
        };
        if !is_update && told.is_empty() {
            // A reader learns nothing of stores before it.
            self.known.words.remove(&address);
        } else if !told.is_empty() {
            let known = self.known.by(By::Word(address));
            match is_update {
                true => known.join(told),
                false => known.set(told),
            }
        }
        if order.releases() {
            thread.clock.tick(running.thread);
        }
    }

    /// Notes an access of the op on `cpu`. `watched`: which memory is the policy's. Returns a race of a kind that was
    /// not known.
    fn note(
        &mut self,
        cpu: usize,
        place: &Place,
        marked: bool,
        watched: impl Fn(usize) -> bool,
    ) -> Option<Race> {
        let running = self.running[cpu].last().filter(|op| op.quiet == 0)?;
        let clock = &self.threads[usize::from(running.thread)].clock;
        let now = Access {
            moment: clock.get(running.thread),
            code: place.code,
            thread: running.thread,
            rq: running.rq,
            op: running.op,
            write: place.write,
            whole: place.bytes <= 8 && place.address.is_multiple_of(place.bytes.max(1)),
        };
        let (address, bytes) = (place.address, place.bytes);
        let found = self
            .shadow
            .access(address, bytes, now, marked, clock, watched);
        let (address, before) = found?;
        let pair = (before.code.min(now.code), before.code.max(now.code));
        if !self.pairs.insert(pair) {
            return None;
        }
        let side = |access: Access| Side {
            code: access.code,
            op: access.op,
            write: access.write,
            cpu: self.threads[usize::from(access.thread)].cpu,
        };
        Some(Race {
            address,
            sides: [side(before), side(now)],
        })
    }

    /// The op on `cpu` accesses memory plainly, or by a volatile access.
    pub fn access(
        &mut self,
        cpu: usize,
        place: &Place,
        marked: bool,
        watched: impl Fn(usize) -> bool,
    ) -> Option<Race> {
        match (marked, place.write) {
            (false, _) => self.note(cpu, place, false, watched),
            (true, true) => self.atomic(cpu, place, Atomic::Store, Order::None, watched),
            // A reader of a pointer follows it, which orders as an acquisition does.
            (true, false) => self.atomic(cpu, place, Atomic::Load, Order::Acquire, watched),
        }
    }

    /// The op on `cpu` is about to carry out an atomic operation.
    pub fn atomic(
        &mut self,
        cpu: usize,
        place: &Place,
        kind: Atomic,
        order: Order,
        watched: impl Fn(usize) -> bool,
    ) -> Option<Race> {
        if order == Order::Full {
            self.fence(cpu, Order::Full);
        }
        if kind != Atomic::Store {
            self.reads_word(cpu, place.address, order);
        }
        let race = self.note(cpu, place, true, watched);
        if kind != Atomic::Load {
            self.has_written_word(cpu, place.address, order, kind == Atomic::Update);
        }
        race
    }

    /// The accesses of the op on `cpu` may race on purpose, from now on or no more.
    pub fn racy(&mut self, cpu: usize, begins: bool) {
        if let Some(running) = self.running[cpu].last_mut() {
            running.quiet = match begins {
                true => running.quiet + 1,
                false => running.quiet - 1,
            };
        }
    }

    /// Memory gets a new owner.
    pub fn forget(&mut self, address: usize, bytes: usize) {
        self.shadow.forget(address, bytes);
    }

    /// Keeps a race that was found.
    pub fn tell(&mut self, text: String) {
        if !self.told.contains(&text) {
            self.told.push(text);
        }
    }

    /// Whether further ones need not be reported.
    pub fn has_told_enough(&self) -> bool {
        self.told.len() >= TOLD_MAX
    }

    /// The races that were found, each a line.
    pub fn told(&self) -> &[String] {
        &self.told
    }
}

/// More would not help.
const TOLD_MAX: usize = 20;

/// One of the accesses of a race.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub code: u32,
    pub op: OpKind,
    pub write: bool,
    pub cpu: usize,
}

/// Two accesses that nothing orders; the second is the one that has just been made.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    pub address: usize,
    pub sides: [Side; 2],
}

impl Race {
    /// One line for people; `what` is accessed.
    pub fn describe(&self, object: &NativeObject, what: &str) -> String {
        let side = |side: &Side| {
            let line = object.line_in_policy(side.code.into());
            let line = line.unwrap_or_else(|| "an unknown place".to_owned());
            let verb = if side.write { "store" } else { "load" };
            format!("{line} in ops.{} ({verb})", side.op.name())
        };
        let [first, second] = &self.sides;
        let cpus = match first.cpu == second.cpu {
            true => format!("on CPU {}, where one interrupts the other,", first.cpu),
            false => format!("on CPUs {} and {}", first.cpu, second.cpu),
        };
        format!(
            "data race: {} and {} {cpus} access {what} without a common lock or order: take one lock around both, or READ_ONCE()/WRITE_ONCE() or atomic operations in both, or say lab_racy() where it does no harm",
            side(first),
            side(second),
        )
    }
}
