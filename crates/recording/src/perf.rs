//! `perf.data`, as `perf sched record` and `perf record -e sched:…` write it.
//!
//! The crate linux-perf-data reads records and sorts them; here are the raw fields of tracepoints. Interrupt context
//! comes from `common_flags`, the current task from `common_pid`.

use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};

use linux_perf_data::{Error, Feature, PerfFileReader, PerfFileRecord};
use linux_perf_event_reader::{Endianness, EventRecord, RecordType};

use crate::formats::{Format, Raw, in_section};
use crate::order::Order;
use crate::tracepoint::{Decoder, Point};
use crate::{About, Context, Event, RecordingError, What};

/// Tells the events of the file.
///
/// # Errors
/// If it is damaged, or has no events of switches.
pub(crate) fn read(
    path: &str,
    file: &mut File,
    sink: &mut dyn FnMut(&Event),
) -> Result<About, RecordingError> {
    let wrong = |error: Error| wrong(path, &error);
    sound(path, file)?;
    let reader = PerfFileReader::parse_file(BufReader::new(file)).map_err(wrong)?;
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = reader;
    let formats = perf_file.feature_section_data(Feature::TRACING_DATA);
    let formats = in_section(formats.unwrap_or_default());
    let points: Vec<(Point, Format)> = perf_file
        .event_attributes()
        .iter()
        .map(|attribute| {
            let name = attribute.name().unwrap_or_default();
            let short = name.rsplit(':').next().unwrap_or_default();
            let format = formats.iter().find(|(known, _)| known == short);
            (
                Point::named(name),
                format.map(|(_, format)| format.clone()).unwrap_or_default(),
            )
        })
        .collect();
    if !points.iter().any(|(point, _)| *point == Point::Switch) {
        return Err(RecordingError::Lacking {
            path: path.to_owned(),
            event: "sched_switch",
            remedy: "`schedlab record` or `perf sched record`",
        });
    }
    let mut order = Order::new(path, "perf.data", sink);
    order.about.kernel = perf_file.os_release().ok().flatten().map(str::to_owned);
    order.about.cpus = perf_file
        .nr_cpus()
        .ok()
        .flatten()
        .map(|cpus| cpus.nr_cpus_online);
    let words = perf_file.cmdline().ok().flatten();
    order.about.command = words.map(|words| words.join(" "));
    let machine = perf_file.arch().ok().flatten().unwrap_or("x86_64");
    let mut decoder = Decoder::new(machine);
    let endian = perf_file.endian();
    loop {
        let record = match record_iter.next_record(&mut perf_file).map_err(wrong)? {
            Some(PerfFileRecord::EventRecord { attr_index, record }) => (attr_index, record),
            Some(PerfFileRecord::UserRecord(_)) => continue,
            None => break,
        };
        let (attribute, record) = record;
        let at_ns = record.timestamp();
        let damaged = || RecordingError::Corrupted {
            path: path.to_owned(),
            place: format!(
                "a record of kind {} at {} ns",
                record.record_type.0,
                at_ns.unwrap_or(0)
            ),
            message: "its fields do not fit into it".to_owned(),
        };
        let elsewhere = |what| Event {
            at_ns: at_ns.unwrap_or(0),
            cpu: 0,
            current: None,
            context: Context::Unknown,
            what,
        };
        match record.record_type {
            RecordType::SAMPLE => {
                let Ok(EventRecord::Sample(sample)) = record.parse() else {
                    return Err(damaged());
                };
                let (point, format) = points.get(attribute).ok_or_else(damaged)?;
                let (Some(raw), true) = (&sample.raw, *point != Point::Other) else {
                    order.about.passed_over += 1;
                    continue;
                };
                let bytes = raw.as_slice();
                let raw = Raw {
                    bytes: &bytes,
                    endian,
                };
                let told = decoder.decode(*point, format, raw).ok_or_else(damaged)?;
                let Some(told) = told else {
                    order.about.passed_over += 1;
                    continue;
                };
                order.event(Event {
                    at_ns: sample.timestamp.ok_or_else(damaged)?,
                    cpu: sample.cpu.unwrap_or(0),
                    current: told.current,
                    context: told.context,
                    what: told.what,
                })?;
            }
            RecordType::FORK => {
                let Ok(EventRecord::Fork(fork)) = record.parse() else {
                    return Err(damaged());
                };
                // Threads that were there before the recording have no time.
                if fork.timestamp > 0 {
                    order.event(Event {
                        at_ns: fork.timestamp,
                        ..elsewhere(What::Process {
                            task: fork.tid,
                            process: fork.pid,
                        })
                    })?;
                }
            }
            RecordType::COMM => {
                let Ok(EventRecord::Comm(comm)) = record.parse() else {
                    return Err(damaged());
                };
                if comm.is_execve && at_ns.is_some_and(|at_ns| at_ns > 0) {
                    order.event(elsewhere(What::Exec { task: comm.tid }))?;
                }
            }
            RecordType::LOST => {
                let Ok(EventRecord::Lost(lost)) = record.parse() else {
                    return Err(damaged());
                };
                order.event(Event {
                    at_ns: at_ns
                        .unwrap_or(order.about.last_ns)
                        .max(order.about.last_ns),
                    ..elsewhere(What::Lost(lost.count))
                })?;
            }
            RecordType::LOST_SAMPLES => {
                let Ok(EventRecord::Raw(raw)) = record.parse() else {
                    return Err(damaged());
                };
                let bytes = raw.data.as_slice();
                let count = bytes
                    .get(..8)
                    .ok_or_else(damaged)?
                    .try_into()
                    .expect("eight bytes");
                let count = match endian {
                    Endianness::LittleEndian => u64::from_le_bytes(count),
                    Endianness::BigEndian => u64::from_be_bytes(count),
                };
                order.event(Event {
                    at_ns: at_ns
                        .unwrap_or(order.about.last_ns)
                        .max(order.about.last_ns),
                    ..elsewhere(What::Lost(count))
                })?;
            }
            _ => order.about.passed_over += 1,
        }
    }
    Ok(order.about)
}

/// The library trusts the sizes in the header and asks for so much memory: they are compared with the file's first.
fn sound(path: &str, file: &mut File) -> Result<(), RecordingError> {
    let unreadable = |cause| RecordingError::Unreadable {
        path: path.to_owned(),
        cause,
    };
    let truncated = |message: &str| RecordingError::Truncated {
        path: path.to_owned(),
        message: message.to_owned(),
    };
    let len = file.metadata().map_err(unreadable)?.len();
    let mut header = [0; 104];
    if file.read_exact(&mut header).is_err() {
        return Err(truncated("its header is not whole"));
    }
    let big = header.starts_with(b"2ELIFREP");
    let word = |bytes: &[u8], at: usize| -> u64 {
        let bytes: [u8; 8] = bytes[at..at + 8].try_into().expect("eight bytes");
        match big {
            true => u64::from_be_bytes(bytes),
            false => u64::from_le_bytes(bytes),
        }
    };
    let inside = |offset: u64, size: u64| offset.checked_add(size).is_some_and(|end| end <= len);
    let attribute = word(&header, 16);
    if !(64..=4096).contains(&attribute) || word(&header, 8) > 4096 {
        return Err(RecordingError::Corrupted {
            path: path.to_owned(),
            place: "its header".to_owned(),
            message: format!("an attribute of {attribute} bytes"),
        });
    }
    let (data, size) = (word(&header, 40), word(&header, 48));
    if size == 0 {
        return Err(truncated(
            "the size of its data is 0, as where `perf record` was killed",
        ));
    }
    for (section, name) in [
        (24, "the attributes"),
        (40, "the data"),
        (56, "the event types"),
    ] {
        if !inside(word(&header, section), word(&header, section + 8)) {
            return Err(truncated(&format!(
                "{name} end beyond the file's {len} bytes"
            )));
        }
    }
    let features: u32 = header[72..104].iter().map(|byte| byte.count_ones()).sum();
    let table = data + size;
    if !inside(table, u64::from(features) * 16) {
        return Err(truncated(&format!(
            "its table of features ends beyond the file's {len} bytes"
        )));
    }
    let mut entries = vec![0; features as usize * 16];
    file.seek(SeekFrom::Start(table)).map_err(unreadable)?;
    file.read_exact(&mut entries).map_err(unreadable)?;
    for entry in entries.chunks_exact(16) {
        if !inside(word(entry, 0), word(entry, 8)) {
            return Err(truncated(&format!(
                "a feature ends beyond the file's {len} bytes"
            )));
        }
    }
    file.rewind().map_err(unreadable)
}

fn wrong(path: &str, error: &Error) -> RecordingError {
    let corrupted = RecordingError::Corrupted {
        path: path.to_owned(),
        place: "perf.data".to_owned(),
        message: error.to_string(),
    };
    match error {
        Error::UnrecognizedMagicValue(_) => RecordingError::Foreign {
            path: path.to_owned(),
            what: "it does not begin with PERFILE2".to_owned(),
        },
        _ => corrupted,
    }
}
