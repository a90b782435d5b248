//! The real kernel's side: policies as BPF in a running Linux, measured by its own tracepoints,
//! in a virtual machine where this machine's kernel will not do.
//!
//! Not here: what a measure means (`crates/report`) and how a policy behaves in simulation.
#![forbid(unsafe_code)]

pub mod bpf_policy;
pub mod btf;
pub mod cache;
#[path = "../../policies/src/clang.rs"]
pub mod clang;
pub mod comparison;
mod compiled;
pub mod doctor;
pub mod error;
pub mod exit;
mod group;
mod inside;
pub mod kernel_log;
pub mod load;
pub mod loader;
pub mod measure;
mod places;
mod probes;
pub mod raw;
pub mod run;
pub mod scx;
pub mod stock;
pub mod topology;
pub mod trace;
pub mod vars;
pub mod verdict;
pub mod vm;

pub use error::{Error, Result};
