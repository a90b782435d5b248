//! Rows and their Parquet files. The same rows always give the same bytes.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use schedlab_report::{Exit, RunResult};
use serde::{Deserialize, Serialize};

use crate::{Definition, MEASURES, SweepError};

/// The result of one job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Number of the job.
    pub job: u64,
    /// Workload as asked for.
    pub workload: String,
    /// The scheduler with all its options.
    pub scheduler: String,
    /// The alternative of each feature.
    pub choices: Vec<String>,
    /// Seed.
    pub seed: u64,
    /// How the run ended.
    pub exit: Exit,
    /// The message about it.
    pub message: Option<String>,
    /// Unit of the score.
    pub score_unit: Option<String>,
    /// `higher` or `lower`.
    pub score_better: Option<String>,
    /// The values of [`Definition::measures`], which begin with [`MEASURES`].
    pub values: Vec<Option<f64>>,
}

impl Row {
    /// Returns the row of a job's result.
    pub fn new(definition: &Definition, job: u64, result: &RunResult) -> Row {
        let (place, workload, _) = definition.parts(job);
        let choices = definition.space.choices(definition.points()[place]);
        let features = definition.space.features.iter();
        let text = |name: &str| match result.measures.get(name) {
            Some(schedlab_report::Value::Text(text)) => Some(text.clone()),
            _ => None,
        };
        Row {
            job,
            workload: definition.workloads[workload].clone(),
            scheduler: definition.scheduler(job).to_string(),
            choices: features
                .zip(choices)
                .map(|(feature, choice)| feature.alternatives[choice].clone())
                .collect(),
            seed: result.seed,
            exit: result.exit,
            message: result.message.clone(),
            score_unit: text("score_unit"),
            score_better: text("score_better"),
            values: definition
                .measures()
                .iter()
                .map(|name| result.measures.number(name))
                .collect(),
        }
    }

    /// Returns the fault that it has as a row of this sweep.
    pub(crate) fn check(&self, definition: &Definition) -> Result<(), String> {
        let Row { job, values, .. } = self;
        let jobs = definition.jobs();
        if *job >= jobs {
            return Err(format!("it has job {job} of {jobs}"));
        }
        let measures = definition.measures();
        let (choices, features) = (self.choices.len(), definition.space.features.len());
        if (choices, values.len()) != (features, measures.len()) {
            return Err(format!(
                "job {job} has {choices} choices of {features} and {} values of {}",
                values.len(),
                measures.len()
            ));
        }
        // No run measures such a number, and nothing could be computed with it.
        for (name, value) in measures.iter().zip(values) {
            if let Some(value) = value.filter(|value| !value.is_finite()) {
                return Err(format!("{name} of job {job} is {value}"));
            }
        }
        Ok(())
    }

    /// Returns a measure of [`MEASURES`].
    pub fn value(&self, name: &str) -> Option<f64> {
        let index = MEASURES.iter().position(|known| *known == name)?;
        self.values[index]
    }

    /// Returns whether the run ended as it should.
    pub fn is_done(&self) -> bool {
        self.exit == Exit::Done
    }

    /// Returns whether of two scores the higher one is the better.
    pub fn higher_is_better(&self) -> bool {
        self.score_better.as_deref() != Some("lower")
    }
}

/// Under which the definition stands in a file.
const KEY: &str = "schedlab.sweep";
/// Rows of a row group.
const GROUP: usize = 1 << 14;

type GetText = Box<dyn Fn(&Row) -> Option<Cow<'_, str>>>;
type SetText = Box<dyn Fn(&mut Row, Option<String>) -> Result<(), String>>;

/// The content of a column, and the conversions from and to rows.
enum Column {
    Number(fn(&Row) -> u64, fn(&mut Row, u64)),
    Text(GetText, SetText, Repetition),
    Value(usize),
}

fn text(
    get: impl Fn(&Row) -> &String + 'static,
    of: impl Fn(&mut Row) -> &mut String + 'static,
) -> Column {
    Column::Text(
        Box::new(move |row| Some(get(row).into())),
        Box::new(move |row, value| {
            *of(row) = value.unwrap_or_default();
            Ok(())
        }),
        Repetition::REQUIRED,
    )
}

fn maybe(
    get: impl Fn(&Row) -> &Option<String> + 'static,
    of: impl Fn(&mut Row) -> &mut Option<String> + 'static,
) -> Column {
    Column::Text(
        Box::new(move |row| get(row).as_deref().map(Cow::from)),
        Box::new(move |row, value| {
            *of(row) = value;
            Ok(())
        }),
        Repetition::OPTIONAL,
    )
}

fn exit() -> Column {
    Column::Text(
        Box::new(|row| Some(row.exit.to_string().into())),
        Box::new(|row, value| {
            let name = value.unwrap_or_default();
            let unknown = |_| format!("exit of job {} is `{name}`, which does not exist", row.job);
            row.exit = name.parse().map_err(unknown)?;
            Ok(())
        }),
        Repetition::REQUIRED,
    )
}

/// Returns the columns, in order. A feature that is called like one of ours gets a `_` behind its name.
fn columns(definition: &Definition) -> Vec<(String, Column)> {
    let mut columns: Vec<(String, Column)> = vec![
        (
            "job".into(),
            Column::Number(|row| row.job, |row, n| row.job = n),
        ),
        (
            "seed".into(),
            Column::Number(|row| row.seed, |row, n| row.seed = n),
        ),
        (
            "workload".into(),
            text(|row| &row.workload, |row| &mut row.workload),
        ),
        (
            "scheduler".into(),
            text(|row| &row.scheduler, |row| &mut row.scheduler),
        ),
        ("exit".into(), exit()),
        (
            "message".into(),
            maybe(|row| &row.message, |row| &mut row.message),
        ),
        (
            "score_unit".into(),
            maybe(|row| &row.score_unit, |row| &mut row.score_unit),
        ),
        (
            "score_better".into(),
            maybe(|row| &row.score_better, |row| &mut row.score_better),
        ),
    ];
    let measures = definition.measures().into_iter().enumerate();
    columns.extend(measures.map(|(index, name)| (name, Column::Value(index))));
    for (index, feature) in definition.space.features.iter().enumerate() {
        let mut name = feature.name.clone();
        while columns.iter().any(|(known, _)| *known == name) {
            name.push('_');
        }
        let column = text(
            move |row| &row.choices[index],
            move |row| &mut row.choices[index],
        );
        columns.push((name, column));
    }
    columns
}

fn schema(columns: &[(String, Column)]) -> Result<TypePtr, ParquetError> {
    let mut fields = Vec::new();
    for (name, column) in columns {
        let (physical, repetition) = match column {
            Column::Number(..) => (Physical::INT64, Repetition::REQUIRED),
            Column::Text(_, _, repetition) => (Physical::BYTE_ARRAY, *repetition),
            Column::Value(_) => (Physical::DOUBLE, Repetition::OPTIONAL),
        };
        let logical = match column {
            Column::Number(..) => Some(LogicalType::integer(64, false)),
            Column::Text(..) => Some(LogicalType::String),
            Column::Value(_) => None,
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    let all = Type::group_type_builder("sweep")
        .with_fields(fields)
        .build()?;
    Ok(Arc::new(all))
}

/// Writes a file.
///
/// # Errors
/// As the file's.
pub fn write(
    definition: &Definition,
    rows: &[Row],
    file: impl Write + Send,
) -> Result<(), std::io::Error> {
    write_parquet(definition, rows, file).map_err(|error| match error {
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => *error,
            Err(error) => std::io::Error::other(error),
        },
        error => std::io::Error::other(error),
    })
}

fn write_parquet(
    definition: &Definition,
    rows: &[Row],
    file: impl Write + Send,
) -> Result<(), ParquetError> {
    write_columns(definition, &columns(definition), rows, file)
}

fn write_columns(
    definition: &Definition,
    columns: &[(String, Column)],
    rows: &[Row],
    file: impl Write + Send,
) -> Result<(), ParquetError> {
    let key = KeyValue::new(KEY.to_owned(), definition.to_json());
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(vec![key]))
        .build();
    let mut writer = SerializedFileWriter::new(file, schema(columns)?, Arc::new(properties))?;
    for group in rows.chunks(GROUP) {
        let mut out = writer.next_row_group()?;
        for (_, column) in columns {
            let mut into = out.next_column()?.expect("a column for each of the schema");
            match column {
                Column::Number(get, _) => {
                    let values: Vec<i64> = group.iter().map(|row| get(row) as i64).collect();
                    into.typed::<Int64Type>().write_batch(&values, None, None)?;
                }
                Column::Text(get, _, repetition) => {
                    let there: Vec<Option<Cow<'_, str>>> = group.iter().map(get).collect();
                    let levels: Vec<i16> = there.iter().map(|text| text.is_some().into()).collect();
                    let values: Vec<ByteArray> = there
                        .iter()
                        .flatten()
                        .map(|text| ByteArray::from(&**text))
                        .collect();
                    let levels = (*repetition == Repetition::OPTIONAL).then_some(&levels[..]);
                    into.typed::<ByteArrayType>()
                        .write_batch(&values, levels, None)?;
                }
                Column::Value(index) => {
                    let there = group.iter().map(|row| row.values[*index]);
                    let levels: Vec<i16> = there.clone().map(|x| x.is_some().into()).collect();
                    let values: Vec<f64> = there.flatten().collect();
                    into.typed::<DoubleType>()
                        .write_batch(&values, Some(&levels), None)?;
                }
            }
            into.close()?;
        }
        out.close()?;
    }
    writer.close()?;
    Ok(())
}

/// Reads a file of a sweep.
///
/// # Errors
/// If it cannot be read or is not one of this sweep.
pub fn read(definition: &Definition, path: &Path) -> Result<Vec<Row>, SweepError> {
    let broken = |why: String| SweepError::Broken {
        path: path.to_owned(),
        why,
    };
    let file = File::open(path).map_err(|cause| SweepError::File {
        path: path.to_owned(),
        cause,
    })?;
    let reader = SerializedFileReader::new(file).map_err(|error| broken(one_line(&error)))?;
    let metadata = reader.metadata().file_metadata();
    let own = metadata
        .key_value_metadata()
        .and_then(|all| all.iter().find(|entry| entry.key == KEY))
        .and_then(|entry| entry.value.as_deref())
        .ok_or_else(|| broken("schedlab did not write it".to_owned()))?;
    let own = Definition::from_json(own).map_err(&broken)?;
    if let Some(what) = own.difference(definition) {
        return Err(broken(format!(
            "it is of another sweep, which differs in its {what}"
        )));
    }
    let columns = columns(definition);
    let expected = schema(&columns).map_err(|error| broken(one_line(&error)))?;
    let columns = columns_of(metadata.schema(), columns, &expected)
        .ok_or_else(|| broken("its columns are others".to_owned()))?;
    let rows =
        read_rows(definition, &columns, &reader).map_err(|error| broken(one_line(&error)))?;
    for row in &rows {
        row.check(definition).map_err(&broken)?;
    }
    Ok(rows)
}

/// Returns the columns that a file has: all, or in an older file all but measures that were not kept then.
fn columns_of(
    found: &Type,
    columns: Vec<(String, Column)>,
    expected: &Type,
) -> Option<Vec<(String, Column)>> {
    let mut fields = found.get_fields().iter().peekable();
    let mut there = Vec::new();
    for (column, expected) in columns.into_iter().zip(expected.get_fields()) {
        if fields.next_if_eq(&expected).is_some() {
            there.push(column);
        } else if !matches!(column.1, Column::Value(_)) {
            return None;
        }
    }
    fields.next().is_none().then_some(there)
}

fn one_line(error: &ParquetError) -> String {
    error.to_string().replace('\n', " ")
}

fn read_rows(
    definition: &Definition,
    columns: &[(String, Column)],
    reader: &SerializedFileReader<File>,
) -> Result<Vec<Row>, ParquetError> {
    let empty = Row {
        job: 0,
        workload: String::new(),
        scheduler: String::new(),
        choices: vec![String::new(); definition.space.features.len()],
        seed: 0,
        exit: Exit::default(),
        message: None,
        score_unit: None,
        score_better: None,
        values: vec![None; definition.measures().len()],
    };
    let mut rows = Vec::new();
    for index in 0..reader.num_row_groups() {
        let group = reader.get_row_group(index)?;
        let count = group.metadata().num_rows() as usize;
        let begin = rows.len();
        rows.resize(begin + count, empty.clone());
        let rows = &mut rows[begin..];
        for (number, (name, column)) in columns.iter().enumerate() {
            match (column, group.get_column_reader(number)?) {
                (Column::Number(_, set), ColumnReader::Int64ColumnReader(mut reader)) => {
                    let mut values = Vec::with_capacity(count);
                    reader.read_records(count, None, None, &mut values)?;
                    all_there(name, count, values.len())?;
                    for (row, value) in rows.iter_mut().zip(values) {
                        set(row, value as u64);
                    }
                }
                (
                    Column::Text(_, set, repetition),
                    ColumnReader::ByteArrayColumnReader(mut reader),
                ) => {
                    let (mut values, mut levels) = (Vec::with_capacity(count), Vec::new());
                    let optional = *repetition == Repetition::OPTIONAL;
                    reader.read_records(
                        count,
                        optional.then_some(&mut levels),
                        None,
                        &mut values,
                    )?;
                    if !optional {
                        levels = vec![1; values.len()];
                    }
                    all_there(name, count, levels.len())?;
                    let mut values = values.into_iter();
                    for (row, level) in rows.iter_mut().zip(levels) {
                        let value = if level == 1 { values.next() } else { None };
                        let text = value.map(|bytes| bytes.as_utf8().map(str::to_owned));
                        set(row, text.transpose()?).map_err(ParquetError::General)?;
                    }
                }
                (Column::Value(index), ColumnReader::DoubleColumnReader(mut reader)) => {
                    let (mut values, mut levels) = (Vec::with_capacity(count), Vec::new());
                    reader.read_records(count, Some(&mut levels), None, &mut values)?;
                    all_there(name, count, levels.len())?;
                    let mut values = values.into_iter();
                    for (row, level) in rows.iter_mut().zip(levels) {
                        row.values[*index] = if level == 1 { values.next() } else { None };
                    }
                }
                _ => unreachable!("the schema was compared"),
            }
        }
    }
    Ok(rows)
}

fn all_there(name: &str, expected: usize, found: usize) -> Result<(), ParquetError> {
    if expected == found {
        return Ok(());
    }
    Err(ParquetError::General(format!(
        "column {name} has {found} of {expected} values"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Asked, Space};
    use schedlab_sim::{Scheduler, SimSpec};

    fn definition() -> Definition {
        Definition::new(Asked {
            workloads: vec!["cpu".to_owned()],
            space: Space::of("feature", &[]).unwrap(),
            sample: Some(3),
            repeat: 1,
            run: SimSpec::new("", Scheduler::parse("feature"), "laptop"),
            seed: 1,
            live: None,
            each: false,
            budget: None,
        })
        .unwrap()
    }

    fn row(definition: &Definition, job: u64) -> Row {
        let choices = definition.space.choices(definition.points()[job as usize]);
        let features = definition.space.features.iter().zip(choices);
        Row {
            job,
            workload: "cpu".to_owned(),
            scheduler: definition.scheduler(job).to_string(),
            choices: features
                .map(|(feature, choice)| feature.alternatives[choice].clone())
                .collect(),
            seed: 1,
            exit: Exit::Done,
            message: None,
            score_unit: Some("s".to_owned()),
            score_better: Some("lower".to_owned()),
            values: (0..MEASURES.len())
                .map(|n| Some((n as u64 + job) as f64))
                .collect(),
        }
    }

    /// Reads what was written with only some of the columns.
    fn read_without(left_out: &[&str]) -> Result<Vec<Row>, SweepError> {
        let definition = definition();
        let rows: Vec<Row> = (0..3).map(|job| row(&definition, job)).collect();
        let mut columns = columns(&definition);
        columns.retain(|(name, _)| !left_out.contains(&name.as_str()));
        let file = tempfile::NamedTempFile::new().unwrap();
        write_columns(&definition, &columns, &rows, file.as_file()).unwrap();
        read(&definition, file.path())
    }

    /// A program that knew fewer measures wrote them.
    #[test]
    fn older_files_lack_measures_and_nothing_else() {
        let definition = definition();
        let whole: Vec<Row> = (0..3).map(|job| row(&definition, job)).collect();
        assert_eq!(read_without(&[]).unwrap(), whole);
        let older = read_without(&["schedule.memory_wait_pct", "fairness.jain"]).unwrap();
        for (old, new) in older.iter().zip(&whole) {
            for name in MEASURES {
                let lacks = ["schedule.memory_wait_pct", "fairness.jain"].contains(name);
                let expected = new.value(name).filter(|_| !lacks);
                assert_eq!(old.value(name), expected, "{name}");
            }
            assert_eq!(old.choices, new.choices);
            assert_eq!((&old.scheduler, old.job), (&new.scheduler, new.job));
        }
        let error = read_without(&["scheduler"]).unwrap_err().to_string();
        assert!(error.contains("its columns are others"), "{error}");
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        let definition = definition();
        for (wrong, told) in [(f64::INFINITY, "inf"), (f64::NAN, "NaN")] {
            let mut rows: Vec<Row> = (0..3).map(|job| row(&definition, job)).collect();
            rows[1].values[2] = Some(wrong);
            let file = tempfile::NamedTempFile::new().unwrap();
            write(&definition, &rows, file.as_file()).unwrap();
            let error = read(&definition, file.path()).unwrap_err().to_string();
            assert!(
                error.contains(&format!("work of job 1 is {told}")),
                "{error}"
            );
        }
    }

    #[test]
    fn exits_are_names_and_others_are_refused() {
        let definition = definition();
        let written_as = |name: &'static str| {
            let rows: Vec<Row> = (0..3).map(|job| row(&definition, job)).collect();
            let mut columns = columns(&definition);
            let exit = columns.iter_mut().find(|(column, _)| column == "exit");
            let Column::Text(get, ..) = &mut exit.unwrap().1 else {
                panic!("exits are text");
            };
            *get = Box::new(move |row| Some(if row.job == 1 { name } else { "done" }.into()));
            let file = tempfile::NamedTempFile::new().unwrap();
            write_columns(&definition, &columns, &rows, file.as_file()).unwrap();
            read(&definition, file.path())
        };
        let rows = written_as("error_stall").unwrap();
        let exits: Vec<Exit> = rows.iter().map(|row| row.exit).collect();
        assert_eq!(exits, [Exit::Done, Exit::ErrorStall, Exit::Done]);
        let error = written_as("stalled").unwrap_err().to_string();
        assert!(error.contains("exit of job 1 is `stalled`"), "{error}");
    }

    #[test]
    fn unknown_columns_are_refused() {
        let definition = definition();
        let columns = columns(&definition);
        let of = |names: &[&str]| {
            let fields = names.iter().map(|name| {
                let field = Type::primitive_type_builder(name, Physical::DOUBLE)
                    .with_repetition(Repetition::OPTIONAL);
                Arc::new(field.build().unwrap())
            });
            Type::group_type_builder("sweep")
                .with_fields(fields.collect())
                .build()
                .unwrap()
        };
        let expected = of(&["score", "work"]);
        let two = || -> Vec<(String, Column)> {
            vec![
                ("score".into(), Column::Value(0)),
                ("work".into(), Column::Value(2)),
            ]
        };
        let left =
            |found: &[&str]| columns_of(&of(found), two(), &expected).map(|there| there.len());
        assert_eq!(left(&["score", "work"]), Some(2));
        assert_eq!(left(&["work"]), Some(1));
        // In another order, or with one that nobody knows.
        assert_eq!(left(&["work", "score"]), None);
        assert_eq!(left(&["score", "speed"]), None);
        assert!(columns.len() > MEASURES.len());
    }
}
