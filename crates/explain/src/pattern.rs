//! Patterns of lines. The kernel's own words are ASCII: classes that know all of Unicode would take a hundred times as long
//! to compile, at each start of the program.

use regex::Regex;

/// Compiles a pattern in which `\d`, `\w`, `\s`, `\S` and `\b` are of ASCII.
pub fn pattern(text: &str) -> Regex {
    let ascii = text
        .replace(r"\d", "[0-9]")
        .replace(r"\w", "[0-9A-Za-z_]")
        .replace(r"\s", r"[ \t]")
        .replace(r"\S", r"[^ \t]")
        .replace(r"\b", r"(?-u:\b)");
    Regex::new(&ascii).expect("a valid pattern")
}
