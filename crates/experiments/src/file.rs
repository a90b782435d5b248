//! The files of `experiments/`.

use include_dir::{Dir, include_dir};
use schedlab_machine::Layout;
use schedlab_report::published::Metric;
use serde::Deserialize;

use crate::over::{Over, Setting};

static FOLDER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");

/// A table or a figure of a study.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name of the file, without its ending.
    #[serde(skip)]
    pub name: String,
    pub title: String,
    /// The study, as `published/README.md` names it, or a sentence where there is none.
    pub source: String,
    /// What is run, why, and what to look at: paragraphs.
    pub about: Vec<String>,
    /// What is run.
    pub runs: Vec<Runs>,
    /// What is told of it.
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
#[derive(Clone, PartialEq, Debug, Deserialize)]
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
    /// What is run instead for a first impression; nothing where it is absent.
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

/// What replaces parts of [`Runs`] for a first impression.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    pub workloads: Option<Vec<String>>,
    pub schedulers: Option<Vec<String>>,
    pub cpus: Option<Vec<usize>>,
    pub seeds: Option<u64>,
}

/// A measure that is told.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Its name in results, or the name that published figures have for it.
    pub measure: String,
    /// What stands above it; the measure's own heading where it is absent.
    pub heading: Option<String>,
    /// What it is divided by, to have another unit.
    pub unit: Option<f64>,
    /// The same measure of this run divides it: `cpus=2`, or an option of the workload, `rooms=5`.
    pub relative_to: Option<Setting>,
    /// What it is drawn over: `cpus`, or an option of the workload that is a number. Times count in ns.
    #[serde(default)]
    pub over: Over,
    /// Options of the workload that change along with `over`, and are no difference of their own.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// Whether the axis it is drawn over is logarithmic.
    #[serde(default)]
    pub log: bool,
}

/// A file that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct FileError {
    pub file: String,
    pub problem: String,
}

/// The names of the experiments that come with schedlab, in alphabetical order.
pub fn builtin_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = FOLDER
        .files()
        .filter(|file| {
            file.path()
                .extension()
                .is_some_and(|ending| ending == "toml")
        })
        .filter_map(|file| file.path().file_stem()?.to_str())
        .collect();
    names.sort_unstable();
    names
}

/// The experiment of that name; `None` where there is none.
///
/// # Errors
/// If its file is wrong, which a test rules out.
pub fn builtin(name: &str) -> Option<Result<Experiment, FileError>> {
    let file = FOLDER.get_file(format!("{name}.toml"))?;
    let text = file.contents_utf8()?;
    Some(Experiment::read(&format!("experiments/{name}.toml"), text))
}

impl Experiment {
    /// Reads a file.
    ///
    /// # Errors
    /// One line that says what is wrong, and in which line of the file where that is known.
    pub fn read(file: &str, text: &str) -> Result<Experiment, FileError> {
        let error = |problem: String| FileError {
            file: file.to_owned(),
            problem,
        };
        let mut experiment: Experiment = toml::from_str(text).map_err(|e| {
            let start = e.span().map_or(0, |span| span.start.min(text.len()));
            FileError {
                file: format!("{file}:{}", 1 + text[..start].matches('\n').count()),
                problem: e.message().trim().replace('\n', "; "),
            }
        })?;
        let stem = std::path::Path::new(file).file_stem().unwrap_or_default();
        experiment.name = stem.to_string_lossy().into_owned();
        for runs in &experiment.runs {
            if runs.seeds == 0 {
                return Err(error("`seeds` must be at least 1".to_owned()));
            }
            if runs.workloads.is_empty() || runs.schedulers.is_empty() {
                return Err(error(
                    "`workloads` and `schedulers` must name at least one each".to_owned(),
                ));
            }
            for known in &runs.published_as {
                if !runs.schedulers.contains(&known.scheduler) {
                    let named = &known.scheduler;
                    return Err(error(format!(
                        "`published_as` names `{named}`, which is not among `schedulers`"
                    )));
                }
            }
        }
        if experiment.runs.is_empty() || experiment.measures.is_empty() {
            return Err(error("it needs `[[runs]]` and `[[measures]]`".to_owned()));
        }
        crate::check::check(&experiment).map_err(error)?;
        Ok(experiment)
    }
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
    /// What is run for a first impression; `None`: nothing of it.
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

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
title = "T"
source = "s"
about = ["a"]
[[runs]]
machine = "laptop"
workloads = ["cpu"]
schedulers = ["a", "b"]
cpus = [1, 2]
quick = { cpus = [2] }
[[measures]]
measure = "hold_mean"
over = "cpus"
"#;

    #[test]
    fn a_file_is_read() {
        let experiment = Experiment::read("experiments/x.toml", SMALL).unwrap();
        assert_eq!(experiment.name, "x");
        assert_eq!(experiment.runs[0].seeds, 5);
        assert_eq!(experiment.measures[0].heading(), "mean hold, µs");
        let quick = experiment.runs[0].quick().unwrap();
        assert_eq!((quick.cpus, quick.seeds), (vec![2], 1));
        assert_eq!(quick.schedulers, ["a", "b"]);
    }

    #[test]
    fn what_is_wrong_is_told() {
        let told = |from: &str, to: &str| {
            assert!(SMALL.contains(from), "{from}");
            let error = Experiment::read("x.toml", &SMALL.replace(from, to));
            error.unwrap_err().to_string()
        };
        let error = told("cpus = [1, 2]", "cpu = [1, 2]");
        assert!(
            error.starts_with("x.toml:") && error.contains(": unknown field `cpu`"),
            "{error}"
        );
        assert!(told("cpus = [1, 2]", "seeds = 0").contains("seeds"));
        assert!(told("[\"cpu\"]", "[]").contains("workloads"));
        let error = told("over = \"cpus\"", "relative_to = \"cpus\"");
        let expected = "x.toml:13: `cpus` has no `=`; write what differs, for example cpus=2";
        assert_eq!(error, expected);
        assert!(told("hold_mean", "scoer").starts_with("x.toml: [[measures]] 1 (`scoer`): "));
        let error = told("over = \"cpus\"", "over = \"rooms\"");
        assert!(error.contains("no workload has such an option"), "{error}");
        let error = told("over = \"cpus\"", "over = \"pin\"");
        assert!(error.contains("`false` is not a number"), "{error}");
        let error = told("over = \"cpus\"", "relative_to = \"cpuss=1\"");
        assert!(error.contains("no workload has such an option"), "{error}");
        let error = told("over = \"cpus\"", "relative_to = \"cpus=4\"");
        assert!(error.contains("nothing is run with that"), "{error}");
        let unknown = "published_as = [{ scheduler = \"c\", name = \"C\" }]";
        assert!(told("cpus = [1, 2]", unknown).contains("`c`"));
    }

    #[test]
    fn every_file_that_comes_along_is_right() {
        for name in builtin_names() {
            let experiment = builtin(name).unwrap().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(experiment.name, name);
            assert!(
                experiment.runs.iter().any(|runs| runs.quick.is_some()),
                "{name} has nothing for --quick"
            );
        }
    }
}
