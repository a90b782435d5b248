//! Counting without checks where none is needed.

use std::cell::Cell;
use std::hint::cold_path;

/// One more.
///
/// Not checked, as other sums are: what is counted one by one never gets to 2^64.
#[inline(always)]
pub(crate) fn count(n: &mut u64) {
    *n = n.wrapping_add(1);
}

/// So much more of what in all is no more than a run's time, or than 2^64 events.
#[inline(always)]
pub(crate) fn add(sum: &Cell<u64>, more: u64) {
    sum.set(sum.get().wrapping_add(more));
}

/// Keeps the greater one. Nearly always that is the one that is there: nothing is written then.
#[inline(always)]
pub(crate) fn raise(max: &Cell<u64>, value: u64) {
    if value > max.get() {
        cold_path();
        max.set(value);
    }
}
