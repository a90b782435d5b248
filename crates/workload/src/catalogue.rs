//! Defines the workloads' own measures: for lists, `docs/measures.md` and the tests.

use crate::{Measure, list, recorded, rtapp};

/// Returns each list of measures, with the workloads that have it.
pub fn lists() -> Vec<(String, &'static [Measure])> {
    let mut lists: Vec<(String, &'static [Measure])> = Vec::new();
    for model in list() {
        match lists.iter_mut().find(|(_, known)| *known == model.measures) {
            Some((names, _)) => names.push_str(&format!(", {}", model.name)),
            None => lists.push((model.name.to_owned(), model.measures)),
        }
    }
    lists.push(("rt-app file".to_owned(), rtapp::MEASURES));
    lists.push(("workload file".to_owned(), recorded::MEASURES));
    lists
}

/// Returns the measures of all workloads as a Markdown table.
pub fn markdown() -> String {
    let mut text = String::from("| workload | measure | unit | meaning |\n|---|---|---|---|\n");
    for (workload, measures) in lists() {
        for Measure {
            name,
            unit,
            meaning,
        } in measures
        {
            text.push_str(&format!("| {workload} | `{name}` | {unit} | {meaning} |\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    #[test]
    fn every_workload_names_its_score_and_its_work_first() {
        for model in list() {
            let workload = Workload::parse(model.name, 2).unwrap();
            let names: Vec<_> = model.measures.iter().map(|one| one.name).collect();
            assert_eq!(names[..2], [workload.score.name, "work"], "{}", model.name);
            assert_eq!(model.measures[0].unit, workload.score.unit);
            for (i, name) in names.iter().enumerate() {
                assert!(!names[..i].contains(name), "{}: {name}", model.name);
            }
        }
    }

    /// `docs/measures.md` holds this list. To renew it: `SCHEDLAB_BLESS=1 cargo test -p schedlab-workload`.
    #[test]
    fn the_document_lists_every_measure() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/measures.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (before, rest) = text
            .split_once("| workload | measure |")
            .expect("a table of the workloads' measures");
        let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
        let expected = format!("{before}{}\n{after}", markdown());
        if std::env::var_os("SCHEDLAB_BLESS").is_some() {
            std::fs::write(path, &expected).unwrap();
        } else {
            assert!(
                text == expected,
                "docs/measures.md is out of date: SCHEDLAB_BLESS=1 cargo test -p schedlab-workload"
            );
        }
    }
}
