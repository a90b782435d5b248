//! Reads which files a compiler has read, from the rule of make that it writes.

/// Returns the files behind the colon of a rule of make, as compilers write them.
pub(crate) fn of(rule: &str) -> Vec<String> {
    let rule = rule.replace("\\\n", " ");
    let files = rule.split_once(": ").map_or("", |(_, files)| files);
    // A blank that does not separate has a backslash before it.
    let files = files.replace("\\ ", "\0").replace("$$", "$");
    files
        .split_whitespace()
        .map(|file| {
            file.replace('\0', " ")
                .replace("\\#", "#")
                .replace("\\:", ":")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_make_are_read() {
        let rule = "/tmp/x/p.so: a\\ b.bpf.c \\\n  ../c\\#.h /d/$$e.h\n";
        assert_eq!(of(rule), ["a b.bpf.c", "../c#.h", "/d/$e.h"]);
    }
}
