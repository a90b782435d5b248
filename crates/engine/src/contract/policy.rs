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
use schedlab_trace::{CpuId, CpuSet, TaskId};
use schedlab_workload::{CgroupId, Rng, SchedClass};

use crate::contract::consts::SLICE_INF;
pub use crate::contract::facts::TaskFacts;
pub use crate::contract::ids::{DsqId, IterId, PolicyLock, TimerId};
pub use crate::contract::op::{DumpContext, OpCall, OpKind, OpSet, PreemptReason};
use crate::contract::outcome::Place;
pub use crate::contract::request::{Answer, Reply, Request, Service};
pub use crate::contract::this_cpu::{Probes, ThisCpu};

/// Ops flags (`SCX_OPS_*`), with the kernel's bit values.
pub type OpsFlags = u64;

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

/// The state that policy code on all CPUs shares.
#[derive(Debug)]
pub struct Shared {
    /// The caches.
    pub cache: RefCell<CacheModel>,
    /// `bpf_get_prandom_u32()` of this run.
    pub random: RefCell<Rng>,
}

/// The world of policy code while an op runs: its CPU, the cost model, and the virtual kernel.
///
/// One is made for each call of an op, so it is a few pointers to what stays.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The CPU that executes.
    pub cpu: &'a ThisCpu,
    /// The state that all CPUs share.
    pub shared: &'a Shared,
    /// Nothing else happens before this instant: a CPU that has not reached it may pass a
    /// [`Service::sync`] without asking.
    pub horizon: &'a Cell<u64>,
    /// The virtual kernel.
    pub kernel: &'a dyn Service,
}

/// The facts that the policy's side must know about a task besides the fields it may write itself.
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
    /// `sched_task_group`.
    pub cgroup: CgroupId,
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

    /// Whether it reads what [`Service::task_facts`] answers: the virtual kernel counts it only then.
    fn reads_facts(&self) -> bool {
        false
    }

    /// Runs `op`, which is `env.cpu.op`, on `env.cpu` and returns what it returns; ops without a result return 0.
    fn call(&self, env: &Env<'_>, op: &OpCall) -> i64;

    /// The same while another op waits on this CPU for what it has asked for.
    fn call_nested(&self, env: &Env<'_>, op: &OpCall) -> i64 {
        self.call(env, op)
    }

    /// Sets the exit information for `ops.exit()`, before it is called.
    fn set_exit_message(&self, message: &str) {
        let _ = message;
    }

    /// Adds `text` to the debug dump: at once, or only if the next op that dumps prints something.
    fn dump(&self, text: &str, at_once: bool) {
        let _ = (text, at_once);
    }

    /// Describes a fault in policy code on `cpu`, for people. It has ended the CPU's fiber.
    fn describe(&self, cpu: &ThisCpu, trap: &Trap) -> String {
        format!("a fault in policy code on CPU {}: {trap:?}", cpu.id)
    }

    /// Returns the place of the call by which `cpu.op` asks the virtual kernel for something. The call is under way: its
    /// frames are on the stack. `None`: no op is under way, or the place is not known.
    fn place_of_call(&self, cpu: &ThisCpu) -> Option<Place> {
        let _ = cpu;
        None
    }

    /// Returns the place of the policy's last call that inserted `task`, if it is known.
    fn place_of_insertion(&self, task: TaskId) -> Option<Place> {
        let _ = task;
        None
    }

    /// Describes the fault of `cpu.op` that returns and still holds `nr` locks that it has taken, for people.
    fn describe_held_locks(&self, cpu: &ThisCpu, nr: u32) -> String {
        let op = cpu.op.get().map_or("none", OpKind::name);
        format!(
            "ops.{op} returned on CPU {} with {nr} of the policy's locks held",
            cpu.id
        )
    }

    /// Describes where the policy keeps a task that it has inserted into no DSQ, for people, if that is known.
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

    /// Describes the fault of `cpu.op` that returns and has released a lock of the op that waits for it, for people.
    fn describe_released_lock(&self, cpu: &ThisCpu) -> String {
        let op = cpu.op.get().map_or("none", OpKind::name);
        format!(
            "ops.{op} returned on CPU {} and has released a lock of the op that waits for it",
            cpu.id
        )
    }

    /// A cgroup below the root is made. The root is there from the start.
    fn add_cgroup(&self, cgroup: CgroupId, parent: CgroupId, name: &str) {
        let _ = (cgroup, parent, name);
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
