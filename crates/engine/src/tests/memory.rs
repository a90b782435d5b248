//! Waits for memory.

use schedlab_trace::Event;
use schedlab_workload::{Counters, Workload, rtapp};

use crate::Scenario;
use crate::testing::*;

/// Each call of schedule() on the only CPU: its time, and what it says to have waited for memory.
fn calls(miss_ps: u64) -> Vec<(u64, u64)> {
    let tasks = (0..3).map(|_| periodic("p", 300, 100, 10)).collect();
    let mut scenario = scenario(1, tasks);
    let memory = &mut scenario.machine.memory;
    // The application leaves nothing in the cache: what a call looks at first comes from memory.
    memory.evict_lines_per_ms = 1_000_000_000;
    memory.hit_ps = 1_000;
    memory.llc_hit_ps = 0;
    memory.miss_ps = miss_ps;
    memory.bus_ps = 0;
    let mut entered = 0;
    let mut calls = Vec::new();
    for &(at, _, event) in &run_checked(scenario, Stub::fifo(&[])).events {
        match event {
            Event::ScheduleEnter { .. } => entered = at,
            Event::ScheduleExit { memory_wait_ps, .. } => {
                calls.push((at - entered, memory_wait_ps))
            }
            _ => {}
        }
    }
    calls
}

/// On one CPU no other CPU can be the reason: a call is longer by its wait for memory.
#[test]
fn a_call_is_longer_by_what_it_waits_for_memory() {
    let (fast, slow) = (calls(1_000), calls(101_000));
    assert_eq!(fast.len(), slow.len());
    assert!(fast.len() >= 30, "{}", fast.len());
    assert!(slow.iter().any(|&(_, wait_ps)| wait_ps > 0));
    for (&(fast_ns, nothing), &(slow_ns, wait_ps)) in fast.iter().zip(&slow) {
        assert_eq!(nothing, 0);
        // Whole misses, each 100 ns more than a hit.
        assert_eq!(wait_ps % 100_000, 0);
        assert_eq!(slow_ns - fast_ns, wait_ps / 1_000);
    }
}

fn counters(workload: Workload) -> Counters {
    let mut machine = machine(1);
    machine.clock_mhz = 1_000;
    let memory = &mut machine.memory;
    (memory.line_bytes, memory.cache_bytes) = (64, 256 << 10);
    (memory.hit_ps, memory.miss_ps) = (5_000, 105_000);
    let checked = run_checked(Scenario::new(machine, workload, 1), Stub::fifo(&[]));
    checked.end.counters
}

/// Time of a thread's iterations that each go over memory so.
fn iteration_ns(event: &str) -> f64 {
    let text = format!(r#"{{"tasks": {{"m": {{"loop": 20, "memrun": {{{event}}}}}}}}}"#);
    let counters = counters(rtapp::parse("t", &text, "", 1).unwrap());
    counters.number("rtapp.m-0.period_ns_mean").unwrap()
}

/// A byte costs a cycle of 1 ns, each line of 64 a hit of 5 or a miss of 105 ns.
#[test]
fn a_buffer_that_fits_is_cheaper_than_one_that_does_not() {
    let near = |is: f64, ns: f64| assert!((is / ns - 1.0).abs() < 0.02, "{is} {ns}");
    let small = iteration_ns(r#""type": "read", "size": 16384, "count": 1000000"#);
    // The first of 20 iterations brings 256 lines.
    near(small, 1e6 + 15_625.0 * 5.0 + 256.0 * 100.0 / 20.0);
    let large = iteration_ns(r#""type": "read", "size": 33554432, "count": 1000000"#);
    near(large, 1e6 + 15_625.0 * 105.0);
    let written = iteration_ns(r#""type": "write", "size": 33554432, "count": 1000000"#);
    near(written, large);
    let chase = |size: u32, pattern: &str| {
        iteration_ns(&format!(
            r#""type": "chase", "size": {size}, "stride": 8, "count": 10000, "pattern": "{pattern}""#
        ))
    };
    near(chase(33_554_432, "random"), 10_000.0 * 106.0);
    near(chase(33_554_432, "sequential"), 10_000.0 + 1_250.0 * 105.0);
    near(
        chase(8_192, "sequential"),
        10_000.0 + 1_250.0 * 5.0 + 128.0 * 5.0,
    );
}

/// Each buffer of a thread has lines of its own, and the lines of a small one do not push out another however often
/// they are gone over.
#[test]
fn buffers_do_not_share_their_lines() {
    let text = r#"{"tasks": {"m": {"loop": 20,
        "memrun0": {"type": "read", "size": 65536, "count": 65536},
        "memrun1": {"type": "read", "size": 4096, "count": 1000000}}}}"#;
    let counters = counters(rtapp::parse("t", text, "", 1).unwrap());
    let period_ns = counters.number("rtapp.m-0.period_ns_mean").unwrap();
    let warm_ns = 1_065_536.0 + (1_024.0 + 15_625.0) * 5.0;
    let cold_ns = (1_024.0 + 64.0) * 100.0 / 20.0;
    assert!(
        (period_ns / (warm_ns + cold_ns) - 1.0).abs() < 0.02,
        "{period_ns}"
    );
}

/// Data that comes into the cache at the beginning is in neither side of the difference.
#[test]
fn a_context_switch_costs_the_same_in_short_and_long_samples() {
    let switch_ns = |size: &str, rounds: u32, samples: u32| {
        let text = format!("lat_ctx:size={size},rounds={rounds},samples={samples}");
        let counters = counters(Workload::parse(&text, 1).unwrap());
        counters.number("lat_ctx.switch_ns_median").unwrap()
    };
    for size in ["0", "64K"] {
        let long = switch_ns(size, 10_000, 1);
        assert!(long > 0.0);
        for short in [switch_ns(size, 100, 1), switch_ns(size, 100, 11)] {
            assert!((short / long - 1.0).abs() < 0.1, "{size}: {short} {long}");
        }
    }
}
