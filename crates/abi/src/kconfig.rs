//! Variables of the kernel's configuration (`extern … __kconfig`).
//!
//! In a kernel libbpf gives them their values when it loads a policy. Here they are symbols that the object does not
//! define: where their addresses belong, the loader writes those of the values.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, ObjectSymbolTable as _};
use schedlab_engine::KernelVersion;
use schedlab_machine::Machine;

use crate::layout::NR_CPUS_MAX;

/// Those that have a value in the virtual kernel.
pub(crate) const KNOWN: [&str; 3] = ["CONFIG_HZ", "CONFIG_NR_CPUS", "LINUX_KERNEL_VERSION"];

/// Whether a symbol is a variable of the configuration: libbpf takes no other names.
pub fn is_variable(symbol: &str) -> bool {
    symbol.starts_with("CONFIG_") || symbol.starts_with("LINUX_")
}

/// Whether the virtual kernel has a value for it.
pub fn is_known(symbol: &str) -> bool {
    KNOWN.contains(&symbol)
}

/// What is said of a variable that has no value here.
pub fn unknown(variable: &str) -> String {
    let (last, others) = KNOWN.split_last().expect("there are some");
    format!(
        "{variable} has no value in the virtual kernel, whose variables of __kconfig are {} and {last}: declare it __weak, which makes it 0, or leave it out",
        others.join(", ")
    )
}

/// The value on a machine.
fn value(variable: &str, machine: &Machine, version: KernelVersion) -> Option<u64> {
    match variable {
        "CONFIG_HZ" => Some(machine.hz.into()),
        "CONFIG_NR_CPUS" => Some(NR_CPUS_MAX as u64),
        "LINUX_KERNEL_VERSION" => Some(match version {
            KernelVersion::V6_18 => 0x6_12_00,
            KernelVersion::V7_2 => 0x7_02_00,
        }),
        _ => None,
    }
}

/// What one is that has no value: 0 in any width, the empty text.
static ZERO: [u64; 512] = [0; 512];

/// Where the address of a variable belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    /// Place in the object.
    pub place: u64,
    variable: String,
    addend: u64,
}

/// The places in an object.
pub(crate) fn slots(file: &object::File<'_>) -> Vec<Slot> {
    let relocations = file.dynamic_relocations().into_iter().flatten();
    relocations
        .filter_map(|(place, relocation)| {
            let object::RelocationTarget::Symbol(index) = relocation.target() else {
                return None;
            };
            let symbol = file.dynamic_symbol_table()?.symbol_by_index(index).ok()?;
            let name = symbol.name().ok()?;
            (symbol.is_undefined() && is_variable(name)).then(|| Slot {
                place,
                variable: name.to_owned(),
                addend: relocation.addend() as u64,
            })
        })
        .collect()
}

/// Where in the file the binding of each symbol is that the dynamic linker would look for and not find.
pub(crate) fn bindings(file: &object::File<'_>) -> Vec<usize> {
    /// Bytes of `Elf64_Sym`, and those before its `st_info`.
    const SYMBOL: (usize, usize) = (24, 4);
    let table = file.section_by_name(".dynsym");
    let Some((start, _)) = table.and_then(|table| table.file_range()) else {
        return Vec::new();
    };
    file.dynamic_symbols()
        .filter(|symbol| symbol.is_undefined() && !symbol.is_weak())
        .filter(|symbol| symbol.name().is_ok_and(is_known))
        .map(|symbol| start as usize + symbol.index().0 * SYMBOL.0 + SYMBOL.1)
        .collect()
}

/// Has the dynamic linker take no offence at the symbols whose bindings these are.
pub(crate) fn make_weak(elf: &mut [u8], bindings: &[usize]) {
    const STB_WEAK: u8 = 2;
    for &at in bindings {
        if let Some(info) = elf.get_mut(at) {
            *info = STB_WEAK << 4 | *info & 15;
        }
    }
}

/// The values on one machine: a copy of a policy has its own.
pub(crate) struct Values(Box<[u64; KNOWN.len()]>);

impl Values {
    pub(crate) fn new(machine: &Machine, version: KernelVersion) -> Values {
        let value = |variable| value(variable, machine, version).expect("known ones have values");
        Values(Box::new(KNOWN.map(value)))
    }

    /// The address that belongs into a slot.
    pub(crate) fn address(&self, slot: &Slot) -> u64 {
        let known = KNOWN.iter().position(|known| *known == slot.variable);
        let value = known.map_or(&raw const ZERO[0], |index| &raw const self.0[index]);
        (value as u64).wrapping_add(slot.addend)
    }
}
