//! Values of a policy's options, as `name:key=value,…` gives them.

use std::fmt;

use crate::{Duration, nearest};

/// The kind of values that an option takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OptionKind {
    /// `true` or `false` (also `yes`, `no`, `on`, `off`, `1`, `0`; alone it means `true`).
    Bool,
    /// A whole number from `min` to `max`.
    Integer {
        /// Smallest value of its C type.
        min: i128,
        /// Largest value of its C type.
        max: i128,
    },
    /// One of some words, each standing for the value of an enumerator.
    Choice(Vec<(String, i128)>),
}

impl OptionKind {
    /// Reads a value of an option with this name and kind. `None`: the option does not take it.
    fn parse(&self, name: &str, text: &str) -> Option<i128> {
        match self {
            OptionKind::Bool => match text {
                "true" | "yes" | "on" | "1" => Some(1),
                "false" | "no" | "off" | "0" => Some(0),
                _ => None,
            },
            OptionKind::Integer { min, max } => {
                let digits = text.replace('_', "");
                let value = match digits.strip_prefix("0x") {
                    Some(hex) => i128::from_str_radix(hex, 16).ok()?,
                    None => digits.parse().ok().or_else(|| time(name, text))?,
                };
                (*min <= value && value <= *max).then_some(value)
            }
            OptionKind::Choice(words) => {
                let found = words.iter().find(|(word, _)| word == text);
                found.map(|&(_, value)| value)
            }
        }
    }

    /// The values that an option with this name takes, for messages.
    fn choices(&self, name: &str) -> String {
        match (self, unit(name)) {
            (OptionKind::Integer { .. }, Some(_)) => format!("{self}, or a time such as 3ms"),
            _ => self.to_string(),
        }
    }
}

/// The unit of an option's values, by the end of its name: `slice_us` counts in microseconds.
fn unit(name: &str) -> Option<Duration> {
    let (_, unit) = name.rsplit_once('_')?;
    Some(match unit {
        "ns" => Duration::from_ns(1),
        "us" => Duration::from_ns(1_000),
        "ms" => Duration::from_ms(1),
        "s" => Duration::from_secs(1),
        _ => return None,
    })
}

/// A time with its unit, `3ms`, as a number of the option's own units.
fn time(name: &str, text: &str) -> Option<i128> {
    let unit = unit(name)?;
    let ns = Duration::parse(text, unit)?.ns();
    ns.is_multiple_of(unit.ns())
        .then(|| i128::from(ns / unit.ns()))
}

/// The values, for messages and help.
impl fmt::Display for OptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionKind::Bool => f.write_str("true or false"),
            OptionKind::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            OptionKind::Choice(words) => {
                let words: Vec<&str> = words.iter().map(|(word, _)| word.as_str()).collect();
                f.write_str(&words.join(", "))
            }
        }
    }
}

/// Why options could not be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionError {
    /// The policy has no such option.
    #[error("{policy} has no option `{option}`{}: {}", nearest(.option, .known), choose(.known))]
    Unknown {
        /// The policy.
        policy: String,
        /// The given name.
        option: String,
        /// The options there are.
        known: Vec<String>,
    },
    /// The option does not take that value.
    #[error("{policy}: `{value}` is not a value of `{option}`: choose {choices}")]
    Value {
        /// The policy.
        policy: String,
        /// The option.
        option: String,
        /// The given value.
        value: String,
        /// The values there are.
        choices: String,
    },
    /// An option was given twice.
    #[error("{policy}: option `{option}` is given twice")]
    Twice {
        /// The policy.
        policy: String,
        /// The option.
        option: String,
    },
}

fn choose(known: &[String]) -> String {
    if known.is_empty() {
        "it has none".to_owned()
    } else {
        format!("choose one of {}", known.join(", "))
    }
}

/// Reads the values that some of a policy's options, by name and kind, are given: each with the option's place.
///
/// # Errors
/// There is no such option, it does not take that value, or it is given twice.
pub fn read(
    policy: &str,
    options: &[(&str, &OptionKind)],
    given: &[(String, String)],
) -> Result<Vec<(usize, i128)>, OptionError> {
    let mut values: Vec<(usize, i128)> = Vec::new();
    for (key, value) in given {
        let Some(index) = options.iter().position(|(name, _)| name == key) else {
            return Err(OptionError::Unknown {
                policy: policy.to_owned(),
                option: key.clone(),
                known: options.iter().map(|(name, _)| (*name).to_owned()).collect(),
            });
        };
        if values.iter().any(|&(other, _)| other == index) {
            return Err(OptionError::Twice {
                policy: policy.to_owned(),
                option: key.clone(),
            });
        }
        let (name, kind) = options[index];
        let Some(number) = kind.parse(name, value) else {
            return Err(OptionError::Value {
                policy: policy.to_owned(),
                option: key.clone(),
                value: value.clone(),
                choices: kind.choices(name),
            });
        };
        values.push((index, number));
    }
    Ok(values)
}

/// Returns the words for enumerators: lower case, without the prefix that all of them share up to an
/// underscore. A single one keeps all but its first part.
pub fn words(enumerators: &[(&str, i128)]) -> Vec<(String, i128)> {
    let prefix = match enumerators {
        [] => 0,
        [(only, _)] => only.find('_').map_or(0, |at| at + 1),
        [(first, _), rest @ ..] => {
            let common = rest.iter().fold(first.len(), |length, (name, _)| {
                let same = first.bytes().zip(name.bytes());
                length.min(same.take_while(|(a, b)| a == b).count())
            });
            first[..common].rfind('_').map_or(0, |at| at + 1)
        }
    };
    let word = |name: &str| name[prefix..].to_lowercase();
    enumerators
        .iter()
        .map(|&(name, value)| (word(name), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scheduler;

    #[test]
    fn enumerators_lose_the_prefix_they_share() {
        let names = [("TIES_PREV", 0), ("TIES_LIST", 1)];
        assert_eq!(words(&names), [("prev".into(), 0), ("list".into(), 1)]);
        let versions = [("BASE_2_3_99", 1), ("BASE_2_4", 0)];
        assert_eq!(
            words(&versions)[1].0,
            "4",
            "the prefix goes as far as it is shared"
        );
        assert_eq!(words(&[("MODE_ON", 3)]), [("on".into(), 3)]);
    }

    #[test]
    fn values_are_checked_against_the_type() {
        let (number, choice) = (
            OptionKind::Integer { min: 0, max: 255 },
            OptionKind::Choice(vec![("list".into(), 7)]),
        );
        let options = [
            ("slice_us", &number),
            ("fifo", &OptionKind::Bool),
            ("ties", &choice),
        ];
        let parse = |text| read("p", &options, &Scheduler::parse_options(text));
        let values = parse("slice_us=0x10, fifo, ties=list").unwrap();
        assert_eq!(values, [(0, 16), (1, 1), (2, 7)]);
        let error = |text| parse(text).unwrap_err().to_string();
        assert_eq!(
            error("slice_us=256"),
            "p: `256` is not a value of `slice_us`: choose a whole number from 0 to 255, or a time such as 3ms"
        );
        // By the end of its name, it is a time.
        assert_eq!(parse("slice_us=0.2ms").unwrap(), [(0, 200)]);
        assert_eq!(parse("slice_us=7000ns").unwrap(), [(0, 7)]);
        for wrong in ["1ms", "7ns", "1.5ns", "3", "ms", "-1us"] {
            let given = [("slice_us".to_owned(), wrong.to_owned())];
            let found = read("p", &options, &given);
            assert_eq!(found.is_ok(), wrong == "3", "{wrong}: {found:?}");
        }
        assert!(parse("fifo=1us").is_err());
        assert_eq!(
            error("slices=1"),
            "p has no option `slices` (did you mean `slice_us`?): choose one of slice_us, fifo, ties"
        );
        assert_eq!(
            error("ties=prev"),
            "p: `prev` is not a value of `ties`: choose list"
        );
        assert_eq!(error("fifo,fifo=0"), "p: option `fifo` is given twice");
        assert!(parse("").unwrap().is_empty());
    }
}
