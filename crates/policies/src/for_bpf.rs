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

/// A call of clang.
pub struct Attempt<'a> {
    pub source: &'a Path,
    /// Folders of headers; the system's come after them.
    pub include: &'a [PathBuf],
    pub cflags: &'a [String],
    /// A header that comes before the source.
    pub ahead: Option<&'a Path>,
    /// Whether it goes on after many errors.
    pub all_errors: bool,
    /// Whether it may use instructions that kernels have since Linux 6.6 (`-mcpu=v4`).
    pub newer_instructions: bool,
}

impl<'a> Attempt<'a> {
    pub fn new(source: &'a Path, include: &'a [PathBuf]) -> Attempt<'a> {
        Attempt {
            source,
            include,
            cflags: &[],
            ahead: None,
            all_errors: false,
            newer_instructions: false,
        }
    }
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
    let attempt = Attempt {
        cflags,
        ..Attempt::new(source, include)
    };
    self::attempt(&attempt, files).map_err(|mut errors| {
        errors.truncate(5);
        errors
    })
}

/// Does so.
///
/// # Errors
/// If there is no clang, or it refuses the source: its errors.
pub fn attempt(it: &Attempt<'_>, files: &mut Vec<PathBuf>) -> Result<Vec<u8>, Vec<String>> {
    let failed = |text: String| vec![text];
    let place = it.source.display();
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
    let instructions = match it.newer_instructions {
        true => "-mcpu=v4",
        false => "-mcpu=v3",
    };
    let ahead = it.ahead.map(|path| path.to_string_lossy());
    let ahead = ahead.iter().flat_map(|path| ["-include", path]);
    let flags = [instructions, "-O2", "-g", "-mllvm", "-disable-gotox"]
        .into_iter()
        .chain(of_arch.iter().map(String::as_str))
        .chain(["-idirafter", "/usr/include"])
        .chain(it.all_errors.then_some("-ferror-limit=0"))
        .chain(it.cflags.iter().map(String::as_str))
        .chain(ahead)
        .chain(["-MMD", "-MF", &depends_text]);
    let output = clang.compile(flags, it.include, it.source, &object);
    let clang = &clang.command;
    let output = output.map_err(|error| failed(format!("{place}: {clang}: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let errors = said.lines().filter(|line| line.contains("error: "));
        let lines: Vec<String> = errors.map(str::to_owned).collect();
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
