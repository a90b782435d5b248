//! Arguments of the commands around recordings.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use schedlab_trace::{CpuSet, Duration};

use super::shared::{SimCommon, limit};

/// Arguments of `record`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab record -- make -j2
  schedlab record -o service.workload --duration 10
  schedlab replay make.workload
  schedlab sim make.workload -s kernel,fifo,dss -c 2,4

It records with `perf` at the scheduler's tracepoints, for which it needs root
or perf_event_paranoid=-1, and writes a workload file (docs/recording.md).
Everything on the machine is recorded while COMMAND runs; the program is COMMAND
with all that it creates, and what ran beside it is kept as background tasks.")]
pub struct RecordArgs {
    /// The workload file to write [default: COMMAND.workload, or machine.workload]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Record the whole machine for so long instead of a command: 10 (seconds), 500ms, 1.5min
    #[arg(long, value_name = "TIME", value_parser = limit, conflicts_with = "command", allow_negative_numbers = true)]
    pub duration: Option<Duration>,
    /// Keep what perf wrote in this file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub perf_data: Option<PathBuf>,
    /// End the recording, and the command, when perf has written so much: 500M, 4G
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4G")]
    pub max_size: u64,
    /// Do not record system calls: less overhead, but sleeps and yields look like other waits
    #[arg(long)]
    pub no_calls: bool,
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// The command, after `--`
    #[arg(last = true, required_unless_present = "duration", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<std::ffi::OsString>,
}

/// Returns a size in bytes, at least the megabyte below which perf has written nothing yet.
fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix('G') {
        Some(number) => (number, 1 << 30),
        None => (text.strip_suffix('M').unwrap_or_default(), 1 << 20),
    };
    let size = number.parse::<u64>().ok().filter(|&n| n > 0);
    size.and_then(|n| n.checked_mul(unit))
        .ok_or_else(|| "write a size from 1M in megabytes or gigabytes: 500M, 4G".to_owned())
}

/// How a recording becomes a program
#[derive(Args, Debug)]
pub struct ReadingArgs {
    /// Machine profile whose kernel paths are taken out of the recorded times: use the profile that you replay on
    #[arg(short, long, value_name = "MACHINE", default_value = "laptop", value_hint = ValueHint::FilePath)]
    pub machine: String,
}

/// Which part of a recording
#[derive(Args, Debug)]
pub struct CutArgs {
    /// Take all tasks but the recorder's and the kernel's threads for the program, not only the recorder's command
    #[arg(long)]
    pub all: bool,
    /// Begin so long after the first event (500ms, 2s; a number alone: seconds)
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// End so long after the first event (500ms, 2s; a number alone: seconds)
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
}

/// Arguments of `import`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  perf sched record -- make -j2 && schedlab import perf.data -o make.workload
  trace-cmd record -e sched make -j2 && schedlab import trace.dat -o t.workload

It reads perf.data with the events of `perf sched record`, trace.dat of
trace-cmd, traces of Perfetto, the JSON of `wprof -J`, and the text of ftrace
(`trace`, `trace-cmd report`), of systrace and of `perf script`. What each of
them lacks is in docs/recording.md.")]
pub struct ImportArgs {
    /// The recording
    #[arg(value_name = "RECORDING", value_hint = ValueHint::FilePath)]
    pub recording: PathBuf,
    /// The workload file to write
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
    #[command(flatten)]
    pub reading: ReadingArgs,
    #[command(flatten)]
    pub cut: CutArgs,
}

/// Arguments of `show`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab show make.workload
  schedlab show perf.data --from 1s --to 2s
  schedlab show trace.dat
  schedlab show make.workload --task cc1

It reads the recordings that `import` reads.")]
pub struct ShowRecordingArgs {
    /// A recording, or a workload file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Only tasks whose names contain this
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    #[command(flatten)]
    pub cut: CutArgs,
}

/// Arguments of `replay`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab replay make.workload
  schedlab replay make.workload -m here.toml --repeat 9

Under the scheduler that was recorded (`kernel`, an EEVDF as in Linux) the
errors say how much a prediction for another scheduler is worth:
docs/recording.md.")]
pub struct ReplayArgs {
    /// The workload file, with options: FILE[:option=value,…]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub workload: String,
    /// Schedulers, as for `sim`
    #[arg(short, long, value_name = "A,B,…", default_value = "kernel", value_hint = ValueHint::FilePath)]
    pub schedulers: String,
    /// Machine profile: a name, or the path of a .toml file
    #[arg(short, long, value_name = "MACHINE", default_value = "laptop", value_hint = ValueHint::FilePath)]
    pub machine: String,
    /// Number of CPUs [default: as many as the program used]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub cpus: Option<u32>,
    /// The CPUs that tasks may run on, unless they choose others themselves: 0-3,8
    ///
    /// As `taskset` does for a program: the machine keeps all its CPUs.
    #[arg(long, value_name = "CPUS", allow_hyphen_values = true)]
    pub taskset: Option<CpuSet>,
    /// Replays, with the seeds SEED, SEED+1, …; the table has their medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    pub repeat: u32,
    /// Write the comparison as JSON; `-` for standard output instead of the table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub common: SimCommon,
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(size("500M"), Ok(500 << 20));
        assert_eq!(size("4G"), Ok(4 << 30));
        for wrong in ["", "4", "G", "0M", "-1G", "1.5G", "4g", "99999999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
