//! A set-associative cache per core with line ownership, for the lines that scheduling touches.
//!
//! The model has the last private level of each core (its hardware threads share it), LRU replacement, ownership of
//! lines as in MESI, transfers by distance, the bus that the last-level caches share, and an application that streams
//! through the cache while it runs.
//!
//! The rules, each with a test:
//! - A **hit** needs a copy of the line as it was last written.
//! - A **write** makes the line one's own. If other caches may have copies, these become worthless, and the farthest
//!   of them sets the price. A write to a line that no other cache has is silent.
//! - A **miss** is served by the cache that holds the line modified, at the price of its distance;
//!   else by the shared last-level cache if a core below it has had the line; else by memory. A
//!   write that misses pays for the data or for the invalidation, whichever takes longer.
//! - Whatever leaves the last-level cache is one **bus** transaction and may wait for the bus.
//! - **Eviction**: the application brings foreign lines into the sets in turn. A line is gone when
//!   as many foreign or other lines came into its set as there are ways, since its last use.
//!
//! Model: a copy that another CPU's write made worthless keeps its way until it is replaced or read
//! again (hardware may refill it earlier). The write-back of an evicted line occupies the bus when the line is next asked
//! for, not when it is evicted, on the bus of the cache that asks, and only where `memory.written_pct` is given. An
//! application evicts lines by the time that it runs, however slow the bus or another hardware thread makes it. The last-level cache never evicts.
//!
//! Addresses are modelled ones ([`crate::address`]); host addresses never get here.

mod directory;
mod sets;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use schedlab_trace::{CpuId, Instant};

use crate::Machine;
use crate::address::Structure;
use crate::bus::Bus;
pub use directory::{CacheIx, LineRef};
use directory::{Directory, Holder, Line};
use sets::{Sets, Shape};

/// Counts of one cache, of all CPUs below it together.
///
/// The counters of one access do not lie side by side here: the compiler would load and store both at once, which
/// takes four instructions instead of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Accesses that the cache served alone.
    pub hits: u64,
    /// Writes of lines that the cache held, but others may have, too.
    pub upgrades: u64,
    /// Misses of lines that no CPU had accessed before.
    pub misses_first: u64,
    /// Misses of lines that the cache still held, but another CPU had written since.
    pub misses_coherence: u64,
    /// Misses that memory served.
    pub from_memory: u64,
    /// Misses that the shared last-level cache served.
    pub from_llc: u64,
    /// Misses that another cache served, because it held the line modified.
    pub transfers: u64,
    /// Transactions on the bus that brought the line from another cache.
    pub bus_transfers: u64,
    /// Writes that made other caches' copies worthless.
    pub invalidations: u64,
    /// Transactions on the bus that only made copies below other last-level caches worthless.
    pub bus_invalidations: u64,
    /// Modified lines that memory had to take back before it could serve them again.
    pub write_backs: u64,
    /// Time waited for the bus.
    pub bus_wait_ps: u64,
}

impl CacheStats {
    /// Accesses.
    pub fn accesses(&self) -> u64 {
        self.hits + self.upgrades + self.misses()
    }

    /// Accesses that missed the cache: served by memory, by the shared cache or by a transfer.
    pub fn misses(&self) -> u64 {
        self.from_memory + self.from_llc + self.transfers
    }

    /// Transactions on the bus: accesses that had to leave the last-level cache.
    pub fn bus_transactions(&self) -> u64 {
        self.from_memory + self.bus_transfers + self.bus_invalidations
    }
}

/// Counts for the lines of one kind: the lines at one place within their 4 KB page (the scheduling fields of all task
/// structures peak there if they have the same offset), or the lines of one [`Structure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LineCounts {
    /// Misses.
    pub misses: u64,
    /// Bus transactions.
    pub bus_transactions: u64,
}

/// Counts one more, without a look whether 2^64 are full: at one a nanosecond they are after 584 years.
#[inline]
fn count(counter: &mut u64) {
    *counter = counter.wrapping_add(1);
}

/// The page that [`CacheModel::by_offset`] counts within.
pub const PAGE_BYTES: u64 = 4_096;

/// The cache of a core.
#[derive(Clone, Debug)]
struct Cache {
    place: Place,
    sets: Sets,
    stats: CacheStats,
}

/// Where a core's cache is, with what the hot path needs to know of it.
#[derive(Clone, Copy, Debug)]
struct Place {
    llc: u32,
    /// Its node, or its processor bus where a node has several.
    bus: u32,
    /// The bit of its last-level cache in [`Line::llcs`].
    llc_bit: u64,
    /// The bits of all last-level caches of its bus.
    bus_bits: u64,
}

/// The caches of all CPUs.
#[derive(Clone, Debug)]
pub struct CacheModel {
    line_shift: u32,
    prices: Prices,
    evict_lines_per_ms: u64,
    /// The cache of each CPU, which is its core's.
    cache_of: Vec<CacheIx>,
    /// Of each CPU: see [`CacheModel::wait_ps`].
    wait_ps: Vec<u64>,
    shape: Shape,
    caches: Vec<Cache>,
    directory: Directory,
    beyond: Beyond,
}

/// Same last-level cache, same bus, another bus or node.
const DISTANCES: usize = 3;

/// The costs of accesses, without the wait for the bus.
#[derive(Clone, Copy, Debug)]
struct Prices {
    hit_ps: u64,
    /// 0: there is no shared last-level cache.
    llc_hit_ps: u64,
    miss_ps: u64,
    /// By distance.
    transfer: [Transfer; DISTANCES],
}

/// The price of a transfer, and the part of it that exceeds a hit's.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    cost_ps: u64,
    wait_ps: u64,
}

/// The memory system beyond the caches, and the counts of its traffic.
#[derive(Clone, Debug)]
struct Beyond {
    /// The processor buses of the node, or the bus of each node; none if they delay no transaction.
    buses: Vec<Bus>,
    /// Write-backs occupy them.
    writes_back: bool,
    /// The least distance of a transfer that may wait for a bus or is counted by offset, too.
    watched_from: usize,
    by_offset: Option<Vec<LineCounts>>,
    by_structure: [LineCounts; Structure::ALL.len()],
}

/// How an access was served that a CPU's cache could not serve alone.
#[derive(Clone, Copy, Debug)]
struct Served {
    /// Without the wait for the bus.
    cost_ps: u64,
    /// Whether the line, as it was last written, was not in the CPU's cache.
    miss: bool,
    leaves_llc: bool,
    leaves_bus: bool,
    /// Memory has it since it was evicted.
    was_written_back: bool,
}

impl CacheModel {
    /// Empty caches for `machine`.
    pub fn new(machine: &Machine) -> Self {
        let memory = &machine.memory;
        let topology = &machine.topology;
        let nr_cpus = topology.nr_cpus();
        let nr_caches = topology.nr_cores() as usize;
        let cpu_of_core = |core: usize| {
            let mut cpus = (0..nr_cpus as u32).map(CpuId);
            // A core number without a CPU (`maxcpus`, irregular machines) is never looked up.
            let found = cpus.find(|&cpu| topology.cpu(cpu).core as usize == core);
            found.unwrap_or(CpuId(0))
        };
        let nr_buses = memory.llcs_per_bus.map_or(topology.nr_nodes(), |llcs| {
            topology.nr_llcs().div_ceil(llcs)
        });
        let sets = memory.cache_bytes / u64::from(memory.line_bytes) / u64::from(memory.ways);
        CacheModel {
            line_shift: memory.line_bytes.trailing_zeros(),
            prices: Prices {
                hit_ps: memory.hit_ps,
                llc_hit_ps: memory.llc_hit_ps,
                miss_ps: memory.miss_ps,
                transfer: [
                    memory.transfer_llc_ps,
                    memory.transfer_node_ps,
                    memory.transfer_remote_ps,
                ]
                .map(|cost_ps| Transfer {
                    cost_ps,
                    wait_ps: cost_ps.saturating_sub(memory.hit_ps),
                }),
            },
            evict_lines_per_ms: memory.evict_lines_per_ms.into(),
            cache_of: (0..nr_cpus as u32)
                .map(|cpu| CacheIx::of(machine, CpuId(cpu)))
                .collect(),
            wait_ps: vec![0; nr_cpus],
            shape: Shape::new(sets as u32, memory.ways),
            caches: (0..nr_caches)
                .map(|core| Cache {
                    place: place(machine, cpu_of_core(core)),
                    sets: Sets::default(),
                    stats: CacheStats::default(),
                })
                .collect(),
            directory: Directory::new(),
            beyond: Beyond {
                buses: match memory.bus_ps {
                    0 => Vec::new(),
                    slot_ps => vec![Bus::new(slot_ps); nr_buses as usize],
                },
                writes_back: memory.written_pct.is_some(),
                watched_from: if memory.bus_ps > 0 { 1 } else { DISTANCES },
                by_offset: None,
                by_structure: [LineCounts::default(); Structure::ALL.len()],
            },
        }
    }

    /// From now on also counts by offset within the page ([`CacheModel::by_offset`]).
    pub fn count_by_offset(&mut self) {
        let lines = (PAGE_BYTES >> self.line_shift).max(1) as usize;
        self.beyond.by_offset = Some(vec![LineCounts::default(); lines]);
        self.beyond.watched_from = 0;
    }

    /// Counts for each line of a page, of all CPUs; empty unless asked for. As many as make a page of
    /// 4,096 bytes.
    pub fn by_offset(&self) -> &[LineCounts] {
        self.beyond.by_offset.as_deref().unwrap_or_default()
    }

    /// Counts for the lines of a kind of structure, of all CPUs.
    pub fn by_structure(&self, structure: Structure) -> &LineCounts {
        &self.beyond.by_structure[structure as usize]
    }

    /// Returns the cache of `cpu`.
    #[inline]
    pub fn cache_of(&self, cpu: CpuId) -> CacheIx {
        self.cache_of[cpu.index()]
    }

    /// Returns the counts of the cache of `cpu`.
    pub fn stats(&self, cpu: CpuId) -> &CacheStats {
        &self.caches[self.cache_of(cpu).index()].stats
    }

    /// Returns the counts of each cache.
    pub fn all_stats(&self) -> impl Iterator<Item = &CacheStats> {
        self.caches.iter().map(|cache| &cache.stats)
    }

    /// Returns the cost of the accesses of `cpu` beyond hits: the time it waited for memory, other caches and the
    /// bus.
    pub fn wait_ps(&self, cpu: CpuId) -> u64 {
        self.wait_ps[cpu.index()]
    }

    /// Returns the line that holds `address`.
    #[inline]
    pub fn line_at(&mut self, address: u64) -> LineRef {
        assert!(
            address < crate::address::END,
            "{address:#x} is outside of the modelled space"
        );
        let number = self.line_of(address);
        self.directory.find(number, || Structure::of(address))
    }

    /// Returns the line that holds all of the `bytes` bytes from `address`, if there is one.
    pub fn only_line(&mut self, address: u64, bytes: u32) -> Option<LineRef> {
        let last = address + u64::from(bytes.max(1)) - 1;
        (self.line_of(address) == self.line_of(last)).then(|| self.line_at(address))
    }

    /// Returns the state of a line, for prefetching.
    pub fn kept_of(&self, line: LineRef) -> &impl Sized {
        self.directory.kept_of(line)
    }

    /// Returns, likewise, the state of the set of `cpu` in which the line that holds `address` has its place.
    pub fn set_of(&self, cpu: CpuId, address: u64) -> Option<&impl Sized> {
        let cache = self.cache_of(cpu);
        self.caches[cache.index()]
            .sets
            .set_of(&self.shape, self.line_of(address))
    }

    /// `cpu` accesses the line that holds `address`, as [`CacheModel::touch_line`].
    pub fn touch(&mut self, cpu: CpuId, now: Instant, address: u64, write: bool) -> u64 {
        let line = self.line_at(address);
        self.touch_line(cpu, || now, line, write)
    }

    /// `cpu` accesses `line` at its local time `now`. Returns what it costs in picoseconds, waiting for the
    /// bus included.
    ///
    /// CPUs may call a little out of the order of their times. Ownership follows the order of the calls. The wait for
    /// the bus follows the order of the times (see [`crate::bus`]).
    ///
    /// Inlined, as callers know whether they write.
    #[inline(always)]
    pub fn touch_line(
        &mut self,
        cpu: CpuId,
        now: impl Fn() -> Instant,
        line: LineRef,
        write: bool,
    ) -> u64 {
        if !write {
            let near = self.read_own(self.cache_of(cpu), line);
            return near.unwrap_or_else(|| self.read_others(cpu, now(), line));
        }
        match self.write_own(self.cache_of(cpu), line) {
            Some(cost_ps) => cost_ps,
            None => self.write_others(cpu, self.cache_of(cpu), now, line),
        }
    }

    /// A CPU below `cache` writes `line` if no other cache can have a copy and the cache has one that its set used
    /// last:
    /// most hits. Returns what it costs, as [`CacheModel::touch_line`] does. Otherwise nothing has happened, and
    /// [`CacheModel::write_others`] is for it.
    #[inline(always)]
    pub fn write_own(&mut self, cache: CacheIx, line: LineRef) -> Option<u64> {
        let entry = self.directory.line(line);
        if !entry.holder.lets(cache, true) {
            return None;
        }
        let Cache { sets, stats, .. } = &mut self.caches[cache.index()];
        let at = self.shape.set_of(entry.written);
        if !sets.use_first(&self.shape, at, entry.written) {
            return None;
        }
        count(&mut stats.hits);
        entry.dirty = true;
        Some(self.prices.hit_ps)
    }

    /// `cpu`, whose cache is `me`, writes `line`, which as a rule is not its own. These are the usual cases: another
    /// cache has it modified, and the sets of both used their copies last; or several may have it, and the set of this
    /// one used its copy last.
    #[inline(always)]
    pub fn write_others(
        &mut self,
        cpu: CpuId,
        me: CacheIx,
        now: impl Fn() -> Instant,
        line: LineRef,
    ) -> u64 {
        let entry = self.directory.line(line);
        let written = entry.written;
        let shape = &self.shape;
        let at = shape.set_of(written);
        if entry.dirty {
            if let Some(owner) = self.caches.get(entry.holder.number())
                && owner.sets.is_first(shape, at, written)
            {
                let from = owner.place;
                let cache = &mut self.caches[me.index()];
                if let Some(copy) = cache.sets.first_of(at, written) {
                    // The message of one CPU to another: most misses. The transfer is the invalidation too.
                    let renewed = entry.become_modified(me, cache.place.llc_bit);
                    if copy.renew(shape, renewed) {
                        count(&mut cache.stats.misses_coherence);
                    }
                    count(&mut cache.stats.invalidations);
                    let distance = cache.place.distance_to(&from);
                    let transfer = self
                        .beyond
                        .transfer(now, entry, cache, &self.prices, distance);
                    self.wait_ps[cpu.index()] += transfer.wait_ps;
                    return transfer.cost_ps;
                }
            }
        } else if entry.holder == Holder::SHARED {
            let cache = &mut self.caches[me.index()];
            if cache.sets.use_first(shape, at, written) {
                // Read before, as a rule by the same CPU.
                let Cache { place, sets, stats } = cache;
                let distance = place.farthest(entry.llcs);
                count(&mut stats.upgrades);
                count(&mut stats.invalidations);
                if distance > 0 {
                    count(&mut stats.bus_invalidations);
                }
                let renewed = entry.become_modified(me, place.llc_bit);
                sets.set_version(at, renewed);
                let told_ps = self.prices.transfer[distance].cost_ps;
                let served = Served {
                    cost_ps: told_ps.max(self.prices.hit_ps),
                    miss: false,
                    leaves_llc: distance > 0,
                    leaves_bus: distance > 1,
                    was_written_back: false,
                };
                let cost_ps = self.beyond.serve(now, entry, cache, served);
                return self.waited(cpu, cost_ps);
            }
        }
        self.write_other(cpu, now(), line)
    }

    /// Returns the number of the line that holds `address`.
    #[inline]
    fn line_of(&self, address: u64) -> u32 {
        address.wrapping_shr(self.line_shift) as u32
    }

    /// Returns the numbers of the lines that hold `bytes` bytes from `address`.
    #[inline]
    pub fn lines_of(&self, address: u64, bytes: u32) -> RangeInclusive<u32> {
        self.line_of(address)..=self.line_of(address + u64::from(bytes.max(1)) - 1)
    }

    /// Returns a line by its number.
    #[inline]
    pub fn line_numbered(&mut self, number: u32) -> LineRef {
        self.line_at(u64::from(number) << self.line_shift)
    }

    /// Returns the time of a hit.
    #[inline]
    pub fn hit_ps(&self) -> u64 {
        self.prices.hit_ps
    }

    /// `cpu` accesses every line of `bytes` bytes from `address`, one after another.
    #[inline]
    pub fn touch_range(
        &mut self,
        cpu: CpuId,
        now: Instant,
        address: u64,
        bytes: u32,
        write: bool,
    ) -> u64 {
        let lines = self.lines_of(address, bytes);
        if lines.start() == lines.end() {
            return self.touch(cpu, now, address, write);
        }
        self.touch_lines(cpu, now, lines, write)
    }

    #[inline(never)]
    fn touch_lines(
        &mut self,
        cpu: CpuId,
        now: Instant,
        lines: RangeInclusive<u32>,
        write: bool,
    ) -> u64 {
        let mut total_ps = 0;
        for line in lines {
            let now = Instant::from_ns(now.ns() + total_ps / 1_000);
            let line = self.line_numbered(line);
            total_ps += self.touch_line(cpu, || now, line, write);
        }
        total_ps
    }

    /// As [`CacheModel::touch_range`] for a read, of lines that were prefetched: asked for at `asked`
    /// and needed at `now`. What is left of the time that they take is what it costs, but no less than
    /// if they had been there all along.
    #[inline]
    pub fn touch_prefetched(
        &mut self,
        cpu: CpuId,
        asked: Instant,
        now: Instant,
        address: u64,
        bytes: u32,
    ) -> u64 {
        let last = self.line_of(address + u64::from(bytes.max(1)) - 1);
        let lines = u64::from(last - self.line_of(address)) + 1;
        let waited_ps = self.wait_ps(cpu);
        let fetch_ps = self.touch_range(cpu, asked, address, bytes, false);
        let lead_ps = now.since(asked).ns() * 1_000;
        let hits_ps = lines * self.prices.hit_ps;
        let cost_ps = fetch_ps.saturating_sub(lead_ps).max(hits_ps);
        self.wait_ps[cpu.index()] = waited_ps + (cost_ps - hits_ps);
        cost_ps
    }

    /// Acts as [`CacheModel::touch_line`] for a write whose way of the line is a part of a cost that is paid already,
    /// the hand-over of a lock. No CPU waits for memory.
    pub fn take_over(&mut self, cpu: CpuId, now: Instant, line: LineRef) {
        let waited_ps = self.wait_ps(cpu);
        self.touch_line(cpu, || now, line, true);
        self.wait_ps[cpu.index()] = waited_ps;
    }

    /// A CPU below `cache` reads `line` if the cache has a copy that its set used last. Returns what it costs, as
    /// [`CacheModel::touch_line`] does. Otherwise nothing has happened, and [`CacheModel::read_others`] is for it.
    #[inline(always)]
    pub fn read_own(&mut self, cache: CacheIx, line: LineRef) -> Option<u64> {
        let entry = self.directory.kept_of(line);
        if !entry.holder.lets(cache, false) {
            return None;
        }
        let Cache { sets, stats, .. } = &mut self.caches[cache.index()];
        let at = self.shape.set_of(entry.written);
        if !sets.use_first(&self.shape, at, entry.written) {
            return None;
        }
        count(&mut stats.hits);
        Some(self.prices.hit_ps)
    }

    /// `cpu` reads `line`, of which [`CacheModel::read_own`] has found no copy. A look at one of many candidates is a read that
    /// memory serves, as the looks at the others have put the line out.
    #[inline(never)]
    pub fn read_others(&mut self, cpu: CpuId, now: Instant, line: LineRef) -> u64 {
        let me = self.cache_of(cpu);
        let entry = self.directory.line(line);
        let written = entry.written;
        let shape = &self.shape;
        let mut owner = None;
        let others_may_have_it;
        if entry.holder.lets(me, false) {
            others_may_have_it = entry.holder == Holder::SHARED;
        } else {
            owner = other_owner(&self.caches, shape, me, entry);
            others_may_have_it = owner.is_some();
        }
        let cache = &mut self.caches[me.index()];
        let Cache { place, sets, stats } = cache;
        if let Some(copied) = sets.bring(shape, written) {
            if copied == written.version() {
                count(&mut stats.hits);
                return self.prices.hit_ps;
            }
            count(&mut stats.misses_coherence);
        }
        let served = self.prices.fetch(entry, owner, place, stats);
        entry.add_reader(me, place.llc_bit, others_may_have_it);
        let cost_ps = self.beyond.serve(|| now, entry, cache, served);
        self.waited(cpu, cost_ps)
    }

    /// As [`CacheModel::write_others`], in one of the cases that are not usual.
    #[inline(never)]
    fn write_other(&mut self, cpu: CpuId, now: Instant, line: LineRef) -> u64 {
        let me = self.cache_of(cpu);
        let line = self.directory.line(line);
        let entry = *line;
        let owner = other_owner(&self.caches, &self.shape, me, &entry);
        let cache = &mut self.caches[me.index()];
        let Cache { place, sets, stats } = cache;
        let copied = sets.bring(&self.shape, entry.written);
        let valid = copied == Some(entry.written.version());
        if valid && entry.holder.lets(me, true) {
            count(&mut stats.hits);
            line.dirty = true;
            return self.prices.hit_ps;
        }
        let mut served = if valid {
            count(&mut stats.upgrades);
            Served {
                cost_ps: self.prices.hit_ps,
                miss: false,
                leaves_llc: false,
                leaves_bus: false,
                was_written_back: false,
            }
        } else {
            stats.misses_coherence += u64::from(copied.is_some());
            self.prices.fetch(&entry, owner, place, stats)
        };
        if owner.is_some() || entry.holder == Holder::SHARED {
            count(&mut stats.invalidations);
        }
        // The transfer of a modified line is the invalidation too.
        if entry.holder == Holder::SHARED || owner.is_some() && !entry.dirty {
            let distance = place.farthest(entry.llcs);
            let told_ps = self.prices.transfer[distance].cost_ps;
            served.cost_ps = served.cost_ps.max(told_ps);
            stats.bus_invalidations += u64::from(distance > 0 && !served.leaves_llc);
            served.leaves_llc |= distance > 0;
            served.leaves_bus |= distance > 1;
        }
        let renewed = line.become_modified(me, place.llc_bit);
        sets.set_version(self.shape.set_of(renewed), renewed);
        let cost_ps = self.beyond.serve(|| now, line, cache, served);
        self.waited(cpu, cost_ps)
    }

    /// Records that `cpu` waited for the part of an access's `cost_ps` that exceeds a hit. Returns the cost.
    #[inline(always)]
    fn waited(&mut self, cpu: CpuId, cost_ps: u64) -> u64 {
        self.wait_ps[cpu.index()] += cost_ps.saturating_sub(self.prices.hit_ps);
        cost_ps
    }

    /// A CPU of `cache` ran an application for `user_ns`, which brought lines of its own into the cache.
    /// Takes constant time: each set catches up when it is next looked at.
    #[inline]
    pub fn evict(&mut self, cache: CacheIx, user_ns: u64) {
        let sets = &mut self.caches[cache.index()].sets;
        sets.stream(&self.shape, user_ns, self.evict_lines_per_ms);
    }

    /// From now on applications take this share of a bus, in units of 1/2^32.
    pub fn load_bus(&mut self, bus: u32, share: u32) {
        if let Some(bus) = self.beyond.buses.get_mut(bus as usize) {
            bus.load(share);
        }
    }

    /// Host memory that the model occupies, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let caches = self.caches.iter();
        let sets: usize = caches.map(|cache| cache.sets.memory_bytes()).sum();
        sets + self.directory.memory_bytes()
    }
}

impl CacheIx {
    /// Returns the cache of `cpu`, which is its core's.
    pub fn of(machine: &Machine, cpu: CpuId) -> Self {
        CacheIx(machine.topology.cpu(cpu).core as u16)
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl Place {
    /// 0 = same last-level cache, 1 = same bus, 2 = another bus or node.
    fn distance_to(&self, other: &Place) -> usize {
        if self.llc == other.llc {
            0
        } else if self.bus == other.bus {
            1
        } else {
            2
        }
    }

    /// Returns the distance of the farthest last-level cache in `llcs`.
    fn farthest(&self, llcs: u64) -> usize {
        if llcs & !self.bus_bits != 0 {
            2
        } else if llcs & !self.llc_bit != 0 {
            1
        } else {
            0
        }
    }
}

/// Returns the cache that owns `line`, if it is not `me`. An owner that has evicted the line does not count.
#[inline(always)]
fn other_owner(caches: &[Cache], shape: &Shape, me: CacheIx, line: &Line) -> Option<Place> {
    let Cache { place, sets, .. } = &caches[line.holder.other_owner(me)?.index()];
    let at = shape.set_of(line.written);
    let has_it = sets.is_first(shape, at, line.written) || sets.peek(shape, line.written);
    has_it.then_some(*place)
}

impl Prices {
    /// Returns the server of a miss of `line` below the cache at `to`: its `owner` if that has it modified, the
    /// shared cache, or memory. Counts it.
    #[inline(always)]
    fn fetch(
        &self,
        line: &Line,
        owner: Option<Place>,
        to: &Place,
        stats: &mut CacheStats,
    ) -> Served {
        match owner {
            Some(owner) if line.dirty => {
                let distance = to.distance_to(&owner);
                count(&mut stats.transfers);
                if distance > 0 {
                    count(&mut stats.bus_transfers);
                }
                Served {
                    cost_ps: self.transfer[distance].cost_ps,
                    miss: true,
                    leaves_llc: distance > 0,
                    leaves_bus: distance > 1,
                    was_written_back: false,
                }
            }
            _ if self.llc_hit_ps > 0 && line.llcs & to.llc_bit != 0 => {
                count(&mut stats.from_llc);
                Served {
                    cost_ps: self.llc_hit_ps,
                    miss: true,
                    leaves_llc: false,
                    leaves_bus: false,
                    was_written_back: false,
                }
            }
            _ => {
                count(&mut stats.from_memory);
                if line.holder == Holder::UNTOUCHED {
                    count(&mut stats.misses_first);
                }
                stats.write_backs += u64::from(line.dirty);
                Served {
                    cost_ps: self.miss_ps,
                    miss: true,
                    leaves_llc: true,
                    leaves_bus: false,
                    was_written_back: line.dirty,
                }
            }
        }
    }
}

impl Beyond {
    /// Acts as [`Beyond::serve`] for a line that another cache held modified. Also returns the part of the cost that
    /// is a wait.
    #[inline(always)]
    fn transfer(
        &mut self,
        now: impl FnOnce() -> Instant,
        line: &Line,
        to: &mut Cache,
        prices: &Prices,
        distance: usize,
    ) -> Transfer {
        let counts = &mut self.by_structure[line.structure as usize];
        count(&mut counts.misses);
        count(&mut to.stats.transfers);
        if distance > 0 {
            count(&mut counts.bus_transactions);
            count(&mut to.stats.bus_transfers);
        }
        let unwatched = prices.transfer[distance];
        if distance < self.watched_from {
            return unwatched;
        }
        let bus_wait_ps = self.watch_transfer(now(), line, &to.place, distance);
        to.stats.bus_wait_ps += bus_wait_ps;
        let cost_ps = unwatched.cost_ps + bus_wait_ps;
        Transfer {
            cost_ps,
            wait_ps: cost_ps.saturating_sub(prices.hit_ps),
        }
    }

    /// Lets a transfer wait for the bus if it has to, and counts it by offset if that is asked for. Returns how long
    /// it waits.
    #[inline(never)]
    fn watch_transfer(&mut self, now: Instant, line: &Line, to: &Place, distance: usize) -> u64 {
        if self.by_offset.is_some() {
            self.count_offset(line.written.number(), true, distance > 0);
        }
        if distance == 0 || self.buses.is_empty() {
            return 0;
        }
        self.wait_for_bus(now, to.bus, distance > 1)
    }

    /// Counts an access that a cache did not serve alone, and lets it wait for the bus if it has to.
    /// Returns its cost with that wait.
    #[inline(always)]
    fn serve(
        &mut self,
        now: impl FnOnce() -> Instant,
        line: &Line,
        to: &mut Cache,
        served: Served,
    ) -> u64 {
        if self.by_offset.is_some() {
            self.count_offset(line.written.number(), served.miss, served.leaves_llc);
        }
        let counts = &mut self.by_structure[line.structure as usize];
        if served.miss {
            count(&mut counts.misses);
        }
        if served.leaves_llc {
            count(&mut counts.bus_transactions);
            if !self.buses.is_empty() {
                let now = now();
                let wait_ps = self.wait_for_bus(now, to.place.bus, served.leaves_bus);
                to.stats.bus_wait_ps += wait_ps;
                if served.was_written_back && self.writes_back {
                    // The owner did not wait for it, and this access does not now.
                    self.wait_for_bus(now, to.place.bus, false);
                }
                return served.cost_ps + wait_ps;
            }
        }
        served.cost_ps
    }

    #[cold]
    fn count_offset(&mut self, line: u32, miss: bool, leaves_llc: bool) {
        let counts = self.by_offset.as_deref_mut().unwrap_or_default();
        let place = line as usize % counts.len();
        counts[place].misses += u64::from(miss);
        counts[place].bus_transactions += u64::from(leaves_llc);
    }

    /// Books a transaction at `now`: on the bus of a cache, or on every bus. Returns how long it waits.
    fn wait_for_bus(&mut self, now: Instant, bus: u32, on_all: bool) -> u64 {
        let now_ps = now.ns() * 1_000;
        match self.buses.as_mut_slice() {
            [bus] => bus.transaction(now_ps),
            // An access that concerns caches on another bus is on all of them.
            buses if on_all => {
                let waits = buses.iter_mut().map(|bus| bus.transaction(now_ps));
                waits.max().unwrap_or_default()
            }
            buses => buses[bus as usize].transaction(now_ps),
        }
    }
}

fn place(machine: &Machine, cpu: CpuId) -> Place {
    let topology = &machine.topology;
    let bus = |cpu| machine.bus_of(cpu);
    let here = topology.cpu(cpu);
    let mut bus_bits = 0;
    for other in (0..topology.nr_cpus() as u32).map(CpuId) {
        if bus(other) == bus(cpu) {
            bus_bits |= Line::llc_bit(topology.cpu(other).llc);
        }
    }
    Place {
        llc: here.llc,
        bus: bus(cpu),
        llc_bit: Line::llc_bit(here.llc),
        bus_bits,
    }
}
