//! The deadline class: order, reservations, throttling, admission.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use schedlab_trace::{Duration, Event, Instant, TaskId};
use schedlab_workload::{Action, Reservation, SchedClass, TaskSpec, below, stream};

use crate::contract::policy::OpKind::*;
use crate::contract::policy::{OpCall, PreemptReason};
use crate::testing::*;
use crate::{Hotplug, KernelVersion, NormalClass, RtMode, Scenario};

const MS: u64 = 1_000_000;

fn reservation(runtime_us: u64, deadline_us: u64, period_us: u64) -> SchedClass {
    SchedClass::Deadline(Reservation {
        runtime: Duration::from_us(runtime_us),
        deadline: Duration::from_us(deadline_us),
        period: Duration::from_us(period_us),
    })
}

/// Under SCHED_DEADLINE with a deadline of one period, in microseconds.
fn under(mut spec: TaskSpec, runtime_us: u64, period_us: u64) -> TaskSpec {
    spec.class = reservation(runtime_us, period_us, period_us);
    spec
}

/// The running time of each task by `end`, from the switches.
fn ran_until(checked: &Checked, end: u64) -> Vec<u64> {
    let mut ran = vec![0; checked.end.tasks as usize];
    let mut since = vec![None; 64];
    let mut stop = |since: &mut Option<(TaskId, u64)>, at: u64| {
        if let Some((task, from)) = since.take() {
            ran[task.index()] += at.min(end).saturating_sub(from);
        }
    };
    for &(at, cpu, event) in &checked.events {
        if let Event::Switch { next, .. } = event {
            let since = &mut since[cpu as usize];
            stop(since, at);
            *since = next.map(|task| (task, at));
        }
    }
    since.iter_mut().for_each(|since| stop(since, end));
    ran
}

fn throttled(checked: &Checked) -> Vec<u64> {
    let times = checked
        .events
        .iter()
        .filter_map(|&(at, _, event)| match event {
            Event::Throttled { .. } => Some(at),
            _ => None,
        });
    times.collect()
}

fn missed(checked: &Checked) -> usize {
    let is_miss = |event: &Event| matches!(event, Event::DeadlineMissed { .. });
    let events = checked.events.iter();
    events.filter(|(_, _, event)| is_miss(event)).count()
}

fn lasts(mut scenario: Scenario, ms: u64) -> Scenario {
    scenario.workload.duration = Some(Duration::from_ms(ms));
    scenario
}

/// Without a timer of their own, overruns are noticed by the tick.
fn by_ticks(mut scenario: Scenario) -> Scenario {
    scenario.version = KernelVersion::V6_18;
    scenario
}

#[test]
fn the_earliest_deadline_runs_first_above_all_other_classes() {
    let at = |mut spec: TaskSpec, ms: u64| {
        spec.start = Instant::from_ns(ms * MS);
        spec
    };
    let mut fifo = hog("first", 20);
    fifo.class = SchedClass::Fifo(99);
    let tasks = vec![
        hog("normal", 20),
        at(fifo, 2),
        at(under(hog("late", 4), 5_000, 100_000), 4),
        // Its deadline is earlier, and the third's is later.
        at(under(hog("early", 4), 5_000, 20_000), 6),
        at(under(hog("later", 4), 5_000, 100_000), 7),
    ];
    let policy = Stub::fifo(&[CpuAcquire, CpuRelease]);
    let checked = run_checked(scenario(1, tasks), policy);
    assert_eq!(checked.ran_on(0), [0, 1, 2, 3, 2, 4, 1, 0]);
    let released = checked.ops(CpuRelease);
    let reasons = released.iter().map(|(_, op)| match op {
        OpCall::CpuRelease { reason, .. } => *reason,
        _ => unreachable!(),
    });
    assert_eq!(reasons.collect::<Vec<_>>(), [PreemptReason::Rt]);
    assert_eq!((missed(&checked), throttled(&checked).len()), (0, 0));
}

/// A deadline task takes the CPU from the policy, under whose real-time tasks it never is.
#[test]
fn a_policy_never_has_deadline_tasks() {
    for rt_mode in [RtMode::Kernel, RtMode::Policy] {
        let mut late = under(hog("deadline", 2), 5_000, 20_000);
        late.start = Instant::from_ns(5 * MS);
        let mut scenario = scenario(1, vec![hog("a", 20), late]);
        scenario.rt_mode = rt_mode;
        let policy = Stub::fifo(&[CpuAcquire, CpuRelease, Running, Enable]);
        let checked = run_checked(scenario, policy);
        assert_eq!(checked.ran_on(0), [0, 1, 0]);
        assert_eq!(checked.life(1), [CpuRelease]);
        let released = checked.ops(CpuRelease);
        assert!(matches!(
            released[..],
            [(
                _,
                OpCall::CpuRelease {
                    reason: PreemptReason::Deadline,
                    task: Some(TaskId(1)),
                    ..
                }
            )]
        ));
    }
}

/// A task that wants more than its runtime gets that in each period, and the rest goes to others.
#[test]
fn an_overrunner_is_throttled() {
    for (is_new, slack) in [(true, 300_000), (false, 5 * MS)] {
        let tasks = vec![
            under(hog("greedy", 10_000), 6_000, 20_000),
            hog("b", 10_000),
        ];
        let scenario = lasts(scenario(1, tasks), 1_000);
        let scenario = if is_new { scenario } else { by_ticks(scenario) };
        let checked = run_checked(scenario, Stub::fifo(&[]));
        let ran = ran_until(&checked, 1_000 * MS);
        assert!(ran[0].abs_diff(300 * MS) < slack, "{ran:?}");
        assert!(ran[0] + ran[1] > 995 * MS, "{ran:?}");
        let times = throttled(&checked);
        // Once a period; where an overrun takes a tick to be noticed, it is taken off the next period.
        assert!((45..=50).contains(&times.len()), "{}", times.len());
        if is_new {
            for (n, at) in times.iter().enumerate() {
                let due = n as u64 * 20 * MS + 6 * MS;
                assert!(at.abs_diff(due) < 100_000, "{n}: {at}");
            }
        }
        assert_eq!(missed(&checked), 0);
    }
}

#[test]
fn who_keeps_to_its_runtime_is_never_throttled() {
    // Runs 5 ms of 6 in each 16.
    let frame = task("frame", |n, _| {
        (n < 200).then(|| match n % 2 {
            0 => Action::Compute(Duration::from_ms(5)),
            _ => Action::SleepUntil(Instant::from_ns((u64::from(n) / 2 + 1) * 16 * MS)),
        })
    });
    let tasks = vec![
        under(frame, 6_000, 16_000),
        hog("a", 2_000),
        hog("b", 2_000),
    ];
    let checked = run_checked(lasts(scenario(1, tasks), 1_600), Stub::fifo(&[]));
    assert_eq!((throttled(&checked).len(), missed(&checked)), (0, 0));
    let ran = ran_until(&checked, 1_600 * MS);
    assert!(ran[0].abs_diff(500 * MS) < 2 * MS, "{ran:?}");
}

/// `yield_task_dl()`: the rest of the runtime is given away, and the task goes on with the next period.
#[test]
fn a_yield_ends_the_period() {
    let worker = task("worker", |n, _| {
        (n < 20).then(|| match n % 2 {
            0 => Action::Compute(Duration::from_ms(1)),
            _ => Action::Yield,
        })
    });
    let tasks = vec![under(worker, 6_000, 20_000), hog("b", 400)];
    let checked = run_checked(scenario(1, tasks), Stub::fifo(&[]));
    let starts = checked
        .events
        .iter()
        .filter_map(|&(at, _, event)| match event {
            Event::Switch {
                next: Some(TaskId(0)),
                ..
            } => Some(at),
            _ => None,
        });
    let starts: Vec<u64> = starts.collect();
    assert_eq!(starts.len(), 11);
    for (n, at) in starts.iter().enumerate() {
        assert!(at.abs_diff(n as u64 * 20 * MS) < 100_000, "{starts:?}");
    }
}

/// A wakeup goes on with runtime and deadline where that is within the reservation (`dl_entity_overflow()`).
#[test]
fn a_wakeup_keeps_or_replaces_runtime_and_deadline() {
    // Of 10 ms in 100, it runs 2 and sleeps, then wants 20 more: throttled when what it may use is gone.
    let used_at = |sleep_ms: u64, deadline_us: u64| {
        let worker = task("worker", move |n, _| {
            Some(match n {
                0 => Action::Compute(Duration::from_ms(2)),
                1 => Action::Sleep(Duration::from_ms(sleep_ms)),
                2 => Action::Compute(Duration::from_ms(20)),
                _ => return None,
            })
        });
        let mut worker = worker;
        worker.class = reservation(10_000, deadline_us, 100_000);
        let checked = run_checked(scenario(1, vec![worker]), Stub::fifo(&[]));
        let times = throttled(&checked);
        times.iter().map(|at| at / MS).take(2).collect::<Vec<_>>()
    };
    // At 12 ms 8 ms of runtime are left in 88 ms, which fits: throttled 8 ms later.
    assert_eq!(used_at(10, 100_000), [20, 110]);
    // At 52 ms, 8 in 48 is more than 10 in 100: a new period begins, with 10 ms.
    assert_eq!(used_at(50, 100_000), [62, 162]);
    // With a deadline of 50 ms, at 32 ms: 8 in 18 is more than 10 in 50, so what is left is cut to 3.6 (the revised rule).
    assert_eq!(used_at(30, 50_000), [35, 110]);
    // Between deadline and next period it waits for that; then it has 10 ms.
    assert_eq!(used_at(70, 50_000), [72, 110]);
}

/// The sum of reservations is at most 95 % of each CPU, less the 5 % of a deadline server.
#[test]
fn reservations_that_do_not_fit_are_refused() {
    let failure = |nr_cpus: usize, shares: &[u64]| {
        let tasks = shares
            .iter()
            .map(|&share| under(hog("d", 1), share * 100, 100_000))
            .collect();
        run_checked(scenario(nr_cpus, tasks), Stub::fifo(&[]))
            .end
            .failure
    };
    assert_eq!(failure(1, &[450, 449]), None);
    assert_eq!(failure(2, &[990, 809]), None);
    let refused = failure(2, &[990, 820]).unwrap().to_string();
    assert_eq!(
        refused,
        "d[1001] cannot run under SCHED_DEADLINE: with its 81.9 % of a CPU 180.9 % would be reserved, and 2 CPUs have 180.0 % for that (EBUSY); reserve less, or add CPUs"
    );
    let refused = failure(1, &[450, 460]).unwrap().to_string();
    assert!(
        refused.contains(" and 1 CPU has 90.0 % for that"),
        "{refused}"
    );
    // Bandwidth that a task gives back is free for others.
    let first = under(hog("first", 1), 60_000, 100_000);
    let mut second = under(hog("second", 1), 60_000, 100_000);
    second.start = Instant::from_ns(50 * MS);
    let end = run_checked(scenario(1, vec![first, second]), Stub::fifo(&[])).end;
    assert_eq!(end.failure, None);
}

#[test]
fn what_deadline_tasks_may_not_do_is_refused() {
    let refused = |class: SchedClass, action: fn() -> Action, cpus: Option<&str>| {
        let spec = task("d", move |n, _| {
            Some(match n {
                0 => Action::Compute(Duration::from_us(10)),
                1 => Action::SetClass(class),
                2 => action(),
                _ => return None,
            })
        });
        let spec = match cpus {
            Some(cpus) => on_cpus(spec, cpus),
            None => spec,
        };
        let end = run_checked(scenario(2, vec![spec]), Stub::fifo(&[])).end;
        end.failure.map(|failure| failure.to_string())
    };
    let sound = reservation(10_000, 50_000, 100_000);
    let idle = || Action::Syscall;
    assert_eq!(refused(sound, idle, None), None);
    assert_eq!(refused(sound, idle, Some("0-1")), None);
    let told = |class, action, cpus| refused(class, action, cpus).unwrap();
    assert!(told(sound, idle, Some("1")).contains("(EPERM)"));
    assert!(told(sound, || Action::SetAffinity("0".parse().unwrap()), None).contains("(EBUSY)"));
    assert!(told(sound, || Action::Fork(Box::new(hog("c", 1))), None).contains("(EAGAIN)"));
    assert!(told(reservation(60_000, 50_000, 100_000), idle, None).contains("(EINVAL)"));
}

/// `select_task_rq_dl()`, `push_dl_task()`, `pull_dl_task()`: as many of the earliest run as there are CPUs.
#[test]
fn deadline_tasks_spread_over_the_cpus() {
    let tasks: Vec<_> = (0..4u64)
        .map(|n| under(periodic("d", 3_000, 7_000, 100), 4_000, 10_000 + n))
        .collect();
    let mut scenario = lasts(scenario(4, tasks), 900);
    scenario.normal_class = NormalClass::Fair;
    let checked = run_checked(scenario, Stub::minimal());
    assert_eq!((missed(&checked), throttled(&checked).len()), (0, 0));
    // One woken beside a busy CPU of an earlier deadline goes to the other one.
    let greedy = under(hog("greedy", 50), 60_000, 100_000);
    let mut late = under(hog("late", 20), 40_000, 200_000);
    late.start = Instant::from_ns(10 * MS);
    let mut later = under(hog("later", 20), 40_000, 300_000);
    later.start = Instant::from_ns(12 * MS);
    let checked = run_checked(scenario_of(vec![greedy, late, later]), Stub::fifo(&[]));
    // The third waits for the first of the two to end, wherever that is: 10 + 20 ms.
    let began = checked
        .events
        .iter()
        .find_map(|&(at, _, event)| match event {
            Event::Switch {
                next: Some(TaskId(2)),
                ..
            } => Some(at / MS),
            _ => None,
        });
    assert_eq!(began, Some(30));
}

fn scenario_of(tasks: Vec<TaskSpec>) -> Scenario {
    lasts(scenario(2, tasks), 200)
}

/// A CPU stays online that the reservations need (`dl_bw_deactivate()`); one that they do not goes, and they run on.
#[test]
fn a_cpu_that_reservations_need_stays() {
    let offline = |share: u64| {
        let tasks = vec![
            under(hog("a", 200), share * 1_000, 100_000),
            under(hog("b", 200), share * 1_000, 100_000),
        ];
        let mut scenario = lasts(scenario(2, tasks), 400);
        scenario.hotplug = vec![Hotplug {
            at: Instant::from_ns(50 * MS),
            cpu: schedlab_trace::CpuId(1),
            online: false,
        }];
        let checked = run_checked(scenario, Stub::fifo(&[CpuOffline, CpuOnline]));
        checked.is_done();
        let ran = ran_until(&checked, 400 * MS);
        (checked.ops(CpuOffline).len(), ran)
    };
    assert_eq!(offline(60).0, 0);
    let (told, ran) = offline(40);
    assert_eq!(told, 1);
    // 40 ms in each of four periods.
    assert!(
        ran.iter().all(|&ran| ran.abs_diff(160 * MS) < 2 * MS),
        "{ran:?}"
    );
}

#[test]
fn a_class_that_changes_to_deadline_and_back_tells_the_policy() {
    let changing = task("p", |n, _| {
        Some(match n {
            0 | 2 | 4 => Action::Compute(Duration::from_us(100)),
            1 => Action::SetClass(reservation(1_000, 10_000, 10_000)),
            3 => Action::SetClass(SchedClass::Normal),
            _ => return None,
        })
    });
    let ops = [Enable, Disable, Quiescent, Runnable];
    let checked = run_checked(scenario(1, vec![changing]), Stub::fifo(&ops));
    let expected = [
        Enable, Runnable, Enqueue, Quiescent, Disable, Enable, Runnable, Quiescent, Disable,
    ];
    assert_eq!(checked.life(0), expected);
}

/// EDF on one CPU: each job of an admitted set ends by its deadline, or later by no more than [`LATE_NS`].
///
/// That is a wakeup, a switch and the ticks and interrupts of a moment: the kernel's own work is on no reservation,
/// but the limit of 90 % leaves it a tenth of the CPU, so that it does not add up. A job's system calls, the switch
/// to it and the interrupts while it runs are charged to its runtime: it computes for 200 us less than that.
#[test]
fn admitted_sets_meet_their_deadlines_on_one_cpu() {
    const LATE_NS: u64 = 30_000;
    let mut jobs_in_all = 0;
    for seed in 0..60 {
        let mut rng = stream(seed, 77);
        let mut left = 890;
        let latest = Arc::new(AtomicU64::new(0));
        let jobs = Arc::new(AtomicU64::new(0));
        let mut tasks = vec![hog("background", 10_000)];
        while left > 30 && tasks.len() < 9 {
            let share = (20 + below(&mut rng, 300)).min(left);
            let period =
                [5_000, 8_000, 10_000, 16_000, 20_000, 40_000][below(&mut rng, 6) as usize];
            let runtime = period * share / 1_000;
            left -= share;
            if runtime < 500 {
                continue;
            }
            let offset = below(&mut rng, period);
            let (latest, jobs) = (Arc::clone(&latest), Arc::clone(&jobs));
            let mut job = task("job", move |n, context| {
                let release = |k: u64| Instant::from_ns((offset + k * period) * 1_000);
                let k = u64::from(n) / 2;
                if n % 2 == 1 {
                    return Some(Action::Compute(Duration::from_us(runtime - 200)));
                }
                if k > 0 {
                    let late = context.now.since(release(k)).ns();
                    latest.fetch_max(late, Ordering::Relaxed);
                    jobs.fetch_add(1, Ordering::Relaxed);
                }
                Some(Action::SleepUntil(release(k)))
            });
            job.class = reservation(runtime, period, period);
            tasks.push(job);
        }
        let mut scenario = lasts(scenario(1, tasks), 500);
        scenario.seed = seed;
        if seed % 2 == 1 {
            scenario.normal_class = NormalClass::Fair;
        }
        if seed % 3 == 0 {
            scenario.version = KernelVersion::V6_18;
        }
        let checked = run_checked(scenario, Stub::fifo(&[]));
        assert_eq!(checked.end.failure, None, "seed {seed}");
        assert_eq!(missed(&checked), 0, "seed {seed}");
        assert_eq!(throttled(&checked), [], "seed {seed}");
        let late = latest.load(Ordering::Relaxed);
        assert!(late <= LATE_NS, "seed {seed}: {late} ns");
        jobs_in_all += jobs.load(Ordering::Relaxed);
    }
    assert!(jobs_in_all > 5_000, "{jobs_in_all}");
}
