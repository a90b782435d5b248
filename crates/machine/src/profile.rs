//! Machine profiles: every constant of the cost model, with its unit.
//!
//! All times are in picoseconds where a step can be shorter than some nanoseconds (`_ps`), in
//! nanoseconds otherwise (`_ns`). The provenance of each number stands in the profile file beside
//! it and travels with the machine ([`Machine::provenance`]). Reading and writing profile files
//! is in [`crate::file`].

use std::collections::BTreeMap;

use schedlab_trace::{CpuId, counted, nearest_of};

use crate::{Background, KernelPath, Layout, Provenance, SharedObject, Tcp, Topology};

/// How the machine's kernel waits for a contended lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// Test-and-test-and-set (Linux 2.4): any spinner may win; hand-over grows with the spinners.
    Tas,
    /// Queued (MCS; Linux since 4.2): first come, first served.
    Queued,
}

/// The event that ends the sleeps of tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timers {
    /// A timer of its own (Linux since 2.6.16), which may be late by the task's slack (since 2.6.28).
    #[default]
    HighResolution,
    /// The timer interrupt (Linux 2.4): a sleep is rounded up to whole jiffies, and one more is added.
    Jiffies,
}

impl Timers {
    pub(crate) fn is_default(&self) -> bool {
        *self == Timers::default()
    }
}

/// Lock costs.
#[derive(Clone, PartialEq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Locks {
    /// Kind of lock.
    pub kind: LockKind,
    /// Hand-over to the winner when one CPU spins (counts as the winner's wait).
    pub handover_ns: u64,
    /// Added to a hand-over for every further spinner (`tas`).
    pub handover_per_spinner_ns: u64,
    /// The time that a lock meter adds to each acquisition; 0 if none is installed.
    pub meter_ns: u64,
    /// How long an exit holds the big kernel lock, besides `paths.exit_ns`; none: this kernel has no such lock, or it
    /// is left out.
    ///
    /// Model: of the calls that workloads make, Linux 2.4 takes it in `do_exit()` alone (`lock_kernel()` around the
    /// release of files and signals); those for pipes, sockets, sleep and fork have locks of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub big_kernel_lock_ns: Option<u64>,
}

/// Caches and memory, per access of one line.
#[derive(Clone, PartialEq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Cache line in bytes.
    pub line_bytes: u32,
    /// Size of the modelled (last private) cache of a CPU in bytes.
    pub cache_bytes: u64,
    /// Its associativity.
    pub ways: u32,
    /// A hit.
    pub hit_ps: u64,
    /// A miss served by the level after the modelled one, mostly a last-level cache that several CPUs share; 0 if the
    /// machine has no such level (then memory serves the miss).
    pub llc_hit_ps: u64,
    /// A miss served by memory.
    pub miss_ps: u64,
    /// A miss served by another CPU's cache that holds the line modified, or making a line one's
    /// own that another has too, in the same last-level cache …
    pub transfer_llc_ps: u64,
    /// … in the same node and on the same processor bus …
    pub transfer_node_ps: u64,
    /// … in another node or on another bus.
    pub transfer_remote_ps: u64,
    /// Last-level caches on one processor bus, where a chip set joins several in one node; none: all
    /// of a node are equally far from each other. Policies see nodes, not buses.
    /// Each bus has its own `bus_ps`; what concerns caches on another one occupies all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llcs_per_bus: Option<u32>,
    /// An uncontended atomic operation on an owned line, above the access itself.
    pub atomic_ps: u64,
    /// Time one transaction occupies the bus: what the last-level caches of a node share (front-side bus, memory
    /// controller); 0 = never saturates.
    pub bus_ps: u64,
    /// Lines per millisecond of user time with which an application evicts the CPU's cache.
    pub evict_lines_per_ms: u32,
    /// Share, in percent, of the lines an application brings in that it also writes, so that they cross the bus a second
    /// time. With it the lines of applications that compute occupy the bus, and so do modified lines that a cache writes
    /// back; none: they do not. Lines that a task goes over on purpose always do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_pct: Option<u32>,
    /// Time a CPU alone needs for each line when it goes over memory in order, as it fetches lines ahead; none: as long
    /// as a miss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_ps: Option<u64>,
}

/// Where the scheduling fields of a task lie, for the cache model.
#[derive(Clone, PartialEq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct TaskLayout {
    /// Alignment and distance of task structures in bytes (8192 on Linux 2.4, the slab's size today).
    pub stride_bytes: u32,
    /// Offset of the scheduling fields.
    pub offset_bytes: u32,
    /// Bytes that examining a task reads.
    pub examine_bytes: u32,
    /// Number of colours (line offsets that a structure is shifted by, from the address bits above
    /// the cache index); 1 = uncoloured.
    pub colours: u32,
    /// Whether the scheduling fields lie apart from the structures, side by side, each task's on
    /// lines of their own; distance, offset and colours are then of no effect.
    pub separate: bool,
    /// Whether the fields of the next candidate are prefetched while one is examined.
    pub prefetch: bool,
}

/// Kernel paths.
#[derive(Clone, PartialEq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Paths {
    /// schedule(), entry and exit, without the choice.
    pub schedule_ns: u64,
    /// Context switch within an address space …
    pub switch_ns: u64,
    /// … and what a change of address space adds (page-table switch, TLB refill).
    pub switch_mm_ns: u64,
    /// try_to_wake_up() without the policy and the queue.
    pub wakeup_ns: u64,
    /// Tick interrupt without the policy.
    pub tick_ns: u64,
    /// Sending an IPI, on the sender.
    pub ipi_send_ns: u64,
    /// From sending until the receiver's handler starts.
    pub ipi_delay_ns: u64,
    /// The receiver's handler.
    pub ipi_handle_ns: u64,
    /// Entry and return of any interrupt.
    pub irq_ns: u64,
    /// Leaving idle, from the interrupt until schedule() is entered.
    pub idle_exit_ns: u64,
    /// Entering and leaving a system call.
    pub syscall_ns: u64,
    /// A pipe or message-queue read or write of a small message, without wakeups.
    pub pipe_ns: u64,
    /// Sending a small message on a loopback stream socket, without wakeups …
    pub socket_send_ns: u64,
    /// … and receiving one.
    pub socket_recv_ns: u64,
    /// fork() without the policy.
    pub fork_ns: u64,
    /// execve() of a small program with the page faults of its start; none: as long as `fork_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_ns: Option<u64>,
    /// The first access of a page: entering the kernel, finding the page, clearing it; none: three times `syscall_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_ns: Option<u64>,
    /// exit() without the policy.
    pub exit_ns: u64,
    /// A short futex or user-lock operation that needs the kernel.
    pub futex_ns: u64,
}

impl Paths {
    /// Returns the time of an `execve()`.
    pub fn exec_ns(&self) -> u64 {
        self.exec_ns.unwrap_or(self.fork_ns)
    }

    /// Returns the time of a page fault.
    pub fn fault_ns(&self) -> u64 {
        self.fault_ns.unwrap_or(3 * self.syscall_ns)
    }
}

/// The costs of the sched_ext machinery; all zero if the modelled kernel had none (Linux 2.4).
#[derive(Clone, PartialEq, Debug, Default, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct SchedExt {
    /// Whether the kernel takes its per-CPU rq locks (and they can be contended).
    pub rq_locks: bool,
    /// Whether the kernel ejects a policy under which a runnable task waits longer than `ops.timeout_ms`. A kernel
    /// without sched_ext has no such watchdog.
    pub watchdog: bool,
    /// Calling an op.
    pub op_ns: u64,
    /// Calling a kfunc or helper.
    pub kfunc_ns: u64,
    /// Inserting into a FIFO DSQ, and removing from any: nothing is searched.
    pub dsq_fifo_ns: u64,
    /// Inserting into a vtime-ordered DSQ, for each level of the tree (log2 of its length).
    pub dsq_vtime_ns: u64,
}

/// The costs of a policy's probes and loops.
#[derive(Clone, PartialEq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Examining a candidate, without the memory accesses.
    pub examine_ps: u64,
    /// One step of a bounded loop (`can_loop`).
    pub loop_ps: u64,
    /// Recalculating one task's counter, without the memory accesses.
    pub recalculate_ps: u64,
    /// Executing one instruction of an object for BPF, without lines that are not in the nearest cache; none: a cycle
    /// of the base clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction_ps: Option<u64>,
}

/// How co-running and moving slow an application down.
#[derive(Clone, PartialEq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Interference {
    /// Throughput of one hardware thread, in percent, while other threads of its core run too (100 = no SMT effect).
    /// A kind of core may say it for each number of threads ([`CoreKind::smt_shares_pct`]).
    pub smt_share_pct: u32,
    /// How much longer a computation takes, in percent, if nothing of its working set fits into the last-level cache;
    /// of what fits in part, for the part that does not ([`Machine::overflow`]). None: nothing is slower. Needs
    /// `topology.llc_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beyond_llc_pct: Option<u32>,
    /// Refill of one KB of working set after a migration within the LLC …
    pub refill_llc_ns_per_kb: u64,
    /// … within the node …
    pub refill_node_ns_per_kb: u64,
    /// … to another node.
    pub refill_remote_ns_per_kb: u64,
}

/// Traits that some cores share and others lack: performance and efficiency cores, clusters of a phone.
#[derive(Clone, PartialEq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct CoreKind {
    /// The cores of this kind by their numbers in the topology, as a list (`0-3,8`).
    pub cores: String,
    /// How much a core does in a time, of 1,024 for the fastest of the machine (`arch_scale_cpu_capacity()`).
    ///
    /// Model: it scales what tasks do in user mode and in system calls. Interrupts and the scheduler's own paths take
    /// what `paths` says on every core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// Size of the last private cache in bytes, for working sets; none: `memory.cache_bytes`.
    ///
    /// Model: the lines that scheduling touches are cached as `memory` says on every core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// Throughput of one hardware thread, in percent of a thread that has the core alone, while 2, 3, 4 … threads of
    /// the core run; more threads than there are numbers have the last one. None: `interference.smt_share_pct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smt_shares_pct: Option<Vec<u32>>,
}

/// Capacity of the fastest core (`SCHED_CAPACITY_SCALE`).
pub const CAPACITY_SCALE: u32 = 1_024;

/// A machine: topology and costs.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// Name of the profile.
    pub name: String,
    /// One line for people.
    pub summary: String,
    /// Clock rate in MHz, for measures in cycles.
    pub clock_mhz: u32,
    /// Timer interrupts a second.
    pub hz: u32,
    /// The event that ends the sleeps of tasks.
    pub timers: Timers,
    /// Whether kernel mode can be preempted.
    pub preemptible_kernel: bool,
    /// Whether pipes and sockets wake their waiters synchronously, as a task that is about to sleep does
    /// (`wake_up_interruptible_sync_poll()` in `pipe_write()` and `sock_def_readable()` today). Linux 2.4 did not:
    /// there each of these wakeups looks for a CPU.
    pub sync_wakeups: bool,
    /// Which published rows calibrate the profile; empty: *data sheet only*.
    pub calibrated_on: Vec<Calibration>,
    /// Fields that may be tuned on those rows, as `section.field`; all others stay as they are.
    pub tuning_candidates: Vec<String>,
    /// The CPUs.
    pub topology: Topology,
    /// Kinds of core by name; empty: all cores are alike.
    pub core_kinds: BTreeMap<String, CoreKind>,
    /// Locks.
    pub locks: Locks,
    /// Caches and memory.
    pub memory: Memory,
    /// Task structures.
    pub task_layout: TaskLayout,
    /// Kernel paths.
    pub paths: Paths,
    /// The sched_ext machinery.
    pub sched_ext: SchedExt,
    /// Policy code.
    pub policy: Policy,
    /// Applications among each other.
    pub interference: Interference,
    /// Objects of the kernel that calls of tasks share, by name; a call uses them in the order of the names.
    pub shared: BTreeMap<String, SharedObject>,
    /// TCP over the loopback device; none: a socket passes each message on at once.
    pub tcp: Option<Tcp>,
    /// Tasks that run beside any workload, by name.
    pub background: BTreeMap<String, Background>,
    /// Where each number is from, in the order of the file.
    pub(crate) provenance: Vec<Provenance>,
}

impl Machine {
    /// Returns the time, in ps, that a call spends on the objects that it shares while nobody else uses them. A measured call
    /// contains it; `paths` does not.
    pub fn shared_alone_ps(&self, path: KernelPath) -> u64 {
        let (hit_ps, atomic_ps) = (self.memory.hit_ps, self.memory.atomic_ps);
        let objects = self.shared.values();
        let used = objects.filter(|object| object.paths.contains(&path));
        used.map(|object| object.alone_ps(hit_ps, atomic_ps)).sum()
    }

    /// Returns the time, in ps, that one instruction of an object takes.
    pub fn instruction_ps(&self) -> u64 {
        let cycle_ps = 1_000_000 / u64::from(self.clock_mhz.max(1));
        self.policy.instruction_ps.unwrap_or(cycle_ps)
    }

    /// Where each number of the profile is from, in the order of the file.
    pub fn provenance(&self) -> &[Provenance] {
        &self.provenance
    }

    /// Returns the bus of `cpu`: its processor bus where a node has several, else its node's.
    pub fn bus_of(&self, cpu: CpuId) -> u32 {
        let at = self.topology.cpu(cpu);
        let llcs_per_bus = self.memory.llcs_per_bus;
        llcs_per_bus.map_or(at.node, |llcs| at.llc / llcs)
    }

    /// Returns the lines that a bus carries in a millisecond, times `parts`; `None` if it never saturates.
    pub fn bus_lines_per_ms(&self, parts: u64) -> Option<u64> {
        (1_000_000_000 * parts).checked_div(self.memory.bus_ps)
    }

    /// Returns the lines that cross the bus in a millisecond because of an application that computes.
    pub fn application_lines_per_ms(&self) -> u32 {
        let lines = self.memory.evict_lines_per_ms;
        match self.memory.written_pct {
            Some(written) if self.memory.bus_ps > 0 => lines + lines * written / 100,
            _ => 0,
        }
    }

    /// Returns the machine with only its first `n` CPUs, as the kernel's `maxcpus=` leaves it.
    pub fn with_cpus(mut self, n: usize) -> Result<Machine, ProfileError> {
        let available = self.topology.nr_cpus();
        if n == 0 || n > available {
            return Err(ProfileError::Cpus {
                machine: self.name,
                asked: n,
                available,
            });
        }
        self.topology = self.topology.limited(n);
        Ok(self)
    }

    /// Returns whether any published row calibrates the profile; if not it is made from data sheets only.
    pub fn is_calibrated(&self) -> bool {
        !self.calibrated_on.is_empty()
    }
}

/// Published rows that a profile was fitted to, in the words of `published/default-scheduler.csv`.
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The workload with its options.
    pub workload: String,
    /// The study's name of the scheduler.
    pub scheduler: String,
    /// Numbers of CPUs.
    pub cpus: Vec<u32>,
    /// The study's names of the measures.
    pub metrics: Vec<String>,
}

impl std::fmt::Display for Calibration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cpus: Vec<String> = self.cpus.iter().map(u32::to_string).collect();
        write!(
            f,
            "{} under {} on {} CPU{} ({})",
            self.workload,
            self.scheduler,
            cpus.join(", "),
            if self.cpus == [1] { "" } else { "s" },
            self.metrics.join(", ")
        )
    }
}

/// Why a profile could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file is not a profile.
    #[error("{file}:{line}: {message}")]
    Invalid {
        /// The profile file.
        file: String,
        /// Line of the fault, counted from 1.
        line: usize,
        /// The fault and the remedy.
        message: String,
    },
    /// The layout does not fit the machine's task structures.
    #[error(
        "{machine}: `{layout}` does not fit into task structures that lie {stride_bytes} bytes apart: at most {colours_max} colours do"
    )]
    Layout {
        /// The profile.
        machine: String,
        /// The requested name.
        layout: Layout,
        /// Distance of its task structures.
        stride_bytes: u32,
        /// The most colours that fit.
        colours_max: u64,
    },
    /// The file cannot be read.
    #[error("{file}: {error}: give the path of a machine profile, or one of: {known}")]
    Read {
        /// The profile file.
        file: String,
        /// Why.
        error: std::io::Error,
        /// The profiles that are built in.
        known: String,
    },
    /// No such profile.
    #[error("no machine is called {name}{}: choose one of {known}, or give the path of a .toml file", nearest_of(.name, .known))]
    Unknown {
        /// The requested name.
        name: String,
        /// The profiles that are built in.
        known: String,
    },
    /// More CPUs asked for than the machine has, or none.
    #[error("machine {machine} has {}, not {asked}{}", counted(*.available as u64, "CPU"), choice(*.available))]
    Cpus {
        /// The profile.
        machine: String,
        /// CPUs asked for.
        asked: usize,
        /// CPUs there are.
        available: usize,
    },
}

/// Returns the names to choose from, if there is a choice.
fn choice(available: usize) -> String {
    match available {
        1 => String::new(),
        _ => format!(": choose 1 to {available}"),
    }
}
