//! Sizes and latencies of caches and memory.

use crate::draft::{Draft, rising};
use crate::memory;
use crate::sample::{Figure, Sample};
use crate::sysfs::{CacheLevel, Described};

/// Memory that a chain must exceed to be served by memory, at least and at most.
const CHAIN_BYTES: (u64, u64) = (64 << 20, 256 << 20);

/// Returns the cache that is modelled, which is a core's own, and the last level behind it.
///
/// A core that shares no level has two, too, if there are three: a processor with one core, or one of
/// which a virtual machine shows each CPU a last-level cache of its own.
fn modelled(caches: &[CacheLevel], threads: usize) -> (Option<&CacheLevel>, Option<&CacheLevel>) {
    let is_own = |cache: &&CacheLevel| match cache.shared_by {
        Some(cpus) => cpus <= threads,
        None => cache.level < 3,
    };
    let mut own = caches.iter().take_while(is_own).count();
    if own > 1 && own == caches.len() && caches[own - 1].level >= 3 {
        own -= 1;
    }
    (caches[..own].last(), caches.get(own))
}

/// Line and ways if the modelled cache can be made of them.
fn usable(cache: &CacheLevel) -> Option<(u32, u32)> {
    let (line, ways) = (cache.line_bytes, cache.ways);
    let way = u64::from(line) * u64::from(ways);
    let fits = way > 0
        && line.is_power_of_two()
        && (16..=4_096).contains(&line)
        && ways <= 64
        && cache.bytes.is_multiple_of(way)
        && (cache.bytes / way).is_power_of_two()
        && cache.bytes <= schedlab_machine::CACHE_BYTES_MAX;
    fits.then_some((line, ways))
}

/// Size, ways and lines of the modelled cache as far as the kernel reports them; the bytes if it does.
fn geometry(draft: &mut Draft, own: Option<&CacheLevel>) -> Option<u64> {
    let own = own?;
    let Some((line, ways)) = usable(own) else {
        draft.note(format!(
            "the kernel's description of the level {} cache cannot be ({}, {} ways, lines of {} bytes): the cache stays a guess",
            own.level, size(own), own.ways, own.line_bytes
        ));
        return None;
    };
    let source = format!("measured: /sys/devices/system/cpu, level {}", own.level);
    draft.put("memory.line_bytes", line, source.clone());
    draft.put("memory.cache_bytes", own.bytes, source.clone());
    draft.put("memory.ways", ways, source);
    draft.base.memory.line_bytes = line;
    draft.base.memory.cache_bytes = own.bytes;
    Some(own.bytes)
}

fn size(cache: &CacheLevel) -> String {
    match cache.bytes {
        0 => "no size that makes sense".to_owned(),
        bytes => format!("{bytes} bytes"),
    }
}

/// A chain of dependent loads: how long each took, and of what it was.
struct Chain {
    sample: Sample,
    what: String,
}

impl Chain {
    fn measure(cpu: usize, bytes: u64, line_bytes: u32, what: &str) -> Option<Chain> {
        let sample = memory::chase(cpu, bytes, line_bytes)?;
        let what = format!("chain of dependent loads over {} KB, {what}", bytes >> 10);
        Some(Chain { sample, what })
    }
}

/// Bytes of a chain that the modelled cache does not hold and the last level does.
fn last_level_chain(draft: &mut Draft, own_bytes: u64, last: &CacheLevel) -> Option<u64> {
    if last.bytes >= own_bytes * 2 {
        return Some((own_bytes * 4).min(own_bytes.midpoint(last.bytes)));
    }
    draft.note(format!(
        "the level {} cache ({}) is not twice as large as the one before it: its latency stays a guess",
        last.level, size(last)
    ));
    None
}

/// Returns the latency of the last level: of a smaller chain if it does not hold the chain of `bytes`. A virtual
/// machine that shares it with others, which it cannot see, has less of it than the kernel says.
fn last_level(draft: &mut Draft, cpu: usize, own_bytes: u64, bytes: u64) -> Option<Chain> {
    let measure = |bytes: u64| {
        let line = draft.base.memory.line_bytes;
        Chain::measure(cpu, bytes, line, "which the last-level cache holds")
    };
    let chain = measure(bytes)?;
    let few = own_bytes * 2;
    match measure(few).filter(|_| few < bytes) {
        Some(small) if chain.sample.median() > 2 * small.sample.median() => {
            let [is, was] = [&small, &chain].map(|one| one.sample.median() / 1_000);
            draft.note(format!(
                "the last-level cache did not hold {} KB: memory.llc_hit_ps is of {} KB, {is} instead of {was} ns",
                bytes >> 10,
                few >> 10
            ));
            Some(small)
        }
        _ => Some(chain),
    }
}

/// Bytes of a chain that no cache holds.
fn memory_chain(draft: &mut Draft, caches: &[CacheLevel]) -> u64 {
    let Some(outermost) = caches.last().filter(|cache| cache.bytes > 0) else {
        draft.note(format!(
            "the kernel does not report the size of the last cache: a part of the memory chain of {} MB may fit into it",
            CHAIN_BYTES.1 >> 20
        ));
        return CHAIN_BYTES.1;
    };
    let bytes = outermost.bytes.saturating_mul(4);
    let bytes = bytes.clamp(CHAIN_BYTES.0, CHAIN_BYTES.1);
    if bytes / 2 < outermost.bytes {
        draft.note("the last-level cache is so large that part of the memory chain fits into it");
    }
    bytes
}

/// An atomic operation above the access, which its measurement contains.
fn atomic(draft: &mut Draft, caches: &[CacheLevel], cpu: usize) {
    const SMALL: u64 = 16 << 10;
    let half = caches.first().map_or(SMALL, |first| first.bytes / 2);
    let line = draft.base.memory.line_bytes;
    let access = memory::chase(cpu, half.clamp(u64::from(line), SMALL), line);
    if let (Some(atomic), Some(access)) = (memory::atomic(cpu), access) {
        let above = Figure::from(&atomic).less(&access);
        let guess = draft.base.memory.atomic_ps;
        let what = "fetch_add on an owned line less a load that the first cache serves";
        draft.put_figure("memory.atomic_ps", guess, 1, above, what);
    }
}

/// Most memory that is gone over at once.
const STREAM_BYTES_MAX: u64 = 2 << 30;

/// Cores that are measured one by one.
const CORES_MAX: usize = 32;

/// The CPUs of a node.
pub(crate) struct Node {
    /// The kernel's numbers of all of them.
    pub cpus: Vec<usize>,
    /// The first one of each core.
    pub cores: Vec<usize>,
    pub nr_llcs: u64,
}

/// How fast memory is gone over in order: by one CPU, and by all of the first one's node together.
///
/// A node whose CPUs together are as fast as each alone shows no limit of its bus; a fifth less does.
pub(crate) fn streams(draft: &mut Draft, caches: &[CacheLevel], miss_ps: u64, node: &Node) {
    let (Some(&first), line) = (node.cpus.first(), draft.base.memory.line_bytes) else {
        return;
    };
    // Four times as much as the caches hold, if that much may be used; not less than twice.
    let llc = caches.last().map_or(0, |cache| cache.bytes);
    let of_llcs = |nr: u64| (4 * llc * nr).clamp(CHAIN_BYTES.0, STREAM_BYTES_MAX);
    let is_memory = |bytes, nr| bytes >= 2 * llc * nr && llc > 0;
    let (bytes, all_bytes) = (of_llcs(1), of_llcs(node.nr_llcs));
    let each = all_bytes / node.cpus.len() as u64;
    let alone = |cpu, bytes| memory::stream(&[cpu], bytes, line);
    let Some(of_one) = alone(first, bytes) else {
        draft.note(
            "memory.stream_ps and memory.bus_ps stay guesses: other programs took the CPU away",
        );
        return;
    };
    if !is_memory(bytes, 1) {
        draft.note(
            "memory.stream_ps stays a guess: the last-level cache may hold what was gone over",
        );
        return;
    }
    draft.base.memory.stream_ps = Some(miss_ps);
    let what = "a line of a buffer that is read and written in order";
    draft.put_at_most("memory.stream_ps", miss_ps, &of_one[0], what);
    if node.cores.len() < 2 {
        return;
    }
    if !is_memory(all_bytes, node.nr_llcs) || each < 1 << 20 {
        draft.note(
            "memory.bus_ps stays a guess: the caches of the node may hold what was gone over",
        );
        return;
    }
    let rate = |sample: &Sample| 1e12 / sample.median().max(1) as f64;
    // Cores may differ where there are few.
    let measured = &node.cores[..node.cores.len().min(CORES_MAX)];
    let single = measured.iter().map(|&cpu| alone(cpu, bytes));
    let single: Option<Vec<f64>> = single.map(|one| Some(rate(&one?[0]))).collect();
    let (Some(single), Some(together)) = (single, memory::stream(&node.cpus, each, line)) else {
        draft.note("memory.bus_ps stays a guess: other programs took CPUs away");
        return;
    };
    let all: f64 = together.iter().map(rate).sum();
    let sum = single.iter().sum::<f64>() / measured.len() as f64 * node.cores.len() as f64;
    let share = all / sum;
    let found = format!(
        "measured: {} CPUs of a node together go over memory at {:.0} % of the sum of what each core does alone",
        node.cpus.len(),
        share * 100.0
    );
    let (bus_ps, source) = bus(all, share, found);
    draft.put("memory.bus_ps", bus_ps, source);
}

/// The time that a line occupies the bus, and its source, if `all` lines a second come over it, a `share` of what the cores
/// do one by one.
fn bus(all: f64, share: f64, found: String) -> (u64, String) {
    if share > 0.8 {
        return (0, format!("{found}: no limit seen"));
    }
    // Each line crosses twice, as it is written.
    let bus_ps = (1e12 / (2.0 * all)).round().max(1.0);
    let lines = all / 1e6;
    let source =
        format!("{found}, {lines:.1} million lines/s, each of which crosses the bus twice");
    (bus_ps as u64, source)
}

/// Sizes and latencies of caches and memory. Returns the profile's time of a miss.
pub(crate) fn memory_costs(draft: &mut Draft, described: &Described, cpu: usize) -> u64 {
    let caches = &described.caches;
    let (own, last) = modelled(caches, described.threads());
    let known = geometry(draft, own);
    let (own_bytes, line) = (draft.base.memory.cache_bytes, draft.base.memory.line_bytes);
    let what = match known {
        Some(_) => "which the CPU's own cache holds",
        None => "half of the guessed cache",
    };
    let hit = Chain::measure(cpu, own_bytes / 2, line, what);
    let llc = last.and_then(|last| last_level_chain(draft, own_bytes, last));
    let llc = llc.and_then(|bytes| last_level(draft, cpu, own_bytes, bytes));
    let miss = memory_chain(draft, caches);
    let miss = Chain::measure(cpu, miss, line, "TLB misses included");
    if let (Some(llc), Some(miss)) = (&llc, &miss)
        && llc.sample.median() > miss.sample.median() / 2
    {
        draft.note(
            "memory.llc_hit_ps is more than half of memory.miss_ps: it may be the latency of memory rather than of the last-level cache",
        );
    }
    atomic(draft, caches, cpu);
    let base = &draft.base.memory;
    let base = [base.hit_ps, base.llc_hit_ps, base.miss_ps];
    let medians = [&hit, &llc, &miss].map(|chain| Some(chain.as_ref()?.sample.median()));
    let mut values = rising(medians, base);
    let fields = ["memory.hit_ps", "memory.llc_hit_ps", "memory.miss_ps"];
    if let (None, Some(own)) = (last, own) {
        let told = format!(
            "measured: /sys/devices/system/cpu shows no level after {}",
            own.level
        );
        draft.put(fields[1], 0, told);
        let two = rising([medians[0], medians[2]], [base[0], base[2]]);
        values = [two[0], 0, two[1]];
    }
    for ((field, ps), chain) in fields.into_iter().zip(values).zip([hit, llc, miss]) {
        if let Some(Chain { sample, what }) = chain {
            draft.put_raised(field, ps, &sample, &what);
        } else if ps > 0 {
            draft.put_guess(field, ps);
        }
    }
    values[2]
}

#[cfg(test)]
mod tests {
    use schedlab_machine::{Machine, SourceKind};

    use super::*;

    #[test]
    fn a_bus_has_a_limit_where_cores_hinder_each_other() {
        // 100 million lines a second, each twice: 5 ns.
        let (ps, source) = bus(100e6, 0.5, "found".to_owned());
        assert_eq!(ps, 5_000);
        assert!(source.contains("100.0 million lines/s"), "{source}");
        assert_eq!(bus(100e6, 0.9, "found".to_owned()).0, 0);
    }

    fn cache(level: u32, kb: u64, ways: u32, shared_by: usize) -> CacheLevel {
        CacheLevel {
            level,
            bytes: kb << 10,
            ways,
            line_bytes: 64,
            shared_by: Some(shared_by),
        }
    }

    #[test]
    fn the_modelled_cache_is_the_last_that_is_a_cores_own() {
        let levels = |caches: &[CacheLevel], threads| {
            let (own, last) = modelled(caches, threads);
            (own.map(|own| own.level), last.map(|last| last.level))
        };
        let (l1, l2) = (cache(1, 32, 8, 1), cache(2, 1024, 8, 1));
        let (l3, l4) = (cache(3, 32 << 10, 16, 2), cache(4, 128 << 10, 16, 2));
        let all = [l1.clone(), l2.clone(), l3.clone(), l4];
        assert_eq!(levels(&all[..3], 1), (Some(2), Some(3)));
        assert_eq!(levels(&all[..2], 1), (Some(2), None));
        assert_eq!(levels(&all[..1], 1), (Some(1), None));
        assert_eq!(levels(&[], 1), (None, None));
        // A further one on the memory's side.
        assert_eq!(levels(&all, 1), (Some(2), Some(3)));
        // Two cores share the second level, and there is no third.
        let cluster = [l1.clone(), cache(2, 2048, 16, 2)];
        assert_eq!(levels(&cluster, 1), (Some(1), Some(2)));
        // Two hardware threads of one core do.
        assert_eq!(levels(&cluster, 2), (Some(2), None));
        // A core that has everything for itself, and one whose sharing is unknown.
        let alone = [l1.clone(), l2.clone(), cache(3, 32 << 10, 16, 1)];
        assert_eq!(levels(&alone, 1), (Some(2), Some(3)));
        let untold = [l1, l2, l3].map(|cache| CacheLevel {
            shared_by: None,
            ..cache
        });
        assert_eq!(levels(&untold, 1), (Some(2), Some(3)));
    }

    #[test]
    fn nonsense_of_virtual_machines_is_not_taken_for_a_cache() {
        assert_eq!(usable(&cache(2, 1024, 8, 1)), Some((64, 8)));
        assert_eq!(usable(&cache(2, 1024, 0, 1)), None);
        assert_eq!(usable(&cache(2, 1536, 8, 1)), None);
        assert_eq!(usable(&cache(2, 0, 8, 1)), None);
        let no_line = CacheLevel {
            line_bytes: 0,
            ..cache(2, 1024, 8, 1)
        };
        assert_eq!(usable(&no_line), None);
        // The largest values that a profile takes.
        assert_eq!(usable(&cache(2, 1 << 19, 16, 1)), Some((64, 16)));
        assert_eq!(usable(&cache(2, 1 << 20, 16, 1)), None);
    }

    #[test]
    fn chains_are_larger_than_one_cache_and_smaller_than_the_next() {
        let mut draft = draft();
        let mut chain = |own_kb: u64, last_kb| {
            let bytes = last_level_chain(&mut draft, own_kb << 10, &cache(3, last_kb, 16, 2));
            bytes.map(|bytes| bytes >> 10)
        };
        assert_eq!(chain(1_024, 32_768), Some(4_096));
        assert_eq!(chain(1_024, 4_096), Some(2_560));
        assert_eq!(chain(1_024, 2_048), Some(1_536));
        assert_eq!(chain(1_024, 1_024), None);
        assert_eq!(chain(1_024, 0), None);
        assert_eq!(
            memory_chain(&mut draft, &[cache(3, 32 << 10, 16, 2)]),
            128 << 20
        );
        assert!(
            draft
                .finish()
                .notes
                .iter()
                .all(|note| note.contains("not twice"))
        );
    }

    fn draft() -> Draft {
        Draft::new("laptop", Vec::new())
    }

    /// Returns the costs of caches where the kernel describes these.
    fn costs(caches: Vec<CacheLevel>) -> (crate::Report, impl Fn(&Machine, &str) -> SourceKind) {
        let mut described = crate::sysfs::describe(std::path::Path::new("/no/such/folder"));
        described.caches = caches;
        let mut draft = draft();
        memory_costs(&mut draft, &described, 0);
        let kind = |machine: &Machine, field: &str| {
            let mut sources = machine.provenance().iter();
            sources.find(|one| one.field == field).unwrap().kind
        };
        (draft.finish(), kind)
    }

    #[test]
    fn what_no_kernel_tells_of_caches_is_a_guess() {
        let (report, kind) = costs(Vec::new());
        for field in [
            "line_bytes",
            "cache_bytes",
            "ways",
            "llc_hit_ps",
            "transfer_llc_ps",
        ] {
            let kind = kind(&report.machine, &format!("memory.{field}"));
            assert_eq!(kind, SourceKind::Guess, "{field}");
        }
        assert!(report.machine.memory.llc_hit_ps > 0);
        assert_eq!(
            kind(&report.machine, "memory.miss_ps"),
            SourceKind::Measured
        );
        let told = |what: &str| report.notes.iter().any(|note| note.contains(what));
        assert!(told("size of the last cache"), "{:?}", report.notes);
    }

    #[test]
    fn a_level_without_a_size_is_a_level() {
        let (report, kind) = costs(vec![cache(2, 1024, 8, 1), cache(3, 0, 16, 2)]);
        assert_eq!(
            kind(&report.machine, "memory.cache_bytes"),
            SourceKind::Measured
        );
        assert_eq!(
            kind(&report.machine, "memory.llc_hit_ps"),
            SourceKind::Guess
        );
        assert!(report.machine.memory.llc_hit_ps > 0);
    }

    #[test]
    fn where_there_is_no_further_level_memory_serves_misses() {
        let (report, kind) = costs(vec![cache(1, 32, 8, 1)]);
        assert_eq!(report.machine.memory.llc_hit_ps, 0);
        assert_eq!(
            kind(&report.machine, "memory.llc_hit_ps"),
            SourceKind::Measured
        );
    }
}
