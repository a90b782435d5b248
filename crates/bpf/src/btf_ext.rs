//! `.BTF.ext`: lines of the source, and CO-RE relocations.

use std::collections::BTreeMap;

use crate::btf::{Btf, BtfError, TypeId, Words, header, part};

/// A place in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub file: String,
    pub line: u32,
}

/// A CO-RE relocation of an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoreRelo {
    /// Root type in the object's BTF.
    pub type_id: TypeId,
    /// Path from it: `0:1:2`.
    pub access: String,
    /// `enum bpf_core_relo_kind`.
    pub kind: u32,
}

/// Of one section: by the number of the slot in it.
#[derive(Clone, Default, Debug)]
pub struct SectionInfo {
    pub lines: BTreeMap<usize, Line>,
    pub relos: BTreeMap<usize, CoreRelo>,
}

/// All sections by name.
pub type Info = BTreeMap<String, SectionInfo>;

/// Reads a section `.BTF.ext`.
///
/// # Errors
/// If it is none, or ends too early.
pub fn parse(data: &[u8], btf: &Btf) -> Result<Info, BtfError> {
    let (mut words, body) = header(data)?;
    let header_bytes = u32::from_le_bytes([data[4], data[5], data[6], data[7]]);
    let _functions = (words.next()?, words.next()?);
    let lines = (words.next()?, words.next()?);
    // Older ones end here.
    let relos = match header_bytes >= 32 {
        true => (words.next()?, words.next()?),
        false => (0, 0),
    };
    let mut info = Info::new();
    records(part(body, lines.0, lines.1)?, btf, |section, record| {
        let line = Line {
            file: btf.string(record[1])?.to_owned(),
            line: record[3] >> 10,
        };
        let of_section = info.entry(section.to_owned()).or_default();
        of_section.lines.insert(record[0] as usize / 8, line);
        Ok(())
    })?;
    records(part(body, relos.0, relos.1)?, btf, |section, record| {
        let relo = CoreRelo {
            type_id: record[1],
            access: btf.string(record[2])?.to_owned(),
            kind: record[3],
        };
        let of_section = info.entry(section.to_owned()).or_default();
        of_section.relos.insert(record[0] as usize / 8, relo);
        Ok(())
    })?;
    Ok(info)
}

/// Calls `take` with the section's name and the first four words of each record.
fn records(
    data: &[u8],
    btf: &Btf,
    mut take: impl FnMut(&str, [u32; 4]) -> Result<(), BtfError>,
) -> Result<(), BtfError> {
    if data.is_empty() {
        return Ok(());
    }
    let mut words = Words(data);
    let more = (words.next()? / 4).saturating_sub(4);
    while !words.0.is_empty() {
        let (section, count) = (words.next()?, words.next()?);
        let section = btf.string(section)?;
        for _ in 0..count {
            let record = [words.next()?, words.next()?, words.next()?, words.next()?];
            for _ in 0..more {
                words.next()?;
            }
            take(section, record)?;
        }
    }
    Ok(())
}
