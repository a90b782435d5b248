//! The same order in both worlds: threads on one CPU that only yield run under a policy in a real kernel,
//! and once more in the virtual kernel. Both must choose the same task every time, after looking at the
//! same number of tasks.
//!
//! The two are comparable for these reasons:
//! - one virtual CPU, and a policy that gets the yielders alone (`SCX_OPS_SWITCH_PARTIAL`): everything
//!   else of the machine is of a higher class, and the policy never hears of it;
//! - all yielders are there and asleep before the policy is loaded, so it knows the same of each, and
//!   they are woken one after another by a task of a higher class, so that none begins before the last
//!   one is queued;
//! - a yielder that loses its CPU to a higher class keeps its place (`lab_keeps_place`, which this test alone
//!   sets), for the simulation knows nothing of that class;
//! - slices that never end, since the timer's phase is not under control;
//! - time in the machine is counted in instructions, so that nothing of the host shows as a long turn;
//! - the run time of a yielder is an input of a policy that goes by running time. It is measured with the
//!   policy's own clock and given to the simulation, turn by turn. What the policies make of it, the
//!   order, is compared, and nothing is tolerated.
//!
//! Where a task of a higher class gets in between the two steps of sched_yield(), the kernel asks the
//! policy in another state than without it. Such a case is tried again.

#[path = "order/guest.rs"]
mod guest;
#[path = "order/record.rs"]
mod record;
#[path = "order/simulated.rs"]
mod simulated;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use record::{Case, End, POLICIES, SIZES, Turn, yields};
use schedlab_kernel::kernel_log::complaints;
use schedlab_kernel::vm::Vm;
use schedlab_kernel::{Error, bpf_policy, clang};
use schedlab_testing::checks::{self, Check, Ended, Verdicts};

/// First argument of this program inside; the compiled recorder follows.
const MARK: &str = "yielders-inside-the-virtual-machine";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == MARK) {
        return match guest::run(Path::new(&arguments[1]), &arguments[2..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                println!("FAILED {why}");
                ExitCode::FAILURE
            }
        };
    }
    let is_policy = |name: &&str| POLICIES.iter().any(|(policy, _)| policy == name);
    assert!(EACH_TIME.iter().all(is_policy));
    let all = POLICIES.iter().flat_map(|(policy, _)| {
        let cases = SIZES
            .iter()
            .map(move |size| format!("{policy}/{size}_yielders"));
        let names = cases.chain([not_those_of_fifo(policy)]);
        names.map(|name| match EACH_TIME.contains(policy) {
            true => Check::short(name),
            false => Check::long(name),
        })
    });
    checks::run(
        all.filter(|check| check.name() != not_those_of_fifo(FIFO)),
        |chosen, verdicts| {
            if let Err(why) = clang::find() {
                return Ended::Missing(format!("the same order in both worlds: {why}"));
            }
            let asked = POLICIES.map(|(policy, _)| policy);
            let asked = asked.into_iter().filter(|policy| {
                let of_it = |name: &String| name.starts_with(&format!("{policy}/"));
                chosen.iter().any(of_it)
            });
            let asked: Vec<&str> = asked.collect();
            match in_the_kernel(&asked) {
                Ok(cases) => {
                    judge(&cases, &asked, verdicts);
                    Ended::Judged(Ok(()))
                }
                Err(Failure::Skipped(why)) => {
                    Ended::Missing(format!("the same order in both worlds: {why}"))
                }
                Err(Failure::Failed(why)) => Ended::Judged(Err(why)),
            }
        },
    )
}

/// The policies that `make test` compares: one on a dispatch queue of the kernel, one on a list of its own.
const EACH_TIME: [&str; 2] = ["vtime", "dss"];

/// The policy whose orders those of the others differ from.
const FIFO: &str = POLICIES[0].0;

/// Returns the name of the check that the comparison tells a policy from [`FIFO`].
fn not_those_of_fifo(policy: &str) -> String {
    format!("{policy}/orders_are_not_those_of_fifo")
}

enum Failure {
    Skipped(String),
    Failed(String),
}

/// Boots one virtual machine and has every case run inside.
fn in_the_kernel(policies: &[&str]) -> Result<Vec<Case>, Failure> {
    let failed = |why: String| Failure::Failed(why);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/order/order.bpf.c");
    let recorder = bpf_policy::compile(&source).map_err(|e| failed(e.to_string()))?;
    let object = folder.path().join("order");
    fs::write(&object, &recorder.bytes).expect("the temporary folder can be written");

    let vm = Vm {
        cpus: 1,
        repeatable: true,
        ..Vm::default()
    };
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = vec![
        program.into_os_string(),
        OsString::from(MARK),
        object.into(),
    ];
    command.extend(policies.iter().map(OsString::from));
    let output = match vm.output(&command, &|note| println!("{note}")) {
        Ok(output) => output,
        Err(error @ (Error::Missing { .. } | Error::NoKernel(_))) => {
            return Err(Failure::Skipped(error.to_string()));
        }
        Err(error) => return Err(failed(error.to_string())),
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let (cases, notes): (Vec<&str>, Vec<&str>) = stdout.lines().partition(|l| l.starts_with('{'));
    notes.iter().for_each(|note| println!("{note}"));
    if let Ok(file) = std::env::var("SCHEDLAB_ORDER_CASES") {
        // For a look at what the kernel did.
        fs::write(file, cases.join("\n")).expect("the file that was asked for can be written");
    }
    if output.code != 0 || !complaints(&output.kernel_log).is_empty() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let log = output.kernel_log;
        return Err(failed(format!(
            "in the virtual machine\n{stderr}kernel log:\n{log}"
        )));
    }
    let parse = |line: &&str| serde_json::from_str(line);
    let cases: Result<Vec<Case>, _> = cases.iter().map(parse).collect();
    cases.map_err(|e| failed(format!("the record cannot be read: {e}")))
}

/// Judges every case of the policies: it is there, and the simulation agrees with it.
fn judge(cases: &[Case], policies: &[&str], verdicts: &Verdicts) {
    for (policy, options) in POLICIES {
        if !policies.contains(&policy) {
            continue;
        }
        let mut other_than_fifo = 0;
        for size in SIZES {
            let name = format!("{policy}/{size}_yielders");
            let found = cases
                .iter()
                .find(|case| case.policy == policy && case.yielders == size);
            let Some(case) = found else {
                verdicts.tell(&name, Err("did not run".to_owned()));
                continue;
            };
            let result = complete(case)
                .and_then(|()| simulated::simulate(case, policy, options))
                .and_then(|turns| simulated::compare(&case.turns, &turns));
            if result.is_ok() {
                println!("{}", summary(case));
            }
            verdicts.tell(&name, result);
            // The comparison distinguishes policies, so it would find a wrong order.
            if policy != FIFO
                && simulated::simulate(case, FIFO, POLICIES[0].1)
                    .and_then(|turns| simulated::compare(&case.turns, &turns))
                    .is_err()
            {
                other_than_fifo += 1;
            }
        }
        let told = match other_than_fifo < SIZES.len() - 1 {
            true => Err(format!("only {other_than_fifo} are not")),
            false => Ok(()),
        };
        if policy != FIFO {
            verdicts.tell(&not_those_of_fifo(policy), told);
        }
    }
}

/// The tick of a policy that counts ticks. None may end in a case: where exactly it ends in a turn
/// cannot be measured.
const TICK_NS: u64 = 10_000_000;

/// Each yielder has done all its yields and waits; then the record is whole.
fn complete(case: &Case) -> Result<(), String> {
    for task in 0..case.yielders {
        let turns: Vec<&Turn> = case.turns.iter().filter(|t| t.task == task).collect();
        let done: u32 = turns.iter().map(|turn| turn.yields).sum();
        let asked = yields(case.yielders);
        if done != asked {
            return Err(format!("yielder {task} yielded {done} times, not {asked}"));
        }
        let ran_ns: u64 = turns.iter().map(|turn| turn.ran_ns).sum();
        if ran_ns > TICK_NS * 9 / 10 {
            return Err(format!(
                "yielder {task} ran {ran_ns} ns, nearly a tick of {TICK_NS} ns"
            ));
        }
        let blocks = turns.iter().filter(|turn| turn.end == End::Block).count();
        if blocks != 1 || turns.last().is_none_or(|turn| turn.end != End::Block) {
            return Err(format!(
                "yielder {task} waited {blocks} times, not once at its end"
            ));
        }
    }
    Ok(())
}

fn summary(case: &Case) -> String {
    let turns = case.turns.len();
    let examined: u64 = case.turns.iter().map(|turn| turn.examined).sum();
    let interrupted = case.interruptions;
    format!(
        "{}, {} yielders: {turns} choices alike, {:.2} tasks examined each; {interrupted} interruptions, attempt {}",
        case.policy,
        case.yielders,
        examined as f64 / turns as f64,
        case.attempts
    )
}
