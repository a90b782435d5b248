//! Workloads from standard input and pipes, and signals while something is read.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const TASKS: &str = r#"{"tasks": {"a": {"loop": 3, "run": 100, "sleep": 50}}}"#;

fn schedlab(line: &str, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.args(line.split_whitespace()).current_dir(folder);
    command
}

/// The output of a command that found the tasks on its standard input.
fn fed(mut command: Command) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(TASKS.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

fn fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// The measures of a document of `--json`.
fn measures(output: &Output) -> serde_json::Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    document["results"][0]["measures"].clone()
}

#[test]
fn a_workload_may_come_from_standard_input_or_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.json");
    std::fs::write(&path, TASKS).unwrap();
    let sim = |workload: &str| {
        let line = format!("sim {workload} -s fifo -c 2 --json -");
        fed(schedlab(&line, folder.path()))
    };
    let expected = measures(&sim("tasks.json"));
    assert_eq!(expected["rtapp.a-0.iterations"], 3);
    for workload in ["-", "/dev/stdin", "/dev/fd/0:duration=1"] {
        assert_eq!(measures(&sim(workload)), expected, "{workload}");
    }
    // With options, and beside another one, though it begins like a flag.
    assert_eq!(measures(&sim("-:duration=1")), expected);
    let both = |command: &str, rest: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        program.args([command, "- + cpu:loops=1,duration=0"]);
        program.args(rest).args(["--json", "-"]);
        program.current_dir(folder.path());
        measures(&fed(program))
    };
    for measures in [both("sim", &["-s", "fifo", "-c", "2"]), both("load", &[])] {
        assert_eq!(measures["stdin.rtapp.a-0.iterations"], 3, "{measures}");
        assert!(measures["cpu.score"].is_number(), "{measures}");
    }
    // Several runs read it once.
    let several = fed(schedlab(
        "sim - -s fifo,kernel -c 1,2 --json -",
        folder.path(),
    ));
    let document: serde_json::Value = serde_json::from_slice(&several.stdout).unwrap();
    for result in document["results"].as_array().unwrap() {
        assert_eq!(result["measures"]["rtapp.a-0.iterations"], 3);
    }
    let load = fed(schedlab("load - --json -", folder.path()));
    assert_eq!(measures(&load)["rtapp.a-0.iterations"], 3);
    let sweep = "sweep - --space feature --sample 2 -c 2 --out swept";
    let swept = fed(schedlab(sweep, folder.path()));
    let stdout = String::from_utf8_lossy(&swept.stdout);
    assert!(stdout.starts_with("2 of 2 runs done"), "{swept:?}");

    let pipe = folder.path().join("pipe");
    fifo(&pipe);
    let writer = std::thread::spawn(move || std::fs::write(pipe, TASKS).unwrap());
    let read = schedlab("sim ./pipe -s fifo -c 2 --json -", folder.path());
    assert_eq!(measures(&fed(read)), expected);
    writer.join().unwrap();
}

#[test]
fn a_path_in_place_of_a_command_is_answered_with_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let told = schedlab("t1.json", folder.path()).output().unwrap();
    assert_eq!(told.status.code(), Some(2));
    let stderr = String::from_utf8(told.stderr).unwrap();
    assert!(
        stderr.contains("`schedlab sim t1.json -s SCHEDULER`"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// Waits for a program's end, for so long that only one that does not end comes to it.
fn ended(child: &mut Child) -> std::process::ExitStatus {
    for _ in 0..6_000 {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("it goes on reading");
}

/// Whatever is read has no end, and one signal is enough.
#[test]
fn the_first_signal_is_heard_while_something_is_read() {
    for (line, pipe, signal) in [
        ("sim endless.json -s fifo", "endless.json", libc::SIGINT),
        ("sim endless.json -s fifo", "endless.json", libc::SIGTERM),
        (
            "sim cpu -s fifo -m ./endless.toml",
            "endless.toml",
            libc::SIGTERM,
        ),
        (
            "sweep endless.json --space feature --out swept",
            "endless.json",
            libc::SIGTERM,
        ),
        (
            "sweep cpu -m ./endless.toml --space feature --out swept",
            "endless.toml",
            libc::SIGINT,
        ),
        ("load endless.json", "endless.json", libc::SIGTERM),
        (
            "reproduce ./endless.toml --quick",
            "endless.toml",
            libc::SIGTERM,
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(pipe);
        fifo(&path);
        let mut child = schedlab(line, folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        // This comes back when the program has opened it, too.
        let mut writer = File::options().write(true).open(&path).unwrap();
        writer.write_all(b"[").unwrap();
        let kill = format!("kill -{signal} {}", child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success(), "{line}");
        assert_eq!(ended(&mut child).signal(), Some(signal), "{line}");
        drop(writer);
    }
}

/// A scheduler's source is read by the compiler, too.
#[test]
fn a_scheduler_does_not_come_from_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    fifo(&folder.path().join("mine.bpf.c"));
    let told = schedlab("sim cpu -s ./mine.bpf.c", folder.path())
        .output()
        .unwrap();
    assert_eq!(told.status.code(), Some(2));
    let stderr = String::from_utf8(told.stderr).unwrap();
    assert!(
        stderr.contains("mine.bpf.c: not a regular file"),
        "{stderr}"
    );
}

/// A loader has a process group of its own, which Ctrl-C does not reach.
#[test]
fn a_loader_and_the_files_made_for_it_go_with_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let begun = folder.path().join(format!("begun.{signal}"));
        let loader = format!("exec:sh -c 'echo $$ > part && mv part begun.{signal} && sleep 60'");
        let mut child = schedlab("sim cpu -c 2 -s", folder.path())
            .arg(loader)
            .env("TMPDIR", &temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let until = |done: &dyn Fn() -> bool| {
            let began = std::time::Instant::now();
            while !done() && began.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(10));
            }
            done()
        };
        assert!(until(&|| begun.exists()));
        let files = || temporary.read_dir().unwrap().count();
        assert_eq!(files(), 1);
        let kill = format!("kill -{signal} {}", child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
        assert_eq!(ended(&mut child).signal(), Some(signal));
        assert_eq!(files(), 0);
        let loader = std::fs::read_to_string(&begun).unwrap();
        let process = format!("/proc/{}", loader.trim());
        assert!(until(&|| !Path::new(&process).exists()), "{process}");
    }
}
