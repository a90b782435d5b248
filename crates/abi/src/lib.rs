//! The native world of policies: loads a compiled policy, calls its ops, and carries kfuncs
//! between C and the virtual kernel. The `unsafe` code of the simulator is here and in `schedlab-fiber`.
//!
//! It decides nothing about scheduling: whatever several CPUs share is asked of a
//! [`schedlab_engine::policy::Service`].

mod arena;
mod audit;
mod bpf;
mod cgroups;
mod cids;
pub mod compiler;
mod custody;
mod dwarf;
mod fields;
mod functions;
mod graph;
mod host;
mod host_table;
mod image;
pub mod kconfig;
mod kfuncs;
mod known;
mod layout;
mod map_def;
mod maps;
mod masks;
mod memory;
mod names;
mod native_policy;
pub mod object;
mod object_error;
mod ops;
mod ops_table;
pub mod options;
mod placed;
mod primitives;
mod races;
mod rehearsal;
mod signature;
mod tasks;
mod timers;
mod version;
mod watch;

pub use bpf::{KernelTypes, LeftOut, decisions, kernel_types, missing_functions};
pub use host::runner::Watch;
pub use image::LoadError;
pub use layout::NR_CPUS_MAX;
pub use map_def::{MapDef, is_known_kind, unknown_kind};
pub use native_policy::NativePolicy;
pub use object::NativeObject;
pub use object_error::{ObjectError, ObjectErrors};
pub use options::{OptionError, OptionKind, PolicyOption, Settings};
pub use rehearsal::Recorder;
pub use schedlab_engine::KernelVersion;
