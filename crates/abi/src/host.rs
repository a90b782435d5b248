//! The state of a run's policy: everything that it may reach.

pub mod context;
mod describe;
pub mod runner;

use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::rc::Rc;

use schedlab_bpf::seen::Seen;
use schedlab_engine::KernelVersion;
use schedlab_engine::policy::{Env, OpCall, OpKind, OpSet, OpsInfo, PolicyLock, TimerId};
use schedlab_fiber::trap::Foreign;
use schedlab_machine::Topology;
use schedlab_machine::profile::Policy as Costs;
use schedlab_trace::{CpuId, CpuSet, Instant};

use crate::audit::state::Audit;
use crate::bpf::fields::ObjectRunQueue;
use crate::bpf::{self, Beside};
use crate::cgroups::Cgroups;
use crate::cids::{Cids, cmask_bytes};
use crate::fields::Fields;
use crate::graph::Graph;
use crate::host_table::Table;
use crate::image::Image;
use crate::known::Known;
use crate::layout::{CpuMask, Ops, RunQueue, Task};
use crate::maps::Maps;
use crate::masks::MaskPool;
use crate::memory::{Memory, PAGE};
use crate::races::Races;
use crate::tasks::Tasks;
use crate::timers::Timers;

/// Lines that `bpf_printk()` may leave behind.
const LOG_LINES_MAX: usize = 1_000;

/// `SCX_EXIT_DUMP_DFL_LEN`.
const DUMP_BYTES: usize = 32_768;

/// One virtual CPU.
pub struct Cpu {
    pub id: usize,
    /// `can_loop` steps of the op that runs.
    pub steps: u32,
    /// Instructions of the op that runs which were charged; of objects only.
    pub instructions: u64,
    /// The lines that the op which runs has accessed; of objects only.
    lines: Option<Box<Seen>>,
    /// The first two arguments of the op that runs; of objects only. After an op that was nested in it they are that one's.
    pub arguments: [u64; 2],
    /// When the fields of the candidate examined last had arrived, if the next one is then prefetched:
    /// `None` at the beginning of a walk.
    pub prefetch: Option<Instant>,
    /// The code that asked for a lock last.
    pub lock_asked_at: usize,
    /// The timer whose callback runs.
    pub timer: Option<TimerId>,
    /// `bpf_cpumask_any_distribute()` begins behind this CPU.
    pub distributed: u32,
    pub run_queue: *mut RunQueue,
    /// Masks that it was handed out and that follow the kernel's idle masks.
    pub idle_masks: Vec<IdleMask>,
}

/// A mask that follows one of the kernel's idle masks until it is put back.
#[derive(Clone, Copy)]
pub struct IdleMask {
    pub mask: *mut CpuMask,
    pub node: Option<i32>,
    /// Whether it is the mask of idle cores.
    pub smt: bool,
}

/// A lock of the policy.
pub struct Lock {
    pub owner: Option<usize>,
    pub address: u64,
    /// Where its word lies in this copy.
    place: usize,
    /// The code that took it last.
    pub taken_at: usize,
}

/// A policy's side of the contract. C code has a pointer to it and takes it for `struct lab_host`.
#[repr(C)]
pub struct Host {
    /// Must be the first member.
    table: Table<Context>,
    /// The environment of the call whose policy code runs.
    env: *const Env<'static>,
    /// The data that the code of an object reaches.
    pub bpf: bpf::Run,
    /// A borrow of the host is active.
    looked_at: Cell<bool>,
    /// The CPU that it runs on, one of `cpus`.
    current: *mut Cpu,
    pub cpus: Box<[UnsafeCell<Cpu>]>,
    pub ops: Ops,
    pub info: OpsInfo,
    /// The ops that are sleepable programs.
    pub sleepable: OpSet,
    pub tasks: Tasks,
    pub maps: Maps,
    pub masks: MaskPool,
    pub cgroups: Cgroups,
    /// Programs of an object that run before and after `ops.init()`.
    pub beside_init: Vec<Beside>,
    /// Where tasks, masks and whatever else of the virtual kernel lies that policies have pointers to. Map values lie
    /// elsewhere: an access a little beyond one should not meet our pointers, which differ between runs.
    pub memory: Rc<Memory>,
    pub timers: Timers,
    pub graph: Graph,
    pub locks: Vec<Lock>,
    addresses: Known<u64, 64, false>,
    pub log: VecDeque<String>,
    /// The debug dump, with what `scx_bpf_dump()` printed.
    pub dump: String,
    /// The text that comes into it before the next text that an op prints.
    dump_pending: String,
    pub fields: Fields,
    pub prefetch: bool,
    pub op_ns: u64,
    pub kfunc_ns: u64,
    pub atomic_ps: u64,
    /// The costs of probes and loops.
    pub costs: Costs,
    /// Ticks in a second.
    pub hz: u32,
    pub topology: Topology,
    pub cids: Cids,
    /// `arch_scale_cpu_capacity()` of each CPU.
    pub capacities: Box<[u32]>,
    pub nr_cpus: usize,
    pub nr_nodes: u32,
    pub version: KernelVersion,
    /// The exit information for `ops.exit()`.
    pub exit_message: String,
    /// `ops.init()` has returned 0.
    pub initialized: bool,
    foreign: Foreign,
    /// For a policy that is watched: the owner of each piece of memory, and the payments.
    pub audit: Option<Audit>,
    /// Of one whose races are looked for.
    pub races: Option<Races>,
    pub image: Image,
}

/// The pointer that C code hands back to us with every call (`context.rs`).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Context(*mut Host);

impl Host {
    /// The CPU whose policy code runs.
    #[inline]
    pub fn current(&mut self) -> &mut Cpu {
        // SAFETY: `choose` has set it; CPUs stay where they are, and no other code borrows this one.
        unsafe { &mut *self.current }
    }

    /// Its number.
    #[inline]
    pub fn cpu(&mut self) -> usize {
        self.current().id
    }

    /// Where a place lies for the cache model; `None` for a place that is not modelled (the stack).
    #[inline]
    pub fn modelled(&mut self, place: usize) -> Option<u64> {
        if let Some(address) = self.addresses.get(place) {
            return Some(address);
        }
        let address = self.find_modelled(place)?;
        self.addresses.keep(place, address);
        Some(address)
    }

    #[inline(never)]
    fn find_modelled(&self, place: usize) -> Option<u64> {
        if let Some(offset) = self.maps.arena_offset(place) {
            return Some(schedlab_machine::address::ARENA + offset);
        }
        if let Some(offset) = self.image.offset(place) {
            return self.image.object().modelled(offset);
        }
        self.maps.modelled(place)
    }

    /// Where a place that an object accesses lies for the cache model. Of the kernel's structures those of tasks are modelled.
    pub fn modelled_of_object(&self, place: usize) -> Option<u64> {
        self.modelled_task(place)
            .or_else(|| self.find_modelled(place))
    }

    /// Keeps that a place is not modelled, unless a value or a task may still come to lie there: an object may look a little
    /// beyond its own.
    pub fn keep_unmodelled(&mut self, place: usize) {
        if !self.memory.is_free(place) && !self.maps.memory.is_free(place) {
            self.bpf.lines().keep(place, None);
        }
    }

    /// Where a place in a task's structure lies for the cache model.
    ///
    /// Model: the fields that schedulers use are those of the profile (`task_layout.examine_bytes`), and all fields are among them.
    fn modelled_task(&self, place: usize) -> Option<u64> {
        let (task, offset) = self.tasks.at(place)?;
        let (address, bytes) = self.fields.range(task);
        Some(address + offset % u64::from(bytes.max(8)) / 8 * 8)
    }

    /// The lock of a word, numbered if it is its first use. `None` for a place without an address.
    pub fn lock(&mut self, word: *mut u32) -> Option<PolicyLock> {
        // SAFETY: a lock word of the policy; a wild pointer faults, and that is caught.
        let number = unsafe { word.read() } as usize;
        if let Some(index) = number.checked_sub(1)
            && index < self.locks.len()
        {
            return Some(PolicyLock(index as u32));
        }
        let address = self.modelled(word as usize)?;
        self.locks.push(Lock {
            owner: None,
            address,
            place: word as usize,
            taken_at: 0,
        });
        let number = self.locks.len() as u32;
        // SAFETY: as above.
        unsafe { word.write(number) };
        Some(PolicyLock(number - 1))
    }

    /// An op begins on a policy that is watched.
    fn begin_watched(&mut self, env: &Env<'_>, op: &OpCall) {
        let (cpu, own) = (env.cpu.id.index(), env.kernel.own_task());
        if let Some(audit) = &mut self.audit {
            audit.begin(cpu, own, op);
        }
        if let Some(races) = &mut self.races {
            let rq = u32::try_from(env.kernel.locked_rq()).ok().map(CpuId);
            races.begin(cpu, own, rq, op);
        }
    }

    /// It ends.
    fn end_watched(&mut self, cpu: usize, op: &OpCall) {
        if let Some(audit) = &mut self.audit {
            audit.end(cpu);
        }
        if let Some(races) = &mut self.races {
            races.end(cpu, op);
        }
    }

    /// Puts a set of CPUs into this CPU's mask for `ops.set_cmask()`, in the arena; null if that has no room
    /// (`scx_set_cmask_scratch_alloc()`).
    // Model: the masks come before the first call, and not right behind ops.init().
    pub fn put_cmask(&mut self, cpus: &CpuSet) -> *mut u8 {
        let bytes = cmask_bytes(self.nr_cpus);
        let arena = self.maps.arena.and_then(|map| self.maps.list[map].arena());
        if let (true, Some(arena)) = (self.cids.scratch.is_null(), arena) {
            let pages = (bytes * self.nr_cpus).div_ceil(PAGE);
            self.cids.scratch = arena.alloc(std::ptr::null_mut(), pages);
        }
        if self.cids.scratch.is_null() {
            return self.cids.scratch;
        }
        let mask = self.cids.cmask(cpus);
        let place = self.cids.scratch.wrapping_add(self.cpu() * bytes);
        // SAFETY: the pages have room for a mask of each CPU.
        unsafe { place.copy_from_nonoverlapping(mask.as_ptr(), mask.len()) };
        place
    }

    /// An op inserts a task by a call that is right before a place in the code.
    #[inline]
    pub fn inserts(&mut self, p: *mut Task, op: Option<OpKind>, code: *const c_void) {
        let number = match op {
            Some(OpKind::SelectCpu) => 1,
            Some(OpKind::Enqueue) => 2,
            Some(OpKind::Dispatch) => 3,
            _ => 0,
        };
        let at = self.image.offset(code as usize).unwrap_or(0);
        // SAFETY: a task that the policy was found to mean, whose shadow is ours.
        let scx = unsafe { &mut (*p).scx };
        (scx.lab_inserted_in, scx.lab_inserted_at) = (number, at as u32);
    }

    /// Keeps a line for the report; the oldest go first.
    pub fn print(&mut self, line: String) {
        if self.log.len() >= LOG_LINES_MAX {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }

    /// Adds to the dump what a dumping op prints, indented as the kernel does; `false` for any other op.
    pub fn dump(&mut self, op: Option<OpKind>, text: &str) -> bool {
        let indent = match op {
            Some(OpKind::Dump) => "",
            Some(OpKind::DumpCpu) => "  ",
            Some(OpKind::DumpTask) => "    ",
            _ => return false,
        };
        for line in text.split_inclusive('\n') {
            let pending = std::mem::take(&mut self.dump_pending);
            self.add_dump(&pending, true);
            if self.dump.is_empty() || self.dump.ends_with('\n') {
                self.add_dump(indent, true);
            }
            self.add_dump(line, true);
        }
        true
    }

    /// A dumping op is called: what it prints stands apart from what is before it.
    pub fn begin_dump(&mut self) {
        self.dump_pending.push('\n');
    }

    /// It returns: the next one begins on a line of its own.
    pub fn end_dump(&mut self) {
        self.dump_pending.clear();
        if !self.dump.is_empty() && !self.dump.ends_with('\n') {
            self.add_dump("\n", true);
        }
    }

    /// Adds to the dump, or keeps for when the next dumping op prints something. What does not fit is left out, and the end
    /// says so (`scx_dump_state()`).
    pub fn add_dump(&mut self, text: &str, at_once: bool) {
        const CUT: &str = "\n\n~~~~ TRUNCATED ~~~~\n";
        if !at_once {
            self.dump_pending.push_str(text);
            return;
        }
        let most = match self.ops.exit_dump_len {
            0 => DUMP_BYTES,
            bytes => bytes as usize,
        };
        if self.dump.len() > most || self.dump.ends_with(CUT) {
            return;
        }
        self.dump.push_str(text);
        if self.dump.len() > most {
            let room = most.saturating_sub(CUT.len());
            let cut = if most > CUT.len() { CUT } else { "" };
            self.dump
                .truncate(
                    self.dump
                        .floor_char_boundary(if cut.is_empty() { most } else { room }),
                );
            self.dump.push_str(cut);
        }
    }
}

impl Cpu {
    /// An op begins; one that is nested goes on with what the outer one has.
    #[inline(always)]
    fn begin(&mut self, nested: bool) {
        self.prefetch = None;
        if !nested {
            self.steps = 0;
            self.instructions = 0;
            if let Some(lines) = &mut self.lines {
                lines.forget();
            }
            self.idle_masks.clear();
        }
    }

    /// The lines that the op which runs has accessed.
    pub fn lines(&mut self) -> &mut Seen {
        self.lines.get_or_insert_default()
    }

    fn new(id: usize, memory: &Memory) -> Self {
        Cpu {
            id,
            steps: 0,
            instructions: 0,
            lines: None,
            arguments: [0; 2],
            prefetch: None,
            lock_asked_at: 0,
            timer: None,
            distributed: 0,
            run_queue: memory
                .put(ObjectRunQueue::new(RunQueue {
                    cpu: id as i32,
                    curr: std::ptr::null_mut(),
                }))
                .cast(),
            idle_masks: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_op_goes_on_with_the_steps_of_the_outer_one() {
        let mut cpu = Cpu::new(0, &Memory::new(64).unwrap());
        (cpu.steps, cpu.prefetch) = (5, Some(Instant::from_ns(1)));
        assert!(!cpu.lines().notes_line_again(7));
        cpu.begin(true);
        assert_eq!((cpu.steps, cpu.prefetch), (5, None));
        assert!(cpu.lines().notes_line_again(7));
        cpu.begin(false);
        assert_eq!(cpu.steps, 0);
        assert!(!cpu.lines().notes_line_again(7));
    }
}
