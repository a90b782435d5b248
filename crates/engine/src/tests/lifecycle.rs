//! The order of a task's ops, and what runs without any.

use std::cell::RefCell;
use std::rc::Rc;

use schedlab_trace::{Duration, Instant, TaskId};
use schedlab_workload::{Action, CgroupId};

use crate::contract::consts::{SLICE_DFL, dsq_id, enq, ops};
use crate::contract::policy::OpKind::{self, *};
use crate::contract::policy::{OpCall, Reply, Request, TimerId};
use crate::testing::*;
use crate::{ExitKind, KernelVersion, Scenario, WorkloadFailure, run};

#[test]
fn without_ops_tasks_run_by_the_global_queue() {
    let end = run_checked(
        scenario(2, (0..5).map(|_| periodic("p", 50, 200, 10)).collect()),
        Stub::minimal(),
    )
    .end;
    assert_eq!(end.exit.kind, ExitKind::Done, "{:?}", end.exit);
    assert_eq!(end.failure, None);
    assert!(end.makespan.is_some());
    assert!(end.switches >= 50, "{}", end.switches);
}

#[test]
fn a_task_that_sleeps_once_has_this_life() {
    let checked = run_checked(
        scenario(1, vec![periodic("p", 50, 200, 1)]),
        Stub::fifo(ALL_TASK_OPS),
    );
    let expected: &[OpKind] = &[
        InitTask, Enable, SetWeight, SetCpumask,
        // On one CPU there is nothing to select.
        Runnable, Enqueue, Dequeue, Running, Stopping, Quiescent, Runnable, Enqueue, Dequeue,
        Running, Stopping, Quiescent, Disable, ExitTask,
    ];
    assert_eq!(checked.life(0), expected);
}

/// `ops.exit_task()` of the last task lies after the last event of the executor's clock.
#[test]
fn the_run_lasts_until_its_last_task_is_gone() {
    let ends = |exit_ns: u64| {
        let policy = Stub::new(&[ExitTask], move |a, op| async move {
            if let OpCall::ExitTask { .. } = op {
                a.spend(exit_ns);
            }
            0
        });
        let checked = run_checked(scenario(2, vec![hog("p", 1)]), policy);
        let idle = checked.events.iter().find_map(|&(at, cpu, event)| {
            (cpu == 1 && event == schedlab_trace::Event::End).then_some(at)
        });
        let end = checked.end;
        [end.makespan.unwrap().ns(), end.end.ns(), idle.unwrap()]
    };
    let (short, long) = (ends(0), ends(1_000_000));
    // The task computes a millisecond, and leaving takes another one.
    assert!(short[0] >= 1_000_000);
    assert_eq!(long, short.map(|ns| ns + 1_000_000));
    // CPU 1 idles to the end.
    assert_eq!(short, [short[0]; 3]);
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let once = || {
        let tasks = (0..20)
            .map(|n| periodic("p", 30 + n, 100 + 7 * n, 20))
            .collect();
        run_checked(scenario(4, tasks), Stub::fifo(&[SelectCpu])).events
    };
    assert_eq!(once(), once());
}

#[test]
fn a_run_without_a_recorder_is_the_same_run() {
    let tasks = || {
        (0..20)
            .map(|n| periodic("p", 30 + n, 100 + 7 * n, 20))
            .collect()
    };
    let recorded = run_checked(scenario(4, tasks()), Stub::fifo(&[])).end;
    let silent = run(scenario(4, tasks()), Stub::fifo(&[]), ());
    assert_eq!(recorded.end, silent.end);
    assert_eq!(recorded.switches, silent.switches);
}

#[test]
fn unloading_takes_tasks_off_their_queues_first() {
    let mut scenario = scenario(1, vec![hog("p", 100), hog("q", 100)]);
    scenario.workload.duration = Some(Duration::from_ms(3));
    let checked = run_checked(scenario, Stub::fifo(ALL_TASK_OPS));
    let running: &[OpKind] = &[
        InitTask, Enable, SetWeight, SetCpumask, Runnable, Enqueue, Dequeue, Running, Stopping,
        Quiescent, Disable, ExitTask,
    ];
    assert_eq!(checked.life(0), running);
    let stopped = checked.ops(Stopping);
    assert!(
        matches!(
            stopped[..],
            [(
                _,
                OpCall::Stopping {
                    runnable: false,
                    ..
                }
            )]
        ),
        "{stopped:?}"
    );
    let waiting: &[OpKind] = &[
        InitTask, Enable, SetWeight, SetCpumask, Runnable, Enqueue, Dequeue, Quiescent, Disable,
        ExitTask,
    ];
    assert_eq!(checked.life(1), waiting);
}

/// `SCX_DSQ_LOCAL` belongs to the run queue whose lock the op holds: the task's, whichever CPU calls it.
#[test]
fn tasks_come_and_go_under_the_lock_of_their_run_queue() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let noted = seen.clone();
    let ops = [Enqueue, Enable, Disable, ExitTask];
    let policy = Stub::new(&ops, move |a, op| {
        let seen = noted.clone();
        async move {
            match op {
                OpCall::Enqueue { task, .. } => a.insert(task, local_on(1), 1_000_000, 0).await,
                OpCall::Disable { .. } | OpCall::ExitTask { .. } => {
                    let nr = a.nr_queued(dsq_id::LOCAL).await;
                    seen.borrow_mut().push(nr);
                }
                _ => {}
            }
            0
        }
    });
    let tasks = (0..3).map(|_| on_cpus(hog("p", 50), "1")).collect();
    let mut scenario = scenario(2, tasks);
    scenario.workload.duration = Some(Duration::from_ms(10));
    run_checked(scenario, policy).is_done();
    // The first two wait and the third runs when the policy is unloaded, on CPU 0.
    assert_eq!(*seen.borrow(), [1, 1, 0, 0, 0, 0]);
}

#[test]
fn a_refused_fork_ends_the_run_and_is_told() {
    let policy = Stub::new(&[InitTask, ExitTask], |_, op| async move {
        match op {
            OpCall::InitTask { fork: true, .. } => -12,
            _ => 0,
        }
    });
    let mut late = hog("late", 1);
    late.start = Instant::from_ns(1_000_000);
    let checked = run_checked(scenario(1, vec![hog("p", 2), late]), policy);
    let Some(WorkloadFailure::ForkRefused { task, errno: -12 }) = &checked.end.failure else {
        panic!("{:?}", checked.end.failure);
    };
    assert!(task.starts_with("late"), "{task}");
    assert_eq!(checked.life(1), [InitTask]);
    assert_eq!(checked.end.makespan, None);
}

/// In 7.2 a task belongs to the policy from when `ops.init_task()` has returned; what 6.18 lets it set there stays, except
/// for the slices of tasks that are there already when the policy is loaded.
#[test]
fn what_init_task_may_set() {
    let seen = |version| {
        let answers = Rc::new(RefCell::new(Vec::new()));
        let kept = answers.clone();
        let policy = Stub::new(&[InitTask, Enable], move |a, op| {
            let kept = kept.clone();
            async move {
                match op {
                    OpCall::InitTask { task, .. } => {
                        assert_eq!(a.slice(task), SLICE_DFL);
                        let slice = 5_000_000;
                        let set = Request::TaskSetSlice { task, slice };
                        let reply = a.ask(set).await;
                        kept.borrow_mut().push((task.0, reply == Reply::Bool(true)));
                    }
                    OpCall::Enable { task } => {
                        let slice = a.slice(task);
                        kept.borrow_mut().push((task.0, slice == 5_000_000));
                    }
                    _ => {}
                }
                0
            }
        });
        let mut late = hog("late", 1);
        late.start = Instant::from_ns(500_000);
        let mut scenario = scenario(1, vec![hog("p", 1), late]);
        scenario.version = version;
        run_checked(scenario, policy);
        answers.take()
    };
    let (no, yes) = (false, true);
    assert_eq!(
        seen(KernelVersion::V7_2),
        [(0, no), (0, no), (1, no), (1, no)]
    );
    assert_eq!(
        seen(KernelVersion::V6_18),
        [(0, yes), (0, no), (1, yes), (1, yes)]
    );
}

/// `bpf_timer_start()` with `BPF_F_TIMER_ABS` names a time of the clock, one that has passed being now.
#[test]
fn timers_expire_after_a_while_or_at_a_time() {
    let expires = |ns, flags| {
        let policy = Stub::new(&[Running], move |a, op| async move {
            if let OpCall::Running { .. } = op {
                let timer = TimerId(0);
                a.ask(Request::TimerStart { timer, ns, flags }).await;
            }
            0
        });
        let mut late = hog("p", 10);
        late.start = Instant::from_ns(3_000_000);
        let checked = run_checked(scenario(1, vec![late]), policy);
        let log = checked.end.policy.log.borrow();
        let fired = log
            .iter()
            .find(|(_, _, op)| matches!(op, OpCall::TimerCallback { .. }));
        fired.expect("the timer expires").0 / 100_000
    };
    // In tenths of a millisecond; the task runs from 3 ms on.
    assert_eq!(expires(5_000_000, 0), 80);
    assert_eq!(expires(5_000_000, 1), 50);
    assert_eq!(expires(1_000_000, 1), 30);
}

/// The root cgroup comes before its tasks and goes before them; who breaks a rule is asked for a dump first.
#[test]
fn the_cgroup_and_the_dump() {
    let ops = [
        CgroupInit, InitTask, Running, Dump, DumpCpu, DumpTask, CgroupExit, ExitTask, Exit,
    ];
    let policy = Stub::new(&ops, |a, op| async move {
        if let OpCall::Running { .. } = op {
            let message = "enough".to_owned();
            a.ask(Request::Error { message }).await;
        }
        0
    });
    let end = run(scenario(2, vec![hog("p", 5)]), policy, ());
    let log = end.policy.log.borrow();
    let kinds: Vec<OpKind> = log.iter().map(|(.., op)| op.kind()).collect();
    let expected: &[OpKind] = &[
        CgroupInit, InitTask, Running, Dump, DumpCpu, DumpTask, DumpCpu, CgroupExit, ExitTask, Exit,
    ];
    assert_eq!(kinds, expected);
    let idle: Vec<bool> = log
        .iter()
        .filter_map(|(.., op)| match op {
            OpCall::DumpCpu { context, idle, .. } => {
                assert_eq!(context.kind, ExitKind::ErrorBpf);
                Some(*idle)
            }
            _ => None,
        })
        .collect();
    assert_eq!(idle, [false, true]);
}

/// The calls for cgroups, as `init 1`, `move 0 2`.
fn cgroup_calls(policy: &Stub) -> Vec<String> {
    let log = policy.log.borrow();
    let calls = log.iter().filter_map(|(.., op)| match *op {
        OpCall::CgroupInit { cgroup } => Some(format!("init {}", cgroup.0)),
        OpCall::CgroupExit { cgroup } => Some(format!("exit {}", cgroup.0)),
        OpCall::CgroupPrepMove { from, to, .. } => Some(format!("prepare {} {}", from.0, to.0)),
        OpCall::CgroupMove { from, to, .. } => Some(format!("move {} {}", from.0, to.0)),
        OpCall::CgroupSetWeight { cgroup, weight } => Some(format!("weight {} {weight}", cgroup.0)),
        OpCall::CgroupSetBandwidth { cgroup, bandwidth } => {
            let burst_us = bandwidth.burst.ns() / 1_000;
            Some(format!("limit {} {bandwidth} {burst_us}", cgroup.0))
        }
        OpCall::CgroupSetIdle { cgroup, idle } => Some(format!("idle {} {idle}", cgroup.0)),
        OpCall::Quiescent { .. } => Some("quiescent".to_owned()),
        OpCall::Runnable { .. } => Some("runnable".to_owned()),
        _ => None,
    });
    calls.collect()
}

/// A task of two cgroups: it joins `/a/b` and then `/c`, and joins that once more.
fn in_cgroups() -> Scenario {
    let text = "cpu:tasks=1,cgroup=/a/b,cpu.weight=50,cpu.max=20ms/100ms,cpu.max.burst=10ms + cpu:tasks=1,cgroup=/c,cpu.max=5ms/10ms,cpu.idle=true";
    let groups = schedlab_workload::Workload::parse(text, 1).unwrap().cgroups;
    let moves = task("p", |step, _| match step {
        0 => Some(Action::JoinCgroup(CgroupId(2))),
        2 | 3 => Some(Action::JoinCgroup(CgroupId(3))),
        1 | 4 => Some(Action::Compute(Duration::from_us(100))),
        _ => None,
    });
    let mut scenario = scenario(1, vec![moves]);
    scenario.workload.cgroups = groups;
    scenario
}

const CGROUP_OPS: [OpKind; 9] = [
    CgroupInit,
    CgroupExit,
    CgroupPrepMove,
    CgroupMove,
    CgroupSetWeight,
    CgroupSetBandwidth,
    CgroupSetIdle,
    Quiescent,
    Runnable,
];

#[test]
fn cgroups_come_with_default_settings_and_go_after_their_descendants() {
    let policy = Stub::new(&CGROUP_OPS, |_, _| async { 0 });
    let end = run(in_cgroups(), policy, ());
    assert_eq!(end.exit.kind, ExitKind::Done);
    let expected = [
        "init 0",
        "init 1",
        "init 2",
        "weight 2 50",
        // As a program that writes cpu.max and then cpu.max.burst.
        "limit 2 20000 100000 0",
        "limit 2 20000 100000 10000",
        "init 3",
        "limit 3 5000 10000 0",
        "idle 3 true",
        "runnable",
        // A move takes the task off its queue, and brings it back.
        "prepare 0 2",
        "quiescent",
        "move 0 2",
        "runnable",
        "prepare 2 3",
        "quiescent",
        "move 2 3",
        "runnable",
        "quiescent",
        "exit 2",
        "exit 1",
        "exit 3",
        "exit 0",
    ];
    assert_eq!(cgroup_calls(&end.policy), expected);
}

/// The table of 6.18 has no such member.
#[test]
fn the_older_kernel_does_not_tell_that_a_cgroup_is_idle() {
    let policy = Stub::new(&CGROUP_OPS, |_, _| async { 0 });
    let mut scenario = in_cgroups();
    scenario.version = KernelVersion::V6_18;
    let end = run(scenario, policy, ());
    let calls = cgroup_calls(&end.policy);
    assert!(calls.contains(&"limit 3 5000 10000 0".to_owned()));
    assert!(
        !calls.iter().any(|call| call.starts_with("idle")),
        "{calls:?}"
    );
}

/// `sched_move_task()` ends with `resched_curr()` for a task that runs: whose slice `ops.cgroup_move()` has ended leaves its CPU
/// at once, not at the next tick.
#[test]
fn a_running_task_that_moves_is_rescheduled() {
    let policy = Stub::new(&[CgroupMove, Dispatch], |a, op| async move {
        if let OpCall::CgroupMove { task, .. } = op {
            let slice = 0;
            a.ask(Request::TaskSetSlice { task, slice }).await;
        }
        0
    });
    let moves = task("p", |step, _| match step {
        0 => Some(Action::JoinCgroup(CgroupId(1))),
        1 => Some(Action::Compute(Duration::from_ms(20))),
        _ => None,
    });
    let mut scenario = scenario(1, vec![moves]);
    let text = "cpu:tasks=1,cgroup=/a";
    scenario.workload.cgroups = schedlab_workload::Workload::parse(text, 1).unwrap().cgroups;
    let end = run(scenario, policy, ());
    let log = end.policy.log.borrow();
    let mut from_move = log
        .iter()
        .skip_while(|(.., op)| op.kind() != CgroupMove)
        .map(|&(at, _, op)| (at, op.kind()));
    let (moved, _) = from_move.next().expect("it moves");
    let (dispatched, _) = from_move.next().expect("its CPU dispatches");
    assert!(dispatched - moved < 100_000, "{moved} {dispatched}");
}

#[test]
fn a_move_or_a_cgroup_that_the_policy_refuses_ends_the_workload() {
    let refusing = |refused: OpKind| {
        Stub::new(&CGROUP_OPS, move |_, op| async move {
            let is_root = matches!(
                op,
                OpCall::CgroupInit {
                    cgroup: CgroupId::ROOT
                }
            );
            if op.kind() == refused && !is_root {
                -22
            } else {
                0
            }
        })
    };
    let end = run(in_cgroups(), refusing(CgroupInit), ());
    let failure = end
        .failure
        .map(|failure| failure.to_string())
        .unwrap_or_default();
    assert_eq!(
        failure,
        "the workload cannot make a cgroup: ops.cgroup_init() refused /a with -22; the policy must take every cgroup"
    );
    // The workload does not begin.
    assert_eq!(cgroup_calls(&end.policy), ["init 0", "init 1", "exit 0"]);
    let end = run(in_cgroups(), refusing(CgroupPrepMove), ());
    let failure = end
        .failure
        .map(|failure| failure.to_string())
        .unwrap_or_default();
    assert!(
        failure.starts_with("p[")
            && failure
                .contains("cannot join its cgroup: ops.cgroup_prep_move() refused /a/b with -22"),
        "{failure}"
    );
}

/// A policy that ends as it refuses a cgroup or a move ended the run, not the workload.
#[test]
fn the_end_of_a_policy_that_refuses_says_why() {
    for refused in [CgroupInit, CgroupPrepMove] {
        for (has_error, ret) in [(false, 1), (true, -12)] {
            let policy = Stub::new(&CGROUP_OPS, move |a, op| async move {
                let cgroup = CgroupId::ROOT;
                if op.kind() != refused || op == (OpCall::CgroupInit { cgroup }) {
                    return 0;
                }
                if has_error {
                    let message = "no room".to_owned();
                    a.ask(Request::Error { message }).await;
                }
                ret
            });
            let end = run(in_cgroups(), policy, ());
            assert_eq!(end.failure, None);
            let expected = match has_error {
                true => "no room".to_owned(),
                false => format!("ops.{}() returned an invalid errno 1", refused.name()),
            };
            assert_eq!(end.exit.message, expected);
        }
    }
}

#[test]
fn a_cgroup_that_is_refused_ends_the_run() {
    let ops = [CgroupInit, InitTask, Dump, CgroupExit];
    let policy = Stub::new(&ops, |_, op| async move {
        match op {
            OpCall::CgroupInit { .. } => -12,
            _ => 0,
        }
    });
    let end = run(scenario(1, vec![hog("p", 5)]), policy, ());
    assert_eq!(end.exit.message, "ops.cgroup_init() failed (-12)");
    let log = end.policy.log.borrow();
    let kinds: Vec<_> = log.iter().map(|(_, _, op)| op.kind()).collect();
    // The ops are there before the cgroups are initialised (`has_op`), so that what fails there is dumped.
    assert_eq!(kinds, [CgroupInit, Dump]);
}

/// Before `ops.init()` has returned nothing is known of the ops (`has_op`), so that what fails there is not dumped.
#[test]
fn a_policy_that_fails_in_init_is_not_dumped() {
    let policy = Stub::new(&[Init, Dump, Exit], |_, op| async move {
        match op {
            OpCall::Init => -12,
            _ => 0,
        }
    });
    let end = run(scenario(1, vec![hog("p", 5)]), policy, ());
    assert_eq!(end.exit.message, "ops.init() failed (-12)");
    let log = end.policy.log.borrow();
    let kinds: Vec<_> = log.iter().map(|(.., op)| op.kind()).collect();
    assert_eq!(kinds, [Init, Exit]);
}

/// `validate_ops()` comes before the first task.
#[test]
fn a_table_that_is_not_valid_gets_no_tasks() {
    let policy = Stub::new(&[InitTask, Exit], |_, _| async { 0 }).flags(ops::ENQ_LAST);
    let end = run(scenario(1, vec![hog("p", 5)]), policy, ());
    assert_eq!(
        end.exit.message,
        "SCX_OPS_ENQ_LAST requires ops.enqueue() to be implemented"
    );
    let log = end.policy.log.borrow();
    let kinds: Vec<_> = log.iter().map(|(.., op)| op.kind()).collect();
    assert_eq!(kinds, [Exit]);
}

/// `scx_disable_and_exit_task()` ends the task's bond with its scheduler (`scx_set_task_sched(p, NULL)`).
#[test]
fn a_task_that_has_exited_is_nobodys() {
    let refused = Reply::Bool(false);
    let always = ops::ALWAYS_ENQ_IMMED;
    for (flags, dsq, enq_flags) in [
        (0, dsq_id::GLOBAL, 0),
        (0, dsq_id::LOCAL, enq::IMMED),
        (always, dsq_id::LOCAL, 0),
    ] {
        let answers = answers_about_the_dead(flags, dsq, enq_flags);
        assert_eq!(answers, (refused.clone(), refused.clone(), 7), "{flags:#x}");
    }
}

/// The answers to setting the slice of a task that has exited and to inserting it under these flags of the policy,
/// and the slice that it has then.
fn answers_about_the_dead(flags: u64, dsq: u64, enq_flags: u64) -> (Reply, Reply, u64) {
    let replies = Rc::new(RefCell::new(Vec::new()));
    let kept = replies.clone();
    let policy = Stub::new(&[Dispatch, ExitTask], move |a, op| {
        let kept = kept.clone();
        async move {
            if let OpCall::Dispatch { .. } = op
                && a.slice(TaskId(1)) == 7
            {
                let (task, slice) = (TaskId(1), 9);
                let set = a.ask(Request::TaskSetSlice { task, slice }).await;
                let insert = Request::DsqInsert {
                    task,
                    dsq,
                    slice,
                    enq_flags,
                };
                let inserted = a.ask(insert).await;
                kept.borrow_mut().push((set, inserted, a.slice(task)));
            }
            if let OpCall::ExitTask {
                task: TaskId(1), ..
            } = op
            {
                // After ops.disable() its fields are still the policy's.
                let (task, slice) = (TaskId(1), 7);
                a.ask(Request::TaskSetSlice { task, slice }).await;
            }
            0
        }
    });
    let tasks = vec![periodic("p", 50, 200, 20), hog("q", 1)];
    run_checked(scenario(1, tasks), policy.flags(flags)).is_done();
    replies.take().swap_remove(0)
}

/// `scx_root_enable_workfn()` looks at what ops.init() returns, not at whether the policy has ended itself: that counts
/// when everybody is enabled (`scx_tryset_enable_state()`).
#[test]
fn a_policy_that_ends_itself_in_init_still_gets_its_tasks() {
    let policy = Stub::new(
        &[Init, InitTask, Enable, Disable, ExitTask],
        |a, op| async move {
            if let OpCall::Init = op {
                let message = "early".to_owned();
                a.ask(Request::Error { message }).await;
            }
            0
        },
    );
    let end = run(scenario(1, vec![hog("p", 5)]), policy, ());
    assert_eq!(end.exit.message, "early");
    let log = end.policy.log.borrow();
    let kinds: Vec<_> = log.iter().map(|(_, _, op)| op.kind()).collect();
    assert_eq!(kinds, [Init, InitTask, Enable, Disable, ExitTask]);
}

/// Whatever ends the policy ends no fork and no exit: `scx_post_fork()` still calls ops.enable(), and `sched_ext_dead()`
/// ops.disable() and ops.exit_task().
#[test]
fn tasks_come_and_go_wholly_while_the_policy_ends() {
    let life = |ends: fn(&OpCall) -> bool| {
        let ops = [InitTask, Enable, SetWeight, Stopping, Disable, ExitTask];
        let policy = Stub::new(&ops, move |a, op| async move {
            if ends(&op) {
                let message = "enough".to_owned();
                a.ask(Request::Error { message }).await;
            }
            0
        });
        let mut late = hog("late", 1);
        late.start = Instant::from_ns(1_000_000);
        let end = run(scenario(2, vec![hog("p", 5), late]), policy, ());
        assert_eq!(end.exit.message, "enough");
        let log = end.policy.log.borrow();
        let of_late = log.iter().filter(|(.., op)| op.task() == Some(TaskId(1)));
        let kinds = of_late.map(|(.., op)| op.kind());
        kinds.filter(|&kind| kind != Stopping).collect::<Vec<_>>()
    };
    let whole = [InitTask, Enable, SetWeight, Disable, ExitTask];
    let in_fork = life(|op| matches!(op, OpCall::InitTask { fork: true, .. }));
    assert_eq!(in_fork, whole);
    let in_exit = life(|op| matches!(op, OpCall::Stopping { task, .. } if *task == TaskId(1)));
    assert_eq!(in_exit, whole);
}

/// Linux 6.18: `check_hotplug_seq()` ends the policy, but not its loading.
#[test]
fn a_policy_for_other_cpus_gets_its_tasks_in_the_older_kernel() {
    let kinds = |version| {
        let ops = [Init, InitTask, Enable, Disable, ExitTask, Exit];
        let mut policy = Stub::new(&ops, |_, _| async { 0 });
        policy.info.hotplug_seq = 3;
        let mut scenario = scenario(1, vec![hog("p", 5)]);
        scenario.version = version;
        let end = run(scenario, policy, ());
        assert_eq!(end.exit.kind, ExitKind::UnregKern);
        let told = "expected hotplug seq 3 did not match actual 0";
        assert_eq!(end.exit.message, told);
        let log = end.policy.log.borrow();
        log.iter().map(|(.., op)| op.kind()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(KernelVersion::V7_2), [Init, Exit]);
    let old: &[OpKind] = &[Init, InitTask, Enable, Disable, ExitTask, Exit];
    assert_eq!(kinds(KernelVersion::V6_18), old);
}

/// `bpf_scx_init_member()` refuses before there is a scheduler: nothing of it is ever called.
#[test]
fn a_refused_table_is_not_even_told_of_its_exit() {
    let policy = Stub::new(&[Exit], |_, _| async { 0 }).flags(1 << 40 | ops::ENQ_EXITING);
    let end = run(scenario(1, vec![hog("p", 5)]), policy, ());
    assert_eq!(
        end.exit.message,
        "flags 0x10000000000 are unknown to Linux 7.2"
    );
    assert_eq!(*end.policy.log.borrow(), []);
}

/// Linux 6.18: `scx_init_task()` minds `p->scx.disallow` of a forked task only where that asks for SCHED_EXT.
#[test]
fn the_older_kernel_lets_a_forked_task_be_disallowed() {
    let exit = |version| {
        let mut forked = hog("p", 1);
        forked.start = Instant::from_ns(1_000_000);
        let mut scenario = scenario(1, vec![hog("q", 5), forked]);
        scenario.version = version;
        let policy = Stub::new(&[InitTask], |_, _| async { 0 }).disallow(TaskId(1));
        run(scenario, policy, ()).exit.kind
    };
    assert_eq!(exit(KernelVersion::V7_2), ExitKind::Error);
    assert_eq!(exit(KernelVersion::V6_18), ExitKind::Done);
}
