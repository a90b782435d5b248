//! Context-switch time as lmbench's lat_ctx measures it.
//!
//! `processes` processes in a ring pass a token over pipes; each touches `size` bytes on its turn. The time of a
//! hop, less what the same work costs one process that passes the token to itself, is the context switch. As in
//! lmbench, the median of several samples counts, of the ring as of the work alone: one in which the ring was kept
//! waiting for long changes nothing (the mean is a measure, too). The first process measures the work alone before
//! the ring starts and before the background tasks compute, as lmbench measures it apart (Staelin and McVoy, lmbench,
//! lat_ctx.c); it begins when all of them are there. Neither measurement begins with memory that nobody has touched
//! yet: a few hops come before it.
//!
//! The nice level (`nice=-20`) is the ring's. The background tasks are plain CPU hogs that set their own to 0 and end
//! with the ring: each looks at a user-level lock that the first process holds meanwhile.

use schedlab_trace::{Duration, Instant};

use super::pipe::PIPE_BYTES;
use super::plan::{Plan, Planned, Steps};
use crate::measure::measure;
use crate::{
    Access, Action, Behaviour, Builder, Context, Counters, Kind, Model, ObjectId, ObjectSpec, Options,
    Outcome, Param, SchedClass, Score, ScoreRule, TimeUnit, Touch, WorkloadError,
};

pub(super) const MODEL: Model = Model {
    name: "lat_ctx",
    summary: "processes pass a token around a ring: context-switch time (lmbench)",
    params: &[
        Param {
            name: "processes",
            kind: Kind::Count {
                min: 2,
                max: 10_000,
            },
            default: "2",
            doc: "processes of the ring (published: 2)",
        },
        Param {
            name: "size",
            kind: Kind::Bytes {
                min: 0,
                max: 1 << 30,
            },
            default: "0",
            doc: "bytes each process touches on its turn (published: 0)",
        },
        Param {
            name: "background",
            kind: Kind::Count {
                min: 0,
                max: 1_000_000,
            },
            default: "0",
            doc: "CPU-bound processes at nice 0 beside the ring (published: 0, 10 and 50)",
        },
        Param {
            name: "rounds",
            kind: Kind::Count {
                min: 1,
                max: 1_000_000_000,
            },
            default: "1000",
            doc: "rounds of the token in a sample; a sample of the work alone has a tenth as many hops, but at least 10",
        },
        Param {
            name: "samples",
            kind: Kind::Count {
                min: 1,
                max: 100_000,
            },
            default: "11",
            doc: "samples of the ring and of the work alone, of which the median counts (lmbench's TRIES)",
        },
        Param {
            name: "burst",
            kind: Kind::Time {
                bare: TimeUnit::Us,
                max: Duration::from_secs(1),
            },
            default: "1ms",
            doc: "CPU time after which a background process looks whether the ring has ended",
        },
    ],
    measures: &[
        measure("switch_ns", "ns/switch", "the median of the samples: time of a hop, less what the same work costs one process alone"),
        measure("work", "", "rounds of the token around the ring"),
        measure("lat_ctx.hops", "", "hops of the token, in all samples"),
        measure("lat_ctx.hops_ns", "ns", "time of all hops"),
        measure("lat_ctx.alone_ns", "ns", "what the same number of hops costs a single process that passes the token to itself"),
        measure("lat_ctx.switches_ns", "ns", "the difference of the two; below zero where the ring was faster"),
        measure("lat_ctx.sample_hops", "", "hops of a sample"),
        measure("lat_ctx.sample_switches_ns_median", "ns", "time of the hops of the median sample, less what they cost alone"),
        measure("lat_ctx.hop_ns_mean", "ns", "time of a hop"),
        measure("lat_ctx.overhead_ns_mean", "ns", "what the work of a hop costs one process alone"),
        measure("lat_ctx.switch_ns_mean", "ns", "the difference: the mean of all samples, in which one long wait counts in full"),
        measure("lat_ctx.switch_ns_median", "ns", "the difference in the median sample: the score"),
    ],
    build,
};

/// lmbench passes an `int`.
const TOKEN_BYTES: u32 = 4;
/// Hops of the work alone, and rounds of the ring, before they are measured.
const WARM_UP: u64 = 2;
/// Hops of a sample of the work alone, at least.
const ALONE_MIN: u64 = 10;

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let processes = options.count("processes") as usize;
    let rounds = options.count("rounds");
    let samples = options.count("samples");
    builder.room_for(options, processes as u64 + options.count("background"))?;
    let pipes: Vec<ObjectId> = (0..processes)
        .map(|_| {
            builder.object(ObjectSpec::Pipe {
                capacity: PIPE_BYTES,
            })
        })
        .collect();
    let running = builder.object(ObjectSpec::UserLock);
    let ready = builder.object(ObjectSpec::Semaphore { initial: 0 });
    let start = builder.object(ObjectSpec::Semaphore { initial: 0 });
    let background = options.count("background");
    if background > 0 && options.time("burst") == Duration::ZERO {
        return Err(options.contradiction(
            "burst=0 with a background: it would look at the ring's lock for ever without computing; give burst a time",
        ));
    }
    let size = options.bytes("size");
    for i in 0..processes {
        let next = pipes[(i + 1) % processes];
        let comm = format!("lat_ctx-{i}");
        if i == 0 {
            let alone = (rounds * processes as u64).div_ceil(10).max(ALONE_MIN);
            let first = First {
                own: pipes[0],
                next,
                size,
                running,
                ready,
                start,
                background,
                alone,
                alone_left: WARM_UP,
                rounds,
                rounds_left: WARM_UP,
                hops: rounds * processes as u64,
                sample_ns: Vec::with_capacity(samples as usize),
                samples,
                stage: Stage::Begin,
                since: Instant::ZERO,
                alone_ns: Vec::with_capacity(samples as usize),
                done: false,
            };
            builder.task(comm, i as u32, 0, Planned::new(first));
        } else {
            let other = Other {
                own: pipes[i],
                next,
                size,
                rounds_left: WARM_UP + rounds * samples,
            };
            builder.task(comm, i as u32, 0, Planned::new(other));
        }
    }
    for i in 0..background {
        let hog = Hog {
            ready,
            start,
            running,
            burst: options.time("burst"),
            step: HogStep::Nice,
        };
        builder.task(format!("hog-{i}"), (processes + i as usize) as u32, 0, hog);
    }
    Ok(Score {
        name: "switch_ns",
        unit: "ns/switch",
        higher_is_better: false,
        rule: ScoreRule::Counter("lat_ctx.switch_ns_median"),
    })
}

fn receive(from: ObjectId, steps: &mut Steps) {
    steps.push(Action::Read { from, limit: 1 });
}

fn work_and_send(size: u64, to: ObjectId, steps: &mut Steps) {
    if size > 0 {
        steps.push(Action::Touch(Touch {
            buffer: 0,
            size_bytes: size,
            count: size,
            access: Access::Lines,
        }));
    }
    steps.push(Action::Write {
        to,
        bytes: TOKEN_BYTES,
    });
}

/// The process that measures.
struct First {
    own: ObjectId,
    next: ObjectId,
    size: u64,
    running: ObjectId,
    /// Posted by each background process that is there.
    ready: ObjectId,
    start: ObjectId,
    background: u64,
    /// Hops to oneself of a sample.
    alone: u64,
    /// … and of those, left.
    alone_left: u64,
    /// Of a sample.
    rounds: u64,
    /// … and of those, left.
    rounds_left: u64,
    /// Of a sample.
    hops: u64,
    samples: u64,
    /// How long each sample took.
    sample_ns: Vec<u64>,
    stage: Stage,
    since: Instant,
    /// How long each sample of the work alone took.
    alone_ns: Vec<u64>,
    done: bool,
}

enum Stage {
    Begin,
    WarmUpAlone,
    Alone,
    WarmUpRing,
    Background,
    Ring,
    End,
}

impl First {
    fn hop_alone(&mut self, steps: &mut Steps) {
        self.alone_left -= 1;
        work_and_send(self.size, self.own, steps);
        receive(self.own, steps);
    }

    fn round(&mut self, steps: &mut Steps) {
        self.rounds_left -= 1;
        work_and_send(self.size, self.next, steps);
        receive(self.own, steps);
    }
}

impl Plan for First {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        loop {
            match self.stage {
                Stage::Begin => {
                    self.stage = Stage::WarmUpAlone;
                    // No background process looks at it before it is started.
                    steps.push(Action::TryUserLock(self.running));
                    // Forked after the ring and beside it, some would come into being when it is measured already.
                    for _ in 0..self.background {
                        steps.push(Action::Acquire(self.ready));
                    }
                    return;
                }
                Stage::WarmUpAlone if self.alone_left > 0 => return self.hop_alone(steps),
                Stage::WarmUpAlone => {
                    self.since = context.now;
                    self.alone_left = self.alone;
                    self.stage = Stage::Alone;
                }
                Stage::Alone if self.alone_left > 0 => return self.hop_alone(steps),
                Stage::Alone => {
                    self.alone_ns.push(context.now.since(self.since).ns());
                    self.since = context.now;
                    self.alone_left = self.alone;
                    if self.alone_ns.len() as u64 == self.samples {
                        self.stage = Stage::WarmUpRing;
                    }
                }
                Stage::WarmUpRing if self.rounds_left > 0 => return self.round(steps),
                Stage::WarmUpRing => {
                    self.stage = Stage::Background;
                    for _ in 0..self.background {
                        steps.push(Action::Post(self.start));
                    }
                    return steps.push(Action::Begin);
                }
                Stage::Background => {
                    self.since = context.now;
                    self.rounds_left = self.rounds;
                    self.stage = Stage::Ring;
                }
                Stage::Ring if self.rounds_left > 0 => return self.round(steps),
                Stage::Ring => {
                    self.sample_ns.push(context.now.since(self.since).ns());
                    self.since = context.now;
                    self.rounds_left = self.rounds;
                    steps.push(Action::Work(self.rounds as u32));
                    if self.sample_ns.len() as u64 == self.samples {
                        self.done = true;
                        self.stage = Stage::End;
                        steps.push(Action::UserUnlock(self.running));
                    }
                    return;
                }
                Stage::End => return,
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        if !self.done {
            return;
        }
        let all_ns: u64 = self.sample_ns.iter().sum();
        let all_hops = self.hops * self.samples;
        counters.add("lat_ctx.hops", all_hops);
        counters.add("lat_ctx.hops_ns", all_ns);
        // The cost of as many hops as the ring made.
        let alone_median_ns = median(&self.alone_ns);
        let alone_ns = |hops: u64| {
            (u128::from(alone_median_ns) * u128::from(hops) / u128::from(self.alone)) as u64
        };
        counters.add("lat_ctx.alone_ns", alone_ns(all_hops));
        counters.add_signed(
            "lat_ctx.switches_ns",
            all_ns as i64 - alone_ns(all_hops) as i64,
        );
        counters.ratio("lat_ctx.hop_ns_mean", "lat_ctx.hops_ns", "lat_ctx.hops");
        counters.ratio("lat_ctx.overhead_ns_mean", "lat_ctx.alone_ns", "lat_ctx.hops");
        counters.ratio("lat_ctx.switch_ns_mean", "lat_ctx.switches_ns", "lat_ctx.hops");
        let median_ns = median(&self.sample_ns);
        counters.add("lat_ctx.sample_hops", self.hops);
        counters.add_signed(
            "lat_ctx.sample_switches_ns_median",
            median_ns as i64 - alone_ns(self.hops) as i64,
        );
        counters.ratio(
            "lat_ctx.switch_ns_median",
            "lat_ctx.sample_switches_ns_median",
            "lat_ctx.sample_hops",
        );
    }
}

/// Of an even number the lower one of the two in the middle.
fn median(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() - 1) / 2]
}

/// Another process of the ring.
struct Other {
    own: ObjectId,
    next: ObjectId,
    size: u64,
    rounds_left: u64,
}

impl Plan for Other {
    fn plan(&mut self, _: &mut Context<'_>, steps: &mut Steps) {
        if self.rounds_left > 0 {
            self.rounds_left -= 1;
            receive(self.own, steps);
            work_and_send(self.size, self.next, steps);
        }
    }
}

/// A background process.
struct Hog {
    ready: ObjectId,
    start: ObjectId,
    running: ObjectId,
    burst: Duration,
    step: HogStep,
}

enum HogStep {
    Nice,
    Class,
    Ready,
    Start,
    Burst,
    Look,
    Looked,
    Exit,
}

impl Behaviour for Hog {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        loop {
            match self.step {
                HogStep::Nice => {
                    self.step = HogStep::Class;
                    return Action::SetNice(0);
                }
                HogStep::Class => {
                    self.step = HogStep::Ready;
                    return Action::SetClass(SchedClass::Normal);
                }
                HogStep::Ready => {
                    self.step = HogStep::Start;
                    return Action::Post(self.ready);
                }
                HogStep::Start => {
                    self.step = HogStep::Burst;
                    return Action::Acquire(self.start);
                }
                HogStep::Burst => {
                    self.step = HogStep::Look;
                    return Action::Compute(self.burst);
                }
                HogStep::Look => {
                    self.step = HogStep::Looked;
                    return Action::TryUserLock(self.running);
                }
                HogStep::Looked if context.outcome == Outcome::Taken => {
                    self.step = HogStep::Exit;
                    return Action::UserUnlock(self.running);
                }
                // Another hog may hold it on its way out; then there is one burst more.
                HogStep::Looked => self.step = HogStep::Burst,
                HogStep::Exit => return Action::Exit,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WARM_UP;
    use crate::Workload;
    use crate::testing::{Order, run_in};

    #[test]
    fn hops_and_work_are_as_many_as_asked_for() {
        for text in [
            "lat_ctx:rounds=50,samples=3",
            "lat_ctx:rounds=50,samples=3,processes=5,size=4K",
            "lat_ctx:rounds=50,samples=3,background=7",
        ] {
            for order in [Order::RoundRobin, Order::UntilBlocked, Order::Random(3)] {
                // A hog that never leaves the CPU starves the ring.
                if order == Order::UntilBlocked && text.contains("background") {
                    continue;
                }
                let workload = Workload::parse(text, 1).unwrap();
                let processes = workload.tasks.len() as u64 - 7 * u64::from(text.contains("back"));
                let end = run_in(workload, order);
                assert_eq!(end.work, 150, "{text}");
                assert_eq!(end.counters.get("lat_ctx.hops") as u64, 150 * processes);
                let alone = WARM_UP + 3 * (50 * processes).div_ceil(10);
                let warm_up = WARM_UP * processes;
                assert_eq!(end.writes, 150 * processes + alone + warm_up, "{text}");
            }
        }
    }

    /// Without costs a hop costs what the background does in between, and nothing alone.
    #[test]
    fn the_cost_of_the_work_alone_is_taken_off() {
        let run = |text: &str| run_in(Workload::parse(text, 1).unwrap(), Order::RoundRobin);
        let counters = run("lat_ctx:rounds=10").counters;
        assert_eq!(counters.get("lat_ctx.switches_ns"), 0);
        assert_eq!(counters.number("lat_ctx.switch_ns_median"), Some(0.0));
        // Turn by turn: each process of the ring waits for one burst of the hog at each of its hops.
        let counters = run("lat_ctx:rounds=10,background=1,burst=100us").counters;
        let median = counters.number("lat_ctx.switch_ns_median").unwrap();
        assert!((50_000.0..=150_000.0).contains(&median), "{median}");
    }

    /// Such a background would do nothing but look.
    #[test]
    fn a_background_without_bursts_is_refused() {
        let parse = |text: &str| Workload::parse(text, 1).map(drop);
        let error = parse("lat_ctx:burst=0,background=1").unwrap_err().to_string();
        assert!(error.contains("burst=0 with a background"), "{error}");
        parse("lat_ctx:burst=0").unwrap();
    }

    /// One of three samples is a thousand times longer; the median is not.
    #[test]
    fn one_long_sample_does_not_count() {
        use super::{First, Plan, Stage};
        use crate::{Counters, ObjectId};
        let mut counters = Counters::default();
        let object = ObjectId(0);
        First {
            own: object,
            next: object,
            size: 0,
            running: object,
            ready: object,
            start: object,
            background: 0,
            alone: 2,
            alone_left: 0,
            rounds: 5,
            rounds_left: 0,
            hops: 10,
            samples: 3,
            sample_ns: vec![120, 100_000, 110],
            stage: Stage::End,
            since: schedlab_trace::Instant::ZERO,
            alone_ns: vec![4, 4_000, 3],
            done: true,
        }
        .report(&mut counters);
        // 120 ns for 10 hops, of which 20 ns are the work alone.
        assert_eq!(counters.number("lat_ctx.switch_ns_median"), Some(10.0));
        assert_eq!(counters.get("lat_ctx.hops_ns"), 100_230);
    }
}
