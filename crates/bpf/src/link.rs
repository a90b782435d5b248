//! Makes a unit of an object: answers CO-RE from a kernel's types, gives variables their places, and finds what programs call.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::btf::{Btf, essential};
use crate::core_relo;
use crate::elf::{Elf, ElfError, Link};
use crate::insn::{self, FRAME, Insn, alu, class, jump, mode, pseudo};
use crate::program::{Function, Hooks, HostFn, HostFunction, Ref, Unit};

/// A kernel's answers to an object.
pub trait KernelSymbols {
    /// Its types.
    fn types(&self) -> &Btf;

    /// A function by its name, without a flavour; `None`: it has none of this name.
    fn kfunc(&self, name: &str) -> Option<HostFn>;

    /// A function that the kernel once had under this name, for objects that call it without asking whether it is there.
    fn retired(&self, name: &str) -> Option<HostFn> {
        let _ = name;
        None
    }

    /// Why the verifier refuses a call of a function of the kernel in a program, or in a function of a section; none if it does not.
    fn refused(&self, name: &str, section: &str) -> Option<String> {
        let _ = (name, section);
        None
    }

    /// A helper by its number; the error is its name.
    ///
    /// # Errors
    /// If programs cannot call it.
    fn helper(&self, number: i32) -> Result<HostFn, String>;

    /// Whether it has a variable of its configuration.
    fn kconfig(&self, name: &str) -> bool;

    fn hooks(&self) -> Hooks;

    /// A number for [`Hooks::read`] if a field is brought up to date before it is read, by its structure and path.
    fn live(&self, structure: &str, path: &str) -> Option<u32> {
        let _ = (structure, path);
        None
    }

    /// Where such fields lie, for functions that do not say what they read ([`Elf::strangers`]): offsets in a structure,
    /// and the number for [`Hooks::read`]. Numbers of places that meet are or-ed.
    fn live_places(&self, elf: &Elf) -> Vec<(Range<i64>, u32)> {
        let _ = elf;
        Vec::new()
    }

    /// The address that stands for a variable of the kernel.
    fn variable(&self, name: &str) -> Option<u64> {
        let _ = name;
        None
    }
}

/// Variables of the configuration lie at multiples of this.
const KCONFIG_STEP: u64 = 8;

/// Sections begin at pages.
const PAGE: u64 = 4096;

/// Where everything lies in a run's data.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Of each map a word, in the order of [`Elf::maps`], from 0 on.
    pub maps: usize,
    /// The sections of variables, in the order of [`Elf::data`], but for those in the arena.
    pub sections: Vec<(String, u64)>,
    /// Where the variables of the arena begin in it.
    pub arena_section: Option<u64>,
    /// Variables of the configuration, by name; those that the kernel has not are 0.
    pub kconfig: Vec<(u64, String)>,
    pub bytes: u64,
}

/// A linked object.
pub struct Linked {
    pub unit: Unit,
    /// Of each function of the unit its index in [`Elf::functions`].
    pub origins: Vec<usize>,
    pub placement: Placement,
}

/// The section of variables in the arena.
pub const ARENA_SECTION: &str = ".addr_space.1";

impl Placement {
    /// Gives everything its place.
    ///
    /// # Errors
    /// If a variable of the configuration is not there and not weak.
    pub fn new(
        elf: &Elf,
        kernel: &dyn KernelSymbols,
    ) -> Result<(Placement, BTreeMap<String, u64>), ElfError> {
        let mut placement = Placement {
            maps: elf.maps.len(),
            ..Placement::default()
        };
        let mut next = (elf.maps.len() as u64 * 8).max(1).next_multiple_of(PAGE);
        for section in &elf.data {
            if section.name == ARENA_SECTION {
                // The last pages, as libbpf has it from 1.7 on; the first one is never used, so that no pointer looks like NULL.
                let pages = (section.bytes.len() as u64).div_ceil(PAGE).max(1);
                let first = elf.arena_pages().saturating_sub(pages).max(1);
                placement.arena_section = Some(first * PAGE);
                continue;
            }
            placement.sections.push((section.name.clone(), next));
            next += (section.bytes.len() as u64).max(1).next_multiple_of(PAGE);
        }
        let mut variables = BTreeMap::new();
        for wanted in elf.externs.iter().filter(|it| it.section == ".kconfig") {
            if !kernel.kconfig(&wanted.name) && !wanted.is_weak {
                return Err(ElfError(format!(
                    "{} has no value in the virtual kernel: declare it __weak, which makes it 0, or leave it out",
                    wanted.name
                )));
            }
            variables.insert(wanted.name.clone(), next);
            placement.kconfig.push((next, wanted.name.clone()));
            let bytes = u64::from(elf.btf.size(wanted.type_id));
            next += bytes.max(1).next_multiple_of(KCONFIG_STEP);
        }
        placement.bytes = next.next_multiple_of(PAGE);
        Ok((placement, variables))
    }

    /// Where a section lies.
    pub fn section(&self, name: &str) -> Option<u64> {
        let found = self.sections.iter().find(|(known, _)| known == name);
        found.map(|(_, at)| *at)
    }
}

/// Links the functions that a table of ops leads to.
///
/// # Errors
/// If the object asks for what cannot be: a variable of the configuration without a value, or a broken relocation.
pub fn link(elf: &Elf, roots: &[usize], kernel: &dyn KernelSymbols) -> Result<Linked, ElfError> {
    let (placement, kconfig) = Placement::new(elf, kernel)?;
    let reached = reached(elf, roots);
    let numbers: BTreeMap<usize, usize> = reached
        .iter()
        .enumerate()
        .map(|(number, of)| (*of, number))
        .collect();
    let unit = Unit {
        hooks: Some(kernel.hooks()),
        ..Unit::default()
    };
    let mut linker = Linker {
        elf,
        kernel,
        placement: &placement,
        kconfig,
        numbers,
        unit,
        hosts: BTreeMap::new(),
        live_places: match elf.strangers.is_empty() {
            true => Vec::new(),
            false => kernel.live_places(elf),
        },
    };
    for &of in &reached {
        let function = linker.function(of)?;
        linker.unit.functions.push(function);
    }
    let mut unit = linker.unit;
    let targets = called(&unit.functions);
    for (number, function) in unit.functions.iter_mut().enumerate() {
        function.is_program &= !targets.contains(&number);
    }
    Ok(Linked {
        unit,
        origins: reached.into_iter().collect(),
        placement,
    })
}

/// The functions that others call, or whose addresses they take.
fn called(functions: &[Function]) -> BTreeSet<usize> {
    let refs = functions.iter().flat_map(|function| function.refs.values());
    let targets = refs.filter_map(|of| match of {
        Ref::Function(to) => Some(*to),
        _ => None,
    });
    targets.collect()
}

/// The functions that some lead to, themselves among them, in the order of the object.
fn reached(elf: &Elf, roots: &[usize]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = roots.to_vec();
    while let Some(of) = open.pop() {
        if reached.insert(of) {
            let links = elf.functions[of].links.values();
            open.extend(links.filter_map(|link| match link {
                Link::Function(to) => Some(*to),
                _ => None,
            }));
        }
    }
    reached
}

struct Linker<'a> {
    elf: &'a Elf,
    kernel: &'a dyn KernelSymbols,
    placement: &'a Placement,
    kconfig: BTreeMap<String, u64>,
    /// Numbers in the unit by index in the object.
    numbers: BTreeMap<usize, usize>,
    unit: Unit,
    hosts: BTreeMap<String, usize>,
    /// For functions that do not say what they read ([`KernelSymbols::live_places`]).
    live_places: Vec<(Range<i64>, u32)>,
}

impl Linker<'_> {
    fn poison(&mut self, why: String) -> Ref {
        let known = self.unit.poison.iter().position(|it| *it == why);
        Ref::Poison(known.unwrap_or_else(|| {
            self.unit.poison.push(why);
            self.unit.poison.len() - 1
        }))
    }

    fn host(&mut self, name: &str, call: HostFn) -> Ref {
        let next = self.unit.host.len();
        let number = *self.hosts.entry(name.to_owned()).or_insert(next);
        if number == next {
            self.unit.host.push(HostFunction {
                name: name.to_owned(),
                call,
            });
        }
        Ref::Host(number)
    }

    fn function(&mut self, of: usize) -> Result<Function, ElfError> {
        let source = &self.elf.functions[of];
        let mut function = Function {
            name: source.name.clone(),
            is_program: source.section != ".text",
            insns: source.insns.clone(),
            refs: BTreeMap::new(),
            of_kernel: BTreeSet::new(),
            reads: match self.elf.strangers.contains(&of) {
                true => self.reads_of_stranger(&source.insns),
                false => BTreeMap::new(),
            },
        };
        for (&slot, link) in &source.links {
            self.resolve(&mut function, &source.section, slot, link)?;
        }
        // Loads of fields of the kernel's structures.
        let mut fields = BTreeSet::new();
        let end = source.start + source.insns.len();
        let relos = self
            .elf
            .section_info(of)
            .map(|info| info.relos.range(source.start..end));
        for (at, relo) in relos.into_iter().flatten() {
            let slot = at - source.start;
            let answer =
                core_relo::answer(&self.elf.btf, self.kernel.types(), relo).map_err(ElfError)?;
            let place = core_relo::place(&self.elf.btf, relo);
            if let Some(of) = place.and_then(|(of, path)| self.kernel.live(&of, &path)) {
                function.reads.insert(slot, of);
            }
            match core_relo::patch(&mut function.insns, slot, &answer) {
                Ok(()) if function.insns[slot].class() == class::LDX => {
                    fields.insert(slot);
                }
                Ok(()) => {}
                Err(what) => {
                    let poison = self.poison(format!("{what} is not in the virtual kernel"));
                    put_poison(&mut function, slot, poison);
                }
            }
        }
        let insns = &function.insns;
        let walks = fields.iter().copied();
        let walks = walks.filter(|&slot| is_walk(insns, slot, &fields));
        function.of_kernel = walks.collect();
        Ok(function)
    }

    /// Every access at the place of a field that is brought up to date counts as one. More than those are found, and none is
    /// missed whose address is a pointer and a constant: the host looks at the pointer, and does nothing where it is another one.
    fn reads_of_stranger(&self, insns: &[Insn]) -> BTreeMap<usize, u32> {
        let mut reads = BTreeMap::new();
        let mut slot = 0;
        while slot < insns.len() {
            let insn = insns[slot];
            let is_constant = insn.code & insn::X == 0;
            let offset = match insn.class() {
                class::LDX if insn.src != FRAME => Some(i64::from(insn.off)),
                // The address, or what is added to a pointer next.
                class::ALU64 if is_constant && matches!(insn.op(), alu::ADD | alu::MOV) => {
                    Some(i64::from(insn.imm))
                }
                _ => None,
            };
            let hits = self.live_places.iter();
            let hits = hits.filter(|(place, _)| offset.is_some_and(|at| place.contains(&at)));
            let of = hits.fold(0, |all, (_, of)| all | of);
            if of != 0 {
                reads.insert(slot, of);
            }
            slot += 1 + usize::from(insn.is_wide());
        }
        reads
    }

    fn resolve(
        &mut self,
        function: &mut Function,
        section: &str,
        slot: usize,
        link: &Link,
    ) -> Result<(), ElfError> {
        let insn = function.insns[slot];
        let reference = match link {
            Link::Function(to) => Ref::Function(self.numbers[to]),
            Link::Helper(number) => match self.kernel.helper(*number) {
                Ok(call) => self.host(&format!("helper {number}"), call),
                Err(name) => self.poison(format!("helper {name} is not in the virtual kernel")),
            },
            Link::Map(name) => {
                let index = self.elf.maps.iter().position(|map| map.name == *name);
                let index = index.ok_or_else(|| ElfError(format!("there is no map {name}")))?;
                Ref::Data(index as u64 * 8)
            }
            Link::Data {
                section: of,
                offset,
            } if of == ARENA_SECTION => {
                Ref::Arena(self.placement.arena_section.unwrap_or(0) + offset)
            }
            Link::Data {
                section: of,
                offset,
            } => {
                let start = self.placement.section(of);
                let start =
                    start.ok_or_else(|| ElfError(format!("it refers to the section {of}")))?;
                Ref::Data(start + offset)
            }
            Link::Extern(name) => return self.resolve_extern(function, section, slot, name),
            Link::Missing(what) => self.poison(format!("{what} is not in the virtual kernel")),
        };
        if insn.is_wide() {
            function.insns[slot].src = match reference {
                Ref::Function(_) => pseudo::FUNC,
                _ => 0,
            };
        }
        function.refs.insert(slot, reference);
        Ok(())
    }

    fn resolve_extern(
        &mut self,
        function: &mut Function,
        section: &str,
        slot: usize,
        name: &str,
    ) -> Result<(), ElfError> {
        let insn = function.insns[slot];
        if let Some(&at) = self.kconfig.get(name) {
            let addend = insn.imm as u64;
            function.refs.insert(slot, Ref::Data(at + addend));
            return Ok(());
        }
        let known = essential(name);
        let kfunc = self.kernel.kfunc(known);
        let wanted = self.elf.externs.iter().find(|it| it.name == name);
        let is_weak = wanted.is_some_and(|it| it.is_weak);
        if insn.is_call() {
            // Headers of old kernels declare every function as weak.
            let retired = || self.kernel.retired(known);
            let refused = self.kernel.refused(known, section);
            let reference = match (refused, kfunc.or_else(retired)) {
                (Some(why), _) => self.poison(why),
                (None, Some(call)) => self.host(known, call),
                (None, None) => self.poison(format!("kfunc {known} is not in the virtual kernel")),
            };
            function.refs.insert(slot, reference);
            return Ok(());
        }
        // Whether it is there is asked by comparing its address with 0 (`bpf_ksym_exists()`).
        if let Some(address) = self.kernel.variable(known) {
            function.insns[slot].src = 0;
            (function.insns[slot].imm, function.insns[slot + 1].imm) =
                (address as i32, (address >> 32) as i32);
            return Ok(());
        }
        match kfunc {
            None if !is_weak => {
                let poison = self.poison(format!(
                    "kernel symbol {known} is not in the virtual kernel"
                ));
                put_poison(function, slot, poison);
            }
            found => {
                let is_there = i32::from(found.is_some());
                (function.insns[slot].imm, function.insns[slot].src) = (is_there, 0);
                function.insns[slot + 1].imm = 0;
            }
        }
        Ok(())
    }
}

/// Whether a load follows a pointer that another field of the kernel has, as `p->scx.dsq->id` does: the verifier lets it, without a
/// test for NULL. It demands one of what a function returns. The instructions before it are looked at in the order of the code, and the
/// pointer is followed through registers and the stack; what a function is handed is not known.
fn is_walk(insns: &[Insn], slot: usize, fields: &BTreeSet<usize>) -> bool {
    let mut register = insns[slot].src;
    // The place on the stack from which it was loaded.
    let mut saved = None;
    for at in (0..slot).rev() {
        let insn = insns[at];
        // The second half of a wide one has no class of its own.
        if at > 0 && insns[at - 1].is_wide() {
            continue;
        }
        let is_whole = insn.mode() == mode::MEM && insn.bytes() == 8;
        if let Some(off) = saved {
            match insn.class() {
                class::STX if insn.dst == FRAME && insn.off == off && is_whole => {
                    (register, saved) = (insn.src, None);
                }
                class::ST | class::STX if insn.dst == FRAME && insn.off == off => return false,
                class::JMP if insn.is_exit() || insn.op() == jump::JA => return false,
                _ => {}
            }
            continue;
        }
        let is_copy = insn.class() == class::ALU64 && insn.op() == alu::MOV && insn.is_x();
        match insn.class() {
            class::LDX if insn.dst == register && insn.src == FRAME && is_whole => {
                saved = Some(insn.off);
            }
            class::LDX if insn.dst == register => return fields.contains(&at),
            _ if is_copy && insn.dst == register && insn.off == 0 => register = insn.src,
            class::ALU | class::ALU64 | class::LD if insn.dst == register => return false,
            _ if insn.is_call() && register <= 5 => return false,
            _ if insn.is_exit() => return false,
            class::JMP if insn.op() == jump::JA => return false,
            _ => {}
        }
    }
    false
}

/// Replaces an instruction by a call that ends the run; of a wide one the second half stays, and is never reached.
fn put_poison(function: &mut Function, slot: usize, poison: Ref) {
    if !function.insns[slot].is_wide() {
        function.insns[slot] = Insn {
            code: 0x85,
            ..Insn::default()
        };
    }
    function.refs.insert(slot, poison);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_others_refer_to_are_known() {
        let function = |refs: &[Ref]| Function {
            refs: refs.iter().copied().enumerate().collect(),
            ..Function::default()
        };
        let functions = [
            function(&[Ref::Function(2), Ref::Data(1), Ref::Host(0)]),
            function(&[]),
            function(&[Ref::Function(3)]),
            function(&[Ref::Function(3)]),
        ];
        assert_eq!(called(&functions), BTreeSet::from([2, 3]));
    }
}
