//! Running times add up: the running times of the tasks and the idle times of the CPUs, both by their switches, are
//! together the time of all CPUs; and no more user code ran than tasks did. A CPU of a running system counts from the
//! first event that shows its task.

use super::rule::{Check, Start, Violation, Violations, entry};
use crate::{CpuId, CpuMode, Event, Instant, Listener};

#[derive(Clone, Copy)]
struct Cpu {
    /// Since when it is known whether it has a task.
    known_since: Option<Instant>,
    /// Since when it has no task; `None` while it has one.
    empty_since: Option<Instant>,
    user_since: Option<Instant>,
    latest: Instant,
}

/// The checker.
pub struct RunningTime {
    cpus: Vec<Cpu>,
    /// Since when each task runs.
    running_since: Vec<Option<Instant>>,
    ran_ns: u64,
    empty_ns: u64,
    user_ns: u64,
    violations: Violations,
}

impl RunningTime {
    /// For `nr_cpus` CPUs.
    pub fn new(nr_cpus: usize, start: Start) -> Self {
        let known_since = (start == Start::Idle).then_some(Instant::ZERO);
        let cpu = Cpu {
            known_since,
            empty_since: known_since,
            user_since: None,
            latest: Instant::ZERO,
        };
        RunningTime {
            cpus: vec![cpu; nr_cpus],
            running_since: Vec::new(),
            ran_ns: 0,
            empty_ns: 0,
            user_ns: 0,
            violations: Violations::default(),
        }
    }
}

impl Listener for RunningTime {
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        let cpu = &mut self.cpus[cpu.index()];
        cpu.latest = cpu.latest.max(at);
        match event {
            Event::Mode(mode) => {
                if let Some(since) = cpu.user_since.take() {
                    self.user_ns += at.since(since).ns();
                }
                let counts = mode == CpuMode::User && cpu.known_since.is_some();
                cpu.user_since = counts.then_some(at);
            }
            Event::Running { task } => {
                cpu.known_since.get_or_insert(at);
                *entry(&mut self.running_since, task.index()) = Some(at);
            }
            Event::Switch { prev, next, .. } => {
                cpu.known_since.get_or_insert(at);
                if let Some(since) = cpu.empty_since.take() {
                    self.empty_ns += at.since(since).ns();
                }
                cpu.empty_since = next.is_none().then_some(at);
                if let Some(prev) = prev
                    && let Some(since) = entry(&mut self.running_since, prev.index()).take()
                {
                    self.ran_ns += at.since(since).ns();
                }
                if let Some(next) = next {
                    *entry(&mut self.running_since, next.index()) = Some(at);
                }
            }
            _ => {}
        }
    }
}

impl Check for RunningTime {
    fn finish(&mut self, end: Instant) {
        let mut all_ns = 0;
        for cpu in &self.cpus {
            all_ns += cpu.known_since.map_or(0, |since| end.since(since).ns());
            for (since, sum) in [
                (cpu.empty_since, &mut self.empty_ns),
                (cpu.user_since, &mut self.user_ns),
            ] {
                *sum += since.map_or(0, |since| end.since(since).ns());
            }
        }
        for since in self.running_since.iter().flatten() {
            self.ran_ns += end.since(*since).ns();
        }
        // A CPU may be ahead of the end by the path it was in; what it switched there counts too.
        let ahead_ns: u64 = self.cpus.iter().map(|cpu| cpu.latest.since(end).ns()).sum();
        let found_ns = self.ran_ns + self.empty_ns;
        if found_ns < all_ns || found_ns > all_ns + ahead_ns {
            let (ran, empty) = (self.ran_ns, self.empty_ns);
            self.violations.push(|| Violation {
                at: end,
                cpu: CpuId(0),
                task: None,
                rule: "running time",
                message: format!(
                    "tasks ran {ran} ns and CPUs had none for {empty} ns: not the {all_ns} ns of all CPUs"
                ),
            });
        }
        if self.user_ns > self.ran_ns {
            let (ran, user) = (self.ran_ns, self.user_ns);
            self.violations.push(|| Violation {
                at: end,
                cpu: CpuId(0),
                task: None,
                rule: "running time",
                message: format!("{user} ns of user code, but tasks ran only {ran} ns"),
            });
        }
    }

    fn violations(&self) -> &Violations {
        &self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, found, mode, switch};
    use super::*;
    use crate::PrevState::{Blocked, Preempted};

    fn check(events: &[(u64, u32, Event)]) -> Vec<String> {
        found(&mut RunningTime::new(2, Start::Idle), events)
    }

    #[test]
    fn tasks_and_empty_cpus_fill_all_time() {
        let events = [
            (10, 0, switch(None, Some(A))),
            (20, 1, switch(None, Some(B))),
            (30, 0, mode(CpuMode::User)),
            (40, 0, switch(Some((A, Preempted)), None)),
            (50, 1, switch(Some((B, Blocked)), Some(A))),
            (60, 0, Event::End),
        ];
        assert_eq!(check(&events), [""; 0]);
    }

    #[test]
    fn a_task_on_two_cpus_does_not_add_up() {
        let events = [
            (10, 0, switch(None, Some(A))),
            (20, 1, switch(None, Some(A))),
            (60, 0, Event::End),
        ];
        // The task ran 40 ns by its own account, the CPUs were empty for 10 + 20.
        assert_eq!(
            check(&events),
            [
                "running time: at 60 ns on cpu 0: tasks ran 40 ns and CPUs had none for 30 ns: not the 120 ns of all CPUs"
            ]
        );
    }

    #[test]
    fn in_a_running_system_a_cpu_counts_from_its_first_switch() {
        // Of CPU 2 nothing is told.
        let check = |events: &[_]| found(&mut RunningTime::new(3, Start::Unknown), events);
        let mut events = vec![
            (10, 0, Event::Running { task: A }),
            (20, 1, switch(Some((B, Blocked)), None)),
            (30, 0, switch(Some((A, Preempted)), None)),
            (50, 1, switch(None, Some(A))),
            (60, 1, Event::End),
        ];
        assert_eq!(check(&events), [""; 0]);
        // Also on CPU 0, from 40 ns on: by its own account it runs 20 + 10 ns, and the CPUs are empty for 10 + 30.
        events.insert(3, (40, 0, switch(None, Some(A))));
        assert_eq!(
            check(&events),
            [
                "running time: at 60 ns on cpu 0: tasks ran 30 ns and CPUs had none for 40 ns: not the 90 ns of all CPUs"
            ]
        );
    }

    #[test]
    fn user_code_without_a_task_is_found() {
        let events = [(10, 0, mode(CpuMode::User)), (60, 0, Event::End)];
        assert_eq!(
            check(&events),
            ["running time: at 60 ns on cpu 0: 50 ns of user code, but tasks ran only 0 ns"]
        );
    }
}
