//! Two tasks that pass one small message back and forth, as `perf bench sched pipe` does
//! (tools/perf/bench/sched-pipe.c): one writes first and then reads, the other the reverse, and an
//! operation is one round trip.

use crate::measure::measure;
use crate::{
    Action, Behaviour, Builder, Context, Kind, Model, ObjectId, ObjectSpec, Options, Param, Score,
    ScoreRule, WorkloadError,
};

pub(super) const MODEL: Model = Model {
    name: "pipe",
    summary: "two tasks pass a message back and forth over two pipes (perf bench sched pipe)",
    params: &[
        Param {
            name: "loops",
            kind: Kind::Count {
                min: 1,
                max: 1_000_000_000,
            },
            default: "1000000",
            doc: "round trips; the default is the original's",
        },
        Param {
            name: "threads",
            kind: Kind::Flag,
            default: "false",
            doc: "two threads of one process instead of two processes (the original's -T)",
        },
    ],
    measures: &[
        measure("round_trip_ns_mean", "ns/op", "time of a round trip between the two tasks"),
        measure("work", "", "round trips"),
    ],
    build,
};

/// The default capacity of a pipe (pipe(7), Linux since 2.6.11).
pub(crate) const PIPE_BYTES: u32 = 65_536;
/// The original passes an `int`.
const MESSAGE_BYTES: u32 = 4;

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let forth = builder.object(ObjectSpec::Pipe {
        capacity: PIPE_BYTES,
    });
    let back = builder.object(ObjectSpec::Pipe {
        capacity: PIPE_BYTES,
    });
    let left = options.count("loops");
    let second_space = u32::from(!options.flag("threads"));
    builder.task(
        "sched-pipe-0",
        0,
        0,
        End {
            to: forth,
            from: back,
            left,
            next: Next::Write,
            counts: true,
        },
    );
    builder.task(
        "sched-pipe-1",
        second_space,
        0,
        End {
            to: back,
            from: forth,
            left,
            next: Next::Read,
            counts: false,
        },
    );
    Ok(Score {
        name: "round_trip_ns_mean",
        unit: "ns/op",
        higher_is_better: false,
        rule: ScoreRule::NsPerWork,
    })
}

/// One end: its steps alternate, and it is done after `left` reads and writes.
struct End {
    to: ObjectId,
    from: ObjectId,
    left: u64,
    next: Next,
    /// The task that writes first counts the round trips.
    counts: bool,
}

enum Next {
    Write,
    Read,
    Count,
}

impl Behaviour for End {
    fn next(&mut self, _: &mut Context<'_>) -> Action {
        match self.next {
            _ if self.left == 0 => Action::Exit,
            Next::Write => {
                self.next = Next::Read;
                if !self.counts {
                    self.left -= 1;
                }
                Action::Write {
                    to: self.to,
                    bytes: MESSAGE_BYTES,
                }
            }
            Next::Read => {
                self.next = if self.counts {
                    Next::Count
                } else {
                    Next::Write
                };
                Action::Read {
                    from: self.from,
                    limit: 1,
                }
            }
            Next::Count => {
                self.next = Next::Write;
                self.left -= 1;
                Action::Work(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Workload;
    use crate::testing::run;

    #[test]
    fn every_round_trip_is_four_transfers() {
        let end = run(Workload::parse("pipe:loops=1000", 1).unwrap());
        assert_eq!(end.work, 1_000);
        assert_eq!((end.writes, end.messages_read), (2_000, 2_000));
    }
}
