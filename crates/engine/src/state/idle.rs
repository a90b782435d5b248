//! The idle masks of sched_ext's built-in tracking.

use schedlab_machine::{Machine, Topology};
use schedlab_trace::{CpuId, CpuSet};

use crate::contract::consts::{ops, pick_idle, wake};
use crate::contract::version::KernelVersion;
use crate::state::cpu::Cpu;

/// Idle CPUs, and the CPUs of wholly idle cores; one pair for the machine or one per node.
struct Masks {
    cpu: CpuSet,
    smt: CpuSet,
}

/// The idle masks and what they need to know of the machine.
pub(crate) struct IdleMasks {
    enabled: bool,
    per_node: bool,
    has_smt: bool,
    masks: Vec<Masks>,
    /// CPUs in all the masks of idle ones.
    nr_idle: usize,
    node_of: Vec<u32>,
    /// `cpu_smt_mask()` of each CPU: of its core, those online; of one that is offline, none.
    smt: Vec<CpuSet>,
    core_of: Vec<u32>,
    cores: Vec<CpuSet>,
    llc: Vec<CpuSet>,
    node: Vec<CpuSet>,
    llc_of: Vec<u32>,
    /// `scx_selcpu_topo_llc` and `scx_selcpu_topo_numa`.
    topo_llc: bool,
    topo_numa: bool,
    /// Of each node the others, the nearest first.
    other_nodes: Vec<Vec<usize>>,
    wakes_on_wakers_cpu: bool,
    /// See [`KernelVersion::prefers_idle_siblings`].
    prefers_siblings: bool,
}

/// One set per group of CPUs, indexed by the group's number.
fn groups(topology: &Topology, of: impl Fn(CpuId) -> u32) -> Vec<CpuSet> {
    let nr_cpus = topology.nr_cpus();
    let cpus = || (0..nr_cpus as u32).map(CpuId);
    let nr_groups = cpus().map(|cpu| of(cpu) + 1).max().unwrap_or(0);
    let mut sets = vec![CpuSet::empty(nr_cpus); nr_groups as usize];
    for cpu in cpus() {
        sets[of(cpu) as usize].insert(cpu);
    }
    sets
}

/// The CPUs of each node; there may be nodes without any.
fn nodes(topology: &Topology) -> Vec<CpuSet> {
    let mut sets = groups(topology, |cpu| topology.cpu(cpu).node);
    let nr_nodes = topology.nr_nodes() as usize;
    sets.resize(nr_nodes, CpuSet::empty(topology.nr_cpus()));
    sets
}

fn other_nodes(topology: &Topology) -> Vec<Vec<usize>> {
    let nodes = 0..topology.nr_nodes();
    let others = |node: u32| {
        let mut others: Vec<u32> = nodes.clone().filter(|&other| other != node).collect();
        others.sort_by_key(|&other| topology.distance(node, other));
        others.into_iter().map(|other| other as usize).collect()
    };
    nodes.clone().map(others).collect()
}

impl IdleMasks {
    pub fn new(machine: &Machine) -> Self {
        let topology = &machine.topology;
        let nr_cpus = topology.nr_cpus();
        let cpus = || (0..nr_cpus as u32).map(CpuId);
        let cores = groups(topology, |cpu| topology.cpu(cpu).core);
        IdleMasks {
            enabled: false,
            per_node: false,
            has_smt: cores.iter().any(|core| core.len() > 1),
            masks: Vec::new(),
            nr_idle: 0,
            node_of: cpus().map(|cpu| topology.cpu(cpu).node).collect(),
            smt: cpus()
                .map(|cpu| cores[topology.cpu(cpu).core as usize].clone())
                .collect(),
            core_of: cpus().map(|cpu| topology.cpu(cpu).core).collect(),
            cores,
            llc: groups(topology, |cpu| topology.cpu(cpu).llc),
            node: nodes(topology),
            llc_of: cpus().map(|cpu| topology.cpu(cpu).llc).collect(),
            topo_llc: false,
            topo_numa: false,
            other_nodes: other_nodes(topology),
            prefers_siblings: false,
            wakes_on_wakers_cpu: true,
        }
    }

    /// `scx_idle_enable()` and `scx_idle_update_selcpu_topology()`.
    pub fn enable(
        &mut self,
        version: KernelVersion,
        has_update_idle: bool,
        flags: u64,
        online: &CpuSet,
    ) {
        self.prefers_siblings = version.prefers_idle_siblings();
        self.wakes_on_wakers_cpu = version.wakes_on_wakers_cpu();
        self.enabled = !has_update_idle || flags & ops::KEEP_BUILTIN_IDLE != 0;
        self.per_node = flags & ops::BUILTIN_IDLE_PER_NODE != 0;
        let spans = if self.per_node {
            self.node.clone()
        } else {
            vec![online.clone()]
        };
        self.masks = spans
            .iter()
            .map(|span| Masks {
                cpu: span.and(online),
                smt: span.and(online),
            })
            .collect();
        self.nr_idle = self.masks.iter().map(|masks| masks.cpu.len()).sum();
        self.update_topology(online);
    }

    /// `scx_idle_update_selcpu_topology()`.
    pub fn update_topology(&mut self, online: &CpuSet) {
        let nr_online = online.len();
        let Some(first) = online.first() else { return };
        let llc_weight = |cpu: CpuId| {
            self.llc[self.llc_of[cpu.index()] as usize]
                .and(online)
                .len()
        };
        let numa_weight = |cpu: CpuId| {
            self.node[self.node_of[cpu.index()] as usize]
                .and(online)
                .len()
        };
        self.topo_llc = llc_weight(first) < nr_online;
        let mismatch = online.iter().any(|cpu| llc_weight(cpu) != numa_weight(cpu));
        self.topo_numa = !self.per_node && numa_weight(first) < nr_online && mismatch;
    }

    /// `scx_builtin_idle_enabled`.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// One pair of masks for each node (`SCX_OPS_BUILTIN_IDLE_PER_NODE`).
    pub fn is_per_node(&self) -> bool {
        self.per_node
    }

    /// Pairs of masks.
    pub fn nr_masks(&self) -> usize {
        self.masks.len()
    }

    /// No CPU is idle.
    pub fn has_none(&self) -> bool {
        self.nr_idle == 0
    }

    /// The idle CPUs of a pair of masks; `smt`: those of wholly idle cores. Without SMT the kernel answers with the
    /// mask of idle CPUs.
    pub fn mask(&self, mask: usize, smt: bool) -> &CpuSet {
        let masks = &self.masks[mask];
        if smt && self.has_smt {
            &masks.smt
        } else {
            &masks.cpu
        }
    }

    /// The CPUs of a node.
    pub fn cpus_of_node(&self, node: usize) -> &CpuSet {
        &self.node[node]
    }

    pub fn mask_of(&self, cpu: CpuId) -> usize {
        if self.per_node {
            self.node_of[cpu.index()] as usize
        } else {
            0
        }
    }

    /// `cpu_smt_mask()` has the hardware threads that are online; the mask of an offline CPU is empty
    /// (`remove_siblinginfo()`).
    pub fn update_siblings(&mut self, online: &CpuSet) {
        let nr_cpus = self.smt.len();
        for (cpu, (smt, &core)) in self.smt.iter_mut().zip(&self.core_of).enumerate() {
            *smt = if online.contains(CpuId(cpu as u32)) {
                self.cores[core as usize].and(online)
            } else {
                CpuSet::empty(nr_cpus)
            };
        }
    }

    /// `scx_idle_test_and_clear_cpu()`: claims `cpu` if it is idle.
    pub fn test_and_clear(&mut self, cpu: CpuId) -> bool {
        let mask = self.mask_of(cpu);
        let masks = &mut self.masks[mask];
        if self.has_smt {
            masks.smt.remove_all(&self.smt[cpu.index()]);
        }
        let idle = masks.cpu.contains(cpu);
        if idle {
            masks.cpu.remove(cpu);
            self.nr_idle -= 1;
        }
        idle
    }

    /// `cpu` is gone: it is in no mask of idle CPUs.
    pub fn forget(&mut self, cpu: CpuId) {
        if !self.masks.is_empty() {
            self.test_and_clear(cpu);
        }
    }

    /// `update_builtin_idle()`.
    pub fn update(&mut self, cpu: CpuId, idle: bool) {
        let mask = self.mask_of(cpu);
        let masks = &mut self.masks[mask];
        match (idle, masks.cpu.contains(cpu)) {
            (true, false) => {
                masks.cpu.insert(cpu);
                self.nr_idle += 1;
            }
            (false, true) => {
                masks.cpu.remove(cpu);
                self.nr_idle -= 1;
            }
            (true, true) | (false, false) => {}
        }
        if self.has_smt {
            let core = &self.smt[cpu.index()];
            if !idle {
                masks.smt.remove_all(core);
            } else if core.is_subset(&masks.cpu) {
                masks.smt.insert_all(core);
            }
        }
    }

    /// `pick_idle_cpu_in_node()`: `start` is where the search begins (`cpumask_any_and_distribute()`).
    fn pick_in_mask(
        &mut self,
        allowed: &CpuSet,
        mask: usize,
        flags: u64,
        start: &Cpu,
    ) -> Option<CpuId> {
        loop {
            let masks = &self.masks[mask];
            let mut found = None;
            if self.has_smt {
                found = start.any_and_distribute(&masks.smt, allowed);
                if found.is_none() && flags & pick_idle::CORE != 0 {
                    return None;
                }
            }
            let cpu = found.or_else(|| start.any_and_distribute(&masks.cpu, allowed))?;
            if self.test_and_clear(cpu) {
                return Some(cpu);
            }
        }
    }

    /// `scx_pick_idle_cpu()`, beginning in the node of `node`.
    pub fn pick(
        &mut self,
        allowed: &CpuSet,
        node: usize,
        flags: u64,
        start: &Cpu,
    ) -> Option<CpuId> {
        let found = self.pick_in_mask(allowed, node, flags, start);
        if found.is_some() || !self.per_node || flags & pick_idle::IN_NODE != 0 {
            return found;
        }
        // pick_idle_cpu_from_online_nodes(): the nearest first, among equals in the order of their numbers.
        let others = self.other_nodes[node].clone();
        let mut others = others.into_iter();
        others.find_map(|other| self.pick_in_mask(allowed, other, flags, start))
    }

    /// `scx_select_cpu_dfl()`. `allowed` is what the task may use; `all` says that this is every CPU.
    #[allow(
        clippy::too_many_arguments,
        reason = "the kernel's, and what it finds in globals"
    )]
    pub fn select(
        &mut self,
        this: &Cpu,
        prev: CpuId,
        prev_allowed: bool,
        wake_flags: u64,
        allowed: &CpuSet,
        all: bool,
        flags: u64,
        waker_exiting: bool,
        waker_local_nr: u32,
    ) -> Option<CpuId> {
        // No CPU idles anywhere: nothing below can find one.
        if self.nr_idle == 0 {
            return None;
        }
        let node = self.mask_of(prev);
        let span = |sets: &[CpuSet], of: &[u32]| {
            let span = &sets[of[prev.index()] as usize];
            if all {
                return Some(span.clone());
            }
            let common = span.and(allowed);
            (!common.is_empty()).then_some(common)
        };
        let numa = if self.topo_numa {
            span(&self.node, &self.node_of)
        } else {
            None
        };
        let llc = if self.topo_llc {
            span(&self.llc, &self.llc_of)
        } else {
            None
        };
        if wake_flags & wake::SYNC != 0 {
            let shares_cache = self.llc_of[this.id.index()] == self.llc_of[prev.index()];
            if prev_allowed && shares_cache && self.test_and_clear(prev) {
                return Some(prev);
            }
            let waker_node = self.mask_of(this.id);
            if (self.wakes_on_wakers_cpu || self.per_node)
                && !waker_exiting
                && waker_local_nr == 0
                && (flags & pick_idle::IN_NODE == 0 || waker_node == node)
                && !self.masks[waker_node].cpu.is_empty()
                && allowed.contains(this.id)
            {
                // 6.18 goes there without claiming it.
                if self.wakes_on_wakers_cpu {
                    self.test_and_clear(this.id);
                }
                return Some(this.id);
            }
        }
        if self.has_smt {
            if prev_allowed && self.masks[node].smt.contains(prev) && self.test_and_clear(prev) {
                return Some(prev);
            }
            for near in [&llc, &numa].into_iter().flatten() {
                let found = self.pick_in_mask(near, node, pick_idle::CORE, this);
                if found.is_some() {
                    return found;
                }
            }
            let found = self.pick(allowed, node, flags | pick_idle::CORE, this);
            if found.is_some() || flags & pick_idle::CORE != 0 {
                return found;
            }
        }
        if prev_allowed && self.test_and_clear(prev) {
            return Some(prev);
        }
        if self.has_smt && self.prefers_siblings {
            let core = self.smt[prev.index()].and(allowed);
            for sibling in core.iter().filter(|&cpu| cpu != prev) {
                if self.test_and_clear(sibling) {
                    return Some(sibling);
                }
            }
        }
        for near in [&llc, &numa].into_iter().flatten() {
            let found = self.pick_in_mask(near, node, 0, this);
            if found.is_some() {
                return found;
            }
        }
        self.pick(allowed, node, flags, this)
    }
}
