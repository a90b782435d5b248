//! Cores of different capacity under `-s kernel`: moves tasks that take more than their core has (`SD_ASYM_CPUCAPACITY` and
//! misfit tasks in kernel/sched/fair.c).
//!
//! All of it is for machines whose cores differ. On others tasks have no utilisation.
//!
//! Model: no energy model, which phones have and then choose CPUs by (`find_energy_efficient_cpu()`), no utilisation
//! clamps, and no average of what is runnable.

use schedlab_trace::{CpuId, Recorder};

use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::task::Task;
use crate::state::utilisation::{capacity_greater, fits_capacity};

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `arch_scale_cpu_capacity()`.
    pub(crate) fn capacity_of(&self, cpu: CpuId) -> u32 {
        self.costs.traits[cpu.index()].capacity
    }

    /// The utilisation of `p` up to the local time of `c`, until when it ran on its CPU or did not.
    pub(crate) fn update_utilisation(&self, c: &Cpu, p: &Task, ran: bool) {
        if self.costs.is_asymmetric {
            let ran = ran.then(|| self.capacity_of(p.cpu()));
            p.fair.utilisation.update(c.this.now.get(), ran);
        }
    }

    /// A new task comes to `rq`.
    pub(crate) fn begin_utilisation(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        if self.costs.is_asymmetric {
            let capacity = self.capacity_of(rq.id);
            p.fair.utilisation.begin(c.this.now.get(), capacity);
        }
    }

    /// `p` leaves its queue to sleep.
    pub(crate) fn keep_utilisation(&self, p: &Task) {
        if self.costs.is_asymmetric {
            p.fair.utilisation.sleeps();
        }
    }

    /// `asym_fits_cpu()`.
    pub(crate) fn asym_fits_cpu(&self, p: &Task, cpu: CpuId) -> bool {
        !self.costs.is_asymmetric
            || fits_capacity(
                p.fair.utilisation.estimate(),
                self.fair_capacity(self.cpu(cpu)) as u64,
            )
    }

    /// `select_idle_capacity()`: the first free CPU from `target` on that `p` fits on, or the free one with the highest
    /// capacity.
    pub(crate) fn select_idle_capacity(
        &self,
        p: &Task,
        target: CpuId,
        is_free: impl Fn(CpuId) -> bool,
    ) -> CpuId {
        let (before, after) = self.cpus.split_at(target.index());
        let mut best: Option<(i64, CpuId)> = None;
        for rq in after.iter().chain(before).filter(|rq| is_free(rq.id)) {
            if self.asym_fits_cpu(p, rq.id) {
                return rq.id;
            }
            let capacity = self.fair_capacity(rq);
            if best.is_none_or(|(known, _)| capacity > known) {
                best = Some((capacity, rq.id));
            }
        }
        best.map_or(target, |(_, cpu)| cpu)
    }

    /// `update_misfit_status()` of the task that runs on `rq`: it takes more than its core has, and may go where there is
    /// more.
    fn misfit<'k>(&'k self, c: &Cpu, rq: &'k Cpu) -> Option<&'k Task> {
        let p = self.running_fair(rq)?;
        if p.affinity.nr() == 1 {
            return None;
        }
        self.update_utilisation(c, p, true);
        let allowed = self.cpus.iter().filter(|other| p.allows(other.id));
        let highest = allowed.map(|other| self.capacity_of(other.id)).max();
        let is_misfit = highest != Some(self.capacity_of(rq.id)) && !self.asym_fits_cpu(p, rq.id);
        is_misfit.then_some(p)
    }

    /// `nohz_balancer_kick()` where cores differ, from the tick of `c`: a misfit goes to an idle CPU with more capacity at
    /// once (`need_active_balance()` of a `migrate_misfit`). Tells whether idle CPUs are to balance besides.
    ///
    /// Model: idle CPUs look in the order of their numbers and as soon as there is a misfit, not first when their interval
    /// of some milliseconds is over.
    pub(crate) fn asym_balancer_kick(&self, c: &Cpu) -> bool {
        if let Some(p) = self.misfit(c, c) {
            let here = self.fair_capacity(c) as u64;
            let now = c.this.now.get();
            let core_is_idle = |cpu: CpuId| {
                let mut siblings = self.costs.siblings[cpu.index()].iter();
                siblings.all(|&sibling| self.is_idle_for_fair(sibling))
            };
            let better = |rq: &&Cpu| {
                rq.is_online()
                    && p.allows(rq.id)
                    && self.is_idle_for_fair(rq.id)
                    && rq.fair.takes_misfit(now)
                    && capacity_greater(self.fair_capacity(rq) as u64, here)
            };
            let found = self.cpus.iter().filter(better);
            let found = found.min_by_key(|rq| (!core_is_idle(rq.id), rq.id));
            if let Some(rq) = found {
                // An idle CPU balances at intervals, so it takes one and not all that misfit at the same tick.
                rq.fair.take_misfit(now + self.costs.tick_period_ns);
                self.push_running_task(c, c, rq.id);
                return false;
            }
        }
        c.nr_running() >= 2
    }

    /// `update_sd_pick_busiest()` and `sched_balance_find_src_rq()` where cores differ: a CPU whose tasks all run is left
    /// alone by one with less capacity.
    pub(crate) fn is_too_slow_for(&self, idle: &Cpu, src: &Cpu) -> bool {
        self.costs.is_asymmetric
            && src.nr_running() <= 1
            && !capacity_greater(
                self.fair_capacity(idle) as u64,
                self.fair_capacity(src) as u64,
            )
    }
}
