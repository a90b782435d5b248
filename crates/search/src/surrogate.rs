//! Estimates the results of schedulers that were not run from other schedulers' results: a Gaussian process over their features.
//!
//! Two schedulers resemble each other the more, the fewer features differ, and each feature has its own weight, which
//! the results determine. The product over features contains joint effects of any number of them (Rasmussen & Williams,
//! *Gaussian Processes for Machine Learning*, 2006, ch. 2 and 5; for unordered alternatives: Qian, Wu & Wu,
//! *Technometrics* 50, 2008).

use crate::matrix::{Factor, dot};

/// So many results determine the weights; all of them are estimated from.
const WEIGHED_MAX: usize = 160;
/// Weights that are tried: by how much a difference in the feature divides the correlation, as a logarithm.
const WEIGHTS: [f64; 7] = [0.001, 0.005, 0.02, 0.08, 0.3, 1.0, 4.0];
/// Parts of chance in the variance that are tried.
const NOISES: [f64; 5] = [1e-6, 1e-4, 1e-2, 0.1, 1.0];
/// Rounds over all weights: after that they hardly change.
const ROUNDS_MAX: usize = 4;

/// The weights of features, and the part of chance.
#[derive(Clone, PartialEq, Debug)]
pub struct Weights {
    features: Vec<f64>,
    noise: f64,
}

impl Weights {
    /// By what a difference in each feature multiplies the correlation.
    fn factors(&self) -> Vec<f64> {
        self.features
            .iter()
            .map(|weight| libm::exp(-weight))
            .collect()
    }
}

fn correlation(factors: &[f64], a: &[usize], b: &[usize]) -> f64 {
    let differs = factors.iter().zip(a.iter().zip(b));
    differs
        .filter(|(_, (a, b))| a != b)
        .map(|(factor, _)| factor)
        .product()
}

/// Results of points whose weights are known.
struct Solved {
    factor: Factor,
    /// Mean of all.
    mean: f64,
    /// A⁻¹ (values − mean).
    pulls: Vec<f64>,
    /// Variance of a point of which nothing is known.
    variance: f64,
    /// Twice the negative logarithm of the likelihood, but for a constant.
    misfit: f64,
}

fn solve(points: &[Vec<usize>], values: &[f64], weights: &Weights) -> Option<Solved> {
    let size = points.len();
    let factors = weights.factors();
    let mut rows = vec![0.0; size * size];
    for i in 0..size {
        rows[i * size + i] = 1.0 + weights.noise;
        for j in i + 1..size {
            rows[i * size + j] = correlation(&factors, &points[i], &points[j]);
        }
    }
    let factor = Factor::of(size, rows)?;
    let mut ones = vec![1.0; size];
    factor.solve(&mut ones);
    let mean = dot(&ones, values) / ones.iter().sum::<f64>();
    let centred: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let mut pulls = centred.clone();
    factor.solve(&mut pulls);
    let variance = (dot(&centred, &pulls) / size as f64).max(f64::MIN_POSITIVE);
    let misfit = size as f64 * libm::log(variance) + factor.log_determinant();
    Some(Solved {
        factor,
        mean,
        pulls,
        variance,
        misfit,
    })
}

/// The weights that explain the results best, one after another. Those of fewer results are close to them.
fn weigh(points: &[Vec<usize>], values: &[f64], before: Option<&Weights>) -> Weights {
    // Evenly spread over all results.
    let step = points.len().div_ceil(WEIGHED_MAX).max(1);
    let some: Vec<Vec<usize>> = points.iter().step_by(step).cloned().collect();
    let values: Vec<f64> = values.iter().copied().step_by(step).collect();
    let misfit = |weights: &Weights| {
        solve(&some, &values, weights).map_or(f64::INFINITY, |solved| solved.misfit)
    };
    let features = some.first().map_or(0, Vec::len);
    let mut best = before.cloned().unwrap_or(Weights {
        features: vec![0.3; features],
        noise: 1e-4,
    });
    let mut least = misfit(&best);
    let rounds = if before.is_some() { 1 } else { ROUNDS_MAX };
    for _ in 0..rounds {
        let before = best.clone();
        for feature in 0..=features {
            let tried: &[f64] = if feature < features {
                &WEIGHTS
            } else {
                &NOISES
            };
            for &value in tried {
                let mut weights = best.clone();
                match weights.features.get_mut(feature) {
                    Some(weight) => *weight = value,
                    None => weights.noise = value,
                }
                if weights == best {
                    continue;
                }
                let found = misfit(&weights);
                if found < least {
                    (best, least) = (weights, found);
                }
            }
        }
        if best == before {
            break;
        }
    }
    best
}

/// A model of results.
pub struct Surrogate {
    points: Vec<Vec<usize>>,
    factors: Vec<f64>,
    weights: Weights,
    solved: Solved,
}

impl Surrogate {
    /// Fits it to the results of different points; `None` without any. `before` are the weights of a model of fewer results.
    pub fn fit(
        points: Vec<Vec<usize>>,
        values: &[f64],
        before: Option<&Weights>,
    ) -> Option<Surrogate> {
        if points.is_empty() {
            return None;
        }
        let mut weights = weigh(&points, values, before);
        // Points that are nearly the same may need more of chance to differ.
        let solved = loop {
            match solve(&points, values, &weights) {
                Some(solved) => break solved,
                None => weights.noise *= 10.0,
            }
        };
        Some(Surrogate {
            factors: weights.factors(),
            weights,
            points,
            solved,
        })
    }

    /// Returns the weights, for a model of more results.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    fn correlations<'a>(&'a self, point: &'a [usize]) -> impl Iterator<Item = f64> + 'a {
        let own = self.points.iter();
        own.map(|known| correlation(&self.factors, known, point))
    }

    /// Returns the expected result of a point.
    pub fn mean(&self, point: &[usize]) -> f64 {
        let pulls = self.correlations(point).zip(&self.solved.pulls);
        self.solved.mean + pulls.map(|(near, pull)| near * pull).sum::<f64>()
    }

    /// Returns what is not known of some points.
    pub fn doubts<'a>(&'a self, points: &'a [Vec<usize>]) -> Doubts<'a> {
        let known = points.iter().map(|point| {
            let mut row: Vec<f64> = self.correlations(point).collect();
            self.solved.factor.half_solve(&mut row);
            row
        });
        let known: Vec<Vec<f64>> = known.collect();
        let left = known.iter().map(|row| 1.0 - dot(row, row)).collect();
        Doubts {
            model: self,
            points,
            known,
            left,
        }
    }
}

/// The standard deviations of estimates, which each further run makes smaller.
pub struct Doubts<'a> {
    model: &'a Surrogate,
    points: &'a [Vec<usize>],
    known: Vec<Vec<f64>>,
    left: Vec<f64>,
}

impl Doubts<'_> {
    /// Returns the deviation of the point at a place.
    pub fn of(&self, place: usize) -> f64 {
        (self.model.solved.variance * self.left[place].max(0.0)).sqrt()
    }

    /// The point at a place will be run.
    pub fn resolve(&mut self, place: usize) {
        let own = self.known[place].clone();
        let left = (self.left[place] + self.model.weights.noise)
            .max(1e-9)
            .sqrt();
        for (other, row) in self.known.iter_mut().enumerate() {
            let near = correlation(
                &self.model.factors,
                &self.points[place],
                &self.points[other],
            );
            let more = (near - dot(row, &own)) / left;
            row.push(more);
            self.left[other] -= more * more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All points of 3 × 3 × 2 × 2.
    fn all() -> Vec<Vec<usize>> {
        let all = (0..36).map(|n| vec![n % 3, n / 3 % 3, n / 9 % 2, n / 18]);
        all.collect()
    }

    /// The first two features matter, and only together; the others do not.
    fn value(point: &[usize]) -> f64 {
        if point[0] == 2 && point[1] == 0 {
            5.0
        } else {
            1.0
        }
    }

    /// Three fifths of them, whose last features go through all alternatives.
    fn run() -> (Vec<Vec<usize>>, Vec<f64>) {
        let all = all().into_iter().enumerate();
        let run = all.filter(|(place, _)| place % 5 < 3);
        let run: Vec<Vec<usize>> = run.map(|(_, point)| point).collect();
        let values = run.iter().map(|point| value(point)).collect();
        (run, values)
    }

    #[test]
    fn what_was_not_run_is_estimated_from_what_was() {
        let (run, values) = run();
        let model = Surrogate::fit(run.clone(), &values, None).unwrap();
        for point in all() {
            let error = model.mean(&point) - value(&point);
            let most = if run.contains(&point) { 0.1 } else { 0.5 };
            assert!(error.abs() < most, "{point:?}: {error}");
        }
    }

    #[test]
    fn a_run_leaves_less_doubt_about_its_like() {
        let points = all();
        let (run, values) = run();
        let model = Surrogate::fit(run, &values, None).unwrap();
        let mut doubts = model.doubts(&points);
        let before: Vec<f64> = (0..points.len()).map(|place| doubts.of(place)).collect();
        assert!(before[0] < before[3], "{} {}", before[0], before[3]);
        doubts.resolve(3);
        for (place, before) in before.iter().enumerate() {
            assert!(doubts.of(place) <= before + 1e-12, "{place}");
        }
        assert!(
            doubts.of(3) < 0.7 * before[3],
            "{} {}",
            doubts.of(3),
            before[3]
        );
    }

    #[test]
    fn the_same_value_everywhere_is_no_fault() {
        let points = all();
        let model = Surrogate::fit(points.clone(), &vec![3.0; points.len()], None).unwrap();
        assert!((model.mean(&points[5]) - 3.0).abs() < 1e-9);
        assert!(Surrogate::fit(Vec::new(), &[], None).is_none());
    }
}
