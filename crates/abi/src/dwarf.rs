//! Reads the debug information of a compiled policy: its global variables with their types.
//!
//! Only the tree of entries of each compilation unit is read; line numbers come from `addr2line`.

use std::collections::BTreeMap;

use gimli::{AttributeValue, DwTag, EndianSlice, LittleEndian, Operation, constants};
use object::{Object as _, ObjectSection as _};

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// A type or variable or member, as far as we need it.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub tag: u16,
    pub parent: Option<usize>,
    pub children: Vec<usize>,
    pub name: Option<String>,
    /// Key of the entry's type in [`Types`].
    pub type_at: Option<usize>,
    pub byte_size: Option<u64>,
    /// `DW_AT_encoding` of a base type.
    pub encoding: Option<u8>,
    /// Value of an enumerator.
    pub value: Option<i128>,
    /// Elements of an array's dimension.
    pub count: Option<u64>,
    /// Address of a variable or of a function's code.
    pub address: Option<u64>,
    /// Offset of a member.
    pub offset: Option<u64>,
    pub file: Option<u64>,
    pub line: Option<u64>,
    /// A declaration that this entry completes.
    pub specification: Option<usize>,
    /// The entry of which this one is an instance.
    pub origin: Option<usize>,
}

/// Every entry of an object, keyed by its offset in `.debug_info`.
#[derive(Debug, Default)]
pub struct Types {
    entries: BTreeMap<usize, Entry>,
    /// Paths by (unit, file number).
    files: BTreeMap<(usize, u64), String>,
}

/// A global variable.
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: String,
    pub address: u64,
    pub type_at: usize,
    /// Path of the file it is defined in, as the compiler was given it.
    pub file: String,
    pub line: u32,
}

/// A function that has code.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub address: u64,
    /// Path of the file it is defined in, as the compiler was given it.
    pub file: String,
    pub line: u32,
    pub signature: Signature,
}

/// The parameters and the result of a function, as keys of types.
#[derive(Clone, Debug)]
pub struct Signature {
    /// `None` for `void`.
    pub returns: Option<usize>,
    pub parameters: Vec<usize>,
    /// It takes any others, too.
    pub variadic: bool,
}

/// A type without typedefs and qualifiers.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    Bool,
    Integer { bytes: u8, signed: bool },
    Enum(usize),
    Struct(usize),
    Pointer(Option<usize>),
    Array(usize),
    Other,
}

impl Types {
    /// Reads the debug information of an ELF object.
    pub fn read(elf: &[u8]) -> Result<Types, gimli::Error> {
        let file = object::File::parse(elf).map_err(|_| gimli::Error::Io)?;
        let section = |id: gimli::SectionId| -> Result<Reader<'_>, gimli::Error> {
            let data = file
                .section_by_name(id.name())
                .and_then(|section| section.data().ok())
                .unwrap_or_default();
            Ok(EndianSlice::new(data, LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(section)?;
        let mut types = Types::default();
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            let unit = dwarf.unit(header)?;
            types.read_unit(&dwarf, &unit)?;
        }
        Ok(types)
    }

    fn read_unit(
        &mut self,
        dwarf: &gimli::Dwarf<Reader<'_>>,
        unit: &gimli::Unit<Reader<'_>>,
    ) -> Result<(), gimli::Error> {
        let base = unit.header.offset().0;
        if let Some(program) = &unit.line_program {
            let header = program.header();
            for index in 0..=header.file_names().len() as u64 {
                if let Some(file) = header.file(index) {
                    let mut path = String::new();
                    if file.directory_index() != 0
                        && let Some(directory) = file.directory(header)
                    {
                        let directory = dwarf.attr_string(unit, directory)?;
                        path = format!("{}/", directory.to_string_lossy());
                    }
                    path += &dwarf.attr_string(unit, file.path_name())?.to_string_lossy();
                    self.files.insert((base, index), path);
                }
            }
        }
        let mut stack: Vec<usize> = Vec::new();
        let mut cursor = unit.entries();
        while let Some(die) = cursor.next_dfs()? {
            let at = base + die.offset().0;
            let depth = usize::try_from(die.depth()).unwrap_or(0);
            stack.truncate(depth);
            let mut entry = Entry {
                tag: die.tag().0,
                parent: stack.last().copied(),
                ..Entry::default()
            };
            for attr in die.attrs() {
                read_attribute(&mut entry, dwarf, unit, base, attr.name(), attr.value())?;
            }
            // The file numbers of a unit are its own.
            if let Some(parent) = entry.parent
                && let Some(parent) = self.entries.get_mut(&parent)
            {
                parent.children.push(at);
            }
            stack.push(at);
            self.entries.insert(at, entry);
        }
        Ok(())
    }

    /// The entry at `at`.
    pub fn entry(&self, at: usize) -> &Entry {
        &self.entries[&at]
    }

    /// The global variables that have an address, by (file, line, name).
    pub fn variables(&self) -> Vec<Variable> {
        let mut variables = Vec::new();
        for (&at, entry) in &self.entries {
            if entry.tag != constants::DW_TAG_variable.0 {
                continue;
            }
            let Some(address) = entry.address else {
                continue;
            };
            // Variables inside of functions do not matter here.
            let unit = entry.parent.map(|parent| (parent, self.entry(parent).tag));
            let Some((_, tag)) = unit else { continue };
            if tag != constants::DW_TAG_compile_unit.0 {
                continue;
            }
            let declared = entry.specification.map(|at| self.entry(at));
            let find =
                |pick: fn(&Entry) -> Option<u64>| pick(entry).or_else(|| declared.and_then(pick));
            let name = entry
                .name
                .clone()
                .or_else(|| declared.and_then(|entry| entry.name.clone()));
            let type_at = entry
                .type_at
                .or_else(|| declared.and_then(|entry| entry.type_at));
            if let (Some(name), Some(type_at)) = (name, type_at) {
                let file = find(|entry| entry.file).and_then(|file| self.file(at, file));
                variables.push(Variable {
                    name,
                    address,
                    type_at,
                    file: file.unwrap_or_default(),
                    line: find(|entry| entry.line).unwrap_or(0) as u32,
                });
            }
        }
        variables.sort_by(|a, b| (&a.file, a.line, &a.name).cmp(&(&b.file, b.line, &b.name)));
        variables
    }

    /// The declarations of a variable that is defined elsewhere: type and `file:line`.
    pub fn declarations(&self, name: &str) -> Vec<(usize, String)> {
        let all = self.entries.iter();
        let of_name = all.filter(|(_, entry)| {
            entry.tag == constants::DW_TAG_variable.0
                && entry.address.is_none()
                && entry.name.as_deref() == Some(name)
        });
        of_name
            .filter_map(|(&at, entry)| {
                let file = entry.file.and_then(|file| self.file(at, file));
                let line = entry.line.unwrap_or(0);
                Some((
                    entry.type_at?,
                    format!("{}:{line}", file.unwrap_or_default()),
                ))
            })
            .collect()
    }

    /// The path of a file by the number that it has for an entry.
    fn file(&self, at: usize, number: u64) -> Option<String> {
        // A unit's line table is keyed by the unit's own offset: the highest not above.
        let (&(unit, _), _) = self.files.range(..=(at, u64::MAX)).next_back()?;
        self.files.get(&(unit, number)).cloned()
    }

    /// The functions that have code.
    pub fn functions(&self) -> Vec<Function> {
        let all = self.entries.iter();
        let with_code = all.filter(|(_, entry)| {
            entry.tag == constants::DW_TAG_subprogram.0 && entry.address.is_some()
        });
        with_code
            .filter_map(|(&at, entry)| {
                // Of one that is inlined elsewhere, too, the code's entry refers to the source's.
                let at = entry.origin.or(entry.specification).unwrap_or(at);
                let source = self.entries.get(&at)?;
                let file = source.file.and_then(|file| self.file(at, file));
                Some(Function {
                    name: source.name.clone()?,
                    address: entry.address?,
                    file: file.unwrap_or_default(),
                    line: source.line.unwrap_or(0) as u32,
                    signature: self.signature(at),
                })
            })
            .collect()
    }

    /// Returns the parameters and the result of a function, or of a type of functions.
    pub fn signature(&self, at: usize) -> Signature {
        let entry = self.entry(at);
        let children = || entry.children.iter().map(|&child| self.entry(child));
        Signature {
            returns: entry.type_at.filter(|&at| self.bare(at).is_some()),
            parameters: children()
                .filter(|child| child.tag == constants::DW_TAG_formal_parameter.0)
                .filter_map(|child| child.type_at)
                .collect(),
            variadic: children()
                .any(|child| child.tag == constants::DW_TAG_unspecified_parameters.0),
        }
    }

    /// Returns the targets of a structure's members that point to functions: offset, name, signature.
    pub fn ops(&self, structure: usize) -> Vec<(u64, &str, Signature)> {
        let members = self.members(structure).into_iter();
        members
            .filter_map(|(name, offset, type_at)| match self.shape(type_at) {
                Shape::Pointer(Some(target))
                    if self.entry(target).tag == constants::DW_TAG_subroutine_type.0 =>
                {
                    Some((offset, name, self.signature(target)))
                }
                _ => None,
            })
            .collect()
    }

    /// Whether it is a type of functions.
    pub fn is_function(&self, at: usize) -> bool {
        self.entry(at).tag == constants::DW_TAG_subroutine_type.0
    }

    /// A type as C writes it.
    pub fn type_name(&self, type_at: Option<usize>) -> String {
        let Some(at) = type_at else {
            return "void".to_owned();
        };
        let entry = self.entry(at);
        let name = || entry.name.clone().unwrap_or_else(|| "…".to_owned());
        match DwTag(entry.tag) {
            constants::DW_TAG_pointer_type => {
                let target = self.type_name(entry.type_at);
                let blank = if target.ends_with('*') { "" } else { " " };
                format!("{target}{blank}*")
            }
            constants::DW_TAG_const_type => format!("const {}", self.type_name(entry.type_at)),
            constants::DW_TAG_volatile_type => {
                format!("volatile {}", self.type_name(entry.type_at))
            }
            constants::DW_TAG_structure_type => format!("struct {}", name()),
            constants::DW_TAG_union_type => format!("union {}", name()),
            constants::DW_TAG_enumeration_type => format!("enum {}", name()),
            constants::DW_TAG_base_type if name() == "_Bool" => "bool".to_owned(),
            _ => name(),
        }
    }

    /// A signature as C writes it, of a function of that name.
    pub fn signature_name(&self, name: &str, signature: &Signature) -> String {
        let parameters = signature.parameters.iter();
        let mut parameters: Vec<String> = parameters
            .map(|&parameter| self.type_name(Some(parameter)))
            .collect();
        if parameters.is_empty() {
            parameters.push("void".to_owned());
        }
        let returns = self.type_name(signature.returns);
        format!("{returns} {name}({})", parameters.join(", "))
    }

    /// Whether the type is `const volatile` at its top.
    pub fn is_const_volatile(&self, type_at: usize) -> bool {
        let (mut at, mut constant, mut volatile) = (Some(type_at), false, false);
        while let Some(here) = at {
            let entry = self.entry(here);
            match DwTag(entry.tag) {
                constants::DW_TAG_const_type => constant = true,
                constants::DW_TAG_volatile_type => volatile = true,
                constants::DW_TAG_typedef => {}
                _ => break,
            }
            at = entry.type_at;
        }
        constant && volatile
    }

    /// The type behind typedefs and qualifiers; `None` for `void`.
    pub fn bare(&self, type_at: usize) -> Option<usize> {
        let mut at = type_at;
        loop {
            let entry = self.entry(at);
            match DwTag(entry.tag) {
                constants::DW_TAG_const_type
                | constants::DW_TAG_volatile_type
                | constants::DW_TAG_typedef
                | constants::DW_TAG_restrict_type
                | constants::DW_TAG_atomic_type => at = entry.type_at?,
                _ => return Some(at),
            }
        }
    }

    /// Returns a type without typedefs and qualifiers.
    pub fn shape(&self, type_at: usize) -> Shape {
        let Some(at) = self.bare(type_at) else {
            return Shape::Other;
        };
        let entry = self.entry(at);
        match DwTag(entry.tag) {
            constants::DW_TAG_base_type => {
                let bytes = entry.byte_size.unwrap_or(0) as u8;
                match gimli::DwAte(entry.encoding.unwrap_or(0)) {
                    constants::DW_ATE_boolean => Shape::Bool,
                    constants::DW_ATE_signed | constants::DW_ATE_signed_char => Shape::Integer {
                        bytes,
                        signed: true,
                    },
                    constants::DW_ATE_unsigned | constants::DW_ATE_unsigned_char => {
                        Shape::Integer {
                            bytes,
                            signed: false,
                        }
                    }
                    _ => Shape::Other,
                }
            }
            constants::DW_TAG_enumeration_type => Shape::Enum(at),
            constants::DW_TAG_structure_type | constants::DW_TAG_union_type => Shape::Struct(at),
            constants::DW_TAG_pointer_type => {
                Shape::Pointer(entry.type_at.and_then(|at| self.bare(at)))
            }
            constants::DW_TAG_array_type => Shape::Array(at),
            _ => Shape::Other,
        }
    }

    /// Size of a type in bytes; 0 if it has none.
    pub fn size(&self, type_at: usize) -> u64 {
        let Some(at) = self.bare(type_at) else {
            return 0;
        };
        let entry = self.entry(at);
        if let Some(size) = entry.byte_size {
            return size;
        }
        match DwTag(entry.tag) {
            constants::DW_TAG_pointer_type => 8,
            constants::DW_TAG_array_type => {
                self.elements(at) * entry.type_at.map_or(0, |at| self.size(at))
            }
            _ => 0,
        }
    }

    /// Elements of an array in all its dimensions.
    pub fn elements(&self, array: usize) -> u64 {
        let dimensions = self.entry(array).children.iter();
        dimensions
            .map(|&child| self.entry(child).count.unwrap_or(0))
            .product()
    }

    /// The members of a structure: name, offset, type.
    pub fn members(&self, structure: usize) -> Vec<(&str, u64, usize)> {
        let children = self.entry(structure).children.iter();
        children
            .map(|&child| self.entry(child))
            .filter(|entry| entry.tag == constants::DW_TAG_member.0)
            .filter_map(|entry| {
                Some((
                    entry.name.as_deref()?,
                    entry.offset.unwrap_or(0),
                    entry.type_at?,
                ))
            })
            .collect()
    }

    /// Names that `typedef` makes.
    pub fn typedefs(&self) -> Vec<(&str, usize)> {
        let entries = self.entries.iter();
        let named = entries.filter_map(|(&at, entry)| {
            let is_one = entry.tag == constants::DW_TAG_typedef.0 && entry.type_at.is_some();
            Some((entry.name.as_deref()?, at)).filter(|_| is_one)
        });
        named.collect()
    }

    /// Structures and enumerations that have a name and are defined.
    pub fn defined(&self) -> Vec<usize> {
        let is_type = |entry: &Entry| {
            matches!(
                DwTag(entry.tag),
                constants::DW_TAG_structure_type | constants::DW_TAG_enumeration_type
            )
        };
        let entries = self.entries.iter();
        let defined = entries.filter(|(_, entry)| {
            is_type(entry) && entry.name.is_some() && entry.byte_size.is_some()
        });
        defined.map(|(&at, _)| at).collect()
    }

    /// The type of that name: a structure, or what a typedef means.
    pub fn named(&self, name: &str) -> Option<usize> {
        let is_type = |entry: &Entry| {
            matches!(
                DwTag(entry.tag),
                constants::DW_TAG_structure_type | constants::DW_TAG_typedef
            )
        };
        let mut entries = self.entries.iter();
        let (&at, _) = entries.find(|(_, entry)| {
            is_type(entry) && entry.name.as_deref() == Some(name) && self.is_complete(entry)
        })?;
        Some(at)
    }

    fn is_complete(&self, entry: &Entry) -> bool {
        entry.byte_size.is_some() || entry.type_at.is_some()
    }

    /// The field that lies at an offset of a type, as C writes it: `lab.node.next`, `allowed[2]`.
    pub fn field_at(&self, type_at: usize, offset: u64) -> String {
        match self.shape(type_at) {
            Shape::Struct(at) => {
                let members = self.members(at);
                let holds = |&&(_, begin, member): &&(&str, u64, usize)| {
                    (begin..begin + self.size(member)).contains(&offset)
                };
                let Some(&(name, begin, member)) = members.iter().find(holds) else {
                    return String::new();
                };
                let inner = self.field_at(member, offset - begin);
                match inner.is_empty() || inner.starts_with('[') {
                    true => format!("{name}{inner}"),
                    false => format!("{name}.{inner}"),
                }
            }
            Shape::Array(at) => {
                let Some(element) = self.entry(at).type_at else {
                    return String::new();
                };
                let size = self.size(element).max(1);
                let inner = self.field_at(element, offset % size);
                let dot = match inner.is_empty() || inner.starts_with('[') {
                    true => "",
                    false => ".",
                };
                format!("[{}]{dot}{inner}", offset / size)
            }
            _ => String::new(),
        }
    }

    /// The enumerators of an enumeration: name, value.
    pub fn enumerators(&self, enumeration: usize) -> Vec<(&str, i128)> {
        let children = self.entry(enumeration).children.iter();
        children
            .map(|&child| self.entry(child))
            .filter_map(|entry| Some((entry.name.as_deref()?, entry.value?)))
            .collect()
    }

    /// Returns the type for which a name stands by `typedef`.
    pub fn typedef(&self, name: &str) -> Option<usize> {
        let found = self.entries.iter().find(|(_, entry)| {
            entry.tag == constants::DW_TAG_typedef.0 && entry.name.as_deref() == Some(name)
        });
        found.map(|(&at, _)| at)
    }

    #[cfg(test)]
    /// The structure of that tag (`struct name`) that is defined, not only declared.
    pub fn structure(&self, name: &str) -> Option<usize> {
        let found = self.entries.iter().find(|(_, entry)| {
            entry.tag == constants::DW_TAG_structure_type.0
                && entry.byte_size.is_some()
                && entry.name.as_deref() == Some(name)
        });
        found.map(|(&at, _)| at)
    }

    #[cfg(test)]
    /// Every enumerator of the object.
    pub fn all_enumerators(&self) -> BTreeMap<&str, i128> {
        let all = self.entries.values();
        all.filter_map(|entry| Some((entry.name.as_deref()?, entry.value?)))
            .collect()
    }
}

fn read_attribute(
    entry: &mut Entry,
    dwarf: &gimli::Dwarf<Reader<'_>>,
    unit: &gimli::Unit<Reader<'_>>,
    base: usize,
    name: gimli::DwAt,
    value: AttributeValue<Reader<'_>>,
) -> Result<(), gimli::Error> {
    let reference = |value: &AttributeValue<Reader<'_>>| match *value {
        AttributeValue::UnitRef(offset) => Some(base + offset.0),
        AttributeValue::DebugInfoRef(offset) => Some(offset.0),
        _ => None,
    };
    match name {
        constants::DW_AT_name => {
            let text = dwarf.attr_string(unit, value)?;
            entry.name = Some(text.to_string_lossy().into_owned());
        }
        constants::DW_AT_type => entry.type_at = reference(&value),
        constants::DW_AT_specification => entry.specification = reference(&value),
        constants::DW_AT_abstract_origin => entry.origin = reference(&value),
        constants::DW_AT_low_pc => {
            entry.address = match value {
                AttributeValue::Addr(address) => Some(address),
                AttributeValue::DebugAddrIndex(index) => Some(dwarf.address(unit, index)?),
                _ => None,
            };
        }
        constants::DW_AT_byte_size => entry.byte_size = value.udata_value(),
        constants::DW_AT_encoding => entry.encoding = encoding(&value),
        constants::DW_AT_const_value => entry.value = constant(&value),
        constants::DW_AT_upper_bound => {
            entry.count = value.udata_value().map(|last| last.wrapping_add(1));
        }
        constants::DW_AT_count => entry.count = value.udata_value(),
        constants::DW_AT_data_member_location => entry.offset = value.udata_value(),
        constants::DW_AT_decl_file => {
            entry.file = match value {
                AttributeValue::FileIndex(index) => Some(index),
                other => other.udata_value(),
            };
        }
        constants::DW_AT_decl_line => entry.line = value.udata_value(),
        constants::DW_AT_location => {
            if let AttributeValue::Exprloc(expression) = value {
                let mut operations = expression.operations(unit.encoding());
                entry.address = match operations.next()? {
                    Some(Operation::Address { address }) => Some(address),
                    Some(Operation::AddressIndex { index }) => Some(dwarf.address(unit, index)?),
                    _ => None,
                };
            }
        }
        _ => {}
    }
    Ok(())
}

fn encoding(value: &AttributeValue<Reader<'_>>) -> Option<u8> {
    match value {
        AttributeValue::Encoding(encoding) => Some(encoding.0),
        other => other.udata_value().map(|value| value as u8),
    }
}

fn constant(value: &AttributeValue<Reader<'_>>) -> Option<i128> {
    match *value {
        AttributeValue::Sdata(value) => Some(value.into()),
        AttributeValue::Udata(value) => Some(value.into()),
        // The size says nothing of the sign; enumerators of ours below 2^31 fit either way.
        AttributeValue::Data1(value) => Some(value.into()),
        AttributeValue::Data2(value) => Some(value.into()),
        AttributeValue::Data4(value) => Some(value.into()),
        AttributeValue::Data8(value) => Some(value.into()),
        _ => None,
    }
}
