//! Group scheduling of the fair class (kernel/sched/fair.c, `CONFIG_FAIR_GROUP_SCHED`): `cpu.weight` and `cpu.idle`.
//!
//! A group has an entity and a queue on each CPU, and a choice goes from the root's queue down to a task. Its weight is divided
//! among the CPUs by the load that it has on each (`calc_group_shares()`). A run with the root alone has none of this.
//!
//! Model: the members of a queue are looked for among the waiting tasks of the CPU. All levels are charged at once. The load
//! of a group on other CPUs is known at any time, and not as of the last millisecond. In the queue above, the load of a group
//! that has lost a task to another CPU fades instead of going with it.

use schedlab_trace::{CpuId, Recorder, TaskId};
use schedlab_workload::{CgroupId, SchedClass};

use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::fair::Leave;
use crate::state::fair_group::{GroupRq, Groups, Member, WEIGHT_SHIFT};
use crate::state::task::{OnRq, Task};

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// The member of the queue of the group `of` that `p` is, or is in.
    pub(crate) fn member_with<'k>(
        &'k self,
        rq: &Cpu,
        of: CgroupId,
        p: &'k Task,
    ) -> Option<Member<'k>> {
        match &self.groups {
            Some(groups) if p.cgroup() != of => {
                let child = groups.child_with(of, p.cgroup())?;
                Some(Member::Group(groups.rq(child, rq.id)))
            }
            _ => Some(Member::Task(p)),
        }
    }

    /// The member of the queue of the group `of` that runs.
    pub(crate) fn running_member<'k>(
        &'k self,
        groups: &'k Groups,
        rq: &Cpu,
        of: CgroupId,
    ) -> Option<Member<'k>> {
        let p = self.running_fair(rq)?;
        if p.cgroup() == of {
            return Some(Member::Task(p));
        }
        let child = groups.child_with(of, p.cgroup())?;
        // While the task is enqueued the group may have no place yet.
        let group = groups.rq(child, rq.id);
        (group.nr() > 0).then_some(Member::Group(group))
    }

    /// The members of the queue of the group `of` that wait, among the tasks of `queue` and the groups with tasks.
    pub(crate) fn waiting_members<'k, 'q>(
        &'k self,
        groups: &'k Groups,
        cpu: CpuId,
        of: CgroupId,
        queue: &'q [TaskId],
        running: Option<Member<'k>>,
    ) -> impl Iterator<Item = Member<'k>> + Clone + use<'k, 'q, P, R> {
        let tasks = queue.iter().map(|&task| self.task(task));
        let tasks = tasks.filter(move |p| p.cgroup() == of);
        let below = groups.children(of).map(move |id| groups.rq(id, cpu));
        let below = below
            .filter(|group| group.nr() > 0)
            .map(Member::Group)
            .filter(move |&member| !running.is_some_and(|running| running.is(member)));
        tasks.map(Member::Task).chain(below)
    }

    /// The weights of the members of the queue of the group `of`, with [`WEIGHT_SHIFT`] bits after the point.
    pub(crate) fn group_weights(&self, groups: &Groups, rq: &Cpu, of: CgroupId) -> i64 {
        let queue = rq.fair.waiting();
        let running = self.running_member(groups, rq, of);
        let waiting = self.waiting_members(groups, rq.id, of, &queue, running);
        waiting.chain(running).map(Member::weight).sum()
    }

    /// Whether others than the running member wait in the queue of the group `of`.
    fn has_others(&self, groups: &Groups, rq: &Cpu, of: CgroupId) -> bool {
        let queue = rq.fair.waiting();
        let running = self.running_member(groups, rq, of);
        let mut waiting = self.waiting_members(groups, rq.id, of, &queue, running);
        waiting.next().is_some()
    }

    /// `se_is_idle()`.
    pub(crate) fn is_idle_member(&self, member: Member<'_>) -> bool {
        match (member, &self.groups) {
            (Member::Group(group), Some(groups)) => groups.is_idle(group.id),
            (Member::Task(p), _) => p.attributes().policy == SchedClass::Idle,
            (Member::Group(_), None) => false,
        }
    }

    /// Whether `p` is one of `h_nr_idle`: under SCHED_IDLE or in an idle group.
    pub(crate) fn counts_as_idle(&self, p: &Task) -> bool {
        let is_in_idle = || {
            let groups = self.groups.as_ref();
            groups.is_some_and(|groups| groups.path(p.cgroup()).any(|id| groups.is_idle(id)))
        };
        p.attributes().policy == SchedClass::Idle || is_in_idle()
    }

    /// Brings the load of the group `of` on a CPU, and of those above below the root, up to the local time of `c`.
    pub(crate) fn update_group_loads(&self, c: &Cpu, groups: &Groups, rq: &Cpu, of: CgroupId) {
        let now = c.this.now.get();
        for id in groups.path(of) {
            let group = groups.rq(id, rq.id);
            group.queue.load.update(now, self.fair_load(rq, id) as u64);
            group.entity.load.update(now, group.load());
        }
    }

    /// `task_h_load()`: the average load of `p` as a part of the load of `rq`.
    pub(crate) fn task_h_load(&self, c: &Cpu, rq: &Cpu, p: &Task) -> i64 {
        let load = p.fair.load.get() as i64;
        let Some(groups) = &self.groups else {
            return load;
        };
        self.update_group_loads(c, groups, rq, p.cgroup());
        groups.path(p.cgroup()).fold(load, |load, id| {
            let group = groups.rq(id, rq.id);
            load * group.entity.load.get() as i64 / (group.queue.load.get() as i64 + 1)
        })
    }

    /// The weight of `p` as a part of the weights in the root's queue of `rq`.
    pub(crate) fn task_h_weight(&self, rq: &Cpu, p: &Task) -> i64 {
        let Some(groups) = &self.groups else {
            return i64::from(p.load_weight());
        };
        let weight = groups
            .path(p.cgroup())
            .fold(Member::Task(p).weight(), |weight, id| {
                let all = self.group_weights(groups, rq, id);
                let part = i128::from(weight) * i128::from(groups.rq(id, rq.id).weight());
                (part / i128::from(all.max(1))) as i64
            });
        (weight >> WEIGHT_SHIFT).max(1)
    }

    /// The way up of `update_curr()` and its checks of limits. `gives_way`: others in the queue of `p` are to be considered,
    /// if there are any. Returns whether the CPU is to choose anew.
    pub(crate) fn charge_groups(
        &self,
        c: &Cpu,
        groups: &Groups,
        p: &Task,
        ran: i64,
        gives_way: bool,
    ) -> bool {
        let rq = self.cpu(p.cpu());
        let mut gives_way = gives_way && self.has_others(groups, rq, p.cgroup());
        for id in groups.path(p.cgroup()) {
            let group = groups.rq(id, rq.id);
            let is_over = self.charge_member(Member::Group(group), ran);
            gives_way |= is_over && self.has_others(groups, rq, groups.parent(id));
            self.account_cfs_rq_runtime(c, groups, rq, id, ran);
        }
        gives_way
    }

    /// `update_cfs_group()` for the group `of` and those above. Their loads are up to date.
    pub(crate) fn update_cfs_groups(&self, c: &Cpu, groups: &Groups, rq: &Cpu, of: CgroupId) {
        for id in groups.path(of) {
            self.update_cfs_group(c, groups, rq, groups.rq(id, rq.id));
        }
    }

    /// `update_cfs_group()`: the group gets its part of the weight for what it has on `rq` now, at once or in its place in
    /// the queue above.
    fn update_cfs_group(&self, c: &Cpu, groups: &Groups, rq: &Cpu, group: &GroupRq) {
        let weights = self.fair_load(rq, group.id);
        if weights == 0 {
            return;
        }
        let load = weights.max(group.queue.load.get() as i64);
        let others = groups.load_elsewhere(group.id, rq.id, c.this.now.get());
        let old = group.weight();
        let new = groups.shares(group.id, load, others);
        if old == new {
            return;
        }
        if group.nr() > 0 {
            let (average, _) = self.average_vruntime(rq, groups.parent(group.id));
            let bound = self.lag_bound(Member::Group(group));
            group.entity.reweight_queued(average, bound, old, new);
        } else {
            group.entity.reweight(old, new);
        }
        group.set_weight(new);
    }

    /// The way up of `enqueue_task_fair()`: the groups of `p` that had no task get a place in the queue above.
    pub(crate) fn enqueue_groups(&self, c: &Cpu, groups: &Groups, rq: &Cpu, p: &Task) {
        for id in groups.path(p.cgroup()) {
            let group = groups.rq(id, rq.id);
            let is_first = group.nr() == 0;
            if is_first {
                self.update_cfs_group(c, groups, rq, group);
                self.place_entity(rq, Member::Group(group), groups.parent(id), false);
            }
            group.add();
            if is_first {
                // check_enqueue_throttle()
                self.account_cfs_rq_runtime(c, groups, rq, id, 0);
            } else {
                self.update_cfs_group(c, groups, rq, group);
            }
        }
    }

    /// The way up of `dequeue_entities()`: the groups of `p` that have no other task leave the queue above.
    pub(crate) fn dequeue_groups(&self, c: &Cpu, groups: &Groups, rq: &Cpu, p: &Task, way: Leave) {
        let way = match way {
            Leave::Throttle => Leave::Throttle,
            _ => Leave::Sleep(rq.id),
        };
        // It is in no queue any more, even if it runs.
        let on_rq = p.on_rq();
        p.set_on_rq(OnRq::Migrating);
        for id in groups.path(p.cgroup()) {
            let (group, parent) = (groups.rq(id, rq.id), groups.parent(id));
            if group.nr() > 1 {
                group.sub();
                self.update_cfs_group(c, groups, rq, group);
                continue;
            }
            let (average, _) = self.average_vruntime(rq, parent);
            let bound = self.lag_bound(Member::Group(group));
            group.entity.leave(average, bound, way);
            group.sub();
            self.fair_queue(rq, parent).advance(average);
            self.return_cfs_rq_runtime(c, groups, rq, group);
        }
        p.set_on_rq(on_rq);
    }

    /// The way up of `set_next_task_fair()`: groups that have been chosen anew begin a request.
    pub(crate) fn set_next_groups(&self, c: &Cpu, groups: &Groups, p: &Task) {
        let before = c.fair.choose(Some(p.cgroup()));
        let was_chosen = |id: CgroupId| {
            before.is_some_and(|before| groups.path(before).any(|other| other == id))
        };
        for id in groups.path(p.cgroup()).take_while(|&id| !was_chosen(id)) {
            groups.rq(id, c.id).entity.protect();
            self.account_cfs_rq_runtime(c, groups, c, id, 0);
        }
        c.set_stops_in_user(self.is_throttled_on(p, c.id));
    }

    /// Whether the group of `p`, or one above, waits for CPU time on a CPU (`lb_throttled_hierarchy()`).
    pub(crate) fn is_throttled_on(&self, p: &Task, cpu: CpuId) -> bool {
        match &self.groups {
            Some(groups) if p.cgroup() != CgroupId::ROOT => {
                groups.rq(p.cgroup(), cpu).is_in_throttled()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use schedlab_trace::Duration;
    use schedlab_workload::Workload;

    use super::*;
    use crate::contract::consts::{deq, enq};
    use crate::state::task::Class;
    use crate::testing::{Events, Stub, hog, machine, scenario_of, workload};

    type Run = Kernel<Stub, RefCell<Events>>;

    const A: CgroupId = CgroupId(1);

    /// Two CPUs, with a request of 1.4 ms. Task 0 is one of the root, tasks 1 and 2 are in `/a`; none is in a queue.
    fn kernel() -> Run {
        let mut workload = workload(Vec::new(), (0..3).map(|_| hog("t", 1)).collect());
        workload.cgroups = Workload::parse("cpu:cgroup=/a", 1).unwrap().cgroups;
        workload.duration = Some(Duration::from_ms(1));
        let kernel = Run::new(
            scenario_of(machine(2), workload),
            Stub::minimal(),
            RefCell::default(),
        );
        for p in kernel.tasks.iter() {
            p.set_class(Class::Fair);
            p.set_cgroup(if p.id.0 == 0 { CgroupId::ROOT } else { A });
        }
        kernel
    }

    fn enqueue(kernel: &Run, task: u32, cpu: usize) -> &Task {
        let (c, p) = (&kernel.cpus[cpu], kernel.task(TaskId(task)));
        kernel.place_task(p, c.id);
        p.set_on_rq(OnRq::Queued);
        kernel.enqueue_task_fair(c, c, p, enq::WAKEUP);
        p
    }

    /// The part of `/a` on CPU 0, which has had 1 ms more than the task of the root there.
    fn ahead(kernel: &Run) -> &GroupRq {
        enqueue(kernel, 0, 0);
        enqueue(kernel, 1, 0);
        let group = kernel.groups.as_ref().unwrap().rq(A, CpuId(0));
        kernel.charge_member(Member::Group(group), 1_000_000);
        group
    }

    /// Half of the weight goes to CPU 1. The mean of the queue is 0.5 ms before and after that. What the group had too much in
    /// virtual time, and what is left of its request, is twice as long.
    #[test]
    fn a_group_that_changes_its_weight_keeps_its_lag() {
        let kernel = kernel();
        let group = ahead(&kernel);
        let mean = || kernel.average_vruntime(&kernel.cpus[0], CgroupId::ROOT).0;
        let times = || (mean(), group.entity.vruntime(), group.entity.deadline());
        assert_eq!(times(), (500_000, 1_000_000, 1_400_000));
        enqueue(&kernel, 2, 1);
        let (c, groups) = (&kernel.cpus[0], kernel.groups.as_ref().unwrap());
        kernel.update_cfs_groups(c, groups, c, A);
        assert_eq!(group.weight(), 512 << WEIGHT_SHIFT);
        assert_eq!(times(), (500_000, 1_500_000, 2_300_000));
    }

    /// The same while it has no task: it comes back with its lag of 0.5 ms at the former weight, which is 1 ms at half of it,
    /// so 1.5 ms ahead of the other task.
    #[test]
    fn a_group_without_tasks_that_changes_its_weight_keeps_its_lag() {
        let kernel = kernel();
        let group = ahead(&kernel);
        let (c, p) = (&kernel.cpus[0], kernel.task(TaskId(1)));
        kernel.dequeue_task_fair(c, c, p, deq::SLEEP);
        p.set_on_rq(OnRq::No);
        assert_eq!(group.nr(), 0);
        enqueue(&kernel, 2, 1);
        enqueue(&kernel, 1, 0);
        assert_eq!(group.weight(), 512 << WEIGHT_SHIFT);
        assert_eq!(group.entity.vruntime(), 1_500_000);
    }

    /// The protection of the group ends with the request with which it was chosen, also when its tasks take turns.
    #[test]
    fn a_group_that_goes_on_begins_no_request() {
        let kernel = kernel();
        let group = ahead(&kernel);
        let (c, other) = (&kernel.cpus[0], enqueue(&kernel, 2, 0));
        let (root, first) = (kernel.task(TaskId(0)), kernel.task(TaskId(1)));
        kernel.set_next_task_fair(c, first);
        assert!(group.entity.is_protected());
        kernel.charge_member(Member::Group(group), 500_000);
        assert!(!group.entity.is_protected());
        kernel.put_prev_task_fair(c, c, first);
        kernel.set_next_task_fair(c, other);
        assert!(!group.entity.is_protected());
        kernel.put_prev_task_fair(c, c, other);
        kernel.set_next_task_fair(c, root);
        kernel.put_prev_task_fair(c, c, root);
        kernel.set_next_task_fair(c, first);
        assert!(group.entity.is_protected());
    }
}
