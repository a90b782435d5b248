//! Idle tracking and the default choice of a CPU.

use std::cell::RefCell;
use std::rc::Rc;

use schedlab_machine::{Machine, Topology};
use schedlab_trace::{CpuId, CpuSet, Event, TaskId};

use crate::contract::consts::{dsq_id, ops, pick_idle, wake};
use crate::contract::policy::OpKind::*;
use crate::contract::policy::{OpCall, Reply, Request};
use crate::state::costs::Costs;
use crate::state::cpu::Cpu;
use crate::state::idle::IdleMasks;
use crate::testing::*;
use crate::{ExitKind, KernelVersion, run};

/// A machine of this shape.
fn shaped(nodes: u32, llcs: u32, cores: u32, threads: u32) -> Machine {
    let mut machine = machine(1);
    machine.topology = Topology::new(nodes, llcs, cores, threads);
    machine
}

/// Which CPU a task that ran on `prev` gets when only `idle` are idle.
fn choice(
    machine: &Machine,
    idle: &str,
    prev: u32,
    flags: u64,
    sync_from: Option<u32>,
) -> Option<u32> {
    let all = CpuSet::all(machine.topology.nr_cpus());
    let version = KernelVersion::V7_2;
    choice_among(version, machine, &all, idle, prev, flags, sync_from)
}

/// The same for a task that may run on `allowed` only.
fn choice_among(
    version: KernelVersion,
    machine: &Machine,
    allowed: &CpuSet,
    idle: &str,
    prev: u32,
    flags: u64,
    sync_from: Option<u32>,
) -> Option<u32> {
    let nr_cpus = machine.topology.nr_cpus();
    let all = CpuSet::all(nr_cpus);
    let idle = match idle {
        "" => CpuSet::empty(nr_cpus),
        list => list.parse::<CpuSet>().unwrap().resized(nr_cpus),
    };
    let mut masks = IdleMasks::new(machine);
    masks.enable(version, false, flags, &all);
    for cpu in all.iter().filter(|&cpu| !idle.contains(cpu)) {
        masks.test_and_clear(cpu);
    }
    let this = Cpu::new(
        CpuId(sync_from.unwrap_or(prev)),
        machine,
        &Costs::new(machine),
    );
    let wake_flags = if sync_from.is_some() {
        crate::contract::consts::wake::SYNC
    } else {
        0
    };
    masks
        .select(
            &this,
            CpuId(prev),
            allowed.contains(CpuId(prev)),
            wake_flags,
            allowed,
            *allowed == all,
            0,
            false,
            0,
        )
        .map(|cpu| cpu.0)
}

#[test]
fn the_order_of_preference() {
    // 2 nodes, 2 caches each, 2 cores each, 2 threads: CPUs 0-7 are first threads, 8-15 second ones.
    let machine = shaped(2, 2, 2, 2);
    for (idle, prev, expected, why) in [
        ("0-15", 5, Some(5), "the previous CPU on an idle core"),
        (
            "3,5,13",
            3,
            Some(5),
            "an idle core rather than the previous CPU's thread",
        ),
        ("1,9,4,12", 0, Some(1), "an idle core of the same cache"),
        ("2,10,4,12", 0, Some(2), "an idle core of the same node"),
        ("6,14", 0, Some(6), "any idle core"),
        ("0,3", 0, Some(0), "the previous CPU"),
        ("8,3", 0, Some(8), "its sibling"),
        ("1,2,5", 0, Some(1), "the same cache"),
        ("2,5", 0, Some(2), "the same node"),
        ("5", 0, Some(5), "anywhere"),
        ("", 0, None, "nowhere"),
    ] {
        assert_eq!(choice(&machine, idle, prev, 0, None), expected, "{why}");
    }
    let few: CpuSet = "0-3".parse::<CpuSet>().unwrap().resized(16);
    let new = KernelVersion::V7_2;
    let among = |idle| choice_among(new, &machine, &few, idle, 0, 0, None);
    assert_eq!(among("3,5"), Some(3), "where it may run");
    assert_eq!(among("5,15"), None, "nowhere where it may run");
    let all = CpuSet::all(16);
    let old = KernelVersion::V6_18;
    let before = |idle| choice_among(old, &machine, &all, idle, 0, 0, None);
    assert_eq!(before("1,8"), Some(1), "6.18 does not ask for the sibling");
}

/// The answer to the policy's `request` as its second task is enqueued: no CPU idles then.
fn asked_when_busy(machine: Machine, version: KernelVersion, request: Request) -> Vec<Reply> {
    let replies = Rc::new(RefCell::new(Vec::new()));
    let kept = replies.clone();
    let policy = Stub::new(&[Enqueue], move |a, op| {
        let (kept, request) = (kept.clone(), request.clone());
        async move {
            if let OpCall::Enqueue { task, .. } = op {
                let reply = a.ask(request).await;
                kept.borrow_mut().push(reply);
                a.insert(task, dsq_id::GLOBAL, 1_000_000, 0).await;
            }
            0
        }
    });
    let nr_cpus = machine.topology.nr_cpus();
    let tasks = (0..nr_cpus as u64 * 2).map(|_| hog("p", 3)).collect();
    let mut scenario = crate::Scenario::new(machine, workload(Vec::new(), tasks), 1);
    scenario.version = version;
    let policy = policy.flags(ops::BUILTIN_IDLE_PER_NODE);
    let checked = run_checked(scenario, policy);
    assert_eq!(checked.end.exit.kind, crate::ExitKind::Done);
    replies.take()
}

/// `scx_bpf_pick_any_cpu_node()` with `SCX_PICK_IDLE_IN_NODE` stays in the node where nothing idles, too.
#[test]
fn any_cpu_of_a_node_is_of_that_node() {
    let picks = |flags| {
        let request = Request::PickCpu {
            allowed: CpuSet::all(8),
            node: Some(1),
            flags,
            any: true,
        };
        let replies = asked_when_busy(shaped(2, 1, 4, 1), KernelVersion::V7_2, request);
        let cpu = |reply| match reply {
            Reply::Int(cpu) => cpu,
            reply => panic!("{reply:?}"),
        };
        replies.into_iter().map(cpu).collect::<Vec<_>>()
    };
    assert!(
        picks(pick_idle::IN_NODE)
            .iter()
            .all(|cpu| (4..8).contains(cpu))
    );
    assert!(picks(0).iter().any(|cpu| (0..4).contains(cpu)));
}

#[test]
fn a_sync_wakeup_pulls_the_wakee() {
    let machine = shaped(1, 2, 4, 1);
    // CPU 6 idles in the other cache: the system is not full, so the wakee comes to the waker.
    assert_eq!(choice(&machine, "6", 1, 0, Some(2)), Some(2));
    // The previous CPU shares the waker's cache and idles.
    assert_eq!(choice(&machine, "1,6", 1, 0, Some(2)), Some(1));
}

#[test]
fn one_mask_per_node_begins_at_home() {
    let machine = shaped(4, 1, 2, 1);
    let flags = ops::BUILTIN_IDLE_PER_NODE;
    assert_eq!(choice(&machine, "0,5", 4, flags, None), Some(5));
    assert_eq!(choice(&machine, "0", 4, flags, None), Some(0));
}

#[test]
fn update_idle_tells_each_change_once() {
    let policy = Stub::fifo(&[UpdateIdle]).flags(ops::KEEP_BUILTIN_IDLE);
    let tasks = (0..3).map(|_| periodic("p", 100, 1_000, 10)).collect();
    let checked = run_checked(scenario(2, tasks), policy);
    let mut idle = [true; 2];
    for (at, op) in checked.ops(UpdateIdle) {
        let OpCall::UpdateIdle { cpu, idle: now } = op else {
            unreachable!()
        };
        assert_ne!(idle[cpu.index()], now, "at {at} ns on cpu {cpu}");
        idle[cpu.index()] = now;
    }
    assert!(checked.ops(UpdateIdle).len() >= 20);
}

#[test]
fn a_wakeup_on_an_idle_cpu_interrupts_it() {
    use schedlab_trace::Duration;
    use schedlab_workload::{Action, ObjectId, ObjectSpec};
    let writer = on_cpus(
        task("writer", |n, _| {
            (n < 40).then(|| match n % 2 {
                0 => Action::Compute(Duration::from_us(100)),
                _ => Action::Write {
                    to: ObjectId(0),
                    bytes: 1,
                },
            })
        }),
        "0",
    );
    let reader = on_cpus(
        task("reader", |n, _| {
            (n < 20).then_some(Action::Read {
                from: ObjectId(0),
                limit: 1,
            })
        }),
        "1",
    );
    let pipe = vec![ObjectSpec::Pipe { capacity: 100 }];
    let scenario = crate::Scenario::new(machine(2), workload(pipe, vec![writer, reader]), 1);
    let checked = run_checked(scenario, Stub::minimal());
    let ipis = checked
        .events
        .iter()
        .filter(|(_, _, event)| matches!(event, Event::Ipi { .. }));
    assert_eq!(ipis.count(), 20);
    assert_eq!(checked.ran_on(1), [1; 21]);
}

/// A CPU whose policy code takes a millisecond at once is ahead of its sibling: what the sibling does
/// in that time must not wait for it.
#[test]
fn a_sibling_is_not_dragged_along() {
    use schedlab_machine::Topology;
    use schedlab_trace::{Duration, Event};
    use schedlab_workload::Action;
    let policy = Stub::new(
        &[crate::contract::policy::OpKind::Running],
        |a, op| async move {
            if let OpCall::Running { task } = op
                && task.0 == 1
            {
                a.spend(1_000_000);
            }
            0
        },
    );
    let worker = task("w", |n, _| {
        (n < 400).then(|| match n % 2 {
            0 => Action::Compute(Duration::from_us(100)),
            _ => Action::Work(1),
        })
    });
    let tasks = vec![
        on_cpus(worker, "0"),
        on_cpus(periodic("p", 50, 300, 20), "1"),
    ];
    let mut scenario = scenario(2, tasks);
    scenario.machine.topology = Topology::new(1, 1, 1, 2);
    let checked = run_checked(scenario, policy);
    let works: Vec<u64> = checked
        .events
        .iter()
        .filter(|(_, _, event)| matches!(event, Event::Work { .. }))
        .map(|&(at, _, _)| at)
        .collect();
    assert_eq!(works.len(), 200);
    let longest = works.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(longest < Some(400_000), "{longest:?}");
}

/// A task that may run on CPU 1 only, and a policy that names CPU 0 as its previous one.
#[test]
fn a_task_with_one_cpu_gets_that_one() {
    let answer = |version, allowed: &'static str| {
        let replies = Rc::new(RefCell::new(Vec::new()));
        let kept = replies.clone();
        let policy = Stub::new(&[Enqueue], move |a, op| {
            let kept = kept.clone();
            async move {
                if let OpCall::Enqueue { task, .. } = op {
                    let request = Request::SelectCpuAnd {
                        task,
                        prev_cpu: 0,
                        wake_flags: 0,
                        allowed: allowed.parse::<CpuSet>().unwrap().resized(2),
                        flags: 0,
                    };
                    let reply = a.ask(request).await;
                    kept.borrow_mut().push(reply);
                    a.insert(task, dsq_id::LOCAL, 1_000_000, 0).await;
                }
                0
            }
        });
        let mut scenario = scenario(2, vec![on_cpus(hog("p", 1), "1")]);
        scenario.version = version;
        run_checked(scenario, policy);
        replies.take()[0].clone()
    };
    let busy = -crate::contract::consts::errno::EBUSY;
    let (new, old) = (KernelVersion::V7_2, KernelVersion::V6_18);
    assert_eq!(answer(new, "0-1"), Reply::Int(1));
    assert_eq!(answer(new, "0"), Reply::Int(busy));
    assert_eq!(answer(old, "0-1"), Reply::Int(0));
    assert_eq!(answer(old, "1"), Reply::Int(busy));
}

/// A task's only CPU may be the machine's only one.
#[test]
fn the_only_cpu_is_found_idle() {
    let found: Rc<RefCell<Vec<(i32, bool)>>> = Rc::default();
    let noted = found.clone();
    let policy = Stub::new(&[Enqueue], move |a, op| {
        let noted = noted.clone();
        async move {
            if let OpCall::Enqueue { task, .. } = op {
                let request = Request::SelectCpuDfl {
                    task,
                    prev_cpu: 0,
                    wake_flags: 0,
                };
                let Reply::Cpu(cpu, idle) = a.ask(request).await else {
                    panic!("a CPU")
                };
                noted.borrow_mut().push((cpu, idle));
                a.insert(task, dsq_id::GLOBAL, 1_000_000, 0).await;
            }
            0
        }
    });
    run_checked(scenario(1, vec![periodic("p", 3, 100, 100)]), policy).is_done();
    assert!(found.borrow().contains(&(0, true)), "{found:?}");
}

/// A task that the op is not about is refused in the words of `scx_kf_arg_task_ok()`. In Linux 6.18
/// `select_cpu_from_kfunc()` does not look whose CPU is asked for.
#[test]
fn a_cpu_is_selected_for_the_ops_own_task() {
    let exit = |version| {
        let policy = Stub::new(&[SelectCpu], |a, op| async move {
            let OpCall::SelectCpu { prev_cpu, .. } = op else {
                return 0;
            };
            let request = Request::SelectCpuDfl {
                task: TaskId(9),
                prev_cpu: 0,
                wake_flags: 0,
            };
            a.ask(request).await;
            i64::from(prev_cpu.0)
        });
        let tasks = (0..10).map(|_| hog("p", 1)).collect();
        let mut scenario = scenario(2, tasks);
        scenario.version = version;
        run(scenario, policy, ()).exit
    };
    let refused = exit(KernelVersion::V7_2);
    assert_eq!(refused.kind, ExitKind::Error);
    assert_eq!(refused.message, "called on a task not being operated on");
    assert_eq!(exit(KernelVersion::V6_18).kind, ExitKind::Done);
}

/// Where an op other than ops.select_cpu() holds the lock of a run queue only its tasks may be asked for.
#[test]
fn no_cpu_is_selected_for_a_task_of_another_run_queue() {
    let policy = Stub::new(&[Enqueue], |a, op| async move {
        if let OpCall::Enqueue { task, .. } = op {
            let request = Request::SelectCpuDfl {
                task: TaskId(0),
                prev_cpu: 0,
                wake_flags: 0,
            };
            a.ask(request).await;
            a.insert(task, dsq_id::LOCAL, 1_000_000, 0).await;
        }
        0
    });
    let tasks = vec![on_cpus(hog("p", 5), "0"), on_cpus(hog("q", 5), "1")];
    let exit = run(scenario(2, tasks), policy, ()).exit;
    let message = "select_cpu kfunc called cross-task on p[1000]";
    assert_eq!((exit.kind, &*exit.message), (ExitKind::Error, message));
}

/// The answer to a policy's ops.enqueue() for its task, which may run on `allowed`, in a version.
fn asked_in_enqueue(version: KernelVersion, allowed: &str, request: Request) -> Reply {
    let replies = Rc::new(RefCell::new(Vec::new()));
    let kept = replies.clone();
    let policy = Stub::new(&[SelectCpu, Enqueue], move |a, op| {
        let (kept, request) = (kept.clone(), request.clone());
        async move {
            if let OpCall::SelectCpu { prev_cpu, .. } = op {
                return i64::from(prev_cpu.0);
            }
            if let OpCall::Enqueue { task, .. } = op {
                let reply = a.ask(request).await;
                kept.borrow_mut().push(reply);
                a.insert(task, dsq_id::LOCAL, 1_000_000, 0).await;
            }
            0
        }
    });
    let mut scenario = scenario(3, vec![on_cpus(hog("p", 1), allowed)]);
    scenario.version = version;
    run_checked(scenario, policy).is_done();
    replies.take()[0].clone()
}

/// Linux 6.18: `scx_select_cpu_dfl()` looks at the idle CPUs of the waker's node (`cpu_to_node()`) also where they
/// are not kept per node: it finds none, and no task is woken on the waker's CPU.
#[test]
fn the_older_kernel_wakes_nobody_on_the_wakers_cpu() {
    let request = || Request::SelectCpuDfl {
        task: TaskId(0),
        prev_cpu: 1,
        wake_flags: wake::SYNC,
    };
    let chosen = |version| asked_in_enqueue(version, "0,2", request());
    assert_eq!(chosen(KernelVersion::V7_2), Reply::Cpu(0, true));
    assert_eq!(chosen(KernelVersion::V6_18), Reply::Cpu(2, true));
}

/// Linux 6.18: `scx_select_cpu_dfl()` looks for the previous CPU in the given mask, not in the part of it that the
/// task may use.
#[test]
fn the_older_kernel_takes_the_previous_cpu_where_the_task_may_not_run() {
    let request = || Request::SelectCpuAnd {
        task: TaskId(0),
        prev_cpu: 2,
        wake_flags: 0,
        allowed: "1-2".parse::<CpuSet>().unwrap().resized(3),
        flags: 0,
    };
    let chosen = |version| asked_in_enqueue(version, "0-1", request());
    assert_eq!(chosen(KernelVersion::V7_2), Reply::Int(1));
    assert_eq!(chosen(KernelVersion::V6_18), Reply::Int(2));
}

/// With masks per node 6.18 wakes on the waker's CPU, too, which stays as idle as it was: it does not claim it.
#[test]
fn the_older_kernel_does_not_claim_the_wakers_cpu() {
    let woken = |version| {
        let machine = shaped(1, 1, 2, 1);
        let all = CpuSet::all(2);
        let mut masks = IdleMasks::new(&machine);
        masks.enable(version, false, ops::BUILTIN_IDLE_PER_NODE, &all);
        let waker = Cpu::new(CpuId(0), &machine, &Costs::new(&machine));
        let (prev, sync) = (CpuId(1), wake::SYNC);
        // No other CPU idles in the node, and the task may not go back where it was.
        masks.test_and_clear(prev);
        let cpu = masks.select(&waker, prev, false, sync, &all, true, 0, false, 0);
        (cpu, masks.test_and_clear(CpuId(0)))
    };
    assert_eq!(woken(KernelVersion::V7_2), (Some(CpuId(0)), false));
    assert_eq!(woken(KernelVersion::V6_18), (Some(CpuId(0)), true));
}
