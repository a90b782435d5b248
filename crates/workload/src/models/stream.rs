//! Threads that go over memory as fast as it comes, each over a buffer of its own, as the kernels of STREAM do
//! (McCalpin, Memory Bandwidth and Machine Balance in Current High Performance Computers, 1995): every line is read and
//! written.
//!
//! With few threads the score grows with their number; where it stops growing, the bus of a node is full
//! (`memory.bus_ps` of the machine profile).

use super::plan::{Plan, Planned, Steps};
use crate::measure::measure;
use crate::{
    Access, Action, Builder, Context, Kind, Model, ObjectId, ObjectSpec, Options, Param, Score,
    ScoreRule, Touch, WorkloadError,
};

const MB: u64 = 1 << 20;

pub(super) const MODEL: Model = Model {
    name: "stream",
    summary: "threads go over buffers of their own, and memory is the limit (STREAM)",
    params: &[
        Param {
            name: "threads",
            kind: Kind::Count { min: 1, max: 4_096 },
            default: "4",
            doc: "number of threads",
        },
        Param {
            name: "size",
            kind: Kind::Bytes {
                min: MB,
                max: 256 * MB,
            },
            default: "64M",
            doc: "bytes of each thread's buffer, rounded down to whole MB; more than the caches hold",
        },
        Param {
            name: "passes",
            kind: Kind::Count {
                min: 1,
                max: 1_000_000,
            },
            default: "20",
            doc: "how often each thread goes over its buffer; one pass before them is not measured",
        },
    ],
    measures: &[
        measure("throughput_per_s", "MB/s", "megabytes (2^20 bytes) that all threads go over in a second"),
        measure("work", "", "megabytes gone over"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let (threads, asked) = (options.count("threads"), options.bytes("size"));
    let megabytes = asked / MB;
    let size = megabytes * MB;
    if size < asked {
        builder.in_effect("size", format!("{megabytes}M"));
    }
    let barrier = builder.object(ObjectSpec::Barrier {
        parties: threads as u32,
    });
    builder.room_for(options, threads)?;
    for thread in 0..threads {
        let walker = Walker {
            size,
            passes: options.count("passes"),
            barrier,
            is_first: thread == 0,
            is_set_up: false,
        };
        builder.task(format!("stream-{thread}"), 0, 0, Planned::new(walker));
    }
    Ok(Score {
        name: "throughput_per_s",
        unit: "MB/s",
        higher_is_better: true,
        rule: ScoreRule::WorkPerSecond,
    })
}

struct Walker {
    size: u64,
    /// Still to be begun.
    passes: u64,
    barrier: ObjectId,
    is_first: bool,
    is_set_up: bool,
}

impl Walker {
    fn pass(&self) -> Action {
        Action::Touch(Touch {
            buffer: 0,
            size_bytes: self.size,
            count: self.size,
            access: Access::Lines,
        })
    }
}

impl Plan for Walker {
    fn plan(&mut self, _: &mut Context<'_>, steps: &mut Steps) {
        if !self.is_set_up {
            self.is_set_up = true;
            steps.push(self.pass());
            steps.push(Action::Barrier(self.barrier));
            if self.is_first {
                steps.push(Action::Begin);
            }
            // Nobody goes on before the clock runs.
            steps.push(Action::Barrier(self.barrier));
        }
        if self.passes > 0 {
            self.passes -= 1;
            steps.push(self.pass());
            steps.push(Action::Work((self.size / MB) as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::run;
    use crate::Workload;

    #[test]
    fn every_pass_but_the_first_is_work() {
        let end = run(Workload::parse("stream:threads=3,size=2M,passes=5", 1).unwrap());
        assert_eq!((end.work, end.tasks), (3 * 5 * 2, 3));
    }

    #[test]
    fn a_part_of_a_megabyte_is_left_out() {
        let workload = Workload::parse("stream:threads=1,size=2500000,passes=5", 1).unwrap();
        let size = |(name, value): &(String, String)| name == "size" && value == "2M";
        assert!(workload.params.iter().any(size), "{:?}", workload.params);
        assert_eq!(run(workload).work, 10);
    }
}
