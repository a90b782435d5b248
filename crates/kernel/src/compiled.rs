//! The objects that this process has compiled, and their way into a virtual machine.
//!
//! A compiler whose instructions are emulated runs for 20 seconds. So the host hands over the objects that it has compiled,
//! in the folder that it shares with the machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::error::{At as _, Result};
use crate::inside;

/// By the absolute paths of their C files.
static COMPILED: Mutex<BTreeMap<PathBuf, Vec<u8>>> = Mutex::new(BTreeMap::new());

/// The list of the objects in a folder, each with its C file; the object of the first one is in `0.bpf.o`.
const LIST: &str = "objects.json";

/// A C file as it was: who edits it inside gets another object.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Source {
    path: PathBuf,
    bytes: u64,
    changed: SystemTime,
}

impl Source {
    /// None of a file that is not there, or whose path JSON cannot hold.
    fn at(path: &Path) -> Option<Source> {
        path.to_str()?;
        let metadata = fs::metadata(path).ok()?;
        Some(Source {
            path: path.to_owned(),
            bytes: metadata.len(),
            changed: metadata.modified().ok()?,
        })
    }
}

/// Returns the object of the C file at a path: as it was compiled before, as the host has handed it over, or as `compile`
/// makes it.
pub fn once(path: &Path, compile: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    let path = std::path::absolute(path).at(path)?;
    let mut all = COMPILED.lock().expect("compiling does not panic");
    if let Some(known) = all.get(&path) {
        return Ok(known.clone());
    }
    let object = match inside::share().and_then(|share| handed_over(&share, &path)) {
        Some(object) => object,
        None => compile()?,
    };
    all.insert(path, object.clone());
    Ok(object)
}

/// Writes the objects into `folder`, which a virtual machine shares.
pub fn hand_over(folder: &Path) -> Result<()> {
    let all = COMPILED.lock().expect("compiling does not panic");
    let known = all
        .iter()
        .filter_map(|(path, object)| Some((Source::at(path)?, object)));
    let (sources, objects): (Vec<_>, Vec<_>) = known.unzip();
    for (number, object) in objects.iter().enumerate() {
        let file = object_file(folder, number);
        fs::write(&file, object).at(&file)?;
    }
    let list = folder.join(LIST);
    let text = serde_json::to_vec(&sources).expect("its paths are words");
    fs::write(&list, text).at(&list)
}

/// Returns the object of the C file at an absolute path, if it was handed over in `folder`.
fn handed_over(folder: &Path, path: &Path) -> Option<Vec<u8>> {
    let list = fs::read(folder.join(LIST)).ok()?;
    let sources: Vec<Source> = serde_json::from_slice(&list).ok()?;
    let source = Source::at(path)?;
    let number = sources.iter().position(|known| *known == source)?;
    fs::read(object_file(folder, number)).ok()
}

fn object_file(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("{number}.bpf.o"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_handed_over_by_the_path_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["one.bpf.c", "another.bpf.c"].map(|name| folder.path().join(name));
        for (path, object) in paths.iter().zip(["1", "2"]) {
            fs::write(path, "C").unwrap();
            once(path, || Ok(object.into())).unwrap();
            // It is compiled once.
            assert_eq!(once(path, || panic!("again")).unwrap(), object.as_bytes());
        }
        hand_over(folder.path()).unwrap();
        let given = |path: &Path| handed_over(folder.path(), path);
        assert_eq!(given(&paths[0]).unwrap(), b"1");
        assert_eq!(given(&paths[1]).unwrap(), b"2");
        assert!(given(&folder.path().join("third.bpf.c")).is_none());
        // Edited meanwhile, or gone.
        fs::write(&paths[0], "more C").unwrap();
        fs::remove_file(&paths[1]).unwrap();
        assert!(given(&paths[0]).is_none() && given(&paths[1]).is_none());
        let empty = tempfile::tempdir().unwrap();
        assert!(handed_over(empty.path(), &paths[0]).is_none());
    }
}
