//! Sweeps as a user runs them, and what becomes of them: kills, signals, a full disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const SWEEP: &[&str] = &[
    "sweep",
    "chat:rooms=1,users=4,messages=20",
    "cpu:duration=100ms",
    "--space",
    "feature",
    "--sample",
    "200",
    "-c",
    "4",
];

fn schedlab(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.args(SWEEP).args(more).arg("--out").arg(folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn complete(folder: &Path) -> Output {
    let output = schedlab(folder, &[]).output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    output
}

/// Every file that is not hidden, with its bytes.
fn bytes(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else {
        return BTreeMap::new();
    };
    entries
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| !name.starts_with('.'))
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect()
}

fn parts(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.contains(".part-") && !name.starts_with('.'))
        .count()
}

/// Files that were not completed.
fn unfinished(folder: &Path) -> usize {
    let names = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with(".schedlab-"))
        .count()
}

/// Starts it and waits until it has written so many parts more. `None`: it was complete before.
fn under_way(folder: &Path, more: usize) -> Option<Child> {
    let before = parts(folder);
    let mut child = schedlab(folder, &["--keep", "0", "--jobs", "1"])
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while parts(folder) < before + more {
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "it does not get on"
        );
        thread::sleep(Duration::from_millis(1));
    }
    Some(child)
}

#[test]
fn each_combination_by_itself_has_the_rows_that_were_shared() {
    let folder = tempfile::tempdir().unwrap();
    let (shared, each) = (folder.path().join("shared"), folder.path().join("each"));
    complete(&shared);
    let output = schedlab(&each, &["--each"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("400 of 400 runs done, 400 of them now; 0 failed\n"),
        "{text}"
    );
    let rows = |folder: &Path| schedlab_sweep::read(folder).unwrap().1;
    assert_eq!(rows(&shared), rows(&each));

    // It is part of what is swept.
    let output = schedlab(&each, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("another sweep"), "{text}");
}

#[test]
fn kills_and_signals_leave_no_trace_in_the_results() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let output = complete(&whole);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("400 of 400 runs done, 400 of them now by 376 simulations; 0 failed\n"),
        "{text}"
    );
    assert!(
        text.contains("best run on chat:rooms=1,users=4,messages=20: "),
        "{text}"
    );

    let pieces = folder.path().join("pieces");
    for _ in 0..3 {
        let mut child = under_way(&pieces, 3).expect("it takes longer than that");
        // SIGKILL: nothing can be tidied up.
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let child = under_way(&pieces, 3).expect("it takes longer than that");
    let signal = format!("kill -INT {}", child.id());
    assert!(
        Command::new("sh")
            .args(["-c", &signal])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("stopped: the same command goes on where it was"),
        "{text}"
    );
    assert!(parts(&pieces) >= 12);

    // As if a file had been half written when the process was killed.
    fs::write(pieces.join(".schedlab-shard-1-of-1.part-x"), "PAR1").unwrap();
    let output = complete(&pieces);
    assert_eq!(unfinished(&pieces), 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("400 of 400 runs done, "), "{text}");
    assert!(!text.contains(" 400 of them now"), "{text}");
    assert!(
        bytes(&pieces) == bytes(&whole),
        "{:?}",
        bytes(&pieces).keys()
    );
}

#[test]
fn a_full_disk_is_an_error_after_which_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, full) = (folder.path().join("whole"), folder.path().join("full"));
    let sweep = |before: &str, folder: &Path| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{before} exec \"$@\""), "sh"]);
        shell.arg(env!("CARGO_BIN_EXE_schedlab"));
        shell.args(["sweep", "cpu:duration=2ms", "--space", "feature", "-c", "2"]);
        shell.args(["--keep", "1", "--out"]).arg(folder);
        shell.output().unwrap()
    };
    assert!(sweep("", &whole).status.success());
    // No file may grow beyond 400 kB (or 800, by the shell): the results of all runs are 900 kB.
    let output = sweep("trap '' XFSZ; ulimit -f 800;", &full);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("shard-1-of-1.p")
            && stderr.contains("File too large")
            && stderr.contains("the same command goes on where it was"),
        "{stderr}"
    );
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    assert_eq!(unfinished(&full), 0);
    let output = sweep("", &full);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(bytes(&full) == bytes(&whole));
}

#[test]
fn wrong_arguments_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for (more, expected) in [
        (vec!["--shard", "3/2"], "--shard 3/2"),
        (vec!["--fix", "slice"], "write OPTION=VALUE"),
        (vec!["--fix", "slices=1"], "no option `slices`"),
        (vec!["--fix", "slice=x"], "`x` is not a value of `slice`"),
        (vec!["--kernel", "5.0"], "possible values: 7.2, 6.18"),
    ] {
        let output = schedlab(&out, &more).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(stderr.contains(expected), "{more:?}: {stderr}");
        assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
        assert!(!out.exists());
    }
}

/// Remains of a kill or of a full disk of another program.
#[test]
fn a_definition_that_is_empty_or_cut_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = folder.path().join("sweep");
    complete(&sweep);
    let definition = sweep.join("sweep.json");
    let whole = fs::read(&definition).unwrap();
    for length in [0, 1, whole.len() / 2, whole.len() - 3] {
        fs::write(&definition, &whole[..length]).unwrap();
        let mut analyze = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        analyze.arg("analyze").arg(&sweep);
        for mut command in [analyze, schedlab(&sweep, &[])] {
            let output = command.output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{length} bytes: {stderr}");
            assert!(stderr.contains("sweep.json"), "{stderr}");
            assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
            assert!(output.stdout.is_empty());
        }
        assert_eq!(fs::read(&definition).unwrap(), &whole[..length]);
    }
}

#[test]
fn a_sweep_is_analysed_into_text_page_and_document() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = folder.path().join("sweep");
    complete(&sweep);
    let analyze = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        let output = command
            .arg("analyze")
            .arg(&sweep)
            .args(more)
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            stderr,
        )
    };
    let html = folder.path().join("page.html");
    let (code, text, stderr) = analyze(&["--html", html.to_str().unwrap()]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(
        text.starts_with("chat:rooms=1,users=4,messages=20\n\n"),
        "{text}"
    );
    assert!(
        text.contains("of 200 schedulers come within reach of the best"),
        "{text}"
    );
    assert!(text.contains("\nAll together\n"), "{text}");
    let (_, document, _) = analyze(&["--json", "-"]);
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    // Findings that chance could give are marked.
    let told: Vec<&str> = text.split_whitespace().collect();
    let mut marked = 0;
    for workload in document["workloads"].as_array().unwrap() {
        for one in workload["study"]["alternatives"].as_array().unwrap() {
            let judged =
                ["good", "bad", "badinsecondround"].contains(&one["verdict"].as_str().unwrap());
            if judged && one["significant"] == false {
                marked += 1;
                let name = |key: &str| one[key].as_str().unwrap();
                let name = format!("{}={}?", name("feature"), name("alternative"));
                assert!(
                    told.iter().any(|word| word.trim_end_matches(',') == name),
                    "{name}: {text}"
                );
            }
        }
    }
    assert!(marked > 0);
    let told = told.join(" ");
    assert!(
        told.contains("A ? marks what chance could give, too."),
        "{text}"
    );
    let page = fs::read_to_string(html).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg "));
    assert!(!page.contains("src=\"http") && !page.contains("<script"));
    let (code, text, stderr) = analyze(&["--json", "-", "--measure", "wakeup.latency_ns_p99"]);
    assert_eq!(code, Some(0));
    // Hogs are never woken.
    assert!(
        stderr.contains("no run of cpu:duration=100ms has the measure"),
        "{stderr}"
    );
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let workloads = document["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), 1);
    assert_eq!(workloads[0]["measure"], "wakeup.latency_ns_p99");
    assert_eq!(
        workloads[0]["study"]["alternatives"]
            .as_array()
            .unwrap()
            .len(),
        24
    );
    for (more, expected) in [
        (["--measure", "speed"], "no measure `speed`"),
        (
            ["--measure", "scoer"],
            "no measure `scoer` (did you mean `score`?)",
        ),
        (["--within=-1", "--json=-"], "--within"),
        (["--good=5", "--bad=90"], "--bad 90 is above --good 5"),
    ] {
        let (code, _, stderr) = analyze(&more);
        assert_eq!(code, Some(2));
        assert!(
            stderr.contains(expected) && stderr.trim_end().lines().count() == 1,
            "{stderr}"
        );
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    let output = command.arg("analyze").arg(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("holds no sweep"));
}

/// Each part of a workload that is composed of several is judged by its own score.
#[test]
fn a_part_of_a_workload_has_its_own_score() {
    let folder = tempfile::tempdir().unwrap();
    let schedlab = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        let output = command.args(words).current_dir(folder.path()).output();
        let output = output.expect("the program starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), output.stdout, stderr)
    };
    let both = "cpu:duration=30ms + pipe:loops=20";
    let sweep = ["sweep", both, "pipe:loops=10", "--space", "feature"];
    let rest = [
        "--fix",
        "slice=split",
        "--sample",
        "6",
        "-c",
        "2",
        "--out",
        "swept",
    ];
    let (done, _, stderr) = schedlab(&[&sweep[..], &rest[..]].concat());
    assert!(done, "{stderr}");
    let analysed = |measure: &str| {
        let line = ["analyze", "swept", "--measure", measure, "--json", "-"];
        let (done, stdout, stderr) = schedlab(&line);
        let document: serde_json::Value = serde_json::from_slice(&stdout).unwrap_or_default();
        (done, document, stderr)
    };
    // The same schedulers run alone have the same scores: those of the best and the worst are among them.
    for (measure, higher) in [
        ("cpu.score", true),
        ("pipe.score", false),
        ("pipe.cpu_ns", false),
    ] {
        let (done, document, stderr) = analysed(measure);
        assert!(done, "{measure}: {stderr}");
        let workloads = document["workloads"].as_array().unwrap();
        assert_eq!(workloads.len(), 1, "the other one has no parts: {document}");
        let analysis = &workloads[0];
        assert_eq!(analysis["measure"], measure);
        assert_eq!(analysis["higher_is_better"], higher, "{measure}");
        let best = analysis["study"]["best_scheduler"].as_str().unwrap();
        let line = ["sim", both, "-s", best, "-c", "2", "--json", "-"];
        let (_, stdout, _) = schedlab(&line);
        let run: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
        let alone = run["results"][0]["measures"][measure].as_f64().unwrap();
        assert_eq!(analysis["study"]["best"].as_f64(), Some(alone), "{measure}");
        if measure.ends_with("score") {
            let unit = &run["results"][0]["measures"][format!("{measure}_unit")];
            assert_eq!(&analysis["unit"], unit);
        }
    }
    let (done, _, stderr) = analysed("cpu.scor");
    assert!(!done && stderr.contains("`cpu.score`"), "{stderr}");
}

#[test]
fn the_first_failure_is_told_with_its_replay() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.args([
        "sweep",
        "cpu:loops=1000000,duration=0",
        "--space",
        "feature",
    ]);
    command.args(["--sample", "2", "-c", "2", "--time-limit", "1", "--out"]);
    let output = command.arg(folder.path()).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    let (_, told) = stdout
        .split_once("the first that failed: feature:")
        .unwrap();
    // Wherever the line was broken.
    let words: String = told.split_whitespace().collect();
    assert!(words.contains("oncpu:loops=1000000,duration=0:"), "{told}");
    let (_, replay) = told.split_once("  replay: schedlab ").unwrap();
    let replayed = Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(replay.split_whitespace())
        .output()
        .unwrap();
    assert_eq!(replayed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&replayed.stdout).contains("after 1 s of simulated time"));

    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    let output = command.arg("analyze").arg(folder.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for part in [
        "of 2 runs none ended as it should; the first: feature:",
        "on cpu:loops=1000000,duration=0: time_limit: ",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

/// That they lack the measure would be no explanation.
#[test]
fn a_workload_whose_runs_all_failed_is_told_beside_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.args(["sweep", "cpu:loops=1000000,duration=0", "cpu:duration=1ms"]);
    command.args(["--space", "feature", "--sample", "2", "-c", "2"]);
    command.args(["--time-limit", "1", "--out"]);
    let output = command.arg(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    let output = command.arg("analyze").arg(folder.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let told = "schedlab: of 2 runs none ended as it should; the first: feature:";
    assert!(stderr.starts_with(told), "{stderr}");
}

/// The others say what comes next.
#[test]
fn an_empty_shard_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.args(["sweep", "cpu:duration=1ms", "--space", "feature"]);
    command.args(["--sample", "3", "-c", "2", "--shard", "5/50", "--out"]);
    let output = command.arg(folder.path()).output().unwrap();
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "shard 5/50 has none of the sweep's 3 runs: nothing to do\n"
    );
}

/// A search is the same whatever interrupts it and however it is divided, and analyze reads it.
#[test]
fn a_search_has_the_same_bytes_after_kills_and_in_shards() {
    let folder = tempfile::tempdir().unwrap();
    let search = |name: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        command.args([
            "sweep",
            "chat:rooms=1,users=4,messages=20",
            "--space",
            "feature",
        ]);
        command.args(["-c", "4", "--budget", "60", "--repeat", "4"]);
        command
            .args(more)
            .arg("--out")
            .arg(folder.path().join(name));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let done = |output: Output| {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = done(search("whole", &[]).output().unwrap());
    assert!(text.contains("runs of the budget done"), "{text}");
    let expected = bytes(&folder.path().join("whole"));
    assert_eq!(expected.len(), 2);

    // Killed after each few parts.
    let pieces = folder.path().join("pieces");
    let mut kills = 0;
    loop {
        let before = parts(&pieces);
        let mut child = search("pieces", &["--keep", "0", "--jobs", "1"])
            .spawn()
            .unwrap();
        while parts(&pieces) < before + 9 && child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        // An unfinished search is not analysed as if it were whole.
        let analyze = |more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
            command
                .arg("analyze")
                .arg(&pieces)
                .args(more)
                .output()
                .unwrap()
        };
        if kills == 3 {
            let told = String::from_utf8(analyze(&[]).stderr).unwrap();
            assert!(
                told.contains("the search is not over: ")
                    && told.contains(" of 60 runs are still missing"),
                "{told}"
            );
            let page = String::from_utf8(analyze(&["--html", "-"]).stdout).unwrap();
            assert!(page.contains("The search is not over: "), "{page}");
        }
    }
    assert!(kills > 2, "it was killed {kills} times");
    assert_eq!(bytes(&pieces), expected);

    // Two shards in turn: each makes its part of a stage and waits for the other.
    let shards = folder.path().join("shards");
    let mut waits = 0;
    let mut over = [false; 2];
    while over != [true; 2] {
        for (index, over) in over.iter_mut().enumerate() {
            let shard = format!("{}/2", index + 1);
            let output = search("shards", &["--shard", &shard]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            *over = output.status.success();
            assert!(
                *over || text.contains("needs the results of all shards"),
                "{text}"
            );
            waits += u32::from(!*over);
        }
        assert!(waits < 50);
    }
    assert!(waits > 3, "{waits}");
    let rows = |folder: &Path| schedlab_sweep::read(folder).unwrap().1;
    assert_eq!(rows(&shards), rows(&folder.path().join("whole")));

    let mut analyze = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    let text = done(analyze.arg("analyze").arg(&shards).output().unwrap());
    // No seed changes a chat that always has the same order.
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("A search of") && flat.contains("with each of 4 seeds the best has "),
        "{text}"
    );
    let whole = Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .arg("analyze")
        .arg(folder.path().join("whole"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(whole.stderr).unwrap(), "");
}

/// A budget of time becomes a number of runs once, and the folder keeps it.
#[test]
fn a_budget_of_time_is_kept_as_a_number_of_runs() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("timed");
    let search = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        command.args([
            "sweep",
            "cpu:duration=50ms",
            "--space",
            "feature",
            "-c",
            "2",
        ]);
        command.args(["--budget", "2s"]).arg("--out").arg(&out);
        command.output().unwrap()
    };
    let output = search();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("runs a second: the budget is"), "{stderr}");
    let before = bytes(&out);
    let (definition, _) = schedlab_sweep::read(&out).unwrap();
    let budget = definition.budget.unwrap();
    assert!(budget.timed.unwrap().runs_per_second > 0.0 && budget.runs >= 16);
    assert!(search().status.success());
    assert_eq!(bytes(&out), before);
}
