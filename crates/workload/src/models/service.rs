//! A service: requests come, queue up and are answered by a pool of threads.
//!
//! Open loop (`rate`): requests come at random times (a Poisson process), whatever became of earlier ones. Closed loop:
//! each of `clients` sends its next request when it has thought about the last answer for a while. The response time
//! counts from when a request came, so requests that nobody had time to take are not left out.
//!
//! Model: clients are elsewhere and take no CPU time here. A request is an interrupt, as of a network card, that wakes
//! one waiting worker on the CPU on which that worker went to sleep. A worker that is done takes the oldest request
//! that has come, so one that was woken may find nothing left and waits again. A waiting worker knows when the next
//! request comes without any message, so that waiting costs one system call, as `accept()` does. The draws of a
//! client depend on the seed alone, not on the scheduler: under all of them it thinks for the same times and asks for
//! the same work.
//!
//! The score of the open loop is the 99th percentile of the response time. The score of the closed loop is requests
//! per second.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rand_core::RngCore;
use schedlab_trace::{Duration, Instant};

use super::buckets::Buckets;
use super::plan::{Plan, Planned, Steps, held};
use crate::measure::measure;
use crate::seed::{exponential, exponential_gap};
use crate::{
    Action, Builder, Context, Counters, Kind, Model, ObjectId, ObjectSpec, Options, Param, Rng,
    Score, ScoreRule, TimeUnit, WorkloadError, below, stream,
};

const TIME: Kind = Kind::Time {
    bare: TimeUnit::Us,
    max: Duration::from_secs(1_000),
};

pub(super) const MODEL: Model = Model {
    name: "service",
    summary: "a pool of workers answers requests, of an open loop (rate=2000/s) or a closed one: response-time percentiles",
    params: &[
        Param {
            name: "rate",
            kind: Kind::Rate { max: 10_000_000 },
            default: "0",
            doc: "requests that come in a second, at random times (open loop); 0 = a closed loop of `clients`",
        },
        Param {
            name: "clients",
            kind: Kind::Count {
                min: 1,
                max: 1_000_000,
            },
            default: "64",
            doc: "clients of the closed loop, with one request each under way",
        },
        Param {
            name: "think",
            kind: TIME,
            default: "10ms",
            doc: "mean time between an answer and the same client's next request (closed loop)",
        },
        Param {
            name: "think_distribution",
            kind: Kind::Choice(&["exponential", "constant"]),
            default: "exponential",
            doc: "how that time is drawn",
        },
        Param {
            name: "workers",
            kind: Kind::Count {
                min: 0,
                max: 100_000,
            },
            default: "0",
            doc: "threads of the pool, of a closed loop at most one per client; 0 = two per CPU",
        },
        Param {
            name: "service",
            kind: TIME,
            default: "500us",
            doc: "mean CPU time of a request",
        },
        Param {
            name: "distribution",
            kind: Kind::Choice(&["exponential", "constant", "bimodal"]),
            default: "exponential",
            doc: "how that time is drawn",
        },
        Param {
            name: "long_share",
            kind: Kind::Probability,
            default: "0.1",
            doc: "share of long requests (bimodal)",
        },
        Param {
            name: "long_ratio",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "10",
            doc: "how many times as long as a short request a long one takes (bimodal)",
        },
        Param {
            name: "duration",
            kind: Kind::Time {
                bare: TimeUnit::S,
                max: Duration::from_secs(1_000_000),
            },
            default: "10s",
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
        measure("throughput_per_s", "requests/s", "requests answered in a second; the score of a closed loop"),
        measure("work", "", "requests answered"),
        measure("response_ns_p99", "ns", "service.response_ns_p99; the score of an open loop"),
        measure("service.responses", "", "requests whose time was taken"),
        measure("service.response_ns_p50", "ns", "median of the time from when a request comes until it is answered"),
        measure("service.response_ns_p90", "ns", "90th percentile of the time from when a request comes until it is answered"),
        measure("service.response_ns_p99", "ns", "99th percentile of the time from when a request comes until it is answered"),
        measure("service.response_ns_p99_9", "ns", "99.9th percentile of the time from when a request comes until it is answered"),
        measure("service.response_ns_max", "ns", "maximum of the time from when a request comes until it is answered"),
        measure("service.response_ns_sum", "ns", "sum of these times"),
        measure("service.queue_ns_sum", "ns", "sum of the times from when a request comes until a worker takes it"),
        measure("service.service_ns_sum", "ns", "sum of the CPU times that were drawn for the answered requests"),
        measure("service.think_ns_sum", "ns", "sum of the times that clients thought before the answered requests (closed loop)"),
        measure("service.elapsed_ns", "ns", "from the beginning until the last answer"),
        measure("service.unanswered", "", "requests that had come by the last answer and had none: many where more comes than can be answered"),
        measure("service.response_ns_mean", "ns", "mean time from when a request comes until it is answered"),
        measure("service.queue_ns_mean", "ns", "mean time from when a request comes until a worker takes it"),
        measure("service.service_ns_mean", "ns", "mean CPU time that was drawn for a request"),
        measure("service.think_ns_mean", "ns", "mean time that a client thought (closed loop)"),
        measure("service.load", "CPUs", "service_ns_sum for each ns of elapsed_ns: CPUs that the answered requests kept busy"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let duration = options.time("duration");
    if duration == Duration::ZERO {
        return Err(options.contradiction("it would never end: give `duration`"));
    }
    let rate = options.rate("rate");
    let closed = ["clients", "think", "think_distribution"];
    if let Some(other) = closed.iter().find(|other| rate > 0 && options.is_given(other)) {
        return Err(options.contradiction(format!(
            "`rate` is of an open loop, `{other}` of a closed one: give one of them"
        )));
    }
    if options.time("service") == Duration::ZERO {
        return Err(options.contradiction("no request would take any time: give `service`"));
    }
    let (short, long) = match options.choice("distribution") {
        "bimodal" => bimodal(
            options.time("service"),
            options.probability_ppm("long_share"),
            options.count("long_ratio"),
        ),
        _ => (options.time("service"), options.time("service")),
    };
    let cpus = builder.placement().allowed.len() as u64;
    let pool = match options.count("workers") {
        0 => 2 * cpus,
        n => n,
    };
    let clients = match rate {
        0 => options.count("clients"),
        _ => 1,
    };
    let workers = match rate {
        0 => pool.min(clients),
        _ => pool,
    };
    builder.room_for(options, 1 + workers)?;
    let server = Arc::new(Server {
        arrivals: match rate {
            0 => Arrivals::Closed {
                clients: clients as u32,
                think: options.time("think"),
                constant: options.choice("think_distribution") == "constant",
            },
            rate => Arrivals::Open { rate },
        },
        times: match options.choice("distribution") {
            "exponential" => Times::Exponential(short),
            _ => Times::TwoPoint {
                short,
                long,
                long_ppm: options.probability_ppm("long_share"),
            },
        },
        start: builder.object(ObjectSpec::Semaphore { initial: 0 }),
        never: builder.object(ObjectSpec::Event),
        queue: Mutex::default(),
    });
    let main = Main {
        server: Arc::clone(&server),
        workers,
    };
    builder.task("service", 0, 0, Planned::new(main));
    for i in 0..workers {
        let worker = Worker {
            server: Arc::clone(&server),
            step: Step::Start,
        };
        let working_set = options.bytes("working_set");
        builder.task(format!("worker-{i}"), 0, working_set, Planned::new(worker));
    }
    builder.duration(duration);
    Ok(match rate {
        0 => Score {
            name: "throughput_per_s",
            unit: "requests/s",
            higher_is_better: true,
            rule: ScoreRule::WorkPerSecond,
        },
        _ => Score {
            name: "response_ns_p99",
            unit: "ns",
            higher_is_better: false,
            rule: ScoreRule::Counter("service.response_ns_p99"),
        },
    })
}

/// Short and long times whose mean is `mean`.
fn bimodal(mean: Duration, long_ppm: u32, ratio: u64) -> (Duration, Duration) {
    let millionths = u128::from(1_000_000 - long_ppm) + u128::from(long_ppm) * u128::from(ratio);
    let short_ns = u128::from(mean.ns()) * 1_000_000 / millionths;
    let short_ns = u64::try_from(short_ns).expect("not above the mean").max(1);
    (Duration::from_ns(short_ns), Duration::from_ns(short_ns * ratio))
}

/// The data that all tasks of the service share.
struct Server {
    arrivals: Arrivals,
    times: Times,
    /// Posted once for each worker when clients have begun.
    start: ObjectId,
    /// The main thread waits here for the end of the run.
    never: ObjectId,
    queue: Mutex<Queue>,
}

enum Arrivals {
    Open { rate: u64 },
    Closed {
        clients: u32,
        think: Duration,
        constant: bool,
    },
}

/// CPU times of requests.
enum Times {
    Exponential(Duration),
    TwoPoint {
        short: Duration,
        long: Duration,
        long_ppm: u32,
    },
}

impl Times {
    fn draw(&self, rng: &mut Rng) -> Duration {
        let time = match *self {
            Times::Exponential(mean) => exponential(mean, rng),
            Times::TwoPoint {
                short,
                long,
                long_ppm,
            } => match short != long && below(rng, 1_000_000) < u64::from(long_ppm) {
                true => long,
                false => short,
            },
        };
        time.max(Duration::from_ns(1))
    }
}

/// When a request comes, and its number among the requests of the same instant.
type Key = (Instant, u64);

#[derive(Clone, Copy)]
struct Request {
    client: u32,
    think: Duration,
    service: Duration,
}

/// Requests that have come or will come.
#[derive(Default)]
struct Queue {
    /// Each client's source of chance.
    clients: Vec<Rng>,
    /// Requests for which no worker waits. In an open loop the last one there is the next to be drawn from.
    free: BTreeMap<Key, Request>,
    /// Requests for each of which a worker has waited; if it has come, that worker is awake.
    awaited: BTreeMap<Key, Request>,
    drawn: u64,
    taken: u64,
    begun: Instant,
    last_answer: Instant,
    response: Buckets,
    response_ns: u64,
    queue_ns: u64,
    service_ns: u64,
    think_ns: u64,
    answered: u64,
}

impl Queue {
    /// The next request of `client` after `from`: its last answer, or in an open loop the request before.
    fn draw(&mut self, server: &Server, client: u32, from: Instant) {
        let rng = &mut self.clients[client as usize];
        let think = match server.arrivals {
            Arrivals::Open { rate } => exponential_gap(rate, rng),
            Arrivals::Closed {
                think,
                constant: true,
                ..
            } => think,
            Arrivals::Closed { think, .. } => exponential(think, rng),
        };
        let request = Request {
            client,
            think,
            service: server.times.draw(rng),
        };
        self.drawn += 1;
        self.free.insert((from + think, self.drawn), request);
    }

    /// A request leaves `free`: in an open loop another one follows it.
    fn pop_free(&mut self, server: &Server) -> Option<(Key, Request)> {
        let (key, request) = self.free.pop_first()?;
        if matches!(server.arrivals, Arrivals::Open { .. }) {
            self.draw(server, request.client, key.0);
        }
        Some((key, request))
    }

    /// Draws what had come by the last answer and nobody has looked for yet, in an open loop.
    fn catch_up(&mut self, server: &Server) {
        while let (Arrivals::Open { .. }, Some((&key, &last))) =
            (&server.arrivals, self.free.last_key_value())
            && key.0 <= self.last_answer
        {
            self.draw(server, last.client, key.0);
        }
    }

    /// Takes the oldest request that has come by `now`.
    fn take(&mut self, server: &Server, now: Instant) -> Option<(Instant, Request)> {
        let first = |requests: &BTreeMap<Key, Request>| requests.keys().next().copied();
        let (free, awaited) = (first(&self.free), first(&self.awaited));
        let oldest = [free, awaited].into_iter().flatten().min()?;
        if oldest.0 > now {
            return None;
        }
        let (key, request) = match awaited == Some(oldest) {
            true => self.awaited.pop_first()?,
            false => self.pop_free(server)?,
        };
        self.taken += 1;
        self.queue_ns += now.since(key.0).ns();
        Some((key.0, request))
    }

    /// Returns the earliest request for which nobody waits yet, for the caller to wait for.
    fn wait(&mut self, server: &Server) -> Option<Instant> {
        let (key, request) = self.pop_free(server)?;
        self.awaited.insert(key, request);
        Some(key.0)
    }

    fn answer(&mut self, server: &Server, came: Instant, request: Request, now: Instant) {
        let response_ns = now.since(came).ns();
        self.response.add(response_ns);
        self.response_ns += response_ns;
        self.service_ns += request.service.ns();
        self.think_ns += request.think.ns();
        self.answered += 1;
        self.last_answer = self.last_answer.max(now);
        if matches!(server.arrivals, Arrivals::Closed { .. }) {
            self.draw(server, request.client, now);
        }
    }
}

/// Starts the service, and reports for all.
struct Main {
    server: Arc<Server>,
    workers: u64,
}

impl Plan for Main {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        let server = &*self.server;
        let mut queue = held(&server.queue);
        let clients = match server.arrivals {
            Arrivals::Open { .. } => 1,
            Arrivals::Closed { clients, .. } => clients,
        };
        let seed = context.rng.next_u64();
        queue.clients = (0..clients).map(|client| stream(seed, client)).collect();
        (queue.begun, queue.last_answer) = (context.now, context.now);
        for client in 0..clients {
            queue.draw(server, client, context.now);
        }
        steps.push(Action::Begin);
        for _ in 0..self.workers {
            steps.push(Action::Post(server.start));
        }
        steps.push(Action::Suspend(server.never));
    }

    fn report(&self, counters: &mut Counters) {
        let server = &*self.server;
        let queue = &mut *held(&server.queue);
        queue.catch_up(server);
        queue.response.report("service.response", counters);
        if queue.answered == 0 {
            return;
        }
        counters.add("service.response_ns_sum", queue.response_ns);
        counters.add("service.queue_ns_sum", queue.queue_ns);
        counters.add("service.service_ns_sum", queue.service_ns);
        let elapsed = queue.last_answer.since(queue.begun);
        counters.add("service.elapsed_ns", elapsed.ns());
        let requests = queue.free.keys().chain(queue.awaited.keys());
        let waiting = requests.filter(|(at, _)| *at <= queue.last_answer).count() as u64;
        counters.add("service.unanswered", waiting + queue.taken - queue.answered);
        counters.ratio("service.response_ns_mean", "service.response_ns_sum", "service.responses");
        counters.ratio("service.queue_ns_mean", "service.queue_ns_sum", "service.responses");
        counters.ratio("service.service_ns_mean", "service.service_ns_sum", "service.responses");
        counters.ratio("service.load", "service.service_ns_sum", "service.elapsed_ns");
        if matches!(server.arrivals, Arrivals::Closed { .. }) {
            counters.add("service.think_ns_sum", queue.think_ns);
            counters.ratio("service.think_ns_mean", "service.think_ns_sum", "service.responses");
        }
    }
}

struct Worker {
    server: Arc<Server>,
    step: Step,
}

enum Step {
    Start,
    Idle,
    /// A request, and when it came.
    Serves(Instant, Request),
}

impl Plan for Worker {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        let server = &*self.server;
        if let Step::Start = self.step {
            self.step = Step::Idle;
            return steps.push(Action::Acquire(server.start));
        }
        let mut queue = held(&server.queue);
        if let Step::Serves(came, request) = self.step {
            self.step = Step::Idle;
            queue.answer(server, came, request, context.now);
        }
        if let Some((came, request)) = queue.take(server, context.now) {
            self.step = Step::Serves(came, request);
            steps.compute(request.service);
            steps.push(Action::Work(1));
        } else {
            // A worker that is idle has a request to wait for: there are no more workers than clients.
            let at = queue.wait(server).expect("a request that nobody waits for");
            steps.push(Action::Io(at.since(context.now)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;
    use crate::testing::{Order, run_in};

    fn number(counters: &Counters, name: &str) -> f64 {
        let name = format!("service.{name}");
        counters.number(&name).unwrap_or_else(|| panic!("no {name}"))
    }

    /// On one CPU, first come, first served, without any costs.
    fn run(options: &str) -> crate::testing::End {
        let text = format!("service:{options}");
        run_in(Workload::parse(&text, 1).unwrap(), Order::UntilBlocked)
    }

    /// Mean time in queue by Pollaczek and Khinchine: λ·E[S²] / (2·(1 − ρ)).
    #[test]
    fn one_worker_is_a_single_server_queue() {
        for (distribution, mean_square_us2) in [
            ("exponential", 2.0 * 1_000.0 * 1_000.0),
            ("constant", 1_000.0 * 1_000.0),
            // Nine of ten take 1000/1.9 µs, one of ten 10000/1.9.
            ("bimodal", (0.9 * 1.0 + 0.1 * 100.0) * (1_000.0 / 1.9) * (1_000.0 / 1.9)),
        ] {
            for rate in [300, 700] {
                let text = format!("rate={rate}/s,service=1ms,distribution={distribution},workers=1,duration=700s");
                let end = run(&text);
                let (per_us, load) = (f64::from(rate) / 1e6, f64::from(rate) / 1e3);
                let queue_ns = per_us * mean_square_us2 / (2.0 * (1.0 - load)) * 1e3;
                let found = number(&end.counters, "queue_ns_mean");
                assert!((found / queue_ns - 1.0).abs() < 0.05, "{text}: {found}, not {queue_ns}");
                let response = number(&end.counters, "response_ns_mean");
                let service = number(&end.counters, "service_ns_mean");
                assert!((response - found - service).abs() < 1e4, "{response} {found} {service}");
                assert!((number(&end.counters, "load") - load).abs() < 0.01);
            }
        }
    }

    /// M/M/1: the response time is exponential, so its percentiles are known, too: W·ln(1/(1 − q)).
    #[test]
    fn percentiles_are_those_of_the_exponential_response() {
        let end = run("rate=500/s,service=1ms,workers=1,duration=700s");
        for (name, times) in [("p50", 2_f64.ln()), ("p90", 10_f64.ln()), ("p99", 100_f64.ln())] {
            let (found, expected) = (number(&end.counters, &format!("response_ns_{name}")), 2e6 * times);
            assert!((found / expected - 1.0).abs() < 0.05, "{name}: {found}, not {expected}");
        }
    }

    /// N·T is the time that all clients think or wait, so R = N/X − Z, but for the cycles under way at the end.
    #[test]
    fn a_closed_loop_obeys_the_response_time_law() {
        for (clients, think) in [(1, "exponential"), (3, "constant"), (20, "exponential")] {
            let text = format!("clients={clients},think=5ms,think_distribution={think},service=1ms,workers=4,duration=100s");
            let end = run(&text);
            let throughput = number(&end.counters, "responses") / 100e9;
            let law = f64::from(clients) / throughput - number(&end.counters, "think_ns_mean");
            let found = number(&end.counters, "response_ns_mean");
            assert!((found / law - 1.0).abs() < 0.002, "{text}: {found}, not {law}");
        }
        // One client, whose every cycle takes 6 ms: exact.
        let end = run("clients=1,think=5ms,think_distribution=constant,service=1ms,distribution=constant,duration=6001us");
        assert_eq!(number(&end.counters, "response_ns_mean"), 1e6);
        assert_eq!(number(&end.counters, "elapsed_ns"), 6e6);
    }

    /// A request is counted from when it comes, however late somebody looks.
    #[test]
    fn an_overloaded_service_tells_its_backlog() {
        let end = run("rate=2000/s,service=1ms,distribution=constant,workers=2,duration=10s");
        assert!((9_990..=10_000).contains(&end.work), "{}", end.work);
        // The last ones came after half of the time and were answered at the end.
        let max = number(&end.counters, "response_ns_max");
        assert!((4.5e9..5.5e9).contains(&max), "{max}");
        let unanswered = number(&end.counters, "unanswered");
        assert!((9_500.0..10_500.0).contains(&unanswered), "{unanswered} {}", end.work);
    }

    #[test]
    fn what_is_asked_for_does_not_depend_on_the_order() {
        let runs = |order| {
            let text = "service:clients=5,service=200us,duration=1s";
            run_in(Workload::parse(text, 2).unwrap(), order)
        };
        let (one, other) = (runs(Order::RoundRobin), runs(Order::Random(3)));
        assert_ne!(one.counters, other.counters);
        let mean = |end: &crate::testing::End| number(&end.counters, "service_ns_mean");
        assert!((mean(&one) / mean(&other) - 1.0).abs() < 0.05);
    }

    #[test]
    fn bimodal_times_keep_the_mean() {
        let (short, long) = bimodal(Duration::from_us(1_900), 100_000, 10);
        assert_eq!((short.ns(), long.ns()), (1_000_000, 10_000_000));
        assert_eq!(bimodal(Duration::from_us(5), 0, 10).0.ns(), 5_000);
    }

    #[test]
    fn loops_are_open_or_closed() {
        for text in ["rate=5,clients=3", "rate=5,think=1ms", "service=0", "duration=0"] {
            let error = Workload::parse(&format!("service:{text}"), 1).err().unwrap();
            assert!(matches!(error, WorkloadError::Contradiction { .. }), "{text}");
        }
        let nr_tasks = |options: &str| Workload::parse(&format!("service:{options}"), 4).unwrap().tasks.len();
        assert_eq!((nr_tasks("rate=9"), nr_tasks("clients=3"), nr_tasks("workers=2")), (9, 4, 3));
    }
}
