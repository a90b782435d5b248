//! Threads of one process that access new pages as fast as they get them, as will-it-scale's page_fault1 does (Blanchard).
//!
//! The score grows with the number of threads as far as what page faults share in the kernel lets it (`paths = ["fault"]` of
//! a shared object in the machine profile): a lock limits it, counted references alone only slow it.

use super::plan::{Plan, Planned, Steps};
use crate::measure::measure;
use crate::{
    Action, Builder, Context, Kind, Model, Options, Param, Score, ScoreRule, WorkloadError,
};

/// Pages between two looks at the clock of a real program.
const BATCH: u64 = 256;

pub(super) const MODEL: Model = Model {
    name: "faults",
    summary: "threads of one process access new pages (will-it-scale page_fault1)",
    params: &[
        Param {
            name: "threads",
            kind: Kind::Count { min: 1, max: 4_096 },
            default: "4",
            doc: "number of threads",
        },
        Param {
            name: "pages",
            kind: Kind::Count {
                min: BATCH,
                max: 100_000_000,
            },
            default: "100000",
            doc: "pages that each thread accesses, rounded down to a multiple of 256",
        },
    ],
    measures: &[
        measure("throughput_per_s", "pages/s", "pages that all threads access in a second"),
        measure("work", "", "pages accessed"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let (threads, asked) = (options.count("threads"), options.count("pages"));
    let batches = asked / BATCH;
    if batches * BATCH < asked {
        builder.in_effect("pages", (batches * BATCH).to_string());
    }
    builder.room_for(options, threads)?;
    for thread in 0..threads {
        builder.task(format!("faults-{thread}"), 0, 0, Planned::new(Toucher { batches }));
    }
    Ok(Score {
        name: "throughput_per_s",
        unit: "pages/s",
        higher_is_better: true,
        rule: ScoreRule::WorkPerSecond,
    })
}

struct Toucher {
    /// Still to be begun.
    batches: u64,
}

impl Plan for Toucher {
    fn plan(&mut self, _: &mut Context<'_>, steps: &mut Steps) {
        if self.batches > 0 {
            self.batches -= 1;
            steps.push(Action::Fault(BATCH as u32));
            steps.push(Action::Work(BATCH as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::run;
    use crate::Workload;

    #[test]
    fn every_page_is_work() {
        let end = run(Workload::parse("faults:threads=3,pages=1024", 1).unwrap());
        assert_eq!((end.work, end.tasks), (3 * 1_024, 3));
    }

    #[test]
    fn a_part_of_a_batch_is_left_out() {
        let workload = Workload::parse("faults:threads=1,pages=600", 1).unwrap();
        let pages = |(name, value): &(String, String)| name == "pages" && value == "512";
        assert!(workload.params.iter().any(pages), "{:?}", workload.params);
        assert_eq!(run(workload).work, 512);
    }
}
