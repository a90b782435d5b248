//! What tasks do: descriptions, without a scheduler or a machine.
//!
//! A [`Workload`] is a set of [`TaskSpec`]s and the objects they share. A task's [`Behaviour`] is
//! asked for one [`Action`] after another; whoever runs the workload (the virtual kernel) carries
//! it out and answers with its result. Pure: no clock, no I/O, no randomness but the task's own
//! stream, split from the scenario's seed.

pub mod action;

pub use action::{
    Action, Behaviour, Context, ObjectId, ObjectSpec, Outcome, Rng, SchedClass, Score, ScoreRule,
    TaskSpec, Workload,
};
