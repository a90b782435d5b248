//! Code that the tests of several crates share.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// Tells that something was not tested here, also in the file that `make test` repeats at its end.
///
/// # Panics
/// If that file cannot be written.
pub fn skipped(what: &str) {
    println!("not tested: {what}");
    if let Some(file) = std::env::var_os("SCHEDLAB_SKIPPED") {
        append(Path::new(&file), what).expect("the file of skipped tests can be written");
    }
}

fn append(file: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(file)?;
    writeln!(file, "{line}")
}

/// For a test program without cargo's harness: the words on its command line that choose what is tested.
/// `None` if only a list of its tests was wanted, which has been printed.
pub fn chosen(program: &str, arguments: Vec<String>) -> Option<Vec<String>> {
    if arguments.iter().any(|one| one == "--list") {
        println!("{program}: test");
        return None;
    }
    let words = arguments.into_iter().filter(|one| !one.starts_with('-'));
    Some(words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_skip_is_a_line() {
        let name = format!("schedlab-skipped-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        append(&file, "one").unwrap();
        append(&file, "two").unwrap();
        let lines = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(lines, "one\ntwo\n");
    }

    #[test]
    fn flags_choose_nothing() {
        let arguments = |line: &str| line.split(' ').map(str::to_owned).collect();
        let words = chosen("vm", arguments("--nocapture options -q fifo"));
        assert_eq!(words.unwrap(), ["options", "fifo"]);
        assert_eq!(chosen("vm", arguments("--list --format terse")), None);
    }
}
