//! The pending events, in the order of (time, CPU, sequence), with true cancellation.
//!
//! Two parts. Every CPU has one slot per kind of event; a tournament of four at a time over the CPUs
//! keeps the earliest, so setting and cancelling cost a few matches. Timers (sleeping tasks and few
//! others) lie in an indexed 4-ary heap. Neither allocates once it has grown to its size.

use schedlab_trace::{CpuId, TaskId};

use crate::policy::TimerId;

/// What can be pending for a CPU, one of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum CpuEvent {
    /// The CPU goes on: its segment ends, or it is its turn after a wait.
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
    Cpu(CpuId, CpuEvent),
    Timer(CpuId, Timer),
}

const ABSENT: u32 = u32::MAX;

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

#[derive(Clone, Copy)]
struct Entry {
    head: Head,
    /// First come, first served.
    seq: u64,
    slot: u32,
}

impl Entry {
    #[inline]
    fn key(&self) -> (Head, u64) {
        (self.head, self.seq)
    }
}

/// How many play in a match of the tournament.
const PLAYERS: usize = 4;

pub(crate) struct EventQueue {
    /// When the events of each CPU are due, by kind.
    due: Vec<[Head; KINDS]>,
    /// The matches of all rounds, the CPUs' own first. The winners of four neighbouring matches meet in the
    /// next round.
    matches: Vec<[Head; PLAYERS]>,
    /// Where each round begins in `matches`.
    rounds: Vec<usize>,
    /// The winner of the last round: the earliest event of all CPUs.
    first: Head,
    heap: Vec<Entry>,
    /// Place of each timer slot in the heap.
    place: Vec<u32>,
    seq: u64,
}

/// The earliest of four.
#[inline]
fn winner(players: &[Head; PLAYERS]) -> Head {
    let [a, b, c, d] = *players;
    a.min(b).min(c.min(d))
}

impl EventQueue {
    pub fn new(nr_cpus: usize) -> Self {
        assert!(nr_cpus <= 1 << CPU_BITS, "too many CPUs");
        let mut rounds = Vec::new();
        let mut matches = 0;
        let mut players = nr_cpus;
        loop {
            rounds.push(matches);
            players = players.div_ceil(PLAYERS);
            matches += players;
            if players <= 1 {
                break;
            }
        }
        EventQueue {
            due: vec![[Head::NEVER; KINDS]; nr_cpus],
            matches: vec![[Head::NEVER; PLAYERS]; matches],
            rounds,
            first: Head::NEVER,
            heap: Vec::new(),
            place: Vec::new(),
            seq: 0,
        }
    }

    /// Plays the matches of `cpu` anew, up to the first whose winner stays the same.
    #[inline]
    fn play(&mut self, cpu: usize) {
        let mut earliest = winner(&self.due[cpu]);
        let mut player = cpu;
        for &begin in &self.rounds {
            let players = &mut self.matches[begin + player / PLAYERS];
            let place = &mut players[player % PLAYERS];
            if *place == earliest {
                return;
            }
            *place = earliest;
            earliest = winner(players);
            player /= PLAYERS;
        }
        self.first = earliest;
    }

    /// Sets when `event` is due on `cpu`, in place of what was set before.
    #[inline]
    pub fn set(&mut self, cpu: CpuId, event: CpuEvent, time: u64) {
        self.due[cpu.index()][event as usize] = Head::new(time, cpu.0);
        self.play(cpu.index());
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
        self.play(cpu.index());
    }

    /// The earliest event's time and CPU.
    #[inline]
    pub fn head(&self) -> Head {
        match self.heap.first() {
            Some(entry) => self.first.min(entry.head),
            None => self.first,
        }
    }

    /// Takes the earliest event; at one time and CPU those of the CPU come before timers.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        let first = self.first;
        if let Some(&Entry { head, slot, .. }) = self.heap.first()
            && head < first
        {
            self.remove_at(0);
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
        self.play(cpu as usize);
        Some((first.time(), Event::Cpu(CpuId(cpu), kind)))
    }

    /// Sets when `timer` expires, on `cpu`, in place of what was set before.
    pub fn set_timer(&mut self, timer: Timer, cpu: CpuId, time: u64) {
        let slot = timer.slot();
        if self.place.len() <= slot as usize {
            self.place.resize(slot as usize + 1, ABSENT);
        }
        self.seq += 1;
        let entry = Entry {
            head: Head::new(time, cpu.0),
            seq: self.seq,
            slot,
        };
        let place = self.place[slot as usize];
        if place == ABSENT {
            self.heap.push(entry);
            self.sift_up(self.heap.len() - 1);
        } else {
            let place = place as usize;
            self.heap[place] = entry;
            let place = self.sift_up(place);
            self.sift_down(place);
        }
    }

    /// When `timer` expires, if it is set.
    pub fn timer_due(&self, timer: Timer) -> Option<u64> {
        match self.place.get(timer.slot() as usize) {
            Some(&place) if place != ABSENT => Some(self.heap[place as usize].head.time()),
            _ => None,
        }
    }

    /// Makes `timer` void; tells whether it was set.
    pub fn cancel_timer(&mut self, timer: Timer) -> bool {
        match self.place.get(timer.slot() as usize) {
            Some(&place) if place != ABSENT => {
                self.remove_at(place as usize);
                true
            }
            _ => false,
        }
    }

    fn remove_at(&mut self, place: usize) {
        let removed = self.heap.swap_remove(place);
        self.place[removed.slot as usize] = ABSENT;
        if place < self.heap.len() {
            let place = self.sift_up(place);
            self.sift_down(place);
        }
    }

    fn sift_up(&mut self, mut place: usize) -> usize {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 4;
            if self.heap[parent].key() <= entry.key() {
                break;
            }
            self.heap[place] = self.heap[parent];
            self.place[self.heap[place].slot as usize] = place as u32;
            place = parent;
        }
        self.heap[place] = entry;
        self.place[entry.slot as usize] = place as u32;
        place
    }

    fn sift_down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let first = 4 * place + 1;
            let last = (first + 4).min(self.heap.len());
            let Some(least) = (first..last).min_by_key(|&child| self.heap[child].key()) else {
                break;
            };
            if entry.key() <= self.heap[least].key() {
                break;
            }
            self.heap[place] = self.heap[least];
            self.place[self.heap[place].slot as usize] = place as u32;
            place = least;
        }
        self.heap[place] = entry;
        self.place[entry.slot as usize] = place as u32;
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
        let mut queue = EventQueue::new(5);
        let mut model: Vec<(u64, u32, u32)> = Vec::new();
        let mut state = 1u64;
        let mut random = move |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..20_000 {
            let slot = random(40) as u32;
            let (timer, on) = (Timer::Task(TaskId(slot)), slot % 5);
            match random(4) {
                0 => {
                    let found = model.iter().position(|&(_, _, s)| s == slot);
                    assert_eq!(queue.cancel_timer(timer), found.is_some());
                    model.retain(|&(_, _, s)| s != slot);
                }
                1 => {
                    model.sort();
                    let expected = (!model.is_empty()).then(|| model.remove(0));
                    let popped = queue.pop();
                    assert_eq!(
                        popped.map(|(time, _)| time),
                        expected.map(|(time, _, _)| time)
                    );
                    if let (Some((_, Event::Timer(_, Timer::Task(task)))), Some(e)) =
                        (popped, expected)
                    {
                        assert_eq!(task.0, e.2);
                    }
                }
                _ => {
                    // Distinct times per slot, so that the model needs no sequence numbers.
                    let time = random(1_000) * 64 + u64::from(slot);
                    model.retain(|&(_, _, s)| s != slot);
                    model.push((time, on, slot));
                    queue.set_timer(timer, cpu(on), time);
                }
            }
        }
    }
}
