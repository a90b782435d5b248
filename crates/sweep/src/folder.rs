//! A sweep's folder: `sweep.json`, one Parquet file a shard, and while a shard is under way its parts.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::error::At as _;
use crate::rows;
use crate::{Definition, Row, Shard, SweepError, file};

const DEFINITION: &str = "sweep.json";
const ENDING: &str = ".parquet";
/// How files begin that are not complete.
const UNFINISHED: &str = ".schedlab-";
/// Between a shard's stem and the number of a part.
const PART: &str = ".part-";

/// Puts a file into its place.
fn put(
    path: &Path,
    write: impl FnOnce(&mut io::BufWriter<&File>) -> io::Result<()>,
) -> Result<(), SweepError> {
    let folder = path.parent().expect("it lies in the sweep's folder");
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let place = || -> io::Result<()> {
        let file = file::beside(folder, &format!("{UNFINISHED}{name}-"))?;
        let mut buffer = io::BufWriter::with_capacity(1 << 16, file.as_file());
        write(&mut buffer)?;
        buffer
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file::into_place(file, path)
    };
    place().at(path)
}

/// Returns whether there is no such file, or nothing that could have one.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

fn stored(folder: &Path) -> Result<Option<Definition>, SweepError> {
    let path = folder.join(DEFINITION);
    match fs::read_to_string(&path) {
        Ok(text) => match Definition::from_json(&text) {
            Ok(definition) => Ok(Some(definition)),
            Err(why) => Err(SweepError::Definition { path, why }),
        },
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(SweepError::Definition {
            path,
            why: "it is not text".to_owned(),
        }),
        Err(error) => Err(error).at(path),
    }
}

/// Returns the sweep that a folder holds, if it holds one.
///
/// # Errors
/// If the file that says so cannot be read.
pub fn begun(folder: &Path) -> Result<Option<Definition>, SweepError> {
    stored(folder)
}

/// Returns the sweep of a folder and the rows that are there, in the order of jobs.
///
/// # Errors
/// If the folder holds none, or a file in it is broken or of another sweep.
pub fn read(folder: &Path) -> Result<(Definition, Vec<Row>), SweepError> {
    let definition = stored(folder)?.ok_or_else(|| SweepError::None {
        path: folder.to_owned(),
        why: match (folder.is_dir(), folder.exists()) {
            (true, _) => "there is no sweep.json in it",
            (false, true) => "it is not a folder",
            (false, false) => "it is not there",
        },
    })?;
    let rows = rows(&definition, folder)?;
    Ok((definition, rows.into_values().collect()))
}

/// Another process may put one file in the place of its parts while they are read.
const READ_AGAIN: u32 = 3;

/// Returns the rows of all shards by job.
pub(crate) fn rows(
    definition: &Definition,
    folder: &Path,
) -> Result<BTreeMap<u64, Row>, SweepError> {
    let mut tries = 0;
    loop {
        let mut rows = BTreeMap::new();
        let mut paths = files(folder)?.into_iter();
        match paths.try_for_each(|(path, _)| collect(definition, &path, &mut rows)) {
            Err(SweepError::File { cause, .. }) if is_absent(&cause) && tries < READ_AGAIN => {
                tries += 1;
            }
            Err(error) => return Err(error),
            Ok(()) => return Ok(rows),
        }
    }
}

/// Returns the files of a folder that [`read`] reads.
///
/// # Errors
/// If the folder cannot be read.
pub fn paths(folder: &Path) -> Result<Vec<PathBuf>, SweepError> {
    let shards = match folder.is_dir() {
        true => files(folder)?,
        false => Vec::new(),
    };
    let shards = shards.into_iter().map(|(path, _)| path);
    Ok(shards.chain([folder.join(DEFINITION)]).collect())
}

/// Returns the Parquet files of a folder with their stems, by name.
fn files(folder: &Path) -> Result<Vec<(PathBuf, String)>, SweepError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).at(folder)? {
        let name = entry.at(folder)?.file_name();
        let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(ENDING)) else {
            continue;
        };
        if !stem.starts_with('.') {
            found.push((folder.join(&name), stem.to_owned()));
        }
    }
    found.sort();
    Ok(found)
}

/// Adds a file's rows. A job may be in two files if the process that merged them was killed; then it has
/// the same row in both.
fn collect(
    definition: &Definition,
    path: &Path,
    rows: &mut BTreeMap<u64, Row>,
) -> Result<(), SweepError> {
    for row in rows::read(definition, path)? {
        let job = row.job;
        match rows.get(&job) {
            Some(known) if *known != row => {
                return Err(SweepError::Broken {
                    path: path.to_owned(),
                    why: format!("another file has another result for its job {job}"),
                });
            }
            _ => drop(rows.insert(job, row)),
        }
    }
    Ok(())
}

/// A shard under way, locked against other processes.
pub struct Work {
    definition: Definition,
    folder: PathBuf,
    shard: Shard,
    jobs: u64,
    /// The rows that exist already.
    pub rows: BTreeMap<u64, Row>,
    parts: Vec<PathBuf>,
    next_part: u64,
    _lock: File,
}

impl Work {
    /// Begins or goes on.
    ///
    /// # Errors
    /// If the folder holds another sweep or a broken file, another process works at it, or it cannot be written.
    pub fn begin(definition: &Definition, folder: &Path, shard: Shard) -> Result<Work, SweepError> {
        fs::create_dir_all(folder).map_err(|error| SweepError::Folder {
            path: folder.to_owned(),
            why: match folder.exists() {
                true => "it is not a folder".to_owned(),
                false => error.to_string(),
            },
        })?;
        match stored(folder)? {
            Some(other) => {
                if let Some(what) = definition.difference(&other) {
                    return Err(SweepError::Other {
                        path: folder.join(DEFINITION),
                        what,
                    });
                }
            }
            // Of shards that begin at the same time each writes the same.
            None => put(&folder.join(DEFINITION), |file| {
                io::Write::write_all(file, definition.to_json().as_bytes())
            })?,
        }
        let lock = lock(&folder.join(format!(".{}.lock", shard.stem())))?;
        let stem = shard.stem();
        tidy(folder, &format!("{UNFINISHED}{stem}."))?;
        let (mut rows, mut parts, mut next_part) = (BTreeMap::new(), Vec::new(), 0);
        for (path, name) in files(folder)? {
            if name == stem {
                collect(definition, &path, &mut rows)?;
                continue;
            }
            let Some(number) = name
                .strip_prefix(&stem)
                .and_then(|rest| rest.strip_prefix(PART))
            else {
                continue;
            };
            collect(definition, &path, &mut rows)?;
            next_part = next_part.max(number.parse::<u64>().unwrap_or(0) + 1);
            parts.push(path);
        }
        let mut work = Work {
            definition: definition.clone(),
            folder: folder.to_owned(),
            shard,
            jobs: 0,
            rows,
            parts,
            next_part,
            _lock: lock,
        };
        let jobs = work
            .runs()
            .map(|run| definition.jobs_of(run).count() as u64);
        work.jobs = jobs.sum();
        Ok(work)
    }

    /// Returns the runs of the shard of which a job is not done, in their order.
    pub fn missing(&self) -> Vec<u64> {
        self.runs().filter(|run| !self.has(*run)).collect()
    }

    /// Returns whether all jobs of a run are done.
    pub fn has(&self, run: u64) -> bool {
        let mut jobs = self.definition.jobs_of(run);
        jobs.all(|job| self.rows.contains_key(&job))
    }

    /// Number of the shard's runs.
    pub(crate) fn nr_runs(&self) -> u64 {
        self.runs().count() as u64
    }

    /// Number of runs that are done.
    pub(crate) fn made(&self) -> u64 {
        let all = 0..self.definition.runs();
        all.filter(|run| self.has(*run)).count() as u64
    }

    /// Returns the runs of the shard.
    fn runs(&self) -> impl Iterator<Item = u64> {
        let shard = self.shard;
        (0..self.definition.runs()).filter(move |run| shard.has(*run))
    }

    /// Number of the shard's jobs.
    pub fn jobs(&self) -> u64 {
        self.jobs
    }

    /// Keeps what has been done since the last time, and takes it from `rows`.
    ///
    /// # Errors
    /// If it cannot be written, or is not of this sweep; then `rows` are as they were.
    pub fn keep(&mut self, rows: &mut Vec<Row>) -> Result<(), SweepError> {
        if rows.is_empty() {
            return Ok(());
        }
        for row in &*rows {
            let checked = row.check(&self.definition);
            checked.map_err(|why| SweepError::Row { why })?;
        }
        let name = format!("{}{PART}{:06}{ENDING}", self.shard.stem(), self.next_part);
        let path = self.folder.join(name);
        put(&path, |file| rows::write(&self.definition, rows, file))?;
        self.next_part += 1;
        self.parts.push(path);
        self.rows.extend(rows.drain(..).map(|row| (row.job, row)));
        Ok(())
    }

    /// The shard is complete: one file in place of its parts.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> Result<(), SweepError> {
        let path = self.folder.join(self.shard.stem() + ENDING);
        if self.parts.is_empty() && path.exists() {
            return Ok(());
        }
        let rows: Vec<Row> = self.rows.into_values().collect();
        put(&path, |file| rows::write(&self.definition, &rows, file))?;
        for part in &self.parts {
            fs::remove_file(part).at(part)?;
        }
        Ok(())
    }
}

/// Removes what a killed process left unfinished.
fn tidy(folder: &Path, prefix: &str) -> Result<(), SweepError> {
    for entry in fs::read_dir(folder).at(folder)? {
        let name = entry.at(folder)?.file_name();
        if name.to_string_lossy().starts_with(prefix) {
            let path = folder.join(name);
            fs::remove_file(&path).at(path)?;
        }
    }
    Ok(())
}

/// How often a lock that somebody has is tried again, 10 ms apart.
const LOCK_TRIES: u32 = 30;

fn lock(path: &Path) -> Result<File, SweepError> {
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(path)
        .at(path)?;
    // A child of a killed sweep, or one that is about to become a compiler, may have the lock for a moment longer.
    let mut tries = 0..LOCK_TRIES;
    let taken = loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if tries.next().is_some() => {
                thread::sleep(Duration::from_millis(10));
            }
            taken => break taken,
        }
    };
    match taken {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SweepError::Busy {
            path: path.to_owned(),
        }),
        // Some network file systems have no locks.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(error)) => Err(error).at(path),
    }
}
