//! The timers of an event queue, in blocks that are in order.

use std::collections::VecDeque;

use schedlab_trace::TaskId;
use schedlab_workload::{CgroupId, ObjectId};

use super::head::Head;
use crate::contract::policy::TimerId;

/// A timer, named by what it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// The watchdog looks at all runnable tasks.
    Watchdog,
    /// The workload's duration is over.
    End,
    /// The next of the scenario's hotplug events.
    Hotplug,
    /// A task's wait ends or its life begins, neither earlier nor later.
    Task(TaskId),
    /// A task's sleep ends, at the latest: an interrupt for another timer of its CPU may end it within its slack.
    Sleep(TaskId),
    /// A `bpf_timer` expires.
    Policy(TimerId),
    /// The next period of a throttled deadline task begins.
    Replenish(TaskId),
    /// The next period of a cgroup's limit begins (`cfs_bandwidth::period_timer`).
    Quota(CgroupId),
    /// CPU time of a cgroup that has been given back is distributed (`cfs_bandwidth::slack_timer`).
    Slack(CgroupId),
    /// A delayed acknowledgement of a direction of a TCP connection may be due.
    Ack(ObjectId),
}

/// A place in a table of timers that can be cancelled.
#[derive(Clone, Copy)]
enum Slot {
    Policy(usize),
    Replenish(usize),
    Ack(usize),
    Limit(usize),
}

impl Timer {
    /// Its place, if there can be one of its kind for each number.
    fn slot(self) -> Option<Slot> {
        match self {
            Timer::Policy(TimerId(number)) => Some(Slot::Policy(number as usize)),
            Timer::Replenish(task) => Some(Slot::Replenish(task.index())),
            Timer::Ack(ObjectId(number)) => Some(Slot::Ack(number as usize)),
            Timer::Quota(cgroup) => Some(Slot::Limit(2 * cgroup.index())),
            Timer::Slack(cgroup) => Some(Slot::Limit(2 * cgroup.index() + 1)),
            Timer::Watchdog | Timer::End | Timer::Hotplug | Timer::Task(_) | Timer::Sleep(_) => {
                None
            }
        }
    }
}

/// The run's own timers, one of each, in the order in which they expire at the same instant: a report of the watchdog
/// after the run's end does not count.
const OWN: [Timer; 3] = [Timer::End, Timer::Hotplug, Timer::Watchdog];

/// A timer that is set.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub head: Head,
    pub timer: Timer,
}

/// Most timers in a block: few enough to make room among them at once, enough for a million in some
/// ten thousand blocks.
const BLOCK: usize = 128;

/// How many of the last timers in a block a new one is compared with before it is searched for its place. Equal sleeps
/// end in the order in which they began, or nearly so: CPUs run a little ahead of each other.
const NEARLY: usize = 3;

/// The timers that are set, in order; at one time and CPU the run's own come first, then the one that was set first.
pub(super) struct Timers {
    /// When each of [`OWN`] expires, and the earliest; [`Head::NEVER`]: it is not set.
    own: [Head; OWN.len()],
    own_first: Head,
    /// When each policy's timer expires, by number, likewise, …
    due: Vec<Head>,
    /// … each task's replenishment …
    replenish: Vec<Head>,
    /// … each connection's acknowledgement …
    acks: Vec<Head>,
    /// … and both timers of each cgroup.
    limits: Vec<Head>,
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
            own: [Head::NEVER; OWN.len()],
            own_first: Head::NEVER,
            due: Vec::new(),
            replenish: Vec::new(),
            acks: Vec::new(),
            limits: Vec::new(),
            near: Vec::with_capacity(BLOCK),
            taken: 0,
            far: VecDeque::new(),
            spare: Vec::new(),
        }
    }
}

impl Timers {
    /// One of a task or policy that expires soon: after the next one as many others as `later` says.
    #[inline]
    pub fn soon(&self, later: usize) -> Option<Entry> {
        self.near.get(self.taken + later).copied()
    }

    /// When the earliest is due.
    #[inline]
    pub fn first(&self) -> Head {
        let near = self.near.get(self.taken);
        near.map_or(self.own_first, |entry| entry.head.min(self.own_first))
    }

    /// Takes the earliest, which is due at `first`, if it is a task's.
    #[inline]
    pub fn pop_task(&mut self, first: Head) -> Option<(Timer, TaskId)> {
        if self.own_first == first {
            return None;
        }
        let timer = self.near[self.taken].timer;
        let (Timer::Task(task) | Timer::Sleep(task)) = timer else {
            return None;
        };
        self.pass_first();
        Some((timer, task))
    }

    /// Removes a timer: of the nearest block (0), counted from those that have not expired, or of one after it.
    fn remove(&mut self, block: usize, at: usize) {
        if block == 0 {
            self.near.remove(self.taken + at);
            if self.taken == self.near.len() {
                self.come_near();
            }
        } else {
            let index = block - 1;
            self.far[index].remove(at);
            if self.far[index].is_empty() {
                self.spare.extend(self.far.remove(index));
            }
        }
    }

    /// Takes the earliest. There must be one.
    pub fn pop(&mut self) -> Entry {
        let head = self.first();
        if self.own_first == head {
            let at = self.own.iter().position(|&own| own == head);
            let at = at.expect("the earliest is one of them");
            self.set_own(at, Head::NEVER);
            let timer = OWN[at];
            return Entry { head, timer };
        }
        let entry = self.near[self.taken];
        if let Some(slot) = entry.timer.slot() {
            *self.due_of(slot) = Head::NEVER;
        }
        self.pass_first();
        entry
    }

    /// When the timer of a slot expires.
    fn due_of(&mut self, slot: Slot) -> &mut Head {
        let (table, at) = match slot {
            Slot::Policy(at) => (&mut self.due, at),
            Slot::Replenish(at) => (&mut self.replenish, at),
            Slot::Ack(at) => (&mut self.acks, at),
            Slot::Limit(at) => (&mut self.limits, at),
        };
        if table.len() <= at {
            table.resize(at + 1, Head::NEVER);
        }
        &mut table[at]
    }

    /// Sets a timer that is no task's, in place of what was set before.
    pub fn set(&mut self, entry: Entry) {
        if let Some(at) = OWN.iter().position(|&own| own == entry.timer) {
            return self.set_own(at, entry.head);
        }
        self.cancel(entry.timer);
        if let Some(slot) = entry.timer.slot() {
            *self.due_of(slot) = entry.head;
        }
        self.insert(entry);
    }

    fn set_own(&mut self, at: usize, head: Head) {
        self.own[at] = head;
        self.own_first = self.own.into_iter().min().unwrap_or_default();
    }

    /// Inserts behind those that expire at the same time.
    #[inline]
    pub fn insert(&mut self, entry: Entry) {
        let goes_before = |other: &Entry| other.head <= entry.head;
        let (block, begin) = match self.far.back_mut() {
            Some(block) => (block, 0),
            None => (&mut self.near, self.taken),
        };
        let later = block.len().wrapping_sub(1 + NEARLY);
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

    /// The earliest of tasks and policies expires.
    #[inline]
    fn pass_first(&mut self) {
        self.taken += 1;
        if self.taken == self.near.len() {
            self.come_near();
        }
    }

    /// Goes on to the next block: all of the nearest one are gone.
    #[cold]
    fn come_near(&mut self) {
        self.near.clear();
        self.taken = 0;
        if let Some(next) = self.far.pop_front() {
            self.spare.push(std::mem::replace(&mut self.near, next));
        }
    }

    /// Makes a timer void that is not a task's. Returns whether it was set. Among many that expire at the same time
    /// on the same CPU it is looked for one by one: such timers are few.
    pub fn cancel(&mut self, timer: Timer) -> bool {
        if let Some(at) = OWN.iter().position(|&own| own == timer) {
            let was_set = self.own[at] != Head::NEVER;
            self.set_own(at, Head::NEVER);
            return was_set;
        }
        let Some(slot) = timer.slot() else {
            return false;
        };
        let head = std::mem::replace(self.due_of(slot), Head::NEVER);
        if head == Head::NEVER {
            return false;
        }
        self.take_out(Entry { head, timer });
        true
    }

    /// Takes out a timer that is set.
    pub fn take_out(&mut self, Entry { head, timer }: Entry) {
        let is_it = |entry: &Entry| entry.timer == timer;
        // The block in which the timers of its time begin, and the later ones, where they go on.
        let begin = self.far.partition_point(|block| block[0].head < head);
        let near = &self.near[self.taken..];
        let from = near.partition_point(|entry| entry.head < head);
        if begin == 0
            && let Some(at) = near[from..].iter().position(is_it)
        {
            self.remove(0, from + at);
        } else {
            let (index, at) = (begin.saturating_sub(1)..self.far.len())
                .find_map(|index| Some((index, self.far[index].iter().position(is_it)?)))
                .expect("a timer that is set is in a block");
            self.remove(index + 1, at);
        }
    }
}
