//! Helpers for maps and arenas (kernel/bpf/helpers.c, arraymap.c, hashtab.c, queue_stack_maps.c,
//! bpf_task_storage.c, arena.c). A map's variable holds its number in its first word.

use std::ffi::c_long;

use schedlab_trace::TaskId;
use schedlab_workload::CgroupId;

use crate::bpf::fields::Cgroup;
use crate::graph::Graph;
use crate::host::Context;
use crate::kfuncs::time;
use crate::layout::Task;
use crate::maps::{E2BIG, EINVAL, ENOENT, Map};
use crate::primitives;
use crate::version;

const CREATE: u64 = 1;
const EAGAIN: c_long = -11;
/// The class of a `struct bpf_spin_lock` (include/native/scx/bpf.h).
const OTHER_LOCK: u32 = 3;

/// The map behind a variable.
#[inline]
pub fn with<R>(context: Context, map: *const u64, f: impl FnOnce(&mut Map, usize) -> R) -> R {
    if map.is_null() {
        null_map(context);
    }
    // SAFETY: the address of a map's variable; anything else is found out below, or faults.
    let number = unsafe { map.read() } as usize;
    let result = context.with(|host| {
        let cpu = host.cpu();
        let known = host.maps.get_mut(number)?;
        (known.variable == map).then(|| f(known, cpu))
    });
    match result {
        Some(result) => result,
        None => no_map(context),
    }
}

#[cold]
fn null_map(context: Context) -> ! {
    context.fault("a map helper was called with a NULL map".to_owned())
}

#[cold]
fn no_map(context: Context) -> ! {
    context.fault("a map helper was called with something that is not a map".to_owned())
}

/// The verifier knows which helpers take which maps (`check_map_func_compatibility()`). The caller is about to get
/// nothing, or rarely calls.
pub fn check_kind(context: Context, map: *const u64, helper: &str, takes: fn(&Map) -> bool) {
    if !with(context, map, |map, _| takes(map)) {
        let name = with(context, map, |map, _| map.description());
        context.fault(format!(
            "{helper}() was called with {name}, which the kernel's verifier refuses"
        ));
    }
}

/// The key that a pointer points to.
pub fn key<'a>(map: &Map, key: *const u8) -> &'a [u8] {
    // SAFETY: keys have the size that the map declares; a wild pointer faults, and that is caught.
    unsafe { std::slice::from_raw_parts(key, map.key_size()) }
}

/// Look-ups in maps that others change wait for the CPU's turn. Array look-ups are inlined by the JIT.
fn enter(context: Context, map: *const u64) {
    if with(context, map, |map, _| map.is_shared()) {
        context.charge_kfunc();
        primitives::sync(context);
    }
}

/// `bpf_map_lookup_elem()`.
pub extern "C" fn lookup(context: Context, map: *const u64, at: *const u8) -> *mut u8 {
    enter(context, map);
    let value = with(context, map, |map, cpu| {
        map.use_value(key(map, at));
        map.lookup(key(map, at), cpu)
    });
    if value.is_null() {
        return lookup_map(context, map, at);
    }
    value
}

/// The map of a key in a map of maps (`array_of_map_lookup_elem()`, `htab_of_map_lookup_elem()`).
#[cold]
fn lookup_map(context: Context, map: *const u64, at: *const u8) -> *mut u8 {
    check_kind(context, map, "bpf_map_lookup_elem", Map::has_elements);
    let found = with(context, map, |map, _| map.map_of(key(map, at)));
    let Some(number) = found else {
        return std::ptr::null_mut();
    };
    context.with(|host| {
        let inner = host.maps.get_mut(number);
        inner.map_or(std::ptr::null_mut(), |inner| {
            inner.variable.cast_mut().cast()
        })
    })
}

/// `bpf_map_lookup_percpu_elem()`.
pub extern "C" fn lookup_percpu(
    context: Context,
    map: *const u64,
    at: *const u8,
    cpu: u32,
) -> *mut u8 {
    context.charge_kfunc();
    primitives::sync(context);
    if context.with(|host| cpu as usize >= host.nr_cpus) {
        return std::ptr::null_mut();
    }
    check_kind(context, map, "bpf_map_lookup_percpu_elem", Map::is_per_cpu);
    with(context, map, |map, _| {
        map.lookup(key(map, at), cpu as usize)
    })
}

/// `bpf_map_update_elem()`.
pub extern "C" fn update(
    context: Context,
    map: *const u64,
    at: *const u8,
    value: *const u8,
    flags: u64,
) -> c_long {
    context.charge_kfunc();
    primitives::sync(context);
    let (lock, slot) = with(context, map, |map, cpu| {
        let key = key(map, at);
        let lock = map.lock_for_update(key, cpu, flags);
        (lock, map.slot_for_update(key, cpu, flags))
    });
    let slot = match slot {
        Ok(slot) => slot,
        Err(error) => {
            check_kind(context, map, "bpf_map_update_elem", Map::is_keyed);
            return error;
        }
    };
    if let Some(lock) = lock {
        primitives::lock(context, lock, OTHER_LOCK, std::ptr::null());
    }
    let version = context.with(|host| host.version);
    let (size, is_hash) = with(context, map, |map, cpu| {
        // The holder of the lock, or another CPU, may have deleted it meanwhile.
        if map.lookup(key(map, at), cpu) == slot {
            let keeps = match map.is_hash() {
                true => lock.is_some(),
                false => version::array_keeps_references(version),
            };
            // SAFETY: values have the size that the map declares.
            unsafe { map.copy_value(value, slot, keeps) };
            map.use_value(key(map, at));
        }
        (map.value_size(), map.is_hash())
    });
    if let Some(lock) = lock {
        primitives::unlock(context, lock);
    }
    // An element that is changed in place keeps its timers; an array's are cancelled.
    if lock.is_none() || !is_hash {
        time::forget(context, slot, size);
    }
    0
}

/// `bpf_map_delete_elem()`.
pub extern "C" fn delete(context: Context, map: *const u64, at: *const u8) -> c_long {
    context.charge_kfunc();
    primitives::sync(context);
    let (value, size, result) = with(context, map, |map, cpu| {
        let value = map.lookup(key(map, at), cpu);
        (value, map.value_size(), map.delete(key(map, at)))
    });
    if result == 0 {
        time::forget(context, value, size);
    } else {
        check_kind(context, map, "bpf_map_delete_elem", Map::is_keyed);
    }
    result
}

/// `bpf_map_push_elem()`.
pub extern "C" fn push(context: Context, map: *const u64, value: *const u8, flags: u64) -> c_long {
    enter(context, map);
    let result = with(context, map, |map, _| {
        // SAFETY: values have the size that the map declares.
        let value = unsafe { std::slice::from_raw_parts(value, map.value_size()) };
        map.push(value, flags)
    });
    if result != 0 {
        check_kind(context, map, "bpf_map_push_elem", Map::is_list);
    }
    result
}

/// `bpf_map_pop_elem()` and, with `keep`, `bpf_map_peek_elem()`.
pub extern "C" fn pop(context: Context, map: *const u64, value: *mut u8, keep: bool) -> c_long {
    enter(context, map);
    let result = with(context, map, |map, _| {
        // SAFETY: as in `push`.
        let value = unsafe { std::slice::from_raw_parts_mut(value, map.value_size()) };
        map.pop(value, keep)
    });
    if result != 0 {
        let helper = match keep {
            true => "bpf_map_peek_elem",
            false => "bpf_map_pop_elem",
        };
        check_kind(context, map, helper, Map::is_list);
    }
    result
}

/// One step of `bpf_for_each_map_elem()`.
pub extern "C" fn next(
    context: Context,
    map: *const u64,
    cursor: *mut u64,
    key: *mut *const u8,
    value: *mut *mut u8,
) -> bool {
    enter(context, map);
    // SAFETY: the three are variables of our own header.
    let cursor = unsafe { &mut *cursor };
    let found = with(context, map, |map, cpu| map.next(cursor, cpu));
    let Some((found_key, found_value)) = found else {
        check_kind(context, map, "bpf_for_each_map_elem", Map::is_keyed);
        return false;
    };
    // SAFETY: as above.
    unsafe {
        *key = found_key;
        *value = found_value;
    }
    true
}

/// Returns the task whose storage a task's pointer means: nothing is ever stored for idle tasks and stoppers, nor for
/// a task that is gone, whose number may be used again.
fn workload_task(context: Context, p: *const Task, function: &str) -> Option<TaskId> {
    // SAFETY: a policy has task pointers only from us; a wild one faults, and that is caught.
    let (index, tid) = unsafe { ((*p).lab_index, (*p).scx.tid) };
    (index != Task::NOBODY && tid != 0).then(|| context.task(p, function))
}

/// `bpf_task_storage_get()`.
pub extern "C" fn storage_get(
    context: Context,
    map: *const u64,
    p: *mut Task,
    init: *const u8,
    flags: u64,
) -> *mut u8 {
    context.charge_kfunc();
    if p.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: a policy has task pointers only from us; a wild one faults, and that is caught.
    let task = unsafe { (*p).lab_index } as usize;
    let value = with(context, map, |map, _| match flags {
        0 | CREATE => map.storage(task),
        _ => std::ptr::null_mut(),
    });
    match value.is_null() {
        true => storage_missing(context, map, p, init, flags),
        false => value,
    }
}

/// A task's first value, if it is wanted: zeroes, or a copy of `init`.
#[cold]
fn storage_missing(
    context: Context,
    map: *const u64,
    p: *const Task,
    init: *const u8,
    flags: u64,
) -> *mut u8 {
    check_kind(context, map, "bpf_task_storage_get", Map::is_storage);
    if flags != CREATE {
        return std::ptr::null_mut();
    }
    let Some(task) = workload_task(context, p, "bpf_task_storage_get") else {
        return std::ptr::null_mut();
    };
    with(context, map, |map, _| {
        let value = map.storage_create(task.index());
        if !value.is_null() && !init.is_null() {
            // SAFETY: values have the size that the map declares.
            unsafe { map.copy_value(init, value, true) };
        }
        value
    })
}

/// `bpf_task_storage_delete()`.
pub extern "C" fn storage_delete(context: Context, map: *const u64, p: *mut Task) -> c_long {
    context.charge_kfunc();
    if p.is_null() {
        return EINVAL;
    }
    let Some(task) = workload_task(context, p, "bpf_task_storage_delete") else {
        return ENOENT;
    };
    check_kind(context, map, "bpf_task_storage_delete", Map::is_storage);
    with(context, map, |map, _| map.storage_delete(task.index()))
}

/// The number of a cgroup by which its values are kept.
fn cgroup_index(context: Context, cgroup: *const Cgroup, name: &str) -> Option<usize> {
    let found = context.with(|host| host.cgroups.at(cgroup));
    if found.is_none() && !cgroup.is_null() {
        context.ask(|kernel| kernel.violation(format!("{name}() of what is no cgroup")));
    }
    found.map(CgroupId::index)
}

/// `bpf_cgrp_storage_get()`.
pub fn cgroup_storage_get(
    context: Context,
    map: *const u64,
    cgroup: *const Cgroup,
    init: *const u8,
    flags: u64,
) -> *mut u8 {
    context.charge_kfunc();
    let Some(cgroup) = cgroup_index(context, cgroup, "bpf_cgrp_storage_get") else {
        return std::ptr::null_mut();
    };
    check_kind(context, map, "bpf_cgrp_storage_get", Map::is_cgroup_storage);
    with(context, map, |map, _| {
        let known = map.storage(cgroup);
        if !known.is_null() || flags != CREATE {
            return if flags > CREATE {
                std::ptr::null_mut()
            } else {
                known
            };
        }
        let value = map.storage_create(cgroup);
        if !value.is_null() && !init.is_null() {
            // SAFETY: values have the size that the map declares.
            unsafe { map.copy_value(init, value, true) };
        }
        value
    })
}

/// `bpf_cgrp_storage_delete()`.
pub fn cgroup_storage_delete(context: Context, map: *const u64, cgroup: *const Cgroup) -> c_long {
    context.charge_kfunc();
    let Some(cgroup) = cgroup_index(context, cgroup, "bpf_cgrp_storage_delete") else {
        return EINVAL;
    };
    check_kind(
        context,
        map,
        "bpf_cgrp_storage_delete",
        Map::is_cgroup_storage,
    );
    with(context, map, |map, _| map.storage_delete(cgroup))
}

/// `bpf_arena_reserve_pages()`.
pub fn arena_reserve(context: Context, map: *const u64, at: *mut u8, pages: u32) -> c_long {
    context.charge_kfunc();
    primitives::sync(context);
    check_kind(context, map, "bpf_arena_reserve_pages", Map::is_arena);
    with(context, map, |map, _| match map.arena() {
        Some(arena) => arena.reserve(at, pages as usize),
        None => EINVAL,
    })
}

/// `bpf_arena_alloc_pages()`.
pub extern "C" fn arena_alloc(
    context: Context,
    map: *const u64,
    at: *mut u8,
    pages: u32,
) -> *mut u8 {
    context.charge_kfunc();
    primitives::sync(context);
    check_kind(context, map, "bpf_arena_alloc_pages", Map::is_arena);
    with(context, map, |map, _| match map.arena() {
        Some(arena) => arena.alloc(at, pages as usize),
        None => std::ptr::null_mut(),
    })
}

/// `bpf_arena_free_pages()`.
pub extern "C" fn arena_free(context: Context, map: *const u64, at: *mut u8, pages: u32) {
    context.charge_kfunc();
    primitives::sync(context);
    check_kind(context, map, "bpf_arena_free_pages", Map::is_arena);
    with(context, map, |map, _| {
        if let Some(arena) = map.arena() {
            arena.free(at, pages as usize);
        }
    });
}

/// `bpf_ringbuf_reserve()`.
// Model: a reader empties the buffer at once, so that only records that are not submitted yet take room.
pub fn ring_reserve(context: Context, of: *const u64, bytes: u64, flags: u64) -> *mut u8 {
    context.charge_kfunc();
    primitives::sync(context);
    check_kind(context, of, "bpf_ringbuf_reserve", Map::is_ring);
    match flags {
        0 => with(context, of, |map, _| map.reserve(bytes as usize)),
        _ => std::ptr::null_mut(),
    }
}

/// `bpf_ringbuf_submit()` and `bpf_ringbuf_discard()`.
pub fn ring_release(context: Context, record: *mut u8) {
    context.charge_kfunc();
    let is_one = context.with(|host| {
        let mut maps = host.maps.all_mut();
        maps.any(|map| map.release(record))
    });
    if !is_one {
        context.fault("a record was submitted that bpf_ringbuf_reserve() has not given".to_owned());
    }
}

/// `bpf_ringbuf_output()`.
pub fn ring_output(context: Context, of: *const u64, bytes: u64, flags: u64) -> c_long {
    context.charge_kfunc();
    primitives::sync(context);
    check_kind(context, of, "bpf_ringbuf_output", Map::is_ring);
    // BPF_RB_NO_WAKEUP and BPF_RB_FORCE_WAKEUP.
    if flags & !3 != 0 {
        return EINVAL;
    }
    let fits = with(context, of, |map, _| map.ring_fits(bytes as usize));
    if fits { 0 } else { EAGAIN }
}

/// `bpf_ringbuf_query()`.
pub fn ring_query(context: Context, of: *const u64, flags: u64) -> u64 {
    context.charge_kfunc();
    check_kind(context, of, "bpf_ringbuf_query", Map::is_ring);
    match flags {
        // BPF_RB_RING_SIZE; nothing is there to be read, and the positions of reader and writer are the same.
        1 => with(context, of, |map, _| u64::from(map.def.max_entries)),
        _ => 0,
    }
}

/// `bpf_perf_event_read_value()`: no event is attached to any CPU.
pub fn event_value(
    context: Context,
    of: *const u64,
    flags: u64,
    value: *mut u8,
    bytes: u32,
) -> c_long {
    context.charge_kfunc();
    check_kind(context, of, "bpf_perf_event_read_value", Map::is_events);
    // SAFETY: the policy says how large its variable is; a wild pointer faults, and that is caught.
    unsafe { value.write_bytes(0, bytes as usize) };
    const CURRENT_CPU: u64 = 0xffff_ffff;
    let entries = with(context, of, |map, _| u64::from(map.def.max_entries));
    match flags & CURRENT_CPU {
        _ if bytes != 24 || flags & !CURRENT_CPU != 0 => EINVAL,
        index if index != CURRENT_CPU && index >= entries => E2BIG,
        _ => ENOENT,
    }
}

/// A look at what others may change under the same lock at another time.
fn graph<R>(context: Context, f: impl FnOnce(&mut Graph) -> R) -> R {
    context.charge_kfunc();
    primitives::sync(context);
    context.with(|host| f(&mut host.graph))
}

/// `bpf_obj_new_impl()`: zeroes of the size of a type of the object.
pub fn object_new(context: Context, type_id: u64) -> *mut u8 {
    context.charge_kfunc();
    context.with(|host| {
        let Some(program) = &host.image.object().program else {
            return std::ptr::null_mut();
        };
        let bytes = (program.elf.btf.size(type_id as u32) as usize).next_multiple_of(8);
        let memory = &host.memory;
        let place = host.graph.allocate(bytes, |bytes| memory.take(bytes));
        if !place.is_null() {
            // SAFETY: the place has so many bytes, and nobody has it.
            unsafe { place.write_bytes(0, bytes) };
        }
        place
    })
}

/// `bpf_obj_drop_impl()`.
pub fn object_drop(context: Context, object: *mut u8) {
    if !graph(context, |graph| graph.release(object)) && !object.is_null() {
        context.fault("bpf_obj_drop() was called with what bpf_obj_new() has not given".to_owned());
    }
}

/// `bpf_rbtree_add_impl()`: behind all nodes that it is not less than. A node that is in one already is refused.
pub fn tree_add(context: Context, root: u64, node: u64, less: impl Fn(u64, u64) -> bool) -> c_long {
    let Some(nodes) = graph(context, |graph| graph.nodes_for(root, node)) else {
        return EINVAL;
    };
    let place = nodes.partition_point(|other| !less(node, *other));
    context.with(|host| host.graph.add(root, node, place));
    0
}

/// `bpf_rbtree_first()`.
pub fn tree_first(context: Context, root: u64) -> u64 {
    graph(context, |graph| graph.first(root))
}

/// `bpf_rbtree_remove()`; NULL if the node is not in the tree.
pub fn tree_remove(context: Context, root: u64, node: u64) -> u64 {
    match graph(context, |graph| graph.remove(root, node)) {
        true => node,
        false => 0,
    }
}

/// `bpf_list_push_front_impl()` and `_back_`. A node that is in one already is refused.
pub fn list_push(context: Context, head: u64, node: u64, front: bool) -> c_long {
    match graph(context, |graph| graph.push(head, node, front)) {
        true => 0,
        false => EINVAL,
    }
}

/// `bpf_list_pop_front()` and `_back()`; NULL if it is empty.
pub fn list_pop(context: Context, head: u64, front: bool) -> u64 {
    graph(context, |graph| graph.pop(head, front))
}
