//! Numbers derived from the machine profile, once for a run.

use schedlab_machine::{CAPACITY_SCALE, CoreTraits, Machine, address};
use schedlab_trace::CpuId;

/// Numbers derived once from a profile.
pub(crate) struct Costs {
    pub tick_period_ns: u64,
    /// Taking a free lock, without the access to its line.
    pub lock_ps: u64,
    /// The other hardware threads of each CPU's core.
    pub siblings: Vec<Vec<CpuId>>,
    /// The traits of each CPU.
    pub traits: Vec<CoreTraits>,
    /// Cores differ in capacity (`sched_asym_cpucap_active()`).
    pub is_asymmetric: bool,
    /// Lines per millisecond that cross the bus for a task that computes.
    pub traffic: u32,
    /// A task that does not fit into the last-level cache is slower.
    pub watches_llcs: bool,
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
            traffic: machine.application_lines_per_ms(),
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

/// Wall time that `work_ns` takes at `speed` of [`FULL_SPEED`].
#[inline(always)]
pub(crate) fn wall_ns(work_ns: u64, speed: u32) -> u64 {
    if speed == FULL_SPEED {
        work_ns
    } else {
        scaled(work_ns, FULL_SPEED, speed, true)
    }
}

/// `ns * times / by`, rounded up or down.
#[inline(never)]
pub(crate) fn scaled(ns: u64, times: u32, by: u32, up: bool) -> u64 {
    let round = if up { u64::from(by) - 1 } else { 0 };
    let product = ns.checked_mul(times.into());
    if let Some(product) = product.and_then(|product| product.checked_add(round)) {
        return product / u64::from(by);
    }
    let product = u128::from(ns) * u128::from(times) + u128::from(round);
    // The run ends long before.
    u64::try_from(product / u128::from(by)).unwrap_or(u64::MAX)
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
