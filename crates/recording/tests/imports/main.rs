//! Recordings of other tools, written by the tests themselves: each holds the same events, known by hand.

mod damage;
mod perfetto;
mod story;
mod tracedat;
mod wprof;

use schedlab_recording::{About, Event, Inferred, Options, RecordingError, Select, import, read};

/// Reads a file of these bytes.
fn events(bytes: &[u8]) -> Result<(Vec<Event>, About), RecordingError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    events_of(file.path().to_str().unwrap())
}

fn events_of(path: &str) -> Result<(Vec<Event>, About), RecordingError> {
    let mut all = Vec::new();
    let about = read(path, &mut |event| all.push(*event))?;
    Ok((all, about))
}

/// Makes a program of a file of these bytes, of all tasks.
fn program(bytes: &[u8]) -> Result<Inferred, RecordingError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    program_of(file.path().to_str().unwrap())
}

fn program_of(path: &str) -> Result<Inferred, RecordingError> {
    let options = Options {
        select: Select::All,
        ..Options::default()
    };
    import(path, &options).map(|(inferred, _)| inferred)
}

/// The error for a file of these bytes, without the name of the file.
fn told(bytes: &[u8]) -> String {
    let told = events(bytes).expect_err("damaged").to_string();
    assert!(!told.contains('\n'), "{told}");
    // The file's name is in the first pair of quotes.
    told.splitn(3, '`').nth(2).unwrap().to_owned()
}
