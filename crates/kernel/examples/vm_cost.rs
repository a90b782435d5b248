//! Measures the cost of scheduling in a real kernel, counted in instructions: `make vm-cost`.
//!
//! A virtual machine in which time is the number of executed instructions (2 ns each, all CPUs together;
//! idle time passes at once), for each number of CPUs. Each scheduler in turn runs the pipe and the messaging
//! benchmark of `perf bench sched`. The result is the time that they report, as instructions: of several repetitions
//! the median, with the least and the greatest.
//!
//! With one CPU no task waits for a lock and no CPU is chosen, so the figures are the cost of scheduling itself. With
//! more they include the cost of placement, and a policy whose lock two CPUs meet at may be ejected: QEMU does not
//! run the CPU that holds the lock while another one spins (docs/real-kernel.md).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use schedlab_kernel::bpf_policy::POLICIES;
use schedlab_kernel::run;
use schedlab_kernel::scx::{self, State};
use schedlab_kernel::vm::{self, Stream, Vm};
use schedlab_report::stats;
use schedlab_trace::Scheduler;

/// Measure the cost of scheduling in a real kernel, counted in instructions
#[derive(Parser)]
#[command(name = "vm_cost")]
struct Arguments {
    /// Schedulers: policies with their options, `kernel`, or paths of programs that load one [default:
    /// `kernel` and every policy]
    #[arg(short, long, value_name = "A;B;…", value_delimiter = ';')]
    schedulers: Vec<String>,
    /// Numbers of virtual CPUs, a table each
    #[arg(
        short,
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,2"
    )]
    cpus: Vec<u32>,
    /// Runs of each benchmark under each scheduler
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Round trips of the pipe benchmark
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    trips: u32,
    /// Messages each sender of the messaging benchmark sends to each receiver; there are 20 of each
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,
}

/// An instruction, as the virtual machine counts time.
const INSTRUCTION_S: f64 = 2e-9;

/// Begins the reason of a policy that the kernel has thrown out.
const EJECTED: &str = "ejected";

/// How long a scheduler's program may take to load it.
const LOADING: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.schedulers.is_empty() {
        let policies = POLICIES.iter().map(|policy| policy.name);
        arguments.schedulers = ["kernel"]
            .into_iter()
            .chain(policies)
            .map(str::to_owned)
            .collect();
    }
    let result = if vm::inside() {
        inside(&arguments)
    } else {
        arguments.cpus.iter().try_fold(true, |all, &cpus| {
            println!(
                "\n{cpus} virtual CPU{}:\n",
                if cpus == 1 { "" } else { "s" }
            );
            outside(&arguments, cpus).map(|fine| all && fine)
        })
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// The same program with the same arguments in the virtual machine.
fn outside(arguments: &Arguments, cpus: u32) -> Result<bool, String> {
    let vm = Vm {
        cpus,
        repeatable: true,
        timeout: Duration::from_secs(4 * 3_600),
        ..Vm::default()
    };
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let schedulers = arguments.schedulers.iter().map(|scheduler| {
        // The machine's current directory is another one.
        match Path::new(scheduler).canonicalize() {
            Ok(path) if path.is_file() => path.into_os_string(),
            _ => OsString::from(scheduler),
        }
    });
    let mut joined = OsString::new();
    for scheduler in schedulers {
        if !joined.is_empty() {
            joined.push(";");
        }
        joined.push(scheduler);
    }
    let number = |n: u32| OsString::from(n.to_string());
    let command = [
        program.into_os_string(),
        "--cpus".into(),
        number(cpus),
        "--schedulers".into(),
        joined,
        "--repeat".into(),
        number(arguments.repeat),
        "--trips".into(),
        number(arguments.trips),
        "--messages".into(),
        number(arguments.messages),
    ];
    let mut show = |stream: Stream, bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        match stream {
            Stream::Stdout => print!("{text}"),
            Stream::Stderr => eprint!("{text}"),
        }
    };
    let (code, log) = vm
        .run(&command, &|note| eprintln!("{note}"), &mut show)
        .map_err(|error| error.to_string())?;
    if !log.trim().is_empty() {
        eprintln!("the kernel's log:\n{log}");
    }
    Ok(code == 0)
}

fn inside(arguments: &Arguments) -> Result<bool, String> {
    println!(
        "| scheduler | pipe, instructions per round trip | messaging, million instructions |\n|---|---|---|"
    );
    let mut all = true;
    for scheduler in &arguments.schedulers {
        let path = PathBuf::from(scheduler);
        let name = match path.file_name() {
            Some(file) if path.is_file() => file.to_string_lossy().into_owned(),
            _ => scheduler.clone(),
        };
        match one(scheduler, path.is_file(), arguments) {
            Ok([pipe, messaging]) => println!("| `{name}` | {pipe} | {messaging} |"),
            Err(why) => {
                println!("| `{name}` | {why} | |");
                // With CPUs that wait for each other this is what the machine does, not the policy.
                let expected = why.starts_with(EJECTED) && arguments.cpus != [1];
                all = all && expected;
            }
        }
    }
    Ok(all)
}

/// A scheduler's two cells.
fn one(scheduler: &str, is_program: bool, arguments: &Arguments) -> Result<[String; 2], String> {
    let mut peer = None;
    let mut loaded = None;
    if is_program {
        peer = Some(Peer::load(scheduler)?);
    } else {
        loaded = run::load(&Scheduler::parse(scheduler)).map_err(|error| error.to_string())?;
    }
    let (trips, messages) = (arguments.trips.to_string(), arguments.messages.to_string());
    let pipe = measured(&["pipe", "-l", &trips], arguments.repeat);
    let messaging = measured(&["messaging", "-g", "1", "-l", &messages], arguments.repeat);
    // It must have been there to the end.
    let there = match (&loaded, &peer) {
        (Some(policy), _) => policy.is_running(),
        (None, Some(_)) => is_enabled(&scx::state()),
        (None, None) => scx::state() == State::Disabled,
    };
    if let Some(policy) = loaded {
        let exit = policy.unload().map_err(|error| error.to_string())?;
        if !exit.is_normal() {
            return Err(format!("{EJECTED}: {} {}", exit.reason, exit.message));
        }
    }
    drop(peer);
    until(|state| *state == State::Disabled)?;
    if !there {
        return Err("it was gone before the benchmarks had ended".to_owned());
    }
    let (pipe, messaging) = (pipe?, messaging?);
    let trips = f64::from(arguments.trips);
    let a_trip: Vec<f64> = pipe.iter().map(|n| n / trips).collect();
    let millions: Vec<f64> = messaging.iter().map(|n| n / 1e6).collect();
    Ok([cell(&a_trip, 0), cell(&millions, 1)])
}

/// Median, least and greatest.
fn cell(values: &[f64], digits: usize) -> String {
    let median = stats::median(values).unwrap_or(f64::NAN);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
}

/// Instructions of each run of a benchmark.
fn measured(benchmark: &[&str], repeat: u32) -> Result<Vec<f64>, String> {
    // The first one reads the program from the disk.
    (0..=repeat)
        .map(|_| {
            let output = Command::new("perf")
                .args(["bench", "--format=simple", "sched"])
                .args(benchmark)
                .output()
                .map_err(|error| format!("perf: {error}"))?;
            let text = String::from_utf8_lossy(&output.stdout);
            let seconds = text
                .lines()
                .find_map(|line| line.trim().parse::<f64>().ok());
            match seconds {
                Some(seconds) if output.status.success() => Ok(seconds / INSTRUCTION_S),
                _ => Err(format!(
                    "perf bench {benchmark:?} ended with {}",
                    output.status
                )),
            }
        })
        .skip(1)
        .collect()
}

/// A program that loads an external scheduler and keeps it until the program ends.
struct Peer(Child);

impl Peer {
    fn load(program: &str) -> Result<Peer, String> {
        let child = Command::new(program)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let peer = Peer(child);
        until(is_enabled)?;
        Ok(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_enabled(state: &State) -> bool {
    matches!(state, State::Loaded { state, .. } if state == "enabled")
}

fn until(wanted: impl Fn(&State) -> bool) -> Result<(), String> {
    let deadline = Instant::now() + LOADING;
    while !wanted(&scx::state()) {
        if Instant::now() > deadline {
            return Err(format!("sched_ext is {:?}", scx::state()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
