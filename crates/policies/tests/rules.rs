//! Runs the C tests of the policies' rules and of the policy library: `rules/*.c`, where a scripted kernel calls one op
//! after another. Each test that a file lists is one here: `dss::t1_goodness`.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // `dss::` or the whole name of a test needs one program.
    let module = arguments
        .filter
        .as_deref()
        .and_then(|filter| filter.split_once("::"));
    let mut sources = sources();
    sources.retain(|source| module.is_none_or(|(module, _)| source == module));
    let programs = compiled(&sources);
    let mut trials = Vec::new();
    for (source, program) in sources.iter().zip(programs) {
        for test in tests_of(&program) {
            let (program, name) = (program.clone(), format!("{source}::{test}"));
            trials.push(Trial::test(name, move || {
                let output = Command::new(program).arg(test).output()?;
                let said = String::from_utf8_lossy(&output.stdout);
                match output.status.success() {
                    true => Ok(()),
                    false => Err(format!("{}, {said}", output.status).into()),
                }
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Returns the names of the files that have tests.
fn sources() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules");
    let files = fs::read_dir(folder).expect("the folder is there");
    let mut names: Vec<String> = files
        .filter_map(|file| {
            let path = file.expect("readable").path();
            let name = path.file_name()?.to_str()?.strip_suffix(".c")?.to_owned();
            let text = fs::read_to_string(&path).expect("readable");
            text.contains("\nTESTS(").then_some(name)
        })
        .collect();
    names.sort();
    assert!(names.len() > 20, "{names:?}");
    names
}

/// Compiles each, on as many threads as there are CPUs.
fn compiled(sources: &[String]) -> Vec<PathBuf> {
    let next = AtomicUsize::new(0);
    let compile = || {
        let mut done = Vec::new();
        while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push(support::compile("rules", source));
        }
        done
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut programs: Vec<PathBuf> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(compile)).collect();
        let done = workers.into_iter().map(|worker| worker.join());
        done.flat_map(|done| done.expect("the compiler has said why"))
            .collect()
    });
    programs.sort();
    programs
}

/// Returns the tests that a program names.
fn tests_of(program: &Path) -> Vec<String> {
    let output = Command::new(program)
        .output()
        .expect("it was just compiled");
    let listed = String::from_utf8(output.stdout).expect("names are ASCII");
    let names: Vec<String> = listed.lines().map(str::to_owned).collect();
    assert!(!names.is_empty(), "{} has no test", program.display());
    names
}
