//! What a machine is: its topology, what each step of scheduling costs on it, and its caches.
//!
//! A profile (`machines/*.toml`) becomes a [`Machine`]. Nothing here knows of tasks or schedulers.

pub mod cache;
pub mod profile;
pub mod topology;

pub use cache::{Access, CacheModel, CacheStats};
pub use profile::{LockKind, Machine, ProfileError};
pub use topology::{Cpu, Topology};
