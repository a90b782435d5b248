//! Sums the sources that results depend on. What is built of the same sources gives the same results, whatever
//! built it and for which program; so a sweep may go on with a program that was built anew, or in Python.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Crates that only request runs, print their results or test. Results depend on all others.
const WITHOUT: &[&str] = &[
    "advise",
    "analysis",
    "calibrate",
    "cli",
    "experiments",
    "figures",
    "python",
    "testing",
];

/// Other inputs that are built in.
const WITH: &[&str] = &["Cargo.lock", "include", "machines", "policies"];

fn main() -> io::Result<()> {
    // At run time: a checkout may have been moved with what was built in it.
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let root = Path::new(&root).join("../..");
    let mut paths: Vec<PathBuf> = WITH.iter().map(PathBuf::from).collect();
    for entry in fs::read_dir(root.join("crates"))? {
        let name = entry?.file_name();
        if !WITHOUT.iter().any(|without| name == *without) {
            let folder = Path::new("crates").join(name);
            paths.extend(["Cargo.toml", "build.rs", "src"].map(|part| folder.join(part)));
        }
    }
    let mut files = Vec::new();
    for path in paths.into_iter().filter(|path| root.join(path).exists()) {
        // The path is relative, so that a copy of the checkout uses its own path.
        println!("cargo::rerun-if-changed=../../{}", path.display());
        collect(&root, path, &mut files)?;
    }
    files.sort();
    let mut sum = crc32fast::Hasher::new();
    for file in files {
        let contents = fs::read(root.join(&file))?;
        sum.update(format!("{} {}\n", file.display(), contents.len()).as_bytes());
        sum.update(&contents);
    }
    println!(
        "cargo::rustc-env=SCHEDLAB_BUILD=crc32 {:08x}",
        sum.finalize()
    );
    Ok(())
}

/// Returns the files at or below a path, relative to the root.
fn collect(root: &Path, path: PathBuf, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !root.join(&path).is_dir() {
        files.push(path);
        return Ok(());
    }
    for entry in fs::read_dir(root.join(&path))? {
        collect(root, path.join(entry?.file_name()), files)?;
    }
    Ok(())
}
