//! Workload files: programs that were recorded, or written by hand in the same format (docs/recording.md).
//!
//! Each task does its steps in order. A wake-up is a semaphore that belongs to the task that waits: whoever posts, its
//! next wait passes, and one that comes early is kept. Every semaphore has one task that waits, and what a task does
//! never depends on who posted. So the order of tasks is free, and a file whose recording came to an end comes to an
//! end under every scheduler.
//!
//! Model: a task waits for as many wakes as were recorded, in the places where it waited then. Under a scheduler that
//! lets it come later, the real program would not have waited there.

mod file;
mod replay;

pub use file::{
    Barrier, File, Head, Measured, Recorded, Step, TaskHead, VERSION, Waits, is_recorded,
};
pub use replay::OTHER;

use schedlab_trace::{CpuSet, counted};

use crate::measure::{Measure, measure};
use crate::{Builder, Kind, Options, Param, Score, ScoreRule, Workload, WorkloadError, common};

/// Notes on files.
pub const MEASURES: &[Measure] = &[
    measure(
        "makespan_ns",
        "ns",
        "time from the start of the run until the last task of the program has ended",
    ),
    measure(
        "work",
        "",
        "steps that were carried out, without those of background tasks",
    ),
];

const PERCENT: Kind = Kind::Percent {
    max: file::PERCENT_MAX,
};

/// Options of a workload file, besides the [`common`] ones.
pub const PARAMS: &[Param] = &[
    Param {
        name: "work",
        kind: PERCENT,
        default: "100%",
        doc: "percentage of all CPU times, beside the file's own: 50 = a CPU of twice the speed",
    },
    Param {
        name: "think",
        kind: PERCENT,
        default: "100%",
        doc: "percentage of all sleeps by a timer, beside the file's own",
    },
    Param {
        name: "jitter",
        kind: Kind::Percent { max: 100 },
        default: "0",
        doc: "percentage by which each CPU time is drawn shorter or longer, uniformly; by default what was measured for its task; 0 = as recorded",
    },
    Param {
        name: "others",
        kind: Kind::Flag,
        default: "true",
        doc: "keeps the tasks that ran beside the program, where the file has them",
    },
];

/// Understands the text of a file; `file` is its name for messages.
///
/// # Errors
/// If the file is wrong, or names CPUs that the machine does not have.
pub(crate) fn parse_on(
    file: &str,
    text: &str,
    options: &str,
    allowed: &CpuSet,
) -> Result<Workload, WorkloadError> {
    let params = PARAMS.iter().chain(common()).copied();
    let options = Options::read(file, params, options)?;
    let parsed = File::parse(file, text)?;
    let mut builder = Builder::new(&options, allowed);
    if !options.is_given("jitter") {
        builder.in_effect("jitter", "as measured");
    }
    if let Some(recorded) = &parsed.head.recorded {
        if recorded.lost_events > 0 {
            let all = recorded.lost_events.saturating_add(recorded.events);
            builder.note(format!(
                "{file}: its recording lost {} of {}: what was lost is not replayed",
                recorded.lost_events,
                counted(all, "event")
            ));
        }
        if recorded.waits.not_inferred() > NOT_INFERRED_MAX {
            builder.note(format!(
                "{file}: {:.0} % of the time that its tasks waited has no known cause and is replayed as it was recorded",
                100.0 * recorded.waits.not_inferred()
            ));
        }
    }
    replay::build(file, &parsed, &options, &mut builder)?;
    let score = Score {
        name: "makespan_ns",
        unit: "ns",
        higher_is_better: false,
        rule: ScoreRule::Makespan,
    };
    builder.finish(&options, score)
}

/// Above this share of waiting time without a known cause, users are warned.
pub const NOT_INFERRED_MAX: f64 = 0.2;

#[cfg(test)]
mod tests;
