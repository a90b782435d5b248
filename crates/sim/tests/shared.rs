//! The contention of a lock that calls share, beside a published measurement of one that the model was not fitted to: the
//! loopback device's lock of Linux 2.4 (Kepner, netdev, 21 May 2004, '"lockless loopback" patch for 2.6.6': lockstat of
//! N transmitters to N receivers on N processors).
//!
//! The published holds are much longer (48 µs on 2 processors, 1.3 ms on 31) and the messages unknown. So the size of a
//! message is chosen for each N such that the lock is in use for the published share of the time; how often it is found held
//! then follows from the model.

use schedlab_sim::{Scheduler, SimSpec};

/// Share of the time that the locks which calls share are held, and share of the attempts that find one held, in percent.
fn use_and_contention_pct(n: usize, bytes: &str) -> (f64, f64) {
    let workload = format!("hackbench:groups={n},fds=1,loops=100,bytes={bytes},socket_buffer=256K");
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines/loopback.toml");
    let spec = SimSpec {
        cpus: Some(n),
        ..SimSpec::new(workload, Scheduler::parse("dss"), machine)
    };
    let result = schedlab_sim::run(&spec, None).unwrap();
    assert!(result.is_done(), "{:?}", result.message);
    let number = |name: &str| result.measures.number(name).unwrap();
    let held_ns = number("lock.shared.acquisitions") * number("lock.shared.hold_ns_mean");
    (
        100.0 * held_ns / number("makespan_ns"),
        number("lock.shared.contention_pct"),
    )
}

#[test]
fn the_loopback_device_is_contended_as_published() {
    // Processors, size of a message; published use and contention, in percent; the allowed difference of the contention.
    for (n, bytes, published_use, published, allowed) in [
        (2, "32K", 6.0, 3.9, 2.0),
        (8, "20K", 17.0, 19.3, 2.0),
        // Too low: holds are all alike here, where the published ones reach from microseconds to 73 ms.
        (31, "4K", 72.2, 88.4, 25.0),
    ] {
        let (in_use, contention) = use_and_contention_pct(n, bytes);
        assert!(
            (in_use - published_use).abs() < 5.0,
            "{n}: in use {in_use} %"
        );
        assert!(
            (contention - published).abs() < allowed,
            "{n}: contended {contention} % where {published} was published, in use {in_use} %"
        );
    }
}
