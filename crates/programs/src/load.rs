//! Burning CPU time and touching memory.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use memmap2::{Advice, MmapMut};
use schedlab_workload::{Access, Touch};

use crate::sys;

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

/// A thread's buffers.
#[derive(Default)]
pub struct Memory {
    buffers: Vec<Buffer>,
}

#[derive(Default)]
struct Buffer {
    /// Atomic, so that each access to a byte is one: the compiler neither joins nor drops them.
    bytes: Vec<AtomicU8>,
    /// Of a chase: at each pointer's place the place of the next one.
    chain: Vec<usize>,
    at: usize,
}

/// A buffer never gets larger than this, however much is touched.
const MEMORY_MAX: u64 = 256 << 20;
const LINE_BYTES: usize = 64;
const POINTER_BYTES: u64 = size_of::<usize>() as u64;

impl Memory {
    /// Does what is asked for, access by access.
    pub fn touch(&mut self, touch: Touch) {
        let number = touch.buffer as usize;
        if self.buffers.len() <= number {
            self.buffers.resize_with(number + 1, Buffer::default);
        }
        let buffer = &mut self.buffers[number];
        let size_bytes = touch.size_bytes.clamp(1, MEMORY_MAX);
        if let Access::Chase {
            stride_bytes,
            random,
        } = touch.access
        {
            return buffer.chase(size_bytes, stride_bytes, random, touch.count);
        }
        if buffer.bytes.is_empty() {
            buffer
                .bytes
                .resize_with(size_bytes as usize, AtomicU8::default);
        }
        let mut left = usize::try_from(touch.count).unwrap_or(usize::MAX);
        while left > 0 {
            let pass = left.min(buffer.bytes.len());
            go_over(&mut buffer.bytes[..pass], touch.access);
            left -= pass;
        }
    }
}

/// Pages of a thread, each of which it accesses once.
#[derive(Default)]
pub struct Pages {
    mapping: Option<MmapMut>,
    next: usize,
}

/// Bytes of the smallest page of the machines that this runs on; a larger one is accessed more than once.
const PAGE_BYTES: usize = 4_096;
/// Pages that are given back together; will-it-scale's page_fault1 gives back 128 MB, which is much for a thousand threads.
const PAGES: usize = 1_024;

impl Pages {
    /// Accesses a page for the first time.
    pub fn fault(&mut self) -> io::Result<()> {
        let mapping = match &mut self.mapping {
            Some(mapping) if self.next < PAGES => mapping,
            slot => {
                self.next = 0;
                // The old ones go first: as much memory is used as one mapping has.
                *slot = None;
                let mapping = MmapMut::map_anon(PAGES * PAGE_BYTES)?;
                // A huge page would take 512 of the faults. A kernel without them has nothing to forbid.
                let _ = mapping.advise(Advice::NoHugePage);
                slot.insert(mapping)
            }
        };
        mapping[self.next * PAGE_BYTES] = 1;
        self.next += 1;
        Ok(())
    }
}

fn go_over(bytes: &mut [AtomicU8], access: Access) {
    match access {
        Access::Lines | Access::Chase { .. } => {
            for byte in bytes.iter().step_by(LINE_BYTES) {
                byte.store(byte.load(Relaxed).wrapping_add(1), Relaxed);
            }
        }
        Access::Fill => {
            bytes.iter_mut().for_each(|byte| *byte.get_mut() = 0);
            black_box(bytes);
        }
        Access::Read => {
            for byte in bytes.iter() {
                // The value goes somewhere, so that no load is left out.
                black_box(byte.load(Relaxed));
            }
        }
        Access::Write => {
            for (i, byte) in bytes.iter().enumerate() {
                byte.store(i as u8, Relaxed);
            }
        }
    }
}

impl Buffer {
    fn chase(&mut self, size_bytes: u64, stride_bytes: u64, random: bool, count: u64) {
        if self.chain.is_empty() {
            self.chain = chain(size_bytes, stride_bytes, random);
        }
        let mut at = self.at;
        for _ in 0..count {
            at = self.chain[at];
        }
        self.at = black_box(at);
    }
}

/// Pointers `stride_bytes` apart, rounded down to whole words, in a ring.
fn chain(size_bytes: u64, stride_bytes: u64, random: bool) -> Vec<usize> {
    let pointers = Touch::pointers(size_bytes, stride_bytes);
    let words = (stride_bytes / POINTER_BYTES).max(1);
    let bits = pointers.ilog2();
    let place = |i: u64| {
        let i = i % pointers;
        let turned = match random && bits > 0 {
            true => i.reverse_bits() >> (u64::BITS - bits),
            false => i,
        };
        (turned * words) as usize
    };
    let mut chain = vec![0; (pointers * words) as usize];
    (0..pointers).for_each(|i| chain[place(i)] = place(i + 1));
    chain
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

    fn touch(access: Access, size_bytes: u64, count: u64) -> Memory {
        let mut memory = Memory::default();
        memory.touch(Touch {
            buffer: 0,
            size_bytes,
            count,
            access,
        });
        memory
    }

    #[test]
    fn touching_goes_round() {
        let memory = touch(Access::Lines, 1_024, 4_096);
        let bytes = &memory.buffers[0].bytes;
        assert_eq!(bytes.len(), 1_024);
        assert!(
            bytes
                .iter()
                .step_by(64)
                .all(|count| count.load(Relaxed) == 4)
        );
    }

    #[test]
    fn writes_reach_each_byte() {
        let memory = touch(Access::Write, 300, 1_000);
        let bytes = memory.buffers[0].bytes.iter();
        let wrong = bytes
            .enumerate()
            .filter(|(i, byte)| byte.load(Relaxed) != *i as u8);
        assert_eq!(wrong.count(), 0);
        let memory = touch(Access::Fill, 300, 1_000);
        assert!(
            memory.buffers[0]
                .bytes
                .iter()
                .all(|byte| byte.load(Relaxed) == 0)
        );
    }

    /// A byte that is read costs a good part of a cycle, whatever the processor; a line alone would be a 64th of it.
    #[test]
    fn reads_are_one_for_each_byte() {
        let start = sys::thread_cpu_ns();
        touch(Access::Read, 16 << 10, 10_000_000);
        let used_ns = sys::thread_cpu_ns() - start;
        assert!(used_ns > 1_000_000, "{used_ns} ns for 10,000,000 reads");
    }

    #[test]
    fn a_chase_leads_through_the_whole_buffer() {
        for (stride_bytes, random) in [(64, true), (64, false), (8, true), (100, false)] {
            let chain = chain(10_000, stride_bytes, random);
            let pointers = Touch::pointers(10_000, stride_bytes);
            let mut at = 0;
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..pointers {
                seen.insert(at);
                at = chain[at];
            }
            assert_eq!(
                (at, seen.len() as u64),
                (0, pointers),
                "{stride_bytes} {random}"
            );
        }
        let access = Access::Chase {
            stride_bytes: 64,
            random: false,
        };
        assert_eq!(touch(access, 1_024, 17).buffers[0].at, 8);
    }
}
