//! Virtual machines: a command in one, and the time that it may take.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use schedlab_kernel::vm::{Stream, Vm};
use schedlab_trace::Duration as Limit;

use crate::output::{print, tell};
use crate::status::Status;

/// How long a virtual machine may take for so many runs, its start included.
pub fn timeout_of_runs(time_limit: Limit, runs: u64) -> Duration {
    let one = time_limit.to_std() + Duration::from_secs(60);
    one.saturating_mul(u32::try_from(runs).unwrap_or(u32::MAX))
}

/// Describes a virtual machine, with `cpus` CPUs where they are asked for.
pub fn machine(cpus: Option<u32>) -> Vm {
    let default = Vm::default();
    Vm {
        cpus: cpus.unwrap_or(default.cpus),
        ..default
    }
}

/// Runs a command in a virtual machine.
pub fn in_vm(cpus: u32, time_limit: Limit, command: &[String]) -> anyhow::Result<Status> {
    let command: Vec<OsString> = command.iter().map(OsString::from).collect();
    let machine = Vm {
        timeout: time_limit.to_std(),
        ..machine(Some(cpus))
    };
    forward(&machine, &command)
}

/// Returns the same sweep in a virtual machine, which writes into its folder.
pub fn sweep_in_vm(
    folder: &Path,
    cpus: Option<u32>,
    runs: u64,
    time_limit: Limit,
) -> anyhow::Result<Status> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot write {}", folder.display()))?;
    let machine = Vm {
        timeout: timeout_of_runs(time_limit, runs),
        writable: vec![folder.to_owned()],
        ..machine(cpus)
    };
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let command: Vec<OsString> = std::iter::once(program.into_os_string())
        .chain(std::env::args_os().skip(1))
        .collect();
    forward(&machine, &command)
}

/// Runs a command in a virtual machine; its output and exit code become ours.
pub fn forward(machine: &Vm, command: &[OsString]) -> anyhow::Result<Status> {
    let loud = std::io::stderr().is_terminal();
    let note = |text: &str| {
        // Downloads take minutes: they are reported to any reader.
        tell(text);
    };
    if loud {
        tell(format_args!(
            "starting a virtual machine with {}",
            schedlab_trace::counted(machine.cpus, "CPU")
        ));
    }
    let mut broken = None;
    let ended = machine.run(command, &note, &mut |stream, bytes| {
        let written = match stream {
            Stream::Stdout => print(bytes),
            Stream::Stderr => std::io::stderr()
                .write_all(bytes)
                .context("cannot write standard error"),
        };
        if let Err(error) = written {
            broken.get_or_insert(error);
        }
    });
    if let Some(error) = broken {
        return Err(error);
    }
    let (code, log) = match ended {
        // The program in it failed, not the request.
        Err(error @ schedlab_kernel::Error::VmLost(_)) => {
            tell(error);
            return Ok(Status::Failed);
        }
        ended => ended?,
    };
    for line in log
        .lines()
        .filter(|line| !line.contains("sched_ext: BPF scheduler"))
    {
        tell(format_args!("the machine's kernel: {}", line.trim()));
    }
    Ok(match u8::try_from(code) {
        Ok(0) => Status::Done,
        Ok(code) => Status::Code(code),
        Err(_) => Status::Failed,
    })
}
