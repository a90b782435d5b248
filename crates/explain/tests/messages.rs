//! Every message with which kernel/sched/ext of Linux 6.12, 6.18 and 7.2 ends a scheduler has its explanation.

use schedlab_explain::{Culprit, explain};

/// A message as those kernels print it, and what it is about.
const MESSAGES: &[(&str, Culprit)] = &[
    // dispatch queues
    ("non-existent DSQ 0xabad1dea for sh[12]", Culprit::NoSuchDsq),
    ("non-existent DSQ 0xabad1dea", Culprit::NoSuchDsq),
    ("invalid DSQ ID 0x00000000abad1dea", Culprit::NoSuchDsq),
    ("peek on non-existent DSQ 0x5", Culprit::NoSuchDsq),
    (
        "peek disallowed on builtin DSQ 0x8000000000000001",
        Culprit::BuiltinDsq,
    ),
    (
        "cannot use vtime ordering for built-in DSQs",
        Culprit::VtimeInBuiltinDsq,
    ),
    (
        "DSQ ID 0x0000000000000001 already had FIFO-enqueued tasks",
        Culprit::MixedDsq,
    ),
    (
        "DSQ ID 0x0000000000000001 already had PRIQ-enqueued tasks",
        Culprit::MixedDsq,
    ),
    (
        "attempting to dispatch to a destroyed dsq",
        Culprit::DestroyedDsq,
    ),
    (
        "attempting to destroy in-use dsq 0x0000000000000000 (nr=3)",
        Culprit::DsqInUse,
    ),
    (
        "DSQ 0x8000000000000001 not allowed for reenq",
        Culprit::BadReenqueue,
    ),
    ("invalid SCX_REENQ flags 0x8", Culprit::BadReenqueue),
    (
        "SCX_ENQ_REENQ on SCX_DSQ_LOCAL repeated 256 times",
        Culprit::EndlessReenqueue,
    ),
    // insertions
    (
        "SCX_DSQ_LOCAL[_ON] verdict target cpu 21 not allowed for Web Content[313]",
        Culprit::CpuNotAllowed,
    ),
    (
        "SCX_DSQ_LOCAL[_ON] target CPU 10 not allowed for kworker/15:0[570344]",
        Culprit::CpuNotAllowed,
    ),
    (
        "SCX_DSQ_LOCAL[_ON] cannot move migration disabled Xorg[341392] from CPU 5 to 0",
        Culprit::MigrationDisabled,
    ),
    ("invalid CPU -3", Culprit::InvalidCpu),
    ("invalid cid 24", Culprit::InvalidCpu),
    (
        "invalid CPU 99999 from ops.select_cpu()",
        Culprit::InvalidCpu,
    ),
    (
        "invalid CPU 99999 in SCX_DSQ_LOCAL_ON dispatch verdict",
        Culprit::InvalidCpu,
    ),
    ("sh[12] already direct-dispatched", Culprit::InsertedTwice),
    (
        "scheduling for sh[12] but trying to direct-dispatch make[13]",
        Culprit::OtherTask,
    ),
    ("called on a task not being operated on", Culprit::OtherTask),
    (
        "select_cpu kfunc called cross-task on sh[12]",
        Culprit::OtherTask,
    ),
    ("called with NULL task", Culprit::NullTask),
    ("invalid enq_flags 0x1", Culprit::EnqueueFlags),
    (
        "SCX_ENQ_IMMED on a non-local DSQ 0x5",
        Culprit::EnqueueFlags,
    ),
    ("dispatch buffer overflow", Culprit::DispatchOverflow),
    ("dispatch buffer underflow", Culprit::DispatchUnderflow),
    // other functions
    (
        "built-in idle tracking is disabled",
        Culprit::IdleTrackingOff,
    ),
    ("per-node idle tracking is disabled", Culprit::IdlePerNode),
    ("per-node idle tracking is enabled", Culprit::IdlePerNode),
    (
        "SCX_OPS_BUILTIN_IDLE_PER_NODE enabled",
        Culprit::IdlePerNode,
    ),
    ("invalid node 7", Culprit::InvalidNode),
    ("unavailable node 7", Culprit::InvalidNode),
    (
        "PREEMPT/WAIT cannot be used with SCX_KICK_IDLE",
        Culprit::KickFlags,
    ),
    ("Invalid cpuperf target 2048 for CPU 1", Culprit::CpuPerf),
    ("Invalid target CPU 3", Culprit::CpuPerf),
    (
        "kfunc with mask 0x4 called from an operation only allowing 0x2",
        Culprit::WrongContext,
    ),
    (
        "dispatch kfunc called from a nested operation",
        Culprit::WrongContext,
    ),
    (
        "cpu_release kfunc called from a nested operation",
        Culprit::WrongContext,
    ),
    (
        "accessing rq without holding rq lock",
        Culprit::WrongContext,
    ),
    (
        "scx_bpf_dump() must only be called from ops.dump() and friends",
        Culprit::WrongContext,
    ),
    ("dispatch recursion detected", Culprit::WrongContext),
    (
        "__scx_bpf_dsq_insert_vtime() must be used",
        Culprit::WrongContext,
    ),
    (
        "__scx_bpf_select_cpu_and() must be used",
        Culprit::WrongContext,
    ),
    (
        "invalid data=000000005a3b2f11 and data__sz=9",
        Culprit::BadFormat,
    ),
    ("failed to read data fields (-14)", Culprit::BadFormat),
    ("format preparation failed (-22)", Culprit::BadFormat),
    (
        "(\"%d\", 000000005a3b2f11, 8) failed to format",
        Culprit::BadFormat,
    ),
    (
        "scx_bpf_tid_to_task() called without SCX_OPS_TID_TO_TASK",
        Culprit::OpsFlags,
    ),
    // loading
    (
        "SCX_OPS_ENQ_LAST requires ops.enqueue() to be implemented",
        Culprit::OpsFlags,
    ),
    (
        "SCX_OPS_BUILTIN_IDLE_PER_NODE requires CPU idle selection enabled",
        Culprit::OpsFlags,
    ),
    (
        "SCX_OPS_TID_TO_TASK requires root scheduler to enable it",
        Culprit::OpsFlags,
    ),
    ("ops.init() failed (-22)", Culprit::InitFailed),
    (
        "ops.init_task() failed (-12) for sh[12]",
        Culprit::InitTaskFailed,
    ),
    (
        "ops.init_task() failed (-12) for sh[12] while disabling a sub-scheduler",
        Culprit::InitTaskFailed,
    ),
    ("ops.cgroup_init() failed (-12)", Culprit::CgroupFailed),
    ("ops.cgroup_prep_move() failed (-12)", Culprit::CgroupFailed),
    (
        "ops.init() returned an invalid errno -100000",
        Culprit::InvalidErrno,
    ),
    (
        "ops.init_task() set task->scx.disallow for sh[12] during fork",
        Culprit::Disallow,
    ),
    (
        "ops.init_task() set task->scx.disallow for sh[12] outside the enable path",
        Culprit::Disallow,
    ),
    ("scx_ops_enable() failed (-12)", Culprit::EnableFailed),
    ("scx_enable() failed (-12)", Culprit::EnableFailed),
    ("scx_root_enable() failed (-12)", Culprit::EnableFailed),
    ("scx_sub_enable() failed (-12)", Culprit::EnableFailed),
    // sub-schedulers
    (
        "non-root ops.init_task() set task->scx.disallow for sh[12]",
        Culprit::Disallow,
    ),
    (
        "sub-sched requires cid-form struct_ops",
        Culprit::SubScheduler,
    ),
    (
        "sub_attach/sub_detach requires cid-form struct_ops",
        Culprit::SubScheduler,
    ),
    ("max nesting depth 4 violated", Culprit::SubScheduler),
    ("parent rejected (-22)", Culprit::SubScheduler),
    ("parent disabled (-19)", Culprit::SubScheduler),
    (
        "failed to insert into scx_sched_hash (-12)",
        Culprit::SubScheduler,
    ),
    (
        "trying to dispatch a distant sub-sched on cgroup 12",
        Culprit::SubScheduler,
    ),
    (
        "scx_bpf_dsq_move[_vtime]() on sh[12] but the task belongs to a different scheduler",
        Culprit::SubScheduler,
    ),
    (
        "scx_bpf_cid_override: failed to allocate tables",
        Culprit::SubScheduler,
    ),
    (
        "scx_bpf_cid_override() only allowed from root sched",
        Culprit::SubScheduler,
    ),
    (
        "scx_bpf_cid_override: expected 32 bytes, got 16",
        Culprit::SubScheduler,
    ),
    ("cid 3 assigned to multiple cpus", Culprit::SubScheduler),
    ("cgroup is not online", Culprit::CgroupOffline),
    // the kernel's other watchdogs
    ("RCU CPU stall detected!", Culprit::RcuStall),
    ("soft lockup - CPU#1 stuck for 12s", Culprit::Lockup),
    ("soft lockup - CPU 1 stuck for 12s", Culprit::Lockup),
    ("hard lockup - CPU 1", Culprit::Lockup),
];

const UNREGISTERED: &[(&str, Culprit)] = &[
    ("cpu 1 going offline, exiting scheduler", Culprit::Hotplug),
    ("cpu 1 going online, exiting scheduler", Culprit::Hotplug),
    (
        "expected hotplug seq 4 did not match actual 5",
        Culprit::Hotplug,
    ),
    ("cgroup 37 going offline", Culprit::CgroupOffline),
];

#[test]
fn each_message_of_the_kernel_is_explained() {
    let kinds = [
        ("runtime error", MESSAGES),
        ("unregistered from the main kernel", UNREGISTERED),
    ];
    for (reason, messages) in kinds {
        for (message, culprit) in messages {
            let text = format!("EXIT: {reason} ({message})\n");
            let found = explain(text.as_bytes()).unwrap().remove(0);
            assert_eq!(found.culprit, *culprit, "{message}: {found:#?}");
            let sentence = &found.sentence;
            // A `$name` that the pattern does not have would leave a hole.
            assert!(
                !sentence.contains("  ") && !sentence.contains('$'),
                "{message}: {sentence}"
            );
            assert!(
                sentence.ends_with('.') && !found.cure.is_empty(),
                "{message}"
            );
            assert!(found.rule_function.ends_with("()"), "{message}");
        }
    }
}

#[test]
fn names_and_numbers_come_into_the_sentence() {
    let says = |message: &str| {
        let text = format!("EXIT: runtime error ({message})\n");
        explain(text.as_bytes()).unwrap().remove(0).sentence
    };
    assert_eq!(
        says("SCX_DSQ_LOCAL[_ON] target CPU 10 not allowed for kworker/15:0[5703]"),
        "The scheduler sent kworker/15:0[5703] to CPU 10, where the task's CPU mask does not let it run."
    );
    // The simulator says where.
    assert_eq!(
        says("mine: in ops.enqueue: Web Content[12] already direct-dispatched"),
        "The scheduler inserted Web Content[12] twice in one op."
    );
}

/// The texts of `lab_lock_failed()` (include/lab/lock.h), as a real kernel passes them on.
#[test]
fn a_lock_of_the_schedulers_is_named_with_holder_and_line() {
    let of = |message: &str| {
        let text = format!("EXIT: scx_bpf_error ({message})\n");
        let found = explain(text.as_bytes()).unwrap().remove(0);
        (found.culprit, found.sentence, found.line)
    };
    let line = Some("/tmp/x.bpf.c:19".to_owned());
    assert_eq!(
        of(
            "/tmp/x.bpf.c:19: lock &lock_a: CPU 1 waits for itself: it took the lock at /tmp/x.bpf.c:17 0 ms ago and has not released it: release it on every path from there"
        ),
        (
            Culprit::LockHeld,
            "CPU 1 waits at /tmp/x.bpf.c:19 for the lock `lock_a`, which it holds itself: it took it at /tmp/x.bpf.c:17 and did not release it.".to_owned(),
            line.clone()
        )
    );
    assert_eq!(
        of(
            "/tmp/x.bpf.c:19: lock &rq->lock: CPU 1 waits in vain for CPU 0, which took it at /tmp/x.bpf.c:17 4000 ms ago and has not released it: release it on every path from there"
        ),
        (
            Culprit::LockHeld,
            "CPU 1 waits at /tmp/x.bpf.c:19 for the lock `rq->lock`, which CPU 0 took at /tmp/x.bpf.c:17 and did not release.".to_owned(),
            line.clone()
        )
    );
    assert_eq!(
        of(
            "/tmp/x.bpf.c:19: lock &lock_a: CPU 1 waits in vain for CPU 0, which took it at /tmp/x.bpf.c:17 4000 ms ago and waits for lock &lock_b at /tmp/x.bpf.c:18: take both in one order, or the second by lab_trylock()"
        ),
        (
            Culprit::LockHeld,
            "CPU 1 waits at /tmp/x.bpf.c:19 for the lock `lock_a`, which CPU 0 took at /tmp/x.bpf.c:17 and holds while it waits for the lock `lock_b` at /tmp/x.bpf.c:18.".to_owned(),
            line.clone()
        )
    );
    assert_eq!(
        of(
            "/tmp/x.bpf.c:19: lock &lock_a: not given to CPU 1 in time, though nobody has taken it: more CPUs wait than can run"
        ),
        (
            Culprit::LockNotGiven,
            "CPU 1 waited at /tmp/x.bpf.c:19 for the lock `lock_a` and did not get it in time, though nobody had taken it.".to_owned(),
            line
        )
    );
    // A scheduler's own words about a lock are its own.
    assert_eq!(of("x.bpf.c:19: lock 3: given up").0, Culprit::PolicyError);
}

/// The names that the virtual kernel gives to locks (`name_lock()` of crates/abi), and those of its own.
#[test]
fn a_circle_of_waiters_names_every_kind_of_lock() {
    let of = |links: &str| {
        let message = format!("mine: in ops.enqueue: deadlock of locks: {links}");
        let found = schedlab_explain::explain_result("mine", "fault", Some(&message), None, "");
        let found = found.unwrap();
        (found.culprit, found.sentence)
    };
    let expected = |lock: &str| {
        let sentence = format!(
            "CPU 0 waits for {lock}, which CPU 1 holds while it waits, itself or through others, for a lock that CPU 0 holds."
        );
        (Culprit::LockHeld, sentence)
    };
    for lock in [
        "the lock `lock_a`",
        "the lock `rqs[3].lock`",
        "the lock at offset 8 of `rqs`",
        "the lock at offset 0x10 of the arena",
        "the lock at offset 4 of a value of the map `locks`",
        "lock 3",
        "policy lock 3",
    ] {
        for (at, held) in [
            ("", ""),
            ("", ", held"),
            (
                " at /a for b/x, y.bpf.c:24 (x_enqueue)",
                ", taken at /a for b/x, y.bpf.c:21 (x_enqueue)",
            ),
            (" at x.bpf.c:24", ", taken at x.bpf.c:21"),
        ] {
            let links = format!(
                "CPU 0 waits{at} for {lock}{held} by CPU 1; CPU 1 waits at x.bpf.c:31 for the lock `b`, taken at x.bpf.c:30 by CPU 0"
            );
            assert_eq!(of(&links), expected(lock), "{links}");
        }
    }
}

/// A message of no known kernel is reported as it is, and as unknown.
#[test]
fn an_unknown_message_is_told() {
    let found = explain(b"EXIT: runtime error (the moon is full)\n")
        .unwrap()
        .remove(0);
    assert_eq!(found.culprit, Culprit::UnknownError);
    assert!(
        found.sentence.contains("the moon is full"),
        "{}",
        found.sentence
    );
}

/// As in the scx project's pull request 1496: a form has joined two lines of the kernel's log.
#[test]
fn two_records_in_one_line_are_read() {
    let first = "[2427581.529156] sched_ext: BPF scheduler \"p2dq\" disabled (runtime error)";
    let second = "[2427581.543695] sched_ext: p2dq: SCX_DSQ_LOCAL[_ON] verdict target cpu 21 not allowed for rcu_exp_par_gp_[313]";
    let told = |text: String| explain(text.as_bytes()).unwrap().remove(0).sentence;
    let joined = told(format!("{first} {second}\n"));
    assert_eq!(joined, told(format!("{first}\n{second}\n")));
    assert!(joined.contains("rcu_exp_par_gp_[313]"), "{joined}");
}
