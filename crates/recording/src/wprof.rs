//! JSON lines of wprof (`wprof -J`, its JSON_SCHEMA.md): a header, lines of stacks, and lines of events in order of time.
//!
//! ```text
//! {"version":"3.1","dur":1.000000000,…,"stack_cnt":0,"pmus":[]}
//! {"ts":0.500100000,"t":"waking","waker":{"tid":12,"pid":10,"comm":"a"},"wakee":{"tid":13,…},"cpu":7}
//! {"ts":0.500123456,"t":"switch","prev":{"pid":0,"comm":"swapper/3"},"next":{…},"cpu":3,"prev_state":"runnable",…}
//! ```
//!
//! A wakeup has no context: the waker is the task that was current, interrupted or not. An interrupt has one line at
//! its end, with its begin. So events are held back for a while, and the wakeups between begin and end
//! on that CPU belong to the interrupt. Local timers have no such line; outside of them the context stays unknown.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, Read as _};

use serde::Deserialize;

use crate::order::Order;
use crate::{About, Comm, Context, Event, Left, RecordingError, Tid, What};

/// Events are held back for so long, in ns: longer than handlers run.
const HELD_NS: u64 = 10_000_000;
/// … and at most so many: about 5 MB.
const HELD_MAX: usize = 65_536;
/// No line of wprof is longer, in bytes.
const LINE_MAX: u64 = 1 << 20;

/// A thread.
#[derive(Deserialize)]
struct Task {
    /// Left out for idle tasks.
    #[serde(default)]
    tid: Tid,
    /// Its process.
    #[serde(default)]
    pid: Tid,
    #[serde(default)]
    comm: String,
}

/// A line, with the fields of all kinds that matter.
#[derive(Deserialize)]
struct Line {
    /// The kind of event; stacks have none.
    t: Option<String>,
    /// In s.
    ts: Option<f64>,
    /// In s: when an interrupt began.
    start_ts: Option<f64>,
    cpu: Option<u32>,
    task: Option<Task>,
    child: Option<Task>,
    waker: Option<Task>,
    wakee: Option<Task>,
    prev: Option<Task>,
    next: Option<Task>,
    prev_state: Option<String>,
    prev_prio: Option<i32>,
    next_prio: Option<i32>,
    frames: Option<serde::de::IgnoredAny>,
}

/// The header.
#[derive(Deserialize)]
struct Header {
    version: String,
    /// Lines of stacks that follow it.
    stack_cnt: u64,
}

/// Whether the text begins with a header of wprof.
pub(crate) fn is_wprof(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.starts_with('{') && serde_json::from_str::<Header>(first).is_ok()
}

/// Tells the events of the lines.
///
/// # Errors
/// If a line is damaged, or there are no events of switches.
pub(crate) fn read(
    path: &str,
    mut lines: impl BufRead,
    sink: &mut dyn FnMut(&Event),
) -> Result<About, RecordingError> {
    let mut reader = Reader {
        order: Order::new(path, "JSON of wprof", sink),
        held: VecDeque::new(),
        processes: BTreeMap::new(),
        exiting: BTreeSet::new(),
        stacks_left: 0,
        switches: 0,
    };
    let mut bytes = Vec::new();
    let mut number = 0u64;
    loop {
        bytes.clear();
        let read = (&mut lines).take(LINE_MAX).read_until(b'\n', &mut bytes);
        let read = read.map_err(|cause| RecordingError::Unreadable {
            path: path.to_owned(),
            cause,
        })?;
        if read == 0 {
            break;
        }
        number += 1;
        let corrupted = |message: String| RecordingError::Corrupted {
            path: path.to_owned(),
            place: format!("line {number}"),
            message,
        };
        let is_whole = bytes.ends_with(b"\n");
        if !is_whole && read as u64 == LINE_MAX {
            return Err(corrupted(format!("it is longer than {LINE_MAX} bytes")));
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        if number == 1 {
            let header: Header =
                serde_json::from_str(text).map_err(|error| corrupted(within_line(&error)))?;
            reader.stacks_left = header.stack_cnt;
            reader.order.about.format =
                format!("JSON of wprof, version {}", header.version.escape_debug());
            continue;
        }
        match serde_json::from_str::<Line>(text) {
            Ok(line) => reader.line(line, &corrupted)?,
            Err(_) if !is_whole => {
                return Err(RecordingError::Truncated {
                    path: path.to_owned(),
                    message: format!("line {number} ends in the middle"),
                });
            }
            Err(error) => return Err(corrupted(within_line(&error))),
        }
    }
    if reader.stacks_left > 0 {
        return Err(RecordingError::Truncated {
            path: path.to_owned(),
            message: format!("it ends {} stacks before its events", reader.stacks_left),
        });
    }
    reader.hand_on(0, 0)?;
    if reader.switches == 0 {
        return Err(RecordingError::Lacking {
            path: path.to_owned(),
            event: "sched_switch",
            remedy: "`wprof -J` without `-f no-sched`",
        });
    }
    Ok(reader.order.about)
}

struct Reader<'a> {
    order: Order<'a>,
    /// Events that an interrupt may still claim.
    held: VecDeque<Event>,
    /// The process of each task, as handed on already.
    processes: BTreeMap<Tid, Tid>,
    /// Tasks that exit. They may still be preempted, and wait.
    exiting: BTreeSet<Tid>,
    /// Lines of stacks that the header promises and that have not come yet.
    stacks_left: u64,
    switches: u64,
}

impl Reader<'_> {
    /// Takes the event of a line.
    fn line(
        &mut self,
        line: Line,
        corrupted: &dyn Fn(String) -> RecordingError,
    ) -> Result<(), RecordingError> {
        let Some(kind) = &line.t else {
            return match line.frames {
                Some(_) => {
                    self.stacks_left = self.stacks_left.saturating_sub(1);
                    Ok(())
                }
                None => Err(corrupted("it is neither an event nor a stack".to_owned())),
            };
        };
        let missing = || corrupted(format!("the fields of {kind} are not whole"));
        let at_ns = line.ts.and_then(ns).ok_or_else(missing)?;
        let cpu = line.cpu.unwrap_or(0);
        let (what, current) = match kind.as_str() {
            "switch" => {
                self.switches += 1;
                let prev = self.known(at_ns, line.prev).ok_or_else(missing)?;
                let next = self.known(at_ns, line.next).ok_or_else(missing)?;
                let state = line.prev_state.as_deref().ok_or_else(missing)?;
                let left = match state {
                    // Versions before 3 do not say more of a dead task.
                    "blocked" if self.exiting.contains(&prev.tid) => Left::Dead,
                    _ => left(state)
                        .ok_or_else(|| corrupted(format!("an unknown state {state:?}")))?,
                };
                if left == Left::Dead {
                    self.exiting.remove(&prev.tid);
                }
                let what = What::Switch {
                    prev: prev.tid,
                    prev_comm: Comm::new(prev.comm.as_bytes()),
                    prev_prio: line.prev_prio.ok_or_else(missing)?,
                    left,
                    next: next.tid,
                    next_comm: Comm::new(next.comm.as_bytes()),
                    next_prio: line.next_prio.ok_or_else(missing)?,
                };
                (what, prev.tid)
            }
            "waking" | "wakeup_new" => {
                let waker = self.known(at_ns, line.waker).ok_or_else(missing)?;
                let wakee = self.known(at_ns, line.wakee).ok_or_else(missing)?;
                let what = match kind.as_str() {
                    "waking" => What::Waking {
                        task: wakee.tid,
                        comm: Comm::new(wakee.comm.as_bytes()),
                    },
                    _ => What::New { task: wakee.tid },
                };
                (what, waker.tid)
            }
            "fork" => {
                let parent = self.known(at_ns, line.task).ok_or_else(missing)?;
                let child = self.known(at_ns, line.child).ok_or_else(missing)?;
                let what = What::Fork {
                    parent: parent.tid,
                    child: child.tid,
                };
                (what, parent.tid)
            }
            "exec" => {
                let task = self.known(at_ns, line.task).ok_or_else(missing)?;
                (What::Exec { task: task.tid }, task.tid)
            }
            other => {
                match other {
                    "task_exit" => {
                        self.exiting.insert(line.task.ok_or_else(missing)?.tid);
                    }
                    "task_free" => {
                        let tid = line.task.ok_or_else(missing)?.tid;
                        self.exiting.remove(&tid);
                        self.processes.remove(&tid);
                    }
                    "hardirq" | "ipi" => self.within(line.start_ts, at_ns, cpu, Context::Hard),
                    "softirq" => self.within(line.start_ts, at_ns, cpu, Context::Soft),
                    _ => {}
                }
                self.order.about.passed_over += 1;
                return Ok(());
            }
        };
        self.held.push_back(Event {
            at_ns,
            cpu,
            current: Some(current),
            context: Context::Unknown,
            what,
        });
        self.hand_on(HELD_NS, HELD_MAX)
    }

    /// A task of an event; its process comes before the event if it is news.
    fn known(&mut self, at_ns: u64, task: Option<Task>) -> Option<Task> {
        let task = task?;
        if task.tid > 0 && task.pid > 0 && self.processes.get(&task.tid) != Some(&task.pid) {
            self.processes.insert(task.tid, task.pid);
            self.held.push_back(Event {
                at_ns,
                cpu: 0,
                current: None,
                context: Context::Unknown,
                what: What::Process {
                    task: task.tid,
                    process: task.pid,
                },
            });
        }
        Some(task)
    }

    /// An interrupt has ended: the wakeups since its begin are its own, but for the wakeups of one within it.
    fn within(&mut self, start_s: Option<f64>, end_ns: u64, cpu: u32, context: Context) {
        let Some(begin_ns) = start_s.and_then(ns) else {
            return;
        };
        let since = |event: &&mut Event| event.at_ns >= begin_ns;
        for event in self.held.iter_mut().rev().take_while(since) {
            let is_its = event.cpu == cpu && event.at_ns <= end_ns;
            if is_its && event.context == Context::Unknown {
                event.context = context;
            }
        }
    }

    /// Hands on what is older than `held_ns` before the last event, and what is more than `held_max`.
    fn hand_on(&mut self, held_ns: u64, held_max: usize) -> Result<(), RecordingError> {
        let last_ns = self.held.back().map_or(0, |event| event.at_ns);
        while let Some(event) = self.held.front() {
            let is_old = event.at_ns.saturating_add(held_ns) <= last_ns || held_ns == 0;
            if !is_old && self.held.len() <= held_max {
                break;
            }
            self.order.event(*event)?;
            self.held.pop_front();
        }
        Ok(())
    }
}

/// A fault of a line, without the number that the library counts from the line's own begin.
fn within_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let fault = text.split(" at line ").next().unwrap_or_default();
    format!("{fault} in column {}", error.column())
}

/// Seconds in ns; `None` for what is no time of a recording.
fn ns(seconds: f64) -> Option<u64> {
    // Up to 104 days a ns is exact in this form.
    let ns = (seconds * 1e9).round();
    (0.0..9e15).contains(&ns).then_some(ns as u64)
}

/// The states of wprof 3; before, it had only `blocked` and `preempted`.
fn left(state: &str) -> Option<Left> {
    Some(match state {
        "runnable" | "preempted" | "waking" | "new" => Left::Runnable,
        "interruptible_sleep"
        | "idle"
        | "parked"
        | "freezable"
        | "frozen"
        | "blocked"
        | "unknown" => Left::Sleeps,
        "uninterruptible_sleep" | "killable_sleep" | "rtlock_wait" => Left::Uninterruptible,
        "stopped" | "traced" => Left::Stopped,
        "exit_dead" | "exit_zombie" | "exit_trace" | "task_dead" => Left::Dead,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "{\"version\":\"3.1\",\"dur\":1.0,\"timer_freq_hz\":0,\"stacks\":[],\"stack_cnt\":1,\"pmus\":[]}\n\
        {\"id\":1,\"frames\":[\"[K] schedule\"]}\n";

    fn told(lines: &str) -> Result<(Vec<Event>, About), RecordingError> {
        let mut all = Vec::new();
        let text = format!("{HEADER}{lines}");
        let about = read("t", text.as_bytes(), &mut |event| all.push(*event))?;
        Ok((all, about))
    }

    fn switch(ts: &str, prev: i32, state: &str, next: i32) -> String {
        format!(
            "{{\"ts\":{ts},\"t\":\"switch\",\"prev\":{{\"tid\":{prev},\"pid\":9,\"comm\":\"a\"}},\"next\":{{\"tid\":{next},\"pid\":9,\"comm\":\"b \\\"\"}},\"cpu\":1,\"prev_state\":\"{state}\",\"prev_prio\":120,\"next_prio\":100}}\n"
        )
    }

    fn waking(ts: &str, cpu: u32) -> String {
        format!(
            "{{\"ts\":{ts},\"t\":\"waking\",\"waker\":{{\"pid\":0,\"comm\":\"swapper/1\"}},\"wakee\":{{\"tid\":11,\"pid\":9,\"comm\":\"a\"}},\"cpu\":{cpu}}}\n"
        )
    }

    #[test]
    fn wakeups_between_begin_and_end_are_the_interrupts() {
        let irq = |kind: &str, start: &str, end: &str| {
            format!(
                "{{\"ts\":{end},\"t\":\"{kind}\",\"task\":{{\"pid\":0,\"comm\":\"s\"}},\"dur\":0.1,\"start_ts\":{start},\"cpu\":1}}\n"
            )
        };
        let lines = [
            waking("0.000000100", 1),
            waking("0.000000200", 1),
            waking("0.000000300", 1),
            irq("hardirq", "0.000000250", "0.000000350"),
            waking("0.000000400", 0),
            waking("0.000000450", 1),
            irq("softirq", "0.000000150", "0.000000500"),
            switch("0.000000600", 11, "interruptible_sleep", 12),
        ];
        let (events, about) = told(&lines.concat()).unwrap();
        let contexts = events
            .iter()
            .filter(|event| matches!(event.what, What::Waking { .. }));
        assert_eq!(
            contexts.map(|event| event.context).collect::<Vec<_>>(),
            [
                Context::Unknown,
                Context::Soft,
                Context::Hard,
                Context::Unknown,
                Context::Soft
            ]
        );
        assert_eq!(about.passed_over, 2);
    }

    #[test]
    fn a_switch_names_its_tasks_and_their_processes() {
        let (events, _) = told(&switch("12.345678901", 11, "killable_sleep", 12)).unwrap();
        assert_eq!(
            events[0].what,
            What::Process {
                task: 11,
                process: 9
            }
        );
        assert_eq!((events[2].at_ns, events[2].cpu), (12_345_678_901, 1));
        assert_eq!(
            events[2].what,
            What::Switch {
                prev: 11,
                prev_comm: Comm::new(b"a"),
                prev_prio: 120,
                left: Left::Uninterruptible,
                next: 12,
                next_comm: Comm::new(b"b \""),
                next_prio: 100,
            }
        );
    }

    #[test]
    fn a_task_that_exits_leaves_dead_in_every_version() {
        let exit = "{\"ts\":0.1,\"t\":\"task_exit\",\"task\":{\"tid\":11,\"pid\":9,\"comm\":\"a\"},\"cpu\":1}\n";
        let left = |states: &[&str]| {
            let switches = states.iter().map(|state| switch("0.2", 11, state, 12));
            let lines = format!("{exit}{}", switches.collect::<String>());
            let events = told(&lines).unwrap().0;
            let left = events.iter().filter_map(|event| match event.what {
                What::Switch { left, .. } => Some(left),
                _ => None,
            });
            left.collect::<Vec<_>>()
        };
        use Left::{Dead, Runnable, Sleeps, Uninterruptible};
        // The last one is another task of the same number.
        assert_eq!(
            left(&["preempted", "blocked", "blocked"]),
            [Runnable, Dead, Sleeps]
        );
        assert_eq!(
            left(&["uninterruptible_sleep", "task_dead", "blocked"]),
            [Uninterruptible, Dead, Sleeps]
        );
    }

    #[test]
    fn damage_is_told_with_its_line() {
        let told = |lines: &str| told(lines).unwrap_err().to_string();
        let line = switch("0.1", 11, "blocked", 12);
        assert!(told(&line[..60]).contains("is truncated: line 3 ends in the middle"));
        assert!(told(&format!("{}\n", &line[..60])).contains(" in column "));
        assert!(
            told(&line.replace("blocked", "gone"))
                .contains("`t`: line 3: an unknown state \"gone\"; the file is damaged")
        );
        assert!(
            told(&line.replace("next_prio", "x"))
                .contains("line 3: the fields of switch are not whole")
        );
        assert!(told(&line.replace("0.1", "-1")).contains("line 3: the fields of switch"));
        assert!(told("{\"x\":1}\n").contains("line 3: it is neither an event nor a stack"));
        assert!(told("").contains("has no sched_switch events: record with `wprof -J`"));
        let back = format!(
            "{}{}",
            switch("5.0", 11, "blocked", 12),
            switch("1.0", 12, "blocked", 11)
        );
        assert!(told(&back).contains("the clock of CPU 1 is 4000 ms behind at 1.000000000 s"));
    }
}
