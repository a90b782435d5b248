//! Global variables of a BPF object, found and set by name through its BTF.
//!
//! A policy's knobs are its `const volatile` globals (`.rodata`), as is the custom for sched_ext
//! schedulers. Their values are written as for the simulator ([`schedlab_trace::options`]).

use std::ffi::OsStr;

use libbpf_rs::btf::types::{
    Array, Composite, DataSec, Enum, Enum64, Int, IntEncoding, MemberAttr, Var,
};
use libbpf_rs::btf::{Btf, BtfKind, BtfType};
use schedlab_trace::options::{self, OptionKind};

/// Where a variable is and what it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name in C.
    pub name: String,
    /// Bytes from the start of its section.
    pub offset: usize,
    /// Bytes it takes.
    pub size: usize,
    /// Its type.
    pub kind: Kind,
}

/// The type of a variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One whose values a user can write.
    Option(OptionKind),
    /// A struct, by its tag.
    Struct(String),
    /// Anything else.
    Other,
}

/// Returns the variables of a section, in the order of their offsets.
pub fn of_section(btf: &Btf<'_>, section: &str) -> Vec<Variable> {
    let Some(datasec) = btf.type_by_name::<DataSec<'_>>(section) else {
        return Vec::new();
    };
    let mut found: Vec<Variable> = datasec
        .iter()
        .filter_map(|info| {
            let var: Var<'_> = btf.type_by_id(info.ty)?;
            let ty = var.next_type()?.skip_mods_and_typedefs();
            Some(Variable {
                name: var.name()?.to_string_lossy().into_owned(),
                offset: info.offset as usize,
                size: info.size,
                kind: kind_of(ty, info.size),
            })
        })
        .collect();
    found.sort_by_key(|v| v.offset);
    found
}

fn kind_of(ty: BtfType<'_>, size: usize) -> Kind {
    let bits = u32::try_from(size * 8).unwrap_or(u32::MAX).min(64);
    let integer = |min, max| Kind::Option(OptionKind::Integer { min, max });
    match ty.kind() {
        BtfKind::Int if bits == 0 => Kind::Other,
        BtfKind::Int => match Int::try_from(ty).map(|int| int.encoding) {
            Ok(IntEncoding::Bool) => Kind::Option(OptionKind::Bool),
            Ok(IntEncoding::Signed | IntEncoding::Char) => {
                let half = 1 << (bits - 1);
                integer(-half, half - 1)
            }
            Ok(_) => integer(0, (1 << bits) - 1),
            Err(_) => Kind::Other,
        },
        BtfKind::Enum => Enum::try_from(ty).map_or(Kind::Other, |e| {
            choice(e.iter().filter_map(|m| Some((m.name?, m.value.into()))))
        }),
        BtfKind::Enum64 => Enum64::try_from(ty).map_or(Kind::Other, |e| {
            choice(e.iter().filter_map(|m| Some((m.name?, m.value))))
        }),
        BtfKind::Struct => Kind::Struct(
            ty.name()
                .map(|n| n.to_string_lossy().into_owned())
                .unwrap_or_default(),
        ),
        _ => Kind::Other,
    }
}

fn choice<'a>(members: impl Iterator<Item = (&'a OsStr, i128)>) -> Kind {
    let members: Vec<(String, i128)> = members
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .collect();
    let named: Vec<(&str, i128)> = members
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    Kind::Option(OptionKind::Choice(options::words(&named)))
}

impl Variable {
    /// Returns the values that it takes as an option, if it can be one.
    pub fn option_kind(&self) -> Option<&OptionKind> {
        match &self.kind {
            Kind::Option(kind) => Some(kind),
            Kind::Struct(_) | Kind::Other => None,
        }
    }

    /// Returns the bytes of one of its values.
    pub fn encode(&self, value: i128) -> Vec<u8> {
        value.to_le_bytes()[..self.size].to_vec()
    }
}

/// Name, offset in bytes and size of each member of a struct; arrays have the size of an element.
pub fn members(btf: &Btf<'_>, structure: &str) -> Vec<(String, usize, usize)> {
    let Some(ty) = btf
        .type_by_kind::<Composite<'_>>()
        .find(|c| c.name().is_some_and(|n| n == structure))
    else {
        return Vec::new();
    };
    ty.iter()
        .filter_map(|member| {
            let MemberAttr::Normal { offset } = member.attr else {
                return None;
            };
            let size = btf
                .type_by_id::<BtfType<'_>>(member.ty)
                .and_then(|t| size_of(t.skip_mods_and_typedefs()))
                .unwrap_or(0);
            let name = member.name?.to_string_lossy().into_owned();
            Some((name, offset as usize / 8, size))
        })
        .collect()
}

/// Offset in bytes and size of a member of a struct, `None` where it has none of this name.
pub fn member(btf: &Btf<'_>, structure: &str, name: &str) -> Option<(usize, usize)> {
    members(btf, structure)
        .into_iter()
        .find_map(|(known, offset, size)| (known == name).then_some((offset, size)))
}

/// Returns the field at an offset in bytes of a struct, as C writes it: `scx.slice`. None: it has no such struct or
/// field.
pub fn field_at(btf: &Btf<'_>, structure: &str, offset: usize) -> Option<String> {
    let ty = btf
        .type_by_kind::<Composite<'_>>()
        .find(|c| c.is_struct && c.name().is_some_and(|n| n == structure))?;
    let mut names = Vec::new();
    path_to(btf, ty, offset, &mut names)?;
    Some(names.join("."))
}

fn path_to(
    btf: &Btf<'_>,
    structure: Composite<'_>,
    offset: usize,
    names: &mut Vec<String>,
) -> Option<()> {
    let begin = |attr: MemberAttr| match attr {
        MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. } => offset as usize / 8,
    };
    let before = structure.iter().filter(|m| begin(m.attr) <= offset);
    let member = before.max_by_key(|m| begin(m.attr))?;
    if let Some(name) = member.name {
        names.push(name.to_string_lossy().into_owned());
    }
    let ty = btf.type_by_id::<BtfType<'_>>(member.ty)?;
    if let Ok(inner) = Composite::try_from(ty.skip_mods_and_typedefs()) {
        path_to(btf, inner, offset - begin(member.attr), names)?;
    }
    (!names.is_empty()).then_some(())
}

fn size_of(ty: BtfType<'_>) -> Option<usize> {
    match ty.kind() {
        BtfKind::Int => Int::try_from(ty).ok().map(|i| usize::from(i.bits) / 8),
        BtfKind::Array => {
            let element = Array::try_from(ty).ok()?.contained_type();
            size_of(element.skip_mods_and_typedefs())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_bytes_of_its_variable() {
        let bytes = |size, value| {
            let variable = Variable {
                name: "knob".to_owned(),
                offset: 0,
                size,
                kind: Kind::Other,
            };
            variable.encode(value)
        };
        assert_eq!(bytes(1, 255), [255]);
        assert_eq!(bytes(8, -1), [255; 8]);
        assert_eq!(bytes(4, 7), [7, 0, 0, 0]);
    }

    #[test]
    fn enumerators_are_words() {
        let names = ["LOCK_KIND_TAS", "LOCK_KIND_TRY"].map(OsStr::new);
        let kind = choice(names.into_iter().zip(3..));
        let words = [("tas".to_owned(), 3), ("try".to_owned(), 4)];
        assert_eq!(kind, Kind::Option(OptionKind::Choice(words.to_vec())));
    }
}
