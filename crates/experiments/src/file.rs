//! The files of `experiments/`.

use include_dir::{Dir, include_dir};

use crate::Experiment;
use crate::check::check;

static FOLDER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");

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

/// Returns the experiment of that name; `None` if it does not exist.
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
        check(&experiment).map_err(error)?;
        Ok(experiment)
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
