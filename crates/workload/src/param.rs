//! Options of workloads: declared once, used for parsing, help and reports.

use std::fmt;

use schedlab_trace::Duration;

use crate::{Bandwidth, Reservation, SchedClass, WorkloadError, cgroup};

/// One option of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Name on the command line.
    pub name: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// Its value when it is not given, as it would be written.
    pub default: &'static str,
    /// One sentence on what it does, and for a constant of a model where its default comes from.
    pub doc: &'static str,
}

/// The kind of values that an option takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An integer in a range, ends included.
    Count {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A time up to `max`, with a unit (`50us`) or, without one, in `bare`.
    Time {
        /// The unit of a number without one.
        bare: TimeUnit,
        /// Longest.
        max: Duration,
    },
    /// Bytes with or without `K` or `M` (2^10, 2^20).
    Bytes {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A probability from 0 to 1 with at most six decimals.
    Probability,
    /// A share in percent up to `max`, with or without `%`.
    Percent {
        /// Largest.
        max: u64,
    },
    /// Events per second, from one up to `max`, with or without `/s`; 0 for no events.
    Rate {
        /// Largest.
        max: u64,
    },
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Nice levels from −20 to 19 separated by `/`; task i has number i mod length.
    NiceList,
    /// `normal`, `batch`, `idle`, `fifo:PRIORITY` or `rr:PRIORITY` with a priority from 1 to 99, or
    /// `deadline:RUNTIME/PERIOD`.
    Policy,
    /// The path of a cgroup, from `/` on.
    Cgroup,
    /// `max`, or `QUOTA/PERIOD` with times (without a unit: µs).
    Bandwidth,
}

/// Units of time on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeUnit {
    /// Nanoseconds, `ns`.
    Ns,
    /// Microseconds, `us`.
    Us,
    /// Milliseconds, `ms`.
    Ms,
    /// Seconds, `s`.
    S,
}

impl TimeUnit {
    const ALL: [TimeUnit; 4] = [TimeUnit::Ns, TimeUnit::Us, TimeUnit::Ms, TimeUnit::S];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            TimeUnit::Ns => "ns",
            TimeUnit::Us => "us",
            TimeUnit::Ms => "ms",
            TimeUnit::S => "s",
        }
    }

    const fn ns(self) -> u64 {
        match self {
            TimeUnit::Ns => 1,
            TimeUnit::Us => 1_000,
            TimeUnit::Ms => 1_000_000,
            TimeUnit::S => 1_000_000_000,
        }
    }
}

/// A value that was checked against its [`Kind`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Count(u64),
    Time(Duration),
    Bytes(u64),
    /// In millionths, so that no float decides a draw.
    Probability(u32),
    Percent(u64),
    Rate(u64),
    Flag(bool),
    Choice(&'static str),
    NiceList(Vec<i8>),
    Policy(SchedClass),
    Cgroup(String),
    Bandwidth(Bandwidth),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Count { min, max } => write!(f, "an integer from {min} to {max}"),
            Kind::Time { bare, max } => write!(
                f,
                "a time from 0 to {}, with ns, us, ms, s, m or h (without: {})",
                show_time(*max),
                bare.name()
            ),
            Kind::Bytes { min, max } => write!(
                f,
                "bytes from {min} to {}, K and M allowed",
                show_bytes(*max)
            ),
            Kind::Probability => write!(f, "a probability from 0 to 1, at most six decimals"),
            Kind::Percent { max } => write!(f, "a percentage from 0 to {max}"),
            Kind::Rate { max } => write!(f, "an integer from 0 to {max}, with or without `/s`"),
            Kind::Flag => write!(f, "true or false"),
            Kind::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Kind::NiceList => write!(f, "nice levels from -20 to 19, separated by `/`"),
            Kind::Policy => write!(
                f,
                "normal, batch, idle, fifo:PRIORITY or rr:PRIORITY with a priority from 1 to 99, or deadline:RUNTIME/PERIOD with times such as 2ms/10ms"
            ),
            Kind::Cgroup => write!(
                f,
                "a path such as /web/api: at most 16 names of letters, digits and `-_.@`, none of them `.` or `..`"
            ),
            Kind::Bandwidth => write!(
                f,
                "max, or QUOTA/PERIOD with times such as 50ms/100ms (without a unit: us): a quota from 1 ms to a day, a period from 1 ms to 1 s, both in whole us"
            ),
        }
    }
}

impl Kind {
    /// Reads a value; `None` if it is not of this kind.
    pub(crate) fn read(self, text: &str) -> Option<Value> {
        match self {
            Kind::Count { min, max } => {
                let n = text.parse().ok()?;
                (min..=max).contains(&n).then_some(Value::Count(n))
            }
            Kind::Time { bare, max } => {
                let time = Duration::parse(text, Duration::from_ns(bare.ns()))?;
                (time <= max).then_some(Value::Time(time))
            }
            Kind::Bytes { min, max } => {
                let (digits, shift) = match text.strip_suffix(['K', 'k']) {
                    Some(digits) => (digits, 10),
                    None => match text.strip_suffix(['M', 'm']) {
                        Some(digits) => (digits, 20),
                        None => (text, 0),
                    },
                };
                let n = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
                (min..=max).contains(&n).then_some(Value::Bytes(n))
            }
            Kind::Probability => read_probability(text).map(Value::Probability),
            Kind::Percent { max } => {
                let n = text.strip_suffix('%').unwrap_or(text).parse().ok()?;
                (n <= max).then_some(Value::Percent(n))
            }
            Kind::Rate { max } => {
                let n = text.strip_suffix("/s").unwrap_or(text).parse().ok()?;
                (n <= max).then_some(Value::Rate(n))
            }
            Kind::Flag => match text {
                "true" | "yes" | "1" => Some(Value::Flag(true)),
                "false" | "no" | "0" => Some(Value::Flag(false)),
                _ => None,
            },
            Kind::Choice(words) => words
                .iter()
                .find(|&&word| word == text)
                .map(|&word| Value::Choice(word)),
            Kind::NiceList => text
                .split('/')
                .map(|level| level.parse::<i8>().ok().filter(|n| (-20..20).contains(n)))
                .collect::<Option<Vec<i8>>>()
                .map(Value::NiceList),
            Kind::Policy => read_policy(text).map(Value::Policy),
            Kind::Cgroup => cgroup::names(text)
                .ok()
                .map(|names| Value::Cgroup(format!("/{}", names.join("/")))),
            Kind::Bandwidth => read_bandwidth(text).map(Value::Bandwidth),
        }
    }
}

fn read_probability(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 6 || !part.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole: u32 = if whole.is_empty() && !part.is_empty() {
        0
    } else {
        whole.parse().ok().filter(|&n| n <= 1)?
    };
    let millionths = whole * 1_000_000 + format!("{part:0<6}").parse::<u32>().ok()?;
    (millionths <= 1_000_000).then_some(millionths)
}

fn read_policy(text: &str) -> Option<SchedClass> {
    if let Some(times) = text.strip_prefix("deadline:") {
        let (runtime, period) = times.split_once('/')?;
        let (runtime, period) = (read_time(runtime)?, read_time(period)?);
        let reservation = Reservation {
            runtime,
            deadline: period,
            period,
        };
        let is_valid = reservation.check().is_ok();
        return is_valid.then_some(SchedClass::Deadline(reservation));
    }
    let (word, priority) = match text.split_once(':') {
        Some((word, priority)) => (word, Some(priority.parse::<u8>().ok()?)),
        None => (text, None),
    };
    match (word, priority) {
        ("normal", None) => Some(SchedClass::Normal),
        ("batch", None) => Some(SchedClass::Batch),
        ("idle", None) => Some(SchedClass::Idle),
        ("fifo", Some(n @ 1..=99)) => Some(SchedClass::Fifo(n)),
        ("rr", Some(n @ 1..=99)) => Some(SchedClass::RoundRobin(n)),
        _ => None,
    }
}

fn read_bandwidth(text: &str) -> Option<Bandwidth> {
    if text == "max" {
        return Some(Bandwidth::default());
    }
    let (quota, period) = text.split_once('/')?;
    let time = |text: &str| Duration::parse(text, Duration::from_ns(TimeUnit::Us.ns()));
    let limit = Bandwidth {
        quota: Some(time(quota)?),
        period: time(period)?,
        ..Bandwidth::default()
    };
    limit.check().is_ok().then_some(limit)
}

/// Returns a time with its unit.
fn read_time(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let unit = TimeUnit::ALL.into_iter().find(|u| u.name() == unit)?;
    let ns = digits.parse::<u64>().ok()?.checked_mul(unit.ns())?;
    Some(Duration::from_ns(ns))
}

fn show_time(time: Duration) -> String {
    let unit = TimeUnit::ALL
        .into_iter()
        .rev()
        .find(|unit| time.ns().is_multiple_of(unit.ns()))
        .unwrap_or(TimeUnit::Ns);
    format!("{}{}", time.ns() / unit.ns(), unit.name())
}

fn show_bytes(n: u64) -> String {
    match n {
        0 => "0".to_owned(),
        n if n.is_multiple_of(1 << 20) => format!("{}M", n >> 20),
        n if n.is_multiple_of(1 << 10) => format!("{}K", n >> 10),
        n => n.to_string(),
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(n) => write!(f, "{n}"),
            Value::Time(time) if time.ns() == 0 => write!(f, "0"),
            Value::Time(time) => f.write_str(&show_time(*time)),
            Value::Bytes(n) => f.write_str(&show_bytes(*n)),
            Value::Probability(n) => {
                let text = format!("{}.{:06}", n / 1_000_000, n % 1_000_000);
                f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
            }
            Value::Percent(0) | Value::Rate(0) => write!(f, "0"),
            Value::Percent(n) => write!(f, "{n}%"),
            Value::Rate(n) => write!(f, "{n}/s"),
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Choice(word) => f.write_str(word),
            Value::NiceList(levels) => {
                let levels: Vec<String> = levels.iter().map(i8::to_string).collect();
                f.write_str(&levels.join("/"))
            }
            Value::Cgroup(path) => f.write_str(path),
            Value::Bandwidth(Bandwidth { quota, period, .. }) => match quota {
                None => f.write_str("max"),
                Some(quota) => write!(f, "{}/{}", show_time(*quota), show_time(*period)),
            },
            Value::Policy(class) => match class {
                SchedClass::Normal => f.write_str("normal"),
                SchedClass::Batch => f.write_str("batch"),
                SchedClass::Idle => f.write_str("idle"),
                SchedClass::Fifo(n) => write!(f, "fifo:{n}"),
                SchedClass::RoundRobin(n) => write!(f, "rr:{n}"),
                SchedClass::Deadline(Reservation {
                    runtime, period, ..
                }) => {
                    let (runtime, period) = (show_time(*runtime), show_time(*period));
                    write!(f, "deadline:{runtime}/{period}")
                }
            },
        }
    }
}

/// The options of a workload with their values, defaults filled in, in the order of their declaration.
///
/// The getters panic on an option that the model does not declare or declares with another kind: that is
/// an error of the model, not of its user.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) workload: String,
    values: Vec<(Param, Value, bool)>,
}

macro_rules! getter {
    ($(#[$doc:meta])* $name:ident, $variant:ident, $type:ty) => {
        $(#[$doc])*
        pub fn $name(&self, name: &str) -> $type {
            match self.value(name) {
                Value::$variant(value) => value.clone(),
                other => panic!("option `{name}` holds {other:?}"),
            }
        }
    };
}

impl Options {
    /// Reads `text` (`a=1,b=2`) for a workload that takes `params`.
    pub(crate) fn read(
        workload: &str,
        params: impl Iterator<Item = Param>,
        text: &str,
    ) -> Result<Options, WorkloadError> {
        let mut values: Vec<(Param, Value, bool)> = params
            .map(|param| {
                let value = param.kind.read(param.default);
                let value = value.unwrap_or_else(|| panic!("default of {workload}:{}", param.name));
                (param, value, false)
            })
            .collect();
        let syntax = |message| WorkloadError::Syntax {
            workload: workload.to_owned(),
            message,
        };
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| syntax(format!("`{part}` has no `=`")))?;
            let (name, value) = (name.trim(), value.trim());
            let Some(entry) = values.iter_mut().find(|(param, ..)| param.name == name) else {
                return Err(WorkloadError::UnknownOption {
                    workload: workload.to_owned(),
                    option: name.to_owned(),
                    choices: values.iter().map(|(param, ..)| param.name).collect(),
                });
            };
            if entry.2 {
                return Err(syntax(format!("`{name}` is given twice")));
            }
            entry.1 = entry.0.kind.read(value).ok_or_else(|| {
                let hint = match entry.0.kind {
                    Kind::Choice(words) => schedlab_trace::nearest(value, words),
                    _ => String::new(),
                };
                WorkloadError::BadValue {
                    workload: workload.to_owned(),
                    option: name.to_owned(),
                    value: value.to_owned(),
                    expected: format!("it takes {}{hint}", entry.0.kind),
                }
            })?;
            entry.2 = true;
        }
        Ok(Options {
            workload: workload.to_owned(),
            values,
        })
    }

    fn value(&self, name: &str) -> &Value {
        let entry = self.values.iter().find(|(param, ..)| param.name == name);
        &entry
            .unwrap_or_else(|| panic!("{} declares no option `{name}`", self.workload))
            .1
    }

    getter!(
        /// A [`Kind::Count`].
        count, Count, u64);
    getter!(
        /// A [`Kind::Time`].
        time, Time, Duration);
    getter!(
        /// A [`Kind::Bytes`].
        bytes, Bytes, u64);
    getter!(
        /// A [`Kind::Probability`] in millionths.
        probability_ppm, Probability, u32);
    getter!(
        /// A [`Kind::Percent`].
        percent, Percent, u64);
    getter!(
        /// A [`Kind::Rate`].
        rate, Rate, u64);
    getter!(
        /// A [`Kind::Flag`].
        flag, Flag, bool);
    getter!(
        /// A [`Kind::Choice`].
        choice, Choice, &'static str);
    getter!(
        /// A [`Kind::NiceList`]; never empty.
        nice_list, NiceList, Vec<i8>);
    getter!(
        /// A [`Kind::Policy`].
        policy, Policy, SchedClass);
    getter!(
        /// A [`Kind::Cgroup`].
        cgroup, Cgroup, String);
    getter!(
        /// A [`Kind::Bandwidth`].
        bandwidth, Bandwidth, Bandwidth);

    /// Returns whether the option was given, be it with its default's value.
    pub fn is_given(&self, name: &str) -> bool {
        self.values
            .iter()
            .any(|(param, _, given)| param.name == name && *given)
    }

    /// Every option as it would be written. Options of cgroups are shown only where they are given: most workloads have no cgroup.
    pub(crate) fn shown(&self) -> Vec<(String, String)> {
        self.values
            .iter()
            .filter(|(param, _, given)| *given || !param.is_of_cgroup())
            .map(|(param, value, _)| (param.name.to_owned(), value.to_string()))
            .collect()
    }

    /// Returns the error for options that cannot go together.
    pub fn contradiction(&self, message: impl Into<String>) -> WorkloadError {
        WorkloadError::Contradiction {
            workload: self.workload.clone(),
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip_and_nonsense_is_refused() {
        let time = Kind::Time {
            bare: TimeUnit::Us,
            max: Duration::from_secs(10),
        };
        let count = Kind::Count { min: 1, max: 100 };
        let bytes = Kind::Bytes {
            min: 0,
            max: 1 << 30,
        };
        for (kind, text, shown) in [
            (count, "100", "100"),
            (time, "50", "50us"),
            (time, "1500ns", "1500ns"),
            (time, "2000ms", "2s"),
            (time, "0", "0"),
            (bytes, "64K", "64K"),
            (bytes, "1048576", "1M"),
            (bytes, "100", "100"),
            (Kind::Probability, "0.5", "0.5"),
            (Kind::Probability, ".25", "0.25"),
            (Kind::Probability, "1", "1"),
            (Kind::Percent { max: 100 }, "5", "5%"),
            (Kind::Percent { max: 100 }, "100%", "100%"),
            (Kind::Percent { max: 100 }, "0%", "0"),
            (Kind::Rate { max: 9_000 }, "2000", "2000/s"),
            (Kind::Rate { max: 9_000 }, "0", "0"),
            (Kind::Flag, "yes", "true"),
            (Kind::NiceList, "0/-20/19", "0/-20/19"),
            (Kind::Policy, "fifo:99", "fifo:99"),
            (Kind::Policy, "deadline:2000us/10ms", "deadline:2ms/10ms"),
            (Kind::Policy, "normal", "normal"),
            (Kind::Cgroup, "/web/api/", "/web/api"),
            (Kind::Cgroup, "/", "/"),
            (Kind::Cgroup, "//web//api", "/web/api"),
            (Kind::Bandwidth, "50000/100000", "50ms/100ms"),
            (Kind::Bandwidth, "1500us/10ms", "1500us/10ms"),
            (Kind::Bandwidth, "max", "max"),
        ] {
            let value = kind
                .read(text)
                .unwrap_or_else(|| panic!("{text} as {kind}"));
            assert_eq!(value.to_string(), shown);
            assert_eq!(kind.read(shown), Some(value));
        }
        for (kind, text) in [
            (count, "0"),
            (count, "101"),
            (count, "-1"),
            (count, "99999999999999999999"),
            (count, "x"),
            (time, "11s"),
            (time, "5h"),
            (time, "us"),
            (time, "18446744073709551615s"),
            (time, "-1"),
            (bytes, "2048M"),
            (bytes, "K"),
            (Kind::Probability, "1.1"),
            (Kind::Probability, "0.1234567"),
            (Kind::Probability, "-0.5"),
            (Kind::Probability, ""),
            (Kind::Probability, "."),
            (Kind::Percent { max: 100 }, "101"),
            (Kind::Percent { max: 100 }, "5ms"),
            (Kind::Rate { max: 9_000 }, "9001/s"),
            (Kind::Rate { max: 9_000 }, "5/ms"),
            (Kind::Flag, "maybe"),
            (Kind::NiceList, "20"),
            (Kind::NiceList, ""),
            (Kind::NiceList, "0/"),
            (Kind::Policy, "fifo"),
            (Kind::Policy, "fifo:0"),
            (Kind::Policy, "fifo:100"),
            (Kind::Policy, "deadline"),
            (Kind::Policy, "deadline:2ms"),
            (Kind::Policy, "deadline:2/10"),
            (Kind::Policy, "deadline:11ms/10ms"),
            (Kind::Policy, "deadline:50us/90us"),
            (Kind::Policy, "normal:1"),
            (Kind::Cgroup, "web"),
            (Kind::Cgroup, "/web/../db"),
            (Kind::Bandwidth, "50ms"),
            (Kind::Bandwidth, "0/100ms"),
            (Kind::Bandwidth, "50ms/2s"),
            (Kind::Bandwidth, "25h/100ms"),
            (Kind::Bandwidth, "1000500ns/100ms"),
            (Kind::Bandwidth, "18446744073709551615/100000"),
            (Kind::Bandwidth, "50000/18446744073709551615"),
            (Kind::Choice(&["a", "b"]), "c"),
        ] {
            assert_eq!(kind.read(text), None, "`{text}` as {kind}");
        }
    }
}
