//! Integer nanoseconds. No floating point reaches the engine.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A point in virtual (or, for the real kernel, monotonic) time, in nanoseconds since the start of the run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Instant {
    /// The start of the run.
    pub const ZERO: Instant = Instant(0);
    /// Later than every event: 'never'.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// Returns the instant `ns` nanoseconds after the start of the run.
    pub const fn from_ns(ns: u64) -> Self {
        Instant(ns)
    }

    /// Nanoseconds since the start of the run.
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration(0);

    /// `n` nanoseconds.
    pub const fn from_ns(n: u64) -> Self {
        Duration(n)
    }

    /// `n` microseconds.
    pub const fn from_us(n: u64) -> Self {
        Duration(n * 1_000)
    }

    /// `n` milliseconds.
    pub const fn from_ms(n: u64) -> Self {
        Duration(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Self {
        Duration(n * 1_000_000_000)
    }

    /// Nanoseconds.
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// Reads a time as people write it: `250us`, `1.5ms`, `2s`, `1m`, `1h`; a number without a unit counts in `bare`.
    /// Returns `None` if the text is no time, has a part of a nanosecond, or does not fit.
    pub fn parse(text: &str, bare: Duration) -> Option<Duration> {
        let number = text.trim_end_matches(|letter: char| letter.is_alphabetic());
        let unit = match &text[number.len()..] {
            "" => bare.0,
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| -> Option<u64> {
            let all = text.bytes().all(|byte| byte.is_ascii_digit());
            all.then(|| text.parse().ok()).flatten()
        };
        let scale = 10u64.checked_pow(u32::try_from(part.len()).ok()?)?;
        let part = u128::from(digits(part)?) * u128::from(unit);
        if part % u128::from(scale) != 0 {
            return None;
        }
        let part = u64::try_from(part / u128::from(scale)).ok()?;
        let ns = digits(whole)?.checked_mul(unit)?.checked_add(part)?;
        Some(Duration(ns))
    }

    /// Returns the largest unit in which it is whole, and its number.
    const fn whole(self) -> (u64, &'static str) {
        match self.0 {
            ns if ns % 1_000_000_000 == 0 => (ns / 1_000_000_000, "s"),
            ns if ns % 1_000_000 == 0 => (ns / 1_000_000, "ms"),
            ns if ns % 1_000 == 0 => (ns / 1_000, "us"),
            ns => (ns, "ns"),
        }
    }

    /// Formats it for people: `90 s`, `1500 ms`.
    pub fn words(self) -> String {
        let (count, unit) = self.whole();
        format!("{count} {unit}")
    }

    /// Returns the same time for the standard library.
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }

    /// Returns the difference, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, span: Duration) -> Instant {
        Instant(self.0 + span.0)
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, span: Duration) -> Instant {
        Instant(self.0 - span.0)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        self.0 += span.0;
    }
}

impl Add for Duration {
    type Output = Duration;
    fn add(self, other: Duration) -> Duration {
        Duration(self.0 + other.0)
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Duration) {
        self.0 += other.0;
    }
}

impl Sub for Duration {
    type Output = Duration;
    fn sub(self, other: Duration) -> Duration {
        Duration(self.0 - other.0)
    }
}

impl SubAssign for Duration {
    fn sub_assign(&mut self, other: Duration) {
        self.0 -= other.0;
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}ns", self.0)
    }
}

/// Exact, in the largest unit in which it is whole, as [`Duration::parse`] reads it: `90s`, `1500ms`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = self.whole();
        write!(f, "{count}{unit}")
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_exactly() {
        let ms = Duration::from_ms(1);
        let read = |text: &str| Duration::parse(text, ms).map(Duration::ns);
        for (text, ns) in [
            ("0", 0),
            ("3", 3_000_000),
            ("250us", 250_000),
            ("250µs", 250_000),
            ("1.5s", 1_500_000_000),
            ("0.001us", 1),
            ("2m", 120_000_000_000),
            ("2min", 120_000_000_000),
            ("1.5h", 5_400_000_000_000),
        ] {
            assert_eq!(read(text), Some(ns), "{text}");
        }
        for wrong in [
            "",
            "s",
            "1.s",
            ".5s",
            "-1s",
            "+1s",
            "1e3",
            "1 s",
            "0.5ns",
            "1d",
            "1.2.3s",
            "99999999999h",
            "1.00000000000000000000000s",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_written_in_the_largest_whole_unit() {
        for (ns, text, words) in [
            (0, "0s", "0 s"),
            (90_000_000_000, "90s", "90 s"),
            (1_500_000_000, "1500ms", "1500 ms"),
            (250_000, "250us", "250 us"),
            (1_001, "1001ns", "1001 ns"),
        ] {
            let time = Duration::from_ns(ns);
            assert_eq!(
                (time.to_string(), time.words()),
                (text.into(), words.into())
            );
            assert_eq!(Duration::parse(text, Duration::ZERO), Some(time));
        }
    }

    #[test]
    fn since_never_goes_negative() {
        let early = Instant::from_ns(5);
        let late = early + Duration::from_us(2);
        assert_eq!(late.since(early), Duration::from_ns(2_000));
        assert_eq!(early.since(late), Duration::ZERO);
    }
}
