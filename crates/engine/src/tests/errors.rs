//! The exit of a misbehaving policy: the kernel's exit kind and the kernel's text.

use crate::contract::consts::{dsq_id, enq, kick, ops};
use crate::contract::policy::{OpCall, OpKind, OpsInfo, Reply, Request};
use crate::testing::*;
use crate::{ExitKind, KernelVersion, run};

/// Runs a few tasks on two CPUs; the policy must be ejected with this kind and text.
fn ejects(policy: Stub, kind: ExitKind, message: &str) {
    let tasks = (0..3).map(|_| periodic("p", 50, 200, 50)).collect();
    let end = run(scenario(2, tasks), policy, ());
    assert_eq!((end.exit.kind, end.exit.message.as_str()), (kind, message));
    assert_eq!(end.exit.reason, kind.reason());
    assert_eq!(end.failure, None);
    let log = end.policy.log.borrow();
    let exits = log
        .iter()
        .filter(|(_, _, op)| op.kind() == OpKind::Exit)
        .count();
    let has_exit = end.policy.has(OpKind::Exit);
    assert_eq!(exits, usize::from(has_exit), "ops.exit() is called once");
}

/// A policy whose enqueue does one thing.
fn enqueues(slice: u64, dsq: u64, enq_flags: u64) -> Stub {
    let ops = [OpKind::Init, OpKind::Enqueue, OpKind::Exit];
    Stub::new(&ops, move |a, op| async move {
        match op {
            OpCall::Init => return a.create_dsq(1).await,
            OpCall::Enqueue { task, .. } => a.insert(task, dsq, slice, enq_flags).await,
            _ => {}
        }
        0
    })
}

#[test]
fn a_queue_that_is_not_there() {
    ejects(
        enqueues(1_000, 77, 0),
        ExitKind::Error,
        "non-existent DSQ 0x4d",
    );
}

#[test]
fn a_cpu_that_is_not_there() {
    let message = "invalid CPU 9 in SCX_DSQ_LOCAL_ON dispatch verdict";
    ejects(enqueues(1_000, local_on(9), 0), ExitKind::Error, message);
    let selects = Stub::new(&[OpKind::SelectCpu], |_, op| async move {
        if op.kind() == OpKind::SelectCpu {
            -7
        } else {
            0
        }
    });
    ejects(
        selects,
        ExitKind::Error,
        "invalid CPU -7 from ops.select_cpu()",
    );
}

#[test]
fn vtime_on_a_built_in_queue() {
    for dsq in [dsq_id::GLOBAL, dsq_id::LOCAL] {
        let policy = Stub::new(&[OpKind::Enqueue], move |a, op| async move {
            if let OpCall::Enqueue { task, .. } = op {
                a.insert_vtime(task, dsq, 1_000, 5).await;
            }
            0
        });
        let message = "cannot use vtime ordering for built-in DSQs";
        ejects(policy, ExitKind::Error, message);
    }
}

#[test]
fn fifo_and_vtime_in_one_queue() {
    let ops = [OpKind::Init, OpKind::SelectCpu, OpKind::Enqueue];
    let policy = Stub::new(&ops, |a, op| async move {
        match op {
            OpCall::Init => return a.create_dsq(1).await,
            OpCall::SelectCpu { prev_cpu, .. } => return i64::from(prev_cpu.0),
            OpCall::Enqueue { task, .. } if task.0 == 0 => a.insert(task, 1, 1_000, 0).await,
            OpCall::Enqueue { task, .. } => a.insert_vtime(task, 1, 1_000, 5).await,
            _ => {}
        }
        0
    });
    let message = "DSQ ID 0x0000000000000001 already had FIFO-enqueued tasks";
    ejects(policy, ExitKind::Error, message);
}

#[test]
fn direct_dispatch_twice_or_of_another_task() {
    // Two CPUs idle, so only the third task is asked about.
    let twice = Stub::new(&[OpKind::Enqueue], |a, op| async move {
        if let OpCall::Enqueue { task, .. } = op {
            a.insert(task, dsq_id::GLOBAL, 1_000, 0).await;
            a.insert(task, dsq_id::GLOBAL, 1_000, 0).await;
        }
        0
    });
    ejects(twice, ExitKind::Error, "p[1002] already direct-dispatched");
    let other = Stub::new(&[OpKind::Enqueue], |a, op| async move {
        if let OpCall::Enqueue { .. } = op {
            a.insert(schedlab_trace::TaskId(0), dsq_id::GLOBAL, 1_000, 0)
                .await;
        }
        0
    });
    let message = "scheduling for p[1002] but trying to direct-dispatch p[1000]";
    ejects(other, ExitKind::Error, message);
}

#[test]
fn flags_that_are_the_kernels_own() {
    let flags = enq::CLEAR_OPSS;
    let message = "invalid enq_flags 0x100000000000000";
    ejects(enqueues(1_000, 1, flags), ExitKind::Error, message);
    let message = "SCX_ENQ_IMMED on a non-local DSQ 0x1";
    ejects(enqueues(1_000, 1, enq::IMMED), ExitKind::Error, message);
}

#[test]
fn more_dispatches_than_slots() {
    let policy = Stub::new(
        &[OpKind::Init, OpKind::Enqueue, OpKind::Dispatch],
        |a, op| async move {
            match op {
                OpCall::Init => return a.create_dsq(1).await,
                OpCall::Dispatch { .. } => {
                    for _ in 0..33 {
                        a.insert(schedlab_trace::TaskId(0), 1, 1_000, 0).await;
                    }
                }
                _ => {}
            }
            0
        },
    );
    ejects(policy, ExitKind::Error, "dispatch buffer overflow");
    let cancels = Stub::new(&[OpKind::Dispatch], |a, op| async move {
        if let OpCall::Dispatch { .. } = op {
            a.ask(Request::DispatchCancel).await;
        }
        0
    });
    ejects(cancels, ExitKind::Error, "dispatch buffer underflow");
}

#[test]
fn a_cpu_that_the_task_may_not_use() {
    let policy = Stub::new(&[OpKind::Enqueue], |a, op| async move {
        if let OpCall::Enqueue { task, .. } = op {
            a.insert(task, local_on(1), 1_000, 0).await;
        }
        0
    });
    let tasks = vec![on_cpus(periodic("p", 50, 200, 5), "0")];
    let end = run(scenario(2, tasks), policy, ());
    assert_eq!(
        end.exit.message,
        "SCX_DSQ_LOCAL[_ON] target CPU 1 not allowed for p[1000]"
    );
}

#[test]
fn asking_for_queues_wrongly() {
    type Case = (Request, &'static str);
    let cases: [Case; 5] = [
        (
            Request::DsqPeek {
                dsq: dsq_id::GLOBAL,
            },
            "peek disallowed on builtin DSQ 0x8000000000000001",
        ),
        (Request::DsqPeek { dsq: 5 }, "peek on non-existent DSQ 0x5"),
        (
            Request::DsqMoveToLocal {
                dsq: 5,
                enq_flags: 0,
            },
            "invalid DSQ ID 0x0000000000000005",
        ),
        (
            Request::Kick {
                cpu: 0,
                flags: kick::IDLE | kick::PREEMPT,
            },
            "PREEMPT/WAIT cannot be used with SCX_KICK_IDLE",
        ),
        (Request::Kick { cpu: 2, flags: 0 }, "invalid CPU 2"),
    ];
    for (request, message) in cases {
        let policy = Stub::new(&[OpKind::Dispatch, OpKind::Exit], move |a, op| {
            let request = request.clone();
            async move {
                if op.kind() == OpKind::Dispatch {
                    a.ask(request).await;
                }
                0
            }
        });
        ejects(policy, ExitKind::Error, message);
    }
}

#[test]
fn the_policys_own_errors_and_exits() {
    let asks = |request: Request| {
        Stub::new(&[OpKind::Running, OpKind::Exit], move |a, op| {
            let request = request.clone();
            async move {
                if op.kind() == OpKind::Running {
                    a.ask(request).await;
                }
                0
            }
        })
    };
    let message = "no more".to_owned();
    let error = Request::Error {
        message: message.clone(),
    };
    ejects(asks(error), ExitKind::ErrorBpf, "no more");
    let violation = Request::Violation {
        message: message.clone(),
    };
    ejects(asks(violation), ExitKind::Error, "no more");
    let tasks = vec![periodic("p", 50, 200, 5)];
    let end = run(
        scenario(1, tasks),
        asks(Request::ExitPolicy { code: 7, message }),
        (),
    );
    assert_eq!((end.exit.kind, end.exit.code), (ExitKind::UnregBpf, 7));
}

#[test]
fn ops_that_fail_to_start() {
    let fails = |op: OpKind, with: i64| {
        Stub::new(&[op, OpKind::Exit], move |_, call| async move {
            if call.kind() == op { with } else { 0 }
        })
    };
    for (op, with, message) in [
        (OpKind::Init, -12, "ops.init() failed (-12)"),
        (OpKind::Init, 12, "ops.init() returned an invalid errno 12"),
        (
            OpKind::InitTask,
            -12,
            "ops.init_task() failed (-12) for p[1000]",
        ),
    ] {
        ejects(fails(op, with), ExitKind::Error, message);
    }
    let policy = Stub::minimal().flags(ops::ENQ_LAST);
    let message = "SCX_OPS_ENQ_LAST requires ops.enqueue() to be implemented";
    ejects(policy, ExitKind::Error, message);
    let policy = Stub::new(&[OpKind::UpdateIdle], |_, _| async { 0 });
    let message = "SCX_OPS_BUILTIN_IDLE_PER_NODE requires CPU idle selection enabled";
    ejects(
        policy.flags(ops::BUILTIN_IDLE_PER_NODE),
        ExitKind::Error,
        message,
    );
}

#[test]
fn a_task_that_is_forgotten() {
    let policy = Stub::new(&[OpKind::Enqueue], |_, _| async { 0 }).timeout_ms(1_000);
    let end = run(scenario(1, vec![hog("lost", 5)]), policy, ());
    assert_eq!(end.exit.kind, ExitKind::ErrorStall);
    assert_eq!(end.exit.reason, "runnable task stall");
    let prefix = "lost[1000] failed to run for 1.";
    assert!(end.exit.message.starts_with(prefix), "{}", end.exit.message);
    let custody = "since ops.enqueue() and inserted it into no DSQ";
    assert!(end.exit.message.ends_with(custody), "{}", end.exit.message);
    assert_eq!(end.unfinished.len(), 1);
}

/// A task that no CPU takes from where the policy has put it.
#[test]
fn a_stall_says_in_which_queue_the_task_is() {
    let ends = |dsq: u64| {
        let policy = Stub::new(&[OpKind::Init, OpKind::Enqueue], move |a, op| async move {
            match op {
                OpCall::Init => a.create_dsq(5).await,
                OpCall::Enqueue { task, .. } => {
                    a.insert(task, dsq, 20_000_000, 0).await;
                    0
                }
                _ => 0,
            }
        })
        .timeout_ms(1_000);
        run(scenario(1, vec![hog("lost", 5)]), policy, ())
            .exit
            .message
    };
    let message = ends(5);
    let place = ": it is in DSQ 5 (1 queued), from which no CPU has taken a task yet";
    assert!(message.ends_with(place), "{message}");
}

/// The watchdog looks each half of the timeout, and would find it at the very instant at which the run ends.
#[test]
fn a_run_that_is_over_is_not_watched_any_more() {
    let ends_after = |ms| {
        let policy = Stub::new(&[OpKind::Enqueue], |_, _| async { 0 }).timeout_ms(1_000);
        let mut scenario = scenario(1, vec![hog("lost", 5)]);
        scenario.workload.duration = Some(schedlab_trace::Duration::from_ms(ms));
        run(scenario, policy, ()).exit.kind
    };
    assert_eq!(ends_after(1_500), ExitKind::Done);
    assert_eq!(ends_after(1_501), ExitKind::ErrorStall);
}

#[test]
fn a_kernel_without_a_watchdog_forgets_with_the_policy() {
    let policy = Stub::new(&[OpKind::Enqueue], |_, _| async { 0 }).timeout_ms(1_000);
    let mut scenario = scenario(1, vec![hog("lost", 5)]);
    scenario.machine.sched_ext.watchdog = false;
    scenario.workload.duration = Some(schedlab_trace::Duration::from_secs(3));
    let end = run(scenario, policy, ());
    assert_eq!(end.exit.kind, ExitKind::Done);
    assert_eq!((end.end.ns(), end.unfinished.len()), (3_000_000_000, 1));
}

#[test]
fn kfuncs_where_the_verifier_refuses_them() {
    let policy = Stub::new(&[OpKind::Running], |a, op| async move {
        if let OpCall::Running { task } = op {
            a.insert(task, dsq_id::LOCAL, 0, 0).await;
        }
        0
    });
    let message = "ops.running called scx_bpf_dsq_insert(), which the kernel's verifier refuses there; \
                   allowed in: select_cpu, enqueue, dispatch";
    ejects(policy, ExitKind::Fault, message);
}

#[test]
fn the_older_kernel_reenqueues_only_where_a_cpu_is_lost() {
    let exit = |version| {
        let policy = Stub::new(&[OpKind::Dispatch], |a, op| async move {
            if let OpCall::Dispatch { .. } = op {
                let dsq = dsq_id::LOCAL;
                a.ask(Request::Reenqueue { dsq, flags: 0 }).await;
            }
            0
        });
        let mut scenario = scenario(1, vec![hog("p", 5)]);
        scenario.version = version;
        run(scenario, policy, ()).exit
    };
    assert_eq!(exit(KernelVersion::V7_2).kind, ExitKind::Done);
    let older = exit(KernelVersion::V6_18);
    assert_eq!(
        older.message,
        "ops.dispatch called scx_bpf_reenqueue_local(), which the kernel refuses there; allowed in: cpu_release"
    );
}

#[test]
fn locks_that_are_not_given_back() {
    let lock = crate::contract::policy::PolicyLock(0);
    let take = crate::testing::take(lock);
    let keeps = {
        let take = take.clone();
        Stub::new(&[OpKind::Running], move |a, op| {
            let take = take.clone();
            async move {
                if op.kind() == OpKind::Running {
                    a.ask(take).await;
                }
                0
            }
        })
    };
    let message = "ops.running returned on CPU 1 with 1 of the policy's locks held";
    ejects(keeps, ExitKind::Fault, message);
    let twice = Stub::new(&[OpKind::Running], move |a, op| {
        let take = take.clone();
        async move {
            if op.kind() == OpKind::Running {
                a.ask(take.clone()).await;
                a.ask(take).await;
            }
            0
        }
    });
    let message = "CPU 1 takes a lock that it holds already (AA deadlock) in ops.running";
    ejects(twice, ExitKind::Fault, message);
}

#[test]
fn switched_off_idle_tracking() {
    let policy = Stub::new(
        &[OpKind::UpdateIdle, OpKind::SelectCpu],
        |a, op| async move {
            match op {
                OpCall::SelectCpu {
                    task,
                    prev_cpu,
                    wake_flags,
                } => {
                    let request = Request::SelectCpuDfl {
                        task,
                        prev_cpu: prev_cpu.0 as i32,
                        wake_flags,
                    };
                    match a.ask(request).await {
                        Reply::Cpu(cpu, _) => i64::from(cpu),
                        reply => panic!("{reply:?}"),
                    }
                }
                _ => 0,
            }
        },
    );
    ejects(
        policy,
        ExitKind::Error,
        "built-in idle tracking is disabled",
    );
}

#[test]
fn what_the_kernel_refuses_of_an_ops_table() {
    let exit = |version, change: &dyn Fn(&mut OpsInfo)| {
        let mut policy = Stub::minimal();
        change(&mut policy.info);
        let mut scenario = scenario(1, vec![hog("p", 5)]);
        scenario.version = version;
        let end = run(scenario, policy, ());
        (end.exit.kind, end.exit.code, end.exit.message)
    };
    let refused = |change: &dyn Fn(&mut OpsInfo), message: &str| {
        let expected = (ExitKind::Error, 0, message.to_owned());
        assert_eq!(exit(KernelVersion::V7_2, change), expected);
    };
    let large = "dispatch_max_batch 2147483648 is more than the kernel allows (2147483647)";
    refused(&|info| info.dispatch_max_batch = 1 << 31, large);
    let unknown = "flags 0x10000000000 are unknown to Linux 7.2";
    refused(&|info| info.flags = 1 << 40 | ops::ENQ_EXITING, unknown);
    let none = "it has no name, and the kernel demands one";
    refused(&|info| info.name.clear(), none);
    let other = "the name `a b` has other characters than letters, digits, `_` and `.`";
    refused(&|info| info.name = "a b".to_owned(), other);
    let sub = "sub_attach/sub_detach requires cid-form struct_ops";
    refused(&|info| info.sub_schedulers = true, sub);

    // New and removed functions.
    for (version, flags, is_known) in [
        (KernelVersion::V7_2, ops::TID_TO_TASK, true),
        (KernelVersion::V6_18, ops::TID_TO_TASK, false),
        (KernelVersion::V7_2, 1 << 16, false),
        (KernelVersion::V6_18, 1 << 16, true),
    ] {
        let (kind, ..) = exit(version, &|info| info.flags = flags);
        assert_eq!(kind == ExitKind::Done, is_known, "{version:?} {flags:#x}");
    }
    let (kind, code, message) = exit(KernelVersion::V7_2, &|info| info.hotplug_seq = 77);
    assert_eq!((kind, code), (ExitKind::UnregKern, 1 << 48 | 1 << 32));
    assert_eq!(message, "expected hotplug seq 77 did not match actual 0");
}

/// The first reason for an exit counts, and that the workload ended is one.
#[test]
fn errors_while_it_is_unloaded_change_nothing() {
    for late in [OpKind::Disable, OpKind::ExitTask, OpKind::Exit] {
        let policy = Stub::new(&[late, OpKind::Exit], move |a, op| async move {
            if op.kind() == late {
                let message = "late".to_owned();
                a.ask(Request::Error { message }).await;
            }
            0
        });
        let mut scenario = scenario(1, vec![hog("p", 5), hog("q", 5)]);
        scenario.workload.duration = Some(schedlab_trace::Duration::from_ms(3));
        let end = run(scenario, policy, ());
        assert_eq!(end.exit.kind, ExitKind::Done, "{late:?}: {:?}", end.exit);
        let log = end.policy.log.borrow();
        let last = &log.last().unwrap().2;
        let unregistered = matches!(
            last,
            OpCall::Exit {
                kind: ExitKind::Unreg,
                ..
            }
        );
        assert!(unregistered, "{late:?}: {last:?}");
    }
}

#[test]
fn immed_means_nothing_to_the_older_kernel() {
    for dsq in [dsq_id::LOCAL, dsq_id::GLOBAL] {
        let mut scenario = scenario(1, vec![hog("p", 5)]);
        scenario.version = KernelVersion::V6_18;
        run_checked(scenario, enqueues(1_000, dsq, enq::IMMED)).is_done();
    }
}

/// Linux 6.18: `find_dsq_for_dispatch()` names the task.
#[test]
fn the_older_kernel_tells_who_was_to_go_to_a_queue_that_is_not_there() {
    let policy = Stub::new(&[OpKind::Enqueue], |a, op| async move {
        if let OpCall::Enqueue { task, .. } = op {
            a.insert(task, 0x77, 1_000_000, 0).await;
        }
        0
    });
    let mut scenario = scenario(1, vec![hog("p", 1)]);
    scenario.version = KernelVersion::V6_18;
    let end = run(scenario, policy, ());
    assert_eq!(end.exit.message, "non-existent DSQ 0x77 for p[1000]");
}
