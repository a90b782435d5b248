//! The rules of sched_ext hold in the virtual kernel (`docs/selftests.md`, `tests/misbehave/rules.toml`).

#[path = "../../abi/tests/common/linux_source.rs"]
mod linux_source;
mod support;
#[path = "support/run.rs"]
mod virtual_kernel;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use schedlab_abi::NativeObject;
use schedlab_engine::{ExitKind, Hotplug, Mutation, Scenario};
use schedlab_trace::{CpuId, Instant};
use support::rules::{self, Expect, Rule, Rules};
use virtual_kernel::{checkers, machine, run, violations};

/// Fixed: a rule holds for every seed, and a failure must come back.
const SEED: u64 = 1;
/// The code of rule_holds() in tests/misbehave/rule.h.
const RULE_HOLDS: i64 = 1000;

/// The kernel's selftests, as of Linux 7.2.
const SELFTESTS: [&str; 30] = [
    "allowed_cpus",
    "create_dsq",
    "cyclic_kick_wait",
    "ddsp_bogus_dsq_fail",
    "ddsp_vtimelocal_fail",
    "dequeue",
    "dsp_local_on",
    "enq_last_no_enq_fails",
    "enq_select_cpu",
    "exit",
    "hotplug",
    "init_enable_count",
    "maximal",
    "maybe_null",
    "minimal",
    "nohz_tick",
    "non_scx_kfunc_deny",
    "numa",
    "peek_dsq",
    "prog_run",
    "reload_loop",
    "rt_stall",
    "select_cpu_dfl",
    "select_cpu_dfl_nodispatch",
    "select_cpu_dispatch",
    "select_cpu_dispatch_bad_dsq",
    "select_cpu_dispatch_dbl_dsp",
    "select_cpu_vtime",
    "test_example",
    "total_bw",
];

/// A row of the table in docs/selftests.md.
struct Row {
    selftest: String,
    rule: String,
    status: String,
    fixtures: BTreeSet<String>,
    mutations: BTreeSet<String>,
}

fn table() -> Vec<Row> {
    let path = rules::repository().join("docs/selftests.md");
    let text = std::fs::read_to_string(path).expect("docs/selftests.md is readable");
    let names = |cell: &str| -> BTreeSet<String> {
        cell.split(',')
            .map(|name| name.trim().trim_matches('`').to_owned())
            .filter(|name| !name.is_empty())
            .collect()
    };
    text.lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| selftest"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" |").map(str::trim).collect();
            assert_eq!(cells.len(), 5, "five columns: {line}");
            Row {
                selftest: cells[0].trim_matches('|').trim().to_owned(),
                rule: cells[1].trim_matches('|').trim().to_owned(),
                status: cells[2].trim_matches('|').trim().to_owned(),
                fixtures: names(cells[3].trim_matches('|')),
                mutations: names(cells[4].trim_matches('|')),
            }
        })
        .collect()
}

#[test]
fn the_table_lists_all_thirty_with_a_reason() {
    let rows = table();
    let listed: Vec<&str> = rows.iter().map(|row| row.selftest.as_str()).collect();
    assert_eq!(listed, SELFTESTS);
    for row in &rows {
        assert!(!row.rule.is_empty(), "{}: no rule", row.selftest);
        let simulated = row.status.starts_with("simulated");
        let reasoned = ["VM only: ", "not applicable: "]
            .iter()
            .any(|status| row.status.starts_with(status));
        assert!(
            simulated || reasoned,
            "{}: status `{}`",
            row.selftest,
            row.status
        );
        assert_eq!(simulated, !row.fixtures.is_empty(), "{}", row.selftest);
        assert_eq!(simulated, !row.mutations.is_empty(), "{}", row.selftest);
    }
    let simulated = rows
        .iter()
        .filter(|row| row.status.starts_with("simulated"))
        .count();
    assert!(simulated >= 20, "{simulated} simulated");
}

#[test]
fn table_rules_and_fixtures_agree() {
    let rules = Rules::read();
    let mut fixtures: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut mutations: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for rule in rules.all() {
        assert!(
            names.insert(rule.name.clone()),
            "{} stands twice",
            rule.name
        );
        if let Some(selftest) = &rule.selftest {
            let mutation = rule.mutation.clone();
            let mutation = mutation.unwrap_or_else(|| panic!("{} has no mutation", rule.name));
            let of = |map: &mut BTreeMap<String, BTreeSet<String>>, value: String| {
                map.entry(selftest.clone()).or_default().insert(value);
            };
            of(&mut fixtures, rule.name.clone());
            of(&mut mutations, mutation);
        }
    }
    for row in table() {
        let of = |map: &BTreeMap<String, BTreeSet<String>>| {
            map.get(&row.selftest).cloned().unwrap_or_default()
        };
        assert_eq!(row.fixtures, of(&fixtures), "{}", row.selftest);
        assert_eq!(row.mutations, of(&mutations), "{}", row.selftest);
    }
    let files: BTreeSet<String> = std::fs::read_dir(rules::folder())
        .expect("tests/misbehave exists")
        .filter_map(|entry| {
            let name = entry.expect("a folder's entry").file_name();
            Some(name.to_str()?.strip_suffix(".bpf.c")?.to_owned())
        })
        .collect();
    assert_eq!(
        files, names,
        "each fixture has a rule and each rule a fixture"
    );
}

#[test]
fn every_workload_can_be_built() {
    let rules = Rules::read();
    for rule in rules.all() {
        assert!(!rules.workload(rule).tasks.is_empty(), "{}", rule.name);
    }
}

fn compile(name: &str) -> Arc<NativeObject> {
    let source = rules::folder().join(format!("{name}.bpf.c"));
    schedlab_policies::compile(&source).unwrap_or_else(|error| panic!("{error}"))
}

fn mutation(name: &str) -> Mutation {
    let known = Mutation::ALL.iter().find(|known| known.name() == name);
    *known.unwrap_or_else(|| panic!("there is no mutation `{name}`"))
}

/// Why a rule does not hold.
#[derive(Debug)]
enum Broken {
    /// The exit or a global of the fixture says so.
    Rule(String),
    /// Something else went wrong.
    Other(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Broken::Rule(why) | Broken::Other(why)) = self;
        f.write_str(why)
    }
}

/// Runs a rule once and returns why it does not hold.
fn judge(
    rules: &Rules,
    rule: &Rule,
    object: &Arc<NativeObject>,
    mutation: Option<Mutation>,
) -> Result<(), Broken> {
    let mut scenario = Scenario::new(
        machine(&rule.machine, rule.cpus),
        rules.workload(rule),
        SEED,
    );
    scenario.mutation = mutation;
    scenario.hotplug = rule
        .hotplug
        .iter()
        .map(|text| {
            let event = rules::hotplug(text).expect("the file is right");
            Hotplug {
                at: Instant::ZERO + event.at,
                cpu: CpuId(event.cpu),
                online: event.online,
            }
        })
        .collect();
    let end = run(object, scenario, checkers(rule.cpus, 0));
    // For a look into a fixture that does not hold: SCHEDLAB_SHOW=nr_runs,verdict.
    for name in std::env::var("SCHEDLAB_SHOW")
        .iter()
        .flat_map(|names| names.split(','))
    {
        println!("{}: {name} = {:?}", rule.name, end.policy.global(name));
    }
    let (kind, code) = match rule.expect {
        Expect::Holds => (ExitKind::UnregBpf, Some(RULE_HOLDS)),
        Expect::Done => (ExitKind::Done, None),
        Expect::Error => (ExitKind::Error, None),
        Expect::ErrorBpf => (ExitKind::ErrorBpf, None),
        Expect::Stall => (ExitKind::ErrorStall, None),
        Expect::UnregBpf => (ExitKind::UnregBpf, rule.code),
        Expect::UnregKernel => (ExitKind::UnregKern, rule.code),
        Expect::Fault => (ExitKind::Fault, None),
    };
    if let Some(failure) = &end.failure {
        return Err(Broken::Other(format!("the workload failed: {failure}")));
    }
    let exit = &end.exit;
    if exit.kind != kind || code.is_some_and(|code| code != exit.code) {
        let why = format!("{exit:?}, expected {kind:?} {code:?}");
        // Whatever else befalls the policy is not what the rule is about.
        let is_fault = exit.kind == ExitKind::Fault;
        return Err(if is_fault {
            Broken::Other(why)
        } else {
            Broken::Rule(why)
        });
    }
    let mut texts = rule.message.iter().chain(&rule.says);
    if let Some(text) = texts.find(|text| !exit.message.contains(*text)) {
        let why = format!("`{}` does not say `{text}`", exit.message);
        return Err(Broken::Rule(why));
    }
    if rule.expect == Expect::Done && !end.unfinished.is_empty() {
        let why = format!("{} tasks did not end", end.unfinished.len());
        return Err(Broken::Rule(why));
    }
    for (name, &expected) in &rule.global {
        let bytes = end.policy.global(name);
        let bytes = bytes.ok_or_else(|| Broken::Other(format!("there is no global `{name}`")))?;
        let value = match bytes[..] {
            [a, b, c, d] => i64::from(i32::from_ne_bytes([a, b, c, d])),
            _ => {
                let why = format!("`{name}` has {} bytes, not 4", bytes.len());
                return Err(Broken::Other(why));
            }
        };
        if value != expected {
            let why = format!("`{name}` is {value}, not {expected}");
            return Err(Broken::Rule(why));
        }
    }
    // A stall is what the last checker would find, too.
    let broken = violations(end.recorder);
    if !broken.is_empty() && rule.expect != Expect::Stall {
        return Err(Broken::Other(format!("invariants broken: {broken}")));
    }
    Ok(())
}

/// All loads of a rule: half of them in a second thread at the same time.
fn judge_all(
    rules: &Rules,
    rule: &Rule,
    object: &Arc<NativeObject>,
    mutation: Option<Mutation>,
) -> Result<(), Broken> {
    let half = |loads: u32| (0..loads).try_for_each(|_| judge(rules, rule, object, mutation));
    if rule.loads == 1 {
        return half(1);
    }
    std::thread::scope(|scope| {
        let other = scope.spawn(|| half(rule.loads / 2));
        let mine = half(rule.loads - rule.loads / 2);
        mine.and(
            other
                .join()
                .expect("the other thread panics as this one does"),
        )
    })
}

/// One rule at a time where SCHEDLAB_RULE names it.
fn asked(rule: &Rule) -> bool {
    std::env::var("SCHEDLAB_RULE").map_or(true, |name| rule.name == name)
}

#[test]
fn the_rules_hold() {
    let rules = Rules::read();
    let mut broken = Vec::new();
    for rule in rules.all().iter().filter(|rule| asked(rule)) {
        let object = compile(&rule.name);
        if let Err(why) = judge_all(&rules, rule, &object, None) {
            broken.push(format!("{}: {}\n    {why}", rule.name, rule.description));
        }
    }
    assert!(
        broken.is_empty(),
        "{} rules do not hold; repeat one with SCHEDLAB_RULE=name\n{}",
        broken.len(),
        broken.join("\n")
    );
}

#[test]
fn each_mutation_breaks_its_rules() {
    let rules = Rules::read();
    let mut unnoticed = Vec::new();
    let mut used = BTreeSet::new();
    for rule in rules.all().iter().filter(|rule| asked(rule)) {
        let Some(name) = &rule.mutation else { continue };
        used.insert(name.clone());
        let object = compile(&rule.name);
        match judge(&rules, rule, &object, Some(mutation(name))) {
            Ok(()) => unnoticed.push(format!("{}: {name}", rule.name)),
            // Shown with --nocapture: what a broken rule looks like.
            Err(Broken::Rule(why)) => println!("{} {name}: {why}", rule.name),
            Err(Broken::Other(why)) => unnoticed.push(format!("{}: {name}, but {why}", rule.name)),
        }
    }
    assert!(
        unnoticed.is_empty(),
        "not noticed: {}",
        unnoticed.join(", ")
    );
    let known: BTreeSet<String> = Mutation::ALL.iter().map(|m| m.name().to_owned()).collect();
    if std::env::var_os("SCHEDLAB_RULE").is_none() {
        assert_eq!(used, known, "each mutation has a rule that it breaks");
    }
}

#[test]
fn the_thirty_are_those_of_the_source() {
    let Some(tree) = linux_source::find("the list of the kernel's selftests") else {
        return;
    };
    // Code that belongs to the runner and is no test.
    const RUNNER: [&str; 2] = ["runner", "util"];
    let folder = tree.join("tools/testing/selftests/sched_ext");
    let mut tests: Vec<String> = std::fs::read_dir(folder)
        .expect("the selftests are there")
        .filter_map(|entry| {
            let name = entry.expect("a folder's entry").file_name();
            let name = name.to_str()?.strip_suffix(".c")?.to_owned();
            (!name.ends_with(".bpf") && !RUNNER.contains(&name.as_str())).then_some(name)
        })
        .collect();
    tests.sort();
    assert_eq!(tests, SELFTESTS);
}

fn run_scx_simple(source: &Path, options: &str) {
    let object = schedlab_policies::compile(source).unwrap_or_else(|error| panic!("{error}"));
    let settings = object
        .settings(&schedlab_trace::Scheduler::parse_options(options))
        .unwrap_or_else(|error| panic!("{error}"));
    let rules = Rules::read();
    for name in ["sleepers", "forkers", "queueing"] {
        let cpus = 4;
        let machine = machine("laptop", cpus);
        let policy = schedlab_abi::NativePolicy::load(
            &object,
            &settings,
            &machine,
            schedlab_abi::KernelVersion::default(),
        );
        let policy = policy.unwrap_or_else(|error| panic!("{error}"));
        let scenario = Scenario::new(machine, rules.workload_named(name, cpus), SEED);
        let end = schedlab_engine::run(scenario, policy, checkers(cpus, 0));
        assert_eq!(end.exit.kind, ExitKind::Done, "{name}: {:?}", end.exit);
        assert!(end.unfinished.is_empty(), "{name}: {:?}", end.unfinished);
        assert_eq!(violations(end.recorder), "", "{name}");
        assert!(end.switches > 100, "{name}: {} switches", end.switches);
    }
}

#[test]
fn scx_simple_of_the_kernel_tree_runs_unmodified() {
    let Some(tree) = linux_source::find("scx_simple.bpf.c of the kernel tree") else {
        return;
    };
    let source = tree.join("tools/sched_ext/scx_simple.bpf.c");
    run_scx_simple(&source, "");
    run_scx_simple(&source, "fifo_sched=true");
}
