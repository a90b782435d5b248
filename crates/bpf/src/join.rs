//! Joins several objects to one, as libbpf's linker does (`bpftool gen object`): sections of one name follow each other, and a
//! symbol that one object wants is the one that another defines.

use std::collections::BTreeMap;

use crate::btf::SectionVar;
use crate::elf::{Elf, ElfError, Export, Link};

/// Sections of variables in the arena keep their distance from a line of the cache to the next.
const ALIGNMENT_MAX: u64 = 4096;

/// Joins objects; each has a name for messages.
///
/// # Errors
/// If two objects define one symbol, or their licences differ.
pub fn join(objects: Vec<(String, Elf)>) -> Result<Elf, ElfError> {
    let mut objects = objects.into_iter();
    let Some((first, mut joined)) = objects.next() else {
        return Err(ElfError("there is no object".to_owned()));
    };
    let mut places = vec![Places::default()];
    let mut names = vec![first];
    for (name, object) in objects {
        if joined.license.is_empty() {
            joined.license.clone_from(&object.license);
        }
        // An object may leave it to the others.
        if !object.license.is_empty() && object.license != joined.license {
            return Err(ElfError(format!(
                "the licence of {name} is '{}', and the licence of {} is '{}'",
                object.license, names[0], joined.license
            )));
        }
        places.push(add(&mut joined, object));
        names.push(name);
    }
    let chosen = choose(&joined.exports, &places, &names)?;
    resolve(&mut joined, &chosen);
    Ok(joined)
}

/// Where the parts of one object begin in the whole.
#[derive(Clone, Default)]
struct Places {
    functions: usize,
    exports: usize,
}

/// Appends an object to the whole; its links refer to the whole then.
fn add(joined: &mut Elf, object: Elf) -> Places {
    let types = joined.btf.append(&object.btf);
    let places = Places {
        functions: joined.functions.len(),
        exports: joined.exports.len(),
    };
    let mut starts = BTreeMap::new();
    for section in &object.data {
        let own = joined.data.iter_mut().find(|own| own.name == section.name);
        let Some(own) = own else {
            joined.data.push(section.clone());
            continue;
        };
        let alignment = section.alignment.clamp(8, ALIGNMENT_MAX);
        let start = (own.bytes.len() as u64).next_multiple_of(alignment);
        own.bytes.resize(start as usize, 0);
        own.bytes.extend(&section.bytes);
        own.alignment = own.alignment.max(section.alignment);
        starts.insert(section.name.clone(), start);
    }
    let moved = |link: &Link| match link {
        Link::Function(index) => Link::Function(index + places.functions),
        Link::Data { section, offset } => Link::Data {
            section: section.clone(),
            offset: offset + starts.get(section).copied().unwrap_or(0),
        },
        other => other.clone(),
    };
    for section in &object.data {
        let start = starts.get(&section.name).copied().unwrap_or(0);
        let pointers = section.pointers.iter();
        let pointers: Vec<(u64, Link)> = pointers.map(|(at, to)| (at + start, moved(to))).collect();
        if let Some(own) = joined.data.iter_mut().find(|own| own.name == section.name) {
            own.pointers.retain(|at, _| *at < start);
            own.pointers.extend(pointers);
        }
        let vars = object.btf.section(&section.name).iter();
        let vars = vars
            .filter(|var| !object.wants(&object.btf.get(var.var).name))
            .map(|var| SectionVar {
                var: var.var + types,
                offset: var.offset + start as u32,
                size: var.size,
            });
        joined.btf.extend_section(&section.name, vars.collect());
    }
    // Instructions of a section are numbered on, so that lines and questions of CO-RE are found.
    let mut slots = BTreeMap::new();
    for function in &joined.functions {
        let end = function.start + function.insns.len();
        let known = slots.entry(function.section.clone()).or_insert(0);
        *known = end.max(*known);
    }
    let slot = |section: &str| slots.get(section).copied().unwrap_or(0);
    for mut function in object.functions {
        function.start += slot(&function.section);
        function.links = function
            .links
            .iter()
            .map(|(at, link)| (*at, moved(link)))
            .collect();
        joined.functions.push(function);
    }
    for (section, info) in object.info {
        let first = slot(&section);
        let own = joined.info.entry(section).or_default();
        let lines = info.lines.into_iter();
        own.lines.extend(lines.map(|(at, line)| (at + first, line)));
        for (at, mut relo) in info.relos {
            relo.type_id += types;
            own.relos.insert(at + first, relo);
        }
    }
    let maps = object.maps.into_iter().map(|mut map| {
        map.type_id += types;
        map
    });
    for map in maps {
        if !joined.maps.iter().any(|known| known.name == map.name) {
            joined.maps.push(map);
        }
    }
    joined
        .externs
        .extend(object.externs.into_iter().map(|mut it| {
            if it.type_id > 0 {
                it.type_id += types;
            }
            it
        }));
    for mut ops in object.ops {
        ops.type_id += types;
        for function in ops.functions.values_mut() {
            *function += places.functions;
        }
        joined.ops.push(ops);
    }
    let exports = object.exports.into_iter().map(|it| Export {
        place: moved(&it.place),
        ..it
    });
    joined.exports.extend(exports);
    joined.data.sort_by(|a, b| a.name.cmp(&b.name));
    places
}

/// The definition of each symbol: the strong one, or the first weak one.
fn choose(
    exports: &[Export],
    places: &[Places],
    names: &[String],
) -> Result<BTreeMap<String, Export>, ElfError> {
    let owner = |index: usize| {
        let behind = places.partition_point(|it| it.exports <= index);
        &names[behind.saturating_sub(1)]
    };
    let mut chosen: BTreeMap<String, (usize, Export)> = BTreeMap::new();
    for (index, export) in exports.iter().enumerate() {
        match chosen.get(&export.name) {
            Some((other, known)) if !known.is_weak && !export.is_weak => {
                return Err(ElfError(format!(
                    "{} and {} both define {}: leave one of them out, or make one weak",
                    owner(*other),
                    owner(index),
                    export.name
                )));
            }
            Some((_, known)) if !known.is_weak || export.is_weak => {}
            _ => {
                chosen.insert(export.name.clone(), (index, export.clone()));
            }
        }
    }
    Ok(chosen
        .into_iter()
        .map(|(name, (_, export))| (name, export))
        .collect())
}

/// Directs every link to the chosen definition.
fn resolve(joined: &mut Elf, chosen: &BTreeMap<String, Export>) {
    // A definition that another one replaces.
    let replaced: Vec<(Export, Link)> = joined
        .exports
        .iter()
        .filter_map(|it| {
            let by = &chosen.get(&it.name)?.place;
            (*by != it.place).then(|| (it.clone(), by.clone()))
        })
        .collect();
    let resolved = |link: &Link| match link {
        Link::Extern(name) => chosen.get(name).map(|it| it.place.clone()),
        Link::Function(_) => {
            let mut replaced = replaced.iter();
            let found = replaced.find(|(export, _)| export.place == *link);
            found.map(|(_, by)| by.clone())
        }
        Link::Data { section, offset } => replaced.iter().find_map(|(export, by)| {
            let (
                Link::Data {
                    section: of,
                    offset: at,
                },
                Link::Data {
                    section: to,
                    offset: start,
                },
            ) = (&export.place, by)
            else {
                return None;
            };
            let within = offset.checked_sub(*at)?;
            (of == section && within < export.bytes.max(1)).then(|| Link::Data {
                section: to.clone(),
                offset: start + within,
            })
        }),
        _ => None,
    };
    for function in &mut joined.functions {
        for (slot, link) in &mut function.links {
            let Some(to) = resolved(link) else { continue };
            if let (Link::Extern(_), Link::Data { section, offset }) = (&*link, &to) {
                // The instruction still has what it adds to the symbol.
                let addend = i64::from(function.insns[*slot].imm);
                *link = Link::Data {
                    section: section.clone(),
                    offset: (*offset as i64 + addend) as u64,
                };
                continue;
            }
            *link = to;
        }
    }
    for section in &mut joined.data {
        for (at, link) in &mut section.pointers {
            let Some(to) = resolved(link) else { continue };
            if let (
                Link::Extern(_),
                Link::Data {
                    section: of,
                    offset,
                },
            ) = (&*link, &to)
            {
                let stored = section.bytes.get(*at as usize..*at as usize + 8);
                let stored = stored.and_then(|bytes| bytes.try_into().ok());
                let addend = stored.map_or(0, i64::from_le_bytes);
                *link = Link::Data {
                    section: of.clone(),
                    offset: (*offset as i64 + addend) as u64,
                };
                continue;
            }
            *link = to;
        }
    }
    let own: Vec<String> = joined
        .externs
        .iter()
        .filter(|it| !chosen.contains_key(&it.name))
        .map(|it| it.name.clone())
        .collect();
    let mut kept: Vec<crate::elf::Extern> = Vec::new();
    for it in joined.externs.drain(..) {
        if own.contains(&it.name) {
            match kept.iter_mut().find(|known| known.name == it.name) {
                // A symbol is weak if all who want it say so.
                Some(known) => {
                    known.is_weak &= it.is_weak;
                    if known.section.is_empty() {
                        known.section = it.section;
                        known.type_id = it.type_id;
                    }
                }
                None => kept.push(it),
            }
        }
    }
    joined.externs = kept;
}
