//! The table of functions through which a policy reaches the virtual kernel: `struct lab_host` in
//! `include/native/scx/host.h`. A test compares the members.

use std::ffi::{c_char, c_int, c_long, c_void};

use crate::host::Context;
use crate::layout::{CpuMask, DsqIter, RunQueue, Task, Timer};
use crate::{audit, kfuncs, primitives, watch};

macro_rules! table {
    ($($name:ident: fn($($arg:ty),*) $(-> $result:ty)? = $function:path;)*) => {
        /// One function per slot, in the order of the C structure.
        #[repr(C)]
        pub struct Table {
            $($name: extern "C" fn(Context $(, $arg)*) $(-> $result)?,)*
        }

        impl Table {
            /// The table of a policy that is not watched.
            pub const fn new() -> Table {
                Table { $($name: $function,)* }
            }

            /// The slots in order.
            #[cfg(test)]
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];
        }
    };
}

table! {
    sync: fn() = primitives::sync;
    lock: fn(*mut u32, u32, *const c_void) = primitives::lock;
    unlock: fn(*mut u32) = primitives::unlock;
    trylock: fn(*mut u32, u32, *const c_void) -> bool = primitives::trylock;
    res_lock: fn(*mut u32, u32, *const c_void) -> c_int = primitives::res_lock;
    touch: fn(*const c_void, u32, bool) = primitives::touch;
    examine: fn(*const c_void, u32) = primitives::examine;
    look: fn(*const c_void, u32, bool) = primitives::look;
    recalculate: fn(*const c_void, u32) = primitives::recalculate;
    count: fn(u32, u64) = primitives::count;
    charge_ps: fn(u64) = primitives::charge_ps;
    r#loop: fn() -> bool = primitives::step;
    atomic: fn(*const c_void) = primitives::atomic;
    kfunc: fn() = primitives::kfunc;
    missing: fn(*const c_char) = primitives::missing;
    ksym_exists: fn(*const c_char) -> bool = primitives::ksym_exists;

    create_dsq: fn(u64, i32) -> i32 = kfuncs::dsq::create;
    destroy_dsq: fn(u64) = kfuncs::dsq::destroy;
    dsq_insert: fn(*mut Task, u64, u64, u64, *const c_void) -> bool = kfuncs::dsq::insert;
    dsq_insert_vtime: fn(*mut Task, u64, u64, u64, u64, *const c_void) -> bool = kfuncs::dsq::insert_vtime;
    dsq_move_to_local: fn(u64, u64) -> bool = kfuncs::dsq::move_to_local;
    dsq_nr_queued: fn(u64) -> i32 = kfuncs::dsq::nr_queued;
    dsq_peek: fn(u64) -> *mut Task = kfuncs::dsq::peek;
    iter_new: fn(*mut DsqIter, u64, u64) -> c_int = kfuncs::dsq::iter_new;
    iter_next: fn(*mut DsqIter) -> *mut Task = kfuncs::dsq::iter_next;
    iter_destroy: fn(*mut DsqIter) = kfuncs::dsq::iter_destroy;
    move_set_slice: fn(*mut DsqIter, u64) = kfuncs::dsq::move_set_slice;
    move_set_vtime: fn(*mut DsqIter, u64) = kfuncs::dsq::move_set_vtime;
    dsq_move: fn(*mut DsqIter, *mut Task, u64, u64, bool) -> bool = kfuncs::dsq::move_task;
    dispatch_nr_slots: fn() -> u32 = kfuncs::dsq::dispatch_nr_slots;
    dispatch_cancel: fn() = kfuncs::dsq::dispatch_cancel;
    reenqueue: fn(u64, u64) -> u32 = kfuncs::dsq::reenqueue;

    kick_cpu: fn(i32, u64) = kfuncs::cpu::kick;
    select_cpu_dfl: fn(*mut Task, i32, u64, *mut bool) -> i32 = kfuncs::cpu::select_dfl;
    select_cpu_and: fn(*mut Task, i32, u64, *const CpuMask, u64) -> i32 = kfuncs::cpu::select_and;
    test_and_clear_cpu_idle: fn(i32) -> bool = kfuncs::cpu::test_and_clear_idle;
    pick_cpu: fn(*const CpuMask, bool, i32, u64, bool) -> i32 = kfuncs::cpu::pick;
    idle_mask: fn(bool, i32, bool) -> *const CpuMask = kfuncs::cpu::idle_mask;
    online_mask: fn() -> *const CpuMask = kfuncs::cpu::online_mask;
    possible_mask: fn() -> *const CpuMask = kfuncs::cpu::possible_mask;
    put_mask: fn(*const CpuMask) = kfuncs::cpu::put_mask;
    nr_cpu_ids: fn() -> u32 = kfuncs::cpu::nr_cpu_ids;
    nr_node_ids: fn() -> u32 = kfuncs::cpu::nr_node_ids;
    cpu_node: fn(i32) -> i32 = kfuncs::cpu::node;
    cpu_place: fn(i32, u32) -> u32 = kfuncs::cpu::place;
    cpuperf_cap: fn(i32) -> u32 = kfuncs::cpu::cpuperf_cap;
    cpuperf_cur: fn(i32) -> u32 = kfuncs::cpu::cpuperf_cur;
    cpuperf_set: fn(i32, u32) = kfuncs::cpu::cpuperf_set;
    smp_processor_id: fn() -> u32 = kfuncs::cpu::smp_processor_id;
    cpumask_create: fn() -> *mut CpuMask = kfuncs::cpu::mask_create;
    cpumask_acquire: fn(*mut CpuMask) = kfuncs::cpu::mask_acquire;
    cpumask_release: fn(*mut CpuMask) = kfuncs::cpu::mask_release;
    cpumask_any_distribute: fn(*const CpuMask, *const CpuMask) -> u32 = kfuncs::cpu::any_distribute;

    task_running: fn(*const Task) -> bool = kfuncs::task::running;
    cpu_curr: fn(i32) -> *mut Task = kfuncs::task::cpu_curr;
    cpu_rq: fn(i32) -> *mut RunQueue = kfuncs::task::cpu_rq;
    current_task: fn() -> *mut Task = kfuncs::task::current;
    task_from_pid: fn(i32) -> *mut Task = kfuncs::task::from_pid;
    tid_to_task: fn(u64) -> *mut Task = kfuncs::task::from_tid;
    task_set_slice: fn(*mut Task, u64) -> bool = kfuncs::task::set_slice;
    task_set_dsq_vtime: fn(*mut Task, u64) -> bool = kfuncs::task::set_dsq_vtime;

    map_lookup: fn(*const u64, *const u8) -> *mut u8 = kfuncs::map::lookup;
    map_lookup_percpu: fn(*const u64, *const u8, u32) -> *mut u8 = kfuncs::map::lookup_percpu;
    map_update: fn(*const u64, *const u8, *const u8, u64) -> c_long = kfuncs::map::update;
    map_delete: fn(*const u64, *const u8) -> c_long = kfuncs::map::delete;
    map_push: fn(*const u64, *const u8, u64) -> c_long = kfuncs::map::push;
    map_pop: fn(*const u64, *mut u8, bool) -> c_long = kfuncs::map::pop;
    map_next: fn(*const u64, *mut u64, *mut *const u8, *mut *mut u8) -> bool = kfuncs::map::next;
    storage_get: fn(*const u64, *mut Task, *const u8, u64) -> *mut u8 = kfuncs::map::storage_get;
    storage_delete: fn(*const u64, *mut Task) -> c_long = kfuncs::map::storage_delete;
    arena_alloc: fn(*const u64, *mut u8, u32) -> *mut u8 = kfuncs::map::arena_alloc;
    arena_free: fn(*const u64, *mut u8, u32) = kfuncs::map::arena_free;

    now: fn() -> u64 = kfuncs::time::now;
    random: fn() -> u32 = kfuncs::time::random;
    timer_init: fn(*mut Timer, *const u64, u64) -> c_long = kfuncs::time::timer_init;
    timer_set_callback: fn(*mut Timer, *const c_void) -> c_long = kfuncs::time::timer_set_callback;
    timer_start: fn(*mut Timer, u64, u64) -> c_long = kfuncs::time::timer_start;
    timer_cancel: fn(*mut Timer) -> c_long = kfuncs::time::timer_cancel;

    exit: fn(i64, *const c_char, *const u64, u32) = kfuncs::text::exit;
    error: fn(*const c_char, *const u64, u32) = kfuncs::text::error;
    print: fn(*const c_char, *const u64, u32, bool) -> c_long = kfuncs::text::print;

    access: fn(*const c_void, u64, u32, *const c_void) = watch::access;
    atomic_access: fn(*const c_void, u32, u32, u32, *const c_void) = watch::atomic_access;
    fence: fn(u32) = watch::fence;
    guard: fn(*const c_void, bool) = watch::guard;
    racy: fn(bool) = watch::racy;
    context: fn(*const c_void, u32, u32) = audit::context;
    context_ends: fn(*const c_void) = audit::context_ends;
    unaudited: fn(bool) = audit::unaudited;
}

impl Table {
    /// The table of a policy that is audited or checked for races: what pays for a look at a task is noted, and what
    /// orders accesses.
    pub const fn watched() -> Table {
        Table {
            touch: audit::touch,
            examine: audit::examine,
            look: audit::look,
            recalculate: audit::recalculate,
            lock: watch::lock,
            unlock: watch::unlock,
            trylock: watch::trylock,
            res_lock: watch::res_lock,
            dsq_insert: watch::insert,
            dsq_insert_vtime: watch::insert_vtime,
            dsq_move_to_local: watch::move_to_local,
            dsq_move: watch::move_task,
            dsq_peek: watch::peek,
            iter_next: watch::iter_next,
            map_lookup: watch::map_lookup,
            map_lookup_percpu: watch::map_lookup_percpu,
            map_update: watch::map_update,
            map_push: watch::map_push,
            map_pop: watch::map_pop,
            map_next: watch::map_next,
            storage_get: watch::storage_get,
            arena_alloc: watch::arena_alloc,
            timer_start: watch::timer_start,
            task_from_pid: audit::from_pid,
            tid_to_task: audit::from_tid,
            ..Table::new()
        }
    }
}
