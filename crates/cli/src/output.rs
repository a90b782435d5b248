//! Files that are complete or not there: written without a name, and put in their place at the end.
//!
//! An existing file that is not regular (a pipe, `/dev/null`, `/dev/stdout`) is written to and stays as it is:
//! renaming over it would replace the device for everybody.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use schedlab_report::export::table;
use schedlab_sweep::file;
use tempfile::NamedTempFile;

/// Tells who sits at the terminal, in one line. A reader that is gone, or a full disk, changes nothing else.
pub fn tell(what: impl std::fmt::Display) {
    let line = harmless(&what.to_string()).replace('\n', r"\n");
    let _ = writeln!(io::stderr(), "schedlab: {line}");
}

/// Lines in which what would move the cursor or clear the screen is spelled out: names from files may have it.
pub fn harmless(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() && !"\n\t".contains(c) {
            true => told.extend(c.escape_default()),
            false => told.push(c),
        }
    }
    told
}

/// Returns whether a path stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Refuses standard output, which is for text: a trace is for a file.
pub fn binary_in_file(flag: &str, path: Option<&Path>) -> anyhow::Result<()> {
    const STDOUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    if let Some(path) = path.filter(|path| STDOUT.iter().any(|known| *path == Path::new(known))) {
        bail!(
            "{flag} {}: the file is binary, and the table is written there; name another one",
            path.display()
        );
    }
    if path.is_some_and(is_stdout) {
        bail!("{flag} -: the file is binary; name one, or write ./- for one of that name");
    }
    Ok(())
}

/// Refuses an output to a file that the command reads, which would be lost, and two outputs to one file, of which only
/// the later would be left. Devices and pipes take what comes.
pub fn one_file_each<P: AsRef<Path>>(
    outputs: &[(&str, Option<&Path>)],
    inputs: impl IntoIterator<Item = P>,
) -> anyhow::Result<()> {
    let inputs = inputs.into_iter().map(|input| place(input.as_ref()));
    let inputs: BTreeSet<PathBuf> = inputs.collect();
    let mut taken: Vec<(&str, PathBuf)> = Vec::new();
    for &(flag, path) in outputs {
        let Some(path) = path.filter(|path| !is_stdout(path)) else {
            continue;
        };
        if path.metadata().is_ok_and(|there| !there.is_file()) {
            continue;
        }
        let place = place(path);
        if inputs.contains(&place) {
            bail!(
                "{flag} {}: that file is read here, and would be lost; name another one",
                path.display()
            );
        }
        if let Some((other, _)) = taken.iter().find(|(_, known)| *known == place) {
            bail!(
                "{other} and {flag} both write {}: give each a file of its own",
                path.display()
            );
        }
        taken.push((flag, place));
    }
    Ok(())
}

/// Where a file is or will be, however its path is written.
fn place(path: &Path) -> PathBuf {
    let path = &followed(path);
    if let Ok(there) = path.canonicalize() {
        return there;
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        // The later write reports that the folder does not exist.
        _ => path.to_owned(),
    }
}

/// An output that cannot be written is named: there may be several.
pub fn cannot_write(path: &Path) -> String {
    if is_stdout(path) {
        "cannot write standard output".to_owned()
    } else {
        format!("cannot write {}", path.display())
    }
}

/// Writes to standard output, to the last byte: what is flushed at the end of a program fails unheard.
/// A reader that has seen enough (`| head`) is no error, and changes nothing of what the program did.
pub fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(text.as_ref())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.with_context(|| cannot_write(Path::new("-"))),
    }
}

/// Writes a text to a file, or to standard output.
///
/// # Errors
/// If it cannot be written; a file is then as it was.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if is_stdout(path) {
        return print(text);
    }
    let mut output = Output::create(path)?;
    output
        .write_all(text.as_bytes())
        .with_context(|| cannot_write(path))?;
    output.commit()
}

/// Returns the terminal's columns, as the shell reports them; a pipe has as many as `COLUMNS` says, or the default.
pub fn width() -> usize {
    use std::io::IsTerminal as _;
    let columns = if std::io::stdout().is_terminal() {
        let size = console::Term::stdout().size_checked();
        size.map(|(_, columns)| columns)
    } else {
        let columns = std::env::var("COLUMNS").ok();
        // 0 stands for an unknown width.
        let columns = columns.and_then(|columns| columns.parse().ok());
        columns.filter(|&columns| columns > 0)
    };
    columns.map_or(table::WIDTH, |columns: u16| usize::from(columns).max(40))
}

/// A file in the making. Dropped before [`Output::commit`], it leaves nothing behind, unless it is a pipe or a device.
/// Nor does a process that is killed while it writes, which may be hours.
pub struct Output {
    path: PathBuf,
    file: BufWriter<Target>,
}

/// Where bytes go until [`Output::commit`].
enum Target {
    /// Nothing was written yet; the folder takes files.
    Nothing(PathBuf),
    /// A file without a name in the folder of the one to be: the system forgets it with the process.
    Unnamed { file: File, folder: PathBuf },
    /// A pipe or a device, in place.
    InPlace(File),
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
        let cannot = || format!("cannot write {}", path.display());
        if path.metadata().is_ok_and(|there| !there.is_file()) {
            let file = OpenOptions::new().write(true).open(path);
            return Ok(Self::to(path, Target::InPlace(file.with_context(cannot)?)));
        }
        // A link stays one: what it leads to is replaced.
        let path = &followed(path);
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            anyhow::bail!("{}: there is no folder {}", cannot(), folder.display());
        }
        // Whether the folder takes files is known once it has taken one.
        drop(beside(folder).with_context(cannot)?);
        Ok(Self::to(path, Target::Nothing(folder.to_owned())))
    }

    fn to(path: &Path, target: Target) -> Self {
        Output {
            path: path.to_owned(),
            file: BufWriter::with_capacity(1 << 16, target),
        }
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
        file.and_then(|mut target| {
            // Nothing may be all that there is to write.
            target.begin()?;
            if let Target::Unnamed { mut file, folder } = target {
                let mut named = beside(&folder)?;
                file.rewind()?;
                io::copy(&mut file, named.as_file_mut())?;
                // A private file stays private.
                if let Ok(before) = path.metadata() {
                    named.as_file().set_permissions(before.permissions())?;
                }
                file::into_place(named, &path)?;
            }
            Ok(())
        })
        .map_err(without_place)
        .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(())
    }
}

/// Where links lead, to a file that need not be there yet.
pub fn followed(path: &Path) -> PathBuf {
    // As many as the kernel follows.
    const LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Ok(to) = path.read_link() else {
            break;
        };
        path = path.parent().unwrap_or(Path::new("")).join(to);
    }
    path.canonicalize().unwrap_or(path)
}

/// Returns a new file without a name that anybody would take for the finished one.
fn beside(folder: &Path) -> io::Result<NamedTempFile> {
    file::beside(folder, ".schedlab-").map_err(without_place)
}

impl Target {
    /// Creates the file if it does not exist.
    fn begin(&mut self) -> io::Result<()> {
        if let Target::Nothing(folder) = self {
            *self = Target::Unnamed {
                file: tempfile::tempfile_in(&*folder).map_err(without_place)?,
                folder: std::mem::take(folder),
            };
        }
        Ok(())
    }
}

/// Returns the error without the random name of the temporary file, which would not help the user.
fn without_place(error: io::Error) -> io::Error {
    if error.raw_os_error().is_some() {
        error
    } else {
        error.kind().into()
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begin()?;
        match self {
            Target::Nothing(_) => Ok(0),
            Target::Unnamed { file, .. } | Target::InPlace(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::Nothing(_) => Ok(()),
            Target::Unnamed { file, .. } | Target::InPlace(file) => file.flush(),
        }
    }
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
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_told_moves_no_cursor() {
        assert_eq!(harmless("ta\rks"), r"ta\rks");
        assert_eq!(harmless("\u{1b}[2Jx\u{9b}"), r"\u{1b}[2Jx\u{9b}");
        assert_eq!(harmless("a\tb – ‘µ’\n"), "a\tb – ‘µ’\n");
    }

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

    /// As if the process were killed: nothing is dropped.
    #[test]
    fn a_kill_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::mem::forget(Output::create(&path).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut output = Output::create(&path).unwrap();
        output.write_all(&[0; 1 << 20]).unwrap();
        std::mem::forget(output);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_empty_file_is_one_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        Output::create(&path).unwrap().commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_device_stays_one() {
        use std::os::unix::fs::FileTypeExt as _;
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let reader = {
            let fifo = fifo.clone();
            std::thread::spawn(move || std::fs::read(fifo).unwrap())
        };
        let mut output = Output::create(&fifo).unwrap();
        output.write_all(b"abc").unwrap();
        output.commit().unwrap();
        assert_eq!(reader.join().unwrap(), b"abc");
        assert!(fifo.metadata().unwrap().file_type().is_fifo());
    }

    #[test]
    fn a_link_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, b"old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut output = Output::create(&link).unwrap();
        output.write_all(b"new").unwrap();
        output.commit().unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
    }

    #[test]
    fn a_link_to_nothing_yet_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mut output = Output::create(&link).unwrap();
        output.write_all(b"new").unwrap();
        output.commit().unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
    }

    #[test]
    fn who_may_read_a_file_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"new").unwrap();
        output.commit().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn places_that_cannot_be_written_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing/x");
        let error = format!("{:#}", Output::create(&path).err().unwrap());
        assert!(error.contains("missing/x: there is no folder"), "{error}");
        let error = Output::create(folder.path()).err().unwrap().to_string();
        assert!(error.contains("it is a folder"), "{error}");
    }
}
