//! Random scenarios under every policy that comes with the program: each run ends well, keeps every
//! invariant, and gives the same bytes again, in a thread beside others, too.
//!
//! SCHEDLAB_PROPERTY_CASES and SCHEDLAB_PROPERTY_SEED choose how many and which. Scenarios that failed
//! once stand in `properties.seeds` and are tried first.

#[path = "support/chosen.rs"]
mod chosen;
#[path = "support/example.rs"]
mod example;
#[path = "support/case.rs"]
mod random;
mod support;
#[path = "support/run.rs"]
mod virtual_kernel;

use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use random::{Case, case};
use schedlab_abi::NativeObject;
use schedlab_engine::ExitKind;
use virtual_kernel::{Bytes, checkers, run, violations};

/// Runs a case; the events as bytes, or what is wrong.
fn events(case: &Case, object: &Arc<NativeObject>) -> Result<Vec<u8>, String> {
    let recorder = (checkers(case.cpus, 0), Bytes::default());
    let end = run(object, case.scenario(), recorder);
    if let Some(failure) = end.failure {
        return Err(failure.to_string());
    }
    if end.exit.kind != ExitKind::Done {
        return Err(format!("{:?}", end.exit));
    }
    if !end.unfinished.is_empty() {
        return Err(format!("unfinished: {:?}", end.unfinished));
    }
    if end.makespan.is_none_or(|last| last > end.end) {
        return Err(format!(
            "ends at {:?}, its last task at {:?}",
            end.end, end.makespan
        ));
    }
    let (checkers, bytes) = end.recorder;
    match violations(checkers) {
        found if found.is_empty() => Ok(bytes.0),
        found => Err(found),
    }
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig {
        cases: random::number("SCHEDLAB_PROPERTY_CASES").unwrap_or(cases),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/properties.seeds",
        ))),
        max_shrink_iters: 200,
        ..random::config()
    })
}

/// Runs a policy in random scenarios.
fn keeps_the_invariants_and_repeats_to_the_byte(name: &str, object: &Arc<NativeObject>) {
    println!("{name}");
    let result = runner(100).run(&case(), |case| {
        let first = events(&case, object).map_err(TestCaseError::fail)?;
        // Again, beside another run of the same and this thread's own third.
        let (second, third) = thread::scope(|scope| {
            let beside = scope.spawn(|| events(&case, object));
            let here = events(&case, object);
            (here, beside.join().expect("a run does not panic"))
        });
        prop_assert!(Ok(&first) == second.as_ref(), "the second run differs");
        prop_assert!(
            Ok(&first) == third.as_ref(),
            "the run in another thread differs"
        );
        Ok(())
    });
    if let Err(error) = result {
        panic!("{name}: {error}");
    }
}

#[test]
fn every_policy_keeps_the_invariants_and_repeats_to_the_byte() {
    for policy in chosen::policies() {
        keeps_the_invariants_and_repeats_to_the_byte(policy.name, &policy.object());
    }
}

/// The scheduler that CONTRIBUTING.md walks through, as a reader would type it in.
#[test]
fn the_example_for_contributors_does_too() {
    let folder = tempfile::tempdir().unwrap();
    let (name, source) = example::of_contributing();
    let path = folder.path().join(&name);
    std::fs::write(&path, &source).unwrap();
    let object = schedlab_policies::compile(&path).unwrap_or_else(|error| panic!("{error}"));
    let doc = schedlab_policies::PolicyDoc::parse(&source);
    assert_eq!(doc.missing(), Vec::<&str>::new());
    let names: Vec<_> = object.options().iter().map(|one| &one.name).collect();
    assert_eq!(names, ["slice_us", "patience"]);
    assert!(object.options().iter().all(|option| option.doc.is_some()));
    keeps_the_invariants_and_repeats_to_the_byte(&name, &object);
}
