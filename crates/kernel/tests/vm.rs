//! Checks in a real kernel: boots virtual machines and runs this same program inside.
//!
//! Without QEMU, a kernel or a network these checks cannot run; then they say so, in the file that
//! `make test` repeats at its end.

mod inside;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use schedlab_kernel::Error;
use schedlab_kernel::vm::{Stream, Vm};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == inside::MARK) {
        return inside::run(&arguments[1..]);
    }
    // What cargo's own test harness would answer.
    if arguments.iter().any(|a| a == "--list") {
        println!("vm: test");
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|a| !a.starts_with('-')).cloned();

    let vm = Vm {
        cpus: 4,
        ..Vm::default()
    };
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = vec![program.into_os_string(), OsString::from(inside::MARK)];
    command.extend(filter.map(OsString::from));
    let mut show = |stream: Stream, bytes: &[u8]| {
        let shown = match stream {
            Stream::Stdout => std::io::stdout().write_all(bytes),
            Stream::Stderr => std::io::stderr().write_all(bytes),
        };
        drop(shown); // Nobody listens: the exit code tells.
    };
    match vm.run(&command, &|note| println!("{note}"), &mut show) {
        Ok((0, log)) if log.trim().is_empty() || !log.contains("WARNING:") => {
            println!("kernel log:\n{log}");
            ExitCode::SUCCESS
        }
        Ok((code, log)) => {
            println!("the checks in the virtual machine ended with {code}; kernel log:\n{log}");
            ExitCode::FAILURE
        }
        Err(error @ (Error::Missing { .. } | Error::NoKernel(_))) => {
            skip(&format!("VM tests: skipped: {error}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn skip(why: &str) {
    println!("{why}");
    if let Some(file) = std::env::var_os("SCHEDLAB_SKIPPED") {
        let line = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(file);
        let written = line.and_then(|mut f| writeln!(f, "{why}"));
        written.expect("the file of skipped tests can be written");
    }
}
