//! Calling a policy's ops.

use std::ffi::{CString, c_char, c_void};

use schedlab_bpf::translate::Entry;
use schedlab_engine::policy::{DumpContext, OpCall, OpKind, PreemptReason};
use schedlab_trace::CpuId;
use schedlab_workload::{Bandwidth, CgroupSettings};

use crate::bpf::Word;
use crate::host::{Context, Host};
use crate::layout::{
    self, CgroupInitArgs, CpuMask, CpuReleaseArgs, ExitInfo, ExitTaskArgs, InitTaskArgs,
};
use crate::maps::EINVAL;

/// Calls an op's function.
#[inline(always)]
pub fn call(context: Context, op: &OpCall) -> i64 {
    let (ops, is_bpf) =
        context.read(|host| (std::ptr::from_ref(&host.ops), host.image.bpf().is_some()));
    // SAFETY: the table never changes and lives as long as the host.
    let ops = unsafe { &*ops };
    // A program of an object gets its arguments as words in an array.
    macro_rules! invoke {
        ($op:ident, $result:ty, $($argument:expr),*) => {
            match is_bpf {
                false => $op($($argument),*),
                true => <$result>::of(program(context, $op as usize, &[$(Word::word($argument)),*])),
            }
        };
    }
    let task = |task| context.pointer(Some(task));
    let group = |cgroup| {
        let place = context.with(|host| host.cgroups.place(cgroup));
        place.cgroup.cast_mut().cast::<c_void>()
    };
    // Only an object may have the cid form.
    let number = |cpu: CpuId| match is_bpf {
        false => cpu.0 as i32,
        true => context.with(|host| host.cids.argument(cpu)),
    };
    // SAFETY: each function pointer comes from the policy's own table and has the signature that
    // `struct sched_ext_ops` gives it; the pointers handed over live until the op returns. Faults in
    // policy code are caught (trap.rs), and nothing unwinds through it.
    unsafe {
        match *op {
            OpCall::SelectCpu {
                task: p,
                prev_cpu,
                wake_flags,
            } => {
                let op = ops.select_cpu;
                let cpu = op.map_or(0, |op| {
                    invoke!(op, i32, task(p), number(prev_cpu), wake_flags)
                });
                match is_bpf {
                    false => cpu.into(),
                    true => meant(context, cpu).into(),
                }
            }
            OpCall::Enqueue { task: p, enq_flags } => {
                let p = task(p);
                done(ops.enqueue.map(|op| invoke!(op, (), p, enq_flags)))
            }
            OpCall::Dequeue { task: p, deq_flags } => {
                done(ops.dequeue.map(|op| invoke!(op, (), task(p), deq_flags)))
            }
            OpCall::Dispatch { cpu, prev } => {
                let prev = context.pointer(prev);
                done(ops.dispatch.map(|op| invoke!(op, (), number(cpu), prev)))
            }
            OpCall::Tick { task: p } => done(ops.tick.map(|op| invoke!(op, (), task(p)))),
            OpCall::Runnable { task: p, enq_flags } => {
                done(ops.runnable.map(|op| invoke!(op, (), task(p), enq_flags)))
            }
            OpCall::Running { task: p } => done(ops.running.map(|op| invoke!(op, (), task(p)))),
            OpCall::Stopping { task: p, runnable } => {
                done(ops.stopping.map(|op| invoke!(op, (), task(p), runnable)))
            }
            OpCall::Quiescent { task: p, deq_flags } => {
                done(ops.quiescent.map(|op| invoke!(op, (), task(p), deq_flags)))
            }
            OpCall::Yield { from, to } => {
                let to = context.pointer(to);
                ops.yield_
                    .map_or(0, |op| (invoke!(op, u8, task(from), to) != 0).into())
            }
            OpCall::SetWeight { task: p, weight } => {
                done(ops.set_weight.map(|op| invoke!(op, (), task(p), weight)))
            }
            OpCall::SetCpumask { task: p } => {
                let p = task(p);
                let mask = match is_bpf && context.with(|host| host.cids.is_form) {
                    false => (*p).cpus_ptr,
                    true => cmask(context, (*p).cpus_ptr),
                };
                done(ops.set_cpumask.map(|op| invoke!(op, (), p, mask)))
            }
            OpCall::UpdateIdle { cpu, idle } => {
                done(ops.update_idle.map(|op| invoke!(op, (), number(cpu), idle)))
            }
            OpCall::CpuAcquire { cpu } => {
                let mut args = [0u64; 1];
                done(
                    ops.cpu_acquire.map(|op| {
                        invoke!(op, (), cpu.0 as i32, args.as_mut_ptr().cast::<c_void>())
                    }),
                )
            }
            OpCall::CpuRelease {
                cpu,
                reason,
                task: p,
            } => {
                let mut args = CpuReleaseArgs {
                    reason: match reason {
                        PreemptReason::Rt => 0,
                        PreemptReason::Deadline => 1,
                        PreemptReason::Stop => 2,
                        PreemptReason::Unknown => 3,
                    },
                    task: match p {
                        Some(p) => task(p),
                        None => context.with(|host| host.tasks.stopper(cpu.index())),
                    },
                };
                done(
                    ops.cpu_release
                        .map(|op| invoke!(op, (), cpu.0 as i32, &raw mut args)),
                )
            }
            OpCall::InitTask { task: p, fork } => {
                let mut args = InitTaskArgs {
                    fork,
                    cgroup: group(context.with(|host| host.tasks.cgroup(p))),
                };
                let op = ops.init_task;
                op.map_or(0, |op| invoke!(op, i32, task(p), &raw mut args).into())
            }
            OpCall::ExitTask { task: p, cancelled } => {
                let mut args = ExitTaskArgs { cancelled };
                done(
                    ops.exit_task
                        .map(|op| invoke!(op, (), task(p), &raw mut args)),
                )
            }
            OpCall::Enable { task: p } => done(ops.enable.map(|op| invoke!(op, (), task(p)))),
            OpCall::Disable { task: p } => done(ops.disable.map(|op| invoke!(op, (), task(p)))),
            OpCall::CpuOnline { cpu } => {
                done(ops.cpu_online.map(|op| invoke!(op, (), number(cpu))))
            }
            OpCall::CpuOffline { cpu } => {
                done(ops.cpu_offline.map(|op| invoke!(op, (), number(cpu))))
            }
            OpCall::CgroupInit { cgroup } => {
                let settings = CgroupSettings::default();
                let (period, quota, burst) = limit_us(&settings.bandwidth);
                let mut args = CgroupInitArgs {
                    weight: settings.weight,
                    bw_period_us: period,
                    bw_quota_us: quota,
                    bw_burst_us: burst,
                };
                let op = ops.cgroup_init;
                op.map_or(0, |op| {
                    invoke!(op, i32, group(cgroup), &raw mut args).into()
                })
            }
            OpCall::CgroupExit { cgroup } => {
                done(ops.cgroup_exit.map(|op| invoke!(op, (), group(cgroup))))
            }
            OpCall::CgroupPrepMove { task: p, from, to } => ops.cgroup_prep_move.map_or(0, |op| {
                invoke!(op, i32, task(p), group(from), group(to)).into()
            }),
            OpCall::CgroupMove { task: p, from, to } => done(
                ops.cgroup_move
                    .map(|op| invoke!(op, (), task(p), group(from), group(to))),
            ),
            OpCall::CgroupSetWeight { cgroup, weight } => done(
                ops.cgroup_set_weight
                    .map(|op| invoke!(op, (), group(cgroup), weight)),
            ),
            OpCall::CgroupSetBandwidth { cgroup, bandwidth } => {
                let (period, quota, burst) = limit_us(&bandwidth);
                let op = ops.cgroup_set_bandwidth;
                done(op.map(|op| invoke!(op, (), group(cgroup), period, quota, burst)))
            }
            OpCall::CgroupSetIdle { cgroup, idle } => done(
                ops.cgroup_set_idle
                    .map(|op| invoke!(op, (), group(cgroup), idle)),
            ),
            OpCall::Dump { context: about } => {
                let op = |about| done(ops.dump.map(|op| invoke!(op, (), about)));
                dump(context, about, op)
            }
            OpCall::DumpCpu {
                context: about,
                cpu,
                idle,
            } => {
                let op = |about| {
                    done(
                        ops.dump_cpu
                            .map(|op| invoke!(op, (), about, number(cpu), idle)),
                    )
                };
                dump(context, about, op)
            }
            OpCall::DumpTask {
                context: about,
                task: p,
            } => {
                let op = |about| done(ops.dump_task.map(|op| invoke!(op, (), about, task(p))));
                dump(context, about, op)
            }
            OpCall::Init => {
                beside_init(context, false);
                let result = ops.init.map_or(0, |op| invoke!(op, i32,));
                if result == 0 {
                    beside_init(context, true);
                }
                context.with(|host| host.initialized = result == 0);
                result.into()
            }
            OpCall::Exit { kind, code } => {
                let (reason, message, dump) = context.with(|host| {
                    let text = |text: &str| put_text(host, text);
                    (
                        text(kind.reason()),
                        text(&host.exit_message),
                        text(&host.dump),
                    )
                });
                let mut info = ExitInfo {
                    kind: kind as u64 as u32,
                    exit_cpu: context.with(|host| host.cpu() as i32),
                    exit_code: code,
                    flags: context.with(|host| u64::from(host.initialized)),
                    reason,
                    bt: std::ptr::null_mut(),
                    bt_len: 0,
                    msg: message,
                    dump,
                };
                done(ops.exit.map(|op| invoke!(op, (), &raw mut info)))
            }
            OpCall::TimerCallback { timer } => crate::kfuncs::time::callback(context, timer),
        }
    }
}

/// The CPU that `ops.select_cpu()` or `ops.select_cid()` of an object means; a negative number for no cid.
fn meant(context: Context, number: i32) -> i32 {
    match context.with(|host| host.cids.meant(number)) {
        Ok(cpu) => cpu,
        Err(what) => {
            context.ask(|kernel| kernel.violation(what));
            EINVAL as i32
        }
    }
}

/// The mask that `ops.set_cmask()` gets for a mask of CPUs.
fn cmask(context: Context, cpus: *const CpuMask) -> *const CpuMask {
    let cpus = context.set(cpus, "ops.set_cmask");
    let place = context.with(|host| host.put_cmask(&cpus));
    if place.is_null() {
        context.fault_outside("the arena has no room for the masks of ops.set_cmask()");
    }
    place.cast()
}

/// A text as C code is handed it.
fn put_text(host: &Host, text: &str) -> *mut c_char {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    host.memory.put_bytes(text.as_bytes_with_nul()).cast()
}

/// Runs an op that prints by scx_bpf_dump().
fn dump(
    context: Context,
    about: DumpContext,
    op: impl FnOnce(*mut layout::DumpContext) -> i64,
) -> i64 {
    let reason = context.with(|host| put_text(host, about.kind.reason()));
    let mut about = layout::DumpContext {
        kind: about.kind as u64 as u32,
        exit_code: about.code,
        reason,
        at_ns: about.at.ns(),
        at_jiffies: about.at_jiffies,
    };
    context.with(Host::begin_dump);
    let result = op(&raw mut about);
    context.with(Host::end_dump);
    result
}

/// Runs a program of an object.
fn program(context: Context, entry: usize, arguments: &[u64]) -> u64 {
    let argument = |at| arguments.get(at).copied().unwrap_or(0);
    context.with(|host| host.current().arguments = [argument(0), argument(1)]);
    // SAFETY: the table of an object has the addresses of its native code; the arguments live until it returns.
    unsafe {
        let entry: Entry = std::mem::transmute(entry);
        context.execute(entry, [arguments.as_ptr() as u64, 0, 0, 0])
    }
}

/// Runs the programs that a loader runs before `ops.init()`, programs of attaching among them, or after it.
fn beside_init(context: Context, after: bool) {
    let programs = context.with(|host| {
        let all = &mut host.beside_init;
        all.extract_if(.., |it| it.after == after)
            .collect::<Vec<_>>()
    });
    if programs.is_empty() {
        return;
    }
    let sleepable = context.with(|host| host.sleepable);
    // These programs may sleep, whatever ops.init() is.
    context.with(|host| host.sleepable = sleepable.with(OpKind::Init));
    for it in programs {
        let argument = context.with(|host| match it.argument.is_empty() {
            true => 0,
            false => host.memory.put_bytes(&it.argument) as u64,
        });
        // Its argument lives as long as the host.
        let result = context.call_back(it.entry as u64, [argument, 0, 0, 0]);
        if result as i32 != 0 && !it.place.is_empty() {
            let when = if after { "after" } else { "before" };
            context.fault_outside(&format!(
                "{}: {}(), which runs {when} ops.init(), has returned {}",
                it.place, it.name, result as i32
            ));
        }
    }
    context.with(|host| host.sleepable = sleepable);
}

fn done(_: Option<()>) -> i64 {
    0
}

/// Period, quota and burst of a limit, in µs; `RUNTIME_INF` where there is no limit.
fn limit_us(limit: &Bandwidth) -> (u64, u64, u64) {
    let us = |time: schedlab_trace::Duration| time.ns() / 1_000;
    let quota = limit.quota.map_or(u64::MAX, us);
    (us(limit.period), quota, us(limit.burst))
}
