//! Tests the building blocks of policies: maps, arena, storage, timers, masks, locks, options, costs — and that
//! it is all the same whichever compiler there was.

mod common;
#[path = "common/linux_source.rs"]
mod linux_source;

use common::{Bench, object, object_with, simple};
use schedlab_abi::{KernelVersion, OptionKind, compiler};
use schedlab_engine::consts::SLICE_INF;
use schedlab_engine::policy::{OpCall, Policy as _, PolicyLock, Reply, Request, TimerId};
use schedlab_machine::Machine;
use schedlab_trace::{CpuId, CpuSet, Instant, LockClass, TaskId};

const P: TaskId = TaskId(2);
const STOPPING: OpCall = OpCall::Stopping {
    task: P,
    runnable: true,
};

/// Adds `P` and those behind it, which the library's ops look at, too.
fn add_several(bench: &mut Bench) {
    for task in 0..8 {
        bench.add_task(TaskId(P.0 + task));
    }
}

fn results(bench: &Bench) -> Vec<i64> {
    let bytes = bench.policy.global("results").unwrap();
    let words = bytes
        .chunks_exact(8)
        .map(|word| i64::from_le_bytes(word.try_into().unwrap()));
    words.take(bench.global("nr_results") as usize).collect()
}

#[test]
fn maps_loops_arena_timers_and_options() {
    let mut bench = Bench::new(
        "library",
        "ties=prev,offset=-300,boosted=no,large=0xffffffffff",
    );
    assert_eq!(bench.simply(OpCall::Init), Ok(0));
    let results = results(&bench);
    let (eexist, einval, e2big) = (-17, -22, -7);
    assert_eq!(results[..6], [1, 0, eexist, 2, 2, 1602], "hash");
    assert_eq!(results[6..10], [e2big, 0, 11, 0], "queue");
    assert_eq!(results[10..14], [7, 21, 12, 3], "loops");
    assert_eq!(results[14..17], [4096, 4, 1], "arena");
    assert_eq!(results[17..20], [0, einval, 0], "timer");
    assert_eq!(results[20..], [0, -300, 0, 0xff_ffff_ffff], "options");
    let start = Request::TimerStart {
        timer: TimerId(0),
        ns: 1000,
        flags: 2,
    };
    assert_eq!(bench.asked, [start]);

    bench.now = Instant::from_ns(777);
    let fired = OpCall::TimerCallback { timer: TimerId(0) };
    assert_eq!(bench.simply(fired), Ok(0));
    let results = self::results(&bench);
    let machine = &bench.machine.sched_ext;
    let costs = (machine.op_ns + machine.kfunc_ns) as i64;
    assert_eq!(
        results[24..],
        [2, 55, 777 + costs],
        "the callback's arguments"
    );
}

#[test]
fn what_nobody_has_written_is_zero() {
    let mut bench = Bench::new("library", "");
    bench.add_task(P);
    assert_eq!(bench.simply(STOPPING), Ok(0));
    assert_eq!(results(&bench), [0]);
}

#[test]
fn timers_go_with_their_elements() {
    let (einval, edeadlk) = (-22, -35);
    let mut bench = Bench::new("timers", "");
    assert_eq!(bench.simply(OpCall::Init), Ok(0));
    assert_eq!(results(&bench), [0, 0, 0, 0, einval, 0, einval]);
    let start = |timer| Request::TimerStart {
        timer: TimerId(timer),
        ns: 1000,
        flags: 0,
    };
    let cancel = |timer| Request::TimerCancel {
        timer: TimerId(timer),
    };
    let expected = [
        start(0),
        cancel(0),
        start(1),
        start(2),
        cancel(2),
        start(3),
        cancel(3),
        start(4),
        cancel(4),
    ];
    assert_eq!(bench.asked, expected);

    let fired = |timer| OpCall::TimerCallback {
        timer: TimerId(timer),
    };
    // One that had expired already when it was cancelled.
    assert_eq!(bench.simply(fired(0)), Ok(0));
    assert_eq!(results(&bench).len(), 7);
    assert_eq!(bench.simply(fired(1)), Ok(0));
    assert_eq!(results(&bench)[7..], [8, 5, edeadlk, 8, einval]);
}

/// bpf_timer_cancel() might have to wait for the callback.
#[test]
fn no_timer_is_cancelled_with_interrupts_off() {
    let enqueue = |version| {
        let machine = Machine::builtin("xeon-e5645-2x6x2").unwrap();
        let mut bench = Bench::in_kernel(&object("timers"), "", machine, version);
        bench.add_task(P);
        enqueue(&mut bench).unwrap();
        let cancel = Request::TimerCancel { timer: TimerId(0) };
        (results(&bench), bench.asked.contains(&cancel))
    };
    let eopnotsupp = -95;
    assert_eq!(enqueue(KernelVersion::V7_2), (vec![0, eopnotsupp], false));
    assert_eq!(enqueue(KernelVersion::V6_18), (vec![0, 0], true));
}

#[test]
fn options_are_described() {
    let object = object("library");
    let options = object.options();
    let names: Vec<&str> = options.iter().map(|option| option.name.as_str()).collect();
    assert_eq!(names, ["ties", "offset", "boosted", "large"]);
    assert_eq!(options[0].default_text(), "list");
    assert_eq!(options[0].doc.as_deref(), Some("who wins among equals"));
    assert_eq!(options[0].kind.to_string(), "prev, list");
    assert_eq!(options[1].default, -7);
    assert_eq!(
        options[1].doc.as_deref(),
        Some("A number that may be negative.")
    );
    let min = -32768;
    assert_eq!(options[1].kind, OptionKind::Integer { min, max: 32767 });
    assert_eq!(options[2].default_text(), "true");
    assert_eq!((options[3].default, &options[3].doc), (0, &None));
    let maps: Vec<(&str, u32, u32, u32, u32)> = object
        .maps()
        .iter()
        .map(|map| {
            (
                &*map.name,
                map.kind,
                map.key_size,
                map.value_size,
                map.max_entries,
            )
        })
        .collect();
    assert_eq!(
        maps,
        [
            ("hash", 1, 8, 16, 3),
            ("percpu", 6, 4, 8, 2),
            ("storage", 29, 4, 16, 0),
            ("queue", 22, 0, 4, 2),
            ("timers", 2, 4, 24, 4),
            ("arena", 33, 0, 0, 16),
        ]
    );
}

#[test]
fn storage_belongs_to_a_task_and_goes_with_it() {
    let mut bench = Bench::new("library", "");
    let init = |task| OpCall::InitTask { task, fork: true };
    for task in [P, TaskId(700)] {
        bench.add_task(task);
        assert_eq!(bench.simply(init(task)), Ok(0));
    }
    assert_eq!(results(&bench), [1, 41, 1, 1, 41, 1]);
    bench.policy.drop_task(P);
    bench.add_task(P);
    assert_eq!(bench.simply(init(P)), Ok(0));
    assert_eq!(bench.simply(init(P)), Ok(0));
    assert_eq!(results(&bench)[6..], [1, 41, 1, 0, 42, 1]);
}

/// A pointer to a task that is gone finds its old data; a task that gets its number begins anew.
#[test]
fn what_a_task_was_stays_until_its_number_is_used_again() {
    let mut bench = Bench::new("library", "");
    bench.add_task_on(P, &"5,9-11".parse().unwrap());
    bench.policy.set_slice_and_vtime(P, 1_000, 7);
    bench.policy.drop_task(P);
    let of = |bench: &Bench| (bench.policy.slice(P), bench.policy.vtime(P));
    assert_eq!(of(&bench), (1_000, 7));
    bench.add_task(P);
    assert_eq!(of(&bench), (0, 0));
}

/// A function with an implementation of its own here does what its parts do.
#[test]
fn slice_and_vtime_are_set_at_once() {
    let mut bench = Bench::new("library", "");
    bench.add_task(P);
    let policy = &bench.policy;
    policy.set_slice_and_vtime(P, 1_000, 7);
    assert_eq!((policy.slice(P), policy.vtime(P)), (1_000, 7));
    let charged = |slice, ran_ns| {
        policy.set_slice(P, slice);
        policy.charge_slice(P, ran_ns);
        policy.slice(P)
    };
    assert_eq!(charged(1_000, 400), 600);
    assert_eq!(charged(1_000, 1_001), 0);
    assert_eq!(charged(SLICE_INF, 1_000), SLICE_INF);
    assert_eq!(policy.vtime(P), 7);
}

#[test]
fn masks() {
    let mut bench = Bench::new("library", "");
    let allowed: CpuSet = "5,9-11".parse().unwrap();
    bench.add_task_on(P, &allowed);
    let result = bench.run(OpCall::SetCpumask { task: P }, |request| match request {
        Request::IdleMask { .. } => Reply::Mask("0-6".parse().unwrap()),
        other => panic!("{other:?}"),
    });
    assert_eq!(result, Ok(0));
    let (einval, e2big) = (-22, -7);
    assert_eq!(
        results(&bench),
        [4, 5, 1, 1, 5, 1, 3, 5, 35, 123, einval, e2big, -9, 7]
    );
}

#[test]
fn slice_and_vtime_are_shared_words() {
    let mut bench = Bench::new("library", "");
    bench.add_task(P);
    bench.policy.set_slice(P, 5);
    bench.policy.set_vtime(P, 6);
    assert_eq!((bench.policy.slice(P), bench.policy.vtime(P)), (5, 6));
    assert!(!bench.policy.disallowed(P));
}

fn enqueue(bench: &mut Bench) -> Result<i64, String> {
    let op = OpCall::Enqueue {
        task: P,
        enq_flags: 0,
    };
    bench.simply(op)
}

#[test]
fn locks_are_numbered_in_the_order_of_first_use_and_lie_at_modelled_addresses() {
    let mut bench = Bench::new("library", "");
    add_several(&mut bench);
    bench.cpu = CpuId(1);
    enqueue(&mut bench).unwrap();
    let addresses: Vec<u64> = bench
        .asked
        .iter()
        .filter_map(|request| match request {
            Request::Lock {
                address,
                lock,
                class,
            } => {
                assert_eq!((*lock, *class), (PolicyLock(0), LockClass::RunQueue));
                Some(*address)
            }
            Request::TryLock {
                address,
                lock,
                class,
            } => {
                assert_eq!((*lock, *class), (PolicyLock(1), LockClass::Other));
                Some(*address)
            }
            _ => None,
        })
        .collect();
    assert_eq!(addresses.len(), 2);
    let globals = schedlab_machine::address::GLOBALS;
    assert!(
        addresses
            .iter()
            .all(|&at| at >= globals && at < schedlab_machine::address::RUNQUEUES)
    );
    assert_eq!(
        bench.asked[2],
        Request::Unlock {
            lock: PolicyLock(1)
        }
    );
    assert_eq!(
        bench.asked[3],
        Request::Unlock {
            lock: PolicyLock(0)
        }
    );
    assert_eq!(results(&bench), [1, 3, 1]);
    // No CPU is earlier, so no word had to be waited for.
    assert_eq!(bench.asked.len(), 4);
}

#[test]
fn a_shared_word_is_read_when_nobody_is_earlier() {
    let mut bench = Bench::new("library", "");
    add_several(&mut bench);
    bench.horizon = Instant::ZERO;
    enqueue(&mut bench).unwrap();
    let syncs = bench
        .asked
        .iter()
        .filter(|request| **request == Request::Sync);
    assert_eq!(
        syncs.count(),
        3,
        "one atomic operation, one read, one write"
    );
}

#[test]
fn time_and_probes_come_from_the_profile() {
    let mut bench = Bench::new("library", "");
    add_several(&mut bench);
    enqueue(&mut bench).unwrap();
    let probes = *bench.probes.borrow();
    assert_eq!((probes.examined, probes.recalculations), (1, 5));
    let stats = *bench.shared.cache.borrow().stats(CpuId(0));
    let lines = bench
        .machine
        .task_layout
        .examine_bytes
        .div_ceil(bench.machine.memory.line_bytes);
    // The candidate, the touched word, the atomic operation.
    assert_eq!(stats.accesses(), u64::from(lines) + 2);
    let least = bench.machine.sched_ext.op_ns + 2 + bench.machine.memory.miss_ps / 1_000;
    assert!(bench.now.ns() >= least, "{:?} {least}", bench.now);
}

#[test]
fn prefetching_hides_what_the_examination_before_took() {
    let object = object("library");
    let ns_of_tick = |layout: &str| {
        let mut machine = Machine::builtin("netfinity-8500r").unwrap();
        machine.policy.examine_ps = 100_000;
        machine.memory.hit_ps = 10_000;
        machine.memory.miss_ps = 240_000;
        machine.memory.bus_ps = 0;
        let machine = machine.with_layout(layout.parse().unwrap()).unwrap();
        let mut bench = Bench::on(&object, "", machine);
        add_several(&mut bench);
        let mut ns = [0; 2];
        for ns in &mut ns {
            let before = bench.now;
            bench.simply(OpCall::Tick { task: P }).unwrap();
            *ns = bench.now.since(before).ns();
        }
        assert_eq!(
            bench.shared.cache.borrow().stats(CpuId(0)).misses(),
            5,
            "{layout}"
        );
        assert_eq!(bench.probes.borrow().examined, 10, "{layout}");
        ns
    };
    // Five misses, then five hits; locks cost nothing on this bench.
    assert_eq!(ns_of_tick("plain"), [5 * 340, 5 * 110]);
    // Of the misses of the second candidate of each walk, 100 ns are over when it is examined.
    assert_eq!(ns_of_tick("plain+prefetch"), [5 * 340 - 200, 5 * 110]);
}

#[test]
fn every_access_of_a_tasks_fields_is_one_of_all_their_lines() {
    let object = object("library");
    for (machine, lines) in [("netfinity-8500r", 1), ("xeon-e5645-2x6x2", 2)] {
        let mut bench = Bench::on(&object, "", Machine::builtin(machine).unwrap());
        add_several(&mut bench);
        for cpu in [0, 1].map(CpuId) {
            bench.cpu = cpu;
            bench.simply(OpCall::Running { task: P }).unwrap();
        }
        let cache = bench.shared.cache.borrow();
        let [first, second] = [0, 1].map(|cpu| *cache.stats(CpuId(cpu)));
        assert_eq!([first.misses(), first.hits], [3 * lines; 2], "{machine}");
        assert_eq!(second.misses(), 3 * lines, "{machine}");
        // Data that the first wrote comes from its cache; data that the second only reads is shared from then on.
        assert_eq!(second.transfers, 2 * lines, "{machine}");
        assert_eq!(second.upgrades, lines, "{machine}");
        assert_eq!(second.hits, 2 * lines, "{machine}");
    }
}

/// Everything that a run can see of a policy: requests, results, time, cache.
fn measures(cc: &str) -> String {
    let object = object_with("library", cc);
    let machine = Machine::builtin("netfinity-8500r").unwrap();
    let mut bench = Bench::on(&object, "ties=prev", machine);
    add_several(&mut bench);
    bench.run(OpCall::Init, simple).unwrap();
    bench
        .simply(OpCall::InitTask {
            task: P,
            fork: false,
        })
        .unwrap();
    for cpu in [0, 1, 0] {
        bench.cpu = CpuId(cpu);
        enqueue(&mut bench).unwrap();
    }
    bench.simply(STOPPING).unwrap();
    // Where an option lies in the object is the compiler's business.
    let options: Vec<_> = object
        .options()
        .iter()
        .map(|option| (&option.name, &option.kind, option.default, &option.doc))
        .collect();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {options:?} {:?}",
        bench.asked,
        results(&bench),
        bench.now,
        *bench.shared.cache.borrow().stats(CpuId(0)),
        *bench.shared.cache.borrow().stats(CpuId(1)),
        *bench.probes.borrow(),
    )
}

#[test]
fn gcc_and_clang_measure_the_same() {
    let compilers = ["gcc", "clang", "clang-22", "clang-19"];
    let there = |cc: &&str| {
        let version = std::process::Command::new(cc).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let found: Vec<&str> = compilers.into_iter().filter(there).collect();
    let clang = found.iter().any(|cc| cc.starts_with("clang"));
    if !found.contains(&"gcc") || !clang {
        schedlab_testing::skipped("gcc and clang measure the same: gcc or clang is not installed");
        return;
    }
    let first = measures(found[0]);
    for cc in &found[1..] {
        assert_eq!(measures(cc), first, "{cc} against {}", found[0]);
    }
}

/// The kernel tree's own examples, unmodified, where its source is on the machine.
#[test]
fn the_kernel_trees_examples_run_unmodified() {
    let Some(tree) = linux_source::find("the kernel tree's examples") else {
        return;
    };
    let folder = tree.join("tools/sched_ext");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, options) in [
        ("scx_simple", ""),
        ("scx_cpu0", ""),
        ("scx_central", "nr_cpu_ids=24,slice_ns=20000000"),
        ("scx_sdt", ""),
    ] {
        let source = folder.join(format!("{name}.bpf.c"));
        let built = tempfile::tempdir().unwrap();
        let output = built.path().join("policy.so");
        compiler::run(&compiler::Compilation {
            compiler: &compiler::default_compiler(),
            arch: std::env::consts::ARCH,
            folder: &folder,
            source: &source,
            include: &[root.join("include/native"), root.join("include")],
            output: &output,
            audit: false,
        })
        .unwrap_or_else(|error| panic!("{name}: {error}"));
        let elf = std::fs::read(&output).unwrap();
        let text = std::fs::read_to_string(&source).unwrap();
        let object = schedlab_abi::NativeObject::from_elf(name, &text, elf).unwrap();
        let mut bench = Bench::of(&object, options);
        add_several(&mut bench);
        assert_eq!(bench.simply(OpCall::Init), Ok(0), "{name}");
        // scx_sdt takes a lock of its own before.
        let create = Request::CreateDsq { dsq: 0, node: -1 };
        assert!(bench.asked.contains(&create), "{name}");
        let init = OpCall::InitTask {
            task: P,
            fork: false,
        };
        assert_eq!(bench.simply(init), Ok(0), "{name}");
        enqueue(&mut bench).unwrap();
        let inserted = bench.asked.iter().any(|request| {
            matches!(
                request,
                Request::DsqInsert { .. } | Request::DsqInsertVtime { .. }
            )
        });
        // scx_central keeps tasks in a queue of its own and kicks the central CPU.
        assert_eq!(inserted, name != "scx_central", "{name}");
        let dispatch = OpCall::Dispatch {
            cpu: CpuId(0),
            prev: None,
        };
        assert_eq!(bench.simply(dispatch), Ok(0), "{name}");
    }
}
