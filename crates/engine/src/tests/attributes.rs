//! Changes of a task's class, and what the policy sees of them.

use schedlab_trace::Duration;
use schedlab_workload::{Action, SchedClass};

use crate::contract::consts::{deq, enq};
use crate::contract::policy::OpCall;
use crate::contract::policy::OpKind::*;
use crate::testing::*;
use crate::{KernelVersion, RtMode};

/// Flags of the only change of class in `from`.
fn change_flags(from: SchedClass, to: SchedClass) -> (Option<u64>, u64) {
    change_flags_in(RtMode::Kernel, from, to)
}

fn change_flags_in(rt_mode: RtMode, from: SchedClass, to: SchedClass) -> (Option<u64>, u64) {
    let mut spec = task("p", move |n, _| {
        Some(match n {
            0 | 2 => Action::Compute(Duration::from_us(50)),
            1 => Action::SetClass(to),
            _ => return None,
        })
    });
    spec.class = from;
    let mut scenario = scenario(1, vec![spec]);
    scenario.rt_mode = rt_mode;
    let checked = run_checked(scenario, Stub::fifo(&[Quiescent, Runnable]));
    checked.is_done();
    let quiescent = checked.ops(Quiescent).iter().find_map(|(_, op)| match op {
        OpCall::Quiescent { deq_flags, .. } if deq_flags & deq::SLEEP == 0 => Some(*deq_flags),
        _ => None,
    });
    let runnable = checked
        .ops(Runnable)
        .iter()
        .rev()
        .find_map(|(_, op)| match op {
            OpCall::Runnable { enq_flags, .. } if enq_flags & enq::RESTORE != 0 => Some(*enq_flags),
            _ => None,
        });
    (quiescent, runnable.unwrap())
}

/// `__sched_setscheduler()`: `DEQUEUE_MOVE` only where the priority changes.
#[test]
fn a_policy_of_the_same_priority_moves_nobody() {
    let kept = deq::SAVE | deq::NOCLOCK;
    for to in [SchedClass::Batch, SchedClass::Idle, SchedClass::Normal] {
        let flags = change_flags(SchedClass::Normal, to);
        assert_eq!(flags, (Some(kept | deq::SCHED_CHANGE), kept), "{to:?}");
    }
}

/// `__sched_setscheduler()`: whose priority falls comes first among its equals.
#[test]
fn who_falls_back_from_real_time_comes_to_the_head() {
    let (_, runnable) = change_flags(SchedClass::Fifo(5), SchedClass::Normal);
    let change = enq::RESTORE | enq::MOVE | enq::NOCLOCK | enq::CLASS;
    assert_eq!(runnable, change | enq::HEAD);
}

/// The same where the policy has real-time tasks, too: whose priority rises does not.
#[test]
fn who_rises_comes_behind_its_equals() {
    let moved = |from, to| {
        let (from, to) = (SchedClass::Fifo(from), SchedClass::Fifo(to));
        change_flags_in(RtMode::Policy, from, to).1
    };
    let change = enq::RESTORE | enq::MOVE | enq::NOCLOCK;
    assert_eq!(moved(5, 3), change | enq::HEAD);
    assert_eq!(moved(3, 5), change);
}

/// Linux 6.18: `__sched_setscheduler()` changes the weight while the task is still sched_ext's, calls the old class
/// last (`check_class_changed()`), and has no `DEQUEUE_CLASS`.
#[test]
fn in_the_older_kernel_who_leaves_gets_a_weight_first() {
    let mut scenario = scenario(
        1,
        vec![task("p", |n, _| {
            Some(match n {
                0 | 2 => Action::Compute(Duration::from_us(50)),
                1 => Action::SetClass(SchedClass::Fifo(5)),
                _ => return None,
            })
        })],
    );
    scenario.version = KernelVersion::V6_18;
    let checked = run_checked(scenario, Stub::fifo(&[Quiescent, SetWeight, Disable]));
    checked.is_done();
    let flags = checked.ops(Quiescent).iter().find_map(|(_, op)| match op {
        OpCall::Quiescent { deq_flags, .. } => Some(*deq_flags),
        _ => None,
    });
    let life = checked.life(0);
    let left = life.iter().skip_while(|&&op| op != Quiescent);
    assert_eq!(
        left.copied().collect::<Vec<_>>(),
        [Quiescent, SetWeight, Disable]
    );
    assert_eq!(flags, Some(deq::SAVE | deq::MOVE | deq::NOCLOCK));
}
