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
use schedlab_kernel::kernel_log::no_complaints;
use schedlab_kernel::load::Loaded;
use schedlab_kernel::vm::{Stream, Vm, kernel};
use schedlab_kernel::{Error, clang};
use schedlab_testing::checks::{self, Check, Ended, Verdicts};
use schedlab_testing::skipped;

/// First argument of this program inside; the second is the folder of the compiled policies.
const MARK: &str = "verifier-inside-the-virtual-machine";

/// Lines of a log that are kept.
const KEPT_LINES: usize = 60;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == MARK) {
        return inside(Path::new(&arguments[1]));
    }
    let all = kernel::pinned().flat_map(|version| {
        names()
            .into_iter()
            .map(move |name| check_of(version, &name))
            .map(move |name| match Some(version) == kernel::pinned().next() {
                true => Check::short(name),
                false => Check::long(name),
            })
    });
    checks::run(all, refuse)
}

/// Returns the name of the check that a kernel refuses a policy.
fn check_of(version: &str, name: &str) -> String {
    format!("{}/{name}", short(version))
}

fn refuse(chosen: &[String], verdicts: &Verdicts) -> Ended {
    if let Err(why) = clang::find() {
        return Ended::Missing(format!("the verifier in real kernels: {why}"));
    }
    let mut end = Ok(());
    for version in kernel::pinned() {
        let names: Vec<String> = names()
            .into_iter()
            .filter(|name| chosen.contains(&check_of(version, name)))
            .collect();
        if names.is_empty() {
            continue;
        }
        let objects = tempfile::tempdir().expect("a temporary folder can be made");
        for name in &names {
            let object =
                bpf_policy::compile(&source(name)).unwrap_or_else(|error| panic!("{error}"));
            fs::write(objects.path().join(name), &object.bytes).expect("a temporary file");
        }
        match boot(version, objects.path(), verdicts) {
            Ok(log) => end = end.and(no_complaints(&log)),
            Err(error @ (Error::Missing { .. } | Error::NoKernel(_))) => {
                let why = format!("the verifier of {version}: {error}");
                skipped(&why);
                for name in names {
                    verdicts.skip(&check_of(version, &name), &why);
                }
            }
            Err(error) => end = Err(error.to_string()),
        }
    }
    Ended::Judged(end)
}

/// Has the verifier of a kernel judge the compiled policies of a folder. Returns the kernel's log.
fn boot(version: &str, objects: &Path, verdicts: &Verdicts) -> schedlab_kernel::Result<String> {
    let vm = Vm {
        cpus: 2,
        kernel: Some(version.to_owned()),
        timeout: Duration::from_secs(3_600),
        ..Vm::default()
    };
    let program = std::env::current_exe().expect("a running program has a path");
    let command: Vec<OsString> = vec![program.into(), MARK.into(), objects.into()];
    let mut show = |stream: Stream, bytes: &[u8]| match stream {
        Stream::Stdout => verdicts.hear(bytes, |name| check_of(version, name)),
        // The output has no reader: the verdicts count.
        Stream::Stderr => drop(std::io::stderr().write_all(bytes)),
    };
    let (code, log) = vm.run(&command, &|note| println!("{note}"), &mut show)?;
    println!("the policies in {version} ended with {code}; kernel log:\n{log}");
    if std::env::var_os("SCHEDLAB_BLESS").is_some() {
        keep(version, objects);
    }
    Ok(log)
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
    let kernel = rustix::system::uname();
    let version = short(&kernel.release().to_string_lossy());
    let names: Vec<String> = names()
        .into_iter()
        .filter(|name| objects.join(name).is_file())
        .collect();
    checks::judge_each(names.iter().map(String::as_str), |name| {
        let bytes = fs::read(objects.join(name)).map_err(|error| error.to_string())?;
        let object = BpfObject {
            name: name.to_owned(),
            bytes,
        };
        let text = fs::read_to_string(source(name)).expect("the source is there");
        let expected = expect::expected(&text, &version);
        let told = match Loaded::load(&object, &[]) {
            Err(Error::Rejected { reason, .. }) if !expected.runs => reason.to_string(),
            Err(error @ Error::Ejected { .. }) if expected.runs => error.to_string(),
            Err(other) => return Err(other.to_string()),
            Ok(_) => return Err("the kernel takes it".to_owned()),
        };
        expected.judge(name, &told)?;
        Ok(told)
    })
}
