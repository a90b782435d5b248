//! Compiles every policy for BPF and packs what is needed to compile more at run time.
//!
//! The headers (`vmlinux.h`, `<scx/…>`) come from scx_cargo; nothing is vendored.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use scx_cargo::{BpfBuilder, ClangInfo};

#[path = "src/clang.rs"]
#[allow(dead_code)]
mod clang;

/// Where [`BpfBuilder::new`] unpacks its headers below `OUT_DIR`.
const SCX_HEADERS: &str = "scx_utils-bpf_h";

fn main() {
    let manifest_dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let root = manifest_dir
        .ancestors()
        .nth(2)
        .expect("two levels below the root")
        .to_owned();
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    let include = root.join("include");
    let policies = root.join("policies");
    for path in [&policies, &include, &manifest_dir.join("src/bpf")] {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    println!("cargo:rerun-if-changed=src/clang.rs");
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    println!("cargo:rerun-if-env-changed=PATH");

    let clang = clang::find().unwrap_or_else(|message| fail(&message));
    // SAFETY: the build script has one thread.
    unsafe { env::set_var("BPF_CLANG", &clang.command) };

    let mut sources: Vec<PathBuf> = fs::read_dir(&policies)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(".bpf.c"))
        .collect();
    sources.sort();

    let mut table = String::from("pub static POLICIES: &[Embedded] = &[\n");
    for source in &sources {
        let name = policy_name(source);
        compile(source, &name, &include);
        writeln!(
            table,
            "    Embedded {{ name: {name:?}, object: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.bpf.o\")), source: include_str!({source:?}) }},"
        )
        .expect("writing to a string");
    }
    table.push_str("];\n");
    fs::write(out.join("policies.rs"), table).expect("OUT_DIR is writable");

    compile(
        &manifest_dir.join("src/bpf/measure.bpf.c"),
        "schedlab_measure",
        &include,
    );

    let info = ClangInfo::new().unwrap_or_else(|error| fail(&format!("{error:#}")));
    let flags = info
        .determine_base_cflags()
        .unwrap_or_else(|error| fail(&format!("{error:#}")));
    let arch = info
        .kernel_target()
        .unwrap_or_else(|error| fail(&format!("{error:#}")));
    let mut flags = flags.join("\n");
    write!(flags, "\n-D__SCX_TARGET_ARCH_{arch}").expect("writing to a string");
    fs::write(out.join("bpf_cflags"), flags).expect("OUT_DIR is writable");
    pack_headers(
        &out.join(SCX_HEADERS),
        &arch,
        &include,
        &out.join("headers.tar.gz"),
    );
    println!("cargo:rustc-env=SCHEDLAB_BPF_ARCH={arch}");
}

fn policy_name(source: &Path) -> String {
    let file = source
        .file_name()
        .expect("a file")
        .to_string_lossy()
        .into_owned();
    file.trim_end_matches(".bpf.c").to_owned()
}

/// To `OUT_DIR/<name>.bpf.o`.
fn compile(source: &Path, name: &str, include: &Path) {
    let build = || {
        let mut builder = BpfBuilder::new()?;
        // After the headers of scx, so that <scx/…> is never our native shadow of it.
        builder.add_cflag(&format!("-I{}", include.display()));
        builder.enable_skel(&source.to_string_lossy(), name).build()
    };
    if let Err(error) = build() {
        fail(&format!(
            "{} does not compile for BPF: {error:#}",
            source.display()
        ));
    }
}

/// What a user's policy is compiled against: the scx headers for this architecture and `include/lab`.
fn pack_headers(scx: &Path, arch: &str, include: &Path, to: &Path) {
    let file = File::create(to).expect("OUT_DIR is writable");
    let mut tar = tar::Builder::new(GzEncoder::new(file, Compression::best()));
    tar.mode(tar::HeaderMode::Deterministic);
    let mut add = |dir: PathBuf, as_dir: &str| {
        let mut files = Vec::new();
        walk(&dir, &mut files);
        files.sort();
        for path in files {
            let name = Path::new(as_dir).join(path.strip_prefix(&dir).expect("below dir"));
            // Links are followed: the headers' names count, not their layout.
            tar.append_path_with_name(&path, name)
                .unwrap_or_else(|error| fail(&format!("{}: {error}", path.display())));
        }
    };
    for dir in ["scx", "lib", "bpf-compat"] {
        add(scx.join(dir), dir);
    }
    let lab = include.join("lab");
    if lab.is_dir() {
        add(lab, "lab");
    }
    let vmlinux = scx.join("arch").join(arch).join("vmlinux.h");
    tar.append_path_with_name(&vmlinux, "vmlinux.h")
        .unwrap_or_else(|error| fail(&format!("{}: {error}", vmlinux.display())));
    for entry in fs::read_dir(scx).expect("unpacked by BpfBuilder") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|e| e == "h") {
            let name = path.file_name().expect("a file").to_owned();
            tar.append_path_with_name(&path, name)
                .unwrap_or_else(|error| fail(&format!("{}: {error}", path.display())));
        }
    }
    tar.into_inner()
        .and_then(GzEncoder::finish)
        .unwrap_or_else(|error| fail(&format!("{}: {error}", to.display())));
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|e| fail(&format!("{}: {e}", dir.display()))) {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            walk(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Ends the build with a message that cargo shows without a backtrace.
fn fail(message: &str) -> ! {
    for line in message.lines() {
        println!("cargo:warning={line}");
    }
    std::process::exit(1);
}
