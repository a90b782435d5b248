//! The reasons for which there is no transcript.

use std::io;

/// Why there is no transcript.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The program is not there, or is none.
    #[error("{program} cannot be started: {reason}")]
    Start { program: String, reason: io::Error },
    /// The host does not let us supervise.
    #[error(
        "this host does not let schedlab answer system calls ({0}): it takes Linux 5.14 or newer with seccomp's user notification"
    )]
    Host(io::Error),
    /// It ended first.
    #[error("{program} ended ({how}) before it attached a scheduler{said}")]
    Ended {
        program: String,
        how: String,
        said: String,
    },
    /// It neither ends nor attaches.
    #[error("{program} has done nothing for {seconds} s and attached no scheduler{said}")]
    Idle {
        program: String,
        seconds: u64,
        said: String,
    },
    /// It goes on, and does not attach.
    #[error("{program} has run for {seconds} s and attached no scheduler{said}")]
    Late {
        program: String,
        seconds: u64,
        said: String,
    },
    /// This program ends.
    #[error("{program} is ended before it has attached a scheduler: schedlab ends")]
    Interrupted { program: String },
    /// A program or a map of it.
    #[error("{0}")]
    Program(String),
}
