//! Files that are complete or not there: written beside their place, flushed to the disk and renamed.

use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// Begins a file in the folder of the final one, under a name that cannot be confused with it. If it is dropped, it
/// leaves nothing behind.
///
/// # Errors
/// If the folder takes none.
pub fn beside(folder: &Path, prefix: &str) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix);
    as_others(&mut builder);
    builder.tempfile_in(folder)
}

/// Puts it into its place. A power failure leaves the old file or the whole new one.
///
/// # Errors
/// If it cannot be written or renamed; then what was there is still there.
pub fn into_place(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// As readable as any other new file, not its owner's alone: the umask takes its share.
#[cfg(unix)]
fn as_others(builder: &mut tempfile::Builder<'_, '_>) {
    use std::os::unix::fs::PermissionsExt as _;
    builder.permissions(std::fs::Permissions::from_mode(0o666));
}

#[cfg(not(unix))]
fn as_others(_: &mut tempfile::Builder<'_, '_>) {}
