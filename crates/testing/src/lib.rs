//! Code that the tests of several crates share.
#![forbid(unsafe_code)]

pub mod checks;

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

/// The files and folders that a build script depends on, as it told cargo. `out` is the `OUT_DIR` of its package.
///
/// # Panics
/// If cargo has kept nothing that the script said.
pub fn rerun_paths(out: &Path) -> Vec<String> {
    let said = out.with_file_name("output");
    let text = std::fs::read_to_string(&said)
        .unwrap_or_else(|error| panic!("{}: {error}", said.display()));
    let paths = text.lines().filter_map(|line| {
        let rest = line.trim_start_matches("cargo:").trim_start_matches(':');
        rest.strip_prefix("rerun-if-changed=")
    });
    paths.map(str::to_owned).collect()
}

/// A checkout that is copied with its `target/` builds from its own sources: build scripts depend on relative paths alone,
/// which cargo looks for in the package that it builds. An absolute path would be that of the original, whose files
/// nobody edits any more.
///
/// # Panics
/// If a path is absolute, or is not there.
pub fn assert_copies_build_their_own(out: &Path, package: &Path) -> Vec<String> {
    let paths = rerun_paths(out);
    assert!(!paths.is_empty(), "the build script depends on nothing");
    for path in &paths {
        assert!(!Path::new(path).is_absolute(), "{path} is absolute");
        assert!(package.join(path).exists(), "{path} is not there");
    }
    paths
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
    fn absolute_paths_of_a_build_script_are_found() {
        let folder = std::env::temp_dir().join(format!("schedlab-rerun-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("out")).unwrap();
        let check = |said: &str| {
            std::fs::write(folder.join("output"), said).unwrap();
            let (out, package) = (folder.join("out"), folder.clone());
            std::panic::catch_unwind(move || assert_copies_build_their_own(&out, &package)).ok()
        };
        let good =
            check("cargo::rerun-if-changed=output\ncargo:rerun-if-changed=out\ncargo::x=y\n");
        assert_eq!(good, Some(vec!["output".to_owned(), "out".to_owned()]));
        assert_eq!(check("cargo::rerun-if-changed=/\n"), None);
        assert_eq!(check("cargo::rerun-if-changed=gone\n"), None);
        assert_eq!(check("nothing\n"), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
