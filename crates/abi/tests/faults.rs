//! A fault of policy code ends its run with a message; other runs and the process go on.

mod common;

use std::sync::{Arc, OnceLock};

use common::{Bench, object, simple, try_object};
use schedlab_abi::{KernelVersion, NativeObject, NativePolicy, compiler};
use schedlab_engine::Scenario;
use schedlab_engine::policy::{OpCall, OpKind, Policy as _, ThisCpu};
use schedlab_machine::Machine;
use schedlab_trace::{CpuId, TaskId};
use schedlab_workload::Workload;

fn faults() -> &'static Arc<NativeObject> {
    static OBJECT: OnceLock<Arc<NativeObject>> = OnceLock::new();
    OBJECT.get_or_init(|| object("faults"))
}

fn enqueue() -> OpCall {
    OpCall::Enqueue {
        task: TaskId(0),
        enq_flags: 0,
    }
}

fn fault(kind: &str) -> String {
    let mut bench = Bench::of(faults(), &format!("kind={kind}"));
    bench.add_task(TaskId(0));
    let message = bench.simply(enqueue()).expect_err(kind);
    // A further request gets the answer that it is over.
    assert!(bench.simply(enqueue()).is_err(), "{kind}");
    // No other run is disturbed.
    let mut other = Bench::of(faults(), "");
    other.add_task(TaskId(0));
    assert_eq!(other.simply(enqueue()), Ok(0));
    message
}

#[track_caller]
fn check(kind: &str, expected: &str) {
    let message = fault(kind);
    assert!(
        message.starts_with("faults: in ops.enqueue: ") && message.contains(expected),
        "{kind}: {message}"
    );
}

/// Where the fixture says that a fault is, and in which function.
fn line_of(kind: &str) -> (usize, &'static str) {
    let source = include_str!("fixtures/faults.bpf.c");
    let said = format!("/* line of {kind} */");
    let lines: Vec<&str> = source.lines().collect();
    let line = lines.iter().position(|line| line.contains(&said)).unwrap();
    let function = match lines[line].starts_with('}') {
        true => "faults_overrun_own",
        false => "faults_enqueue",
    };
    (line + 1, function)
}

/// Checks the same of what the virtual kernel refuses when it is called.
#[track_caller]
fn check_call(kind: &str, expected: &str) {
    let (line, function) = line_of(kind);
    let place = format!("tests/fixtures/faults.bpf.c:{line} ({function})");
    check(kind, &format!("in ops.enqueue: {place}: {expected}"));
}

/// Checks that the fault is said to be where the fixture says it is.
#[track_caller]
fn check_line(kind: &str, expected: &str) {
    let (line, function) = line_of(kind);
    check(
        kind,
        &format!("{expected} at tests/fixtures/faults.bpf.c:{line} ({function})"),
    );
}

#[test]
fn instructions_that_trap_are_told_with_their_line() {
    if cfg!(target_arch = "x86_64") {
        check_line("trap", "it ends by a trap instruction");
        check_line("privileged", "it executes what only a kernel may");
    } else {
        let (line, function) = line_of("builtin trap");
        let place = format!("at tests/fixtures/faults.bpf.c:{line} ({function})");
        check("trap", &format!("ends by a trap instruction {place}"));
    }
}

/// As does code that has written over where its caller keeps it.
#[test]
fn who_loses_the_stack_ends_its_own_run_only() {
    check(
        "lost_stack",
        "it follows a NULL pointer at tests/fixtures/faults.bpf.c:",
    );
}

#[test]
fn accesses_are_told_with_their_line() {
    check_line("null", "it follows a NULL pointer");
    check_line("null_call", "it calls a function that is not there");
    check_line("no_address", "it accesses memory that is not its own");
    check_line("no_address_call", "it accesses memory that is not its own");
    check(
        "wild",
        "it accesses memory that is not its own at tests/fixtures/faults.bpf.c:",
    );
    let place = "a function of the virtual kernel that is called";
    check_line(
        "wild_task",
        &format!("it accesses memory that is not its own at {place}"),
    );
    check("code", "it accesses memory that is not its own at ");
}

/// Memory that policy code can point at, by the fixture's name.
const POINTED_AT: [&str; 6] = [
    "beyond_value",
    "beyond_storage",
    "beyond_key",
    "beyond_task",
    "beyond_mask",
    "beyond_rq",
];

#[test]
fn who_writes_beyond_something_writes_over_nothing_but_the_policys_own() {
    for kind in POINTED_AT {
        let run = |first_word: i32, words: u32| {
            let options = format!("kind={kind},first_word={first_word},words={words}");
            let mut bench = Bench::of(faults(), &options);
            bench.add_task(TaskId(0));
            bench.simply(enqueue())
        };
        // The first word of a task is its number.
        let (own, outcome) = (run(1, 1000), run(4, 1000));
        assert!(
            own.is_ok() && outcome.is_ok(),
            "{kind}: {own:?} {outcome:?}"
        );
        for (first_word, words) in [(-4_000_000, 1), (1 << 20, 1), (0, 1 << 20), (2_000_000, 1)] {
            let message = run(first_word, words).expect_err(kind);
            let expected = "faults: in ops.enqueue: it accesses memory that is not its own at tests/fixtures/faults.bpf.c:";
            assert!(message.starts_with(expected), "{kind}: {message}");
        }
    }
}

#[test]
fn who_reads_beyond_a_value_reads_the_same_each_time() {
    let run = || {
        let mut bench = Bench::of(faults(), "kind=beyond_value,first_word=0,words=8000");
        bench.add_task(TaskId(0));
        assert_eq!(bench.simply(enqueue()), Ok(0));
        bench.global("sink")
    };
    let _other = Bench::of(faults(), "");
    assert_eq!(run(), run());
}

#[test]
fn an_overwritten_task_is_none() {
    for first_word in ["0", "-1"] {
        let options = format!("kind=beyond_task,first_word={first_word},words=2");
        let mut bench = Bench::of(faults(), &options);
        bench.add_task(TaskId(0));
        let message = bench.simply(enqueue()).expect_err(&options);
        assert!(
            message.ends_with("scx_bpf_dsq_insert() was called with an overwritten task"),
            "{message}"
        );
    }
}

#[test]
fn arithmetic_and_stack() {
    check("divide", "it divides by zero ");
    for kind in ["stack", "frame"] {
        check(
            kind,
            "it uses more than the 256 KB of stack at tests/fixtures/faults.bpf.c:",
        );
    }
}

/// However far: over its own frame, over the virtual kernel's frames, over the whole stack.
#[test]
fn who_writes_beyond_an_array_on_the_stack_is_told_so() {
    for bytes in [17, 24, 64, 300, 3000, 20_000, 1 << 20] {
        let run = |options: &str| {
            let mut bench = Bench::of(faults(), options);
            bench.add_task(TaskId(0));
            bench.simply(enqueue())
        };
        let message = run(&format!("kind=overrun,words={bytes}")).expect_err("an overrun");
        let start = "faults: in ops.enqueue: it has written beyond an array on its stack, noticed at tests/fixtures/faults.bpf.c:";
        assert!(message.starts_with(start), "{bytes}: {message}");
        assert_eq!(run("kind=overrun,words=16"), Ok(0));
    }
    let (line, function) = line_of("overrun");
    let options = "kind=overrun,words=32";
    let mut bench = Bench::of(faults(), options);
    bench.add_task(TaskId(0));
    let message = bench.simply(enqueue()).expect_err(options);
    assert!(
        message.ends_with(&format!(":{line} ({function})")),
        "{message}"
    );
}

#[test]
fn helpers_take_the_maps_that_they_are_made_for() {
    for (kind, helper, map) in [
        (
            "wrong_lookup",
            "bpf_map_lookup_elem",
            "`queue`, of type QUEUE",
        ),
        (
            "wrong_percpu",
            "bpf_map_lookup_percpu_elem",
            "`values`, of type ARRAY",
        ),
        (
            "wrong_update",
            "bpf_map_update_elem",
            "`storage`, of type TASK_STORAGE",
        ),
        (
            "wrong_delete",
            "bpf_map_delete_elem",
            "`queue`, of type QUEUE",
        ),
        ("wrong_push", "bpf_map_push_elem", "`counts`, of type HASH"),
        ("wrong_pop", "bpf_map_pop_elem", "`counts`, of type HASH"),
        ("wrong_peek", "bpf_map_peek_elem", "`counts`, of type HASH"),
        (
            "wrong_storage",
            "bpf_task_storage_get",
            "`counts`, of type HASH",
        ),
        (
            "wrong_storage_delete",
            "bpf_task_storage_delete",
            "`counts`, of type HASH",
        ),
        (
            "wrong_walk",
            "bpf_for_each_map_elem",
            "`queue`, of type QUEUE",
        ),
        (
            "wrong_arena",
            "bpf_arena_alloc_pages",
            "`counts`, of type HASH",
        ),
    ] {
        let expected = format!(
            "{helper}() was called with the map {map}, which the kernel's verifier refuses"
        );
        check_call(kind, &expected);
    }
}

/// Where it is full just in the virtual kernel, that would be left in the middle of what it does.
#[test]
fn a_stack_is_never_full_in_a_kfunc() {
    for frame_bytes in (1..80).map(|n| 16 * n) {
        let options = format!("kind=stack_in_kfunc,frame_bytes={frame_bytes}");
        let mut bench = Bench::of(faults(), &options);
        bench.add_task(TaskId(0));
        let message = bench.simply(enqueue()).expect_err("a full stack");
        assert!(
            message
                .contains("it uses more than the 256 KB of stack at tests/fixtures/faults.bpf.c:"),
            "{options}: {message}"
        );
        assert!(bench.shared.cache.try_borrow_mut().is_ok(), "{options}");
        assert!(bench.shared.random.try_borrow_mut().is_ok(), "{options}");
        assert!(bench.probes.try_borrow_mut().is_ok(), "{options}");
    }
}

/// As one whose listener runs another one.
#[test]
fn a_simulation_leaves_the_faults_of_another_one_to_it() {
    let mut bench = Bench::of(faults(), "kind=stack_in_kfunc");
    bench.add_task(TaskId(0));
    let mut asked = false;
    let outcome = bench.run(enqueue(), |request| {
        if !std::mem::replace(&mut asked, true) {
            let machine = Machine::builtin("laptop").unwrap();
            let settings = faults().settings(&[]).unwrap();
            let policy = NativePolicy::load(faults(), &settings, &machine, KernelVersion::V7_2);
            let workload = Workload::parse("pipe:loops=3", 2).unwrap();
            let inner = Scenario::new(machine, workload, 1);
            let end = schedlab_engine::run(inner, policy.unwrap(), ());
            assert!(end.events > 0);
        }
        simple(request)
    });
    let message = outcome.expect_err("a full stack");
    assert!(message.contains("KB of stack"), "{message}");
}

#[test]
fn loops_end() {
    check("budget", "its loops took more than 8388608 steps");
    check(
        "endless",
        "it loops without end at tests/fixtures/faults.bpf.c:",
    );
}

#[test]
fn locks_are_paired() {
    check("lock_held", "it returns and still holds the lock `lock`");
    check_call(
        "lock_twice",
        "it takes the lock `lock`, which it holds already",
    );
    check(
        "map_lock_held",
        "it returns and still holds the lock at offset 16 of a value of the map `values`",
    );
    check_call("unlock", "it releases a lock that it does not hold");
}

/// An op that is called while another one of its CPU waits can reach that one's locks.
#[test]
fn who_releases_a_lock_of_the_op_around_it_is_told_so() {
    let bench = Bench::of(faults(), "");
    let cpu = ThisCpu::new(CpuId(0));
    cpu.op.set(Some(OpKind::Tick));
    assert_eq!(
        bench.policy.describe_released_lock(&cpu),
        "faults: in ops.tick: it returns and has released a lock of the op that waits for it"
    );
}

#[test]
fn a_resilient_lock_fails_instead() {
    let mut bench = Bench::of(faults(), "kind=res_lock_twice");
    bench.add_task(TaskId(0));
    assert_eq!(bench.simply(enqueue()), Ok(0));
    assert_eq!(bench.global("second") as i32, -35, "EDEADLK");
}

#[test]
fn kfuncs_say_what_they_cannot_do() {
    check_call(
        "missing",
        "kfunc scx_bpf_locked_rq is not in the virtual kernel",
    );
    check_call(
        "null_task",
        "scx_bpf_dsq_insert() was called with a NULL task",
    );
}

/// As the verifier refuses what the kernel flags as KF_SLEEPABLE, and the kernel an op that must not sleep.
#[test]
fn only_sleepable_ops_call_what_may_sleep() {
    let mut bench = Bench::of(&object("awake"), "");
    let message = bench.simply(OpCall::Init).unwrap_err();
    let expected = " (awake_create): scx_bpf_create_dsq() may sleep, ";
    assert!(
        message.starts_with("awake: in ops.init: tests/")
            && message.contains(expected)
            && message.ends_with("BPF_STRUCT_OPS_SLEEPABLE()"),
        "{message}"
    );
    let mut bench = Bench::of(&object("awake"), "");
    assert_eq!(bench.simply(root_init()), Ok(0), "it is sleepable");

    let object = object("sleepable_enqueue");
    let settings = object.settings(&[]).unwrap();
    let machine = Machine::builtin("laptop").unwrap();
    let loaded = NativePolicy::load(&object, &settings, &machine, KernelVersion::V7_2);
    let message = loaded.err().unwrap().to_string();
    let expected = "sleepable_enqueue: the kernel refuses a sleepable ops.enqueue: ";
    assert!(message.starts_with(expected), "{message}");
}

/// The kfunc, and its name in the fixture's option.
const NEWER: [(&str, &str); 5] = [
    ("scx_bpf_dsq_peek", "dsq_peek"),
    ("scx_bpf_dsq_reenq", "dsq_reenq"),
    ("scx_bpf_tid_to_task", "tid_to_task"),
    ("__scx_bpf_dsq_insert_vtime", "dsq_insert_vtime"),
    ("__scx_bpf_select_cpu_and", "select_cpu_and"),
];

#[test]
fn what_came_after_the_older_kernel_cannot_be_called_there() {
    let object = object("newer");
    let called = |option: &str, version| {
        let machine = Machine::builtin("xeon-e5645-2x6x2").unwrap();
        let mut bench = Bench::in_kernel(&object, &format!("kfunc={option}"), machine, version);
        bench.add_task(TaskId(0));
        bench.simply(enqueue()).map(|_| bench.global("asked_first"))
    };
    for (kfunc, option) in NEWER {
        assert_eq!(called(option, KernelVersion::V7_2), Ok(0), "{kfunc}");
        let message = called(option, KernelVersion::V6_18).expect_err(kfunc);
        let expected = format!(": kfunc {kfunc} is not in Linux 6.18");
        assert!(
            message.starts_with("newer: in ops.enqueue: tests/") && message.ends_with(&expected),
            "{message}"
        );
    }
    for version in [KernelVersion::V7_2, KernelVersion::V6_18] {
        assert_eq!(
            called("none", version),
            Ok(1),
            "who asks first, {version:?}"
        );
    }
}

#[test]
fn only_tasks_that_are_there_are_looked_at() {
    check("no_task", "it looks at task 4294967295, which is not there");
    check(
        "no_task_written",
        "it looks at task 4000, which is not there",
    );
}

#[test]
fn what_no_clock_or_counter_can_hold_is_refused() {
    check(
        "charge",
        "it lets 18446744073709551615 ps pass at once; no more than a second is allowed",
    );
    check(
        "count",
        "it counts 1 more at probe 1, which has 18446744073709551615",
    );
}

#[test]
fn a_name_without_an_end_is_too_long() {
    let object = object("long_name");
    let settings = object.settings(&[]).unwrap();
    let machine = Machine::builtin("laptop").unwrap();
    let loaded = NativePolicy::load(&object, &settings, &machine, KernelVersion::V7_2);
    let message = loaded.err().unwrap().to_string();
    assert!(
        message.ends_with("the kernel takes at most 127 characters"),
        "{message}"
    );
}

/// It would run while the policy is loaded, and an endless one for ever.
#[test]
fn what_a_dynamic_linker_would_call_is_refused_before_it_is_loaded() {
    for (fixture, what) in [
        ("constructor", "a constructor"),
        ("destructor", "a destructor"),
        ("ifunc", "an indirect function"),
    ] {
        let error = try_object(fixture, &compiler::default_compiler()).unwrap_err();
        let expected = format!("{fixture}: it has {what}, which would run while it is loaded");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

#[test]
fn faults_on_several_threads_at_once() {
    std::thread::scope(|scope| {
        for kind in ["null", "divide", "stack", "frame", "wild"] {
            scope.spawn(move || {
                for _ in 0..20 {
                    fault(kind);
                }
            });
        }
    });
}

/// The root cgroup comes.
fn root_init() -> OpCall {
    OpCall::CgroupInit {
        cgroup: schedlab_workload::CgroupId::ROOT,
    }
}
