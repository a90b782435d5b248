//! The rules of sched_ext hold in the virtual kernel (`docs/selftests.md`, `tests/misbehave/rules.toml`).

mod support;

use std::collections::{BTreeMap, BTreeSet};

use support::rules::{self, Rules};

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
        assert!(row.rule.len() > 10, "{}: no rule", row.selftest);
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
