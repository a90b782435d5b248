//! Checks the effect of each layout of the task structure on the cache against numbers computed by hand.
//!
//! `ppro-200x4` has a cache of 512 KB with 4 ways and lines of 32 bytes: 4,096 sets, and a way of 128 KB
//! holds 16 task structures of 8 KB. The scheduling fields are one line at offset 0x20 of the structure.

use std::collections::BTreeSet;

use schedlab_machine::{CacheModel, Machine, TaskAddresses};
use schedlab_trace::{CpuId, Instant, TaskId};

const LINE: u64 = 32;
const SETS: u64 = 4_096;
const PAGE: u64 = 4_096;

fn machine(layout: &str) -> Machine {
    let layout = layout.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut machine = Machine::builtin("ppro-200x4").unwrap();
    assert_eq!(machine.memory.cache_bytes, SETS * 4 * LINE);
    machine.memory.hit_ps = 10_000;
    machine.memory.miss_ps = 200_000;
    machine.memory.bus_ps = 0;
    machine.with_layout(layout).unwrap()
}

fn addresses(layout: &str, tasks: u32) -> Vec<u64> {
    let addresses = TaskAddresses::new(&machine(layout));
    (0..tasks).map(|task| addresses.of(TaskId(task))).collect()
}

fn offsets_in_page(layout: &str) -> BTreeSet<u64> {
    let of = |address: u64| address % PAGE;
    addresses(layout, 256).into_iter().map(of).collect()
}

fn sets(layout: &str) -> usize {
    let set = |address: u64| address / LINE % SETS;
    let sets: BTreeSet<u64> = addresses(layout, 256).into_iter().map(set).collect();
    sets.len()
}

#[test]
fn the_fields_lie_where_the_layout_puts_them() {
    assert_eq!(offsets_in_page("plain"), BTreeSet::from([0x20]));
    assert_eq!(
        offsets_in_page("coloured:4"),
        BTreeSet::from([0x20, 0x40, 0x60, 0x80])
    );
    // 256 structures are 16 ways: the 17th colour is not reached.
    let sixteen: BTreeSet<u64> = (1..=16).map(|line| line * LINE).collect();
    assert_eq!(offsets_in_page("coloured:32"), sixteen);
    // Side by side, 128 a page.
    let all: BTreeSet<u64> = (0..PAGE / LINE).map(|line| line * LINE).collect();
    assert_eq!(offsets_in_page("separate"), all);
    assert_eq!(
        addresses("separate", 3)
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .collect::<Vec<_>>(),
        [LINE, LINE]
    );
    // Prefetching moves nothing.
    assert_eq!(addresses("plain+prefetch", 256), addresses("plain", 256));
}

#[test]
fn colours_and_separate_fields_use_more_sets() {
    assert_eq!(sets("plain"), 16);
    assert_eq!(sets("coloured:4"), 64);
    assert_eq!(sets("coloured:32"), 256);
    assert_eq!(sets("separate"), 256);
}

/// Fields of more than a line get lines of their own, too.
#[test]
fn separate_fields_share_no_line() {
    let layout = "separate".parse().unwrap();
    let mut machine = Machine::builtin("laptop").unwrap();
    for (examine_bytes, distance) in [(8, 64), (64, 64), (65, 128), (128, 128)] {
        machine.task_layout.examine_bytes = examine_bytes;
        let addresses = TaskAddresses::new(&machine.clone().with_layout(layout).unwrap());
        assert_eq!(addresses.of(TaskId(0)) % 64, 0);
        let found = addresses.of(TaskId(7)) - addresses.of(TaskId(0));
        assert_eq!(found, 7 * distance, "{examine_bytes}");
    }
}

/// Misses of the first and of the second walk over `tasks` tasks, and where the second one's were:
/// `(offset in the page, bus transactions)`.
fn walks(layout: &str, tasks: u32) -> ([u64; 2], Vec<(u64, u64)>) {
    let machine = machine(layout);
    let mut cache = CacheModel::new(&machine);
    let addresses = TaskAddresses::new(&machine);
    let mut misses = [0; 2];
    for misses in &mut misses {
        let before = cache.stats(CpuId(0)).misses();
        cache.count_by_offset();
        for task in 0..tasks {
            cache.touch(CpuId(0), Instant::ZERO, addresses.of(TaskId(task)), false);
        }
        *misses = cache.stats(CpuId(0)).misses() - before;
    }
    let counts = cache.by_offset().iter().enumerate();
    let places = counts
        .filter(|(_, counts)| counts.bus_transactions > 0)
        .map(|(line, counts)| (line as u64 * LINE, counts.bus_transactions))
        .collect();
    (misses, places)
}

#[test]
fn the_peak_of_the_plain_layout_is_gone_where_the_fields_spread() {
    // 16 sets × 4 ways hold 64: 16 of 256 meet in each set, and under LRU all miss on every walk.
    assert_eq!(walks("plain", 64), ([64, 0], vec![]));
    assert_eq!(walks("plain", 256), ([256, 256], vec![(0x20, 256)]));
    // 80 are 5 a set in a set of 4.
    assert_eq!(walks("plain", 80), ([80, 80], vec![(0x20, 80)]));
    // 64 sets × 4 ways hold 256; 320 are 5 a set, 80 of each colour.
    assert_eq!(walks("coloured:4", 256), ([256, 0], vec![]));
    assert_eq!(
        walks("coloured:4", 320),
        (
            [320, 320],
            vec![(0x20, 80), (0x40, 80), (0x60, 80), (0x80, 80)]
        )
    );
    assert_eq!(walks("coloured:32", 256), ([256, 0], vec![]));
    // Side by side the fields use the whole cache: 4,096 sets × 4 ways.
    assert_eq!(walks("separate", 16_384), ([16_384, 0], vec![]));
    // Prefetching does not change what is in the cache.
    assert_eq!(walks("plain+prefetch", 256), walks("plain", 256));
}

#[test]
fn a_prefetched_line_costs_what_is_left_of_its_way() {
    let ns = Instant::from_ns;
    // 200 ns from memory. Asked for 50, 199 and 1,000 ns before: 150, then the 10 of a hit.
    for (now, cost_ps) in [
        (1_000, 200_000),
        (1_050, 150_000),
        (1_199, 10_000),
        (2_000, 10_000),
    ] {
        let mut cache = CacheModel::new(&machine("plain+prefetch"));
        let fetch = cache.touch_prefetched(CpuId(0), ns(1_000), ns(now), 0x2000, 32);
        assert_eq!(fetch, cost_ps, "{now}");
        assert_eq!(cache.stats(CpuId(0)).misses(), 1, "{now}");
        assert_eq!(cache.wait_ps(CpuId(0)), cost_ps - 10_000, "{now}");
        let again = cache.touch_prefetched(CpuId(0), ns(1_000), ns(now), 0x2000, 32);
        assert_eq!(again, 10_000);
        assert_eq!(cache.stats(CpuId(0)).misses(), 1, "{now}");
    }
    // Two lines: 400 ns, and two hits at least.
    for (now, cost_ps) in [(0, 400_000), (300, 100_000), (900, 20_000)] {
        let mut cache = CacheModel::new(&machine("plain+prefetch"));
        let fetch = cache.touch_prefetched(CpuId(0), ns(0), ns(now), 0x2000, 33);
        assert_eq!(fetch, cost_ps, "{now}");
        assert_eq!(cache.wait_ps(CpuId(0)), cost_ps - 20_000, "{now}");
    }
}
