//! BTF, the kernel's type information (Documentation/bpf/btf.rst).

use std::collections::BTreeMap;

/// Number of a type; 0 is `void`.
pub type TypeId = u32;

/// A type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Type {
    /// Empty of an anonymous one.
    pub name: String,
    pub kind: Kind,
    /// Bytes of integers, enumerations, structures and unions; 0 of others.
    pub size: u32,
}

/// The kind of a type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    Void,
    Int {
        signed: bool,
        is_bool: bool,
    },
    Ptr(TypeId),
    Array {
        element: TypeId,
        count: u32,
    },
    Struct(Vec<Member>),
    Union(Vec<Member>),
    /// Enumerators with their values, sign-extended.
    Enum {
        signed: bool,
        values: Vec<(String, i128)>,
    },
    Fwd,
    Typedef(TypeId),
    Volatile(TypeId),
    Const(TypeId),
    Restrict(TypeId),
    TypeTag(TypeId),
    Func(TypeId),
    /// Result and parameters.
    FuncProto {
        returns: TypeId,
        parameters: Vec<(String, TypeId)>,
    },
    Var(TypeId),
    /// Variables with their places in the section.
    Datasec(Vec<SectionVar>),
    Float,
    DeclTag,
}

/// A member of a structure or union.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Empty of an anonymous one.
    pub name: String,
    pub type_id: TypeId,
    pub bit_offset: u32,
    /// 0 if it is no bit field.
    pub bits: u32,
}

/// A variable of a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SectionVar {
    pub var: TypeId,
    pub offset: u32,
    pub size: u32,
}

/// Why BTF cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("its BTF cannot be read: {0}")]
pub struct BtfError(pub(crate) String);

fn broken(what: &str) -> BtfError {
    BtfError(what.to_owned())
}

/// All types of an object or a kernel.
#[derive(Clone, Debug)]
pub struct Btf {
    types: Vec<Type>,
    by_name: BTreeMap<String, Vec<TypeId>>,
    strings: Vec<u8>,
}

impl Default for Btf {
    fn default() -> Self {
        Btf::new()
    }
}

/// Reads little-endian words one after another.
pub(crate) struct Words<'d>(pub &'d [u8]);

impl Words<'_> {
    pub(crate) fn next(&mut self) -> Result<u32, BtfError> {
        let (word, rest) = self
            .0
            .split_first_chunk()
            .ok_or_else(|| broken("it ends too early"))?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*word))
    }
}

/// The bytes from `offset` on.
pub(crate) fn part(data: &[u8], offset: u32, length: u32) -> Result<&[u8], BtfError> {
    let end = offset as usize + length as usize;
    data.get(offset as usize..end)
        .ok_or_else(|| broken("a part lies outside of it"))
}

/// Checks the magic number; gives the header's words and what follows the header.
pub(crate) fn header(data: &[u8]) -> Result<(Words<'_>, &[u8]), BtfError> {
    if data.first_chunk() != Some(&[0x9f, 0xeb]) {
        return Err(broken("it does not begin with its magic number"));
    }
    let mut words = Words(data.get(4..).unwrap_or_default());
    let length = words.next()? as usize;
    let body = data
        .get(length..)
        .ok_or_else(|| broken("it ends too early"))?;
    Ok((words, body))
}

impl Btf {
    /// No types but `void`.
    pub fn new() -> Btf {
        Btf {
            types: vec![Type {
                name: String::new(),
                kind: Kind::Void,
                size: 0,
            }],
            by_name: BTreeMap::new(),
            strings: vec![0],
        }
    }

    /// Adds a type.
    pub fn add(&mut self, name: &str, kind: Kind, size: u32) -> TypeId {
        let id = self.types.len() as TypeId;
        self.types.push(Type {
            name: name.to_owned(),
            kind,
            size,
        });
        if !name.is_empty() {
            self.by_name.entry(name.to_owned()).or_default().push(id);
        }
        id
    }

    /// Puts another kind in a type's place: types may refer to each other in circles.
    pub fn set_kind(&mut self, id: TypeId, kind: Kind) {
        self.types[id as usize].kind = kind;
    }

    /// Adds all types of another one, and returns how much greater their numbers are here. Its sections are not named here:
    /// [`Btf::extend_section`] adds their variables.
    pub fn append(&mut self, other: &Btf) -> TypeId {
        let more = self.types.len() as TypeId - 1;
        for it in &other.types[1..] {
            let mut it = it.clone();
            it.shift(more);
            match it.kind {
                Kind::Datasec(_) => self.add("", it.kind, it.size),
                kind => self.add(&it.name, kind, it.size),
            };
        }
        more
    }

    /// Adds variables to a section.
    pub fn extend_section(&mut self, name: &str, more: Vec<SectionVar>) {
        let ids = self.named(name).iter().copied();
        let own = ids
            .into_iter()
            .find(|id| matches!(self.get(*id).kind, Kind::Datasec(_)));
        match own {
            Some(id) => {
                if let Kind::Datasec(vars) = &mut self.types[id as usize].kind {
                    vars.extend(more);
                }
            }
            None => {
                self.add(name, Kind::Datasec(more), 0);
            }
        }
    }

    /// Reads a section `.BTF`.
    ///
    /// # Errors
    /// If it is no BTF, or ends too early.
    pub fn parse(data: &[u8]) -> Result<Btf, BtfError> {
        let (mut words, body) = header(data)?;
        let (type_offset, type_length) = (words.next()?, words.next()?);
        let (string_offset, string_length) = (words.next()?, words.next()?);
        let mut btf = Btf::new();
        btf.strings = part(body, string_offset, string_length)?.to_vec();
        let mut words = Words(part(body, type_offset, type_length)?);
        while !words.0.is_empty() {
            let (name, info, third) = (words.next()?, words.next()?, words.next()?);
            let count = info & 0xffff;
            let flag = info >> 31 != 0;
            let name = btf.string(name)?.to_owned();
            let (kind, size) = btf.read_kind(info >> 24 & 31, count, flag, third, &mut words)?;
            btf.add(&name, kind, size);
        }
        let last = btf.types.len() as u32;
        let mut types = btf.types.iter_mut();
        match types.all(|it| it.references().into_iter().all(|to| *to < last)) {
            true => Ok(btf),
            false => Err(broken("a type refers to one that is not there")),
        }
    }

    fn read_kind(
        &self,
        kind: u32,
        count: u32,
        flag: bool,
        third: u32,
        words: &mut Words<'_>,
    ) -> Result<(Kind, u32), BtfError> {
        let mut size = 0;
        let kind = match kind {
            1 => {
                size = third;
                let encoding = words.next()? >> 24;
                Kind::Int {
                    signed: encoding & 1 != 0,
                    is_bool: encoding & 4 != 0,
                }
            }
            2 => Kind::Ptr(third),
            3 => {
                let element = words.next()?;
                words.next()?;
                Kind::Array {
                    element,
                    count: words.next()?,
                }
            }
            4 | 5 => {
                size = third;
                let mut members = Vec::new();
                for _ in 0..count {
                    let (name, type_id, offset) = (words.next()?, words.next()?, words.next()?);
                    let (bits, bit_offset) = match flag {
                        true => (offset >> 24, offset & 0xff_ffff),
                        false => (0, offset),
                    };
                    let name = self.string(name)?.to_owned();
                    members.push(Member {
                        name,
                        type_id,
                        bit_offset,
                        bits,
                    });
                }
                if kind == 4 {
                    Kind::Struct(members)
                } else {
                    Kind::Union(members)
                }
            }
            6 | 19 => {
                size = third;
                let mut values = Vec::new();
                for _ in 0..count {
                    let name = self.string(words.next()?)?.to_owned();
                    let low = words.next()?;
                    let value = match (kind, flag) {
                        (6, true) => i128::from(low as i32),
                        (6, false) => i128::from(low),
                        (_, signed) => {
                            let wide = u64::from(words.next()?) << 32 | u64::from(low);
                            if signed {
                                i128::from(wide as i64)
                            } else {
                                i128::from(wide)
                            }
                        }
                    };
                    values.push((name, value));
                }
                Kind::Enum {
                    signed: flag,
                    values,
                }
            }
            7 => Kind::Fwd,
            8 => Kind::Typedef(third),
            9 => Kind::Volatile(third),
            10 => Kind::Const(third),
            11 => Kind::Restrict(third),
            12 => Kind::Func(third),
            13 => {
                let mut parameters = Vec::new();
                for _ in 0..count {
                    let name = self.string(words.next()?)?.to_owned();
                    parameters.push((name, words.next()?));
                }
                Kind::FuncProto {
                    returns: third,
                    parameters,
                }
            }
            14 => {
                words.next()?;
                Kind::Var(third)
            }
            15 => {
                let mut vars = Vec::new();
                for _ in 0..count {
                    let (var, offset, size) = (words.next()?, words.next()?, words.next()?);
                    vars.push(SectionVar { var, offset, size });
                }
                Kind::Datasec(vars)
            }
            16 => Kind::Float,
            17 => {
                words.next()?;
                Kind::DeclTag
            }
            18 => Kind::TypeTag(third),
            other => {
                return Err(BtfError(format!(
                    "it has a type of the unknown kind {other}"
                )));
            }
        };
        Ok((kind, size))
    }

    /// A string by its offset.
    ///
    /// # Errors
    /// If there is none.
    pub fn string(&self, offset: u32) -> Result<&str, BtfError> {
        let rest = self.strings.get(offset as usize..);
        let text = rest.and_then(|rest| rest.split(|&byte| byte == 0).next());
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        text.ok_or_else(|| broken("a string lies outside of it"))
    }

    /// A type by its number.
    pub fn get(&self, id: TypeId) -> &Type {
        self.types.get(id as usize).unwrap_or(&self.types[0])
    }

    /// How many types there are, `void` among them.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there is no type but `void`.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// The types of a name.
    pub fn named(&self, name: &str) -> &[TypeId] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// The variables of a section.
    pub fn section(&self, name: &str) -> &[SectionVar] {
        let types = self.named(name).iter().map(|id| &self.get(*id).kind);
        let mut sections = types.filter_map(|kind| match kind {
            Kind::Datasec(vars) => Some(vars.as_slice()),
            _ => None,
        });
        sections.next().unwrap_or_default()
    }

    /// Moves the variables of sections to where `place` finds them, by the section's and the variable's name: a compiler leaves
    /// that to who links.
    pub fn place_variables(&mut self, place: impl Fn(&str, &str) -> Option<(u32, u32)>) {
        for index in 0..self.types.len() {
            let Kind::Datasec(vars) = &self.types[index].kind else {
                continue;
            };
            let section = self.types[index].name.as_str();
            let mut vars = vars.clone();
            for var in &mut vars {
                if let Some((offset, size)) = place(section, &self.get(var.var).name) {
                    (var.offset, var.size) = (offset, size);
                }
            }
            self.types[index].kind = Kind::Datasec(vars);
        }
    }

    /// Returns a type without qualifiers, tags and typedefs.
    pub fn plain(&self, mut id: TypeId) -> TypeId {
        // Types that refer to themselves are no types.
        for _ in 0..64 {
            id = match self.get(id).kind {
                Kind::Typedef(to)
                | Kind::Const(to)
                | Kind::Volatile(to)
                | Kind::Restrict(to)
                | Kind::TypeTag(to) => to,
                _ => return id,
            };
        }
        0
    }

    /// Bytes of a type.
    pub fn size(&self, id: TypeId) -> u32 {
        let mut count = 1u32;
        let mut id = id;
        for _ in 0..64 {
            id = self.plain(id);
            match self.get(id).kind {
                Kind::Ptr(_) => return count.saturating_mul(8),
                Kind::Array {
                    element,
                    count: more,
                } => {
                    count = count.saturating_mul(more);
                    id = element;
                }
                _ => return count.saturating_mul(self.get(id).size),
            }
        }
        0
    }

    /// The members of a structure or union.
    pub fn members(&self, id: TypeId) -> &[Member] {
        match &self.get(self.plain(id)).kind {
            Kind::Struct(members) | Kind::Union(members) => members,
            _ => &[],
        }
    }

    /// The value of an enumerator of any enumeration.
    pub fn enumerator(&self, name: &str) -> Option<i128> {
        self.types.iter().find_map(|it| match &it.kind {
            Kind::Enum { values, .. } => {
                let found = values.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| *value)
            }
            _ => None,
        })
    }

    /// The type of a variable.
    pub fn type_of_var(&self, var: TypeId) -> TypeId {
        match self.get(var).kind {
            Kind::Var(of) => of,
            _ => 0,
        }
    }

    /// The types of a function's parameters.
    pub fn parameters(&self, function: &str) -> &[(String, TypeId)] {
        let ids = self.named(function).iter();
        let mut protos = ids.filter_map(|id| match self.get(*id).kind {
            Kind::Func(proto) => Some(&self.get(proto).kind),
            _ => None,
        });
        match protos.next() {
            Some(Kind::FuncProto { parameters, .. }) => parameters,
            _ => &[],
        }
    }

    /// The name of a type as C writes it, for messages.
    pub fn c_name(&self, id: TypeId) -> String {
        let it = self.get(id);
        let word = match it.kind {
            Kind::Struct(_) => "struct ",
            Kind::Union(_) => "union ",
            Kind::Enum { .. } => "enum ",
            _ => "",
        };
        let name = if it.name.is_empty() {
            "(anonymous)"
        } else {
            essential(&it.name)
        };
        format!("{word}{name}")
    }
}

impl Type {
    /// Makes every type that it refers to another one.
    fn shift(&mut self, more: TypeId) {
        for to in self.references().into_iter().filter(|to| **to > 0) {
            *to += more;
        }
    }

    /// The types that it refers to.
    fn references(&mut self) -> Vec<&mut TypeId> {
        match &mut self.kind {
            Kind::Ptr(to)
            | Kind::Typedef(to)
            | Kind::Const(to)
            | Kind::Volatile(to)
            | Kind::Restrict(to)
            | Kind::TypeTag(to)
            | Kind::Func(to)
            | Kind::Var(to)
            | Kind::Array { element: to, .. } => vec![to],
            Kind::Struct(members) | Kind::Union(members) => members
                .iter_mut()
                .map(|member| &mut member.type_id)
                .collect(),
            Kind::Datasec(vars) => vars.iter_mut().map(|var| &mut var.var).collect(),
            Kind::FuncProto {
                returns,
                parameters,
            } => {
                let of_parameters = parameters.iter_mut().map(|(_, of)| of);
                of_parameters.chain([returns]).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A name without its flavour: `task_struct___old` means `task_struct`.
pub fn essential(name: &str) -> &str {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|&byte| byte != b'_');
    let bytes = name.as_bytes();
    let flavours = (1..bytes.len().saturating_sub(3)).rev().find(|&at| {
        bytes[at..].starts_with(b"___") && is_word(bytes.get(at - 1)) && is_word(bytes.get(at + 3))
    });
    &name[..flavours.unwrap_or(name.len())]
}

#[cfg(test)]
mod tests {
    use super::essential;

    #[test]
    fn the_last_flavour_goes() {
        assert_eq!(essential("task_struct"), "task_struct");
        assert_eq!(essential("task_struct___old"), "task_struct");
        assert_eq!(
            essential("scx_bpf_dsq_insert___v2___compat"),
            "scx_bpf_dsq_insert___v2"
        );
        assert_eq!(essential("a____b"), "a____b");
        assert_eq!(essential("___a"), "___a");
        assert_eq!(essential("a___"), "a___");
    }
}
