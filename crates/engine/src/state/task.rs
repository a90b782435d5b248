//! Tasks: everything the virtual kernel knows of each.

use std::cell::{Cell, RefCell};

use elsa::FrozenVec;
use schedlab_machine::LineRef;
use schedlab_trace::{CpuId, Instant, TaskId};
use schedlab_workload::{CgroupId, Reservation, Rng, TaskSpec};

use crate::state::account::Account;
use crate::state::affinity::Affinity;
use crate::state::attributes::Attributes;
use crate::state::dsq::{Node, Nodes};
use crate::state::memory::Memory;
use crate::state::pi::{Inherited, Rank};
use crate::state::program::Program;
use crate::state::scx;
use crate::state::sorted::NIL;
use crate::state::stop::StopWork;

/// Scheduling classes; a greater one goes first (`sched_class_above()`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    Idle,
    Ext,
    Fair,
    Rt,
    Deadline,
    /// The stopper, which moves tasks.
    Stop,
}

/// `task_struct::__state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskState {
    /// Not started. → `Waking`, or `Dead` if fork() fails
    New,
    /// Runnable, running or about to be enqueued. → `Blocked`, `Dead`
    Running,
    /// Waits for something. → `Waking`, or `Running` if woken before it left its CPU
    Blocked,
    /// A CPU is placing it. → `Running`
    Waking,
    /// Exits at its next schedule(). Final.
    Dead,
}

/// `task_struct::on_rq`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnRq {
    No,
    Queued,
    Migrating,
}

/// Which task it is.
pub(crate) struct Identity {
    pub id: TaskId,
    pub parent: Option<TaskId>,
    /// The first task of its address space.
    pub tgid: u32,
}

/// The facts of a task that never change.
pub(crate) struct Origin {
    pub comm: Box<str>,
    pub parent: Option<TaskId>,
    pub tgid: u32,
    /// It is there when the run begins.
    pub starts_at_once: bool,
    /// The run does not wait for it.
    pub is_background: bool,
}

/// One task. Fields are cells because the virtual kernel's CPUs interleave; none is borrowed across
/// a suspension.
///
/// The order is that in memory: what a switch looks at lies together in as few of the host's cache lines as it needs.
#[repr(C)]
pub(crate) struct Task {
    // Where it is, and who owns it.
    pub id: TaskId,
    /// `task_cpu()`.
    cpu: Cell<CpuId>,
    /// Index of the DSQ it is on.
    dsq: Cell<u32>,
    /// Its scheduling fields.
    pub line: LineRef,
    class: Cell<Class>,
    state: Cell<TaskState>,
    on_rq: Cell<OnRq>,
    on_cpu: Cell<bool>,
    /// Some CPU spins until the task is off its CPU.
    on_cpu_awaited: Cell<bool>,
    /// It has begun to exit (`PF_EXITING`).
    exiting: Cell<bool>,
    /// It leaves its CPU by sched_yield().
    yielded: Cell<bool>,
    /// Its place there.
    pub node: crate::state::dsq::Node,
    pub scx: scx::Entity,

    // Fields that are read where it is chosen and runs.
    /// Until when its running time has been charged.
    exec_start: Cell<u64>,
    /// `se.sum_exec_runtime`.
    sum_exec_ns: Cell<u64>,
    /// CPU it last ran on.
    last_cpu: Cell<Option<CpuId>>,
    pub stop: StopWork,
    pub address_space: Option<u32>,
    pub affinity: Affinity,
    pub program: Program,

    // The rest is seldom looked at.
    pub origin: Origin,
    pub memory: Memory,
    pub account: Account,
    attributes: Cell<Attributes>,
    /// `sched_task_group`.
    cgroup: Cell<CgroupId>,
    pub rt: crate::state::rt::Entity,
    pub fair: crate::state::fair::Entity,
    pub dl: crate::state::deadline::Entity,
    pub pi: crate::state::pi::Holder,
}

/// The fields of a task's way through sched_ext begin and end with a line of the host's cache.
const _: () = assert!(std::mem::offset_of!(Task, scx) + scx::Entity::FLAGS_BYTES == 64);
const _: () = assert!(std::mem::offset_of!(Task, scx) + scx::Entity::HOT_BYTES == 128);

impl Task {
    reads! {
        state: TaskState, cpu: CpuId, class: Class, on_cpu: bool, is_awaited of on_cpu_awaited: bool,
        is_exiting of exiting: bool, exec_start: u64, sum_exec_ns: u64, on_rq: OnRq, dsq: u32,
        attributes: Attributes, cgroup: CgroupId,
    }

    sets! {
        set_class(class: Class): class = class;
        switch_out(): on_cpu = false;
        await_off_cpu(): on_cpu_awaited = true;
        exit(): exiting = true;
        set_yielded(): yielded = true;
        start_exec(now: u64): exec_start = now;
        /// It is on no DSQ any more.
        leave_dsq(): dsq = NIL;
        set_attributes(attributes: Attributes): attributes = attributes;
        set_cgroup(cgroup: CgroupId): cgroup = cgroup;
        /// Switches it in. Returns whether it was on a CPU already.
        switch_in() -> bool: on_cpu = true;
        /// Returns whether a CPU spins until it is off its own, once.
        take_awaited() -> bool: on_cpu_awaited = false;
        /// Runs it on `cpu`. Returns where it ran before.
        run_on(cpu: CpuId) -> Option<CpuId>: last_cpu = Some(cpu);
        /// Returns whether it leaves its CPU by sched_yield().
        take_yield() -> bool: yielded = false;
    }

    pub fn new(
        Identity { id, parent, tgid }: Identity,
        spec: TaskSpec,
        cpu: CpuId,
        nr_cpus: usize,
        line: LineRef,
        rng: Rng,
    ) -> Task {
        Task {
            id,
            origin: Origin {
                comm: spec.comm.chars().take(15).collect(),
                parent,
                tgid,
                starts_at_once: spec.start == Instant::ZERO,
                is_background: spec.behaviour.is_background(),
            },
            address_space: spec.address_space,
            memory: Memory::new(spec.working_set_bytes),
            line,
            attributes: Cell::new(Attributes {
                policy: spec.class,
                nice: spec.nice,
                inherited: Inherited::Nothing,
            }),
            cgroup: Cell::new(CgroupId::ROOT),
            affinity: Affinity::new(spec.affinity, nr_cpus),
            exiting: Cell::new(false),
            class: Cell::new(Class::Ext),
            state: Cell::new(TaskState::New),
            on_rq: Cell::new(OnRq::No),
            on_cpu: Cell::new(false),
            on_cpu_awaited: Cell::new(false),
            cpu: Cell::new(cpu),
            last_cpu: Cell::new(None),
            stop: StopWork::default(),
            exec_start: Cell::new(0),
            sum_exec_ns: Cell::new(0),
            account: Account::default(),
            yielded: Cell::new(false),
            dsq: Cell::new(NIL),
            node: crate::state::dsq::Node::new(id),
            scx: scx::Entity::default(),
            rt: crate::state::rt::Entity::default(),
            fair: crate::state::fair::Entity::default(),
            dl: crate::state::deadline::Entity::default(),
            pi: crate::state::pi::Holder::default(),
            program: Program::new(spec.behaviour, rng),
        }
    }

    /// Takes it to another state, along the arrows of [`TaskState`].
    ///
    /// # Panics
    /// If there is no such arrow.
    #[inline(always)]
    pub fn set_state(&self, to: TaskState) {
        use TaskState::{Blocked, Dead, New, Running, Waking};
        let from = self.state.replace(to);
        let follows = match to {
            New => false,
            Running => matches!(from, Waking | Blocked),
            Blocked => from == Running,
            Waking => matches!(from, New | Blocked),
            Dead => matches!(from, New | Running),
        };
        assert!(follows, "a task that was {from:?} becomes {to:?}");
    }

    /// `__set_task_cpu()`. Returns whether it was elsewhere.
    #[inline(always)]
    pub fn place_on(&self, cpu: CpuId) -> bool {
        self.cpu.replace(cpu) != cpu
    }

    /// `update_curr_common()`: charges its running time until `now`. Returns how much that is.
    #[inline(always)]
    pub fn update_curr(&self, now: u64) -> u64 {
        let start = self.exec_start.replace(now);
        if now <= start {
            return 0;
        }
        let ran = now - start;
        // All together that is no more than the run's time.
        self.sum_exec_ns
            .set(self.sum_exec_ns.get().wrapping_add(ran));
        ran
    }

    /// Whether it is on the run queue of `cpu`, and on no DSQ: what one that is switched in must be.
    #[inline(always)]
    pub fn is_runnable_on(&self, cpu: CpuId) -> bool {
        self.cpu.get() == cpu && self.on_rq.get() == OnRq::Queued && self.dsq.get() == NIL
    }

    /// # Panics
    /// If it is to move between run queues and is on none.
    #[inline(always)]
    pub fn set_on_rq(&self, to: OnRq) {
        let from = self.on_rq.replace(to);
        assert!(
            (from, to) != (OnRq::No, OnRq::Migrating),
            "a task that is on no run queue migrates"
        );
    }

    /// It has been put on a DSQ.
    ///
    /// # Panics
    /// If it is on one already.
    #[inline(always)]
    pub fn enter_dsq(&self, dsq: u32) {
        let former = self.dsq.replace(dsq);
        assert!(
            former == NIL,
            "a task is put on DSQ {dsq} and is on DSQ {former}"
        );
    }

    pub fn allows(&self, cpu: CpuId) -> bool {
        match &*self.affinity.borrow() {
            Some(set) => set.contains(cpu),
            None => true,
        }
    }

    /// `name[pid]`, as the kernel's messages name tasks.
    pub fn label(&self) -> String {
        format!("{}[{}]", self.origin.comm, self.id.pid())
    }

    /// Whether its effective priority is a real-time one.
    pub fn is_realtime(&self) -> bool {
        self.attributes().is_realtime()
    }

    /// The effective real-time priority, 0 for others.
    pub fn rt_priority(&self) -> u8 {
        self.attributes().rt_priority()
    }

    /// Its own reservation, if it is under SCHED_DEADLINE.
    pub fn reservation(&self) -> Option<Reservation> {
        self.attributes().reservation()
    }

    /// `is_dl_boosted()`.
    pub fn is_boosted_by_deadline(&self) -> bool {
        self.attributes().is_boosted_by_deadline()
    }

    /// `task_struct::prio`.
    pub fn prio(&self) -> i32 {
        self.attributes().prio()
    }

    /// How urgent it is as a waiter for a mutex.
    pub fn rank(&self) -> Rank {
        Rank::of(self.prio(), self.dl.deadline())
    }

    /// `task_struct::se.load`.
    pub fn load_weight(&self) -> u32 {
        self.attributes().load_weight()
    }
}

/// All tasks by id. References stay valid while tasks are forked.
#[derive(Default)]
pub(crate) struct TaskTable {
    tasks: FrozenVec<Box<Task>>,
    /// Address spaces in order, with the thread group's leader of each.
    leaders: RefCell<Vec<(u32, u32)>>,
}

impl TaskTable {
    pub fn len(&self) -> u32 {
        // Ids are 32 bits wide, see push().
        self.tasks.len() as u32
    }

    /// Adds what `make` makes of the new id.
    pub fn push(&self, make: impl FnOnce(TaskId) -> Task) -> &Task {
        let id = u32::try_from(self.tasks.len()).expect("fewer tasks than ids");
        self.tasks.push_get(Box::new(make(TaskId(id))))
    }

    /// `tgid` of a new task: the first one of an address space is its thread group's leader.
    pub fn tgid(&self, id: TaskId, address_space: Option<u32>) -> u32 {
        let Some(space) = address_space else {
            return id.pid();
        };
        let mut leaders = self.leaders.borrow_mut();
        match leaders.binary_search_by_key(&space, |&(space, _)| space) {
            Ok(place) => leaders[place].1,
            Err(place) => {
                leaders.insert(place, (space, id.pid()));
                id.pid()
            }
        }
    }

    #[inline]
    pub fn get(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(id.index())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter()
    }
}

impl Nodes for TaskTable {
    #[inline]
    fn node(&self, task: u32) -> &Node {
        let task = self.get(TaskId(task));
        &task.expect("a task on a queue is in the table").node
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use schedlab_machine::CacheModel;

    #[test]
    fn a_task_stays_where_it_is_while_others_come() {
        let line = CacheModel::new(&testing::machine(1)).line_at(0);
        let table = TaskTable::default();
        let mut kept: Vec<&Task> = Vec::new();
        for n in 0..1_000 {
            let task = table.push(|id| {
                let spec = testing::task(&format!("t{n}"), |_, _| None);
                let identity = Identity {
                    id,
                    parent: None,
                    tgid: id.pid(),
                };
                Task::new(
                    identity,
                    spec,
                    CpuId(0),
                    1,
                    line,
                    schedlab_workload::stream(1, id.0),
                )
            });
            kept.push(task);
        }
        assert_eq!(table.len(), 1_000);
        assert_eq!(table.iter().count(), 1_000);
        for (n, &task) in kept.iter().enumerate() {
            assert!(std::ptr::eq(task, table.get(TaskId(n as u32)).unwrap()));
            assert_eq!(
                (task.id.index(), &*task.origin.comm),
                (n, &*format!("t{n}"))
            );
        }
        assert!(table.get(TaskId(1_000)).is_none());
    }
}
