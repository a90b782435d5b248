//! Compiles every policy for BPF and packs what is needed to compile more at run time.
//!
//! The headers (`vmlinux.h`, `<scx/…>`) come from scx_cargo; nothing is vendored.

use std::env;
use std::fmt::{Display, Write as _};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use libbpf_rs::Linker;
use scx_cargo::{BpfBuilder, ClangInfo};

use clang::Clang;

#[path = "../policies/src/clang.rs"]
#[allow(dead_code)]
mod clang;
#[path = "../policies/in_parallel.rs"]
mod in_parallel;

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
    // The paths are relative, so that a copy of the checkout uses its own paths.
    for path in ["../../policies", "../../include", "src/bpf"] {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rerun-if-changed=../policies/src/clang.rs");
    println!("cargo:rerun-if-changed=../policies/in_parallel.rs");
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

    // Unpacks the headers.
    BpfBuilder::new().unwrap_or_else(|error| fail(&format!("{error:#}")));
    let info = ClangInfo::new().unwrap_or_else(|error| fail(&format!("{error:#}")));
    let mut flags = info
        .determine_base_cflags()
        .unwrap_or_else(|error| fail(&format!("{error:#}")));
    let arch = info
        .kernel_target()
        .unwrap_or_else(|error| fail(&format!("{error:#}")));
    flags.push(format!("-D__SCX_TARGET_ARCH_{arch}"));
    fs::write(out.join("bpf_cflags"), flags.join("\n")).expect("OUT_DIR is writable");
    println!("cargo:rustc-env=SCHEDLAB_BPF_ARCH={arch}");

    let scx = out.join(SCX_HEADERS);
    pack_headers(&scx, &arch, &include, &out.join("headers.tar.gz"));
    write_libbpf_headers(&out.join("libbpf/bpf"));
    let build = Build {
        clang: &clang,
        flags: &flags,
        include: &[
            scx.join("arch").join(&arch),
            scx.clone(),
            scx.join("bpf-compat"),
            // After the headers of scx, so that <scx/…> is never our native shadow of it.
            include,
            out.join("libbpf"),
        ],
        out: &out,
    };
    let measure = manifest_dir.join("src/bpf/measure.bpf.c");
    let all: Vec<&Path> = sources
        .iter()
        .chain([&measure])
        .map(PathBuf::as_path)
        .collect();
    for compiled in in_parallel::each(&all, |source| build.compile(source)) {
        match compiled {
            Ok(warnings) => warn(&warnings),
            Err(error) => fail(&error),
        }
    }

    let mut table = String::from("pub static POLICIES: &[Embedded] = &[\n");
    for source in &sources {
        let name = name(source);
        let beside = format!("{name}.bpf.c");
        fs::copy(source, out.join(&beside)).expect("OUT_DIR is writable");
        writeln!(
            table,
            "    Embedded {{ name: {name:?}, compressed: include_bytes!(\"{name}.bpf.o.gz\"), source: include_str!({beside:?}) }},"
        )
        .expect("writing to a string");
    }
    table.push_str("];\n");
    fs::write(out.join("policies.rs"), table).expect("OUT_DIR is writable");
}

fn name(source: &Path) -> String {
    let file = source
        .file_name()
        .expect("a file")
        .to_string_lossy()
        .into_owned();
    file.trim_end_matches(".bpf.c").to_owned()
}

/// How everything is compiled.
struct Build<'a> {
    clang: &'a Clang,
    flags: &'a [String],
    include: &'a [PathBuf],
    out: &'a Path,
}

impl Build<'_> {
    /// To `OUT_DIR/<name>.bpf.o.gz`. Answers warnings.
    fn compile(&self, source: &Path) -> Result<String, String> {
        let failed = |why: &dyn Display| {
            let source = source.display();
            format!("{source} does not compile for BPF: {why}")
        };
        let name = name(source);
        let raw = self.out.join(format!("{name}.raw.o"));
        let flags = self.flags.iter().map(String::as_str);
        let output = self.clang.compile(flags, self.include, source, &raw);
        let output = output.map_err(|error| failed(&error))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(failed(&said));
        }
        // The linker drops the debug sections, which hold paths of this machine.
        let object = self.out.join(format!("{name}.bpf.o"));
        Linker::new(&object)
            .and_then(|mut linker| {
                linker.add_file(&raw)?;
                linker.link()
            })
            .map_err(|error| failed(&error))?;
        fs::remove_file(&raw)
            .and_then(|()| compress(&object))
            .map_err(|error| failed(&error))?;
        Ok(said)
    }
}

/// The headers that libbpf itself brings for BPF programs, `<bpf/…>`.
fn write_libbpf_headers(to: &Path) {
    fs::create_dir_all(to).expect("OUT_DIR is writable");
    for (name, contents) in libbpf_rs::libbpf_sys::API_HEADERS {
        fs::write(to.join(name), contents).expect("OUT_DIR is writable");
    }
}

/// To a file with `.gz` after its name.
fn compress(file: &Path) -> io::Result<()> {
    let mut to = file.as_os_str().to_owned();
    to.push(".gz");
    let mut gz = GzEncoder::new(File::create(to)?, Compression::best());
    gz.write_all(&fs::read(file)?)?;
    gz.finish()?;
    Ok(())
}

/// The headers against which a user's policy is compiled: the scx headers for this architecture and `include/lab`.
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
    warn(message);
    std::process::exit(1);
}

fn warn(message: &str) {
    for line in message.lines() {
        println!("cargo:warning={line}");
    }
}
