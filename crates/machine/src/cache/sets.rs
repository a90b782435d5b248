//! The sets of one cache: LRU stacks of line copies, allocated when first touched, aged lazily.

/// A copy that is not there.
const FOREIGN: u64 = 0;

/// Where a line is in its set, or would be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// First copy of the set in [`Sets::rows`].
    row: usize,
    /// Which of the ways; the last one where the line is not there.
    way: usize,
}

/// One cache.
///
/// A set is a row of `1 + ways` words: how many foreign lines it has taken in, then its copies
/// (`line << 32 | version`), the most recently used first. An application that streams through the
/// cache puts its lines into the sets in turn, so the number that came into a set follows from the
/// number that came into the cache, and a set can catch up when somebody looks at it.
#[derive(Clone, Debug)]
pub(super) struct Sets {
    /// Number of sets minus 1; a power of two minus 1.
    mask: u32,
    ways: u32,
    /// Binary logarithm of the number of sets.
    shift: u32,
    /// Index in `rows` of the first copy of each set; 0 = not allocated. Empty until the first touch.
    places: Vec<u32>,
    rows: Vec<u64>,
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
            rows: Vec::new(),
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

    /// Whether the most recently used copy of a set is this version of `line`. If so nothing is left
    /// to do for an access: it is first already.
    #[inline]
    pub fn is_first(&mut self, line: u32, version: u32) -> bool {
        let row = self.row(line);
        self.rows[row] == copy(line, version)
    }

    /// Looks for a copy of `line`: where it is, and whether it has this version. A line that is not
    /// there is found in the least recently used way.
    #[inline]
    pub fn find(&mut self, line: u32, version: u32) -> (Way, bool) {
        let row = self.row(line);
        let copies = &self.rows[row..row + self.ways as usize];
        let is_it = |&other: &u64| (other >> 32) as u32 == line;
        match copies.iter().position(is_it) {
            Some(way) => (Way { row, way }, copies[way] == copy(line, version)),
            None => {
                let way = copies.len() - 1;
                (Way { row, way }, false)
            }
        }
    }

    /// Puts a copy of `line` first, in the place of what `way` holds. Nothing else may have happened
    /// to this cache since `way` was found.
    #[inline]
    pub fn put_first(&mut self, Way { row, way }: Way, line: u32, version: u32) {
        if way > 0 {
            self.rows.copy_within(row..row + way, row + 1);
        }
        self.rows[row] = copy(line, version);
    }

    /// Whether there is a copy of `line` of this version; changes nothing that matters.
    pub fn peek(&mut self, line: u32, version: u32) -> bool {
        self.find(line, version).1
    }

    /// Index of the first copy in the set of `line`, foreign lines accounted for.
    #[inline]
    fn row(&mut self, line: u32) -> usize {
        let set = line & self.mask;
        let row = match self.places.get(set as usize) {
            Some(&row @ 1..) => row as usize,
            _ => self.allocate(set),
        };
        // Set 0 takes the first foreign line, set 1 the second, and so on.
        let came = (self.foreign + u64::from(self.mask ^ set)) >> self.shift;
        if came != self.rows[row - 1] {
            self.catch_up(row - 1, came);
        }
        row
    }

    /// Puts the foreign lines that came into a set since it was last looked at first.
    fn catch_up(&mut self, start: usize, came: u64) {
        let (seen, row) = self.rows[start..=start + self.ways as usize].split_at_mut(1);
        let new = (came - seen[0]).min(row.len() as u64) as usize;
        seen[0] = came;
        row.copy_within(..row.len() - new, new);
        row[..new].fill(FOREIGN);
    }

    #[cold]
    fn allocate(&mut self, set: u32) -> usize {
        if self.places.is_empty() {
            self.places = vec![0; self.mask as usize + 1];
        }
        let row = self.rows.len() + 1;
        self.places[set as usize] = u32::try_from(row).expect("a cache has fewer than 2^32 words");
        // An untouched set has nothing to lose to foreign lines: they find it empty.
        self.rows.resize(row + self.ways as usize, FOREIGN);
        row
    }

    pub fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<u32>() + self.rows.capacity() * size_of::<u64>()
    }
}

#[inline]
fn copy(line: u32, version: u32) -> u64 {
    u64::from(line) << 32 | u64::from(version)
}
