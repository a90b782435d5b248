//! Work for the stopper, which moves a task that runs (kernel/stop_machine.c).

use std::cell::Cell;

use schedlab_trace::CpuId;

/// Why the stopper moves a task that may stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Push {
    /// A CPU is idle, if it still is (`active_load_balance_cpu_stop()`).
    IdleCpu,
    /// It begins a new program (`sched_exec()`).
    Exec,
}

/// A task's part.
#[derive(Default)]
pub(crate) struct StopWork {
    /// It must leave its CPU, for this one if it may run there (`migration_arg::dest_cpu`).
    dest: Cell<Option<CpuId>>,
    push: Cell<Option<Push>>,
}

impl StopWork {
    /// Moves it to `dest`, since it may not be where it is.
    pub fn move_to(&self, dest: CpuId) {
        self.dest.set(Some(dest));
    }

    /// Moves it to `dest`, though it may be where it is.
    pub fn push_to(&self, dest: CpuId, why: Push) {
        self.push.set(Some(why));
        self.dest.set(Some(dest));
    }

    /// Forgets a push, as it sleeps.
    pub fn forget_push(&self) {
        if self.push.take().is_some() {
            self.dest.set(None);
        }
    }

    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.dest.get().is_some()
    }

    /// Begins the work. Returns the destination and the reason.
    pub fn take(&self) -> (Option<CpuId>, Option<Push>) {
        (self.dest.take(), self.push.take())
    }
}
