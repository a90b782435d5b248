//! Actions of tasks, and workloads that cannot end.

use std::cell::RefCell;
use std::rc::Rc;

use schedlab_trace::{Duration, Event, Instant, TaskId};
use schedlab_workload::{Action, ObjectId, ObjectSpec, Outcome, TaskSpec};

use crate::contract::consts::{dsq_id, wake};
use crate::contract::policy::OpCall;
use crate::contract::policy::OpKind::*;
use crate::testing::*;
use crate::{ExitKind, Scenario, WorkloadFailure, run};

fn with_objects(nr_cpus: usize, objects: Vec<ObjectSpec>, tasks: Vec<TaskSpec>) -> Scenario {
    scenario_of(machine(nr_cpus), workload(objects, tasks))
}

const A: ObjectId = ObjectId(0);
const B: ObjectId = ObjectId(1);

fn us(n: u64) -> Action {
    Action::Compute(Duration::from_us(n))
}

#[test]
fn ping_pong_over_pipes() {
    let player = |mine: ObjectId, other: ObjectId, starts: bool| {
        task("player", move |n, _| {
            (n < 200).then(|| match (n % 2 == 0) == starts {
                true => Action::Write {
                    to: other,
                    bytes: 1,
                },
                false => Action::Read {
                    from: mine,
                    limit: 1,
                },
            })
        })
    };
    for nr_cpus in [1, 2] {
        let pipes = vec![ObjectSpec::Pipe { capacity: 4_096 }; 2];
        let tasks = vec![player(A, B, true), player(B, A, false)];
        let checked = run_checked(with_objects(nr_cpus, pipes, tasks), Stub::fifo(&[]));
        assert_eq!(checked.end.failure, None);
        assert!(checked.end.switches >= 200, "{}", checked.end.switches);
    }
}

#[test]
fn a_full_pipe_blocks_and_a_read_takes_all_that_is_there() {
    let writer = task("writer", |n, _| {
        (n < 10).then_some(Action::Write { to: A, bytes: 100 })
    });
    let reader = task("reader", |n, context| {
        if n == 0 {
            return Some(Action::Sleep(Duration::from_ms(1)));
        }
        if n > 1 {
            match context.outcome {
                Outcome::Messages(count) => assert_eq!(count, 5),
                Outcome::Closed => return None,
                outcome => panic!("{outcome:?}"),
            }
        }
        Some(Action::Read { from: A, limit: 99 })
    });
    let pipe = vec![ObjectSpec::Pipe { capacity: 500 }];
    let end = run_checked(with_objects(1, pipe, vec![writer, reader]), Stub::fifo(&[])).end;
    assert_eq!(end.failure, None);
    assert!(end.makespan.is_some());
}

#[test]
fn mutexes_exclude() {
    // Each adds 50 µs inside the mutex: on two CPUs it takes as long as on one.
    let worker = || {
        task("worker", |n, _| {
            (n < 300).then(|| match n % 3 {
                0 => Action::Lock(A),
                1 => us(50),
                _ => Action::Unlock(A),
            })
        })
    };
    let end = |nr_cpus| {
        let tasks = vec![worker(), worker()];
        let checked = run_checked(
            with_objects(nr_cpus, vec![ObjectSpec::Mutex], tasks),
            Stub::fifo(&[]),
        );
        assert_eq!(checked.end.failure, None);
        checked.end.makespan.unwrap().ns()
    };
    assert!(end(2) > 200 * 50_000);
}

#[test]
fn conditions_barriers_semaphores_and_events() {
    let waiter = task("waiter", |n, _| {
        Some(match n {
            0 => Action::Lock(A),
            1 => Action::Wait {
                condition: B,
                mutex: A,
            },
            2 => Action::Unlock(A),
            3 => Action::Barrier(ObjectId(2)),
            4 => Action::Acquire(ObjectId(3)),
            5 => Action::Suspend(ObjectId(4)),
            6 => Action::Work(1),
            _ => return None,
        })
    });
    let other = task("other", |n, _| {
        Some(match n {
            0 | 5 | 7 => Action::Sleep(Duration::from_ms(1)),
            1 => Action::Lock(A),
            2 => Action::Broadcast(B),
            3 => Action::Unlock(A),
            4 => Action::Barrier(ObjectId(2)),
            6 => Action::Post(ObjectId(3)),
            8 => Action::Notify(ObjectId(4)),
            9 => Action::Work(1),
            _ => return None,
        })
    });
    let objects = vec![
        ObjectSpec::Mutex,
        ObjectSpec::Condition,
        ObjectSpec::Barrier { parties: 2 },
        ObjectSpec::Semaphore { initial: 0 },
        ObjectSpec::Event,
    ];
    let end = run_checked(
        with_objects(2, objects, vec![waiter, other]),
        Stub::fifo(&[]),
    )
    .end;
    assert_eq!((end.failure, end.work), (None, 2));
    assert!(end.makespan.unwrap().ns() > 3_000_000);
}

/// A task that waits for a condition lets go of the mutex first, which may wake another task and takes time. A signal
/// that falls into that time finds the waiter still running, and must not be lost.
#[test]
fn a_signal_while_the_waiter_still_lets_go_of_the_mutex_is_not_lost() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    for delay_ns in (0..20_000).step_by(100) {
        let said = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&said);
        let waiter = task("waiter", move |n, _| {
            Some(match n {
                0 => Action::Lock(A),
                1 => us(20),
                2 if heard.load(Relaxed) => us(1),
                2 => Action::Wait {
                    condition: B,
                    mutex: A,
                },
                3 => Action::Unlock(A),
                _ => return None,
            })
        });
        // Blocked on the mutex when the waiter lets go of it.
        let contender = task("contender", |n, _| {
            Some(match n {
                0 => us(5),
                1 => Action::Lock(A),
                2 => Action::Unlock(A),
                _ => return None,
            })
        });
        let signaller = task("signaller", move |n, _| {
            Some(match n {
                0 => Action::Compute(Duration::from_ns(15_000 + delay_ns)),
                1 => Action::Lock(A),
                2 => {
                    said.store(true, Relaxed);
                    Action::Signal(B)
                }
                3 => Action::Unlock(A),
                _ => return None,
            })
        });
        let tasks = vec![
            on_cpus(waiter, "0"),
            on_cpus(contender, "1"),
            on_cpus(signaller, "2"),
        ];
        let objects = vec![ObjectSpec::Mutex, ObjectSpec::Condition];
        // The waiter's own wakeup takes longer than all that the signaller does.
        let slow_on_0 = Stub::new(&[Enqueue], |a, op| async move {
            if let OpCall::Enqueue { task, enq_flags } = op {
                // Of another task: a wakeup.
                if a.cpu() == 0 && task.0 != 0 {
                    a.spend(20_000);
                }
                a.insert(task, dsq_id::GLOBAL, 5_000_000, enq_flags).await;
            }
            0
        });
        let end = run_checked(with_objects(3, objects, tasks), slow_on_0).end;
        assert_eq!(end.failure, None, "{delay_ns} ns");
    }
}

/// Nor is one that comes, without the mutex, while the waiter is still on its way to sleep.
#[test]
fn a_signal_finds_whoever_has_begun_to_wait() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    for delay_ns in 1..2_000 {
        let begun = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&begun);
        let waiter = task("waiter", move |n, _| {
            Some(match n {
                0 => us(20),
                1 => Action::Lock(A),
                2 => {
                    begun.store(true, Relaxed);
                    Action::Wait {
                        condition: B,
                        mutex: A,
                    }
                }
                3 => Action::Unlock(A),
                _ => return None,
            })
        });
        let mut signalled = false;
        let signaller = task("signaller", move |_, _| {
            if !seen.load(Relaxed) {
                return Some(Action::Compute(Duration::from_ns(delay_ns)));
            }
            (!std::mem::replace(&mut signalled, true)).then_some(Action::Signal(B))
        });
        let tasks = vec![on_cpus(waiter, "0"), on_cpus(signaller, "1")];
        let objects = vec![ObjectSpec::Mutex, ObjectSpec::Condition];
        let end = run_checked(with_objects(2, objects, tasks), Stub::fifo(&[])).end;
        assert_eq!(end.failure, None, "{delay_ns} ns");
    }
}

/// A task that comes back to wait while a broadcast without the mutex still wakes the others is not woken by it
/// again.
#[test]
fn a_broadcast_wakes_those_who_wait_when_it_begins() {
    let waiter = |_| {
        task("waiter", |n, _| {
            Some(match n {
                60 => return None,
                n if n % 3 == 0 => Action::Lock(A),
                n if n % 3 == 1 => Action::Wait {
                    condition: B,
                    mutex: A,
                },
                _ => Action::Unlock(A),
            })
        })
    };
    let other = task("other", |n, _| {
        Some(match n {
            40 => return None,
            n if n % 2 == 0 => Action::Sleep(Duration::from_ms(1)),
            _ => Action::Broadcast(B),
        })
    });
    let mut tasks: Vec<_> = (0..14).map(waiter).collect();
    tasks.push(other);
    let objects = vec![ObjectSpec::Mutex, ObjectSpec::Condition];
    let checked = run_checked(with_objects(16, objects, tasks), Stub::fifo(&[]));
    assert_eq!(checked.end.failure, None);
    let exits: Vec<u64> = checked
        .events
        .iter()
        .filter(|(_, _, event)| matches!(event, Event::TaskExit { task } if task.0 < 14))
        .map(|&(at, _, _)| at)
        .collect();
    assert_eq!(exits.len(), 14);
    // The twentieth broadcast ends the twentieth wait.
    assert!(exits.iter().all(|&at| at > 20_000_000), "{exits:?}");
}

/// As glibc's pthread_cond_signal(), which looks at the number of waiters first.
#[test]
fn a_signal_to_nobody_is_a_look_and_not_a_system_call() {
    let makespan = |signals: u32| {
        let signaller = task("signaller", move |n, _| {
            Some(match n {
                0 => us(1),
                n if n <= signals && n % 2 == 0 => Action::Signal(B),
                n if n <= signals => Action::Broadcast(B),
                _ => return None,
            })
        });
        let objects = vec![ObjectSpec::Mutex, ObjectSpec::Condition];
        let scenario = with_objects(1, objects, vec![signaller]);
        let machine = scenario.machine.clone();
        let end = run_checked(scenario, Stub::fifo(&[])).end;
        assert_eq!(end.failure, None);
        (end.makespan.unwrap().ns(), machine)
    };
    let (none, machine) = makespan(0);
    let (one, _) = makespan(1);
    let (many, _) = makespan(101);
    let hits_ns = 100 * machine.memory.hit_ps / 1_000;
    assert!(
        (many - one).abs_diff(hits_ns) <= 1,
        "{} {hits_ns}",
        many - one
    );
    assert!(one - none < machine.paths.syscall_ns, "{}", one - none);
}

#[test]
fn forked_tasks_live_and_tell_their_parent() {
    let parent = task("parent", |n, _| {
        (n < 3).then(|| Action::Fork(Box::new(periodic("child", 100, 100, 2))))
    });
    let checked = run_checked(scenario(2, vec![parent]), Stub::fifo(ALL_TASK_OPS));
    assert_eq!(checked.end.tasks, 4);
    assert!(checked.end.makespan.is_some());
    let forked = checked
        .ops(InitTask)
        .iter()
        .filter(|(_, op)| matches!(op, OpCall::InitTask { fork: true, .. }))
        .count();
    assert_eq!(forked, 3);
    let children = checked.events.iter().filter(|(_, _, event)| {
        matches!(event, Event::TaskNew { parent: Some(parent), .. } if parent.0 == 0)
    });
    assert_eq!(children.count(), 3);
}

#[test]
fn a_new_affinity_moves_the_task() {
    let mover = task("p", |n, _| {
        Some(match n {
            0 | 2 => us(500),
            1 => Action::SetAffinity("1".parse().unwrap()),
            _ => return None,
        })
    });
    for rq_locks in [true, false] {
        let mover = task("p", |n, _| {
            Some(match n {
                0 | 2 => us(500),
                1 => Action::SetAffinity("1".parse().unwrap()),
                _ => return None,
            })
        });
        let mut scenario = scenario(2, vec![mover, hog("q", 3)]);
        scenario.machine.sched_ext.rq_locks = rq_locks;
        let checked = run_checked(scenario, Stub::fifo(&[SetCpumask]));
        assert!(checked.end.makespan.is_some());
        assert!(checked.ran_on(1).contains(&0));
    }
    drop(mover);
}

/// Tasks that change their CPUs one after another are dealt out over the new ones.
#[test]
fn a_new_affinity_deals_tasks_out() {
    let mover = || {
        let step = |n, _: &mut schedlab_workload::Context<'_>| {
            Some(match n {
                0 | 2 => us(500),
                1 => Action::SetAffinity("4-7".parse().unwrap()),
                _ => return None,
            })
        };
        on_cpus(task("p", step), "0")
    };
    let policy = Stub::new(&[Enqueue], |a, op| async move {
        if let OpCall::Enqueue { task, .. } = op {
            a.insert(task, dsq_id::LOCAL, 1_000_000, 0).await;
        }
        0
    });
    let movers = (0..8).map(|_| mover()).collect();
    let checked = run_checked(scenario(8, movers), policy);
    assert!(checked.end.makespan.is_some());
    for cpu in 4..8 {
        let mut ran = checked.ran_on(cpu);
        ran.dedup();
        assert_eq!(ran, [cpu - 4, cpu], "CPU {cpu}");
    }
}

/// `set_user_nice()` and `__set_cpus_allowed_ptr()` do nothing where nothing changes.
#[test]
fn an_attribute_that_stays_the_same_is_no_change() {
    let same = task("p", |n, _| {
        Some(match n {
            0 => us(100),
            1 => Action::SetNice(0),
            2 => Action::SetAffinity("0-1".parse().unwrap()),
            _ => return None,
        })
    });
    let policy = Stub::fifo(&[SetWeight, SetCpumask, Quiescent]);
    let checked = run_checked(scenario(2, vec![same]), policy);
    // As it is introduced, and as it exits.
    assert_eq!(checked.life(0), [SetWeight, SetCpumask, Quiescent]);
}

#[test]
fn a_deadlock_is_a_failure_with_names() {
    let taker = |first: ObjectId, second: ObjectId| {
        task("taker", move |n, _| {
            Some(match n {
                0 => Action::Lock(first),
                1 => Action::Sleep(Duration::from_ms(1)),
                2 => Action::Lock(second),
                _ => return None,
            })
        })
    };
    let end = |duration| {
        let tasks = vec![taker(A, B), taker(B, A)];
        let mut scenario = with_objects(2, vec![ObjectSpec::Mutex; 2], tasks);
        scenario.workload.duration = duration;
        run(scenario, Stub::fifo(&[]), ())
    };
    let endless = end(None);
    let Some(WorkloadFailure::Deadlock { at, blocked }) = &endless.failure else {
        panic!("{:?}", endless.failure);
    };
    assert_eq!(*blocked, ["taker[1000] (Lock)", "taker[1001] (Lock)"]);
    assert!(*at < Instant::from_ns(2_000_000), "{at:?}");
    assert_eq!((endless.end, &endless.stuck), (*at, &None));
    // Nor does a duration end a wait for a mutex.
    let lasting = end(Some(Duration::from_ms(50)));
    assert_eq!((lasting.end, lasting.failure), (*at, endless.failure));
}

/// Nor one that was signalled, and whose mutex another task keeps.
#[test]
fn who_wants_a_mutex_back_is_not_ended_by_a_duration() {
    let waiter = task("waiter", |n, _| {
        Some(match n {
            0 => Action::Lock(A),
            1 => Action::Wait {
                condition: B,
                mutex: A,
            },
            _ => return None,
        })
    });
    let keeper = task("keeper", |n, _| {
        Some(match n {
            0 => Action::Sleep(Duration::from_ms(1)),
            1 => Action::Lock(A),
            2 => Action::Signal(B),
            _ => return None,
        })
    });
    let objects = vec![ObjectSpec::Mutex, ObjectSpec::Condition];
    let mut scenario = with_objects(1, objects, vec![waiter, keeper]);
    scenario.workload.duration = Some(Duration::from_ms(50));
    let end = run(scenario, Stub::fifo(&[]), ());
    let Some(WorkloadFailure::Deadlock { blocked, .. }) = &end.failure else {
        panic!("{:?}", end.failure);
    };
    assert_eq!(*blocked, ["waiter[1000] (Wait)"]);
}

#[test]
fn who_waits_for_ever_for_anything_else_than_a_mutex_is_ended_by_a_duration() {
    let end = |duration| {
        let waiter = task("waiter", move |n, _| {
            Some(match n {
                0 => Action::Lock(A),
                1 => Action::Wait {
                    condition: B,
                    mutex: A,
                },
                _ => return None,
            })
        });
        let objects = vec![ObjectSpec::Mutex, ObjectSpec::Condition];
        let mut scenario = with_objects(1, objects, vec![waiter]);
        scenario.workload.duration = duration;
        run(scenario, Stub::fifo(&[]), ())
    };
    let endless = end(None);
    let Some(WorkloadFailure::Deadlock { blocked, .. }) = &endless.failure else {
        panic!("{:?}", endless.failure);
    };
    assert_eq!(*blocked, ["waiter[1000] (Wait)"]);
    // It idles to its end, and gets the reason.
    let lasting = end(Some(Duration::from_ms(50)));
    assert_eq!((lasting.failure, lasting.exit.kind), (None, ExitKind::Done));
    assert_eq!(lasting.stuck, endless.failure);
    assert_eq!(lasting.end.ns(), 50_000_000);
    assert_eq!((lasting.makespan, lasting.unfinished.len()), (None, 1));
}

#[test]
fn a_loop_without_time_is_a_failure() {
    let spinner = task("spinner", |_, _| Some(Action::Work(1)));
    let end = run(scenario(1, vec![spinner]), Stub::fifo(&[]), ());
    let failure = end.failure.expect("a failure").to_string();
    assert!(
        failure.starts_with("spinner[1000] did 100001 actions"),
        "{failure}"
    );
}

#[test]
fn wrong_objects_and_impossible_affinities_are_failures() {
    let wrong = task("p", |_, _| Some(Action::Read { from: A, limit: 1 }));
    let end = run(
        with_objects(1, vec![ObjectSpec::Mutex], vec![wrong]),
        Stub::fifo(&[]),
        (),
    );
    assert_eq!(
        end.failure.unwrap().to_string(),
        "p[1000]: Read on object 0, which is a mutex"
    );
    let end = run(
        scenario(2, vec![on_cpus(hog("p", 1), "5")]),
        Stub::fifo(&[]),
        (),
    );
    assert!(matches!(end.failure, Some(WorkloadFailure::NoCpu { .. })));
}

#[test]
fn a_duration_ends_the_run() {
    let mut scenario = scenario(2, vec![hog("p", 1_000)]);
    scenario.workload.duration = Some(Duration::from_ms(10));
    let end = run_checked(scenario, Stub::fifo(&[])).end;
    assert_eq!(end.end.ns(), 10_000_000);
    assert_eq!((end.makespan, end.unfinished.len()), (None, 1));
}

#[test]
fn a_kernel_without_preemption_keeps_its_task_until_the_system_call_ends() {
    // fork() takes long here; a slice that ends in it waits.
    let forks = |preemptible: bool| {
        let parent = task("parent", |n, _| {
            (n < 20).then(|| Action::Fork(Box::new(hog("child", 1))))
        });
        let mut scenario = scenario(1, vec![parent, hog("other", 100)]);
        scenario.machine.preemptible_kernel = preemptible;
        scenario.machine.paths.fork_ns = 30_000_000;
        let checked = run_checked(scenario, Stub::fifo(&[]));
        assert!(checked.end.makespan.is_some());
        checked.ran_on(0).iter().filter(|&&task| task == 0).count()
    };
    assert!(forks(true) > forks(false));
}

#[test]
fn pipes_and_sockets_wake_as_the_machines_kernel_does() {
    let flags_of = |sync_wakeups: bool, object: ObjectSpec| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&seen);
        let policy = Stub::new(&[SelectCpu], move |_, op| {
            if let OpCall::SelectCpu {
                task: TaskId(1),
                wake_flags,
                ..
            } = op
            {
                log.borrow_mut().push(wake_flags);
            }
            async { 0 }
        });
        let writer = task("writer", |n, _| match n {
            0 => Some(Action::Sleep(Duration::from_ms(1))),
            1 => Some(Action::Write { to: A, bytes: 1 }),
            _ => None,
        });
        let reader = task("reader", |n, _| {
            (n == 0).then_some(Action::Read { from: A, limit: 1 })
        });
        // A task that may run on one CPU only is not asked about.
        let mut scenario = with_objects(2, vec![object], vec![writer, reader]);
        scenario.machine.sync_wakeups = sync_wakeups;
        assert!(run_checked(scenario, policy).end.makespan.is_some());
        let woken = seen.borrow().last().copied();
        woken.expect("the reader is woken") & wake::SYNC
    };
    for object in [
        ObjectSpec::Pipe { capacity: 500 },
        ObjectSpec::Socket { capacity: 500 },
    ] {
        assert_eq!(flags_of(true, object), wake::SYNC);
        assert_eq!(flags_of(false, object), 0);
    }
}

/// `wake_up_new_task()` uses `__set_task_cpu()`, which no tracepoint reports.
#[test]
fn where_a_new_task_is_put_first_is_no_migration() {
    let parent = task("parent", |n, _| {
        (n < 6).then(|| match n % 2 {
            0 => Action::Fork(Box::new(on_cpus(hog("child", 1), "1"))),
            _ => us(5_000),
        })
    });
    let checked = run_checked(
        with_objects(2, vec![], vec![on_cpus(parent, "0")]),
        Stub::fifo(&[]),
    );
    assert_eq!(checked.ran_on(1).len(), 3, "each child on the other CPU");
    let migrations = checked
        .events
        .iter()
        .filter(|(_, _, event)| matches!(event, Event::Migrate { .. }));
    assert_eq!(migrations.count(), 0);
}

/// The joins of directories are recipes, too: with one job at a time nothing is beside anything.
#[test]
fn make_runs_no_more_recipes_than_jobs() {
    let makespan_ms = |jobs: u32| {
        let text = format!(
            "kbuild:jobs={jobs},units=4,directory=1,compile=0,driver=10ms,assemble=0,join=100ms,parse=0,link=0,read=0"
        );
        let workload = schedlab_workload::Workload::parse(&text, 4).unwrap();
        let end = run_checked(Scenario::new(machine(4), workload, 1), Stub::fifo(&[])).end;
        end.makespan.unwrap().ns() / 1_000_000
    };
    // 4 · 10 + 4 · 100 ms of work, on as many CPUs as jobs.
    assert!((440..450).contains(&makespan_ms(1)), "{}", makespan_ms(1));
    assert!((220..230).contains(&makespan_ms(2)), "{}", makespan_ms(2));
    assert!((110..120).contains(&makespan_ms(4)), "{}", makespan_ms(4));
}
