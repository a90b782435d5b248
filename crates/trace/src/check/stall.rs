//! No runnable task waits beyond the watchdog's bound; a task that is lost waits for ever. A throttled task waits for its
//! next period, which is no stall.

use super::rule::{Check, Violation, Violations, entry};
use crate::{CpuId, Duration, Event, Instant, Listener, PrevState, TaskId};

/// The checker.
pub struct Stall {
    bound: Duration,
    /// Since when and on which CPU's behalf each task waits.
    waiting: Vec<Option<(Instant, CpuId)>>,
    /// Throttled tasks.
    throttled: Vec<bool>,
    violations: Violations,
}

impl Stall {
    /// No task may wait longer than `bound`.
    pub fn new(bound: Duration) -> Self {
        Stall {
            bound,
            waiting: Vec::new(),
            throttled: Vec::new(),
            violations: Violations::default(),
        }
    }

    fn judge(&mut self, at: Instant, since: Instant, cpu: CpuId, task: TaskId, how: &str) {
        let waited = at.since(since);
        if waited > self.bound {
            let bound = self.bound;
            self.violations.push(|| Violation {
                at,
                cpu,
                task: Some(task),
                rule: "stall",
                message: format!(
                    "runnable since {} ns, {how} {} ns: the bound is {} ns",
                    since.ns(),
                    waited.ns(),
                    bound.ns()
                ),
            });
        }
    }
}

impl Listener for Stall {
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        match event {
            Event::Wakeup { task, to, .. } => {
                entry(&mut self.waiting, task.index()).get_or_insert((at, to));
            }
            Event::Switch {
                prev,
                prev_state,
                next,
            } => {
                if let Some(prev) = prev {
                    let runnable = matches!(prev_state, PrevState::Preempted | PrevState::Yielded);
                    *entry(&mut self.waiting, prev.index()) = runnable.then_some((at, cpu));
                }
                if let Some(next) = next
                    && let Some((since, _)) = entry(&mut self.waiting, next.index()).take()
                {
                    self.judge(at, since, cpu, next, "ran after");
                }
            }
            Event::Throttled { task } => *entry(&mut self.throttled, task.index()) = true,
            Event::Replenished { task } => {
                *entry(&mut self.throttled, task.index()) = false;
                if let Some((since, _)) = entry(&mut self.waiting, task.index()) {
                    *since = at;
                }
            }
            _ => {}
        }
    }
}

impl Check for Stall {
    fn finish(&mut self, end: Instant) {
        for index in 0..self.waiting.len() {
            let throttled = *entry(&mut self.throttled, index);
            if let Some((since, cpu)) = self.waiting[index].filter(|_| !throttled) {
                self.judge(end, since, cpu, TaskId(index as u32), "never ran for");
            }
        }
    }

    fn violations(&self) -> &Violations {
        &self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, found, switch, wakeup};
    use super::*;

    #[test]
    fn waits_up_to_the_bound_pass_and_longer_ones_do_not() {
        let events = |run_at| {
            [
                (0, 0, wakeup(A)),
                (run_at, 0, switch(None, Some(A))),
                (run_at, 0, wakeup(A)), // while it runs
                (500, 0, switch(Some((A, PrevState::Blocked)), None)),
                (900, 0, Event::End),
            ]
        };
        let check = |run_at| found(&mut Stall::new(Duration::from_ns(100)), &events(run_at));
        assert_eq!(check(100), [""; 0]);
        assert_eq!(
            check(101),
            [
                "stall: at 101 ns on cpu 0, task 0: runnable since 0 ns, ran after 101 ns: the bound is 100 ns"
            ]
        );
    }

    #[test]
    fn a_throttled_task_waits_from_its_next_period_on() {
        let events = |run_at| {
            [
                (0, 0, wakeup(A)),
                (1, 0, switch(None, Some(A))),
                (9, 0, Event::Throttled { task: A }),
                (10, 0, switch(Some((A, PrevState::Preempted)), None)),
                (500, 0, Event::Replenished { task: A }),
                (run_at, 0, switch(None, Some(A))),
                (run_at + 1, 0, Event::Throttled { task: A }),
                (run_at + 2, 0, switch(Some((A, PrevState::Preempted)), None)),
                (2_000, 0, Event::End),
            ]
        };
        let check = |run_at| found(&mut Stall::new(Duration::from_ns(100)), &events(run_at));
        assert_eq!(check(600), [""; 0]);
        assert_eq!(check(601).len(), 1);
    }

    #[test]
    fn a_lost_task_is_found_at_the_end() {
        let events = [
            (0, 0, wakeup(A)),
            (1, 0, switch(None, Some(A))),
            (2, 0, wakeup(B)),
            (3, 0, switch(Some((A, PrevState::Preempted)), Some(B))),
            (200, 0, Event::End),
        ];
        let messages = found(&mut Stall::new(Duration::from_ns(100)), &events);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].contains("task 0: runnable since 3 ns, never ran for 197 ns"));
    }
}
