//! Whether a policy's ops are functions of the kind that the kernel calls.
//!
//! In the kernel an op's arguments are 64-bit words, and the verifier judges what the program does with each of them.
//! Here an op is called as the C function that it is: a missing argument would be read from a register that holds
//! something else in each run. So the virtual kernel refuses uses that the verifier refuses, and a whole word for a
//! narrower argument, whose upper half means nothing in either world. Other differences are taken: fewer
//! parameters, integers of another sign, any result of an op that has none.

use object::{Object as _, ObjectSection as _, RelocationFlags, RelocationTarget};

use crate::ObjectError;
use crate::dwarf::{Function, Shape, Signature, Types};

/// A pointer into the object.
const RELATIVE: [object::elf::RelocationType; 2] = [
    object::elf::R_X86_64_RELATIVE,
    object::elf::R_AARCH64_RELATIVE,
];

/// Refuses ops that the kernel could not call, and those that libbpf does not find.
pub(crate) fn check(
    policy: &str,
    file: &object::File<'_>,
    types: &Types,
    table: u64,
    structure: usize,
) -> Vec<ObjectError> {
    let functions = types.functions();
    let code = targets(file);
    let mut errors = Vec::new();
    for (offset, op, expected) in types.ops(structure) {
        let Some(&(_, address)) = code.iter().find(|&&(place, _)| place == table + offset) else {
            continue;
        };
        // One that is not in the debug information has no source; compilers make one of two that are alike.
        let mut here = functions
            .iter()
            .filter(|function| function.address == address)
            .peekable();
        let Some(&first) = here.peek() else { continue };
        let place = format!("{}:{}", first.file.trim_start_matches("./"), first.line);
        let mut error = |what: String| {
            errors.push(ObjectError::Op {
                policy: policy.to_owned(),
                place: place.clone(),
                what,
            });
        };
        let wanted = types.signature_name(op, &expected);
        if let Some(what) = here
            .map(|function| difference(types, &expected, function))
            .min_by_key(Option::is_some)
            .flatten()
        {
            error(format!(
                "{}() cannot be ops.{op}(): {what}; the kernel calls {wanted}",
                first.name
            ));
        } else if !is_program(file, address) {
            error(format!(
                "{}() is ops.{op}() and no BPF program, so libbpf does not find it: define it with BPF_STRUCT_OPS()",
                first.name
            ));
        }
    }
    errors
}

/// Where pointers into the object are that the dynamic linker fills in, and to what.
fn targets(file: &object::File<'_>) -> Vec<(u64, u64)> {
    use object::ObjectSymbol as _;
    let relocations = file.dynamic_relocations().into_iter().flatten();
    relocations
        .filter_map(|(place, relocation)| {
            let addend = relocation.addend() as u64;
            match (relocation.target(), relocation.flags()) {
                (RelocationTarget::Symbol(index), _) => {
                    let table = file.dynamic_symbol_table()?;
                    let symbol = object::ObjectSymbolTable::symbol_by_index(&table, index).ok()?;
                    (!symbol.is_undefined()).then(|| (place, symbol.address() + addend))
                }
                (_, RelocationFlags::Elf { r_type }) if RELATIVE.contains(&r_type) => {
                    Some((place, addend))
                }
                _ => None,
            }
        })
        .collect()
}

/// Whether an address is in a section of `SEC("struct_ops…")`.
fn is_program(file: &object::File<'_>, address: u64) -> bool {
    let mut sections = file.sections();
    let section = sections.find(|section| {
        section.address() != 0
            && (section.address()..section.address() + section.size()).contains(&address)
    });
    section.is_none_or(|section| {
        let name = section.name().unwrap_or_default();
        name.trim_start_matches('?').starts_with("struct_ops")
    })
}

/// A part of a function that the kernel's call lacks.
fn difference(types: &Types, expected: &Signature, function: &Function) -> Option<String> {
    let given = &function.signature;
    if given.variadic {
        return Some("it takes any number of arguments".to_owned());
    }
    let (has, wants) = (given.parameters.len(), expected.parameters.len());
    if has > wants {
        let s = if has == 1 { "" } else { "s" };
        return Some(format!("it has {has} parameter{s}, not {wants}"));
    }
    let pairs = given.parameters.iter().zip(&expected.parameters);
    let differs = |(number, (&given, &wanted)): (usize, (&usize, &usize))| {
        (!takes(types, given, wanted)).then(|| {
            format!(
                "its parameter {} is {}, not {}",
                number + 1,
                types.type_name(Some(given)),
                types.type_name(Some(wanted))
            )
        })
    };
    if let Some(what) = pairs.enumerate().find_map(differs) {
        return Some(what);
    }
    let wanted = expected.returns?;
    match given.returns {
        Some(given) if returns(types, given, wanted) => None,
        given => Some(format!(
            "it returns {}, not {}",
            types.type_name(given),
            types.type_name(Some(wanted))
        )),
    }
}

/// Bytes of what is an integer.
fn integer(types: &Types, type_at: usize) -> Option<u8> {
    match types.shape(type_at) {
        Shape::Bool => Some(1),
        Shape::Integer { bytes, .. } => Some(bytes),
        Shape::Enum(at) => Some(types.size(at) as u8),
        _ => None,
    }
}

/// Whether a parameter of one type takes an argument of another.
fn takes(types: &Types, given: usize, wanted: usize) -> bool {
    match (types.shape(given), types.shape(wanted)) {
        (Shape::Pointer(given), Shape::Pointer(wanted)) => is_same(types, given, wanted),
        // A pointer as a number.
        (_, Shape::Pointer(_)) => integer(types, given) == Some(8),
        _ => match (integer(types, given), integer(types, wanted)) {
            (Some(8), Some(wanted)) => wanted == 8,
            (given, wanted) => given.is_some() && wanted.is_some(),
        },
    }
}

/// Whether pointers to the one are pointers to the other. The part of a name behind `___` distinguishes versions of a
/// type.
fn is_same(types: &Types, given: Option<usize>, wanted: Option<usize>) -> bool {
    let (Some(given), Some(wanted)) = (given, wanted) else {
        return true;
    };
    let name = |at: usize| match types.shape(at) {
        Shape::Struct(at) => types.entry(at).name.as_deref(),
        _ => None,
    };
    let bare = |name: Option<&str>| name?.split("___").next().map(str::to_owned);
    bare(name(given)).is_some() && bare(name(given)) == bare(name(wanted))
}

/// Whether a result of one type is one of another. A byte of a number is a `bool`, as it is to the caller in the
/// kernel.
fn returns(types: &Types, given: usize, wanted: usize) -> bool {
    match (integer(types, given), integer(types, wanted)) {
        (Some(given), Some(wanted)) => given >= wanted,
        _ => false,
    }
}
