//! Machines that people have: every scheduler runs well on each, keeps every invariant, and gives the same bytes again. And
//! what a profile says of its cores is what policies are told and what tasks get.

#[path = "support/chosen.rs"]
mod chosen;
mod support;
#[path = "support/run.rs"]
mod virtual_kernel;

use std::sync::Arc;

use schedlab_abi::NativeObject;
use schedlab_engine::{ExitKind, Scenario};
use schedlab_machine::Machine;
use schedlab_sim::{Scheduler, SimSpec};
use schedlab_trace::{CpuId, CpuSet, Duration, Instant};
use schedlab_workload::{Start, Workload};
use support::script::{self, Kind, Step};
use virtual_kernel::{Bytes, checkers, run, violations};

/// Profiles of public descriptions with cores, caches, nodes or numbers that are not alike.
const MACHINES: [&str; 8] = [
    "arm-server-128",
    "arm-server-64",
    "hybrid-laptop",
    "numa-desktop",
    "phone",
    "power-smt8",
    "server-2x128x2",
    "two-ccd-desktop",
];

fn kind(comm: &str, count: u32, repeat: u32, steps: Vec<Step>) -> Kind {
    Kind {
        comm: comm.to_owned(),
        count,
        repeat,
        steps,
        cpus: Vec::new(),
        nice: vec![0, 5],
        start: Instant::ZERO,
    }
}

/// Tasks that compute, sleep, wait for each other, fork and move between all parts of the machine: some more than it has
/// CPUs for where it is small, and a third of its CPUs where it is large.
fn workload(nr_cpus: usize) -> Workload {
    let us = Duration::from_us;
    let share = 1 + nr_cpus as u32 / 16;
    let one = |cpu: usize| CpuSet::single(nr_cpus, CpuId(cpu as u32));
    let moves = [nr_cpus - 1, 0, nr_cpus / 2, nr_cpus / 3];
    let moves = moves.into_iter().flat_map(|cpu| {
        let rest = if cpu == 0 { Step::Yield } else { Step::Nice(1) };
        [Step::Cpus(one(cpu)), Step::Compute(us(150)), rest]
    });
    let mut kinds = vec![
        kind("hog", share + 3, 2, vec![Step::Compute(us(1_700))]),
        kind(
            "sleeper",
            share + 3,
            6,
            vec![Step::Compute(us(130)), Step::Sleep(us(270))],
        ),
        kind("mover", 2, 2, moves.collect()),
        kind(
            "forker",
            1,
            2,
            vec![Step::Compute(us(90)), Step::Fork("child".to_owned())],
        ),
    ];
    for pipe in 0..2 {
        kinds.push(kind(
            "writer",
            1,
            12,
            vec![Step::Compute(us(40)), Step::Write(pipe)],
        ));
        kinds.push(kind(
            "reader",
            1,
            12,
            vec![Step::Read(pipe), Step::Compute(us(60))],
        ));
    }
    let child = kind("child", 1, 1, vec![Step::Compute(us(300))]);
    script::workload("machines", &kinds, &[child])
}

/// The events of a run as bytes, or what is wrong.
fn events(object: &Arc<NativeObject>, machine: &Machine, start: Start) -> Result<Vec<u8>, String> {
    let nr_cpus = machine.topology.nr_cpus();
    let mut workload = workload(nr_cpus);
    workload.start = start;
    let recorder = (checkers(nr_cpus, 0), Bytes::default());
    let end = run(
        object,
        Scenario::new(machine.clone(), workload, 7),
        recorder,
    );
    if let Some(failure) = end.failure {
        return Err(failure.to_string());
    }
    if end.exit.kind != ExitKind::Done || !end.unfinished.is_empty() {
        return Err(format!("{:?}, unfinished: {:?}", end.exit, end.unfinished));
    }
    let (checkers, bytes) = end.recorder;
    match violations(checkers) {
        found if found.is_empty() => Ok(bytes.0),
        found => Err(found),
    }
}

#[test]
fn every_policy_runs_well_on_machines_that_people_have() {
    let mut wrong = Vec::new();
    for name in MACHINES {
        let machine = Machine::builtin(name).unwrap();
        for policy in chosen::policies() {
            let object = policy.object();
            for start in [Start::Fork, Start::Together] {
                let case = format!("{} on {name}, {start:?}", policy.name);
                match events(&object, &machine, start) {
                    Err(what) => wrong.push(format!("{case}: {what}")),
                    Ok(first) if start == Start::Fork => {
                        if events(&object, &machine, start) != Ok(first) {
                            wrong.push(format!("{case}: the second run differs"));
                        }
                    }
                    Ok(_) => {}
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn sim(workload: &str, scheduler: &str, machine: &str) -> schedlab_report::RunResult {
    let spec = SimSpec {
        check: true,
        ..SimSpec::new(workload, Scheduler::parse(scheduler), machine)
    };
    let result = schedlab_sim::run(&spec, None).unwrap_or_else(|error| panic!("{error}"));
    assert!(result.is_done(), "{machine}: {:?}", result.message);
    result
}

fn makespan_ms(workload: &str, scheduler: &str, machine: &str) -> f64 {
    let result = sim(workload, scheduler, machine);
    result.measures.number("makespan_ns").unwrap() / 1e6
}

#[test]
fn the_kernels_own_class_runs_well_there_too() {
    for machine in MACHINES {
        for workload in [
            "cpu:tasks=9,run=900us,sleep=300us,duration=30ms",
            "cpu:tasks=200,run=300us,sleep=500us,duration=10ms",
        ] {
            sim(workload, "kernel", machine);
        }
    }
}

/// One hog with 300 ms of work. Under the kernel's own class it is on a fast core after some 50 ms at the latest; `fifo`
/// knows no capacities and leaves it where it began.
#[test]
fn a_hog_ends_on_a_fast_core_under_the_kernels_own_class() {
    let hog = "cpu:tasks=1,run=300ms,loops=1,duration=0,start=together";
    for machine in ["phone", "hybrid-laptop"] {
        let fast = makespan_ms(hog, "kernel", machine);
        assert!((300.0..450.0).contains(&fast), "{machine}: {fast}");
    }
    // CPU 0 of the phone has 160 of 1,024: 1,920 ms. The hog climbs in two steps.
    let slow = makespan_ms(hog, "fifo", "phone");
    assert!((1_920.0..1_940.0).contains(&slow), "{slow}");
}
