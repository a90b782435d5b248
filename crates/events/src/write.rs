//! Writes events.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use schedlab_trace::{
    CpuId, CpuSet, Event, Instant, Listener, LockClass, LockId, TaskId, TaskMeta,
};

use crate::error::one_line;
use crate::guard::{Sum, Summing, of_text};
use crate::row::{DETAILS, GROUP, KINDS, Kind, Row, class_word, idle_policy_word};
use crate::{About, EventsError};

/// Names of the footer's entries.
pub(crate) const ABOUT: &str = "schedlab.about";
pub(crate) const SUM: &str = "schedlab.sum";

/// A column: its name, its type, whether it is there in every row, and whether its values are kept as differences.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    physical: Physical,
    required: bool,
    differences: bool,
}

impl Column {
    /// Whether every row has it.
    pub(crate) fn required(&self) -> bool {
        self.required
    }
}

const fn column(name: &'static str, physical: Physical) -> Column {
    Column {
        name,
        physical,
        required: false,
        differences: false,
    }
}

/// All columns, in their order. Measured on real runs: times take the fewest bytes as differences, all else by
/// dictionary.
pub(crate) const COLUMNS: [Column; 17] = [
    Column {
        required: true,
        differences: true,
        ..column("at_ns", Physical::INT64)
    },
    Column {
        required: true,
        ..column("cpu", Physical::INT32)
    },
    Column {
        required: true,
        ..column("kind", Physical::BYTE_ARRAY)
    },
    column("task", Physical::INT32),
    column("other", Physical::INT32),
    column("from", Physical::INT32),
    column("to", Physical::INT32),
    column("lock", Physical::INT32),
    column("detail", Physical::BYTE_ARRAY),
    column("n", Physical::INT64),
    column("m", Physical::INT64),
    Column {
        differences: true,
        ..column("ns", Physical::INT64)
    },
    Column {
        differences: true,
        ..column("ps", Physical::INT64)
    },
    column("contended", Physical::BOOLEAN),
    column("trylock", Physical::BOOLEAN),
    column("name", Physical::BYTE_ARRAY),
    column("cpus", Physical::BYTE_ARRAY),
];

fn schema() -> ParquetResult<TypePtr> {
    let mut fields = Vec::new();
    for column in &COLUMNS {
        let repetition = match column.required {
            true => Repetition::REQUIRED,
            false => Repetition::OPTIONAL,
        };
        let text = column.physical == Physical::BYTE_ARRAY;
        let field = Type::primitive_type_builder(column.name, column.physical)
            .with_repetition(repetition)
            .with_logical_type(text.then_some(LogicalType::String))
            .build()?;
        fields.push(Arc::new(field));
    }
    let schema = Type::group_type_builder("events").with_fields(fields);
    Ok(Arc::new(schema.build()?))
}

fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder().set_created_by("schedlab".to_owned());
    for column in &COLUMNS {
        let path = ColumnPath::from(column.name);
        if column.differences {
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    properties.build()
}

/// Writes what it hears. Errors are kept until [`EventWriter::finish`].
pub struct EventWriter<W: Write + Send> {
    rows: Vec<Row>,
    /// The latest moment, which definitions are given.
    latest: Instant,
    count: u64,
    out: SerializedFileWriter<Summing<W>>,
    sum: Sum,
    kinds: Vec<ByteArray>,
    details: Vec<ByteArray>,
    failed: Option<EventsError>,
}

impl<W: Write + Send> EventWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Its first bytes cannot be written.
    pub fn new(out: W) -> Result<Self, EventsError> {
        let (out, sum) = Summing::new(out);
        let schema = schema().map_err(cannot_write)?;
        let out =
            SerializedFileWriter::new(out, schema, Arc::new(properties())).map_err(cannot_write)?;
        Ok(EventWriter {
            rows: Vec::with_capacity(GROUP),
            latest: Instant::ZERO,
            count: 0,
            out,
            sum,
            kinds: KINDS
                .iter()
                .map(|(_, name)| ByteArray::from(*name))
                .collect(),
            details: DETAILS.iter().map(|word| ByteArray::from(*word)).collect(),
            failed: None,
        })
    }

    /// How many events it has heard.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Writes the rest and the facts about the run.
    ///
    /// # Errors
    /// Something could not be written, now or before.
    pub fn finish(mut self, about: &About) -> Result<W, EventsError> {
        self.flush();
        if let Some(error) = self.failed {
            return Err(error);
        }
        let json =
            serde_json::to_string(about).map_err(|error| EventsError::Write(error.to_string()))?;
        self.out
            .flush()
            .map_err(|error| EventsError::Write(error.to_string()))?;
        for (key, value) in [
            (SUM, format!("{}:{}", self.sum.told(), of_text(&json))),
            (ABOUT, json),
        ] {
            self.out
                .append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        let out = self.out.into_inner().map_err(cannot_write)?;
        Ok(out.into_inner())
    }

    fn push(&mut self, row: Row) {
        if self.failed.is_some() {
            return;
        }
        self.rows.push(row);
        if self.rows.len() == GROUP {
            self.flush();
        }
    }

    fn define(&mut self, row: Row) {
        self.push(Row {
            at_ns: self.latest.ns(),
            ..row
        });
    }

    fn flush(&mut self) {
        if self.rows.is_empty() || self.failed.is_some() {
            return;
        }
        if let Err(error) = self.write_group() {
            self.failed = Some(cannot_write(error));
        }
        self.rows.clear();
    }

    fn write_group(&mut self) -> ParquetResult<()> {
        let rows = &self.rows;
        let text = |text: &Option<String>| text.as_deref().map(ByteArray::from);
        let number = |n: Option<u32>| n.map(|n| n as i32);
        let mut group = self.out.next_row_group()?;
        for column in &COLUMNS {
            let mut into = group
                .next_column()?
                .expect("a column for each of the schema");
            match (into.untyped(), column.name) {
                (ColumnWriter::Int64ColumnWriter(out), name) => {
                    let of = |row: &Row| match name {
                        "at_ns" => Some(row.at_ns as i64),
                        "n" => row.n,
                        "m" => row.m,
                        "ns" => row.ns,
                        _ => row.ps,
                    };
                    let (values, levels) = split(rows, of);
                    out.write_batch(&values, levels_of(column, &levels), None)?;
                }
                (ColumnWriter::Int32ColumnWriter(out), name) => {
                    let of = |row: &Row| match name {
                        "cpu" => Some(row.cpu as i32),
                        "task" => number(row.task),
                        "other" => number(row.other),
                        "from" => number(row.from),
                        "to" => number(row.to),
                        _ => number(row.lock),
                    };
                    let (values, levels) = split(rows, of);
                    out.write_batch(&values, levels_of(column, &levels), None)?;
                }
                (ColumnWriter::BoolColumnWriter(out), name) => {
                    let of = |row: &Row| match name {
                        "contended" => row.contended,
                        _ => row.trylock,
                    };
                    let (values, levels) = split(rows, of);
                    out.write_batch(&values, levels_of(column, &levels), None)?;
                }
                (ColumnWriter::ByteArrayColumnWriter(out), name) => {
                    let of = |row: &Row| match name {
                        "kind" => Some(self.kinds[usize::from(row.kind)].clone()),
                        "detail" => row.detail.map(|at| self.details[usize::from(at)].clone()),
                        "name" => text(&row.name),
                        _ => text(&row.cpus),
                    };
                    let (values, levels) = split(rows, of);
                    out.write_batch(&values, levels_of(column, &levels), None)?;
                }
                _ => return Err(ParquetError::General("a column of no type of ours".into())),
            }
            into.close()?;
        }
        group.close()?;
        Ok(())
    }
}

/// The values that are there, and for each row whether its is.
fn split<T>(rows: &[Row], of: impl Fn(&Row) -> Option<T>) -> (Vec<T>, Vec<i16>) {
    let mut values = Vec::new();
    let levels = rows.iter().map(|row| {
        let value = of(row);
        let level = i16::from(value.is_some());
        values.extend(value);
        level
    });
    let levels = levels.collect();
    (values, levels)
}

fn levels_of<'a>(column: &Column, levels: &'a [i16]) -> Option<&'a [i16]> {
    (!column.required).then_some(levels)
}

fn cannot_write(error: ParquetError) -> EventsError {
    EventsError::Write(one_line(&error))
}

impl<W: Write + Send> Listener for EventWriter<W> {
    fn define_starter(&mut self, task: TaskId) {
        self.define(Row {
            task: Some(task.0),
            ..Row::of_kind(Kind::Starter)
        });
    }

    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        self.define(Row {
            task: Some(task.0),
            name: Some(meta.comm.clone()),
            cpus: Some(meta.affinity.to_string()),
            n: Some(meta.nice.into()),
            m: Some(meta.rt_priority.into()),
            detail: idle_policy_word(meta.idle),
            ..Row::of_kind(Kind::Task)
        });
    }

    fn define_affinity(&mut self, task: TaskId, allowed: &CpuSet) {
        self.define(Row {
            task: Some(task.0),
            cpus: Some(allowed.to_string()),
            ..Row::of_kind(Kind::AllowedCpus)
        });
    }

    fn define_lock(&mut self, lock: LockId, name: &str, class: LockClass) {
        self.define(Row {
            lock: Some(lock.0),
            name: Some(name.to_owned()),
            detail: class_word(class),
            ..Row::of_kind(Kind::Lock)
        });
    }

    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        self.latest = at;
        self.count += 1;
        self.push(Row {
            at_ns: at.ns(),
            cpu: cpu.0,
            ..Row::of(event)
        });
    }
}
