//! The sets of one cache: LRU stacks of line copies, allocated when first touched, aged lazily.

/// The head of a set or one of its copies. All of a set lies side by side, so that looking at it is looking
/// at one place of the host's memory.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Of a copy its line; of a head the lower half of the number of foreign lines the set has taken in.
    line: u32,
    /// Of a copy the line's version; of a head the upper half of that number.
    version: u32,
    /// Of a copy how many other lines, foreign ones included, were used in its set after it; of a head how many
    /// modelled lines the set holds.
    depth: u32,
}

/// A set that is empty and has taken in nothing, and what stands where there is no copy.
const NONE: Slot = Slot {
    line: 0,
    version: 0,
    depth: 0,
};

impl Slot {
    #[inline]
    fn seen(&self) -> u64 {
        u64::from(self.version) << 32 | u64::from(self.line)
    }

    fn set_seen(&mut self, seen: u64) {
        self.line = seen as u32;
        self.version = (seen >> 32) as u32;
    }
}

/// Where a line is in its set, or that it is not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Index in [`Sets::slots`] of the set's head.
    head: usize,
    /// Which of the set's copies; their number where the line is not there.
    copy: usize,
}

/// One cache.
///
/// Of a set only the modelled lines are kept, the most recently used first, each with its depth in
/// the LRU stack; foreign lines fill the rest. A line whose depth reaches the number of ways is gone.
/// An application that streams through the cache puts its lines into the sets in turn, so the number
/// that came into a set follows from the number that came into the cache, and a set can catch up when
/// somebody looks at it.
#[derive(Clone, Debug)]
pub(super) struct Sets {
    /// Number of sets minus 1; a power of two minus 1.
    mask: u32,
    ways: u32,
    /// Binary logarithm of the number of sets.
    shift: u32,
    /// Index in `slots` of each set's head, plus 1; 0 = not allocated. Empty until the first touch.
    heads: Vec<u32>,
    /// A head and `ways` copies for each set that was touched.
    slots: Vec<Slot>,
    /// Foreign lines that came into the cache.
    foreign: u64,
    /// Rest of a line, in lines × ns per ms.
    foreign_rest: u64,
}

impl Sets {
    pub fn new(sets: u32, ways: u32) -> Self {
        Sets {
            mask: sets - 1,
            ways,
            shift: sets.trailing_zeros(),
            heads: Vec::new(),
            slots: Vec::new(),
            foreign: 0,
            foreign_rest: 0,
        }
    }

    /// An application runs for `user_ns` and brings in `lines_per_ms`.
    #[inline]
    pub fn stream(&mut self, user_ns: u64, lines_per_ms: u64) {
        let lines = self.foreign_rest + user_ns * lines_per_ms;
        self.foreign += lines / 1_000_000;
        self.foreign_rest = lines % 1_000_000;
    }

    /// Looks for a copy of `line`: where it is, and whether it has this version.
    #[inline]
    pub fn find(&mut self, line: u32, version: u32) -> (Way, bool) {
        let head = self.head(line);
        let copies = self.copies_of(head);
        for (copy, other) in copies.iter().enumerate() {
            if other.line == line {
                return (Way { head, copy }, other.version == version);
            }
        }
        let copy = copies.len();
        (Way { head, copy }, false)
    }

    /// Puts a copy of `line` first, in the place of what `way` holds. Nothing else may have happened
    /// to this cache since `way` was found.
    #[inline]
    pub fn put_first(&mut self, Way { head, copy }: Way, line: u32, version: u32) {
        let ways = self.ways;
        let set = &mut self.slots[head..=head + ways as usize];
        let (head, copies) = set.split_first_mut().expect("a set has a head");
        let len = head.depth as usize;
        if copy == len {
            // The line comes in new: the least recently used of the set goes, if it is a modelled one.
            let goes = len > 0 && copies[len - 1].depth + 1 == ways;
            head.depth += u32::from(!goes);
        }
        let mut carried = Slot {
            line,
            version,
            depth: 0,
        };
        let last = copy.min(head.depth as usize - 1);
        for place in &mut copies[..=last] {
            std::mem::swap(place, &mut carried);
            carried.depth += 1;
        }
    }

    /// Whether there is a copy of `line` of this version; changes nothing that matters.
    pub fn peek(&mut self, line: u32, version: u32) -> bool {
        self.find(line, version).1
    }

    #[inline]
    fn copies_of(&self, head: usize) -> &[Slot] {
        let len = self.slots[head].depth as usize;
        &self.slots[head + 1..head + 1 + len]
    }

    /// Index of the head of the set of `line`, foreign lines accounted for.
    #[inline]
    fn head(&mut self, line: u32) -> usize {
        let number = line & self.mask;
        let head = match self.heads.get(number as usize) {
            Some(&head @ 1..) => head as usize - 1,
            _ => self.allocate(number),
        };
        // Set 0 takes the first foreign line, set 1 the second, and so on.
        let came = (self.foreign + u64::from(self.mask ^ number)) >> self.shift;
        if came != self.slots[head].seen() {
            self.catch_up(head, came);
        }
        head
    }

    /// Puts the foreign lines that came into a set since it was last looked at on top.
    fn catch_up(&mut self, head: usize, came: u64) {
        let ways = self.ways;
        let set = &mut self.slots[head..=head + ways as usize];
        let (head, copies) = set.split_first_mut().expect("a set has a head");
        let new = (came - head.seen()).min(u64::from(ways)) as u32;
        head.set_seen(came);
        let mut left = 0;
        for copy in &mut copies[..head.depth as usize] {
            copy.depth += new;
            left += u32::from(copy.depth < ways);
        }
        // The deepest are the last.
        head.depth = left;
    }

    #[cold]
    fn allocate(&mut self, number: u32) -> usize {
        if self.heads.is_empty() {
            self.heads = vec![0; self.mask as usize + 1];
        }
        let head = self.slots.len();
        self.heads[number as usize] =
            u32::try_from(head + 1).expect("a cache has fewer than 2^32 lines");
        // An untouched set has nothing to lose to foreign lines: they find it empty.
        self.slots.resize(head + 1 + self.ways as usize, NONE);
        head
    }

    pub fn memory_bytes(&self) -> usize {
        self.heads.capacity() * size_of::<u32>() + self.slots.capacity() * size_of::<Slot>()
    }
}
