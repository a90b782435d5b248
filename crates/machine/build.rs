//! Embeds every file of `machines/`: a new file is a new profile, with nothing else to edit.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let folder = Path::new(&root).join("../../machines");
    // The path is relative, so that a copy of the checkout uses its own path.
    println!("cargo::rerun-if-changed=../../machines");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("readable folder").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    files.sort();
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    let mut code = String::from("pub(crate) const BUILTIN: &[(&str, &str)] = &[\n");
    for path in files {
        let name = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .expect("profile names are UTF-8");
        let file = format!("{name}.toml");
        println!("cargo::rerun-if-changed=../../machines/{file}");
        fs::copy(&path, out.join(&file)).expect("OUT_DIR is writable");
        writeln!(code, "    ({name:?}, include_str!({file:?})),").expect("writes to a string");
    }
    code.push_str("];\n");
    fs::write(out.join("builtin.rs"), code).expect("OUT_DIR is writable");
}
