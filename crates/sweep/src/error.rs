//! What can go wrong, each in one line.

use std::path::PathBuf;

use schedlab_sim::SimError;

/// Why a sweep could not be defined, run or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The space has no such feature.
    #[error("{scheduler} has no option `{option}`; there are: {known}")]
    Option {
        /// Whose space it is.
        scheduler: String,
        /// What was asked for.
        option: String,
        /// What there is.
        known: String,
    },
    /// No option of the scheduler has values that can be listed.
    #[error(
        "{scheduler} has no options with alternatives that could be swept: those of an enum or bool type have them, unless they are fixed"
    )]
    NoSpace {
        /// The scheduler.
        scheduler: String,
    },
    /// What the scheduler's source says of mute options cannot be.
    #[error(
        "{scheduler}: `{text}` under `Mute:` in its source: {why}; write `- OPTION: option=value,…`"
    )]
    Mute {
        /// The scheduler.
        scheduler: String,
        /// The item.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A scheduler that is no point of the space.
    #[error("`{text}` is not a point of the space of {scheduler}: {why}")]
    Point {
        /// What was asked for.
        text: String,
        /// Whose space it is.
        scheduler: String,
        /// What is wrong with it.
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
        /// What was asked for.
        job: u64,
        /// How many there are.
        jobs: u64,
    },
    /// A run that the sweep does not have.
    #[error("there is no run {run}: the sweep has {runs}, numbered from 0")]
    NoRun {
        /// What was asked for.
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
        /// What was asked for.
        text: String,
    },
    /// A run cannot be begun.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A row that no run of the sweep gives.
    #[error("no row of this sweep: {why}; keep what its runs answer")]
    Row {
        /// What is wrong with it.
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
        /// What is there instead.
        why: &'static str,
    },
    /// The folder is not one, and cannot be made.
    #[error("cannot keep results in {path}: {why}; name a folder that is there or can be made")]
    Folder {
        /// What was asked for.
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
        /// What is wrong with it.
        why: String,
    },
    /// The file that says which sweep it is cannot be understood.
    #[error(
        "{path} does not say which sweep this is: {why}; start the sweep anew in another folder"
    )]
    Definition {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Somebody else is at it.
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
        /// Why; told with the message, so it is no `source()` that would be told once more.
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
