//! Advice as a user asks for it: on a recording and on a workload, as text, JSON and page, and what is refused.

mod support;

use support::{PIPE, schedlab, stdout};

#[test]
fn a_recording_gets_its_advice_and_the_same_runs_the_same_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    stdout(&schedlab(&format!("import {PIPE} -o pipe.workload"), path));
    let line = "advise pipe.workload --budget 120 --html pipe.html";
    let text = stdout(&schedlab(line, path));
    for part in [
        "LAST ROUND",
        "ABOUT HOW MUCH COULD BE WON",
        "This is an estimate and no bound",
        "Replays under the recorded scheduler differ from the recording by: makespan",
        "the same again: schedlab advise pipe.workload --budget 120",
    ] {
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(part), "{part}:\n{text}");
    }
    let page = std::fs::read_to_string(path.join("pipe.html")).unwrap();
    assert!(page.contains("Which scheduler suits pipe.workload?") && page.contains("<svg"));
    let json = |line: &str| stdout(&schedlab(line, path));
    let first = json("advise pipe.workload --budget 120 --json - -j 2");
    assert_eq!(
        first,
        json("advise pipe.workload --budget 120 --json - -j 1")
    );
    let document: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(document["reference"], "kernel");
    let last = document["finalists"].as_array().unwrap();
    assert!(last.len() >= 3, "{first}");
    for one in last {
        assert!(one["scores"].as_array().unwrap().len() >= 6);
        // The parts of the path are the makespan.
        let path = &one["time"]["path"];
        let parts = [
            "running_ns",
            "woken_ns",
            "preempted_ns",
            "timer_ns",
            "other_ns",
        ];
        let sum: u64 = parts.iter().map(|part| path[part].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), one["time"]["makespan_ns"].as_u64());
    }
    // The possible gain is the estimate beside the reference's own run, as a part of its score.
    let least = &document["estimate"];
    let least = least["work_ns"].as_u64().max(least["path_ns"].as_u64());
    let of_reference = last
        .iter()
        .find(|one| one["scheduler"] == "kernel")
        .unwrap();
    let own = of_reference["time"]["makespan_ns"].as_f64().unwrap();
    let possible = 100.0 * (least.unwrap() as f64 / own - 1.0);
    let told = document["possible_pct"].as_f64().unwrap();
    assert!((told - possible.min(0.0)).abs() < 1e-9, "{told} {possible}");
    // The best one is measured again, unless it is the reference.
    let is_other = last[0]["scheduler"] != "kernel";
    assert_eq!(document["confirmed"].is_object(), is_other, "{first}");
    let draws: f64 = last
        .iter()
        .map(|one| one["best_in_pct"].as_f64().unwrap())
        .sum();
    assert!((draws - 100.0).abs() < 0.1);
}

#[test]
fn a_workload_by_name_is_advised_on_and_few_schedulers_are_enough() {
    let folder = tempfile::tempdir().unwrap();
    let line = "advise hackbench:groups=1,fds=2,loops=20 -s fifo,vtime,eevdf -c 2 --budget 60";
    let text = stdout(&schedlab(line, folder.path()));
    assert!(
        text.contains("-s fifo,vtime,eevdf -c 2 --budget 60"),
        "{text}"
    );
    assert!(text.contains("The program is a model"), "{text}");
    for line in text.lines().filter(|line| !line.contains("schedlab ")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn what_cannot_be_advised_on_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for (line, told) in [
        ("advise nothing", "nothing"),
        (
            "advise cpu:duration=10ms -s kernel",
            "no scheduler is compared with kernel",
        ),
        (
            "advise cpu:duration=10ms -s fifo,dss --budget 5",
            "are the least for 2 schedulers",
        ),
        (
            "advise cpu:duration=10ms --budget soon",
            "write a number of runs",
        ),
        ("advise cpu --budget 0", "at least one run"),
        (
            "advise hackbench:groups=1,fds=2,loops=1000 -s fifo -c 2 --budget 60 --time-limit 1ms",
            "under kernel: had not ended at the time limit of 1.00 ms; nothing can be compared",
        ),
        ("advise cpu:duration=10ms -s nobody", "nobody"),
        ("advise cpu --html - --json -", "only one of them"),
        (
            "advise cpu --json - --verify 2",
            "--json -: --verify prints its table to standard output, too",
        ),
        (
            "advise cpu --html - --verify 2",
            "--html -: --verify prints its table to standard output, too",
        ),
        ("advise", "required"),
    ] {
        let output = schedlab(line, folder.path());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains(told), "{line}: {stderr}");
        assert_eq!(stderr.trim_end().lines().count(), 1, "{line}: {stderr}");
    }
}

/// The command at the end of the page gives the same page: with all switches, and after a budget of time.
#[test]
fn the_command_at_the_end_gives_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let again = |text: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("the same again: schedlab "));
        line.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let line = "advise hackbench:groups=1,fds=2,loops=10 -s fifo,vtime -c 2 --seed 7 --rt policy --kernel 6.18 --time-limit 90 \
                --check --budget 60";
    let text = stdout(&schedlab(line, folder.path()));
    assert!(
        again(&text).ends_with(
            "-s fifo,vtime -c 2 --seed 7 --rt policy --kernel 6.18 --time-limit 90s --check --budget 60"
        ),
        "{text}"
    );
    let timed = "advise hackbench:groups=1,fds=2,loops=10 -s fifo,vtime -c 2 --budget 3s";
    let text = stdout(&schedlab(timed, folder.path()));
    assert_eq!(stdout(&schedlab(&again(&text), folder.path())), text);
}
