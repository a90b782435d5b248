//! Text broken into lines that fit a terminal. Commands that are there to be copied do not come here.

/// Appends `start` and then `words`, with lines of at most `width` columns; those after the first are indented by
/// `indent`. Words that are lists of options break behind a comma if they are long, and any that is still too
/// long wherever the line ends.
pub fn fill(text: &mut String, start: &str, words: &str, indent: usize, width: usize) {
    let room = width.saturating_sub(indent).max(1);
    let mut line = start.to_owned();
    let mut used = line.chars().count();
    // Nothing to part from the next word.
    let mut first = true;
    for word in words.split_whitespace() {
        for (index, part) in parts(word, room).into_iter().enumerate() {
            let gap = usize::from(index == 0 && !first);
            let wide = part.chars().count();
            if used > indent && used + gap + wide > width {
                text.push_str(line.trim_end());
                text.push('\n');
                line = " ".repeat(indent);
                used = indent;
            } else {
                line.push_str(&" ".repeat(gap));
                used += gap;
            }
            line.push_str(&part);
            used += wide;
            first = false;
        }
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Returns the parts between which a word may be broken.
fn parts(word: &str, room: usize) -> Vec<String> {
    const LONG: usize = 40;
    if word.chars().count() <= LONG.min(room) {
        return vec![word.to_owned()];
    }
    let options = word.split_inclusive(',');
    let chars = options.map(|option| option.chars().collect::<Vec<char>>());
    chars
        .flat_map(|option| {
            let pieces = option.chunks(room).map(|piece| piece.iter().collect());
            pieces.collect::<Vec<String>>()
        })
        .collect()
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
        assert!(
            found.lines().all(|line| line.chars().count() <= 40),
            "{found}"
        );
        assert_eq!(found.matches('x').count(), 100);
    }
}
