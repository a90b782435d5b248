//! Locks are balanced: one holder at a time, released by the CPU that took it, and waits and holds as long
//! as their events are apart.

use super::rule::{Check, Start, Violation, Violations, entry};
use crate::{CpuId, Duration, Event, Instant, Listener, LockClass, LockId};

/// The checker.
pub struct Locks {
    start: Start,
    names: Vec<String>,
    /// The holder of each lock, and since when.
    holders: Vec<Option<(CpuId, Instant)>>,
    /// The lock for which each CPU spins, and since when.
    waits: Vec<Option<(LockId, Instant)>>,
    violations: Violations,
}

impl Locks {
    /// For `nr_cpus` CPUs.
    pub fn new(nr_cpus: usize, start: Start) -> Self {
        Locks {
            start,
            names: Vec::new(),
            holders: Vec::new(),
            waits: vec![None; nr_cpus],
            violations: Violations::default(),
        }
    }

    fn complain(&mut self, at: Instant, cpu: CpuId, lock: LockId, message: String) {
        let name = self.names.get(lock.index()).map_or("?", |name| name);
        self.violations.push(|| Violation {
            at,
            cpu,
            task: None,
            rule: "locks",
            message: format!("lock {lock} ({name}): {message}"),
        });
    }

    /// A blocking acquisition: does the wait that it reports agree with the events before it?
    fn judge_wait(
        &mut self,
        at: Instant,
        cpu: CpuId,
        lock: LockId,
        waited: Duration,
        contended: bool,
    ) {
        match self.waits[cpu.index()].take() {
            Some((other, _)) if other != lock => {
                self.complain(
                    at,
                    cpu,
                    lock,
                    format!("taken while spinning for lock {other}"),
                );
            }
            Some((_, since)) if contended && at.since(since) != waited => {
                let (told, seen) = (waited.ns(), at.since(since).ns());
                self.complain(
                    at,
                    cpu,
                    lock,
                    format!("reported a wait of {told} ns, spun {seen} ns"),
                );
            }
            Some(_) if !contended => {
                self.complain(
                    at,
                    cpu,
                    lock,
                    "spun for it, but reported no contention".into(),
                );
            }
            None if contended && self.start == Start::Idle => {
                self.complain(at, cpu, lock, "reported contention, but never spun".into());
            }
            None if !contended && waited > Duration::ZERO => {
                self.complain(at, cpu, lock, "found free, but reported a wait".into());
            }
            _ => {}
        }
    }
}

impl Listener for Locks {
    fn define_lock(&mut self, lock: LockId, name: &str, _class: LockClass) {
        *entry(&mut self.names, lock.index()) = name.to_owned();
    }

    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        match event {
            Event::LockContended { lock, .. } => {
                if matches!(entry(&mut self.holders, lock.index()), Some((by, _)) if *by == cpu) {
                    self.complain(at, cpu, lock, "spun for by its own holder".into());
                }
                if let Some((other, _)) = self.waits[cpu.index()].replace((lock, at)) {
                    self.complain(at, cpu, lock, format!("also spins for lock {other}"));
                }
            }
            Event::LockAcquired {
                lock,
                waited,
                contended,
                trylock,
                ..
            } => {
                if trylock {
                    if contended || waited > Duration::ZERO {
                        self.complain(at, cpu, lock, "a try-lock does not wait".into());
                    }
                } else {
                    self.judge_wait(at, cpu, lock, waited, contended);
                }
                if let Some((by, _)) = entry(&mut self.holders, lock.index()).replace((cpu, at)) {
                    self.complain(at, cpu, lock, format!("taken while cpu {by} holds it"));
                }
            }
            Event::LockReleased { lock, held } => {
                match entry(&mut self.holders, lock.index()).take() {
                    None if self.start == Start::Unknown => {}
                    None => self.complain(at, cpu, lock, "released, but not held".into()),
                    Some((by, _)) if by != cpu => {
                        self.complain(at, cpu, lock, format!("released, but cpu {by} holds it"));
                    }
                    Some((_, since)) if at.since(since) != held => {
                        let (told, seen) = (held.ns(), at.since(since).ns());
                        self.complain(
                            at,
                            cpu,
                            lock,
                            format!("reported a hold of {told} ns, held {seen} ns"),
                        );
                    }
                    Some(_) => {}
                }
            }
            _ => {}
        }
    }
}

impl Check for Locks {
    /// The end of a run may cut a hold or a wait off.
    fn finish(&mut self, _end: Instant) {}

    fn violations(&self) -> &Violations {
        &self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Timed, found};
    use super::*;
    use crate::LockPath;

    const LOCK: LockId = LockId(0);

    fn take(waited: u64, contended: bool, trylock: bool) -> Event {
        Event::LockAcquired {
            lock: LOCK,
            path: LockPath::Schedule,
            waited: Duration::from_ns(waited),
            contended,
            trylock,
        }
    }

    fn spin(lock: u32) -> Event {
        Event::LockContended {
            lock: LockId(lock),
            path: LockPath::Schedule,
        }
    }

    fn release(held: u64) -> Event {
        Event::LockReleased {
            lock: LOCK,
            held: Duration::from_ns(held),
        }
    }

    #[test]
    fn a_balanced_run() {
        let events = [
            (0, 0, take(0, false, false)),
            (4, 1, spin(0)),
            (9, 0, release(9)),
            (10, 1, take(6, true, false)),
            (20, 1, release(10)),
            (21, 0, take(0, false, true)),
            (22, 0, Event::End),
        ];
        assert_eq!(found(&mut Locks::new(2, Start::Idle), &events), [""; 0]);
    }

    #[test]
    fn each_fault_is_found() {
        let held = (0, 0, take(0, false, false));
        let cases: [(&str, &[Timed]); 12] = [
            (
                "taken while cpu 0 holds it",
                &[held, (1, 1, take(0, false, false))],
            ),
            ("released, but not held", &[(1, 0, release(1))]),
            ("released, but cpu 0 holds it", &[held, (1, 1, release(1))]),
            (
                "reported a hold of 5 ns, held 7 ns",
                &[held, (7, 0, release(5))],
            ),
            ("spun for by its own holder", &[held, (7, 0, spin(0))]),
            ("also spins for lock 1", &[(1, 0, spin(1)), (2, 0, spin(0))]),
            (
                "taken while spinning for lock 1",
                &[(1, 0, spin(1)), (2, 0, take(0, false, false))],
            ),
            (
                "reported a wait of 5 ns, spun 1 ns",
                &[(1, 0, spin(0)), (2, 0, take(5, true, false))],
            ),
            (
                "reported no contention",
                &[(1, 0, spin(0)), (2, 0, take(0, false, false))],
            ),
            ("never spun", &[(2, 0, take(1, true, false))]),
            ("reported a wait", &[(2, 0, take(1, false, false))]),
            ("a try-lock does not wait", &[(2, 0, take(1, false, true))]),
        ];
        for (expected, events) in cases {
            let found = found(&mut Locks::new(2, Start::Idle), events);
            assert_eq!(found.len(), 1, "{expected}: {found:?}");
            assert!(found[0].contains(expected), "{expected}: {found:?}");
        }
    }
}
