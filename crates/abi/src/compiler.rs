//! Compiling a policy's C source for the virtual kernel.
//!
//! The build script of `crates/policies` includes this file too, so it needs nothing but `std`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The compiler to use: `SCHEDLAB_CC`, or else `cc`.
pub fn default_compiler() -> String {
    std::env::var("SCHEDLAB_CC").unwrap_or_else(|_| "cc".to_owned())
}

/// How a policy is compiled. Both gcc and clang take these.
const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-g",
    "-shared",
    "-fPIC",
    // Every name resolves inside the object, whatever else the process has loaded.
    "-fvisibility=hidden",
    "-nostartfiles",
    // The linker reports undefined symbols as warnings, so that the object exists and its other errors are found, too.
    "-Wl,-z,defs",
    "-Wl,--warn-unresolved-symbols",
    "-Wl,-z,now",
    // Constants that are set when the policy is loaded lie in no page with code, which would stop being executable.
    "-Wl,-z,separate-code",
    // As clang compiles for BPF, and the same under both compilers.
    "-fno-strict-aliasing",
    "-fwrapv",
    // A write beyond an array on the stack is found before the function returns over it.
    "-fstack-protector-strong",
    "-mstack-protector-guard=global",
    // Uninitialized data is the same in each run.
    "-ftrivial-auto-var-init=zero",
    // A frame larger than a fiber's stack meets the guard page and does not jump over it.
    "-fstack-clash-protection",
    // No floating point, which BPF has not, either.
    "-mgeneral-regs-only",
    // Without tail calls a backtrace has the line of a function's last call.
    "-fno-optimize-sibling-calls",
    // BPF headers of others ask which side they are on.
    "-D__BPF__",
    "-Wall",
    "-Wno-unused",
    "-Wno-unknown-pragmas",
    "-Werror=implicit-function-declaration",
    "-Werror=implicit-int",
    "-Werror=int-conversion",
    "-fdiagnostics-color=never",
];

/// The further flags of an architecture.
fn flags_of(arch: &str) -> &'static [&'static str] {
    match arch {
        // Atomic operations are instructions, and no functions of libgcc's that ask the C library for the processor.
        // Its division by zero gives zero; other processors end the program.
        "aarch64" => &[
            "-mno-outline-atomics",
            "-fsanitize=integer-divide-by-zero",
            "-fsanitize-undefined-trap-on-error",
        ],
        _ => &[],
    }
}

/// Flags to audit it or check it for races, which only clang can: each load and each store is a call before it
/// (`include/native/scx/audit.h`), volatile ones apart. Atomic operations report themselves.
const AUDIT_FLAGS: &[&str] = &[
    "-DLAB_AUDIT",
    "-fsanitize=thread",
    "-mllvm",
    "-tsan-distinguish-volatile=1",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-mllvm",
    "-tsan-instrument-atomics=0",
];

/// The source to compile.
pub struct Compilation<'a> {
    /// The compiler.
    pub compiler: &'a str,
    /// The target architecture, by Rust's name.
    pub arch: &'a str,
    /// Folder that relative paths are seen from; debug information does not mention it.
    pub folder: &'a Path,
    /// The source, relative to `folder` or absolute.
    pub source: &'a Path,
    /// Folders of headers, the native ones first, and last the one that messages and debug information call `include`.
    pub include: &'a [PathBuf],
    /// The shared object to write. Beside it, ending in `.d`, appears what it was made of, as a rule of make:
    /// the source and all headers but the system's.
    pub output: &'a Path,
    /// Whether its loads and stores are reported to the auditor and the checker of races.
    pub audit: bool,
}

/// Compiles a policy. Returns the output of compiler and linker, which has their warnings, undefined symbols among them.
/// The error is this output, or the reason why the compiler did not start.
pub fn run(job: &Compilation<'_>) -> Result<String, String> {
    run_with(job, &[])
}

/// Compiles a policy with further arguments.
pub fn run_with(job: &Compilation<'_>, further: &[String]) -> Result<String, String> {
    let mut command = Command::new(job.compiler);
    command.current_dir(job.folder).args(FLAGS);
    command.args(flags_of(job.arch));
    if job.audit {
        command.args(AUDIT_FLAGS);
    }
    // Paths in messages and debug information are the same on every machine.
    command.arg(format!("-ffile-prefix-map={}=.", job.folder.display()));
    for folder in job.include {
        command.arg("-I").arg(folder);
    }
    // Finds headers beside the source that are named in angle brackets, behind the program's own headers.
    if let Some(beside) = job.source.parent() {
        command.arg("-I").arg(Path::new(".").join(beside));
    }
    // Those of the program lie where it has put them.
    if let Some(folder) = job.include.last() {
        command.arg(format!("-ffile-prefix-map={}=include", folder.display()));
    }
    command
        .arg("-MMD")
        .arg("-MF")
        .arg(job.output.with_extension("d"));
    command.args(further);
    command.arg("-o").arg(job.output).arg(job.source);
    let output = command.output().map_err(|error| {
        format!(
            "the C compiler `{}` cannot be started: {error}: install gcc or clang, or name one in SCHEDLAB_CC",
            job.compiler
        )
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(said.into_owned());
    }
    // A signal, to us as well as to it, leaves it no time to say what is wrong.
    if said.trim().is_empty() || output.status.code().is_none() {
        return Err(format!(
            "the C compiler `{}` did not get to its end: {}",
            job.compiler, output.status
        ));
    }
    Err(said.into_owned())
}
