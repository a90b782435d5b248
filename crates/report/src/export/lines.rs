//! Text broken into lines that fit a terminal, and how wide a text is there. Commands that are there to be copied do not
//! come here.

use textwrap::core::Word;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

pub use textwrap::core::display_width as width_of;

/// Appends `start` and then `words`, with lines of at most `width` columns; those after the first are indented by
/// `indent`. Words that are lists of options break behind a comma if they are long, and any that is still too
/// long wherever the line ends.
pub fn fill(text: &mut String, start: &str, words: &str, indent: usize, width: usize) {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let indented = " ".repeat(indent);
    let options = Options::new(width)
        .initial_indent(start)
        .subsequent_indent(&indented)
        .word_separator(WordSeparator::Custom(words_and_options))
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    let lines = textwrap::wrap(&words, options);
    for line in &lines {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if lines.is_empty() {
        text.push_str(start.trim_end());
        text.push('\n');
    }
}

/// Appends `text` and spaces up to a width of `width` columns.
pub fn pad(line: &mut String, text: &str, width: usize) {
    line.push_str(text);
    line.extend(std::iter::repeat_n(
        ' ',
        width.saturating_sub(width_of(text)),
    ));
}

/// Separates words at spaces, and those that are long behind commas, too.
fn words_and_options(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    const LONG: usize = 40;
    let words = line.split_inclusive(' ');
    Box::new(words.flat_map(|word| {
        let is_long = width_of(word.trim_end()) > LONG;
        let parts: Vec<&str> = match is_long {
            true => word.split_inclusive(',').collect(),
            false => vec![word],
        };
        parts.into_iter().map(Word::from)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(start: &str, words: &str, indent: usize, width: usize) -> String {
        let mut text = String::new();
        fill(&mut text, start, words, indent, width);
        text
    }

    #[test]
    fn lines_break_between_words_and_long_words_behind_commas() {
        assert_eq!(filled("", "one two three", 2, 80), "one two three\n");
        assert_eq!(filled("", "one two three", 2, 9), "one two\n  three\n");
        assert_eq!(filled("! ", "one two", 4, 80), "! one two\n");
        assert_eq!(filled("a  ", "", 4, 80), "a\n");
        let options = "feature:slice=fixed,election=fifo,metric=vruntime,idle=on,x";
        assert_eq!(
            filled("best: ", options, 2, 40),
            "best: feature:slice=fixed,election=fifo,\n  metric=vruntime,idle=on,x\n"
        );
        let path = "x".repeat(100);
        let found = filled("- ", &path, 2, 40);
        assert!(found.lines().all(|line| width_of(line) <= 40), "{found}");
        assert_eq!(found.matches('x').count(), 100);
    }

    /// A letter of Chinese takes two columns, an accent none.
    #[test]
    fn lines_are_as_wide_as_the_terminal_shows_them() {
        assert_eq!(
            filled("", "调度 程序 e\u{301}e", 0, 9),
            "调度 程序\ne\u{301}e\n"
        );
        let mut padded = String::new();
        pad(&mut padded, "调度", 6);
        assert_eq!(padded, "调度  ");
    }
}
