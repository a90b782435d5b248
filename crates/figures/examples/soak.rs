//! Draws the chart of `docs/real-kernel.md` from the data beside it:
//!
//! ```text
//! cargo run -p schedlab-figures --example soak docs/real-kernel/soak.csv > docs/real-kernel/soak.svg
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;

use schedlab_figures::{Axis, Chart, Mark, Point, Series};

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: soak FILE.csv > FILE.svg");
        return ExitCode::from(2);
    };
    let drawn = std::fs::read_to_string(&path)
        .map_err(|error| error.to_string())
        .and_then(|text| chart(&text));
    match drawn {
        Ok(chart) => {
            print!("{}", chart.svg());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns a line for each program: its runs in the order of their calls.
fn chart(csv: &str) -> Result<Chart, String> {
    let mut programs: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (index, line) in csv.lines().enumerate().skip(1) {
        let columns: Vec<&str> = line.split(',').collect();
        let [_policy, _cpus, _seconds, program, calls] = columns[..] else {
            return Err(format!("line {}: five columns are needed", index + 1));
        };
        let calls: u32 = calls
            .parse()
            .map_err(|_| format!("line {}: `{calls}` is no number of calls", index + 1))?;
        programs.entry(program).or_default().push(calls.into());
    }
    let series = programs.into_iter().map(|(program, mut calls)| {
        calls.sort_by(f64::total_cmp);
        let points = calls.into_iter().enumerate();
        Series {
            name: program.to_owned(),
            mark: Mark::Line,
            points: points
                .map(|(rank, calls)| Point::from((rank as f64 + 1.0, calls)))
                .collect(),
        }
    });
    Ok(Chart {
        title: "Calls of ops.dispatch() during each program".to_owned(),
        x: Axis::linear("runs (a scheduler on 2 or 8 CPUs), by their calls").of_counts(),
        y: Axis::log("calls"),
        series: series.collect(),
    })
}
