//! Finds `policies/*.bpf.c`, compiles each for the virtual kernel and embeds it, and embeds the
//! headers, so that the program can compile policies of others wherever it is.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "../abi/src/compiler.rs"]
mod compiler;
mod in_parallel;

/// The repository's root, from the package's.
const FROM_HERE: &str = "../..";

fn main() {
    // At run time: a checkout may have been moved with what was built in it.
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let root = Path::new(&root).join("../..");
    let root = root.canonicalize().expect("the repository's root");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let compiler = compiler::default_compiler();
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    println!("cargo::rerun-if-changed=../abi/src/compiler.rs");
    println!("cargo::rerun-if-changed=in_parallel.rs");
    println!("cargo::rerun-if-env-changed=SCHEDLAB_CC");
    // The paths are relative, so that a copy of the checkout uses its own paths.
    println!("cargo::rerun-if-changed={FROM_HERE}/policies");

    let include = [root.join("include/native"), root.join("include")];
    let names = policies(&root.join("policies"));
    let source = |name: &String| PathBuf::from(format!("policies/{name}.bpf.c"));
    let output = |name: &String| out.join(format!("{name}.so"));
    let compiled = in_parallel::each(&names, |name| {
        compiler::run(&compiler::Compilation {
            compiler: &compiler,
            arch: &arch,
            folder: &root,
            source: &source(name),
            include: &include,
            output: &output(name),
            audit: false,
        })
    });
    let mut list = String::from("pub static FILES: &[(&str, &str, &[u8])] = &[\n");
    for (name, compiled) in names.iter().zip(compiled) {
        let unresolved = |text: &String| {
            ["undefined reference to", "undefined symbol"]
                .iter()
                .any(|it| text.contains(it))
        };
        let compiled = compiled.and_then(|text| match unresolved(&text) {
            true => Err(text),
            false => Ok(()),
        });
        if let Err(message) = compiled {
            panic!("{} does not compile:\n{message}", source(name).display());
        }
        let source = source(name);
        println!("cargo::rerun-if-changed={FROM_HERE}/{}", source.display());
        embed(&root.join(&source), &out.join(&source));
        writeln!(
            list,
            "    ({name:?}, include_str!({source:?}), include_bytes!(\"{name}.so\")),"
        )
        .unwrap();
    }
    list += "];\n";

    let types = Path::new("crates/policies/src/types/types.bpf.c");
    let compiled = compiler::run_with(
        &compiler::Compilation {
            compiler: &compiler,
            arch: &arch,
            folder: &root,
            source: types,
            include: &include,
            output: &out.join("types.so"),
            audit: false,
        },
        &["-fno-eliminate-unused-debug-types".to_owned()],
    );
    if let Err(message) = compiled {
        panic!("{} does not compile:\n{message}", types.display());
    }
    let folder = types.parent().expect("it lies in a folder");
    println!("cargo::rerun-if-changed={FROM_HERE}/{}", folder.display());
    list += "pub static TYPES: &[u8] = include_bytes!(\"types.so\");\n";

    list += "pub static HEADERS: &[(&str, &str)] = &[\n";
    for header in headers(&root.join("include")) {
        let path = Path::new("include").join(&header);
        println!("cargo::rerun-if-changed={FROM_HERE}/{}", path.display());
        embed(&root.join(&path), &out.join(&path));
        writeln!(list, "    ({header:?}, include_str!({path:?})),").unwrap();
    }
    list += "];\n";
    println!("cargo::rerun-if-changed={FROM_HERE}/include");
    fs::write(out.join("embedded.rs"), list).expect("OUT_DIR can be written");
}

/// Copies a file beside the list that names it: paths in the list are relative to it.
fn embed(from: &Path, to: &Path) {
    let folder = to.parent().expect("a file is in a folder");
    fs::create_dir_all(folder).expect("OUT_DIR can be written");
    fs::copy(from, to).expect("OUT_DIR can be written");
}

/// Returns the names of the policies, sorted.
fn policies(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("policies/ can be read");
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_suffix(".bpf.c").map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

/// Every header below `folder`, relative to it, sorted.
fn headers(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        for entry in fs::read_dir(folder.join(&below)).expect("include/ can be read") {
            let entry = entry.expect("include/ can be read");
            let path = below.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "h") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
