//! Everything about one workload.

use schedlab_sweep::{Definition, Row};
use serde::Serialize;

use crate::study::{Set, study};
use crate::{
    AnalysisError, Bounds, Data, Front, LeftOut, Mute, Node, Study, Variance, mute, pareto, tree,
    variance, words,
};

/// The measure that stands beside the one that is looked at.
const SECOND: &str = "wakeup.latency_ns_p99";

/// What a sweep says of one workload.
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
    /// What to do, in words.
    pub words: String,
    /// Schedulers that are not compared.
    pub left_out: LeftOut,
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

/// Analyses the results of a workload.
///
/// # Errors
/// If there is no such measure or nobody has it.
pub fn analyse(
    definition: &Definition,
    rows: &[Row],
    workload: &str,
    measure: &str,
    bounds: &Bounds,
) -> Result<Analysis, AnalysisError> {
    let data = Data::new(definition, rows, workload, measure)?;
    let second = Data::new(definition, rows, workload, SECOND).ok();
    Ok(of(&data, second.as_ref(), workload, bounds))
}

pub(crate) fn of(data: &Data, second: Option<&Data>, workload: &str, bounds: &Bounds) -> Analysis {
    let choices = data.choices();
    let mute = mute::mute(data, &choices);
    let mut study = study(data, &choices, bounds, &mute);
    let variance = variance::variance(data, &choices, bounds, &mute);
    study.confirm(&variance);
    let mut good = vec![false; data.values.len()];
    for (point, set) in &study.picture {
        good[*point] = matches!(set, Set::B | Set::Fb);
    }
    let points: Vec<usize> = study.picture.iter().map(|(point, _)| *point).collect();
    let tree = tree::grow(data, &choices, &points, &good);
    let mut relative = vec![None; data.values.len()];
    for &point in &points {
        relative[point] = Some(data.relative(data.mean(point), study.best));
    }
    let both: Vec<(usize, f64, f64)> = second.map_or_else(Vec::new, |second| {
        let mut points = points.clone();
        points.sort_unstable();
        points.retain(|&point| !second.values[point].is_empty());
        let both = |point| (point, data.mean(point), second.mean(point));
        points.into_iter().map(both).collect()
    });
    let front = second.map(|second| pareto::front(data, second, &both));
    let mut analysis = Analysis {
        workload: workload.to_owned(),
        measure: data.metric.name.clone(),
        unit: data.metric.unit.clone(),
        higher_is_better: data.metric.higher,
        seeds: data.seeds(),
        words: String::new(),
        relative,
        left_out: data.left_out.clone(),
        study,
        variance,
        mute,
        tree,
        second_measure: SECOND.to_owned(),
        front: front.unwrap_or_default(),
        both: both.iter().map(|(_, one, other)| (*one, *other)).collect(),
    };
    analysis.words = words::paragraph(&analysis);
    analysis
}

impl Analysis {
    /// What is more than chance: features, pairs and alternatives by name.
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
