//! The result of one run, and the document that results are handed on in.

use serde::Serialize;

use crate::Measures;
use crate::histogram::Buckets;

/// Version of the JSON document. It grows when a member changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// One run: what was run, how it ended and what was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunResult {
    /// Name of the workload.
    pub workload: String,
    /// The workload as it was asked for, for people; `params` says it in full.
    #[serde(skip)]
    pub asked: String,
    /// Its parameters in effect, defaults included, in the workload's order.
    #[serde(serialize_with = "as_map")]
    pub params: Vec<(String, String)>,
    /// The scheduler as it was asked for, options included.
    pub scheduler: String,
    /// The machine profile, or `host` and `vm` for real kernels.
    pub machine: String,
    /// Layout of the task structures (`plain`, `coloured:32` …); of simulations only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_layout: Option<String>,
    /// Number of CPUs.
    pub cpus: u32,
    /// The seed of the run.
    pub seed: u64,
    /// `done`, or the exit kind of the policy (`error_stall` …).
    pub exit: String,
    /// Why the policy was ejected, in the kernel's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The command that repeats this run alone.
    pub replay: String,
    /// What was measured.
    pub measures: Measures,
    /// Histograms by measure: `[smallest value, largest value, count]` of each bucket that is not empty.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_map")]
    pub histograms: Vec<(String, Buckets)>,
}

impl RunResult {
    /// `exit` of a run that ended as it should.
    pub const DONE: &'static str = "done";

    /// Whether the run ended as it should.
    pub fn is_done(&self) -> bool {
        self.exit == Self::DONE
    }
}

fn as_map<S: serde::Serializer, V: Serialize>(
    pairs: &[(String, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// All results of a command.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Document<'a> {
    schema: u32,
    /// One entry per run.
    pub results: &'a [RunResult],
}

impl<'a> Document<'a> {
    /// A document of these results.
    pub fn new(results: &'a [RunResult]) -> Self {
        Document {
            schema: SCHEMA,
            results,
        }
    }
}
