//! Commands in a folder, on a recording.

use std::path::Path;
use std::process::{Command, Output};

/// `perf bench sched pipe -l 20`.
pub const PIPE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../recording/tests/data/pipe.perf.data"
);

/// Runs `schedlab` with the words of a line in a folder.
pub fn schedlab(line: &str, folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("the program starts")
}

/// Returns the output of a command that succeeded.
#[track_caller]
pub fn stdout(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    String::from_utf8(output.stdout.clone()).unwrap()
}
