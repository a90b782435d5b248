//! The table of functions through which a policy reaches the virtual kernel: `struct lab_host` in
//! `include/native/scx/host.h`. A test compares the members. `functions.rs` says which functions these are.

use std::ffi::{c_char, c_int, c_long, c_void};

use crate::layout::{CpuMask, DsqIter, RunQueue, Task, Timer};

macro_rules! table {
    ($($name:ident: fn($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// One function per slot, in the order of the C structure. Each is handed `Context` first.
        #[repr(C)]
        pub struct Table<Context> {
            $(pub $name: extern "C" fn(Context $(, $arg)*) $(-> $result)?,)*
        }

        #[cfg(test)]
        impl<Context> Table<Context> {
            /// The slots in order.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];
        }
    };
}

table! {
    sync: fn();
    lock: fn(*mut u32, u32, *const c_void);
    unlock: fn(*mut u32);
    trylock: fn(*mut u32, u32, *const c_void) -> bool;
    res_lock: fn(*mut u32, u32, *const c_void) -> c_int;
    touch: fn(*const c_void, u32, bool);
    examine: fn(*const c_void, u32);
    look: fn(*const c_void, u32, bool);
    recalculate: fn(*const c_void, u32);
    count: fn(u32, u64);
    charge_ps: fn(u64);
    r#loop: fn() -> bool;
    atomic: fn(*const c_void);
    kfunc: fn();
    missing: fn(*const c_char);
    ksym_exists: fn(*const c_char) -> bool;

    create_dsq: fn(u64, i32) -> i32;
    destroy_dsq: fn(u64);
    dsq_insert: fn(*mut Task, u64, u64, u64, *const c_void) -> bool;
    dsq_insert_vtime: fn(*mut Task, u64, u64, u64, u64, *const c_void) -> bool;
    dsq_move_to_local: fn(u64, u64) -> bool;
    dsq_nr_queued: fn(u64) -> i32;
    dsq_peek: fn(u64) -> *mut Task;
    iter_new: fn(*mut DsqIter, u64, u64) -> c_int;
    iter_next: fn(*mut DsqIter) -> *mut Task;
    iter_destroy: fn(*mut DsqIter);
    move_set_slice: fn(*mut DsqIter, u64);
    move_set_vtime: fn(*mut DsqIter, u64);
    dsq_move: fn(*mut DsqIter, *mut Task, u64, u64, bool) -> bool;
    dispatch_nr_slots: fn() -> u32;
    dispatch_cancel: fn();
    reenqueue: fn(u64, u64) -> u32;

    kick_cpu: fn(i32, u64);
    select_cpu_dfl: fn(*mut Task, i32, u64, *mut bool) -> i32;
    select_cpu_and: fn(*mut Task, i32, u64, *const CpuMask, u64) -> i32;
    test_and_clear_cpu_idle: fn(i32) -> bool;
    pick_cpu: fn(*const CpuMask, bool, i32, u64, bool) -> i32;
    idle_mask: fn(bool, i32, bool) -> *const CpuMask;
    online_mask: fn() -> *const CpuMask;
    possible_mask: fn() -> *const CpuMask;
    put_mask: fn(*const CpuMask);
    nr_cpu_ids: fn() -> u32;
    nr_node_ids: fn() -> u32;
    cpu_node: fn(i32) -> i32;
    cpu_place: fn(i32, u32) -> u32;
    cpuperf_cap: fn(i32) -> u32;
    cpuperf_cur: fn(i32) -> u32;
    cpuperf_set: fn(i32, u32);
    smp_processor_id: fn() -> u32;
    cpumask_create: fn() -> *mut CpuMask;
    cpumask_acquire: fn(*mut CpuMask);
    cpumask_release: fn(*mut CpuMask);
    cpumask_any_distribute: fn(*const CpuMask, *const CpuMask) -> u32;

    task_running: fn(*const Task) -> bool;
    cpu_curr: fn(i32) -> *mut Task;
    cpu_rq: fn(i32) -> *mut RunQueue;
    current_task: fn() -> *mut Task;
    task_from_pid: fn(i32) -> *mut Task;
    tid_to_task: fn(u64) -> *mut Task;
    task_set_slice: fn(*mut Task, u64) -> bool;
    task_set_dsq_vtime: fn(*mut Task, u64) -> bool;

    map_lookup: fn(*const u64, *const u8) -> *mut u8;
    map_lookup_percpu: fn(*const u64, *const u8, u32) -> *mut u8;
    map_update: fn(*const u64, *const u8, *const u8, u64) -> c_long;
    map_delete: fn(*const u64, *const u8) -> c_long;
    map_push: fn(*const u64, *const u8, u64) -> c_long;
    map_pop: fn(*const u64, *mut u8, bool) -> c_long;
    map_next: fn(*const u64, *mut u64, *mut *const u8, *mut *mut u8) -> bool;
    storage_get: fn(*const u64, *mut Task, *const u8, u64) -> *mut u8;
    storage_delete: fn(*const u64, *mut Task) -> c_long;
    arena_alloc: fn(*const u64, *mut u8, u32) -> *mut u8;
    arena_free: fn(*const u64, *mut u8, u32);

    now: fn() -> u64;
    random: fn() -> u32;
    timer_init: fn(*mut Timer, *const u64, u64) -> c_long;
    timer_set_callback: fn(*mut Timer, *const c_void) -> c_long;
    timer_start: fn(*mut Timer, u64, u64) -> c_long;
    timer_cancel: fn(*mut Timer) -> c_long;

    exit: fn(i64, *const c_char, *const u64, u32);
    error: fn(*const c_char, *const u64, u32);
    print: fn(*const c_char, *const u64, u32, bool) -> c_long;

    access: fn(*const c_void, u64, u32, *const c_void);
    atomic_access: fn(*const c_void, u32, u32, u32, *const c_void);
    fence: fn(u32);
    guard: fn(*const c_void, bool);
    racy: fn(bool);
    context: fn(*const c_void, u32, u32);
    context_ends: fn(*const c_void);
    unaudited: fn(bool);
}
