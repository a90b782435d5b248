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
    let sizes: Vec<usize> = features.iter().map(|f| f.alternatives.len()).collect();
    let strides: Vec<usize> = (0..sizes.len())
        .map(|index| sizes[index + 1..].iter().product())
        .collect();
    // One number for each alternative of each feature.
    let offsets: Vec<usize> = sizes
        .iter()
        .scan(0, |sum, size| {
            *sum += size;
            Some(*sum - size)
        })
        .collect();
    let words: usize = sizes.iter().sum();
    let points: Vec<usize> = data.points().collect();
    let mut conditions = Vec::new();
    let mut silent = vec![vec![false; features.len()]; data.values.len()];
    for (feature, &size) in sizes.iter().enumerate() {
        // Whether all groups with these two alternatives are level; the diagonal: with this one.
        let mut level = vec![true; words * words];
        let mut seen = vec![false; words * words];
        for &point in points.iter().filter(|&&point| choices[point][feature] == 0) {
            let group = (0..size).map(|choice| &data.values[point + choice * strides[feature]]);
            let mut there = group.clone().filter(|values| !values.is_empty());
            if there.clone().count() < 2 {
                continue;
            }
            let one = there.next().expect("two at least");
            let equal = there.all(|values| values == one);
            let own: Vec<usize> = (0..features.len())
                .filter(|&other| other != feature)
                .map(|other| offsets[other] + choices[point][other])
                .collect();
            for &a in &own {
                for &b in &own {
                    seen[a * words + b] = true;
                    level[a * words + b] &= equal;
                }
            }
        }
        let holds = |a: usize, b: usize| seen[a * words + b] && level[a * words + b];
        let others: Vec<(usize, usize)> = (0..features.len())
            .filter(|&other| other != feature)
            .flat_map(|other| (0..sizes[other]).map(move |choice| (other, choice)))
            .collect();
        let name = |&(other, choice): &(usize, usize)| {
            format!(
                "{}={}",
                features[other].name, features[other].alternatives[choice]
            )
        };
        let word = |&(other, choice): &(usize, usize)| offsets[other] + choice;
        let single = |place: &(usize, usize)| holds(word(place), word(place));
        let any = others
            .iter()
            .any(|place| seen[word(place) * words + word(place)]);
        let found = |with: Vec<String>| Condition {
            feature: features[feature].name.clone(),
            with,
        };
        if any
            && others
                .iter()
                .all(|place| single(place) || !seen[word(place) * words + word(place)])
        {
            conditions.push(found(Vec::new()));
            for &point in &points {
                silent[point][feature] = true;
            }
            continue;
        }
        let mut says_nothing = |with: &[&(usize, usize)]| {
            for &point in &points {
                if with
                    .iter()
                    .all(|&&(other, choice)| choices[point][other] == choice)
                {
                    silent[point][feature] = true;
                }
            }
        };
        for place in others.iter().filter(|place| single(place)) {
            conditions.push(found(vec![name(place)]));
            says_nothing(&[place]);
        }
        for (index, a) in others.iter().enumerate() {
            for b in &others[index + 1..] {
                if a.0 == b.0 || single(a) || single(b) || !holds(word(a), word(b)) {
                    continue;
                }
                conditions.push(found(vec![name(a), name(b)]));
                says_nothing(&[a, b]);
            }
        }
    }
    conditions.sort_by_key(|condition| condition.with.len());
    // A scheduler is told by its alternatives but for those that say nothing.
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
    Mute {
        points: points.len(),
        distinct: kinds.len(),
        conditions,
        silent,
    }
}
