//! Values in the registers of BPF.

use std::ffi::c_void;

use crate::host::{Context, Host};

/// A value that fits into a 64-bit register.
pub trait Word {
    /// The value in a register.
    fn of(word: u64) -> Self;
    /// A register with the value: integers are extended by their sign.
    fn word(self) -> u64;
}

macro_rules! integers {
    ($($kind:ty),*) => {
        $(impl Word for $kind {
            #[inline(always)]
            fn of(word: u64) -> Self {
                word as $kind
            }

            #[inline(always)]
            fn word(self) -> u64 {
                self as u64
            }
        })*
    };
}

integers!(u8, u32, i32, u64, i64);

impl Word for bool {
    #[inline(always)]
    fn of(word: u64) -> Self {
        word as u8 != 0
    }

    #[inline(always)]
    fn word(self) -> u64 {
        self.into()
    }
}

impl Word for () {
    fn of(_: u64) {}

    #[inline(always)]
    fn word(self) -> u64 {
        0
    }
}

impl<T> Word for *mut T {
    #[inline(always)]
    fn of(word: u64) -> Self {
        word as *mut T
    }

    #[inline(always)]
    fn word(self) -> u64 {
        self as u64
    }
}

impl<T> Word for *const T {
    #[inline(always)]
    fn of(word: u64) -> Self {
        word as *const T
    }

    #[inline(always)]
    fn word(self) -> u64 {
        self as u64
    }
}

/// The instructions since the last call are charged before what is called looks at the clock.
///
/// # Safety
/// As [`Context::of`]: `run` is what the code of an object was given.
#[inline(always)]
pub unsafe fn enter(run: *mut c_void) -> Context {
    // SAFETY: as promised.
    let context = unsafe { Context::of(run.cast::<Host>()) };
    context.charge_instructions();
    context
}

/// Makes `fn(run, r1, …, r5) -> r0` of a closure over typed arguments.
macro_rules! host_fn {
    (|$context:ident $(, $argument:ident: $kind:ty)*| $body:expr) => {{
        #[allow(unused_variables, unused_mut, reason = "not each takes five arguments")]
        unsafe extern "C" fn call(
            run: *mut std::ffi::c_void,
            r1: u64,
            r2: u64,
            r3: u64,
            r4: u64,
            r5: u64,
        ) -> u64 {
            // SAFETY: translated code alone calls this, and hands on its first argument.
            let $context = unsafe { $crate::bpf::words::enter(run) };
            let mut registers = [r1, r2, r3, r4, r5].into_iter();
            $(let $argument = <$kind as $crate::bpf::words::Word>::of(registers.next().unwrap_or(0));)*
            let result = $crate::bpf::words::Word::word($body);
            $context.forgets_accesses();
            result
        }
        call as schedlab_bpf::program::HostFn
    }};
}
pub(crate) use host_fn;
