//! The pages of the kernel's ring buffer (`events/header_page`, `events/header_event`).
//!
//! A page has a time, the bytes that are used, and events. An event begins with a word: 5 bits of kind or length, and 27
//! bits of time since the one before.

use std::ops::Range;

use linux_perf_event_reader::Endianness;

use super::input::number;
use crate::formats::Format;

/// Kinds of events without a tracepoint's fields. A kind up to 28 is the length in words.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of time in an event's first word.
const TIME_BITS: u32 = 27;
/// An absolute time has 59 bits and lacks the highest five.
const STAMP_BITS: u32 = 59;
const STAMP_MISSING: u64 = u64::MAX << STAMP_BITS;
/// Flags beside the used bytes: events were lost before this page, and if so, their number stands behind its events.
const LOST: u64 = 1 << 31;
const LOST_COUNTED: u64 = 1 << 30;
const USED: u64 = (1 << TIME_BITS) - 1;

/// Where a page has what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// Bytes of a page.
    pub size: usize,
    /// The word of the used bytes and the flags.
    commit: usize,
    /// Bytes of that word: 4 or 8, as the kernel's `long`.
    pub long: usize,
    /// Where events begin.
    data: usize,
    pub endian: Endianness,
}

impl Layout {
    /// From the kernel's description; `None` if it is of no known form.
    pub fn new(header: &str, size: usize, endian: Endianness) -> Option<Layout> {
        let format = Format::parse(header);
        let (commit, long) = format.place("commit")?;
        let (data, _) = format.place("data")?;
        let is_known = format.place("timestamp") == Some((0, 8))
            && commit == 8
            && matches!(long, 4 | 8)
            && data >= commit + long
            && size > data
            && size <= SIZE_MAX;
        is_known.then_some(Layout {
            size,
            commit,
            long,
            data,
            endian,
        })
    }
}

/// No page is larger, in bytes.
const SIZE_MAX: usize = 64 << 20;

/// A page that is being read.
pub(super) struct Page {
    layout: Layout,
    bytes: Vec<u8>,
    at: usize,
    end: usize,
    time_ns: u64,
    /// Events that are missing before this page, at least.
    pub lost: u64,
}

/// An event: its time in units of the clock, and where its bytes lie in the page.
pub(super) type Found = (u64, Range<usize>);

impl Page {
    /// Opens a page of [`Layout::size`] bytes; `None` if it says to use more than it has.
    pub fn open(layout: Layout, bytes: Vec<u8>) -> Option<Page> {
        let word = |at: usize, size: usize| {
            let bytes = bytes.get(at..at.checked_add(size)?)?;
            Some(number(bytes, layout.endian))
        };
        let commit = word(layout.commit, layout.long)?;
        let end = layout.data + (commit & USED) as usize;
        if end > bytes.len() {
            return None;
        }
        let lost = match (commit & LOST, commit & LOST_COUNTED) {
            (0, _) => 0,
            (_, 0) => 1,
            _ => word(end, layout.long)?.max(1),
        };
        Some(Page {
            layout,
            at: layout.data,
            end,
            time_ns: word(0, 8)?,
            lost,
            bytes,
        })
    }

    /// Returns the bytes of an event.
    pub fn bytes(&self, found: Range<usize>) -> &[u8] {
        &self.bytes[found]
    }

    /// Returns how far the page has been read, in bytes.
    pub fn at(&self) -> usize {
        self.at
    }

    fn word(&mut self) -> Option<u32> {
        let end = self.at + 4;
        let bytes = self.bytes[..self.end].get(self.at..end)?;
        self.at = end;
        Some(number(bytes, self.layout.endian) as u32)
    }

    /// The next event of a tracepoint, `Some(None)` at the end; `None` if one reaches beyond the used bytes.
    pub fn next(&mut self) -> Option<Option<Found>> {
        while self.at < self.end {
            let word = self.word()?;
            let (kind, delta) = match self.layout.endian {
                Endianness::LittleEndian => (word & 31, word >> 5),
                Endianness::BigEndian => (word >> TIME_BITS, word & USED as u32),
            };
            let delta = u64::from(delta);
            let size = match kind {
                PADDING if delta == 0 => {
                    self.at = self.end;
                    return Some(None);
                }
                TIME_EXTEND => {
                    let high = u64::from(self.word()?) << TIME_BITS;
                    self.time_ns = self.time_ns.wrapping_add(high + delta);
                    continue;
                }
                TIME_STAMP => {
                    let high = u64::from(self.word()?) << TIME_BITS;
                    let missing = self.time_ns & STAMP_MISSING;
                    let mut time_ns = missing | (high + delta);
                    // The bits that it has began again at 0.
                    if missing != 0 && time_ns < self.time_ns {
                        time_ns = time_ns.wrapping_add(1 << STAMP_BITS);
                    }
                    self.time_ns = time_ns;
                    continue;
                }
                // The length counts its own word.
                PADDING | 0 => (self.word()?.checked_sub(4)?.checked_add(3)? & !3) as usize,
                words => words as usize * 4,
            };
            self.time_ns = self.time_ns.wrapping_add(delta);
            let found = self.at..self.at.checked_add(size)?;
            if found.end > self.end {
                return None;
            }
            self.at = found.end;
            if kind != PADDING {
                return Some(Some((self.time_ns, found)));
            }
        }
        Some(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:80;\tsigned:1;\n";

    fn page(time: u64, flags: u64, words: &[u32], behind: u64, endian: Endianness) -> Option<Page> {
        let long = |value: u64| match endian {
            Endianness::LittleEndian => value.to_le_bytes(),
            Endianness::BigEndian => value.to_be_bytes(),
        };
        let mut bytes = long(time).to_vec();
        bytes.extend(long((words.len() as u64 * 4) | flags));
        for word in words {
            bytes.extend(match endian {
                Endianness::LittleEndian => word.to_le_bytes(),
                Endianness::BigEndian => word.to_be_bytes(),
            });
        }
        bytes.extend(long(behind));
        bytes.resize(96.max(bytes.len()), 0);
        Page::open(Layout::new(HEADER, 96, endian).unwrap(), bytes)
    }

    fn all(mut page: Page) -> Option<Vec<Found>> {
        let mut found = Vec::new();
        while let Some(next) = page.next()? {
            found.push(next);
        }
        Some(found)
    }

    /// By hand: 7 ns after the page's time an event of two words; a time extension of 2^27 + 3; an event whose length
    /// stands behind its head; a discarded one that takes 4; an absolute time; an event; the rest is padding.
    #[test]
    fn events_are_where_and_when_the_kernel_put_them() {
        let time = 0xf8u64 << 56 | 1_000;
        let little = |kind: u32, delta: u32| delta << 5 | kind;
        let words = [
            little(2, 7),
            1,
            2,
            little(TIME_EXTEND, 3),
            1,
            little(0, 5),
            8,
            9,
            little(PADDING, 4),
            8,
            0,
            little(TIME_STAMP, 11),
            2,
            little(1, 1),
            6,
            little(PADDING, 0),
            77,
        ];
        let read = all(page(time, 0, &words, 0, Endianness::LittleEndian).unwrap()).unwrap();
        let extended = time + 7 + (1 << 27) + 3 + 5;
        let stamped = (0xf8 << 56) + (2 << 27) + 11 + 1;
        assert!(stamped > extended);
        assert_eq!(
            read,
            [(time + 7, 20..28), (extended, 44..48), (stamped, 72..76)]
        );
        let big: Vec<u32> = [1 << 27 | 9, 5].to_vec();
        let read = all(page(50, 0, &big, 0, Endianness::BigEndian).unwrap()).unwrap();
        assert_eq!(read, [(59, 20..24)]);
    }

    #[test]
    fn losses_stand_behind_the_events() {
        let little = Endianness::LittleEndian;
        let lost = |flags, behind| page(0, flags, &[33, 0], behind, little).unwrap().lost;
        assert_eq!(lost(0, 5), 0);
        assert_eq!(lost(LOST, 5), 1);
        assert_eq!(lost(LOST | LOST_COUNTED, 5), 5);
        // Without a loss there is no number.
        assert_eq!(lost(LOST_COUNTED, 5), 0);
    }

    #[test]
    fn a_stamp_goes_on_where_its_bits_begin_again() {
        let stamp = |time: u64| {
            let words = [11 << 5 | TIME_STAMP, 2, 1, 6];
            let page = page(time, 0, &words, 0, Endianness::LittleEndian);
            all(page.unwrap()).unwrap()[0].0
        };
        let low = (2 << 27) + 11;
        assert_eq!(stamp(1 << 59), (1 << 59) + low);
        assert_eq!(stamp((1 << 59) + low + 1), (2 << 59) + low);
        // A time of 59 bits needs no others.
        assert_eq!(stamp(low + 1), low);
    }

    /// In a kernel of 32 bits the word of the used bytes is shorter, and events begin earlier.
    #[test]
    fn a_page_of_32_bits_has_a_short_word() {
        let header = HEADER
            .replace("commit;\toffset:8;\tsize:8", "commit;\toffset:8;\tsize:4")
            .replace("data;\toffset:16", "data;\toffset:12");
        let layout = Layout::new(&header, 96, Endianness::LittleEndian).unwrap();
        let flags = (LOST | LOST_COUNTED) as u32;
        let mut bytes = 50u64.to_le_bytes().to_vec();
        for word in [flags | 8, 9 << 5 | 1, 7, 4, u32::MAX] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.resize(96, 0);
        let page = Page::open(layout, bytes).unwrap();
        assert_eq!(page.lost, 4);
        assert_eq!(all(page).unwrap(), [(59, 16..20)]);
    }

    #[test]
    fn a_page_that_reaches_beyond_its_end_is_damaged() {
        let little = Endianness::LittleEndian;
        assert!(page(0, 4096, &[33], 0, little).is_none());
        assert!(all(page(0, 0, &[34, 0], 0, little).unwrap()).is_none());
        assert!(all(page(0, 0, &[32, 3, 0], 0, little).unwrap()).is_none());
        assert!(all(page(0, 0, &[32, u32::MAX, 0], 0, little).unwrap()).is_none());
        assert!(all(page(0, 0, &[TIME_EXTEND], 0, little).unwrap()).is_none());
    }
}
