//! Nothing counts after the end of a run. A file of its own: its hogs leave others no CPU.

use schedlab_programs::{Options, Report, nr_cpus, run};

/// At the highest nice level, where the system lets it rise so far.
fn urgent(text: &str) -> Report {
    let options = Options::default();
    run(&format!("{text},nice=-20"), &options)
        .or_else(|_| run(text, &options))
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The hogs keep the threads that supervise them from the CPUs, for seconds where they are urgent.
#[test]
fn a_duration_has_no_more_work_than_its_cpus_can_do() {
    let report = urgent("cpu:tasks=40,run=100us,duration=100ms");
    let most = nr_cpus() as u64 * 1_000;
    assert!(
        (most / 100..=most).contains(&report.work),
        "{}",
        report.work
    );
    assert_eq!(report.makespan_ns, 100_000_000);
    assert_eq!(report.score_value(), Some(report.work as f64 * 10.0));

    let report = urgent("schbench:duration=50ms,workers=64,sleep=0,operation=100us");
    let longest = report.counters.get("schbench.wakeup_ns_max");
    assert!(
        (1..50_000_000).contains(&longest),
        "{longest} ns in a run of 50 ms"
    );
    // Five operations a request.
    assert!(report.work <= nr_cpus() as u64 * 100, "{}", report.work);
}
