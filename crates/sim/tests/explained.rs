//! `schedlab explain` names the fault that was built into each policy of `tests/misbehave`, from what the simulator says.

#[path = "support/explained.rs"]
mod explained;
mod support;
#[path = "support/run.rs"]
mod virtual_kernel;

use schedlab_engine::{Hotplug, Scenario};
use schedlab_explain::Explanation;
use schedlab_report::Exit;
use schedlab_trace::{CpuId, Instant};
use support::rules::{self, Rule, Rules};
use virtual_kernel::{machine, run};

/// Fixed, as in the test of the rules.
const SEED: u64 = 1;

fn explain(rules: &Rules, rule: &Rule) -> Option<Explanation> {
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
    let exit = Exit::of_scx(end.exit.kind as u64).to_string();
    let message = Some(end.exit.message.as_str());
    let code = Some(end.exit.code).filter(|code| *code != 0);
    schedlab_explain::explain_result(&rule.name, &exit, message, code, end.policy.dump())
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
        let found = explain(&rules, rule);
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
