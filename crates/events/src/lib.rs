//! The event stream of a run in a file: Parquet, so that other programs read it too (`docs/events.md`).
//!
//! [`EventWriter`] is a listener that writes what it hears; [`EventFile`] tells a listener what the file has. Both hold
//! one group of [`GROUP`] rows in memory, whatever the length of the run.
#![forbid(unsafe_code)]

mod about;
mod error;
mod guard;
mod read;
mod row;
mod write;

pub use about::{About, FORMAT};
pub use error::EventsError;
pub use read::EventFile;
pub use row::GROUP;
pub use write::EventWriter;
