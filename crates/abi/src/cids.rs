//! Topological CPU numbers, cids (kernel/sched/ext/cid.c, cid.h, types.h of Linux 7.2): the CPUs of a core, of a last-level
//! cache and of a node have successive cids. A scheduler whose table is a `struct sched_ext_ops_cid` gets cids in place of CPUs.

use schedlab_machine::Topology;
use schedlab_trace::{CpuId, CpuSet};

/// `struct scx_cid_topo`: of a core, a cache and a node the first cid and the index; all -1 where none is known.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Topo {
    pub core_cid: i32,
    pub core_idx: i32,
    pub llc_cid: i32,
    pub llc_idx: i32,
    pub node_cid: i32,
    pub node_idx: i32,
}

impl Topo {
    pub const NONE: Topo = Topo {
        core_cid: -1,
        core_idx: -1,
        llc_cid: -1,
        llc_idx: -1,
        node_cid: -1,
        node_idx: -1,
    };
}

/// Bytes of a `struct scx_cmask` before its bits: three words, padded.
const CMASK_HEAD: usize = 16;

/// Words of bits for so many cids (`SCX_CMASK_NR_WORDS()`): one more than they take, for a base that is no multiple of 64.
const fn cmask_words(cids: usize) -> usize {
    cids.div_ceil(64) + 1
}

/// Bytes of a `struct scx_cmask` for so many cids.
pub const fn cmask_bytes(cids: usize) -> usize {
    CMASK_HEAD + cmask_words(cids) * 8
}

/// The mapping of a run.
pub struct Cids {
    to_cpu: Vec<i32>,
    of_cpu: Vec<i32>,
    topo: Vec<Topo>,
    /// Whether the scheduler gets cids (`scx_is_cid_type()`).
    pub is_form: bool,
    /// Where in the arena each CPU has a mask for `ops.set_cmask()`; null before the first one.
    pub scratch: *mut u8,
}

impl Cids {
    /// The mapping by topology (`scx_cid_init()`).
    // Model: all CPUs are online where the scheduler is loaded, so no cid is without a place.
    pub fn new(topology: &Topology, is_form: bool) -> Cids {
        let nr = topology.nr_cpus();
        let mut cids = Cids {
            to_cpu: Vec::with_capacity(nr),
            of_cpu: vec![-1; nr],
            topo: Vec::with_capacity(nr),
            is_form,
            scratch: std::ptr::null_mut(),
        };
        let (mut nodes, mut llcs, mut cores) = (0, 0, 0);
        let mut to_walk = CpuSet::all(nr);
        while let Some(first) = to_walk.first() {
            let node_cid = cids.next();
            let mut of_node = to_walk.and(&topology.node(first));
            while let Some(first) = of_node.first() {
                let llc_cid = cids.next();
                let mut of_llc = of_node.and(&topology.llc(first));
                while let Some(first) = of_llc.first() {
                    let core_cid = cids.next();
                    for cpu in of_llc.and(&topology.smt(first)).iter() {
                        cids.add(
                            cpu,
                            Topo {
                                core_cid,
                                core_idx: cores,
                                llc_cid,
                                llc_idx: llcs,
                                node_cid,
                                node_idx: nodes,
                            },
                        );
                        of_llc.remove(cpu);
                        of_node.remove(cpu);
                        to_walk.remove(cpu);
                    }
                    cores += 1;
                }
                llcs += 1;
            }
            nodes += 1;
        }
        cids
    }

    fn next(&self) -> i32 {
        self.to_cpu.len() as i32
    }

    fn add(&mut self, cpu: CpuId, topo: Topo) {
        self.of_cpu[cpu.index()] = self.next();
        self.to_cpu.push(cpu.0 as i32);
        self.topo.push(topo);
    }

    /// The CPU of a cid; none if there is no such cid.
    pub fn cpu(&self, cid: i32) -> Option<i32> {
        let index = usize::try_from(cid).ok()?;
        self.to_cpu.get(index).copied()
    }

    /// The cid of a CPU; none if there is no such CPU.
    pub fn cid(&self, cpu: i32) -> Option<i32> {
        let index = usize::try_from(cpu).ok()?;
        self.of_cpu.get(index).copied()
    }

    /// The place of a cid in the machine.
    pub fn topo(&self, cid: i32) -> Option<Topo> {
        let index = usize::try_from(cid).ok()?;
        self.topo.get(index).copied()
    }

    /// Returns the CPU or cid that an op gets for a CPU (`scx_cpu_arg()`).
    #[inline]
    pub fn argument(&self, cpu: CpuId) -> i32 {
        match self.is_form {
            true => self.of_cpu[cpu.index()],
            false => cpu.0 as i32,
        }
    }

    /// The CPU that a scheduler means by a number (`scx_cpu_ret()`). The error says that it is no cid.
    #[inline]
    pub fn meant(&self, number: i32) -> Result<i32, String> {
        match self.is_form && number >= 0 {
            true => self.cpu(number).ok_or_else(|| invalid(number)),
            false => Ok(number),
        }
    }

    /// The DSQ that a scheduler means: `SCX_DSQ_LOCAL_ON` comes with a cid or a CPU.
    #[inline]
    pub fn dsq(&self, id: u64) -> Result<u64, (u64, String)> {
        match self.is_form && id & LOCAL_ON == LOCAL_ON {
            true => self.local_on(id),
            false => Ok(id),
        }
    }

    fn local_on(&self, id: u64) -> Result<u64, (u64, String)> {
        let of = |cpu: i64| id & !u64::from(u32::MAX) | u64::from(cpu as u32);
        match self.meant(id as u32 as i32) {
            Ok(cpu) => Ok(of(cpu.into())),
            // -EINVAL, as the kernel's look-up returns: such a number is no CPU either.
            Err(what) => Err((of(-22), what)),
        }
    }

    /// `scx_bpf_cid_override()`: the cids of all CPUs. The error is the kernel's text; it leaves the first ones as they are given.
    pub fn set(&mut self, of_cpu: &[i32]) -> Result<(), String> {
        let mut seen = CpuSet::empty(self.to_cpu.len());
        for (cpu, &cid) in of_cpu.iter().enumerate() {
            if self.cpu(cid).is_none() {
                return Err(invalid(cid));
            }
            if seen.contains(CpuId(cid as u32)) {
                return Err(format!("cid {cid} assigned to multiple cpus"));
            }
            seen.insert(CpuId(cid as u32));
            self.of_cpu[cpu] = cid;
            self.to_cpu[cid as usize] = cpu as i32;
        }
        self.topo.fill(Topo::NONE);
        Ok(())
    }

    /// The bytes of the mask that `ops.set_cmask()` is given for a mask of CPUs (`scx_cpumask_to_cmask()`).
    pub fn cmask(&self, cpus: &CpuSet) -> Vec<u8> {
        let nr = self.to_cpu.len();
        let mut bits = vec![0u64; cmask_words(nr)];
        for cpu in cpus.iter() {
            let cid = self.of_cpu[cpu.index()] as usize;
            bits[cid / 64] |= 1 << (cid % 64);
        }
        let mut bytes = Vec::with_capacity(cmask_bytes(nr));
        // base, nr_cids, alloc_words, and padding.
        for word in [0, nr as u32, bits.len() as u32, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(bits.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }
}

/// `SCX_DSQ_LOCAL_ON`.
const LOCAL_ON: u64 = 3 << 62;

/// The kernel's text for a number that is no cid (`cid_valid()`).
pub fn invalid(cid: i32) -> String {
    format!("invalid cid {cid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight CPUs of two nodes; the siblings of a core are four numbers apart, as on many machines of x86.
    fn topology() -> Topology {
        // [core, llc, node] of CPUs 0 to 3, and of their siblings.
        let cores = [[0, 0, 0], [1, 2, 1], [2, 1, 0], [3, 2, 1]];
        Topology::irregular(&[cores, cores].concat()).unwrap()
    }

    /// Node 0 has the cores of CPUs 0 and 2, each with a cache of its own, and node 1 the cores of CPUs 1 and 3.
    #[test]
    fn cids_follow_nodes_caches_and_cores() {
        let cids = Cids::new(&topology(), true);
        assert_eq!(cids.to_cpu, [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(cids.of_cpu, [0, 4, 2, 6, 1, 5, 3, 7]);
        let topo = |cid| {
            let it = cids.topo(cid).unwrap();
            [
                it.core_cid,
                it.core_idx,
                it.llc_cid,
                it.llc_idx,
                it.node_cid,
                it.node_idx,
            ]
        };
        assert_eq!(topo(0), [0, 0, 0, 0, 0, 0]);
        assert_eq!(topo(3), [2, 1, 2, 1, 0, 0]);
        assert_eq!(topo(7), [6, 3, 4, 2, 4, 1]);
        assert_eq!(
            (cids.cpu(8), cids.cid(-1), cids.topo(8)),
            (None, None, None)
        );
    }

    #[test]
    fn numbers_are_cids_for_the_cid_form_alone() {
        let cids = Cids::new(&topology(), true);
        assert_eq!(cids.argument(CpuId(6)), 3);
        assert_eq!(cids.meant(3), Ok(6));
        assert_eq!(cids.meant(-5), Ok(-5));
        assert_eq!(cids.meant(8), Err("invalid cid 8".to_owned()));
        assert_eq!(cids.dsq(LOCAL_ON | 4), Ok(LOCAL_ON | 1));
        assert_eq!(cids.dsq(4), Ok(4));
        assert_eq!(cids.dsq(1 << 63 | 2), Ok(1 << 63 | 2));
        let invalid = (LOCAL_ON | 0xffff_ffea, "invalid cid 99".to_owned());
        assert_eq!(cids.dsq(LOCAL_ON | 99), Err(invalid));
        let of_cpus = Cids::new(&topology(), false);
        assert_eq!(of_cpus.argument(CpuId(6)), 6);
        assert_eq!(of_cpus.meant(99), Ok(99));
        assert_eq!(of_cpus.dsq(LOCAL_ON | 99), Ok(LOCAL_ON | 99));
    }

    #[test]
    fn a_mask_has_the_bits_of_cids() {
        let cids = Cids::new(&topology(), true);
        let mut cpus = CpuSet::empty(8);
        cpus.insert(CpuId(4));
        cpus.insert(CpuId(6));
        let bytes = cids.cmask(&cpus);
        assert_eq!(bytes.len(), cmask_bytes(8));
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        // base, nr_cids, alloc_words; cids 1 and 3.
        assert_eq!(words, [0, 8, 2, 0, 0b1010, 0, 0, 0]);
        assert_eq!(cmask_bytes(64), 32);
        assert_eq!(cmask_bytes(65), 40);
    }

    #[test]
    fn a_mapping_of_the_schedulers_own_has_no_topology() {
        let mut cids = Cids::new(&topology(), true);
        assert_eq!(cids.set(&[7, 6, 5, 4, 3, 2, 1, 0]), Ok(()));
        assert_eq!((cids.cpu(0), cids.cid(0)), (Some(7), Some(7)));
        assert_eq!(cids.topo(0), Some(Topo::NONE));
        let twice = cids.set(&[0, 1, 1, 3, 4, 5, 6, 7]);
        assert_eq!(twice, Err("cid 1 assigned to multiple cpus".to_owned()));
        let beyond = cids.set(&[8, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(beyond, Err("invalid cid 8".to_owned()));
    }
}
