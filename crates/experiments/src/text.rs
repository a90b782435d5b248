//! An experiment for a terminal: a block per panel, a column per number of CPUs.

use std::fmt::Write as _;

use schedlab_report::export::lines::{fill, pad, width_of};
use schedlab_report::export::number::{digits, grouped};

use crate::evaluate::{Cell, Panel, Standing};
use crate::{Experiment, Finding};

/// Width of the first column, unless a name or the axis is longer; those beyond the other number have a line of
/// their own.
const LABEL: usize = 16;
const LABEL_MAX: usize = 28;
/// Width of the others with the gap, unless a number or a heading is longer.
const COLUMN: usize = 8;

/// Widths of a panel's columns.
#[derive(Clone, Copy)]
struct Widths {
    label: usize,
    column: usize,
}

impl Widths {
    fn of(panel: &Panel) -> Widths {
        let labels = panel.rows.iter().map(|row| &row.scheduler);
        let axis = panel.axis();
        let labels = labels.chain([&axis]).map(|label| 4 + width_of(label));
        let numbers = panel
            .rows
            .iter()
            .flat_map(|row| &row.cells)
            .flat_map(|cell| {
                let summaries = [cell.simulated, cell.real].into_iter().flatten();
                let values = summaries.flat_map(|one| [one.median, one.low, one.high]);
                values.chain(cell.published)
            });
        let numbers = numbers.map(grouped);
        let headings = panel.columns.iter().map(|&x| short(x));
        let words = numbers.chain(headings);
        Widths {
            label: labels
                .map(|label| label + 1)
                .filter(|&label| label <= LABEL_MAX)
                .fold(LABEL, usize::max),
            column: words
                .map(|word| width_of(&word) + 1)
                .fold(COLUMN, usize::max),
        }
    }
}

/// The experiment as text of at most `width` columns: first what came out of it.
pub fn text(
    experiment: &Experiment,
    findings: &[Finding],
    panels: &[Panel],
    width: usize,
) -> String {
    let mut out = format!("{}: {}\n", experiment.name, experiment.title);
    if !findings.is_empty() {
        out.push('\n');
    }
    for finding in findings {
        fill(&mut out, "", &finding.told(), 2, width);
    }
    let mut title = String::new();
    for panel in panels {
        if panel.title() != title {
            title = panel.title();
            let _ = write!(out, "\n{title}");
            if panel.data_sheet_only {
                let _ = write!(out, " (data sheet only)");
            }
            out.push('\n');
        }
        let widths = Widths::of(panel);
        let per_block = (width.saturating_sub(widths.label) / widths.column).max(1);
        for start in (0..panel.columns.len()).step_by(per_block) {
            let end = (start + per_block).min(panel.columns.len());
            block(&mut out, panel, widths, start..end);
        }
    }
    if panels.is_empty() {
        out.push_str("\nnothing could be measured\n");
    }
    let emulated = |cell: &Cell| cell.real.is_some();
    let cells = || {
        panels
            .iter()
            .flat_map(|p| &p.rows)
            .flat_map(|row| &row.cells)
    };
    if cells().any(Cell::is_marked) {
        out.push_str("\n!: without runs that failed, and ratios to runs that failed and to 0\n");
    }
    if cells().any(emulated) {
        out.push_str("\nemulated: the real program in a real kernel, in a virtual machine (compare\ncounts and orders, not times)\n");
    }
    let standings: Vec<Standing> = cells().filter_map(|cell| cell.standing).collect();
    if let Some(told) = uses(&standings) {
        let _ = writeln!(out, "\n{told}");
    }
    out
}

/// Returns the uses of the published values.
fn uses(standings: &[Standing]) -> Option<String> {
    let count = |of: Standing| standings.iter().filter(|&&one| one == of).count();
    let (fitted, predicted) = (count(Standing::Calibration), count(Standing::Predicted));
    let used = match fitted {
        0 => "no published value was used for calibration",
        1 => "1 published value was used for calibration (ratio marked c)",
        _ => &format!("{fitted} published values were used for calibration (ratio marked c)"),
    };
    let are = match predicted {
        0 => "none is",
        1 => "1 is",
        _ => &format!("{predicted} are"),
    };
    (!standings.is_empty()).then(|| format!("{used}, {are} predicted"))
}

fn block(out: &mut String, panel: &Panel, widths: Widths, columns: std::ops::Range<usize>) {
    let _ = writeln!(out, "  {}", panel.heading);
    line(
        out,
        widths,
        &format!("    {}", panel.axis()),
        &panel.columns[columns.clone()],
        |&x| Some(short(x)),
    );
    for row in &panel.rows {
        let cells = &row.cells[columns.clone()];
        if cells.iter().any(|cell| cell.published.is_some()) {
            line(out, widths, "    published", cells, |cell| {
                cell.published.map(grouped)
            });
        }
        line(
            out,
            widths,
            &format!("    {}", row.scheduler),
            cells,
            Cell::told,
        );
        let repeated = |cell: &Cell| cell.simulated.is_some_and(|simulated| simulated.seeds > 1);
        if cells.iter().any(repeated) {
            line(out, widths, "      lowest", cells, |cell| {
                Some(grouped(cell.simulated?.low))
            });
            line(out, widths, "      highest", cells, |cell| {
                Some(grouped(cell.simulated?.high))
            });
        }
        if cells.iter().any(|cell| cell.real.is_some()) {
            line(out, widths, "      emulated", cells, |cell| {
                Some(grouped(cell.real?.median))
            });
        }
        if cells.iter().any(|cell| cell.ratio().is_some()) {
            line(out, widths, "      ratio", cells, |cell| {
                let mark = match cell.standing {
                    Some(Standing::Calibration) => "c",
                    _ => "",
                };
                Some(format!("{}{mark}", digits(cell.ratio()?)))
            });
        }
    }
}

/// A value of an axis: whole numbers without a point.
fn short(x: f64) -> String {
    if x.fract() == 0.0 {
        format!("{x:.0}")
    } else {
        digits(x)
    }
}

fn line<T>(
    out: &mut String,
    widths: Widths,
    label: &str,
    items: &[T],
    of: impl Fn(&T) -> Option<String>,
) {
    let Widths {
        label: first,
        column,
    } = widths;
    let mut line = String::new();
    pad(&mut line, label, first);
    if width_of(label) >= first {
        // A long name has a line of its own.
        out.push_str(line.trim_end());
        out.push('\n');
        line = " ".repeat(first);
    }
    for (index, item) in items.iter().enumerate() {
        let word = of(item).unwrap_or_default();
        // The marks of calibration and of failures hang over, so that numbers stay below each other.
        let over = usize::from(word.ends_with(['c', '!']));
        let end = first + (index + 1) * column - 1 + over;
        let width = end.saturating_sub(width_of(&line));
        let _ = write!(line, "{word:>width$}");
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::{Row, Summary};

    fn experiment() -> Experiment {
        Experiment {
            name: "x".into(),
            title: "Chat".into(),
            ..Experiment::default()
        }
    }

    #[test]
    fn a_block_reads_like_a_table() {
        let cell = |median: f64, published, standing| Cell {
            simulated: Some(Summary {
                median,
                low: median - 1.0,
                high: median + 1.0,
                seeds: 2,
            }),
            real: None,
            published,
            standing,
            failed: false,
            undefined: false,
        };
        let mut panel = Panel {
            workload: "chat".into(),
            machine: "netfinity-8500r".into(),
            heading: "mean hold, µs".into(),
            data_sheet_only: true,
            columns: vec![2.0, 8.0],
            rows: vec![
                Row {
                    scheduler: "dss".into(),
                    cells: vec![
                        cell(15.0, Some(30.0), Some(Standing::Calibration)),
                        cell(22.0, Some(11.0), Some(Standing::Predicted)),
                    ],
                },
                Row {
                    scheduler: "a-scheduler-of-some-length".into(),
                    cells: vec![cell(1_234.0, None, None), Cell::default()],
                },
            ],
            ..Panel::default()
        };
        let expected = "\
x: Chat

chat on netfinity-8500r (data sheet only)
  mean hold, µs
    CPUs              2       8
    published        30      11
    dss              15      22
      lowest         14      21
      highest        16      23
      ratio        0.50c   2.00
    a-scheduler-of-some-length
                  1,234
      lowest      1,233
      highest     1,235

1 published value was used for calibration (ratio marked c), 1 is predicted
";
        let printed = text(&experiment(), &[], std::slice::from_ref(&panel), 80);
        assert_eq!(printed, expected);

        panel.rows[1].cells[0].failed = true;
        panel.rows[1].cells[1].failed = true;
        let printed = text(&experiment(), &[], std::slice::from_ref(&panel), 80);
        let marked = "\n                  1,234!       !\n";
        assert!(printed.contains(marked), "{printed}");
        let told = "\n\n!: without runs that failed, and ratios to runs that failed and to 0\n";
        assert!(printed.contains(told), "{printed}");

        panel.rows[1].cells[0].failed = false;
        panel.rows[1].cells[0].undefined = true;
        let printed = text(&experiment(), &[], std::slice::from_ref(&panel), 80);
        assert!(printed.contains(marked), "{printed}");
        assert!(printed.contains(told), "{printed}");

        panel.rows[0].cells[1].real = Some(Summary {
            median: 47.0,
            low: 47.0,
            high: 47.0,
            seeds: 1,
        });
        let beside = "
      highest        16      23
      emulated               47
      ratio        0.50c   2.00
";
        let printed = text(&experiment(), &[], &[panel], 80);
        assert!(printed.contains(beside), "{printed}");
        assert!(printed.contains("in a virtual machine"), "{printed}");
    }

    #[test]
    fn published_values_are_used_for_calibration_or_predicted() {
        use Standing::{Calibration, Predicted};
        let fitted = "used for calibration (ratio marked c)";
        let cases: [(&[Standing], Option<String>); 6] = [
            (&[], None),
            (
                &[Predicted],
                Some("no published value was used for calibration, 1 is predicted".into()),
            ),
            (
                &[Predicted; 2],
                Some("no published value was used for calibration, 2 are predicted".into()),
            ),
            (
                &[Calibration],
                Some(format!("1 published value was {fitted}, none is predicted")),
            ),
            (
                &[Calibration; 3],
                Some(format!(
                    "3 published values were {fitted}, none is predicted"
                )),
            ),
            (
                &[Calibration, Predicted, Calibration],
                Some(format!("2 published values were {fitted}, 1 is predicted")),
            ),
        ];
        for (standings, told) in cases {
            assert_eq!(uses(standings), told);
        }
    }

    #[test]
    fn nothing_measured_is_told() {
        let printed = text(&experiment(), &[], &[], 80);
        assert_eq!(printed, "x: Chat\n\nnothing could be measured\n");
    }

    #[test]
    fn what_came_out_stands_before_the_figures() {
        let finding = Finding {
            text: "one is less".into(),
            holds: Some(true),
            detail: "1 for a and 2 for b".into(),
        };
        let printed = text(&experiment(), &[finding], &[], 40);
        let expected = "x: Chat\n\nExpected: one is less. So it is here: 1\n  for a and 2 for b.\n";
        assert!(printed.starts_with(expected), "{printed}");
    }

    /// Widths of columns count their headings, too: an option's value in ns or bytes is long.
    #[test]
    fn headings_of_columns_have_gaps() {
        let mut panel = Panel {
            workload: "httpd".into(),
            machine: "m".into(),
            cpus: Some(2),
            heading: "score".into(),
            over: crate::over::Over::Option("duration".into()),
            unit: Some("ns"),
            columns: vec![100_000_000.0, 200_000_000.0],
            rows: vec![Row {
                scheduler: "dss".into(),
                cells: vec![
                    Cell {
                        published: Some(15.0),
                        ..Cell::default()
                    };
                    2
                ],
            }],
            ..Panel::default()
        };
        let expected = "
  score
    duration, ns 100000000 200000000
    published           15        15
";
        let printed = text(&experiment(), &[], std::slice::from_ref(&panel), 80);
        assert!(printed.contains(expected), "{printed}");

        // Longer than a label may be: a line of its own.
        panel.over = crate::over::Over::Option("o".repeat(LABEL_MAX));
        let expected = format!(
            "\n    {}, ns\n                {}\n",
            "o".repeat(LABEL_MAX),
            "100000000 200000000"
        );
        let printed = text(&experiment(), &[], &[panel], 80);
        assert!(printed.contains(&expected), "{printed}");
    }
}
