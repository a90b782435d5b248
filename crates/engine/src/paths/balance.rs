//! Balancing of running tasks of the fair class (kernel/sched/fair.c): a core or a cache that has nothing to do takes
//! tasks from one where they share hardware. What only waits is pulled by [`Kernel::pick_task_fair`] and its neighbours.
//!
//! The tick of a busy CPU, whatever class it runs, has idle CPUs look (`nohz_balancer_kick()`, `nohz_idle_balance()`).
//! Each looks level by level at its own times (`sched_balance_domains()`); where another group has more to do and nothing
//! waits there, its attempts fail, and after some failures the stopper of the busiest CPU gives up its running task
//! (`need_active_balance()`, `active_load_balance_cpu_stop()`).
//!
//! Model: the CPU whose tick it is decides for all idle ones, which takes no time; a group is as full as it has tasks,
//! without their averages; all cores are alike (no `SD_ASYM_PACKING`, no capacities of kinds of cores).

use schedlab_trace::{CpuId, Recorder};

use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::domains::{Attempt, Domain, Group};
use crate::state::task::Class;

/// A task moves between nodes only if more than so many more run there (`NUMA_IMBALANCE_MIN`).
const NUMA_IMBALANCE_MIN: i64 = 2;

/// How busy a group is; a greater one is relieved first (`enum group_type`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    HasSpare,
    FullyBusy,
    /// Tasks share a core.
    Smt,
    Overloaded,
}

/// `struct sg_lb_stats`.
struct Stats {
    nr_running: i64,
    nr_fair: i64,
    nr_idle: i64,
    nr_cpus: i64,
    nr_cores: i64,
}

/// `sibling_imbalance()`: how many tasks the busiest group has more than the local one, for each core.
fn sibling_imbalance(busiest: &Stats, local: &Stats) -> i64 {
    if busiest.nr_cores == local.nr_cores {
        return (busiest.nr_running - local.nr_running).max(0);
    }
    let cores = local.nr_cores + busiest.nr_cores;
    let more = local.nr_cores * busiest.nr_running - busiest.nr_cores * local.nr_running;
    let imbalance = (2 * more.max(0) + cores) / cores;
    if imbalance <= 1 && local.nr_running == 0 && busiest.nr_running > 1 {
        return 2;
    }
    imbalance
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `nohz_balancer_kick()` and `nohz_idle_balance()`, from the tick of `c`.
    pub(crate) fn nohz_idle_balance(&self, c: &Cpu) {
        let now = c.this.now.get();
        if self.costs.is_asymmetric {
            if !self.asym_balancer_kick(c) || now < self.next_idle_balance.get() {
                return;
            }
        } else if now < self.next_idle_balance.get() || self.nr_busy_near(c) < 2 {
            return;
        }
        let (before, after) = self.cpus.split_at(c.id.index());
        let online = after.iter().chain(before).filter(|rq| rq.is_online());
        let idle = online.filter(|rq| self.is_idle_for_fair(rq.id));
        let next = idle.map(|rq| self.balance_domains(c, rq)).min();
        let next_tick = now + self.costs.tick_period_ns;
        self.next_idle_balance
            .set(next.map_or(next_tick, |next| next.max(next_tick)));
    }

    /// `nr_busy_cpus` of the last-level cache.
    fn nr_busy_near(&self, c: &Cpu) -> usize {
        let near = &self.llc_cpus[self.machine.topology.cpu(c.id).llc as usize];
        let busy = near.iter().filter(|&&cpu| !self.is_idle_for_fair(cpu));
        busy.count()
    }

    /// `sched_balance_domains()` of an idle CPU; answers when it looks next.
    fn balance_domains(&self, c: &Cpu, idle: &Cpu) -> u64 {
        let now = c.this.now.get();
        let mut next = u64::MAX;
        let places = &self.domains.places[idle.id.index()];
        for (place, attempt) in places.iter().zip(&idle.fair.attempts.0) {
            let Some((domain, group)) = *place else {
                continue;
            };
            let domain = &self.domains.domains[domain as usize];
            if now >= attempt.due.get() {
                let balanced = self.balance_domain(c, idle, domain, group as usize, attempt);
                let again = balanced && attempt.was_balanced.replace(balanced);
                let interval_ms = domain.nr_cpus * if again { 2 } else { 1 };
                attempt.due.set(now + interval_ms * 1_000_000);
            }
            next = next.min(attempt.due.get());
        }
        next
    }

    /// `sched_balance_rq()`. Returns whether there is nothing to do.
    fn balance_domain(
        &self,
        c: &Cpu,
        idle: &Cpu,
        domain: &Domain,
        local: usize,
        attempt: &Attempt,
    ) -> bool {
        if !self.should_we_balance(idle, &domain.groups[local]) {
            return true;
        }
        let Some((busiest, nr_tasks)) = self.busiest_group(domain, local) else {
            attempt.failed.set(0);
            return true;
        };
        // sched_balance_find_src_rq()
        let fair = busiest.cpus.iter().map(|&cpu| self.cpu(cpu));
        let fair = fair.filter(|rq| rq.is_online() && self.nr_fair(rq) > 0);
        let fair = fair.filter(|rq| !self.is_too_slow_for(idle, rq));
        let Some(src) = fair.max_by_key(|rq| (self.nr_fair(rq), std::cmp::Reverse(rq.id))) else {
            return true;
        };
        if self.fair_task_for(src, idle.id) {
            attempt.failed.set(0);
            idle.fair.wanted.set(nr_tasks);
            self.resched_curr(c, idle);
            return false;
        }
        attempt.failed.set(attempt.failed.get() + 1);
        // imbalanced_active_balance()
        if attempt.failed.get() > domain.nice_tries + 2 && self.push_running_task(c, src, idle.id) {
            attempt.failed.set(0);
        }
        false
    }

    /// `should_we_balance()`: one of the idle CPUs of a group looks, one of an idle core first.
    fn should_we_balance(&self, idle: &Cpu, group: &Group) -> bool {
        let usable = |cpu: CpuId| self.cpu(cpu).is_online() && self.is_idle_for_fair(cpu);
        let mut candidates = group.cpus.iter().copied().filter(|&cpu| usable(cpu));
        let core_is_idle = |cpu: CpuId| {
            let mut siblings = self.costs.siblings[cpu.index()].iter();
            siblings.all(|&sibling| self.is_idle_for_fair(sibling))
        };
        let first = candidates.clone().find(|&cpu| core_is_idle(cpu));
        first.or_else(|| candidates.next()) == Some(idle.id)
    }

    /// Tasks of the class on a CPU (`cfs.h_nr_runnable`).
    fn nr_fair(&self, rq: &Cpu) -> usize {
        rq.fair.nr_waiting() + usize::from(self.running_fair(rq).is_some())
    }

    /// `update_sg_lb_stats()`.
    fn stats(&self, group: &Group) -> Stats {
        let mut stats = Stats {
            nr_running: 0,
            nr_fair: 0,
            nr_idle: 0,
            nr_cpus: 0,
            nr_cores: group.nr_cores,
        };
        let online = group.cpus.iter().map(|&cpu| self.cpu(cpu));
        for rq in online.filter(|rq| rq.is_online()) {
            stats.nr_running += i64::from(rq.nr_running.get());
            stats.nr_fair += self.nr_fair(rq) as i64;
            stats.nr_idle += i64::from(self.is_idle_for_fair(rq.id));
            stats.nr_cpus += 1;
        }
        stats
    }

    /// `group_classify()` of a group that is not the local one.
    fn kind(domain: &Domain, stats: &Stats) -> Kind {
        if stats.nr_running > stats.nr_cpus {
            Kind::Overloaded
        } else if domain.has_smt_groups && stats.nr_cpus > 1 && stats.nr_fair > 1 {
            Kind::Smt
        } else if stats.nr_running < stats.nr_cpus {
            Kind::HasSpare
        } else {
            Kind::FullyBusy
        }
    }

    /// `sched_balance_find_src_group()` for an idle CPU of the group `local`: the group that has most to do, if some of its
    /// tasks are to move, and how many at most.
    fn busiest_group<'d>(&self, domain: &'d Domain, local: usize) -> Option<(&'d Group, usize)> {
        let (before, after) = domain.groups.split_at(local);
        let (local, after) = after.split_first().expect("the group of the idle CPU");
        let local = self.stats(local);
        let mut busiest: Option<(Kind, Stats, &Group)> = None;
        for group in after.iter().chain(before) {
            let stats = self.stats(group);
            if stats.nr_fair == 0 {
                continue;
            }
            // update_sd_pick_busiest()
            let kind = Self::kind(domain, &stats);
            let order = |kind: Kind, stats: &Stats| (kind, -stats.nr_idle, stats.nr_running);
            let is_busier = match &busiest {
                Some((other, its, _)) => order(kind, &stats) > order(*other, its),
                None => true,
            };
            if is_busier {
                busiest = Some((kind, stats, group));
            }
        }
        let (kind, busiest, group) = busiest?;
        let more = sibling_imbalance(&busiest, &local);
        let forced = domain.spreads && more > 1;
        if !forced && kind != Kind::Overloaded {
            let differs = local.nr_idle > busiest.nr_idle + 1;
            // smt_vs_nonsmt_groups()
            let other_sort = kind == Kind::Smt && (local.nr_cpus == 1) != (busiest.nr_cpus == 1);
            if !other_sort && (busiest.nr_cpus > 1 && !differs || busiest.nr_fair == 1) {
                return None;
            }
        }
        // calculate_imbalance()
        if kind == Kind::Smt {
            return Some((group, 1));
        }
        // `migrate_util`: as much as fills the spare capacity. Model: each task takes a CPU of it.
        if kind == Kind::Overloaded && !domain.shares_cache {
            return Some((group, local.nr_idle.max(1) as usize));
        }
        let mut imbalance = if domain.spreads || busiest.nr_cpus == 1 {
            more
        } else {
            (local.nr_idle - busiest.nr_idle).max(0)
        };
        // adjust_numa_imbalance()
        let is_allowed = local.nr_running < self.domains.numa_imbalance;
        if domain.is_numa && is_allowed && imbalance <= NUMA_IMBALANCE_MIN {
            imbalance = 0;
        }
        let nr_tasks = imbalance / 2;
        (nr_tasks > 0).then_some((group, nr_tasks as usize))
    }

    /// The stopper of `src` is to move its running task to the idle CPU `dest` (`active_load_balance_cpu_stop()`).
    /// Returns whether it will.
    pub(crate) fn push_running_task(&self, c: &Cpu, src: &Cpu, dest: CpuId) -> bool {
        let mut pushes = false;
        self.rq_lock(c, src);
        if let Some(p) = self.running_fair(src)
            && p.allows(dest)
            && p.migration_dest.get().is_none()
        {
            pushes = true;
            p.fair.pushed.set(true);
            p.migration_dest.set(Some(dest));
            self.taken_by_class(c, src, Class::Stop);
            self.resched_curr(c, src);
        }
        self.rq_unlock(c, src);
        pushes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_unequal_size_are_compared_by_core() {
        let stats = |nr_running, nr_cores| Stats {
            nr_running,
            nr_fair: nr_running,
            nr_idle: 0,
            nr_cpus: 2 * nr_cores,
            nr_cores,
        };
        assert_eq!(sibling_imbalance(&stats(3, 2), &stats(1, 2)), 2);
        assert_eq!(sibling_imbalance(&stats(1, 2), &stats(3, 2)), 0);
        // 4 tasks on 2 cores beside 2 on 1: as many for each.
        assert_eq!(sibling_imbalance(&stats(4, 2), &stats(2, 1)), 1);
        assert_eq!(sibling_imbalance(&stats(2, 4), &stats(0, 1)), 2);
    }
}
