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

    /// One `[core, llc, node]` for each CPU, for machines that are not regular.
    pub fn irregular(triples: &[[u32; 3]]) -> Result<Self, String> {
        let cpus: Vec<Cpu> = triples
            .iter()
            .map(|&[core, llc, node]| Cpu { core, llc, node })
            .collect();
        for (index, a) in cpus.iter().enumerate() {
            if [a.core, a.llc, a.node]
                .iter()
                .any(|&number| number as usize >= cpus.len())
            {
                return Err(format!(
                    "CPU {index}: cores, llcs and nodes are numbered from 0 and there cannot be more than CPUs"
                ));
            }
            for b in &cpus[..index] {
                if a.core == b.core && a.llc != b.llc {
                    return Err(format!("core {} is in two last-level caches", a.core));
                }
                if a.llc == b.llc && a.node != b.node {
                    return Err(format!("last-level cache {} is in two nodes", a.llc));
                }
            }
        }
        Ok(Topology { cpus })
    }

    /// `[nodes, llcs a node, cores an llc, threads a core]` if [`Topology::new`] makes this topology of it.
    pub fn regular(&self) -> Option<[u32; 4]> {
        let (nodes, llcs, cores) = (self.nr_nodes(), self.nr_llcs(), self.nr_cores());
        let shape = [
            nodes,
            llcs / nodes,
            cores / llcs,
            self.nr_cpus() as u32 / cores,
        ];
        let [nodes, llcs, cores, threads] = shape;
        (Topology::new(nodes, llcs, cores, threads) == *self).then_some(shape)
    }

    /// `[core, llc, node]` of each CPU.
    pub fn triples(&self) -> Vec<[u32; 3]> {
        let triple = |cpu: &Cpu| [cpu.core, cpu.llc, cpu.node];
        self.cpus.iter().map(triple).collect()
    }

    /// One above the highest core number.
    pub fn nr_cores(&self) -> u32 {
        1 + self.cpus.iter().map(|cpu| cpu.core).max().unwrap_or(0)
    }

    /// One above the highest number of a last-level cache.
    pub fn nr_llcs(&self) -> u32 {
        1 + self.cpus.iter().map(|cpu| cpu.llc).max().unwrap_or(0)
    }

    /// One above the highest node number.
    pub fn nr_nodes(&self) -> u32 {
        1 + self.cpus.iter().map(|cpu| cpu.node).max().unwrap_or(0)
    }

    /// Returns the first `n` CPUs, as the kernel's `maxcpus=` leaves them.
    pub fn limited(&self, n: usize) -> Self {
        Topology {
            cpus: self.cpus[..n].to_vec(),
        }
    }

    /// Returns the number of CPUs.
    pub fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Where `cpu` sits.
    pub fn cpu(&self, cpu: CpuId) -> Cpu {
        self.cpus[cpu.index()]
    }

    /// Returns the CPUs for which `same` holds, `cpu` included.
    fn peers(&self, cpu: CpuId, same: impl Fn(Cpu, Cpu) -> bool) -> CpuSet {
        let mut set = CpuSet::empty(self.nr_cpus());
        for (index, &other) in self.cpus.iter().enumerate() {
            if same(self.cpu(cpu), other) {
                set.insert(CpuId(index as u32));
            }
        }
        set
    }

    /// Returns the hardware threads of `cpu`'s core.
    pub fn smt(&self, cpu: CpuId) -> CpuSet {
        self.peers(cpu, |a, b| a.core == b.core)
    }

    /// Returns the CPUs that share `cpu`'s last-level cache.
    pub fn llc(&self, cpu: CpuId) -> CpuSet {
        self.peers(cpu, |a, b| a.llc == b.llc)
    }

    /// Returns the CPUs of `cpu`'s NUMA node.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_threads_are_numbered_after_all_cores() {
        let two_sockets = Topology::new(2, 1, 6, 2);
        assert_eq!(two_sockets.nr_cpus(), 24);
        assert_eq!(two_sockets.smt(CpuId(3)).to_string(), "3,15");
        assert_eq!(two_sockets.llc(CpuId(0)).to_string(), "0-5,12-17");
        let reach = |a, b| two_sockets.reach(CpuId(a), CpuId(b));
        assert_eq!(reach(0, 12), MigrationReach::Smt);
        assert_eq!(reach(0, 5), MigrationReach::Llc);
        assert_eq!(reach(0, 6), MigrationReach::Remote);
        assert_eq!(
            Topology::new(1, 2, 2, 1).reach(CpuId(0), CpuId(2)),
            MigrationReach::Node
        );
    }

    #[test]
    fn regular_shapes_are_recognised() {
        for shape in [[1, 1, 1, 1], [2, 1, 6, 2], [1, 8, 1, 1], [2, 12, 8, 2]] {
            let [a, b, c, d] = shape;
            assert_eq!(Topology::new(a, b, c, d).regular(), Some(shape));
        }
        let hybrid = [[0, 0, 0], [0, 0, 0], [1, 0, 0]];
        let topology = Topology::irregular(&hybrid).unwrap();
        assert_eq!(topology.regular(), None);
        assert_eq!(topology.triples(), hybrid);
    }

    #[test]
    fn a_core_cannot_be_in_two_caches() {
        assert!(Topology::irregular(&[[0, 0, 0], [0, 1, 0]]).is_err());
        assert!(Topology::irregular(&[[0, 0, 0], [1, 0, 1]]).is_err());
        assert!(Topology::irregular(&[[7, 0, 0]]).is_err());
    }
}
