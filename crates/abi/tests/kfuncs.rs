//! Each kfunc becomes its request, and its answer reaches the policy.

mod common;

use std::cell::{Cell, RefCell};

use common::{Bench, object, object_with, simple, try_object_as};
use schedlab_abi::{KernelVersion, NativePolicy};
use schedlab_engine::ExitKind;
use schedlab_engine::policy::{
    Answer, DumpContext, Env, IterId, OpCall, OpKind, Policy as _, Reply, Request, ThisCpu,
};
use schedlab_fiber::{Fibers, State, Switch};
use schedlab_machine::Machine;
use schedlab_trace::{CpuId, CpuSet, Instant, LockClass, TaskId};

const P: TaskId = TaskId(4);

fn bench() -> Bench {
    let mut bench = Bench::new("kfuncs", "");
    bench.add_task(P);
    bench
}

fn results(bench: &Bench) -> Vec<u64> {
    let bytes = bench.policy.global("results").unwrap();
    let words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    words.take(bench.global("nr_results") as usize).collect()
}

#[test]
fn the_ops_table_is_read() {
    let bench = bench();
    let info = bench.policy.info();
    assert_eq!((info.name.as_str(), info.flags), ("kfuncs", 2));
    assert_eq!((info.timeout_ms, info.dispatch_max_batch), (1234, 7));
    assert!(info.present.has(OpKind::Tick) && info.present.has(OpKind::Exit));
    assert!(!info.present.has(OpKind::Running) && !info.present.has(OpKind::Yield));
}

#[test]
fn init_sees_the_machine() {
    let mut bench = bench();
    bench.cpu = CpuId(9);
    let result = bench.run(OpCall::Init, |_| Reply::Int(-17));
    assert_eq!(result, Ok(0));
    assert_eq!(bench.asked, [Request::CreateDsq { dsq: 5, node: 1 }]);
    assert_eq!(
        results(&bench),
        [-17i64 as u32 as u64 | 0xffff_ffff_0000_0000, 24, 2, 1, 9]
    );
}

#[test]
fn select_cpu() {
    let mut bench = bench();
    let op = OpCall::SelectCpu {
        task: P,
        prev_cpu: CpuId(6),
        wake_flags: 0x18,
    };
    let result = bench.run(op, |request| match request {
        Request::SelectCpuDfl { .. } => Reply::Cpu(11, true),
        Request::SelectCpuAnd { .. } => Reply::Int(-16),
        Request::PickCpu { any, .. } => Reply::Int(if *any { 13 } else { 12 }),
        Request::TestAndClearIdle { cpu: 3 } => Reply::Bool(true),
        other => panic!("{other:?}"),
    });
    assert_eq!(result, Ok(11));
    assert_eq!(results(&bench), [1, -16i64 as u64, 12, 13, 1]);
    let all = CpuSet::all(24);
    assert_eq!(
        bench.asked,
        [
            Request::SelectCpuDfl {
                task: P,
                prev_cpu: 6,
                wake_flags: 0x18
            },
            Request::SelectCpuAnd {
                task: P,
                prev_cpu: 6,
                wake_flags: 0x18,
                allowed: all.clone(),
                flags: 1
            },
            Request::PickCpu {
                allowed: all.clone(),
                node: None,
                flags: 0,
                any: false
            },
            Request::PickCpu {
                allowed: all,
                node: Some(1),
                flags: 2,
                any: true
            },
            Request::TestAndClearIdle { cpu: 3 },
        ]
    );
}

#[test]
fn enqueue() {
    let mut bench = bench();
    bench.policy.set_task_cpu(P, CpuId(5));
    let op = OpCall::Enqueue {
        task: P,
        enq_flags: 1 << 32,
    };
    let result = bench.run(op, |request| match request {
        Request::DsqInsert { .. } => Reply::Bool(true),
        Request::DsqInsertVtime { .. } => Reply::Bool(false),
        other => simple(other),
    });
    assert_eq!(result, Ok(0));
    assert_eq!(results(&bench), [1, 0, 1, 5]);
    let (task, dsq, slice, enq_flags) = (P, 5, 1000, 1 << 32);
    assert_eq!(
        bench.asked,
        [
            Request::DsqInsert {
                task,
                dsq,
                slice,
                enq_flags
            },
            Request::DsqInsertVtime {
                task,
                dsq,
                slice,
                vtime: 77,
                enq_flags
            },
            Request::Kick { cpu: 2, flags: 2 },
            Request::TaskSetSlice { task: P, slice: 11 },
            Request::TaskSetVtime { task: P, vtime: 12 },
            Request::TaskRunning { task: P },
        ]
    );
}

/// As copy_map_value().
#[test]
fn an_update_leaves_the_locks_of_a_value_alone() {
    let mut bench = Bench::new("updates", "");
    bench.add_task(P);
    assert_eq!(bench.simply(an_enqueue()), Ok(0));
    let (array, hash, storage) = ([0, 9, 0x1000], [0, 9, 0], [7, 0]);
    let einval = -22i64 as u64;
    let expected = [&array[..], &hash, &storage, &[einval]].concat();
    assert_eq!(results(&bench), expected);
}

/// As copy_map_value_locked(): an element of a HASH stays where it is, with all that is the kernel's.
#[test]
fn an_update_under_the_lock_is_made_in_place() {
    let mut bench = Bench::new("in_place", "");
    assert_eq!(bench.simply(OpCall::Init), Ok(0));
    let einval = -22i64 as u64;
    let (hash, array, replaced) = ([0, 6, 0x1000, 0], [0, 6, 0x1000, einval], [0, 6, 0, einval]);
    assert_eq!(results(&bench), [hash, array, replaced].concat());
    let locks = bench.asked.iter().filter_map(|request| match request {
        Request::Lock { lock, class, .. } => Some((lock.0, Some(*class))),
        Request::Unlock { lock } => Some((lock.0, None)),
        _ => None,
    });
    // Only values that are there have one to take: a HASH's first update makes them.
    let other = Some(LockClass::Other);
    let expected = [0, 1, 1].map(|lock| [(lock, other), (lock, None)]);
    assert_eq!(locks.collect::<Vec<_>>(), expected.concat());
}

/// bpf_obj_free_fields() of Linux 6.18 drops the references in an array's value.
#[test]
fn an_older_kernel_drops_the_references_of_an_array() {
    let machine = Machine::builtin("xeon-e5645-2x6x2").unwrap();
    let mut bench = Bench::in_kernel(&object("in_place"), "", machine, KernelVersion::V6_18);
    assert_eq!(bench.simply(OpCall::Init), Ok(0));
    let masks: Vec<u64> = results(&bench).into_iter().skip(2).step_by(4).collect();
    assert_eq!(masks, [0x1000, 0, 0]);
}

#[test]
fn dispatch_walks_a_queue() {
    let mut bench = bench();
    let mut queued = vec![None, Some(P)];
    let op = OpCall::Dispatch {
        cpu: CpuId(3),
        prev: None,
    };
    let result = bench.run(op, |request| match request {
        Request::DispatchNrSlots => Reply::Int(32),
        Request::DsqNrQueued { dsq: 5 } => Reply::Int(1),
        Request::IterNew { .. } => Reply::Iter(IterId(8)),
        Request::IterNext { iter: IterId(8) } => Reply::Task(queued.pop().unwrap()),
        Request::DsqMove { priq, .. } => Reply::Bool(!priq),
        Request::DsqMoveToLocal { .. } => Reply::Bool(false),
        Request::TaskFromPid { pid: 1004 } => Reply::Task(Some(P)),
        other => simple(other),
    });
    assert_eq!(result, Ok(0));
    assert_eq!(results(&bench), [32, 1, 1, 0, 0, 7, 1004, 2]);
    let iter = IterId(8);
    let moved = |dsq, enq_flags, priq| Request::DsqMove {
        iter,
        task: P,
        dsq,
        enq_flags,
        priq,
    };
    assert_eq!(
        bench.asked[2..],
        [
            Request::IterNew {
                dsq: 5,
                flags: 1 << 16
            },
            Request::IterNext { iter },
            Request::MoveSetSlice { iter, slice: 21 },
            Request::MoveSetVtime { iter, vtime: 22 },
            moved(3 << 62 | 3, 0, false),
            moved(6, 1 << 32, true),
            Request::IterNext { iter },
            Request::IterDestroy { iter },
            Request::DsqMoveToLocal {
                dsq: 5,
                enq_flags: 0
            },
            Request::DispatchCancel,
            Request::TaskFromPid { pid: 1004 },
            Request::CpuCurr { cpu: 1 },
            Request::DestroyDsq { dsq: 5 },
        ]
    );
}

#[test]
fn a_queue_that_is_not_there_has_no_iterator() {
    let mut bench = bench();
    bench.policy.set_queued(P, true);
    let op = OpCall::Dispatch {
        cpu: CpuId(3),
        prev: Some(P),
    };
    let result = bench.run(op, |request| match request {
        Request::IterNew { .. } => Reply::Int(-2),
        Request::IterNext { .. } | Request::IterDestroy { .. } => panic!("{request:?}"),
        other => simple(other),
    });
    assert_eq!(result, Ok(0));
    assert_eq!(results(&bench)[3], 1, "prev is there, and runnable");
}

#[test]
fn texts_are_formatted_as_the_kernel_does() {
    let mut bench = bench();
    assert_eq!(bench.simply(OpCall::Tick { task: P }), Ok(0));
    let message = match bench.asked.as_slice() {
        [Request::Error { message }] => message,
        other => panic!("{other:?}"),
    };
    assert!(
        message.starts_with("tests/fixtures/kfuncs.bpf.c:")
            && message.ends_with(": tick of 1004: 5"),
        "{message}"
    );
    let log: Vec<&str> = bench.policy.log().collect();
    assert_eq!(log, ["a-rather-long-n has pid 1004, weight 335, nice 5"]);

    let op = OpCall::Stopping {
        task: P,
        runnable: true,
    };
    assert_eq!(bench.simply(op), Ok(0));
    let expected = Request::ExitPolicy {
        code: 1 << 48,
        message: "stopping, runnable 1".to_owned(),
    };
    assert_eq!(bench.asked.last(), Some(&expected));
}

#[test]
fn what_is_printed_is_evaluated_once() {
    let mut bench = Bench::new("answers", "");
    let _ = bench.simply(OpCall::Init);
    assert_eq!(bench.global("counted"), 4);
    let log: Vec<&str> = bench.policy.log().collect();
    assert_eq!(log, ["0", "1 2"], "and nothing of what is refused");
    assert_eq!(results(&bench), [1, -22i64 as u64]);
    let code = 3;
    let message = "3".to_owned();
    assert_eq!(bench.asked, [Request::ExitPolicy { code, message }]);
}

/// Faults that end as scx_error() does in the kernel, unlike scx_bpf_error().
#[test]
fn rules_that_kfuncs_check_are_the_kernels() {
    let mut bench = Bench::new("answers", "");
    bench.add_task(P);
    assert_eq!(bench.simply(OpCall::Tick { task: P }), Ok(0));
    let violation = |message: &str| Request::Violation {
        message: message.to_owned(),
    };
    let expected = [
        violation("invalid CPU -1"),
        violation("scx_bpf_tid_to_task() called without SCX_OPS_TID_TO_TASK"),
        violation("scx_bpf_dump() must only be called from ops.dump() and friends"),
        violation("format preparation failed (-22)"),
        violation("format preparation failed (-22)"),
    ];
    assert_eq!(bench.asked, expected);
}

#[test]
fn each_cpu_has_a_run_queue() {
    let mut bench = Bench::new("answers", "");
    bench.add_task(P);
    let result = bench.run(an_enqueue(), |request| match request {
        Request::CpuCurr { cpu: 1 } => Reply::Task(Some(P)),
        other => simple(other),
    });
    assert_eq!(result, Ok(0));
    assert_eq!(results(&bench), [1, 1004, 2, 0]);
}

/// In the kernel it is the idle mask itself.
#[test]
fn an_idle_mask_follows_the_kernels_until_it_is_put_back() {
    let mut bench = Bench::new("answers", "");
    bench.add_task(P);
    let mut idle = CpuSet::empty(24);
    for cpu in [1, 3, 5] {
        idle.insert(CpuId(cpu));
    }
    let op = OpCall::SelectCpu {
        task: P,
        prev_cpu: CpuId(0),
        wake_flags: 0,
    };
    let result = bench.run(op, |request| match *request {
        Request::IdleMask { .. } => Reply::Mask(idle.clone()),
        Request::TestAndClearIdle { cpu } => {
            let cpu = CpuId(cpu as u32);
            let was_idle = idle.contains(cpu);
            idle.remove(cpu);
            Reply::Bool(was_idle)
        }
        ref other => simple(other),
    });
    assert_eq!(result, Ok(7));
    assert_eq!(results(&bench), [1, 3, 5, 24]);
    let masks = |request: &&Request| matches!(request, Request::IdleMask { .. });
    assert_eq!(bench.asked.iter().filter(masks).count(), 4);
    let last = Request::TestAndClearIdle { cpu: 7 };
    assert_eq!(
        bench.asked.last(),
        Some(&last),
        "no reference to a mask is left"
    );
}

#[test]
fn bounds_and_flags_are_looked_at_as_the_kernel_does() {
    let mut bench = Bench::new("answers", "");
    bench.add_task(P);
    let op = OpCall::Dispatch {
        cpu: CpuId(0),
        prev: None,
    };
    assert_eq!(bench.simply(op), Ok(0));
    // Rounds of a loop whose end comes nearer; an unaligned source; flags of an arena's pages.
    assert_eq!(results(&bench), [2, 0, 2, 0]);
}

#[test]
fn the_exit_reaches_the_policy() {
    let mut bench = bench();
    let op = OpCall::Exit {
        kind: ExitKind::ErrorStall,
        code: -3,
    };
    bench.policy.set_exit_message("Message");
    assert_eq!(bench.simply(op), Ok(0));
    assert_eq!(results(&bench), [1026, -3i64 as u64, u64::from(b'M')]);
}

#[test]
fn the_root_cgroup_is_that_of_the_tasks() {
    let mut bench = Bench::new("dump", "");
    bench.add_task(P);
    assert_eq!(bench.simply(root_init()), Ok(0));
    let init = OpCall::InitTask {
        task: P,
        fork: false,
    };
    assert_eq!(bench.simply(init), Ok(0));
    let known = ["weight", "quota_us", "in_cgroup"].map(|name| bench.global(name));
    assert_eq!(known, [100, u64::MAX, 1]);
    // Functions that other cgroups and core scheduling would call.
    let never = bench.policy.never_called();
    assert_eq!(never, ["core_sched_before"]);
}

#[test]
fn dumps_are_kept_and_reach_the_exit() {
    let mut bench = Bench::new("dump", "");
    bench.add_task(P);
    let context = DumpContext {
        kind: ExitKind::ErrorStall,
        code: 0,
        at: Instant::from_ns(77),
        at_jiffies: 0,
    };
    let cpu = |cpu, idle| OpCall::DumpCpu {
        context,
        cpu: CpuId(cpu),
        idle,
    };
    let task = OpCall::DumpTask { context, task: P };
    for op in [OpCall::Dump { context }, cpu(0, true), cpu(1, false), task] {
        assert_eq!(bench.simply(op), Ok(0));
    }
    // The first line of each op stands apart (`ops_dump_flush()`).
    let expected =
        "\nrunnable task stall (1026) at 77\ntwo\nlines\n\n  CPU 1\n\n    a-rather-long-n\n";
    assert_eq!(bench.policy.dump(), expected);
    let exit = OpCall::Exit {
        kind: ExitKind::ErrorStall,
        code: 0,
    };
    assert_eq!(bench.simply(exit), Ok(0));
    assert_eq!(bench.global("length"), expected.len() as u64);
    assert_eq!(bench.asked, []);

    assert_eq!(bench.simply(OpCall::Tick { task: P }), Ok(0));
    let message = "scx_bpf_dump() must only be called from ops.dump() and friends".to_owned();
    assert_eq!(bench.asked, [Request::Violation { message }]);
}

/// A virtual kernel that lets another op come in between.
struct Between<'a> {
    asked: RefCell<Vec<(u32, Request)>>,
    cpu: u32,
    between: &'a dyn Fn(),
}

impl Answer for Between<'_> {
    fn answer(&self, request: Request) -> Reply {
        let first = self.asked.borrow().is_empty();
        self.asked.borrow_mut().push((self.cpu, request));
        if first {
            (self.between)();
        }
        Reply::Bool(true)
    }

    fn fault(&self, message: String) -> ! {
        panic!("{message}")
    }
}

impl Between<'_> {
    fn call(&self, call: impl FnOnce(&Env<'_>) -> i64, bench: &Bench, op: &OpCall) {
        let (cpu, horizon) = (ThisCpu::new(CpuId(self.cpu)), Cell::new(u64::MAX));
        cpu.op.set(Some(op.kind()));
        let result = call(&Env {
            cpu: &cpu,
            shared: &bench.shared,
            horizon: &horizon,
            kernel: self,
        });
        assert_eq!(result, 0);
    }

    fn run(&self, bench: &Bench, op: &OpCall) {
        self.call(|env| bench.policy.call(env, op), bench, op);
    }

    fn run_nested(&self, bench: &Bench, op: &OpCall) {
        self.call(|env| bench.policy.call_nested(env, op), bench, op);
    }
}

fn an_enqueue() -> OpCall {
    OpCall::Enqueue {
        task: P,
        enq_flags: 0,
    }
}

#[test]
fn an_op_can_be_called_while_another_waits_on_the_same_cpu() {
    let bench = bench();
    let nested = Between {
        asked: RefCell::default(),
        cpu: 0,
        between: &|| (),
    };
    let outer = Between {
        asked: RefCell::default(),
        cpu: 0,
        between: &|| nested.run_nested(&bench, &OpCall::Tick { task: P }),
    };
    outer.run(&bench, &an_enqueue());
    let nested = nested.asked.borrow().clone();
    assert!(
        matches!(nested[..], [(0, Request::Error { .. })]),
        "{nested:?}"
    );
    let outer = outer.asked.borrow().clone();
    // The question of the first call after the nested one has returned.
    assert!(
        matches!(
            outer[..2],
            [
                (0, Request::DsqInsert { .. }),
                (0, Request::DsqInsertVtime { .. })
            ]
        ),
        "{outer:?}"
    );
    assert_eq!(results(&bench)[0], 1);
}

#[test]
fn cpus_run_ops_beside_each_other() {
    let bench = bench();
    let switch = Switch::default();
    let suspend = || switch.suspend();
    let kernels = [3, 1, 2].map(|cpu| Between {
        asked: RefCell::default(),
        cpu,
        between: &suspend,
    });
    let mut fibers = Fibers::new(&switch);
    for kernel in &kernels {
        fibers.spawn(|| kernel.run(&bench, &an_enqueue())).unwrap();
    }
    for fiber in [0, 1, 2] {
        assert_eq!(fibers.resume(fiber), State::Suspended);
    }
    for fiber in [1, 2, 0] {
        assert_eq!(fibers.resume(fiber), State::Done);
    }
    drop(fibers);
    for kernel in kernels {
        let asked = kernel.asked.borrow();
        assert!(
            matches!(asked[1], (_, Request::DsqInsertVtime { vtime: 77, .. })),
            "{asked:?}"
        );
    }
}

/// Each loaded copy has the values of its own machine and kernel.
#[test]
fn the_kernels_configuration_is_that_of_the_machine() {
    let there = |cc: &&str| {
        let version = std::process::Command::new(cc).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    for cc in ["cc", "gcc", "clang", "clang-22"].into_iter().filter(there) {
        let object = object_with("kconfig", cc);
        for (hz, version, code) in [
            (250, KernelVersion::V6_18, 0x6_12_00),
            (1000, KernelVersion::V7_2, 0x7_02_00),
        ] {
            let mut machine = Machine::builtin("laptop").unwrap();
            machine.hz = hz;
            let mut bench = Bench::in_kernel(&object, "", machine, version);
            bench.simply(OpCall::Init).unwrap();
            assert_eq!(bench.global("hz"), hz.into(), "{cc}");
            assert_eq!(bench.global("hz_there"), hz.into(), "{cc}");
            assert_eq!(bench.global("nr_cpus"), 8192, "{cc}");
            assert_eq!(bench.global("version"), code, "{cc}");
            assert_eq!((bench.global("mc"), bench.global("letter")), (0, 0), "{cc}");
            assert_eq!(bench.global("letter_there"), 0, "{cc}");
            assert_eq!(bench.global("of_library"), 0, "{cc}");
        }
        for mistake in [1, 2] {
            let mut bench = Bench::of(&object, &format!("mistake={mistake}"));
            bench.add_task(TaskId(0));
            let enqueue = OpCall::Enqueue {
                task: TaskId(0),
                enq_flags: 0,
            };
            let message = bench.simply(enqueue).unwrap_err();
            assert!(
                message.contains("in ops.enqueue"),
                "{cc}: {mistake}: {message}"
            );
        }
    }
}

/// The types that libbpf takes, and what it says of others (`find_kcfg_type()`, `set_kcfg_value_num()`).
#[test]
fn variables_of_the_configuration_have_types_that_hold_their_values() {
    let there = |cc: &&str| {
        let version = std::process::Command::new(cc).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    for cc in ["cc", "clang", "clang-22"].into_iter().filter(there) {
        let version = std::process::Command::new(cc).arg("--version").output();
        let version = String::from_utf8_lossy(&version.unwrap().stdout).into_owned();
        let is_clang = version.contains("clang");
        let load = |kind: u32, hz: u32| -> Result<(), String> {
            let object = try_object_as("kconfig_types", cc, &[format!("-DTYPE={kind}")])
                .map_err(|errors| errors.to_string())?;
            let mut machine = Machine::builtin("laptop").unwrap();
            machine.hz = hz;
            let settings = object.settings(&[]).unwrap();
            NativePolicy::load(&object, &settings, &machine, KernelVersion::V7_2)
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        let at = |line: u32, says: &str| {
            let place = format!("tests/fixtures/kconfig_types.bpf.c:{line}");
            Err(format!(
                "kconfig_types: {place}: extern (kcfg) 'CONFIG_HZ': {says}"
            ))
        };
        let remedy = |says: &str| format!("{says}: declare it as int");
        let unsupported = "type is unsupported: libbpf takes bool, integers of 1, 2, 4 or 8 bytes, enum libbpf_tristate and arrays of char";
        let integer = remedy("value '250' implies integer, char, or boolean type");
        for (kind, hz, expected) in [
            (0, 250, Ok(())),
            (
                0,
                40_000,
                at(22, &remedy("value '40000' doesn't fit in 2 bytes")),
            ),
            (1, 1, Ok(())),
            (
                1,
                250,
                at(10, &remedy("value '250' isn't boolean compatible")),
            ),
            (2, 100, Ok(())),
            (
                2,
                250,
                at(12, &remedy("value '250' doesn't fit in 1 bytes")),
            ),
            (3, 250, at(14, &integer)),
            (4, 250, at(16, &integer)),
            (5, 250, at(18, unsupported)),
            (6, 250, at(20, unsupported)),
        ] {
            // For clang the source is read, whose first declaration this is.
            if kind == 1 || !is_clang {
                assert_eq!(load(kind, hz), expected, "{cc}: {kind}");
            }
        }
    }
}

/// The root cgroup comes.
fn root_init() -> OpCall {
    OpCall::CgroupInit {
        cgroup: schedlab_workload::CgroupId::ROOT,
    }
}
