//! A policy's options: its `const volatile` globals, as `name:key=value,…` sets them.

use schedlab_trace::options;
pub use schedlab_trace::options::{OptionError, OptionKind};

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
}

/// The kind, of an option whose comment may say which numbers it takes, `(0 to 1000)`: fewer than its type has.
pub(crate) fn documented(kind: OptionKind, doc: Option<&str>, default: i128) -> OptionKind {
    match (kind, doc.and_then(range)) {
        (OptionKind::Integer { min, max }, Some((from, to)))
            if min <= from && from <= default && default <= to && to <= max =>
        {
            OptionKind::Integer { min: from, max: to }
        }
        (kind, _) => kind,
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

/// Reads the values that options are given.
pub fn read(
    policy: &str,
    options: &[PolicyOption],
    given: &[(String, String)],
) -> Result<Settings, OptionError> {
    let named: Vec<(&str, &OptionKind)> = options
        .iter()
        .map(|option| (option.name.as_str(), &option.kind))
        .collect();
    let values = options::read(policy, &named, given)?;
    Ok(Settings { values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_s_range_is_kept_where_the_type_has_it() {
        let of =
            |doc, default| documented(OptionKind::Integer { min: 0, max: 255 }, Some(doc), default);
        let numbers = |min, max| OptionKind::Integer { min, max };
        assert_eq!(of("Slice, in µs (1 to 99).", 5), numbers(1, 99));
        assert_eq!(of("Score (see x) (0 to 9, all below).", 5), numbers(0, 9));
        // Another thing is meant: the default is not in it, or the type has not all of it.
        assert_eq!(of("As in (6 to 9).", 5), numbers(0, 255));
        assert_eq!(of("Huge (0 to 256).", 5), numbers(0, 255));
        assert_eq!(of("Slice (1 to 10 seconds).", 5), numbers(0, 255));
        assert_eq!(
            documented(OptionKind::Bool, Some("(0 to 1)"), 0),
            OptionKind::Bool
        );
    }
}
