//! A run's measures: flat, ordered, each a number or a word.

use indexmap::IndexMap;
use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::pairs::from_map;

/// The value of a measure.
#[derive(Clone, PartialEq, Debug, serde::Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A count or a time in nanoseconds.
    Int(u64),
    /// A mean, a share, a rate. Always finite.
    Float(f64),
    /// A word, such as the unit of the score.
    Text(String),
}

impl Value {
    /// Returns the value as a number; `None` for a word.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Int(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            Value::Text(_) => None,
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Int(n) => serializer.serialize_u64(*n),
            Value::Float(x) => serializer.serialize_f64(*x),
            Value::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// Measures by name, in the order in which they were set. What could not be measured is absent.
///
/// Workloads may have a few of each thread, and so a hundred thousand.
#[derive(Clone, Debug, Default)]
pub struct Measures(IndexMap<String, Value>);

impl PartialEq for Measures {
    /// The order counts, too: it is the document's.
    fn eq(&self, other: &Self) -> bool {
        self.0.as_slice() == other.0.as_slice()
    }
}

impl Measures {
    /// Sets a measure; one that is already there keeps its place.
    ///
    /// # Panics
    /// If a float is not finite: such a measure should have been left out.
    pub fn set(&mut self, name: impl Into<String>, value: Value) {
        let name = name.into();
        if let Value::Float(x) = value {
            assert!(x.is_finite(), "the measure {name} is {x}");
        }
        self.0.insert(name, value);
    }

    /// Sets a count or a time in nanoseconds.
    pub fn int(&mut self, name: impl Into<String>, n: u64) {
        self.set(name, Value::Int(n));
    }

    /// Sets a float.
    pub fn float(&mut self, name: impl Into<String>, x: f64) {
        self.set(name, Value::Float(x));
    }

    /// Sets a word.
    pub fn text(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.set(name, Value::Text(text.into()));
    }

    /// Sets the score, with its unit and which scores are better.
    pub fn score(&mut self, value: f64, unit: &str, higher_is_better: bool) {
        self.float("score", value);
        self.text("score_unit", unit);
        self.text("score_better", better(higher_is_better));
    }

    /// Sets the score of a part of the workload, likewise.
    pub fn part_score(&mut self, part: &str, value: f64, unit: &str, higher_is_better: bool) {
        self.float(format!("{part}.score"), value);
        self.text(format!("{part}.score_unit"), unit);
        self.text(format!("{part}.score_better"), better(higher_is_better));
    }

    /// Sets `dividend / divisor`, or nothing where there is nothing to divide by.
    pub fn mean(&mut self, name: impl Into<String>, dividend: u128, divisor: u64) {
        if divisor > 0 {
            self.float(name, dividend as f64 / divisor as f64);
        }
    }

    /// Sets `100 · part / whole`, or nothing where there is no whole.
    pub fn percent(&mut self, name: impl Into<String>, part: u64, whole: u64) {
        if whole > 0 {
            self.float(name, 100.0 * part as f64 / whole as f64);
        }
    }

    /// Sets what a workload counted under its own names, then its ratios. A measure that is there already
    /// keeps its value.
    pub fn counters<'a>(
        &mut self,
        counts: impl Iterator<Item = (&'a str, i64)>,
        ratios: impl IntoIterator<Item = (String, f64)>,
    ) {
        for (name, n) in counts {
            if self.get(name).is_none() {
                match u64::try_from(n) {
                    Ok(n) => self.int(name, n),
                    Err(_) => self.float(name, n as f64),
                }
            }
        }
        for (name, ratio) in ratios {
            if self.get(&name).is_none() {
                self.float(name, ratio);
            }
        }
    }

    /// Returns a measure's value.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns a measure as a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.number()
    }

    /// Returns all of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

/// Which scores are better.
fn better(higher_is_better: bool) -> &'static str {
    match higher_is_better {
        true => "higher",
        false => "lower",
    }
}

impl<'de> Deserialize<'de> for Measures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs: Vec<(String, Value)> = from_map(deserializer)?;
        Ok(Measures(pairs.into_iter().collect()))
    }
}

impl Serialize for Measures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_a_second_value_replaces_the_first() {
        let mut measures = Measures::default();
        measures.int("b", 1);
        measures.text("a", "x");
        measures.int("b", 2);
        measures.mean("none", 1, 0);
        measures.percent("none", 1, 0);
        measures.percent("half", 1, 2);
        assert_eq!(
            serde_json::to_string(&measures).unwrap(),
            r#"{"b":2,"a":"x","half":50.0}"#
        );
        assert_eq!(measures.number("half"), Some(50.0));
        assert_eq!(measures.number("a"), None);
        let mut other_order = Measures::default();
        other_order.text("a", "x");
        other_order.int("b", 2);
        other_order.percent("half", 1, 2);
        assert_ne!(measures, other_order);
    }

    #[test]
    fn counters_do_not_overwrite_measures() {
        let mut measures = Measures::default();
        measures.int("work", 3);
        let counts = [("work", 9), ("slack_ns", -4), ("reads", 2)];
        let ratios = [("reads".to_owned(), 2.0), ("per_read".to_owned(), 1.5)];
        measures.counters(counts.into_iter(), ratios);
        assert_eq!(
            serde_json::to_string(&measures).unwrap(),
            r#"{"work":3,"slack_ns":-4.0,"reads":2,"per_read":1.5}"#
        );
    }

    #[test]
    #[should_panic(expected = "the measure x is NaN")]
    fn a_measure_that_is_no_number_is_our_bug() {
        Measures::default().float("x", f64::NAN);
    }
}
