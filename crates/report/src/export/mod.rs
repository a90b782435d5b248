//! Export formats of results and runs, one file per format.

pub mod csv;
pub mod json;
pub mod lines;
mod names;
pub mod number;
pub mod perfetto;
pub mod table;
pub mod validation;
pub mod view;
