//! The packets of a trace: field 1 of the file, again and again. Some hold further packets, packed.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};

use super::fields::{Value, fields, first_number, placed};
use crate::RecordingError;
use crate::packed::{Packing, unpacked};

/// A packet begins so: field 1, bytes.
pub(super) const BEGIN: u8 = 0x0a;
/// Field of a packet that holds events.
pub(super) const FTRACE_EVENTS: u32 = 1;
/// Fields of a packet that holds packed packets.
const PACKED: u32 = 50;
const PACKED_ZSTD: u32 = 133;
/// No packet that matters is larger, in bytes, packed or not; Perfetto's are of a few KB.
const SIZE_MAX: u64 = 16 << 20;
/// So many unpacked packets are kept: those that CPUs share lie close to each other.
const KEPT: usize = 8;

/// Where a packet is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    /// Its begin in the file, or the begin of the packet that it is in.
    pub at: u64,
    /// Its begin in what that one holds.
    within: Option<u32>,
}

/// Takes a packet, and says what is wrong with it.
type Each<'a> = dyn FnMut(Place, &[u8]) -> Result<(), &'static str> + 'a;

/// The packets of a file.
pub(super) struct Packets<'a> {
    path: &'a str,
    from: BufReader<&'a mut File>,
    at: u64,
    /// Bytes of the file.
    pub len: u64,
    /// Unpacked packets by their place in the file, the latest first.
    kept: Vec<(u64, Vec<u8>)>,
}

impl<'a> Packets<'a> {
    pub fn new(path: &'a str, file: &'a mut File) -> Result<Packets<'a>, RecordingError> {
        let unreadable = |cause| RecordingError::Unreadable {
            path: path.to_owned(),
            cause,
        };
        let len = file.metadata().map_err(unreadable)?.len();
        Ok(Packets {
            path,
            from: BufReader::new(file),
            at: 0,
            len,
            kept: Vec::new(),
        })
    }

    fn unreadable(&self, cause: std::io::Error) -> RecordingError {
        RecordingError::Unreadable {
            path: self.path.to_owned(),
            cause,
        }
    }

    /// Says that the packet there is damaged.
    pub fn corrupted(&self, at: u64, message: &str) -> RecordingError {
        RecordingError::Corrupted {
            path: self.path.to_owned(),
            place: format!("the packet at offset {at}"),
            message: message.to_owned(),
        }
    }

    fn truncated(&self, at: u64) -> RecordingError {
        RecordingError::Truncated {
            path: self.path.to_owned(),
            message: format!(
                "the packet at offset {at} ends beyond the file's {} bytes",
                self.len
            ),
        }
    }

    /// Reads the next packet of the file itself, an empty one for a large one that does not matter; `None` at the end.
    fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>, RecordingError> {
        let at = self.at;
        let buffer = self.from.fill_buf();
        let first = match buffer.map(|bytes| bytes.first().copied()) {
            Ok(first) => first,
            Err(cause) => return Err(self.unreadable(cause)),
        };
        match first {
            None => return Ok(None),
            Some(BEGIN) => self.from.consume(1),
            Some(_) => return Err(self.corrupted(at, "no packet begins there")),
        }
        self.at += 1;
        let mut size = 0u64;
        for shift in (0..35).step_by(7) {
            let mut byte = [0];
            if self.at == self.len {
                return Err(self.truncated(at));
            }
            let read = self.from.read_exact(&mut byte);
            read.map_err(|cause| self.unreadable(cause))?;
            self.at += 1;
            size |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return self.body(at, size).map(|bytes| Some((at, bytes)));
            }
        }
        Err(self.corrupted(at, "its size has no end"))
    }

    fn body(&mut self, at: u64, size: u64) -> Result<Vec<u8>, RecordingError> {
        if size > self.len - self.at {
            return Err(self.truncated(at));
        }
        let mut bytes = Vec::new();
        let read = if size > SIZE_MAX {
            if self.has_events() {
                return Err(self.corrupted(at, &format!("a packet of {size} bytes")));
            }
            self.from.seek(SeekFrom::Start(self.at + size)).map(|_| ())
        } else {
            bytes.resize(size as usize, 0);
            self.from.read_exact(&mut bytes)
        };
        read.map_err(|cause| self.unreadable(cause))?;
        self.at += size;
        Ok(bytes)
    }

    /// Whether the body of a packet stands next that begins with events or holds packets.
    fn has_events(&mut self) -> bool {
        let begin = self.from.fill_buf().unwrap_or_default();
        first_field(begin) == Some(FTRACE_EVENTS) || holds_packets(begin)
    }

    /// Hands all packets on, and packets within packets too.
    pub fn all(&mut self, each: &mut Each<'_>) -> Result<(), RecordingError> {
        while let Some((at, bytes)) = self.next()? {
            let corrupted = |message: &str| self.corrupted(at, message);
            match self.unpack(at, &bytes)? {
                None => each(Place { at, within: None }, &bytes).map_err(corrupted)?,
                Some(inner) => {
                    for field in placed(&inner) {
                        let (begin, number, value) = field.ok_or_else(|| corrupted(FIELDS))?;
                        if let (1, Value::Bytes(bytes)) = (number, value) {
                            let within = Some(begin as u32);
                            each(Place { at, within }, bytes).map_err(corrupted)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns what a packet holds if it holds packets.
    fn unpack(&self, at: u64, bytes: &[u8]) -> Result<Option<Vec<u8>>, RecordingError> {
        let packed = fields(bytes).find_map(|field| match field {
            Some((PACKED, Value::Bytes(packed))) => Some((Packing::Zlib, packed)),
            Some((PACKED_ZSTD, Value::Bytes(packed))) => Some((Packing::Zstd, packed)),
            _ => None,
        });
        let Some((packing, packed)) = packed else {
            return Ok(None);
        };
        match unpacked(packing, packed, SIZE_MAX as usize) {
            Some(all) => Ok(Some(all)),
            None => Err(self.corrupted(at, "it cannot be unpacked")),
        }
    }

    /// Reads a packet again.
    pub fn at(&mut self, place: Place) -> Result<Vec<u8>, RecordingError> {
        let kept = self.kept.iter().position(|(at, _)| *at == place.at);
        let slot = match (kept, place.within) {
            (Some(slot), _) => slot,
            (None, within) => {
                let seek = self.from.seek(SeekFrom::Start(place.at));
                seek.map_err(|cause| self.unreadable(cause))?;
                self.at = place.at;
                let next = self.next()?;
                let (_, bytes) = next.ok_or_else(|| self.truncated(place.at))?;
                if within.is_none() {
                    return Ok(bytes);
                }
                let inner = self.unpack(place.at, &bytes)?.unwrap_or_default();
                self.kept.truncate(KEPT - 1);
                self.kept.insert(0, (place.at, inner));
                0
            }
        };
        let within = place.within.unwrap_or(0) as usize;
        let inner = self.kept[slot].1.get(within..);
        let packet = match inner.and_then(|inner| fields(inner).next()) {
            Some(Some((1, Value::Bytes(bytes)))) => bytes.to_vec(),
            _ => return Err(self.corrupted(place.at, "it has changed meanwhile")),
        };
        Ok(packet)
    }
}

/// Whether a packet that begins so holds packed packets.
pub(super) fn holds_packets(begin: &[u8]) -> bool {
    [Some(PACKED), Some(PACKED_ZSTD)].contains(&first_field(begin))
}

/// The number of the first field of a message that begins so.
fn first_field(begin: &[u8]) -> Option<u32> {
    let tag = first_number(Value::Bytes(begin))??;
    u32::try_from(tag >> 3).ok()
}

/// The message for a packet whose fields do not fit.
pub(super) const FIELDS: &str = "its fields do not fit into it";
