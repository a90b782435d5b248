//! Reads a policy's header comment: the sections that STYLE prescribes.

/// The header comment of a policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyDoc {
    /// First sentence or line.
    pub summary: String,
    /// How it works.
    pub idea: String,
    /// Its strengths.
    pub good_for: String,
    /// Its weaknesses.
    pub bad_for: String,
    /// Paper or code it follows.
    pub source: String,
    /// Where it differs from its source.
    pub simplifications: String,
    /// Settings that have a name: (name, `key=value,…`). Most policies have none.
    pub points: Vec<(String, String)>,
    /// Options that change nothing while others have certain values: (option, `key=value,…`).
    pub mute: Vec<(String, String)>,
}

/// Heads of the lists that a policy need not have; their items are `- NAME: key=value,…`.
const LISTS: [&str; 2] = ["Points:", "Mute:"];

impl PolicyDoc {
    /// The names of the sections, as they stand in the comment.
    pub const SECTIONS: [&'static str; 5] =
        ["Idea", "Good for", "Bad for", "Source", "Simplifications"];

    /// Reads the first block comment behind the licence line. What is not there stays empty.
    pub fn parse(source: &str) -> PolicyDoc {
        let mut doc = PolicyDoc::default();
        let Some(comment) = header(source) else {
            return doc;
        };
        let mut current: Option<usize> = None;
        let mut list: Option<usize> = None;
        for line in comment {
            let begun = LISTS.iter().position(|head| line.starts_with(head));
            let item = match begun {
                Some(head) => Some(line[LISTS[head].len()..].trim()),
                None => line.strip_prefix('-').map(str::trim),
            };
            list = begun.or(list.filter(|_| item.is_some() || line.is_empty()));
            if let Some(head) = list {
                let into = match head {
                    0 => &mut doc.points,
                    _ => &mut doc.mute,
                };
                // A malformed item is kept: its user reports it.
                if let Some(item) = item.filter(|item| !item.is_empty()) {
                    let (name, options) = item.split_once(": ").unwrap_or((item, ""));
                    into.push((name.trim().to_owned(), options.trim().to_owned()));
                }
                continue;
            }
            let begun = Self::SECTIONS.iter().enumerate().find_map(|(index, name)| {
                let rest = line.strip_prefix(name)?.strip_prefix(':')?;
                Some((index, rest.trim()))
            });
            let text = match begun {
                Some((index, rest)) => {
                    current = Some(index);
                    rest
                }
                None => &line,
            };
            let section = match current {
                None => &mut doc.summary,
                Some(0) => &mut doc.idea,
                Some(1) => &mut doc.good_for,
                Some(2) => &mut doc.bad_for,
                Some(3) => &mut doc.source,
                Some(_) => &mut doc.simplifications,
            };
            append(section, text);
        }
        doc
    }

    /// Returns the sections that are missing.
    pub fn missing(&self) -> Vec<&'static str> {
        let texts = [
            &self.idea,
            &self.good_for,
            &self.bad_for,
            &self.source,
            &self.simplifications,
        ];
        let mut missing: Vec<&str> = Vec::new();
        if self.summary.is_empty() {
            missing.push("summary");
        }
        let named = Self::SECTIONS.iter().zip(texts);
        missing.extend(
            named
                .filter(|(_, text)| text.is_empty())
                .map(|(name, _)| name),
        );
        missing
    }
}

/// Joins lines of a paragraph by blanks; a list item and what follows an empty line begin anew.
fn append(section: &mut String, line: &str) {
    if line.is_empty() {
        if !section.is_empty() && !section.ends_with('\n') {
            section.push('\n');
        }
        return;
    }
    if !section.is_empty() && !section.ends_with('\n') {
        section.push(if line.starts_with("- ") { '\n' } else { ' ' });
    }
    section.push_str(line);
}

/// Returns the lines of the first block comment that is more than the licence.
fn header(source: &str) -> Option<Vec<String>> {
    let mut rest = source;
    loop {
        let start = rest.find("/*")?;
        let end = start + rest[start..].find("*/")?;
        let comment = &rest[start + 2..end];
        if !comment.contains("SPDX-License-Identifier") {
            let lines = comment.lines().map(|line| {
                let line = line.trim();
                line.strip_prefix('*').unwrap_or(line).trim().to_owned()
            });
            let mut lines: Vec<String> = lines.collect();
            while lines.last().is_some_and(String::is_empty) {
                lines.pop();
            }
            return Some(lines);
        }
        rest = &rest[end + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_told_apart_and_lines_joined() {
        let doc = PolicyDoc::parse(
            "/* SPDX-License-Identifier: GPL-2.0-only */\n/*\n * One line.\n *\n * Idea: a\n * b.\n *\n * Good for: c\n * Bad for: d\n * Source: e\n * Simplifications: two.\n * - f\n *   g\n */\nint x; /* no */",
        );
        assert_eq!(doc.summary.trim(), "One line.");
        assert_eq!(doc.idea.trim(), "a b.");
        assert_eq!(doc.good_for, "c");
        assert_eq!(doc.simplifications, "two.\n- f g");
        assert!(doc.missing().is_empty());
        assert_eq!(PolicyDoc::parse("int x;").missing().len(), 6);
    }

    #[test]
    fn lists_are_no_part_of_the_section_before() {
        let doc = PolicyDoc::parse(
            "/*\n * One.\n *\n * Source: e\n *\n * Points:\n * - a: x=1,y=2\n * - b: x=2\n *\n * Mute:\n * - y: x=2\n *\n * Simplifications: s\n * - t: u\n */",
        );
        assert_eq!(doc.source.trim(), "e");
        let point = |name: &str, options: &str| (name.to_owned(), options.to_owned());
        assert_eq!(doc.points, [point("a", "x=1,y=2"), point("b", "x=2")]);
        assert_eq!(doc.mute, [point("y", "x=2")]);
        let mute = |text: &str| PolicyDoc::parse(&format!("/*\n * One.\n *\n{text} */")).mute;
        assert_eq!(mute(" * Mute:\n *\n *  - y: x=2\n"), [point("y", "x=2")]);
        assert_eq!(
            mute(" * Mute: y: x=2\n * Idea: i\n * - a: b=1\n"),
            [point("y", "x=2")]
        );
        assert_eq!(
            mute(" * Mute:\n * - y x=2\n * - z:x=1\n"),
            [point("y x=2", ""), point("z:x=1", "")]
        );
        assert_eq!(doc.simplifications, "s\n- t: u");
    }
}
