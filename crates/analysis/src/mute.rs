//! Alternatives that are one: a feature that says nothing where another feature has some alternative, as
//! the executor of a balance that never takes place. Found in the results, not known beforehand.

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

/// What is mute, and how many schedulers are left.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Mute {
    /// Points that were compared.
    pub points: usize,
    /// Schedulers that differ: points that differ in mute features alone are one.
    pub distinct: usize,
    /// What says nothing where, the most general first.
    pub conditions: Vec<Condition>,
    /// For each point: which features say nothing there.
    #[serde(skip)]
    pub silent: Vec<Vec<bool>>,
}

/// Of a space of which less was run, in percent, nothing is called mute: too few schedulers differ in one
/// feature alone.
const RUN_MIN_PCT: usize = 90;

/// Looks for them.
pub fn mute(data: &Data, choices: &[Vec<usize>]) -> Mute {
    let count = data.points().count();
    if count * 100 < data.values.len() * RUN_MIN_PCT {
        return Mute {
            points: count,
            distinct: count,
            conditions: Vec::new(),
            silent: vec![vec![false; data.features().len()]; data.values.len()],
        };
    }
    let features = data.features();
    let points: Vec<usize> = data.points().collect();
    let name = |&(feature, choice): &Alternative| {
        let feature = &features[feature];
        format!("{}={}", feature.name, feature.alternatives[choice])
    };
    let mut found = Vec::new();
    let mut silent = vec![vec![false; features.len()]; data.values.len()];
    for (feature, info) in features.iter().enumerate() {
        for with in conditions(data, &Pairs::of(data, choices, feature), feature) {
            for &point in &points {
                let has = |&(other, choice): &Alternative| choices[point][other] == choice;
                silent[point][feature] |= with.iter().all(has);
            }
            found.push(Condition {
                feature: info.name.clone(),
                with: with.iter().map(name).collect(),
            });
        }
    }
    found.sort_by_key(|condition| condition.with.len());
    Mute {
        points: count,
        distinct: distinct(&points, choices, &silent),
        conditions: found,
        silent,
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
        let stride: usize = sizes[feature + 1..].iter().product();
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

    /// Whether the feature says nothing where a point has both.
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

/// How many schedulers differ. One is told by its alternatives but for those that say nothing.
fn distinct(points: &[usize], choices: &[Vec<usize>], silent: &[Vec<bool>]) -> usize {
    let mut kinds: Vec<Vec<Option<usize>>> = points
        .iter()
        .map(|&point| {
            let own = choices[point].iter().zip(&silent[point]);
            own.map(|(&choice, &silent)| (!silent).then_some(choice))
                .collect()
        })
        .collect();
    kinds.sort();
    kinds.dedup();
    kinds.len()
}
