//! Files by hand, whose ends can be counted.

use super::*;
use crate::testing::{Order, run_in, try_run};

const HEAD: &str =
    "schedlab_workload = 1\nname = \"two\"\nwork_percent = 100\nthink_percent = 100\n\n";

fn two() -> String {
    format!(
        "# by hand\n{HEAD}[[task]]\ncomm = \"a\"\nprocess = 1\n\n[[task]]\ncomm = \"b\"\nprocess = 1\n---\n\
         task 1\nr1000 f2 r500 p2 w r250 # the answer\ntask 2\nw r2000 s3000 p1\n"
    )
}

fn workload(text: &str, options: &str) -> Workload {
    parse_on("two.workload", text, options, &CpuSet::all(2)).unwrap()
}

fn refusal(text: &str) -> String {
    parse_on("two.workload", text, "", &CpuSet::all(2))
        .err()
        .unwrap()
        .to_string()
}

/// By hand: task 1 takes 1000 and 500 ns, then task 2 2000 and a sleep of 3000, then task 1 its last 250.
#[test]
fn tasks_wait_for_each_other_and_factors_apply() {
    for order in [Order::RoundRobin, Order::UntilBlocked, Order::Random(7)] {
        assert_eq!(run_in(workload(&two(), ""), order).now.ns(), 6_750);
    }
    assert_eq!(
        run_in(workload(&two(), "work=200"), Order::RoundRobin)
            .now
            .ns(),
        2 * 3_750 + 3_000
    );
    assert_eq!(
        run_in(workload(&two(), "think=10%"), Order::RoundRobin)
            .now
            .ns(),
        3_750 + 300
    );
    let head = two()
        .replace("work_percent = 100", "work_percent = 50")
        .replace("comm = \"b\"", "comm = \"b\"\nwork_percent = 300");
    assert_eq!(
        run_in(workload(&head, ""), Order::RoundRobin).now.ns(),
        1_750 / 2 + 3_000 + 3_000
    );
}

#[test]
fn an_entry_may_stand_for_several_tasks() {
    let text = two().replace("comm = \"b\"", "comm = \"b\"\nthreads = 3");
    let end = run_in(workload(&text, ""), Order::RoundRobin);
    assert_eq!(end.tasks, 4);
    assert!(
        end.now.ns() > 6_750,
        "three times the work of task 2: {}",
        end.now.ns()
    );
}

/// The next wait passes after any task's post: a file that ends in one order ends in all.
#[test]
fn a_file_comes_to_an_end_in_every_order() {
    let tasks = "[[barrier]]\ntasks = [2, 3]\n".to_owned()
        + &"[[task]]\ncomm = \"t\"\nprocess = 1\n".repeat(4);
    let text = format!(
        "{HEAD}{tasks}---\ntask 1\nf2 f3 f4 w r10 w r10 p4 w r5\ntask 2\nr30 b1 p1 r7 b1\ntask 3\nr50 b1 r8 p1 b1\ntask 4\nw r9 p1\n"
    );
    for seed in 0..50 {
        let end = try_run(workload(&text, "jitter=90"), Order::Random(seed));
        assert!(end.stuck.is_empty(), "seed {seed}: {:?}", end.stuck);
    }
}

#[test]
fn jitter_is_the_seeds_and_keeps_the_mean() {
    let text = two().replace("comm = \"b\"", "comm = \"b\"\njitter_percent = 50");
    let ends = |options: &str| {
        let runs = (0..1).map(|_| run_in(workload(&text, options), Order::RoundRobin).now.ns());
        runs.collect::<Vec<_>>()
    };
    assert_eq!(ends("jitter=0"), [6_750]);
    let [drawn] = ends("")[..] else {
        panic!("one run");
    };
    assert!(
        drawn != 6_750 && (5_750..=7_750).contains(&drawn),
        "{drawn}"
    );
}

#[test]
fn others_run_beside_and_are_not_waited_for() {
    let text = two().replace(
        "comm = \"b\"\nprocess = 1\n",
        "comm = \"b\"\nprocess = 1\n\n[[task]]\ncomm = \"o\"\nprocess = 2\nbackground = true\n",
    ) + "task 3\n"
        + &"r1000 d5 ".repeat(1_000);
    let with = workload(&text, "");
    assert_eq!(with.tasks.len(), 2);
    assert_eq!(with.tasks[1].comm, "~o");
    assert!(run_in(with, Order::RoundRobin).now.ns() < 100_000);
    assert_eq!(workload(&text, "others=false").tasks.len(), 1);
}

#[test]
fn a_file_is_written_as_it_is_read() {
    let file = File::parse("two", &two()).unwrap();
    let again = File::parse("two", &file.to_text()).unwrap();
    assert_eq!(file, again);
    assert!(is_recorded(&file.to_text()));
    assert!(!is_recorded("{\"tasks\": {}}"));
}

#[test]
fn refusals_name_the_place() {
    let told = |from: &str, to: &str| refusal(&two().replace(from, to));
    assert_eq!(
        told("p2 w", "p2 q w"),
        "two.workload:16: `q`: is no step; steps are rNS, pTASK, w, sNS, uNS, dNS, fTASK, bBARRIER and y, with at most 1000000000000000 ns"
    );
    assert!(told("r1000", "r+5").contains("`r+5`: is no step"));
    assert!(told("r1000", "r9999999999999999999").contains("is no step"));
    assert_eq!(
        told("p2 w", "p3 w"),
        "two.workload:1: `task 1`: `p3`: the head has no number 3"
    );
    assert!(
        told("task 2", "task 5")
            .contains("`task 5`: there is no such task: the head has tasks 1 to 2")
    );
    assert!(told("p2 w", "f2 p2 w").contains("task 2 is created twice"));
    assert!(told("r2000", "f2").contains("is created twice"));
    assert!(told("schedlab_workload = 1", "schedlab_workload = 2").contains("reads version 1"));
    assert!(told("---\n", "").contains("the line `---`"));
    assert!(told("comm = \"a\"", "comm = \"a\"\ncom = 1").contains("unknown field `com`"));
    assert!(told("process = 1", "process = -1").starts_with("two.workload:"));
    assert!(
        told("comm = \"a\"", "comm = \"a\"\npolicy = \"fast\"")
            .contains("policy is `fast`; it takes")
    );
    let alone = two().replace("f2 ", "").replace("w r2000", "f2 r2000");
    assert!(
        refusal(&alone).contains("only itself or its own children create it"),
        "{}",
        refusal(&alone)
    );
}

#[test]
fn losses_and_unknown_causes_are_noted() {
    let recorded = "[recorded]\nsource = \"perf.data\"\ncpus = 2\nevents = 90\nlost_events = 10\nothers_cpu_ns = 0\nrecorder_cpu_ns = 0\npaths_ns = 0\n\
        waits = { task_ns = 50, barrier_ns = 0, timer_ns = 0, device_ns = 0, outside_ns = 30, unknown_ns = 20 }\n\
        measured = { makespan_ns = 1, cpu_ns = 1, switches = 1, preemptions = 0, wakeups = 0, wait_ns_p50 = 0, wait_ns_p90 = 0, wait_ns_p99 = 0, wait_ns_sum = 0, wakeup_ns_p50 = 0, wakeup_ns_p90 = 0, wakeup_ns_p99 = 0 }\n\n";
    let text = two().replacen("[[task]]", &format!("{recorded}[[task]]"), 1);
    let notes = workload(&text, "").notes;
    assert!(notes[0].contains("lost 10 of 100 events"), "{notes:?}");
    assert!(notes[1].contains("50 % of the time"), "{notes:?}");
    assert_eq!(
        workload(
            &text
                .replace("lost_events = 10", "lost_events = 0")
                .replace("task_ns = 50", "task_ns = 500"),
            ""
        )
        .notes
        .len(),
        0
    );
}
