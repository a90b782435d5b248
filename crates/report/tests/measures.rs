//! Every measure, checked against event lists whose measures are worked out by hand.

use schedlab_report::{MetricsRecorder, Sources, Value, catalogue};
use schedlab_trace::{
    CpuId, CpuMode, CpuSet, DEADLINE_PRIORITY, Duration, Event, Instant, LockClass, LockId,
    LockPath, MigrationReach, PrevState, Recorder, TaskId, TaskMeta,
};

const A: TaskId = TaskId(0);
const B: TaskId = TaskId(1);
const RT: TaskId = TaskId(2);

/// A task that may use both CPUs.
fn meta(nice: i8) -> TaskMeta {
    TaskMeta {
        comm: "t".into(),
        nice,
        affinity: CpuSet::all(2),
        rt_priority: 0,
        idle: false,
    }
}

/// A recorder for two CPUs that knows the tasks: A at nice 0, B at nice 5 (weight 335), RT real-time.
fn recorder(sources: Sources) -> MetricsRecorder {
    let recorder = MetricsRecorder::new(2, sources);
    for (task, nice, rt_priority) in [(A, 0, 0), (B, 5, 0), (RT, 0, 10)] {
        let meta = TaskMeta {
            rt_priority,
            ..meta(nice)
        };
        recorder.define_task(task, &meta);
    }
    recorder
}

fn play(recorder: &MetricsRecorder, events: &[(u64, u32, Event)]) {
    for &(at, cpu, event) in events {
        recorder.record(Instant::from_ns(at), CpuId(cpu), event);
    }
}

fn switch(prev: Option<(TaskId, PrevState)>, next: Option<TaskId>) -> Event {
    Event::Switch {
        prev: prev.map(|(task, _)| task),
        prev_state: prev.map_or(PrevState::Preempted, |(_, state)| state),
        next,
    }
}

fn wakeup(task: TaskId, to: u32) -> Event {
    Event::Wakeup {
        task,
        to: CpuId(to),
        since: Duration::ZERO,
    }
}

fn check(recorder: &MetricsRecorder, expected: &[(&str, f64)]) {
    let measures = recorder.measures(Some(700));
    for &(name, value) in expected {
        let found = measures
            .number(name)
            .unwrap_or_else(|| panic!("{name} is absent"));
        assert!(
            (found - value).abs() <= 1e-9 * value.abs(),
            "{name} is {found}, not {value}"
        );
    }
    for (name, _) in measures.iter() {
        assert!(catalogue::find(name).is_some(), "{name} is not documented");
    }
}

/// As the real kernel shows it: no schedule(), so runnable tasks are counted at each switch.
const OF_SWITCHES: Sources = Sources {
    schedule: false,
    examined: false,
    memory: false,
    policy_locks: false,
    kernel_locks: false,
    modes: false,
    work: false,
    deadlines: false,
    ..Sources::ALL
};

#[test]
fn runnable_tasks_are_counted_at_switches_where_no_schedule_tells_them() {
    let recorder = recorder(OF_SWITCHES);
    play(
        &recorder,
        &[
            (10, 0, wakeup(A, 0)),
            // 1 is runnable.
            (20, 0, switch(None, Some(A))),
            (30, 0, wakeup(B, 1)),
            // It runs already: nothing changes.
            (31, 0, wakeup(A, 0)),
            // 2, of which A is not removed yet.
            (40, 0, switch(Some((A, PrevState::Blocked)), Some(B))),
            // A switch between strangers counts no length.
            (45, 1, switch(None, None)),
            // 1.
            (50, 0, switch(Some((B, PrevState::Preempted)), None)),
            (60, 0, Event::End),
        ],
    );
    check(
        &recorder,
        &[
            ("runqueue.len_mean", 4.0 / 3.0),
            ("runqueue.len_max", 2.0),
            ("wait.unfinished_ns_max", 10.0),
        ],
    );
    assert!(recorder.measures(None).get("schedule.calls").is_none());
    assert!(
        recorder
            .measures(None)
            .get("runqueue.cpu_len_mean")
            .is_none()
    );
}

#[test]
fn what_was_before_the_beginning_does_not_count() {
    let recorder = recorder(OF_SWITCHES);
    let migrate = Event::Migrate {
        task: B,
        from: CpuId(0),
        to: CpuId(1),
        reach: MigrationReach::Llc,
    };
    play(
        &recorder,
        &[
            // A is found running; B is put somewhere before it begins, wakes and runs.
            (0, 0, Event::Running { task: A }),
            (5, 0, migrate),
            (10, 0, wakeup(B, 1)),
            (20, 1, switch(None, Some(B))),
            (25, 0, Event::Ipi { to: CpuId(1) }),
            (30, 1, switch(Some((B, PrevState::Blocked)), None)),
            (100, 0, Event::Begin),
            // A task that slept at the beginning starts like a new one: no wakeup's latency, no migration.
            (110, 0, migrate),
            (120, 0, wakeup(B, 1)),
            (150, 1, switch(None, Some(B))),
            (160, 0, switch(Some((A, PrevState::Preempted)), None)),
            (170, 1, switch(Some((B, PrevState::Blocked)), None)),
            (180, 1, migrate),
            (190, 1, wakeup(B, 1)),
            (200, 1, switch(None, Some(B))),
            // After its end it still runs; that is not its service.
            (240, 1, Event::TaskExit { task: B }),
            (290, 1, switch(Some((B, PrevState::Exited)), None)),
            (300, 0, Event::End),
        ],
    );
    // A ran 60 of 200 ns; B ran 20 + 40 of 50 + 50.
    let (a, b) = (60.0 / 200.0, 60.0 * 1024.0 / 335.0 / 100.0);
    let b_floor = (20.0_f64 * 1024.0 / 335.0 + 40.0 * 1024.0 / 335.0).floor() / 100.0;
    assert!((b - b_floor).abs() < 0.01);
    let jain = (a + b_floor) * (a + b_floor) / (2.0 * (a * a + b_floor * b_floor));
    check(
        &recorder,
        &[
            ("end_ns", 200.0),
            ("switches.total", 2.0),
            ("switches.voluntary", 2.0),
            ("switches.involuntary", 1.0),
            ("migrations.total", 1.0),
            ("migrations.llc", 1.0),
            ("ipis", 0.0),
            ("schedule.picked_elsewhere", 0.0),
            ("wakeup.latency_ns_mean", 10.0),
            ("wait.ns_max", 30.0),
            ("fairness.jain", jain),
        ],
    );
}

/// A real workload has a process that only starts others in each of its groups.
#[test]
fn several_starters_are_in_no_count() {
    let recorder = recorder(OF_SWITCHES);
    let [first, second] = [TaskId(7), TaskId(8)];
    recorder.define_task(first, &meta(0));
    recorder.define_task(second, &meta(0));
    // The first process runs when the recording begins, and is told to start others then.
    play(&recorder, &[(0, 1, Event::Running { task: first })]);
    recorder.define_starter(first);
    play(
        &recorder,
        &[
            (0, 1, switch(Some((first, PrevState::Blocked)), None)),
            (0, 0, wakeup(second, 0)),
            (5, 0, wakeup(A, 0)),
            // Two are runnable until one of them turns out to start others.
            (10, 0, switch(None, Some(A))),
        ],
    );
    recorder.define_starter(second);
    play(
        &recorder,
        &[
            (20, 0, switch(Some((A, PrevState::Preempted)), Some(second))),
            (30, 0, wakeup(first, 1)),
            (40, 1, switch(None, Some(first))),
            (50, 0, switch(Some((second, PrevState::Blocked)), None)),
            (60, 1, switch(Some((first, PrevState::Exited)), Some(A))),
            (70, 0, Event::End),
        ],
    );
    check(
        &recorder,
        &[
            ("switches.total", 2.0),
            ("switches.voluntary", 0.0),
            ("switches.involuntary", 1.0),
            // 2 at 10 ns, then 1 at 20 and at 60.
            ("runqueue.len_mean", 4.0 / 3.0),
            ("wait.ns_max", 40.0),
        ],
    );
}

/// The main thread and a daemon are on queues at once.
#[test]
fn queues_are_counted_without_any_starter() {
    let recorder = recorder(Sources::ALL);
    let [main, daemon] = [TaskId(7), TaskId(8)];
    for task in [main, daemon] {
        recorder.define_starter(task);
        recorder.define_task(task, &meta(0));
    }
    let enter = |runnable, queue| Event::ScheduleEnter { runnable, queue };
    play(
        &recorder,
        &[
            (0, 0, wakeup(main, 0)),
            (1, 0, wakeup(daemon, 1)),
            (2, 0, wakeup(A, 0)),
            // Without both 1 and 1, then 1 and 0.
            (10, 0, enter(3, 2)),
            (20, 1, enter(3, 1)),
            (30, 1, switch(None, Some(daemon))),
            (40, 1, switch(Some((daemon, PrevState::Blocked)), None)),
            // Without the main thread 1 and 1.
            (50, 0, enter(2, 2)),
            (60, 0, Event::End),
        ],
    );
    check(
        &recorder,
        &[
            ("runqueue.len_mean", 1.0),
            ("runqueue.len_max", 1.0),
            ("runqueue.cpu_len_mean", 2.0 / 3.0),
        ],
    );
}

#[test]
fn schedule_and_queue_lengths() {
    let recorder = recorder(Sources::ALL);
    let enter = |runnable, queue| Event::ScheduleEnter { runnable, queue };
    let exit = |examined, recalculations, memory_wait_ps| Event::ScheduleExit {
        examined,
        recalculations,
        memory_wait_ps,
    };
    play(
        &recorder,
        &[
            (1_000, 0, enter(4, 3)),
            (1_200, 1, enter(5, 1)),
            (3_000, 0, exit(4, 0, 900_500)),
            (1_700, 1, exit(10, 2, 99_500)),
            // The run ends inside this call: it counts as a call, not in the means.
            (4_000, 0, enter(9, 9)),
            (4_100, 0, Event::End),
        ],
    );
    check(
        &recorder,
        &[
            ("schedule.calls", 3.0),
            ("schedule.time_ns_mean", (2_000.0 + 500.0) / 2.0),
            ("schedule.time_ns_max", 2_000.0),
            ("schedule.cycles_mean", 1_250.0 * 0.7),
            // 1,000 of 2,500 ns.
            ("schedule.memory_wait_ns_mean", 500.0),
            ("schedule.memory_wait_pct", 40.0),
            ("schedule.examined_mean", 7.0),
            ("schedule.examined_max", 10.0),
            ("schedule.recalculations", 2.0),
            ("runqueue.len_mean", 6.0),
            ("runqueue.len_max", 9.0),
            ("runqueue.cpu_len_mean", 13.0 / 3.0),
            ("runqueue.cpu_len_max", 9.0),
            // |3 − 2|, |1 − 2.5|, |9 − 4.5|
            ("runqueue.cpu_deviation_mean", (1.0 + 1.5 + 4.5) / 3.0),
        ],
    );
    assert_eq!(
        recorder.queue_histogram(),
        [(4, 4, 1), (5, 5, 1), (9, 9, 1)]
    );
    // All in the first stretch of 1 ms: 3 − 2 and 9 − 4.5 on CPU 0, 1 − 2.5 on CPU 1.
    let expected = [
        ("runqueue.deviation.cpu0".to_owned(), vec![(500_000, 2.75)]),
        ("runqueue.deviation.cpu1".to_owned(), vec![(500_000, -1.5)]),
    ];
    assert_eq!(recorder.series(), expected);
}

#[test]
fn locks_by_class_and_by_path() {
    let recorder = recorder(Sources::ALL);
    let (queue, dsq, rq, other) = (LockId(0), LockId(1), LockId(2), LockId(3));
    let device = LockId(4);
    recorder.define_lock(queue, "queue", LockClass::RunQueue);
    recorder.define_lock(dsq, "dsq", LockClass::Dsq);
    recorder.define_lock(rq, "rq0", LockClass::KernelRq);
    recorder.define_lock(other, "other", LockClass::Other);
    let measures = recorder.measures(None);
    assert_eq!(measures.get("lock.shared.acquisitions"), None);
    recorder.define_lock(device, "device", LockClass::Shared);
    let acquired = |lock, path, waited, contended, trylock| Event::LockAcquired {
        lock,
        path,
        waited: Duration::from_ns(waited),
        contended,
        trylock,
    };
    let released = |lock, held| Event::LockReleased {
        lock,
        held: Duration::from_ns(held),
    };
    use LockPath::{Schedule, Wakeup};
    play(
        &recorder,
        &[
            (0, 0, acquired(queue, Schedule, 0, false, false)),
            (
                10,
                1,
                Event::LockContended {
                    lock: queue,
                    path: Wakeup,
                },
            ),
            (100, 0, released(queue, 100)),
            (110, 1, acquired(queue, Wakeup, 100, true, false)),
            (
                120,
                0,
                Event::LockTryFailed {
                    lock: queue,
                    path: Schedule,
                },
            ),
            (150, 1, released(queue, 40)),
            (160, 0, acquired(dsq, Schedule, 0, false, true)),
            (170, 0, released(dsq, 10)),
            (180, 0, acquired(rq, LockPath::Other, 7, true, false)),
            (190, 0, released(rq, 3)),
            (200, 0, acquired(other, Schedule, 9_999, true, false)),
            // A wait that the end of the run cuts off is no attempt.
            (
                210,
                1,
                Event::LockContended {
                    lock: queue,
                    path: Wakeup,
                },
            ),
            (290, 1, acquired(device, LockPath::Other, 30, true, false)),
            (296, 1, released(device, 6)),
            (300, 0, Event::End),
        ],
    );
    // All: 3 acquisitions (1 try), 1 waited, 1 try failed. Holds 100, 40, 10.
    let mean: f64 = 50.0;
    let variance = (50.0f64.powi(2) + 10.0f64.powi(2) + 40.0f64.powi(2)) / 3.0;
    check(
        &recorder,
        &[
            ("lock.runqueue.acquisitions", 3.0),
            ("lock.runqueue.contention_pct", 50.0),
            ("lock.runqueue.nf_contention_pct", 50.0),
            ("lock.runqueue.try_failed", 1.0),
            ("lock.runqueue.hold_ns_mean", mean),
            ("lock.runqueue.hold_ns_max", 100.0),
            ("lock.runqueue.hold_cv", variance.sqrt() / mean),
            ("lock.runqueue.wait_ns_mean", 100.0),
            ("lock.runqueue.wait_ns_max", 100.0),
            ("lock.runqueue.schedule.acquisitions", 2.0),
            ("lock.runqueue.schedule.contention_pct", 100.0 / 3.0),
            ("lock.runqueue.schedule.nf_contention_pct", 0.0),
            ("lock.runqueue.schedule.hold_ns_mean", 55.0),
            ("lock.runqueue.wakeup.acquisitions", 1.0),
            ("lock.runqueue.wakeup.contention_pct", 100.0),
            ("lock.runqueue.wakeup.hold_ns_max", 40.0),
            ("lock.rq.acquisitions", 1.0),
            ("lock.rq.contention_pct", 100.0),
            ("lock.rq.hold_ns_mean", 3.0),
            ("lock.rq.wait_ns_max", 7.0),
            ("lock.rq.other.acquisitions", 1.0),
            ("lock.shared.acquisitions", 1.0),
            ("lock.shared.contention_pct", 100.0),
            ("lock.shared.wait_ns_mean", 30.0),
            ("lock.shared.hold_ns_mean", 6.0),
        ],
    );
    let measures = recorder.measures(None);
    assert_eq!(measures.get("lock.runqueue.other.acquisitions"), None);
    assert_eq!(measures.get("lock.runqueue.schedule.wait_ns_mean"), None);
    assert_eq!(measures.get("lock.rq.try_failed"), None);
    assert_eq!(measures.get("lock.shared.other.acquisitions"), None);
}

#[test]
fn switches_latencies_and_migrations() {
    let recorder = recorder(Sources::ALL);
    use PrevState::{Blocked, Exited, Preempted, Yielded};
    let migrate = |reach| Event::Migrate {
        task: A,
        from: CpuId(0),
        to: CpuId(1),
        reach,
    };
    play(
        &recorder,
        &[
            (100, 0, wakeup(A, 0)), // new: no wakeup latency
            (150, 0, switch(None, Some(A))),
            (200, 0, wakeup(A, 0)), // on its CPU: does not wait
            (300, 0, switch(Some((A, Blocked)), Some(B))),
            (400, 0, wakeup(A, 1)),
            (500, 1, switch(None, Some(A))), // latency 100, last ran on cpu0
            (600, 1, switch(Some((A, Yielded)), Some(RT))),
            (700, 1, switch(Some((RT, Preempted)), Some(A))), // no wakeup
            (800, 1, switch(Some((A, Blocked)), None)),
            (850, 1, wakeup(A, 1)),
            (1_150, 1, switch(None, Some(A))), // latency 300
            (1_200, 0, switch(Some((B, Exited)), None)),
            (1_300, 0, migrate(MigrationReach::Smt)),
            (1_300, 0, migrate(MigrationReach::Llc)),
            (1_300, 0, migrate(MigrationReach::Llc)),
            (1_300, 0, migrate(MigrationReach::Remote)),
            (1_400, 0, Event::Ipi { to: CpuId(1) }),
            (1_500, 0, Event::End),
        ],
    );
    check(
        &recorder,
        &[
            ("end_ns", 1_500.0),
            ("switches.total", 6.0),
            ("switches.voluntary", 3.0),
            ("switches.involuntary", 2.0),
            ("switches.yielded", 1.0),
            ("schedule.picked_elsewhere", 1.0),
            ("migrations.total", 4.0),
            ("migrations.smt", 1.0),
            ("migrations.llc", 2.0),
            ("migrations.node", 0.0),
            ("migrations.remote", 1.0),
            ("ipis", 1.0),
            ("wakeup.latency_ns_p50", 100.0),
            ("wakeup.latency_ns_p90", 300.0),
            ("wakeup.latency_ns_p99", 300.0),
            ("wakeup.latency_ns_p99_9", 300.0),
            ("wakeup.latency_ns_mean", 200.0),
            ("wakeup.latency_ns_max", 300.0),
        ],
    );
}

/// A real-time task takes the CPU while another one waits until the end, as in an rt-app file where one sleeps for 1 ms at
/// a time and the other runs for 2.5 s after 2 ms, in a run of 1 s.
#[test]
fn waits_that_the_end_cuts_off_are_told_apart() {
    let recorder = recorder(Sources::ALL);
    use PrevState::{Blocked, Preempted};
    play(
        &recorder,
        &[
            (0, 0, wakeup(A, 0)),
            (0, 0, switch(None, Some(A))),
            (50_000, 0, switch(Some((A, Blocked)), None)),
            (1_050_000, 0, wakeup(A, 0)),
            (1_050_100, 0, switch(None, Some(A))), // latency 100
            (1_150_100, 0, switch(Some((A, Blocked)), None)),
            (2_000_000, 0, wakeup(RT, 0)),
            (2_000_200, 0, switch(None, Some(RT))), // new: no latency
            (2_100_000, 0, wakeup(A, 0)),           // does not run any more
            (2_200_000, 0, wakeup(A, 0)),           // waits already
            (900_000_000, 1, wakeup(B, 1)),
            (900_000_000, 1, switch(None, Some(B))),
            (950_000_000, 1, switch(Some((B, Preempted)), None)), // waits, but nothing woke it
            (1_000_000_000, 0, Event::End),
        ],
    );
    check(
        &recorder,
        &[
            ("wakeup.latency_ns_p50", 100.0),
            ("wakeup.latency_ns_max", 100.0),
            ("wakeup.unfinished", 1.0),
            ("wakeup.unfinished_ns_max", 997_900_000.0),
            ("wait.ns_max", 200.0), // RT's, when it was new
            ("wait.unfinished_ns_max", 997_900_000.0),
        ],
    );
}

/// Neither was woken.
#[test]
fn new_and_preempted_tasks_that_starve_are_told() {
    use PrevState::Preempted;
    for (starves, ns) in [(vec![], 0.0), (vec![(300, 0, wakeup(B, 0))], 700.0)] {
        let recorder = recorder(Sources::ALL);
        let mut events = vec![(0, 0, wakeup(A, 0)), (100, 0, switch(None, Some(A)))];
        events.extend(starves);
        events.push((1_000, 0, Event::End));
        play(&recorder, &events);
        check(
            &recorder,
            &[("wait.ns_max", 100.0), ("wait.unfinished_ns_max", ns)],
        );
    }
    let recorder = recorder(Sources::ALL);
    play(
        &recorder,
        &[
            (0, 0, wakeup(A, 0)),
            (100, 0, switch(None, Some(A))),
            (150, 0, wakeup(B, 0)),
            (400, 0, switch(Some((A, Preempted)), Some(B))),
            (1_000, 0, Event::End),
        ],
    );
    check(
        &recorder,
        &[
            ("wakeup.unfinished", 0.0),
            ("wait.ns_max", 250.0),
            ("wait.unfinished_ns_max", 600.0),
        ],
    );
}

#[test]
fn a_start_is_an_inversion_while_a_better_task_that_may_run_there_waits() {
    let recorder = recorder(Sources::ALL);
    use PrevState::{Blocked, Preempted};
    play(
        &recorder,
        &[
            (100, 0, wakeup(B, 0)),
            (110, 0, switch(None, Some(B))), // nobody else waits
            (120, 0, wakeup(A, 0)),
            (130, 0, wakeup(RT, 0)),
            (140, 0, switch(Some((B, Preempted)), Some(A))), // RT waits: 1
            (150, 1, switch(None, Some(B))),                 // RT waits: 2
            (160, 1, switch(Some((B, Preempted)), Some(RT))), // only B waits, which is worse
            (170, 1, switch(Some((RT, Blocked)), Some(B))),  // A runs, RT sleeps
            (180, 0, switch(Some((A, Preempted)), None)),
        ],
    );
    check(&recorder, &[("schedule.priority_inversions", 2.0)]);
    // A waits, but may not run where B starts.
    recorder.define_affinity(A, &CpuSet::single(2, CpuId(0)));
    play(
        &recorder,
        &[
            (200, 1, switch(Some((B, Preempted)), None)),
            (210, 1, switch(None, Some(B))),
        ],
    );
    check(&recorder, &[("schedule.priority_inversions", 2.0)]);
    // On CPU 0 it may: 3. B is made better than A while it runs, so its next start is not an inversion.
    play(
        &recorder,
        &[
            (300, 1, switch(Some((B, Preempted)), None)),
            (310, 0, switch(None, Some(B))),
        ],
    );
    check(&recorder, &[("schedule.priority_inversions", 3.0)]);
    recorder.define_task(B, &meta(-1));
    play(
        &recorder,
        &[
            (400, 0, switch(Some((B, Preempted)), None)),
            (410, 0, switch(None, Some(B))),
            (420, 0, switch(Some((B, Preempted)), None)),
            (430, 0, switch(None, Some(A))), // B waits: 4
        ],
    );
    check(&recorder, &[("schedule.priority_inversions", 4.0)]);
}

/// CPUs report their events a little out of the order of time.
/// RT as a deadline task: throttled twice, late once. While it is throttled no other task waits for it.
#[test]
fn deadline_tasks_are_counted() {
    let recorder = recorder(Sources::ALL);
    assert_eq!(recorder.measures(None).number("deadline.throttled"), None);
    let deadline = TaskMeta {
        rt_priority: DEADLINE_PRIORITY,
        ..meta(0)
    };
    recorder.define_task(RT, &deadline);
    let preempted = |task| Some((task, PrevState::Preempted));
    play(
        &recorder,
        &[
            (0, 0, wakeup(A, 0)),
            (0, 0, wakeup(RT, 0)),
            (1, 0, switch(None, Some(RT))),
            (10, 0, Event::Throttled { task: RT }),
            // Throttled, it does not wait: no inversion.
            (11, 0, switch(preempted(RT), Some(A))),
            (20, 0, Event::Replenished { task: RT }),
            // From here it does.
            (21, 0, switch(preempted(A), Some(B))),
            (22, 0, switch(preempted(B), Some(RT))),
            (30, 0, Event::DeadlineMissed { task: RT }),
            (31, 0, Event::Throttled { task: RT }),
            (32, 0, switch(preempted(RT), Some(A))),
        ],
    );
    check(
        &recorder,
        &[
            ("deadline.throttled", 2.0),
            ("deadline.missed", 1.0),
            ("schedule.priority_inversions", 1.0),
        ],
    );
}

#[test]
fn inversions_are_those_of_the_order_of_time() {
    let recorder = MetricsRecorder::new(2, Sources::ALL);
    recorder.define_task(A, &meta(0));
    recorder.define_task(B, &meta(10));
    play(
        &recorder,
        &[
            (0, 0, wakeup(A, 0)),
            (0, 0, wakeup(B, 0)),
            (18, 1, switch(None, Some(B))), // A runs since 8 ns
            (10, 0, switch(None, Some(A))),
            (40, 1, switch(Some((B, PrevState::Blocked)), None)),
            (50, 1, wakeup(B, 0)),
            (58, 1, switch(None, Some(B))), // A waits since 8 ns
            (50, 0, switch(Some((A, PrevState::Preempted)), None)),
        ],
    );
    check(&recorder, &[("schedule.priority_inversions", 1.0)]);
}

/// A task of `SCHED_IDLE` comes after all others, whatever its nice level.
#[test]
fn a_start_of_an_idle_task_is_an_inversion_while_any_other_waits() {
    let idle = TaskMeta {
        idle: true,
        ..meta(-20)
    };
    let recorder = MetricsRecorder::new(2, Sources::ALL);
    recorder.define_task(A, &idle);
    recorder.define_task(B, &meta(19));
    play(
        &recorder,
        &[
            (0, 0, wakeup(A, 0)),
            (0, 0, wakeup(B, 0)),
            (10, 0, switch(None, Some(A))), // B waits: 1
            (20, 0, switch(Some((A, PrevState::Preempted)), Some(B))),
        ],
    );
    check(&recorder, &[("schedule.priority_inversions", 1.0)]);
}

/// The process that changes its own nice level does so while it runs.
#[test]
fn fairness_counts_each_stretch_at_its_own_weight() {
    let recorder = MetricsRecorder::new(2, Sources::ALL);
    recorder.define_task(A, &meta(0));
    recorder.define_task(B, &meta(0));
    play(
        &recorder,
        &[
            (0, 0, wakeup(A, 0)),
            (0, 0, wakeup(B, 1)),
            (0, 0, switch(None, Some(A))),
            (0, 1, switch(None, Some(B))),
            (100_000, 0, Event::Mode(CpuMode::Sched)),
        ],
    );
    recorder.define_task(A, &meta(19));
    play(&recorder, &[(100_000, 1, Event::End)]);
    // Both had a CPU all the time that they wanted one, at the same weight but for the last moment.
    check(&recorder, &[("fairness.jain", 1.0)]);
}

/// Tasks that wait when the first one of another priority is defined are known.
#[test]
fn inversions_are_seen_from_the_first_different_task_on() {
    let recorder = MetricsRecorder::new(2, Sources::ALL);
    recorder.define_task(A, &meta(0));
    recorder.define_task(B, &meta(0));
    play(&recorder, &[(0, 0, wakeup(A, 0)), (0, 0, wakeup(B, 0))]);
    play(&recorder, &[(10, 0, switch(None, Some(A)))]);
    recorder.define_task(RT, &meta(3));
    play(
        &recorder,
        &[(20, 1, wakeup(RT, 1)), (30, 1, switch(None, Some(RT)))],
    );
    // B has waited since before.
    check(&recorder, &[("schedule.priority_inversions", 1.0)]);
}

#[test]
fn time_by_mode_until_the_end() {
    let recorder = recorder(Sources::ALL);
    let mode = Event::Mode;
    play(
        &recorder,
        &[
            (100, 0, mode(CpuMode::Kernel)), // idle 100
            (130, 0, mode(CpuMode::Sched)),  // kernel 30
            (140, 0, mode(CpuMode::Spin)),   // sched 10
            (160, 0, mode(CpuMode::Sched)),  // spin 20
            (170, 0, mode(CpuMode::User)),   // sched 10
            (170, 0, Event::Tick),
            (400, 1, mode(CpuMode::Kernel)), // idle 400
            // cpu0: user 330, cpu1, which is ahead: kernel 200 until the end
            (500, 0, Event::End),
            (600, 1, Event::End),
        ],
    );
    check(
        &recorder,
        &[
            ("end_ns", 500.0),
            ("cpu.idle_pct", 100.0 * 500.0 / 1_100.0),
            ("cpu.user_pct", 30.0),
            ("cpu.kernel_pct", 100.0 * 230.0 / 1_100.0),
            ("cpu.spin_pct", 100.0 * 20.0 / 1_100.0),
            ("sched.share_of_kernel_pct", 100.0 * 40.0 / 270.0),
            ("sched.share_of_all_pct", 100.0 * 40.0 / 1_100.0),
            ("ticks", 1.0),
        ],
    );
}

#[test]
fn fairness_is_service_per_weight_while_a_cpu_is_wanted() {
    let recorder = recorder(Sources::ALL);
    use PrevState::{Blocked, Preempted};
    play(
        &recorder,
        &[
            (0, 0, wakeup(A, 0)),
            (0, 0, wakeup(B, 0)),
            (0, 0, wakeup(RT, 0)), // real-time tasks do not count
            (0, 0, switch(None, Some(A))),
            (600, 0, switch(Some((A, Preempted)), Some(B))),
            (800, 0, switch(Some((B, Blocked)), Some(A))),
            (1_000, 0, Event::End),
        ],
    );
    // A: 800 of 1000 wanted. B: 200 at weight 335, 611 whole ns of nice-0 time, of 800 wanted.
    let (a, b) = (800.0 / 1_000.0, 611.0 / 800.0);
    let jain = (a + b) * (a + b) / (2.0 * (a * a + b * b));
    check(&recorder, &[("fairness.jain", jain)]);
}

#[test]
fn work_is_counted() {
    let recorder = recorder(Sources::ALL);
    play(
        &recorder,
        &[
            (1, 0, Event::Work { task: A, n: 3 }),
            (2, 1, Event::Work { task: B, n: 4 }),
        ],
    );
    check(&recorder, &[("work", 7.0), ("end_ns", 2.0)]);
}

#[test]
fn what_a_world_does_not_show_is_absent() {
    // Switches and wakeups alone.
    let recorder = recorder(Sources {
        schedule: false,
        examined: false,
        memory: false,
        policy_locks: false,
        kernel_locks: false,
        modes: false,
        yields: false,
        priorities: false,
        deadlines: false,
        migrations: false,
        ipis: false,
        work: false,
    });
    play(
        &recorder,
        &[
            (0, 0, wakeup(A, 0)),
            (5, 0, switch(None, Some(A))),
            (9, 0, switch(Some((A, PrevState::Blocked)), None)),
            (9, 0, Event::End),
        ],
    );
    let measures = recorder.measures(Some(700));
    let names: Vec<_> = measures.iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "end_ns",
            "runqueue.len_mean",
            "runqueue.len_max",
            "schedule.picked_elsewhere",
            "switches.total",
            "switches.voluntary",
            "switches.involuntary",
            "wakeup.unfinished",
            "wakeup.unfinished_ns_max",
            "wait.ns_max",
            "wait.unfinished_ns_max",
            "fairness.jain"
        ]
    );
    assert!(
        measures
            .iter()
            .all(|(_, value)| !matches!(value, Value::Text(_)))
    );
}

/// Threads that only create tasks are in no count of tasks, whatever else they do meanwhile.
#[test]
fn who_only_starts_tasks_does_not_count() {
    const MAIN: TaskId = TaskId(3);
    use PrevState::{Blocked, Preempted};
    let enter = |runnable, queue| Event::ScheduleEnter { runnable, queue };
    let migrate = |task, from, to| Event::Migrate {
        task,
        from: CpuId(from),
        to: CpuId(to),
        reach: MigrationReach::Llc,
    };
    // The same tasks with a starter, and without it.
    let with = [
        (0, 0, wakeup(MAIN, 0)),
        (10, 0, switch(None, Some(MAIN))),
        (20, 0, wakeup(A, 0)),
        (30, 0, enter(2, 2)),
        (40, 0, switch(Some((MAIN, Preempted)), Some(A))),
        (50, 1, migrate(MAIN, 0, 1)),
        (60, 1, enter(2, 1)),
        (70, 1, switch(None, Some(MAIN))),
        (80, 1, enter(2, 1)),
        (90, 1, switch(Some((MAIN, Blocked)), None)),
        (95, 0, enter(1, 1)),
        (100, 0, switch(Some((A, Blocked)), None)),
        (110, 0, wakeup(A, 0)),
        (120, 0, switch(None, Some(A))),
        (130, 0, Event::End),
        (130, 1, Event::End),
    ];
    let without = [
        (20, 0, wakeup(A, 0)),
        (30, 0, enter(1, 1)),
        (40, 0, switch(None, Some(A))),
        (60, 1, enter(1, 0)),
        (80, 1, enter(1, 0)),
        (95, 0, enter(1, 1)),
        (100, 0, switch(Some((A, Blocked)), None)),
        (110, 0, wakeup(A, 0)),
        (120, 0, switch(None, Some(A))),
        (130, 0, Event::End),
        (130, 1, Event::End),
    ];
    let recorder = || {
        let recorder = MetricsRecorder::new(2, Sources::ALL);
        recorder.define_task(A, &meta(0));
        recorder
    };
    let (counted, told) = (recorder(), recorder());
    told.define_starter(MAIN);
    // Another level of priority would make inversions possible.
    told.define_task(MAIN, &meta(-20));
    play(&counted, &without);
    play(&told, &with);
    let measures = told.measures(None);
    assert_eq!(measures, counted.measures(None));
    assert_eq!(measures.number("switches.total"), Some(2.0));
    assert_eq!(measures.number("switches.involuntary"), Some(0.0));
    assert_eq!(measures.number("migrations.total"), Some(0.0));
    assert_eq!(measures.number("fairness.jain"), Some(1.0));
    assert_eq!(told.queue_histogram(), counted.queue_histogram());
}
