//! Runs that would never end by themselves: deadlocks of locks, ops that do not return, endless workloads.

use schedlab_trace::{Duration, Event, LockClass};
use schedlab_workload::Action;

use crate::contract::consts::dsq_id;
use crate::contract::policy::OpKind::*;
use crate::contract::policy::{OpCall, PolicyLock, Request};
use crate::testing::*;
use crate::{ExitKind, WorkloadFailure, run};

fn lock(n: u32) -> Request {
    Request::Lock {
        lock: PolicyLock(n),
        address: schedlab_machine::address::ARENA + u64::from(n) * 64,
        class: LockClass::Other,
    }
}

/// Every CPU takes a lock of its own and then the next CPU's.
fn circle(nr_cpus: u32) -> Stub {
    Stub::new(&[Tick], move |a, op| async move {
        if let OpCall::Tick { .. } = op {
            let (first, second) = (a.cpu(), (a.cpu() + 1) % nr_cpus);
            a.ask(lock(first)).await;
            a.spend(1_000_000);
            a.ask(Request::Sync).await;
            a.ask(lock(second)).await;
            for lock in [second, first].map(PolicyLock) {
                a.ask(Request::Unlock { lock }).await;
            }
        }
        0
    })
}

#[test]
fn locks_taken_in_a_circle_end_the_run() {
    let end = run(
        scenario(2, vec![hog("p", 100), hog("q", 100)]),
        circle(2),
        (),
    );
    assert_eq!(end.exit.kind, ExitKind::Fault);
    assert_eq!(
        end.exit.message,
        "deadlock of locks: CPU 1 waits for policy lock 0, held by CPU 0; \
         CPU 0 waits for policy lock 1, held by CPU 1"
    );
    let tasks = (0..5).map(|_| hog("p", 100)).collect();
    let end = run(scenario(5, tasks), circle(5), ());
    assert_eq!(end.exit.kind, ExitKind::Fault);
    assert_eq!(end.exit.message.matches("waits for").count(), 5);
}

#[test]
fn an_op_that_does_not_return_ends_the_run() {
    let endless = |spend_ns| {
        Stub::new(&[Tick], move |a, op| async move {
            if let OpCall::Tick { .. } = op {
                loop {
                    a.spend(spend_ns);
                    a.nr_queued(dsq_id::LOCAL).await;
                }
            }
            0
        })
        .timeout_ms(100)
    };
    let tasks = || vec![hog("p", 100), hog("q", 100)];
    let end = run(scenario(2, tasks()), endless(1_000), ());
    assert_eq!(end.exit.kind, ExitKind::Fault);
    let message = "ops.tick has not returned after 100 ms, the watchdog's bound (CPU 0)";
    assert_eq!(end.exit.message, message);
    // Where nothing that it does takes time.
    let end = run(scenario(2, tasks()), endless(0).free_kfuncs(), ());
    assert_eq!(end.exit.kind, ExitKind::Fault);
    let message = "ops.tick called kfuncs, took locks or accessed shared words (atomics, READ_ONCE()) \
                   more than 8388608 times, more than any loop may go round (CPU 0)";
    assert_eq!(end.exit.message, message);
}

#[test]
fn the_bound_on_calls_is_that_of_one_op() {
    let policy = Stub::new(&[Tick], |a, op| async move {
        if let OpCall::Tick { .. } = op {
            for _ in 0..crate::contract::consts::BPF_MAX_LOOPS / 3 {
                a.nr_queued(dsq_id::LOCAL).await;
            }
        }
        0
    })
    .free_kfuncs();
    let mut scenario = scenario(1, vec![hog("p", 100)]);
    scenario.machine.hz = 100;
    scenario.workload.duration = Some(Duration::from_ms(45));
    let end = run(scenario, policy, ());
    assert_eq!(end.exit.kind, ExitKind::Done, "{}", end.exit.message);
}

#[test]
fn an_op_that_outlives_the_run_gets_a_short_grace() {
    let sleepy = || {
        Stub::new(&[Tick], |a, op| async move {
            if let OpCall::Tick { .. } = op {
                for _ in 0..10_000 {
                    a.spend(1_000_000);
                    a.ask(Request::Sync).await;
                }
            }
            0
        })
    };
    let mut scenario = scenario(1, vec![hog("p", 100)]);
    scenario.workload.duration = Some(Duration::from_ms(50));
    let end = run(scenario, sleepy(), ());
    assert_eq!(end.exit.kind, ExitKind::Fault);
    let message = "ops.tick has not returned 1000 ms after the run's end (CPU 0)";
    assert_eq!(end.exit.message, message);
}

#[test]
fn nothing_counts_after_the_end_while_an_op_returns() {
    let policy = Stub::new(&[Tick], |a, op| async move {
        if let OpCall::Tick { .. } = op
            && a.cpu() == 1
        {
            for _ in 0..1_000 {
                a.spend(100_000);
                a.ask(Request::Sync).await;
            }
        }
        0
    });
    let worker = task("w", |n, _| {
        Some(match n % 2 {
            0 => Action::Compute(Duration::from_us(100)),
            _ => Action::Work(1),
        })
    });
    let mut scenario = scenario(2, vec![worker, hog("q", 5_000)]);
    scenario.workload.duration = Some(Duration::from_ms(10));
    let Checked { end, events } = run_checked(scenario, policy);
    assert_eq!(end.exit.kind, ExitKind::Done, "{:?}", end.exit);
    assert_eq!(end.end.ns(), 10_000_000);
    assert!((90..=100).contains(&end.work), "{}", end.work);
    let worked: u64 = events
        .iter()
        .map(|(_, _, event)| match event {
            Event::Work { n, .. } => u64::from(*n),
            _ => 0,
        })
        .sum();
    assert_eq!(end.work, worked);
    assert!(end.events < 1_000, "{}", end.events);
}

#[test]
fn a_workload_without_an_end_is_given_up() {
    let mut endless = scenario(1, vec![task("y", |_, _| Some(Action::Yield))]);
    endless.workload.duration = None;
    endless.limits.simulated = Duration::from_ms(20);
    let end = run(endless, Stub::minimal(), ());
    let failure = WorkloadFailure::Endless {
        simulated: Duration::from_ms(20),
        alive: 1,
    };
    assert_eq!(end.failure, Some(failure));
    assert_eq!(end.end.ns(), 20_000_000);
    // A duration is the workload's own bound.
    let mut bounded = scenario(1, vec![task("y", |_, _| Some(Action::Yield))]);
    bounded.workload.duration = Some(Duration::from_ms(30));
    bounded.limits.simulated = Duration::from_ms(20);
    let end = run(bounded, Stub::minimal(), ());
    assert_eq!((end.failure, end.end.ns()), (None, 30_000_000));
}

#[test]
fn a_storm_of_forks_is_given_up() {
    fn forker() -> schedlab_workload::TaskSpec {
        task("f", |n, _| {
            (n < 3).then(|| Action::Fork(Box::new(forker())))
        })
    }
    let mut storm = scenario(2, vec![forker()]);
    storm.limits.tasks = 1_000;
    let end = run(storm, Stub::minimal(), ());
    let Some(WorkloadFailure::TooManyTasks { limit: 1_000, .. }) = end.failure else {
        panic!("{:?}", end.failure);
    };
    assert_eq!(end.tasks, 1_000);
}
