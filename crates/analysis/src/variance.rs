//! Where the differences come from: the variance over all schedulers, taken apart into what each feature
//! does alone, what each pair does together, and the rest. Over a full factorial this is exact: the parts
//! are orthogonal and add up, without a model.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, FisherSnedecor, StudentsT};

use crate::data::{deviation, mean, part};
use crate::{Bounds, Data, Mute};

/// An alternative's mean over all schedulers that have it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Level {
    /// The alternative.
    pub alternative: String,
    /// Its mean.
    pub mean: f64,
    /// How much better than the mean of all, in percent of that.
    pub better_pct: f64,
    /// 95 % interval of that over seeds, each seed being one measurement; absent with one seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_pct: Option<[f64; 2]>,
}

/// What a feature does by itself.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Effect {
    /// The feature.
    pub feature: String,
    /// Share of the variance, in percent.
    pub share_pct: f64,
    /// Probability of such a share by chance, if the feature did nothing.
    pub p: f64,
    /// Whether that is small enough among so many tests.
    pub significant: bool,
    /// Its alternatives.
    pub levels: Vec<Level>,
}

/// What two features do beyond what each does by itself.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Interaction {
    /// The two.
    pub features: [String; 2],
    /// Share of the variance, in percent.
    pub share_pct: f64,
    /// As of effects.
    pub p: f64,
    /// As of effects.
    pub significant: bool,
    /// Mean of each combination: (alternative of the one, of the other, mean).
    pub cells: Vec<(String, String, f64)>,
}

/// The parts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Variance {
    /// All points of the space were measured, so the parts are exact. Otherwise there are only main
    /// effects, and these are estimates.
    pub exact: bool,
    /// Mean over all schedulers.
    pub mean: f64,
    /// Standard deviation over all schedulers, in percent of the mean.
    pub deviation_pct: f64,
    /// What features do alone, the greatest share first.
    pub effects: Vec<Effect>,
    /// What pairs do together, the greatest share first.
    pub interactions: Vec<Interaction>,
    /// What three and more do together, and chance, in percent.
    pub rest_pct: f64,
    /// Share of the variance that chance alone makes, from the differences between seeds, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_pct: Option<f64>,
}

/// A sum of squares with its degrees of freedom.
struct Part {
    squares: f64,
    freedom: f64,
}

/// Means over groups of points.
fn grouped(
    points: &[usize],
    values: &[f64],
    groups: usize,
    group: impl Fn(usize) -> usize,
) -> (Vec<f64>, Vec<f64>) {
    let (mut sums, mut counts) = (vec![0.0; groups], vec![0.0; groups]);
    for (&point, value) in points.iter().zip(values) {
        sums[group(point)] += value;
        counts[group(point)] += 1.0;
    }
    let means = sums.iter().zip(&counts).map(|(sum, count)| sum / count);
    (means.collect(), counts)
}

/// Takes the variance apart.
pub fn variance(data: &Data, choices: &[Vec<usize>], bounds: &Bounds, mute: &Mute) -> Variance {
    let features = data.features();
    let points: Vec<usize> = data.points().collect();
    let values: Vec<f64> = points.iter().map(|&point| data.mean(point)).collect();
    let exact = data.is_complete();
    let grand = mean(&values);
    let total: f64 = values.iter().map(|value| (value - grand).powi(2)).sum();
    // Rounding alone is no variance.
    let nothing = total <= (1e-12 * grand).powi(2) * values.len() as f64;

    let squares = |means: &[f64], counts: &[f64]| -> f64 {
        let parts = means.iter().zip(counts);
        parts
            .filter(|(_, count)| **count > 0.0)
            .map(|(mean, count)| count * (mean - grand).powi(2))
            .sum()
    };
    let size = |feature: usize| features[feature].alternatives.len();
    let marginal: Vec<(Vec<f64>, Vec<f64>)> = (0..features.len())
        .map(|f| grouped(&points, &values, size(f), |point| choices[point][f]))
        .collect();
    let main: Vec<Part> = marginal
        .iter()
        .map(|(means, counts)| Part {
            squares: squares(means, counts),
            freedom: counts.iter().filter(|count| **count > 0.0).count() as f64 - 1.0,
        })
        .collect();
    let mut pairs = Vec::new();
    if exact {
        for a in 0..features.len() {
            for b in a + 1..features.len() {
                let group = |point: usize| choices[point][a] * size(b) + choices[point][b];
                let (means, counts) = grouped(&points, &values, size(a) * size(b), group);
                let part = Part {
                    squares: (squares(&means, &counts) - main[a].squares - main[b].squares)
                        .max(0.0),
                    freedom: main[a].freedom * main[b].freedom,
                };
                pairs.push((a, b, means, part));
            }
        }
    }
    let all = || main.iter().chain(pairs.iter().map(|pair| &pair.3));
    let explained: f64 = all().map(|part| part.squares).sum();
    // What is not there at all, as the effect of a mute feature, takes no freedom away.
    let is_there = |part: &&Part| part.squares > 1e-12 * total;
    let used: f64 = all().filter(is_there).map(|part| part.freedom).sum();
    // Schedulers that are one are one measurement.
    let rest = Part {
        squares: (total - explained).max(0.0),
        freedom: mute.distinct as f64 - 1.0 - used,
    };
    let tests = (main.len() + pairs.len()) as f64;
    let test = |part: &Part| -> f64 {
        if nothing || part.freedom < 1.0 || rest.freedom < 1.0 || part.squares <= 1e-12 * total {
            return 1.0;
        }
        if rest.squares <= 1e-12 * total {
            return 0.0;
        }
        let ratio = part.squares / part.freedom / (rest.squares / rest.freedom);
        FisherSnedecor::new(part.freedom, rest.freedom).map_or(1.0, |f| f.sf(ratio))
    };
    let share = |part: &Part| {
        if nothing {
            0.0
        } else {
            100.0 * part.squares / total
        }
    };
    let sign = if data.metric.higher { 1.0 } else { -1.0 };
    let seeds = per_seed(data, &points);
    // Where the seed changes nothing all runs of a point are one, and no sample.
    let are_copies = seeds
        .as_ref()
        .is_some_and(|seeds| seeds.iter().all(|values| *values == seeds[0]));
    let seeds = seeds.filter(|_| !are_copies);
    let mut effects: Vec<Effect> = features
        .iter()
        .enumerate()
        .map(|(f, feature)| {
            let p = test(&main[f]);
            let levels = feature.alternatives.iter().enumerate();
            Effect {
                feature: feature.name.clone(),
                share_pct: share(&main[f]),
                p,
                significant: p * tests < bounds.alpha / 2.0,
                levels: levels
                    .filter(|(choice, _)| marginal[f].1[*choice] > 0.0)
                    .map(|(choice, name)| Level {
                        alternative: name.clone(),
                        mean: marginal[f].0[choice],
                        better_pct: sign * 100.0 * part(marginal[f].0[choice] - grand, grand),
                        interval_pct: interval(
                            &points,
                            &seeds,
                            |point| choices[point][f] == choice,
                            sign,
                        ),
                    })
                    .collect(),
            }
        })
        .collect();
    effects.sort_by(|a, b| b.share_pct.total_cmp(&a.share_pct));
    let mut interactions: Vec<Interaction> = pairs
        .into_iter()
        .map(|(a, b, means, part)| {
            let p = test(&part);
            let cell = |index: usize, mean: &f64| {
                let names = [
                    &features[a].alternatives[index / size(b)],
                    &features[b].alternatives[index % size(b)],
                ];
                (names[0].clone(), names[1].clone(), *mean)
            };
            Interaction {
                features: [features[a].name.clone(), features[b].name.clone()],
                share_pct: share(&part),
                p,
                significant: p * tests < bounds.alpha / 2.0,
                cells: means
                    .iter()
                    .enumerate()
                    .map(|(i, mean)| cell(i, mean))
                    .collect(),
            }
        })
        .collect();
    interactions.sort_by(|a, b| b.share_pct.total_cmp(&a.share_pct));
    let noise: Option<Vec<f64>> = points
        .iter()
        .map(|&point| {
            let values = &data.values[point];
            deviation(values).map(|deviation| deviation.powi(2) / values.len() as f64)
        })
        .collect();
    Variance {
        exact,
        mean: grand,
        deviation_pct: 100.0 * part((total / (values.len() as f64 - 1.0).max(1.0)).sqrt(), grand),
        rest_pct: share(&rest),
        noise_pct: noise
            .filter(|_| !nothing && !are_copies)
            .map(|noise| (100.0 * noise.iter().sum::<f64>() / total).min(100.0)),
        effects,
        interactions,
    }
}

/// The values of each point by seed; `None` unless every point has as many, and at least two.
fn per_seed(data: &Data, points: &[usize]) -> Option<Vec<Vec<f64>>> {
    let seeds = data.seeds();
    if seeds < 2
        || points
            .iter()
            .any(|&point| data.values[point].len() != seeds)
    {
        return None;
    }
    let one = |seed: usize| {
        points
            .iter()
            .map(|&point| data.values[point][seed])
            .collect()
    };
    Some((0..seeds).map(one).collect())
}

/// 95 % interval of how much better the points of a group are than all, by Student's t over seeds.
fn interval(
    points: &[usize],
    seeds: &Option<Vec<Vec<f64>>>,
    has: impl Fn(usize) -> bool,
    sign: f64,
) -> Option<[f64; 2]> {
    let seeds = seeds.as_ref()?;
    let effects: Vec<f64> = seeds
        .iter()
        .map(|values| {
            let all = mean(values);
            let own = points.iter().zip(values).filter(|(point, _)| has(**point));
            let own: Vec<f64> = own.map(|(_, value)| *value).collect();
            sign * 100.0 * part(mean(&own) - all, all)
        })
        .collect();
    let count = effects.len() as f64;
    let t = StudentsT::new(0.0, 1.0, count - 1.0)
        .ok()?
        .inverse_cdf(0.975);
    let half = t * deviation(&effects)? / count.sqrt();
    let middle = mean(&effects);
    Some([middle - half, middle + half])
}
