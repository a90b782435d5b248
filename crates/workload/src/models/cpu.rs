//! CPU-bound tasks: hogs, tasks that run and sleep by turns, and always-runnable yielders.

use schedlab_trace::Duration;

use crate::measure::measure;
use crate::model::{jitter, offset};
use crate::seed::{drawn, drawn_below};
use crate::{
    Action, Behaviour, Builder, Context, Kind, Model, Options, Param, Rng, Score, ScoreRule,
    TimeUnit, WorkloadError,
};

pub(super) const MODEL: Model = Model {
    name: "cpu",
    summary: "CPU-bound tasks: hogs at given nice levels, run-and-sleep tasks, or yielders",
    params: &[
        Param {
            name: "tasks",
            kind: Kind::Count {
                min: 1,
                max: 10_000_000,
            },
            default: "4",
            doc: "number of tasks, each a process of its own",
        },
        Param {
            name: "run",
            kind: Kind::Time {
                bare: TimeUnit::Us,
                max: Duration::from_secs(1_000),
            },
            default: "1ms",
            doc: "CPU time of a burst; finished bursts are counted",
        },
        Param {
            name: "sleep",
            kind: Kind::Time {
                bare: TimeUnit::Us,
                max: Duration::from_secs(1_000),
            },
            default: "0",
            doc: "sleep after each burst; 0 makes a hog that never sleeps",
        },
        jitter("percentage by which every burst and sleep is drawn shorter or longer, uniformly; 0 by default where nobody sleeps"),
        offset("percentage of a burst and a sleep by which each task begins later at most, drawn; 0 by default where nobody sleeps"),
        Param {
            name: "yield",
            kind: Kind::Flag,
            default: "false",
            doc: "calls sched_yield() after each burst; with sleep=0 the queue length is forced to `tasks`",
        },
        Param {
            name: "loops",
            kind: Kind::Count {
                min: 0,
                max: 1_000_000_000_000,
            },
            default: "0",
            doc: "bursts of each task, then it exits; 0 = until the duration is over",
        },
        Param {
            name: "duration",
            kind: Kind::Time {
                bare: TimeUnit::S,
                max: Duration::from_secs(1_000_000),
            },
            default: "1s",
            doc: "the run ends here at the latest; 0 = when every task has done its loops",
        },
        Param {
            name: "working_set",
            kind: Kind::Bytes {
                min: 0,
                max: 1 << 30,
            },
            default: "0",
            doc: "bytes of cache each task needs to run at full speed",
        },
    ],
    measures: &[
        measure("throughput_per_s", "bursts/s", "bursts of CPU time done in a second"),
        measure("work", "", "bursts done"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let (loops, duration) = (options.count("loops"), options.time("duration"));
    if loops == 0 && duration == Duration::ZERO {
        return Err(
            options.contradiction("it would never end: give `loops` or `duration` (or both)")
        );
    }
    if duration > Duration::ZERO {
        builder.duration(duration);
    }
    let times = (options.time("run"), options.time("sleep"));
    if times == (Duration::ZERO, Duration::ZERO) && !options.flag("yield") {
        return Err(options.contradiction(
            "with run=0 and sleep=0 no time would ever pass: give `run`, or yield=true",
        ));
    }
    builder.room_for(options, options.count("tasks"))?;
    let sleeps = times.1 > Duration::ZERO;
    let mut varied = |option| match sleeps || options.is_given(option) {
        true => options.percent(option),
        false => {
            builder.in_effect(option, "0");
            0
        }
    };
    let (jitter_pct, offset_pct) = (varied("jitter"), varied("offset"));
    for i in 0..options.count("tasks") {
        let hog = Burst {
            run: times.0,
            sleep: times.1,
            jitter_pct,
            offset: Duration::from_ns((times.0 + times.1).ns() * offset_pct / 100),
            yields: options.flag("yield"),
            left: if loops == 0 { u64::MAX } else { loops },
            next: Next::Offset,
        };
        builder.task(
            format!("cpu-{i}"),
            i as u32,
            options.bytes("working_set"),
            hog,
        );
    }
    Ok(Score {
        name: "throughput_per_s",
        unit: "bursts/s",
        higher_is_better: true,
        rule: ScoreRule::WorkPerSecond,
    })
}

struct Burst {
    run: Duration,
    sleep: Duration,
    jitter_pct: u64,
    /// Longest that it begins later.
    offset: Duration,
    yields: bool,
    /// Bursts left, this one included.
    left: u64,
    next: Next,
}

enum Next {
    Offset,
    Run,
    Count,
    Yield,
    Sleep,
}

impl Burst {
    fn drawn(&self, mean: Duration, rng: &mut Rng) -> Duration {
        drawn(mean, self.jitter_pct, rng)
    }
}

impl Behaviour for Burst {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        loop {
            match self.next {
                Next::Offset => {
                    self.next = Next::Run;
                    let offset = drawn_below(self.offset, context.rng);
                    if offset > Duration::ZERO {
                        return Action::Sleep(offset);
                    }
                }
                Next::Run => {
                    if self.left == 0 {
                        return Action::Exit;
                    }
                    self.left -= 1;
                    self.next = Next::Count;
                    if self.run > Duration::ZERO {
                        return Action::Compute(self.drawn(self.run, context.rng));
                    }
                }
                Next::Count => {
                    self.next = if self.yields { Next::Yield } else { Next::Sleep };
                    return Action::Work(1);
                }
                Next::Yield => {
                    self.next = Next::Sleep;
                    return Action::Yield;
                }
                Next::Sleep => {
                    self.next = Next::Run;
                    if self.sleep > Duration::ZERO {
                        return Action::Sleep(self.drawn(self.sleep, context.rng));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;
    use crate::testing::run;

    #[test]
    fn bursts_and_time_add_up() {
        let end = run(Workload::parse("cpu:tasks=3,run=50,loops=7,duration=0", 1).unwrap());
        assert_eq!((end.work, end.now.ns()), (21, 3 * 7 * 50_000));
        // One CPU, mostly idle: the makespan is one task's own time plus what the others were ahead of it.
        let end =
            run(
                Workload::parse("cpu:tasks=2,run=50,sleep=200,loops=10,duration=0,jitter=0,offset=0", 1).unwrap(),
            );
        assert_eq!((end.work, end.now.ns()), (20, 50_000 + 10 * 250_000));
    }

    #[test]
    fn yielders_take_turns() {
        let end = run(Workload::parse("cpu:tasks=5,run=10,yield=true,loops=4,duration=0", 1)
        .unwrap());
        assert_eq!((end.work, end.yields), (20, 20));
    }

    #[test]
    fn jitter_keeps_the_mean_and_the_bounds() {
        let times = |jitter| {
            let text = format!("cpu:tasks=1,run=100,jitter={jitter},loops=10000,duration=0");
            run(Workload::parse(&text, 1).unwrap()).now.ns()
        };
        assert_eq!(times(0), 1_000_000_000);
        let drawn = times(100);
        assert_ne!(drawn, times(0));
        assert!(drawn.abs_diff(1_000_000_000) < 20_000_000, "{drawn}");
    }

    #[test]
    fn the_duration_ends_hogs() {
        let end = run(Workload::parse("cpu:tasks=2,duration=10ms", 1).unwrap());
        // The tenth burst ends with the run, so nobody is left to count it.
        assert_eq!((end.work, end.now.ns()), (9, 10_000_000));
    }

    #[test]
    fn endless_and_timeless_runs_are_refused() {
        for text in ["cpu:duration=0", "cpu:run=0,sleep=0"] {
            let error = Workload::parse(text, 1).err().unwrap();
            assert!(matches!(error, WorkloadError::Contradiction { .. }));
        }
    }
}
