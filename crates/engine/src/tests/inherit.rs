//! Mutexes with priority inheritance.

use schedlab_trace::{Duration, Event, Instant, TaskId};
use schedlab_workload::{Action, ObjectId, ObjectSpec, Reservation, SchedClass, TaskSpec};

use crate::contract::policy::OpKind::*;
use crate::testing::*;
use crate::{NormalClass, RtMode, Scenario, WorkloadFailure};

const MS: u64 = 1_000_000;

/// A task of `class` that starts at `start_ms` and does `steps`: `(Some(mutex), ms)` takes that mutex before it computes,
/// and all mutexes are released at the end, the last one first.
fn holder(comm: &str, class: SchedClass, start_ms: u64, steps: &[(Option<u32>, u64)]) -> TaskSpec {
    let mut actions = Vec::new();
    for &(mutex, ms) in steps {
        if let Some(mutex) = mutex {
            actions.push((true, mutex));
        }
        actions.push((false, ms as u32));
    }
    let releases: Vec<u32> = steps.iter().rev().filter_map(|&(mutex, _)| mutex).collect();
    let mut spec = task(comm, move |n, _| {
        let n = n as usize;
        match actions.get(n) {
            Some(&(true, mutex)) => Some(Action::Lock(ObjectId(mutex))),
            Some(&(false, ms)) => Some(Action::Compute(Duration::from_ms(u64::from(ms)))),
            None => {
                let mutex = releases.get(n - actions.len())?;
                Some(Action::Unlock(ObjectId(*mutex)))
            }
        }
    });
    spec.class = class;
    spec.start = Instant::from_ns(start_ms * MS);
    spec
}

fn on(nr_cpus: usize, kind: ObjectSpec, tasks: Vec<TaskSpec>) -> Scenario {
    Scenario::new(machine(nr_cpus), workload(vec![kind; 4], tasks), 1)
}

/// When a task ended, in ms.
fn ended(checked: &Checked, task: u32) -> u64 {
    let end = checked
        .events
        .iter()
        .find_map(|&(at, _, event)| match event {
            Event::TaskExit { task: gone } if gone == TaskId(task) => Some(at / MS),
            _ => None,
        });
    end.unwrap_or_else(|| panic!("task {task} has not ended"))
}

use SchedClass::{Fifo, Normal};

/// The low one holds what the high one wants, and the middle one would keep it from running.
fn inversion(low: SchedClass, kind: ObjectSpec) -> Scenario {
    let tasks = vec![
        holder("low", low, 0, &[(Some(0), 20)]),
        holder("middle", Fifo(20), 8, &[(None, 500)]),
        holder("high", Fifo(50), 5, &[(Some(0), 1)]),
    ];
    on(1, kind, tasks)
}

#[test]
fn the_owner_of_a_mutex_runs_for_who_waits_for_it() {
    for low in [Fifo(1), Normal] {
        for class in [NormalClass::Ext, NormalClass::Fair] {
            let high_ended = |kind| {
                let mut scenario = inversion(low, kind);
                scenario.normal_class = class;
                ended(&run_checked(scenario, Stub::fifo(&[])), 2)
            };
            // From 5 to 21 ms, when the low one has done its 20 ms; without it also the 500 of the middle one.
            assert_eq!(high_ended(ObjectSpec::PiMutex), 21, "{low:?} {class:?}");
            assert_eq!(high_ended(ObjectSpec::Mutex), 521, "{low:?} {class:?}");
        }
    }
}

/// `rt_mutex_setprio()`: a task of the policy is not in its class while it inherits a real-time priority.
#[test]
fn a_boosted_task_leaves_the_policy_until_it_unlocks() {
    let ops = [Enable, Disable, Running, Stopping, Quiescent, Runnable];
    let checked = run_checked(inversion(Normal, ObjectSpec::PiMutex), Stub::fifo(&ops));
    // Its slice went when it left, so that it is enqueued again behind who preempts it.
    let expected = [
        Enable, Runnable, Enqueue, Running, Stopping, Quiescent, Disable, Enable, Runnable,
        Running, Stopping, Enqueue, Running, Stopping, Quiescent, Disable,
    ];
    assert_eq!(checked.life(0), expected);
    // Scheduled by the policy, a real-time task stays with it, and so does who inherits from it.
    let mut to_policy = inversion(Normal, ObjectSpec::PiMutex);
    to_policy.rt_mode = RtMode::Policy;
    let checked = run_checked(to_policy, Stub::fifo(&[Enable, Disable]));
    let life = checked.life(0);
    let changes = life.iter().filter(|op| matches!(op, Enable | Disable));
    assert_eq!(changes.count(), 2);
}

/// The wait for a mutex whose owner waits for another one, and so on.
#[test]
fn a_chain_hands_the_priority_on() {
    let chain = |kind| {
        let tasks = vec![
            holder("a", Fifo(1), 0, &[(Some(0), 20)]),
            holder("b", Fifo(2), 2, &[(Some(1), 1), (Some(0), 1)]),
            holder("c", Fifo(3), 4, &[(Some(2), 1), (Some(1), 1)]),
            holder("high", Fifo(50), 6, &[(Some(2), 1)]),
            holder("middle", Fifo(20), 7, &[(None, 300)]),
        ];
        let checked = run_checked(on(1, kind, tasks), Stub::fifo(&[]));
        [0, 1, 2, 3, 4].map(|task| ended(&checked, task))
    };
    // a ends its 20 ms among 2 of the others, b, c and the high one their last one each, then the middle one goes, and the
    // rest ends after it.
    let [a, b, c, high, middle] = chain(ObjectSpec::PiMutex);
    assert_eq!((high, middle), (25, 325));
    assert!(a >= 325 && b >= 325 && c >= 325, "{a} {b} {c}");
    assert!(chain(ObjectSpec::Mutex)[3] > 300);
}

/// The mutex goes to the most urgent waiter, and equals get it in the order in which they came.
#[test]
fn the_most_urgent_waiter_comes_next() {
    let order = |kind| {
        let tasks = vec![
            holder("owner", Fifo(90), 0, &[(Some(0), 20)]),
            holder("first", Fifo(10), 1, &[(Some(0), 1)]),
            holder("urgent", Fifo(30), 2, &[(Some(0), 1)]),
            holder("second", Fifo(10), 3, &[(Some(0), 1)]),
        ];
        let checked = run_checked(on(4, kind, tasks), Stub::fifo(&[]));
        let mut order = vec![1, 2, 3];
        order.sort_by_key(|&task| ended(&checked, task));
        order
    };
    assert_eq!(order(ObjectSpec::PiMutex), [2, 1, 3]);
    assert_eq!(order(ObjectSpec::Mutex), [1, 2, 3]);
}

/// A deadline task that waits gives its reservation to the owner, which runs in that class and is not throttled.
#[test]
fn a_deadline_task_donates() {
    let high_ended = |kind| {
        let reservation = Reservation {
            runtime: Duration::from_ms(4),
            deadline: Duration::from_ms(40),
            period: Duration::from_ms(40),
        };
        let tasks = vec![
            holder("low", Normal, 0, &[(Some(0), 20)]),
            holder("middle", Fifo(99), 8, &[(None, 300)]),
            holder(
                "high",
                SchedClass::Deadline(reservation),
                5,
                &[(Some(0), 1)],
            ),
        ];
        let checked = run_checked(on(1, kind, tasks), Stub::fifo(&[]));
        let is_low = |event: &Event| *event == Event::Throttled { task: TaskId(0) };
        assert!(!checked.events.iter().any(|(_, _, event)| is_low(event)));
        ended(&checked, 2)
    };
    assert_eq!(high_ended(ObjectSpec::PiMutex), 21);
    assert!(high_ended(ObjectSpec::Mutex) > 300);
}

/// The owner runs elsewhere, sleeps or waits in a queue when a task comes to wait for it.
#[test]
fn an_owner_is_boosted_wherever_it_is() {
    // It sleeps with the mutex from 1 to 11 ms, beside a real-time task that computes.
    let sleeper = |class| {
        let mut spec = task("sleeper", |n, _| {
            Some(match n {
                0 => Action::Lock(ObjectId(0)),
                1 | 3 => Action::Compute(Duration::from_ms(1)),
                2 => Action::Sleep(Duration::from_ms(10)),
                4 => Action::Unlock(ObjectId(0)),
                _ => return None,
            })
        });
        spec.class = class;
        spec
    };
    for low in [Normal, Fifo(1)] {
        let tasks = vec![
            on_cpus(sleeper(low), "0"),
            on_cpus(holder("middle", Fifo(20), 2, &[(None, 300)]), "0"),
            on_cpus(holder("high", Fifo(50), 5, &[(Some(0), 1)]), "1"),
        ];
        let checked = run_checked(on(2, ObjectSpec::PiMutex, tasks), Stub::fifo(&[]));
        assert_eq!(ended(&checked, 2), 13);
        // It waits in a queue of the policy's, behind the middle one.
        let tasks = vec![
            on_cpus(holder("low", low, 0, &[(Some(0), 20)]), "0"),
            on_cpus(holder("middle", Fifo(20), 8, &[(None, 300)]), "0"),
            on_cpus(holder("high", Fifo(50), 15, &[(Some(0), 1)]), "1"),
        ];
        let checked = run_checked(on(2, ObjectSpec::PiMutex, tasks), Stub::fifo(&[]));
        assert_eq!(ended(&checked, 2), 28);
        // It runs on another CPU when the high one comes; a middle one later finds it boosted.
        let tasks = vec![
            on_cpus(holder("low", low, 0, &[(Some(0), 20)]), "0"),
            on_cpus(holder("high", Fifo(50), 5, &[(Some(0), 1)]), "1"),
            on_cpus(holder("middle", Fifo(20), 8, &[(None, 300)]), "0"),
        ];
        let checked = run_checked(on(2, ObjectSpec::PiMutex, tasks), Stub::fifo(&[]));
        assert_eq!(ended(&checked, 1), 21);
    }
}

/// FUTEX_LOCK_PI returns EDEADLK, and glibc has the thread wait for ever.
#[test]
fn tasks_that_wait_for_each_other_are_told() {
    let tasks = vec![
        holder("a", Fifo(1), 0, &[(Some(0), 5), (Some(1), 1)]),
        holder("b", Fifo(2), 1, &[(Some(1), 5), (Some(0), 1)]),
    ];
    let mut scenario = on(1, ObjectSpec::PiMutex, tasks);
    scenario.workload.duration = Some(Duration::from_secs(1));
    let end = run_checked(scenario, Stub::fifo(&[])).end;
    let Some(WorkloadFailure::Deadlock { blocked, .. }) = end.failure else {
        panic!("{:?}", end.failure);
    };
    assert_eq!(blocked, ["a[1000] (Lock)", "b[1001] (Lock)"]);
}

/// pthread_cond_wait() releases such a mutex and takes it again.
#[test]
fn a_condition_works_with_such_a_mutex() {
    let mutex = ObjectId(0);
    let condition = ObjectId(1);
    let waiter = task("waiter", move |n, _| {
        Some(match n {
            0 => Action::Lock(mutex),
            1 => Action::Wait { condition, mutex },
            2 => Action::Compute(Duration::from_ms(1)),
            3 => Action::Unlock(mutex),
            _ => return None,
        })
    });
    let mut signaller = task("signaller", move |n, _| {
        Some(match n {
            0 => Action::Lock(mutex),
            1 => Action::Signal(condition),
            2 => Action::Compute(Duration::from_ms(3)),
            3 => Action::Unlock(mutex),
            _ => return None,
        })
    });
    signaller.start = Instant::from_ns(5 * MS);
    let objects = vec![ObjectSpec::PiMutex, ObjectSpec::Condition];
    let scenario = Scenario::new(machine(2), workload(objects, vec![waiter, signaller]), 1);
    let checked = run_checked(scenario, Stub::fifo(&[]));
    assert_eq!((ended(&checked, 1), ended(&checked, 0)), (8, 9));
}
