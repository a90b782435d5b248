//! Schedulers as objects that clang has compiled for BPF, from tests/objects (`tools/build-objects` compiles them).

use std::path::{Path, PathBuf};

use schedlab_report::{Exit, RunResult, export};
use schedlab_sim::{Scheduler, SimSpec};

fn path(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/objects");
    folder.join(format!("{name}.bpf.o"))
}

fn spec(name: &str, options: &str) -> SimSpec {
    let scheduler = Scheduler::parse(&format!("{}{options}", path(name).display()));
    SimSpec {
        cpus: Some(1),
        check: true,
        ..SimSpec::new("cpu:tasks=2,duration=1s", scheduler, "laptop")
    }
}

fn run(name: &str, options: &str) -> RunResult {
    schedlab_sim::run(&spec(name, options), None).expect("it can be begun")
}

/// Returns the text with which it ends itself.
fn told(name: &str, options: &str) -> String {
    let result = run(name, options);
    let message = result.message.unwrap_or_default();
    assert_eq!(
        (result.exit, result.exit_code),
        (Exit::UnregBpf, Some(7)),
        "{message}"
    );
    let text = message.strip_prefix("unregistered from BPF, code 0x7 (");
    // The place of the call follows.
    let text =
        text.and_then(|text| text.split_once(&format!("), in ops.running at {name}.bpf.c:")));
    let (text, _) = text.unwrap_or_else(|| panic!("{message}"));
    text.to_owned()
}

/// Why it ends where it does what no scheduler may.
fn fault(name: &str, options: &str) -> String {
    let result = run(name, options);
    let message = result.message.unwrap_or_default();
    assert_ne!(result.exit, Exit::Done, "{message}");
    assert_ne!(result.exit, Exit::UnregBpf, "{message}");
    message
}

/// The line of a source that has a text.
fn line(name: &str, text: &str) -> String {
    let source = std::fs::read_to_string(path(name).with_extension("c")).unwrap();
    let index = source.lines().position(|line| line.contains(text)).unwrap();
    format!("{name}.bpf.c:{}", index + 1)
}

#[test]
fn division_by_zero_is_zero_and_the_rest_is_the_dividend() {
    assert_eq!(told("division", ""), "0 35 0 45");
}

#[test]
fn what_is_asked_of_types_is_answered_as_it_is_here() {
    assert_eq!(
        told("questions", ""),
        "there 4 absent 0 wakeup 1 weight 100"
    );
}

#[test]
fn a_field_that_is_not_there_ends_the_run_with_its_name_and_line() {
    let message = fault("gone", "");
    assert!(
        message.contains("gone of struct sched_ext_entity is not in the virtual kernel"),
        "{message}"
    );
    assert!(
        message.contains(&line("gone", "future->gone;")),
        "{message}"
    );
}

#[test]
fn a_weak_kfunc_that_is_asked_for_is_not_there_and_one_that_is_called_ends_the_run() {
    assert_eq!(told("weak", ""), "future 0 present 1");
    let message = fault("weak", ":calls=1");
    assert!(
        message.contains("kfunc scx_bpf_of_the_future is not in the virtual kernel"),
        "{message}"
    );
    assert!(
        message.contains(&line("weak", "scx_bpf_of_the_future(0);")),
        "{message}"
    );
}

#[test]
fn prototypes_and_enumerators_of_its_own_are_enough() {
    assert_eq!(told("prototypes", ""), "beats 1 switches 1");
}

#[test]
fn maps_options_globals_subprograms_and_callbacks_work() {
    let expected = |runs| format!("runs {runs} same 1 looped 5 sum 10 sign -3 hz 250");
    assert_eq!(told("state", ""), expected(10));
    assert_eq!(told("state", ":runs=4"), expected(4));
    let other = told("state", ":runs=4,sign=12");
    assert!(other.contains("sign 12"), "{other}");
}

#[test]
fn a_null_pointer_ends_the_run_with_the_line() {
    let message = fault("null", "");
    assert!(message.contains("it follows a NULL pointer"), "{message}");
    assert!(message.contains(&line("null", "/* here */")), "{message}");
}

#[test]
fn a_loop_without_end_ends_the_run() {
    let message = fault("endless", "");
    assert!(message.contains("it loops without end"), "{message}");
}

#[test]
fn the_same_run_has_the_same_bytes() {
    let bytes = |seed| {
        let spec = SimSpec {
            cpus: Some(3),
            seed,
            workload: "chat:rooms=1,users=4,messages=5".to_owned(),
            ..spec("weak", "")
        };
        let result = schedlab_sim::run(&spec, None).expect("it can be begun");
        let mut bytes = Vec::new();
        export::json::write(&[result], &mut bytes).expect("a vector can be written");
        bytes
    };
    assert_eq!(bytes(3), bytes(3));
}

#[test]
fn what_is_no_object_is_refused_in_one_line() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no.bpf.o");
    std::fs::write(&path, "no ELF at all").unwrap();
    let scheduler = Scheduler::plain(path.display().to_string());
    let spec = SimSpec::new("cpu:tasks=1", scheduler, "laptop");
    let error = schedlab_sim::check(&spec).unwrap_err().to_string();
    assert!(
        error.contains("no.bpf.o: ") && error.contains("it is no ELF object"),
        "{error}"
    );
    assert!(!error.contains('\n'), "{error}");
    let audited = SimSpec {
        audit: true,
        ..self::spec("weak", "")
    };
    let error = schedlab_sim::check(&audited).unwrap_err().to_string();
    assert!(error.contains("an object cannot be audited"), "{error}");
}
