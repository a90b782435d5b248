//! The checker of data races (`docs/races.md`): it names both lines of each kind of race, and reports nothing in
//! right code.

mod support;
#[path = "support/run.rs"]
mod virtual_kernel;

use std::path::Path;
use std::sync::Arc;

use schedlab_abi::{KernelVersion, NativeObject, NativePolicy, Watch};
use schedlab_engine::{ExitKind, Scenario};
use schedlab_policies::compile::{audit_compiler, compile_audited};
use schedlab_report::Exit;
use schedlab_sim::SimSpec;
use schedlab_trace::{Duration, Scheduler};
use schedlab_workload::Workload;
use support::rules::repository;
use virtual_kernel::{Bytes, machine};

/// A clang, if there is one.
fn clang() -> Option<String> {
    let found = audit_compiler();
    if let Err(error) = &found {
        schedlab_testing::skipped(&format!("the checker of data races: {error}"));
    }
    found.ok()
}

/// The races of a run, and its events.
fn races(object: &Arc<NativeObject>, options: &str, scenario: Scenario) -> (Vec<String>, Bytes) {
    let settings = object
        .settings(&Scheduler::parse_options(options))
        .unwrap_or_else(|error| panic!("{error}"));
    let version = KernelVersion::default();
    let watch = Watch {
        payment: false,
        races: true,
    };
    let policy = NativePolicy::load_watched(object, &settings, &scenario.machine, version, watch)
        .unwrap_or_else(|error| panic!("{error}"));
    let end = schedlab_engine::run(scenario, policy, Bytes::default());
    assert_eq!(end.exit.kind, ExitKind::Done, "{}", end.exit.message);
    (end.policy.races().to_vec(), end.recorder)
}

fn scenario(workload: &str, machine_name: &str, cpus: usize) -> Scenario {
    let workload = Workload::parse(workload, cpus).unwrap();
    Scenario::new(machine(machine_name, cpus), workload, 1)
}

// All tasks are there at once: that is where CPUs meet.
const CHAT: &str = "chat:rooms=2,users=5,messages=6,start=together";
const MAKE: &str = "cpu:tasks=24,run=30ms,loops=3,duration=0,start=together";

// Others are forked one after another, and end while others run.
const HACKBENCH: &str = "hackbench:groups=1,loops=10";
const BUILD: &str = "kbuild:jobs=14,units=20";

#[test]
fn policies_of_the_program_have_no_races() {
    let Some(clang) = clang() else { return };
    for policy in schedlab_policies::builtin() {
        let path = repository().join(format!("policies/{}.bpf.c", policy.name));
        let object = compile_audited(&path, &clang).unwrap_or_else(|error| panic!("{error}"));
        let scenarios = [
            (CHAT, "netfinity-8500r", 8),
            (MAKE, "numa-8x64x2", 12),
            (HACKBENCH, "laptop", 16),
            (BUILD, "numa-8x64x2", 12),
        ];
        for (workload, name, cpus) in scenarios {
            let (found, _) = races(&object, "", scenario(workload, name, cpus));
            assert!(found.is_empty(), "{}: {found:?}", policy.name);
        }
    }
}

/// A policy with one queue of tasks, around which and in whose ops the cases do what they do.
const SOURCE: &str = r#"#include <lab/lab.bpf.h>

char _license[] SEC("license") = "GPL";

struct mine_task {
	struct lab_task lab;
	u64 turns __attribute__((aligned(LAB_CACHELINE)));
} __attribute__((aligned(LAB_CACHELINE)));

LAB_TASKS(struct mine_task);

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} stored SEC(".maps");

struct guarded {
	struct bpf_spin_lock lock;
	u64 sum;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct guarded);
} values SEC(".maps");

struct timer_value {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer_value);
} timers SEC(".maps");

struct {
	struct lab_lock lock, other;
	struct lab_list list;
} queue;

/* A line for each CPU. */
struct {
	u64 nr, sum;
} __attribute__((aligned(LAB_CACHELINE))) of_cpu[64];

#define WAITING 0
#define here of_cpu[bpf_get_smp_processor_id() & 63]

static u64 data, other;
static u32 flag;
static bool is_done;

static void expired(void)
{
	EXPIRED;
}

static int callback(void *map, int *key, struct bpf_timer *timer)
{
	expired();
	bpf_timer_start(timer, 100000, 0);
	return 0;
}

s32 BPF_STRUCT_OPS(mine_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	SELECT;
	return prev_cpu;
}

void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	ENQUEUE;
	PUT {
		lab_list_add_tail(&queue.list, &t->lab.node);
	}
	DONE;
}

void BPF_STRUCT_OPS(mine_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p = NULL;
	task_t *t = NULL;

	DISPATCH;
	TAKE {
		if (queue.list.nr) {
			t = (task_t *)queue.list.head.next;
			lab_list_del(&queue.list, &t->lab.node);
		}
	}
	TAKEN;
	if (t)
		p = bpf_task_from_pid(t->lab.pid);
	if (!p)
		return;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
	bpf_task_release(p);
}

void BPF_STRUCT_OPS(mine_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		RUNNING;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mine_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	if (!bpf_task_storage_get(&stored, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE))
		return -ENOMEM;
	return task_new(p) ? 0 : -ENOMEM;
}

void BPF_STRUCT_OPS(mine_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mine_init)
{
	struct bpf_timer *timer;
	u32 key = 0;
	s32 err = lab_init();

	lab_list_init(&queue.list);
	data = 1;
	timer = bpf_map_lookup_elem(&timers, &key);
	if (err || !timer)
		return err;
	bpf_timer_init(timer, &timers, 1);
	bpf_timer_set_callback(timer, callback);
	bpf_timer_start(timer, 100000, 0);
	return scx_bpf_create_dsq(WAITING, -1);
}

SCX_OPS_DEFINE(mine_ops,
	       .select_cpu	= (void *)mine_select_cpu,
	       .enqueue		= (void *)mine_enqueue,
	       .dispatch	= (void *)mine_dispatch,
	       .running		= (void *)mine_running,
	       .init_task	= (void *)mine_init_task,
	       .exit_task	= (void *)mine_exit_task,
	       .init		= (void *)mine_init,
	       .name		= "mine");
"#;

/// The replacements for the words in [`SOURCE`] in a case; the others stand for nothing, and the queue is locked.
type Parts<'a> = &'a [(&'a str, &'a str)];

const LOCKED: &str =
    "for (bool once = lab_lock(&queue.lock); once; once = (lab_unlock(&queue.lock), false))";
const LOCKED_COUNT: &str = "if (lab_lock(&queue.lock)) { data++; lab_unlock(&queue.lock); }";
const LOCKED_OTHERWISE: &str =
    "for (bool once = lab_lock(&queue.other); once; once = (lab_unlock(&queue.other), false))";

fn source(parts: Parts<'_>) -> String {
    let mut source = SOURCE.to_owned();
    for word in [
        "EXPIRED", "SELECT", "ENQUEUE", "PUT", "DONE", "DISPATCH", "TAKEN", "TAKE", "RUNNING",
    ] {
        let given = parts.iter().find(|(name, _)| *name == word);
        let text = match (given, word) {
            (Some((_, text)), _) => text,
            (None, "PUT" | "TAKE") => LOCKED,
            (None, _) => "",
        };
        let behind = match word {
            "PUT" | "TAKE" => " {\n",
            _ => ";\n",
        };
        source = source.replace(&format!("\t{word}{behind}"), &format!("\t{text}{behind}"));
    }
    source
}

fn compiled(folder: &Path, parts: Parts<'_>, clang: &str) -> Arc<NativeObject> {
    let path = folder.join("mine.bpf.c");
    std::fs::write(&path, source(parts)).unwrap();
    compile_audited(&path, clang).unwrap_or_else(|error| panic!("{error}"))
}

/// The line of a text in a source.
fn line(source: &str, text: &str) -> usize {
    let text = text.lines().next().unwrap();
    source.lines().position(|line| line.contains(text)).unwrap() + 1
}

const PUBLISH: &str =
    "if (!bpf_get_smp_processor_id() && !is_done) { is_done = true; data = 5; PUBLISHED; }";

#[test]
fn races_are_found_with_both_lines() {
    let Some(clang) = clang() else { return };
    let folder = tempfile::tempdir().unwrap();
    let publish = |how: &str| {
        PUBLISH
            .replace("PUBLISHED", how)
            .replace("!is_done", "true")
    };
    let (plainly, marked) = (publish("flag = 1"), publish("WRITE_ONCE(flag, 1)"));
    let read_stored = "static struct task_struct *latest; struct task_struct *last = READ_ONCE(latest); u64 *mine = bpf_task_storage_get(&stored, p, NULL, 0), *value = last ? bpf_task_storage_get(&stored, last, NULL, 0) : NULL; WRITE_ONCE(latest, p); if (value) here.sum += *value; if (mine) ++*mine";
    let cases: &[(Parts<'_>, (&str, &str), &str)] = &[
        // A list without a lock, with a lock on one side, and with another one on each.
        (
            &[("PUT", "if (true)"), ("TAKE", "if (true)")],
            ("enqueue", "dispatch"),
            "queue.list",
        ),
        (
            &[("PUT", "if (true)")],
            ("enqueue", "dispatch"),
            "queue.list",
        ),
        (
            &[("TAKE", "if (true)")],
            ("enqueue", "dispatch"),
            "queue.list",
        ),
        (
            &[("TAKE", LOCKED_OTHERWISE)],
            ("enqueue", "dispatch"),
            "queue.list",
        ),
        // A counter of all CPUs, and one of a CPU that others change, too.
        (&[("ENQUEUE", "data++")], ("enqueue", "enqueue"), "`data`"),
        (
            &[
                ("SELECT", "of_cpu[prev_cpu & 63].nr++"),
                ("DISPATCH", "of_cpu[cpu & 63].nr++"),
            ],
            ("select_cpu", "dispatch"),
            "nr`",
        ),
        // One of the two is marked, or atomic.
        (
            &[
                ("ENQUEUE", "WRITE_ONCE(data, 1)"),
                ("DISPATCH", "here.sum += data"),
            ],
            ("enqueue", "dispatch"),
            "`data`",
        ),
        (
            &[
                ("ENQUEUE", "__sync_fetch_and_add(&data, 1)"),
                ("DISPATCH", "here.sum += data"),
            ],
            ("enqueue", "dispatch"),
            "`data`",
        ),
        // A flag that is plain, and one that orders nothing.
        (
            &[
                ("ENQUEUE", &plainly),
                ("DISPATCH", "if (flag) here.sum += data"),
            ],
            ("enqueue", "dispatch"),
            "`flag`",
        ),
        (
            &[
                ("ENQUEUE", &marked),
                ("DISPATCH", "if (READ_ONCE(flag)) here.sum += data"),
            ],
            ("enqueue", "dispatch"),
            "`data`",
        ),
        // Another task's value, the context of one that was given away, and a timer.
        (
            &[("ENQUEUE", read_stored)],
            ("enqueue", "enqueue"),
            "map `stored`",
        ),
        (
            &[("DONE", "t->turns++"), ("TAKEN", "if (t) t->turns++")],
            ("enqueue", "dispatch"),
            "`turns` of the context of task",
        ),
        (
            &[("EXPIRED", "data++"), ("DISPATCH", "here.sum += data")],
            ("timer callback", "dispatch"),
            "`data`",
        ),
    ];
    for (parts, ops, what) in cases {
        let object = compiled(folder.path(), parts, &clang);
        let (found, _) = races(&object, "", scenario(CHAT, "numa-8x64x2", 6));
        let source = source(parts);
        let told = |race: &&String| {
            let (first, second) = race
                .strip_prefix("data race: ")
                .unwrap()
                .split_once(") and ")
                .unwrap();
            let in_op = |side: &str, op: &str| side.contains(&format!(" in ops.{op} ("));
            race.contains(what)
                && (in_op(first, ops.0) && in_op(second, ops.1)
                    || in_op(first, ops.1) && in_op(second, ops.0))
        };
        let race = found.iter().find(told);
        let race = race.unwrap_or_else(|| panic!("{parts:?}: {found:?}"));
        assert_eq!(race.lines().count(), 1, "{race}");
        // Both lines are the policy's own.
        let lines = source.lines().count();
        let named: Vec<usize> = race
            .match_indices("mine.bpf.c:")
            .map(|(at, found)| {
                let digits = race[at + found.len()..].split(|c: char| !c.is_ascii_digit());
                digits.into_iter().next().unwrap().parse().unwrap()
            })
            .collect();
        assert!(
            named.len() == 2 && named.iter().all(|line| (1..=lines).contains(line)),
            "{race}"
        );
    }
}

#[test]
fn the_lines_are_those_of_the_accesses() {
    let Some(clang) = clang() else { return };
    let folder = tempfile::tempdir().unwrap();
    let parts: Parts<'_> = &[("ENQUEUE", "data = 7"), ("DISPATCH", "here.sum += data")];
    let object = compiled(folder.path(), parts, &clang);
    let (found, _) = races(&object, "", scenario(CHAT, "laptop", 4));
    let source = source(parts);
    let (store, load) = (
        line(&source, "\tdata = 7"),
        line(&source, "here.sum += data"),
    );
    let side = |line, op, verb| format!("mine.bpf.c:{line} in ops.{op} ({verb})");
    let sides = [
        side(store, "enqueue", "store"),
        side(load, "dispatch", "load"),
    ];
    let race = found
        .iter()
        .find(|race| sides.iter().all(|side| race.contains(side)));
    let race = race.unwrap_or_else(|| panic!("{found:?}"));
    assert!(
        race.contains("on CPUs ") && race.contains("access `data` "),
        "{race}"
    );
}

#[test]
fn right_code_has_no_race() {
    let Some(clang) = clang() else { return };
    let folder = tempfile::tempdir().unwrap();
    let publish = |how: &str| PUBLISH.replace("PUBLISHED", how);
    let released = publish("smp_store_release(&flag, 1)");
    let fenced = publish("smp_wmb(); WRITE_ONCE(flag, 1)");
    let added = publish("__sync_fetch_and_add(&flag, 1)");
    let by_order = publish("__atomic_store_n(&flag, 1, __ATOMIC_RELEASE)");
    let value = "u32 key = 0; struct guarded *value = bpf_map_lookup_elem(&values, &key); if (value) { bpf_spin_lock(&value->lock); value->sum++; bpf_spin_unlock(&value->lock); }";
    let cases: &[Parts<'_>] = &[
        // One lock around both; one of a map's value.
        &[],
        &[
            ("ENQUEUE", value),
            ("DISPATCH", value),
            ("SELECT", value),
            ("EXPIRED", value),
        ],
        // Messages.
        &[
            ("ENQUEUE", &released),
            ("DISPATCH", "if (smp_load_acquire(&flag)) here.sum += data"),
        ],
        &[
            ("ENQUEUE", &fenced),
            (
                "DISPATCH",
                "if (READ_ONCE(flag)) { smp_rmb(); here.sum += data; }",
            ),
        ],
        &[
            ("ENQUEUE", &added),
            (
                "DISPATCH",
                "if (__sync_fetch_and_add(&flag, 0)) here.sum += data",
            ),
        ],
        &[
            ("ENQUEUE", &by_order),
            (
                "DISPATCH",
                "if (__atomic_load_n(&flag, __ATOMIC_ACQUIRE)) here.sum += data",
            ),
        ],
        // A word that is written under a lock and read without it.
        &[
            ("DONE", LOCKED_COUNT),
            ("DISPATCH", "here.sum += READ_ONCE(data)"),
        ],
        // Words that are marked on all sides, and one that may race.
        &[
            (
                "ENQUEUE",
                "WRITE_ONCE(data, enq_flags); __sync_fetch_and_add(&other, 1)",
            ),
            ("DISPATCH", "here.sum += READ_ONCE(data) + lab_read(other)"),
            ("SELECT", "lab_write(data, 3)"),
        ],
        &[
            ("ENQUEUE", "lab_racy(data++)"),
            ("DISPATCH", "here.sum += lab_racy(data)"),
            ("SELECT", "*(volatile u64 *)&other = 1"),
            ("RUNNING", "here.sum += *(volatile u64 *)&other"),
        ],
        // Each CPU has its own; under the lock of a run queue others may use it.
        &[
            ("ENQUEUE", "here.nr++; here.sum += here.nr"),
            ("DISPATCH", "here.nr++"),
            ("SELECT", "here.nr++"),
            ("RUNNING", "here.nr++"),
        ],
        &[
            ("ENQUEUE", "of_cpu[scx_bpf_task_cpu(p) & 63].nr++"),
            ("DISPATCH", "of_cpu[cpu & 63].nr++"),
        ],
        // An op of a task ends before the next one of that task begins, whatever the policy gives away meanwhile.
        &[("DONE", "t->turns++"), ("RUNNING", "t->turns++")],
        // The kernel orders what is done for a task; a queue orders who finds it there.
        &[
            ("SELECT", "task_t *t = task_of(p); if (t) t->turns++"),
            ("ENQUEUE", "t->turns++"),
            ("TAKEN", "if (t) t->turns++"),
            ("RUNNING", "t->turns++"),
        ],
        &[
            (
                "ENQUEUE",
                "t->turns++; scx_bpf_dsq_insert(p, WAITING, SCX_SLICE_DFL, enq_flags); return",
            ),
            (
                "DISPATCH",
                "bpf_for_each(scx_dsq, p, WAITING, 0) { t = task_of(p); if (t) t->turns++; scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0); break; } return",
            ),
            ("RUNNING", "t->turns++"),
        ],
        // A timer comes after who started it, and what it shares is marked.
        &[
            ("EXPIRED", "WRITE_ONCE(other, other + 1)"),
            ("DISPATCH", "here.sum += READ_ONCE(other)"),
        ],
        // Every thread knows the accesses before the start.
        &[
            ("DISPATCH", "here.sum += data"),
            ("SELECT", "here.sum += data"),
        ],
    ];
    for parts in cases {
        let object = compiled(folder.path(), parts, &clang);
        for (workload, name, cpus) in [
            (CHAT, "numa-8x64x2", 6),
            (MAKE, "laptop", 4),
            (CHAT, "netfinity-8500r", 8),
        ] {
            let (found, _) = races(&object, "", scenario(workload, name, cpus));
            assert!(found.is_empty(), "{parts:?}: {found:?}");
        }
    }
}

/// The findings depend on the run alone, and the run does not depend on the checker.
#[test]
fn the_checker_changes_nothing_and_finds_the_same_again() {
    let Some(clang) = clang() else { return };
    let folder = tempfile::tempdir().unwrap();
    let parts: Parts<'_> = &[("PUT", "if (true)"), ("ENQUEUE", "data++")];
    let object = compiled(folder.path(), parts, &clang);
    let run = || races(&object, "", scenario(CHAT, "numa-8x64x2", 64));
    let (found, events) = run();
    assert!(!found.is_empty());
    let (again, events_again) = run();
    assert_eq!(found, again);
    assert_eq!(events.0, events_again.0);
    let plain = schedlab_policies::compile(&folder.path().join("mine.bpf.c")).unwrap();
    let without = virtual_kernel::run_with(
        &plain,
        "",
        scenario(CHAT, "numa-8x64x2", 64),
        Bytes::default(),
    );
    assert_eq!(events.0, without.recorder.0);
}

/// A run that ends by its limit of time has not hidden a race before.
#[test]
fn races_are_told_however_the_run_ends() {
    let Some(_) = clang() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("unlocked.bpf.c");
    std::fs::write(
        &path,
        source(&[("PUT", "if (true)"), ("TAKE", "if (true)")]),
    )
    .unwrap();
    let spec = SimSpec {
        cpus: Some(4),
        check: true,
        time_limit: Duration::from_ms(20),
        ..SimSpec::new(
            "chat:rooms=2,users=5,messages=10000,start=together",
            Scheduler::parse(path.to_str().unwrap()),
            "laptop",
        )
    };
    let result = schedlab_sim::run(&spec, None).unwrap();
    assert_eq!(result.exit, Exit::TimeLimit, "{:?}", result.message);
    let found = result.violations.expect("a race");
    assert!(found.contains("queue.list"), "{found}");
}
