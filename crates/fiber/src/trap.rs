//! Faults in foreign code: wild accesses, divisions by zero, a full stack, endless loops.
//!
//! A signal that strikes foreign code, or what it called, ends its fiber: the handler points the
//! interrupted thread at corosensei's way out of it, so nothing unwinds through C. The data of the frames on the
//! fiber's stack leaks. A signal that strikes anything else goes to its earlier handler.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, Weak};
use std::time::Duration;

use corosensei::Yielder;
use corosensei::trap::CoroutineTrapHandler;

/// How long one stretch of foreign code may use the processor.
const LOOP_SECONDS: u64 = 5;

/// The cause of a fiber's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trap {
    pub signal: c_int,
    /// Where the code was; where it called, if there is no code.
    pub pc: usize,
    /// It called what is no code.
    pub calls_nothing: bool,
    /// The accessed address, if the processor reports it: it does not for an address that no memory can have, nor for
    /// an instruction that is not allowed.
    pub address: Option<usize>,
    /// Where the foreign code goes on, if it had called what was struck: the return address.
    pub caller: Option<usize>,
    /// The misuse of the stack, if that is out of reach.
    pub stack: Option<StackFault>,
}

/// The possible faults of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackFault {
    /// The code ran into its end.
    Full,
    /// The code wrote over everything from an object of its own on.
    Overwritten,
}

/// The way out of a fiber that a fault takes.
type Handler = CoroutineTrapHandler<Option<Trap>>;

/// The state of a fiber while it runs.
pub(crate) struct Running {
    pub yielder: Cell<*const Yielder<(), ()>>,
    pub handler: Handler,
    /// The part of its stack that its body has.
    pub body: Range<usize>,
    /// The foreign code that it runs, or waits in; null for none.
    pub foreign: Cell<*const Foreign>,
}

/// Foreign code that runs on a thread's fibers now and then.
pub struct Foreign {
    /// Its addresses.
    code: (usize, usize),
    watch: Arc<Watch>,
}

impl Foreign {
    /// Code at these addresses, and nothing else. Installs the handlers, gives this thread a stack for them, and
    /// watches it.
    pub fn new(code: (usize, usize)) -> Self {
        Foreign {
            code,
            watch: watch_this_thread(),
        }
    }

    fn has(&self, pc: usize) -> bool {
        (self.code.0..self.code.1).contains(&pc)
    }
}

/// The data that the watchdog reads.
#[derive(Debug, Default)]
struct Watch {
    /// Counts stretches of foreign code.
    beat: AtomicU64,
    /// The last of them has not been left.
    runs: AtomicBool,
    /// The thread, as `gettid()`.
    thread: AtomicI32,
    /// The beat that must end.
    condemned: AtomicU64,
}

thread_local! {
    /// The fiber that runs; null while none does.
    static RUNNING: Cell<*const Running> = const { Cell::new(std::ptr::null()) };
}

/// A fiber begins to run on this thread; with null none runs any more.
///
/// # Safety
/// The target of the pointer must live until the next call.
#[inline(always)]
pub(crate) unsafe fn watch(running: *const Running) {
    RUNNING.set(running);
}

/// Runs `work`, in which other fibers may run: the one on which that is, if any, is the one that runs after it.
/// Resuming a fiber alone does not see to that, as it is done far too often.
pub fn nested<A>(work: impl FnOnce() -> A) -> A {
    /// Runs on the fiber that it was made on, or not at all.
    struct Outer(*const Running);

    impl Drop for Outer {
        fn drop(&mut self) {
            // SAFETY: the fiber runs; a fiber that resumes others announces them.
            unsafe { watch(self.0) };
        }
    }

    let _outer = Outer(RUNNING.get());
    work()
}

/// Returns the signal with which the watchdog ends a loop.
fn watchdog_signal() -> c_int {
    libc::SIGRTMIN() + 7
}

/// Foreign code begins to run on the fiber that runs. Faults outside of fibers are not ours.
///
/// # Safety
/// `foreign` must live for as long as that fiber runs before [`leave`].
#[inline(always)]
pub unsafe fn enter(foreign: &Foreign) {
    set(foreign);
    foreign.watch.begin_stretch();
    foreign.watch.runs.store(true, Ordering::Relaxed);
}

/// It goes on after what it called, which is not part of its loop.
#[inline(always)]
pub fn go_on(foreign: &Foreign) {
    foreign.watch.begin_stretch();
}

/// It does not run any more, after [`enter`]: if another fiber's has left meanwhile, this one's has been
/// entered again.
#[inline(always)]
pub fn leave(foreign: &Foreign) {
    set(std::ptr::null());
    foreign.watch.runs.store(false, Ordering::Relaxed);
}

/// The foreign code of the running fiber.
#[inline(always)]
fn set(foreign: *const Foreign) {
    // SAFETY: it lives, as `watch` was promised.
    if let Some(running) = unsafe { RUNNING.get().as_ref() } {
        running.foreign.set(foreign);
    }
}

impl Watch {
    /// Only the thread itself counts.
    #[inline(always)]
    fn begin_stretch(&self) {
        let beat = self.beat.load(Ordering::Relaxed);
        self.beat.store(beat.wrapping_add(1), Ordering::Relaxed);
    }
}

static HANDLED: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];
static PREVIOUS: OnceLock<Vec<(c_int, libc::sigaction)>> = OnceLock::new();
static WATCHED: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

fn watch_this_thread() -> Arc<Watch> {
    PREVIOUS.get_or_init(|| {
        let mut previous = Vec::new();
        for signal in HANDLED.into_iter().chain([watchdog_signal()]) {
            let mut old = MaybeUninit::<libc::sigaction>::uninit();
            // SAFETY: a zeroed sigaction is a valid one, the handler has the signature of SA_SIGINFO.
            unsafe {
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = on_signal as *const () as usize;
                new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
                if libc::sigaction(signal, &raw const new, old.as_mut_ptr()) == 0 {
                    previous.push((signal, old.assume_init()));
                }
            }
        }
        previous
    });
    give_signal_stack();
    let watch = Arc::new(Watch::default());
    watch.thread.store(this_thread(), Ordering::Relaxed);
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    watched.retain(|watch| watch.strong_count() > 0);
    watched.push(Arc::downgrade(&watch));
    drop(watched);
    start_watchdog();
    watch
}

/// A signal handler cannot run on a full stack. Threads of Rust have a stack for handlers; threads of Python and C do
/// not.
fn give_signal_stack() {
    const BYTES: usize = 64 << 10;
    thread_local! {
        static GIVEN: Cell<bool> = const { Cell::new(false) };
    }
    if GIVEN.replace(true) {
        return;
    }
    // SAFETY: the query fills the structure; the new stack is leaked, so it outlives the thread.
    unsafe {
        let mut stack: libc::stack_t = std::mem::zeroed();
        libc::sigaltstack(std::ptr::null(), &raw mut stack);
        if stack.ss_flags & libc::SS_DISABLE != 0 || stack.ss_size < 16 << 10 {
            let memory = Box::leak(vec![0u8; BYTES].into_boxed_slice());
            stack.ss_sp = memory.as_mut_ptr().cast();
            stack.ss_size = BYTES;
            stack.ss_flags = 0;
            libc::sigaltstack(&raw const stack, std::ptr::null_mut());
        }
    }
}

fn start_watchdog() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let watchdog = std::thread::Builder::new().name("watchdog".to_owned());
        // Without it an endless loop is endless; nothing else depends on it.
        let _ = watchdog.spawn(watchdog_loop);
    });
}

// The watchdog knows threads by their kernel's number: it may name one that has ended meanwhile, where a
// `pthread_t` would be a pointer to memory that is gone.

fn this_thread() -> libc::pid_t {
    // SAFETY: always succeeds.
    unsafe { libc::gettid() }
}

/// Processor time of a thread of this process, in ms; `None` if there is no such thread.
fn thread_time_ms(thread: libc::pid_t) -> Option<u64> {
    // CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED (include/linux/posix-timers_types.h)
    let clock = (!thread << 3) | 4 | 2;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel refuses the clocks of threads that are not there, or not ours.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000)
}

/// Sends the watchdog's signal to a thread of this process. If the thread has ended, nothing is struck, and a later
/// thread of its number finds that it was not meant.
fn strike(thread: libc::pid_t) {
    // SAFETY: the signal has a handler since the first thread is watched, and that checks the beat again.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, watchdog_signal()) };
}

fn watchdog_loop() {
    /// A thread's beat, and its processor time when that beat was first seen.
    type Seen = (Weak<Watch>, u64, Option<u64>);
    let mut seen: Vec<Seen> = Vec::new();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let watched: Vec<Weak<Watch>> = {
            let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
            watched.retain(|watch| watch.strong_count() > 0);
            watched.clone()
        };
        let mut now = Vec::new();
        for weak in watched {
            let Some(watch) = weak.upgrade() else {
                continue;
            };
            let beat = watch.beat.load(Ordering::Relaxed);
            if !watch.runs.load(Ordering::Relaxed) {
                continue;
            }
            let thread = watch.thread.load(Ordering::Relaxed);
            let before = seen
                .iter()
                .find(|(other, at, _)| other.ptr_eq(&weak) && *at == beat);
            let began = match before {
                Some(&(_, _, began)) => began,
                None => thread_time_ms(thread),
            };
            if let Some(began) = began
                && before.is_some()
                && thread_time_ms(thread).is_some_and(|now| now >= began + LOOP_SECONDS * 1_000)
                && watch.beat.load(Ordering::Relaxed) == beat
            {
                watch.condemned.store(beat, Ordering::Relaxed);
                strike(thread);
            }
            now.push((weak, beat, began));
        }
        seen = now;
    }
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid context to a SA_SIGINFO handler. A fiber that runs is there, as
    // `watch` was promised, and so is the code that it runs, as `enter` was promised.
    unsafe {
        let registers = Registers::of(context);
        if let Some(running) = RUNNING.get().as_ref()
            && let Some(foreign) = running.foreign.get().as_ref()
            && let handler = running.handler
            && let on_stack = handler.stack_ptr_in_bounds(registers.sp)
            && (on_stack || is_fault(signal, info))
            && is_ours(foreign, signal, registers.pc)
        {
            leave(foreign);
            let is_told = (*info).si_code != SI_KERNEL;
            let address = is_told.then(|| (*info).si_addr() as usize);
            let is_called = on_stack && !foreign.has(registers.pc);
            let calls_nothing =
                on_stack && signal == libc::SIGSEGV && address == Some(registers.pc);
            let trap = Trap {
                signal,
                caller: is_called
                    .then(|| Registers::return_to(context, foreign, &running.body))
                    .flatten(),
                // Other processors report the instruction, too.
                pc: if calls_nothing {
                    Registers::caller(context)
                } else {
                    registers.pc - past(signal)
                },
                calls_nothing,
                address,
                // Of it only what is above the body and its end are out of reach.
                stack: address
                    .filter(|&address| {
                        signal == libc::SIGSEGV && handler.stack_ptr_in_bounds(address)
                    })
                    .map(|address| match address < running.body.end {
                        true => StackFault::Full,
                        false => StackFault::Overwritten,
                    }),
            };
            let to = handler.setup_trap_handler(move || Some(trap));
            Registers::set(context, &to);
            return;
        }
        if signal != watchdog_signal() {
            hand_on(signal, info, context);
        }
    }
}

/// The kernel itself sends the signal, and knows of no address (include/uapi/asm-generic/siginfo.h).
const SI_KERNEL: c_int = 0x80;

/// Returns whether the code itself has raised a signal. Foreign code may have lost its stack before it does, where it
/// has written over what its caller keeps there.
unsafe fn is_fault(signal: c_int, info: *const libc::siginfo_t) -> bool {
    // SAFETY: as the kernel has filled it in. What others send is no more than zero.
    signal != watchdog_signal() && unsafe { (*info).si_code } > 0
}

/// How far behind the beginning of the instruction that was struck the code is: one byte behind `int3`, which is gone
/// through.
fn past(signal: c_int) -> usize {
    usize::from(signal == libc::SIGTRAP && cfg!(target_arch = "x86_64"))
}

fn is_ours(foreign: &Foreign, signal: c_int, pc: usize) -> bool {
    if signal != watchdog_signal() {
        return true;
    }
    // Only in the foreign code itself; in what it calls the watchdog tries again.
    let beat = foreign.watch.beat.load(Ordering::Relaxed);
    foreign.watch.condemned.load(Ordering::Relaxed) == beat && foreign.has(pc)
}

/// Lets the handler from before ours do its work.
unsafe fn hand_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get().into_iter().flatten();
    let previous = previous.copied().find(|&(other, _)| other == signal);
    // SAFETY: the old action is used as the kernel would use it.
    unsafe {
        match previous {
            Some((_, old)) if old.sa_sigaction > libc::SIG_IGN => {
                if old.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                        std::mem::transmute(old.sa_sigaction);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(c_int) = std::mem::transmute(old.sa_sigaction);
                    handler(signal);
                }
            }
            _ => {
                // The default action strikes when the faulting instruction runs again.
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

struct Registers {
    pc: usize,
    sp: usize,
}

impl Registers {
    /// Where foreign code goes on after what it has called: the first such address on the stack.
    ///
    /// # Safety
    /// The context must be the kernel's, and `body` the stack that it is on.
    unsafe fn return_to(
        context: *mut libc::c_void,
        foreign: &Foreign,
        body: &Range<usize>,
    ) -> Option<usize> {
        // SAFETY: as promised; all of the body's part of a stack can be read.
        unsafe {
            let link = Registers::link(context).filter(|&link| foreign.has(link));
            let start = Registers::of(context).sp.max(body.start) & !7;
            let mut words = (start..body.end).step_by(8);
            let read = |at: usize| (at as *const usize).read();
            link.or_else(|| words.find_map(|at| Some(read(at)).filter(|&to| foreign.has(to))))
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Registers {
    unsafe fn of(context: *mut libc::c_void) -> Registers {
        // SAFETY: the caller's context comes from the kernel.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        Registers {
            pc: registers[libc::REG_RIP as usize] as usize,
            sp: registers[libc::REG_RSP as usize] as usize,
        }
    }

    /// Where a function returns to that has not stored it; here all have.
    unsafe fn link(_: *mut libc::c_void) -> Option<usize> {
        None
    }

    /// Returns the call of a function that has not begun.
    ///
    /// # Safety
    /// The context must be the kernel's, and its stack there.
    unsafe fn caller(context: *mut libc::c_void) -> usize {
        // SAFETY: as promised; the call has put there where to go on.
        unsafe {
            (Registers::of(context).sp as *const usize)
                .read_unaligned()
                .wrapping_sub(1)
        }
    }

    unsafe fn set(context: *mut libc::c_void, to: &corosensei::trap::TrapHandlerRegs) {
        // SAFETY: the caller's context comes from the kernel.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        registers[libc::REG_RIP as usize] = to.rip as i64;
        registers[libc::REG_RSP as usize] = to.rsp as i64;
        registers[libc::REG_RBP as usize] = to.rbp as i64;
        registers[libc::REG_RDI as usize] = to.rdi as i64;
        registers[libc::REG_RSI as usize] = to.rsi as i64;
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    unsafe fn of(context: *mut libc::c_void) -> Registers {
        // SAFETY: the caller's context comes from the kernel.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        Registers {
            pc: registers.pc as usize,
            sp: registers.sp as usize,
        }
    }

    /// Where a function returns to that has not stored it.
    unsafe fn link(context: *mut libc::c_void) -> Option<usize> {
        // SAFETY: the caller's context comes from the kernel.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        Some(registers.regs[30] as usize)
    }

    /// Returns the call of a function that has not begun.
    ///
    /// # Safety
    /// The context must be the kernel's.
    unsafe fn caller(context: *mut libc::c_void) -> usize {
        // SAFETY: as promised.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        (registers.regs[30] as usize).wrapping_sub(1)
    }

    unsafe fn set(context: *mut libc::c_void, to: &corosensei::trap::TrapHandlerRegs) {
        // SAFETY: the caller's context comes from the kernel.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
        registers.pc = to.pc;
        registers.sp = to.sp;
        registers.regs[0] = to.x0;
        registers.regs[1] = to.x1;
        registers.regs[29] = to.x29;
        registers.regs[30] = to.lr;
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::{Fibers, State, Switch};

    #[test]
    fn a_thread_that_has_ended_has_no_time_and_is_not_struck() {
        let _watch = watch_this_thread();
        assert!(thread_time_ms(this_thread()).is_some());
        let ended = thread::spawn(this_thread).join().unwrap();
        // Joined, it may still be on its way out of the kernel.
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while thread_time_ms(ended).is_some() {
            assert!(std::time::Instant::now() < deadline, "{ended} goes on");
            thread::yield_now();
        }
        strike(ended);
    }

    #[test]
    fn a_fault_ends_the_fiber_that_runs_whoever_came_and_went_meanwhile() {
        let foreign = Foreign::new((0, usize::MAX));
        let is_watched = || foreign.watch.runs.load(Ordering::Relaxed);
        let switch = Switch::default();
        let begin = || {
            // SAFETY: the code outlives the fibers.
            unsafe { enter(&foreign) };
        };
        let mut fibers = Fibers::new(&switch);
        fibers
            .spawn(|| {
                begin();
                switch.suspend();
                begin();
                go_on(&foreign);
                // SAFETY: has no condition.
                unsafe { libc::raise(libc::SIGILL) };
            })
            .unwrap();
        fibers
            .spawn(|| {
                begin();
                leave(&foreign);
                switch.suspend();
            })
            .unwrap();
        assert_eq!(fibers.resume(0), State::Suspended);
        assert!(is_watched());
        assert_eq!(fibers.resume(1), State::Suspended);
        assert!(!is_watched());
        let State::Trapped(trap) = fibers.resume(0) else {
            panic!("the fault has ended it");
        };
        assert_eq!(trap.signal, libc::SIGILL);
        assert!(!is_watched());
        assert_eq!(fibers.resume(1), State::Done);
    }

    /// A simulation inside what listens to another one.
    #[test]
    fn a_fault_ends_a_fiber_that_has_run_others() {
        let foreign = Foreign::new((0, usize::MAX));
        let (switch, inner_switch) = (Switch::default(), Switch::default());
        let run_others = || {
            let mut inner = Fibers::new(&inner_switch);
            inner.spawn(|| inner_switch.suspend()).unwrap();
            inner.spawn(|| panic!("of its own")).unwrap();
            assert_eq!(inner.resume(0), State::Suspended);
            assert_eq!(inner.resume(0), State::Done);
            assert_eq!(inner.resume(0), State::Done);
            let panicking = std::panic::AssertUnwindSafe(|| inner.resume(1));
            assert!(std::panic::catch_unwind(panicking).is_err());
        };
        let mut fibers = Fibers::new(&switch);
        fibers
            .spawn(|| {
                // SAFETY: the code outlives the fibers.
                unsafe { enter(&foreign) };
                nested(run_others);
                go_on(&foreign);
                // SAFETY: has no condition.
                unsafe { libc::raise(libc::SIGILL) };
            })
            .unwrap();
        let State::Trapped(trap) = fibers.resume(0) else {
            panic!("the fault has ended it");
        };
        assert_eq!(trap.signal, libc::SIGILL);
    }

    #[test]
    fn a_thread_that_is_not_meant_goes_on() {
        let _watch = watch_this_thread();
        strike(this_thread());
        let stranger = thread::spawn(|| strike(this_thread()));
        stranger.join().unwrap();
    }
}
