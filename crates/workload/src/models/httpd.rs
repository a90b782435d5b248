//! Pre-forked web-server workers that block in accept on one listening socket.
//!
//! A load generator keeps `connections` requests under way: it opens that many, and a new one for each answer. A
//! worker accepts a connection, computes, waits once or twice (for a file, for the network), computes again and
//! answers. Workers are processes; one waiting worker is woken for a connection, as Linux does since 2.3.
//!
//! Model: the load generator is one process on the same machine, as wrk or ab would be, with an event loop: it
//! reads all answers that are there at once. Connections are messages, not TCP handshakes; their cost is that
//! of a small message.

use schedlab_trace::Duration;

use super::plan::{Plan, Planned, Steps, drawn};
use crate::measure::measure;
use crate::{
    Action, Builder, Context, Counters, Kind, Model, ObjectId, ObjectSpec, Options, Outcome, Param,
    Score, ScoreRule, TimeUnit, WorkloadError, below,
};

const TIME: Kind = Kind::Time {
    bare: TimeUnit::Us,
    max: Duration::from_secs(100),
};

pub(super) const MODEL: Model = Model {
    name: "httpd",
    summary: "pre-forked web-server workers on one listening socket, under constant load",
    params: &[
        Param {
            name: "workers",
            kind: Kind::Count {
                min: 1,
                max: 100_000,
            },
            default: "256",
            doc: "server processes (published: 256)",
        },
        Param {
            name: "connections",
            kind: Kind::Count {
                min: 1,
                max: 100_000,
            },
            default: "256",
            doc: "requests under way at any time",
        },
        Param {
            name: "request",
            kind: TIME,
            default: "200us",
            doc: "CPU time of a request, drawn up to half shorter or longer; the system calls come on top",
        },
        Param {
            name: "wait",
            kind: TIME,
            default: "500us",
            doc: "length of a wait within a request, drawn up to half shorter or longer (guess)",
        },
        Param {
            name: "request_bytes",
            kind: Kind::Bytes {
                min: 1,
                max: 1 << 16,
            },
            default: "200",
            doc: "size of a request (guess)",
        },
        Param {
            name: "duration",
            kind: Kind::Time {
                bare: TimeUnit::S,
                max: Duration::from_secs(1_000_000),
            },
            default: "5s",
            doc: "the run ends here",
        },
        Param {
            name: "working_set",
            kind: Kind::Bytes {
                min: 0,
                max: 1 << 30,
            },
            default: "16K",
            doc: "bytes of cache a worker needs to run at full speed (guess)",
        },
    ],
    measures: &[
        measure("throughput_per_s", "requests/s", "requests answered in a second"),
        measure("work", "", "requests answered"),
        measure("httpd.requests_begun", "", "requests that a worker accepted"),
        measure("httpd.waits", "", "times that requests wait for a file or the network"),
        measure("httpd.waits_per_request", "", "waits of a request"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let duration = options.time("duration");
    if duration == Duration::ZERO {
        return Err(options.contradiction("it would never end: give `duration`"));
    }
    builder.room_for(options, options.count("workers") + 1)?;
    let connections = options.count("connections");
    let bytes = options.bytes("request_bytes") as u32;
    let capacity = u32::try_from(connections * u64::from(bytes)).map_err(|_| {
        options.contradiction("connections times request_bytes is more than 4 GB in the listening socket")
    })?;
    let listen = builder.object(ObjectSpec::Listener { capacity });
    let answers = builder.object(ObjectSpec::Socket { capacity });
    let load = Load {
        listen,
        answers,
        bytes,
        open: connections,
        waiting: false,
    };
    builder.task("load", 0, 0, Planned::new(load));
    for i in 0..options.count("workers") {
        let worker = Worker {
            listen,
            answers,
            bytes,
            request: options.time("request"),
            wait: options.time("wait"),
            waits: 0,
            requests: 0,
            open: false,
        };
        let working_set = options.bytes("working_set");
        builder.task(format!("httpd-{i}"), 1 + i as u32, working_set, Planned::new(worker));
    }
    builder.duration(duration);
    Ok(Score {
        name: "throughput_per_s",
        unit: "requests/s",
        higher_is_better: true,
        rule: ScoreRule::WorkPerSecond,
    })
}

/// The load generator.
struct Load {
    listen: ObjectId,
    answers: ObjectId,
    bytes: u32,
    /// Connections to be opened.
    open: u64,
    /// A read of answers has returned.
    waiting: bool,
}

impl Plan for Load {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        if self.waiting {
            let Outcome::Messages(n) = context.outcome else {
                panic!("the answers' socket returned {:?}", context.outcome);
            };
            self.open += u64::from(n);
        }
        for _ in 0..std::mem::take(&mut self.open) {
            steps.push(Action::Write {
                to: self.listen,
                bytes: self.bytes,
            });
        }
        self.waiting = true;
        steps.push(Action::Read {
            from: self.answers,
            limit: u32::MAX,
        });
    }
}

/// A server process.
struct Worker {
    listen: ObjectId,
    answers: ObjectId,
    bytes: u32,
    request: Duration,
    wait: Duration,
    waits: u64,
    requests: u64,
    /// A connection has been accepted.
    open: bool,
}

impl Plan for Worker {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        if std::mem::replace(&mut self.open, true) {
            let rng = &mut *context.rng;
            let waits = 1 + below(rng, 2);
            // The request's time in equal parts around its waits.
            let time = drawn(self.request, 50, rng);
            let part = Duration::from_ns(time.ns() / (waits + 1));
            for _ in 0..waits {
                steps.compute(part);
                if self.wait > Duration::ZERO {
                    steps.push(Action::Io(drawn(self.wait, 50, rng)));
                    self.waits += 1;
                }
            }
            steps.compute(part);
            steps.push(Action::Write {
                to: self.answers,
                bytes: self.bytes,
            });
            steps.push(Action::Work(1));
            self.requests += 1;
        }
        steps.push(Action::Read {
            from: self.listen,
            limit: 1,
        });
    }

    fn report(&self, counters: &mut Counters) {
        counters.add("httpd.requests_begun", self.requests);
        counters.add("httpd.waits", self.waits);
        counters.ratio("httpd.waits_per_request", "httpd.waits", "httpd.requests_begun");
    }
}

#[cfg(test)]
mod tests {
    use crate::Workload;
    use crate::testing::{Order, run_in};

    #[test]
    fn all_connections_stay_busy() {
        for order in [Order::RoundRobin, Order::UntilBlocked, Order::Random(2)] {
            let text = "httpd:workers=30,connections=20,request=100us,wait=200us,duration=1s";
            let end = run_in(Workload::parse(text, 2).unwrap(), order);
            let begun = end.counters.get("httpd.requests_begun") as u64;
            // Begun and not yet answered: twenty at most, as nobody opens another connection.
            assert!(begun - end.work <= 20, "{begun} {}", end.work);
            // One CPU, 100 µs each, and it never has to wait: twenty requests wait 300 µs each on average.
            assert!((9_900..=10_100).contains(&end.work), "{}", end.work);
            let waits = end.counters.get("httpd.waits") as u64;
            assert!((14 * begun..16 * begun).contains(&(10 * waits)));
        }
    }

    #[test]
    fn no_wait_is_counted_where_there_is_none() {
        let text = "httpd:workers=3,connections=2,request=100us,wait=0,duration=10ms";
        let end = run_in(Workload::parse(text, 2).unwrap(), Order::RoundRobin);
        assert!(end.work > 90);
        assert_eq!(end.counters.get("httpd.waits"), 0);
    }

    #[test]
    fn a_run_without_end_is_refused() {
        assert!(Workload::parse("httpd:duration=0", 1).is_err());
    }
}
