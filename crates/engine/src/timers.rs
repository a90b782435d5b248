//! The timers of an event queue, in blocks that are in order.

use std::collections::VecDeque;

use crate::event_queue::{Head, Timer};

/// How many timers there are besides those of tasks and policies.
const FIXED: usize = 3;

impl Timer {
    /// The place in a table of timers that can be set anew or made void. Those of tasks cannot.
    #[inline]
    fn slot(self) -> Option<usize> {
        match self {
            Timer::Watchdog => Some(0),
            Timer::End => Some(1),
            Timer::Hotplug => Some(2),
            Timer::Policy(timer) => Some(FIXED + timer.0 as usize),
            Timer::Task(_) => None,
        }
    }
}

/// A timer that is set.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub head: Head,
    pub timer: Timer,
}

/// Most timers in a block: few enough to make room among them at once, enough for a million in some
/// ten thousand blocks.
const BLOCK: usize = 128;

/// The timers that are set, in order; at one time and CPU the one that was set first comes first.
pub(crate) struct Timers {
    /// When each expires that can be set anew or made void, by slot; [`Head::NEVER`]: it is not set.
    due: Vec<Head>,
    /// The block with the earliest. The first `taken` of it have expired.
    near: Vec<Entry>,
    taken: usize,
    /// The blocks after it, none of them empty.
    far: VecDeque<Vec<Entry>>,
    /// Blocks that are not used now.
    spare: Vec<Vec<Entry>>,
}

impl Default for Timers {
    fn default() -> Self {
        Timers {
            due: Vec::new(),
            near: Vec::with_capacity(BLOCK),
            taken: 0,
            far: VecDeque::new(),
            spare: Vec::new(),
        }
    }
}

impl Timers {
    /// One that expires soon: after the next one as many others as `later` says.
    #[inline]
    pub fn soon(&self, later: usize) -> Option<Entry> {
        self.near.get(self.taken + later).copied()
    }

    /// The earliest. There must be one.
    #[inline]
    pub fn next(&self) -> Entry {
        self.near[self.taken]
    }

    /// When the earliest is due.
    #[inline]
    pub fn first(&self) -> Head {
        let first = self.near.get(self.taken);
        first.map_or(Head::NEVER, |entry| entry.head)
    }

    #[inline]
    pub fn set(&mut self, entry: Entry) {
        if let Some(slot) = entry.timer.slot() {
            if self.due.len() <= slot {
                self.due.resize(slot + 1, Head::NEVER);
            }
            self.cancel(entry.timer);
            self.due[slot] = entry.head;
        }
        self.insert(entry);
    }

    /// Inserts behind those that expire at the same time.
    #[inline]
    pub fn insert(&mut self, entry: Entry) {
        let goes_before = |other: &Entry| other.head <= entry.head;
        let (block, begin) = match self.far.back_mut() {
            Some(block) => (block, 0),
            None => (&mut self.near, self.taken),
        };
        // Equal sleeps end in the order in which they began: then only the run's own timers are later.
        let later = block.len().wrapping_sub(1 + FIXED);
        if block.len() < BLOCK
            && later < block.len()
            && later >= begin
            && goes_before(&block[later])
        {
            block.push(entry);
            let mut rest = &mut block[..];
            while let [.., before, new] = rest
                && before.head > new.head
            {
                std::mem::swap(before, new);
                let end = rest.len() - 1;
                rest = &mut rest[..end];
            }
        } else {
            self.insert_among(entry);
        }
    }

    /// Inserts anywhere.
    #[inline(never)]
    fn insert_among(&mut self, entry: Entry) {
        let goes_before = |other: &Entry| other.head <= entry.head;
        let later = match self.far.front() {
            Some(block) if goes_before(&block[0]) => {
                self.far.partition_point(|block| goes_before(&block[0]))
            }
            _ => 0,
        };
        let block = match later.checked_sub(1) {
            Some(index) => &mut self.far[index],
            None => &mut self.near,
        };
        if block.len() == BLOCK {
            self.make_room(later);
            return self.insert_among(entry);
        }
        let begin = if later == 0 { self.taken } else { 0 };
        let at = begin + block[begin..].partition_point(goes_before);
        block.insert(at, entry);
    }

    /// Makes room in the block before `far[later]`, which is full.
    #[cold]
    fn make_room(&mut self, later: usize) {
        if later == 0 && self.taken > 0 {
            self.near.drain(..self.taken);
            self.taken = 0;
            return;
        }
        let mut rest = self.spare.pop().unwrap_or(Vec::with_capacity(BLOCK));
        let block = match later.checked_sub(1) {
            Some(index) => &mut self.far[index],
            None => &mut self.near,
        };
        rest.extend(block.drain(BLOCK / 2..));
        self.far.insert(later, rest);
    }

    /// The earliest expires. Returns when the next one is due.
    #[inline]
    pub fn pass_first(&mut self) -> Head {
        self.taken += 1;
        match self.near.get(self.taken) {
            Some(next) => next.head,
            None => self.come_near(),
        }
    }

    /// A timer is not set any more.
    pub fn forget(&mut self, timer: Timer) {
        if let Some(slot) = timer.slot() {
            self.due[slot] = Head::NEVER;
        }
    }

    /// Goes on to the next block: all of the nearest one are gone. Returns when its first is due.
    #[cold]
    fn come_near(&mut self) -> Head {
        self.near.clear();
        self.taken = 0;
        if let Some(next) = self.far.pop_front() {
            self.spare.push(std::mem::replace(&mut self.near, next));
        }
        self.first()
    }

    /// Makes a timer void that is not a task's; tells whether it was set. Among many that expire at the same time on
    /// the same CPU it is looked for one by one: such timers are few.
    pub fn cancel(&mut self, timer: Timer) -> bool {
        let due = timer.slot().and_then(|slot| self.due.get_mut(slot));
        let Some(head) = due.map(|due| std::mem::replace(due, Head::NEVER)) else {
            return false;
        };
        if head == Head::NEVER {
            return false;
        }
        let is_it = |entry: &Entry| entry.timer == timer;
        // The block in which those of its time begin, and those after it where they go on.
        let begin = self.far.partition_point(|block| block[0].head < head);
        if begin == 0
            && let Some(at) = self.near[self.taken..].iter().position(is_it)
        {
            self.near.remove(self.taken + at);
            if self.taken == self.near.len() {
                self.come_near();
            }
        } else {
            let (index, at) = (begin.saturating_sub(1)..self.far.len())
                .find_map(|index| Some((index, self.far[index].iter().position(is_it)?)))
                .expect("a timer that is set is in a block");
            self.far[index].remove(at);
            if self.far[index].is_empty() {
                self.spare.extend(self.far.remove(index));
            }
        }
        true
    }
}
