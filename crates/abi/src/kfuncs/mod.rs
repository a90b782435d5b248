//! The kernel's functions that policies call, one short function each. Those that touch what CPUs
//! share ask the virtual kernel; the rest are answered here.

pub mod cpu;
pub mod dsq;
pub mod map;
pub mod task;
pub mod text;
pub mod time;

use schedlab_engine::policy::{Reply, Request};
use schedlab_trace::TaskId;

use crate::host::Context;

/// Asks for something whose answer is a truth value.
fn ask_bool(context: Context, request: Request) -> bool {
    match context.ask(request) {
        Reply::Bool(answer) => answer,
        Reply::Done => true,
        Reply::Int(answer) => answer != 0,
        other => mismatch(context, &other),
    }
}

/// Asks for something whose answer is a number.
fn ask_int(context: Context, request: Request) -> i64 {
    match context.ask(request) {
        Reply::Int(answer) => answer,
        Reply::Bool(answer) => answer.into(),
        Reply::Done => 0,
        Reply::Cpu(cpu, _) => cpu.into(),
        other => mismatch(context, &other),
    }
}

/// Asks for a task.
fn ask_task(context: Context, request: Request) -> Option<TaskId> {
    match context.ask(request) {
        Reply::Task(task) => task,
        Reply::Int(_) | Reply::Done => None,
        other => mismatch(context, &other),
    }
}

/// The virtual kernel broke the contract: our bug, not the policy's.
fn mismatch(context: Context, reply: &Reply) -> ! {
    context.fault(format!(
        "the virtual kernel answered {reply:?}, which does not fit the question: please report this"
    ))
}
