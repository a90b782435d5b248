//! The reasons why there is no profile of a machine elsewhere.

use schedlab_machine::ProfileError;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FromError {
    /// The file or a file of the folder cannot be read.
    #[error("{file}: {error}")]
    Read {
        /// Which.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{file}:{line}: {message}")]
    Wrong {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// The fault and the remedy.
        message: String,
    },
    /// It is none of the kinds that are read, or the folder lacks something.
    #[error("{file}: {message}")]
    Foreign {
        /// The file or folder.
        file: String,
        /// The fault and the remedy.
        message: String,
    },
    /// Its contents can be no machine.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

impl FromError {
    pub(super) fn wrong(file: &str, line: usize, message: impl Into<String>) -> FromError {
        FromError::Wrong {
            file: file.to_owned(),
            line,
            message: message.into(),
        }
    }

    pub(super) fn foreign(file: &str, message: impl Into<String>) -> FromError {
        FromError::Foreign {
            file: file.to_owned(),
            message: message.into(),
        }
    }
}

/// The kinds of input.
pub(super) const KINDS: &str = "give lstopo's XML (lstopo --of xml FILE), the output of lscpu -p, or a copy of /sys/devices/system";
