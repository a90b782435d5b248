//! A policy's messages reach the user: its lines, its dump, the code of its exit, and ops that are never called.

use std::path::Path;

use schedlab_report::Exit;
use schedlab_sim::{Scheduler, SimSpec};

const TALKS: &str = r#"
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

/* Whether it ends by an error. */
const volatile bool fails;

s32 BPF_STRUCT_OPS_SLEEPABLE(talks_init)
{
	bpf_printk("one %d\n", 1);
	bpf_printk("two");
	return 0;
}

void BPF_STRUCT_OPS(talks_dump, struct scx_dump_ctx *ctx)
{
	scx_bpf_dump("queue state\n");
}

void BPF_STRUCT_OPS(talks_running, struct task_struct *p)
{
	if (fails)
		scx_bpf_error("enough");
	else
		scx_bpf_exit(SCX_ECODE_ACT_RESTART | 5, "restart me");
}

bool BPF_STRUCT_OPS(talks_core_sched_before, struct task_struct *a, struct task_struct *b)
{
	return false;
}

SCX_OPS_DEFINE(talks_ops,
	       .running			= (void *)talks_running,
	       .core_sched_before	= (void *)talks_core_sched_before,
	       .dump			= (void *)talks_dump,
	       .init			= (void *)talks_init,
	       .name			= "talks");
"#;

fn spec(name: &str, options: &str) -> SimSpec {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.bpf.c"));
    std::fs::write(&path, TALKS).expect("the folder for temporary files is writable");
    let scheduler = Scheduler::parse(&format!("{}{options}", path.display()));
    SimSpec {
        cpus: Some(1),
        ..SimSpec::new("cpu:tasks=1", scheduler, "laptop")
    }
}

/// A policy with these functions, and these members in its table.
fn with_ops(name: &str, functions: &str, members: &str) -> Scheduler {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.bpf.c"));
    let text = format!(
        "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\n{functions}\nSCX_OPS_DEFINE(x_ops, {members} .name = \"x\");\n"
    );
    std::fs::write(&path, text).expect("the folder for temporary files is writable");
    Scheduler::parse(path.to_str().unwrap())
}

/// A policy learns of a changed setting by the op for it alone.
#[test]
fn settings_of_cgroups_that_a_policy_has_no_op_for_are_noted() {
    let notes = |scheduler: &Scheduler, kernel: &str, settings: &str| {
        let spec = SimSpec {
            kernel: kernel.to_owned(),
            ..SimSpec::new(
                format!("cpu:tasks=1,cgroup=/a{settings}"),
                scheduler.clone(),
                "laptop",
            )
        };
        let notes = schedlab_sim::check(&spec).unwrap();
        let start = format!("{}: ", scheduler.name);
        let of_cgroups = notes.iter().filter_map(|note| note.strip_prefix(&start));
        of_cgroups
            .filter(|note| note.contains("cgroup"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let all = ",cpu.weight=50,cpu.max=20ms/100ms,cpu.idle=true";
    let init = "s32 BPF_STRUCT_OPS_SLEEPABLE(x_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args) { return 0; }";
    let with_init = with_ops("inits", init, ".cgroup_init = (void *)x_init,");
    let weight = "`cpu.weight` has no effect: it has no ops.cgroup_set_weight()";
    let max = "`cpu.max` has no effect: it has no ops.cgroup_set_bandwidth()";
    let idle = "`cpu.idle` has no effect: it has no ops.cgroup_set_idle()";
    assert_eq!(notes(&with_init, "7.2", all), [weight, max, idle]);
    assert_eq!(notes(&with_init, "7.2", ",cpu.max=20ms/100ms"), [max]);
    assert!(notes(&with_init, "7.2", "").is_empty());
    let set = "void BPF_STRUCT_OPS(x_idle, struct cgroup *cgrp, bool idle) {}";
    let with_idle = with_ops("idles", set, ".cgroup_set_idle = (void *)x_idle,");
    assert_eq!(notes(&with_idle, "7.2", all), [weight, max]);
    let older = "`cpu.idle` has no effect: Linux 6.18 has no ops.cgroup_set_idle()";
    assert_eq!(notes(&with_idle, "6.18", all), [weight, max, older]);
    let general = "weights and limits of cgroups have no effect: it has no op for cgroups";
    assert_eq!(notes(&with_ops("plain", "", ""), "7.2", all), [general]);
    assert!(notes(&Scheduler::parse("kernel"), "7.2", all).is_empty());
}

/// A simulation leaves out a program that only a loader calls, and a note names it.
#[test]
fn a_program_that_is_left_out_is_told_and_the_run_goes_on() {
    let spec = spec("asked", "");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("asked.bpf.c");
    let program = "SEC(\"syscall\")\nint ask(void *ctx)\n{\n\treturn 0;\n}\n";
    let text = TALKS.replace("SCX_OPS_DEFINE", &format!("{program}\nSCX_OPS_DEFINE"));
    std::fs::write(&path, text).unwrap();
    let notes = schedlab_sim::check(&spec).expect("it can be begun");
    let told =
        "ask() is left out: it is a program of SEC(\"syscall\"), and a simulation calls ops alone";
    assert!(notes[0].ends_with(told), "{notes:?}");
    let run = schedlab_sim::run(&spec, None).expect("it can be begun");
    assert_eq!(run.exit, Exit::UnregBpf);
}

#[test]
fn lines_and_exit_codes_stand_in_the_result() {
    let result = schedlab_sim::run(&spec("talks", ""), None).expect("it can be begun");
    assert_eq!(result.exit, Exit::UnregBpf);
    assert_eq!(result.exit_code, Some(1 << 48 | 5));
    let line = 1 + TALKS
        .lines()
        .position(|line| line.contains("restart me"))
        .unwrap();
    assert_eq!(
        result.message,
        Some(format!(
            "unregistered from BPF, code 0x1000000000005 (restart me), in ops.running at talks.bpf.c:{line} (talks_running)"
        ))
    );
    assert_eq!(result.printed, ["one 1", "two"]);
    assert_eq!(result.dump, "", "of no error");
}

#[test]
fn an_ejected_policy_leaves_its_dump() {
    let result = schedlab_sim::run(&spec("fails", ":fails=true"), None).expect("it can be begun");
    assert_eq!((result.exit, result.exit_code), (Exit::ErrorBpf, None));
    // The policy's output stands apart, in the place that it has in the kernel's dump.
    let (before, states) = result
        .dump
        .split_once("\nqueue state\n\n")
        .expect("the policy's own");
    let head = "talks: root\nvirtual kernel[0] triggered exit kind 1025:\n  scx_bpf_error (";
    assert!(before.starts_with(head), "{}", result.dump);
    let cpu = "CPU states\n----------\n\nCPU 0   : nr_run=1 flags=0x1 cpu_rel=0 ksync=";
    assert!(states.starts_with(cpu), "{}", result.dump);
    for line in [
        "          curr=main[1000] class=ext_sched_class\n\n *R main[1000] *root +0ms\n      scx_state/flags=4/0x5 dsq_flags=0x0 ops_state/qseq=0/0\n",
        "      sticky/holding_cpu=-1/-1 dsq_id=(n/a)\n      dsq_vtime=0 slice=",
    ] {
        assert!(states.contains(line), "{}", result.dump);
    }
}

/// A task that may run only on the CPU of a real-time hog stays in its scheduler's own queue, whatever that is made of.
#[test]
fn the_queue_of_a_task_that_stalls_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pinned.json");
    let text = r#"{"tasks": {
        "rt": {"policy": "SCHED_FIFO", "priority": 5, "cpus": [0], "run": 100000000, "loop": 1},
        "app": {"cpus": [0], "run": 10000, "sleep": 10000, "loop": 50}}, "global": {"duration": 100}}"#;
    std::fs::write(&file, text).unwrap();
    let names = schedlab_sim::schedulers().into_iter().map(|one| one.name);
    let told = names.filter(|name| name != "kernel").filter_map(|name| {
        let spec = SimSpec {
            cpus: Some(2),
            ..SimSpec::new(file.to_str().unwrap(), Scheduler::parse(&name), "laptop")
        };
        let result = schedlab_sim::run(&spec, None).expect("it can be begun");
        let message = result.message.filter(|_| result.exit == Exit::ErrorStall)?;
        let (_, place) = message.split_once("since ops.enqueue()")?;
        Some((name, place.to_owned()))
    });
    let told: std::collections::BTreeMap<String, String> = told.collect();
    let nameless: Vec<&String> = told
        .iter()
        .filter(|(_, place)| !place.starts_with(", in the "))
        .map(|(name, _)| name)
        .collect();
    assert!(nameless.is_empty(), "{nameless:?}: {told:#?}");
    for (name, place) in [
        ("mq", "the list `queues[0].list`"),
        ("o1", "the list `lab_rqs.at[0]->lists["),
        ("ule", "]` of CPU 0"),
        ("cfs-like", "the tree `lab_rqs.at[0]->tree` of CPU 0"),
        ("muqss", "the skip list `queues[0].list`"),
        ("elsc-heap", "the heap `rq.chains["),
    ] {
        assert!(told[name].contains(place), "{name}: {}", told[name]);
    }
}

/// The comment of an option says its range, so that no run begins with a value that the policy would refuse.
#[test]
fn an_option_out_of_range_is_named() {
    let begin = |scheduler: &str| {
        let spec = SimSpec {
            cpus: Some(1),
            ..SimSpec::new("cpu:tasks=1", Scheduler::parse(scheduler), "laptop")
        };
        schedlab_sim::run(&spec, None).map_err(|error| error.to_string())
    };
    for (scheduler, said) in [
        (
            "fifo:slice_us=3600000001",
            "3600000000, or a time such as 3ms",
        ),
        ("fifo:slice_us=2h", "3600000000, or a time such as 3ms"),
        ("vtime:slice_us=18446744073709552", "from 0 to 3600000000"),
        ("cfs:latency_us=18446744073709553", "from 0 to 1000000"),
        ("dss:threshold=2147483648", "from 0 to 1073741824"),
        ("bfs:rr_interval=0", "from 1 to 1000"),
    ] {
        let error = begin(scheduler).expect_err(scheduler);
        assert!(error.contains(said), "{scheduler}: {error}");
    }
    let (with_unit, without) = (begin("fifo:slice_us=3ms"), begin("fifo:slice_us=3000"));
    let (with_unit, without) = (with_unit.unwrap(), without.unwrap());
    assert_eq!(with_unit.measures, without.measures);
}

#[test]
fn ops_that_are_never_called_are_named() {
    let notes = schedlab_sim::check(&spec("names", "")).expect("it can be begun");
    assert_eq!(
        notes,
        ["names: ops.core_sched_before is never called in a simulation"]
    );
    let quiet = SimSpec::new("cpu:tasks=1", Scheduler::parse("fifo"), "laptop");
    assert_eq!(schedlab_sim::check(&quiet).unwrap(), [""; 0]);
}

#[test]
fn flags_that_do_something_else_in_a_kernel_are_named() {
    let spec = spec("flags", "");
    let with = |flags: &str| {
        let ops = format!("SCX_OPS_DEFINE(talks_ops,\n\t       .flags\t= {flags},");
        let source = TALKS
            .replace("SCX_OPS_DEFINE(talks_ops,", &ops)
            .replace(".core_sched_before\t= (void *)talks_core_sched_before,", "");
        std::fs::write(&spec.scheduler.name, source).expect("it was written before");
        schedlab_sim::check(&spec).expect("it can be begun")
    };
    assert_eq!(
        with(
            "SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_MIGRATION_DISABLED | SCX_OPS_ALLOW_QUEUED_WAKEUP"
        ),
        [
            "flags: SCX_OPS_SWITCH_PARTIAL leaves it no task in a simulation: none asks for SCHED_EXT",
            "flags: SCX_OPS_ENQ_MIGRATION_DISABLED changes nothing in a simulation: no task ever has its migration disabled",
            "flags: SCX_OPS_ALLOW_QUEUED_WAKEUP changes nothing in a simulation: the waker always enqueues the task itself",
        ]
    );
    // Others do what they do.
    assert_eq!(with("SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING"), [""; 0]);
}

/// It compiles, and is not what its author meant.
#[test]
fn warnings_of_the_compiler_are_notes() {
    let warns = TALKS.replace("if (fails)", "if (p->scx.slice = 3)");
    let spec = spec("warns", "");
    std::fs::write(&spec.scheduler.name, warns).expect("it was written before");
    let notes = schedlab_sim::check(&spec).expect("it can be begun");
    let start = format!("{}:23: warning: ", spec.scheduler.name);
    assert!(
        notes.len() == 2 && notes[0].starts_with(&start) && notes[0].contains("[-Wparentheses]"),
        "{notes:?}"
    );
}

/// A policy may declare what it asks for itself, as of another kernel: that does not make it exist.
#[test]
fn what_this_kernel_lacks_is_answered_no() {
    let declared = r#"
extern void scx_bpf_of_the_future(s32 cpu) __ksym __weak;
struct sched_ext_entity___other { u64 slice; u64 of_no_kernel; };
struct of_no_kernel___x { int a; };
enum of_another___x { SCX_OF_ANOTHER___x = 1 };
"#;
    let asks = r#"
	struct sched_ext_entity___other *e = (void *)&p->scx;

	if (bpf_ksym_exists(scx_bpf_of_the_future))
		scx_bpf_of_the_future(0);
	scx_bpf_exit(bpf_core_field_exists(e->of_no_kernel) + 10 * bpf_core_type_exists(struct of_no_kernel___x) +
		     100 * bpf_core_enum_value_exists(enum of_another___x, SCX_OF_ANOTHER___x) +
		     1000 * bpf_core_field_exists(p->scx.slice) + 10000 * bpf_core_type_exists(struct task_struct) +
		     100000 * bpf_core_enum_value_exists(enum scx_enq_flags, SCX_ENQ_WAKEUP) +
		     1000000 * !!bpf_ksym_exists(scx_bpf_dsq_insert), "asked");
"#;
    let spec = spec("asks", "");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("asks.bpf.c");
    let head = "void BPF_STRUCT_OPS(talks_running, struct task_struct *p)\n{\n";
    let text = TALKS
        .replace(
            "#include <scx/common.bpf.h>\n",
            &format!("#include <scx/common.bpf.h>\n{declared}"),
        )
        .replace(head, &format!("{head}{asks}\treturn;\n"));
    std::fs::write(&path, text).unwrap();
    let run = schedlab_sim::run(&spec, None).expect("it can be begun");
    assert_eq!(
        (run.exit, run.exit_code),
        (Exit::UnregBpf, Some(1_111_000)),
        "{:?}",
        run.message
    );
}
