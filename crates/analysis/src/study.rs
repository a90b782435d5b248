//! The study's method: which alternatives the good schedulers have, and what schedulers with these are worth.

use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF as _};

use crate::data::{Data, deviation};
use crate::{Bounds, Effect, Mute, Variance};

/// What an alternative is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Most of the good schedulers have it.
    Good,
    /// Hardly any of them has it.
    Bad,
    /// Over-represented among those that were expected to be good and are not.
    BadInSecondRound,
    /// Neither.
    Neutral,
}

/// An alternative of a feature.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Alternative {
    /// The feature.
    pub feature: String,
    /// The alternative.
    pub alternative: String,
    /// Share of B that has it, in percent.
    pub in_b_pct: f64,
    /// Share of the first F, and of the first FB.
    pub in_f_pct: Option<f64>,
    /// See there.
    pub in_fb_pct: Option<f64>,
    /// What it is.
    pub verdict: Verdict,
    /// Whether chance would hardly give such a share; only then it is a finding.
    pub significant: bool,
}

/// The sets and what they say.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Study {
    /// Schedulers that were looked at.
    pub schedulers: usize,
    /// Those that were not, as their runs differ too much from each other.
    pub excluded: usize,
    /// The runs of every scheduler differ too much: nobody is excluded, and the means say little.
    pub unsteady: bool,
    /// The best result, and whose it is.
    pub best: f64,
    /// See there.
    pub best_scheduler: String,
    /// The worst result.
    pub worst: f64,
    /// Every alternative.
    pub alternatives: Vec<Alternative>,
    /// |B|, |F| and |FB| after the first round.
    pub first: [usize; 3],
    /// And after the second.
    pub second: [usize; 3],
    /// Share of F outside of B, in percent; absent where F is empty.
    pub false_positives_pct: Option<f64>,
    /// Share of B that F has, in percent.
    pub covered_pct: f64,
    /// Points from the best to the worst with the right-most set of B, F, FB each is in.
    #[serde(skip)]
    pub picture: Vec<(usize, Set)>,
}

/// The right-most set that a scheduler is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Set {
    /// None.
    Rest,
    /// Good, and not expected to be.
    B,
    /// Expected to be good, and not.
    F,
    /// Both.
    Fb,
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}

/// Carries it out.
pub fn study(data: &Data, choices: &[Vec<usize>], bounds: &Bounds, mute: &Mute) -> Study {
    let is_steady = |point: &usize| {
        let values = &data.values[*point];
        deviation(values).is_none_or(|deviation| {
            deviation * 100.0 <= bounds.deviation_pct * data.mean(*point).abs()
        })
    };
    let all: Vec<usize> = data.points().collect();
    let mut points: Vec<usize> = all.iter().copied().filter(is_steady).collect();
    let unsteady = points.is_empty();
    if unsteady {
        // Then nobody's mean says much, and nobody is better than the others.
        points.clone_from(&all);
    }
    let excluded = all.len() - points.len();
    let by_result = |a: &usize, b: &usize| {
        let (a_mean, b_mean) = (data.mean(*a), data.mean(*b));
        let order = a_mean.total_cmp(&b_mean);
        let order = if data.metric.higher {
            order.reverse()
        } else {
            order
        };
        order.then(a.cmp(b))
    };
    points.sort_by(by_result);
    let best = data.mean(points[0]);
    let worst = data.mean(points[points.len() - 1]);
    let in_b = |point: usize| data.loss(data.mean(point), best) * 100.0 <= bounds.within_pct + 1e-9;
    let b: Vec<usize> = points
        .iter()
        .copied()
        .filter(|&point| in_b(point))
        .collect();

    let features = data.features();
    let has = |point: usize, feature: usize, choice: usize| choices[point][feature] == choice;
    let count = |set: &[usize], feature: usize, choice: usize| {
        set.iter()
            .filter(|&&point| has(point, feature, choice))
            .count()
    };
    let tests: usize = features.iter().map(|f| f.alternatives.len()).sum();
    let mut alternatives = Vec::new();
    let mut verdicts: Vec<Vec<Verdict>> = Vec::new();
    for (index, feature) in features.iter().enumerate() {
        let mut row = Vec::new();
        for (choice, name) in feature.alternatives.iter().enumerate() {
            let with = count(&b, index, choice);
            let share = percent(with, b.len());
            let verdict = if share > bounds.good_pct {
                Verdict::Good
            } else if share < bounds.bad_pct {
                Verdict::Bad
            } else {
                Verdict::Neutral
            };
            let expected = count(&points, index, choice) as f64 / points.len() as f64;
            // Schedulers that are one count as one.
            let scale = mute.distinct as f64 / mute.points.max(1) as f64;
            let p = chance(
                with as f64 * scale,
                b.len() as f64 * scale,
                expected,
                verdict,
            );
            row.push(verdict);
            alternatives.push(Alternative {
                feature: feature.name.clone(),
                alternative: name.clone(),
                in_b_pct: share,
                in_f_pct: None,
                in_fb_pct: None,
                verdict,
                significant: p * (tests as f64) < bounds.alpha / 2.0,
            });
        }
        verdicts.push(row);
    }
    let expected_good = |verdicts: &[Vec<Verdict>]| -> Vec<usize> {
        let fits = |point: &usize| {
            verdicts.iter().enumerate().all(|(feature, row)| {
                let own = row[choices[*point][feature]];
                let good = row.contains(&Verdict::Good);
                own == Verdict::Good || (own == Verdict::Neutral && !good)
            })
        };
        points.iter().copied().filter(|point| fits(point)).collect()
    };
    let both = |f: &[usize]| -> Vec<usize> { f.iter().copied().filter(|&p| in_b(p)).collect() };
    let f = expected_good(&verdicts);
    let fb = both(&f);
    let first = [b.len(), f.len(), fb.len()];
    if !f.is_empty() && !fb.is_empty() {
        let mut entries = alternatives.iter_mut();
        for (index, row) in verdicts.iter_mut().enumerate() {
            for (choice, verdict) in row.iter_mut().enumerate() {
                let entry = entries.next().expect("one for each alternative");
                let share_f = percent(count(&f, index, choice), f.len());
                let share_fb = percent(count(&fb, index, choice), fb.len());
                entry.in_f_pct = Some(share_f);
                entry.in_fb_pct = Some(share_fb);
                if *verdict == Verdict::Neutral && share_f - share_fb > bounds.points {
                    *verdict = Verdict::BadInSecondRound;
                    entry.verdict = *verdict;
                }
            }
        }
    }
    let f = expected_good(&verdicts);
    let fb = both(&f);
    let mut is_f = vec![false; data.values.len()];
    for &point in &f {
        is_f[point] = true;
    }
    let picture = points.iter().map(|&point| {
        let set = match (is_f[point], in_b(point)) {
            (true, true) => Set::Fb,
            (true, false) => Set::F,
            (false, true) => Set::B,
            (false, false) => Set::Rest,
        };
        (point, set)
    });
    Study {
        schedulers: points.len(),
        excluded,
        unsteady,
        best,
        best_scheduler: data.space.scheduler(points[0] as u64).to_string(),
        worst,
        alternatives,
        first,
        second: [b.len(), f.len(), fb.len()],
        false_positives_pct: (!f.is_empty()).then(|| percent(f.len() - fb.len(), f.len())),
        covered_pct: percent(fb.len(), b.len()),
        picture: picture.collect(),
    }
}

impl Study {
    /// Where combinations are missing, B may have an alternative often because the combinations are missing in which
    /// others of the scheduler's alternatives would keep it from being good. It is a finding only if it changes
    /// results beside these, too.
    pub fn confirm(&mut self, variance: &Variance) {
        for one in self.alternatives.iter_mut().filter(|one| one.significant) {
            let of = |effect: &&Effect| effect.feature == one.feature && effect.significant;
            let effect = variance.effects.iter().find(of);
            let level = effect.and_then(|effect| {
                let mut levels = effect.levels.iter();
                levels.find(|level| level.alternative == one.alternative)
            });
            one.significant = level.is_some_and(|level| match one.verdict {
                Verdict::Good => level.better_pct > 0.0,
                _ => level.better_pct < 0.0,
            });
        }
    }
}

/// The probability of a share that is at least as far out, if B were drawn by lot.
fn chance(with: f64, of: f64, expected: f64, verdict: Verdict) -> f64 {
    let (of, with) = (of.round() as u64, with.round() as u64);
    if verdict == Verdict::Neutral || !(0.0..1.0).contains(&expected) {
        return 1.0;
    }
    let Ok(lot) = Binomial::new(expected, of) else {
        return 1.0;
    };
    match verdict {
        Verdict::Good if with == 0 => 1.0,
        Verdict::Good => lot.sf(with - 1),
        _ => lot.cdf(with),
    }
}
