//! Numbers in sentences, words in command lines, and those that were meant.

use std::fmt::Write as _;

/// Returns a number of things: `1 task`, `2 tasks`. The noun's plural ends in s.
pub fn counted(n: impl Into<u64>, noun: &str) -> String {
    match n.into() {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

/// Returns the unit that suits a time of `value`, and how many of `unit` it is; `None` if `unit` is not one of time.
pub fn time_unit(value: f64, unit: &str) -> Option<(f64, String)> {
    let per = unit.strip_prefix("ns")?;
    if !per.is_empty() && !per.starts_with('/') {
        return None;
    }
    let (size, prefix) = match value.abs() {
        ns if ns >= 1e9 => (1e9, ""),
        ns if ns >= 1e6 => (1e6, "m"),
        ns if ns >= 1e3 => (1e3, "µ"),
        _ => (1.0, "n"),
    };
    Some((size, format!("{prefix}s{per}")))
}

/// Returns a word as a shell reads it back, in quotes where it needs them.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// ` (did you mean …?)` if one of the choices is near enough.
pub fn nearest<S: AsRef<str>>(wrong: &str, choices: &[S]) -> String {
    let mut text = String::new();
    let similarity = |choice: &&S| strsim::normalized_damerau_levenshtein(wrong, choice.as_ref());
    let best = choices
        .iter()
        .max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    // Half of the letters in place still catches `active` for `active_sets` and leaves out unrelated words.
    if let Some(best) = best.filter(|choice| similarity(choice) >= 0.5) {
        let _ = write!(text, " (did you mean `{}`?)", best.as_ref());
    }
    text
}

/// Returns the [`nearest`] of choices that errors join by commas.
pub fn nearest_of(wrong: &str, choices: &str) -> String {
    nearest(wrong, &choices.split(", ").collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let told = [0u32, 1, 2].map(|n| counted(n, "CPU"));
        assert_eq!(told, ["0 CPUs", "1 CPU", "2 CPUs"]);
    }

    #[test]
    fn words_survive_the_shell() {
        for word in [
            "a:x=1,y=2",
            "a b",
            "it's",
            "$HOME `x` \"q\"",
            "",
            "*\n?",
            "~",
        ] {
            let output = std::process::Command::new("/bin/sh")
                .args(["-c", &format!("printf %s {}", shell_word(word))])
                .output()
                .unwrap();
            assert_eq!(output.stdout, word.as_bytes());
        }
        assert_eq!(shell_word("chat:rooms=2"), "chat:rooms=2");
    }

    #[test]
    fn typing_errors_find_their_word() {
        let choices = ["chat", "cpu", "pipe", "reflex"];
        assert_eq!(nearest("caht", &choices), " (did you mean `chat`?)");
        assert_eq!(nearest("reflexes", &choices), " (did you mean `reflex`?)");
        assert_eq!(nearest("zzz", &choices), "");
    }
}
