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
/// memory that other CPUs can see. It notes what is not in it, and asks the host ([`crate::program::Hooks::access`]).
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
        self.tag = self.tag.wrapping_add(1 << 1);
        if self.tag >> KEY_SHIFT != 0 {
            self.begins_again();
        }
    }

    #[cold]
    fn begins_again(&mut self) {
        *self = Seen::default();
    }

    /// Notes an access of a line of a cache by its number. Returns whether one was noted before. One value holds either lines or
    /// pieces.
    #[inline]
    pub fn notes_line_again(&mut self, line: u32) -> bool {
        let key = u64::from(line) << KEY_SHIFT | self.tag;
        let place = &mut self.pieces[line as usize % PIECES];
        std::mem::replace(place, key) == key
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
    fn lines_whose_numbers_differ_by_256_share_a_place() {
        let mut seen = Seen::default();
        assert!(!seen.notes_line_again(7) && !seen.notes_line_again(8));
        assert!(seen.notes_line_again(7) && seen.notes_line_again(8));
        assert!(!seen.notes_line_again(263) && seen.notes_line_again(263));
        assert!(!seen.notes_line_again(7));
        seen.forget();
        assert!(!seen.notes_line_again(7) && !Seen::default().notes_line_again(0));
    }

    #[test]
    fn tags_that_come_again_meet_no_old_piece() {
        let mut seen = Seen::default();
        let key = |seen: &Seen| 7 << KEY_SHIFT | seen.tag;
        seen.pieces[7] = key(&seen);
        for _ in 0..1 << TAG_BITS {
            seen.forget();
            assert_ne!(seen.pieces[7], key(&seen));
        }
    }
}
