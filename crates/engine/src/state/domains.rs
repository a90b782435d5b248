//! Domains of balancing: which CPUs share a core, a cache or a node, and when each CPU looks at each level next.

use std::cell::Cell;

use schedlab_machine::Topology;
use schedlab_trace::CpuId;

/// Levels of domains: threads of a core, cores of a cache, caches of a node, nodes.
pub(crate) const LEVELS: usize = 4;

/// `struct sched_group`.
pub(crate) struct Group {
    pub cpus: Vec<CpuId>,
    pub nr_cores: i64,
    /// A balance within it has left tasks waiting that may not run where there is room (`sgc->imbalance`).
    is_imbalanced: Cell<bool>,
}

/// `struct sched_domain`, one for all CPUs of the span.
pub(crate) struct Domain {
    pub groups: Vec<Group>,
    pub nr_cpus: u64,
    /// `cache_nice_tries`.
    pub nice_tries: u32,
    /// Its groups are cores with several hardware threads (`SD_SHARE_CPUCAPACITY` of the child).
    pub has_smt_groups: bool,
    /// Its groups are to have as many tasks for each core (`SD_PREFER_SIBLING` of the child).
    pub spreads: bool,
    /// Its CPUs share a last-level cache (`SD_SHARE_LLC`).
    pub shares_cache: bool,
    pub is_numa: bool,
}

/// The place of a CPU in a domain.
#[derive(Clone, Copy)]
pub(crate) struct Place<'d> {
    pub level: usize,
    pub domain: &'d Domain,
    /// The number of the CPU's own group.
    pub group: usize,
}

impl<'d> Place<'d> {
    pub fn local(&self) -> &'d Group {
        &self.domain.groups[self.group]
    }
}

/// The domains that each CPU is in. One that would have a single group is left out, as in the kernel
/// (`sd_parent_degenerate()`).
pub(crate) struct Domains {
    domains: Vec<Domain>,
    llcs: Vec<Llc>,
    /// Of each CPU and level: its domain and the place of its group there.
    places: Vec<[Option<(u32, u32)>; LEVELS]>,
    /// Up to how many tasks of a node the others may have fewer (`imb_numa_nr`).
    pub numa_imbalance: i64,
    /// Before that no idle CPU looks for tasks to take (`nohz.next_balance`).
    next_idle_balance: Cell<u64>,
}

impl Domains {
    pub fn new(topology: &Topology) -> Domains {
        let nr_cpus = topology.nr_cpus();
        let mut domains = Domains {
            domains: Vec::new(),
            llcs: (0..topology.nr_llcs()).map(|_| Llc::default()).collect(),
            next_idle_balance: Cell::new(0),
            places: vec![[None; LEVELS]; nr_cpus],
            numa_imbalance: i64::from(topology.nr_llcs() / topology.nr_nodes_with_cpus()),
        };
        for cpu in (0..nr_cpus as u32).map(CpuId) {
            let llc = topology.cpu(cpu).llc as usize;
            domains.llcs[llc].cpus.push(cpu);
        }
        let has_smt = topology.nr_cores() < nr_cpus as u32;
        for level in 0..LEVELS {
            let keys = |cpu: CpuId| {
                let number = cpu.0;
                let cpu = topology.cpu(cpu);
                match level {
                    0 => (cpu.core, number),
                    1 => (cpu.llc, cpu.core),
                    2 => (cpu.node, cpu.llc),
                    _ => (0, cpu.node),
                }
            };
            let mut all: Vec<(u32, u32, CpuId)> = (0..nr_cpus as u32)
                .map(CpuId)
                .map(|cpu| (keys(cpu).0, keys(cpu).1, cpu))
                .collect();
            all.sort_unstable();
            for span in all.chunk_by(|a, b| a.0 == b.0) {
                let groups: Vec<Group> = span
                    .chunk_by(|a, b| a.1 == b.1)
                    .map(|group| Group::new(topology, group.iter().map(|&(.., cpu)| cpu)))
                    .collect();
                if groups.len() < 2 {
                    continue;
                }
                let place = domains.domains.len() as u32;
                for (number, group) in groups.iter().enumerate() {
                    for &cpu in &group.cpus {
                        domains.places[cpu.index()][level] = Some((place, number as u32));
                    }
                }
                domains.domains.push(Domain {
                    nr_cpus: span.len() as u64,
                    nice_tries: [0, 1, 1, 2][level],
                    has_smt_groups: level == 1 && groups.iter().any(|group| group.cpus.len() > 1),
                    spreads: level > 1 || level == 1 && has_smt,
                    shares_cache: level < 2,
                    is_numa: level == 3,
                    groups,
                });
            }
        }
        domains
    }
}

impl Domains {
    /// A last-level cache by its number.
    pub fn llc(&self, llc: u32) -> &Llc {
        &self.llcs[llc as usize]
    }

    /// Returns whether idle CPUs look for tasks at `now`.
    pub fn idle_balance_is_due(&self, now: u64) -> bool {
        now >= self.next_idle_balance.get()
    }

    pub fn set_next_idle_balance(&self, time: u64) {
        self.next_idle_balance.set(time);
    }

    /// The places of a CPU, the smallest domain first.
    pub fn of(&self, cpu: CpuId) -> impl Iterator<Item = Place<'_>> {
        let places = self.places[cpu.index()].iter().enumerate();
        places.filter_map(|(level, place)| {
            let (domain, group) = (*place)?;
            Some(Place {
                level,
                domain: &self.domains[domain as usize],
                group: group as usize,
            })
        })
    }
}

/// A last-level cache (`struct sched_domain_shared`).
#[derive(Default)]
pub(crate) struct Llc {
    pub cpus: Vec<CpuId>,
    /// How many of them a wakeup looks at for an idle one, …
    nr_idle_scan: Cell<usize>,
    /// … and until when.
    scan_due: Cell<u64>,
}

impl Llc {
    pub fn nr_idle_scan(&self) -> usize {
        self.nr_idle_scan.get()
    }

    pub fn idle_scan_is_due(&self, now: u64) -> bool {
        now >= self.scan_due.get()
    }

    /// Wakeups look at so many CPUs for 1 ms for each CPU from `now` on (`update_idle_cpu_scan()`).
    pub fn update_idle_scan(&self, now: u64, nr: usize) {
        self.scan_due.set(now + self.cpus.len() as u64 * 1_000_000);
        self.nr_idle_scan.set(nr);
    }
}

impl Group {
    reads! { is_imbalanced: bool }

    sets! {
        set_imbalanced(is_imbalanced: bool): is_imbalanced = is_imbalanced;
    }

    pub fn new(topology: &Topology, cpus: impl Iterator<Item = CpuId>) -> Group {
        let cpus: Vec<CpuId> = cpus.collect();
        let mut cores: Vec<u32> = cpus.iter().map(|&cpu| topology.cpu(cpu).core).collect();
        cores.sort_unstable();
        cores.dedup();
        Group {
            cpus,
            nr_cores: cores.len() as i64,
            is_imbalanced: Cell::new(false),
        }
    }
}

/// The state of a CPU for each level.
#[derive(Default)]
pub(crate) struct Attempts([Attempt; LEVELS]);

impl Attempts {
    pub fn at(&self, level: usize) -> &Attempt {
        &self.0[level]
    }
}

#[derive(Default)]
pub(crate) struct Attempt {
    /// When it looks next (`last_balance` and `balance_interval`).
    due: Cell<u64>,
    /// Attempts in a row that found a busier group, but nothing that waits (`nr_balance_failed`).
    failed: Cell<u32>,
}

impl Attempt {
    reads! { due: u64 }

    sets! {
        set_due(time: u64): due = time;
        succeed(): failed = 0;
    }

    /// Counts an attempt that found nothing that waits. Returns how many there were in a row.
    pub fn fail(&self) -> u32 {
        self.failed.set(self.failed.get() + 1);
        self.failed.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_follow_the_topology_and_not_the_numbering() {
        // Two nodes of two caches with two cores of two threads.
        let topology = Topology::new(2, 2, 2, 2);
        let domains = Domains::new(&topology);
        let shape = |domains: &Domains| {
            let mut shapes: Vec<_> = domains
                .domains
                .iter()
                .map(|domain| (domain.nr_cpus, domain.groups.len(), domain.has_smt_groups))
                .collect();
            shapes.sort_unstable();
            shapes
        };
        let cores = [(2, 2, false); 8];
        let caches = [(4, 2, true); 4];
        let nodes = [(8, 2, false); 2];
        let expected: Vec<_> = cores
            .into_iter()
            .chain(caches)
            .chain(nodes)
            .chain([(16, 2, false)])
            .collect();
        assert_eq!(shape(&domains), expected);
        let mut triples = topology.triples();
        triples.sort_unstable();
        let adjacent = Topology::irregular(&triples).unwrap();
        assert_eq!(shape(&Domains::new(&adjacent)), expected);
        // One thread a core, one cache: its cores are the only groups, and nothing prefers siblings.
        let plain = Domains::new(&Topology::new(1, 1, 4, 1));
        assert_eq!(shape(&plain), [(4, 4, false)]);
        assert!(!plain.domains[0].spreads);
    }
}
