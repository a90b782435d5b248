//! A virtual CPU and its run queue.

use std::cell::Cell;

use schedlab_machine::{CacheIx, Machine};
use schedlab_trace::{CpuId, CpuMode, CpuSet, LockPath, TaskId};

use crate::contract::policy::ThisCpu;
use crate::state::costs::Costs;
use crate::state::deadline::DlRq;
use crate::state::deferred::Deferred;
use crate::state::dispatch::Dispatch;
use crate::state::dsq::Dsq;
use crate::state::expired::Expired;
use crate::state::fair::FairRq;
use crate::state::kick::Kicks;
use crate::state::lock::{Held, LockIx};
use crate::state::memory::Cache;
use crate::state::op::OpUnderWay;
use crate::state::rt::RtRq;
use crate::state::scx::ScxRq;
use crate::state::segment::Segment;
use crate::state::task::Class;

/// Interrupts that can be pending on a CPU.
pub(crate) mod irq {
    pub const RESCHED: u32 = 1 << 0;
    pub const TICK: u32 = 1 << 1;
    pub const TIMER: u32 = 1 << 2;
    pub const POLICY_TIMER: u32 = 1 << 3;
    /// `kick_cpus_irq_workfn()`.
    pub const KICK: u32 = 1 << 4;
    /// `deferred_irq_workfn()`.
    pub const DEFERRED: u32 = 1 << 5;
    /// The CPU is to go offline or online.
    pub const HOTPLUG: u32 = 1 << 6;
    /// The running task's slice ends (`hrtick()`).
    pub const HRTICK: u32 = 1 << 7;
    /// Periods of throttled deadline tasks begin, or of cgroups' limits.
    pub const REPLENISH: u32 = 1 << 8;
    /// Acknowledgements of TCP have been delayed for long enough.
    pub const ACK: u32 = 1 << 9;
}

/// The event for which a suspended CPU waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Its turn, or a lock. Interrupts are off.
    Resume,
    /// The end of a stretch of its task's time, or an interrupt.
    Segment,
    /// An interrupt.
    Idle,
    /// To come online.
    Offline,
}

/// The one thing that a CPU spins for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spin {
    Nothing,
    Lock(LockIx),
    /// That this task is off its CPU.
    OffCpu(TaskId),
}

/// The reasons that keep a CPU from going on with its task: one bit each, so that one comparison finds any of them.
#[derive(Default)]
struct Calls(Cell<u32>);

impl Calls {
    /// The resched mark (`TIF_NEED_RESCHED`). Those before it are pending interrupts ([`irq`]).
    const NEED_RESCHED: u32 = 1 << 16;
    const OFFLINE: u32 = 1 << 17;
    /// The run is over: what tasks would do from here on is not part of it.
    const CLOSED: u32 = 1 << 18;
    /// The running task is to stop when it is in user space (`task_struct::sched_throttle_work`).
    const STOPS_IN_USER: u32 = 1 << 19;

    const IRQS: u32 = Calls::NEED_RESCHED - 1;

    #[inline(always)]
    fn has(&self, calls: u32) -> bool {
        self.0.get() & calls != 0
    }

    /// Sets or clears a bit. Returns whether it was set.
    #[inline(always)]
    fn set(&self, call: u32, on: bool) -> bool {
        let before = self.0.get();
        self.0.set(if on { before | call } else { before & !call });
        before & call != 0
    }
}

/// One virtual CPU and its run queue.
///
/// The order is that in memory: what a switch looks at lies together in as few of the host's cache lines as it needs,
/// and the nearest to the beginning, where code that names it is shorter.
#[repr(C)]
pub(crate) struct Cpu {
    pub id: CpuId,
    calls: Calls,
    /// The part that policy code reaches, too.
    pub this: ThisCpu,
    /// That of its core.
    pub cache: CacheIx,
    /// Its run queue's lock, once that has been taken.
    rq_lock: Cell<Option<LockIx>>,
    /// The task that runs here, `None` if it is the idle task (`rq->curr`).
    curr: Cell<Option<TaskId>>,
    /// Tasks on this run queue, the running one included.
    nr_running: Cell<u32>,
    mode: Cell<CpuMode>,
    /// The event for which it waits, or waited last.
    wait: Cell<Wait>,
    lock_path: Cell<LockPath>,
    /// Its wait has come to its end; an interrupt did not come before.
    woken_by_main: Cell<bool>,
    /// It is to be marked as soon as it has chosen its next task.
    mark_next: Cell<bool>,
    /// It slept since it last ran the scheduler.
    was_idle: Cell<bool>,
    /// The class that is to run here, as far as is known (`rq->next_class`).
    next_class: Cell<Class>,
    pub scx: ScxRq,

    pub op: OpUnderWay,
    pub held: Held,

    pub segment: Segment,
    /// It runs every task at [`FULL_SPEED`](crate::state::costs::FULL_SPEED).
    pub is_plain: bool,
    /// The hardware threads that slow it down while they run, and that it slows down.
    pub slowed_by: Box<[CpuId]>,

    /// The task that is about to run, and still on its queue. Without run queue locks no other CPU takes it from
    /// there.
    chosen: Cell<Option<TaskId>>,
    /// The local DSQ.
    pub local: Dsq,
    pub deferred: Deferred,
    pub kicks: Kicks,
    /// The address space that it used last.
    last_mm: Cell<Option<u32>>,
    pub dispatch: Dispatch,
    pub expired: Expired,

    // The rest is seldom looked at.
    pub node: u32,
    /// The last answer of [`Cpu::any_and_distribute`].
    distribute_prev: Cell<u32>,
    spin: Cell<Spin>,
    pub rt: RtRq,
    pub fair: FairRq,
    pub dl: DlRq,
    pub memory: Cache,
}

/// The fields that nearly every function reads lie in two lines of the host's cache.
const _: () = assert!(std::mem::offset_of!(Cpu, scx) + ScxRq::HOT_BYTES <= 128);

impl Cpu {
    reads! {
        nr_running: u32, next_class: Class, curr: Option<TaskId>, mode: CpuMode, lock_path: LockPath,
        rq_lock: Option<LockIx>, wait: Wait, went_on of woken_by_main: bool,
    }

    sets! {
        /// Sets the class that has been chosen, or is above the one that was to run.
        set_next_class(class: Class): next_class = class;
        /// Marks it as soon as it has chosen.
        mark_when_chosen(): mark_next = true;
        begin_idle(): was_idle = true;
        switch_to(next: Option<TaskId>): curr = next;
        /// Notes the task that it is about to run; `None`: it runs now.
        choose(next: Option<TaskId>): chosen = next;
        make_rq_lock(lock: LockIx): rq_lock = Some(lock);
        end_spin(): spin = Spin::Nothing;
        /// Notes the event that it waits for from now on; [`Wait::Resume`] also after a wait, in the kernel.
        set_wait(event: Wait): wait = event;
        /// Returns whether it has slept.
        end_idle() -> bool: was_idle = false;
        /// Changes the mode. Returns the former one.
        enter_mode(mode: CpuMode) -> CpuMode: mode = mode;
        /// Changes the path on whose behalf it takes locks. Returns the former one.
        enter_lock_path(path: LockPath) -> LockPath: lock_path = path;
    }

    pub fn new(id: CpuId, machine: &Machine, costs: &Costs) -> Self {
        Cpu {
            id,
            this: ThisCpu::new(id),
            cache: CacheIx::of(machine, id),
            node: machine.topology.cpu(id).node,
            slowed_by: costs.slowed_by(id).into(),
            is_plain: costs.is_plain(id),
            mode: Cell::new(CpuMode::Idle),
            wait: Cell::new(Wait::Idle),
            woken_by_main: Cell::new(false),
            calls: Calls::default(),
            mark_next: Cell::new(false),
            was_idle: Cell::new(false),
            expired: Expired::default(),
            lock_path: Cell::new(LockPath::Other),
            rq_lock: Cell::new(None),
            spin: Cell::new(Spin::Nothing),
            curr: Cell::new(None),
            chosen: Cell::new(None),
            next_class: Cell::new(Class::Idle),
            nr_running: Cell::new(0),
            rt: RtRq::default(),
            fair: FairRq::default(),
            dl: DlRq::default(),
            local: Dsq::local(id),
            scx: ScxRq::default(),
            deferred: Deferred::default(),
            kicks: Kicks::default(),
            distribute_prev: Cell::new(0),
            op: OpUnderWay::default(),
            dispatch: Dispatch::default(),
            held: Held::default(),
            segment: Segment::default(),
            last_mm: Cell::new(None),
            memory: Cache::default(),
        }
    }

    /// Marks an interrupt pending.
    #[inline(always)]
    pub fn raise(&self, irq: u32) {
        self.calls.set(irq, true);
    }

    /// Makes an interrupt pending no more. Returns whether it was.
    #[inline(always)]
    pub fn forget_irq(&self, irq: u32) -> bool {
        self.calls.set(irq, false)
    }

    /// An interrupt is pending, or going off or online.
    pub fn has_irq(&self) -> bool {
        self.calls.has(Calls::IRQS)
    }

    /// `test_tsk_need_resched()`.
    #[inline(always)]
    pub fn need_resched(&self) -> bool {
        self.calls.has(Calls::NEED_RESCHED)
    }

    /// Whether the running task may have to leave the CPU: [`Cpu::need_resched`] or [`Cpu::stops_in_user`].
    #[inline(always)]
    pub fn has_work(&self) -> bool {
        self.calls.has(Calls::NEED_RESCHED | Calls::STOPS_IN_USER)
    }

    /// Whether the running task is to stop as soon as it is in user space (`task_has_throttle_work()`).
    #[inline(always)]
    pub fn stops_in_user(&self) -> bool {
        self.calls.has(Calls::STOPS_IN_USER)
    }

    /// Notes whether it is.
    pub fn set_stops_in_user(&self, on: bool) {
        self.calls.set(Calls::STOPS_IN_USER, on);
    }

    /// Sets or clears the resched mark. Returns whether it was set.
    #[inline(always)]
    pub fn set_need_resched(&self, on: bool) -> bool {
        self.calls.set(Calls::NEED_RESCHED, on)
    }

    #[inline(always)]
    pub fn is_online(&self) -> bool {
        !self.calls.has(Calls::OFFLINE)
    }

    pub fn set_online(&self, online: bool) {
        self.calls.set(Calls::OFFLINE, !online);
    }

    /// The run is over.
    pub fn close(&self) {
        self.calls.set(Calls::CLOSED, true);
    }

    /// The run is over: it does nothing more for its task.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        self.calls.has(Calls::CLOSED)
    }

    /// The pending interrupts, but for going off or online.
    #[inline(always)]
    pub fn pending_irqs(&self) -> u32 {
        self.calls.0.get() & Calls::IRQS & !irq::HOTPLUG
    }

    /// The work that comes before its own.
    #[inline(always)]
    pub fn wanted(&self) -> u32 {
        self.calls.0.get() & (Calls::IRQS | Calls::OFFLINE)
    }

    /// `add_nr_running()`.
    #[inline(always)]
    pub fn add_nr_running(&self) {
        self.nr_running.set(self.nr_running.get() + 1);
    }

    /// `sub_nr_running()`.
    #[inline(always)]
    pub fn sub_nr_running(&self) {
        self.nr_running.set(self.nr_running.get() - 1);
    }

    /// `rq_modified_begin()`: `class` is asked for a task. What comes to a higher class from now on raises it again.
    #[inline(always)]
    pub fn rq_modified_begin(&self, class: Class) {
        if self.rq_modified_above(class) {
            self.next_class.set(class);
        }
    }

    /// `rq_modified_above()`: whether a task of a class above `class` has come since then.
    #[inline(always)]
    pub fn rq_modified_above(&self, class: Class) -> bool {
        self.next_class.get() > class
    }

    /// Sets the mark that was to come when it has chosen.
    #[inline(always)]
    pub fn mark_if_told(&self) {
        if self.mark_next.replace(false) {
            self.set_need_resched(true);
        }
    }

    /// `switch_mm()`. Returns whether it used another address space before.
    #[inline(always)]
    pub fn switch_mm(&self, mm: u32) -> bool {
        self.last_mm.replace(Some(mm)) != Some(mm)
    }

    /// Returns whether it is about to run `task`.
    pub fn has_chosen(&self, task: TaskId) -> bool {
        self.chosen.get() == Some(task)
    }

    pub fn spin_for(&self, lock: LockIx) {
        self.begin_spin(Spin::Lock(lock));
    }

    /// Spins until this task is off its CPU.
    pub fn await_off_cpu(&self, task: TaskId) {
        self.begin_spin(Spin::OffCpu(task));
    }

    fn begin_spin(&self, spin: Spin) {
        let former = self.spin.replace(spin);
        assert_eq!(former, Spin::Nothing, "a CPU spins for one thing");
    }

    pub fn spins_for(&self) -> Option<LockIx> {
        match self.spin.get() {
            Spin::Lock(lock) => Some(lock),
            Spin::Nothing | Spin::OffCpu(_) => None,
        }
    }

    pub fn awaits_off_cpu(&self, task: TaskId) -> bool {
        self.spin.get() == Spin::OffCpu(task)
    }

    /// Goes on at `time`, at the end of its wait.
    #[inline(always)]
    pub fn go_on(&self, time: u64) {
        self.this.now.set(self.this.now.get().max(time));
        self.woken_by_main.set(true);
    }

    /// Goes on at `time`, before that end.
    #[inline(always)]
    pub fn interrupt(&self, time: u64) {
        self.this.now.set(self.this.now.get().max(time));
        self.woken_by_main.set(false);
    }

    /// It is in the midst of a path of the kernel.
    pub fn is_in_kernel(&self) -> bool {
        self.wait.get() == Wait::Resume
    }

    /// It does not go on with its task.
    #[inline(always)]
    pub fn is_called_off(&self) -> bool {
        self.calls.0.get() != 0
    }

    /// `cpumask_any_and_distribute()`: the next common CPU after the last one that was found here.
    pub fn any_and_distribute(&self, a: &CpuSet, b: &CpuSet) -> Option<CpuId> {
        let found = a.next_and_wrap(b, self.distribute_prev.get() + 1)?;
        self.distribute_prev.set(found.0);
        Some(found)
    }

    /// Index of its local DSQ.
    pub fn local_dsq(&self) -> u32 {
        self.id.0
    }
}
