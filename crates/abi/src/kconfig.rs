//! Gives variables of the kernel's configuration (`extern … __kconfig`) their values.
//!
//! For a real kernel libbpf does so when it loads a policy. Here these variables are undefined symbols of the object, and
//! the loader writes the addresses of the values to the places of their relocations.

use std::io;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, ObjectSymbolTable as _};
use schedlab_engine::KernelVersion;
use schedlab_machine::Machine;

use crate::dwarf::{Shape, Types};
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

/// Returns the kernel's configuration on a machine, as a loader reads it.
pub fn configuration(machine: &Machine, version: KernelVersion) -> Vec<(String, String)> {
    /// Lists the features that a loader asks for.
    const ON: [&str; 6] = [
        "CONFIG_BPF",
        "CONFIG_BPF_SYSCALL",
        "CONFIG_DEBUG_INFO_BTF",
        "CONFIG_NUMA",
        "CONFIG_SCHED_CLASS_EXT",
        "CONFIG_SMP",
    ];
    let on = ON.map(|name| (name.to_owned(), "y".to_owned()));
    let values = Values::new(machine, version).lines();
    on.into_iter().chain(values).collect()
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

/// Is a declared type as libbpf sees it (`enum kcfg_type`, `find_kcfg_type()` of src/libbpf.c, libbpf 1.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Bool,
    /// Is a number of 1, 2, 4 or 8 bytes.
    Number {
        bytes: u8,
        signed: bool,
    },
    Tristate,
    Text,
}

fn kind(types: &Types, type_at: usize) -> Option<Kind> {
    match types.shape(type_at) {
        Shape::Bool => (types.size(type_at) == 1).then_some(Kind::Bool),
        Shape::Integer { bytes, signed } => {
            matches!(bytes, 1 | 2 | 4 | 8).then_some(Kind::Number { bytes, signed })
        }
        Shape::Enum(at) => {
            let name = types.entry(at).name.as_deref();
            (name == Some("libbpf_tristate")).then_some(Kind::Tristate)
        }
        Shape::Array(at) => {
            let element = types.entry(at).type_at?;
            let is_text = matches!(kind(types, element)?, Kind::Number { bytes: 1, .. });
            (is_text && types.elements(at) > 0).then_some(Kind::Text)
        }
        Shape::Struct(_) | Shape::Pointer(_) | Shape::Other => None,
    }
}

/// Describes a variable of the configuration as the policy declares it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Declared {
    variable: String,
    kind: Kind,
    /// Is `file:line`.
    place: String,
}

/// Returns the declarations of the variables that a policy uses; an error is the place and name of one whose type libbpf
/// does not take.
pub(crate) fn declared(
    file: &object::File<'_>,
    types: &Types,
    source: (&str, &str),
) -> Vec<Result<Declared, (String, String)>> {
    let mut found = Vec::new();
    let symbols = file.dynamic_symbols();
    let names = symbols.filter(|symbol| symbol.is_undefined());
    for name in names.filter_map(|symbol| symbol.name().ok()) {
        if !is_variable(name) {
            continue;
        }
        let declarations = types.declarations(name);
        let mut kinds: Vec<(Option<Kind>, String)> = declarations
            .into_iter()
            .map(|(type_at, place)| (kind(types, type_at), place))
            .collect();
        // clang describes only for BPF what is defined elsewhere.
        if kinds.is_empty() {
            kinds.extend(in_source(name, source));
        }
        for (kind, place) in kinds {
            found.push(match kind {
                Some(kind) => Ok(Declared {
                    variable: name.to_owned(),
                    kind,
                    place,
                }),
                None => Err((place, name.to_owned())),
            });
        }
    }
    found
}

/// Returns what a policy's own source, given by its name and text, declares a variable as, if it does so on one line.
fn in_source(variable: &str, (file, text): (&str, &str)) -> Option<(Option<Kind>, String)> {
    text.lines().enumerate().find_map(|(index, line)| {
        let (before, behind) = line
            .trim_start()
            .strip_prefix("extern ")?
            .split_once(variable)?;
        let kind = kind_of_words(before, behind.trim_start().starts_with('['))?;
        behind
            .contains("__kconfig")
            .then(|| (kind, format!("{file}:{}", index + 1)))
    })
}

/// The kind of a type that is written out; the outer `None` is of a name that cannot be looked up here.
fn kind_of_words(words: &str, is_array: bool) -> Option<Option<Kind>> {
    let words: Vec<&str> = words
        .split_whitespace()
        .filter(|word| !matches!(*word, "const" | "volatile"))
        .collect();
    let number = |bytes, signed| Some(Kind::Number { bytes, signed });
    let unsigned = words.contains(&"unsigned");
    let kind = match words[..] {
        ["bool" | "_Bool"] => Some(Kind::Bool),
        ["enum", "libbpf_tristate"] => Some(Kind::Tristate),
        ["enum" | "struct" | "union", ..] | ["float" | "double"] => None,
        ["u8" | "__u8"] => number(1, false),
        ["u16" | "__u16"] => number(2, false),
        ["u32" | "__u32"] => number(4, false),
        ["u64" | "__u64"] => number(8, false),
        ["s8" | "__s8"] => number(1, true),
        ["s16" | "__s16"] => number(2, true),
        ["s32" | "__s32"] => number(4, true),
        ["s64" | "__s64"] => number(8, true),
        _ if words.contains(&"char") => number(1, !unsigned),
        _ if words.contains(&"short") => number(2, !unsigned),
        _ if words.contains(&"long") => number(8, !unsigned),
        _ if words.contains(&"int") || unsigned => number(4, !unsigned),
        _ => return None,
    };
    Some(match (is_array, kind) {
        (false, kind) => kind,
        (true, Some(Kind::Number { bytes: 1, .. })) => Some(Kind::Text),
        (true, _) => None,
    })
}

impl Declared {
    /// Checks that the type holds a value, by the rules of libbpf (`set_kcfg_value_num()`).
    ///
    /// # Errors
    /// Is what libbpf says, with the place and a remedy.
    pub(crate) fn check(&self, values: &Values) -> Result<(), String> {
        let known = KNOWN.iter().position(|known| *known == self.variable);
        let Some(value) = known.map(|known| values.0[known]) else {
            // A weak one that nobody knows is 0 whatever its type.
            return Ok(());
        };
        let problem = match self.kind {
            Kind::Tristate | Kind::Text => "implies integer, char, or boolean type".to_owned(),
            Kind::Bool if value > 1 => "isn't boolean compatible".to_owned(),
            Kind::Number { bytes, signed } if bytes < 8 => {
                let bits = u32::from(bytes) * 8 - u32::from(signed);
                if value >> bits == 0 {
                    return Ok(());
                }
                format!("doesn't fit in {bytes} bytes")
            }
            Kind::Bool | Kind::Number { .. } => return Ok(()),
        };
        let (variable, place) = (&self.variable, &self.place);
        Err(format!(
            "{place}: extern (kcfg) '{variable}': value '{value}' {problem}: declare it as int"
        ))
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

    /// Returns the lines of the kernel's configuration, as its file in `/boot` has them.
    pub(crate) fn lines(&self) -> Vec<(String, String)> {
        let known = KNOWN.iter().zip(self.0);
        let known = known.filter(|(name, _)| name.starts_with("CONFIG_"));
        known
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
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

    /// Puts each value at the beginning of its page. The last page is 0 and serves all unknown weak variables.
    pub(crate) fn new(values: &Values) -> io::Result<Pages> {
        let pages = Reservation::new((KNOWN.len() + 1) * Pages::STEP, PAGE)?;
        for (index, value) in values.0.iter().chain(&[0]).enumerate() {
            let offset = index * Pages::STEP;
            if !pages.open(offset, PAGE) {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the page is accessible, and no other code knows of it yet.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_types_are_known() {
        let of = |line: &str| in_source("CONFIG_X", ("a.bpf.c", &format!("\n{line}\n")));
        let number = |bytes, signed| Some(Kind::Number { bytes, signed });
        let at = |kind| Some((kind, "a.bpf.c:2".to_owned()));
        for (line, expected) in [
            (
                "extern bool CONFIG_X __kconfig __weak;",
                at(Some(Kind::Bool)),
            ),
            (
                "extern const volatile int CONFIG_X __kconfig;",
                at(number(4, true)),
            ),
            ("extern unsigned CONFIG_X __kconfig;", at(number(4, false))),
            (
                "extern unsigned long CONFIG_X __kconfig;",
                at(number(8, false)),
            ),
            ("extern u16 CONFIG_X __kconfig;", at(number(2, false))),
            ("extern char CONFIG_X[8] __kconfig;", at(Some(Kind::Text))),
            ("extern int CONFIG_X[8] __kconfig;", at(None)),
            (
                "extern enum libbpf_tristate CONFIG_X __kconfig;",
                at(Some(Kind::Tristate)),
            ),
            ("extern struct x CONFIG_X __kconfig;", at(None)),
            ("extern my_type CONFIG_X __kconfig;", None),
            ("extern int CONFIG_X;", None),
            ("int CONFIG_X;", None),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
    }
}
