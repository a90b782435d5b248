//! One loaded policy with everything it may reach.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use schedlab_bpf::translate::Entry;
use schedlab_engine::policy::{
    Env, OpCall, OpKind, OpSet, OpsInfo, PolicyLock, Service, ThisCpu, TimerId,
};
use schedlab_engine::{KernelVersion, Place};
use schedlab_fiber::trap::{self, Foreign};
use schedlab_fiber::{STACK_BYTES, StackFault, Trap};
use schedlab_machine::profile::Policy as Costs;
use schedlab_machine::{Machine, Topology};
use schedlab_trace::{CpuId, CpuSet, Instant, TaskId};

use crate::audit::state::Audit;
use crate::bpf::{
    self, Sized,
    fields::{ObjectRunQueue, Root},
};
use crate::cids::{Cids, cmask_bytes};
use crate::custody;
use crate::dwarf::{Types, Variable};
use crate::fields::Fields;
use crate::graph::Graph;
use crate::host_table::Table;
use crate::image::Image;
use crate::layout::{CpuMask, Ops, RunQueue, Task};
use crate::maps::Maps;
use crate::masks::MaskPool;
use crate::memory::{Memory, PAGE, space};
use crate::object::NativeObject;
use crate::ops;
use crate::ops_table;
use crate::races::Races;
use crate::tasks::{Extension, Tasks};
use crate::timers::Timers;
use crate::version;

/// Lines that `bpf_printk()` may leave behind.
const LOG_LINES_MAX: usize = 1_000;

/// Address space for the parts of the virtual kernel to which policies have pointers: of each task less than 200
/// bytes, and a KB for each mask.
const KERNEL_BYTES: usize = 16 << 30;

/// `SCX_EXIT_DUMP_DFL_LEN`.
const DUMP_BYTES: usize = 32_768;

/// Places whose modelled address was wanted lately, with it. Nothing that is modelled moves.
struct Places([(Option<usize>, u64); Places::KEPT]);

impl Places {
    const KEPT: usize = 64;

    fn new() -> Places {
        Places([(None, 0); Places::KEPT])
    }

    #[inline]
    fn get(&self, place: usize) -> Option<u64> {
        let (kept, address) = self.0[place / 8 % Places::KEPT];
        (kept == Some(place)).then_some(address)
    }

    fn keep(&mut self, place: usize, address: u64) {
        self.0[place / 8 % Places::KEPT] = (Some(place), address);
    }
}

/// One virtual CPU.
pub struct Cpu {
    pub id: usize,
    /// `can_loop` steps of the op that runs.
    pub steps: u32,
    /// Instructions of the op that runs which were charged; of objects only.
    pub instructions: u64,
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

/// The map that refers from tasks to their contexts in the arena (include/lab/task.h).
const CONTEXTS: &str = "lab_task_refs";

/// The ops that may insert, by their number less 1 in [`crate::layout::Entity::lab_inserted_in`].
const INSERTING: [OpKind; 3] = [OpKind::SelectCpu, OpKind::Enqueue, OpKind::Dispatch];

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
    table: Table,
    /// The environment of the call whose policy code runs.
    env: *const Env<'static>,
    /// The data that the code of an object reaches.
    pub bpf: bpf::Run,
    /// A borrow of the host is active; only debug builds keep it.
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
    /// The only cgroup.
    pub root: Root,
    /// Programs of an object that run before and after `ops.init()`.
    pub beside_init: Vec<bpf::Beside>,
    /// Where tasks, masks and whatever else of the virtual kernel lies that policies have pointers to. Map values lie
    /// elsewhere: an access a little beyond one should not meet our pointers, which differ between runs.
    pub memory: Rc<Memory>,
    pub timers: Timers,
    pub graph: Graph,
    pub locks: Vec<Lock>,
    places: Places,
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

/// The pointer that C code hands back to us with every call.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Context(*mut Host);

impl Context {
    /// Of the pointer that code was given.
    pub fn of(host: *mut Host) -> Context {
        Context(host)
    }

    /// The pointer that code is given.
    pub fn run(self) -> *mut c_void {
        self.0.cast()
    }

    /// Lets the time pass of the instructions that an object has executed since the last time.
    #[inline(always)]
    pub fn charge_instructions(self) {
        // SAFETY: as in `with`; code of objects alone writes this, and it does not run now.
        let executed = unsafe { std::mem::take(&mut (*self.0).bpf.executed) };
        if executed > 0 {
            let (ps, of_op) = self.with(|host| {
                let ps = executed * host.bpf.instruction_ps;
                let cpu = host.current();
                cpu.instructions += executed;
                (ps, cpu.instructions)
            });
            self.env(|env| env.cpu.charge_ps(ps));
            if of_op > bpf::OP_INSTRUCTIONS_MAX {
                self.loops_without_end();
            }
        }
    }

    /// Ends the run: a loop of an object goes on and on.
    #[cold]
    pub fn loops_without_end(self) -> u64 {
        self.fault("it loops without end".to_owned())
    }

    /// Ends the run: an instruction was reached that refers to what is not there.
    #[cold]
    pub fn poisoned(self, number: usize) -> u64 {
        let what = self.with(|host| {
            let image = host.image.bpf();
            image.and_then(|image| image.code().linked.unit.poison.get(number).cloned())
        });
        self.fault(what.unwrap_or_else(|| "it reaches what is not there".to_owned()))
    }

    /// Looks at the host. `f` must neither suspend nor keep a reference: between two uses of this
    /// function the virtual kernel may have changed everything. Nor may it look at the host by another
    /// way than its argument, which debug builds check.
    #[inline]
    pub fn with<R>(self, f: impl FnOnce(&mut Host) -> R) -> R {
        // SAFETY: the pointer is the one that `Runner` gave to the policy. While policy code runs
        // the runner itself holds no reference, and `f` ends before anybody else looks.
        unsafe {
            debug_assert!(
                !(*self.0).looked_at.replace(true),
                "the host is borrowed twice"
            );
            let result = f(&mut *self.0);
            self.looks_no_more();
            result
        }
    }

    /// The borrow of the host has ended.
    #[inline]
    fn looks_no_more(self) {
        if cfg!(debug_assertions) {
            // SAFETY: as in `with`.
            unsafe { (*self.0).looked_at.set(false) };
        }
    }

    /// Looks at the environment of the call that is under way, as `with`.
    #[inline]
    pub fn env<R>(self, f: impl FnOnce(&Env<'_>) -> R) -> R {
        // SAFETY: `Runner::call` sets the pointer for as long as policy code runs.
        f(unsafe { &*(*self.0).env })
    }

    /// The op that runs; of nested ones the inner one.
    pub fn op(self) -> Option<OpKind> {
        self.env(|env| env.cpu.op.get())
    }

    /// Lets the time of a kfunc pass.
    #[inline]
    pub fn charge_kfunc(self) {
        let ns = self.with(|host| host.kfunc_ns);
        self.env(|env| env.cpu.charge_ns(ns));
    }

    /// Asks the virtual kernel and waits for its answer. Ops that the virtual kernel calls meanwhile run
    /// deeper on this stack.
    #[inline(always)]
    pub fn ask<R>(self, request: impl FnOnce(&dyn Service) -> R) -> R {
        // SAFETY: as in `with` and `env`; what the virtual kernel changes meanwhile is put back.
        unsafe {
            let env = (*self.0).env;
            // Nothing may unwind through the policy's C frames.
            match catch_unwind(AssertUnwindSafe(|| request((*env).kernel))) {
                Ok(answer) => {
                    // Another environment, or none, if an op was called meanwhile: of another CPU, or nested.
                    if !std::ptr::eq((*self.0).env, env) {
                        self.choose(env);
                        trap::enter(&(*self.0).foreign);
                    }
                    trap::go_on(&(*self.0).foreign);
                    answer
                }
                Err(payload) => self.kernel_panicked(env, payload),
            }
        }
    }

    /// Lets policy code run or go on in this environment. Inlined, as `trap::enter` after it: a function call saves
    /// registers around it, in each kfunc and though it is rarely called.
    ///
    /// # Safety
    /// The environment must live until the policy code returns.
    #[inline(always)]
    unsafe fn choose(self, env: *const Env<'static>) {
        // SAFETY: as in `with`; the environment lives.
        unsafe {
            let host = &mut *self.0;
            host.env = env;
            host.current = host.cpus[(*env).cpu.id.index()].get();
        }
    }

    /// Takes what the panic left, so that kfuncs need no registers for it.
    ///
    /// # Safety
    /// As [`Context::choose`].
    #[cold]
    unsafe fn kernel_panicked(self, env: *const Env<'static>, _: Box<dyn Any + Send>) -> ! {
        // SAFETY: as promised; the host lives as long as its policy's code is there.
        unsafe {
            self.choose(env);
            trap::enter(&(*self.0).foreign);
        }
        self.fault("the virtual kernel panicked: please report this".to_owned())
    }

    /// Ends the run. The op goes no further.
    #[cold]
    pub fn fault(self, message: String) -> ! {
        let op = self.op();
        let line = self.with(|host| host.line_of_call(op));
        self.fault_at(line, &message)
    }

    /// The same for code of the policy that is right before a place, and for its caller.
    #[cold]
    pub fn fault_before(self, place: usize, message: &str) -> ! {
        let line = self.with(|host| {
            let offset = host.image.offset(place.wrapping_sub(1))?;
            host.image.object().lines_of(&[offset])
        });
        self.fault_at(line, message)
    }

    /// The same where no code of the policy is under way.
    #[cold]
    pub fn fault_outside(self, message: &str) -> ! {
        self.fault_at(None, message)
    }

    fn fault_at(self, line: Option<String>, message: &str) -> ! {
        let op = self.op();
        let text = self.with(|host| match line {
            Some(line) => host.name_fault(op, &format!("{line}: {message}")),
            None => host.name_fault(op, message),
        });
        // SAFETY: as in `env`.
        unsafe {
            trap::leave(&(*self.0).foreign);
            (*(*self.0).env).kernel.fault(text)
        }
    }

    /// A kfunc that may sleep is called (`KF_SLEEPABLE`). Where no op may sleep, the virtual kernel refuses it.
    pub fn may_sleep(self, kfunc: &str) {
        let sleepable = self.with(|host| host.sleepable);
        let is_awake = |op| ops_table::MAY_SLEEP.has(op) && !sleepable.has(op);
        if self.op().is_some_and(is_awake) {
            self.fault(format!(
                "{kfunc}() may sleep, and the kernel's verifier refuses it in an op that is not sleepable: define the op with BPF_STRUCT_OPS_SLEEPABLE()"
            ));
        }
    }

    /// The task that a pointer means.
    #[inline]
    pub fn task(self, task: *const Task, function: &str) -> TaskId {
        if task.is_null() {
            self.no_task(function, "a NULL");
        }
        // SAFETY: a policy has task pointers only from us; a wild one faults, and that is caught.
        let index = unsafe { (*task).lab_index };
        match self.with(|host| host.tasks.find(task, index)) {
            Some(task) => task,
            None if index == Task::NOBODY => self.no_task(function, "an idle or stopper"),
            None => self.no_task(function, "an overwritten"),
        }
    }

    #[cold]
    fn no_task(self, function: &str, what: &str) -> ! {
        self.fault(format!("{function}() was called with {what} task"))
    }

    /// The pointer that means a task.
    #[inline]
    pub fn pointer(self, task: Option<TaskId>) -> *mut Task {
        match task {
            Some(task) => self.with(|host| host.tasks.pointer(task)),
            None => std::ptr::null_mut(),
        }
    }

    /// The set that a mask means.
    pub fn set(self, mask: *const CpuMask, function: &str) -> CpuSet {
        if mask.is_null() {
            self.fault(format!("{function}() was called with a NULL cpumask"));
        }
        let nr_cpus = self.with(|host| host.nr_cpus);
        let mut set = CpuSet::empty(nr_cpus);
        for (word, start) in (0..nr_cpus).step_by(64).enumerate() {
            // SAFETY: as in `task`.
            let mut bits = unsafe { (&raw const (*mask).bits[word]).read() };
            while bits != 0 {
                let cpu = start + bits.trailing_zeros() as usize;
                if cpu < nr_cpus {
                    set.insert(schedlab_trace::CpuId(cpu as u32));
                }
                bits &= bits - 1;
            }
        }
        set
    }

    /// Ends the run where a kfunc came after the kernel that is simulated: there the policy would not load.
    #[inline]
    pub fn require(self, kfunc: &str) {
        if self.with(|host| host.version < KernelVersion::V7_2) {
            self.require_in_older(kfunc);
        }
    }

    #[cold]
    fn require_in_older(self, kfunc: &str) {
        if self.with(|host| version::is_newer(host.version, kfunc)) {
            self.lacks(kfunc);
        }
    }

    /// Ends the run: a kfunc that is not there was called.
    #[cold]
    pub fn lacks(self, kfunc: &str) -> ! {
        let version = self.with(|host| host.version);
        if version::is_newer(version, kfunc) {
            self.fault(format!("kfunc {kfunc} is not in Linux {}", version.name()));
        }
        self.fault(format!("kfunc {kfunc} is not in the virtual kernel"))
    }

    /// The idle masks that this CPU holds show what has changed: in the kernel they are its own.
    pub fn refresh_idle_masks(self) {
        if self.with(|host| !host.current().idle_masks.is_empty()) {
            self.refresh_each();
        }
    }

    #[cold]
    fn refresh_each(self) {
        for held in self.with(|host| host.current().idle_masks.clone()) {
            let now = self.ask(|kernel| kernel.idle_mask(held.node, held.smt));
            // SAFETY: masks of the pool live as long as the host.
            unsafe { (*held.mask).set_words(now.words()) };
        }
    }

    /// Calls a function of an object, and lets the time of its instructions pass.
    pub fn call_back(self, function: u64, arguments: [u64; 4]) -> u64 {
        let [a, b, c, d] = arguments;
        // SAFETY: programs have addresses of functions only from us (`BPF_PSEUDO_FUNC`); calling what is none faults, and
        // that is caught.
        let result = unsafe {
            let function = std::mem::transmute::<usize, Entry>(function as usize);
            function(self.run(), a, b, c, d, 0)
        };
        self.charge_instructions();
        result
    }
}

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
        if let Some(address) = self.places.get(place) {
            return Some(address);
        }
        let address = self.find_modelled(place)?;
        self.places.keep(place, address);
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

    /// A lock by what it lies in, for people.
    pub fn name_lock(&self, lock: usize) -> String {
        let place = self.locks[lock].place;
        let global = self.image.offset(place);
        if let Some((name, offset)) = global.and_then(|at| self.image.object().global_at(at)) {
            let field = self.image.object().field_of_variable(name, offset);
            return match field.filter(|field| !field.is_empty()) {
                // The word is a member of the lock.
                Some(field) => {
                    let field = field.trim_end_matches(".word").trim_end_matches(".val");
                    format!("the lock `{name}{field}`")
                }
                None if offset == 0 => format!("the lock `{name}`"),
                None => format!("the lock at offset {offset} of `{name}`"),
            };
        }
        if let Some(offset) = self.maps.arena_offset(place) {
            return format!("the lock at offset {offset:#x} of the arena");
        }
        match self.maps.value_of(place) {
            Some((map, offset)) => {
                format!("the lock at offset {offset} of a value of the map `{map}`")
            }
            None => format!("lock {lock}"),
        }
    }

    /// A lock that is held, and where it was taken.
    pub fn name_held_lock(&self, lock: usize) -> String {
        format!("{}{}", self.name_lock(lock), self.lock_taken_at(lock))
    }

    /// Where a lock was taken, to be added to its name.
    pub fn lock_taken_at(&self, lock: usize) -> String {
        let line = self.line_at(self.locks[lock].taken_at);
        line.map_or(String::new(), |line| format!(", taken at {line}"))
    }

    /// The line of the policy's call that is under way: its frames are on the stack.
    fn line_of_call(&self, op: Option<OpKind>) -> Option<String> {
        let mut callers = Vec::new();
        backtrace::trace(|frame| {
            // A call is before where it returns to.
            let caller = self.image.offset((frame.ip() as usize).wrapping_sub(1));
            let behind = caller.is_none() && !callers.is_empty();
            callers.extend(caller);
            !behind
        });
        // The last call of a function may have taken its frame: then it is the op, or one that it ended with.
        if callers.is_empty() {
            callers.extend(op.and_then(|op| self.image.offset(ops_table::address(&self.ops, op)?)));
        }
        self.image.object().line_of(&callers)
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

    /// Where that call is.
    pub fn place_of_call(&self, cpu: &ThisCpu) -> Option<Place> {
        let op = cpu.op.get()?;
        let line = self.line_of_call(Some(op));
        Some(Place { op, line })
    }

    /// Where a task was inserted last.
    pub fn place_of_insertion(&self, task: TaskId) -> Option<Place> {
        // SAFETY: shadows live as long as we do.
        let scx = unsafe { (*self.tasks.pointer(task)).scx };
        let op = INSERTING.get(usize::from(scx.lab_inserted_in).checked_sub(1)?)?;
        let before = u64::from(scx.lab_inserted_at).checked_sub(1)?;
        Some(Place {
            op: *op,
            line: self.image.object().line_of(&[before]),
        })
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

    /// The line of code right before a place, of the policy's own file if it can be.
    fn line_at(&self, code: usize) -> Option<String> {
        let offset = self.image.offset(code.wrapping_sub(1))?;
        self.image.object().line_of(&[offset])
    }

    /// The structure of include/lab in which the context of a task is linked, for people. None: it is in none.
    pub fn describe_custody(&self, task: TaskId) -> Option<String> {
        let refs = self
            .maps
            .list
            .iter()
            .filter(|map| map.is_storage())
            .find(|map| map.def.name == CONTEXTS)?;
        let context = |task: usize| {
            let value = refs.storage(task).cast::<usize>();
            // SAFETY: a task's value is a pointer to its context.
            (!value.is_null()).then(|| unsafe { value.read() })
        };
        let own = context(task.0 as usize)?;
        let queue = match self.image.bpf() {
            Some(_) => self.list_of(own)?,
            None => {
                let types = self.image.object().types()?;
                let contexts = (0..self.tasks.bound()).filter_map(context).collect();
                custody::Search::new(self, &types, contexts)?.describe(own)?
            }
        };
        Some(format!(
            "the policy has had it since ops.enqueue(), in {queue}, and inserted it into no DSQ"
        ))
    }

    /// The list in whose circle an object's context is linked, by its global variable: the types of an object for BPF are not those.
    fn list_of(&self, context: usize) -> Option<String> {
        let mut at = context;
        for _ in 0..custody::LINKS_MAX {
            // A list's link comes first in a context and in a list.
            at = custody::Memory::word(self, at)?;
            let global = self.image.offset(at);
            let object = self.image.object();
            if let Some((name, offset)) = global.and_then(|at| object.global_at(at)) {
                let field = object.field_of_variable(name, offset).unwrap_or_default();
                let field = field.trim_end_matches(".head.next");
                return Some(format!("the list `{name}{field}`"));
            }
            if at == context {
                return None;
            }
        }
        None
    }

    /// One CPU that waits for a lock that another one holds, for people.
    pub fn describe_lock_wait(&self, lock: PolicyLock, waiter: CpuId, holder: CpuId) -> String {
        let held = self.name_held_lock(lock.0 as usize);
        // SAFETY: one of our CPUs; no other code accesses it meanwhile.
        let asked_at = unsafe { (*self.cpus[waiter.index()].get()).lock_asked_at };
        let waiting = match self.line_at(asked_at) {
            Some(line) => format!("CPU {waiter} waits at {line}"),
            None => format!("CPU {waiter} waits"),
        };
        format!("{waiting} for {held} by CPU {holder}")
    }

    /// Adds the policy's name and the op that runs to a message.
    fn name_fault(&self, op: Option<OpKind>, message: &str) -> String {
        // The file of an object often has the name that many files have.
        let policy = match self.image.bpf() {
            Some(_) if !self.info.name.is_empty() => &self.info.name,
            _ => self.image.object().name(),
        };
        match op {
            None => format!("{policy}: {message}"),
            Some(op) => {
                let op = ops_table::name_of(op, self.cids.is_form);
                format!("{policy}: in ops.{op}: {message}")
            }
        }
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

    /// Describes a fault in an op, for people.
    fn describe(&self, op: Option<OpKind>, trap: &Trap) -> String {
        let object = self.image.object();
        // A call is before where it returns to.
        let caller = trap.caller.map(|to| to.wrapping_sub(1));
        let at = |pc| {
            let places = [Some(pc), caller];
            let places = places.into_iter().flatten();
            let places: Vec<u64> = places.filter_map(|pc| self.image.offset(pc)).collect();
            object.lines_of(&places)
        };
        let is_full = trap.stack == Some(StackFault::Full);
        let place = match (self.image.offset(trap.pc), caller.and_then(at)) {
            (Some(_), _) => at(trap.pc).unwrap_or_else(|| "an unknown place".to_owned()),
            (None, Some(line)) if is_full => line,
            (None, Some(line)) => {
                format!("a function of the virtual kernel that is called at {line}")
            }
            (None, None) => "an unknown place".to_owned(),
        };
        let what = match trap.signal {
            // A weak kfunc that does not exist is at address 0.
            libc::SIGSEGV if trap.calls_nothing && trap.address == Some(0) => {
                "it calls a function that is not there".to_owned()
            }
            libc::SIGFPE => "it divides by zero".to_owned(),
            // There the compiler looks for a divisor of zero (crate::compiler).
            libc::SIGTRAP if cfg!(target_arch = "aarch64") => {
                "it divides by zero or ends by a trap instruction".to_owned()
            }
            libc::SIGILL | libc::SIGTRAP => "it ends by a trap instruction".to_owned(),
            libc::SIGSEGV if is_full => {
                format!("it uses more than the {} KB of stack", STACK_BYTES >> 10)
            }
            libc::SIGSEGV if trap.stack.is_some() || self.is_stack_check(trap) => {
                "it has written beyond an array on its stack, noticed".to_owned()
            }
            libc::SIGSEGV | libc::SIGBUS => match trap.address {
                Some(..4096) => "it follows a NULL pointer".to_owned(),
                None if self.is_privileged(trap.pc) => {
                    "it executes what only a kernel may".to_owned()
                }
                _ => "it accesses memory that is not its own".to_owned(),
            },
            _ => "it loops without end".to_owned(),
        };
        self.name_fault(op, &format!("{what} at {place}"))
    }

    /// Whether a function has called the report that its frame is overwritten (include/native/scx/host.h).
    fn is_stack_check(&self, trap: &Trap) -> bool {
        let offset = trap.address.and_then(|address| self.image.offset(address));
        offset.is_some() && offset == self.image.object().symbol("__stack_chk_fail")
    }

    /// Whether the policy has an instruction at `pc` that a processor does not execute for programs.
    fn is_privileged(&self, pc: usize) -> bool {
        if !cfg!(target_arch = "x86_64") || self.image.offset(pc).is_none() {
            return false;
        }
        // SAFETY: the instruction was about to be executed, and code can be read: behind it the section goes on.
        match unsafe { (pc as *const [u8; 2]).read() } {
            // in, out, hlt, cli, sti
            [0xe4..=0xe7 | 0xec..=0xef | 0xf4 | 0xfa | 0xfb, _] => true,
            // Tables of descriptors, clts, caches, control registers, model-specific registers
            [
                0x0f,
                0x00 | 0x01 | 0x06 | 0x08 | 0x09 | 0x20..=0x23 | 0x30 | 0x32,
            ] => true,
            _ => false,
        }
    }

    /// Which locks a CPU holds whose op returns, for people.
    fn describe_held_locks(&self, cpu: &ThisCpu) -> String {
        let locks = self.locks.iter().enumerate();
        let held = locks.filter(|(_, lock)| lock.owner == Some(cpu.id.index()));
        let names: Vec<String> = held.map(|(index, _)| self.name_held_lock(index)).collect();
        let names = names.join(", ");
        self.name_fault(cpu.op.get(), &format!("it returns and still holds {names}"))
    }
}

/// The analysis for which a policy is compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    /// Accesses that no probe has paid for.
    pub payment: bool,
    /// Accesses that nothing orders.
    pub races: bool,
}

/// Owner of a [`Host`]: runs its ops.
pub struct Runner {
    host: *mut Host,
}

impl Runner {
    /// Puts a host together.
    pub fn new(
        image: Image,
        machine: &Machine,
        version: KernelVersion,
        watch: Option<Watch>,
    ) -> std::io::Result<Runner> {
        let object: Arc<NativeObject> = Arc::clone(image.object());
        let nr_cpus = machine.topology.nr_cpus();
        let ops = image.ops();
        let memory = Rc::new(Memory::new(space(KERNEL_BYTES))?);
        let root = Root::new(&memory);
        let sized = Sized::new(object.maps(), object.program.as_deref(), machine)?;
        let program = object.program.as_deref();
        let is_cid = program.is_some_and(|program| program.is_cid);
        let extension = program.map(|program| Extension {
            root,
            has_mask: program.asks_for_mask(),
        });
        let mut host = Host {
            table: match watch {
                Some(_) => Table::watched(),
                None => Table::new(),
            },
            env: std::ptr::null(),
            bpf: bpf::Run::new(std::ptr::null_mut(), 0, machine.clock_mhz),
            looked_at: Cell::new(false),
            current: std::ptr::null_mut(),
            cpus: (0..nr_cpus)
                .map(|id| UnsafeCell::new(Cpu::new(id, &memory)))
                .collect(),
            info: ops_table::info(&ops, is_cid),
            sleepable: ops_table::sleepable(&ops, &image),
            ops,
            tasks: Tasks::new(nr_cpus, &memory, extension),
            maps: Maps::new(&sized.maps, &sized.inner, nr_cpus)?,
            beside_init: Vec::new(),
            masks: MaskPool::new(nr_cpus, &memory),
            root,
            memory,
            timers: Timers::default(),
            graph: Graph::default(),
            locks: Vec::new(),
            places: Places::new(),
            log: VecDeque::new(),
            dump: String::new(),
            dump_pending: String::new(),
            fields: Fields::new(machine),
            prefetch: machine.task_layout.prefetch,
            op_ns: machine.sched_ext.op_ns,
            kfunc_ns: machine.sched_ext.kfunc_ns,
            atomic_ps: machine.memory.atomic_ps,
            costs: machine.policy.clone(),
            hz: machine.hz,
            topology: machine.topology.clone(),
            cids: Cids::new(&machine.topology, is_cid),
            capacities: machine
                .core_traits()
                .iter()
                .map(|one| one.capacity)
                .collect(),
            nr_cpus,
            nr_nodes: machine.topology.nr_nodes(),
            version,
            exit_message: String::new(),
            initialized: false,
            foreign: Foreign::new(image.code()),
            audit: watch.map(|watch| Audit::new(nr_cpus, watch.payment)),
            races: watch
                .filter(|watch| watch.races)
                .map(|_| Races::new(nr_cpus)),
            image,
        };
        // Each map's variable holds the map's number.
        for (index, map) in host.maps.list.iter_mut().enumerate() {
            let variable = host.image.pointer(map.def.address).cast::<u64>();
            map.variable = variable;
            // SAFETY: a map is a structure of pointers that are not followed natively; the first is ours.
            unsafe { variable.write(index as u64) };
        }
        if let Some(image) = host.image.bpf() {
            host.bpf.data = image.data();
            host.maps
                .put_globals(object.program.as_deref(), &mut host.bpf)?;
            if let Some(program) = &object.program {
                let other = std::io::Error::other;
                host.beside_init = image.beside(program, machine).map_err(other)?;
                let place = bpf::expression::Place::of(machine);
                for (map, key, inner) in sized.slots {
                    host.maps.begin_with(map, key, inner).map_err(other)?;
                }
                for contents in program.decisions.contents(place).map_err(other)? {
                    host.maps.put(&contents, nr_cpus).map_err(other)?;
                }
                if !host.beside_init.is_empty() {
                    host.info.present = host.info.present.with(OpKind::Init);
                }
            }
            return Ok(Runner {
                host: Box::into_raw(Box::new(host)),
            });
        }
        let pointer = object.host_pointer;
        let host = Box::into_raw(Box::new(host));
        // SAFETY: the debug information says that `lab_host` lies there; no policy code runs yet.
        unsafe {
            (*host)
                .image
                .pointer(pointer)
                .cast::<*mut Host>()
                .write(host);
        }
        Ok(Runner { host })
    }

    /// The host. Policy code may run on other CPUs' fibers, which wait: no reference to what they hold
    /// references to may be kept.
    #[inline]
    pub fn host(&self) -> &Host {
        // SAFETY: policy code of other fibers looks at the host only while it runs, and references
        // that we hand out end before anybody is resumed.
        unsafe { &*self.host }
    }

    /// Looks at the host. `f` must neither suspend nor keep a reference.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut Host) -> R) -> R {
        Context(self.host).with(f)
    }

    /// Describes a trap on a CPU, for people.
    pub fn describe(&self, cpu: &ThisCpu, trap: &Trap) -> String {
        // It may have struck who looked at what a wild pointer points to.
        Context(self.host).looks_no_more();
        self.with(|host| host.describe(cpu.op.get(), trap))
    }

    /// Describes the fault of an op that returns and still holds locks, for people.
    pub fn describe_held_locks(&self, cpu: &ThisCpu) -> String {
        self.with(|host| host.describe_held_locks(cpu))
    }

    /// One CPU that waits for a lock that another one holds, for people.
    pub fn describe_lock_wait(&self, lock: PolicyLock, waiter: CpuId, holder: CpuId) -> String {
        self.with(|host| host.describe_lock_wait(lock, waiter, holder))
    }

    /// Describes the fault of an op that returns and has released a lock of the op that waits for it, for people.
    pub fn describe_released_lock(&self, cpu: &ThisCpu) -> String {
        let what = "it returns and has released a lock of the op that waits for it";
        self.with(|host| host.name_fault(cpu.op.get(), what))
    }

    /// Runs an op on `env.cpu`, on the fiber of the caller.
    #[inline(always)]
    pub fn call<const AUDITED: bool>(&self, env: &Env<'_>, op: &OpCall) -> i64 {
        self.run::<AUDITED>(env, op, false)
    }

    /// Runs an op while another one of `env.cpu`, further up this stack, waits.
    #[inline(never)]
    pub fn call_nested<const AUDITED: bool>(&self, env: &Env<'_>, op: &OpCall) -> i64 {
        self.run::<AUDITED>(env, op, true)
    }

    /// Runs a program that is no op, on `env.cpu` and the fiber of the caller: a function of the object's by its number there.
    pub fn call_program(&self, env: &Env<'_>, function: usize, argument: u64) -> u64 {
        let context = Context(self.host);
        let entry = context.with(|host| host.image.bpf().and_then(|image| image.entry(function)));
        let entry = entry.expect("the program is linked");
        // SAFETY: the environment outlives the call, and is forgotten after it.
        unsafe { context.choose(std::ptr::from_ref(env).cast()) };
        context.with(|host| host.current().begin(false));
        // SAFETY: the host lives as long as we do; the code is the program's, which takes the host first.
        let result = unsafe {
            trap::enter(&(*self.host).foreign);
            entry(context.run(), argument, 0, 0, 0, 0)
        };
        context.charge_instructions();
        context.with(|host| {
            trap::leave(&host.foreign);
            host.env = std::ptr::null();
        });
        result
    }

    #[inline(always)]
    fn run<const AUDITED: bool>(&self, env: &Env<'_>, op: &OpCall, nested: bool) -> i64 {
        let (context, cpu) = (Context(self.host), env.cpu);
        // SAFETY: the environment outlives the call, and is forgotten after it: where an op of this CPU waits, further
        // up this stack, `ask` puts its own back.
        unsafe { context.choose(std::ptr::from_ref(env).cast()) };
        context.with(|host| {
            host.current().begin(nested);
            cpu.charge_ns(host.op_ns);
            if AUDITED {
                host.begin_watched(env, op);
            }
        });
        // SAFETY: the host lives as long as we do.
        unsafe { trap::enter(&(*self.host).foreign) };
        let result = ops::call(context, op);
        context.charge_instructions();
        context.with(|host| {
            trap::leave(&host.foreign);
            host.env = std::ptr::null();
            if AUDITED {
                host.end_watched(cpu.id.index(), op);
            }
        });
        result
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
            self.idle_masks.clear();
        }
    }

    fn new(id: usize, memory: &Memory) -> Self {
        Cpu {
            id,
            steps: 0,
            instructions: 0,
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

impl Drop for Runner {
    fn drop(&mut self) {
        // SAFETY: `new` made the box. The image goes last, being the last member.
        drop(unsafe { Box::from_raw(self.host) });
    }
}

impl custody::Memory for Host {
    fn word(&self, at: usize) -> Option<usize> {
        let is_own = |at| match self.maps.arena_used(at) {
            Some(is_used) => is_used,
            None => self.image.offset(at).is_some(),
        };
        let is_whole = at.is_multiple_of(align_of::<usize>());
        // SAFETY: an aligned word of the policy's memory.
        (is_whole && is_own(at)).then(|| unsafe { (at as *const usize).read() })
    }

    fn globals(&self, types: &Types) -> Vec<(String, usize, usize)> {
        let place = |variable: Variable| {
            let at = self.image.pointer(variable.address) as usize;
            (variable.name, at, variable.type_at)
        };
        types.variables().into_iter().map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::tests::compiled;

    #[test]
    #[should_panic(expected = "the host is borrowed twice")]
    fn who_looks_at_the_host_cannot_look_again() {
        let object = NativeObject::from_elf("copies", "", compiled("copies")).unwrap();
        let machine = Machine::builtin("laptop").unwrap();
        let values = crate::kconfig::Values::new(&machine, KernelVersion::V7_2);
        let settings = object.settings(&[]).unwrap();
        let image =
            Image::load(&object, &settings, &values, (&machine, KernelVersion::V7_2)).unwrap();
        let runner = Runner::new(image, &machine, KernelVersion::V7_2, None).unwrap();
        assert!(runner.with(|host| host.nr_cpus) > 0);
        runner.with(|_| runner.with(|host| host.nr_cpus));
    }

    #[test]
    fn places_that_share_an_entry_are_told_apart() {
        let mut places = Places::new();
        let (one, other) = (0x1000, 0x1000 + 8 * Places::KEPT);
        assert_eq!(places.get(one), None);
        places.keep(one, 7);
        assert_eq!((places.get(one), places.get(other)), (Some(7), None));
        places.keep(other, 8);
        assert_eq!((places.get(one), places.get(other)), (None, Some(8)));
        assert_eq!(places.get(other + 1), None, "in the same word");
    }

    #[test]
    fn a_nested_op_goes_on_with_the_steps_of_the_outer_one() {
        let mut cpu = Cpu::new(0, &Memory::new(64).unwrap());
        (cpu.steps, cpu.prefetch) = (5, Some(Instant::from_ns(1)));
        cpu.begin(true);
        assert_eq!((cpu.steps, cpu.prefetch), (5, None));
        cpu.begin(false);
        assert_eq!(cpu.steps, 0);
    }
}
