//! The sets of one cache: LRU stacks of line copies, allocated when first touched, aged lazily.

use super::directory::FREE;

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
    line: FREE,
    version: 0,
    seen: 0,
};

/// A set. The copy used last is here, where most looks end; the others lie apart.
#[derive(Clone, Copy, Debug)]
struct Set {
    first: LineCopy,
    /// Copies kept besides, the last of which may be gone already: how many, and where in [`Sets::others`] they
    /// begin, plus 1; 0 = not allocated.
    others: u32,
}

/// Bits of the number in [`Set::others`]: a set has no more than 64 ways.
const NR_BITS: u32 = 6;

const EMPTY: Set = Set {
    first: NONE,
    others: 0,
};

impl Set {
    /// Copies kept besides the first.
    #[inline]
    fn nr_others(self) -> u32 {
        self.others % (1 << NR_BITS)
    }

    /// Where the others begin, plus 1.
    #[inline]
    fn begin(self) -> usize {
        (self.others >> NR_BITS) as usize
    }
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
    /// Blocks of `ways - 1` copies, for each set that had more than one.
    others: Vec<LineCopy>,
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
            others: Vec::new(),
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
        let Some(set) = self.sets.get(number as usize) else {
            return (way, false);
        };
        if set.first.line == line {
            way.found = self.depth(0, &set.first, way.came) < self.ways;
            return (way, way.found && set.first.version == version);
        }
        for copy in self.others_of(set) {
            way.place += 1;
            if copy.line == line {
                way.found = self.depth(way.place, copy, way.came) < self.ways;
                return (way, way.found && copy.version == version);
            }
        }
        (way, false)
    }

    /// The copies of a set besides the first one.
    #[inline]
    fn others_of(&self, set: &Set) -> &[LineCopy] {
        match set.begin() {
            0 => &[],
            begin => &self.others[begin - 1..begin - 1 + set.nr_others() as usize],
        }
    }

    /// Puts a copy of `line` first, in the place of what `way` holds. Nothing else may have happened
    /// to this cache since `way` was found.
    #[inline]
    pub fn put_first(&mut self, way: Way, line: u32, version: u32) {
        let copy = LineCopy {
            line,
            version,
            seen: way.came,
        };
        if way.found && way.place == 0 {
            self.sets[way.set as usize].first = copy;
        } else {
            self.push(way, copy);
        }
    }

    /// [`Sets::put_first`] where the first copy is of another line, or gone, or there is none.
    fn push(&mut self, way: Way, copy: LineCopy) {
        let last = if way.found {
            way.place as usize
        } else {
            self.make_room(way)
        };
        let set = &mut self.sets[way.set as usize];
        let before = std::mem::replace(&mut set.first, copy);
        if last > 0 {
            let begin = set.begin() - 1;
            let others = &mut self.others[begin..begin + last];
            others.copy_within(..last - 1, 1);
            others[0] = before;
        }
    }

    /// Which copy of the set makes room for a line that comes in: an unused one, unless the set is full of
    /// other lines and the least recently used of them is a modelled one.
    fn make_room(&mut self, way: Way) -> usize {
        let number = way.set as usize;
        if self.sets.is_empty() {
            self.sets = vec![EMPTY; self.mask as usize + 1];
        }
        let set = self.sets[number];
        if set.first.line == FREE {
            return 0;
        }
        let others = self.others_of(&set);
        // Those that are gone are the last.
        let mut nr = set.nr_others();
        while nr > 0 && self.depth(nr, &others[nr as usize - 1], way.came) >= self.ways {
            nr -= 1;
        }
        let last = match nr {
            0 => &set.first,
            _ => &others[nr as usize - 1],
        };
        // The last one makes room if it is gone as soon as another line is there; else they are one more.
        if self.depth(nr, last, way.came) < self.ways - 1 {
            nr += 1;
        }
        let begin = match set.begin() {
            0 if nr > 0 => self.allocate(),
            begin => begin as u32,
        };
        self.sets[number].others = begin << NR_BITS | nr;
        nr as usize
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

    /// Makes room for the others of a set; returns where they begin, plus 1.
    #[cold]
    fn allocate(&mut self) -> u32 {
        let begin = self.others.len() + 1;
        assert!(
            begin < 1 << (u32::BITS - NR_BITS),
            "a cache has fewer lines"
        );
        self.others.resize(begin - 1 + self.ways as usize - 1, NONE);
        begin as u32
    }

    pub fn memory_bytes(&self) -> usize {
        self.sets.capacity() * size_of::<Set>() + self.others.capacity() * size_of::<LineCopy>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One set as a list, the most recently used first.
    struct Listed {
        copies: Vec<LineCopy>,
        ways: u32,
    }

    impl Listed {
        /// Whether the line is there, and of this version; then it is the first.
        fn touch(&mut self, copy: LineCopy) -> (bool, bool) {
            let place = self.copies.iter().position(|other| other.line == copy.line);
            let before = place.map(|place| (place, self.copies.remove(place)));
            let ways = self.ways;
            let is_there =
                |place: usize, kept: &LineCopy| place as u32 + copy.seen - kept.seen < ways;
            let found = before.filter(|(place, kept)| is_there(*place, kept));
            self.copies.insert(0, copy);
            let mut places = 0..;
            self.copies
                .retain(|kept| is_there(places.next().unwrap(), kept));
            let valid = found.is_some_and(|(_, kept)| kept.version == copy.version);
            (found.is_some(), valid)
        }
    }

    proptest::proptest! {
        /// Lines in any order while foreign ones come in.
        #[test]
        fn a_set_agrees_with_a_list(
            ways in 1..20u32,
            steps in proptest::collection::vec((0..24u32, 0..3u32, 0..4u64), 1..300),
        ) {
            let mut sets = Sets::new(1, ways);
            let mut listed = Listed { copies: Vec::new(), ways };
            for (line, version, foreign) in steps {
                // Few of them, so that copies live for some steps.
                sets.stream(u64::from(foreign == 0), 1_000_000);
                let copy = LineCopy { line, version, seen: sets.came(0) };
                let (way, valid) = sets.find(line, version);
                proptest::prop_assert_eq!((way.found(), valid), listed.touch(copy));
                proptest::prop_assert_eq!(sets.peek(line, version), valid);
                sets.put_first(way, line, version);
            }
        }
    }

    #[test]
    fn sets_do_not_share_their_ways() {
        let mut sets = Sets::new(4, 2);
        for line in (0..8).chain([8]) {
            let (way, _) = sets.find(line, 1);
            assert!(!way.found());
            sets.put_first(way, line, 1);
        }
        let gone: Vec<u32> = (0..9).filter(|&line| !sets.peek(line, 1)).collect();
        assert_eq!(gone, [0]);
    }
}
