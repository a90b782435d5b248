//! Compiles a source for BPF with clang and headers of its own, as its author's build does.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::clang;
use crate::prerequisites;

/// Finds folders with headers for BPF, in their order: `vmlinux.h`, libbpf's and scx's.
pub type FindHeaders = fn() -> Result<Vec<PathBuf>, String>;

static HEADERS: OnceLock<FindHeaders> = OnceLock::new();

/// Sets where headers for BPF are found. A program with the real kernel's side has them; without, a source finds those
/// beside it and the system's. Only the first call counts.
pub fn use_headers(find: FindHeaders) {
    let _ = HEADERS.set(find);
}

/// Returns the folders of headers that the program has. That they cannot be had is no error of a scheduler's.
pub fn headers() -> Vec<PathBuf> {
    let found = HEADERS.get().and_then(|find| find().ok());
    found.unwrap_or_default()
}

/// The folder that a source is in.
pub fn beside(source: &Path) -> PathBuf {
    let folder = source.parent().filter(|it| !it.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

/// Compiles a source with the headers of these folders and the system's, and adds what it was made of to `files`.
///
/// # Errors
/// If there is no clang, or it refuses the source: its first errors.
pub fn compile(
    source: &Path,
    include: &[PathBuf],
    cflags: &[String],
    files: &mut Vec<PathBuf>,
) -> Result<Vec<u8>, Vec<String>> {
    let failed = |text: String| vec![text];
    let place = source.display();
    let clang = clang::find().map_err(|what| {
        let why = "this source is compiled for BPF (docs/objects.md)";
        failed(format!("{place}: {why}: {what}"))
    })?;
    let folder = tempfile::tempdir().map_err(|error| failed(format!("{place}: {error}")))?;
    let (object, depends) = (folder.path().join("x.o"), folder.path().join("x.d"));
    let arch = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x86",
    };
    let of_arch = [
        format!("-D__TARGET_ARCH_{arch}"),
        format!("-D__SCX_TARGET_ARCH_{arch}"),
        "-idirafter".to_owned(),
        format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH),
    ];
    let depends_text = depends.to_string_lossy();
    let flags = ["-mcpu=v3", "-O2", "-g", "-mllvm", "-disable-gotox"]
        .into_iter()
        .chain(of_arch.iter().map(String::as_str))
        .chain(["-idirafter", "/usr/include"])
        .chain(cflags.iter().map(String::as_str))
        .chain(["-MMD", "-MF", &depends_text]);
    let output = clang.compile(flags, include, source, &object);
    let clang = &clang.command;
    let output = output.map_err(|error| failed(format!("{place}: {clang}: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let errors = said.lines().filter(|line| line.contains("error: "));
        let lines: Vec<String> = errors.take(5).map(str::to_owned).collect();
        return Err(match lines.is_empty() {
            true => failed(format!("{place}: {clang} has failed: {said}")),
            false => lines,
        });
    }
    let rule = fs::read_to_string(&depends)
        .map_err(|error| failed(format!("{place}: {clang}: {}: {error}", depends.display())))?;
    files.extend(prerequisites::of(&rule).into_iter().map(PathBuf::from));
    fs::read(&object).map_err(|error| failed(format!("{place}: {error}")))
}
