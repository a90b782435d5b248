//! Policies as BPF objects: those built in, and those compiled from a path at run time.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use schedlab_trace::Scheduler;

use crate::cache;
use crate::clang;
use crate::compiled;
use crate::error::{At, Doing, Error, Result};

/// A policy that was compiled with the program.
pub struct Embedded {
    /// File name without `.bpf.c`.
    pub name: &'static str,
    /// ELF object for BPF, compressed: nearly all of it are the zeros of an arena.
    compressed: &'static [u8],
    /// The C source.
    pub source: &'static str,
}

impl Embedded {
    /// Returns the ELF object for BPF.
    pub fn object(&self) -> Vec<u8> {
        inflated(self.compressed).expect("the build script has compressed it")
    }
}

include!(concat!(env!("OUT_DIR"), "/policies.rs"));

static HEADERS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/headers.tar.gz"));
static CFLAGS: &str = include_str!(concat!(env!("OUT_DIR"), "/bpf_cflags"));

/// A policy that can be loaded.
#[derive(Clone)]
pub struct BpfObject {
    /// As the user named it; a path's file name without `.bpf.c`.
    pub name: String,
    /// ELF object for BPF.
    pub bytes: Vec<u8>,
}

/// Finds a built-in policy by name, or compiles the C file at a path.
///
/// # Errors
/// Unknown names, and files that do not compile for BPF.
pub fn resolve(name_or_path: &str) -> Result<BpfObject> {
    if let Some(policy) = POLICIES.iter().find(|p| p.name == name_or_path) {
        return Ok(BpfObject {
            name: policy.name.to_owned(),
            bytes: policy.object(),
        });
    }
    if name_or_path.ends_with(".bpf.c") || name_or_path.contains('/') {
        return compiled_once(Path::new(name_or_path));
    }
    let policies = POLICIES.iter().map(|policy| policy.name);
    let known: Vec<&str> = std::iter::once(Scheduler::KERNELS_OWN)
        .chain(policies)
        .collect();
    Err(Error::UnknownPolicy {
        told: Scheduler::unknown(name_or_path, &known),
    })
}

/// Compiles the C file at a path the first time that it is asked for: one that is edited meanwhile changes none of a
/// command's runs.
fn compiled_once(path: &Path) -> Result<BpfObject> {
    let bytes = compiled::once(path, || Ok(compile(path)?.bytes))?;
    Ok(BpfObject {
        name: name_of(path),
        bytes,
    })
}

/// Returns the name of the policy in a C file.
fn name_of(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    file.trim_end_matches(".bpf.c").to_owned()
}

/// Compiles a policy's C file for BPF.
///
/// # Errors
/// No such file, no clang, or what the compiler says.
pub fn compile(path: &Path) -> Result<BpfObject> {
    fs::metadata(path).at(path)?;
    if path.extension().is_none_or(|ending| ending != "c") {
        return Err(Error::Compile {
            path: path.to_owned(),
            diagnostics: "not a C file: a scheduler's path ends in .bpf.c".to_owned(),
        });
    }
    let clang = clang::find().map_err(|remedy| Error::Missing {
        what: "clang for BPF".to_owned(),
        remedy,
    })?;
    let mut include = headers()?;
    let dir = tempfile::tempdir().at(std::env::temp_dir())?;
    let raw = dir.path().join("raw.o");
    let linked = dir.path().join("policy.o");
    // Finds headers beside the policy that are named in angle brackets, behind our own.
    let beside = path.parent().map(|folder| Path::new(".").join(folder));
    include.extend(beside);
    let output = clang
        .compile(CFLAGS.lines(), &include, path, &raw)
        .at(&clang.command)?;
    if !output.status.success() {
        return Err(Error::Compile {
            path: path.to_owned(),
            diagnostics: first_error(&String::from_utf8_lossy(&output.stderr)),
        });
    }
    // The linker drops the debug sections, which hold paths of this machine.
    let mut linker = libbpf_rs::Linker::new(&linked).doing("linking the policy")?;
    linker.add_file(&raw).doing("linking the policy")?;
    linker.link().doing("linking the policy")?;
    drop(linker);
    let bytes = fs::read(&linked).at(&linked)?;
    Ok(BpfObject {
        name: name_of(path),
        bytes,
    })
}

/// Returns the folders of the headers against which policies are compiled for BPF, in their order.
///
/// # Errors
/// If they cannot be unpacked.
pub fn headers() -> Result<Vec<PathBuf>> {
    let folder = unpack_headers()?;
    let compatible = folder.join("bpf-compat");
    Ok(vec![folder, compatible])
}

fn inflated(compressed: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes the embedded headers to the cache once per version of them.
fn unpack_headers() -> Result<PathBuf> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64; // FNV-1a: only distinguishes versions of our own file
    for byte in HEADERS {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    let dir = cache::dir()?.join(format!("headers-{hash:016x}"));
    if dir.is_dir() {
        return Ok(dir);
    }
    let parent = cache::dir()?;
    fs::create_dir_all(&parent).at(&parent)?;
    let staging = tempfile::tempdir_in(&parent).at(&parent)?;
    tar::Archive::new(flate2::read::GzDecoder::new(HEADERS))
        .unpack(staging.path())
        .at(staging.path())?;
    let bpf = staging.path().join("bpf");
    fs::create_dir_all(&bpf).at(&bpf)?;
    for (name, contents) in libbpf_sys::API_HEADERS {
        fs::write(bpf.join(name), contents).at(bpf.join(name))?;
    }
    match fs::rename(staging.path(), &dir) {
        Ok(()) => {
            // Renamed away: there is nothing left for the guard to remove.
            let _ = staging.keep();
        }
        // Another process was faster; its copy is the same.
        Err(_) if dir.is_dir() => {}
        Err(error) => return Err(error).at(&dir),
    }
    Ok(dir)
}

/// Returns the first error of clang as `file:line: what`: those after it are mostly its consequences.
fn first_error(said: &str) -> String {
    const MARKS: [&str; 2] = [": error: ", ": fatal error: "];
    let mut errors = said.lines().filter_map(|line| {
        let parts = MARKS.iter().find_map(|mark| line.split_once(mark));
        let (place, what) = parts?;
        // The name of a flag, or a full stop, before what to do.
        let what = what.split(" [-W").next().unwrap_or(what);
        Some((place, what.trim_end_matches(['.', ' '])))
    });
    let Some((place, what)) = errors.next() else {
        // Its back end reports no place.
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        return last
            .unwrap_or("clang fails without a word")
            .trim()
            .to_owned();
    };
    // file:line:column
    let place = match place.rsplit_once(':') {
        Some((line, column)) if line.contains(':') && column.parse::<u32>().is_ok() => line,
        _ => place,
    };
    let remedy = match errors.count() {
        0 => "correct it".to_owned(),
        1 => "correct it first, 1 more error follows".to_owned(),
        more => format!("correct it first, {more} more errors follow"),
    };
    format!("{place}: {what}: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_can_be_opened() {
        assert!(!POLICIES.is_empty());
        for policy in POLICIES {
            let object = resolve(policy.name).unwrap();
            let opened = libbpf_rs::ObjectBuilder::default().open_memory(&object.bytes);
            assert!(opened.is_ok(), "{}: {:?}", policy.name, opened.err());
        }
    }

    #[test]
    fn a_file_is_compiled_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.bpf.c");
        fs::write(
            &path,
            "char _license[] __attribute__((section(\"license\"))) = \"GPL\";\n",
        )
        .unwrap();
        let name = path.to_str().unwrap();
        let before = resolve(name).unwrap();
        fs::write(&path, "no C at all").unwrap();
        assert_eq!(resolve(name).unwrap().bytes, before.bytes);
        assert!(compile(&path).is_err());
    }

    #[test]
    fn a_header_beside_a_policy_is_found_in_angle_brackets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.bpf.c");
        let text =
            "#include <mine.h>\nchar _license[] __attribute__((section(\"license\"))) = MINE;\n";
        fs::write(&path, text).unwrap();
        assert!(compile(&path).is_err());
        fs::write(folder.path().join("mine.h"), "#define MINE \"GPL\"\n").unwrap();
        assert!(compile(&path).is_ok());
    }

    #[test]
    fn of_many_errors_the_first_is_told_with_its_place() {
        let said = "In file included from a.bpf.c:1:\n\
                    a.bpf.c:40:1: error: unknown type name 's3x2'; did you mean 's32'?\n   \
                    40 | s3x2 BPF_STRUCT_OPS(a)\n      | ^~~~\n\
                    a.bpf.c:43:2: error: unknown type name 's3x2'\n\
                    a.bpf.c:55:36: error: unknown type name 's3x2'\n\
                    3 errors generated.\n";
        assert_eq!(
            first_error(said),
            "a.bpf.c:40: unknown type name 's3x2'; did you mean 's32'?: correct it first, 2 more errors follow"
        );
        for (what, told) in [
            ("fatal error: 'x.h' file not found", "'x.h' file not found"),
            ("error: a call is not supported.", "a call is not supported"),
            ("error: call to foo [-Wimplicit-foo]", "call to foo"),
        ] {
            assert_eq!(
                first_error(&format!("a.bpf.c:2:10: {what}\n1 error generated.\n")),
                format!("a.bpf.c:2: {told}: correct it")
            );
        }
        assert_eq!(
            first_error("error: unable to open output file\n\n"),
            "error: unable to open output file"
        );
        assert_eq!(first_error(""), "clang fails without a word");
    }
}
