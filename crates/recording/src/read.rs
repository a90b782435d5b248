//! Opens a recording of any format.

use std::fs::File;
use std::io::{BufReader, Read as _};

use crate::{About, Event, RecordingError, perf, perfetto, text, tracedat, wprof};

/// The kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `perf.data`.
    Perf,
    /// Text of ftrace, systrace or `perf script`.
    Text,
    /// trace.dat of trace-cmd.
    TraceDat,
    /// Protobuf of Perfetto.
    Perfetto,
    /// JSON lines of wprof.
    Wprof,
    /// A workload file of schedlab.
    Workload,
}

/// So many bytes tell what a file is.
const HEAD: u64 = 65_536;

/// Tells what a file is, from its beginning.
///
/// # Errors
/// If it cannot be read, is empty, or is none of these.
pub fn kind(path: &str) -> Result<Kind, RecordingError> {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.map_err(|cause| unreadable(path, cause))?;
    let foreign = |what: &str| RecordingError::Foreign {
        path: path.to_owned(),
        what: what.to_owned(),
    };
    if head.is_empty() {
        return Err(foreign("it is empty"));
    }
    for (magic, what) in [
        (&b"\x1f\x8b"[..], "compressed: unpack it first"),
        (b"\x28\xb5\x2f\xfd", "compressed: unpack it first"),
        (b"\xc1\x1f\xfc\xc1", "a trace in the Common Trace Format"),
    ] {
        if head.starts_with(magic) {
            return Err(foreign(what));
        }
    }
    if head.starts_with(b"PERFILE2") || head.starts_with(b"2ELIFREP") {
        return Ok(Kind::Perf);
    }
    if head.starts_with(tracedat::MAGIC) {
        return Ok(Kind::TraceDat);
    }
    let text = String::from_utf8_lossy(&head);
    if schedlab_workload::recorded::is_recorded(&text) {
        return Ok(Kind::Workload);
    }
    if text.starts_with('{') {
        return match wprof::is_wprof(&text) {
            true => Ok(Kind::Wprof),
            false => Err(foreign("JSON without a header of wprof")),
        };
    }
    if text::is_trace(&text) {
        return Ok(Kind::Text);
    }
    if perfetto::is_perfetto(&head) {
        return Ok(Kind::Perfetto);
    }
    Err(foreign(match head.contains(&0) {
        true => "binary of an unknown format",
        false => "no line of its beginning is an event",
    }))
}

/// Tells the events of a recording in order; times never decrease.
///
/// # Errors
/// If it cannot be read, is foreign, truncated or corrupted, or its CPUs disagree about the time.
pub fn read(path: &str, sink: &mut dyn FnMut(&Event)) -> Result<About, RecordingError> {
    let mut file = File::open(path).map_err(|cause| unreadable(path, cause))?;
    let about = match kind(path)? {
        Kind::Perf => perf::read(path, &mut file, sink)?,
        Kind::Text => text::read(path, BufReader::new(file), sink)?,
        Kind::TraceDat => tracedat::read(path, &mut file, sink)?,
        Kind::Perfetto => perfetto::read(path, &mut file, sink)?,
        Kind::Wprof => wprof::read(path, BufReader::new(file), sink)?,
        Kind::Workload => {
            return Err(RecordingError::Foreign {
                path: path.to_owned(),
                what: "it is a workload file already".to_owned(),
            });
        }
    };
    if about.events == 0 {
        return Err(RecordingError::Lacking {
            path: path.to_owned(),
            event: "sched_switch",
            remedy: "`schedlab record` or `perf sched record`",
        });
    }
    Ok(about)
}

fn unreadable(path: &str, cause: std::io::Error) -> RecordingError {
    RecordingError::Unreadable {
        path: path.to_owned(),
        cause,
    }
}
