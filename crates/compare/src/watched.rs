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
    /// Tasks, with the longest waits for a CPU first.
    pub slowest: Vec<Slow>,
    /// The longest wait of all, and the task's name.
    pub longest: Option<(String, Longest)>,
    /// Waits by who waited behind whom, with the longest first.
    pub behind: Vec<Behind>,
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
    /// The CPU that ended it.
    pub cpu: u32,
    /// The task that ran on that CPU for most of it; absent if none did.
    pub behind: Option<String>,
}

/// How long tasks of a name waited while tasks of another name ran on the CPU that they got in the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Behind {
    /// The name of the tasks that waited.
    pub waiter: String,
    /// The name of the tasks that ran; absent where the CPU idled, changed tasks or had none of these.
    pub runner: Option<String>,
    /// How long, of all tasks of these names together.
    pub ns: u64,
}

/// Kinds of stretches of the timeline.
const RUNS: u32 = 0;
const SPINS: u32 = 1;
const RUNS_ON: u32 = 2;
const WAITS: u32 = 3;
const WOKEN: u32 = 4;
const SLEEPS: u32 = 5;

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
        kind(Mark::Line, "sleeps until woken by"),
    ]
}

impl Decomposer {
    /// Takes apart what was heard, with a timeline.
    pub fn watched(mut self, nr_cpus: usize) -> Watched {
        self.close();
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
            idle_while_waiting_pct: match self.is_cut() || !self.has_modes() {
                true => None,
                // Without modes other programs' time on a CPU looks idle.
                false => idle_while_waiting(&waits, &lanes, &time),
            },
            waits: quantiles(waits.iter().map(|wait| wait.to - wait.from).collect()),
            locks: self.locks(),
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

    /// Waits of a task that a CPU ended.
    fn waits_of(&self, task: u32, begun: u64) -> Vec<Wait> {
        let pieces = self.pieces(task);
        let of = |pair: &[(u64, u64, Piece)]| match (pair[0], pair[1].2) {
            ((from, to, Piece::Waits), Piece::Runs(cpu)) if to > begun => Some(Wait {
                task,
                from: from.max(begun),
                to,
                cpu,
            }),
            _ => None,
        };
        pieces.windows(2).filter_map(of).collect()
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

    fn behind(&self, waits: &[Wait], lanes: &[Vec<Run>]) -> Vec<Behind> {
        let mut sums: BTreeMap<(&str, Option<&str>), u64> = BTreeMap::new();
        for wait in waits {
            let mut left = wait.to - wait.from;
            let waiter = self.comm(wait.task);
            for (run, ns) in during(lanes, wait) {
                *sums.entry((waiter, Some(self.comm(run.task)))).or_default() += ns;
                left = left.saturating_sub(ns);
            }
            if left > 0 {
                *sums.entry((waiter, None)).or_default() += left;
            }
        }
        let mut behind: Vec<Behind> = sums
            .into_iter()
            .map(|((waiter, runner), ns)| Behind {
                waiter: waiter.to_owned(),
                runner: runner.map(str::to_owned),
                ns,
            })
            .collect();
        behind.sort_by_key(|one| std::cmp::Reverse(one.ns));
        behind
    }

    fn timeline(&self, lanes: &[Vec<Run>], order: &[u32], time: &Decomposed) -> Timeline {
        let nr_tasks = self.nr_tasks();
        let mut names: Vec<String> = (0..nr_tasks).map(|task| self.name(task)).collect();
        let cpus_from = names.len() as u32;
        names.extend((0..lanes.len()).map(|cpu| format!("CPU {cpu}")));
        let locks_from = names.len() as u32;
        names.extend(self.lock_names());
        let others = names.len() as u32;
        let (nobody, timer, no_lock) = (others, others + 1, others + 2);
        names.extend(["nobody", "a timer or a device", "(unknown)"].map(str::to_owned));
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
                        let behind = next(place).and_then(|cpu| {
                            most_of(
                                lanes,
                                &Wait {
                                    task,
                                    from,
                                    to,
                                    cpu,
                                },
                            )
                        });
                        (WAITS, behind.unwrap_or(nobody))
                    }
                    Piece::Woken(waker) => (WOKEN, waker),
                    Piece::Sleeps => (SLEEPS, timer),
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

/// A wait of a task for the CPU that it got in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wait {
    task: u32,
    from: u64,
    to: u64,
    cpu: u32,
}

/// The runs on the CPU during a wait, each with its time.
fn during<'a>(lanes: &'a [Vec<Run>], wait: &Wait) -> impl Iterator<Item = (&'a Run, u64)> {
    let (from, to, task) = (wait.from, wait.to, wait.task);
    let lane = lanes.get(wait.cpu as usize).map_or(&[][..], Vec::as_slice);
    let first = lane.partition_point(|run| run.to <= from);
    let runs = lane[first..].iter().take_while(move |run| run.from < to);
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
    use schedlab_trace::{
        CpuId, CpuMode, Duration, Event, Instant, Listener as _, LockClass, LockId, LockPath,
        PrevState, TaskId, TaskMeta,
    };

    use super::*;

    struct Story(Decomposer);

    impl Story {
        fn new(names: &[&str]) -> Story {
            let mut story = Decomposer::watching();
            for (task, name) in (0..).zip(names) {
                let meta = TaskMeta {
                    comm: (*name).to_owned(),
                    nice: 0,
                    affinity: Default::default(),
                    rt_priority: 0,
                    idle: false,
                };
                story.define_task(TaskId(task), &meta);
            }
            story.define_lock(LockId(0), "queue", LockClass::RunQueue);
            Story(story)
        }
        fn at(&mut self, at: u64, cpu: u32, event: Event) -> &mut Story {
            self.0.record(Instant::from_ns(at), CpuId(cpu), event);
            self
        }
        fn wakes(&mut self, at: u64, cpu: u32, task: u32) -> &mut Story {
            let (task, to, since) = (TaskId(task), CpuId(0), Duration::ZERO);
            self.at(at, cpu, Event::Wakeup { task, to, since })
        }
        fn switch(
            &mut self,
            at: u64,
            cpu: u32,
            prev: Option<(u32, PrevState)>,
            next: Option<u32>,
        ) -> &mut Story {
            self.at(
                at,
                cpu,
                Event::Switch {
                    prev: prev.map(|(task, _)| TaskId(task)),
                    prev_state: prev.map_or(PrevState::Blocked, |(_, state)| state),
                    next: next.map(TaskId),
                },
            )
        }
        fn mode(&mut self, at: u64, cpu: u32, mode: CpuMode) -> &mut Story {
            self.at(at, cpu, Event::Mode(mode))
        }
    }

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
        story.0.watched(2)
    }

    #[test]
    fn a_wait_is_behind_the_task_that_ran_on_the_cpu() {
        let watched = story();
        let behind = Longest {
            at_ns: 10,
            ns: 30,
            cpu: 0,
            behind: Some("a 0".to_owned()),
        };
        assert_eq!(watched.longest, Some(("b 1".to_owned(), behind.clone())));
        assert_eq!(watched.slowest.len(), 1, "c did not wait");
        assert_eq!(watched.slowest[0].longest, Some(behind));
        let expected = Behind {
            waiter: "b".to_owned(),
            runner: Some("a".to_owned()),
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
        let watched = story.0.watched(2);
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
}
