//! The memory that a program has accessed lately: an access of what was seen costs nothing, so that the host need not be asked.

/// Bits of an address within a piece of memory: the shortest line of a cache.
const PIECE_BITS: u32 = 4;
/// Pieces that are remembered. Each has one place in the table, by the bits of its address above those within it. They lie within
/// a page, so that which pieces meet in a place is the same wherever the memory lies.
const PIECES: usize = 256;
/// Bits of the tag, and below them the bit of a write.
const TAG_BITS: u32 = 16;
const KEY_SHIFT: u32 = TAG_BITS + 1;
const WRITE: u64 = 1;

/// Pieces of memory that were accessed since [`Seen::forget`]. Translated code looks at it before each load and store that may go to
/// memory that other CPUs can see, and asks the host ([`crate::program::Hooks::access`]) about what is not in it.
#[repr(C)]
pub struct Seen {
    /// The tag in its place in a key, with the bit of a write.
    tag: u64,
    /// Keys: of the address, the tag of the time when it was noted, and whether it was written.
    pieces: [u64; PIECES],
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            tag: 1 << 1 | WRITE,
            pieces: [0; PIECES],
        }
    }
}

impl Seen {
    /// Forgets all pieces.
    #[inline(always)]
    pub fn forget(&mut self) {
        self.tag += 1 << 1;
        if self.tag >> KEY_SHIFT != 0 {
            *self = Seen::default();
        }
    }

    /// Notes an access of the piece at an address: a read, or a write, which counts as a read, too.
    pub fn note(&mut self, address: u64, writes: bool) {
        let key = self.key(address) & !WRITE;
        let place = &mut self.pieces[(address >> PIECE_BITS) as usize % PIECES];
        let was_written = *place == key | WRITE;
        *place = key | u64::from(writes || was_written);
    }

    /// Notes an access of a line of a cache by its number. One value holds either lines or pieces.
    #[inline]
    pub fn note_line(&mut self, line: u32) {
        self.note(u64::from(line) << PIECE_BITS, false);
    }

    /// Returns whether an access of a line was noted, and notes it.
    #[inline]
    pub fn is_noted_now(&mut self, line: u32) -> bool {
        let was_noted = self.has_line(line);
        self.note_line(line);
        was_noted
    }

    /// Returns whether an access of a line was noted.
    #[inline]
    pub fn has_line(&self, line: u32) -> bool {
        self.has(u64::from(line) << PIECE_BITS, false)
    }

    /// Returns whether an access was noted that stands for this one.
    pub fn has(&self, address: u64, writes: bool) -> bool {
        let noted = self.pieces[(address >> PIECE_BITS) as usize % PIECES];
        noted | u64::from(!writes) == self.key(address)
    }

    /// The key of a written piece. Addresses of user space have 47 bits, so that none is lost.
    fn key(&self, address: u64) -> u64 {
        (address >> PIECE_BITS) << KEY_SHIFT | self.tag
    }
}

/// The numbers by which code looks at a [`Seen`].
pub(crate) mod code {
    use std::mem::offset_of;

    use super::Seen;

    pub const PIECE_BITS: i64 = super::PIECE_BITS as i64;
    pub const KEY_SHIFT: i64 = super::KEY_SHIFT as i64;
    /// Takes the bytes from the beginning of the table to a place out of an address that was shifted by [`PLACE_SHIFT`].
    pub const PLACE_MASK: i64 = (super::PIECES as i64 - 1) << 3;
    pub const PLACE_SHIFT: i64 = PIECE_BITS - 3;
    pub const TAG: i32 = offset_of!(Seen, tag) as i32;
    pub const TABLE: i32 = offset_of!(Seen, pieces) as i32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_seen_until_it_is_forgotten_or_another_takes_its_place() {
        let mut seen = Seen::default();
        let at = 0x7fff_1234_5670;
        assert!(!seen.has(at, false));
        seen.note(at, false);
        assert!(seen.has(at, false) && seen.has(at + 15, false));
        assert!(!seen.has(at, true) && !seen.has(at + 16, false) && !seen.has(at - 1, false));
        seen.note(at + 8, true);
        assert!(seen.has(at, true) && seen.has(at, false));
        // A read takes nothing from a write.
        seen.note(at, false);
        assert!(seen.has(at, true));
        seen.note(at + 4096, false);
        assert!(!seen.has(at, false) && seen.has(at + 4096, false));
        seen.forget();
        assert!(!seen.has(at + 4096, false));
    }

    #[test]
    fn lines_whose_numbers_differ_by_256_share_a_place() {
        let mut seen = Seen::default();
        seen.note_line(7);
        assert!(seen.has_line(7) && !seen.has_line(8) && !seen.has_line(263));
        assert!(!seen.is_noted_now(8) && seen.is_noted_now(8));
        assert!(seen.has_line(7));
        seen.note_line(263);
        assert!(seen.has_line(263) && !seen.has_line(7));
    }

    #[test]
    fn tags_that_come_again_meet_no_old_piece() {
        let mut seen = Seen::default();
        seen.note(0x1000, true);
        for _ in 0..(1 << TAG_BITS) + 3 {
            seen.forget();
            assert!(!seen.has(0x1000, false));
        }
        // Memory at address 0 is never seen before it is noted.
        assert!(!Seen::default().has(0, false) && !Seen::default().has(0, true));
    }
}
