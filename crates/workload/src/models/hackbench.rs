//! Groups of senders and receivers, as `perf bench sched messaging` (tools/perf/bench/sched-messaging.c) and
//! hackbench: in each group every sender writes `loops` messages to every receiver. The time is that from the
//! word to start until the last of them has ended.

use std::sync::Arc;

use super::pipe::PIPE_BYTES;
use super::plan::{Plan, Planned, Steps};
use crate::measure::measure;
use crate::{
    Action, Builder, Context, Counters, Kind, Model, ObjectId, ObjectSpec, Options, Outcome, Param,
    Score, ScoreRule, WorkloadError,
};

pub(super) const MODEL: Model = Model {
    name: "hackbench",
    summary: "groups of senders and receivers (perf bench sched messaging)",
    params: &[
        Param {
            name: "groups",
            kind: Kind::Count {
                min: 1,
                max: 10_000,
            },
            default: "10",
            doc: "groups (the original's -g)",
        },
        Param {
            name: "fds",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "20",
            doc: "senders, and receivers, of a group",
        },
        Param {
            name: "loops",
            kind: Kind::Count {
                min: 1,
                max: 1_000_000_000,
            },
            default: "100",
            doc: "messages of each sender to each receiver of its group (the original's -l)",
        },
        Param {
            name: "bytes",
            kind: Kind::Bytes {
                min: 1,
                max: 1 << 16,
            },
            default: "100",
            doc: "size of a message",
        },
        Param {
            name: "pipe",
            kind: Kind::Flag,
            default: "false",
            doc: "pipes instead of sockets (the original's -p)",
        },
        Param {
            name: "threads",
            kind: Kind::Flag,
            default: "false",
            doc: "threads of one process instead of processes (the original's -t)",
        },
        Param {
            name: "socket_buffer",
            kind: Kind::Bytes {
                min: 1,
                max: 1 << 30,
            },
            default: "27K",
            doc: "message bytes that fit into a socket (guess: 212,992 bytes of net.core.wmem_default at 768 a small message)",
        },
    ],
    measures: &[
        measure("completion_ns", "ns", "time from when all tasks are ready until the last has ended"),
        measure("work", "", "messages received"),
        measure("hackbench.messages_received", "", "the same, as the receivers counted them"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let (fds, loops) = (options.count("fds"), options.count("loops"));
    let groups = options.count("groups");
    builder.room_for(options, groups * 2 * fds + 1)?;
    let bytes = options.bytes("bytes") as u32;
    if !options.flag("pipe") && u64::from(bytes) > options.bytes("socket_buffer") {
        return Err(options.contradiction("a message never fits: make socket_buffer at least bytes"));
    }
    let channel = match options.flag("pipe") {
        true => ObjectSpec::Pipe {
            capacity: PIPE_BYTES,
        },
        false => ObjectSpec::Socket {
            capacity: options.bytes("socket_buffer") as u32,
        },
    };
    let start = Start {
        ready: builder.object(ObjectSpec::Semaphore { initial: 0 }),
        go: builder.object(ObjectSpec::Barrier {
            parties: (1 + groups * 2 * fds) as u32,
        }),
    };
    let parent = Parent {
        start: Some(start),
        tasks: groups * 2 * fds,
    };
    builder.task("hackbench", 0, 0, Planned::new(parent));
    let mut number = 0;
    let mut space = || {
        number += u32::from(!options.flag("threads"));
        number
    };
    for group in 0..groups {
        let channels: Arc<[ObjectId]> = (0..fds).map(|_| builder.object(channel)).collect();
        for (i, &from) in channels.iter().enumerate() {
            let receiver = Receiver {
                start: Some(start),
                from,
                left: fds * loops,
                reading: false,
                received: 0,
            };
            builder.task(format!("recv-{group}.{i}"), space(), 0, Planned::new(receiver));
        }
        for i in 0..fds {
            let sender = Sender {
                start: Some(start),
                to: Arc::clone(&channels),
                bytes,
                left: loops,
            };
            builder.task(format!("send-{group}.{i}"), space(), 0, Planned::new(sender));
        }
    }
    Ok(Score {
        name: "completion_ns",
        unit: "ns",
        higher_is_better: false,
        rule: ScoreRule::Makespan,
    })
}

/// How everybody is held back until all are there.
#[derive(Clone, Copy)]
struct Start {
    /// Posted by each sender and receiver.
    ready: ObjectId,
    /// Entered by the parent last.
    go: ObjectId,
}

impl Start {
    fn wait(self, steps: &mut Steps) {
        steps.push(Action::Post(self.ready));
        steps.push(Action::Barrier(self.go));
    }
}

/// Starts the clock when all are ready, then lets them go.
struct Parent {
    start: Option<Start>,
    tasks: u64,
}

impl Plan for Parent {
    fn plan(&mut self, _: &mut Context<'_>, steps: &mut Steps) {
        if let Some(start) = self.start.take() {
            for _ in 0..self.tasks {
                steps.push(Action::Acquire(start.ready));
            }
            steps.push(Action::Begin);
            steps.push(Action::Barrier(start.go));
        }
    }
}

struct Sender {
    start: Option<Start>,
    to: Arc<[ObjectId]>,
    bytes: u32,
    left: u64,
}

impl Plan for Sender {
    fn plan(&mut self, _: &mut Context<'_>, steps: &mut Steps) {
        if let Some(start) = self.start.take() {
            start.wait(steps);
        }
        if self.left > 0 {
            self.left -= 1;
            for &to in self.to.iter() {
                steps.push(Action::Write {
                    to,
                    bytes: self.bytes,
                });
            }
        }
    }
}

struct Receiver {
    start: Option<Start>,
    from: ObjectId,
    left: u64,
    reading: bool,
    received: u64,
}

impl Plan for Receiver {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        if let Some(start) = self.start.take() {
            start.wait(steps);
        }
        if self.left > 0 && std::mem::replace(&mut self.reading, true) {
            let Outcome::Messages(n) = context.outcome else {
                panic!("a socket returned {:?}", context.outcome);
            };
            self.left -= u64::from(n);
            self.received += u64::from(n);
            steps.push(Action::Work(n));
        }
        if self.left > 0 {
            // The original reads the bytes of one message at a time.
            steps.push(Action::Read {
                from: self.from,
                limit: 1,
            });
        }
    }

    fn report(&self, counters: &mut Counters) {
        counters.add("hackbench.messages_received", self.received);
    }
}

#[cfg(test)]
mod tests {
    use crate::Workload;
    use crate::testing::{Order, run_in};

    #[test]
    fn every_sender_writes_to_every_receiver() {
        for options in ["", ",pipe=true", ",threads=true", ",socket_buffer=100"] {
            for order in [Order::RoundRobin, Order::UntilBlocked, Order::Random(7)] {
                let text = format!("hackbench:groups=3,fds=4,loops=5{options}");
                let end = run_in(Workload::parse(&text, 2).unwrap(), order);
                assert_eq!(end.work, 3 * 4 * 4 * 5, "{text}");
                assert_eq!((end.tasks, end.writes), (25, end.work));
                assert_eq!(end.counters.get("hackbench.messages_received"), 240);
            }
        }
    }
}
