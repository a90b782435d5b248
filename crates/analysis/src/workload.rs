//! Everything about one workload.

use schedlab_sweep::{Definition, Row};

use crate::search::{Found, found};
use crate::study::{Set, study};
use crate::{Analysis, AnalysisError, Bounds, Data, Search, mute, pareto, tree, variance, words};

/// The measure that stands beside the one that is looked at.
const SECOND: &str = "wakeup.latency_ns_p99";

/// The measure that a search is for.
const SCORE: &str = "score";

/// Analyses the results of a workload.
///
/// # Errors
/// If the measure does not exist or no run has it.
pub fn analyse(
    definition: &Definition,
    rows: &[Row],
    workload: &str,
    measure: &str,
    bounds: &Bounds,
) -> Result<Analysis, AnalysisError> {
    let data = Data::new(definition, rows, workload, measure)?;
    let second = Data::new(definition, rows, workload, SECOND).ok();
    // The model of a search is of the score; of another measure it has a balanced sample.
    Ok(match found(definition, rows, workload, &data) {
        None => of(&data, second.as_ref(), workload, bounds),
        Some(found) if measure == SCORE => {
            let Found {
                search,
                sample,
                completed,
            } = found;
            of_parts(
                &completed,
                &sample,
                Some(search),
                second.as_ref(),
                workload,
                bounds,
            )
        }
        Some(found) => of(&found.sample, second.as_ref(), workload, bounds),
    })
}

pub(crate) fn of(data: &Data, second: Option<&Data>, workload: &str, bounds: &Bounds) -> Analysis {
    of_parts(data, data, None, second, workload, bounds)
}

/// `data` has the schedulers that are sorted into sets, `sample` those whose differences are taken apart.
fn of_parts(
    data: &Data,
    sample: &Data,
    search: Option<Search>,
    second: Option<&Data>,
    workload: &str,
    bounds: &Bounds,
) -> Analysis {
    let choices = data.choices();
    // Equal estimates are no proof that schedulers are the same.
    let mute = mute::mute(sample, &choices);
    let mut study = study(data, &choices, bounds, &mute);
    let variance = variance::variance(sample, &choices, bounds, &mute);
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
        search,
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
