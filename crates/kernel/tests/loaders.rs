//! Schedulers by their own loaders, `exec:`: the loader is `tests/loader/load.rs`, which uses libbpf as schedulers do.

use std::path::Path;

use schedlab_report::{Exit, RunResult, export};
use schedlab_sim::{Scheduler, SimError, SimSpec};

/// The loader, which is built with the tests.
const LOADER: &str = env!("CARGO_BIN_EXE_test-loader");

fn spec(object: &str, work: &str) -> SimSpec {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/objects");
    let folder = folder.canonicalize().unwrap();
    let command = format!("exec:{} {}/{object}.bpf.o {work}", LOADER, folder.display());
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
    let expected =
        "(chosen 7 filled 77 prepared 6 calls 2 mask 1 1 own 1), in ops.running at loaded.bpf.c:";
    assert!(message.contains(expected), "{message}");
    // Each run has its own objects of the kernel, and the same bytes.
    let again = attempt("loaded", work).unwrap();
    let json = |result: &RunResult| {
        let mut text = Vec::new();
        export::json::write(std::slice::from_ref(result), &mut text).unwrap();
        text
    };
    assert_eq!(json(&result), json(&again));
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
