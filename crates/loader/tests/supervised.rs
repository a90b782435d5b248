//! Tests the view of a supervised program on its machine, and its limits. Shell commands stand for a loader; a real one is
//! tried in `crates/kernel/tests/loaders.rs`.

use std::path::Path;
use std::time::{Duration, Instant};

use schedlab_bpf::btf::Btf;
use schedlab_bpf::transcript::{Transcript, World};
use schedlab_loader::{Facts, Order, Patience, RecordError, record};
use schedlab_machine::Machine;

/// A kernel that no program is run on.
struct Nothing;

impl World for Nothing {
    fn apply(&mut self, _: &Transcript) -> Result<i64, String> {
        Ok(0)
    }

    fn run(&mut self, _: &Transcript) -> Result<(u32, Vec<u8>), String> {
        Err("nothing runs here".to_owned())
    }

    fn lookup(&mut self, _: &Transcript, _: usize, _: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn next_key(
        &mut self,
        _: &Transcript,
        _: usize,
        _: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn contents(&mut self, _: usize) -> Vec<(u64, Vec<u8>)> {
        Vec::new()
    }
}

/// Tests are done with long before this.
const PATIENCE: Patience = Patience {
    idle: Duration::from_secs(20),
    whole: Duration::from_secs(60),
};

fn attempt(program: &str, arguments: &[&str], folder: &Path) -> RecordError {
    attempt_with(program, arguments, folder, PATIENCE)
}

fn attempt_with(
    program: &str,
    arguments: &[&str],
    folder: &Path,
    patience: Patience,
) -> RecordError {
    let files = tempfile::tempdir().unwrap();
    let machine = Machine::builtin("laptop").unwrap().with_cpus(6).unwrap();
    let facts = Facts {
        machine: &machine,
        release: "7.2.0",
        config: &[("CONFIG_HZ".to_owned(), "250".to_owned())],
        types: &Btf::new(),
    };
    let order = Order {
        program: program.into(),
        arguments: arguments.iter().map(Into::into).collect(),
        folder: folder.to_owned(),
        files: files.path().to_owned(),
        patience,
        is_ending: || false,
    };
    record(&order, &facts, &mut Nothing).unwrap_err()
}

/// The last line that a command prints.
fn printed(command: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let error = attempt("sh", &["-c", command], folder.path());
    match error {
        RecordError::Ended { said, .. } => said.trim_start_matches("; it printed: ").to_owned(),
        other => panic!("{command}: {other}"),
    }
}

#[test]
fn it_sees_the_simulated_machine_and_kernel() {
    assert_eq!(printed("cat /sys/devices/system/cpu/possible"), "0-5");
    assert_eq!(
        printed("cat /sys/devices/system/node/node0/cpu3/topology/core_id"),
        "3"
    );
    assert_eq!(
        printed("ls -d /sys/devices/system/cpu/cpu[0-9]* | wc -l"),
        "6"
    );
    assert_eq!(
        printed("cd /sys/devices/system/cpu && cat cpu1/topology/../online"),
        "1"
    );
    assert_eq!(printed("uname -r"), "7.2.0");
    assert_eq!(printed("nproc"), "6");
    assert_eq!(printed("cat /boot/config-$(uname -r)"), "CONFIG_HZ=250");
    assert_eq!(printed("cat /sys/kernel/sched_ext/state"), "disabled");
    assert_eq!(printed("grep -c ^processor /proc/cpuinfo"), "6");
    assert_eq!(
        printed("head -c 2 /sys/kernel/btf/vmlinux | od -An -tx1"),
        "9f eb"
    );
    // Of the host's files below /sys nothing is seen.
    assert!(printed("ls /sys/class").contains("No such file"));
}

#[test]
fn it_writes_in_its_folder_alone() {
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("file");
    std::fs::write(&path, "kept").unwrap();
    let path = path.display();
    for command in [
        format!("echo x > {path}"),
        format!("rm {path}"),
        format!("mv {path} ./here"),
        format!("mkdir {path}.d"),
        format!("ln -s x {path}.l"),
        format!("chmod 700 {path}"),
        format!("touch -c -h {path}"),
        // The virtual kernel's own.
        "mv /run/scx /run/other".to_owned(),
        "echo x > /run/scx/a && mv /run/scx/a /run/scx/b".to_owned(),
        "echo x > /run/scx/a && ln /run/scx/a /run/scx/b".to_owned(),
        "echo x > /run/scx/a && ln /run/scx/a b".to_owned(),
        "ln -s x /run/scx/l".to_owned(),
        "mkfifo /run/scx/f".to_owned(),
        "rm -f /sys/kernel/sched_ext/state".to_owned(),
        "mkdir /sys/kernel/other".to_owned(),
        "echo x > /sys/kernel/other".to_owned(),
    ] {
        let said = printed(&command);
        assert!(said.contains("Read-only file system"), "{command}: {said}");
    }
    assert_eq!(
        std::fs::read_to_string(outside.path().join("file")).unwrap(),
        "kept"
    );
    assert_eq!(outside.path().read_dir().unwrap().count(), 1);
    assert_eq!(printed("echo x > a && mkdir d && mv a d/b && cat d/b"), "x");
    assert_eq!(
        printed("mkdir /var/run/scx/x && echo y > /run/scx/x/z && cat /var/run/scx/x/z"),
        "y"
    );
    assert_eq!(
        printed(
            "mkdir /run/scx/d && echo y > /run/scx/d/z && chmod 600 /run/scx/d/z && rm -r /run/scx/d && ls /run/scx && echo gone"
        ),
        "gone"
    );
    assert_eq!(printed("echo x > /dev/null; echo done"), "done");
}

/// Runs a command with little patience; answers with the error and the seconds that it took.
fn limited(command: &str, idle: u64, whole: u64) -> (String, u64) {
    let folder = tempfile::tempdir().unwrap();
    let patience = Patience {
        idle: Duration::from_secs(idle),
        whole: Duration::from_secs(whole),
    };
    let began = Instant::now();
    let error = attempt_with("sh", &["-c", command], folder.path(), patience);
    (error.to_string(), began.elapsed().as_secs())
}

#[test]
fn it_is_ended_when_it_does_nothing() {
    let (error, seconds) = limited("echo waiting; sleep 100 & wait", 1, 60);
    assert!(seconds < 20, "{seconds}");
    let expected = "sh has done nothing for 1 s and attached no scheduler; it printed: waiting";
    assert_eq!(error, expected);
}

/// A command of a shell that computes until the host has been up for `$END` seconds, and exits with 3. No call of the shell's is
/// seen meanwhile.
const COMPUTE: &str = "i=0; while [ $i -lt 100000000 ]; do i=$((i + 1)); \
    [ $((i % 100000)) -gt 0 ] || { read -r up _ < /proc/uptime; [ ${up%.*} -lt $END ] || exit 3; }; done";

/// How long the host has been up, in seconds.
fn uptime() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    text.split('.').next().unwrap().parse().unwrap()
}

#[test]
fn one_that_computes_is_not_idle() {
    let command = format!("END={}; {COMPUTE}", uptime() + 4);
    let (error, _) = limited(&command, 1, 60);
    assert!(error.contains("ended (exit status: 3)"), "{error}");
}

/// The kernel adds the CPU time of an ended process to its parent's only if the parent waits for it.
#[test]
fn one_that_computes_after_its_orphan_has_ended_is_not_idle() {
    let began = uptime();
    let command = format!(
        "( (END={}; {COMPUTE}) & ); END={}; {COMPUTE}",
        began + 4,
        began + 9
    );
    let (error, _) = limited(&command, 1, 60);
    assert!(error.contains("ended (exit status: 3)"), "{error}");
}

#[test]
fn one_that_never_attaches_is_ended() {
    let command =
        "echo polling; while :; do cat /sys/kernel/sched_ext/state > /dev/null; sleep 0.1; done";
    let (error, seconds) = limited(command, 20, 2);
    assert!(seconds < 15, "{seconds}");
    let expected = "sh has run for 2 s and attached no scheduler; it printed: polling";
    assert_eq!(error, expected);
}

/// A process that it leaves behind holds its output open.
#[test]
fn what_it_leaves_behind_is_not_waited_for() {
    let (error, seconds) = limited("echo forked; setsid sleep 60 & exit 3", 1, 60);
    assert!(seconds < 30, "{seconds}");
    assert!(error.contains("it printed: forked"), "{error}");
}

#[test]
fn who_cannot_be_started_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = attempt("./no-such-loader", &[], folder.path());
    assert!(matches!(error, RecordError::Start { .. }), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("./no-such-loader cannot be started: No such file")
    );
    let error = attempt(
        "sh",
        &["-c", "echo Error: no such option >&2; echo bye; exit 3"],
        folder.path(),
    );
    let expected = "sh ended (exit status: 3) before it attached a scheduler; it printed: Error: no such option";
    assert_eq!(error.to_string(), expected);
}
