//! Schedulers by their own loaders, `exec:`: the loader is `tests/loader/load.rs`, which uses libbpf as schedulers do.

use std::path::{Path, PathBuf};

use schedlab_report::{Exit, RunResult, export};
use schedlab_sim::{Inputs, Scheduler, SimError, SimSpec};

/// The loader, which is built with the tests.
const LOADER: &str = env!("CARGO_BIN_EXE_test-loader");

/// The path of an object of `tests/objects`.
fn object(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/objects");
    let folder = folder.canonicalize().unwrap();
    folder.join(format!("{name}.bpf.o"))
}

fn spec(name: &str, work: &str) -> SimSpec {
    of_file(&object(name), work)
}

fn of_file(path: &Path, work: &str) -> SimSpec {
    let command = format!("exec:{LOADER} {} {work}", path.display());
    SimSpec {
        cpus: Some(2),
        check: true,
        ..SimSpec::new(
            "cpu:tasks=3,duration=100ms",
            Scheduler::plain(command),
            "laptop",
        )
    }
}

fn attempt(object: &str, work: &str) -> Result<RunResult, SimError> {
    schedlab_sim::run(&spec(object, work), None)
}

fn message(object: &str, work: &str) -> String {
    attempt(object, work).unwrap().message.unwrap_or_default()
}

#[test]
fn what_a_loader_sets_fills_and_runs_is_part_of_the_run() {
    let work = "set chosen 7 put filled 3 77 run prepare 1 run prepare 0";
    let result = attempt("loaded", work).unwrap();
    let message = result.message.clone().unwrap_or_default();
    assert_eq!(
        (result.exit, result.exit_code),
        (Exit::UnregBpf, Some(7)),
        "{message}"
    );
    let expected = "(chosen 7 filled 77 prepared 6 calls 2 mask 1 1 own 1 unused 0 attached 0), in ops.running at loaded.bpf.c:";
    assert!(message.contains(expected), "{message}");
    // Each run has its own objects of the kernel, and the same bytes.
    let again = attempt("loaded", work).unwrap();
    assert_eq!(json(&result), json(&again));
}

/// The loader makes queues of four and puts them into an array of maps; the table of numbers is libbpf's. More maps than a process
/// may have files are no matter.
#[test]
fn a_loader_puts_maps_into_maps() {
    let many = "inner queues 0 4 ".repeat(1500);
    let message = message(
        "nested",
        &format!("{many}inner queues 1 9 inner queues 0 4"),
    );
    let expected = "(first 40 absent 1 pushed 4 full -7 popped 100 none -2 table 0 other 0 gone 1), in ops.running";
    assert!(message.contains(expected), "{message}");
}

fn json(result: &RunResult) -> Vec<u8> {
    let mut text = Vec::new();
    export::json::write(std::slice::from_ref(result), &mut text).unwrap();
    text
}

/// Runs with transcripts in a folder; answers with the result's bytes, and whether the loader did not run.
fn keeping(spec: &SimSpec, folder: Option<&Path>) -> (Vec<u8>, bool) {
    let mut inputs = Inputs::keeping(folder.map(Path::to_owned));
    let prepared = inputs.read(spec).unwrap();
    let notes = prepared.check().unwrap();
    let mut bytes = json(&prepared.run(None).unwrap());
    bytes.extend(notes.join("\n").bytes());
    bytes.extend(format!("{:?}", prepared.files()).bytes());
    (bytes, inputs.nr_kept() == 1)
}

#[test]
fn a_transcript_is_kept_as_long_as_everything_is_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let scheduler = folder.path().join("scheduler");
    std::fs::copy(object("loaded"), &scheduler).unwrap();
    let work = "set chosen 7 put filled 3 77 run prepare 1 run prepare 0";
    let spec = of_file(&scheduler, work);
    let (expected, _) = keeping(&spec, None);
    assert_eq!(keeping(&spec, Some(&kept)), (expected.clone(), false));
    assert_eq!(keeping(&spec, Some(&kept)), (expected.clone(), true));
    // Other arguments, another machine, another kernel.
    let others = [
        of_file(&scheduler, &format!("{work} run prepare 0")),
        SimSpec {
            cpus: Some(3),
            ..spec.clone()
        },
        SimSpec {
            kernel: "6.18".to_owned(),
            ..spec.clone()
        },
    ];
    for other in others {
        let (bytes, _) = keeping(&other, None);
        assert_eq!(keeping(&other, Some(&kept)), (bytes, false));
    }
    assert_eq!(keeping(&spec, Some(&kept)), (expected.clone(), true));
    // A file that it reads changes: with the same length, and with the time of before.
    let old = std::fs::metadata(&scheduler).unwrap();
    let mut bytes = std::fs::read(&scheduler).unwrap();
    let at = bytes
        .windows(15)
        .position(|part| part == b"chosen %llu fil")
        .unwrap();
    bytes[at] = b'C';
    std::fs::write(&scheduler, &bytes).unwrap();
    let file = std::fs::File::options()
        .write(true)
        .open(&scheduler)
        .unwrap();
    file.set_modified(old.modified().unwrap()).unwrap();
    let (changed, is_kept) = keeping(&spec, Some(&kept));
    assert!(!is_kept && changed != expected);
    assert_eq!(keeping(&spec, Some(&kept)), (changed, true));
    // An entry that is cut is none.
    for entry in kept.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    }
    assert!(!keeping(&spec, Some(&kept)).1);
}

#[test]
fn a_loader_that_writes_or_asks_what_changes_runs_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let loader = format!("{LOADER} {}", object("state").display());
    let script = |line: &str| SimSpec {
        scheduler: Scheduler::plain(format!("exec:sh -c '{line}; exec {loader}'")),
        ..spec("state", "")
    };
    let seen = folder.path().join("seen");
    let missing = script(&format!("test -e {} || true", seen.display()));
    for expected in [false, true] {
        assert_eq!(keeping(&missing, Some(folder.path())).1, expected);
    }
    // A file that was missing has come.
    std::fs::write(&seen, "").unwrap();
    assert!(!keeping(&missing, Some(folder.path())).1);
    for line in ["read a < /proc/uptime", "echo x > ./written-by-a-loader"] {
        for _ in 0..2 {
            assert!(!keeping(&script(line), Some(folder.path())).1, "{line}");
        }
    }
    std::fs::remove_file("written-by-a-loader").unwrap();
}

/// `env` looks for a program by execve() alone.
#[test]
fn a_program_that_was_missing_is_a_question() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let folders = ["first", "second"].map(|name| folder.path().join(name));
    let put = |folder: &Path, chosen: u32| {
        std::fs::create_dir_all(folder).unwrap();
        let program = folder.join("my-loader");
        let object = object("loaded").display().to_string();
        let text = format!("#!/bin/sh\nexec {LOADER} {object} set chosen {chosen} run prepare 0\n");
        std::fs::write(&program, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
    };
    put(&folders[1], 7);
    let path = folders.each_ref().map(|folder| folder.display());
    let [first, second] = path;
    let spec = SimSpec {
        scheduler: Scheduler::plain(format!("exec:env PATH={first}:{second} my-loader")),
        ..spec("loaded", "")
    };
    let (bytes, is_kept) = keeping(&spec, Some(&kept));
    assert!(!is_kept);
    assert_eq!(keeping(&spec, Some(&kept)), (bytes.clone(), true));
    put(&folders[0], 5);
    let (changed, is_kept) = keeping(&spec, Some(&kept));
    assert!(!is_kept && changed != bytes);
}

#[test]
fn a_file_of_the_virtual_kernel_is_no_question() {
    let folder = tempfile::tempdir().unwrap();
    let loader = format!("{LOADER} {}", object("state").display());
    // `cat` asks for the status of the descriptor.
    let line = "cat /proc/cpuinfo /sys/devices/system/cpu/online > /dev/null";
    let spec = SimSpec {
        scheduler: Scheduler::plain(format!("exec:sh -c '{line}; exec {loader}'")),
        ..spec("state", "")
    };
    for expected in [false, true] {
        assert_eq!(keeping(&spec, Some(folder.path())).1, expected);
    }
}

#[test]
fn an_object_decides_alike_whoever_loads_it() {
    let of_loader = attempt("state", "set runs 1000000").unwrap();
    let scheduler = spec("state", "").scheduler.name;
    let object = scheduler.split(' ').nth(1).unwrap();
    let spec = SimSpec {
        scheduler: Scheduler::parse(&format!("{object}:runs=1000000")),
        ..spec("state", "")
    };
    let of_file = schedlab_sim::run(&spec, None).unwrap();
    assert_eq!(of_loader.exit, Exit::Done, "{:?}", of_loader.message);
    assert_eq!(of_loader.measures, of_file.measures);
}

#[test]
fn what_is_missing_ends_the_run_where_it_is_reached() {
    let said = message("loaded", "set chosen 2 run prepare 0");
    let expected = "not_in_any_kernel of struct task_struct is not in the virtual kernel";
    assert!(
        said.contains("loaded.bpf.c:") && said.contains(expected),
        "{said}"
    );
    let said = message("loaded", "set chosen 1 run prepare 0");
    let expected = "kfunc not_in_any_kernel is not in the virtual kernel";
    assert!(
        said.contains("loaded.bpf.c:") && said.contains(expected),
        "{said}"
    );
}

#[test]
fn a_loader_that_fails_is_quoted() {
    let error = attempt("loaded", "set no_such_variable 1")
        .unwrap_err()
        .to_string();
    let expected = "ended (exit status: 1) before it attached a scheduler; it printed: Error: there is no such variable";
    assert!(error.contains(expected), "{error}");
    let error = attempt("no-such-object", "").unwrap_err().to_string();
    assert!(error.contains("no-such-object"), "{error}");
}

#[test]
fn a_call_that_is_refused_leaves_no_trace() {
    // The key does not exist; what comes after it is carried out all the same.
    let work = "run prepare 1 try of_cpus 9 1 put filled 3 77 run prepare 0";
    let said = message("loaded", work);
    let expected = "filled 77 prepared 6 calls 2 mask 1 1 own 1";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_map_that_no_program_of_the_loader_uses_keeps_what_is_put_there() {
    let said = message("loaded", "put unused 1 12 run prepare 0 get unused 1");
    assert!(said.contains("unused 12 attached 0"), "{said}");
}

#[test]
fn constants_have_their_values_when_the_loader_looks_at_a_map_first() {
    let said = message("loaded", "set chosen 9 get filled 0 check prepare 1 1006");
    let expected = "chosen 9 filled 0 prepared 1006";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn programs_run_where_the_scheduler_is_attached() {
    let work = "attach on_attach run prepare 0";
    let said = message("loaded", work);
    assert!(said.contains("unused 0 attached 1"), "{said}");
    let prepared = Inputs::default().read(&spec("loaded", work)).unwrap();
    let notes = prepared.check().unwrap();
    assert!(
        !notes.iter().any(|note| note.contains("on_attach")),
        "{notes:?}"
    );
}

/// The numbers of `fields.bpf.o`, which reads fields of a task that change while it runs.
fn fields(spec: &SimSpec) -> String {
    let spec = SimSpec {
        workload: "cpu:tasks=2,duration=1s".to_owned(),
        cpus: Some(1),
        ..spec.clone()
    };
    let result = schedlab_sim::run(&spec, None).unwrap();
    let message = result.message.unwrap_or_default();
    assert!(message.contains("ran "), "{message}");
    message.split(", in ops").next().unwrap().to_owned()
}

#[test]
fn fields_that_change_are_read_as_they_are_whatever_file_the_object_is_in() {
    let plain = SimSpec {
        scheduler: Scheduler::plain(object("fields").display().to_string()),
        ..spec("fields", "")
    };
    let expected = fields(&plain);
    assert!(!expected.contains("ran 0 "), "{expected}");
    assert_eq!(fields(&spec("fields", "")), expected);
    let folder = tempfile::tempdir().unwrap();
    // A name without .o.
    let bytes = std::fs::read(object("fields")).unwrap();
    let renamed = folder.path().join("scheduler");
    std::fs::write(&renamed, &bytes).unwrap();
    assert_eq!(fields(&of_file(&renamed, "")), expected);
    // In no file that anybody knows: fields are known by their places.
    let inverted: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    let unknown = folder.path().join("unknown");
    std::fs::write(&unknown, &inverted).unwrap();
    assert_eq!(fields(&of_file(&unknown, "inverted")), expected);
}

#[test]
fn the_object_of_a_renamed_file_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let renamed = folder.path().join("scheduler");
    std::fs::copy(object("loaded"), &renamed).unwrap();
    let work = "set chosen 2 run prepare 0";
    let result = schedlab_sim::run(&of_file(&renamed, work), None).unwrap();
    let said = result.message.unwrap_or_default();
    let expected = "not_in_any_kernel of struct task_struct is not in the virtual kernel";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn an_object_beside_the_scheduler_s_is_another_one() {
    // The same function asks for another field there.
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(object("fields")).unwrap();
    const NAME: &[u8] = b"\0utime\0";
    let is_name = |at: &usize| bytes[*at..].starts_with(NAME);
    let names: Vec<usize> = (0..bytes.len()).filter(is_name).collect();
    assert!(!names.is_empty());
    for at in names {
        bytes[at + 1] = b'z';
    }
    let other = folder.path().join("other");
    std::fs::write(&other, &bytes).unwrap();
    let work = format!("lies {}", other.display());
    assert_eq!(fields(&spec("fields", &work)), fields(&spec("fields", "")));
    // The scheduler's own object has the types: a field is known by its name.
    let loaded = object("loaded");
    let work = format!("beside {} set chosen 2 run prepare 0", loaded.display());
    let said = message("loaded", &work);
    let expected = "not_in_any_kernel of struct task_struct is not in the virtual kernel";
    assert!(said.contains(expected), "{said}");
}
