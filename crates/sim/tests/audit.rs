//! The audit (`docs/audit.md`): each policy lets a probe pay for every other task that it looks at, and an audited run
//! is the run without an audit; who forgets one is found, with the line.
//!
//! SCHEDLAB_AUDIT_CASES and SCHEDLAB_PROPERTY_SEED choose how many random scenarios are tried, and which.

#[path = "support/chosen.rs"]
mod chosen;
#[path = "support/case.rs"]
mod random;
mod support;
#[path = "support/run.rs"]
mod virtual_kernel;

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use random::{Case, case};
use schedlab_abi::{KernelVersion, NativeObject, NativePolicy, OptionKind, Watch};
use schedlab_engine::{ExitKind, RunEnd, Scenario};
use schedlab_policies::compile::{audit_compiler, compile_audited};
use schedlab_trace::{Listener, Scheduler};
use schedlab_workload::Workload;
use support::rules::repository;
use virtual_kernel::{Bytes, machine, run_with};

/// A clang, if there is one.
fn clang() -> Option<String> {
    let found = audit_compiler();
    if let Err(error) = &found {
        schedlab_testing::skipped(&format!("the audit of policies: {error}"));
    }
    found.ok()
}

/// Runs a scenario under an audited copy.
fn audited<R: Listener>(
    object: &Arc<NativeObject>,
    options: &str,
    scenario: Scenario,
    recorder: R,
) -> RunEnd<NativePolicy<true>, R> {
    let settings = object
        .settings(&Scheduler::parse_options(options))
        .unwrap_or_else(|error| panic!("{error}"));
    let version = KernelVersion::default();
    let watch = Watch {
        payment: true,
        races: false,
    };
    let policy = NativePolicy::load_watched(object, &settings, &scenario.machine, version, watch)
        .unwrap_or_else(|error| panic!("{error}"));
    schedlab_engine::run(scenario, policy, recorder)
}

fn runner() -> TestRunner {
    TestRunner::new(ProptestConfig {
        cases: random::number("SCHEDLAB_AUDIT_CASES").unwrap_or(20),
        max_shrink_iters: 100,
        ..random::config()
    })
}

fn chat(machine_name: &str, cpus: usize) -> Scenario {
    let workload = Workload::parse("chat:rooms=2,users=5,messages=6", cpus).unwrap();
    Scenario::new(machine(machine_name, cpus), workload, 1)
}

/// With 80 threads.
fn crowd(machine_name: &str, cpus: usize) -> Scenario {
    let workload = Workload::parse("chat:rooms=1,messages=20", cpus).unwrap();
    Scenario::new(machine(machine_name, cpus), workload, 1)
}

/// Senders wake receivers one after another: `cfs` has hints for tasks that run on another CPU.
fn groups(machine_name: &str, cpus: usize) -> Scenario {
    let workload = Workload::parse("hackbench:groups=1,loops=5", cpus).unwrap();
    Scenario::new(machine(machine_name, cpus), workload, 1)
}

/// Tasks that compute for longer than a turn, and end.
fn make(machine_name: &str, cpus: usize) -> Scenario {
    let workload = Workload::parse("cpu:tasks=24,run=30ms,loops=3,duration=0", cpus).unwrap();
    Scenario::new(machine(machine_name, cpus), workload, 1)
}

/// Whether the audit lets a policy pass in a scenario, with the events that it has without.
fn passes(
    object: &Arc<NativeObject>,
    plain: &Arc<NativeObject>,
    options: &str,
    scenario: impl Fn() -> Scenario,
) -> Result<(), String> {
    let end = audited(object, options, scenario(), Bytes::default());
    if end.exit.kind != ExitKind::Done {
        return Err(end.exit.message);
    }
    let without = run_with(plain, options, scenario(), Bytes::default());
    match end.recorder.0 == without.recorder.0 {
        true => Ok(()),
        false => Err("the audit changes the run".to_owned()),
    }
}

/// Every option of a policy with each of its alternatives, one at a time; the defaults first.
fn variants(object: &NativeObject) -> Vec<String> {
    let mut all = vec![String::new()];
    for option in object.options() {
        let words: Vec<String> = match &option.kind {
            OptionKind::Bool => vec!["false".to_owned(), "true".to_owned()],
            OptionKind::Choice(words) => words.iter().map(|(word, _)| word.clone()).collect(),
            OptionKind::Integer { .. } => Vec::new(),
        };
        let others = words.iter().filter(|word| **word != option.default_text());
        all.extend(others.map(|word| format!("{}={word}", option.name)));
    }
    all
}

#[test]
fn every_policy_pays_and_is_not_changed_by_the_audit() {
    let Some(clang) = clang() else { return };
    let mut faults = Vec::new();
    for policy in chosen::policies() {
        let path = repository().join(format!("policies/{}.bpf.c", policy.name));
        let object = compile_audited(&path, &clang).unwrap_or_else(|error| panic!("{error}"));
        let plain = policy.object();
        let mut look = |what: String, result: Result<(), String>| {
            if let Err(why) = result {
                faults.push(format!("{what}: {why}"));
            }
        };
        for options in variants(&object) {
            for (name, cpus) in [("netfinity-8500r", 8), ("numa-8x64x2", 12)] {
                for (kind, scenario) in [("chat", chat as fn(&str, usize) -> _), ("make", make)] {
                    let passed = passes(&object, &plain, &options, || scenario(name, cpus));
                    look(
                        format!("{}:{options}, {kind} on {name}", policy.name),
                        passed,
                    );
                }
            }
        }
        let result = runner().run(&case(), |case: Case| {
            passes(&object, &plain, "", || case.scenario()).map_err(TestCaseError::fail)
        });
        look(
            policy.name.to_owned(),
            result.map_err(|error| error.to_string()),
        );
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A policy that keeps the context and the task that it enqueued last; a case says what it does with them.
const SOURCE: &str = r#"#include <lab/lab.bpf.h>

char _license[] SEC("license") = "GPL";

struct mine_task {
	struct lab_task lab;
	u64 looks __attribute__((aligned(LAB_CACHELINE)));
} __attribute__((aligned(LAB_CACHELINE)));

LAB_TASKS(struct mine_task);

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} stored SEC(".maps");

static task_t *last;
static struct task_struct *last_p;
static u64 sum;

void BPF_STRUCT_OPS(mine_runnable, struct task_struct *p, u64 enq_flags)
{
	if (last)
		BEFORE;
}

void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_struct *found __maybe_unused;
	u64 *value __maybe_unused;

	if (last && last_p != p && last_p != bpf_get_current_task_btf()) {
		LOOK;
	}
	last = task_of(p);
	last_p = p;
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mine_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	u64 *value = bpf_task_storage_get(&stored, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (value)
		*value = 1;
	return task_new(p) ? 0 : -ENOMEM;
}

void BPF_STRUCT_OPS(mine_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	if (last_p == p)
		last = NULL;
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mine_init)
{
	return lab_init();
}

SCX_OPS_DEFINE(mine_ops,
	       .runnable	= (void *)mine_runnable,
	       .enqueue		= (void *)mine_enqueue,
	       .init_task	= (void *)mine_init_task,
	       .exit_task	= (void *)mine_exit_task,
	       .init		= (void *)mine_init,
	       .name		= "mine");
"#;

fn compiled(folder: &Path, source: &str, clang: &str) -> Arc<NativeObject> {
    let path = folder.join("mine.bpf.c");
    std::fs::write(&path, source).unwrap();
    compile_audited(&path, clang).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn who_looks_without_a_probe_is_found() {
    let Some(clang) = clang() else { return };
    let folder = tempfile::tempdir().unwrap();
    const NOTHING: &str = "sum++";
    let line = SOURCE.lines().position(|line| line == "\t\tLOOK;").unwrap() + 1;
    let context = "the context of task";
    for (before, look, found) in [
        (NOTHING, "sum += last->looks", Some(("reads", context))),
        (NOTHING, "last->looks = 1", Some(("writes", context))),
        (NOTHING, "examine(last); sum += last->looks", None),
        (NOTHING, "consult(last); sum += last->looks", None),
        (NOTHING, "alter(last); last->looks = 1", None),
        (NOTHING, "lab_recalculated(last); last->looks = 1", None),
        (NOTHING, "lab_unaudited(last->looks = 1)", None),
        (NOTHING, "lab_unaudited_block(); last->looks = 1", None),
        // Its line, and another one of the same context.
        (
            NOTHING,
            "lab_touch(&last->looks, true); last->looks = 1",
            None,
        ),
        (
            NOTHING,
            "lab_touch(&last->lab.pid, true); last->looks = 1",
            Some(("writes", context)),
        ),
        // Another op paid, and the annotation is over.
        (
            "examine(last)",
            "sum += last->looks",
            Some(("reads", context)),
        ),
        (
            NOTHING,
            "lab_unaudited(sum = last->lab.pid); sum += last->looks",
            Some(("reads", context)),
        ),
        (
            NOTHING,
            "sum += last_p->static_prio",
            Some(("reads", "the task_struct of task")),
        ),
        (NOTHING, "consult(last); sum += last_p->static_prio", None),
        // A looked-up task is paid for, but not the policy's own data of it.
        (
            NOTHING,
            "found = bpf_task_from_pid(lab_unaudited(last->lab.pid)); if (found) { sum += found->static_prio; bpf_task_release(found); }",
            None,
        ),
        (
            NOTHING,
            "found = bpf_task_from_pid(lab_unaudited(last->lab.pid)); if (found) { sum += last->looks; bpf_task_release(found); }",
            Some(("reads", context)),
        ),
        (
            NOTHING,
            "value = bpf_task_storage_get(&stored, last_p, NULL, 0); if (value) sum += *value",
            Some(("reads", "the stored of task")),
        ),
    ] {
        let source = SOURCE
            .replace("\t\tBEFORE;", &format!("\t\t{before};"))
            .replace("\t\tLOOK;", &format!("\t\t{look};"));
        let object = compiled(folder.path(), &source, &clang);
        let end = audited(&object, "", chat("laptop", 4), Bytes::default());
        let (kind, message) = (end.exit.kind, end.exit.message);
        match found {
            None => assert_eq!(kind, ExitKind::Done, "{look}: {message}"),
            Some((verb, what)) => {
                assert_eq!(kind, ExitKind::Fault, "{look}");
                let begin =
                    format!("mine: in ops.enqueue: mine.bpf.c:{line} (mine_enqueue): it {verb} ");
                // A field is named before what it is in.
                assert!(message.starts_with(&begin), "{look}: {message}");
                assert!(message.contains(&format!("{what} ")), "{look}: {message}");
                assert_eq!(message.lines().count(), 1);
            }
        }
    }
}

/// The library is the policies': a probe that is missing there is found, too.
#[test]
fn a_probe_that_is_taken_out_is_missed() {
    let Some(clang) = clang() else { return };
    let folder = tempfile::tempdir().unwrap();
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap();
    let probes: [(&str, &[&str], &str); 10] = [
        ("dss", &[], "\t\texamine(t);\n"),
        (
            "dss",
            &["lab/linux24_queue.h", "lab/linux24.h"],
            "\t\t\tconsult(curr);\n",
        ),
        (
            "mq",
            &["lab/mq.h"],
            "\t\tconsult(t);\n\t\tif (lab_glance(t->old.takeable)",
        ),
        ("bmqs", &[], "\t\tconsult(curr);\n"),
        ("o1", &[], "\t\tconsult(curr);\n"),
        ("cfs", &[], "\tconsult(hint);\n"),
        ("cfs", &[], "\tlab_touch(rq->tree.first, false);\n"),
        ("cfs", &["lab/fair.h"], "\t\tconsult(rq->curr);\n\t\tleast"),
        (
            "cfs",
            &["lab/fair.h"],
            "\t\tlab_touch(rq->tree.root, false);\n",
        ),
        (
            "eevdf",
            &["lab/fair.h", "lab/fair_balance.h"],
            "\t\tconsult(t);\n",
        ),
    ];
    for (policy, headers, probe) in probes {
        let mut source = read(&format!("policies/{policy}.bpf.c"));
        // Each header stands in the text of the one before.
        for header in headers {
            let include = format!("#include <{header}>");
            assert!(source.contains(&include), "{policy}: {header}");
            let text = read(&format!("include/{header}"));
            // The file beside that header.
            let beside = text
                .lines()
                .map(|line| match line.strip_prefix("#include \"") {
                    Some(name) => format!("#include <lab/{}>\n", name.trim_end_matches('"')),
                    None => format!("{line}\n"),
                });
            source = source.replacen(&include, &beside.collect::<String>(), 1);
        }
        assert!(source.contains(probe), "{policy}: {probe}");
        let call = probe.find(';').unwrap();
        let without = format!("\t;{}", &probe[call + 1..]);
        let object = compiled(folder.path(), &source.replacen(probe, &without, 1), &clang);
        let scenarios = [
            chat("netfinity-8500r", 8),
            make("numa-8x64x2", 12),
            make("laptop", 2),
            crowd("netfinity-8500r", 8),
            groups("laptop", 4),
        ];
        let found = scenarios.into_iter().any(|scenario| {
            let end = audited(&object, "", scenario, Bytes::default());
            end.exit.kind == ExitKind::Fault
        });
        assert!(found, "{policy} without {probe}");
    }
}
