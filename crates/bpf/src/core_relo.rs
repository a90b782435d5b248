//! CO-RE: what an object asks of a kernel's types, answered from the BTF of that kernel (libbpf's relo_core.c).

use crate::btf::{Btf, Kind, Member, TypeId, essential};
use crate::btf_ext::CoreRelo;
use crate::insn::{Insn, class};

/// `enum bpf_core_relo_kind`.
mod kind {
    pub const FIELD_BYTE_OFFSET: u32 = 0;
    pub const FIELD_BYTE_SIZE: u32 = 1;
    pub const FIELD_EXISTS: u32 = 2;
    pub const FIELD_SIGNED: u32 = 3;
    pub const FIELD_LSHIFT: u32 = 4;
    pub const FIELD_RSHIFT: u32 = 5;
    pub const TYPE_ID_LOCAL: u32 = 6;
    pub const TYPE_ID_TARGET: u32 = 7;
    pub const TYPE_EXISTS: u32 = 8;
    pub const TYPE_SIZE: u32 = 9;
    pub const ENUMVAL_EXISTS: u32 = 10;
    pub const ENUMVAL_VALUE: u32 = 11;
    pub const TYPE_MATCHES: u32 = 12;
}

/// A field that a path leads to.
#[derive(Clone, Copy, Debug)]
struct Field {
    bit_offset: u32,
    type_id: TypeId,
    /// Of a bit field its bits; 0 else.
    bits: u32,
}

/// One step of a path: a member by name, or an element of an array.
enum Step {
    Member(String),
    Element(u32),
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The number for the instruction.
    Value(u64),
    /// The offset of a field, and how many bytes loads and stores of it have there where that differs.
    Offset { offset: u64, bytes: Option<u32> },
    /// It is not there: why, for people.
    Absent(String),
}

/// Answers a relocation; the error says what is wrong with the object.
///
/// # Errors
/// If the path is none, or the kind is unknown.
pub fn answer(local: &Btf, target: &Btf, relo: &CoreRelo) -> Result<Answer, String> {
    match relo.kind {
        kind::TYPE_ID_LOCAL => Ok(Answer::Value(relo.type_id.into())),
        kind::TYPE_ID_TARGET | kind::TYPE_EXISTS | kind::TYPE_SIZE | kind::TYPE_MATCHES => {
            let found = candidate(local, target, relo.type_id);
            Ok(Answer::Value(match (relo.kind, found) {
                (_, None) => 0,
                (kind::TYPE_ID_TARGET, Some(id)) => id.into(),
                (kind::TYPE_SIZE, Some(id)) => target.size(id).into(),
                _ => 1,
            }))
        }
        kind::ENUMVAL_EXISTS | kind::ENUMVAL_VALUE => enumerator(local, target, relo),
        kind::FIELD_BYTE_OFFSET..=kind::FIELD_RSHIFT => field(local, target, relo),
        other => Err(format!("CO-RE relocation of the unknown kind {other}")),
    }
}

/// The structure and the path of a field that is read or whose address is taken: `task_struct` and `se.sum_exec_runtime`.
pub fn place(local: &Btf, relo: &CoreRelo) -> Option<(String, String)> {
    if relo.kind != kind::FIELD_BYTE_OFFSET {
        return None;
    }
    let (_, steps) = walk(local, relo).ok()?;
    let path: String = steps.get(1..)?.iter().map(spell).collect();
    let of = essential(&local.get(relo.type_id).name).to_owned();
    Some((of, path.trim_start_matches('.').to_owned()))
}

fn enumerator(local: &Btf, target: &Btf, relo: &CoreRelo) -> Result<Answer, String> {
    let of = local.get(local.plain(relo.type_id));
    let index: usize = relo
        .access
        .parse()
        .map_err(|_| "a path of CO-RE is no number")?;
    let Kind::Enum { values, .. } = &of.kind else {
        return Err("a CO-RE relocation of an enumerator has no enumeration".to_owned());
    };
    let (name, _) = values
        .get(index)
        .ok_or("a CO-RE relocation names no enumerator")?;
    let name = essential(name);
    let found = candidate(local, target, relo.type_id).and_then(|id| match &target.get(id).kind {
        Kind::Enum { values, .. } => values.iter().find(|(known, _)| essential(known) == name),
        _ => None,
    });
    Ok(match (relo.kind, found) {
        (kind::ENUMVAL_EXISTS, found) => Answer::Value(found.is_some().into()),
        (_, Some((_, value))) => Answer::Value(*value as u64),
        (_, None) => Answer::Absent(format!("the enumerator {name}")),
    })
}

fn field(local: &Btf, target: &Btf, relo: &CoreRelo) -> Result<Answer, String> {
    let (ours, steps) = walk(local, relo)?;
    let found = candidate(local, target, relo.type_id)
        .and_then(|id| follow(target, id, &steps))
        .filter(|theirs| are_compatible((local, ours.type_id), (target, theirs.type_id)));
    let Some(theirs) = found else {
        let path: String = steps[1..].iter().map(spell).collect();
        return Ok(match relo.kind {
            kind::FIELD_EXISTS => Answer::Value(0),
            _ => Answer::Absent(format!(
                "{} of {}",
                path.trim_start_matches('.'),
                local.c_name(relo.type_id)
            )),
        });
    };
    let signed = |btf: &Btf, id| match &btf.get(btf.plain(id)).kind {
        Kind::Int { signed, .. } | Kind::Enum { signed, .. } => *signed,
        _ => false,
    };
    let (byte_offset, bytes, shift_left) = extent(target, theirs);
    Ok(match relo.kind {
        kind::FIELD_EXISTS => Answer::Value(1),
        kind::FIELD_BYTE_SIZE => Answer::Value(bytes.into()),
        kind::FIELD_SIGNED => Answer::Value(signed(target, theirs.type_id).into()),
        kind::FIELD_LSHIFT => Answer::Value(shift_left.into()),
        kind::FIELD_RSHIFT => {
            let bits = if theirs.bits > 0 {
                theirs.bits
            } else {
                bytes * 8
            };
            Answer::Value(64u32.saturating_sub(bits).into())
        }
        _ => {
            let same = theirs.bits > 0 || extent(local, ours).1 == bytes;
            Answer::Offset {
                offset: byte_offset.into(),
                bytes: (!same).then_some(bytes),
            }
        }
    })
}

/// The first byte of a field, the bytes to load, and how far to shift to the left what was loaded into 64 bits.
fn extent(btf: &Btf, field: Field) -> (u32, u32, u32) {
    let mut bytes = btf.size(field.type_id);
    if field.bits == 0 {
        let offset = field.bit_offset / 8;
        return (offset, bytes, 64u32.saturating_sub(bytes * 8));
    }
    bytes = bytes.clamp(1, 8);
    loop {
        let offset = field.bit_offset / 8 / bytes * bytes;
        let end = field.bit_offset + field.bits - offset * 8;
        if end <= bytes * 8 || bytes == 8 {
            return (offset, bytes, 64u32.saturating_sub(end));
        }
        bytes *= 2;
    }
}

fn spell(step: &Step) -> String {
    match step {
        Step::Member(name) => format!(".{name}"),
        Step::Element(index) => format!("[{index}]"),
    }
}

/// The path of a relocation in the object's own types: the field, and its steps by name.
fn walk(btf: &Btf, relo: &CoreRelo) -> Result<(Field, Vec<Step>), String> {
    let numbers = relo.access.split(':').map(str::parse::<u32>);
    let numbers: Vec<u32> = numbers
        .collect::<Result<_, _>>()
        .map_err(|_| "a path of CO-RE is no path")?;
    let (&first, rest) = numbers.split_first().ok_or("a path of CO-RE is empty")?;
    let mut steps = vec![Step::Element(first)];
    let mut at = Field {
        bit_offset: first * btf.size(relo.type_id) * 8,
        type_id: relo.type_id,
        bits: 0,
    };
    for &number in rest {
        let id = btf.plain(at.type_id);
        match &btf.get(id).kind {
            Kind::Struct(members) | Kind::Union(members) => {
                let member = members
                    .get(number as usize)
                    .ok_or("a path of CO-RE names no member")?;
                at = Field {
                    bit_offset: at.bit_offset + member.bit_offset,
                    type_id: member.type_id,
                    bits: member.bits,
                };
                if !member.name.is_empty() {
                    steps.push(Step::Member(member.name.clone()));
                }
            }
            Kind::Array { element, .. } => {
                let offset = at.bit_offset + number * btf.size(*element) * 8;
                at = Field {
                    bit_offset: offset,
                    type_id: *element,
                    bits: 0,
                };
                steps.push(Step::Element(number));
            }
            _ => return Err("a path of CO-RE leads through what has no members".to_owned()),
        }
    }
    Ok((at, steps))
}

/// The same path in another kernel's types.
fn follow(btf: &Btf, root: TypeId, steps: &[Step]) -> Option<Field> {
    let mut at = Field {
        bit_offset: 0,
        type_id: root,
        bits: 0,
    };
    for (index, step) in steps.iter().enumerate() {
        let id = btf.plain(at.type_id);
        at = match step {
            Step::Element(number) if index == 0 => Field {
                bit_offset: number * btf.size(root) * 8,
                type_id: root,
                bits: 0,
            },
            Step::Element(number) => match btf.get(id).kind {
                Kind::Array { element, count } if *number < count.max(1) => {
                    let offset = at.bit_offset + number * btf.size(element) * 8;
                    Field {
                        bit_offset: offset,
                        type_id: element,
                        bits: 0,
                    }
                }
                _ => return None,
            },
            Step::Member(name) => {
                let (offset, member) = find_member(btf, id, name, 0)?;
                Field {
                    bit_offset: at.bit_offset + offset,
                    type_id: member.type_id,
                    bits: member.bits,
                }
            }
        };
    }
    Some(at)
}

/// A member by name, of anonymous structures inside too, with its offset in bits.
fn find_member<'b>(btf: &'b Btf, id: TypeId, name: &str, depth: u32) -> Option<(u32, &'b Member)> {
    if depth > 16 {
        return None;
    }
    btf.members(id)
        .iter()
        .find_map(|member| match member.name.is_empty() {
            true => {
                let (offset, found) = find_member(btf, member.type_id, name, depth + 1)?;
                Some((member.bit_offset + offset, found))
            }
            false => (member.name == name).then_some((member.bit_offset, member)),
        })
}

/// The type of the same name and kind, whatever its flavour.
fn candidate(local: &Btf, target: &Btf, id: TypeId) -> Option<TypeId> {
    let of = local.get(id);
    let name = essential(&of.name);
    let types = target.named(name).iter().copied();
    types
        .into_iter()
        .find(|&other| is_same_kind(&of.kind, &target.get(other).kind))
}

fn is_same_kind(a: &Kind, b: &Kind) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// Whether a field of one type can be read as one of another. The virtual kernel's structures have an integer where the
/// kernel's have an enumeration.
fn are_compatible((local, ours): (&Btf, TypeId), (target, theirs): (&Btf, TypeId)) -> bool {
    let (ours, theirs) = (local.plain(ours), target.plain(theirs));
    match (&local.get(ours).kind, &target.get(theirs).kind) {
        (Kind::Struct(_) | Kind::Union(_), Kind::Struct(_) | Kind::Union(_)) => true,
        (Kind::Int { .. } | Kind::Enum { .. }, Kind::Int { .. } | Kind::Enum { .. }) => true,
        (Kind::Array { element: a, .. }, Kind::Array { element: b, .. }) => {
            are_compatible((local, *a), (target, *b))
        }
        (a, b) => is_same_kind(a, b),
    }
}

/// Puts an answer into an instruction; the error says why it cannot be.
///
/// # Errors
/// If the instruction takes no such answer.
pub fn patch(insns: &mut [Insn], index: usize, answer: &Answer) -> Result<(), String> {
    let insn = insns[index];
    let (value, bytes) = match answer {
        Answer::Value(value) => (*value, None),
        Answer::Offset { offset, bytes } => (*offset, *bytes),
        Answer::Absent(what) => return Err(what.clone()),
    };
    match insn.class() {
        class::ALU | class::ALU64 if !insn.is_x() => insns[index].imm = value as i32,
        class::LDX | class::ST | class::STX => {
            let offset = i16::try_from(value).map_err(|_| "an offset of more than 32767 bytes")?;
            insns[index].off = offset;
            if let Some(bytes) = bytes {
                let size = match bytes {
                    1 => 0x10,
                    2 => 0x08,
                    4 => 0x00,
                    8 => 0x18,
                    _ => return Err(format!("a field of {bytes} bytes in one load")),
                };
                insns[index].code = insn.code & !0x18 | size;
            }
        }
        class::LD if insn.is_wide() && index + 1 < insns.len() => {
            insns[index].imm = value as i32;
            insns[index + 1].imm = (value >> 32) as i32;
        }
        _ => return Err(format!("opcode {:#04x} cannot be relocated", insn.code)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, type_id: TypeId, bit_offset: u32, bits: u32) -> Member {
        Member {
            name: name.to_owned(),
            type_id,
            bit_offset,
            bits,
        }
    }

    fn integer(btf: &mut Btf, bytes: u32) -> TypeId {
        let kind = Kind::Int {
            signed: false,
            is_bool: false,
        };
        btf.add("number", kind, bytes)
    }

    /// `struct s { u32 a; struct { u32 b; }; u8 c[count]; u32 f : bits; g; }`, each at a place in bits.
    fn types(places: [u32; 5], count: u32, bits: u32, g_bytes: u32) -> Btf {
        let mut btf = Btf::new();
        let word = integer(&mut btf, 4);
        let byte = integer(&mut btf, 1);
        let g = integer(&mut btf, g_bytes);
        let inner = btf.add("", Kind::Struct(vec![member("b", word, 0, 0)]), 4);
        let element = byte;
        let array = btf.add("", Kind::Array { element, count }, 0);
        let members = vec![
            member("a", word, places[0], 0),
            member("", inner, places[1], 0),
            member("c", array, places[2], 0),
            member("f", word, places[3], bits),
            member("g", g, places[4], 0),
        ];
        btf.add("s", Kind::Struct(members), 64);
        let values = vec![("ONE".to_owned(), 1), ("TWO".to_owned(), -2)];
        let signed = true;
        btf.add("e", Kind::Enum { signed, values }, 8);
        btf
    }

    fn ask(name: &str, access: &str, kind: u32) -> Answer {
        let local = types([0, 32, 64, 96, 128], 4, 3, 4);
        let target = types([96, 64, 128, 200, 256], 2, 5, 8);
        let type_id = local.named(name)[0];
        let access = access.to_owned();
        let relo = CoreRelo {
            type_id,
            access,
            kind,
        };
        answer(&local, &target, &relo).unwrap()
    }

    /// Worked out by hand from the places above.
    #[test]
    fn fields_are_found_by_name_where_they_lie_in_the_other_kernel() {
        let offset = |offset| Answer::Offset {
            offset,
            bytes: None,
        };
        assert_eq!(ask("s", "0:0", kind::FIELD_BYTE_OFFSET), offset(12));
        assert_eq!(ask("s", "0:1:0", kind::FIELD_BYTE_OFFSET), offset(8));
        assert_eq!(ask("s", "0:2:1", kind::FIELD_BYTE_OFFSET), offset(17));
        assert_eq!(ask("s", "1:0", kind::FIELD_BYTE_OFFSET), offset(64 + 12));
        // Five bits from bit 200 on: in the word at byte 24, whose bits 8 to 12 they are.
        assert_eq!(ask("s", "0:3", kind::FIELD_BYTE_OFFSET), offset(24));
        assert_eq!(ask("s", "0:3", kind::FIELD_LSHIFT), Answer::Value(51));
        assert_eq!(ask("s", "0:3", kind::FIELD_RSHIFT), Answer::Value(59));
        assert_eq!(ask("s", "0:3", kind::FIELD_BYTE_SIZE), Answer::Value(4));
        assert_eq!(ask("s", "0:4", kind::FIELD_BYTE_SIZE), Answer::Value(8));
        let wider = Answer::Offset {
            offset: 32,
            bytes: Some(8),
        };
        assert_eq!(ask("s", "0:4", kind::FIELD_BYTE_OFFSET), wider);
        assert_eq!(ask("s", "0", kind::TYPE_SIZE), Answer::Value(64));
        assert_eq!(
            ask("e", "1", kind::ENUMVAL_VALUE),
            Answer::Value(-2i64 as u64)
        );
    }

    #[test]
    fn what_is_missing_is_told_by_name() {
        // The other array has two elements.
        assert_eq!(ask("s", "0:2:2", kind::FIELD_EXISTS), Answer::Value(0));
        let absent = Answer::Absent("c[2] of struct s".to_owned());
        assert_eq!(ask("s", "0:2:2", kind::FIELD_BYTE_OFFSET), absent);
        let mut insns = [Insn::default()];
        insns[0].code = class::LDX | crate::insn::mode::MEM;
        assert_eq!(
            patch(&mut insns, 0, &absent),
            Err("c[2] of struct s".to_owned())
        );
        let wider = Answer::Offset {
            offset: 32,
            bytes: Some(8),
        };
        patch(&mut insns, 0, &wider).unwrap();
        assert_eq!((insns[0].off, insns[0].bytes()), (32, 8));
    }
}
