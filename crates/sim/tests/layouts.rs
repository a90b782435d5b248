//! Layouts of the task structure in whole runs: where the bus transactions are, and what they cost.

use schedlab_report::RunResult;
use schedlab_sim::{Scheduler, SimSpec};

/// Chat with 200 tasks on 4 CPUs whose caches hold the scheduling fields of 64 in the plain layout.
fn run(layout: Option<&str>) -> RunResult {
    let spec = SimSpec {
        task_layout: layout.map(|text| text.parse().unwrap()),
        check: true,
        ..SimSpec::new(
            "chat:rooms=10,messages=60",
            Scheduler::parse("dss"),
            "ppro-200x4:quiet",
        )
    };
    let result = schedlab_sim::run(&spec, None).unwrap();
    assert!(result.is_done(), "{layout:?}: {:?}", result.message);
    result
}

fn measure(result: &RunResult, name: &str) -> f64 {
    result.measures.number(name).unwrap()
}

/// Bus transactions by the first byte of their lines in the page.
fn by_offset(result: &RunResult) -> Vec<(u64, u64)> {
    let mut histograms = result.histograms.iter();
    let (_, buckets) = histograms
        .find(|(name, _)| name == "cache.bus_transactions_by_offset")
        .unwrap();
    assert!(buckets.iter().all(|&(low, high, _)| high == low + 31));
    buckets
        .iter()
        .map(|&(low, _, count)| (low, count))
        .collect()
}

#[test]
fn the_bus_peaks_where_plain_structures_have_their_fields_and_nowhere_else() {
    let plain = run(Some("plain"));
    let all = measure(&plain, "cache.bus_transactions") as u64;
    let transactions = by_offset(&plain);
    assert_eq!(
        transactions.iter().map(|&(_, count)| count).sum::<u64>(),
        all
    );
    let &(peak, most) = transactions
        .iter()
        .max_by_key(|&&(_, count)| count)
        .unwrap();
    assert_eq!(peak, 0x20);
    assert!(most * 2 > all, "{most} of {all}");
    for layout in ["coloured:32", "separate"] {
        let other = run(Some(layout));
        let here = by_offset(&other)
            .into_iter()
            .find(|&(offset, _)| offset == 0x20);
        let here = here.map_or(0, |(_, count)| count);
        assert!(here * 10 < most, "{layout}: {here} against {most}");
        let transactions = measure(&other, "cache.bus_transactions") as u64;
        assert!(
            transactions * 3 < all * 2,
            "{layout}: {transactions} against {all}"
        );
    }
    // Four colours are four smaller peaks.
    let four = run(Some("coloured:4"));
    let all = measure(&four, "cache.bus_transactions") as u64;
    let four = by_offset(&four);
    for offset in [0x20, 0x40, 0x60, 0x80] {
        let found = four.iter().find(|&&(place, _)| place == offset).unwrap().1;
        assert!(
            found * 8 > all && found * 4 < most,
            "{offset:#x}: {found} of {all}"
        );
    }
}

#[test]
fn every_cure_shortens_the_time_that_the_lock_is_held() {
    let hold = |layout| measure(&run(Some(layout)), "lock.runqueue.hold_ns_mean");
    let plain = hold("plain");
    for layout in ["plain+prefetch", "coloured:32", "separate"] {
        let shorter = hold(layout);
        assert!(shorter < 0.9 * plain, "{layout}: {shorter} against {plain}");
    }
}

#[test]
fn the_machines_own_layout_is_the_default_and_counts_nothing_more() {
    let (own, asked) = (run(None), run(Some("plain")));
    assert_eq!(own.task_layout.as_deref(), Some("plain"));
    assert_eq!(asked.task_layout, own.task_layout);
    assert_eq!(own.measures, asked.measures);
    assert_eq!(own.histograms.len(), 1);
    assert_eq!(own.histograms[0], asked.histograms[0]);
    assert!(
        asked.replay.contains(" --task-layout plain"),
        "{}",
        asked.replay
    );
    assert!(!own.replay.contains("layout"), "{}", own.replay);
}
