//! Fibers: stacks of their own for virtual CPUs, on one thread, what strikes code that runs there, and requests to the
//! host's caches.
//!
//! A fiber runs until it [suspends](Switch::suspend) itself; who resumes it goes on then. So code can
//! wait in the middle of a call, through C frames too, at the price of one switch of stacks.
//! All of this crate's `unsafe` is behind a safe interface: a fiber suspends only itself, and fibers are resumed from
//! outside only.

mod prefetch;
pub mod trap;

pub use prefetch::prefetch;

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

use trap::Running;
pub use trap::{StackFault, Trap};

/// Address space of a fiber's stack; only touched pages use memory.
pub const STACK_BYTES: usize = 256 << 10;

/// Distance below the stack that foreign code may access in its callees. It looks at the last byte of it before it
/// calls (`LAB_KERNEL_STACK_BYTES` in `include/native/scx/host.h`), wherever on the stack it is by then: so much
/// below the stack must not be accessible, either.
pub const KERNEL_STACK_BYTES: usize = 64 << 10;

/// Size of the area above the part of a stack on which a fiber's body runs: the way back to the resumer, which a body
/// that writes beyond its own frames must not reach.
const TOP_BYTES: usize = 32 << 10;

/// The inaccessible part of that, at its lower end.
const BARRIER_BYTES: usize = 4 << 10;

/// The user of mappings, of which a process may have only so many (`vm.max_map_count`): so many of one kind at once.
struct Quota {
    max: usize,
    nr: AtomicUsize,
}

impl Quota {
    const fn new(max: usize) -> Quota {
        let nr = AtomicUsize::new(0);
        Quota { max, nr }
    }

    /// One more, if there may be.
    fn take(&'static self) -> Option<Taken> {
        let more = |nr| (nr < self.max).then_some(nr + 1);
        let nr = self.nr.fetch_update(Relaxed, Relaxed, more);
        nr.ok().map(|_| Taken(self))
    }
}

/// One of a [`Quota`], until it is dropped.
struct Taken(&'static Quota);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.nr.fetch_sub(1, Relaxed);
    }
}

/// The users of mappings in this crate.
struct Quotas {
    /// Two each: what is not accessible, and what is.
    stacks: Quota,
    /// Two more each: they split what is.
    barriers: Quota,
}

impl Quotas {
    /// Three quarters of a process's mappings are for stacks, an eighth is for barriers. The rest is for other needs,
    /// with 64 runs at once about 1,400: an allocation without a free mapping ends the process.
    const fn of(mappings: usize) -> Quotas {
        Quotas {
            stacks: Quota::new(mappings / 8 * 6 / 2),
            barriers: Quota::new(mappings / 8 / 2),
        }
    }
}

/// Those of this process.
static QUOTAS: LazyLock<Quotas> = LazyLock::new(|| {
    let told = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    // `DEFAULT_MAX_MAP_COUNT` (include/linux/mm.h).
    let mappings = told.ok().and_then(|told| told.trim().parse().ok());
    Quotas::of(mappings.unwrap_or(65_530))
});

/// Why a fiber has no stack.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoStack {
    /// All sets of fibers together have as many as the process may have.
    #[error("{max} are there, and the limit on a process's memory mappings allows no more")]
    Mappings {
        /// Stacks.
        max: usize,
    },
    /// The host refuses the address space.
    #[error("the host gives no address space: {0}")]
    Host(std::io::Error),
}

/// Where the running fiber finds its way out. One for each [`Fibers`]; code on the fibers has it.
pub struct Switch {
    /// The fiber that runs; null while none does.
    running: Cell<*const Running>,
}

impl Default for Switch {
    fn default() -> Self {
        Switch {
            running: Cell::new(std::ptr::null()),
        }
    }
}

impl Switch {
    /// Suspends the running fiber, until it is resumed.
    ///
    /// # Panics
    /// If no fiber runs.
    #[inline]
    pub fn suspend(&self) {
        let running = self.running.replace(std::ptr::null());
        assert!(!running.is_null(), "only a fiber can be suspended");
        // SAFETY: `Fibers::resume` has set the pointer and waits for this very fiber, whose yielder lives as long as
        // it runs. The pointer was taken, so no other code can use it meanwhile.
        unsafe { (*(*running).yielder.get()).suspend(()) }
    }
}

/// No fiber runs any more when this is dropped, which a panic of the fiber does, too.
struct Forgotten<'s>(&'s Switch);

impl Drop for Forgotten<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.running.set(std::ptr::null());
        // SAFETY: nothing to live.
        unsafe { trap::watch(std::ptr::null()) };
    }
}

/// Returns a stack with an inaccessible part at its end, and a barrier, if there may be one, where its top begins.
fn new_stack(quotas: &'static Quotas) -> Result<(DefaultStack, BodyStack, Counted), NoStack> {
    let max = quotas.stacks.max;
    let counted = quotas.stacks.take().ok_or(NoStack::Mappings { max })?;
    let bytes = STACK_BYTES + 2 * KERNEL_STACK_BYTES + TOP_BYTES;
    let stack = DefaultStack::new(bytes).map_err(NoStack::Host)?;
    let base = stack.base().get() - TOP_BYTES;
    forbid(stack.limit().get(), KERNEL_STACK_BYTES).map_err(NoStack::Host)?;
    let barrier = quotas.barriers.take();
    let barrier = barrier.filter(|_| forbid(base, BARRIER_BYTES).is_ok());
    let body = BodyStack {
        base: StackPointer::new(base).expect("a stack is somewhere"),
        limit: stack.limit(),
    };
    let counted = Counted {
        _stack: counted,
        _barrier: barrier,
    };
    Ok((stack, body, counted))
}

/// The counts of a stack for as long as it exists.
struct Counted {
    _stack: Taken,
    _barrier: Option<Taken>,
}

/// Makes pages of a new stack inaccessible.
fn forbid(pages: usize, bytes: usize) -> std::io::Result<()> {
    // SAFETY: `new_stack` names pages of a stack that is not in use yet.
    match unsafe { libc::mprotect(pages as *mut libc::c_void, bytes, libc::PROT_NONE) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The part of a fiber's stack on which its body runs.
struct BodyStack {
    base: StackPointer,
    limit: StackPointer,
}

// SAFETY: the stack that this is a part of has inaccessible pages at its end, and lives as long as the body runs: it
// is the fiber's own.
unsafe impl Stack for BodyStack {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

/// Why a fiber does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It suspended itself.
    Suspended,
    /// It came to its end.
    Done,
    /// A fault ended it; nothing on its stack was unwound.
    Trapped(Trap),
}

struct Fiber {
    coroutine: Coroutine<(), (), Option<Trap>, DefaultStack>,
    /// Dropped after its stack.
    _counted: Counted,
    running: Running,
    /// How it ended, if it has.
    ended: Option<State>,
}

/// A set of fibers. Those that wait when the set is dropped are given up without unwinding: what
/// their stacks own leaks.
pub struct Fibers<'k> {
    switch: &'k Switch,
    quotas: &'static Quotas,
    fibers: Vec<Fiber>,
    /// The bodies of the fibers borrow for this long.
    bodies: PhantomData<&'k mut ()>,
}

impl<'k> Fibers<'k> {
    /// No fibers yet.
    pub fn new(switch: &'k Switch) -> Self {
        Fibers::within(switch, &QUOTAS)
    }

    fn within(switch: &'k Switch, quotas: &'static Quotas) -> Self {
        Fibers {
            switch,
            quotas,
            fibers: Vec::new(),
            bodies: PhantomData,
        }
    }

    /// Adds a fiber; it begins when it is first resumed. Returns its number, counted from 0.
    ///
    /// # Errors
    /// If there is no room for its stack in this process, beside all others. Then `body` is dropped.
    pub fn spawn(&mut self, body: impl FnOnce() + 'k) -> Result<usize, NoStack> {
        let index = self.fibers.len();
        let (stack, part, counted) = new_stack(self.quotas)?;
        let switch = self.switch;
        let frames = part.limit.get() + KERNEL_STACK_BYTES..part.base.get();
        // SAFETY: the coroutine, and with it the body, is dropped or given up with `self`, before
        // `'k` ends.
        let coroutine = unsafe {
            Coroutine::with_stack_unchecked(stack, move |yielder: &Yielder<(), ()>, ()| {
                // `resume` has put it there a moment ago.
                (*switch.running.get()).yielder.set(yielder);
                corosensei::on_stack(part, body);
                None
            })
        };
        let running = Running {
            yielder: Cell::new(std::ptr::null()),
            handler: coroutine.trap_handler(),
            body: frames,
            foreign: Cell::new(std::ptr::null()),
        };
        self.fibers.push(Fiber {
            coroutine,
            _counted: counted,
            running,
            ended: None,
        });
        Ok(index)
    }

    /// Runs a fiber until it suspends itself or ends; one that has ended stays so. A fiber that resumes other fibers
    /// does so in [`trap::nested`], or its own faults are not caught from then on.
    ///
    /// # Panics
    /// If called from one of these fibers, or if the fiber panics.
    // Hot: inlined, nothing is left between the executor and the switch of stacks but the checks.
    #[inline(always)]
    pub fn resume(&mut self, index: usize) -> State {
        let fiber = &mut self.fibers[index];
        let before = self.switch.running.get();
        assert!(before.is_null(), "a fiber cannot resume another one");
        self.switch.running.set(&raw const fiber.running);
        // SAFETY: `self` is borrowed until this function ends, after the next call.
        unsafe { trap::watch(&raw const fiber.running) };
        let forgotten = Forgotten(self.switch);
        if fiber.coroutine.done() {
            return fiber.ended.expect("a fiber that ended has said how");
        }
        match fiber.coroutine.resume(()) {
            CoroutineResult::Yield(()) => {
                // `suspend` has forgotten it.
                std::mem::forget(forgotten);
                // SAFETY: nothing to live.
                unsafe { trap::watch(std::ptr::null()) };
                State::Suspended
            }
            CoroutineResult::Return(trap) => fiber.end(trap),
        }
    }
}

impl Fiber {
    /// Notes how the fiber ended.
    #[cold]
    fn end(&mut self, trap: Option<Trap>) -> State {
        let state = trap.map_or(State::Done, State::Trapped);
        self.ended = Some(state);
        state
    }
}

impl Drop for Fibers<'_> {
    fn drop(&mut self) {
        for fiber in &mut self.fibers {
            // SAFETY: a waiting fiber may be in the middle of C code, which cannot be unwound. What
            // its stack owns is leaked; nothing refers to the stack from outside but `Running`.
            unsafe { fiber.coroutine.force_reset() };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// All sets of a process share the mappings that it may have.
    #[test]
    fn a_process_has_so_many_stacks_and_fewer_barriers() {
        static FEW: Quotas = Quotas::of(32);
        let switch = Switch::default();
        let mut sets = [(), ()].map(|()| Fibers::within(&switch, &FEW));
        let has_barrier =
            |set: &Fibers<'_>, index: usize| set.fibers[index]._counted._barrier.is_some();
        for index in 0..6 {
            for set in &mut sets {
                assert_eq!(set.spawn(|| {}).unwrap(), index);
                assert_eq!(has_barrier(set, index), index == 0);
            }
        }
        let refused = sets[1].spawn(|| {}).unwrap_err();
        assert!(matches!(refused, NoStack::Mappings { max: 12 }));
        let [first, mut second] = sets;
        drop(first);
        // A refused body is no fiber, and counts for nothing.
        for index in 6..12 {
            assert_eq!(second.spawn(|| {}).unwrap(), index);
            assert_eq!(has_barrier(&second, index), index == 6);
        }
        assert!(second.spawn(|| {}).is_err());
        assert_eq!(second.resume(11), State::Done);
    }

    #[test]
    fn fibers_take_turns() {
        let switch = Switch::default();
        let log = RefCell::new(Vec::new());
        let mut fibers = Fibers::new(&switch);
        for fiber in 0..3 {
            let (log, switch) = (&log, &switch);
            fibers
                .spawn(move || {
                    for turn in 0..=fiber {
                        log.borrow_mut().push((fiber, turn));
                        switch.suspend();
                    }
                })
                .unwrap();
        }
        let states: Vec<State> = [2, 0, 0, 1, 2, 0].map(|fiber| fibers.resume(fiber)).into();
        drop(fibers);
        use State::{Done, Suspended};
        assert_eq!(
            states,
            [Suspended, Suspended, Done, Suspended, Suspended, Done]
        );
        assert_eq!(log.into_inner(), [(2, 0), (0, 0), (1, 0), (2, 1)]);
    }

    #[test]
    #[should_panic(expected = "only a fiber can be suspended")]
    fn nobody_else_can_be_suspended() {
        Switch::default().suspend();
    }

    #[test]
    #[should_panic(expected = "in the middle")]
    fn a_panic_reaches_who_resumed() {
        let switch = Switch::default();
        let mut fibers = Fibers::new(&switch);
        fibers.spawn(|| panic!("in the middle")).unwrap();
        fibers.resume(0);
    }

    #[test]
    #[should_panic(expected = "only a fiber can be suspended")]
    fn a_fiber_that_panicked_does_not_run() {
        let switch = Switch::default();
        let mut fibers = Fibers::new(&switch);
        fibers.spawn(|| panic!("in the middle")).unwrap();
        let caught = catch_unwind(AssertUnwindSafe(|| fibers.resume(0)));
        drop(fibers);
        if caught.is_err() {
            switch.suspend();
        }
    }

    #[test]
    fn a_fiber_that_tried_to_resume_another_one_still_runs() {
        let switch = Switch::default();
        let mut fibers = Fibers::new(&switch);
        fibers
            .spawn(|| {
                let mut others = Fibers::new(&switch);
                others.spawn(|| ()).unwrap();
                let caught = catch_unwind(AssertUnwindSafe(|| others.resume(0)));
                drop(others);
                if caught.is_err() {
                    switch.suspend();
                }
            })
            .unwrap();
        assert_eq!(fibers.resume(0), State::Suspended);
        assert_eq!(fibers.resume(0), State::Done);
    }
}
