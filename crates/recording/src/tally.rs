//! The same measures of a recording and of its replay.

use std::collections::BTreeSet;

use schedlab_report::histogram::Histogram;
use schedlab_trace::{CpuId, Event, Instant, Listener, PrevState, TaskId, TaskMeta};
use schedlab_workload::recorded::{Measured, OTHER};

/// Waits above this, an hour, count as so long in the percentiles.
const WAIT_MAX_NS: u64 = 3_600_000_000_000;

/// How a task left its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Off {
    /// It could have gone on.
    Runnable,
    /// It waits.
    Blocked,
    /// It is gone.
    Exited,
}

/// The counts of one task. Times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OfTask {
    /// CPU time.
    pub cpu_ns: u64,
    /// How often it left its CPU.
    pub switches: u64,
    /// Waits for a CPU.
    pub wait_ns: u64,
    on_since: Option<u64>,
    /// Since when it could run, and whether a wakeup made it so.
    runnable: Option<(u64, bool)>,
}

/// Counts what a program's tasks do.
#[derive(Clone, Debug)]
pub struct Tally {
    tasks: Vec<OfTask>,
    waits: Histogram,
    wakeups: Histogram,
    counted: Measured,
    first: Option<u64>,
    last: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            tasks: Vec::new(),
            waits: Histogram::new(WAIT_MAX_NS),
            wakeups: Histogram::new(WAIT_MAX_NS),
            counted: Measured::default(),
            first: None,
            last: 0,
        }
    }
}

impl Tally {
    fn task(&mut self, task: usize) -> &mut OfTask {
        if task >= self.tasks.len() {
            self.tasks.resize(task + 1, OfTask::default());
        }
        &mut self.tasks[task]
    }

    /// It can run, from a wakeup or because it is new.
    pub fn runnable(&mut self, at_ns: u64, task: usize, woken: bool) {
        let known = self.task(task);
        if known.on_since.is_none() && known.runnable.is_none() {
            known.runnable = Some((at_ns, woken));
        }
    }

    /// It runs.
    pub fn on(&mut self, at_ns: u64, task: usize) {
        self.first.get_or_insert(at_ns);
        let known = self.task(task);
        known.on_since = Some(at_ns);
        let Some((since, woken)) = known.runnable.take() else {
            return;
        };
        let wait_ns = at_ns.saturating_sub(since);
        known.wait_ns = known.wait_ns.saturating_add(wait_ns);
        self.waits.record(wait_ns);
        self.counted.wait_ns_sum = self.counted.wait_ns_sum.saturating_add(wait_ns);
        if woken {
            self.wakeups.record(wait_ns);
            self.counted.wakeups += 1;
        }
    }

    /// It runs no longer.
    pub fn off(&mut self, at_ns: u64, task: usize, how: Off) {
        self.last = self.last.max(at_ns);
        let known = self.task(task);
        let Some(since) = known.on_since.take() else {
            return;
        };
        let cpu_ns = at_ns.saturating_sub(since);
        known.cpu_ns = known.cpu_ns.saturating_add(cpu_ns);
        known.switches += 1;
        known.runnable = (how == Off::Runnable).then_some((at_ns, false));
        self.counted.cpu_ns = self.counted.cpu_ns.saturating_add(cpu_ns);
        self.counted.switches += 1;
        self.counted.preemptions += u64::from(how == Off::Runnable);
    }

    /// Whether it ever ran.
    pub fn has_run(&self, task: usize) -> bool {
        let of = self.of(task);
        of.on_since.is_some() || of.switches > 0
    }

    /// Returns the counts of a task.
    pub fn of(&self, task: usize) -> OfTask {
        self.tasks.get(task).copied().unwrap_or_default()
    }

    /// All measures.
    pub fn measured(&self) -> Measured {
        let shares = |of: &Histogram| of.permilles([500, 900, 990]).unwrap_or_default();
        let ([wait_p50, wait_p90, wait_p99], [woken_p50, woken_p90, woken_p99]) =
            (shares(&self.waits), shares(&self.wakeups));
        Measured {
            makespan_ns: self.last.saturating_sub(self.first.unwrap_or(self.last)),
            wait_ns_p50: wait_p50,
            wait_ns_p90: wait_p90,
            wait_ns_p99: wait_p99,
            wakeup_ns_p50: woken_p50,
            wakeup_ns_p90: woken_p90,
            wakeup_ns_p99: woken_p99,
            ..self.counted
        }
    }
}

/// Listens to a replay and counts as the recording was counted. Tasks that ran beside the program have names that
/// begin with [`schedlab_workload::recorded::OTHER`], and are not counted.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    tally: Tally,
    /// The main thread and the machine's background.
    starters: BTreeSet<TaskId>,
    /// By task: its name; `None` if it does not count.
    names: Vec<Option<String>>,
}

impl Replayed {
    /// The program's measures.
    pub fn measured(&self) -> Measured {
        self.tally.measured()
    }

    /// The counts of the tasks of one name, together.
    pub fn named(&self, comm: &str) -> OfTask {
        let mut sum = OfTask::default();
        for (task, name) in self.names.iter().enumerate() {
            if name.as_deref() == Some(comm) {
                sum.add(self.tally.of(task));
            }
        }
        sum
    }

    fn counts(&self, task: TaskId) -> bool {
        !self.starters.contains(&task) && self.names.get(task.index()).is_some_and(Option::is_some)
    }
}

impl OfTask {
    /// From what was counted elsewhere.
    pub(crate) fn of(cpu_ns: u64, switches: u64, wait_ns: u64) -> OfTask {
        OfTask {
            cpu_ns,
            switches,
            wait_ns,
            ..OfTask::default()
        }
    }

    /// Adds another task's counts.
    pub fn add(&mut self, other: OfTask) {
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.switches += other.switches;
        self.wait_ns = self.wait_ns.saturating_add(other.wait_ns);
    }
}

impl Listener for Replayed {
    fn define_starter(&mut self, task: TaskId) {
        self.starters.insert(task);
    }

    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        if task.index() >= self.names.len() {
            self.names.resize(task.index() + 1, None);
        }
        let counts = !meta.comm.starts_with(OTHER);
        self.names[task.index()] = counts.then(|| meta.comm.clone());
    }

    fn record(&mut self, at: Instant, _cpu: CpuId, event: Event) {
        match event {
            Event::Switch {
                prev,
                prev_state,
                next,
            } => {
                if let Some(prev) = prev.filter(|prev| self.counts(*prev)) {
                    let how = match prev_state {
                        PrevState::Preempted | PrevState::Yielded => Off::Runnable,
                        PrevState::Blocked => Off::Blocked,
                        PrevState::Exited => Off::Exited,
                    };
                    self.tally.off(at.ns(), prev.index(), how);
                }
                if let Some(next) = next.filter(|next| self.counts(*next)) {
                    self.tally.on(at.ns(), next.index());
                }
            }
            Event::Wakeup { task, since, .. } if self.counts(task) => {
                let decided = at.ns().saturating_sub(since.ns());
                let is_new = !self.tally.has_run(task.index());
                self.tally.runnable(decided, task.index(), !is_new);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: task 0 runs from 0 to 10, is preempted, waits 5, runs to 20 and blocks; task 1 is woken at 12 and runs
    /// from 20 to 26; task 0 is woken at 22 and runs from 26 to its end at 30.
    #[test]
    fn measures_are_those_counted_by_hand() {
        let mut tally = Tally::default();
        tally.on(0, 0);
        tally.off(10, 0, Off::Runnable);
        tally.runnable(12, 1, true);
        tally.on(15, 0);
        tally.off(20, 0, Off::Blocked);
        tally.on(20, 1);
        tally.runnable(22, 0, true);
        tally.off(26, 1, Off::Exited);
        tally.on(26, 0);
        tally.off(30, 0, Off::Exited);
        let measured = tally.measured();
        assert_eq!(
            (measured.makespan_ns, measured.cpu_ns),
            (30, 10 + 5 + 6 + 4)
        );
        assert_eq!(
            (measured.switches, measured.preemptions, measured.wakeups),
            (4, 1, 2)
        );
        // Waits: 5, 8, 4; of wakeups: 8, 4.
        assert_eq!(
            (
                measured.wait_ns_sum,
                measured.wait_ns_p50,
                measured.wait_ns_p99
            ),
            (17, 5, 8)
        );
        assert_eq!((measured.wakeup_ns_p50, measured.wakeup_ns_p99), (4, 8));
        assert_eq!(
            (
                tally.of(0).cpu_ns,
                tally.of(0).switches,
                tally.of(0).wait_ns
            ),
            (19, 3, 9)
        );
    }

    /// Of many tasks that each wait as long as a recording may last, the sum is more than a number holds.
    #[test]
    fn sums_do_not_overflow() {
        let mut tally = Tally::default();
        let mut of_all = OfTask::default();
        for task in 0..3 {
            tally.runnable(0, task, true);
            tally.on(u64::MAX / 2, task);
            tally.off(u64::MAX, task, Off::Blocked);
            of_all.add(tally.of(task));
        }
        assert_eq!((of_all.wait_ns, of_all.cpu_ns), (u64::MAX, u64::MAX));
        let measured = tally.measured();
        assert_eq!(
            (measured.wait_ns_sum, measured.cpu_ns),
            (u64::MAX, u64::MAX)
        );
    }
}
