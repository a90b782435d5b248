//! Published figures and simulated ones beside them: a block per metric, a column per number of CPUs.

use std::fmt::Write as _;

use crate::export::number::{digits, grouped};
use crate::published::{Aim, Compared, Metric};

/// Width of the first column.
const LABEL: usize = 12;
/// Between two columns. The mark of a miss hangs over into it, so that numbers stay below each other.
const GAP: usize = 2;

/// A line of the comparison: its label, and a word for each number of CPUs.
struct Row {
    label: String,
    words: Vec<String>,
}

impl Row {
    fn new(
        label: impl Into<String>,
        cells: &[Compared],
        word: impl Fn(&Compared) -> Option<String>,
    ) -> Self {
        let words = cells.iter().map(|cell| word(cell).unwrap_or_default());
        Row {
            label: label.into(),
            words: words.collect(),
        }
    }
}

/// The comparison for a terminal, scores in `unit`. `*` marks a missed aim.
pub fn render(title: &str, unit: Option<&str>, compared: &[(&Metric, Vec<Compared>)]) -> String {
    let mut text = format!("{title}\n\n");
    let Some((_, first)) = compared.first() else {
        text.push_str("nothing to compare\n");
        return text;
    };
    let mut rows = vec![Row::new("CPUs", first, |cell| Some(cell.cpus.to_string()))];
    for (metric, cells) in compared {
        rows.extend(block(metric, unit, cells));
    }
    // As narrow as the numbers allow: seven numbers of CPUs fit into 80 columns.
    let words = rows.iter().flat_map(|row| &row.words);
    let width = words.map(|word| word.trim_end_matches('*').len()).max();
    for row in &rows {
        line(&mut text, row, GAP + width.unwrap_or_default());
    }
    let cells = || compared.iter().flat_map(|(_, cells)| cells);
    let aims = cells().filter(|cell| cell.met.is_some()).count();
    let met = cells().filter(|cell| cell.met == Some(true)).count();
    if aims > 0 {
        let _ = writeln!(text, "\n{met} of {aims} aims met; misses are marked *");
    }
    text
}

/// The lines of one metric, its heading first.
fn block(metric: &Metric, unit: Option<&str>, cells: &[Compared]) -> Vec<Row> {
    let simulated = Row::new("  simulated", cells, |cell| cell.simulated.map(grouped));
    let heading = match unit.filter(|_| metric.is_score()) {
        Some(unit) => format!("{}, {unit}", metric.heading),
        None => metric.heading.to_owned(),
    };
    let heading = Row::new(heading, &[], |_| None);
    if cells.iter().all(|cell| cell.published.is_none()) {
        return vec![heading, simulated];
    }
    let published = Row::new("  published", cells, |cell| cell.published.map(grouped));
    let (label, apart): (_, fn(f64, f64) -> String) = match metric.aim {
        Some(Aim::Points(_)) => ("  difference", |a, b| format!("{:+.1}", b - a)),
        _ => ("  ratio", |a, b| digits(b / a)),
    };
    let apart = Row::new(label, cells, |cell| {
        let (published, simulated) = cell.published.zip(cell.simulated)?;
        let mark = if cell.met == Some(false) { "*" } else { "" };
        Some(format!("{}{mark}", apart(published, simulated)))
    });
    vec![heading, published, simulated, apart]
}

fn line(text: &mut String, row: &Row, column: usize) {
    let mut line = format!("{:LABEL$}", row.label);
    let mut end = LABEL;
    for word in &row.words {
        end += column;
        let number = word.trim_end_matches('*');
        let space = end.saturating_sub(line.len() + number.len());
        let _ = write!(line, "{:space$}{word}", "");
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_below_each_other_and_misses_are_marked() {
        let cell = |cpus, published, simulated, met| Compared {
            cpus,
            published,
            simulated,
            met,
        };
        let hold = Metric::find("hold_mean").unwrap();
        let contention = Metric::find("contention_pct").unwrap();
        let compared = vec![
            (
                contention,
                vec![
                    cell(2, Some(18.3), Some(30.1), Some(false)),
                    cell(8, Some(86.6), Some(80.1), Some(true)),
                ],
            ),
            (
                hold,
                vec![
                    cell(2, Some(15.0), Some(15.2), Some(true)),
                    cell(8, None, Some(1234.5), None),
                ],
            ),
        ];
        let found = render("title", None, &compared);
        let expected = "\
title

CPUs              2      8
lock contention, %
  published    18.3   86.6
  simulated    30.1   80.1
  difference  +11.8*  -6.5
mean hold, µs
  published      15
  simulated    15.2  1,234
  ratio        1.01

2 of 3 aims met; misses are marked *
";
        assert_eq!(found, expected, "\n{found}");
    }

    #[test]
    fn seven_numbers_of_cpus_fit_into_80_columns() {
        let metric = Metric::find("hold_mean").unwrap();
        let cell = |cpus| Compared {
            cpus,
            published: Some(144_429.0),
            simulated: Some(288_858.0),
            met: Some(false),
        };
        let text = render(
            "title",
            Some("km"),
            &[(metric, (2..=8).map(cell).collect())],
        );
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?}\n{text}");
    }
}
