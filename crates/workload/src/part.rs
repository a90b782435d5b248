//! A part of a workload that is composed of several, and its result.

use schedlab_trace::{Duration, Instant};

use crate::Counters;
use crate::action::{Score, ScoreRule};

/// A part of a workload that is composed of several.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// The prefix of its measures: the name of its model or of its file, with a number from the second one on.
    pub name: String,
    /// The model's own name, with which its counts begin.
    pub(crate) model: String,
    /// Its score.
    pub score: Score,
    /// Tasks that it starts with.
    pub tasks: usize,
}

/// The result of a part.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PartEnd {
    /// Units of work done.
    pub work: u64,
    /// When its last task ended; the end of the run if one had not.
    pub makespan: Duration,
    /// The score, where it has one.
    pub score: Option<f64>,
}

/// Counts that every task of a part reports, after the part's name.
pub(crate) const WORK: &str = "work";
pub(crate) const BEGUN: &str = "begun_ns_max";
pub(crate) const ENDED: &str = "ended_ns_max";
pub(crate) const LEFT: &str = "left";

impl Part {
    /// Returns the name in the results of what the part counts as `name`.
    pub(crate) fn rename(&self, name: &str) -> String {
        let own = name.strip_prefix(&self.model);
        match own.filter(|rest| rest.starts_with('.')) {
            Some(rest) => format!("{}{rest}", self.name),
            None => format!("{}.{name}", self.name),
        }
    }

    /// Returns a note for the reader of a run that ended as it should; `score` is its result.
    pub fn note(&self, counters: &Counters, score: Option<f64>) -> Option<String> {
        crate::note(&self.name, &self.model, counters, score)
    }

    /// Returns the name of a count that is the part's own.
    pub(crate) fn own(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    /// Returns its result in a run that ended at `end`. Takes its own counts out of the others.
    pub fn end(&self, counters: &mut Counters, end: Instant) -> PartEnd {
        let mut take = |name| counters.take(&self.own(name)).unwrap_or(0).unsigned_abs();
        let (work, begun, ended, left) = (take(WORK), take(BEGUN), take(ENDED), take(LEFT));
        let makespan = match left {
            0 => Duration::from_ns(ended),
            _ => end.since(Instant::ZERO),
        };
        let measured = makespan.saturating_sub(Duration::from_ns(begun));
        let score = match self.score.rule {
            ScoreRule::Counter(name) => counters.number(&self.rename(name)),
            _ => self.score.value(work, measured, counters),
        };
        PartEnd {
            work,
            makespan,
            score,
        }
    }
}
