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

use std::ffi::c_void;

use schedlab_engine::policy::{OpCall, OpKind, OpSet};
use schedlab_trace::TaskId;

use crate::host::{Context, Host};
use crate::kfuncs;
use crate::layout::{DsqIter, Task};
use crate::primitives;

/// Ops that print the state for people, when the policy is gone already.
const DUMPS: OpSet = OpSet::NONE
    .with(OpKind::Dump)
    .with(OpKind::DumpCpu)
    .with(OpKind::DumpTask);

/// The type of a task's context (`LAB_TASKS()`).
const CONTEXT: &str = "task_t";

/// The lines that policies arrange their data in (`LAB_CACHELINE`).
const LINE_BYTES: u64 = 64;

/// Which of a task's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// The policy's data of it in the arena; in which line.
    Context(usize),
    /// Its data in task storage.
    Storage,
    /// The kernel's data of it.
    Struct,
}

/// An op that is under way.
struct Op {
    /// Later ones of its CPU have greater numbers.
    number: u64,
    /// It looks at what it likes.
    free: bool,
    /// So many `lab_unaudited()` are around what runs.
    pauses: u32,
}

/// One virtual CPU.
#[derive(Default)]
struct Cpu {
    /// Ops under way, the outer one first.
    ops: Vec<Op>,
    /// The number of the latest op.
    latest: u64,
    /// By task: the op that was handed it or let a probe look at it last.
    paid: Vec<u64>,
    /// By task: the op in which a kfunc has looked it up last.
    looked_up: Vec<u64>,
    /// By line of the arena: the op that has touched it last.
    touched: Vec<u64>,
}

impl Cpu {
    fn begin(&mut self, free: bool) {
        self.latest += 1;
        self.ops.push(Op {
            number: self.latest,
            free,
            pauses: 0,
        });
    }

    fn end(&mut self) {
        self.ops.pop();
    }

    fn note(marks: &mut Vec<u64>, index: usize, number: u64) {
        if marks.len() <= index {
            marks.resize(index + 1, 0);
        }
        marks[index] = number;
    }

    fn pay(&mut self, task: TaskId) {
        Cpu::note(&mut self.paid, task.index(), self.latest);
    }

    fn look_up(&mut self, task: TaskId) {
        Cpu::note(&mut self.looked_up, task.index(), self.latest);
    }

    fn touch(&mut self, line: usize) {
        Cpu::note(&mut self.touched, line, self.latest);
    }

    /// Whether the op that runs may access that part of a task. What an op that is nested in it has paid for is in
    /// this CPU's cache, too.
    fn may_access(&self, part: Part, task: TaskId) -> bool {
        let Some(op) = self.ops.last() else {
            return true;
        };
        let since = |marks: &[u64], index| marks.get(index).is_some_and(|it| *it >= op.number);
        op.free
            || op.pauses > 0
            || since(&self.paid, task.index())
            || match part {
                Part::Context(line) => since(&self.touched, line),
                Part::Storage => false,
                Part::Struct => since(&self.looked_up, task.index()),
            }
    }
}

/// The state of a run's auditor.
pub struct Audit {
    /// An access that is not paid for is refused.
    payment: bool,
    cpus: Box<[Cpu]>,
    /// By word of the arena: the task whose context it is part of, and the word's number in it.
    contexts: Vec<Option<(TaskId, u32)>>,
}

impl Audit {
    /// Of a run with so many CPUs. Without `payment` it knows only whose memory is whose.
    pub fn new(nr_cpus: usize, payment: bool) -> Audit {
        Audit {
            payment,
            cpus: (0..nr_cpus).map(|_| Cpu::default()).collect(),
            contexts: Vec::new(),
        }
    }

    /// An op begins on `cpu`, whose task is `own`.
    pub fn begin(&mut self, cpu: usize, own: Option<TaskId>, op: &OpCall) {
        let cpu = &mut self.cpus[cpu];
        cpu.begin(DUMPS.has(op.kind()));
        for task in arguments(op).into_iter().chain([own]).flatten() {
            cpu.pay(task);
        }
    }

    /// The op that began last on `cpu` ends.
    pub fn end(&mut self, cpu: usize) {
        self.cpus[cpu].end();
    }

    /// Memory of the arena becomes a task's.
    fn give(&mut self, offset: u64, bytes: u32, task: TaskId) {
        let (first, words) = ((offset / 8) as usize, bytes / 8);
        let end = first + words as usize;
        if self.contexts.len() < end {
            self.contexts.resize(end, None);
        }
        let context = self.contexts[first..end].iter_mut();
        for (place, word) in context.zip(0..) {
            *place = Some((task, word));
        }
    }

    /// The context that begins there belongs to no task any more.
    fn take_back(&mut self, offset: u64) {
        let behind = self.contexts.iter_mut().skip((offset / 8) as usize);
        for (place, word) in behind.zip(0..) {
            match place {
                Some((_, number)) if *number == word => *place = None,
                _ => return,
            }
        }
    }

    /// The task whose context lies there in the arena, and how far behind its beginning.
    pub fn context_at(&self, offset: u64) -> Option<(TaskId, u64)> {
        let (task, word) = (*self.contexts.get((offset / 8) as usize)?)?;
        Some((task, u64::from(word) * 8 + offset % 8))
    }
}

/// The tasks that an op is called with.
pub fn arguments(op: &OpCall) -> [Option<TaskId>; 2] {
    let other = match *op {
        OpCall::Dispatch { prev, .. } => prev,
        OpCall::Yield { to, .. } => to,
        _ => None,
    };
    [op.task(), other]
}

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
    on_cpu(context, |cpu| {
        if let Some(op) = cpu.ops.last_mut() {
            op.pauses = match begins {
                true => op.pauses + 1,
                false => op.pauses - 1,
            };
        }
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    const A: TaskId = TaskId(0);
    const B: TaskId = TaskId(7);

    #[test]
    fn an_op_may_access_what_it_was_handed_or_has_paid_for() {
        let mut audit = Audit::new(2, true);
        let enqueue = OpCall::Enqueue {
            task: A,
            enq_flags: 0,
        };
        audit.begin(1, Some(TaskId(3)), &enqueue);
        let cpu = &mut audit.cpus[1];
        for (task, may) in [(A, true), (TaskId(3), true), (B, false)] {
            assert_eq!(cpu.may_access(Part::Storage, task), may, "{task:?}");
            assert_eq!(cpu.may_access(Part::Struct, task), may, "{task:?}");
        }
        cpu.look_up(B);
        assert!(cpu.may_access(Part::Struct, B) && !cpu.may_access(Part::Storage, B));
        cpu.touch(5);
        assert!(cpu.may_access(Part::Context(5), B) && !cpu.may_access(Part::Context(6), B));
        assert!(!cpu.may_access(Part::Storage, B));
        cpu.pay(B);
        assert!(cpu.may_access(Part::Storage, B) && cpu.may_access(Part::Context(6), B));
        // The next op pays again.
        audit.end(1);
        audit.begin(1, None, &enqueue);
        let cpu = &audit.cpus[1];
        assert!(!cpu.may_access(Part::Storage, B) && !cpu.may_access(Part::Struct, B));
        assert!(!cpu.may_access(Part::Storage, TaskId(3)));
    }

    #[test]
    fn what_a_nested_op_has_paid_for_is_there_and_what_it_may_do_is_its_own() {
        let mut cpu = Cpu::default();
        cpu.begin(false);
        cpu.pay(A);
        cpu.ops[0].pauses = 1;
        cpu.begin(false);
        assert!(!cpu.may_access(Part::Storage, A));
        cpu.pay(B);
        cpu.end();
        cpu.ops[0].pauses = 0;
        assert!(cpu.may_access(Part::Storage, A) && cpu.may_access(Part::Storage, B));
        assert!(!cpu.may_access(Part::Storage, TaskId(1)));
    }

    #[test]
    fn words_of_the_arena_are_a_tasks_until_they_are_given_back() {
        let mut audit = Audit::new(1, true);
        audit.give(4096, 64, A);
        audit.give(4160, 64, B);
        assert_eq!(audit.context_at(4095), None);
        assert_eq!(audit.context_at(4159), Some((A, 63)));
        assert_eq!(audit.context_at(4164), Some((B, 4)));
        audit.take_back(4096);
        assert_eq!(audit.context_at(4096), None);
        assert_eq!(audit.context_at(4159), None);
        assert_eq!(audit.context_at(4160), Some((B, 0)));
        assert_eq!(audit.context_at(1 << 31), None);
    }
}
