//! Tasks that the policy does not schedule: real-time, partial switches, the baseline.

use schedlab_trace::{Duration, Event, Instant};
use schedlab_workload::{Action, ObjectId, ObjectSpec, SchedClass};

use crate::contract::consts::ops;
use crate::contract::policy::OpKind::*;
use crate::contract::policy::{OpCall, PreemptReason};
use crate::testing::*;
use crate::{ExitKind, Hotplug, KernelVersion, NormalClass, RtMode, Scenario, run};

fn realtime(
    mut spec: schedlab_workload::TaskSpec,
    class: SchedClass,
) -> schedlab_workload::TaskSpec {
    spec.class = class;
    spec
}

#[test]
fn real_time_tasks_run_above_the_policy() {
    let tasks = || {
        let mut late = realtime(hog("rt", 5), SchedClass::Fifo(50));
        late.start = Instant::from_ns(10_000_000);
        vec![hog("a", 20), late]
    };
    let policy = Stub::fifo(&[CpuAcquire, CpuRelease, Running]);
    let checked = run_checked(scenario(1, tasks()), policy);
    assert_eq!(checked.ran_on(0), [0, 1, 0]);
    assert_eq!(checked.ops(CpuRelease).len(), 1);
    assert_eq!(checked.ops(CpuAcquire).len(), 1);
    assert!(!checked.life(1).contains(&Running));
    let mut to_policy = scenario(1, tasks());
    to_policy.rt_mode = RtMode::Policy;
    let checked = run_checked(to_policy, Stub::fifo(&[Running]));
    assert!(checked.life(1).contains(&Running));
}

/// The stopper, which moves a task off its CPU, takes the CPU from the policy, too.
#[test]
fn who_takes_a_cpu_away_is_told() {
    let mover = task("p", |n, _| {
        Some(match n {
            0 | 2 => Action::Compute(Duration::from_us(500)),
            1 => Action::SetAffinity("1".parse().unwrap()),
            _ => return None,
        })
    });
    let mut rt = realtime(hog("rt", 1), SchedClass::Fifo(50));
    rt.start = Instant::from_ns(5_000_000);
    let tasks = vec![
        on_cpus(mover, "0"),
        on_cpus(hog("q", 10), "0"),
        on_cpus(rt, "0"),
    ];
    let checked = run_checked(scenario(2, tasks), Stub::fifo(&[CpuAcquire, CpuRelease]));
    let released = checked.ops(CpuRelease).into_iter().map(|(_, op)| match op {
        OpCall::CpuRelease { cpu, reason, task } => (cpu.0, reason, task),
        _ => unreachable!(),
    });
    assert_eq!(
        released.collect::<Vec<_>>(),
        [
            (0, PreemptReason::Stop, None),
            (0, PreemptReason::Rt, Some(schedlab_trace::TaskId(2)))
        ]
    );
    assert_eq!(checked.ops(CpuAcquire).len(), 2);
}

#[test]
fn real_time_priorities_and_turns() {
    let task = |class| realtime(hog("rt", 250), class);
    let order = |tasks| run_checked(scenario(1, tasks), Stub::minimal()).ran_on(0);
    let fifo = SchedClass::Fifo;
    let rr = SchedClass::RoundRobin;
    // All are there before anything runs.
    assert_eq!(
        order(vec![task(fifo(1)), task(fifo(3)), task(fifo(2))]),
        [1, 2, 0]
    );
    assert_eq!(order(vec![task(fifo(1)), task(fifo(1))]), [0, 1]);
    assert_eq!(order(vec![task(rr(1)), task(rr(1))]), [0, 1, 0, 1, 0, 1]);
}

/// `task_tick_rt()` and `yield_task_rt()` put a task behind its equals; without any it stays the first, whichever
/// task preempts it later.
#[test]
fn a_turn_that_nobody_takes_is_not_remembered() {
    let ms = |n: u64| Instant::from_ns(n * 1_000_000);
    let at = |start: u64, class, length| {
        let mut spec = realtime(hog("rt", length), class);
        spec.start = ms(start);
        spec
    };
    let yields = realtime(
        task("yields", |n, _| {
            Some(match n {
                0 => Action::Compute(Duration::from_ms(10)),
                1 => Action::Yield,
                2 => Action::Compute(Duration::from_ms(100)),
                _ => return None,
            })
        }),
        SchedClass::Fifo(2),
    );
    let fifo = SchedClass::Fifo;
    let rr = SchedClass::RoundRobin;
    for (first, low, equal, later) in [
        (yields, fifo(1), fifo(2), 20),
        (at(0, rr(2), 250), fifo(1), rr(2), 110),
    ] {
        let tasks = vec![
            first,
            at(1, low, 5),
            at(later, equal, 5),
            at(later + 10, fifo(3), 5),
        ];
        let order = run_checked(scenario(1, tasks), Stub::minimal()).ran_on(0);
        assert_eq!(order[..3], [0, 3, 0]);
    }
}

#[test]
fn tasks_stay_with_the_baseline_on_a_partial_switch() {
    let tasks = || vec![hog("a", 5), hog("b", 5)];
    // No task of a workload asks for SCHED_EXT: the policy hears of them, and gets none.
    let heard = [InitTask, Enable, Running, Disable, ExitTask];
    let partial = Stub::fifo(&heard).flags(ops::SWITCH_PARTIAL);
    let checked = run_checked(scenario(1, tasks()), partial);
    let counts = heard.map(|op| checked.ops(op).len());
    assert_eq!(counts, [2, 0, 0, 0, 2]);
    assert!(checked.end.makespan.is_some());
}

/// `p->scx.disallow` refuses the SCHED_EXT policy (`scx_check_setscheduler()`), for which no task of a workload asks.
#[test]
fn a_task_that_may_not_ask_for_sched_ext_is_switched_with_all_others() {
    let policy = Stub::fifo(&[Running]).disallow(schedlab_trace::TaskId(1));
    let checked = run_checked(scenario(1, vec![hog("a", 5), hog("b", 5)]), policy);
    assert_eq!(checked.ops(Running).len(), 2);
}

#[test]
fn a_class_that_changes_enables_and_disables() {
    let changing = task("p", |n, _| {
        Some(match n {
            0 | 2 | 4 => Action::Compute(Duration::from_us(100)),
            1 => Action::SetClass(SchedClass::Fifo(5)),
            3 => Action::SetClass(SchedClass::Normal),
            _ => return None,
        })
    });
    let checked = run_checked(scenario(1, vec![changing]), Stub::fifo(&[Enable, Disable]));
    let life = checked.life(0);
    let changes: Vec<_> = life
        .iter()
        .filter(|op| matches!(op, Enable | Disable))
        .collect();
    assert_eq!(changes, [&Enable, &Disable, &Enable, &Disable]);
}

fn fair(nr_cpus: usize, tasks: Vec<schedlab_workload::TaskSpec>) -> Scenario {
    let mut scenario = scenario(nr_cpus, tasks);
    scenario.normal_class = NormalClass::Fair;
    scenario
}

/// Where slices end at ticks.
fn by_ticks(mut scenario: Scenario) -> Scenario {
    scenario.version = KernelVersion::V6_18;
    scenario
}

#[test]
fn the_baseline_shares_by_weight() {
    let mut nice = hog("nice", 1_000);
    nice.nice = 5;
    let mut scenario = fair(1, vec![hog("plain", 1_000), nice]);
    scenario.workload.duration = Some(Duration::from_ms(800));
    let checked = run_checked(scenario, Stub::minimal());
    // How long each ran, from the switches.
    let mut ran = [0u64; 2];
    let mut since: Option<(usize, u64)> = None;
    for &(at, _, event) in &checked.events {
        if let schedlab_trace::Event::Switch { next, .. } = event {
            if let Some((task, from)) = since {
                ran[task] += at - from;
            }
            since = next.map(|task| (task.index(), at));
        }
    }
    // 1024 to 335.
    let share = ran[1] * 1_000 / (ran[0] + ran[1]);
    assert!((220..=270).contains(&share), "{ran:?}");
    assert!(
        checked.end.policy.log.borrow().is_empty(),
        "no policy is asked"
    );
}

#[test]
fn the_baseline_spreads_and_balances() {
    let tasks = (0..4).map(|_| hog("p", 100)).collect();
    let end = run_checked(fair(4, tasks), Stub::minimal()).end;
    let makespan = end.makespan.unwrap().ns();
    assert!(
        makespan < 105_000_000,
        "four tasks on four CPUs: {makespan}"
    );
    let tasks = (0..40).map(|n| periodic("p", 50 + n, 200, 50)).collect();
    let end = run_checked(fair(4, tasks), Stub::minimal()).end;
    assert!(end.makespan.is_some());
}

#[test]
fn a_cpu_taken_away_runs_nothing() {
    let tasks = || (0..8).map(|n| periodic("p", 200 + n, 100, 100)).collect();
    let mut scenario = scenario(4, tasks());
    let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
    let cpu = schedlab_trace::CpuId(2);
    scenario.hotplug = vec![
        Hotplug {
            at: at(10),
            cpu,
            online: false,
        },
        Hotplug {
            at: at(25),
            cpu,
            online: true,
        },
    ];
    let policy = Stub::fifo(&[CpuOnline, CpuOffline, SelectCpu]);
    let checked = run_checked(scenario, policy);
    checked.is_done();
    assert!(checked.end.makespan.is_some(), "{:?}", checked.end.failure);
    assert_eq!(
        checked.ops(CpuOffline).len() + checked.ops(CpuOnline).len(),
        2
    );
    let runs = |from: u64, to: u64| {
        checked
            .events
            .iter()
            .filter(|(when, on, event)| {
                let starts = matches!(event, schedlab_trace::Event::Switch { next: Some(_), .. });
                starts && *on == 2 && (from..to).contains(when)
            })
            .count()
    };
    assert!(runs(0, 10_000_000) > 0);
    assert_eq!(runs(10_100_000, 25_000_000), 0);
    assert!(runs(25_000_000, u64::MAX) > 0);
}

/// A CPU goes at any moment, also while it is in the policy's code and a sleep ends on it.
#[test]
fn whoever_sleeps_on_a_cpu_that_goes_wakes_elsewhere() {
    for at in (0..1_000_000).step_by(1_777) {
        let tasks = (0..4).map(|n| periodic("p", 20 + n, 8, 12)).collect();
        let mut scenario = scenario(2, tasks);
        scenario.hotplug = vec![Hotplug {
            at: Instant::from_ns(at),
            cpu: schedlab_trace::CpuId(1),
            online: false,
        }];
        let policy = Stub::fifo(&[SelectCpu, CpuOnline, CpuOffline]).op_ns(20_000);
        let end = run_checked(scenario, policy).end;
        assert_eq!(end.exit.kind, ExitKind::Done, "{at} ns: {:?}", end.exit);
        assert!(end.makespan.is_some(), "{at} ns: {:?}", end.failure);
    }
}

/// `select_fallback_rq()` looks at the task's own node first.
#[test]
fn whoever_must_leave_a_cpu_stays_on_its_node() {
    let mut scenario = fair(4, (0..4).map(|_| hog("p", 50)).collect());
    scenario.machine.topology = schedlab_machine::Topology::new(2, 1, 2, 1);
    scenario.hotplug = vec![Hotplug {
        at: Instant::from_ns(5_000_000),
        cpu: schedlab_trace::CpuId(3),
        online: false,
    }];
    let checked = run_checked(scenario, Stub::minimal());
    let left = checked.events.iter().find_map(|(_, _, event)| match event {
        schedlab_trace::Event::Migrate { from, to, .. } if from.0 == 3 => Some(to.0),
        _ => None,
    });
    assert_eq!(left, Some(2));
}

#[test]
fn hotplug_unloads_a_policy_that_does_not_handle_it() {
    let mut scenario = scenario(2, vec![hog("p", 50)]);
    scenario.hotplug = vec![Hotplug {
        at: Instant::from_ns(5_000_000),
        cpu: schedlab_trace::CpuId(1),
        online: false,
    }];
    let end = run(scenario, Stub::fifo(&[]), ());
    assert_eq!(end.exit.kind, ExitKind::UnregKern);
    assert_eq!(end.exit.code, 1 << 48 | 1 << 32);
    assert_eq!(end.exit.message, "cpu 1 going offline, exiting scheduler");
}

/// An idle CPU takes a task from one that has two (`nr_running > 1` in `sched_balance_rq()`): one that was
/// just woken on a CPU of its own stays there.
#[test]
fn the_baseline_leaves_a_cpu_its_only_task() {
    let player = |mine: u32, other: u32, starts: bool| {
        task("player", move |n, _| {
            (n < 200).then(|| match (n % 2 == 0) == starts {
                true => Action::Write {
                    to: ObjectId(other),
                    bytes: 1,
                },
                false => Action::Read {
                    from: ObjectId(mine),
                    limit: 1,
                },
            })
        })
    };
    let pipes = vec![ObjectSpec::Pipe { capacity: 4_096 }; 2];
    let tasks = vec![player(0, 1, true), player(1, 0, false)];
    let mut scenario = Scenario::new(machine(2), workload(pipes, tasks), 1);
    scenario.normal_class = NormalClass::Fair;
    let checked = run_checked(scenario, Stub::minimal());
    let migrations = checked
        .events
        .iter()
        .filter(|(_, _, event)| matches!(event, Event::Migrate { .. }))
        .count();
    assert!(
        migrations < 10,
        "{migrations} in {} switches",
        checked.end.switches
    );
}

/// How long each of `nr` tasks ran, from the switches on all CPUs.
fn ran_ns(checked: &Checked, nr: usize) -> Vec<u64> {
    let mut ran = vec![0; nr];
    let mut since: std::collections::BTreeMap<u32, (usize, u64)> = Default::default();
    for &(at, cpu, event) in &checked.events {
        if let Event::Switch { next, .. } = event {
            if let Some((task, from)) = since.remove(&cpu) {
                ran[task] += at - from;
            }
            if let Some(task) = next {
                since.insert(cpu, (task.index(), at));
            }
        }
    }
    ran
}

/// Virtual lag is the distance from the mean of all who were runnable, who leaves included (`update_entity_lag()`
/// before `avg_vruntime_sub()`): else each sleep would earn a task more of it.
#[test]
fn the_baseline_gives_sleepers_no_more_than_their_share() {
    for rq_locks in [true, false] {
        let sleeper = periodic("sleeper", 7_000, 1_000, 10_000);
        let mut scenario = fair(1, vec![hog("hog", 10_000), sleeper]);
        scenario.machine.sched_ext.rq_locks = rq_locks;
        scenario.machine.hz = 100;
        scenario.workload.duration = Some(Duration::from_secs(5));
        let ran = ran_ns(&run_checked(scenario, Stub::minimal()), 2);
        let share = ran[1] * 1_000 / (ran[0] + ran[1]);
        assert!((440..=500).contains(&share), "{rq_locks} {ran:?}");
    }
}

fn starting(mut spec: schedlab_workload::TaskSpec, ms: u64) -> schedlab_workload::TaskSpec {
    spec.start = Instant::from_ns(ms * 1_000_000);
    spec
}

/// `need_pull_rt_task()`: a CPU takes a task that waits elsewhere as soon as its next task is lower than its last
/// one, not only when it has nothing of the class any more.
#[test]
fn a_real_time_task_is_pulled_before_a_lower_one_runs() {
    let fifo = SchedClass::Fifo;
    let tasks = vec![
        on_cpus(realtime(hog("a", 30), fifo(60)), "0"),
        on_cpus(realtime(hog("b", 10), fifo(90)), "1"),
        starting(realtime(hog("c", 10), fifo(50)), 1),
        starting(on_cpus(realtime(hog("d", 50), fifo(10)), "1"), 2),
    ];
    let checked = run_checked(scenario(2, tasks), Stub::minimal());
    assert_eq!(checked.ran_on(1), [1, 2, 3]);
}

/// `set_next_task_rt()`, `push_rt_tasks()`: a preempted task goes where something lower runs, an idle CPU first.
#[test]
fn a_preempted_real_time_task_is_pushed_to_where_it_runs() {
    let fifo = SchedClass::Fifo;
    let sleeper = |priority| {
        let steps = task("hi", |n, _| {
            Some(match n {
                0 => Action::Compute(Duration::from_ms(1)),
                1 => Action::Sleep(Duration::from_ms(5)),
                2 => Action::Compute(Duration::from_ms(50)),
                _ => return None,
            })
        });
        on_cpus(realtime(steps, fifo(priority)), "0")
    };
    let low = |cpus| starting(on_cpus(realtime(hog("lo", 50), fifo(10)), cpus), 2);
    let other = |ms, class| on_cpus(realtime(hog("other", ms), class), "1");
    for (other, cpus, order) in [
        // CPU 1 is idle, runs something lower, or something higher; or the preempted one must stay.
        (other(4, fifo(60)), "0-1", vec![1, 2]),
        (other(40, fifo(5)), "0-1", vec![1, 2, 1]),
        (other(40, SchedClass::Normal), "0-1", vec![1, 2, 1]),
        (other(40, fifo(20)), "0-1", vec![1, 2]),
        (other(40, fifo(5)), "0", vec![1]),
    ] {
        let checked = run_checked(
            scenario(2, vec![sleeper(50), other, low(cpus)]),
            Stub::fifo(&[]),
        );
        assert_eq!(checked.ran_on(1), order, "{cpus}");
    }
}

/// A pushed task takes the CPU from one that is pushed in turn, and so on down to the lowest.
#[test]
fn the_highest_real_time_tasks_run_on_all_cpus() {
    let rt = |priority: u8| {
        let rounds = task("rt", move |n, _| {
            (n < 100).then(|| match n % 2 {
                0 => Action::Compute(Duration::from_us(900 + 10 * u64::from(priority))),
                _ => Action::Sleep(Duration::from_us(1_000 - 7 * u64::from(priority))),
            })
        });
        realtime(rounds, SchedClass::Fifo(priority))
    };
    for rq_locks in [true, false] {
        let mut scenario = scenario(3, (1..=8).map(rt).collect());
        scenario.machine.sched_ext.rq_locks = rq_locks;
        let checked = run_checked(scenario, Stub::minimal());
        let (lower_ns, ns) = inverted_ns(&checked, 3);
        assert!(lower_ns * 100 < ns, "{rq_locks}: {lower_ns} of {ns}");
    }
}

/// For how long a task of a higher number waited while a CPU ran a lower one or nothing, and for how long any waited.
fn inverted_ns(checked: &Checked, nr_cpus: usize) -> (u64, u64) {
    let mut runs = vec![None; nr_cpus];
    let mut waits = std::collections::BTreeSet::new();
    let mut ns = (0, 0);
    let mut before = 0;
    for &(at, cpu, event) in &checked.events {
        let passed = at.saturating_sub(before);
        before = before.max(at);
        if let Some(&highest) = waits.last() {
            ns.1 += passed;
            if runs.iter().any(|&task| task < Some(highest)) {
                ns.0 += passed;
            }
        }
        match event {
            Event::Wakeup { task, .. } => _ = waits.insert(task),
            Event::Switch {
                prev,
                prev_state,
                next,
            } => {
                use schedlab_trace::PrevState::{Preempted, Yielded};
                waits.extend(prev.filter(|_| matches!(prev_state, Preempted | Yielded)));
                next.inspect(|task| _ = waits.remove(task));
                runs[cpu as usize] = next;
            }
            _ => {}
        }
    }
    ns
}

/// `LBF_ALL_PINNED`: a queue whose tasks are all bound to their CPU is no source, the next one is.
#[test]
fn the_baseline_balances_beside_a_queue_of_bound_tasks() {
    let bound = (0..5).map(|_| on_cpus(hog("bound", 100), "1"));
    let free = (0..2).map(|_| starting(on_cpus(hog("free", 100), "0,2"), 5));
    let first = (0..3).map(|_| on_cpus(hog("first", 20), "0"));
    let checked = run_checked(
        fair(3, free.chain(bound).chain(first).collect()),
        Stub::minimal(),
    );
    for task in 0..2 {
        let at = exited(&checked, task);
        assert!(at < Some(160_000_000), "{at:?}");
    }
}

/// When a task exited.
fn exited(checked: &Checked, task: u32) -> Option<u64> {
    checked
        .events
        .iter()
        .find_map(|&(at, _, event)| match event {
            Event::Switch {
                prev: Some(prev),
                prev_state: schedlab_trace::PrevState::Exited,
                ..
            } if prev.0 == task => Some(at),
            _ => None,
        })
}

/// An idle CPU of an idle core comes first, whether the profile says that its threads slow each other down or not.
#[test]
fn the_baseline_knows_idle_cores_by_the_topology() {
    for share_pct in [60, 100] {
        let woken = task("woken", |n, _| {
            Some(match n {
                0 | 3 => Action::Compute(Duration::from_ms(1)),
                1 => Action::SetAffinity("1-3".parse().unwrap()),
                2 => Action::Sleep(Duration::from_ms(10)),
                _ => return None,
            })
        });
        let tasks = vec![
            on_cpus(woken, "3"),
            on_cpus(hog("sibling of 1", 100), "5"),
            starting(on_cpus(hog("on 3", 50), "3"), 5),
        ];
        let mut scenario = fair(8, tasks);
        scenario.machine.topology = schedlab_machine::Topology::new(1, 1, 4, 2);
        scenario.machine.interference.smt_share_pct = share_pct;
        let checked = run_checked(scenario, Stub::minimal());
        assert_eq!((checked.ran_on(1), checked.ran_on(2)), (vec![], vec![0]));
    }
}

/// `prio_changed_rt()`: who lowers itself makes way for what is higher now, here or elsewhere.
#[test]
fn a_real_time_task_that_lowers_itself_makes_way() {
    let fifo = SchedClass::Fifo;
    let lowers = || {
        let steps = task("lowers", move |n, _| {
            Some(match n {
                0 | 2 => Action::Compute(Duration::from_ms(10)),
                1 => Action::SetClass(fifo(5)),
                _ => return None,
            })
        });
        realtime(steps, fifo(50))
    };
    let middle = |cpus| starting(on_cpus(realtime(hog("middle", 5), fifo(10)), cpus), 1);
    let other = on_cpus(realtime(hog("other", 30), fifo(90)), "1");
    let tasks = vec![on_cpus(lowers(), "0"), middle("0")];
    assert_eq!(
        run_checked(scenario(1, tasks), Stub::minimal()).ran_on(0),
        [0, 1, 0]
    );
    let tasks = vec![on_cpus(lowers(), "0"), middle("0-1"), other];
    assert_eq!(
        run_checked(scenario(2, tasks), Stub::minimal()).ran_on(0),
        [0, 1, 0]
    );
}

/// The longest time from a wakeup of `task` until it runs.
fn longest_wait_ns(checked: &Checked, task: u32) -> u64 {
    let mut woken = None;
    let mut longest = 0;
    for &(at, _, event) in &checked.events {
        match event {
            Event::Wakeup { task: who, .. } if who.0 == task => woken = Some(at),
            Event::Switch {
                next: Some(next), ..
            } if next.0 == task => {
                longest = longest.max(at - woken.take().unwrap_or(at));
            }
            _ => {}
        }
    }
    longest
}

/// CPU 1 gets free after `ns` and takes a task that waits on CPU 0.
fn takes_on_1(ns: u64) -> Vec<schedlab_workload::TaskSpec> {
    let taken = |_| {
        let steps = task("taken", |n, _| {
            Some(match n {
                0 => Action::Compute(Duration::from_us(100)),
                1 => Action::SetAffinity("0-1".parse().unwrap()),
                2 => Action::Compute(Duration::from_ms(20)),
                _ => return None,
            })
        });
        on_cpus(steps, "0")
    };
    let leaves = task("leaves", move |n, _| {
        Some(match n {
            0 => Action::Compute(Duration::from_ns(ns)),
            1 => Action::Sleep(Duration::from_ms(50)),
            _ => return None,
        })
    });
    let mut tasks: Vec<_> = (0..3).map(taken).collect();
    tasks.push(on_cpus(leaves, "1"));
    tasks
}

/// `RETRY_TASK`: CPU 1 gets free and takes what waits on CPU 0, for which it leaves its run queue's lock for a moment.
/// A real-time task that comes just then is higher than what was taken.
#[test]
fn a_real_time_task_that_comes_while_a_cpu_takes_another_does_not_wait() {
    let tasks = |wakes_after: u64| {
        let rt = task("rt", |n, _| {
            Some(match n {
                0 => Action::Read {
                    from: ObjectId(0),
                    limit: 1,
                },
                1 => Action::Compute(Duration::from_us(20)),
                _ => return None,
            })
        });
        let wakes = task("wakes", move |n, _| {
            Some(match n {
                0 => Action::Compute(Duration::from_ns(wakes_after)),
                1 => Action::Write {
                    to: ObjectId(0),
                    bytes: 1,
                },
                _ => return None,
            })
        });
        let mut tasks = takes_on_1(12_500_000);
        tasks.push(on_cpus(realtime(rt, SchedClass::Fifo(5)), "1"));
        tasks.push(on_cpus(wakes, "2"));
        tasks
    };
    for (class, version) in [
        (NormalClass::Fair, KernelVersion::V7_2),
        (NormalClass::Fair, KernelVersion::V6_18),
        (NormalClass::Ext, KernelVersion::V7_2),
        (NormalClass::Ext, KernelVersion::V6_18),
    ] {
        for wakes_after in (12_501_000..12_502_000).step_by(10) {
            let pipe = ObjectSpec::Pipe { capacity: 4_096 };
            let workload = workload(vec![pipe], tasks(wakes_after));
            let mut scenario = Scenario::new(machine(3), workload, 1);
            scenario.normal_class = class;
            scenario.version = version;
            let waited = longest_wait_ns(&run_checked(scenario, Stub::fifo(&[])), 4);
            assert!(
                waited < 100_000,
                "{class:?} {version:?} {wakes_after}: {waited}"
            );
        }
    }
}

/// `task_tick_rt()` counts the ticks of a slice, whichever task runs in between.
#[test]
fn a_round_robin_slice_is_100_ms_however_often_it_is_interrupted() {
    let turns = |interrupted: bool| {
        let rr = || realtime(hog("rr", 450), SchedClass::RoundRobin(5));
        let mut fifo = realtime(periodic("fifo", 10, 1_000, 2_000), SchedClass::Fifo(10));
        fifo.start = Instant::from_ns(500_000);
        let mut tasks = vec![rr(), rr()];
        tasks.extend(interrupted.then_some(fifo));
        let checked = run_checked(scenario(1, tasks), Stub::minimal());
        let mut turns: Vec<(u64, u32)> = Vec::new();
        for &(at, _, event) in &checked.events {
            if let Event::Switch {
                next: Some(next), ..
            } = event
                && next.0 < 2
                && turns.last().is_none_or(|&(_, last)| last != next.0)
            {
                turns.push((at, next.0));
            }
        }
        turns
    };
    for interrupted in [false, true] {
        let turns = turns(interrupted);
        assert_eq!(turns.len(), 10);
        for pair in turns[..9].windows(2) {
            let length_us = (pair[1].0 - pair[0].0) / 1_000;
            // A tick that hits the other task is one more.
            let longest = if interrupted { 104_100 } else { 100_100 };
            assert!(
                (99_900..longest).contains(&length_us),
                "{interrupted} {length_us}"
            );
        }
    }
}

/// `select_task_rq_rt()`: who would preempt a task that can run nowhere else looks for another CPU.
#[test]
fn a_real_time_task_leaves_its_cpu_to_a_lower_one_that_is_bound_to_it() {
    let fifo = SchedClass::Fifo;
    for (other, ran_on_1) in [
        (None, vec![0]),
        (Some(fifo(20)), vec![2]),
        (Some(fifo(10)), vec![2]),
    ] {
        let wakes = task("wakes", |n, _| {
            Some(match n {
                0 | 3 => Action::Compute(Duration::from_ms(1)),
                1 => Action::SetAffinity("0-1".parse().unwrap()),
                2 => Action::Sleep(Duration::from_ms(5)),
                _ => return None,
            })
        });
        let mut tasks = vec![
            on_cpus(realtime(wakes, fifo(15)), "0"),
            on_cpus(realtime(hog("bound", 20), fifo(10)), "0"),
        ];
        // Among equals its own CPU is the nearest.
        tasks.extend(other.map(|class| on_cpus(realtime(hog("other", 20), class), "1")));
        let checked = run_checked(scenario(2, tasks), Stub::minimal());
        assert_eq!(checked.ran_on(1), ran_on_1);
        let stays = ran_on_1 != [0];
        let ran_on_0 = if stays { vec![0, 1, 0, 1] } else { vec![0, 1] };
        assert_eq!(checked.ran_on(0), ran_on_0);
    }
}

/// `check_preempt_equal_prio()`: of two equals the one that can run elsewhere makes way.
#[test]
fn a_real_time_task_makes_way_for_a_bound_equal() {
    let fifo = SchedClass::Fifo;
    let bound = || {
        let steps = task("bound", |n, _| {
            Some(match n {
                0 | 2 => Action::Compute(Duration::from_ms(1)),
                1 => Action::Sleep(Duration::from_ms(5)),
                _ => return None,
            })
        });
        on_cpus(realtime(steps, fifo(10)), "0")
    };
    let free = |cpus| starting(on_cpus(realtime(hog("free", 30), fifo(10)), cpus), 2);
    let other = |priority| on_cpus(realtime(hog("other", 20), fifo(priority)), "1");
    for (cpus, priority, on_0, on_1) in [
        ("0-1", 1, vec![0, 1, 0], vec![2, 1, 2]),
        ("0-1", 20, vec![0, 1, 0], vec![2]),
        ("0", 1, vec![0, 1, 0], vec![2]),
    ] {
        let tasks = vec![bound(), free(cpus), other(priority)];
        let checked = run_checked(scenario(2, tasks), Stub::minimal());
        assert_eq!(
            (checked.ran_on(0), checked.ran_on(1)),
            (on_0, on_1),
            "{cpus} {priority}"
        );
    }
}

/// Without run queue locks a task that has been put back is still on its CPU for a moment: no CPU takes it before it
/// has left.
#[test]
fn the_baseline_takes_no_task_that_has_not_left_its_cpu() {
    for leaves_after in (11_985_000..12_005_000).step_by(50) {
        let mut scenario = fair(2, takes_on_1(leaves_after));
        scenario.machine.sched_ext.rq_locks = false;
        run_checked(scenario, Stub::minimal()).is_done();
    }
}

/// `PLACE_REL_DEADLINE`: a change of its own attributes begins no new request. A task that changes something every
/// 0.1 ms makes way at ticks, as a waiting task does: of equal weight both have half of the CPU.
#[test]
fn the_baseline_ends_requests_whatever_a_task_changes() {
    let affinity = |n: u32| Action::SetAffinity(["0", "0-1"][n as usize / 2 % 2].parse().unwrap());
    let nice = |n: u32| Action::SetNice((n / 2 % 2) as i8);
    for change in [affinity as fn(u32) -> Action, nice] {
        let changing = task("changing", move |n, _| {
            Some(match n % 2 {
                0 => Action::Compute(Duration::from_us(100)),
                _ => change(n),
            })
        });
        let hogs = ["0", "1"].map(|cpus| on_cpus(hog("hog", 1_000), cpus));
        let tasks = [on_cpus(changing, "0")].into_iter().chain(hogs);
        let mut scenario = fair(2, tasks.collect());
        scenario.workload.duration = Some(Duration::from_ms(400));
        let ran = ran_ns(&run_checked(scenario, Stub::minimal()), 3);
        assert!((180..=220).contains(&(ran[1] / 1_000_000)), "{ran:?}");
    }
}

/// `reweight_entity()`: lag is kept in virtual time, so it is another one after a change of the weight. A task that
/// has run 1 ms as nice 19 (weight 15) is 1 ms * 1024 / 15 = 68 ms ahead of a busy task; as nice -20 it owes the same
/// 1 ms, and has 88761 parts of 89785 of the CPU from then on. So does a task that was SCHED_IDLE (weight 3), and has
/// half of it.
#[test]
fn the_baseline_scales_lag_with_the_weight() {
    let nice = |heavy| Action::SetNice(if heavy { -20 } else { 19 });
    let class = |heavy| match heavy {
        true => Action::SetClass(SchedClass::Normal),
        false => Action::SetClass(SchedClass::Idle),
    };
    for (change, weights) in [
        (nice as fn(bool) -> Action, (88_761, 89_785)),
        (class, (1, 2)),
    ] {
        let changing = task("changing", move |n, _| {
            Some(match n {
                0 => change(false),
                1 => Action::Compute(Duration::from_ms(1)),
                2 => change(true),
                3 => Action::Compute(Duration::from_ms(100)),
                _ => return None,
            })
        });
        let scenario = by_ticks(fair(1, vec![hog("hog", 5_000), changing]));
        let tick_ns = 1_000_000_000 / u64::from(scenario.machine.hz);
        let checked = run_checked(scenario, Stub::minimal());
        let first = checked.events.iter().find_map(|&(at, _, event)| {
            let starts = |next| next == schedlab_trace::TaskId(1);
            matches!(event, Event::Switch { next: Some(next), .. } if starts(next)).then_some(at)
        });
        let took_ns = exited(&checked, 1).unwrap() - first.unwrap();
        let ticks_ns = 2 * tick_ns;
        let expected_ns = 2_000_000 + 100_000_000 * weights.1 / weights.0;
        assert!(took_ns.abs_diff(expected_ns) < ticks_ns, "{took_ns}");
    }
}

/// `yield_task_fair()`: who yields beside others forfeits the rest of its request, here of 0.7 ms each time. For 100
/// of them the other one has 70 ms, in turns that end at ticks.
#[test]
fn the_baseline_lets_who_yields_forfeit_its_request() {
    let yields = task("yields", |n, _| {
        (n < 200).then(|| match n % 2 {
            0 => Action::Compute(Duration::from_us(50)),
            _ => Action::Yield,
        })
    });
    let scenario = by_ticks(fair(1, vec![yields, hog("hog", 1_000)]));
    let checked = run_checked(scenario, Stub::minimal());
    let ended_ms = exited(&checked, 0).unwrap() / 1_000_000;
    assert!((70..=80).contains(&ended_ms), "{ended_ms}");
}

/// `protect_slice()`: a task is left alone until the deadline that it was chosen with, not until the next one. Two come
/// and yield, and a third runs on to the tick after that, which puts it ahead of both: they are eligible, and who yields
/// again has the later deadline.
#[test]
fn the_baseline_chooses_again_when_a_request_has_ended() {
    let yields = || {
        let steps = task("yields", |n, _| {
            Some(match n {
                0 | 2 | 4 => Action::Compute(Duration::from_us(50)),
                1 | 3 => Action::Yield,
                _ => return None,
            })
        });
        starting(steps, 10)
    };
    let tasks = vec![hog("hog", 20), yields(), yields()];
    let order = run_checked(by_ticks(fair(1, tasks)), Stub::minimal()).ran_on(0);
    assert_eq!(order, [0, 1, 2, 0, 1, 2, 1, 2, 0]);
}

/// `hrtick()`: a slice of 0.7 ms ends by a timer, before 7.2 at the next tick.
#[test]
fn the_baseline_ends_slices_by_a_timer() {
    let turns = |version| {
        let mut scenario = fair(1, vec![hog("a", 35), hog("b", 35)]);
        scenario.version = version;
        run_checked(scenario, Stub::minimal()).ran_on(0).len()
    };
    let (by_timer, by_tick) = (turns(KernelVersion::V7_2), turns(KernelVersion::V6_18));
    assert!((95..=101).contains(&by_timer), "{by_timer}");
    assert!((16..=20).contains(&by_tick), "{by_tick}");
}

/// `calculate_imbalance()`: weights are balanced, not numbers of tasks, and of three equal tasks on two CPUs each is
/// alone in turn.
#[test]
fn the_baseline_balances_weights() {
    let idle = |name| realtime(hog(name, 10_000), SchedClass::Idle);
    let tasks = vec![hog("a", 10_000), idle("b"), hog("c", 10_000), idle("d")];
    let mut scenario = fair(2, tasks);
    scenario.workload.duration = Some(Duration::from_secs(2));
    let ran = ran_ns(&run_checked(scenario, Stub::minimal()), 4);
    assert!(ran[0].min(ran[2]) > 100 * (ran[1] + ran[3]), "{ran:?}");
    let mut scenario = fair(2, (0..3).map(|_| hog("a", 10_000)).collect());
    scenario.workload.duration = Some(Duration::from_secs(3));
    let ran = ran_ns(&run_checked(scenario, Stub::minimal()), 3);
    let is_fair = |ran: &u64| (1_800_000_000..2_200_000_000).contains(ran);
    assert!(ran.iter().all(is_fair), "{ran:?}");
}

/// `imbalance_pct`: between two CPUs with waiting tasks a tenth more is no reason to move one.
#[test]
fn the_baseline_bears_small_imbalances() {
    let mut scenario = fair(2, (0..21).map(|_| hog("hog", 10_000)).collect());
    scenario.workload.duration = Some(Duration::from_secs(2));
    let checked = run_checked(scenario, Stub::minimal());
    let moves = checked.events.iter();
    let moves = moves.filter(|(_, _, event)| matches!(event, Event::Migrate { .. }));
    assert_eq!(moves.filter(|&&(at, ..)| at > 100_000_000).count(), 0);
    assert_eq!(
        ran_ns(&checked, 21).iter().filter(|&&ran| ran > 0).count(),
        21
    );
}

/// `sched_balance_find_dst_cpu()`: new tasks have cores of their own as long as there are any, and go where fewer CPUs
/// are busy.
#[test]
fn the_baseline_gives_new_tasks_cores_of_their_own() {
    let on_cores = |topology| {
        let tasks = (0..4).map(|n| starting(hog("new", 100), n)).collect();
        let mut scenario = fair(8, tasks);
        scenario.machine.topology = topology;
        run_checked(scenario, Stub::minimal())
    };
    let checked = on_cores(schedlab_machine::Topology::new(2, 1, 2, 2));
    // Threads n and n + 4 are a core.
    let of_core = |core: u32| [checked.ran_on(core), checked.ran_on(core + 4)].concat();
    assert_eq!([0, 1, 2, 3].map(of_core), [[0], [1], [2], [3]]);
    // The second task stays at the first one's cache, the third does not, nor the fourth, which is that one's child.
    let checked = on_cores(schedlab_machine::Topology::new(2, 1, 4, 1));
    assert_eq!(
        [0, 1, 4, 5].map(|cpu| checked.ran_on(cpu)),
        [[0], [1], [2], [3]]
    );
}

/// `choose_idle_cpu()`: a CPU with nothing but SCHED_IDLE tasks is as good as an idle one, and they make way at once,
/// for the least of others too.
#[test]
fn the_baseline_takes_cpus_of_idle_tasks() {
    let sleeper = || {
        let mut sleeper = starting(periodic("sleeper", 4_000, 20_100, 20), 3);
        sleeper.nice = 19;
        sleeper
    };
    let idle = || realtime(hog("idle", 10_000), SchedClass::Idle);
    let tasks = vec![
        on_cpus(hog("hog", 1_000), "0"),
        on_cpus(idle(), "1"),
        sleeper(),
    ];
    let mut scenario = fair(2, tasks);
    scenario.workload.duration = Some(Duration::from_ms(400));
    let checked = run_checked(scenario, Stub::minimal());
    assert_eq!(checked.ran_on(0), [0]);
    let mut low = periodic("low", 100, 300, 20);
    low.nice = 19;
    let checked = run_checked(fair(1, vec![idle(), low]), Stub::minimal());
    let waited = longest_wait_ns(&checked, 1);
    assert!(waited < 50_000, "{waited}");
    // Of two that have had less than the mean the running one is not left alone (`cancel_protect_slice()`).
    let normal = periodic("normal", 100, 300, 20);
    let checked = run_checked(fair(1, vec![idle(), idle(), normal]), Stub::minimal());
    let waited = longest_wait_ns(&checked, 2);
    assert!(waited < 50_000, "{waited}");
}

/// `prio_changed_fair()`: who lowers its own priority makes way.
#[test]
fn the_baseline_reschedules_who_lowers_itself() {
    let lowers = |nice| {
        let steps = task("lowers", move |n, _| {
            Some(match n {
                0 | 2 => Action::Compute(Duration::from_us(200)),
                1 => Action::SetNice(nice),
                _ => return None,
            })
        });
        on_cpus(steps, "0")
    };
    let other_runs_after_us = |nice| {
        let tasks = vec![lowers(nice), on_cpus(hog("hog", 20), "0")];
        let checked = run_checked(fair(1, tasks), Stub::minimal());
        let mut events = checked.events.iter();
        let hog = Some(schedlab_trace::TaskId(1));
        let runs = events.find(|(_, _, e)| matches!(e, Event::Switch { next, .. } if *next == hog));
        runs.unwrap().0 / 1_000
    };
    // A new task's request is half a slice, 0.35 ms.
    assert!((200..250).contains(&other_runs_after_us(19)));
    assert!((350..400).contains(&other_runs_after_us(-19)));
}

/// `DELAY_DEQUEUE` and `DELAY_ZERO`: a task that has had more than its share before it sleeps has worked that off
/// after it.
#[test]
fn the_baseline_forgets_debts_in_sleep() {
    let sleeper = periodic("sleeper", 500, 20_000, 50);
    let checked = run_checked(fair(1, vec![hog("hog", 5_000), sleeper]), Stub::minimal());
    let took_ms = exited(&checked, 1).unwrap() / 1_000_000;
    assert!((1_025..1_036).contains(&took_ms), "{took_ms}");
}
