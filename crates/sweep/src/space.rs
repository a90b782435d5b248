//! The space that is swept: the product of a scheduler's options that have alternatives.

use std::collections::BTreeSet;

use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use schedlab_sim::{Scheduler, spelled_out};
use serde::{Deserialize, Serialize};

use crate::SweepError;

/// A feature with its alternatives.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Feature {
    /// Name of the option.
    pub name: String,
    /// Its values.
    pub alternatives: Vec<String>,
}

/// A feature whose alternatives are one while other features have certain alternatives, as the
/// scheduler's source says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mute {
    /// Name of the feature.
    pub feature: String,
    /// All of which must be so: `feature=alternative,…`.
    pub while_: String,
}

/// All combinations of the alternatives of some features of a scheduler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Space {
    /// Name of the scheduler, or the path of its source.
    pub scheduler: String,
    /// The features that vary. The last one varies fastest.
    pub features: Vec<Feature>,
    /// Options that have one value throughout.
    #[serde(with = "as_text")]
    pub fixed: Vec<(String, String)>,
    /// Which features are mute when. Points that differ in mute features alone are the same scheduler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mute: Vec<Mute>,
}

/// Options in the document, as one writes them: `key=value,…`.
mod as_text {
    use schedlab_sim::Scheduler;
    use serde::{Deserialize as _, Deserializer, Serializer};

    type Options = Vec<(String, String)>;

    pub fn serialize<S: Serializer>(options: &Options, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&Scheduler::options_text(options))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Options, D::Error> {
        Ok(Scheduler::parse_options(&String::deserialize(from)?))
    }
}

impl Space {
    /// Returns the space of a scheduler, with some options fixed.
    ///
    /// # Errors
    /// If there is no such scheduler or option, or nothing that varies.
    pub fn of(scheduler: &str, fixed: &[(String, String)]) -> Result<Space, SweepError> {
        let asked = spelled_out(&Scheduler::parse(scheduler));
        let bare = Scheduler::plain(asked.name);
        let known = schedlab_sim::options(&bare).map_err(schedlab_sim::SimError::from)?;
        for (option, _) in fixed {
            if !known.iter().any(|known| known.name == *option) {
                return Err(SweepError::Option {
                    scheduler: bare.name,
                    option: option.clone(),
                    known: names(known.iter().map(|option| &option.name)),
                });
            }
        }
        // An option that is given with the scheduler is fixed as well.
        let fixed = [&asked.options[..], fixed].concat();
        // Wrong values are reported now.
        schedlab_sim::options(&Scheduler {
            name: bare.name.clone(),
            options: fixed.clone(),
        })
        .map_err(schedlab_sim::SimError::from)?;
        let is_fixed = |name: &str| fixed.iter().any(|(key, _)| key == name);
        let features: Vec<Feature> = known
            .into_iter()
            .filter(|option| option.choices.len() > 1 && !is_fixed(&option.name))
            .map(|option| Feature {
                name: option.name,
                alternatives: option.choices,
            })
            .collect();
        if features.is_empty() {
            return Err(SweepError::NoSpace {
                scheduler: bare.name,
            });
        }
        let mut space = Space {
            mute: Vec::new(),
            scheduler: bare.name.clone(),
            features,
            fixed,
        };
        let mute = schedlab_sim::mute(&bare).map_err(schedlab_sim::SimError::from)?;
        let mute: Vec<Mute> = mute
            .into_iter()
            .map(|(feature, while_)| Mute { feature, while_ })
            .collect();
        check(&mute, &bare)?;
        // Where a feature is fixed there is nothing that could be mute.
        let varies = |mute: &Mute| space.feature(&mute.feature).is_some();
        space.mute = mute.into_iter().filter(varies).collect();
        Ok(space)
    }

    fn feature(&self, name: &str) -> Option<usize> {
        self.features
            .iter()
            .position(|feature| feature.name == name)
    }

    /// Returns the first point that is the same scheduler: every mute feature has its first alternative.
    pub fn same_as(&self, point: u64) -> u64 {
        let mut choices = self.choices(point);
        for mute in &self.mute {
            let holds = |part: &(String, String)| match self.feature(&part.0) {
                Some(index) => self.features[index].alternatives[choices[index]] == part.1,
                None => self.fixed.contains(part),
            };
            if Scheduler::parse_options(&mute.while_).iter().all(holds)
                && let Some(index) = self.feature(&mute.feature)
            {
                choices[index] = 0;
            }
        }
        self.point(&choices)
    }

    /// Number of points.
    pub fn len(&self) -> u64 {
        let sizes = self.features.iter();
        sizes
            .map(|feature| feature.alternatives.len() as u64)
            .product()
    }

    /// Never: a space has at least one feature.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the alternative of each feature at a point.
    pub fn choices(&self, point: u64) -> Vec<usize> {
        let mut rest = point;
        let mut choices: Vec<usize> = self
            .features
            .iter()
            .rev()
            .map(|feature| {
                let size = feature.alternatives.len() as u64;
                let choice = rest % size;
                rest /= size;
                choice as usize
            })
            .collect();
        choices.reverse();
        choices
    }

    /// Returns the point with these alternatives.
    pub fn point<'a>(&self, choices: impl IntoIterator<Item = &'a usize>) -> u64 {
        self.features
            .iter()
            .zip(choices)
            .fold(0, |point, (feature, &choice)| {
                point * feature.alternatives.len() as u64 + choice as u64
            })
    }

    /// Returns the scheduler at a point, every feature named.
    pub fn scheduler(&self, point: u64) -> Scheduler {
        let chosen = self.features.iter().zip(self.choices(point));
        let options = chosen.map(|(feature, choice)| {
            let value = feature.alternatives[choice].clone();
            (feature.name.clone(), value)
        });
        Scheduler {
            name: self.scheduler.clone(),
            options: options.chain(self.fixed.iter().cloned()).collect(),
        }
    }

    /// Returns the point that a scheduler stands for; features that it does not name have their defaults.
    ///
    /// # Errors
    /// If it is another scheduler, or has an option or value that is not of this space.
    pub fn find(&self, scheduler: &Scheduler) -> Result<u64, SweepError> {
        let refuse = |why: String| SweepError::Point {
            text: scheduler.to_string(),
            scheduler: self.scheduler.clone(),
            why,
        };
        let asked = spelled_out(scheduler);
        if asked.name != self.scheduler {
            return Err(refuse("it is another scheduler".to_owned()));
        }
        let bare = Scheduler::plain(asked.name);
        let known = schedlab_sim::options(&bare).map_err(schedlab_sim::SimError::from)?;
        let mut values: Vec<Option<String>> = self
            .features
            .iter()
            .map(|feature| {
                let option = known.iter().find(|option| option.name == feature.name)?;
                Some(option.default.clone())
            })
            .collect();
        for (key, value) in asked
            .options
            .iter()
            .filter(|part| !self.fixed.contains(part))
        {
            match self.feature(key) {
                Some(index) => values[index] = Some(value.clone()),
                None => return Err(refuse(format!("`{key}` does not vary in it"))),
            }
        }
        let mut choices = Vec::new();
        for (feature, value) in self.features.iter().zip(values) {
            let value = value.unwrap_or_default();
            let choice = feature.alternatives.iter().position(|word| *word == value);
            choices.push(choice.ok_or_else(|| {
                refuse(format!(
                    "`{value}` is not an alternative of `{}`; there are: {}",
                    feature.name,
                    names(&feature.alternatives)
                ))
            })?);
        }
        Ok(self.point(&choices))
    }

    /// `size` different points, in rising order, drawn from `seed` so that each alternative of a feature
    /// is taken equally often, as far as that is possible. All points if there are no more.
    pub fn sample(&self, size: u64, seed: u64) -> Vec<u64> {
        if size >= self.len() {
            return (0..self.len()).collect();
        }
        // Of more than half, what is left out is drawn: it is as even, and has far fewer doubles to resolve.
        if size > self.len() / 2 {
            let left_out: BTreeSet<u64> = self.draw(self.len() - size, seed).into_iter().collect();
            return (0..self.len())
                .filter(|point| !left_out.contains(point))
                .collect();
        }
        self.draw(size, seed)
    }

    /// Returns the same of at most half of the points.
    fn draw(&self, size: u64, seed: u64) -> Vec<u64> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let count = usize::try_from(size).expect("a sample fits into memory");
        // A column a feature: its alternatives in turn, shuffled.
        let mut columns: Vec<Vec<usize>> = self
            .features
            .iter()
            .map(|feature| {
                let mut column: Vec<usize> =
                    (0..count).map(|i| i % feature.alternatives.len()).collect();
                shuffle(&mut column, &mut random);
                column
            })
            .collect();
        // Rows that are alike exchange an alternative with another row, which keeps the columns' counts.
        let mut doubles = self.doubles(&columns);
        while let Some(&i) = doubles.1.first() {
            let column = below(&mut random, columns.len());
            let other = below(&mut random, count);
            columns[column].swap(i, other);
            let now = self.doubles(&columns);
            // Where many points are taken, most exchanges would make more rows alike than they resolve.
            if now.1.len() > doubles.1.len() {
                columns[column].swap(i, other);
            } else {
                doubles = now;
            }
        }
        doubles.0.into_iter().collect()
    }

    /// Returns the points that rows stand for, and the rows whose point an earlier one has.
    fn doubles(&self, columns: &[Vec<usize>]) -> (BTreeSet<u64>, Vec<usize>) {
        let mut seen = BTreeSet::new();
        let rows = 0..columns.first().map_or(0, Vec::len);
        let again = rows
            .filter(|&row| {
                let choices = columns.iter().map(|column| &column[row]);
                !seen.insert(self.point(choices))
            })
            .collect();
        (seen, again)
    }
}

/// A source's statements about mute features must name features of the scheduler, and conditions must not be mute
/// themselves.
fn check(mute: &[Mute], bare: &Scheduler) -> Result<(), SweepError> {
    let known = schedlab_sim::options(bare).map_err(schedlab_sim::SimError::from)?;
    let choices = |name: &str| {
        let option = known.iter().find(|option| option.name == name);
        option.map_or(&[][..], |option| option.choices.as_slice())
    };
    for Mute { feature, while_ } in mute {
        let refuse = |why: String| SweepError::Mute {
            scheduler: bare.name.clone(),
            text: format!("- {feature}: {while_}"),
            why,
        };
        if choices(feature).is_empty() {
            return Err(refuse(format!("`{feature}` is not a feature")));
        }
        let conditions = Scheduler::parse_options(while_);
        if conditions.is_empty() {
            return Err(refuse("it names no alternative".to_owned()));
        }
        for (name, value) in &conditions {
            if !choices(name).contains(value) {
                return Err(refuse(format!(
                    "`{name}={value}` is not an alternative of a feature"
                )));
            }
            if mute.iter().any(|other| other.feature == *name) {
                return Err(refuse(format!("`{name}` is mute itself")));
            }
        }
    }
    Ok(())
}

fn names<'a>(all: impl IntoIterator<Item = &'a String>) -> String {
    let all: Vec<&str> = all.into_iter().map(String::as_str).collect();
    all.join(", ")
}

/// Returns a number below `limit`; the bias of the remainder is less than 2^-32.
fn below(random: &mut Pcg64Mcg, limit: usize) -> usize {
    (random.next_u64() % limit as u64) as usize
}

/// In a random order.
pub(crate) fn shuffle<T>(values: &mut [T], random: &mut Pcg64Mcg) {
    for last in (1..values.len()).rev() {
        values.swap(last, below(random, last + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Space {
        Space::of("feature", &[]).unwrap()
    }

    #[test]
    fn the_tree_has_5832_schedulers_whose_names_lead_back_to_them() {
        let space = tree();
        assert_eq!(space.len(), 5_832);
        let sizes: Vec<usize> = space
            .features
            .iter()
            .map(|f| f.alternatives.len())
            .collect();
        assert_eq!(sizes, [3, 3, 3, 3, 2, 2, 3, 2, 3]);
        let mut names = BTreeSet::new();
        for point in 0..space.len() {
            let scheduler = space.scheduler(point);
            let text = scheduler.to_string();
            assert_eq!(
                space.find(&Scheduler::parse(&text)).unwrap(),
                point,
                "{text}"
            );
            assert!(schedlab_sim::options(&scheduler).is_ok(), "{text}");
            assert_eq!(space.point(&space.choices(point)), point);
            names.insert(text);
        }
        assert_eq!(names.len(), 5_832);
    }

    #[test]
    fn points_that_differ_in_mute_features_alone_are_one() {
        let space = tree();
        let same = |text: &str| {
            let point = space.find(&Scheduler::parse(text)).unwrap();
            space.scheduler(space.same_as(point)).options
        };
        let all: BTreeSet<u64> = (0..space.len()).map(|point| space.same_as(point)).collect();
        // Per election, slice and metric (27): who balances when and how, never balancing (3) or
        // periodically (24); and placements, none (1) or by distance (3).
        assert_eq!(all.len(), 27 * (3 + 24) * (1 + 3));
        assert!(all.iter().all(|&point| space.same_as(point) == point));
        assert_eq!(
            same("feature:periodic=never,executor=core"),
            same("feature:periodic=never,executor=node")
        );
        assert_ne!(
            same("feature:periodic=random,executor=core"),
            same("feature:periodic=random,executor=node")
        );
        // One condition of two is not enough.
        assert_ne!(
            same("feature:periodic=never,idle=on,imbalance=differs"),
            same("feature:periodic=never,idle=on,imbalance=above_20pct")
        );
        assert_eq!(
            same("feature:periodic=never,idle=off,imbalance=differs"),
            same("feature:periodic=never,idle=off,imbalance=above_20pct")
        );
        // A condition may be fixed, and so may a mute feature.
        let fix = |text: &str| Space::of(text, &[]).unwrap();
        let never = fix("feature:periodic=never");
        let all: BTreeSet<u64> = (0..never.len()).map(|point| never.same_as(point)).collect();
        assert_eq!(all.len(), 27 * 3 * 4);
        assert_eq!(fix("feature:executor=node").mute.len(), 2);
        assert_eq!(
            Space::of("mq-pool", &[]).map_or(0, |space| space.mute.len()),
            0
        );
    }

    #[test]
    fn what_cannot_be_mute_is_refused() {
        let refused = |items: &[(&str, &str)]| {
            let items: Vec<Mute> = items
                .iter()
                .map(|(feature, while_)| Mute {
                    feature: feature.to_string(),
                    while_: while_.to_string(),
                })
                .collect();
            let error = check(&items, &Scheduler::parse("feature")).unwrap_err();
            error.to_string()
        };
        for (items, why) in [
            (
                &[("executors", "periodic=never")][..],
                "`executors` is not a feature",
            ),
            (
                &[("fixed_us", "periodic=never")],
                "`fixed_us` is not a feature",
            ),
            (
                &[("executor periodic=never", "")],
                "is not a feature; write",
            ),
            (&[("executor", "")], "it names no alternative"),
            (
                &[("executor", "periodic=no")],
                "`periodic=no` is not an alternative",
            ),
            (&[("executor", "executor=all")], "`executor` is mute itself"),
            // In either order.
            (
                &[("placement", "unblock=off"), ("unblock", "idle=off")],
                "`unblock` is mute",
            ),
            (
                &[("unblock", "idle=off"), ("placement", "unblock=off")],
                "`unblock` is mute",
            ),
        ] {
            let error = refused(items);
            assert!(error.contains(why), "{error}");
        }
        assert!(check(&[], &Scheduler::parse("feature")).is_ok());
    }

    #[test]
    fn points_with_names_are_found() {
        let space = tree();
        let find = |text: &str| space.find(&Scheduler::parse(text));
        let default = find("feature").unwrap();
        assert_eq!(find("cfs-like").unwrap(), default);
        let other = find("ule-like").unwrap();
        assert_ne!(other, default);
        assert_eq!(
            space
                .scheduler(find("feature:slice=fixed").unwrap())
                .to_string(),
            space
                .scheduler(default)
                .to_string()
                .replace("slice=split", "slice=fixed")
        );
        for (text, why) in [
            ("dss", "another scheduler"),
            ("feature:slice=long", "not an alternative of `slice`"),
            ("feature:fixed_us=5", "does not vary"),
        ] {
            let error = find(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn fixed_options_do_not_vary() {
        let fix = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect();
            Space::of("feature", &pairs)
        };
        let space = fix(&[("slice", "fixed"), ("fixed_us", "5000")]).unwrap();
        assert_eq!(space.len(), 5_832 / 3);
        let scheduler = space.scheduler(7);
        let text = scheduler.to_string();
        assert!(text.ends_with(",slice=fixed,fixed_us=5000"));
        assert_eq!(space.find(&scheduler).unwrap(), 7);
        for (pair, expected) in [
            (("slices", "x"), "no option `slices`"),
            (("slice", "x"), "`x`"),
        ] {
            let error = fix(&[pair]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(Space::of("vtime", &[]).is_err());
        // A scheduler may come with options of its own.
        assert_eq!(
            Space::of("feature:slice=fixed", &[]).unwrap().len(),
            5_832 / 3
        );
    }

    #[test]
    fn a_sample_covers_every_alternative_equally() {
        let space = tree();
        // Half and more of the points, too.
        let sizes = [
            (100, 1),
            (100, 2),
            (3, 1),
            (1_000, 9),
            (2_916, 1),
            (4_000, 1),
            (5_831, 1),
        ];
        for (size, seed) in sizes {
            let sample = space.sample(size, seed);
            assert_eq!(sample.len() as u64, size);
            assert!(sample.is_sorted_by(|a, b| a < b));
            assert_eq!(sample, space.sample(size, seed));
            for (index, feature) in space.features.iter().enumerate() {
                for choice in 0..feature.alternatives.len() {
                    let chosen = sample
                        .iter()
                        .filter(|&&p| space.choices(p)[index] == choice);
                    let (nr, all) = (chosen.count() as u64, feature.alternatives.len() as u64);
                    assert!(nr == size / all || nr == size.div_ceil(all));
                }
            }
        }
        assert_ne!(space.sample(100, 1), space.sample(100, 2));
        assert_eq!(space.sample(0, 1), [0; 0]);
        assert_eq!(space.sample(10_000, 1).len(), 5_832);
    }
}
