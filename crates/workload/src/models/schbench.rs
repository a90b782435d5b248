//! Message threads and workers with wakeup-latency percentiles, as schbench (Chris Mason, github.com/masoncl/schbench).
//!
//! A worker reports to its message thread that it is idle and waits; the message thread notes the time and wakes
//! every idle worker. The wakeup latency is from that note until the worker runs. Then the worker handles a request:
//! it sleeps for `sleep`, as if for the network, computes `operations` times `operation`, and is idle again; the
//! request latency covers sleep and work.
//!
//! Model: the original holds a spin lock of its CPU while it computes, so that a worker that comes to that CPU after
//! a preemption or migration burns CPU time until the request is done. Here no worker does, as with its option `-L`.
//!
//! The score is the 99th percentile of the wakeup latency. Percentiles are exact to two significant digits, rounded
//! up (buckets of 1/64 of a power of two).

use std::sync::{Arc, Mutex};

use schedlab_trace::{Duration, Instant};

use super::buckets::Buckets;
use super::plan::{Plan, Planned, Steps, drawn, held};
use crate::measure::measure;
use crate::model::{jitter, offset};
use crate::seed::drawn_below;
use crate::{
    Action, Builder, Context, Counters, Kind, Model, ObjectId, ObjectSpec, Options, Param, Score,
    ScoreRule, TimeUnit, WorkloadError,
};

const TIME: Kind = Kind::Time {
    bare: TimeUnit::Us,
    max: Duration::from_secs(100),
};

pub(super) const MODEL: Model = Model {
    name: "schbench",
    summary: "message threads wake workers: wakeup-latency percentiles (schbench)",
    params: &[
        Param {
            name: "message_threads",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "1",
            doc: "message threads (the original's -m)",
        },
        Param {
            name: "workers",
            kind: Kind::Count {
                min: 0,
                max: 100_000,
            },
            default: "0",
            doc: "workers of each message thread (the original's -t); 0 = as many as CPUs, shared out",
        },
        Param {
            name: "sleep",
            kind: TIME,
            default: "100us",
            doc: "sleep at the beginning of a request (the original's -s)",
        },
        Param {
            name: "operations",
            kind: Kind::Count {
                min: 1,
                max: 1_000_000,
            },
            default: "5",
            doc: "operations of a request (the original's -n)",
        },
        Param {
            name: "operation",
            kind: TIME,
            default: "950us",
            doc: "CPU time of an operation, alone on its core (measured: the original's for 256 KB, compiled with -O2 as it says, on an AMD EPYC 9004; in the run of its README at least 1849us and in the median 3373us)",
        },
        jitter("percentage by which the CPU time of every operation is drawn shorter or longer, uniformly; 0 = as the original, which computes the same each time"),
        offset("percentage of a request by which each worker begins later at most, drawn; 0 = all at once"),
        Param {
            name: "working_set",
            kind: Kind::Bytes {
                min: 0,
                max: 1 << 30,
            },
            default: "256K",
            doc: "bytes of cache each worker needs to run at full speed (the original's -F)",
        },
        Param {
            name: "duration",
            kind: Kind::Time {
                bare: TimeUnit::S,
                max: Duration::from_secs(1_000_000),
            },
            default: "30s",
            doc: "the run ends here (the original's -r)",
        },
    ],
    measures: &[
        measure("wakeup_ns_p99", "ns", "schbench.wakeup_ns_p99"),
        measure("work", "", "requests done"),
        measure("schbench.wakeups", "", "wakeups of workers by their message thread"),
        measure("schbench.wakeup_ns_p50", "ns", "median of the time from the note of the message thread until the worker runs"),
        measure("schbench.wakeup_ns_p90", "ns", "90th percentile of the time from the note of the message thread until the worker runs"),
        measure("schbench.wakeup_ns_p99", "ns", "99th percentile of the time from the note of the message thread until the worker runs"),
        measure("schbench.wakeup_ns_p99_9", "ns", "99.9th percentile of the time from the note of the message thread until the worker runs"),
        measure("schbench.wakeup_ns_max", "ns", "maximum of the time from the note of the message thread until the worker runs"),
        measure("schbench.requests", "", "requests whose time was taken"),
        measure("schbench.request_ns_p50", "ns", "median of the time of a request, its sleep included"),
        measure("schbench.request_ns_p90", "ns", "90th percentile of the time of a request, its sleep included"),
        measure("schbench.request_ns_p99", "ns", "99th percentile of the time of a request, its sleep included"),
        measure("schbench.request_ns_p99_9", "ns", "99.9th percentile of the time of a request, its sleep included"),
        measure("schbench.request_ns_max", "ns", "maximum of the time of a request, its sleep included"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let duration = options.time("duration");
    if duration == Duration::ZERO {
        return Err(options.contradiction("it would never end: give `duration`"));
    }
    let message_threads = options.count("message_threads");
    let cpus = builder.placement().allowed.len() as u64;
    let workers = match options.count("workers") {
        0 => cpus.div_ceil(message_threads),
        n => n,
    };
    builder.room_for(options, message_threads * (1 + workers))?;
    let latencies = Arc::new(Latencies::default());
    let request = options.time("sleep").ns() + options.time("operation").ns() * options.count("operations");
    let request = Duration::from_ns(request);
    for m in 0..message_threads {
        let posted = builder.object(ObjectSpec::Semaphore { initial: 0 });
        let group = Arc::new(Group {
            posted,
            idle: Mutex::new(Vec::new()),
        });
        let message = MessageThread {
            group: Arc::clone(&group),
            latencies: (m == 0).then(|| Arc::clone(&latencies)),
            waiting: false,
        };
        builder.task(format!("message-{m}"), 0, 0, Planned::new(message));
        for w in 0..workers {
            let worker = Worker {
                group: Arc::clone(&group),
                latencies: Arc::clone(&latencies),
                own: Arc::new(Own {
                    semaphore: builder.object(ObjectSpec::Semaphore { initial: 0 }),
                    woken: Mutex::new(Instant::ZERO),
                }),
                sleep: options.time("sleep"),
                operations: options.count("operations"),
                operation: options.time("operation"),
                jitter_pct: options.percent("jitter"),
                offset: Duration::from_ns(request.ns() * options.percent("offset") / 100),
                step: Step::Begin,
                begun: Instant::ZERO,
            };
            let working_set = options.bytes("working_set");
            builder.task(format!("worker-{m}.{w}"), 0, working_set, Planned::new(worker));
        }
    }
    builder.duration(duration);
    Ok(Score {
        name: "wakeup_ns_p99",
        unit: "ns",
        higher_is_better: false,
        rule: ScoreRule::Counter("schbench.wakeup_ns_p99"),
    })
}

/// A message thread and its workers. The locks are for real threads; nobody waits for anything else while it
/// holds one.
struct Group {
    /// Posted by each worker that becomes idle.
    posted: ObjectId,
    idle: Mutex<Vec<Arc<Own>>>,
}

/// The data of one worker.
struct Own {
    semaphore: ObjectId,
    /// When the message thread decided to wake it.
    woken: Mutex<Instant>,
}

#[derive(Default)]
struct Latencies {
    wakeup: Mutex<Buckets>,
    request: Mutex<Buckets>,
}

struct MessageThread {
    group: Arc<Group>,
    /// The one that reports for all.
    latencies: Option<Arc<Latencies>>,
    waiting: bool,
}

impl Plan for MessageThread {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        if std::mem::replace(&mut self.waiting, true) {
            for worker in held(&self.group.idle).drain(..) {
                *held(&worker.woken) = context.now;
                steps.push(Action::Post(worker.semaphore));
            }
        }
        steps.push(Action::Acquire(self.group.posted));
    }

    fn report(&self, counters: &mut Counters) {
        let Some(latencies) = &self.latencies else {
            return;
        };
        for (name, buckets) in [
            ("wakeup", &latencies.wakeup),
            ("request", &latencies.request),
        ] {
            held(buckets).report(&format!("schbench.{name}"), counters);
        }
    }
}

struct Worker {
    group: Arc<Group>,
    latencies: Arc<Latencies>,
    own: Arc<Own>,
    sleep: Duration,
    operations: u64,
    operation: Duration,
    jitter_pct: u64,
    /// Longest that it begins later.
    offset: Duration,
    step: Step,
    begun: Instant,
}

enum Step {
    Begin,
    Idle,
    Woken,
    Done,
}

impl Plan for Worker {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        loop {
            match self.step {
                Step::Begin => {
                    self.step = Step::Idle;
                    let offset = drawn_below(self.offset, context.rng);
                    if offset > Duration::ZERO {
                        return steps.push(Action::Sleep(offset));
                    }
                }
                Step::Idle => {
                    self.step = Step::Woken;
                    held(&self.group.idle).push(Arc::clone(&self.own));
                    steps.push(Action::Post(self.group.posted));
                    return steps.push(Action::Acquire(self.own.semaphore));
                }
                Step::Woken => {
                    self.step = Step::Done;
                    let woken = *held(&self.own.woken);
                    self.begun = context.now;
                    held(&self.latencies.wakeup).add(context.now.since(woken).ns());
                    if self.sleep > Duration::ZERO {
                        steps.push(Action::Sleep(self.sleep));
                    }
                    for _ in 0..self.operations {
                        steps.compute(drawn(self.operation, self.jitter_pct, context.rng));
                    }
                    return steps.push(Action::Work(1));
                }
                Step::Done => {
                    self.step = Step::Idle;
                    held(&self.latencies.request).add(context.now.since(self.begun).ns());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Workload;
    use crate::testing::{Order, run_in};

    #[test]
    fn workers_go_round_until_the_end() {
        // One CPU and nothing costs time but the operations, 200 µs a request. Workers of a group that sleep together leave
        // the CPU idle at times.
        let text = "schbench:message_threads=2,workers=3,operation=100us,operations=2,duration=100ms,jitter=0,offset=0";
        for order in [Order::RoundRobin, Order::Random(8)] {
            let end = run_in(Workload::parse(text, 2).unwrap(), order);
            assert!((400..=500).contains(&end.work), "{} {order:?}", end.work);
            let wakeups = end.counters.get("schbench.wakeups") as u64;
            assert!((end.work..=end.work + 6).contains(&wakeups));
            assert!(end.counters.get("schbench.request_ns_p50") >= 300_000);
        }
    }

    #[test]
    fn the_latency_is_that_of_the_wait_for_the_cpu() {
        // A single worker is alone on the CPU: it never waits, and a request is its sleep and its work.
        let text = "schbench:workers=1,operation=100us,operations=2,duration=50ms,jitter=0,offset=0";
        let end = run_in(Workload::parse(text, 2).unwrap(), Order::RoundRobin);
        assert_eq!(end.counters.get("schbench.wakeup_ns_max"), 0);
        assert_eq!(end.counters.get("schbench.request_ns_max"), 300_000);
    }

    #[test]
    fn a_request_is_by_default_as_long_as_the_originals() {
        let end = run_in(Workload::parse("schbench:workers=1,duration=1s,jitter=0", 1).unwrap(), Order::RoundRobin);
        assert_eq!(end.counters.get("schbench.request_ns_max"), 100_000 + 5 * 950_000);
    }

    #[test]
    fn there_is_a_worker_a_cpu() {
        let workload = Workload::parse("schbench:message_threads=2", 8).unwrap();
        assert_eq!(workload.tasks.len(), 2 + 8);
    }
}
