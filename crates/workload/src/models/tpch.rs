//! Decision-support queries over data in memory, as TPC-H on a parallel database.
//!
//! A query is a sequence of operators. For each, `degree` scanning processes read their part of the data batch by
//! batch, which they get from a dispenser under a latch (a mutex that sleeps), and pass each batch over a bounded
//! queue to one of `degree` joining processes; when all of that is done, everybody meets at a barrier and a coordinator combines the results alone. So about half of the processes
//! are runnable at a time, and they switch because queues are full or empty, not because their time is up. Disk
//! I/O is negligible, as in the study.
//!
//! The database and its parameters are not published. The study gives the mean run queue (5 to 8), its maximum, the
//! calls of schedule() and the lock statistics on 2, 4 and 8 CPUs under the default scheduler.

use std::sync::Arc;

use schedlab_trace::Duration;

use super::plan::{Plan, Planned, Steps, drawn};
use crate::measure::measure;
use crate::{
    Action, Builder, Context, Counters, Kind, Model, ObjectId, ObjectSpec, Options, Param, Score,
    ScoreRule, TimeUnit, WorkloadError,
};

const TIME: Kind = Kind::Time {
    bare: TimeUnit::Us,
    max: Duration::from_secs(100),
};

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

const fn param(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Param {
    Param {
        name,
        kind,
        default,
        doc,
    }
}

pub(super) const MODEL: Model = Model {
    name: "tpch",
    summary: "decision-support queries: parallel scans and joins over bounded queues (TPC-H)",
    params: &[
        param("streams", count(1, 1_000), "1", "query streams at a time (published: one power test)"),
        param("queries", count(1, 1_000_000), "22", "queries of a stream"),
        param("degree", count(0, 10_000), "0", "parallelism of an operator; 0 = 2 per CPU"),
        param("operators", count(1, 1_000), "3", "operators of a query (guess)"),
        param("batches", count(1, 1_000_000_000), "3850", "batches of an operator of a query of mean size, shared out among the scanning processes (fitted, see docs/calibration.md)"),
        param("latch", TIME, "600ns", "CPU time that a scanning process holds the latch from which it gets its next batch (fitted, see docs/calibration.md)"),
        param("scan", TIME, "15us", "CPU time of reading a batch (fitted, see docs/calibration.md)"),
        param("join", TIME, "45us", "CPU time of joining a batch (fitted, see docs/calibration.md)"),
        param("combine", TIME, "1ms", "CPU time of the coordinator after an operator (guess)"),
        param("imbalance", count(0, 100), "60", "percent by which these times are drawn shorter or longer (guess)"),
        param("queue", count(1, 1_000_000), "3", "batches that fit into a queue between two processes (fitted, see docs/calibration.md)"),
        param(
            "working_set",
            Kind::Bytes { min: 0, max: 1 << 30 },
            "64K",
            "bytes of cache a process needs to run at full speed (guess)",
        ),
    ],
    measures: &[
        measure("queries_per_hour", "queries/h", "queries done in an hour"),
        measure("work", "", "queries done"),
        measure("tpch.operators", "", "operators done, of all streams"),
        measure("tpch.batches_scanned", "", "batches that scanning processes passed on"),
        measure("tpch.batches_joined", "", "batches that joining processes took"),
    ],
    build,
};

/// The queries' sizes, in percent of the mean, as in a power test (guess: a few long ones).
const SIZES_PCT: [u64; 22] = [
    210, 30, 90, 60, 100, 40, 110, 90, 300, 90, 30, 70, 130, 40, 70, 60, 100, 240, 70, 80, 160, 30,
];

/// An item of a queue: a pointer to a batch.
const BATCH_BYTES: u32 = 64;

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let degree = match options.count("degree") {
        0 => 2 * builder.placement().allowed.len() as u64,
        n => n,
    };
    builder.room_for(options, options.count("streams") * (2 * degree + 1))?;
    let working_set = options.bytes("working_set");
    let mut space = 0;
    let mut task = |builder: &mut Builder, name: String, working_set, behaviour| {
        builder.task(name, space, working_set, behaviour);
        space += 1;
    };
    for stream in 0..options.count("streams") {
        let queues: Arc<[ObjectId]> = (0..degree)
            .map(|_| {
                builder.object(ObjectSpec::Pipe {
                    capacity: BATCH_BYTES * options.count("queue") as u32,
                })
            })
            .collect();
        let barrier = builder.object(ObjectSpec::Barrier {
            parties: 2 * degree as u32 + 1,
        });
        let latch = builder.object(ObjectSpec::Mutex);
        let agent = |role| Agent {
            role,
            queues: Arc::clone(&queues),
            barrier,
            operators: options.count("operators"),
            queries: options.count("queries"),
            batches: options.count("batches"),
            imbalance_pct: options.count("imbalance"),
            operator: 0,
            done: 0,
            met: 0,
        };
        let coordinator = agent(Role::Coordinator {
            combine: options.time("combine"),
        });
        task(builder, format!("query-{stream}"), 0, Planned::new(coordinator));
        for i in 0..degree {
            let scan = options.time("scan");
            let scanner = agent(Role::Scanner {
                i,
                scan,
                latch,
                hold: options.time("latch"),
                left: 0,
            });
            task(builder, format!("scan-{stream}.{i}"), working_set, Planned::new(scanner));
        }
        for i in 0..degree {
            let join = options.time("join");
            let joiner = agent(Role::Joiner { i, join, left: 0 });
            task(builder, format!("join-{stream}.{i}"), working_set, Planned::new(joiner));
        }
    }
    Ok(Score {
        name: "queries_per_hour",
        unit: "queries/h",
        higher_is_better: true,
        rule: ScoreRule::WorkPerHour,
    })
}

/// A process of a stream. All of them count operators alike, so no message is needed.
struct Agent {
    role: Role,
    queues: Arc<[ObjectId]>,
    barrier: ObjectId,
    /// Of a query.
    operators: u64,
    queries: u64,
    /// Of an operator of mean size.
    batches: u64,
    imbalance_pct: u64,
    /// The next operator, counted through all queries.
    operator: u64,
    /// Batches read or joined.
    done: u64,
    /// Operators whose end it has met.
    met: u64,
}

enum Role {
    Coordinator { combine: Duration },
    Scanner {
        i: u64,
        scan: Duration,
        latch: ObjectId,
        hold: Duration,
        left: u64,
    },
    Joiner { i: u64, join: Duration, left: u64 },
}

impl Agent {
    /// Batches that each scanner reads in an operator.
    fn batches_of(&self, operator: u64) -> u64 {
        let query = (operator / self.operators) as usize;
        let all = self.batches * SIZES_PCT[query % SIZES_PCT.len()];
        all.div_ceil(100 * self.queues.len() as u64)
    }

    /// The end of an operator: everybody is there, then the coordinator works, then everybody goes on.
    fn meet(&mut self, steps: &mut Steps) {
        self.operator += 1;
        self.met += 1;
        steps.push(Action::Barrier(self.barrier));
    }
}

/// Returns how many of a scanner's batches go to one joiner: batch b of scanner s goes to joiner (s + b) mod
/// `degree`.
fn batches_for(joiner: u64, scanner: u64, batches: u64, degree: u64) -> u64 {
    let first = (joiner + degree - scanner % degree) % degree;
    (batches + degree - 1 - first) / degree
}

impl Plan for Agent {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        let over = self.operator == self.operators * self.queries;
        let batches = self.batches_of(self.operator);
        let degree = self.queues.len() as u64;
        let imbalance_pct = self.imbalance_pct;
        match &mut self.role {
            Role::Coordinator { combine } => {
                if over {
                    return;
                }
                let combine = drawn(*combine, imbalance_pct, context.rng);
                self.meet(steps);
                steps.compute(combine);
                if self.operator.is_multiple_of(self.operators) {
                    steps.push(Action::Work(1));
                }
                steps.push(Action::Barrier(self.barrier));
            }
            Role::Scanner {
                i,
                scan,
                latch,
                hold,
                left,
            } => {
                if *left == 0 {
                    if over {
                        return;
                    }
                    *left = batches;
                }
                // Batches are counted down, so that the last one has number 0.
                *left -= 1;
                let to = self.queues[((*i + batches - 1 - *left) % degree) as usize];
                let last = *left == 0;
                if *hold > Duration::ZERO {
                    steps.push(Action::Lock(*latch));
                    steps.compute(*hold);
                    steps.push(Action::Unlock(*latch));
                }
                steps.compute(drawn(*scan, imbalance_pct, context.rng));
                steps.push(Action::Write {
                    to,
                    bytes: BATCH_BYTES,
                });
                self.done += 1;
                if last {
                    self.meet(steps);
                    steps.push(Action::Barrier(self.barrier));
                }
            }
            Role::Joiner { i, join, left } => {
                if *left == 0 {
                    if over {
                        return;
                    }
                    *left = (0..degree)
                        .map(|scanner| batches_for(*i, scanner, batches, degree))
                        .sum();
                }
                if *left > 0 {
                    *left -= 1;
                    self.done += 1;
                    steps.push(Action::Read {
                        from: self.queues[*i as usize],
                        limit: 1,
                    });
                    steps.compute(drawn(*join, imbalance_pct, context.rng));
                }
                // Queries can be so short that a joiner gets nothing.
                if *left == 0 {
                    self.meet(steps);
                    steps.push(Action::Barrier(self.barrier));
                }
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        match self.role {
            Role::Coordinator { .. } => counters.add("tpch.operators", self.met),
            Role::Scanner { .. } => counters.add("tpch.batches_scanned", self.done),
            Role::Joiner { .. } => counters.add("tpch.batches_joined", self.done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;
    use crate::testing::{Order, run_in};

    #[test]
    fn every_batch_has_one_joiner() {
        for degree in 1..6 {
            for batches in 0..20 {
                for scanner in 0..degree {
                    let mut got = vec![0; degree as usize];
                    for b in 0..batches {
                        got[((scanner + b) % degree) as usize] += 1;
                    }
                    for joiner in 0..degree {
                        let n = batches_for(joiner, scanner, batches, degree);
                        assert_eq!(n, got[joiner as usize]);
                    }
                }
            }
        }
    }

    #[test]
    fn every_batch_is_scanned_and_joined() {
        for (degree, batches, queue) in [(1, 1, 1), (3, 2, 1), (4, 10, 2), (5, 7, 100)] {
            for order in [Order::RoundRobin, Order::UntilBlocked, Order::Random(5)] {
                let text = format!(
                    "tpch:streams=2,queries=3,operators=2,degree={degree},batches={batches},queue={queue}"
                );
                let end = run_in(Workload::parse(&text, 2).unwrap(), order);
                assert_eq!(end.work, 2 * 3, "{text}");
                assert_eq!(end.tasks, 2 * (1 + 2 * degree as usize));
                // Two operators of the first three queries, for each scanner of two streams.
                let per_scanner: u64 = SIZES_PCT[..3]
                    .iter()
                    .map(|size| 2 * (batches * size).div_ceil(100 * degree))
                    .sum();
                let expected = (2 * degree * per_scanner) as i64;
                assert_eq!(end.counters.get("tpch.batches_scanned"), expected);
                assert_eq!(end.counters.get("tpch.batches_joined"), expected);
                assert_eq!(end.counters.get("tpch.operators"), 2 * 3 * 2);
            }
        }
    }

    #[test]
    fn the_degree_follows_the_cpus() {
        let workload = Workload::parse("tpch", 4).unwrap();
        assert_eq!(workload.tasks.len(), 1 + 2 * 8);
    }
}
