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

/// How a regular machine numbers its CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Numbering {
    /// First one hardware thread of every core, then the second ones (most x86 machines).
    #[default]
    ThreadsLast,
    /// All hardware threads of a core, then those of the next one (POWER).
    CoreByCore,
}

/// Distance of a node to itself in the firmware's table (`LOCAL_DISTANCE`, ACPI's SLIT).
pub const LOCAL_DISTANCE: u32 = 10;

/// The CPUs of a machine, and what is known of its caches and nodes as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    cpus: Vec<Cpu>,
    /// Of each pair of nodes, [`LOCAL_DISTANCE`] being that of a node to itself; none: all are equally far.
    pub(crate) distances: Vec<Vec<u32>>,
    /// The nodes that have no memory of their own.
    pub(crate) nodes_without_memory: Vec<u32>,
    /// Bytes of each last-level cache, or one number for all of them; none: unknown.
    pub(crate) llc_bytes: Vec<u64>,
}

impl Topology {
    fn of(cpus: Vec<Cpu>) -> Self {
        Topology {
            cpus,
            distances: Vec::new(),
            nodes_without_memory: Vec::new(),
            llc_bytes: Vec::new(),
        }
    }

    /// `nodes` NUMA nodes with `llcs` last-level caches each, `cores` cores a cache and `threads` hardware threads a core,
    /// numbered as most x86 machines are.
    pub fn new(nodes: u32, llcs: u32, cores: u32, threads: u32) -> Self {
        Topology::numbered([nodes, llcs, cores, threads], Numbering::ThreadsLast)
    }

    /// The same, of `[nodes, llcs a node, cores an llc, threads a core]`, with another numbering.
    pub fn numbered([nodes, llcs, cores, threads]: [u32; 4], numbering: Numbering) -> Self {
        let nr_cores = nodes * llcs * cores;
        let at = |core: u32| Cpu {
            core,
            llc: core / cores,
            node: core / cores / llcs,
        };
        let cpus = 0..nr_cores * threads;
        Topology::of(match numbering {
            Numbering::ThreadsLast => cpus.map(|cpu| at(cpu % nr_cores)).collect(),
            Numbering::CoreByCore => cpus.map(|cpu| at(cpu / threads)).collect(),
        })
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
        Ok(Topology::of(cpus))
    }

    /// `[nodes, llcs a node, cores an llc, threads a core]` and the numbering, if [`Topology::numbered`] makes these CPUs
    /// of them.
    pub fn regular(&self) -> Option<([u32; 4], Numbering)> {
        let (llcs, cores) = (self.nr_llcs(), self.nr_cores());
        let nodes = self.nr_nodes_with_cpus();
        let shape = [
            nodes,
            llcs / nodes,
            cores / llcs,
            self.nr_cpus() as u32 / cores,
        ];
        let numberings = [Numbering::ThreadsLast, Numbering::CoreByCore];
        let makes = |&numbering: &Numbering| Topology::numbered(shape, numbering).cpus == self.cpus;
        let found = numberings.into_iter().find(makes)?;
        Some((shape, found))
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

    /// One above the highest number of a node with a CPU.
    pub fn nr_nodes_with_cpus(&self) -> u32 {
        1 + self.cpus.iter().map(|cpu| cpu.node).max().unwrap_or(0)
    }

    /// Returns one above the highest node number, nodes without CPUs included (`nr_node_ids`).
    pub fn nr_nodes(&self) -> u32 {
        self.nr_nodes_with_cpus().max(self.distances.len() as u32)
    }

    /// Returns the first `n` CPUs, as the kernel's `maxcpus=` leaves them.
    pub fn limited(&self, n: usize) -> Self {
        Topology {
            cpus: self.cpus[..n].to_vec(),
            ..self.clone()
        }
    }

    /// How far `b` is from `a`, of [`LOCAL_DISTANCE`] for a node itself (`node_distance()`). Twice that where the machine
    /// does not say, as the kernel assumes (`REMOTE_DISTANCE`).
    pub fn distance(&self, a: u32, b: u32) -> u32 {
        let known = self.distances.get(a as usize);
        match known.and_then(|row| row.get(b as usize)) {
            Some(&distance) => distance,
            None if a == b => LOCAL_DISTANCE,
            None => 2 * LOCAL_DISTANCE,
        }
    }

    /// The least distance between two nodes.
    pub fn distance_min(&self) -> u32 {
        let rows = self.distances.iter().enumerate();
        let others = rows.flat_map(|(a, row)| {
            let row = row.iter().enumerate();
            row.filter(move |&(b, _)| a != b).map(|(_, &far)| far)
        });
        others.min().unwrap_or(2 * LOCAL_DISTANCE)
    }

    /// Whether `node` has memory.
    pub fn has_memory(&self, node: u32) -> bool {
        !self.nodes_without_memory.contains(&node)
    }

    /// The nearest node to `node` that has memory: itself, or where that has none another one; the lowest of equals.
    pub fn memory_of(&self, node: u32) -> u32 {
        let with_memory = (0..self.nr_nodes()).filter(|&other| self.has_memory(other));
        let nearest = with_memory.min_by_key(|&other| (other != node, self.distance(node, other)));
        nearest.unwrap_or(node)
    }

    /// Bytes of a last-level cache; none if the profile does not say.
    pub fn llc_bytes(&self, llc: u32) -> Option<u64> {
        match self.llc_bytes[..] {
            [all] => Some(all),
            ref each => each.get(llc as usize).copied(),
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
            let all = (shape, Numbering::ThreadsLast);
            assert_eq!(Topology::new(a, b, c, d).regular(), Some(all));
        }
        let power = Topology::numbered([2, 1, 3, 4], Numbering::CoreByCore);
        assert_eq!(power.regular(), Some(([2, 1, 3, 4], Numbering::CoreByCore)));
        assert_eq!(power.smt(CpuId(5)).to_string(), "4-7");
        assert_eq!(power.node(CpuId(12)).to_string(), "12-23");
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

    #[test]
    fn nodes_differ_in_distance_and_memory() {
        // Two nodes with CPUs, the second without memory, and a third with memory alone.
        let mut topology = Topology::new(2, 1, 1, 1);
        assert_eq!(topology.distance(0, 1), 20);
        assert_eq!((topology.distance(1, 1), topology.distance_min()), (10, 20));
        assert_eq!(topology.memory_of(1), 1);
        topology.distances = vec![vec![10, 16, 28], vec![16, 10, 12], vec![28, 12, 10]];
        topology.nodes_without_memory = vec![1];
        assert_eq!(topology.nr_nodes(), 3);
        assert_eq!(
            topology.regular(),
            Some(([2, 1, 1, 1], Numbering::ThreadsLast))
        );
        assert_eq!((topology.distance(0, 2), topology.distance_min()), (28, 12));
        assert_eq!([0, 1, 2].map(|node| topology.memory_of(node)), [0, 2, 2]);
    }

    #[test]
    fn caches_have_one_size_or_each_its_own() {
        let mut topology = Topology::new(1, 2, 1, 1);
        assert_eq!(topology.llc_bytes(1), None);
        topology.llc_bytes = vec![1 << 20];
        assert_eq!(topology.llc_bytes(1), Some(1 << 20));
        topology.llc_bytes = vec![3 << 20, 1 << 20];
        assert_eq!(topology.llc_bytes(1), Some(1 << 20));
        assert_eq!(topology.limited(1).llc_bytes(0), Some(3 << 20));
    }
}
