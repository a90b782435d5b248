//! The study's method: which alternatives the good schedulers have, and what schedulers with these are worth.

use schedlab_sweep::Feature;
use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF as _};

use crate::data::{Data, deviation};
use crate::{Bounds, Effect, Mute, Variance};

/// The verdict on an alternative.
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
    /// All schedulers that are compared have it, or none has: they say nothing about it.
    NotCompared,
}

impl Verdict {
    /// Returns whether it says that the alternative is better or worse than others.
    pub fn is_judgement(self) -> bool {
        matches!(self, Self::Good | Self::Bad | Self::BadInSecondRound)
    }
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
    /// The verdict.
    pub verdict: Verdict,
    /// Whether chance would hardly give such a share; only then it is a finding.
    pub significant: bool,
    /// Whether it would hardly give it if schedulers were counted instead of their points, either.
    #[serde(skip)]
    by_schedulers: bool,
}

#[cfg(test)]
impl Alternative {
    /// Returns an alternative with this verdict, made by hand.
    pub(crate) fn judged(of: (&str, &str), verdict: Verdict, significant: bool) -> Alternative {
        Alternative {
            feature: of.0.to_owned(),
            alternative: of.1.to_owned(),
            in_b_pct: 0.0,
            in_f_pct: None,
            in_fb_pct: None,
            verdict,
            significant,
            by_schedulers: significant,
        }
    }
}

/// The sets and what they say.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Study {
    /// Schedulers that were looked at.
    pub schedulers: usize,
    /// Those that were not, as their runs differ too much from each other.
    pub excluded: usize,
    /// The runs of every scheduler differ too much: no scheduler is excluded, and the means say little.
    pub unsteady: bool,
    /// The best result over the seeds that all have, and whose it is: the winner of a search has more seeds (`search`).
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
    let sets = Sets::new(data, choices, bounds);
    let mut features = sets.alternatives(mute);
    let (f, fb) = sets.expected_good(&features);
    let first = [sets.b.len(), f.len(), fb.len()];
    if !f.is_empty() && !fb.is_empty() {
        sets.second_round(&f, &fb, &mut features);
    }
    let (f, fb) = sets.expected_good(&features);
    let (best, worst) = (sets.points[0], sets.points[sets.points.len() - 1]);
    Study {
        schedulers: sets.points.len(),
        excluded: data.points().count() - sets.points.len(),
        unsteady: sets.unsteady,
        best: data.mean(best),
        best_scheduler: data.space.scheduler(best as u64).to_string(),
        worst: data.mean(worst),
        alternatives: features.into_iter().flatten().collect(),
        first,
        second: [sets.b.len(), f.len(), fb.len()],
        false_positives_pct: (!f.is_empty()).then(|| percent(f.len() - fb.len(), f.len())),
        covered_pct: percent(fb.len(), sets.b.len()),
        picture: sets.picture(&f),
    }
}

/// The schedulers that are compared, and the good ones among them.
struct Sets<'a> {
    data: &'a Data,
    choices: &'a [Vec<usize>],
    bounds: &'a Bounds,
    /// From the best to the worst.
    points: Vec<usize>,
    /// None is steady, so all are compared.
    unsteady: bool,
    b: Vec<usize>,
}

impl<'a> Sets<'a> {
    fn new(data: &'a Data, choices: &'a [Vec<usize>], bounds: &'a Bounds) -> Self {
        let mut sets = Sets {
            data,
            choices,
            bounds,
            points: Vec::new(),
            unsteady: false,
            b: Vec::new(),
        };
        sets.points = data
            .points()
            .filter(|&point| sets.is_steady(point))
            .collect();
        sets.unsteady = sets.points.is_empty();
        if sets.unsteady {
            // Then no mean says much, and no scheduler is better than the others.
            sets.points = data.points().collect();
        }
        sets.points.sort_by(|a, b| {
            let (mut one, mut other) = (data.mean(*a), data.mean(*b));
            if data.metric.higher {
                std::mem::swap(&mut one, &mut other);
            }
            one.total_cmp(&other).then(a.cmp(b))
        });
        sets.b = sets.those_in_b(&sets.points);
        sets
    }

    fn is_steady(&self, point: usize) -> bool {
        deviation(&self.data.values[point]).is_none_or(|deviation| {
            deviation * 100.0 <= self.bounds.deviation_pct * self.data.mean(point).abs()
        })
    }

    fn is_in_b(&self, point: usize) -> bool {
        let best = self.data.mean(self.points[0]);
        self.data.loss(self.data.mean(point), best) * 100.0 <= self.bounds.within_pct + 1e-9
    }

    fn those_in_b(&self, points: &[usize]) -> Vec<usize> {
        let points = points.iter().copied();
        points.filter(|&point| self.is_in_b(point)).collect()
    }

    /// Returns how many of `points` have an alternative.
    fn count(&self, points: &[usize], feature: usize, choice: usize) -> usize {
        let has = |point: &&usize| self.choices[**point][feature] == choice;
        points.iter().filter(has).count()
    }

    /// Of each feature: its alternatives as of the first round.
    fn alternatives(&self, mute: &Mute) -> Vec<Vec<Alternative>> {
        let features = self.data.features();
        let tests: usize = features.iter().map(|f| f.alternatives.len()).sum();
        let rare = |p: f64| p * (tests as f64) < self.bounds.alpha / 2.0;
        // Schedulers that are one count as one, and B may be where these have most points.
        // An estimate is no measurement.
        let measured = self.b.iter().copied();
        let measured: Vec<usize> = measured
            .filter(|&point| self.data.is_measured(point))
            .collect();
        let scale = match measured.is_empty() {
            true => 0.0,
            false => mute.effective(&measured) / self.b.len() as f64,
        };
        let of = |feature: usize, choice: usize| {
            let with = self.count(&self.b, feature, choice);
            let share = percent(with, self.b.len());
            let compared = self.count(&self.points, feature, choice);
            let verdict = if compared == 0 || compared == self.points.len() {
                Verdict::NotCompared
            } else if share > self.bounds.good_pct {
                Verdict::Good
            } else if share < self.bounds.bad_pct {
                Verdict::Bad
            } else {
                Verdict::Neutral
            };
            let p = chance(
                with as f64 * scale,
                self.b.len() as f64 * scale,
                compared as f64 / self.points.len() as f64,
                verdict,
            );
            let has = |point: usize| self.choices[point][feature] == choice;
            let (with, of) = mute.schedulers(&self.b, has);
            let (all_with, all) = mute.schedulers(&self.points, has);
            let p_of_schedulers = chance(with, of, all_with / all, verdict);
            Alternative {
                feature: features[feature].name.clone(),
                alternative: features[feature].alternatives[choice].clone(),
                in_b_pct: share,
                in_f_pct: None,
                in_fb_pct: None,
                verdict,
                significant: rare(p),
                by_schedulers: rare(p_of_schedulers),
            }
        };
        let row = |(index, feature): (usize, &Feature)| {
            let choices = 0..feature.alternatives.len();
            choices.map(|choice| of(index, choice)).collect()
        };
        features.iter().enumerate().map(row).collect()
    }

    /// F and FB.
    fn expected_good(&self, features: &[Vec<Alternative>]) -> (Vec<usize>, Vec<usize>) {
        let fits = |point: &usize| {
            features
                .iter()
                .zip(&self.choices[*point])
                .all(|(row, &own)| {
                    let good = row.iter().any(|one| one.verdict == Verdict::Good);
                    match row[own].verdict {
                        Verdict::Good => true,
                        Verdict::Neutral | Verdict::NotCompared => !good,
                        Verdict::Bad | Verdict::BadInSecondRound => false,
                    }
                })
        };
        let f: Vec<usize> = self.points.iter().copied().filter(fits).collect();
        let fb = self.those_in_b(&f);
        (f, fb)
    }

    /// The result of the first F and FB, neither of which is empty.
    fn second_round(&self, f: &[usize], fb: &[usize], features: &mut [Vec<Alternative>]) {
        for (index, row) in features.iter_mut().enumerate() {
            for (choice, one) in row.iter_mut().enumerate() {
                let in_f = percent(self.count(f, index, choice), f.len());
                let in_fb = percent(self.count(fb, index, choice), fb.len());
                one.in_f_pct = Some(in_f);
                one.in_fb_pct = Some(in_fb);
                if one.verdict == Verdict::Neutral && in_f - in_fb > self.bounds.points {
                    one.verdict = Verdict::BadInSecondRound;
                }
            }
        }
    }

    fn picture(&self, f: &[usize]) -> Vec<(usize, Set)> {
        let mut is_f = vec![false; self.data.values.len()];
        for &point in f {
            is_f[point] = true;
        }
        let set = |&point: &usize| match (is_f[point], self.is_in_b(point)) {
            (true, true) => (point, Set::Fb),
            (true, false) => (point, Set::F),
            (false, true) => (point, Set::B),
            (false, false) => (point, Set::Rest),
        };
        self.points.iter().map(set).collect()
    }
}

impl Study {
    /// Shares of points alone are no finding. Schedulers of many points have other alternatives than schedulers of
    /// few, and a few schedulers drawn at random may all lack an alternative that a third of all points has. Where
    /// combinations are missing, B may have an alternative often because those are missing in which others of the
    /// scheduler's alternatives would
    /// keep it from being good. So it must hold for schedulers, too, if all are there, or else the feature must change
    /// results, beside all others and to that side.
    pub fn confirm(&mut self, variance: &Variance) {
        for one in self.alternatives.iter_mut().filter(|one| one.significant) {
            one.significant = variance.exact && one.by_schedulers || agrees(one, &variance.effects);
        }
    }
}

/// Returns whether what the feature does by itself is no chance and speaks for the verdict.
fn agrees(one: &Alternative, effects: &[Effect]) -> bool {
    let of = |effect: &&Effect| effect.feature == one.feature && effect.significant;
    let Some(effect) = effects.iter().find(of) else {
        return false;
    };
    if effect.levels.is_empty() {
        // The feature has an effect; whether this alternative has it is known, or others have the effect as well.
        return effect.told.contains(&one.alternative);
    }
    let mut levels = effect.levels.iter();
    let level = levels.find(|level| level.alternative == one.alternative);
    level.is_some_and(|level| match one.verdict {
        Verdict::Good => level.better_pct > 0.0,
        _ => level.better_pct < 0.0,
    })
}

/// Returns the probability of a share that is at least as far out, if B were drawn by lot.
fn chance(with: f64, of: f64, expected: f64, verdict: Verdict) -> f64 {
    let (of, with) = (of.round() as u64, with.round() as u64);
    if !verdict.is_judgement() {
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
