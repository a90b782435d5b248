//! Every point of the feature tree on a random scenario of its own: it ends well and keeps every invariant.
//!
//! SCHEDLAB_PROPERTY_SEED chooses the scenarios.

#[path = "../../sim/tests/support/case.rs"]
mod random;
#[path = "../../sim/tests/support/mod.rs"]
mod support;
#[path = "../../sim/tests/support/run.rs"]
mod virtual_kernel;

use std::num::NonZeroUsize;

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use random::{Case, case};
use schedlab_engine::ExitKind;
use schedlab_sim::{Scheduler, batch};
use schedlab_sweep::Space;
use virtual_kernel::{checkers, run_with, violations};

/// The fault of a run of the case.
fn wrong(
    object: &std::sync::Arc<schedlab_abi::NativeObject>,
    options: &str,
    case: &Case,
) -> Option<String> {
    let end = run_with(object, options, case.scenario(), checkers(case.cpus, 0));
    if let Some(failure) = end.failure {
        return Some(failure.to_string());
    }
    if end.exit.kind != ExitKind::Done {
        return Some(format!("{:?}", end.exit));
    }
    if !end.unfinished.is_empty() {
        return Some(format!("unfinished: {:?}", end.unfinished));
    }
    Some(violations(end.recorder)).filter(|found| !found.is_empty())
}

#[test]
fn every_scheduler_of_the_tree_keeps_the_invariants() {
    let space = Space::of("feature", &[]).unwrap();
    let object = schedlab_policies::find("feature").unwrap().object();
    let mut runner = TestRunner::new(random::config());
    let strategy = case();
    let points: Vec<(u64, Case)> = (0..space.len())
        .map(|point| {
            let tree = strategy.new_tree(&mut runner).expect("cases can be drawn");
            (point, tree.current())
        })
        .collect();
    assert_eq!(points.len(), 5_832);
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let result = batch::run_all(
        &points,
        threads,
        |(point, case)| {
            let options = Scheduler::options_text(&space.scheduler(*point).options);
            match wrong(&object, &options, case) {
                None => Ok(()),
                Some(what) => Err(format!("feature:{options}: {what}\n{case:?}")),
            }
        },
        |_| (),
    );
    if let Err(error) = result {
        panic!("{error}");
    }
}
