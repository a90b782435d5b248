//! Writes types as raw BTF, as a kernel offers its own in `/sys/kernel/btf/vmlinux`.

use std::collections::BTreeMap;

use crate::btf::{Btf, Kind, Type};

/// Bytes of the header.
const HEADER_BYTES: u32 = 24;

/// Strings, each once.
#[derive(Default)]
struct Strings {
    bytes: Vec<u8>,
    offsets: BTreeMap<String, u32>,
}

impl Strings {
    fn offset(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(known) = self.offsets.get(text) {
            return *known;
        }
        let offset = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self.offsets.insert(text.to_owned(), offset);
        offset
    }
}

impl Btf {
    /// Writes all types. Numbers of types stay.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut strings = Strings {
            bytes: vec![0],
            ..Strings::default()
        };
        let mut words = Vec::new();
        let is_int = |id: &u32| matches!(self.get(*id).kind, Kind::Int { .. });
        let index = (1..self.len() as u32).find(is_int).unwrap_or(0);
        for id in 1..self.len() {
            write(self.get(id as u32), index, &mut strings, &mut words);
        }
        let types = words.len() as u32 * 4;
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let header = [HEADER_BYTES, 0, types, types, strings.bytes.len() as u32];
        for word in header.into_iter().chain(words) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&strings.bytes);
        bytes
    }
}

/// Appends the words of a type. `index` is the type of arrays' indices.
fn write(of: &Type, index: u32, strings: &mut Strings, words: &mut Vec<u32>) {
    let name = strings.offset(&of.name);
    let mut begin = |kind: u32, count: usize, flag: bool, third: u32| {
        let info = u32::from(flag) << 31 | (kind << 24) | count as u32;
        words.extend([name, info, third]);
    };
    match &of.kind {
        // There is none but the first, which is not written. Of what is read and not kept a forward declaration remains.
        Kind::Void | Kind::Fwd | Kind::DeclTag => begin(7, 0, false, 0),
        Kind::Int { signed, is_bool } => {
            begin(1, 0, false, of.size);
            let encoding = u32::from(*signed) | (u32::from(*is_bool) << 2);
            words.push((encoding << 24) | (of.size * 8));
        }
        Kind::Ptr(to) => begin(2, 0, false, *to),
        Kind::Array { element, count } => {
            begin(3, 0, false, 0);
            words.extend([*element, index, *count]);
        }
        Kind::Struct(members) | Kind::Union(members) => {
            let kind = if matches!(of.kind, Kind::Struct(_)) {
                4
            } else {
                5
            };
            let has_bits = members.iter().any(|member| member.bits > 0);
            begin(kind, members.len(), has_bits, of.size);
            for member in members {
                let name = strings.offset(&member.name);
                words.extend([
                    name,
                    member.type_id,
                    (member.bits << 24) | member.bit_offset,
                ]);
            }
        }
        Kind::Enum { signed, values } => {
            let fits = |(_, value): &(String, i128)| match signed {
                true => i32::try_from(*value).is_ok(),
                false => u32::try_from(*value).is_ok(),
            };
            let is_wide = of.size > 4 || !values.iter().all(fits);
            begin(if is_wide { 19 } else { 6 }, values.len(), *signed, of.size);
            for (name, value) in values {
                words.extend([strings.offset(name), *value as u32]);
                if is_wide {
                    words.push((*value >> 32) as u32);
                }
            }
        }
        Kind::Typedef(to) => begin(8, 0, false, *to),
        Kind::Volatile(to) => begin(9, 0, false, *to),
        Kind::Const(to) => begin(10, 0, false, *to),
        Kind::Restrict(to) => begin(11, 0, false, *to),
        // Static functions are of linkage 0, which a kernel has for all of its own.
        Kind::Func(to) => begin(12, 0, false, *to),
        Kind::FuncProto {
            returns,
            parameters,
        } => {
            begin(13, parameters.len(), false, *returns);
            for (name, of) in parameters {
                words.extend([strings.offset(name), *of]);
            }
        }
        Kind::Var(of) => {
            begin(14, 0, false, *of);
            words.push(1);
        }
        Kind::Datasec(vars) => {
            begin(15, vars.len(), false, of.size);
            for var in vars {
                words.extend([var.var, var.offset, var.size]);
            }
        }
        Kind::Float => begin(16, 0, false, 8),
        Kind::TypeTag(to) => begin(18, 0, false, *to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::Member;

    #[test]
    fn types_are_read_as_they_were_written() {
        let mut btf = Btf::new();
        let signed = true;
        let int = btf.add(
            "int",
            Kind::Int {
                signed,
                is_bool: false,
            },
            4,
        );
        let ptr = btf.add("", Kind::Ptr(int), 0);
        let array = btf.add(
            "",
            Kind::Array {
                element: int,
                count: 7,
            },
            0,
        );
        let member = |name: &str, type_id, bit_offset, bits| Member {
            name: name.to_owned(),
            type_id,
            bit_offset,
            bits,
        };
        let members = vec![
            member("a", ptr, 0, 0),
            member("b", array, 64, 0),
            member("c", int, 288, 3),
        ];
        btf.add("s", Kind::Struct(members), 40);
        for (name, signed, value) in [
            ("small", false, 7),
            ("negative", true, -7),
            ("wide", false, 1 << 63),
            ("both", true, i128::from(i64::MIN)),
        ] {
            let values = vec![(name.to_uppercase(), value)];
            let size = if value.abs() > 7 { 8 } else { 4 };
            btf.add(name, Kind::Enum { signed, values }, size);
        }
        let parameters = vec![("p".to_owned(), ptr), (String::new(), int)];
        let proto = btf.add(
            "",
            Kind::FuncProto {
                returns: int,
                parameters,
            },
            0,
        );
        btf.add("f", Kind::Func(proto), 0);
        btf.add("t", Kind::Typedef(proto), 0);
        let read = Btf::parse(&btf.to_bytes()).unwrap();
        assert_eq!(read.len(), btf.len());
        for id in 0..btf.len() as u32 {
            assert_eq!(read.get(id), btf.get(id));
        }
    }
}
