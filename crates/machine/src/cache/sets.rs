//! The sets of one cache: LRU stacks of line copies, allocated when first touched, aged lazily.

use super::directory::{FREE, Written};

/// A copy of a line.
#[derive(Clone, Copy, Debug)]
struct LineCopy {
    line: Written,
    /// How many foreign lines its set had taken in when it was last used.
    seen: u32,
}

/// The state of a copy of a known line.
#[derive(Clone, Copy, Debug)]
struct Copied {
    /// The line's version when it was read or written here.
    version: u32,
    /// As [`LineCopy::seen`].
    seen: u32,
}

/// The mark of a place without a copy.
const NONE: LineCopy = LineCopy {
    line: Written::new(FREE, 0),
    seen: 0,
};

/// A set. The copy used last is here, where most looks end; the others lie apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set {
    first: LineCopy,
    others: Block,
}

const EMPTY: Set = Set {
    first: NONE,
    others: Block::EMPTY,
};

/// Where a set lies among the sets of its cache. Lines that are a page apart, as task structures are, must not meet in
/// the host's cache as they do in the modelled one.
#[inline(always)]
fn place(set: u32) -> usize {
    (set ^ set >> 5) as usize
}

/// One cache.
///
/// Of a set only the modelled lines are kept, the most recently used first; foreign lines fill the rest.
/// The depth of a copy in the LRU stack is the number of copies before it and of foreign lines that came
/// since its last use. A copy whose depth reaches the number of ways is gone, and so are all behind it; it
/// stays where it is until another takes its place.
/// An application that streams through the cache puts its lines into the sets in turn, so the number
/// that came into a set follows from the number that came into the cache: nothing is to be done when they
/// come.
///
/// Looking at hundreds of candidates is what a simulation of one long run queue does most, so what every such look
/// does is inlined by order, and what few do is not: a tenth fewer instructions (`tools/instructions`).
#[derive(Clone, Debug, Default)]
pub(super) struct Sets {
    /// Empty until the first touch.
    sets: Vec<Set>,
    others: Others,
    /// Foreign lines that came into each set, modulo 2^32.
    came: u32,
    /// Sets into which one more came: those before this one.
    next: u32,
    /// Rest of a line, in lines × ns per ms.
    foreign_rest: u64,
}

/// The data that the sets of all caches share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Number of sets minus 1; a power of two minus 1.
    mask: u32,
    ways: u32,
    /// Binary logarithm of the number of sets.
    shift: u32,
    block: BlockShape,
}

impl Shape {
    pub fn new(sets: u32, ways: u32) -> Self {
        Shape {
            mask: sets - 1,
            ways,
            shift: sets.trailing_zeros(),
            block: BlockShape::new(ways as usize - 1),
        }
    }

    /// Returns the set in which `line` has its place.
    #[inline(always)]
    pub fn set_of(&self, line: Written) -> SetIx {
        let number = line.number() & self.mask;
        SetIx {
            number,
            place: place(number),
        }
    }
}

/// A set, the same one in every cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetIx {
    number: u32,
    place: usize,
}

/// The copy that a set used last.
pub(super) struct First<'a> {
    copy: &'a mut LineCopy,
    /// Foreign lines that came into the set.
    came: u32,
}

impl First<'_> {
    /// The line is written, and this copy with it. Tells whether there was one, of whatever version.
    #[inline(always)]
    pub fn renew(self, shape: &Shape, line: Written) -> bool {
        let age = self.came.wrapping_sub(self.copy.seen);
        *self.copy = LineCopy {
            line,
            seen: self.came,
        };
        age < shape.ways
    }
}

impl Sets {
    /// An application runs for `user_ns` and brings in `lines_per_ms`.
    #[inline]
    pub fn stream(&mut self, shape: &Shape, user_ns: u64, lines_per_ms: u64) {
        let lines = self.foreign_rest + user_ns * lines_per_ms;
        self.foreign_rest = lines % 1_000_000;
        // Set 0 takes the first, set 1 the second, and so on.
        let next = u64::from(self.next) + lines / 1_000_000;
        self.next = next as u32 & shape.mask;
        self.came = self
            .came
            .wrapping_add(next.wrapping_shr(shape.shift) as u32);
    }

    /// Uses the copy that the set `at` used last if it is a copy of `line`. Returns whether it is.
    #[inline(always)]
    pub fn use_first(&mut self, shape: &Shape, at: SetIx, line: Written) -> bool {
        let came = self.came(at.number);
        let Some(Set { first, .. }) = self.sets.get_mut(at.place) else {
            return false;
        };
        let is_there = first.line == line && came.wrapping_sub(first.seen) < shape.ways;
        if is_there {
            first.seen = came;
        }
        is_there
    }

    /// Returns whether the copy that the set `at` used last is one of `line`.
    #[inline(always)]
    pub fn is_first(&self, shape: &Shape, at: SetIx, line: Written) -> bool {
        let Some(Set { first, .. }) = self.sets.get(at.place) else {
            return false;
        };
        first.line == line && self.came(at.number).wrapping_sub(first.seen) < shape.ways
    }

    /// Brings a copy of `line` to the front, from wherever there was one of any version, or from outside. Returns the
    /// version of the copy that was there.
    #[inline(always)]
    pub fn bring(&mut self, shape: &Shape, line: Written) -> Option<u32> {
        let number = line.number() & shape.mask;
        let came = self.came(number);
        let Some(set) = self.sets.get_mut(place(number)) else {
            self.begin(shape, line);
            return None;
        };
        let before = set.first;
        // Counts modulo 2^32: a copy that saw so many foreign lines go by would be found again. An application that
        // brings a line into each set every microsecond needs an hour for that.
        let age = came.wrapping_sub(before.seen);
        set.first = LineCopy { line, seen: came };
        if before.line.number() == line.number() {
            return (age < shape.ways).then_some(before.line.version());
        }
        // If the one before is gone now that a line comes before it, so are all others: most often, where there are
        // more caches than their CPUs can fill.
        if age.saturating_add(1) >= shape.ways {
            self.others.free(&mut set.others);
            return None;
        }
        if self.others.have(&shape.block, set.others, line.number()) {
            return self.bring_back(shape, line, before);
        }
        // An empty set needs no room.
        if before.line.number() != FREE {
            self.others.push(&shape.block, &mut set.others, before);
        }
        None
    }

    /// As [`Sets::bring`], of a line that one of the others is a copy of, there or gone. Its new copy is the first one
    /// already, in place of `before`.
    #[inline(never)]
    fn bring_back(&mut self, shape: &Shape, line: Written, before: LineCopy) -> Option<u32> {
        let number = line.number() & shape.mask;
        let came = self.came(number);
        let block = self.sets[place(number)].others;
        let (at, copied, newer) = self.others.find(&shape.block, block, line.number());
        self.others.replace(&shape.block, block, at, before);
        let depth = (newer + 1).saturating_add(came.wrapping_sub(copied.seen));
        (depth < shape.ways).then_some(copied.version)
    }

    /// Returns the copy that the set `at` used last, there or gone, if it is one of `line` of any version.
    #[inline(always)]
    pub fn first_of(&mut self, at: SetIx, line: Written) -> Option<First<'_>> {
        let came = self.came(at.number);
        let first = &mut self.sets.get_mut(at.place)?.first;
        (first.line.number() == line.number()).then_some(First { copy: first, came })
    }

    /// Notes that the copy that the set `at` used last, one of this line, is as it was written now.
    #[inline(always)]
    pub fn set_version(&mut self, at: SetIx, line: Written) {
        let first = &mut self.sets[at.place].first;
        debug_assert_eq!(first.line.number(), line.number());
        first.line = line;
    }

    /// The first copy of all.
    #[cold]
    fn begin(&mut self, shape: &Shape, line: Written) {
        self.sets = vec![EMPTY; shape.mask as usize + 1];
        self.others.allocate(&shape.block);
        let number = line.number() & shape.mask;
        let seen = self.came(number);
        self.sets[place(number)].first = LineCopy { line, seen };
    }

    /// Returns the set of `line`, if a line has ever come into this cache.
    pub fn set_of(&self, shape: &Shape, line: u32) -> Option<&Set> {
        self.sets.get(place(line & shape.mask))
    }

    /// Returns whether there is a copy of `line`.
    #[inline(never)]
    pub fn peek(&self, shape: &Shape, line: Written) -> bool {
        let number = line.number() & shape.mask;
        let Some(set) = self.sets.get(place(number)) else {
            return false;
        };
        let (version, seen, before) = if set.first.line.number() == line.number() {
            (set.first.line.version(), set.first.seen, 0)
        } else if self.others.have(&shape.block, set.others, line.number()) {
            let (_, copied, before) = self.others.find(&shape.block, set.others, line.number());
            (copied.version, copied.seen, before + 1)
        } else {
            return false;
        };
        let age = self.came(number).wrapping_sub(seen);
        version == line.version() && before.saturating_add(age) < shape.ways
    }

    /// Returns how many foreign lines came into a set.
    #[inline]
    fn came(&self, set: u32) -> u32 {
        self.came.wrapping_add(u32::from(set < self.next))
    }

    pub fn memory_bytes(&self) -> usize {
        self.sets.capacity() * size_of::<Set>() + self.others.memory_bytes()
    }
}

/// Where the copies of a set besides the first one are: where their block in [`Others`] begins, and the place in it
/// of the copy used last.
#[derive(Clone, Copy, Debug)]
struct Block(u32);

impl Block {
    /// Bits of the place: a set has no more than 64 ways.
    const PLACE_BITS: u32 = 6;

    /// The block in which no line is.
    const EMPTY: Block = Block(0);

    #[inline]
    fn begin(self) -> usize {
        (self.0 >> Self::PLACE_BITS) as usize
    }

    #[inline]
    fn first(self) -> usize {
        (self.0 % (1 << Self::PLACE_BITS)) as usize
    }
}

/// The copies of sets besides the first ones: a block for each set that has more than one.
///
/// A block is a ring of places: from the copy used last on to the copies used before it. It holds their lines, padded
/// so that the host can compare [`LANES`] of them at once, and behind them the other state of the copies.
#[derive(Clone, Debug, Default)]
struct Others {
    /// All blocks, [`Block::EMPTY`] first; none as long as the cache is empty.
    blocks: Vec<[u32; LANES]>,
    /// Blocks that no set has now.
    spare: Vec<Block>,
}

/// The data that the blocks of all caches share.
#[derive(Clone, Copy, Debug)]
struct BlockShape {
    /// Places of a block.
    nr: usize,
    /// Units of a block that hold lines, and all of them.
    line_units: usize,
    units: usize,
    /// Where the rest begins in a block, in words.
    rest: usize,
}

/// Lines that the host compares at once, and words of a unit.
const LANES: usize = 4;

impl BlockShape {
    fn new(nr: usize) -> Self {
        let line_units = nr.div_ceil(LANES);
        BlockShape {
            nr,
            line_units,
            units: line_units + (2 * nr).div_ceil(LANES),
            rest: line_units * LANES,
        }
    }
}

impl Others {
    /// Returns a block without copies.
    #[inline(never)]
    fn allocate(&mut self, shape: &BlockShape) -> Block {
        if let Some(block) = self.spare.pop() {
            self.blocks[block.begin()..][..shape.line_units].fill([FREE; LANES]);
            return block;
        }
        let begin = self.blocks.len();
        assert!(
            begin < 1 << (u32::BITS - Block::PLACE_BITS),
            "a cache has fewer lines"
        );
        self.blocks.resize(begin + shape.units, [FREE; LANES]);
        Block((begin as u32) << Block::PLACE_BITS)
    }

    /// A set has no copies besides the first one any more.
    #[inline(always)]
    fn free(&mut self, block: &mut Block) {
        if block.begin() != 0 {
            self.spare.push(std::mem::replace(block, Block::EMPTY));
        }
    }

    /// Returns whether there is a copy of `line`, gone or not.
    #[inline(always)]
    fn have(&self, shape: &BlockShape, block: Block, line: u32) -> bool {
        let units = &self.blocks[block.begin()..][..shape.line_units];
        // Without a way out within a unit the compiler compares its lines at once.
        let is_in = |unit: &[u32; LANES]| {
            unit.iter()
                .fold(false, |found, &other| found | (other == line))
        };
        units.iter().any(is_in)
    }

    /// Returns the place of the copy of `line`, which must be there or gone, what else is known of it, and how many
    /// of the others were used after it.
    #[inline(always)]
    fn find(&self, shape: &BlockShape, block: Block, line: u32) -> (usize, Copied, u32) {
        let words = self.blocks[block.begin()..][..shape.units].as_flattened();
        let place = words.iter().take_while(|&&other| other != line).count();
        let rest = shape.rest + 2 * place;
        let copied = Copied {
            version: words[rest],
            seen: words[rest + 1],
        };
        let first = block.first();
        let before = if place < first {
            place + shape.nr
        } else {
            place
        } - first;
        (place, copied, before as u32)
    }

    /// Puts a copy first, in the place of the one used longest ago.
    #[inline(always)]
    fn push(&mut self, shape: &BlockShape, block: &mut Block, copy: LineCopy) {
        if block.begin() == 0 {
            *block = self.allocate(shape);
        }
        // One place back in the ring.
        block.0 = match block.first() {
            0 => block.0 + shape.nr as u32 - 1,
            _ => block.0 - 1,
        };
        self.put(shape, *block, block.first(), copy);
    }

    /// Puts a copy first, in the place of the one in `place`.
    #[inline(always)]
    fn replace(&mut self, shape: &BlockShape, block: Block, place: usize, mut copy: LineCopy) {
        // All used after it go one place further.
        let mut at = block.first();
        while at != place {
            copy = self.put(shape, block, at, copy);
            at = if at + 1 == shape.nr { 0 } else { at + 1 };
        }
        self.put(shape, block, at, copy);
    }

    /// Puts a copy in a place; returns what was there.
    #[inline(always)]
    fn put(&mut self, shape: &BlockShape, block: Block, place: usize, copy: LineCopy) -> LineCopy {
        let words = self.blocks[block.begin()..][..shape.units].as_flattened_mut();
        let rest = shape.rest + 2 * place;
        let number = std::mem::replace(&mut words[place], copy.line.number());
        let version = std::mem::replace(&mut words[rest], copy.line.version());
        LineCopy {
            line: Written::new(number, version),
            seen: std::mem::replace(&mut words[rest + 1], copy.seen),
        }
    }

    fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<[u32; LANES]>()
            + self.spare.capacity() * size_of::<Block>()
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
        /// Returns whether the line is there, and of this version; then it is the first.
        fn touch(&mut self, copy: LineCopy) -> (bool, bool) {
            let place = self
                .copies
                .iter()
                .position(|other| other.line.number() == copy.line.number());
            let before = place.map(|place| (place, self.copies.remove(place)));
            let ways = self.ways;
            let is_there =
                |place: usize, kept: &LineCopy| place as u32 + copy.seen - kept.seen < ways;
            let found = before.filter(|(place, kept)| is_there(*place, kept));
            self.copies.insert(0, copy);
            let mut places = 0..;
            self.copies
                .retain(|kept| is_there(places.next().unwrap(), kept));
            let valid = found.is_some_and(|(_, kept)| kept.line == copy.line);
            (found.is_some(), valid)
        }
    }

    proptest::proptest! {
        /// Lines in any order while foreign ones come in.
        #[test]
        fn a_set_agrees_with_a_list(
            // Few ways often, and as many as there can be.
            ways in proptest::prop_oneof![1..20u32, 20..=64u32],
            steps in proptest::collection::vec((0..72u32, 0..3u32, 0..40u64), 1..600),
        ) {
            let shape = Shape::new(1, ways);
            let mut sets = Sets::default();
            let mut listed = Listed { copies: Vec::new(), ways };
            for (line, version, foreign) in steps {
                // As many lines as fill the set, and some more.
                let line = line % (ways + 8);
                // Few of them, so that copies live for some steps.
                sets.stream(&shape, u64::from(foreign == 0), 1_000_000);
                let line = Written::new(line, version);
                let copy = LineCopy { line, seen: sets.came(0) };
                let (found, valid) = listed.touch(copy);
                proptest::prop_assert_eq!(sets.peek(&shape, line), valid);
                let is_first = sets.is_first(&shape, shape.set_of(line), line);
                proptest::prop_assert!(valid || !is_first);
                if foreign % 2 == 0 && sets.use_first(&shape, shape.set_of(line), line) {
                    proptest::prop_assert!(is_first);
                    continue;
                }
                proptest::prop_assert!(!is_first || foreign % 2 == 1);
                let copied = sets.bring(&shape, line);
                proptest::prop_assert_eq!((copied.is_some(), copied == Some(version)), (found, valid));
            }
        }
    }

    #[test]
    fn copies_that_are_gone_leave_their_room_to_other_sets() {
        let shape = Shape::new(4, 8);
        let mut sets = Sets::default();
        let bring = |sets: &mut Sets, lines: &[u32]| {
            for &line in lines {
                assert_eq!(sets.bring(&shape, Written::new(line, 1)), None);
            }
        };
        // Two lines in each of the sets 0 and 1; then foreign lines fill every set.
        bring(&mut sets, &[0, 4, 1, 5]);
        let room = sets.others.blocks.len();
        sets.stream(&shape, 4 * 8, 1_000_000);
        bring(&mut sets, &[8, 9]);
        bring(&mut sets, &[2, 6, 3, 7]);
        assert_eq!(sets.others.blocks.len(), room);
        let there: Vec<u32> = (0..10)
            .filter(|&line| sets.peek(&shape, Written::new(line, 1)))
            .collect();
        assert_eq!(there, [2, 3, 6, 7, 8, 9]);
    }

    #[test]
    fn sets_do_not_share_their_ways() {
        let shape = Shape::new(4, 2);
        let mut sets = Sets::default();
        for line in (0..8).chain([8]) {
            assert_eq!(sets.bring(&shape, Written::new(line, 1)), None);
        }
        let gone: Vec<u32> = (0..9)
            .filter(|&line| !sets.peek(&shape, Written::new(line, 1)))
            .collect();
        assert_eq!(gone, [0]);
    }
}
