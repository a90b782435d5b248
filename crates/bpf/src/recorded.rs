//! Makes an object of a transcript: the programs as a loader has loaded them, cut into functions again, with their references by name.

use std::collections::{BTreeMap, BTreeSet};

use crate::btf::{Btf, Kind, essential};
use crate::btf_ext::{Info, Line};
use crate::elf::{DataSection, Elf, ElfError, Link, MapVar, ObjectFunction};
use crate::insn::{Insn, pseudo};
use crate::link::ARENA_SECTION;
use crate::originals::Originals;
use crate::transcript::{MapRecord, ProgramRecord, Step, Transcript, map, program, source};

/// An object, and the places of the transcript's parts in it.
pub struct Recorded {
    pub elf: Elf,
    /// Of each of [`Elf::maps`] its number in the transcript.
    pub maps: Vec<usize>,
    /// The sections of variables, by their map's number in the transcript.
    pub sections: BTreeMap<usize, String>,
    /// The functions that programs begin with, by their number in the transcript.
    pub programs: BTreeMap<usize, usize>,
    /// The programs that are run: by the table of ops, by the loader, or where the scheduler is attached.
    pub roots: Vec<usize>,
    /// Programs among them that run where the scheduler is attached.
    pub attach: Vec<usize>,
    /// Maps that functions refer to which are run, by name.
    pub used: BTreeSet<String>,
    /// The types of the loader's objects.
    pub btfs: Vec<Btf>,
}

/// The target of programs that run where a scheduler is attached.
pub const ON_ATTACH: &str = "fentry/bpf_scx_reg";

/// Numbers of helpers that libbpf puts where it has found nothing (`poison_…` of libbpf.c, `bpf_core_poison_insn()`).
mod poison {
    pub const CORE: i32 = 195_896_080;
    pub const MAP: std::ops::Range<i32> = 2_001_000_000..2_002_000_000;
    pub const KFUNC: std::ops::Range<i32> = 2_002_000_000..2_003_000_000;
}

/// A name that the kernel itself gave gets a flavour, which is taken off where it is looked up.
const FLAVOUR: &str = "___kernel";

/// Makes the object; `types` are the types of the kernel that the loader saw. Before a scheduler is attached all programs of `SEC("syscall")` count as run.
///
/// # Errors
/// If a program is not as libbpf leaves it.
pub fn object(transcript: &Transcript, types: &Btf) -> Result<Recorded, ElfError> {
    let is_syscall = |it: &ProgramRecord| it.kind == program::SYSCALL && it.btf.is_some();
    let mut roots = BTreeSet::new();
    let mut attach = Vec::new();
    match &transcript.ops {
        Some(ops) => {
            roots.extend(ops.programs.values().copied());
            let programs = transcript.programs.iter().enumerate();
            attach.extend(
                programs
                    .filter(|(_, it)| it.attached && it.target == ON_ATTACH)
                    .map(|(number, _)| number),
            );
            roots.extend(&attach);
            roots.extend(transcript.steps.iter().filter_map(|step| match step {
                Step::Run { program, .. } => Some(*program),
                _ => None,
            }));
        }
        None => {
            let programs = transcript.programs.iter().enumerate();
            roots.extend(
                programs
                    .filter(|(_, it)| is_syscall(it))
                    .map(|(number, _)| number),
            );
        }
    }
    let mut btfs = Vec::new();
    for bytes in &transcript.btfs {
        btfs.push(Btf::parse(bytes).map_err(|error| ElfError(error.to_string()))?);
    }
    let main = main_btf(transcript, &roots);
    let mut maker = Maker {
        transcript,
        btfs: &btfs,
        names: names(transcript, &btfs, main),
        originals: Originals::read(&transcript.objects),
        types,
        main,
        strangers: BTreeSet::new(),
        functions: Vec::new(),
        known: BTreeMap::new(),
        info: Info::new(),
        ends: BTreeMap::new(),
    };
    let mut programs = BTreeMap::new();
    for (number, record) in transcript.programs.iter().enumerate() {
        // Programs of other types, or none, are attempts at what a kernel can do.
        let is_beside = record.kind != program::STRUCT_OPS && record.btf == main;
        if record.btf.is_some() && (roots.contains(&number) || is_beside) {
            programs.insert(number, maker.program(record)?);
        }
    }
    for root in &roots {
        if !programs.contains_key(root) {
            return Err(ElfError("a program was loaded without BTF".to_owned()));
        }
    }
    let used = maker.used_maps(roots.iter().map(|root| programs[root]));
    let mut elf = Elf {
        btf: main.map_or_else(Btf::new, |btf| btfs[btf].clone()),
        info: maker.info,
        strangers: maker.strangers,
        license: roots.first().map_or(String::new(), |root| {
            transcript.programs[*root].license.clone()
        }),
        functions: maker.functions,
        data: Vec::new(),
        maps: Vec::new(),
        externs: Vec::new(),
        ops: Vec::new(),
        exports: Vec::new(),
    };
    let (mut maps, mut sections) = (Vec::new(), BTreeMap::new());
    for (number, record) in transcript.maps.iter().enumerate() {
        let name = &maker.names[number];
        if is_section(record, &btfs) {
            sections.insert(number, name.clone());
            elf.data.push(DataSection {
                name: name.clone(),
                bytes: contents(transcript, number),
                pointers: BTreeMap::new(),
                alignment: 8,
            });
        } else if used.contains(name) || record.kind == map::ARENA || transcript.ops.is_none() {
            // A loader may fill a map before a program uses it.
            maps.push(number);
            elf.maps.push(MapVar {
                name: name.clone(),
                type_id: record.value_type,
                slots: BTreeMap::new(),
            });
        }
    }
    elf.data.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Recorded {
        elf,
        maps,
        sections,
        programs,
        roots: roots.into_iter().collect(),
        attach,
        used,
        btfs,
    })
}

/// The types of the scheduler's object: a loader may load others beside it.
fn main_btf(transcript: &Transcript, roots: &BTreeSet<usize>) -> Option<usize> {
    let of = |number: &usize| transcript.programs[*number].btf;
    let is_op = |it: &&ProgramRecord| it.kind == program::STRUCT_OPS && it.btf.is_some();
    match &transcript.ops {
        Some(ops) => ops.programs.values().find_map(of),
        None => transcript.programs.iter().find(is_op).and_then(|it| it.btf),
    }
    .or_else(|| roots.iter().find_map(of))
}

/// The last contents of a section that is written no more; zeroes of others.
fn contents(transcript: &Transcript, number: usize) -> Vec<u8> {
    let record = &transcript.maps[number];
    let mut bytes = vec![0; record.value_size as usize];
    for step in transcript.steps.iter().filter(|_| record.frozen) {
        let Step::Contents { map, patches } = step else {
            continue;
        };
        for (at, patch) in patches.iter().filter(|_| *map == number) {
            let at = (*at as usize).min(bytes.len());
            let end = (at + patch.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&patch[..end - at]);
        }
    }
    bytes
}

fn is_section(record: &MapRecord, btfs: &[Btf]) -> bool {
    section(record, btfs).is_some()
}

/// The name of the section that is a map's value.
fn section<'r>(record: &'r MapRecord, btfs: &'r [Btf]) -> Option<&'r str> {
    if record.kind != map::ARRAY || record.max_entries != 1 {
        return None;
    }
    match record.btf.map(|btf| btfs[btf].get(record.value_type)) {
        Some(of) if matches!(of.kind, Kind::Datasec(_)) => Some(&of.name),
        // Strings have a section without types; no other map has a name with a dot.
        _ => record.name.contains('.').then_some(&record.name),
    }
}

/// The name of each map, none twice: what the kernel gets has 15 letters, the rest is in the BTF.
/// Where two objects have a map of one name, the main object's keeps it.
fn names(transcript: &Transcript, btfs: &[Btf], main: Option<usize>) -> Vec<String> {
    let mut names = vec![String::new(); transcript.maps.len()];
    let mut known = BTreeSet::new();
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|number| transcript.maps[*number].btf != main);
    for number in order {
        let record = &transcript.maps[number];
        let own = record.btf.or(main).map(|btf| &btfs[btf]);
        let variables = own.into_iter().chain(btfs).flat_map(|btf| {
            btf.section(".maps")
                .iter()
                .map(|var| btf.get(var.var).name.as_str())
        });
        let mut whole = variables.filter(|name| {
            record.name.len() == 15
                && name.starts_with(&record.name)
                && !known.contains::<str>(name)
        });
        let name = match (section(record, btfs), whole.next()) {
            (Some(section), _) => section,
            (None, Some(whole)) => whole,
            (None, None) => &record.name,
        };
        let mut own = name.to_owned();
        if known.contains(&own) {
            own.push('\'');
        }
        // A loader makes thousands of one name for a map of maps.
        if known.contains(&own) {
            own = format!("{name}'{number}");
        }
        known.insert(own.clone());
        names[number] = own;
    }
    names
}

struct Maker<'t> {
    transcript: &'t Transcript,
    btfs: &'t [Btf],
    /// Of each map its name.
    names: Vec<String>,
    originals: Originals,
    types: &'t Btf,
    /// The BTF of the object.
    main: Option<usize>,
    functions: Vec<ObjectFunction>,
    /// Functions whose original is not known, or is another object's.
    strangers: BTreeSet<usize>,
    /// Functions by their BTF and type there: each program has copies of those that it calls.
    known: BTreeMap<(usize, u32), Vec<usize>>,
    info: Info,
    /// Of each section how many slots it has.
    ends: BTreeMap<String, usize>,
}

impl Maker<'_> {
    /// Cuts a program; answers with the function that it begins with.
    fn program(&mut self, record: &ProgramRecord) -> Result<usize, ElfError> {
        let btf = record.btf.expect("the caller has looked");
        let broken = || {
            ElfError(format!(
                "{}: its functions are not where its BTF says",
                record.name
            ))
        };
        let starts: Vec<usize> = record.functions.iter().map(|(start, _)| *start).collect();
        if starts.first() != Some(&0)
            || !starts.is_sorted()
            || starts.last() >= Some(&record.insns.len())
        {
            return Err(broken());
        }
        let end = |index: usize| starts.get(index + 1).copied().unwrap_or(record.insns.len());
        // References out of the program are resolved first: copies are known again by them.
        let mut numbers = Vec::new();
        let mut fresh = Vec::new();
        for (index, &(start, type_id)) in record.functions.iter().enumerate() {
            let range = start..end(index);
            let mut insns = record.insns[range.clone()].to_vec();
            let mut links = BTreeMap::new();
            let mut calls = Vec::new();
            let mut slot = 0;
            while slot < insns.len() {
                let at = start + slot;
                match self.link(record, at)? {
                    Found::Link(link) => {
                        links.insert(slot, link);
                        plain(&mut insns, slot);
                    }
                    Found::Function(to) => {
                        calls.push((slot, to));
                        plain(&mut insns, slot);
                    }
                    Found::Nothing => {}
                }
                slot += 1 + usize::from(insns[slot].is_wide());
            }
            let known = self.known.entry((btf, type_id)).or_default();
            let same = known.iter().copied().find(|&known| {
                let known = &self.functions[known];
                let outside = known
                    .links
                    .iter()
                    .filter(|(_, link)| !matches!(link, Link::Function(_)));
                known.insns == insns && outside.eq(links.iter())
            });
            numbers.push(same.unwrap_or(self.functions.len()));
            if same.is_some() && index > 0 {
                continue;
            }
            *numbers.last_mut().expect("pushed") = self.functions.len();
            known.push(self.functions.len());
            let section = match index {
                0 => record.target.clone(),
                _ => ".text".to_owned(),
            };
            let end = self.ends.entry(section.clone()).or_default();
            let place = *end;
            *end += insns.len();
            let lines = record
                .lines
                .iter()
                .filter(|line| range.contains(&line.slot));
            for line in lines {
                let file = self.btfs[btf]
                    .string(line.file)
                    .unwrap_or_default()
                    .to_owned();
                let of_section = self.info.entry(section.clone()).or_default();
                let line_at = Line {
                    file,
                    line: line.line,
                };
                of_section.lines.insert(place + line.slot - start, line_at);
            }
            let name = self.btfs[btf].get(type_id).name.clone();
            let original = self.originals.of(&name, &record.insns[range], self.types);
            let original = original.filter(|_| Some(btf) == self.main);
            if original.is_none() {
                self.strangers.insert(self.functions.len());
            }
            if let Some(original) = &original {
                for (&slot, relo) in &original.relos {
                    // Asked again, it is known by its name: libbpf's answer was the same, or none.
                    if matches!(links.get(&slot), Some(Link::Missing(_))) {
                        links.remove(&slot);
                        insns[slot] = original.function.insns[slot];
                        if insns[slot].is_wide() {
                            links.remove(&(slot + 1));
                            insns[slot + 1] = Insn::default();
                        }
                    }
                    let of_section = self.info.entry(section.clone()).or_default();
                    of_section.relos.insert(place + slot, (*relo).clone());
                }
                for (slot, link) in &mut links {
                    if let (Link::Missing(what), Some(Link::Extern(name))) =
                        (link, original.function.links.get(slot))
                    {
                        *what = format!("kfunc {}", essential(name));
                    }
                }
            }
            fresh.push((self.functions.len(), calls));
            self.functions.push(ObjectFunction {
                name,
                section,
                start: place,
                insns,
                links,
            });
        }
        for (function, calls) in fresh {
            for (slot, to) in calls {
                let index = starts.binary_search(&to).map_err(|_| broken())?;
                self.functions[function]
                    .links
                    .insert(slot, Link::Function(numbers[index]));
            }
        }
        Ok(numbers[0])
    }

    fn link(&self, record: &ProgramRecord, at: usize) -> Result<Found, ElfError> {
        let insn = record.insns[at];
        let to = |imm: i32| usize::try_from(at as i64 + 1 + i64::from(imm)).unwrap_or(usize::MAX);
        let kernel = |at: &usize| record.kernel.get(at).map(|name| format!("{name}{FLAVOUR}"));
        if insn.is_call() {
            return Ok(match insn.src {
                0 => Found::Link(match insn.imm {
                    poison::CORE => Link::Missing(self.what(record, at, "a type or field")),
                    imm if poison::MAP.contains(&imm) => {
                        Link::Missing(self.what(record, at, "a map"))
                    }
                    imm if poison::KFUNC.contains(&imm) => {
                        Link::Missing(self.what(record, at, "a function of the kernel"))
                    }
                    imm => Link::Helper(imm),
                }),
                pseudo::CALL => Found::Function(to(insn.imm)),
                _ => match kernel(&at) {
                    Some(name) => Found::Link(Link::Extern(name)),
                    None => Found::Nothing,
                },
            });
        }
        if !insn.is_wide() {
            return Ok(Found::Nothing);
        }
        let offset = record
            .insns
            .get(at + 1)
            .map_or(0, |high| u64::from(high.imm as u32));
        Ok(match insn.src {
            source::FUNC => Found::Function(to(insn.imm)),
            source::BTF_ID => match kernel(&at) {
                Some(name) => Found::Link(Link::Extern(name)),
                None => Found::Nothing,
            },
            source::MAP_FD | source::MAP_IDX => match record.maps.get(&at) {
                Some(map) => Found::Link(Link::Map(self.names[*map].clone())),
                None => Found::Nothing,
            },
            source::MAP_VALUE | source::MAP_IDX_VALUE => match record.maps.get(&at) {
                Some(map) if self.transcript.maps[*map].kind == map::ARENA => {
                    Found::Link(Link::Data {
                        section: ARENA_SECTION.to_owned(),
                        offset,
                    })
                }
                Some(map) => Found::Link(Link::Data {
                    section: self.names[*map].clone(),
                    offset,
                }),
                None => Found::Nothing,
            },
            _ => Found::Nothing,
        })
    }

    /// Names what is missing by the text of its line: libbpf has left no other name.
    fn what(&self, record: &ProgramRecord, at: usize, kind: &str) -> String {
        let line = record.lines.iter().rev().find(|line| line.slot <= at);
        let btf = record.btf.map(|btf| &self.btfs[btf]);
        let text = line
            .and_then(|line| btf?.string(line.text).ok())
            .unwrap_or_default();
        match text.trim() {
            "" => kind.to_owned(),
            text => format!("{kind} of `{text}`"),
        }
    }

    /// The maps that some functions and those that they call refer to.
    fn used_maps(&self, roots: impl Iterator<Item = usize>) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        let mut open: Vec<usize> = roots.collect();
        let mut seen = BTreeSet::new();
        while let Some(of) = open.pop() {
            if !seen.insert(of) {
                continue;
            }
            for link in self.functions[of].links.values() {
                match link {
                    Link::Map(name) => {
                        used.insert(name.clone());
                    }
                    Link::Function(to) => open.push(*to),
                    _ => {}
                }
            }
        }
        used
    }
}

/// The reference of an instruction.
enum Found {
    Nothing,
    Link(Link),
    /// The slot of the program where a function begins.
    Function(usize),
}

/// Takes numbers out of an instruction that mean something in one process or program only.
fn plain(insns: &mut [Insn], slot: usize) {
    let insn = &mut insns[slot];
    let is_wide = insn.is_wide();
    insn.imm = 0;
    if is_wide {
        insn.src = 0;
        if let Some(high) = insns.get_mut(slot + 1) {
            high.imm = 0;
        }
    } else {
        insn.off = 0;
    }
}
