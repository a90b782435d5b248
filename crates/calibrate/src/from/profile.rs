//! Makes a profile of what was found.

use std::fmt::Write as _;
use std::path::Path;

use schedlab_machine::{CACHE_BYTES_MAX, CAPACITY_SCALE, Change, Machine, SourceKind, Topology};
use schedlab_trace::counted;

use super::error::FromError;
use super::found::{Found, FoundCpu};
use super::nearest::{RULE, nearest};
use crate::Report;

/// Makes the profile of the machine that `file` describes.
pub(super) fn of(file: &str, found: &Found) -> Result<Report, FromError> {
    let mut notes = found.notes.clone();
    let triples = triples(found);
    let topology = Topology::irregular(&triples).map_err(|fault| {
        FromError::foreign(file, format!("what it tells contradicts itself: {fault}"))
    })?;
    let highest = found.cpus.iter().filter_map(|cpu| cpu.capacity).max();
    let is_hybrid = found
        .cpus
        .iter()
        .any(|cpu| cpu.capacity.is_some() && cpu.capacity != highest);
    let base = nearest(&topology, is_hybrid);
    notes.push(format!(
        "costs are copied from the profile {}: {RULE}",
        base.name
    ));
    let numbers: Vec<usize> = found.cpus.iter().map(|cpu| cpu.number).collect();
    if numbers
        .iter()
        .enumerate()
        .any(|(place, &number)| place != number)
    {
        let first = numbers
            .iter()
            .enumerate()
            .find(|&(place, &number)| place != number);
        let (place, number) = first.expect("one differs");
        notes.push(format!(
            "CPU {number} there is CPU {place} here, and so on: the profile numbers the CPUs that are online from 0"
        ));
    }
    let nodes = &found.nodes;
    if nodes
        .iter()
        .enumerate()
        .any(|(place, &number)| place != number)
    {
        let list: Vec<String> = nodes.iter().map(usize::to_string).collect();
        notes.push(format!(
            "nodes {} are 0 to {} here",
            list.join(", "),
            nodes.len() - 1
        ));
    }
    if let Some(processor) = &found.processor {
        notes.push(format!("the processor calls itself {processor}"));
    }
    let mut text = copied(&base).to_toml();
    replace_section(&mut text, &sections(found, &topology));
    if llc_bytes(found).is_none() {
        // It says what happens beyond a cache whose size nobody knows.
        text = without_line(&text, "beyond_llc_pct = ");
    }
    if base.interference.smt_share_pct == 100 && topology.nr_cpus() > topology.nr_cores() as usize {
        notes.push(format!(
            "interference.smt_share_pct is that of a machine without hardware threads ({}): set it",
            base.name
        ));
    }
    let machine = Machine::from_toml(file, &text)?;
    let machine = machine.with_changes(&changes(found, &machine, &mut notes))?;
    let machine = named(machine, file, &topology);
    Ok(Report { machine, notes })
}

/// `base` with each number marked as copied. What the kernel's source says holds on the other machine, too. A
/// background belongs to its machine alone.
fn copied(base: &Machine) -> Machine {
    let mut base = base.clone();
    base.background.clear();
    let changes: Vec<Change> = base
        .provenance()
        .iter()
        .filter(|known| known.kind != SourceKind::Kernel && !known.field.starts_with("topology."))
        .filter(|known| !known.field.starts_with("core_kinds."))
        .filter(|known| !known.field.starts_with("background."))
        .map(|known| Change {
            field: known.field.clone(),
            value: known.value.clone(),
            source: format!("copied: from {} ({})", base.name, known.source),
        })
        .collect();
    let quoted = |change: Change| {
        // Words are the only values that are not numbers, truth values or lists.
        let is_word = change.value.parse::<u64>().is_err()
            && change.value.parse::<bool>().is_err()
            && !change.value.starts_with('[');
        Change {
            value: if is_word {
                format!("{:?}", change.value)
            } else {
                change.value
            },
            ..change
        }
    };
    let changes: Vec<Change> = changes.into_iter().map(quoted).collect();
    base.with_changes(&changes)
        .expect("a profile with other sources is a profile")
}

fn without_line(text: &str, start: &str) -> String {
    let kept = text.lines().filter(|line| !line.starts_with(start));
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// Puts `sections` in the place of `[topology]` and of all kinds of core.
fn replace_section(text: &mut String, sections: &str) {
    let mut out = String::new();
    for (index, section) in text.split("\n[").enumerate() {
        match section {
            head if index == 0 => out.push_str(head),
            topology if topology.starts_with("topology]") => out.push_str(sections),
            kind if kind.starts_with("core_kinds.") => {}
            other => {
                out.push_str("\n[");
                out.push_str(other);
            }
        }
    }
    *text = out;
}

/// Writes the sections that the machine's own file describes.
fn sections(found: &Found, topology: &Topology) -> String {
    let source = format!("measured: told by {}", found.told_by);
    let mut out = String::from("\n[topology]\n");
    let mut put = |field: &str, value: String, source: &str| {
        let _ = writeln!(out, "{field} = {{ value = {value}, source = {source:?} }}");
    };
    match topology.regular() {
        Some((shape, numbering)) => {
            let fields = [
                "nodes",
                "llcs_per_node",
                "cores_per_llc",
                "threads_per_core",
            ];
            for (field, value) in fields.into_iter().zip(shape) {
                put(field, value.to_string(), &source);
            }
            if numbering == schedlab_machine::Numbering::CoreByCore {
                put("numbering", "\"core-by-core\"".to_owned(), &source);
            }
        }
        None => put("cpus", format!("{:?}", topology.triples()), &source),
    }
    let place = |node: usize| found.nodes.iter().position(|&known| known == node);
    if let Some(distances) = &found.distances
        && distances.len() > 1
    {
        put("distances", format!("{distances:?}"), &source);
    }
    let without: Vec<usize> = found
        .nodes_without_memory
        .iter()
        .filter_map(|&node| place(node))
        .collect();
    if !without.is_empty() {
        put("nodes_without_memory", format!("{without:?}"), &source);
    }
    if let Some(bytes) = llc_bytes(found) {
        put("llc_bytes", format!("{bytes:?}"), &source);
    }
    for (name, kind) in kinds(found, topology) {
        let _ = writeln!(out, "\n[core_kinds.{name}]");
        for (field, value, kind_source) in kind {
            let source = kind_source.unwrap_or(&source);
            let _ = writeln!(out, "{field} = {{ value = {value}, source = {source:?} }}");
        }
    }
    out
}

/// `[core, llc, node]` of each CPU, numbered in the order of first appearance; nodes by their places. Where nodes cut a cache
/// into parts (sub-NUMA clusters) each part counts as a cache.
fn triples(found: &Found) -> Vec<[u32; 3]> {
    fn number<T: PartialEq>(seen: &mut Vec<T>, what: T) -> u32 {
        let place = seen.iter().position(|known| *known == what);
        place.unwrap_or_else(|| {
            seen.push(what);
            seen.len() - 1
        }) as u32
    }
    let (mut cores, mut llcs) = (Vec::new(), Vec::new());
    let place = |node: usize| {
        found
            .nodes
            .iter()
            .position(|&known| known == node)
            .unwrap_or(0)
    };
    found
        .cpus
        .iter()
        .map(|cpu| {
            let llc = (&cpu.llc, cpu.node);
            let core = (&cpu.core, llc);
            [
                number(&mut cores, core),
                number(&mut llcs, llc),
                place(cpu.node) as u32,
            ]
        })
        .collect()
}

/// Bytes of each last-level cache in the order of the topology; one number if all are alike. A cache that nodes cut has a
/// share for each part.
fn llc_bytes(found: &Found) -> Option<Vec<u64>> {
    let mut seen: Vec<(&String, usize)> = Vec::new();
    for cpu in &found.cpus {
        if !seen.contains(&(&cpu.llc, cpu.node)) {
            seen.push((&cpu.llc, cpu.node));
        }
    }
    let bytes: Option<Vec<u64>> = seen
        .iter()
        .map(|(name, _)| {
            let parts = seen.iter().filter(|(other, _)| other == name).count() as u64;
            let known = found.llc_bytes.iter().find(|(known, _)| known == *name);
            known.map(|(_, bytes)| (bytes / parts).max(1))
        })
        .collect();
    let bytes = bytes?;
    match bytes.iter().all(|one| *one == bytes[0]) {
        true => Some(vec![bytes[0]]),
        false => Some(bytes),
    }
}

/// Capacity and private cache, and the cores that have them.
type Kind = ((u64, Option<u64>), Vec<u32>);

type Fields = Vec<(&'static str, String, Option<&'static str>)>;

/// Kinds of core, by capacity and private cache; none if all are alike.
fn kinds(found: &Found, topology: &Topology) -> Vec<(String, Fields)> {
    let highest = found
        .cpus
        .iter()
        .filter_map(|cpu| cpu.capacity)
        .max()
        .unwrap_or(1)
        .max(1);
    let capacity = |cpu: &FoundCpu| {
        let capacity = cpu.capacity.unwrap_or(highest);
        (capacity * u64::from(CAPACITY_SCALE) / highest).clamp(1, CAPACITY_SCALE.into())
    };
    let mut kinds: Vec<Kind> = Vec::new();
    for (cpu, triple) in found.cpus.iter().zip(topology.triples()) {
        let key = (capacity(cpu), cpu.cache_bytes);
        let place = kinds.iter().position(|(known, _)| *known == key);
        let place = place.unwrap_or_else(|| {
            kinds.push((key, Vec::new()));
            kinds.len() - 1
        });
        if !kinds[place].1.contains(&triple[0])
            && !kinds.iter().any(|(_, cores)| cores.contains(&triple[0]))
        {
            kinds[place].1.push(triple[0]);
        }
    }
    kinds.retain(|(_, cores)| !cores.is_empty());
    if kinds.len() < 2 {
        return Vec::new();
    }
    let fields = |(index, ((capacity, cache), cores)): (usize, Kind)| {
        let cores: schedlab_trace::CpuSet = cores.into_iter().map(schedlab_trace::CpuId).collect();
        let mut fields: Fields = vec![
            ("cores", format!("\"{cores}\""), None),
            ("capacity", capacity.to_string(), found.capacity_source),
        ];
        if let Some(bytes) = cache {
            fields.push(("cache_bytes", bytes.to_string(), None));
        }
        (format!("kind{index}"), fields)
    };
    kinds.into_iter().enumerate().map(fields).collect()
}

/// The private cache of the first CPU, as far as a profile can have it.
fn changes(found: &Found, machine: &Machine, notes: &mut Vec<String>) -> Vec<Change> {
    let Some(private) = found.private else {
        return Vec::new();
    };
    let memory = &machine.memory;
    let line = if private.line_bytes > 0 {
        private.line_bytes
    } else {
        memory.line_bytes
    };
    let ways = if private.ways > 0 {
        private.ways
    } else {
        memory.ways
    };
    let way = u64::from(line) * u64::from(ways);
    let fits = line.is_power_of_two()
        && (16..=4_096).contains(&line)
        && (1..=64).contains(&ways)
        && private.bytes.is_multiple_of(way)
        && (private.bytes / way).is_power_of_two()
        && private.bytes <= CACHE_BYTES_MAX;
    if !fits {
        notes.push(format!(
            "the private cache of {} bytes, {ways} ways and lines of {line} bytes has no power of two of sets: that of the copied profile stays",
            private.bytes
        ));
        return Vec::new();
    }
    let change = |field: &str, value: u64, source: String| Change {
        field: format!("memory.{field}"),
        value: value.to_string(),
        source,
    };
    let told = || format!("measured: told by {}", found.told_by);
    let mut changes = vec![change("cache_bytes", private.bytes, told())];
    if private.ways > 0 {
        changes.push(change("ways", ways.into(), told()));
    }
    if private.line_bytes > 0 {
        changes.push(change("line_bytes", line.into(), told()));
    }
    changes
}

/// The machine under the name of its file.
fn named(mut machine: Machine, file: &str, topology: &Topology) -> Machine {
    let stem = Path::new(file)
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or("");
    let clean: String = stem
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    let clean = clean.trim_matches('-');
    machine.name = if clean.is_empty() {
        "other-machine".to_owned()
    } else {
        clean.to_owned()
    };
    machine.summary = format!(
        "{}, {} and {}, as another machine tells",
        counted(topology.nr_cpus() as u64, "CPU"),
        counted(u64::from(topology.nr_cores()), "core"),
        counted(u64::from(topology.nr_llcs()), "last-level cache"),
    );
    machine.calibrated_on = Vec::new();
    machine.tuning_candidates = Vec::new();
    machine
}
