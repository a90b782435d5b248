//! The head of version 7: sections anywhere in the file, which options name.

use std::fs::File;
use std::io::{BufReader, Cursor, Seek as _, SeekFrom};

use linux_perf_event_reader::Endianness;

use super::head::{CpuPages, Head};
use super::input::{Input, SIZE_MAX, number};
use crate::RecordingError;
use crate::packed::{Packing, unpacked};

/// The flag of a packed section.
const IS_PACKED: u16 = 1;
/// No file has more sections of options: they could name each other in a circle.
const SECTIONS_MAX: u32 = 1_024;
/// All sections of options are not larger together, in bytes: they have some KB for each CPU.
const OPTIONS_MAX: u64 = 16 << 20;
/// No file has more sections with formats of events; trace-cmd writes one.
const FORMATS_MAX: u32 = 4;
/// Kinds of sections.
const OPTIONS: u16 = 0;
const HEADER_INFO: u16 = 16;
const EVENT_FORMATS: u16 = 18;
/// Kinds of options beside those.
const BUFFER: u16 = 3;
const BUFFER_TEXT: u16 = 22;

/// A section, unpacked.
type Section = Input<Cursor<Vec<u8>>>;

/// The file with its sections.
struct Sections<'a> {
    path: &'a str,
    file: &'a mut File,
    len: u64,
    endian: Endianness,
    packing: Packing,
    /// Bytes that further sections of options may have.
    options_left: u64,
    /// Sections with formats of events so far.
    formats: u32,
}

/// Reads the sections. `input` stands behind the page size, and the file is `len` bytes long.
pub(super) fn read(
    path: &str,
    head: &mut Head,
    mut input: Input<BufReader<&mut File>>,
    len: u64,
) -> Result<(), RecordingError> {
    let name = input.text("the name of the packing")?;
    input.text("the version of the packing")?;
    head.packing = match name.as_str() {
        "none" => Packing::None,
        "zlib" => Packing::Zlib,
        "zstd" => Packing::Zstd,
        _ => {
            return Err(RecordingError::Foreign {
                path: path.to_owned(),
                what: format!("a trace.dat packed by `{name}`; zlib and zstd are known"),
            });
        }
    };
    let mut next = input.u64("the place of the options")?;
    let endian = input.endian;
    let mut sections = Sections {
        path,
        file: input.into_inner().into_inner(),
        len,
        endian,
        packing: head.packing,
        options_left: OPTIONS_MAX,
        formats: 0,
    };
    for _ in 0..SECTIONS_MAX {
        let mut options = sections.at(next, OPTIONS)?;
        next = loop {
            let id = options.u16("an option")?;
            let size = options.u32("the size of an option")?;
            let data = options.bytes(u64::from(size), "an option")?;
            let place = || data.get(..8).map(|data| number(data, endian));
            let place =
                || place().ok_or_else(|| options.corrupted("an option of less than 8 bytes"));
            let is_repeated = match id {
                HEADER_INFO => !head.header_page.is_empty(),
                EVENT_FORMATS => sections.formats == FORMATS_MAX,
                _ => false,
            };
            if is_repeated {
                return Err(options.corrupted(format!("one more section {id}")));
            }
            match id {
                0 => break place()?,
                BUFFER => buffer(path, head, data, endian)?,
                BUFFER_TEXT => head.has_text = true,
                HEADER_INFO => head.header_info(&mut sections.at(place()?, id)?)?,
                EVENT_FORMATS => {
                    sections.formats += 1;
                    head.event_formats(&mut sections.at(place()?, id)?)?;
                }
                _ => head.option(id, &data, endian),
            }
        };
        if next == 0 {
            return Ok(());
        }
    }
    Err(RecordingError::Corrupted {
        path: path.to_owned(),
        place: format!("offset {next}"),
        message: format!("more than {SECTIONS_MAX} sections of options"),
    })
}

impl Sections<'_> {
    /// The section of this kind that begins there.
    fn at(&mut self, at: u64, kind: u16) -> Result<Section, RecordingError> {
        let name = format!("the section at offset {at}");
        let unreadable = |cause| RecordingError::Unreadable {
            path: self.path.to_owned(),
            cause,
        };
        let seek = self.file.seek(SeekFrom::Start(at));
        seek.map_err(unreadable)?;
        let left = self.len.saturating_sub(at);
        let from = BufReader::new(&mut *self.file);
        let mut input = Input::new(self.path, &name, from, left, self.endian);
        let id = input.u16("its number")?;
        if id != kind {
            return Err(input.corrupted(format!("section {kind} should stand here, not {id}")));
        }
        let flags = input.u16("its flags")?;
        input.skip(4, "its name")?;
        let mut size = input.u64("its size")?;
        let mut packed = None;
        if flags & IS_PACKED != 0 {
            packed = Some(input.u32("its packed size")?);
            size = u64::from(input.u32("its unpacked size")?);
        }
        let size_max = match kind {
            OPTIONS => self.options_left,
            _ => SIZE_MAX,
        };
        if size > size_max {
            return Err(input.corrupted(format!("{size} bytes, of at most {size_max}")));
        }
        if kind == OPTIONS {
            self.options_left -= size;
        }
        let data = match packed {
            None => input.bytes(size, "its data")?,
            Some(packed) => {
                let data = input.bytes(u64::from(packed), "its packed data")?;
                unpacked(self.packing, &data, size as usize)
                    .ok_or_else(|| input.corrupted("it cannot be unpacked"))?
            }
        };
        let (len, name) = (data.len() as u64, format!("{name}, unpacked"));
        Ok(Input::new(
            self.path,
            &name,
            Cursor::new(data),
            len,
            self.endian,
        ))
    }
}

/// A ring buffer's option. Of several the first counts that has any pages.
fn buffer(
    path: &str,
    head: &mut Head,
    data: Vec<u8>,
    endian: Endianness,
) -> Result<(), RecordingError> {
    let len = data.len() as u64;
    let mut input = Input::new(
        path,
        "the option of a buffer",
        Cursor::new(data),
        len,
        endian,
    );
    input.skip(8, "the place of its section")?;
    let name = input.text("its name")?;
    let clock = input.text("its clock")?;
    let page_size = input.u32("the size of its pages")?;
    let mut cpus = Vec::new();
    for _ in 0..Head::cpus(&mut input)? {
        cpus.push(CpuPages {
            cpu: input.u32("the number of a CPU")?,
            at: input.u64("the place of a CPU's pages")?,
            size: input.u64("the size of a CPU's pages")?,
        });
    }
    if cpus.iter().all(|cpu| cpu.size == 0) {
        return Ok(());
    }
    if head.cpus.is_empty() {
        (head.cpus, head.page_size, head.clock) = (cpus, page_size, clock);
    } else {
        head.instance = Some(name);
    }
    Ok(())
}
