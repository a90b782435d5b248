//! When `ops.dequeue()` is called: custody (7.2) or ownership (6.18).

use crate::KernelVersion;
use crate::consts::{deq, dsq_id};
use crate::policy::OpKind::*;
use crate::policy::{OpCall, OpKind};
use crate::testing::*;

/// The dequeues that one task sees which runs twice, under a policy that inserts where `dsq` says.
fn dequeues(version: KernelVersion, dsq: u64) -> Vec<u64> {
    let policy = Stub::new(
        &[Init, Enqueue, Dispatch, Dequeue],
        move |a, op| async move {
            match op {
                OpCall::Init => return a.create_dsq(1).await,
                OpCall::Enqueue { task, .. } => a.insert(task, dsq, 1_000_000, 0).await,
                OpCall::Dispatch { .. } => {
                    a.move_to_local(1).await;
                }
                _ => {}
            }
            0
        },
    );
    let mut scenario = scenario(1, vec![periodic("p", 50, 200, 2)]);
    scenario.version = version;
    let checked = run_checked(scenario, policy);
    checked.is_done();
    let flags = |op| match op {
        OpCall::Dequeue { deq_flags, .. } => deq_flags,
        _ => unreachable!(),
    };
    checked
        .ops(OpKind::Dequeue)
        .into_iter()
        .map(|(_, op)| flags(op))
        .collect()
}

#[test]
fn a_dispatch_from_a_user_queue_is_told_in_7_2() {
    // It wakes three times: to run, to run again, to exit.
    assert_eq!(dequeues(KernelVersion::V7_2, 1), [0, 0, 0]);
    assert_eq!(dequeues(KernelVersion::V6_18, 1), [0u64; 0]);
}

#[test]
fn direct_dispatch_to_a_terminal_queue_gives_no_custody() {
    for dsq in [dsq_id::LOCAL, dsq_id::GLOBAL] {
        assert_eq!(dequeues(KernelVersion::V7_2, dsq), [0u64; 0]);
    }
}

#[test]
fn a_task_that_the_policy_holds_itself_is_dequeued_when_dispatched() {
    use std::cell::RefCell;
    use std::rc::Rc;
    let queue = Rc::new(RefCell::new(std::collections::VecDeque::new()));
    let policy = Stub::new(&[Enqueue, Dispatch, Dequeue], move |a, op| {
        let queue = queue.clone();
        async move {
            match op {
                OpCall::Enqueue { task, .. } => queue.borrow_mut().push_back(task),
                OpCall::Dispatch { .. } => {
                    let first = queue.borrow_mut().pop_front();
                    if let Some(task) = first {
                        a.insert(task, dsq_id::LOCAL, 1_000_000, 0).await;
                        // The buffer is flushed after the op: nothing has moved yet.
                        assert_eq!(a.nr_queued(dsq_id::LOCAL).await, 0);
                    }
                }
                _ => {}
            }
            0
        }
    });
    let tasks = (0..4).map(|_| periodic("p", 50, 200, 3)).collect();
    let checked = run_checked(scenario(2, tasks), policy);
    checked.is_done();
    assert_eq!(checked.ops(Dequeue).len(), checked.ops(Enqueue).len());
}

#[test]
fn a_change_of_nice_dequeues_with_sched_change() {
    use schedlab_trace::Duration;
    use schedlab_workload::Action;
    let renicer = task("p", |n, _| {
        Some(match n {
            0 => Action::Compute(Duration::from_us(50)),
            1 => Action::SetNice(5),
            2 => Action::Compute(Duration::from_us(50)),
            _ => return None,
        })
    });
    let checked = run_checked(scenario(1, vec![renicer]), Stub::fifo(ALL_TASK_OPS));
    let life = checked.life(0);
    let change = [Stopping, Quiescent, SetWeight, Runnable, Running];
    assert!(life.windows(5).any(|ops| ops == change), "{life:?}");
    let quiescent = checked.ops(Quiescent);
    let OpCall::Quiescent { deq_flags, .. } = quiescent[0].1 else {
        unreachable!()
    };
    assert_eq!(deq_flags, deq::SAVE | deq::NOCLOCK | deq::SCHED_CHANGE);
    let weights = checked.ops(SetWeight);
    let OpCall::SetWeight { weight, .. } = weights.last().unwrap().1 else {
        unreachable!()
    };
    assert_eq!(weight, 33);
}
