//! Caches, memory, transfers between CPUs and atomic operations.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::pin::{on_cpu, pin};
use crate::sample::{Sample, ps_each, undisturbed};

/// A word with a cache line, and its neighbour that hardware fetches along, to itself.
#[repr(align(256))]
struct Alone(AtomicU64);

/// Returns the time of one access in a chain of accesses that spans `bytes`, each of which needs the one before.
pub fn chase(cpu: usize, bytes: u64, line_bytes: u32) -> Option<Sample> {
    on_cpu(cpu, || {
        let words_per_line = line_bytes as usize / size_of::<u32>();
        let lines = bytes as usize / line_bytes as usize;
        let chain = chain(lines, words_per_line);
        let steps = 4_000;
        let mut at = 0;
        // Brings the lines into the caches that hold them; a pass is enough, and little time too.
        let start = Instant::now();
        for _ in 0..lines / steps + 1 {
            at = walk(&chain, at, steps);
            if start.elapsed() > Duration::from_millis(800) {
                break;
            }
        }
        Sample::collect(101, Duration::from_millis(400), || {
            undisturbed(|| {
                let start = Instant::now();
                at = walk(&chain, at, steps);
                Some(ps_each(start, steps as u64))
            })
        })
    })
}

/// One cycle through all lines in a random order (Sattolo's algorithm), an index in each line.
fn chain(lines: usize, words_per_line: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    for i in (1..lines).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(i, (random % i as u64) as usize);
    }
    let mut chain = vec![0; lines * words_per_line];
    for (line, next) in order.iter().enumerate() {
        chain[line * words_per_line] = next * words_per_line as u32;
    }
    chain
}

#[inline(never)]
fn walk(chain: &[u32], from: usize, steps: usize) -> usize {
    let mut at = from;
    for _ in 0..steps {
        at = chain[at] as usize;
    }
    black_box(at)
}

/// Returns the time of each of `cpus` for a line when all of them at once go over buffers of their own in order, and
/// read and write each line once.
pub fn stream(cpus: &[usize], bytes: u64, line_bytes: u32) -> Option<Vec<Sample>> {
    let together = Barrier::new(cpus.len());
    // A part takes less time than a thread may run before another one's turn comes.
    let part = (1 << 20).min(bytes as usize);
    let lines = part as u64 / u64::from(line_bytes);
    let go_over = |buffer: &[AtomicU8]| {
        for byte in buffer.iter().step_by(line_bytes as usize) {
            byte.store(
                byte.load(Ordering::Relaxed).wrapping_add(1),
                Ordering::Relaxed,
            );
        }
    };
    let measure = |cpu| {
        let is_there = pin(cpu);
        let mut buffer = Vec::new();
        buffer.resize_with(if is_there { bytes as usize } else { 0 }, AtomicU8::default);
        go_over(&buffer);
        let mut parts = buffer.chunks_exact(part.max(1)).cycle();
        // A thread that cannot run comes, too: the others would wait for it.
        together.wait();
        if !is_there {
            return None;
        }
        Sample::collect(2_001, Duration::from_millis(300), || {
            let part = parts.next()?;
            undisturbed(|| {
                let start = Instant::now();
                go_over(part);
                Some(ps_each(start, lines))
            })
        })
    };
    thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| scope.spawn(move || measure(cpu)))
            .collect();
        let samples = threads
            .into_iter()
            .map(|thread| thread.join().ok().flatten());
        samples.collect()
    })
}

/// Returns an uncontended atomic operation on a line that the CPU owns.
pub fn atomic(cpu: usize) -> Option<Sample> {
    on_cpu(cpu, || {
        let word = Alone(AtomicU64::new(0));
        let operations = 10_000;
        Sample::collect(101, Duration::from_millis(200), || {
            undisturbed(|| {
                let start = Instant::now();
                for _ in 0..operations {
                    black_box(&word.0).fetch_add(1, Ordering::SeqCst);
                }
                Some(ps_each(start, operations))
            })
        })
    })
}

/// Returns the transfer of a line between two CPUs: they pass a token through one word. A hop is two
/// transfers: the reader fetches the line that the writer modified, and the next write takes it away
/// from the other again.
pub fn transfer(a: usize, b: usize) -> Option<Sample> {
    let word = Alone(AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let word = &word.0;
    let partner_ready = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            if !pin(b) {
                stop.store(true, Ordering::SeqCst);
            }
            partner_ready.store(true, Ordering::SeqCst);
            while !stop.load(Ordering::Relaxed) {
                let value = word.load(Ordering::Acquire);
                if value % 2 == 1 {
                    word.store(value + 1, Ordering::Release);
                }
                spin_loop();
            }
        });
        let measured = on_cpu(a, || {
            while !partner_ready.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            let rounds = 200;
            // On a busy machine the other thread may not run for a while: such a round says nothing.
            let patience = Duration::from_millis(20);
            Sample::collect(301, Duration::from_millis(600), || {
                let start = Instant::now();
                for _ in 0..rounds {
                    // An abandoned round may still be answered: the word is even again then.
                    let value = word.load(Ordering::Relaxed) & !1;
                    word.store(value + 1, Ordering::Release);
                    let mut spins = 0u32;
                    while word.load(Ordering::Acquire) != value + 2 {
                        spins = spins.wrapping_add(1);
                        let look = spins.is_multiple_of(4_096);
                        if look && (stop.load(Ordering::Relaxed) || start.elapsed() > patience) {
                            return None;
                        }
                        spin_loop();
                    }
                }
                Some(ps_each(start, 4 * rounds))
            })
        });
        stop.store(true, Ordering::SeqCst);
        measured
    })
}

/// Returns how much work a CPU does in a fixed time, in percent, while `sibling` works too.
pub fn smt_share(cpu: usize, sibling: usize) -> Option<Sample> {
    let work = |cpu: usize| {
        on_cpu(cpu, || {
            let start = Instant::now();
            let mut done = 0u64;
            let mut x = 1u64;
            while start.elapsed() < Duration::from_millis(20) {
                for _ in 0..1_000 {
                    x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(done));
                }
                done += 1;
            }
            Some(done)
        })
    };
    Sample::collect(11, Duration::from_secs(1), || {
        let alone = work(cpu)?;
        let together = thread::scope(|scope| {
            let other = scope.spawn(|| work(sibling));
            let mine = work(cpu);
            other.join().ok().flatten().and(mine)
        })?;
        Some((together * 100).checked_div(alone)?.clamp(1, 100))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_of_a_stream_is_measured() {
        let cpu = (0..).find(|&cpu| crate::pin::allowed(cpu)).unwrap();
        let samples = stream(&[cpu, cpu], 1 << 20, 64).unwrap();
        assert_eq!(samples.len(), 2);
        assert!(samples.iter().all(|sample| sample.median() > 0));
        assert!(stream(&[cpu, usize::MAX], 1 << 20, 64).is_none());
    }

    #[test]
    fn a_chain_is_one_cycle_through_all_lines() {
        for lines in [1, 2, 3, 1_000] {
            let chain = chain(lines, 16);
            let mut at = 0;
            for step in 1..=lines {
                at = walk(&chain, at, 1);
                assert_eq!(at == 0, step == lines, "{lines} lines, step {step}");
            }
        }
    }
}
