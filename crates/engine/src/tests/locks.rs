//! The lock model.

use schedlab_machine::LockKind;
use schedlab_trace::{Event, LockClass};

use crate::policy::OpKind::*;
use crate::policy::{OpCall, PolicyLock, Request};
use crate::testing::*;

/// Every CPU's dispatch takes one lock and holds it for 10 µs.
fn contending(kind: LockKind, handover_per_spinner_ns: u64) -> Checked {
    let policy = Stub::new(&[Dispatch], |a, op| async move {
        if let OpCall::Dispatch { .. } = op {
            let lock = PolicyLock(0);
            a.ask(Request::Lock {
                lock,
                address: schedlab_machine::address::ARENA,
                class: LockClass::RunQueue,
            })
            .await;
            a.spend(10_000);
            a.ask(Request::Unlock { lock }).await;
        }
        0
    });
    let tasks = (0..8).map(|_| periodic("p", 50, 100, 20)).collect();
    let mut scenario = scenario(8, tasks);
    scenario.machine.locks.kind = kind;
    scenario.machine.locks.handover_ns = 100;
    scenario.machine.locks.handover_per_spinner_ns = handover_per_spinner_ns;
    run_checked(scenario, policy)
}

/// Waits of the contended acquisitions of the policy's lock.
fn waits(checked: &Checked) -> Vec<u64> {
    checked
        .events
        .iter()
        .filter_map(|(_, _, event)| match event {
            Event::LockAcquired {
                waited,
                contended: true,
                ..
            } => Some(waited.ns()),
            _ => None,
        })
        .collect()
}

#[test]
fn queued_locks_wait_for_who_came_before_and_no_longer() {
    let waits = waits(&contending(LockKind::Queued, 0));
    assert!(waits.len() > 50, "{}", waits.len());
    // Seven others with 10 µs each, and what taking and giving costs.
    assert!(
        waits.iter().all(|&wait| wait < 7 * 11_000),
        "{:?}",
        waits.iter().max()
    );
}

#[test]
fn unfair_locks_can_wait_longer_and_depend_on_the_seed_only() {
    let once = waits(&contending(LockKind::Tas, 50));
    assert_eq!(once, waits(&contending(LockKind::Tas, 50)));
    assert_ne!(once, waits(&contending(LockKind::Queued, 0)));
}

#[test]
fn hand_over_grows_with_the_spinners() {
    let sum = |per_spinner| {
        waits(&contending(LockKind::Tas, per_spinner))
            .iter()
            .sum::<u64>()
    };
    assert!(sum(2_000) > sum(0));
}

#[test]
fn try_lock_fails_while_the_lock_is_held() {
    let policy = Stub::new(&[Dispatch], |a, op| async move {
        if let OpCall::Dispatch { .. } = op {
            let lock = PolicyLock(0);
            let request = Request::TryLock {
                lock,
                address: schedlab_machine::address::ARENA,
                class: LockClass::RunQueue,
            };
            if a.ask(request).await == crate::policy::Reply::Bool(true) {
                a.spend(10_000);
                a.ask(Request::Unlock { lock }).await;
            }
        }
        0
    });
    let tasks = (0..8).map(|_| periodic("p", 50, 100, 20)).collect();
    let checked = run_checked(scenario(8, tasks), policy);
    let count = |wanted: fn(&Event) -> bool| {
        checked
            .events
            .iter()
            .filter(|(_, _, event)| wanted(event))
            .count()
    };
    assert!(count(|event| matches!(event, Event::LockTryFailed { .. })) > 20);
    assert!(count(|event| matches!(event, Event::LockAcquired { trylock: true, .. })) > 20);
}

#[test]
fn without_run_queue_locks_no_task_is_lost() {
    for nr_cpus in [1, 2, 5, 16] {
        let tasks = (0..40).map(|n| periodic("p", 20 + n, 60 + n, 30)).collect();
        let mut scenario = scenario(nr_cpus, tasks);
        scenario.machine.sched_ext.rq_locks = false;
        let end = run_checked(scenario, Stub::fifo(&[])).end;
        assert!(
            end.makespan.is_some(),
            "{nr_cpus} CPUs: {:?} {:?}",
            end.exit,
            end.failure
        );
    }
}
