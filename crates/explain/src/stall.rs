//! Finds why a task did not run: the task or CPU in its way, by the place where the dump says that it waits.

use std::sync::LazyLock;

use regex::Regex;

use crate::culprit::Culprit;
use crate::dump::{Class, CpuState, Dsq, Ejection, Label, OpsState, TaskState};
use crate::finding::{Certainty, Finding, lockups, seconds};
use crate::pattern::pattern;

static STALLED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"([^\s:](?:[^:]|:\S)*?)\[(\d+)\] failed to run for (\d+)\.(\d{3})s"));
static WATCHDOG: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"watchdog failed to check in for (\d+)\.(\d{3})s"));
/// Threads of the kernel that serve one CPU and no other.
static PER_CPU_THREAD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:kworker/\d+:|ksoftirqd/|migration/|cpuhp/|rcuc/|rcuog?p?/|irq_work/|idle_inject/)",
    )
});

const RULE: &str = "A task that is runnable and does not run for longer than ops.timeout_ms (30 s unless the scheduler \
                    sets less) ejects the scheduler, whatever the reason.";
const FUNCTION: &str = "check_rq_for_timeouts()";

/// How many other tasks are named.
const OTHERS_MAX: usize = 5;

/// Where one of the CPUs stands on which a task may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// A task of a higher class has it.
    Above(Class),
    Idle,
    Ext,
    /// The text does not say.
    Unknown,
}

fn standing(ejection: &Ejection, cpu: u32) -> Standing {
    match ejection.cpu(cpu) {
        Some(state) if state.class.is_above_ext() => Standing::Above(state.class),
        Some(state) if state.class == Class::Idle => Standing::Idle,
        Some(state) if state.class == Class::Ext => Standing::Ext,
        // The kernel lists no CPU that is idle and has nothing to run.
        None if ejection.is_whole() => Standing::Idle,
        _ => Standing::Unknown,
    }
}

/// Returns the facts in a stall's message and dump.
pub fn explain(ejection: &Ejection) -> Finding {
    if let Some(found) = WATCHDOG.captures(&ejection.message) {
        return watchdog(ejection, &format!("{}.{}", &found[1], &found[2]));
    }
    let Some(found) = STALLED.captures(&ejection.message) else {
        let sentence = match ejection.message.trim() {
            "" if ejection.tasks().any(|(_, task)| !task.is_curr) => return of_fragment(ejection),
            "" => "A runnable task did not run in time; the text does not say which.".to_owned(),
            message => format!("A runnable task did not run in time: {message}."),
        };
        return Finding {
            sentence,
            ..unknown()
        };
    };
    let label = Label {
        comm: found[1].to_owned(),
        pid: found[2].parse().unwrap_or(0),
    };
    let waited = format!("{} s", seconds(&format!("{}.{}", &found[3], &found[4])));
    let mut finding = match ejection.task(&label) {
        Some((home, task)) => of_task(ejection, home, task, &waited),
        None => not_listed(ejection, &label, &waited),
    };
    if !ejection.lockups.is_empty() || ejection.rcu_stall {
        finding.evidence.extend(lockups(ejection));
    }
    finding
}

/// Returns a part of a dump without the message: the longest waiter is likely the task that it is about.
pub fn of_fragment(ejection: &Ejection) -> Finding {
    let waiting = ejection.tasks().filter(|(_, task)| !task.is_curr);
    let Some((home, task)) = waiting.max_by_key(|(_, task)| task.waited_ms) else {
        return Finding {
            sentence: "The text is a part of a debug dump in which no task waits.".to_owned(),
            ..unknown()
        };
    };
    let waited = format!("{} s", seconds(&ms(task.waited_ms)));
    let mut finding = of_task(ejection, home, task, &waited);
    if finding.certainty == Certainty::Shown {
        finding.certainty = Certainty::Likely;
    }
    let note = "the text has no exit message: the task that waits longest is taken for the one that stalled";
    finding.evidence.push(note.to_owned());
    finding
}

fn unknown() -> Finding {
    Finding {
        culprit: Culprit::UnknownStall,
        certainty: Certainty::Open,
        sentence: String::new(),
        evidence: Vec::new(),
        function: FUNCTION,
        rule: RULE.to_owned(),
        cure: "Run the scheduler again and keep the whole debug dump: the loader prints it between two lines of =, and the \
               tracepoint sched_ext_dump has no limit of length (echo 1 \
               >/sys/kernel/tracing/events/sched_ext/sched_ext_dump/enable; cat /sys/kernel/tracing/trace_pipe)."
            .to_owned(),
    }
}

/// CPUs on which the task may run: the CPUs of its mask that the dump describes.
fn allowed(ejection: &Ejection, task: &TaskState) -> Vec<u32> {
    match &task.cpus {
        Some(mask) => mask.cpus.clone(),
        None => ejection.cpus.iter().map(|cpu| cpu.cpu).collect(),
    }
}

fn of_task(ejection: &Ejection, home: &CpuState, task: &TaskState, waited: &str) -> Finding {
    let label = task.label();
    let dsq = task.dsq.unwrap_or(Dsq::None);
    let cpu = home.cpu;
    let allowed = allowed(ejection, task);
    let is_bound = allowed.len() == 1;
    let standings: Vec<(u32, Standing)> = allowed
        .iter()
        .map(|&cpu| (cpu, standing(ejection, cpu)))
        .collect();
    let idle: Vec<u32> = of(&standings, |one| one == Standing::Idle);
    let above: Vec<u32> = of(&standings, |one| matches!(one, Standing::Above(_)));
    let at = standing(ejection, cpu);
    let is_local = matches!(dsq, Dsq::Local | Dsq::LocalOn(_));
    let wait_place = place(dsq, cpu);

    let mut evidence = vec![where_it_is(ejection, home, task, waited)];
    evidence.push(runs_on(home));
    let mut finding = Finding {
        culprit: Culprit::UnknownStall,
        certainty: Certainty::Shown,
        sentence: String::new(),
        evidence: Vec::new(),
        function: FUNCTION,
        rule: RULE.to_owned(),
        cure: String::new(),
    };

    if task.is_curr {
        finding.culprit = Culprit::UnknownStall;
        finding.certainty = Certainty::Open;
        finding.sentence = format!(
            "{label} had waited {waited} for a CPU; when the kernel made the dump it had just got CPU {cpu}, so the dump does not show what it waited for."
        );
        finding.cure = "The scheduler serves it, but too late: look at which tasks it prefers, and bound how often a task \
                        can be passed over."
            .to_owned();
    } else if let Standing::Above(class) = at
        && (is_local
            || is_bound
            || above.len() == allowed.len()
            || (dsq == Dsq::None && task.ops_state == Some(OpsState::Queued))
            || (dsq != Dsq::None && idle.is_empty() && !is_shared(ejection, home, dsq)))
    {
        let tasks = class.tasks();
        let holder = match &home.curr {
            Some(curr) => format!("The {tasks} task {curr}"),
            None => format!("A {tasks} task"),
        };
        let all = above.len() == allowed.len();
        finding.culprit = Culprit::HigherClass;
        finding.certainty = if is_local || is_bound || all {
            Certainty::Shown
        } else {
            Certainty::Likely
        };
        finding.sentence = format!(
            "{holder} holds CPU {cpu}, so {label}, which waits there {wait_place}, did not run for {waited}."
        );
        finding.rule = format!(
            "Tasks of the stop, deadline, real-time and fair classes run before any sched_ext task, and while one does, the CPU asks the scheduler nothing. {RULE}"
        );
        finding.cure = if is_bound && !is_local {
            format!(
                "No scheduler can run {label} elsewhere: bound the {tasks} task (its policy, RLIMIT_RTTIME, sched_rt_runtime_us), or let it run on another CPU."
            )
        } else {
            "Do not count such a CPU as free, and give its tasks to others: in ops.cpu_release(), or in a sched_switch program from Linux 7.1 on, call scx_bpf_reenqueue_local(), and in ops.enqueue() choose another CPU. From Linux 7.0 on, the deadline server of sched_ext lets them run now and then.".to_owned()
        };
    } else if task.ops_state == Some(OpsState::Queued) && dsq == Dsq::None {
        finding.culprit = Culprit::NeverDispatched;
        finding.sentence = format!(
            "Nobody dispatched {label}: ops.enqueue() took it and the scheduler did not insert it into any DSQ for {waited}."
        );
        finding.rule = format!(
            "A task that ops.enqueue() does not insert belongs to the scheduler (SCX_OPSS_QUEUED), which must insert it from ops.dispatch() or later. {RULE}"
        );
        finding.cure = if is_bound {
            format!(
                "Look in your own queue for what happens to a task that may run only on CPU {}: typically another CPU takes it out, may not run it, and forgets it. Insert such a task with SCX_DSQ_LOCAL_ON | {} at once.",
                allowed[0], allowed[0]
            )
        } else {
            "Look for a path on which your own queue loses the task: an element that is popped and not inserted (bpf_task_from_pid() returned NULL, no slot was left), a push whose error is ignored, or an ops.enqueue() that returns early. On failure, insert into SCX_DSQ_GLOBAL.".to_owned()
        };
        if let Some(Standing::Ext) = Some(at) {
            note_hog(home, task, &mut evidence);
        }
    } else if matches!(
        task.ops_state,
        Some(OpsState::Queueing | OpsState::Dispatching)
    ) || (dsq == Dsq::None && task.holding_cpu >= 0)
    {
        finding.culprit = Culprit::InTransit;
        finding.certainty = Certainty::Likely;
        let what = match task.ops_state {
            Some(OpsState::Queueing) => {
                "ops.enqueue() was called for it and had not returned".to_owned()
            }
            Some(OpsState::Dispatching) => "a dispatch of it had begun and not ended".to_owned(),
            _ => format!(
                "CPU {} was moving it from one queue to another",
                task.holding_cpu
            ),
        };
        finding.sentence = format!("{label} was on its way for {waited}: {what}.");
        finding.cure = "Look for a lock or a loop in the op that does not end: the backtraces of the CPUs' tasks show where they are."
            .to_owned();
    } else if is_local {
        of_local(
            ejection,
            home,
            task,
            waited,
            at,
            &mut finding,
            &mut evidence,
        );
    } else if matches!(dsq, Dsq::User(_) | Dsq::Global | Dsq::Bypass) {
        let pinned = if is_bound {
            format!(", and may run only on CPU {}", allowed[0])
        } else {
            String::new()
        };
        let here = dsq_name(dsq);
        if !idle.is_empty() {
            finding.culprit = Culprit::MissingKick;
            finding.certainty = Certainty::Likely;
            finding.sentence = format!(
                "{} idle while {label} waited {waited} in {here}{pinned}: nobody kicked {} after the task was inserted, or {} ops.dispatch() does not take from that DSQ.",
                cpus_are(&idle),
                if idle.len() == 1 {
                    "that CPU"
                } else {
                    "one of them"
                },
                if idle.len() == 1 { "its" } else { "their" }
            );
            finding.rule = format!(
                "An idle CPU asks ops.dispatch() once and then sleeps: inserting into a DSQ does not wake it. {RULE}"
            );
            finding.cure = "After inserting into a shared DSQ, kick a CPU that may run the task: scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE), with cpu from scx_bpf_pick_idle_cpu(p->cpus_ptr, 0). In ops.dispatch(), every CPU that may run such tasks must call scx_bpf_dsq_move_to_local() for that DSQ.".to_owned();
        } else {
            finding.culprit = Culprit::DsqNotConsumed;
            let whole = standings.iter().all(|(_, one)| *one != Standing::Unknown);
            finding.certainty = if whole {
                Certainty::Shown
            } else {
                Certainty::Likely
            };
            finding.sentence =
                format!("No CPU took {label} out of {here}, where it waited {waited}{pinned}.");
            finding.rule = format!(
                "The kernel takes tasks from local DSQs and, when these are empty, from the global one; from any other a CPU takes only by scx_bpf_dsq_move_to_local() in its ops.dispatch(), and only what may run there. {RULE}"
            );
            finding.cure = if PER_CPU_THREAD.is_match(&label.comm) && is_bound {
                format!(
                    "Do not queue threads that serve one CPU behind others: in ops.enqueue(), insert tasks with PF_KTHREAD and p->nr_cpus_allowed == 1 into SCX_DSQ_LOCAL_ON | {} at once.",
                    allowed[0]
                )
            } else if is_bound {
                format!(
                    "Let CPU {}, the only one that may run it, take from {here} at each ops.dispatch(), or insert tasks with p->nr_cpus_allowed == 1 into that CPU's local DSQ.",
                    allowed[0]
                )
            } else {
                format!(
                    "Call scx_bpf_dsq_move_to_local() for {here} in ops.dispatch(), on every CPU that may run its tasks, and not only when other queues are empty: what comes first must be bounded."
                )
            };
            note_hog(home, task, &mut evidence);
        }
        evidence.extend(same_dsq(ejection, task));
    } else {
        finding.culprit = Culprit::UnknownStall;
        finding.certainty = Certainty::Open;
        finding.sentence = format!(
            "{label} was runnable on CPU {cpu} for {waited} and did not run; the dump shows it in no DSQ and not in the scheduler's hands."
        );
        finding.cure = "Compare several dumps: a task is in this state only for a moment, while the kernel moves it or changes its attributes."
            .to_owned();
    }

    if let (true, Some(&cpu)) = (is_bound, allowed.first()) {
        let thread = if PER_CPU_THREAD.is_match(&label.comm) {
            ", since it is a kernel thread that serves that CPU"
        } else {
            ""
        };
        evidence.push(format!("{label} may run only on CPU {cpu}{thread}"));
    } else if let Some(mask) = task
        .cpus
        .as_ref()
        .filter(|mask| (mask.cpus.len() as u32) < widest(ejection))
    {
        evidence.push(format!("{label} may run on {}", mask.words()));
    }
    if !above.is_empty() && finding.culprit != Culprit::HigherClass {
        evidence.push(format!(
            "of those that may run it, {} held by tasks of a higher class",
            cpus_are(&above)
        ));
    }
    if !idle.is_empty() && finding.culprit != Culprit::MissingKick {
        evidence.push(format!(
            "of those that may run it, {} idle",
            cpus_are(&idle)
        ));
    }
    if task.migration_disabled {
        evidence.push(format!(
            "{label} has its migration disabled: it stays on CPU {cpu}"
        ));
    }
    if ejection.is_cut {
        evidence.push("the dump was cut (exit_dump_len): some CPUs are missing".to_owned());
    }
    finding.evidence = evidence;
    finding
}

/// In the local DSQ of a CPU that no higher class holds.
fn of_local(
    ejection: &Ejection,
    home: &CpuState,
    task: &TaskState,
    waited: &str,
    at: Standing,
    finding: &mut Finding,
    evidence: &mut Vec<String>,
) {
    let (cpu, label) = (home.cpu, task.label());
    if at == Standing::Idle {
        finding.culprit = Culprit::MissingKick;
        finding.sentence = format!(
            "CPU {cpu} was idle while {label} waited {waited} in its local DSQ: nobody made that CPU look."
        );
        finding.rule = format!(
            "A CPU runs what is in its local DSQ at its next schedule(), which for a sleeping CPU somebody must cause. {RULE}"
        );
        finding.cure = format!(
            "After inserting with SCX_DSQ_LOCAL_ON | {cpu} from another CPU, call scx_bpf_kick_cpu({cpu}, SCX_KICK_IDLE) (or SCX_KICK_PREEMPT). If the scheduler does so, suspect the kernel or a CPU that does not take interrupts (a guest whose host took the CPU away)."
        );
        return;
    }
    let curr = home.tasks.iter().find(|other| other.is_curr);
    // The observer is there because of the stall.
    let looks = |task: &&TaskState| ejection.triggered_by.as_ref() != Some(&task.label());
    let curr = curr.filter(looks);
    let is_endless = curr.is_some_and(|curr| curr.slice == Some(u64::MAX));
    // Since when the running one has not given the CPU up.
    let since = curr.map_or(0, |curr| curr.waited_ms);
    if let Some(curr) = curr.filter(|_| is_endless || since >= task.waited_ms / 2) {
        finding.culprit = Culprit::CpuHog;
        finding.sentence = format!(
            "{} keeps CPU {cpu}, so {label}, which waits in that CPU's local DSQ, did not run for {waited}.",
            curr.label()
        );
        finding.rule = format!(
            "A running task is not preempted before its slice (p->scx.slice) is used up, and one with SCX_SLICE_INF not at all. {RULE}"
        );
        finding.cure = if is_endless {
            "Give tasks a finite slice, or preempt the CPU (scx_bpf_kick_cpu() with SCX_KICK_PREEMPT) when you insert another task there.".to_owned()
        } else {
            "See in its backtrace whether it loops in the kernel; otherwise look at who sets its slice anew (ops.tick(), ops.running()) or inserts it at the head again and again.".to_owned()
        };
        note_hog(home, task, evidence);
        return;
    }
    let before = home.tasks.iter().filter(|other| {
        !other.is_curr
            && other.pid != task.pid
            && matches!(other.dsq, Some(Dsq::Local | Dsq::LocalOn(_)))
    });
    let before = others_wait(before.count(), &format!("the local DSQ of CPU {cpu}"));
    finding.culprit = Culprit::CpuHog;
    finding.certainty = Certainty::Likely;
    finding.sentence = match curr {
        Some(curr) => format!(
            "{} and others keep CPU {cpu}, so {label}, which waits in that CPU's local DSQ, did not run for {waited}.",
            curr.label()
        ),
        None => format!("CPU {cpu} did not get to {label} in its local DSQ for {waited}."),
    };
    finding.rule = format!(
        "A local DSQ is served from its head; what is inserted with SCX_ENQ_HEAD or SCX_ENQ_PREEMPT goes before what waits. {RULE}"
    );
    finding.cure = "Insert fewer tasks into one CPU's local DSQ, bound how often a task may go before others (SCX_ENQ_HEAD, SCX_ENQ_PREEMPT), and let idle CPUs take from a shared DSQ instead.".to_owned();
    evidence.extend(before);
}

/// Returns the number of the other tasks that wait in a place.
fn others_wait(count: usize, place: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 other task waits in {place}")),
        _ => Some(format!("{count} other tasks wait in {place}")),
    }
}

/// The task of the message is not in the text.
fn not_listed(ejection: &Ejection, label: &Label, waited: &str) -> Finding {
    let mut finding = unknown();
    let mut evidence = Vec::new();
    let holders: Vec<String> = holders(ejection);
    if ejection.cpus.is_empty() {
        finding.sentence = format!(
            "{label} was runnable and did not run for {waited}; without the debug dump the text does not show why."
        );
    } else if let [holder, ..] = &holders[..] {
        finding.culprit = Culprit::HigherClass;
        finding.certainty = Certainty::Likely;
        finding.sentence = format!(
            "{label} did not run for {waited}, likely since {holder}; the text ends before it shows where {label} waits."
        );
        finding.cure = "Do not count such a CPU as free, and give its tasks to others (scx_bpf_reenqueue_local() in ops.cpu_release()).".to_owned();
    } else {
        finding.sentence = format!(
            "{label} was runnable and did not run for {waited}; the text does not show where it waits."
        );
        if ejection.is_cut {
            finding.cure = "Load the scheduler with a larger exit_dump_len (.exit_dump_len in its ops table, an option of most loaders): the dump was cut.".to_owned();
        }
    }
    evidence.extend(holders);
    evidence.extend(longest(ejection));
    if ejection.is_cut {
        evidence.push("the dump was cut (exit_dump_len): some CPUs are missing".to_owned());
    }
    finding.evidence = evidence;
    finding
}

/// The watchdog is a work item of the kernel: if no worker runs, no watchdog looks at the tasks.
fn watchdog(ejection: &Ejection, late: &str) -> Finding {
    let worker = ejection
        .tasks()
        .filter(|(_, task)| task.comm.starts_with("kworker/u") && !task.is_curr)
        .max_by_key(|(_, task)| task.waited_ms);
    let mut evidence = Vec::new();
    let mut sentence = format!(
        "The kernel's watchdog of sched_ext did not get to run for {} s: the scheduler starves the kernel's own workers, or the CPUs are stuck.",
        seconds(late)
    );
    if let Some((home, task)) = worker.filter(|(_, task)| task.waited_ms >= 1_000) {
        sentence = format!(
            "The scheduler did not run the kernel's worker {} on CPU {} for {} s, so the watchdog of sched_ext, which such workers run, came too late.",
            task.label(),
            home.cpu,
            seconds(&ms(task.waited_ms))
        );
        evidence.push(where_it_is(
            ejection,
            home,
            task,
            &format!("{} s", seconds(&ms(task.waited_ms))),
        ));
    }
    evidence.extend(holders(ejection));
    evidence.extend(longest(ejection));
    evidence.extend(lockups(ejection));
    Finding {
        culprit: Culprit::WatchdogStarved,
        certainty: if worker.is_some() { Certainty::Shown } else { Certainty::Likely },
        sentence,
        evidence,
        function: "scx_tick()",
        rule: "Each tick checks that the watchdog's work item (scx_watchdog_workfn()) has run within ops.timeout_ms.".to_owned(),
        cure: "Schedule kernel threads (p->flags & PF_KTHREAD) before or beside other tasks, kworkers above all; look also for CPUs that are stuck (soft lockup, RCU stall) or held by real-time tasks.".to_owned(),
    }
}

fn of(standings: &[(u32, Standing)], is: impl Fn(Standing) -> bool) -> Vec<u32> {
    let those = standings.iter().filter(|(_, one)| is(*one));
    those.map(|(cpu, _)| *cpu).collect()
}

fn widest(ejection: &Ejection) -> u32 {
    let masks = ejection.tasks().filter_map(|(_, task)| task.cpus.as_ref());
    masks.map(|mask| mask.cpus.len() as u32).max().unwrap_or(0)
}

/// Returns whether tasks of several CPUs are in the DSQ, so that any of them could take from it.
fn is_shared(ejection: &Ejection, home: &CpuState, dsq: Dsq) -> bool {
    ejection
        .tasks()
        .any(|(cpu, other)| cpu.cpu != home.cpu && other.dsq == Some(dsq))
}

/// Where a task is, as a part of a sentence.
fn place(dsq: Dsq, cpu: u32) -> String {
    match dsq {
        Dsq::Local => "in the local DSQ".to_owned(),
        Dsq::LocalOn(on) if on == cpu => "in the local DSQ".to_owned(),
        Dsq::None => "in the scheduler's own queue".to_owned(),
        _ => format!("in {}", dsq_name(dsq)),
    }
}

pub fn dsq_name(dsq: Dsq) -> String {
    match dsq {
        Dsq::User(id) => format!("DSQ {id:#x}"),
        Dsq::Global => "the global DSQ".to_owned(),
        Dsq::Bypass => "the kernel's bypass DSQ".to_owned(),
        Dsq::Local => "the local DSQ".to_owned(),
        Dsq::LocalOn(cpu) => format!("the local DSQ of CPU {cpu}"),
        Dsq::None => "no DSQ".to_owned(),
    }
}

fn where_it_is(_: &Ejection, home: &CpuState, task: &TaskState, waited: &str) -> String {
    let label = task.label();
    let place = match (task.dsq, task.ops_state) {
        (None | Some(Dsq::None), Some(OpsState::Queued)) => {
            "it is in no DSQ (dsq_id=(n/a)) and belongs to the scheduler (ops_state 2, QUEUED)"
                .to_owned()
        }
        (None | Some(Dsq::None), Some(state)) => {
            format!(
                "it is in no DSQ (dsq_id=(n/a)), ops_state {} ({state:?})",
                state as u32
            )
        }
        (None, None) => "its state is not in the text".to_owned(),
        (Some(Dsq::Local), _) => format!("it is in the local DSQ of CPU {}", home.cpu),
        (Some(dsq), _) => format!("it is in {}", dsq_name(dsq)),
    };
    format!(
        "{label} has been runnable for {waited} on CPU {}; {place}",
        home.cpu
    )
}

fn runs_on(home: &CpuState) -> String {
    match &home.curr {
        Some(_) if home.class == Class::Idle => format!("CPU {} is idle", home.cpu),
        Some(curr) => {
            let released = if home.released {
                "; ops.cpu_release() was called for it"
            } else {
                ""
            };
            format!(
                "CPU {} runs {curr}, a {} task{released}",
                home.cpu,
                home.class.tasks()
            )
        }
        None => format!("the text does not show what CPU {} runs", home.cpu),
    }
}

/// The running task of the CPU has not left it for long.
fn note_hog(home: &CpuState, task: &TaskState, evidence: &mut Vec<String>) {
    let Some(curr) = home.tasks.iter().find(|other| other.is_curr) else {
        return;
    };
    if curr.slice == Some(u64::MAX) {
        evidence.push(format!(
            "{} has an endless slice (SCX_SLICE_INF)",
            curr.label()
        ));
    }
    if curr.waited_ms >= 1_000 && curr.waited_ms >= task.waited_ms / 2 {
        evidence.push(format!(
            "{} has not given CPU {} up for {} s",
            curr.label(),
            home.cpu,
            seconds(&ms(curr.waited_ms))
        ));
    }
    if let Some(frame) = curr
        .backtrace
        .iter()
        .find(|frame| frame.starts_with("bpf_prog_"))
    {
        evidence.push(format!(
            "{} is in the scheduler's own code: {frame}",
            curr.label()
        ));
    }
}

/// Returns the other tasks that wait in the same DSQ.
fn same_dsq(ejection: &Ejection, task: &TaskState) -> Option<String> {
    let here = ejection
        .tasks()
        .filter(|(_, other)| other.dsq == task.dsq && other.pid != task.pid);
    let waits: Vec<i64> = here.map(|(_, other)| other.waited_ms).collect();
    let most = waits.iter().max()?;
    let wait = others_wait(waits.len(), &dsq_name(task.dsq?))?;
    Some(format!("{wait}, the longest for {} s", seconds(&ms(*most))))
}

/// CPUs that tasks of a higher class hold.
fn holders(ejection: &Ejection) -> Vec<String> {
    let held = ejection.cpus.iter().filter(|cpu| {
        matches!(cpu.class, Class::Realtime | Class::Deadline) && !cpu.tasks.is_empty()
    });
    let tell = |cpu: &CpuState| {
        let curr = cpu.curr.as_ref()?;
        Some(format!(
            "the {} task {curr} holds CPU {}",
            cpu.class.tasks(),
            cpu.cpu
        ))
    };
    held.filter_map(tell).take(OTHERS_MAX).collect()
}

/// Returns the task that waits longest.
fn longest(ejection: &Ejection) -> Option<String> {
    let waiting = ejection.tasks().filter(|(_, task)| !task.is_curr);
    let (home, task) = waiting.max_by_key(|(_, task)| task.waited_ms)?;
    let place = match (task.dsq, task.ops_state) {
        (None | Some(Dsq::None), Some(OpsState::Queued)) => {
            "in the scheduler's own queue".to_owned()
        }
        (dsq, _) => place(dsq.unwrap_or(Dsq::None), home.cpu),
    };
    Some(format!(
        "of those listed, {} waits longest: {} s on CPU {}, {place}",
        task.label(),
        seconds(&ms(task.waited_ms)),
        home.cpu
    ))
}

/// Returns the facts in a requested dump.
pub fn waiting(ejection: &Ejection) -> Vec<String> {
    let mut told = holders(ejection);
    told.extend(longest(ejection));
    told
}

fn ms(ms: i64) -> String {
    format!("{}.{:03}", ms / 1000, ms.rem_euclid(1000))
}

/// `CPU 3 was` or `CPUs 0-2 were`.
fn cpus_are(cpus: &[u32]) -> String {
    let mask = crate::dump::Mask {
        cpus: cpus.to_vec(),
        room: 0,
    };
    let were = if cpus.len() == 1 { "was" } else { "were" };
    format!("{} {were}", mask.words())
}
