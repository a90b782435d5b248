//! Files that are complete or not there: written beside their place and renamed at the end.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::NamedTempFile;

/// A file in the making. Dropped before [`Output::commit`], it leaves nothing behind.
pub struct Output {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
}

impl Output {
    /// Begins a file that will be at `path`.
    ///
    /// # Errors
    /// If its folder is not there or cannot be written.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        if path.is_dir() {
            anyhow::bail!(
                "cannot write {}: it is a folder; name a file in it",
                path.display()
            );
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let file = tempfile::Builder::new()
            .prefix(".schedlab-")
            .tempfile_in(folder)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Output {
            path: path.to_owned(),
            file: BufWriter::with_capacity(1 << 16, file),
        })
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// If something cannot be written; then nothing is there.
    pub fn commit(self) -> anyhow::Result<()> {
        let path = self.path;
        let file = self
            .file
            .into_inner()
            .map_err(io::IntoInnerError::into_error);
        file.and_then(|file| {
            make_readable(file.as_file())?;
            file.persist(&path).map_err(|error| error.error)
        })
        .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(())
    }
}

/// Temporary files are the owner's alone; the finished one is as readable as any other.
fn make_readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"abc").unwrap();
        assert!(!path.exists());
        output.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_abandoned_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut output = Output::create(&folder.path().join("x")).unwrap();
        output.write_all(b"abc").unwrap();
        drop(output);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn places_that_cannot_be_written_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing/x");
        let error = format!("{:#}", Output::create(&path).err().unwrap());
        assert!(error.contains("missing/x"), "{error}");
        let error = Output::create(folder.path()).err().unwrap().to_string();
        assert!(error.contains("it is a folder"), "{error}");
    }
}
