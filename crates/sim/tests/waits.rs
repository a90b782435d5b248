//! How long tasks wait, and where they run, under every policy that comes with the program: behind one
//! that computed alone, beside a real-time task, after a bad start, on CPUs of any numbering.

use std::path::{Path, PathBuf};

use schedlab_report::RunResult;
use schedlab_sim::{Scheduler, SimSpec};

const MS: f64 = 1e6;

/// A file below the tests' own folder.
fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("a temporary file");
    path
}

/// Every policy, and points of the feature tree where its queue's clock and its balancing differ.
fn schedulers() -> Vec<String> {
    let policies = schedlab_policies::builtin().iter();
    let points = [
        "ule-like",
        "feature:election=linkedlist",
        "feature:slice=fixed",
        "feature:periodic=never,idle=off,unblock=off",
        "feature:metric=nr_run",
        "feature:metric=nr_run_block",
    ];
    let names = policies.map(|policy| policy.name.to_owned());
    names.chain(points.map(str::to_owned)).collect()
}

fn spec(workload: &Path, scheduler: &str, cpus: usize) -> SimSpec {
    SimSpec {
        cpus: Some(cpus),
        check: true,
        ..SimSpec::new(
            workload.to_string_lossy(),
            Scheduler::parse(scheduler),
            "laptop",
        )
    }
}

fn run(spec: &SimSpec) -> RunResult {
    let result =
        schedlab_sim::run(spec, None).unwrap_or_else(|error| panic!("{}: {error}", spec.scheduler));
    assert!(result.is_done(), "{}: {}", spec.scheduler, result.exit);
    result
}

fn number(result: &RunResult, name: &str) -> f64 {
    let found = result.measures.number(name);
    found.unwrap_or_else(|| panic!("{name} is absent"))
}

/// The longest time that a task waited for its CPU, in ms; of one that still waits at the end, too.
fn longest_wait(result: &RunResult) -> f64 {
    let ended = number(result, "wait.ns_max");
    ended.max(number(result, "wait.unfinished_ns_max")) / MS
}

/// A task that computed alone for a minute waits for no more than turns, once another one comes.
#[test]
fn who_computed_alone_waits_for_turns() {
    let workload = file(
        "late.json",
        r#"{ "tasks": {
            "old": { "run": 10000, "loop": -1 },
            "new": { "delay": 60000000, "run": 10000, "loop": -1 } },
            "global": { "duration": 64 } }"#,
    );
    for scheduler in schedulers() {
        let bound = match scheduler.as_str() {
            // A task that has slept for a minute counts as interactive, and comes first until it has computed for
            // long.
            "o1-26" | "ule" => 3_000.0,
            // Its lists do not distinguish a few ticks.
            "elsc" => 500.0,
            // Slices are up to 150 ms, and of 2.4's counters a recalculation may double one.
            _ => 250.0,
        };
        let wait = longest_wait(&run(&spec(&workload, &scheduler, 1)));
        assert!(wait <= bound, "{scheduler}: {wait} ms");
    }
}

/// Quanta differ by nice level, and a CPU whose task has the shortest one recalculates first. Those that wait on the
/// other CPUs, beside tasks that get ticks each time, have their turns all the same.
#[test]
fn short_quanta_on_one_cpu_starve_nobody_on_another() {
    let workload = "cpu:tasks=5,duration=2,nice=0/5/-5 + hackbench:groups=1,fds=2,loops=5";
    for scheduler in schedulers() {
        let wait = longest_wait(&run(&spec(Path::new(workload), &scheduler, 4)));
        assert!(wait < 400.0, "{scheduler}: a wait of {wait} ms");
    }
}

/// A task that starts, wakes or is forked beside a real-time hog does not wait for it: there are idle CPUs.
#[test]
fn nothing_waits_for_a_real_time_hog_beside_idle_cpus() {
    let start = file(
        "realtime-start.json",
        r#"{ "tasks": {
            "rt": { "policy": "SCHED_FIFO", "priority": 5, "run": 5000000, "loop": 1 },
            "app": { "run": 10000, "sleep": 10000, "loop": 50 } },
            "global": { "duration": 5 } }"#,
    );
    let fork = file(
        "realtime-fork.json",
        r#"{ "tasks": {
            "rt": { "policy": "SCHED_FIFO", "priority": 5, "run": 3000000, "loop": 1 },
            "boss": { "loop": 40, "delay": 100000, "run": 1000, "fork": "kid", "sleep": 40000 },
            "kid": { "instance": 0, "loop": 1, "run": 10000 } },
            "global": { "duration": 3 } }"#,
    );
    for kernel in ["7.2", "6.18"] {
        for scheduler in schedulers() {
            for (workload, cpus) in [(&start, 2), (&fork, 4)] {
                let spec = SimSpec {
                    kernel: kernel.to_owned(),
                    ..spec(workload, &scheduler, cpus)
                };
                let result = run(&spec);
                if cpus == 2 {
                    let done = number(&result, "rtapp.app-1.iterations");
                    assert_eq!(done, 50.0, "{kernel}, {scheduler}");
                }
                // Those policies whose tasks stay with their parent wait behind it and each other.
                let bound = if cpus == 2 { 20.0 } else { 100.0 };
                let wait = longest_wait(&result);
                assert!(
                    wait <= bound,
                    "{kernel}, {scheduler}, {cpus} CPUs: {wait} ms"
                );
            }
        }
    }
}

/// Tasks that ran or waited on a CPU before a real-time hog took it go elsewhere: to idle CPUs, or to busy ones if no
/// CPU is idle.
#[test]
fn what_a_real_time_hog_displaces_goes_elsewhere() {
    let text = |hogs: u32| {
        format!(
            r#"{{ "tasks": {{
            "hog": {{ "instance": {hogs}, "run": 10000, "loop": -1 }},
            "rt": {{ "policy": "SCHED_FIFO", "priority": 5, "delay": 503000, "run": 6000000,
                     "loop": 1, "cpus": [0] }} }},
            "global": {{ "duration": 6 }} }}"#
        )
    };
    // With one hog less than CPUs one is idle; with as many, one CPU must take two of them.
    for (hogs, bound) in [(3, 60.0), (4, 1_000.0)] {
        let workload = file(&format!("realtime-displaces-{hogs}.json"), &text(hogs));
        for kernel in ["7.2", "6.18"] {
            for scheduler in schedulers() {
                // It leaves forked tasks on their parent's CPU: two hogs take turns there from the start.
                if scheduler == "mq-local" {
                    continue;
                }
                let spec = SimSpec {
                    kernel: kernel.to_owned(),
                    ..spec(&workload, &scheduler, 4)
                };
                let wait = longest_wait(&run(&spec));
                assert!(wait <= bound, "{kernel}, {scheduler}, {hogs}: {wait} ms");
            }
        }
    }
}

/// Whenever within its slice, and between a slice's end and the tick, a real-time hog takes the CPU of a task: that goes to
/// the other CPU, which is idle.
#[test]
fn a_real_time_hog_may_come_at_any_time() {
    for scheduler in schedulers() {
        for delay_us in (1_199_000..1_250_000).step_by(1_700) {
            let text = format!(
                r#"{{ "tasks": {{
                "hog": {{ "run": -1 }},
                "rt": {{ "policy": "SCHED_FIFO", "priority": 51, "delay": {delay_us}, "run": -1, "cpus": [1] }} }},
                "global": {{ "duration": 2 }} }}"#
            );
            let workload = file(&format!("realtime-at-{delay_us}.json"), &text);
            let wait = longest_wait(&run(&spec(&workload, &scheduler, 2)));
            assert!(wait < 9.0, "{scheduler}, {delay_us} us: {wait} ms");
        }
    }
}

/// One hog more than CPUs: each waits for turns, however a balance moves them.
#[test]
fn a_hog_more_than_cpus_starves_nobody() {
    for cpus in [2, 4] {
        let workload = format!("cpu:tasks={},duration=6s", cpus + 1);
        let more = ["feature:metric=nr_run,election=fifo,imbalance=differs,placement=all"];
        for scheduler in schedulers().into_iter().chain(more.map(str::to_owned)) {
            let wait = longest_wait(&run(&spec(Path::new(&workload), &scheduler, cpus)));
            assert!(wait < 1_000.0, "{scheduler} on {cpus} CPUs: {wait} ms");
        }
    }
}

/// A task that may run on the hog's CPU only waits for it, and ends the policy after 30 to 45 s.
#[test]
fn a_task_bound_to_the_hogs_cpu_waits() {
    let workload = file(
        "realtime-bound.json",
        r#"{ "tasks": {
            "rt": { "policy": "SCHED_FIFO", "priority": 5, "run": 5000000, "loop": 1, "cpus": [0] },
            "app": { "run": 10000, "delay": 100000, "loop": 1, "cpus": [0] } },
            "global": { "duration": 6 } }"#,
    );
    for scheduler in schedulers() {
        let wait = longest_wait(&run(&spec(&workload, &scheduler, 2)));
        assert!((4_800.0..5_100.0).contains(&wait), "{scheduler}: {wait} ms");
    }
}

/// Tasks that first may run on `bound` CPUs only, `each` on each, and then compute for 400 ms on any of `cpus`.
fn bound_at_first(bound: usize, each: usize, cpus: usize) -> PathBuf {
    let all: Vec<String> = (0..cpus).map(|cpu| cpu.to_string()).collect();
    let all = all.join(", ");
    let task = |cpu: usize| {
        format!(
            r#""kid{cpu}": {{ "instance": {each}, "loop": 1, "phases": {{
                "bound": {{ "loop": 1, "run": 100, "cpus": [{cpu}] }},
                "free": {{ "loop": 20, "run": 20000, "cpus": [{all}] }} }} }}"#
        )
    };
    let tasks: Vec<String> = (0..bound).map(task).collect();
    let text = format!(
        r#"{{ "tasks": {{ {} }}, "global": {{ "duration": 20 }} }}"#,
        tasks.join(",\n")
    );
    file(&format!("bound-{bound}-{each}-{cpus}.json"), &text)
}

/// Tasks that are queued on few of many CPUs spread within a fraction of a second: all on one, and pairs
/// that take turns at each tick, so that the one that waits always has a warm cache.
#[test]
fn the_fair_schedulers_repair_a_bad_placement() {
    for (bound, each, cpus, machine) in [
        (1, 8, 8, "laptop"),
        (1, 8, 16, "laptop"),
        (1, 32, 384, "server-2x96x2"),
        (32, 2, 192, "server-2x96x2"),
    ] {
        let workload = bound_at_first(bound, each, cpus);
        for scheduler in ["cfs", "eevdf"] {
            let spec = SimSpec {
                machine: machine.to_owned(),
                ..spec(&workload, scheduler, cpus)
            };
            let lost = number(&run(&spec), "makespan_ns") / MS - 400.0;
            let most = if bound > 1 { 100.0 } else { 200.0 };
            assert!(
                lost < most,
                "{scheduler}, {each} on {bound} of {cpus}: {lost} ms lost"
            );
        }
    }
}

/// Of a machine with two threads a core: by which numbers they go.
fn numbered(name: &str, cpus: &[u32]) -> PathBuf {
    let laptop = include_str!("../../../machines/laptop.toml");
    let places: Vec<String> = cpus.iter().map(|core| format!("[{core}, 0, 0]")).collect();
    let list = format!(
        "cpus = {{ value = [{}], source = \"guess: a test\" }}",
        places.join(", ")
    );
    let sizes = [
        "nodes",
        "llcs_per_node",
        "cores_per_llc",
        "threads_per_core",
    ];
    let mut lines = Vec::new();
    for line in laptop.lines() {
        let key = line.split([' ', '=']).next().unwrap_or_default();
        match key {
            "nodes" => lines.push(list.clone()),
            _ if sizes.contains(&key) => {}
            "name" => lines.push(format!("name = \"{name}\"")),
            _ => lines.push(line.to_owned()),
        }
    }
    file(&format!("{name}.toml"), &lines.join("\n"))
}

/// Schedulers that choose a core before a hardware thread.
const KNOW_CORES: [&str; 5] = ["kernel", "cfs", "eevdf", "vtime", "ule"];

/// On an idle machine it does not matter how CPUs are numbered: five tasks that one forks on eight cores.
#[test]
fn numbers_of_cpus_decide_nothing() {
    let workload = file(
        "numbered.json",
        r#"{ "tasks": {
            "boss": { "loop": 5, "run": 100, "fork": "kid" },
            "kid": { "instance": 0, "loop": 20, "run": 20000 } },
            "global": { "duration": 20 } }"#,
    );
    let far: Vec<u32> = (0..16).map(|cpu| cpu % 8).collect();
    let near: Vec<u32> = (0..16).map(|cpu| cpu / 2).collect();
    let mixed = [3, 5, 0, 7, 3, 1, 6, 0, 2, 5, 4, 1, 6, 2, 7, 4];
    let machines = [
        numbered("siblings-far", &far),
        numbered("siblings-near", &near),
        numbered("siblings-mixed", &mixed),
    ];
    // The others know no cores: which of two siblings is chosen follows from the numbers, as in their originals.
    for scheduler in KNOW_CORES {
        let [first, others @ ..] = machines.each_ref().map(|machine| {
            let spec = SimSpec {
                machine: machine.to_string_lossy().into_owned(),
                ..spec(&workload, scheduler, 16)
            };
            number(&run(&spec), "makespan_ns") / MS
        });
        for other in others {
            assert!(
                (first - other).abs() <= first / 50.0,
                "{scheduler}: {first} ms, {other} ms by other numbers"
            );
        }
    }
}

/// Linux 2.3 and 2.4 recalculate all counters without the run queue's lock: however many tasks sleep, it is not held for
/// longer. By hand: 800 contexts at 260 ns for a miss are 208 µs, which used to be the longest hold.
#[test]
fn a_recalculation_does_not_hold_the_lock() {
    for scheduler in ["dss", "pls", "elsc", "elsc-heap"] {
        let spec = SimSpec {
            cpus: Some(2),
            ..SimSpec::new(
                "chat:rooms=10,messages=20",
                Scheduler::parse(scheduler),
                "netfinity-8500r",
            )
        };
        let result = run(&spec);
        assert!(
            number(&result, "schedule.recalculations") > 0.0,
            "{scheduler}"
        );
        let longest = number(&result, "lock.runqueue.hold_ns_max");
        assert!(longest < 50_000.0, "{scheduler}: {longest} ns");
    }
}

/// A task that yields alone has a goodness of 0 in Linux 2.3.99, so each time the counters of all tasks are recalculated;
/// ELSC lets it run on, and Linux 2.4 does nothing.
#[test]
fn a_yielder_alone_makes_linux_2_3_recalculate() {
    let text = r#"{"tasks": {"a": {"loop": 1000, "run": 100, "yield": ""}}}"#;
    let workload = file("yields-alone.json", text);
    let recalculations = |scheduler: &str, cpus| {
        let spec = SimSpec {
            cpus: Some(cpus),
            ..SimSpec::new(
                workload.to_string_lossy(),
                Scheduler::parse(scheduler),
                "netfinity-5500",
            )
        };
        number(&run(&spec), "schedule.recalculations")
    };
    for cpus in [1, 2] {
        assert!(recalculations("dss:base=2_3_99", cpus) >= 1_000.0);
        for scheduler in ["dss", "elsc", "elsc-heap"] {
            assert!(recalculations(scheduler, cpus) < 10.0, "{scheduler}");
        }
    }
}

/// Java threads that yield at each read and write, in a room whose users take turns, are often alone.
#[test]
fn java_threads_yield_alone() {
    let recalculations = |scheduler: &str, cpus| {
        let workload = "volano:rooms=1,messages=20,runs=2,turns=room,io_yield=before";
        let spec = SimSpec {
            cpus: Some(cpus),
            ..SimSpec::new(workload, Scheduler::parse(scheduler), "netfinity-7000")
        };
        number(&run(&spec), "schedule.recalculations")
    };
    for (cpus, times) in [(1, 3.0), (2, 10.0), (4, 30.0)] {
        let elsc = recalculations("elsc", cpus);
        let dss = recalculations("dss:base=2_3_99", cpus);
        assert!(dss > times * elsc, "{cpus} CPUs: {dss} and {elsc}");
    }
}

/// `eevdf` does schbench as the kernel's own class does. A CPU takes a task that waits, however short it is idle (when it had
/// to be idle for 0.5 ms, latencies were 1.3 and 2.7 times as long); and the message thread, which runs for 2 µs a time, is
/// woken beside the worker that wakes it (when its whole weight counted, switches were 1.2 to 1.3 times as many, and 3 to 4
/// times as many involuntary).
#[test]
fn eevdf_wakes_as_the_kernel_does() {
    for cpus in [4, 16] {
        let of = |scheduler: &str| {
            let spec = SimSpec {
                cpus: Some(cpus),
                ..SimSpec::new(
                    "schbench:duration=10s",
                    Scheduler::parse(scheduler),
                    "laptop",
                )
            };
            let run = run(&spec);
            [
                "schbench.wakeup_ns_p99",
                "switches.total",
                "switches.involuntary",
            ]
            .map(|measure| number(&run, measure))
        };
        let (kernel, eevdf) = (of("kernel"), of("eevdf"));
        for (at_most, (kernel, eevdf)) in [1.2, 1.05, 2.0]
            .into_iter()
            .zip(kernel.into_iter().zip(eevdf))
        {
            assert!(
                eevdf < at_most * kernel,
                "{cpus} CPUs: {eevdf} and {kernel}, {at_most}"
            );
        }
    }
}
