//! Invariants of a run, checked from its events alone, so they judge the simulator and the real kernel
//! alike. One rule per file; [`Checkers`] applies them all.
//!
//! Events are judged in the order in which they arrive. What several CPUs share is synchronised, so events
//! that depend on each other arrive in order even where their CPUs are apart in time.

pub mod affinity;
pub mod cpu_time;
pub mod deadline;
pub mod locks;
pub mod modes;
mod rule;
pub mod running_time;
pub mod stall;
pub mod tasks;

pub use rule::{Check, Start, Violation, Violations};

use crate::{
    CpuId, CpuSet, Duration, Event, Instant, Listener, LockClass, LockId, TaskId, TaskMeta,
};

/// Every invariant.
pub struct Checkers {
    checks: Vec<Box<dyn Check + Send>>,
    latest: Instant,
    /// The earliest [`Event::End`]: CPUs may be ahead of it.
    end: Option<Instant>,
}

impl Checkers {
    /// For a run on `nr_cpus` CPUs in which no runnable task may wait longer than `stall_bound`.
    pub fn new(nr_cpus: usize, start: Start, stall_bound: Duration) -> Self {
        Checkers {
            checks: vec![
                Box::new(tasks::Tasks::new(nr_cpus, start)),
                Box::new(affinity::Affinity::new()),
                Box::new(cpu_time::CpuTime::new(nr_cpus, start)),
                Box::new(running_time::RunningTime::new(nr_cpus, start)),
                Box::new(stall::Stall::new(stall_bound)),
                Box::new(deadline::Deadline::new(nr_cpus)),
                Box::new(modes::Modes::new(nr_cpus, start)),
                Box::new(locks::Locks::new(nr_cpus, start)),
            ],
            latest: Instant::ZERO,
            end: None,
        }
    }

    /// Ends the checks and returns their violations, rule by rule.
    pub fn finish(mut self) -> Violations {
        let mut all = Violations::default();
        let end = self.end.unwrap_or(self.latest);
        for check in &mut self.checks {
            check.finish(end);
            all.add(check.violations());
        }
        all
    }
}

impl Listener for Checkers {
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        for check in &mut self.checks {
            check.define_task(task, meta);
        }
    }

    fn define_affinity(&mut self, task: TaskId, allowed: &CpuSet) {
        for check in &mut self.checks {
            check.define_affinity(task, allowed);
        }
    }

    fn define_lock(&mut self, lock: LockId, name: &str, class: LockClass) {
        for check in &mut self.checks {
            check.define_lock(lock, name, class);
        }
    }

    // Most runs are not checked: what they do at an event stays small.
    #[cold]
    #[inline(never)]
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        for check in &mut self.checks {
            check.record(at, cpu, event);
        }
        self.latest = self.latest.max(at);
        if event == Event::End {
            self.end = Some(self.end.map_or(at, |end| end.min(at)));
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Event lists for the checkers' tests.

    use super::*;
    use crate::{CpuMode, PrevState};

    /// An event with its time and CPU.
    pub(crate) type Timed = (u64, u32, Event);

    pub(crate) const A: TaskId = TaskId(0);
    pub(crate) const B: TaskId = TaskId(1);

    pub(crate) fn switch(prev: Option<(TaskId, PrevState)>, next: Option<TaskId>) -> Event {
        Event::Switch {
            prev: prev.map(|(task, _)| task),
            prev_state: prev.map_or(PrevState::Preempted, |(_, state)| state),
            next,
        }
    }

    pub(crate) fn wakeup(task: TaskId) -> Event {
        Event::Wakeup {
            task,
            to: CpuId(0),
            since: Duration::ZERO,
        }
    }

    pub(crate) fn mode(mode: CpuMode) -> Event {
        Event::Mode(mode)
    }

    /// Messages of all violations of `check` over `events`, the last of which ends the run.
    pub(crate) fn found(check: &mut dyn Check, events: &[(u64, u32, Event)]) -> Vec<String> {
        let mut end = Instant::ZERO;
        for &(at, cpu, event) in events {
            end = Instant::from_ns(at);
            check.record(end, CpuId(cpu), event);
        }
        check.finish(end);
        let violations = check.violations();
        assert_eq!(violations.count() as usize, violations.first().len());
        violations
            .first()
            .iter()
            .map(|violation| violation.to_string())
            .collect()
    }

    #[test]
    fn a_sound_run_passes_every_check_and_a_broken_one_is_reported_once_per_rule() {
        let sound = [
            (0, 0, wakeup(A)),
            (10, 0, mode(CpuMode::Sched)),
            (20, 0, switch(None, Some(A))),
            (30, 0, mode(CpuMode::User)),
            (90, 0, mode(CpuMode::Sched)),
            (95, 0, switch(Some((A, PrevState::Blocked)), None)),
            (100, 0, mode(CpuMode::Idle)),
            (200, 0, Event::End),
        ];
        let run = |events: &[(u64, u32, Event)]| {
            let mut checkers = Checkers::new(1, Start::Idle, Duration::from_ns(50));
            for &(at, cpu, event) in events {
                checkers.record(Instant::from_ns(at), CpuId(cpu), event);
            }
            checkers.finish()
        };
        assert_eq!(run(&sound).first(), []);
        // Without the switch away from A it idles with a task on the CPU.
        let mut broken = sound.to_vec();
        broken.remove(5);
        let violations = run(&broken);
        let rules: Vec<_> = violations.first().iter().map(|v| v.rule).collect();
        assert_eq!(rules, ["cpu time"]);
    }
}
