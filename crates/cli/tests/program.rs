//! The program as a user runs it.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn schedlab(line: &str) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(line.split_whitespace())
        .output()
        .expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`schedlab {line}`: {stderr}");
    output
}

fn stdout(line: &str) -> String {
    String::from_utf8(schedlab(line).stdout).unwrap()
}

/// A simulation that takes no time.
const SMALL: &str = "sim cpu:duration=20ms -s kernel";

#[test]
fn a_table_of_80_columns_on_standard_output_and_nothing_else() {
    let output = schedlab(&format!("{SMALL} -c 1..3"));
    assert!(output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("cpu:duration=20ms on laptop\n"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    for cpus in ["   1  kernel", "   2  kernel", "   3  kernel"] {
        assert!(text.contains(cpus), "{text}");
    }
}

/// The table reports an unanswered or overloaded service where its columns do not show it.
#[test]
fn a_service_without_answers_and_one_that_is_overloaded_are_reported() {
    let both = |workload: &str| {
        let run = |more: &[&str]| {
            let mut program = Command::new(env!("CARGO_BIN_EXE_schedlab"));
            program
                .args(["sim", workload, "-s", "kernel", "-c", "2"])
                .args(more);
            let output = program.output().expect("the program starts");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{stderr}");
            String::from_utf8(output.stdout).unwrap()
        };
        let document: serde_json::Value = serde_json::from_str(&run(&["--json", "-"])).unwrap();
        let message = document["results"][0]["message"].as_str();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        (words(&run(&[])), message.unwrap_or_default().to_owned())
    };
    for (workload, note) in [
        (
            "service:rate=100,service=10s,duration=1s",
            "service has no score: none of its requests was answered before the run ended",
        ),
        (
            "cpu:duration=1s + service:rate=100,service=10s,duration=1s",
            "service has no score: none of its requests was answered before the run ended",
        ),
        (
            "service:rate=9000,service=1ms,duration=1s",
            "service was asked for more than it could answer: ",
        ),
    ] {
        let (table, message) = both(workload);
        assert!(table.contains(note), "{workload}: {table}");
        assert!(message.starts_with(note), "{workload}: {message}");
    }
    let (_, message) = both("service:rate=100,service=1ms,duration=1s");
    assert_eq!(message, "");
}

/// A limit may be shorter than a second.
#[test]
fn time_limits_have_units() {
    let output = Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(["sim", "cpu:loops=1000000,duration=0", "-s", "kernel"])
        .args(["-c", "1", "--time-limit", "500ms", "--json", "-"])
        .output()
        .expect("the program starts");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &document["results"][0];
    assert_eq!(result["exit"], "time_limit", "{result}");
    let message = result["message"].as_str().unwrap();
    assert!(
        message.contains("had not ended after 500 ms of simulated time"),
        "{message}"
    );
    let replay = result["replay"].as_str().unwrap();
    assert!(replay.ends_with(" --time-limit 500ms"), "{replay}");
}

/// Input from a pipe can be read only once.
#[test]
fn a_file_is_read_once_for_all_runs() {
    let profile = include_bytes!("../../../machines/laptop.toml");
    let mut program = Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(["sim", "cpu:duration=1ms", "-s", "kernel,fifo", "-c", "1,2"])
        .args(["--repeat", "3", "-m", "/dev/stdin", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut pipe = program.stdin.take().expect("it is a pipe");
    pipe.write_all(profile).expect("the program reads it");
    drop(pipe);
    let output = program.wait_with_output().expect("the program ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["results"].as_array().unwrap().len(), 12);
}

/// `:quiet` behind the path of a profile leaves its background out, as behind a name.
#[test]
fn a_profile_file_can_be_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let daemon = "\n[background.daemon]\nperiod_us = { value = 1000, source = \"guess\" }\n\
        run_us = { value = 200, source = \"guess\" }\nper_cpu = { value = true, source = \"guess\" }\n";
    let profile = include_str!("../../../machines/laptop.toml").to_owned() + daemon;
    std::fs::write(&path, profile).unwrap();
    let makespan = |suffix: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args(["sim", "cpu:loops=1", "-s", "kernel", "-c", "1", "-m"])
            .arg(format!("{}{suffix}", path.display()))
            .args(["--json", "-"])
            .output()
            .expect("the program starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let measure = &document["results"][0]["measures"]["makespan_ns"];
        measure.as_f64().unwrap()
    };
    let share = makespan("") / makespan(":quiet");
    assert!((1.02..1.3).contains(&share), "{share}");
}

/// Columns without room are named, and shown if a pipe is declared wide.
#[test]
fn a_pipe_is_as_wide_as_columns_says() {
    let table = |columns: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        command.args("sim chat:rooms=1,messages=3 -s dss,fifo -c 2 --repeat 3".split(' '));
        match columns {
            Some(columns) => command.env("COLUMNS", columns),
            None => command.env_remove("COLUMNS"),
        };
        let output = command.output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let narrow = table(None);
    let fits = |line: &str| line.chars().count() <= 80;
    assert!(narrow.lines().all(fits), "{narrow}");
    let (_, left_out) = narrow.split_once("no room for ").unwrap();
    assert!(left_out.contains("queue, examined, wakeup"), "{narrow}");
    assert!(!narrow.contains("per call"), "{narrow}");
    assert_eq!(table(Some("nonsense")), narrow);
    let wide = table(Some("200"));
    assert!(
        wide.contains("per call") && !wide.contains("no room"),
        "{wide}"
    );
}

#[test]
fn json_on_standard_output_holds_every_run_in_interleaved_order() {
    let text = stdout(&format!("{SMALL} -c 2,1 --repeat 2 --seed 7 --json -"));
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["schema"], 1);
    let results = document["results"].as_array().unwrap();
    let order: Vec<_> = results
        .iter()
        .map(|result| {
            (
                result["seed"].as_u64().unwrap(),
                result["cpus"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(order, [(7, 2), (7, 1), (8, 2), (8, 1)]);
    for result in results {
        assert_eq!(result["exit"], "done");
        assert_eq!(result["params"]["duration"], "20ms");
        assert_eq!(result["measures"]["makespan_ns"], 20_000_000);
        assert_eq!(result["measures"]["score_better"], "higher");
        // The baseline has no lock of its own: absent, not zero.
        assert!(result["measures"]["lock.runqueue.acquisitions"].is_null());
    }
}

#[test]
fn the_same_command_gives_the_same_bytes_however_many_run_beside() {
    let line = format!("{SMALL} -c 1..4 --repeat 3 --json -");
    let alone = stdout(&format!("{line} -j 1"));
    assert_eq!(stdout(&format!("{line} -j 1")), alone);
    assert_eq!(stdout(&format!("{line} -j 8")), alone);
}

#[test]
fn recording_and_checking_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    let line = "sim chat:rooms=1,messages=3 -s kernel -c 2 --json -";
    let measures = |line: &str| {
        let document: serde_json::Value = serde_json::from_str(&stdout(line)).unwrap();
        document["results"][0]["measures"].clone()
    };
    let plain = measures(line);
    assert_eq!(measures(&format!("{line} --check")), plain);
    assert_eq!(
        measures(&format!("{line} --trace {}", path.display())),
        plain
    );
    assert!(std::fs::metadata(&path).unwrap().len() > 1_000);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Every scheduler there is, with the invariants checked, on loads that block, fork, yield and compete.
#[test]
fn every_scheduler_keeps_the_invariants() {
    let names: Vec<_> = stdout("list schedulers")
        .lines()
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    assert!(names.len() > 3, "{names:?}");
    for workload in [
        "cpu:duration=60ms,nice=0/5/19",
        "chat:rooms=1,messages=4",
        "reflex:active_sets=3",
        "pipe:loops=200,pin=true",
    ] {
        for machine in ["laptop", "netfinity-8500r", "xeon-e5645-2x6x2"] {
            let line = format!(
                "sim {workload} -s {} -c 1,2,7 -m {machine} --check",
                names.join(",")
            );
            schedlab(&line);
        }
    }
}

#[test]
fn help_has_examples_completions_complete_and_man_pages_are_written() {
    for command in [
        "",
        "list",
        "sim",
        "reproduce",
        "run",
        "vm",
        "load",
        "calibrate",
        "man",
        "completions",
    ] {
        let text = stdout(&format!("{command} --help"));
        assert!(text.contains("Example"), "{command}: {text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{command}: {text}"
        );
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&format!("completions {shell}")).contains("reproduce"));
    }
    let folder = tempfile::tempdir().unwrap();
    schedlab(&format!("man {}", folder.path().display()));
    let ends = [
        ("schedlab.1", "0 done; 1 a run failed"),
        ("schedlab-sim.1", "0 done; 1 a run failed"),
        ("schedlab-run.1", "0 done; 1 a run failed"),
        ("schedlab-vm.1", "128 + N if signal N ended it"),
        ("schedlab-doctor.1", "0 real runs are possible here"),
    ];
    for (page, end) in ends {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        let (before, told) = text.split_once(".SH \"EXIT STATUS\"").expect(page);
        assert!(before.contains(".SH"), "{page}");
        assert!(told.contains(end), "{page}: {told}");
        assert!(!told.contains("EXIT STATUS"), "{page}: {told}");
    }
}

/// The note below a table of two to five runs stands in the help, too.
#[test]
fn the_help_and_the_table_say_how_many_runs_give_intervals() {
    for command in ["sim", "run"] {
        let text = stdout(&format!("{command} --help"));
        assert!(text.contains("from 6 on with intervals"), "{text}");
    }
    // Its iterations take times that the seed draws.
    let line = "sim facesim:iterations=1 -s kernel,fifo -c 1 --repeat";
    for (runs, told) in [(1, true), (5, true), (6, false)] {
        let text = stdout(&format!("{line} {runs}"));
        assert_eq!(text.contains("may be chance"), told, "{runs}: {text}");
    }
}

#[test]
fn a_calibration_goes_to_standard_output_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(["calibrate", "--idle", "0", "-o", "-"])
        .current_dir(folder.path())
        .output()
        .expect("the program starts");
    assert!(output.status.success());
    let start = "# Written by `schedlab calibrate`.\n";
    assert!(output.stdout.starts_with(start.as_bytes()), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("# - the idle machine was not watched (--idle 0)"),
        "{text}"
    );
    assert!(!text.contains("[background."), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn lists_fit_80_columns() {
    let text = stdout("list");
    for heading in [
        "Schedulers:",
        "Workloads:",
        "Machines:",
        "Experiments:",
        "Measures:",
    ] {
        assert!(text.contains(heading));
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(stdout("list workloads cpu").contains("duration="));
}

/// A list for scripts has all names and their details.
#[test]
fn a_list_can_be_read_by_programs() {
    let document: serde_json::Value = serde_json::from_str(&stdout("list --json")).unwrap();
    for (kind, name) in [
        ("schedulers", "fifo"),
        ("workloads", "service"),
        ("machines", "laptop"),
        ("experiments", "chat-locks"),
        ("measures", "wakeup.latency_ns_p99"),
    ] {
        let items = document[kind].as_array().unwrap();
        assert!(items.iter().any(|item| item["name"] == name), "{kind}");
    }
}

/// A failure during the run is no error of the command line: it has a result, which says so.
#[test]
fn a_load_whose_process_is_killed_is_a_failed_run() {
    let load = Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(["load", "cpu:duration=100s,tasks=1", "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let id = load.id();
    let children = || {
        let file = format!("/proc/{id}/task/{id}/children");
        std::fs::read_to_string(file).unwrap_or_default()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while children().is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    let killed = Command::new("kill")
        .arg("-9")
        .arg(children().trim())
        .status();
    assert!(killed.expect("kill starts").success());
    let output = load.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &document["results"][0];
    assert_eq!(result["exit"], "command_failed", "{result}");
    assert_eq!(result["params"]["duration"], "100s", "{result}");
    let message = result["message"].as_str().unwrap();
    assert!(message.contains("ended without a word"), "{message}");
    assert!(result["measures"].as_object().unwrap().is_empty());
}

/// Real threads report nothing that `list measures` does not explain, and the same as the model.
#[test]
fn every_measure_of_a_load_is_listed() {
    let list = stdout("list measures");
    let known: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    for load in ["load pipe:loops=20", "load chat:rooms=1,users=3,messages=5"] {
        let text = stdout(&format!("{load} --json -"));
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let measures = document["results"][0]["measures"].as_object().unwrap();
        assert!(measures.len() > 5, "{measures:?}");
        for name in measures.keys() {
            assert!(known.contains(&name.as_str()), "{load}: {name}");
        }
    }
}

#[test]
fn the_doctor_tells_and_does_not_fail() {
    assert!(stdout("doctor").contains("simulation"));
}

/// Prototypes of the kernel's functions as people write them themselves: native code has others, and BPF takes them.
#[cfg(feature = "kernel")]
#[test]
fn a_source_with_prototypes_of_its_own_runs_as_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.bpf.c");
    let text = r#"#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
extern s32 scx_bpf_create_dsq(u64 id, s32 node) __ksym;
extern void scx_bpf_dsq_insert(struct task_struct *p, u64 id, u64 slice, u64 flags) __ksym;
extern bool scx_bpf_dsq_move_to_local(u64 id) __ksym;
char _license[] SEC("license") = "GPL";
SEC("struct_ops.s/own_init") s32 BPF_PROG(own_init) { return scx_bpf_create_dsq(1, -1); }
SEC("struct_ops/own_enqueue") void BPF_PROG(own_enqueue, struct task_struct *p, u64 flags)
{
	scx_bpf_dsq_insert(p, 1, SCX_SLICE_DFL, flags);
}
SEC("struct_ops/own_dispatch") void BPF_PROG(own_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(1);
}
SEC(".struct_ops.link") struct sched_ext_ops own = {
	.enqueue = (void *)own_enqueue,
	.dispatch = (void *)own_dispatch,
	.init = (void *)own_init,
	.name = "own",
};
"#;
    std::fs::write(&path, text).unwrap();
    let output = schedlab(&format!("sim cpu:duration=20ms -c 2 -s {}", path.display()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("own.bpf.c:"), "{said}");
    assert!(
        said.contains("compiled for BPF instead, and simulated as an object"),
        "{said}"
    );
}
