//! `explain`, and the sentence that `sim` prints itself. Runs the real program.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn schedlab(words: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(words)
        .env_remove("COLUMNS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it writes text")
}

/// A real-time task that never sleeps, and an ordinary one that may run nowhere else.
const HOG: &str = r#"{"tasks": {
    "hog": {"policy": "SCHED_FIFO", "priority": 10, "loop": 1, "run": 60000000, "cpus": [1]},
    "victim": {"loop": 1, "run": 1000, "cpus": [1]}
}}"#;

#[test]
fn a_simulated_ejection_is_explained_from_its_results() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (workload, json) = (file("hog.json"), file("r.json"));
    std::fs::write(&workload, HOG).unwrap();
    let run = schedlab(
        &["sim", &workload, "-s", "fifo", "-c", "2", "--json", &json],
        "",
    );
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    let told = text(&run.stdout);
    let words: Vec<&str> = told.split_whitespace().collect();
    let words = words.join(" ");
    let why = "why: The real-time task hog";
    assert!(
        words.contains(why) && words.contains("holds CPU 1, so victim"),
        "{told}"
    );
    let results = std::fs::read_to_string(&json).unwrap();
    assert!(
        results.contains("\"explanation\": \"The real-time task hog"),
        "{results}"
    );

    let found = schedlab(&["explain", &json], "");
    assert_eq!(found.status.code(), Some(0), "{}", text(&found.stderr));
    let told = text(&found.stdout);
    assert!(told.starts_with("The real-time task hog"), "{told}");
    assert!(
        told.lines().all(|line| line.chars().count() <= 80),
        "{told}"
    );
    for name in [
        "Scheduler  fifo",
        "Evidence ",
        "How sure   the text shows it",
        "Rule ",
        "Cure ",
    ] {
        assert!(told.contains(name), "{name}: {told}");
    }
    // The same from standard input, with and without the dash.
    for words in [&["explain", "-"][..], &["explain"]] {
        assert_eq!(text(&schedlab(words, &results).stdout), told);
    }
    let document = text(&schedlab(&["explain", "--json", &json], "").stdout);
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["ejections"][0]["culprit"], "higher-class");
    assert_eq!(document["ejections"][0]["certainty"], "shown");
}

#[test]
fn what_cannot_be_explained_gets_one_line() {
    let done = r#"{"schema": 1, "results": [{"scheduler": "a", "exit": "done"}]}"#;
    for (input, told) in [
        (
            "hello\n",
            "standard input: it holds no sched_ext exit message",
        ),
        ("", "standard input: it holds no sched_ext exit message"),
        (
            done,
            "standard input: no scheduler in these results was ejected",
        ),
        (
            "libbpf: prog 'x': BPF program load failed: -22\n",
            "standard input: the verifier refused",
        ),
    ] {
        let found = schedlab(&["explain"], input);
        assert_eq!(found.status.code(), Some(2), "{input}");
        let error = text(&found.stderr);
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(told), "{error}");
        assert!(found.stdout.is_empty());
    }
    let missing = schedlab(&["explain", "/nowhere/log"], "");
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("cannot read /nowhere/log"));
}

#[test]
fn control_characters_of_a_log_do_not_reach_the_terminal() {
    let log = "EXIT: runtime error (invalid CPU -3 \u{9b}2J\u{7})\n";
    let told = text(&schedlab(&["explain"], log).stdout);
    assert!(told.starts_with("The scheduler named CPU -3"), "{told}");
    assert!(!told.contains(['\u{9b}', '\u{7}']), "{told:?}");
}
