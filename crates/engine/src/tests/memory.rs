//! Waits for memory.

use schedlab_trace::Event;

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

/// On one CPU nobody else can be the reason: a call is longer by what it waits for memory.
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
