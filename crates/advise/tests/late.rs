//! Work that shows late: a workload that first makes its tasks has done none after a quarter of its time.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

use schedlab_advise::{Ask, Limit, advise};
use schedlab_sim::{Scheduler, SimSpec, parse_schedulers};

#[test]
fn no_scheduler_is_dropped_before_it_has_worked() {
    let ask = Ask {
        spec: SimSpec {
            cpus: Some(4),
            ..SimSpec::new(
                "hackbench:groups=1,fds=4,loops=50",
                Scheduler::parse("kernel"),
                "laptop",
            )
        },
        file: None,
        schedulers: parse_schedulers("all").unwrap(),
        limit: Limit::Runs(100),
        threads: NonZeroUsize::MIN,
    };
    let advice = advise(&ask, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let dropped = advice
        .tried
        .iter()
        .filter(|one| one.runs == 0 && one.failed.is_none());
    let dropped: Vec<&str> = dropped.map(|one| one.scheduler.as_str()).collect();
    assert_eq!(dropped, [] as [&str; 0]);
    assert!(advice.tried.len() > 10, "{}", advice.tried.len());
}
