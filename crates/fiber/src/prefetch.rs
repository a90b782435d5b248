//! Prefetching into the host's caches.

/// Bytes of a line of the host's caches.
const LINE_BYTES: usize = 64;

/// Asks the host's caches for all of `value`, which is looked at soon. Only time depends on it.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    let last = size_of_val(value).saturating_sub(1);
    for offset in (0..last).step_by(LINE_BYTES) {
        prefetch_line(start.wrapping_add(offset));
    }
    // It need not begin with a line.
    prefetch_line(start.wrapping_add(last));
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_line(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint. It does nothing where nothing is mapped.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch_line(_: *const u8) {}
