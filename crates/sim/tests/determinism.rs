//! The same specification gives the same bytes: events and results, again and beside other runs.
//!
//! With SCHEDLAB_BYTES=FOLDER one of them leaves the bytes there, so that `tools/check-determinism` can compare
//! builds: debug with release, and policies compiled by gcc with those by clang. SCHEDLAB_PART=I/N takes every Nth run
//! from the Ith on, counted from 0: an emulator of another processor never gives back what it keeps of each run.

#[path = "support/run.rs"]
mod virtual_kernel;

use std::io::Write;
use std::path::Path;
use std::thread;

use schedlab_report::export;
use schedlab_sim::{Scheduler, SimSpec, schedulers};
use virtual_kernel::Bytes;

/// Workloads small enough for a debug build, each with machines that differ in locks and topology.
const RUNS: [(&str, &str, usize); 6] = [
    ("chat:rooms=1,users=6,messages=8", "netfinity-8500r", 4),
    ("cpu:tasks=9,duration=200ms", "laptop", 3),
    (
        "cpu:tasks=20,duration=50ms,nice=0/5/-5",
        "server-2x96x2",
        16,
    ),
    ("pipe:loops=300", "xeon-e5645-2x6x2", 4),
    ("reflex:rounds=20", "numa-8x64x2", 8),
    (
        "service:rate=5000/s,duration=1 + hackbench:groups=1,fds=3,loops=20",
        "laptop",
        4,
    ),
];

fn specs() -> Vec<SimSpec> {
    let mut specs = Vec::new();
    for scheduler in schedulers() {
        for (workload, machine, cpus) in RUNS {
            specs.push(SimSpec {
                cpus: Some(cpus),
                seed: 7,
                check: true,
                ..SimSpec::new(workload, Scheduler::parse(&scheduler.name), machine)
            });
        }
    }
    let Ok(part) = std::env::var("SCHEDLAB_PART") else {
        return specs;
    };
    let number = |text: &str| text.parse::<usize>().ok();
    let part = part
        .split_once('/')
        .and_then(|(first, step)| Some((number(first)?, number(step)?)));
    let (first, step) = part.expect("SCHEDLAB_PART is I/N");
    specs.into_iter().skip(first).step_by(step).collect()
}

/// All that a run leaves behind.
fn bytes(spec: &SimSpec) -> Vec<u8> {
    let mut events = Bytes::default();
    let result =
        schedlab_sim::run(spec, Some(&mut events)).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        result.is_done(),
        "{}: {:?}",
        spec.replay_command(),
        result.message
    );
    assert!(
        events.0.len() > 2_000,
        "{}: few events",
        spec.replay_command()
    );
    export::json::write(&[result], &mut events.0).expect("memory can be written");
    events.0
}

#[test]
fn a_run_repeats_to_the_byte_alone_and_beside_others() {
    let specs = specs();
    let alone: Vec<Vec<u8>> = specs.iter().map(bytes).collect();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| specs.iter().map(bytes).collect::<Vec<_>>()))
            .collect();
        for thread in threads {
            let beside = thread.join().expect("a run does not panic");
            for ((spec, first), again) in specs.iter().zip(&alone).zip(&beside) {
                assert!(first == again, "differs: {}", spec.replay_command());
            }
        }
    });
}

/// Leaves the bytes of each run, once, in the folder that SCHEDLAB_BYTES names.
#[test]
fn bytes_are_left_to_compare() {
    let Some(folder) = std::env::var_os("SCHEDLAB_BYTES") else {
        return;
    };
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    for spec in specs() {
        // A machine stands in several runs, so a name without the workload would keep whichever was written last.
        let workload: String = spec
            .workload
            .chars()
            .filter(|c| c.is_alphanumeric())
            .collect();
        let name = format!("{}-{}-{workload}", spec.scheduler.name, spec.machine);
        let file = std::fs::File::create_new(Path::new(&folder).join(name));
        file.and_then(|mut file| file.write_all(&bytes(&spec)))
            .expect("the folder can be written, each file once");
    }
}

#[test]
fn another_seed_is_another_run() {
    // Otherwise the comparisons above would compare what does not depend on anything.
    let mut spec = specs().remove(1);
    let first = bytes(&spec);
    spec.seed += 1;
    assert!(first != bytes(&spec), "{}", spec.replay_command());
}
