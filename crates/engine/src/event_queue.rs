//! The pending events, in the order of (time, CPU, sequence), with true cancellation.
//!
//! Three parts. Every CPU has one slot per kind of event; a tournament of eight at a time over the CPUs
//! keeps the earliest. An event that is set plays only as long as it wins, so most end at their first
//! match; only when the earliest goes are matches played anew. CPUs that wait for their turn are few
//! and wait for moments: a list in order. Timers (sleeping tasks and few others) lie in order in
//! blocks. None allocates once it has grown to its size.

use std::collections::VecDeque;

use schedlab_trace::{CpuId, TaskId};

use crate::policy::TimerId;

/// What can be pending for a CPU, one of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum CpuEvent {
    /// The CPU goes on: its segment ends.
    Main = 0,
    /// A reschedule interrupt arrives.
    Ipi = 1,
    /// The periodic tick.
    Tick = 2,
    /// Work queued on it by another CPU (`irq_work_queue_on()`).
    Work = 3,
}

const KINDS: usize = 4;

impl CpuEvent {
    const ALL: [CpuEvent; KINDS] = [
        CpuEvent::Main,
        CpuEvent::Ipi,
        CpuEvent::Tick,
        CpuEvent::Work,
    ];
}

/// A timer, named by what it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// The watchdog looks at all runnable tasks.
    Watchdog,
    /// The workload's duration is over.
    End,
    /// The next of the scenario's hotplug events.
    Hotplug,
    /// A task's sleep ends or its life begins.
    Task(TaskId),
    /// A `bpf_timer` expires.
    Policy(TimerId),
}

const FIXED: u32 = 3;

impl Timer {
    fn slot(self) -> u32 {
        match self {
            Timer::Watchdog => 0,
            Timer::End => 1,
            Timer::Hotplug => 2,
            Timer::Task(task) => FIXED + 2 * task.0,
            Timer::Policy(timer) => FIXED + 2 * timer.0 + 1,
        }
    }

    fn of_slot(slot: u32) -> Timer {
        match slot {
            0 => Timer::Watchdog,
            1 => Timer::End,
            2 => Timer::Hotplug,
            slot if (slot - FIXED).is_multiple_of(2) => Timer::Task(TaskId((slot - FIXED) / 2)),
            slot => Timer::Policy(TimerId((slot - FIXED) / 2)),
        }
    }
}

/// An event that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A CPU that waited for its turn, or for a lock, goes on.
    Turn(CpuId),
    Cpu(CpuId, CpuEvent),
    Timer(CpuId, Timer),
}

/// Bits of a CPU's number in a [`Head`].
const CPU_BITS: u32 = 13;

/// When the next event is due, and on which CPU: one word, so that comparing it is one comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Head(u64);

impl Head {
    /// Later than everything.
    pub const NEVER: Head = Head(u64::MAX);

    /// The last instant, after 26 days.
    pub const LAST: u64 = (1 << (64 - CPU_BITS)) - 2;

    /// What is due after [`Head::LAST`] counts as due then: no run lasts that long.
    #[inline]
    fn new(time: u64, cpu: u32) -> Head {
        Head(time.min(Head::LAST) << CPU_BITS | u64::from(cpu))
    }

    /// The time in nanoseconds; of [`Head::NEVER`] one that no run gets to.
    #[inline]
    pub fn time(self) -> u64 {
        self.0 >> CPU_BITS
    }

    #[inline]
    pub fn cpu(self) -> u32 {
        (self.0 & ((1 << CPU_BITS) - 1)) as u32
    }
}

/// How many play in a match of the tournament.
const PLAYERS: usize = 8;

/// The earliest of a match's players. In pairs, so that the comparisons need not wait for each other.
#[inline]
fn winner(players: &[Head; PLAYERS]) -> Head {
    let [a, b, c, d, e, f, g, h] = *players;
    let left = a.min(b).min(c.min(d));
    let right = e.min(f).min(g.min(h));
    left.min(right)
}

/// The earliest of a CPU's events.
#[inline]
fn earliest(due: &[Head; KINDS]) -> Head {
    let [main, ipi, tick, work] = *due;
    main.min(ipi).min(tick.min(work))
}

pub(crate) struct EventQueue {
    /// When the events of each CPU are due, by kind.
    due: Vec<[Head; KINDS]>,
    /// The matches of all rounds, the last round's first. The winner of match `m` is player `m - 1`, counted
    /// through all matches; that of match 0 is `first`.
    matches: Vec<[Head; PLAYERS]>,
    /// The player that CPU 0 is. The other CPUs follow.
    cpu_0: usize,
    /// The winner of the last round: the earliest event of all CPUs.
    first: Head,
    /// The turns of CPUs that wait, the earliest last.
    turns: Vec<Head>,
    /// The same by CPU.
    turn_of: Vec<Head>,
    /// The earliest of them.
    turn: Head,
    timers: Timers,
}

/// In a list of this length or less a turn finds its place from the end.
const SHORT: usize = 16;

impl EventQueue {
    pub fn new(nr_cpus: usize) -> Self {
        assert!(nr_cpus <= 1 << CPU_BITS, "too many CPUs");
        let mut cpu_0 = 0;
        let mut players = PLAYERS;
        while players < nr_cpus {
            cpu_0 += players;
            players *= PLAYERS;
        }
        EventQueue {
            due: vec![[Head::NEVER; KINDS]; nr_cpus],
            matches: vec![[Head::NEVER; PLAYERS]; (cpu_0 + nr_cpus).div_ceil(PLAYERS)],
            cpu_0,
            first: Head::NEVER,
            turns: Vec::with_capacity(nr_cpus),
            turn_of: vec![Head::NEVER; nr_cpus],
            turn: Head::NEVER,
            timers: Timers::default(),
        }
    }

    /// An event of `cpu` is due at `head`, earlier than before: it goes up to the first match that it loses. Tells
    /// whether it wins all.
    #[inline]
    fn sooner(&mut self, cpu: usize, head: Head) -> bool {
        let mut player = self.cpu_0 + cpu;
        loop {
            let place = &mut self.matches[player / PLAYERS][player % PLAYERS];
            if *place <= head {
                return false;
            }
            *place = head;
            if player < PLAYERS {
                break;
            }
            player = player / PLAYERS - 1;
        }
        let wins = head < self.first;
        if wins {
            self.first = head;
        }
        wins
    }

    /// The earliest event of `cpu` is at `earliest` now: plays its matches anew, up to the first whose winner
    /// stays the same.
    #[inline(always)]
    fn replay(&mut self, cpu: usize, mut earliest: Head) {
        let mut player = self.cpu_0 + cpu;
        loop {
            let players = &mut self.matches[player / PLAYERS];
            let place = &mut players[player % PLAYERS];
            if *place == earliest {
                return;
            }
            *place = earliest;
            earliest = winner(players);
            if player < PLAYERS {
                break;
            }
            player = player / PLAYERS - 1;
        }
        self.first = earliest;
    }

    /// An event of `cpu` is due later than before, or not at all.
    fn later(&mut self, cpu: CpuId) {
        let earliest = earliest(&self.due[cpu.index()]);
        self.replay(cpu.index(), earliest);
    }

    /// Sets when `event` is due on `cpu`, in place of what was set before. Tells whether [`EventQueue::head`] may
    /// have changed.
    #[inline]
    pub fn set(&mut self, cpu: CpuId, event: CpuEvent, time: u64) -> bool {
        let head = Head::new(time, cpu.0);
        let due = &mut self.due[cpu.index()];
        let before = std::mem::replace(&mut due[event as usize], head);
        if head <= before {
            self.sooner(cpu.index(), head)
        } else {
            self.later(cpu);
            true
        }
    }

    /// When `event` is due on `cpu`, if it is pending.
    pub fn due(&self, cpu: CpuId, event: CpuEvent) -> Option<u64> {
        let head = self.due[cpu.index()][event as usize];
        (head != Head::NEVER).then(|| head.time())
    }

    /// Makes `event` void.
    #[inline]
    pub fn cancel(&mut self, cpu: CpuId, event: CpuEvent) {
        self.due[cpu.index()][event as usize] = Head::NEVER;
        self.later(cpu);
    }

    /// The earliest event's time and CPU.
    #[inline]
    pub fn head(&self) -> Head {
        self.first.min(self.timers.first).min(self.turn)
    }

    /// Sets when it is the turn of `cpu`, in place of what was set before.
    #[inline]
    pub fn set_turn(&mut self, cpu: CpuId, time: u64) {
        let head = Head::new(time, cpu.0);
        let before = std::mem::replace(&mut self.turn_of[cpu.index()], head);
        if before != Head::NEVER || self.turns.len() > SHORT {
            self.insert_turn(before, head);
        } else {
            self.turns.push(head);
            let mut rest = &mut self.turns[..];
            while let [.., earlier, new] = rest
                && *earlier < *new
            {
                std::mem::swap(earlier, new);
                let end = rest.len() - 1;
                rest = &mut rest[..end];
            }
        }
        self.turn = self.turns.last().copied().unwrap_or(head);
    }

    /// Sets a turn in place of one that is pending, or among many.
    #[cold]
    fn insert_turn(&mut self, before: Head, head: Head) {
        if before != Head::NEVER {
            self.turns.retain(|&turn| turn != before);
        }
        let at = self.turns.partition_point(|&turn| turn > head);
        self.turns.insert(at, head);
    }

    /// Takes the earliest event if it is a CPU's turn; that comes before the CPU's other events at the same time.
    #[inline(always)]
    fn pop_turn(&mut self) -> Option<(u64, CpuId)> {
        let turn = self.turn;
        if turn > self.first.min(self.timers.first) || turn == Head::NEVER {
            return None;
        }
        self.turns.pop();
        self.turn = self.turns.last().copied().unwrap_or(Head::NEVER);
        self.turn_of[turn.cpu() as usize] = Head::NEVER;
        Some((turn.time(), CpuId(turn.cpu())))
    }

    /// Takes the earliest event if it is a CPU's turn or [`CpuEvent::Main`], as most are.
    #[inline(always)]
    pub fn pop_main(&mut self) -> Option<(u64, CpuId)> {
        if let Some(turn) = self.pop_turn() {
            return Some(turn);
        }
        let first = self.first;
        if self.timers.first < first || first == Head::NEVER {
            return None;
        }
        let cpu = first.cpu();
        let [main, others @ ..] = &mut self.due[cpu as usize];
        if *main != first {
            return None;
        }
        *main = Head::NEVER;
        let [ipi, tick, work] = *others;
        self.replay(cpu as usize, ipi.min(tick).min(work));
        Some((first.time(), CpuId(cpu)))
    }

    /// Takes the earliest event; at one time and CPU those of the CPU come before timers.
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        if let Some((time, cpu)) = self.pop_turn() {
            return Some((time, Event::Turn(cpu)));
        }
        let first = self.first;
        if self.timers.first < first {
            let Entry { head, slot } = self.timers.take_first();
            let event = Event::Timer(CpuId(head.cpu()), Timer::of_slot(slot));
            return Some((head.time(), event));
        }
        if first == Head::NEVER {
            return None;
        }
        let cpu = first.cpu();
        let due = &mut self.due[cpu as usize];
        let kind = CpuEvent::ALL
            .into_iter()
            .find(|&kind| due[kind as usize] == first)
            .expect("a CPU's player is the earliest of its events");
        due[kind as usize] = Head::NEVER;
        self.later(CpuId(cpu));
        Some((first.time(), Event::Cpu(CpuId(cpu), kind)))
    }

    /// Sets when `timer` expires, on `cpu`, in place of what was set before.
    #[inline]
    pub fn set_timer(&mut self, timer: Timer, cpu: CpuId, time: u64) {
        self.timers.set(timer.slot(), Head::new(time, cpu.0));
    }

    /// A timer that expires soon, and where: after the next one as many others as `later` says.
    pub fn soon(&self, later: usize) -> Option<(CpuId, Timer)> {
        let timers = &self.timers;
        let Entry { head, slot } = timers.near.get(timers.taken + later)?;
        Some((CpuId(head.cpu()), Timer::of_slot(*slot)))
    }

    /// What is kept of a timer, for prefetching.
    pub fn kept_of(&self, timer: Timer) -> Option<&impl Sized> {
        self.timers.due.get(timer.slot() as usize)
    }

    /// When `timer` expires, if it is set.
    pub fn timer_due(&self, timer: Timer) -> Option<u64> {
        self.timers.due(timer.slot()).map(Head::time)
    }

    /// Makes `timer` void; tells whether it was set.
    pub fn cancel_timer(&mut self, timer: Timer) -> bool {
        self.timers.cancel(timer.slot())
    }
}

/// A timer that is set.
#[derive(Clone, Copy)]
struct Entry {
    head: Head,
    slot: u32,
}

/// Most timers in a block: few enough to make room among them at once, enough for a million in some
/// ten thousand blocks.
const BLOCK: usize = 128;

/// The timers that are set, in order; at one time and CPU the one that was set first comes first.
struct Timers {
    /// When each expires, by slot; [`Head::NEVER`]: it is not set.
    due: Vec<Head>,
    /// The block with the earliest. The first `taken` of it have expired.
    near: Vec<Entry>,
    taken: usize,
    /// The blocks after it, none of them empty.
    far: VecDeque<Vec<Entry>>,
    /// Blocks that are not used now.
    spare: Vec<Vec<Entry>>,
    /// The earliest.
    first: Head,
}

impl Default for Timers {
    fn default() -> Self {
        Timers {
            due: Vec::new(),
            near: Vec::with_capacity(BLOCK),
            taken: 0,
            far: VecDeque::new(),
            spare: Vec::new(),
            first: Head::NEVER,
        }
    }
}

impl Timers {
    fn due(&self, slot: u32) -> Option<Head> {
        let due = self.due.get(slot as usize).copied();
        due.filter(|&head| head != Head::NEVER)
    }

    fn set(&mut self, slot: u32, head: Head) {
        if self.due.len() <= slot as usize {
            self.due.resize(slot as usize + 1, Head::NEVER);
        }
        if self.due[slot as usize] != Head::NEVER {
            self.cancel(slot);
        }
        self.due[slot as usize] = head;
        self.insert(Entry { head, slot });
        self.first = self.first.min(head);
    }

    /// Inserts behind those that expire at the same time.
    fn insert(&mut self, entry: Entry) {
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
            return self.insert(entry);
        }
        let begin = if later == 0 { self.taken } else { 0 };
        // Equal sleeps end in the order in which they began: then only the run's own timers are later.
        let last = block.len().saturating_sub(FIXED as usize).max(begin);
        let at = match last.checked_sub(1) {
            Some(before) if goes_before(&block[before]) => {
                let later = block[last..].iter().position(|other| !goes_before(other));
                later.map_or(block.len(), |at| last + at)
            }
            _ => begin + block[begin..].partition_point(goes_before),
        };
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

    /// Takes the earliest. There must be one.
    fn take_first(&mut self) -> Entry {
        let entry = self.near[self.taken];
        self.due[entry.slot as usize] = Head::NEVER;
        self.taken += 1;
        self.find_first();
        entry
    }

    /// Tells anew which is the earliest.
    fn find_first(&mut self) {
        if self.taken == self.near.len() {
            self.near.clear();
            self.taken = 0;
            if let Some(next) = self.far.pop_front() {
                self.spare.push(std::mem::replace(&mut self.near, next));
            }
        }
        self.first = self
            .near
            .get(self.taken)
            .map_or(Head::NEVER, |entry| entry.head);
    }

    /// Makes a timer void; tells whether it was set. Among many that expire at the same time on the same CPU it is
    /// looked for one by one: only policies' timers are ever cancelled, and those are few.
    fn cancel(&mut self, slot: u32) -> bool {
        let Some(head) = self.due(slot) else {
            return false;
        };
        self.due[slot as usize] = Head::NEVER;
        let is_it = |entry: &Entry| entry.slot == slot;
        // The block in which those of its time begin, and those after it where they go on.
        let begin = self.far.partition_point(|block| block[0].head < head);
        if begin == 0
            && let Some(at) = self.near[self.taken..].iter().position(is_it)
        {
            self.near.remove(self.taken + at);
        } else {
            let (index, at) = (begin.saturating_sub(1)..self.far.len())
                .find_map(|index| Some((index, self.far[index].iter().position(is_it)?)))
                .expect("a timer that is set is in a block");
            self.far[index].remove(at);
            if self.far[index].is_empty() {
                self.spare.extend(self.far.remove(index));
            }
        }
        self.find_first();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(n: u32) -> CpuId {
        CpuId(n)
    }

    #[test]
    fn ties_go_to_the_lower_cpu_then_to_cpu_events_then_by_age() {
        let mut queue = EventQueue::new(3);
        queue.set_timer(Timer::Task(TaskId(7)), cpu(1), 10);
        queue.set_timer(Timer::Task(TaskId(3)), cpu(1), 10);
        queue.set(cpu(2), CpuEvent::Main, 10);
        queue.set(cpu(1), CpuEvent::Tick, 10);
        queue.set(cpu(1), CpuEvent::Main, 10);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, e)| e).collect();
        assert_eq!(
            order,
            [
                Event::Cpu(cpu(1), CpuEvent::Main),
                Event::Cpu(cpu(1), CpuEvent::Tick),
                Event::Timer(cpu(1), Timer::Task(TaskId(7))),
                Event::Timer(cpu(1), Timer::Task(TaskId(3))),
                Event::Cpu(cpu(2), CpuEvent::Main),
            ]
        );
    }

    #[test]
    fn what_expires_soon_is_told_in_order() {
        let mut queue = EventQueue::new(2);
        let timer = |task| Timer::Task(TaskId(task));
        for (task, time) in [(0, 30), (1, 10), (2, 20)] {
            queue.set_timer(timer(task), cpu(task % 2), time);
        }
        assert_eq!(queue.soon(0), Some((cpu(1), timer(1))));
        assert_eq!(queue.pop(), Some((10, Event::Timer(cpu(1), timer(1)))));
        let soon: Vec<_> = (0..3).map(|later| queue.soon(later)).collect();
        let expected = [Some((cpu(0), timer(2))), Some((cpu(0), timer(0))), None];
        assert_eq!(soon, expected);
    }

    #[test]
    fn cancelled_events_never_come() {
        let mut queue = EventQueue::new(2);
        queue.set(cpu(0), CpuEvent::Main, 5);
        queue.set_timer(Timer::Watchdog, cpu(0), 4);
        queue.set_timer(Timer::Task(TaskId(0)), cpu(0), 6);
        queue.cancel(cpu(0), CpuEvent::Main);
        assert!(queue.cancel_timer(Timer::Watchdog));
        assert!(!queue.cancel_timer(Timer::Watchdog));
        assert_eq!(
            queue.pop(),
            Some((6, Event::Timer(cpu(0), Timer::Task(TaskId(0)))))
        );
        assert_eq!(queue.pop(), None);
        assert_eq!(queue.head(), Head::NEVER);
    }

    #[test]
    fn what_is_due_after_the_last_instant_comes_last() {
        let mut queue = EventQueue::new(2);
        queue.set_timer(Timer::Task(TaskId(0)), cpu(0), u64::MAX);
        queue.set(cpu(1), CpuEvent::Main, Head::LAST - 1);
        assert_eq!(
            queue.pop(),
            Some((Head::LAST - 1, Event::Cpu(cpu(1), CpuEvent::Main)))
        );
        assert_eq!(
            queue.pop(),
            Some((Head::LAST, Event::Timer(cpu(0), Timer::Task(TaskId(0)))))
        );
    }

    /// Against a sorted list, over many operations.
    #[test]
    fn agrees_with_a_sorted_list() {
        const CPUS: u64 = 70;
        let mut queue = EventQueue::new(CPUS as usize);
        // Time, CPU, kind (turns first, timers last), age, slot of a timer.
        let mut model: Vec<(u64, u32, u32, u32, u32)> = Vec::new();
        let mut state = 1u64;
        let mut random = move |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        for age in 0..60_000 {
            // Few different times, so that many are equal; at first many timers come, then many go.
            let time = random(300);
            let slot = random(2_000) as u32;
            let on = random(CPUS) as u32;
            let kind = CpuEvent::ALL[random(KINDS as u64) as usize];
            let timer = Timer::Task(TaskId(slot));
            let of_timer = |event: &(u64, u32, u32, u32, u32)| event.2 == 5 && event.4 == slot;
            let of_cpu =
                |event: &(u64, u32, u32, u32, u32)| (event.1, event.2) == (on, 1 + kind as u32);
            match random(if age < 30_000 { 10 } else { 16 }) {
                0 => {
                    let found = model.iter().any(of_timer);
                    assert_eq!(queue.cancel_timer(timer), found);
                    assert_eq!(queue.timer_due(timer), None);
                    model.retain(|event| !of_timer(event));
                }
                1 => {
                    queue.cancel(cpu(on), kind);
                    model.retain(|event| !of_cpu(event));
                }
                2 | 3 => {
                    model.retain(|event| !of_cpu(event));
                    model.push((time, on, 1 + kind as u32, age, 0));
                    queue.set(cpu(on), kind, time);
                    assert_eq!(queue.due(cpu(on), kind), Some(time));
                }
                4 => {
                    model.retain(|event| (event.1, event.2) != (on, 0));
                    model.push((time, on, 0, age, 0));
                    queue.set_turn(cpu(on), time);
                }
                5..=8 => {
                    model.retain(|event| !of_timer(event));
                    model.push((time, on, 5, age, slot));
                    queue.set_timer(timer, cpu(on), time);
                    assert_eq!(queue.timer_due(timer), Some(time));
                }
                _ => {
                    let first = model.iter().min().copied();
                    model.retain(|&event| Some(event) != first);
                    let expected = first.map(|(time, on, kind, _, slot)| {
                        let event = match kind {
                            0 => Event::Turn(cpu(on)),
                            5 => Event::Timer(cpu(on), Timer::Task(TaskId(slot))),
                            _ => Event::Cpu(cpu(on), CpuEvent::ALL[kind as usize - 1]),
                        };
                        (time, event)
                    });
                    // What the short way takes, and leaves to the other one.
                    let of_main = expected.and_then(|(time, event)| match event {
                        Event::Turn(cpu) | Event::Cpu(cpu, CpuEvent::Main) => Some((time, cpu)),
                        _ => None,
                    });
                    let short = random(2) == 0;
                    if short {
                        assert_eq!(queue.pop_main(), of_main);
                    }
                    if !short || of_main.is_none() {
                        assert_eq!(queue.pop(), expected);
                    }
                }
            }
            let first = model.iter().min();
            let head = first.map_or(Head::NEVER, |&(time, on, ..)| Head::new(time, on));
            assert_eq!(queue.head(), head);
        }
    }
}
