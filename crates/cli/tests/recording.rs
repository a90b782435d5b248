//! From a recording of perf to a workload file, its replay and its simulation.

mod support;

use support::{PIPE, schedlab, stdout};

fn imported() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let import = format!("import {PIPE} -o pipe.workload");
    stdout(&schedlab(&import, folder.path()));
    folder
}

#[test]
fn a_recording_is_shown_in_80_columns() {
    let folder = imported();
    for line in [format!("show {PIPE}"), "show pipe.workload".to_owned()] {
        let text = stdout(&schedlab(&line, folder.path()));
        assert!(text.contains("2 tasks"), "{text}");
        assert!(text.contains("0 lost"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
    let cut = stdout(&schedlab(
        &format!("show {PIPE} --all --from 1ms --to 10s"),
        folder.path(),
    ));
    assert!(!cut.contains("events       0 read"), "{cut}");
}

/// The program passes 40 messages from task to task, and waits for one child: each is a step in the replay.
#[test]
fn a_workload_file_runs_under_any_scheduler_and_is_the_same_each_time() {
    let folder = imported();
    let sim = |options: &str| {
        let line = format!("sim pipe.workload{options} -s kernel,fifo -c 1,2 --json -");
        stdout(&schedlab(&line, folder.path()))
    };
    let document: serde_json::Value = serde_json::from_str(&sim("")).unwrap();
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);
    let makespan = |of: &serde_json::Value| of["measures"]["makespan_ns"].as_f64().unwrap();
    assert!(results.iter().all(|one| makespan(one) > 0.0));
    assert_eq!(sim(""), sim(""));
    let twice: serde_json::Value = serde_json::from_str(&sim(":work=400,jitter=0")).unwrap();
    let once: serde_json::Value = serde_json::from_str(&sim(":jitter=0")).unwrap();
    assert!(makespan(&twice["results"][0]) > 1.5 * makespan(&once["results"][0]));
}

#[test]
fn a_replay_stands_beside_its_recording() {
    let folder = imported();
    let text = stdout(&schedlab("replay pipe.workload --repeat 2", folder.path()));
    assert!(
        text.contains("makespan") && text.contains("RECORDED"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let json = stdout(&schedlab(
        "replay pipe.workload --repeat 2 --json -",
        folder.path(),
    ));
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    let measures = &document[0]["measures"];
    for measure in ["makespan_ns", "cpu_ns", "switches", "wakeup_ns_p99"] {
        for side in ["recorded", "replayed"] {
            assert!(
                measures[measure][side].as_u64().unwrap() > 0,
                "{measure} {side}: {json}"
            );
        }
    }
    // The file holds what was recorded.
    let file = std::fs::read_to_string(folder.path().join("pipe.workload")).unwrap();
    let recorded = measures["makespan_ns"]["recorded"].as_u64().unwrap();
    assert!(
        file.contains(&format!("makespan_ns = {recorded}\n")),
        "{file}"
    );
}

/// On one CPU of two the tasks preempt each other, less often than on a machine of one, where slices are shorter.
#[test]
fn a_replay_is_confined_as_by_taskset() {
    let folder = imported();
    let preemptions = |options: &str| {
        let line = format!("replay pipe.workload --repeat 1 --json - {options}");
        let text = stdout(&schedlab(&line, folder.path()));
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let measure = &document[0]["measures"]["preemptions"]["replayed"];
        measure.as_u64().unwrap()
    };
    // The program used one CPU; the machine has the CPUs that are named.
    let [one, confined, two] = ["", "--taskset 1", "-c 2"].map(preemptions);
    let table = stdout(&schedlab("replay pipe.workload --taskset 1", folder.path()));
    assert!(table.contains(" on 2 CPUs (tasks on 1), "), "{table}");
    assert!(
        two == 0 && 0 < confined && confined < one,
        "{two} {confined} {one}"
    );
}

#[test]
fn wrong_input_is_one_line() {
    let folder = imported();
    std::fs::write(
        folder.path().join("torn.data"),
        &std::fs::read(PIPE).unwrap()[..5000],
    )
    .unwrap();
    std::fs::write(
        folder.path().join("none.workload"),
        "schedlab_workload = 1\n",
    )
    .unwrap();
    for (line, expected) in [
        (
            "import nowhere.data -o x",
            "cannot read the recording `nowhere.data`",
        ),
        ("import torn.data -o x", "`torn.data` is truncated"),
        ("show torn.data", "`torn.data` is truncated"),
        ("import pipe.workload -o x", "it is a workload file already"),
        (
            "show pipe.workload --from 1s",
            "is a workload file: --from, --to and --all are for recordings",
        ),
        (
            "show pipe.workload --task zzz",
            "no task of pipe.workload has a name that contains this",
        ),
        ("replay pipe", "is no workload file"),
        ("replay none.workload", "none.workload:1: the line `---`"),
        (
            "sim none.workload -s fifo",
            "none.workload:1: the line `---`",
        ),
        ("record", "required arguments were not provided"),
        ("record --duration 0", "write a time above 0"),
        (
            "import torn.data -o torn.data",
            "that file is read here, and would be lost",
        ),
    ] {
        let output = schedlab(line, folder.path());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{line}: {stderr}");
        assert!(stderr.contains(expected), "{line}: {stderr}");
    }
    assert!(!folder.path().join("x").exists());
}

/// Where perf may record, a command is recorded, and what it does is in the file.
#[test]
fn a_command_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let record = "record -o here.workload -- sh -c :";
    let output = schedlab(record, folder.path());
    if output.status.code() != Some(0) {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("schedlab: perf "), "{stderr}");
        schedlab_testing::skipped(&format!("recording: {last}"));
        return;
    }
    let shown = stdout(&output);
    assert!(shown.contains("program      sh: 1 task ("), "{shown}");
}
