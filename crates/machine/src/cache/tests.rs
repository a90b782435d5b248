//! Every rule against a case computed by hand, and the whole against a slow model that follows the
//! rules word by word: it visits every cache on a write and brings in foreign lines one by one.

use std::collections::BTreeSet;

use proptest::prelude::*;
use schedlab_trace::TaskId;

use super::*;
use crate::{TaskAddresses, Topology};

const HIT: u64 = 10;
const LLC: u64 = 100;
const MEMORY: u64 = 1_000;
const TRANSFER: [u64; 3] = [200, 2_000, 3_000];

const T0: Instant = Instant::ZERO;

/// 2 nodes × 2 last-level caches × 2 cores × 2 threads; 4 sets of 2 ways.
fn machine() -> Machine {
    let mut machine = Machine::builtin("server-2x96x2").unwrap();
    machine.topology = Topology::new(2, 2, 2, 2);
    machine.memory.line_bytes = 64;
    machine.memory.cache_bytes = 64 * 8;
    machine.memory.ways = 2;
    machine.memory.hit_ps = HIT;
    machine.memory.llc_hit_ps = LLC;
    machine.memory.miss_ps = MEMORY;
    machine.memory.transfer_llc_ps = TRANSFER[0];
    machine.memory.transfer_node_ps = TRANSFER[1];
    machine.memory.transfer_remote_ps = TRANSFER[2];
    machine.memory.bus_ps = 0;
    machine.memory.evict_lines_per_ms = 1_000;
    machine
}

/// As [`machine`], but one node with two processor buses, each as far from the other as a node.
fn two_buses() -> Machine {
    let mut machine = machine();
    machine.topology = Topology::new(1, 4, 2, 2);
    machine.memory.llcs_per_bus = Some(2);
    machine
}

/// The cost of each access of `(cpu, line, write)`, one after another.
fn costs(accesses: &[(u32, u64, bool)]) -> Vec<u64> {
    let mut cache = CacheModel::new(&machine());
    accesses
        .iter()
        .map(|&(cpu, line, write)| cache.touch(CpuId(cpu), T0, line * 64, write))
        .collect()
}

const READ: bool = false;
const WRITE: bool = true;

#[test]
fn the_first_access_goes_to_memory_and_the_second_hits() {
    assert_eq!(costs(&[(0, 5, READ), (0, 5, READ)]), [MEMORY, HIT]);
    assert_eq!(costs(&[(0, 5, WRITE), (0, 5, WRITE)]), [MEMORY, HIT]);
}

#[test]
fn a_line_that_nobody_else_has_is_written_silently() {
    assert_eq!(costs(&[(0, 5, READ), (0, 5, WRITE)]), [MEMORY, HIT]);
}

#[test]
fn hardware_threads_of_a_core_share_its_cache() {
    // CPU 8 is the second thread of core 0.
    assert_eq!(costs(&[(0, 5, WRITE), (8, 5, WRITE)]), [MEMORY, HIT]);
}

#[test]
fn a_modified_line_costs_its_distance() {
    // CPUs 0 and 1 share a last-level cache, 2 is in the same node, 4 in the other one.
    for (reader, distance) in [(1, 0), (2, 1), (4, 2)] {
        for write in [READ, WRITE] {
            assert_eq!(
                costs(&[(0, 5, WRITE), (reader, 5, write)]),
                [MEMORY, TRANSFER[distance]]
            );
        }
    }
}

/// The usual case is that both caches used the line last of its set; a transfer is the same in the others.
#[test]
fn a_transfer_does_not_depend_on_what_its_sets_used_last() {
    // 0x40, 0x44 and 0x48 have their place in the same set.
    for (others_of_owner, others_of_mine) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        for bus_ps in [0, 50] {
            let mut machine = machine();
            machine.memory.bus_ps = bus_ps;
            let mut cache = CacheModel::new(&machine);
            let mut clock = 0;
            let mut write = |cpu, line: u64| {
                clock += 1_000;
                let before = *cache.stats(CpuId(cpu));
                let cost = cache.touch(CpuId(cpu), Instant::from_ns(clock), line * 64, WRITE);
                let after = cache.stats(CpuId(cpu));
                let more = |of: fn(&CacheStats) -> u64| of(after) - of(&before);
                (
                    cost,
                    more(|stats| stats.transfers),
                    more(|stats| stats.bus_transfers),
                    more(|stats| stats.invalidations),
                    more(|stats| stats.misses_coherence),
                )
            };
            // CPU 2 is below another last-level cache than CPU 0.
            assert_eq!(write(2, 0x40).0, MEMORY);
            assert_eq!(write(0, 0x40), (TRANSFER[1], 1, 1, 1, 0));
            if others_of_owner {
                write(0, 0x44);
            }
            if others_of_mine {
                write(2, 0x48);
            }
            assert_eq!(write(2, 0x40), (TRANSFER[1], 1, 1, 1, 1));
            assert_eq!(write(2, 0x40), (HIT, 0, 0, 0, 0));
            // An owner that has lost the line serves no miss.
            write(2, 0x44);
            write(2, 0x48);
            assert_eq!(write(0, 0x40), (MEMORY, 0, 0, 0, 1));
        }
    }
}

#[test]
fn another_bus_is_as_far_as_another_node() {
    // CPUs 0 and 1 share a last-level cache, 2 is on the same bus, 4 on the other one.
    for (reader, cost) in [(1, TRANSFER[0]), (2, TRANSFER[1]), (4, TRANSFER[2])] {
        let mut cache = CacheModel::new(&two_buses());
        cache.touch(CpuId(0), T0, 0, WRITE);
        assert_eq!(cache.touch(CpuId(reader), T0, 0, READ), cost);
        // The other has a copy now: making the line one's own again goes as far.
        assert_eq!(cache.touch(CpuId(0), T0, 0, WRITE), cost);
    }
    let mut one_bus = two_buses();
    one_bus.memory.llcs_per_bus = None;
    let mut cache = CacheModel::new(&one_bus);
    cache.touch(CpuId(0), T0, 0, WRITE);
    assert_eq!(cache.touch(CpuId(4), T0, 0, READ), TRANSFER[1]);
}

#[test]
fn a_clean_line_comes_from_the_shared_cache_or_from_memory() {
    assert_eq!(costs(&[(0, 5, READ), (1, 5, READ)]), [MEMORY, LLC]);
    assert_eq!(costs(&[(0, 5, READ), (2, 5, READ)]), [MEMORY, MEMORY]);
    // After a transfer the line is clean and in both last-level caches.
    assert_eq!(
        costs(&[(0, 5, WRITE), (2, 5, READ), (3, 5, READ)]),
        [MEMORY, TRANSFER[1], LLC]
    );
}

#[test]
fn writing_a_shared_line_pays_for_the_farthest_copy() {
    for (reader, distance) in [(1, 0), (2, 1), (4, 2)] {
        let costs = costs(&[(0, 5, READ), (reader, 5, READ), (0, 5, WRITE)]);
        assert_eq!(costs[2], TRANSFER[distance]);
    }
    // A write that misses: the data from the last-level cache, the invalidation from farther away.
    let costs = costs(&[(0, 5, READ), (4, 5, READ), (1, 5, WRITE)]);
    assert_eq!(costs[2], TRANSFER[2]);
}

#[test]
fn a_write_makes_other_copies_worthless() {
    let costs = costs(&[(0, 5, READ), (1, 5, READ), (1, 5, WRITE), (0, 5, READ)]);
    assert_eq!(costs, [MEMORY, LLC, TRANSFER[0], TRANSFER[0]]);
}

#[test]
fn without_a_shared_cache_memory_serves_what_nobody_wrote() {
    let mut machine = machine();
    machine.memory.llc_hit_ps = 0;
    let mut cache = CacheModel::new(&machine);
    cache.touch(CpuId(0), T0, 0, READ);
    assert_eq!(cache.touch(CpuId(1), T0, 0, READ), MEMORY);
    assert_eq!(cache.stats(CpuId(1)).from_llc, 0);
    assert_eq!(cache.stats(CpuId(1)).bus_transactions(), 1);
}

#[test]
fn writes_that_tell_others_are_counted() {
    let mut cache = CacheModel::new(&machine());
    let mut counts = |cpu: u32, line: u64, write: bool| {
        let before = *cache.stats(CpuId(cpu));
        cache.touch(CpuId(cpu), T0, line * 64, write);
        let after = cache.stats(CpuId(cpu));
        (
            after.upgrades - before.upgrades,
            after.invalidations - before.invalidations,
        )
    };
    // A line of one's own is written silently.
    assert_eq!(counts(0, 0x40, READ), (0, 0));
    assert_eq!(counts(0, 0x40, WRITE), (0, 0));
    // The transfer of a modified line takes it from its owner.
    assert_eq!(counts(1, 0x40, WRITE), (0, 1));
    // A copy that others may have, too: the one that its set used last, and one used before another.
    assert_eq!(counts(0, 0x40, READ), (0, 0));
    assert_eq!(counts(0, 0x40, WRITE), (1, 1));
    assert_eq!(counts(1, 0x40, READ), (0, 0));
    assert_eq!(counts(1, 0x44, READ), (0, 0));
    assert_eq!(counts(1, 0x40, WRITE), (1, 1));
    // A write that misses a line that another has, not modified.
    assert_eq!(counts(0, 0x50, READ), (0, 0));
    assert_eq!(counts(1, 0x50, WRITE), (0, 1));
}

#[test]
fn the_least_recently_used_line_leaves_a_full_set() {
    // Lines 0x40, 0x44, 0x48 fall into one set of two ways.
    let costs = costs(&[
        (0, 0x40, READ),
        (0, 0x44, READ),
        (0, 0x40, READ),
        (0, 0x48, READ), // drops 0x44
        (0, 0x40, READ),
        (0, 0x44, READ), // drops 0x48; the last-level cache still has it
    ]);
    assert_eq!(costs, [MEMORY, MEMORY, HIT, MEMORY, HIT, LLC]);
}

#[test]
fn a_modified_line_that_was_evicted_is_no_transfer() {
    let costs = costs(&[
        (0, 0x40, WRITE),
        (0, 0x44, READ),
        (0, 0x48, READ), // drops 0x40
        (1, 0x40, READ),
        (1, 0x40, WRITE), // exclusive: no other cache has it
    ]);
    assert_eq!(costs[3..], [LLC, HIT]);
}

#[test]
fn an_application_evicts_a_line_once_it_filled_the_ways_of_its_set() {
    let mut cache = CacheModel::new(&machine());
    let cpu = CpuId(0);
    let of_cpu = cache.cache_of(cpu);
    let cost = |cache: &mut CacheModel, line: u64| cache.touch(cpu, T0, line * 64, READ);
    // 1,000 lines a ms: one each µs, into sets 0, 1, 2, 3, 0, ...
    assert_eq!(cost(&mut cache, 0x40), MEMORY);
    assert_eq!(cost(&mut cache, 0x43), MEMORY);
    cache.evict(of_cpu, 4_999); // 4 lines: every set took in one, two ways keep the line
    assert_eq!(cost(&mut cache, 0x43), HIT);
    cache.evict(of_cpu, 1); // the 5th, into set 0: its second since the line's last use
    assert_eq!(cost(&mut cache, 0x40), LLC);
    assert_eq!(cost(&mut cache, 0x43), HIT);
    cache.evict(of_cpu, 1_000_000);
    assert_eq!(cost(&mut cache, 0x43), LLC);
    // Other cores are not touched by it.
    cache.touch(CpuId(1), T0, 0x43 * 64, READ);
    cache.evict(of_cpu, 1_000_000);
    assert_eq!(cache.touch(CpuId(1), T0, 0x43 * 64, READ), HIT);
}

#[test]
fn only_what_leaves_the_last_level_cache_is_on_the_bus() {
    let mut machine = machine();
    machine.memory.bus_ps = 50;
    let mut cache = CacheModel::new(&machine);
    let mut wait = |cpu: u32, line: u64, write: bool| {
        let before = cache.stats(CpuId(cpu)).bus_wait_ps;
        cache.touch(CpuId(cpu), T0, line * 64, write);
        cache.stats(CpuId(cpu)).bus_wait_ps - before
    };
    assert_eq!(wait(0, 5, WRITE), 0); // memory: slot 0
    assert_eq!(wait(0, 5, WRITE), 0); // hit
    assert_eq!(wait(1, 5, WRITE), 0); // transfer within the last-level cache
    assert_eq!(wait(2, 5, WRITE), 50); // transfer to another one: slot 1
    assert_eq!(wait(2, 6, READ), 100); // memory: slot 2
    assert_eq!(wait(4, 7, READ), 0); // memory of the other node, which has a bus of its own
    let of = |cpu| cache.stats(CpuId(cpu)).bus_transactions();
    assert_eq!([of(0), of(1), of(2), of(4)], [1, 0, 2, 1]);
    // All that is beyond a hit is waited: the way and the wait for a slot.
    assert_eq!(
        cache.wait_ps(CpuId(2)),
        TRANSFER[1] + MEMORY - 2 * HIT + 150
    );
}

#[test]
fn a_modified_line_that_was_evicted_crosses_the_bus_twice() {
    let waits = |written_pct| {
        let mut machine = machine();
        machine.memory.llc_hit_ps = 0;
        machine.memory.bus_ps = 50;
        machine.memory.written_pct = written_pct;
        let mut cache = CacheModel::new(&machine);
        let of_cpu = cache.cache_of(CpuId(0));
        let mut wait = |write| {
            let before = cache.stats(CpuId(0)).bus_wait_ps;
            cache.touch(CpuId(0), T0, 5 * 64, write);
            cache.evict(of_cpu, 1_000_000);
            cache.stats(CpuId(0)).bus_wait_ps - before
        };
        let waits = [WRITE, READ, READ].map(&mut wait);
        (waits, cache.stats(CpuId(0)).write_backs)
    };
    // One slot for each time that memory serves it.
    assert_eq!(waits(None), ([0, 50, 100], 1));
    // One more for the write-back at the second time, after the access's own; then it is clean.
    assert_eq!(waits(Some(0)), ([0, 50, 150], 1));
}

#[test]
fn each_bus_carries_its_own_and_both_what_crosses() {
    let mut machine = two_buses();
    machine.memory.bus_ps = 500;
    let mut cache = CacheModel::new(&machine);
    let mut cost = |cpu, line: u64, write| cache.touch(CpuId(cpu), T0, line * 64, write);
    // From memory: CPUs 0 and 2 are on the same bus, 4 and 6 on the other one.
    assert_eq!(cost(0, 0, WRITE), MEMORY);
    assert_eq!(cost(4, 1, WRITE), MEMORY);
    assert_eq!(cost(2, 2, READ), MEMORY + 500);
    // Within a bus: on that one only.
    assert_eq!(cost(2, 0, READ), TRANSFER[1] + 1_000);
    assert_eq!(cost(6, 3, READ), MEMORY + 500);
    // From the other bus: on both, and the busier one decides.
    assert_eq!(cost(0, 1, READ), TRANSFER[2] + 1_500);
    assert_eq!(cost(2, 4, READ), MEMORY + 2_000);
    assert_eq!(cost(6, 5, READ), MEMORY + 1_500);
}

#[test]
fn a_range_touches_each_of_its_lines_once() {
    let mut cache = CacheModel::new(&machine());
    let cost = cache.touch_range(CpuId(0), T0, 0x1000 + 60, 8, READ);
    assert_eq!(cost, 2 * MEMORY);
    assert_eq!(cache.stats(CpuId(0)).accesses(), 2);
    let cost = cache.touch_range(CpuId(0), T0, 0x1000, 128, READ);
    assert_eq!(cost, 2 * HIT);
    assert_eq!(cache.stats(CpuId(0)).hits, 2);
}

#[test]
fn a_line_is_the_only_one_if_all_bytes_lie_in_it() {
    let mut cache = CacheModel::new(&machine());
    let line = cache.line_at(0x1000);
    for (address, bytes) in [(0x1000, 64), (0x1000, 0), (0x103f, 1), (0x1020, 32)] {
        assert_eq!(cache.only_line(address, bytes), Some(line), "{address:#x}");
    }
    for (address, bytes) in [(0x1000, 65), (0x103f, 2), (0x1020, 128)] {
        assert_eq!(cache.only_line(address, bytes), None, "{address:#x}");
    }
    assert_ne!(cache.only_line(0x1040, 64), Some(line));
}

#[test]
fn of_prefetched_lines_what_is_left_is_waited() {
    let mut cache = CacheModel::new(&machine());
    let asked = Instant::from_ns(5);
    let mut cost = |now_ns, address| {
        let before = cache.wait_ps(CpuId(0));
        let now = Instant::from_ns(now_ns);
        let cost = cache.touch_prefetched(CpuId(0), asked, now, address, 128);
        (cost, cache.wait_ps(CpuId(0)) - before)
    };
    // Two lines from memory, needed at once, after one of them has come, and after both have.
    assert_eq!(cost(5, 0x1000), (2 * MEMORY, 2 * (MEMORY - HIT)));
    assert_eq!(cost(6, 0x2000), (MEMORY, MEMORY - 2 * HIT));
    assert_eq!(cost(9, 0x3000), (2 * HIT, 0));
    assert_eq!(cost(5, 0x3000), (2 * HIT, 0));
}

#[test]
fn counts_by_offset_show_where_in_the_page_the_lines_lie() {
    let mut cache = CacheModel::new(&machine());
    cache.touch(CpuId(0), T0, 0x5000, READ);
    assert!(cache.by_offset().is_empty());
    cache.count_by_offset();
    for page in 0..10 {
        cache.touch(CpuId(0), T0, 0x10_0000 + page * 0x1000 + 0x80, READ);
        cache.touch(CpuId(1), T0, 0x10_0000 + page * 0x1000 + 0x80, READ);
    }
    assert_eq!(cache.by_offset().len(), 64);
    let peak = LineCounts {
        misses: 20,
        bus_transactions: 10,
    };
    assert_eq!(cache.by_offset()[2], peak);
    assert_eq!(cache.by_offset()[1], LineCounts::default());
}

/// Misses of the second walk over `tasks` task structures.
fn misses_of_a_walk(machine: &Machine, tasks: u32) -> u64 {
    let mut cache = CacheModel::new(machine);
    let addresses = TaskAddresses::new(machine);
    let mut misses = 0;
    for _ in 0..2 {
        let before = cache.stats(CpuId(0)).misses();
        for task in 0..tasks {
            cache.touch(CpuId(0), T0, addresses.of(TaskId(task)), READ);
        }
        misses = cache.stats(CpuId(0)).misses() - before;
    }
    misses
}

#[test]
fn aligned_task_structures_collide_and_colours_cure_it() {
    // 512 KB, 4 ways, 32-byte lines: a way of 128 KB holds 16 blocks of 8 KB, so 16 sets × 4 ways
    // = 64 structures fit. Of 256, 16 meet in each set: under LRU every one misses on every walk.
    let mut machine = Machine::builtin("ppro-200x4").unwrap();
    assert_eq!(misses_of_a_walk(&machine, 64), 0);
    assert_eq!(misses_of_a_walk(&machine, 256), 256);
    // 4 colours: 64 sets × 4 ways hold exactly 256.
    machine.task_layout.colours = 4;
    assert_eq!(misses_of_a_walk(&machine, 256), 0);
    machine.task_layout.colours = 32;
    assert_eq!(misses_of_a_walk(&machine, 2_048), 0);
    // Not the collisions but the size of the cache ends it.
    assert!(misses_of_a_walk(&machine, 2_049) > 0);
}

#[test]
fn memory_stays_small() {
    let touch_all = |machine: &Machine, tasks: u32, looks: u32| {
        let mut cache = CacheModel::new(machine);
        let addresses = TaskAddresses::new(machine);
        let nr_cpus = machine.topology.nr_cpus() as u32;
        for i in 0..tasks * looks {
            let task = TaskId(i % tasks);
            let cpu = CpuId(i.wrapping_mul(0x9E37_79B9) % nr_cpus);
            let bytes = machine.task_layout.examine_bytes;
            cache.touch_range(cpu, T0, addresses.of(task), bytes, i % 3 == 0);
        }
        cache.memory_bytes()
    };
    let small = Machine::builtin("netfinity-8500r").unwrap();
    let bytes = touch_all(&small, 400, 100);
    assert!(bytes < 4 << 20, "8 CPUs, 400 tasks: {bytes} bytes");
    let large = Machine::builtin("numa-8x64x2").unwrap();
    assert_eq!(large.topology.nr_cpus(), 1_024);
    let bytes = touch_all(&large, 1_000_000, 4);
    assert!(
        bytes < 400 << 20,
        "1,024 CPUs, 1,000,000 tasks: {bytes} bytes"
    );
}

/// Why a line was not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Miss {
    First,
    Coherence,
    Absent,
}

/// The reason for which an access left the last-level cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OnBus {
    Memory,
    Transfer,
    Invalidation,
}

/// The causes of a single access between two states of the counts.
fn causes(before: &CacheStats, after: &CacheStats) -> (Option<Miss>, Option<OnBus>) {
    let more = |of: fn(&CacheStats) -> u64| of(after) - of(before);
    let miss = match (
        more(|stats| stats.misses()),
        more(|stats| stats.misses_first),
        more(|stats| stats.misses_coherence),
    ) {
        (0, 0, 0) => None,
        (1, 1, 0) => Some(Miss::First),
        (1, 0, 1) => Some(Miss::Coherence),
        (1, 0, 0) => Some(Miss::Absent),
        impossible => panic!("{impossible:?}"),
    };
    let bus = match (
        more(|stats| stats.bus_transactions()),
        more(|stats| stats.bus_transfers),
        more(|stats| stats.bus_invalidations),
    ) {
        (0, 0, 0) => None,
        (1, 0, 0) => Some(OnBus::Memory),
        (1, 1, 0) => Some(OnBus::Transfer),
        (1, 0, 1) => Some(OnBus::Invalidation),
        impossible => panic!("{impossible:?}"),
    };
    (miss, bus)
}

#[test]
fn causes_of_misses_and_of_bus_transactions() {
    let mut cache = CacheModel::new(&machine());
    let mut cause = |cpu: u32, line: u64, write: bool| {
        let before = *cache.stats(CpuId(cpu));
        cache.touch(CpuId(cpu), T0, line * 64, write);
        causes(&before, cache.stats(CpuId(cpu)))
    };
    // CPUs 0 and 1 share a last-level cache, 2 is below another one, 4 in the other node.
    assert_eq!(
        cause(0, 0x40, READ),
        (Some(Miss::First), Some(OnBus::Memory))
    );
    assert_eq!(cause(0, 0x40, READ), (None, None));
    // Known to the machine, never in this cache; the last-level cache has it, the cache of CPU 4 does not.
    assert_eq!(cause(1, 0x40, READ), (Some(Miss::Absent), None));
    assert_eq!(
        cause(4, 0x40, READ),
        (Some(Miss::Absent), Some(OnBus::Memory))
    );
    // A write of a shared line: the data is there, copies elsewhere are not to stay.
    assert_eq!(cause(0, 0x40, WRITE), (None, Some(OnBus::Invalidation)));
    // CPU 4 still holds the copy that this write made worthless, and gets the line from CPU 0's cache.
    assert_eq!(
        cause(4, 0x40, READ),
        (Some(Miss::Coherence), Some(OnBus::Transfer))
    );
    assert_eq!(cause(1, 0x40, READ), (Some(Miss::Coherence), None));
    // A set has two ways: 0x44 and 0x48 replace 0x40 in CPU 0's cache; the last-level cache keeps it.
    assert_eq!(
        cause(0, 0x44, READ),
        (Some(Miss::First), Some(OnBus::Memory))
    );
    assert_eq!(
        cause(0, 0x48, READ),
        (Some(Miss::First), Some(OnBus::Memory))
    );
    assert_eq!(cause(0, 0x40, READ), (Some(Miss::Absent), None));
    // A write that misses: data from the last-level cache, the copy in the other node is invalidated.
    assert_eq!(cause(1, 0x40, WRITE), (None, Some(OnBus::Invalidation)));
    assert_eq!(
        cause(4, 0x50, READ),
        (Some(Miss::First), Some(OnBus::Memory))
    );
    assert_eq!(
        cause(2, 0x50, READ),
        (Some(Miss::Absent), Some(OnBus::Memory))
    );
    assert_eq!(
        cause(3, 0x50, WRITE),
        (Some(Miss::Absent), Some(OnBus::Invalidation))
    );
}

#[test]
fn what_an_access_costs_beyond_a_hit_is_waited() {
    let mut cache = CacheModel::new(&machine());
    cache.touch_range(CpuId(0), T0, 0x1000 + 60, 8, READ);
    assert_eq!(cache.wait_ps(CpuId(0)), 2 * (MEMORY - HIT));
    cache.touch_range(CpuId(0), T0, 0x1000, 128, READ);
    assert_eq!(cache.wait_ps(CpuId(0)), 2 * (MEMORY - HIT));
    // A hand-over is paid for otherwise; the line is the new owner's all the same.
    let line = cache.line_at(0x1000);
    cache.take_over(CpuId(2), T0, line);
    assert_eq!(cache.wait_ps(CpuId(2)), 0);
    assert_eq!(cache.touch(CpuId(2), T0, 0x1000, WRITE), HIT);
    assert_eq!(cache.touch(CpuId(0), T0, 0x1000, READ), TRANSFER[1]);
    assert_eq!(
        cache.wait_ps(CpuId(0)),
        2 * (MEMORY - HIT) + TRANSFER[1] - HIT
    );
}

#[test]
fn counts_by_structure() {
    use crate::address::{self, Structure};
    let mut cache = CacheModel::new(&machine());
    let task = TaskAddresses::new(&machine()).of(TaskId(7));
    // Below one last-level cache the second miss does not reach the bus. A hit counts nowhere.
    for (cpu, address) in [
        (0, task),
        (0, task),
        (1, task),
        (0, address::runqueue(CpuId(3))),
        (0, address::dsq(1)),
        (0, address::dsq(2)),
    ] {
        cache.touch(CpuId(cpu), T0, address, READ);
    }
    let of = |structure| {
        let counts: &LineCounts = cache.by_structure(structure);
        (counts.misses, counts.bus_transactions)
    };
    assert_eq!(
        Structure::ALL.map(of),
        [(0, 0), (1, 1), (2, 2), (0, 0), (0, 0), (2, 1)]
    );
}

/// MESI, and a copy that another cache's write made worthless but that still has its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Modified,
    Exclusive,
    Shared,
    Stale,
}

#[derive(Clone, Default)]
struct SlowLine {
    touched: bool,
    llcs: BTreeSet<u32>,
    shared: bool,
}

/// The most recently used first; `None` is a foreign or empty way.
type SlowSet = Vec<Option<(u64, State)>>;

struct SlowModel {
    machine: Machine,
    /// `[core][set]`.
    sets: Vec<Vec<SlowSet>>,
    lines: Vec<SlowLine>,
    streamed_ns: Vec<u64>,
    next_set: Vec<usize>,
}

impl SlowModel {
    fn new(machine: Machine) -> Self {
        let cores = machine.topology.nr_cores() as usize;
        SlowModel {
            sets: vec![vec![vec![None; 2]; 4]; cores],
            lines: vec![SlowLine::default(); 64],
            streamed_ns: vec![0; cores],
            next_set: vec![0; cores],
            machine,
        }
    }

    fn core(&self, cpu: u32) -> usize {
        self.machine.topology.cpu(CpuId(cpu)).core as usize
    }

    fn state(&self, core: usize, line: u64) -> Option<State> {
        let set = &self.sets[core][(line % 4) as usize];
        set.iter()
            .flatten()
            .find(|copy| copy.0 == line)
            .map(|copy| copy.1)
    }

    fn set_state(&mut self, core: usize, line: u64, state: State) {
        let set = &mut self.sets[core][(line % 4) as usize];
        for copy in set.iter_mut().flatten().filter(|copy| copy.0 == line) {
            copy.1 = state;
        }
    }

    fn bring(&mut self, core: usize, line: u64, state: State) {
        let set = &mut self.sets[core][(line % 4) as usize];
        let old = set
            .iter()
            .position(|copy| copy.is_some_and(|copy| copy.0 == line));
        set.remove(old.unwrap_or(set.len() - 1));
        set.insert(0, Some((line, state)));
    }

    fn distance(&self, core: usize, llc: u32) -> usize {
        // Cores are numbered as the first hardware threads are.
        let here = self.machine.topology.cpu(CpuId(core as u32));
        if here.llc == llc {
            0
        } else if here.llc / 2 == llc / 2 {
            1
        } else {
            2
        }
    }

    fn evict(&mut self, cpu: u32, user_ns: u64) {
        let core = self.core(cpu);
        self.streamed_ns[core] += user_ns;
        while self.streamed_ns[core] >= 1_000 {
            self.streamed_ns[core] -= 1_000;
            let set = &mut self.sets[core][self.next_set[core]];
            set.pop();
            set.insert(0, None);
            self.next_set[core] = (self.next_set[core] + 1) % 4;
        }
    }

    /// The cost, the causes of the miss and of the bus transaction, if it was one, and whether it made copies of
    /// others worthless.
    fn touch(
        &mut self,
        cpu: u32,
        line: u64,
        write: bool,
    ) -> (u64, Option<Miss>, Option<OnBus>, bool) {
        use State::*;
        let me = self.core(cpu);
        let miss = match self.state(me, line) {
            Some(Stale) => Some(Miss::Coherence),
            Some(_) => None,
            None if self.lines[line as usize].touched => Some(Miss::Absent),
            None => Some(Miss::First),
        };
        let cores = self.sets.len();
        let my_llc = self.machine.topology.cpu(CpuId(me as u32)).llc;
        let others = |state: State, model: &SlowModel| {
            (0..cores).find(|&core| core != me && model.state(core, line) == Some(state))
        };
        let mine = self.state(me, line).filter(|&state| state != Stale);
        let modified = others(Modified, self);
        let exclusive = others(Exclusive, self);
        let others_may = self.lines[line as usize].shared || modified.or(exclusive).is_some();
        let llcs = self.lines[line as usize].llcs.clone();
        let farthest = llcs
            .iter()
            .map(|&llc| self.distance(me, llc))
            .max()
            .unwrap_or(0);

        let invalidates = write && others_may && !matches!(mine, Some(Modified | Exclusive));
        let (mut cost, mut bus) = match (mine, modified) {
            (Some(_), _) => (HIT, None),
            (None, Some(owner)) => {
                let llc = self.machine.topology.cpu(CpuId(owner as u32)).llc;
                let distance = self.distance(me, llc);
                (
                    TRANSFER[distance],
                    (distance > 0).then_some(OnBus::Transfer),
                )
            }
            (None, None) if llcs.contains(&my_llc) => (LLC, None),
            (None, None) => (MEMORY, Some(OnBus::Memory)),
        };
        let state = match (mine, write) {
            (Some(Modified | Exclusive), true) => Modified,
            (Some(state), false) => state,
            (_, true) => {
                if others_may && modified.is_none() {
                    cost = cost.max(TRANSFER[farthest]);
                    bus = bus.or((farthest > 0).then_some(OnBus::Invalidation));
                }
                for core in (0..cores).filter(|&core| core != me) {
                    self.set_state(core, line, Stale);
                }
                self.lines[line as usize] = SlowLine::default();
                Modified
            }
            (None, false) if others_may => {
                for core in (0..cores).filter(|&core| core != me) {
                    if matches!(self.state(core, line), Some(Modified | Exclusive)) {
                        self.set_state(core, line, Shared);
                    }
                }
                self.lines[line as usize].shared = true;
                Shared
            }
            (None, false) => Exclusive,
        };
        self.lines[line as usize].llcs.insert(my_llc);
        self.lines[line as usize].touched = true;
        self.bring(me, line, state);
        (cost, miss, bus, invalidates)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Touch(u32, u64, bool),
    Evict(u32, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..16u32, 4..40u64, any::<bool>()).prop_map(|(cpu, line, write)| Step::Touch(cpu, line, write)),
        1 => (0..16u32, 0..3_000u64).prop_map(|(cpu, ns)| Step::Evict(cpu, ns)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_model_does_what_the_slow_one_does(
        steps in prop::collection::vec(step(), 1..400),
        buses in any::<bool>(),
        by_offset in any::<bool>(),
    ) {
        let machine = if buses { two_buses() } else { machine() };
        let mut fast = CacheModel::new(&machine);
        if by_offset {
            fast.count_by_offset();
        }
        let mut slow = SlowModel::new(machine);
        for (index, step) in steps.iter().enumerate() {
            match *step {
                Step::Touch(cpu, line, write) => {
                    let before = *fast.stats(CpuId(cpu));
                    let waited = fast.wait_ps(CpuId(cpu));
                    let cost = fast.touch(CpuId(cpu), T0, line * 64, write);
                    let after = *fast.stats(CpuId(cpu));
                    let (miss, bus) = causes(&before, &after);
                    let invalidates = after.invalidations > before.invalidations;
                    prop_assert_eq!(
                        (cost, miss, bus, invalidates),
                        slow.touch(cpu, line, write),
                        "step {} of {:?}", index, steps
                    );
                    prop_assert_eq!(fast.wait_ps(CpuId(cpu)) - waited, cost - HIT);
                    prop_assert_eq!(after.accesses() - before.accesses(), 1);
                }
                Step::Evict(cpu, ns) => {
                    fast.evict(fast.cache_of(CpuId(cpu)), ns);
                    slow.evict(cpu, ns);
                }
            }
        }
        // Each miss and each bus transaction is counted for its structure and, if asked for, for its offset.
        let all = fast.all_stats().fold((0, 0), |(misses, bus), stats| {
            (misses + stats.misses(), bus + stats.bus_transactions())
        });
        let sum = |counts: &mut dyn Iterator<Item = &LineCounts>| {
            counts.fold((0, 0), |(misses, bus), counts| {
                (misses + counts.misses, bus + counts.bus_transactions)
            })
        };
        let by_structure = sum(&mut Structure::ALL.map(|of| fast.by_structure(of)).into_iter());
        prop_assert_eq!(by_structure, all);
        if by_offset {
            prop_assert_eq!(sum(&mut fast.by_offset().iter()), all);
        }
    }
}
