//! `schedlab reproduce` as a user runs it.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const EXPERIMENT: &str = r#"
title = "Hogs"
source = "nobody"
about = ["Two hogs."]
[[runs]]
machine = "netfinity-8500r"
workloads = ["chat:rooms=2,messages=20"]
schedulers = ["kernel", "dss"]
cpus = [1, 2, 4]
seeds = 4
quick = { cpus = [2] }
[[measures]]
measure = "hold_mean"
[[measures]]
measure = "score"
"#;

fn command(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.args(line.split_whitespace()).current_dir(folder);
    command
}

fn run(folder: &Path, line: &str) -> Output {
    command(folder, line).output().expect("the program starts")
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn killed_it_goes_on_where_it_was_and_ends_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("hogs.toml"), EXPERIMENT).unwrap();
    let line = "reproduce hogs.toml -j 1 --html a.html --json a.json";
    assert!(run(folder, line).status.success());
    assert!(!folder.join("a.html.partial").exists());

    let line = "reproduce hogs.toml -j 1 --html b.html --json b.json";
    let mut child = command(folder, line)
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    let kept = || {
        let text = std::fs::read_to_string(folder.join("b.html.partial"));
        text.map_or(0, |text| text.lines().count())
    };
    let give_up = Instant::now() + Duration::from_secs(60);
    // The heading and two runs of 24.
    while kept() < 3 && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("it is still running");
    child.wait().unwrap();
    let before = kept();
    assert!((3..25).contains(&before), "{before} lines are kept");
    assert!(!folder.join("b.html").exists() && !folder.join("b.json").exists());

    assert!(run(folder, line).status.success());
    assert_eq!(read(folder, "a.json"), read(folder, "b.json"));
    assert_eq!(read(folder, "a.html"), read(folder, "b.html"));
    let mut left: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["a.html", "a.json", "b.html", "b.json", "hogs.toml"]);
}

#[test]
fn the_tables_fit_and_the_page_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("hogs.toml"), EXPERIMENT).unwrap();
    let output = run(folder, "reproduce hogs.toml --quick");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("hogs: Hogs\n"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(text.contains("figures: reproduce.html"), "{text}");
    let page = read(folder, "reproduce.html");
    assert!(page.contains("chat:rooms=2,messages=20 on netfinity-8500r"));
    assert!(
        page.ends_with("</html>\n") || page.ends_with("</html>"),
        "cut off"
    );
}

/// Of a profile in a file, too: its rows are the rows of the machine that it names.
#[test]
fn published_figures_have_simulated_ones_and_distances_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows = "study,machine,workload,parameters,scheduler,cpus,metric,value
s,netfinity-8500r,chat,rooms=2 messages=20,DSS,2,hold_mean,5
s,netfinity-8500r,chat,rooms=2 messages=20,DSS,3,speedup_vs_2way,1.2
s,netfinity-8500r,chat,rooms=1 messages=20,DSS,2,schedule_calls,0
s,netfinity-8500r,chat,rooms=1 messages=20,CFS,2,hold_mean,5
s,netfinity-8500r,nosuch,,DSS,2,hold_mean,5
";
    std::fs::write(folder.join("f.csv"), rows).unwrap();
    let profile = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../machines/netfinity-8500r.toml"
    );
    std::fs::copy(profile, folder.join("mine.toml")).unwrap();
    let line = "reproduce --rows --figures f.csv -s dss --seeds 3 -m";
    let texts = ["netfinity-8500r", "mine.toml"].map(|machine| {
        let output = run(folder, &format!("{line} {machine} --json {machine}.json"));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    });
    let [text, of_file] = &texts;
    assert_eq!(*text, of_file.replace("mine.toml", "netfinity-8500r"));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    for told in [
        "\nchat:rooms=2,messages=20 on netfinity-8500r\n  speedup over 2 CPUs\n    CPUs              2       3\n    published              1.20\n",
        "\n  rooms=2,messages=20        2  ",
        "\n  rooms=1,messages=20        1    0 %    0 %    0 %     inf      0.00\n",
        "\nall                          3  ",
        "! 1 published figure without a distance, ",
        "! 1 published figure not simulated, of a workload that is not modelled: nosuch\n  hold_mean on 2 CPUs\n",
    ] {
        assert!(text.contains(told), "{told}\n{text}");
    }
    let all: serde_json::Value =
        serde_json::from_str(&read(folder, "netfinity-8500r.json")).unwrap();
    // Two numbers of CPUs of one configuration and one of the other.
    assert_eq!(all["results"].as_array().unwrap().len(), 3 * 3);
}

#[test]
fn what_is_wrong_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let refused = |line: &str, expected: &str| {
        let output = run(folder, line);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {told}");
        assert!(told.contains(expected), "{line}: {told}");
        assert!(!folder.join("reproduce.html").exists());
    };
    refused(
        "reproduce nothing",
        "unknown experiment `nothing`; there are: ",
    );
    refused("reproduce missing.toml", "cannot read missing.toml");
    std::fs::write(folder.join("bad.toml"), EXPERIMENT.replace("dss", "dsss")).unwrap();
    refused("reproduce bad.toml", "unknown scheduler `dsss`");
    std::fs::write(folder.join("empty.toml"), "title = \"x\"").unwrap();
    refused("reproduce empty.toml", "empty.toml:1: missing field");
    std::fs::write(folder.join("hogs.toml"), EXPERIMENT).unwrap();
    refused(
        "reproduce hogs.toml --html missing/x.html",
        "missing/x.html",
    );
}

/// The studies' experiments on a machine of today: on all its CPUs, and said where they are too small for it.
#[test]
fn on_a_machine_of_today_too() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("hogs.toml"), EXPERIMENT).unwrap();
    let line = "reproduce hogs.toml --quick -m server-2x96x2 -c 2,384 --json today.json";
    let output = run(folder, line);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    let document: serde_json::Value = serde_json::from_str(&read(folder, "today.json")).unwrap();
    let runs = document["results"].as_array().unwrap();
    let cpus: Vec<_> = runs
        .iter()
        .map(|run| run["cpus"].as_u64().unwrap())
        .collect();
    assert_eq!(cpus, [2, 2, 384, 384]);
    for run in runs {
        assert_eq!(run["machine"], "server-2x96x2");
        assert_eq!(run["exit"], "done");
        // 2 rooms of 20 who hear 20 messages of each of the 19 others.
        assert_eq!(run["measures"]["work"], 15_200);
        let most = run["measures"]["runqueue.len_max"].as_u64().unwrap();
        assert!((2..384).contains(&most), "{most}");
    }
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("! chat:rooms=2,messages=20 never had more than "),
        "{text}"
    );
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("on 384 CPUs: it is too small"), "{text}");
    let page = read(folder, "reproduce.html");
    assert!(page.contains("Simulated on server-2x96x2, not on the machines of the studies"));
    assert!(page.contains("on 384 CPUs: it is too small"));
}

#[test]
fn what_has_no_real_side_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "reproduce feature-study --quick --vm");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("\n! not emulated: 2 runs on more than 8 CPUs\n"),
        "{text}"
    );
    let page = read(folder.path(), "reproduce.html");
    assert!(page.contains("not emulated: 2 runs on more than 8 CPUs"));
}
