//! A policy's options: its `const volatile` globals, as `name:key=value,…` sets them.

use std::fmt;

use schedlab_trace::{Duration, nearest};

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

/// An option of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyOption {
    /// Name of the variable.
    pub name: String,
    /// The values that it takes.
    pub kind: OptionKind,
    /// The value that the source gives it.
    pub default: i128,
    /// The comment beside or above its definition.
    pub doc: Option<String>,
    /// Where it lies in the object.
    pub(crate) address: u64,
    /// Its size in bytes.
    pub(crate) bytes: u8,
}

impl PolicyOption {
    /// The default, written as a user would.
    pub fn default_text(&self) -> String {
        self.text(self.default)
    }

    /// A value, written as a user would.
    pub fn text(&self, value: i128) -> String {
        match &self.kind {
            OptionKind::Bool => (value != 0).to_string(),
            OptionKind::Integer { .. } => value.to_string(),
            OptionKind::Choice(words) => match words.iter().find(|(_, known)| *known == value) {
                Some((word, _)) => word.clone(),
                None => value.to_string(),
            },
        }
    }

    /// The unit of its values, by the end of its name: `slice_us` counts in microseconds.
    fn unit(&self) -> Option<Duration> {
        let (_, unit) = self.name.rsplit_once('_')?;
        Some(match unit {
            "ns" => Duration::from_ns(1),
            "us" => Duration::from_ns(1_000),
            "ms" => Duration::from_ms(1),
            "s" => Duration::from_secs(1),
            _ => return None,
        })
    }

    /// A time with its unit, `3ms`, as a number of the option's own units.
    fn time(&self, text: &str) -> Option<i128> {
        let unit = self.unit()?;
        let ns = Duration::parse(text, unit)?.ns();
        ns.is_multiple_of(unit.ns())
            .then(|| i128::from(ns / unit.ns()))
    }

    /// The values that it takes, for messages.
    fn choices(&self) -> String {
        match (&self.kind, self.unit()) {
            (OptionKind::Integer { .. }, Some(_)) => {
                format!("{}, or a time such as 3ms", self.kind)
            }
            (kind, _) => kind.to_string(),
        }
    }

    fn parse(&self, text: &str) -> Option<i128> {
        match &self.kind {
            OptionKind::Bool => match text {
                "true" | "yes" | "on" | "1" => Some(1),
                "false" | "no" | "off" | "0" => Some(0),
                _ => None,
            },
            OptionKind::Integer { min, max } => {
                let digits = text.replace('_', "");
                let value = match digits.strip_prefix("0x") {
                    Some(hex) => i128::from_str_radix(hex, 16).ok()?,
                    None => digits.parse().ok().or_else(|| self.time(text))?,
                };
                (*min <= value && value <= *max).then_some(value)
            }
            OptionKind::Choice(words) => {
                let found = words.iter().find(|(word, _)| word == text);
                found.map(|&(_, value)| value)
            }
        }
    }
}

impl OptionKind {
    /// The kind, of an option whose comment may say which numbers it takes, `(0 to 1000)`: fewer than its type has.
    pub(crate) fn documented(self, doc: Option<&str>, default: i128) -> OptionKind {
        match (self, doc.and_then(range)) {
            (OptionKind::Integer { min, max }, Some((from, to)))
                if min <= from && from <= default && default <= to && to <= max =>
            {
                OptionKind::Integer { min: from, max: to }
            }
            (kind, _) => kind,
        }
    }
}

/// The range of numbers that an option's comment says, `(0 to 1000)`.
pub fn range(doc: &str) -> Option<(i128, i128)> {
    doc.split('(').skip(1).find_map(|behind| {
        let range = behind.split([')', ',', ';']).next().unwrap_or_default();
        let (from, to) = range.split_once(" to ")?;
        Some((from.parse().ok()?, to.parse().ok()?))
    })
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

/// Values for some of a policy's options.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    pub(crate) values: Vec<(usize, i128)>,
}

impl Settings {
    /// Whether everything is left at its default.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
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

/// Reads the values that options are given.
pub fn read(
    policy: &str,
    options: &[PolicyOption],
    given: &[(String, String)],
) -> Result<Settings, OptionError> {
    let mut values: Vec<(usize, i128)> = Vec::new();
    for (key, value) in given {
        let Some(index) = options.iter().position(|option| option.name == *key) else {
            return Err(OptionError::Unknown {
                policy: policy.to_owned(),
                option: key.clone(),
                known: options.iter().map(|option| option.name.clone()).collect(),
            });
        };
        if values.iter().any(|&(other, _)| other == index) {
            return Err(OptionError::Twice {
                policy: policy.to_owned(),
                option: key.clone(),
            });
        }
        let Some(number) = options[index].parse(value) else {
            return Err(OptionError::Value {
                policy: policy.to_owned(),
                option: key.clone(),
                value: value.clone(),
                choices: options[index].choices(),
            });
        };
        values.push((index, number));
    }
    Ok(Settings { values })
}

/// The words for enumerators: lower case, without the prefix that all of them share up to an
/// underscore. A single one keeps all but its first part.
pub(crate) fn words(enumerators: &[(&str, i128)]) -> Vec<(String, i128)> {
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
    use schedlab_trace::Scheduler;

    use super::*;

    fn option(name: &str, kind: OptionKind) -> PolicyOption {
        PolicyOption {
            name: name.to_owned(),
            kind,
            default: 0,
            doc: None,
            address: 0,
            bytes: 4,
        }
    }

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
    fn a_comment_s_range_is_kept_where_the_type_has_it() {
        let of =
            |doc, default| OptionKind::Integer { min: 0, max: 255 }.documented(Some(doc), default);
        let numbers = |min, max| OptionKind::Integer { min, max };
        assert_eq!(of("Slice, in µs (1 to 99).", 5), numbers(1, 99));
        assert_eq!(of("Score (see x) (0 to 9, all below).", 5), numbers(0, 9));
        // Another thing is meant: the default is not in it, or the type has not all of it.
        assert_eq!(of("As in (6 to 9).", 5), numbers(0, 255));
        assert_eq!(of("Huge (0 to 256).", 5), numbers(0, 255));
        assert_eq!(of("Slice (1 to 10 seconds).", 5), numbers(0, 255));
        assert_eq!(
            OptionKind::Bool.documented(Some("(0 to 1)"), 0),
            OptionKind::Bool
        );
    }

    #[test]
    fn values_are_checked_against_the_type() {
        let options = [
            option("slice_us", OptionKind::Integer { min: 0, max: 255 }),
            option("fifo", OptionKind::Bool),
            option("ties", OptionKind::Choice(vec![("list".into(), 7)])),
        ];
        let parse = |text| read("p", &options, &Scheduler::parse_options(text));
        let settings = parse("slice_us=0x10, fifo, ties=list").unwrap();
        assert_eq!(settings.values, [(0, 16), (1, 1), (2, 7)]);
        let error = |text| parse(text).unwrap_err().to_string();
        assert_eq!(
            error("slice_us=256"),
            "p: `256` is not a value of `slice_us`: choose a whole number from 0 to 255, or a time such as 3ms"
        );
        // By the end of its name, it is a time.
        assert_eq!(parse("slice_us=0.2ms").unwrap().values, [(0, 200)]);
        assert_eq!(parse("slice_us=7000ns").unwrap().values, [(0, 7)]);
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
