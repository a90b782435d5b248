//! Profile files: TOML in which every number stands beside its source.
//!
//! ```toml
//! [locks]
//! handover_ns = { value = 400, source = "guess" }
//! ```
//!
//! A number, truth value or word without a source does not load. Free text (`name`, `summary`) and
//! the lists that speak about the profile (`calibrated_on`, `tuning_candidates`) need none.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::profile::{
    Calibration, CoreKind, Interference, Locks, Memory, Paths, Policy, SchedExt, TaskLayout, Timers,
};
use crate::shape::{TopologyFile, topology};
use crate::{
    Background, Machine, ProfileError, Provenance, SharedObject, SourceKind, Tcp, background,
    cores, shared, tcp,
};

/// Keys that are about the profile and not of the machine.
const UNSOURCED: [&str; 4] = ["name", "summary", "calibrated_on", "tuning_candidates"];

/// No cost and no count of a profile may exceed this, so that sums of them cannot overflow.
const VALUE_MAX: u64 = 1_000_000_000_000;

/// An instruction takes no longer, so that no clock overflows in an op.
const INSTRUCTION_PS_MAX: u64 = 1_000_000_000;

/// Refilling a KiB takes no longer than this many nanoseconds: it is multiplied by whole caches.
const REFILL_MAX: u64 = 1_000_000;

/// Tables with a section for each name.
const NAMED: [&str; 3] = ["core_kinds", "shared", "background"];

/// The largest cache that is modelled.
pub const CACHE_BYTES_MAX: u64 = 512 << 20;

/// A profile file without its sources.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    name: String,
    summary: String,
    calibrated_on: Vec<Calibration>,
    #[serde(default)]
    tuning_candidates: Vec<String>,
    clock_mhz: u32,
    hz: u32,
    #[serde(default, skip_serializing_if = "Timers::is_default")]
    timers: Timers,
    preemptible_kernel: bool,
    sync_wakeups: bool,
    topology: TopologyFile,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    core_kinds: BTreeMap<String, CoreKind>,
    locks: Locks,
    memory: Memory,
    task_layout: TaskLayout,
    paths: Paths,
    sched_ext: SchedExt,
    policy: Policy,
    interference: Interference,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    shared: BTreeMap<String, SharedObject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tcp: Option<Tcp>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    background: BTreeMap<String, Background>,
}

/// A number to put into a profile, and where it is from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// `section.field`, or `field` outside of the sections.
    pub field: String,
    /// The value as TOML.
    pub value: String,
    /// Its source ([`SourceKind::WORDS`]).
    pub source: String,
}

/// The fault, and its place in the text.
struct Fault {
    span: Range<usize>,
    message: String,
}

impl Fault {
    fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Fault {
            span,
            message: message.into(),
        }
    }
}

impl From<toml::de::Error> for Fault {
    fn from(error: toml::de::Error) -> Self {
        let message = error.message().trim().replace('\n', "; ");
        let hint = match message.as_str() {
            m if m.starts_with("missing field") => ": every field of a profile must be given",
            _ => "",
        };
        Fault::new(error.span().unwrap_or(0..0), format!("{message}{hint}"))
    }
}

/// One sourced value while it is taken out of the table.
struct Sourced {
    provenance: Provenance,
    span: Range<usize>,
}

impl Machine {
    /// Reads a profile. `file` names it in messages.
    pub fn from_toml(file: &str, text: &str) -> Result<Machine, ProfileError> {
        parse(text).map_err(|fault| ProfileError::Invalid {
            file: file.to_owned(),
            line: 1 + text[..fault.span.start.min(text.len())]
                .matches('\n')
                .count(),
            message: fault.message,
        })
    }

    /// Returns the machine with some of its numbers replaced. Reports unknown fields and impossible values as the
    /// reader of files reports them.
    pub fn with_changes(&self, changes: &[Change]) -> Result<Machine, ProfileError> {
        let changed = Machine::from_toml(&self.name, &self.render(changes))?;
        for change in changes {
            let field = |known: &Provenance| known.field == change.field;
            if !changed.provenance.iter().any(field) {
                return Err(ProfileError::Invalid {
                    file: self.name.clone(),
                    line: 1,
                    message: format!("{} is not a field of this machine", change.field),
                });
            }
        }
        Ok(changed)
    }

    /// Returns the machine as a guess of another one: what is known of this one's hardware is not known of that.
    /// A text that the kernel's source contains there, too.
    #[must_use]
    pub fn as_guess(mut self) -> Machine {
        for known in &mut self.provenance {
            if !matches!(known.kind, SourceKind::Kernel | SourceKind::Guess) {
                known.source = format!("guess: copied from {} ({})", self.name, known.source);
                known.kind = SourceKind::Guess;
            }
        }
        self
    }

    /// Returns the profile as a file that [`Machine::from_toml`] reads back to an equal machine.
    pub fn to_toml(&self) -> String {
        self.render(&[])
    }

    fn render(&self, changes: &[Change]) -> String {
        let file = ProfileFile::from(self);
        let table = toml::Table::try_from(&file).expect("a profile is a TOML table");
        let mut out = String::new();
        let mut sections = String::new();
        for (key, value) in &table {
            match value {
                toml::Value::Table(named) if NAMED.contains(&key.as_str()) => {
                    for (name, one) in named {
                        let one = one.as_table().expect("each of them is a table");
                        self.write_section(&mut sections, &format!("{key}.{name}"), one, changes);
                    }
                }
                toml::Value::Table(section) => {
                    self.write_section(&mut sections, key, section, changes);
                }
                _ if UNSOURCED.contains(&key.as_str()) => {
                    let _ = writeln!(out, "{key} = {value}");
                }
                _ => self.write_sourced(&mut out, key, value, changes),
            }
        }
        out + &sections
    }

    fn write_section(
        &self,
        out: &mut String,
        name: &str,
        section: &toml::Table,
        changes: &[Change],
    ) {
        let _ = writeln!(out, "\n[{name}]");
        for (field, value) in section {
            self.write_sourced(out, &format!("{name}.{field}"), value, changes);
        }
    }

    fn write_sourced(
        &self,
        out: &mut String,
        field: &str,
        value: &toml::Value,
        changes: &[Change],
    ) {
        let change = changes.iter().find(|change| change.field == field);
        let section = field.split('.').next();
        let source_of = |same: &dyn Fn(&str) -> bool| {
            let found = self.provenance.iter().find(|known| same(&known.field));
            found.map(|known| known.source.clone())
        };
        let source = change
            .map(|change| change.source.clone())
            .or_else(|| source_of(&|known| known == field))
            // A machine that was limited to some CPUs has its topology in another form.
            .or_else(|| source_of(&|known| known.split('.').next() == section))
            .unwrap_or_else(|| "guess".to_owned());
        let source = toml::Value::String(source);
        let value = change.map_or_else(|| value.to_string(), |change| change.value.clone());
        let key = field.rsplit('.').next().unwrap_or(field);
        let _ = writeln!(out, "{key} = {{ value = {value}, source = {source} }}");
    }
}

fn parse(text: &str) -> Result<Machine, Fault> {
    let mut root = DeTable::parse(text)?;
    let mut sourced = Vec::new();
    for (key, value) in root.get_mut().iter_mut() {
        if !UNSOURCED.contains(&key.get_ref().as_ref()) {
            let is_named = NAMED.contains(&key.get_ref().as_ref());
            let levels = if is_named { 2 } else { 1 };
            take_sources(key.get_ref(), value, levels, &mut sourced)?;
        }
    }
    let whole = root.span();
    let file = ProfileFile::deserialize(toml::de::Deserializer::from(root))?;
    let machine = Machine {
        name: file.name,
        summary: file.summary,
        clock_mhz: file.clock_mhz,
        hz: file.hz,
        timers: file.timers,
        preemptible_kernel: file.preemptible_kernel,
        sync_wakeups: file.sync_wakeups,
        calibrated_on: file.calibrated_on,
        tuning_candidates: file.tuning_candidates,
        topology: topology(&file.topology)
            .map_err(|message| Fault::new(span_of(&sourced, "topology", &whole), message))?,
        core_kinds: file.core_kinds,
        locks: file.locks,
        memory: file.memory,
        task_layout: file.task_layout,
        paths: file.paths,
        sched_ext: file.sched_ext,
        policy: file.policy,
        interference: file.interference,
        shared: file.shared,
        tcp: file.tcp,
        background: file.background,
        provenance: sourced.iter().map(|one| one.provenance.clone()).collect(),
    };
    let mut complaints = complaints(&machine)
        .into_iter()
        .map(|(field, message)| (field.to_owned(), message))
        .chain(cores::complaint(&machine.core_kinds, &machine))
        .chain(shared::complaint(&machine.shared))
        .chain(tcp::complaint(
            machine.tcp.as_ref(),
            machine.paths.socket_send_ns,
        ))
        .chain(background::complaint(&machine.background));
    if let Some((field, message)) = complaints.next() {
        return Err(Fault::new(
            span_of(&sourced, &field, &whole),
            format!("{field}: {message}"),
        ));
    }
    drop(complaints);
    Ok(machine)
}

/// Where the value of `field`, or of the first one in the section `field`, stands.
fn span_of(sourced: &[Sourced], field: &str, whole: &Range<usize>) -> Range<usize> {
    sourced
        .iter()
        .find(|one| {
            let name = &one.provenance.field;
            name == field || name.split('.').next() == Some(field)
        })
        .map_or(whole.clone(), |one| one.span.clone())
}

/// Replaces every `{ value, source }` below `value`, at most so many `levels` of tables deep, by the value, and notes the
/// source.
fn take_sources(
    path: &str,
    value: &mut Spanned<DeValue<'_>>,
    levels: u32,
    sourced: &mut Vec<Sourced>,
) -> Result<(), Fault> {
    let span = value.span();
    let unsourced = || {
        let message = format!(
            "{path} has no source: write {path} = {{ value = …, source = \"…\" }}, source being one of {}",
            SourceKind::forms()
        );
        Fault::new(span.clone(), message)
    };
    let DeValue::Table(table) = value.get_mut() else {
        return Err(unsourced());
    };
    let is_value = table
        .keys()
        .any(|key| matches!(key.get_ref().as_ref(), "value" | "source"));
    if !is_value {
        if levels == 0 {
            return Err(unsourced());
        }
        for (key, inner) in table.iter_mut() {
            let path = format!("{path}.{}", key.get_ref());
            take_sources(&path, inner, levels - 1, sourced)?;
        }
        return Ok(());
    }
    let mut taken = None;
    let mut source = None;
    for (key, inner) in std::mem::take(table) {
        match key.get_ref().as_ref() {
            "value" => taken = Some(inner),
            "source" => source = Some(inner),
            other => {
                let message = format!("{path} has an unknown key {other}: only value and source");
                return Err(Fault::new(key.span(), message));
            }
        }
    }
    let (Some(taken), Some(source)) = (taken, source) else {
        return Err(unsourced());
    };
    let Some(text) = source.get_ref().as_str().map(str::to_owned) else {
        let message = format!("{path}: the source is not text: write it as \"…\"");
        return Err(Fault::new(source.span(), message));
    };
    let Some(kind) = SourceKind::of(&text) else {
        let message = format!(
            "{path}: the source {text:?} has no kind: begin it with one of {}",
            SourceKind::forms()
        );
        return Err(Fault::new(source.span(), message));
    };
    sourced.push(Sourced {
        provenance: Provenance {
            field: path.to_owned(),
            value: shown(path, &taken)?,
            kind,
            source: text,
        },
        span: taken.span(),
    });
    *value = taken;
    Ok(())
}

/// Returns the value as text. Only integers, truth values, words and lists are values of a profile.
fn shown(path: &str, value: &Spanned<DeValue<'_>>) -> Result<String, Fault> {
    match value.get_ref() {
        DeValue::Integer(number) => {
            let parsed = i128::from_str_radix(number.as_str(), number.radix());
            match parsed {
                Ok(parsed) if (0..=i128::from(VALUE_MAX)).contains(&parsed) => {
                    Ok(parsed.to_string())
                }
                _ => Err(Fault::new(
                    value.span(),
                    format!("{path} = {number}: must be from 0 to {VALUE_MAX}"),
                )),
            }
        }
        DeValue::Float(number) => Err(Fault::new(
            value.span(),
            format!(
                "{path} = {}: must be an integer; choose a smaller unit",
                number.as_str()
            ),
        )),
        DeValue::Boolean(truth) => Ok(truth.to_string()),
        DeValue::String(word) => Ok(word.to_string()),
        DeValue::Array(list) => Ok(list_shown(list)),
        _ => Err(Fault::new(
            value.span(),
            format!("{path}: must be an integer, true, false or a word"),
        )),
    }
}

/// A list as text: a short one of numbers or words whole, as TOML.
fn list_shown(list: &[Spanned<DeValue<'_>>]) -> String {
    let shown = |one: &Spanned<DeValue<'_>>| match one.get_ref() {
        DeValue::Integer(number) => Some(number.as_str().replace('_', "")),
        DeValue::String(word) => Some(format!("{word:?}")),
        _ => None,
    };
    let all: Option<Vec<String>> = list.iter().map(shown).collect();
    match all {
        Some(all) if all.len() <= 16 => format!("[{}]", all.join(", ")),
        _ => format!("{} entries", list.len()),
    }
}

/// Returns an impossible value in a machine: the field and the remedy.
fn complaints(machine: &Machine) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut rule = |holds: bool, field: &'static str, message: &str| {
        if !holds {
            found.push((field, message.to_owned()));
        }
    };
    let memory = &machine.memory;
    let layout = &machine.task_layout;
    let interference = &machine.interference;
    rule(machine.clock_mhz > 0, "clock_mhz", "must be above 0");
    let instruction_ps = machine.policy.instruction_ps;
    rule(
        instruction_ps.is_none_or(|ps| ps <= INSTRUCTION_PS_MAX),
        "policy.instruction_ps",
        "must be at most 1000000000",
    );
    rule(
        (1..=10_000).contains(&machine.hz),
        "hz",
        "must be 1 to 10000",
    );
    rule(
        memory.line_bytes.is_power_of_two() && (16..=4_096).contains(&memory.line_bytes),
        "memory.line_bytes",
        "must be a power of two from 16 to 4096",
    );
    rule(
        (1..=64).contains(&memory.ways),
        "memory.ways",
        "must be 1 to 64",
    );
    let way_bytes = u64::from(memory.line_bytes.max(1)) * u64::from(memory.ways.max(1));
    rule(
        memory.cache_bytes.is_multiple_of(way_bytes)
            && (memory.cache_bytes / way_bytes).is_power_of_two()
            && memory.cache_bytes <= CACHE_BYTES_MAX,
        "memory.cache_bytes",
        "must be line_bytes × ways × a power of two, at most 512 MiB",
    );
    rule(
        memory.llc_hit_ps == 0 || memory.llc_hit_ps >= memory.hit_ps,
        "memory.llc_hit_ps",
        "must not be below hit_ps (0 = no shared cache)",
    );
    rule(
        memory.miss_ps >= memory.hit_ps.max(memory.llc_hit_ps),
        "memory.miss_ps",
        "must not be below hit_ps and llc_hit_ps",
    );
    rule(
        memory.transfer_node_ps >= memory.transfer_llc_ps,
        "memory.transfer_node_ps",
        "must not be below transfer_llc_ps",
    );
    rule(
        memory.transfer_remote_ps >= memory.transfer_node_ps,
        "memory.transfer_remote_ps",
        "must not be below transfer_node_ps",
    );
    rule(
        memory
            .llcs_per_bus
            .is_none_or(|llcs| llcs > 0 && machine.topology.nr_nodes() == 1),
        "memory.llcs_per_bus",
        "must be 1 or more, and the machine must have one node",
    );
    rule(
        layout.colours > 0,
        "task_layout.colours",
        "must be 1 or more",
    );
    rule(
        layout.examine_bytes > 0,
        "task_layout.examine_bytes",
        "must be 1 or more",
    );
    let end = u64::from(layout.offset_bytes)
        + u64::from(layout.examine_bytes)
        + u64::from(layout.colours.saturating_sub(1)) * u64::from(memory.line_bytes);
    rule(
        end <= u64::from(layout.stride_bytes),
        "task_layout.stride_bytes",
        "must hold offset_bytes, examine_bytes and the shift of the last colour",
    );
    rule(
        layout.stride_bytes <= 32_768,
        "task_layout.stride_bytes",
        "must be at most 32768",
    );
    rule(
        memory.evict_lines_per_ms <= 1_000_000,
        "memory.evict_lines_per_ms",
        "must be at most 1000000",
    );
    rule(
        memory.bus_ps <= 1_000_000,
        "memory.bus_ps",
        "must be at most 1000000",
    );
    rule(
        memory.written_pct.is_none_or(|pct| pct <= 100),
        "memory.written_pct",
        "must be at most 100",
    );
    rule(
        memory
            .stream_ps
            .is_none_or(|ps| (1..=memory.miss_ps).contains(&ps)),
        "memory.stream_ps",
        "must be 1 or more and not above miss_ps",
    );
    rule(
        (1..=100).contains(&interference.smt_share_pct),
        "interference.smt_share_pct",
        "must be 1 to 100",
    );
    rule(
        interference.beyond_llc_pct.is_none() || !machine.topology.llc_bytes.is_empty(),
        "interference.beyond_llc_pct",
        "needs topology.llc_bytes, the sizes of the last-level caches",
    );
    rule(
        interference.beyond_llc_pct.is_none_or(|pct| pct <= 10_000),
        "interference.beyond_llc_pct",
        "must be at most 10000",
    );
    let refills = [
        (
            interference.refill_llc_ns_per_kb,
            "interference.refill_llc_ns_per_kb",
        ),
        (
            interference.refill_node_ns_per_kb,
            "interference.refill_node_ns_per_kb",
        ),
        (
            interference.refill_remote_ns_per_kb,
            "interference.refill_remote_ns_per_kb",
        ),
    ];
    for (value, field) in refills {
        rule(value <= REFILL_MAX, field, "must be at most 1000000");
    }
    for candidate in &machine.tuning_candidates {
        if !machine
            .provenance
            .iter()
            .any(|provenance| provenance.field == *candidate)
        {
            let message =
                format!("{candidate} is not a field of this profile: write section.field");
            found.push(("tuning_candidates", message));
        }
    }
    found
}

impl From<&Machine> for ProfileFile {
    fn from(machine: &Machine) -> Self {
        let machine = machine.clone();
        ProfileFile {
            name: machine.name,
            summary: machine.summary,
            calibrated_on: machine.calibrated_on,
            tuning_candidates: machine.tuning_candidates,
            clock_mhz: machine.clock_mhz,
            hz: machine.hz,
            timers: machine.timers,
            preemptible_kernel: machine.preemptible_kernel,
            sync_wakeups: machine.sync_wakeups,
            topology: TopologyFile::from(&machine.topology),
            core_kinds: machine.core_kinds,
            locks: machine.locks,
            memory: machine.memory,
            task_layout: machine.task_layout,
            paths: machine.paths,
            sched_ext: machine.sched_ext,
            policy: machine.policy,
            interference: machine.interference,
            shared: machine.shared,
            tcp: machine.tcp,
            background: machine.background,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        Machine::builtin("netfinity-8500r").unwrap().to_toml()
    }

    /// Returns the message for the profile in which `from` is replaced by `to`.
    fn message(from: &str, to: &str) -> String {
        let text = text();
        assert!(text.contains(from), "{from} is not in\n{text}");
        let broken = text.replacen(from, to, 1);
        Machine::from_toml("x.toml", &broken)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_written_profile_reads_back_equal() {
        for name in Machine::builtin_names() {
            let machine = Machine::builtin(name).unwrap();
            let again = Machine::from_toml("again", &machine.to_toml());
            assert_eq!(again.unwrap_or_else(|error| panic!("{error}")), machine);
        }
    }

    #[test]
    fn a_number_without_source_does_not_load() {
        let text = text();
        let line = text.lines().find(|line| line.starts_with("hz")).unwrap();
        let error = message(line, "hz = 100");
        assert!(error.contains("hz has no source"), "{error}");
        assert!(error.starts_with("x.toml:"), "{error}");
        let error = message(line, "hz = { value = 100 }");
        assert!(error.contains("hz has no source"), "{error}");
        let error = message(line, "hz = { value = 100, source = \"hearsay\" }");
        assert!(error.contains("hearsay"), "{error}");
        let error = message(line, "hz = { value = 100, source = \"guess\", unit = 1 }");
        assert!(error.contains("unit"), "{error}");
        let error = message(line, "hz = { value = 100, source = 5 }");
        assert!(error.contains("hz: the source is not text"), "{error}");
        let error = message(line, "hz = { value = 100.0, source = \"guess\" }");
        assert!(error.contains("must be an integer"), "{error}");
        let error = message(line, "hz = { value = -1, source = \"guess\" }");
        assert!(error.contains("must be from 0"), "{error}");
    }

    #[test]
    fn the_line_of_a_fault_is_told() {
        let text = text();
        let number = 1 + text
            .lines()
            .position(|line| line.starts_with("hit_ps"))
            .unwrap();
        let line = text.lines().nth(number - 1).unwrap();
        for (broken, what) in [
            ("hit_ps = 3", "no source"),
            ("hit_qs = { value = 3, source = \"guess\" }", "hit_qs"),
            (
                "hit_ps = { value = \"x\", source = \"guess\" }",
                "invalid type",
            ),
            ("hit_ps = = 3", ""),
        ] {
            let error = message(line, broken);
            assert!(error.starts_with(&format!("x.toml:{number}: ")), "{error}");
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn missing_fields_and_impossible_machines_are_refused() {
        let text = text();
        let line = |start: &str| {
            let found = text.lines().find(|line| line.starts_with(start));
            found.unwrap().to_owned()
        };
        assert!(message(&line("tick_ns"), "").contains("missing field `tick_ns`"));
        assert!(message("[locks]", "[lokcs]").contains("lokcs"));
        for (field, value, what) in [
            ("ways", "3", "power of two"),
            ("ways", "0", "1 to 64"),
            ("line_bytes", "48", "power of two"),
            ("stride_bytes", "16", "must hold"),
            ("nodes", "0", "must be 1 to"),
            ("nodes", "100000", "must be 1 to"),
            ("miss_ps", "1", "must not be below"),
            ("hz", "0", "1 to 10000"),
            ("refill_llc_ns_per_kb", "1000001", "at most 1000000"),
        ] {
            let broken = format!("{field} = {{ value = {value}, source = \"guess\" }}");
            let error = message(&line(&format!("{field} =")), &broken);
            assert!(error.contains(what), "{field} = {value}: {error}");
        }
    }

    #[test]
    fn a_big_kernel_lock_is_there_if_the_file_has_one() {
        let machine = Machine::builtin("netfinity-8500r").unwrap();
        assert_eq!(machine.locks.big_kernel_lock_ns, None);
        let line = "[locks]\nbig_kernel_lock_ns = { value = 2000, source = \"guess\" }";
        let text = machine.to_toml().replace("[locks]", line);
        let machine = Machine::from_toml("x.toml", &text).unwrap();
        assert_eq!(machine.locks.big_kernel_lock_ns, Some(2_000));
        let again = Machine::from_toml("again", &machine.to_toml()).unwrap();
        assert_eq!(again.locks, machine.locks);
    }

    #[test]
    fn several_buses_are_within_one_node() {
        let with = |name: &str, llcs: u32| {
            let machine = Machine::builtin(name).unwrap();
            let line = format!("[memory]\nllcs_per_bus = {{ value = {llcs}, source = \"guess\" }}");
            let text = machine.to_toml().replace("[memory]", &line);
            Machine::from_toml("x.toml", &text)
        };
        let machine = with("laptop", 1).unwrap();
        assert_eq!(machine.memory.llcs_per_bus, Some(1));
        let again = Machine::from_toml("again", &machine.to_toml()).unwrap();
        assert_eq!(again.memory, machine.memory);
        for (name, llcs) in [("laptop", 0), ("server-2x96x2", 1)] {
            let error = with(name, llcs).unwrap_err().to_string();
            assert!(
                error.contains("memory.llcs_per_bus: must be 1 or more"),
                "{error}"
            );
        }
    }

    #[test]
    fn changes_replace_a_number_and_its_source() {
        let machine = Machine::builtin("laptop").unwrap();
        let change = |field: &str, value: &str| Change {
            field: field.to_owned(),
            value: value.to_owned(),
            source: "measured: here".to_owned(),
        };
        let changed = machine.with_changes(&[change("paths.switch_ns", "777")]);
        let changed = changed.unwrap();
        assert_eq!(changed.paths.switch_ns, 777);
        let known = changed
            .provenance
            .iter()
            .find(|one| one.field == "paths.switch_ns");
        assert_eq!(known.unwrap().source, "measured: here");
        assert!(
            machine
                .with_changes(&[change("paths.swich_ns", "777")])
                .is_err()
        );
        assert!(machine.with_changes(&[change("memory.ways", "7")]).is_err());
    }

    #[test]
    fn on_another_machine_a_data_sheet_is_a_guess() {
        let machine = Machine::builtin("laptop").unwrap().as_guess();
        let again = Machine::from_toml("again", &machine.to_toml()).unwrap();
        assert_eq!(again, machine);
        let source = |field: &str| {
            let known = again.provenance.iter().find(|one| one.field == field);
            known.map(|one| (one.kind, one.source.clone())).unwrap()
        };
        assert_eq!(
            source("memory.cache_bytes"),
            (
                SourceKind::Guess,
                "guess: copied from laptop (data sheet: AMD Zen 3, 512 KB L2)".to_owned()
            )
        );
        assert_eq!(source("locks.kind").0, SourceKind::Kernel);
        assert_eq!(source("paths.switch_ns").1, "guess");
    }

    #[test]
    fn a_limited_machine_keeps_the_source_of_its_topology() {
        let limited = Machine::builtin("laptop").unwrap().with_cpus(9).unwrap();
        let again = Machine::from_toml("again", &limited.to_toml()).unwrap();
        assert_eq!(again.topology, limited.topology);
        let cpus = again
            .provenance
            .iter()
            .find(|one| one.field == "topology.cpus");
        assert_eq!(cpus.unwrap().kind, SourceKind::DataSheet);
    }

    #[test]
    fn an_irregular_topology_is_a_list() {
        let text = text();
        let start = text.find("[topology]").unwrap();
        let end = start + text[start..].find("\n\n").unwrap();
        let list = "[topology]\ncpus = { value = [[0,0,0],[0,0,0],[1,1,0]], source = \"guess\" }";
        let machine = Machine::from_toml("x", &format!("{}{list}{}", &text[..start], &text[end..]));
        let machine = machine.unwrap();
        assert_eq!(machine.topology.nr_cpus(), 3);
        let again = Machine::from_toml("again", &machine.to_toml()).unwrap();
        assert_eq!(again.topology, machine.topology);
    }
}
