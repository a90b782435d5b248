//! The command line: every flag with its help, defined once; completions and man pages come from here.

mod advise;
mod recording;
mod shared;

use std::path::PathBuf;

use clap::builder::RangedI64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use schedlab_machine::Layout;
use schedlab_trace::{CpuSet, Duration};

pub use advise::AdviseArgs;
pub use recording::{CutArgs, ImportArgs, ReadingArgs, RecordArgs, ReplayArgs, ShowRecordingArgs};
pub use shared::{BudgetArg, Rt, ShowArgs, SimCommon, WhyArgs};

use shared::{budget, limit, seed, time, workload};

/// Which CPU scheduler runs a workload best, and why
#[derive(Parser, Debug)]
#[command(
    name = "schedlab",
    version,
    max_term_width = 80,
    after_help = "\
Examples:
  schedlab list schedulers
  schedlab sim chat:rooms=10 -s dss,fifo -c 2..8 -m netfinity-8500r
  schedlab sim cpu -s vtime --trace cpu.pftrace
  schedlab run --vm -s dss,kernel chat
  schedlab sweep chat:rooms=2 --space feature --sample 100 --out chat100
  sudo dmesg | schedlab explain

Exit status: 0 done; 1 a run failed or its scheduler was ejected (results are
complete and say so); 2 the command line or an input is wrong."
)]
pub struct Cli {
    /// The command
    #[command(subcommand)]
    pub command: Command,
}

/// Commands
#[derive(Subcommand, Debug)]
pub enum Command {
    /// List schedulers, workloads, machines, experiments or measures
    List(ListArgs),
    /// Simulate a workload under one or more schedulers
    Sim(SimArgs),
    /// Simulate every combination of a scheduler's options
    Sweep(SweepArgs),
    /// Explain the results of a sweep
    Analyze(AnalyzeArgs),
    /// Simulate the tables and figures of the studies, or single published figures
    Reproduce(ReproduceArgs),
    /// Run a workload or a command under schedulers in a real kernel
    Run(RunArgs),
    /// Check the events of a run, and compute its measures again
    Check(CheckArgs),
    /// Say why a scheduler was ejected, from a log, a debug dump or results
    Explain(ExplainArgs),
    /// Run a command in a virtual machine whose kernel has sched_ext
    Vm(VmArgs),
    /// Run simulations for `reproduce --vm` inside a virtual machine
    #[command(hide = true)]
    Emulate(EmulateArgs),
    /// Run a workload's real program here, under the current scheduler
    Load(LoadArgs),
    /// Record a real program into a workload file that `sim` runs
    Record(RecordArgs),
    /// Make a workload file of a recording by perf, trace-cmd, Perfetto, wprof or ftrace
    Import(ImportArgs),
    /// Show what a recording or a workload file holds
    Show(ShowRecordingArgs),
    /// Compare a recorded program with its replay in simulation
    Replay(ReplayArgs),
    /// Say which scheduler suits a program, how sure that is, and why
    Advise(AdviseArgs),
    /// Write a machine profile: of this machine by measuring it, or of another
    /// one from its own description
    #[command(after_help = "\
Examples:
  schedlab calibrate -o here.toml
  schedlab calibrate --from server.xml -o server.toml

What --from takes of another machine:
  lstopo --of xml FILE     hwloc's XML: caches, nodes, distances, capacities
  cp -r /sys/devices/system/cpu /sys/devices/system/node FOLDER
  lscpu -p >FILE           cores, caches and nodes without their sizes
Costs are then copied from the nearest built-in profile, and each says so.")]
    Calibrate(CalibrateArgs),
    /// Compare simulations with this machine's own kernel, workload by workload
    Validate(ValidateArgs),
    /// Show what this machine and its kernel can do, and what is missing
    #[command(after_help = "\
Exit status: 0 real runs are possible here or in a virtual machine, or this
build only simulates; 1 they are possible neither here nor there.")]
    Doctor,
    /// Print a completion script for a shell
    #[command(after_help = "\
Example:
  schedlab completions bash >/etc/bash_completion.d/schedlab")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write man pages into a folder
    #[command(after_help = "\
Example:
  schedlab man ~/.local/share/man/man1")]
    Man {
        /// The folder; it must exist
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

/// Kinds of lists
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Schedulers and their options
    Schedulers,
    /// Workloads and their options
    Workloads,
    /// Machine profiles
    Machines,
    /// Tables and figures that can be reproduced
    Experiments,
    /// Measures
    Measures,
}

/// Arguments of `list`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab list                     everything
  schedlab list workloads
  schedlab list workloads chat      one, with its options
  schedlab list measures wakeup     measures whose names contain this word
  schedlab list schedulers --json   for scripts")]
pub struct ListArgs {
    /// Kind of entries [default: all kinds]
    pub kind: Option<Kind>,
    /// Only entries whose names contain this, or the path of a scheduler; a single entry is shown in full
    pub name: Option<String>,
    /// Write the list as JSON, with all details
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sim`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab sim cpu -s fifo,vtime
  schedlab sim chat:rooms=20,messages=200 -s dss -c 2..8 -m netfinity-8500r
  schedlab sim reflex -s dss:ties=list,fifo -c 2,4,8 --repeat 10
  schedlab sim taskset.json -s ./mine.bpf.c --json results.json
  schedlab sim schbench -s cfs,eevdf --measures 'score,wakeup.*' --sort score
  schedlab sim pipe -s vtime -c 2 --trace pipe.pftrace
  schedlab sim chat -s dss,fifo -c 8 --explain --html chat.html
  schedlab sim chat -s dss -m ppro-200x4 --task-layout plain,coloured,separate

Schedulers are separated by commas; options follow a colon. A part with `=` in
it belongs to the scheduler before: in `a:x=1,y=2,b`, y is an option of a.")]
pub struct SimArgs {
    /// WORKLOAD[:option=value,…], or the path of a recorded program or an rt-app file (*.json, a pipe), or `-` for standard input; 'A + B' runs both
    #[arg(value_hint = ValueHint::FilePath, value_parser = workload)]
    pub workload: String,
    #[command(flatten)]
    pub common: SimCommon,
    /// Schedulers: names with options, paths of .bpf.c or .bpf.o files, or `exec:PROGRAM ARGUMENTS` for a scheduler by its own loader;
    /// `all` for every one that has a name
    #[arg(short, long, value_name = "A,B,…", value_hint = ValueHint::FilePath)]
    pub schedulers: String,
    /// Machine profile: a name, or the path of a .toml file
    #[arg(short, long, value_name = "MACHINE", default_value = "laptop", value_hint = ValueHint::FilePath)]
    pub machine: String,
    /// Numbers of CPUs: 8, 2,4,8 or 2..8 (ends included) [default: all]
    ///
    /// The first N of the machine, as `maxcpus=N` would leave it: numbers run through one hardware thread of every
    /// core, cache by cache and node by node, and only then through the second threads.
    #[arg(short, long, value_name = "N,…", allow_hyphen_values = true)]
    pub cpus: Option<String>,
    /// The CPUs that tasks may run on, unless they choose others themselves: 0-3,8
    ///
    /// As `taskset` does for a program: the machine keeps all its CPUs.
    #[arg(long, value_name = "CPUS", allow_hyphen_values = true)]
    pub taskset: Option<CpuSet>,
    /// Layouts of the task structure: plain, coloured[:N], separate, each also with +prefetch [default: the machine's]
    ///
    /// Where a task's scheduling fields lie, for the modelled caches: at the same offset in every task
    /// structure (`plain`), shifted by one of N cache lines (`coloured:N`; 32 if N is not given), or side
    /// by side outside the structures (`separate`). With `+prefetch` the fields of the next candidate
    /// are fetched while one is examined. The schedulers are the same. With this flag, results
    /// include bus transactions and misses by offset in the page.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    pub task_layout: Vec<Layout>,
    /// End a run whose scheduler accesses another task's data without a probe (clang only)
    ///
    /// The simulator charges for accesses to another task's data where the scheduler's code calls a probe (examine(),
    /// consult(), alter()). A missing probe makes a scheduler seem faster than it is. This flag compiles the
    /// schedulers with clang (SCHEDLAB_CC overrides the one that is found), watches each of their loads and stores,
    /// and ends a run at the first access without a probe. Otherwise results are the same.
    #[arg(long)]
    pub audit: bool,
    /// Runs of each, in interleaved order, with the seeds SEED, SEED+1, …; from 6 on with intervals
    ///
    /// With fewer than six runs no 95 % interval exists: a difference that the table shows may be chance.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000), allow_negative_numbers = true)]
    pub repeat: u32,
    #[command(flatten)]
    pub show: ShowArgs,
    #[command(flatten)]
    pub why: WhyArgs,
    /// Write the events of the run, for `schedlab check` and other programs (docs/events.md)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub events: Option<PathBuf>,
    /// Write a Perfetto trace of the run (https://ui.perfetto.dev)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
}

/// Arguments of `sweep`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab sweep chat:rooms=2 --space feature --sample 100 --out chat100
  schedlab sweep cpu reflex --space feature --fix slice=split --out both
  schedlab sweep chat --space feature --shard 3/8 --out /shared/chat
  schedlab sweep chat --space feature --budget 300 --out chat300

Every option of the scheduler that has alternatives varies, unless it is fixed.
Results are kept in FOLDER as they come, one Parquet file per shard. A sweep
that was interrupted in any way goes on where it was when it is started again,
and ends with the same files. `schedlab analyze FOLDER` explains them.")]
pub struct SweepArgs {
    /// Workloads, WORKLOAD[:option=value,…]
    #[arg(required = true, value_name = "WORKLOAD", value_hint = ValueHint::FilePath, value_parser = workload)]
    pub workloads: Vec<String>,
    /// The scheduler whose options are swept: a name, or the path of a .bpf.c file
    #[arg(long, value_name = "SCHEDULER", value_hint = ValueHint::FilePath)]
    pub space: String,
    /// The folder for the results
    #[arg(short, long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// Give an option one value throughout; may be repeated
    #[arg(long, value_name = "OPTION=VALUE")]
    pub fix: Vec<String>,
    /// Only N combinations, drawn so that the alternatives of an option are equally frequent
    #[arg(long, value_name = "N", value_parser = RangedI64ValueParser::<u64>::new().range(1..=i64::MAX), allow_negative_numbers = true)]
    pub sample: Option<u64>,
    /// Search with so many runs (300), or so much time (10min), instead of simulating all combinations
    ///
    /// A balanced sample comes first; further runs are those that decide most, by a model of the results so far. With
    /// --repeat the best race over further seeds. A time becomes a number of runs by the speed at the beginning; the
    /// folder keeps it, so the search goes on exactly after an interruption.
    #[arg(long, value_name = "TIME|RUNS", value_parser = budget, conflicts_with_all = ["sample", "live"], allow_negative_numbers = true)]
    pub budget: Option<BudgetArg>,
    /// Runs of each, with the seeds SEED, SEED+1, …; with --budget, of the best
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
    pub repeat: u32,
    /// Simulate each combination, even those that the scheduler's source declares equivalent (`Mute:`)
    #[arg(long)]
    pub each: bool,
    /// Write results every so often: 10 (seconds), 500ms, 1min; 0: after each run
    #[arg(
        long,
        value_name = "TIME",
        default_value_t = Duration::from_secs(10),
        value_parser = time,
        allow_negative_numbers = true
    )]
    pub keep: Duration,
    /// Run the workloads' real programs in this kernel, one after another in random order
    ///
    /// Each scheduler is loaded, the workload runs, and the scheduler is unloaded. Before the first run every
    /// workload runs once and is not counted.
    #[arg(long)]
    pub live: bool,
    /// In a virtual machine with -c CPUs instead of this machine's kernel; with --live
    #[arg(long, requires = "live")]
    pub vm: bool,
    /// Only the I-th of N parts of the runs, for batch systems
    #[arg(long, value_name = "I/N", allow_hyphen_values = true)]
    pub shard: Option<String>,
    /// Machine profile: a name, or the path of a .toml file
    #[arg(short, long, value_name = "MACHINE", default_value = "laptop", value_hint = ValueHint::FilePath)]
    pub machine: String,
    /// Number of CPUs [default: all]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub cpus: Option<u32>,
    #[command(flatten)]
    pub common: SimCommon,
}

/// Arguments of `analyze`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab analyze chat100
  schedlab analyze both --html both.html --json both.json
  schedlab analyze chat --measure wakeup.latency_ns_p99

Shards are read from the folder together; a sweep need not be complete.")]
pub struct AnalyzeArgs {
    /// The folder of a sweep
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// The measure by which schedulers are judged
    #[arg(long, value_name = "MEASURE", default_value = "score")]
    pub measure: String,
    /// Write a page for a browser; `-` for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Write everything as JSON; `-` for standard output instead of the text
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// A scheduler is good if it is at most N percent worse than the best
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 10.0,
        allow_negative_numbers = true
    )]
    pub within: f64,
    /// An alternative is good if more than N percent of the good schedulers have it
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 80.0,
        allow_negative_numbers = true
    )]
    pub good: f64,
    /// An alternative is bad if less than N percent of them have it
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 10.0,
        allow_negative_numbers = true
    )]
    pub bad: f64,
    /// A scheduler is excluded if its standard deviation is more than N percent of the mean
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 10.0,
        allow_negative_numbers = true
    )]
    pub deviation: f64,
    /// Over- or under-represented means a difference of more than N points
    #[arg(
        long,
        value_name = "POINTS",
        default_value_t = 10.0,
        allow_negative_numbers = true
    )]
    pub points: f64,
}

/// Arguments of `reproduce`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab reproduce --quick
  schedlab reproduce chat-locks --html chat.html
  schedlab reproduce reflex-locks --quick --vm
  schedlab reproduce chat-throughput -m server-2x96x2 -c 8,96,384
  schedlab reproduce --rows chat:rooms=20,messages=200 -s dss
  schedlab reproduce --rows -m mine.toml --seeds 1
  schedlab list experiments

Each published figure is printed beside the median of the simulated ones, with
the lowest and the highest of all seeds and the ratio. If killed, or if a
virtual machine breaks down, the same command goes on where it was: finished
runs are kept beside the page until none is missing.")]
pub struct ReproduceArgs {
    /// Names of experiments, or paths of .toml files; with --rows, workloads [default: all]
    #[arg(value_name = "NAME", value_hint = ValueHint::FilePath)]
    pub names: Vec<String>,
    /// Every published figure of these workloads, and how near the simulated ones are
    ///
    /// A workload with options is one configuration; without any it is all that are published. The table at the end
    /// counts by kind of figure, workload and configuration, and sums the distances, so that two profiles of one machine
    /// can be compared: -m then names the profile, and -c chooses among the published numbers of CPUs.
    #[arg(long, conflicts_with = "quick")]
    pub rows: bool,
    /// Only figures of this scheduler; with options of its own, these are simulated
    #[arg(short, long, value_name = "SCHEDULER", requires = "rows")]
    pub scheduler: Option<String>,
    /// Published figures to compare with [default: those that come with schedlab]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub figures: Option<PathBuf>,
    /// A first impression: smaller workloads, one seed
    #[arg(long)]
    pub quick: bool,
    /// Run the real programs, too, in virtual machines of up to 8 CPUs
    ///
    /// The same workloads under the same schedulers in a real kernel. Emulated CPUs show which scheduler wins
    /// and by how many decisions, not how fast a machine is; these figures are marked.
    #[arg(long)]
    pub vm: bool,
    /// Stop a run in a virtual machine after so long: 90 (seconds), 500ms, 1.5min
    #[arg(long, value_name = "TIME", default_value_t = Duration::from_secs(300), requires = "vm", value_parser = limit, allow_negative_numbers = true)]
    pub time_limit: Duration,
    /// Simulate this machine instead of the study's
    #[arg(short, long, value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    pub machine: Option<String>,
    /// Numbers of CPUs instead of the study's: 8, 2,4,8 or 2..8
    #[arg(short, long, value_name = "N,…", allow_hyphen_values = true)]
    pub cpus: Option<String>,
    /// Seeds of each run [default: the experiment's, usually 5]
    #[arg(long, value_name = "N", value_parser = RangedI64ValueParser::<u64>::new().range(1..=1_000), allow_negative_numbers = true)]
    pub seeds: Option<u64>,
    /// Runs at the same time [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), allow_negative_numbers = true)]
    pub jobs: Option<u16>,
    /// Path of the page with all figures
    #[arg(long, value_name = "FILE", default_value = "reproduce.html", value_hint = ValueHint::FilePath)]
    pub html: PathBuf,
    /// Write results as JSON; `-` for standard output instead of the tables
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// Arguments of `run`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo schedlab run -s dss,kernel chat:rooms=2
  schedlab run --vm -s dss,fifo,kernel chat:rooms=2
  schedlab run --vm -s ./mine.bpf.c -- perf bench sched messaging
  schedlab run --vm -s fifo --trace chat.pftrace chat:rooms=1,messages=20

`kernel` is the kernel's own scheduler.")]
pub struct RunArgs {
    /// WORKLOAD[:option=value,…], the path of an rt-app file, or `-` for one on standard input; or a command after `--`
    #[arg(conflicts_with = "command", required_unless_present = "command", value_parser = workload)]
    pub workload: Option<String>,
    /// Schedulers: names with options, paths of .bpf.c files, `exec:PROGRAM ARGUMENTS` for a scheduler by its own loader, `kernel`, or `all`
    #[arg(short, long, value_name = "A,B,…", value_hint = ValueHint::FilePath)]
    pub schedulers: String,
    /// In a virtual machine instead of this machine's kernel
    #[arg(long)]
    pub vm: bool,
    /// CPUs of the virtual machine
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255), allow_negative_numbers = true)]
    pub cpus: Option<u32>,
    /// Seed of the workload
    #[arg(
        long,
        value_name = "SEED",
        default_value_t = 1,
        value_parser = seed,
        allow_negative_numbers = true
    )]
    pub seed: u64,
    /// Uncounted runs before all others, under the kernel's own scheduler
    ///
    /// They bring the program and its files into the caches, so that the first scheduler does not pay for it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1_000), allow_negative_numbers = true)]
    pub warmup: u32,
    /// Runs of each, in interleaved order; from 6 on with intervals
    ///
    /// The seeds are SEED, SEED+1, … Each round begins with a different scheduler.
    /// With fewer than six runs no 95 % interval exists: a difference that the table shows may be chance.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000), allow_negative_numbers = true)]
    pub repeat: u32,
    /// Give a run up after so long: 90 (seconds), 500ms, 1.5min
    #[arg(long, value_name = "TIME", default_value_t = Duration::from_secs(600), value_parser = limit, allow_negative_numbers = true)]
    pub time_limit: Duration,
    #[command(flatten)]
    pub show: ShowArgs,
    #[command(flatten)]
    pub why: WhyArgs,
    /// Check the invariants over the kernel's events during the run
    ///
    /// The events of docs/events.md are streamed from the kernel, which costs the run time. A run that breaks an
    /// invariant ends as `violation`.
    #[arg(long)]
    pub check: bool,
    /// Compare scores of an emulated machine, too
    ///
    /// Where KVM boots no kernel, --vm emulates the CPUs in software. They do not keep the proportions of real ones, so
    /// the table shows counts and orders and withholds ratios of scores.
    #[arg(long)]
    pub emulated_ratios: bool,
    /// Write the events of the run, for `schedlab check` and other programs (docs/events.md)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub events: Option<PathBuf>,
    /// Write a Perfetto trace of the run (https://ui.perfetto.dev)
    ///
    /// It shows when the workload's tasks ran, were woken and waited. Other programs on the machine
    /// show as idle time.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// The command to run
    #[arg(last = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
}

/// Arguments of `check`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab sim chat:rooms=2 -s fifo --events chat.events
  schedlab check chat.events
  schedlab run -s kernel --events sleep.events -- sleep 1
  schedlab check sleep.events --json measures.json

Exit status: 0 no invariant is broken; 1 one is; 2 the file cannot be read.")]
pub struct CheckArgs {
    /// A file that --events of `sim` or `run` wrote
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Arguments of `explain`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo dmesg | schedlab explain
  journalctl -b -u scx | schedlab explain
  sudo scx_simple 2>&1 | tee simple.log; schedlab explain simple.log
  sudo cat /sys/kernel/tracing/trace_pipe >dump.txt   (event sched_ext_dump)
  schedlab sim chat -s ./mine.bpf.c --json r.json; schedlab explain r.json

The text may have anything before, between and behind the kernel's lines. The
whole debug dump explains most; the exit message alone names the rule.

Exit status: 0 each ejection is explained; 2 the text reports none.")]
pub struct ExplainArgs {
    /// The text; `-`, or none, for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Write the explanations as JSON to standard output
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `vm`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab vm -- uname -r
  schedlab vm -c 4 --time-limit 3600 -- make -C ~/tests check

Exit status: the command's, 128 + N if signal N ended it; 2 if the command line
is wrong or the virtual machine does not start or ends before the command.")]
pub struct VmArgs {
    /// CPUs of the virtual machine
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=255),
        allow_negative_numbers = true
    )]
    pub cpus: u32,
    /// Stop the command, with its machine, after so long: 90 (seconds), 500ms, 1.5min
    #[arg(long, value_name = "TIME", default_value_t = Duration::from_secs(600), value_parser = limit, allow_negative_numbers = true)]
    pub time_limit: Duration,
    /// The command to run; its standard input is empty
    #[arg(last = true, required = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
}

/// Arguments of `emulate`
#[derive(Args, Debug)]
pub struct EmulateArgs {
    /// Folder of the jobs and results
    pub folder: PathBuf,
    /// Give a run up after so long
    #[arg(long, default_value_t = Duration::from_secs(600), value_parser = limit, allow_negative_numbers = true)]
    pub time_limit: Duration,
}

/// Arguments of `load`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab load chat:rooms=2 --json -
  schedlab load hackbench:groups=4 --original
  schedlab load kbuild:jobs=8 --original --source ~/linux
  schedlab load tpch:degree=2 --original --scale 0.1
  schedlab run --vm -s dss,kernel -- schedlab load pipe --original")]
pub struct LoadArgs {
    /// WORKLOAD[:option=value,…], or the path of an rt-app file (*.json, a pipe), or `-` for standard input; 'A + B' runs both
    #[arg(value_hint = ValueHint::FilePath, value_parser = workload)]
    pub workload: String,
    /// Run the well-known program that the workload is a model of
    ///
    /// hackbench and pipe: perf bench; httpd: apache2 and wrk; kbuild: make; tpch: DuckDB; bodytrack and
    /// ferret: x264 and pbzip2, which are of the same kind. If a program is missing, its package is named.
    #[arg(long)]
    pub original: bool,
    /// The source tree that `kbuild --original` builds; where `tpch --original` finds or puts its data
    #[arg(long, value_name = "FOLDER", requires = "original", value_hint = ValueHint::DirPath)]
    pub source: Option<PathBuf>,
    /// Scale of the data of `tpch --original`, in GB [default: 1]
    #[arg(long, value_name = "N", requires = "original", value_parser = scale, allow_negative_numbers = true)]
    pub scale: Option<f64>,
    /// Seed of the workload
    #[arg(
        long,
        value_name = "SEED",
        default_value_t = 1,
        value_parser = seed,
        allow_negative_numbers = true
    )]
    pub seed: u64,
    /// Stop it after so long: 90 (seconds), 500ms, 1.5min
    #[arg(long, value_name = "TIME", default_value_t = Duration::from_secs(600), value_parser = limit, allow_negative_numbers = true)]
    pub time_limit: Duration,
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Returns a scale of data between 1 MB and 1 TB.
fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|n| (0.001..=1_000.0).contains(n));
    scale.ok_or_else(|| "write a number from 0.001 to 1000".to_owned())
}

/// Arguments of `calibrate`
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  schedlab calibrate -o mine.toml
  schedlab sim chat -s dss -m ./mine.toml

Run it on a quiet machine; it takes a minute and some seconds. Every number in
the profile says how it was measured, with its spread, or that it is a guess.")]
pub struct CalibrateArgs {
    /// Describe another machine by this file or folder, instead of measuring
    #[arg(long, value_name = "FILE|FOLDER", value_hint = ValueHint::AnyPath)]
    pub from: Option<PathBuf>,
    /// Watch the idle machine for so long, for the background of the profile: 60 (seconds), 500ms, 1min; 0: not at all
    #[arg(
        long,
        value_name = "TIME",
        default_value_t = Duration::from_secs(60),
        value_parser = time,
        allow_negative_numbers = true,
        conflicts_with = "from"
    )]
    pub idle: Duration,
    /// Write the profile here instead of to standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}

/// Arguments of `validate`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  schedlab calibrate -o mine.toml
  sudo schedlab validate -m ./mine.toml
  sudo schedlab validate pipe schbench:workers=4 -c 1 --repeat 10
  sudo schedlab validate --json validated.json

Each workload runs as a real program under this kernel's own scheduler, and is
simulated on the profile of this machine. The table shows the median of each
measure in both, and the error of the simulation; `*` marks an error beyond the
aim. On one CPU all threads are bound to it, so that no placement is compared.

Exit status: 0 compared, whatever the errors; 1 a run failed; 2 the command line
is wrong, nothing can be measured here, or the machine is busy.")]
pub struct ValidateArgs {
    /// WORKLOAD[:option=value,…], several; the default is a list of ten
    #[arg(value_hint = ValueHint::FilePath)]
    pub workloads: Vec<String>,
    /// Profile of this machine [default: it is calibrated first]
    #[arg(short, long, value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    pub machine: Option<String>,
    /// Schedulers to simulate
    #[arg(short, long, value_name = "LIST", default_value = "kernel,eevdf")]
    pub schedulers: String,
    /// Numbers of CPUs: 1, or all of this machine
    #[arg(
        short,
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,all"
    )]
    pub cpus: Vec<Where>,
    /// Runs of each workload, real and simulated, in interleaved order; from 6 on with intervals
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1_000), allow_negative_numbers = true)]
    pub repeat: u32,
    /// Seed of the first run
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Give a run up after so long: 90 (seconds), 500ms, 1.5min
    #[arg(long, value_name = "TIME", default_value_t = Duration::from_secs(120), value_parser = limit, allow_negative_numbers = true)]
    pub time_limit: Duration,
    /// Measure although other programs keep the machine busy
    #[arg(long)]
    pub anyway: bool,
    /// Write the results of all runs as JSON; `-` for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// Where the runs of `validate` take place
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    /// All threads on one CPU
    #[value(name = "1")]
    One,
    /// Every CPU that this process may use
    All,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// A line that is wider leaves single words on lines of their own.
    #[test]
    fn what_comes_after_the_flags_fits_its_width() {
        let all = Cli::command();
        for command in std::iter::once(&all).chain(all.get_subcommands()) {
            let text = command.get_after_help().map(ToString::to_string);
            for line in text.unwrap_or_default().lines() {
                let width = schedlab_report::export::lines::width_of(line);
                assert!(width <= 80, "{}: {line}", command.get_name());
            }
        }
    }

    /// A flag that takes a number of seconds without a unit would be the only one.
    #[test]
    fn every_flag_with_a_time_takes_units() {
        let all = Cli::command();
        let mut seen = 0;
        for command in all.get_subcommands() {
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string);
                let help = help.unwrap_or_default();
                let id = format!("{} --{}", command.get_name(), argument.get_id());
                let names = argument.get_value_names().unwrap_or_default();
                assert!(names.iter().all(|name| name != "SECONDS"), "{id}");
                if names.iter().any(|name| name == "TIME") {
                    seen += 1;
                    assert!(help.contains("500ms"), "{id}: {help}");
                }
            }
        }
        assert!(seen >= 7, "{seen} flags take a time");
    }

    #[test]
    fn every_flag_and_command_has_a_help_text() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {} has no help",
                    command.get_name(),
                    argument.get_id()
                );
            }
            for inner in command.get_subcommands() {
                assert!(
                    inner.get_about().is_some(),
                    "{} has no help",
                    inner.get_name()
                );
                check(inner);
            }
        }
        check(&Cli::command());
    }
}
