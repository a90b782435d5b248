//! `list`: what there is to name on the command line, and what is measured.

use std::fmt::Write as _;

use anyhow::bail;
use schedlab_machine::Machine;
use schedlab_report::catalogue;
use schedlab_report::export::lines::{fill, pad, width_of};
use schedlab_sim::{Scheduler, SchedulerInfo, SimError};

use crate::args::{Kind, ListArgs};
use crate::output::{print, width};
use crate::status::Status;

/// A thing that can be named.
struct Item {
    name: String,
    summary: String,
    /// Paragraphs, each with its heading; shown where the item is the only one.
    about: Vec<(&'static str, String)>,
    /// Options or further facts, each with its explanation; shown where the item is the only one.
    details: Vec<(String, String)>,
}

pub fn run(args: &ListArgs) -> anyhow::Result<Status> {
    let kinds = match args.kind {
        Some(kind) => vec![kind],
        None => vec![
            Kind::Schedulers,
            Kind::Workloads,
            Kind::Machines,
            Kind::Experiments,
            Kind::Measures,
        ],
    };
    if args.json {
        return json(&kinds, args.name.as_deref());
    }
    let mut text = String::new();
    for kind in &kinds {
        if kinds.len() > 1 {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{}", heading(*kind));
        }
        text.push_str(&list(*kind, args.name.as_deref(), kinds.len() > 1)?);
    }
    print(text)?;
    Ok(Status::Done)
}

/// Returns the lists as one JSON object: a member for each kind, in it an object for each item.
fn json(kinds: &[Kind], filter: Option<&str>) -> anyhow::Result<Status> {
    let mut document = serde_json::Map::new();
    for &kind in kinds {
        let items = matching(kind, filter)?.into_iter().map(|item| {
            let about = item.about.into_iter();
            let about = about.map(|(heading, text)| (heading.to_owned(), text.into()));
            let details = item.details.into_iter();
            let details = details.map(|(name, text)| (name, text.into()));
            serde_json::json!({
                "name": item.name,
                "summary": item.summary,
                "about": serde_json::Map::from_iter(about),
                "details": serde_json::Map::from_iter(details),
            })
        });
        let name = heading(kind).trim_end_matches(':').to_lowercase();
        document.insert(name, items.collect());
    }
    print(serde_json::to_string_pretty(&document)? + "\n")?;
    Ok(Status::Done)
}

fn heading(kind: Kind) -> &'static str {
    match kind {
        Kind::Schedulers => "Schedulers:",
        Kind::Workloads => "Workloads:",
        Kind::Machines => "Machines:",
        Kind::Experiments => "Experiments:",
        Kind::Measures => "Measures:",
    }
}

/// Returns the items of a kind whose names contain the filter, or the one that has it as its name.
fn matching(kind: Kind, filter: Option<&str>) -> anyhow::Result<Vec<Item>> {
    let mut items = match kind {
        Kind::Schedulers => schedulers(filter)?,
        Kind::Workloads => workloads(),
        Kind::Machines => machines()?,
        Kind::Experiments => experiments()?,
        Kind::Measures => measures(),
    };
    if let Some(filter) = filter {
        let exact = items.iter().any(|item| item.name == filter);
        let known: Vec<_> = items.iter().map(|item| item.name.clone()).collect();
        items.retain(|item| {
            if exact {
                item.name == filter
            } else {
                item.name.contains(filter)
            }
        });
        if items.is_empty() {
            match kind {
                Kind::Measures => bail!(
                    "no measure has `{filter}` in its name; `schedlab list measures` shows all"
                ),
                _ => bail!(
                    "nothing has `{filter}` in its name; there are: {}",
                    known.join(", ")
                ),
            }
        }
    }
    Ok(items)
}

fn list(kind: Kind, filter: Option<&str>, indent: bool) -> anyhow::Result<String> {
    let items = matching(kind, filter)?;
    let mut text = String::new();
    let detailed = items.len() == 1 && filter.is_some();
    let names = items.iter().map(|item| item.name.as_str());
    let column = column_of(names, if indent { 2 } else { 0 });
    for item in &items {
        entry(
            &mut text,
            if indent { 2 } else { 0 },
            column,
            &item.name,
            &item.summary,
        );
        if detailed {
            for (heading, paragraph) in &item.about {
                let _ = writeln!(text, "  {heading}:");
                for line in paragraph.lines() {
                    let indent = if line.starts_with("- ") { 6 } else { 4 };
                    fill(&mut text, "    ", line, indent, columns());
                }
            }
            let column = column_of(item.details.iter().map(|(name, _)| name.as_str()), 2);
            for (name, explanation) in &item.details {
                entry(&mut text, 2, column, name, explanation);
            }
        }
    }
    Ok(text)
}

/// Where explanations start: behind the longest name that leaves them room.
fn column_of<'a>(names: impl Iterator<Item = &'a str>, indent: usize) -> usize {
    let widths = names.map(width_of).filter(|&width| width <= 30);
    widths.max().unwrap_or(0) + indent + 2
}

/// `name  explanation`, the explanation wrapped in its column.
fn entry(text: &mut String, indent: usize, column: usize, name: &str, explanation: &str) {
    let mut start = format!("{:indent$}{name}", "");
    if width_of(&start) + 2 > column && !explanation.is_empty() {
        text.push_str(&start);
        text.push('\n');
        start.clear();
    }
    let mut padded = String::new();
    pad(&mut padded, &start, column);
    fill(text, &padded, explanation, column, columns());
}

/// As wide as the terminal, but no wider than one reads.
fn columns() -> usize {
    width().clamp(60, 100)
}

/// Those that have a name, or the one whose path is asked for.
fn schedulers(filter: Option<&str>) -> anyhow::Result<Vec<Item>> {
    let path = filter.filter(|name| Scheduler::plain(*name).is_path());
    let known = match path {
        Some(path) => vec![schedlab_sim::scheduler_at(path).map_err(SimError::from)?],
        None => schedlab_sim::schedulers(),
    };
    Ok(known.into_iter().map(scheduler).collect())
}

fn scheduler(scheduler: SchedulerInfo) -> Item {
    Item {
        name: scheduler.name,
        summary: scheduler.summary,
        // A file of one's own need not say it all.
        about: scheduler
            .about
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .collect(),
        details: scheduler
            .options
            .into_iter()
            .map(|option| {
                let doc = option.doc.unwrap_or_default();
                let doc = match doc.trim_end_matches('.') {
                    "" => String::new(),
                    doc => format!("{doc}; "),
                };
                (
                    format!("{}={}", option.name, option.default),
                    format!("{doc}{}", option.values),
                )
            })
            .collect(),
    }
}

fn workloads() -> Vec<Item> {
    let models = schedlab_workload::list().iter().map(|model| Item {
        name: model.name.to_owned(),
        summary: model.summary.to_owned(),
        about: Vec::new(),
        details: model
            .all_params()
            .map(|param| {
                (
                    format!("{}={}", param.name, param.default),
                    format!("{}; {}", param.doc, param.kind),
                )
            })
            .collect(),
    });
    let files = Item {
        name: "FILE.json".to_owned(),
        summary: "an rt-app task set".to_owned(),
        about: Vec::new(),
        details: Vec::new(),
    };
    models.chain([files]).collect()
}

fn experiments() -> anyhow::Result<Vec<Item>> {
    let mut items = Vec::new();
    for name in schedlab_experiments::builtin_names() {
        if let Some(experiment) = schedlab_experiments::builtin(name) {
            let experiment = experiment?;
            items.push(Item {
                name: name.to_owned(),
                summary: experiment.title,
                about: Vec::new(),
                details: vec![("source".to_owned(), experiment.source)],
            });
        }
    }
    Ok(items)
}

fn machines() -> anyhow::Result<Vec<Item>> {
    Machine::builtin_names()
        .map(|name| {
            let machine = Machine::builtin(name)?;
            let calibration = if machine.is_calibrated() {
                let rows = machine.calibrated_on.iter().map(ToString::to_string);
                format!("calibrated on {}", rows.collect::<Vec<_>>().join("; "))
            } else {
                "data sheet only".to_owned()
            };
            Ok(Item {
                name: name.to_owned(),
                summary: format!("{} ({calibration})", machine.summary),
                about: Vec::new(),
                details: vec![
                    ("CPUs".to_owned(), machine.topology.nr_cpus().to_string()),
                    ("clock".to_owned(), format!("{} MHz", machine.clock_mhz)),
                    ("timer".to_owned(), format!("{} Hz", machine.hz)),
                ],
            })
        })
        .collect()
}

fn measures() -> Vec<Item> {
    let item = |name: &str, unit: &str, meaning: &str, of: Option<&str>| {
        let of = of.map(|of| format!("{of}: ")).unwrap_or_default();
        let unit = match unit {
            "" => String::new(),
            unit => format!(" ({unit})"),
        };
        Item {
            name: name.to_owned(),
            summary: format!("{of}{meaning}{unit}"),
            about: Vec::new(),
            details: Vec::new(),
        }
    };
    let mut items: Vec<Item> = catalogue::ENTRIES
        .iter()
        .map(|entry| item(entry.name, entry.unit, entry.meaning, None))
        .collect();
    items.extend(
        catalogue::REAL_ENTRIES
            .iter()
            .map(|entry| item(entry.name, entry.unit, entry.meaning, Some("real kernel"))),
    );
    for (workloads, measures) in schedlab_workload::catalogue::lists() {
        let own = measures.iter();
        items.extend(own.map(|one| item(one.name, one.unit, one.meaning, Some(&workloads))));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_are_wrapped_in_their_column() {
        let mut text = String::new();
        entry(&mut text, 2, 8, "ab", &"word ".repeat(20));
        for (index, line) in text.lines().enumerate() {
            assert!(width_of(line) <= 80, "{line}");
            let start = if index == 0 {
                "  ab    word"
            } else {
                "        word"
            };
            assert!(line.starts_with(start), "{line}");
        }
        let mut text = String::new();
        entry(&mut text, 0, 4, "a long name", "x");
        assert_eq!(text, "a long name\n    x\n");
        let mut text = String::new();
        entry(&mut text, 0, 4, "a", "");
        assert_eq!(text, "a\n");
    }

    #[test]
    fn everything_can_be_listed() {
        for kind in [
            Kind::Schedulers,
            Kind::Workloads,
            Kind::Machines,
            Kind::Experiments,
            Kind::Measures,
        ] {
            assert!(list(kind, None, false).unwrap().lines().count() > 0);
        }
        let chat = list(Kind::Workloads, Some("chat"), false).unwrap();
        assert!(chat.contains("rooms="), "{chat}");
        assert!(list(Kind::Machines, Some("pdp"), false).is_err());
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/vtime.bpf.c");
        let by_path = list(Kind::Schedulers, Some(path), false).unwrap();
        let vtime = list(Kind::Schedulers, Some("vtime"), false).unwrap();
        let below = |text: &str| {
            text.lines()
                .skip_while(|line| line.trim() != "Idea:")
                .count()
        };
        assert!(by_path.starts_with(path), "{by_path}");
        assert_eq!(below(&by_path), below(&vtime), "{by_path}");
        assert!(list(Kind::Schedulers, Some("./none.bpf.c"), false).is_err());
        for section in [
            "Idea:",
            "Good for:",
            "Bad for:",
            "Source:",
            "Simplifications:",
        ] {
            let mut below = vtime.lines().skip_while(|line| line.trim() != section);
            let text = below.nth(1).unwrap_or_default();
            assert!(text.starts_with("    "), "{section}\n{vtime}");
        }
    }
}
