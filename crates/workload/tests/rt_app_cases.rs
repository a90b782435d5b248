//! Files of every kind, and what rt-app itself did with them (`tools/compare-rtapp --cases`).

use std::collections::BTreeMap;

use schedlab_workload::testing::{Order, try_run};
use schedlab_workload::{Workload, rtapp};

/// Never end and take no time in the executor of these tests, so they are read only.
const TIMELESS: [&str; 4] = [
    "mem below zero is for ever",
    "iorun below zero is for ever",
    "memrun below zero is for ever",
    "no room for iorun",
];

struct Case {
    name: &'static str,
    expected: &'static str,
    text: &'static str,
}

fn cases() -> Vec<Case> {
    let all = include_str!("rt-app-cases.txt");
    let all = all.strip_suffix('\n').unwrap_or(all);
    let case = |text: &'static str| {
        let (title, text) = text.split_once('\n').expect("a file follows the title");
        let (name, expected) = title.split_once(" => ").expect("a title has an outcome");
        Case {
            name,
            expected,
            text,
        }
    };
    all.split("\n== ").skip(1).map(case).collect()
}

/// The iterations of each thread, and whether the time was over.
fn counted(workload: Workload) -> (BTreeMap<String, i64>, bool) {
    let duration = workload.duration;
    let end = try_run(workload, Order::RoundRobin);
    let over = duration.is_some_and(|span| end.now.ns() >= span.ns()) || !end.stuck.is_empty();
    let iterations = end.counters.values().filter_map(|(name, times)| {
        let thread = name.strip_prefix("rtapp.")?.strip_suffix(".iterations")?;
        Some((thread.to_owned(), times))
    });
    (iterations.collect(), over)
}

/// Why an outcome is not the expected one.
fn difference(case: &Case) -> Option<String> {
    let read = rtapp::parse("f.json", case.text, "", 2);
    let workload = match (read, case.expected) {
        (Err(_), "refused") => return None,
        (Err(error), _) => return Some(error.to_string()),
        (Ok(_), "refused") => return Some("taken".to_owned()),
        (Ok(workload), _) => workload,
    };
    if TIMELESS.contains(&case.name) {
        return None;
    }
    let (ours, over) = counted(workload);
    // Its time is never over since it cannot be interrupted: ours is.
    if case.expected == "never ends" {
        return (!over).then(|| format!("ends: {ours:?}"));
    }
    let mut theirs = BTreeMap::new();
    for thread in case.expected.split(", ") {
        let (name, times) = thread.rsplit_once(' ').expect("a thread and a number");
        theirs.insert(name.to_owned(), times.parse::<i64>().expect("a number"));
    }
    // Where it is, a busy machine may have kept rt-app from one or another iteration.
    let alike = |name: &String| {
        let (one, other) = (ours.get(name), theirs.get(name));
        let (one, other) = (one.unwrap_or(&0), other.unwrap_or(&0));
        one == other || over && (one - other).abs() <= 1 + one.max(other) / 5
    };
    let differ = !ours.keys().chain(theirs.keys()).all(alike);
    differ.then(|| format!("{ours:?}"))
}

#[test]
fn files_are_taken_and_counted_as_by_rt_app() {
    let cases = cases();
    let refused = cases.iter().filter(|case| case.expected == "refused");
    assert!(cases.len() > 150 && refused.count() > 70);
    let told = |case: &Case| {
        difference(case)
            .map(|what| format!("{}: rt-app: {}; here: {what}", case.name, case.expected))
    };
    let wrong: Vec<String> = cases.iter().filter_map(told).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Each refusal names its file and line.
#[test]
fn refusals_name_the_line() {
    for case in cases().iter().filter(|case| case.expected == "refused") {
        let error = rtapp::parse("f.json", case.text, "", 2)
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("f.json:1: "), "{}: {error}", case.name);
        assert_eq!(error.lines().count(), 1, "{}: {error}", case.name);
    }
}

/// A part that rt-app ignores or reads in an unexpected way is noted once, with its place.
#[test]
fn what_has_no_effect_is_told() {
    let notes = |name: &str| {
        let cases = cases();
        let case = cases
            .iter()
            .find(|case| case.name == name)
            .unwrap_or_else(|| panic!("no case {name}"));
        rtapp::parse("f.json", case.text, "", 2).unwrap().notes
    };
    for (name, parts) in [
        (
            "an event twice: the last value at the first place",
            &["line 1: `tasks.t.run` is there 2 times"][..],
        ),
        (
            "unknown key in a task",
            &["`tasks.t.note` has no effect: rt-app passes over it"],
        ),
        (
            "unknown key in a phase",
            &["`tasks.t.phases.p.note` has no effect"],
        ),
        (
            "unknown key in global",
            &[
                "`global.logsize` has no effect: rt-app passes over it (did you mean `log_size`?)",
                "`global.frag` has no effect",
            ],
        ),
        ("unknown key in the file", &["`meta` has no effect"]),
        (
            "an event beside phases",
            &["`tasks.t.run` has no effect: rt-app passes over an event beside `phases`"],
        ),
        (
            "unknown key in a timer",
            &["`tasks.t.timer.x` has no effect"],
        ),
        (
            "resources that are a number",
            &["`resources` has no effect: rt-app passes over it, since it is an integer"],
        ),
        (
            "run below zero is for ever",
            &["`tasks.t.run` is below zero and so never ends"],
        ),
        (
            "a phase with loop 0 is without end",
            &["`tasks.t.phases.b.loop` is 0, which is for ever"],
        ),
        (
            "a timer that is no object",
            &[
                "`tasks.t.timer` has no `ref`: rt-app takes the name `unknown`",
                "`tasks.t.timer` has no `period`",
            ],
        ),
        (
            "suffixes",
            &[
                "`tasks.t.runs` counts as `run`",
                "`tasks.t.sleepy` counts as `sleep`",
                "`tasks.t.memory` counts as `mem`",
            ],
        ),
        (
            "a chase without room does nothing",
            &["`tasks.t.memrun` does nothing"],
        ),
        (
            "pattern unknown",
            &["`tasks.t.memrun.pattern` is `rnd` (did you mean `random`?)"],
        ),
        (
            "another device, not written to",
            &["`global.io_device` has no effect"],
        ),
        (
            "a barrier in a task that is forked",
            &["`tasks.c.barrier` is in a task that is forked"],
        ),
        ("nodes", &["nodes_membind has no effect"]),
    ] {
        let notes = notes(name);
        for part in parts {
            let with = notes.iter().filter(|note| note.contains(part));
            assert_eq!(with.count(), 1, "{name}: `{part}` in {notes:#?}");
        }
    }
    for name in [
        "mutexes",
        "yield with a number",
        "null in place of properties",
        "null in place of settings",
        "CPU lists by phase",
    ] {
        assert_eq!(notes(name), [""; 0], "{name}");
    }
}

/// Time of this thread on a CPU, in ns.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Files with thousands of tasks come from generators. Sixteen times as many tasks take about sixteen times as long; looking
/// through all of them for each takes more than a hundred times as long. What counts is time on a CPU, which others cannot
/// take, and the best of several tries.
#[test]
fn the_time_to_read_grows_with_the_tasks() {
    let kinds: [fn(usize, usize) -> String; 8] = [
        |_, _| r#""run": 1"#.to_owned(),
        |i, _| format!(r#""lock": "m{i}", "unlock": "m{i}""#),
        |i, _| format!(r#""timer": {{"ref": "t{i}", "period": 1, "mode": "absolute"}}"#),
        |_, _| r#""timer": {"ref": "unique", "period": 1, "mode": "absolute"}"#.to_owned(),
        |i, tasks| format!(r#""run": 1, "fork": "t{}""#, tasks - 1 - i),
        |i, tasks| format!(r#""suspend": "", "resume": "t{}""#, (i + 1) % tasks),
        |i, _| {
            let size = 64 + i;
            format!(r#""memrun": {{"type": "read", "size": {size}, "count": 1, "ref": "r{i}"}}"#)
        },
        |i, _| format!(r#""run": 1, "unknown{i}": 1"#),
    ];
    let time = |event: fn(usize, usize) -> String, tasks: usize| {
        let task = |i| format!(r#""t{i}": {{"loop": 1, {}}}"#, event(i, tasks));
        let list: Vec<_> = (0..tasks).map(task).collect();
        let text = format!(r#"{{"tasks": {{{}}}}}"#, list.join(",\n"));
        let begun = cpu_ns();
        let workload = rtapp::parse("f.json", &text, "", 2).unwrap();
        assert_eq!(workload.tasks.len(), tasks);
        cpu_ns() - begun
    };
    for event in kinds {
        let mut ratios = Vec::new();
        let is_linear = (0..5).any(|_| {
            let ratio = time(event, 16_000) as f64 / time(event, 1_000) as f64;
            ratios.push(ratio);
            ratio < 60.0
        });
        println!("{}: {ratios:.1?}", event(0, 1));
        assert!(is_linear, "{}: {ratios:.1?}", event(0, 1));
    }
}
