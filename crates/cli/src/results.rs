//! Takes results out of the program: as a table, as JSON, as CSV, as a page and a text on why they differ.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use schedlab_compare::{Watched, page, text};
use schedlab_report::export::lines::fill;
use schedlab_report::export::view::{Sort, View, matches};
use schedlab_report::export::{csv, json, table};
use schedlab_report::{RunResult, catalogue};
use schedlab_sweep::Row;
use schedlab_trace::{counted, nearest};
use schedlab_workload::Workload;

use crate::args::{ShowArgs, WhyArgs};
use crate::output::{Output, cannot_write, harmless, is_stdout, print, tell, width};
use crate::status::Status;

/// Where results go besides the terminal. Each file is begun before the work, so that a wrong path is an error at once.
pub struct Files {
    json: Option<Target>,
    csv: Option<Target>,
    html: Option<Target>,
    /// Whether the JSON document has the series over time, which are most of its bytes.
    series: bool,
}

/// A path, and the file that is begun there unless it is standard output.
pub struct Target {
    path: PathBuf,
    file: Option<Output>,
}

impl Target {
    /// Begins it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin(path: &Path) -> anyhow::Result<Target> {
        let file = match is_stdout(path) {
            true => None,
            false => Some(Output::create(path)?),
        };
        Ok(Target {
            path: path.to_owned(),
            file,
        })
    }

    /// Returns whether it is standard output.
    pub fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    /// Writes the whole of it, and puts the file in its place.
    ///
    /// # Errors
    /// If it cannot be written; a file is then as it was.
    pub fn write(self, bytes: &[u8]) -> anyhow::Result<()> {
        use std::io::Write as _;
        match self.file {
            None => print(bytes),
            Some(mut file) => {
                let written = file.write_all(bytes).and_then(|()| file.flush());
                written.with_context(|| cannot_write(&self.path))?;
                file.commit()
            }
        }
    }
}

impl Files {
    /// Returns the files that `--json` and `--csv` name.
    ///
    /// # Errors
    /// If one cannot be begun, or both are standard output.
    pub fn begin(args: &ShowArgs) -> anyhow::Result<Files> {
        let is_out = |path: &Option<PathBuf>| path.as_deref().is_some_and(is_stdout);
        if is_out(&args.json) && is_out(&args.csv) {
            bail!("--json - and --csv - both write standard output: name a file for one of them");
        }
        let begin = |path: &Option<PathBuf>| path.as_deref().map(Target::begin).transpose();
        Ok(Files {
            json: begin(&args.json)?,
            csv: begin(&args.csv)?,
            html: None,
            series: args.series,
        })
    }

    /// Returns the same with the page that `--html` names.
    ///
    /// # Errors
    /// If it cannot be begun.
    pub fn with_page(self, why: &WhyArgs) -> anyhow::Result<Files> {
        Ok(Files {
            html: why.html.as_deref().map(Target::begin).transpose()?,
            ..self
        })
    }

    /// Returns the file that `--json` names, of a command that writes no other.
    ///
    /// # Errors
    /// If it cannot be begun.
    pub fn json(path: Option<&Path>) -> anyhow::Result<Files> {
        Ok(Files {
            json: path.map(Target::begin).transpose()?,
            csv: None,
            html: None,
            series: false,
        })
    }

    /// Returns whether standard output is for a file format instead of text.
    pub fn take_stdout(&self) -> bool {
        let targets = [&self.json, &self.csv];
        targets.into_iter().flatten().any(Target::is_stdout)
    }
}

/// Returns the paths of outputs by their flags, for [`crate::output::one_file_each`].
pub fn outputs(args: &ShowArgs) -> [(&'static str, Option<&Path>); 2] {
    [
        ("--json", args.json.as_deref()),
        ("--csv", args.csv.as_deref()),
    ]
}

/// How the table of a command is shown that runs `workload`; `None`: a command, or runs of the past.
///
/// # Errors
/// If a measure is named that no run can have.
pub fn view(args: &ShowArgs, workload: Option<&str>) -> anyhow::Result<View> {
    let known = known_measures();
    for pattern in &args.measures {
        check("--measures", pattern, &known, workload)?;
    }
    let sort = args.sort.as_deref().map(Sort::parse);
    if let Some(sort) = &sort {
        check("--sort", &sort.measure, &known, workload)?;
        if sort.measure.ends_with('*') {
            bail!("--sort {}: rows are ordered by one measure", sort.measure);
        }
    }
    Ok(View {
        measures: args.measures.clone(),
        sort,
        ..View::of_width(width())
    })
}

/// Names of all measures, including the workloads' own.
fn known_measures() -> Vec<String> {
    let common = catalogue::ENTRIES.iter().chain(catalogue::REAL_ENTRIES);
    let own = schedlab_workload::catalogue::lists();
    let own = own.into_iter().flat_map(|(_, measures)| measures);
    let mut known: Vec<String> = common.map(|entry| entry.name.to_owned()).collect();
    known.extend(own.map(|measure| measure.name.to_owned()));
    known
}

fn check(
    flag: &str,
    pattern: &str,
    known: &[String],
    workload: Option<&str>,
) -> anyhow::Result<()> {
    if pattern.trim_end_matches('*').contains('*') {
        bail!("{flag} {pattern}: a `*` stands at the end alone, for any rest of the name");
    }
    let (first, rest) = pattern.split_once('.').unwrap_or((pattern, ""));
    let begins = |name: &String| name.split_once('.').is_some_and(|(word, _)| word == first);
    let is_part = || !rest.is_empty() && workload.is_none_or(|text| is_of_part(text, pattern));
    let exists = known.iter().any(|name| matches(pattern, name))
        || catalogue::find(pattern).is_some()
        || first == "policy" && !rest.is_empty()
        // Of a thread, whose name is not known here.
        || known.iter().any(begins)
            && (pattern.ends_with('*') || schedlab_experiments::is_measure(pattern))
        || is_part() && (pattern.ends_with('*') || schedlab_experiments::is_measure(pattern));
    if !exists {
        bail!(
            "{flag}: unknown measure `{pattern}`{}; `schedlab list measures` shows all",
            nearest(pattern, known)
        );
    }
    Ok(())
}

/// Returns whether a measure has the name of a part of the workload before it: `service2.score` of `service + service`.
fn is_of_part(workload: &str, pattern: &str) -> bool {
    let parts = Workload::part_names(workload);
    let mut rests = parts.iter().filter_map(|part| pattern.strip_prefix(part));
    rests.any(|rest| rest.starts_with('.'))
}

/// Prints the table of `results` and writes the files: with `--json -` or `--csv -` in the place of the table.
pub fn deliver(results: &[RunResult], view: &View, files: Files) -> anyhow::Result<Status> {
    deliver_text(results, &table::render(results, view), view, files)
}

/// Returns the same with another text in the place of the table.
pub fn deliver_text(
    results: &[RunResult],
    text: &str,
    view: &View,
    files: Files,
) -> anyhow::Result<Status> {
    let silent = files.take_stdout();
    deliver_with(results, (!silent).then_some(text), view, files)
}

/// Returns the same where standard output has something else.
pub fn deliver_silently(
    results: &[RunResult],
    view: &View,
    files: Files,
) -> anyhow::Result<Status> {
    deliver_with(results, None, view, files)
}

fn deliver_with(
    results: &[RunResult],
    text: Option<&str>,
    view: &View,
    files: Files,
) -> anyhow::Result<Status> {
    // First the files: they are asked for whether or not anybody still reads standard output (`| head`). Where one
    // cannot be written, nothing but the text is left of runs that may have taken hours.
    let mut written = Ok(());
    if let Some(target) = files.json {
        let results = match files.series {
            true => Cow::Borrowed(results),
            false => Cow::Owned(without_series(results)),
        };
        let mut document = Vec::new();
        json::write(&results, &mut document).with_context(|| cannot_write(&target.path))?;
        written = target.write(&document);
    }
    if let Some(target) = files.csv {
        let mut rows = Vec::new();
        csv::write(results, view, &mut rows).with_context(|| cannot_write(&target.path))?;
        written = written.and(target.write(&rows));
    }
    if let Some(text) = text {
        print(harmless(text))?;
    }
    written?;
    let failed: Vec<_> = results.iter().filter(|result| !result.is_done()).collect();
    if text.is_none() {
        // The table would have said so; a document is nothing that anybody reads by eye.
        for result in &failed {
            tell(format_args!(
                "{} on {}, seed {}: {}: {}; replay: {}",
                result.scheduler,
                counted(result.cpus, "CPU"),
                result.seed,
                result.exit,
                result.message.as_deref().unwrap_or("no message"),
                result.replay
            ));
        }
    }
    Ok(if failed.is_empty() {
        Status::Done
    } else {
        Status::Failed
    })
}

fn without_series(results: &[RunResult]) -> Vec<RunResult> {
    let bare = results.iter().map(|result| RunResult {
        series: Vec::new(),
        ..result.clone()
    });
    bare.collect()
}

/// Puts the first sentence of its explanation into each result whose scheduler was ejected.
pub fn explain(results: &mut [RunResult]) {
    for result in results.iter_mut().filter(|result| !result.is_done()) {
        let explanation = schedlab_explain::explain_result(
            &result.scheduler,
            &result.exit.to_string(),
            result.message.as_deref(),
            result.exit_code,
            &result.dump,
        );
        result.explanation = explanation.map(|explanation| explanation.sentence);
    }
}

/// Returns which run of a sweep failed, how and why.
pub fn failure(row: &Row) -> String {
    let why = row.message.as_deref().unwrap_or("no message");
    format!("{} on {}: {}: {why}", row.scheduler, row.workload, row.exit)
}

/// More runs are not watched: their timelines would have too little room on a page.
pub const WATCHED_MAX: usize = 8;

/// Refuses what cannot be written beside each other.
///
/// # Errors
/// If two of them are standard output.
pub fn check_why(why: &WhyArgs, show: &ShowArgs) -> anyhow::Result<()> {
    let is_out = |path: &Option<PathBuf>| path.as_deref().is_some_and(is_stdout);
    for (flag, path) in [("--json", &show.json), ("--csv", &show.csv)] {
        if !is_out(path) {
            continue;
        }
        if is_out(&why.html) {
            bail!("--html - and {flag} - both write standard output: name a file for one of them");
        }
        if why.explain {
            bail!("{flag} - takes the place of the text that --explain prints: name a file");
        }
    }
    if is_out(&why.html) && why.explain {
        bail!("--html - takes the place of the text that --explain prints: name a file");
    }
    Ok(())
}

/// The path of the page by its flag, for [`crate::output::one_file_each`].
pub fn page_of(why: &WhyArgs) -> (&'static str, Option<&Path>) {
    ("--html", why.html.as_deref())
}

/// Prints the table and the explanation, and writes all files. `watched` has the results that were watched, by
/// their places; `note` is a sentence on all of them.
///
/// # Errors
/// If a file cannot be written.
pub fn deliver_with_why(
    results: &[RunResult],
    watched: &[(usize, Watched)],
    (why, note): (&WhyArgs, Option<&str>),
    view: &View,
    mut files: Files,
) -> anyhow::Result<Status> {
    let mut told = table::render(results, view);
    if why.explain {
        told.push('\n');
        told.push_str(&text(results, watched, view));
        if let Some(note) = note {
            told.push('\n');
            fill(&mut told, "", note, 0, view.width);
        }
    }
    let Some(target) = files.html.take() else {
        return deliver_text(results, &told, view, files);
    };
    let mut page = page(results, watched, view);
    page.lead.extend(note.map(str::to_owned));
    let html = page.html();
    // The page takes the place of the table on standard output.
    if target.is_stdout() {
        target.write(html.as_bytes())?;
        return deliver_silently(results, view, files);
    }
    // The other files are written even if the page cannot be.
    let written = target.write(html.as_bytes());
    let status = deliver_text(results, &told, view, files)?;
    written?;
    Ok(status)
}

#[cfg(test)]
mod tests {
    use schedlab_report::Exit;

    use super::*;

    fn view_of(measures: &[&str], sort: Option<&str>) -> Result<View, String> {
        let args = ShowArgs {
            measures: measures.iter().map(|&one| one.to_owned()).collect(),
            sort: sort.map(str::to_owned),
            ..ShowArgs::default()
        };
        view(&args, Some("schbench + service + service + my own.json"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn unknown_measures_are_errors_with_the_nearest() {
        for known in [
            "score",
            "wakeup.latency_ns_p99",
            "wakeup.*",
            "lock.rq.other.hold_ns_mean",
            "schbench.wakeup_ns_p99",
            "rtapp.thread0-0.run_ns_sum",
            "policy.anything",
            "service.score",
            "service2.wakeup.latency_ns_p99",
            "service2.*",
            "my-own.*",
            "lock.rq.*",
        ] {
            assert!(view_of(&[known], Some("-score")).is_ok(), "{known}");
        }
        assert_eq!(
            view_of(&["wakeup.latency_p99"], None).unwrap_err(),
            "--measures: unknown measure `wakeup.latency_p99` (did you mean `wakeup.latency_ns_p99`?); \
             `schedlab list measures` shows all"
        );
        assert!(view_of(&[], Some("scor")).unwrap_err().contains("`score`"));
        assert!(view_of(&["service.scor"], None).is_err());
        // No part of the workload, and no measure begins so.
        for none in [
            "nosuch.*",
            "nosuch.score",
            ".*",
            "2.*",
            "s.*",
            "ervice.*",
            "service3.score",
            "own.*",
        ] {
            let told = view_of(&[none], None).expect_err(none);
            assert!(told.contains("unknown measure"), "{told}");
        }
        let args = ShowArgs {
            measures: vec!["nosuch.*".to_owned()],
            ..ShowArgs::default()
        };
        assert!(view(&args, None).is_ok(), "runs of the past");
        let inside = view_of(&["wakeup.*_p99*"], None).unwrap_err();
        assert!(inside.contains("at the end alone"), "{inside}");
        assert!(view_of(&[], Some("wakeup.*")).is_err());
    }

    #[test]
    fn series_are_in_the_document_only_where_they_are_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let result = RunResult {
            series: vec![("runqueue.deviation.cpu0".into(), vec![(1, 2.0)])],
            ..RunResult::default()
        };
        for series in [false, true] {
            let path = folder.path().join("results.json");
            let args = ShowArgs {
                json: Some(path.clone()),
                csv: Some(folder.path().join("results.csv")),
                series,
                ..ShowArgs::default()
            };
            let files = Files::begin(&args).unwrap();
            deliver(std::slice::from_ref(&result), &View::of_width(80), files).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text.contains("runqueue.deviation.cpu0"), series, "{text}");
            let rows = std::fs::read_to_string(folder.path().join("results.csv")).unwrap();
            assert_eq!(rows.lines().count(), 2, "{rows}");
        }
        let out = ShowArgs {
            json: Some("-".into()),
            csv: Some("-".into()),
            ..ShowArgs::default()
        };
        assert!(Files::begin(&out).is_err());
    }

    #[test]
    fn standard_output_is_for_one_of_them() {
        let out = || Some("-".into());
        let why = |html: bool, explain: bool| WhyArgs {
            html: html.then(|| "-".into()),
            explain,
        };
        let json = ShowArgs {
            json: out(),
            ..ShowArgs::default()
        };
        let csv = ShowArgs {
            csv: out(),
            ..ShowArgs::default()
        };
        let told = |why: &WhyArgs, show: &ShowArgs| check_why(why, show).unwrap_err().to_string();
        assert_eq!(
            told(&why(true, false), &json),
            "--html - and --json - both write standard output: name a file for one of them"
        );
        assert_eq!(
            told(&why(false, true), &csv),
            "--csv - takes the place of the text that --explain prints: name a file"
        );
        assert_eq!(
            told(&why(true, true), &ShowArgs::default()),
            "--html - takes the place of the text that --explain prints: name a file"
        );
        assert!(check_why(&why(true, false), &ShowArgs::default()).is_ok());
        assert!(check_why(&why(false, true), &ShowArgs::default()).is_ok());
    }

    #[test]
    fn a_failure_says_why_if_it_is_known() {
        let mut row = Row {
            job: 0,
            workload: "cpu".into(),
            scheduler: "fifo".into(),
            choices: Vec::new(),
            seed: 1,
            exit: Exit::ErrorStall,
            message: Some("it stalled".into()),
            score_unit: None,
            score_better: None,
            values: Vec::new(),
        };
        assert_eq!(failure(&row), "fifo on cpu: error_stall: it stalled");
        row.message = None;
        assert_eq!(failure(&row), "fifo on cpu: error_stall: no message");
    }
}
