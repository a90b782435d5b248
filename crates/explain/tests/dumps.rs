//! Dumps of our own making in the formats of Linux 6.12, 6.18 and 7.2: each kind of stall, and each way in which a log
//! is handed on.

#[path = "dumps/sentences.rs"]
mod sentences;

use schedlab_explain::{Certainty, Culprit, Explanation, NoEjection, explain};

/// The release whose `scx_dump_state()` has this format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Linux {
    V6_12,
    V6_18,
    V7_2,
}

const ALL: [Linux; 3] = [Linux::V6_12, Linux::V6_18, Linux::V7_2];

#[derive(Clone)]
struct Task {
    name: &'static str,
    waited_ms: i64,
    ops_state: u32,
    dsq: &'static str,
    slice: u64,
    cpus: &'static str,
    frames: &'static [&'static str],
}

const TASK: Task = Task {
    name: "victim[100]",
    waited_ms: 30_500,
    ops_state: 0,
    dsq: "(n/a)",
    slice: 20_000_000,
    cpus: "f",
    frames: &[],
};

struct Cpu {
    cpu: u32,
    curr: &'static str,
    class: &'static str,
    /// The running task first, if it is one of sched_ext's.
    tasks: Vec<Task>,
}

fn cpu(cpu: u32, curr: &'static str, class: &'static str, tasks: &[Task]) -> Cpu {
    Cpu {
        cpu,
        curr,
        class,
        tasks: tasks.to_vec(),
    }
}

/// A CPU that runs an ordinary task of sched_ext.
fn busy(number: u32, others: &[Task]) -> Cpu {
    let running = Task {
        name: "worker[7]",
        waited_ms: 2,
        ..TASK
    };
    let tasks: Vec<Task> = [running].iter().chain(others).cloned().collect();
    cpu(number, "worker[7]", "ext", &tasks)
}

const MESSAGE: &str = "victim[100] failed to run for 30.500s";

fn dump(linux: Linux, kind: u32, reason: &str, message: &str, cpus: &[Cpu]) -> String {
    let mut text = String::new();
    let mut line = |line: String| text.push_str(&(line + "\n"));
    if linux == Linux::V7_2 {
        line("mine: root".to_owned());
    }
    let on = if linux == Linux::V7_2 {
        " on CPU 0"
    } else {
        ""
    };
    line(format!("kworker/u16:0[56] triggered exit kind {kind}{on}:"));
    line(format!("  {reason} ({message})\n\nBacktrace:"));
    line("  scx_watchdog_workfn+0x158/0x1f0".to_owned());
    line("  kthread+0xcb/0x100\n\nCPU states\n----------".to_owned());
    for cpu in cpus {
        let counts = match linux {
            Linux::V6_12 => "pnt_seq=7",
            Linux::V6_18 => "ops_qseq=5 pnt_seq=7",
            Linux::V7_2 => "ksync=7",
        };
        let number = cpu.cpu;
        line(format!(
            "\nCPU {number:<4}: nr_run={} flags=0x1 cpu_rel=0 {counts}",
            cpu.tasks.len()
        ));
        line(format!(
            "          curr={} class={}_sched_class",
            cpu.curr, cpu.class
        ));
        for (index, task) in cpu.tasks.iter().enumerate() {
            let marker = if index == 0 && cpu.class == "ext" {
                '*'
            } else {
                ' '
            };
            let root = if linux == Linux::V7_2 { " *root" } else { "" };
            line(format!(
                "\n {marker}R {}{root} {:+}ms",
                task.name, -task.waited_ms
            ));
            line(format!(
                "      scx_state/flags=3/0x1 dsq_flags=0x0 ops_state/qseq={}/4711",
                task.ops_state
            ));
            let place = format!("      sticky/holding_cpu=-1/-1 dsq_id={}", task.dsq);
            let values = format!("dsq_vtime=5 slice={} weight=100", task.slice);
            match linux {
                Linux::V6_12 => {
                    line(format!("{place} dsq_vtime=5 slice={}", task.slice));
                    line(format!("      cpus={}", task.cpus));
                }
                _ => {
                    line(place);
                    line(format!("      {values}"));
                    line(format!("      cpus={} no_mig=0", task.cpus));
                }
            }
            for frame in task.frames {
                line(format!("    {frame}+0x10/0x20"));
            }
        }
    }
    if linux != Linux::V6_12 {
        line("\nEvent counters\n--------------".to_owned());
        line(format!("{:>40}: {:>16}", "SCX_EV_SELECT_CPU_FALLBACK", 3));
    }
    text
}

/// As the loaders of scx print it.
fn loader(dump: &str, reason: &str, message: &str) -> String {
    let rule = "=".repeat(80);
    format!("DEBUG DUMP\n{rule}\n\n{dump}\n{rule}\n\nEXIT: {reason} ({message})\n")
}

fn stall(linux: Linux, cpus: &[Cpu]) -> String {
    let reason = "runnable task stall";
    loader(&dump(linux, 1026, reason, MESSAGE, cpus), reason, MESSAGE)
}

fn one(text: &str) -> Explanation {
    let mut found = explain(text.as_bytes()).unwrap_or_else(|why| panic!("{why}\n{text}"));
    assert_eq!(found.len(), 1, "{found:#?}\n{text}");
    found.remove(0)
}

/// For each format: the culprit's name, the certainty, and that the sentence names it.
fn check(cpus: &[Cpu], culprit: Culprit, certainty: Certainty, names: &[&str]) {
    for linux in ALL {
        let found = one(&stall(linux, cpus));
        assert_eq!(
            (found.culprit, found.certainty),
            (culprit, certainty),
            "{linux:?} {found:#?}"
        );
        for name in names {
            assert!(
                found.sentence.contains(name),
                "{linux:?}: no `{name}` in: {}",
                found.sentence
            );
        }
        assert!(
            found.rule_function == "check_rq_for_timeouts()",
            "{found:#?}"
        );
        assert!(
            !found.cure.is_empty() && !found.evidence.is_empty(),
            "{found:#?}"
        );
    }
}

#[test]
fn a_real_time_task_holds_the_cpu_of_a_local_dsq() {
    let victim = Task {
        dsq: "0x8000000000000002",
        ..TASK
    };
    let cpus = [cpu(1, "hog[9]", "rt", &[victim]), busy(0, &[])];
    check(
        &cpus,
        Culprit::HigherClass,
        Certainty::Shown,
        &["hog[9]", "CPU 1", "victim[100]", "local DSQ"],
    );
}

#[test]
fn a_deadline_task_holds_the_only_cpu_that_a_task_may_use() {
    let victim = Task {
        dsq: "0x5",
        cpus: "2",
        ..TASK
    };
    let cpus = [busy(0, &[]), cpu(1, "hog[9]", "dl", &[victim])];
    check(
        &cpus,
        Culprit::HigherClass,
        Certainty::Shown,
        &["deadline task hog[9]", "CPU 1"],
    );
}

/// The other CPUs could run it, if the scheduler gave it to them.
#[test]
fn a_real_time_task_holds_the_cpu_on_which_a_task_waits_in_the_schedulers_hands() {
    let victim = Task {
        ops_state: 2,
        ..TASK
    };
    let cpus = [cpu(0, "hog[9]", "rt", &[victim]), busy(1, &[])];
    check(
        &cpus,
        Culprit::HigherClass,
        Certainty::Likely,
        &["hog[9]", "the scheduler's own queue"],
    );
}

/// A real-time task on the CPU under which the task is listed does no harm if other CPUs take from the DSQ.
#[test]
fn a_real_time_task_is_not_blamed_for_a_shared_dsq() {
    let victim = Task {
        dsq: "0x10",
        cpus: "3",
        ..TASK
    };
    let other = Task {
        name: "other[101]",
        waited_ms: 3,
        ..victim.clone()
    };
    let held = || cpu(0, "hog[9]", "rt", std::slice::from_ref(&victim));
    check(
        &[held(), busy(1, &[other])],
        Culprit::DsqNotConsumed,
        Certainty::Shown,
        &["DSQ 0x10"],
    );
    // A DSQ of that CPU's own, as far as the dump shows.
    check(
        &[held(), busy(1, &[])],
        Culprit::HigherClass,
        Certainty::Likely,
        &["hog[9]", "DSQ 0x10"],
    );
}

#[test]
fn nobody_dispatches_what_enqueue_took() {
    let victim = Task {
        ops_state: 2,
        ..TASK
    };
    let cpus = [busy(0, std::slice::from_ref(&victim)), busy(1, &[])];
    check(
        &cpus,
        Culprit::NeverDispatched,
        Certainty::Shown,
        &["victim[100]", "ops.enqueue()"],
    );
    // That a CPU is idle does not make it another fault.
    check(
        &[busy(0, &[victim])],
        Culprit::NeverDispatched,
        Certainty::Shown,
        &["victim[100]"],
    );
}

#[test]
fn nobody_takes_from_a_dsq() {
    let victim = Task {
        dsq: "0x10",
        cpus: "3",
        ..TASK
    };
    let cpus = [busy(0, &[victim]), busy(1, &[])];
    check(
        &cpus,
        Culprit::DsqNotConsumed,
        Certainty::Shown,
        &["DSQ 0x10", "victim[100]"],
    );
}

#[test]
fn a_kernel_thread_of_one_cpu_waits_in_a_shared_dsq() {
    let name = "kworker/1:0[100]";
    let victim = Task {
        name,
        dsq: "0x0",
        cpus: "2",
        ..TASK
    };
    for linux in ALL {
        let text = stall(
            linux,
            &[busy(0, &[]), busy(1, std::slice::from_ref(&victim))],
        );
        let found = one(&text.replace(MESSAGE, "kworker/1:0[100] failed to run for 30.500s"));
        assert_eq!(found.culprit, Culprit::DsqNotConsumed);
        assert!(
            found.sentence.contains("only on CPU 1"),
            "{}",
            found.sentence
        );
        assert!(found.cure.contains("PF_KTHREAD"), "{}", found.cure);
        let evidence = found.evidence.join("\n");
        assert!(evidence.contains("kernel thread"), "{evidence}");
    }
}

#[test]
fn an_idle_cpu_that_nobody_kicks() {
    let victim = Task {
        dsq: "0x8000000000000002",
        ..TASK
    };
    let cpus = [cpu(2, "swapper/2[0]", "idle", &[victim])];
    check(
        &cpus,
        Culprit::MissingKick,
        Certainty::Shown,
        &["CPU 2", "local DSQ"],
    );
    // In a DSQ of the scheduler's: of the CPUs that may run it, 2 and 3 are not listed, so they are idle.
    let victim = Task { dsq: "0x7", ..TASK };
    let cpus = [busy(0, &[victim]), busy(1, &[])];
    check(
        &cpus,
        Culprit::MissingKick,
        Certainty::Likely,
        &["CPUs 2-3 were idle", "DSQ 0x7"],
    );
}

#[test]
fn a_task_that_never_gives_its_cpu_up() {
    let hog = Task {
        name: "hog[9]",
        slice: u64::MAX,
        waited_ms: 31_000,
        frames: &["bpf_prog_0123456789abcdef_mine_tick"],
        ..TASK
    };
    let victim = Task {
        dsq: "0x8000000000000002",
        ..TASK
    };
    let cpus = [cpu(0, "hog[9]", "ext", &[hog, victim])];
    check(
        &cpus,
        Culprit::CpuHog,
        Certainty::Shown,
        &["hog[9] keeps CPU 0", "victim[100]"],
    );
    for linux in ALL {
        let evidence = one(&stall(linux, &cpus)).evidence.join("\n");
        assert!(
            evidence.contains("SCX_SLICE_INF")
                && evidence.contains("31.0 s")
                && evidence.contains("mine_tick"),
            "{evidence}"
        );
    }
}

#[test]
fn an_enqueue_that_does_not_return() {
    let victim = Task {
        ops_state: 1,
        ..TASK
    };
    check(
        &[busy(0, &[victim])],
        Culprit::InTransit,
        Certainty::Likely,
        &["ops.enqueue() was called"],
    );
}

#[test]
fn the_watchdogs_own_worker_starves() {
    let message = "watchdog failed to check in for 31.003s";
    let worker = Task {
        name: "kworker/u8:2[44]",
        ops_state: 2,
        ..TASK
    };
    for linux in ALL {
        let found = one(&dump(
            linux,
            1026,
            "runnable task stall",
            message,
            &[busy(0, std::slice::from_ref(&worker))],
        ));
        assert_eq!(found.culprit, Culprit::WatchdogStarved);
        assert!(
            found
                .sentence
                .contains("kworker/u8:2[44] on CPU 0 for 30.5 s"),
            "{}",
            found.sentence
        );
    }
}

#[test]
fn a_dump_that_was_cut_promises_nothing() {
    for linux in ALL {
        let victim = Task { dsq: "0x7", ..TASK };
        let whole = stall(linux, &[busy(0, &[victim]), busy(1, &[])]);
        // CPUs 2 and 3 may have been anything.
        let cut = whole.replace("\n\nEXIT", "\n\n~~~~ TRUNCATED ~~~~\n\nEXIT");
        let found = one(&cut);
        assert_eq!(
            (found.culprit, found.certainty),
            (Culprit::DsqNotConsumed, Certainty::Likely)
        );
        // Every prefix of it is read, and none shows more than there is.
        for end in whole.char_indices().map(|(at, _)| at) {
            let _ = explain(&whole.as_bytes()[..end]);
        }
        let until = whole.find("CPU states").unwrap();
        let found = one(&whole[..until]);
        assert_eq!(
            (found.culprit, found.certainty),
            (Culprit::UnknownStall, Certainty::Open)
        );
    }
}

/// The prefix of each line, where blank lines are lost or kept, and other lines between.
#[test]
fn however_a_log_is_handed_on() {
    let victim = Task {
        dsq: "0x10",
        cpus: "3",
        ..TASK
    };
    let cpus = [busy(0, &[victim]), busy(1, &[])];
    let prefixes = [
        "[ 2427.529156] ",
        "[Thu Mar 13 15:57:50 2025] ",
        "[  123.456789][  T123] ",
        "<3>[   12.345678] ",
        "Mar 13 15:57:50 host bash[8799]: ",
        "cze 22 09:54:09 host scx_loader[570341]: ",
        "2025-01-17T12:25:02+0300 host bash[1022]: ",
        "Mar 13 15:57:50 host kernel: [   12.345678] ",
        "     kworker/u16:0-56      [000] d..1.  1234.567890: sched_ext_dump: ",
        "> ",
        "\x1b[31m",
    ];
    for linux in ALL {
        let text = stall(linux, &cpus);
        let right = |text: &str, how: &str| {
            let found = one(text);
            assert_eq!(
                found.culprit,
                Culprit::DsqNotConsumed,
                "{how}: {found:#?}\n{text}"
            );
            assert!(found.sentence.contains("DSQ 0x10"), "{how}");
            assert_eq!(found.certainty, Certainty::Shown, "{how}: {found:#?}");
        };
        for prefix in prefixes {
            let lines = text.lines().filter(|line| !line.is_empty());
            let told: String = lines.map(|line| format!("{prefix}{line}\n")).collect();
            right(&told, prefix);
            let reversed: Vec<&str> = told.lines().rev().collect();
            right(&reversed.join("\n"), &format!("newest first, {prefix}"));
        }
        right(&text.replace('\n', "\r\n"), "CR LF");
        let flat: String = text
            .lines()
            .map(|line| format!("{}\n", line.trim()))
            .collect();
        right(&flat, "without indents");
        let mixed: String = text
            .lines()
            .map(|line| format!("{line}\n[  1.2] usb 1-1: new device, size=7 a+0x5\n"))
            .collect();
        right(&mixed, "other lines between");
        // The kernel's own log and the loader's output, as a journal has both.
        let log = format!(
            "k: sched_ext: BPF scheduler \"mine\" disabled (runnable task stall)\nk: sched_ext: mine: {MESSAGE}\nk:    scx_watchdog_workfn+0x18d/0x220\n"
        );
        right(&format!("{log}{text}"), "log, then loader");
        right(&format!("{text}{log}"), "loader, then log");
        assert_eq!(
            one(&format!("{log}{text}")).scheduler.as_deref(),
            Some("mine")
        );
    }
}

#[test]
fn the_kernels_log_alone() {
    let text = "[1.5] sched_ext: BPF scheduler \"p2\" disabled (runtime error)\n\
        [1.5] sched_ext: p2: SCX_DSQ_LOCAL[_ON] verdict target cpu 21 not allowed for rcu_gp[313]\n\
        [1.5]    task_can_run_on_remote_rq+0x6e/0x80\n\
        [1.5]    scx_bpf_dsq_insert+0x6e/0x80\n\
        [1.5]    bpf_prog_0123456789abcdef_p2_enqueue+0x6e/0x80\n\
        [1.5]    bpf__sched_ext_ops_enqueue+0x42/0xa0\n";
    let found = one(text);
    assert_eq!(found.culprit, Culprit::CpuNotAllowed);
    assert!(
        found.sentence.contains("rcu_gp[313] to CPU 21"),
        "{}",
        found.sentence
    );
    assert_eq!(found.op.as_deref(), Some("enqueue"));
    assert_eq!(found.function.as_deref(), Some("p2_enqueue"));
    assert!(
        found.evidence[0].contains("scx_bpf_dsq_insert(), called by p2_enqueue()"),
        "{found:#?}"
    );
}

#[test]
fn ends_that_are_no_errors() {
    let culprit = |text: &str| one(text).culprit;
    assert_eq!(
        culprit("EXIT: unregistered from user space\n"),
        Culprit::Unregistered
    );
    assert_eq!(culprit("EXIT: disabled by sysrq-S\n"), Culprit::Sysrq);
    assert_eq!(
        culprit("EXIT: unregistered from BPF (enough)\n"),
        Culprit::PolicyExit
    );
    assert_eq!(
        culprit(
            "EXIT: unregistered from the main kernel (cpu 3 going offline, exiting scheduler)\n"
        ),
        Culprit::Hotplug
    );
    assert_eq!(
        culprit("Error: EXIT: scx_bpf_error (task_ctx lookup failed)\n"),
        Culprit::PolicyError
    );
    let asked = dump(Linux::V7_2, 0, "", "", &[busy(0, &[TASK])]);
    let lines = asked.lines().skip(3);
    let asked: Vec<&str> = ["Debug dump triggered by SysRq-D"]
        .into_iter()
        .chain(lines)
        .collect();
    assert_eq!(culprit(&asked.join("\n")), Culprit::NoEjection);
}

/// People quote the one CPU that they find interesting.
#[test]
fn a_part_of_a_dump_is_read() {
    let victim = Task {
        dsq: "0x0",
        cpus: "2",
        ..TASK
    };
    for linux in ALL {
        let text = stall(linux, &[busy(1, std::slice::from_ref(&victim))]);
        let part = &text[text.find("CPU 1").unwrap()..text.find("\n\nE").unwrap_or(text.len())];
        let found = one(part);
        assert_eq!(
            (found.culprit, found.certainty),
            (Culprit::DsqNotConsumed, Certainty::Likely),
            "{found:#?}"
        );
        assert!(
            found.sentence.contains("victim[100] out of DSQ 0x0"),
            "{}",
            found.sentence
        );
    }
}

#[test]
fn several_ejections_are_told_apart() {
    let victim = Task {
        ops_state: 2,
        ..TASK
    };
    let first = stall(Linux::V6_18, &[busy(0, &[victim])]);
    let second = "EXIT: runtime error (dispatch buffer overflow)\n";
    let found = explain(format!("{first}{second}{first}").as_bytes()).unwrap();
    let culprits: Vec<Culprit> = found.iter().map(|one| one.culprit).collect();
    assert_eq!(
        culprits,
        [
            Culprit::NeverDispatched,
            Culprit::DispatchOverflow,
            Culprit::NeverDispatched
        ]
    );
}

/// The log of a service whose scheduler is ejected again and again, as `dmesg` has it.
fn logged(time: &str, reason: &str, message: &str) -> String {
    format!(
        "[{time}] sched_ext: BPF scheduler \"lavd\" disabled ({reason})\n[{time}] sched_ext: lavd: {message}\n"
    )
}

const OF_KWORKER: &str = "kworker/6:1[109] failed to run for 32.264s";
const OF_PYTHON: &str = "python3[209] failed to run for 33.815s";

fn sentences(text: &str) -> Vec<String> {
    let found = explain(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"));
    found.into_iter().map(|one| one.sentence).collect()
}

#[test]
fn each_ejection_of_a_log_is_told() {
    let reason = "runnable task stall";
    let (first, second) = (
        logged("10.5", reason, OF_KWORKER),
        logged("99.25", reason, OF_PYTHON),
    );
    let told = sentences(&format!("{first}{second}"));
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].contains("kworker/6:1[109]"), "{told:#?}");
    assert!(told[1].contains("python3[209]"), "{told:#?}");
    // The same words at another time; without times, two lines of the log are two ejections.
    let again = logged("99.25", reason, OF_KWORKER);
    assert_eq!(sentences(&format!("{first}{again}")).len(), 2);
    let untimed = first.replace("[10.5] ", "");
    assert_eq!(sentences(&untimed.repeat(2)).len(), 2);
    // Neither has its message.
    let headings: String = format!("{first}{second}")
        .lines()
        .step_by(2)
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(sentences(&headings).len(), 2);
    // A log that stands there twice, or in two forms.
    assert_eq!(sentences(&first.repeat(2)).len(), 1);
    let journal = first.replace("[10.5] ", "Mar 13 15:57:50 host kernel: ");
    assert_eq!(sentences(&format!("{first}{journal}")).len(), 1);
    // Two schedulers that fail in the same way.
    let other = first.replace("lavd", "rusty");
    assert_eq!(sentences(&format!("{first}{other}")).len(), 2);
    // The loader of the second one tells it once more.
    let loader = format!("EXIT: {reason} ({OF_PYTHON})\n");
    assert_eq!(sentences(&format!("{first}{second}{loader}")).len(), 2);
    assert_eq!(sentences(&format!("{first}{loader}{second}")).len(), 2);
}

#[test]
fn a_log_that_begins_with_the_newest_line() {
    let reverse = |text: &str| {
        text.lines()
            .rev()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let stall = |time, message| logged(time, "runnable task stall", message);
    let one = reverse(&stall("10.5", OF_KWORKER));
    let told = sentences(&one);
    assert!(
        told[0].contains("kworker/6:1[109]") && told.len() == 1,
        "{told:#?}"
    );
    let error = reverse(&logged("10.5", "runtime error", "invalid CPU -3"));
    assert!(sentences(&error)[0].contains("CPU -3"), "{error}");
    let two = stall("10.5", OF_KWORKER) + &stall("99.25", OF_PYTHON);
    let end = "[99.5] sched_ext: BPF scheduler \"lavd\" disabled (unregistered from user space)\n";
    let told = sentences(&reverse(&format!("{two}{end}")));
    assert_eq!(told.len(), 3, "{told:#?}");
    // In the order in which they happened.
    assert!(told[0].contains("kworker/6:1[109]"), "{told:#?}");
    assert!(told[1].contains("python3[209]"), "{told:#?}");
    // The beginning of a log that is not reversed may be lost.
    let (_, cut) = two.split_once('\n').unwrap();
    let told = sentences(cut);
    assert!(
        told.len() == 1 && told[0].contains("python3[209]"),
        "{told:#?}"
    );
}

/// Whether a sentence has a place where words are missing.
fn has_hole(sentence: &str) -> bool {
    let holes = [": .", ":.", "  ", " ,", " .", "\"\""];
    !sentence.ends_with('.') || holes.iter().any(|hole| sentence.contains(hole))
}

/// Logs that were cut or changed, and whose lines are lost or mixed, yield whole sentences only.
#[test]
fn no_sentence_of_a_damaged_text_lacks_its_object() {
    let mut state = 31_u64;
    let mut random = |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let victim = |dsq, ops_state| Task {
        dsq,
        ops_state,
        ..TASK
    };
    let (local, queued) = (victim("0x8000000000000002", 0), victim("(n/a)", 2));
    let mut told = 0;
    for round in 0..2_000 {
        let cpus = match round % 3 {
            0 => vec![cpu(1, "hog[9]", "rt", std::slice::from_ref(&local))],
            1 => vec![busy(0, std::slice::from_ref(&queued)), busy(1, &[])],
            _ => vec![
                busy(0, &[victim("0x10", 0)]),
                cpu(2, "swapper/2[0]", "idle", &[]),
            ],
        };
        let log = logged("10.5", "runnable task stall", MESSAGE).replace("lavd", "mine");
        let text = match round % 4 {
            0 => log,
            1 => log + &logged("11.5", "scx_bpf_error", "x.bpf.c:3: no memory"),
            _ => log + &stall(ALL[round % 3], &cpus),
        };
        let mut lines: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
        for _ in 0..=random(6) {
            let at = random(lines.len());
            match random(4) {
                0 if lines.len() > 1 => drop(lines.remove(at)),
                1 => {
                    let other = random(lines.len());
                    lines.swap(at, other);
                }
                2 if !lines[at].is_empty() => {
                    let byte = random(lines[at].len());
                    lines[at][byte] = [b'x', b'0', b'-', b'[', 0, 0xff][random(6)];
                }
                3 => {
                    let kept = random(lines[at].len() + 1);
                    lines[at].truncate(kept);
                }
                _ => {}
            }
        }
        let damaged = lines.join(&b'\n');
        for one in explain(&damaged).unwrap_or_default() {
            told += 1;
            assert!(
                !has_hole(&one.sentence),
                "{}\n{}",
                one.sentence,
                String::from_utf8_lossy(&damaged)
            );
        }
    }
    assert!(told > 1_000, "{told}");
}

#[test]
fn a_message_that_somebody_quotes() {
    let found = one("it says: non-existent DSQ 0x7 for sh[3]");
    assert_eq!(found.culprit, Culprit::NoSuchDsq);
    assert_eq!(
        found.sentence,
        "The scheduler inserted a task into DSQ 0x7, which does not exist."
    );
    assert_eq!(
        one("python[12] failed to run for 7.525s").culprit,
        Culprit::UnknownStall
    );
}

#[test]
fn what_is_no_ejection() {
    for text in [
        "",
        "\n\n",
        "hello\nCPU 0 is hot\n",
        "{}",
        "{\"results\": 3}",
        "[1.0] usb 1-1: new device",
    ] {
        assert_eq!(
            explain(text.as_bytes()),
            Err(NoEjection::Nothing),
            "{text:?}"
        );
    }
    let refusal = "libbpf: prog 'x': BPF program load failed: -22\nprocessed 9 insns (limit 1000000) max_states_per_insn 0\n";
    assert_eq!(explain(refusal.as_bytes()), Err(NoEjection::Refused));
    let done = r#"{"schema": 1, "results": [{"scheduler": "a", "exit": "done"}]}"#;
    assert_eq!(explain(done.as_bytes()), Err(NoEjection::NoneEjected));
}

#[test]
fn our_own_results_are_read() {
    let victim = Task {
        ops_state: 2,
        ..TASK
    };
    let dump = dump(
        Linux::V7_2,
        1026,
        "runnable task stall",
        MESSAGE,
        &[busy(0, &[victim])],
    );
    for message in [
        MESSAGE.to_owned(),
        format!("runnable task stall ({MESSAGE})"),
    ] {
        let document = serde_json::json!({"schema": 1, "results": [
            {"scheduler": "a", "exit": "done"},
            {"scheduler": "mine", "exit": "error_stall", "message": message, "dump": dump},
        ]});
        let found = one(&document.to_string());
        assert_eq!(found.culprit, Culprit::NeverDispatched);
        assert_eq!(found.scheduler.as_deref(), Some("mine"));
        assert_eq!(found.reason, format!("runnable task stall ({MESSAGE})"));
    }
    let document = serde_json::json!({"results": [{
        "scheduler": "mine", "exit": "unreg_bpf", "exit_code": 5,
        "message": "unregistered from BPF, code 0x5 (f(x) is odd)",
    }]});
    let sentence = one(&document.to_string()).sentence;
    assert_eq!(
        sentence,
        "The scheduler ended itself by scx_bpf_exit() with code 5: \"f(x) is odd\"."
    );
}
