//! Burning CPU time and touching memory.

use crate::sys;
use std::hint::black_box;

/// How fast this machine's idle loop runs.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Rounds of the loop per ns, in 1/1024.
    rounds_per_1024_ns: u64,
}

/// Computations below this are timed by counting rounds alone: reading the thread's CPU clock is a system
/// call and would take a good part of them.
const COUNTED_NS: u64 = 20_000;
/// The clock is read, and the end of the run noticed, this often.
const CHUNK_NS: u64 = 50_000;

impl Speed {
    /// Measures; takes some 20 ms. The fastest of several trials counts, since a disturbance only slows one down.
    pub fn measure() -> Speed {
        const ROUNDS: u64 = 1_000_000;
        let trial = || {
            let start = sys::thread_cpu_ns();
            rounds(ROUNDS);
            (sys::thread_cpu_ns() - start).max(1)
        };
        let fastest = (0..10).map(|_| trial()).min().expect("ten trials");
        Speed {
            rounds_per_1024_ns: (ROUNDS * 1_024 / fastest).max(1),
        }
    }

    /// Uses `ns` of the calling thread's CPU time; returns early once the run `is_over`.
    pub fn burn(self, ns: u64, is_over: impl Fn() -> bool) {
        if ns < COUNTED_NS {
            return self.spin(ns);
        }
        let end = sys::thread_cpu_ns() + ns;
        loop {
            let now = sys::thread_cpu_ns();
            if now >= end || is_over() {
                return;
            }
            self.spin((end - now).min(CHUNK_NS));
        }
    }

    fn spin(self, ns: u64) {
        rounds(ns * self.rounds_per_1024_ns / 1_024);
    }
}

/// A loop that the compiler can neither shorten nor unroll into fewer steps.
#[inline(never)]
fn rounds(n: u64) {
    let mut state = black_box(1_u64);
    for _ in 0..n {
        state = black_box(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
        );
    }
    black_box(state);
}

/// A thread's working set.
#[derive(Default)]
pub struct Memory {
    bytes: Vec<u8>,
    at: usize,
}

/// A buffer never gets larger than this, however much is touched.
const MEMORY_MAX: usize = 256 << 20;
const LINE_BYTES: usize = 64;

impl Memory {
    /// Writes one byte of each line of the next `bytes`, going round in a buffer of `size` bytes.
    pub fn touch(&mut self, bytes: u64, size: u64) {
        let size = usize::try_from(size.max(1))
            .unwrap_or(MEMORY_MAX)
            .min(MEMORY_MAX);
        if self.bytes.len() < size {
            self.bytes.resize(size.next_multiple_of(LINE_BYTES), 0);
        }
        for _ in 0..bytes.div_ceil(LINE_BYTES as u64) {
            if self.at >= self.bytes.len() {
                self.at = 0;
            }
            self.bytes[self.at] = black_box(self.bytes[self.at].wrapping_add(1));
            self.at += LINE_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burning_takes_that_much_cpu_time() {
        let speed = Speed::measure();
        let used = |ns: u64, times: u64| {
            let start = sys::thread_cpu_ns();
            (0..times).for_each(|_| speed.burn(ns, || false));
            (sys::thread_cpu_ns() - start) as f64 / times as f64
        };
        // The clock bounds long ones from below; short ones rest on the calibration, and a CPU whose clock
        // changes meanwhile may be off by a good part.
        let long = used(2_000_000, 10);
        assert!((2e6..2.4e6).contains(&long), "{long}");
        let short = used(5_000, 1_000);
        assert!((2_500.0..20_000.0).contains(&short), "{short}");
    }

    #[test]
    fn a_stopped_run_burns_no_more() {
        let speed = Speed::measure();
        let start = sys::monotonic_ns();
        speed.burn(10_000_000_000, || true);
        assert!(sys::monotonic_ns() - start < 1_000_000_000);
    }

    #[test]
    fn touching_goes_round() {
        let mut memory = Memory::default();
        memory.touch(4_096, 1_024);
        assert_eq!(memory.bytes.len(), 1_024);
        assert!(memory.bytes.iter().step_by(64).all(|&count| count == 4));
    }
}
