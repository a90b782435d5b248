//! A run as a Perfetto trace (<https://ui.perfetto.dev>): one track a CPU with what runs on it, arrows from
//! wakeups to the tasks they woke, lock waits as slices, and the number of runnable tasks as a counter.
//!
//! To make one: `schedlab sim chat -s fifo --trace chat.pftrace`, then open the file in the UI.
//!
//! Switches and wakeups are written as the ftrace events `sched_switch` and `sched_waking`, which the UI
//! turns into CPU tracks; the rest are track events. The counter has its last value at the end of the run:
//! what is still open there, such as tasks that run, lasts until the end of the trace. The trace is written
//! while the run is under way and holds at most [`BUNDLE_EVENTS`] events of each CPU and [`PENDING`] changes
//! of the counter in memory.
//!
//! The messages below are the few that are needed of Perfetto's own, with its field numbers
//! (`protos/perfetto/trace/perfetto_trace.proto` of v59). Bindings for all of them exist
//! (`perfetto_protos`), but take 80 s to compile.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};

use prost::Message;
use schedlab_trace::{
    CpuId, Duration, Event, Instant, Listener, LockClass, LockId, PrevState, TaskId, TaskMeta,
};

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(message, optional, tag = "1")]
    ftrace_events: Option<FtraceEventBundle>,
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "45")]
    system_info: Option<SystemInfo>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

/// `SystemInfo`; the UI reads task states as this kernel writes them.
#[derive(Clone, PartialEq, Message)]
struct SystemInfo {
    #[prost(message, optional, tag = "1")]
    utsname: Option<Utsname>,
}

/// `Utsname`.
#[derive(Clone, PartialEq, Message)]
struct Utsname {
    #[prost(string, tag = "1")]
    sysname: String,
    #[prost(string, tag = "3")]
    release: String,
}

/// `FtraceEventBundle`.
#[derive(Clone, PartialEq, Message)]
struct FtraceEventBundle {
    #[prost(uint32, optional, tag = "1")]
    cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    event: Vec<FtraceEvent>,
}

/// `FtraceEvent`.
#[derive(Clone, PartialEq, Message)]
struct FtraceEvent {
    #[prost(uint64, optional, tag = "1")]
    timestamp: Option<u64>,
    /// Of the task that was on the CPU.
    #[prost(uint32, optional, tag = "2")]
    pid: Option<u32>,
    #[prost(message, optional, tag = "4")]
    sched_switch: Option<SchedSwitch>,
    #[prost(message, optional, tag = "20")]
    sched_waking: Option<SchedWaking>,
}

/// `SchedSwitchFtraceEvent`.
#[derive(Clone, PartialEq, Message)]
struct SchedSwitch {
    #[prost(string, optional, tag = "1")]
    prev_comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    prev_pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    prev_prio: Option<i32>,
    #[prost(int64, optional, tag = "4")]
    prev_state: Option<i64>,
    #[prost(string, optional, tag = "5")]
    next_comm: Option<String>,
    #[prost(int32, optional, tag = "6")]
    next_pid: Option<i32>,
    #[prost(int32, optional, tag = "7")]
    next_prio: Option<i32>,
}

/// `SchedWakingFtraceEvent`.
#[derive(Clone, PartialEq, Message)]
struct SchedWaking {
    #[prost(string, optional, tag = "1")]
    comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    prio: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    success: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    target_cpu: Option<i32>,
}

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

/// `CounterDescriptor`.
#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {
    /// `UNIT_COUNT` is 2.
    #[prost(int32, optional, tag = "3")]
    unit: Option<i32>,
}

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    /// 1 begins a slice, 2 ends one, 4 is a counter's value.
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
}

/// Field number of `Trace.packet`, with the wire type of a length-delimited field.
const PACKET_KEY: u64 = 1 << 3 | 2;
/// `SEQ_INCREMENTAL_STATE_CLEARED`.
const STATE_CLEARED: u32 = 1;
/// All packets come from one writer.
const SEQUENCE: u32 = 1;
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const COUNTER: i32 = 4;
const UNIT_COUNT: i32 = 2;
const LOCK_WAITS: u64 = 1;
const RUNNABLE: u64 = 2;
/// The first CPU's track of lock waits.
const FIRST_CPU: u64 = 16;
/// Events of a CPU that are written together.
const BUNDLE_EVENTS: usize = 256;
/// Number of changes of the runnable tasks that are buffered to sort them by time: a CPU reports its changes up to
/// one uninterrupted path out of order.
const PENDING: usize = 4096;
/// Number of switches of each CPU that are remembered: a wakeup is reported once the task is runnable, and by then
/// the CPU where it was decided (if it asked another one by an interrupt) may run another task.
const REMEMBERED: usize = 16;
/// State in which `sched_switch` reports a task that left while runnable (`TASK_REPORT_MAX`), …
const STATE_PREEMPTED: i64 = 0x100;
/// … that sleeps (`TASK_INTERRUPTIBLE`), …
const STATE_SLEEPS: i64 = 1;
/// … that ended (`EXIT_DEAD`).
const STATE_DEAD: i64 = 16;

#[derive(Clone, Default)]
struct Task {
    comm: String,
    prio: i32,
    runnable: bool,
    /// When it left a CPU last.
    left: Option<Instant>,
}

#[derive(Clone, Default)]
struct Cpu {
    /// The last task that ran on it, and since when.
    ran: VecDeque<(Instant, Option<TaskId>)>,
    bundle: Vec<FtraceEvent>,
    /// Whether a slice of a lock wait is open.
    spins: bool,
}

/// Writes a trace while it listens.
pub struct PerfettoWriter<W: Write> {
    out: W,
    /// The first error; afterwards nothing is written.
    error: Option<io::Error>,
    tasks: Vec<Task>,
    locks: Vec<String>,
    cpus: Vec<Cpu>,
    /// The number of runnable tasks as written, …
    runnable: i64,
    /// … and by how much it changes at each instant after that.
    pending: BTreeMap<Instant, i64>,
    buffer: Vec<u8>,
}

impl<W: Write> PerfettoWriter<W> {
    /// Begins a trace of `nr_cpus` CPUs. `release` is the kernel's release (`7.2.0`). `out` should be buffered.
    pub fn new(out: W, nr_cpus: usize, release: &str) -> Self {
        let mut writer = PerfettoWriter {
            out,
            error: None,
            tasks: Vec::new(),
            locks: Vec::new(),
            cpus: vec![Cpu::default(); nr_cpus],
            runnable: 0,
            pending: BTreeMap::new(),
            buffer: Vec::new(),
        };
        writer.packet(TracePacket {
            sequence_flags: Some(STATE_CLEARED),
            system_info: Some(SystemInfo {
                utsname: Some(Utsname {
                    sysname: "Linux".to_owned(),
                    release: release.to_owned(),
                }),
            }),
            ..TracePacket::default()
        });
        writer.track(LOCK_WAITS, "lock waits", None, false);
        writer.track(RUNNABLE, "runnable tasks", None, true);
        for cpu in 0..nr_cpus as u64 {
            let name = format!("cpu {cpu} waits");
            writer.track(FIRST_CPU + cpu, &name, Some(LOCK_WAITS), false);
        }
        writer
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The first error of the underlying writer.
    pub fn finish(mut self) -> io::Result<W> {
        for cpu in 0..self.cpus.len() {
            self.flush_bundle(CpuId(cpu as u32));
        }
        while self.count_first() {}
        match self.error {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| self.out),
        }
    }

    fn track(&mut self, uuid: u64, name: &str, parent: Option<u64>, counter: bool) {
        self.packet(TracePacket {
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(uuid),
                name: Some(name.to_owned()),
                parent_uuid: parent,
                counter: counter.then_some(CounterDescriptor {
                    unit: Some(UNIT_COUNT),
                }),
            }),
            ..TracePacket::default()
        });
    }

    fn packet(&mut self, mut packet: TracePacket) {
        if self.error.is_some() {
            return;
        }
        packet.trusted_packet_sequence_id = SEQUENCE;
        self.buffer.clear();
        prost::encoding::encode_varint(PACKET_KEY, &mut self.buffer);
        packet
            .encode_length_delimited(&mut self.buffer)
            .expect("a vector has room");
        self.error = self.out.write_all(&self.buffer).err();
    }

    fn track_event(&mut self, at: Instant, event: TrackEvent) {
        self.packet(TracePacket {
            timestamp: Some(at.ns()),
            track_event: Some(event),
            ..TracePacket::default()
        });
    }

    fn flush_bundle(&mut self, cpu: CpuId) {
        let mut event = std::mem::take(&mut self.cpus[cpu.index()].bundle);
        if event.is_empty() {
            return;
        }
        event.sort_by_key(|event| event.timestamp);
        self.packet(TracePacket {
            ftrace_events: Some(FtraceEventBundle {
                cpu: Some(cpu.0),
                event,
            }),
            ..TracePacket::default()
        });
    }

    fn ftrace(&mut self, cpu: CpuId, event: FtraceEvent) {
        let bundle = &mut self.cpus[cpu.index()].bundle;
        bundle.push(event);
        if bundle.len() == BUNDLE_EVENTS {
            self.flush_bundle(cpu);
        }
    }

    fn task(&mut self, task: TaskId) -> &mut Task {
        if task.index() >= self.tasks.len() {
            self.tasks.resize(task.index() + 1, Task::default());
        }
        &mut self.tasks[task.index()]
    }

    fn set_runnable(&mut self, at: Instant, task: TaskId, runnable: bool) {
        let change = i64::from(runnable) - i64::from(self.task(task).runnable);
        if change != 0 {
            self.task(task).runnable = runnable;
            self.count(at, change);
        }
    }

    /// The number of runnable tasks has changed so, or is to be written again.
    fn count(&mut self, at: Instant, change: i64) {
        *self.pending.entry(at).or_default() += change;
        if self.pending.len() > PENDING {
            self.count_first();
        }
    }

    /// Writes the earliest change that waits; `false` if none does.
    fn count_first(&mut self) -> bool {
        let Some((at, change)) = self.pending.pop_first() else {
            return false;
        };
        self.runnable += change;
        self.track_event(
            at,
            TrackEvent {
                kind: Some(COUNTER),
                track_uuid: Some(RUNNABLE),
                name: None,
                counter_value: Some(self.runnable),
            },
        );
        true
    }

    /// `comm`, pid and priority, of the idle task for `None`.
    fn who(&self, cpu: CpuId, task: Option<TaskId>) -> (Option<String>, Option<i32>, Option<i32>) {
        let Some(task) = task else {
            return (Some(format!("swapper/{cpu}")), Some(0), Some(120));
        };
        let known = self.tasks.get(task.index()).cloned().unwrap_or_default();
        (Some(known.comm), Some(pid(task)), Some(known.prio))
    }

    fn switch(
        &mut self,
        at: Instant,
        cpu: CpuId,
        prev: Option<TaskId>,
        prev_state: PrevState,
        next: Option<TaskId>,
    ) {
        let (prev_comm, prev_pid, prev_prio) = self.who(cpu, prev);
        let (next_comm, next_pid, next_prio) = self.who(cpu, next);
        let state = match prev_state {
            _ if prev.is_none() => 0,
            PrevState::Preempted | PrevState::Yielded => STATE_PREEMPTED,
            PrevState::Blocked => STATE_SLEEPS,
            PrevState::Exited => STATE_DEAD,
        };
        self.ftrace(
            cpu,
            FtraceEvent {
                timestamp: Some(at.ns()),
                pid: Some(prev.map_or(0, TaskId::pid)),
                sched_switch: Some(SchedSwitch {
                    prev_comm,
                    prev_pid,
                    prev_prio,
                    prev_state: Some(state),
                    next_comm,
                    next_pid,
                    next_prio,
                }),
                sched_waking: None,
            },
        );
        let ran = &mut self.cpus[cpu.index()].ran;
        if ran.len() == REMEMBERED {
            ran.pop_front();
        }
        ran.push_back((at, next));
        if let Some(prev) = prev {
            let runnable = matches!(prev_state, PrevState::Preempted | PrevState::Yielded);
            self.set_runnable(at, prev, runnable);
            self.task(prev).left = Some(at);
        }
        if let Some(next) = next {
            self.set_runnable(at, next, true);
        }
    }

    fn waking(&mut self, decided: Instant, cpu: CpuId, task: TaskId, to: CpuId) {
        // The importer passes over a task that has not left its CPU. An event on another CPU at the same instant may
        // come first there.
        let left = self.task(task).left;
        let at = left.map_or(decided, |left| decided.max(left + Duration::from_ns(1)));
        let (comm, pid, prio) = self.who(cpu, Some(task));
        let mut ran = self.cpus[cpu.index()].ran.iter().rev();
        let waker = ran.find(|(since, _)| *since <= decided);
        let waker = waker.and_then(|&(_, task)| task);
        self.ftrace(
            cpu,
            FtraceEvent {
                timestamp: Some(at.ns()),
                pid: Some(waker.map_or(0, TaskId::pid)),
                sched_switch: None,
                sched_waking: Some(SchedWaking {
                    comm,
                    pid,
                    prio,
                    success: Some(1),
                    target_cpu: Some(to.0 as i32),
                }),
            },
        );
    }

    fn lock_wait(&mut self, at: Instant, cpu: CpuId, lock: Option<LockId>) {
        self.cpus[cpu.index()].spins = lock.is_some();
        let name = lock.map(|lock| match self.locks.get(lock.index()) {
            Some(name) => name.clone(),
            None => format!("lock {lock}"),
        });
        self.track_event(
            at,
            TrackEvent {
                kind: Some(if name.is_some() {
                    SLICE_BEGIN
                } else {
                    SLICE_END
                }),
                track_uuid: Some(FIRST_CPU + u64::from(cpu.0)),
                name,
                counter_value: None,
            },
        );
    }
}

fn pid(task: TaskId) -> i32 {
    i32::try_from(task.pid()).expect("pids are below 2^31")
}

impl<W: Write> Listener for PerfettoWriter<W> {
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        let task = self.task(task);
        task.comm = meta.comm.clone();
        // The kernel's scale: 120 is nice 0, below 100 is real-time.
        task.prio = if meta.is_realtime() {
            99 - i32::from(meta.rt_priority)
        } else {
            120 + i32::from(meta.nice)
        };
    }

    fn define_lock(&mut self, lock: LockId, name: &str, _class: LockClass) {
        if lock.index() >= self.locks.len() {
            self.locks.resize(lock.index() + 1, String::new());
        }
        self.locks[lock.index()] = name.to_owned();
    }

    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        match event {
            Event::Switch {
                prev,
                prev_state,
                next,
            } => self.switch(at, cpu, prev, prev_state, next),
            Event::Wakeup { task, to, since } => {
                self.waking(at - since, cpu, task, to);
                self.set_runnable(at, task, true);
            }
            Event::LockContended { lock, .. } => self.lock_wait(at, cpu, Some(lock)),
            Event::LockAcquired { trylock: false, .. } if self.cpus[cpu.index()].spins => {
                self.lock_wait(at, cpu, None);
            }
            // The last value is also what the trace's end is known by.
            Event::End => self.count(at, 0),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_trace::{CpuSet, Duration, LockPath};

    /// A value of a protobuf field, read without any schema.
    #[derive(Clone, PartialEq, Debug)]
    enum Wire {
        Varint(u64),
        Bytes(Vec<u8>),
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().expect("a complete varint");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    fn fields(mut bytes: &[u8]) -> Vec<(u64, Wire)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = match key & 7 {
                0 => Wire::Varint(varint(&mut bytes)),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (value, rest) = bytes.split_at(length);
                    bytes = rest;
                    Wire::Bytes(value.to_vec())
                }
                other => panic!("wire type {other}"),
            };
            fields.push((key >> 3, value));
        }
        fields
    }

    /// Returns the messages at a path of field numbers.
    fn at(bytes: &[u8], path: &[u64]) -> Vec<Vec<u8>> {
        let Some((first, rest)) = path.split_first() else {
            return vec![bytes.to_vec()];
        };
        fields(bytes)
            .into_iter()
            .filter(|(number, _)| number == first)
            .flat_map(|(_, value)| match value {
                Wire::Bytes(inner) => at(&inner, rest),
                Wire::Varint(_) => panic!("field {first} is not a message"),
            })
            .collect()
    }

    fn number(message: &[u8], field: u64) -> Option<u64> {
        fields(message)
            .into_iter()
            .find_map(|(n, value)| match value {
                Wire::Varint(value) if n == field => Some(value),
                _ => None,
            })
    }

    fn text(message: &[u8], field: u64) -> Option<String> {
        fields(message)
            .into_iter()
            .find_map(|(n, value)| match value {
                Wire::Bytes(value) if n == field => String::from_utf8(value).ok(),
                _ => None,
            })
    }

    fn trace() -> Vec<u8> {
        let mut writer = PerfettoWriter::new(Vec::new(), 2, "7.2.0");
        let task = TaskId(4);
        let meta = TaskMeta {
            comm: "sender".into(),
            nice: -5,
            affinity: CpuSet::all(2),
            rt_priority: 0,
            idle: false,
        };
        let lock = LockId(0);
        let path = LockPath::Schedule;
        writer.define_task(task, &meta);
        writer.define_lock(lock, "queue", LockClass::RunQueue);
        let events = [
            (
                104,
                1,
                Event::Wakeup {
                    task,
                    to: CpuId(0),
                    since: Duration::from_ns(4),
                },
            ),
            (120, 0, Event::LockContended { lock, path }),
            (
                150,
                0,
                Event::LockAcquired {
                    lock,
                    path,
                    waited: Duration::from_ns(30),
                    contended: true,
                    trylock: false,
                },
            ),
            (
                200,
                0,
                Event::Switch {
                    prev: None,
                    prev_state: PrevState::Preempted,
                    next: Some(task),
                },
            ),
            (
                300,
                0,
                Event::Switch {
                    prev: Some(task),
                    prev_state: PrevState::Blocked,
                    next: None,
                },
            ),
            (400, 0, Event::End),
            (410, 1, Event::End),
        ];
        for (at, cpu, event) in events {
            writer.record(Instant::from_ns(at), CpuId(cpu), event);
        }
        writer.finish().unwrap()
    }

    /// Returns a trace of two CPUs and two tasks.
    fn trace_of(events: &[(u64, u32, Event)]) -> Vec<u8> {
        let mut writer = PerfettoWriter::new(Vec::new(), 2, "7.2.0");
        for &(at, cpu, event) in events {
            writer.record(Instant::from_ns(at), CpuId(cpu), event);
        }
        writer.finish().unwrap()
    }

    /// Returns the values of the counter and when it has them.
    fn counter(trace: &[u8]) -> Vec<(u64, u64)> {
        at(trace, &[1])
            .iter()
            .filter_map(|packet| {
                let event = at(packet, &[11]).pop()?;
                Some((number(packet, 8).unwrap(), number(&event, 30)?))
            })
            .collect()
    }

    fn wakeup(task: u32, since: u64) -> Event {
        Event::Wakeup {
            task: TaskId(task),
            to: CpuId(0),
            since: Duration::from_ns(since),
        }
    }

    fn switch(prev: Option<u32>, prev_state: PrevState, next: Option<u32>) -> Event {
        Event::Switch {
            prev: prev.map(TaskId),
            prev_state,
            next: next.map(TaskId),
        }
    }

    #[test]
    fn the_counter_is_right_at_every_instant_and_has_a_value_at_the_end() {
        use PrevState::{Blocked, Exited, Preempted};
        let trace = trace_of(&[
            (0, 0, wakeup(0, 0)),
            (0, 0, wakeup(1, 0)),
            (10, 0, switch(None, Preempted, Some(0))),
            (20, 1, switch(None, Preempted, Some(1))),
            (100, 0, switch(Some(0), Exited, None)),
            // CPU 1 is heard later than CPU 0.
            (90, 1, switch(Some(1), Blocked, None)),
            // Nothing for one that is runnable already, and for one that remains so.
            (150, 0, wakeup(1, 5)),
            (160, 0, wakeup(1, 0)),
            (170, 1, switch(None, Preempted, Some(1))),
            (180, 1, switch(Some(1), Preempted, None)),
            (500, 0, Event::End),
        ]);
        let expected = [(0, 2), (90, 1), (100, 0), (150, 1), (500, 1)];
        assert_eq!(counter(&trace), expected);
    }

    #[test]
    fn a_wakeup_that_was_decided_while_the_task_still_left_its_cpu_is_after_that() {
        use PrevState::{Blocked, Preempted};
        let trace = trace_of(&[
            (0, 0, wakeup(0, 0)),
            (10, 0, switch(None, Preempted, Some(0))),
            (100, 0, switch(Some(0), Blocked, None)),
            (140, 1, wakeup(0, 60)),
            (150, 0, switch(None, Preempted, Some(0))),
            (200, 0, switch(Some(0), Blocked, None)),
            (290, 1, wakeup(0, 60)),
        ]);
        let mut wakings: Vec<_> = at(&trace, &[1, 1, 2])
            .iter()
            .filter(|event| !at(event, &[20]).is_empty())
            .map(|event| number(event, 1).unwrap())
            .collect();
        wakings.sort_unstable();
        assert_eq!(wakings, [0, 101, 230]);
    }

    #[test]
    fn who_woke_a_task_may_have_left_its_cpu_meanwhile() {
        use PrevState::{Blocked, Preempted};
        let trace = trace_of(&[
            (0, 0, wakeup(0, 0)),
            (10, 0, switch(None, Preempted, Some(0))),
            (100, 0, switch(Some(0), Blocked, None)),
            (140, 0, wakeup(1, 50)),
        ]);
        let events: Vec<(u64, u64)> = at(&trace, &[1, 1, 2])
            .iter()
            .map(|event| (number(event, 1).unwrap(), number(event, 2).unwrap()))
            .collect();
        let task0 = u64::from(TaskId(0).pid());
        assert_eq!(events, [(0, 0), (10, 0), (90, task0), (100, task0)]);
    }

    /// Reads the bytes by Perfetto's field numbers, not by the messages above.
    #[test]
    fn the_bytes_are_what_perfetto_reads() {
        let trace = trace();
        let switches = at(&trace, &[1, 1, 2, 4]);
        assert_eq!(switches.len(), 2);
        let (first, second) = (&switches[0], &switches[1]);
        assert_eq!(text(first, 1).as_deref(), Some("swapper/0"));
        assert_eq!(text(first, 5).as_deref(), Some("sender"));
        assert_eq!((number(first, 2), number(first, 6)), (Some(0), Some(1004)));
        assert_eq!(number(first, 7), Some(115));
        assert_eq!(
            (number(second, 2), number(second, 4)),
            (Some(1004), Some(1))
        );
        let waking = &at(&trace, &[1, 1, 2, 20])[0];
        assert_eq!(
            (number(waking, 2), number(waking, 5)),
            (Some(1004), Some(0))
        );
        let bundles = at(&trace, &[1, 1]);
        let cpus: Vec<_> = bundles.iter().map(|bundle| number(bundle, 1)).collect();
        assert_eq!(cpus, [Some(0), Some(1)]);
        let packets = at(&trace, &[1]);
        assert!(packets.iter().all(|packet| number(packet, 10) == Some(1)));
        let track_events: Vec<_> = packets
            .iter()
            .filter_map(|packet| {
                let event = at(packet, &[11]).pop()?;
                Some((
                    number(packet, 8).unwrap(),
                    number(&event, 9).unwrap(),
                    number(&event, 11).unwrap(),
                    text(&event, 23),
                    number(&event, 30),
                ))
            })
            .collect();
        assert_eq!(
            track_events,
            [
                (120, 1, 16, Some("queue".to_owned()), None),
                (150, 2, 16, None, None),
                (104, 4, 2, None, Some(1)),
                (300, 4, 2, None, Some(0)),
                (400, 4, 2, None, Some(0)),
                (410, 4, 2, None, Some(0)),
            ]
        );
        let tracks = at(&trace, &[1, 60]);
        let names: Vec<_> = tracks.iter().filter_map(|track| text(track, 2)).collect();
        assert_eq!(
            names,
            ["lock waits", "runnable tasks", "cpu 0 waits", "cpu 1 waits"]
        );
        let utsname = &at(&trace, &[1, 45, 1])[0];
        assert_eq!(text(utsname, 3).as_deref(), Some("7.2.0"));
    }

    #[test]
    fn memory_stays_bounded() {
        let mut writer = PerfettoWriter::new(io::sink(), 1, "7.2.0");
        for at in 0..10_000 {
            writer.record(Instant::from_ns(at), CpuId(0), wakeup(at as u32, 0));
            assert!(writer.cpus[0].bundle.len() < BUNDLE_EVENTS);
            assert!(writer.pending.len() <= PENDING);
        }
        writer.finish().unwrap();
    }

    #[test]
    fn a_full_disk_is_an_error_at_the_end() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::other("disk full"))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let writer = PerfettoWriter::new(Full, 1, "7.2.0");
        assert_eq!(writer.finish().err().unwrap().to_string(), "disk full");
    }
}
