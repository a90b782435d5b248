//! The fixtures of `tests/misbehave` in a real kernel: what they hold against the virtual kernel they
//! also find in Linux, so a rule that Linux does not keep cannot be asked of the simulation.
//!
//! Boots one virtual machine and runs this same program inside.

#[path = "../../sim/tests/support/explained.rs"]
mod explained;
#[path = "../../sim/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use schedlab_kernel::bpf_policy::{self, BpfObject};
use schedlab_kernel::exit::PolicyExit;
use schedlab_kernel::kernel_log::no_complaints;
use schedlab_kernel::load::{self, Loaded, Terms};
use schedlab_kernel::vm::{Stream, Vm};
use schedlab_kernel::{Error, clang, scx};
use schedlab_testing::checks::{self, Check, Ended, Verdicts};
use support::rules::{self, Expect, Rule, Rules};
use support::script::{Kind, Step};

/// The command that asks all rules.
const BLESS_ALL: &str = "tools/cargo test --test rules -- --include-ignored";

/// First argument of this program inside; the second is the folder of the compiled fixtures, the others are the rules.
const MARK: &str = "rules-inside-the-virtual-machine";

/// The option of tests/misbehave/rule.h that says how often others may have been in the way.
const RACES: &str = "rule_races";
/// A tenth of what the fixtures that have it look at.
const RACES_FORGIVEN: u32 = 10;

/// The option of include/lab/lock.h that chooses between two kinds of locks: what uses them is asked with both, but on
/// Linux 7.2, where `queued` gives up too early (docs/schedulers/dss.md).
const LOCK_KIND: &str = "lab_lock_kind";

/// How long a task may wait where waiting is not the rule. An emulated CPU stands still while the others
/// have their turns, or the host its own work.
const TIMEOUT_MS: u32 = 20_000;

/// How long a rule may take to show.
const PATIENCE: Duration = Duration::from_secs(30);

const SCX_EXIT_UNREG: i32 = 64;
const SCX_EXIT_UNREG_BPF: i32 = 65;
const SCX_EXIT_UNREG_KERN: i32 = 66;
const SCX_EXIT_ERROR: i32 = 1024;
const SCX_EXIT_ERROR_BPF: i32 = 1025;
const SCX_EXIT_ERROR_STALL: i32 = 1026;
const RULE_HOLDS: i64 = 1000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == MARK) {
        return inside(Path::new(&arguments[1]), &arguments[2..]);
    }
    let rules = Rules::read();
    let asked = rules
        .all()
        .iter()
        .filter(|rule| rule.simulation_only.is_none());
    // One for each way to end shows that fixtures and judgement work; all of them take minutes.
    let mut ends = Vec::new();
    let checks = asked.map(|rule| {
        let is_first = !ends.contains(&rule.expect);
        ends.push(rule.expect);
        match is_first {
            true => Check::short(&rule.name),
            false => Check::long(&rule.name),
        }
    });
    checks::run(checks.collect::<Vec<_>>(), ask)
}

fn ask(chosen: &[String], verdicts: &Verdicts) -> Ended {
    if let Err(why) = clang::find() {
        return Ended::Missing(format!("rules in a real kernel: {why}"));
    }
    // Compiled here: inside, every instruction is emulated.
    let objects = tempfile::tempdir().expect("a temporary folder can be made");
    let rules = Rules::read();
    for rule in rules.all().iter().filter(|r| chosen.contains(&r.name)) {
        let source = rules::folder().join(format!("{}.bpf.c", rule.name));
        match bpf_policy::compile(&source) {
            Ok(object) => fs::write(objects.path().join(&rule.name), &object.bytes)
                .expect("the temporary folder can be written"),
            // A stack that overflows is refused by the compiler already.
            Err(error) => assert_eq!(rule.expect, Expect::Fault, "{}: {error}", rule.name),
        }
    }
    boot_until_judged(objects.path(), chosen, verdicts)
}

/// Boots, and boots again where the machine died: QEMU's emulation now and then trips over the kernel
/// code that loading a policy patches while other CPUs run it (an `int3` oops in update_rq_clock()).
/// A judged rule stays judged; a machine that dies three times at the same rule fails it.
fn boot_until_judged(objects: &Path, chosen: &[String], verdicts: &Verdicts) -> Ended {
    let vm = Vm {
        cpus: 4,
        // Ten minutes on a quiet machine are more on one that is shared.
        timeout: Duration::from_secs(3_600) * times() as u32,
        ..Vm::default()
    };
    let (mut died_at, mut deaths) = (None, 0);
    let mut told = String::new();
    loop {
        let judged = verdicts.judged();
        let program = std::env::current_exe().expect("a running program has a path");
        let mut command = vec![program.into_os_string(), OsString::from(MARK)];
        command.push(objects.into());
        let left = chosen.iter().filter(|name| !judged.contains(*name));
        command.extend(left.map(Into::into));
        let mut text = Vec::new();
        let mut show = |stream: Stream, bytes: &[u8]| match stream {
            Stream::Stdout => {
                text.extend_from_slice(bytes);
                verdicts.hear(bytes, str::to_owned);
            }
            // The output has no reader: the verdicts count.
            Stream::Stderr => drop(std::io::stderr().write_all(bytes)),
        };
        let end = vm.run(&command, &|note| println!("{note}"), &mut show);
        told.push_str(&String::from_utf8_lossy(&text));
        match end {
            Ok((code, log)) => {
                println!("the rules in the virtual machine ended with {code}; kernel log:\n{log}");
                let all = Rules::read();
                let asked = all.all().iter().filter(|r| r.simulation_only.is_none());
                if code == 0 && chosen.len() == asked.count() && times() == 1 {
                    compare_table(&told);
                } else if std::env::var_os("SCHEDLAB_BLESS").is_some() {
                    return Ended::Judged(Err(format!(
                        "the table of docs/explain.md needs all rules: {BLESS_ALL}"
                    )));
                }
                return Ended::Judged(no_complaints(&log));
            }
            Err(error @ (Error::Missing { .. } | Error::NoKernel(_))) => {
                return Ended::Missing(format!("rules in a real kernel: {error}"));
            }
            Err(error) => {
                println!("{error}");
                let last = verdicts.take_unjudged();
                deaths = if last == died_at { deaths + 1 } else { 1 };
                let Some(name) = last.clone().filter(|_| deaths < 3) else {
                    return Ended::Judged(Err(format!(
                        "the virtual machine died again and again at {last:?}: {error}"
                    )));
                };
                println!("the virtual machine died at {name}: booting again from there");
                died_at = last;
            }
        }
    }
}

/// To chase what happens rarely: how often each rule is asked.
fn times() -> usize {
    let times = std::env::var("SCHEDLAB_CHECK_TIMES");
    times.ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

fn inside(objects: &Path, chosen: &[String]) -> ExitCode {
    let rules = Rules::read();
    let all = std::iter::repeat_n(chosen, times()).flatten();
    checks::judge_each(all.map(String::as_str), |name| {
        let rule = rules.all().iter().find(|rule| rule.name == name);
        check(&rules, rule.ok_or("there is no such rule")?, objects)
    })
}

fn check(rules: &Rules, rule: &Rule, objects: &Path) -> Result<String, String> {
    let bytes = match fs::read(objects.join(&rule.name)) {
        Ok(bytes) => bytes,
        Err(_) if rule.expect == Expect::Fault => return Ok("refused by the compiler".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    let object = BpfObject {
        name: rule.name.clone(),
        bytes,
    };
    let options = load::options(&object).map_err(|e| e.to_string())?;
    let forgiving = options.iter().filter(|option| option.name == RACES);
    let settings: Vec<(String, String)> = forgiving
        .map(|option| (option.name.clone(), RACES_FORGIVEN.to_string()))
        .collect();
    if !options.iter().any(|option| option.name == LOCK_KIND) {
        return check_with(rules, rule, &object, &settings);
    }
    let mut details = Vec::new();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kinds: &[&str] = match release.starts_with("7.2.") {
        true => &["tas"],
        false => &["tas", "queued"],
    };
    for kind in kinds {
        let kind = (LOCK_KIND.to_owned(), (*kind).to_owned());
        let settings = [&settings[..], std::slice::from_ref(&kind)].concat();
        let detail = check_with(rules, rule, &object, &settings);
        details.push(detail.map_err(|why| format!("{}={}: {why}", kind.0, kind.1))?);
    }
    Ok(details.join("\n    "))
}

fn check_with(
    rules: &Rules,
    rule: &Rule,
    object: &BpfObject,
    settings: &[(String, String)],
) -> Result<String, String> {
    let terms = Terms {
        timeout_ms: (expected(rule) != Expect::Stall).then_some(TIMEOUT_MS),
        ..Terms::default()
    };
    let mut globals = BTreeMap::new();
    let outcome = match Loaded::load_on(object, settings, terms) {
        // It came to its end before its loader could look.
        Err(Error::Ejected { exit, .. }) => Ok(*exit),
        Err(error) => Err(error.to_string()),
        Ok(loaded) => {
            let (tasks, children) = rules.kinds(rule);
            let children: Arc<[Kind]> = children.into();
            let workers = wait(&loaded, rule, || start(&tasks, &children));
            if rule.expect == Expect::Done && loaded.is_running() {
                // A policy without ops has none to leave its exit in.
                return Ok("schedules until it is taken out".to_owned());
            }
            for name in rule.global.keys().chain(rule.kernel_global.keys()) {
                settle();
                globals.insert(name.clone(), loaded.global(object, name));
            }
            let exit = loaded.unload().map_err(|e| e.to_string())?;
            stop(workers);
            Ok(exit)
        }
    };
    settle();
    for (name, bytes) in globals {
        let global = rule.global.get(&name);
        let wanted = *global.unwrap_or_else(|| &rule.kernel_global[&name]);
        let value = bytes.and_then(|bytes| Some(i32::from_ne_bytes(bytes.try_into().ok()?)));
        if value.map(i64::from) != Some(wanted) {
            return Err(format!("`{name}` is {value:?}, not {wanted}"));
        }
    }
    let explanation = outcome.as_ref().ok().map(|exit| explain(rule, exit));
    let judged = judge(rule, outcome)?;
    match explanation.filter(|_| explained::is_ejection(rule)) {
        Some(explanation) => explanation.map(|says| format!("{judged}; explained: {says}")),
        None => Ok(judged),
    }
}

/// Until the kernel is back at its own scheduler.
fn settle() {
    for _ in 0..400 {
        if scx::state() == scx::State::Disabled {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// How it ends here.
fn expected(rule: &Rule) -> Expect {
    rule.kernel.unwrap_or(rule.expect)
}

/// The explanation of the kernel's message by `schedlab explain`, if it names the built-in fault.
fn explain(rule: &Rule, exit: &PolicyExit) -> Result<String, String> {
    let Some(expected) = explained::read().remove(&rule.name) else {
        return Ok(String::new());
    };
    let kind = schedlab_report::Exit::of_scx(exit.kind as u64).to_string();
    let code = Some(exit.code).filter(|code| *code != 0);
    let found =
        // As results have it.
        schedlab_explain::explain_result(&rule.name, &kind, Some(&exit.told()), code, &exit.dump);
    let told = |found: Option<&schedlab_explain::Explanation>| {
        found
            .map(|found| found.sentence.clone())
            .unwrap_or_default()
    };
    let culprit = explained::name(expected.culprit);
    match explained::judge(&expected, found.as_ref()) {
        Ok(()) => {
            println!("explained {culprit} right");
            Ok(told(found.as_ref()))
        }
        Err(why) => {
            println!("explained {culprit} wrong");
            Err(format!("not explained: {why}\n{exit:?}"))
        }
    }
}

/// The table of docs/explain.md, by what was said in the machine, where all rules were asked.
fn compare_table(told: &str) {
    let mut counts = explained::Counts::new();
    for line in told.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["explained", culprit, how] = words[..] {
            let count = counts.entry(culprit.to_owned()).or_default();
            count.0 += 1;
            count.1 += usize::from(how == "right");
        }
    }
    explained::compare("Linux 7.2", &explained::table(&counts), BLESS_ALL);
}

/// Until the policy has ended. A workload that ends before is started again, for a fixture sees as much of
/// it in a simulation as it needs, and here maybe less; a policy that is only to survive it has done so.
/// Answers the workload's threads that are still there.
fn wait(loaded: &Loaded, rule: &Rule, start: impl Fn() -> Workers) -> Workers {
    let patience = Instant::now() + PATIENCE;
    STOP.store(false, Relaxed);
    let mut workers = start();
    hotplug(rule);
    while loaded.is_running() && Instant::now() < patience {
        thread::sleep(Duration::from_millis(20));
        if workers.iter().all(thread::JoinHandle::is_finished) {
            if rule.expect == Expect::Done {
                break;
            }
            workers = start();
        }
    }
    workers
}

type Workers = Vec<thread::JoinHandle<()>>;

/// The workload shall end: its rule is judged.
static STOP: AtomicBool = AtomicBool::new(false);

/// Ends a workload, so that the next rule does not meet it.
fn stop(workers: Workers) {
    STOP.store(true, Relaxed);
    for worker in workers {
        let _ = worker.join(); // One that panicked has said so.
    }
}

fn judge(rule: &Rule, outcome: Result<PolicyExit, String>) -> Result<String, String> {
    // Names and pids belong to the first tasks that run here.
    let general = |message: &String| message.split(" for ").next().unwrap_or(message).to_owned();
    let wanted = rule.message.as_ref().map(general).unwrap_or_default();
    let exit = match outcome {
        // The kernel refuses to load what a simulation ends with a fault.
        Err(refusal) if expected(rule) == Expect::Fault => {
            return Ok(refusal.lines().next().unwrap_or_default().to_owned());
        }
        Err(refusal) => return Err(format!("not loaded: {refusal}")),
        Ok(exit) => exit,
    };
    let (kind, code) = match expected(rule) {
        Expect::Done => (SCX_EXIT_UNREG, None),
        Expect::Holds => (SCX_EXIT_UNREG_BPF, Some(RULE_HOLDS)),
        Expect::UnregBpf => (SCX_EXIT_UNREG_BPF, rule.code),
        Expect::UnregKernel => (SCX_EXIT_UNREG_KERN, rule.code),
        Expect::Error => (SCX_EXIT_ERROR, None),
        Expect::ErrorBpf => (SCX_EXIT_ERROR_BPF, None),
        Expect::Stall => (SCX_EXIT_ERROR_STALL, None),
        Expect::Fault => return Err(format!("loaded, and ended by {exit:?}")),
    };
    let told = match expected(rule) {
        _ if rule.kernel.is_some() => true,
        // The kernel's other tasks may be the ones.
        Expect::ErrorBpf | Expect::Stall => true,
        _ => exit.message.contains(&wanted),
    } && rule
        .kernel_says
        .iter()
        .all(|text| exit.message.contains(text.as_str()));
    if exit.kind == kind && code.is_none_or(|code| code == exit.code) && told {
        Ok(format!("{}: {}", exit.reason, exit.message))
    } else {
        let PolicyExit {
            kind,
            code,
            reason,
            message,
            ..
        } = exit;
        Err(format!(
            "ended by {kind} ({reason}), code {code}: {message}"
        ))
    }
}

fn hotplug(rule: &Rule) {
    let start = Instant::now();
    for event in &rule.hotplug {
        let event = rules::hotplug(event).unwrap_or_else(|e| panic!("{}: {e}", rule.name));
        thread::sleep(Duration::from_nanos(event.at.ns()).saturating_sub(start.elapsed()));
        let file = format!("/sys/devices/system/cpu/cpu{}/online", event.cpu);
        let value = if event.online { "1" } else { "0" };
        fs::write(&file, value).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    if rule.hotplug.last().is_some_and(|e| e.contains("offline")) {
        fs::write("/sys/devices/system/cpu/cpu1/online", "1").expect("the CPU comes back");
    }
}

/// Threads that do what the rule's workload says.
fn start(tasks: &[Kind], children: &Arc<[Kind]>) -> Workers {
    let mut threads = Vec::new();
    for kind in tasks {
        for number in 0..kind.count {
            threads.push(spawn(kind.clone(), number as usize, Arc::clone(children)));
        }
    }
    threads
}

fn spawn(kind: Kind, number: usize, children: Arc<[Kind]>) -> thread::JoinHandle<()> {
    let thread = thread::Builder::new()
        .name(kind.comm.clone())
        .spawn(move || {
            if !kind.cpus.is_empty() {
                bind(&kind.cpus[number % kind.cpus.len()]);
            }
            thread::sleep(Duration::from_nanos(kind.start.ns()));
            let mut forked = Vec::new();
            for _ in 0..kind.repeat {
                for step in &kind.steps {
                    if STOP.load(Relaxed) {
                        break;
                    }
                    if let Some(child) = run_step(step, &children) {
                        forked.push(child);
                    }
                }
            }
            for child in forked {
                let _ = child.join(); // A child that panicked has said so.
            }
        });
    thread.expect("a thread can be started")
}

fn bind(cpus: &schedlab_trace::CpuSet) {
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        set.set(cpu.index());
    }
    sched_setaffinity(None, &set).expect("the task may be bound");
}

fn run_step(step: &Step, children: &Arc<[Kind]>) -> Option<thread::JoinHandle<()>> {
    match step {
        Step::Compute(time) => {
            let end = Instant::now() + Duration::from_nanos(time.ns());
            let mut n = 0_u64;
            while Instant::now() < end {
                n = black_box(n + 1);
            }
        }
        Step::Sleep(time) => thread::sleep(Duration::from_nanos(time.ns())),
        Step::Yield => thread::yield_now(),
        Step::Nice(nice) => {
            // The calling thread alone: Linux keeps nice levels per thread.
            // SAFETY: takes numbers and no pointers.
            let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, i32::from(*nice)) };
            assert_eq!(result, 0, "root may choose any nice level");
        }
        Step::Cpus(cpus) => bind(cpus),
        Step::Fork(name) => {
            let child = children.iter().find(|kind| kind.comm == *name);
            return Some(spawn(child?.clone(), 0, Arc::clone(children)));
        }
        Step::Work(_) | Step::Write(_) | Step::Read(_) => {}
    }
    None
}
