//! Describes a place of a policy's memory by the names of its source.

use std::fmt::Write as _;

use gimli::constants;

use crate::dwarf::{Shape, Types};
use crate::host::Host;
use crate::object::NativeObject;

/// The member of a type at an offset, as C writes it behind a value of that type: `.queue.head`, `[3].nr`.
fn member(types: &Types, type_at: usize, offset: u64) -> String {
    let mut text = String::new();
    let (mut at, mut left) = (Some(type_at), offset);
    while let Some(here) = at.and_then(|at| types.bare(at)) {
        let is_union = types.entry(here).tag == constants::DW_TAG_union_type.0;
        at = match types.shape(here) {
            Shape::Array(array) => {
                let element = types.entry(array).type_at;
                let bytes = element.map_or(0, |at| types.size(at)).max(1);
                let _ = write!(text, "[{}]", left / bytes);
                left %= bytes;
                element
            }
            shape if is_union || matches!(shape, Shape::Struct(_)) => {
                let members = types.members(here).into_iter();
                let mut around = members
                    .filter(|(_, begin, kind)| (*begin..*begin + types.size(*kind)).contains(&left))
                    .map(|(name, begin, kind)| (name.to_owned(), begin, kind));
                let found = around.next_back();
                found.map(|(name, begin, kind)| {
                    let _ = write!(text, ".{name}");
                    left -= begin;
                    kind
                })
            }
            _ => None,
        };
    }
    text
}

/// Describes a place in a global variable.
fn in_global(object: &NativeObject, address: u64) -> Option<String> {
    let (name, offset) = object.global_at(address)?;
    let types = Types::read(object.elf()).ok()?;
    let variables = types.variables();
    let variable = variables.iter().find(|variable| variable.name == name);
    let inner = variable.map(|variable| member(&types, variable.type_at, offset));
    Some(format!("`{name}{}`", inner.unwrap_or_default()))
}

/// Describes a place in a value of a map.
fn in_value(object: &NativeObject, map: &str, offset: u64) -> String {
    let value = Types::read(object.elf()).ok().and_then(|types| {
        let variables = types.variables();
        let variable = variables.iter().find(|variable| variable.name == map)?;
        let Shape::Struct(structure) = types.shape(variable.type_at) else {
            return None;
        };
        let members = types.members(structure);
        let (_, _, pointer) = members.iter().find(|(name, ..)| *name == "value")?;
        let Shape::Pointer(Some(value)) = types.shape(*pointer) else {
            return None;
        };
        Some(member(&types, value, offset))
    });
    match value.as_deref() {
        Some("") => format!("a value of the map `{map}`"),
        Some(inner) => format!(
            "`{}` of a value of the map `{map}`",
            inner.trim_start_matches('.')
        ),
        None => format!("byte {offset} of a value of the map `{map}`"),
    }
}

/// Describes a place in the context that a task has in the arena (`LAB_TASKS()`).
fn in_context(object: &NativeObject, offset: u64) -> Option<String> {
    let types = Types::read(object.elf()).ok()?;
    let inner = member(&types, types.typedef("task_t")?, offset);
    (!inner.is_empty()).then(|| inner.trim_start_matches('.').to_owned())
}

/// Describes a place, for people.
pub fn name(host: &Host, place: usize) -> String {
    let object = host.image.object();
    if let Some(found) = host
        .image
        .offset(place)
        .and_then(|at| in_global(object, at))
    {
        return found;
    }
    if let Some(at) = host.maps.arena_offset(place) {
        let context = host.audit.as_ref().and_then(|audit| audit.context_at(at));
        return match context {
            Some((task, offset)) => match in_context(object, offset) {
                Some(field) => format!("`{field}` of the context of task {}", task.pid()),
                None => format!("byte {offset} of the context of task {}", task.pid()),
            },
            None => format!("the arena at offset {at:#x}"),
        };
    }
    match host.maps.value_of(place) {
        Some((map, offset)) => in_value(object, map, offset),
        None => "the policy's memory".to_owned(),
    }
}
