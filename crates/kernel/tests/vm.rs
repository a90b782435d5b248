//! Checks in a real kernel: boots virtual machines and runs this same program inside.
//!
//! Without QEMU, a kernel or a network these checks cannot run; then they say so, in the file that
//! `make test` repeats at its end.

mod inside;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use schedlab_kernel::Error;
use schedlab_kernel::bpf_policy;
use schedlab_kernel::kernel_log::no_complaints;
use schedlab_kernel::vm::{Stream, Vm};
use schedlab_testing::checks::{self, Ended, Verdicts};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == inside::MARK) {
        return inside::run(&arguments[1..]);
    }
    if arguments.first().is_some_and(|a| a == inside::HOLD) {
        return inside::hold(&arguments[1..]);
    }
    if arguments
        .first()
        .is_some_and(|a| a == inside::programs::MARK)
    {
        let known = inside::programs::run(&arguments[1..]);
        return known.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    checks::run(inside::checks(), boot)
}

fn boot(chosen: &[String], verdicts: &Verdicts) -> Ended {
    let objects = tempfile::tempdir().expect("a temporary directory");
    if let Err(error) = compile_test_policies(objects.path()) {
        return Ended::Judged(Err(error.to_string()));
    }
    let vm = Vm {
        cpus: 4,
        threads_per_core: 2,
        // A minute on a quiet machine is ten on one that is shared.
        timeout: Duration::from_secs(3_600),
        ..Vm::default()
    };
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = vec![program.into_os_string(), OsString::from(inside::MARK)];
    command.push(objects.path().into());
    command.extend(chosen.iter().map(OsString::from));
    let mut show = |stream: Stream, bytes: &[u8]| match stream {
        Stream::Stdout => verdicts.hear(bytes, str::to_owned),
        // The output has no reader: the verdicts count.
        Stream::Stderr => drop(std::io::stderr().write_all(bytes)),
    };
    match vm.run(&command, &|note| println!("{note}"), &mut show) {
        Ok((code, log)) => {
            println!("the checks in the virtual machine ended with {code}; kernel log:\n{log}");
            Ended::Judged(no_complaints(&log))
        }
        Err(error @ (Error::Missing { .. } | Error::NoKernel(_))) => {
            Ended::Missing(format!("VM tests: {error}"))
        }
        Err(error) => Ended::Judged(Err(error.to_string())),
    }
}

/// Compiles `tests/policies` and the models of the policy library here: inside it would take minutes.
fn compile_test_policies(to: &Path) -> schedlab_kernel::Result<()> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (folder, ending) in [
        ("tests/policies", ".bpf.c"),
        ("../policies/tests/rules", inside::MODEL_SOURCE),
    ] {
        let folder = package.join(folder);
        for entry in std::fs::read_dir(folder).expect("the test policies are there") {
            let path = entry.expect("readable").path();
            if path.to_string_lossy().ends_with(ending) {
                let object = bpf_policy::compile(&path)?;
                std::fs::write(to.join(&object.name), &object.bytes).expect("a temporary file");
            }
        }
    }
    Ok(())
}
