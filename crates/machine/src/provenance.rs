//! Where a number of a profile is from: every one has a source, or admits to be a guess.

use std::fmt;

/// The kind of source that a number has: the words with which a source text may begin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SourceKind {
    /// Measured by us, with the spread.
    Measured,
    /// A published paper, report or measurement.
    Published,
    /// In the maker's manual or data sheet.
    DataSheet,
    /// In the source code or documentation of the kernel that is modelled.
    Kernel,
    /// Computed from other sourced numbers; the text says how.
    Derived,
    /// Found by fitting the model to the rows in `calibrated_on`.
    Tuned,
    /// The number of another profile, with that one's source: this machine was not looked at.
    Copied,
    /// No source; a plausible order of magnitude.
    Guess,
}

impl SourceKind {
    /// All kinds with the word that a source text begins with.
    pub const WORDS: [(SourceKind, &'static str); 8] = [
        (SourceKind::Measured, "measured"),
        (SourceKind::Published, "published"),
        (SourceKind::DataSheet, "data sheet"),
        (SourceKind::Kernel, "kernel"),
        (SourceKind::Derived, "derived"),
        (SourceKind::Tuned, "tuned"),
        (SourceKind::Copied, "copied"),
        (SourceKind::Guess, "guess"),
    ];

    /// Returns the kind of `source`: a word of [`SourceKind::WORDS`], then a colon and the details, which
    /// only a guess may leave out.
    pub fn of(source: &str) -> Option<SourceKind> {
        let (word, details) = match source.split_once(':') {
            Some((word, details)) => (word, details.trim()),
            None => (source, ""),
        };
        let &(kind, _) = Self::WORDS.iter().find(|&&(_, name)| name == word)?;
        (kind == SourceKind::Guess || !details.is_empty()).then_some(kind)
    }

    /// Returns the forms a source text may have, for messages.
    pub(crate) fn forms() -> String {
        let forms: Vec<String> = Self::WORDS
            .iter()
            .map(|&(kind, word)| match kind {
                SourceKind::Guess => "'guess'".to_owned(),
                _ => format!("'{word}: …'"),
            })
            .collect();
        forms.join(", ")
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.iter().find(|&&(kind, _)| kind == *self);
        f.write_str(word.map_or("?", |&(_, word)| word))
    }
}

/// One number of a profile and where it is from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Provenance {
    /// `section.field`, or `field` outside of the sections.
    pub field: String,
    /// The value as the file gives it.
    pub value: String,
    /// Kind of source.
    pub kind: SourceKind,
    /// The whole source text, kind included.
    pub source: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_known_word_with_details() {
        assert_eq!(SourceKind::of("guess"), Some(SourceKind::Guess));
        assert_eq!(
            SourceKind::of("guess: like the 8500R"),
            Some(SourceKind::Guess)
        );
        assert_eq!(
            SourceKind::of("data sheet: Intel 245085"),
            Some(SourceKind::DataSheet)
        );
        assert_eq!(
            SourceKind::of("copied: from laptop (guess)"),
            Some(SourceKind::Copied)
        );
        for nonsense in [
            "",
            "measured",
            "copied",
            "measured: ",
            "somewhere: x",
            "Guess",
        ] {
            assert_eq!(SourceKind::of(nonsense), None, "{nonsense:?}");
        }
    }
}
