//! Priority inversions: a task starts although one of a higher priority waits that could run there.

use std::collections::VecDeque;

use schedlab_trace::{CpuId, CpuSet, DEADLINE_PRIORITY, Instant, TaskId, TaskMeta};

/// Counts priority inversions.
///
/// Every task of most runs has the same priority; then nothing is kept but the number of definitions.
/// From the second priority on, the waiting tasks are kept by level, and changes are put in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inversions {
    count: u64,
    /// The event that came last, by its instant; of the same instant in their order of arrival.
    pending: VecDeque<(Instant, Change)>,
    tasks: Vec<Place>,
    /// The levels there are, ascending, each with its waiting tasks in no order.
    levels: Vec<(u8, Vec<TaskId>)>,
}

/// Number of changes that are buffered to sort them by time: a CPU reports its changes up to one uninterrupted path
/// out of order.
const PENDING: usize = 1024;

#[derive(Clone, Debug)]
enum Change {
    Waits(TaskId),
    Starts(TaskId, CpuId),
    Level(TaskId, u8),
    Allows(TaskId, Option<Box<CpuSet>>),
    Throttled(TaskId, bool),
}

/// One task.
#[derive(Clone, Debug, Default)]
struct Place {
    /// When its last report was: never before an earlier event.
    told: Instant,
    level: u8,
    waits: bool,
    /// It waits for its next period, not for a CPU; …
    throttled: bool,
    /// … when that begins, for a CPU.
    waits_then: bool,
    /// Where in its level's list.
    index: usize,
    /// CPUs it may run on; `None`: all.
    allowed: Option<Box<CpuSet>>,
}

/// `SCHED_IDLE`, then nice 19 to −20, then real-time priorities 1 to 99, then deadline tasks, whatever their deadlines.
fn level(meta: &TaskMeta) -> u8 {
    match meta.rt_priority {
        0 if meta.idle => 0,
        0 => 1 + 19_i8.saturating_sub(meta.nice).clamp(0, 39).unsigned_abs(),
        priority => 40 + priority.min(DEADLINE_PRIORITY),
    }
}

impl Inversions {
    /// Starts of a task while one of a higher level waited that could have run there.
    pub(crate) fn count(&self) -> u64 {
        let mut all = self.clone();
        all.apply_but(0);
        all.count
    }

    /// Begins anew: earlier inversions do not count.
    pub(crate) fn begins(&mut self) {
        self.apply_but(0);
        self.count = 0;
    }

    /// Returns whether tasks of different levels exist, so that waiting tasks must be reported.
    #[inline]
    pub(crate) fn is_mixed(&self) -> bool {
        self.levels.len() > 1
    }

    /// Records a task that is new or has another level now. Returns true if from now on waiting tasks must be
    /// reported, those that wait already at once.
    pub(crate) fn define(
        &mut self,
        at: Instant,
        task: TaskId,
        meta: &TaskMeta,
        nr_cpus: usize,
    ) -> bool {
        let level = level(meta);
        let was_mixed = self.is_mixed();
        if let Err(at) = self.levels.binary_search_by_key(&level, |one| one.0) {
            self.levels.insert(at, (level, Vec::new()));
        }
        self.comes(at, task, Change::Level(task, level));
        self.allow(at, task, &meta.affinity, nr_cpus);
        self.is_mixed() && !was_mixed
    }

    /// The CPUs that a task may use from now on.
    pub(crate) fn allow(&mut self, at: Instant, task: TaskId, allowed: &CpuSet, nr_cpus: usize) {
        let all = allowed.len() >= nr_cpus;
        let allowed = (!all).then(|| Box::new(allowed.clone()));
        self.comes(at, task, Change::Allows(task, allowed));
    }

    /// A task waits for a CPU. Only where [`Inversions::is_mixed`].
    pub(crate) fn waits(&mut self, at: Instant, task: TaskId) {
        self.comes(at, task, Change::Waits(task));
    }

    /// A task is throttled, or is so no more.
    pub(crate) fn throttled(&mut self, at: Instant, task: TaskId, throttled: bool) {
        self.comes(at, task, Change::Throttled(task, throttled));
    }

    /// A task starts on a CPU. Only where [`Inversions::is_mixed`].
    pub(crate) fn starts(&mut self, at: Instant, task: TaskId, cpu: CpuId) {
        self.comes(at, task, Change::Starts(task, cpu));
    }

    fn comes(&mut self, at: Instant, task: TaskId, change: Change) {
        let place = self.place(task);
        // The actions of one task are reported in order.
        place.told = place.told.max(at);
        let at = place.told;
        // Nearly always the last one.
        let index = self.pending.partition_point(|one| one.0 <= at);
        self.pending.insert(index, (at, change));
        self.apply_but(if self.is_mixed() { PENDING } else { 0 });
    }

    /// Applies the earliest changes until so many are left.
    fn apply_but(&mut self, left: usize) {
        while self.pending.len() > left {
            let (_, change) = self.pending.pop_front().expect("some are left");
            match change {
                Change::Waits(task) => self.begins_to_wait(task),
                Change::Starts(task, cpu) => self.takes(task, cpu),
                Change::Level(task, level) => self.moves(task, level),
                Change::Allows(task, allowed) => self.place(task).allowed = allowed,
                Change::Throttled(task, throttled) => self.throttle(task, throttled),
            }
        }
    }

    fn moves(&mut self, task: TaskId, level: u8) {
        let waits = self.place(task).waits;
        self.stops_waiting(task);
        self.place(task).level = level;
        if waits {
            self.begins_to_wait(task);
        }
    }

    fn place(&mut self, task: TaskId) -> &mut Place {
        if task.index() >= self.tasks.len() {
            self.tasks.resize(task.index() + 1, Place::default());
        }
        &mut self.tasks[task.index()]
    }

    fn throttle(&mut self, task: TaskId, throttled: bool) {
        let waits = self.place(task).waits;
        self.stops_waiting(task);
        let place = self.place(task);
        let waits_then = std::mem::replace(&mut place.waits_then, throttled && waits);
        place.throttled = throttled;
        if !throttled && (waits || waits_then) {
            self.begins_to_wait(task);
        }
    }

    fn begins_to_wait(&mut self, task: TaskId) {
        let place = self.place(task);
        if place.throttled {
            place.waits_then = true;
            return;
        }
        if place.waits {
            return;
        }
        place.waits = true;
        let level = place.level;
        let position = self.position(level);
        let list = &mut self.levels[position].1;
        list.push(task);
        let index = list.len() - 1;
        self.place(task).index = index;
    }

    fn position(&self, level: u8) -> usize {
        let position = self.levels.binary_search_by_key(&level, |one| one.0);
        position.expect("every task that waits was defined")
    }

    fn stops_waiting(&mut self, task: TaskId) {
        let place = self.place(task);
        if !place.waits {
            return;
        }
        place.waits = false;
        let (level, index) = (place.level, place.index);
        let position = self.position(level);
        let list = &mut self.levels[position].1;
        list.swap_remove(index);
        if let Some(&moved) = list.get(index) {
            self.place(moved).index = index;
        }
    }

    fn takes(&mut self, task: TaskId, cpu: CpuId) {
        self.stops_waiting(task);
        let level = self.place(task).level;
        let allows = |waiting: &TaskId| {
            let allowed = &self.tasks[waiting.index()].allowed;
            allowed.as_ref().is_none_or(|set| set.contains(cpu))
        };
        let above = self.levels.iter().rev().take_while(|one| one.0 > level);
        let inverted = above.flat_map(|one| &one.1).any(allows);
        self.count += u64::from(inverted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_the_kernel() {
        let with = |nice, rt_priority, idle| {
            level(&TaskMeta {
                comm: String::new(),
                nice,
                affinity: CpuSet::default(),
                rt_priority,
                idle,
            })
        };
        let of = |nice, rt_priority| with(nice, rt_priority, false);
        assert_eq!((of(19, 0), of(0, 0), of(-20, 0)), (1, 20, 40));
        assert_eq!((of(19, 1), of(-20, 99)), (41, 139));
        assert_eq!(of(0, DEADLINE_PRIORITY), 140);
        // Below all others, whatever its nice level.
        assert_eq!((with(19, 0, true), with(-20, 0, true)), (0, 0));
    }
}
