//! Time, identities and the event stream.
//!
//! Both worlds emit these events, the virtual kernel and the real one, so a
//! measure or an invariant is written once and judges both. This crate knows
//! nothing of how an event comes about.
#![forbid(unsafe_code)]

pub mod check;
pub mod cpuset;
pub mod event;
pub mod id;
pub mod options;
pub mod scheduler;
pub mod time;
pub mod words;

pub use cpuset::{CpuListError, CpuSet};
pub use event::{
    CpuMode, DEADLINE_PRIORITY, Event, Listener, LockClass, LockPath, MigrationReach, PrevState,
    Recorder, TaskMeta,
};
pub use id::{CpuId, LockId, TaskId};
pub use scheduler::Scheduler;
pub use time::{Duration, Instant};
pub use words::{counted, nearest, nearest_of, shell_word, time_unit};
