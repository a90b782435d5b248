//! Recordings of real programs: made by `perf`, cut, and inferred into workload files.
//!
//! `perf` records: it is where Linux is, and needs no privileges of ours. What it costs is in docs/recording.md.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use schedlab_machine::Machine;
use schedlab_recording::{Costs, Options, Select, import, page};
use schedlab_trace::Duration;
use schedlab_workload::recorded::{File, is_recorded};
use schedlab_workload::rtapp;

use crate::args::{CutArgs, ReadingArgs, RecordArgs};
use crate::output::{Output, one_file_each, tell};
use crate::progress;

/// The tracepoints without which nothing can be inferred.
const EVENTS: [&str; 5] = [
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_wakeup_new",
    "sched:sched_process_fork",
    "sched:sched_process_exec",
];

/// System calls that tell what a task waits for, by machine: nanosleep, clock_nanosleep, futex, sched_yield, wait4,
/// waitid, poll, select, pselect6, ppoll, epoll_wait, epoll_pwait, epoll_pwait2; and those that pass data on: read, write,
/// readv, writev, sendto, recvfrom, sendmsg, recvmsg, with close.
#[cfg(target_arch = "x86_64")]
const CALLS: &[u32] = &[
    35, 230, 202, 24, 61, 247, 7, 23, 270, 271, 232, 281, 441, 0, 1, 19, 20, 44, 45, 46, 47, 3,
];
#[cfg(not(target_arch = "x86_64"))]
const CALLS: &[u32] = &[
    101, 115, 98, 124, 260, 95, 73, 72, 22, 441, 63, 64, 65, 66, 206, 207, 211, 212, 57,
];

/// A recording that was written.
pub struct Recorded {
    /// Where.
    pub path: PathBuf,
    /// The workload file.
    pub file: File,
    /// The command's failure, if it failed.
    pub failed: Option<String>,
}

/// Records and writes the workload file.
pub fn record(args: &RecordArgs, stops: &AtomicBool) -> anyhow::Result<Recorded> {
    let costs = costs(&args.reading)?;
    let out = match (&args.out, args.command.first()) {
        (Some(out), _) => out.clone(),
        (None, None) => PathBuf::from("machine.workload"),
        (None, Some(command)) => {
            let name = Path::new(command).file_name().unwrap_or(command);
            PathBuf::from(name).with_added_extension("workload")
        }
    };
    one_file_each(
        &[
            ("-o", Some(out.as_path())),
            ("--perf-data", args.perf_data.as_deref()),
        ],
        std::iter::empty::<&Path>(),
    )?;
    let folder = tempfile::tempdir().context("cannot make a folder for the recording")?;
    let data = args
        .perf_data
        .clone()
        .unwrap_or_else(|| folder.path().join("perf.data"));
    tell("recording with perf; Ctrl-C ends it");
    let failed = perf(args, &data)?;
    if stops.load(Ordering::SeqCst) {
        tell("ended by a signal: the recording is shorter");
    }
    let options = Options {
        select: match args.duration {
            Some(_) => Select::All,
            None => Select::Command,
        },
        costs,
        autogroup: std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled")
            .is_ok_and(|text| text.trim() == "1"),
        ..Options::default()
    };
    let file = inferred(&data, &options)?;
    write(&file, &out)?;
    Ok(Recorded {
        path: out,
        file,
        failed,
    })
}

/// Records into `data`. Answers with what became of the command, if it failed.
fn perf(args: &RecordArgs, data: &Path) -> anyhow::Result<Option<String>> {
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "-q",
        "-a",
        "-R",
        "-c",
        "1",
        "-m",
        "16M",
        "-B",
        "--no-bpf-event",
    ]);
    perf.args(["--max-size", &format!("{}M", args.max_size >> 20)]);
    for event in EVENTS {
        perf.args(["-e", event]);
    }
    if !args.no_calls {
        let filter: Vec<String> = CALLS.iter().map(|call| format!("id=={call}")).collect();
        let filter = filter.join("||");
        for event in ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"] {
            perf.args(["-e", event, "--filter", &filter]);
        }
    }
    perf.arg("-o").arg(data).arg("--");
    match args.duration {
        Some(time) => {
            let seconds = time.to_std().as_secs_f64().to_string();
            perf.args(["sleep".to_owned(), seconds].map(OsString::from))
        }
        None => perf.args(&args.command),
    };
    let status = match perf.status() {
        Ok(status) => status,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "perf is not found: install it (Debian: linux-perf, Ubuntu: linux-tools-generic, Fedora: perf)"
            )
        }
        Err(error) => return Err(error).context("cannot start perf"),
    };
    if !data.metadata().is_ok_and(|data| data.len() > 0) {
        bail!(
            "perf recorded nothing ({status}): it needs root or kernel.perf_event_paranoid=-1, tracefs, and a command that it finds"
        );
    }
    if data
        .metadata()
        .is_ok_and(|data| data.len() >= args.max_size)
    {
        tell(format!(
            "the recording reached {} MB and ended there, and the command with it: --max-size allows more",
            args.max_size >> 20
        ));
        return Ok(None);
    }
    Ok((!status.success() && args.duration.is_none())
        .then(|| format!("the command ended with {status}; it was recorded until then")))
}

/// The kernel paths of a machine profile.
pub fn costs(reading: &ReadingArgs) -> anyhow::Result<Costs> {
    Ok(Costs::of(&Machine::find(&reading.machine)?))
}

/// How the flags cut a recording.
///
/// # Errors
/// If a time is none, or nothing would be left.
pub fn cut(args: &CutArgs, costs: Costs) -> anyhow::Result<Options> {
    let time = |flag: &str, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => match Duration::parse(text, Duration::from_secs(1)) {
            Some(time) => Ok(Some(time.ns())),
            None => bail!("{flag} {text}: write a time such as 500ms, 2s or 1.5"),
        },
    };
    let (from_ns, to_ns) = (time("--from", &args.from)?, time("--to", &args.to)?);
    let options = Options {
        select: match args.all {
            true => Select::All,
            false => Select::Command,
        },
        costs,
        autogroup: false,
        from_ns: from_ns.unwrap_or(0),
        to_ns: to_ns.unwrap_or(u64::MAX),
    };
    if options.from_ns >= options.to_ns {
        bail!("--from is not before --to: nothing would be left");
    }
    Ok(options)
}

/// Reads a recording, prints its notes, and returns its workload file.
pub fn inferred(path: &Path, options: &Options) -> anyhow::Result<File> {
    let name = path.display().to_string();
    let (inferred, about) = progress::reading(|| import(&name, options))?;
    for warning in &inferred.warnings {
        tell(format_args!("{name}: {warning}"));
    }
    if let Some(warning) = page::lost(about.lost, about.events) {
        tell(format_args!("{name}: {warning}"));
    }
    if let Some(warning) = page::not_inferred(&inferred.file) {
        tell(format_args!("{name}: {warning}"));
    }
    Ok(inferred.file)
}

/// Writes a workload file.
pub fn write(file: &File, path: &Path) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut output = Output::create(path)?;
    let written = output.write_all(file.to_text().as_bytes());
    written.with_context(|| format!("cannot write {}", path.display()))?;
    output.commit()
}

/// Reads a workload file.
pub fn workload_file(path: &str) -> anyhow::Result<File> {
    let text = rtapp::read_file(path)?;
    if !is_recorded(&text) {
        bail!("{path} is no workload file of `schedlab record` or `schedlab import`");
    }
    Ok(File::parse(path, &text)?)
}
