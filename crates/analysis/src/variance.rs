//! Where the differences come from: the variance over all schedulers, taken apart into what each feature
//! does alone, what each pair does together, and the rest. Over a full factorial this is exact: the parts
//! are orthogonal and add up, without a model. Where combinations are missing they are not: features are
//! confounded, and what one does is what it adds to all others (sums of squares of type II).

use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, FisherSnedecor, StudentsT};

use crate::data::{deviation, mean, part};
use crate::least_squares::Fit;
use crate::{Bounds, Data, Mute};

/// An alternative's mean over all schedulers that have it; where combinations are missing, as if all others were
/// as frequent with it as without.
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

/// The effect of a feature by itself.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Effect {
    /// The feature.
    pub feature: String,
    /// Share of the variance, in percent.
    pub share_pct: f64,
    /// Share of all parts together that it has a part in, with however many others, and of chance between its
    /// alternatives: what is left where all others are the same. Absent where combinations are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_pct: Option<f64>,
    /// Probability of such a share by chance, if the feature had no effect; absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Whether that is small enough among so many tests.
    pub significant: bool,
    /// Its alternatives; empty if some are confounded with alternatives of other features.
    pub levels: Vec<Level>,
    /// Those that can.
    #[serde(skip)]
    pub told: Vec<String>,
}

/// The joint effect of two features, beyond the effects of each by itself.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Interaction {
    /// The two.
    pub features: [String; 2],
    /// Share of the variance, in percent.
    pub share_pct: f64,
    /// As of effects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// As of effects.
    pub significant: bool,
    /// Mean of each combination: (alternative of the one, of the other, mean).
    pub cells: Vec<(String, String, f64)>,
}

/// The basis of comparison that decides whether parts are more than chance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Against {
    /// The rest.
    Rest,
    /// The differences between seeds.
    Seeds,
    /// Nothing: no seed changes anything, so that every difference is real.
    Copies,
    /// Nothing, for want of combinations and of seeds.
    Nothing,
}

/// The parts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Variance {
    /// All points of the space were measured, so the parts are exact. Otherwise there are only main
    /// effects, and these are estimates.
    pub exact: bool,
    /// The basis of the tests.
    pub against: Against,
    /// Degrees of freedom of that.
    pub freedom: f64,
    /// Mean over all schedulers.
    pub mean: f64,
    /// Standard deviation over all schedulers, in percent of the mean.
    pub deviation_pct: f64,
    /// Effects of single features, the greatest share first.
    pub effects: Vec<Effect>,
    /// Joint effects of pairs, the greatest share first.
    pub interactions: Vec<Interaction>,
    /// Joint effects of three and more, and chance, in percent.
    pub rest_pct: f64,
    /// Whether that is more than chance, by the differences between seeds; absent if these do not decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_significant: Option<bool>,
    /// Share of the variance that chance alone makes, from the differences between seeds, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_pct: Option<f64>,
}

/// With fewer degrees of freedom a test hardly ever finds anything, so that finding nothing says nothing.
const FREEDOM_MIN: f64 = 10.0;
/// A part of all squares that may be rounding.
const ROUNDING: f64 = 1e-12;
/// A part of the mean by which values may differ through rounding alone.
const ROUNDING_OF_MEAN: f64 = 1e-12;
/// A part of all points that may be rounding.
const ROUNDING_OF_COUNT: f64 = 1e-9;

impl Variance {
    /// Returns whether there is enough data to separate effects from chance.
    pub fn tells(&self) -> bool {
        self.against == Against::Copies || self.freedom >= FREEDOM_MIN
    }
}

/// A sum of squares with its degrees of freedom.
struct Part {
    squares: f64,
    freedom: f64,
}

/// By how much each alternative that occurs exceeds the mean of all, by feature; empty if it is not estimable.
type Adds = Vec<Vec<(usize, f64)>>;

/// Takes values of all points apart so.
type Adding<'a> = Box<dyn Fn(&[f64]) -> Adds + 'a>;

/// The parts before they are tested.
struct Parts {
    main: Vec<Part>,
    /// Two features, the mean of each combination, and what they do together.
    pairs: Vec<(usize, usize, Vec<f64>, Part)>,
    rest: Part,
    /// The total of which shares are parts.
    whole: f64,
    /// The squares of each feature's parts with however many others; none where combinations are missing.
    totals: Vec<f64>,
    /// The alternatives of each feature that are not confounded with alternatives of others.
    told: Vec<Vec<usize>>,
}

/// Points with what is known of them.
struct Points<'a> {
    data: &'a Data,
    choices: &'a [Vec<usize>],
    points: &'a [usize],
    /// How many schedulers they are worth as measurements.
    effective: f64,
}

impl Points<'_> {
    fn nr_features(&self) -> usize {
        self.data.features().len()
    }

    fn size(&self, feature: usize) -> usize {
        self.data.features()[feature].alternatives.len()
    }

    /// Means over groups of points, and how many each has.
    fn grouped(
        &self,
        values: &[f64],
        groups: usize,
        group: impl Fn(&[usize]) -> usize,
    ) -> (Vec<f64>, Vec<f64>) {
        let (mut sums, mut counts) = (vec![0.0; groups], vec![0.0; groups]);
        for (&point, value) in self.points.iter().zip(values) {
            let group = group(&self.choices[point]);
            sums[group] += value;
            counts[group] += 1.0;
        }
        let means = sums.iter().zip(&counts).map(|(sum, count)| sum / count);
        (means.collect(), counts)
    }

    fn marginal(&self, values: &[f64], feature: usize) -> (Vec<f64>, Vec<f64>) {
        self.grouped(values, self.size(feature), |own| own[feature])
    }

    /// Every combination is there: parts are differences of means.
    fn exact_parts(&self, values: &[f64], total: f64) -> Parts {
        let grand = mean(values);
        let squares = |(means, counts): &(Vec<f64>, Vec<f64>)| -> f64 {
            let parts = means.iter().zip(counts);
            parts
                .map(|(mean, count)| count * (mean - grand).powi(2))
                .sum()
        };
        let main: Vec<Part> = (0..self.nr_features())
            .map(|f| Part {
                squares: squares(&self.marginal(values, f)),
                freedom: self.size(f) as f64 - 1.0,
            })
            .collect();
        let mut pairs = Vec::new();
        for a in 0..self.nr_features() {
            for b in a + 1..self.nr_features() {
                let group = |own: &[usize]| own[a] * self.size(b) + own[b];
                let both = self.grouped(values, self.size(a) * self.size(b), group);
                let part = Part {
                    squares: (squares(&both) - main[a].squares - main[b].squares).max(0.0),
                    freedom: main[a].freedom * main[b].freedom,
                };
                pairs.push((a, b, both.0, part));
            }
        }
        let all = || main.iter().chain(pairs.iter().map(|pair| &pair.3));
        let explained: f64 = all().map(|part| part.squares).sum();
        // An effect that is exactly zero, as of a mute feature, takes no degree of freedom away.
        let is_there = |part: &&Part| part.squares > ROUNDING * total;
        let used: f64 = all().filter(is_there).map(|part| part.freedom).sum();
        let rest = Part {
            squares: (total - explained).max(0.0),
            freedom: self.effective - 1.0 - used,
        };
        Parts {
            main,
            pairs,
            rest,
            whole: total,
            totals: (0..self.nr_features())
                .map(|f| self.within(values, f))
                .collect(),
            told: (0..self.nr_features())
                .map(|f| (0..self.size(f)).collect())
                .collect(),
        }
    }

    /// Returns the squares that are left between a feature's alternatives where all others are the same.
    fn within(&self, values: &[f64], feature: usize) -> f64 {
        let others = |own: &[usize]| {
            let own = own.iter().enumerate();
            let others = own.filter(|(other, _)| *other != feature);
            others.fold(0, |place, (other, choice)| {
                place * self.size(other) + choice
            })
        };
        let (means, _) = self.grouped(values, values.len() / self.size(feature), others);
        let points = self.points.iter().zip(values);
        points
            .map(|(&point, value)| (value - means[others(&self.choices[point])]).powi(2))
            .sum()
    }

    fn exact_adds(&self, values: &[f64]) -> Adds {
        let grand = mean(values);
        let of = |feature| {
            let (means, _) = self.marginal(values, feature);
            means.iter().map(|mean| mean - grand).enumerate().collect()
        };
        (0..self.nr_features()).map(of).collect()
    }

    /// Combinations are missing: a part is what a feature explains that no other does.
    fn estimate(&self, values: &[f64], total: f64) -> (Parts, impl Fn(&[f64]) -> Adds) {
        // The alternatives that occur, and the place of each point's among them.
        let occur: Vec<Vec<usize>> = (0..self.nr_features())
            .map(|f| {
                let (_, counts) = self.marginal(values, f);
                (0..counts.len()).filter(|&c| counts[c] > 0.0).collect()
            })
            .collect();
        let places: Vec<Vec<usize>> = occur
            .iter()
            .enumerate()
            .map(|(f, occur)| {
                let place = |&point: &usize| occur.binary_search(&self.choices[point][f]);
                let places = self.points.iter().map(place);
                places.map(|found| found.expect("it occurs")).collect()
            })
            .collect();
        let fit = |left_out: Option<usize>| {
            let features = (0..places.len()).filter(|f| Some(*f) != left_out);
            let features: Vec<&[usize]> = features.map(|f| &places[f][..]).collect();
            Fit::new(&features, values.len())
        };
        let grand = mean(values);
        let centred: Vec<f64> = values.iter().map(|value| value - grand).collect();
        let whole = fit(None);
        let rest = Part {
            squares: whole.left(&centred),
            freedom: self.effective - whole.rank() as f64,
        };
        let (main, told): (Vec<Part>, Vec<Vec<usize>>) = (0..places.len())
            .map(|f| {
                let without = fit(Some(f));
                let part = Part {
                    squares: (without.left(&centred) - rest.squares).max(0.0),
                    freedom: (whole.rank() - without.rank()) as f64,
                };
                // If the other features determine its alternatives, its effect is confounded with theirs.
                let is_told = |place: usize| {
                    let has = places[f]
                        .iter()
                        .map(|own| f64::from(u8::from(*own == place)));
                    without.left(&has.collect::<Vec<f64>>())
                        > ROUNDING_OF_COUNT * values.len() as f64
                };
                let told = occur[f]
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| is_told(*place));
                (part, told.map(|(_, choice)| *choice).collect())
            })
            .unzip();
        let all_told: Vec<bool> = main
            .iter()
            .zip(&occur)
            .map(|(part, occur)| part.freedom + 1.0 == occur.len() as f64)
            .collect();
        let adds = move |values: &[f64]| -> Adds {
            let all = whole.adds(values).into_iter().zip(&occur).zip(&all_told);
            all.map(|((adds, occur), all_told)| {
                let named = occur.iter().copied().zip(adds);
                named.filter(|_| *all_told).collect()
            })
            .collect()
        };
        // The part that only several explain together counts for none; parts of confounded features may overlap
        // instead.
        let parts: f64 = main.iter().map(|part| part.squares).sum();
        let whole = total.max(parts + rest.squares);
        let parts = Parts {
            main,
            pairs: Vec::new(),
            rest,
            whole,
            totals: Vec::new(),
            told,
        };
        (parts, adds)
    }
}

/// Returns the size of chance, and its source.
fn chance(parts: &Parts, exact: bool, seeds: &Seeds, effective: f64) -> (Against, Part) {
    let squares = parts.rest.squares;
    let rest = |freedom| Part { squares, freedom };
    let freedom = parts.rest.freedom;
    // Estimates may concern combinations that are missing: seeds say nothing about these.
    if exact && freedom < FREEDOM_MIN {
        match seeds {
            Seeds::Copies => return (Against::Copies, rest(0.0)),
            Seeds::Differ(values) => return (Against::Seeds, between(values, effective)),
            Seeds::One => {}
        }
    }
    if freedom < 1.0 {
        return (Against::Nothing, rest(0.0));
    }
    (Against::Rest, rest(freedom))
}

/// Chance in the means over seeds: by how much the differences between schedulers differ from seed to seed.
fn between(seeds: &[Vec<f64>], effective: f64) -> Part {
    let count = seeds.len() as f64;
    let levels: Vec<f64> = seeds.iter().map(|values| mean(values)).collect();
    let squares: f64 = (0..seeds[0].len())
        .map(|point| {
            let own: Vec<f64> = seeds
                .iter()
                .zip(&levels)
                .map(|(values, level)| values[point] - level)
                .collect();
            let middle = mean(&own);
            own.iter()
                .map(|value| (value - middle).powi(2))
                .sum::<f64>()
        })
        .sum();
    Part {
        squares: squares / count,
        freedom: (effective - 1.0) * (count - 1.0),
    }
}

/// Takes the variance apart.
pub fn variance(data: &Data, choices: &[Vec<usize>], bounds: &Bounds, mute: &Mute) -> Variance {
    let points: Vec<usize> = data.points().collect();
    let values: Vec<f64> = points.iter().map(|&point| data.mean(point)).collect();
    let count = values.len() as f64;
    let exact = data.is_complete();
    let grand = mean(&values);
    let total: f64 = values.iter().map(|value| (value - grand).powi(2)).sum();
    let table = Points {
        data,
        choices,
        points: &points,
        // Schedulers that are one are one measurement, and the more of the points it has, the more it weighs.
        effective: mute.effective,
    };
    let (parts, adding): (Parts, Adding<'_>) = if exact {
        let parts = table.exact_parts(&values, total);
        (parts, Box::new(|values| table.exact_adds(values)))
    } else {
        let (parts, adds) = table.estimate(&values, total);
        (parts, Box::new(adds))
    };
    let seeds = Seeds::of(data, &points);
    let (against, error) = chance(&parts, exact, &seeds, table.effective);
    let tests = Tests {
        total,
        nothing: total <= (ROUNDING_OF_MEAN * grand).powi(2) * count,
        against,
        error,
        number: (parts.main.len() + parts.pairs.len()) as f64,
        alpha: bounds.alpha,
        parts: &parts,
    };
    Variance {
        exact,
        against,
        freedom: tests.error.freedom,
        mean: grand,
        deviation_pct: 100.0 * part((total / (count - 1.0).max(1.0)).sqrt(), grand),
        effects: effects(data, &tests, &adding, &values, &seeds),
        interactions: interactions(data, &tests),
        rest_pct: tests.share_pct(parts.rest.squares),
        rest_significant: tests.rest(&seeds, table.effective),
        noise_pct: noise_pct(seeds.that_differ(), total).filter(|_| !tests.nothing),
    }
}

/// Tells parts from chance.
struct Tests<'a> {
    parts: &'a Parts,
    /// All squares.
    total: f64,
    /// They are rounding alone, which is no variance.
    nothing: bool,
    against: Against,
    error: Part,
    /// How many parts are tested.
    number: f64,
    /// The probability that chance gives any finding.
    alpha: f64,
}

impl Tests<'_> {
    /// Probability of such a part by chance; `None` if it is unknown.
    fn p(&self, part: &Part) -> Option<f64> {
        if self.nothing {
            return Some(1.0);
        }
        if part.freedom < 1.0 || self.against == Against::Nothing {
            return None;
        }
        let is_there = part.squares > self.rounding();
        if !is_there || self.against == Against::Copies {
            return Some(if is_there { 0.0 } else { 1.0 });
        }
        self.p_against(part, &self.error)
    }

    fn p_against(&self, part: &Part, error: &Part) -> Option<f64> {
        // An error of nothing is one of rounding at least.
        let squares = error.squares.max(self.rounding());
        let ratio = part.squares / part.freedom / (squares / error.freedom);
        let f = FisherSnedecor::new(part.freedom, error.freedom).ok()?;
        Some(f.sf(ratio))
    }

    fn rounding(&self) -> f64 {
        ROUNDING * self.total
    }

    /// Returns whether the rest is more than the differences between seeds.
    fn rest(&self, seeds: &Seeds, effective: f64) -> Option<bool> {
        let rest = &self.parts.rest;
        if self.nothing || rest.squares <= self.rounding() {
            return Some(false);
        }
        match seeds {
            Seeds::One => None,
            Seeds::Copies => Some(true),
            Seeds::Differ(_) if rest.freedom < 1.0 => None,
            Seeds::Differ(values) => {
                let p = self.p_against(rest, &between(values, effective))?;
                Some(self.is_significant(Some(p)))
            }
        }
    }

    /// Returns whether a probability is small enough among so many tests.
    fn is_significant(&self, p: Option<f64>) -> bool {
        p.is_some_and(|p| p * self.number < self.alpha / 2.0)
    }

    fn share_pct(&self, squares: f64) -> f64 {
        if self.nothing {
            0.0
        } else {
            100.0 * squares / self.parts.whole
        }
    }
}

/// Returns the effects of single features, the greatest share first.
fn effects(
    data: &Data,
    tests: &Tests<'_>,
    adding: &Adding<'_>,
    values: &[f64],
    seeds: &Seeds,
) -> Vec<Effect> {
    let grand = mean(values);
    let adds = adding(values);
    let better = better_pct(data, &adds, grand);
    let by_seed: Vec<Vec<Vec<f64>>> = seeds
        .that_differ()
        .iter()
        .map(|values| better_pct(data, &adding(values), mean(values)))
        .collect();
    let levels = |f: usize, alternatives: &[String]| -> Vec<Level> {
        let level = |(place, (choice, add)): (usize, &(usize, f64))| Level {
            alternative: alternatives[*choice].clone(),
            mean: grand + add,
            better_pct: better[f][place],
            interval_pct: interval(by_seed.iter().map(|seed| seed[f][place])),
        };
        adds[f].iter().enumerate().map(level).collect()
    };
    let told = |f: usize, alternatives: &[String]| -> Vec<String> {
        let told = tests.parts.told[f].iter();
        told.map(|&choice| alternatives[choice].clone()).collect()
    };
    let totals = &tests.parts.totals;
    let parts = data.features().iter().zip(&tests.parts.main).enumerate();
    let mut effects: Vec<Effect> = parts
        .map(|(f, (feature, part))| {
            let p = tests.p(part);
            Effect {
                feature: feature.name.clone(),
                share_pct: tests.share_pct(part.squares),
                total_pct: totals.get(f).map(|squares| tests.share_pct(*squares)),
                p,
                significant: tests.is_significant(p),
                levels: levels(f, &feature.alternatives),
                told: told(f, &feature.alternatives),
            }
        })
        .collect();
    effects.sort_by(|a, b| b.share_pct.total_cmp(&a.share_pct));
    effects
}

/// Returns the effects of alternatives as improvements, in percent of a mean.
fn better_pct(data: &Data, adds: &Adds, of: f64) -> Vec<Vec<f64>> {
    let sign = if data.metric.higher { 1.0 } else { -1.0 };
    let feature = |own: &Vec<(usize, f64)>| {
        let parts = own.iter().map(|(_, add)| sign * 100.0 * part(*add, of));
        parts.collect()
    };
    adds.iter().map(feature).collect()
}

/// Returns the joint effects of pairs, the greatest share first.
fn interactions(data: &Data, tests: &Tests<'_>) -> Vec<Interaction> {
    let features = data.features();
    let pairs = tests.parts.pairs.iter();
    let mut interactions: Vec<Interaction> = pairs
        .map(|(a, b, means, part)| {
            let p = tests.p(part);
            let (a, b) = (&features[*a], &features[*b]);
            let size = b.alternatives.len();
            let cell = |(index, mean): (usize, &f64)| {
                let names = [&a.alternatives[index / size], &b.alternatives[index % size]];
                (names[0].clone(), names[1].clone(), *mean)
            };
            Interaction {
                features: [a.name.clone(), b.name.clone()],
                share_pct: tests.share_pct(part.squares),
                p,
                significant: tests.is_significant(p),
                cells: means.iter().enumerate().map(cell).collect(),
            }
        })
        .collect();
    interactions.sort_by(|a, b| b.share_pct.total_cmp(&a.share_pct));
    interactions
}

/// Returns how much of all squares the differences between seeds make in the means over them; `None` without seeds to
/// compare. An effect of a seed on all schedulers alike is no difference between them.
fn noise_pct(seeds: &[Vec<f64>], total: f64) -> Option<f64> {
    let levels: Vec<f64> = seeds.iter().map(|values| mean(values)).collect();
    let noise = |point: usize| {
        let pairs = seeds.iter().zip(&levels);
        let own: Vec<f64> = pairs.map(|(values, level)| values[point] - level).collect();
        deviation(&own).map(|deviation| deviation.powi(2) / own.len() as f64)
    };
    let noise: Option<f64> = (0..seeds.first()?.len()).map(noise).sum();
    noise.map(|noise| (100.0 * noise / total).min(100.0))
}

/// The values of all points by seed.
enum Seeds {
    /// There is one.
    One,
    /// The seed changes nothing: all runs of a point are one, and no sample.
    Copies,
    /// They differ.
    Differ(Vec<Vec<f64>>),
}

impl Seeds {
    fn of(data: &Data, points: &[usize]) -> Seeds {
        let one = |seed: usize| -> Vec<f64> {
            let values = points.iter().map(|&point| data.values[point][seed]);
            values.collect()
        };
        let all: Vec<Vec<f64>> = (0..data.seeds()).map(one).collect();
        if all.len() < 2 {
            Seeds::One
        } else if all.iter().all(|values| *values == all[0]) {
            Seeds::Copies
        } else {
            Seeds::Differ(all)
        }
    }

    fn that_differ(&self) -> &[Vec<f64>] {
        match self {
            Seeds::Differ(values) => values,
            _ => &[],
        }
    }
}

/// 95 % interval of how much better an alternative is than all, by Student's t over seeds.
fn interval(effects: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    let effects: Vec<f64> = effects.collect();
    let count = effects.len() as f64;
    let t = StudentsT::new(0.0, 1.0, count - 1.0)
        .ok()?
        .inverse_cdf(0.975);
    let half = t * deviation(&effects)? / count.sqrt();
    let middle = mean(&effects);
    Some([middle - half, middle + half])
}
