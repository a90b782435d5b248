//! The head of a trace.dat: the facts that its events need to be read.

use std::collections::BTreeMap;
use std::io::Read;

use linux_perf_event_reader::Endianness;

use super::input::{Input, number};
use crate::RecordingError;
use crate::formats::{Format, described};
use crate::packed::Packing;
use crate::tracepoint::Point;

/// No kernel has more CPUs.
const CPUS_MAX: u32 = 65_536;

/// The pages of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CpuPages {
    pub cpu: u32,
    /// Where they begin in the file, in bytes.
    pub at: u64,
    /// Bytes in the file.
    pub size: u64,
}

/// The list of a kernel's clocks is not longer, in bytes.
const CLOCKS_MAX: u64 = 4_096;

/// The facts of the head.
#[derive(Default)]
pub(super) struct Head {
    /// 6 or 7.
    pub version: u32,
    /// The kernel's description of a page.
    pub header_page: String,
    /// Bytes of a page.
    pub page_size: u32,
    /// Tracepoints that matter, by number.
    pub points: BTreeMap<u16, (Point, Format)>,
    pub cpus: Vec<CpuPages>,
    /// How sections and pages are packed.
    pub packing: Packing,
    /// The clock of the events; empty where the file does not say.
    pub clock: String,
    /// Whether the file says it, but perhaps elsewhere.
    pub has_clock: bool,
    /// How cycles become ns: multiplied by the first, shifted by the second.
    pub cycles: Option<(u32, u32)>,
    /// `uname`: system, host, release, machine.
    pub uname: Vec<String>,
    /// CPUs of the machine.
    pub cpu_count: Option<u32>,
    /// Events that the kernel has lost, by its own count.
    pub lost: u64,
    /// Whether there is the text of a latency tracer.
    pub has_text: bool,
    /// The name of a further ring buffer, if there is any.
    pub instance: Option<String>,
}

impl Head {
    /// `header_page` and `header_event`.
    pub fn header_info<R: Read>(&mut self, input: &mut Input<R>) -> Result<(), RecordingError> {
        input.expect(b"header_page\0")?;
        let size = input.u64("the size of header_page")?;
        let text = input.bytes(size, "header_page")?;
        self.header_page = String::from_utf8_lossy(&text).into_owned();
        input.expect(b"header_event\0")?;
        let size = input.u64("the size of header_event")?;
        input.skip(size, "header_event")
    }

    /// The formats of all events, of which few are kept.
    pub fn event_formats<R: Read>(&mut self, input: &mut Input<R>) -> Result<(), RecordingError> {
        for _ in 0..input.u32("the number of event systems")? {
            input.text("the name of an event system")?;
            for _ in 0..input.u32("the number of events")? {
                let size = input.u64("the size of an event format")?;
                let text = input.bytes(size, "an event format")?;
                let text = String::from_utf8_lossy(&text);
                let Some((name, id, format)) = described(&text) else {
                    return Err(input.corrupted("it is no event format"));
                };
                let point = Point::named(name);
                if point != Point::Other {
                    self.points.insert(id, (point, format));
                }
            }
        }
        Ok(())
    }

    /// An option that versions 6 and 7 have in common.
    pub fn option(&mut self, id: u16, data: &[u8], endian: Endianness) {
        let text = String::from_utf8_lossy(data);
        let text = text.trim_end_matches('\0');
        let word = |from: usize| Some(number(data.get(from..from + 4)?, endian) as u32);
        match id {
            2 => self.lost = self.lost.saturating_add(lost(text)),
            4 => {
                self.has_clock = true;
                if self.clock.is_empty() {
                    self.clock = clock(text).to_owned();
                }
            }
            5 => self.uname = text.split(' ').map(str::to_owned).collect(),
            8 => self.cpu_count = word(0),
            14 => self.cycles = word(0).zip(word(4)),
            _ => {}
        }
    }

    /// The clock of version 6 behind the places of pages, where its option is empty. Without it the clock is `local`, as
    /// for trace-cmd.
    pub fn clock_behind<R: Read>(&mut self, input: &mut Input<R>) {
        if !self.has_clock || !self.clock.is_empty() {
            return;
        }
        let mut text = || {
            let size = input.u64("the size of the clocks").ok()?;
            let is_sound = size <= CLOCKS_MAX;
            is_sound.then(|| input.bytes(size, "the clocks").ok())?
        };
        let text = text().unwrap_or_default();
        self.clock = match clock(&String::from_utf8_lossy(&text)) {
            "" => "local".to_owned(),
            name => name.to_owned(),
        };
    }

    /// The number of CPUs, unless it is absurd.
    pub fn cpus<R: Read>(input: &mut Input<R>) -> Result<u32, RecordingError> {
        match input.u32("the number of CPUs")? {
            cpus @ 0..=CPUS_MAX => Ok(cpus),
            cpus => Err(input.corrupted(format!("{cpus} CPUs"))),
        }
    }
}

/// From `per_cpu/cpuN/stats`: the events that were overwritten or dropped.
fn lost(stats: &str) -> u64 {
    let counts = stats.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        match name.trim() {
            "overrun" | "commit overrun" | "dropped events" => count.trim().parse().ok(),
            _ => None,
        }
    });
    counts.fold(0, u64::saturating_add)
}

/// The chosen one of `[local] global counter …`.
fn clock(text: &str) -> &str {
    let chosen = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_tell_losses_clock_and_machine() {
        let mut head = Head::default();
        let little = Endianness::LittleEndian;
        let stats = b"CPU: 0\nentries: 5\noverrun: 3\ncommit overrun: 1\ndropped events: 2\n\0";
        head.option(2, stats, little);
        head.option(2, stats, little);
        head.option(4, b"local [mono] global\n\0", little);
        head.option(5, b"Linux host 6.1.0 x86_64\0", little);
        head.option(8, &4u32.to_le_bytes(), little);
        head.option(
            14,
            &[5, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            little,
        );
        head.option(8, &[1], little);
        assert_eq!((head.lost, head.clock.as_str()), (12, "mono"));
        assert_eq!(head.uname[2..], ["6.1.0", "x86_64"]);
        assert_eq!((head.cpu_count, head.cycles), (None, Some((5, 6))));
    }
}
