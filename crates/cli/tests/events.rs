//! A file of events tells the measures of its run, and a file that is none says so.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn schedlab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(arguments)
        .output()
        .expect("the program starts")
}

/// The first result of the document that a command writes to standard output.
fn result(arguments: &[&str]) -> Value {
    let output = schedlab(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    document["results"][0].clone()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}

#[test]
fn measures_of_a_file_are_those_of_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.events");
    // With locks of a policy; of the kernel's own scheduler; with real-time and deadline tasks; of two parts.
    for (workload, scheduler) in [
        ("chat:rooms=1,messages=10", "dss"),
        ("hackbench:groups=1,fds=3,loops=10", "kernel"),
        ("cpu:tasks=3,duration=20ms,policy=fifo:1", "fifo"),
        ("pipe:loops=50 + cpu:tasks=2,duration=10ms", "vtime"),
    ] {
        let run = result(&[
            "sim",
            workload,
            "-s",
            scheduler,
            "-c",
            "2",
            "--events",
            text(&file),
            "--json",
            "-",
        ]);
        let again = result(&["check", text(&file), "--json", "-"]);
        assert_eq!(
            run["measures"].as_object(),
            again["measures"].as_object(),
            "{workload}"
        );
        assert!(run["measures"].as_object().unwrap().len() > 30);
        for of_run in ["workload", "scheduler", "machine", "seed", "exit", "replay"] {
            assert_eq!(run[of_run], again[of_run], "{workload}: {of_run}");
        }
        let told = schedlab(&["check", text(&file)]);
        let stderr = String::from_utf8_lossy(&told.stderr);
        let bytes = stderr
            .split(", ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let bytes: f64 = bytes
            .and_then(|n| n.parse().ok())
            .expect("the bytes of an event");
        // Short runs: what a file has once weighs more than its events.
        assert!((1.0..60.0).contains(&bytes), "{stderr}");
    }
}

/// Seven kilobytes of footer apart, an event takes at most eight bytes.
#[test]
fn events_are_small() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat.events");
    result(&[
        "sim",
        "chat:rooms=2,messages=20",
        "-s",
        "fifo",
        "--events",
        text(&file),
        "--json",
        "-",
    ]);
    let told = schedlab(&["check", text(&file)]);
    let stderr = String::from_utf8_lossy(&told.stderr).into_owned();
    let numbers: Vec<f64> = stderr
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(numbers[0] > 50_000.0 && numbers[1] <= 8.0, "{stderr}");
}

#[test]
fn a_file_that_is_none_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.events");
    result(&[
        "sim",
        "pipe:loops=20",
        "-s",
        "fifo",
        "-c",
        "2",
        "--events",
        text(&file),
        "--json",
        "-",
    ]);
    let whole = fs::read(&file).unwrap();
    let told = |bytes: &[u8], expected: &str| {
        fs::write(&file, bytes).unwrap();
        let output = schedlab(&["check", text(&file)]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(
            stderr.contains("run.events") && stderr.contains(expected),
            "{stderr}"
        );
    };
    told(&whole[..whole.len() / 2], "cut off");
    told(b"{}", "no file of events");
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    told(&damaged, "damaged");
}
