//! Chooses what a table or a CSV file shows: measures, their order, and the order of the rows.

use indexmap::IndexSet;

use crate::{RunResult, Value, catalogue};

/// How results are shown.
#[derive(Clone, Debug)]
pub struct View {
    /// Columns of the terminal.
    pub width: usize,
    /// Measures that take the place of the usual columns, by name; a `*` at the end stands for any ending. Empty: the
    /// usual columns.
    pub measures: Vec<String>,
    /// The measure that orders the rows on each number of CPUs; `None`: the order in which schedulers were asked for.
    pub sort: Option<Sort>,
    /// Whether scores of emulated machines are compared. Emulated CPUs do not keep the proportions of real ones, so
    /// that a ratio of times says nothing about any machine.
    pub emulated_ratios: bool,
}

impl View {
    /// Returns the usual columns, on a terminal that is so wide.
    pub fn of_width(width: usize) -> View {
        View {
            width,
            measures: Vec::new(),
            sort: None,
            emulated_ratios: false,
        }
    }
}

/// An order of rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sort {
    /// The measure.
    pub measure: String,
    /// Whether the order is turned around.
    pub reversed: bool,
}

impl Sort {
    /// Reads `MEASURE`, or `-MEASURE` for the opposite order.
    pub fn parse(text: &str) -> Sort {
        let (measure, reversed) = match text.strip_prefix('-') {
            Some(measure) => (measure, true),
            None => (text, false),
        };
        Sort {
            measure: measure.to_owned(),
            reversed,
        }
    }

    /// Returns whether higher values come first: the better score does, and of other measures the lower value.
    pub(crate) fn is_descending(&self, results: &[&RunResult]) -> bool {
        let better = score_of(&self.measure, results)
            .and_then(|score| word(results, &format!("{score}_better")));
        (better.as_deref() == Some("higher")) != self.reversed
    }
}

/// Returns a text that the runs have, of the first that has it.
fn word(results: &[&RunResult], name: &str) -> Option<String> {
    results.iter().find_map(|run| match run.measures.get(name) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    })
}

/// Returns the score that a measure is, `score` or `PART.score`: by that name, or under the score's own name, by which it
/// has the same value in each run. A measure that the catalogue defines is something else, whatever its value, and a
/// score of 0 tells nothing.
fn score_of(name: &str, results: &[&RunResult]) -> Option<String> {
    let own = |score: &str| {
        let mut pairs = results
            .iter()
            .filter_map(|run| Some((run.measures.number(score)?, run.measures.number(name)?)))
            .filter(|(score, own)| *score != 0.0 || *own != 0.0)
            .peekable();
        pairs.peek().is_some() && pairs.all(|(score, own)| score == own)
    };
    if name == "score" {
        return Some(name.to_owned());
    }
    let part = name
        .rsplit_once('.')
        .map(|(part, _)| format!("{part}.score"));
    let of_part = part.filter(|part| word(results, &format!("{part}_unit")).is_some());
    match of_part {
        Some(part) if name == part || own(&part) => Some(part),
        _ if catalogue::find(name).is_none() && own("score") => Some("score".to_owned()),
        _ => None,
    }
}

/// Returns the measures of `results` that are numbers and that one of `patterns` names, in the order of the patterns.
pub fn chosen<'a>(
    patterns: &[String],
    results: impl Iterator<Item = &'a RunResult>,
) -> Vec<String> {
    let mut known: IndexSet<&str> = IndexSet::new();
    for run in results {
        let numbers = run
            .measures
            .iter()
            .filter(|(_, value)| value.number().is_some());
        known.extend(numbers.map(|(name, _)| name));
    }
    let mut chosen: IndexSet<&str> = IndexSet::new();
    for pattern in patterns {
        match pattern.ends_with('*') {
            true => chosen.extend(known.iter().filter(|name| matches(pattern, name))),
            // Also one that no run has: its column says so.
            false => {
                chosen.insert(pattern);
            }
        }
    }
    chosen.into_iter().map(str::to_owned).collect()
}

/// Returns whether a pattern names a measure: it is its name, or what the name begins with and `*`.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

/// Returns the unit of a measure: from the catalogue, for the score from the run, or else from the measure's name.
pub fn unit_of(name: &str, results: &[&RunResult]) -> String {
    let unit = score_of(name, results).and_then(|score| word(results, &format!("{score}_unit")));
    if let Some(unit) = unit {
        return unit;
    }
    if let Some(entry) = catalogue::find(name) {
        return entry.unit.to_owned();
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    let words: Vec<&str> = last.split('_').collect();
    if words.contains(&"ns") {
        "ns".to_owned()
    } else if words.contains(&"pct") {
        "%".to_owned()
    } else if last.ends_with("_per_s") {
        "/s".to_owned()
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Measures;

    fn run(score: f64, own: f64) -> RunResult {
        let mut measures = Measures::default();
        measures.score(score, "requests/s", true);
        measures.float("throughput_per_s", score);
        measures.float("schbench.wakeup_ns_p99", own);
        measures.float("wakeup.latency_ns_p50", 1.0);
        measures.float("wakeup.latency_ns_p99", 2.0);
        measures.float("cpu.idle_pct", 3.0);
        measures.text("note", "text");
        RunResult {
            measures,
            ..RunResult::default()
        }
    }

    #[test]
    fn patterns_choose_measures_in_their_own_order() {
        let runs = [run(1.0, 2.0)];
        let choose = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|&one| one.to_owned()).collect();
            chosen(&patterns, runs.iter())
        };
        assert_eq!(
            choose(&["cpu.idle_pct", "wakeup.*", "wakeup.latency_ns_p50"]),
            [
                "cpu.idle_pct",
                "wakeup.latency_ns_p50",
                "wakeup.latency_ns_p99"
            ]
        );
        // A word is no column; a measure that no run has is one.
        assert_eq!(choose(&["not*", "absent"]), ["absent"]);
    }

    #[test]
    fn units_come_from_the_catalogue_the_score_and_the_name() {
        let run = run(5.0, 7.0);
        let unit = |name: &str| unit_of(name, &[&run]);
        assert_eq!(unit("score"), "requests/s");
        assert_eq!(unit("throughput_per_s"), "requests/s");
        assert_eq!(unit("schbench.wakeup_ns_p99"), "ns");
        assert_eq!(unit("cpu.idle_pct"), "%");
        assert_eq!(unit("lock.rq.other.hold_ns_mean"), "ns");
        assert_eq!(unit("x.done_per_s"), "/s");
        assert_eq!(unit("x.tasks"), "");
    }

    /// Where the score is 0, many measures are, and none of them is the score.
    #[test]
    fn a_measure_with_the_score_s_value_is_not_the_score() {
        let mut none = run(0.0, 0.0);
        none.measures.float("wait.unfinished_ns_max", 0.0);
        none.measures.float("ipis", 0.0);
        none.measures.float("phases.own", 0.0);
        let unit = |name: &str, run: &RunResult| unit_of(name, &[run]);
        assert_eq!(unit("wait.unfinished_ns_max", &none), "ns");
        assert_eq!(unit("ipis", &none), "");
        assert_eq!(unit("phases.own", &none), "");
        assert_eq!(unit("score", &none), "requests/s");
        // By chance, one that the catalogue defines.
        let mut same = run(5.0, 7.0);
        same.measures.float("ipis", 5.0);
        assert_eq!(unit("ipis", &same), "");
    }

    #[test]
    fn each_part_has_the_unit_of_its_own_score() {
        let mut both = run(5.0, 7.0);
        both.measures.part_score("service", 5.0, "requests/s", true);
        both.measures.part_score("hackbench", 9.0, "ns", false);
        both.measures.float("hackbench.time", 9.0);
        let unit = |name: &str| unit_of(name, &[&both]);
        assert_eq!(unit("service.score"), "requests/s");
        assert_eq!(unit("hackbench.score"), "ns");
        assert_eq!(unit("hackbench.time"), "ns");
        let descending = |text: &str| Sort::parse(text).is_descending(&[&both]);
        assert!(descending("service.score") && !descending("hackbench.score"));
    }

    #[test]
    fn the_better_score_and_the_lower_value_come_first() {
        let (a, b) = (run(5.0, 7.0), run(6.0, 8.0));
        let descending = |text: &str| Sort::parse(text).is_descending(&[&a, &b]);
        assert!(descending("score") && !descending("-score"));
        assert!(descending("throughput_per_s"));
        assert!(!descending("schbench.wakeup_ns_p99") && descending("-cpu.idle_pct"));
        let lower = |mut run: RunResult| {
            run.measures.text("score_better", "lower");
            run
        };
        let runs = [lower(a.clone()), lower(b.clone())];
        assert!(!Sort::parse("score").is_descending(&[&runs[0], &runs[1]]));
    }
}
