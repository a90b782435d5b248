//! Acts on the pointer that C code hands back to us: looks at the host and at the environment of the call, asks the
//! virtual kernel, ends the run.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use schedlab_bpf::translate::Entry;
use schedlab_engine::KernelVersion;
use schedlab_engine::policy::{Env, OpKind, Service};
use schedlab_fiber::trap;
use schedlab_trace::{CpuId, CpuSet, Instant, TaskId};

use super::{Context, Host};
use crate::bpf::{self, ObjectLine};
use crate::layout::{CpuMask, Task};
use crate::ops_table;
use crate::version;

/// A load by an instruction of an object.
pub enum Loaded {
    /// The CPU's cache has the line, or the place is outside of the model.
    Hit,
    /// The cache has not.
    Miss(ObjectLine),
    /// The line of the place is not kept.
    Unknown,
}

impl Context {
    /// Of the pointer that code was given.
    ///
    /// # Safety
    /// The host was made by a `Runner`, which lives for as long as the context is used, on this thread.
    pub unsafe fn of(host: *mut Host) -> Context {
        Context(host)
    }

    /// The pointer that code is given.
    pub fn run(self) -> *mut c_void {
        self.0.cast()
    }

    /// Lets the time pass of the instructions and accesses of an object since the last time.
    ///
    /// Sums are not checked: an op's instructions are bounded, and 2^64 ps are 213 days.
    #[inline(always)]
    pub fn charge_instructions(self) {
        // SAFETY: as in `with`; code of objects alone writes this, and it does not run now.
        let run = unsafe { &mut (*self.0).bpf };
        let executed = std::mem::take(&mut run.executed);
        let owed_ps = std::mem::take(&mut run.owed_ps);
        if executed | owed_ps > 0 {
            let ps = executed.wrapping_mul(run.instruction_ps);
            let ps = ps.wrapping_add(owed_ps);
            // SAFETY: as in `Host::current`.
            let cpu = unsafe { &mut *(*self.0).current };
            cpu.instructions = cpu.instructions.wrapping_add(executed);
            let of_op = cpu.instructions;
            self.env(|env| env.cpu.charge_ps(ps));
            if of_op > bpf::OP_INSTRUCTIONS_MAX {
                self.loops_without_end();
            }
        }
    }

    /// Returns the line of a place that an object accessed, as [`bpf::Run::line_of`].
    #[inline(always)]
    pub fn read_line_of(self, place: usize) -> Option<Option<ObjectLine>> {
        // SAFETY: as in `charge_instructions`.
        unsafe { (*self.0).bpf.line_of(place) }
    }

    /// Charges a load by an instruction of an object, if the CPU's cache has its line.
    ///
    /// It calls nothing, and the cost is charged with the instructions: each takes a fraction of a nanosecond.
    #[inline(always)]
    pub fn loads(self, place: usize) -> Loaded {
        // SAFETY: as in `Host::current`.
        let lines = unsafe { &mut (*(*self.0).current).lines };
        let (Some(known), Some(lines)) = (self.read_line_of(place), lines) else {
            return Loaded::Unknown;
        };
        let Some(it) = known else {
            return Loaded::Hit;
        };
        let hit_ps = self.env(|env| {
            let mut cache = env.shared.cache.borrow_mut();
            let own = cache.cache_of(env.cpu.id);
            cache.read_own(own, it.line)
        });
        let Some(hit_ps) = hit_ps else {
            return Loaded::Miss(it);
        };
        if !lines.notes_line_again(it.number) {
            self.owe(hit_ps);
        }
        Loaded::Hit
    }

    /// Charges the cost of an access together with the next instructions.
    #[inline(always)]
    pub fn owe(self, ps: u64) {
        // SAFETY: as in `charge_instructions`.
        let owed_ps = unsafe { &mut (*self.0).bpf.owed_ps };
        *owed_ps = owed_ps.wrapping_add(ps);
    }

    /// Returns the time of the CPU at the end of the accesses so far.
    pub fn now_after_accesses(self) -> Instant {
        // SAFETY: as in `charge_instructions`.
        let owed_ps = std::mem::take(unsafe { &mut (*self.0).bpf.owed_ps });
        self.env(|env| {
            env.cpu.charge_ps(owed_ps);
            env.cpu.now()
        })
    }

    /// Other CPUs may have run meanwhile: an object's next access of each place goes through the cache model again.
    #[inline(always)]
    pub fn forgets_accesses(self) {
        // SAFETY: as in `charge_instructions`.
        unsafe { (*self.0).bpf.seen.forget() };
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
    /// way than its argument: that panics, in each build.
    #[inline]
    pub fn with<R>(self, f: impl FnOnce(&mut Host) -> R) -> R {
        // SAFETY: the host lives, as `of` and `Runner` promise. While policy code runs the runner itself holds no
        // reference, and no other look is under way, as was checked.
        unsafe {
            assert!(
                !(*self.0).looked_at.replace(true),
                "the host is borrowed twice"
            );
            let result = f(&mut *self.0);
            self.looks_no_more();
            result
        }
    }

    /// Reads the host, as [`Context::with`] and for fewer instructions: a function that captures nothing has no way to the
    /// host but its argument, so that nobody need be kept from it meanwhile.
    #[inline(always)]
    pub fn read<T>(self, f: fn(&Host) -> T) -> T {
        f(self.host())
    }

    /// The host, for reads that end before anybody else looks at it.
    #[inline(always)]
    fn host<'a>(self) -> &'a Host {
        // SAFETY: as in `with`; nobody changes the host now, as was checked.
        unsafe {
            assert!(!(*self.0).looked_at.get(), "the host is borrowed twice");
            &*self.0
        }
    }

    /// The borrow of the host has ended.
    #[inline]
    pub(super) fn looks_no_more(self) {
        // SAFETY: as in `with`.
        unsafe { (*self.0).looked_at.set(false) };
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
        let ns = self.read(|host| host.kfunc_ns);
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
    pub(super) unsafe fn choose(self, env: *const Env<'static>) {
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
        match self.host().tasks.find(task, index) {
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
            Some(task) => self.host().tasks.pointer(task),
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
                    set.insert(CpuId(cpu as u32));
                }
                bits &= bits - 1;
            }
        }
        set
    }

    /// Ends the run where a kfunc came after the kernel that is simulated: there the policy would not load.
    #[inline]
    pub fn require(self, kfunc: &str) {
        if self.read(|host| host.version < KernelVersion::V7_2) {
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
        // SAFETY: programs have addresses of functions only from us (`BPF_PSEUDO_FUNC`); calling what is none faults, and
        // that is caught.
        unsafe {
            let function = std::mem::transmute::<usize, Entry>(function as usize);
            self.execute(function, arguments)
        }
    }

    /// Runs code of an object, and lets the time of its instructions pass.
    ///
    /// # Safety
    /// The code is one of the object's, and what the arguments point to lives until it returns.
    pub unsafe fn execute(self, code: Entry, arguments: [u64; 4]) -> u64 {
        let [a, b, c, d] = arguments;
        self.forgets_accesses();
        // SAFETY: as the caller promises.
        let result = unsafe { code(self.run(), a, b, c, d, 0) };
        self.charge_instructions();
        result
    }
}
