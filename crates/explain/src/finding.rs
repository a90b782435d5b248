//! The facts that explain an ejection, before they are put into words.

use serde::Serialize;

use crate::culprit::Culprit;
use crate::dump::Ejection;

/// How much of the answer the text shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// The text shows it.
    Shown,
    /// The text suggests it.
    Likely,
    /// The text does not say.
    Open,
}

impl Certainty {
    pub fn words(self) -> &'static str {
        match self {
            Certainty::Shown => "the text shows it",
            Certainty::Likely => "likely: the text suggests it and does not prove it",
            Certainty::Open => "open: the text does not show the cause",
        }
    }
}

/// The finding, before its subject is known.
pub struct Finding {
    pub culprit: Culprit,
    pub certainty: Certainty,
    pub sentence: String,
    pub evidence: Vec<String>,
    pub function: &'static str,
    pub rule: String,
    pub cure: String,
}

/// Returns the messages of the kernel's other watchdogs.
pub fn lockups(ejection: &Ejection) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for (cpu, seconds) in &ejection.lockups {
        let line = format!("the kernel found CPU {cpu} stuck for {seconds} s (soft lockup)");
        if !told.contains(&line) {
            told.push(line);
        }
    }
    if ejection.rcu_stall {
        told.push("the kernel reported a stall of RCU".to_owned());
    }
    told
}

/// Returns a time as people read it: three digits of it matter.
pub fn seconds(text: &str) -> String {
    let value: f64 = text.parse().unwrap_or(0.0);
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}
