//! The schedulers that descend from Linux 2.4's choose like it, or differ by their documented rules:
//! 100,000 random situations each (`decisions/decisions.h`), the compiled policies in a scripted kernel.
//!
//! `cargo test -p schedlab-policies --test decisions -- --nocapture` shows the counts.

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

const SITUATIONS: usize = 100_000;

/// The program of a policy, compiled once.
fn program(policy: &str) -> PathBuf {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().expect("no other test has failed to compile");
    let compile = || support::compile("decisions", policy);
    built
        .entry(policy.to_owned())
        .or_insert_with(compile)
        .clone()
}

/// The decisions of one policy in each situation of a kind.
struct Decisions {
    /// Chosen task, whether counters were recalculated, and the same of the plain model.
    answers: Vec<[i32; 4]>,
    /// How often each class of difference came.
    classes: BTreeMap<char, usize>,
    recalculated: usize,
}

/// `kind` is address spaces, arithmetic and CPUs.
fn decide(policy: &str, kind: [&str; 3], variant: &str) -> Decisions {
    let output = Command::new(program(policy))
        .args(kind)
        .arg(SITUATIONS.to_string())
        .arg(variant)
        .output()
        .expect("it was just compiled");
    let text = String::from_utf8(output.stdout).expect("only ASCII is printed");
    let last = text.lines().last().unwrap_or_default();
    assert!(output.status.success(), "{policy} {kind:?}: {last}");

    let mut decisions = Decisions {
        answers: Vec::with_capacity(SITUATIONS),
        classes: BTreeMap::new(),
        recalculated: 0,
    };
    println!(
        "{policy}{}{variant} {kind:?}:",
        if variant.is_empty() { "" } else { ":" }
    );
    for line in text.lines() {
        if let Some(count) = line.strip_prefix("# ") {
            println!("    {count}");
            continue;
        }
        let (answer, class) = line.rsplit_once(' ').expect("five words");
        let mut numbers = answer
            .split(' ')
            .map(|word| word.parse().expect("a number"));
        let answer = [(); 4].map(|()| numbers.next().expect("four numbers"));
        let class = class.parse().expect("a letter");
        *decisions.classes.entry(class).or_default() += 1;
        decisions.recalculated += usize::from(answer[3] != 0);
        decisions.answers.push(answer);
    }
    println!("    {:?}", decisions.classes);
    assert_eq!(decisions.answers.len(), SITUATIONS);
    assert!(
        decisions.recalculated >= SITUATIONS / 10,
        "only {} situations reach a recalculation",
        decisions.recalculated
    );
    decisions
}

/// Every policy does what the plain model of the rules does, so what `dss` does.
fn all_the_same(policies: &[&str], kind: [&str; 3]) {
    let first = decide(policies[0], kind, "");
    for (number, answer) in first.answers.iter().enumerate() {
        assert_eq!(
            answer[..2],
            answer[2..],
            "{} in situation {number}",
            policies[0]
        );
    }
    for policy in &policies[1..] {
        let other = decide(policy, kind, "");
        for (number, (one, two)) in first.answers.iter().zip(&other.answers).enumerate() {
            assert_eq!(
                one, two,
                "{} and {policy} in situation {number}",
                policies[0]
            );
        }
    }
}

#[test]
fn on_one_cpu() {
    all_the_same(&["dss", "mq", "elsc_heap"], ["any", "2.4", "1"]);
}

#[test]
fn on_one_cpu_in_one_address_space() {
    all_the_same(&["dss", "mq", "elsc_heap", "pls"], ["one", "2.4", "1"]);
}

/// More than the rules ask for: tasks that ran on other CPUs, run there, or may not run here.
#[test]
fn beside_three_other_cpus() {
    all_the_same(&["dss", "elsc_heap"], ["any", "2.4", "4"]);
    all_the_same(&["dss", "pls"], ["one", "2.4", "4"]);
}

/// Each difference has its rule (see `decisions/elsc.c`), and nothing else differs.
fn elsc_differs_only(cpus: &str, variant: &str, rules: &str) {
    let kind = ["any", "2.3.99", cpus];
    let dss = decide("dss", kind, "2_3_99");
    let elsc = decide("elsc", kind, variant);
    for (number, (one, two)) in dss.answers.iter().zip(&elsc.answers).enumerate() {
        assert_eq!(one[..2], one[2..], "dss in situation {number}");
        assert_eq!(one[2..], two[2..], "situation {number} is not the same");
    }
    let found: String = elsc.classes.keys().collect();
    assert_eq!(found, rules, "{:?}", elsc.classes);
}

#[test]
fn elsc_on_one_cpu() {
    elsc_differs_only("1", "", "=LUY");
    elsc_differs_only("1", "smp", "=LY");
}

#[test]
fn elsc_beside_three_other_cpus() {
    elsc_differs_only("4", "", "=TY");
}
