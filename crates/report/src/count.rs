//! Counting one by one.

/// One more.
///
/// Not checked, as other sums are: what is counted one by one never gets to 2^64.
#[inline(always)]
pub(crate) fn count(n: &mut u64) {
    *n = n.wrapping_add(1);
}
