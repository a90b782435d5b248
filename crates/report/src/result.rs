//! The result of one run, and the document that results are handed on in.

use schedlab_trace::counted;
use serde::{Deserialize, Serialize};

use crate::histogram::Buckets;
use crate::pairs::{as_map, from_map};
use crate::{Exit, Measures, Value};

/// Version of the JSON document. It grows when a member changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// One run: what was run, how it ended and what was measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RunResult {
    /// Name of the workload.
    pub workload: String,
    /// The workload as it was asked for, for people; `params` says it in full.
    #[serde(skip)]
    pub asked: String,
    /// Its parameters in effect, defaults included, in the workload's order.
    #[serde(serialize_with = "as_map", deserialize_with = "from_map")]
    pub params: Vec<(String, String)>,
    /// The scheduler as it was asked for, options included.
    pub scheduler: String,
    /// Of a scheduler by its own loader in a real kernel: the version, in the loader's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loader: Option<String>,
    /// The machine profile, or for real kernels `host`, `vm` or [`RunResult::EMULATED`].
    pub machine: String,
    /// Layout of the task structures (`plain`, `coloured:32` …); of simulations only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_layout: Option<String>,
    /// Number of CPUs.
    pub cpus: u32,
    /// The seed of the run.
    pub seed: u64,
    /// How it ended.
    pub exit: Exit,
    /// Why the policy was ejected, in the kernel's words; of a run that is done, what its user should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The code that a policy of a simulation gave to `scx_bpf_exit()`, or the virtual kernel's own code when it
    /// asked for a restart; `None` if it is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The text that a policy of a simulation printed by `bpf_printk()`; of many lines the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub printed: Vec<String>,
    /// Violations that the checkers found before the run ended otherwise than done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violations: Option<String>,
    /// Why the policy was ejected, in one sentence (`schedlab explain` says more).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    /// State of queues and tasks at an ejection, as the kernel prints it (`scx_dump_state`, kernel/sched/ext.c), in a
    /// simulation, too; empty without an ejection.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dump: String,
    /// The command that repeats this run alone.
    pub replay: String,
    /// The measures.
    pub measures: Measures,
    /// Histograms by measure: `[smallest value, largest value, count]` of each bucket that is not empty.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "as_map",
        deserialize_with = "from_map"
    )]
    pub histograms: Vec<(String, Buckets)>,
    /// Measures over time: `[ns since the start of the run, value]`, a few hundred points each.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "as_map",
        deserialize_with = "from_map"
    )]
    pub series: Vec<(String, Points)>,
}

/// A measure over time: `(ns since the start of the run, value)`.
pub type Points = Vec<(u64, f64)>;

impl RunResult {
    /// The machine of a run in a virtual machine whose CPUs are emulated in software.
    pub const EMULATED: &str = "vm-emulated";

    /// Returns whether the CPUs were emulated: its times and rates say nothing about real ones.
    pub fn is_emulated(&self) -> bool {
        self.machine == Self::EMULATED
    }

    /// Returns whether the run ended as it should.
    pub fn is_done(&self) -> bool {
        self.exit == Exit::Done
    }

    /// Returns whether a smaller score is a better one, as of a time.
    pub fn less_is_better(&self) -> bool {
        matches!(self.measures.get("score_better"), Some(Value::Text(word)) if word == "lower")
    }

    /// Returns the run's workload, scheduler, machine and seed, for people.
    pub fn what(&self) -> String {
        let layout = self.task_layout.as_ref();
        format!(
            "{} on {}: {}{} on {}, seed {}",
            self.asked,
            self.machine,
            self.scheduler,
            layout.map_or(String::new(), |layout| format!(", {layout}")),
            counted(self.cpus, "CPU"),
            self.seed
        )
    }
}

/// All results of a command.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Document<'a> {
    schema: u32,
    /// One entry per run.
    pub results: &'a [RunResult],
}

impl<'a> Document<'a> {
    /// Returns a document of these results.
    pub fn new(results: &'a [RunResult]) -> Self {
        Document {
            schema: SCHEMA,
            results,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_survives_being_written_and_read() {
        let mut measures = Measures::default();
        measures.int("z", u64::MAX);
        measures.float("a", 3.0);
        measures.float("negative", -0.1);
        measures.text("score_unit", "messages/s");
        let result = RunResult {
            workload: "chat".into(),
            asked: String::new(),
            params: vec![("rooms".into(), "2".into()), ("a".into(), "b".into())],
            scheduler: "dss".into(),
            loader: Some("scx_dss 1.2".into()),
            machine: "laptop".into(),
            cpus: 8,
            task_layout: Some("coloured:32".into()),
            seed: u64::MAX,
            exit: Exit::ErrorStall,
            message: Some("why".into()),
            exit_code: Some(-1),
            printed: vec!["a line".into()],
            violations: Some("1 in all: a race".into()),
            explanation: Some("because".into()),
            dump: "CPU states".into(),
            replay: "schedlab sim".into(),
            measures,
            histograms: vec![("runqueue.len".into(), vec![(1, 2, 3)])],
            series: vec![("runqueue.deviation.cpu0".into(), vec![(5, -0.25)])],
        };
        let text = serde_json::to_string(&result).unwrap();
        assert_eq!(serde_json::from_str::<RunResult>(&text).unwrap(), result);
    }
}
