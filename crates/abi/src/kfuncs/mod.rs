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

/// An answer that does not fit its question.
struct Mismatch(String);

/// Asks, and reads the answer; the virtual kernel breaking the contract is our bug, not the policy's.
#[inline(always)]
fn ask<R>(
    context: Context,
    request: Request,
    read: impl FnOnce(&Reply) -> Result<R, Mismatch>,
) -> R {
    match context.ask(request, read) {
        Ok(answer) => answer,
        Err(Mismatch(reply)) => context.fault(format!(
            "the virtual kernel answered {reply}, which does not fit the question: please report this"
        )),
    }
}

#[cold]
fn mismatch<R>(reply: &Reply) -> Result<R, Mismatch> {
    Err(Mismatch(format!("{reply:?}")))
}

/// Asks for something that has no answer.
#[inline(always)]
fn tell(context: Context, request: Request) {
    context.ask(request, |_| ());
}

/// Asks for something whose answer is a truth value.
#[inline(always)]
fn ask_bool(context: Context, request: Request) -> bool {
    ask(context, request, |reply| match *reply {
        Reply::Bool(answer) => Ok(answer),
        Reply::Done => Ok(true),
        Reply::Int(answer) => Ok(answer != 0),
        _ => mismatch(reply),
    })
}

/// Asks for something whose answer is a number.
#[inline(always)]
fn ask_int(context: Context, request: Request) -> i64 {
    ask(context, request, |reply| match *reply {
        Reply::Int(answer) => Ok(answer),
        Reply::Bool(answer) => Ok(answer.into()),
        Reply::Done => Ok(0),
        Reply::Cpu(cpu, _) => Ok(cpu.into()),
        _ => mismatch(reply),
    })
}

/// Asks for a task.
#[inline(always)]
fn ask_task(context: Context, request: Request) -> Option<TaskId> {
    ask(context, request, |reply| match *reply {
        Reply::Task(task) => Ok(task),
        Reply::Int(_) | Reply::Done => Ok(None),
        _ => mismatch(reply),
    })
}
