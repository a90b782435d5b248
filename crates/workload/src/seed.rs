//! How the scenario's seed is split.
//!
//! Every task draws from a stream of its own, so that what one task does never depends on when another
//! one drew, and a task more or less changes no other task's numbers.

use rand_core::RngCore;
use schedlab_trace::Duration;

use crate::Rng;

/// The generator of task number `task` (its place in [`crate::Workload::tasks`], forked tasks counted on
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

/// A number below `bound`, equally likely each (bias below 2^-32 for bounds below 2^32); 0 for a bound of 0.
#[inline]
pub fn below(rng: &mut Rng, bound: u64) -> u64 {
    // Multiply-shift keeps to integers and takes one draw, so a task's stream advances predictably.
    ((u128::from(rng.next_u64()) * u128::from(bound)) >> 64) as u64
}

/// A time between `mean · (100 − pct)/100` and `mean · (100 + pct)/100`, each equally likely.
#[inline]
pub(crate) fn drawn(mean: Duration, pct: u64, rng: &mut Rng) -> Duration {
    let reach_ns = mean.ns() * pct / 100;
    if reach_ns == 0 {
        return mean;
    }
    Duration::from_ns(mean.ns() - reach_ns + below(rng, 2 * reach_ns + 1))
}

/// A time from 0 to below `most`, each equally likely.
pub(crate) fn drawn_below(most: Duration, rng: &mut Rng) -> Duration {
    match most {
        Duration::ZERO => most,
        most => Duration::from_ns(below(rng, most.ns())),
    }
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
