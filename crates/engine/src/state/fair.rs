//! State of the fair class: of a task and of a CPU (kernel/sched/fair.c).

use std::cell::{Cell, Ref, RefCell};

use schedlab_trace::{CpuId, TaskId};
use schedlab_workload::CgroupId;

use crate::state::domains::Attempts;
use crate::state::utilisation::{Average, Utilisation};

/// The capacity of a CPU for the class if no other class takes of it (`SCHED_CAPACITY_SCALE`).
pub(crate) const CAPACITY: i64 = 1_024;

/// A taken part counts half after 32 ms (`LOAD_AVG_PERIOD`): this, divided by ln 2.
const AVERAGE_NS: u64 = 46_166_000;

/// The part of a task, or of a group of tasks on a CPU (`struct sched_entity`). Virtual times are relative to the queue and may be negative.
#[derive(Default)]
pub(crate) struct Entity {
    vruntime: Cell<i64>,
    deadline: Cell<i64>,
    /// The deadline that it was chosen with: until then it is left alone (`vprot`).
    protected: Cell<i64>,
    /// Virtual lag when it left its queue.
    vlag: Cell<i64>,
    /// Where it went to sleep with negative lag.
    slept_on: Cell<Option<CpuId>>,
    /// The rest of its request, in virtual time, when it left its queue other than to sleep (`rel_deadline`).
    rel_deadline: Cell<Option<i64>>,
    /// It has been placed in a queue before.
    started: Cell<bool>,
    /// When it last ran.
    last_ran: Cell<u64>,
    /// Where it ran before it woke up the last time (`recent_used_cpu`).
    recent_cpu: Cell<Option<CpuId>>,
    /// Its weight while it could run, 0 while it slept, averaged (`sched_avg::load_avg`), and the CPU whose load it is a part of.
    pub load: Average,
    /// Returns the CPU whose load its own is a part of.
    load_cpu: Cell<Option<CpuId>>,
    /// Where cores differ in capacity.
    pub utilisation: Utilisation,
    /// It has been stopped because its group has no CPU time left (`task_struct::throttled`).
    throttled: Cell<bool>,
}

/// The way in which an entity leaves its queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// To sleep, or a group without tasks.
    Sleep(CpuId),
    /// Its group has no CPU time left.
    Throttle,
    /// For something else.
    Move,
}

impl Entity {
    reads! {
        vruntime: i64, deadline: i64, has_started of started: bool, last_ran: u64, load_cpu: Option<CpuId>,
        is_throttled of throttled: bool,
    }

    sets! {
        set_last_ran(now: u64): last_ran = now;
        /// Returns where it went to sleep with negative lag, once.
        take_slept_on() -> Option<CpuId>: slept_on = None;
        /// Wakes it, which ran on `prev`. Returns where it ran before the wakeup before.
        wake(prev: CpuId) -> Option<CpuId>: recent_cpu = Some(prev);
        /// Makes its load a part of another CPU's, or of none. Returns the former one.
        set_load_cpu(cpu: Option<CpuId>) -> Option<CpuId>: load_cpu = cpu;
        throttle(): throttled = true;
        unthrottle(): throttled = false;
    }

    /// Returns the rest of its request, in virtual time.
    pub fn left(&self) -> i64 {
        self.deadline.get() - self.vruntime.get()
    }

    /// Returns whether it has had no more than its share, where the mean of the queue is `average`.
    pub fn is_eligible(&self, average: i64) -> bool {
        self.vruntime.get() <= average
    }

    /// Charges the virtual time `passed`. Returns whether its request is used up, or has lasted as long as it was to
    /// be left alone. `slice`: the length of the next request.
    pub fn charge(&self, passed: i64, slice: impl FnOnce() -> i64) -> bool {
        self.vruntime.set(self.vruntime.get() + passed);
        self.update_deadline(slice) || !self.is_protected()
    }

    /// Begins the next request, as long as `slice`, if one is used up. Returns whether one was.
    pub fn update_deadline(&self, slice: impl FnOnce() -> i64) -> bool {
        let is_used_up = self.vruntime.get() >= self.deadline.get();
        if is_used_up {
            self.deadline.set(self.vruntime.get() + slice());
        }
        is_used_up
    }

    /// `place_entity()` for a queue with these `weights` in all and this mean: its lag stays the same when its own `weight`
    /// has come. `slice`: the length of a new request.
    pub fn place(&self, average: i64, weights: i64, weight: i64, slice: impl FnOnce() -> i64) {
        let lag = if weights == 0 {
            0
        } else {
            let lag = i128::from(self.vlag.get()) * i128::from(weights + weight);
            (lag / i128::from(weights)) as i64
        };
        self.vruntime.set(average - lag);
        self.started.set(true);
        // PLACE_REL_DEADLINE: who did not sleep goes on with its request.
        let length = self.rel_deadline.take().unwrap_or_else(slice);
        self.deadline.set(self.vruntime.get() + length);
    }

    /// Leaves the queue. Its lag is bounded.
    pub fn leave(&self, average: i64, bound: i64, way: Leave) {
        let lag = average - self.vruntime.get();
        self.vlag.set(lag.clamp(-bound, bound));
        self.slept_on.set(match way {
            Leave::Sleep(cpu) if lag < 0 => Some(cpu),
            _ => None,
        });
        let left = self.left();
        self.rel_deadline.set((way == Leave::Move).then_some(left));
    }

    /// Ends a sleep beside tasks whose mean is `average` now, or beside none. In the kernel it stays in the queue until it
    /// has worked its negative lag off (`DELAY_DEQUEUE`), and begins without any after that (`DELAY_ZERO`).
    pub fn work_off_lag(&self, average: Option<i64>) {
        let lag = average.map_or(0, |average| {
            (average - self.vruntime.get()).clamp(self.vlag.get(), 0)
        });
        self.vlag.set(lag);
    }

    /// `reweight_entity()` while it is in no queue: what is kept in virtual time stays the same service.
    pub fn reweight(&self, old: i64, new: i64) {
        let scaled = |time: i64| scale(time, old, new);
        self.vlag.set(scaled(self.vlag.get()));
        self.rel_deadline.set(self.rel_deadline.get().map(scaled));
    }

    /// The same in a queue whose mean is `average`. Its lag is bounded.
    pub fn reweight_queued(&self, average: i64, bound: i64, old: i64, new: i64) {
        let moved = |time: i64| average + scale(time - average, old, new);
        let lag = (average - self.vruntime.get()).clamp(-bound, bound);
        if self.is_protected() {
            self.protected.set(moved(self.protected.get()));
        }
        self.deadline.set(moved(self.deadline.get()));
        self.vruntime.set(average - scale(lag, old, new));
    }

    /// `set_protect_slice()`: it is left alone until the end of its request.
    pub fn protect(&self) {
        self.protected.set(self.deadline.get());
    }

    /// `cancel_protect_slice()`.
    pub fn cancel_protection(&self) {
        self.protected.set(self.vruntime.get());
    }

    pub fn is_protected(&self) -> bool {
        self.vruntime.get() < self.protected.get()
    }

    /// Forfeits the rest of its request.
    pub fn forfeit(&self) {
        self.vruntime.set(self.deadline.get());
    }
}

/// Virtual time at the weight `old` as virtual time at `new`.
fn scale(time: i64, old: i64, new: i64) -> i64 {
    (i128::from(time) * i128::from(old) / i128::from(new)) as i64
}

/// A queue of tasks and groups on a CPU, apart from its list of members (`struct cfs_rq`).
#[derive(Default)]
pub(crate) struct Queue {
    /// Virtual time that it goes on from when it is empty.
    zero: Cell<i64>,
    /// The weight of its members of late; those that sleep fade (`load_avg`).
    pub load: Average,
}

impl Queue {
    reads! { zero: i64 }

    /// Notes the mean at which a member has left.
    pub fn advance(&self, average: i64) {
        self.zero.set(self.zero.get().max(average));
    }
}

const NEVER: u64 = u64::MAX;

/// A CPU's part.
pub(crate) struct FairRq {
    /// Waiting tasks of all groups in the order of their arrival (`cfs_tasks`).
    queue: RefCell<Vec<TaskId>>,
    /// The queue of the root (`rq::cfs`).
    pub root: Queue,
    /// The group of the task that runs, or ran just now: it and those above have been chosen (`cfs_rq::curr`).
    chosen: Cell<Option<CgroupId>>,
    ticks: Cell<u64>,
    /// When the running task's request ends, if the timer for that is set (`hrtick_timer`); [`NEVER`]: it is not.
    slice_end: Cell<u64>,
    /// Attempts to balance in a row that found nothing to move (`nr_balance_failed`).
    failed: Cell<u32>,
    /// Of taking tasks while it is idle.
    pub attempts: Attempts,
    /// While it is idle, another CPU has found that it is to take as many waiting tasks from there (`lb_env::src_cpu`,
    /// `imbalance`).
    wanted: Cell<Option<(CpuId, usize)>>,
    /// Whether a task of the class runs, and how much of the time one did of late, of [`CAPACITY`]. Model: `util_avg`
    /// without the part that goes with a task to another CPU.
    is_busy: Cell<bool>,
    busy: Average,
    /// Before that it takes no misfit.
    takes_next: Cell<u64>,
    /// How much of the CPU higher classes have taken of late, of [`CAPACITY`] (`avg_rt`), …
    stolen: Cell<i64>,
    /// … as of this tick.
    stolen_at: Cell<u64>,
}

impl Default for FairRq {
    fn default() -> Self {
        FairRq {
            queue: RefCell::default(),
            root: Queue::default(),
            chosen: Cell::new(None),
            ticks: Cell::new(0),
            slice_end: Cell::new(NEVER),
            failed: Cell::new(0),
            attempts: Attempts::default(),
            wanted: Cell::new(None),
            is_busy: Cell::new(false),
            busy: Average::default(),
            takes_next: Cell::new(0),
            stolen: Cell::new(0),
            stolen_at: Cell::new(0),
        }
    }
}

impl FairRq {
    reads! { nr_failed of failed: u32, wanted: Option<(CpuId, usize)> }

    sets! {
        /// `hrtick_start()`.
        start_slice_end(end: u64): slice_end = end;
        /// `hrtick_clear()`.
        clear_slice_end(): slice_end = NEVER;
        want(src: CpuId, nr_tasks: usize): wanted = Some((src, nr_tasks));
        /// Takes one, and the next one at `next` at the earliest.
        take_misfit(next: u64): takes_next = next;
        take_wanted() -> Option<(CpuId, usize)>: wanted = None;
        /// Notes the group of the task that is chosen. Returns the one before.
        choose(group: Option<CgroupId>) -> Option<CgroupId>: chosen = group;
    }

    pub fn push(&self, task: TaskId) {
        self.queue.borrow_mut().push(task);
    }

    pub fn remove(&self, task: TaskId) {
        self.queue.borrow_mut().retain(|&other| other != task);
    }

    pub fn waiting(&self) -> Ref<'_, Vec<TaskId>> {
        self.queue.borrow()
    }

    pub fn waits(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    pub fn nr_waiting(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Counts a tick. Returns how many there have been.
    pub fn tick(&self) -> u64 {
        let ticks = self.ticks.get() + 1;
        self.ticks.set(ticks);
        ticks
    }

    /// `hrtick_active()`.
    pub fn has_slice_end(&self) -> bool {
        self.slice_end.get() != NEVER
    }

    /// When the timer of the end of a slice expires, after `now`.
    pub fn slice_end_after(&self, now: u64) -> Option<u64> {
        let end = self.slice_end.get();
        (end != NEVER && end > now).then_some(end)
    }

    /// Whether that timer expires at `now`. It is not set after that.
    pub fn slice_ends(&self, now: u64) -> bool {
        let ends = self.slice_end.get() <= now;
        if ends {
            self.slice_end.set(NEVER);
        }
        ends
    }

    /// Counts an attempt to balance that found nothing to move, or begins the count anew.
    pub fn note_balance(&self, failed: bool) {
        self.failed
            .set(if failed { self.failed.get() + 1 } else { 0 });
    }

    /// Begins or ends, at `now`, to run tasks of the class.
    pub fn set_busy(&self, now: u64, runs: bool) {
        if self.is_busy.get() != runs {
            self.busy(now);
            self.is_busy.set(runs);
        }
    }

    /// Returns how much of the time a task of the class ran until `now`.
    pub fn busy(&self, now: u64) -> u64 {
        let level = if self.is_busy.get() { CAPACITY } else { 0 };
        self.busy.update(now, level as u64);
        self.busy.get()
    }

    /// Returns whether it may take a misfit at `now`.
    pub fn takes_misfit(&self, now: u64) -> bool {
        now >= self.takes_next.get()
    }

    /// Returns the part of the CPU that higher classes leave, of [`CAPACITY`].
    pub fn capacity_left(&self) -> i64 {
        CAPACITY - self.stolen.get()
    }

    /// A tick comes while a higher class has the CPU, or none has. Model: what runs at a tick counts for all of the time
    /// since the one before; a CPU that was idle in between had none.
    pub fn update_stolen(&self, now: u64, period: u64, is_taken: bool) {
        let tick = now / period;
        let share = (period * CAPACITY as u64 / AVERAGE_NS).min(CAPACITY as u64) as i64;
        let idle = (tick - self.stolen_at.replace(tick)).saturating_sub(1);
        let mut stolen = self.stolen.get();
        for _ in 0..idle.min(AVERAGE_NS / period * 8) {
            stolen -= stolen * share / CAPACITY;
        }
        let now = if is_taken { CAPACITY } else { 0 };
        self.stolen.set(stolen + (now - stolen) * share / CAPACITY);
    }
}
