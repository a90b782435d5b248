//! Reads a policy's definitions of its maps, and knows which of them the virtual kernel has.

use std::ops::Range;

use object::{Object as _, ObjectSection as _};

use crate::ObjectError;
use crate::dwarf::{Shape, Types, Variable};
use crate::layout::NR_CPUS_MAX;

/// A BPF map of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapDef {
    /// Name of the variable.
    pub name: String,
    /// `enum bpf_map_type`.
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// `max_entries`.
    pub max_entries: u32,
    /// `map_flags`.
    pub flags: u32,
    /// The definition of the maps that lie in it, if it is of a kind that has maps in it.
    pub inner: Option<Box<MapDef>>,
    /// Maps of the object that lie in it from the beginning: keys, and numbers of maps.
    pub(crate) slots: Vec<(u32, usize)>,
    /// The part of a value that is the kernel's.
    pub(crate) special: Special,
    /// Where the variable lies in the object.
    pub(crate) address: u64,
}

/// The fields of a map's value that are the kernel's (`struct btf_record`), by offset and size.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Special {
    /// Of `struct bpf_spin_lock`.
    pub spin_locks: Vec<Range<usize>>,
    /// Of `struct bpf_res_spin_lock`.
    pub res_locks: Vec<Range<usize>>,
    /// Pointers that count as a reference. No mark for `__kptr` is kept in debug information by gcc and clang alike
    /// and taken by both wherever the kernel's is, on parameters, too: so the type of the target decides.
    pub references: Vec<Range<usize>>,
}

impl Special {
    /// Adds the references of a type that lies at `offset`.
    fn add(&mut self, types: &Types, type_at: usize, offset: usize) {
        let here = offset..offset + types.size(type_at) as usize;
        match types.shape(type_at) {
            Shape::Struct(at) => match types.entry(at).name.as_deref() {
                Some("bpf_spin_lock") => self.spin_locks.push(here),
                Some("bpf_res_spin_lock") => self.res_locks.push(here),
                _ => {
                    for (_, within, member) in types.members(at) {
                        self.add(types, member, offset + within as usize);
                    }
                }
            },
            Shape::Array(at) => self.add_array(types, at, offset),
            Shape::Pointer(Some(target)) => {
                let of = types.entry(target).name.as_deref();
                if matches!(of, Some("bpf_cpumask" | "task_struct" | "cgroup")) {
                    self.references.push(here);
                }
            }
            _ => {}
        }
    }

    fn add_array(&mut self, types: &Types, array: usize, offset: usize) {
        let Some(element) = types.entry(array).type_at else {
            return;
        };
        let mut one = Special::default();
        one.add(types, element, 0);
        if one == Special::default() {
            return;
        }
        for index in 0..types.elements(array) {
            self.add(
                types,
                element,
                offset + (index * types.size(element)) as usize,
            );
        }
    }
}

/// Decodes `__uint(name, N)` (pointer to an array of N) and `__type(name, T)` (pointer to T).
pub(crate) fn read(
    policy: &str,
    file: &object::File<'_>,
    types: &Types,
    variables: &[Variable],
) -> Vec<Result<MapDef, ObjectError>> {
    let Some(section) = file.section_by_name(".maps") else {
        return Vec::new();
    };
    let range = section.address()..section.address() + section.size();
    let maps = variables
        .iter()
        .filter(|variable| range.contains(&variable.address));
    maps.map(|variable| {
        read_one(types, variable).map_err(|reason| ObjectError::Map {
            policy: policy.to_owned(),
            place: format!(
                "{}:{}",
                variable.file.trim_start_matches("./"),
                variable.line
            ),
            map: variable.name.clone(),
            reason,
        })
    })
    .collect()
}

/// Reads one definition. The error is the reason why it is refused.
fn read_one(types: &Types, variable: &Variable) -> Result<MapDef, String> {
    let Shape::Struct(structure) = types.shape(variable.type_at) else {
        return Err("it is not defined as a structure".to_owned());
    };
    let mut map = MapDef {
        name: variable.name.clone(),
        kind: 0,
        key_size: 0,
        value_size: 0,
        max_entries: 0,
        flags: 0,
        inner: None,
        slots: Vec::new(),
        special: Special::default(),
        address: variable.address,
    };
    for (member, _, type_at) in types.members(structure) {
        let Shape::Pointer(Some(target)) = types.shape(type_at) else {
            continue;
        };
        let number = match types.shape(target) {
            Shape::Array(array) => types.elements(array) as u32,
            _ => 0,
        };
        match member {
            "type" => map.kind = number,
            "key_size" => map.key_size = number,
            "value_size" => map.value_size = number,
            "max_entries" => map.max_entries = number,
            "map_flags" => map.flags = number,
            "key" => map.key_size = types.size(target) as u32,
            "value" => {
                map.value_size = types.size(target) as u32;
                map.special.add(types, target, 0);
            }
            _ => {}
        }
    }
    if OF_OBJECTS.contains(&map.kind) {
        return Err(unknown_kind(&name_of(map.kind)));
    }
    check(&map)?;
    Ok(map)
}

/// Kinds of maps that the virtual kernel has (`enum bpf_map_type`).
pub(crate) mod kind {
    pub const HASH: u32 = 1;
    pub const ARRAY: u32 = 2;
    pub const PERF_EVENT_ARRAY: u32 = 4;
    pub const PERCPU_HASH: u32 = 5;
    pub const PERCPU_ARRAY: u32 = 6;
    pub const LRU_HASH: u32 = 9;
    pub const LRU_PERCPU_HASH: u32 = 10;
    pub const ARRAY_OF_MAPS: u32 = 12;
    pub const HASH_OF_MAPS: u32 = 13;
    pub const QUEUE: u32 = 22;
    pub const STACK: u32 = 23;
    pub const RINGBUF: u32 = 27;
    pub const TASK_STORAGE: u32 = 29;
    pub const CGRP_STORAGE: u32 = 32;
    pub const ARENA: u32 = 33;
}

/// The kernel's name of a kind, of those that include/native/scx/enums.h has.
pub(crate) fn name_of(kind: u32) -> String {
    let name = match kind {
        0 => return "UNSPEC (none is given)".to_owned(),
        3 => "PROG_ARRAY",
        kind::PERF_EVENT_ARRAY => "PERF_EVENT_ARRAY",
        7 => "STACK_TRACE",
        kind::LRU_HASH => "LRU_HASH",
        kind::LRU_PERCPU_HASH => "LRU_PERCPU_HASH",
        11 => "LPM_TRIE",
        kind::ARRAY_OF_MAPS => "ARRAY_OF_MAPS",
        kind::HASH_OF_MAPS => "HASH_OF_MAPS",
        kind::RINGBUF => "RINGBUF",
        30 => "BLOOM_FILTER",
        31 => "USER_RINGBUF",
        kind::HASH => "HASH",
        kind::ARRAY => "ARRAY",
        kind::PERCPU_HASH => "PERCPU_HASH",
        kind::PERCPU_ARRAY => "PERCPU_ARRAY",
        kind::QUEUE => "QUEUE",
        kind::STACK => "STACK",
        kind::TASK_STORAGE => "TASK_STORAGE",
        kind::ARENA => "ARENA",
        kind::CGRP_STORAGE => "CGRP_STORAGE",
        other => return other.to_string(),
    };
    name.to_owned()
}

/// `BPF_F_NO_PREALLOC` and `BPF_F_CLONE`, of a map itself.
const NO_PREALLOC: u32 = 1;
const CLONE: u32 = 1 << 9;

/// Largest memory of one map.
const BYTES_MAX: u64 = 4 << 30;

/// Lists the kinds of maps that the virtual kernel has, by the kernel's names.
const KNOWN: [&str; 10] = [
    "HASH",
    "ARRAY",
    "PERCPU_HASH",
    "PERCPU_ARRAY",
    "LRU_HASH",
    "LRU_PERCPU_HASH",
    "QUEUE",
    "STACK",
    "TASK_STORAGE",
    "ARENA",
];

/// Kinds that objects alone have: include/native has no helpers for them.
const OF_OBJECTS: [u32; 5] = [
    kind::RINGBUF,
    kind::PERF_EVENT_ARRAY,
    kind::CGRP_STORAGE,
    kind::ARRAY_OF_MAPS,
    kind::HASH_OF_MAPS,
];

/// Returns whether the virtual kernel has maps of a kind for policies that are compiled natively.
pub fn is_known_kind(name: &str) -> bool {
    KNOWN.contains(&name)
}

/// Returns whether the virtual kernel has maps of a kind for objects.
pub(crate) fn is_there_for_objects(kind: u32) -> bool {
    OF_OBJECTS.contains(&kind) || is_known_kind(&name_of(kind))
}

/// Explains that the virtual kernel has no maps of a kind.
pub fn unknown_kind(name: &str) -> String {
    if name == "USER_RINGBUF" {
        return format!(
            "maps of type {name} are not in the virtual kernel: a process fills them, and no process takes part in a simulation, so a scheduler that decides in user space does not run"
        );
    }
    format!(
        "maps of type {name} are not in the virtual kernel (it has HASH, LRU_HASH, ARRAY, their PERCPU forms, QUEUE, STACK, TASK_STORAGE and ARENA; objects have RINGBUF, PERF_EVENT_ARRAY, CGRP_STORAGE, ARRAY_OF_MAPS and HASH_OF_MAPS, too)"
    )
}

/// The size that libbpf gives a map in place of the one that its definition asks for: a ring buffer gets the next power of two
/// of pages (`adjust_ringbuf_sz()`), and events get an entry for each CPU (`bpf_object__create_map()`).
pub(crate) fn entries_of_libbpf(map: &MapDef) -> u32 {
    const PAGE: u32 = 4096;
    let asked = map.max_entries;
    match map.kind {
        kind::RINGBUF if asked > 0 => {
            let pages = asked.div_ceil(PAGE).checked_next_power_of_two();
            pages
                .and_then(|pages| pages.checked_mul(PAGE))
                .unwrap_or(asked)
        }
        kind::PERF_EVENT_ARRAY if asked == 0 => NR_CPUS_MAX as u32,
        _ => asked,
    }
}

/// Whether the virtual kernel has such a map; the error says what is the matter.
pub(crate) fn check(map: &MapDef) -> Result<(), String> {
    let is = |kinds: &[u32]| kinds.contains(&map.kind);
    let per_key = [
        kind::HASH,
        kind::PERCPU_HASH,
        kind::LRU_HASH,
        kind::LRU_PERCPU_HASH,
        kind::ARRAY,
        kind::PERCPU_ARRAY,
    ];
    let storage = [kind::TASK_STORAGE, kind::CGRP_STORAGE];
    let without_values = [kind::ARENA, kind::RINGBUF, kind::PERF_EVENT_ARRAY];
    let lists = [kind::QUEUE, kind::STACK];
    let of_maps = [kind::ARRAY_OF_MAPS, kind::HASH_OF_MAPS];
    if ![
        per_key.as_slice(),
        &storage,
        &without_values,
        &lists,
        &of_maps,
    ]
    .iter()
    .any(|kinds| is(kinds))
    {
        return Err(unknown_kind(&name_of(map.kind)));
    }
    if !is(&without_values) && map.value_size == 0 {
        return Err("it has no value; declare it with __type(value, …)".to_owned());
    }
    if (is(&per_key) || is(&of_maps)) && map.key_size == 0 {
        return Err("it has no key; declare it with __type(key, …)".to_owned());
    }
    if is(&[kind::ARRAY, kind::PERCPU_ARRAY, kind::ARRAY_OF_MAPS]) && map.key_size != 4 {
        return Err("the key of an array is a u32".to_owned());
    }
    if !is(&storage) && map.max_entries == 0 {
        return Err("max_entries is missing or 0".to_owned());
    }
    let is_whole = |bytes: u32| bytes.is_power_of_two() && bytes.is_multiple_of(4096);
    if is(&[kind::RINGBUF]) && !is_whole(map.max_entries) {
        return Err("max_entries of a ring buffer is a power of two and whole pages".to_owned());
    }
    let bytes = u64::from(map.value_size.next_multiple_of(8)) * u64::from(map.max_entries);
    if !is(&without_values) && bytes > BYTES_MAX {
        return Err(format!("{bytes} bytes of values are more than 4 GiB"));
    }
    if is(&storage) {
        check_storage(map)?;
    }
    match is(&of_maps) {
        true => check_inner(map),
        false => Ok(()),
    }
}

/// Whether the maps in a map are of a kind that can be there (`bpf_map_meta_alloc()`).
fn check_inner(map: &MapDef) -> Result<(), String> {
    let Some(inner) = &map.inner else {
        return Err(
            "it does not say what maps lie in it; declare them with __array(values, …)".to_owned(),
        );
    };
    let name = name_of(inner.kind);
    match inner.kind {
        kind::ARRAY_OF_MAPS | kind::HASH_OF_MAPS => Err(format!(
            "maps of type {name} lie in it, and the kernel has no more than two levels of maps"
        )),
        kind::TASK_STORAGE | kind::CGRP_STORAGE | kind::ARENA | kind::PERF_EVENT_ARRAY => Err(
            format!("maps of type {name} in a map are not in the virtual kernel"),
        ),
        _ => check(inner).map_err(|what| format!("of the maps in it: {what}")),
    }
}

/// Whether a map may lie in another one that was made for maps like a third (`bpf_map_meta_equal()`, `array_map_meta_equal()`).
pub(crate) fn is_like(map: &MapDef, model: &MapDef) -> bool {
    /// `BPF_F_INNER_MAP`: arrays of any length.
    const INNER_MAP: u32 = 1 << 12;
    let of = |map: &MapDef| (map.kind, map.key_size, map.value_size, map.flags);
    let any_length = map.kind != kind::ARRAY || map.flags & INNER_MAP != 0;
    of(map) == of(model)
        && map.special == model.special
        && (any_length || map.max_entries == model.max_entries)
}

/// Definitions that `bpf_local_storage_map_alloc_check()` refuses.
fn check_storage(map: &MapDef) -> Result<(), String> {
    let wrong = if map.flags & NO_PREALLOC == 0 {
        "has no BPF_F_NO_PREALLOC; write __uint(map_flags, BPF_F_NO_PREALLOC)"
    } else if map.flags & !(NO_PREALLOC | CLONE) != 0 {
        "has other flags than BPF_F_NO_PREALLOC and BPF_F_CLONE; leave them out"
    } else if map.key_size != 4 {
        "has no int as its key; write __type(key, int)"
    } else if map.max_entries != 0 {
        "has max_entries; leave it out: there is a value per owner"
    } else {
        return Ok(());
    };
    let of = match map.kind {
        kind::CGRP_STORAGE => "cgroup",
        _ => "task",
    };
    Err(format!("the kernel refuses {of} storage that {wrong}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A definition, for tests of maps, too.
    pub(crate) fn def(kind: u32, key_size: u32, value_size: u32, max_entries: u32) -> MapDef {
        MapDef {
            name: "m".to_owned(),
            kind,
            key_size,
            value_size,
            max_entries,
            flags: 0,
            inner: None,
            slots: Vec::new(),
            special: Special::default(),
            address: 0,
        }
    }

    #[test]
    fn task_storage_is_refused_as_the_kernel_does() {
        let storage = |key, entries, flags| {
            check(&MapDef {
                flags,
                ..def(kind::TASK_STORAGE, key, 8, entries)
            })
        };
        assert_eq!(storage(4, 0, NO_PREALLOC), Ok(()));
        assert_eq!(storage(4, 0, NO_PREALLOC | CLONE), Ok(()));
        for (key, entries, flags, told) in [
            (4, 0, 0, "__uint(map_flags, BPF_F_NO_PREALLOC)"),
            (4, 0, NO_PREALLOC | 2, "other flags"),
            (8, 0, NO_PREALLOC, "__type(key, int)"),
            (0, 0, NO_PREALLOC, "__type(key, int)"),
            (4, 64, NO_PREALLOC, "max_entries"),
        ] {
            let error = storage(key, entries, flags).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn unknown_kinds_are_refused_by_name() {
        let error = check(&def(31, 0, 0, 4096)).unwrap_err();
        assert!(error.contains("type USER_RINGBUF"), "{error}");
        assert_eq!(check(&def(kind::RINGBUF, 0, 0, 4096)), Ok(()));
        let error = check(&def(kind::RINGBUF, 0, 0, 4000)).unwrap_err();
        assert!(error.contains("power of two"), "{error}");
        let error = check(&def(31, 0, 0, 4096)).unwrap_err();
        assert!(error.contains("a process fills them"), "{error}");
        let error = check(&def(99, 0, 0, 4096)).unwrap_err();
        assert!(error.contains("type 99"), "{error}");
    }

    #[test]
    fn libbpf_rounds_the_size_of_a_ring_buffer() {
        for (asked, given) in [
            (4096, 4096),
            (1, 4096),
            (4097, 8192),
            (4096 * 24, 4096 * 32),
            (u32::MAX, u32::MAX),
            (0, 0),
        ] {
            let map = def(kind::RINGBUF, 0, 0, asked);
            assert_eq!(entries_of_libbpf(&map), given, "{asked}");
        }
        assert_eq!(entries_of_libbpf(&def(kind::QUEUE, 0, 8, 7)), 7);
        let events = def(kind::PERF_EVENT_ARRAY, 4, 4, 0);
        assert_eq!(entries_of_libbpf(&events), NR_CPUS_MAX as u32);
    }

    #[test]
    fn maps_in_maps_are_of_one_further_level() {
        let outer = |key, inner: MapDef| MapDef {
            inner: Some(Box::new(inner)),
            ..def(kind::ARRAY_OF_MAPS, key, 4, 2)
        };
        assert_eq!(check(&outer(4, def(kind::QUEUE, 0, 8, 4))), Ok(()));
        for (map, expected) in [
            (
                outer(8, def(kind::QUEUE, 0, 8, 4)),
                "the key of an array is a u32",
            ),
            (
                outer(4, def(kind::QUEUE, 0, 8, 0)),
                "of the maps in it: max_entries",
            ),
            (outer(4, def(kind::ARENA, 0, 0, 4)), "type ARENA in a map"),
            (
                outer(4, outer(4, def(kind::QUEUE, 0, 8, 4))),
                "no more than two levels",
            ),
            (def(kind::HASH_OF_MAPS, 4, 4, 2), "__array(values, …)"),
        ] {
            let error = check(&map).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_map_in_a_map_is_like_its_model_but_for_its_length() {
        let model = def(kind::HASH, 4, 8, 2);
        assert!(is_like(&def(kind::HASH, 4, 8, 5), &model));
        assert!(!is_like(&def(kind::HASH, 4, 12, 2), &model));
        assert!(!is_like(&def(kind::LRU_HASH, 4, 8, 2), &model));
        let array = def(kind::ARRAY, 4, 8, 2);
        assert!(!is_like(&def(kind::ARRAY, 4, 8, 5), &array));
        let of_any_length = |entries| MapDef {
            flags: 1 << 12,
            ..def(kind::ARRAY, 4, 8, entries)
        };
        assert!(is_like(&of_any_length(5), &of_any_length(2)));
    }
}
