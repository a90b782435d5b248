//! Every nanosecond of every CPU is accounted for: a CPU's time never goes back, its modes fill its time
//! from start to end, it runs user code only for a task and idles only without one.

use super::rule::{Check, Start, Violation, Violations};
use crate::{CpuId, CpuMode, Duration, Event, Instant, Listener, TaskId};

#[derive(Clone, Copy)]
struct Cpu {
    latest: Instant,
    mode: Option<CpuMode>,
    since: Instant,
    /// Start of what is accounted for.
    from: Instant,
    accounted: Duration,
    current: Option<Option<TaskId>>,
}

/// The checker.
pub struct CpuTime {
    cpus: Vec<Cpu>,
    /// Whether the stream has modes at all.
    seen: bool,
    violations: Violations,
}

impl CpuTime {
    /// For `nr_cpus` CPUs.
    pub fn new(nr_cpus: usize, start: Start) -> Self {
        let known = start == Start::Idle;
        let cpu = Cpu {
            latest: Instant::ZERO,
            mode: known.then_some(CpuMode::Idle),
            since: Instant::ZERO,
            from: Instant::ZERO,
            accounted: Duration::ZERO,
            current: known.then_some(None),
        };
        CpuTime {
            cpus: vec![cpu; nr_cpus],
            seen: false,
            violations: Violations::default(),
        }
    }

    fn complain(&mut self, at: Instant, cpu: CpuId, message: String) {
        let task = self.cpus[cpu.index()].current.flatten();
        self.violations.push(|| Violation {
            at,
            cpu,
            task,
            rule: "cpu time",
            message,
        });
    }

    /// Closes the interval of the CPU's mode at `at`.
    fn close(&mut self, at: Instant, cpu: CpuId) {
        let Cpu {
            mode,
            since,
            current,
            ..
        } = self.cpus[cpu.index()];
        let spent = at.since(since);
        if mode.is_some() {
            self.cpus[cpu.index()].accounted += spent;
        }
        if spent > Duration::ZERO {
            let fault = match (mode, current) {
                (Some(CpuMode::User), Some(None)) => Some("ran user code without a task"),
                (Some(CpuMode::Idle), Some(Some(_))) => Some("idled with a task on it"),
                _ => None,
            };
            if let Some(fault) = fault.filter(|_| self.seen) {
                let (from, to) = (since.ns(), at.ns());
                self.complain(at, cpu, format!("{fault} from {from} to {to} ns"));
            }
        }
        self.cpus[cpu.index()].since = at;
    }
}

impl Listener for CpuTime {
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        let latest = self.cpus[cpu.index()].latest;
        if at < latest {
            self.complain(
                at,
                cpu,
                format!("its time went back from {} ns", latest.ns()),
            );
        }
        self.cpus[cpu.index()].latest = latest.max(at);
        match event {
            Event::Mode(mode) => {
                self.seen = true;
                self.close(at, cpu);
                let cpu = &mut self.cpus[cpu.index()];
                if cpu.mode.is_none() {
                    cpu.from = at;
                }
                cpu.mode = Some(mode);
            }
            Event::Switch { next, .. } => {
                self.close(at, cpu);
                self.cpus[cpu.index()].current = Some(next);
            }
            _ => {}
        }
    }
}

impl Check for CpuTime {
    fn finish(&mut self, end: Instant) {
        for index in 0..self.cpus.len() {
            let cpu = CpuId(index as u32);
            // A CPU may be ahead of the end by the path it was in.
            let end = end.max(self.cpus[index].latest);
            self.close(end, cpu);
            let Cpu {
                from, accounted, ..
            } = self.cpus[index];
            if self.seen && self.cpus[index].mode.is_some() && accounted != end.since(from) {
                let (all, part) = (end.since(from).ns(), accounted.ns());
                self.complain(end, cpu, format!("{part} of {all} ns are accounted for"));
            }
        }
    }

    fn violations(&self) -> &Violations {
        &self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, found, mode, switch};
    use super::*;
    use crate::PrevState;
    use CpuMode::{Idle, Sched, User};

    fn check(events: &[(u64, u32, Event)]) -> Vec<String> {
        found(&mut CpuTime::new(2, Start::Idle), events)
    }

    #[test]
    fn user_code_belongs_to_a_task() {
        let run = |task| {
            [
                (1, 0, mode(Sched)),
                (2, 0, switch(None, task)),
                (3, 0, mode(User)),
                (9, 0, mode(Sched)),
                (9, 0, Event::End),
            ]
        };
        assert_eq!(check(&run(Some(A))), [""; 0]);
        assert_eq!(
            check(&run(None)),
            ["cpu time: at 9 ns on cpu 0: ran user code without a task from 3 to 9 ns"]
        );
    }

    #[test]
    fn a_cpu_with_a_task_does_not_idle() {
        let events = [
            (1, 0, mode(Sched)),
            (2, 0, switch(None, Some(A))),
            (3, 0, mode(Idle)),
            (9, 0, Event::End),
        ];
        let found = check(&events);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("task 0: idled with a task on it from 3 to 9 ns"));
        let events = [
            (1, 0, mode(Sched)),
            (2, 0, switch(None, Some(A))),
            (3, 0, switch(Some((A, PrevState::Blocked)), None)),
            (3, 0, mode(Idle)),
            (9, 0, Event::End),
        ];
        assert_eq!(check(&events), [""; 0]);
    }

    #[test]
    fn time_does_not_go_back_and_nothing_is_left_out() {
        let events = [(5, 0, mode(Sched)), (4, 0, mode(Idle)), (9, 0, Event::End)];
        let found = check(&events);
        assert!(
            found[0].contains("its time went back from 5 ns"),
            "{found:?}"
        );
        // From 4 to 9 ns it idles, from 0 to 5 too: 10 of 9 ns.
        assert!(
            found[1].contains("10 of 9 ns are accounted for"),
            "{found:?}"
        );
        assert_eq!(found.len(), 2);
        // Other CPUs may be behind.
        assert_eq!(
            check(&[(5, 0, mode(Sched)), (4, 1, mode(Sched)), (9, 0, Event::End)]),
            [""; 0]
        );
    }
}
