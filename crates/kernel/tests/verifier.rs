//! The policies of `tests/verifier`, which no verifier lets pass, in real kernels: each is refused, and schedlab says
//! why, on which line, and what to do. `SCHEDLAB_BLESS=1` keeps what the kernels logged, for the tests of `verdict.rs`.
//!
//! Boots a virtual machine for each kernel and runs this same program inside.

#[path = "verifier/expect.rs"]
mod expect;

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use schedlab_kernel::bpf_policy::{self, BpfObject};
use schedlab_kernel::kernel_log::complaints;
use schedlab_kernel::load::Loaded;
use schedlab_kernel::vm::{Stream, Vm, kernel};
use schedlab_kernel::{Error, clang};
use schedlab_testing::{chosen, skipped};

/// First argument of this program inside; the second is the folder of the compiled policies.
const MARK: &str = "verifier-inside-the-virtual-machine";

/// Lines of a log that are kept.
const KEPT_LINES: usize = 60;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == MARK) {
        return inside(Path::new(&arguments[1]));
    }
    let Some(filter) = chosen("verifier", arguments) else {
        return ExitCode::SUCCESS;
    };
    if let Err(why) = clang::find() {
        skipped(&format!("the verifier in real kernels: {why}"));
        return ExitCode::SUCCESS;
    }
    let objects = tempfile::tempdir().expect("a temporary folder can be made");
    for name in names()
        .iter()
        .filter(|name| filter.iter().all(|f| name.contains(f.as_str())))
    {
        let object = bpf_policy::compile(&source(name)).unwrap_or_else(|error| panic!("{error}"));
        fs::write(objects.path().join(name), &object.bytes).expect("a temporary file");
    }
    let mut failed = false;
    for version in kernel::pinned() {
        match boot(version, objects.path()) {
            Ok(fine) => failed |= !fine,
            Err(error @ (Error::Missing { .. } | Error::NoKernel(_))) => {
                skipped(&format!("the verifier of {version}: {error}"));
            }
            Err(error) => {
                println!("{error}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

fn boot(version: &str, objects: &Path) -> schedlab_kernel::Result<bool> {
    let vm = Vm {
        cpus: 2,
        kernel: Some(version.to_owned()),
        timeout: Duration::from_secs(3_600),
        ..Vm::default()
    };
    let program = std::env::current_exe().expect("a running program has a path");
    let command: Vec<OsString> = vec![program.into(), MARK.into(), objects.into()];
    let mut show = |_: Stream, bytes: &[u8]| {
        // The output has no reader: the exit code decides.
        let _ = std::io::stdout().write_all(bytes);
    };
    let (code, log) = vm.run(&command, &|note| println!("{note}"), &mut show)?;
    println!("the policies in {version} ended with {code}; kernel log:\n{log}");
    if std::env::var_os("SCHEDLAB_BLESS").is_some() {
        keep(version, objects);
    }
    let complaints = complaints(&log);
    for line in &complaints {
        println!("FAILED the kernel complains: {line}");
    }
    Ok(code == 0 && complaints.is_empty())
}

/// `7.2` of `7.2.13+deb14-amd64`.
fn short(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Keeps the ends of the logs.
fn keep(version: &str, objects: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/verdict")
        .join(short(version));
    fs::create_dir_all(&folder).expect("a folder of the repository");
    for name in names().iter().filter(|name| objects.join(name).is_file()) {
        let text = fs::read_to_string(source(name)).expect("the source is there");
        if expect::expected(&text, &short(version)).runs {
            continue;
        }
        let log = schedlab_kernel::verdict::directory().join(format!("{name}.log"));
        let log = fs::read_to_string(&log).expect("the guest has written it");
        let lines = log.lines().filter(|line| !line.contains("skipping it"));
        let lines: Vec<&str> = lines.collect();
        let begin = lines
            .iter()
            .position(|line| line.contains("BEGIN PROG LOAD LOG"));
        let end = lines
            .len()
            .saturating_sub(KEPT_LINES)
            .max(begin.map_or(0, |at| at + 1));
        let head = begin.map(|at| lines[at]).into_iter();
        let kept: Vec<&str> = head.chain(lines[end..].iter().copied()).collect();
        fs::write(folder.join(format!("{name}.log")), kept.join("\n") + "\n")
            .expect("a file of the repository");
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verifier")
}

fn source(name: &str) -> PathBuf {
    folder().join(format!("{name}.bpf.c"))
}

fn names() -> Vec<String> {
    let entries = fs::read_dir(folder()).expect("the folder is there");
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.expect("readable").file_name();
            Some(name.to_str()?.strip_suffix(".bpf.c")?.to_owned())
        })
        .collect();
    names.sort();
    names
}

fn inside(objects: &Path) -> ExitCode {
    let mut failed = 0;
    let mut checked = 0;
    let kernel = rustix::system::uname();
    let version = short(&kernel.release().to_string_lossy());
    for name in names() {
        let Ok(bytes) = fs::read(objects.join(&name)) else {
            continue;
        };
        println!("begin {name}");
        checked += 1;
        let object = BpfObject {
            name: name.clone(),
            bytes,
        };
        let text = fs::read_to_string(source(&name)).expect("the source is there");
        let expected = expect::expected(&text, &version);
        let judged = match Loaded::load(&object, &[]) {
            Err(Error::Rejected { reason, .. }) if !expected.runs => {
                println!("    {reason}");
                expected.judge(&name, &reason)
            }
            Err(error @ Error::Ejected { .. }) if expected.runs => {
                let told = error.to_string();
                println!("    {told}");
                expected.judge(&name, &told)
            }
            Err(other) => Err(format!("{name}: {other}")),
            Ok(_) => Err(format!("{name}: the kernel takes it")),
        };
        if let Err(why) = judged {
            println!("FAILED {why}");
            failed += 1;
        }
    }
    println!("{checked} policies that the verifier refuses, {failed} failed");
    ExitCode::from(u8::from(failed > 0 || checked == 0))
}
