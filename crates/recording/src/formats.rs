//! The layout of tracepoints, as the kernel describes it (`events/*/*/format`).

use linux_perf_event_reader::Endianness;

/// Where a field lies in the raw bytes of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    offset: usize,
    size: usize,
    signed: bool,
}

/// Layout of one tracepoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Format {
    fields: Vec<(String, Field)>,
    /// Whether `prev_state` has the numbers of kernels before 4.14.
    pub has_old_states: bool,
}

/// The raw bytes of one event.
#[derive(Clone, Copy)]
pub(crate) struct Raw<'a> {
    pub bytes: &'a [u8],
    pub endian: Endianness,
}

impl Format {
    /// From the lines after `format:`.
    pub fn parse(text: &str) -> Format {
        let fields = text.lines().filter_map(|line| {
            let rest = line.trim().strip_prefix("field:")?;
            let mut parts = rest.split(';').map(str::trim);
            let declared = parts.next()?;
            let name = declared.rsplit([' ', '*']).next()?;
            let name = name.split('[').next()?;
            let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
            let (offset, size) = (number("offset:")?, number("size:")?);
            let signed = number("signed:").unwrap_or(0) != 0;
            Some((
                name.to_owned(),
                Field {
                    offset,
                    size,
                    signed,
                },
            ))
        });
        Format {
            fields: fields.collect(),
            has_old_states: false,
        }
    }

    /// Returns offset and size of a field in bytes.
    pub fn place(&self, name: &str) -> Option<(usize, usize)> {
        let field = self.field(name)?;
        Some((field.offset, field.size))
    }

    fn field(&self, name: &str) -> Option<Field> {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, field)| *field)
    }

    fn bytes<'a>(&self, raw: Raw<'a>, name: &str) -> Option<(&'a [u8], bool)> {
        let field = self.field(name)?;
        let end = field.offset.checked_add(field.size)?;
        Some((raw.bytes.get(field.offset..end)?, field.signed))
    }

    /// A field's number.
    pub fn number(&self, raw: Raw<'_>, name: &str) -> Option<i64> {
        let (bytes, signed) = self.bytes(raw, name)?;
        number(bytes, signed, raw.endian)
    }

    /// An element of a field that is an array of 8 bytes each.
    pub fn element(&self, raw: Raw<'_>, name: &str, index: usize) -> Option<u64> {
        let (bytes, _) = self.bytes(raw, name)?;
        let begin = index.checked_mul(8)?;
        let bytes = bytes.get(begin..begin.checked_add(8)?)?;
        number(bytes, true, raw.endian).map(i64::cast_unsigned)
    }

    /// A field's text: an array of characters, or one that lies behind the event (`__data_loc`).
    pub fn text<'a>(&self, raw: Raw<'a>, name: &str) -> Option<&'a [u8]> {
        let (bytes, _) = self.bytes(raw, name)?;
        if bytes.len() != 4 {
            return Some(bytes);
        }
        let place = number(bytes, false, raw.endian)?;
        let (offset, size) = ((place & 0xffff) as usize, (place >> 16) as usize);
        raw.bytes.get(offset..offset.checked_add(size)?)
    }
}

fn number(bytes: &[u8], signed: bool, endian: Endianness) -> Option<i64> {
    let mut wide = 0u64;
    let mut push = |byte: &u8| wide = wide << 8 | u64::from(*byte);
    match (bytes.len(), endian) {
        (1 | 2 | 4 | 8, Endianness::LittleEndian) => bytes.iter().rev().for_each(&mut push),
        (1 | 2 | 4 | 8, Endianness::BigEndian) => bytes.iter().for_each(&mut push),
        _ => return None,
    }
    let unused = 64 - 8 * bytes.len() as u32;
    Some(match signed {
        true => (wide << unused).cast_signed() >> unused,
        false => wide.cast_signed(),
    })
}

/// Name, number and layout from the text of one `format` file; `None` for other text.
pub(crate) fn described(text: &str) -> Option<(&str, u16, Format)> {
    let (_, text) = text.split_once("name: ")?;
    let (name, rest) = text.split_once('\n')?;
    let (id, rest) = rest.strip_prefix("ID: ")?.split_once('\n')?;
    let (_, fields) = rest.split_once("format:")?;
    let (fields, print) = fields.split_once("print fmt").unwrap_or((fields, ""));
    let mut format = Format::parse(fields);
    // Since 4.14 a dead task is 0x10 or 0x20, and 0x40 is a parked one.
    format.has_old_states = print.contains("{ 64, \"x\" }");
    Some((name, id.trim().parse().ok()?, format))
}

/// The formats in a `tracing_data` section: the kernel's descriptions stand in it as they are, between lengths.
pub(crate) fn in_section(section: &[u8]) -> Vec<(String, Format)> {
    let text = String::from_utf8_lossy(section);
    let begins: Vec<usize> = text.match_indices("name: ").map(|(at, _)| at).collect();
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    let blocks = begins.iter().zip(ends).filter_map(|(begin, end)| {
        let (name, _, format) = described(&text[*begin..end])?;
        Some((name.to_owned(), format))
    });
    blocks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: sched_waking\nID: 375\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:__data_loc char[] tail;\toffset:24;\tsize:4;\tsigned:0;\n\nprint fmt: \"comm=%s\"\n";

    #[test]
    fn fields_are_where_the_kernel_says() {
        let formats = in_section(TEXT.as_bytes());
        let (name, format) = &formats[0];
        assert_eq!(name, "sched_waking");
        let mut bytes = vec![0; 28];
        bytes[4..8].copy_from_slice(&(-7i32).to_le_bytes());
        bytes[8..11].copy_from_slice(b"abc");
        bytes[24..28].copy_from_slice(&(3u32 << 16 | 8).to_le_bytes());
        let raw = Raw {
            bytes: &bytes,
            endian: Endianness::LittleEndian,
        };
        assert_eq!(format.number(raw, "common_pid"), Some(-7));
        assert_eq!(format.text(raw, "comm").unwrap()[..3], *b"abc");
        assert_eq!(format.text(raw, "tail").unwrap(), b"abc");
        assert_eq!(format.number(raw, "pid"), None);
        let short = Raw {
            bytes: &bytes[..6],
            ..raw
        };
        assert_eq!(format.number(short, "common_pid"), None);
        let big = Raw {
            endian: Endianness::BigEndian,
            ..raw
        };
        assert_eq!(
            format.number(big, "common_pid"),
            Some(i64::from(i32::from_be_bytes((-7i32).to_le_bytes())))
        );
    }
}
