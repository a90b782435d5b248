//! The token-passing scheduler benchmark: a fixed number of runnable threads that yield and wake each other.
//!
//! Threads are grouped in active sets; in each set one thread holds the token and performs rounds: it
//! computes, then yields. In its last round it passes the token on over the next thread's pipe instead
//! and blocks on its own. The probability that a round is the last sets the ratio of `sched_yield` to
//! wakeups, and the number of active sets is the mean number of runnable threads. Described by Kravetz,
//! Franke, Nagar and Ravindran (IBM, 2001); no source of the program is public, so what is not in their
//! description is a guess: one process, threads take turns in a ring, tokens start at each set's first thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use schedlab_trace::Duration;

use crate::measure::measure;
use crate::{
    Action, Behaviour, Builder, Context, Counters, Kind, Model, ObjectId, ObjectSpec, Options,
    Param, Score, ScoreRule, TimeUnit, WorkloadError, below,
};

use super::pipe::PIPE_BYTES;

pub(super) const MODEL: Model = Model {
    name: "reflex",
    summary: "sets of threads pass a token over pipes; the holder computes and yields",
    params: &[
        Param {
            name: "active_sets",
            kind: Kind::Count {
                min: 1,
                max: 1_000_000,
            },
            default: "16",
            doc: "sets, each with one token: the mean number of runnable threads",
        },
        Param {
            name: "threads",
            kind: Kind::Count { min: 2, max: 1_000 },
            default: "2",
            doc: "threads of a set",
        },
        Param {
            name: "computation",
            kind: Kind::Time {
                bare: TimeUnit::Us,
                max: Duration::from_secs(1_000),
            },
            default: "0",
            doc: "CPU time of a round before the yield or the pass",
        },
        Param {
            name: "pass",
            kind: Kind::Probability,
            default: "0.5",
            doc: "probability that a round is the holder's last; 0.5 makes yields and wakeups equally frequent",
        },
        Param {
            name: "rounds",
            kind: Kind::Count {
                min: 1,
                max: 1_000_000_000_000,
            },
            default: "10000",
            doc: "rounds of each set; then its threads end (the published runs were timed: a guess)",
        },
    ],
    measures: &[
        measure("round_ns_mean", "ns/round", "run time divided by the rounds of all threads"),
        measure("work", "", "rounds of all threads"),
        measure("reflex.yields", "", "rounds that ended with sched_yield()"),
        measure("reflex.passes", "", "rounds that ended with the token passed on"),
    ],
    build,
};

/// The token's size on the pipe; the original's is not known (guess: one int).
const TOKEN_BYTES: u32 = 4;

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let threads = options.count("threads") as usize;
    builder.room_for(options, options.count("active_sets") * threads as u64)?;
    for set in 0..options.count("active_sets") {
        let shared = Arc::new(Set {
            rounds_left: AtomicU64::new(options.count("rounds")),
            ended: AtomicU32::new(0),
            threads: threads as u32,
        });
        let pipe = ObjectSpec::Pipe {
            capacity: PIPE_BYTES,
        };
        let pipes: Vec<ObjectId> = (0..threads).map(|_| builder.object(pipe)).collect();
        for i in 0..threads {
            let thread = Thread {
                set: Arc::clone(&shared),
                own: pipes[i],
                next: pipes[(i + 1) % threads],
                computation: options.time("computation"),
                pass_ppm: options.probability_ppm("pass"),
                step: if i == 0 { Step::Round } else { Step::Wait },
                yields: 0,
                passes: 0,
            };
            builder.task(format!("reflex-{set}.{i}"), 0, 0, thread);
        }
    }
    Ok(Score {
        name: "round_ns_mean",
        unit: "ns/round",
        higher_is_better: false,
        rule: ScoreRule::NsPerWork,
    })
}

/// The data that a set's threads share. Only the holder of the token touches it, so its order is the token's.
struct Set {
    rounds_left: AtomicU64,
    /// Threads that have ended; the last one has nobody to pass the token to.
    ended: AtomicU32,
    threads: u32,
}

struct Thread {
    set: Arc<Set>,
    own: ObjectId,
    next: ObjectId,
    computation: Duration,
    pass_ppm: u32,
    step: Step,
    yields: u64,
    passes: u64,
}

enum Step {
    /// Blocks until the token comes.
    Wait,
    Round,
    /// The round's computation is done.
    Count,
    Part,
    /// The token has been passed on for the last time.
    Exit,
}

impl Behaviour for Thread {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        loop {
            match self.step {
                Step::Wait => {
                    self.step = Step::Round;
                    return Action::Read {
                        from: self.own,
                        limit: 1,
                    };
                }
                Step::Round => {
                    let left = self.set.rounds_left.load(Relaxed);
                    if left == 0 {
                        self.step = Step::Exit;
                        if self.set.ended.fetch_add(1, Relaxed) + 1 < self.set.threads {
                            return self.pass();
                        }
                        continue;
                    }
                    self.set.rounds_left.store(left - 1, Relaxed);
                    self.step = Step::Count;
                    if self.computation > Duration::ZERO {
                        return Action::Compute(self.computation);
                    }
                }
                Step::Count => {
                    self.step = Step::Part;
                    return Action::Work(1);
                }
                Step::Part => {
                    if below(context.rng, 1_000_000) < u64::from(self.pass_ppm) {
                        self.step = Step::Wait;
                        self.passes += 1;
                        return self.pass();
                    }
                    self.step = Step::Round;
                    self.yields += 1;
                    return Action::Yield;
                }
                Step::Exit => return Action::Exit,
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        counters.add("reflex.yields", self.yields);
        counters.add("reflex.passes", self.passes);
    }
}

impl Thread {
    fn pass(&self) -> Action {
        Action::Write {
            to: self.next,
            bytes: TOKEN_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Workload;
    use crate::testing::{Order, run, run_in};

    #[test]
    fn every_set_does_its_rounds_and_all_threads_end() {
        for text in [
            "reflex:active_sets=1,rounds=1",
            "reflex:active_sets=3,threads=2,rounds=100",
            "reflex:active_sets=2,threads=7,rounds=100,computation=5us",
            "reflex:active_sets=2,threads=3,rounds=100,pass=0",
            "reflex:active_sets=2,threads=3,rounds=100,pass=1",
        ] {
            let workload = || Workload::parse(text, 2).unwrap();
            let rounds = workload()
                .params
                .iter()
                .filter(|(name, _)| name == "rounds" || name == "active_sets")
                .map(|(_, value)| value.parse::<u64>().unwrap())
                .product::<u64>();
            assert_eq!(run(workload()).work, rounds, "{text}");
            assert_eq!(run_in(workload(), Order::Random(5)).work, rounds, "{text}");
        }
    }

    #[test]
    fn half_of_the_rounds_end_in_a_pass() {
        let end = run(Workload::parse("reflex:active_sets=4,rounds=10000", 2).unwrap());
        let (yields, passes) = (
            end.counters.get("reflex.yields"),
            end.counters.get("reflex.passes"),
        );
        assert_eq!(yields + passes, 40_000);
        assert!((19_500..20_500).contains(&passes), "{passes}");
        assert_eq!(end.yields as i64, yields);
    }
}
