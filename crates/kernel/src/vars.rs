//! Global variables of a BPF object, found and set by name through its BTF.
//!
//! A policy's knobs are its `const volatile` globals (`.rodata`), as is the custom for sched_ext
//! schedulers. The rules for their values are the same as for the simulator: `true`/`false`,
//! integers, and enumerators in lower case without the prefix they share.

use libbpf_rs::btf::types::{
    Array, Composite, DataSec, Enum, Enum64, Int, IntEncoding, MemberAttr, Var,
};
use libbpf_rs::btf::{Btf, BtfKind, BtfType};

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

/// Types that can be set by a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `bool`
    Bool,
    /// An integer.
    Int {
        /// Whether it can be negative.
        signed: bool,
    },
    /// An enum: names as users write them, with their values.
    Enum(Vec<(String, i64)>),
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
                kind: kind_of(ty),
            })
        })
        .collect();
    found.sort_by_key(|v| v.offset);
    found
}

fn kind_of(ty: BtfType<'_>) -> Kind {
    match ty.kind() {
        BtfKind::Int => match Int::try_from(ty).map(|int| int.encoding) {
            Ok(IntEncoding::Bool) => Kind::Bool,
            Ok(IntEncoding::Signed | IntEncoding::Char) => Kind::Int { signed: true },
            Ok(_) => Kind::Int { signed: false },
            Err(_) => Kind::Other,
        },
        BtfKind::Enum => Enum::try_from(ty).map_or(Kind::Other, |e| {
            named(
                e.iter()
                    .filter_map(|m| Some((m.name?.to_string_lossy().into_owned(), m.value))),
            )
        }),
        BtfKind::Enum64 => Enum64::try_from(ty).map_or(Kind::Other, |e| {
            named(e.iter().filter_map(|m| {
                let value = i64::try_from(m.value).ok()?;
                Some((m.name?.to_string_lossy().into_owned(), value))
            }))
        }),
        BtfKind::Struct => Kind::Struct(
            ty.name()
                .map(|n| n.to_string_lossy().into_owned())
                .unwrap_or_default(),
        ),
        _ => Kind::Other,
    }
}

/// `LOCK_TAS`, `LOCK_QUEUED` are written `tas`, `queued`.
fn named(members: impl Iterator<Item = (String, i64)>) -> Kind {
    let members: Vec<(String, i64)> = members.collect();
    let prefix = common_prefix(members.iter().map(|(name, _)| name.as_str()));
    Kind::Enum(
        members
            .iter()
            .map(|(name, value)| (name[prefix..].to_lowercase(), *value))
            .collect(),
    )
}

/// Length of what all names begin with, up to and including an underscore. A single name loses its
/// first part.
fn common_prefix<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    let mut names = names.peekable();
    let Some(first) = names.next() else { return 0 };
    if names.peek().is_none() {
        return first.find('_').map_or(0, |at| at + 1);
    }
    let shared = names.fold(first.len(), |len, name| {
        first
            .bytes()
            .zip(name.bytes())
            .take(len)
            .take_while(|(a, b)| a == b)
            .count()
    });
    first[..shared].rfind('_').map_or(0, |at| at + 1)
}

/// Returns the bytes of `text` as a value of `variable`.
///
/// # Errors
/// Says what would be right.
pub fn encode(variable: &Variable, text: &str) -> Result<Vec<u8>, String> {
    let name = &variable.name;
    let value: i128 = match &variable.kind {
        Kind::Bool => match text {
            // Alone an option is switched on.
            "" | "true" | "1" | "on" | "yes" => 1,
            "false" | "0" | "off" | "no" => 0,
            _ => return Err(format!("{name}={text}: must be true or false")),
        },
        Kind::Int { .. } => {
            let digits = text.replace('_', "");
            let parsed = match digits.strip_prefix("0x") {
                Some(hex) => i128::from_str_radix(hex, 16),
                None => digits.parse(),
            };
            parsed.map_err(|_| format!("{name}={text}: must be an integer"))?
        }
        Kind::Enum(members) => match members.iter().find(|(member, _)| member == text) {
            Some((_, value)) => i128::from(*value),
            None => {
                let known: Vec<&str> = members.iter().map(|(m, _)| m.as_str()).collect();
                return Err(format!(
                    "{name}={text}: must be one of {}",
                    known.join(", ")
                ));
            }
        },
        Kind::Struct(_) | Kind::Other => {
            return Err(format!(
                "{name} cannot be set: it is not a bool, integer or enum"
            ));
        }
    };
    let bits = u32::try_from(variable.size * 8).map_err(|_| format!("{name} is too large"))?;
    let (min, max) = match &variable.kind {
        Kind::Int { signed: true } => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
        Kind::Enum(_) => (i128::from(i64::MIN), i128::from(i64::MAX)),
        _ => (0, (1_i128 << bits) - 1),
    };
    if value < min || value > max {
        return Err(format!("{name}={text}: must be {min} to {max}"));
    }
    Ok(value.to_le_bytes()[..variable.size].to_vec())
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

    fn variable(kind: Kind, size: usize) -> Variable {
        Variable {
            name: "knob".to_owned(),
            offset: 0,
            size,
            kind,
        }
    }

    #[test]
    fn enumerators_lose_what_they_share() {
        let names = ["LOCK_KIND_TAS", "LOCK_KIND_TRY", "LOCK_KIND_QUEUED"];
        let kind = named(names.iter().zip(0..).map(|(n, v)| ((*n).to_owned(), v)));
        let expected = [("tas", 0), ("try", 1), ("queued", 2)];
        assert_eq!(
            kind,
            Kind::Enum(
                expected
                    .iter()
                    .map(|(n, v)| ((*n).to_owned(), *v))
                    .collect()
            )
        );
        assert_eq!(common_prefix(["ab", "ac"].into_iter()), 0);
        assert_eq!(common_prefix(["ONE_THING"].into_iter()), 4);
    }

    #[test]
    fn values_are_checked() {
        let byte = variable(Kind::Int { signed: false }, 1);
        assert_eq!(encode(&byte, "255"), Ok(vec![255]));
        assert!(encode(&byte, "256").unwrap_err().contains("0 to 255"));
        let signed = variable(Kind::Int { signed: true }, 8);
        assert_eq!(encode(&signed, "-1"), Ok(vec![255; 8]));
        assert_eq!(encode(&byte, "0x1f"), Ok(vec![31]));
        assert!(encode(&signed, "ten").unwrap_err().contains("integer"));
        let flag = variable(Kind::Bool, 1);
        assert_eq!(encode(&flag, "true"), Ok(vec![1]));
        assert_eq!(encode(&flag, ""), Ok(vec![1]));
        assert!(encode(&flag, "2").is_err());
        let choice = variable(Kind::Enum(vec![("a".into(), 0), ("b".into(), 7)]), 4);
        assert_eq!(encode(&choice, "b"), Ok(vec![7, 0, 0, 0]));
        assert!(encode(&choice, "c").unwrap_err().contains("one of a, b"));
    }
}
