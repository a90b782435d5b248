//! The fair class repairs bad placement (-s kernel).

use schedlab_machine::{Machine, Topology};
use schedlab_trace::{CpuSet, Duration, Event, MigrationReach};
use schedlab_workload::{Action, ObjectId, ObjectSpec, SchedClass, Start, TaskSpec};

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

/// Where each task was moved, and when.
fn moves(checked: &Checked) -> Vec<(u64, u32, u32, MigrationReach)> {
    let events = checked.events.iter();
    let moves = events.filter_map(|&(at, _, event)| match event {
        Event::Migrate {
            task, to, reach, ..
        } => Some((at, task.0, to.0, reach)),
        _ => None,
    });
    moves.collect()
}

/// A task that computes 1 ms on CPU 0, may run on `cpus` from then on, and computes 100 ms.
fn widens(cpus: &'static str) -> TaskSpec {
    let spec = task("widens", move |n, _| {
        Some(match n {
            0 => Action::Compute(Duration::from_ms(1)),
            1 => Action::SetAffinity(cpus.parse().unwrap()),
            2 => Action::Compute(Duration::from_ms(100)),
            _ => return None,
        })
    });
    on_cpus(spec, "0")
}

/// A CPU of the other cache becomes idle every 0.1 ms, but that cache has no more idle CPUs than the one where a task waits
/// and as many tasks but one: a neighbour takes it, when it looks.
#[test]
fn a_waiting_task_stays_in_a_cache_with_idle_cpus() {
    let often_idle = on_cpus(periodic("often idle", 50, 50, 1_000), "4");
    let on_5 = on_cpus(hog("on 5", 300), "5");
    let tasks = vec![widens("0-7"), widens("0-7"), often_idle, on_5];
    let checked = fair(machine_of(2, 4, 1), Start::Together, tasks);
    let moves = moves(&checked);
    let [(at, _, _, reach)] = moves[..] else {
        panic!("{moves:?}");
    };
    assert_eq!(reach, MigrationReach::Llc);
    // A tick, and the four CPUs of the cache look every 4 ms.
    assert!(at < 10_000_000, "{at}");
}

/// The neighbours of the CPU where it waits have room, but it must not run there: the other cache, which has no more
/// room, takes it.
#[test]
fn a_task_that_may_not_run_nearby_goes_to_another_cache() {
    let tasks = vec![
        widens("0,4"),
        on_cpus(hog("on 0", 300), "0"),
        on_cpus(hog("on 5", 300), "5"),
    ];
    let checked = fair(machine_of(2, 4, 1), Start::Together, tasks);
    let moves = moves(&checked);
    let [(at, 0, 4, MigrationReach::Node)] = moves[..] else {
        panic!("{moves:?}");
    };
    // The four CPUs of a cache look every 4 ms, the eight of the node every 8 ms, and half as often after they found nothing.
    assert!(at < 50_000_000, "{at}");
}

/// The CPU that a task woke up on for the last time.
fn last_wakeup(checked: &Checked, woken: u32) -> u32 {
    let events = checked.events.iter().rev();
    let mut wakeups = events.filter_map(|&(_, _, event)| match event {
        Event::Wakeup { task, to, .. } if task.0 == woken => Some(to.0),
        _ => None,
    });
    wakeups.next().expect("it wakes up")
}

/// Where a task is woken that slept on CPU 0 and may run on all four CPUs of the cache, 200 ms after hogs began on the first
/// ones.
fn wakes_beside_hogs(nr_hogs: u32) -> u32 {
    let sleeper = task("sleeper", |n, _| {
        Some(match n {
            0 => Action::Sleep(Duration::from_ms(200)),
            1 => Action::SetAffinity(CpuSet::all(4)),
            2 => Action::Sleep(Duration::from_ms(1)),
            3 => Action::Compute(Duration::from_us(10)),
            _ => return None,
        })
    });
    let bound = (0..nr_hogs).map(|cpu| on_cpus(hog("bound", 400), &cpu.to_string()));
    let tasks = bound.chain([on_cpus(sleeper, "0")]).collect();
    let checked = fair(machine_of(1, 4, 1), Start::Together, tasks);
    last_wakeup(&checked, nr_hogs)
}

/// `SIS_UTIL`: with one hog, a quarter of the cache is busy (256² × 1.3689 / 1,024 = 87 of 1,024), and a wakeup looks at three
/// CPUs; with three hogs at none, and the task stays where it slept, though CPU 3 is idle.
#[test]
fn a_wakeup_in_a_busy_cache_looks_for_no_idle_cpu() {
    assert_eq!(wakes_beside_hogs(1), 1);
    assert_eq!(wakes_beside_hogs(3), 0);
}

/// Where a task of little load wakes up that slept on CPU 0 and may run on the CPUs 2 and 3 of the other cache, too. `waker`
/// runs on CPU 2 and writes to the pipe; `hogs` are bound to these CPUs.
fn wakes_from_the_other_cache(waker: TaskSpec, hogs: &[u32]) -> u32 {
    let woken = task("woken", |n, _| {
        Some(match n {
            // Until its load is small.
            0..60 if n % 2 == 0 => Action::Compute(Duration::from_us(10)),
            0..60 => Action::Sleep(Duration::from_ms(10)),
            60 => Action::SetAffinity("0,2,3".parse().unwrap()),
            61 => Action::Read {
                from: PIPE,
                limit: 1,
            },
            62 => Action::Compute(Duration::from_us(10)),
            _ => return None,
        })
    });
    let mut tasks = vec![on_cpus(woken, "0"), on_cpus(waker, "2")];
    let hog_on = |cpu: &u32| on_cpus(hog("bound", 2_000), &cpu.to_string());
    tasks.extend(hogs.iter().map(hog_on));
    let workload = workload(vec![ObjectSpec::Pipe { capacity: 64 }], tasks);
    let mut scenario = Scenario::new(machine_of(2, 2, 1), workload, 1);
    scenario.normal_class = NormalClass::Fair;
    // Else the waker's CPU is taken because the waker is about to sleep.
    scenario.machine.sync_wakeups = false;
    last_wakeup(&run_checked(scenario, Stub::minimal()), 0)
}

const PIPE: ObjectId = ObjectId(0);

/// `wake_affine_weight()`: a task whose cache is busy goes to the waker's, which has hardly any load. Where two
/// hogs are beside the waker, it stays.
#[test]
fn a_wakeup_goes_where_less_load_is() {
    for (hogs, expected) in [(&[0, 1][..], 3), (&[0, 1, 2, 2], 0)] {
        let waker = task("waker", |n, _| {
            Some(match n {
                1_400 => Action::Write { to: PIPE, bytes: 1 },
                n if n > 1_400 => return None,
                n if n % 2 == 0 => Action::Compute(Duration::from_us(10)),
                _ => Action::Sleep(Duration::from_us(990)),
            })
        });
        assert_eq!(
            wakes_from_the_other_cache(waker, hogs),
            expected,
            "{hogs:?}"
        );
    }
}

/// The CPU that looks for its group must not run the task; another idle one of the group may (`LBF_DST_PINNED`).
#[test]
fn a_task_that_may_run_on_another_cpu_of_the_group_goes_there() {
    let tasks = vec![widens("0,5"), on_cpus(hog("on 0", 300), "0")];
    let checked = fair(machine_of(2, 4, 1), Start::Together, tasks);
    let moved = moves(&checked);
    let [(at, 0, 5, MigrationReach::Node)] = moved[..] else {
        panic!("{moved:?}");
    };
    assert!(at < 50_000_000, "{at}");
}

/// A cache that is overloaded with tasks that are bound still takes one that has no place elsewhere: its idle CPU has room.
#[test]
fn an_overloaded_cache_takes_what_is_bound_to_its_idle_cpu() {
    let bound = ["0", "5", "5", "6", "6", "7"];
    let hogs = bound.map(|cpu| on_cpus(hog("bound", 300), cpu));
    let tasks = [widens("0,4")].into_iter().chain(hogs).collect();
    let checked = fair(machine_of(2, 4, 1), Start::Together, tasks);
    let moved = moves(&checked);
    let [(at, 0, 4, MigrationReach::Node)] = moved[..] else {
        panic!("{moved:?}");
    };
    assert!(at < 60_000_000, "{at}");
}

/// The weights of 64 tasks of nice -20 are 5.7 million.
#[test]
fn heavy_loads_are_averaged_without_overflow() {
    let tasks = (0..64).map(|_| {
        let mut spec = hog("heavy", 2);
        spec.nice = -20;
        spec
    });
    let checked = fair(machine(1), Start::Together, tasks.collect());
    assert!(makespan_ms(&checked) >= 128);
}

/// Children that end one after another leave no load behind: a task whose CPU has a hog goes to the CPU where they were.
#[test]
fn tasks_that_ended_are_no_load() {
    let parent = task("parent", |n, _| {
        Some(match n {
            0..400 if n % 2 == 0 => Action::Fork(Box::new(on_cpus(hog("child", 1), "2"))),
            0..400 => Action::Sleep(Duration::from_ms(2)),
            400 => Action::Write { to: PIPE, bytes: 1 },
            _ => return None,
        })
    });
    assert_eq!(wakes_from_the_other_cache(parent, &[0, 1]), 3);
}

/// `sched_exec()`: a task that begins a new program leaves a CPU where others wait for an idle one; alone on its CPU it
/// stays, and so does a task of a policy.
#[test]
fn a_new_program_begins_where_there_is_least_to_do() {
    let begins = |action: fn() -> Action| {
        let spec = task("begins", move |n, _| {
            Some(match n {
                0 => Action::Compute(Duration::from_ms(5)),
                1 => Action::SetAffinity(CpuSet::all(2)),
                2 => action(),
                3 => Action::Compute(Duration::from_us(500)),
                _ => return None,
            })
        });
        on_cpus(spec, "0")
    };
    let hog = || on_cpus(hog("hog", 50), "0");
    let nr_moves = |checked: &Checked| moves(checked).iter().filter(|to| to.1 == 1).count();
    let exec = || Action::Exec;
    let beside = fair(machine(2), Start::Together, vec![hog(), begins(exec)]);
    let to: Vec<_> = moves(&beside)
        .iter()
        .map(|&(_, task, to, _)| (task, to))
        .collect();
    assert_eq!(to, [(1, 1)]);
    // Also where the kernel is not preempted it has moved before its call has gone by.
    let mut slow = machine(2);
    slow.preemptible_kernel = false;
    slow.paths.exec_ns = Some(3_000_000);
    let beside = fair(slow, Start::Together, vec![hog(), begins(exec)]);
    let moved = moves(&beside);
    let mut ends = beside
        .events
        .iter()
        .filter_map(|&(at, _, event)| match event {
            Event::TaskExit { task } if task.0 == 1 => Some(at),
            _ => None,
        });
    assert_eq!(moved.len(), 1);
    let stays = ends.next_back().unwrap() - moved[0].0;
    assert!((3_500_000..4_000_000).contains(&stays), "{stays}");
    let call = fair(
        machine(2),
        Start::Together,
        vec![hog(), begins(|| Action::Syscall)],
    );
    assert_eq!(moves(&call).len(), 0);
    let alone = fair(machine(2), Start::Together, vec![begins(exec)]);
    assert_eq!(moves(&alone).len(), 0);
    let workload = workload(Vec::new(), vec![hog(), begins(exec)]);
    let policy = run_checked(scenario_of(machine(2), workload), Stub::fifo(&[]));
    assert_eq!(nr_moves(&policy), 0);
}
