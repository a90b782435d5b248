//! Tasks that the policy does not schedule: real-time, partial switches, the baseline.

use schedlab_trace::{Duration, Event, Instant};
use schedlab_workload::{Action, ObjectId, ObjectSpec, SchedClass};

use crate::consts::ops;
use crate::policy::OpKind::*;
use crate::policy::{OpCall, PreemptReason};
use crate::testing::*;
use crate::{ExitKind, Hotplug, NormalClass, RtMode, Scenario, run};

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

/// `task_tick_rt()` and `yield_task_rt()` put a task behind its equals; without any it stays the first, whoever
/// preempts it later.
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

/// `prio_changed_rt()`.
#[test]
fn who_lowers_its_priority_makes_way_for_a_higher_task() {
    let lowers = |to| {
        let lowers = task("lowers", move |n, _| {
            Some(match n {
                0 => Action::Compute(Duration::from_ms(10)),
                1 => Action::SetClass(SchedClass::Fifo(to)),
                2 => Action::Compute(Duration::from_ms(100)),
                _ => return None,
            })
        });
        let mut waits = realtime(hog("waits", 5), SchedClass::Fifo(3));
        waits.start = Instant::from_ns(5_000_000);
        let tasks = vec![realtime(lowers, SchedClass::Fifo(5)), waits];
        run_checked(scenario(1, tasks), Stub::minimal()).ran_on(0)
    };
    assert_eq!(lowers(1), [0, 1, 0]);
    assert_eq!(lowers(3), [0, 1]);
    assert_eq!(lowers(4), [0, 1]);
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
