//! Compiles C programs of the tests that contain a policy.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The program of `tests/FOLDER/SOURCE.c`, or what the compiler said as a panic.
#[allow(dead_code, reason = "some tests give macros")]
pub fn compile(folder: &str, source: &str) -> PathBuf {
    compile_as(folder, source, source, &[])
}

/// The same with macros, `NAME=VALUE`; the program has this name.
pub fn compile_as(folder: &str, source: &str, name: &str, macros: &[String]) -> PathBuf {
    // Tests of other packages compile these programs, too.
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies");
    let include = package.join("../../include");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{folder}-{name}"));
    let compiler = std::env::var("SCHEDLAB_CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(&compiler)
        .current_dir(package.join("tests").join(folder))
        .args(["-std=gnu11", "-g", "-O1", "-Wall", "-Werror"])
        // They play the kernel, which writes all of a task.
        .arg("-DLAB_OF_KERNEL=")
        // Tunables are made writable, so some `const` is lost.
        .args(["-Wno-unused-function", "-Wno-unknown-warning-option"])
        .args(["-Wno-discarded-qualifiers"])
        .arg("-Wno-incompatible-pointer-types-discards-qualifiers")
        .arg("-I")
        .arg(include.join("native"))
        .arg("-I")
        .arg(&include)
        .args(macros.iter().map(|one| format!("-D{one}")))
        .arg(format!("{source}.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}
