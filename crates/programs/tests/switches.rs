//! How often real tasks wait, which is what schedulers see of a workload: as often as its model does.
//!
//! A file of its own with one test, since a process counts the switches of all its children together.

use schedlab_programs::{Options, Report, run};

/// Switches of tasks that gave up their CPU because they had to wait, of all children so far.
fn switches_of_children() -> u64 {
    // SAFETY: an all-zero rusage is valid, and only written to by the call, which it outlives.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage), 0);
        usage
    };
    u64::try_from(usage.ru_nvcsw).unwrap()
}

fn counted(text: &str) -> (Report, u64) {
    let before = switches_of_children();
    let report = run(text, &Options::default()).unwrap_or_else(|error| panic!("{text}: {error}"));
    (report, switches_of_children() - before)
}

#[test]
fn real_tasks_wait_as_often_as_their_models() {
    // A request wakes one of the workers, however many there are.
    let (report, switches) = counted("httpd:workers=64,connections=1,wait=0,duration=500ms");
    assert!(report.work > 20, "{}", report.work);
    // 64 workers wait first, and their processes wait for the start and the end.
    let per_request = switches.saturating_sub(6 * 64) as f64 / report.work as f64;
    assert!((1.0..5.0).contains(&per_request), "{per_request} a request");

    // Some 400 batches: a short queue makes its writer wait at each, one that holds them all never.
    let text = "tpch:degree=1,queries=1,operators=1,batches=200,scan=0,join=200us";
    let (_, short) = counted(&format!("{text},queue=1"));
    let (_, long) = counted(&format!("{text},queue=1000"));
    assert!(
        short >= 200 && long < 100,
        "queue=1: {short}, queue=1000: {long}"
    );
}
