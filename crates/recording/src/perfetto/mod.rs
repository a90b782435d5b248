//! Traces of Perfetto: protobuf packets, of which those with ftrace events count.
//!
//! Bundles of the CPUs come in rounds, so the file is read twice. The first reading notes where the bundles of each CPU
//! are, 32 bytes for each, and the facts about the whole trace. The second takes the bundles of all CPUs side by side, so that
//! events come in the order of time and memory holds a bundle of each CPU.

mod bundle;
mod fields;
mod packets;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fs::File;

use crate::order::Order;
use crate::{About, Context, Event, RecordingError, Tid, What};
use bundle::{Cpu, FORK, Facts, SWITCH, WAKING, overview};
use fields::{Value, fields, is_message};
use packets::{BEGIN, FIELDS, FTRACE_EVENTS, Packets, Place, holds_packets};

/// Fields of a packet (Perfetto's `trace_packet.proto`).
const PROCESS_TREE: u32 = 2;
const SEQUENCE: u32 = 10;
const FTRACE_STATS: u32 = 34;
const PREVIOUS_DROPPED: u32 = 42;
const SYSTEM_INFO: u32 = 45;
const MACHINE: u32 = 98;

/// The first reading takes no more memory beyond the file's size, in bytes: a packed packet may hold millions of others.
const MEMORY_MAX: u64 = 64 << 20;

/// Whether the bytes begin with a packet. The file may go on after them.
pub(crate) fn is_perfetto(head: &[u8]) -> bool {
    // A line feed begins a packet, too.
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    if head.iter().all(is_text) {
        return false;
    }
    let Some(rest) = head.strip_prefix(&[BEGIN]) else {
        return false;
    };
    let Some(digits) = rest.iter().take(5).position(|byte| byte & 0x80 == 0) else {
        return false;
    };
    let (digits, rest) = rest.split_at(digits + 1);
    let size = digits
        .iter()
        .rev()
        .fold(0u64, |size, byte| size << 7 | u64::from(byte & 0x7f));
    match rest.get(..size as usize) {
        Some(packet) => is_message(packet, false),
        None => is_message(rest, true) || holds_packets(rest),
    }
}

/// The first reading.
#[derive(Default)]
struct Index {
    bundles: BTreeMap<u32, Bundles>,
    /// Entries of all CPUs.
    entries: usize,
    facts: Facts,
    kernel: Option<String>,
    cpus: Option<u32>,
    clocks: BTreeSet<u64>,
    /// The numbers of the machines that events are from.
    machines: BTreeSet<u64>,
    has_switch: bool,
    sequences: BTreeSet<u64>,
    /// Gaps that bundles report.
    gaps: u64,
    /// Gaps that packets report, which may have held events of any CPU.
    drops: u64,
    /// Events that the kernel has lost by its own count on each CPU, first at the begin and last at the end.
    lost: BTreeMap<u64, [Option<u64>; 2]>,
}

/// The bundles of a CPU.
#[derive(Default)]
struct Bundles {
    all: Vec<Bundle>,
    /// Whether events are missing before the next one.
    has_gap: bool,
    /// [`Index::drops`] before the last one.
    drops: u64,
}

/// A bundle with events. They are sorted by their times.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Bundle {
    first_ns: u64,
    place: Place,
    /// Whether events are missing before it.
    has_gap: bool,
}

/// Tells the events of the file.
///
/// # Errors
/// If it is damaged, or has no events of switches.
pub(crate) fn read(
    path: &str,
    file: &mut File,
    sink: &mut dyn FnMut(&Event),
) -> Result<About, RecordingError> {
    let mut packets = Packets::new(path, file)?;
    let mut index = Index::default();
    let memory_max = packets.len.saturating_add(MEMORY_MAX);
    packets.all(&mut |place, packet| {
        index.packet(place, packet).ok_or(FIELDS)?;
        match index.memory() <= memory_max {
            true => Ok(()),
            false => Err("the trace has more packets than its size allows"),
        }
    })?;
    if !index.has_switch {
        return Err(RecordingError::Lacking {
            path: path.to_owned(),
            event: "sched_switch",
            remedy: "`tracebox -o FILE -t 10s sched/sched_switch sched/sched_waking`",
        });
    }
    if index.clocks.len() > 1 || index.machines.len() > 1 {
        return Err(RecordingError::NoProgram {
            path: path.to_owned(),
            message: "its events have several clocks, as where several machines were recorded: record one machine".to_owned(),
        });
    }
    let mut order = Order::new(path, "trace of Perfetto", sink);
    order.about.kernel = index.kernel;
    order.about.cpus = index.cpus.or(Some(index.bundles.len() as u32));
    let mut facts = index.facts;
    let mut streams: Vec<Stream> = index.bundles.into_iter().map(Stream::new).collect();
    let mut heap = BinaryHeap::new();
    for (slot, stream) in streams.iter_mut().enumerate() {
        if let Some(at_ns) = stream.fill(&mut packets, &mut facts)? {
            heap.push(Reverse((at_ns, slot)));
        }
    }
    if let Some(Reverse((at_ns, _))) = heap.peek() {
        for (task, process) in &facts.processes {
            order.event(told(*at_ns, *task, *process))?;
        }
    }
    while let Some(Reverse((_, slot))) = heap.pop() {
        let stream = &mut streams[slot];
        if let Some(event) = stream.events.pop_front() {
            order.event(event)?;
        }
        if let Some(at_ns) = stream.fill(&mut packets, &mut facts)? {
            heap.push(Reverse((at_ns, slot)));
        }
    }
    let of_cpu =
        |[first, last]: &[Option<u64>; 2]| last.unwrap_or(0).saturating_sub(first.unwrap_or(0));
    let lost = index.lost.values().map(of_cpu);
    let lost = lost.fold(0, u64::saturating_add);
    order.event(Event {
        what: What::Lost(lost.max(index.gaps + index.drops)),
        ..told(order.about.last_ns, 0, 0)
    })?;
    order.about.passed_over = facts.passed_over;
    Ok(order.about)
}

fn told(at_ns: u64, task: Tid, process: Tid) -> Event {
    Event {
        at_ns,
        cpu: 0,
        current: None,
        context: Context::Unknown,
        what: What::Process { task, process },
    }
}

/// The events of one CPU.
struct Stream {
    bundles: std::vec::IntoIter<Bundle>,
    cpu: Cpu,
    events: VecDeque<Event>,
}

impl Stream {
    fn new((cpu, mut bundles): (u32, Bundles)) -> Stream {
        bundles.all.sort();
        Stream {
            bundles: bundles.all.into_iter(),
            cpu: Cpu::new(cpu),
            events: VecDeque::new(),
        }
    }

    /// Takes bundles until there is an event, and returns its time.
    fn fill(
        &mut self,
        packets: &mut Packets<'_>,
        facts: &mut Facts,
    ) -> Result<Option<u64>, RecordingError> {
        while self.events.is_empty() {
            let Some(Bundle { place, has_gap, .. }) = self.bundles.next() else {
                return Ok(None);
            };
            if has_gap {
                self.cpu.forget();
            }
            let packet = packets.at(place)?;
            for field in fields(&packet) {
                if let Some((FTRACE_EVENTS, Value::Bytes(bundle))) = field {
                    let events = self.cpu.events(bundle, facts);
                    let events = events.ok_or_else(|| packets.corrupted(place.at, FIELDS))?;
                    self.events.extend(events);
                }
            }
        }
        Ok(self.events.front().map(|event| event.at_ns))
    }
}

impl Index {
    /// About the bytes of memory that it takes.
    fn memory(&self) -> u64 {
        let sets = self.sequences.len() + self.machines.len();
        let maps = self.facts.processes.len() + self.lost.len();
        ((self.entries + sets + maps) * size_of::<Bundle>()) as u64
    }

    /// Notes what a packet has; `None` if it is damaged.
    fn packet(&mut self, place: Place, packet: &[u8]) -> Option<()> {
        let (mut sequence, mut machine, mut is_dropped, mut bundle) = (0, 0, false, None);
        for field in fields(packet) {
            match field? {
                (FTRACE_EVENTS, Value::Bytes(bytes)) => bundle = Some(bytes),
                (PROCESS_TREE, Value::Bytes(tree)) => self.process_tree(tree)?,
                (FTRACE_STATS, Value::Bytes(stats)) => self.stats(stats)?,
                (SYSTEM_INFO, Value::Bytes(info)) => self.system_info(info)?,
                (SEQUENCE, Value::Number(number)) => sequence = number,
                (MACHINE, Value::Number(number)) => machine = number,
                (PREVIOUS_DROPPED, Value::Number(flag)) => is_dropped = flag != 0,
                _ => {}
            }
        }
        // The first packet of a sequence has the flag, too.
        let is_first = self.sequences.insert(sequence);
        let Some(bundle) = bundle else {
            return Some(());
        };
        self.machines.insert(machine);
        self.drops += u64::from(is_dropped && !is_first);
        self.bundle(place, bundle)
    }

    fn bundle(&mut self, place: Place, bundle: &[u8]) -> Option<()> {
        let seen = overview(bundle, &mut |kind| {
            self.has_switch |= kind == SWITCH;
            self.facts.has_waking |= kind == WAKING;
            self.facts.has_fork |= kind == FORK;
        })?;
        self.gaps += u64::from(seen.has_gap);
        let of_cpu = self.bundles.entry(seen.cpu).or_default();
        // A gap of a bundle with events is found again with them.
        of_cpu.has_gap |= of_cpu.drops < self.drops || (seen.has_gap && seen.first_ns.is_none());
        of_cpu.drops = self.drops;
        if let Some(first_ns) = seen.first_ns {
            self.clocks.insert(seen.clock);
            self.entries += 1;
            of_cpu.all.push(Bundle {
                first_ns,
                place,
                has_gap: std::mem::take(&mut of_cpu.has_gap),
            });
        }
        Some(())
    }

    /// Threads and their processes.
    fn process_tree(&mut self, tree: &[u8]) -> Option<()> {
        for field in fields(tree) {
            let (2, Value::Bytes(thread)) = field? else {
                continue;
            };
            let (mut task, mut process) = (0, 0);
            for field in fields(thread) {
                match field? {
                    (1, Value::Number(number)) => task = number as Tid,
                    (3, Value::Number(number)) => process = number as Tid,
                    _ => {}
                }
            }
            if task > 0 && process > 0 {
                self.facts.processes.insert(task, process);
            }
        }
        Some(())
    }

    /// The kernel's counts since its begin. Each flush writes a pair for begin and end, of which all begins are the same.
    fn stats(&mut self, stats: &[u8]) -> Option<()> {
        let (mut phase, mut cpus) = (0, Vec::new());
        for field in fields(stats) {
            match field? {
                (1, Value::Number(number)) => phase = number,
                (2, Value::Bytes(of_cpu)) => {
                    let (mut cpu, mut lost) = (0, 0u64);
                    for field in fields(of_cpu) {
                        match field? {
                            (1, Value::Number(number)) => cpu = number,
                            // Overwritten, overwritten before they were whole, dropped.
                            (3 | 4 | 8, Value::Number(number)) => {
                                lost = lost.saturating_add(number)
                            }
                            _ => {}
                        }
                    }
                    cpus.push((cpu, lost));
                }
                _ => {}
            }
        }
        for (cpu, lost) in cpus {
            let [first, last] = self.lost.entry(cpu).or_default();
            match phase {
                1 => *first = first.or(Some(lost)),
                2 => *last = Some(lost),
                _ => {}
            }
        }
        Some(())
    }

    fn system_info(&mut self, info: &[u8]) -> Option<()> {
        for field in fields(info) {
            match field? {
                (1, Value::Bytes(uname)) => {
                    for field in fields(uname) {
                        let (number, Value::Bytes(text)) = field? else {
                            continue;
                        };
                        let text = String::from_utf8_lossy(text).into_owned();
                        match number {
                            3 => {
                                self.facts.has_old_states = is_before_4_14(&text);
                                self.kernel = Some(text);
                            }
                            4 => self.facts.machine = text,
                            _ => {}
                        }
                    }
                }
                (8, Value::Number(cpus)) => self.cpus = u32::try_from(cpus).ok(),
                _ => {}
            }
        }
        Some(())
    }
}

/// Whether a kernel's release has the old numbers of states.
fn is_before_4_14(release: &str) -> bool {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut part = || parts.next().and_then(|part| part.parse::<u32>().ok());
    let version = part().zip(part());
    version.is_some_and(|version| version < (4, 14))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_tells_the_states() {
        assert!(is_before_4_14("4.9.270-g862f51bac900"));
        assert!(!is_before_4_14("4.14.0"));
        assert!(!is_before_4_14("6.1.0-13-amd64"));
        assert!(!is_before_4_14("?"));
    }

    #[test]
    fn a_packet_is_known_by_its_form() {
        assert!(is_perfetto(&[10, 2, 8, 1]));
        assert!(is_perfetto(&[10, 0x80, 1, 8, 1, 0x12, 99]));
        // Packed packets alone may be more than the beginning that is looked at.
        assert!(is_perfetto(&[
            10, 0x80, 0x80, 8, 0x92, 3, 0xff, 0xff, 7, 0x78
        ]));
        assert!(is_perfetto(&[
            10, 0x80, 0x80, 8, 0xaa, 8, 0xff, 0xff, 7, 0x28
        ]));
        for foreign in [
            &b"\n# text"[..],
            b"",
            b"\n",
            b"\n\x00",
            b"abc",
            b"\n\xff\xff\xff\xff\xff",
        ] {
            assert!(!is_perfetto(foreign), "{foreign:?}");
        }
    }
}
