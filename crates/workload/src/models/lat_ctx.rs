//! Context-switch time as lmbench's lat_ctx measures it.
//!
//! `processes` processes in a ring pass a token over pipes; each touches `size` bytes on its turn. The time of a
//! hop, less what the same work costs one process that passes the token to itself, is the context switch. The
//! first process measures that cost before the ring starts and before the background tasks do, as lmbench
//! measures it apart (Staelin and McVoy, lmbench, lat_ctx.c).
//!
//! The nice level (`nice=-20`) is that of the ring; the background tasks are plain CPU hogs that set their own
//! to 0 and end with the ring: each looks at a user-level lock that the first process holds meanwhile.

use schedlab_trace::{Duration, Instant};

use super::pipe::PIPE_BYTES;
use super::plan::{Plan, Planned, Steps};
use crate::{
    Action, Behaviour, Builder, Context, Counters, Kind, Model, ObjectId, ObjectSpec, Options,
    Outcome, Param, SchedClass, Score, ScoreRule, TimeUnit, WorkloadError,
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
            default: "10000",
            doc: "rounds of the token; the cost of the work alone is measured over a tenth as many hops",
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
    build,
};

/// lmbench passes an `int`.
const TOKEN_BYTES: u32 = 4;

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let processes = options.count("processes") as usize;
    let rounds = options.count("rounds");
    let pipes: Vec<ObjectId> = (0..processes)
        .map(|_| {
            builder.object(ObjectSpec::Pipe {
                capacity: PIPE_BYTES,
            })
        })
        .collect();
    let running = builder.object(ObjectSpec::UserLock);
    let start = builder.object(ObjectSpec::Semaphore { initial: 0 });
    let background = options.count("background");
    let size = options.bytes("size");
    for i in 0..processes {
        let next = pipes[(i + 1) % processes];
        let comm = format!("lat_ctx-{i}");
        if i == 0 {
            let hops = (rounds * processes as u64).div_ceil(10);
            let first = First {
                own: pipes[0],
                next,
                size,
                running,
                start,
                background,
                alone: hops,
                alone_left: hops,
                rounds,
                rounds_left: rounds,
                hops: rounds * processes as u64,
                stage: Stage::Begin,
                since: Instant::ZERO,
                alone_ns: 0,
                ring_ns: 0,
                done: false,
            };
            builder.task(comm, i as u32, size, Planned::new(first));
        } else {
            let other = Other {
                own: pipes[i],
                next,
                size,
                rounds_left: rounds,
            };
            builder.task(comm, i as u32, size, Planned::new(other));
        }
    }
    for i in 0..background {
        let hog = Hog {
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
        rule: ScoreRule::Counter("lat_ctx.switch_ns_mean"),
    })
}

fn receive(from: ObjectId, steps: &mut Steps) {
    steps.push(Action::Read { from, limit: 1 });
}

fn work_and_send(size: u64, to: ObjectId, steps: &mut Steps) {
    if size > 0 {
        steps.push(Action::Touch { bytes: size });
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
    start: ObjectId,
    background: u64,
    /// Hops to oneself.
    alone: u64,
    alone_left: u64,
    rounds: u64,
    rounds_left: u64,
    hops: u64,
    stage: Stage,
    since: Instant,
    alone_ns: u64,
    ring_ns: u64,
    done: bool,
}

enum Stage {
    Begin,
    Alone,
    Background,
    Ring,
    End,
}

impl Plan for First {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        loop {
            match self.stage {
                Stage::Begin => {
                    self.stage = Stage::Alone;
                    // Nobody else is there yet to find it busy.
                    return steps.push(Action::TryUserLock(self.running));
                }
                Stage::Alone => {
                    if self.alone_left == self.alone {
                        self.since = context.now;
                    }
                    if self.alone_left > 0 {
                        self.alone_left -= 1;
                        work_and_send(self.size, self.own, steps);
                        return receive(self.own, steps);
                    }
                    self.alone_ns = context.now.since(self.since).ns();
                    self.stage = Stage::Background;
                    for _ in 0..self.background {
                        steps.push(Action::Post(self.start));
                    }
                    return steps.push(Action::Begin);
                }
                Stage::Background => {
                    self.since = context.now;
                    self.stage = Stage::Ring;
                }
                Stage::Ring => {
                    if self.rounds_left < self.rounds {
                        steps.push(Action::Work(1));
                    }
                    if self.rounds_left > 0 {
                        self.rounds_left -= 1;
                        work_and_send(self.size, self.next, steps);
                        return receive(self.own, steps);
                    }
                    self.ring_ns = context.now.since(self.since).ns();
                    self.done = true;
                    self.stage = Stage::End;
                    return steps.push(Action::UserUnlock(self.running));
                }
                Stage::End => return,
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        if !self.done {
            return;
        }
        counters.add("lat_ctx.hops", self.hops);
        counters.add("lat_ctx.hops_ns", self.ring_ns);
        // The cost of as many hops as the ring made.
        let alone_ns = u128::from(self.alone_ns) * u128::from(self.hops) / u128::from(self.alone);
        counters.add("lat_ctx.alone_ns", alone_ns as u64);
        counters.add_signed("lat_ctx.switches_ns", self.ring_ns as i64 - alone_ns as i64);
        counters.ratio("lat_ctx.hop_ns_mean", "lat_ctx.hops_ns", "lat_ctx.hops");
        counters.ratio("lat_ctx.overhead_ns_mean", "lat_ctx.alone_ns", "lat_ctx.hops");
        counters.ratio("lat_ctx.switch_ns_mean", "lat_ctx.switches_ns", "lat_ctx.hops");
    }
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
    start: ObjectId,
    running: ObjectId,
    burst: Duration,
    step: HogStep,
}

enum HogStep {
    Nice,
    Class,
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
                    self.step = HogStep::Start;
                    return Action::SetClass(SchedClass::Normal);
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
    use crate::Workload;
    use crate::testing::{Order, run_in};

    #[test]
    fn hops_and_work_are_as_many_as_asked_for() {
        for text in [
            "lat_ctx:rounds=50",
            "lat_ctx:rounds=50,processes=5,size=4K",
            "lat_ctx:rounds=50,background=7",
        ] {
            for order in [Order::RoundRobin, Order::UntilBlocked, Order::Random(3)] {
                // A hog that never leaves the CPU starves the ring.
                if order == Order::UntilBlocked && text.contains("background") {
                    continue;
                }
                let workload = Workload::parse(text, 1, 1).unwrap();
                let processes = workload.tasks.len() as i64 - 7 * i64::from(text.contains("back"));
                let end = run_in(workload, order);
                assert_eq!(end.work, 50, "{text}");
                assert_eq!(end.counters.get("lat_ctx.hops"), 50 * processes);
                let alone = (50 * processes as u64).div_ceil(10);
                assert_eq!(end.writes, 50 * processes as u64 + alone, "{text}");
            }
        }
    }

    /// Without costs a hop costs what the background does in between, and nothing alone.
    #[test]
    fn the_cost_of_the_work_alone_is_taken_off() {
        let end = run_in(
            Workload::parse("lat_ctx:rounds=10,burst=100us", 1, 1).unwrap(),
            Order::RoundRobin,
        );
        assert_eq!(end.counters.get("lat_ctx.switches_ns"), 0);
        let counts = end.counters;
        assert_eq!(counts.get("lat_ctx.hops_ns"), counts.get("lat_ctx.alone_ns"));
    }
}
