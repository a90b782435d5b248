//! Tasks that run on a machine beside any workload.

use schedlab_machine::Background;
use schedlab_trace::{Event, TaskId};
use schedlab_workload::{Action, ObjectId, ObjectSpec};

use crate::contract::scenario::{RunEnd, WorkloadFailure};
use crate::testing::*;

fn daemon(period_us: u64, run_us: u64, per_cpu: bool) -> Background {
    Background {
        period_us,
        run_us,
        per_cpu,
        static_prio: None,
    }
}

fn machine_with(nr_cpus: usize, daemon: Background) -> schedlab_machine::Machine {
    let mut machine = machine(nr_cpus);
    machine.background.insert("kdaemon".to_owned(), daemon);
    machine
}

/// The CPU and the task of each switch to a task that is not of the `workload`.
fn daemons_ran_on(checked: &Checked, workload: &[u32]) -> Vec<(u32, u32)> {
    let events = checked.events.iter();
    let switches = events.filter_map(|&(_, cpu, event)| match event {
        Event::Switch {
            next: Some(TaskId(task)),
            ..
        } if !workload.contains(&task) => Some((cpu, task)),
        _ => None,
    });
    switches.collect()
}

/// A hog of 100 ms beside a daemon that computes for 100 µs in each millisecond: a tenth longer. The run ends with the
/// hog, though the daemon goes on for ever.
#[test]
fn a_hog_is_longer_by_the_daemon_of_its_cpu() {
    let makespan = |machine| {
        let scenario = scenario_of(machine, workload(Vec::new(), vec![hog("h", 100)]));
        let checked = run_checked(scenario, Stub::fifo(&[]));
        checked.is_done();
        assert_eq!(checked.end.tasks, 1);
        assert_eq!(checked.end.unfinished, []);
        checked.end.makespan.unwrap().ns() as f64
    };
    let alone = makespan(machine(1));
    // A first-in-first-out policy lets the daemon in after the hog's slice alone, so it misses most of its wakeups.
    let fifo = makespan(machine_with(1, daemon(1_000, 100, true)));
    assert!(fifo > alone + 200_000.0, "{alone} {fifo}");
    let mut scenario = scenario_of(
        machine_with(1, daemon(1_000, 100, true)),
        workload(Vec::new(), vec![hog("h", 100)]),
    );
    scenario.normal_class = crate::NormalClass::Fair;
    let fair = crate::run(scenario, Stub::fifo(&[]), Events::default());
    let ratio = fair.makespan.unwrap().ns() as f64 / alone;
    assert!((1.07..=1.14).contains(&ratio), "{ratio}");
}

#[test]
fn each_cpu_has_its_own_or_there_is_one() {
    let ran = |per_cpu| {
        let machine = machine_with(3, daemon(1_000, 10, per_cpu));
        let scenario = scenario_of(
            machine,
            workload(Vec::new(), vec![periodic("p", 10, 5_000, 10)]),
        );
        let checked = run_checked(scenario, Stub::fifo(&[]));
        let workload = [checked.end.tasks - 1];
        daemons_ran_on(&checked, &workload)
    };
    let bound = ran(true);
    let mut pairs: Vec<(u32, u32)> = bound.clone();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs, [(0, 1), (1, 2), (2, 3)]);
    assert!(bound.len() > 100, "{}", bound.len());
    let free = ran(false);
    assert!((35..=70).contains(&free.len()), "{}", free.len());
}

/// The longest period that a profile may have.
#[test]
fn a_daemon_may_sleep_for_long() {
    let mut workload = workload(Vec::new(), vec![periodic("p", 10, 300_000_000, 12)]);
    workload.duration = None;
    let machine = machine_with(2, daemon(1_000_000_000, 10, true));
    let checked = run_checked(scenario_of(machine, workload), Stub::fifo(&[]));
    checked.is_done();
    // They begin after 333 and 667 of 3,300 s, and sleep for 500 to 1,500 s.
    let ran = daemons_ran_on(&checked, &[0]);
    assert!((4..=14).contains(&ran.len()), "{ran:?}");
}

/// Measures of tasks do not count daemons.
#[test]
fn a_daemon_is_no_task_of_a_measure() {
    let define = |machine| {
        let scenario = scenario_of(machine, workload(Vec::new(), vec![hog("h", 5)]));
        let checked = run_checked(scenario, Stub::fifo(&[]));
        checked.is_done();
        checked.end.recorder.1.starters
    };
    assert_eq!(define(machine(2)), []);
    let own = define(machine_with(2, daemon(1_000, 10, true)));
    assert_eq!(own, [TaskId(1), TaskId(2)]);
    let one = define(machine_with(2, daemon(1_000, 10, false)));
    assert_eq!(one, [TaskId(1)]);
}

/// A daemon without a CPU of its own is not confined with the workload (`--taskset`).
#[test]
fn a_daemon_leaves_the_cpus_of_a_confined_workload() {
    let machine = machine_with(2, daemon(1_000, 300, false));
    let mut scenario = scenario_of(machine, workload(Vec::new(), vec![hog("h", 50)]));
    scenario.allowed = Some("0".parse().unwrap());
    let checked = run_checked(scenario, Stub::fifo(&[]));
    let ran = daemons_ran_on(&checked, &[0]);
    assert!(ran.contains(&(1, 1)), "{ran:?}");
}

/// Tasks that wait for each other are found, though daemons wake for ever.
#[test]
fn a_hung_workload_is_found_beside_daemons() {
    let run = |machine| -> RunEnd<Stub, Events> {
        let waits = || {
            task("w", |n, _| {
                (n == 0).then(|| Action::Read {
                    from: ObjectId(0),
                    limit: 1,
                })
            })
        };
        let mut workload = workload(
            vec![ObjectSpec::Pipe { capacity: 10 }],
            vec![waits(), waits()],
        );
        workload.duration = None;
        crate::run(
            scenario_of(machine, workload),
            Stub::fifo(&[]),
            Events::default(),
        )
    };
    let end = run(machine_with(2, daemon(1_000, 10, true)));
    let failure = end.failure.expect("they wait for ever");
    assert!(
        matches!(failure, WorkloadFailure::Deadlock { .. }),
        "{failure}"
    );
    assert!(end.end.ns() < 100_000_000, "{:?}", end.end);
}

/// A sleeper that waits longer than the daemons is no hung workload: not even while daemons of several CPUs are woken at once.
#[test]
fn a_long_sleep_beside_daemons_is_no_deadlock() {
    let mut machine = machine_with(8, daemon(20, 3, true));
    machine
        .background
        .insert("other".to_owned(), daemon(30, 3, true));
    let scenario = scenario_of(
        machine,
        workload(Vec::new(), vec![periodic("p", 10, 10_000, 4)]),
    );
    let checked = run_checked(scenario, Stub::fifo(&[]));
    checked.is_done();
    assert!(checked.end.failure.is_none(), "{:?}", checked.end.failure);
    assert!(checked.end.makespan.unwrap().ns() > 30_000_000);
}
