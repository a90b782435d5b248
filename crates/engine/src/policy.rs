//! The contract between the virtual kernel and a policy.
//!
//! The virtual kernel calls ops ([`OpCall`]) on the calling CPU's fiber. What several CPUs share a
//! policy asks for by a method of [`Service`]. The virtual kernel carries it out when no CPU is earlier in
//! virtual time, other CPUs running meanwhile, and then returns. So locks are contended, try-locks fail
//! and IPIs come late exactly when virtual time says so. Things of one CPU alone (time spent, the cache
//! model) are reached through [`Env`] without a detour.

use std::cell::{Cell, RefCell};

use schedlab_fiber::Trap;
use schedlab_machine::CacheModel;
use schedlab_trace::{CpuId, CpuSet, Instant, TaskId};
use schedlab_workload::{Rng, SchedClass};

use crate::consts::SLICE_INF;
use crate::outcome::{ExitKind, Place};
pub use crate::request::{Answer, Reply, Request, Service};
pub use crate::this_cpu::ThisCpu;

/// A dispatch queue's 64-bit id, as policies give it (`SCX_DSQ_*` included).
pub type DsqId = u64;

/// Ops flags (`SCX_OPS_*`), with the kernel's bit values.
pub type OpsFlags = u64;

/// The ops of `struct sched_ext_ops` that the virtual kernel calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(
    missing_docs,
    reason = "each is the op of the same name; kernel/sched/ext/internal.h documents them"
)]
pub enum OpKind {
    SelectCpu,
    Enqueue,
    Dequeue,
    Dispatch,
    Tick,
    Runnable,
    Running,
    Stopping,
    Quiescent,
    Yield,
    CoreSchedBefore,
    SetWeight,
    SetCpumask,
    UpdateIdle,
    CpuAcquire,
    CpuRelease,
    InitTask,
    ExitTask,
    Enable,
    Disable,
    CpuOnline,
    CpuOffline,
    CgroupInit,
    CgroupExit,
    Dump,
    DumpCpu,
    DumpTask,
    Init,
    Exit,
    /// A `bpf_timer` callback (not an op of the table, but called like one).
    TimerCallback,
}

/// Which ops a policy has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpSet(u32);

impl OpSet {
    /// No op.
    pub const NONE: Self = OpSet(0);

    /// Adds an op.
    #[must_use]
    pub const fn with(self, op: OpKind) -> Self {
        OpSet(self.0 | 1 << op as u32)
    }

    /// Whether the policy has the op.
    pub const fn has(self, op: OpKind) -> bool {
        self.0 & 1 << op as u32 != 0
    }
}

/// The constant part of `struct sched_ext_ops`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpsInfo {
    /// `name`.
    pub name: String,
    /// `flags`.
    pub flags: OpsFlags,
    /// `timeout_ms`; 0 = the kernel's 30 s.
    pub timeout_ms: u32,
    /// `dispatch_max_batch`; 0 = the kernel's default 32.
    pub dispatch_max_batch: u32,
    /// `hotplug_seq`; 0 = any.
    pub hotplug_seq: u64,
    /// Whether there is a `sub_attach` or `sub_detach`.
    pub sub_schedulers: bool,
    /// Ops that are not NULL.
    pub present: OpSet,
}

/// Who takes a CPU away from sched_ext (`preempt_reason_from_class()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreemptReason {
    Rt,
    Deadline,
    Stop,
    /// The fair class, while `SCX_OPS_SWITCH_PARTIAL` leaves it tasks.
    Unknown,
}

/// `struct scx_dump_ctx`: what a dump is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DumpContext {
    /// Why the policy is ejected.
    pub kind: ExitKind,
    /// `exit_code`.
    pub code: i64,
    /// `at_ns`.
    pub at: Instant,
    /// `at_jiffies`.
    pub at_jiffies: u64,
}

/// One call of an op with its arguments.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(
    missing_docs,
    reason = "arguments are named as in struct sched_ext_ops"
)]
pub enum OpCall {
    SelectCpu {
        task: TaskId,
        prev_cpu: CpuId,
        wake_flags: u64,
    },
    Enqueue {
        task: TaskId,
        enq_flags: u64,
    },
    Dequeue {
        task: TaskId,
        deq_flags: u64,
    },
    Dispatch {
        cpu: CpuId,
        prev: Option<TaskId>,
    },
    Tick {
        task: TaskId,
    },
    Runnable {
        task: TaskId,
        enq_flags: u64,
    },
    Running {
        task: TaskId,
    },
    Stopping {
        task: TaskId,
        runnable: bool,
    },
    Quiescent {
        task: TaskId,
        deq_flags: u64,
    },
    Yield {
        from: TaskId,
        to: Option<TaskId>,
    },
    SetWeight {
        task: TaskId,
        weight: u32,
    },
    /// The mask is the task's current one (see [`Policy::sync_task`]).
    SetCpumask {
        task: TaskId,
    },
    UpdateIdle {
        cpu: CpuId,
        idle: bool,
    },
    CpuAcquire {
        cpu: CpuId,
    },
    CpuRelease {
        cpu: CpuId,
        reason: PreemptReason,
        /// What runs next; `None` is the stopper.
        task: Option<TaskId>,
    },
    InitTask {
        task: TaskId,
        fork: bool,
    },
    ExitTask {
        task: TaskId,
        cancelled: bool,
    },
    Enable {
        task: TaskId,
    },
    Disable {
        task: TaskId,
    },
    CpuOnline {
        cpu: CpuId,
    },
    CpuOffline {
        cpu: CpuId,
    },
    /// Of the root cgroup: there is no other one.
    CgroupInit,
    CgroupExit,
    Dump {
        context: DumpContext,
    },
    DumpCpu {
        context: DumpContext,
        cpu: CpuId,
        idle: bool,
    },
    DumpTask {
        context: DumpContext,
        task: TaskId,
    },
    Init,
    /// With the message that was told before (see [`Policy::set_exit_message`]).
    Exit {
        kind: ExitKind,
        code: i64,
    },
    TimerCallback {
        timer: TimerId,
    },
}

/// A lock of the policy, numbered by the policy's side in the order of first use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PolicyLock(pub u32);

/// A `bpf_timer`, numbered in the order of its initialisation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerId(pub u32);

/// A DSQ iterator, numbered by the virtual kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IterId(pub u32);

/// What a policy counts by its probes, per CPU. Both worlds have the same counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Probes {
    /// Candidates looked at.
    pub examined: u64,
    /// Entries into a recalculation of all counters.
    pub recalculations: u64,
    /// Chosen task last ran on another CPU.
    pub picked_elsewhere: u64,
    /// Look-ups of a task that failed.
    pub failed_lookups: u64,
    /// Single-CPU and migration-disabled tasks sent to their local queue.
    pub pinned_local: u64,
}

/// What policy code on all CPUs has in common.
#[derive(Debug)]
pub struct Shared {
    /// The caches.
    pub cache: RefCell<CacheModel>,
    /// `bpf_get_prandom_u32()` of this run.
    pub random: RefCell<Rng>,
}

/// What policy code reaches while an op runs: its CPU, the cost model, and the virtual kernel.
///
/// One is made for each call of an op, so it is a few pointers to what stays.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The CPU that executes.
    pub cpu: &'a ThisCpu,
    /// What all CPUs share.
    pub shared: &'a Shared,
    /// Nothing else happens before this instant: a CPU that has not reached it may pass a
    /// [`Service::sync`] without asking.
    pub horizon: &'a Cell<u64>,
    /// The virtual kernel.
    pub kernel: &'a dyn Service,
}

/// What the policy's side must know of a task besides the fields it may write itself.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskView<'a> {
    /// `comm`.
    pub comm: &'a str,
    /// `tgid`: the pid of the first task of the same address space.
    pub tgid: u32,
    /// `real_parent`.
    pub parent: Option<TaskId>,
    /// Nice level.
    pub nice: i8,
    /// Scheduling class.
    pub class: SchedClass,
    /// `prio`: the effective priority, inheritance included.
    pub prio: i32,
    /// `scx.weight`, 1 to 10,000 (`sched_weight_to_cgroup`); 0 before `ops.enable()`.
    pub weight: u32,
    /// `cpus_ptr`.
    pub allowed: &'a CpuSet,
    /// `mm`: tasks of one process share it; `None` for kernel threads.
    pub address_space: Option<u32>,
    /// `flags` (`PF_*`).
    pub flags: u32,
    /// `migration_disabled`.
    pub migration_disabled: bool,
}

/// A scheduling policy, as the virtual kernel sees it.
///
/// Guarantees of the virtual kernel:
/// - `init` is the first call and `exit` the last.
/// - At most one call is under way per CPU, plus one nested in it (see [`Service`]).
/// - Per task, ops come in the order of the task lifecycle (ARCHITECTURE.md).
pub trait Policy {
    /// The constant part of the ops table.
    fn info(&self) -> &OpsInfo;

    /// Runs `op`, which is `env.cpu.op`, on `env.cpu` and returns what it returns; ops without a result return 0.
    fn call(&self, env: &Env<'_>, op: &OpCall) -> i64;

    /// The same while another op waits on this CPU for what it has asked for.
    fn call_nested(&self, env: &Env<'_>, op: &OpCall) -> i64 {
        self.call(env, op)
    }

    /// Tells what `ops.exit()` is to be told, before it is called.
    fn set_exit_message(&self, message: &str) {
        let _ = message;
    }

    /// Adds `text` to the debug dump: at once, or only if the next op that dumps prints something.
    fn dump(&self, text: &str, at_once: bool) {
        let _ = (text, at_once);
    }

    /// What a fault in policy code on `cpu` was, for people. It has ended the CPU's fiber.
    fn describe(&self, cpu: &ThisCpu, trap: &Trap) -> String {
        format!("a fault in policy code on CPU {}: {trap:?}", cpu.id)
    }

    /// Where the call is by which `cpu.op` asks the virtual kernel for something. It is under way: its frames are on the
    /// stack. `None`: no op is under way, or this cannot be told.
    fn place_of_call(&self, cpu: &ThisCpu) -> Option<Place> {
        let _ = cpu;
        None
    }

    /// Where the call is by which the policy has inserted a task last, if that can be told.
    fn place_of_insertion(&self, task: TaskId) -> Option<Place> {
        let _ = task;
        None
    }

    /// What is the matter where `cpu.op` returns and still holds `nr` locks that it has taken, for people.
    fn describe_held_locks(&self, cpu: &ThisCpu, nr: u32) -> String {
        let op = cpu.op.get().map_or("none", OpKind::name);
        format!(
            "ops.{op} returned on CPU {} with {nr} of the policy's locks held",
            cpu.id
        )
    }

    /// Where the policy keeps a task that it has inserted into no DSQ, for people, if that can be told.
    fn describe_custody(&self, _: TaskId) -> Option<String> {
        None
    }

    /// One CPU that waits for a lock of the policy that another one holds, for people.
    fn describe_lock_wait(&self, lock: PolicyLock, waiter: CpuId, holder: CpuId) -> String {
        format!(
            "CPU {waiter} waits for policy lock {}, held by CPU {holder}",
            lock.0
        )
    }

    /// What is the matter where `cpu.op` returns and has released a lock of the op that waits for it, for people.
    fn describe_released_lock(&self, cpu: &ThisCpu) -> String {
        let op = cpu.op.get().map_or("none", OpKind::name);
        format!(
            "ops.{op} returned on CPU {} and has released a lock of the op that waits for it",
            cpu.id
        )
    }

    /// Tells of a new task, or that what is known of a task has changed.
    fn sync_task(&self, task: TaskId, view: &TaskView<'_>);

    /// The CPU `task` is on (`task_cpu()`, `scx_bpf_task_cpu()`'s source) changed.
    fn set_task_cpu(&self, task: TaskId, cpu: CpuId);

    /// A task is gone; its id may be used again. Who still points at it finds it as it was.
    fn drop_task(&self, task: TaskId);

    /// `p->scx.slice`, which the policy may write at any time.
    fn slice(&self, task: TaskId) -> u64;

    /// Sets `p->scx.slice`.
    fn set_slice(&self, task: TaskId, slice: u64);

    /// Takes what `task` ran from its slice, unless that is endless.
    fn charge_slice(&self, task: TaskId, ran_ns: u64) {
        let slice = self.slice(task);
        if slice != SLICE_INF {
            self.set_slice(task, slice.saturating_sub(ran_ns));
        }
    }

    /// Sets `p->scx.slice` and `p->scx.dsq_vtime`.
    fn set_slice_and_vtime(&self, task: TaskId, slice: u64, vtime: u64) {
        self.set_slice(task, slice);
        self.set_vtime(task, vtime);
    }

    /// `p->scx.dsq_vtime`, which the policy may write at any time.
    fn vtime(&self, task: TaskId) -> u64;

    /// Sets `p->scx.dsq_vtime`.
    fn set_vtime(&self, task: TaskId, vtime: u64);

    /// Whether the task is in the runnable set of its CPU (`SCX_TASK_QUEUED` of `p->scx.flags`).
    fn set_queued(&self, task: TaskId, queued: bool) {
        let _ = (task, queued);
    }

    /// Something is asked of the task soon: what is kept of it may be prefetched into the host's caches.
    fn prefetch(&self, task: TaskId) {
        let _ = task;
    }

    /// `p->scx.disallow`, looked at after `init_task`.
    fn disallowed(&self, task: TaskId) -> bool;
}
