//! Errors of a sweep, each in one line.

use std::path::PathBuf;

use schedlab_sim::SimError;

/// Why a sweep could not be defined, run or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The space has no such feature.
    #[error("{scheduler} has no option `{option}`; there are: {known}")]
    Option {
        /// The scheduler of the space.
        scheduler: String,
        /// The requested name.
        option: String,
        /// The known names.
        known: String,
    },
    /// No option of the scheduler has values that can be listed.
    #[error(
        "{scheduler} has no options with alternatives that could be swept: options of an enum or bool type have them, unless they are fixed"
    )]
    NoSpace {
        /// The scheduler.
        scheduler: String,
    },
    /// A statement of the scheduler's source about mute options that is impossible.
    #[error(
        "{scheduler}: `{text}` under `Mute:` in its source: {why}; write `- OPTION: option=value,…`"
    )]
    Mute {
        /// The scheduler.
        scheduler: String,
        /// The item.
        text: String,
        /// The fault.
        why: String,
    },
    /// A scheduler that is no point of the space.
    #[error("`{text}` is not a point of the space of {scheduler}: {why}")]
    Point {
        /// The requested value.
        text: String,
        /// The scheduler of the space.
        scheduler: String,
        /// The fault.
        why: String,
    },
    /// A workload that would be run twice with the same seeds.
    #[error("{workload} is named twice; --repeat runs everything several times")]
    Twice {
        /// The workload.
        workload: String,
    },
    /// Seeds that there are not.
    #[error("--seed {seed}: with --repeat, seeds go beyond 2^64")]
    Seeds {
        /// The first one.
        seed: u64,
    },
    /// Another build of the program would go on with the sweep, or a part of it runs elsewhere.
    #[error(
        "the sweep was begun by another build of schedlab: go on with that one, or begin anew in another folder"
    )]
    Build,
    /// A file was edited since the sweep was begun, or is another one here than where it was begun.
    #[error(
        "{path}, or what it includes, is not what the sweep was begun with: restore it, or begin anew in another folder"
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A job that the sweep does not have.
    #[error("there is no job {job}: the sweep has {jobs}, numbered from 0")]
    NoJob {
        /// The requested value.
        job: u64,
        /// How many there are.
        jobs: u64,
    },
    /// A run that the sweep does not have.
    #[error("there is no run {run}: the sweep has {runs}, numbered from 0")]
    NoRun {
        /// The requested value.
        run: u64,
        /// How many there are.
        runs: u64,
    },
    /// Its runs are not simulations.
    #[error("the sweep is of a real kernel: go on with `schedlab sweep --live`")]
    Live,
    /// A shard that cannot be.
    #[error("--shard {text}: write I/N with 1 ≤ I ≤ N, for example 3/8")]
    Shard {
        /// The requested value.
        text: String,
    },
    /// A run cannot be begun.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A row that no run of the sweep gives.
    #[error("no row of this sweep: {why}; keep what its runs answer")]
    Row {
        /// The fault.
        why: String,
    },
    /// The folder holds another sweep.
    #[error("{path} holds another sweep, which differs in its {what}; choose another folder")]
    Other {
        /// The file that says so.
        path: PathBuf,
        /// In what it differs.
        what: String,
    },
    /// The folder holds no sweep.
    #[error("{path} holds no sweep: {why}; name the folder that was the --out of `schedlab sweep`")]
    None {
        /// The folder.
        path: PathBuf,
        /// The found contents.
        why: &'static str,
    },
    /// The folder is not one, and cannot be made.
    #[error("cannot keep results in {path}: {why}; name a folder that is there or can be made")]
    Folder {
        /// The requested value.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A file is not what it should be.
    #[error(
        "{path} is not a results file of this sweep: {why}; move it away, and its runs are made again"
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// The file that says which sweep it is cannot be understood.
    #[error(
        "{path} does not say which sweep this is: {why}; start the sweep anew in another folder"
    )]
    Definition {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// Another process works at it.
    #[error("{path}: another process runs this shard")]
    Busy {
        /// Its lock.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("cannot read or write {path}: {cause}{}", remedy(.cause))]
    File {
        /// The file.
        path: PathBuf,
        /// The reason. The message includes it, so it is no `source()`, which would be printed once more.
        cause: std::io::Error,
    },
}

/// How to go on, where that is known.
fn remedy(cause: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match cause.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => {
            "; once there is room again the same command goes on where it was"
        }
        _ => "",
    }
}

/// Says which file it was.
pub trait At<T> {
    /// Names the file.
    fn at(self, path: impl Into<PathBuf>) -> Result<T, SweepError>;
}

impl<T> At<T> for Result<T, std::io::Error> {
    fn at(self, path: impl Into<PathBuf>) -> Result<T, SweepError> {
        self.map_err(|cause| SweepError::File {
            path: path.into(),
            cause,
        })
    }
}
