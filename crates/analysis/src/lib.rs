//! Analyses a sweep: which features a workload needs, which do not matter, and which only together.
//!
//! First the study's own method (`study.rs`), then what it lacks: an exact decomposition of the variance
//! with interactions (`variance.rs`; `least_squares.rs` where combinations are missing), alternatives that are one
//! (`mute.rs`), a tree small enough to read (`tree.rs`), the Pareto front of two measures (`pareto.rs`). What
//! chance alone would give now and then is not called a finding. It runs nothing and reads no files.
#![forbid(unsafe_code)]

mod across;
mod analysis;
mod data;
mod least_squares;
mod mute;
mod page;
mod pareto;
mod search;
mod study;
mod tree;
mod variance;
mod words;
mod workload;

pub use across::{Across, Compromise};
pub use analysis::Analysis;
pub use data::{Data, LeftOut, Metric};
pub use mute::{Condition, Mute};
pub use page::page;
pub use pareto::Front;
pub use search::{Search, Second};
pub use study::{Alternative, Study, Verdict};
pub use tree::Node;
pub use variance::{Against, Effect, Interaction, Level, Variance};
pub use workload::analyse;

use schedlab_trace::nearest_of;
use serde::Serialize;

/// The parameters that the study left open, with their defaults.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Bounds {
    /// A scheduler belongs to the good ones if it is at most so much worse than the best, in percent.
    pub within_pct: f64,
    /// An alternative that more of them have is good, in percent.
    pub good_pct: f64,
    /// One that fewer of them have is bad, in percent.
    pub bad_pct: f64,
    /// A standard deviation above this part of the mean excludes a scheduler, in percent.
    pub deviation_pct: f64,
    /// Over- and under-represented means a difference of more points than this.
    pub points: f64,
    /// The probability that chance gives any finding at all about a workload in which no feature has an effect.
    pub alpha: f64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            within_pct: 10.0,
            good_pct: 80.0,
            bad_pct: 10.0,
            deviation_pct: 10.0,
            points: 10.0,
            alpha: 0.01,
        }
    }
}

/// Why there is nothing to analyse.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalysisError {
    /// No such measure.
    #[error("rows have no measure `{asked}`{}; there are: {known}", nearest_of(.asked, .known))]
    Measure {
        /// The requested name.
        asked: String,
        /// The known names.
        known: String,
    },
    /// Nothing to look at.
    #[error("{workload}: no run has the measure `{measure}`")]
    Empty {
        /// The workload.
        workload: String,
        /// The measure.
        measure: String,
    },
}
