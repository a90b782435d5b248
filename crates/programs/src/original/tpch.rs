//! TPC-H's queries on DuckDB: data by `tpchgen-cli`, the queries and the program that runs them from
//! `workloads/tpch`.
//!
//! DuckDB has one pool of threads for everything, so `degree` is the number of threads for each stream.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use include_dir::{Dir, include_dir};

use super::program::{Given, SCALE_DEFAULT, command, error, folder, output, refused};
use crate::{ProgramError, nr_allowed_cpus};

static QUERIES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../workloads/tpch");

const TABLES: [&str; 8] = [
    "customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier",
];

/// The command that installs both sides.
pub(super) const REMEDY: &str = "pip install tpchgen-cli duckdb";

/// Returns the Python that has DuckDB's module.
pub(super) fn python() -> Result<Command, ProgramError> {
    let found = command("python3")
        .args(["-c", "import duckdb"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match found {
        Ok(status) if status.success() => Ok(command("python3")),
        _ => Err(refused(format!("python3 has no module `duckdb`: {REMEDY}"))),
    }
}

/// Queries per hour over all streams.
pub(super) fn run(given: &Given<'_>) -> Result<f64, ProgramError> {
    run_keeping(given, None)
}

/// With the answers of the first stream as JSON in `answers`.
fn run_keeping(given: &Given<'_>, answers: Option<&Path>) -> Result<f64, ProgramError> {
    let mut python = python()?;
    let folder = folder("tpch")?;
    let scale = given.extra.scale.unwrap_or(SCALE_DEFAULT);
    let data = match given.extra.source {
        Some(source) => source.to_owned(),
        None => folder.path().join("data"),
    };
    generate(&data, scale, given)?;
    let queries = folder.path().join("queries");
    let fail = |cause: std::io::Error| error(format!("{}: {cause}", folder.path().display()));
    fs::create_dir(&queries).map_err(fail)?;
    QUERIES.extract(&queries).map_err(fail)?;

    let count = |name: &str| -> u64 { given.text(name).parse().expect("a count") };
    let (streams, of_a_stream) = (count("streams"), count("queries"));
    let degree = match count("degree") {
        0 => 2 * nr_allowed_cpus() as u64,
        degree => degree,
    };
    python.arg(queries.join("run.py")).arg(&data).arg(&queries);
    python.args([streams, of_a_stream, streams * degree].map(|n| n.to_string()));
    python.arg(scale.to_string()).args(answers);
    let (text, _) = output(&mut python, given.deadline)?;
    let ns: u64 = text
        .trim()
        .parse()
        .map_err(|_| error(format!("DuckDB reports no time: {}", text.trim())))?;
    Ok((streams * of_a_stream) as f64 * 3_600.0 * 1e9 / ns.max(1) as f64)
}

/// Generates the tables, unless the folder has all of them. Whether they are of this scale `run.py` looks at.
fn generate(data: &Path, scale: f64, given: &Given<'_>) -> Result<(), ProgramError> {
    let there = |table: &&str| data.join(format!("{table}.parquet")).is_file();
    if TABLES.iter().all(there) {
        return Ok(());
    }
    let fail = |cause: std::io::Error| error(format!("{}: {cause}", data.display()));
    fs::create_dir_all(data).map_err(fail)?;
    let mut generator = command("tpchgen-cli");
    generator.args(["parquet", "--overwrite", "--scale-factor"]);
    generator
        .arg(scale.to_string())
        .arg("--output-dir")
        .arg(data);
    output(&mut generator, given.deadline).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::{Extra, find};
    use super::*;
    use schedlab_workload::Workload;
    use std::time::{Duration, Instant};

    #[test]
    fn all_queries_are_there() {
        for number in 1..=22 {
            let file = QUERIES.get_file(format!("q{number:02}.sql"));
            assert!(
                file.is_some_and(|file| file.contents_utf8().is_some()),
                "{number}"
            );
        }
        assert!(QUERIES.get_file("run.py").is_some());
    }

    /// The answers of scale 0.01 beside what plain integers over the same rows, as text, come to.
    #[test]
    fn answers_are_those_of_the_rows() {
        if find("tpchgen-cli").is_none() || python().is_err() {
            schedlab_testing::skipped(&format!("original programs: TPC-H on DuckDB: {REMEDY}"));
            return;
        }
        let folder = folder("tpch-test").unwrap();
        let data = folder.path().join("data");
        let workload = Workload::parse("tpch:streams=2,degree=1", 2).unwrap();
        let given = Given {
            params: &workload.params,
            extra: Extra {
                source: Some(&data),
                scale: Some(0.01),
            },
            deadline: Instant::now() + Duration::from_secs(120),
        };
        let answers = folder.path().join("answers.json");
        let value = run_keeping(&given, Some(&answers)).unwrap();
        assert!(value > 0.0, "{value}");
        let text = fs::read_to_string(&answers).unwrap();
        let answers: serde_json::Value = serde_json::from_str(&text).unwrap();
        let answers = answers.as_object().unwrap();
        assert_eq!(answers.len(), 22);

        let mut generator = command("tpchgen-cli");
        generator.args(["-s", "0.01", "-T", "lineitem", "--output-dir"]);
        generator.arg(folder.path());
        output(&mut generator, given.deadline).unwrap();
        let rows = fs::read_to_string(folder.path().join("lineitem.tbl")).unwrap();
        // Columns by the specification, section 1.4: 4 quantity, 5 price, 6 discount, 8 flag, 9 status, 10 shipped.
        let hundredths = |text: &str| text.replace('.', "").parse::<u64>().unwrap();
        let (mut saved, mut early) = (0, 0);
        for row in rows.lines() {
            let columns: Vec<&str> = row.split('|').collect();
            let (quantity, price) = (columns[4], hundredths(columns[5]));
            let (discount, shipped) = (hundredths(columns[6]), columns[10]);
            if shipped.starts_with("1994-")
                && (5..=7).contains(&discount)
                && quantity.parse::<f64>().unwrap() < 24.0
            {
                saved += price * discount;
            }
            if (columns[8], columns[9]) == ("A", "F") && shipped <= "1998-09-02" {
                early += 1;
            }
        }
        assert_eq!(rows.lines().count(), 60_175);
        let told: f64 = answers["6"][0][0].as_str().unwrap().parse().unwrap();
        assert!((told * 1e4 - saved as f64).abs() < 0.5, "{told} {saved}");
        assert_eq!(answers["1"][0][9].as_u64(), Some(early));

        // The same data is taken again; data of another scale is not.
        let other = Given {
            extra: Extra {
                source: Some(&data),
                scale: Some(0.1),
            },
            ..given
        };
        assert!(run(&other).is_err());
    }
}
