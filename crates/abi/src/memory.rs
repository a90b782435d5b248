//! The memory that policy code has pointers into: apart from everything else of the process, with nothing around it.
//!
//! An access a little beyond a value meets other values or zeroes, the same in every run. One that goes farther faults.
//! The virtual kernel's own state is never kept here, or is checked when it is read back.

use std::cell::Cell;
use std::io;
use std::ptr;

use libc::{MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Bytes before and behind a reservation in which nothing lies.
const GUARD: usize = 16 << 20;

/// Reserved address space, of which parts can be opened.
pub struct Reservation {
    base: *mut u8,
    bytes: usize,
    /// The result of `mmap`, for `munmap`.
    mapped: (*mut libc::c_void, usize),
}

impl Reservation {
    /// So many bytes, of which the first lies at a multiple of `alignment`.
    pub fn new(bytes: usize, alignment: usize) -> io::Result<Reservation> {
        let length = bytes
            .checked_add(2 * GUARD + alignment)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        // SAFETY: a fresh private mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = (start as usize + GUARD).next_multiple_of(alignment) as *mut u8;
        Ok(Reservation {
            base,
            bytes,
            mapped: (start, length),
        })
    }

    /// So many bytes at an address, of which nothing may be in use.
    pub fn at(bytes: usize, address: usize) -> io::Result<Reservation> {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let wanted = address as *mut libc::c_void;
        // SAFETY: a fresh private mapping, which replaces none.
        let start = unsafe { libc::mmap(wanted, bytes, PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Reservation {
            base: start.cast(),
            bytes,
            mapped: (start, bytes),
        })
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The offset of a pointer into it.
    #[inline]
    pub fn offset(&self, pointer: usize) -> Option<usize> {
        let offset = pointer.wrapping_sub(self.base as usize);
        (offset < self.bytes).then_some(offset)
    }

    /// The place at an offset.
    pub fn place(&self, offset: usize) -> *mut u8 {
        self.base.wrapping_add(offset)
    }

    /// Makes whole pages accessible, which are zero unless they were opened before. Whether there is memory for them.
    pub fn open(&self, offset: usize, bytes: usize) -> bool {
        assert!(offset + bytes <= self.bytes, "it is not reserved");
        // SAFETY: the pages lie inside of our reservation.
        unsafe { libc::mprotect(self.place(offset).cast(), bytes, PROT_READ | PROT_WRITE) == 0 }
    }

    /// Makes whole pages read-only. Returns whether that has succeeded.
    pub fn seal(&self, offset: usize, bytes: usize) -> bool {
        assert!(offset + bytes <= self.bytes, "it is not reserved");
        // SAFETY: the pages lie inside of our reservation.
        unsafe { libc::mprotect(self.place(offset).cast(), bytes, PROT_READ) == 0 }
    }

    /// Gives whole pages back: an access to them faults from now on.
    pub fn close(&self, offset: usize, bytes: usize) {
        assert!(offset + bytes <= self.bytes, "it is not reserved");
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the pages lie inside of our reservation.
        unsafe { libc::mmap(self.place(offset).cast(), bytes, PROT_NONE, flags, -1, 0) };
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: it is our mapping, and the policy that pointed into it runs no more.
        unsafe { libc::munmap(self.mapped.0, self.mapped.1) };
    }
}

/// How much address space to reserve for what may grow to `most` bytes: where the process may have only so much
/// (`ulimit -v`), a small part of that.
pub fn space(most: usize) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: it fills the structure.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    match limit.rlim_cur {
        libc::RLIM_INFINITY => most,
        bytes => most.min((bytes / 64) as usize),
    }
}

/// Memory that is handed out piece after piece and comes back as a whole. No piece moves.
pub struct Memory {
    reserved: Reservation,
    used: Cell<usize>,
    /// So much from its beginning is accessible.
    open: Cell<usize>,
}

impl Memory {
    /// Makes so many further bytes accessible.
    const STEP: usize = 64 << 10;

    /// Room for so many bytes; none is used yet.
    pub fn new(bytes: usize) -> io::Result<Memory> {
        Ok(Memory {
            reserved: Reservation::new(bytes.next_multiple_of(Memory::STEP), PAGE)?,
            used: Cell::new(0),
            open: Cell::new(0),
        })
    }

    /// Zeroed bytes, aligned to 16; null if there are no more.
    pub fn take(&self, bytes: usize) -> *mut u8 {
        let start = self.used.get();
        let left = self.reserved.len() - start;
        if bytes.div_ceil(16) > left / 16 {
            return ptr::null_mut();
        }
        let end = start + bytes.next_multiple_of(16);
        let open = self.open.get();
        if end > open {
            let more = (end - open).next_multiple_of(Memory::STEP);
            if !self.reserved.open(open, more) {
                return ptr::null_mut();
            }
            self.open.set(open + more);
        }
        self.used.set(end);
        self.reserved.place(start)
    }

    /// Returns whether an address lies in what has not been handed out.
    pub fn is_free(&self, address: usize) -> bool {
        let start = self.reserved.place(0) as usize;
        (start + self.used.get()..start + self.reserved.len()).contains(&address)
    }

    /// Keeps a value.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn put<T: Copy>(&self, value: T) -> *mut T {
        const { assert!(align_of::<T>() <= 16) };
        let place = self.take(size_of::<T>()).cast::<T>();
        assert!(!place.is_null(), "no memory is left for the policy");
        // SAFETY: the place is aligned, large enough, and not in other use.
        unsafe { place.write(value) };
        place
    }

    /// Keeps bytes.
    ///
    /// # Panics
    /// If there is no memory for them.
    pub fn put_bytes(&self, bytes: &[u8]) -> *mut u8 {
        let place = self.take(bytes.len());
        assert!(!place.is_null(), "no memory is left for the policy");
        // SAFETY: the place has room for them, and is not in other use.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_and_end_where_the_memory_ends() {
        let memory = Memory::new(2 * Memory::STEP).unwrap();
        let first = memory.take(1);
        let address = first as usize;
        assert!(!memory.is_free(address + 15) && memory.is_free(address + 16));
        assert!(!memory.is_free(address - 1) && memory.is_free(address + 2 * Memory::STEP - 1));
        assert!(!memory.is_free(address + 2 * Memory::STEP));
        assert_eq!(memory.put(7u64).cast(), first.wrapping_add(16));
        let rest = memory.take(2 * Memory::STEP - 32);
        assert_eq!(rest, first.wrapping_add(32));
        // SAFETY: it is ours.
        assert_eq!(unsafe { rest.add(2 * Memory::STEP - 33).read() }, 0);
        assert!(memory.take(1).is_null());
        assert!(memory.take(usize::MAX).is_null());
    }
}
