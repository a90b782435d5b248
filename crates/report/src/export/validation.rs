//! Real runs and simulations beside each other, for a terminal of 80 columns.

use std::fmt::Write as _;

use crate::export::number::amount;
use crate::validation::{MEASURES, Row, Simulated, tally};

/// Widths of the first column, of the real median, of its interval, and of a simulation with its error.
const LABEL: usize = 14;
const REAL: usize = 11;
const INTERVAL: usize = 19;
const SIMULATED: usize = 18;

/// Renders the rows of each workload, under a heading with the schedulers that were simulated. `*` marks an error beyond
/// the aim.
pub fn render(schedulers: &[String], tables: &[(String, Vec<Row>)]) -> String {
    let mut text = format!(
        "{:LABEL$}{:>REAL$}{:>INTERVAL$}",
        "", "real", "95 % of the median"
    );
    for name in schedulers {
        let _ = write!(text, "{name:>SIMULATED$}");
    }
    text.push('\n');
    for (workload, rows) in tables {
        let score = rows.iter().find(|row| row.measure == MEASURES[0]);
        match score {
            Some(row) => {
                let _ = writeln!(text, "{workload} (score: {})", row.unit);
            }
            None => {
                let _ = writeln!(text, "{workload}");
            }
        }
        if rows.is_empty() {
            text.push_str("  no run is done: nothing to compare\n");
        }
        for row in rows {
            line(&mut text, row);
        }
    }
    text
}

fn line(text: &mut String, row: &Row) {
    // A score's whole unit stands in the heading of its workload.
    let unit = if row.unit.starts_with("ns") { "ns" } else { "" };
    let value = |x: f64| amount(x, unit);
    let interval = row.interval.map_or("-".to_owned(), |one| {
        format!("{} to {}", value(one.low), value(one.high))
    });
    let _ = write!(
        text,
        "{:LABEL$}{:>REAL$}{:>INTERVAL$}",
        format!("  {}", row.measure.heading),
        value(row.real),
        interval
    );
    for simulated in &row.simulated {
        let cell = simulated.map_or("-".to_owned(), |one| {
            format!("{} {}", value(one.value), error(one))
        });
        let _ = write!(text, "{cell:>SIMULATED$}");
    }
    let end = text.trim_end().len();
    text.truncate(end);
    text.push('\n');
}

/// The error as a percentage, beyond twice as a factor.
fn error(one: Simulated) -> String {
    let mark = if one.met == Some(false) { "*" } else { " " };
    let error = match one.ratio {
        None => "?".to_owned(),
        Some(ratio) if ratio >= 10.0 => format!("×{ratio:.0}"),
        Some(ratio) if ratio >= 2.0 => format!("×{ratio:.1}"),
        Some(ratio) => format!("{:+.0}%", 100.0 * (ratio - 1.0)),
    };
    format!("{error:>5}{mark}")
}

/// Renders how many workloads are within each aim, a line for each measure that has one.
pub fn summary(schedulers: &[String], tables: &[(String, Vec<Row>)]) -> String {
    let rows: Vec<Vec<Row>> = tables.iter().map(|(_, rows)| rows.clone()).collect();
    let mut text = format!("{:44}", "workloads within the aim");
    for name in schedulers {
        let _ = write!(text, "{name:>SIMULATED$}");
    }
    text.push('\n');
    for measure in MEASURES {
        let Some(aim) = measure.aim else { continue };
        let _ = write!(
            text,
            "{:44}",
            format!("  {}, within a factor of {aim}", measure.heading)
        );
        for scheduler in 0..schedulers.len() {
            let tally = tally(&rows, &measure, scheduler);
            let _ = write!(
                text,
                "{:>SIMULATED$}",
                format!("{} of {}", tally.met, tally.of)
            );
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Interval;
    use crate::validation::Measure;

    fn row(measure: Measure, unit: &str, real: f64, simulated: &[(f64, Option<bool>)]) -> Row {
        let cells = simulated.iter().map(|&(value, met)| {
            Some(Simulated {
                value,
                ratio: Some(value / real),
                met,
            })
        });
        Row {
            measure,
            unit: unit.to_owned(),
            real,
            interval: Some(Interval {
                low: real,
                high: real * 1.1,
            }),
            simulated: cells.collect(),
        }
    }

    #[test]
    fn errors_are_percentages_or_factors() {
        let told = |ratio, met| {
            let value = 0.0;
            error(Simulated { value, ratio, met })
        };
        for (ratio, text) in [
            (None, "    ? "),
            (Some(0.0), "-100% "),
            (Some(0.5), " -50% "),
            (Some(1.0), "  +0% "),
            (Some(1.5), " +50% "),
            (Some(2.0), " ×2.0 "),
            (Some(12.3), "  ×12 "),
        ] {
            assert_eq!(told(ratio, None), text);
        }
        assert_eq!(told(Some(2.0), Some(false)), " ×2.0*");
        assert_eq!(told(Some(1.0), Some(true)), "  +0% ");
    }

    #[test]
    fn lines_fit_a_terminal_and_misses_are_marked() {
        let rows = vec![
            row(
                MEASURES[0],
                "ns",
                2_681.0,
                &[(2_209.0, Some(false)), (2_700.0, Some(true))],
            ),
            row(
                MEASURES[5],
                "ns",
                51_200.0,
                &[(840.0, Some(false)), (1_788_000.0, Some(false))],
            ),
            row(
                MEASURES[3],
                "",
                123_456.0,
                &[(987_654.0, None), (12_345_678.0, None)],
            ),
        ];
        let names = ["kernel".to_owned(), "eevdf".to_owned()];
        let tables = [("pipe".to_owned(), rows), ("chat".to_owned(), Vec::new())];
        let text = render(&names, &tables) + &summary(&names, &tables);
        for line in text.lines() {
            assert!(crate::export::lines::width_of(line) <= 80, "{line}");
        }
        assert!(text.contains("-18%*") && text.contains("+1%"), "{text}");
        assert!(text.contains("×35*") && text.contains("-98%*"), "{text}");
        assert!(text.contains("nothing to compare"), "{text}");
        assert!(text.contains("0 of 1            1 of 1"), "{text}");
    }
}
