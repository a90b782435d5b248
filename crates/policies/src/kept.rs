//! Transcripts of loaders that are kept, so that the same loader need not run again: by its program, arguments and environment, the
//! machine and the kernel. An entry is used only while every file that the loader has looked at is as it was.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
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

/// A program that records: another one may record in another way.
#[derive(Serialize)]
struct Recorder {
    path: Vec<u8>,
    bytes: u64,
    modified: (i64, i64),
    inode: u64,
}

/// All that determines what a loader does, besides the files that it looks at. Names and words are bytes: they may be no UTF-8.
#[derive(Serialize)]
struct Key<'k> {
    recorder: Recorder,
    program: &'k [u8],
    order: Vec<&'k [u8]>,
    folder: &'k [u8],
    surroundings: Vec<(Vec<u8>, Vec<u8>)>,
    machine: String,
    release: &'k str,
    config: &'k [(String, String)],
    types: Vec<u8>,
}

/// The file that this code is in, as it is now; `None`: it was replaced since the program began.
fn recorder() -> Option<Recorder> {
    let here = recorder as fn() -> Option<Recorder> as usize;
    let maps = fs::read("/proc/self/maps").ok()?;
    let path = maps.split(|&byte| byte == b'\n').find_map(|line| {
        let start = line.iter().position(|&byte| byte == b'/')?;
        let (range, _) = std::str::from_utf8(&line[..start]).ok()?.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let is_here = (number(from)?..number(to)?).contains(&here);
        is_here.then(|| Path::new(OsStr::from_bytes(&line[start..])))
    })?;
    // The kernel adds " (deleted)" to the path of a file that is gone.
    let it = fs::metadata(path).ok()?;
    Some(Recorder {
        path: path.as_os_str().as_bytes().to_owned(),
        bytes: it.len(),
        modified: (it.mtime(), it.mtime_nsec()),
        inode: it.ino(),
    })
}

impl Entry {
    /// The entry of an order; `None`: its key is not known, so nothing may be kept.
    pub fn of(folder: &Path, order: &Order, facts: &Facts<'_>) -> Option<Entry> {
        let words = std::iter::once(&order.program).chain(&order.arguments);
        let program = schedlab_loader::find(&order.program);
        let key = Key {
            recorder: recorder()?,
            program: program.as_os_str().as_bytes(),
            order: words.map(|word| word.as_bytes()).collect(),
            folder: order.folder.as_os_str().as_bytes(),
            surroundings: schedlab_loader::surroundings(),
            machine: format!("{:?}", facts.machine),
            release: facts.release,
            config: facts.config,
            types: facts.types.to_bytes(),
        };
        let bytes = postcard::to_stdvec(&key).ok()?;
        let name: String = Sha256::digest(bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Some(Entry {
            path: folder.join(name),
        })
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::process::Command;
    use std::time::Duration;

    use schedlab_abi::KernelVersion;
    use schedlab_loader::Patience;
    use schedlab_machine::Machine;

    use super::*;

    /// The name of the entry of an order in a working folder.
    fn entry(folder: &[u8], argument: &[u8]) -> Option<PathBuf> {
        let order = Order {
            program: "loader".into(),
            arguments: vec![OsStr::from_bytes(argument).to_owned()],
            folder: OsStr::from_bytes(folder).into(),
            files: PathBuf::new(),
            patience: Patience {
                idle: Duration::ZERO,
                whole: Duration::ZERO,
            },
            is_ending: || false,
        };
        let facts = Facts {
            machine: &Machine::builtin("laptop").unwrap(),
            release: "7.2.0",
            config: &[],
            types: crate::objects::kernel_types().of(KernelVersion::V7_2),
        };
        Entry::of(Path::new("kept"), &order, &facts).map(|entry| entry.path)
    }

    #[test]
    fn names_that_are_no_utf8_are_told_apart() {
        let orders: [(&[u8], &[u8]); 4] = [
            (b"/d\xff", b"5"),
            (b"/d\xff", b"7"),
            (b"/d\xfe", b"5"),
            (b"/d\xfe", b"\xff"),
        ];
        let names = orders.map(|(folder, argument)| entry(folder, argument).unwrap());
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), orders.len(), "{names:?}");
        assert_eq!(entry(b"/d\xff", b"5").as_ref(), Some(&names[0]));
    }

    /// Builds that replace each other while they run are not told apart by the file.
    #[test]
    fn a_program_whose_file_is_gone_keeps_nothing() {
        const CHILD: &str = "SCHEDLAB_TEST_OF_A_PROGRAM_THAT_IS_GONE";
        if let Some(program) = std::env::var_os(CHILD) {
            assert!(entry(b"/", b"").is_some());
            fs::remove_file(program).unwrap();
            assert!(entry(b"/", b"").is_none());
            return;
        }
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let link: OsString = folder.path().join("program").into();
        fs::hard_link(&program, &link).unwrap();
        let test = "kept::tests::a_program_whose_file_is_gone_keeps_nothing";
        let output = Command::new(&link)
            .args(["--exact", test])
            .env(CHILD, &link)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("1 passed"), "{said}");
    }
}
