//! Compares the counts of `measure.bpf.c` with cases computed by hand: compiled for this machine and run over events
//! that are made by hand (`tests/measure/cases.c`), no kernel needed.

use std::path::Path;
use std::process::Command;

use schedlab_kernel::clang;

#[test]
fn counts_are_those_computed_by_hand() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a temporary directory");
    let program = folder.path().join("cases");
    let clang = clang::find().expect("this package was built with it");
    let compiled = Command::new(clang.command)
        .args(["-std=gnu2x", "-O1", "-Wall", "-Werror"])
        .arg("-I")
        .arg(package.join("tests/measure"))
        .arg("-I")
        .arg(package.join("src/bpf"))
        .arg(package.join("tests/measure/cases.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("clang runs");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
    let output = Command::new(&program).output().expect("the cases run");
    let differences = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{differences}{}", output.status);
}
