//! What behaviours count about themselves, summed over a run.

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
    sums: BTreeMap<Name, u64>,
    ratios: BTreeMap<Name, (Name, Name)>,
}

impl Counters {
    /// Adds to a sum.
    pub fn add(&mut self, name: impl Into<Name>, n: u64) {
        *self.sums.entry(name.into()).or_default() += n;
    }

    /// Keeps the largest value.
    pub fn max(&mut self, name: impl Into<Name>, n: u64) {
        let value = self.sums.entry(name.into()).or_default();
        *value = n.max(*value);
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

    /// A sum or maximum; 0 if nothing was counted.
    pub fn get(&self, name: &str) -> u64 {
        self.sums.get(name).copied().unwrap_or(0)
    }

    /// Everything as flat measures: sums, then ratios. A ratio whose divisor is 0 is absent.
    pub fn measures(&self) -> Vec<(String, f64)> {
        let sums = self.sums.iter().map(|(name, &n)| (name, n as f64));
        let ratios = self
            .ratios
            .iter()
            .filter_map(|(name, (dividend, divisor))| {
                let divisor = self.get(divisor);
                (divisor > 0).then(|| (name, self.get(dividend) as f64 / divisor as f64))
            });
        sums.chain(ratios)
            .map(|(name, value)| (name.to_string(), value))
            .collect()
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
        counters.max("longest", 4);
        counters.max("longest", 3);
        counters.ratio("messages_per_read", "messages", "reads");
        counters.ratio("nothing", "messages", "absent");
        let expected = [
            ("longest", 4.0),
            ("messages", 7.0),
            ("reads", 2.0),
            ("messages_per_read", 3.5),
        ];
        let expected: Vec<_> = expected
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        assert_eq!(counters.measures(), expected);
    }
}
