//! Measures the cost of a turn: each of some fibers in turn is resumed and suspends itself, inside of some calls, as
//! a CPU does in the middle of the kernel's paths, and returns from as many before it suspends itself again.
//!
//! `cargo run --release -p schedlab-fiber --example turns`

use std::hint::black_box;
use std::time::Instant;

use schedlab_fiber::{Fibers, Switch};

/// Turns that are timed together.
const TURNS: usize = 2_000_000;

/// Suspends inside of so many calls, each of which keeps something.
#[inline(never)]
fn suspend(switch: &Switch, calls: u32) -> u32 {
    let kept = black_box([calls; 16]);
    if calls == 0 {
        switch.suspend();
        return kept[3];
    }
    suspend(switch, calls - 1) + black_box(kept)[7]
}

/// Nanoseconds for a turn.
fn measure(nr_fibers: usize, calls: u32) -> f64 {
    let switch = Switch::default();
    let mut fibers = Fibers::new(&switch);
    for _ in 0..nr_fibers {
        fibers
            .spawn(|| {
                loop {
                    black_box(suspend(&switch, calls));
                }
            })
            .expect("a stack");
    }
    let mut round = |turns: usize| {
        let start = Instant::now();
        for turn in 0..turns {
            fibers.resume(turn % nr_fibers);
        }
        start.elapsed().as_secs_f64() * 1e9 / turns as f64
    };
    round(TURNS / 10);
    round(TURNS)
}

fn main() {
    println!("{:>8}{:>8}{:>10}", "fibers", "calls", "ns/turn");
    for nr_fibers in [1, 8, 64] {
        for calls in [0, 4, 8] {
            let mut times = [0; 5].map(|_| measure(nr_fibers, calls));
            times.sort_by(f64::total_cmp);
            println!("{nr_fibers:>8}{calls:>8}{:>10.1}", times[2]);
        }
    }
}
