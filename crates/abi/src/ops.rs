//! Calling a policy's ops.

use std::ffi::{CStr, CString, c_void};

use schedlab_engine::policy::{DumpContext, Env, OpCall, OpKind, OpSet, OpsInfo, PreemptReason};

use crate::host::{Context, Host};
use crate::layout::{
    self, CgroupInitArgs, CpuReleaseArgs, ExitInfo, ExitTaskArgs, InitTaskArgs, Ops,
};

/// The constant part of an ops table.
pub fn info(ops: &Ops) -> OpsInfo {
    let name = ops.name.map(|byte| byte as u8);
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    let present = [
        (OpKind::SelectCpu, ops.select_cpu.is_some()),
        (OpKind::Enqueue, ops.enqueue.is_some()),
        (OpKind::Dequeue, ops.dequeue.is_some()),
        (OpKind::Dispatch, ops.dispatch.is_some()),
        (OpKind::Tick, ops.tick.is_some()),
        (OpKind::Runnable, ops.runnable.is_some()),
        (OpKind::Running, ops.running.is_some()),
        (OpKind::Stopping, ops.stopping.is_some()),
        (OpKind::Quiescent, ops.quiescent.is_some()),
        (OpKind::Yield, ops.yield_.is_some()),
        (OpKind::CoreSchedBefore, !ops.core_sched_before.is_null()),
        (OpKind::SetWeight, ops.set_weight.is_some()),
        (OpKind::SetCpumask, ops.set_cpumask.is_some()),
        (OpKind::UpdateIdle, ops.update_idle.is_some()),
        (OpKind::CpuAcquire, ops.cpu_acquire.is_some()),
        (OpKind::CpuRelease, ops.cpu_release.is_some()),
        (OpKind::InitTask, ops.init_task.is_some()),
        (OpKind::ExitTask, ops.exit_task.is_some()),
        (OpKind::Enable, ops.enable.is_some()),
        (OpKind::Disable, ops.disable.is_some()),
        (OpKind::CpuOnline, ops.cpu_online.is_some()),
        (OpKind::CpuOffline, ops.cpu_offline.is_some()),
        (OpKind::CgroupInit, ops.cgroup_init.is_some()),
        (OpKind::CgroupExit, ops.cgroup_exit.is_some()),
        (OpKind::Dump, ops.dump.is_some()),
        (OpKind::DumpCpu, ops.dump_cpu.is_some()),
        (OpKind::DumpTask, ops.dump_task.is_some()),
        (OpKind::Init, ops.init.is_some()),
        (OpKind::Exit, ops.exit.is_some()),
    ];
    let present = present
        .into_iter()
        .filter(|&(_, is_there)| is_there)
        .fold(OpSet::default(), |set, (op, _)| set.with(op));
    OpsInfo {
        name: name.to_string_lossy().into_owned(),
        flags: ops.flags,
        timeout_ms: ops.timeout_ms,
        dispatch_max_batch: ops.dispatch_max_batch,
        hotplug_seq: ops.hotplug_seq,
        sub_schedulers: !ops.sub_attach.is_null() || !ops.sub_detach.is_null(),
        present,
    }
}

/// The ops of a table that nothing in the virtual kernel leads to.
pub fn never_called(ops: &Ops) -> Vec<&'static str> {
    let uncalled = [
        ("core_sched_before", ops.core_sched_before),
        ("cgroup_prep_move", ops.cgroup_prep_move),
        ("cgroup_move", ops.cgroup_move),
        ("cgroup_cancel_move", ops.cgroup_cancel_move),
        ("cgroup_set_weight", ops.cgroup_set_weight),
        ("cgroup_set_bandwidth", ops.cgroup_set_bandwidth),
        ("cgroup_set_idle", ops.cgroup_set_idle),
    ];
    let there = uncalled.into_iter().filter(|(_, op)| !op.is_null());
    there.map(|(name, _)| name).collect()
}

/// Runs an op on the current CPU, which is that of `env`.
#[inline(always)]
pub fn run(context: Context, env: &Env<'_>, op: &OpCall) -> i64 {
    let (around, ns) = context.with(|host| (host.current().begin(op.kind()), host.op_ns));
    env.charge_ns(ns);
    let result = call(context, op);
    if !context.with(|host| host.current().end(around)) {
        leaks_locks(context);
    }
    result
}

#[cold]
fn leaks_locks(context: Context) -> ! {
    let locks = context.with(|host| {
        let locks = host.locks.iter().enumerate();
        let locks = locks.filter(|(_, lock)| lock.owner == Some(host.cpu));
        let names: Vec<String> = locks.map(|(index, _)| format!("lock {index}")).collect();
        names.join(", ")
    });
    context.fault(format!("it returns with locks held: {locks}"))
}

#[inline(always)]
fn call(context: Context, op: &OpCall) -> i64 {
    let ops = context.with(|host| std::ptr::from_ref(&host.ops));
    // SAFETY: the table never changes and lives as long as the host.
    let ops = unsafe { &*ops };
    let task = |task| context.pointer(Some(task));
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
                op.map_or(0, |op| op(task(p), prev_cpu.0 as i32, wake_flags).into())
            }
            OpCall::Enqueue { task: p, enq_flags } => {
                done(ops.enqueue.map(|op| op(task(p), enq_flags)))
            }
            OpCall::Dequeue { task: p, deq_flags } => {
                done(ops.dequeue.map(|op| op(task(p), deq_flags)))
            }
            OpCall::Dispatch { cpu, prev } => {
                let prev = context.pointer(prev);
                done(ops.dispatch.map(|op| op(cpu.0 as i32, prev)))
            }
            OpCall::Tick { task: p } => done(ops.tick.map(|op| op(task(p)))),
            OpCall::Runnable { task: p, enq_flags } => {
                done(ops.runnable.map(|op| op(task(p), enq_flags)))
            }
            OpCall::Running { task: p } => done(ops.running.map(|op| op(task(p)))),
            OpCall::Stopping { task: p, runnable } => {
                done(ops.stopping.map(|op| op(task(p), runnable)))
            }
            OpCall::Quiescent { task: p, deq_flags } => {
                done(ops.quiescent.map(|op| op(task(p), deq_flags)))
            }
            OpCall::Yield { from, to } => {
                let to = context.pointer(to);
                ops.yield_.map_or(0, |op| op(task(from), to).into())
            }
            OpCall::SetWeight { task: p, weight } => {
                done(ops.set_weight.map(|op| op(task(p), weight)))
            }
            OpCall::SetCpumask { task: p } => {
                let p = task(p);
                done(ops.set_cpumask.map(|op| op(p, (*p).cpus_ptr)))
            }
            OpCall::UpdateIdle { cpu, idle } => {
                done(ops.update_idle.map(|op| op(cpu.0 as i32, idle)))
            }
            OpCall::CpuAcquire { cpu } => {
                let mut args = [0u64; 1];
                done(
                    ops.cpu_acquire
                        .map(|op| op(cpu.0 as i32, args.as_mut_ptr().cast())),
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
                        PreemptReason::Stop => 2,
                        PreemptReason::Unknown => 3,
                    },
                    task: match p {
                        Some(p) => task(p),
                        None => context.with(|host| host.tasks.stopper(cpu.index())),
                    },
                };
                done(ops.cpu_release.map(|op| op(cpu.0 as i32, &raw mut args)))
            }
            OpCall::InitTask { task: p, fork } => {
                let mut args = InitTaskArgs {
                    fork,
                    cgroup: root_cgroup(),
                };
                let op = ops.init_task;
                op.map_or(0, |op| op(task(p), &raw mut args).into())
            }
            OpCall::ExitTask { task: p, cancelled } => {
                let mut args = ExitTaskArgs { cancelled };
                done(ops.exit_task.map(|op| op(task(p), &raw mut args)))
            }
            OpCall::Enable { task: p } => done(ops.enable.map(|op| op(task(p)))),
            OpCall::Disable { task: p } => done(ops.disable.map(|op| op(task(p)))),
            OpCall::CpuOnline { cpu } => done(ops.cpu_online.map(|op| op(cpu.0 as i32))),
            OpCall::CpuOffline { cpu } => done(ops.cpu_offline.map(|op| op(cpu.0 as i32))),
            OpCall::CgroupInit => {
                let mut args = CgroupInitArgs {
                    weight: 100,
                    bw_period_us: 100_000,
                    // RUNTIME_INF: no limit.
                    bw_quota_us: u64::MAX,
                    bw_burst_us: 0,
                };
                let op = ops.cgroup_init;
                op.map_or(0, |op| op(root_cgroup(), &raw mut args).into())
            }
            OpCall::CgroupExit => done(ops.cgroup_exit.map(|op| op(root_cgroup()))),
            OpCall::Dump { context: about } => {
                let op = |about| done(ops.dump.map(|op| op(about)));
                dump(context, about, op)
            }
            OpCall::DumpCpu {
                context: about,
                cpu,
                idle,
            } => {
                let op = |about| done(ops.dump_cpu.map(|op| op(about, cpu.0 as i32, idle)));
                dump(context, about, op)
            }
            OpCall::DumpTask {
                context: about,
                task: p,
            } => {
                let op = |about| done(ops.dump_task.map(|op| op(about, task(p))));
                dump(context, about, op)
            }
            OpCall::Init => {
                let result = ops.init.map_or(0, |op| op());
                context.with(|host| host.initialized = result == 0);
                result.into()
            }
            OpCall::Exit {
                kind,
                code,
                ref reason,
                ref message,
            } => {
                let text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
                let (reason, message) = (text(reason), text(message));
                let dump = context.with(|host| text(&host.dump));
                let mut info = ExitInfo {
                    kind: kind as u64 as u32,
                    exit_cpu: context.with(|host| host.cpu as i32),
                    exit_code: code,
                    flags: context.with(|host| u64::from(host.initialized)),
                    reason: reason.as_ptr(),
                    bt: std::ptr::null_mut(),
                    bt_len: 0,
                    msg: message.as_ptr().cast_mut(),
                    dump: dump.as_ptr().cast_mut(),
                };
                done(ops.exit.map(|op| op(&raw mut info)))
            }
            OpCall::TimerCallback { timer } => crate::kfuncs::time::callback(context, timer),
        }
    }
}

/// The only cgroup. Policies get its pointer and nothing behind it: `struct cgroup` is not modelled.
fn root_cgroup() -> *mut c_void {
    static ROOT: u64 = 0;
    (&raw const ROOT).cast_mut().cast()
}

/// Runs an op that prints by scx_bpf_dump().
fn dump(
    context: Context,
    about: DumpContext,
    op: impl FnOnce(*mut layout::DumpContext) -> i64,
) -> i64 {
    let reason = CString::new(about.kind.reason()).unwrap_or_default();
    let mut about = layout::DumpContext {
        kind: about.kind as u64 as u32,
        exit_code: about.code,
        reason: reason.as_ptr(),
        at_ns: about.at.ns(),
        at_jiffies: about.at_jiffies,
    };
    let result = op(&raw mut about);
    context.with(Host::end_dump);
    result
}

fn done(_: Option<()>) -> i64 {
    0
}
