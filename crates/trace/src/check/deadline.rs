//! A deadline task goes before all others: no task of another class is switched in on a CPU on which one has waited
//! since before that choice began, unless it is throttled. The rule applies where schedule() reports its beginnings.

use super::rule::{Check, Violation, Violations, entry};
use crate::{CpuId, DEADLINE_PRIORITY, Event, Instant, Listener, PrevState, TaskId, TaskMeta};

/// The known state of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Task {
    is_deadline: bool,
    throttled: bool,
    /// Where it waits, and since when.
    waits: Option<(CpuId, Instant)>,
}

/// The checker.
pub struct Deadline {
    tasks: Vec<Task>,
    /// Those that were ever in the class.
    known: Vec<TaskId>,
    /// When schedule() began on each CPU.
    entered: Vec<Option<Instant>>,
    latest: Instant,
    violations: Violations,
}

impl Deadline {
    /// For `nr_cpus` CPUs.
    pub fn new(nr_cpus: usize) -> Self {
        Deadline {
            tasks: Vec::new(),
            known: Vec::new(),
            entered: vec![None; nr_cpus],
            latest: Instant::ZERO,
            violations: Violations::default(),
        }
    }

    fn task(&mut self, task: TaskId) -> &mut Task {
        entry(&mut self.tasks, task.index())
    }

    fn starts(&mut self, at: Instant, cpu: CpuId, next: TaskId) {
        self.task(next).waits = None;
        let Some(entered) = self.entered[cpu.index()] else {
            return;
        };
        if self.task(next).is_deadline {
            return;
        }
        let tasks = &self.tasks;
        let waited = |task: &&TaskId| {
            let task = tasks[task.index()];
            let here = |(on, since)| on == cpu && since < entered;
            task.is_deadline && !task.throttled && task.waits.is_some_and(here)
        };
        if let Some(&first) = self.known.iter().find(waited) {
            self.violations.push(|| Violation {
                at,
                cpu,
                task: Some(next),
                rule: "deadline",
                message: format!("starts while deadline task {first} waits there"),
            });
        }
    }
}

impl Listener for Deadline {
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        let is_deadline = meta.rt_priority == DEADLINE_PRIORITY;
        let latest = self.latest;
        let known = self.task(task);
        let comes = is_deadline && !known.is_deadline;
        known.is_deadline = is_deadline;
        if comes && let Some((_, since)) = &mut known.waits {
            *since = latest;
        }
        if comes && !self.known.contains(&task) {
            self.known.push(task);
        }
    }

    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        self.latest = self.latest.max(at);
        match event {
            Event::ScheduleEnter { .. } => self.entered[cpu.index()] = Some(at),
            Event::Wakeup { task, to, .. } => self.task(task).waits = Some((to, at)),
            Event::Migrate { task, to, .. } => {
                let task = self.task(task);
                task.waits = task.waits.map(|_| (to, at));
            }
            Event::Throttled { task } => self.task(task).throttled = true,
            Event::Replenished { task } => {
                let task = self.task(task);
                task.throttled = false;
                task.waits = task.waits.map(|(on, _)| (on, at));
            }
            Event::Switch {
                prev,
                prev_state,
                next,
            } => {
                if let Some(prev) = prev {
                    let runnable = matches!(prev_state, PrevState::Preempted | PrevState::Yielded);
                    self.task(prev).waits = runnable.then_some((cpu, at));
                }
                if let Some(next) = next {
                    self.starts(at, cpu, next);
                }
            }
            _ => {}
        }
    }
}

impl Check for Deadline {
    fn finish(&mut self, _end: Instant) {}

    fn violations(&self) -> &Violations {
        &self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, Timed, found, switch, wakeup};
    use super::*;
    use crate::CpuSet;

    const ENTER: Event = Event::ScheduleEnter {
        runnable: 0,
        queue: 0,
    };

    /// With B in the deadline class.
    fn check(events: &[Timed]) -> Vec<String> {
        let mut check = Deadline::new(2);
        let meta = |rt_priority| TaskMeta {
            comm: String::new(),
            nice: 0,
            affinity: CpuSet::all(2),
            rt_priority,
            idle: false,
        };
        check.define_task(A, &meta(99));
        check.define_task(B, &meta(DEADLINE_PRIORITY));
        found(&mut check, events)
    }

    #[test]
    fn who_starts_before_a_waiting_deadline_task_is_told() {
        let message =
            "deadline: at 30 ns on cpu 0, task 0: starts while deadline task 1 waits there";
        let events = |wakes_at, enters_at| {
            [
                (wakes_at, 1, wakeup(B)),
                (enters_at, 0, ENTER),
                (30, 0, switch(None, Some(A))),
            ]
        };
        assert_eq!(check(&events(10, 20)), [message]);
        // It came while the choice was under way.
        assert_eq!(check(&events(20, 20)), [""; 0]);
        // B itself starts.
        let sound = [
            (10, 1, wakeup(B)),
            (20, 0, ENTER),
            (30, 0, switch(None, Some(B))),
        ];
        assert_eq!(check(&sound), [""; 0]);
    }

    #[test]
    fn a_throttled_task_lets_others_go_before_it() {
        let events = |replenished_at| {
            [
                (1, 0, wakeup(B)),
                (2, 0, switch(None, Some(B))),
                (5, 0, Event::Throttled { task: B }),
                (6, 0, ENTER),
                (7, 0, switch(Some((B, PrevState::Preempted)), None)),
                (replenished_at, 0, Event::Replenished { task: B }),
                (20, 0, ENTER),
                (30, 0, switch(None, Some(A))),
            ]
        };
        assert_eq!(check(&events(10)).len(), 1);
        assert_eq!(check(&events(25)), [""; 0]);
    }

    #[test]
    fn one_that_waits_elsewhere_or_is_of_it_no_more_is_not_in_the_way() {
        let reach = crate::MigrationReach::Llc;
        let moved = [
            (1, 0, wakeup(B)),
            (
                2,
                0,
                Event::Migrate {
                    task: B,
                    from: CpuId(0),
                    to: CpuId(1),
                    reach,
                },
            ),
            (20, 0, ENTER),
            (30, 0, switch(None, Some(A))),
        ];
        assert_eq!(check(&moved), [""; 0]);
        let mut check = Deadline::new(1);
        let mut meta = TaskMeta {
            comm: String::new(),
            nice: 0,
            affinity: CpuSet::all(1),
            rt_priority: DEADLINE_PRIORITY,
            idle: false,
        };
        check.define_task(B, &meta);
        meta.rt_priority = 0;
        check.define_task(B, &meta);
        let events = [
            (1, 0, wakeup(B)),
            (20, 0, ENTER),
            (30, 0, switch(None, Some(A))),
        ];
        assert_eq!(found(&mut check, &events), [""; 0]);
    }
}
