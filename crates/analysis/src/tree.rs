//! A decision tree small enough to read: which schedulers are good. Each question is whether a feature has
//! one alternative, so that no order of alternatives is assumed.

use schedlab_trace::counted;
use serde::Serialize;

use crate::Data;

/// Deepest question.
const DEPTH_MAX: usize = 3;
/// A leaf has at least this part of all schedulers.
const LEAF_MIN_PCT: usize = 2;
/// The least part of the separable differences that a question must separate.
const GAIN_MIN: f64 = 0.01;

/// A node.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Node {
    /// Schedulers here.
    pub schedulers: usize,
    /// Those among them that are good, in percent.
    pub good_pct: f64,
    /// The question; absent at a leaf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<Box<Question>>,
}

/// A question and where the answers lead.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Question {
    /// The feature.
    pub feature: String,
    /// Whether it has this alternative.
    pub alternative: String,
    /// It has.
    pub yes: Node,
    /// It has not.
    pub no: Node,
}

/// Grows it; `good` says of each point whether it is one of the good ones.
pub fn grow(data: &Data, choices: &[Vec<usize>], points: &[usize], good: &[bool]) -> Node {
    let all = points.len();
    let whole = impurity(points, good) * all as f64;
    node(data, choices, points, good, DEPTH_MAX, all, whole)
}

/// Gini's measure of how mixed a set is.
fn impurity(points: &[usize], good: &[bool]) -> f64 {
    if points.is_empty() {
        return 0.0;
    }
    let part = share(points, good);
    2.0 * part * (1.0 - part)
}

fn share(points: &[usize], good: &[bool]) -> f64 {
    points.iter().filter(|&&point| good[point]).count() as f64 / points.len() as f64
}

fn node(
    data: &Data,
    choices: &[Vec<usize>],
    points: &[usize],
    good: &[bool],
    depth: usize,
    all: usize,
    whole: f64,
) -> Node {
    let mut leaf = Node {
        schedulers: points.len(),
        good_pct: 100.0 * share(points, good),
        question: None,
    };
    if depth == 0 {
        return leaf;
    }
    let here = impurity(points, good) * points.len() as f64;
    let least = (all * LEAF_MIN_PCT / 100).max(1);
    let mut best: Option<(f64, usize, usize)> = None;
    for (feature, info) in data.features().iter().enumerate() {
        for choice in 0..info.alternatives.len() {
            let (yes, no): (Vec<usize>, Vec<usize>) = points
                .iter()
                .partition(|&&point| choices[point][feature] == choice);
            if yes.len() < least || no.len() < least {
                continue;
            }
            let left =
                impurity(&yes, good) * yes.len() as f64 + impurity(&no, good) * no.len() as f64;
            let gain = here - left;
            // Of equals the first, whatever the rounding.
            if best.as_ref().is_none_or(|(known, ..)| gain > known + 1e-9) {
                best = Some((gain, feature, choice));
            }
        }
    }
    let Some((gain, feature, choice)) = best else {
        return leaf;
    };
    if whole <= 0.0 || gain < GAIN_MIN * whole {
        return leaf;
    }
    let (yes, no): (Vec<usize>, Vec<usize>) = points
        .iter()
        .partition(|&&point| choices[point][feature] == choice);
    let info = &data.features()[feature];
    let grow = |points: &[usize]| node(data, choices, points, good, depth - 1, all, whole);
    leaf.question = Some(Box::new(Question {
        feature: info.name.clone(),
        alternative: info.alternatives[choice].clone(),
        yes: grow(&yes),
        no: grow(&no),
    }));
    leaf
}

impl Node {
    /// Returns whether it asks about a feature.
    pub fn asks(&self, feature: &str) -> bool {
        self.question.as_ref().is_some_and(|question| {
            let answers = [&question.yes, &question.no];
            question.feature == feature || answers.iter().any(|node| node.asks(feature))
        })
    }

    /// Returns its schedulers and the part of them that is good.
    pub fn words(&self) -> String {
        let schedulers = counted(self.schedulers as u64, "scheduler");
        format!("{schedulers}, {:.0} % good", self.good_pct)
    }

    /// As indented lines.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.write(&mut lines, "", "");
        lines
    }

    fn write(&self, lines: &mut Vec<String>, indent: &str, answer: &str) {
        lines.push(format!("{indent}{answer}{}", self.words()));
        if let Some(question) = &self.question {
            let deeper = format!("{indent}    ");
            let (feature, alternative) = (&question.feature, &question.alternative);
            question
                .yes
                .write(lines, &deeper, &format!("{feature} = {alternative}: "));
            question
                .no
                .write(lines, &deeper, &format!("{feature} ≠ {alternative}: "));
        }
    }
}
