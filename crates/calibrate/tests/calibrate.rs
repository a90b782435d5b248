//! The calibration on the machine that runs the tests, whatever that is.

use std::time::Duration;

use schedlab_calibrate::calibrate;
use schedlab_machine::{Machine, SourceKind};

#[test]
fn the_profile_loads_and_tells_what_was_measured() {
    let mut told = Vec::new();
    let report = calibrate(Duration::from_millis(300), |what| {
        told.push(what.to_owned())
    });
    assert!(!told.is_empty());

    let text = report.to_toml();
    let machine = Machine::from_toml("this-machine.toml", &text)
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(machine, report.machine);

    let kind = |field: &str| {
        let known = machine.provenance().iter().find(|one| one.field == field);
        known.unwrap_or_else(|| panic!("no {field}")).kind
    };
    for field in ["memory.hit_ps", "paths.syscall_ns", "paths.pipe_ns"] {
        assert_eq!(kind(field), SourceKind::Measured, "{field}\n{text}");
    }
    // A difference that other programs' noise can hide; then a note says so.
    let is_measured = kind("memory.atomic_ps") == SourceKind::Measured;
    let is_told = text.contains("# - memory.atomic_ps stays a guess: ");
    assert!(is_measured != is_told, "{text}");
    assert_eq!(kind("paths.irq_ns"), SourceKind::Guess);
    // Bounds that no machine of today breaks, even while other programs keep it busy: a mistaken unit
    // would.
    assert!(
        (10_000..100_000_000).contains(&machine.memory.miss_ps),
        "{text}"
    );
    assert!((500..500_000).contains(&machine.memory.hit_ps), "{text}");
    assert!((10..100_000).contains(&machine.paths.syscall_ns), "{text}");
}
