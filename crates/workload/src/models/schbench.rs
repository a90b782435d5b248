//! Message threads and workers with wakeup-latency percentiles, as schbench (Chris Mason, github.com/masoncl/schbench).
//!
//! A worker reports to its message thread that it is idle and waits; the message thread notes the time and wakes
//! every idle worker. The wakeup latency is from that note until the worker runs. Then the worker handles a request:
//! it sleeps for `sleep`, as if for the network, computes `operations` times `operation`, and is idle again; the
//! request latency covers sleep and work.
//!
//! While it computes, a worker holds the lock of the CPU on which it began (`lock_this_cpu()`). A worker that gets
//! this CPU because the holder was preempted or has migrated burns CPU time until the holder is done.
//!
//! Until 2023 the original was another program under the same name: a worker's think time is by the clock (`spin`),
//! nothing is locked, and the message thread sleeps before it wakes all workers that have become idle meanwhile
//! (`pause`). Reports from distributions' packages are often of this one; its percentiles are the 50th, 75th, 90th,
//! 95th, 99th, 99.5th and 99.9th, and its defaults are `message_threads=2,workers=16,pause=30ms,spin=30ms`.
//!
//! The score is the 99th percentile of the wakeup latency. Percentiles are exact to two significant digits, rounded
//! up (buckets of 1/64 of a power of two).

use std::sync::{Arc, Mutex};

use schedlab_trace::{CpuId, Duration, Instant};

use super::buckets::Buckets;
use super::plan::{Plan, Planned, Steps, drawn, held};
use crate::measure::measure;
use crate::model::{jitter, offset};
use crate::seed::drawn_below;
use crate::{
    Action, Builder, Context, Counters, Kind, Model, ObjectId, ObjectSpec, Options, Outcome, Param, Score,
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
        Param {
            name: "lock",
            kind: Kind::Flag,
            default: "true",
            doc: "a worker holds the lock of its CPU while it computes (the original without -L)",
        },
        Param {
            name: "pause",
            kind: TIME,
            default: "0",
            doc: "sleep of a message thread before it wakes its idle workers, drawn up to a quarter longer (-s of the original before 2023, 30ms there)",
        },
        Param {
            name: "spin",
            kind: TIME,
            default: "0",
            doc: "time by the clock that a worker computes instead of sleep and operations, without the lock (-c of the original before 2023, 30ms there); 0 = sleep and operations",
        },
        jitter("percentage by which the CPU time of every operation is drawn shorter or longer, uniformly; 0 = as the original, which computes the same each time"),
        offset("percentage of a request by which each worker begins later at most, drawn (with `spin` it computes for so long); 0 = all at once"),
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
    let request = match options.time("spin") {
        Duration::ZERO => Request::Operations {
            sleep: options.time("sleep"),
            operations: options.count("operations"),
            operation: options.time("operation"),
            jitter_pct: options.percent("jitter"),
            locks: options.flag("lock").then(|| {
                let nr_cpus = builder.placement().nr_cpus();
                (0..nr_cpus).map(|_| builder.object(ObjectSpec::UserLock)).collect()
            }),
        },
        time => Request::Spin(time),
    };
    let pause = options.time("pause");
    let length = pause.ns() + request.time().ns();
    for m in 0..message_threads {
        let posted = builder.object(ObjectSpec::Semaphore { initial: 0 });
        let group = Arc::new(Group {
            posted,
            idle: Mutex::new(Vec::new()),
        });
        let message = MessageThread {
            group: Arc::clone(&group),
            latencies: (m == 0).then(|| Arc::clone(&latencies)),
            pause,
            step: MessageStep::Wait,
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
                request: request.clone(),
                offset: Duration::from_ns(length * options.percent("offset") / 100),
                step: Step::Begin,
                begun: Instant::ZERO,
                holds: None,
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
    pause: Duration,
    step: MessageStep,
}

enum MessageStep {
    Wait,
    Pause,
    Wake,
}

impl Plan for MessageThread {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        loop {
            match self.step {
                MessageStep::Wait => {
                    self.step = match self.pause {
                        Duration::ZERO => MessageStep::Wake,
                        _ => MessageStep::Pause,
                    };
                    return steps.push(Action::Acquire(self.group.posted));
                }
                MessageStep::Pause => {
                    self.step = MessageStep::Wake;
                    let longer = drawn_below(Duration::from_ns(self.pause.ns() / 4), context.rng);
                    return steps.push(Action::Sleep(self.pause + longer));
                }
                // One time for all: the last one waits for the wakeups of all others, too.
                MessageStep::Wake => {
                    self.step = MessageStep::Wait;
                    for worker in held(&self.group.idle).drain(..) {
                        *held(&worker.woken) = context.now;
                        steps.push(Action::Post(worker.semaphore));
                    }
                }
            }
        }
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

/// A worker's part of a request.
#[derive(Clone)]
enum Request {
    /// Sleeps, then computes under the lock of its CPU.
    Operations {
        sleep: Duration,
        operations: u64,
        operation: Duration,
        jitter_pct: u64,
        /// One for each CPU of the machine.
        locks: Option<Arc<[ObjectId]>>,
    },
    /// Computes until this time has passed.
    Spin(Duration),
}

impl Request {
    /// Returns its time on a CPU of its own.
    fn time(&self) -> Duration {
        match self {
            Request::Operations {
                sleep,
                operations,
                operation,
                ..
            } => Duration::from_ns(sleep.ns() + operation.ns() * operations),
            Request::Spin(time) => *time,
        }
    }
}

/// CPU time between two looks at a lock or at the clock.
const LOOK: Duration = Duration::from_us(20);

struct Worker {
    group: Arc<Group>,
    latencies: Arc<Latencies>,
    own: Arc<Own>,
    request: Request,
    /// Longest that it begins later.
    offset: Duration,
    step: Step,
    begun: Instant,
    /// The CPU whose lock it holds or tries to take.
    holds: Option<CpuId>,
}

enum Step {
    Begin,
    Idle,
    Woken,
    Lock,
    Locking,
    Compute,
    Spin,
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
                        return steps.push(match self.request {
                            Request::Operations { .. } => Action::Sleep(offset),
                            // The original begins with its think time, so that the threads spread while they begin.
                            Request::Spin(_) => Action::Compute(offset),
                        });
                    }
                }
                Step::Idle => {
                    self.step = Step::Woken;
                    held(&self.group.idle).push(Arc::clone(&self.own));
                    steps.push(Action::Post(self.group.posted));
                    return steps.push(Action::Acquire(self.own.semaphore));
                }
                Step::Woken => {
                    let woken = *held(&self.own.woken);
                    self.begun = context.now;
                    held(&self.latencies.wakeup).add(context.now.since(woken).ns());
                    match &self.request {
                        Request::Operations { sleep, locks, .. } => {
                            self.step = match locks {
                                Some(_) => Step::Lock,
                                None => Step::Compute,
                            };
                            if *sleep > Duration::ZERO {
                                return steps.push(Action::Sleep(*sleep));
                            }
                        }
                        Request::Spin(_) => self.step = Step::Spin,
                    }
                }
                Step::Lock => {
                    self.step = Step::Locking;
                    self.holds = Some(context.cpu);
                    return steps.push(Action::TryUserLock(self.lock(context.cpu)));
                }
                Step::Locking => {
                    let cpu = self.holds.expect("it tries to take a lock");
                    let lock = self.lock(cpu);
                    if context.outcome == Outcome::Busy {
                        steps.compute(LOOK);
                        return steps.push(Action::TryUserLock(lock));
                    }
                    self.step = Step::Compute;
                    if context.cpu != cpu {
                        // It has migrated meanwhile.
                        self.step = Step::Lock;
                        steps.push(Action::UserUnlock(lock));
                        return;
                    }
                }
                Step::Compute => {
                    self.step = Step::Done;
                    self.compute(context, steps);
                    return steps.push(Action::Work(1));
                }
                Step::Spin => {
                    let passed = context.now.since(self.begun);
                    let Request::Spin(time) = self.request else {
                        unreachable!("only a request by the clock spins");
                    };
                    if passed < time {
                        return steps.compute(LOOK.min(Duration::from_ns(time.ns() - passed.ns())));
                    }
                    self.step = Step::Done;
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

impl Worker {
    fn lock(&self, cpu: CpuId) -> ObjectId {
        match &self.request {
            Request::Operations {
                locks: Some(locks), ..
            } => locks[cpu.index()],
            _ => unreachable!("only operations under the lock take it"),
        }
    }

    fn compute(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        if let Request::Operations {
            operations,
            operation,
            jitter_pct,
            ..
        } = &self.request
        {
            for _ in 0..*operations {
                steps.compute(drawn(*operation, *jitter_pct, context.rng));
            }
        }
        if let Some(cpu) = self.holds.take() {
            steps.push(Action::UserUnlock(self.lock(cpu)));
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
        let text = "schbench:message_threads=2,workers=3,operation=100us,operations=2,duration=100ms,jitter=0,offset=0,lock=false";
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
    fn a_worker_that_finds_its_cpu_locked_burns_time() {
        let text = "schbench:workers=2,sleep=0,operation=100us,operations=2,duration=50ms,jitter=0,offset=0";
        let work = |lock| {
            let workload = Workload::parse(&format!("{text},lock={lock}"), 1).unwrap();
            run_in(workload, Order::RoundRobin).work
        };
        // 50 ms of 200 us each. With the lock the other worker looks once, for 20 us, beside each operation.
        assert!((248..=250).contains(&work(false)), "{}", work(false));
        assert!((206..=229).contains(&work(true)), "{}", work(true));
    }

    #[test]
    fn before_2023_think_time_is_by_the_clock_and_messages_wait() {
        // Alone on the CPU: 1 ms of think time, then the message thread's sleep of 2 to 2.5 ms.
        let text = "schbench:workers=1,spin=1ms,pause=2ms,duration=350ms,offset=0";
        let end = run_in(Workload::parse(text, 1).unwrap(), Order::RoundRobin);
        assert!((100..=117).contains(&end.work), "{}", end.work);
        let longest = end.counters.get("schbench.request_ns_max");
        assert!((1_000_000..=1_016_000).contains(&longest), "{longest}");
        // Two share the CPU: each has its think time behind it after 1 ms all the same.
        let end = run_in(
            Workload::parse(&text.replace("workers=1", "workers=2"), 1).unwrap(),
            Order::RoundRobin,
        );
        let longest = end.counters.get("schbench.request_ns_max");
        assert!((1_000_000..=1_040_000).contains(&longest), "{longest}");
    }

    #[test]
    fn there_is_a_worker_a_cpu() {
        let workload = Workload::parse("schbench:message_threads=2", 8).unwrap();
        assert_eq!(workload.tasks.len(), 2 + 8);
    }
}
