//! Random, deep, huge and circular files, and odd surroundings: each ends soon, in one line that names the file.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Far more than any of them takes on a machine that does much else.
const SOON: Duration = Duration::from_secs(30);

fn schedlab(line: &str, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command
        .args(line.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

#[track_caller]
fn is_refused(line: &str, file: &str, output: &Output) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{line}: {stderr}");
    assert!(stderr.contains(file), "{line}: {stderr}");
    assert!(stderr.len() < 1_000, "{line}: {stderr}");
    let raw = |c: char| c.is_control() && c != '\n';
    assert!(!stderr.contains(raw), "{line}: {stderr:?}");
    assert!(output.stdout.is_empty(), "{line}");
}

/// The commands that read a file of each kind; `FILE` stands for it.
const READERS: [(&str, &[&str]); 8] = [
    ("json", &["sim FILE -s kernel -c 1", "load FILE"]),
    (
        "workload",
        &[
            "sim FILE -s kernel -c 1",
            "replay FILE",
            "show FILE",
            "import FILE -o new",
        ],
    ),
    ("bpf.c", &["sim cpu -s FILE -c 1"]),
    ("bpf.o", &["sim cpu -s FILE -c 1"]),
    (
        "toml",
        &[
            "sim cpu -s kernel -m FILE",
            "reproduce FILE --html new",
            "calibrate --from FILE",
        ],
    ),
    ("csv", &["reproduce --rows chat --figures FILE --html new"]),
    ("events", &["check FILE"]),
    ("log", &["explain FILE"]),
];

/// Every reader of a file in `folder`, whose name begins with `stem`, refuses it.
fn all_refuse(folder: &Path, stem: &str) {
    for (kind, lines) in READERS {
        let file = format!("./{stem}.{kind}");
        for line in lines {
            let line = line.replace("FILE", &file);
            let begun = Instant::now();
            let output = schedlab(&line, folder).output().unwrap();
            is_refused(&line, &file[2..], &output);
            assert!(begun.elapsed() < SOON, "{line}: {:?}", begun.elapsed());
        }
    }
    assert!(!folder.join("new").exists());
}

#[test]
fn random_bytes_are_refused_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    // Knuth's linear congruential generator, whose upper bytes are as good as random.
    let mut state: u64 = 1;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let bytes: Vec<u8> = (0..2_000_000)
        .map(next)
        .flat_map(u32::to_le_bytes)
        .collect();
    for (kind, _) in READERS {
        std::fs::write(folder.path().join(format!("random.{kind}")), &bytes).unwrap();
    }
    all_refuse(folder.path(), "random");
}

#[test]
fn folders_and_links_in_a_circle_are_refused_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, _) in READERS {
        let path = |stem: &str| folder.path().join(format!("{stem}.{kind}"));
        std::fs::create_dir(path("folder")).unwrap();
        for (from, to) in [("one", "other"), ("other", "one")] {
            std::os::unix::fs::symlink(path(to), path(from)).unwrap();
        }
    }
    all_refuse(folder.path(), "folder");
    all_refuse(folder.path(), "one");
}

/// Of the kinds whose text has a grammar; an empty log or list of figures says nothing, too.
#[test]
fn empty_files_are_refused_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, _) in READERS {
        std::fs::write(folder.path().join(format!("empty.{kind}")), "").unwrap();
    }
    all_refuse(folder.path(), "empty");
}

#[test]
fn deep_and_huge_documents_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let nested = |open: &str, times: usize, close: &str| {
        format!("{}1{}", open.repeat(times), close.repeat(times))
    };
    let of_keys = |count: usize| (0..count).map(|key| format!("k{key} = 1\n")).collect();
    for (file, text) in [
        ("brackets.json", "[".repeat(1_000_000)),
        (
            "tasks.json",
            format!("{{\"tasks\": {}", "[".repeat(1_000_000)),
        ),
        ("objects.json", nested("{\"a\": ", 5_000, "}")),
        ("brackets.toml", format!("a = {}", "[".repeat(100_000))),
        ("dots.toml", format!("{} = 1\n", ["a"; 50_000].join("."))),
        ("keys.toml", of_keys(300_000)),
    ] {
        std::fs::write(folder.path().join(file), text).unwrap();
        let lines: &[&str] = match file.ends_with("json") {
            true => READERS[0].1,
            false => READERS[4].1,
        };
        for line in lines {
            let line = line.replace("FILE", &format!("./{file}"));
            let begun = Instant::now();
            let output = schedlab(&line, folder.path()).output().unwrap();
            is_refused(&line, file, &output);
            assert!(begun.elapsed() < SOON, "{line}: {:?}", begun.elapsed());
        }
    }
}

/// json-c reads neither, and takes any bytes in a name.
#[test]
fn encodings_and_names_are_those_of_json_c() {
    let folder = tempfile::tempdir().unwrap();
    let task = |name: &[u8]| {
        [
            b"{\"tasks\": {\"",
            name,
            b"\": {\"loop\": 1, \"run\": 10}}}",
        ]
        .concat()
    };
    let utf16: Vec<u8> = String::from_utf8(task(b"a"))
        .unwrap()
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let run = |bytes: &[u8]| {
        std::fs::write(folder.path().join("x.json"), bytes).unwrap();
        let line = "sim ./x.json -s kernel -c 1";
        (line, schedlab(line, folder.path()).output().unwrap())
    };
    for wrong in [
        utf16.clone(),
        [&[0xff, 0xfe], &utf16[..]].concat(),
        task(b"a\0b"),
        task(b"\n\x1b[2J\", \"runn\": 1, \"b"),
    ] {
        let (line, output) = run(&wrong);
        is_refused(line, "x.json", &output);
    }
    for right in [
        task(b"\xe4"),
        task("ä".as_bytes()),
        task(&[b'n'; 1_000_000]),
        task(b"a\\u001b[2J"),
        task(b"a\\u0000b"),
    ] {
        let (_, output) = run(&right);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        let raw = |c: char| c.is_control() && c != '\n';
        assert!(!stdout.contains(raw), "{stdout:?}");
    }
}

/// Not as a number of anything.
#[test]
fn odd_numbers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for number in [
        "NaN",
        "inf",
        "-5",
        "1234567890123",
        "1e3",
        "0x10",
        "",
        "ten",
    ] {
        for line in [
            "sim cpu -s kernel -c=N",
            "sim cpu -s kernel --time-limit=N",
            "sim cpu -s kernel --repeat=N",
            "sim cpu:tasks=N -s kernel",
            "sim cpu:duration=Ns -s kernel",
        ] {
            let line = line.replace('N', number);
            let output = schedlab(&line, folder.path()).output().unwrap();
            is_refused(&line, "", &output);
        }
        // These are endless, or cut to the range, as in rt-app.
        if ["-5", "1234567890123"].contains(&number) {
            continue;
        }
        let text = format!("{{\"tasks\": {{\"a\": {{\"loop\": 1, \"run\": {number}}}}}}}");
        std::fs::write(folder.path().join("x.json"), text).unwrap();
        let line = "sim ./x.json -s kernel -c 1";
        let output = schedlab(line, folder.path()).output().unwrap();
        is_refused(line, "x.json", &output);
    }
}

#[test]
fn nothing_half_written_stays() {
    let folder = tempfile::tempdir().unwrap();
    let run = "sim cpu:duration=10ms -s kernel -c 1";
    for output in ["--json", "--csv", "--events", "--trace"] {
        for path in ["/dev/full", "./none/x", "/proc/x", "."] {
            let line = format!("{run} {output} {path}");
            let told = schedlab(&line, folder.path()).output().unwrap();
            let stderr = String::from_utf8_lossy(&told.stderr);
            assert_eq!(told.status.code(), Some(2), "{line}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{line}: {stderr}");
            assert!(stderr.contains(path), "{line}: {stderr}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }
}

/// The table is the same whatever surrounds the program, but for its width.
#[test]
fn odd_surroundings_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = || schedlab("sim cpu:duration=10ms -s kernel -c 1", folder.path());
    let usual = run().output().unwrap().stdout;
    let is_usual = |what: &str, command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{what}: {output:?}");
        assert!(output.stderr.is_empty(), "{what}: {output:?}");
        assert_eq!(output.stdout, usual, "{what}");
    };
    for columns in ["0", "-5", "999999999", "x", ""] {
        is_usual(columns, run().env("COLUMNS", columns));
    }
    for locale in ["xx_YY.UTF-8", "tr_TR.UTF-8", "C", ""] {
        is_usual(locale, run().env("LC_ALL", locale).env("LANG", locale));
    }
    is_usual("no HOME", run().env_remove("HOME"));
    is_usual("an empty environment", run().env_clear());
    let gone = tempfile::tempdir().unwrap();
    let script = "rmdir \"$PWD\" && exec \"$0\" sim cpu:duration=10ms -s kernel -c 1";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script, env!("CARGO_BIN_EXE_schedlab")])
        .current_dir(gone.path());
    is_usual("a folder that is gone", &mut shell);
    std::mem::forget(gone);
}
