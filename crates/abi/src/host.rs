//! One loaded policy with everything it may reach, and its CPUs' coroutines.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::Arc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use schedlab_engine::KernelVersion;
use schedlab_engine::policy::{Env, OpCall, OpsInfo, PolicyLock, Reply, Request, Step};
use schedlab_machine::{Machine, TaskAddresses};
use schedlab_trace::{CpuSet, TaskId};

use crate::image::Image;
use crate::kfuncs::time::Timers;
use crate::layout::{CpuMask, Ops, RunQueue, Task};
use crate::maps::Maps;
use crate::masks::MaskPool;
use crate::object::Object;
use crate::ops;
use crate::table::Table;
use crate::tasks::Tasks;
use crate::trap::{self, Active, Trap, Watch};

/// Stack of a CPU's coroutine.
const STACK_BYTES: usize = 64 << 10;

/// Lines that `bpf_printk()` may leave behind.
const LOG_LINES_MAX: usize = 1_000;

/// What passes between the runner and a coroutine, both ways by pointer: these values are large, and
/// copying them costs more than the switch. It lies on the runner's stack during one resumption.
pub struct Exchange {
    /// What a coroutine is resumed with; one of the two is null.
    call: *const OpCall,
    reply: *const Reply,
    /// Where it puts what it does next.
    step: *mut MaybeUninit<Step>,
}

/// One virtual CPU.
pub struct Cpu {
    coroutine: Coroutine<(), (), Trap, DefaultStack>,
    yielder: *const Yielder<(), ()>,
    active: Active,
    /// Locks it holds.
    pub held: u32,
    /// `can_loop` steps of the op that runs.
    pub steps: u32,
    /// Names of the ops that run, nested ones last.
    pub op: [&'static str; 4],
    pub depth: usize,
    /// `bpf_cpumask_any_distribute()` begins behind this CPU.
    pub distributed: u32,
    pub run_queue: RunQueue,
    /// It was stopped by a fault.
    faulted: bool,
}

/// A lock of the policy.
pub struct Lock {
    pub owner: Option<usize>,
    pub address: u64,
}

/// A policy's side of the contract. C code has a pointer to it and takes it for `struct lab_host`.
#[repr(C)]
pub struct Host {
    /// Must be the first member.
    table: Table,
    /// The environment of the call that is under way.
    env: *mut Env<'static>,
    /// What passes in this resumption.
    exchange: *mut Exchange,
    pub cpu: usize,
    pub cpus: Vec<Option<Box<Cpu>>>,
    pub ops: Ops,
    pub info: OpsInfo,
    pub tasks: Tasks,
    pub maps: Maps,
    pub masks: MaskPool,
    pub timers: Timers,
    pub locks: Vec<Lock>,
    pub log: VecDeque<String>,
    pub addresses: TaskAddresses,
    pub examine_bytes: u32,
    pub op_ps: u64,
    pub kfunc_ps: u64,
    pub nr_cpus: usize,
    pub nr_nodes: u32,
    pub version: KernelVersion,
    /// `ops.init()` has returned 0.
    pub initialized: bool,
    watch: Arc<Watch>,
    pub image: Image,
}

/// The pointer that C code hands back to us with every call.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Context(*mut Host);

impl Context {
    /// Looks at the host. `f` must neither suspend nor keep a reference: between two uses of this
    /// function the virtual kernel may have changed everything.
    #[inline]
    pub fn with<R>(self, f: impl FnOnce(&mut Host) -> R) -> R {
        // SAFETY: the pointer is the one that `Runner` gave to the policy. While policy code runs
        // the runner itself holds no reference, and `f` ends before anybody else looks.
        f(unsafe { &mut *self.0 })
    }

    /// Looks at the environment of the call that is under way, as `with`.
    #[inline]
    pub fn env<R>(self, f: impl FnOnce(&mut Env<'_>) -> R) -> R {
        // SAFETY: `Runner::resume` sets the pointer for as long as policy code runs.
        f(unsafe { &mut *(*self.0).env })
    }

    /// Lets the time of a kfunc pass.
    #[inline]
    pub fn charge_kfunc(self) {
        let ps = self.with(|host| host.kfunc_ps);
        self.env(|env| env.charge_ps(ps));
    }

    /// Says what comes next and waits to be resumed.
    #[inline(always)]
    fn suspend(self, step: Step) {
        // SAFETY: the exchange lies on the stack of the runner, which waits for us; the yielder
        // lives as long as the coroutine, on whose stack we are.
        unsafe {
            (*(*(*self.0).exchange).step).write(step);
            let yielder = (*self.0).current().yielder;
            (*yielder).suspend(());
        }
    }

    /// What the coroutine was resumed with; to be looked at before it is suspended again.
    #[inline(always)]
    fn resumed<'a>(self) -> (Option<&'a OpCall>, Option<&'a Reply>) {
        // SAFETY: as in `suspend`; both live until then.
        unsafe {
            let exchange = (*self.0).exchange;
            ((*exchange).call.as_ref(), (*exchange).reply.as_ref())
        }
    }

    /// Asks the virtual kernel, waits, and reads its answer by `read`, which must not suspend. Ops
    /// that the virtual kernel calls meanwhile run here.
    #[inline(always)]
    pub fn ask<R>(self, request: Request, read: impl FnOnce(&Reply) -> R) -> R {
        self.suspend(Step::Ask(request));
        match self.resumed() {
            (_, Some(reply)) if !matches!(reply, Reply::Nested(_)) => read(reply),
            _ => {
                self.serve();
                match self.resumed() {
                    (_, Some(reply)) => read(reply),
                    _ => self.fault("an answer was lost".to_owned()),
                }
            }
        }
    }

    /// Runs ops until an answer comes.
    #[cold]
    fn serve(self) {
        loop {
            match self.resumed() {
                (_, Some(Reply::Nested(op))) => {
                    let step = ops::run(self, op);
                    self.suspend(step);
                }
                (_, Some(_)) => return,
                (Some(op), _) => {
                    let message = format!("op {op:?} was called while another one waits");
                    self.fault(message)
                }
                (None, None) => self.fault("it was resumed with nothing".to_owned()),
            }
        }
    }

    /// Ends the run. The coroutine is never resumed in earnest again.
    #[cold]
    pub fn fault(self, message: String) -> ! {
        let mut message = message;
        loop {
            let text = self.with(|host| host.name_fault(&message));
            self.suspend(Step::Fault(text));
            message = "the run had ended by a fault before".to_owned();
        }
    }

    /// The task that a pointer means.
    #[inline]
    pub fn task(self, task: *const Task, function: &str) -> TaskId {
        if task.is_null() {
            self.fault(format!("{function}() was called with a NULL task"));
        }
        // SAFETY: a policy has task pointers only from us; a wild one faults, and that is caught.
        let index = unsafe { (*task).lab_index };
        if index == Task::NOBODY {
            self.fault(format!("{function}() was called with an idle task"));
        }
        TaskId(index)
    }

    /// The pointer that means a task.
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
}

impl Host {
    /// The CPU whose policy code runs.
    #[inline]
    pub fn current(&mut self) -> &mut Cpu {
        let cpu = self.cpus[self.cpu].as_mut();
        cpu.expect("policy code runs on a CPU that has a coroutine")
    }

    /// Where a place lies for the cache model; `None` for a place that is not modelled (the stack).
    #[inline]
    pub fn modelled(&self, place: usize) -> Option<u64> {
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
        });
        let number = self.locks.len() as u32;
        // SAFETY: as above.
        unsafe { word.write(number) };
        Some(PolicyLock(number - 1))
    }

    /// Adds the policy's name and the op that runs to a message.
    pub fn name_fault(&self, message: &str) -> String {
        let policy = self.image.object().name();
        match self.cpus[self.cpu].as_ref().filter(|cpu| cpu.depth > 0) {
            Some(cpu) => {
                let op = cpu.op[(cpu.depth - 1).min(cpu.op.len() - 1)];
                format!("{policy}: in ops.{op}: {message}")
            }
            None => format!("{policy}: {message}"),
        }
    }

    /// Keeps a line for the report; the oldest go first.
    pub fn print(&mut self, line: String) {
        if self.log.len() >= LOG_LINES_MAX {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }

    fn describe(&self, trap: Trap) -> String {
        let object = self.image.object();
        let place = match self.image.offset(trap.pc) {
            Some(offset) => object.line_of(offset),
            None => Some("a function of the virtual kernel that was handed a wild pointer".into()),
        };
        let place = place.unwrap_or_else(|| "an unknown place".to_owned());
        let what = match trap.signal {
            libc::SIGFPE => "it divides by zero".to_owned(),
            libc::SIGILL => "it ends by a trap instruction".to_owned(),
            libc::SIGSEGV if trap.stack => {
                format!("it uses more than the {} KB of stack", STACK_BYTES >> 10)
            }
            libc::SIGSEGV | libc::SIGBUS => match trap.address {
                address if address < 4096 => "it follows a NULL pointer".to_owned(),
                _ => "it accesses memory that is not its own".to_owned(),
            },
            _ => "it loops without end".to_owned(),
        };
        self.name_fault(&format!("{what} at {place}"))
    }
}

/// Owner of a [`Host`]: resumes its coroutines.
pub struct Runner {
    host: *mut Host,
}

impl Runner {
    /// Puts a host together.
    pub fn new(image: Image, machine: &Machine, version: KernelVersion) -> std::io::Result<Runner> {
        let object: Arc<Object> = Arc::clone(image.object());
        let nr_cpus = machine.topology.nr_cpus();
        // SAFETY: the object's debug information says that an ops table lies there.
        let ops = unsafe { image.pointer(object.ops).cast::<Ops>().read() };
        let host = Host {
            table: Table::new(),
            env: std::ptr::null_mut(),
            exchange: std::ptr::null_mut(),
            cpu: 0,
            cpus: (0..nr_cpus).map(|_| None).collect(),
            info: ops::info(&ops),
            ops,
            tasks: Tasks::new(nr_cpus),
            maps: Maps::new(object.maps(), nr_cpus)?,
            masks: MaskPool::new(nr_cpus),
            timers: Timers::default(),
            locks: Vec::new(),
            log: VecDeque::new(),
            addresses: TaskAddresses::new(machine),
            examine_bytes: machine.task_layout.examine_bytes,
            op_ps: machine.sched_ext.op_ns * 1_000,
            kfunc_ps: machine.sched_ext.kfunc_ns * 1_000,
            nr_cpus,
            nr_nodes: machine.topology.nr_nodes(),
            version,
            initialized: false,
            watch: trap::watch_this_thread(),
            image,
        };
        // Each map's variable holds the map's number.
        for (index, map) in object.maps().iter().enumerate() {
            let variable = host.image.pointer(map.address).cast::<u64>();
            // SAFETY: a map is a structure of pointers that nobody follows natively; the first is ours.
            unsafe { variable.write(index as u64) };
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

    /// The host, while no policy code runs.
    #[inline]
    pub fn host(&self) -> &Host {
        // SAFETY: policy code runs only inside of `resume`, which borrows us mutably.
        unsafe { &*self.host }
    }

    /// The host, while no policy code runs.
    #[inline]
    pub fn host_mut(&mut self) -> &mut Host {
        // SAFETY: as in `host`.
        unsafe { &mut *self.host }
    }

    fn cpu(&mut self, index: usize) -> *mut Cpu {
        let context = Context(self.host);
        let host = self.host_mut();
        let cpu = host.cpus[index].get_or_insert_with(|| {
            let stack = DefaultStack::new(STACK_BYTES).expect("address space for a stack");
            let coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
                context.with(|host| host.current().yielder = yielder);
                loop {
                    let step = match context.resumed() {
                        (Some(op), _) => ops::run(context, op),
                        (None, reply) => {
                            Step::Fault(format!("{reply:?} came while nothing was asked"))
                        }
                    };
                    context.suspend(step);
                }
            });
            let base = host.image.pointer(0) as usize;
            let active = Active {
                handler: coroutine.trap_handler(),
                code: (base, base + host.image.object().span as usize),
                watch: Arc::clone(&host.watch),
            };
            Box::new(Cpu {
                coroutine,
                yielder: std::ptr::null(),
                active,
                held: 0,
                steps: 0,
                op: [""; 4],
                depth: 0,
                distributed: 0,
                run_queue: RunQueue {
                    cpu: index as i32,
                    curr: std::ptr::null_mut(),
                },
                faulted: false,
            })
        });
        std::ptr::from_mut(&mut **cpu)
    }

    /// Starts an op on `env.cpu`.
    #[inline]
    pub fn call(&mut self, env: &mut Env<'_>, op: &OpCall) -> Step {
        self.resume(env, op, std::ptr::null())
    }

    /// Answers what the op on `env.cpu` asked.
    #[inline]
    pub fn reply(&mut self, env: &mut Env<'_>, reply: &Reply) -> Step {
        self.resume(env, std::ptr::null(), reply)
    }

    /// Runs policy code on `env.cpu` until it ends, asks or faults.
    #[inline(always)]
    fn resume(&mut self, env: &mut Env<'_>, call: *const OpCall, reply: *const Reply) -> Step {
        let index = env.cpu.index();
        let host = self.host;
        // SAFETY: the host lives; CPUs are boxed and never removed before `drop`.
        let cpu = match unsafe { &mut (&mut (*host).cpus)[index] } {
            Some(cpu) => std::ptr::from_mut(&mut **cpu),
            None => self.cpu(index),
        };
        let mut step = MaybeUninit::uninit();
        let mut exchange = Exchange {
            call,
            reply,
            step: &raw mut step,
        };
        // SAFETY: from here on the coroutine reaches the host by the same raw pointer; we hold no
        // reference to it. The environment and the exchange outlive the resumption, and are
        // forgotten after it. The coroutine itself is touched by nobody else. A coroutine that
        // yields has written its step.
        unsafe {
            if (*cpu).faulted {
                return Step::Fault((*host).name_fault("the run had ended by a fault before"));
            }
            (*host).env = std::ptr::from_mut(env).cast();
            (*host).exchange = &raw mut exchange;
            (*host).cpu = index;
            let active = &raw const (*cpu).active;
            let coroutine = &raw mut (*cpu).coroutine;
            trap::enter(&*active);
            let result = (*coroutine).resume(());
            trap::leave(&*active);
            (*host).env = std::ptr::null_mut();
            (*host).exchange = std::ptr::null_mut();
            match result {
                CoroutineResult::Yield(()) => step.assume_init(),
                CoroutineResult::Return(trap) => {
                    (*cpu).faulted = true;
                    Step::Fault((*host).describe(trap))
                }
            }
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // SAFETY: `new` made the box. A coroutine that waits in the middle of C code is given up
        // without unwinding: kfuncs hold nothing that needs dropping while they wait (what a fault
        // leaves behind leaks). The image goes last, being the last member.
        unsafe {
            let mut host = Box::from_raw(self.host);
            for cpu in host.cpus.iter_mut().flatten() {
                cpu.coroutine.force_reset();
            }
        }
    }
}
