//! The sets of one cache: LRU stacks of line copies, allocated when first touched, aged lazily.

/// A copy of a line.
#[derive(Clone, Copy, Debug)]
struct LineCopy {
    line: u32,
    /// The line's version when it was read or written here.
    version: u32,
    /// How many foreign lines its set had taken in when it was last used.
    seen: u32,
}

/// What stands where there is no copy.
const NONE: LineCopy = LineCopy {
    line: 0,
    version: 0,
    seen: 0,
};

/// A set.
#[derive(Clone, Copy, Debug, Default)]
struct Set {
    /// Index in [`Sets::copies`] of its first copy, plus 1; 0 = not allocated.
    begin: u32,
    /// Copies kept; the last of them may be gone already.
    len: u32,
}

/// Where a line is in its set, or that it is not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The set's number.
    set: u32,
    /// How many foreign lines the set has taken in.
    came: u32,
    /// Which of the set's copies; where the line is not there, how many copies there are.
    place: u32,
    found: bool,
}

impl Way {
    /// Whether the line is there, of whatever version.
    pub fn found(self) -> bool {
        self.found
    }
}

/// One cache.
///
/// Of a set only the modelled lines are kept, the most recently used first; foreign lines fill the rest.
/// The depth of a copy in the LRU stack is the number of copies before it and of foreign lines that came
/// since its last use. A copy whose depth reaches the number of ways is gone, and so are all behind it.
/// An application that streams through the cache puts its lines into the sets in turn, so the number
/// that came into a set follows from the number that came into the cache: nothing is to be done when they
/// come.
#[derive(Clone, Debug)]
pub(super) struct Sets {
    /// Number of sets minus 1; a power of two minus 1.
    mask: u32,
    ways: u32,
    /// Binary logarithm of the number of sets.
    shift: u32,
    /// Empty until the first touch.
    sets: Vec<Set>,
    /// `ways` copies for each set that was touched.
    copies: Vec<LineCopy>,
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
    pub fn find(&self, line: u32, version: u32) -> (Way, bool) {
        let number = line & self.mask;
        let mut way = Way {
            set: number,
            came: self.came(number),
            place: 0,
            found: false,
        };
        let Some(&Set {
            begin: begin @ 1..,
            len,
        }) = self.sets.get(number as usize)
        else {
            return (way, false);
        };
        let begin = begin as usize - 1;
        for copy in &self.copies[begin..begin + len as usize] {
            if copy.line == line {
                way.found = self.depth(way.place, copy, way.came) < self.ways;
                return (way, way.found && copy.version == version);
            }
            way.place += 1;
        }
        (way, false)
    }

    /// Puts a copy of `line` first, in the place of what `way` holds. Nothing else may have happened
    /// to this cache since `way` was found.
    #[inline]
    pub fn put_first(&mut self, way: Way, line: u32, version: u32) {
        let last = if way.found {
            way.place as usize
        } else {
            self.make_room(way)
        };
        let begin = self.sets[way.set as usize].begin as usize - 1;
        let copies = &mut self.copies[begin..=begin + last];
        if last > 0 {
            copies.copy_within(..last, 1);
        }
        copies[0] = LineCopy {
            line,
            version,
            seen: way.came,
        };
    }

    /// Which copy of the set makes room for a line that comes in: an unused one, unless the set is full of
    /// other lines and the least recently used of them is a modelled one.
    fn make_room(&mut self, way: Way) -> usize {
        let number = way.set as usize;
        if self.sets.get(number).is_none_or(|set| set.begin == 0) {
            self.allocate(number);
        }
        let Set { begin, mut len } = self.sets[number];
        let begin = begin as usize - 1;
        let depth_of = |place: u32| {
            let copy = &self.copies[begin + place as usize];
            self.depth(place, copy, way.came)
        };
        // Those that are gone are the last.
        while len > 0 && depth_of(len - 1) >= self.ways {
            len -= 1;
        }
        let is_full = len > 0 && depth_of(len - 1) == self.ways - 1;
        len += u32::from(!is_full);
        self.sets[number].len = len;
        len as usize - 1
    }

    /// Whether there is a copy of `line` of this version.
    pub fn peek(&self, line: u32, version: u32) -> bool {
        self.find(line, version).1
    }

    /// How many other lines, foreign ones included, were used in its set after the copy at `place`.
    #[inline]
    fn depth(&self, place: u32, copy: &LineCopy, came: u32) -> u32 {
        // Counts modulo 2^32: a copy that saw so many lines go by would be found again, and none is kept.
        place.saturating_add(came.wrapping_sub(copy.seen))
    }

    /// How many foreign lines came into a set. Set 0 takes the first, set 1 the second, and so on.
    #[inline]
    fn came(&self, set: u32) -> u32 {
        (self.foreign + u64::from(self.mask ^ set)).wrapping_shr(self.shift) as u32
    }

    #[cold]
    fn allocate(&mut self, set: usize) {
        if self.sets.is_empty() {
            self.sets = vec![Set::default(); self.mask as usize + 1];
        }
        let begin = self.copies.len() + 1;
        self.sets[set].begin = u32::try_from(begin).expect("a cache has fewer than 2^32 lines");
        self.copies.resize(begin - 1 + self.ways as usize, NONE);
    }

    pub fn memory_bytes(&self) -> usize {
        self.sets.capacity() * size_of::<Set>() + self.copies.capacity() * size_of::<LineCopy>()
    }
}
