//! Bundles of ftrace events: each has events of one CPU, one after another. The field numbers are from Perfetto's `ftrace_event_bundle.proto`,
//! `ftrace_event.proto`, `sched.proto`, `task.proto` and `raw_syscalls.proto`.

use std::collections::{BTreeMap, VecDeque};

use super::fields::{Value, fields, first_number, numbers};
use crate::tracepoint::{call, context, left, old_left};
use crate::{Comm, Context, Event, Left, Tid, What};

/// Fields of an event.
pub(super) const SWITCH: u32 = 4;
const WAKEUP: u32 = 17;
pub(super) const WAKING: u32 = 20;
const WAKEUP_NEW: u32 = 114;
const NEW_TASK: u32 = 235;
const EXEC: u32 = 237;
pub(super) const FORK: u32 = 239;
const ENTER: u32 = 329;
const LEAVE: u32 = 330;
const MIGRATE: u32 = 491;
/// `success` of a [`WAKEUP`].
const FAILED: (u32, Value<'_>) = (4, Value::Number(0));
/// No kernel has more CPUs.
const CPUS_MAX: u32 = 65_536;
/// `CLONE_THREAD`: the new task belongs to its parent's process.
const CLONE_THREAD: u64 = 0x10000;

/// The facts about the whole trace that decoding needs.
#[derive(Default)]
pub(super) struct Facts {
    /// Whether there are events of wakers.
    pub has_waking: bool,
    /// Whether forks have events of their own.
    pub has_fork: bool,
    /// Whether `prev_state` has the numbers of kernels before 4.14.
    pub has_old_states: bool,
    /// As `uname -m` names it.
    pub machine: String,
    /// The process of each thread.
    pub processes: BTreeMap<Tid, Tid>,
    /// Events that nothing is inferred from.
    pub passed_over: u64,
}

/// The task on a CPU.
#[derive(Clone, Copy)]
struct On {
    task: Tid,
    comm: Comm,
    prio: i32,
}

/// A CPU, of which bundles come in the order of time.
pub(super) struct Cpu {
    cpu: u32,
    on: Option<On>,
    /// The time of the last event, of any kind.
    last_ns: u64,
}

/// Events in brief form: only the task that comes is named, and the one that leaves came before.
#[derive(Default)]
struct Brief {
    names: Vec<Comm>,
    switches: [Vec<u64>; 5],
    wakings: [Vec<u64>; 5],
}

/// A switch without the name of the task that leaves.
struct Coming {
    state: i64,
    next: On,
}

enum Kind {
    Whole(What),
    Coming(Coming),
    /// Events are missing there: the task on the CPU may have changed.
    Gap,
}

/// An event before the one that leaves is known.
struct Item {
    at_ns: u64,
    /// The current task, if the event has it.
    current: Option<Tid>,
    context: Context,
    kind: Kind,
}

/// Returns the CPU and the first time of a bundle, and reports the kind of each event; `None` if it is damaged. The time
/// is missing if there are no events.
pub(super) fn overview(bundle: &[u8], kind: &mut dyn FnMut(u32)) -> Option<Overview> {
    let mut seen = Overview::default();
    let mut first = u64::MAX;
    for field in fields(bundle) {
        match field? {
            (1, Value::Number(cpu)) => {
                seen.cpu = u32::try_from(cpu).ok().filter(|cpu| *cpu < CPUS_MAX)?;
            }
            (2, Value::Bytes(event)) => {
                for field in fields(event) {
                    match field? {
                        (1, Value::Number(at_ns)) => first = first.min(at_ns),
                        (number, Value::Bytes(_)) => kind(number),
                        _ => {}
                    }
                }
            }
            (3, Value::Number(lost)) => seen.has_gap |= lost != 0,
            (8, Value::Bytes(_)) => seen.has_gap = true,
            (4, Value::Bytes(brief)) => {
                for field in fields(brief) {
                    match field? {
                        (number @ (1 | 7), value) => {
                            if let Some(at_ns) = first_number(value)? {
                                first = first.min(at_ns);
                                kind(if number == 1 { SWITCH } else { WAKING });
                            }
                        }
                        _ => continue,
                    }
                }
            }
            (5, Value::Number(clock)) => seen.clock = clock,
            _ => {}
        }
    }
    seen.first_ns = (first < u64::MAX).then_some(first);
    Some(seen)
}

/// A bundle from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Overview {
    pub cpu: u32,
    /// In ns.
    pub first_ns: Option<u64>,
    /// Whether events are missing before it or within it.
    pub has_gap: bool,
    /// The number of the clock.
    pub clock: u64,
}

impl Cpu {
    pub fn new(cpu: u32) -> Cpu {
        Cpu {
            cpu,
            on: None,
            last_ns: 0,
        }
    }

    /// Forgets the task on the CPU: it may have changed unseen.
    pub fn forget(&mut self) {
        self.on = None;
    }

    /// The events of a bundle in order; `None` if it is damaged.
    pub fn events(&mut self, bundle: &[u8], facts: &mut Facts) -> Option<VecDeque<Event>> {
        let mut items = Vec::new();
        let mut brief = Brief::default();
        let mut last_ns = 0;
        for field in fields(bundle) {
            match field? {
                (2, Value::Bytes(event)) => last_ns = last_ns.max(item(event, facts, &mut items)?),
                (3, Value::Number(lost)) if lost != 0 => self.forget(),
                (4, Value::Bytes(bytes)) => brief.add(bytes)?,
                (8, Value::Bytes(error)) => items.push(gap(error)?),
                // The last event that was written before: a bundle is missing if it is not here.
                (10, Value::Number(end_ns)) if end_ns > self.last_ns => self.forget(),
                _ => {}
            }
        }
        brief.items(&mut items)?;
        items.sort_by_key(|item| item.at_ns);
        let last = items.last().map_or(0, |item| item.at_ns);
        self.last_ns = self.last_ns.max(last_ns).max(last);
        let events = items.into_iter().filter_map(|item| self.event(item, facts));
        Some(events.collect())
    }

    /// Makes an event; a gap is none.
    fn event(&mut self, item: Item, facts: &Facts) -> Option<Event> {
        let on = self.on.map(|on| on.task);
        let what = match item.kind {
            Kind::Gap => {
                self.forget();
                return None;
            }
            Kind::Whole(what) => what,
            Kind::Coming(Coming { state, next }) => {
                let idle = On {
                    task: 0,
                    comm: Comm::default(),
                    prio: 120,
                };
                let prev = self.on.unwrap_or(idle);
                What::Switch {
                    prev: prev.task,
                    prev_comm: prev.comm,
                    prev_prio: prev.prio,
                    left: facts.left(state),
                    next: next.task,
                    next_comm: next.comm,
                    next_prio: next.prio,
                }
            }
        };
        if let What::Switch {
            next,
            next_comm,
            next_prio,
            ..
        } = what
        {
            self.on = Some(On {
                task: next,
                comm: next_comm,
                prio: next_prio,
            });
        }
        Some(Event {
            at_ns: item.at_ns,
            cpu: self.cpu,
            current: item.current.or(on),
            context: item.context,
            what,
        })
    }
}

/// A page that could not be read whole.
fn gap(error: &[u8]) -> Option<Item> {
    let mut at_ns = 0;
    for field in fields(error) {
        if let (1, Value::Number(number)) = field? {
            at_ns = number;
        }
    }
    Some(Item {
        at_ns,
        current: None,
        context: Context::Unknown,
        kind: Kind::Gap,
    })
}

impl Facts {
    fn left(&self, state: i64) -> Left {
        match self.has_old_states {
            true => old_left(state),
            false => left(state),
        }
    }
}

/// Fields of an event by their numbers.
#[derive(Default)]
struct Found<'a> {
    numbers: [u64; 10],
    texts: [&'a [u8]; 10],
    /// The arguments of a system call.
    args: Vec<u64>,
}

impl<'a> Found<'a> {
    fn of(kind: u32, bytes: &'a [u8]) -> Option<Found<'a>> {
        let mut found = Found::default();
        for field in fields(bytes) {
            let (number, value) = field?;
            let slot = number as usize;
            if (kind, number) == (ENTER, 2) {
                found.args.extend(numbers(value)?);
            }
            if slot < found.numbers.len() {
                match value {
                    Value::Number(value) => found.numbers[slot] = value,
                    Value::Bytes(bytes) => found.texts[slot] = bytes,
                }
            }
        }
        Some(found)
    }

    /// A number of 32 bits; some writers leave zeros out of a message.
    fn int(&self, slot: usize) -> i32 {
        self.numbers[slot] as i32
    }

    fn comm(&self, slot: usize) -> Comm {
        Comm::new(self.texts[slot])
    }
}

/// Decodes one event, and returns its time.
fn item(event: &[u8], facts: &mut Facts, items: &mut Vec<Item>) -> Option<u64> {
    let (mut at_ns, mut current, mut flags, mut body) = (None, None, None, None);
    for field in fields(event) {
        match field? {
            (1, Value::Number(number)) => at_ns = Some(number),
            (2, Value::Number(number)) => current = Some(number as i32),
            (5, Value::Number(number)) => flags = Some(number.cast_signed()),
            (number, Value::Bytes(bytes)) => body = Some((number, bytes)),
            _ => {}
        }
    }
    let Some((kind, bytes)) = body else {
        return Some(at_ns.unwrap_or(0));
    };
    let is_wanted = match kind {
        // Kernels before 4.3 tell wakeups of tasks that were awake, too.
        WAKEUP => !facts.has_waking && !fields(bytes).any(|field| field == Some(FAILED)),
        SWITCH | WAKING | WAKEUP_NEW | NEW_TASK | EXEC | FORK | ENTER | LEAVE | MIGRATE => true,
        _ => false,
    };
    if !is_wanted {
        facts.passed_over += 1;
        return Some(at_ns.unwrap_or(0));
    }
    let found = Found::of(kind, bytes)?;
    let at_ns = at_ns?;
    let mut push = |what| {
        items.push(Item {
            at_ns,
            current,
            context: context(flags),
            kind: Kind::Whole(what),
        });
    };
    let what = match kind {
        SWITCH => What::Switch {
            prev: found.int(2),
            prev_comm: found.comm(1),
            prev_prio: found.int(3),
            left: facts.left(found.numbers[4].cast_signed()),
            next: found.int(6),
            next_comm: found.comm(5),
            next_prio: found.int(7),
        },
        WAKING | WAKEUP => What::Waking {
            task: found.int(2),
            comm: found.comm(1),
        },
        WAKEUP_NEW => What::New { task: found.int(2) },
        EXEC => What::Exec { task: found.int(2) },
        MIGRATE => What::Migrate { task: found.int(2) },
        FORK => What::Fork {
            parent: found.int(2),
            child: found.int(4),
        },
        ENTER => {
            let arg = |at: usize| found.args.get(at).copied().unwrap_or(0);
            let number = found.numbers[1].cast_signed();
            What::Enter(call(&facts.machine, number, arg(0), arg(1)))
        }
        LEAVE => What::Leave(found.numbers[2].cast_signed()),
        _ => {
            let (task, parent) = (found.int(1), current.unwrap_or(0));
            let of_parent = facts.processes.get(&parent).copied().unwrap_or(parent);
            let process = match found.numbers[3] & CLONE_THREAD {
                0 => task,
                _ => of_parent,
            };
            facts.processes.insert(task, process);
            push(What::Process { task, process });
            if facts.has_fork {
                return Some(at_ns);
            }
            What::Fork {
                parent,
                child: task,
            }
        }
    };
    push(what);
    Some(at_ns)
}

impl Brief {
    fn add(&mut self, bytes: &[u8]) -> Option<()> {
        for field in fields(bytes) {
            let (number, value) = field?;
            let list = match (number, value) {
                (5, Value::Bytes(name)) => {
                    self.names.push(Comm::new(name));
                    continue;
                }
                (1..=4, _) => &mut self.switches[number as usize - 1],
                (6, _) => &mut self.switches[4],
                (7 | 8, _) => &mut self.wakings[number as usize - 7],
                (10..=12, _) => &mut self.wakings[number as usize - 8],
                _ => continue,
            };
            list.extend(numbers(value)?);
        }
        Some(())
    }

    fn items(&self, items: &mut Vec<Item>) -> Option<()> {
        let name = |index: u64| self.names.get(usize::try_from(index).ok()?).copied();
        let mut at_ns = 0u64;
        let [times, states, tasks, prios, names] = &self.switches;
        for (index, passed) in times.iter().enumerate() {
            at_ns = at_ns.wrapping_add(*passed);
            let next = On {
                task: *tasks.get(index)? as i32,
                comm: name(*names.get(index)?)?,
                prio: *prios.get(index)? as i32,
            };
            let state = states.get(index)?.cast_signed();
            items.push(Item {
                at_ns,
                current: None,
                context: Context::Task,
                kind: Kind::Coming(Coming { state, next }),
            });
        }
        at_ns = 0;
        let [times, tasks, _, names, flags] = &self.wakings;
        for (index, passed) in times.iter().enumerate() {
            at_ns = at_ns.wrapping_add(*passed);
            items.push(Item {
                at_ns,
                current: None,
                context: context(flags.get(index).map(|flags| flags.cast_signed())),
                kind: Kind::Whole(What::Waking {
                    task: *tasks.get(index)? as i32,
                    comm: name(*names.get(index)?)?,
                }),
            });
        }
        Some(())
    }
}
