//! Analyses a sweep for one workload.

use serde::Serialize;

use crate::{Front, LeftOut, Mute, Node, Search, Study, Variance};

/// The analysis of a sweep for one workload.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Analysis {
    /// The workload.
    pub workload: String,
    /// The measure.
    pub measure: String,
    /// Its unit.
    pub unit: String,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// Runs of each scheduler.
    pub seeds: usize,
    /// The advice, in words.
    pub words: String,
    /// Schedulers that are not compared.
    pub left_out: LeftOut,
    /// The runs and the winner of a search; absent where all was to be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
    /// The study's method.
    pub study: Study,
    /// Where the differences come from.
    pub variance: Variance,
    /// Alternatives that are one.
    pub mute: Mute,
    /// Which schedulers are good, as a tree.
    pub tree: Node,
    /// The second measure of the front.
    pub second_measure: String,
    /// Schedulers that no other beats in both measures.
    pub front: Vec<Front>,
    /// How each point compares with the best, 1 being the best; absent where it was not measured or is
    /// not looked at.
    #[serde(skip)]
    pub relative: Vec<Option<f64>>,
    /// Both measures of each point, for the picture of the front.
    #[serde(skip)]
    pub both: Vec<(f64, f64)>,
}

impl Analysis {
    /// Findings beyond chance: features, pairs and alternatives by name.
    pub fn findings(&self) -> Vec<String> {
        let effects = self.variance.effects.iter();
        let effects = effects.filter(|effect| effect.significant);
        let pairs = self
            .variance
            .interactions
            .iter()
            .filter(|pair| pair.significant);
        let alternatives = self.study.alternatives.iter().filter(|one| one.significant);
        effects
            .map(|effect| effect.feature.clone())
            .chain(pairs.map(|pair| pair.features.join(" × ")))
            .chain(alternatives.map(|one| format!("{}={}", one.feature, one.alternative)))
            .collect()
    }
}
