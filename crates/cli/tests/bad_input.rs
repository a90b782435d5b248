//! Bad input: one clear line on standard error, exit code 2 (1 where a run failed), and nothing half-written.
//! Runs the real program.

use std::path::Path;
use std::process::{Command, Output};

/// Runs `schedlab` with the words of `line`; `DIR` stands for a folder of the test's own.
fn schedlab(line: &str, folder: &Path) -> Output {
    let words = line
        .split_whitespace()
        .map(|word| word.replace("DIR", folder.to_str().unwrap()));
    Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(words)
        .output()
        .expect("the program starts")
}

/// Name, content.
const FILES: &[(&str, &str)] = &[
    ("broken.json", "{\"tasks\": {\n  \"a\": {\"run\": }\n}}\n"),
    ("unknown.json", "{\"tasks\": {\"a\": {\"rum\": 10}}}\n"),
    (
        "no-cpu.json",
        "{\"tasks\": {\"a\": {\"loop\": 1, \"run\": 10, \"cpus\": []}}}\n",
    ),
    (
        "controls.json",
        "{\"tasks\": {\"a\\u001b[2J\\r\": {\"loop\": 1, \"runn\": 10}}}\n",
    ),
    (
        "controls-wait.json",
        "{\"tasks\": {\"a\\u001b[2J\\r\": {\"loop\": 1, \"sem_wait\": \"never\"}}}\n",
    ),
    (
        "deadlock.json",
        "{\"tasks\": {\n \"a\": {\"loop\": 1, \"phases\": {\"p\": {\"loop\": 1, \"suspend\": \"a\"}}}}}\n",
    ),
    (
        "endless.json",
        "{\"tasks\": {\"a\": {\"loop\": -1, \"run\": 1000}}}\n",
    ),
    (
        "forks.json",
        "{\"tasks\": {\"c\": {\"instance\": 0, \"loop\": 1, \"run\": 1},\n\
         \"p\": {\"loop\": 2000, \"fork\": \"c\", \"sleep\": 1}}}\n",
    ),
    ("broken.toml", "name = \"x\"\nsummary = \n"),
    ("empty.toml", "name = \"x\"\n"),
    ("not.csv", "a,b\n"),
    ("syntax.bpf.c", "#include <scx/common.bpf.h>\nint x = ;\n"),
    ("empty.bpf.c", ""),
    ("no-policy.bpf.c", "int main(void) { return 0; }\n"),
    (
        "no-ops.bpf.c",
        "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\nint x;\n",
    ),
    (
        "errors.bpf.c",
        "#include <scx/common.bpf.h>\nint x = a;\nint y = b;\n",
    ),
    (
        "warns.bpf.c",
        "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\n\
         void BPF_STRUCT_OPS(warns_enqueue, struct task_struct *p, u64 flags)\n{\n\
         \tif (flags = 3)\n\t\tscx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, 0, 0);\n}\n\
         const volatile bool x;\n\
         SCX_OPS_DEFINE(warns_ops, .enqueue = (void *)warns_enqueue, .name = \"warns\");\n",
    ),
];

/// Arguments, exit code, and words that the line must have.
const CASES: &[(&str, i32, &[&str])] = &[
    ("sim cpu -s nosuch", 2, &["nosuch", "kernel"]),
    ("sim cpu -s fif", 2, &["`fif` (did you mean `fifo`?)"]),
    (
        "sim cpu -s kernel -m latop",
        2,
        &["latop (did you mean `laptop`?)"],
    ),
    (
        "sim cpu -s vtime:slice_u=1",
        2,
        &["`slice_u` (did you mean `slice_us`?)"],
    ),
    (
        "sweep cpu --space featur --out DIR/s",
        2,
        &["(did you mean `feature`?)"],
    ),
    (
        "reproduce chat-lock",
        2,
        &["`chat-lock` (did you mean `chat-locks`?)"],
    ),
    ("sim cpu -s nosuch.bpf.c", 2, &["nosuch.bpf.c"]),
    ("sim cpu -s DIR/syntax.bpf.c", 2, &["syntax.bpf.c:2"]),
    (
        "sim cpu -s DIR/no-ops.bpf.c",
        2,
        &["no-ops", "sched_ext_ops"],
    ),
    (
        "sim cpu -s DIR/empty.bpf.c",
        2,
        &["sched_ext_ops", "<scx/common.bpf.h>", "SCX_OPS_DEFINE"],
    ),
    (
        "sim cpu -s DIR/no-policy.bpf.c",
        2,
        &["sched_ext_ops", "<scx/common.bpf.h>", "SCX_OPS_DEFINE"],
    ),
    ("sim cpu -s vtime:nosuch=1", 2, &["vtime", "nosuch"]),
    (
        "sim cpu -s dss:threshold=many",
        2,
        &["dss", "threshold", "many"],
    ),
    ("sim cpu -s DIR/a,b.bpf.c", 2, &["/a: ", "`,`", "rename"]),
    (
        "sim cpu -s DIR/a:b.bpf.c",
        2,
        &["/a:b.bpf.c: ", "No such file"],
    ),
    ("sim cpu -s DIR/a:b.c", 2, &["/a: ", "`:`", "rename"]),
    ("sim cpu -s ,", 2, &["-s", "empty"]),
    ("sim cpu -s kernel,x=1", 2, &["-s", "kernel:x=1"]),
    ("sim cpu -s kernel:x=1", 2, &["kernel", "option"]),
    ("sim cpu -s kernel,kernel", 2, &["-s", "kernel", "twice"]),
    ("sim nosuch -s kernel", 2, &["nosuch", "cpu"]),
    ("sim cpu:nosuch=1 -s kernel", 2, &["nosuch", "takes"]),
    (
        "sim cpu:tasks=many -s kernel",
        2,
        &["tasks=many", "integer"],
    ),
    ("sim cpu:tasks=0 -s kernel", 2, &["tasks=0"]),
    ("sim cpu:tasks -s kernel", 2, &["="]),
    ("sim DIR/none.json -s kernel", 2, &["none.json"]),
    ("sim DIR/broken.json -s kernel", 2, &["broken.json:2"]),
    (
        "sim DIR/unknown.json -s kernel",
        2,
        &["unknown.json:1", "rum", "run"],
    ),
    ("sim DIR/no-cpu.json -s kernel", 2, &["no-cpu.json", "cpus"]),
    ("sim cpu -s kernel -c 0", 2, &["-c", "0 CPUs"]),
    ("sim cpu -s kernel -c two", 2, &["-c", "2..8"]),
    ("sim cpu -s kernel -c 4..2", 2, &["-c", "2..4"]),
    ("sim cpu -s kernel -c 17", 2, &["laptop", "16", "17"]),
    ("sim cpu -s kernel -c 999999999", 2, &["-c", "too many"]),
    ("sim cpu -s kernel -m pdp-11", 2, &["pdp-11", "laptop"]),
    ("sim cpu -s kernel -m DIR/none.toml", 2, &["none.toml"]),
    (
        "sim cpu -s kernel -m DIR/broken.toml",
        2,
        &["broken.toml:2"],
    ),
    ("sim cpu -s kernel -m DIR/empty.toml", 2, &["empty.toml"]),
    ("sim cpu -s kernel --kernel 5.4", 2, &["5.4", "7.2"]),
    ("sim cpu -s kernel --seed x", 2, &["--seed", "x"]),
    (
        "sim cpu -s kernel --seed 18446744073709551615 --repeat 2",
        2,
        &["--seed"],
    ),
    ("sim cpu -s kernel --repeat 0", 2, &["--repeat"]),
    ("sim cpu -s kernel -c -1", 2, &["-c", "`-1`"]),
    (
        "sim cpu -s kernel --seed -1",
        2,
        &["--seed", "'-1'", "from 0 to"],
    ),
    (
        "sim cpu -s kernel --repeat -1",
        2,
        &["-1 is not in 1..=100000"],
    ),
    (
        "sim cpu -s kernel --time-limit -1",
        2,
        &["write a time up to 1000000s, for example 90 (seconds), 500ms"],
    ),
    (
        "sim cpu -s kernel --measures wakeup.latency_p99",
        2,
        &["unknown measure `wakeup.latency_p99` (did you mean `wakeup.latency_ns_p99`?)"],
    ),
    (
        "sim cpu -s fifo --export-json o.json",
        2,
        &["unexpected argument '--export-json' found; here it is --json"],
    ),
    (
        "sim cpu -s fifo --json - --csv -",
        2,
        &["both write standard output"],
    ),
    (
        "sweep cpu --space feature --out DIR/none --sample -1",
        2,
        &["--sample", "-1 is not in 1..=9223372036854775807"],
    ),
    (
        "sweep cpu --space feature --sample 1 --out DIR/not.csv",
        2,
        &["cannot keep results in", "not.csv: it is not a folder"],
    ),
    (
        "sweep cpu --space feature --sample 1 --out /proc/x",
        2,
        &["cannot keep results in /proc/x", "can be made"],
    ),
    (
        "analyze DIR/not.csv",
        2,
        &["not.csv holds no sweep: it is not a folder", "--out"],
    ),
    (
        "analyze DIR/none",
        2,
        &["none holds no sweep: it is not there"],
    ),
    ("analyze DIR --within -1", 2, &["--within", "-1"]),
    (
        "load tpch --original --scale -1",
        2,
        &["--scale", "from 0.001 to 1000"],
    ),
    (
        "sim cpu -s kernel -c 1,2 --trace DIR/trace",
        2,
        &["--trace", "2"],
    ),
    (
        "sim cpu -s kernel --json DIR/none/x.json",
        2,
        &["none/x.json"],
    ),
    ("sim cpu -s kernel --json DIR", 2, &["folder"]),
    (
        "sim cpu -s kernel --trace -",
        2,
        &["--trace -", "binary", "./-"],
    ),
    (
        "sim cpu -s kernel --events -",
        2,
        &["--events -", "binary", "./-"],
    ),
    (
        "sim cpu -s kernel --repeat 2 --events DIR/events",
        2,
        &["--events", "one run", "2"],
    ),
    ("check DIR", 2, &["directory"]),
    ("check DIR/none", 2, &["cannot read", "none"]),
    (
        "sim cpu -s kernel --trace DIR/none/trace",
        2,
        &["none/trace"],
    ),
    (
        "sim cpu -s kernel --json DIR/one --trace DIR/./one",
        2,
        &["--json", "--trace", "one"],
    ),
    (
        "reproduce --quick --html DIR/one --json DIR/one",
        2,
        &["--html", "--json", "one"],
    ),
    (
        "sim cpu -s kernel --nosuch",
        2,
        &["'--nosuch' found; ", "--help"],
    ),
    ("sim cpu", 2, &["--schedulers", "--help"]),
    ("sim -s kernel", 2, &["<WORKLOAD>", "--help"]),
    ("nosuch", 2, &["nosuch", "--help"]),
    ("list nosuch", 2, &["nosuch", "workloads"]),
    ("list machines nosuch", 2, &["nosuch", "laptop"]),
    (
        "reproduce --rows nosuch",
        2,
        &["nothing is published of the workload nosuch", "chat"],
    ),
    (
        "reproduce --rows lat_ctx nosuch",
        2,
        &["nothing is published of the workload nosuch", "chat"],
    ),
    (
        "reproduce --rows lat_ctx -m laptop",
        2,
        &["a machine with the name laptop; there is uniprocessor"],
    ),
    (
        "reproduce --rows reflex -s pls",
        2,
        &["nothing is published of pls there; there is DSS"],
    ),
    (
        "reproduce --rows reflex -c 3",
        2,
        &["nothing is published of 3 CPUs there; there is 2, 4, 6, 8"],
    ),
    ("published chat", 2, &["`schedlab reproduce --rows` now"]),
    ("reproduce -s dss", 2, &["--rows"]),
    ("reproduce --rows --figures DIR/not.csv", 2, &["not.csv:1"]),
    ("man DIR/none", 2, &["none"]),
    ("calibrate -o DIR/none/x.toml", 2, &["none/x.toml"]),
    (
        "calibrate --from DIR/none.xml",
        2,
        &["none.xml: No such file"],
    ),
    ("load nosuch", 2, &["nosuch"]),
    (
        "sweep cpu --space kernel --out DIR/none",
        2,
        &["kernel has no options", "enum or bool"],
    ),
    (
        "sweep cpu --space feature --sample 0 --out DIR/none",
        2,
        &["--sample", "'0'"],
    ),
];

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in FILES {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

#[test]
fn one_line_says_what_is_wrong() {
    let folder = folder();
    let mut wrong = Vec::new();
    for &(line, code, words) in CASES {
        let output = schedlab(line, folder.path());
        let stderr = String::from_utf8(output.stderr).unwrap();
        let complete = output.status.code() == Some(code)
            && stderr.lines().count() == 1
            && words.iter().all(|word| stderr.contains(word))
            && output.stdout.is_empty();
        if !complete {
            wrong.push(format!(
                "`schedlab {line}`: {}\n  stderr: {stderr}",
                output.status
            ));
        }
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(left, FILES.len(), "a file was half-written");
}

/// Each line of a compiler has its place, which editors jump to.
#[test]
fn lines_of_the_compiler_stay_lines() {
    let folder = folder();
    let place = folder.path().display();
    for line in [
        "sim cpu -s DIR/errors.bpf.c",
        "sweep cpu --space DIR/errors.bpf.c --out DIR/none",
    ] {
        let output = schedlab(line, folder.path());
        let stderr = String::from_utf8(output.stderr).unwrap();
        let told: Vec<&str> = stderr.lines().collect();
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert_eq!(told.len(), 2, "{line}: {stderr}");
        for (line, number) in told.iter().zip([2, 3]) {
            let start = format!("schedlab: {place}/errors.bpf.c:{number}: ");
            assert!(line.starts_with(&start), "{stderr}");
        }
    }
}

/// Once, however many runs there are.
#[test]
fn warnings_of_the_compiler_are_told_once() {
    let folder = folder();
    for line in [
        "sim cpu:duration=1ms -s DIR/warns.bpf.c -c 1,2 --repeat 2",
        "sweep cpu:duration=1ms --space DIR/warns.bpf.c -c 1 --out DIR/swept",
    ] {
        let output = schedlab(line, folder.path());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr.matches("[-Wparentheses]").count(), 1, "{stderr}");
        let start = format!(
            "schedlab: {}/warns.bpf.c:5: warning: ",
            folder.path().display()
        );
        assert!(stderr.contains(&start), "{line}: {stderr}");
    }
}

/// Tasks that wait for each other until the file's duration is over have done what the file says.
#[test]
fn a_circle_of_waits_lasts_until_the_duration_is_over_and_is_told() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../workloads/rt-app/locks.json"
    );
    let folder = folder();
    let output = schedlab(&format!("sim {file} -s fifo,kernel -c 1,4"), folder.path());
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stdout}");
    // Wherever lines were broken.
    let words: String = stdout.split_whitespace().collect();
    assert_eq!(
        words.matches("nothingisleftthatcouldwake").count(),
        4,
        "{stdout}"
    );
    let output = schedlab(&format!("sim {file} -s fifo -c 4 --json -"), folder.path());
    let stdout = String::from_utf8(output.stdout).unwrap();
    for text in ["\"makespan_ns\": 1000000000", "\"exit\": \"done\""] {
        assert!(stdout.contains(text), "{text}: {stdout}");
    }
}

/// A run that fails is a result: exit code 1, a complete table and a command that repeats it.
/// A reader that closes standard output early (`| head`) does not change the run's outcome; a pipe that was named for
/// the results is another matter.
#[test]
fn a_reader_that_is_gone_changes_no_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in FILES {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    for (line, code) in [
        ("sim DIR/deadlock.json -s kernel -c 2", 1),
        ("sim DIR/deadlock.json -s kernel -c 2 --json -", 1),
        ("sim cpu:duration=1ms -s kernel -c 1", 0),
        ("list", 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let line = line.replace("DIR", folder.path().to_str().unwrap());
        let status = Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args(line.split_whitespace())
            .stdout(writer)
            .stderr(std::process::Stdio::null())
            .status();
        assert_eq!(status.unwrap().code(), Some(code), "{line}");
    }
}

#[test]
fn nobody_who_reads_errors_changes_no_exit_code() {
    let folder = folder();
    for (line, code) in [
        ("sim nosuch -s fifo", 2),
        ("sim -s", 2),
        ("sim DIR/deadlock.json -s kernel -c 2 --json -", 1),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let line = line.replace("DIR", folder.path().to_str().unwrap());
        let status = Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args(line.split_whitespace())
            .stdout(std::process::Stdio::null())
            .stderr(writer)
            .status();
        assert_eq!(status.unwrap().code(), Some(code), "{line}");
    }
}

#[test]
fn experiments_of_one_name_are_refused() {
    let folder = folder();
    let file = folder.path().join("chat-locks.toml");
    std::fs::copy("../../experiments/chat-locks.toml", &file).unwrap();
    let line = "reproduce --quick chat-locks DIR/chat-locks.toml --html DIR/page.html";
    let output = schedlab(line, folder.path());
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("two experiments are called `chat-locks`"),
        "{told}"
    );
}

/// rt-app's process ends there with an error.
#[test]
fn a_run_fails_at_the_fork_limit_of_rt_app() {
    let folder = folder();
    for line in [
        "sim DIR/forks.json -s kernel -c 2 --json -",
        "load DIR/forks.json --json -",
    ] {
        let output = schedlab(line, folder.path());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}: {stderr}");
        assert!(stderr.contains("more than 1024 times"), "{line}: {stderr}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let result = &document["results"][0];
        assert_eq!(result["exit"], "command_failed", "{line}");
        assert!(result["measures"]["score"].is_null(), "{line}");
    }
}

#[test]
fn a_run_that_fails_says_so_and_how_to_repeat_it() {
    let folder = folder();
    for (line, exit) in [
        ("sim DIR/deadlock.json -s kernel -c 2", "deadlock"),
        (
            "sim DIR/endless.json -s kernel -c 2 --time-limit 1",
            "time_limit",
        ),
        (
            "sim cpu:duration=10s -s kernel -c 2 --time-limit 1",
            "time_limit",
        ),
    ] {
        let output = schedlab(line, folder.path());
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}: {stdout}");
        assert!(stdout.contains(exit), "{line}: {stdout}");
        let replay = stdout
            .lines()
            .find_map(|line| line.trim().strip_prefix("replay: schedlab "))
            .unwrap_or_else(|| panic!("{line} has no replay: {stdout}"));
        let again = schedlab(replay, folder.path());
        assert_eq!(again.status.code(), Some(1), "{replay}");
        assert_eq!(String::from_utf8(again.stdout).unwrap(), stdout, "{replay}");

        let json = folder.path().join("results.json");
        let output = schedlab(&format!("{line} --json DIR/results.json"), folder.path());
        assert_eq!(output.status.code(), Some(1));
        let document: serde_json::Value =
            serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        assert_eq!(document["results"][0]["exit"], exit);
        assert!(document["results"][0]["message"].is_string());
        assert!(document["results"][0]["measures"]["score"].is_null());
    }
}

/// Each output is named where it is full; a reader that has seen enough is no error.
#[test]
fn an_output_that_is_full_is_named() {
    let folder = folder();
    let into = |line: &str, stdout: &str| {
        let file = std::fs::OpenOptions::new().write(true).open(stdout);
        Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args(line.split_whitespace())
            .current_dir(folder.path())
            .stdout(file.unwrap())
            .output()
            .expect("the program starts")
    };
    const RUN: &str = "sim cpu:duration=10ms -s kernel -c 1";
    for (line, stdout, output) in [
        ("list", "/dev/full", "standard output"),
        ("--help", "/dev/full", "standard output"),
        ("completions bash", "/dev/full", "standard output"),
        ("doctor", "/dev/full", "standard output"),
        (RUN, "/dev/full", "standard output"),
        (&format!("{RUN} --json -"), "/dev/full", "standard output"),
        (&format!("{RUN} --json /dev/full"), "/dev/null", "/dev/full"),
        (
            &format!("{RUN} --trace /dev/full"),
            "/dev/null",
            "/dev/full",
        ),
    ] {
        let told = into(line, stdout);
        let stderr = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(2), "{line}: {stderr}");
        let start = format!("schedlab: cannot write {output}: ");
        assert!(stderr.starts_with(&start), "{line}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{line}: {stderr}");
    }
    for line in ["list", "--help", RUN, &format!("{RUN} --json -")] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args(line.split_whitespace())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the program starts");
        drop(child.stdout.take());
        let told = child.wait_with_output().unwrap();
        assert!(told.stderr.is_empty(), "{line}: {told:?}");
        assert!(told.status.success(), "{line}: {told:?}");
    }
}

/// Runs may have taken hours: their table is shown though a file for them cannot be written.
#[test]
fn results_are_shown_where_their_file_cannot_be_written() {
    let folder = folder();
    for output in ["--json /dev/full", "--trace /dev/full"] {
        let line = format!("sim cpu:duration=10ms -s kernel -c 1 {output}");
        let told = schedlab(&line, folder.path());
        let stdout = String::from_utf8(told.stdout).unwrap();
        assert_eq!(told.status.code(), Some(2), "{line}: {stdout}");
        assert!(stdout.contains("1  kernel "), "{line}: {stdout}");
    }
}

#[test]
fn why_a_run_failed_is_told_beside_a_document_on_standard_output() {
    let folder = folder();
    let told = schedlab(
        "sim DIR/deadlock.json -s kernel -c 2 --json -",
        folder.path(),
    );
    let stderr = String::from_utf8(told.stderr).unwrap();
    let start = "schedlab: kernel on 2 CPUs, seed 1: deadlock: at ";
    assert!(stderr.contains(start), "{stderr}");
    assert!(
        stderr.contains(" ns nothing is left that could wake a"),
        "{stderr}"
    );
    assert!(stderr.contains("; replay: schedlab sim "), "{stderr}");
}

/// A lack of the host's resources is reported for the run that needs them, and the others' results are kept.
#[test]
fn a_run_that_the_host_has_no_room_for_fails_among_the_others() {
    let folder = folder();
    // The stacks of 1,024 CPUs are 430 MB of address space.
    let limited = |line: &str| {
        let limit = "ulimit -v 400000; exec \"$0\" \"$@\"";
        let told = Command::new("sh")
            .args(["-c", limit, env!("CARGO_BIN_EXE_schedlab")])
            .args(line.split_whitespace())
            .current_dir(folder.path())
            .output()
            .expect("the program starts");
        let [stdout, stderr] =
            [told.stdout, told.stderr].map(|text| String::from_utf8(text).unwrap());
        (told.status.code(), stdout, stderr)
    };
    let why = "no room for the stacks of 1024 virtual CPUs: the host gives no address space: ";
    let remedy = "make fewer runs at the same time (--jobs)";
    let runs = "cpu:tasks=2,run=1us,loops=1,duration=0 -m numa-8x64x2 -j 1";
    let (code, stdout, stderr) = limited(&format!("sim {runs} -s kernel -c 1024,2 --json -"));
    assert_eq!(code, Some(1), "{stderr}");
    let told = stderr.lines().find(|line| line.contains(why)).unwrap();
    let start = "schedlab: kernel on 1024 CPUs, seed 1: not_run: ";
    assert!(told.starts_with(start) && told.contains(remedy), "{told}");
    assert!(told.contains("; replay: schedlab sim "), "{told}");
    let results: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let exits = results["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["exit"]);
    assert_eq!(exits.collect::<Vec<_>>(), ["not_run", "done"]);
}

/// Names from files move no cursor and clear no screen.
#[test]
fn control_characters_are_spelled_out() {
    let folder = folder();
    for line in [
        "sim DIR/controls.json -s kernel",
        "sim DIR/controls-wait.json -s kernel -c 1",
        "sim DIR/controls-wait.json -s kernel -c 1 --json -",
    ] {
        let told = schedlab(line, folder.path());
        let text = String::from_utf8([told.stdout, told.stderr].concat()).unwrap();
        assert!(text.contains(r"a\u{1b}[2J"), "{line}: {text:?}");
        let raw = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(raw), "{line}: {text:?}");
    }
}

/// Ctrl-C while a policy is compiled ends the program when its folder is gone.
#[test]
fn a_signal_while_a_policy_is_compiled_leaves_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::ExitStatusExt as _;
    for (line, signal, code) in [
        ("sim cpu -s ./warns.bpf.c", Some(libc::SIGTERM), None),
        (
            "sweep cpu --space ./warns.bpf.c --out ./none",
            Some(libc::SIGTERM),
            None,
        ),
    ] {
        let folder = folder();
        let (temporary, begun) = (folder.path().join("tmp"), folder.path().join("begun"));
        std::fs::create_dir(&temporary).unwrap();
        let compiler = folder.path().join("slow-cc");
        let script = format!("#!/bin/sh\ntouch {}\nsleep 1\n", begun.display());
        std::fs::write(&compiler, script).unwrap();
        std::fs::set_permissions(&compiler, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args(line.split_whitespace())
            .current_dir(folder.path())
            .env("TMPDIR", &temporary)
            .env("SCHEDLAB_CC", &compiler)
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("the program starts");
        while !begun.exists() {
            assert_eq!(child.try_wait().unwrap(), None, "{line}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 1, "{line}");
        let kill = format!("kill -TERM {}", child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
        let ended = child.wait().unwrap();
        assert_eq!((ended.signal(), ended.code()), (signal, code), "{line}");
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "{line}");
    }
}

/// A fault of the machine is not blamed on the policy.
#[test]
fn a_folder_for_temporary_files_that_is_not_there_is_named() {
    let folder = folder();
    let told = Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(["sim", "cpu", "-s", "./warns.bpf.c"])
        .current_dir(folder.path())
        .env("TMPDIR", "/nonexistent")
        .output()
        .expect("the program starts");
    let stderr = String::from_utf8(told.stderr).unwrap();
    assert_eq!(told.status.code(), Some(2), "{stderr}");
    for words in ["cannot write in /nonexistent", "TMPDIR"] {
        assert!(stderr.contains(words), "{stderr}");
    }
    assert!(!stderr.contains("warns.bpf.c"), "{stderr}");
}

/// Other compilers would leave an audit with nothing to look at.
#[test]
fn an_audit_asks_for_a_clang() {
    let folder = folder();
    for scheduler in ["fifo", "./warns.bpf.c"] {
        let told = Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args(["sim", "cpu", "-s", scheduler, "--audit"])
            .current_dir(folder.path())
            .env("SCHEDLAB_CC", "true")
            .output()
            .expect("the program starts");
        let stderr = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(2), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        for words in ["audit", "clang", "`true`", "SCHEDLAB_CC"] {
            assert!(stderr.contains(words), "{stderr}");
        }
    }
}

/// By the names under which clang is known: here an impostor, and none.
#[test]
fn an_audit_looks_for_a_clang() {
    let folder = folder();
    let told = |message: &str| {
        let told = Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args(["sim", "cpu", "-s", "fifo", "--audit"])
            .env("PATH", folder.path())
            .env_remove("SCHEDLAB_CC")
            .output()
            .expect("the program starts");
        let stderr = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    };
    told("none of clang, clang-22,");
    let impostor = folder.path().join("clang-21");
    std::fs::write(&impostor, "#!/bin/sh\necho clang version 0\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&impostor, executable).unwrap();
    told("the C compiler `clang-21` has not written what it should");
}

/// Told before a machine is booted or a scheduler loaded.
#[cfg(feature = "kernel")]
#[test]
fn what_a_run_cannot_record_is_told_at_once() {
    let folder = folder();
    for (line, words) in [
        ("run --vm -s fifo,vtime --trace DIR/t cpu", "one run"),
        ("run --vm -s fifo --repeat 2 --trace DIR/t cpu", "one run"),
        ("run --vm -s fifo --repeat 2 --events DIR/t cpu", "one run"),
        ("run --vm -s fifo --trace DIR/none/trace cpu", "none/trace"),
        (
            "run --vm -s fifo --seed 18446744073709551615 --repeat 2 cpu",
            "beyond 2^64",
        ),
        (
            "run --vm -s fifo --json DIR/one --trace DIR/one cpu",
            "--json and --trace both write",
        ),
        (
            "run --vm -s fifo --json DIR/forks.json DIR/forks.json",
            "that file is read here",
        ),
        (
            "run --vm -s kernel,kernel cpu",
            "-s: `kernel` is named twice",
        ),
        (
            "run --vm -s DIR/syntax.bpf.c cpu",
            "syntax.bpf.c:2: expected",
        ),
    ] {
        let output = schedlab(line, folder.path());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains(words), "{line}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{line}: {stderr}");
    }
}

/// Input files stay: the command refuses before it would overwrite a policy or the results of hours.
#[test]
fn an_output_takes_no_place_of_an_input() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    for (from, to) in [
        ("policies/fifo.bpf.c", "p.bpf.c"),
        ("machines/laptop.toml", "m.toml"),
        ("experiments/chat-locks.toml", "e.toml"),
        ("published/default-scheduler.csv", "f.csv"),
    ] {
        std::fs::copy(root.join(from), folder.join(to)).unwrap();
    }
    const LOAD: &str = "{\"tasks\": {\"a\": {\"loop\": 1, \"run\": 10}}}\n";
    std::fs::write(folder.join("w.json"), LOAD).unwrap();
    std::os::unix::fs::symlink("w.json", folder.join("link")).unwrap();
    std::os::unix::fs::symlink("none.json", folder.join("dangling")).unwrap();
    let run = |line: &str| {
        Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args(line.split_whitespace())
            .current_dir(folder)
            .output()
            .expect("the program starts")
    };
    const SWEEP: &str = "sweep cpu:duration=1ms --space feature --sample 3 -c 1 --out s";
    assert!(run(SWEEP).status.success());
    let bytes = || {
        let files = [folder, &folder.join("s")].map(|folder| {
            let entries = std::fs::read_dir(folder).unwrap();
            entries.map(|entry| entry.unwrap().path())
        });
        let files = files.into_iter().flatten().filter(|path| !path.is_dir());
        let files: std::collections::BTreeMap<_, _> = files
            .map(|path| (path.clone(), std::fs::read(path).ok()))
            .collect();
        files
    };
    let before = bytes();
    const SIM: &str = "sim cpu:duration=1ms -s kernel -c 1";
    const LOST: &str = "that file is read here, and would be lost; name another one";
    for (line, words) in [
        ("sim w.json -s kernel -c 2 --json w.json", LOST),
        ("sim w.json -s kernel -c 2 --json link", LOST),
        ("sim link -s kernel -c 2 --trace ./w.json", LOST),
        ("sim pipe -s ./p.bpf.c --json p.bpf.c", LOST),
        ("sim pipe -s kernel -m m.toml --trace m.toml", LOST),
        ("load w.json --json w.json", LOST),
        ("load w.json:pin=false --json link", LOST),
        (
            "reproduce --rows kbuild --figures f.csv --html h.html --json f.csv",
            LOST,
        ),
        ("reproduce --quick e.toml --html ./e.toml", LOST),
        ("reproduce --quick e.toml --html e.html --json e.toml", LOST),
        ("reproduce --quick e.toml -m m.toml --html m.toml", LOST),
        ("analyze s --json s/sweep.json", LOST),
        ("analyze s --html s/shard-1-of-1.parquet", LOST),
        (
            &format!("{SIM} --json none.json --trace dangling"),
            "--json and --trace both write dangling",
        ),
    ] {
        let told = run(line);
        let stderr = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains(words), "{line}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{line}: {stderr}");
        assert!(told.stdout.is_empty(), "{line}");
        assert!(bytes() == before, "{line}");
    }
    for line in [
        "sim w.json -s ./p.bpf.c -c 2 --json /dev/null --trace /dev/null",
        "sim w.json -s ./p.bpf.c -c 2 --json -",
        "sim w.json -s ./p.bpf.c -c 2 --json /dev/stdout",
        "load w.json --json /dev/stdout",
    ] {
        let told = run(line);
        assert!(told.status.success(), "{line}: {told:?}");
        assert!(bytes() == before, "{line}");
    }
    assert!(
        run("analyze s --json s/analysis.json --html dangling")
            .status
            .success()
    );
    assert!(run("analyze s").status.success());
}
