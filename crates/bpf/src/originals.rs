//! The objects that a loader has its programs from: they lie in its own file as they are, or it opens them. What libbpf has answered
//! itself they ask by name (CO-RE), so a field is known by its name again.

use std::collections::BTreeMap;

use crate::btf::Btf;
use crate::btf_ext::CoreRelo;
use crate::core_relo::{self, Answer};
use crate::elf::{Elf, ObjectFunction};
use crate::insn::{Insn, class};

/// `EM_BPF`.
const BPF: u16 = 247;

/// The objects for BPF in a file, which may be one itself.
pub fn find(file: &[u8]) -> Vec<&[u8]> {
    const MAGIC: &[u8] = b"\x7fELF\x02\x01\x01";
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(next) = file[from..].windows(MAGIC.len()).position(|it| it == MAGIC) {
        let at = from + next;
        let object = &file[at..];
        from = at + MAGIC.len();
        if half(object, 18) == Some(BPF)
            && let Some(bytes) = extent(object)
        {
            found.push(&object[..bytes]);
            from = at + bytes;
        }
    }
    found
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn wide(bytes: &[u8], at: usize) -> Option<usize> {
    let value = u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
    usize::try_from(value).ok()
}

/// Bytes of an object, by its table of sections (`Elf64_Ehdr`, `Elf64_Shdr`).
fn extent(object: &[u8]) -> Option<usize> {
    const NOBITS: u32 = 8;
    let (table, size, count) = (wide(object, 40)?, half(object, 58)?, half(object, 60)?);
    let mut end = table.checked_add(usize::from(size) * usize::from(count))?;
    for index in 0..usize::from(count) {
        let section = object.get(table + index * usize::from(size)..)?;
        let kind = u32::from_le_bytes(*section.get(4..)?.first_chunk()?);
        if kind != NOBITS {
            end = end.max(wide(section, 24)?.checked_add(wide(section, 32)?)?);
        }
    }
    (end <= object.len()).then_some(end)
}

/// Functions by their names, of all objects of a loader.
#[derive(Default)]
pub struct Originals {
    objects: Vec<Elf>,
    by_name: BTreeMap<String, Vec<(usize, usize)>>,
}

impl Originals {
    /// Reads objects; what cannot be read is left out.
    pub fn read(objects: &[Vec<u8>]) -> Originals {
        let mut originals = Originals::default();
        for bytes in objects {
            let Ok(elf) = Elf::read(bytes) else {
                continue;
            };
            let number = originals.objects.len();
            for (index, function) in elf.functions.iter().enumerate() {
                let of_name = originals.by_name.entry(function.name.clone()).or_default();
                of_name.push((number, index));
            }
            originals.objects.push(elf);
        }
        originals
    }

    /// The original of a function that was loaded; `None`: it is not known, or several ask for different things.
    /// `types` are the kernel's whose answers the instructions have.
    pub fn of(&self, name: &str, insns: &[Insn], types: &Btf) -> Option<Original<'_>> {
        let of_name = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let mut found = of_name.iter().filter_map(|&(object, index)| {
            let elf = &self.objects[object];
            let function = &elf.functions[index];
            let relos = relos(elf, index);
            let is_it = is_same(function, &relos, insns)
                && relos.iter().all(|(slot, relo)| {
                    let insn = insns[*slot];
                    insn.is_call() || has_answer(insn, &elf.btf, types, relo)
                });
            is_it.then(|| (asked(elf, &relos), Original { function, relos }))
        });
        let (asks, original) = found.next()?;
        found.all(|(other, _)| other == asks).then_some(original)
    }
}

/// A function as the compiler left it.
pub struct Original<'o> {
    pub function: &'o ObjectFunction,
    /// Its questions, by slot.
    pub relos: BTreeMap<usize, &'o CoreRelo>,
}

fn relos(elf: &Elf, index: usize) -> BTreeMap<usize, &CoreRelo> {
    let function = &elf.functions[index];
    let end = function.start + function.insns.len();
    let info = elf.section_info(index);
    let relos = info.map(|info| info.relos.range(function.start..end));
    let relos = relos.into_iter().flatten();
    relos
        .map(|(at, relo)| (at - function.start, relo))
        .collect()
}

/// Whether an instruction has the place of the field that a question is about; true of other questions.
fn has_answer(insn: Insn, local: &Btf, types: &Btf, relo: &CoreRelo) -> bool {
    if core_relo::place(local, relo).is_none() {
        return true;
    }
    let found = match insn.class() {
        class::LDX | class::ST | class::STX => u64::from(insn.off as u16),
        _ => u64::from(insn.imm as u32),
    };
    match core_relo::answer(local, types, relo) {
        Ok(Answer::Offset { offset, .. }) => found == offset,
        _ => false,
    }
}

/// The kind of a question, its type, and the structure and path of its field.
type Asked = (u32, String, Option<(String, String)>);

/// Returns the questions of a function by slot: kind, type and field. Numbers of types differ between objects.
fn asked(elf: &Elf, relos: &BTreeMap<usize, &CoreRelo>) -> BTreeMap<usize, Asked> {
    let asks = relos.iter().map(|(slot, relo)| {
        let name = elf.btf.get(relo.type_id).name.clone();
        (*slot, (relo.kind, name, core_relo::place(&elf.btf, relo)))
    });
    asks.collect()
}

/// Whether a function is the original of loaded instructions: they are the same but for what a loader puts into them.
fn is_same(function: &ObjectFunction, relos: &BTreeMap<usize, &CoreRelo>, insns: &[Insn]) -> bool {
    let is_changed = |slot: &usize| {
        let linked = |slot: usize| function.links.contains_key(&slot) || relos.contains_key(&slot);
        linked(*slot)
            || slot
                .checked_sub(1)
                .is_some_and(|before| linked(before) && function.insns[before].is_wide())
    };
    let mut slots = (0..insns.len()).filter(|slot| !is_changed(slot));
    function.insns.len() == insns.len() && slots.all(|slot| function.insns[slot] == insns[slot])
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn an_object_is_found_within_a_file() {
        let object = include_bytes!("../../../tests/objects/state.bpf.o");
        let mut file = b"\x7fELF\x02\x01\x01 and so on".to_vec();
        file.extend_from_slice(object);
        file.extend_from_slice(b"behind");
        file.extend_from_slice(object);
        // One that is cut is none.
        file.extend_from_slice(&object[..object.len() - 1]);
        let found = find(&file);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|found| *found == object));
        assert_eq!(find(object), [object]);
    }
}
