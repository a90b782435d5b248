//! Reads events. Each row is checked before a listener receives it: recorders rely on it.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{FileReader as _, RowGroupReader, SerializedFileReader};
use schedlab_trace::{CpuId, CpuSet, Event, Instant, Listener, LockId, TaskId, TaskMeta};

use crate::about::FORMAT;
use crate::error::one_line;
use crate::guard;
use crate::row::{DETAILS, GROUP, KINDS, Kind, Row, class_of};
use crate::write::{ABOUT, COLUMNS, SUM};
use crate::{About, EventsError};

/// Longest run, in ns: 13 days. Sums and squares of times stay in their bounds.
const LONGEST_NS: u64 = 1 << 50;
/// Most CPUs.
const CPUS_MAX: u32 = 1 << 16;

/// A file of events.
pub struct EventFile {
    path: PathBuf,
    reader: SerializedFileReader<File>,
    about: About,
}

impl EventFile {
    /// Opens a file and checks that it is whole.
    ///
    /// # Errors
    /// It cannot be read, is none of this format, or is damaged.
    pub fn open(path: &Path) -> Result<EventFile, EventsError> {
        let cannot_read = |cause| EventsError::Read {
            path: path.to_owned(),
            cause,
        };
        let broken = |problem: String| EventsError::Broken {
            path: path.to_owned(),
            problem,
        };
        let mut file = File::open(path).map_err(cannot_read)?;
        let kind = file.metadata().map_err(cannot_read)?.file_type();
        if kind.is_dir() {
            return Err(cannot_read(std::io::ErrorKind::IsADirectory.into()));
        }
        if !kind.is_file() {
            return Err(EventsError::Pipe {
                path: path.to_owned(),
            });
        }
        let again = file.try_clone().map_err(cannot_read)?;
        let reader = SerializedFileReader::new(again).map_err(|error| {
            let why = one_line(&error);
            broken(format!("is no file of events, or it was cut off ({why})"))
        })?;
        let metadata = reader.metadata().file_metadata();
        let entry = |key: &str| {
            let all = metadata.key_value_metadata()?;
            all.iter().find(|entry| entry.key == key)?.value.clone()
        };
        let (Some(json), Some(sum)) = (entry(ABOUT), entry(SUM)) else {
            return Err(broken(
                "is a Parquet file, but none of schedlab's events".to_owned(),
            ));
        };
        file.seek(SeekFrom::Start(0)).map_err(cannot_read)?;
        let (of_rows, of_about) = sum.rsplit_once(':').unwrap_or_default();
        if guard::of_text(&json) != of_about
            || !guard::agrees(&file, of_rows).map_err(cannot_read)?
        {
            return Err(broken(
                "is damaged: its check sums do not agree with what it has".to_owned(),
            ));
        }
        let format = serde_json::from_str::<serde_json::Value>(&json)
            .ok()
            .and_then(|about| about.get("format")?.as_u64());
        if format != Some(FORMAT.into()) {
            let found = format.map_or("none".to_owned(), |format| format.to_string());
            return Err(broken(format!(
                "is of format {found}, and this program reads format {FORMAT}: use the program that wrote it"
            )));
        }
        let about: About = serde_json::from_str(&json)
            .map_err(|error| broken(format!("tells of its run what cannot be read: {error}")))?;
        if about.nr_cpus == 0 || about.nr_cpus > CPUS_MAX {
            return Err(broken(format!("is of {} CPUs", about.nr_cpus)));
        }
        Ok(EventFile {
            path: path.to_owned(),
            reader,
            about,
        })
    }

    /// Returns the facts about its run.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Tells all events, in their order. Answers how many there were.
    ///
    /// # Errors
    /// The file has what no run can have.
    pub fn tell(&self, listener: &mut dyn Listener) -> Result<u64, EventsError> {
        let broken = |problem: String| EventsError::Broken {
            path: self.path.clone(),
            problem,
        };
        let mut teller = Teller::new(self.about.nr_cpus, listener);
        let metadata = self.reader.metadata();
        teller.rows = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0);
        let mut row_number = 0_u64;
        for index in 0..self.reader.num_row_groups() {
            let group = self
                .reader
                .get_row_group(index)
                .and_then(|group| rows(&*group))
                .map_err(|error| {
                    broken(format!(
                        "has rows that cannot be read: {}",
                        one_line(&error)
                    ))
                })?;
            for row in group {
                row_number += 1;
                if teller.tell(row).is_none() {
                    return Err(broken(format!(
                        "row {row_number} is none that a run can have"
                    )));
                }
            }
        }
        Ok(teller.events)
    }
}

/// The rows of a group.
fn rows(group: &dyn RowGroupReader) -> ParquetResult<Vec<Row>> {
    let other = || ParquetError::General("the columns are others".to_owned());
    let count = usize::try_from(group.metadata().num_rows()).map_err(|_| other())?;
    if count > GROUP || group.num_columns() != COLUMNS.len() {
        return Err(other());
    }
    let mut rows = vec![Row::default(); count];
    for (index, column) in COLUMNS.iter().enumerate() {
        if group.metadata().column(index).column_descr().name() != column.name {
            return Err(other());
        }
        let number = |n: i32| Some(n as u32);
        match group.get_column_reader(index)? {
            ColumnReader::Int64ColumnReader(mut reader) => {
                let read = |levels: &mut Option<&mut Vec<i16>>, values: &mut Vec<i64>| {
                    reader.read_records(count, levels.as_deref_mut(), None, values)
                };
                fill(&mut rows, column.required(), read, |row, n| {
                    match column.name {
                        "at_ns" => row.at_ns = n as u64,
                        "n" => row.n = Some(n),
                        "m" => row.m = Some(n),
                        "ns" => row.ns = Some(n),
                        _ => row.ps = Some(n),
                    }
                })?;
            }
            ColumnReader::Int32ColumnReader(mut reader) => {
                let read = |levels: &mut Option<&mut Vec<i16>>, values: &mut Vec<i32>| {
                    reader.read_records(count, levels.as_deref_mut(), None, values)
                };
                fill(&mut rows, column.required(), read, |row, n| {
                    match column.name {
                        "cpu" => row.cpu = n as u32,
                        "task" => row.task = number(n),
                        "other" => row.other = number(n),
                        "from" => row.from = number(n),
                        "to" => row.to = number(n),
                        _ => row.lock = number(n),
                    }
                })?;
            }
            ColumnReader::BoolColumnReader(mut reader) => {
                let read = |levels: &mut Option<&mut Vec<i16>>, values: &mut Vec<bool>| {
                    reader.read_records(count, levels.as_deref_mut(), None, values)
                };
                fill(&mut rows, column.required(), read, |row, is| {
                    match column.name {
                        "contended" => row.contended = Some(is),
                        _ => row.trylock = Some(is),
                    }
                })?;
            }
            ColumnReader::ByteArrayColumnReader(mut reader) => {
                let read = |levels: &mut Option<&mut Vec<i16>>, values: &mut Vec<ByteArray>| {
                    reader.read_records(count, levels.as_deref_mut(), None, values)
                };
                let text = |bytes: &ByteArray| bytes.as_utf8().ok().map(str::to_owned);
                fill(
                    &mut rows,
                    column.required(),
                    read,
                    |row, bytes| match column.name {
                        "kind" => row.kind = place(KINDS.iter().map(|kind| kind.1), &bytes),
                        "detail" => row.detail = Some(place(DETAILS.iter().copied(), &bytes)),
                        "name" => row.name = text(&bytes),
                        _ => row.cpus = text(&bytes),
                    },
                )?;
            }
            _ => return Err(other()),
        }
    }
    Ok(rows)
}

/// Where in the list a word stands; a number that is none where it does not.
fn place<'a>(mut words: impl Iterator<Item = &'a str>, word: &ByteArray) -> u8 {
    let at = words.position(|known| known.as_bytes() == word.data());
    at.map_or(u8::MAX, |at| at as u8)
}

/// Puts the values that are there into their rows.
fn fill<T>(
    rows: &mut [Row],
    required: bool,
    mut read: impl FnMut(
        &mut Option<&mut Vec<i16>>,
        &mut Vec<T>,
    ) -> ParquetResult<(usize, usize, usize)>,
    set: impl Fn(&mut Row, T),
) -> ParquetResult<()> {
    let (mut values, mut levels) = (Vec::with_capacity(rows.len()), Vec::new());
    read(&mut (!required).then_some(&mut levels), &mut values)?;
    if required {
        levels = vec![1; values.len()];
    }
    if levels.len() != rows.len() {
        return Err(ParquetError::General("a column is shorter".to_owned()));
    }
    let mut values = values.into_iter();
    for (row, _) in rows.iter_mut().zip(levels).filter(|(_, level)| *level == 1) {
        if let Some(value) = values.next() {
            set(row, value);
        }
    }
    Ok(())
}

/// Tells rows, as far as a run can have them: each CPU is one of the run's, tasks and locks are defined before they are
/// named, and times are in their bounds.
struct Teller<'a> {
    nr_cpus: u32,
    /// Of the file: no number of a task is greater.
    rows: u64,
    tasks: Vec<bool>,
    locks: Vec<bool>,
    events: u64,
    listener: &'a mut dyn Listener,
}

impl<'a> Teller<'a> {
    fn new(nr_cpus: u32, listener: &'a mut dyn Listener) -> Self {
        Teller {
            nr_cpus,
            rows: 0,
            tasks: Vec::new(),
            locks: Vec::new(),
            events: 0,
            listener,
        }
    }

    fn tell(&mut self, row: Row) -> Option<()> {
        let in_bounds = |ns: i64| (0..=LONGEST_NS as i64).contains(&ns);
        if row.at_ns > LONGEST_NS || row.cpu >= self.nr_cpus || !row.ns.is_none_or(in_bounds) {
            return None;
        }
        match row.kind()? {
            Kind::Starter => {
                let task = row.task?;
                define(&mut self.tasks, task, self.rows)?;
                self.listener.define_starter(TaskId(task));
            }
            Kind::Task => {
                let task = row.task?;
                define(&mut self.tasks, task, self.rows)?;
                let meta = TaskMeta {
                    affinity: self.allowed(&row)?,
                    nice: i8::try_from(row.n?).ok()?,
                    rt_priority: u8::try_from(row.m?).ok()?,
                    idle: row.detail.is_some(),
                    comm: row.name?,
                };
                self.listener.define_task(TaskId(task), &meta);
            }
            Kind::AllowedCpus => {
                let allowed = self.allowed(&row)?;
                let task = known(&self.tasks, row.task?)?;
                self.listener.define_affinity(TaskId(task), &allowed);
            }
            Kind::Lock => {
                let lock = row.lock?;
                define(&mut self.locks, lock, self.rows)?;
                let class = class_of(row.detail)?;
                self.listener.define_lock(LockId(lock), &row.name?, class);
            }
            _ => {
                let event = row.event()?;
                for task in [row.task, row.other].into_iter().flatten() {
                    known(&self.tasks, task)?;
                }
                if let Some(lock) = row.lock {
                    known(&self.locks, lock)?;
                }
                for cpu in [row.from, row.to].into_iter().flatten() {
                    (cpu < self.nr_cpus).then_some(())?;
                }
                if let Event::Wakeup { since, .. } = event
                    && since.ns() > row.at_ns
                {
                    return None;
                }
                self.events += 1;
                let at = Instant::from_ns(row.at_ns);
                self.listener.record(at, CpuId(row.cpu), event);
            }
        }
        Some(())
    }

    fn allowed(&self, row: &Row) -> Option<CpuSet> {
        let text = row.cpus.as_deref()?;
        if text.is_empty() {
            return Some(CpuSet::empty(self.nr_cpus as usize));
        }
        let set: CpuSet = text.parse().ok()?;
        Some(set.resized(self.nr_cpus as usize))
    }
}

fn define(table: &mut Vec<bool>, id: u32, rows: u64) -> Option<()> {
    if u64::from(id) >= rows {
        return None;
    }
    let index = id as usize;
    if index >= table.len() {
        table.resize(index + 1, false);
    }
    table[index] = true;
    Some(())
}

fn known(table: &[bool], id: u32) -> Option<u32> {
    table.get(id as usize)?.then_some(id)
}
