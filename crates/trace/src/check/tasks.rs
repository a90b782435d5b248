//! No task is lost or runs twice at a time: a task runs on one CPU, only after it became runnable, and
//! leaves only the CPU it is on. That a runnable task runs at all is the rule of [`super::stall`].

use super::rule::{Check, Start, Violation, Violations, entry};
use crate::{CpuId, Event, Instant, Listener, PrevState, TaskId};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// Nothing is known of it yet.
    #[default]
    Unknown,
    /// Created or blocked: a wakeup makes it runnable.
    Quiescent,
    /// Runnable, on no CPU.
    Waiting,
    /// On this CPU.
    Running(CpuId),
    /// Ended.
    Gone,
}

/// The checker.
pub struct Tasks {
    start: Start,
    tasks: Vec<State>,
    /// The task that each CPU runs; outer `None`: not known yet.
    current: Vec<Option<Option<TaskId>>>,
    violations: Violations,
}

impl Tasks {
    /// For `nr_cpus` CPUs.
    pub fn new(nr_cpus: usize, start: Start) -> Self {
        let current = match start {
            Start::Idle => Some(None),
            Start::Unknown => None,
        };
        Tasks {
            start,
            tasks: Vec::new(),
            current: vec![current; nr_cpus],
            violations: Violations::default(),
        }
    }

    fn complain(&mut self, at: Instant, cpu: CpuId, task: Option<TaskId>, message: String) {
        self.violations.push(|| Violation {
            at,
            cpu,
            task,
            rule: "tasks",
            message,
        });
    }

    fn state(&mut self, task: TaskId) -> &mut State {
        entry(&mut self.tasks, task.index())
    }

    fn leave(&mut self, at: Instant, cpu: CpuId, task: TaskId, prev_state: PrevState) {
        let unknown_start = self.start == Start::Unknown;
        match *self.state(task) {
            State::Running(on) if on == cpu => {}
            State::Unknown if unknown_start => {}
            state => self.complain(
                at,
                cpu,
                Some(task),
                format!("leaves a CPU that it is not on ({state:?})"),
            ),
        }
        *self.state(task) = match prev_state {
            PrevState::Preempted | PrevState::Yielded => State::Waiting,
            PrevState::Blocked => State::Quiescent,
            PrevState::Exited => State::Gone,
        };
    }

    fn run(&mut self, at: Instant, cpu: CpuId, task: TaskId) {
        let unknown_start = self.start == Start::Unknown;
        let fault = match *self.state(task) {
            State::Waiting => None,
            State::Unknown if unknown_start => None,
            State::Unknown => Some("runs without ever having been woken".to_owned()),
            State::Quiescent => Some("runs without having been woken".to_owned()),
            State::Running(on) => Some(format!("runs twice: it is still on cpu {on}")),
            State::Gone => Some("runs after its end".to_owned()),
        };
        if let Some(fault) = fault {
            self.complain(at, cpu, Some(task), fault);
        }
        *self.state(task) = State::Running(cpu);
    }
}

impl Listener for Tasks {
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        match event {
            Event::TaskNew { task, .. } => *self.state(task) = State::Quiescent,
            Event::Running { task } => {
                if *self.state(task) != State::Unknown || self.current[cpu.index()].is_some() {
                    let message = "is found running after other events told where it was";
                    self.complain(at, cpu, Some(task), message.into());
                }
                *self.state(task) = State::Running(cpu);
                self.current[cpu.index()] = Some(Some(task));
            }
            Event::Wakeup { task, .. } => match *self.state(task) {
                State::Unknown | State::Quiescent => *self.state(task) = State::Waiting,
                // The kernel also reports a wakeup of a task that had not left its queue yet.
                State::Waiting | State::Running(_) => {}
                State::Gone => self.complain(at, cpu, Some(task), "is woken after its end".into()),
            },
            Event::Switch {
                prev,
                prev_state,
                next,
            } => {
                let current = self.current[cpu.index()];
                if current.is_some_and(|current| current != prev) {
                    self.complain(
                        at,
                        cpu,
                        prev,
                        format!(
                            "a switch from {prev:?} on a CPU that runs {:?}",
                            current.flatten()
                        ),
                    );
                }
                if prev == next {
                    self.complain(at, cpu, next, "a switch to the same task".into());
                }
                if let Some(prev) = prev {
                    self.leave(at, cpu, prev, prev_state);
                }
                if let Some(next) = next {
                    self.run(at, cpu, next);
                }
                self.current[cpu.index()] = Some(next);
            }
            _ => {}
        }
    }
}

impl Check for Tasks {
    fn finish(&mut self, _end: Instant) {}

    fn violations(&self) -> &Violations {
        &self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, Timed, found, switch, wakeup};
    use super::*;
    use PrevState::{Blocked, Exited, Preempted};

    fn check(events: &[(u64, u32, Event)]) -> Vec<String> {
        found(&mut Tasks::new(2, Start::Idle), events)
    }

    #[test]
    fn a_life_as_it_should_be() {
        let events = [
            (
                0,
                0,
                Event::TaskNew {
                    task: A,
                    parent: None,
                },
            ),
            (0, 0, wakeup(A)),
            (1, 0, switch(None, Some(A))),
            (2, 0, switch(Some((A, Preempted)), None)),
            (3, 1, switch(None, Some(A))),
            (4, 0, wakeup(A)),
            (5, 1, switch(Some((A, Blocked)), None)),
            (6, 0, wakeup(A)),
            (7, 1, switch(None, Some(A))),
            (8, 1, switch(Some((A, Exited)), None)),
            (
                9,
                1,
                Event::TaskNew {
                    task: A,
                    parent: None,
                },
            ),
            (9, 1, wakeup(A)),
        ];
        assert_eq!(check(&events), [""; 0]);
    }

    #[test]
    fn each_fault_is_found() {
        let cases: [(&str, &[Timed]); 7] = [
            (
                "runs twice",
                &[
                    (0, 0, wakeup(A)),
                    (1, 0, switch(None, Some(A))),
                    (2, 1, switch(None, Some(A))),
                ],
            ),
            ("ever having been woken", &[(1, 0, switch(None, Some(A)))]),
            (
                "without having been woken",
                &[
                    (0, 0, wakeup(A)),
                    (1, 0, switch(None, Some(A))),
                    (2, 0, switch(Some((A, Blocked)), None)),
                    (3, 0, switch(None, Some(A))),
                ],
            ),
            (
                "runs after its end",
                &[
                    (0, 0, wakeup(A)),
                    (1, 0, switch(None, Some(A))),
                    (2, 0, switch(Some((A, Exited)), None)),
                    (3, 0, switch(None, Some(A))),
                ],
            ),
            (
                "woken after its end",
                &[
                    (0, 0, wakeup(A)),
                    (1, 0, switch(None, Some(A))),
                    (2, 0, switch(Some((A, Exited)), None)),
                    (3, 0, wakeup(A)),
                ],
            ),
            (
                "same task",
                &[
                    (0, 0, wakeup(A)),
                    (1, 0, switch(None, Some(A))),
                    (2, 0, switch(Some((A, Preempted)), Some(A))),
                ],
            ),
            (
                "on a CPU that runs",
                &[
                    (0, 0, wakeup(A)),
                    (0, 0, wakeup(B)),
                    (1, 0, switch(None, Some(A))),
                    (2, 0, switch(None, Some(B))),
                ],
            ),
        ];
        for (expected, events) in cases {
            let found = check(events);
            assert_eq!(found.len(), 1, "{expected}: {found:?}");
            assert!(found[0].contains(expected), "{expected}: {found:?}");
        }
        // A task that leaves a CPU it is not on: that CPU runs something else, too.
        let found = check(&[(0, 0, switch(Some((A, Blocked)), None))]);
        assert!(
            found[1].contains("leaves a CPU that it is not on"),
            "{found:?}"
        );
    }

    #[test]
    fn a_task_may_be_found_running_once() {
        let found_running = Event::Running { task: A };
        let unknown = |events: &[Timed]| found(&mut Tasks::new(2, Start::Unknown), events);
        let sound = [
            (0, 0, found_running),
            (1, 0, switch(Some((A, Preempted)), None)),
            (2, 1, switch(None, Some(A))),
        ];
        assert_eq!(unknown(&sound), [""; 0]);
        let twice = [(0, 0, found_running), (1, 1, switch(None, Some(A)))];
        assert!(unknown(&twice)[0].contains("runs twice"));
        let late = [(0, 1, switch(None, Some(A))), (1, 0, found_running)];
        assert!(unknown(&late)[0].contains("found running after"));
    }

    #[test]
    fn in_a_running_system_a_first_event_may_be_any() {
        let events = [
            (0, 0, switch(Some((A, Blocked)), Some(B))),
            (1, 0, switch(Some((B, Preempted)), None)),
        ];
        assert_eq!(found(&mut Tasks::new(2, Start::Unknown), &events), [""; 0]);
        let twice = [(0, 0, switch(None, Some(B))), (1, 1, switch(None, Some(B)))];
        assert_eq!(found(&mut Tasks::new(2, Start::Unknown), &twice).len(), 1);
    }
}
