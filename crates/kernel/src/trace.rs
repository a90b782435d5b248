//! Events of the real kernel in the terms of `schedlab_trace`, so that one set of measures and
//! checkers judges both worlds.

use std::collections::BTreeMap;

use schedlab_trace::{
    CpuId, CpuSet, Duration, Event, Instant, MigrationReach, PrevState, Recorder, TaskId, TaskMeta,
};

use crate::topology;

/// An event as `measure.bpf.c` wrote it (`struct event` of `measure.h`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawEvent {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// What happened.
    pub kind: RawKind,
    /// The CPU it happened on.
    pub cpu: u32,
    /// Switch: the previous task, 0 = idle. Fork: the child. Otherwise the task.
    pub pid: u32,
    /// Switch: the next task, 0 = idle. Migrate: the new CPU. Wakeup: its CPU. Fork: the parent.
    pub other: u32,
    /// Switch: how the previous task left (`enum left_as`).
    pub left_as: u32,
    /// Migrate: the old CPU.
    pub from: u32,
    /// Fork: the child's name. Switch: the next task's.
    pub comm: [u8; 16],
}

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
    const SIZE: usize = 48;

    pub(crate) fn parse(bytes: &[u8]) -> Option<RawEvent> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        if bytes.len() < Self::SIZE {
            return None;
        }
        Some(RawEvent {
            at_ns: u64::from_ne_bytes(bytes[..8].try_into().ok()?),
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
        })
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
        RawKind::Wakeup | RawKind::WakeupNew => event.cpu.max(event.other),
        RawKind::Migrate => event.cpu.max(event.from).max(event.other),
        _ => event.cpu,
    };
    let last = events.iter().map(named).max();
    last.map_or(0, |last| last as usize + 1)
}

/// Tells a recorder what the workload's tasks did. Time 0 is the first event. Tasks are numbered
/// in the order in which they appear; switches to and from tasks that are no part of the workload
/// are told as switches to and from idle. Answers the pid of each task.
pub fn replay(events: &[RawEvent], recorder: &mut dyn Recorder) -> Vec<u32> {
    let mut tasks = Tasks::default();
    let places = topology::places();
    let Some(start) = events.first().map(|e| e.at_ns) else {
        return Vec::new();
    };
    // A name is told where a task begins and where it is switched to; the last one is its own.
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    for event in events {
        let named = match event.kind {
            RawKind::Fork => event.pid,
            RawKind::Switch => event.other,
            _ => continue,
        };
        names.insert(named, event.comm());
    }
    // Whoever is forked, woken or migrated in the events is of the workload: others are not told.
    for event in events {
        if event.kind != RawKind::Switch {
            let name = names.get(&event.pid).map_or("", String::as_str);
            tasks.id(event.pid, name, recorder);
        }
    }
    for event in events {
        let at = Instant::from_ns(event.at_ns - start);
        let cpu = CpuId(event.cpu);
        let told = match event.kind {
            RawKind::Fork => tasks.known(event.pid).map(|task| Event::TaskNew {
                task,
                parent: tasks.known(event.other),
            }),
            RawKind::Exit => tasks.known(event.pid).map(|task| Event::TaskExit { task }),
            RawKind::Wakeup | RawKind::WakeupNew => {
                tasks.known(event.pid).map(|task| Event::Wakeup {
                    task,
                    to: CpuId(event.other),
                    since: Duration::ZERO,
                })
            }
            RawKind::Migrate => tasks.known(event.pid).map(|task| Event::Migrate {
                task,
                from: CpuId(event.from),
                to: CpuId(event.other),
                reach: reach(&places, event.from, event.other),
            }),
            RawKind::Switch => Some(Event::Switch {
                prev: tasks.known(event.pid),
                prev_state: match event.left_as {
                    0 => PrevState::Blocked,
                    1 => PrevState::Exited,
                    3 => PrevState::Yielded,
                    _ => PrevState::Preempted,
                },
                next: tasks.known(event.other),
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
    tasks.pids
}

fn reach(places: &[topology::Place], from: u32, to: u32) -> MigrationReach {
    match (places.get(from as usize), places.get(to as usize)) {
        (Some(a), Some(b)) if a.core == b.core => MigrationReach::Smt,
        (Some(a), Some(b)) if a.llc == b.llc => MigrationReach::Llc,
        (Some(a), Some(b)) if a.node == b.node => MigrationReach::Node,
        _ => MigrationReach::Remote,
    }
}

#[derive(Default)]
struct Tasks {
    ids: BTreeMap<u32, TaskId>,
    pids: Vec<u32>,
}

impl Tasks {
    fn known(&self, pid: u32) -> Option<TaskId> {
        self.ids.get(&pid).copied()
    }

    fn id(&mut self, pid: u32, comm: &str, recorder: &mut dyn Recorder) -> TaskId {
        if let Some(known) = self.known(pid) {
            return known;
        }
        let task = TaskId(self.pids.len() as u32);
        self.pids.push(pid);
        self.ids.insert(pid, task);
        let meta = TaskMeta {
            comm: comm.to_owned(),
            nice: 0,
            affinity: CpuSet::all(topology::possible_cpus()),
            rt_priority: 0,
        };
        recorder.define_task(task, &meta);
        task
    }
}
