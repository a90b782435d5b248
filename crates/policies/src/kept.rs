//! Transcripts of loaders that are kept, so that the same loader need not run again: by its program, arguments and environment, the
//! machine and the kernel. An entry is used only while every file that the loader has looked at is as it was.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use schedlab_loader::{Facts, Order, Record};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// Entries that are kept; the oldest go first.
const ENTRIES_MAX: usize = 64;

/// Bytes of a digest.
const DIGEST: usize = 32;

/// The folder of the entries: `$XDG_CACHE_HOME/schedlab/loaders`, or below `~/.cache`; `None`: neither is known.
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("schedlab/loaders"))
}

/// An entry.
pub struct Entry {
    path: PathBuf,
}

/// All that determines what a loader does, besides the files that it looks at.
#[derive(Serialize)]
struct Key<'k> {
    /// The program that records: another one may record in another way.
    recorder: Option<(PathBuf, u64, i64, i64, u64)>,
    program: PathBuf,
    order: Vec<String>,
    folder: &'k Path,
    surroundings: Vec<(String, String)>,
    machine: String,
    release: &'k str,
    config: &'k [(String, String)],
    types: Vec<u8>,
}

/// The file that this code is in, as it is now.
fn recorder() -> Option<(PathBuf, u64, i64, i64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let here = recorder as fn() -> Option<(PathBuf, u64, i64, i64, u64)> as usize;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find_map(|line| {
        let (range, _) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let is_here = (number(start)?..number(end)?).contains(&here);
        is_here.then(|| line.find('/').map(|at| PathBuf::from(&line[at..])))?
    })?;
    let it = fs::metadata(&path).ok()?;
    Some((path, it.len(), it.mtime(), it.mtime_nsec(), it.ino()))
}

impl Entry {
    /// The entry of an order.
    pub fn of(folder: &Path, order: &Order, facts: &Facts<'_>) -> Entry {
        let words = std::iter::once(&order.program).chain(&order.arguments);
        let key = Key {
            recorder: recorder(),
            program: schedlab_loader::find(&order.program),
            order: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            folder: &order.folder,
            surroundings: schedlab_loader::surroundings(),
            machine: format!("{:?}", facts.machine),
            release: facts.release,
            config: facts.config,
            types: facts.types.to_bytes(),
        };
        let bytes = postcard::to_stdvec(&key).unwrap_or_default();
        let name: String = Sha256::digest(bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Entry {
            path: folder.join(name),
        }
    }

    /// Returns the work of the loader, if it would do the same now.
    pub fn read(&self) -> Option<Record> {
        let bytes = fs::read(&self.path).ok()?;
        let (digest, contents) = bytes.split_at_checked(DIGEST)?;
        if Sha256::digest(contents).as_slice() != digest {
            return None;
        }
        let record: Record = postcard::from_bytes(contents).ok()?;
        record.seen.is_still_so().then_some(record)
    }

    /// Keeps what the loader has done. Where that fails, it runs again next time.
    pub fn write(&self, record: &Record) {
        if record.seen.unsure.is_some() {
            return;
        }
        let Ok(contents) = postcard::to_stdvec(record) else {
            return;
        };
        let Some(folder) = self.path.parent() else {
            return;
        };
        let written = fs::create_dir_all(folder)
            .and_then(|()| tempfile::NamedTempFile::new_in(folder))
            .and_then(|mut file| {
                file.write_all(&Sha256::digest(&contents))?;
                file.write_all(&contents)?;
                file.persist(&self.path).map_err(|error| error.error)
            });
        if written.is_ok() {
            make_room(folder);
        }
    }
}

/// Removes the oldest entries.
fn make_room(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<_> = entries
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    entries.sort();
    let nr = entries.len().saturating_sub(ENTRIES_MAX);
    for (_, path) in &entries[..nr] {
        let _ = fs::remove_file(path);
    }
}
