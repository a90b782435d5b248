//! The checks that run inside the virtual machine. Each is a function; one that fails does not
//! keep the others from running.

mod apart;
mod calls;
mod cgroups;
mod own_loader;
mod perfetto;
pub mod programs;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use schedlab_kernel::bpf_policy::{self, BpfObject, POLICIES};
use schedlab_kernel::error::Error;
use schedlab_kernel::exit::PolicyExit;
use schedlab_kernel::load::{self, Loaded};
use schedlab_kernel::measure::Want;
use schedlab_kernel::run::{self, Job, Outcome};
use schedlab_kernel::scx::{self, State};
use schedlab_report::Exit;
use schedlab_report::export::perfetto::PerfettoWriter;
use schedlab_sweep::Space;
use schedlab_testing::checks::{self, judge_each};
use schedlab_trace::{CpuId, Event, Listener, Scheduler, TaskId, TaskMeta};

/// First argument of this program inside; the directory of compiled test policies follows.
pub const MARK: &str = "inside-the-virtual-machine";

/// First argument of this program where it loads a policy and waits to be killed.
pub const HOLD: &str = "hold-a-policy";

/// How a source ends that compares a structure of the policy library with a plain model.
pub const MODEL_SOURCE: &str = "_model.bpf.c";

struct Inside<'a> {
    objects: &'a Path,
}

/// `enum scx_exit_kind`: the policy ended itself, and it failed by its own word.
const UNREG_BPF: i32 = 65;
const ERROR_BPF: i32 = 1025;

type Judge = fn(&Inside<'_>) -> Result<String, String>;

/// The built-in policies under which `make test` runs programs; `make test-all` does so under each of them.
const POLICIES_EACH_TIME: [&str; 2] = ["dss", "vtime"];

/// The end of the name of each check that runs programs under a built-in policy.
const SCHEDULES: &str = "_schedules";

/// The other checks.
const CHECKS: &[(&str, Judge)] = &[
    ("every_policy_loads", every_policy_loads),
    (
        "points_of_the_feature_tree_schedule",
        points_of_the_feature_tree_schedule,
    ),
    (
        "structures_are_like_their_models",
        structures_are_like_their_models,
    ),
    ("options_reach_the_policy", options_reach_the_policy),
    ("another_scheduler_is_refused", another_scheduler_is_refused),
    ("killing_the_loader_unloads", killing_the_loader_unloads),
    (
        "a_scheduler_runs_by_its_own_loader",
        own_loader::a_scheduler_runs_by_its_own_loader,
    ),
    (
        "a_loader_that_does_not_attach_is_told",
        own_loader::a_loader_that_does_not_attach_is_told,
    ),
    (
        "a_scheduler_that_its_loader_lost_is_no_done_run",
        own_loader::a_scheduler_that_its_loader_lost_is_no_done_run,
    ),
    ("the_verifiers_reason_is_told", the_verifiers_reason_is_told),
    ("an_ejection_is_the_outcome", an_ejection_is_the_outcome),
    (
        "a_silent_ejection_is_no_done_run",
        a_silent_ejection_is_no_done_run,
    ),
    (
        "switches_of_pingpong_are_counted",
        switches_of_pingpong_are_counted,
    ),
    (
        "yields_are_told_from_preemptions",
        yields_are_told_from_preemptions,
    ),
    (
        "starts_before_a_better_task_are_inversions",
        starts_before_a_better_task_are_inversions,
    ),
    (
        "run_queues_are_as_long_as_known",
        run_queues_are_as_long_as_known,
    ),
    (
        "a_run_ends_with_its_last_thread",
        a_run_ends_with_its_last_thread,
    ),
    (
        "workloads_count_as_they_are_simulated",
        workloads_count_as_they_are_simulated,
    ),
    (
        "locks_of_no_run_queue_are_not_counted",
        locks_of_no_run_queue_are_not_counted,
    ),
    ("events_make_a_whole_trace", events_make_a_whole_trace),
    (
        "failures_of_programs_are_told",
        failures_of_programs_are_told,
    ),
    (
        "cgroups_are_made_and_removed",
        cgroups::cgroups_are_made_and_removed,
    ),
    ("policy_counters_rise", policy_counters_rise),
    ("a_shared_core_is_left", a_shared_core_is_left),
    (
        "who_computed_alone_waits_for_turns",
        who_computed_alone_waits_for_turns,
    ),
    (
        "nothing_waits_for_a_real_time_hog",
        nothing_waits_for_a_real_time_hog,
    ),
];

/// Those of [`CHECKS`] that take longest.
const LONG: &[&str] = &[
    "points_of_the_feature_tree_schedule",
    "structures_are_like_their_models",
    "a_scheduler_that_its_loader_lost_is_no_done_run",
    "policy_counters_rise",
    "nothing_waits_for_a_real_time_hog",
];

/// Returns the checks in their order.
pub fn checks() -> impl Iterator<Item = checks::Check> {
    let is_check = |name: &&str| CHECKS.iter().any(|(check, _)| check == name);
    assert!(LONG.iter().all(is_check), "of {LONG:?}");
    let is_policy = |name: &&str| POLICIES.iter().any(|policy| policy.name == *name);
    assert!(POLICIES_EACH_TIME.iter().all(is_policy));
    let policies = POLICIES.iter().map(|policy| {
        let name = format!("{}{SCHEDULES}", policy.name);
        match POLICIES_EACH_TIME.contains(&policy.name) {
            true => checks::Check::short(name),
            false => checks::Check::long(name),
        }
    });
    let others = CHECKS.iter().map(|(name, _)| match LONG.contains(name) {
        true => checks::Check::long(*name),
        false => checks::Check::short(*name),
    });
    policies.chain(others)
}

pub fn run(arguments: &[String]) -> ExitCode {
    let Some((objects, chosen)) = arguments.split_first() else {
        println!("the directory of test policies is missing");
        return ExitCode::FAILURE;
    };
    let inside = Inside {
        objects: Path::new(objects),
    };
    // To chase what happens rarely.
    let times = std::env::var("SCHEDLAB_CHECK_TIMES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    let all = std::iter::repeat_n(chosen, times).flatten();
    judge_each(all.map(String::as_str), |name| {
        let state = scx::state();
        if state != State::Disabled {
            return Err(format!(
                "found sched_ext as {state:?} from the check before"
            ));
        }
        if let Some(policy) = name.strip_suffix(SCHEDULES) {
            return schedules(policy);
        }
        let (_, check) = CHECKS
            .iter()
            .find(|(one, _)| *one == name)
            .ok_or("there is no such check")?;
        check(&inside)
    })
}

impl Inside<'_> {
    /// A policy of `tests/policies` that the host has compiled.
    fn object(&self, name: &str) -> Result<BpfObject, String> {
        let bytes = fs::read(self.objects.join(name)).map_err(|e| format!("{name}: {e}"))?;
        Ok(BpfObject {
            name: name.to_owned(),
            bytes,
        })
    }
}

fn text<T>(result: schedlab_kernel::Result<T>) -> Result<T, String> {
    result.map_err(|e| e.to_string())
}

fn ensure(condition: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(otherwise()) }
}

/// This program as one of its own small programs.
fn job(arguments: &[&str]) -> Job {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = vec![program.into_os_string(), programs::MARK.into()];
    command.extend(arguments.iter().map(OsString::from));
    Job {
        command,
        timeout: Duration::from_secs(60),
        want: Want::default(),
    }
}

fn measured(scheduler: &str, arguments: &[&str]) -> Result<Outcome, String> {
    done(
        scheduler,
        run::run(&Scheduler::parse(scheduler), &job(arguments)),
    )
}

/// As [`measured`]; `listener` hears the events, by which the invariants are checked, too.
fn told(
    scheduler: &str,
    arguments: &[&str],
    listener: &mut dyn Listener,
) -> Result<Outcome, String> {
    let mut job = job(arguments);
    job.want.events = true;
    job.want.check = true;
    let ran = run::run_told(&Scheduler::parse(scheduler), &job, listener);
    done(scheduler, ran)
}

fn done(scheduler: &str, ran: schedlab_kernel::Result<Outcome>) -> Result<Outcome, String> {
    let outcome = text(ran)?;
    ensure(outcome.exit == Exit::Done, || {
        format!("{scheduler}: {} {:?}", outcome.exit, outcome.message)
    })?;
    for (name, _) in outcome.measures.iter() {
        let known = schedlab_report::catalogue::find(name).is_some();
        ensure(known, || format!("nothing explains {name}"))?;
    }
    Ok(outcome)
}

fn number(outcome: &Outcome, name: &str) -> Result<f64, String> {
    outcome
        .measures
        .number(name)
        .ok_or_else(|| format!("{name} is absent"))
}

/// Loads each built-in policy, which the verifier lets pass and which runs, and unloads it.
fn every_policy_loads(_: &Inside<'_>) -> Result<String, String> {
    for policy in POLICIES {
        let said = |what: String| format!("{}: {what}", policy.name);
        let object = text(bpf_policy::resolve(policy.name))?;
        let loaded = text(Loaded::load(&object, &[])).map_err(said)?;
        ensure(loaded.is_running(), || {
            said(format!("ejected: {:?}", loaded.exit()))
        })?;
        let exit = text(loaded.unload()).map_err(said)?;
        ensure(exit.is_normal(), || said(format!("ended by {exit:?}")))?;
    }
    ensure(!POLICIES.is_empty(), || {
        "no policies are built in".to_owned()
    })?;
    Ok(format!("{} policies", POLICIES.len()))
}

/// Runs programs under a built-in policy, which keeps running, ends as asked, and whose switches are counted.
fn schedules(policy: &str) -> Result<String, String> {
    calls::count()?;
    let object = text(bpf_policy::resolve(policy))?;
    let loaded = text(Loaded::load(&object, &[]))?;
    let mut told = Vec::new();
    // `make soak` takes a minute where this takes a second.
    for program in ["compute", "shuffle", "storm"] {
        let before = calls::of_dispatch();
        let outcome = text(run::run_under(&loaded, &job(&[program, "300"])))?;
        ensure(outcome.exit == Exit::Done, || {
            format!("{program}: {} {:?}", outcome.exit, outcome.message)
        })?;
        let calls = calls::of_dispatch_since(&before);
        ensure(calls > 0, || format!("{program}: no call of dispatch()"))?;
        told.push(format!("{program} {calls}"));
    }
    text(run::run_under(&loaded, &job(&["pingpong", "1"])))?;
    let pingpong = done(policy, run::run_under(&loaded, &job(PINGPONG)))?;
    let pingpong = pingpong_is_counted(&pingpong)?;
    ensure(loaded.is_running(), || {
        format!("ejected: {:?}", loaded.exit())
    })?;
    let exit = text(loaded.unload())?;
    ensure(exit.is_normal(), || format!("ended by {exit:?}"))?;
    ensure(scx::state() == State::Disabled, || {
        "not unloaded".to_owned()
    })?;
    let told = told.join(", ");
    Ok(format!("calls of dispatch(): {told}; pingpong: {pingpong}"))
}

/// Points of the sample, and the seed that it is drawn from.
const SAMPLE: (u64, u64) = (100, 5_832);

fn points_of_the_feature_tree_schedule(_: &Inside<'_>) -> Result<String, String> {
    let space = Space::of("feature", &[]).map_err(|error| error.to_string())?;
    let object = text(bpf_policy::resolve(&space.scheduler))?;
    let points = space.sample(SAMPLE.0, SAMPLE.1);
    let mut alternatives = BTreeSet::new();
    for &point in &points {
        let scheduler = space.scheduler(point);
        alternatives.extend(scheduler.options.iter().cloned());
        let said = |what: String| format!("{}: {what}", space.scheduler(point));
        let loaded = text(Loaded::load(&object, &scheduler.options)).map_err(said)?;
        programs::compute(Duration::from_millis(100));
        ensure(loaded.is_running(), || {
            said(format!("ejected: {:?}", loaded.exit()))
        })?;
        let exit = text(loaded.unload()).map_err(said)?;
        ensure(exit.is_normal(), || said(format!("ended by {exit:?}")))?;
    }
    let all: usize = space.features.iter().map(|f| f.alternatives.len()).sum();
    ensure(alternatives.len() == all, || {
        format!("{} of {all} alternatives were there", alternatives.len())
    })?;
    Ok(format!("{} points, {all} alternatives", points.len()))
}

/// Loads a policy that comes to its end by itself, maybe while it is still being attached.
fn end_of(policy: &BpfObject, settings: &[(String, String)]) -> Result<PolicyExit, String> {
    let exit = match Loaded::load(policy, settings) {
        Ok(loaded) => {
            let deadline = Instant::now() + Duration::from_secs(10);
            while loaded.is_running() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(10));
            }
            text(loaded.unload())?
        }
        Err(Error::Ejected { exit, .. }) => *exit,
        Err(error) => return Err(error.to_string()),
    };
    until(|state| *state == State::Disabled)?;
    Ok(exit)
}

/// Waits until sched_ext is as wanted.
fn until(wanted: fn(&State) -> bool) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !wanted(&scx::state()) {
        if Instant::now() > deadline {
            return Err(format!("sched_ext is {:?}", scx::state()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The operation before which a structure is broken on purpose.
const FAULT_BEFORE: i64 = 1000;

/// The library's structures, as BPF: the random operations that crates/policies/tests/rules.rs makes natively.
fn structures_are_like_their_models(inside: &Inside<'_>) -> Result<String, String> {
    let mut models = Vec::new();
    for entry in fs::read_dir(inside.objects).map_err(|e| e.to_string())? {
        let name = entry.map_err(|e| e.to_string())?.file_name();
        let name = name.to_string_lossy().into_owned();
        if format!("{name}.bpf.c").ends_with(MODEL_SOURCE) {
            models.push(name);
        }
    }
    models.sort();
    let fault = [("fault_before".to_owned(), FAULT_BEFORE.to_string())];
    let mut told = Vec::new();
    for name in models {
        let model = inside.object(&name)?;
        let exit = end_of(&model, &[])?;
        let made = exit.code;
        ensure(
            exit.kind == UNREG_BPF
                && made > FAULT_BEFORE
                && exit.message == format!("{made} operations, all as in the model"),
            || format!("{name}: {exit:?}"),
        )?;
        let exit = end_of(&model, &fault)?;
        // A place in the source stands before it.
        let found = format!(": it differs from the model after {FAULT_BEFORE} operations");
        ensure(
            exit.kind == ERROR_BPF && exit.message.ends_with(&found),
            || format!("{name}, broken on purpose: {exit:?}"),
        )?;
        told.push(format!("{name} {made}"));
    }
    ensure(!told.is_empty(), || "there are no models".to_owned())?;
    Ok(format!("operations: {}", told.join(", ")))
}

fn options_reach_the_policy(inside: &Inside<'_>) -> Result<String, String> {
    let knobs = inside.object("knobs")?;
    let set = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    };
    // In the order of their places in memory, which is the compiler's.
    let mut names: Vec<String> = text(load::options(&knobs))?
        .into_iter()
        .map(|o| o.name)
        .collect();
    names.sort();
    ensure(names == ["kind", "negative", "number", "tell"], || {
        format!("options are {names:?}")
    })?;
    let settings = set(&[
        ("tell", "true"),
        ("number", "42"),
        ("negative", "-7"),
        ("kind", "second"),
    ]);
    let exit = end_of(&knobs, &settings)?;
    ensure(
        exit.kind == UNREG_BPF && exit.code == 4251 && exit.message == "told",
        || format!("{exit:?}"),
    )?;
    for (wrong, expected) in [
        (
            ("numbre", "1"),
            "knobs has no option `numbre` (did you mean `number`?)",
        ),
        (("number", "many"), "a whole number"),
        (("kind", "third"), "first, second"),
    ] {
        match Loaded::load(&knobs, &set(&[wrong])) {
            Err(Error::Options(error)) if error.to_string().contains(expected) => {}
            Err(other) => return Err(format!("{wrong:?}: {other}")),
            Ok(_) => return Err(format!("{wrong:?} was taken")),
        }
    }
    Ok(String::new())
}

fn another_scheduler_is_refused(inside: &Inside<'_>) -> Result<String, String> {
    let knobs = inside.object("knobs")?;
    let first = text(Loaded::load(&knobs, &[]))?;
    for second in [
        Loaded::load(&knobs, &[]).map(drop),
        run::load(&Scheduler::plain(Scheduler::KERNELS_OWN)).map(drop),
    ] {
        match second {
            Err(Error::AlreadyLoaded { name }) if name == "knobs" => {}
            Err(other) => return Err(other.to_string()),
            Ok(()) => return Err("a second scheduler was taken".to_owned()),
        }
    }
    ensure(first.is_running(), || "the first one is gone".to_owned())?;
    text(first.unload())?;
    Ok(String::new())
}

/// The other process: loads a policy, says so, and waits.
pub fn hold(arguments: &[String]) -> ExitCode {
    let Some(objects) = arguments.first() else {
        return ExitCode::FAILURE;
    };
    let inside = Inside {
        objects: Path::new(objects),
    };
    let loaded = inside
        .object("knobs")
        .and_then(|knobs| text(Loaded::load(&knobs, &[])));
    match loaded {
        Ok(_loaded) => loop {
            thread::sleep(Duration::from_secs(1));
        },
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn killing_the_loader_unloads(inside: &Inside<'_>) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut loader = Command::new(program)
        .arg(HOLD)
        .arg(inside.objects)
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let loaded = until(|s| matches!(s, State::Loaded { state, .. } if state == "enabled"));
    let killed = loader.kill().and_then(|()| loader.wait());
    let start = Instant::now();
    loaded?;
    killed.map_err(|e| e.to_string())?;
    until(|s| *s == State::Disabled)?;
    Ok(format!("after {} ms", start.elapsed().as_millis()))
}

fn the_verifiers_reason_is_told(inside: &Inside<'_>) -> Result<String, String> {
    match Loaded::load(&inside.object("wild_read")?, &[]) {
        Err(Error::Rejected { reason, log, .. }) => {
            ensure(
                reason.contains("wild_read_enqueue")
                    && reason.contains("invalid mem access")
                    && reason.contains("*wild"),
                || reason.clone(),
            )?;
            let whole = fs::read_to_string(&log).map_err(|e| e.to_string())?;
            ensure(whole.contains("processed"), || {
                "the log is not whole".to_owned()
            })?;
            Ok(reason)
        }
        Err(other) => Err(other.to_string()),
        Ok(_) => Err("it was loaded".to_owned()),
    }
}

fn an_ejection_is_the_outcome(inside: &Inside<'_>) -> Result<String, String> {
    // The kernel may eject it within the call that attaches it, or just after.
    match Loaded::load(&inside.object("bad_dsq")?, &[]) {
        Ok(loaded) => {
            let deadline = Instant::now() + Duration::from_secs(10);
            while loaded.is_running() && Instant::now() < deadline {
                programs::compute(Duration::from_millis(10));
            }
            let exit = text(loaded.unload())?;
            ensure(exit.kind == 1024 && exit.message.contains("0xbad"), || {
                format!("{exit:?}")
            })?;
            ensure(!exit.dump.is_empty(), || {
                "the kernel's dump is empty".to_owned()
            })?;
            Ok(format!("{} ({})", exit.reason, exit.message))
        }
        Err(error) => {
            ensure(error.to_string().contains("0xbad"), || error.to_string())?;
            Ok(format!("while attaching: {error}"))
        }
    }
}

/// The program ends a moment after the policy, and no message says that it was ejected.
fn a_silent_ejection_is_no_done_run(inside: &Inside<'_>) -> Result<String, String> {
    let silent = inside.object("silent")?;
    // It ends at once when the policy is gone, rarely in the moment in which the policy is looked at.
    let script = "ln -sf /bin/true /tmp/ejector; /tmp/ejector;
        while read -r state </sys/kernel/sched_ext/state; [ $state = enabled ]; do :; done";
    for _ in 0..5 {
        let loaded = text(Loaded::load(&silent, &[]))?;
        let job = Job {
            command: ["sh", "-c", script].map(OsString::from).into(),
            ..job(&[])
        };
        let outcome = text(run::run_under(&loaded, &job))?;
        text(loaded.unload())?;
        ensure(outcome.exit == Exit::Ejected, || format!("{outcome:?}"))?;
    }
    Ok(String::new())
}

/// Under the kernel's own scheduler; [`schedules`] does so under each policy.
fn switches_of_pingpong_are_counted(_: &Inside<'_>) -> Result<String, String> {
    // Once before, so that no page of the program has to be read and waited for.
    measured(Scheduler::KERNELS_OWN, &["pingpong", "1"])?;
    pingpong_is_counted(&measured(Scheduler::KERNELS_OWN, PINGPONG)?)
}

const TURNS: f64 = 500.0;
const PINGPONG: &[&str] = &["pingpong", "500"];

/// Checks the measures of [`PINGPONG`] against the number of its turns.
fn pingpong_is_counted(outcome: &Outcome) -> Result<String, String> {
    let voluntary = number(outcome, "switches.voluntary")?;
    // One for each of two threads a turn, and a few to start and to end.
    ensure(
        (2.0 * TURNS - 4.0..2.0 * TURNS + 60.0).contains(&voluntary),
        || format!("{voluntary} voluntary switches"),
    )?;
    let total = number(outcome, "switches.total")?;
    ensure(total >= voluntary - 2.0, || {
        format!("{total} starts, {voluntary} stops")
    })?;
    let latencies: u64 = outcome.wakeup_latency.iter().map(|(_, _, n)| n).sum();
    ensure((latencies as f64) > 1.9 * TURNS, || {
        format!("{latencies} wakeups timed")
    })?;
    let (p50, max) = (
        number(outcome, "wakeup.latency_ns_p50")?,
        number(outcome, "wakeup.latency_ns_max")?,
    );
    ensure(0.0 < p50 && p50 <= max, || format!("p50 {p50} max {max}"))?;
    let idle = number(outcome, "cpu.idle_pct")?;
    ensure((0.0..=100.0).contains(&idle), || format!("idle {idle} %"))?;
    let makespan = number(outcome, "makespan_ns")?;
    ensure(makespan > 1e6, || format!("makespan {makespan} ns"))?;
    Ok(format!(
        "{voluntary} voluntary, p50 {:.0} µs, idle {idle:.0} %, {:.0} ms",
        p50 / 1e3,
        makespan / 1e6
    ))
}

fn yields_are_told_from_preemptions(_: &Inside<'_>) -> Result<String, String> {
    let mut recorder = Count::default();
    let arguments = ["yielders", "4", "200"];
    let outcome = told(Scheduler::KERNELS_OWN, &arguments, &mut recorder)?;
    let yielded = number(&outcome, "switches.yielded")?;
    let involuntary = number(&outcome, "switches.involuntary")?;
    ensure(yielded <= involuntary && yielded > 100.0, || {
        format!("{yielded} of {involuntary} involuntary switches are yields")
    })?;
    // The program's main thread and four yielders.
    let tasks = recorder.tasks.len();
    ensure(tasks == 5, || format!("{tasks} tasks"))?;
    let told = f64::from(recorder.yields);
    ensure(told == yielded, || {
        format!("{told} yields in the events, {yielded} counted")
    })?;
    ensure(recorder.ordered, || "events are out of order".to_owned())?;
    Ok(format!("{yielded} of {involuntary}"))
}

/// Two hogs take turns on one CPU: where their nice levels differ, the better one waits at each start of the
/// other, and nothing else is an inversion.
fn starts_before_a_better_task_are_inversions(_: &Inside<'_>) -> Result<String, String> {
    let same = measured("fifo", &["hogs", "600", "0"])?;
    let none = number(&same, "schedule.priority_inversions")?;
    ensure(none == 0.0, || {
        format!("{none} inversions among tasks of one priority")
    })?;
    let differ = measured("fifo", &["hogs", "600", "10"])?;
    let inversions = number(&differ, "schedule.priority_inversions")?;
    let turns = number(&differ, "switches.involuntary")?;
    // Half of the turns, but for the first ones, and what other tasks of the system interrupt.
    ensure(
        turns >= 8.0 && (0.25 * turns..=0.6 * turns + 2.0).contains(&inversions),
        || format!("{inversions} inversions in {turns} turns"),
    )?;
    Ok(format!("{inversions} in {turns} turns"))
}

/// On one CPU: of two who play ping-pong one has just been woken when the other leaves. Four yielders stay
/// runnable until they end one after another.
fn run_queues_are_as_long_as_known(_: &Inside<'_>) -> Result<String, String> {
    let mut told = Vec::new();
    for (arguments, length) in [
        (vec!["pingpong", "500"], 2.0),
        (vec!["yielders", "4", "500"], 4.0),
    ] {
        let outcome = measured("fifo", &arguments)?;
        let (mean, max) = (
            number(&outcome, "runqueue.len_mean")?,
            number(&outcome, "runqueue.len_max")?,
        );
        // The main thread starts the others; in the end there are fewer.
        ensure(
            (length - 0.3..=length + 0.2).contains(&mean) && (length..=length + 1.0).contains(&max),
            || format!("{arguments:?}: mean {mean}, most {max}"),
        )?;
        told.push(format!("{}: {mean:.2}", arguments[0]));
    }
    Ok(told.join("; "))
}

fn a_run_ends_with_its_last_thread(_: &Inside<'_>) -> Result<String, String> {
    let outcome = measured(Scheduler::KERNELS_OWN, &["leaver", "700"])?;
    let makespan = number(&outcome, "makespan_ns")?;
    // And what it takes to start a program in an emulated machine.
    ensure((0.7e9..3e9).contains(&makespan), || {
        format!("the run took {makespan} ns")
    })?;
    // One of four CPUs worked.
    let idle = number(&outcome, "cpu.idle_pct")?;
    ensure((20.0..=80.0).contains(&idle), || {
        format!("{idle} % were idle")
    })?;
    Ok(format!("{:.0} ms, {idle:.1} % idle", makespan / 1e6))
}

/// The actions of a workload's program before its tasks begin, and the processes that only start them, are in no
/// count.
fn workloads_count_as_they_are_simulated(_: &Inside<'_>) -> Result<String, String> {
    let workload = |asked: &str| {
        let mut job = job(&["load", asked]);
        job.want.root_is_starter = true;
        let outcome = text(run::run(&Scheduler::plain(Scheduler::KERNELS_OWN), &job))?;
        ensure(outcome.exit == Exit::Done, || format!("{outcome:?}"))?;
        Ok::<_, String>(outcome)
    };
    // Once before, so that no page of the program has to be read and waited for.
    workload("cpu:tasks=8,pin=true,duration=100ms")?;
    // The simulator: no voluntary switch, no wakeup, a fairness of 1.
    // Emulated CPUs have turns of a tenth of a second: long enough for thirty of them.
    let hogs = workload("cpu:tasks=8,pin=true,duration=3s")?;
    let sleeps = number(&hogs, "switches.voluntary")?;
    let wakeups: u64 = hogs.wakeup_latency.iter().map(|(_, _, n)| n).sum();
    let jain = number(&hogs, "fairness.jain")?;
    let idle = number(&hogs, "cpu.idle_pct")?;
    ensure(
        sleeps <= 4.0 && wakeups <= 4 && jain > 0.95 && idle < 10.0,
        || {
            format!(
                "cpu: {sleeps} voluntary switches, {wakeups} wakeups, fairness {jain}, {idle} % idle"
            )
        },
    )?;
    // Each task sleeps a hundred times and then ends. A sleep that is over before the CPU, itself a thread of the
    // host, comes to leave the task is no switch.
    let sleepers =
        workload("cpu:tasks=2,run=1ms,sleep=1ms,jitter=0,offset=0,loops=100,duration=0")?;
    let stops = number(&sleepers, "switches.voluntary")?;
    ensure((120.0..=206.0).contains(&stops), || {
        format!("sleepers: {stops} voluntary switches")
    })?;
    Ok(format!(
        "{sleeps} sleeps, {wakeups} wakeups, fairness {jain:.4}, {idle:.1} % idle; {stops} stops"
    ))
}

/// The list of task contexts has a lock of its own, which every task that begins or ends takes.
fn locks_of_no_run_queue_are_not_counted(inside: &Inside<'_>) -> Result<String, String> {
    let loaded = text(Loaded::load(&inside.object("contexts")?, &[]))?;
    let outcome = text(run::run_under(&loaded, &job(&["storm", "500"])))?;
    text(loaded.unload())?;
    let lookups = number(&outcome, "policy.failed_lookups")?;
    ensure(lookups == 0.0, || format!("{lookups} failed look-ups"))?;
    let taken = outcome.measures.number("lock.runqueue.acquisitions");
    ensure(taken.is_none(), || format!("{taken:?} acquisitions"))?;
    Ok(String::new())
}

#[derive(Default)]
struct Count {
    tasks: BTreeSet<TaskId>,
    yields: u32,
    ordered: bool,
    last: Option<schedlab_trace::Instant>,
}

impl schedlab_trace::Listener for Count {
    fn define_task(&mut self, task: TaskId, _: &TaskMeta) {
        self.tasks.insert(task);
    }

    fn record(
        &mut self,
        at: schedlab_trace::Instant,
        _: schedlab_trace::CpuId,
        event: schedlab_trace::Event,
    ) {
        use schedlab_trace::{Event, PrevState};
        self.ordered = self.last.is_none_or(|last| self.ordered && at >= last);
        self.last = Some(at);
        if let Event::Switch {
            prev: Some(_),
            prev_state: PrevState::Yielded,
            ..
        } = event
        {
            self.yields += 1;
        }
    }
}

/// `run --trace` writes these events: every CPU goes on from the task that it was switched to, no task is on two CPUs
/// at once, and every task has its name.
fn events_make_a_whole_trace(_: &Inside<'_>) -> Result<String, String> {
    let mut trace = Trace::default();
    let cpus = schedlab_kernel::topology::possible_cpus();
    let writer = PerfettoWriter::new(Vec::new(), cpus, "7.2.0");
    let mut both = (&mut trace, writer);
    let outcome = told("fifo", &["pingpong", "100"], &mut both)?;
    let writer = both.1;
    let lost = outcome.measures.number("lost_records");
    ensure(lost.is_none(), || format!("{lost:?} records were lost"))?;
    ensure(trace.wrong.is_empty(), || trace.wrong.join("; "))?;
    ensure(trace.names.len() == 2, || format!("{:?}", trace.names))?;
    let named = |name: &String| name == "vm" || name.starts_with("vm-");
    ensure(trace.names.values().all(named), || {
        format!("names are {:?}", trace.names)
    })?;
    // From one thread to the other and back, a hundred times.
    ensure(trace.switches > 200, || {
        format!("{} switches", trace.switches)
    })?;
    let bytes = writer.finish().map_err(|e| e.to_string())?;
    let written = perfetto::switches(&bytes)?;
    ensure(written.len() == trace.switches, || {
        format!("{} switches written", written.len())
    })?;
    let chained = |pair: &[perfetto::Switch]| pair[0].next_pid == pair[1].prev_pid;
    for cpu in 0..cpus as u32 {
        let of_cpu = written.iter().filter(|(on, _)| *on == cpu);
        let of_cpu: Vec<_> = of_cpu.map(|(_, switch)| switch.clone()).collect();
        ensure(of_cpu.windows(2).all(chained), || {
            format!("CPU {cpu} does not go on from the task that was written before")
        })?;
    }
    Ok(format!(
        "{} switches, {} bytes, {:?}",
        trace.switches,
        bytes.len(),
        trace.names
    ))
}

#[derive(Default)]
struct Trace {
    names: BTreeMap<TaskId, String>,
    on_cpu: BTreeMap<u32, Option<TaskId>>,
    switches: usize,
    wrong: Vec<String>,
}

impl Listener for Trace {
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        self.names.insert(task, meta.comm.clone());
    }

    fn record(&mut self, at: schedlab_trace::Instant, cpu: CpuId, event: Event) {
        let Event::Switch { prev, next, .. } = event else {
            return;
        };
        self.switches += 1;
        // The first event of a CPU may be in the middle of a task's turn.
        let before = self.on_cpu.insert(cpu.0, None).unwrap_or(prev);
        if before != prev {
            self.wrong
                .push(format!("{at:?} {cpu}: {before:?} ran, {prev:?} leaves"));
        }
        if next.is_some() && self.on_cpu.values().any(|&running| running == next) {
            self.wrong
                .push(format!("{at:?} {cpu}: {next:?} runs elsewhere, too"));
        }
        self.on_cpu.insert(cpu.0, next);
    }
}

fn failures_of_programs_are_told(_: &Inside<'_>) -> Result<String, String> {
    let kernel = Scheduler::plain(Scheduler::KERNELS_OWN);
    let failed = text(run::run(&kernel, &job(&["fail"])))?;
    ensure(
        failed.exit == Exit::CommandFailed && failed.code == Some(3),
        || format!("{failed:?}"),
    )?;
    let mut endless = job(&["sleep", "100"]);
    endless.timeout = Duration::from_millis(300);
    let stopped = text(run::run(&kernel, &endless))?;
    ensure(
        stopped.exit == Exit::Timeout && stopped.code.is_none(),
        || format!("{stopped:?}"),
    )?;
    Ok(String::new())
}

fn policy_counters_rise(_: &Inside<'_>) -> Result<String, String> {
    let mut told = Vec::new();
    for policy in POLICIES
        .iter()
        .filter(|p| p.source.contains("lab/lab.bpf.h"))
    {
        let outcome = measured(policy.name, &["compute", "500"])?;
        let choices = number(&outcome, "schedule.choices")?;
        let examined = number(&outcome, "schedule.examined_mean")?;
        ensure(choices > 100.0 && examined > 0.0, || {
            format!(
                "{}: {choices} choices, {examined} examined each",
                policy.name
            )
        })?;
        let lost = number(&outcome, "policy.failed_lookups")?;
        ensure(lost == 0.0, || {
            format!("{}: {lost} failed look-ups", policy.name)
        })?;
        told.push(format!(
            "{}: {choices} choices, {examined:.1} examined each, contention {:?} %",
            policy.name,
            outcome.measures.number("lock.runqueue.contention_pct")
        ));
    }
    Ok(told.join("; "))
}

/// Two threads that never sleep, on one core, do not stay there while another core is idle.
fn a_shared_core_is_left(_: &Inside<'_>) -> Result<String, String> {
    let siblings = "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list";
    let siblings = fs::read_to_string(siblings).map_err(|e| e.to_string())?;
    ensure(matches!(siblings.trim(), "0-1" | "0,1"), || {
        format!("CPU 0 shares its core with {siblings}")
    })?;
    let mut told = Vec::new();
    for policy in ["cfs", "eevdf"] {
        let loaded = text(Loaded::load(&text(bpf_policy::resolve(policy))?, &[]))?;
        let times: Vec<u128> = (0..5)
            .map(|_| apart::until_apart(Duration::from_secs(10)).as_millis())
            .collect();
        let exit = text(loaded.unload())?;
        ensure(exit.is_normal(), || format!("{policy}: ended by {exit:?}"))?;
        ensure(times.iter().all(|&ms| ms < 10_000), || {
            format!("{policy}: together for {times:?} ms")
        })?;
        told.push(format!("{policy}: after {times:?} ms"));
    }
    Ok(told.join("; "))
}

/// Runs `pause` under a scheduler, which must stay, and returns its length.
fn pause_under(scheduler: &str, pause: impl FnOnce() -> Duration) -> Result<Duration, String> {
    let scheduler = Scheduler::parse(scheduler);
    let object = text(bpf_policy::resolve(&scheduler.name))?;
    let loaded = text(Loaded::load(&object, &scheduler.options))?;
    let pause = pause();
    ensure(loaded.is_running(), || {
        format!("{scheduler}: ejected: {:?}", loaded.exit())
    })?;
    let exit = text(loaded.unload())?;
    ensure(exit.is_normal(), || {
        format!("{scheduler}: ended by {exit:?}")
    })?;
    Ok(pause)
}

/// Where virtual time stood still meanwhile, the first thread waits for as long as it was alone.
fn who_computed_alone_waits_for_turns(_: &Inside<'_>) -> Result<String, String> {
    let (alone, beside) = (Duration::from_millis(2_000), Duration::from_millis(1_200));
    let mut told = Vec::new();
    for scheduler in ["feature", "feature:election=linkedlist", "vtime"] {
        let pause = pause_under(scheduler, || waits::beside_a_newcomer(alone, beside))?;
        ensure(pause < Duration::from_millis(600), || {
            format!("{scheduler}: a pause of {pause:?} after {alone:?} alone")
        })?;
        told.push(format!("{scheduler} {pause:?}"));
    }
    Ok(told.join(", "))
}

/// The others are idle, so the thread goes there. From 7.2 on the kernel lets it run where it is after
/// 0.95 s, for 50 ms (the deadline server for sched_ext); in 6.18 it would wait until the hog ends.
fn nothing_waits_for_a_real_time_hog(_: &Inside<'_>) -> Result<String, String> {
    let hog = Duration::from_millis(1_500);
    let mut told = Vec::new();
    for embedded in POLICIES {
        let pause = pause_under(embedded.name, || waits::beside_a_realtime_hog(hog))?;
        ensure(pause < Duration::from_millis(700), || {
            format!(
                "{}: a pause of {pause:?} beside {hog:?} of real time",
                embedded.name
            )
        })?;
        told.push(format!("{} {pause:?}", embedded.name));
    }
    Ok(told.join(", "))
}
