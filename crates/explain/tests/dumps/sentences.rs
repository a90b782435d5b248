//! Each sentence of an explanation in each of its cases, word for word.

use schedlab_explain::explain_result;

use super::*;

/// The local DSQ of the CPU under which a task is listed.
const LOCAL: &str = "0x8000000000000002";
const QUEUED: u32 = 2;

fn victim(dsq: &'static str, cpus: &'static str) -> Task {
    Task { dsq, cpus, ..TASK }
}

fn in_state(ops_state: u32, cpus: &'static str) -> Task {
    Task {
        ops_state,
        cpus,
        ..TASK
    }
}

fn held(by: &'static str, class: &'static str, task: &Task) -> Vec<Cpu> {
    vec![cpu(1, by, class, std::slice::from_ref(task)), busy(0, &[])]
}

#[track_caller]
fn says(text: &str, sentence: &str, evidence: &[&str]) {
    let found = one(text);
    assert_eq!(found.sentence, sentence, "{found:#?}\n{text}");
    assert_eq!(found.evidence, evidence, "{text}");
}

#[track_caller]
fn stalls(cpus: &[Cpu], sentence: &str, evidence: &[&str]) {
    says(&stall(Linux::V7_2, cpus), sentence, evidence);
}

#[test]
fn a_higher_class_that_holds_the_cpu() {
    let rt = "CPU 1 runs hog[9], a real-time task";
    stalls(
        &held("hog[9]", "rt", &victim(LOCAL, "3")),
        "The real-time task hog[9] holds CPU 1, so victim[100], which waits there in the local DSQ, did not run for 30.5 s.",
        &[
            "victim[100] has been runnable for 30.5 s on CPU 1; it is in the local DSQ of CPU 1",
            rt,
            "victim[100] may run on CPUs 0-1",
        ],
    );
    stalls(
        &held("hog[9]", "dl", &victim("0x5", "2")),
        "The deadline task hog[9] holds CPU 1, so victim[100], which waits there in DSQ 0x5, did not run for 30.5 s.",
        &[
            "victim[100] has been runnable for 30.5 s on CPU 1; it is in DSQ 0x5",
            "CPU 1 runs hog[9], a deadline task",
            "victim[100] may run only on CPU 1",
        ],
    );
    stalls(
        &held("hog[9]", "fair", &in_state(QUEUED, "3")),
        "The fair-class task hog[9] holds CPU 1, so victim[100], which waits there in the scheduler's own queue, did not run for 30.5 s.",
        &[
            "victim[100] has been runnable for 30.5 s on CPU 1; it is in no DSQ (dsq_id=(n/a)) and belongs to the scheduler \
             (ops_state 2, QUEUED)",
            "CPU 1 runs hog[9], a fair-class task",
            "victim[100] may run on CPUs 0-1",
        ],
    );
}

#[test]
fn a_task_that_nobody_dispatched() {
    let state = "it is in no DSQ (dsq_id=(n/a)) and belongs to the scheduler (ops_state 2, QUEUED)";
    let sentence = "Nobody dispatched victim[100]: ops.enqueue() took it and the scheduler did not insert it into any DSQ for \
                    30.5 s.";
    let runnable = format!("victim[100] has been runnable for 30.5 s on CPU 0; {state}");
    let runs = "CPU 0 runs worker[7], a sched_ext task";
    stalls(
        &[busy(0, &[in_state(QUEUED, "3")]), busy(1, &[])],
        sentence,
        &[&runnable, runs, "victim[100] may run on CPUs 0-1"],
    );
    stalls(
        &[busy(0, &[in_state(QUEUED, "1")])],
        sentence,
        &[&runnable, runs, "victim[100] may run only on CPU 0"],
    );
    // Of those that may run it, one is held and two are not listed.
    stalls(
        &[
            busy(0, &[in_state(QUEUED, "f")]),
            cpu(1, "hog[9]", "rt", &[]),
        ],
        sentence,
        &[
            &runnable,
            runs,
            "of those that may run it, CPU 1 was held by tasks of a higher class",
            "of those that may run it, CPUs 2-3 were idle",
        ],
    );
}

#[test]
fn a_task_on_its_way() {
    let runs = "CPU 0 runs worker[7], a sched_ext task";
    for (state, name, what) in [
        (
            1,
            "1 (Queueing)",
            "ops.enqueue() was called for it and had not returned",
        ),
        (
            3,
            "3 (Dispatching)",
            "a dispatch of it had begun and not ended",
        ),
    ] {
        let found = one(&stall(Linux::V7_2, &[busy(0, &[in_state(state, "1")])]));
        assert_eq!(
            found.sentence,
            format!("victim[100] was on its way for 30.5 s: {what}.")
        );
        let runnable = format!(
            "victim[100] has been runnable for 30.5 s on CPU 0; it is in no DSQ (dsq_id=(n/a)), ops_state {name}"
        );
        assert_eq!(
            found.evidence,
            [&runnable, runs, "victim[100] may run only on CPU 0"]
        );
    }
    let text = stall(Linux::V7_2, &[busy(0, &[in_state(0, "3")])]);
    let moved = text.replacen("victim[100]", "victim", 1);
    assert_eq!(moved.len() + 5, text.len());
    let last = text.rfind("sticky/holding_cpu=-1/-1").unwrap();
    let moved = format!(
        "{}{}",
        &text[..last],
        text[last..].replacen("-1/-1", "-1/3", 1)
    );
    assert_eq!(
        one(&moved).sentence,
        "victim[100] was on its way for 30.5 s: CPU 3 was moving it from one queue to another."
    );
}

#[test]
fn a_task_in_a_local_dsq() {
    let runnable =
        "victim[100] has been runnable for 30.5 s on CPU 2; it is in the local DSQ of CPU 2";
    let bound = "victim[100] may run only on CPU 2";
    let waits = |before: &[Task]| {
        let all: Vec<Task> = before.iter().cloned().chain([victim(LOCAL, "4")]).collect();
        [busy(2, &all)]
    };
    stalls(
        &[cpu(2, "swapper/2[0]", "idle", &[victim(LOCAL, "4")])],
        "CPU 2 was idle while victim[100] waited 30.5 s in its local DSQ: nobody made that CPU look.",
        &[
            runnable,
            "CPU 2 is idle",
            bound,
            "of those that may run it, CPU 2 was idle",
        ][..3],
    );
    let others = "worker[7] and others keep CPU 2, so victim[100], which waits in that CPU's local DSQ, did not run for 30.5 s.";
    let runs = "CPU 2 runs worker[7], a sched_ext task";
    stalls(&waits(&[]), others, &[runnable, runs, bound]);
    let other = |name| Task {
        name,
        waited_ms: 3,
        ..victim(LOCAL, "4")
    };
    stalls(
        &waits(&[other("a[1]")]),
        others,
        &[
            runnable,
            runs,
            "1 other task waits in the local DSQ of CPU 2",
            bound,
        ],
    );
    stalls(
        &waits(&[other("a[1]"), other("b[2]")]),
        others,
        &[
            runnable,
            runs,
            "2 other tasks wait in the local DSQ of CPU 2",
            bound,
        ],
    );
    let hog = |slice, waited_ms| Task {
        name: "hog[9]",
        slice,
        waited_ms,
        ..TASK
    };
    let keeps = "hog[9] keeps CPU 2, so victim[100], which waits in that CPU's local DSQ, did not run for 30.5 s.";
    let runs = "CPU 2 runs hog[9], a sched_ext task";
    let with = |hog: Task| [cpu(2, "hog[9]", "ext", &[hog, victim(LOCAL, "4")])];
    stalls(
        &with(hog(u64::MAX, 2)),
        keeps,
        &[
            runnable,
            runs,
            "hog[9] has an endless slice (SCX_SLICE_INF)",
            bound,
        ],
    );
    stalls(
        &with(hog(20_000_000, 31_000)),
        keeps,
        &[
            runnable,
            runs,
            "hog[9] has not given CPU 2 up for 31.0 s",
            bound,
        ],
    );
    // The observer is there because of the stall, and says nothing of who kept the CPU.
    let observer = Task {
        name: "kworker/u16:0[56]",
        waited_ms: 31_000,
        ..TASK
    };
    stalls(
        &[cpu(
            2,
            "kworker/u16:0[56]",
            "ext",
            &[observer, victim(LOCAL, "4")],
        )],
        "CPU 2 did not get to victim[100] in its local DSQ for 30.5 s.",
        &[
            runnable,
            "CPU 2 runs kworker/u16:0[56], a sched_ext task",
            bound,
        ],
    );
}

#[test]
fn a_task_in_a_dsq_that_cpus_take_from() {
    let runnable = "victim[100] has been runnable for 30.5 s on CPU 0; it is in DSQ 0x7";
    let runs = "CPU 0 runs worker[7], a sched_ext task";
    let on = |cpus| [busy(0, &[victim("0x7", cpus)])];
    stalls(
        &on("3"),
        "CPU 1 was idle while victim[100] waited 30.5 s in DSQ 0x7: nobody kicked that CPU after the task was inserted, or its \
         ops.dispatch() does not take from that DSQ.",
        &[runnable, runs, "victim[100] may run on CPUs 0-1"],
    );
    stalls(
        &on("7"),
        "CPUs 1-2 were idle while victim[100] waited 30.5 s in DSQ 0x7: nobody kicked one of them after the task was inserted, \
         or their ops.dispatch() does not take from that DSQ.",
        &[runnable, runs, "victim[100] may run on CPUs 0-2"],
    );
    stalls(
        &on("2"),
        "CPU 1 was idle while victim[100] waited 30.5 s in DSQ 0x7, and may run only on CPU 1: nobody kicked that CPU after the \
         task was inserted, or its ops.dispatch() does not take from that DSQ.",
        &[runnable, runs, "victim[100] may run only on CPU 1"],
    );
    stalls(
        &on("1"),
        "No CPU took victim[100] out of DSQ 0x7, where it waited 30.5 s, and may run only on CPU 0.",
        &[runnable, runs, "victim[100] may run only on CPU 0"],
    );
    let other = |name, waited_ms| Task {
        name,
        waited_ms,
        ..victim("0x8000000000000001", "1")
    };
    let global = |others: &[Task]| {
        let tasks: Vec<Task> = [victim("0x8000000000000001", "1")]
            .iter()
            .chain(others)
            .cloned()
            .collect();
        [busy(0, &tasks)]
    };
    let sentence = "No CPU took victim[100] out of the global DSQ, where it waited 30.5 s, and may run only on CPU 0.";
    let runnable = "victim[100] has been runnable for 30.5 s on CPU 0; it is in the global DSQ";
    let bound = "victim[100] may run only on CPU 0";
    stalls(
        &global(&[other("a[1]", 2_000)]),
        sentence,
        &[
            runnable,
            runs,
            "1 other task waits in the global DSQ, the longest for 2.0 s",
            bound,
        ],
    );
    stalls(
        &global(&[other("a[1]", 2_000), other("b[2]", 3_000)]),
        sentence,
        &[
            runnable,
            runs,
            "2 other tasks wait in the global DSQ, the longest for 3.0 s",
            bound,
        ],
    );
}

#[test]
fn a_dump_that_does_not_show_the_cause() {
    let own = [cpu(0, "victim[100]", "ext", &[in_state(0, "1")])];
    assert_eq!(
        one(&stall(Linux::V7_2, &own)).sentence,
        "victim[100] had waited 30.5 s for a CPU; when the kernel made the dump it had just got CPU 0, so the dump does not show \
         what it waited for."
    );
    assert_eq!(
        one(&stall(Linux::V7_2, &[busy(0, &[in_state(0, "1")])])).sentence,
        "victim[100] was runnable on CPU 0 for 30.5 s and did not run; the dump shows it in no DSQ and not in the scheduler's \
         hands."
    );
    let reason = format!("EXIT: runnable task stall ({MESSAGE})\n");
    says(
        &reason,
        "victim[100] was runnable and did not run for 30.5 s; without the debug dump the text does not show why.",
        &[],
    );
    stalls(
        &[busy(0, &[])],
        "victim[100] was runnable and did not run for 30.5 s; the text does not show where it waits.",
        &[],
    );
    let other = Task {
        name: "other[5]",
        waited_ms: 9_000,
        ..victim("0x7", "1")
    };
    stalls(
        &[cpu(0, "hog[9]", "rt", &[other])],
        "victim[100] did not run for 30.5 s, likely since the real-time task hog[9] holds CPU 0; the text ends before it shows \
         where victim[100] waits.",
        &[
            "the real-time task hog[9] holds CPU 0",
            "of those listed, other[5] waits longest: 9.0 s on CPU 0, in DSQ 0x7",
        ],
    );
}

#[test]
fn a_watchdog_that_was_late() {
    let text = |cpus: &[Cpu]| {
        dump(
            Linux::V7_2,
            1026,
            "runnable task stall",
            "watchdog failed to check in for 131.003s",
            cpus,
        )
    };
    says(
        &text(&[busy(0, &[])]),
        "The kernel's watchdog of sched_ext did not get to run for 131 s: the scheduler starves the kernel's own workers, or the \
         CPUs are stuck.",
        &[],
    );
    let worker = Task {
        name: "kworker/u8:2[44]",
        ..victim("0x7", "1")
    };
    says(
        &text(&[busy(0, &[worker])]),
        "The scheduler did not run the kernel's worker kworker/u8:2[44] on CPU 0 for 30.5 s, so the watchdog of sched_ext, which \
         such workers run, came too late.",
        &[
            "kworker/u8:2[44] has been runnable for 30.5 s on CPU 0; it is in DSQ 0x7",
            "of those listed, kworker/u8:2[44] waits longest: 30.5 s on CPU 0, in DSQ 0x7",
        ],
    );
}

#[test]
fn ends_of_other_kinds() {
    for (exit, message, code, sentence) in [
        (
            "unreg",
            None,
            None,
            "Nobody ejected the scheduler: its own loader, or the process that closed the link, took it out.",
        ),
        (
            "sysrq",
            None,
            None,
            "Somebody pressed SysRq-S, which takes any sched_ext scheduler out.",
        ),
        (
            "unreg_kern",
            None,
            None,
            "The kernel took the scheduler out: the text has no message.",
        ),
        (
            "unreg_kern",
            Some("the moon is full"),
            None,
            "The kernel took the scheduler out: the moon is full.",
        ),
        (
            "error",
            None,
            None,
            "The scheduler broke a rule of sched_ext: the text has no message.",
        ),
        (
            "error",
            Some("the moon is full"),
            None,
            "The scheduler broke a rule of sched_ext: the moon is full.",
        ),
        (
            "error_bpf",
            None,
            None,
            "The scheduler ended itself by scx_bpf_error(), without a message.",
        ),
        (
            "error_bpf",
            Some("no context"),
            None,
            "The scheduler ended itself by scx_bpf_error(): \"no context\".",
        ),
        (
            "unreg_bpf",
            None,
            None,
            "The scheduler ended itself by scx_bpf_exit().",
        ),
        (
            "unreg_bpf",
            Some("enough"),
            Some(7),
            "The scheduler ended itself by scx_bpf_exit() with code 7: \"enough\".",
        ),
        (
            "unreg_bpf",
            None,
            Some(1 << 48),
            "The scheduler ended itself by scx_bpf_exit() with code 0x1000000000000, which asks its loader for a restart.",
        ),
        (
            "unreg_bpf",
            None,
            Some(1 << 48 | 1 << 32),
            "The scheduler ended itself by scx_bpf_exit() with code 0x1000100000000, which asks its loader for a restart over a \
             CPU that came or went.",
        ),
        (
            "error_stall",
            Some("something new"),
            None,
            "A runnable task did not run in time: something new.",
        ),
        (
            "fault",
            Some("ops.tick divides by zero"),
            None,
            "The scheduler's code did what no kernel lets it do: ops.tick divides by zero.",
        ),
    ] {
        let found = explain_result("mine", exit, message, code, "").unwrap();
        assert_eq!(found.sentence, sentence);
    }
    assert_eq!(explain_result("mine", "done", None, None, ""), None);
}

/// The kernel's own log: its backtrace names the kfunc and the scheduler's function.
#[test]
fn the_place_and_the_trail_have_each_case() {
    let head = "sched_ext: BPF scheduler \"p2\" disabled (runtime error)\nsched_ext: p2: dispatch buffer overflow\n";
    let (kfunc, function, op) = (
        "   scx_bpf_dsq_insert+0x6e/0x80\n",
        "   bpf_prog_0123456789abcdef_p2_tick+0x6e/0x80\n",
        "   bpf__sched_ext_ops_tick+0x42/0xa0\n",
    );
    let of = |frames: &[&str]| {
        let found = one(&format!("{head}{}", frames.concat()));
        let rows = found.rows();
        let place = rows.iter().find(|(name, _)| *name == "Where");
        (
            place.map(|(_, text)| text.clone()),
            found.evidence.first().cloned(),
        )
    };
    let by = |text: &str| Some(format!("the backtrace goes through {text}"));
    let place = |text: &str| Some(text.to_owned());
    assert_eq!(of(&[]), (None, None));
    assert_eq!(of(&[kfunc]), (None, by("scx_bpf_dsq_insert()")));
    assert_eq!(of(&[function]), (place("p2_tick()"), by("p2_tick()")));
    assert_eq!(of(&[op]), (place("ops.tick"), None));
    assert_eq!(
        of(&[kfunc, function, op]),
        (
            place("ops.tick, in p2_tick()"),
            by("scx_bpf_dsq_insert(), called by p2_tick()")
        )
    );
}

#[test]
fn masks_and_lockups_are_evidence() {
    let message = "SCX_DSQ_LOCAL[_ON] target CPU 3 not allowed for victim[100]";
    let of = |cpus: &'static str| {
        let text = dump(
            Linux::V7_2,
            1024,
            "runtime error",
            message,
            &[busy(0, &[victim("0x7", cpus)])],
        );
        one(&text).evidence
    };
    let allowed = "when the dump was made, victim[100] was allowed on";
    assert_eq!(of("1"), [format!("{allowed} CPU 0")]);
    assert_eq!(of("7"), [format!("{allowed} CPUs 0-2")]);
    assert_eq!(of("0"), [format!("{allowed} no CPU")]);
}
