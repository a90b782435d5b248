//! Gives variables of the kernel's configuration (`extern … __kconfig`) their values.
//!
//! For a real kernel libbpf does so when it loads a policy. Here these variables are undefined symbols of the object, and
//! the loader writes the addresses of the values to the places of their relocations.

use std::io;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, ObjectSymbolTable as _};
use schedlab_engine::KernelVersion;
use schedlab_machine::Machine;

use crate::layout::NR_CPUS_MAX;
use crate::memory::{PAGE, Reservation};

/// Lists the variables that have a value in the virtual kernel.
pub(crate) const KNOWN: [&str; 3] = ["CONFIG_HZ", "CONFIG_NR_CPUS", "LINUX_KERNEL_VERSION"];

/// Returns whether a symbol is a variable of the configuration. libbpf accepts no other names.
pub fn is_variable(symbol: &str) -> bool {
    symbol.starts_with("CONFIG_") || symbol.starts_with("LINUX_")
}

/// Returns whether the virtual kernel has a value for a variable.
pub fn is_known(symbol: &str) -> bool {
    KNOWN.contains(&symbol)
}

/// Explains that a variable has no value here.
pub fn unknown(variable: &str) -> String {
    let (last, others) = KNOWN.split_last().expect("there are some");
    format!(
        "{variable} has no value in the virtual kernel, whose variables of __kconfig are {} and {last}: declare it __weak, which makes it 0, or leave it out",
        others.join(", ")
    )
}

/// Returns the value of a variable on a machine.
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

/// Describes a relocation whose symbol the object does not define.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Relocation {
    /// Is the address in the object.
    pub place: u64,
    /// Names the variable of the configuration; `None` for any other weak symbol, which is null.
    variable: Option<String>,
    addend: u64,
}

impl Relocation {
    /// Returns whether the symbol is a variable of the configuration.
    pub(crate) fn is_variable(&self) -> bool {
        self.variable.is_some()
    }
}

/// Returns the relocations of an object that refer to variables of the configuration or to other weak symbols. The dynamic
/// linker would take the latter from the C library.
pub(crate) fn relocations(file: &object::File<'_>) -> Vec<Relocation> {
    let relocations = file.dynamic_relocations().into_iter().flatten();
    relocations
        .filter_map(|(place, relocation)| {
            let object::RelocationTarget::Symbol(index) = relocation.target() else {
                return None;
            };
            let symbol = file.dynamic_symbol_table()?.symbol_by_index(index).ok()?;
            let name = symbol.name().ok()?;
            let variable = is_variable(name).then(|| name.to_owned());
            let is_ours = symbol.is_undefined() && (variable.is_some() || symbol.is_weak());
            is_ours.then(|| Relocation {
                place,
                variable,
                addend: relocation.addend() as u64,
            })
        })
        .collect()
}

/// Returns the offsets, in the file, of the bindings of those known variables that the dynamic linker would look for.
pub(crate) fn bindings(file: &object::File<'_>) -> Vec<usize> {
    /// Are the size of `Elf64_Sym` and the offset of its `st_info`, in bytes.
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

/// Makes symbols weak, so that the dynamic linker does not require them.
pub(crate) fn make_weak(elf: &mut [u8], bindings: &[usize]) {
    const STB_WEAK: u8 = 2;
    for &at in bindings {
        if let Some(info) = elf.get_mut(at) {
            *info = STB_WEAK << 4 | *info & 15;
        }
    }
}

/// Holds the values for one machine and kernel.
pub(crate) struct Values([u64; KNOWN.len()]);

impl Values {
    pub(crate) fn new(machine: &Machine, version: KernelVersion) -> Values {
        let value = |variable| value(variable, machine, version).expect("known ones have values");
        Values(KNOWN.map(value))
    }

    /// Returns the value of a variable, if the virtual kernel has one.
    pub(crate) fn of(&self, variable: &str) -> Option<u64> {
        let index = KNOWN.iter().position(|known| *known == variable)?;
        Some(self.0[index])
    }
}

/// Holds the values in read-only pages of their own, as a kernel does: a write to a variable, or an access far beyond it,
/// is a fault of the policy. Each loaded copy of a policy has its own pages.
pub(crate) struct Pages(Reservation);

impl Pages {
    /// Is the distance of two variables: a page, and one that is not accessible.
    const STEP: usize = 2 * PAGE;

    /// Puts each value at the beginning of its page. The last page is 0 and is that of all unknown weak variables.
    pub(crate) fn new(values: &Values) -> io::Result<Pages> {
        let pages = Reservation::new((KNOWN.len() + 1) * Pages::STEP, PAGE)?;
        for (index, value) in values.0.iter().chain(&[0]).enumerate() {
            let offset = index * Pages::STEP;
            if !pages.open(offset, PAGE) {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the page is accessible, and nobody else knows of it yet.
            unsafe { pages.place(offset).cast::<u64>().write(value.to_le()) };
            if !pages.seal(offset, PAGE) {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Pages(pages))
    }

    /// Returns the address of a variable.
    fn address(&self, variable: &str) -> u64 {
        let known = KNOWN.iter().position(|known| *known == variable);
        self.0.place(known.unwrap_or(KNOWN.len()) * Pages::STEP) as u64
    }
}

/// Returns what a relocation needs: an address of `pages`, which exist if any relocation is one of a variable.
pub(crate) fn address(relocation: &Relocation, pages: Option<&Pages>) -> u64 {
    let variable = relocation.variable.as_deref();
    let symbol = variable.and_then(|variable| Some(pages?.address(variable)));
    symbol.unwrap_or(0).wrapping_add(relocation.addend)
}
