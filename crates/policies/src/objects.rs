//! Schedulers as objects that clang has compiled for BPF: `x.bpf.o`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use schedlab_abi::decisions::Decisions;
use schedlab_abi::{KernelTypes, LeftOut, NativeObject, ObjectError, ObjectErrors};

use crate::Diagnostics;
use crate::clang;
use crate::embedded;
use crate::for_bpf;
use crate::older;
use crate::sidecar::{self, Sidecar};

/// The ending of an object's path.
const ENDING: &str = ".o";

/// Returns whether a path names an object.
pub fn is_object(path: &Path) -> bool {
    path.to_string_lossy().ends_with(ENDING)
}

/// The types that objects ask for.
///
/// # Panics
/// If the compiler that built this program left no debug information; a test reads them.
pub(crate) fn kernel_types() -> &'static Arc<KernelTypes> {
    static TYPES: OnceLock<Arc<KernelTypes>> = OnceLock::new();
    TYPES.get_or_init(|| {
        let types = schedlab_abi::kernel_types(embedded::TYPES);
        Arc::new(types.expect("the build script keeps debug information"))
    })
}

/// Whether the scheduler at a path runs as an object: it is one, or a file beside its source says what its loader would do.
pub fn runs_as_object(path: &Path) -> bool {
    is_object(path) || sidecar::beside(path).is_some()
}

/// An object of a name.
///
/// # Errors
/// All faults that are found in it.
pub fn from_bytes(name: &str, elf: Vec<u8>) -> Result<Arc<NativeObject>, ObjectErrors> {
    NativeObject::from_bpf(name, elf, kernel_types())
}

/// An object that was read.
pub(crate) struct Read {
    pub object: Arc<NativeObject>,
    /// Notes for its user.
    pub notes: Vec<String>,
    /// The files that it was made of.
    pub files: Vec<PathBuf>,
}

/// Reads the object at a path with what the file beside it says, or makes it of a source.
///
/// # Errors
/// If a file cannot be read or compiled, or is no object that can be simulated.
pub(crate) fn read(path: &Path) -> Result<Read, Diagnostics> {
    let failed = |text: String| Diagnostics { lines: vec![text] };
    let sidecar = match sidecar::beside(path) {
        Some(beside) => sidecar::read(&beside).map_err(failed)?,
        None => Sidecar::default(),
    };
    let mut files = Vec::new();
    if !sidecar.path.as_os_str().is_empty() {
        files.push(sidecar.path.clone());
    }
    let mut parts = Vec::new();
    let headers = |part: &Path| -> Vec<PathBuf> {
        let beside = std::iter::once(for_bpf::beside(part));
        beside.chain(sidecar.include.iter().cloned()).collect()
    };
    let own = std::iter::once(path).chain(sidecar.link.iter().map(PathBuf::as_path));
    for part in own {
        let elf = match is_object(part) {
            true => {
                files.push(part.to_owned());
                fs::read(part).map_err(|error| failed(format!("{}: {error}", part.display())))?
            }
            false => for_bpf::compile(part, &headers(part), &sidecar.cflags, &mut files)
                .map_err(|lines| Diagnostics { lines })?,
        };
        let name = part.file_name().unwrap_or_default().to_string_lossy();
        parts.push((name.into_owned(), elf));
    }
    joined(path, parts, &sidecar.decisions, files)
}

/// Why a source becomes no object.
pub(crate) enum NoObject {
    /// clang's errors, or the reason in words if clang has no error.
    Refused(Vec<String>),
    /// It is an object that cannot be simulated.
    Lacks(Diagnostics),
}

/// Makes an object of a source that is compiled for BPF with the program's headers, those beside it and the system's: in this
/// order, as for a real kernel.
///
/// # Errors
/// As [`read`], or if it needs a function that is not in the virtual kernel.
pub(crate) fn of_source(path: &Path) -> Result<Read, NoObject> {
    let (mut files, headers) = (Vec::new(), for_bpf::headers());
    let mut include = headers.clone();
    include.push(for_bpf::beside(path));
    let compiled = for_bpf::compile(path, &include, &[], &mut files);
    // A source whose headers are missing altogether is no older one.
    let compiled = match compiled {
        Err(_) if !headers.is_empty() => older::compile(path, &headers, &mut files),
        compiled => compiled,
    };
    let refused = |why: &str| NoObject::Refused(vec![format!("{}: {why}", path.display())]);
    let elf = compiled.map_err(|lines| match headers.is_empty() {
        // Errors about headers that are not there say nothing of the source.
        true if clang::find().is_ok() => refused("this program has no headers for BPF"),
        _ => NoObject::Refused(lines),
    })?;
    // Without a table of ops the object's reader would miss the wrong thing first; the native compiler's words are right.
    if !elf.windows(11).any(|name| name == b".struct_ops") {
        return Err(refused("it has no table of ops"));
    }
    if let Some(name) = schedlab_abi::missing_functions(&elf).first() {
        return Err(refused(&format!("{name}() is not in the virtual kernel")));
    }
    // Headers of the program are the same for each.
    files.retain(|file| !headers.iter().any(|folder| file.starts_with(folder)));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parts = vec![(name.into_owned(), elf)];
    joined(path, parts, &Decisions::default(), files).map_err(NoObject::Lacks)
}

/// Makes an object of its parts.
fn joined(
    path: &Path,
    parts: Vec<(String, Vec<u8>)>,
    decisions: &Decisions,
    files: Vec<PathBuf>,
) -> Result<Read, Diagnostics> {
    let place = path.display();
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let name = file.strip_suffix(".o").or_else(|| file.strip_suffix(".c"));
    let name = name.unwrap_or(&file);
    let name = name.strip_suffix(".bpf").unwrap_or(name);
    let told = |error: &ObjectError| {
        // The path says which one it is.
        let (text, own) = (error.to_string(), format!("{name}: "));
        match error {
            ObjectError::Decision { .. } => {
                let folder = path.parent().unwrap_or(Path::new(""));
                folder.join(text).display().to_string()
            }
            _ => format!("{place}: {}", text.trim_start_matches(own.as_str())),
        }
    };
    let object = NativeObject::from_joined(name, parts, decisions, kernel_types());
    let object = object.map_err(|errors| Diagnostics {
        lines: errors.0.iter().map(told).collect(),
    })?;
    let notes = object
        .left_out()
        .iter()
        .map(|it| left_out(it, path))
        .collect();
    Ok(Read {
        object,
        notes,
        files,
    })
}

pub(crate) fn left_out(program: &LeftOut, path: &Path) -> String {
    let place = match program.place.is_empty() {
        true => path.display().to_string(),
        false => program.place.clone(),
    };
    format!(
        "{place}: {}() is left out: it is a program of SEC(\"{}\"), and a simulation calls ops alone{}",
        program.program,
        program.section,
        match program.section.as_str() {
            "syscall" => " (a [[call]] in a .sched.toml beside it runs it before the start)",
            _ => "",
        }
    )
}

#[cfg(test)]
mod tests {
    use schedlab_abi::KernelVersion;

    #[test]
    fn the_types_of_the_virtual_kernel_are_there() {
        super::kernel_types();
    }

    /// A loader finds a function by its prototype alone.
    #[test]
    fn each_kfunc_has_a_prototype() {
        let sources = [
            include_str!("../../abi/src/bpf/calls.rs"),
            include_str!("../../abi/src/bpf/masks.rs"),
        ];
        let types = super::kernel_types().of(KernelVersion::V7_2);
        let lines = sources.iter().flat_map(|source| source.lines());
        let names = lines.filter_map(|line| {
            let line = line.trim_start().trim_start_matches("| ");
            let (name, _) = line.strip_prefix('"')?.split_once('"')?;
            let plain = name.trim_start_matches("__");
            let is_kfunc = plain.starts_with("bpf_") || plain.starts_with("scx_bpf_");
            // Names that the kernel has retired: only objects that were compiled then call them.
            let retired = ["scx_bpf_dispatch", "scx_bpf_consume"];
            let is_retired = retired.iter().any(|old| plain.starts_with(old));
            (is_kfunc && !is_retired).then_some(name)
        });
        let mut nr = 0;
        for name in names {
            nr += 1;
            let missing = types.named(name).is_empty();
            assert!(
                !missing,
                "{name}: add it to crates/policies/src/types/kfuncs.h"
            );
        }
        assert!(nr > 80, "{nr} were found");
    }
}
