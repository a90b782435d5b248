//! Cost arithmetic. The numbers come from the machine profile alone.

use schedlab_trace::{CpuId, CpuMode, MigrationReach, Recorder};

use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::costs::wall_ns;
use crate::state::cpu::{Cpu, Wait};
use crate::state::event_queue::CpuEvent;
use crate::state::task::Task;

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

    /// Returns the cost of refilling the caches for a task that now runs on `to` and last ran on `from`.
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
