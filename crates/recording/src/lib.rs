//! Recordings of real programs: reads what tracers wrote, infers a program from it, and measures both alike.
//!
//! [`read`] tells the events of a recording one after another, whatever its format. [`Inference`] turns them into a
//! workload file ([`schedlab_workload::recorded`]), which the simulator replays. [`Tally`] counts the same measures from
//! a recording and from a replay. Nothing here runs a program or a simulation.
#![forbid(unsafe_code)]

mod channel;
mod error;
mod event;
mod formats;
mod import;
mod infer;
mod order;
mod packed;
pub mod page;
mod perf;
mod perfetto;
mod program;
mod read;
mod tally;
mod task;
mod text;
mod tracedat;
mod tracepoint;
mod wprof;

pub use error::RecordingError;
pub use event::{About, Call, Comm, Context, Event, Left, Tid, What};
pub use import::{Options, import};
pub use infer::{Costs, Inference, Inferred, Select};
pub use read::{Kind, kind, read};
pub use tally::{OfTask, Off, Replayed, Tally};
