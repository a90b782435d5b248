//! Where downloads and unpacked files are kept: `$XDG_CACHE_HOME/schedlab` or `~/.cache/schedlab`.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// Returns the cache directory; it need not exist yet.
///
/// # Errors
/// Neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn dir() -> Result<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    set("XDG_CACHE_HOME")
        .or_else(|| Some(set("HOME")?.join(".cache")))
        .map(|base| base.join("schedlab"))
        .ok_or_else(|| Error::Missing {
            what: "a directory for the cache".to_owned(),
            remedy: "set HOME or XDG_CACHE_HOME".to_owned(),
        })
}

/// Holds a lock of the cache until it is dropped, so that two programs do not fetch the same thing.
///
/// # Errors
/// The cache cannot be written.
pub(crate) fn lock(name: &str) -> Result<std::fs::File> {
    use crate::error::At as _;
    let dir = dir()?;
    std::fs::create_dir_all(&dir).at(&dir)?;
    let path = dir.join(format!("{name}.lock"));
    let file = std::fs::File::create(&path).at(&path)?;
    file.lock().at(&path)?;
    Ok(file)
}
