//! Sweeps: every combination of a scheduler's options on one or more workloads, in simulation.
//!
//! A sweep is a list of jobs that its definition alone determines. Jobs are spread over threads, over processes
//! (shards) and over machines. Each of them computes the same row for a job, so the final files have the same bytes
//! however often a sweep was interrupted. The crate does not interpret rows.
#![forbid(unsafe_code)]

mod definition;
mod error;
pub mod file;
mod folder;
mod measures;
mod rate;
mod rows;
mod run;
mod space;

pub use definition::{Asked, BUILD, Budget, Definition, Host, PartScore, Shard, Timed};
pub use error::SweepError;
pub use folder::{Work, begun, paths, read};
pub use measures::{MEASURES, PART_MEASURES};
pub use rate::rate;
pub use rows::Row;
pub use run::{Best, Choose, Options, Progress, Summary, run, run_by, run_chosen};
pub use space::{Feature, Mute, Space};
