//! Affinity is kept: a task starts only on a CPU that it is allowed on.

use super::rule::{Check, Violation, Violations, entry};
use crate::{CpuId, CpuSet, Event, Instant, Listener, TaskId, TaskMeta};

/// The checker.
#[derive(Default)]
pub struct Affinity {
    /// Allowed CPUs of each task whose affinity an event has reported.
    allowed: Vec<Option<CpuSet>>,
    violations: Violations,
}

impl Affinity {
    /// Returns a checker that knows no task yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Listener for Affinity {
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        *entry(&mut self.allowed, task.index()) = Some(meta.affinity.clone());
    }

    fn define_affinity(&mut self, task: TaskId, allowed: &CpuSet) {
        *entry(&mut self.allowed, task.index()) = Some(allowed.clone());
    }

    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        let Event::Switch {
            next: Some(task), ..
        } = event
        else {
            return;
        };
        if let Some(allowed) = entry(&mut self.allowed, task.index())
            && !allowed.contains(cpu)
        {
            self.violations.push(|| Violation {
                at,
                cpu,
                task: Some(task),
                rule: "affinity",
                message: format!("runs on a CPU that it is not allowed on (allowed: {allowed})"),
            });
        }
    }
}

impl Check for Affinity {
    fn finish(&mut self, _end: Instant) {}

    fn violations(&self) -> &Violations {
        &self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, found, switch};
    use super::*;

    #[test]
    fn a_task_may_start_only_where_it_is_allowed() {
        let mut check = Affinity::new();
        check.define_task(
            A,
            &TaskMeta {
                comm: "a".into(),
                nice: 0,
                affinity: "1".parse().unwrap(),
                rt_priority: 0,
                idle: false,
            },
        );
        check.record(Instant::ZERO, CpuId(1), switch(None, Some(A)));
        assert_eq!(check.violations().count(), 0);
        check.record(Instant::ZERO, CpuId(0), switch(None, Some(A)));
        assert_eq!(check.violations().count(), 1);
        check.define_affinity(A, &"0".parse().unwrap());
        check.record(Instant::ZERO, CpuId(0), switch(None, Some(A)));
        assert_eq!(check.violations().count(), 1);
        let messages = found(&mut check, &[(7, 1, switch(None, Some(A)))]);
        assert_eq!(
            messages[1],
            "affinity: at 7 ns on cpu 1, task 0: runs on a CPU that it is not allowed on (allowed: 0)"
        );
    }
}
