//! Events of the real kernel in the terms of `schedlab_trace`, so that one set of measures and
//! checkers judges both worlds.

use std::collections::BTreeMap;

use schedlab_trace::{
    CpuId, CpuSet, DEADLINE_PRIORITY, Duration, Event, Instant, Listener, MigrationReach,
    PrevState, TaskId, TaskMeta,
};

use crate::topology;

/// An event as `measure.bpf.c` wrote it (`struct event` of `measure.h`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawEvent {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The kind of event.
    pub kind: RawKind,
    /// The CPU it happened on.
    pub cpu: u32,
    /// Switch: the previous task, 0 = idle. Fork: the child. Otherwise the task.
    pub pid: u32,
    /// Switch: the next task, 0 = idle. Migrate: the new CPU. Wakeup: its CPU. Fork: the parent.
    pub other: u32,
    /// Switch: how the previous task left (`enum left_as`).
    pub left_as: u32,
    /// Migrate: the old CPU. Wakeup: the CPU that decided so.
    pub from: u32,
    /// Fork: the child's name. Switch: the next task's.
    pub comm: [u8; 16],
    /// Wakeup: when it was decided.
    pub since_ns: u64,
    /// Fork: the child's priority, 0 to 139. Switch: the next task's.
    pub prio: u32,
}

/// `LEFT_EXITED` of `enum left_as`.
const LEFT_EXITED: u32 = 1;

/// `enum event_kind` of `measure.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum RawKind {
    Switch,
    Wakeup,
    WakeupNew,
    Migrate,
    Fork,
    Exit,
}

impl RawEvent {
    /// Bytes of `struct event`.
    const SIZE: usize = 64;

    pub(crate) fn parse(bytes: &[u8]) -> Option<RawEvent> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let long = |at: usize| -> Option<u64> {
            Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        };
        if bytes.len() < Self::SIZE {
            return None;
        }
        Some(RawEvent {
            at_ns: long(0)?,
            kind: match word(8)? {
                1 => RawKind::Switch,
                2 => RawKind::Wakeup,
                3 => RawKind::WakeupNew,
                4 => RawKind::Migrate,
                5 => RawKind::Fork,
                6 => RawKind::Exit,
                _ => return None,
            },
            cpu: word(12)?,
            pid: word(16)?,
            other: word(20)?,
            left_as: word(24)?,
            from: word(28)?,
            comm: bytes[32..48].try_into().ok()?,
            since_ns: long(48)?,
            prio: word(56)?,
        })
    }

    /// The task whose priority it reports, among the lives of its `pid` and its `other`.
    fn tells_prio_of(&self, whose: Option<usize>, others: Option<usize>) -> Option<usize> {
        match self.kind {
            RawKind::Fork => whose,
            RawKind::Switch => others,
            _ => None,
        }
    }

    /// The name in the event.
    pub fn comm(&self) -> String {
        let end = self.comm.iter().position(|b| *b == 0).unwrap_or(16);
        String::from_utf8_lossy(&self.comm[..end]).into_owned()
    }
}

/// One more than the greatest CPU that the events name.
pub fn nr_cpus(events: &[RawEvent]) -> usize {
    let named = |event: &RawEvent| match event.kind {
        RawKind::Wakeup | RawKind::WakeupNew | RawKind::Migrate => {
            event.cpu.max(event.from).max(event.other)
        }
        _ => event.cpu,
    };
    let last = events.iter().map(named).max();
    last.map_or(0, |last| last as usize + 1)
}

/// Tells a recorder what the workload's tasks did. Time 0 is the first event. Tasks are numbered
/// in the order in which they appear; switches to and from tasks outside the workload are reported as switches to and
/// from idle. Returns the pid of each task; several tasks may have had the same, one after another.
pub fn replay(events: &[RawEvent], recorder: &mut dyn Listener) -> Vec<u32> {
    let places = topology::places();
    let Some(start) = events.first().map(|e| e.at_ns) else {
        return Vec::new();
    };
    let mut lives = Lives::default();
    let whose: Vec<_> = events.iter().map(|event| lives.of(event)).collect();
    for &life in &lives.told {
        lives.all[life].define(recorder);
    }
    for (event, (whose, others)) in events.iter().zip(whose) {
        let at = Instant::from_ns(event.at_ns - start);
        let cpu = match event.kind {
            // The arrow begins at the waker, who may have asked the task's new CPU by an interrupt.
            RawKind::Wakeup | RawKind::WakeupNew => CpuId(event.from),
            _ => CpuId(event.cpu),
        };
        if let Some(life) = event.tells_prio_of(whose, others)
            && lives.all[life].prio != Some(event.prio)
        {
            lives.all[life].prio = Some(event.prio);
            lives.all[life].define(recorder);
        }
        let task = |life: Option<usize>| lives.all[life?].task;
        let told = match event.kind {
            RawKind::Fork => task(whose).map(|new| Event::TaskNew {
                task: new,
                parent: task(others),
            }),
            RawKind::Exit => task(whose).map(|task| Event::TaskExit { task }),
            RawKind::Wakeup | RawKind::WakeupNew => task(whose).map(|task| Event::Wakeup {
                task,
                to: CpuId(event.other),
                // Clocks of two CPUs may differ a little.
                since: Duration::from_ns(event.at_ns.saturating_sub(event.since_ns.max(start))),
            }),
            RawKind::Migrate => task(whose).map(|task| Event::Migrate {
                task,
                from: CpuId(event.from),
                to: CpuId(event.other),
                reach: reach(&places, event.from, event.other),
            }),
            RawKind::Switch => Some(Event::Switch {
                prev: task(whose),
                prev_state: match event.left_as {
                    0 => PrevState::Blocked,
                    LEFT_EXITED => PrevState::Exited,
                    3 => PrevState::Yielded,
                    _ => PrevState::Preempted,
                },
                next: task(others),
            }),
        };
        if let Some(told) = told {
            recorder.record(at, cpu, told);
        }
    }
    if let Some(last) = events.last() {
        recorder.record(
            Instant::from_ns(last.at_ns - start),
            CpuId(last.cpu),
            Event::End,
        );
    }
    let pid = |&life: &usize| lives.all[life].pid;
    lives.told.iter().map(pid).collect()
}

fn reach(places: &[topology::Place], from: u32, to: u32) -> MigrationReach {
    match (places.get(from as usize), places.get(to as usize)) {
        (Some(a), Some(b)) if a.core == b.core => MigrationReach::Smt,
        (Some(a), Some(b)) if a.llc == b.llc => MigrationReach::Llc,
        (Some(a), Some(b)) if a.node == b.node => MigrationReach::Node,
        _ => MigrationReach::Remote,
    }
}

/// The life of a pid, from its fork, or from its first occurrence, to its last switch.
struct Life {
    pid: u32,
    /// A name is reported where a task begins and where it is switched to; the last one is its own.
    name: String,
    /// The first reported one, until another is reported.
    prio: Option<u32>,
    /// Its number, if it is one of the workload's tasks.
    task: Option<TaskId>,
}

/// The kernel's priority of nice 0 (`DEFAULT_PRIO`), and the number of real-time priorities (`MAX_RT_PRIO`).
const DEFAULT_PRIO: i32 = 120;
const REALTIME_PRIOS: i32 = 100;

impl Life {
    /// Tells what it is, if it is one of the workload's tasks.
    fn define(&self, recorder: &mut dyn Listener) {
        let Some(task) = self.task else { return };
        let prio = self.prio.map_or(DEFAULT_PRIO, |prio| prio as i32);
        let meta = TaskMeta {
            comm: self.name.clone(),
            nice: if prio < REALTIME_PRIOS {
                0
            } else {
                (prio - DEFAULT_PRIO) as i8
            },
            affinity: CpuSet::all(topology::possible_cpus()),
            // That of a deadline task is -1.
            rt_priority: (99 - prio).clamp(0, i32::from(DEADLINE_PRIORITY)) as u8,
            // No trace shows weights.
            idle: false,
        };
        recorder.define_task(task, &meta);
    }
}

#[derive(Default)]
struct Lives {
    all: Vec<Life>,
    /// The one that a pid stands for at the moment.
    current: BTreeMap<u32, usize>,
    /// Those of the workload's tasks, in the order of their numbers.
    told: Vec<usize>,
}

impl Lives {
    /// The lives of an event's `pid` and, where that is one, of its `other`; to be asked in the order of time.
    fn of(&mut self, event: &RawEvent) -> (Option<usize>, Option<usize>) {
        if event.kind == RawKind::Fork {
            let parent = self.known(event.other);
            self.current.remove(&event.pid);
            let child = self.workloads(event.pid);
            self.all[child].name = event.comm();
            self.all[child].prio = Some(event.prio);
            return (Some(child), Some(parent));
        }
        if event.kind != RawKind::Switch {
            return (Some(self.workloads(event.pid)), None);
        }
        let prev = (event.pid != 0).then(|| self.known(event.pid));
        // Its exit is reported before it leaves for the last time.
        if event.left_as == LEFT_EXITED {
            self.current.remove(&event.pid);
        }
        let next = (event.other != 0).then(|| self.known(event.other));
        if let Some(next) = next {
            self.all[next].name = event.comm();
            self.all[next].prio.get_or_insert(event.prio);
        }
        (prev, next)
    }

    fn known(&mut self, pid: u32) -> usize {
        let new = self.all.len();
        let life = *self.current.entry(pid).or_insert(new);
        if life == new {
            self.all.push(Life {
                pid,
                name: String::new(),
                prio: None,
                task: None,
            });
        }
        life
    }

    /// A task that is forked, woken or migrated in the events belongs to the workload: others are not reported.
    fn workloads(&mut self, pid: u32) -> usize {
        let life = self.known(pid);
        if self.all[life].task.is_none() {
            self.all[life].task = Some(TaskId(self.told.len() as u32));
            self.told.push(life);
        }
        life
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: RawKind, pid: u32, other: u32, left_as: u32, name: &str) -> RawEvent {
        let mut comm = [0; 16];
        comm[..name.len()].copy_from_slice(name.as_bytes());
        RawEvent {
            at_ns: 5,
            kind,
            cpu: 0,
            pid,
            other,
            left_as,
            from: 0,
            comm,
            since_ns: 5,
            prio: 120,
        }
    }

    #[derive(Default)]
    struct Told {
        names: Vec<String>,
        priorities: Vec<(u32, i8, u8)>,
        events: Vec<(u32, Event)>,
    }

    impl Listener for Told {
        fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
            self.names.push(meta.comm.clone());
            self.priorities.push((task.0, meta.nice, meta.rt_priority));
        }

        fn record(&mut self, _: Instant, cpu: CpuId, event: Event) {
            self.events.push((cpu.0, event));
        }
    }

    /// A task that forks, is switched to before any other report of it, and is known by a later event.
    #[test]
    fn a_pid_that_is_used_again_is_another_task() {
        use RawKind::{Exit, Fork, Switch, Wakeup};
        let events = [
            event(Switch, 0, 7, 0, "starter"),
            event(Fork, 9, 7, 0, "starter"),
            event(Switch, 7, 9, 0, "first"),
            event(Exit, 9, 0, 0, ""),
            event(Switch, 9, 0, 1, ""),
            event(Wakeup, 7, 0, 0, ""),
            event(Switch, 0, 7, 0, "starter"),
            event(Fork, 9, 7, 0, "starter"),
            event(Switch, 7, 9, 0, "second"),
            // A foreign task, which is reported as idle.
            event(Switch, 9, 8, 2, "stranger"),
        ];
        let mut told = Told::default();
        let pids = replay(&events, &mut told);
        assert_eq!(pids, [9, 7, 9]);
        assert_eq!(told.names, ["first", "starter", "second"]);
        let switches: Vec<_> = told
            .events
            .iter()
            .filter_map(|(_, event)| match event {
                Event::Switch { prev, next, .. } => Some((prev.map(|t| t.0), next.map(|t| t.0))),
                _ => None,
            })
            .collect();
        let (first, starter, second) = (Some(0), Some(1), Some(2));
        let expected = [
            (None, starter),
            (starter, first),
            (first, None),
            (None, starter),
            (starter, second),
            (second, None),
        ];
        assert_eq!(switches, expected);
    }

    #[test]
    fn a_wakeup_is_told_where_and_when_somebody_decided_so() {
        let wakeup = RawEvent {
            at_ns: 900,
            cpu: 3,
            other: 3,
            from: 1,
            since_ns: 650,
            ..event(RawKind::Wakeup, 7, 3, 0, "")
        };
        // By another CPU's clock, which may be ahead.
        let ahead = RawEvent {
            since_ns: 901,
            ..wakeup
        };
        for (wakeup, ns) in [(wakeup, 250), (ahead, 0)] {
            let mut told = Told::default();
            replay(&[event(RawKind::Fork, 7, 6, 0, "one"), wakeup], &mut told);
            let expected = Event::Wakeup {
                task: TaskId(0),
                to: CpuId(3),
                since: Duration::from_ns(ns),
            };
            assert_eq!(told.events[1], (1, expected));
        }
    }

    #[test]
    fn priorities_are_told_as_they_change() {
        let with = |prio, event| RawEvent { prio, ..event };
        let events = [
            with(115, event(RawKind::Fork, 7, 6, 0, "one")),
            with(115, event(RawKind::Switch, 0, 7, 0, "one")),
            with(130, event(RawKind::Switch, 7, 8, 0, "two")),
            event(RawKind::Wakeup, 8, 0, 0, ""),
            with(49, event(RawKind::Switch, 8, 7, 0, "one")),
        ];
        let mut told = Told::default();
        replay(&events, &mut told);
        assert_eq!(told.priorities, [(0, -5, 0), (1, 10, 0), (0, 0, 50)]);
    }
}
