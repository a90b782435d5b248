//! Holds the rest of a watched run beside its times: the timeline, the slowest tasks, waits by who waited behind whom, and locks.

use std::collections::BTreeMap;

use schedlab_figures::{Kind, Lane, LaneMark as Mark, Stretch, Timeline};

use crate::path::{Decomposed, Decomposer, Lock, Piece, Times};

/// Tasks of the timeline, and of the table of waits: those that wait most.
const SLOWEST: usize = 12;
/// CPUs of the timeline.
const CPUS_MAX: usize = 64;
/// Stretches of a timeline that are kept; a page may have fewer.
const STRETCHES_MAX: usize = 200_000;
/// Pairs of names, of which one waited behind the other, that are kept.
const BEHIND_MAX: usize = 100;
/// So many points tell a distribution.
const QUANTILES: usize = 200;
/// Of more stretches it is not counted when a CPU idled while a task waited.
const SWEPT_MAX: usize = 4_000_000;

/// A run that was watched.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Watched {
    /// Where its time went.
    pub time: Decomposed,
    /// CPUs, and the tasks that wait most.
    pub timeline: Timeline,
    /// Stretches of the timeline that were shorter are merged with others; 0: none.
    pub merged_below_ns: u64,
    /// CPUs of the run, of which the timeline has the first ones.
    pub cpus: usize,
    /// Whether the run was too long to keep all of it: then the timeline ends early.
    pub is_cut: bool,
    /// Locks that were taken or tried, with the longest held first.
    pub locks: Vec<Lock>,
    /// The time of which their sums are: from the begin of the part that counts until the last event.
    pub span_ns: u64,
    /// Tasks, with the longest waits for a CPU first.
    pub slowest: Vec<Slow>,
    /// The longest wait of all, and the task's name.
    pub longest: Option<(String, Longest)>,
    /// Waits by who waited behind whom, with the longest first; of very many pairs of names the first ones.
    pub behind: Vec<Behind>,
    /// All waits for a CPU together.
    pub waits_ns: u64,
    /// Lengths of waits for a CPU, in ns, each with the share of waits that are longer, in percent.
    pub waits: Vec<(u64, f64)>,
    /// The share of the time in which a CPU idles and a task waits, in percent; absent of very long runs and of
    /// real kernels.
    pub idle_while_waiting_pct: Option<f64>,
}

/// A task and its waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slow {
    /// Its name and number.
    pub name: String,
    /// Its time.
    pub times: Times,
    /// How often it began to run on another CPU than before.
    pub migrations: u64,
    /// Its longest wait for a CPU.
    pub longest: Option<Longest>,
}

/// A wait for a CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Longest {
    /// When it began, from the begin of the run.
    pub at_ns: u64,
    /// Its length.
    pub ns: u64,
    /// The CPU that ended it; absent if it had not ended when the run did.
    pub cpu: Option<u32>,
    /// The task that ran on that CPU for most of it; absent if none did.
    pub behind: Option<String>,
}

/// How long tasks of a name waited while tasks of another name ran on the CPU that they got in the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Behind {
    /// The name of the tasks that waited.
    pub waiter: String,
    /// The tasks that ran.
    pub runner: Runner,
    /// How long, of all tasks of these names together.
    pub ns: u64,
}

/// The tasks to which a wait is put down.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Runner {
    /// Tasks of this name.
    Task(String),
    /// Nobody: the CPU idled, changed tasks or had none that the events show.
    Nobody,
    /// Nobody can know: the wait had not ended when the run did, so no CPU is the one that ended it.
    NotEnded,
}

/// Kinds of stretches of the timeline.
const RUNS: u32 = 0;
const SPINS: u32 = 1;
const RUNS_ON: u32 = 2;
const WAITS: u32 = 3;
const SLEEPS: u32 = 4;

fn kinds() -> Vec<Kind> {
    let kind = |mark, words: &str| Kind {
        mark,
        words: words.to_owned(),
    };
    vec![
        kind(Mark::Box, "runs"),
        kind(Mark::Crossed, "spins for the lock"),
        kind(Mark::Box, "runs on"),
        kind(Mark::Hatched, "waits for a CPU behind"),
        kind(Mark::Line, "sleeps until woken by"),
    ]
}

impl Decomposer {
    /// Takes apart what was heard, with a timeline.
    pub fn watched(mut self, nr_cpus: usize, is_done: bool) -> Watched {
        self.close(is_done);
        let time = self.decomposed();
        let lanes = self.lanes(nr_cpus);
        let order = self.slowest();
        let begun = time.begun_ns;
        let waits = self.all_waits(begun);
        let mut timeline = self.timeline(&lanes, &order, &time);
        let merged_below_ns = timeline.merge(STRETCHES_MAX);
        Watched {
            merged_below_ns,
            cpus: nr_cpus,
            is_cut: self.is_cut(),
            slowest: order
                .iter()
                .map(|task| self.slow(*task, &lanes, begun))
                .collect(),
            // Of equals the first.
            longest: waits
                .iter()
                .rev()
                .max_by_key(|wait| wait.to - wait.from)
                .map(|wait| (self.name(wait.task), self.longest(wait, &lanes, begun))),
            behind: self.behind(&waits, &lanes),
            waits_ns: waits.iter().map(|wait| wait.to - wait.from).sum(),
            idle_while_waiting_pct: match self.is_cut() || !self.has_modes() {
                true => None,
                // Without modes other programs' time on a CPU looks idle.
                false => idle_while_waiting(&waits, &lanes, &time),
            },
            waits: quantiles(waits.iter().map(|wait| wait.to - wait.from).collect()),
            locks: self.locks(),
            span_ns: self.span_ns(),
            timeline,
            time,
        }
    }

    /// The tasks that wait most.
    fn slowest(&self) -> Vec<u32> {
        let mut order: Vec<u32> = self.counted().collect();
        let waits = |task: &u32| self.times(*task).waits_ns();
        order.retain(|task| waits(task) > 0);
        order.sort_by_key(|task| (std::cmp::Reverse(waits(task)), *task));
        order.truncate(SLOWEST);
        order
    }

    fn slow(&self, task: u32, lanes: &[Vec<Run>], begun: u64) -> Slow {
        let own = self.waits_of(task, begun);
        // Of equals the first.
        let longest = own.iter().rev().max_by_key(|wait| wait.to - wait.from);
        Slow {
            name: self.name(task),
            times: self.times(task),
            migrations: self.migrations(task),
            longest: longest.map(|wait| self.longest(wait, lanes, begun)),
        }
    }

    fn longest(&self, wait: &Wait, lanes: &[Vec<Run>], begun: u64) -> Longest {
        Longest {
            at_ns: wait.from - begun,
            ns: wait.to - wait.from,
            cpu: wait.cpu,
            behind: most_of(lanes, wait).map(|task| self.name(task)),
        }
    }

    /// Waits of a task that a CPU or the end of the run ended.
    fn waits_of(&self, task: u32, begun: u64) -> Vec<Wait> {
        let pieces = self.pieces(task);
        let next = pieces.iter().skip(1).map(|next| Some(next.2));
        let of = |(&(from, to, piece), next): (&(u64, u64, Piece), Option<Piece>)| {
            let cpu = match (piece, next) {
                (Piece::Waits, Some(Piece::Runs(cpu))) => Some(cpu),
                (Piece::WaitsOn, _) => None,
                _ => return None,
            };
            let from = from.max(begun);
            (to > begun).then_some(Wait {
                task,
                from,
                to,
                cpu,
            })
        };
        let pairs = pieces.iter().zip(next.chain([None]));
        pairs.filter_map(of).collect()
    }

    fn all_waits(&self, begun: u64) -> Vec<Wait> {
        self.counted()
            .flat_map(|task| self.waits_of(task, begun))
            .collect()
    }

    /// The runs on each CPU, in the order of time.
    fn lanes(&self, nr_cpus: usize) -> Vec<Vec<Run>> {
        let mut lanes: Vec<Vec<Run>> = vec![Vec::new(); nr_cpus];
        for task in 0..self.nr_tasks() {
            for (from, to, piece) in self.pieces(task) {
                if let Piece::Runs(cpu) = piece
                    && let Some(lane) = lanes.get_mut(cpu as usize)
                {
                    lane.push(Run { from, to, task });
                }
            }
        }
        for lane in &mut lanes {
            lane.sort_by_key(|run| (run.from, run.to));
        }
        lanes
    }

    /// Names of tasks with their numbers, and the number of each task's name.
    fn numbered(&self) -> (Vec<&str>, Vec<usize>) {
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut names = Vec::new();
        let of_tasks = (0..self.nr_tasks()).map(|task| {
            let name = self.comm(task);
            *numbers.entry(name).or_insert_with(|| {
                names.push(name);
                names.len() - 1
            })
        });
        let of_tasks = of_tasks.collect();
        (names, of_tasks)
    }

    /// The waits by who waited behind whom. `waits` are in the order of tasks.
    fn behind(&self, waits: &[Wait], lanes: &[Vec<Run>]) -> Vec<Behind> {
        let (names, number) = self.numbered();
        let by_name: Vec<BTreeMap<usize, Sums>> = lanes
            .iter()
            .map(|lane| {
                let mut sums: BTreeMap<usize, Sums> = BTreeMap::new();
                for run in lane {
                    let name = number[run.task as usize];
                    sums.entry(name).or_default().push(*run);
                }
                sums
            })
            .collect();
        // Behind the names: nobody, and waits that had not ended.
        let (nobody, not_ended) = (names.len(), names.len() + 1);
        let mut by_waiter: BTreeMap<usize, Vec<&Wait>> = BTreeMap::new();
        for wait in waits {
            let waiter = number[wait.task as usize];
            by_waiter.entry(waiter).or_default().push(wait);
        }
        let mut found: Vec<(u64, usize, usize)> = Vec::new();
        for (waiter, waits) in by_waiter {
            let mut sums = vec![0; names.len() + 2];
            for wait in waits {
                put_down(
                    wait,
                    lanes,
                    &by_name,
                    &number,
                    &mut sums,
                    (nobody, not_ended),
                );
            }
            let own = (0..).zip(sums).filter(|(_, ns)| *ns > 0);
            found.extend(own.map(|(runner, ns)| (ns, waiter, runner)));
            // As many pairs as there are names, squared, would fill the memory.
            let key = |&(ns, waiter, runner): &(u64, usize, usize)| {
                let runner = names.get(runner).ok_or(runner);
                (std::cmp::Reverse(ns), names[waiter], runner)
            };
            found.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
            found.truncate(BEHIND_MAX);
        }
        let told = found.into_iter().map(|(ns, waiter, runner)| Behind {
            waiter: names[waiter].to_owned(),
            runner: match names.get(runner) {
                Some(name) => Runner::Task((*name).to_owned()),
                None if runner == nobody => Runner::Nobody,
                None => Runner::NotEnded,
            },
            ns,
        });
        told.collect()
    }

    fn timeline(&self, lanes: &[Vec<Run>], order: &[u32], time: &Decomposed) -> Timeline {
        let nr_tasks = self.nr_tasks();
        let mut names: Vec<String> = (0..nr_tasks).map(|task| self.name(task)).collect();
        let cpus_from = names.len() as u32;
        names.extend((0..lanes.len()).map(|cpu| format!("CPU {cpu}")));
        let locks_from = names.len() as u32;
        names.extend(self.lock_names());
        let others = names.len() as u32;
        let (nobody, timer, no_lock, no_end) = (others, others + 1, others + 2, others + 3);
        let others = [
            "nobody",
            "a timer or a device",
            "(unknown)",
            "nobody: the run ends",
        ];
        names.extend(others.map(str::to_owned));
        let (from_ns, to_ns) = (time.begun_ns, time.begun_ns + time.makespan_ns);
        let stretch = |from: u64, to: u64, kind: u32, name: u32| {
            let (from_ns, to_ns) = (from.max(from_ns), to.min(to_ns));
            (to_ns > from_ns).then_some(Stretch {
                from_ns,
                to_ns,
                kind,
                name,
                more: 0,
            })
        };
        let spins = self.spins();
        let mut shown: Vec<Lane> = Vec::new();
        for (cpu, lane) in lanes.iter().enumerate().take(CPUS_MAX) {
            let own = spins.iter().filter(|spin| spin.cpu as usize == cpu);
            let own: Vec<Run> = own
                .map(|spin| Run {
                    from: spin.from,
                    to: spin.to,
                    task: spin.lock.map_or(no_lock, |lock| locks_from + lock),
                })
                .collect();
            let parts = without(lane, &own).into_iter().map(|run| (run, RUNS));
            let mut parts: Vec<(Run, u32)> =
                parts.chain(own.iter().map(|spin| (*spin, SPINS))).collect();
            parts.sort_by_key(|(run, _)| run.from);
            shown.push(Lane {
                label: format!("CPU {cpu}"),
                stretches: parts
                    .into_iter()
                    .filter_map(|(run, kind)| stretch(run.from, run.to, kind, run.task))
                    .collect(),
            });
        }
        for &task in order {
            let pieces = self.pieces(task);
            let next = |place: usize| match pieces.get(place + 1).map(|one| one.2) {
                Some(Piece::Runs(cpu)) => Some(cpu),
                _ => None,
            };
            let stretches = pieces.iter().enumerate();
            let stretches = stretches.filter_map(|(place, &(from, to, piece))| {
                let (kind, name) = match piece {
                    Piece::Runs(cpu) => (RUNS_ON, cpus_from + cpu),
                    Piece::Waits => {
                        let wait = Wait {
                            task,
                            from,
                            to,
                            cpu: next(place),
                        };
                        (WAITS, most_of(lanes, &wait).unwrap_or(nobody))
                    }
                    Piece::WaitsOn => (WAITS, no_end),
                    Piece::Woken(waker) => (SLEEPS, waker),
                    Piece::Sleeps => (SLEEPS, timer),
                    Piece::SleepsOn => (SLEEPS, no_end),
                };
                stretch(from, to, kind, name)
            });
            shown.push(Lane {
                label: self.name(task),
                stretches: stretches.collect(),
            });
        }
        Timeline {
            title: format!(
                "CPUs, and the tasks that wait most ({} of {})",
                order.len(),
                self.counted().count()
            ),
            from_ns,
            to_ns,
            kinds: kinds(),
            names,
            lanes: shown,
        }
    }
}

/// A time in which a task ran on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    from: u64,
    to: u64,
    task: u32,
}

/// A wait of a task for the CPU that it got in the end, if it got one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wait {
    task: u32,
    from: u64,
    to: u64,
    cpu: Option<u32>,
}

/// Runs in the order of time, with the sum of the times of those before each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Sums {
    runs: Vec<Run>,
    before: Vec<u64>,
}

impl Sums {
    fn push(&mut self, run: Run) {
        let last = self.runs.last().map_or(0, |run| run.to - run.from);
        let before = self.before.last().map_or(0, |before| before + last);
        self.runs.push(run);
        self.before.push(before);
    }

    /// The time of these runs within a time.
    fn during(&self, from: u64, to: u64) -> u64 {
        let range = overlapping(&self.runs, from, to);
        let Some(last) = range.clone().next_back() else {
            return 0;
        };
        let (a, b) = (self.runs[range.start], self.runs[last]);
        let sum = self.before[last] + (b.to - b.from) - self.before[range.start];
        sum - from.saturating_sub(a.from) - b.to.saturating_sub(to)
    }
}

/// Adds the parts of a wait to the sums of those to whom they are put down, by the numbers of their names.
fn put_down(
    wait: &Wait,
    lanes: &[Vec<Run>],
    by_name: &[BTreeMap<usize, Sums>],
    number: &[usize],
    sums: &mut [u64],
    (nobody, not_ended): (usize, usize),
) {
    let mut left = wait.to - wait.from;
    let Some(cpu) = wait.cpu.map(|cpu| cpu as usize) else {
        sums[not_ended] += left;
        return;
    };
    let mut add = |runner: usize, ns: u64| {
        sums[runner] += ns;
        left = left.saturating_sub(ns);
    };
    let lane = lanes.get(cpu).map_or(&[][..], Vec::as_slice);
    let runs = overlapping(lane, wait.from, wait.to).len();
    // A long wait asks each name for its sum, a short one each run: neither many runs nor many names cost much.
    match by_name.get(cpu).filter(|names| runs > names.len()) {
        Some(names) => {
            for (runner, own) in names {
                add(*runner, own.during(wait.from, wait.to));
            }
        }
        None => {
            for (run, ns) in during(lanes, wait) {
                add(number[run.task as usize], ns);
            }
        }
    }
    sums[nobody] += left;
}

/// The places of the runs that lie within a time, or partly.
fn overlapping(runs: &[Run], from: u64, to: u64) -> std::ops::Range<usize> {
    let first = runs.partition_point(|run| run.to <= from);
    let last = runs.partition_point(|run| run.from < to);
    first..last.max(first)
}

/// The runs on the CPU during a wait, each with its time.
fn during<'a>(lanes: &'a [Vec<Run>], wait: &Wait) -> impl Iterator<Item = (&'a Run, u64)> {
    let (from, to, task) = (wait.from, wait.to, wait.task);
    let lane = wait.cpu.and_then(|cpu| lanes.get(cpu as usize));
    let lane = lane.map_or(&[][..], Vec::as_slice);
    let runs = lane[overlapping(lane, from, to)].iter();
    runs.filter(move |run| run.task != task)
        .map(move |run| (run, run.to.min(to) - run.from.max(from)))
}

/// The task that ran on the CPU for most of a wait.
fn most_of(lanes: &[Vec<Run>], wait: &Wait) -> Option<u32> {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for (run, ns) in during(lanes, wait) {
        *sums.entry(run.task).or_default() += ns;
    }
    let most = sums.into_iter().rev().max_by_key(|(_, ns)| *ns);
    most.map(|(task, _)| task)
}

/// Runs without the times of others on the same CPU.
fn without(runs: &[Run], others: &[Run]) -> Vec<Run> {
    let mut left = Vec::with_capacity(runs.len());
    let mut place = 0;
    for run in runs {
        let mut from = run.from;
        while others.get(place).is_some_and(|other| other.to <= from) {
            place += 1;
        }
        for other in others[place..]
            .iter()
            .take_while(|other| other.from < run.to)
        {
            if other.from > from {
                left.push(Run {
                    from,
                    to: other.from,
                    ..*run
                });
            }
            from = from.max(other.to);
        }
        if from < run.to {
            left.push(Run { from, ..*run });
        }
    }
    left
}

/// Lengths with the share of all that are longer, in percent.
fn quantiles(mut lengths: Vec<u64>) -> Vec<(u64, f64)> {
    lengths.sort_unstable();
    let all = lengths.len();
    let step = all.div_ceil(QUANTILES).max(1);
    let places = (0..all).step_by(step).chain(all.checked_sub(1));
    let mut points: Vec<(u64, f64)> = places
        .map(|place| {
            let length = lengths[place];
            let longer = all - lengths.partition_point(|one| *one <= length);
            (length, 100.0 * longer as f64 / all as f64)
        })
        .collect();
    points.dedup();
    points
}

/// The share of the time in which a CPU has nothing to run and a task waits, in percent.
fn idle_while_waiting(waits: &[Wait], lanes: &[Vec<Run>], time: &Decomposed) -> Option<f64> {
    let runs: usize = lanes.iter().map(Vec::len).sum();
    if waits.len() + runs > SWEPT_MAX || time.makespan_ns == 0 {
        return None;
    }
    // (time, waiting tasks, running ones).
    let mut steps: Vec<(u64, i64, i64)> = Vec::new();
    for wait in waits {
        steps.extend([(wait.from, 1, 0), (wait.to, -1, 0)]);
    }
    for run in lanes.iter().flatten() {
        steps.extend([(run.from, 0, 1), (run.to, 0, -1)]);
    }
    steps.sort_unstable();
    let end = time.begun_ns + time.makespan_ns;
    let (mut waiting, mut running, mut last, mut sum) = (0, 0, time.begun_ns, 0);
    for (at, more_waiting, more_running) in steps {
        let now = at.clamp(time.begun_ns, end);
        if waiting > 0 && running < lanes.len() as i64 {
            sum += now - last;
        }
        last = now;
        waiting += more_waiting;
        running += more_running;
    }
    Some(100.0 * sum as f64 / time.makespan_ns as f64)
}

#[cfg(test)]
mod tests {
    use schedlab_trace::{CpuMode, Duration, Event, LockClass, LockId, LockPath, PrevState};

    use super::*;
    use crate::story::Story;

    /// On CPU 0 a runs 0–40 and b 40–100; b could run since 10. CPU 1 idles all the time, but for c, which runs there 60–70 and
    /// could run since 60. From 42 on CPU 0 spins 3 ns for the lock, and holds it until 50.
    fn story() -> Watched {
        let mut story = Story::new(&["a", "b", "c"]);
        story
            .mode(0, 0, CpuMode::Sched)
            .wakes(0, 0, 0)
            .switch(0, 0, None, Some(0))
            .mode(0, 0, CpuMode::User)
            .mode(9, 0, CpuMode::Kernel)
            .wakes(10, 0, 1)
            .mode(10, 0, CpuMode::User)
            .switch(40, 0, Some((0, PrevState::Exited)), Some(1))
            .mode(42, 0, CpuMode::Sched)
            .at(
                42,
                0,
                Event::LockContended {
                    lock: LockId(0),
                    path: LockPath::Schedule,
                },
            )
            .mode(42, 0, CpuMode::Spin)
            .mode(45, 0, CpuMode::Sched)
            .at(
                45,
                0,
                Event::LockAcquired {
                    lock: LockId(0),
                    path: LockPath::Schedule,
                    waited: Duration::from_ns(3),
                    contended: true,
                    trylock: false,
                },
            )
            .at(
                50,
                0,
                Event::LockReleased {
                    lock: LockId(0),
                    held: Duration::from_ns(5),
                },
            )
            .mode(50, 0, CpuMode::User)
            .wakes(60, 0, 2)
            .switch(60, 1, None, Some(2))
            .switch(70, 1, Some((2, PrevState::Exited)), None)
            .switch(100, 0, Some((1, PrevState::Exited)), None);
        story.0.watched(2, true)
    }

    #[test]
    fn a_wait_is_behind_the_task_that_ran_on_the_cpu() {
        let watched = story();
        let behind = Longest {
            at_ns: 10,
            ns: 30,
            cpu: Some(0),
            behind: Some("a 0".to_owned()),
        };
        assert_eq!(watched.longest, Some(("b 1".to_owned(), behind.clone())));
        assert_eq!(watched.slowest.len(), 1, "c did not wait");
        assert_eq!(watched.slowest[0].longest, Some(behind));
        let expected = Behind {
            waiter: "b".to_owned(),
            runner: Runner::Task("a".to_owned()),
            ns: 30,
        };
        assert_eq!(watched.behind, [expected]);
        assert_eq!(watched.waits, [(30, 0.0)]);
        // b waits 10–40 while CPU 1 idles.
        assert_eq!(watched.idle_while_waiting_pct, Some(30.0));
        assert!(!watched.is_cut);
    }

    #[test]
    fn locks_have_their_sums() {
        let expected = Lock {
            name: "queue".to_owned(),
            class: LockClass::RunQueue,
            acquisitions: 1,
            contended: 1,
            failed: 0,
            waited_ns: 3,
            held_ns: 5,
        };
        assert_eq!(story().locks, [expected]);
    }

    /// The lock is held until the run ends, long after the last task.
    #[test]
    fn sums_of_locks_are_of_the_whole_run() {
        let mut story = Story::new(&["a"]);
        story
            .wakes(0, 0, 0)
            .switch(0, 0, None, Some(0))
            .at(10, 0, Event::Begin)
            .switch(50, 0, Some((0, PrevState::Exited)), None)
            .mode(110, 0, CpuMode::Idle);
        let watched = story.0.watched(1, true);
        assert_eq!((watched.time.makespan_ns, watched.span_ns), (40, 100));
    }

    /// Runs of 1 to 5 ns with gaps, of three tasks in turn; a gap of 2 ns is of nobody.
    #[test]
    fn sums_of_runs_within_a_time_are_those_of_each_run() {
        let mut at = 0;
        let runs: Vec<Run> = (0..60)
            .map(|n| {
                let from = at + n % 3;
                at = from + 1 + n % 5;
                let task = (n % 3) as u32;
                Run { from, to: at, task }
            })
            .collect();
        let end = at;
        let lanes = vec![runs];
        for task in 0..3 {
            let mut sums = Sums::default();
            let own = lanes[0].iter().filter(|run| run.task == task);
            own.for_each(|run| sums.push(*run));
            for from in 0..end {
                for to in from..=end {
                    let wait = Wait {
                        task: 9,
                        from,
                        to,
                        cpu: Some(0),
                    };
                    let each = during(&lanes, &wait).filter(|(run, _)| run.task == task);
                    let each: u64 = each.map(|(_, ns)| ns).sum();
                    assert_eq!(sums.during(from, to), each, "{from}..{to}");
                }
            }
        }
    }

    /// b waits for 40 runs of two names on its CPU, and c for one of them.
    #[test]
    fn a_long_wait_is_behind_all_that_ran() {
        let mut story = Story::new(&["x", "y", "b", "c"]);
        story.wakes(0, 0, 2);
        for n in 0..40_u32 {
            let (at, task) = (u64::from(n) * 10, n % 2);
            story
                .wakes(at, 0, task)
                .switch(at, 0, None, Some(task))
                .switch(at + 6, 0, Some((task, PrevState::Blocked)), None);
        }
        story
            .wakes(391, 0, 3)
            .switch(400, 0, None, Some(3))
            .switch(405, 0, Some((3, PrevState::Exited)), Some(2))
            .switch(410, 0, Some((2, PrevState::Exited)), None);
        let watched = story.0.watched(1, true);
        let told = |waiter: &str| -> Vec<(Runner, u64)> {
            let of = watched.behind.iter().filter(|one| one.waiter == waiter);
            of.map(|one| (one.runner.clone(), one.ns)).collect()
        };
        let task = |name: &str| Runner::Task(name.to_owned());
        assert_eq!(
            told("b"),
            [
                (Runner::Nobody, 160),
                (task("x"), 120),
                (task("y"), 120),
                (task("c"), 5)
            ]
        );
        assert_eq!(told("c"), [(task("y"), 5), (Runner::Nobody, 4)]);
    }

    #[test]
    fn a_timeline_has_cpus_spins_and_waits() {
        let watched = story();
        let timeline = &watched.timeline;
        assert_eq!((timeline.from_ns, timeline.to_ns), (0, 100));
        let told = |lane: usize| -> Vec<(u64, u64, String)> {
            let stretches = timeline.lanes[lane].stretches.iter();
            let words = |one: &Stretch| {
                let kind = &timeline.kinds[one.kind as usize].words;
                format!("{kind} {}", timeline.names[one.name as usize])
            };
            stretches
                .map(|one| (one.from_ns, one.to_ns, words(one)))
                .collect()
        };
        let owned = |all: &[(u64, u64, &str)]| -> Vec<(u64, u64, String)> {
            all.iter()
                .map(|(from, to, what)| (*from, *to, (*what).to_owned()))
                .collect()
        };
        assert_eq!(
            told(0),
            owned(&[
                (0, 40, "runs a 0"),
                (40, 42, "runs b 1"),
                (42, 45, "spins for the lock queue"),
                (45, 100, "runs b 1"),
            ])
        );
        assert_eq!(told(1), owned(&[(60, 70, "runs c 2")]));
        assert_eq!(timeline.lanes[2].label, "b 1");
        assert_eq!(
            told(2),
            owned(&[
                (10, 40, "waits for a CPU behind a 0"),
                (40, 100, "runs on CPU 0"),
            ])
        );
        assert_eq!((watched.merged_below_ns, watched.cpus), (0, 2));
    }

    /// Without modes, as in a real kernel, a wakeup counts for the task that runs where it happens.
    #[test]
    fn without_modes_the_running_task_wakes() {
        let mut story = Story::new(&["a", "b"]);
        story
            .wakes(0, 0, 0)
            .wakes(0, 0, 1)
            .switch(0, 0, None, Some(0))
            .switch(0, 1, None, Some(1))
            .switch(20, 1, Some((1, PrevState::Blocked)), None)
            .wakes(50, 0, 1)
            .switch(55, 1, None, Some(1))
            .switch(60, 0, Some((0, PrevState::Exited)), None)
            .switch(90, 1, Some((1, PrevState::Exited)), None);
        let watched = story.0.watched(2, true);
        assert_eq!(watched.idle_while_waiting_pct, None, "CPUs may run others");
        let time = watched.time;
        let (_, b) = time.names.iter().find(|(name, _)| name == "b").unwrap();
        assert_eq!((b.times.tasks_ns, b.times.timer_ns), (30, 0));
    }

    #[test]
    fn lengths_are_told_by_the_share_that_is_longer() {
        assert_eq!(
            quantiles(vec![5, 1, 5, 9]),
            [(1, 75.0), (5, 25.0), (9, 0.0)]
        );
        assert!(quantiles(Vec::new()).is_empty());
        let many = quantiles((0..10_000).collect());
        assert!(many.len() <= QUANTILES + 1 && many[many.len() - 1] == (9_999, 0.0));
    }

    /// On CPU 0 a runs 0–30; b could run since 10 and never does, until the run ends at 100. CPU 1 idles.
    #[test]
    fn a_wait_that_did_not_end_is_told() {
        let mut story = Story::new(&["a", "b"]);
        story
            .mode(0, 0, CpuMode::Sched)
            .wakes(0, 0, 0)
            .switch(0, 0, None, Some(0))
            .mode(0, 0, CpuMode::User)
            .mode(9, 0, CpuMode::Kernel)
            .wakes(10, 0, 1)
            .mode(10, 0, CpuMode::User)
            .switch(30, 0, Some((0, PrevState::Exited)), None)
            .mode(100, 0, CpuMode::Idle);
        let watched = story.0.watched(2, true);
        let longest = Longest {
            at_ns: 10,
            ns: 90,
            cpu: None,
            behind: None,
        };
        assert_eq!(watched.longest, Some(("b 1".to_owned(), longest)));
        let expected = Behind {
            waiter: "b".to_owned(),
            runner: Runner::NotEnded,
            ns: 90,
        };
        assert_eq!(watched.behind, [expected]);
        assert_eq!(watched.waits, [(90, 0.0)]);
        assert_eq!(watched.idle_while_waiting_pct, Some(90.0));
        let of_b = watched.timeline.lanes.last().unwrap();
        let last = of_b.stretches.last().unwrap();
        let name = &watched.timeline.names[last.name as usize];
        assert_eq!((last.to_ns, name.as_str()), (100, "nobody: the run ends"));
    }
}
