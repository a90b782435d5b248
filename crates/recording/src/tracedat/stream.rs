//! The events of one CPU, of which one page is in memory at a time, or one packed piece of pages.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;

use super::head::CpuPages;
use super::input::number;
use super::page::{Found, Layout, Page};
use crate::RecordingError;
use crate::packed::{Packing, unpacked};

/// No piece has more pages; trace-cmd packs 10 together.
const PIECE_PAGES: usize = 16;

/// Returns the bytes of memory that the pages of a CPU take at most.
pub(super) fn memory(layout: Layout, packing: Packing) -> u64 {
    let pages = match packing {
        Packing::None => 1,
        _ => 1 + PIECE_PAGES,
    };
    layout.size as u64 * pages as u64
}

/// The pages of one CPU.
pub(super) struct Stream {
    pub cpu: u32,
    layout: Layout,
    packing: Packing,
    /// The next byte in the file.
    at: u64,
    /// The end in the file.
    end: u64,
    /// Pieces that have not been read yet.
    pieces_left: u32,
    /// An unpacked piece, and how much of it has been read.
    piece: (Vec<u8>, usize),
    page: Option<Page>,
    /// Where the page, or its piece, lies in the file.
    page_at: u64,
}

/// The file that the streams share.
pub(super) struct Source<'a> {
    pub path: &'a str,
    pub file: &'a mut File,
}

impl Source<'_> {
    fn bytes(&mut self, at: u64, size: usize) -> Result<Vec<u8>, RecordingError> {
        let mut bytes = vec![0; size];
        let read = self.file.seek(SeekFrom::Start(at));
        let read = read.and_then(|_| self.file.read_exact(&mut bytes));
        read.map_err(|cause| RecordingError::Unreadable {
            path: self.path.to_owned(),
            cause,
        })?;
        Ok(bytes)
    }

    fn corrupted(&self, cpu: u32, at: u64, message: &str) -> RecordingError {
        RecordingError::Corrupted {
            path: self.path.to_owned(),
            place: format!("CPU {cpu}, offset {at}"),
            message: message.to_owned(),
        }
    }
}

impl Stream {
    /// Begins to read pages that lie within the file.
    pub fn open(
        source: &mut Source<'_>,
        pages: CpuPages,
        layout: Layout,
        packing: Packing,
    ) -> Result<Stream, RecordingError> {
        let mut stream = Stream {
            cpu: pages.cpu,
            layout,
            packing,
            at: pages.at,
            end: pages.at + pages.size,
            pieces_left: 0,
            piece: (Vec::new(), 0),
            page: None,
            page_at: pages.at,
        };
        if packing != Packing::None && pages.size > 0 {
            stream.pieces_left = stream.u32(source)?;
        }
        Ok(stream)
    }

    /// Returns the bytes of an event of the present page.
    pub fn bytes(&self, found: Range<usize>) -> &[u8] {
        self.page.as_ref().map_or(&[], |page| page.bytes(found))
    }

    /// Says that an event of the present page is damaged.
    pub fn corrupted(&self, source: &Source<'_>, message: &str) -> RecordingError {
        let within = self.page.as_ref().map_or(0, Page::at) as u64;
        let at = match self.packing {
            Packing::None => self.page_at + within,
            _ => self.page_at,
        };
        source.corrupted(self.cpu, at, message)
    }

    /// The next event, and how many events are missing before it at least; `None` at the end.
    pub fn next(
        &mut self,
        source: &mut Source<'_>,
    ) -> Result<(Option<Found>, u64), RecordingError> {
        let mut lost = 0u64;
        loop {
            if let Some(page) = &mut self.page {
                match page.next() {
                    Some(Some(found)) => return Ok((Some(found), lost)),
                    Some(None) => {}
                    None => return Err(self.corrupted(source, "an event reaches beyond its page")),
                }
            }
            let Some(bytes) = self.page_bytes(source)? else {
                (self.page, self.piece) = (None, (Vec::new(), 0));
                return Ok((None, lost));
            };
            let page = Page::open(self.layout, bytes);
            let damaged = "a page has more bytes in use than it has bytes";
            let page = page.ok_or_else(|| source.corrupted(self.cpu, self.page_at, damaged))?;
            lost = lost.saturating_add(page.lost);
            self.page = Some(page);
        }
    }

    fn u32(&mut self, source: &mut Source<'_>) -> Result<u32, RecordingError> {
        self.fits(source, 4)?;
        let bytes = source.bytes(self.at, 4)?;
        self.at += 4;
        Ok(number(&bytes, self.layout.endian) as u32)
    }

    fn fits(&self, source: &Source<'_>, size: u64) -> Result<(), RecordingError> {
        match size <= self.end - self.at {
            true => Ok(()),
            false => Err(source.corrupted(self.cpu, self.at, "its pages end before a page does")),
        }
    }

    /// The bytes of the next page; `None` at the end.
    fn page_bytes(&mut self, source: &mut Source<'_>) -> Result<Option<Vec<u8>>, RecordingError> {
        let size = self.layout.size;
        if self.packing == Packing::None {
            if self.at == self.end {
                return Ok(None);
            }
            self.fits(source, size as u64)?;
            self.page_at = self.at;
            self.at += size as u64;
            return source.bytes(self.page_at, size).map(Some);
        }
        while self.piece.1 == self.piece.0.len() {
            if self.pieces_left == 0 {
                return Ok(None);
            }
            self.pieces_left -= 1;
            self.page_at = self.at;
            let (packed, whole) = (self.u32(source)?, self.u32(source)? as usize);
            self.fits(source, u64::from(packed))?;
            let is_sound =
                whole.is_multiple_of(size) && whole.max(packed as usize) <= PIECE_PAGES * size;
            let mut piece = None;
            if is_sound {
                let bytes = source.bytes(self.at, packed as usize)?;
                piece = unpacked(self.packing, &bytes, whole);
            }
            self.at += u64::from(packed);
            let piece = piece.filter(|piece| piece.len() == whole).ok_or_else(|| {
                source.corrupted(self.cpu, self.page_at, "its pages cannot be unpacked")
            })?;
            self.piece = (piece, 0);
        }
        let begin = self.piece.1;
        self.piece.1 += size;
        Ok(Some(self.piece.0[begin..self.piece.1].to_vec()))
    }
}
