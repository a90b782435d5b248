//! Numbers and texts of a trace.dat, one after another, with the place of what is missing.

use std::io::Read;

use linux_perf_event_reader::Endianness;

use crate::RecordingError;

/// No text before its zero byte is longer, in bytes.
const TEXT_MAX: usize = 4096;

/// No other thing is larger, in bytes: the formats of all events take 2 MB together.
pub(super) const SIZE_MAX: u64 = 256 << 20;

/// A part of the file, or an unpacked section.
pub(super) struct Input<R> {
    from: R,
    path: String,
    /// The part, in words.
    name: String,
    /// How many bytes of it have been read.
    at: u64,
    /// How many bytes it has.
    len: u64,
    pub endian: Endianness,
}

impl<R: Read> Input<R> {
    pub fn new(path: &str, name: &str, from: R, len: u64, endian: Endianness) -> Self {
        Input {
            from,
            path: path.to_owned(),
            name: name.to_owned(),
            at: 0,
            len,
            endian,
        }
    }

    /// Says that the part contradicts its format where it has been read to.
    pub fn corrupted(&self, message: impl Into<String>) -> RecordingError {
        RecordingError::Corrupted {
            path: self.path.clone(),
            place: format!("{}, offset {}", self.name, self.at),
            message: message.into(),
        }
    }

    /// Gives the reader back.
    pub fn into_inner(self) -> R {
        self.from
    }

    fn fits(&self, size: u64, what: &str) -> Result<(), RecordingError> {
        if size <= self.len - self.at {
            return Ok(());
        }
        Err(RecordingError::Truncated {
            path: self.path.clone(),
            message: format!(
                "{what} at offset {} of {} should have {size} bytes, and {} are left",
                self.at,
                self.name,
                self.len - self.at
            ),
        })
    }

    fn unreadable(&self, cause: std::io::Error) -> RecordingError {
        RecordingError::Unreadable {
            path: self.path.clone(),
            cause,
        }
    }

    /// Reads so many bytes.
    pub fn bytes(&mut self, size: u64, what: &str) -> Result<Vec<u8>, RecordingError> {
        self.fits(size, what)?;
        if size > SIZE_MAX {
            return Err(self.corrupted(format!("{what} of {size} bytes")));
        }
        let mut bytes = vec![0; size as usize];
        let read = self.from.read_exact(&mut bytes);
        read.map_err(|cause| self.unreadable(cause))?;
        self.at += size;
        Ok(bytes)
    }

    /// Passes over so many bytes.
    pub fn skip(&mut self, size: u64, what: &str) -> Result<(), RecordingError> {
        self.fits(size, what)?;
        let skipped = std::io::copy(&mut (&mut self.from).take(size), &mut std::io::sink());
        skipped.map_err(|cause| self.unreadable(cause))?;
        self.at += size;
        Ok(())
    }

    fn number(&mut self, size: u64, what: &str) -> Result<u64, RecordingError> {
        let bytes = self.bytes(size, what)?;
        Ok(number(&bytes, self.endian))
    }

    pub fn u16(&mut self, what: &str) -> Result<u16, RecordingError> {
        Ok(self.number(2, what)? as u16)
    }

    pub fn u32(&mut self, what: &str) -> Result<u32, RecordingError> {
        Ok(self.number(4, what)? as u32)
    }

    pub fn u64(&mut self, what: &str) -> Result<u64, RecordingError> {
        self.number(8, what)
    }

    /// Reads a text up to its zero byte; what cannot be printed becomes `?`.
    pub fn text(&mut self, what: &str) -> Result<String, RecordingError> {
        let mut text = Vec::new();
        loop {
            match self.bytes(1, what)?[0] {
                0 => return Ok(printable(&text)),
                byte if text.len() < TEXT_MAX => text.push(byte),
                _ => return Err(self.corrupted(format!("{what} has no end"))),
            }
        }
    }

    /// Reads a text that has to stand here.
    pub fn expect(&mut self, text: &[u8]) -> Result<(), RecordingError> {
        let name = String::from_utf8_lossy(text.trim_ascii_end()).replace('\0', "");
        match self.bytes(text.len() as u64, &name)? == text {
            true => Ok(()),
            false => {
                self.at -= text.len() as u64;
                Err(self.corrupted(format!("`{name}` should stand here")))
            }
        }
    }
}

/// Text for a line; what cannot be printed becomes `?`.
pub(super) fn printable(bytes: &[u8]) -> String {
    let chars = bytes.iter().map(|byte| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '?',
    });
    chars.collect()
}

/// An unsigned number of at most 8 bytes.
pub(super) fn number(bytes: &[u8], endian: Endianness) -> u64 {
    let push = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    match endian {
        Endianness::LittleEndian => bytes.iter().rev().fold(0, push),
        Endianness::BigEndian => bytes.iter().fold(0, push),
    }
}
