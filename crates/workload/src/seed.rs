//! How the scenario's seed is split.
//!
//! Every task draws from a stream of its own, so that what one task does never depends on when another
//! one drew, and a task more or less changes no other task's numbers.

use rand_core::RngCore;
use schedlab_trace::Duration;

use crate::Rng;

/// Returns the generator of task number `task` (its place in [`crate::Workload::tasks`], forked tasks counted on
/// from there in the order of their creation): PCG-64-MCG whose 128-bit state is two outputs of
/// SplitMix64 started at `seed + task · 2^32 + task`, mixed once.
pub fn stream(seed: u64, task: u32) -> Rng {
    let mut state = mix(seed ^ mix((u64::from(task) << 32) + u64::from(task)));
    let mut output = || {
        // The increment of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): 2^64 divided by the golden ratio.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        u128::from(mix(state))
    };
    Rng::new((output() << 64) | output())
}

/// Returns a number below `bound`, equally likely each (bias below 2^-32 for bounds below 2^32); 0 for a bound of 0.
#[inline]
pub fn below(rng: &mut Rng, bound: u64) -> u64 {
    // Multiply-shift keeps to integers and takes one draw, so a task's stream advances predictably.
    ((u128::from(rng.next_u64()) * u128::from(bound)) >> 64) as u64
}

/// Returns a time between `mean · (100 − pct)/100` and `mean · (100 + pct)/100`, each equally likely.
#[inline]
pub(crate) fn drawn(mean: Duration, pct: u64, rng: &mut Rng) -> Duration {
    let reach_ns = mean.ns() * pct / 100;
    if reach_ns == 0 {
        return mean;
    }
    Duration::from_ns(mean.ns() - reach_ns + below(rng, 2 * reach_ns + 1))
}

/// Returns a time from 0 to below `most`, each equally likely.
pub(crate) fn drawn_below(most: Duration, rng: &mut Rng) -> Duration {
    match most {
        Duration::ZERO => most,
        most => Duration::from_ns(below(rng, most.ns())),
    }
}

/// Returns a time of the exponential distribution with this mean.
pub(crate) fn exponential(mean: Duration, rng: &mut Rng) -> Duration {
    let ns = (u128::from(mean.ns()) * u128::from(unit_exponential(rng)) + HALF) >> 32;
    Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Returns the time between two of `rate` events per second that come at random.
pub(crate) fn exponential_gap(rate: u64, rng: &mut Rng) -> Duration {
    let ns = 1_000_000_000 * u128::from(unit_exponential(rng)) / u128::from(rate.max(1));
    Duration::from_ns(u64::try_from((ns + HALF) >> 32).unwrap_or(u64::MAX))
}

/// A half in 1/2^32.
const HALF: u128 = 1 << 31;

/// −ln(u) in 1/2^32, u being from 0 (excluded) to 1. In integers, since libraries' logarithms differ in their last bits.
fn unit_exponential(rng: &mut Rng) -> u64 {
    /// ln(2) · 2^32.
    const LN_2: u128 = 2_977_044_472;
    let u = rng.next_u64() | 1;
    let zeros = u.leading_zeros();
    // log2 of the leading part, which is from 1 to 2: squaring it doubles its logarithm, one bit at a time.
    let mut part = u128::from(u << zeros);
    let mut log2 = 0_u64;
    for _ in 0..32 {
        part = (part * part) >> 63;
        log2 <<= 1;
        if part >> 64 != 0 {
            part >>= 1;
            log2 |= 1;
        }
    }
    let negative = (u64::from(zeros + 1) << 32) - log2;
    ((u128::from(negative) * LN_2) >> 32) as u64
}

/// SplitMix64's finalizer: a bijection in which every input bit reaches every output bit.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_fixed_and_differ() {
        let first = |seed, task| stream(seed, task).next_u64();
        assert_eq!(first(1, 0), first(1, 0));
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..10 {
            for task in 0..1_000 {
                assert!(seen.insert(first(seed, task)), "seed {seed} task {task}");
            }
        }
    }

    /// Mean 1, variance 1, and what is above 1, 3 and 8: e^-1, e^-3 and e^-8.
    #[test]
    fn exponential_times_are_distributed_as_they_should() {
        let mut rng = stream(3, 3);
        let n = 1_000_000;
        let times: Vec<f64> = (0..n)
            .map(|_| exponential(Duration::from_secs(1), &mut rng).ns() as f64 / 1e9)
            .collect();
        let mean = times.iter().sum::<f64>() / f64::from(n);
        let variance = times.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / f64::from(n);
        assert!(
            (mean - 1.0).abs() < 0.005 && (variance - 1.0).abs() < 0.02,
            "{mean} {variance}"
        );
        for bound in [1.0_f64, 3.0, 8.0] {
            let above = times.iter().filter(|x| **x > bound).count() as f64 / f64::from(n);
            assert!(
                (above / (-bound).exp() - 1.0).abs() < 0.15,
                "{bound}: {above}"
            );
        }
        let gaps: u64 = (0..100_000)
            .map(|_| exponential_gap(7_000_000, &mut rng).ns())
            .sum();
        assert!((gaps as f64 / 1e5 - 142.857).abs() < 2.0, "{gaps}");
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut rng = stream(7, 7);
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[below(&mut rng, 10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1_150).contains(&n)), "{seen:?}");
        assert_eq!(below(&mut rng, 0), 0);
    }
}
