//! Cost arithmetic. The numbers come from the machine profile alone.

use schedlab_machine::{Machine, address};
use schedlab_trace::{CpuId, CpuMode, MigrationReach, Recorder};

use crate::contract::policy::Policy;
use crate::paths::cpu::{Cpu, Wait, wall_ns};
use crate::paths::kernel::Kernel;
use crate::state::event_queue::CpuEvent;
use crate::state::task::Task;

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

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// How fast `c` runs a task, in percent.
    #[inline(always)]
    pub(crate) fn user_speed_pct(&self, c: &Cpu) -> u32 {
        let shared = c
            .slowed_by
            .iter()
            .any(|&s| self.cpu(s).curr.get().is_some());
        if shared {
            self.costs.smt_share_pct
        } else {
            100
        }
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
            s.segment_pct.set(self.user_speed_pct(s));
            let end = s.this.now.get() + wall_ns(p.left_ns.get(), s.segment_pct.get());
            self.set_event(sibling, CpuEvent::Main, end);
        }
    }

    /// What refilling the caches costs a task that now runs on `to` and last ran on `from`.
    pub(crate) fn refill_ns(&self, p: &Task, from: CpuId, to: CpuId) -> u64 {
        let costs = &self.machine.interference;
        let per_kb = match self.machine.topology.reach(from, to) {
            MigrationReach::Smt => 0,
            MigrationReach::Llc => costs.refill_llc_ns_per_kb,
            MigrationReach::Node => costs.refill_node_ns_per_kb,
            MigrationReach::Remote => costs.refill_remote_ns_per_kb,
        };
        // No more than the private cache holds has to come again.
        let bytes = p.working_set_bytes.min(self.machine.memory.cache_bytes);
        bytes * per_kb / 1_024
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
