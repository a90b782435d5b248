//! Tests the results of the task sets of `workloads/rt-app/`, and the messages about wrong ones.

use schedlab_trace::{CpuId, Duration, Instant};
use schedlab_workload::testing::{End, Order, run_in};
use schedlab_workload::{
    Action, Context, ObjectSpec, Outcome, Reservation, SchedClass, Workload, rtapp,
};

fn file(name: &str) -> String {
    format!(
        "{}/../../workloads/rt-app/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// Nothing is drawn: what the file says.
const EXACT: &str = "jitter=0,offset=0";

fn load(name: &str) -> Workload {
    Workload::parse(&format!("{}:{EXACT}", file(name)), 4).unwrap()
}

fn run(name: &str) -> End {
    run_in(load(name), Order::RoundRobin)
}

fn iterations(end: &End, thread: &str) -> i64 {
    end.counters.get(&format!("rtapp.{thread}.iterations"))
}

fn measure(end: &End, thread: &str, what: &str) -> f64 {
    let name = format!("rtapp.{thread}.{what}");
    let measures = end.counters.measures();
    let found = measures.iter().find(|(known, _)| *known == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {measures:?}"))
        .1
}

#[test]
fn every_file_loads_and_ends_in_any_order() {
    let folder = std::path::Path::new(&file("x"))
        .parent()
        .unwrap()
        .to_owned();
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "json") {
            continue;
        }
        seen += 1;
        for order in [
            Order::RoundRobin,
            Order::UntilBlocked,
            Order::Random(1),
            Order::Random(2),
        ] {
            let workload = Workload::parse(path.to_str().unwrap(), 4).unwrap();
            assert!(run_in(workload, order).work > 0, "{path:?}");
        }
    }
    assert_eq!(seen, 10);
}

#[test]
fn timers_keep_their_period() {
    let end = run("periodic");
    assert_eq!(iterations(&end, "light-0"), 10);
    // Ten periods of 10 ms, the phases' 4 · 2 after a delay, on one CPU with little to do.
    assert!((measure(&end, "light-0", "period_ns_mean") - 1e7).abs() < 1e5);
    assert!((measure(&end, "light-1", "run_ns_mean") - 1e6).abs() < 1e6);
    assert_eq!(iterations(&end, "growing-2"), 8);
    assert_eq!(end.now.ns(), 100_000_000);
    // 3 ms of work in a period of 2 ms: always late, and a relative timer begins anew each time.
    let slack = measure(&end, "late-3", "slack_ns_mean");
    assert!(slack < -1e6, "{slack}");
    assert!(measure(&end, "late-3", "slack_ns_min") <= slack);
}

#[test]
fn an_absolute_timer_is_not_moved_by_a_late_phase() {
    let timed = |mode: &str| {
        let text = format!(
            r#"{{"tasks": {{"t": {{"loop": 1, "phases": {{
                "a": {{"run": 25, "timer": {{"ref": "unique", "period": 10, "mode": "{mode}"}}}},
                "b": {{"loop": 3, "run": 1, "timer": {{"ref": "unique", "period": 10, "mode": "{mode}"}}}}
            }}}}}}}}"#
        );
        run_in(
            rtapp::parse("t", &text, EXACT, 1).unwrap(),
            Order::RoundRobin,
        )
        .now
        .ns()
    };
    // Relative: 25 + 3 · 10 µs. Absolute: fires at 10 (late), 20 (late), 30 and 40 µs.
    assert_eq!((timed("relative"), timed("absolute")), (55_000, 40_000));
}

/// Two threads share a timer: when the first one wakes, the second has moved it on.
#[test]
fn the_wakeup_latency_is_from_the_instant_for_which_a_thread_slept() {
    let text = r#"{"tasks": {"a": {"loop": 1, "timer": {"ref": "t", "period": 5000}},
        "b": {"loop": 1, "timer": {"ref": "t", "period": 5000}}, "hog": {"loop": 1, "run": 7000}}}"#;
    let end = run_in(parsed(text), Order::UntilBlocked);
    let latency = |thread| measure(&end, thread, "wakeup_latency_ns_mean");
    assert_eq!((latency("a-0"), latency("b-1")), (2e6, 0.0));
}

#[test]
fn cumulative_slack_adds_the_timers_of_a_phase() {
    let slack = |cumulative: bool| {
        let text = format!(
            r#"{{"tasks": {{"t": {{"loop": 4, "run": 1, "timer0": {{"ref": "unique", "period": 10}},
               "run2": 3, "timer1": {{"ref": "unique", "period": 10}}}}}},
               "global": {{"cumulative_slack": {cumulative}}}}}"#
        );
        let end = run_in(
            rtapp::parse("t", &text, EXACT, 1).unwrap(),
            Order::RoundRobin,
        );
        end.counters.get("rtapp.t-0.slack_ns_sum")
    };
    assert_eq!(
        (slack(false), slack(true)),
        (4 * 7_000, 4 * (9_000 + 7_000))
    );
}

#[test]
fn conditions_wake_one_or_all() {
    let end = run("locks");
    for thread in ["producer-0", "consumer-1"] {
        assert_eq!(iterations(&end, thread), 5, "{thread}");
    }
    for thread in ["listener-2", "listener-3", "announcer-4"] {
        assert_eq!(iterations(&end, thread), 1, "{thread}");
    }
    // The two syncs hand a turn to and fro; the last one to wait is never signalled.
    let turns = iterations(&end, "left-5") + iterations(&end, "right-6");
    assert!((4..=6).contains(&turns), "{turns}");
}

#[test]
fn resumes_find_threads_by_name_or_by_an_old_string() {
    let workload = load("suspend");
    assert_eq!(workload.notes.len(), 3, "{:?}", workload.notes);
    assert!(workload.notes[0].contains("`tasks.worker.suspend` has no value"));
    assert!(workload.notes[1].contains("`tasks.crew1.suspend` waits under the name `crew`"));
    let end = run("suspend");
    for thread in ["clock-0", "worker-1", "crew1-2", "crew2-3"] {
        assert_eq!(iterations(&end, thread), 10, "{thread}");
    }
}

#[test]
fn a_barrier_holds_until_all_instances_are_there() {
    let end = run("barrier");
    assert_eq!(end.work, 16);
    assert_eq!(end.yields, 12);
    // On one CPU no thread passes the first barrier before the slow one's 5 ms of wall-clock time.
    assert!(measure(&end, "fast-0", "period_ns_mean") >= 7e6);
}

#[test]
fn semaphores_remember_posts() {
    let end = run("pipeline");
    assert_eq!(end.work, 60);
}

#[test]
fn forks_make_new_threads() {
    let workload = load("fork");
    assert_eq!(workload.tasks.len(), 1);
    let end = run("fork");
    assert_eq!(end.tasks, 5);
    assert_eq!(end.work, 4 + 4 * 2);
    for thread in [
        "child-1-0000",
        "child-2-0001",
        "child-3-0002",
        "child-4-0003",
    ] {
        assert_eq!(iterations(&end, thread), 2, "{thread}");
    }
}

#[test]
fn a_fork_loop_stops_at_the_limit_of_rt_app() {
    let text = r#"{"tasks": {"c": {"instance": 0, "loop": 1, "run": 1}, "p": {"loop": -1, "fork": "c", "sleep": 1}}}"#;
    let end = run_in(rtapp::parse("t", text, "", 1).unwrap(), Order::RoundRobin);
    assert_eq!(end.tasks, 1 + 1_024);
    assert_eq!(end.counters.get("rtapp.fork_limit_reached"), 1);
    assert!(
        rtapp::failure(&end.counters)
            .unwrap()
            .contains("1024 times")
    );
    assert_eq!(rtapp::failure(&run("fork").counters), None);
}

/// Forked threads run where their forker may run at that moment, whenever nothing else is said, and so do those that they fork.
#[test]
fn forked_threads_inherit_cpus() {
    use schedlab_trace::Instant;
    use schedlab_workload::{Action, Context, Outcome, TaskSpec, stream};
    /// Where a thread and those that it forks may run, phase by phase.
    fn follow(mut task: TaskSpec, seen: &mut Vec<(String, String)>) {
        let cpus = |cpus: &schedlab_trace::CpuSet| cpus.to_string();
        let mut places = task.affinity.as_ref().map_or("any".to_owned(), cpus);
        let mut rng = stream(1, 0);
        let mut forked = Vec::new();
        loop {
            let action = task.behaviour.next(&mut Context {
                now: Instant::ZERO,
                outcome: Outcome::Done,
                cpu: CpuId(0),
                rng: &mut rng,
            });
            match action {
                Action::SetAffinity(set) => places = format!("{places} {}", cpus(&set)),
                Action::Fork(task) => forked.push(*task),
                Action::Exit => break,
                _ => {}
            }
        }
        seen.push((task.comm, places));
        forked.into_iter().for_each(|task| follow(task, seen));
    }
    let text = r#"{"tasks": {
        "p": {"loop": 1, "phases": {"a": {"cpus": [0], "run": 1, "fork": "c"}, "b": {"run": 1, "fork": "d"}}},
        "c": {"instance": 0, "loop": 1, "phases": {"a": {"run": 1}, "b": {"cpus": [1], "run": 1},
              "c": {"run": 1, "fork": "d"}}},
        "d": {"instance": 0, "loop": 1, "run": 1}}}"#;
    let inherited = |options: &str| {
        let mut tasks = rtapp::parse("t", text, options, 4).unwrap().tasks;
        let mut seen = Vec::new();
        follow(tasks.remove(0), &mut seen);
        seen
    };
    let expected = [
        ("p-0", "0 0-3"),
        ("c-1-0000", "0 1 0"),
        ("d-3-0001", "0"),
        ("d-2-0000", "any"),
    ];
    let expected = expected.map(|(comm, places)| (comm.to_owned(), places.to_owned()));
    assert_eq!(inherited(""), expected);
    // The command line's value holds for all.
    let anywhere = |(_, places): &(String, String)| places == "any";
    assert!(inherited("pin=false").iter().all(anywhere));
}

/// SCHED_DEADLINE with these times in us.
fn reservation(runtime: u64, deadline: u64, period: u64) -> SchedClass {
    SchedClass::Deadline(Reservation {
        runtime: Duration::from_us(runtime),
        deadline: Duration::from_us(deadline),
        period: Duration::from_us(period),
    })
}

/// Missing values are filled in as `parse_sched_data()` does, the older names of a task's keys included.
#[test]
fn the_times_of_a_reservation_have_defaults() {
    let class = |keys: &str| {
        let text = task(&format!(
            "\"policy\": \"SCHED_DEADLINE\", {keys}, \"phases\": {{\"p\": {{\"run\": 1}}}}"
        ));
        parsed(&text).tasks[0].class
    };
    let all = "\"dl-runtime\": 1000, \"dl-deadline\": 2000, \"dl-period\": 3000";
    assert_eq!(class(all), reservation(1_000, 2_000, 3_000));
    assert_eq!(
        class("\"dl-runtime\": 1000"),
        reservation(1_000, 1_000, 1_000)
    );
    let period = "\"dl-runtime\": 1000, \"dl-period\": 3000";
    assert_eq!(class(period), reservation(1_000, 3_000, 3_000));
    let old = "\"runtime\": 1000, \"deadline\": 2000, \"period\": 3000";
    assert_eq!(class(old), reservation(1_000, 2_000, 3_000));
    // With dl-runtime there is a period already.
    let mixed = "\"dl-runtime\": 1000, \"deadline\": 2000, \"period\": 3000";
    assert_eq!(class(mixed), reservation(1_000, 1_000, 1_000));
}

#[test]
fn phases_change_the_reservation() {
    let text = task(
        "\"policy\": \"SCHED_DEADLINE\", \"dl-runtime\": 1000, \"dl-period\": 10000, \"loop\": 1, \"phases\": {
         \"a\": {\"run\": 1}, \"b\": {\"dl-runtime\": 2000, \"dl-period\": 20000, \"run\": 1},
         \"c\": {\"policy\": \"SCHED_OTHER\", \"run\": 1}}",
    );
    let mut workload = parsed(&text);
    assert_eq!(workload.tasks[0].class, reservation(1_000, 10_000, 10_000));
    let mut rng = schedlab_workload::stream(1, 0);
    let mut classes = Vec::new();
    loop {
        let mut context = Context {
            now: Instant::ZERO,
            outcome: Outcome::Done,
            cpu: CpuId(0),
            rng: &mut rng,
        };
        match workload.tasks[0].behaviour.next(&mut context) {
            Action::SetClass(class) => classes.push(class),
            Action::Exit => break,
            _ => {}
        }
    }
    let expected = [reservation(2_000, 20_000, 20_000), SchedClass::Normal];
    assert_eq!(classes, expected);
}

#[test]
fn mutexes_inherit_priorities_where_the_file_says_so() {
    let objects = |global: &str| {
        let text = format!(
            "{{\"tasks\": {{\"t\": {{\"lock\": \"m\", \"run\": 1, \"unlock\": \"m\", \"resume\": \"t\"}}}}, \"global\": {{{global}}}}}"
        );
        parsed(&text).objects
    };
    let expected = |mutex| vec![mutex, ObjectSpec::Condition, mutex];
    assert_eq!(
        objects("\"pi_enabled\": true"),
        expected(ObjectSpec::PiMutex)
    );
    assert_eq!(
        objects("\"pi_enabled\": false"),
        expected(ObjectSpec::Mutex)
    );
    assert_eq!(objects(""), expected(ObjectSpec::Mutex));
}

#[test]
fn classes_come_from_tasks_and_phases() {
    let workload = load("classes");
    let seen: Vec<_> = workload
        .tasks
        .iter()
        .map(|task| {
            let cpus = task.affinity.as_ref().map(ToString::to_string);
            (task.class, task.nice, cpus)
        })
        .collect();
    let expected = [
        (SchedClass::Normal, 10, None),
        (SchedClass::Batch, 0, Some("0".to_owned())),
        (SchedClass::Idle, 0, None),
        (SchedClass::Fifo(10), 0, None),
        (reservation(5_000, 20_000, 20_000), 0, None),
        (SchedClass::Normal, 0, Some("1".to_owned())),
    ];
    assert_eq!(seen, expected);
    assert_eq!(workload.notes.len(), 1, "{:?}", workload.notes);
    assert_eq!(run("classes").work, 2 + 2 + 2 + 2 + 1 + 4);
    // The command line overrides the file.
    let text = format!("{}:pin=true,nice=3,policy=batch", file("classes"));
    for (i, task) in Workload::parse(&text, 4).unwrap().tasks.iter().enumerate() {
        assert_eq!((task.class, task.nice), (SchedClass::Batch, 3));
        assert_eq!(
            task.affinity.as_ref().unwrap().to_string(),
            (i % 4).to_string()
        );
    }
}

#[test]
fn a_key_that_repeats_has_its_last_value_at_its_first_place() {
    let workload = load("lenient");
    let notes = [
        "line 12: `tasks.busy.run` is there 2 times: the last value counts",
        "line 15: `tasks.busy.yield` has no value, and rt-app refuses such a file",
        "`global.frag` has no effect: rt-app passes over it",
    ];
    for part in notes {
        let told = workload.notes.iter().any(|note| note.contains(part));
        assert!(told, "`{part}` is not in {:?}", workload.notes);
    }
    let end = run("lenient");
    assert_eq!(iterations(&end, "busy-0"), 2);
    // 300 µs before 50, then 7, and `runtime` in steps of 32 µs: 64.
    assert_eq!(end.now.ns(), 2 * 421_000);
    assert_eq!(end.counters.get("rtapp.busy-0.run_ns_sum"), 2 * 371_000);
    assert_eq!(end.yields, 2);
}

#[test]
fn durations_come_from_the_file_or_the_command_line() {
    let duration = |text: &str, options: &str| {
        let workload = rtapp::parse("t", text, options, 1).unwrap();
        (
            workload.duration.map(|d| d.ns() / 1_000_000),
            workload.notes.len(),
        )
    };
    let endless = r#"{"tasks": {"t": {"run": 10}}}"#;
    let finite = r#"{"tasks": {"t": {"loop": 2, "run": 10}}}"#;
    let timed = r#"{"tasks": {"t": {"run": 10}}, "global": {"duration": 3}}"#;
    assert_eq!(duration(endless, ""), (Some(10_000), 1));
    assert_eq!(duration(endless, "duration=2"), (Some(2_000), 0));
    assert_eq!(duration(finite, ""), (None, 0));
    assert_eq!(duration(timed, ""), (Some(3_000), 0));
    assert_eq!(duration(timed, "duration=500ms"), (Some(500), 0));
}

/// rt-app's tutorial writes True and False.
#[test]
fn a_file_is_read_as_json_c_reads_it() {
    let text = "{'global': {'gnuplot': False, \"lock_pages\": TRUE, 'cumulative_slack': True}, 'tasks': {'t': {'loop': 1, 'run': 1}}}";
    let notes = |text: &str| rtapp::parse("f.json", text, "", 1).unwrap().notes;
    assert!(notes(text).is_empty());
    assert_eq!(
        notes(&format!("{text}\n}}, 'more': 1")),
        [
            "what comes after the file's last `}`, from line 2 on, has no effect: rt-app does not read it either"
        ]
    );
}

/// A task `t` with these members.
fn task(members: &str) -> String {
    format!("{{\"tasks\": {{\"t\": {{{members}}}}}}}")
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let check = |text: &str, parts: &[&str]| {
        let error = match rtapp::parse("f.json", text, "", 2) {
            Ok(_) => panic!("{text} was accepted"),
            Err(error) => error.to_string(),
        };
        for part in parts {
            assert!(error.contains(part), "`{error}` lacks `{part}`");
        }
    };
    check("{", &["f.json:1: is not JSON", "the file ends"]);
    check("[]", &["f.json:1: must be an object, not a list"]);
    check("{}", &["has no `tasks` object"]);
    check(
        "{\n\"task\": {}}",
        &[
            "f.json:1: has no `tasks` object",
            "there is `task`, line 2 (did you mean `tasks`?)",
        ],
    );
    check("{\"tasks\": {}}", &["`tasks`: has no task"]);
    check(&task(""), &["`tasks.t`: has no event"]);
    check(
        &task("\"rum\": 1"),
        &["`tasks.t.rum`", "did you mean `run`?"],
    );
    check(
        &task("\"run\": \"x\""),
        &["`tasks.t.run`: must be an integer, not a string"],
    );
    check(
        &task("\"run\": 1.5"),
        &["must be an integer, not a number that is not an integer"],
    );
    check(&task("\"run\": null"), &["must be an integer, not nothing"]);
    check(
        &task("\"run\": 0"),
        &["would loop for ever without taking time"],
    );
    check(&task("\"instance\": 0, \"run\": 1"), &["nothing runs"]);
    check(
        &task("\"instance\": 2000000000, \"run\": 1"),
        &["`tasks.t.instance`", "10000000"],
    );
    check(
        &task("\"cpus\": [2], \"run\": 1"),
        &["`tasks.t.cpus`: asks for CPU 2, but the machine has 2"],
    );
    check(
        &task("\n\"phases\": {\n\"p\": {\"run\": 1,\n\"cpus\": [9]}}"),
        &["f.json:4: `tasks.t.phases.p.cpus`: asks for CPU 9"],
    );
    check(
        &task("\"cpus\": [], \"run\": 1"),
        &["`tasks.t.cpus`: names no CPU"],
    );
    check(
        &task("\"cpus\": 1, \"run\": 1"),
        &["must be a list of integers"],
    );
    check(
        &task("\"policy\": \"SCHED_FIF\", \"run\": 1"),
        &["`tasks.t.policy`", "did you mean `SCHED_FIFO`?"],
    );
    check(
        &task("\"policy\": \"SCHED_RR\", \"priority\": 0, \"run\": 1"),
        &["`tasks.t.priority`: must be from 1 to 99"],
    );
    check(
        &task("\"priority\": 30, \"run\": 1"),
        &["must be a nice level from -20 to 19"],
    );
    check(
        &task("\"policy\": \"SCHED_DEADLINE\", \"run\": 1"),
        &["needs `dl-runtime`"],
    );
    check(
        &task(
            "\"policy\": \"SCHED_DEADLINE\", \"dl-runtime\": 300, \"dl-period\": 200, \"run\": 1",
        ),
        &[
            "`tasks.t.dl-runtime`: is no reservation that the kernel grants: the deadline must not be shorter than the runtime",
        ],
    );
    check(
        &task("\"policy\": \"SCHED_DEADLINE\", \"dl-runtime\": 10, \"run\": 1"),
        &["the period must be from 100 us to 4194304 us"],
    );
    check(
        &task("\"policy\": \"SCHED_DEADLINE\", \"dl-runtime\": 1000, \"cpus\": [1], \"run\": 1"),
        &[
            "`tasks.t.cpus`: cannot go with SCHED_DEADLINE",
            "all 2 CPUs",
        ],
    );
    let everywhere =
        task("\"policy\": \"SCHED_DEADLINE\", \"dl-runtime\": 1000, \"cpus\": [1, 0], \"run\": 1");
    assert!(rtapp::parse("t", &everywhere, "", 2).is_ok());
    let under_deadline = |phase: &str| {
        task(&format!(
            "\"policy\": \"SCHED_DEADLINE\", \"dl-runtime\": 1000, \"phases\": {{\"p\": {{{phase}, \"run\": 1}}}}"
        ))
    };
    check(
        &under_deadline("\"priority\": 5"),
        &["`tasks.t.phases.p.priority`: cannot change under SCHED_DEADLINE"],
    );
    let fifo = under_deadline("\"policy\": \"SCHED_FIFO\", \"priority\": 5");
    assert!(rtapp::parse("t", &fifo, "", 2).is_ok());
    check(
        &task("\"policy\": \"SCHED_FIFO\", \"phases\": {\"p\": {\"priority\": 0, \"run\": 1}}"),
        &["`tasks.t.phases.p.priority`: must be from 1 to 99"],
    );
    let grouped = |task_has: &str, phase: &str| {
        task(&format!(
            "\"taskgroup\": \"/g\", {task_has}\n\"phases\": {{\"p\": {{\"run\": 1}},\n\"q\": {{{phase} \"run\": 1}}}}"
        ))
    };
    check(
        &task("\"policy\": \"SCHED_FIFO\",\n\"taskgroup\": \"/g\", \"run\": 1"),
        &["f.json:2: `tasks.t.taskgroup`: cannot go with SCHED_FIFO, under which `tasks.t` runs"],
    );
    check(
        &grouped("", "\"policy\": \"SCHED_RR\","),
        &[
            "f.json:1: `tasks.t.taskgroup`: cannot go with SCHED_RR, under which `tasks.t.phases.q` runs",
        ],
    );
    check(
        &task(
            "\"phases\": {\"p\": {\"policy\": \"SCHED_FIFO\", \"run\": 1}, \"q\": {\"taskgroup\": \"/g\", \"run\": 1}}",
        ),
        &["`tasks.t.phases.q.taskgroup`: cannot go with SCHED_FIFO"],
    );
    check(
        "{\"global\": {\"default_policy\": \"SCHED_RR\"}, \"tasks\": {\"t\": {\"taskgroup\": \"/g\", \"run\": 1}}}",
        &["`tasks.t.taskgroup`: cannot go with SCHED_RR"],
    );
    for accepted in [
        grouped("", "\"policy\": \"SCHED_IDLE\","),
        task("\"policy\": \"SCHED_FIFO\", \"taskgroup\": \"\", \"run\": 1"),
        task(
            "\"policy\": \"SCHED_FIFO\", \"phases\": {\"p\": {\"policy\": \"SCHED_OTHER\", \"taskgroup\": \"/g\", \"run\": 1}}",
        ),
    ] {
        assert!(rtapp::parse("t", &accepted, "", 2).is_ok(), "{accepted}");
    }
    check(
        &task("\"nodes_membind\": [-1], \"run\": 1"),
        &["has an item that is not from 0 to 65535: -1"],
    );
    check(
        &task("\"util_min\": 2000, \"run\": 1"),
        &["must be from -1 to 1024"],
    );
    check(
        &task("\"taskgroup\": \"x\", \"run\": 1"),
        &["must start with `/`"],
    );
    check(
        &task("\"unlock\": \"m\""),
        &["`tasks.t.unlock`: unlocks `m`, which the thread does not hold"],
    );
    check(
        &task("\"lock\": \"m\""),
        &["locks `m`, which the thread holds already"],
    );
    check(
        &task("\"wait\": {\"ref\": \"c\", \"mutex\": \"m\"}"),
        &["needs the mutex `m` to be held"],
    );
    check(
        &task("\"fork\": \"u\""),
        &["forks `u`, which is not a task"],
    );
    check(
        &task("\"memrun\": {\"type\": \"read\", \"size\": 0, \"count\": 1}"),
        &["`tasks.t.memrun.size`: must be at least 1, not 0"],
    );
    check(
        &task("\"memrun\": {\"type\": \"rad\", \"size\": 64, \"count\": 1}"),
        &["did you mean `read`?"],
    );
    check(&task("\"phases\": {}"), &["`tasks.t.phases`: has no phase"]);
    check(
        "{\"tasks\": {\"t\": {\"run\": 1}}, \"global\": {\"gnuplot\": 1}}",
        &["must be true or false"],
    );
    check(
        "{\"tasks\": {\"t\": {\"run\": 1}}, \"global\": {\"ftrace\": \"mian\"}}",
        &["did you mean `main`?"],
    );
    check(
        "{\"tasks\": {\"t\": {\"iorun\": 1}}, \"global\": {\"io_device\": \"/dev/sda\"}}",
        &["not supported: `/dev/sda`"],
    );
    check(
        "{\"tasks\": {\"t\": {\"run\": 1}}, \"global\": {\"pi_enabled\": 1}}",
        &["must be true or false"],
    );
    check(
        "{\"tasks\": {\"t\": {\"run\": 1}}, \"resources\": {\"m\": {\"type\": \"mutx\"}}}",
        &["`resources.m.type`", "did you mean `mutex`?"],
    );
}

#[test]
fn a_missing_file_is_told() {
    let error = Workload::parse("nowhere/absent.json", 1).err().unwrap();
    assert!(
        error
            .to_string()
            .starts_with("cannot read the workload file `nowhere/absent.json`")
    );
    let error = Workload::parse(&format!("{}:x=1", file("fork")), 1)
        .err()
        .unwrap();
    assert!(error.to_string().contains(
        "has no option `x`; it takes: duration, jitter, offset, pin, nice, policy, start"
    ));
}

/// Whatever a damaged file says, it loads or is refused: no panic, no endless loop.
#[test]
fn damaged_files_are_refused_not_fatal() {
    use schedlab_workload::{below, stream};
    let mut refused = 0;
    for (i, name) in [
        "periodic", "locks", "pipeline", "fork", "classes", "lenient",
    ]
    .iter()
    .enumerate()
    {
        let good = std::fs::read(file(name)).unwrap();
        let mut rng = stream(1, i as u32);
        for _ in 0..2_000 {
            let mut bytes = good.clone();
            for _ in 0..=below(&mut rng, 3) {
                let at = below(&mut rng, bytes.len() as u64) as usize;
                let other = bytes[below(&mut rng, bytes.len() as u64) as usize];
                match below(&mut rng, 3) {
                    0 => drop(bytes.remove(at)),
                    1 => bytes.insert(at, other),
                    _ => bytes[at] = other,
                }
            }
            let text = String::from_utf8(bytes).unwrap();
            refused += u32::from(rtapp::parse("damaged", &text, "", 4).is_err());
        }
    }
    assert!((6_000..12_000).contains(&refused), "{refused} of 12,000");
}

fn parsed(text: &str) -> Workload {
    rtapp::parse("t", text, EXACT, 2).unwrap()
}

fn refusal(text: &str) -> String {
    rtapp::parse("t", text, "", 2)
        .map(drop)
        .unwrap_err()
        .to_string()
}

/// A name that begins with "unique" is each thread's own, and so is what it is.
#[test]
fn an_absolute_timer_of_another_task_is_another_timer() {
    let ends = |mode: &str| {
        let text = format!(
            r#"{{"tasks": {{
                "a": {{"loop": 3, "run": 1000, "timer": {{"ref": "unique", "period": 10000, "mode": "{mode}"}}}},
                "b": {{"loop": 1, "phases": {{
                    "late": {{"run": 35000, "timer": {{"ref": "unique", "period": 10000}}}},
                    "rest": {{"loop": 4, "run": 1000, "timer": {{"ref": "unique", "period": 10000}}}}
                }}}}
            }}}}"#
        );
        run_in(parsed(&text), Order::RoundRobin).now.ns()
    };
    assert_eq!(ends("absolute"), ends("relative"));
    assert!(ends("absolute") > 75_000_000);
}

/// `suspend` and `resume` are a wait and a broadcast under the thread's name.
#[test]
fn suspended_and_waiting_threads_are_woken_alike() {
    let waits = [
        (
            r#""lock": "m", "wait": {"ref": "a", "mutex": "m"}, "unlock": "m""#,
            "wait",
        ),
        (r#""suspend": "a""#, "suspend"),
    ];
    for (wait, name) in waits {
        for wake in [r#""resume": "a""#, r#""signal": "a""#, r#""broad": "a""#] {
            let text = format!(
                r#"{{"tasks": {{"a": {{"loop": 3, {wait}, "run": 100}}, "b": {{"loop": 3, "sleep": 5000, {wake}}}}}}}"#
            );
            let workload = parsed(&text);
            assert_eq!(workload.notes, [""; 0], "{name} {wake}");
            let end = run_in(workload, Order::RoundRobin);
            assert_eq!(iterations(&end, "a-0"), 3, "{name} {wake}");
        }
    }
    let error = refusal(r#"{"tasks": {"a": {"lock": "b", "resume": "b", "unlock": "b"}}}"#);
    assert!(error.contains("takes the mutex `b`"), "{error}");
}

#[test]
fn a_duration_of_0_is_none() {
    let text = r#"{"tasks": {"a": {"loop": 5, "run": 1000}}, "global": {"duration": 0}}"#;
    let end = run_in(parsed(text), Order::RoundRobin);
    assert_eq!(iterations(&end, "a-0"), 5);
}

/// A period begins when the thread runs where the phase wants it, as rt-app's does.
#[test]
fn a_period_begins_after_the_move_to_its_cpus() {
    use schedlab_trace::Instant;
    use schedlab_workload::{Action, Context, Counters, Outcome, stream};
    let text = r#"{"tasks": {"m": {"loop": 1, "phases": {
        "p0": {"cpus": [0], "run": 1000}, "p1": {"cpus": [1], "run": 1000}}}}}"#;
    let mut behaviour = parsed(text).tasks.remove(0).behaviour;
    let (mut now, mut rng) = (0, stream(1, 0));
    loop {
        let action = behaviour.next(&mut Context {
            now: Instant::from_ns(now),
            outcome: Outcome::Done,
            cpu: CpuId(0),
            rng: &mut rng,
        });
        match action {
            Action::Compute(time) => now += time.ns(),
            // It waits for the other CPU that long.
            Action::SetAffinity(_) => now += 20_000_000,
            Action::Exit => break,
            _ => {}
        }
    }
    let mut counters = Counters::default();
    behaviour.report(&mut counters);
    assert_eq!(counters.get("rtapp.m-0.period_ns_sum"), 2_000_000);
}

#[test]
fn a_forked_thread_is_no_instance_of_another_task() {
    let text = r#"{"tasks": {"x-1": {"loop": 2, "run": 100, "fork": "x"}, "x": {"instance": 0, "loop": 5, "run": 100}}}"#;
    let end = run_in(parsed(text), Order::RoundRobin);
    for (thread, times) in [("x-1-0", 2), ("x-1-0000", 5), ("x-2-0001", 5)] {
        assert_eq!(iterations(&end, thread), times, "{thread}");
    }
}

#[test]
fn endless_loops_without_time_are_refused() {
    for event in [
        r#""timer": {"ref": "unique", "period": 0}"#,
        r#""timer": {"ref": "shared", "period": 0}"#,
        r#""memrun": {"type": "read", "size": 10, "count": 0}"#,
        r#""memrun": {"type": "chase", "size": 256, "count": 0}"#,
    ] {
        let error = refusal(&format!(r#"{{"tasks": {{"a": {{{event}}}}}}}"#));
        assert!(
            error.contains("would loop for ever without taking time"),
            "{error}"
        );
    }
    // A thread that shares a timer may move it on.
    parsed(
        r#"{"tasks": {"a": {"timer": {"ref": "t", "period": 0}}, "b": {"timer": {"ref": "t", "period": 9}}}}"#,
    );
}

#[test]
fn words_of_rt_app_are_taken() {
    parsed(r#"{"tasks": {"a": {"loop": 2, "run": 1000, "broadcast": "c"}}}"#);
    let global = |members: &str| {
        format!(r#"{{"tasks": {{"a": {{"loop": 1, "run": 1}}}}, "global": {{{members}}}}}"#)
    };
    parsed(&global(r#""ftrace": "Main,TASK", "calibration": -1"#));
    let error = refusal(&global(r#""ftrace": "attrs""#));
    assert!(error.contains("there is no category `attrs`"), "{error}");
    let error = refusal(r#"{"tasks": {"a": {"sync": {"ref": "c", "mutex": "m"}}}}"#);
    assert!(error.contains("other than its tutorial says"), "{error}");
}

#[test]
fn one_buffer_has_one_size() {
    let shared = |size: u32| {
        format!(
            r#"{{"tasks": {{
                "a": {{"memrun": {{"type": "read", "size": 4096, "count": 10, "ref": "r"}}}},
                "b": {{"memrun": {{"type": "read", "size": {size}, "count": 20, "ref": "r"}}}}
            }}}}"#
        )
    };
    parsed(&shared(4_096));
    let error = refusal(&shared(8_192));
    assert!(error.contains("uses the buffer `r`"), "{error}");
}

/// The memory that an event accesses, and which of the thread's buffers it is in.
#[test]
fn memory_is_touched_as_rt_app_does() {
    use schedlab_trace::Instant;
    use schedlab_workload::{Access, Action, Context, Outcome, Touch, stream};
    let text = r#"{"tasks": {"m": {"loop": 1, "mem0": 100, "memrun1": {"type": "read", "size": 16, "count": 70},
        "memrun2": {"type": "write", "size": 16, "count": 80}, "mem3": 200,
        "memrun4": {"type": "read", "size": 16, "count": 90},
        "memrun5": {"type": "chase", "size": 4096, "count": 5}}}, "global": {"mem_buffer_size": 32}}"#;
    let mut behaviour = parsed(text).tasks.remove(0).behaviour;
    let mut rng = stream(1, 0);
    let mut touches = Vec::new();
    loop {
        let action = behaviour.next(&mut Context {
            now: Instant::ZERO,
            outcome: Outcome::Done,
            cpu: CpuId(0),
            rng: &mut rng,
        });
        match action {
            Action::Touch(Touch {
                buffer,
                size_bytes,
                count,
                access,
            }) => touches.push((buffer, size_bytes, count, access)),
            Action::Exit => break,
            _ => {}
        }
    }
    let chase = Access::Chase {
        stride_bytes: 64,
        random: true,
    };
    let expected = [
        (0, 32, 100, Access::Fill),
        (1, 16, 70, Access::Read),
        (2, 16, 80, Access::Write),
        (0, 32, 200, Access::Fill),
        (1, 16, 90, Access::Read),
        (3, 4_096, 5, chase),
    ];
    assert_eq!(touches, expected);
}

/// When each thread's first run began and how long it was, in µs, with these options.
fn first_runs(text: &str, options: &str, seed: u64) -> Vec<(u64, u64)> {
    use schedlab_trace::Instant;
    use schedlab_workload::{Action, Context, Outcome, stream};
    let tasks = rtapp::parse("t", text, options, 2).unwrap().tasks;
    let first_run = |(number, mut task): (usize, schedlab_workload::TaskSpec)| {
        let mut rng = stream(seed, number as u32);
        let mut now = Instant::ZERO;
        loop {
            let action = task.behaviour.next(&mut Context {
                now,
                outcome: Outcome::Done,
                cpu: CpuId(0),
                rng: &mut rng,
            });
            match action {
                Action::SleepUntil(until) => now = until,
                Action::Compute(time) => return (now.ns() / 1_000, time.ns() / 1_000),
                Action::Exit => panic!("it never runs"),
                _ => {}
            }
        }
    };
    tasks.into_iter().enumerate().map(first_run).collect()
}

/// Threads begin at any time of their period, each at its own; run times vary by 5 %. Only by what is asked for: the
/// first of these has a timer, the second sleeps, the third does neither, the fourth has a delay and the others a lock.
#[test]
fn offsets_and_jitter_are_drawn_from_the_seed() {
    let text = r#"{"tasks": {
        "timed": {"run": 1000, "timer": {"ref": "unique", "period": 8000}},
        "sleeps": {"run": 1000, "sleep": 3000},
        "hog": {"run": 1000},
        "late": {"delay": 500, "run": 1000, "sleep": 3000},
        "locks": {"instance": 2, "lock": "m", "run": 1000, "unlock": "m", "sleep": 3000}}}"#;
    let mut begins = vec![Vec::new(); 6];
    for seed in 0..400 {
        for (i, (begin, time)) in first_runs(text, "", seed).into_iter().enumerate() {
            begins[i].push(begin);
            assert!((950..=1_050).contains(&time), "{time}");
        }
    }
    let range = |i: usize| {
        (
            begins[i].iter().min().unwrap(),
            begins[i].iter().max().unwrap(),
        )
    };
    for (i, period) in [(0, 8_000), (1, 4_000)] {
        let (first, last) = range(i);
        assert!(
            *first < period / 20 && *last > period * 19 / 20 && *last < period,
            "{first} {last}"
        );
    }
    for (i, begin) in [(2, 0), (3, 500), (4, 0), (5, 0)] {
        assert_eq!(range(i), (&begin, &begin), "{i}");
    }
    assert_eq!(first_runs(text, "", 7), first_runs(text, "", 7));
    assert_ne!(first_runs(text, "", 7), first_runs(text, "", 8));
    assert_eq!(
        first_runs(text, EXACT, 7),
        [
            (0, 1_000),
            (0, 1_000),
            (0, 1_000),
            (500, 1_000),
            (0, 1_000),
            (0, 1_000)
        ]
    );
    // Asked for, an offset holds for all that have a period, and as much of it as is said.
    let asked: Vec<u64> = first_runs(text, "offset=50%,jitter=0", 7)
        .iter()
        .map(|run| run.0)
        .collect();
    assert!(
        asked[0] < 4_000 && asked[1] < 2_000 && asked[2] == 0,
        "{asked:?}"
    );
    assert!(
        asked[3] > 500 && asked[4] > 0 && asked[5] > 0 && asked[4] != asked[5],
        "{asked:?}"
    );
}

/// Counted loops are counted with whatever is drawn; a duration begins with the run, not with the thread.
#[test]
fn drawing_changes_no_count() {
    let text = r#"{"tasks": {"t": {"instance": 3, "loop": 20, "run": 100, "timer": {"ref": "unique", "period": 1000}}},
        "global": {"duration": 5}}"#;
    for order in [Order::RoundRobin, Order::Random(5)] {
        let end = run_in(rtapp::parse("t", text, "", 2).unwrap(), order);
        for thread in ["t-0", "t-1", "t-2"] {
            assert_eq!(iterations(&end, thread), 20);
        }
        let cut = run_in(
            rtapp::parse("t", &text.replace("20", "-1"), "duration=1", 2).unwrap(),
            order,
        );
        assert_eq!(cut.now.ns(), 1_000_000_000);
        for thread in ["t-0", "t-1", "t-2"] {
            assert!(
                (999..=1_000).contains(&iterations(&cut, thread)),
                "{}",
                iterations(&cut, thread)
            );
        }
    }
}
