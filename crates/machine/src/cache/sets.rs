//! The sets of one cache: LRU stacks of line copies, allocated when first touched, aged lazily.

/// A copy of a modelled line.
#[derive(Clone, Copy, Debug)]
struct Copy {
    line: u32,
    version: u32,
    /// How many other lines, foreign ones included, were used in this set after it.
    depth: u32,
}

const NONE: Copy = Copy {
    line: 0,
    version: 0,
    depth: 0,
};

/// One set.
#[derive(Clone, Copy, Debug)]
struct Set {
    /// How many foreign lines it has taken in.
    seen: u64,
    /// How many modelled lines it holds.
    len: u32,
}

/// Where a line is in its set, or that it is not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Index in [`Sets::sets`].
    set: usize,
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
    /// Index in `sets` of each set, plus 1; 0 = not allocated. Empty until the first touch.
    places: Vec<u32>,
    sets: Vec<Set>,
    /// `ways` for each of `sets`.
    copies: Vec<Copy>,
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
            places: Vec::new(),
            sets: Vec::new(),
            copies: Vec::new(),
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
        let set = self.set(line);
        for (copy, other) in self.copies_of(set).iter().enumerate() {
            if other.line == line {
                return (Way { set, copy }, other.version == version);
            }
        }
        let copy = self.sets[set].len as usize;
        (Way { set, copy }, false)
    }

    /// Puts a copy of `line` first, in the place of what `way` holds. Nothing else may have happened
    /// to this cache since `way` was found.
    #[inline]
    pub fn put_first(&mut self, Way { set, copy }: Way, line: u32, version: u32) {
        let start = set * self.ways as usize;
        let len = self.sets[set].len as usize;
        if copy == len {
            // The line comes in new: the least recently used of the set goes, if it is a modelled one.
            let goes = len > 0 && self.copies[start + len - 1].depth + 1 == self.ways;
            self.sets[set].len += u32::from(!goes);
        }
        let mut carried = Copy {
            line,
            version,
            depth: 0,
        };
        let last = copy.min(self.sets[set].len as usize - 1);
        for place in &mut self.copies[start..=start + last] {
            std::mem::swap(place, &mut carried);
            carried.depth += 1;
        }
    }

    /// Whether there is a copy of `line` of this version; changes nothing that matters.
    pub fn peek(&mut self, line: u32, version: u32) -> bool {
        self.find(line, version).1
    }

    #[inline]
    fn copies_of(&self, set: usize) -> &[Copy] {
        let start = set * self.ways as usize;
        &self.copies[start..start + self.sets[set].len as usize]
    }

    /// Index of the set of `line`, foreign lines accounted for.
    #[inline]
    fn set(&mut self, line: u32) -> usize {
        let number = line & self.mask;
        let set = match self.places.get(number as usize) {
            Some(&place @ 1..) => place as usize - 1,
            _ => self.allocate(number),
        };
        // Set 0 takes the first foreign line, set 1 the second, and so on.
        let came = (self.foreign + u64::from(self.mask ^ number)) >> self.shift;
        if came != self.sets[set].seen {
            self.catch_up(set, came);
        }
        set
    }

    /// Puts the foreign lines that came into a set since it was last looked at on top.
    fn catch_up(&mut self, set: usize, came: u64) {
        let start = set * self.ways as usize;
        let Set { seen, len } = &mut self.sets[set];
        let new = (came - *seen).min(u64::from(self.ways)) as u32;
        *seen = came;
        let mut left = 0;
        for copy in &mut self.copies[start..start + *len as usize] {
            copy.depth += new;
            left += u32::from(copy.depth < self.ways);
        }
        // The deepest are the last.
        *len = left;
    }

    #[cold]
    fn allocate(&mut self, number: u32) -> usize {
        if self.places.is_empty() {
            self.places = vec![0; self.mask as usize + 1];
        }
        let set = self.sets.len();
        self.places[number as usize] =
            u32::try_from(set + 1).expect("a cache has fewer than 2^32 sets");
        // An untouched set has nothing to lose to foreign lines: they find it empty.
        self.sets.push(Set { seen: 0, len: 0 });
        self.copies
            .resize(self.copies.len() + self.ways as usize, NONE);
        set
    }

    pub fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<u32>()
            + self.sets.capacity() * size_of::<Set>()
            + self.copies.capacity() * size_of::<Copy>()
    }
}
