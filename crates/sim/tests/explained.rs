//! `schedlab explain` names the fault that was built into each policy of `tests/misbehave`, from what the simulator says.

#[path = "support/explained.rs"]
mod explained;
mod support;
#[path = "support/run.rs"]
mod virtual_kernel;

use schedlab_engine::policy::OpKind;
use schedlab_engine::{ExitInfo, Hotplug, Scenario};
use schedlab_explain::Explanation;
use schedlab_report::Exit;
use schedlab_trace::{CpuId, Instant};
use support::rules::{self, Rule, Rules};
use virtual_kernel::{machine, run};

/// Fixed, as in the test of the rules.
const SEED: u64 = 1;

/// How a rule's run ended, and the dump.
fn ejected(rules: &Rules, rule: &Rule) -> (ExitInfo, String) {
    let source = rules::folder().join(format!("{}.bpf.c", rule.name));
    let object = schedlab_policies::compile(&source).unwrap_or_else(|error| panic!("{error}"));
    let mut scenario = Scenario::new(
        machine(&rule.machine, rule.cpus),
        rules.workload(rule),
        SEED,
    );
    let event = |text: &String| {
        let event = rules::hotplug(text).expect("the file is right");
        Hotplug {
            at: Instant::ZERO + event.at,
            cpu: CpuId(event.cpu),
            online: event.online,
        }
    };
    scenario.hotplug = rule.hotplug.iter().map(event).collect();
    let end = run(&object, scenario, ());
    (end.exit, end.policy.dump().to_owned())
}

fn explain(rule: &Rule, ended: &ExitInfo, dump: &str) -> Option<Explanation> {
    let exit = Exit::of_scx(ended.kind as u64).to_string();
    let message = match &ended.place {
        // As results have it.
        Some(place) => format!("{} ({}), {place}", ended.reason, ended.message),
        None => ended.message.clone(),
    };
    let code = Some(ended.code).filter(|code| *code != 0);
    schedlab_explain::explain_result(&rule.name, &exit, Some(&message), code, dump)
}

/// Rules that no call of the policy breaks: the kernel refuses the ops table, an op returns something wrong and the
/// message names it, a task waits too long, or a CPU goes.
const NOBODY_CALLS: [&str; 11] = [
    "enq_last_no_enq_fails",
    "hotplug_nocbs",
    "never_dispatches",
    "starves_one",
    "forgets_one_in_a_list",
    "dsq_created_twice",
    "create_builtin_dsq",
    "init_fails",
    "init_rogue_errno",
    "init_task_fails",
    "select_cpu_wrong",
];
/// Its message has the lines and functions of both CPUs, which may be in different ops.
const OF_TWO_CPUS: &str = "lock_order";

/// A broken rule is reported with the op and the line of the call in the policy's own file, for each of these policies.
#[test]
fn each_call_that_breaks_a_rule_is_told_with_op_and_line() {
    let rules = Rules::read();
    let mut wrong = Vec::new();
    let mut told = 0;
    for rule in rules
        .all()
        .iter()
        .filter(|rule| explained::is_ejection(rule))
    {
        let (ended, dump) = ejected(&rules, rule);
        let found = explain(rule, &ended, &dump);
        let (op, line) = found.map_or((None, None), |found| (found.op, found.line));
        let of_timer = ended
            .place
            .as_ref()
            .is_some_and(|place| place.op == OpKind::TimerCallback);
        let nobody = NOBODY_CALLS.contains(&rule.name.as_str());
        match line {
            _ if nobody && ended.place.is_some() => {
                wrong.push(format!("{}: a call is told: {ended:?}", rule.name));
            }
            _ if nobody => {}
            None => wrong.push(format!("{}: no line: {ended:?}", rule.name)),
            Some(_) if op.is_none() && !of_timer && rule.name != OF_TWO_CPUS => {
                wrong.push(format!("{}: no op: {ended:?}", rule.name));
            }
            Some(line) => {
                told += 1;
                if let Err(why) = is_a_call(rule, &ended, &line) {
                    wrong.push(format!("{}: {line}: {why}: {ended:?}", rule.name));
                }
            }
        }
    }
    // Each other rule is one of these.
    assert!(told > 40, "{told} rules");
    assert!(
        wrong.is_empty(),
        "{} of {told}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Whether a place is a line of the policy's own file, and where the kernel's words are told, one with a call.
fn is_a_call(rule: &Rule, ended: &ExitInfo, place: &str) -> Result<(), String> {
    // Six policies are one header, their ops table included.
    let file = match rule.name.strip_prefix("exit_") {
        Some(_) => "exit_point.h".to_owned(),
        None => format!("{}.bpf.c", rule.name),
    };
    let (path, line) = place.rsplit_once(':').ok_or("no line")?;
    if !path.ends_with(&file) {
        return Err("it is of another file".to_owned());
    }
    let number: usize = line.parse().map_err(|_| "no number")?;
    let source = std::fs::read_to_string(rules::folder().join(file)).expect("it is readable");
    let text = source.lines().nth(number - 1).ok_or("no such line")?;
    match text.contains('(') || ended.place.is_none() {
        true => Ok(()),
        false => Err(format!("no call: {text}")),
    }
}

#[test]
fn each_fault_that_was_built_in_is_named() {
    let rules = Rules::read();
    let expected = explained::read();
    let mut counts = explained::Counts::new();
    let mut wrong = Vec::new();
    for rule in rules
        .all()
        .iter()
        .filter(|rule| explained::is_ejection(rule))
    {
        let expected = &expected[&rule.name];
        let (ended, dump) = ejected(&rules, rule);
        let found = explain(rule, &ended, &dump);
        let judged = explained::judge(expected, found.as_ref());
        let count = counts.entry(explained::name(expected.culprit)).or_default();
        count.0 += 1;
        match judged {
            Ok(()) => count.1 += 1,
            Err(why) => wrong.push(format!("{}: {why}", rule.name)),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} are not named:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let how = "cargo test -p schedlab-sim --test explained";
    explained::compare("simulation", &explained::table(&counts), how);
}
