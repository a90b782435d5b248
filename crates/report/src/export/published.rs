//! Published figures and simulated ones beside them: a block per metric, a column per number of CPUs. Of several runs
//! the median, and below it the lowest and the highest; and how many have no value, where some have none.

use std::fmt::Write as _;

use crate::export::number::{digits, grouped};
use crate::published::{Accuracy, Aim, Compared, Metric};
use schedlab_trace::counted;

/// Width of the first column.
const LABEL: usize = 12;
/// Between two columns. The mark of a miss hangs over into it, so that numbers stay below each other.
const GAP: usize = 2;

/// Below a score where nothing that was published is one.
const UNCONSTRAINED: &str = "  absolute values were not published: nothing constrains them";

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

/// Returns the comparison for a terminal, scores in `unit`. `*` marks a missed aim.
pub fn render(title: &str, unit: Option<&str>, compared: &[(&Metric, Vec<Compared>)]) -> String {
    let mut text = format!("{title}\n\n");
    let Some((_, first)) = compared.first() else {
        text.push_str("nothing to compare\n");
        return text;
    };
    let mut rows = vec![Row::new("CPUs", first, |cell| Some(cell.cpus.to_string()))];
    let is_published = |cell: &Compared| cell.published.is_some();
    let is_told = compared
        .iter()
        .any(|(metric, cells)| metric.is_performance() && cells.iter().any(is_published));
    for (metric, cells) in compared {
        rows.extend(block(metric, unit, cells));
        if metric.is_score() && !is_told {
            rows.push(Row::new(UNCONSTRAINED, &[], |_| None));
        }
    }
    // As narrow as the numbers allow: seven numbers of CPUs fit into 80 columns.
    let words = rows.iter().flat_map(|row| &row.words);
    let width = words.map(|word| word.trim_end_matches('*').len()).max();
    for row in &rows {
        line(&mut text, row, GAP + width.unwrap_or_default());
    }
    // One that nothing was simulated for is not met, either.
    let cells = compared.iter().flat_map(|(metric, cells)| {
        let aimed = |cell: &&Compared| metric.aim.is_some() && cell.published.is_some();
        cells.iter().filter(aimed)
    });
    let aims: Vec<&Compared> = cells.collect();
    let with = |met: Option<bool>| aims.iter().filter(|cell| cell.met == met).count();
    if !aims.is_empty() {
        let without = match with(None) {
            0 => String::new(),
            some => format!(", {some} without a simulated value"),
        };
        let (met, aims) = (with(Some(true)), aims.len());
        let _ = writeln!(
            text,
            "\n{met} of {aims} aims met{without}; misses are marked *"
        );
    }
    text
}

/// Factors of which the share within them is shown.
const FACTORS: [f64; 3] = [1.3, 1.5, 2.0];

/// Returns how near simulated figures are to published ones, for a terminal.
pub fn render_accuracy(kinds: &[Accuracy]) -> String {
    let label = kinds.iter().map(|kind| kind.of.chars().count()).max();
    let label = label.unwrap_or_default();
    let mut text = "Share of the published figures that the simulated ones are near to, and the median factor\n\n".to_owned();
    let _ = write!(text, "{:label$}  figures", "");
    for factor in FACTORS {
        let _ = write!(text, "  {:>5}", format!("{factor}x"));
    }
    text.push_str("  median\n");
    for kind in kinds {
        let _ = write!(text, "{:label$}  {:>7}", kind.of, kind.figures());
        for factor in FACTORS {
            let _ = write!(text, "  {:>3.0} %", kind.within_pct(factor));
        }
        let _ = writeln!(text, "  {:>6.2}", kind.median());
    }
    text
}

/// Returns the lines of one metric, its heading first.
fn block(metric: &Metric, unit: Option<&str>, cells: &[Compared]) -> Vec<Row> {
    let heading = match unit.filter(|_| metric.is_score()) {
        Some(unit) => format!("{}, {unit}", metric.heading),
        None => metric.heading.to_owned(),
    };
    let mut rows = vec![Row::new(heading, &[], |_| None)];
    let mut add = |label: &str, word: &dyn Fn(&Compared) -> Option<String>| {
        rows.push(Row::new(label, cells, word));
    };
    let is_published = cells.iter().any(|cell| cell.published.is_some());
    if is_published {
        add("  published", &|cell| cell.published.map(grouped));
    }
    add("  simulated", &|cell| cell.simulated.map(grouped));
    if cells.iter().any(|cell| cell.spread.is_some()) {
        add("  lowest", &|cell| Some(grouped(cell.spread?.0)));
        add("  highest", &|cell| Some(grouped(cell.spread?.1)));
    }
    if cells.iter().any(|cell| cell.without > 0) {
        add("  no value", &|cell| {
            (cell.without > 0).then(|| counted(cell.without as u64, "run"))
        });
    }
    if !is_published {
        return rows;
    }
    let mark = |cell: &Compared| if cell.met == Some(false) { "*" } else { "" };
    let is_of_points = matches!(metric.aim, Some(Aim::Points(_)));
    if is_of_points {
        add("  difference", &|cell| {
            let apart = cell.simulated? - cell.published?;
            Some(format!("{apart:+.1}{}", mark(cell)))
        });
    }
    add("  ratio", &|cell| {
        let (published, simulated) = cell.published.zip(cell.simulated)?;
        // Nothing is a multiple of nothing.
        let ratio = (published != 0.0).then(|| digits(simulated / published));
        let mark = if is_of_points { "" } else { mark(cell) };
        Some(format!("{}{mark}", ratio.unwrap_or_default()))
    });
    rows
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

    fn cell(
        cpus: u32,
        published: Option<f64>,
        simulated: Option<f64>,
        met: Option<bool>,
    ) -> Compared {
        Compared {
            cpus,
            published,
            simulated,
            without: 0,
            spread: None,
            met,
        }
    }

    #[test]
    fn numbers_stand_below_each_other_and_misses_are_marked() {
        let hold = Metric::find("hold_mean").unwrap();
        let contention = Metric::find("contention_pct").unwrap();
        let score = crate::published::METRICS
            .iter()
            .find(|metric| metric.is_score())
            .unwrap();
        let mut several = cell(2, Some(15.0), Some(15.2), Some(true));
        several.spread = Some((14.0, 16.0));
        several.without = 1;
        let mut compared = vec![
            (
                contention,
                vec![
                    cell(2, Some(18.3), Some(30.1), Some(false)),
                    cell(8, Some(86.6), Some(80.1), Some(true)),
                ],
            ),
            (hold, vec![several, cell(8, None, Some(1234.5), None)]),
            (
                score,
                vec![cell(2, None, Some(92.1), None), cell(8, None, None, None)],
            ),
        ];
        let found = render("title", Some("km"), &compared);
        let expected = "\
title

CPUs              2      8
lock contention, %
  published    18.3   86.6
  simulated    30.1   80.1
  difference  +11.8*  -6.5
  ratio        1.64   0.92
mean hold, µs
  published      15
  simulated    15.2  1,234
  lowest         14
  highest        16
  no value    1 run
  ratio        1.01
score, km
  simulated    92.1
  absolute values were not published: nothing constrains them

2 of 3 aims met; misses are marked *
";
        assert_eq!(found, expected, "\n{found}");
        // A time is a score.
        let time = Metric::find("completion_s").unwrap();
        compared.push((time, vec![cell(2, Some(220.0), Some(221.0), None)]));
        let found = render("title", None, &compared);
        assert!(!found.contains("constrains"), "{found}");
    }

    /// Of two figures on CPUs where no run ended, none was met.
    #[test]
    fn aims_without_a_simulated_value_are_counted() {
        let contention = Metric::find("contention_pct").unwrap();
        let hold = Metric::find("hold_mean").unwrap();
        let compared = [
            (
                contention,
                vec![
                    cell(2, Some(18.3), Some(20.0), Some(true)),
                    cell(8, Some(86.6), None, None),
                ],
            ),
            (
                hold,
                vec![
                    cell(2, Some(0.0), Some(1.0), Some(false)),
                    cell(8, None, Some(2.0), None),
                ],
            ),
        ];
        let found = render("title", None, &compared);
        let last = found.lines().last().unwrap();
        assert_eq!(
            last,
            "1 of 3 aims met, 1 without a simulated value; misses are marked *"
        );
        // Nor is a ratio to nothing infinite.
        assert!(found.contains("\n  ratio           *\n"), "{found}");
    }

    #[test]
    fn seven_numbers_of_cpus_fit_into_80_columns() {
        let metric = Metric::find("hold_mean").unwrap();
        let cell = |cpus| Compared {
            cpus,
            published: Some(144_429.0),
            simulated: Some(288_858.0),
            without: 99,
            spread: Some((288_858.0, 288_859.0)),
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
