//! State of the deadline class: of a task, of a CPU and of the machine (kernel/sched/deadline.c).

use std::cell::{Cell, Ref, RefCell};

use schedlab_trace::TaskId;
use schedlab_workload::Reservation;

/// `DL_SCALE`: the wakeup rule multiplies times in units of 2^10 ns.
const SCALE: u32 = 10;

/// `BW_SHIFT`: bandwidth is in units of 1/2^20 of a CPU.
pub(crate) const BW_SHIFT: u32 = 20;

/// A task's part (`struct sched_dl_entity`). Its parameters are in a reservation, its own or a waiter's.
#[derive(Default)]
pub(crate) struct Entity {
    /// The absolute deadline; 0 before the first one.
    deadline: Cell<u64>,
    /// The rest of its runtime; below zero if an overrun was noticed late.
    runtime: Cell<i64>,
    /// It has used up its runtime, or given the rest away, and waits for the next period.
    throttled: Cell<bool>,
    yielded: Cell<bool>,
    /// It is on the queue or runs (`on_dl_rq()`).
    queued: Cell<bool>,
    /// It runs, and so is not in the list of waiting tasks (`dl_rq::curr`).
    runs: Cell<bool>,
    /// Its share of the machine's bandwidth.
    bandwidth: Cell<u64>,
    /// The miss of its present deadline has been reported.
    missed: Cell<bool>,
}

impl Entity {
    reads! { deadline: u64, is_throttled of throttled: bool, is_queued of queued: bool, runs: bool, bandwidth: u64 }

    sets! {
        throttle(): throttled = true;
        /// Gives the rest of its runtime away.
        set_yielded(): yielded = true;
        forget_yield(): yielded = false;
        enqueue(): queued = true;
        set_runs(runs: bool): runs = runs;
        /// Returns whether it was throttled.
        unthrottle() -> bool: throttled = false;
        /// Returns whether it was on the queue, or ran.
        dequeue() -> bool: queued = false;
    }

    /// Returns the rest of its runtime, 0 if none is left.
    pub fn left(&self) -> u64 {
        u64::try_from(self.runtime.get()).unwrap_or(0)
    }

    /// Whether its deadline has passed, or there was none yet.
    pub fn has_passed(&self, now: u64) -> bool {
        self.deadline.get() == 0 || self.deadline.get() < now
    }

    /// `replenish_dl_new_period()`.
    pub fn begin_period(&self, now: u64, reservation: Reservation) {
        self.deadline.set(now + reservation.deadline.ns());
        self.runtime.set(reservation.runtime.ns() as i64);
        self.missed.set(false);
    }

    /// `replenish_dl_entity()`: goes on to the next periods until it has runtime.
    pub fn replenish(&self, now: u64, reservation: Reservation) {
        if self.yielded.replace(false) && self.runtime.get() > 0 {
            self.runtime.set(0);
        }
        while self.runtime.get() <= 0 {
            self.deadline
                .set(self.deadline.get() + reservation.period.ns());
            self.runtime
                .set(self.runtime.get() + reservation.runtime.ns() as i64);
            self.missed.set(false);
        }
        // It lags too much.
        if self.deadline.get() < now {
            self.begin_period(now, reservation);
        }
    }

    /// `dl_entity_overflow()`: what is left of the runtime until the deadline is more than the reservation allows.
    pub fn overflows(&self, now: u64, reservation: Reservation) -> bool {
        let scaled = |ns: u64| i128::from(ns >> SCALE);
        let left = scaled(reservation.deadline.ns()) * i128::from(self.runtime.get() >> SCALE);
        let right = scaled(self.deadline.get() - now) * scaled(reservation.runtime.ns());
        right < left
    }

    /// `update_dl_revised_wakeup()`: what it may have until its deadline.
    pub fn revise(&self, now: u64, own: Reservation) {
        let laxity = self.deadline.get() - now;
        let density = (own.runtime.ns() << BW_SHIFT) / own.deadline.ns();
        let runtime = (u128::from(density) * u128::from(laxity)) >> BW_SHIFT;
        self.runtime.set(runtime as i64);
    }

    /// `dl_next_period()`.
    pub fn next_period(&self, reservation: Reservation) -> u64 {
        self.deadline.get() + reservation.period.ns() - reservation.deadline.ns()
    }

    /// Voids the rest of its runtime, as it wakes between its deadline and its next period.
    pub fn forfeit(&self) {
        self.runtime.set(self.runtime.get().min(0));
    }

    /// Charges `ran`. Returns whether it has used up its runtime, or given the rest away.
    pub fn charge(&self, ran: u64) -> bool {
        if ran == 0 && !self.yielded.get() {
            return false;
        }
        self.runtime.set(self.runtime.get() - ran as i64);
        self.runtime.get() <= 0 || self.yielded.get()
    }

    /// Notes that its deadline has passed. Returns whether that has not been reported yet.
    pub fn miss(&self) -> bool {
        !self.missed.replace(true)
    }
}

/// A CPU's part (`struct dl_rq`).
#[derive(Default)]
pub(crate) struct DlRq {
    /// Waiting tasks, the earliest deadline first.
    queue: RefCell<Vec<TaskId>>,
}

impl DlRq {
    /// Whether a task waits here that is not throttled.
    pub fn waits(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    pub fn first(&self) -> Option<TaskId> {
        self.queue.borrow().first().copied()
    }

    pub fn waiting(&self) -> Ref<'_, Vec<TaskId>> {
        self.queue.borrow()
    }

    /// Inserts by deadline, behind its equals.
    pub fn insert(&self, task: TaskId, deadline_of: impl Fn(TaskId) -> u64) {
        let mut queue = self.queue.borrow_mut();
        let deadline = deadline_of(task);
        let at = queue.partition_point(|&other| deadline_of(other) <= deadline);
        queue.insert(at, task);
    }

    pub fn remove(&self, task: TaskId) {
        self.queue.borrow_mut().retain(|&other| other != task);
    }
}

/// Bandwidth that deadline tasks have reserved (`dl_bw::total_bw`).
#[derive(Default)]
pub(crate) struct Bandwidth {
    reserved: Cell<u64>,
}

impl Bandwidth {
    pub fn reserved(&self) -> u64 {
        self.reserved.get()
    }

    /// Returns how much would be reserved if the task had `asked` instead of what it has.
    pub fn with(&self, task: &Entity, asked: u64) -> u64 {
        self.reserved.get() - task.bandwidth.get() + asked
    }

    /// Reserves `asked` for the task instead of its former bandwidth.
    pub fn reserve(&self, task: &Entity, asked: u64) {
        self.reserved.set(self.with(task, asked));
        task.bandwidth.set(asked);
    }
}
