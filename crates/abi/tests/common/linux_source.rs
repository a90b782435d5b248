//! Where the kernel's own source is. Tests of other crates read this file, too.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The source: SCHEDLAB_LINUX_SOURCE (a tree, or the archive that Debian's linux-source packages bring), or
/// else the files that tools/fetch-linux-source has put into the cache. Without either, `test` is reported as
/// skipped, also to `make test`.
pub fn find(test: &str) -> Option<PathBuf> {
    static TREE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let tree = TREE.get_or_init(search).clone();
    if tree.is_none() {
        schedlab_testing::skipped(&format!(
            "{test}: no kernel source here; run tools/fetch-linux-source, or set SCHEDLAB_LINUX_SOURCE to a tree of Linux 7.2"
        ));
    }
    tree
}

fn search() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(named) = set("SCHEDLAB_LINUX_SOURCE").map(PathBuf::from) {
        let tree = if named.is_file() {
            unpacked(&named)
        } else {
            named.clone()
        };
        let usable = tree.join("tools/sched_ext").is_dir();
        assert!(
            usable,
            "SCHEDLAB_LINUX_SOURCE: {} is not a Linux source tree",
            named.display()
        );
        return Some(tree);
    }
    let cache = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")))?;
    Some(cache.join("schedlab/linux-source")).filter(|tree| tree.join("version").is_file())
}

/// The files of an archive that the tests read, unpacked into the build's folder for temporary files.
fn unpacked(archive: &Path) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("linux-source");
    std::fs::create_dir_all(&to).expect("the folder can be made");
    let tar = std::process::Command::new("tar")
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(&to)
        .args(["--strip-components=1", "--wildcards"])
        .args([
            "*/tools/sched_ext/*",
            "*/tools/testing/selftests/sched_ext/*",
        ])
        .status();
    assert!(
        tar.as_ref().is_ok_and(std::process::ExitStatus::success),
        "{} cannot be unpacked: {tar:?}",
        archive.display()
    );
    to
}
