//! Describes a machine: its topology, the cost of each step of scheduling, and its caches.
//!
//! A profile (`machines/*.toml`) becomes a [`Machine`]. Nothing here knows of tasks or schedulers.
#![forbid(unsafe_code)]

pub mod address;
pub mod background;
mod builtin;
pub mod bus;
pub mod cache;
pub mod cores;
pub mod file;
pub mod layout;
pub mod profile;
pub mod provenance;
mod shape;
pub mod shared;
pub mod tcp;
pub mod topology;

pub use address::TaskAddresses;
pub use background::Background;
pub use cache::{CacheIx, CacheModel, CacheStats, LineRef};
pub use cores::CoreTraits;
pub use file::{CACHE_BYTES_MAX, Change};
pub use layout::Layout;
pub use profile::{CAPACITY_SCALE, Calibration, CoreKind, LockKind, Machine, ProfileError, Timers};
pub use provenance::{Provenance, SourceKind};
pub use shared::{KernelPath, Scope, SharedObject};
pub use tcp::Tcp;
pub use topology::{Cpu, Numbering, Topology};
