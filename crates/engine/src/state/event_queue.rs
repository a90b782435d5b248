//! The pending events, in the order of (time, CPU, sequence), with true cancellation.
//!
//! Three parts. Every CPU has one slot per kind of event; a tournament of eight at a time over the CPUs
//! keeps the earliest. An event that is set plays only as long as it wins, so most end at their first
//! match; only when the earliest goes are matches played anew. CPUs that wait for their turn are few
//! and wait for moments: a list in order. Timers (sleeping tasks and few others) lie in order in
//! blocks. None allocates once it has grown to its size.

mod head;
mod timers;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use schedlab_trace::{CpuId, TaskId};

use head::{CPU_BITS, Head};
pub(crate) use timers::Timer;
use timers::{Entry, Timers};

/// The kinds of events that can be pending for a CPU, one of each.
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

/// An event that is due, besides a CPU's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Cpu(CpuId, CpuEvent),
    Timer(CpuId, Timer),
}

/// How many play in a match of the tournament.
const PLAYERS: usize = 8;

/// The players of a match, each by its earliest event.
type Match = [Cell<Head>; PLAYERS];

/// The earliest of a match's players. In pairs, so that the comparisons need not wait for each other.
#[inline(always)]
fn winner(players: &Match) -> Head {
    let [a, b, c, d, e, f, g, h] = players;
    let pair = |a: &Cell<Head>, b: &Cell<Head>| a.get().min(b.get());
    let left = pair(a, b).min(pair(c, d));
    let right = pair(e, f).min(pair(g, h));
    left.min(right)
}

/// The events of a CPU, by kind.
type Due = [Cell<Head>; KINDS];

/// The earliest of a CPU's events.
#[inline]
fn earliest(due: &Due) -> Head {
    let [main, ipi, tick, work] = due;
    main.get().min(ipi.get()).min(tick.get().min(work.get()))
}

/// The pending events. Its fields are cells, so that setting an event need not borrow all of it.
pub(crate) struct EventQueue {
    /// When the events of each CPU are due.
    due: Vec<Due>,
    /// The matches of all rounds, the last round's first. The winner of match `m` is player `m - 1`, counted through
    /// all matches; the winner of match 0 is `first`.
    matches: Vec<Match>,
    /// The player that CPU 0 is. The other CPUs follow.
    cpu_0: usize,
    /// The winner of the last round: the earliest event of all CPUs.
    first: Cell<Head>,
    /// The turns of CPUs that wait, the earliest last, upon one that never comes.
    turns: Vec<Cell<Head>>,
    nr_turns: Cell<usize>,
    /// The earliest of them.
    turn: Cell<Head>,
    timers: RefCell<Timers>,
    /// Those of tasks by CPU, in the same order.
    of_tasks: Vec<RefCell<VecDeque<Entry>>>,
    /// The earliest timer.
    timer: Cell<Head>,
    /// The earliest of all, …
    head: Cell<Head>,
    /// … and its time.
    horizon: Cell<u64>,
}

impl EventQueue {
    pub fn new(nr_cpus: usize) -> Self {
        assert!(nr_cpus <= 1 << CPU_BITS, "too many CPUs");
        let mut cpu_0 = 0;
        let mut players = PLAYERS;
        while players < nr_cpus {
            cpu_0 += players;
            players *= PLAYERS;
        }
        let never = || Cell::new(Head::NEVER);
        let nr_matches = (cpu_0 + nr_cpus).div_ceil(PLAYERS);
        EventQueue {
            due: (0..nr_cpus).map(|_| Due::default()).collect(),
            matches: (0..nr_matches).map(|_| Match::default()).collect(),
            cpu_0,
            first: never(),
            turns: (0..=nr_cpus).map(|_| never()).collect(),
            nr_turns: Cell::new(0),
            turn: never(),
            timers: RefCell::default(),
            of_tasks: (0..nr_cpus).map(|_| RefCell::default()).collect(),
            timer: never(),
            head: never(),
            horizon: Cell::new(Head::NEVER.time()),
        }
    }

    /// The earliest event's time and CPU.
    #[inline]
    pub fn head(&self) -> Head {
        self.head.get()
    }

    /// The earliest event's time.
    #[inline]
    pub fn horizon(&self) -> &Cell<u64> {
        &self.horizon
    }

    #[inline(always)]
    fn note_head(&self) {
        let head = self.first.get().min(self.timer.get()).min(self.turn.get());
        self.head.set(head);
        self.horizon.set(head.time());
    }

    /// An event that is due at `head` was set.
    #[inline(always)]
    fn note_new(&self, head: Head) {
        if head < self.head.get() {
            self.head.set(head);
            self.horizon.set(head.time());
        }
    }

    /// The match that `player` plays, and its place there.
    #[inline(always)]
    fn place(&self, player: usize) -> (&Match, &Cell<Head>) {
        let players = &self.matches[player / PLAYERS];
        (players, &players[player % PLAYERS])
    }

    /// An event of `cpu` is due at `head`, earlier than before: it goes up to the first match that it loses.
    #[inline(always)]
    fn sooner(&self, cpu: usize, head: Head) {
        let mut player = self.cpu_0 + cpu;
        loop {
            let (_, place) = self.place(player);
            if place.get() <= head {
                return;
            }
            place.set(head);
            if player < PLAYERS {
                break;
            }
            player = player / PLAYERS - 1;
        }
        if head < self.first.get() {
            self.first.set(head);
            self.note_new(head);
        }
    }

    /// The earliest event of `cpu` is at `earliest` now, later than before: plays those matches anew that it had won.
    /// Tells whether it had won all.
    #[inline(always)]
    fn replay(&self, cpu: usize, mut earliest: Head) -> bool {
        let mut player = self.cpu_0 + cpu;
        let (mut players, mut place) = self.place(player);
        loop {
            let before = place.replace(earliest);
            let is_last = player < PLAYERS;
            let (above, won) = if is_last {
                (players, &self.first)
            } else {
                player = player / PLAYERS - 1;
                self.place(player)
            };
            if won.get() != before {
                return false;
            }
            earliest = winner(players);
            if is_last {
                break;
            }
            (players, place) = (above, won);
        }
        self.first.set(earliest);
        true
    }

    /// An event of `cpu` is due later than before, or not at all.
    fn later(&self, cpu: usize) {
        if self.replay(cpu, earliest(&self.due[cpu])) {
            self.note_head();
        }
    }

    /// Sets when `event` is due on `cpu`, in place of what was set before.
    #[inline]
    pub fn set(&self, cpu: CpuId, event: CpuEvent, time: u64) {
        let head = Head::new(time, cpu.0);
        let before = self.due[cpu.index()][event as usize].replace(head);
        if head <= before {
            self.sooner(cpu.index(), head);
        } else {
            self.later(cpu.index());
        }
    }

    /// When `event` is due on `cpu`, if it is pending.
    pub fn due(&self, cpu: CpuId, event: CpuEvent) -> Option<u64> {
        let head = self.due[cpu.index()][event as usize].get();
        (head != Head::NEVER).then(|| head.time())
    }

    /// Makes [`CpuEvent::Main`] void, which is set.
    #[inline(always)]
    pub fn cancel_main(&self, cpu: CpuId) {
        let [main, ipi, tick, work] = &self.due[cpu.index()];
        main.set(Head::NEVER);
        let earliest = ipi.get().min(tick.get()).min(work.get());
        if self.replay(cpu.index(), earliest) {
            self.note_head();
        }
    }

    /// Makes `event` void.
    pub fn cancel(&self, cpu: CpuId, event: CpuEvent) {
        self.due[cpu.index()][event as usize].set(Head::NEVER);
        self.later(cpu.index());
    }

    /// Adds a turn of a CPU that has none.
    #[inline(always)]
    fn insert_turn(&self, head: Head) {
        let len = self.nr_turns.get() + 1;
        let turns = &self.turns[..=len];
        debug_assert!(
            turns[1..len]
                .iter()
                .all(|turn| turn.get().cpu() != head.cpu()),
            "a CPU waits for one turn"
        );
        let (mut place, before) = turns.split_last().expect("there is one that never comes");
        for earlier in before.iter().rev() {
            if earlier.get() >= head {
                break;
            }
            place.set(earlier.get());
            place = earlier;
        }
        place.set(head);
        self.nr_turns.set(len);
        self.turn.set(turns[len].get());
    }

    /// Sets when it is the turn of `cpu`, which has none yet. It is later than the earliest event, so that
    /// [`EventQueue::head`] stays.
    #[inline(always)]
    pub fn wait_for_turn(&self, cpu: CpuId, time: u64) {
        self.insert_turn(Head::new(time, cpu.0));
    }

    /// Sets when it is the turn of `cpu`, which has none yet.
    #[inline]
    pub fn add_turn(&self, cpu: CpuId, time: u64) {
        let head = Head::new(time, cpu.0);
        self.insert_turn(head);
        self.note_new(head);
    }

    /// Takes the earliest event if it is a CPU's turn; that comes before the CPU's other events at the same time.
    #[inline(always)]
    pub fn pop_turn(&self) -> Option<Head> {
        let head = self.head.get();
        if self.turn.get() != head {
            return None;
        }
        let left = self.nr_turns.get().checked_sub(1)?;
        self.nr_turns.set(left);
        self.turn.set(self.turns[left].get());
        self.note_head();
        Some(head)
    }

    /// Takes the earliest event, which is no turn, if it is a CPU's [`CpuEvent::Main`].
    #[inline(always)]
    pub fn pop_main(&self) -> Option<Head> {
        let head = self.head.get();
        if self.first.get() != head || head == Head::NEVER {
            return None;
        }
        let cpu = head.cpu() as usize;
        let [main, ipi, tick, work] = &self.due[cpu];
        if main.get() != head {
            return None;
        }
        main.set(Head::NEVER);
        self.replay(cpu, ipi.get().min(tick.get()).min(work.get()));
        self.note_head();
        Some(head)
    }

    /// Takes the earliest event, which is no turn, if it is the timer of a task.
    #[inline(always)]
    pub fn pop_task_timer(&self) -> Option<(Head, TaskId)> {
        let head = self.head.get();
        // At one time and CPU the events of the CPU come before timers.
        if self.first.get() == head {
            return None;
        }
        let mut timers = self.timers.borrow_mut();
        let (timer, task) = timers.pop_task(head)?;
        self.pass_first_of(head.cpu(), timer);
        self.timer.set(timers.first());
        self.note_head();
        Some((head, task))
    }

    /// Takes the earliest event of the kinds without a short path.
    #[inline(never)]
    pub fn pop(&self) -> Option<(u64, Event)> {
        let head = self.head.get();
        if self.first.get() != head {
            let mut timers = self.timers.borrow_mut();
            let Entry { head, timer } = timers.pop();
            if let Timer::Task(_) | Timer::Sleep(_) = timer {
                self.pass_first_of(head.cpu(), timer);
            }
            self.timer.set(timers.first());
            self.note_head();
            let event = Event::Timer(CpuId(head.cpu()), timer);
            return Some((head.time(), event));
        }
        if head == Head::NEVER {
            return None;
        }
        let cpu = head.cpu() as usize;
        let due = &self.due[cpu];
        let kind = CpuEvent::ALL
            .into_iter()
            .find(|&kind| due[kind as usize].get() == head)
            .expect("a CPU's player is the earliest of its events");
        due[kind as usize].set(Head::NEVER);
        self.later(cpu);
        Some((head.time(), Event::Cpu(CpuId(head.cpu()), kind)))
    }

    /// Takes the earliest timer of a task on `cpu` if it is a sleep that would end by `latest` at the latest. As in
    /// `__hrtimer_run_queues()`, none is taken past one that must not expire yet.
    #[inline]
    pub fn pop_sleep(&self, cpu: CpuId, latest: u64) -> Option<TaskId> {
        let mut own = self.of_tasks[cpu.index()].borrow_mut();
        let &entry = own.front()?;
        match entry.timer {
            Timer::Sleep(task) if entry.head.time() <= latest => {
                own.pop_front();
                self.take_out(entry);
                Some(task)
            }
            _ => None,
        }
    }

    #[inline(never)]
    fn take_out(&self, entry: Entry) {
        let mut timers = self.timers.borrow_mut();
        timers.take_out(entry);
        self.timer.set(timers.first());
        self.note_head();
    }

    /// The earliest timer of a task on this CPU expires.
    #[inline]
    fn pass_first_of(&self, cpu: u32, timer: Timer) {
        let first = self.of_tasks[cpu as usize].borrow_mut().pop_front();
        debug_assert_eq!(first.map(|entry| entry.timer), Some(timer));
    }

    /// Sets when a task's timer expires, on `cpu`. It has none yet.
    #[inline]
    pub fn add_task_timer(&self, timer: Timer, cpu: CpuId, time: u64) {
        let head = Head::new(time, cpu.0);
        let entry = Entry { head, timer };
        self.timers.borrow_mut().insert(entry);
        let mut own = self.of_tasks[cpu.index()].borrow_mut();
        if own.back().is_none_or(|last| last.head <= head) {
            own.push_back(entry);
        } else {
            let at = own.partition_point(|other| other.head <= head);
            own.insert(at, entry);
        }
        if head < self.timer.get() {
            self.timer.set(head);
            self.note_new(head);
        }
    }

    /// Sets when `timer`, which is no task's, expires, on `cpu`, in place of what was set before.
    pub fn set_timer(&self, timer: Timer, cpu: CpuId, time: u64) {
        let head = Head::new(time, cpu.0);
        let mut timers = self.timers.borrow_mut();
        timers.set(Entry { head, timer });
        self.timer.set(timers.first());
        self.note_head();
    }

    /// A timer that expires soon, and where: after the next one as many others as `later` says.
    pub fn soon(&self, later: usize) -> Option<(CpuId, Timer)> {
        let Entry { head, timer } = self.timers.borrow().soon(later)?;
        Some((CpuId(head.cpu()), timer))
    }

    /// Makes `timer` void. Returns whether it was set.
    pub fn cancel_timer(&self, timer: Timer) -> bool {
        let mut timers = self.timers.borrow_mut();
        let was_set = timers.cancel(timer);
        self.timer.set(timers.first());
        self.note_head();
        was_set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::policy::TimerId;

    fn cpu(n: u32) -> CpuId {
        CpuId(n)
    }

    #[derive(PartialEq, Eq, Debug)]
    enum Popped {
        Turn(CpuId),
        Other(Event),
    }

    /// The executor does not ask whether a task's timer had a slack.
    fn as_told(event: Event) -> Event {
        match event {
            Event::Timer(cpu, Timer::Sleep(task)) => Event::Timer(cpu, Timer::Task(task)),
            event => event,
        }
    }

    /// Takes the earliest event as the executor does, by the short ways or not.
    fn pop_by(queue: &EventQueue, short: bool) -> Option<(u64, Popped)> {
        if let Some(head) = queue.pop_turn() {
            return Some((head.time(), Popped::Turn(CpuId(head.cpu()))));
        }
        if short && let Some(head) = queue.pop_main() {
            let main = Event::Cpu(CpuId(head.cpu()), CpuEvent::Main);
            return Some((head.time(), Popped::Other(main)));
        }
        if short && let Some((head, task)) = queue.pop_task_timer() {
            let timer = Event::Timer(CpuId(head.cpu()), Timer::Task(task));
            return Some((head.time(), Popped::Other(timer)));
        }
        let (time, event) = queue.pop()?;
        Some((time, Popped::Other(as_told(event))))
    }

    fn pop(queue: &EventQueue) -> Option<(u64, Event)> {
        match pop_by(queue, true)? {
            (time, Popped::Other(event)) => Some((time, event)),
            turn => panic!("{turn:?}"),
        }
    }

    fn set_timer(queue: &EventQueue, timer: Timer, cpu: CpuId, time: u64) {
        match timer {
            Timer::Task(_) | Timer::Sleep(_) => queue.add_task_timer(timer, cpu, time),
            timer => queue.set_timer(timer, cpu, time),
        }
    }

    #[test]
    fn ties_go_to_the_lower_cpu_then_to_cpu_events_then_by_age() {
        let queue = EventQueue::new(3);
        set_timer(&queue, Timer::Task(TaskId(7)), cpu(1), 10);
        set_timer(&queue, Timer::Task(TaskId(3)), cpu(1), 10);
        queue.set(cpu(2), CpuEvent::Main, 10);
        queue.set(cpu(1), CpuEvent::Tick, 10);
        queue.set(cpu(1), CpuEvent::Main, 10);
        let order: Vec<_> = std::iter::from_fn(|| pop(&queue)).map(|(_, e)| e).collect();
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
        let queue = EventQueue::new(2);
        let timer = |task| Timer::Task(TaskId(task));
        for (task, time) in [(0, 30), (1, 10), (2, 20)] {
            set_timer(&queue, timer(task), cpu(task % 2), time);
        }
        assert_eq!(queue.soon(0), Some((cpu(1), timer(1))));
        assert_eq!(pop(&queue), Some((10, Event::Timer(cpu(1), timer(1)))));
        let soon: Vec<_> = (0..3).map(|later| queue.soon(later)).collect();
        let expected = [Some((cpu(0), timer(2))), Some((cpu(0), timer(0))), None];
        assert_eq!(soon, expected);
    }

    #[test]
    fn the_last_of_most_cpus_is_not_what_never_comes() {
        let nr_cpus = 1 << CPU_BITS;
        let queue = EventQueue::new(nr_cpus as usize);
        assert_eq!(pop(&queue), None);
        queue.set(cpu(nr_cpus - 1), CpuEvent::Main, 7);
        let main = Event::Cpu(cpu(nr_cpus - 1), CpuEvent::Main);
        assert_eq!(pop(&queue), Some((7, main)));
        assert_eq!(pop(&queue), None);
    }

    #[test]
    fn cancelled_events_never_come() {
        let queue = EventQueue::new(2);
        queue.set(cpu(0), CpuEvent::Main, 5);
        queue.set_timer(Timer::Watchdog, cpu(0), 4);
        set_timer(&queue, Timer::Task(TaskId(0)), cpu(0), 6);
        queue.cancel(cpu(0), CpuEvent::Main);
        assert!(queue.cancel_timer(Timer::Watchdog));
        assert!(!queue.cancel_timer(Timer::Watchdog));
        assert_eq!(
            pop(&queue),
            Some((6, Event::Timer(cpu(0), Timer::Task(TaskId(0)))))
        );
        assert_eq!(pop(&queue), None);
        assert_eq!(queue.head(), Head::NEVER);
    }

    #[test]
    fn what_is_due_after_the_last_instant_comes_last() {
        let queue = EventQueue::new(2);
        set_timer(&queue, Timer::Task(TaskId(0)), cpu(0), u64::MAX);
        queue.set(cpu(1), CpuEvent::Main, Head::LAST - 1);
        assert_eq!(
            pop(&queue),
            Some((Head::LAST - 1, Event::Cpu(cpu(1), CpuEvent::Main)))
        );
        assert_eq!(
            pop(&queue),
            Some((Head::LAST, Event::Timer(cpu(0), Timer::Task(TaskId(0)))))
        );
    }

    /// Against a sorted list, over many operations.
    #[test]
    fn agrees_with_a_sorted_list() {
        const CPUS: u64 = 70;
        let queue = EventQueue::new(CPUS as usize);
        // Time, CPU, kind (turns first, timers last, the run's own before others), age, slot of a timer.
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
            // A task's timer is never set twice; others may be set anew, and made void.
            let of_slot = |slot: u32| match slot {
                1 => Timer::End,
                3 => Timer::Hotplug,
                5 => Timer::Watchdog,
                slot if slot % 4 == 0 => Timer::Sleep(TaskId(slot)),
                slot if slot % 2 == 0 => Timer::Task(TaskId(slot)),
                slot => Timer::Policy(TimerId(slot / 2)),
            };
            let slot = if random(8) == 0 {
                1 + 2 * (slot % 3)
            } else {
                slot
            };
            let timer = of_slot(slot);
            let of_timer = |event: &(u64, u32, u32, u32, u32)| event.2 >= 5 && event.4 == slot;
            let is_set = model.iter().any(of_timer);
            let of_cpu =
                |event: &(u64, u32, u32, u32, u32)| (event.1, event.2) == (on, 1 + kind as u32);
            match random(if age < 30_000 { 10 } else { 16 }) {
                0 => {
                    if slot % 2 == 1 {
                        assert_eq!(queue.cancel_timer(timer), is_set);
                        assert!(!queue.cancel_timer(timer));
                        model.retain(|event| !of_timer(event));
                    }
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
                    if model.iter().all(|event| (event.1, event.2) != (on, 0)) {
                        let turn = (time, on, 0, age, 0);
                        if model.iter().any(|&event| event < turn) && random(2) == 0 {
                            queue.wait_for_turn(cpu(on), time);
                        } else {
                            queue.add_turn(cpu(on), time);
                        }
                        model.push(turn);
                    }
                }
                5..=8 if slot % 2 == 1 || !is_set => {
                    model.retain(|event| !of_timer(event));
                    // Of the run's own, which are at most one each, it matters only which it is.
                    model.push(match slot {
                        1 | 3 | 5 => (time, on, 5, slot, slot),
                        _ => (time, on, 6, age, slot),
                    });
                    set_timer(&queue, timer, cpu(on), time);
                }
                9 if random(2) == 0 => {
                    let mut own: Vec<_> = model
                        .iter()
                        .filter(|event| event.1 == on && event.2 == 6 && event.4 % 2 == 0)
                        .copied()
                        .collect();
                    own.sort_unstable();
                    let first = own
                        .first()
                        .filter(|event| event.0 <= time && event.4 % 4 == 0);
                    let expected = first.map(|event| TaskId(event.4));
                    assert_eq!(queue.pop_sleep(cpu(on), time), expected);
                    model.retain(|event| Some(event) != first);
                }
                _ => {
                    let first = model.iter().min().copied();
                    model.retain(|&event| Some(event) != first);
                    let expected = first.map(|(time, on, kind, _, slot)| {
                        let event = match kind {
                            0 => Popped::Turn(cpu(on)),
                            5.. => Popped::Other(as_told(Event::Timer(cpu(on), of_slot(slot)))),
                            _ => {
                                Popped::Other(Event::Cpu(cpu(on), CpuEvent::ALL[kind as usize - 1]))
                            }
                        };
                        (time, event)
                    });
                    assert_eq!(pop_by(&queue, random(2) == 0), expected);
                }
            }
            let first = model.iter().min();
            let head = first.map_or(Head::NEVER, |&(time, on, ..)| Head::new(time, on));
            assert_eq!(queue.head(), head);
            assert_eq!(queue.horizon().get(), head.time());
        }
    }
}
