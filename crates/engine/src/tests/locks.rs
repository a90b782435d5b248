//! The lock model.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use schedlab_machine::LockKind;
use schedlab_trace::{Event, LockClass, LockId};

use crate::contract::policy::OpKind::*;
use crate::contract::policy::{OpCall, PolicyLock, Reply, Request};
use crate::testing::*;

/// Every CPU's dispatch takes one lock and holds it for 10 µs.
fn contending(kind: LockKind, handover_per_spinner_ns: u64, seed: u64) -> Checked {
    let policy = Stub::new(&[Dispatch], |a, op| async move {
        if let OpCall::Dispatch { .. } = op {
            let lock = PolicyLock(0);
            a.ask(crate::testing::take(lock)).await;
            a.spend(10_000);
            a.ask(Request::Unlock { lock }).await;
        }
        0
    });
    let tasks = (0..8).map(|_| periodic("p", 50, 100, 20)).collect();
    let mut scenario = scenario(8, tasks);
    scenario.seed = seed;
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

/// A lock that went to a CPU that spun for it.
struct HandOver {
    /// Spinners that were there when the one that got it came, and how many of them still spin.
    before: u64,
    overtaken: usize,
    waited_ns: u64,
    /// Spinners that did not get it, and the time from the release; unknown where the holder had released
    /// it ahead of them.
    others_and_ns: Option<(u64, u64)>,
}

fn hand_overs(checked: &Checked) -> Vec<HandOver> {
    let mut spinners: BTreeMap<LockId, Vec<(u32, u64)>> = BTreeMap::new();
    let mut released: BTreeMap<LockId, (u64, u64)> = BTreeMap::new();
    let mut found = Vec::new();
    for &(at, cpu, event) in &checked.events {
        match event {
            Event::LockContended { lock, .. } => {
                let spinners = spinners.entry(lock).or_default();
                spinners.push((cpu, spinners.len() as u64));
            }
            Event::LockReleased { lock, .. } => match spinners.get(&lock).map_or(0, Vec::len) {
                0 => {}
                nr => {
                    released.insert(lock, (at, nr as u64 - 1));
                }
            },
            Event::LockAcquired {
                lock,
                waited,
                contended: true,
                ..
            } => {
                let spinners = spinners.get_mut(&lock).expect("who spun");
                let overtaken = spinners
                    .iter()
                    .position(|&(spinner, _)| spinner == cpu)
                    .unwrap();
                let (_, before) = spinners.remove(overtaken);
                let others_and_ns = released
                    .remove(&lock)
                    .map(|(since, others)| (others, at - since));
                found.push(HandOver {
                    before,
                    overtaken,
                    waited_ns: waited.ns(),
                    others_and_ns,
                });
            }
            _ => {}
        }
    }
    found
}

/// Whether `over` waited longer than for the holder and the spinners before it, with 10 µs each and what
/// taking and giving costs.
fn waits_for_later_ones(over: &HandOver) -> bool {
    over.waited_ns > (over.before + 1) * 11_000
}

#[test]
fn queued_locks_wait_for_who_came_before_and_no_longer() {
    let hand_overs = hand_overs(&contending(LockKind::Queued, 0, 1));
    let several = hand_overs.iter().filter(|over| over.before > 1).count();
    assert!(several > 50, "{several} of {}", hand_overs.len());
    assert!(hand_overs.iter().all(|over| over.overtaken == 0));
    assert!(!hand_overs.iter().any(waits_for_later_ones));
}

#[test]
fn unfair_locks_can_wait_longer_and_depend_on_the_seed_only() {
    let once = waits(&contending(LockKind::Tas, 50, 1));
    assert_eq!(once, waits(&contending(LockKind::Tas, 50, 1)));
    assert_ne!(once, waits(&contending(LockKind::Tas, 50, 2)));
    // The hand-over takes as long as a queued lock's: they differ in which CPU gets it.
    let hand_overs = hand_overs(&contending(LockKind::Tas, 0, 1));
    let overtakes = hand_overs.iter().filter(|over| over.overtaken > 0).count();
    assert!(overtakes > 20, "{overtakes} of {}", hand_overs.len());
    assert!(hand_overs.iter().any(waits_for_later_ones));
}

#[test]
fn hand_over_grows_with_the_spinners() {
    let mut seen = BTreeSet::new();
    for over in hand_overs(&contending(LockKind::Tas, 2_000, 1)) {
        // A lone spinner may still be on its first look at the line.
        if let Some((others @ 1.., ns)) = over.others_and_ns {
            assert_eq!(ns, 100 + 2_000 * others, "{others} others");
            seen.insert(others);
        }
    }
    assert!(seen.len() >= 3, "{seen:?}");
}

/// Two tasks exit at once: one waits until the other has let go of the big kernel lock.
#[test]
fn exits_follow_each_other_under_a_big_kernel_lock() {
    let end = |held_ns| {
        let tasks = (0..2).map(|_| periodic("p", 50, 0, 1)).collect();
        let mut scenario = scenario(2, tasks);
        // Nothing else that exits share.
        scenario.machine.shared.clear();
        scenario.machine.locks.big_kernel_lock_ns = held_ns;
        scenario.machine.locks.handover_ns = 100;
        let checked = run_checked(scenario, Stub::fifo(&[]));
        (checked.end.makespan.unwrap().ns(), waits(&checked))
    };
    let (without, no_waits) = end(None);
    assert_eq!(no_waits, []);
    let (with, waited) = end(Some(40_000));
    let &[waited] = &waited[..] else {
        panic!("{waited:?}");
    };
    // The tasks begin one after the other, so the second one comes a little later than the first.
    assert!((38_000..=41_000).contains(&waited), "{waited}");
    assert!(
        (78_000..=82_000).contains(&(with - without)),
        "{without} {with}"
    );
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
            if a.ask(request).await == crate::contract::policy::Reply::Bool(true) {
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
fn who_would_close_a_circle_is_told_and_the_others_go_on() {
    let refused = Rc::new(Cell::new([0; 2]));
    let kept = refused.clone();
    let lock = |number| Request::LockUnlessDeadlock {
        lock: PolicyLock(number),
        address: schedlab_machine::address::ARENA + 256 * u64::from(number),
        class: LockClass::Other,
    };
    let policy = Stub::new(&[Dispatch], move |a, op| {
        let kept = kept.clone();
        async move {
            if let OpCall::Dispatch { .. } = op {
                let (first, second) = (a.cpu() % 2, 1 - a.cpu() % 2);
                let taken = a.ask(lock(first)).await;
                assert_eq!(
                    taken,
                    Reply::Bool(true),
                    "no CPU waits for a lock that this CPU holds"
                );
                a.spend(10_000);
                let both = a.ask(lock(second)).await == Reply::Bool(true);
                let mut counts = kept.get();
                counts[usize::from(both)] += 1;
                kept.set(counts);
                if both {
                    // Again: it holds it already.
                    assert_eq!(a.ask(lock(second)).await, Reply::Bool(false));
                    let lock = PolicyLock(second);
                    a.ask(Request::Unlock { lock }).await;
                }
                let lock = PolicyLock(first);
                a.ask(Request::Unlock { lock }).await;
            }
            0
        }
    });
    let tasks = (0..4).map(|_| periodic("p", 50, 100, 20)).collect();
    let checked = run_checked(scenario(2, tasks), policy);
    checked.is_done();
    let [refused, both] = refused.get();
    assert!(refused > 5 && both > 5, "{refused} {both}");
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
