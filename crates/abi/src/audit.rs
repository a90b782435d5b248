//! The audit: a policy that looks at another task than those it is handed, and lets no probe pay for that, ends the run.
//!
//! A policy that is compiled for it (`compiler::Compilation::audit`) reports each load and store before it happens
//! (`include/native/scx/audit.h`). The data of a task: its `task_struct`, its values in task storage, and the context
//! in the arena that `include/lab/task.h` reports. An op may look at
//! - the tasks that are its arguments, and the one that its CPU runs: that CPU has their lines;
//! - each task that one of its probes has looked at (`examine`, `consult`, `alter`, `lab_recalculated`);
//! - the lines of a context that it has touched (`lab_touch`), of a node in a tree, say;
//! - the `task_struct` of a task that a kfunc has looked up, whose time includes that;
//! - what the policy says is on purpose without charge (`lab_unaudited`).
//!
//! Nothing here lets time pass or touches the cache model: who passes has the results that it has without an audit.
// Model: atomic operations are not reported.

pub mod state;

use std::ffi::c_void;

use schedlab_trace::TaskId;

use crate::host::{Context, Host};
use crate::kfuncs;
use crate::layout::{DsqIter, Task};
use crate::primitives;

use self::state::{Audit, Cpu, Part};

/// The lines that policies arrange their data in (`LAB_CACHELINE`).
const LINE_BYTES: u64 = 64;

/// The type of a task's context (`LAB_TASKS()`).
const CONTEXT: &str = "task_t";

/// The target of an access: a part of a task, which task, and how far behind its beginning.
struct Met<'a> {
    part: Part,
    task: TaskId,
    of: &'a str,
    offset: u64,
}

fn met(host: &Host, place: usize) -> Option<Met<'_>> {
    if let Some(at) = host.maps.arena_offset(place) {
        let (task, offset) = host.audit.as_ref()?.context_at(at)?;
        return Some(Met {
            part: Part::Context((at / LINE_BYTES) as usize),
            task,
            of: "context",
            offset,
        });
    }
    if let Some((task, offset)) = host.tasks.at(place) {
        return Some(Met {
            part: Part::Struct,
            task,
            of: "task_struct",
            offset,
        });
    }
    let (task, of, offset) = host.maps.storage_at(place)?;
    Some(Met {
        part: Part::Storage,
        task: TaskId(u32::try_from(task).ok()?),
        of,
        offset,
    })
}

/// The policy is about to access memory; the code that does so is right before `code`.
pub fn access(context: Context, place: *const c_void, write: bool, code: *const c_void) {
    let refused = context.with(|host| {
        let cpu = host.cpu();
        host.audit.as_ref().filter(|audit| audit.payment)?;
        let met = met(host, place as usize)?;
        if host.audit.as_ref()?.cpus[cpu].may_access(met.part, met.task) {
            return None;
        }
        let verb = if write { "writes" } else { "reads" };
        let (of, offset, pid) = (met.of, met.offset, met.task.pid());
        let object = host.image.object();
        let field = match met.part {
            Part::Context(_) => object.field_of(CONTEXT, offset),
            Part::Struct => object.field_of("task_struct", offset),
            Part::Storage => object.field_of_value(of, offset),
        };
        let what = match field {
            Some(field) => format!("`{field}` in the {of} of task {pid}"),
            None => format!("the {of} of task {pid}, at byte {offset}"),
        };
        Some(format!(
            "it {verb} {what}, and no probe of this op has looked at that task: examine(), consult() or alter() it before, or say why not beside lab_unaudited()"
        ))
    });
    if let Some(message) = refused {
        context.fault_before(code as usize, &message);
    }
}

/// Memory of the arena becomes the context of a task.
pub extern "C" fn context(context: Context, place: *const c_void, bytes: u32, index: u32) {
    in_arena(context, place, |audit, offset| {
        audit.give(offset, bytes, TaskId(index));
    });
}

/// A context in the arena belongs to no task any more.
pub extern "C" fn context_ends(context: Context, place: *const c_void) {
    in_arena(context, place, Audit::take_back);
}

fn in_arena(context: Context, place: *const c_void, f: impl FnOnce(&mut Audit, u64)) {
    context.with(|host| {
        let offset = host.maps.arena_offset(place as usize);
        if let (Some(audit), Some(offset)) = (&mut host.audit, offset) {
            f(audit, offset);
        }
    });
}

/// A stretch without checks begins or ends.
pub extern "C" fn unaudited(context: Context, begins: bool) {
    on_cpu(context, |cpu| cpu.pause(begins));
}

fn on_cpu(context: Context, f: impl FnOnce(&mut Cpu)) {
    context.with(|host| {
        let cpu = host.cpu();
        if let Some(audit) = &mut host.audit {
            f(&mut audit.cpus[cpu]);
        }
    });
}

/// [`primitives::touch`], which pays for the lines.
pub extern "C" fn touch(context: Context, place: *const c_void, bytes: u32, write: bool) {
    primitives::touch(context, place, bytes, write);
    if let Some(offset) = context.with(|host| host.maps.arena_offset(place as usize)) {
        let last = (offset + u64::from(bytes.saturating_sub(1))) / LINE_BYTES;
        for line in offset / LINE_BYTES..=last {
            on_cpu(context, |cpu| cpu.touch(line as usize));
        }
    }
}

/// [`primitives::examine`], which pays.
pub extern "C" fn examine(context: Context, place: *const c_void, index: u32) {
    primitives::examine(context, place, index);
    on_cpu(context, |cpu| cpu.pay(TaskId(index)));
}

/// [`primitives::look`], which pays.
pub extern "C" fn look(context: Context, place: *const c_void, index: u32, write: bool) {
    primitives::look(context, place, index, write);
    on_cpu(context, |cpu| cpu.pay(TaskId(index)));
}

/// [`primitives::recalculate`], which pays.
pub extern "C" fn recalculate(context: Context, place: *const c_void, index: u32) {
    primitives::recalculate(context, place, index);
    on_cpu(context, |cpu| cpu.pay(TaskId(index)));
}

/// Notes who was looked up.
fn found(context: Context, task: *mut Task) -> *mut Task {
    // SAFETY: it is null or one of our shadows, which live as long as the host.
    let index = unsafe { task.as_ref() }.map(|task| task.lab_index);
    if let Some(index) = index.filter(|index| *index != Task::NOBODY) {
        on_cpu(context, |cpu| cpu.look_up(TaskId(index)));
    }
    task
}

/// [`kfuncs::dsq::peek`]: the kernel looks at the first task.
pub extern "C" fn peek(context: Context, dsq: u64) -> *mut Task {
    found(context, kfuncs::dsq::peek(context, dsq))
}

/// [`kfuncs::dsq::iter_next`]: the kernel follows the links in tasks.
pub extern "C" fn iter_next(context: Context, iterator: *mut DsqIter) -> *mut Task {
    found(context, kfuncs::dsq::iter_next(context, iterator))
}

/// [`kfuncs::task::from_pid`]: the kernel counts who refers to a task.
pub extern "C" fn from_pid(context: Context, pid: i32) -> *mut Task {
    found(context, kfuncs::task::from_pid(context, pid))
}

/// [`kfuncs::task::from_tid`]: the kernel compares the number in the task.
pub extern "C" fn from_tid(context: Context, tid: u64) -> *mut Task {
    found(context, kfuncs::task::from_tid(context, tid))
}
