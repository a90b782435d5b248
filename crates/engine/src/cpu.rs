//! A virtual CPU: its state, and what it does all day ([`Kernel::cpu_main`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use schedlab_machine::{CacheIx, Machine};
use schedlab_trace::{CpuId, CpuMode, Event, LockPath, Recorder, TaskId};

use crate::cost::Costs;
use crate::event_queue::CpuEvent;
use crate::kernel::Kernel;
use crate::lock::{Held, LockIx};
use crate::mutation::Mutation;
use crate::policy::{OpKind, Policy, ThisCpu, TimerId};
use crate::task::{Class, Exec, Task, TaskState};

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
    /// Periods of throttled deadline tasks begin.
    pub const REPLENISH: u32 = 1 << 8;
}

/// What a suspended CPU waits for.
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

/// Whom an op may dispatch directly (`direct_dispatch_task`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DirectDispatch {
    /// Nobody: insertions are buffered.
    Off,
    /// The task that is being enqueued.
    Of(TaskId),
    /// It has been dispatched already.
    Spoiled,
}

/// An entry of the dispatch buffer (`struct scx_dsp_buf_ent`).
#[derive(Clone, Copy)]
pub(crate) struct DispatchEntry {
    pub task: TaskId,
    pub qseq: u64,
    pub dsq: u64,
    pub enq_flags: u64,
}

/// Tasks whose timers have expired on a CPU, in order. There is rarely more than one.
#[derive(Default)]
pub(crate) struct Expired {
    first: Cell<Option<TaskId>>,
    others: RefCell<VecDeque<TaskId>>,
    nr_others: Cell<usize>,
}

impl Expired {
    #[inline]
    pub fn push(&self, task: TaskId) {
        if self.first.get().is_none() {
            self.first.set(Some(task));
        } else {
            let mut others = self.others.borrow_mut();
            others.push_back(task);
            self.nr_others.set(others.len());
        }
    }

    #[inline]
    fn pop(&self) -> Option<TaskId> {
        let first = self.first.take();
        if self.nr_others.get() > 0 {
            let mut others = self.others.borrow_mut();
            self.first.set(others.pop_front());
            self.nr_others.set(others.len());
        }
        first
    }
}

/// What keeps a CPU from going on with its task: one bit each, so that it is one comparison whether there is anything.
#[derive(Default)]
struct Calls(Cell<u32>);

impl Calls {
    /// The resched mark (`TIF_NEED_RESCHED`). Those before it are pending interrupts ([`irq`]).
    const NEED_RESCHED: u32 = 1 << 16;
    const OFFLINE: u32 = 1 << 17;
    /// The run is over: what tasks would do from here on is not part of it.
    const CLOSED: u32 = 1 << 18;

    const IRQS: u32 = Calls::NEED_RESCHED - 1;

    #[inline(always)]
    fn has(&self, calls: u32) -> bool {
        self.0.get() & calls != 0
    }

    /// Sets or clears a bit; tells whether it was set.
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
    /// What policy code reaches of it, too.
    pub this: ThisCpu,
    /// That of its core.
    pub cache: CacheIx,
    pub rq_lock: Cell<Option<LockIx>>,
    pub curr: Cell<Option<TaskId>>,
    /// Tasks on this run queue, the running one included.
    pub nr_running: Cell<u32>,
    pub scx_nr_running: Cell<u32>,
    pub mode: Cell<CpuMode>,
    pub wait: Cell<Wait>,
    pub lock_path: Cell<LockPath>,
    pub woken_by_main: Cell<bool>,
    /// What it runs next is to be marked as soon as it is chosen.
    pub mark_next: Cell<bool>,
    /// It slept since it last ran the scheduler.
    pub was_idle: Cell<bool>,
    pub next_class: Cell<Class>,
    pub in_wakeup: Cell<bool>,
    pub in_balance: Cell<bool>,
    pub bal_cb_pending: Cell<bool>,
    /// There may be something in one of the lists of deferred work.
    pub has_deferred: Cell<bool>,
    /// It is to wait for others as soon as sched_ext has chosen, …
    pub kick_sync_pending: Cell<bool>,
    /// … and does so at the end of this schedule().
    pub kick_sync_due: Cell<bool>,
    pub in_select_cpu: Cell<bool>,

    /// When the op under way must have returned, and how often it may still ask for something.
    pub op_deadline: Cell<u64>,
    pub op_requests_left: Cell<u32>,
    /// Whose run queue's lock the op under way holds (`scx_locked_rq()`).
    pub locked_rq: Cell<Option<CpuId>>,
    pub op_task: Cell<Option<TaskId>>,
    pub direct_dispatch: Cell<DirectDispatch>,
    pub held: Held,
    pub dispatched: Cell<u32>,

    // The stretch of task time under way.
    pub segment_pct: Cell<u32>,
    pub segment_start: Cell<u64>,
    /// The hardware threads that slow it down while they run, and that it slows down.
    pub slowed_by: Box<[CpuId]>,

    pub expired: Expired,
    /// Who is about to run, and still on its queue. Without run queue locks nobody else takes it from there.
    pub chosen: Cell<Option<TaskId>>,
    /// The local DSQ.
    pub local: crate::dsq::Dsq,
    pub kick_sync: Cell<u64>,
    pub extra_enq_flags: Cell<u64>,
    pub last_mm: Cell<Option<u32>>,
    pub dispatch_buf: RefCell<Vec<DispatchEntry>>,
    /// The task whose insertion is carried out now.
    pub inserting: Cell<Option<TaskId>>,

    // The rest is seldom looked at.
    pub node: u32,
    /// The op in which that under way is nested.
    pub outer_op: Cell<Option<OpKind>>,
    pub nr_immed: Cell<u32>,
    pub cpu_released: Cell<bool>,
    pub deferred_locals: RefCell<VecDeque<TaskId>>,
    pub reenq_local_flags: Cell<Option<u64>>,
    pub reenq_users: RefCell<VecDeque<(u32, u64)>>,
    pub kicks: RefCell<Vec<(CpuId, u64)>>,
    /// CPUs to wait for, with their `kick_sync` when they were kicked.
    pub kick_waits: RefCell<Vec<(CpuId, u64)>>,
    pub distribute_prev: Cell<u32>,
    pub expired_policy: RefCell<VecDeque<TimerId>>,
    /// The lock that it waits for.
    pub spins_for: Cell<Option<LockIx>>,
    /// Spins until this task is off its CPU.
    pub awaits_off_cpu: Cell<Option<TaskId>>,
    /// Waiting real-time tasks, highest first.
    pub rt_queue: RefCell<VecDeque<TaskId>>,
    /// Where the running real-time task is put back.
    pub rt_place: Cell<crate::rt::Place>,
    pub fair: crate::fair::FairRq,
    pub dl: crate::deadline::DlRq,
    /// Bytes of buffers that came into the cache so far.
    pub filled_bytes: Cell<u64>,
}

/// What nearly every function looks at lies in two lines of the host's cache.
const _: () = assert!(std::mem::offset_of!(Cpu, op_deadline) <= 128);

impl Cpu {
    pub fn new(id: CpuId, machine: &Machine, costs: &Costs) -> Self {
        Cpu {
            id,
            this: ThisCpu::new(id),
            cache: CacheIx::of(machine, id),
            node: machine.topology.cpu(id).node,
            slowed_by: costs.slowed_by(id).into(),
            mode: Cell::new(CpuMode::Idle),
            wait: Cell::new(Wait::Idle),
            woken_by_main: Cell::new(false),
            calls: Calls::default(),
            mark_next: Cell::new(false),
            was_idle: Cell::new(false),
            expired: Expired::default(),
            expired_policy: RefCell::default(),
            lock_path: Cell::new(LockPath::Other),
            rq_lock: Cell::new(None),
            spins_for: Cell::new(None),
            curr: Cell::new(None),
            chosen: Cell::new(None),
            next_class: Cell::new(Class::Idle),
            nr_running: Cell::new(0),
            rt_queue: RefCell::default(),
            rt_place: Cell::default(),
            awaits_off_cpu: Cell::new(None),
            fair: crate::fair::FairRq::default(),
            dl: crate::deadline::DlRq::default(),
            local: crate::dsq::Dsq::local(id),
            scx_nr_running: Cell::new(0),
            in_wakeup: Cell::new(false),
            in_balance: Cell::new(false),
            bal_cb_pending: Cell::new(false),
            cpu_released: Cell::new(false),
            extra_enq_flags: Cell::new(0),
            nr_immed: Cell::new(0),
            has_deferred: Cell::new(false),
            deferred_locals: RefCell::default(),
            reenq_local_flags: Cell::new(None),
            reenq_users: RefCell::default(),
            kicks: RefCell::default(),
            kick_sync: Cell::new(0),
            kick_sync_pending: Cell::new(false),
            kick_sync_due: Cell::new(false),
            kick_waits: RefCell::default(),
            distribute_prev: Cell::new(0),
            outer_op: Cell::new(None),
            op_deadline: Cell::new(0),
            op_requests_left: Cell::new(0),
            locked_rq: Cell::new(None),
            op_task: Cell::new(None),
            direct_dispatch: Cell::new(DirectDispatch::Off),
            in_select_cpu: Cell::new(false),
            dispatch_buf: RefCell::default(),
            inserting: Cell::new(None),
            dispatched: Cell::new(0),
            held: Held::default(),
            segment_start: Cell::new(0),
            segment_pct: Cell::new(100),
            last_mm: Cell::new(None),
            filled_bytes: Cell::new(0),
        }
    }

    /// Marks an interrupt pending.
    #[inline(always)]
    pub fn raise(&self, irq: u32) {
        self.calls.set(irq, true);
    }

    /// An interrupt is pending no more; tells whether it was.
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

    /// Sets or clears the resched mark; tells whether it was set.
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

    /// What comes before its own work.
    #[inline(always)]
    fn wanted(&self) -> u32 {
        self.calls.0.get() & (Calls::IRQS | Calls::OFFLINE)
    }

    /// It does not go on with its task.
    #[inline(always)]
    pub fn is_called_off(&self) -> bool {
        self.calls.0.get() != 0
    }

    /// Whether anything is on its lists of deferred work.
    pub fn defers_anything(&self) -> bool {
        !self.deferred_locals.borrow().is_empty()
            || self.reenq_local_flags.get().is_some()
            || !self.reenq_users.borrow().is_empty()
    }

    /// It has been through a choice (`rq->scx.kick_sync`). Counted one by one, so it never overflows.
    #[inline]
    pub fn count_kick_sync(&self) {
        self.kick_sync.set(self.kick_sync.get().wrapping_add(1));
    }

    /// Index of its local DSQ.
    pub fn local_dsq(&self) -> u32 {
        self.id.0
    }
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// The life of a CPU. Interrupts first, then the scheduler, then the current task.
    pub(crate) fn cpu_main(&self, c: &Cpu) {
        loop {
            if c.wanted() != 0 {
                self.attend(c);
            } else if let Some(task) = c.curr.get() {
                let p = self.task(task);
                if c.need_resched() && self.may_preempt(p) {
                    self.schedule(c, true);
                } else {
                    self.run_task(c, p);
                }
            } else if c.need_resched() {
                self.leave_idle(c);
                self.schedule(c, true);
            } else {
                self.idle_wait(c);
            }
        }
    }

    /// What comes before the CPU's own work: going off and online, and interrupts.
    #[inline(always)]
    fn attend(&self, c: &Cpu) {
        if c.wanted() == irq::TIMER {
            // The commonest alone, on a short way.
            self.timer_interrupt(c);
            if !c.has_irq() {
                return;
            }
            self.handle_interrupts(c);
        } else {
            self.attend_to_others(c);
        }
    }

    #[inline(never)]
    fn attend_to_others(&self, c: &Cpu) {
        if c.forget_irq(irq::HOTPLUG) {
            if c.is_online() {
                self.cpu_down(c);
            } else {
                self.cpu_up(c);
            }
        } else if !c.is_online() {
            self.offline(c);
        } else {
            self.handle_interrupts(c);
        }
    }

    /// Whether a resched mark is honoured where the task is now.
    fn may_preempt(&self, p: &Task) -> bool {
        self.machine.preemptible_kernel || matches!(p.exec.get(), Exec::Next | Exec::User)
    }

    fn idle_wait(&self, c: &Cpu) {
        self.set_mode(c, CpuMode::Idle);
        c.was_idle.set(true);
        c.wait.set(Wait::Idle);
        self.pause();
    }

    /// The way from the interrupt that ends idle to schedule().
    fn leave_idle(&self, c: &Cpu) {
        if c.was_idle.replace(false) {
            self.set_mode(c, CpuMode::Kernel);
            self.charge(c, self.machine.paths.idle_exit_ns);
        }
    }

    /// Runs the current task until something else is to be done on its CPU. This and what it does each time is a part
    /// of [`Kernel::cpu_main`], which saves no registers.
    #[inline(always)]
    fn run_task(&self, c: &Cpu, p: &Task) {
        if c.calls.has(Calls::CLOSED) {
            c.wait.set(Wait::Idle);
            return self.pause();
        }
        loop {
            match p.exec.get() {
                Exec::Next => self.next_action(c, p),
                Exec::User | Exec::Kernel => self.segment(c, p),
                // Another task may run when this one has blocked.
                Exec::Effect => return self.take_effect(c, p),
            }
            if c.is_called_off() {
                return;
            }
        }
    }

    /// Spends the task's `left_ns`, or what of it an interrupt leaves.
    #[inline(always)]
    fn segment(&self, c: &Cpu, p: &Task) {
        let is_user = p.exec.get() == Exec::User;
        let (mode, next) = if is_user {
            (CpuMode::User, Exec::Next)
        } else {
            (CpuMode::Kernel, Exec::Effect)
        };
        self.set_mode(c, mode);
        let left = p.left_ns.get();
        if left > 0 {
            let start = c.this.now.get();
            c.segment_start.set(start);
            let pct = if is_user { self.user_speed_pct(c) } else { 100 };
            c.segment_pct.set(pct);
            let end = start + wall_ns(left, pct);
            let undisturbed = self.is_before_all(c, end);
            if undisturbed {
                // Nothing happens anywhere meanwhile, so nothing can come in between.
                c.this.now.set(end);
                self.clock.set(end);
            } else {
                c.wait.set(Wait::Segment);
                self.set_event(c.id, CpuEvent::Main, end);
                self.pause();
                c.wait.set(Wait::Resume);
            }
            let elapsed = segment_elapsed(c);
            if undisturbed || c.woken_by_main.get() {
                p.left_ns.set(0);
            } else {
                shorten_segment(c, p, elapsed);
            }
            if is_user {
                self.evict(c, elapsed);
            }
        }
        if p.left_ns.get() == 0 {
            p.exec.set(next);
        }
    }

    /// Takes what has been done since the segment began off the task's `left_ns`.
    pub(crate) fn account_segment(&self, c: &Cpu, p: &Task) {
        let elapsed = segment_elapsed(c);
        shorten_segment(c, p, elapsed);
        if c.mode.get() == CpuMode::User {
            self.evict(c, elapsed);
        }
    }

    /// The application's own lines push others out of the cache.
    fn evict(&self, c: &Cpu, user_ns: u64) {
        self.shared.cache.borrow_mut().evict(c.cache, user_ns);
    }

    /// Handles the pending interrupts, those that come meanwhile included.
    pub(crate) fn handle_interrupts(&self, c: &Cpu) {
        loop {
            let pending = c.calls.0.get() & Calls::IRQS & !irq::HOTPLUG;
            if pending == 0 {
                return;
            }
            let irq = pending & pending.wrapping_neg();
            c.forget_irq(irq);
            if self.bypassing.get() && irq == irq::POLICY_TIMER {
                c.expired_policy.borrow_mut().clear();
                continue;
            }
            self.set_mode(c, CpuMode::Kernel);
            self.charge(c, self.machine.paths.irq_ns);
            match irq {
                irq::RESCHED => self.charge(c, self.machine.paths.ipi_handle_ns),
                irq::TICK => {
                    self.scheduler_tick(c);
                    self.sleeps_end(c);
                }
                irq::TIMER => self.timers_expired(c),
                irq::HRTICK => {
                    self.hrtick(c);
                    self.sleeps_end(c);
                }
                irq::REPLENISH => {
                    self.replenishments_due(c);
                    self.sleeps_end(c);
                }
                irq::POLICY_TIMER => {
                    // bpf_timers expire in the softirq that follows.
                    self.sleeps_end(c);
                    self.policy_timers_expired(c);
                }
                irq::KICK => self.kick_cpus(c),
                irq::DEFERRED => {
                    self.set_mode(c, CpuMode::Sched);
                    self.rq_lock(c, c);
                    self.run_deferred(c, c);
                    self.rq_unlock(c, c);
                }
                _ => unreachable!("an interrupt is one bit of `irq`"),
            }
        }
    }

    /// What [`Kernel::handle_interrupts`] does of one that is pending alone.
    fn timer_interrupt(&self, c: &Cpu) {
        c.forget_irq(irq::TIMER);
        self.set_mode(c, CpuMode::Kernel);
        self.charge(c, self.machine.paths.irq_ns);
        self.timers_expired(c);
    }

    /// Sleeps end and new tasks' lives begin.
    fn timers_expired(&self, c: &Cpu) {
        let now = c.this.now.get();
        while let Some(task) = c.expired.pop() {
            let p = self.task(task);
            if p.state.get() == TaskState::New {
                self.start_task(c, p);
            } else {
                self.try_to_wake_up(c, p, 0);
            }
        }
        self.sleeps_end_at(c, now);
    }

    /// `hrtimer_interrupt()` for another timer: sleeps that may end by now do.
    fn sleeps_end(&self, c: &Cpu) {
        self.sleeps_end_at(c, c.this.now.get());
    }

    #[inline(always)]
    fn sleeps_end_at(&self, c: &Cpu, now: u64) {
        while let Some(task) = self.pop_sleep(c.id, now) {
            self.try_to_wake_up(c, self.task(task), 0);
        }
    }

    /// The periodic tick (`sched_tick()`).
    fn scheduler_tick(&self, c: &Cpu) {
        self.set_mode(c, CpuMode::Sched);
        self.record(c, Event::Tick);
        self.charge(c, self.machine.paths.tick_ns);
        let path = self.set_lock_path(c, LockPath::Other);
        self.rq_lock(c, c);
        if let Some(task) = c.curr.get() {
            let p = self.task(task);
            match p.class.get() {
                Class::Ext => self.task_tick_scx(c, p),
                Class::Fair => self.task_tick_fair(c, p),
                Class::Rt => self.task_tick_rt(c, p),
                Class::Deadline => self.task_tick_dl(c, p, false),
                Class::Idle | Class::Stop => {}
            }
        }
        self.rq_unlock(c, c);
        self.fair_balance_tick(c);
        self.set_lock_path(c, path);
    }

    /// Starts the tick when a CPU leaves idle, at the machine's common beat.
    pub(crate) fn start_tick(&self, c: &Cpu) {
        if self.mutated(Mutation::TickStaysStopped) {
            return;
        }
        if self.queue.due(c.id, CpuEvent::Tick).is_none() {
            let next = self.next_tick(c, c.this.now.get());
            self.set_event(c.id, CpuEvent::Tick, next);
        }
    }

    /// When a busy CPU is interrupted next after `now`: by the tick or at the end of a slice.
    pub(crate) fn next_tick(&self, c: &Cpu, now: u64) -> u64 {
        let period = self.costs.tick_period_ns;
        let tick = (now / period + 1) * period;
        c.fair
            .slice_end_after(now)
            .map_or(tick, |end| tick.min(end))
    }

    /// The CPU, where it has a tick, is interrupted at `time` at the latest.
    pub(crate) fn tick_no_later_than(&self, rq: &Cpu, time: u64) {
        let due = self.queue.due(rq.id, CpuEvent::Tick);
        if due.is_some_and(|due| due > time) {
            self.set_event(rq.id, CpuEvent::Tick, time);
        }
    }
}

/// How long the segment under way has taken since it began, or since its speed changed.
#[inline(always)]
fn segment_elapsed(c: &Cpu) -> u64 {
    c.this.now.get().saturating_sub(c.segment_start.get())
}

/// Takes `elapsed` ns of the segment under way off the task's `left_ns`. The segment begins anew.
#[inline(always)]
fn shorten_segment(c: &Cpu, p: &Task, elapsed: u64) {
    let done = match c.segment_pct.get() {
        100 => elapsed,
        pct => elapsed * u64::from(pct) / 100,
    };
    p.left_ns.set(p.left_ns.get().saturating_sub(done));
    c.segment_start.set(c.this.now.get());
}

/// Wall time that `work_ns` takes at `pct` percent of full speed.
pub(crate) fn wall_ns(work_ns: u64, pct: u32) -> u64 {
    if pct == 100 {
        work_ns
    } else {
        (work_ns * 100).div_ceil(u64::from(pct))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_in_order() {
        let (expired, mut model) = (Expired::default(), VecDeque::new());
        for step in 0..200 {
            // More and more of them wait, then fewer.
            if step % 3 == 0 || (step % 3 == 1) == (step < 100) {
                expired.push(TaskId(step));
                model.push_back(TaskId(step));
            } else {
                assert_eq!(expired.pop(), model.pop_front());
            }
        }
        let rest: Vec<_> = std::iter::from_fn(|| expired.pop()).collect();
        assert!(rest.len() > 10);
        assert_eq!(rest, Vec::from(model));
    }
}
