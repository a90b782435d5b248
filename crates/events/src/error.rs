//! Why a file of events cannot be written or read.

use std::io;
use std::path::PathBuf;

/// One line, with the file.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {cause}", path.display())]
    Read { path: PathBuf, cause: io::Error },
    /// It is a pipe or a terminal.
    #[error("{}: events are read from a file, whose end is read first: write them into one", path.display())]
    Pipe { path: PathBuf },
    /// It is no file of events, or a damaged one.
    #[error("{}: {problem}", path.display())]
    Broken { path: PathBuf, problem: String },
    /// Writing failed.
    #[error("cannot write the events: {0}")]
    Write(String),
}

/// The first line of an error of the Parquet library, without what kind of error it is.
pub(crate) fn one_line(error: &parquet::errors::ParquetError) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("Parquet error: ")
        .unwrap_or(line)
        .to_owned()
}
