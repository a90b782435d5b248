//! The baseline for tasks that no policy schedules: a plain EEVDF.
//!
//! Per task a virtual time, a request and its deadline; the eligible task with the earliest
//! deadline runs (Stoica, Abdel-Wahab: *Earliest eligible virtual deadline first*, 1995; Linux 6.6
//! and later, kernel/sched/fair.c). Placement and balance follow the outlines of Linux's.
//!
//! Groups of tasks (`fair_group.rs`) have a queue each, and a place in the queue of the group above; a run without them has the
//! root's queue alone.
//!
//! Model: wakeups compare average loads as in the kernel; balancing compares the tasks that each CPU has
//! now. A busy CPU balances with all others at one level. A task that sleeps with negative lag works it off outside of its
//! queue. The queue is searched instead of a tree. The baseline's queues cost no time of their own beyond the profile's
//! schedule() path, so it is a baseline of decisions, not of their cost.

use schedlab_trace::{CpuId, CpuMode, LockPath, Recorder, TaskId};
use schedlab_workload::{CgroupId, SchedClass};

use crate::contract::consts::{deq, enq, wake};
use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::domains::Llc;
use crate::state::fair::{CAPACITY, Leave, Queue};
use crate::state::fair_group::{Member, WEIGHT_SHIFT, scale_down};
use crate::state::stop::Push;
use crate::state::task::{Class, OnRq, Task};
use crate::state::utilisation::nr_idle_scan;

/// Weight of nice 0, the unit of virtual time.
const NICE_0: i64 = 1_024;

/// Base slice before scaling with the CPUs: 0.7 ms.
const BASE_SLICE_NS: i64 = 700_000;

/// A task that ran less long ago than this is not moved to balance (`sysctl_sched_migration_cost`).
const CACHE_HOT_NS: u64 = 500_000;

/// By how much more than its own load another CPU's must be before a CPU with waiting tasks takes one, in per cent
/// (`imbalance_pct`).
const IMBALANCE_PCT: i64 = 117;

/// Tasks that are moved at a time at most (`sched_nr_migrate`).
const MIGRATE_MAX: usize = 32;

/// After more than that many attempts in vain tasks are moved that have run just now (`cache_nice_tries`).
const CACHE_NICE_TRIES: u32 = 1;

/// The timer is not set for less (`hrtick_start()`).
const SHORTEST_NS: u64 = 10_000;

/// `calc_delta_fair()`, for the weight of a [`Member`].
fn virtual_ns(ran: i64, weight: i64) -> i64 {
    (ran * (NICE_0 << WEIGHT_SHIFT)) / weight
}

/// The mean of the virtual times of a queue's members and the sum of their weights. `zero`: near the mean.
fn average<'k>(zero: i64, members: impl Iterator<Item = Member<'k>>) -> (i64, i64) {
    let (sum, weights) = members.fold((0i128, 0i64), |(sum, weights), member| {
        let weight = member.weight();
        let offset = member.entity().vruntime() - zero;
        (
            sum + i128::from(offset) * i128::from(weight),
            weights + weight,
        )
    });
    if weights == 0 {
        return (zero, 0);
    }
    (zero + sum.div_euclid(i128::from(weights)) as i64, weights)
}

/// The eligible member with the earliest deadline, of those that wait and the `running` one.
fn earliest<'k>(
    waiting: impl Iterator<Item = Member<'k>> + Clone,
    running: Option<Member<'k>>,
    average: i64,
) -> Option<Member<'k>> {
    waiting
        .clone()
        .chain(running)
        .filter(|member| member.entity().is_eligible(average))
        .min_by_key(|member| member.entity().deadline())
        // Rounding can leave no member eligible: then the one that has had the least.
        .or_else(|| {
            let all = waiting.chain(running);
            all.min_by_key(|member| member.entity().vruntime())
        })
}

/// Whether `p` is in a queue of the class, or runs from one.
pub(crate) fn has_place(p: &Task) -> bool {
    p.class() == Class::Fair && p.on_rq() == OnRq::Queued && !p.fair.is_throttled()
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// The length of a request: the base slice times 1 + log2 of the CPUs, at most 8 counted.
    fn fair_slice(&self) -> i64 {
        let factor = 1 + self.cpus.len().min(8).ilog2();
        BASE_SLICE_NS * i64::from(factor)
    }

    pub(crate) fn running_fair(&self, rq: &Cpu) -> Option<&Task> {
        let p = self.task(rq.curr()?);
        has_place(p).then_some(p)
    }

    /// The queue of the group `of` on a CPU.
    pub(crate) fn fair_queue<'k>(&'k self, rq: &'k Cpu, of: CgroupId) -> &'k Queue {
        match &self.groups {
            Some(groups) if of != CgroupId::ROOT => &groups.rq(of, rq.id).queue,
            _ => &rq.fair.root,
        }
    }

    /// V, the weighted mean of the virtual times in the queue of the group `of` (`avg_vruntime()`), and the sum of the
    /// weights.
    pub(crate) fn average_vruntime(&self, rq: &Cpu, of: CgroupId) -> (i64, i64) {
        let zero = self.fair_queue(rq, of).zero();
        let queue = rq.fair.waiting();
        match &self.groups {
            None => {
                let waiting = queue.iter().map(|&task| self.task(task));
                let all = waiting.chain(self.running_fair(rq));
                average(zero, all.map(Member::Task))
            }
            Some(groups) => {
                let running = self.running_member(groups, rq, of);
                let waiting = self.waiting_members(groups, rq.id, of, &queue, running);
                average(zero, waiting.chain(running))
            }
        }
    }

    /// The weights of the members of the queue of the group `of` on a CPU.
    pub(crate) fn fair_load(&self, rq: &Cpu, of: CgroupId) -> i64 {
        match &self.groups {
            None => {
                let queue = rq.fair.waiting();
                let waiting = queue.iter().map(|&task| self.task(task));
                let all = waiting.chain(self.running_fair(rq));
                all.map(|p| i64::from(p.load_weight())).sum()
            }
            Some(groups) => scale_down(self.group_weights(groups, rq, of)),
        }
    }

    /// Whether a CPU has a task of the class that may run on `cpu`.
    pub(crate) fn has_fair_task_that_allows(&self, rq: &Cpu, cpu: CpuId) -> bool {
        let queue = rq.fair.waiting();
        let waiting = queue.iter().map(|&task| self.task(task));
        let mut all = waiting.chain(self.running_fair(rq));
        all.any(|p| p.allows(cpu))
    }

    /// Whether a task waits that must not run on `cpu`.
    pub(crate) fn is_fair_task_bound(&self, rq: &Cpu, cpu: CpuId) -> bool {
        let queue = rq.fair.waiting();
        let mut waiting = queue.iter().map(|&task| self.task(task));
        waiting.any(|p| !p.allows(cpu))
    }

    /// Brings the load of the group `of` on a CPU, and of those above, up to the local time of `c`, before their members
    /// change.
    pub(crate) fn update_load(&self, c: &Cpu, rq: &Cpu, of: CgroupId) {
        if let Some(groups) = &self.groups {
            self.update_group_loads(c, groups, rq, of);
        }
        let load = self.fair_load(rq, CgroupId::ROOT) as u64;
        rq.fair.root.load.update(c.this.now.get(), load);
    }

    /// `p` comes to `rq`: so does its load, as it was when `p` went to sleep and has faded since.
    fn attach_load(&self, c: &Cpu, rq: &Cpu, p: &Task, initial: bool) {
        let now = c.this.now.get();
        let load = &p.fair.load;
        let of = p.cgroup();
        self.update_load(c, rq, of);
        if initial {
            load.begin(now, u64::from(p.load_weight()));
        }
        load.update(now, 0);
        let before = p.fair.set_load_cpu(Some(rq.id));
        if before == Some(rq.id) {
            return;
        }
        if let Some(before) = before.map(|cpu| self.cpu(cpu)) {
            self.update_load(c, before, of);
            self.fair_queue(before, of).load.detach(load);
        }
        self.fair_queue(rq, of).load.attach(load);
    }

    /// `p` leaves the class or its group, or has ended: its load leaves the CPU where it came last (`detach_task_cfs_rq()`,
    /// `task_dead_fair()`).
    pub(crate) fn detach_load(&self, c: &Cpu, p: &Task) {
        let Some(rq) = p.fair.set_load_cpu(None).map(|cpu| self.cpu(cpu)) else {
            return;
        };
        self.update_load(c, rq, p.cgroup());
        p.fair.load.update(c.this.now.get(), 0);
        self.fair_queue(rq, p.cgroup()).load.detach(&p.fair.load);
    }

    /// `update_curr()`. Whose request is used up, or has lasted as long as it was to be left alone, makes way for others.
    pub(crate) fn update_curr_fair(&self, c: &Cpu, p: &Task) {
        let rq = self.cpu(p.cpu());
        if self.charge_fair(c, p) && self.fair_task_waits(rq) {
            self.resched_curr(c, rq);
        }
    }

    /// The same within schedule(), which makes a mark void. Returns whether other tasks are to be considered.
    fn charge_fair(&self, c: &Cpu, p: &Task) -> bool {
        self.update_utilisation(c, p, true);
        let ran = self.update_curr_common(c, p);
        p.fair.set_last_ran(c.this.now.get());
        if ran == 0 {
            return false;
        }
        let gives_way = self.charge_member(Member::Task(p), ran as i64);
        match &self.groups {
            None => gives_way,
            Some(groups) => self.charge_groups(c, groups, p, ran as i64, gives_way),
        }
    }

    /// Charges `ran` to a member. Returns whether others of its queue are to be considered.
    pub(crate) fn charge_member(&self, member: Member<'_>, ran: i64) -> bool {
        let passed = virtual_ns(ran, member.weight());
        let entity = member.entity();
        entity.charge(passed, || self.virtual_slice(member))
    }

    /// The length of a request in virtual time.
    fn virtual_slice(&self, member: Member<'_>) -> i64 {
        virtual_ns(self.fair_slice(), member.weight())
    }

    /// The most lag that a member of a queue keeps, in virtual time.
    pub(crate) fn lag_bound(&self, member: Member<'_>) -> i64 {
        let tick = self.costs.tick_period_ns as i64;
        let bound = self.version.fair_lag_bound(self.fair_slice(), tick);
        virtual_ns(bound, member.weight())
    }

    /// `place_entity()` in the queue of the group `of`.
    pub(crate) fn place_entity(&self, rq: &Cpu, member: Member<'_>, of: CgroupId, initial: bool) {
        let (average, weights) = self.average_vruntime(rq, of);
        let entity = member.entity();
        if let Some(cpu) = entity.take_slept_on() {
            let (average, weights) = self.average_vruntime(self.cpu(cpu), of);
            entity.work_off_lag((weights > 0).then_some(average));
        }
        entity.place(average, weights, member.weight(), || {
            let slice = self.virtual_slice(member);
            // A new task begins half-way into a slice.
            if initial { slice / 2 } else { slice }
        });
    }

    pub(crate) fn enqueue_task_fair(&self, c: &Cpu, rq: &Cpu, p: &Task, flags: u64) {
        self.classes.use_fair();
        if p.fair.is_throttled() && self.stays_throttled(c, rq, p) {
            return;
        }
        if let Some(curr) = self.running_fair(rq).filter(|curr| curr.id != p.id) {
            self.update_curr_fair_of(c, curr);
        }
        let initial = flags & enq::INITIAL != 0 || !p.fair.has_started();
        // Its own entry must not count where it is placed, nor its weight before it came.
        p.set_on_rq(OnRq::Migrating);
        self.attach_load(c, rq, p, initial);
        rq.add_nr_running();
        if initial {
            self.begin_utilisation(c, rq, p);
        }
        self.place_entity(rq, Member::Task(p), p.cgroup(), initial);
        p.set_on_rq(OnRq::Queued);
        if rq.curr() != Some(p.id) {
            rq.fair.push(p.id);
        }
        if let Some(groups) = &self.groups {
            self.enqueue_groups(c, groups, rq, p);
        }
        // hrtick_update()
        if !rq.fair.has_slice_end()
            && let Some(curr) = self.running_fair(rq)
        {
            self.hrtick_start_fair(c, rq, curr);
        }
    }

    /// `hrtick_start_fair()`: beside others the request of the running task ends by a timer, not only by a tick. That
    /// another CPU sets it costs no interrupt here.
    fn hrtick_start_fair(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        if !self.version.has_hrtick() || !self.fair_task_waits(rq) {
            return;
        }
        let Ok(left) = u64::try_from(p.fair.left() * i64::from(p.load_weight()) / NICE_0) else {
            return self.resched_curr(c, rq);
        };
        self.hrtick_start(rq, c.this.now.get() + left.max(SHORTEST_NS));
    }

    /// `hrtick_start()`: `rq` is interrupted at `end`.
    pub(crate) fn hrtick_start(&self, rq: &Cpu, end: u64) {
        rq.fair.start_slice_end(end);
        self.tick_no_later_than(rq, end);
    }

    /// `hrtick_clear()`.
    pub(crate) fn hrtick_cancel(&self, rq: &Cpu) {
        rq.fair.clear_slice_end();
    }

    /// `hrtick()`.
    pub(crate) fn hrtick(&self, c: &Cpu) {
        self.set_mode(c, CpuMode::Sched);
        let path = self.set_lock_path(c, LockPath::Other);
        self.rq_lock(c, c);
        if let Some(p) = self.running_fair(c) {
            self.update_curr_fair(c, p);
            self.resched_curr(c, c);
        } else if let Some(p) = c.curr().map(|task| self.task(task))
            && p.class() == Class::Deadline
        {
            self.task_tick_dl(c, p, true);
        }
        self.rq_unlock(c, c);
        self.set_lock_path(c, path);
    }

    /// Brings the running task of another CPU up to date as of the local time of `c`.
    pub(crate) fn update_curr_fair_of(&self, c: &Cpu, p: &Task) {
        if c.this.now.get() > p.exec_start() {
            self.update_curr_fair(c, p);
        }
    }

    pub(crate) fn dequeue_task_fair(&self, c: &Cpu, rq: &Cpu, p: &Task, flags: u64) {
        if p.fair.is_throttled() {
            return self.dequeue_throttled_task(c, p, flags);
        }
        let way = match flags & deq::SLEEP {
            0 => Leave::Move,
            _ => Leave::Sleep(rq.id),
        };
        self.dequeue_entities(c, rq, p, way);
    }

    /// `dequeue_entities()`.
    pub(crate) fn dequeue_entities(&self, c: &Cpu, rq: &Cpu, p: &Task, way: Leave) {
        let of = p.cgroup();
        self.update_load(c, rq, of);
        p.fair
            .load
            .update(c.this.now.get(), u64::from(p.load_weight()));
        if rq.curr() == Some(p.id) {
            if way == Leave::Move {
                self.update_curr_fair(c, p);
            } else {
                self.charge_fair(c, p);
                rq.fair.set_busy(c.this.now.get(), false);
            }
        }
        let (average, _) = self.average_vruntime(rq, of);
        p.fair.leave(average, self.lag_bound(Member::Task(p)), way);
        if way != Leave::Move {
            self.keep_utilisation(p);
            p.stop.forget_push();
        }
        rq.sub_nr_running();
        rq.fair.remove(p.id);
        self.fair_queue(rq, of).advance(average);
        if let Some(groups) = &self.groups {
            self.dequeue_groups(c, groups, rq, p, way);
        }
    }

    /// `pick_eevdf()` in the queue of the group `of`: the eligible member with the earliest deadline. The running one goes
    /// on while the request that it was chosen with lasts and it is eligible (run to parity).
    fn pick_eevdf<'k>(
        &'k self,
        rq: &Cpu,
        of: CgroupId,
        running: Option<Member<'k>>,
    ) -> Option<Member<'k>> {
        let (average, _) = self.average_vruntime(rq, of);
        if let Some(member) = running
            && member.entity().is_eligible(average)
            && member.entity().is_protected()
        {
            return running;
        }
        let queue = rq.fair.waiting();
        match &self.groups {
            None => {
                let waiting = queue.iter().map(|&task| self.task(task));
                earliest(waiting.map(Member::Task), running, average)
            }
            Some(groups) => {
                let waiting = self.waiting_members(groups, rq.id, of, &queue, running);
                earliest(waiting, running, average)
            }
        }
    }

    /// The task that is to run, from the root's queue down.
    fn pick_fair_task<'k>(&'k self, rq: &Cpu, running: Option<&'k Task>) -> Option<&'k Task> {
        let mut of = CgroupId::ROOT;
        loop {
            let here = running.and_then(|p| self.member_with(rq, of, p));
            match self.pick_eevdf(rq, of, here)? {
                Member::Task(p) => return Some(p),
                Member::Group(group) => of = group.id,
            }
        }
    }

    pub(crate) fn fair_task_waits(&self, rq: &Cpu) -> bool {
        rq.fair.waits()
    }

    pub(crate) fn pick_task_fair(&self, c: &Cpu, prev: Option<&Task>) -> Option<TaskId> {
        let mut running = prev.filter(|p| has_place(p));
        if let Some(p) = running {
            self.charge_fair(c, p);
        }
        if running.is_none() && !c.fair.waits() && c.is_online() {
            self.newidle_balance(c);
            // Its group may have got CPU time meanwhile.
            running = prev.filter(|p| has_place(p));
        } else {
            c.fair.take_wanted();
        }
        let next = self.pick_fair_task(c, running)?;
        // In the kernel a task that is chosen again goes on without the timer until another task is enqueued or the
        // tick comes. On a real system another task soon is. Here there may be none, and two hogs would take turns at
        // ticks only.
        if running.is_some_and(|p| p.id == next.id) && !c.fair.has_slice_end() {
            self.hrtick_start_fair(c, c, next);
        }
        Some(next.id)
    }

    pub(crate) fn put_prev_task_fair(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        if has_place(p) {
            self.charge_fair(c, p);
            rq.fair.push(p.id);
        }
        rq.set_stops_in_user(false);
        rq.fair.set_busy(c.this.now.get(), false);
    }

    pub(crate) fn set_next_task_fair(&self, c: &Cpu, p: &Task) {
        c.fair.remove(p.id);
        self.update_utilisation(c, p, false);
        c.fair.set_busy(c.this.now.get(), true);
        p.start_exec(c.this.now.get());
        p.fair.protect();
        if let Some(groups) = &self.groups {
            self.set_next_groups(c, groups, p);
        }
        c.fair.clear_slice_end();
        self.hrtick_start_fair(c, c, p);
    }

    pub(crate) fn task_tick_fair(&self, c: &Cpu, p: &Task) {
        self.update_curr_fair(c, p);
        if let Some(groups) = &self.groups {
            self.update_load(c, c, p.cgroup());
            self.update_cfs_groups(c, groups, c, p.cgroup());
        }
    }

    /// `yield_task_fair()`: beside others it forfeits the rest of its request.
    pub(crate) fn yield_task_fair(&self, c: &Cpu, p: &Task) {
        if c.nr_running() == 1 {
            return;
        }
        self.update_curr_fair(c, p);
        let (average, _) = self.average_vruntime(c, p.cgroup());
        // One that is not eligible makes way without that.
        if p.fair.is_eligible(average) {
            p.fair.forfeit();
            p.fair
                .update_deadline(|| self.virtual_slice(Member::Task(p)));
        }
    }

    pub(crate) fn wakeup_preempt_fair(&self, c: &Cpu, rq: &Cpu, p: &Task) {
        let Some(curr) = self.running_fair(rq) else {
            return;
        };
        if p.fair.is_throttled() {
            return;
        }
        // find_matching_se()
        let of = match &self.groups {
            None => CgroupId::ROOT,
            Some(groups) => groups.common(curr.cgroup(), p.cgroup()),
        };
        let member = |p| self.member_with(rq, of, p);
        let (Some(running), Some(woken)) = (member(curr), member(p)) else {
            return;
        };
        match (self.is_idle_member(running), self.is_idle_member(woken)) {
            (true, false) => {
                running.entity().cancel_protection();
                self.resched_curr(c, rq);
                return;
            }
            (false, true) => return,
            _ => {}
        }
        if p.attributes().policy != SchedClass::Normal {
            return;
        }
        self.update_curr_fair_of(c, curr);
        let best = self.pick_eevdf(rq, of, Some(running));
        if best.is_some_and(|best| best.is(woken)) {
            self.resched_curr(c, rq);
        }
    }

    pub(crate) fn is_idle_for_fair(&self, cpu: CpuId) -> bool {
        let rq = self.cpu(cpu);
        rq.curr().is_none() && rq.nr_running() == 0
    }

    /// Whether a CPU is as good as idle for `p`: it has only tasks of SCHED_IDLE or of idle groups, and `p` is not under
    /// SCHED_IDLE (`choose_idle_cpu()`).
    fn is_free_for(&self, p: &Task, cpu: CpuId) -> bool {
        let rq = self.cpu(cpu);
        let has_idle_only = || {
            let queue = rq.fair.waiting();
            let curr = self.running_fair(rq);
            let nr = queue.len() + usize::from(curr.is_some());
            let mut all = queue.iter().map(|&task| self.task(task)).chain(curr);
            nr > 0 && nr == rq.nr_running() as usize && all.all(|p| self.counts_as_idle(p))
        };
        let is_idle = p.attributes().policy == SchedClass::Idle;
        self.is_idle_for_fair(cpu) || !is_idle && self.classes.has_fair() && has_idle_only()
    }

    /// `sched_balance_find_dst_cpu()` for a new task or a new program: where there is least to do besides `p`, on a core
    /// of its own, by the cache with the fewest busy CPUs; near the parent, or where it runs, among equals. Beside as
    /// many as there are caches it stays at the parent's (`imb_numa_nr`).
    fn cpu_for_new_task(&self, p: &Task, parent: CpuId) -> Option<CpuId> {
        let topology = &self.machine.topology;
        let llc = |cpu: CpuId| topology.cpu(cpu).llc as usize;
        let core = |cpu: CpuId| topology.cpu(cpu).core;
        let runs_here = |cpu: CpuId| p.on_rq() == OnRq::Queued && p.cpu() == cpu;
        let nr_others = |cpu: CpuId| self.cpu(cpu).nr_running() - u32::from(runs_here(cpu));
        let busy = |cpu: CpuId| nr_others(cpu) > 0;
        let is_free = |cpu: CpuId| runs_here(cpu) && !busy(cpu) || self.is_free_for(p, cpu);
        let class_of = |cpu: CpuId| match runs_here(cpu) {
            true => Class::Fair,
            false => self.curr_class(self.cpu(cpu)),
        };
        let mut busy_of_llc = vec![0; topology.nr_llcs() as usize];
        for rq in self.cpus.iter().filter(|rq| busy(rq.id)) {
            busy_of_llc[llc(rq.id)] += 1;
        }
        let crowd = |cpu: CpuId| {
            let nr_busy = busy_of_llc[llc(cpu)];
            let stays = llc(cpu) == llc(parent) && nr_busy < busy_of_llc.len();
            if stays { 0 } else { nr_busy }
        };
        let shares_core = |cpu: CpuId| {
            let siblings = &self.costs.siblings[cpu.index()];
            siblings.iter().any(|&other| other != cpu && busy(other))
        };
        let usable = |cpu: CpuId| p.allows(cpu) && self.cpu(cpu).is_online();
        let cpus = self.cpus.iter().map(|rq| rq.id).filter(|&cpu| usable(cpu));
        cpus.min_by_key(|&cpu| {
            (
                if is_free(cpu) { 0 } else { nr_others(cpu) },
                class_of(cpu) > Class::Fair,
                shares_core(cpu),
                crowd(cpu),
                cpu != parent,
                core(cpu) != core(parent),
                llc(cpu) != llc(parent),
                cpu,
            )
        })
    }

    /// `select_task_rq_fair()`.
    pub(crate) fn select_task_rq_fair(
        &self,
        c: &Cpu,
        p: &Task,
        prev: CpuId,
        wake_flags: u64,
    ) -> CpuId {
        if wake_flags & wake::FORK != 0 {
            return self.cpu_for_new_task(p, prev).unwrap_or(prev);
        }
        let target = self.wake_affine(c, p, prev, wake_flags);
        self.update_utilisation(c, p, false);
        self.select_idle_sibling(c, p, prev, target)
    }

    /// `sched_exec()`: a task that begins a new program has nothing in the caches, so it is placed as a new one. Tasks of
    /// other classes stay where they are (`select_task_rq_scx()`, `select_task_rq_rt()`).
    #[cold]
    pub(crate) fn sched_exec(&self, c: &Cpu, p: &Task) {
        if p.class() != Class::Fair || p.stop.is_due() {
            return;
        }
        match self.cpu_for_new_task(p, c.id) {
            Some(dest) if dest != c.id => {
                p.stop.push_to(dest, Push::Exec);
                self.taken_by_class(c, c, Class::Stop);
                // stop_one_cpu() waits for the stopper.
                self.schedule(c, false);
            }
            _ => {}
        }
    }

    /// `wake_affine()`: this CPU or the previous one.
    fn wake_affine(&self, c: &Cpu, p: &Task, prev: CpuId, wake_flags: u64) -> CpuId {
        let usable = |cpu: CpuId| p.allows(cpu) && self.cpu(cpu).is_online();
        if !usable(c.id) {
            return prev;
        }
        if !usable(prev) {
            return c.id;
        }
        // wake_affine_idle()
        let prev_is_idle = self.is_idle_for_fair(prev);
        if self.is_idle_for_fair(c.id) && self.share_cache(c.id, prev) {
            return if prev_is_idle { prev } else { c.id };
        }
        let is_sync = wake_flags & wake::SYNC != 0;
        if is_sync && c.nr_running() == 1 {
            return c.id;
        }
        if prev_is_idle {
            return prev;
        }
        // wake_affine_weight()
        let loads = p.fair.load_cpu();
        let load_of = |cpu: CpuId| {
            let rq = self.cpu(cpu);
            self.update_load(c, rq, p.cgroup());
            rq.fair.root.load.get() as i64
        };
        let load = self.task_h_load(c, self.cpu(loads.unwrap_or(prev)), p);
        let mut here = load_of(c.id);
        if is_sync {
            let waker = self.running_fair(c).map_or(0, |waker| {
                let now = c.this.now.get();
                let load = &waker.fair.load;
                load.update(now, u64::from(waker.load_weight()));
                self.task_h_load(c, c, waker)
            });
            if waker > here {
                return c.id;
            }
            here -= waker;
        }
        let there = load_of(prev) - if loads == Some(prev) { load } else { 0 };
        let here = (here + load) * 100 * self.fair_capacity(self.cpu(prev));
        let there = there * (100 + (IMBALANCE_PCT - 100) / 2) * self.fair_capacity(c);
        if here < there { c.id } else { prev }
    }

    fn share_cache(&self, a: CpuId, b: CpuId) -> bool {
        let llc = |cpu: CpuId| self.machine.topology.cpu(cpu).llc;
        llc(a) == llc(b)
    }

    /// `select_idle_sibling()`: a free CPU that shares the target's cache, or the target.
    fn select_idle_sibling(&self, c: &Cpu, p: &Task, prev: CpuId, target: CpuId) -> CpuId {
        let is_free =
            |cpu: CpuId| p.allows(cpu) && self.cpu(cpu).is_online() && self.is_free_for(p, cpu);
        let is_free_near = |cpu: CpuId| {
            self.share_cache(cpu, target) && is_free(cpu) && self.asym_fits_cpu(p, cpu)
        };
        if let Some(cpu) = [target, prev].into_iter().find(|&cpu| is_free_near(cpu)) {
            return cpu;
        }
        let recent = p.fair.wake(prev);
        if let Some(cpu) = recent.filter(|&cpu| is_free_near(cpu)) {
            return cpu;
        }
        if self.costs.is_asymmetric {
            return self.select_idle_capacity(p, target, is_free);
        }
        let cpus = &self.llc_of(target).cpus;
        let siblings = |cpu: CpuId| self.costs.siblings[cpu.index()].iter().copied();
        let is_idle = |cpu| self.is_idle_for_fair(cpu);
        let core_is_idle = |cpu| is_idle(cpu) && siblings(cpu).all(is_idle);
        // Model: the mark of the cache (`test_idle_cores()`) is always right.
        let has_smt = cpus.iter().any(|&cpu| siblings(cpu).len() > 0);
        let has_idle_core = has_smt && cpus.iter().any(|&cpu| core_is_idle(cpu));
        if !has_idle_core && self.share_cache(prev, target) {
            // select_idle_smt()
            if let Some(cpu) = siblings(prev).find(|&cpu| is_free(cpu)) {
                return cpu;
            }
        }
        // select_idle_cpu()
        let nr = self.nr_idle_scan(c, target);
        if nr == 0 {
            return target;
        }
        let after = cpus.partition_point(|&cpu| cpu <= target);
        let (before, after) = cpus.split_at(after);
        let near = after.iter().chain(before).copied();
        if has_idle_core {
            let mut free = near.filter(|&cpu| is_free(cpu));
            let first = free.clone().next();
            let of_idle_core = free.find(|&cpu| core_is_idle(cpu));
            return of_idle_core.or(first).unwrap_or(target);
        }
        let usable = near.filter(|&cpu| p.allows(cpu) && self.cpu(cpu).is_online());
        let found = usable.take(nr).find(|&cpu| is_free(cpu));
        found.unwrap_or(target)
    }

    /// How many CPUs of the cache of `target` a wakeup looks at (`SIS_UTIL`). Model: the number is renewed by the first
    /// wakeup after the interval at which an idle CPU balances, not by balancing itself.
    fn nr_idle_scan(&self, c: &Cpu, target: CpuId) -> usize {
        let llc = self.llc_of(target);
        let now = c.this.now.get();
        if llc.idle_scan_is_due(now) {
            let busy = llc.cpus.iter().map(|&cpu| self.cpu(cpu).fair.busy(now));
            let nr_cpus = llc.cpus.len() as u64;
            let nr = nr_idle_scan(busy.sum(), nr_cpus, IMBALANCE_PCT as u64);
            llc.update_idle_scan(now, nr as usize);
        }
        llc.nr_idle_scan()
    }

    /// The last-level cache of `cpu`.
    pub(crate) fn llc_of(&self, cpu: CpuId) -> &Llc {
        self.domains.llc(self.machine.topology.cpu(cpu).llc)
    }

    /// Whether a task that waits on `rq` may run on `cpu`.
    pub(crate) fn fair_task_for(&self, rq: &Cpu, cpu: CpuId) -> bool {
        let queue = rq.fair.waiting();
        let mut waiting = queue.iter().map(|&task| self.task(task));
        waiting.any(|p| self.can_migrate_fair(p, cpu))
    }

    /// How many tasks wait on a CPU that can go to `idle` or one of the `takers`.
    pub(crate) fn nr_fair_tasks_for(&self, rq: &Cpu, idle: &Cpu, takers: &[&Cpu]) -> usize {
        let queue = rq.fair.waiting();
        let waiting = queue.iter().map(|&task| self.task(task));
        let can_go = |p: &&Task| {
            let mut cpus = takers.iter().map(|rq| rq.id).chain([idle.id]);
            cpus.any(|cpu| self.can_migrate_fair(p, cpu))
        };
        waiting.filter(can_go).count()
    }

    /// `can_migrate_task()`: `p` may run on `cpu`, has left its own and is not about to run there. Where that is not so,
    /// the run queue's lock keeps others waiting until it is; without run queue locks it stays.
    fn can_migrate_fair(&self, p: &Task, cpu: CpuId) -> bool {
        let is_free = || !p.on_cpu() && !self.is_chosen(p, self.cpu(p.cpu()));
        if self.is_throttled_on(p, cpu) {
            return false;
        }
        p.allows(cpu) && (self.machine.sched_ext.rq_locks || is_free())
    }

    /// Returns the part of a CPU that real-time tasks leave, of [`CAPACITY`] for the fastest one (`scale_rt_capacity()`).
    pub(crate) fn fair_capacity(&self, rq: &Cpu) -> i64 {
        (rq.fair.capacity_left() * i64::from(self.capacity_of(rq.id)) / CAPACITY).max(1)
    }

    /// The CPU that has most to do of those with a task for `c`, and how much weight is to be moved at most
    /// (`calculate_imbalance()`): neither is to have less than the mean after that.
    fn fair_imbalance(&self, c: &Cpu) -> Option<(&Cpu, i64)> {
        let online = || self.cpus.iter().filter(|rq| rq.is_online());
        let load =
            |rq: &Cpu| self.fair_load(rq, CgroupId::ROOT) * CAPACITY / self.fair_capacity(rq);
        let here = load(c);
        let all = online().map(|rq| self.fair_load(rq, CgroupId::ROOT));
        let all = all.sum::<i64>();
        let mean = all * CAPACITY / online().map(|rq| self.fair_capacity(rq)).sum::<i64>();
        let busiest = online()
            .filter(|rq| rq.id != c.id && rq.nr_running() >= 2 && self.fair_task_for(rq, c.id))
            .max_by_key(|rq| (load(rq), std::cmp::Reverse(rq.id)))?;
        let there = load(busiest);
        let differs = c.nr_running() < 2 || 100 * there > IMBALANCE_PCT * here;
        let too_much = (there - mean) * self.fair_capacity(busiest);
        let too_little = (mean - here) * self.fair_capacity(c);
        let imbalance = too_much.min(too_little) / CAPACITY;
        (differs && imbalance > 0).then_some((busiest, imbalance))
    }

    /// `sched_balance_newidle()`: a CPU that has nothing to do takes a task that waits near it, or as many as another CPU
    /// has found that it is to take.
    ///
    /// Model: it looks whenever a task waits anywhere, however short it is idle.
    fn newidle_balance(&self, c: &Cpu) {
        if let Some((src, nr_tasks)) = c.fair.take_wanted()
            && self.fair_task_for(self.cpu(src), c.id)
        {
            let nr_tasks = nr_tasks.clamp(1, MIGRATE_MAX);
            self.move_fair_tasks(c, self.cpu(src), nr_tasks, None);
            return;
        }
        // get_rd_overloaded()
        if !self.cpus.iter().any(|rq| rq.nr_running() >= 2) {
            return;
        }
        if let Some(src) = self.newidle_source(c) {
            self.move_fair_tasks(c, src, 1, None);
        }
    }

    /// Takes tasks from a CPU that has more to do.
    fn busy_balance(&self, c: &Cpu) {
        match self.fair_imbalance(c) {
            Some((src, imbalance)) => self.move_fair_tasks(c, src, MIGRATE_MAX, Some(imbalance)),
            None => c.fair.note_balance(false),
        }
    }

    /// `detach_tasks()`: takes at most `nr_max` tasks, from the tail of the queue of `src`. A busy CPU takes so much weight
    /// at most, of tasks that have not run just now.
    fn move_fair_tasks(&self, c: &Cpu, src: &Cpu, nr_max: usize, imbalance: Option<i64>) {
        let failed = c.fair.nr_failed();
        let idle = imbalance.is_none();
        self.rq_unlock(c, c);
        self.rq_lock(c, src);
        let mut left = imbalance.unwrap_or(i64::MAX);
        let mut found: Vec<&Task> = Vec::new();
        for &task in src.fair.waiting().iter().rev() {
            let p = self.task(task);
            let hot = p.fair.last_ran() + CACHE_HOT_NS > c.this.now.get();
            let moves = idle || !hot || failed > CACHE_NICE_TRIES;
            let weight = self.task_h_weight(src, p);
            let fits = weight >> failed.min(63) <= left;
            if self.can_migrate_fair(p, c.id) && moves && fits && self.is_queued_on(p, src) {
                left -= weight;
                found.push(p);
            }
            if left <= 0 || found.len() == nr_max {
                break;
            }
        }
        // A CPU that has just become idle does not count its attempts.
        if !(idle && found.is_empty()) {
            c.fair.note_balance(found.is_empty());
        }
        for p in &found {
            p.set_on_rq(OnRq::Migrating);
            self.dequeue_task_fair(c, src, p, deq::NOCLOCK);
            self.set_task_cpu(c, p, c.id);
        }
        self.rq_unlock(c, src);
        self.rq_lock(c, c);
        for p in found {
            self.enqueue_task_fair(c, c, p, enq::MIGRATED);
            self.wakeup_preempt(c, c, p);
        }
    }

    /// `sched_balance_trigger()`: from time to time a CPU with few tasks takes some.
    pub(crate) fn fair_balance_tick(&self, c: &Cpu) {
        if !self.classes.has_fair() {
            return;
        }
        let ticks = c.fair.tick();
        if self.classes.has_rt() {
            let is_taken = self.curr_class(c) > Class::Fair;
            c.fair
                .update_stolen(c.this.now.get(), self.costs.tick_period_ns, is_taken);
        }
        self.nohz_idle_balance(c);
        // A busy CPU looks every 16 times the number of CPUs in milliseconds.
        let interval_ns = self.cpus.len() as u64 * 16 * 1_000_000;
        let every = interval_ns.div_ceil(self.costs.tick_period_ns);
        let has_fair = c
            .curr()
            .is_some_and(|task| self.task(task).class() == Class::Fair);
        if has_fair && ticks.is_multiple_of(every) {
            self.rq_lock(c, c);
            self.busy_balance(c);
            self.rq_unlock(c, c);
        }
    }
}
