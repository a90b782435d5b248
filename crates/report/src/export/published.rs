//! Published figures and simulated ones beside them: a block per metric, a column per number of CPUs.

use std::fmt::Write as _;

use crate::export::number::{digits, grouped};
use crate::published::{Aim, Compared, Metric};

/// Width of the first column.
const LABEL: usize = 14;
/// Width of the others.
const COLUMN: usize = 9;

/// The comparison for a terminal. `*` marks a missed aim.
pub fn render(title: &str, compared: &[(&Metric, Vec<Compared>)]) -> String {
    let mut text = format!("{title}\n\n");
    let Some((_, first)) = compared.first() else {
        text.push_str("nothing to compare\n");
        return text;
    };
    line(&mut text, "CPUs", first, |cell| Some(cell.cpus.to_string()));
    let (mut met, mut aims) = (0, 0);
    for (metric, row) in compared {
        let _ = writeln!(text, "{}", metric.heading);
        if row.iter().any(|cell| cell.published.is_some()) {
            line(&mut text, "  published", row, |cell| {
                cell.published.map(grouped)
            });
        }
        line(&mut text, "  simulated", row, |cell| {
            cell.simulated.map(grouped)
        });
        let (label, apart): (_, fn(f64, f64) -> String) = match metric.aim {
            Some(Aim::Points(_)) => ("  difference", |a, b| format!("{:+.1}", b - a)),
            _ => ("  ratio", |a, b| digits(b / a)),
        };
        if row.iter().any(|cell| cell.published.is_some()) {
            line(&mut text, label, row, |cell| {
                let (published, simulated) = cell.published.zip(cell.simulated)?;
                let mark = if cell.met == Some(false) { "*" } else { "" };
                Some(format!("{}{mark}", apart(published, simulated)))
            });
        }
        aims += row.iter().filter(|cell| cell.met.is_some()).count();
        met += row.iter().filter(|cell| cell.met == Some(true)).count();
    }
    if aims > 0 {
        let _ = writeln!(text, "\n{met} of {aims} aims met; misses are marked *");
    }
    text
}

fn line(
    text: &mut String,
    label: &str,
    row: &[Compared],
    of: impl Fn(&Compared) -> Option<String>,
) {
    let mut line = format!("{label:LABEL$}");
    for cell in row {
        let word = of(cell).unwrap_or_default();
        // The mark of a miss hangs over, so that numbers stay below each other.
        let overhang = usize::from(word.ends_with('*'));
        let _ = write!(line, "{word:>width$}", width = COLUMN + overhang);
        if overhang == 0 {
            line.push(' ');
        }
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
        let found = render("title", &compared);
        let expected = "\
title

CPUs                  2         8
lock contention, %
  published        18.3      86.6
  simulated        30.1      80.1
  difference      +11.8*     -6.5
mean hold, µs
  published          15
  simulated        15.2     1,234
  ratio            1.01

2 of 3 aims met; misses are marked *
";
        assert_eq!(found, expected, "\n{found}");
    }
}
