//! Searches a space of schedulers with a budget of runs: chooses the next runs of a sweep from the results so far.
//!
//! A balanced sample comes first. A model of these results (`surrogate.rs`) then names the schedulers whose runs decide
//! most, stage by stage (`plan.rs`), and at last the best ones race over further seeds. The same results always lead to
//! the same runs, on every machine. The crate runs nothing and reads no files.
#![forbid(unsafe_code)]

mod matrix;
mod plan;
mod surrogate;

pub use plan::{Estimated, Finalist, Plan, RUNS_MIN, estimated, finalists};
