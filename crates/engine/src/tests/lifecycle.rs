//! The order of a task's ops, and what runs without any.

use schedlab_trace::{Duration, Instant};

use crate::policy::OpCall;
use crate::policy::OpKind::{self, *};
use crate::testing::*;
use crate::{ExitKind, WorkloadFailure, run};

#[test]
fn without_ops_tasks_run_by_the_global_queue() {
    let end = run_checked(
        scenario(2, (0..5).map(|_| periodic("p", 50, 200, 10)).collect()),
        Stub::minimal(),
    )
    .end;
    assert_eq!(end.exit.kind, ExitKind::Done, "{:?}", end.exit);
    assert_eq!(end.failure, None);
    assert!(end.makespan.is_some());
    assert!(end.switches >= 50, "{}", end.switches);
}

#[test]
fn a_task_that_sleeps_once_has_this_life() {
    let checked = run_checked(
        scenario(1, vec![periodic("p", 50, 200, 1)]),
        Stub::fifo(ALL_TASK_OPS),
    );
    let expected: &[OpKind] = &[
        InitTask, Enable, SetWeight, SetCpumask,
        // On one CPU there is nothing to select.
        Runnable, Enqueue, Dequeue, Running, Stopping, Quiescent, Runnable, Enqueue, Dequeue,
        Running, Stopping, Quiescent, Disable, ExitTask,
    ];
    assert_eq!(checked.life(0), expected);
}

/// `ops.exit_task()` of the last task lies after the last event of the executor's clock.
#[test]
fn the_run_lasts_until_its_last_task_is_gone() {
    let ends = |exit_ns: u64| {
        let policy = Stub::new(&[ExitTask], move |a, op| async move {
            if let OpCall::ExitTask { .. } = op {
                a.spend(exit_ns);
            }
            0
        });
        let checked = run_checked(scenario(2, vec![hog("p", 1)]), policy);
        let idle = checked.events.iter().find_map(|&(at, cpu, event)| {
            (cpu == 1 && event == schedlab_trace::Event::End).then_some(at)
        });
        let end = checked.end;
        [end.makespan.unwrap().ns(), end.end.ns(), idle.unwrap()]
    };
    let (short, long) = (ends(0), ends(1_000_000));
    // The task computes a millisecond, and leaving takes another one.
    assert!(short[0] >= 1_000_000);
    assert_eq!(long, short.map(|ns| ns + 1_000_000));
    // CPU 1 idles to the end.
    assert_eq!(short, [short[0]; 3]);
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let once = || {
        let tasks = (0..20)
            .map(|n| periodic("p", 30 + n, 100 + 7 * n, 20))
            .collect();
        run_checked(scenario(4, tasks), Stub::fifo(&[SelectCpu])).events
    };
    assert_eq!(once(), once());
}

#[test]
fn a_run_without_a_recorder_is_the_same_run() {
    let tasks = || {
        (0..20)
            .map(|n| periodic("p", 30 + n, 100 + 7 * n, 20))
            .collect()
    };
    let recorded = run_checked(scenario(4, tasks()), Stub::fifo(&[])).end;
    let silent = run(scenario(4, tasks()), Stub::fifo(&[]), ());
    assert_eq!(recorded.end, silent.end);
    assert_eq!(recorded.switches, silent.switches);
}

#[test]
fn unloading_takes_tasks_off_their_queues_first() {
    let mut scenario = scenario(1, vec![hog("p", 100), hog("q", 100)]);
    scenario.workload.duration = Some(Duration::from_ms(3));
    let checked = run_checked(scenario, Stub::fifo(ALL_TASK_OPS));
    let running: &[OpKind] = &[
        InitTask, Enable, SetWeight, SetCpumask, Runnable, Enqueue, Dequeue, Running, Stopping,
        Quiescent, Disable, ExitTask,
    ];
    assert_eq!(checked.life(0), running);
    let stopped = checked.ops(Stopping);
    assert!(
        matches!(
            stopped[..],
            [(
                _,
                OpCall::Stopping {
                    runnable: false,
                    ..
                }
            )]
        ),
        "{stopped:?}"
    );
    let waiting: &[OpKind] = &[
        InitTask, Enable, SetWeight, SetCpumask, Runnable, Enqueue, Dequeue, Quiescent, Disable,
        ExitTask,
    ];
    assert_eq!(checked.life(1), waiting);
}

#[test]
fn a_refused_fork_ends_the_run_and_is_told() {
    let policy = Stub::new(&[InitTask, ExitTask], |_, op| async move {
        match op {
            OpCall::InitTask { fork: true, .. } => -12,
            _ => 0,
        }
    });
    let mut late = hog("late", 1);
    late.start = Instant::from_ns(1_000_000);
    let checked = run_checked(scenario(1, vec![hog("p", 2), late]), policy);
    let Some(WorkloadFailure::ForkRefused { task, errno: -12 }) = &checked.end.failure else {
        panic!("{:?}", checked.end.failure);
    };
    assert!(task.starts_with("late"), "{task}");
    assert_eq!(checked.life(1), [InitTask]);
    assert_eq!(checked.end.makespan, None);
}
