//! Events of the real kernel in the terms of `schedlab_trace`, so that one set of measures and
//! checkers judges both worlds.
//!
//! [`EventStream`] takes the records as the kernel's buffer gives them, puts them in the order of time, and tells a
//! [`Listener`] what they mean. It holds the records of [`WINDOW_NS`] and a few words of each live task.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use schedlab_report::Sources;
use schedlab_trace::{
    CpuId, CpuSet, DEADLINE_PRIORITY, Duration, Event, Instant, Listener, MigrationReach,
    PrevState, TaskId, TaskMeta,
};

use crate::raw::{RawEvent, RawKind};
use crate::topology;

/// Records may come so much later than others that are younger: as long as a CPU may take from reading its clock
/// until its record has a place in the buffer. A CPU of a virtual machine may be taken away meanwhile.
pub const WINDOW_NS: u64 = 200_000_000;

/// The facts that the records show. `yields`, `migrations` and `ipis` depend on which programs this kernel lets attach.
pub const SHOWN: Sources = Sources {
    schedule: false,
    examined: false,
    memory: false,
    policy_locks: false,
    kernel_locks: false,
    modes: false,
    yields: true,
    priorities: true,
    deadlines: false,
    migrations: true,
    ipis: true,
    work: false,
};

/// A record with its place in the buffer: records of the same time keep their order.
struct Queued {
    at_ns: u64,
    place: u64,
    record: RawEvent,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.place).cmp(&(other.at_ns, other.place))
    }
}

/// Records of the kernel as events.
pub struct EventStream {
    waiting: BinaryHeap<Reverse<Queued>>,
    taken: u64,
    newest_ns: u64,
    /// Of the record told last.
    told_ns: u64,
    late: u64,
    teller: Teller,
}

impl Default for EventStream {
    fn default() -> Self {
        EventStream {
            waiting: BinaryHeap::new(),
            taken: 0,
            newest_ns: 0,
            told_ns: 0,
            late: 0,
            teller: Teller {
                places: topology::places(),
                nr_cpus: topology::possible_cpus(),
                start_ns: None,
                lives: BTreeMap::new(),
                pids: Vec::new(),
            },
        }
    }
}

impl EventStream {
    /// Takes a record; tells those that no earlier one can follow any more.
    pub fn take(&mut self, record: RawEvent, listener: &mut dyn Listener) {
        let at_ns = record.at_ns;
        if at_ns < self.told_ns {
            self.late += 1;
            return;
        }
        self.newest_ns = self.newest_ns.max(at_ns);
        let place = self.taken;
        self.taken += 1;
        self.waiting.push(Reverse(Queued {
            at_ns,
            place,
            record,
        }));
        self.tell_until(self.newest_ns.saturating_sub(WINDOW_NS), listener);
    }

    fn tell_until(&mut self, until_ns: u64, listener: &mut dyn Listener) {
        while let Some(Reverse(first)) = self.waiting.peek()
            && first.at_ns <= until_ns
            && let Some(Reverse(first)) = self.waiting.pop()
        {
            self.told_ns = first.at_ns;
            self.teller.tell(&first.record, listener);
        }
    }

    /// Streams the rest, and the end of the run. Returns how many records came too late for their place,
    /// and were left out.
    pub fn end(&mut self, listener: &mut dyn Listener) -> u64 {
        self.tell_until(u64::MAX, listener);
        if let Some(start) = self.teller.start_ns {
            let at = Instant::from_ns(self.told_ns - start);
            listener.record(at, CpuId(0), Event::End);
        }
        self.late
    }

    /// The process id of each task, in the order of their numbers; one may be that of several, one after another.
    pub fn pids(&self) -> &[u32] {
        &self.teller.pids
    }
}

/// A task of the workload from its fork, or the first process' execve, to its last switch.
struct Life {
    task: TaskId,
    meta: TaskMeta,
}

/// Of the kernel's priorities, that of nice 0 (`DEFAULT_PRIO`), and those of real-time tasks (`MAX_RT_PRIO`).
const DEFAULT_PRIO: i32 = 120;
const REALTIME_PRIOS: i32 = 100;

/// Turns records, in the order of time, into events. Time 0 is the first record. Switches to and from tasks that are no
/// part of the workload are told as switches to and from idle.
struct Teller {
    places: Vec<topology::Place>,
    nr_cpus: usize,
    start_ns: Option<u64>,
    /// By process id.
    lives: BTreeMap<u32, Life>,
    pids: Vec<u32>,
}

impl Teller {
    fn tell(&mut self, record: &RawEvent, listener: &mut dyn Listener) {
        let start = *self.start_ns.get_or_insert(record.at_ns);
        let at = Instant::from_ns(record.at_ns - start);
        let cpu = match record.kind {
            // The arrow begins at the waker, who may have asked the task's new CPU by an interrupt.
            RawKind::Wakeup | RawKind::WakeupNew => CpuId(record.from),
            _ => CpuId(record.cpu),
        };
        // A clock of another CPU may have been a little ahead.
        let event = match record.kind {
            RawKind::Fork => {
                let parent = self.task(record.other);
                let task = self.begins(record, listener);
                Some(Event::TaskNew { task, parent })
            }
            RawKind::Exec => {
                let task = self.begins(record, listener);
                Some(Event::Running { task })
            }
            RawKind::Starter => {
                if let Some(task) = self.task(record.pid) {
                    listener.define_starter(task);
                }
                None
            }
            RawKind::Begin => Some(Event::Begin),
            RawKind::Exit => self.task(record.pid).map(|task| Event::TaskExit { task }),
            RawKind::Wakeup | RawKind::WakeupNew => {
                self.task(record.pid).map(|task| Event::Wakeup {
                    task,
                    to: CpuId(record.other),
                    since: Duration::from_ns(
                        record.at_ns.saturating_sub(record.since_ns.max(start)),
                    ),
                })
            }
            RawKind::Migrate => self.task(record.pid).map(|task| Event::Migrate {
                task,
                from: CpuId(record.from),
                to: CpuId(record.other),
                reach: reach(&self.places, record.from, record.other),
            }),
            RawKind::Prio => {
                if let Some(task) = self.task(record.pid) {
                    listener.record(at, cpu, Event::Priority { task });
                }
                self.update(record.pid, record, listener);
                None
            }
            RawKind::Ipi => Some(Event::Ipi {
                to: CpuId(record.other),
            }),
            RawKind::Allowed => self.allows(record, listener),
            RawKind::Switch => Some(self.switch(record, listener)),
        };
        if let Some(event) = event {
            listener.record(at, cpu, event);
        }
    }

    fn task(&self, pid: u32) -> Option<TaskId> {
        Some(self.lives.get(&pid)?.task)
    }

    /// A new task, which the record describes.
    fn begins(&mut self, record: &RawEvent, listener: &mut dyn Listener) -> TaskId {
        let task = TaskId(self.pids.len() as u32);
        self.pids.push(record.pid);
        let meta = meta_of(record, CpuSet::all(self.nr_cpus));
        listener.define_task(task, &meta);
        self.lives.insert(record.pid, Life { task, meta });
        task
    }

    /// Tells a task's name and priority again where they are others now.
    fn update(&mut self, pid: u32, record: &RawEvent, listener: &mut dyn Listener) {
        let Some(life) = self.lives.get_mut(&pid) else {
            return;
        };
        let affinity = std::mem::take(&mut life.meta.affinity);
        let meta = meta_of(record, affinity);
        let same = (&meta.comm, meta.nice, meta.rt_priority, meta.idle)
            == (
                &life.meta.comm,
                life.meta.nice,
                life.meta.rt_priority,
                life.meta.idle,
            );
        life.meta = meta;
        if !same {
            listener.define_task(life.task, &life.meta);
        }
    }

    fn allows(&mut self, record: &RawEvent, listener: &mut dyn Listener) -> Option<Event> {
        let nr_cpus = self.nr_cpus;
        let life = self.lives.get_mut(&record.pid)?;
        let cpus = record.allowed.as_deref()?;
        let allows = |cpu: &u32| {
            let word = cpus.get(*cpu as usize / 64);
            // Of CPUs beyond the mask nothing is known.
            word.is_none_or(|word| word >> (cpu % 64) & 1 != 0)
        };
        let mut allowed = CpuSet::empty(nr_cpus);
        (0..nr_cpus as u32)
            .filter(allows)
            .for_each(|cpu| allowed.insert(CpuId(cpu)));
        listener.define_affinity(life.task, &allowed);
        life.meta.affinity = allowed;
        Some(Event::Affinity { task: life.task })
    }

    fn switch(&mut self, record: &RawEvent, listener: &mut dyn Listener) -> Event {
        let prev = self.task(record.pid);
        let prev_state = record.left_as.into();
        if prev_state == PrevState::Exited {
            self.lives.remove(&record.pid);
        }
        self.update(record.other, record, listener);
        Event::Switch {
            prev,
            prev_state,
            next: self.task(record.other),
        }
    }
}

fn meta_of(record: &RawEvent, affinity: CpuSet) -> TaskMeta {
    let prio = record.prio as i32;
    TaskMeta {
        comm: record.comm(),
        nice: if prio < REALTIME_PRIOS {
            0
        } else {
            (prio - DEFAULT_PRIO).clamp(-20, 19) as i8
        },
        affinity,
        // That of a deadline task is -1.
        rt_priority: (99 - prio).clamp(0, i32::from(DEADLINE_PRIORITY)) as u8,
        idle: record.idle_policy && prio >= REALTIME_PRIOS,
    }
}

fn reach(places: &[topology::Place], from: u32, to: u32) -> MigrationReach {
    match (places.get(from as usize), places.get(to as usize)) {
        (Some(a), Some(b)) if a.core == b.core => MigrationReach::Smt,
        (Some(a), Some(b)) if a.llc == b.llc => MigrationReach::Llc,
        (Some(a), Some(b)) if a.node == b.node => MigrationReach::Node,
        _ => MigrationReach::Remote,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::LeftAs;

    fn record(at_ns: u64, kind: RawKind, pid: u32, other: u32, name: &str) -> RawEvent {
        let mut comm = [0; 16];
        comm[..name.len()].copy_from_slice(name.as_bytes());
        RawEvent {
            at_ns,
            kind,
            cpu: 0,
            pid,
            other,
            left_as: LeftAs::Blocked,
            from: 0,
            comm,
            since_ns: at_ns,
            prio: 120,
            idle_policy: false,
            allowed: None,
        }
    }

    #[derive(Default)]
    struct Told {
        tasks: Vec<(u32, TaskMeta)>,
        starters: Vec<u32>,
        allowed: Vec<String>,
        events: Vec<(u64, u32, Event)>,
    }

    impl Listener for Told {
        fn define_starter(&mut self, task: TaskId) {
            self.starters.push(task.0);
        }

        fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
            self.tasks.push((task.0, meta.clone()));
        }

        fn define_affinity(&mut self, _: TaskId, allowed: &CpuSet) {
            self.allowed.push(allowed.to_string());
        }

        fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
            self.events.push((at.ns(), cpu.0, event));
        }
    }

    impl Told {
        fn switches(&self) -> Vec<(Option<u32>, Option<u32>)> {
            let of = |&(_, _, event): &(u64, u32, Event)| match event {
                Event::Switch { prev, next, .. } => Some((prev.map(|t| t.0), next.map(|t| t.0))),
                _ => None,
            };
            self.events.iter().filter_map(of).collect()
        }
    }

    fn told(records: impl IntoIterator<Item = RawEvent>) -> (Told, EventStream) {
        let mut told = Told::default();
        let mut stream = EventStream::default();
        for record in records {
            stream.take(record, &mut told);
        }
        assert_eq!(stream.end(&mut told), 0);
        (told, stream)
    }

    #[test]
    fn a_pid_that_is_used_again_is_another_task() {
        use RawKind::{Exec, Exit, Fork, Switch, Wakeup};
        let left = |left_as, record| RawEvent { left_as, ..record };
        let (told, stream) = told([
            record(1, Exec, 7, 0, "starter"),
            record(2, Fork, 9, 7, "starter"),
            record(3, Switch, 7, 9, "first"),
            record(4, Exit, 9, 0, ""),
            left(LeftAs::Exited, record(5, Switch, 9, 0, "")),
            record(6, Wakeup, 7, 0, ""),
            record(7, Switch, 0, 7, "starter"),
            record(8, Fork, 9, 7, "starter"),
            record(9, Switch, 7, 9, "second"),
            // A stranger, who is told as idle.
            left(LeftAs::Preempted, record(10, Switch, 9, 0, "stranger")),
        ]);
        assert_eq!(stream.pids(), [7, 9, 9]);
        let names: Vec<_> = told.tasks.iter().map(|(t, m)| (*t, &*m.comm)).collect();
        let expected = [
            (0, "starter"),
            (1, "starter"),
            (1, "first"),
            (2, "starter"),
            (2, "second"),
        ];
        assert_eq!(names, expected);
        let (starter, first, second) = (Some(0), Some(1), Some(2));
        let expected = [
            (starter, first),
            (first, None),
            (None, starter),
            (starter, second),
            (second, None),
        ];
        assert_eq!(told.switches(), expected);
        assert_eq!(told.events[0].2, Event::Running { task: TaskId(0) });
        assert_eq!(told.events.last(), Some(&(9, 0, Event::End)));
    }

    #[test]
    fn a_wakeup_is_told_where_and_when_somebody_decided_so() {
        let wakeup = RawEvent {
            cpu: 3,
            from: 1,
            since_ns: 650,
            ..record(900, RawKind::Wakeup, 7, 3, "")
        };
        // By another CPU's clock, which may be ahead.
        let ahead = RawEvent {
            since_ns: 901,
            ..wakeup.clone()
        };
        for (wakeup, ns) in [(wakeup, 250), (ahead, 0)] {
            let (told, _) = told([record(5, RawKind::Fork, 7, 6, "one"), wakeup]);
            let expected = Event::Wakeup {
                task: TaskId(0),
                to: CpuId(3),
                since: Duration::from_ns(ns),
            };
            assert_eq!(told.events[1], (895, 1, expected));
        }
    }

    #[test]
    fn priorities_are_told_as_they_change() {
        let with = |prio, record| RawEvent { prio, ..record };
        let (told, _) = told([
            with(115, record(1, RawKind::Fork, 7, 6, "one")),
            with(115, record(2, RawKind::Switch, 0, 7, "one")),
            with(49, record(3, RawKind::Switch, 0, 7, "one")),
            with(130, record(4, RawKind::Prio, 7, 0, "one")),
            RawEvent {
                idle_policy: true,
                ..record(5, RawKind::Prio, 7, 0, "one")
            },
        ]);
        let of = |(_, meta): &(u32, TaskMeta)| (meta.nice, meta.rt_priority, meta.idle);
        let found: Vec<_> = told.tasks.iter().map(of).collect();
        assert_eq!(
            found,
            [(-5, 0, false), (0, 50, false), (10, 0, false), (0, 0, true)]
        );
        // The change has a moment of its own.
        let changes = told
            .events
            .iter()
            .filter(|(_, _, event)| *event == Event::Priority { task: TaskId(0) });
        assert_eq!(changes.map(|event| event.0).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn allowed_cpus_are_those_of_the_mask() {
        let (told, _) = told([
            record(1, RawKind::Fork, 7, 6, "one"),
            RawEvent {
                allowed: Some([1].into()),
                ..record(2, RawKind::Allowed, 7, 0, "")
            },
        ]);
        assert_eq!(told.allowed, ["0"]);
        assert_eq!(told.events[1].2, Event::Affinity { task: TaskId(0) });
    }

    #[test]
    fn records_are_told_in_the_order_of_time_and_late_ones_are_counted() {
        let mut told = Told::default();
        let mut stream = EventStream::default();
        let ipi = |at_ns, to| record(at_ns, RawKind::Ipi, 0, to, "");
        for record in [
            ipi(1_000, 1),
            ipi(3_000, 2),
            ipi(2_000, 3),
            ipi(2_000, 4),
            // All before are told.
            ipi(WINDOW_NS + 3_000, 5),
            ipi(2_500, 6),
        ] {
            stream.take(record, &mut told);
        }
        assert_eq!(told.events.len(), 4);
        assert_eq!(stream.end(&mut told), 1);
        let to = |&(at, _, event): &(u64, u32, Event)| match event {
            Event::Ipi { to } => Some((at, to.0)),
            _ => None,
        };
        let found: Vec<_> = told.events.iter().filter_map(to).collect();
        assert_eq!(
            found,
            [
                (0, 1),
                (1_000, 3),
                (1_000, 4),
                (2_000, 2),
                (WINDOW_NS + 2_000, 5)
            ]
        );
    }

    #[test]
    fn who_only_starts_others_is_told() {
        let (told, _) = told([
            record(1, RawKind::Exec, 7, 0, "load"),
            record(1, RawKind::Starter, 7, 0, "load"),
            record(9, RawKind::Begin, 7, 0, "load"),
        ]);
        assert_eq!(told.starters, [0]);
        assert_eq!(told.events[1], (8, 0, Event::Begin));
    }
}
