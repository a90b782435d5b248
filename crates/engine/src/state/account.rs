//! Counts of a task that others read.

use std::cell::Cell;

use crate::contract::facts::TaskFacts;

/// The counts of a task, which are kept for policies that read them alone
/// ([`Policy::reads_facts`](crate::policy::Policy::reads_facts)).
#[derive(Default)]
pub(crate) struct Account {
    /// `start_time`.
    forked_at: Cell<u64>,
    /// `utime` and `stime`: the ticks that met it in either mode.
    user_ticks: Cell<u64>,
    system_ticks: Cell<u64>,
    /// `nvcsw` and `nivcsw`: how often it left a CPU because it waited, and because it had to.
    voluntary_switches: Cell<u64>,
    involuntary_switches: Cell<u64>,
    /// `sched_info`: when it began to wait for a CPU, 0 if it does not; how long it has waited; how often it was switched in, and
    /// when.
    last_queued: Cell<u64>,
    run_delay: Cell<u64>,
    arrivals: Cell<u64>,
    last_arrival: Cell<u64>,
    /// `scx.selected_cpu`.
    selected_cpu: Cell<i32>,
}

impl Account {
    sets! {
        fork(now: u64): forked_at = now;
        /// Notes the answer of `select_task_rq_scx()`.
        select(cpu: i32): selected_cpu = cpu;
    }

    /// `account_process_tick()`: a tick meets it, in user mode or not.
    pub fn tick(&self, is_user: bool) {
        let ticks = match is_user {
            true => &self.user_ticks,
            false => &self.system_ticks,
        };
        ticks.set(ticks.get() + 1);
    }

    /// `sched_info_enqueue()`.
    pub fn enqueue(&self, now: u64) {
        if self.last_queued.get() == 0 {
            self.last_queued.set(now);
        }
    }

    /// `sched_info_dequeue()`.
    pub fn dequeue(&self, now: u64) {
        let since = self.last_queued.replace(0);
        if since > 0 {
            let waited = now.saturating_sub(since);
            self.run_delay.set(self.run_delay.get() + waited);
        }
    }

    /// `sched_info_arrive()`.
    pub fn arrive(&self, now: u64) {
        self.dequeue(now);
        self.last_arrival.set(now);
        self.arrivals.set(self.arrivals.get() + 1);
    }

    /// `sched_info_depart()`, and the count of `__schedule()`.
    pub fn depart(&self, now: u64, is_runnable: bool) {
        let count = match is_runnable {
            true => &self.involuntary_switches,
            false => &self.voluntary_switches,
        };
        count.set(count.get() + 1);
        if is_runnable {
            self.enqueue(now);
        }
    }

    /// Returns the fields that have their values from here.
    pub fn facts(&self, tick_ns: u64) -> TaskFacts {
        TaskFacts {
            utime_ns: self.user_ticks.get() * tick_ns,
            stime_ns: self.system_ticks.get() * tick_ns,
            voluntary_switches: self.voluntary_switches.get(),
            involuntary_switches: self.involuntary_switches.get(),
            last_queued_ns: self.last_queued.get(),
            run_delay_ns: self.run_delay.get(),
            arrivals: self.arrivals.get(),
            last_arrival_ns: self.last_arrival.get(),
            start_ns: self.forked_at.get(),
            selected_cpu: self.selected_cpu.get(),
            ..TaskFacts::default()
        }
    }
}
