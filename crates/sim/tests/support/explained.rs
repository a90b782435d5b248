//! The expected explanation by `schedlab explain` for each rule of `tests/misbehave`, and the table of
//! docs/explain.md with the outcome.
#![allow(dead_code, reason = "each test file uses the part of it that it needs")]

use std::collections::BTreeMap;

use schedlab_explain::{Culprit, Explanation};
use serde::Deserialize;

use crate::support::rules::{self, Expect, Rule, Rules};

/// An entry of tests/misbehave/explain.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub culprit: Culprit,
    #[serde(default)]
    names: Vec<String>,
}

/// Whether a rule's run ends its scheduler, so that there is something to explain.
pub fn is_ejection(rule: &Rule) -> bool {
    !matches!(rule.expect, Expect::Holds | Expect::Done)
}

/// All entries by rule.
pub fn read() -> BTreeMap<String, Expected> {
    let path = rules::folder().join("explain.toml");
    let text = std::fs::read_to_string(&path).expect("tests/misbehave/explain.toml is readable");
    let expected: BTreeMap<String, Expected> =
        toml::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
    let rules = Rules::read();
    for rule in rules.all().iter().filter(|rule| is_ejection(rule)) {
        assert!(
            expected.contains_key(&rule.name),
            "{0}: its ejection has no entry in tests/misbehave/explain.toml; add [{0}] with the culprit that `schedlab \
             explain` is to name (crates/explain/src/culprit.rs) and words of its first sentence",
            rule.name
        );
    }
    for name in expected.keys() {
        let known = rules
            .all()
            .iter()
            .any(|rule| rule.name == *name && is_ejection(rule));
        assert!(
            known,
            "tests/misbehave/explain.toml: [{name}] is no rule that ends in an ejection"
        );
    }
    expected
}

/// Whether an explanation names the fault that was built in.
pub fn judge(expected: &Expected, found: Option<&Explanation>) -> Result<(), String> {
    let Some(found) = found else {
        return Err("no ejection was found".to_owned());
    };
    if found.culprit != expected.culprit {
        return Err(format!("{:?} was named: {}", found.culprit, found.sentence));
    }
    match expected
        .names
        .iter()
        .find(|name| !found.sentence.contains(*name))
    {
        Some(name) => Err(format!("`{name}` is missing: {}", found.sentence)),
        None => Ok(()),
    }
}

/// The name of a culprit as the file and the page write it.
pub fn name(culprit: Culprit) -> String {
    serde_json::to_value(culprit)
        .ok()
        .and_then(|value| Some(value.as_str()?.to_owned()))
        .expect("a culprit has a name")
}

/// For one culprit: the rules that have it, and how many of them were named right.
pub type Counts = BTreeMap<String, (usize, usize)>;

/// The rows of the part of docs/explain.md that `world` has.
pub fn table(counts: &Counts) -> String {
    let mut text = String::from("| fault | rules | named right |\n|---|---|---|\n");
    let (mut all, mut right) = (0, 0);
    for (culprit, (rules, named)) in counts {
        text.push_str(&format!("| `{culprit}` | {rules} | {named} |\n"));
        all += rules;
        right += named;
    }
    text.push_str(&format!("| all | {all} | {right} |\n"));
    text
}

/// Compares a table with docs/explain.md, or writes it there (SCHEDLAB_BLESS=1).
pub fn compare(world: &str, table: &str, how: &str) {
    let path = rules::repository().join("docs/explain.md");
    let text = std::fs::read_to_string(&path).expect("docs/explain.md is readable");
    let (begin, end) = (
        format!("<!-- {world} -->\n"),
        format!("<!-- end of {world} -->"),
    );
    let parts = text.split_once(&begin).and_then(|(before, rest)| {
        let (old, after) = rest.split_once(&end)?;
        Some((before, old, after))
    });
    let (before, old, after) = parts.expect("docs/explain.md has the table's marks");
    let table = format!("\n{table}\n");
    if std::env::var_os("SCHEDLAB_BLESS").is_some() {
        let new = format!("{before}{begin}{table}{end}{after}");
        std::fs::write(&path, new).expect("docs/explain.md can be written");
        return;
    }
    assert_eq!(
        old, table,
        "docs/explain.md is out of date: SCHEDLAB_BLESS=1 {how}"
    );
}
