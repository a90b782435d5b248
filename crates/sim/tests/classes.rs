//! rt-app files with deadline tasks and with mutexes that inherit priorities, under the checks of every run.

use schedlab_report::RunResult;
use schedlab_sim::{Scheduler, SimSpec};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/rt-app");

fn run(file: &str, scheduler: &str, cpus: usize) -> RunResult {
    let spec = SimSpec {
        cpus: Some(cpus),
        check: true,
        ..SimSpec::new(file, Scheduler::parse(scheduler), "laptop")
    };
    let result = schedlab_sim::run(&spec, None).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(
        result.is_done(),
        "{file}, {scheduler}: {:?}",
        result.message
    );
    result
}

#[track_caller]
fn is_about(result: &RunResult, measure: &str, expected: f64, within: f64) {
    let found = result
        .measures
        .number(measure)
        .unwrap_or_else(|| panic!("no {measure}"));
    assert!((found - expected).abs() <= within, "{measure} is {found}");
}

/// The periodic task has its 5 ms in each period before anybody else but the other deadline task; that gets 4 ms in each 20,
/// so that its 50 ms last 12.5 periods.
#[test]
fn deadline_tasks_get_their_runtime_and_no_more() {
    let file = format!("{FOLDER}/deadline.json");
    for scheduler in ["vtime", "cfs", "kernel"] {
        for cpus in [1, 4] {
            let result = run(&file, scheduler, cpus);
            assert_eq!(result.measures.number("deadline.missed"), Some(0.0));
            // 2 s are 100 periods of the greedy one.
            is_about(&result, "deadline.throttled", 98.0, 3.0);
            is_about(&result, "rtapp.greedy-1.run_ns_mean", 246e6, 6e6);
            is_about(&result, "rtapp.frame-0.timed_iterations", 125.0, 1.0);
            let slack = result
                .measures
                .number("rtapp.frame-0.slack_ns_min")
                .unwrap();
            // The other one may come first once: 16 - 5 - 4 ms are left at least.
            assert!(slack > 6.8e6, "{scheduler}, {cpus}: {slack}");
        }
    }
}

/// A reservation that is not granted fails the run, in one line.
#[test]
fn reservations_that_do_not_fit_fail_the_run() {
    let spec = SimSpec {
        cpus: Some(1),
        ..SimSpec::new(
            "cpu:tasks=2,policy=deadline:5ms/10ms",
            Scheduler::parse("vtime"),
            "laptop",
        )
    };
    let told = match schedlab_sim::run(&spec, None) {
        Ok(result) => result.message.unwrap_or_default(),
        Err(error) => error.to_string(),
    };
    assert!(told.contains("cannot run under SCHED_DEADLINE"), "{told}");
    assert!(told.contains("100.0 % would be reserved"), "{told}");
    assert!(!told.contains('\n'), "{told}");
}

/// The high one comes at 5 ms and ends at 21, when the low one has done its 20 ms and it its own; without inheritance it also
/// waits for the 500 of the middle one.
#[test]
fn who_waits_for_a_mutex_lends_its_priority() {
    let text = std::fs::read_to_string(format!("{FOLDER}/inherit.json")).unwrap();
    let without = text.replace("\"pi_enabled\" : true", "\"pi_enabled\" : false");
    assert_ne!(text, without);
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.json");
    std::fs::write(&plain, without).unwrap();
    for scheduler in ["vtime", "kernel"] {
        for cpus in [1, 2] {
            let inherits = run(
                &format!("{FOLDER}/inherit.json:jitter=0,offset=0"),
                scheduler,
                cpus,
            );
            is_about(&inherits, "rtapp.hi-2.period_ns_mean", 16e6, 0.2e6);
            let plain = format!("{}:jitter=0,offset=0", plain.display());
            let plain = run(&plain, scheduler, cpus);
            // A tick more: the middle one is done at a tick.
            is_about(&plain, "rtapp.hi-2.period_ns_mean", 516e6, 0.5e6);
        }
    }
}

/// 300 : 100 for two and six tasks; 20 ms in 100 ms for three, and what is left for another one. The first quota may come
/// before the first period begins.
#[test]
fn cgroups_share_by_weights_and_keep_their_limits() {
    let parts = |a: &str, b: &str| {
        format!("cpu:run=5ms,sleep=0,duration=4s,{a} + cpu:run=5ms,sleep=0,duration=4s,{b}")
    };
    let weights = parts("tasks=2,cgroup=/a,cpu.weight=300", "tasks=6,cgroup=/b");
    let result = run(&weights, "kernel", 1);
    is_about(&result, "cpu.cpu_ns", 3e9, 0.02e9);
    is_about(&result, "cpu2.cpu_ns", 1e9, 0.02e9);
    let limit = parts("tasks=3,cgroup=/a,cpu.max=20ms/100ms", "tasks=1");
    let result = run(&limit, "kernel", 1);
    is_about(&result, "cpu.cpu_ns", 0.81e9, 0.02e9);
    is_about(&result, "cpu2.cpu_ns", 3.19e9, 0.02e9);
}

/// `deadline.throttled` counts no stop at the limit of a cgroup.
#[test]
fn a_stop_at_the_limit_of_a_cgroup_is_none_of_a_deadline_task() {
    let file = r#"{
        "tasks": {
            "frame": {
                "policy": "SCHED_DEADLINE", "dl-runtime": 6000, "dl-period": 16000, "run": 5000,
                "timer": { "ref": "unique", "period": 16000, "mode": "absolute" }
            },
            "normal": { "taskgroup": "/a", "run": 10000 }
        },
        "cgroups": { "/a": { "cpu.max": "10000 100000" } },
        "global": { "duration": 1 }
    }"#;
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("limited.json");
    std::fs::write(&path, file).unwrap();
    let result = run(path.to_str().unwrap(), "kernel", 1);
    is_about(&result, "deadline.throttled", 0.0, 0.0);
    // 10 ms each, of which all but the first end in the next period.
    is_about(&result, "rtapp.normal-1.run_ns_mean", 90e6, 10e6);
}
