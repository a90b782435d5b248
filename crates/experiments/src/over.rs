//! Differences between runs.

use std::fmt;

use schedlab_report::RunResult;
use serde::Deserialize;

/// The quantity that distinguishes columns, or a base.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(from = "String")]
pub enum Over {
    /// `cpus`: the number of CPUs.
    #[default]
    Cpus,
    /// An option of the workload.
    Option(String),
}

impl From<String> for Over {
    fn from(name: String) -> Over {
        match name.as_str() {
            "cpus" => Over::Cpus,
            _ => Over::Option(name),
        }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Over::Cpus => f.write_str("cpus"),
            Over::Option(name) => f.write_str(name),
        }
    }
}

impl Over {
    /// Where a run stands along it.
    pub fn of(&self, result: &RunResult) -> Option<f64> {
        match self {
            Over::Cpus => Some(f64::from(result.cpus)),
            Over::Option(name) => number(param(name, result)?),
        }
    }

    /// The unit of that.
    pub fn unit(&self, result: &RunResult) -> Option<&'static str> {
        match self {
            Over::Cpus => None,
            Over::Option(name) => unit(param(name, result)?),
        }
    }

    /// The option, if it is one.
    pub fn option(&self) -> Option<&str> {
        match self {
            Over::Cpus => None,
            Over::Option(name) => Some(name),
        }
    }
}

fn param<'a>(name: &str, result: &'a RunResult) -> Option<&'a str> {
    let (_, value) = result.params.iter().find(|(known, _)| known == name)?;
    Some(value)
}

/// The placeholder for the workload's name in a [`Setting`].
const WORKLOAD: &str = "workload";

/// One value of it: `cpus=2`, or of an option of the workload, `pin=true`; or the workload itself, `workload=chat`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Setting {
    pub over: Over,
    pub value: String,
}

impl TryFrom<String> for Setting {
    type Error = String;

    fn try_from(text: String) -> Result<Setting, String> {
        match text.split_once('=') {
            Some((over, value)) => Ok(Setting {
                over: over.to_owned().into(),
                value: value.to_owned(),
            }),
            None => Err(format!(
                "`{text}` has no `=`; write what differs, for example cpus=2"
            )),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.over, self.value)
    }
}

impl Setting {
    /// The value of those that are numbers.
    pub fn number(&self) -> Option<f64> {
        number(&self.value)
    }

    /// Whether a run has it.
    pub fn is_of(&self, result: &RunResult) -> bool {
        match &self.over {
            Over::Cpus => self.value.parse() == Ok(result.cpus),
            Over::Option(name) if name == WORKLOAD => result.workload == self.value,
            Over::Option(name) => param(name, result) == Some(&self.value),
        }
    }
}

/// The unit of what [`number`] makes of a value.
fn unit(value: &str) -> Option<&'static str> {
    match value.trim_start_matches(|c: char| !c.is_ascii_alphabetic()) {
        "ns" | "us" | "ms" | "s" => Some("ns"),
        "K" | "M" => Some("bytes"),
        _ => None,
    }
}

/// The value of an option that is a number, a time (in ns) or a number of bytes, or below 0, as a nice level.
pub(crate) fn number(value: &str) -> Option<f64> {
    let size = value.strip_prefix('-').unwrap_or(value);
    let unit = size.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let factor = match unit {
        "" | "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "K" => 1024.0,
        "M" => 1_048_576.0,
        _ => return None,
    };
    let digits: f64 = value.strip_suffix(unit)?.parse().ok()?;
    Some(digits * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_with_units_are_numbers_of_one_unit() {
        let values = [
            "16", "500us", "1ms", "2s", "7ns", "24K", "1M", "true", "-3", "", "0.25", "1.2.3",
        ];
        let numbers = values.map(number);
        let expected = [
            Some(16.0),
            Some(500_000.0),
            Some(1_000_000.0),
            Some(2e9),
            Some(7.0),
            Some(24_576.0),
            Some(1_048_576.0),
            None,
            Some(-3.0),
            None,
            Some(0.25),
            None,
        ];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn values_have_units() {
        assert_eq!(
            ["1500us", "24K", "16", "true"].map(unit),
            [Some("ns"), Some("bytes"), None, None]
        );
    }

    #[test]
    fn a_setting_is_what_differs_and_its_value() {
        let read = |text: &str| Setting::try_from(text.to_owned());
        let pinned = read("pin=true").unwrap();
        assert_eq!(pinned.to_string(), "pin=true");
        let run = RunResult {
            cpus: 2,
            params: vec![("pin".into(), "true".into())],
            ..RunResult::default()
        };
        assert!(pinned.is_of(&run) && read("cpus=2").unwrap().is_of(&run));
        assert!(!read("pin=false").unwrap().is_of(&run) && !read("cpus=1").unwrap().is_of(&run));
        assert!(read("pin").unwrap_err().contains("`pin` has no `=`"));
    }
}
