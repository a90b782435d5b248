//! The fair class repairs bad placement (-s kernel).

use schedlab_machine::{Machine, Topology};
use schedlab_trace::{CpuSet, Duration, Event, MigrationReach};
use schedlab_workload::{Action, SchedClass, Start, TaskSpec};

use crate::testing::*;
use crate::{NormalClass, Scenario};

/// So many caches with so many cores of so many threads; the two threads of a core have adjacent numbers.
fn machine_of(llcs: u32, cores: u32, threads: u32) -> Machine {
    let mut machine = Machine::builtin("laptop").unwrap();
    let mut triples = Topology::new(1, llcs, cores, threads).triples();
    triples.sort_unstable();
    machine.topology = Topology::irregular(&triples).unwrap();
    machine
}

fn fair(machine: Machine, start: Start, tasks: Vec<TaskSpec>) -> Checked {
    let mut workload = workload(Vec::new(), tasks);
    workload.start = start;
    let mut scenario = Scenario::new(machine, workload, 1);
    scenario.normal_class = NormalClass::Fair;
    run_checked(scenario, Stub::minimal())
}

fn makespan_ms(checked: &Checked) -> u64 {
    checked.end.makespan.expect("all tasks end").ns() / 1_000_000
}

fn hogs(n: usize, ms: u64) -> Vec<TaskSpec> {
    (0..n).map(|_| hog("hog", ms)).collect()
}

#[test]
fn as_many_tasks_as_cores_have_a_core_each() {
    for (cores, threads) in [(8, 2), (40, 4), (8, 1)] {
        let tasks = hogs(cores as usize, 400);
        let checked = fair(machine_of(1, cores, threads), Start::Fork, tasks);
        // Each fork takes 40 µs.
        let ms = makespan_ms(&checked);
        assert!((400..404).contains(&ms), "{cores} × {threads}: {ms}");
    }
}

/// Two tasks on each of four cores beside four idle cores: after four attempts, one every 16 ms, a running task moves. The
/// idle cores choose the same source, so one moves at a time.
#[test]
fn a_running_task_moves_from_a_busy_sibling_to_an_idle_core() {
    let checked = fair(machine_of(1, 8, 2), Start::Together, hogs(8, 400));
    let ms = makespan_ms(&checked);
    assert!((410..460).contains(&ms), "{ms}");
    let moved = checked
        .events
        .iter()
        .filter_map(|&(at, _, event)| match event {
            Event::Migrate { reach, .. } => Some((at, reach)),
            _ => None,
        });
    let moved: Vec<_> = moved.collect();
    assert_eq!(moved.len(), 4, "{moved:?}");
    for (at, reach) in moved {
        assert_eq!(reach, MigrationReach::Llc);
        assert!((48_000_000..130_000_000).contains(&at), "{at}");
    }
}

#[test]
fn affinity_that_is_widened_is_made_use_of() {
    let bound = |comm: &str| {
        let spec = task(comm, |n, _| {
            Some(match n {
                0 => Action::Compute(Duration::from_ms(20)),
                1 => Action::SetAffinity(CpuSet::all(16)),
                2 => Action::Compute(Duration::from_ms(300)),
                _ => return None,
            })
        });
        on_cpus(spec, "0,1")
    };
    let checked = fair(
        machine_of(1, 8, 2),
        Start::Fork,
        vec![bound("a"), bound("b")],
    );
    let ms = makespan_ms(&checked);
    // 20 ms at 60 %, then about 64 ms more until one of them moves.
    assert!((340..400).contains(&ms), "{ms}");
}

/// Eight tasks on the four cores of a cache beside an idle one.
#[test]
fn an_idle_cache_takes_running_tasks_from_a_full_one() {
    let pinned: CpuSet = "0-7".parse().unwrap();
    let widens = move |_| {
        let mut spec = task("hog", |n, _| {
            Some(match n {
                0 => Action::Compute(Duration::from_ms(20)),
                1 => Action::SetAffinity(CpuSet::all(16)),
                2 => Action::Compute(Duration::from_ms(600)),
                _ => return None,
            })
        });
        spec.affinity = Some(pinned.clone());
        spec
    };
    let tasks = (0..8).map(widens).collect();
    let checked = fair(machine_of(2, 4, 2), Start::Fork, tasks);
    // Before the first of them ends.
    let far = checked.events.iter().filter(|(at, _, event)| {
        let far = matches!(
            event,
            Event::Migrate {
                reach: MigrationReach::Node,
                ..
            }
        );
        far && *at < 500_000_000
    });
    assert_eq!(far.count(), 4);
    let ms = makespan_ms(&checked);
    assert!((640..900).contains(&ms), "{ms}");
}

/// Forty tasks that wait in a cache of eight CPUs beside an idle cache: the CPU that looks for the idle cache takes all four
/// or five that wait on the busiest CPU at once, not one a tick.
#[test]
fn an_idle_cache_takes_many_waiting_tasks_at_once() {
    let waits = |_| {
        let spec = task("hog", |n, _| {
            Some(match n {
                0 => Action::SetAffinity(CpuSet::all(16)),
                // All wake up with the wider mask, where they slept.
                1 => Action::Sleep(Duration::from_ms(1)),
                2 => Action::Compute(Duration::from_ms(100)),
                _ => return None,
            })
        });
        on_cpus(spec, "0-7")
    };
    let tasks = (0..40).map(waits).collect();
    let checked = fair(machine_of(2, 4, 2), Start::Together, tasks);
    let far = checked.events.iter().filter_map(|(at, _, event)| {
        let reach = match event {
            Event::Migrate { reach, .. } => *reach,
            _ => return None,
        };
        (reach == MigrationReach::Node).then_some(*at)
    });
    let far: Vec<u64> = far.collect();
    let first = *far.first().expect("tasks move");
    let at_once = far.iter().filter(|&&at| at < first + 1_000_000).count();
    assert!((4..=5).contains(&at_once), "{at_once} of {far:?}");
}

/// The machine was full before: no CPU was idle that could have looked.
#[test]
fn a_core_that_becomes_idle_late_takes_a_running_task() {
    // On each core of four an 80 ms task beside one of 400 ms, but on the last one two short ones.
    let mut tasks = hogs(8, 80);
    for (long, cpu) in [(0, "0"), (2, "2"), (3, "3"), (4, "4")] {
        tasks[long] = on_cpus(
            task("long", |n, _| {
                Some(match n {
                    0 => Action::Compute(Duration::from_ms(20)),
                    1 => Action::SetAffinity(CpuSet::all(8)),
                    2 => Action::Compute(Duration::from_ms(380)),
                    _ => return None,
                })
            }),
            cpu,
        );
    }
    for (short, cpu) in [(1, "1"), (5, "5"), (6, "6"), (7, "7")] {
        tasks[short] = on_cpus(hog("short", 80), cpu);
    }
    let checked = fair(machine_of(1, 4, 2), Start::Together, tasks);
    // The tasks on CPUs 2 and 3 share a core until about 64 ms after others have become idle.
    let ms = makespan_ms(&checked);
    assert!((440..540).contains(&ms), "{ms}");
}

/// A balanced machine is left alone.
#[test]
fn nothing_moves_where_all_cores_have_as_many() {
    let checked = fair(machine_of(1, 4, 2), Start::Fork, hogs(8, 300));
    let moved = checked
        .events
        .iter()
        .filter(|(at, _, event)| *at > 20_000_000 && matches!(event, Event::Migrate { .. }));
    assert_eq!(moved.count(), 0);
}

/// A real-time hog leaves its CPU nothing: the normal task there is pulled, though the other CPU has one of its own.
#[test]
fn a_task_behind_a_real_time_hog_shares_another_cpu() {
    let mut rt = on_cpus(hog("rt", 5_000), "0");
    rt.class = SchedClass::Fifo(10);
    let tasks = vec![on_cpus(hog("a", 400), "1"), rt, hog("b", 400)];
    let mut workload = workload(Vec::new(), tasks);
    workload.duration = Some(Duration::from_secs(2));
    let mut scenario = Scenario::new(machine(2), workload, 1);
    scenario.normal_class = NormalClass::Fair;
    // It begins on CPU 0, the turn of task 2.
    let checked = run_checked(scenario, Stub::minimal());
    let left: Vec<u32> = checked.end.unfinished.iter().map(|task| task.0).collect();
    assert_eq!(left, [1], "only the real-time task");
}

/// A new task does not go behind a real-time task, whose CPU has no more tasks than others.
#[test]
fn a_new_task_prefers_a_cpu_without_a_real_time_task() {
    let mut rt = on_cpus(hog("rt", 400), "0");
    rt.class = SchedClass::Fifo(10);
    let parent = task("parent", |n, _| {
        Some(match n {
            0 => Action::Compute(Duration::from_ms(5)),
            1 => Action::Fork(Box::new(hog("child", 1))),
            2 => Action::Compute(Duration::from_ms(5)),
            _ => return None,
        })
    });
    let checked = fair(machine(2), Start::Together, vec![rt, on_cpus(parent, "1")]);
    assert_eq!(checked.ran_on(0), [0]);
    assert!(checked.ran_on(1).contains(&2));
}

/// Several tasks go at once from a CPU that has many to one that has few.
#[test]
fn a_busy_cpu_takes_several_tasks_at_once() {
    let widens = || {
        let spec = task("many", |n, _| {
            Some(match n {
                0 => Action::Compute(Duration::from_ms(1)),
                1 => Action::SetAffinity(CpuSet::all(2)),
                2 => Action::Compute(Duration::from_ms(100)),
                _ => return None,
            })
        });
        on_cpus(spec, "0")
    };
    let mut tasks: Vec<_> = (0..9).map(|_| widens()).collect();
    tasks.push(on_cpus(hog("busy", 1_000), "1"));
    let checked = fair(machine(2), Start::Fork, tasks);
    let times: Vec<u64> = checked
        .events
        .iter()
        .filter_map(|&(at, _, event)| matches!(event, Event::Migrate { .. }).then_some(at))
        .collect();
    // Within one balance, without a tick between them.
    let close = times.windows(3).any(|three| three[2] - three[0] < 500_000);
    assert!(close, "{times:?}");
}
