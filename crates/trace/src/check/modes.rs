//! Each mode of a CPU follows legally from the one before, and tasks switch only inside the scheduler.

use super::rule::{Check, Start, Violation, Violations};
use crate::{CpuId, CpuMode, Event, Instant, Listener};

/// The checker.
pub struct Modes {
    /// Mode of each CPU; `None`: not known yet. A stream without modes is not judged.
    modes: Vec<Option<CpuMode>>,
    /// Whether the stream has modes at all.
    seen: bool,
    violations: Violations,
}

impl Modes {
    /// For `nr_cpus` CPUs.
    pub fn new(nr_cpus: usize, start: Start) -> Self {
        let mode = match start {
            Start::Idle => Some(CpuMode::Idle),
            Start::Unknown => None,
        };
        Modes {
            modes: vec![mode; nr_cpus],
            seen: false,
            violations: Violations::default(),
        }
    }

    fn complain(&mut self, at: Instant, cpu: CpuId, message: String) {
        self.violations.push(|| Violation {
            at,
            cpu,
            task: None,
            rule: "modes",
            message,
        });
    }
}

/// Returns whether a CPU may go from one mode to the other. Work of its own it gets only by way of the scheduler or
/// back from the kernel; it spins only inside the scheduler.
const fn legal(from: CpuMode, to: CpuMode) -> bool {
    use CpuMode::{Idle, Kernel, Sched, Spin, User};
    matches!(
        (from, to),
        (Idle | User, Kernel | Sched)
            | (Kernel, Idle | User | Sched)
            | (Sched, Idle | User | Kernel | Spin)
            | (Spin, Sched)
    )
}

impl Listener for Modes {
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        let mode = self.modes[cpu.index()];
        match event {
            Event::Mode(to) => {
                if let Some(from) = mode
                    && !legal(from, to)
                {
                    self.complain(at, cpu, format!("from {from:?} to {to:?}"));
                }
                self.modes[cpu.index()] = Some(to);
                self.seen = true;
            }
            Event::Switch { .. }
                if self.seen && mode.is_some_and(|mode| mode != CpuMode::Sched) =>
            {
                self.complain(at, cpu, format!("a switch of tasks in mode {mode:?}"));
            }
            _ => {}
        }
    }
}

impl Check for Modes {
    fn finish(&mut self, _end: Instant) {}

    fn violations(&self) -> &Violations {
        &self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, found, mode, switch};
    use super::*;
    use CpuMode::{Idle, Kernel, Sched, Spin, User};

    fn check(modes: &[CpuMode]) -> Vec<String> {
        let events: Vec<_> = modes.iter().map(|&to| (1, 0, mode(to))).collect();
        found(&mut Modes::new(1, Start::Idle), &events)
    }

    #[test]
    fn legal_and_illegal_sequences() {
        assert_eq!(
            check(&[Kernel, Sched, Spin, Sched, User, Kernel, User, Sched, Idle]),
            [""; 0]
        );
        for illegal in [
            &[User][..],
            &[Spin],
            &[Idle],
            &[Sched, User, Idle],
            &[Sched, User, Spin],
            &[Sched, Spin, User],
            &[Sched, Sched],
            &[Kernel, Spin],
        ] {
            assert_eq!(check(illegal).len(), 1, "{illegal:?}");
        }
    }

    #[test]
    fn tasks_change_inside_the_scheduler() {
        let events = |inside| [(1, 0, mode(inside)), (2, 0, switch(None, Some(A)))];
        assert_eq!(
            found(&mut Modes::new(1, Start::Idle), &events(Sched)),
            [""; 0]
        );
        assert_eq!(
            found(&mut Modes::new(1, Start::Idle), &events(Kernel)).len(),
            1
        );
        // A stream without modes is not judged.
        let events = [(2, 0, switch(None, Some(A)))];
        assert_eq!(found(&mut Modes::new(1, Start::Idle), &events), [""; 0]);
    }
}
