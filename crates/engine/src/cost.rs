//! Cost arithmetic. The numbers come from the machine profile alone.

use schedlab_machine::{CAPACITY_SCALE, CoreTraits, Machine, address};
use schedlab_trace::{CpuId, CpuMode, MigrationReach, Recorder};

use crate::cpu::{Cpu, Wait, wall_ns};
use crate::event_queue::CpuEvent;
use crate::kernel::Kernel;
use crate::policy::Policy;
use crate::task::Task;

/// Numbers derived once from a profile.
pub(crate) struct Costs {
    pub tick_period_ns: u64,
    /// Taking a free lock, without the access to its line.
    pub lock_ps: u64,
    /// The other hardware threads of each CPU's core.
    pub siblings: Vec<Vec<CpuId>>,
    /// What each CPU has of its own.
    pub traits: Vec<CoreTraits>,
    /// Cores differ in capacity (`sched_asym_cpucap_active()`).
    pub is_asymmetric: bool,
    /// Who does not fit into the last-level cache is slower.
    watches_llcs: bool,
}

/// Speed of a core of full capacity that nobody shares: capacity times percent.
pub(crate) const FULL_SPEED: u32 = CAPACITY_SCALE * 100;

impl Costs {
    pub fn new(machine: &Machine) -> Self {
        let nr_cpus = machine.topology.nr_cpus();
        let traits = machine.core_traits();
        let is_asymmetric = traits.iter().any(|one| one.capacity != traits[0].capacity);
        let siblings = (0..nr_cpus as u32)
            .map(CpuId)
            .map(|cpu| {
                let core = machine.topology.smt(cpu);
                core.iter().filter(|&other| other != cpu).collect()
            })
            .collect();
        Costs {
            tick_period_ns: 1_000_000_000 / u64::from(machine.hz.max(1)),
            lock_ps: machine.memory.atomic_ps + machine.locks.meter_ns * 1_000,
            siblings,
            traits,
            is_asymmetric,
            watches_llcs: machine.interference.beyond_llc_pct.is_some(),
        }
    }

    /// See [`Cpu::slowed_by`].
    pub fn slowed_by(&self, cpu: CpuId) -> &[CpuId] {
        let shares = &self.traits[cpu.index()].shares_pct;
        if shares.iter().all(|&pct| pct == 100) {
            return &[];
        }
        &self.siblings[cpu.index()]
    }

    /// See [`Cpu::is_plain`].
    pub fn is_plain(&self, cpu: CpuId) -> bool {
        self.slowed_by(cpu).is_empty()
            && self.traits[cpu.index()].capacity == CAPACITY_SCALE
            && !self.watches_llcs
    }
}

/// Modelled address of an object of the workload: beside the kernel's locks.
pub(crate) fn object_address(index: u32) -> u64 {
    address::kernel_lock(index)
}

/// Levels of a balanced tree of `n` nodes, for the cost of an ordered insertion.
pub(crate) fn tree_levels(n: u32) -> u64 {
    u64::from(u32::BITS - n.leading_zeros())
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// How fast `c` runs `p`, of [`FULL_SPEED`]. In the kernel only the core's capacity counts.
    #[inline(always)]
    pub(crate) fn speed(&self, c: &Cpu, p: &Task, is_user: bool) -> u32 {
        if c.is_plain {
            return FULL_SPEED;
        }
        self.own_speed(c, p, is_user)
    }

    #[inline(never)]
    fn own_speed(&self, c: &Cpu, p: &Task, is_user: bool) -> u32 {
        let traits = &self.costs.traits[c.id.index()];
        if !is_user {
            return traits.capacity * 100;
        }
        let running = |&&s: &&CpuId| self.cpu(s).curr.get().is_some();
        let others = c.slowed_by.iter().filter(running).count();
        let speed = traits.capacity * traits.share_pct(others);
        if !self.costs.watches_llcs {
            return speed;
        }
        let llc = self.machine.topology.cpu(c.id).llc;
        let (more, of) = self.machine.overflow(p.working_set_bytes, llc);
        // No more than `speed`, so it fits; a task that is slowed down without end goes on.
        ((u128::from(speed) * of / (of + more)) as u32).max(1)
    }

    /// `c` has begun or ceased to run tasks: its siblings go on at another speed.
    pub(crate) fn sibling_speed_changed(&self, c: &Cpu) {
        for &sibling in &c.slowed_by {
            let s = self.cpu(sibling);
            let Some(task) = s.curr.get() else { continue };
            if s.wait.get() != Wait::Segment || s.mode.get() != CpuMode::User {
                continue;
            }
            let p = self.task(task);
            s.this.now.set(s.this.now.get().max(c.this.now.get()));
            self.account_segment(s, p);
            s.segment_speed.set(self.speed(s, p, true));
            let end = s.this.now.get() + wall_ns(p.left_ns.get(), s.segment_speed.get());
            self.set_event(sibling, CpuEvent::Main, end);
        }
    }

    /// What refilling the caches costs a task that now runs on `to` and last ran on `from`.
    pub(crate) fn refill_ns(&self, p: &Task, from: CpuId, to: CpuId) -> u64 {
        let costs = &self.machine.interference;
        let topology = &self.machine.topology;
        let reach = topology.reach(from, to);
        let per_kb = match reach {
            MigrationReach::Smt => return 0,
            MigrationReach::Llc => costs.refill_llc_ns_per_kb,
            MigrationReach::Node => self.refill_from_memory_ns_per_kb(to),
            MigrationReach::Remote => {
                let [from, to] = [from, to].map(|cpu| topology.cpu(cpu).node);
                self.remote_refill_ns_per_kb(from, to)
            }
        };
        // No more than the caches that are new to it hold has to come again: the private one, and the last-level cache
        // where the profile gives its size.
        let own = self.costs.traits[to.index()].cache_bytes;
        let holds = match reach {
            MigrationReach::Smt | MigrationReach::Llc => own,
            MigrationReach::Node | MigrationReach::Remote => {
                let llc = topology.llc_bytes(topology.cpu(to).llc);
                llc.unwrap_or(0).max(own)
            }
        };
        p.working_set_bytes.min(holds) * per_kb / 1_024
    }

    /// What a KB of the memory of the node of `cpu` costs, which may be that of another node.
    fn refill_from_memory_ns_per_kb(&self, cpu: CpuId) -> u64 {
        let topology = &self.machine.topology;
        let node = topology.cpu(cpu).node;
        match topology.memory_of(node) {
            memory if memory == node => self.machine.interference.refill_node_ns_per_kb,
            memory => self.remote_refill_ns_per_kb(memory, node),
        }
    }

    /// What a KB costs between two nodes: the profile's number is that of the nearest ones, and the others take longer as
    /// they are farther by the firmware's table, which compares latencies (ACPI, System Locality Information Table).
    fn remote_refill_ns_per_kb(&self, from: u32, to: u32) -> u64 {
        let topology = &self.machine.topology;
        let ns = self.machine.interference.refill_remote_ns_per_kb;
        ns * u64::from(topology.distance(from, to)) / u64::from(topology.distance_min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_the_binary_logarithm() {
        for (n, levels) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (400, 9)] {
            assert_eq!(tree_levels(n), levels, "{n}");
        }
        assert_eq!(wall_ns(100, FULL_SPEED / 100 * 60), 167);
        assert_eq!(wall_ns(100, FULL_SPEED), 100);
        assert_eq!(wall_ns(u64::MAX / 4, FULL_SPEED / 2), u64::MAX / 4 * 2);
    }
}
