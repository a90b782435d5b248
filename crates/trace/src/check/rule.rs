//! One invariant, and the violations that its checker finds.

use std::fmt;

use crate::{CpuId, Instant, Listener, TaskId};

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
    pub(super) fn push(&mut self, violation: impl FnOnce() -> Violation) {
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

    pub(super) fn add(&mut self, other: &Violations) {
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

/// Returns the entry of a table indexed by id, which grows as ids appear.
pub(super) fn entry<T: Clone + Default>(table: &mut Vec<T>, index: usize) -> &mut T {
    if index >= table.len() {
        table.resize(index + 1, T::default());
    }
    &mut table[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_violations_are_kept_in_words() {
        let mut violations = Violations::default();
        for _ in 0..100 {
            violations.push(|| Violation {
                at: Instant::ZERO,
                cpu: CpuId(0),
                task: Some(TaskId(0)),
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
