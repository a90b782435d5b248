//! Faults of a recording.

/// Why a recording cannot be used: one line with the file, the place and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// It cannot be read at all.
    #[error("cannot read the recording `{path}`: {cause}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why; a part of the message, so it is no `source()`.
        cause: std::io::Error,
    },
    /// It is of no known format.
    #[error(
        "`{path}` is no recording that schedlab reads ({what}); it reads perf.data, trace.dat, traces of Perfetto, the text of ftrace, systrace and `perf script`, and the JSON of wprof"
    )]
    Foreign {
        /// The file.
        path: String,
        /// The kind of file that it seems to be.
        what: String,
    },
    /// It ends too early.
    #[error("`{path}` is truncated: {message}; copy or record it again")]
    Truncated {
        /// The file.
        path: String,
        /// The missing part.
        message: String,
    },
    /// It contradicts its format.
    #[error("`{path}`: {place}: {message}; the file is damaged: copy or record it again")]
    Corrupted {
        /// The file.
        path: String,
        /// The line, or the offset in bytes.
        place: String,
        /// The fault.
        message: String,
    },
    /// It lacks events without which nothing can be inferred.
    #[error("`{path}` has no {event} events: record with {remedy}")]
    Lacking {
        /// The file.
        path: String,
        /// Which events.
        event: &'static str,
        /// How to get them.
        remedy: &'static str,
    },
    /// Its CPUs disagree about the time.
    #[error(
        "`{path}`: the clock of CPU {cpu} is {ms} ms behind at {at_s} s; record with one clock for all CPUs (`perf record -k CLOCK_MONOTONIC`, `trace-cmd record -C mono`)"
    )]
    Skewed {
        /// The file.
        path: String,
        /// The CPU that is behind.
        cpu: u32,
        /// By how many milliseconds.
        ms: u64,
        /// At which time of the recording.
        at_s: String,
    },
    /// There is no program in it.
    #[error("`{path}`: {message}")]
    NoProgram {
        /// The file.
        path: String,
        /// Why, and what to do.
        message: String,
    },
}
