//! Remembers of each byte of a policy's memory the last accesses, and when they happened.
//!
//! The rules are FastTrack's (Flanagan and Freund, 2009), with the kernel's two kinds of accesses: marked ones race with
//! plain ones alone. Of a plain write of an aligned word a marked read gets all or nothing, as KCSAN assumes by default
//! (CONFIG_KCSAN_ASSUME_PLAIN_WRITES_ATOMIC), so these two do not race, either. Of accesses that follow each other only the last is kept, as who races with an earlier one races
//! with it, too.

use std::collections::BTreeMap;

use schedlab_engine::policy::OpKind;

use super::clock::Clock;

/// One access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// The moment of its thread; 0: there was none.
    pub(super) moment: u32,
    /// Where in the policy's code it is.
    pub(super) code: u32,
    pub(super) thread: u16,
    /// The CPU whose run queue's lock the kernel holds around the op, or [`Access::NO_RQ`].
    pub(super) rq: u16,
    pub(super) op: OpKind,
    pub(super) write: bool,
    /// One instruction does it: no part of a word is written before another.
    pub(super) whole: bool,
}

impl Access {
    pub(super) const NO_RQ: u16 = u16::MAX;

    const NONE: Access = Access {
        moment: 0,
        code: 0,
        thread: 0,
        rq: Access::NO_RQ,
        op: OpKind::Init,
        write: false,
        whole: false,
    };

    fn is_there(&self) -> bool {
        self.moment > 0
    }

    /// Whether it comes before what a thread does that knows so much.
    fn is_known(&self, clock: &Clock) -> bool {
        clock.get(self.thread) >= self.moment
    }

    /// Whether it cannot be at the same time as `other`, of a thread that knows so much.
    fn excludes(&self, other: &Access, clock: &Clock) -> bool {
        !self.is_there() || self.is_known(clock) || self.rq == other.rq && self.rq != Access::NO_RQ
    }
}

/// The rare part.
#[derive(Clone, Debug, Default)]
struct More {
    /// Plain reads of several threads that do not know of each other.
    reads: Vec<Access>,
    marked_reads: Vec<Access>,
    marked_writes: Vec<Access>,
}

/// Bytes that are always accessed together.
#[derive(Clone, Debug)]
struct Cell {
    write: Access,
    read: Access,
    more: Option<Box<More>>,
}

impl Default for Cell {
    fn default() -> Cell {
        Cell {
            write: Access::NONE,
            read: Access::NONE,
            more: None,
        }
    }
}

/// Adds an access to the others of its kind; drops those that its thread knows of.
fn add(list: &mut Vec<Access>, now: Access, clock: &Clock) {
    list.retain(|earlier| !earlier.is_known(clock));
    list.push(now);
}

impl Cell {
    /// Notes an access. Answers with one that it races with.
    fn access(&mut self, now: Access, marked: bool, clock: &Clock) -> Option<Access> {
        let last = if now.write { &self.write } else { &self.read };
        let again = !marked && last.thread == now.thread && last.moment == now.moment;
        if again && last.rq == now.rq {
            return None;
        }
        let found = self.conflict(&now, marked, clock);
        match (marked, now.write) {
            (false, true) => {
                *self = Cell {
                    write: now,
                    ..Cell::default()
                }
            }
            (false, false) => self.note_read(now, clock),
            (true, true) => add(&mut self.more().marked_writes, now, clock),
            (true, false) => add(&mut self.more().marked_reads, now, clock),
        }
        found
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    fn note_read(&mut self, now: Access, clock: &Clock) {
        if !self.read.is_there() || self.read.is_known(clock) {
            self.read = now;
            if let Some(more) = &mut self.more {
                more.reads.retain(|earlier| !earlier.is_known(clock));
            }
        } else {
            add(&mut self.more().reads, now, clock);
        }
    }

    /// Of those that an access races with, one.
    fn conflict(&self, now: &Access, marked: bool, clock: &Clock) -> Option<Access> {
        let races = |earlier: &&Access| !earlier.excludes(now, clock);
        let more = self.more.as_deref();
        let all = |of: fn(&More) -> &Vec<Access>| more.map_or(&[][..], |more| of(more).as_slice());
        let plain_reads = || {
            let several = all(|more| &more.reads).iter();
            several.chain([&self.read])
        };
        // A marked read gets a whole word, old or new, if it is written as a whole.
        let is_read_whole = marked && !now.write && self.write.whole;
        if let Some(write) = Some(&self.write).filter(races)
            && !is_read_whole
        {
            return Some(*write);
        }
        if now.write
            && let Some(read) = plain_reads().find(races)
        {
            return Some(*read);
        }
        if !marked {
            let writes = all(|more| &more.marked_writes).iter();
            let reads = all(|more| &more.marked_reads).iter();
            let reads = reads.filter(|_| now.write && !now.whole);
            return writes.chain(reads).find(races).copied();
        }
        None
    }
}

/// The bytes of a word.
#[derive(Clone, Debug, Default)]
enum Word {
    #[default]
    Untouched,
    /// All accesses were of these bytes.
    One { first: u8, end: u8, cell: Cell },
    /// By byte.
    Bytes(Box<[Cell; 8]>),
}

impl Word {
    fn access(
        &mut self,
        first: u8,
        end: u8,
        now: Access,
        marked: bool,
        clock: &Clock,
    ) -> Option<Access> {
        match self {
            Word::Untouched => {
                let mut cell = Cell::default();
                cell.access(now, marked, clock);
                *self = Word::One { first, end, cell };
                None
            }
            Word::One {
                first: known,
                end: known_end,
                cell,
            } => {
                if (first, end) == (*known, *known_end) {
                    return cell.access(now, marked, clock);
                }
                let mut bytes: Box<[Cell; 8]> = Box::default();
                bytes[usize::from(*known)..usize::from(*known_end)].fill(cell.clone());
                *self = Word::Bytes(bytes);
                self.access(first, end, now, marked, clock)
            }
            Word::Bytes(bytes) => {
                let mut found = None;
                for cell in &mut bytes[usize::from(first)..usize::from(end)] {
                    found = cell.access(now, marked, clock).or(found);
                }
                found
            }
        }
    }
}

/// Words in a page.
const PAGE_WORDS: usize = 64;
const PAGE_BYTES: usize = PAGE_WORDS * 8;

/// The history of a policy's memory. Untouched pages take none.
#[derive(Default)]
pub(super) struct Shadow {
    /// By number of the page; `None`: it is not looked at.
    index: BTreeMap<usize, Option<usize>>,

    #[expect(
        clippy::vec_box,
        reason = "a vector that grows copies pointers instead of pages"
    )]
    pages: Vec<Box<[Word; PAGE_WORDS]>>,
    /// The page that was looked at last, and where it is.
    last: Option<(usize, Option<usize>)>,
}

impl Shadow {
    fn page(&mut self, number: usize, watched: impl FnOnce() -> bool) -> Option<usize> {
        if let Some((known, at)) = self.last
            && known == number
        {
            return at;
        }
        let at = match self.index.get(&number) {
            Some(at) => *at,
            None => {
                let at = watched().then(|| {
                    self.pages
                        .push(Box::new(std::array::from_fn(|_| Word::Untouched)));
                    self.pages.len() - 1
                });
                self.index.insert(number, at);
                at
            }
        };
        self.last = Some((number, at));
        at
    }

    /// Notes an access of memory; `watched`: whether a place is the policy's own. Returns an access that it races
    /// with, and where.
    pub(super) fn access(
        &mut self,
        place: usize,
        bytes: usize,
        now: Access,
        marked: bool,
        clock: &Clock,
        watched: impl Fn(usize) -> bool,
    ) -> Option<(usize, Access)> {
        let end = place.saturating_add(bytes);
        let (mut at, mut found) = (place, None);
        while at < end {
            let next = ((at | 7) + 1).min(end);
            if let Some(page) = self.page(at / PAGE_BYTES, || watched(at)) {
                let word = &mut self.pages[page][at / 8 % PAGE_WORDS];
                let first = (at % 8) as u8;
                let last = first + (next - at) as u8;
                let race = word.access(first, last, now, marked, clock);
                found = found.or(race.map(|other| (at, other)));
            }
            at = next;
        }
        found
    }

    /// Forgets the history of memory that gets a new owner.
    pub(super) fn forget(&mut self, place: usize, bytes: usize) {
        let words = place / 8..(place + bytes).div_ceil(8);
        for word in words {
            if let Some(Some(page)) = self.index.get(&(word / PAGE_WORDS)) {
                self.pages[*page][word % PAGE_WORDS] = Word::Untouched;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads, each of which knows of itself alone.
    fn clocks() -> [Clock; 2] {
        [0, 1].map(|thread| {
            let mut clock = Clock::default();
            clock.tick(thread);
            clock
        })
    }

    fn access(thread: u16, write: bool) -> Access {
        Access {
            moment: 1,
            code: u32::from(thread),
            thread,
            rq: Access::NO_RQ,
            op: OpKind::Enqueue,
            write,
            whole: true,
        }
    }

    /// Whether the second of two accesses, each (write, marked), races with the first.
    fn races(first: (bool, bool), second: (bool, bool)) -> bool {
        let clocks = clocks();
        let mut shadow = Shadow::default();
        let mut one = |thread: u16, (write, marked): (bool, bool)| {
            let clock = &clocks[usize::from(thread)];
            shadow.access(64, 4, access(thread, write), marked, clock, |_| true)
        };
        assert!(one(0, first).is_none());
        one(1, second).is_some()
    }

    #[test]
    fn one_of_two_that_race_is_plain_and_one_writes() {
        for first_writes in [false, true] {
            for second_writes in [false, true] {
                for first_marked in [false, true] {
                    for second_marked in [false, true] {
                        let race =
                            races((first_writes, first_marked), (second_writes, second_marked));
                        let whole_read = (first_marked && !first_writes && second_writes)
                            || (second_marked && !second_writes && first_writes);
                        let expected = (first_writes || second_writes)
                            && !(first_marked && second_marked)
                            && !whole_read;
                        assert_eq!(race, expected);
                    }
                }
            }
        }
    }

    #[test]
    fn a_marked_read_races_with_a_write_in_parts() {
        let clocks = clocks();
        let mut shadow = Shadow::default();
        let parts = Access {
            whole: false,
            ..access(0, true)
        };
        let copied = shadow.access(64, 16, parts, false, &clocks[0], |_| true);
        assert!(copied.is_none());
        let read = access(1, false);
        let found = shadow.access(72, 8, read, true, &clocks[1], |_| true);
        assert_eq!(found.unwrap().1.thread, 0);
    }

    #[test]
    fn bytes_of_a_word_are_told_apart() {
        let clocks = clocks();
        let mut shadow = Shadow::default();
        let mut one = |place, bytes, thread: u16, write| {
            let clock = &clocks[usize::from(thread)];
            shadow.access(place, bytes, access(thread, write), false, clock, |_| true)
        };
        assert!(one(64, 4, 0, true).is_none());
        assert!(one(68, 4, 1, true).is_none());
        assert!(one(68, 1, 1, true).is_none());
        assert_eq!(
            one(66, 4, 0, false).unwrap().0,
            66,
            "its last byte is the other's"
        );
        assert!(one(71, 1, 0, false).is_some());
        // Over the end of a word and of a page.
        assert!(one(508, 8, 0, true).is_none());
        assert_eq!(one(512, 1, 1, false).unwrap().0, 512);
    }

    #[test]
    fn a_common_lock_of_a_run_queue_excludes() {
        let clocks = clocks();
        let mut shadow = Shadow::default();
        let mut one = |thread: u16, rq| {
            let now = Access {
                rq,
                ..access(thread, true)
            };
            let clock = &clocks[usize::from(thread)];
            shadow.access(64, 8, now, false, clock, |_| true)
        };
        assert!(one(0, 5).is_none());
        assert!(one(1, 5).is_none());
        assert!(one(0, 6).is_some());
    }

    #[test]
    fn several_readers_are_all_remembered_until_a_write_that_knows_them() {
        let [mut first, second] = clocks();
        let mut shadow = Shadow::default();
        let mut third = Clock::default();
        third.tick(2);
        for (thread, clock) in [(0, &first), (1, &second), (2, &third)] {
            let read = access(thread, false);
            assert!(shadow.access(64, 8, read, false, clock, |_| true).is_none());
        }
        // It knows of the second alone.
        first.join(&second);
        let write = access(0, true);
        let found = shadow.access(64, 8, write, false, &first, |_| true);
        assert_eq!(found.unwrap().1.thread, 2);
        third.join(&first);
        let read = access(2, false);
        assert!(
            shadow
                .access(64, 8, read, false, &third, |_| true)
                .is_none()
        );
    }

    #[test]
    fn what_is_not_the_policys_is_not_looked_at_and_what_is_given_anew_is_forgotten() {
        let clocks = clocks();
        let mut shadow = Shadow::default();
        for thread in [0, 1] {
            let clock = &clocks[usize::from(thread)];
            let write = access(thread, true);
            assert!(
                shadow
                    .access(0, 8, write, false, clock, |_| false)
                    .is_none()
            );
            assert!(
                shadow
                    .access(4096, 8, write, false, clock, |_| true)
                    .is_none()
            );
            shadow.forget(4096, 8);
        }
        assert_eq!(shadow.pages.len(), 1);
    }
}
