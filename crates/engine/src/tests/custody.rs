//! When `ops.dequeue()` is called: custody (7.2) or ownership (6.18).

use std::cell::RefCell;
use std::rc::Rc;

use schedlab_trace::TaskId;

use crate::KernelVersion;
use crate::contract::consts::{deq, dsq_id, enq};
use crate::contract::policy::OpKind::*;
use crate::contract::policy::{OpCall, OpKind, Reply, Request};
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

/// How the tasks of a policy leave its custody.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// From a list of its own, inserted there.
    Insert(u64),
    /// From a user DSQ, moved there one by one.
    Move(u64),
    /// From a user DSQ, to the CPU that asks.
    MoveToLocal,
}

/// How often a task ran before `ops.dequeue()` had returned for its last stay in custody, where that op takes long
/// and other CPUs go on meanwhile.
fn runs_in_custody(rq_locks: bool, way: Way) -> usize {
    use std::cell::{Cell, RefCell};
    use std::collections::{BTreeSet, VecDeque};
    use std::rc::Rc;
    let queue = Rc::new(RefCell::new(VecDeque::new()));
    let custody = Rc::new(RefCell::new(BTreeSet::new()));
    let late = Rc::new(Cell::new(0));
    let found = late.clone();
    let ops = [Init, Enqueue, Dispatch, Dequeue, Running];
    let policy = Stub::new(&ops, move |a, op| {
        let (queue, custody, late) = (queue.clone(), custody.clone(), late.clone());
        // Where to, by turns: every CPU's local DSQ, if the way is to local ones.
        let to = move |way, n: u32| match way {
            dsq_id::LOCAL_ON => local_on(n % 4),
            dsq => dsq,
        };
        async move {
            match op {
                OpCall::Init => return a.create_dsq(1).await,
                OpCall::Enqueue { task, .. } => {
                    custody.borrow_mut().insert(task);
                    match way {
                        Way::Insert(_) => queue.borrow_mut().push_back(task),
                        Way::Move(_) | Way::MoveToLocal => a.insert(task, 1, 100_000, 0).await,
                    }
                }
                OpCall::Dequeue { task, .. } => {
                    a.spend(20_000);
                    a.ask(Request::Sync).await;
                    custody.borrow_mut().remove(&task);
                }
                OpCall::Dispatch { cpu, .. } => match way {
                    Way::Insert(dsq) => {
                        for n in 0..4 {
                            let first = queue.borrow_mut().pop_front();
                            let Some(task) = first else { break };
                            a.insert(task, to(dsq, cpu.0 + n), 100_000, 0).await;
                        }
                    }
                    Way::Move(dsq) => {
                        let Reply::Iter(iter) = a.ask(Request::IterNew { dsq: 1, flags: 0 }).await
                        else {
                            panic!("an iterator")
                        };
                        while let Reply::Task(Some(task)) = a.ask(Request::IterNext { iter }).await
                        {
                            let request = Request::DsqMove {
                                iter,
                                task,
                                dsq: to(dsq, cpu.0 + task.0),
                                enq_flags: 0,
                                priq: false,
                            };
                            a.ask(request).await;
                        }
                        a.ask(Request::IterDestroy { iter }).await;
                    }
                    Way::MoveToLocal => {
                        a.move_to_local(1).await;
                    }
                },
                OpCall::Running { task } if custody.borrow().contains(&task) => {
                    late.set(late.get() + 1);
                }
                _ => {}
            }
            0
        }
    });
    let tasks = (0..12).map(|_| periodic("p", 50, 100, 50)).collect();
    let mut scenario = scenario(4, tasks);
    scenario.machine.sched_ext.rq_locks = rq_locks;
    run_checked(scenario, policy).is_done();
    found.get()
}

#[test]
fn a_task_runs_only_after_it_has_left_custody() {
    let ways = [
        Way::Insert(dsq_id::LOCAL_ON),
        Way::Insert(dsq_id::LOCAL),
        Way::Insert(dsq_id::GLOBAL),
        Way::Move(dsq_id::LOCAL_ON),
        Way::Move(dsq_id::GLOBAL),
        Way::MoveToLocal,
    ];
    for rq_locks in [true, false] {
        for way in ways {
            assert_eq!(runs_in_custody(rq_locks, way), 0, "{rq_locks} {way:?}");
        }
    }
}

/// Insertions of ops.enqueue() into other CPUs' local DSQs are deferred; while a CPU carries them out, which takes
/// other run queues' locks, others that come to the same run queue find the rest (`run_deferred()`).
#[test]
fn deferred_work_is_there_for_whoever_comes_meanwhile() {
    use schedlab_trace::{Duration, Event, Instant, TaskId};
    use schedlab_workload::Action;
    let (leaves, wakes, stays, holds) = (TaskId(0), TaskId(1), TaskId(2), TaskId(3));
    let policy = Stub::new(
        &[SelectCpu, Enqueue, Running, Stopping],
        move |a, op| async move {
            match op {
                OpCall::SelectCpu { task, .. } => return if task == holds { 3 } else { 0 },
                OpCall::Enqueue { task, enq_flags } => {
                    let is_first = enq_flags & enq::INITIAL != 0;
                    let dsq = match task {
                        task if task == leaves && !is_first => local_on(3),
                        task if task == wakes => local_on(2),
                        _ => dsq_id::LOCAL,
                    };
                    a.insert(task, dsq, 20_000_000, 0).await;
                }
                // CPU 3 has the lock of its run queue from 0.9 to 1.9 ms, …
                OpCall::Running { task } if task == holds => a.spend(1_000_000),
                // … CPU 0 its own lock from 1.0 to 1.2 ms. Then CPU 1, which waits for that, gets it, finds both
                // tasks, and waits for CPU 3 with the one.
                OpCall::Stopping { task, .. } if task == leaves => a.spend(200_000),
                _ => {}
            }
            0
        },
    );
    let yields = task("leaves", |n, _| match n {
        0 | 2 => Some(Action::Compute(Duration::from_ms(1))),
        1 => Some(Action::Yield),
        _ => None,
    });
    let mut tasks = vec![yields, hog("wakes", 1), hog("stays", 1), hog("holds", 1)];
    tasks[wakes.index()].start = Instant::from_ns(1_100_000);
    tasks[holds.index()].start = Instant::from_ns(900_000);
    let checked = run_checked(scenario(4, tasks), policy);
    checked.is_done();
    let begins = |task| {
        let mut switches = checked.events.iter();
        let begins = switches.find(
            |(_, _, event)| matches!(event, Event::Switch { next, .. } if *next == Some(task)),
        );
        begins.map(|&(at, cpu, _)| (at, cpu)).unwrap()
    };
    assert_eq!(begins(stays).1, 0);
    assert!(begins(holds).0 > 1_900_000);
    let (at, cpu) = begins(wakes);
    assert!(cpu == 2 && at < 1_300_000, "on CPU {cpu} at {at}");
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

/// `block_task()` adds `DEQUEUE_SPECIAL`, which has had several bits.
#[test]
fn the_end_of_a_task_is_a_special_dequeue() {
    for (version, special) in [
        (KernelVersion::V6_18, 1 << 4),
        (KernelVersion::V7_2, 1 << 16),
    ] {
        let mut scenario = scenario(1, vec![periodic("p", 50, 0, 1)]);
        scenario.version = version;
        let checked = run_checked(scenario, Stub::fifo(ALL_TASK_OPS));
        let quiescent = checked.ops(Quiescent);
        let OpCall::Quiescent { deq_flags, .. } = quiescent.last().unwrap().1 else {
            unreachable!()
        };
        assert_eq!(
            deq_flags,
            deq::SLEEP | deq::NOCLOCK | special,
            "{version:?}"
        );
    }
}

/// `dispatch_enqueue()` calls ops.dequeue() under the lock of the run queue whose task it dispatches (`SCX_CALL_OP_TASK()`),
/// and for the policy SCX_DSQ_LOCAL is that one's.
#[test]
fn dequeue_by_a_direct_dispatch_to_the_global_dsq_holds_the_run_queue() {
    use crate::contract::consts::dsq_id::{GLOBAL, LOCAL};
    let waiting = Rc::new(RefCell::new(Vec::new()));
    let kept = waiting.clone();
    let policy = Stub::new(&[Init, Enqueue, Dequeue, Tick], move |a, op| {
        let kept = kept.clone();
        async move {
            match op {
                OpCall::Init => return a.create_dsq(1).await,
                OpCall::Enqueue { task, enq_flags } => {
                    let dsq = match task {
                        TaskId(3) if enq_flags & enq::REENQ == 0 => 1,
                        TaskId(3) => GLOBAL,
                        _ => LOCAL,
                    };
                    a.insert(task, dsq, 1_000_000_000, enq_flags & !enq::REENQ)
                        .await;
                }
                // Task 3 is CPU 1's, whose local DSQ has one more task.
                OpCall::Dequeue { .. } => {
                    let nr = a.nr_queued(LOCAL).await;
                    kept.borrow_mut().push((a.cpu(), nr));
                }
                OpCall::Tick { task: TaskId(0) } => {
                    a.ask(Request::Reenqueue { dsq: 1, flags: 0 }).await;
                }
                _ => {}
            }
            0
        }
    });
    let on = |cpu: &str| on_cpus(hog("p", 10), cpu);
    let scenario = scenario(2, vec![on("0"), on("1"), on("1"), on("1")]);
    run_checked(scenario, policy).is_done();
    assert_eq!(waiting.take(), [(0, 1)]);
}

/// `finish_dispatch()` has the lock of the CPU that dispatches, whichever CPU the task was on.
#[test]
fn dequeue_by_a_dispatch_to_the_global_dsq_holds_the_dispatchers_run_queue() {
    let waiting = Rc::new(RefCell::new(Vec::new()));
    let kept = waiting.clone();
    let ops = [SelectCpu, Enqueue, Dispatch, Dequeue];
    let policy = Stub::new(&ops, move |a, op| {
        let kept = kept.clone();
        async move {
            match op {
                // Task 3 is CPU 0's, and the policy's own.
                OpCall::SelectCpu { .. } => return 0,
                OpCall::Enqueue { task, .. } if task != TaskId(3) => {
                    a.insert(task, dsq_id::LOCAL, 1_000_000_000, 0).await;
                }
                OpCall::Dispatch { cpu, .. } if cpu.0 == 1 => {
                    a.insert(TaskId(3), dsq_id::GLOBAL, 1_000_000_000, 0).await;
                }
                OpCall::Dequeue { .. } => {
                    let nr = a.nr_queued(dsq_id::LOCAL).await;
                    kept.borrow_mut().push((a.cpu(), nr));
                }
                _ => {}
            }
            0
        }
    });
    // Of CPU 0's own tasks one waits.
    let on = |cpu: &str, ms| on_cpus(hog("p", ms), cpu);
    let tasks = vec![on("0", 10), on("0", 10), on("1", 1), hog("p", 1)];
    run_checked(scenario(2, tasks), policy).is_done();
    assert_eq!(waiting.take(), [(1, 0)]);
}
