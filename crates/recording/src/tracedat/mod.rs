//! trace.dat of trace-cmd, versions 6 and 7 (trace-cmd.dat.v6(5), trace-cmd.dat.v7(5)).
//!
//! The head describes the tracepoints as the kernel does, and the pages are the kernel's ring buffers as they were. The
//! CPUs' pages are read side by side, so that events come in the order of time and memory holds a page of each CPU.

mod head;
mod input;
mod page;
mod seven;
mod six;
mod stream;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::BufReader;

use linux_perf_event_reader::Endianness;

use crate::formats::{Format, Raw};
use crate::order::Order;
use crate::packed::Packing;
use crate::tracepoint::{Decoder, Point};
use crate::{About, Context, Event, RecordingError, What};
use head::{CpuPages, Head};
use input::Input;
use page::{Found, Layout};
use stream::{Source, Stream};

/// A trace.dat begins so; the version follows.
pub(crate) const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Clocks of the kernel that count ns (Documentation/trace/ftrace.rst).
const CLOCKS: [&str; 7] = ["local", "global", "perf", "mono", "mono_raw", "boot", "tai"];
/// Pages of all CPUs take no more memory, in bytes. Packed pages of 64 KiB of 512 CPUs take half of it.
const MEMORY_MAX: u64 = 1 << 30;

const REMEDY: &str = "`trace-cmd record -e sched_switch -e sched_waking`";

/// Tells the events of the file.
///
/// # Errors
/// If it is damaged, or has no events of switches.
pub(crate) fn read(
    path: &str,
    file: &mut File,
    sink: &mut dyn FnMut(&Event),
) -> Result<About, RecordingError> {
    let unreadable = |cause| RecordingError::Unreadable {
        path: path.to_owned(),
        cause,
    };
    let len = file.metadata().map_err(unreadable)?.len();
    let (head, layout) = open(path, file, len)?;
    let is_switch = |(point, _): &(Point, Format)| *point == Point::Switch;
    if !head.points.values().any(is_switch) {
        return Err(lacking(path));
    }
    let format = format!("trace.dat, version {}", head.version);
    let mut order = Order::new(path, &format, sink);
    order.about.kernel = head.uname.get(2).cloned();
    order.about.cpus = head.cpu_count.or(Some(head.cpus.len() as u32));
    let machine = head.uname.last().map_or("", String::as_str);
    let mut decoder = Decoder::new(machine);
    let mut source = Source { path, file };
    let mut streams = Vec::new();
    // By stream: the event that comes next.
    let mut next: Vec<Option<Found>> = Vec::new();
    let mut heap = BinaryHeap::new();
    let mut lost = 0u64;
    for pages in &head.cpus {
        let mut stream = Stream::open(&mut source, *pages, layout, head.packing)?;
        let (found, missing) = stream.next(&mut source)?;
        lost = lost.saturating_add(missing);
        if let Some((time, _)) = found {
            heap.push(Reverse((time, streams.len())));
        }
        next.push(found);
        streams.push(stream);
    }
    let mut switches = 0u64;
    while let Some(Reverse((time, slot))) = heap.pop() {
        let stream = &mut streams[slot];
        let Some((_, found)) = next[slot].take() else {
            continue;
        };
        let raw = Raw {
            bytes: stream.bytes(found),
            endian: layout.endian,
        };
        let damaged = || stream.corrupted(&source, "the fields of an event do not fit into it");
        let kind = raw.bytes.get(..2).ok_or_else(damaged)?;
        let kind = input::number(kind, layout.endian) as u16;
        let told = match head.points.get(&kind) {
            Some((point, format)) => {
                switches += u64::from(*point == Point::Switch);
                decoder.decode(*point, format, raw).ok_or_else(damaged)?
            }
            None => None,
        };
        match told {
            Some(told) => order.event(Event {
                at_ns: ns(time, head.cycles),
                cpu: stream.cpu,
                current: told.current,
                context: told.context,
                what: told.what,
            })?,
            None => order.about.passed_over += 1,
        }
        let (found, missing) = stream.next(&mut source)?;
        lost = lost.saturating_add(missing);
        if let Some((time, _)) = found {
            heap.push(Reverse((time, slot)));
        }
        next[slot] = found;
    }
    // The kernel counts what it has lost, and pages say where: mostly the same events.
    order.event(Event {
        at_ns: order.about.last_ns,
        cpu: 0,
        current: None,
        context: Context::Unknown,
        what: What::Lost(lost.max(head.lost)),
    })?;
    match (switches, head.instance) {
        (1.., _) => Ok(order.about),
        (0, None) => Err(lacking(path)),
        (0, Some(instance)) => Err(RecordingError::NoProgram {
            path: path.to_owned(),
            message: format!(
                "its events are in the buffer `{instance}`: `trace-cmd report -B {instance} FILE > FILE.txt` makes text of it"
            ),
        }),
    }
}

fn lacking(path: &str) -> RecordingError {
    RecordingError::Lacking {
        path: path.to_owned(),
        event: "sched_switch",
        remedy: REMEDY,
    }
}

/// The time of the clock in ns.
fn ns(time: u64, cycles: Option<(u32, u32)>) -> u64 {
    let Some((factor, shift)) = cycles else {
        return time;
    };
    let ns = (u128::from(time) * u128::from(factor)) >> shift.min(127);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Reads the head of a file of `len` bytes.
fn open(path: &str, file: &mut File, len: u64) -> Result<(Head, Layout), RecordingError> {
    let from = BufReader::new(file);
    let mut input = Input::new(path, "the file", from, len, Endianness::LittleEndian);
    input.expect(MAGIC)?;
    let version = input.text("the version")?;
    input.endian = match input.bytes(1, "the byte order")?[0] {
        0 => Endianness::LittleEndian,
        1 => Endianness::BigEndian,
        other => return Err(input.corrupted(format!("a byte order {other}"))),
    };
    input.skip(1, "the size of a long")?;
    let endian = input.endian;
    let mut head = Head {
        page_size: input.u32("the size of a page")?,
        ..Head::default()
    };
    match version.as_str() {
        "6" => {
            head.version = 6;
            six::read(&mut head, &mut input)?;
        }
        "7" => {
            head.version = 7;
            seven::read(path, &mut head, input, len)?;
        }
        other => {
            return Err(RecordingError::Foreign {
                path: path.to_owned(),
                what: format!("a trace.dat of version {other}; 6 and 7 are known"),
            });
        }
    }
    if head.has_text && head.cpus.is_empty() {
        return Err(RecordingError::NoProgram {
            path: path.to_owned(),
            message:
                "it has text of a latency tracer, which `trace-cmd report FILE > FILE.txt` unpacks"
                    .to_owned(),
        });
    }
    let corrupted = |message: String| RecordingError::Corrupted {
        path: path.to_owned(),
        place: "its head".to_owned(),
        message,
    };
    let layout =
        Layout::new(&head.header_page, head.page_size as usize, endian).ok_or_else(|| {
            corrupted(format!(
                "pages of {} bytes of an unknown form",
                head.page_size
            ))
        })?;
    for pages in &head.cpus {
        let end = pages.at.checked_add(pages.size);
        if end.is_none_or(|end| end > len) {
            return Err(RecordingError::Truncated {
                path: path.to_owned(),
                message: format!(
                    "the pages of CPU {} end beyond the file's {len} bytes",
                    pages.cpu
                ),
            });
        }
    }
    apart(&mut head, layout, len).map_err(corrupted)?;
    let is_ns = head.clock.is_empty() || CLOCKS.contains(&head.clock.as_str());
    if !is_ns && head.cycles.is_none() {
        return Err(RecordingError::NoProgram {
            path: path.to_owned(),
            message: format!(
                "its clock `{}` is not known to count ns: record with `trace-cmd record -C mono`",
                input::printable(head.clock.as_bytes())
            ),
        });
    }
    Ok((head, layout))
}

/// Checks that each CPU has pages of its own, and that memory holds what is read of all CPUs at once.
fn apart(head: &mut Head, layout: Layout, len: u64) -> Result<(), String> {
    let has_pages = |pages: &&mut CpuPages| pages.size > 0;
    let mut areas: Vec<_> = head.cpus.iter_mut().filter(has_pages).collect();
    let needed = areas.len() as u64 * stream::memory(layout, head.packing);
    if needed > MEMORY_MAX {
        return Err(format!(
            "the pages of {} CPUs need {needed} bytes of memory",
            areas.len()
        ));
    }
    areas.sort_by_key(|pages| pages.at);
    let mut next = len;
    for pages in areas.into_iter().rev() {
        if pages.at + pages.size > next {
            return Err(format!(
                "the pages of CPU {} reach into those of another one",
                pages.cpu
            ));
        }
        if head.packing != Packing::None {
            // trace-cmd leaves the number of pieces out of the size of packed pages.
            pages.size = next - pages.at;
        }
        next = pages.at;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of 4 MiB of some CPUs, by their places and sizes in a file of 1,000 bytes.
    fn apart_of(places: &[(u64, u64)], packing: Packing) -> Result<Vec<u64>, String> {
        let header = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield: char data;\toffset:16;\tsize:80;\tsigned:1;\n";
        let layout = Layout::new(header, 4 << 20, Endianness::LittleEndian).unwrap();
        let cpus = (0..).zip(places);
        let mut head = Head {
            cpus: cpus
                .map(|(cpu, (at, size))| CpuPages {
                    cpu,
                    at: *at,
                    size: *size,
                })
                .collect(),
            packing,
            ..Head::default()
        };
        apart(&mut head, layout, 1_000)?;
        Ok(head.cpus.iter().map(|pages| pages.size).collect())
    }

    #[test]
    fn cycles_become_ns_by_the_files_own_factor() {
        assert_eq!(ns(1_000, None), 1_000);
        // 2.5 GHz: 0.4 ns for each.
        let factor = (4 * (1 << 20)) / 10;
        assert_eq!(ns(2_500_000_000, Some((factor, 20))), 999_999_046);
        assert_eq!(ns(u64::MAX, Some((u32::MAX, 0))), u64::MAX);
        assert_eq!(ns(u64::MAX, Some((u32::MAX, u32::MAX))), 0);
    }

    #[test]
    fn each_cpu_has_pages_of_its_own() {
        let places = [(600, 100), (0, 0), (200, 400), (100, 90)];
        assert_eq!(apart_of(&places, Packing::None).unwrap(), [100, 0, 400, 90]);
        // Bytes between two CPUs belong to the first.
        assert_eq!(
            apart_of(&places, Packing::Zlib).unwrap(),
            [400, 0, 400, 100]
        );
        let error = apart_of(&[(600, 100), (200, 401)], Packing::None).unwrap_err();
        assert_eq!(error, "the pages of CPU 1 reach into those of another one");
        apart_of(&[(600, 100), (600, 100)], Packing::Zstd).unwrap_err();
    }

    #[test]
    fn pages_of_all_cpus_fit_into_memory() {
        let places = |cpus: u64| (0..cpus).map(|cpu| (cpu, 1)).collect::<Vec<_>>();
        apart_of(&places(256), Packing::None).unwrap();
        let error = apart_of(&places(257), Packing::None).unwrap_err();
        assert!(error.starts_with("the pages of 257 CPUs need"), "{error}");
        apart_of(&places(15), Packing::Zlib).unwrap();
        apart_of(&places(16), Packing::Zlib).unwrap_err();
    }
}
