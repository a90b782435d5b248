//! Computes measures from a run's events and statistics over runs, and exports both.
//!
//! Everything is computed from the event stream (`schedlab_trace`), so one definition of a measure
//! serves the simulator and the real kernel. Nothing here looks into the engine.
#![forbid(unsafe_code)]

pub mod catalogue;
mod count;
pub mod exit;
pub mod export;
pub mod heard;
pub mod histogram;
mod inversions;
pub mod lock_stats;
pub mod measures;
pub mod origin;
mod pairs;
mod parts;
pub mod published;
pub mod recorder;
pub mod result;
pub mod stats;
mod task_stats;
pub mod timeline;
pub mod validation;
pub mod weight;

pub use exit::Exit;
pub use heard::Heard;
pub use histogram::Histogram;
pub use lock_stats::LockStats;
pub use measures::{Measures, Value};
pub use origin::{Origin, World};
pub use parts::PartsRecorder;
pub use recorder::{MetricsRecorder, Sources};
pub use result::{Document, Points, RunResult};
pub use timeline::Timeline;
