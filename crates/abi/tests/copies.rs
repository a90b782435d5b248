//! Every run has its own copy of a policy's globals and maps.

mod common;

use common::{Bench, object};
use schedlab_engine::policy::OpCall;

#[test]
fn ten_thousand_copies_one_after_another_begin_afresh() {
    let object = object("copies");
    for number in 0..10_000 {
        let mut bench = Bench::of(&object, "");
        assert_eq!(bench.simply(OpCall::Init), Ok(0), "copy {number}");
        assert_eq!(bench.global("sum"), 0x1234, "copy {number}");
        assert_eq!(bench.global("initialized"), 0x1235, "copy {number}");
    }
}

#[test]
fn five_hundred_copies_at_once_do_not_see_each_other() {
    let object = object("copies");
    let mut benches: Vec<Bench> = (0..500)
        .map(|number| Bench::of(&object, &format!("step={number}")))
        .collect();
    for round in 0..2 {
        for (number, bench) in benches.iter_mut().enumerate() {
            assert_eq!(bench.simply(OpCall::Init), Ok(0));
            let number = number as u64;
            assert_eq!(bench.global("sum"), 0x1234 + 3 * number * round);
        }
    }
}

#[test]
fn copies_on_several_threads_do_not_see_each_other() {
    let object = object("copies");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let mut bench = Bench::of(&object, "");
                    assert_eq!(bench.simply(OpCall::Init), Ok(0));
                    assert_eq!(bench.global("sum"), 0x1234);
                }
            });
        }
    });
}
