//! Schedulers as objects that clang has compiled for BPF, from tests/objects (`tools/build-objects` compiles them).

use std::path::{Path, PathBuf};

use schedlab_report::{Exit, RunResult, Value, export};
use schedlab_sim::{Scheduler, SimSpec};

fn path(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/objects");
    folder.join(format!("{name}.bpf.o"))
}

fn spec(name: &str, options: &str) -> SimSpec {
    let scheduler = Scheduler::parse(&format!("{}{options}", path(name).display()));
    SimSpec {
        cpus: Some(1),
        check: true,
        ..SimSpec::new("cpu:tasks=2,duration=1s", scheduler, "laptop")
    }
}

fn run(name: &str, options: &str) -> RunResult {
    schedlab_sim::run(&spec(name, options), None).expect("it can be begun")
}

/// Returns the text with which it ends itself.
fn told(name: &str, options: &str) -> String {
    end_of(name, run(name, options))
}

fn end_of(name: &str, result: RunResult) -> String {
    let message = result.message.unwrap_or_default();
    assert_eq!(
        (result.exit, result.exit_code),
        (Exit::UnregBpf, Some(7)),
        "{message}"
    );
    let text = message.strip_prefix("unregistered from BPF, code 0x7 (");
    // The place of the call follows.
    let text =
        text.and_then(|text| text.split_once(&format!("), in ops.running at {name}.bpf.c:")));
    let (text, _) = text.unwrap_or_else(|| panic!("{message}"));
    text.to_owned()
}

/// Why it ends where it does what no scheduler may.
fn fault(name: &str, options: &str) -> String {
    let result = run(name, options);
    let message = result.message.unwrap_or_default();
    assert_ne!(result.exit, Exit::Done, "{message}");
    assert_ne!(result.exit, Exit::UnregBpf, "{message}");
    message
}

/// The line of a source that has a text.
fn line(name: &str, text: &str) -> String {
    let source = std::fs::read_to_string(path(name).with_extension("c")).unwrap();
    let index = source.lines().position(|line| line.contains(text)).unwrap();
    format!("{name}.bpf.c:{}", index + 1)
}

#[test]
fn division_by_zero_is_zero_and_the_rest_is_the_dividend() {
    assert_eq!(told("division", ""), "0 35 0 45");
}

#[test]
fn what_is_asked_of_types_is_answered_as_it_is_here() {
    assert_eq!(
        told("questions", ""),
        "there 4 absent 0 wakeup 1 weight 100"
    );
}

#[test]
fn a_field_that_is_not_there_ends_the_run_with_its_name_and_line() {
    let message = fault("gone", "");
    assert!(
        message.contains("gone of struct sched_ext_entity is not in the virtual kernel"),
        "{message}"
    );
    assert!(
        message.contains(&line("gone", "future->gone;")),
        "{message}"
    );
}

#[test]
fn a_weak_kfunc_that_is_asked_for_is_not_there_and_one_that_is_called_ends_the_run() {
    assert_eq!(told("weak", ""), "future 0 present 1");
    let message = fault("weak", ":calls=1");
    assert!(
        message.contains("kfunc scx_bpf_of_the_future is not in the virtual kernel"),
        "{message}"
    );
    assert!(
        message.contains(&line("weak", "scx_bpf_of_the_future(0);")),
        "{message}"
    );
}

#[test]
fn prototypes_and_enumerators_of_its_own_are_enough() {
    assert_eq!(told("prototypes", ""), "beats 1 switches 1");
}

#[test]
fn maps_options_globals_subprograms_and_callbacks_work() {
    let expected = |runs| format!("runs {runs} same 1 looped 5 sum 10 sign -3 hz 250");
    assert_eq!(told("state", ""), expected(10));
    assert_eq!(told("state", ":runs=4"), expected(4));
    let other = told("state", ":runs=4,sign=12");
    assert!(other.contains("sign 12"), "{other}");
}

/// Two hogs share a CPU, from tick to tick, so for 24 ms at a time where a slice has 20: after four turns one has run for nearly 96 ms, in
/// which it has met 24 ticks. It is chosen, and not switched in yet (`prepare_task()` comes after `set_next_task()`).
#[test]
fn fields_of_a_task_are_what_they_are_when_they_are_read() {
    assert_eq!(
        told("fields", ""),
        "ran 95 user 96 system 0 waited 0 preempted 4 state 0 on 0 queued 0 direct 0 mask 1 policy 0"
    );
}

/// `sched_info` passes over a running task that is taken out and put back, as its nice level changes (`DEQUEUE_SAVE`).
#[test]
fn a_task_that_is_alone_waits_for_no_cpu_whatever_its_nice_level() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("nice.json");
    let text = r#"{"tasks": {"a": {"loop": 1, "phases": {
        "first": {"run": 100000},
        "second": {"priority": 5, "run": 100000, "sleep": 10000},
        "third": {"run": 50000}}}}}"#;
    std::fs::write(&file, text).unwrap();
    let spec = SimSpec {
        workload: format!("{}:jitter=0,offset=0", file.display()),
        ..spec("waits", "")
    };
    let message = schedlab_sim::run(&spec, None).unwrap().message.unwrap();
    let waited = message.split_once("waited ").expect(&message).1;
    let (us, rest) = waited.split_once(" us, got the CPU ").expect(&message);
    // A wakeup on an idle CPU: the way from its queue to it.
    assert!(us.parse::<u64>().unwrap() < 50, "{message}");
    // From its fork. That it gets it after its sleep is counted as it is switched in, after ops.running().
    assert!(rest.starts_with("1 times"), "{message}");
}

#[test]
fn every_task_is_in_the_root_cgroup() {
    assert_eq!(
        told("groups", ""),
        "id 1 level 0 same 6 kept 5 groups 1 other 0"
    );
}

/// `/a` has the id 2, `/a/b` 3, `/c` 4. The two tasks begin in the root beside the main thread, and each moves once.
#[test]
fn a_tree_of_cgroups_reaches_the_policy() {
    let inner = "cpu:tasks=1,duration=1s,cgroup=/a/b,cpu.weight=300,cpu.idle=true";
    let outer = "cpu:tasks=1,duration=1s,cgroup=/c,cpu.max=50ms/100ms,cpu.max.burst=5";
    let spec = SimSpec {
        workload: format!("{inner} + {outer}"),
        ..spec("tree", "")
    };
    let end = || end_of("tree", schedlab_sim::run(&spec, None).unwrap());
    // 300 of cgroup 3; a period of 100 ms and a quota of 50 of cgroup 4, without a burst and then with one of 5 us; moves from 1
    // to 3 and to 4; the children of the root behind all that are in it.
    assert_eq!(
        end(),
        "made 1234 defaults 4 weights 3300 limits 41000504100055 idle 3 prepared 27 moved 27 born 3 walks 1234024 3241 321 under 101"
    );
    assert_eq!(end(), end());
    // Linux 6.18 knows no walk of children, does not tell that a cgroup is idle, and has ops.cgroup_move() hold no lock.
    let older = |options| SimSpec {
        kernel: "6.18".to_owned(),
        workload: spec.workload.clone(),
        ..self::spec("tree", options)
    };
    let ejected = schedlab_sim::run(&older(""), None).unwrap();
    let message = ejected.message.unwrap_or_default();
    assert!(
        message.contains("called on a task not being operated on"),
        "{message}"
    );
    let older = schedlab_sim::run(&older(":older=1"), None).unwrap();
    assert_eq!(
        end_of("tree", older),
        "made 1234 defaults 4 weights 3300 limits 41000504100055 idle 0 prepared 27 moved 27 born 3 walks 1234000 3241 321 under 101"
    );
}

/// `scx_bpf_task_cgroup()` answers for the tasks that an op operates on, under the locks of their run queues.
#[test]
fn the_cgroup_of_another_task_is_not_told() {
    for (asks, op) in [(1, "init_task"), (2, "cgroup_prep_move"), (3, "running")] {
        let spec = SimSpec {
            workload: "cpu:tasks=2,duration=1s,cgroup=/a".to_owned(),
            ..spec("tree", &format!(":asks={asks}"))
        };
        let result = schedlab_sim::run(&spec, None).unwrap();
        let message = result.message.unwrap_or_default();
        assert_eq!(result.exit, Exit::Error, "{message}");
        assert!(
            message.contains("called on a task not being operated on")
                && message.contains(&format!("ops.{op}")),
            "{message}"
        );
    }
}

/// Nothing of the workload happens: whichever cgroup is refused, no task joins one.
#[test]
fn a_cgroup_that_an_object_refuses_ends_the_workload() {
    for (id, path) in [(2, "/a"), (3, "/a/b"), (4, "/c")] {
        let spec = SimSpec {
            workload: "cpu:tasks=1,cgroup=/a/b + cpu:tasks=1,cgroup=/c".to_owned(),
            ..spec("tree", &format!(":refuses={id}"))
        };
        let result = schedlab_sim::run(&spec, None).unwrap();
        let message = result.message.unwrap_or_default();
        let refused = format!("ops.cgroup_init() refused {path} with -12");
        assert!(message.contains(&refused), "{message}");
        assert_eq!(result.measures.number("switches.total"), Some(0.0));
    }
}

/// Of two values the one that was used longer ago goes; of two records of 3,000 bytes one fits into 4 KB.
#[test]
fn maps_that_forget_ring_buffers_counters_and_text_work() {
    assert_eq!(
        told("buffers", ""),
        "kept 101 records 101 event -2 length 11 text 12 of m jiffies 1 comm 1"
    );
}

#[test]
fn objects_of_the_kernel_are_in_trees_and_lists() {
    assert_eq!(told("graph", ""), "sorted 257 listed 257 again -22 left 0");
}

#[test]
fn names_that_the_kernel_has_retired_lead_to_the_functions_of_today() {
    assert_eq!(told("retired", ""), "dispatched 1 asked 0");
}

/// A run of cids.bpf.o on two sockets of six cores: CPU 18 is the second thread of CPU 6, the first CPU of the second socket.
fn cids(options: &str, kernel: &str) -> Result<RunResult, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mask.json");
    let text = r#"{"tasks": {"a": {"loop": 20, "phases": {
        "first": {"cpus": [0, 12], "run": 1000},
        "second": {"cpus": [6, 18], "run": 1000, "sleep": 5000}}}}}"#;
    std::fs::write(&file, text).unwrap();
    let scheduler = Scheduler::parse(&format!("{}{options}", path("cids").display()));
    let spec = SimSpec {
        check: true,
        kernel: kernel.to_owned(),
        ..SimSpec::new(file.display().to_string(), scheduler, "xeon-e5645-2x6x2")
    };
    schedlab_sim::run(&spec, None).map_err(|error| error.to_string())
}

/// Cids 12 and 13 are the threads of the first core of the second socket: the seventh core, the second cache and node.
#[test]
fn a_scheduler_of_the_cid_form_is_told_cids_and_tells_them() {
    let message = cids("", "7.2").unwrap().message.unwrap_or_default();
    let expected = "(task 13 cpu 18 cid 13 back 6 core 12 6 llc 12 1 node 12 1 cids 24 24 mask 0 24 2 perf 1024 1024 idle 1 dispatched 1 prev 13 there 1 queued 0), in ops.running at cids.bpf.c:";
    assert!(message.contains(expected), "{message}");
    let message = cids(":odd=5", "7.2").unwrap().message.unwrap_or_default();
    assert!(message.contains("(cpu 23 of 22 topo -1 -1)"), "{message}");
}

#[test]
fn what_is_no_cid_ends_a_scheduler_of_the_cid_form() {
    for (odd, expected) in [
        (
            1,
            "kfunc scx_bpf_kick_cpu is of the cpu form, and the kernel's verifier refuses it in a `struct sched_ext_ops_cid`",
        ),
        (2, "invalid cid 24"),
        (3, "invalid cid 24"),
        (4, "invalid cid 24"),
        (6, "cid 0 assigned to multiple cpus"),
        (7, "scx_bpf_cid_override: expected 96 bytes, got 92"),
    ] {
        let result = cids(&format!(":odd={odd}"), "7.2").unwrap();
        let message = result.message.unwrap_or_default();
        assert_ne!(result.exit, Exit::UnregBpf, "{odd}: {message}");
        assert!(message.contains(expected), "{odd}: {message}");
    }
    let error = cids("", "6.18").unwrap_err();
    assert!(
        error.contains("its table is a `struct sched_ext_ops_cid`, which is not in Linux 6.18"),
        "{error}"
    );
}

/// Queues of three, as nested.sched.toml says; the maps of a map are apart, and the one from the beginning is its variable's.
#[test]
fn maps_lie_in_maps() {
    assert_eq!(
        told("nested", ""),
        "first 40 absent 1 pushed 3 full -7 popped 100 none -2 table 7 other 0 gone 1"
    );
    let message = fault("nested", ":updates_outer=1");
    assert!(
        message.contains("bpf_map_update_elem() was called with the map `by_number`, of type ARRAY_OF_MAPS, which the kernel's verifier refuses"),
        "{message}"
    );
}

#[test]
fn maps_in_maps_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let object = folder.path().join("nested.bpf.o");
    std::fs::copy(path("nested"), &object).unwrap();
    for (decisions, expected) in [
        (
            "maps.queues.inner.number = 3",
            "the map `queues`, of type ARRAY_OF_MAPS takes 2 maps, and has none at 2",
        ),
        (
            "maps.by_number.inner = { number = 1, max_entries = 3 }",
            "the map `by_number[0]`, of type ARRAY, is not like the maps that lie in the map `by_number`, of type ARRAY_OF_MAPS",
        ),
        (
            "maps.first.inner.number = 1",
            "nested.sched.toml:1: `first` has no maps in it",
        ),
        (
            "maps.queues.inner.number = 'cpu'",
            "nested.sched.toml:1: 0 is no number of maps or size of a map",
        ),
    ] {
        std::fs::write(folder.path().join("nested.sched.toml"), decisions).unwrap();
        let scheduler = Scheduler::parse(&object.display().to_string());
        let spec = SimSpec::new("cpu:tasks=2,duration=1s", scheduler, "laptop");
        let error = schedlab_sim::run(&spec, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{decisions}: {error}");
    }
}

/// loader.sched.toml beside the object: the numbers are those that it says, on two CPUs.
#[test]
fn the_decisions_of_a_loader_are_carried_out() {
    let spec = SimSpec {
        cpus: Some(2),
        ..spec("loader", "")
    };
    let result = schedlab_sim::run(&spec, None).expect("it can be begun");
    let message = result.message.unwrap_or_default();
    let expected = "config 7 16 -3 table 8 20 cpus 1 2 calls 2 sum 102 entry 4005 more 41 3";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn decisions_that_do_not_fit_are_refused_with_their_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let object = folder.path().join("loader.bpf.o");
    std::fs::copy(path("loader"), &object).unwrap();
    std::fs::copy(path("loader_more"), folder.path().join("more.bpf.o")).unwrap();
    let told = |decisions: &str| {
        let text = format!("link = ['more.bpf.o']\n{decisions}\n");
        std::fs::write(folder.path().join("loader.sched.toml"), text).unwrap();
        let scheduler = Scheduler::parse(&object.display().to_string());
        let spec = SimSpec::new("cpu:tasks=40,duration=3s", scheduler, "laptop");
        match schedlab_sim::run(&spec, None) {
            Ok(result) => result.message.unwrap_or_default(),
            Err(error) => error.to_string(),
        }
    };
    for (decisions, expected) in [
        (
            "variables.tabel = 1",
            "loader.sched.toml:2: there is no variable `tabel` (did you mean `table`?)",
        ),
        (
            "[variables]\n'config.secnd' = 1",
            "loader.sched.toml:3: struct config has no member `secnd` (did you mean `second`?)",
        ),
        (
            "variables.'table[3]' = [1]",
            "loader.sched.toml:2: there is no element 3: the array has 3",
        ),
        (
            "variables.table = 1",
            "loader.sched.toml:2: the value does not fit the type, which takes a list",
        ),
        (
            "variables.'config.first' = 0x1_0000_0000",
            "loader.sched.toml:2: 4294967296 does not fit into 4 bytes",
        ),
        (
            "maps.size.max_entries = 1",
            "loader.sched.toml:2: there is no map `size` (did you mean `sized`?)",
        ),
        (
            "[[call]]\nprogram = 'enable'",
            "loader.sched.toml:3: there is no program `enable` of SEC(\"syscall\")",
        ),
        (
            "[[call]]\nprogram = 'fails'",
            "loader.sched.toml:3: fails(), which runs before ops.init(), has returned -22",
        ),
        (
            "ops.without = ['tick_']",
            "loader.sched.toml:2: there is no ops.tick_",
        ),
        (
            "variables.'lone[cpu]' = 'cpu'",
            "loader.sched.toml:2: the array has 1 elements, and the machine needs number 1",
        ),
        (
            "[[call]]\nprogram = 'fails'\nafter = true",
            "loader.sched.toml:3: fails(), which runs after ops.init(), has returned -22",
        ),
        (
            "[ops]\nflags = ['SCX_OPS_ENQ_LAST']\nwithout = ['enqueue']",
            "SCX_OPS_ENQ_LAST requires ops.enqueue() to be implemented",
        ),
        (
            "[ops]\ntimeout_ms = 1000\nwithout = ['dispatch', 'running']",
            "failed to run for 1.",
        ),
    ] {
        let message = told(decisions);
        assert!(message.contains(expected), "{decisions}: {message}");
    }
}

#[test]
fn a_null_pointer_ends_the_run_with_the_line() {
    let message = fault("null", "");
    assert!(message.contains("it follows a NULL pointer"), "{message}");
    assert!(message.contains(&line("null", "/* here */")), "{message}");
}

/// A task in the CPU's own queue has that queue; one that was chosen has none, and what is read through its pointer is 0. What a function
/// returned is not followed without a test.
#[test]
fn pointers_of_the_kernel_are_followed_as_the_kernel_does() {
    let spec = SimSpec {
        workload: "cpu:tasks=3,duration=1s".to_owned(),
        ..spec("walks", "")
    };
    let message = schedlab_sim::run(&spec, None).unwrap().message.unwrap();
    let local = (1u64 << 63) + 2;
    let expected = format!("(other {local} of 2 own 0 of 0 kept 0 running 3 of 3 waits 0 cpus 1)");
    assert!(message.contains(&expected), "{message}");
    let message = fault("walks", ":careless=1");
    assert!(message.contains("it follows a NULL pointer"), "{message}");
    assert!(message.contains(&line("walks", "/* here */")), "{message}");
}

#[test]
fn a_loop_without_end_ends_the_run() {
    let message = fault("endless", "");
    assert!(message.contains("it loops without end"), "{message}");
}

/// Returns the accesses of modelled lines.
fn accesses(options: &str) -> i64 {
    match run("prices", options).measures.get("cache.accesses") {
        Some(Value::Int(n)) => *n as i64,
        other => panic!("{other:?}"),
    }
}

/// `ops.running()` runs five times, and goes over its lines twice each time.
#[test]
fn each_line_that_an_op_accesses_is_looked_at_once_until_it_calls_the_kernel() {
    let of = accesses;
    // With one line, so that each reads the same options.
    let more =
        |options: &str| of(&format!(":lines=33{options}")) - of(&format!(":lines=1{options}"));
    assert_eq!(more(""), 5 * 32);
    assert_eq!(more(",writes=1"), 5 * 32);
    // Other CPUs may have run while the kernel's function did.
    assert_eq!(more(",between=1"), 5 * 2 * 32);
    // No other CPU sees the stack. A task's fields are memory as any other.
    assert_eq!(of(":stack=16"), of(""));
    assert_eq!(of(":fields=1") - of(""), 5);
}

/// The profile `laptop` with a key's value replaced.
fn laptop_with(key: &str, value: u64) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("machines/laptop.toml")).unwrap();
    let is_it = |line: &&str| line.split(' ').next() == Some(key);
    let line = text.lines().find(is_it).expect("the profile has the key");
    let text = text.replace(
        line,
        &format!("{key} = {{ value = {value}, source = \"guess: a test\" }}"),
    );
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("laptop-{key}.toml"));
    std::fs::write(&path, text).unwrap();
    path
}

/// Returns the ns of the first and of the second pass of the fifth op, between which there is a function of the kernel. The cache keeps its
/// lines from op to op.
fn passes(lines: u32) -> (i64, i64) {
    let ns = |options: &str| {
        let scheduler = format!(
            "{}:between=1,lines={lines}{options}",
            path("prices").display()
        );
        let machine = laptop_with("evict_lines_per_ms", 0).display().to_string();
        let spec = SimSpec {
            scheduler: Scheduler::parse(&scheduler),
            machine,
            ..spec("prices", "")
        };
        let result = schedlab_sim::run(&spec, None).expect("it can be begun");
        let ns = end_of("prices", result);
        ns.parse::<i64>().expect("it reports a number")
    };
    let second = ns(",second=1");
    (ns("") - second, second)
}

/// `hit_ps` of `laptop` is 2,727 and `instruction_ps` 77. By its disassembly a pass executes 13 instructions for each line. The first pass pays
/// for the lines, too. Below 8 lines, one of the table's lines puts the line of the options out of the near cache; from 8 on it does so in both
/// runs.
#[test]
fn instructions_and_first_accesses_cost_what_the_profile_says() {
    let (few, many) = (passes(8), passes(62));
    let second = many.1 - few.1;
    assert!((second - 54 * 13 * 77 / 1_000).abs() <= 1, "{second}");
    let first = many.0 - few.0;
    assert!(
        (first - second - 54 * 2_727 / 1_000).abs() <= 2,
        "{first} {second}"
    );
}

#[test]
fn the_same_run_has_the_same_bytes() {
    let bytes = |seed| {
        let spec = SimSpec {
            cpus: Some(3),
            seed,
            workload: "chat:rooms=1,users=4,messages=5".to_owned(),
            ..spec("weak", "")
        };
        let result = schedlab_sim::run(&spec, None).expect("it can be begun");
        let mut bytes = Vec::new();
        export::json::write(&[result], &mut bytes).expect("a vector can be written");
        bytes
    };
    assert_eq!(bytes(3), bytes(3));
}

#[test]
fn what_is_no_object_is_refused_in_one_line() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no.bpf.o");
    std::fs::write(&path, "no ELF at all").unwrap();
    let scheduler = Scheduler::plain(path.display().to_string());
    let spec = SimSpec::new("cpu:tasks=1", scheduler, "laptop");
    let error = schedlab_sim::check(&spec).unwrap_err().to_string();
    assert!(
        error.contains("no.bpf.o: ") && error.contains("it is no ELF object"),
        "{error}"
    );
    assert!(!error.contains('\n'), "{error}");
    let audited = SimSpec {
        audit: true,
        ..self::spec("weak", "")
    };
    let error = schedlab_sim::check(&audited).unwrap_err().to_string();
    assert!(error.contains("an object cannot be audited"), "{error}");
}
