//! Binds the calls of objects' programs: kfuncs by name, helpers by number (`enum bpf_func_id`), each bound to the function that native
//! policies call.

use std::ffi::{c_char, c_void};
use std::ptr;

use schedlab_bpf::program::{Hooks, HostFn, Layout};
use schedlab_engine::KernelVersion;
use schedlab_trace::{CpuId, TaskId};

use super::fields::{Cgroup, Css, ObjectRunQueue, Of};
use super::masks;
use super::types::{Functions, KernelTypes};
use super::words::host_fn;
use crate::cids::Topo;
use crate::host::{Context, Host};
use crate::kconfig;
use crate::kfuncs::task::CssIter;
use crate::kfuncs::{cpu, dsq, map, task, text, time};
use crate::layout::{CpuMask, DsqIter, Task, Timer};
use crate::maps::{E2BIG, EINVAL};
use crate::{primitives, version};

/// `SCX_DSQ_LOCAL`.
const LOCAL: u64 = 1 << 63 | 2;

/// The class of a `struct bpf_spin_lock` (include/native/scx/bpf.h).
const OTHER_LOCK: u32 = 3;

/// Functions that a scheduler of the cid form may not call (`scx_kfunc_ids_cpu_only`).
const OF_CPU_FORM: &[&str] = &[
    "scx_bpf_kick_cpu",
    "scx_bpf_task_cpu",
    "scx_bpf_cpu_rq",
    "scx_bpf_cpu_curr",
    "scx_bpf_cpu_node",
    "scx_bpf_cpuperf_cap",
    "scx_bpf_cpuperf_cur",
    "scx_bpf_cpuperf_set",
    "scx_bpf_get_possible_cpumask",
    "scx_bpf_get_online_cpumask",
    "scx_bpf_put_cpumask",
    "scx_bpf_select_cpu_dfl",
    "__scx_bpf_select_cpu_and",
    "scx_bpf_select_cpu_and",
    "scx_bpf_get_idle_cpumask",
    "scx_bpf_get_idle_cpumask_node",
    "scx_bpf_get_idle_smtmask",
    "scx_bpf_get_idle_smtmask_node",
    "scx_bpf_put_idle_cpumask",
    "scx_bpf_test_and_clear_cpu_idle",
    "scx_bpf_pick_idle_cpu",
    "scx_bpf_pick_idle_cpu_node",
    "scx_bpf_pick_any_cpu",
    "scx_bpf_pick_any_cpu_node",
];

/// The functions of the virtual kernel.
const FUNCTIONS: Functions = Functions {
    kfunc,
    retired,
    is_of_cpu_form,
    helper,
    hooks,
    per_cpu_variable,
    layout: Layout {
        data: std::mem::offset_of!(Host, bpf.data) as i32,
        arena: std::mem::offset_of!(Host, bpf.arena) as i32,
        executed: std::mem::offset_of!(Host, bpf.executed) as i32,
        seen: std::mem::offset_of!(Host, bpf.seen) as i32,
    },
};

/// Reads the types of the virtual kernel from an ELF object that was compiled with all types of include/native.
///
/// # Errors
/// If it has no debug information.
pub fn kernel_types(elf: &[u8]) -> Result<KernelTypes, String> {
    KernelTypes::read(elf, &FUNCTIONS)
}

/// Returns the functions that an object needs and the virtual kernel has not. One that is weak may be missing.
pub fn missing_functions(elf: &[u8]) -> Vec<String> {
    use object::{Object as _, ObjectSymbol as _};

    let Ok(file) = object::File::parse(elf) else {
        return Vec::new();
    };
    let needed = file
        .symbols()
        .filter(|symbol| symbol.is_undefined() && symbol.is_global() && !symbol.is_weak());
    let names = needed.filter_map(|symbol| symbol.name().ok().map(str::to_owned));
    let version = KernelVersion::V7_2;
    let is_missing = |name: &String| {
        let found = kfunc(version, name).or_else(|| retired(version, name));
        !kconfig::is_variable(name) && found.is_none()
    };
    names.filter(is_missing).collect()
}

/// Whether the verifier refuses a call of a function in an op of the cid form.
fn is_of_cpu_form(name: &str) -> bool {
    OF_CPU_FORM.contains(&name)
}

/// The kfunc of a name in a kernel.
fn kfunc(version: KernelVersion, name: &str) -> Option<HostFn> {
    if version::is_newer(version, name) {
        return None;
    }
    let found = of_dsqs(name)
        .or_else(|| of_cpus(name))
        .or_else(|| of_cids(name))
        .or_else(|| of_tasks(name));
    let found = found
        .or_else(|| masks::mask(name))
        .or_else(|| masks::iterator(name));
    found.or_else(|| others(name))
}

/// `struct scx_bpf_dsq_insert_vtime_args`.
#[repr(C)]
#[derive(Clone, Copy)]
struct InsertArgs {
    dsq: u64,
    slice: u64,
    vtime: u64,
    enq_flags: u64,
}

/// `struct scx_bpf_select_cpu_and_args`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SelectArgs {
    prev_cpu: i32,
    wake_flags: u64,
    flags: u64,
}

/// The place of an insertion, which the code of an object does not pass.
const NO_PLACE: *const std::ffi::c_void = std::ptr::null();

fn of_dsqs(name: &str) -> Option<HostFn> {
    Some(match name {
        "scx_bpf_create_dsq" => host_fn!(|c, id: u64, node: i32| dsq::create(c, id, node)),
        "scx_bpf_destroy_dsq" => host_fn!(|c, id: u64| dsq::destroy(c, id)),
        "scx_bpf_dsq_insert" => {
            host_fn!(|c, p: *mut Task, id: u64, slice: u64, flags: u64| {
                dsq::insert(c, p, cpu::dsq_of_cid(c, id), slice, flags, NO_PLACE);
            })
        }
        "scx_bpf_dsq_insert___v2" => {
            host_fn!(
                |c, p: *mut Task, id: u64, slice: u64, flags: u64| dsq::insert(
                    c,
                    p,
                    cpu::dsq_of_cid(c, id),
                    slice,
                    flags,
                    NO_PLACE
                )
            )
        }
        "scx_bpf_dsq_insert_vtime" => {
            host_fn!(
                |c, p: *mut Task, id: u64, slice: u64, vtime: u64, flags: u64| {
                    dsq::insert_vtime(c, p, cpu::dsq_of_cid(c, id), slice, vtime, flags, NO_PLACE);
                }
            )
        }
        "__scx_bpf_dsq_insert_vtime" => host_fn!(|c, p: *mut Task, args: *const InsertArgs| {
            // SAFETY: the policy's own variable; a wild pointer faults, and that is caught.
            let args = unsafe { args.read_unaligned() };
            dsq::insert_vtime(
                c,
                p,
                cpu::dsq_of_cid(c, args.dsq),
                args.slice,
                args.vtime,
                args.enq_flags,
                NO_PLACE,
            )
        }),
        "scx_bpf_dsq_move_to_local" => host_fn!(|c, id: u64| dsq::move_to_local(c, id, 0)),
        "scx_bpf_dsq_move_to_local___v2" => {
            host_fn!(|c, id: u64, flags: u64| dsq::move_to_local(c, id, flags))
        }
        "scx_bpf_dsq_nr_queued" => host_fn!(|c, id: u64| dsq::nr_queued(c, cpu::dsq_of_cid(c, id))),
        "scx_bpf_dsq_peek" => host_fn!(|c, id: u64| dsq::peek(c, id)),
        "bpf_iter_scx_dsq_new" => {
            host_fn!(|c, it: *mut DsqIter, id: u64, flags: u64| dsq::iter_new(c, it, id, flags))
        }
        "bpf_iter_scx_dsq_next" => host_fn!(|c, it: *mut DsqIter| {
            primitives::step(c);
            dsq::iter_next(c, it)
        }),
        "bpf_iter_scx_dsq_destroy" => host_fn!(|c, it: *mut DsqIter| dsq::iter_destroy(c, it)),
        "scx_bpf_dsq_move_set_slice" => {
            host_fn!(|c, it: *mut DsqIter, slice: u64| dsq::move_set_slice(c, it, slice))
        }
        "scx_bpf_dsq_move_set_vtime" => {
            host_fn!(|c, it: *mut DsqIter, vtime: u64| dsq::move_set_vtime(c, it, vtime))
        }
        "scx_bpf_dsq_move" => {
            host_fn!(|c, it: *mut DsqIter, p: *mut Task, id: u64, flags: u64| {
                dsq::move_task(c, it, p, cpu::dsq_of_cid(c, id), flags, false)
            })
        }
        "scx_bpf_dsq_move_vtime" => {
            host_fn!(|c, it: *mut DsqIter, p: *mut Task, id: u64, flags: u64| {
                dsq::move_task(c, it, p, cpu::dsq_of_cid(c, id), flags, true)
            })
        }
        "scx_bpf_dispatch_nr_slots" => host_fn!(|c| dsq::dispatch_nr_slots(c)),
        "scx_bpf_dispatch_cancel" => host_fn!(|c| dsq::dispatch_cancel(c)),
        "scx_bpf_reenqueue_local" => host_fn!(|c| dsq::reenqueue(c, LOCAL, 0)),
        "scx_bpf_reenqueue_local___v2" => host_fn!(|c| {
            dsq::reenqueue(c, LOCAL, 0);
        }),
        "scx_bpf_dsq_reenq" => host_fn!(|c, id: u64, flags: u64| {
            dsq::reenqueue(c, cpu::dsq_of_cid(c, id), flags);
        }),
        _ => return None,
    })
}

fn of_cpus(name: &str) -> Option<HostFn> {
    Some(match name {
        "scx_bpf_kick_cpu" => host_fn!(|c, cpu: i32, flags: u64| cpu::kick(c, cpu, flags)),
        "scx_bpf_cpuperf_cap" => host_fn!(|c, cpu: i32| cpu::cpuperf_cap(c, cpu)),
        "scx_bpf_cpuperf_cur" => host_fn!(|c, cpu: i32| cpu::cpuperf_cur(c, cpu)),
        "scx_bpf_cpuperf_set" => {
            host_fn!(|c, cpu: i32, perf: u32| cpu::cpuperf_set(c, cpu, perf))
        }
        "scx_bpf_select_cpu_dfl" => {
            host_fn!(|c, p: *mut Task, prev: i32, flags: u64, idle: *mut bool| {
                cpu::select_dfl(c, p, prev, flags, idle)
            })
        }
        "scx_bpf_select_cpu_and" => {
            host_fn!(|c,
                      p: *mut Task,
                      prev: i32,
                      wake: u64,
                      allowed: *const CpuMask,
                      flags: u64| {
                cpu::select_and(c, p, prev, wake, allowed, flags)
            })
        }
        "__scx_bpf_select_cpu_and" => {
            host_fn!(
                |c, p: *mut Task, allowed: *const CpuMask, args: *const SelectArgs| {
                    // SAFETY: the policy's own variable; a wild pointer faults, and that is caught.
                    let args = unsafe { args.read_unaligned() };
                    cpu::select_and(c, p, args.prev_cpu, args.wake_flags, allowed, args.flags)
                }
            )
        }
        "scx_bpf_test_and_clear_cpu_idle" => {
            host_fn!(|c, cpu: i32| cpu::test_and_clear_idle(c, cpu))
        }
        "scx_bpf_pick_idle_cpu" => {
            host_fn!(|c, allowed: *const CpuMask, flags: u64| cpu::pick(
                c, allowed, false, 0, flags, false
            ))
        }
        "scx_bpf_pick_any_cpu" => {
            host_fn!(|c, allowed: *const CpuMask, flags: u64| cpu::pick(
                c, allowed, false, 0, flags, true
            ))
        }
        "scx_bpf_pick_idle_cpu_node" => {
            host_fn!(|c, allowed: *const CpuMask, node: i32, flags: u64| {
                cpu::pick(c, allowed, true, node, flags, false)
            })
        }
        "scx_bpf_pick_any_cpu_node" => {
            host_fn!(|c, allowed: *const CpuMask, node: i32, flags: u64| {
                cpu::pick(c, allowed, true, node, flags, true)
            })
        }
        "scx_bpf_get_idle_cpumask" => host_fn!(|c| cpu::idle_mask(c, false, 0, false)),
        "scx_bpf_get_idle_smtmask" => host_fn!(|c| cpu::idle_mask(c, false, 0, true)),
        "scx_bpf_get_idle_cpumask_node" => {
            host_fn!(|c, node: i32| cpu::idle_mask(c, true, node, false))
        }
        "scx_bpf_get_idle_smtmask_node" => {
            host_fn!(|c, node: i32| cpu::idle_mask(c, true, node, true))
        }
        "scx_bpf_put_idle_cpumask" | "scx_bpf_put_cpumask" => {
            host_fn!(|c, mask: *const CpuMask| cpu::put_mask(c, mask))
        }
        "scx_bpf_get_online_cpumask" => host_fn!(|c| cpu::online_mask(c)),
        "scx_bpf_get_possible_cpumask" => host_fn!(|c| cpu::possible_mask(c)),
        "scx_bpf_nr_cpu_ids" => host_fn!(|c| cpu::nr_cpu_ids(c)),
        "scx_bpf_nr_node_ids" => host_fn!(|c| cpu::nr_node_ids(c)),
        "scx_bpf_cpu_node" => host_fn!(|c, cpu: i32| cpu::node(c, cpu)),
        "scx_bpf_now" => host_fn!(|c| time::now(c)),
        _ => return None,
    })
}

fn of_cids(name: &str) -> Option<HostFn> {
    Some(match name {
        "scx_bpf_cid_to_cpu" => host_fn!(|c, number: i32| cpu::cid_to_cpu(c, number)),
        "scx_bpf_cpu_to_cid" => host_fn!(|c, cpu: i32| cpu::cpu_to_cid(c, cpu)),
        "scx_bpf_cid_topo" => {
            host_fn!(|c, number: i32, out: *mut Topo| cpu::cid_topo(c, number, out))
        }
        "scx_bpf_cid_override" => {
            host_fn!(|c, of_cpu: *const i32, bytes: u32| cpu::cid_override(c, of_cpu, bytes))
        }
        "scx_bpf_nr_cids" => host_fn!(|c| cpu::nr_cids(c)),
        "scx_bpf_nr_online_cids" => host_fn!(|c| cpu::nr_online_cids(c)),
        "scx_bpf_this_cid" => host_fn!(|c| cpu::this_cid(c)),
        "scx_bpf_task_cid" => host_fn!(|c, p: *const Task| cpu::task_cid(c, p)),
        "scx_bpf_cid_curr" => host_fn!(|c, number: i32| cpu::cid_curr(c, number)),
        "scx_bpf_kick_cid" => {
            host_fn!(|c, number: i32, flags: u64| cpu::kick_cid(c, number, flags))
        }
        "scx_bpf_cidperf_cap" => host_fn!(|c, number: i32| cpu::cidperf_cap(c, number)),
        "scx_bpf_cidperf_cur" => host_fn!(|c, number: i32| cpu::cidperf_cur(c, number)),
        "scx_bpf_cidperf_set" => {
            host_fn!(|c, number: i32, perf: u32| cpu::cidperf_set(c, number, perf))
        }
        _ => return None,
    })
}

fn task_cpu(context: Context, p: *const Task) -> i32 {
    context.charge_kfunc();
    // SAFETY: a policy has task pointers only from us; a wild one faults, and that is caught.
    unsafe { (&raw const (*p).lab_cpu).read() }
}

fn of_tasks(name: &str) -> Option<HostFn> {
    Some(match name {
        "scx_bpf_task_running" => host_fn!(|c, p: *const Task| task::running(c, p)),
        "scx_bpf_task_cpu" => host_fn!(|c, p: *const Task| task_cpu(c, p)),
        "scx_bpf_cpu_curr" => host_fn!(|c, cpu: i32| task::cpu_curr(c, cpu)),
        "scx_bpf_cpu_rq" => host_fn!(|c, cpu: i32| task::cpu_rq(c, cpu)),
        "scx_bpf_tid_to_task" => host_fn!(|c, tid: u64| task::from_tid(c, tid)),
        "scx_bpf_task_set_slice" => {
            host_fn!(|c, p: *mut Task, slice: u64| task::set_slice(c, p, slice))
        }
        "scx_bpf_task_set_dsq_vtime" => {
            host_fn!(|c, p: *mut Task, vtime: u64| task::set_dsq_vtime(c, p, vtime))
        }
        "bpf_task_from_pid" => host_fn!(|c, pid: i32| task::from_pid(c, pid)),
        // A task cannot vanish during an op, so references need not be counted.
        "bpf_task_acquire" => host_fn!(|c, p: *mut Task| p),
        "bpf_task_release" => host_fn!(|c, p: *mut Task| ()),
        _ => return None,
    })
}

fn res_lock(context: Context, lock: *mut u32) -> i32 {
    primitives::res_lock(context, lock, OTHER_LOCK, ptr::null())
}

fn others(name: &str) -> Option<HostFn> {
    Some(match name {
        "scx_bpf_error_bstr" => {
            host_fn!(
                |c, fmt: *const c_char, args: *const u64, bytes: u32| text::error(
                    c, fmt, args, bytes
                )
            )
        }
        "scx_bpf_exit_bstr" => {
            host_fn!(
                |c, code: i64, fmt: *const c_char, args: *const u64, bytes: u32| {
                    text::exit(c, code, fmt, args, bytes)
                }
            )
        }
        "scx_bpf_dump_bstr" => host_fn!(|c, fmt: *const c_char, args: *const u64, bytes: u32| {
            text::print(c, fmt, args, bytes, true);
        }),
        "bpf_arena_alloc_pages" => {
            host_fn!(
                |c, map: *const u64, at: *mut u8, pages: u32, node: i32, flags: u64| {
                    match flags {
                        0 => map::arena_alloc(c, map, at, pages),
                        _ => ptr::null_mut(),
                    }
                }
            )
        }
        "bpf_arena_free_pages" => {
            host_fn!(
                |c, map: *const u64, at: *mut u8, pages: u32| map::arena_free(c, map, at, pages)
            )
        }
        "bpf_arena_reserve_pages" => {
            host_fn!(
                |c, map: *const u64, at: *mut u8, pages: u32| map::arena_reserve(c, map, at, pages)
            )
        }
        "bpf_stream_vprintk" => {
            host_fn!(
                |c, stream: i32, fmt: *const c_char, args: *const u64, bytes: u32| {
                    text::print_to_stream(c, stream, fmt, args, bytes)
                }
            )
        }
        "bpf_obj_new_impl" | "bpf_obj_new" => {
            host_fn!(|c, type_id: u64| map::object_new(c, type_id))
        }
        "bpf_obj_drop_impl" | "bpf_obj_drop" => {
            host_fn!(|c, object: *mut u8| map::object_drop(c, object))
        }
        "bpf_rbtree_add_impl" | "bpf_rbtree_add" => {
            host_fn!(|c, root: u64, node: u64, less: u64| {
                map::tree_add(c, root, node, |a, b| {
                    c.call_back(less, [a, b, 0, 0]) as u8 != 0
                })
            })
        }
        "bpf_rbtree_first" => host_fn!(|c, root: u64| map::tree_first(c, root)),
        "bpf_rbtree_remove" => {
            host_fn!(|c, root: u64, node: u64| map::tree_remove(c, root, node))
        }
        "bpf_list_push_front_impl" | "bpf_list_push_front" => {
            host_fn!(|c, head: u64, node: u64| map::list_push(c, head, node, true))
        }
        "bpf_list_push_back_impl" | "bpf_list_push_back" => {
            host_fn!(|c, head: u64, node: u64| map::list_push(c, head, node, false))
        }
        "bpf_list_pop_front" => host_fn!(|c, head: u64| map::list_pop(c, head, true)),
        "bpf_list_pop_back" => host_fn!(|c, head: u64| map::list_pop(c, head, false)),
        "scx_bpf_task_cgroup" => host_fn!(|c, p: *const Task| task::cgroup(c, p)),
        "bpf_cgroup_from_id" => host_fn!(|c, id: u64| task::cgroup_from_id(c, id)),
        "bpf_cgroup_ancestor" => {
            host_fn!(|c, of: *const Cgroup, level: i32| task::cgroup_ancestor(c, of, level))
        }
        "bpf_task_under_cgroup" => {
            host_fn!(|c, p: *const Task, of: *const Cgroup| task::is_under_cgroup(c, p, of))
        }
        // None ever goes.
        "bpf_cgroup_acquire" => host_fn!(|c, of: *const Cgroup| of),
        "bpf_cgroup_release" => host_fn!(|c, of: *const Cgroup| ()),
        "bpf_iter_css_new" => {
            host_fn!(|c, it: *mut CssIter, start: *const Css, flags: u32| {
                task::css_iter_new(c, it, start, flags)
            })
        }
        "bpf_iter_css_next" => host_fn!(|c, it: *mut CssIter| task::css_iter_next(c, it)),
        "bpf_iter_css_destroy" => host_fn!(|c, it: *mut CssIter| ()),
        "bpf_res_spin_lock" => host_fn!(|c, lock: *mut u32| res_lock(c, lock)),
        "bpf_res_spin_unlock" => host_fn!(|c, lock: *mut u32| primitives::unlock(c, lock)),
        "bpf_res_spin_lock_irqsave" => host_fn!(|c, lock: *mut u32, flags: *mut u64| {
            // SAFETY: the policy's own variable; a wild pointer faults, and that is caught.
            unsafe { flags.write(0) };
            res_lock(c, lock)
        }),
        "bpf_res_spin_unlock_irqrestore" => {
            host_fn!(|c, lock: *mut u32, flags: *mut u64| primitives::unlock(c, lock))
        }
        // Nothing interrupts an op in the virtual kernel.
        "bpf_rcu_read_lock"
        | "bpf_rcu_read_unlock"
        | "bpf_preempt_disable"
        | "bpf_preempt_enable"
        | "bpf_local_irq_restore" => host_fn!(|c| ()),
        "bpf_local_irq_save" => host_fn!(|c, flags: *mut u64| {
            // SAFETY: as above.
            unsafe { flags.write(0) }
        }),
        "bpf_rdonly_cast" | "bpf_cast_to_kern_ctx" => host_fn!(|c, pointer: u64| pointer),
        _ => return None,
    })
}

fn repeat(context: Context, nr: u32, function: u64, data: u64, flags: u64) -> i64 {
    if flags != 0 {
        return EINVAL;
    }
    if nr > primitives::STEPS_MAX {
        return E2BIG;
    }
    for index in 0..nr {
        primitives::step(context);
        if context.call_back(function, [index.into(), data, 0, 0]) as u32 != 0 {
            return i64::from(index) + 1;
        }
    }
    nr.into()
}

fn for_each(context: Context, of: *const u64, function: u64, data: u64, flags: u64) -> i64 {
    if flags != 0 {
        return EINVAL;
    }
    let (mut cursor, mut key, mut value) = (0, ptr::null(), ptr::null_mut());
    let mut nr = 0;
    while primitives::step(context)
        && map::next(context, of, &raw mut cursor, &raw mut key, &raw mut value)
    {
        nr += 1;
        let arguments = [of as u64, key as u64, value as u64, data];
        if context.call_back(function, arguments) as u32 != 0 {
            break;
        }
    }
    nr
}

fn probe_read(to: *mut u8, bytes: u32, from: *const u8) -> i64 {
    const EFAULT: i64 = -14;
    // SAFETY: the policy's own memory; a wild pointer faults, and that is caught.
    unsafe {
        if (from as u64) < 4096 {
            to.write_bytes(0, bytes as usize);
            return EFAULT;
        }
        to.copy_from(from, bytes as usize);
    }
    0
}

fn probe_read_str(to: *mut u8, bytes: u32, from: *const u8) -> i64 {
    const EFAULT: i64 = -14;
    if bytes == 0 {
        return 0;
    }
    // SAFETY: as above.
    unsafe {
        if (from as u64) < 4096 {
            to.write(0);
            return EFAULT;
        }
        for index in 0..bytes as usize {
            let byte = if index + 1 < bytes as usize {
                from.add(index).read()
            } else {
                0
            };
            to.add(index).write(byte);
            if byte == 0 {
                return index as i64 + 1;
            }
        }
    }
    bytes.into()
}

fn compare(a: *const u8, bytes: u32, b: *const u8) -> i32 {
    for index in 0..bytes as usize {
        // SAFETY: as above.
        let (left, right) = unsafe { (a.add(index).read(), b.add(index).read()) };
        if left != right {
            return if left < right { -1 } else { 1 };
        }
        if left == 0 {
            break;
        }
    }
    0
}

fn exchange(context: Context, place: *mut u64, pointer: u64) -> u64 {
    primitives::sync(context);
    // SAFETY: as above.
    unsafe { place.replace(pointer) }
}

fn pid_tgid(context: Context) -> u64 {
    let current = task::current(context);
    // SAFETY: a CPU has a task, its idle one if no other.
    let (pid, tgid) = unsafe { ((*current).pid, (*current).tgid) };
    u64::from(tgid as u32) << 32 | u64::from(pid as u32)
}

/// The helper of a number; the error is its name.
fn helper(number: i32) -> Result<HostFn, String> {
    Ok(match number {
        1 => host_fn!(|c, of: *const u64, key: *const u8| map::lookup(c, of, key)),
        2 => host_fn!(
            |c, of: *const u64, key: *const u8, value: *const u8, flags: u64| {
                map::update(c, of, key, value, flags)
            }
        ),
        3 => host_fn!(|c, of: *const u64, key: *const u8| map::delete(c, of, key)),
        4 | 113 => {
            host_fn!(|c, to: *mut u8, bytes: u32, from: *const u8| probe_read(to, bytes, from))
        }
        45 | 115 => {
            host_fn!(|c, to: *mut u8, bytes: u32, from: *const u8| probe_read_str(to, bytes, from))
        }
        5 | 125 | 160 => host_fn!(|c| time::now(c)),
        6 => host_fn!(|c, fmt: *const c_char, size: u32, a: u64, b: u64, d: u64| {
            let words = [a, b, d];
            text::print(c, fmt, words.as_ptr(), 24, false)
        }),
        7 => host_fn!(|c| time::random(c)),
        8 => host_fn!(|c| cpu::smp_processor_id(c)),
        14 => host_fn!(|c| pid_tgid(c)),
        // Every task is root's.
        15 => host_fn!(|c| 0u64),
        16 => host_fn!(|c, to: *mut u8, bytes: u32| current_comm(c, to, bytes)),
        35 | 158 => host_fn!(|c| task::current(c)),
        42 => host_fn!(|c| cpu::node(c, cpu::smp_processor_id(c) as i32)),
        55 => host_fn!(
            |c, of: *const u64, flags: u64, value: *mut u8, bytes: u32| map::event_value(
                c, of, flags, value, bytes
            )
        ),
        87 => host_fn!(|c, of: *const u64, value: *const u8, flags: u64| map::push(
            c, of, value, flags
        )),
        88 => host_fn!(|c, of: *const u64, value: *mut u8| map::pop(c, of, value, false)),
        89 => host_fn!(|c, of: *const u64, value: *mut u8| map::pop(c, of, value, true)),
        93 => host_fn!(|c, lock: *mut u32| primitives::lock(c, lock, OTHER_LOCK, ptr::null())),
        94 => host_fn!(|c, lock: *mut u32| primitives::unlock(c, lock)),
        118 => host_fn!(|c| jiffies(c)),
        130 => host_fn!(
            |c, of: *const u64, data: *const u8, bytes: u64, flags: u64| map::ring_output(
                c, of, bytes, flags
            )
        ),
        131 => {
            host_fn!(
                |c, of: *const u64, bytes: u64, flags: u64| map::ring_reserve(c, of, bytes, flags)
            )
        }
        132 | 133 => host_fn!(|c, record: *mut u8, flags: u64| map::ring_release(c, record)),
        134 => host_fn!(|c, of: *const u64, flags: u64| map::ring_query(c, of, flags)),
        153 => host_fn!(|c, variable: u64, cpu: u32| per_cpu(c, variable, cpu)),
        154 => host_fn!(|c, variable: u64| per_cpu(c, variable, cpu::smp_processor_id(c))),
        156 => host_fn!(
            |c, of: *const u64, p: *mut Task, init: *const u8, flags: u64| {
                map::storage_get(c, of, p, init, flags)
            }
        ),
        157 => host_fn!(|c, of: *const u64, p: *mut Task| map::storage_delete(c, of, p)),
        164 => host_fn!(|c, of: *const u64, function: u64, data: u64, flags: u64| {
            for_each(c, of, function, data, flags)
        }),
        165 => host_fn!(|c,
                         to: *mut u8,
                         size: u32,
                         fmt: *const c_char,
                         args: *const u64,
                         bytes: u32| {
            text::print_into(c, to, size, fmt, args, bytes)
        }),
        169 => host_fn!(|c, timer: *mut Timer, of: *const u64, flags: u64| {
            time::timer_init(c, timer, of, flags)
        }),
        170 => host_fn!(|c, timer: *mut Timer, function: *const c_void| {
            time::timer_set_callback(c, timer, function)
        }),
        171 => host_fn!(|c, timer: *mut Timer, nsecs: u64, flags: u64| {
            time::timer_start(c, timer, nsecs, flags)
        }),
        172 => host_fn!(|c, timer: *mut Timer| time::timer_cancel(c, timer)),
        177 => host_fn!(
            |c, fmt: *const c_char, size: u32, args: *const u64, bytes: u32| {
                text::print(c, fmt, args, bytes, false)
            }
        ),
        181 => host_fn!(|c, nr: u32, function: u64, data: u64, flags: u64| {
            repeat(c, nr, function, data, flags)
        }),
        182 => host_fn!(|c, a: *const u8, bytes: u32, b: *const u8| compare(a, bytes, b)),
        210 => host_fn!(
            |c, of: *const u64, cgroup: *const Cgroup, init: *const u8, flags: u64| {
                map::cgroup_storage_get(c, of, cgroup, init, flags)
            }
        ),
        211 => {
            host_fn!(
                |c, of: *const u64, cgroup: *const Cgroup| map::cgroup_storage_delete(
                    c, of, cgroup
                )
            )
        }
        194 => host_fn!(|c, place: *mut u64, pointer: u64| exchange(c, place, pointer)),
        195 => host_fn!(|c, of: *const u64, key: *const u8, cpu: u32| {
            map::lookup_percpu(c, of, key, cpu)
        }),
        _ => return Err(helper_name(number)),
    })
}

/// The names of helpers that schedulers call and the virtual kernel has not.
fn helper_name(number: i32) -> String {
    let name = match number {
        109 => "bpf_send_signal",
        209 => "bpf_user_ringbuf_drain",
        _ => return format!("number {number}"),
    };
    name.to_owned()
}

/// Brings fields up to date that an object is about to read. `base` is the address of their structure, 0 if it is not known.
fn bring_up_to_date(context: Context, base: u64, of: u32) {
    let is = |structure: Of| of & structure as u32 != 0;
    if is(Of::RunQueue) {
        let now = context.env(|env| env.cpu.now.get());
        for index in 0..context.with(|host| host.cpus.len()) {
            let rq = context.with(|host| host.cpus[index].get_mut().run_queue);
            if base != 0 && base != rq as u64 {
                continue;
            }
            let cpu = CpuId(index as u32);
            let (all, of_scx) =
                context.ask(|kernel| (kernel.nr_running(cpu, false), kernel.nr_running(cpu, true)));
            // SAFETY: it lives as long as the host, which has put one of an object.
            let rq = unsafe { &mut *rq.cast::<ObjectRunQueue>() };
            rq.set_clock(now);
            rq.set_lengths(all, of_scx);
        }
    }
    let known = |context: Context, task: TaskId| {
        let facts = context.ask(|kernel| kernel.task_facts(task));
        context.with(|host| host.tasks.set_facts(task, &facts));
    };
    if !is(Of::Task) && !is(Of::Entity) {
        return;
    }
    if base == 0 {
        for index in 0..context.with(|host| host.tasks.bound()) {
            known(context, TaskId(index as u32));
        }
        return;
    }
    // The entity is a part of the task.
    if let Some((task, _)) = context.with(|host| host.tasks.at(base as usize)) {
        known(context, task);
    }
}

/// Stands for `runqueues`, which each CPU has.
const RUN_QUEUES: u64 = 0x10;

/// Stands for `cpufreq_cpu_data`: no driver has put a policy there, and what lies there cannot be read.
const FREQUENCY_POLICIES: u64 = 0x18;

/// The address that stands for a variable that each CPU has.
fn per_cpu_variable(name: &str) -> Option<u64> {
    match name {
        "runqueues" => Some(RUN_QUEUES),
        "cpufreq_cpu_data" => Some(FREQUENCY_POLICIES),
        _ => None,
    }
}

/// `bpf_per_cpu_ptr()`.
fn per_cpu(context: Context, variable: u64, cpu: u32) -> *mut u8 {
    context.with(|host| match host.cpus.get_mut(cpu as usize) {
        Some(it) if variable == RUN_QUEUES => it.get_mut().run_queue.cast(),
        _ => ptr::null_mut(),
    })
}

/// `bpf_jiffies64()`.
fn jiffies(context: Context) -> u64 {
    context.charge_kfunc();
    let tick_ns = 1_000_000_000 / u64::from(context.with(|host| host.hz).max(1));
    context.env(|env| env.cpu.now.get()) / tick_ns
}

/// `bpf_get_current_comm()`.
fn current_comm(context: Context, to: *mut u8, bytes: u32) -> i64 {
    if bytes == 0 {
        return EINVAL;
    }
    let current = task::current(context);
    // SAFETY: a CPU has a task, its idle one if no other, whose name ends; a wild pointer of the policy faults, and that is
    // caught.
    unsafe {
        let from = (&raw const (*current).comm).cast::<u8>();
        let length = (bytes as usize).min(16);
        to.write_bytes(0, bytes as usize);
        to.copy_from_nonoverlapping(from, length - 1);
    }
    0
}

/// A function that the kernel once had under another name: the calls of objects that were compiled then.
fn retired(version: KernelVersion, name: &str) -> Option<HostFn> {
    let today = match name {
        "scx_bpf_dispatch" => "scx_bpf_dsq_insert",
        "scx_bpf_dispatch_vtime" => "scx_bpf_dsq_insert_vtime",
        "scx_bpf_consume" => "scx_bpf_dsq_move_to_local",
        "scx_bpf_dispatch_from_dsq" => "scx_bpf_dsq_move",
        "scx_bpf_dispatch_vtime_from_dsq" => "scx_bpf_dsq_move_vtime",
        "scx_bpf_dispatch_from_dsq_set_slice" => "scx_bpf_dsq_move_set_slice",
        "scx_bpf_dispatch_from_dsq_set_vtime" => "scx_bpf_dsq_move_set_vtime",
        _ => return None,
    };
    kfunc(version, today)
}

/// `Hooks::load`. It suspends nobody, so that it charges no instructions, and what was seen stays so.
unsafe extern "C" fn load(run: *mut c_void, place: u64, bytes: u64) {
    // SAFETY: translated code alone calls this, and hands on its first argument.
    let context = unsafe { Context::of(run.cast()) };
    primitives::load_by_instruction(context, place as usize, bytes as u32);
}

/// `Hooks::store`, likewise.
unsafe extern "C" fn store(run: *mut c_void, place: u64, bytes: u64) {
    // SAFETY: as in `load`.
    let context = unsafe { Context::of(run.cast()) };
    primitives::store_by_instruction(context, place as usize, bytes as u32);
}

/// Functions that the translated code calls by itself.
fn hooks() -> Hooks {
    Hooks {
        load,
        store,
        atomic: host_fn!(|c, place: *const c_void, bytes: u64, writes: bool| {
            match writes {
                true => primitives::atomic(c, place),
                false => primitives::sync(c),
            }
        }),
        step: host_fn!(|c| {
            // A loop may wait for what another CPU does.
            primitives::sync(c);
            primitives::step(c)
        }),
        poison: host_fn!(|c, number: u64| c.poisoned(number as usize)),
        exhausted: host_fn!(|c| c.loops_without_end()),
        read: host_fn!(|c, base: u64, of: u32| bring_up_to_date(c, base, of)),
    }
}
