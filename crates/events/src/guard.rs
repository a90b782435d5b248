//! The check sum of a file's rows: a damaged file is reported, not decoded.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Check sum and length of what went through.
#[derive(Clone, Default)]
pub(crate) struct Sum(Arc<Mutex<(crc32fast::Hasher, u64)>>);

impl Sum {
    fn add(&self, bytes: &[u8]) {
        let mut sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sum.0.update(bytes);
        sum.1 += bytes.len() as u64;
    }

    /// `LENGTH:SUM`.
    pub(crate) fn told(&self) -> String {
        let sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{}:{:08x}", sum.1, sum.0.clone().finalize())
    }
}

/// Sums up what is written.
pub(crate) struct Summing<W> {
    inner: W,
    sum: Sum,
}

impl<W> Summing<W> {
    pub(crate) fn new(inner: W) -> (Self, Sum) {
        let sum = Sum::default();
        let copy = sum.clone();
        (Summing { inner, sum }, copy)
    }

    pub(crate) fn into_inner(self) -> W {
        self.inner
    }
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The check sum of what stands in the footer.
pub(crate) fn of_text(text: &str) -> String {
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}

/// Whether the first bytes of `file` are those that `told` is of.
///
/// # Errors
/// They cannot be read.
pub(crate) fn agrees(file: impl Read, told: &str) -> io::Result<bool> {
    let Some(length) = told.split(':').next().and_then(|n| n.parse().ok()) else {
        return Ok(false);
    };
    let sum = Sum::default();
    let mut rest = file.take(length);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match rest.read(&mut buffer)? {
            0 => return Ok(sum.told() == told),
            n => sum.add(&buffer[..n]),
        }
    }
}
