//! Defines an experiment: its runs, and its report.

use schedlab_machine::Layout;
use schedlab_report::published::Metric;
use serde::Deserialize;

use crate::expected::Expected;
use crate::over::{Over, Setting};

/// A table or a figure of a study.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name of the file, without its ending.
    #[serde(skip)]
    pub name: String,
    pub title: String,
    /// The study, as `published/README.md` names it, or a sentence if it has none.
    pub source: String,
    /// The runs, their reason, and the points to look at: paragraphs. The expected result is in `expected`.
    pub about: Vec<String>,
    /// The expected result, for the runs to confirm or deny.
    #[serde(default)]
    pub expected: Vec<Expected>,
    /// The runs.
    pub runs: Vec<Runs>,
    /// The report.
    pub measures: Vec<Measured>,
    /// Histograms that are drawn (`runqueue.len`).
    #[serde(default)]
    pub histograms: Vec<String>,
    /// Series over time that are drawn, by the beginning of their names (`runqueue.deviation`): of the first seed,
    /// a chart for each scheduler.
    #[serde(default)]
    pub series: Vec<String>,
}

/// Every workload under every scheduler on every number of CPUs.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runs {
    /// Machine profile.
    pub machine: String,
    /// Workloads with their options.
    pub workloads: Vec<String>,
    /// Schedulers with their options.
    pub schedulers: Vec<String>,
    /// Numbers of CPUs; all of the machine's where it is absent.
    #[serde(default)]
    pub cpus: Vec<usize>,
    /// Layouts of the task structures, as `schedlab sim --task-layout` takes them; the machine's own where it is
    /// absent.
    #[serde(default, deserialize_with = "layouts")]
    pub task_layouts: Vec<Layout>,
    /// Repetitions, with the seeds 1, 2, …
    #[serde(default = "five")]
    pub seeds: u64,
    /// The study's name of one of the schedulers where it is not the scheduler's own in capitals.
    #[serde(default)]
    pub published_as: Vec<PublishedAs>,
    /// The runs for a first impression; none if it is absent.
    pub quick: Option<Quick>,
}

fn layouts<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Layout>, D::Error> {
    let names: Vec<String> = Vec::deserialize(deserializer)?;
    names
        .iter()
        .map(|name| name.parse().map_err(serde::de::Error::custom))
        .collect()
}

fn five() -> u64 {
    5
}

/// Whom a study means.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedAs {
    /// One of `schedulers`.
    pub scheduler: String,
    /// The study's name of it.
    pub name: String,
    /// Only for workloads with this option, for example `pin=true`, or for this number of CPUs, `cpus=1`.
    pub only: Option<Setting>,
}

/// The replacements of parts of [`Runs`] for a first impression.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    pub workloads: Option<Vec<String>>,
    pub schedulers: Option<Vec<String>>,
    pub cpus: Option<Vec<usize>>,
    pub seeds: Option<u64>,
}

/// A reported measure.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Its name in results, or the name that published figures have for it.
    pub measure: String,
    /// Its heading; the measure's own heading where it is absent.
    pub heading: Option<String>,
    /// Its divisor, to have another unit.
    pub unit: Option<f64>,
    /// The same measure of this run divides it: `cpus=2`, or an option of the workload, `rooms=5`.
    pub relative_to: Option<Setting>,
    /// Its x axis: `cpus`, or an option of the workload that is a number. Times count in ns.
    #[serde(default)]
    pub over: Over,
    /// Options of the workload that change along with `over`, and are no difference of their own.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// Whether the axis it is drawn over is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// Whether panels without any published figure are left out.
    #[serde(skip)]
    pub only_published: bool,
}

impl Measured {
    /// The metric that published figures share with results, if it is one.
    pub(crate) fn metric(&self) -> Option<&'static Metric> {
        Metric::find(&self.measure)
    }

    /// For people, with the unit.
    pub fn heading(&self) -> String {
        match (&self.heading, self.metric()) {
            (Some(heading), _) => heading.clone(),
            (None, Some(metric)) => metric.heading.to_owned(),
            (None, None) => match schedlab_report::catalogue::find(&self.measure) {
                Some(entry) if !entry.unit.is_empty() => {
                    format!("{}, {}", self.measure, entry.unit)
                }
                _ => self.measure.clone(),
            },
        }
    }
}

impl Runs {
    /// The runs for a first impression; `None`: none of it.
    pub(crate) fn quick(&self) -> Option<Runs> {
        let quick = self.quick.as_ref()?;
        let mut runs = self.clone();
        if let Some(workloads) = &quick.workloads {
            runs.workloads.clone_from(workloads);
        }
        if let Some(schedulers) = &quick.schedulers {
            runs.schedulers.clone_from(schedulers);
        }
        if let Some(cpus) = &quick.cpus {
            runs.cpus.clone_from(cpus);
        }
        runs.seeds = quick.seeds.unwrap_or(1);
        Some(runs)
    }
}
