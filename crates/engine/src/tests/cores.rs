//! Cores of different capacity, caches of different size, nodes at different distances.

use schedlab_machine::{CoreKind, Machine, Topology};
use schedlab_trace::{Duration, Event};
use schedlab_workload::{Action, Start, TaskSpec};

use crate::testing::*;
use crate::{NormalClass, Scenario};

fn kind(cores: &str) -> CoreKind {
    CoreKind {
        cores: cores.to_owned(),
        capacity: None,
        cache_bytes: None,
        smt_shares_pct: None,
    }
}

/// One core for each of the capacities, in one cache.
fn capacities(capacities: &[u32]) -> Machine {
    let mut machine = Machine::builtin("laptop").unwrap();
    machine.topology = Topology::new(1, 1, capacities.len() as u32, 1);
    for (core, &capacity) in capacities.iter().enumerate() {
        let mut kind = kind(&core.to_string());
        kind.capacity = Some(capacity);
        machine.core_kinds.insert(format!("core{core}"), kind);
    }
    machine
}

/// A machine with changes of its text, so that the profile's reader sees them.
fn with(machine: Machine, from: &str, to: &str) -> Machine {
    let text = machine.to_toml();
    assert!(text.contains(from), "{from}: {text}");
    Machine::from_toml("changed", &text.replacen(from, to, 1)).unwrap()
}

fn llc_bytes(machine: Machine, bytes: &str) -> Machine {
    let line = format!("[topology]\nllc_bytes = {{ value = {bytes}, source = \"guess\" }}");
    with(machine, "[topology]", &line)
}

fn under(class: NormalClass, machine: Machine, start: Start, tasks: Vec<TaskSpec>) -> Checked {
    let mut workload = workload(Vec::new(), tasks);
    workload.start = start;
    let mut scenario = Scenario::new(machine, workload, 1);
    scenario.normal_class = class;
    run_checked(scenario, Stub::fifo(&[]))
}

fn kernel(machine: Machine, tasks: Vec<TaskSpec>) -> Checked {
    under(NormalClass::Fair, machine, Start::Together, tasks)
}

fn makespan_us(checked: &Checked) -> u64 {
    checked.end.makespan.expect("all tasks end").ns() / 1_000
}

/// When each task came to another CPU, and to which.
fn moves(checked: &Checked) -> Vec<(u64, u32)> {
    let moves = checked
        .events
        .iter()
        .filter_map(|&(at, _, event)| match event {
            Event::Migrate { to, .. } => Some((at / 1_000_000, to.0)),
            _ => None,
        });
    moves.collect()
}

/// About that long: start, end and ticks take some microseconds a millisecond.
#[track_caller]
fn takes(checked: &Checked, ms: f64) {
    let found = makespan_us(checked) as f64 / 1_000.0;
    assert!(
        (ms..ms * 1.005 + 0.3).contains(&found),
        "{found} ms, not {ms}"
    );
}

#[test]
fn work_takes_longer_on_a_core_of_less_capacity() {
    // 100 ms of work on 512 of 1,024 are 200; on 256 they are 400.
    for (capacity, ms) in [(1_024, 100.0), (512, 200.0), (256, 400.0), (1_000, 102.4)] {
        for class in [NormalClass::Ext, NormalClass::Fair] {
            let tasks = vec![on_cpus(hog("hog", 100), "1")];
            let machine = capacities(&[1_024, capacity]);
            takes(&under(class, machine, Start::Together, tasks), ms);
        }
    }
}

/// Each has a core of its own; as long as both run, the work that they have done is as their capacities.
#[test]
fn two_hogs_get_as_far_as_their_cores_let_them() {
    let tasks = |on_p, on_e| {
        vec![
            on_cpus(hog("on p", on_p), "0"),
            on_cpus(hog("on e", on_e), "1"),
        ]
    };
    // 300 and 120 ms of work at 1,024 and 410 end at the same time: 120 × 1024 / 410 = 299.7.
    let checked = kernel(capacities(&[1_024, 410]), tasks(300, 120));
    takes(&checked, 300.0);
    let ends: Vec<u64> = checked
        .events
        .iter()
        .filter_map(|&(at, _, event)| matches!(event, Event::TaskExit { .. }).then_some(at))
        .collect();
    assert_eq!(ends.len(), 2);
    assert!(ends[0].abs_diff(ends[1]) < 1_000_000, "{ends:?}");
}

/// Half of the work is done on the slow core, the rest of it elsewhere.
#[test]
fn what_is_left_goes_on_at_the_speed_of_the_new_core() {
    let moves = task("moves", |n, _| {
        Some(match n {
            0 | 2 => Action::Compute(Duration::from_ms(50)),
            1 => Action::SetAffinity("0".parse().unwrap()),
            _ => return None,
        })
    });
    let machine = capacities(&[1_024, 256]);
    takes(&kernel(machine, vec![on_cpus(moves, "1")]), 250.0);
}

#[test]
fn each_number_of_threads_has_its_share() {
    let mut machine = Machine::builtin("laptop").unwrap();
    machine.topology = Topology::new(1, 1, 1, 4);
    let mut smt = kind("0");
    smt.smt_shares_pct = Some(vec![70, 50, 40]);
    machine.core_kinds.insert("smt4".to_owned(), smt);
    let on = |cpu: usize, ms| on_cpus(hog("hog", ms), &cpu.to_string());
    // 100 ms at 100, 70, 50 and 40 %.
    for (threads, ms) in [(1, 100.0), (2, 142.86), (3, 200.0), (4, 250.0)] {
        let tasks = (0..threads).map(|cpu| on(cpu, 100)).collect();
        takes(&kernel(machine.clone(), tasks), ms);
    }
    // The short one's 35 ms last 50 at 70 %. Then the long one has 65 left, alone.
    takes(&kernel(machine.clone(), vec![on(0, 100), on(1, 35)]), 115.0);
    // Three at 50 % for 40 ms: 20 each; the two others at 70 % for 50 ms: 35; then the last one's 45 alone.
    let tasks = vec![on(0, 100), on(1, 20), on(2, 55)];
    takes(&kernel(machine, tasks), 135.0);
}

/// Returns the time that a move to another CPU adds for a task with a working set of 8 MiB, in microseconds.
fn refill_us(machine: &Machine, from: &str, to: &str) -> u64 {
    let run = |bytes| {
        let to = to.to_owned();
        let mut moves = task("moves", move |n, _| {
            Some(match n {
                0 | 2 => Action::Compute(Duration::from_us(100)),
                1 => Action::SetAffinity(to.parse().unwrap()),
                _ => return None,
            })
        });
        moves.working_set_bytes = bytes;
        makespan_us(&kernel(machine.clone(), vec![on_cpus(moves, from)]))
    };
    run(8 << 20) - run(0)
}

#[track_caller]
fn refills(machine: &Machine, from: &str, to: &str, us: u64) {
    let found = refill_us(machine, from, to);
    assert!((us..us + 4).contains(&found), "{found} µs, not {us}");
}

#[test]
fn what_comes_again_is_what_the_new_caches_hold() {
    let mut machine = Machine::builtin("laptop").unwrap();
    machine.topology = Topology::new(1, 2, 2, 1);
    // 512 KB of the private cache: at 20 ns from the shared one, at 180 from memory.
    refills(&machine, "0", "1", 512 * 20 / 1_000);
    refills(&machine, "0", "2", 512 * 180 / 1_000);
    // 4 of its 8 MB fit into the small cache, all of it into the large one; the private ones are as before.
    let unequal = llc_bytes(machine.clone(), "[33554432, 4194304]");
    refills(&unequal, "0", "1", 512 * 20 / 1_000);
    refills(&unequal, "0", "2", 4 * 1_024 * 180 / 1_000);
    refills(&unequal, "2", "0", 8 * 1_024 * 180 / 1_000);
    // Cores 0 and 2 have a private cache of 2 MB, the others of 512 KB.
    let mut large = kind("0,2");
    large.cache_bytes = Some(2 << 20);
    machine.core_kinds.insert("large".to_owned(), large);
    machine.core_kinds.insert("small".to_owned(), kind("1,3"));
    refills(&machine, "0", "1", 512 * 20 / 1_000);
    refills(&machine, "1", "0", 2_048 * 20 / 1_000);
}

#[test]
fn farther_nodes_cost_more_and_nodes_without_memory_borrow() {
    let mut machine = Machine::builtin("laptop").unwrap();
    // Three nodes of two caches with a core each.
    machine.topology = Topology::new(3, 2, 1, 1);
    machine.interference.refill_remote_ns_per_kb = 400;
    refills(&machine, "0", "1", 512 * 180 / 1_000);
    refills(&machine, "0", "4", 512 * 400 / 1_000);
    let lines = "[topology]\n\
         distances = { value = [[10, 16, 28], [16, 10, 20], [28, 20, 10]], source = \"guess\" }\n\
         nodes_without_memory = { value = [2], source = \"guess\" }";
    let machine = with(machine, "[topology]", lines);
    refills(&machine, "0", "1", 512 * 180 / 1_000);
    // 16 is the nearest, which the number is of; 28 is 1.75 times that.
    refills(&machine, "0", "2", 512 * 400 / 1_000);
    refills(&machine, "0", "4", 512 * 700 / 1_000);
    // Within node 2 everything comes from node 1, at 20.
    refills(&machine, "4", "5", 512 * 500 / 1_000);
}

#[test]
fn a_working_set_beyond_the_last_level_cache_is_slower() {
    let mut machine = Machine::builtin("laptop").unwrap();
    machine.topology = Topology::new(1, 2, 1, 1);
    let machine = llc_bytes(machine, "[33554432, 8388608]");
    let line = "[interference]\nbeyond_llc_pct = { value = 80, source = \"guess\" }";
    let machine = with(machine, "[interference]", line);
    // Of 32 MB a quarter fits into 8: 1 + 0.8 × 3/4 = 1.6. Of 64 MB half fits into 32: 1.4.
    for (cpu, bytes, ms) in [
        ("0", 32 << 20, 100.0),
        ("1", 8 << 20, 100.0),
        ("1", 32 << 20, 160.0),
        ("0", 64 << 20, 140.0),
    ] {
        let mut hog = on_cpus(hog("hog", 100), cpu);
        hog.working_set_bytes = bytes;
        takes(&kernel(machine.clone(), vec![hog]), ms);
    }
}

/// The hog begins on the slow core and takes all of it. When it has been there for some 45 ms it is a misfit, and the next
/// tick of 4 ms moves it.
#[test]
fn a_hog_goes_to_the_fast_core() {
    let checked = kernel(capacities(&[512, 1_024]), vec![hog("hog", 400)]);
    let [(at, 1)] = moves(&checked)[..] else {
        panic!("{:?}", moves(&checked));
    };
    assert!((43..=49).contains(&at), "{at}");
    takes(&checked, 400.0 + at as f64 / 2.0);
    // It cannot move, or need not.
    let bound = on_cpus(hog("hog", 400), "0");
    assert_eq!(moves(&kernel(capacities(&[512, 1_024]), vec![bound])), []);
    for machine in [&[1_024, 512][..], &[512, 512], &[1_024, 1_000]] {
        let checked = kernel(capacities(machine), vec![hog("hog", 400)]);
        assert_eq!(moves(&checked), [], "{machine:?}");
    }
}

#[test]
fn a_hog_climbs_from_cluster_to_cluster() {
    let checked = kernel(capacities(&[160, 500, 1_024]), vec![hog("hog", 400)]);
    let [(first, 1), (second, 2)] = moves(&checked)[..] else {
        panic!("{:?}", moves(&checked));
    };
    // From 160 to four fifths of 500, where it needs 1 - (500 - 400) / (500 - 160): 32 log2(3.4) = 56 periods.
    assert!((43..=49).contains(&first), "{first}");
    assert!((56..=66).contains(&(second - first)), "{second}");
}

/// As many hogs as cores stay where they are: a fast core is never robbed of its task by a slow one.
#[test]
fn nobody_leaves_a_fast_core_for_a_slow_one() {
    let hogs = |n: usize| (0..n).map(|_| hog("hog", 300)).collect::<Vec<_>>();
    let four = capacities(&[1_024, 1_024, 512, 512]);
    // When the fast cores are done with theirs at 300 ms, the two others have 150 left and go there, each to one of them.
    let checked = kernel(four.clone(), hogs(4));
    let mut to = moves(&checked);
    assert!(
        to.iter().all(|&(at, _)| (300..=312).contains(&at)),
        "{to:?}"
    );
    to.sort_by_key(|&(_, cpu)| cpu);
    assert_eq!(to.iter().map(|&(_, cpu)| cpu).collect::<Vec<_>>(), [0, 1]);
    let ms = makespan_us(&checked) / 1_000;
    assert!((450..460).contains(&ms), "{ms}");
    // Three: so does the one on a slow core.
    let checked = kernel(four.clone(), hogs(3));
    let [(at, 0 | 1)] = moves(&checked)[..] else {
        panic!("{:?}", moves(&checked));
    };
    assert!((300..=312).contains(&at), "{at}");
    // Five: two share a core until another one is idle, and then none stays idle.
    let checked = kernel(four, hogs(5));
    let ms = makespan_us(&checked) / 1_000;
    // 1,500 ms of work on 3 × 1,024: 500 ms at least, and no more than one that lost its turn at the end.
    assert!((500..=800).contains(&ms), "{ms}");
}

/// A task that computes much between its sleeps wakes on a core where it fits; one that does not stays near.
#[test]
fn wakeups_look_at_the_capacity() {
    let sleeper = |comm: &str, run_us, sleep_us| {
        task(comm, move |n, _| {
            (n < 400).then_some(match n % 2 {
                0 => Action::Compute(Duration::from_us(run_us)),
                _ => Action::Sleep(Duration::from_us(sleep_us)),
            })
        })
    };
    // Half of the slow core, and 4.5 of 5 ms.
    let small = kernel(
        capacities(&[400, 1_024]),
        vec![sleeper("small", 400, 1_000)],
    );
    assert_eq!(moves(&small), []);
    let large = kernel(
        capacities(&[400, 1_024]),
        vec![sleeper("large", 3_000, 500)],
    );
    let [(at, 1)] = moves(&large)[..] else {
        panic!("{:?}", moves(&large));
    };
    assert!(at < 60, "{at}");
}

/// `pick_idle_cpu_from_online_nodes()`: nodes come in the order of their distance.
#[test]
fn the_nearest_node_with_an_idle_cpu_comes_first() {
    let picked = |distances: Option<&str>| {
        let mut machine = Machine::builtin("laptop").unwrap();
        machine.topology = Topology::new(3, 1, 1, 1);
        if let Some(distances) = distances {
            let line =
                format!("[topology]\ndistances = {{ value = {distances}, source = \"guess\" }}");
            machine = with(machine, "[topology]", &line);
        }
        // The fourth task begins on CPU 0, where the first one computes; the others are over by then.
        let mut fourth = hog("fourth", 5);
        fourth.start = schedlab_trace::Instant::from_ns(5_000_000);
        let tasks = vec![
            on_cpus(hog("first", 20), "0"),
            on_cpus(hog("over", 1), "1"),
            on_cpus(hog("over", 1), "2"),
            fourth,
        ];
        let mut workload = workload(Vec::new(), tasks);
        workload.start = Start::Together;
        let stub = Stub::minimal().flags(crate::consts::ops::BUILTIN_IDLE_PER_NODE);
        let checked = run_checked(Scenario::new(machine, workload, 1), stub);
        (0..3).find(|&cpu| checked.ran_on(cpu).contains(&3))
    };
    assert_eq!(picked(None), Some(1));
    let near = "[[10, 30, 12], [30, 10, 20], [12, 20, 10]]";
    assert_eq!(picked(Some(near)), Some(2));
}
