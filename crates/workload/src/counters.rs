//! Sums the counts that behaviours report, over a run.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// A name of a count: a fixed one, or one made of a task's name.
type Name = Cow<'static, str>;

/// Counts of a run, by name in alphabetical order.
///
/// A behaviour keeps its counts as plain fields and adds them here once, when it ends
/// ([`crate::Behaviour::report`]), so counting costs nothing while the run is under way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    values: BTreeMap<Name, i64>,
    ratios: BTreeMap<Name, (Name, Name)>,
}

impl Counters {
    /// Adds to a sum.
    pub fn add(&mut self, name: impl Into<Name>, n: u64) {
        self.add_signed(name, i64::try_from(n).expect("counts stay below 2^63"));
    }

    /// Adds to a sum that may fall below zero (slack in ns).
    pub fn add_signed(&mut self, name: impl Into<Name>, n: i64) {
        *self.values.entry(name.into()).or_default() += n;
    }

    /// Keeps the largest value.
    pub fn max(&mut self, name: impl Into<Name>, n: i64) {
        let value = self.values.entry(name.into()).or_insert(n);
        *value = n.max(*value);
    }

    /// Keeps the smallest value.
    pub fn min(&mut self, name: impl Into<Name>, n: i64) {
        let value = self.values.entry(name.into()).or_insert(n);
        *value = n.min(*value);
    }

    /// Declares a measure that is one sum divided by another.
    pub fn ratio(
        &mut self,
        name: impl Into<Name>,
        dividend: impl Into<Name>,
        divisor: impl Into<Name>,
    ) {
        self.ratios
            .insert(name.into(), (dividend.into(), divisor.into()));
    }

    /// Takes a value out.
    pub(crate) fn take(&mut self, name: &str) -> Option<i64> {
        self.values.remove(name)
    }

    /// Returns a value; 0 if nothing was counted.
    pub fn get(&self, name: &str) -> i64 {
        self.values.get(name).copied().unwrap_or(0)
    }

    /// Returns a count or a ratio as a number; `None` if nothing was counted under this name.
    pub fn number(&self, name: &str) -> Option<f64> {
        if let Some((dividend, divisor)) = self.ratios.get(name) {
            let divisor = self.get(divisor);
            return (divisor > 0).then(|| self.get(dividend) as f64 / divisor as f64);
        }
        self.values.get(name).map(|&n| n as f64)
    }

    /// Everything as flat measures: values, then ratios. A ratio whose divisor is 0 is absent.
    pub fn measures(&self) -> Vec<(String, f64)> {
        let values = self.values.iter().map(|(name, &n)| (name, n as f64));
        let ratios = self
            .ratios
            .iter()
            .filter_map(|(name, (dividend, divisor))| {
                let divisor = self.get(divisor);
                (divisor > 0).then(|| (name, self.get(dividend) as f64 / divisor as f64))
            });
        values
            .chain(ratios)
            .map(|(name, value)| (name.to_string(), value))
            .collect()
    }

    /// Adds what another process counted.
    pub fn merge(&mut self, values: &[(String, i64)]) {
        for (name, n) in values {
            // Extremes carry their kind in their name, so that they can be merged without a second table.
            if name.ends_with("_max") {
                self.max(name.clone(), *n);
            } else if name.ends_with("_min") {
                self.min(name.clone(), *n);
            } else {
                self.add_signed(name.clone(), *n);
            }
        }
    }

    /// Returns the values by name.
    pub fn values(&self) -> impl Iterator<Item = (&str, i64)> {
        self.values.iter().map(|(name, &n)| (name.as_ref(), n))
    }

    /// Returns the ratios by name, each with the names it divides.
    pub fn ratios(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.ratios
            .iter()
            .map(|(name, (dividend, divisor))| (name.as_ref(), dividend.as_ref(), divisor.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_follow_the_sums() {
        let mut counters = Counters::default();
        counters.add("reads", 2);
        counters.add("messages", 3);
        counters.add("messages", 4);
        counters.max("longest_max", 4);
        counters.max("longest_max", 3);
        counters.ratio("messages_per_read", "messages", "reads");
        counters.ratio("nothing", "messages", "absent");
        let expected = [
            ("longest_max", 4.0),
            ("messages", 7.0),
            ("reads", 2.0),
            ("messages_per_read", 3.5),
        ];
        let expected: Vec<_> = expected
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        assert_eq!(counters.measures(), expected);
        assert_eq!(counters.number("messages_per_read"), Some(3.5));
        assert_eq!(counters.number("reads"), Some(2.0));
        assert_eq!(counters.number("nothing"), None);
        assert_eq!(counters.number("absent"), None);
    }

    #[test]
    fn merging_adds_sums_and_keeps_extremes() {
        let mut one = Counters::default();
        one.add("n", 2);
        one.max("t_max", -5);
        one.min("t_min", -5);
        let other = [("n", 3), ("t_max", -7), ("t_min", -7), ("slack", -1)];
        one.merge(&other.map(|(name, n)| (name.to_owned(), n)));
        let values: Vec<_> = one.values().collect();
        assert_eq!(
            values,
            [("n", 5), ("slack", -1), ("t_max", -5), ("t_min", -7)]
        );
    }
}
