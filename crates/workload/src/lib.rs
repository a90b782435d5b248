//! Describes the actions of tasks, without a scheduler or a machine.
//!
//! A [`Workload`] is a set of [`TaskSpec`]s and the objects they share. A task's [`Behaviour`] returns one [`Action`]
//! after another; the runner (the virtual kernel, or real threads) carries it out and answers with its result. No
//! clock, no I/O except reading the file that [`Workload::parse`] was given, no randomness except the task's own
//! stream ([`stream`]), split from the
//! scenario's seed.
//!
//! [`list`] returns the workloads and their options; a new workload is a file in `models/`.
#![forbid(unsafe_code)]

pub mod action;
mod builder;
pub mod catalogue;
mod cgroup;
mod compose;
mod counters;
mod error;
pub mod measure;
mod model;
pub mod models;
mod note;
mod param;
mod parse;
mod part;
pub mod recorded;
pub mod rtapp;
mod seed;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod workload;

pub use action::{
    Access, Action, Behaviour, Context, ObjectId, ObjectSpec, Outcome, Reservation, Rng,
    SchedClass, Score, ScoreRule, TaskSpec, Touch,
};
pub use builder::{Builder, TASKS_MAX};
pub use cgroup::{Bandwidth, CgroupId, CgroupSettings, Cgroups};
pub use counters::Counters;
pub use error::WorkloadError;
pub use measure::Measure;
pub use model::{Model, common};
pub use models::list;
pub use note::note;
pub use param::{Kind, Options, Param, TimeUnit};
pub use part::{Part, PartEnd};
pub use seed::{below, stream};
pub use workload::{Start, Workload};
