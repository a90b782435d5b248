//! State of the fair class: of a task and of a CPU.

use std::cell::{Cell, RefCell};

use schedlab_trace::{CpuId, TaskId};

use crate::state::domains::Attempts;
use crate::state::utilisation::{Average, Utilisation};

/// The capacity of a CPU for the class if no other class takes of it (`SCHED_CAPACITY_SCALE`).
pub(crate) const CAPACITY: i64 = 1_024;

/// A task's part (`struct sched_entity`). Virtual times are relative to the queue and may be negative.
#[derive(Default)]
pub(crate) struct Entity {
    pub vruntime: Cell<i64>,
    pub deadline: Cell<i64>,
    /// The deadline that it was chosen with: until then it is left alone (`vprot`).
    pub protected: Cell<i64>,
    /// Virtual lag when it left its queue.
    pub vlag: Cell<i64>,
    /// Where it went to sleep with negative lag.
    pub slept_on: Cell<Option<CpuId>>,
    /// The rest of its request, in virtual time, when it left its queue other than to sleep (`rel_deadline`).
    pub rel_deadline: Cell<Option<i64>>,
    pub started: Cell<bool>,
    pub last_ran: Cell<u64>,
    /// Where it ran before it woke up the last time (`recent_used_cpu`).
    pub recent_cpu: Cell<Option<CpuId>>,
    /// Its weight while it could run, 0 while it slept, averaged (`sched_avg::load_avg`), and the CPU whose load it is a part of.
    pub load: Average,
    pub load_cpu: Cell<Option<CpuId>>,
    /// Where cores differ in capacity.
    pub utilisation: Utilisation,
}

pub(crate) const NEVER: u64 = u64::MAX;

/// A CPU's part (`struct cfs_rq`).
pub(crate) struct FairRq {
    /// Waiting tasks in the order of their arrival.
    pub queue: RefCell<Vec<TaskId>>,
    /// Virtual time that an empty queue goes on from.
    pub zero: Cell<i64>,
    pub ticks: Cell<u64>,
    /// When the running task's request ends, if the timer for that is set (`hrtick_timer`); [`NEVER`]: it is not.
    pub slice_end: Cell<u64>,
    /// Attempts to balance in a row that found nothing to move (`nr_balance_failed`).
    pub failed: Cell<u32>,
    /// Of taking tasks while it is idle.
    pub attempts: Attempts,
    /// While it is idle, another CPU has found that it is to take as many waiting tasks from there (`lb_env::src_cpu`,
    /// `imbalance`).
    pub wanted: Cell<Option<(CpuId, usize)>>,
    /// Whether a task of the class runs, and how much of the time one did of late, of [`CAPACITY`]. Model: `util_avg`
    /// without the part that goes with a task to another CPU.
    pub is_busy: Cell<bool>,
    pub busy: Average,
    /// The weight of its tasks of late; those that sleep fade (`load_avg`).
    pub load: Average,
    /// Before that it takes no misfit.
    pub takes_next: Cell<u64>,
    /// How much of the CPU higher classes have taken of late, of [`CAPACITY`] (`avg_rt`), …
    pub stolen: Cell<i64>,
    /// … as of this tick.
    pub stolen_at: Cell<u64>,
}

impl Default for FairRq {
    fn default() -> Self {
        FairRq {
            queue: RefCell::default(),
            zero: Cell::new(0),
            ticks: Cell::new(0),
            slice_end: Cell::new(NEVER),
            failed: Cell::new(0),
            attempts: Attempts::default(),
            wanted: Cell::new(None),
            is_busy: Cell::new(false),
            busy: Average::default(),
            load: Average::default(),
            takes_next: Cell::new(0),
            stolen: Cell::new(0),
            stolen_at: Cell::new(0),
        }
    }
}

impl FairRq {
    /// Tasks that wait.
    pub fn nr_waiting(&self) -> usize {
        self.queue.borrow().len()
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
}
