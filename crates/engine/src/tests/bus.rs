//! The bus that applications and the kernel share.

use schedlab_machine::{Machine, Topology};
use schedlab_workload::{Access, Action, Start, TaskSpec, Touch};

use crate::testing::*;
use crate::{NormalClass, Scenario};

/// Four CPUs, two nodes. A CPU alone goes over 50,000 lines a millisecond; a bus carries 100,000 crossings.
fn two_nodes() -> Machine {
    let mut machine = Machine::builtin("laptop").unwrap();
    machine.topology = Topology::new(2, 1, 2, 1);
    machine.core_kinds.clear();
    let memory = &mut machine.memory;
    memory.line_bytes = 64;
    (memory.stream_ps, memory.miss_ps) = (Some(20_000), 100_000);
    memory.bus_ps = 10_000;
    machine
}

/// A task on `cpu` that goes over memory again and again.
fn walker(cpu: &str, passes: u32, touch: Touch) -> TaskSpec {
    let walker = task("walker", move |n, _| {
        (n < passes).then_some(Action::Touch(touch))
    });
    on_cpus(walker, cpu)
}

/// Each of its passes goes over 50,000 lines, 1 ms on an idle machine. A line that is written crosses the bus twice, so
/// one CPU uses all of it.
fn writer(cpu: &str, passes: u32) -> TaskSpec {
    let touch = Touch {
        buffer: 0,
        size_bytes: 3_200_000,
        count: 3_200_000,
        access: Access::Lines,
    };
    walker(cpu, passes, touch)
}

/// A line each 100 ns, a tenth of the bus: each of its passes goes over 50,000 lines in 5 ms.
fn chaser(cpu: &str, passes: u32) -> TaskSpec {
    let touch = Touch {
        buffer: 0,
        size_bytes: 64 << 20,
        count: 50_000,
        access: Access::Chase {
            stride_bytes: 64,
            random: true,
        },
    };
    walker(cpu, passes, touch)
}

fn run(machine: Machine, tasks: Vec<TaskSpec>) -> Checked {
    let mut workload = workload(Vec::new(), tasks);
    workload.start = Start::Together;
    let mut scenario = Scenario::new(machine, workload, 1);
    scenario.normal_class = NormalClass::Fair;
    run_checked(scenario, Stub::fifo(&[]))
}

#[track_caller]
fn takes(tasks: Vec<TaskSpec>, ms: f64) {
    let checked = run(two_nodes(), tasks);
    let found = checked.end.makespan.expect("all tasks end").ns() as f64 / 1e6;
    // Start, end and ticks take some microseconds a millisecond.
    assert!(
        (ms..ms * 1.005 + 0.3).contains(&found),
        "{found} ms, not {ms}"
    );
}

#[test]
fn writers_share_the_bus_of_their_node() {
    takes(vec![writer("0", 100)], 100.0);
    takes(vec![writer("0", 100), writer("1", 100)], 200.0);
    // CPUs 2 and 3 have a bus of their own.
    takes(vec![writer("0", 100), writer("2", 100)], 100.0);
}

#[test]
fn when_one_has_done_the_other_has_the_bus_for_itself() {
    // 200 ms at half the speed, then 50 alone.
    takes(vec![writer("0", 100), writer("1", 150)], 250.0);
}

#[test]
fn one_that_asks_for_little_is_not_slower() {
    takes(vec![chaser("1", 50)], 250.0);
    takes(vec![writer("0", 200), chaser("1", 50)], 250.0);
    // The other one has nine tenths of the bus for 250 ms, then all of it.
    takes(vec![writer("0", 300), chaser("1", 50)], 325.0);
}

/// Hardware threads at 60 % each ask for 60 % each: a bus that carries that slows nobody down further.
#[test]
fn threads_of_a_core_ask_for_what_they_can_use() {
    let ms = |bus_ps| {
        let mut machine = two_nodes();
        machine.topology = Topology::new(1, 1, 1, 2);
        machine.interference.smt_share_pct = 60;
        machine.memory.bus_ps = bus_ps;
        let tasks = vec![writer("0", 60), writer("1", 60)];
        run(machine, tasks).end.makespan.unwrap().ns() as f64 / 1e6
    };
    // 60 ms of work at 60 %; together 120,000 lines a ms.
    for (bus_ps, expected) in [(0, 100.0), (8_000, 100.0), (16_000, 192.0)] {
        let found = ms(bus_ps);
        assert!(
            (expected..expected * 1.005 + 0.3).contains(&found),
            "{bus_ps}: {found}"
        );
    }
}

#[test]
fn computing_loads_the_bus_where_the_profile_says_what_it_writes() {
    let wait_ps = |written_pct| {
        let mut machine = two_nodes();
        // A task's lines leave none of the kernel's in the cache: those come from memory.
        let memory = &mut machine.memory;
        (memory.cache_bytes, memory.llc_hit_ps) = (64 << 10, 0);
        memory.evict_lines_per_ms = 50_000;
        memory.written_pct = written_pct;
        let tasks = (0..2).map(|cpu| {
            let periodic = periodic("p", 300, 100, 200);
            on_cpus(periodic, &cpu.to_string())
        });
        let checked = run(machine, tasks.collect());
        checked
            .end
            .cache
            .all_stats()
            .map(|stats| stats.bus_wait_ps)
            .sum::<u64>()
    };
    let (alone, beside) = (wait_ps(None), wait_ps(Some(50)));
    assert!(beside > 2 * alone, "{alone} {beside}");
}

#[test]
fn work_that_leaves_the_bus_room_is_as_fast_as_without_a_bus() {
    let makespan = |written_pct| {
        let mut machine = two_nodes();
        machine.memory.evict_lines_per_ms = 4_000;
        machine.memory.written_pct = written_pct;
        let hog = || on_cpus(hog("hog", 100), "0-1");
        run(machine, vec![hog(), hog()]).end.makespan.unwrap()
    };
    let (without, with) = (makespan(None), makespan(Some(100)));
    let more = with.ns() as f64 / without.ns() as f64 - 1.0;
    assert!(more.abs() < 1e-4, "{more}");
    assert!(without.ns() < 101_000_000);
}
