//! How the first tasks of a workload come into being.

use schedlab_trace::{Duration, Event, Instant};
use schedlab_workload::{Action, ObjectId, ObjectSpec, SchedClass, Start, TaskSpec};

use crate::contract::policy::OpKind::*;
use crate::contract::policy::{OpCall, OpKind};
use crate::testing::*;
use crate::{Scenario, WorkloadFailure, run};

/// A main thread creates `tasks`.
fn forked(nr_cpus: usize, tasks: Vec<TaskSpec>) -> Scenario {
    let mut scenario = scenario(nr_cpus, tasks);
    scenario.workload.start = Start::Fork;
    scenario
}

/// When, where and by whom each task was created.
fn births(checked: &Checked) -> Vec<(u64, u32, u32, Option<u32>)> {
    let births = checked
        .events
        .iter()
        .filter_map(|&(at, cpu, event)| match event {
            Event::TaskNew { task, parent } => Some((at, cpu, task.0, parent.map(|p| p.0))),
            _ => None,
        });
    births.collect()
}

#[test]
fn the_main_thread_creates_tasks_one_after_another_on_its_cpu() {
    let tasks = || vec![hog("a", 5), hog("b", 5), hog("c", 5)];
    let policy = Stub::fifo(&[InitTask, SelectCpu]);
    let checked = run_checked(forked(4, tasks()), policy);
    let births = births(&checked);
    let who: Vec<_> = births.iter().map(|birth| (birth.2, birth.3)).collect();
    assert_eq!(who, [(0, None), (1, Some(0)), (2, Some(0)), (3, Some(0))]);
    // It pays the fork path for each.
    let fork_ns = machine(4).paths.fork_ns;
    for pair in births.windows(2) {
        assert_eq!(pair[1].1, births[0].1, "on its CPU");
        assert!(pair[1].0 - pair[0].0 >= fork_ns, "{pair:?}");
    }
    // The policy finds it when it is loaded; the others are forked.
    let forks = checked.ops(InitTask).into_iter().map(|(_, op)| match op {
        OpCall::InitTask { task, fork } => (task.0, fork),
        _ => unreachable!(),
    });
    let expected = [(0, false), (1, true), (2, true), (3, true)];
    assert_eq!(forks.collect::<Vec<_>>(), expected);
    // It is no task of the workload.
    assert_eq!(
        (checked.end.tasks, &checked.end.unfinished[..]),
        (3, &[][..])
    );
    let exits = checked
        .events
        .iter()
        .filter_map(|&(at, _, event)| match event {
            Event::TaskExit { task } => Some((task.0, at)),
            _ => None,
        });
    let exits: Vec<_> = exits.collect();
    assert!(exits.iter().all(|&(task, _)| task > 0), "{exits:?}");
    let last = exits.iter().map(|&(_, at)| at).max().unwrap();
    assert_eq!(checked.end.makespan, Some(Instant::from_ns(last)));

    let together = run_checked(scenario(4, tasks()), Stub::fifo(&[]));
    let births = self::births(&together);
    let expected: Vec<_> = (0..3).map(|task| (0, 0, task, None)).collect();
    assert_eq!(births, expected);
    assert_eq!(together.end.tasks, 3);
}

#[test]
fn a_task_that_starts_later_is_created_then() {
    let mut late = hog("late", 1);
    late.start = Instant::from_ns(10_000_000);
    let checked = run_checked(forked(2, vec![late, hog("a", 1)]), Stub::fifo(&[]));
    let births = births(&checked);
    assert!(births[1].0 < 1_000_000, "{births:?}");
    assert!(
        (10_000_000..11_000_000).contains(&births[2].0),
        "{births:?}"
    );
    assert_eq!((births[2].2, births[2].3), (2, Some(0)));
    assert_eq!(checked.end.tasks, 2);
}

#[test]
fn tasks_that_were_never_created_are_unfinished() {
    let fork_ns = machine(2).paths.fork_ns;
    let tasks = (0..10).map(|_| hog("hog", 1_000)).collect();
    let mut scenario = forked(2, tasks);
    scenario.workload.duration = Some(Duration::from_ns(3 * fork_ns));
    let checked = run_checked(scenario, Stub::fifo(&[]));
    assert_eq!(checked.end.tasks, 2);
    let ids: Vec<u32> = checked.end.unfinished.iter().map(|task| task.0).collect();
    assert_eq!(ids, (1..=10).collect::<Vec<_>>());
    assert_eq!(checked.end.to_come, 8);
    assert_eq!(checked.end.makespan, None);
}

#[test]
fn no_task_keeps_the_main_thread_from_creating_the_others() {
    let mut tasks: Vec<_> = (0..4).map(|_| hog("normal", 1)).collect();
    tasks[0].class = SchedClass::Fifo(50);
    tasks[1].class = SchedClass::RoundRobin(99);
    tasks[2].nice = -20;
    let checked = run_checked(forked(1, tasks), Stub::fifo(&[]));
    let last_birth = births(&checked).last().copied().unwrap();
    assert_eq!(last_birth.2, 4);
    let ran = checked
        .events
        .iter()
        .find_map(|&(at, _, event)| match event {
            Event::Switch {
                next: Some(next), ..
            } if next.0 > 0 => Some(at),
            _ => None,
        });
    assert!(ran.unwrap() > last_birth.0);
}

/// It has forks for three slices, and each hog comes before it once: it waits for that once and not thrice.
#[test]
fn a_hog_keeps_the_main_thread_from_its_cpu_once() {
    // The policy's 5 ms, up to the next tick.
    let slice_ns = 8_000_000;
    let nr = 3 * slice_ns / machine(1).paths.fork_ns;
    let tasks = (0..nr).map(|_| hog("hog", 1_000)).collect();
    let mut scenario = forked(1, tasks);
    scenario.workload.duration = Some(Duration::from_ns(nr / 3 * slice_ns * 3 / 2));
    let checked = run_checked(scenario, Stub::fifo(&[]));
    assert_eq!(checked.end.to_come, 0);
    let births = births(&checked);
    let took = births[nr as usize].0 - births[1].0;
    assert!(took > nr * slice_ns / 4, "it waited: {took} ns");
}

#[test]
fn a_deadlock_names_the_tasks_alone() {
    let waits = |comm: &str| task(comm, |_, _| Some(Action::Acquire(ObjectId(0))));
    let mut scenario = forked(2, vec![waits("a"), waits("b")]);
    scenario.workload.objects = vec![ObjectSpec::Semaphore { initial: 0 }];
    scenario.workload.duration = None;
    let end = run(scenario, Stub::fifo(&[]), ());
    let Some(WorkloadFailure::Deadlock { blocked, .. }) = end.failure else {
        panic!("{:?}", end.failure);
    };
    assert_eq!(blocked, ["a[1001] (Acquire)", "b[1002] (Acquire)"]);
}

#[test]
fn the_limit_of_tasks_is_for_those_that_tasks_fork() {
    let forks = |times: u32| {
        task("forks", move |n, _| {
            (n < times).then(|| Action::Fork(Box::new(hog("child", 1))))
        })
    };
    let end = |times| {
        let mut scenario = forked(2, vec![hog("a", 1), hog("b", 1), forks(times)]);
        scenario.limits.tasks = 4;
        run(scenario, Stub::fifo(&[]), ())
    };
    let fits = end(1);
    assert_eq!((fits.failure, fits.tasks), (None, 4));
    assert!(matches!(
        end(2).failure,
        Some(WorkloadFailure::TooManyTasks { limit: 4, .. })
    ));
}

/// A policy sees each task placed before the next one chooses.
#[test]
fn each_choice_sees_those_before_it() {
    let tasks = (0..4).map(|_| hog("hog", 20)).collect();
    let checked = run_checked(forked(4, tasks), Stub::fifo(&[SelectCpu]));
    let chosen: Vec<(u64, OpKind)> = checked
        .ops(SelectCpu)
        .iter()
        .map(|(at, op)| (*at, op.kind()))
        .collect();
    assert!(
        chosen.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "{chosen:?}"
    );
}
