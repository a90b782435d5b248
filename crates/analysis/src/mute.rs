//! Schedulers that are one: where another feature has some alternative, a feature may say nothing, as the executor of
//! a balance that never takes place. Some say so in their source; the others are found in the results.

use serde::Serialize;

use crate::Data;

/// A feature has this alternative.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Condition {
    /// The feature that says nothing.
    pub feature: String,
    /// Where: `feature=alternative`, one or two; empty: everywhere.
    pub with: Vec<String>,
}

/// The mute features, and the number of schedulers that are left.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Mute {
    /// Points that were compared.
    pub points: usize,
    /// Schedulers that differ: points that differ in mute features alone are one.
    pub distinct: usize,
    /// As many schedulers of one point each would carry the same information.
    pub effective: f64,
    /// The features without an effect and their conditions, the most general first.
    pub conditions: Vec<Condition>,
    /// For each point of the space: the first point that is the same scheduler.
    #[serde(skip)]
    pub kinds: Vec<usize>,
}

impl Mute {
    /// Kish's effective size of a sample: as many schedulers of one point each would carry the same information as
    /// these points, some of which are the same scheduler. A scheduler of many points weighs more in means than one
    /// of few.
    pub fn effective(&self, points: &[usize]) -> f64 {
        let squares: f64 = self.sizes(points).map(|size| size * size).sum();
        (points.len() as f64).powi(2) / squares
    }

    /// Returns how many of the schedulers that these points are have something, each by its part that has it, and how
    /// many these are.
    pub fn schedulers(&self, points: &[usize], has: impl Fn(usize) -> bool) -> (f64, f64) {
        let with: Vec<usize> = points.iter().copied().filter(|&point| has(point)).collect();
        let (all, with) = (self.points_of_kinds(points), self.points_of_kinds(&with));
        let parts = with.iter().zip(&all).filter(|(_, all)| **all > 0.0);
        (
            parts.map(|(with, all)| with / all).sum(),
            self.distinct(points) as f64,
        )
    }

    /// Returns how many different schedulers these points are.
    pub fn distinct(&self, points: &[usize]) -> usize {
        self.sizes(points).count()
    }

    /// Returns how many of these points each scheduler among them has.
    fn sizes(&self, points: &[usize]) -> impl Iterator<Item = f64> {
        let sizes = self.points_of_kinds(points).into_iter();
        sizes.filter(|size| *size > 0.0)
    }

    /// Returns the same by the first point of each scheduler.
    fn points_of_kinds(&self, points: &[usize]) -> Vec<f64> {
        let mut counts = vec![0.0; self.kinds.len()];
        for &point in points {
            counts[self.kinds[point]] += 1.0;
        }
        counts
    }
}

/// Of a space of which less was run, in percent, nothing is called mute: too few schedulers differ in one
/// feature alone.
const RUN_MIN_PCT: usize = 90;

/// Looks for them.
pub fn mute(data: &Data, choices: &[Vec<usize>]) -> Mute {
    let points: Vec<usize> = data.points().collect();
    let mut kinds = Kinds::declared(data);
    let mut conditions = Vec::new();
    if points.len() * 100 >= data.values.len() * RUN_MIN_PCT {
        conditions = found(data, choices, &mut kinds);
    }
    let mut mute = Mute {
        points: points.len(),
        distinct: 0,
        effective: 0.0,
        conditions,
        kinds: kinds.firsts(),
    };
    mute.distinct = mute.distinct(&points);
    mute.effective = mute.effective(&points);
    mute
}

/// Which features say nothing where in the results. What differs in these alone is joined.
fn found(data: &Data, choices: &[Vec<usize>], kinds: &mut Kinds) -> Vec<Condition> {
    let features = data.features();
    let name = |&(feature, choice): &Alternative| {
        let feature = &features[feature];
        format!("{}={}", feature.name, feature.alternatives[choice])
    };
    let mut found = Vec::new();
    for (feature, info) in features.iter().enumerate() {
        let stride = stride(data, feature);
        for with in conditions(data, &Pairs::of(data, choices, feature), feature) {
            let is_mute = |own: &[usize]| with.iter().all(|&(other, choice)| own[other] == choice);
            // Points without a result, too: who differs from them in a mute feature each is one as well.
            for (point, own) in choices.iter().enumerate() {
                if is_mute(own) {
                    kinds.join(point, point - own[feature] * stride);
                }
            }
            found.push(Condition {
                feature: info.name.clone(),
                with: with.iter().map(name).collect(),
            });
        }
    }
    found.sort_by_key(|condition| condition.with.len());
    found
}

/// How far apart points are that have neighbouring alternatives of a feature and are alike otherwise.
fn stride(data: &Data, feature: usize) -> usize {
    let behind = data.features()[feature + 1..].iter();
    behind.map(|feature| feature.alternatives.len()).product()
}

/// Points joined to schedulers: each has an earlier point of the same one, or is the first.
struct Kinds(Vec<usize>);

impl Kinds {
    /// As the scheduler's source says. Such points share one run.
    fn declared(data: &Data) -> Kinds {
        let same = |point| data.space.same_as(point as u64) as usize;
        let mut kinds = Kinds((0..data.values.len()).collect());
        for point in 0..data.values.len() {
            kinds.join(point, same(point));
        }
        kinds
    }

    fn first(&self, mut point: usize) -> usize {
        while self.0[point] != point {
            point = self.0[point];
        }
        point
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.first(a), self.first(b));
        self.0[a.max(b)] = a.min(b);
    }

    fn firsts(&self) -> Vec<usize> {
        (0..self.0.len()).map(|point| self.first(point)).collect()
    }
}

/// A feature, and one of its alternatives.
type Alternative = (usize, usize);

/// Where a feature was compared with itself: points that differ in it alone are a group, which is level if all of them
/// have the same values.
struct Pairs {
    /// Whether there are groups with these two alternatives of other features; the diagonal: with this one.
    seen: Vec<bool>,
    /// Whether all of them are level.
    level: Vec<bool>,
    /// The number of each feature's first alternative, …
    offsets: Vec<usize>,
    /// … and of all alternatives.
    words: usize,
}

impl Pairs {
    fn of(data: &Data, choices: &[Vec<usize>], feature: usize) -> Pairs {
        let features = data.features();
        let sizes: Vec<usize> = features.iter().map(|f| f.alternatives.len()).collect();
        let stride = stride(data, feature);
        let words: usize = sizes.iter().sum();
        let offsets = sizes.iter().scan(0, |sum, size| {
            *sum += size;
            Some(*sum - size)
        });
        let mut pairs = Pairs {
            seen: vec![false; words * words],
            level: vec![true; words * words],
            offsets: offsets.collect(),
            words,
        };
        let is_first = |point: &usize| choices[*point][feature] == 0;
        // Of a group in which the first one failed, the others are compared.
        for point in (0..data.values.len()).filter(is_first) {
            let group = (0..sizes[feature]).map(|choice| &data.values[point + choice * stride]);
            let mut there = group.filter(|values| !values.is_empty());
            let Some(one) = there.next() else {
                continue;
            };
            let mut others = there.peekable();
            if others.peek().is_none() {
                continue;
            }
            let level = others.all(|values| values == one);
            let own = choices[point].iter().copied().enumerate();
            let own: Vec<Alternative> = own.filter(|(other, _)| *other != feature).collect();
            for &a in &own {
                for &b in &own {
                    let at = pairs.at(a, b);
                    pairs.seen[at] = true;
                    pairs.level[at] &= level;
                }
            }
        }
        pairs
    }

    fn at(&self, a: Alternative, b: Alternative) -> usize {
        let word = |(feature, choice): Alternative| self.offsets[feature] + choice;
        word(a) * self.words + word(b)
    }

    fn seen(&self, one: Alternative) -> bool {
        self.seen[self.at(one, one)]
    }

    /// Returns whether the feature says nothing where a point has both.
    fn holds(&self, a: Alternative, b: Alternative) -> bool {
        let at = self.at(a, b);
        self.seen[at] && self.level[at]
    }
}

/// Where a feature says nothing: with one alternative of another, or with two of two others of which neither is enough.
/// With none: everywhere.
fn conditions(data: &Data, pairs: &Pairs, feature: usize) -> Vec<Vec<Alternative>> {
    let features = data.features().iter().enumerate();
    let others: Vec<Alternative> = features
        .filter(|(other, _)| *other != feature)
        .flat_map(|(other, info)| (0..info.alternatives.len()).map(move |choice| (other, choice)))
        .filter(|&one| pairs.seen(one))
        .collect();
    let alone = |one: &Alternative| pairs.holds(*one, *one);
    if !others.is_empty() && others.iter().all(alone) {
        return vec![Vec::new()];
    }
    let (enough, rest): (Vec<Alternative>, Vec<Alternative>) = others.into_iter().partition(alone);
    let mut conditions: Vec<Vec<Alternative>> = enough.into_iter().map(|one| vec![one]).collect();
    for (index, &a) in rest.iter().enumerate() {
        let second = rest[index + 1..].iter();
        conditions.extend(second.filter(|b| pairs.holds(a, **b)).map(|&b| vec![a, b]));
    }
    conditions
}
