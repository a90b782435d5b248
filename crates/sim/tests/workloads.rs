//! Results of workloads in simulation: seeds are samples, services obey queueing theory, parts have their own
//! measures.

use schedlab_report::export::table;
use schedlab_report::export::view::View;
use schedlab_report::{Exit, RunResult};
use schedlab_sim::{Scheduler, SimSpec};

fn simulate(workload: &str, scheduler: &str, machine: &str, cpus: usize, seed: u64) -> RunResult {
    let spec = SimSpec {
        cpus: Some(cpus),
        seed,
        ..SimSpec::new(workload, Scheduler::parse(scheduler), machine)
    };
    let result =
        schedlab_sim::run(&spec, None).unwrap_or_else(|error| panic!("{workload}: {error}"));
    assert_eq!(result.exit, Exit::Done, "{workload}: {:?}", result.message);
    result
}

#[track_caller]
fn number(result: &RunResult, name: &str) -> f64 {
    let found = result.measures.number(name);
    found.unwrap_or_else(|| panic!("no {name} in {:?}", result.measures))
}

/// By default each seed is a sample; without jitter and offset all are one run.
#[test]
fn seeds_of_sleeping_workloads_are_samples_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forty.json").display().to_string();
    let text = r#"{"tasks": {"worker": {"instance": 40, "loop": 30, "run": 400, "timer": {"ref": "unique", "period": 8000}}}}"#;
    std::fs::write(&path, text).unwrap();
    for (workload, exact) in [
        (
            format!("{path}:duration=1"),
            format!("{path}:duration=1,jitter=0,offset=0"),
        ),
        (
            "cpu:tasks=9,run=300us,sleep=1ms,duration=100ms".to_owned(),
            "cpu:tasks=9,run=300us,sleep=1ms,duration=100ms,jitter=0,offset=0".to_owned(),
        ),
        (
            "schbench:workers=6,duration=200ms".to_owned(),
            "schbench:workers=6,duration=200ms,jitter=0,offset=0".to_owned(),
        ),
    ] {
        let runs = |text: &str| -> Vec<RunResult> {
            (1..=6)
                .map(|seed| simulate(text, "vtime", "laptop", 4, seed))
                .collect()
        };
        let (samples, copies) = (runs(&workload), runs(&exact));
        for (i, run) in samples.iter().enumerate() {
            let same = samples[..i]
                .iter()
                .any(|other| other.measures == run.measures);
            assert!(!same, "{workload}: seed {} is a copy", run.seed);
        }
        assert!(
            copies.iter().all(|run| run.measures == copies[0].measures),
            "{exact}"
        );
        let told = "the seed changes nothing here: 6 runs are one";
        assert!(
            !table::render(&samples, &View::of_width(200)).contains(told),
            "{workload}"
        );
        assert!(
            table::render(&copies, &View::of_width(200)).contains(told),
            "{exact}"
        );
    }
    // Counted loops are counted, whatever is drawn.
    for seed in 1..=3 {
        let run = simulate(&path, "vtime", "laptop", 4, seed);
        assert_eq!(number(&run, "work"), 40.0 * 30.0);
    }
}

/// Forty workers of one period, which take 2 of 16 CPUs together: begun at once, they wait for each other; at any time
/// of the period, hardly.
#[test]
fn workers_do_not_march_in_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forty.json").display().to_string();
    let text = r#"{"tasks": {"worker": {"instance": 40, "loop": 100, "run": 500, "timer": {"ref": "unique", "period": 10000}}}}"#;
    std::fs::write(&path, text).unwrap();
    let wait = |options: &str| {
        let run = simulate(&format!("{path}{options}"), "fifo", "server-2x96x2", 16, 1);
        number(&run, "wakeup.latency_ns_mean")
    };
    let (spread, in_step) = (wait(""), wait(":offset=0"));
    assert!(spread * 10.0 < in_step, "{spread} {in_step}");
}

/// Mean response times of M/M/1 and M/M/c: 1/(1 − ρ) service times, and 1 + C(c, cρ)/(c·(1 − ρ)) with Erlang's C: 0.4286 for
/// four servers and 49/85 for two, at ρ = 0.7.
#[test]
fn services_obey_queueing_theory() {
    for (cpus, rate, service_times) in [
        (1, 50, 2.0),
        (1, 70, 1.0 / 0.3),
        (2, 140, 1.0 + 49.0 / 85.0 / 0.6),
        (4, 280, 1.0 + 0.4286 / 1.2),
    ] {
        let text = format!("service:rate={rate}/s,service=10ms,workers={cpus},duration=1500s");
        let run = simulate(&text, "fifo", "netfinity-8500r", cpus, 1);
        let (found, expected) = (
            number(&run, "service.response_ns_mean"),
            service_times * 10e6,
        );
        assert!(
            (found / expected - 1.0).abs() < 0.04,
            "{text}: {found}, not {expected}"
        );
        let load = number(&run, "service.load");
        assert!(
            (load / (f64::from(rate) / 100.0) - 1.0).abs() < 0.02,
            "{load}"
        );
        assert_eq!(
            number(&run, "score"),
            number(&run, "service.response_ns_p99")
        );
        assert!(
            matches!(run.measures.get("score_better"), Some(schedlab_report::Value::Text(word)) if word == "lower")
        );
    }
}

/// R = N/X − Z, but for the cycles that the end cuts off; however many CPUs and clients, under whatever scheduler.
#[test]
fn closed_loops_obey_the_response_time_law() {
    for (scheduler, cpus, clients) in [("fifo", 1, 3), ("vtime", 2, 8), ("kernel", 4, 40)] {
        let text = format!("service:clients={clients},think=5ms,service=1ms,duration=60s");
        let run = simulate(&text, scheduler, "laptop", cpus, 1);
        let law = f64::from(clients) / number(&run, "score") * 1e9
            - number(&run, "service.think_ns_mean");
        let found = number(&run, "service.response_ns_mean");
        assert!(
            (found / law - 1.0).abs() < 0.005,
            "{text}: {found}, not {law}"
        );
    }
}

#[test]
fn each_part_has_its_score_and_the_measures_of_its_tasks() {
    let batch = "kbuild:units=20,jobs=3,compile=20ms,parse=10ms,link=50ms";
    let text = format!("service:rate=500/s,service=200us,workers=3 + {batch}");
    let run = simulate(&text, "vtime", "laptop", 2, 1);
    assert_eq!(run.workload, "service+kbuild");
    assert_eq!(
        number(&run, "score"),
        number(&run, "service.response_ns_p99")
    );
    assert_eq!(number(&run, "score"), number(&run, "service.score"));
    assert_eq!(
        number(&run, "kbuild.score"),
        number(&run, "kbuild.completion_ns")
    );
    assert_eq!(
        number(&run, "kbuild.score"),
        number(&run, "kbuild.makespan_ns")
    );
    // The service went on until the compilers had ended, and no longer.
    assert!(number(&run, "makespan_ns") - number(&run, "kbuild.makespan_ns") < 1e6);
    assert_eq!(
        number(&run, "service.makespan_ns"),
        number(&run, "makespan_ns")
    );
    let both = number(&run, "service.work") + number(&run, "kbuild.work");
    assert_eq!(number(&run, "work"), both);
    // The compilers' CPU time is theirs, children's included; the service's is what was asked for, and its system calls.
    let alone = simulate(batch, "vtime", "laptop", 2, 1);
    let asked = number(&run, "service.service_ns_sum");
    let used = number(&run, "service.cpu_ns");
    assert!((1.0..1.6).contains(&(used / asked)), "{used} {asked}");
    let busy = 2.0 * number(&alone, "makespan_ns");
    let used = number(&run, "kbuild.cpu_ns");
    assert!((0.3 * busy..1.2 * busy).contains(&used), "{used} {busy}");
    for part in ["service", "kbuild"] {
        assert!(number(&run, &format!("{part}.wakeup.latency_ns_p99")) > 0.0);
    }
    // Company costs time.
    assert!(number(&run, "kbuild.score") > number(&alone, "score"));
    let shown = table::render(&[run], &View::of_width(200));
    assert!(
        shown.contains("service ") && shown.contains("kbuild "),
        "{shown}"
    );
}

/// The same part twice: what the scheduler gives one it takes from the other, and nothing is counted twice.
#[test]
fn equal_parts_share_the_machine() {
    let text = "cpu:tasks=2,run=1ms,duration=1 + cpu:tasks=2,run=1ms,duration=2";
    let run = simulate(text, "vtime", "laptop", 2, 1);
    let (one, other) = (number(&run, "cpu.cpu_ns"), number(&run, "cpu2.cpu_ns"));
    assert_eq!(number(&run, "makespan_ns"), 1e9);
    assert!((one / other - 1.0).abs() < 0.05, "{one} {other}");
    assert!(one + other <= 2e9 && one + other > 1.9e9, "{one} {other}");
}

/// `taskset` keeps tasks to a CPU of a machine that has two: a slice is as long as on two CPUs (1.4 ms, not 0.7).
#[test]
fn taskset_keeps_tasks_to_its_cpus_of_the_whole_machine() {
    let spec = |cpus: usize, taskset: Option<&str>| SimSpec {
        cpus: Some(cpus),
        taskset: taskset.map(|list| list.parse().unwrap()),
        ..SimSpec::new(
            "cpu:tasks=8,duration=1s",
            Scheduler::parse("kernel"),
            "laptop",
        )
    };
    let switches = |spec: &SimSpec| {
        let result = schedlab_sim::run(spec, None).unwrap();
        assert!(result.is_done(), "{:?}", result.message);
        result.measures.number("switches.total").unwrap()
    };
    let (alone, kept) = (switches(&spec(1, None)), switches(&spec(2, Some("1"))));
    assert!((1_400.0..1_480.0).contains(&alone), "{alone}");
    assert!((700.0..760.0).contains(&kept), "{kept}");
    for list in ["2", "0-2"] {
        let error = schedlab_sim::run(&spec(2, Some(list)), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("--taskset {list}: the machine has the CPUs 0 to 1")
        );
    }
}

/// Threads that have done their first pass wait for the clock: three on two CPUs do no more a second than twice one's.
#[test]
fn a_stream_is_no_faster_than_its_cpus() {
    let score = |text: &str| number(&simulate(text, "eevdf", "laptop", 2, 1), "score");
    let one = score("stream:threads=1,size=16M,passes=3");
    for passes in [1, 5] {
        let three = score(&format!("stream:threads=3,size=16M,passes={passes}"));
        assert!(
            (1.5 * one..2.0 * one).contains(&three),
            "{passes}: {three}, {one}"
        );
    }
}
