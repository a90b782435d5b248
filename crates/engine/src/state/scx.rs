//! State of sched_ext: of a task and of a CPU.

use std::cell::Cell;
use std::mem::offset_of;

use schedlab_trace::CpuId;

use crate::contract::consts::dsq_id;

/// A CPU's part (`struct scx_rq`), besides its [deferred work](crate::state::deferred) and its
/// [kicks](crate::state::kick). The order is that in memory.
#[derive(Default)]
#[repr(C)]
pub(crate) struct ScxRq {
    /// A task is being enqueued because it wakes (`SCX_RQ_IN_WAKEUP`).
    in_wakeup: Cell<bool>,
    /// It is about to choose (`SCX_RQ_IN_BALANCE`).
    in_balance: Cell<bool>,
    /// A higher class has it (`cpu_released`).
    released: Cell<bool>,
    /// Its tasks of the class, the running one included.
    nr_running: Cell<u32>,
    /// Flags of every enqueue here until they are taken back.
    extra_enq_flags: Cell<u64>,
    /// Tasks on its local DSQ that were promised the CPU at once (`SCX_ENQ_IMMED`).
    nr_immed: Cell<u32>,
}

impl ScxRq {
    reads! { in_wakeup: bool, in_balance: bool, is_released of released: bool, nr_running: u32, extra_enq_flags: u64 }

    sets! {
        begin_wakeup(): in_wakeup = true;
        /// Ends an enqueue, whatever it was for.
        end_wakeup(): in_wakeup = false;
        begin_balance(): in_balance = true;
        end_balance(): in_balance = false;
        /// Adds these flags to each enqueue from now on.
        enqueue_with(flags: u64): extra_enq_flags = flags;
        /// Gives the CPU to a higher class. Returns whether one had it already.
        release() -> bool: released = true;
        /// Takes the CPU back. Returns whether a higher class had it.
        acquire() -> bool: released = false;
    }

    /// The part before this is looked at by nearly every switch.
    pub const HOT_BYTES: usize = offset_of!(ScxRq, nr_immed);

    #[inline(always)]
    pub fn add(&self) {
        self.nr_running.set(self.nr_running.get() + 1);
    }

    #[inline(always)]
    pub fn sub(&self) {
        self.nr_running.set(self.nr_running.get() - 1);
    }

    pub fn add_immed(&self) {
        self.nr_immed.set(self.nr_immed.get() + 1);
    }

    pub fn sub_immed(&self) {
        self.nr_immed.set(self.nr_immed.get() - 1);
    }

    #[inline(always)]
    pub fn has_immed(&self) -> bool {
        self.nr_immed.get() > 0
    }
}

/// `sched_ext_entity::ops_state`: who owns the task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpsState {
    /// The kernel.
    None,
    /// ops.enqueue() runs.
    Queueing,
    /// The policy.
    Queued,
    /// A dispatch is being carried out.
    Dispatching,
}

/// `SCX_TASK_STATE_*`: how far the task is known to the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScxState {
    /// Not known to it. → `Ready`, `Dead`
    None,
    /// After ops.init_task(). → `Enabled`, `Dead`
    Ready,
    /// After ops.enable(). → `Ready`, `Dead`
    Enabled,
    /// After ops.exit_task(), or never to be known to it. Final.
    Dead,
}

/// The order of `rq->scx.runnable_list` of all run queues.
#[derive(Default)]
pub(crate) struct RunnableOrder {
    last: Cell<u64>,
}

impl RunnableOrder {
    /// Returns the next place.
    #[inline(always)]
    pub fn next(&self) -> u64 {
        let next = self.last.get() + 1;
        self.last.set(next);
        next
    }
}

/// A task's part (`struct sched_ext_entity`), besides the DSQ that it is on. The order is that in memory.
#[repr(C)]
pub(crate) struct Entity {
    ops_state: Cell<OpsState>,
    /// It is one of its run queue's runnable tasks (`SCX_TASK_QUEUED`).
    queued: Cell<bool>,
    /// The policy is to hear when it leaves its custody (`SCX_TASK_IN_CUSTODY`).
    in_custody: Cell<bool>,
    /// It was promised its CPU at once (`SCX_TASK_IMMED`).
    immed: Cell<bool>,
    /// `SCX_TASK_RESET_RUNNABLE_AT`.
    reset_runnable_at: Cell<bool>,
    /// It is on `ddsp_deferred_locals` of its run queue.
    deferred_local: Cell<bool>,
    /// The policy has got ops.running(), and not yet ops.stopping().
    runs: Cell<bool>,

    ddsp_dsq_id: Cell<u64>,
    ddsp_enq_flags: Cell<u64>,
    sticky_cpu: Cell<Option<CpuId>>,
    holding_cpu: Cell<Option<CpuId>>,
    /// Counted, so that a dispatch of an earlier enqueue is known as such.
    qseq: Cell<u64>,
    /// In jiffies.
    runnable_at: Cell<u64>,
    /// Place in the order of `rq->scx.runnable_list`; `None` = not on it.
    runnable_seq: Cell<Option<u64>>,

    weight: Cell<u32>,
    state: Cell<ScxState>,
}

impl Default for Entity {
    fn default() -> Self {
        Entity {
            ops_state: Cell::new(OpsState::None),
            queued: Cell::new(false),
            in_custody: Cell::new(false),
            immed: Cell::new(false),
            reset_runnable_at: Cell::new(true),
            deferred_local: Cell::new(false),
            runs: Cell::new(false),
            ddsp_dsq_id: Cell::new(dsq_id::INVALID),
            ddsp_enq_flags: Cell::new(0),
            sticky_cpu: Cell::new(None),
            holding_cpu: Cell::new(None),
            qseq: Cell::new(0),
            runnable_at: Cell::new(0),
            runnable_seq: Cell::new(None),
            weight: Cell::new(0),
            state: Cell::new(ScxState::None),
        }
    }
}

impl Entity {
    reads! {
        ops_state: OpsState, qseq: u64, in_custody: bool, is_queued of queued: bool, runs: bool,
        is_immed of immed: bool, resets_runnable_at of reset_runnable_at: bool, runnable_at: u64,
        runnable_seq: Option<u64>, ddsp_dsq_id: u64, ddsp_enq_flags: u64, is_deferred of deferred_local: bool,
        sticky_cpu: Option<CpuId>, holding_cpu: Option<CpuId>, state: ScxState, weight: u32,
    }

    sets! {
        /// Gives it back to its owner `before` the dispatch, which only kept others from it.
        end_dispatch(before: OpsState): ops_state = before;
        /// `SCX_ENQ_CLEAR_OPSS`.
        release_to_kernel(): ops_state = OpsState::None;
        enter_custody(): in_custody = true;
        join(): queued = true;
        leave(): queued = false;
        stop_running(): runs = false;
        set_immed(immed: bool): immed = immed;
        /// Dispatches it directly, by the default choice of a CPU.
        dispatch_to_local(): ddsp_dsq_id = dsq_id::LOCAL;
        /// Takes it off `ddsp_deferred_locals`.
        forget_deferred(): deferred_local = false;
        /// Notes the CPU to which the kernel moves it by itself.
        stick_to(cpu: CpuId): sticky_cpu = Some(cpu);
        /// Notes the CPU that has taken it off a queue to move it.
        hold(cpu: CpuId): holding_cpu = Some(cpu);
        /// Sets its weight for the policy, of 100 by default.
        set_weight(weight: u32): weight = weight;
        /// Begins to carry out a dispatch. Returns the former owner.
        begin_dispatch() -> OpsState: ops_state = OpsState::Dispatching;
        /// Returns that CPU, once.
        unstick() -> Option<CpuId>: sticky_cpu = None;
    }

    /// The fields before this belong to the first line of its task in the host's cache, …
    pub const FLAGS_BYTES: usize = offset_of!(Entity, ddsp_dsq_id);
    /// … and those before this to the second one.
    pub const HOT_BYTES: usize = offset_of!(Entity, weight);

    /// Takes it to another state, along the arrows of [`ScxState`] (`scx_set_task_state()`).
    ///
    /// # Panics
    /// If there is no such arrow.
    pub fn set_state(&self, to: ScxState) {
        use ScxState::{Dead, Enabled, None, Ready};
        let from = self.state.replace(to);
        let follows = match to {
            None => false,
            Ready => matches!(from, None | Enabled),
            Enabled => from == Ready,
            Dead => true,
        };
        assert!(
            follows,
            "a task that was {from:?} to the policy becomes {to:?}"
        );
    }

    /// Begins ops.enqueue().
    ///
    /// # Panics
    /// If the kernel does not own it.
    #[inline(always)]
    pub fn begin_enqueue(&self) {
        self.qseq.set(self.qseq.get() + 1);
        let from = self.ops_state.replace(OpsState::Queueing);
        assert!(
            from == OpsState::None,
            "a task that is {from:?} is enqueued"
        );
    }

    #[inline(always)]
    pub fn give_to_policy(&self) {
        self.in_custody.set(true);
        self.ops_state.set(OpsState::Queued);
    }

    /// `task_leave_custody()`. Returns whether it was in custody. Where the kernel moves it by itself
    /// (`task_scx_migrating()`), it stays.
    #[inline(always)]
    pub fn leave_custody(&self) -> bool {
        let leaves = self.in_custody.get() && self.sticky_cpu.get().is_none();
        if leaves {
            self.in_custody.set(false);
        }
        leaves
    }

    /// Switches it in. Returns whether it runs for the policy, too: it is queued.
    #[inline(always)]
    pub fn start_running(&self) -> bool {
        let queued = self.queued.get();
        self.runs.set(queued);
        queued
    }

    /// `set_task_runnable()`: it comes to this place of the list.
    #[inline(always)]
    pub fn set_runnable(&self, place: u64, jiffies: impl FnOnce() -> u64) {
        if self.reset_runnable_at.replace(false) {
            self.runnable_at.set(jiffies());
        }
        self.runnable_seq.set(Some(place));
    }

    /// `clr_task_runnable()`.
    #[inline(always)]
    pub fn clear_runnable(&self, reset_runnable_at: bool) {
        self.runnable_seq.set(None);
        if reset_runnable_at {
            self.reset_runnable_at.set(true);
        }
    }

    /// Dispatches it directly, by an op.
    #[inline(always)]
    pub fn dispatch_directly(&self, dsq: u64, enq_flags: u64) {
        self.ddsp_dsq_id.set(dsq);
        self.ddsp_enq_flags.set(enq_flags);
    }

    #[inline(always)]
    pub fn clear_direct_dispatch(&self) {
        self.ddsp_dsq_id.set(dsq_id::INVALID);
        self.ddsp_enq_flags.set(0);
    }

    #[inline(always)]
    pub fn has_direct_dispatch(&self) -> bool {
        self.ddsp_dsq_id.get() != dsq_id::INVALID
    }

    /// Leaves its insertion into the local DSQ of another CPU until its run queue's lock is free.
    pub fn defer_local(&self, enq_flags: u64) {
        self.ddsp_enq_flags.set(enq_flags);
        self.release_to_kernel();
        self.deferred_local.set(true);
    }

    /// Begins that insertion. Returns the DSQ and the flags.
    pub fn take_deferred(&self) -> (u64, u64) {
        self.forget_deferred();
        let taken = (self.ddsp_dsq_id.get(), self.ddsp_enq_flags.get());
        self.clear_direct_dispatch();
        taken
    }

    /// Ends the hold of the CPU that moves it. Returns whether there was one.
    #[inline(always)]
    pub fn let_go(&self) -> bool {
        self.holding_cpu.take().is_some()
    }
}
