//! Experiments: the tables and figures of the studies, as files that name what has to be run, and what the
//! runs say beside what was published.
//!
//! [`Experiment`] is a file of `experiments/`, or what [`Rows`] makes of published figures. [`plan`] says which simulations it needs; [`evaluate`] turns
//! their results into [`Panel`]s, which [`text`] prints and [`page`] draws. Nothing here runs anything.
#![forbid(unsafe_code)]

mod check;
mod evaluate;
mod expected;
mod experiment;
mod file;
mod over;
mod page;
mod plan;
mod rows;
mod sizes;
mod studies;
mod text;

pub use check::is_measure;
pub use evaluate::{Cell, Panel, Results, Row, Standing, Summary, evaluate, findings};
pub use expected::{Expected, Finding, Point};
pub use experiment::{Experiment, Measured, Runs};
pub use file::{FileError, builtin, builtin_names};
pub use over::{Over, Setting};
pub use page::{Told, page};
pub use plan::{Elsewhere, Planned, plan};
pub use rows::{Rows, Wanted};
pub use sizes::too_small;
pub use text::text;
