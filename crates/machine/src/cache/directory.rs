//! Holds the machine-wide state of each line. A line stays in its place once it is there, so that a frequent user of
//! it finds it without a search ([`LineRef`]); a flat table with open addressing, keyed by
//! the line's number, finds the others. Nothing is ever removed, so a look-up is a walk over neighbours,
//! without tombstones.

use crate::address::Structure;

/// A line by its place in the model: who accesses the same line often need not look for it each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LineRef(pub(super) u32);

/// The cache of a core, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheIx(pub(super) u16);

/// A line as it was written last: its number, and its version. Side by side, so that the host compares both at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Written([u32; 2]);

impl Written {
    pub const fn new(number: u32, version: u32) -> Written {
        Written([number, version])
    }

    #[inline(always)]
    pub fn number(self) -> u32 {
        self.0[0]
    }

    #[inline(always)]
    pub fn version(self) -> u32 {
        self.0[1]
    }

    /// As it is when it is written again.
    #[inline(always)]
    pub fn renewed(self) -> Written {
        // After 2^32 changes of owner an ancient copy could count as fresh; none lives that long.
        Written::new(self.number(), self.version().wrapping_add(1))
    }
}

/// A line. Copies in caches carry the version they were read at; a write makes a new version, and
/// with it every other copy worthless, without visiting the caches that hold them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Its number, and the count of writes that changed the owner.
    pub written: Written,
    /// Last-level caches that have had this version, one bit each. With more than 64 of them, several
    /// share a bit.
    pub llcs: u64,
    pub holder: Holder,
    /// Whether the owner wrote it since memory or the last-level cache last had it.
    pub dirty: bool,
    /// The line number in this place.
    pub structure: Structure,
}

/// The owner of the copies of a line: one cache, by its number, or one of the constants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Holder(u16);

impl Holder {
    /// No cache has ever had it.
    pub const UNTOUCHED: Holder = Holder(u16::MAX);
    /// Several may have copies, all clean (MESI's S).
    pub const SHARED: Holder = Holder(u16::MAX - 1);

    /// Only `cache` can have a copy (MESI's M, and E if not dirty).
    pub fn owner(cache: CacheIx) -> Holder {
        debug_assert!(cache.0 < Holder::SHARED.0);
        Holder(cache.0)
    }

    /// Returns the number of the cache that owns the line, or `None` if no cache does.
    #[inline]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the owner if that is not `me`.
    #[inline]
    pub fn other_owner(self, me: CacheIx) -> Option<CacheIx> {
        (self.0 < Holder::SHARED.0 && self.0 != me.0).then_some(CacheIx(self.0))
    }

    /// Returns whether `cache` may read its copy, or write it without an invalidation.
    #[inline]
    pub fn lets(self, cache: CacheIx, write: bool) -> bool {
        self.0 == cache.0 || (!write && self == Holder::SHARED)
    }
}

impl Line {
    /// Returns the bit of a last-level cache.
    pub fn llc_bit(llc: u32) -> u64 {
        1 << (llc % 64)
    }

    /// `cache` writes it. Returns the line as it is then.
    #[inline]
    pub fn become_modified(&mut self, cache: CacheIx, llc_bit: u64) -> Written {
        let renewed = self.written.renewed();
        self.written = renewed;
        self.holder = Holder::owner(cache);
        self.dirty = true;
        self.llcs = llc_bit;
        renewed
    }

    /// `cache` reads it and may have to share it.
    #[inline]
    pub fn add_reader(&mut self, cache: CacheIx, llc_bit: u64, others_have_it: bool) {
        self.llcs |= llc_bit;
        self.dirty = false;
        self.holder = if others_have_it {
            Holder::SHARED
        } else {
            Holder::owner(cache)
        };
    }
}

/// All lines that were ever asked for.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    /// In the order in which they were first asked for.
    lines: Vec<Line>,
    slots: Vec<Slot>,
    /// `slots.len()` is `1 << (32 - shift)`.
    shift: u32,
}

/// Where in `lines` the line of a number is.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// [`FREE`] if the place is empty.
    number: u32,
    line: LineRef,
}

const FIRST_BITS: u32 = 9;

/// No line has this number: the modelled space ends below it.
pub(super) const FREE: u32 = u32::MAX;

const EMPTY: Slot = Slot {
    number: FREE,
    line: LineRef(0),
};

impl Directory {
    pub fn new() -> Self {
        Directory {
            lines: Vec::new(),
            slots: vec![EMPTY; 1 << FIRST_BITS],
            shift: 32 - FIRST_BITS,
        }
    }

    /// Returns the line of a number, which lies in `structure`. It is made on first use.
    #[inline]
    pub fn find(&mut self, number: u32, structure: impl FnOnce() -> Structure) -> LineRef {
        let slot = self.slots[self.position(number)];
        if slot.number == number {
            return slot.line;
        }
        self.insert(number, structure())
    }

    #[inline]
    pub fn line(&mut self, line: LineRef) -> &mut Line {
        &mut self.lines[line.0 as usize]
    }

    pub fn kept_of(&self, line: LineRef) -> &Line {
        &self.lines[line.0 as usize]
    }

    /// Where `number` is, or the free place where it would be.
    #[inline]
    fn position(&self, number: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut index = self.home(number);
        loop {
            let found = self.slots[index].number;
            if found == number || found == FREE {
                return index;
            }
            index = (index + 1) & mask;
        }
    }

    /// Fibonacci hashing: the golden ratio spreads the regular distances of structures.
    #[inline]
    fn home(&self, number: u32) -> usize {
        number.wrapping_mul(0x9E37_79B9).wrapping_shr(self.shift) as usize
    }

    #[cold]
    fn insert(&mut self, number: u32, structure: Structure) -> LineRef {
        // At most 5/8 full, so that most lines are at home.
        if (self.lines.len() + 1) * 8 > self.slots.len() * 5 {
            self.grow();
        }
        // Numbers are of 32 bits, so there are no more lines.
        let line = LineRef(self.lines.len() as u32);
        self.lines.push(Line {
            written: Written::new(number, 1),
            llcs: 0,
            holder: Holder::UNTOUCHED,
            dirty: false,
            structure,
        });
        let index = self.position(number);
        self.slots[index] = Slot { number, line };
        line
    }

    fn grow(&mut self) {
        let larger = vec![EMPTY; self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, larger);
        self.shift -= 1;
        for slot in old.into_iter().filter(|slot| slot.number != FREE) {
            let index = self.position(slot.number);
            self.slots[index] = slot;
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>() + self.slots.capacity() * size_of::<Slot>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_keeps_its_place_while_the_table_grows() {
        let mut directory = Directory::new();
        let numbers = (0..50_000u32).map(|i| i.wrapping_mul(256) ^ (i >> 7));
        for number in numbers.clone() {
            let line = directory.find(number, || Structure::Arena);
            directory.line(line).llcs = u64::from(number);
        }
        for number in numbers {
            let line = directory.find(number, || Structure::Task);
            assert_eq!(directory.line(line).written.number(), number);
            assert_eq!(directory.line(line).llcs, u64::from(number));
            assert_eq!(directory.line(line).structure, Structure::Arena);
        }
    }
}
