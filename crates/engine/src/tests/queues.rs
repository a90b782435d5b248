//! Dispatch queues as policies use them.

use std::cell::RefCell;
use std::rc::Rc;

use schedlab_trace::{Duration, Event, TaskId};
use schedlab_workload::{Action, ObjectId, ObjectSpec};

use crate::contract::consts::{dsq_id, enq, iter};
use crate::contract::policy::OpKind::*;
use crate::contract::policy::{OpCall, Reply, Request};
use crate::testing::*;
use crate::{ExitKind, KernelVersion};

/// Runs tasks 0 … 5, all woken before any runs, and returns the order in which they run.
fn order(policy: Stub) -> Vec<u32> {
    let tasks: Vec<_> = (0..6).map(|_| hog("p", 1)).collect();
    let checked = run_checked(scenario(1, tasks), policy);
    checked.is_done();
    checked.ran_on(0)
}

fn queueing(insert: fn(TaskId) -> Option<u64>, dispatch: impl Fn() -> u64 + 'static) -> Stub {
    let dispatch = Rc::new(dispatch);
    Stub::new(&[Init, Enqueue, Dispatch], move |a, op| {
        let dispatch = dispatch.clone();
        async move {
            match op {
                OpCall::Init => return a.create_dsq(1).await,
                OpCall::Enqueue { task, .. } => match insert(task) {
                    Some(vtime) => a.insert_vtime(task, 1, 100_000_000, vtime).await,
                    None => a.insert(task, 1, 100_000_000, 0).await,
                },
                OpCall::Dispatch { .. } => {
                    a.move_to_local(dispatch()).await;
                }
                _ => {}
            }
            0
        }
    })
}

#[test]
fn fifo_and_vtime_order() {
    assert_eq!(order(queueing(|_| None, || 1)), [0, 1, 2, 3, 4, 5]);
    assert_eq!(
        order(queueing(|task| Some(u64::from(10 - task.0)), || 1)),
        [5, 4, 3, 2, 1, 0]
    );
    // Equal ones in the order of arrival, and wrap-around counts as later.
    assert_eq!(
        order(queueing(
            |task| Some(if task.0 < 3 { 4 } else { u64::MAX - 4 }),
            || 1
        )),
        [3, 4, 5, 0, 1, 2]
    );
}

#[test]
fn iterators_move_whom_the_policy_wants() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let note = seen.clone();
    let policy = Stub::new(&[Init, Enqueue, Dispatch], move |a, op| {
        let seen = note.clone();
        async move {
            match op {
                OpCall::Init => return a.create_dsq(1).await,
                OpCall::Enqueue { task, .. } => a.insert(task, 1, 100_000_000, 0).await,
                OpCall::Dispatch { .. } => {
                    let request = Request::IterNew {
                        dsq: 1,
                        flags: iter::REV,
                    };
                    let Reply::Iter(it) = a.ask(request).await else {
                        panic!("an iterator")
                    };
                    while let Reply::Task(Some(task)) = a.ask(Request::IterNext { iter: it }).await
                    {
                        seen.borrow_mut().push(task.0);
                        a.ask(Request::MoveSetSlice {
                            iter: it,
                            slice: 7_000_000,
                        })
                        .await;
                        let request = Request::DsqMove {
                            iter: it,
                            task,
                            dsq: dsq_id::LOCAL,
                            enq_flags: 0,
                            priq: false,
                        };
                        if a.ask(request).await == Reply::Bool(true) {
                            assert_eq!(a.slice(task), 7_000_000);
                            break;
                        }
                    }
                    a.ask(Request::IterDestroy { iter: it }).await;
                }
                _ => {}
            }
            0
        }
    });
    assert_eq!(order(policy), [5, 4, 3, 2, 1, 0]);
    assert_eq!(*seen.borrow(), [5, 4, 3, 2, 1, 0]);
}

#[test]
fn bad_iterators_are_errnos() {
    let policy = Stub::new(&[Init], |a, _| async move {
        assert_eq!(a.create_dsq(1).await, 0);
        assert_eq!(a.create_dsq(1).await, -17);
        assert_eq!(a.create_dsq(dsq_id::GLOBAL).await, -22);
        let ask = |dsq, flags| a.ask(Request::IterNew { dsq, flags });
        assert_eq!(ask(2, 0).await, Reply::Int(-2));
        assert_eq!(ask(1, 1).await, Reply::Int(-22));
        assert_eq!(a.nr_queued(9).await, -2);
        0
    });
    let end = run_checked(scenario(1, vec![hog("p", 1)]), policy).end;
    assert_eq!(end.exit.kind, ExitKind::Done, "{:?}", end.exit);
}

#[test]
fn tasks_go_to_other_cpus_local_queues() {
    // From enqueue (deferred, as its lock cannot be taken there) and from dispatch.
    let policy = |from_dispatch: bool| {
        let held = Rc::new(RefCell::new(std::collections::VecDeque::new()));
        Stub::new(&[SelectCpu, Enqueue, Dispatch], move |a, op| {
            let held = held.clone();
            async move {
                match op {
                    OpCall::SelectCpu { prev_cpu, .. } => return i64::from(prev_cpu.0),
                    OpCall::Enqueue { task, .. } if from_dispatch => {
                        held.borrow_mut().push_back(task);
                    }
                    OpCall::Enqueue { task, .. } => {
                        a.insert(task, local_on(task.0 % 4), 1_000_000, 0).await
                    }
                    OpCall::Dispatch { .. } => loop {
                        let next = held.borrow_mut().pop_front();
                        let Some(task) = next else { break };
                        a.insert(task, local_on(task.0 % 4), 1_000_000, 0).await;
                    },
                    _ => {}
                }
                0
            }
        })
    };
    for from_dispatch in [false, true] {
        let tasks = (0..8).map(|_| periodic("p", 100, 300, 10)).collect();
        let checked = run_checked(scenario(4, tasks), policy(from_dispatch));
        checked.is_done();
        for cpu in 0..4 {
            let ran = checked.ran_on(cpu);
            assert!(
                !ran.is_empty() && ran.iter().all(|task| task % 4 == cpu),
                "{cpu}: {ran:?}"
            );
        }
    }
}

#[test]
fn spurious_and_late_dispatches_are_ignored() {
    // Every dispatch inserts every task, whether the policy owns it or not.
    let policy = Stub::new(&[Enqueue, Dispatch], |a, op| async move {
        if let OpCall::Dispatch { .. } = op {
            for task in 0..6 {
                a.insert(TaskId(task), dsq_id::GLOBAL, 1_000_000, 0).await;
            }
        }
        0
    });
    let tasks = (0..6).map(|_| periodic("p", 100, 300, 10)).collect();
    let checked = run_checked(scenario(3, tasks), policy);
    checked.is_done();
}

#[test]
fn peek_and_lengths() {
    let policy = Stub::new(&[Init, Enqueue, Dispatch], |a, op| async move {
        match op {
            OpCall::Init => return a.create_dsq(1).await,
            OpCall::Enqueue { task, .. } => a.insert(task, 1, 1_000_000, 0).await,
            OpCall::Dispatch { .. } => {
                let first = a.ask(Request::DsqPeek { dsq: 1 }).await;
                let nr = a.nr_queued(1).await;
                assert_eq!(nr == 0, first == Reply::Task(None));
                if a.move_to_local(1).await {
                    assert_eq!(a.nr_queued(1).await, nr - 1);
                    assert_eq!(a.nr_queued(dsq_id::LOCAL).await, 1);
                }
            }
            _ => {}
        }
        0
    });
    let tasks = (0..6).map(|_| periodic("p", 100, 300, 10)).collect();
    let end = run_checked(scenario(1, tasks), policy).end;
    assert_eq!(end.exit.kind, ExitKind::Done, "{:?}", end.exit);
}

/// CPU 0's dispatch takes a millisecond without asking for anything; `a` comes to the global queue meanwhile. A later
/// look at the queue sees it.
#[test]
fn the_global_queue_is_looked_at_after_a_long_dispatch() {
    use schedlab_workload::{Action, ObjectId, ObjectSpec};

    let policy = Stub::new(&[SelectCpu, Dispatch], |a, op| async move {
        match op {
            OpCall::SelectCpu { task, prev_cpu, .. } if task.0 != 1 => i64::from(prev_cpu.0),
            OpCall::SelectCpu { .. } => 1,
            OpCall::Dispatch { cpu, .. } if cpu.0 == 0 => {
                a.spend(1_000_000);
                0
            }
            _ => 0,
        }
    });
    let b = on_cpus(periodic("b", 100, 1_700, 60), "0");
    let a = task("a", |n, _| {
        (n < 200).then(|| match n % 2 {
            0 => Action::Acquire(ObjectId(0)),
            _ => Action::Compute(Duration::from_us(10)),
        })
    });
    let poster = task("poster", |n, _| {
        (n < 240).then(|| match n % 2 {
            0 => Action::Compute(Duration::from_us(1_130)),
            _ => Action::Post(ObjectId(0)),
        })
    });
    let objects = vec![ObjectSpec::Semaphore { initial: 0 }];
    let tasks = vec![b, a, on_cpus(poster, "1")];
    let scenario = crate::Scenario::new(machine(2), workload(objects, tasks), 1);
    let checked = run_checked(scenario, policy);
    let dispatches: Vec<u64> = checked
        .ops(Dispatch)
        .iter()
        .filter(|(_, op)| matches!(op, OpCall::Dispatch { cpu, .. } if cpu.0 == 0))
        .map(|&(at, _)| at)
        .collect();
    let (mut woken, mut seen) = (0, 0);
    for &(at, _, event) in &checked.events {
        match event {
            Event::Wakeup { task, .. } if task.0 == 1 => woken = at,
            Event::Switch {
                next: Some(next), ..
            } if next.0 == 1 => {
                let during = dispatches
                    .iter()
                    .any(|&begun| begun + 50_000 < woken && woken < begun + 900_000);
                if during {
                    seen += 1;
                    assert!(at - woken < 1_100_000, "woken {woken}, ran {at}");
                }
            }
            _ => {}
        }
    }
    assert!(seen > 10, "{seen}");
}

/// An op that a remote wakeup calls is under the lock of the wakee's run queue: `SCX_DSQ_LOCAL` is that one's.
#[test]
fn the_local_queue_is_that_of_the_locked_run_queue() {
    // Of the calling CPU before that was so.
    for (version, expected) in [(KernelVersion::V7_2, 1), (KernelVersion::V6_18, 0)] {
        let lengths = local_queue_lengths(version);
        // As the run begins, and when CPU 0 wakes it.
        assert_eq!(lengths[2..], [(0, expected); 2], "{version:?}");
    }
}

/// On which CPU ops.runnable() and ops.enqueue() of a task are called whose queue on CPU 1 has one that waits, and what
/// `scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL)` is there.
fn local_queue_lengths(version: KernelVersion) -> Vec<(u32, i64)> {
    let lengths = Rc::new(RefCell::new(Vec::new()));
    let kept = lengths.clone();
    let policy = Stub::new(&[Runnable, Enqueue], move |a, op| {
        let kept = kept.clone();
        async move {
            match op {
                OpCall::Runnable { task, .. } if task.0 == 3 => {
                    let here = (a.cpu(), a.nr_queued(dsq_id::LOCAL).await);
                    kept.borrow_mut().push(here);
                }
                OpCall::Enqueue { task, .. } => {
                    if task.0 == 3 {
                        let here = (a.cpu(), a.nr_queued(dsq_id::LOCAL).await);
                        kept.borrow_mut().push(here);
                    }
                    a.insert(task, dsq_id::LOCAL, 1_000_000, 0).await;
                }
                _ => {}
            }
            0
        }
    });
    let mut scenario = wakes_the_last_on_1();
    scenario.version = version;
    run_checked(scenario, policy);
    lengths.take()
}

/// CPU 0 wakes task 3 on CPU 1, where two others compute: one of them waits in the queue.
fn wakes_the_last_on_1() -> crate::Scenario {
    let writer = task("writer", |n, _| {
        Some(match n {
            0 => Action::Compute(Duration::from_ms(15)),
            1 => Action::Write {
                to: ObjectId(0),
                bytes: 1,
            },
            _ => return None,
        })
    });
    let reader = task("reader", |n, _| {
        let read = Action::Read {
            from: ObjectId(0),
            limit: 1,
        };
        (n == 0).then_some(read)
    });
    let tasks = vec![
        on_cpus(writer, "0"),
        on_cpus(hog("p", 20), "1"),
        on_cpus(hog("q", 20), "1"),
        on_cpus(reader, "1"),
    ];
    let pipe = vec![ObjectSpec::Pipe { capacity: 100 }];
    crate::Scenario::new(machine(2), workload(pipe, tasks), 1)
}

/// `SCX_DSQ_LOCAL` of `scx_bpf_dsq_reenq()` belongs to the run queue whose lock the op holds, too.
#[test]
fn the_local_queue_of_the_locked_run_queue_is_re_enqueued() {
    let policy = Stub::new(&[Enqueue], |a, op| async move {
        if let OpCall::Enqueue { task, enq_flags } = op {
            if task.0 == 3 && a.cpu() == 0 && enq_flags & enq::REENQ == 0 {
                let dsq = dsq_id::LOCAL;
                a.ask(Request::Reenqueue { dsq, flags: 0 }).await;
            }
            a.insert(task, dsq_id::LOCAL, 1_000_000, 0).await;
        }
        0
    });
    let checked = run_checked(wakes_the_last_on_1(), policy);
    checked.is_done();
    let log = checked.end.policy.log.borrow();
    let again = log.iter().filter_map(|&(_, cpu, op)| match op {
        OpCall::Enqueue { task, enq_flags } if enq_flags & enq::REENQ != 0 => Some((cpu, task.0)),
        _ => None,
    });
    // The task that waits on CPU 1 and the one that has just come there.
    assert_eq!(again.collect::<Vec<_>>(), [(0, 1), (0, 3)]);
}

/// Calls of `scx_bpf_dsq_reenq()` for one queue that come before the first is carried out are one.
#[test]
fn re_enqueueing_is_noted_once() {
    let enqueued = |calls| {
        let policy = Stub::new(
            &[Init, Enqueue, Dispatch, Running],
            move |a, op| async move {
                match op {
                    OpCall::Init => return a.create_dsq(1).await,
                    OpCall::Enqueue { task, enq_flags } => {
                        a.insert(task, 1, 50_000_000, enq_flags & !enq::REENQ).await
                    }
                    OpCall::Dispatch { .. } => {
                        a.move_to_local(1).await;
                    }
                    OpCall::Running { task } if task.0 == 0 => {
                        for _ in 0..calls {
                            a.ask(Request::Reenqueue { dsq: 1, flags: 0 }).await;
                        }
                    }
                    _ => {}
                }
                0
            },
        );
        let tasks = (0..6).map(|_| hog("p", 1)).collect();
        let checked = run_checked(scenario(1, tasks), policy);
        let again = checked.ops(Enqueue).into_iter().filter(|(_, op)| match op {
            OpCall::Enqueue { enq_flags, .. } => enq_flags & enq::REENQ != 0,
            _ => unreachable!(),
        });
        again.count()
    };
    // The five that wait while the first one runs.
    assert_eq!([enqueued(0), enqueued(1), enqueued(3)], [0, 5, 5]);
}

/// The time of `ops.select_cpu()` lies between the decision to wake a task and its wakeup.
#[test]
fn a_wakeup_tells_how_long_ago_it_was_decided() {
    let shortest = |select_ns: u64| {
        let policy = Stub::fifo(&[SelectCpu]).op_ns(select_ns);
        let checked = run_checked(scenario(2, vec![periodic("p", 100, 100, 20)]), policy);
        let mut since = checked
            .events
            .iter()
            .filter_map(|(_, _, event)| match event {
                Event::Wakeup { since, .. } => Some(since.ns()),
                _ => None,
            });
        // The new task's wakeup was not decided by a waker.
        assert_eq!(since.next(), Some(0));
        since.min().expect("it sleeps")
    };
    assert_eq!(shortest(7_000) - shortest(0), 7_000);
}
