//! A page: sections of text, tables and charts.

use std::fmt::Write as _;

use minijinja::HtmlEscape;
use minijinja::value::Value;
use minijinja::{Environment, context};
use serde::Serialize;

use crate::{Chart, Timeline, Tree};

/// A page of one HTML file.
#[derive(Clone, Default, Debug)]
pub struct Page {
    pub title: String,
    /// Paragraphs below the title.
    pub lead: Vec<String>,
    pub sections: Vec<Section>,
}

/// A part with a heading.
#[derive(Clone, Default, Debug)]
pub struct Section {
    pub heading: String,
    /// Paragraphs.
    pub text: Vec<String>,
    pub trees: Vec<Tree>,
    /// A timeline without any stretch is not shown.
    pub timelines: Vec<Timeline>,
    /// A chart without any value is not shown.
    pub charts: Vec<Chart>,
    /// A table without any row is not shown, nor is a column without any text.
    pub tables: Vec<Table>,
}

/// Rows and columns. A cell that reads as a number is set to the right.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Table {
    pub caption: String,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns the names of columns as a table has them.
    pub fn head<const N: usize>(names: [&str; N]) -> Vec<String> {
        names.map(str::to_owned).to_vec()
    }

    /// Returns the numbers of its columns that have a text in any row.
    fn columns_with_text(&self) -> Vec<usize> {
        let has_text = |column: &usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(*column));
            cells.any(|cell| !cell.is_empty())
        };
        (0..self.head.len()).filter(has_text).collect()
    }
}

impl Section {
    /// Returns whether nothing stands below its heading.
    pub fn is_empty(&self) -> bool {
        let Section {
            heading: _,
            text,
            trees,
            timelines,
            charts,
            tables,
        } = self;
        text.is_empty()
            && trees.is_empty()
            && timelines.is_empty()
            && charts.is_empty()
            && tables.is_empty()
    }
}

const TEMPLATE: &str = include_str!("page.html");
/// It shows parts of timelines.
const SCRIPT: &str = include_str!("timeline.js");

impl Page {
    /// Returns the page. All text is escaped; nothing is fetched from anywhere.
    pub fn html(&self) -> String {
        let sections = (1..).zip(&self.sections);
        let sections: Vec<Value> = sections.map(|(nr, one)| section(nr, one)).collect();
        let is_live = |section: &Section| section.timelines.iter().any(|one| !one.is_empty());
        let script = match self.sections.iter().any(is_live) {
            true => SCRIPT,
            false => "",
        };
        let script = Value::from_safe_string(script.to_owned());
        let mut environment = Environment::new();
        environment.add_filter("code", code);
        environment
            .add_template("page.html", TEMPLATE)
            .expect("the template is right: a test renders it");
        let template = environment.get_template("page.html").expect("added above");
        template
            .render(context! {
                title => self.title.as_str(), lead => self.lead.clone(), sections => sections, script => script
            })
            .expect("the template knows its variables: a test renders it")
    }
}

/// Text with what stands between backticks as code.
fn code(text: &str) -> Value {
    let mut html = String::new();
    let parts: Vec<&str> = text.split('`').collect();
    for (index, part) in parts.iter().enumerate() {
        let escaped = HtmlEscape(part);
        let _ = match index {
            index if index % 2 == 0 => write!(html, "{escaped}"),
            // The last one has no end.
            index if index + 1 == parts.len() => write!(html, "`{escaped}"),
            _ => write!(html, "<code>{escaped}</code>"),
        };
    }
    Value::from_safe_string(html)
}

fn section(nr: usize, section: &Section) -> Value {
    let picture =
        |svg: String, title: &str| context! { svg => Value::from_safe_string(svg), title => title };
    let trees = section.trees.iter();
    let trees: Vec<Value> = trees.map(|tree| picture(tree.svg(), &tree.title)).collect();
    let timelines = section.timelines.iter().filter(|one| !one.is_empty());
    let timelines = (1..).zip(timelines);
    let timelines: Vec<Value> = timelines
        .map(|(place, one)| Value::from_safe_string(one.html(&format!("t{nr}-{place}"))))
        .collect();
    let charts = section.charts.iter().filter(|chart| chart.has_values());
    let charts: Vec<Value> = charts
        .map(|chart| picture(chart.svg(), &chart.title))
        .collect();
    let tables: Vec<Value> = section
        .tables
        .iter()
        .filter(|table| !table.rows.is_empty())
        .map(|table| {
            let shown = table.columns_with_text();
            let cells = |row: &Vec<String>| -> Vec<Value> {
                let cells = shown.iter().filter_map(|column| row.get(*column));
                cells
                    .map(|cell| context! { text => cell, number => is_number(cell) })
                    .collect()
            };
            let head: Vec<String> = shown
                .iter()
                .map(|column| table.head[*column].clone())
                .collect();
            let rows: Vec<Vec<Value>> = table.rows.iter().map(cells).collect();
            context! { caption => table.caption.as_str(), head => head, rows => rows }
        })
        .collect();
    context! {
        heading => section.heading.as_str(),
        id => id(&section.heading),
        text => section.text.clone(),
        trees => trees,
        timelines => timelines,
        charts => charts,
        tables => tables,
    }
}

/// Returns an anchor that a link can name.
fn id(heading: &str) -> String {
    let mut id = String::new();
    for letter in heading.chars().flat_map(char::to_lowercase) {
        if letter.is_alphanumeric() {
            id.push(letter);
        } else if !id.ends_with('-') {
            id.push('-');
        }
    }
    id.trim_matches('-').to_owned()
}

/// Returns whether a cell is a number, perhaps with a sign, a unit behind it or thousands apart.
fn is_number(cell: &str) -> bool {
    let digits = cell.trim_start_matches(['+', '-', '−', '×', '~', '<', '>', '±', ' ']);
    digits.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Mark, Node, Series};

    #[test]
    fn code_is_set_apart() {
        let html = |text| code(text).to_string();
        assert_eq!(html("a `b<c` d"), "a <code>b&lt;c</code> d");
        assert_eq!(html("a `b` and `c"), "a <code>b</code> and `c");
        assert_eq!(html("a & b"), "a &amp; b");
    }

    #[test]
    fn a_column_without_text_is_not_shown() {
        let texts = |row: [&str; 3]| row.map(str::to_owned).to_vec();
        let table = Table {
            caption: String::new(),
            head: texts(["CPUs", "published", "simulated"]),
            rows: vec![texts(["1", "", "5"]), texts(["2", "", ""])],
        };
        assert_eq!(table.columns_with_text(), [0, 2]);
        let page = Page {
            sections: vec![Section {
                tables: vec![table],
                ..Section::default()
            }],
            ..Page::default()
        };
        let html = page.html();
        assert!(
            html.contains("simulated") && !html.contains("published"),
            "{html}"
        );
    }

    /// A page has a script only for a timeline, and fetches nothing.
    #[test]
    fn a_timeline_has_a_picture_and_a_script() {
        let timeline = Timeline {
            title: "CPUs".into(),
            to_ns: 100,
            kinds: vec![crate::Kind {
                mark: crate::LaneMark::Box,
                words: "runs".into(),
            }],
            names: vec!["cc1".into()],
            lanes: vec![crate::Lane {
                label: "CPU 0".into(),
                stretches: vec![crate::Stretch {
                    from_ns: 10,
                    to_ns: 90,
                    kind: 0,
                    name: 0,
                    more: 0,
                }],
            }],
            ..Timeline::default()
        };
        let page = Page {
            sections: vec![Section {
                timelines: vec![timeline],
                ..Section::default()
            }],
            ..Page::default()
        };
        let html = page.html();
        assert!(
            html.contains("<figure class=\"timeline\" id=\"t1-1\">"),
            "{html}"
        );
        assert_eq!(html.matches("<svg ").count(), 1);
        // Its numbers, and the script that reads them.
        assert_eq!(html.matches("<script").count(), 2);
        assert!(!html.contains("src=") && !html.contains("fetch(") && !html.contains("import "));
    }

    #[test]
    fn a_page_holds_what_it_was_given() {
        let page = Page {
            title: "Chat & more".into(),
            lead: vec!["<b>not bold</b>".into()],
            sections: vec![Section {
                heading: "On 8 CPUs, then".into(),
                text: vec!["A paragraph.".into()],
                trees: vec![Tree {
                    title: "A tree".into(),
                    root: Node::plain("its root", Vec::new()),
                }],
                timelines: vec![Timeline::default()],
                charts: vec![Chart {
                    title: "Throughput".into(),
                    x: Axis::linear("CPUs"),
                    y: Axis::linear("messages/s"),
                    series: vec![Series {
                        name: "dss".into(),
                        mark: Mark::Line,
                        points: vec![(1.0, 2.0).into()],
                    }],
                }],
                tables: vec![
                    Table {
                        caption: "Ratios".into(),
                        head: vec!["CPUs".into(), "who".into()],
                        rows: vec![
                            vec!["−8.5 %".into(), "dss".into()],
                            vec!["".into(), "x".repeat(150)],
                        ],
                    },
                    Table {
                        caption: "No rows".into(),
                        ..Table::default()
                    },
                ],
            }],
        };
        let html = page.html();
        assert!(html.starts_with("<!doctype html>"), "{html}");
        assert!(html.contains("<title>Chat &amp; more</title>"));
        assert!(html.contains("&lt;b&gt;not bold"));
        assert!(html.contains("id=\"on-8-cpus-then\""));
        assert_eq!(html.matches("<svg ").count(), 2, "a tree and a chart");
        assert!(html.contains("its root"));
        // An empty part is left out.
        assert!(!html.contains("No rows"));
        assert!(html.contains("<td class=\"number\">−8.5 %</td>"));
        assert!(html.contains("<td>dss</td>"));
        // Characters after which a word may be broken.
        assert!(html.contains("<td class=\"long\">xxx"));
        assert!(!html.contains("<script") && !html.contains("src=\"http"));
        assert_eq!(html, page.html());
    }
}
