//! The decisions of a loader, as a file beside an object says them: flags of ops, values of variables, sizes and contents of maps,
//! programs that run before the scheduler is attached. They are checked against the object's types when it is read, and carried
//! out for each run.

use schedlab_bpf::btf::{Btf, Kind, TypeId};
use schedlab_bpf::elf::Elf;
use schedlab_bpf::link::Placement;
use schedlab_trace::nearest;

use super::expression::Place;
pub use super::expression::{Each, Expression};

/// `enum scx_ops_flags`, without the kernel's own flags.
pub const OPS_FLAGS: [&str; 9] = [
    "SCX_OPS_KEEP_BUILTIN_IDLE",
    "SCX_OPS_ENQ_LAST",
    "SCX_OPS_ENQ_EXITING",
    "SCX_OPS_SWITCH_PARTIAL",
    "SCX_OPS_ENQ_MIGRATION_DISABLED",
    "SCX_OPS_ALLOW_QUEUED_WAKEUP",
    "SCX_OPS_BUILTIN_IDLE_PER_NODE",
    "SCX_OPS_ALWAYS_ENQ_IMMED",
    "SCX_OPS_TID_TO_TASK",
];

/// All decisions, each with its line in the file.
#[derive(Clone, Default, Debug)]
pub struct Decisions {
    /// The file, for messages.
    pub file: String,
    /// Comes in place of the flags in the table of ops, if it is given.
    pub flags: Option<Vec<Flag>>,
    pub timeout_ms: Option<u32>,
    /// Ops that are taken out of the table.
    pub without: Vec<(usize, String)>,
    pub variables: Vec<Variable>,
    pub maps: Vec<MapDecision>,
    pub calls: Vec<Call>,
}

/// A flag by its name, where a condition holds.
#[derive(Clone, Debug)]
pub struct Flag {
    pub line: usize,
    pub name: String,
    pub when: Option<Expression>,
}

/// The value of a variable, of a member or an element of it.
#[derive(Clone, Debug)]
pub struct Variable {
    pub line: usize,
    pub path: String,
    pub value: Given,
}

/// The size and the contents of a map.
#[derive(Clone, Debug)]
pub struct MapDecision {
    pub line: usize,
    pub map: String,
    pub max_entries: Option<Expression>,
    pub inner: Option<Inner>,
    pub entries: Vec<Entry>,
}

/// Maps that a loader makes and puts into a map of maps, at the keys from 0 on.
#[derive(Clone, Debug)]
pub struct Inner {
    pub line: usize,
    pub number: Expression,
    /// Their size; the one of their definition if it is not given.
    pub max_entries: Option<Expression>,
}

/// Entries of a map: one, or one for each part of the machine.
#[derive(Clone, Debug)]
pub struct Entry {
    pub line: usize,
    pub each: Option<Each>,
    pub when: Option<Expression>,
    pub key: Given,
    pub value: Given,
}

/// A program that is called once, or once for each part of the machine.
#[derive(Clone, Debug)]
pub struct Call {
    pub line: usize,
    pub program: String,
    /// It runs after `ops.init()`, not before.
    pub after: bool,
    pub each: Option<Each>,
    pub when: Option<Expression>,
    /// Members of the structure that it takes.
    pub arguments: Vec<(String, Given)>,
}

/// A value as it is written.
#[derive(Clone, Debug)]
pub enum Given {
    Number(Expression),
    List(Vec<Given>),
    Table(Vec<(String, Given)>),
    Text(String),
}

/// A decision that is checked: what remains is to count for a machine.
#[derive(Clone, Default, Debug)]
pub struct Checked {
    file: String,
    flags: Option<Vec<Flag>>,
    pub timeout_ms: Option<u32>,
    variables: Vec<(usize, u64, Vec<Leaf>)>,
    sizes: Vec<(usize, usize, Expression)>,
    inner: Vec<(usize, Inner)>,
    entries: Vec<CheckedEntry>,
    pub calls: Vec<CheckedCall>,
    /// Offsets of ops in the table that are taken out, by name.
    pub without: Vec<String>,
}

/// One number of a value.
#[derive(Clone, Debug)]
struct Leaf {
    offset: u64,
    /// Repetitions: over which parts, how far from one to the next, and how many there is room for.
    strides: Vec<(Each, u64, u32)>,
    bytes: usize,
    signed: bool,
    number: Expression,
}

#[derive(Clone, Debug)]
struct CheckedEntry {
    line: usize,
    map: usize,
    each: Option<Each>,
    when: Option<Expression>,
    key: (usize, Vec<Leaf>),
    value: (usize, Vec<Leaf>),
}

/// A call that is checked.
#[derive(Clone, Debug)]
pub struct CheckedCall {
    line: usize,
    pub function: usize,
    after: bool,
    each: Option<Each>,
    when: Option<Expression>,
    argument: (usize, Vec<Leaf>),
}

/// Bytes for a map: its number, key and value.
pub struct Contents {
    pub map: usize,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// Where the decision stands.
    pub place: String,
}

/// One call with the bytes of its argument.
pub struct Prepared {
    pub function: usize,
    pub after: bool,
    pub argument: Vec<u8>,
    pub place: String,
}

impl Decisions {
    /// Checks them against an object. The error names the file and the line.
    ///
    /// # Errors
    /// If a name is not in the object, or a value does not fit its type.
    pub fn check(&self, elf: &Elf, placement: &Placement) -> Result<Checked, String> {
        let at = |line: usize, what: String| format!("{}:{line}: {what}", self.file);
        let mut checked = Checked {
            file: self.file.clone(),
            flags: self.flags.clone(),
            timeout_ms: self.timeout_ms,
            ..Checked::default()
        };
        for (line, name) in &self.without {
            let ops = elf.ops.first();
            let members = ops.map_or(&[][..], |ops| elf.btf.members(ops.type_id));
            if !members.iter().any(|member| member.name == *name) {
                let known: Vec<&str> = members.iter().map(|it| it.name.as_str()).collect();
                let like = nearest(name, &known);
                return Err(at(*line, format!("there is no ops.{name}{like}")));
            }
            checked.without.push(name.clone());
        }
        for it in &self.variables {
            let leaves = variable(elf, placement, &it.path, &it.value);
            let (address, leaves) = leaves.map_err(|what| at(it.line, what))?;
            checked.variables.push((it.line, address, leaves));
        }
        for it in &self.maps {
            let known: Vec<&str> = elf.maps.iter().map(|map| map.name.as_str()).collect();
            let Some(map) = known.iter().position(|name| *name == it.map) else {
                let like = nearest(&it.map, &known);
                return Err(at(it.line, format!("there is no map `{}`{like}", it.map)));
            };
            if let Some(number) = &it.max_entries {
                checked.sizes.push((it.line, map, number.clone()));
            }
            if let Some(inner) = &it.inner {
                let mut members = elf.btf.members(elf.maps[map].type_id).iter();
                if !members.any(|member| member.name == "values") {
                    return Err(at(inner.line, format!("`{}` has no maps in it", it.map)));
                }
                checked.inner.push((map, inner.clone()));
            }
            for entry in &it.entries {
                let of = |part, given| map_part(elf, map, part, given);
                checked.entries.push(CheckedEntry {
                    line: entry.line,
                    map,
                    each: entry.each,
                    when: entry.when.clone(),
                    key: of("key", &entry.key).map_err(|what| at(entry.line, what))?,
                    value: of("value", &entry.value).map_err(|what| at(entry.line, what))?,
                });
            }
        }
        for it in &self.calls {
            let call = call(elf, it).map_err(|what| at(it.line, what))?;
            checked.calls.push(call);
        }
        Ok(checked)
    }
}

/// The structure that a program takes, and the function of it.
fn call(elf: &Elf, it: &Call) -> Result<CheckedCall, String> {
    let is_program = |section: &str| section.trim_start_matches('?') == "syscall";
    let programs = elf.functions.iter().filter(|of| is_program(&of.section));
    let known: Vec<&str> = programs.map(|of| of.name.as_str()).collect();
    let function = elf
        .functions
        .iter()
        .position(|of| of.name == it.program && is_program(&of.section));
    let Some(function) = function else {
        let like = nearest(&it.program, &known);
        return Err(format!(
            "there is no program `{}` of SEC(\"syscall\"){like}",
            it.program
        ));
    };
    let target = elf.btf.parameters(&it.program).first();
    let target = target.and_then(|&(_, id)| match elf.btf.get(elf.btf.plain(id)).kind {
        Kind::Ptr(to) => Some(elf.btf.plain(to)).filter(|to| *to > 0),
        _ => None,
    });
    let argument = match target {
        None if it.arguments.is_empty() => (0, Vec::new()),
        None => return Err(format!("{}() takes no structure", it.program)),
        Some(id) => {
            let mut leaves = Vec::new();
            let table = Given::Table(it.arguments.clone());
            add(&elf.btf, id, 0, &[], &table, &mut leaves)?;
            (elf.btf.size(id) as usize, leaves)
        }
    };
    Ok(CheckedCall {
        line: it.line,
        function,
        after: it.after,
        each: it.each,
        when: it.when.clone(),
        argument,
    })
}

/// The address of a variable, and the numbers that go there.
fn variable(
    elf: &Elf,
    placement: &Placement,
    path: &str,
    given: &Given,
) -> Result<(u64, Vec<Leaf>), String> {
    let name = path.split(['.', '[']).next().unwrap_or_default();
    let mut known = Vec::new();
    for section in &elf.data {
        for var in elf.btf.section(&section.name) {
            let of = elf.btf.get(var.var).name.as_str();
            if of != name {
                known.push(of);
                continue;
            }
            let Some(start) = placement.section(&section.name) else {
                return Err(format!(
                    "{name} lies in the arena, which is empty before the start"
                ));
            };
            let mut leaves = Vec::new();
            let id = elf.btf.type_of_var(var.var);
            at_path(&elf.btf, id, &path[name.len()..], given, &mut leaves)?;
            // An array of one element that is alone in its section has the section's room (`RESIZABLE_ARRAY()`).
            if let [_] = elf.btf.section(&section.name) {
                for leaf in &mut leaves {
                    if let Some((_, stride, count @ 1)) = leaf.strides.first_mut() {
                        *count = (section.bytes.len() as u64 / *stride) as u32;
                    }
                }
            }
            return Ok((start + u64::from(var.offset), leaves));
        }
    }
    Err(format!(
        "there is no variable `{name}`{}",
        nearest(name, &known)
    ))
}

/// Follows members and elements, and adds what is given there.
fn at_path(
    btf: &Btf,
    type_id: TypeId,
    path: &str,
    given: &Given,
    leaves: &mut Vec<Leaf>,
) -> Result<(), String> {
    let (mut id, mut offset, mut strides, mut rest) = (btf.plain(type_id), 0u64, Vec::new(), path);
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('[') {
            let (index, after) = behind.split_once(']').ok_or("a `]` is missing")?;
            let Kind::Array { element, count } = btf.get(id).kind else {
                return Err(format!("`{rest}` is no element: there is no array"));
            };
            let stride = u64::from(btf.size(element));
            match (index.parse::<u64>(), Each::of(index)) {
                (Ok(number), _) if number < u64::from(count.max(1)) => offset += number * stride,
                (Ok(number), _) => {
                    return Err(format!(
                        "there is no element {number}: the array has {count}"
                    ));
                }
                (_, Some(each)) => strides.push((each, stride, count)),
                _ => {
                    return Err(format!(
                        "`{index}` is no index: write a number, cpu, core, llc, node or word"
                    ));
                }
            }
            (id, rest) = (btf.plain(element), after);
            continue;
        }
        let behind = rest.trim_start_matches('.');
        let end = behind.find(['.', '[']).unwrap_or(behind.len());
        let (name, after) = behind.split_at(end);
        let (at, of) = member(btf, id, name)?;
        (offset, id, rest) = (offset + at, btf.plain(of), after);
    }
    add(btf, id, offset, &strides, given, leaves)
}

/// The offset of a member in bytes, and its type.
fn member(btf: &Btf, id: TypeId, name: &str) -> Result<(u64, TypeId), String> {
    for member in btf.members(id) {
        if member.name.is_empty() {
            if let Ok((at, of)) = self::member(btf, btf.plain(member.type_id), name) {
                return Ok((at + u64::from(member.bit_offset) / 8, of));
            }
        } else if member.name == name {
            return match member.bits {
                0 => Ok((u64::from(member.bit_offset) / 8, member.type_id)),
                _ => Err(format!("{name} is a bit field, which cannot be set")),
            };
        }
    }
    Err(format!(
        "{} has no member `{name}`{}",
        btf.c_name(id),
        nearest(name, &names(btf, id))
    ))
}

/// The names of members, of anonymous structures inside too.
fn names(btf: &Btf, id: TypeId) -> Vec<&str> {
    let members = btf.members(id).iter();
    members
        .flat_map(|member| match member.name.as_str() {
            "" => names(btf, btf.plain(member.type_id)),
            name => vec![name],
        })
        .collect()
}

/// Adds the numbers of a value of a type.
fn add(
    btf: &Btf,
    id: TypeId,
    offset: u64,
    strides: &[(Each, u64, u32)],
    given: &Given,
    leaves: &mut Vec<Leaf>,
) -> Result<(), String> {
    let id = btf.plain(id);
    match (&btf.get(id).kind, given) {
        (Kind::Int { .. } | Kind::Enum { .. } | Kind::Ptr(_), Given::Number(number)) => {
            let signed = match btf.get(id).kind {
                Kind::Int { signed, .. } | Kind::Enum { signed, .. } => signed,
                _ => false,
            };
            leaves.push(Leaf {
                offset,
                strides: strides.to_vec(),
                bytes: btf.size(id) as usize,
                signed,
                number: number.clone(),
            });
            Ok(())
        }
        (Kind::Array { element, count }, Given::List(values)) => {
            if values.len() > *count as usize {
                return Err(format!(
                    "{} values are more than the array has: {count}",
                    values.len()
                ));
            }
            let stride = u64::from(btf.size(*element));
            for (index, value) in values.iter().enumerate() {
                let at = offset + index as u64 * stride;
                add(btf, *element, at, strides, value, leaves)?;
            }
            Ok(())
        }
        (Kind::Array { element, count }, Given::Text(text)) if btf.size(*element) == 1 => {
            if text.len() >= *count as usize {
                return Err(format!(
                    "a text of {} bytes and its end are more than {count}",
                    text.len()
                ));
            }
            for (index, byte) in text.bytes().chain([0]).enumerate() {
                let number = Given::Number(Expression::Number(byte.into()));
                add(
                    btf,
                    *element,
                    offset + index as u64,
                    strides,
                    &number,
                    leaves,
                )?;
            }
            Ok(())
        }
        (Kind::Struct(_) | Kind::Union(_), Given::Table(values)) => {
            for (path, value) in values {
                let mut inner = Vec::new();
                at_path(btf, id, &format!(".{path}"), value, &mut inner)?;
                leaves.extend(inner.into_iter().map(|leaf| Leaf {
                    offset: leaf.offset + offset,
                    strides: [strides, &leaf.strides].concat(),
                    ..leaf
                }));
            }
            Ok(())
        }
        (kind, _) => {
            let wanted = match kind {
                Kind::Int { .. } | Kind::Enum { .. } | Kind::Ptr(_) => "a number",
                Kind::Array { .. } => "a list, or an index in the name",
                Kind::Struct(_) | Kind::Union(_) => "a table of members",
                _ => "nothing that can be set",
            };
            Err(format!(
                "the value does not fit the type, which takes {wanted}"
            ))
        }
    }
}

/// The size of a map's key or value, and the numbers that go there.
fn map_part(
    elf: &Elf,
    map: usize,
    part: &str,
    given: &Given,
) -> Result<(usize, Vec<Leaf>), String> {
    let mut leaves = Vec::new();
    for member in elf.btf.members(elf.maps[map].type_id) {
        let Kind::Ptr(target) = elf.btf.get(elf.btf.plain(member.type_id)).kind else {
            continue;
        };
        if member.name == part {
            add(&elf.btf, target, 0, &[], given, &mut leaves)?;
            return Ok((elf.btf.size(target) as usize, leaves));
        }
        if member.name == format!("{part}_size")
            && let Kind::Array { count, .. } = elf.btf.get(elf.btf.plain(target)).kind
            && let (4 | 8, Given::Number(number)) = (count, given)
        {
            leaves.push(Leaf {
                offset: 0,
                strides: Vec::new(),
                bytes: count as usize,
                signed: false,
                number: number.clone(),
            });
            return Ok((count as usize, leaves));
        }
    }
    Err(format!("the map says no type of its {part}"))
}

impl Leaf {
    /// Puts it wherever it goes.
    fn put(&self, place: Place<'_>, write: &mut dyn FnMut(u64, &[u8])) -> Result<(), String> {
        self.put_from(0, self.offset, place, write)
    }

    fn put_from(
        &self,
        level: usize,
        offset: u64,
        place: Place<'_>,
        write: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), String> {
        let Some(&(each, stride, count)) = self.strides.get(level) else {
            let value = self.number.value(&place)?;
            let bits = self.bytes as u32 * 8;
            // A negative number may also stand for all bits that are set.
            let (least, most) = match self.signed {
                true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
                false => (-1, (1i128 << bits) - 1),
            };
            if value < least || value > most {
                return Err(format!("{value} does not fit into {} bytes", self.bytes));
            }
            write(offset, &value.to_le_bytes()[..self.bytes]);
            return Ok(());
        };
        for (number, inner) in place.each(each) {
            if number >= count {
                return Err(format!(
                    "the array has {count} elements, and the machine needs number {number}"
                ));
            }
            let at = offset + u64::from(number) * stride;
            self.put_from(level + 1, at, inner, write)?;
        }
        Ok(())
    }
}

fn bytes_of((size, leaves): &(usize, Vec<Leaf>), place: Place<'_>) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; *size];
    for leaf in leaves {
        leaf.put(place, &mut |at, value| {
            bytes[at as usize..at as usize + value.len()].copy_from_slice(value);
        })?;
    }
    Ok(bytes)
}

/// Places of a repetition where a condition holds.
fn places<'m>(
    place: Place<'m>,
    each: Option<Each>,
    when: Option<&Expression>,
) -> Result<Vec<Place<'m>>, String> {
    let all = match each {
        Some(each) => place
            .each(each)
            .into_iter()
            .map(|(_, place)| place)
            .collect(),
        None => vec![place],
    };
    let mut kept = Vec::new();
    for place in all {
        let holds = when.map_or(Ok(1), |when| when.value(&place))?;
        if holds != 0 {
            kept.push(place);
        }
    }
    Ok(kept)
}

impl Checked {
    fn at<T>(&self, line: usize, result: Result<T, String>) -> Result<T, String> {
        result.map_err(|what| format!("{}:{line}: {what}", self.file))
    }

    /// Gives variables their values.
    pub fn set_variables(
        &self,
        place: Place<'_>,
        write: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), String> {
        for (line, address, leaves) in &self.variables {
            for leaf in leaves {
                let put = leaf.put(place, &mut |at, bytes| write(address + at, bytes));
                self.at(*line, put)?;
            }
        }
        Ok(())
    }

    /// The flags of ops; those that a kernel has not are 0.
    pub fn flags(
        &self,
        place: Place<'_>,
        value: impl Fn(&str) -> u64,
    ) -> Result<Option<u64>, String> {
        let Some(flags) = &self.flags else {
            return Ok(None);
        };
        let mut all = 0;
        for flag in flags {
            let holds = flag.when.as_ref().map_or(Ok(1), |when| when.value(&place));
            if self.at(flag.line, holds)? != 0 {
                all |= value(&flag.name);
            }
        }
        Ok(Some(all))
    }

    /// The sizes of maps.
    pub fn sizes(&self, place: Place<'_>) -> Result<Vec<(usize, u32)>, String> {
        let sizes = self.sizes.iter().map(|(line, map, number)| {
            let size = number.value(&place).and_then(|value| {
                let size = u32::try_from(value).ok().filter(|size| *size > 0);
                size.ok_or_else(|| format!("{value} is no size of a map"))
            });
            Ok((*map, self.at(*line, size)?))
        });
        sizes.collect()
    }

    /// Whether the size of a map is given.
    pub fn is_sized(&self, map: usize) -> bool {
        self.sizes.iter().any(|(_, of, _)| *of == map)
    }

    /// The maps in maps: of each its map, its key, and its size if that is given.
    pub fn inner(&self, place: Place<'_>) -> Result<Vec<(usize, u32, Option<u32>)>, String> {
        let mut all = Vec::new();
        for (map, inner) in &self.inner {
            let of = |number: &Expression| {
                let value = number.value(&place)?;
                let size = u32::try_from(value).ok().filter(|size| *size > 0);
                size.ok_or_else(|| format!("{value} is no number of maps or size of a map"))
            };
            let number = self.at(inner.line, of(&inner.number))?;
            let size = inner.max_entries.as_ref().map(of).transpose();
            let size = self.at(inner.line, size)?;
            all.extend((0..number).map(|key| (*map, key, size)));
        }
        Ok(all)
    }

    /// The contents of maps.
    pub fn contents(&self, place: Place<'_>) -> Result<Vec<Contents>, String> {
        let mut all = Vec::new();
        for entry in &self.entries {
            let found = places(place, entry.each, entry.when.as_ref());
            for place in self.at(entry.line, found)? {
                all.push(Contents {
                    map: entry.map,
                    key: self.at(entry.line, bytes_of(&entry.key, place))?,
                    value: self.at(entry.line, bytes_of(&entry.value, place))?,
                    place: format!("{}:{}", self.file, entry.line),
                });
            }
        }
        Ok(all)
    }

    /// The calls before the scheduler is attached.
    pub fn prepared(&self, place: Place<'_>) -> Result<Vec<Prepared>, String> {
        let mut all = Vec::new();
        for call in &self.calls {
            let found = places(place, call.each, call.when.as_ref());
            for place in self.at(call.line, found)? {
                all.push(Prepared {
                    function: call.function,
                    after: call.after,
                    argument: self.at(call.line, bytes_of(&call.argument, place))?,
                    place: format!("{}:{}", self.file, call.line),
                });
            }
        }
        Ok(all)
    }
}
