//! How far a run has come, and what it has counted.

use std::cell::{Cell, RefCell, RefMut};

use schedlab_trace::CpuId;
use schedlab_workload::Counters;

/// The place of the executor.
pub(crate) struct Progress {
    /// The time of the last event.
    clock: Cell<u64>,
    events: Cell<u64>,
    /// The CPU whose fiber runs, or ran last.
    running: Cell<CpuId>,
}

impl Default for Progress {
    fn default() -> Self {
        Progress {
            clock: Cell::new(0),
            events: Cell::new(0),
            running: Cell::new(CpuId(0)),
        }
    }
}

impl Progress {
    reads! { clock: u64, events: u64, running: CpuId }

    sets! {
        /// Passes to `time`, to which a CPU comes with no event between.
        pass(time: u64): clock = time;
        resume(cpu: CpuId): running = cpu;
    }

    /// Counts an event at `time`.
    #[inline(always)]
    pub fn happens(&self, time: u64) {
        // Counted one by one, so it never overflows.
        self.events.set(self.events.get().wrapping_add(1));
        self.clock.set(time);
    }
}

/// Counts for the summary of the run.
#[derive(Default)]
pub(crate) struct Tally {
    work: Cell<u64>,
    switches: Cell<u64>,
    /// When the part that the score counts began.
    begun: Cell<u64>,
    last_exit: Cell<u64>,
    /// Performance levels that the policy has asked for.
    cpuperf_requests: Cell<u64>,
    /// The counts of behaviours whose tasks have ended.
    counters: RefCell<Counters>,
}

impl Tally {
    reads! { work: u64, switches: u64, begun: u64, last_exit: u64, cpuperf_requests: u64 }

    sets! {
        begin(now: u64): begun = now;
    }

    pub fn add_work(&self, n: u32) {
        self.work.set(self.work.get() + u64::from(n));
    }

    /// Counts one by one, so it never overflows.
    #[inline(always)]
    pub fn add_switch(&self) {
        self.switches.set(self.switches.get().wrapping_add(1));
    }

    /// Notes that a task has ended at `now`.
    pub fn exit(&self, now: u64) {
        self.last_exit.set(self.last_exit.get().max(now));
    }

    /// Counted one by one, so it never overflows.
    pub fn add_cpuperf_request(&self) {
        let requests = &self.cpuperf_requests;
        requests.set(requests.get().wrapping_add(1));
    }

    pub fn counters(&self) -> RefMut<'_, Counters> {
        self.counters.borrow_mut()
    }

    pub fn into_counters(self) -> Counters {
        self.counters.into_inner()
    }
}
