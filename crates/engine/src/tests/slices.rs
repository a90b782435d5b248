//! Slices, ticks, yields, and what runs on without being asked.

use std::cell::RefCell;
use std::rc::Rc;

use schedlab_trace::{Duration, Event, Instant, PrevState};
use schedlab_workload::Action;

use crate::contract::consts::{SLICE_INF, dsq_id, enq, kick, ops};
use crate::contract::policy::OpCall;
use crate::contract::policy::OpKind::*;
use crate::testing::*;
use crate::{ExitKind, run};

/// Preemptions of a run on one CPU in which two tasks compute 200 ms each.
fn preemptions(slice: u64) -> usize {
    let policy = Stub::new(&[Enqueue], move |a, op| async move {
        if let OpCall::Enqueue { task, .. } = op {
            a.insert(task, dsq_id::GLOBAL, slice, 0).await;
        }
        0
    });
    let checked = run_checked(scenario(1, vec![hog("a", 200), hog("b", 200)]), policy);
    checked.is_done();
    let preempted = |event: &Event| {
        matches!(
            event,
            Event::Switch {
                prev: Some(_),
                prev_state: PrevState::Preempted,
                ..
            }
        )
    };
    checked
        .events
        .iter()
        .filter(|(_, _, event)| preempted(event))
        .count()
}

#[test]
fn slices_end_at_ticks() {
    // 250 Hz: a slice of 1 ms ends at the next tick, one of 20 ms after five or six.
    let short = preemptions(1_000_000);
    assert!((90..=101).contains(&short), "{short}");
    let long = preemptions(20_000_000);
    assert!((15..=20).contains(&long), "{long}");
    assert_eq!(preemptions(SLICE_INF), 0);
}

#[test]
fn a_lone_task_runs_on_with_a_new_slice() {
    let checked = run_checked(scenario(1, vec![hog("a", 100)]), Stub::fifo(&[Stopping]));
    // Its slice of 5 ms ends many times, and no other task is there.
    assert_eq!(checked.ran_on(0), [0]);
    assert_eq!(checked.ops(Stopping).len(), 1);
    // The first five were the policy's, the rest the kernel's default of 20 ms.
    let dispatches = checked.ops(Dispatch).len();
    assert!((4..=9).contains(&dispatches), "{dispatches}");
}

#[test]
fn enq_last_asks_for_the_lone_task() {
    let policy = Stub::fifo(&[]).flags(ops::ENQ_LAST);
    let end = run(scenario(1, vec![hog("a", 100)]), policy, ());
    let is_last =
        |op: &OpCall| matches!(op, OpCall::Enqueue { enq_flags, .. } if enq_flags & enq::LAST != 0);
    let last = end.policy.log.borrow().iter().any(|(_, _, op)| is_last(op));
    assert!(last);
    // The policy's queue gives it back only when the CPU is kicked: it idles until the watchdog.
    assert_eq!(end.exit.kind, ExitKind::ErrorStall, "{:?}", end.exit);
    let local = Stub::new(&[Enqueue], |a, op| async move {
        if let OpCall::Enqueue { task, .. } = op {
            a.insert(task, dsq_id::LOCAL, 5_000_000, 0).await;
        }
        0
    });
    let end = run(
        scenario(1, vec![hog("a", 100)]),
        local.flags(ops::ENQ_LAST),
        (),
    );
    assert_eq!(end.exit.kind, ExitKind::Done);
}

#[test]
fn yield_lets_the_other_one_go_first() {
    let yielder = |name: &str| {
        task(name, |n, _| {
            (n < 20).then(|| match n % 2 {
                0 => Action::Compute(Duration::from_us(10)),
                _ => Action::Yield,
            })
        })
    };
    let checked = run_checked(
        scenario(1, vec![yielder("a"), yielder("b")]),
        Stub::fifo(&[]),
    );
    let order = checked.ran_on(0);
    let alternate = order.windows(2).all(|pair| pair[0] != pair[1]);
    assert!(alternate && order.len() >= 20, "{order:?}");
}

#[test]
fn preemption_by_kick_and_by_insertion() {
    // B wakes up while A, with all the time in the world, runs; both are bound to CPU 0.
    let tasks = || vec![hog("a", 50), on_cpus(periodic("b", 50, 10_000, 2), "0")];
    let gets_in = |policy: Stub| {
        let mut tasks = tasks();
        tasks[0].affinity = Some("0".parse().unwrap());
        tasks[1].start = Instant::from_ns(1_000_000);
        let checked = run_checked(scenario(2, tasks), policy);
        checked.is_done();
        checked.ran_on(0).iter().filter(|&&task| task == 0).count() > 1
    };
    let policy = |flags: u64, kick_flags: Option<u64>| {
        Stub::new(&[Enqueue], move |a, op| async move {
            if let OpCall::Enqueue { task, .. } = op {
                let slice = if task.0 == 0 { SLICE_INF } else { 1_000_000 };
                let flags = if task.0 == 1 { flags } else { 0 };
                a.insert(task, dsq_id::LOCAL, slice, flags).await;
                if let (1, Some(kick_flags)) = (task.0, kick_flags) {
                    a.kick(0, kick_flags).await;
                }
            }
            0
        })
    };
    assert!(!gets_in(policy(0, None)));
    assert!(
        !gets_in(policy(0, Some(0))),
        "a plain kick leaves the slice"
    );
    assert!(!gets_in(policy(0, Some(kick::IDLE))));
    assert!(gets_in(policy(0, Some(kick::PREEMPT))));
    assert!(gets_in(policy(enq::PREEMPT, None)));
}

#[test]
fn dispatch_is_called_only_where_the_cpu_has_nothing() {
    let schedules = |checked: &Checked| {
        let enters = checked.events.iter();
        enters
            .filter(|(_, _, event)| matches!(event, Event::ScheduleEnter { .. }))
            .count()
    };
    // Two tasks that take turns on a CPU's local queue: the policy is asked only when one of them is left.
    let queued = Rc::new(RefCell::new(Vec::new()));
    let log = queued.clone();
    let policy = Stub::new(&[Enqueue, Dispatch], move |a, op| {
        let log = log.clone();
        async move {
            match op {
                OpCall::Enqueue { task, .. } => a.insert(task, dsq_id::LOCAL, 5_000_000, 0).await,
                OpCall::Dispatch { .. } => {
                    let nr = a.nr_queued(dsq_id::LOCAL).await;
                    log.borrow_mut().push(nr);
                }
                _ => {}
            }
            0
        }
    });
    let checked = run_checked(scenario(1, vec![hog("a", 40), hog("b", 80)]), policy);
    assert!(checked.ran_on(0).len() > 8, "{:?}", checked.ran_on(0));
    let queued = queued.borrow();
    assert!(!queued.is_empty() && queued.len() < schedules(&checked));
    assert!(queued.iter().all(|&nr| nr == 0), "{queued:?}");
    // A task whose CPU is asked to schedule at every tick, with all the time in the world: it goes on.
    let policy = Stub::new(&[Enqueue, Dispatch, Tick], |a, op| async move {
        match op {
            OpCall::Enqueue { task, .. } => a.insert(task, dsq_id::LOCAL, SLICE_INF, 0).await,
            OpCall::Tick { .. } => a.kick(0, 0).await,
            _ => {}
        }
        0
    });
    let checked = run_checked(scenario(1, vec![hog("a", 100)]), policy);
    assert!(schedules(&checked) > 20, "{}", schedules(&checked));
    for (at, op) in checked.ops(Dispatch) {
        let OpCall::Dispatch { prev, .. } = op else {
            unreachable!()
        };
        assert!(prev.is_none() || at >= 100_000_000, "{prev:?} at {at} ns");
    }
}

/// `dequeue_task_scx()` charges a task that leaves only where there is an ops.stopping().
#[test]
fn without_stopping_quiescent_sees_the_slice_of_the_last_charge() {
    let seen = |more: &[crate::contract::policy::OpKind]| {
        let slices = Rc::new(RefCell::new(Vec::new()));
        let kept = slices.clone();
        let mut ops = vec![Enqueue, Quiescent];
        ops.extend_from_slice(more);
        let policy = Stub::new(&ops, move |a, op| {
            let kept = kept.clone();
            async move {
                match op {
                    OpCall::Enqueue { task, enq_flags } => {
                        a.insert(
                            task,
                            crate::contract::consts::dsq_id::LOCAL,
                            5_000_000,
                            enq_flags,
                        )
                        .await;
                    }
                    OpCall::Quiescent { task, .. } => kept.borrow_mut().push(a.slice(task)),
                    _ => {}
                }
                0
            }
        });
        // Shorter than a tick.
        run_checked(scenario(1, vec![periodic("p", 50, 200, 1)]), policy).is_done();
        slices.take()[0]
    };
    assert!(seen(&[Stopping]) < 5_000_000);
    assert_eq!(seen(&[]), 5_000_000);
}
