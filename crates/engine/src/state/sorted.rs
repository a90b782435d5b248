//! The tasks of a queue in the order of their vtimes.
//!
//! They lie in blocks of a few cache lines each, as in the leaves of a B-tree; of each block the least vtime is kept
//! in one array. So neither a search nor an insertion looks at other tasks, and the first task is taken off by a
//! count. A removed task leaves room that is used again: once the structure has grown, nothing is allocated.

use std::cell::Cell;

/// The number that no task has.
pub(crate) const NIL: u32 = u32::MAX;

/// Tasks in a block. More make insertions longer, fewer the array of blocks.
const BLOCK: usize = 32;

/// `time_before64()`: vtimes may wrap around.
#[inline]
fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

#[derive(Clone, Copy)]
struct Entry {
    vtime: u64,
    task: u32,
    /// Tells apart whose vtimes are equal: who came later has a greater one (`u32_before()`).
    seq: u32,
}

const NOBODY: Entry = Entry {
    vtime: 0,
    task: NIL,
    seq: 0,
};

impl Entry {
    fn is_before(&self, vtime: u64, seq: u32) -> bool {
        before(self.vtime, vtime)
            || (self.vtime == vtime && (self.seq.wrapping_sub(seq) as i32) < 0)
    }
}

/// Entries `begin..end` are in use, and never none.
struct Block {
    begin: usize,
    end: usize,
    entries: [Entry; BLOCK],
}

impl Block {
    #[inline]
    fn used(&self) -> &[Entry] {
        &self.entries[self.begin..self.end]
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.end - self.begin == BLOCK
    }

    /// Makes `entry` the one at place `at` of those in use. The block is not full.
    #[inline]
    fn insert(&mut self, at: usize, entry: Entry) {
        let at = self.begin + at;
        if self.end < BLOCK {
            self.entries.copy_within(at..self.end, at + 1);
            self.entries[at] = entry;
            self.end += 1;
        } else {
            self.entries.copy_within(self.begin..at, self.begin - 1);
            self.entries[at - 1] = entry;
            self.begin -= 1;
        }
    }
}

/// A block's place in the order. All vtimes in it are at least `least`, all before it at most.
#[derive(Clone, Copy)]
struct Fence {
    least: u64,
    block: u32,
}

/// Where a task is: the place of its block in the order, and its own among those in use there.
type Place = (usize, usize);

/// Tasks in the order of their vtimes, and where these are equal in the order of insertion.
#[derive(Default)]
pub(crate) struct Sorted {
    /// The blocks in order. The first `gone` are no longer in use.
    order: Vec<Fence>,
    gone: usize,
    blocks: Vec<Block>,
    spare: Vec<u32>,
    /// Where a task was found last, for who goes on from it.
    found: Cell<Place>,
}

impl Sorted {
    #[inline]
    fn block(&self, at: usize) -> &Block {
        &self.blocks[self.order[at].block as usize]
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.gone == self.order.len()
    }

    /// The first task, or [`NIL`].
    pub fn first(&self) -> u32 {
        if self.is_empty() {
            return NIL;
        }
        self.block(self.gone).used()[0].task
    }

    /// The last task, or [`NIL`].
    pub fn last(&self) -> u32 {
        if self.is_empty() {
            return NIL;
        }
        let used = self.block(self.order.len() - 1).used();
        used[used.len() - 1].task
    }

    /// Inserts behind the tasks of the same vtime; `seq` is greater than any of theirs. Returns whether it is the
    /// first now.
    #[inline]
    pub fn insert(&mut self, task: u32, vtime: u64, seq: u32) -> bool {
        let entry = Entry { vtime, task, seq };
        if self.is_empty() {
            self.order.clear();
            self.gone = 0;
            self.begin_block(entry);
            return true;
        }
        let at = self.block_of(vtime);
        let block = &mut self.blocks[self.order[at].block as usize];
        if block.is_full() {
            return self.insert_in_full(at, entry);
        }
        let place = block
            .used()
            .partition_point(|other| !before(vtime, other.vtime));
        block.insert(place, entry);
        at == self.gone && place == 0
    }

    /// Where the block is into which this vtime goes: the last one that may begin with it, or the first one.
    #[inline]
    fn block_of(&self, vtime: u64) -> usize {
        let last = self.order.len() - 1;
        // A late arrival is late in most orders.
        if last == self.gone || !before(vtime, self.order[last].least) {
            return last;
        }
        let others = &self.order[self.gone + 1..last];
        self.gone + others.partition_point(|fence| !before(vtime, fence.least))
    }

    /// Inserts an entry that goes into a block that is full.
    #[cold]
    fn insert_in_full(&mut self, at: usize, entry: Entry) -> bool {
        let is_last = at + 1 == self.order.len();
        if is_last && !before(entry.vtime, self.block(at).entries[BLOCK - 1].vtime) {
            self.begin_block(entry);
            return false;
        }
        self.split(at);
        self.insert(entry.task, entry.vtime, entry.seq)
    }

    /// `entry`, which comes last, begins a block of its own.
    #[cold]
    fn begin_block(&mut self, entry: Entry) {
        let fence = Fence {
            least: entry.vtime,
            block: self.new_block(&[entry]),
        };
        self.add_fence(self.order.len(), fence);
    }

    fn add_fence(&mut self, at: usize, fence: Fence) {
        self.order.insert(at, fence);
        // The places of blocks that are gone are given back when they are the most.
        if self.gone > self.order.len() / 2 {
            self.order.drain(..self.gone);
            self.gone = 0;
        }
    }

    fn new_block(&mut self, used: &[Entry]) -> u32 {
        let block = self.spare.pop().unwrap_or_else(|| {
            self.blocks.push(Block {
                begin: 0,
                end: 0,
                entries: [NOBODY; BLOCK],
            });
            self.blocks.len() as u32 - 1
        });
        let new = &mut self.blocks[block as usize];
        new.entries[..used.len()].copy_from_slice(used);
        (new.begin, new.end) = (0, used.len());
        block
    }

    /// Moves the greater half of a full block into one behind it.
    fn split(&mut self, at: usize) {
        let full = &mut self.blocks[self.order[at].block as usize];
        let mut half = [NOBODY; BLOCK / 2];
        half.copy_from_slice(&full.entries[BLOCK / 2..]);
        full.end = BLOCK / 2;
        let fence = Fence {
            least: half[0].vtime,
            block: self.new_block(&half),
        };
        self.add_fence(at + 1, fence);
    }

    /// Takes the first task out. There must be one. Returns the new first task, or [`NIL`].
    #[inline]
    pub fn remove_first(&mut self) -> u32 {
        let id = self.order[self.gone].block;
        let block = &mut self.blocks[id as usize];
        block.begin += 1;
        if let [next, ..] = block.used() {
            return next.task;
        }
        self.spare.push(id);
        self.gone += 1;
        self.first()
    }

    /// Takes a task out that was inserted with these, and is not the first.
    pub fn remove(&mut self, task: u32, vtime: u64, seq: u32) {
        let (at, place) = self.place_of(task, vtime, seq);
        let id = self.order[at].block;
        let block = &mut self.blocks[id as usize];
        let place = block.begin + place;
        block.entries.copy_within(place + 1..block.end, place);
        block.end -= 1;
        if block.begin == block.end {
            self.spare.push(id);
            self.order.remove(at);
        }
    }

    /// The task behind one that was inserted with these, or [`NIL`].
    pub fn next(&self, task: u32, vtime: u64, seq: u32) -> u32 {
        let (at, place) = self.place_of(task, vtime, seq);
        let next = if place + 1 < self.block(at).used().len() {
            (at, place + 1)
        } else if at + 1 < self.order.len() {
            (at + 1, 0)
        } else {
            return NIL;
        };
        self.found.set(next);
        self.block(next.0).used()[next.1].task
    }

    /// The task before one that was inserted with these, or [`NIL`].
    pub fn prev(&self, task: u32, vtime: u64, seq: u32) -> u32 {
        let (at, place) = self.place_of(task, vtime, seq);
        let prev = if place > 0 {
            (at, place - 1)
        } else if at > self.gone {
            (at - 1, self.block(at - 1).used().len() - 1)
        } else {
            return NIL;
        };
        self.found.set(prev);
        self.block(prev.0).used()[prev.1].task
    }

    fn is_at(&self, task: u32, (at, place): Place) -> bool {
        at >= self.gone
            && at < self.order.len()
            && (self.block(at).used().get(place)).is_some_and(|entry| entry.task == task)
    }

    /// Most often the first task is asked for, or the last returned one.
    fn place_of(&self, task: u32, vtime: u64, seq: u32) -> Place {
        let first = (self.gone, 0);
        let known = [first, self.found.get()];
        let known = known.into_iter().find(|&place| self.is_at(task, place));
        known.unwrap_or_else(|| self.search(task, vtime, seq))
    }

    fn search(&self, task: u32, vtime: u64, seq: u32) -> Place {
        let is_at_most = |first: &Entry| first.task == task || first.is_before(vtime, seq);
        let later = &self.order[self.gone + 1..];
        let at = self.gone
            + later
                .partition_point(|fence| is_at_most(&self.blocks[fence.block as usize].used()[0]));
        let used = self.block(at).used();
        let place = (
            at,
            used.partition_point(|entry| entry.is_before(vtime, seq)),
        );
        if self.is_at(task, place) {
            return place;
        }
        // Vtimes that span more than half of their range have no order that a search could follow.
        (self.gone..self.order.len())
            .flat_map(|at| (0..self.block(at).used().len()).map(move |place| (at, place)))
            .find(|&place| self.is_at(task, place))
            .expect("a task is looked for in the queue it is on")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All tasks, walked forwards.
    fn forwards(sorted: &Sorted, model: &[(u64, u32, u32)]) -> Vec<u32> {
        let mut order = Vec::new();
        let mut at = sorted.first();
        while at != NIL {
            order.push(at);
            let &(vtime, seq, _) = model.iter().find(|entry| entry.2 == at).unwrap();
            at = sorted.next(at, vtime, seq);
        }
        order
    }

    /// Against a sorted list, with many tasks and few, removals from the front and from anywhere.
    #[test]
    fn agrees_with_a_sorted_list() {
        for (nr, vtimes) in [(3, 4), (200, 4), (200, 1 << 20), (1_000, 64)] {
            let mut sorted = Sorted::default();
            // Vtime from where the run began, order of insertion, task.
            let mut model: Vec<(u64, u32, u32)> = Vec::new();
            // They wrap around on the way.
            let (base, mut moved) = (u64::MAX - 5_000, 0);
            let mut state = 7u64;
            for step in 0..20_000u32 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let task = (state >> 33) as u32 % nr;
                let front = state >> 62 == 0;
                if front && !model.is_empty() {
                    model.remove(0);
                    let first = sorted.remove_first();
                    assert_eq!(first, model.first().map_or(NIL, |entry| entry.2));
                } else if let Some(at) = model.iter().position(|entry| entry.2 == task) {
                    let (vtime, seq, _) = model[at];
                    if at == 0 {
                        sorted.remove_first();
                    } else {
                        sorted.remove(task, base.wrapping_add(vtime), seq);
                    }
                    model.remove(at);
                } else {
                    moved += 1;
                    let vtime = moved + (state >> 20) % vtimes;
                    let at = model.partition_point(|entry| entry.0 <= vtime);
                    model.insert(at, (vtime, step, task));
                    let first = sorted.insert(task, base.wrapping_add(vtime), step);
                    assert_eq!(first, at == 0);
                }
                if step % 64 == 0 {
                    let known: Vec<_> = model
                        .iter()
                        .map(|&(vtime, seq, task)| (base.wrapping_add(vtime), seq, task))
                        .collect();
                    let expected: Vec<u32> = model.iter().map(|entry| entry.2).collect();
                    assert_eq!(forwards(&sorted, &known), expected);
                    assert_eq!(sorted.last(), expected.last().copied().unwrap_or(NIL));
                    for pair in known.windows(2) {
                        let (vtime, seq, task) = pair[1];
                        assert_eq!(sorted.prev(task, vtime, seq), pair[0].2);
                    }
                }
            }
            // A removed task leaves room that is used again.
            assert!(sorted.blocks.len() <= 2 * nr as usize / (BLOCK / 2) + 2);
            assert!(sorted.order.len() <= 2 * sorted.blocks.len() + 2);
        }
    }

    #[test]
    fn vtimes_too_far_apart_lose_their_order_but_no_task() {
        let mut sorted = Sorted::default();
        let vtime = |task: u32| u64::from(task % 3) * (u64::MAX / 3);
        for task in 0..100 {
            sorted.insert(task, vtime(task), task);
        }
        for task in (0..100).rev() {
            if sorted.first() == task {
                sorted.remove_first();
            } else {
                sorted.remove(task, vtime(task), task);
            }
        }
        assert_eq!(sorted.first(), NIL);
    }
}
