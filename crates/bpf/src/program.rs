//! Functions of BPF whose references are resolved: what the translator and the interpreter take.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;

use crate::insn::Insn;

/// A function of the host: `f(run, r1, …, r5) -> r0`. `run` is what the program was entered with.
pub type HostFn = unsafe extern "C" fn(*mut c_void, u64, u64, u64, u64, u64) -> u64;

/// A function of the host about an access of memory: `f(run, address, bytes)`.
pub type AccessFn = unsafe extern "C" fn(*mut c_void, u64, u64);

/// The target of an instruction beyond its own bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ref {
    /// A wide load of the address of data: so many bytes from the beginning of the run's data.
    Data(u64),
    /// A wide load of the address of memory in the arena, by its offset.
    Arena(u64),
    /// A call of a function of the object, or a wide load of its address: its index.
    Function(usize),
    /// A call of the host: the index in [`Unit::host`].
    Host(usize),
    /// Reaching it ends the run: the index in [`Unit::poison`].
    Poison(usize),
}

/// A function.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Its symbol.
    pub name: String,
    /// The host alone calls it, with a pointer to its arguments. Other functions are called by functions, or by the host as
    /// callbacks.
    pub is_program: bool,
    pub insns: Vec<Insn>,
    /// The targets of instructions, by index of their first slot.
    pub refs: BTreeMap<usize, Ref>,
    /// Instructions before which a field is brought up to date, each with the kernel's number ([`Hooks::read`]).
    pub reads: BTreeMap<usize, u32>,
    /// Loads of fields of the kernel's structures. Through a NULL pointer they give 0: the kernel's verifier lets a program follow
    /// such a pointer, and a load that faults gives 0 there (`BPF_PROBE_MEM`).
    pub of_kernel: BTreeSet<usize>,
}

/// The end of the addresses that a NULL pointer leads to.
pub const NULL_END: u64 = 4096;

/// All functions that refer to each other.
#[derive(Clone, Default)]
pub struct Unit {
    pub functions: Vec<Function>,
    pub host: Vec<HostFunction>,
    /// Why instructions end the run when they are reached.
    pub poison: Vec<String>,
    pub hooks: Option<Hooks>,
}

/// A function of the host that programs call.
#[derive(Clone)]
pub struct HostFunction {
    pub name: String,
    pub call: HostFn,
}

/// The host's work beside calls. The first argument is the program's.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// Before a load that may go to memory that other CPUs can see, if [`Layout::seen`] did not have it. The instructions before
    /// it may not have been added to the run's yet.
    pub load: AccessFn,
    /// Likewise before a store.
    pub store: AccessFn,
    /// Before an atomic operation: `r1` is the address, `r2` the bytes, `r3` 1 where it writes.
    pub atomic: HostFn,
    /// A step of `may_goto`: 0 ends the loop.
    pub step: HostFn,
    /// Before a field is read that the host keeps elsewhere: `r1` is the address of its structure, or 0 where it
    /// is not known, and `r2` the number in [`Function::reads`].
    pub read: HostFn,
    /// An instruction that is poisoned was reached: `r1` is the index in [`Unit::poison`]. Where it returns, the function
    /// returns 0.
    pub poison: HostFn,
    /// More than [`BUDGET`] instructions without a call. Where it returns, the function returns 0.
    pub exhausted: HostFn,
}

/// Where the code finds what is a run's own, in bytes from its first argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// A pointer to the run's data.
    pub data: i32,
    /// A pointer to the beginning of the arena, whose lower 32 bits are 0.
    pub arena: i32,
    /// A `u64` to which the code adds the instructions that it has executed: before each call, and where it returns.
    pub executed: i32,
    /// A [`crate::seen::Seen`].
    pub seen: i32,
}

/// Instructions that a function executes from one call to the next, looping, before it ends: the kernel's verifier looks at
/// a million, and `may_goto` ends loops after 8 Mi steps.
pub const BUDGET: u64 = 1 << 28;

/// Bytes of a function's stack, which are 0 when it begins.
pub const STACK_BYTES: u32 = 512;
