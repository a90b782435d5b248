//! Balancing for idle CPUs in the fair class (kernel/sched/fair.c): a CPU without work takes a waiting task, and a core or
//! a cache without work takes running tasks from one where they share hardware.
//!
//! A CPU that becomes idle looks at once, at the threads of its core, the cores of its cache, the caches of its node and
//! the nodes in turn (`sched_balance_newidle()`).
//!
//! The tick of a busy CPU, whatever class it runs, has idle CPUs look (`nohz_balancer_kick()`, `nohz_idle_balance()`).
//! Each looks level by level at its own times (`sched_balance_domains()`); where another group has more to do and nothing
//! waits there, its attempts fail, and after some failures the stopper of the busiest CPU gives up its running task
//! (`need_active_balance()`, `active_load_balance_cpu_stop()`).
//!
//! Model: the CPU whose tick it is decides for all idle ones, which takes no time; a group is as full as it has tasks,
//! without their averages; all cores are alike (no `SD_ASYM_PACKING`, no capacities of kinds of cores).

use schedlab_trace::{CpuId, CpuSet, Recorder};

use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::domains::{Domain, Group, Place};
use crate::state::stop::Push;
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
    /// Tasks wait that may not run where there is room in the group (`sg_imbalanced()`).
    Imbalanced,
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

impl Stats {
    /// A CPU whose tasks are all bound does not count.
    fn leave_out(&mut self, rq: &Cpu, nr_fair: usize) {
        self.nr_running -= i64::from(rq.nr_running());
        self.nr_fair -= nr_fair as i64;
    }
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
            if !self.asym_balancer_kick(c) || !self.domains.idle_balance_is_due(now) {
                return;
            }
        } else if !self.domains.idle_balance_is_due(now)
            || c.nr_running() < 2 && self.nr_busy_near(c) < 2
        {
            return;
        }
        let (before, after) = self.cpus.split_at(c.id.index());
        let online = after.iter().chain(before).filter(|rq| rq.is_online());
        let idle = online.filter(|rq| self.is_idle_for_fair(rq.id));
        let next = idle.map(|rq| self.balance_domains(c, rq)).min();
        let next_tick = now + self.costs.tick_period_ns;
        let next = next.map_or(next_tick, |next| next.max(next_tick));
        self.domains.set_next_idle_balance(next);
    }

    /// `nr_busy_cpus` of the last-level cache.
    fn nr_busy_near(&self, c: &Cpu) -> usize {
        let near = &self.llc_of(c.id).cpus;
        let busy = near.iter().filter(|&&cpu| !self.is_idle_for_fair(cpu));
        busy.count()
    }

    /// `sched_balance_domains()` of an idle CPU; answers when it looks next.
    fn balance_domains(&self, c: &Cpu, idle: &Cpu) -> u64 {
        let now = c.this.now.get();
        let mut next = u64::MAX;
        let mut places = self.domains.of(idle.id).peekable();
        while let Some(place) = places.next() {
            let attempt = idle.fair.attempts.at(place.level);
            if now >= attempt.due() {
                let balanced = self.balance_domain(c, idle, place, places.peek().copied());
                let interval_ms = place.domain.nr_cpus * if balanced { 2 } else { 1 };
                attempt.set_due(now + interval_ms * 1_000_000);
            }
            next = next.min(attempt.due());
            // It has work now.
            if idle.fair.wanted().is_some() {
                break;
            }
        }
        next
    }

    /// `sched_balance_newidle()` for `c`: the nearest CPU that is to give a waiting task.
    pub(crate) fn newidle_source(&self, c: &Cpu) -> Option<&Cpu> {
        let mut places = self.domains.of(c.id).peekable();
        while let Some(place) = places.next() {
            let found = self.source_for(c, place, places.peek().copied(), &[]);
            if let Some((src, _)) = found.filter(|(src, _)| self.fair_task_for(src, c.id)) {
                return Some(src);
            }
        }
        None
    }

    /// The CPU that is to give tasks to `idle`, or to one of the `takers`, and how many at most. One whose tasks are all bound
    /// to other CPUs is left out (`LBF_ALL_PINNED`); where some are, the domain above is to know (`LBF_SOME_PINNED`).
    fn source_for(
        &self,
        idle: &Cpu,
        place: Place<'_>,
        parent: Option<Place<'_>>,
        takers: &[&Cpu],
    ) -> Option<(&Cpu, usize)> {
        let groups = &place.domain.groups;
        let mut stats: Vec<Stats> = groups.iter().map(|group| self.stats(group)).collect();
        let mut bound = CpuSet::empty(self.cpus.len());
        let mut is_bound = false;
        let mut source = || loop {
            let (group, nr_tasks) = self.busiest_group(place, &stats)?;
            let src = self.busiest_of(idle, &groups[group], &bound)?;
            is_bound |= self.is_fair_task_bound(src, idle.id);
            if self.has_fair_task_that_allows(src, idle.id)
                || takers.iter().any(|rq| self.fair_task_for(src, rq.id))
            {
                return Some((src, nr_tasks));
            }
            bound.insert(src.id);
            stats[group].leave_out(src, self.nr_fair(src));
        };
        let found = source();
        if let Some(parent) = parent {
            let is_enough = |(src, nr_tasks): (&Cpu, usize)| {
                self.nr_fair_tasks_for(src, idle, takers) >= nr_tasks
            };
            // `LBF_SOME_PINNED`, and an imbalance that is left.
            let is_left = !found.is_some_and(is_enough);
            parent.local().set_imbalanced(is_bound && is_left);
        }
        found
    }

    /// `sched_balance_find_src_rq()`.
    fn busiest_of(&self, idle: &Cpu, group: &Group, bound: &CpuSet) -> Option<&Cpu> {
        let cpus = group.cpus.iter().filter(|&&cpu| !bound.contains(cpu));
        let fair = cpus
            .map(|&cpu| self.cpu(cpu))
            .filter(|rq| rq.is_online() && self.nr_fair(rq) > 0 && !self.is_too_slow_for(idle, rq));
        fair.max_by_key(|rq| (self.nr_fair(rq), std::cmp::Reverse(rq.id)))
    }

    /// `sched_balance_rq()`. Returns whether there is nothing to do.
    fn balance_domain(
        &self,
        c: &Cpu,
        idle: &Cpu,
        place: Place<'_>,
        parent: Option<Place<'_>>,
    ) -> bool {
        if !self.should_we_balance(idle, place.local()) {
            return true;
        }
        let attempt = idle.fair.attempts.at(place.level);
        // Where no waiting task may run on this CPU, another idle one of the group takes it (`LBF_DST_PINNED`).
        let group = place.local().cpus.iter().map(|&cpu| self.cpu(cpu));
        let usable = |rq: &&Cpu| {
            let is_free = rq.is_online() && self.is_idle_for_fair(rq.id);
            is_free && rq.fair.wanted().is_none()
        };
        let takers: Vec<&Cpu> = [idle].into_iter().chain(group).filter(usable).collect();
        let Some((src, nr_tasks)) = self.source_for(idle, place, parent, &takers) else {
            attempt.succeed();
            return true;
        };
        // Another idle CPU is to take from there, and has not begun: what is left then is not known yet.
        // A real-time task may have come between: such a CPU does not count.
        let takes = |rq: &Cpu| {
            let takes = rq.fair.wanted().is_some_and(|(from, _)| from == src.id);
            takes && rq.is_online() && self.is_idle_for_fair(rq.id)
        };
        if self.cpus.iter().any(takes) {
            return false;
        }
        let mut takers = takers.into_iter();
        if let Some(taker) = takers.find(|rq| self.fair_task_for(src, rq.id)) {
            attempt.succeed();
            taker.fair.want(src.id, nr_tasks);
            self.resched_curr(c, taker);
            return false;
        }
        // imbalanced_active_balance()
        let is_due = attempt.fail() > place.domain.nice_tries + 2;
        if is_due && self.push_running_task(c, src, idle.id) {
            attempt.succeed();
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
        let cpus = group.cpus.iter().map(|&cpu| self.cpu(cpu));
        for rq in cpus.filter(|rq| rq.is_online()) {
            stats.nr_running += i64::from(rq.nr_running());
            stats.nr_fair += self.nr_fair(rq) as i64;
            stats.nr_idle += i64::from(self.is_idle_for_fair(rq.id));
            stats.nr_cpus += 1;
        }
        stats
    }

    /// `group_classify()`. The local group is never [`Kind::Smt`] in the kernel; nobody compares it with that here.
    fn kind(domain: &Domain, stats: &Stats, is_imbalanced: bool) -> Kind {
        if stats.nr_running > stats.nr_cpus {
            Kind::Overloaded
        } else if is_imbalanced {
            Kind::Imbalanced
        } else if domain.has_smt_groups && stats.nr_cpus > 1 && stats.nr_fair > 1 {
            Kind::Smt
        } else if stats.nr_running < stats.nr_cpus {
            Kind::HasSpare
        } else {
            Kind::FullyBusy
        }
    }

    /// `sched_balance_find_src_group()` for an idle CPU of a group: the number of the group that has most to do by the `stats` of
    /// each, if some of its tasks are to move, and how many at most.
    fn busiest_group(
        &self,
        Place { domain, group, .. }: Place<'_>,
        stats: &[Stats],
    ) -> Option<(usize, usize)> {
        let kind = |group: usize| {
            let is_imbalanced = domain.groups[group].is_imbalanced();
            Self::kind(domain, &stats[group], is_imbalanced)
        };
        let (local, local_kind) = (&stats[group], kind(group));
        let mut busiest: Option<(Kind, &Stats, usize)> = None;
        for group in (group + 1..stats.len()).chain(0..group) {
            let (stats, kind) = (&stats[group], kind(group));
            if stats.nr_fair == 0 {
                continue;
            }
            // update_sd_pick_busiest()
            let order = |kind: Kind, stats: &Stats| (kind, -stats.nr_idle, stats.nr_running);
            let is_busier = match busiest {
                Some((other, its, _)) => order(kind, stats) > order(other, its),
                None => true,
            };
            if is_busier {
                busiest = Some((kind, stats, group));
            }
        }
        let (kind, busiest, group) = busiest?;
        if kind != Kind::Imbalanced && local_kind > kind {
            return None;
        }
        let more = sibling_imbalance(busiest, local);
        let forced = kind == Kind::Imbalanced || domain.spreads && more > 1;
        if !forced && kind != Kind::Overloaded {
            let differs = local.nr_idle > busiest.nr_idle + 1;
            // smt_vs_nonsmt_groups()
            let other_sort = kind == Kind::Smt && (local.nr_cpus == 1) != (busiest.nr_cpus == 1);
            if !other_sort && (busiest.nr_cpus > 1 && !differs || busiest.nr_fair == 1) {
                return None;
            }
        }
        // calculate_imbalance()
        if matches!(kind, Kind::Smt | Kind::Imbalanced) {
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
            && !p.stop.is_due()
        {
            pushes = true;
            p.stop.push_to(dest, Push::IdleCpu);
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
