//! The program's use of virtual machines; if none can run here, the file that `make test` repeats at its end says so.
#![cfg(feature = "kernel")]

use std::path::Path;
use std::process::{Command, Output};

fn schedlab(folder: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether `doctor` says that there can be a virtual machine.
fn there_is_a_machine(folder: &Path, test: &str) -> bool {
    let told = text(&schedlab(folder, "doctor").stdout);
    let line = told.lines().find(|line| line.starts_with("virtual"));
    let line = line.expect("a line about virtual machines");
    if line.ends_with("ready") {
        return true;
    }
    schedlab_testing::skipped(&format!("{test}: {line}"));
    false
}

/// Two of the feature tree's schedulers, each once; asked again, nothing is left to do. With infinite slices, hogs
/// would keep the kernel's own threads from running, which it does not forgive.
#[test]
#[ignore = "long: make test-all"]
fn a_sweep_runs_in_a_real_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if !there_is_a_machine(folder, "sweep --live --vm") {
        return;
    }
    let line = "sweep cpu:duration=300ms --space feature --fix slice=fixed --sample 2 --live --vm -c 2 --out live";
    let output = schedlab(folder, line);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    assert!(
        stdout.starts_with("2 of 2 runs done, 2 of them now; 0 failed"),
        "{stdout}"
    );
    assert!(folder.join("live/shard-1-of-1.parquet").is_file());
    let output = schedlab(folder, "analyze live --json -");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document.to_string().contains("feature"), "{document}");
    let output = schedlab(folder, line);
    let stdout = text(&output.stdout);
    assert!(
        stdout.starts_with("2 of 2 runs done, 0 of them now"),
        "{stdout}"
    );
}

/// Ends itself with an error in its first decision, which it makes while it is attached.
const AT_ONCE: &str = r#"
#include <scx/common.bpf.h>
char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);
void BPF_STRUCT_OPS(at_once_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_error("no longer");
}
void BPF_STRUCT_OPS(at_once_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}
SCX_OPS_DEFINE(at_once_ops,
	       .enqueue	= (void *)at_once_enqueue,
	       .exit	= (void *)at_once_exit,
	       .name	= "at_once");
"#;

/// The verifier refuses it.
const REFUSED: &str = include_str!("../../kernel/tests/policies/wild_read.bpf.c");

/// A scheduler that the kernel ejects at once, or refuses, is a failed run among the others, whose results are kept.
#[test]
fn what_cannot_be_run_is_one_of_the_results() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if !there_is_a_machine(folder, "run --vm with an ejection") {
        return;
    }
    // The host compiles it; inside, this process is not to be seen.
    let process = format!("/proc/{}/status", std::process::id());
    let at_once = format!("#if !__has_include(\"{process}\")\n#error\n#endif\n{AT_ONCE}");
    std::fs::write(folder.join("at-once.bpf.c"), at_once).unwrap();
    std::fs::write(folder.join("refused.bpf.c"), REFUSED).unwrap();
    let schedulers = "kernel,./at-once.bpf.c,./refused.bpf.c,fifo";
    // Here the machine may have no cgroups for it; inside they are made.
    let workload = "cpu:duration=300ms,cgroup=/a/b,cpu.weight=300";
    let line = &format!("run --vm -s {schedulers} -c 2 {workload} --json all.json");
    let output = schedlab(folder, line);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    let document = std::fs::read_to_string(folder.join("all.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let results = document["results"].as_array().unwrap();
    let exits: Vec<_> = results.iter().map(|run| &run["exit"]).collect();
    let expected = ["done", "error_bpf", "not_run", "done"];
    assert_eq!(exits, expected, "{stdout}{stderr}");
    // One table: an ejected scheduler stands beside the others.
    assert_eq!(results[1]["params"], results[0]["params"]);
    let message = results[1]["message"].as_str().unwrap();
    assert!(message.contains("no longer"), "{message}");
    let message = results[2]["message"].as_str().unwrap();
    assert!(message.contains("invalid mem access"), "{message}");
    let replay = "replay: schedlab run --vm --cpus 2 -s ./at-once.bpf.c";
    assert!(stdout.contains(replay), "{stdout}{stderr}");
}

const EXPERIMENT: &str = r#"
title = "Tokens"
source = "nobody"
about = ["Two sets."]
measures = [{ measure = "score" }, { measure = "work" }]
[[runs]]
machine = "laptop"
workloads = ["reflex:active_sets=2,rounds=500"]
schedulers = ["fifo"]
cpus = [2, 9]
seeds = 1
"#;

/// The figure of the real program stands beside the simulated one; nine CPUs are simulated alone.
#[test]
#[ignore = "long: make test-all"]
fn an_experiment_is_emulated() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if !there_is_a_machine(folder, "reproduce --vm") {
        return;
    }
    std::fs::write(folder.join("tokens.toml"), EXPERIMENT).unwrap();
    let line = "reproduce tokens.toml --vm --html page.html --json all.json";
    let output = schedlab(folder, line);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    let document = std::fs::read_to_string(folder.join("all.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let of: Vec<(&str, u64)> = document["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| {
            (
                run["machine"].as_str().unwrap(),
                run["cpus"].as_u64().unwrap(),
            )
        })
        .collect();
    // With KVM it is `vm`.
    let of = of.into_iter().map(|(machine, cpus)| match machine {
        "vm-emulated" => ("vm", cpus),
        machine => (machine, cpus),
    });
    let of: Vec<_> = of.collect();
    assert_eq!(of, [("laptop", 2), ("laptop", 9), ("vm", 2)]);
    // The same rounds are done in both worlds.
    let work = |index: usize| document["results"][index]["measures"]["work"].as_u64();
    assert!(work(0).is_some_and(|work| work > 0));
    assert_eq!(work(2), work(0));
    assert_eq!(stdout.matches("      emulated").count(), 2, "{stdout}");
    let page = std::fs::read_to_string(folder.join("page.html")).unwrap();
    assert!(page.contains(">emulated<"), "no column");
}
