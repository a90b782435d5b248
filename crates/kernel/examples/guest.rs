//! Runs a command in a virtual machine with a kernel that has sched_ext; for tools that do more there than one run.
//!
//! The output of the command appears here, and its exit status is this program's.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use schedlab_kernel::vm::{Stream, Vm};

/// Run a command in a virtual machine
#[derive(Parser)]
#[command(name = "guest")]
struct Arguments {
    /// Virtual CPUs
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    cpus: u32,
    /// Count time in executed instructions, 2 ns each, so that it is the same in each boot
    #[arg(long)]
    repeatable: bool,
    /// Folder that the command may write; what it writes elsewhere is gone with the machine
    #[arg(long, value_name = "FOLDER")]
    write: Vec<PathBuf>,
    /// End the machine after so many minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    limit: u64,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let vm = Vm {
        cpus: arguments.cpus,
        repeatable: arguments.repeatable,
        writable: arguments.write,
        timeout: Duration::from_secs(60 * arguments.limit),
        ..Vm::default()
    };
    let mut show = |stream: Stream, bytes: &[u8]| {
        // Output without a reader is lost; the command goes on.
        drop(match stream {
            Stream::Stdout => std::io::stdout().write_all(bytes),
            Stream::Stderr => std::io::stderr().write_all(bytes),
        });
    };
    match vm.run(&arguments.command, &|note| eprintln!("{note}"), &mut show) {
        Ok((code, _)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("guest: {error}");
            ExitCode::from(2)
        }
    }
}
