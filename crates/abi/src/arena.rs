//! The memory of a BPF arena: reserved address space of which single pages are in use.

use std::ptr;

use crate::memory::{PAGE, Reservation};

/// No arena is larger, as in the kernel: offsets have 32 bits.
const BYTES_MAX: usize = 1 << 32;

/// An arena. It begins at a multiple of 4 GiB, so that the lower half of a pointer is the offset, the same in every run.
pub struct Arena {
    reserved: Reservation,
    used: Vec<bool>,
    /// No page below this one is free.
    first_free: usize,
}

impl Arena {
    pub fn new(pages: usize) -> std::io::Result<Arena> {
        let bytes = (pages * PAGE).min(BYTES_MAX);
        Ok(Arena::of(Reservation::new(bytes, BYTES_MAX)?))
    }

    /// One that begins at an address, a multiple of 4 GiB.
    pub fn at(pages: usize, address: u64) -> std::io::Result<Arena> {
        let bytes = (pages * PAGE).min(BYTES_MAX);
        Ok(Arena::of(Reservation::at(bytes, address as usize)?))
    }

    fn of(reserved: Reservation) -> Arena {
        Arena {
            used: vec![false; reserved.len() / PAGE],
            reserved,
            // Offset 0 is never handed out: the lower half of such a pointer would look like NULL.
            first_free: 1,
        }
    }

    /// Where it begins.
    pub fn base(&self) -> *mut u8 {
        self.reserved.place(0)
    }

    /// The offset of a pointer into the arena.
    #[inline]
    pub fn offset(&self, pointer: usize) -> Option<u64> {
        self.reserved.offset(pointer).map(|offset| offset as u64)
    }

    /// `bpf_arena_alloc_pages()`: zeroed pages at `at`, or the lowest that fit. Null if none fit.
    pub fn alloc(&mut self, at: *mut u8, pages: usize) -> *mut u8 {
        if pages == 0 || pages > self.used.len() {
            return ptr::null_mut();
        }
        let first = if at.is_null() {
            self.lowest_fit(pages)
        } else {
            self.offset(at as usize)
                .filter(|offset| offset % PAGE as u64 == 0)
                .map(|offset| offset as usize / PAGE)
                .filter(|&first| self.is_free(first, pages))
        };
        let Some(first) = first else {
            return ptr::null_mut();
        };
        if !self.reserved.open(first * PAGE, pages * PAGE) {
            return ptr::null_mut();
        }
        self.used[first..first + pages].fill(true);
        while self.used.get(self.first_free) == Some(&true) {
            self.first_free += 1;
        }
        self.reserved.place(first * PAGE)
    }

    /// `bpf_arena_reserve_pages()`: no allocation gets these pages. 0 or a negative errno.
    pub fn reserve(&mut self, at: *mut u8, pages: usize) -> i64 {
        const EINVAL: i64 = -22;
        const EBUSY: i64 = -16;
        if pages == 0 {
            return 0;
        }
        // compute_pgoff() looks at the lower half of the address.
        let offset = at as usize & (BYTES_MAX - 1);
        let first = offset / PAGE;
        if !offset.is_multiple_of(PAGE) || first + pages > self.used.len() {
            return EINVAL;
        }
        if !self.is_free(first, pages) {
            return EBUSY;
        }
        self.used[first..first + pages].fill(true);
        while self.used.get(self.first_free) == Some(&true) {
            self.first_free += 1;
        }
        0
    }

    /// Where pages begin that are in use.
    pub fn used(&self) -> impl Iterator<Item = usize> + '_ {
        let pages = self.used.iter().enumerate();
        pages
            .filter(|(_, used)| **used)
            .map(|(page, _)| page * PAGE)
    }

    /// Whether the page at an offset is in use.
    pub fn is_used(&self, offset: usize) -> bool {
        self.used.get(offset / PAGE) == Some(&true)
    }

    fn is_free(&self, first: usize, pages: usize) -> bool {
        self.used
            .get(first..first + pages)
            .is_some_and(|range| !range.contains(&true))
    }

    fn lowest_fit(&self, pages: usize) -> Option<usize> {
        let mut run = 0;
        for page in self.first_free..self.used.len() {
            run = if self.used[page] { 0 } else { run + 1 };
            if run == pages {
                return Some(page + 1 - pages);
            }
        }
        None
    }

    /// `bpf_arena_free_pages()`; what is not in use is left alone.
    pub fn free(&mut self, at: *mut u8, pages: usize) {
        let Some(offset) = self.offset(at as usize) else {
            return;
        };
        let first = offset as usize / PAGE;
        let end = (first + pages).min(self.used.len());
        self.reserved.close(first * PAGE, (end - first) * PAGE);
        self.used[first..end].fill(false);
        self.first_free = self.first_free.min(first.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_handed_out_from_below_and_come_back_zeroed() {
        let mut arena = Arena::new(8).unwrap();
        let first = arena.alloc(ptr::null_mut(), 2);
        let second = arena.alloc(ptr::null_mut(), 3);
        assert_eq!(arena.offset(first as usize), Some(4096));
        assert_eq!(arena.offset(second as usize), Some(3 * 4096));
        assert!(
            arena.alloc(ptr::null_mut(), 3).is_null(),
            "only two pages are left"
        );
        // SAFETY: the page is allocated.
        unsafe { first.write(7) };
        arena.free(first, 2);
        let again = arena.alloc(ptr::null_mut(), 1);
        assert_eq!(again, first);
        // SAFETY: the page is allocated.
        assert_eq!(unsafe { again.read() }, 0);
        assert!(arena.alloc(second, 1).is_null(), "in use");
    }
}
