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
pub mod running_time;
pub mod stall;
pub mod tasks;

use std::fmt;

use crate::{
    CpuId, CpuSet, Duration, Event, Instant, Listener, LockClass, LockId, TaskId, TaskMeta,
};

/// The state of the machine when the events begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Nothing: every CPU idles and no task exists (the simulator).
    Idle,
    /// Unknown: recording began in a running system (a real kernel). A CPU or task is judged from the first event
    /// that gives its state.
    Unknown,
}

/// A rule that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// When; the end of the run for what never happened.
    pub at: Instant,
    /// Where.
    pub cpu: CpuId,
    /// The task that it concerns, if there is one.
    pub task: Option<TaskId>,
    /// Name of the checker.
    pub rule: &'static str,
    /// The fault, in words.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation {
            at,
            cpu,
            rule,
            message,
            ..
        } = self;
        write!(f, "{rule}: at {} ns on cpu {cpu}", at.ns())?;
        if let Some(task) = self.task {
            write!(f, ", task {task}")?;
        }
        write!(f, ": {message}")
    }
}

/// At most so many violations are kept in words; all are counted.
const KEPT_MAX: usize = 20;

/// The violations that one checker found.
#[derive(Clone, Debug, Default)]
pub struct Violations {
    kept: Vec<Violation>,
    count: u64,
}

impl Violations {
    fn push(&mut self, violation: impl FnOnce() -> Violation) {
        self.count += 1;
        if self.kept.len() < KEPT_MAX {
            self.kept.push(violation());
        }
    }

    /// Returns how many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the first ones.
    pub fn first(&self) -> &[Violation] {
        &self.kept
    }

    fn add(&mut self, other: &Violations) {
        self.count += other.count;
        let room = KEPT_MAX.saturating_sub(self.kept.len());
        self.kept.extend(other.kept.iter().take(room).cloned());
    }
}

/// One invariant.
pub trait Check: Listener {
    /// Judges what only the end of the run can show. Called once, after the last event.
    fn finish(&mut self, end: Instant);

    /// Returns the violations found so far.
    fn violations(&self) -> &Violations;
}

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

/// Returns the entry of a table indexed by id, which grows as ids appear.
fn entry<T: Clone + Default>(table: &mut Vec<T>, index: usize) -> &mut T {
    if index >= table.len() {
        table.resize(index + 1, T::default());
    }
    &mut table[index]
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

    #[test]
    fn only_the_first_violations_are_kept_in_words() {
        let mut violations = Violations::default();
        for _ in 0..100 {
            violations.push(|| Violation {
                at: Instant::ZERO,
                cpu: CpuId(0),
                task: Some(A),
                rule: "rule",
                message: "wrong".into(),
            });
        }
        assert_eq!(
            (violations.count(), violations.first().len()),
            (100, KEPT_MAX)
        );
        assert_eq!(
            violations.first()[0].to_string(),
            "rule: at 0 ns on cpu 0, task 0: wrong"
        );
    }
}
