//! How fast the simulator is: context switches per second of wall time and peak memory.
//!
//! `cargo bench -p schedlab-sim` (or `make bench`) runs each case in a process of its own, so that
//! its peak memory is its own. Everything is on that a user has: locks, caches, ticks, measures.
//! `cargo bench -p schedlab-sim -- NAME` runs one case.

use std::process::Command;
use std::time::Instant;

use schedlab_sim::{Scheduler, SimSpec};

/// The measured case.
struct Case {
    name: &'static str,
    workload: &'static str,
    machine: &'static str,
    cpus: usize,
}

const CASES: &[Case] = &[
    Case {
        name: "busy-8",
        workload: "cpu:tasks=400,run=50us,sleep=200us,jitter=0,offset=0,duration=20s",
        machine: "server-2x96x2",
        cpus: 8,
    },
    Case {
        name: "idling-8",
        workload: "cpu:tasks=25,run=50us,sleep=210us,jitter=90,duration=20s",
        machine: "server-2x96x2",
        cpus: 8,
    },
    Case {
        name: "busy-64",
        workload: "cpu:tasks=5000,run=50us,sleep=200us,jitter=0,offset=0,duration=5s",
        machine: "server-2x96x2",
        cpus: 64,
    },
    Case {
        // Until every task has run: with one queue for 1,024 CPUs 0.9 s.
        name: "million-1024",
        workload: "cpu:tasks=1000000,run=50us,sleep=200us,jitter=0,offset=0,loops=1,duration=0",
        machine: "numa-8x64x2",
        cpus: 1024,
    },
];

/// Set for the child that runs one case.
const CHILD: &str = "SCHEDLAB_BENCH_CASE";

fn spec(case: &Case) -> SimSpec {
    SimSpec {
        cpus: Some(case.cpus),
        ..SimSpec::new(case.workload, Scheduler::parse("vtime"), case.machine)
    }
}

/// Runs a case and returns its context switches and the seconds it took.
fn run(case: &Case) -> (f64, f64) {
    let start = Instant::now();
    let result = schedlab_sim::run(&spec(case), None).expect("the case names what exists");
    let seconds = start.elapsed().as_secs_f64();
    assert!(result.is_done(), "{}: {:?}", case.name, result.message);
    let measure = |name| result.measures.number(name);
    if case.workload.contains("duration=0") {
        let all_ended = measure("makespan_ns").is_some();
        assert!(all_ended, "{}: a task has not run", case.name);
    }
    let switches = measure("switches.total").expect("the simulator counts switches");
    (switches, seconds)
}

/// The largest resident set of this process so far, in KB.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let word = line.and_then(|line| line.split_whitespace().nth(1));
    word.and_then(|word| word.parse().ok())
        .expect("the kernel reports VmHWM")
}

fn child(name: &str) {
    if name == "two-threads" {
        return two_threads();
    }
    let case = CASES.iter().find(|case| case.name == name).expect("a case");
    let (switches, seconds) = run(case);
    println!(
        "{:<14} {:>12.0} switches {:>8.2} s {:>7.2} M/s {:>9.1} MB   {} on {} CPUs",
        case.name,
        switches,
        seconds,
        switches / seconds / 1e6,
        peak_kb() as f64 / 1024.0,
        case.workload,
        case.cpus,
    );
}

/// Two simulations in two threads against one alone: the median ratio of five.
fn two_threads() {
    let case = &CASES[0];
    let mut ratios: Vec<f64> = (0..5)
        .map(|_| {
            let (_, alone) = run(case);
            let start = Instant::now();
            std::thread::scope(|scope| {
                scope.spawn(|| run(case));
                run(case);
            });
            start.elapsed().as_secs_f64() / alone
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "two-threads    {:.2} times one alone (median of five; {:.2} to {:.2})",
        ratios[2], ratios[0], ratios[4]
    );
}

fn main() {
    if let Ok(name) = std::env::var(CHILD) {
        return child(&name);
    }
    // Cargo passes `--bench`; a word without dashes chooses cases.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let names = CASES.iter().map(|case| case.name).chain(["two-threads"]);
    for name in names.filter(|name| wanted.is_empty() || wanted.iter().any(|w| w == name)) {
        let program = std::env::current_exe().expect("a program knows its file");
        let status = Command::new(program)
            .env(CHILD, name)
            .status()
            .expect("the benchmark starts itself");
        assert!(status.success(), "{name} failed");
    }
}
