//! What is known of each line machine-wide: a flat table with open addressing, keyed by the line's
//! number. Nothing is ever removed, so a look-up is a walk over neighbours, without tombstones.

/// A line. Copies in caches carry the version they were read at; a write makes a new version, and
/// with it every other copy worthless, without visiting the caches that hold them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// [`FREE`] where the entry of the table holds no line.
    number: u32,
    /// Counts the writes that changed the owner; never 0.
    pub version: u32,
    /// Last-level caches that have had this version, one bit each. With more than 64 of them, several
    /// share a bit.
    pub llcs: u64,
    /// Whose line it is while [`Sharing::Owned`].
    pub owner: u16,
    sharing: Sharing,
    /// Whether the owner wrote it since memory or the last-level cache last had it.
    pub dirty: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sharing {
    /// No cache has ever had it.
    Untouched,
    /// Only `owner` can have a copy (MESI's M, and E if not dirty).
    Owned,
    /// Several may have copies, all clean (MESI's S).
    Shared,
}

impl Line {
    /// The bit of a last-level cache.
    pub fn llc_bit(llc: u32) -> u64 {
        1 << (llc % 64)
    }

    #[inline]
    pub fn is_owned(&self) -> bool {
        self.sharing == Sharing::Owned
    }

    #[inline]
    pub fn owned_by(&self, cache: u16) -> bool {
        self.sharing == Sharing::Owned && self.owner == cache
    }

    /// Whether nobody has accessed it yet.
    pub fn is_untouched(&self) -> bool {
        self.sharing == Sharing::Untouched
    }

    pub fn is_shared(&self) -> bool {
        self.sharing == Sharing::Shared
    }

    /// `cache` writes it.
    pub fn become_modified(&mut self, cache: u16, llc_bit: u64) {
        // After 2^32 changes of owner an ancient copy could count as fresh; none lives that long.
        self.version = self.version.wrapping_add(1).max(1);
        self.sharing = Sharing::Owned;
        self.owner = cache;
        self.dirty = true;
        self.llcs = llc_bit;
    }

    /// `cache` reads it and may have to share it.
    pub fn add_reader(&mut self, cache: u16, llc_bit: u64, others_have_it: bool) {
        self.llcs |= llc_bit;
        self.dirty = false;
        if others_have_it {
            self.sharing = Sharing::Shared;
        } else {
            self.sharing = Sharing::Owned;
            self.owner = cache;
        }
    }
}

/// All lines that were ever touched.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    slots: Vec<Line>,
    used: usize,
    /// `slots.len()` is `1 << (32 - shift)`.
    shift: u32,
}

const FIRST_BITS: u32 = 9;

/// No line has this number: the modelled space ends below it.
pub(super) const FREE: u32 = u32::MAX;

const EMPTY: Line = Line {
    number: FREE,
    version: 1,
    llcs: 0,
    owner: 0,
    sharing: Sharing::Untouched,
    dirty: false,
};

impl Directory {
    pub fn new() -> Self {
        Directory {
            slots: vec![EMPTY; 1 << FIRST_BITS],
            used: 0,
            shift: 32 - FIRST_BITS,
        }
    }

    /// Index of a line's entry, which is made on first use. It is good until the next call.
    #[inline]
    pub fn index(&mut self, number: u32) -> usize {
        let home = self.home(number);
        if self.slots[home].number == number {
            return home;
        }
        self.index_elsewhere(number)
    }

    fn index_elsewhere(&mut self, number: u32) -> usize {
        let index = self.position(number);
        if self.slots[index].number == number {
            return index;
        }
        self.insert(number)
    }

    /// The entry at an index.
    #[inline]
    pub fn line(&mut self, index: usize) -> &mut Line {
        &mut self.slots[index]
    }

    /// Where `number` is, or the free place where it would be.
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
    fn insert(&mut self, number: u32) -> usize {
        // At most 5/8 full, so that most lines are at home.
        if (self.used + 1) * 8 > self.slots.len() * 5 {
            self.grow();
        }
        self.used += 1;
        let index = self.position(number);
        self.slots[index].number = number;
        index
    }

    fn grow(&mut self) {
        let larger = vec![EMPTY; self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, larger);
        self.shift -= 1;
        for line in old.into_iter().filter(|line| line.number != FREE) {
            let index = self.position(line.number);
            self.slots[index] = line;
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Line>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_keeps_its_entry_while_the_table_grows() {
        let mut directory = Directory::new();
        let numbers = (0..50_000u32).map(|i| i.wrapping_mul(256) ^ (i >> 7));
        for number in numbers.clone() {
            let index = directory.index(number);
            directory.line(index).llcs = u64::from(number);
        }
        for number in numbers {
            let index = directory.index(number);
            assert_eq!(directory.line(index).llcs, u64::from(number));
        }
    }
}
