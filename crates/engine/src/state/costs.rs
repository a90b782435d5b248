//! Numbers derived from the machine profile, once for a run.

use schedlab_machine::{Machine, address};
use schedlab_trace::CpuId;

/// Numbers derived once from a profile.
pub(crate) struct Costs {
    pub tick_period_ns: u64,
    pub smt_share_pct: u32,
    /// Taking a free lock, without the access to its line.
    pub lock_ps: u64,
    /// The other hardware threads of each CPU's core.
    pub siblings: Vec<Vec<CpuId>>,
}

impl Costs {
    pub fn new(machine: &Machine) -> Self {
        let nr_cpus = machine.topology.nr_cpus();
        let smt_share_pct = machine.interference.smt_share_pct.clamp(1, 100);
        let siblings = (0..nr_cpus as u32)
            .map(CpuId)
            .map(|cpu| {
                let core = machine.topology.smt(cpu);
                core.iter().filter(|&other| other != cpu).collect()
            })
            .collect();
        Costs {
            tick_period_ns: 1_000_000_000 / u64::from(machine.hz.max(1)),
            smt_share_pct,
            lock_ps: machine.memory.atomic_ps + machine.locks.meter_ns * 1_000,
            siblings,
        }
    }

    /// See [`Cpu::slowed_by`].
    pub fn slowed_by(&self, cpu: CpuId) -> &[CpuId] {
        if self.smt_share_pct == 100 {
            return &[];
        }
        &self.siblings[cpu.index()]
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

/// Wall time that `work_ns` takes at `pct` percent of full speed.
pub(crate) fn wall_ns(work_ns: u64, pct: u32) -> u64 {
    if pct == 100 {
        work_ns
    } else {
        (work_ns * 100).div_ceil(u64::from(pct))
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
        assert_eq!(wall_ns(100, 60), 167);
        assert_eq!(wall_ns(100, 100), 100);
    }
}
