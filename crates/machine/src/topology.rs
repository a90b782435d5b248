//! Which CPUs share a core, a last-level cache, a NUMA node.

use schedlab_trace::{CpuId, CpuSet, MigrationReach};

/// Where one logical CPU sits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpu {
    /// Physical core, numbered machine-wide.
    pub core: u32,
    /// Last-level cache, numbered machine-wide.
    pub llc: u32,
    /// NUMA node.
    pub node: u32,
}

/// The CPUs of a machine, numbered as Linux does on such machines: first one hardware thread of
/// every core, then the second ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    cpus: Vec<Cpu>,
}

impl Topology {
    /// `nodes` NUMA nodes with `llcs` last-level caches each, `cores` cores a cache and `threads` hardware threads a core.
    pub fn new(nodes: u32, llcs: u32, cores: u32, threads: u32) -> Self {
        let mut cpus = Vec::new();
        for _thread in 0..threads {
            for core in 0..nodes * llcs * cores {
                let llc = core / cores;
                cpus.push(Cpu {
                    core,
                    llc,
                    node: llc / llcs,
                });
            }
        }
        Topology { cpus }
    }

    /// The first `n` CPUs, as the kernel's `maxcpus=` leaves them.
    pub fn limited(&self, n: usize) -> Self {
        Topology {
            cpus: self.cpus[..n].to_vec(),
        }
    }

    /// The number of CPUs.
    pub fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Where `cpu` sits.
    pub fn cpu(&self, cpu: CpuId) -> Cpu {
        self.cpus[cpu.index()]
    }

    /// The CPUs for which `same` holds, `cpu` included.
    fn peers(&self, cpu: CpuId, same: impl Fn(Cpu, Cpu) -> bool) -> CpuSet {
        let mut set = CpuSet::empty(self.nr_cpus());
        for (index, &other) in self.cpus.iter().enumerate() {
            if same(self.cpu(cpu), other) {
                set.insert(CpuId(index as u32));
            }
        }
        set
    }

    /// The hardware threads of `cpu`'s core.
    pub fn smt(&self, cpu: CpuId) -> CpuSet {
        self.peers(cpu, |a, b| a.core == b.core)
    }

    /// The CPUs that share `cpu`'s last-level cache.
    pub fn llc(&self, cpu: CpuId) -> CpuSet {
        self.peers(cpu, |a, b| a.llc == b.llc)
    }

    /// The CPUs of `cpu`'s NUMA node.
    pub fn node(&self, cpu: CpuId) -> CpuSet {
        self.peers(cpu, |a, b| a.node == b.node)
    }

    /// How far it is from one CPU to another, different one.
    pub fn reach(&self, from: CpuId, to: CpuId) -> MigrationReach {
        let (a, b) = (self.cpu(from), self.cpu(to));
        if a.core == b.core {
            MigrationReach::Smt
        } else if a.llc == b.llc {
            MigrationReach::Llc
        } else if a.node == b.node {
            MigrationReach::Node
        } else {
            MigrationReach::Remote
        }
    }
}
