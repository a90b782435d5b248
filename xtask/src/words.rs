//! Phrases that make prose hard to read, counted over comments and documents. The counts may only fall.

use std::path::{Path, PathBuf};

/// A kind of phrase, and the number of lines that may still have it.
struct Pattern {
    name: &'static str,
    /// The plain form to write instead.
    instead: &'static str,
    /// Lower it when the count falls: `cargo xtask words` prints the counts.
    lines_max: usize,
    matches: fn(&str) -> bool,
}

const PATTERNS: [Pattern; 5] = [
    Pattern {
        name: "a line that begins with What, Who, Whose or Whoever",
        instead: "begin with a verb and its object: `Returns …`, `Holds …`",
        lines_max: 5,
        matches: begins_with_a_question_word,
    },
    Pattern {
        name: "`told` or `tells`",
        instead: "reports, prints, gets, sends, shows",
        lines_max: 46,
        matches: |line| any_word(line, &["told", "tells"]),
    },
    Pattern {
        name: "`there is none`, `is none of`",
        instead: "absent, without, does not exist",
        lines_max: 15,
        matches: |line| {
            any_phrase(
                line,
                &[
                    "there is none",
                    "there are none",
                    "it is none",
                    "is none of",
                    "are none of",
                    "that is none",
                    "of which there",
                ],
            )
        },
    },
    Pattern {
        name: "`who` or `whoever` as a subject",
        instead: "name it: the task, the CPU, the caller",
        lines_max: 14,
        matches: |line| {
            any_word(line, &["whoever", "Whoever"])
                || any_phrase(
                    line,
                    &[
                        "who asks",
                        "who calls",
                        "who comes",
                        "who does",
                        "who gets",
                        "who has",
                        "who holds",
                        "who is",
                        "who looks",
                        "who runs",
                        "who takes",
                        "who waits",
                        "Who asks",
                        "Who calls",
                        "Who comes",
                        "Who does",
                        "Who gets",
                        "Who has",
                        "Who holds",
                        "Who is",
                        "Who looks",
                        "Who runs",
                        "Who takes",
                        "Who waits",
                    ],
                )
        },
    },
    Pattern {
        name: "`that of` or `those of` in place of a noun",
        instead: "repeat the noun, or write `the task's`",
        lines_max: 43,
        matches: |line| any_phrase(line, &["that of", "those of"]),
    },
];

/// A line with a phrase.
pub struct Found {
    pub file: PathBuf,
    pub line: usize,
    pub text: String,
}

/// The lines of one pattern.
pub struct Count {
    pub name: &'static str,
    pub instead: &'static str,
    pub lines_max: usize,
    pub found: Vec<Found>,
}

/// Counts the phrases in files, given as (path, text).
pub fn count<'a>(files: impl Iterator<Item = (&'a Path, &'a str)>) -> Vec<Count> {
    let mut counts: Vec<Count> = PATTERNS
        .iter()
        .map(|pattern| Count {
            name: pattern.name,
            instead: pattern.instead,
            lines_max: pattern.lines_max,
            found: Vec::new(),
        })
        .collect();
    for (file, text) in files {
        for (line, prose) in prose(file, text) {
            for (pattern, count) in PATTERNS.iter().zip(&mut counts) {
                if (pattern.matches)(prose) {
                    count.found.push(Found {
                        file: file.to_owned(),
                        line,
                        text: prose.to_owned(),
                    });
                }
            }
        }
    }
    counts
}

/// Returns the prose of a file, line by line: comments of sources, all of a document but its blocks of code. This file,
/// which has the phrases, and the log of changes, which is history, have none.
fn prose<'a>(file: &Path, text: &'a str) -> Vec<(usize, &'a str)> {
    let ending = file.extension().and_then(|ending| ending.to_str());
    let is_left_out = file == Path::new("CHANGELOG.md") || file == Path::new("xtask/src/words.rs");
    let comment: fn(&str) -> Option<&str> = match ending {
        _ if is_left_out => return Vec::new(),
        Some("rs") => rust_comment,
        Some("c" | "h") => c_comment,
        Some("md") => |line| Some(line),
        _ => return Vec::new(),
    };
    let is_document = ending == Some("md");
    let mut in_block = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if is_document && line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if let Some(prose) = comment(line).filter(|_| !in_block) {
            lines.push((index + 1, prose.trim()));
        }
    }
    lines
}

/// Returns the text behind `//`, `///` or `//!`, which a space follows.
fn rust_comment(line: &str) -> Option<&str> {
    let comment = &line[line.find("//")?..];
    comment
        .trim_start_matches('/')
        .trim_start_matches('!')
        .strip_prefix(' ')
}

/// Returns the text behind `/*`, or behind the `*` that begins a line of a longer comment.
fn c_comment(line: &str) -> Option<&str> {
    match line.find("/* ") {
        Some(at) => Some(&line[at + 3..]),
        None => line.trim_start().strip_prefix("* "),
    }
}

fn begins_with_a_question_word(line: &str) -> bool {
    let mut words = line.split(' ');
    let is_question_word = words
        .next()
        .is_some_and(|word| ["What", "Who", "Whose", "Whoever"].contains(&word));
    is_question_word
        && !line.ends_with('?')
        && words
            .next()
            .is_some_and(|word| word.starts_with(|c: char| c.is_ascii_lowercase() || c == '`'))
}

/// Returns whether a line has one of the words, with nothing of a word or a name beside it.
fn any_word(line: &str, words: &[&str]) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|word| words.contains(&word))
}

/// Returns whether a line has one of the phrases between ends of words.
fn any_phrase(line: &str, phrases: &[&str]) -> bool {
    let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    phrases.iter().any(|phrase| {
        line.match_indices(phrase).any(|(at, _)| {
            is_end(line[..at].chars().next_back())
                && is_end(line[at + phrase.len()..].chars().next())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(file: &str, text: &str) -> Vec<usize> {
        count(std::iter::once((Path::new(file), text)))
            .iter()
            .map(|count| count.found.len())
            .collect()
    }

    #[test]
    fn each_phrase_is_found_in_comments_alone() {
        let text = "\
/// What a run left.
/// What is it?
let told = 1; // the caller is told
//! of which there are two
// And whoever calls, and who asks
// the CPU's lock, that of the CPU
let s = \"What is told\";
fn whoever() {}
";
        assert_eq!(counts("crates/a/src/a.rs", text), [1, 1, 1, 1, 1]);
        assert_eq!(
            counts("a.h", "/* What it is. */\n * Who runs\nint told;\n"),
            [2, 0, 0, 1, 0]
        );
    }

    #[test]
    fn blocks_of_code_and_the_log_of_changes_are_no_prose() {
        let text = "It is told.\n```\nit is told\n```\nTold you so, but not `told_by`.\n";
        assert_eq!(counts("docs/a.md", text), [0, 1, 0, 0, 0]);
        assert_eq!(counts("CHANGELOG.md", text), [0; 5]);
        assert_eq!(counts("a.toml", text), [0; 5]);
    }

    #[test]
    fn phrases_end_where_words_end() {
        assert!(!any_phrase("that offers", &["that of"]));
        assert!(any_phrase("than that of a task", &["that of"]));
        assert!(!any_word("retold", &["told"]));
    }
}
