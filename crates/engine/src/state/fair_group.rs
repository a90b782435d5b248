//! Groups of tasks in the fair class: their entities and queues on each CPU, and their limits of CPU time
//! (`struct task_group`, `struct cfs_bandwidth`).

use std::cell::{Cell, RefCell};

use schedlab_trace::{CpuId, TaskId};
use schedlab_workload::{Bandwidth, CgroupId, Cgroups, Rng, below};

use crate::contract::consts;
use crate::state::fair::{Entity, Queue};
use crate::state::task::Task;

/// The weight of an entity has so many bits after the point (`SCHED_FIXEDPOINT_SHIFT`): the shares of a group are parts of
/// its weight.
pub(crate) const WEIGHT_SHIFT: u32 = 10;

/// The least weight of a group, and of its share on a CPU (`MIN_SHARES`).
const SHARES_MIN: i64 = 2;

/// Returns a weight without the bits after the point (`scale_load_down()`): the least one counts, too.
pub(crate) fn scale_down(weight: i64) -> i64 {
    match weight {
        0 => 0,
        _ => (weight >> WEIGHT_SHIFT).max(SHARES_MIN),
    }
}

/// CPU time that a CPU takes of a group's quota at a time (`sched_cfs_bandwidth_slice()`).
pub(crate) const SLICE_NS: i64 = 5_000_000;

/// CPU time that a CPU keeps when a group has no tasks there any more (`min_cfs_rq_runtime`).
const KEPT_NS: i64 = 1_000_000;

/// Time until CPU time that has been given back goes to throttled CPUs (`cfs_bandwidth_slack_period`), …
pub(crate) const SLACK_NS: u64 = 5_000_000;

/// … which is left to the next period if that begins within this time (`min_bandwidth_expiration`).
pub(crate) const EXPIRATION_NS: u64 = 2_000_000;

/// A member of a queue: a task or a group of tasks (`struct sched_entity`).
#[derive(Clone, Copy)]
pub(crate) enum Member<'k> {
    Task(&'k Task),
    Group(&'k GroupRq),
}

impl<'k> Member<'k> {
    pub fn entity(self) -> &'k Entity {
        match self {
            Member::Task(p) => &p.fair,
            Member::Group(group) => &group.entity,
        }
    }

    /// Returns its weight, with [`WEIGHT_SHIFT`] bits after the point.
    pub fn weight(self) -> i64 {
        match self {
            Member::Task(p) => i64::from(p.load_weight()) << WEIGHT_SHIFT,
            Member::Group(group) => group.weight.get(),
        }
    }

    /// Returns whether it is the same entity.
    pub fn is(self, other: Member<'_>) -> bool {
        std::ptr::eq(self.entity(), other.entity())
    }
}

/// A group on a CPU: its entity in the queue of the group above (`tg->se[cpu]`), and its own queue (`tg->cfs_rq[cpu]`).
pub(crate) struct GroupRq {
    pub id: CgroupId,
    pub entity: Entity,
    /// The part of the group's weight that it has here.
    weight: Cell<i64>,
    pub queue: Queue,
    /// Runnable tasks in it and in the groups below, the running one included (`h_nr_queued`).
    nr: Cell<u32>,
    /// The CPU time that is left of what this CPU has taken of the quota (`runtime_remaining`).
    runtime: Cell<i64>,
    /// It waits for CPU time of the quota.
    throttled: Cell<bool>,
    /// How many of it and the groups above wait for that here (`throttle_count`).
    nr_throttled: Cell<u32>,
    /// Its tasks that have been stopped (`throttled_limbo_list`), the one that was stopped last at the end.
    limbo: RefCell<Vec<TaskId>>,
}

impl GroupRq {
    reads! { weight: i64, nr: u32, is_throttled of throttled: bool, runtime: i64, nr_throttled: u32 }

    sets! {
        set_weight(weight: i64): weight = weight;
        throttle(): throttled = true;
        unthrottle(): throttled = false;
        set_runtime(runtime: i64): runtime = runtime;
    }

    fn new(id: CgroupId) -> GroupRq {
        GroupRq {
            id,
            entity: Entity::default(),
            weight: Cell::new(1_024 << WEIGHT_SHIFT),
            queue: Queue::default(),
            nr: Cell::new(0),
            runtime: Cell::new(1),
            throttled: Cell::new(false),
            nr_throttled: Cell::new(0),
            limbo: RefCell::default(),
        }
    }

    /// Counts a task that has come.
    pub fn add(&self) {
        self.nr.set(self.nr.get() + 1);
    }

    /// Counts a task that leaves.
    pub fn sub(&self) {
        self.nr.set(self.nr.get() - 1);
    }

    /// Returns its weight in the queue above as far as it has tasks.
    pub fn load(&self) -> u64 {
        if self.nr.get() == 0 {
            return 0;
        }
        scale_down(self.weight.get()) as u64
    }

    /// Returns whether it or a group above waits for CPU time here (`throttled_hierarchy()`).
    pub fn is_in_throttled(&self) -> bool {
        self.nr_throttled.get() > 0
    }

    /// Notes that it or a group above waits for CPU time.
    pub fn add_throttled(&self) {
        self.nr_throttled.set(self.nr_throttled.get() + 1);
    }

    /// Notes that one of these does not wait any more.
    pub fn sub_throttled(&self) {
        self.nr_throttled.set(self.nr_throttled.get() - 1);
    }

    /// Takes in a task that is stopped.
    pub fn stop(&self, task: TaskId) {
        self.limbo.borrow_mut().push(task);
    }

    /// Lets a stopped task go.
    pub fn release(&self, task: TaskId) {
        self.limbo.borrow_mut().retain(|&other| other != task);
    }

    /// Returns the task that was stopped last.
    pub fn last_stopped(&self) -> Option<TaskId> {
        self.limbo.borrow().last().copied()
    }

    /// Takes what it may give back when its last task has gone (`__return_cfs_rq_runtime()`).
    pub fn take_slack(&self) -> i64 {
        let slack = (self.runtime.get() - KEPT_NS).max(0);
        self.runtime.set(self.runtime.get() - slack);
        slack
    }
}

/// The limit of a group, for all CPUs (`struct cfs_bandwidth`).
pub(crate) struct Pool {
    quota: i64,
    burst: i64,
    pub period: u64,
    /// CPU time that no CPU has taken yet.
    runtime: Cell<i64>,
    /// The timer of the period is set (`period_active`), …
    active: Cell<bool>,
    /// … and expires then, or did so last.
    expires: Cell<u64>,
    /// Nothing has been taken in this period.
    idle: Cell<bool>,
    /// CPU time that has been given back is about to be distributed (`slack_started`).
    slack: Cell<bool>,
    /// The CPUs that wait for CPU time, the first one first.
    waiting: RefCell<Vec<CpuId>>,
}

impl Pool {
    reads! { runtime: i64 }

    sets! {
        end_slack(): slack = false;
        stop_timer(): active = false;
        /// Notes whether nothing has been taken yet. Returns what was noted before.
        set_idle(idle: bool) -> bool: idle = idle;
    }

    /// `expires`: a point in time at which a period begins.
    fn new(limit: Bandwidth, expires: u64) -> Option<Pool> {
        let quota = limit.quota?.ns() as i64;
        let burst = limit.burst.ns() as i64;
        Some(Pool {
            quota,
            burst,
            period: limit.period.ns(),
            // Each of the two files fills it when it is written.
            runtime: Cell::new(quota + burst),
            active: Cell::new(false),
            expires: Cell::new(expires),
            idle: Cell::new(false),
            slack: Cell::new(false),
            waiting: RefCell::default(),
        })
    }

    /// `__refill_cfs_bandwidth_runtime()`.
    pub fn refill(&self) {
        let runtime = self.runtime.get() + self.quota;
        self.runtime.set(runtime.min(self.quota + self.burst));
    }

    /// Takes up to `asked`.
    pub fn take(&self, asked: i64) -> i64 {
        let amount = asked.min(self.runtime.get().max(0));
        if amount > 0 {
            self.idle.set(false);
            self.runtime.set(self.runtime.get() - amount);
        }
        amount
    }

    /// Takes back what a CPU does not need. Returns whether CPUs that wait for it can go on.
    pub fn give_back(&self, slack: i64) -> bool {
        self.runtime.set(self.runtime.get() + slack);
        self.has_slack() && self.has_waiting()
    }

    /// Returns whether enough is left to distribute it within a period.
    pub fn has_slack(&self) -> bool {
        self.runtime.get() > SLICE_NS
    }

    /// `start_cfs_bandwidth()`. Returns when the timer is to expire, unless it is set already.
    pub fn start(&self, now: u64) -> Option<u64> {
        (!self.active.replace(true)).then(|| self.forward(now))
    }

    /// `hrtimer_forward_now()`: goes on to the first beginning of a period after `now`.
    pub fn forward(&self, now: u64) -> u64 {
        let since = self.expires.get();
        if since <= now {
            let periods = (now - since) / self.period + 1;
            self.expires.set(since + periods * self.period);
        }
        self.expires.get()
    }

    /// Returns whether the next period begins within `ns` (`runtime_refresh_within()`).
    pub fn is_refilled_within(&self, now: u64, ns: u64) -> bool {
        self.expires.get() < now + ns
    }

    /// Begins to gather what is given back, if that is not under way.
    pub fn start_slack(&self) -> bool {
        !self.slack.replace(true)
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Returns the CPUs that wait for CPU time.
    pub fn waiting(&self) -> Vec<CpuId> {
        self.waiting.borrow().clone()
    }

    pub fn wait(&self, cpu: CpuId) {
        self.waiting.borrow_mut().push(cpu);
    }

    pub fn end_wait(&self, cpu: CpuId) {
        self.waiting.borrow_mut().retain(|&other| other != cpu);
    }
}

/// A group, or the root.
struct Group {
    parent: Option<CgroupId>,
    children: Vec<CgroupId>,
    /// Its weight (`tg->shares`).
    shares: i64,
    is_idle: bool,
    pool: Option<Pool>,
    /// Its part of each CPU; the root has none, as the class itself has its queue.
    rqs: Box<[GroupRq]>,
}

/// All groups of a run.
pub(crate) struct Groups(Vec<Group>);

impl Groups {
    /// Returns the groups of a workload, `None` if there is the root alone.
    pub fn new(tree: &Cgroups, nr_cpus: usize, mut rng: Rng) -> Option<Groups> {
        if tree.is_empty() {
            return None;
        }
        let mut all: Vec<Group> = Vec::with_capacity(tree.len());
        for id in [CgroupId::ROOT].into_iter().chain(tree.below_root()) {
            let (settings, parent) = (tree.settings(id), tree.parent(id));
            // init_cfs_bandwidth(): the periods of groups begin at different times.
            let period = Bandwidth::default().period.ns();
            let expires = below(&mut rng, period);
            // sched_weight_from_cgroup()
            let shares = (i64::from(settings.weight) * 1_024 + 50) / 100;
            let shares = match settings.idle {
                true => i64::from(consts::WEIGHT_IDLEPRIO),
                false => shares.max(SHARES_MIN),
            };
            let nr_rqs = if parent.is_some() { nr_cpus } else { 0 };
            if let Some(parent) = parent {
                all[parent.index()].children.push(id);
            }
            all.push(Group {
                parent,
                children: Vec::new(),
                shares,
                is_idle: settings.idle,
                pool: Pool::new(settings.bandwidth, expires),
                rqs: (0..nr_rqs).map(|_| GroupRq::new(id)).collect(),
            });
        }
        Some(Groups(all))
    }

    /// Returns all groups but the root.
    pub fn below_root(&self) -> impl Iterator<Item = CgroupId> {
        (1..self.0.len() as u32).map(CgroupId)
    }

    fn get(&self, id: CgroupId) -> &Group {
        &self.0[id.index()]
    }

    /// Returns the groups right below one.
    pub fn children(&self, of: CgroupId) -> impl Iterator<Item = CgroupId> + Clone {
        self.get(of).children.iter().copied()
    }

    /// Returns a group and those above it up to the root, which is left out.
    pub fn path(&self, from: CgroupId) -> impl Iterator<Item = CgroupId> {
        let mut next = Some(from);
        std::iter::from_fn(move || {
            let id = next.filter(|&id| id != CgroupId::ROOT)?;
            next = self.get(id).parent;
            Some(id)
        })
    }

    /// Returns the group above one.
    pub fn parent(&self, of: CgroupId) -> CgroupId {
        self.get(of).parent.unwrap_or(CgroupId::ROOT)
    }

    /// Returns the group right below `above` that holds `id`, or is it.
    pub fn child_with(&self, above: CgroupId, id: CgroupId) -> Option<CgroupId> {
        self.path(id).find(|&id| self.parent(id) == above)
    }

    /// Returns the nearest group that holds both.
    pub fn common(&self, a: CgroupId, b: CgroupId) -> CgroupId {
        let mut above = self.path(a);
        let holds_b = |id: &CgroupId| self.path(b).any(|other| other == *id);
        above.find(holds_b).unwrap_or(CgroupId::ROOT)
    }

    /// Returns a group after all below it.
    pub fn subtree(&self, of: CgroupId) -> Vec<CgroupId> {
        let mut all: Vec<CgroupId> = self
            .children(of)
            .flat_map(|child| self.subtree(child))
            .collect();
        all.push(of);
        all
    }

    /// Returns a group below the root on a CPU.
    pub fn rq(&self, id: CgroupId, cpu: CpuId) -> &GroupRq {
        &self.get(id).rqs[cpu.index()]
    }

    /// Returns its limit, if it has one.
    pub fn pool(&self, id: CgroupId) -> Option<&Pool> {
        self.get(id).pool.as_ref()
    }

    /// Returns all groups with a limit.
    pub fn limited(&self) -> impl Iterator<Item = (CgroupId, &Pool)> {
        let all = self.0.iter().zip(0..);
        all.filter_map(|(group, id)| Some((CgroupId(id), group.pool.as_ref()?)))
    }

    /// Returns the stopped tasks of all groups on a CPU.
    pub fn stopped(&self, cpu: CpuId) -> Vec<TaskId> {
        let rqs = self.0.iter().filter_map(|group| group.rqs.get(cpu.index()));
        rqs.flat_map(|rq| rq.limbo.borrow().clone()).collect()
    }

    /// Returns whether a group is below all that are not (`cpu.idle`).
    pub fn is_idle(&self, id: CgroupId) -> bool {
        self.get(id).is_idle
    }

    /// Returns the part of the group's weight that goes to a CPU with this `load` beside `others` elsewhere
    /// (`calc_group_shares()`).
    pub fn shares(&self, id: CgroupId, load: i64, others: i64) -> i64 {
        let shares = self.get(id).shares << WEIGHT_SHIFT;
        let part = i128::from(shares) * i128::from(load) / i128::from((load + others).max(1));
        (part as i64).clamp(SHARES_MIN, shares)
    }

    /// Returns the load of the group on all CPUs but one as of `now`; where it has no task it fades.
    pub fn load_elsewhere(&self, id: CgroupId, cpu: CpuId, now: u64) -> i64 {
        let others = self.get(id).rqs.iter().enumerate();
        let others = others.filter(|(at, _)| *at != cpu.index());
        let loads = others.map(|(_, rq)| {
            if rq.nr.get() == 0 {
                rq.queue.load.update(now, 0);
            }
            rq.queue.load.get()
        });
        loads.sum::<u64>() as i64
    }
}
