//! Reads an object that clang has compiled for BPF: functions, maps, variables, structures of ops. Nothing is resolved yet.

use std::collections::{BTreeMap, BTreeSet};

use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget,
    SectionIndex, SectionKind, SymbolKind,
};

use crate::btf::{Btf, Kind, TypeId};
use crate::btf_ext::{self, Info, Line, SectionInfo};
use crate::insn::{Insn, pseudo};

/// Types of relocations (llvm/docs/CodeGenerator.rst, "eBPF Relocation").
mod reloc {
    pub const LD64: u32 = 1;
    pub const ABS64: u32 = 2;
    pub const CALL32: u32 = 10;
}

/// Why an object cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ElfError(pub String);

/// The target of an instruction's reference, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Link {
    Map(String),
    /// A place in a section of variables.
    Data {
        section: String,
        offset: u64,
    },
    /// A function of the object: its index.
    Function(usize),
    /// A symbol that a kernel may have.
    Extern(String),
    /// A helper by its number.
    Helper(i32),
    /// A loader has found nothing: what it looked for.
    Missing(String),
}

/// A function of the object.
#[derive(Clone, Debug)]
pub struct ObjectFunction {
    pub name: String,
    /// Section: `struct_ops/…`, `.text`.
    pub section: String,
    /// Slot in the section where it begins.
    pub start: usize,
    pub insns: Vec<Insn>,
    pub links: BTreeMap<usize, Link>,
}

/// A section of global variables.
#[derive(Clone, Debug)]
pub struct DataSection {
    pub name: String,
    /// Its bytes; zeroes of `.bss`.
    pub bytes: Vec<u8>,
    /// Pointers in it, by their place.
    pub pointers: BTreeMap<u64, Link>,
    /// `sh_addralign`.
    pub alignment: u64,
}

/// A symbol that other objects may refer to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    pub name: String,
    /// Another definition may replace it.
    pub is_weak: bool,
    pub place: Link,
    pub bytes: u64,
}

/// The symbols that the object wants of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extern {
    pub name: String,
    pub is_weak: bool,
    /// `.kconfig` or `.ksyms`; empty if its BTF says nothing.
    pub section: String,
    /// Type of a variable; 0 of a function.
    pub type_id: TypeId,
    pub is_function: bool,
}

/// A definition of a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapVar {
    pub name: String,
    /// The structure with its attributes.
    pub type_id: TypeId,
    /// Maps in it from the beginning, by the place of their pointers in the variable.
    pub slots: BTreeMap<u64, String>,
}

/// A table of ops: a variable of `.struct_ops` or `.struct_ops.link`.
#[derive(Clone, Debug)]
pub struct StructOps {
    pub name: String,
    pub type_id: TypeId,
    pub bytes: Vec<u8>,
    /// The functions in it, by offset.
    pub functions: BTreeMap<u64, usize>,
}

/// An object.
#[derive(Clone, Debug)]
pub struct Elf {
    pub btf: Btf,
    pub info: Info,
    pub license: String,
    pub functions: Vec<ObjectFunction>,
    pub data: Vec<DataSection>,
    pub maps: Vec<MapVar>,
    pub externs: Vec<Extern>,
    pub ops: Vec<StructOps>,
    pub exports: Vec<Export>,
    /// Functions whose questions about a kernel's types have been answered, and are known no more: what they read is known
    /// by its place alone.
    pub strangers: BTreeSet<usize>,
}

fn error(text: impl Into<String>) -> ElfError {
    ElfError(text.into())
}

impl From<object::Error> for ElfError {
    fn from(problem: object::Error) -> Self {
        ElfError(format!("it is no ELF object: {problem}"))
    }
}

impl From<crate::btf::BtfError> for ElfError {
    fn from(problem: crate::btf::BtfError) -> Self {
        ElfError(problem.to_string())
    }
}

fn is_data(name: &str) -> bool {
    let kinds = [".data", ".rodata", ".bss", ".addr_space.1"];
    let has = |kind: &&str| name == *kind || name.starts_with(&format!("{kind}."));
    kinds.iter().any(has)
}

/// Offsets and bytes by section and name.
type Variables = BTreeMap<(String, String), (u32, u32)>;

/// Where variables lie, and how large they are, by section and name; those of one name in one section are left out.
fn variables(file: &object::File<'_>) -> Result<Variables, ElfError> {
    let mut found = Variables::new();
    let mut twice = Vec::new();
    for symbol in file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Data)
    {
        if let Some(index) = symbol.section_index() {
            let section = file.section_by_index(index)?.name()?.to_owned();
            let key = (section, symbol.name()?.to_owned());
            let place = (symbol.address() as u32, symbol.size() as u32);
            if found.insert(key.clone(), place).is_some() {
                twice.push(key);
            }
        }
    }
    for key in twice {
        found.remove(&key);
    }
    Ok(found)
}

impl Elf {
    /// Reads an object.
    ///
    /// # Errors
    /// If it is none for BPF, has no BTF, or refers to what cannot be.
    pub fn read(data: &[u8]) -> Result<Elf, ElfError> {
        let file = object::File::parse(data)?;
        if file.architecture() != object::Architecture::Bpf || !file.is_little_endian() {
            return Err(error("it is not compiled for BPF: use clang --target=bpf"));
        }
        let bytes = |name: &str| file.section_by_name(name).and_then(|it| it.data().ok());
        let btf = bytes(".BTF").ok_or_else(|| error("it has no BTF: compile it with -g"))?;
        let mut btf = Btf::parse(btf)?;
        let places = variables(&file)?;
        btf.place_variables(|section, name| {
            places.get(&(section.to_owned(), name.to_owned())).copied()
        });
        let info = match bytes(".BTF.ext") {
            Some(data) => btf_ext::parse(data, &btf)?,
            None => Info::new(),
        };
        let license = bytes("license").unwrap_or_default();
        let license = license.split(|&byte| byte == 0).next().unwrap_or_default();
        let mut elf = Elf {
            license: String::from_utf8_lossy(license).into_owned(),
            functions: Vec::new(),
            data: Vec::new(),
            maps: Vec::new(),
            externs: Vec::new(),
            ops: Vec::new(),
            exports: Vec::new(),
            strangers: BTreeSet::new(),
            info,
            btf,
        };
        let functions = elf.read_functions(&file)?;
        elf.read_externs(&file);
        elf.read_maps();
        let reader = Reader {
            file: &file,
            functions: &functions,
        };
        for section in file.sections() {
            let name = section.name()?.to_owned();
            if section.kind() == SectionKind::Text {
                elf.read_links(&reader, &section)?;
            } else if is_data(&name) {
                let mut bytes = section.data()?.to_vec();
                bytes.resize(section.size() as usize, 0);
                let pointers = reader.pointers(&section, &bytes)?;
                elf.data.push(DataSection {
                    name,
                    bytes,
                    pointers,
                    alignment: section.align(),
                });
            } else if matches!(name.as_str(), ".struct_ops" | ".struct_ops.link") {
                elf.read_ops(&reader, &name, &section)?;
            } else if name == ".maps" {
                elf.read_slots(&reader, &section)?;
            }
        }
        elf.data.sort_by(|a, b| a.name.cmp(&b.name));
        elf.read_exports(&reader)?;
        Ok(elf)
    }

    /// The pages of its arena (`BPF_MAP_TYPE_ARENA`); 0 without one.
    pub fn arena_pages(&self) -> u64 {
        const ARENA: u32 = 33;
        let number = |map: &MapVar, name: &str| {
            let mut members = self.btf.members(map.type_id).iter();
            let target = members.find(|member| member.name == name)?.type_id;
            let Kind::Ptr(target) = self.btf.get(self.btf.plain(target)).kind else {
                return None;
            };
            match self.btf.get(self.btf.plain(target)).kind {
                Kind::Array { count, .. } => Some(count),
                _ => None,
            }
        };
        let mut arenas = self
            .maps
            .iter()
            .filter(|map| number(map, "type") == Some(ARENA));
        let pages = arenas.find_map(|map| number(map, "max_entries"));
        pages.unwrap_or(0).into()
    }

    /// Whether it wants a symbol of this name of a kernel or another object.
    pub fn wants(&self, name: &str) -> bool {
        self.externs.iter().any(|it| it.name == name)
    }

    fn read_exports(&mut self, reader: &Reader<'_, '_>) -> Result<(), ElfError> {
        for symbol in reader.file.symbols() {
            let Some(index) = symbol.section_index().filter(|_| symbol.is_global()) else {
                continue;
            };
            let section = reader.file.section_by_index(index)?;
            let (name, of) = (symbol.name()?.to_owned(), section.name()?);
            let place = if symbol.kind() == SymbolKind::Text {
                reader.function(index, symbol.address() as i64 / Insn::BYTES as i64)?
            } else if of == ".maps" {
                Link::Map(name.clone())
            } else if is_data(of) {
                Link::Data {
                    section: of.to_owned(),
                    offset: symbol.address(),
                }
            } else {
                continue;
            };
            self.exports.push(Export {
                name,
                is_weak: symbol.is_weak(),
                place,
                bytes: symbol.size(),
            });
        }
        Ok(())
    }

    fn read_functions(&mut self, file: &object::File<'_>) -> Result<Places, ElfError> {
        let mut places = Places::new();
        for symbol in file.symbols() {
            let Some(index) = symbol
                .section_index()
                .filter(|_| symbol.kind() == SymbolKind::Text)
            else {
                continue;
            };
            let section = file.section_by_index(index)?;
            let code = section.data()?;
            let (start, size) = (symbol.address() as usize, symbol.size() as usize);
            let code = code
                .get(start..start + size)
                .ok_or_else(|| error("a function lies outside of its section"))?;
            if size % Insn::BYTES != 0 || start % Insn::BYTES != 0 {
                return Err(error("a function is no whole number of instructions"));
            }
            places.insert((index.0, start / Insn::BYTES), self.functions.len());
            self.functions.push(ObjectFunction {
                name: symbol.name()?.to_owned(),
                section: section.name()?.to_owned(),
                start: start / Insn::BYTES,
                insns: Insn::decode_all(code),
                links: BTreeMap::new(),
            });
        }
        Ok(places)
    }

    fn read_externs(&mut self, file: &object::File<'_>) {
        let mut sections = BTreeMap::new();
        for name in [".kconfig", ".ksyms"] {
            for var in self.btf.section(name) {
                sections.insert(self.btf.get(var.var).name.clone(), (name, var.var));
            }
        }
        for symbol in file.symbols() {
            let name = symbol.name().unwrap_or_default();
            if !symbol.is_undefined() || name.is_empty() {
                continue;
            }
            let (section, id) = sections.get(name).copied().unwrap_or(("", 0));
            let is_function = matches!(self.btf.get(id).kind, Kind::Func(_));
            self.externs.push(Extern {
                name: name.to_owned(),
                is_weak: symbol.is_weak(),
                section: section.to_owned(),
                type_id: self.btf.type_of_var(id),
                is_function,
            });
        }
    }

    fn read_maps(&mut self) {
        let vars = self.btf.section(".maps").iter();
        // A map that another object defines is declared there, too.
        let vars = vars.filter(|var| !self.wants(&self.btf.get(var.var).name));
        let maps = vars.map(|var| MapVar {
            name: self.btf.get(var.var).name.clone(),
            type_id: self.btf.type_of_var(var.var),
            slots: BTreeMap::new(),
        });
        self.maps = maps.collect();
    }

    /// Reads which maps lie in maps: `.values = { &map }`.
    fn read_slots(
        &mut self,
        reader: &Reader<'_, '_>,
        section: &object::Section<'_, '_>,
    ) -> Result<(), ElfError> {
        for (at, link) in reader.pointers(section, section.data()?)? {
            let Link::Map(inner) = link else {
                continue;
            };
            let vars = self.btf.section(".maps").iter();
            let around = vars.map(|var| (u64::from(var.offset), u64::from(var.size), var.var));
            let mut around = around.filter(|(start, size, _)| (*start..start + size).contains(&at));
            let Some((start, _, var)) = around.next() else {
                continue;
            };
            let name = &self.btf.get(var).name;
            if let Some(map) = self.maps.iter_mut().find(|map| map.name == *name) {
                map.slots.insert(at - start, inner);
            }
        }
        Ok(())
    }

    fn read_ops(
        &mut self,
        reader: &Reader<'_, '_>,
        name: &str,
        section: &object::Section<'_, '_>,
    ) -> Result<(), ElfError> {
        let data = section.data()?;
        let pointers = reader.pointers(section, data)?;
        for var in self.btf.section(name) {
            let (start, size) = (u64::from(var.offset), var.size as usize);
            let start_at = start as usize;
            let bytes = data.get(start_at..start_at + size);
            let bytes = bytes.ok_or_else(|| error("a table of ops lies outside of its section"))?;
            let inside = pointers.range(start..start + size as u64);
            let functions = inside.filter_map(|(at, link)| match link {
                Link::Function(index) => Some((at - start, *index)),
                _ => None,
            });
            self.ops.push(StructOps {
                name: self.btf.get(var.var).name.clone(),
                type_id: self.btf.type_of_var(var.var),
                bytes: bytes.to_vec(),
                functions: functions.collect(),
            });
        }
        Ok(())
    }

    /// Reads the references of a section's instructions.
    fn read_links(
        &mut self,
        reader: &Reader<'_, '_>,
        section: &object::Section<'_, '_>,
    ) -> Result<(), ElfError> {
        let index = section.index();
        let mut relocations = BTreeMap::new();
        for (at, relocation) in section.relocations() {
            relocations.insert(at as usize / Insn::BYTES, relocation);
        }
        let of_section: Vec<usize> = reader
            .functions
            .iter()
            .filter(|((of, _), _)| *of == index.0)
            .map(|(_, it)| *it)
            .collect();
        for of in of_section {
            let function = &self.functions[of];
            let mut links = BTreeMap::new();
            for (slot, insn) in function.insns.iter().enumerate() {
                let at = function.start + slot;
                let relocation = relocations.get(&at);
                let link = match relocation {
                    Some(relocation) => Some(reader.link(relocation, *insn)?),
                    None if insn.is_call() && insn.src == 0 => Some(Link::Helper(insn.imm)),
                    None if insn.is_call() && insn.src == pseudo::CALL => {
                        let to = at as i64 + 1 + i64::from(insn.imm);
                        Some(reader.function(index, to)?)
                    }
                    None => None,
                };
                links.extend(link.map(|link| (slot, link)));
            }
            self.functions[of].links = links;
        }
        Ok(())
    }

    /// The line of an instruction of a function.
    pub fn line(&self, function: usize, slot: usize) -> Option<&Line> {
        let function = self.functions.get(function)?;
        let lines = &self.info.get(&function.section)?.lines;
        let (_, line) = lines
            .range(function.start..=function.start + slot)
            .next_back()?;
        Some(line)
    }

    /// Reads the records of `.BTF.ext` for a function's section.
    pub fn section_info(&self, function: usize) -> Option<&SectionInfo> {
        self.info.get(&self.functions.get(function)?.section)
    }
}

/// Functions by section and slot.
type Places = BTreeMap<(usize, usize), usize>;

struct Reader<'f, 'd> {
    file: &'f object::File<'d>,
    functions: &'f Places,
}

impl Reader<'_, '_> {
    /// The function that begins at a slot of a section.
    fn function(&self, section: SectionIndex, slot: i64) -> Result<Link, ElfError> {
        let slot = usize::try_from(slot).map_err(|_| error("a call leads before its section"))?;
        let found = self.functions.get(&(section.0, slot));
        let found = found.ok_or_else(|| error("a call leads to where no function begins"))?;
        Ok(Link::Function(*found))
    }

    fn link(&self, relocation: &object::Relocation, insn: Insn) -> Result<Link, ElfError> {
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            return Err(error("a relocation is none of ELF"));
        };
        let kind = r_type.0;
        self.target(relocation, kind, insn.imm.into())
    }

    fn target(
        &self,
        relocation: &object::Relocation,
        kind: u32,
        addend: i64,
    ) -> Result<Link, ElfError> {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            return Err(error("a relocation has no symbol"));
        };
        let symbol = self.file.symbol_by_index(index)?;
        let name = symbol.name()?;
        let Some(section_index) = symbol.section_index() else {
            return Ok(Link::Extern(name.to_owned()));
        };
        let section = self.file.section_by_index(section_index)?;
        let section_name = section.name()?;
        if section.kind() == SectionKind::Text {
            let value = symbol.address() as i64 / Insn::BYTES as i64;
            let slot = match kind {
                reloc::CALL32 => value + addend + 1,
                _ => value + addend / Insn::BYTES as i64,
            };
            return self.function(section_index, slot);
        }
        if section_name == ".maps" {
            return Ok(Link::Map(self.map_at(&symbol, name, addend)?));
        }
        match is_data(section_name) || section_name == "license" {
            true => Ok(Link::Data {
                section: section_name.to_owned(),
                offset: (symbol.address() as i64 + addend) as u64,
            }),
            false => Err(error(format!("it refers to the section {section_name}"))),
        }
    }

    fn map_at(
        &self,
        symbol: &object::Symbol<'_, '_>,
        name: &str,
        addend: i64,
    ) -> Result<String, ElfError> {
        if !name.is_empty() && symbol.kind() != SymbolKind::Section {
            return Ok(name.to_owned());
        }
        let at = symbol.address() as i64 + addend;
        let mut symbols = self.file.symbols();
        let of_map = symbols.find(|other| {
            other.section_index() == symbol.section_index()
                && other.kind() != SymbolKind::Section
                && other.address() as i64 == at
        });
        let name = of_map.and_then(|map| map.name().ok());
        name.map(str::to_owned)
            .ok_or_else(|| error("it refers to a map that is not there"))
    }

    /// Reads the references of a section's pointers.
    fn pointers(
        &self,
        section: &object::Section<'_, '_>,
        bytes: &[u8],
    ) -> Result<BTreeMap<u64, Link>, ElfError> {
        let mut pointers = BTreeMap::new();
        for (at, relocation) in section.relocations() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                continue;
            };
            if r_type.0 != reloc::ABS64 && r_type.0 != reloc::LD64 {
                continue;
            }
            let stored = bytes.get(at as usize..at as usize + 8);
            let stored = stored.and_then(|bytes| bytes.try_into().ok());
            let addend = stored.map_or(0, i64::from_le_bytes);
            pointers.insert(at, self.target(&relocation, reloc::LD64, addend)?);
        }
        Ok(pointers)
    }
}
