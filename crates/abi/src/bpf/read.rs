//! Reads from an object's BTF: the table of ops, maps, options.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use schedlab_bpf::btf::{Btf, Kind, TypeId, essential};
use schedlab_bpf::elf::{Elf, Link, MapVar, StructOps};
use schedlab_bpf::join::join;
use schedlab_bpf::link::Placement;
use schedlab_bpf::recorded::{self, ON_ATTACH, Recorded};
use schedlab_bpf::transcript::{Step, Transcript};
use schedlab_engine::KernelVersion;

use super::decisions::{Checked, Decisions};
use super::{CID_OPS, KernelTypes, Program, Recording, VirtualKernel};
use crate::ObjectError;
use crate::layout::{NR_CPUS_MAX, Ops};
use crate::map_def::{self, MapDef, Special};
use crate::options::{OptionKind, PolicyOption};

/// The table of ops of a scheduler that gets CPUs.
const OPS: &str = "sched_ext_ops";

/// Said of a table of the cid form, as the kernel's log says it (`bpf_scx_reg_cid()`).
const NO_ARENA: &str = "the kernel refuses a `struct sched_ext_ops_cid` whose programs have no arena, or several: declare one map of BPF_MAP_TYPE_ARENA";

/// Further facts about a policy that is an object.
pub struct Facts {
    pub program: Program,
    pub ops_name: String,
    /// The file that most ops are in.
    pub file: String,
    pub maps: Vec<MapDef>,
    pub options: Vec<PolicyOption>,
    /// Name, address, bytes.
    pub globals: Vec<(String, u64, usize)>,
}

/// Says that an object cannot be read.
fn unreadable(policy: &str) -> impl Fn(String) -> ObjectError + '_ {
    |reason| ObjectError::Unreadable {
        policy: policy.to_owned(),
        reason,
    }
}

/// Reads an object. Adds to `errors` what is wrong where others can still be found.
pub fn read(
    policy: &str,
    parts: &[(String, Vec<u8>)],
    decisions: &Decisions,
    types: &Arc<KernelTypes>,
    errors: &mut Vec<ObjectError>,
) -> Result<Facts, ObjectError> {
    let unreadable = &unreadable(policy);
    let mut elves = Vec::new();
    for (name, bytes) in parts {
        let elf = Elf::read(bytes).map_err(|error| match parts.len() {
            1 => unreadable(error.to_string()),
            _ => unreadable(format!("{name}: {error}")),
        })?;
        elves.push((name.clone(), elf));
    }
    let mut elf = join(elves).map_err(|error| unreadable(error.to_string()))?;
    make_room(&mut elf);
    let version = KernelVersion::V7_2;
    let kernel = VirtualKernel {
        types,
        version,
        is_cid: false,
    };
    let (placement, _) = Placement::new(&elf, &kernel).map_err(|error| unreadable(error.0))?;
    let (ops, is_cid) = ops_of(policy, &elf)?;
    let decided = decisions.check(&elf, &placement);
    let checked = decided.map_err(|text| ObjectError::Decision { text })?;
    let without = &checked.without;
    let found = table(policy, &elf, (&ops, is_cid), types.of(version), without);
    let (table, functions) = found.map_err(unreadable)?;
    let attach = elf.functions.iter().enumerate();
    let attach = attach.filter(|(_, of)| of.section == ON_ATTACH);
    let attach = attach.map(|(index, _)| index).collect();
    let mut maps = Vec::new();
    for (index, map) in elf.maps.iter().enumerate() {
        let mut def = read_map(&elf.btf, &map.name, map.type_id, index as u64 * 8);
        if def.max_entries == 0 && checked.is_sized(index) {
            // Its loader says how many; each run asks for the number.
            def.max_entries = 1;
        }
        def.max_entries = map_def::entries_of_libbpf(&def);
        let known = map_def::check(&def).and_then(|()| {
            def.slots = slots(&elf, map)?;
            Ok(def)
        });
        match known {
            Ok(map) => maps.push(map),
            Err(reason) => errors.push(ObjectError::Map {
                policy: policy.to_owned(),
                place: policy.to_owned(),
                map: map.name.clone(),
                reason,
            }),
        }
    }
    let arenas = maps.iter().filter(|map| map.kind == map_def::kind::ARENA);
    if is_cid && arenas.count() != 1 {
        return Err(unreadable(NO_ARENA.to_owned()));
    }
    if placement.arena_section.is_some() && !maps.iter().any(|map| map.kind == map_def::kind::ARENA)
    {
        return Err(unreadable(
            "it has variables in an arena, and no arena".to_owned(),
        ));
    }
    let variables = variables(&elf, &placement);
    let enumerators = variables.iter().filter_map(|variable| {
        let name = variable
            .name
            .strip_prefix("__")
            .filter(|name| name.starts_with("SCX_"))?;
        let is_one = variable.is_constant && variable.bytes == 8;
        is_one.then(|| (variable.address, name.to_owned()))
    });
    let enumerators = enumerators.collect();
    let cpu_counts = variables.iter().filter(|it| is_cpu_count(it));
    let cpu_counts = cpu_counts.map(|it| (it.address, it.bytes)).collect();
    let options = variables
        .iter()
        .filter_map(|variable| option(&elf, variable))
        .collect();
    let globals = variables
        .iter()
        .map(|it| (it.name.clone(), it.address, it.bytes as usize));
    Ok(Facts {
        ops_name: ops.name.clone(),
        file: file_of(&elf, &functions),
        maps,
        options,
        globals: globals.collect(),
        program: Program {
            types: Arc::clone(types),
            placement,
            ops: functions,
            table,
            is_cid,
            decisions: checked,
            attach,
            recording: None,
            before: Vec::new(),
            enumerators,
            cpu_counts,
            translated: [OnceLock::new(), OnceLock::new()],
            elf,
        },
    })
}

/// Reads what a loader has loaded. Adds to `errors` what is wrong where others can still be found.
pub fn recorded(
    policy: &str,
    transcript: &Transcript,
    types: &Arc<KernelTypes>,
    errors: &mut Vec<ObjectError>,
) -> Result<Facts, ObjectError> {
    let unreadable = unreadable(policy);
    let version = KernelVersion::V7_2;
    let kernel = VirtualKernel {
        types,
        version,
        is_cid: false,
    };
    let mut recorded = recorded::object(transcript, types.of(version))
        .map_err(|error| unreadable(error.to_string()))?;
    let mut kept = keep_known(&mut recorded, transcript);
    let elf = &recorded.elf;
    let (placement, _) = Placement::new(elf, &kernel).map_err(|error| unreadable(error.0))?;
    let mut maps = Vec::new();
    kept.retain(|&index| {
        let name = elf.maps[index].name.clone();
        let map = MapDef {
            address: index as u64 * 8,
            ..recorded_map(transcript, &recorded.btfs, recorded.maps[index], name)
        };
        match map_def::check(&map) {
            Ok(()) => maps.push(map),
            // A loader tries out what maps a kernel has.
            Err(_) if !recorded.used.contains(&map.name) => return false,
            Err(reason) => errors.push(ObjectError::Map {
                policy: policy.to_owned(),
                place: policy.to_owned(),
                map: map.name,
                reason,
            }),
        }
        true
    });
    let numbers: Vec<usize> = kept.iter().map(|index| recorded.maps[*index]).collect();
    let mut inner = Vec::new();
    for number in in_maps(transcript, &numbers) {
        let name = format!("map {number} of the loader");
        let map = recorded_map(transcript, &recorded.btfs, number, name);
        // One that is of no kind that is there is refused where it is put into a map.
        if !numbers.contains(&number) && map_def::check(&map).is_ok() {
            inner.push((number, map));
        }
    }
    let mut table = vec![0u8; size_of::<Ops>()];
    let mut functions = Vec::new();
    if let Some(ops) = &transcript.ops {
        let bytes = ops.bytes.len().min(table.len());
        table[..bytes].copy_from_slice(&ops.bytes[..bytes]);
        let programs = ops.programs.iter();
        functions.extend(programs.map(|(at, program)| (*at, recorded.programs[program])));
    }
    let attach = recorded.attach.iter();
    let attach: Vec<usize> = attach.map(|root| recorded.programs[root]).collect();
    let is_op = |function: &usize| functions.iter().any(|(_, op)| op == function);
    let roots = recorded.roots.iter().map(|root| recorded.programs[root]);
    let before = roots.filter(|root| !is_op(root) && !attach.contains(root));
    let before = before.collect();
    let globals = variables(elf, &placement).into_iter();
    let globals = globals.map(|it| (it.name, it.address, it.bytes as usize));
    Ok(Facts {
        ops_name: transcript
            .ops
            .as_ref()
            .map_or(String::new(), |ops| ops.name.clone()),
        file: file_of(elf, &functions),
        maps,
        options: Vec::new(),
        globals: globals.collect(),
        program: Program {
            types: Arc::clone(types),
            placement,
            ops: functions,
            table,
            is_cid: transcript.ops.as_ref().is_some_and(|ops| ops.is_cid),
            decisions: Checked::default(),
            attach,
            recording: Some(Recording::new(transcript, &recorded, &kept, inner)),
            before,
            enumerators: Vec::new(),
            cpu_counts: Vec::new(),
            translated: [OnceLock::new(), OnceLock::new()],
            elf: recorded.elf,
        },
    })
}

/// The definition of a map that a loader has made.
fn recorded_map(transcript: &Transcript, btfs: &[Btf], number: usize, name: String) -> MapDef {
    let record = &transcript.maps[number];
    let inner = record.inner.map(|model| {
        let name = format!("{name}[]");
        Box::new(recorded_map(transcript, btfs, model, name))
    });
    let mut map = MapDef {
        name,
        kind: record.kind,
        key_size: record.key_size,
        value_size: record.value_size,
        max_entries: record.max_entries,
        flags: record.flags,
        inner,
        slots: Vec::new(),
        special: Special::default(),
        address: 0,
    };
    if let Some(btf) = record.btf {
        special(&btfs[btf], record.value_type, 0, &mut map.special);
    }
    map
}

/// The numbers of the maps that a loader puts into some maps of maps.
fn in_maps(transcript: &Transcript, some: &[usize]) -> BTreeSet<usize> {
    let put = transcript.steps.iter().filter_map(|step| match step {
        Step::Update { map, value, .. } => {
            let is_put = transcript.maps[*map].has_maps() && some.contains(map);
            is_put.then(|| step_map(value)).flatten()
        }
        _ => None,
    });
    put.collect()
}

/// The map that a step puts into a map.
pub fn step_map(value: &[u8]) -> Option<usize> {
    let number = u32::from_le_bytes(value.try_into().ok()?);
    Some(number as usize)
}

/// Returns which maps are of a kind that the virtual kernel has. The use of another one ends the run where it is reached: much of a
/// scheduler is for features that its loader has turned off.
fn keep_known(recorded: &mut Recorded, transcript: &Transcript) -> Vec<usize> {
    let mut kept = Vec::new();
    for (index, number) in recorded.maps.iter().enumerate() {
        let kind = transcript.maps[*number].kind;
        if map_def::is_there_for_objects(kind) {
            kept.push(index);
            continue;
        }
        let kind = map_def::name_of(kind);
        let name = &recorded.elf.maps[index].name;
        let functions = recorded.elf.functions.iter_mut();
        for link in functions.flat_map(|function| function.links.values_mut()) {
            if matches!(link, Link::Map(of) if of == name) {
                *link = Link::Missing(format!("the map `{name}`, of type {kind},"));
            }
        }
    }
    kept
}

/// An array that has a section for itself and one element is given room for the largest machine: a loader makes it as large as
/// it needs (`RESIZABLE_ARRAY()`).
fn make_room(elf: &mut Elf) {
    for section in &mut elf.data {
        let [var] = elf.btf.section(&section.name) else {
            continue;
        };
        let name = &elf.btf.get(var.var).name;
        let own = [".data.", ".bss.", ".rodata."]
            .iter()
            .any(|kind| section.name == format!("{kind}{name}"));
        let of = elf.btf.plain(elf.btf.type_of_var(var.var));
        if let Kind::Array { count: 1, .. } = elf.btf.get(of).kind
            && own
        {
            section.bytes.resize(section.bytes.len() * NR_CPUS_MAX, 0);
        }
    }
}

/// The table of ops, and whether it is one of the cid form.
fn ops_of(policy: &str, elf: &Elf) -> Result<(StructOps, bool), ObjectError> {
    let refused = |found: String| {
        Err(ObjectError::Ops {
            policy: policy.to_owned(),
            found,
        })
    };
    let name =
        |ops: &StructOps| essential(&elf.btf.get(elf.btf.plain(ops.type_id)).name).to_owned();
    let tables: Vec<&StructOps> = elf
        .ops
        .iter()
        .filter(|ops| [OPS, CID_OPS].contains(&name(ops).as_str()))
        .collect();
    match tables.as_slice() {
        [ops] => Ok(((*ops).clone(), name(ops) == CID_OPS)),
        [] => refused("there is no `struct sched_ext_ops`".to_owned()),
        several => {
            let names: Vec<&str> = several.iter().map(|ops| ops.name.as_str()).collect();
            refused(format!(
                "there are {} tables: {}",
                several.len(),
                names.join(", ")
            ))
        }
    }
}

/// The table as the virtual kernel has it, and its functions.
type Table = (Vec<u8>, Vec<(usize, usize)>);

/// Members go by their names, as libbpf has it.
fn table(
    policy: &str,
    elf: &Elf,
    (ops, is_cid): (&StructOps, bool),
    kernel: &Btf,
    without: &[String],
) -> Result<Table, String> {
    // Both lie alike, but for what the cid form has not at the end.
    let name = if is_cid { CID_OPS } else { OPS };
    let ours = kernel.named(name).first();
    let ours = ours.ok_or_else(|| format!("the virtual kernel has no struct {name}"))?;
    let mut table = vec![0u8; size_of::<Ops>()];
    let mut functions = Vec::new();
    for member in elf.btf.members(ops.type_id) {
        let from = member.bit_offset as usize / 8;
        let size = elf.btf.size(member.type_id) as usize;
        let bytes = ops
            .bytes
            .get(from..from + size)
            .ok_or("its table of ops is cut")?;
        let function = ops.functions.get(&(from as u64));
        let name = essential(&member.name);
        if without.iter().any(|it| it == name) {
            continue;
        }
        let known = kernel
            .members(*ours)
            .iter()
            .find(|known| known.name == name);
        let Some(known) = known else {
            if function.is_some() || bytes.iter().any(|&byte| byte != 0) {
                return Err(format!(
                    "{policy} has ops.{name}, which is not in the virtual kernel"
                ));
            }
            continue;
        };
        let to = known.bit_offset as usize / 8;
        let room = kernel.size(known.type_id) as usize;
        match function {
            Some(function) => functions.push((to, *function)),
            None => {
                let size = size.min(room);
                table[to..to + size].copy_from_slice(&bytes[..size]);
            }
        }
    }
    Ok((table, functions))
}

fn file_of(elf: &Elf, functions: &[(usize, usize)]) -> String {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for (_, function) in functions {
        if let Some(line) = elf.line(*function, 0) {
            *counts.entry(&line.file).or_default() += 1;
        }
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map_or(String::new(), |(file, _)| file.to_owned())
}

/// The maps that lie in a map from the beginning: keys and numbers.
fn slots(elf: &Elf, map: &MapVar) -> Result<Vec<(u32, usize)>, String> {
    let mut members = elf.btf.members(map.type_id).iter();
    let values = members.find(|member| member.name == "values");
    let start = values.map_or(0, |values| u64::from(values.bit_offset) / 8);
    let slots = map.slots.iter().map(|(at, inner)| {
        let number = elf.maps.iter().position(|map| map.name == *inner);
        let number = number.ok_or_else(|| format!("the map `{inner}` in it is not there"))?;
        Ok((((at - start) / 8) as u32, number))
    });
    slots.collect()
}

fn read_map(btf: &Btf, name: &str, type_id: TypeId, address: u64) -> MapDef {
    let mut map = MapDef {
        name: name.to_owned(),
        kind: 0,
        key_size: 0,
        value_size: 0,
        max_entries: 0,
        flags: 0,
        inner: None,
        slots: Vec::new(),
        special: Special::default(),
        address,
    };
    for member in btf.members(type_id) {
        if member.name == "values" {
            map.inner = read_inner(btf, name, member.type_id).map(Box::new);
            // A descriptor.
            map.value_size = 4;
        }
        let Kind::Ptr(target) = btf.get(btf.plain(member.type_id)).kind else {
            continue;
        };
        let number = match btf.get(btf.plain(target)).kind {
            Kind::Array { count, .. } => count,
            _ => 0,
        };
        match member.name.as_str() {
            "type" => map.kind = number,
            "key_size" => map.key_size = number,
            "value_size" => map.value_size = number,
            "max_entries" => map.max_entries = number,
            "map_flags" => map.flags = number,
            "key" => map.key_size = btf.size(target),
            "value" => {
                map.value_size = btf.size(target);
                special(btf, target, 0, &mut map.special);
            }
            _ => {}
        }
    }
    map
}

/// The definition of the maps in a map: an array of pointers to it.
fn read_inner(btf: &Btf, name: &str, values: TypeId) -> Option<MapDef> {
    let Kind::Array { element, .. } = btf.get(btf.plain(values)).kind else {
        return None;
    };
    let Kind::Ptr(target) = btf.get(btf.plain(element)).kind else {
        return None;
    };
    let target = btf.plain(target);
    matches!(btf.get(target).kind, Kind::Struct(_))
        .then(|| read_map(btf, &format!("{name}[]"), target, 0))
}

/// The fields of a value that are the kernel's, as `Special::add` finds them natively.
fn special(btf: &Btf, type_id: TypeId, offset: usize, found: &mut Special) {
    let id = btf.plain(type_id);
    let here = offset..offset + btf.size(id) as usize;
    match &btf.get(id).kind {
        Kind::Struct(members) => match btf.get(id).name.as_str() {
            "bpf_spin_lock" => found.spin_locks.push(here),
            "bpf_res_spin_lock" => found.res_locks.push(here),
            _ => {
                for member in members {
                    special(
                        btf,
                        member.type_id,
                        offset + member.bit_offset as usize / 8,
                        found,
                    );
                }
            }
        },
        Kind::Array { element, count } => {
            let mut one = Special::default();
            special(btf, *element, 0, &mut one);
            if one != Special::default() {
                for index in 0..*count as usize {
                    special(
                        btf,
                        *element,
                        offset + index * btf.size(*element) as usize,
                        found,
                    );
                }
            }
        }
        Kind::Ptr(target) => {
            let of = btf.get(btf.plain(*target)).name.as_str();
            if matches!(of, "bpf_cpumask" | "task_struct" | "cgroup") {
                found.references.push(here);
            }
        }
        _ => {}
    }
}

/// A global variable.
struct Variable {
    name: String,
    type_id: TypeId,
    address: u64,
    bytes: u32,
    /// Of a section of constants.
    is_constant: bool,
    /// Its bytes, up to eight.
    value: [u8; 8],
}

fn variables(elf: &Elf, placement: &Placement) -> Vec<Variable> {
    let mut found = Vec::new();
    for section in &elf.data {
        let Some(start) = placement.section(&section.name) else {
            continue;
        };
        for var in elf.btf.section(&section.name) {
            let mut value = [0; 8];
            let at = var.offset as usize;
            let bytes = section
                .bytes
                .get(at..(at + 8).min(section.bytes.len()))
                .unwrap_or_default();
            value[..bytes.len()].copy_from_slice(bytes);
            found.push(Variable {
                name: elf.btf.get(var.var).name.clone(),
                type_id: elf.btf.type_of_var(var.var),
                address: start + u64::from(var.offset),
                bytes: var.size,
                is_constant: section.name.starts_with(".rodata"),
                value,
            });
        }
    }
    found
}

/// Whether a loader puts the number of CPUs into a variable: loaders of the kernel tree and of scx do so with these names. 0 and 1 are
/// what the verifier is shown.
fn is_cpu_count(variable: &Variable) -> bool {
    let is_named = ["nr_cpus", "nr_cpu_ids"].contains(&variable.name.as_str());
    let bytes = variable.bytes as usize;
    let is_number = [4, 8].contains(&bytes);
    let [first, rest @ ..] = &variable.value[..bytes.min(8)] else {
        return false;
    };
    let is_unset = *first <= 1 && rest.iter().all(|byte| *byte == 0);
    variable.is_constant && is_named && is_number && is_unset
}

/// An option: a number, bool or enumeration that is `const volatile`.
fn option(elf: &Elf, variable: &Variable) -> Option<PolicyOption> {
    let btf = &elf.btf;
    if !variable.is_constant
        || !is_const_volatile(btf, variable.type_id)
        || variable.name.starts_with("__SCX_")
    {
        return None;
    }
    let plain = btf.plain(variable.type_id);
    let bits = variable.bytes * 8;
    let (kind, signed) = match &btf.get(plain).kind {
        Kind::Int { is_bool: true, .. } => (OptionKind::Bool, false),
        Kind::Int { signed: true, .. } => {
            let half = 1i128 << (bits - 1);
            (
                OptionKind::Integer {
                    min: -half,
                    max: half - 1,
                },
                true,
            )
        }
        Kind::Int { .. } => (
            OptionKind::Integer {
                min: 0,
                max: (1i128 << bits) - 1,
            },
            false,
        ),
        Kind::Enum { values, signed } => {
            let values: Vec<(&str, i128)> = values
                .iter()
                .map(|(name, value)| (name.as_str(), *value))
                .collect();
            (
                OptionKind::Choice(schedlab_trace::options::words(&values)),
                *signed,
            )
        }
        _ => return None,
    };
    let unused = 64u32.checked_sub(bits)?;
    let raw = u64::from_le_bytes(variable.value) << unused;
    let default = match signed {
        true => i128::from(raw as i64 >> unused),
        false => i128::from(raw >> unused),
    };
    Some(PolicyOption {
        name: variable.name.clone(),
        kind,
        default,
        doc: None,
        address: variable.address,
        bytes: variable.bytes as u8,
    })
}

fn is_const_volatile(btf: &Btf, mut id: TypeId) -> bool {
    let (mut is_const, mut is_volatile) = (false, false);
    loop {
        id = match btf.get(id).kind {
            Kind::Const(to) => {
                is_const = true;
                to
            }
            Kind::Volatile(to) => {
                is_volatile = true;
                to
            }
            Kind::Typedef(to) | Kind::TypeTag(to) => to,
            _ => return is_const && is_volatile,
        };
    }
}
